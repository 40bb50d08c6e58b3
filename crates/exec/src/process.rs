//! Processes identified by pid and start time, so that a reused pid is never taken for the process
//! that had it before.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);

/// One process; valid until the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// The start time of the process, in clock ticks since boot.
    pub start: u64,
}

impl ProcessId {
    /// The calling process.
    pub fn current() -> Option<Self> {
        Self::from_pid(i32::try_from(std::process::id()).ok()?)
    }

    /// The process that has `pid` now. None if no process has it, or only a zombie (ended and not
    /// reaped).
    pub fn from_pid(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        stat.running.then_some(Self { pid, start: stat.start })
    }

    /// Whether exactly this process still runs.
    pub fn is_alive(self) -> bool {
        Self::from_pid(self.pid) == Some(self)
    }
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    parent: i32,
    group: i32,
    pub(super) session: i32,
    pub(super) start: u64,
    /// Whether the process is neither a zombie nor dead.
    pub(super) running: bool,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses `/proc/PID/stat`. The second field is the name, which may contain blanks and
    /// brackets. Therefore the fields are counted from the last bracket.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<i32>().ok();
        Some(Self {
            running: !matches!(*fields.first()?, "Z" | "X" | "x"),
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            start: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Whether the caller leads its own process group, and its own session.
pub(super) fn own_leadership() -> (bool, bool) {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    Stat::read(pid).map_or((false, false), |stat| (stat.group == pid, stat.session == pid))
}

/// A process (the leader) with its descendants, as far as they are known: the members of the
/// process groups and sessions that the leader or its recorded children lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFamily {
    pub leader: ProcessId,
    /// Whether the process `leader` leads its own process group. If this and `leads_session` are
    /// false, the members are only the leader and the groups of `children`.
    pub leads_group: bool,
    pub leads_session: bool,
    /// Processes that the process `leader` started. Each of them leads its own process group.
    pub children: Vec<ProcessId>,
}

impl ProcessFamily {
    /// All members that still run, without the caller and its ancestors, which are never signalled.
    pub fn members(&self) -> Vec<ProcessId> {
        let processes = all_processes();
        let spared = ancestors(&processes);
        let group = |id: &ProcessId| is_same_group(&processes, *id).then_some(id.pid);
        let groups: Vec<i32> = self
            .leads_group
            .then(|| group(&self.leader))
            .flatten()
            .into_iter()
            .chain(self.children.iter().filter_map(group))
            .collect();
        let sessions: Vec<i32> = self
            .leads_session
            .then(|| group(&self.leader))
            .flatten()
            .into_iter()
            .chain(self.children.iter().filter_map(group))
            .collect();
        processes
            .iter()
            .filter(|(pid, stat)| {
                let id = ProcessId { pid: **pid, start: stat.start };
                let named = id == self.leader || self.children.contains(&id);
                // The process `leader` cannot have started a process that is older than itself.
                let member = stat.start >= self.leader.start
                    && (groups.contains(&stat.group) || sessions.contains(&stat.session));
                stat.running && (named || member) && !spared.contains(pid)
            })
            .map(|(pid, stat)| ProcessId { pid: *pid, start: stat.start })
            .collect()
    }

    /// Terminates all members, as [`terminate_all`] does.
    pub fn terminate(&self, grace: Duration) -> Result<bool, Vec<ProcessId>> {
        terminate_all(&|| self.members(), grace)
    }
}

/// Terminates all processes that `members` returns: TERM, and after `grace` KILL. Ok(true) if KILL
/// was needed. Err: the processes that still run after KILL and another wait. Such a process is in
/// an uninterruptible call, or the caller has no permission to kill it.
pub(super) fn terminate_all(members: &dyn Fn() -> Vec<ProcessId>, grace: Duration) -> Result<bool, Vec<ProcessId>> {
    if !signal_until_gone(members, Signal::TERM, grace).is_empty() {
        let left = signal_until_gone(members, Signal::KILL, grace.max(Duration::from_secs(2)));
        return if left.is_empty() { Ok(true) } else { Err(left) };
    }
    Ok(false)
}

/// Sends `signal` once to each member, and waits until no member is left or `at_most` has passed.
/// Returns the remaining members. The members are read again in each round, because they may start
/// others meanwhile.
fn signal_until_gone(members: &dyn Fn() -> Vec<ProcessId>, signal: Signal, at_most: Duration) -> Vec<ProcessId> {
    let deadline = Instant::now() + at_most;
    let mut signalled = Vec::new();
    loop {
        let members = members();
        if members.is_empty() || Instant::now() > deadline {
            return members;
        }
        for id in members {
            if !signalled.contains(&id) {
                send_signal(id, signal);
                signalled.push(id);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Whether the group or session that `id` led is still the same. The kernel does not give the
/// number of a group or session to a new process while a member of it lives. So if no process has
/// the pid, the members are the old ones. If another process has the pid, no old member is left.
fn is_same_group(processes: &BTreeMap<i32, Stat>, id: ProcessId) -> bool {
    processes.get(&id.pid).is_none_or(|stat| stat.start == id.start)
}

pub(super) fn all_processes() -> BTreeMap<i32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, Stat::read(pid)?))
        })
        .collect()
}

/// The caller and its ancestors. They must never be signalled.
pub(super) fn ancestors(processes: &BTreeMap<i32, Stat>) -> Vec<i32> {
    let mut out = vec![1];
    let mut next = i32::try_from(std::process::id()).unwrap_or(1);
    while next > 1 && !out.contains(&next) {
        out.push(next);
        next = processes.get(&next).map_or(0, |stat| stat.parent);
    }
    out
}

/// Signals exactly this process. Opens a pidfd first and compares the start time after that, so the
/// pid cannot be reused in between. A process that has ended needs no signal.
fn send_signal(id: ProcessId, signal: Signal) {
    let Some(pid) = Pid::from_raw(id.pid) else { return };
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if id.is_alive() {
        let _gone_or_not_ours = pidfd_send_signal(descriptor, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn group_of_two() -> Child {
        Command::new("sh").args(["-c", "sleep 300 & sleep 300"]).process_group(0).spawn().unwrap()
    }

    fn family(child: &Child, start_off_by: u64) -> ProcessFamily {
        let id = ProcessId::from_pid(child.id() as i32).unwrap();
        ProcessFamily {
            leader: ProcessId { start: id.start - start_off_by, ..id },
            leads_group: true,
            leads_session: false,
            children: vec![],
        }
    }

    fn wait_for(mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "waited in vain");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let text = "42 (a) b (c)) S 7 42 40 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 998877 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(stat, Stat { parent: 7, group: 42, session: 40, start: 998_877, running: true });
        assert_eq!(Stat::parse("42 (x"), None);
        assert_eq!(Stat::parse("42 (x) S 1"), None);
    }

    #[test]
    fn a_whole_group_is_terminated() {
        let mut child = group_of_two();
        let family = family(&child, 0);
        wait_for(|| family.members().len() == 2 || family.members().len() == 3);
        assert!(!family.terminate(Duration::from_secs(10)).unwrap());
        assert!(family.members().is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn members_are_found_after_their_leader_died() {
        let mut child = group_of_two();
        let family = family(&child, 0);
        wait_for(|| family.members().len() >= 2);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family.members().is_empty());
        family.terminate(Duration::from_secs(10)).unwrap();
        assert!(family.members().is_empty());
    }

    #[test]
    fn a_reused_pid_is_spared() {
        let mut child = group_of_two();
        let stranger = family(&child, 1);
        assert!(stranger.members().is_empty());
        assert!(!stranger.terminate(Duration::from_secs(1)).unwrap());
        assert!(ProcessId::from_pid(child.id() as i32).is_some());
        family(&child, 0).terminate(Duration::from_secs(10)).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_caller_is_never_a_member() {
        let own = ProcessId::current().unwrap();
        let family = ProcessFamily { leader: own, leads_group: false, leads_session: false, children: vec![] };
        assert!(family.members().is_empty());
    }
}
