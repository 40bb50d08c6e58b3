//! Removes files that this manager does not need any more: blobs without a reference, and logs of
//! attempts that belong to no job.

use super::ManagerContext;
use remoor_host::disk::DiskError;
use remoor_model::{Inventory, Sha256};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const EVERY: Duration = Duration::from_secs(3600);
/// Minimum age of a file before it is removed. A younger file may belong to an entry that is not
/// applied yet.
const AGE_MIN: Duration = Duration::from_secs(24 * 3600);

/// Time of the last sweep. The first sweep begins an hour after the start, because the log is
/// applied by then.
#[derive(Debug)]
pub struct Sweep(Instant);

impl Default for Sweep {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Sweep {
    /// Starts a sweep in the background if a sweep is due and a leader is known.
    pub fn tick(&mut self, shared: &Arc<ManagerContext>) {
        if self.0.elapsed() < EVERY || shared.raft.status().borrow().leader.is_none() {
            return;
        }
        self.0 = Instant::now();
        let (shared, inventory) = (shared.clone(), shared.inventory());
        tokio::task::spawn_blocking(move || {
            let before = SystemTime::now() - AGE_MIN;
            let blobs = shared.blobs.remove_unnamed(&referenced_blobs(&inventory), before);
            let logs = logs(&shared.runs, &inventory, before);
            match (blobs, logs) {
                (Ok(0), Ok(0)) => {}
                (Ok(blobs), Ok(logs)) => tracing::info!(blobs, logs, "removed unreferenced files"),
                (Err(error), _) | (_, Err(error)) => tracing::warn!(%error, "unreferenced files could not be removed"),
            }
        });
    }
}

/// Every blob to which the applied state refers.
pub(super) fn referenced_blobs(inventory: &Inventory) -> BTreeSet<Sha256> {
    let generations = inventory.generations.values().map(|g| g.blob);
    let baselines = inventory.baselines().map(|b| b.blob);
    generations.chain(baselines).collect()
}

/// Removes logs of attempts that belong to no job of the applied state. Logs that were written
/// after `before` stay. Returns the number of removed logs.
fn logs(dir: &Path, inventory: &Inventory, before: SystemTime) -> Result<usize, DiskError> {
    let known: BTreeSet<String> =
        inventory.jobs.values().flat_map(|j| &j.attempts).map(|a| format!("{}.jsonl", a.id)).collect();
    let mut removed = 0;
    for entry in std::fs::read_dir(dir).map_err(DiskError::io("listing", dir))? {
        let entry = entry.map_err(DiskError::io("listing", dir))?;
        let name = entry.file_name();
        let log = name.to_str().is_some_and(|name| name.ends_with(".jsonl") && !known.contains(name));
        let old = entry.metadata().and_then(|m| m.modified()).is_ok_and(|at| at < before);
        if log && old {
            std::fs::remove_file(entry.path()).map_err(DiskError::io("removing", &entry.path()))?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_logs_of_unknown_attempts_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["7.jsonl", "notes.txt"] {
            std::fs::write(dir.path().join(name), "{}\n").unwrap();
        }
        let (now, state) = (SystemTime::now(), Inventory::default());
        assert_eq!(logs(dir.path(), &state, now - AGE_MIN).unwrap(), 0, "too young");
        assert_eq!(logs(dir.path(), &state, now + AGE_MIN).unwrap(), 1);
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }
}
