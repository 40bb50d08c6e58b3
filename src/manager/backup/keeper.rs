//! Makes backups: on request, and at the interval that the operator has set. Requests and the
//! schedule apply to this manager only.

use super::super::{ManagerContext, Notices, blobs, sweep, wall};
use super::{BackupError, ClusterBackup, FILES, FOLDERS, Head, Maker, Recipients};
use remoor_cluster::rpc::view::BackupView;
use remoor_cluster::rpc::wire::rfc3339;
use remoor_host::disk::{DiskError, atomic_write, read_or_rename_damaged};
use remoor_model::{NodeName, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Interval at which the keeper checks whether a scheduled backup is due.
const LOOK: Duration = Duration::from_secs(10);
/// Minimum time between a failed backup and the next attempt, in milliseconds.
const RETRY_MS: u64 = 60_000;
/// If the last backup is older than this number of scheduled intervals, a warning is shown.
const LATE: u64 = 2;
/// Key prefix of notices about backups.
pub const BACKUP: &str = "backup";
/// Name of the schedule file in the data directory.
pub(super) const FILE: &str = "backup.json";
const ENDING: &str = ".remoor-backup";

/// The operator's schedule: one backup in `dir` each interval. The last `keep` backups stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSchedule {
    pub dir: PathBuf,
    pub every_ms: u64,
    pub keep: u32,
    /// The public keys for which the backups are encrypted.
    #[serde(default)]
    pub recipients: Recipients,
}

/// The last backup that was read back and was complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    at: Wall,
    file: PathBuf,
}

/// Content of the schedule file `backup.json` in the data directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct BackupRecord {
    #[serde(default)]
    plan: Option<BackupSchedule>,
    #[serde(default)]
    last: Option<Last>,
    /// The time when the schedule was set. Until one interval has passed since that time, no backup
    /// is late.
    #[serde(default)]
    since: Wall,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    kept: BackupRecord,
    /// The reason why the last attempt to make a backup failed, whether it was requested or
    /// scheduled.
    error: Option<String>,
    /// The reason why the last scheduled backup failed.
    failed: Option<String>,
    /// Whether a notice about a failed or late backup was sent, and no backup has succeeded since
    /// then.
    notified: bool,
}

/// State of this manager's backups, for status and warnings.
#[derive(Debug, Default)]
pub struct Backups(Mutex<State>);

impl Backups {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backups as `status` shows them. None if no backup was made on this manager and none is
    /// scheduled.
    pub fn view(&self, me: &NodeName, now: Wall) -> Option<BackupView> {
        let State { kept, error, .. } = self.state().clone();
        if kept == BackupRecord::default() {
            return None;
        }
        Some(BackupView {
            by: me.to_string(),
            at: kept.last.as_ref().map(|last| rfc3339(last.at)),
            age_ms: kept.last.as_ref().map(|last| now.ms_since(last.at)),
            file: kept.last.as_ref().map(|last| last.file.display().to_string()),
            every_ms: kept.plan.as_ref().map(|plan| plan.every_ms),
            late: kept.is_late(now),
            error,
        })
    }

    /// The warning about a late or failed backup, if there is one.
    pub fn warning(&self, me: &NodeName, now: Wall) -> Option<String> {
        self.state().trouble(me, now)
    }

    /// Sends a notice about a late or failed backup. No other notice follows until a backup
    /// succeeds.
    fn notify(&self, me: &NodeName, notices: &Notices, now: Wall) {
        let mut state = self.state();
        let Some(text) = state.trouble(me, now).filter(|_| !state.notified) else { return };
        state.notified = true;
        // The notice's key contains the time of the last backup. A notice with the same key is sent
        // at most once an hour.
        let key = format!("{BACKUP} {}", state.kept.last.as_ref().map_or(0, |last| last.at.0));
        drop(state);
        notices.notify(&key, Some(me.as_str()), &text);
    }
}

