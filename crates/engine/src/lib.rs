//! Every decision of the leader, without any IO: `step(now, event) -> actions`.
//!
//! Rules of this crate: no clock, no randomness, no tokio, no tracing, no unordered maps. The
//! engine requests an effect on a node only if the applied inventory contains an open attempt that
//! allows the effect. A timer derives all work from the inventory again; events only make the work
//! happen sooner.
#![doc = include_str!("../README.md")]

mod absence;
mod address_tracking;
mod budget;
mod drift;
mod event;
mod examination;
mod explain;
mod live;
mod manager;
mod mass_return;
mod observed_role;
mod policy;
mod presence;
mod resetup;
mod roles;
mod routes;
mod runner;
mod view;

pub use absence::{cause, observed_fingerprint};
pub use budget::breaker;
pub use drift::{Evidence, compare};
pub use event::{
    About, Action, EngineEvent, ExamOutcome, ExaminationTicket, PhaseResult, Purpose, Reachability, Verified,
};
pub use explain::{Rule, explain};
pub use manager::{ManagerEngine, reported_fingerprint};
pub use observed_role::{ObservedRole, observed_role};
pub use policy::{is_flapping, planned_action, with_dependents};
pub use roles::{Membership, RoleManager, RoleStep, RoleSubject, STEADY_MS};
pub use view::{NodeCondition, Presence};
