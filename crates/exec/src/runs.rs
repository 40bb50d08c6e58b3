//! Files of runs on the node: backups for `undo`, one log per attempt, one audit line per run. All
//! are bounded.

use super::persist;
use super::wire::RunOrder;
use remoor_model::{AttemptId, Fence};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const BACKUPS_KEPT: usize = 5;
const LOGS_KEPT: usize = 20;
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
const AUDIT_BYTES_MAX: u64 = 1024 * 1024;
const TRUNCATED: &[u8] = b"{\"truncated\":true}\n";

/// Paths of a run. All are below the state directory, mode 0700.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPaths {
    pub state_dir: PathBuf,
    /// The directory for backups. The phases of one attempt share it. The directories of the last
    /// five attempts are kept.
    pub backup: PathBuf,
    /// Directory to which a run moves protected paths instead of deleting them. It is created at
    /// the first such move, and never removed here.
    pub park: PathBuf,
    /// Pending handlers of provisionings and, in `cleanup_journal`, of cleanups. Both files survive
    /// attempts. They are separate because a plan drops handlers that it does not define, and a
    /// cleanup runs between two provisionings.
    pub journal: PathBuf,
    pub cleanup_journal: PathBuf,
}

impl RunPaths {
    /// Makes the directories of an attempt and removes the oldest backups. A backup that cannot be
    /// removed is left.
    pub fn prepare(state_dir: &Path, fence: &Fence) -> io::Result<Self> {
        let name = attempt_name(fence);
        let backups = state_dir.join("backups");
        let backup = backups.join(&name);
        persist::private_dir(&backup)?;
        prune(&backups, BACKUPS_KEPT, &name);
        Ok(Self {
            state_dir: state_dir.to_owned(),
            backup,
            park: state_dir.join("parked").join(name),
            journal: state_dir.join("journal.json"),
            cleanup_journal: state_dir.join("journal-cleanup.json"),
        })
    }
}

/// The backup of an attempt. If several epochs have this attempt number, the highest epoch is used.
pub(super) fn find_backup(state_dir: &Path, attempt: AttemptId) -> Option<PathBuf> {
    let backups = state_dir.join("backups");
    let (_, name) = attempts_in(&backups).into_iter().filter(|((_, n), _)| *n == attempt.0).max()?;
    Some(backups.join(name))
}

/// Attempts that have a backup, the newest last. Only as many backups as `BACKUPS_KEPT` are kept.
pub(super) fn backups(state_dir: &Path) -> Vec<AttemptId> {
    let mut attempts: Vec<(u64, u64)> =
        attempts_in(&state_dir.join("backups")).into_iter().map(|(number, _)| number).collect();
    attempts.sort_unstable();
    attempts.into_iter().map(|(_, attempt)| AttemptId(attempt)).collect()
}

/// The name of an attempt's files. Epoch and attempt identify an attempt, because a new epoch
/// restarts the attempt numbers.
fn attempt_name(fence: &Fence) -> String {
    format!("{}-{}", fence.epoch, fence.attempt)
}

fn attempts_in(dir: &Path) -> Vec<((u64, u64), String)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (epoch, attempt) = name.strip_suffix(".jsonl").unwrap_or(&name).split_once('-')?;
            Some(((epoch.parse().ok()?, attempt.parse().ok()?), name))
        })
        .collect()
}