impl State {
    fn trouble(&self, me: &NodeName, now: Wall) -> Option<String> {
        let why = self.failed.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
        match (self.kept.is_late(now), &self.kept.last) {
            (true, Some(last)) => {
                Some(format!("{me}: the last verified backup, of {}, is too old{why}", rfc3339(last.at)))
            }
            (true, None) => Some(format!("{me}: backups are scheduled, but none was made yet{why}")),
            (false, _) => self.failed.as_ref().map(|_| format!("{me}: the scheduled backup failed{why}")),
        }
    }
}

impl BackupRecord {
    fn is_late(&self, now: Wall) -> bool {
        let Some(plan) = &self.plan else { return false };
        let since = self.last.as_ref().map_or(self.since, |last| last.at.max(self.since));
        now.ms_since(since) > plan.every_ms.saturating_mul(LATE)
    }

    fn is_due(&self, now: Wall) -> bool {
        let Some(plan) = &self.plan else { return false };
        self.last.as_ref().is_none_or(|last| now.ms_since(last.at) >= plan.every_ms || last.at < self.since)
    }
}

/// A handle to the backups of this manager; all clones share one state.
#[derive(Clone)]
pub struct Keeper {
    shared: Arc<ManagerContext>,
    /// The data directory.
    dir: PathBuf,
    /// The lock that is held while a backup is made, so that only one backup is made at a time.
    busy: Arc<tokio::sync::Mutex<()>>,
}

impl Keeper {
    /// Reads the stored backup schedule. Blocks.
    pub fn new(shared: Arc<ManagerContext>, dir: &Path) -> Result<Self, DiskError> {
        shared.backups.state().kept = read_or_rename_damaged::<BackupRecord>(&dir.join(FILE))?.or_default();
        Ok(Self { shared, dir: dir.to_owned(), busy: Arc::default() })
    }

    /// Makes the scheduled backups until `stopped`.
    pub async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut not_before = Wall(0);
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = stopped.wait_for(|stop| *stop) => return,
            }
            let (kept, now) = (self.shared.backups.state().kept.clone(), wall());
            let Some(plan) = kept.plan.clone().filter(|_| kept.is_due(now) && now >= not_before) else { continue };
            let name = self.shared.identity.name.to_string();
            let mut taken =
                std::pin::pin!(self.take(plan.dir.join(scheduled_file_name(now, &name)), plan.recipients.clone()));
            let taken = loop {
                tokio::select! {
                    taken = &mut taken => break taken,
                    // If the disk does not answer, the backup does not fail, but becomes late. This
                    // call notifies operators of a late backup.
                    () = tokio::time::sleep(LOOK) => self.notify(),
                }
            };
            match taken {
                Ok((head, ..)) => {
                    tracing::info!(index = head.index, "backup made and verified");
                    let dir = plan.dir.clone();
                    let pruned = tokio::task::spawn_blocking(move || prune(&dir, &name, plan.keep)).await;
                    if let Ok(Err(error)) = pruned {
                        tracing::warn!(%error, "old backups could not be removed");
                    }
                }
                Err(error) => {
                    not_before = now.plus_ms(RETRY_MS);
                    let error = remoor_model::error_with_causes(&error);
                    tracing::error!(error, "the scheduled backup failed");
                    let mut state = self.shared.backups.state();
                    // The failure is stored only if the schedule was not removed or changed while
                    // the backup was made.
                    state.failed = Some(error).filter(|_| state.kept.plan.as_ref() == Some(&plan));
                    drop(state);
                    self.notify();
                }
            }
        }
    }

    fn notify(&self) {
        self.shared.backups.notify(&self.shared.identity.name, &self.shared.notices, wall());
    }

    /// Makes one backup at `path`, encrypted for `recipients`, and reads it back. Returns its head,
    /// its SHA-256 and its size in bytes.
    pub async fn take(
        &self,
        path: PathBuf,
        recipients: Recipients,
    ) -> Result<(Head, remoor_model::Sha256, u64), BackupError> {
        let _one_at_a_time = self.busy.lock().await;
        let taken = self.make(path.clone(), recipients).await;
        let mut state = self.shared.backups.state();
        match &taken {
            Ok((head, ..)) => {
                let last = Some(Last { at: head.made, file: path });
                *state = State { kept: BackupRecord { last, ..state.kept.clone() }, ..State::default() };
                let kept = state.kept.clone();
                drop(state);
                if let Err(error) = self.store(&kept) {
                    tracing::warn!(%error, "the time of the backup could not be stored");
                }
            }
            Err(error) => state.error = Some(remoor_model::error_with_causes(error)),
        }
        taken
    }

    async fn make(
        &self,
        path: PathBuf,
        recipients: Recipients,
    ) -> Result<(Head, remoor_model::Sha256, u64), BackupError> {
        // This snapshot of the state does not change, so the backup is consistent at one log index.
        let state = self.shared.inventory();
        let term = self.shared.raft.status().borrow().term;
        let named = sweep::referenced_blobs(&state);
        for sha in &named {
            blobs::ensure(&self.shared, sha).await;
        }
        let maker =
            Maker { node: self.shared.identity.node, name: self.shared.identity.name.clone(), made: wall(), term };
        let (store, dir) = (self.shared.blobs.clone(), self.dir.clone());
        let work = move || {
            let mut found = BTreeMap::new();
            for sha in named {
                found.insert(sha, store.get(&sha)?.ok_or(BackupError::NoBlob(sha))?);
            }
            ClusterBackup::new(maker, state.as_ref().clone(), found, files(&dir)?).write(&path, &recipients)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|e| Err(BackupError::Encode(e.to_string())))
    }

    /// Sets the backup schedule. None removes it.
    pub fn plan(&self, plan: Option<BackupSchedule>) -> Result<(), DiskError> {
        let mut state = self.shared.backups.state();
        let kept = BackupRecord { since: wall(), plan, ..state.kept.clone() };
        self.store(&kept)?;
        *state = State { kept, ..State::default() };
        Ok(())
    }

    fn store(&self, kept: &BackupRecord) -> Result<(), DiskError> {
        let bytes = serde_json::to_vec_pretty(kept).unwrap_or_default();
        atomic_write(&self.dir.join(FILE), &bytes, 0o600)
    }
}

