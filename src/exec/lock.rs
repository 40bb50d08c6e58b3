//! One run per node: `run.lock`, held by flock, with the holder's record inside so that the next one knows whom to end.
//!
//! An attempt's fence decides who may come here (see `fence`); this file only carries it out. The file is never removed:
//! its lock is the file's own.

use super::process::{Family, ProcessId, own_leadership};
use crate::model::Fence;
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
/// How long a lock may stay held by somebody whom the record does not tell: between its flock and its record, or between
/// its death and the kernel's notice.
const UNNAMED_MAX: Duration = Duration::from_secs(10);

/// Who holds a node: a manager's attempt, which a newer one ends, or a person's `remoor play`, which is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderKind {
    Attempt,
    Play,
}

/// The record in the lock file. Means nothing after a reboot, which `boot` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub kind: HolderKind,
    /// Of an attempt.
    pub fence: Option<Fence>,
    pub process: ProcessId,
    pub leads_group: bool,
    pub leads_session: bool,
    /// Started by it, in process groups of their own.
    pub children: Vec<ProcessId>,
    pub boot: String,
    /// Of a play: which run it belongs to. Hosts of one run that are one machine share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl Holder {
    /// The calling process.
    pub fn own(kind: HolderKind, fence: Option<Fence>) -> io::Result<Self> {
        let process = ProcessId::own().ok_or_else(|| io::Error::other("/proc does not tell the own process"))?;
        let (leads_group, leads_session) = own_leadership();
        Ok(Self { kind, fence, process, leads_group, leads_session, children: Vec::new(), boot: boot(), run: None })
    }

    fn family(&self) -> Family {
        Family {
            leader: self.process,
            leads_group: self.leads_group,
            leads_session: self.leads_session,
            children: self.children.clone(),
        }
    }

    /// Itself and what it started, as far as that still runs and is in the way. Of a dead play these are the commands that were
    /// under way, with their groups: half a task must not run beside the next. What an ended task left in the play's session is a
    /// daemon that the play was to start, and would hold the node for ever. Of an attempt it is all: the next one ends it.
    fn living(&self) -> Vec<ProcessId> {
        if self.boot != boot() {
            return Vec::new();
        }
        let mut family = self.family();
        if self.kind == HolderKind::Play && !self.process.is_alive() {
            (family.leads_group, family.leads_session) = (false, false);
        }
        family.members()
    }

    fn lives(&self) -> bool {
        !self.living().is_empty()
    }

    /// A session of the same run of `remoor play`.
    fn is_of(&self, run: &str) -> bool {
        self.kind == HolderKind::Play && self.boot == boot() && self.run.as_deref() == Some(run)
    }

    /// For people.
    pub fn describe(&self) -> String {
        match (&self.kind, &self.fence) {
            (HolderKind::Play, _) if self.process.is_alive() => format!("remoor play, process {}", self.process.pid),
            (HolderKind::Play, _) => {
                let left: Vec<String> = self.living().iter().map(|id| id.pid.to_string()).collect();
                format!("what remoor play, process {}, left running (process {})", self.process.pid, left.join(", "))
            }
            (HolderKind::Attempt, Some(fence)) => format!("attempt {}, process {}", fence.attempt, self.process.pid),
            (HolderKind::Attempt, None) => format!("an attempt, process {}", self.process.pid),
        }
    }
}

/// Why the lock was not taken. Nobody was ended, except where `Ended` says so.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody who may not be ended has it, and did not end in time.
    #[error("{} holds the node", .0.describe())]
    Held(Box<Holder>),
    /// The lock is held by a process that is not on record.
    #[error("the node is held by a process that left no record")]
    Unnamed,
    /// These were told to end and still run.
    #[error("an older run could not be ended, processes {0:?}")]
    Undying(Vec<i32>),
    /// `pause` asked to give up.
    #[error("given up while waiting")]
    GivenUp,
    #[error("the lock file could not be used")]
    Io(#[source] io::Error),
}

/// What a waiting caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Wait,
    GiveUp,
}

/// The lock, held until dropped.
#[derive(Debug)]
pub struct RunLock {
    file: Arc<File>,
    holder: Holder,
}

impl RunLock {
    /// For `remoor play`: taken at once or not at all; nobody is ended. Sessions of the same run share it.
    pub fn take_for_play(state_dir: &Path, run: &str) -> Result<Self, LockError> {
        let file = open(state_dir).map_err(LockError::Io)?;
        let own = Holder::own(HolderKind::Play, None).map_err(LockError::Io)?;
        let own = Holder { run: Some(run.to_owned()), ..own };
        let free = try_flock(&file).map_err(LockError::Io)?;
        match read_record(&file) {
            Some(holder) if !free && holder.is_of(run) => Self::shared(file, holder, own),
            Some(holder) if !free || holder.lives() => Err(LockError::Held(Box::new(holder))),
            None if !free => Err(LockError::Unnamed),
            _ => {
                let taken = Self::with_record(file, own.clone())?;
                // From now on others of this run may have it too.
                share(&taken.file)?.then_some(taken).ok_or_else(|| LockError::Held(Box::new(own)))
            }
        }
    }

