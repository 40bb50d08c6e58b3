//! Allows one run per node: `run.lock`, held by flock. The file contains the record of the holder,
//! so that the next attempt knows which processes to kill.
//!
//! The fence decides which attempt may take the node (see `fence`); this lock only enforces the
//! decision. The file is never removed, because an flock belongs to the file and not to its name.

use super::process::{ProcessFamily, ProcessId, own_leadership};
use remoor_model::Fence;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);
/// Pause of a session that waits for another one of its run, which needs only a moment.
const SHORT_POLL: Duration = Duration::from_millis(5);
/// Maximum time that the lock may be held without a record of a living holder. A new holder writes
/// its record shortly after the flock, and the kernel releases the lock shortly after a process has
/// died.
const UNNAMED_MAX: Duration = Duration::from_secs(10);

/// Kind of the holder. An attempt belongs to a manager, and a newer attempt kills it. A play is a
/// run of `remoor play` by a person, and an attempt waits for its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderKind {
    Attempt,
    Play,
}

/// The record of the holder in the lock file. It is void after a reboot, when `boot` differs from
/// the current boot id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub kind: HolderKind,
    /// The fence of the attempt that holds the lock. None if a play holds the lock.
    pub fence: Option<Fence>,
    pub process: ProcessId,
    pub leads_group: bool,
    pub leads_session: bool,
    /// Processes that the holder started in their own process groups.
    pub children: Vec<ProcessId>,
    pub boot: String,
    /// For a play, the id of its run. If several hosts of a run are the same machine, their
    /// sessions have the same id and share the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl Holder {
    /// Makes a record that names the calling process as the holder.
    pub fn for_this_process(kind: HolderKind, fence: Option<Fence>) -> io::Result<Self> {
        let process =
            ProcessId::current().ok_or_else(|| io::Error::other("the own process could not be read from /proc"))?;
        let (leads_group, leads_session) = own_leadership();
        Ok(Self { kind, fence, process, leads_group, leads_session, children: Vec::new(), boot: boot(), run: None })
    }

    fn family(&self) -> ProcessFamily {
        ProcessFamily {
            leader: self.process,
            leads_group: self.leads_group,
            leads_session: self.leads_session,
            children: self.children.clone(),
        }
    }

    /// The processes of this holder that still run and block the node: all its processes, except
    /// after the death of a play. A dead play blocks the node only by the commands that were
    /// running and their process groups, because another run must not begin beside an unfinished
    /// task. Other processes in its session are daemons that the play was meant to start. They
    /// would block the node forever.
    fn blocking_processes(&self) -> Vec<ProcessId> {
        if self.boot != boot() {
            return Vec::new();
        }
        let mut family = self.family();
        if self.kind == HolderKind::Play && !self.process.is_alive() {
            (family.leads_group, family.leads_session) = (false, false);
        }
        family.members()
    }

    fn blocks_node(&self) -> bool {
        !self.blocking_processes().is_empty()
    }

    /// Whether the holder is a session of the same run of `remoor play`.
    fn belongs_to_run(&self, run: &str) -> bool {
        self.kind == HolderKind::Play && self.boot == boot() && self.run.as_deref() == Some(run)
    }

    /// The holder as text for messages.
    pub fn describe(&self) -> String {
        match (&self.kind, &self.fence) {
            (HolderKind::Play, _) if self.process.is_alive() => format!("remoor play, process {}", self.process.pid),
            (HolderKind::Play, _) => {
                let left: Vec<String> = self.blocking_processes().iter().map(|id| id.pid.to_string()).collect();
                format!("process {} of remoor play (process {}, ended)", left.join(", "), self.process.pid)
            }
            (HolderKind::Attempt, Some(fence)) => format!("attempt {}, process {}", fence.attempt, self.process.pid),
            (HolderKind::Attempt, None) => format!("an attempt, process {}", self.process.pid),
        }
    }
}

/// The reason why the lock on the node was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A holder that must not be killed, such as a play, did not end in time.
    #[error("{} holds the node", .0.describe())]
    Held(Box<Holder>),
    /// The lock is held by a process that has no record.
    #[error("a process without a record holds the node")]
    Unnamed,
    /// These processes received KILL and still run.
    #[error("an older run could not be killed, processes {0:?}")]
    Undying(Vec<i32>),
    /// The `pause` callback of the waiting caller returned `GiveUp`.
    #[error("the wait for the node was given up")]
    GivenUp,
    #[error("the lock file could not be used")]
    Io(#[source] io::Error),
}

/// Answer of the `pause` callback of a waiting caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitDecision {
    Wait,
    GiveUp,
}

/// The lock on the node. It is held until this value is dropped.
#[derive(Debug)]
pub struct RunLock {
    file: Arc<File>,
    holder: Holder,
}

impl RunLock {
    /// Takes the lock for `remoor play`, or fails if another run holds it. Kills no process.
    /// Sessions of the same run share the lock.
    ///
    /// A session that begins or ends holds the lock for a moment without a valid record. It may be
    /// one of the same run, so this function then tries again.
    pub fn take_for_play(state_dir: &Path, run: &str) -> Result<Self, LockError> {
        let file = open(state_dir).map_err(LockError::Io)?;
        let own = Holder::for_this_process(HolderKind::Play, None).map_err(LockError::Io)?;
        let own = Holder { run: Some(run.to_owned()), ..own };
        let begun = Instant::now();
        loop {
            let free = try_flock(&file).map_err(LockError::Io)?;
            let record = read_record(&file);
            let blocks = record.as_ref().is_some_and(Holder::blocks_node);
            let may_share = match &record {
                Some(holder) if holder.belongs_to_run(run) && (blocks || !free) => true,
                Some(holder) if blocks || !free && holder.process.is_alive() => {
                    return Err(LockError::Held(Box::new(holder.clone())));
                }
                _ if free => {
                    write_record(&file, Some(&own)).map_err(LockError::Io)?;
                    true
                }
                _ => false,
            };
            // From now on, other sessions of this run may share the lock, too.
            if may_share && share(&file)? {
                if read_record(&file).is_none() {
                    write_record(&file, Some(&own)).map_err(LockError::Io)?;
                }
                return Ok(Self { file: Arc::new(file), holder: own });
            }
            if begun.elapsed() > UNNAMED_MAX {
                return Err(record.map_or(LockError::Unnamed, |holder| LockError::Held(Box::new(holder))));
            }
            thread::sleep(SHORT_POLL);
        }
    }