/// Files that can't be recreated, by their path relative to the data directory.
fn files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>, BackupError> {
    let mut names: Vec<String> = FILES.map(str::to_owned).into();
    for folder in FOLDERS {
        let entries = std::fs::read_dir(dir.join(folder)).map_err(DiskError::io("listing", &dir.join(folder)))?;
        names.extend(entries.flatten().map(|e| format!("{folder}/{}", e.file_name().to_string_lossy())));
    }
    let mut found = BTreeMap::new();
    for name in names {
        let path = dir.join(&name);
        match std::fs::read(&path) {
            Ok(bytes) => drop(found.insert(name, bytes)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || path.is_dir() => {}
            Err(e) => return Err(DiskError::io("reading", &path)(e).into()),
        }
    }
    Ok(found)
}

/// File name of a scheduled backup. It begins with the time.
fn scheduled_file_name(now: Wall, manager: &str) -> String {
    let time = rfc3339(now).replace(':', "");
    format!("{}-{manager}{ENDING}", time.split('.').next().unwrap_or_default())
}

/// Removes the scheduled backups of this manager except the last `keep`. Backups of other managers
/// in the same directory stay.
fn prune(dir: &Path, manager: &str, keep: u32) -> Result<(), DiskError> {
    let entries = std::fs::read_dir(dir).map_err(DiskError::io("listing", dir))?;
    let mut made: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| is_planned(p, manager)).collect();
    made.sort();
    let too_many = made.len().saturating_sub(keep as usize);
    for path in made.into_iter().take(too_many) {
        std::fs::remove_file(&path).map_err(DiskError::io("removing", &path))?;
    }
    Ok(())
}

