//! Playbooks: a subset of Ansible's language, compiled on the manager and run on the node.
//!
//! ```text
//! files ──compile──> Plan ──(sent in one session)──> run ──> Events, RunEnd
//!   yaml, lint, args        rendered: predicted files    modules: changes
//! ```
//! `compile` and `rendered` are pure. `run` blocks its thread, changes only this machine, and knows
//! nothing of SSH or attempts.
#![doc = include_str!("../README.md")]

mod filters;
mod lang;
mod template;
mod vars;

mod compile;
mod plan;
mod rendered;

mod backup;
mod delegate;
mod facts;
mod modules;
mod node;
mod os;
mod run;

pub use backup::{UndoError, undo};
pub use compile::{
    CompileOptions, Compiled, ControllerFiles, HostContext, PromptAnswers, PromptHash, SPECIAL_TAGS, VarsPrompt,
    VaultAccess, compile, downgrade_undefined, is_about_undefined, merge_refusal_notes, outline, vars_prompts,
};
pub use delegate::{
    BackgroundJob, BackgroundStarter, ControllerFile, ControllerLink, ControllerRequest, ControllerView,
    DelegatedRequest, DelegatedTask, DelegationError, FetchAnswer, FetchRequest, FetchTarget, FileAnswer, HostValues,
    IncomingFile, LookupRequest, OnceAnswer, OtherValues, PlannedChange, PlannedLookup, RebootRequest, RequestLimits,
    RequestedTask, RsyncRoute, RsyncTransfer, SENT_MAX, SharedValues, TaskOccurrence, ValueOrigin, plan_delegated,
    plan_fetch, plan_inventory_change, plan_lookup, read_request, run_job,
};
pub use facts::gather;
pub use filters::{
    KnownAnswers, LookupAnswer, LookupCall, PluginKind, perform_file_test, search_places, with_lookup_answers,
};
pub use lang::hosts::{InventoryNames, LOCAL, Selected, wildcard};
pub use lang::language; // public because only a test reads it, and a private item without another user is dead code
pub use modules::repository_file;
pub use os::process; // public because managers run ansible-playbook with it
pub use plan::schedule::{BatchVerdict, HostEnd, HostOrder, PlayKeys, Portion, Schedule};
pub use plan::*;
pub use rendered::{PredictedTask, RenderedFile, no_log_files, predict_files, review};
pub use run::event::{
    AttributeChange, CancelToken, PlaybookRunOptions, ResetupPhase, RunEnd, RunEvent, RunFailure, Status, TaskReport,
};
pub use run::play_barrier::PlayBarrier;
pub use run::python_check::check_python;
pub use run::run;
pub use run::secrets::{SecretTexts, Secrets};
pub use template::template_fault::TemplateFault;
pub use vars::var_map::{SharedVar, boolean};

#[cfg(test)]
mod tests;