    /// Takes the lock for an attempt whose fence is already stored, so every other holder is older.
    /// Kills an older attempt: TERM, and after `grace` KILL. Waits for a play until `deadline`.
    /// While waiting, calls `pause` with the description of the holder. Ok: the lock, and a
    /// description of the last killed holder, if any.
    pub fn take_for_attempt(
        state_dir: &Path,
        fence: &Fence,
        grace: Duration,
        deadline: Instant,
        pause: &mut dyn FnMut(&str) -> WaitDecision,
    ) -> Result<(Self, Option<String>), LockError> {
        let file = open(state_dir).map_err(LockError::Io)?;
        let own = Holder::for_this_process(HolderKind::Attempt, Some(fence.clone())).map_err(LockError::Io)?;
        let mut ended = None;
        let mut unnamed_since = None;
        loop {
            let free = try_flock(&file).map_err(LockError::Io)?;
            let record = read_record(&file).filter(Holder::blocks_node);
            match record {
                None if free => return Ok((Self::with_record(file, own)?, ended)),
                None => {
                    let since = *unnamed_since.get_or_insert_with(Instant::now);
                    // Another session within this same process may hold the lock. The record of
                    // such a session names no other process that could be killed, so the record
                    // counts as missing.
                    if since.elapsed() > UNNAMED_MAX || Instant::now() > deadline {
                        return Err(LockError::Unnamed);
                    }
                    if pause("a process without a record") == WaitDecision::GiveUp {
                        return Err(LockError::GivenUp);
                    }
                    thread::sleep(POLL);
                }
                Some(holder) if holder.kind == HolderKind::Attempt => {
                    let by_force = holder
                        .family()
                        .terminate(grace)
                        .map_err(|left| LockError::Undying(left.iter().map(|id| id.pid).collect()))?;
                    let how = if by_force { "killed" } else { "ended" };
                    ended = Some(format!("{} was {how}", holder.describe()));
                }
                Some(holder) => {
                    if free {
                        // Only commands of a dead play still run. The lock is released, so that it
                        // does not block other callers while this attempt waits for these commands.
                        flock(&file, FlockOperation::Unlock).map_err(|e| LockError::Io(e.into()))?;
                    }
                    if Instant::now() > deadline {
                        return Err(LockError::Held(Box::new(holder)));
                    }
                    if pause(&holder.describe()) == WaitDecision::GiveUp {
                        return Err(LockError::GivenUp);
                    }
                    thread::sleep(POLL);
                }
            }
        }
    }

    /// A callback for `SessionCancel::watch` that writes the children of this run to the record.
    pub(super) fn recorder(&self) -> impl Fn(&[ProcessId]) + Send + Sync + use<> {
        let file = Arc::clone(&self.file);
        let holder = self.holder.clone();
        move |children: &[ProcessId]| {
            let now = Holder { children: children.to_vec(), ..holder.clone() };
            // If the record cannot be written, a later attempt still finds the children by their
            // session.
            let _best_effort = write_record(&file, Some(&now));
        }
    }

    fn with_record(file: File, holder: Holder) -> Result<Self, LockError> {
        write_record(&file, Some(&holder)).map_err(LockError::Io)?;
        Ok(Self { file: Arc::new(file), holder })
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // The record is cleared before the unlock, because after the unlock it may be the record of
        // another holder. If other sessions of the same run still share the lock, the record stays.
        if try_flock(&self.file).unwrap_or_default() {
            let _record_of_a_dead_process_is_harmless = write_record(&self.file, None);
        }
        let _unlocked_at_exit_at_the_latest = flock(&*self.file, FlockOperation::Unlock);
    }
}

/// Describes the attempt whose run holds the node. None for the caller's own attempt, for a play,
/// and if no run is active.
pub(super) fn running_attempt(state_dir: &Path) -> Option<String> {
    let holder = read_record(&File::open(state_dir.join("run.lock")).ok()?)?;
    let other = holder.kind == HolderKind::Attempt && Some(holder.process) != ProcessId::current();
    let works = holder.boot == boot() && (holder.process.is_alive() || holder.children.iter().any(|c| c.is_alive()));
    (other && works).then(|| holder.describe())
}

fn open(state_dir: &Path) -> io::Result<File> {
    let path = state_dir.join("run.lock");
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Changes the lock into a lock that sessions of the same run share. False: another process took
/// the lock before the change, and the caller holds no lock any more.
fn share(file: &File) -> Result<bool, LockError> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(e) => Err(LockError::Io(e.into())),
    }
}

fn try_flock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Reads the record. None for an empty or half-written record; callers then read it again.
fn read_record(file: &File) -> Option<Holder> {
    let mut bytes = vec![0; 64 * 1024];
    let length = file.read_at(&mut bytes, 0).ok()?;
    serde_json::from_slice(&bytes[..length]).ok()
}

fn write_record(file: &File, holder: Option<&Holder>) -> io::Result<()> {
    file.set_len(0)?;
    match holder {
        Some(holder) => file.write_all_at(&serde_json::to_vec(holder)?, 0),
        None => Ok(()),
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
