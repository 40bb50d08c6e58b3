//! Playbooks: a subset of Ansible's language, compiled on the manager and run on the node.
//!
//! ```text
//! files ──compile──> Plan ──(sent in one session)──> run ──> Events, RunEnd
//!   yaml, lint, args        rendered: predicted files    modules: changes
//! ```
//! `compile` and `rendered` are pure. `run` blocks, changes only this machine, and knows nothing of
//! SSH or attempts.

mod backup;
mod bounds;
mod chain;
mod compile;
mod data;
mod due;
mod elevation;
mod event;
mod expr;
mod facts;
mod faucet;
mod filters;
mod frame;
mod gate;
mod hosts;
mod hostvars;
pub mod language; // public, although only its own test uses it: it compares the document
mod lint;
mod loops;
mod modules;
mod names;
mod node;
mod notes;
mod opened;
mod owner;
mod plan;
pub mod process; // public because managers run ansible-playbook with it
mod pyregex;
mod python;
mod pyyaml;
mod rendered;
mod run;
mod safe;
mod schedule;
mod scope;
mod secrets;
mod split;
mod step;
mod template_fault;
mod tera_text;
mod tree;
mod unknown;
mod version;
mod way;
mod yaml;

pub use backup::{UndoError, undo};
pub use compile::{CompileOptions, Compiled, HostContext, SPECIAL_TAGS, compile, outline};
pub use data::{Shared, boolean};
pub use elevation::MIXED;
pub use event::{AttributeChange, Cancel, Done, Event, Failure, Phase, RunEnd, RunOptions, Status};
pub use facts::facts;
pub use gate::Gate;
pub use hosts::{Hosts, LOCAL, Selected};
pub use plan::*;
pub use rendered::{Rendered, Seen, hidden, rendered, review};
pub use run::run;
pub use schedule::{HostEnd, Order, PlayKeys, Portion, Schedule, Verdict};
pub use secrets::Secrets;
pub use template_fault::TemplateFault;

#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod tests;
