//! Playbooks: a subset of Ansible's language, compiled on the manager and run on the node.
//!
//! ```text
//! files ──compile──> Plan ──(sent in one session)──> run ──> Events, RunEnd
//!   yaml, lint, args        rendered: predicted files    modules: changes
//! ```
//! `compile` and `rendered` are pure. `run` blocks, changes only this machine, and knows nothing of
//! SSH or attempts.
#![doc = include_str!("../README.md")]

mod accounts;
mod atomic_fs;
mod backup;
mod bounds;
mod compile;
mod dynamic_include;
mod elevation;
mod event;
mod expr;
mod facts;
mod filters;
mod handlers;
mod hosts;
mod hostvars;
pub mod language; // public, although only its own test uses it: it compares the document
mod lint;
mod loop_result;
mod loops;
mod modules;
mod node;
mod output_throttle;
mod plan;
mod plan_hash;
mod play_barrier;
pub mod process; // public because managers run ansible-playbook with it
mod pyregex;
mod python;
mod pyyaml;
mod rendered;
mod run;
mod schedule;
mod scope;
mod secrets;
mod symlink_safe_path;
mod task;
mod temp_files;
mod template_fault;
mod tera_text;
mod tree_removal;
mod undefined_chain;
mod unknown;
mod var_map;
mod variable_scope;
mod version;
mod word_split;
mod yaml;

pub use backup::{UndoError, undo};
pub use compile::{CompileOptions, Compiled, HostContext, SPECIAL_TAGS, compile, outline};
pub use elevation::MIXED;
pub use event::{
    AttributeChange, CancelToken, PlaybookRunOptions, ResetupPhase, RunEnd, RunEvent, RunFailure, Status, TaskReport,
};
pub use facts::gather;
pub use hosts::{InventoryNames, LOCAL, Selected};
pub use plan::*;
pub use play_barrier::PlayBarrier;
pub use rendered::{PredictedTask, RenderedFile, no_log_files, predict_files, review};
pub use run::run;
pub use schedule::{BatchVerdict, HostEnd, HostOrder, PlayKeys, Portion, Schedule};
pub use secrets::Secrets;
pub use template_fault::TemplateFault;
pub use var_map::{SharedVar, boolean};

#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod tests;
