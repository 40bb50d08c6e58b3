//! Every decision, without any IO: `step(now, event) -> actions`.
//!
//! Rules of this folder: no clock, no randomness, no tokio, no tracing, no unordered maps. The
//! engine requests an effect on a node only if the applied inventory contains the open attempt that
//! allows it. A timer derives all work from the inventory again; events only make it happen sooner.

mod absence;
mod budget;
mod crowd;
mod drift;
mod event;
mod examination;
mod explain;
mod live;
mod manager;
mod observed;
mod place;
mod policy;
mod presence;
mod resetup;
mod roles;
mod routes;
mod runner;
mod view;

pub use absence::{cause, marks_seen};
pub use budget::breaker;
pub use drift::{Evidence, compare};
pub use event::{About, Action, Event, ExamOutcome, Line, PhaseResult, Purpose, Ticket, Verified};
pub use explain::{Rule, explain};
pub use manager::{Manager, marks_of};
pub use observed::{Observed, observed};
pub use policy::{flapping, remedy, with_dependents};
pub use roles::{Membership, RoleStep, Roles, STEADY_MS, Whose};
pub use view::{Condition, Presence};
