//! What the executor has done for it: examining, running, undoing. The daemon's binary plugs the real thing in; tests
//! plug in a smaller one.

use super::cancel::Cancel;
use super::runs::RunPaths;
use super::wire::{PlayOrder, RunOrder};
use crate::model::{Exam, Manifest};
use std::path::Path;

/// Called from one thread at a time.
pub trait Work: Send + Sync {
    /// Digest and checks; the executor fills in what the machine says of itself. Changes nothing.
    fn examine(&self, manifest: &Manifest, digest_key: &[u8; 32]) -> Exam;

    /// Runs a plan, hands each event to `sink` as JSON, and returns how it ended. Between two tasks it looks at `cancel`
    /// and stops if that says so; processes that it starts in groups of their own it reports to `cancel`.
    /// Of the answer the executor reads two keys: `refused` (not null: nothing was run) and `failed` (not null: a task
    /// failed).
    fn run(
        &self,
        order: &RunOrder,
        paths: &RunPaths,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value;

    /// Runs a plan for a person, as `run`; handlers that it owes are kept in `journal`, nowhere if that is empty.
    fn play(
        &self,
        order: &PlayOrder,
        journal: &Path,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value;

    /// Puts the files of a backup back. Ok: the paths restored; Err: why, in words.
    fn undo(&self, backup: &Path) -> Result<Vec<String>, String>;
}