fn prune(dir: &Path, kept: usize, current: &str) {
    let mut attempts = attempts_in(dir);
    attempts.sort_unstable();
    let excess = attempts.len().saturating_sub(kept);
    for (_, name) in attempts.into_iter().take(excess).filter(|(_, name)| name != current) {
        let path = dir.join(name);
        let _next_time = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

/// Events of one attempt as JSON lines, at most 4 MiB, then a truncation line. Never contains the
/// plan, which may hold secrets. If the disk is full, the log is lost but the run continues.
pub(super) struct RunEventLog {
    file: Option<File>,
    written: u64,
}

impl RunEventLog {
    /// Opens the log of the attempt for appending and removes the oldest logs. Never fails. If the
    /// file cannot be opened, the lines are dropped.
    pub fn open(state_dir: &Path, order: &RunOrder) -> Self {
        let dir = state_dir.join("runs");
        let name = format!("{}.jsonl", attempt_name(&order.fence));
        let file = persist::private_dir(&dir).and_then(|()| append(&dir.join(&name))).ok();
        prune(&dir, LOGS_KEPT, &name);
        let written = file.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |m| m.len());
        let mut log = Self { file, written };
        let start = serde_json::json!({
            "run": order.phase.as_str(), "attempt": order.fence.attempt, "epoch": order.fence.epoch, "at": now(),
        });
        log.write_line(start.to_string().as_bytes());
        log
    }

    /// Writes one event. Line breaks become blanks; in JSON they occur only between values.
    pub fn write_line(&mut self, event: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let mut line: Vec<u8> = event.iter().map(|b| if *b == b'\n' { b' ' } else { *b }).collect();
        line.push(b'\n');
        let fits = self.written + line.len() as u64 <= LOG_BYTES_MAX;
        let bytes = if fits { line.as_slice() } else { TRUNCATED };
        let written = file.write_all(bytes);
        self.written += bytes.len() as u64;
        if written.is_err() || !fits {
            self.file = None;
        }
    }
}

/// Appends `time phase attempt tags what` to `runs.log`. At 1 MiB the file is renamed to
/// `runs.log.1`.
pub(super) fn audit(state_dir: &Path, phase: &str, fence: &Fence, tags: &[String], what: &str) -> io::Result<()> {
    audit_line(state_dir, phase, &attempt_name(fence), tags, what)
}

/// Appends the audit line of a person's run, with its run id in place of the attempt.
pub(super) fn audit_play(state_dir: &Path, id: &str, check: bool, tags: &[String], what: &str) -> io::Result<()> {
    let id: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
    audit_line(state_dir, if check { "play-check" } else { "play" }, &id, tags, what)
}

fn audit_line(state_dir: &Path, phase: &str, name: &str, tags: &[String], what: &str) -> io::Result<()> {
    let path = state_dir.join("runs.log");
    if fs::metadata(&path).is_ok_and(|m| m.len() > AUDIT_BYTES_MAX) {
        fs::rename(&path, state_dir.join("runs.log.1"))?;
    }
    let tags: String = if tags.is_empty() { "-".to_owned() } else { tags.join(",") };
    let clean: String = tags.chars().map(|c| if c.is_control() || c == ' ' { '_' } else { c }).take(500).collect();
    let line = format!("{} {phase} {name} {clean} {what}\n", now());
    append(&path)?.write_all(line.as_bytes())
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{RunPhase, sample_fence};
    use remoor_model::Epoch;

    fn order(n: u64) -> RunOrder {
        let plan = b"secret plan".to_vec();
        RunOrder {
            fence: sample_fence(n),
            phase: RunPhase::Cleanup,
            plan,
            protect: vec![],
            secret: vec![],
            tags: vec![],
            timeout_ms: 1,
        }
    }

    #[test]
    fn the_last_five_backups_are_kept_by_number() {
        let dir = tempfile::tempdir().unwrap();
        for n in [8, 9, 10, 11, 100, 101, 102] {
            let paths = RunPaths::prepare(dir.path(), &sample_fence(n)).unwrap();
            fs::write(paths.backup.join("file"), b"x").unwrap();
        }
        let mut left: Vec<u64> = attempts_in(&dir.path().join("backups")).iter().map(|((_, n), _)| *n).collect();
        left.sort_unstable();
        assert_eq!(left, [10, 11, 100, 101, 102]);
        assert_eq!(backups(dir.path()), left.iter().map(|n| AttemptId(*n)).collect::<Vec<_>>());
        assert!(find_backup(dir.path(), AttemptId(101)).unwrap().join("file").exists());
        assert_eq!(find_backup(dir.path(), AttemptId(9)), None);
    }

    #[test]
    fn the_current_backup_outlives_higher_numbers_of_an_older_epoch() {
        let dir = tempfile::tempdir().unwrap();
        for n in 50..60 {
            RunPaths::prepare(dir.path(), &sample_fence(n)).unwrap();
        }
        let after_recovery = Fence { epoch: Epoch(2), ..sample_fence(3) };
        let paths = RunPaths::prepare(dir.path(), &after_recovery).unwrap();
        assert!(paths.backup.exists());
        assert_eq!(find_backup(dir.path(), AttemptId(3)), Some(paths.backup));
    }

    #[test]
    fn a_log_is_bounded_marked_and_holds_no_plan() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = RunEventLog::open(dir.path(), &order(7));
        let event = vec![b'e'; 1024 * 1024];
        for _ in 0..6 {
            log.write_line(&event);
        }
        let text = fs::read(dir.path().join("runs/1-7.jsonl")).unwrap();
        assert!(text.len() as u64 <= LOG_BYTES_MAX + TRUNCATED.len() as u64);
        assert!(text.ends_with(TRUNCATED));
        assert!(!text.windows(6).any(|w| w == b"secret"));
        let mut again = RunEventLog::open(dir.path(), &order(7));
        again.write_line(&event);
        assert!(fs::metadata(dir.path().join("runs/1-7.jsonl")).unwrap().len() < LOG_BYTES_MAX + 1024);
    }

    #[test]
    fn an_event_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        RunEventLog::open(dir.path(), &order(7)).write_line(b"{\n\"a\":\n1}");
        let text = fs::read_to_string(dir.path().join("runs/1-7.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert_eq!(text.lines().last(), Some("{ \"a\": 1}"));
    }

    #[test]
    fn audit_lines_can_not_be_forged_by_tags() {
        let dir = tempfile::tempdir().unwrap();
        let tags = ["nginx".to_owned(), "x\n2026 cleanup".to_owned()];
        audit(dir.path(), "provision", &sample_fence(7), &tags, "started").unwrap();
        let text = fs::read_to_string(dir.path().join("runs.log")).unwrap();
        assert!(text.ends_with(" provision 1-7 nginx,x_2026_cleanup started\n"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