    /// Beside other sessions of the same run. The record stays the first one's.
    fn shared(file: File, holder: Holder, own: Holder) -> Result<Self, LockError> {
        match share(&file)? {
            true => Ok(Self { file: Arc::new(file), holder: own }),
            false => Err(LockError::Held(Box::new(holder))),
        }
    }

    /// For an attempt whose fence is already stored, so whoever has the lock is older. An attempt is ended (TERM, after
    /// `grace` KILL); a play is waited for until `deadline`, asking `pause` with the holder's description meanwhile.
    /// Ok: the lock, and whom it was taken from.
    pub fn take_for_attempt(
        state_dir: &Path,
        fence: &Fence,
        grace: Duration,
        deadline: Instant,
        pause: &mut dyn FnMut(&str) -> Patience,
    ) -> Result<(Self, Option<String>), LockError> {
        let file = open(state_dir).map_err(LockError::Io)?;
        let own = Holder::own(HolderKind::Attempt, Some(fence.clone())).map_err(LockError::Io)?;
        let mut ended = None;
        let mut unnamed_since = None;
        loop {
            let free = try_flock(&file).map_err(LockError::Io)?;
            let record = read_record(&file).filter(Holder::lives);
            match record {
                None if free => return Ok((Self::with_record(file, own)?, ended)),
                None => {
                    let since = *unnamed_since.get_or_insert_with(Instant::now);
                    // In this very process another session may hold it; that one has no members to be ended.
                    if since.elapsed() > UNNAMED_MAX || Instant::now() > deadline {
                        return Err(LockError::Unnamed);
                    }
                    if pause("a process that left no record") == Patience::GiveUp {
                        return Err(LockError::GivenUp);
                    }
                    thread::sleep(POLL);
                }
                Some(holder) if holder.kind == HolderKind::Attempt => {
                    let by_force = holder
                        .family()
                        .end(grace)
                        .map_err(|left| LockError::Undying(left.iter().map(|id| id.pid).collect()))?;
                    let how = if by_force { "killed" } else { "ended" };
                    ended = Some(format!("{} was {how}", holder.describe()));
                }
                Some(holder) => {
                    if free {
                        // Only what a dead play left behind still runs; the lock itself is not to be kept from others.
                        flock(&file, FlockOperation::Unlock).map_err(|e| LockError::Io(e.into()))?;
                    }
                    if Instant::now() > deadline {
                        return Err(LockError::Held(Box::new(holder)));
                    }
                    if pause(&holder.describe()) == Patience::GiveUp {
                        return Err(LockError::GivenUp);
                    }
                    thread::sleep(POLL);
                }
            }
        }
    }

    /// Something to hand to `Cancel::watch`, so that the record names the children of this run.
    pub(super) fn recorder(&self) -> impl Fn(&[ProcessId]) + Send + Sync + use<> {
        let file = Arc::clone(&self.file);
        let holder = self.holder.clone();
        move |children: &[ProcessId]| {
            let now = Holder { children: children.to_vec(), ..holder.clone() };
            // Without the record a later attempt still finds the children by their session.
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
        // In this order: once unlocked, the record may be another's; while others of the same run go on, it is theirs.
        if try_flock(&self.file).unwrap_or_default() {
            let _record_of_a_dead_process_is_harmless = write_record(&self.file, None);
        }
        let _unlocked_at_exit_at_the_latest = flock(&*self.file, FlockOperation::Unlock);
    }
}

/// The attempt whose run holds the node, in words; None for the caller's own, for a play, and where nobody runs.
pub(super) fn running_attempt(state_dir: &Path) -> Option<String> {
    let holder = read_record(&File::open(state_dir.join("run.lock")).ok()?)?;
    let other = holder.kind == HolderKind::Attempt && Some(holder.process) != ProcessId::own();
    let works = holder.boot == boot() && (holder.process.is_alive() || holder.children.iter().any(|c| c.is_alive()));
    (other && works).then(|| holder.describe())
}

fn open(state_dir: &Path) -> io::Result<File> {
    let path = state_dir.join("run.lock");
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Turns the lock into one that sessions of the same run share; false: somebody else was quicker.
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

/// None for an empty or half-written record; the caller looks again.
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