fn is_planned(path: &Path, manager: &str) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(ENDING));
    let time = name.and_then(|n| n.strip_suffix(manager)?.strip_suffix('-'));
    time.is_some_and(|n| {
        n.len() == 17 && n.starts_with("20") && n.bytes().all(|b| b.is_ascii_digit() || b"-T".contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_backup_is_due_after_one_interval_and_late_after_two() {
        let plan = BackupSchedule { dir: "/b".into(), every_ms: HOUR, keep: 3, recipients: Recipients::default() };
        let mut kept = BackupRecord { plan: Some(plan), last: None, since: Wall(10 * HOUR) };
        assert!(kept.is_due(Wall(10 * HOUR)) && !kept.is_late(Wall(12 * HOUR)) && kept.is_late(Wall(12 * HOUR + 1)));
        kept.last = Some(Last { at: Wall(10 * HOUR + 1), file: "/b/x".into() });
        assert!(!kept.is_due(Wall(11 * HOUR)) && kept.is_due(Wall(11 * HOUR + 1)));
        let backups = Backups::default();
        let me = NodeName::from("m1");
        let (view, warning) = (|now| backups.view(&me, Wall(now)), |now| backups.warning(&me, Wall(now)));
        assert_eq!((view(0), warning(0)), (None, None), "no backup and no schedule");
        *backups.state() = State { kept: kept.clone(), failed: Some("no space".to_owned()), ..State::default() };
        let late = view(13 * HOUR + 1).expect("a view");
        assert_eq!((&*late.by, late.age_ms, late.late, late.every_ms), ("m1", Some(3 * HOUR), true, Some(HOUR)));
        assert!(warning(13 * HOUR + 1).is_some_and(|w| w.starts_with("m1: ") && w.contains("too old: no space")));
        kept.plan = None;
        assert!(!kept.is_due(Wall(99 * HOUR)) && !kept.is_late(Wall(99 * HOUR)), "nothing is scheduled");
    }

    #[test]
    fn a_problem_is_reported_once_until_a_backup_succeeds() {
        let (me, notices, backups) = (NodeName::from("m2"), Notices::default(), Backups::default());
        let plan = BackupSchedule { dir: "/b".into(), every_ms: HOUR, keep: 3, recipients: Recipients::default() };
        let told = |now| {
            backups.notify(&me, &notices, Wall(now));
            notices.recent_but(&[])
        };
        let made = |at| {
            let last = Some(Last { at: Wall(at), file: "/b/x".into() });
            let kept = BackupRecord { plan: Some(plan.clone()), last, since: Wall(0) };
            *backups.state() = State { kept, ..State::default() };
        };
        made(HOUR);
        assert_eq!(told(HOUR + 1), [""; 0]);
        backups.state().failed = Some("no space".to_owned());
        let once = ["m2: the scheduled backup failed: no space"];
        assert_eq!(told(2 * HOUR), once);
        assert_eq!(backups.warning(&me, Wall(2 * HOUR)).as_deref(), Some(once[0]), "status shows it too");
        assert_eq!(told(4 * HOUR), once, "a late backup is the same problem");
        made(5 * HOUR);
        assert_eq!((told(5 * HOUR), backups.warning(&me, Wall(5 * HOUR))), (once.map(str::to_owned).to_vec(), None));
        let again = told(7 * HOUR + 1);
        assert!(
            again.len() == 1 && again[0].contains("too old (reported 2 times"),
            "late without a failure: {again:?}"
        );
    }

    #[test]
    fn only_the_oldest_scheduled_backups_are_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let planned = ["2026-01-02T030405", "2026-01-02T090405", "2026-01-03T030405"];
        let others = ["mine.remoor-backup", "2026-01-01T030405-m1", "notes", "2026-01-01T030405.remoor-backup"];
        let others = [&others[..], &["2026-01-01T030405-m2.remoor-backup", "2026-01-01T030405-x-m1.remoor-backup"]];
        let others = others.concat();
        for name in
            planned.map(|name| format!("{name}-m1{ENDING}")).iter().map(String::as_str).chain(others.iter().copied())
        {
            std::fs::write(dir.path().join(name), "").expect("written");
        }
        prune(dir.path(), "m1", 2).expect("pruned");
        let there = |name: &str| dir.path().join(format!("{name}-m1{ENDING}")).exists();
        assert_eq!(planned.map(there), [false, true, true]);
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
        assert!(is_planned(Path::new(&super::scheduled_file_name(Wall(1_700_000_000_123), "m1")), "m1"));
    }
}
