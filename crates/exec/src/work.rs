//! Work that the executor delegates: examine, run, undo. The binary uses the real implementation;
//! tests use a smaller one.

use super::cancel::SessionCancel;
use super::runs::RunPaths;
use super::wire::{PlayOrder, RunOrder};
use remoor_model::{Exam, NodeManifest};
use std::path::Path;
use std::sync::Arc;

/// Sends a request to the controller and waits for its answer. The error says why there is none.
pub type AskController = Arc<dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync>;

/// The work of an executor. Its methods are called from one thread at a time.
pub trait ExecutorWork: Send + Sync {
    /// Computes digest and checks. The executor adds the facts of the machine. Changes nothing.
    fn examine(&self, manifest: &NodeManifest, digest_key: &[u8; 32]) -> Exam;

    /// The reason why this machine cannot run a plan, or None. Changes nothing.
    fn check_plan(&self, plan: &[u8], cancel: &SessionCancel) -> Option<String>;

    /// Runs a plan, passes each event to `sink` as JSON, and returns the end of the run. Must check
    /// `cancel` between two tasks, and end the run if `cancel` requests a stop. Must report to
    /// `cancel` the processes that it starts in their own groups. The executor reads two keys of
    /// the result: `refused` (not null: nothing was run) and `failed` (not null: a task failed).
    fn run(
        &self,
        order: &RunOrder,
        paths: &RunPaths,
        cancel: &SessionCancel,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value;

    /// Runs a plan for a person, like `run`. Pending handlers are kept in the file `journal`. If
    /// `journal` is empty, they are not kept. The run may ask the controller with `ask`.
    fn play(
        &self,
        order: &PlayOrder,
        journal: &Path,
        cancel: &SessionCancel,
        ask: AskController,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value;

    /// Restores the files of a backup. Ok: the restored paths. Err: the reason.
    fn undo(&self, backup: &Path) -> Result<Vec<String>, String>;
}
