//! Finds processes that Ansible on a manager started on this node (`provisioner: ansible`). These
//! processes are no children of the executor and survive the SSH connection. Therefore each of them
//! carries its attempt in an environment variable (the mark).
//!
//! A daemon that a playbook starts without systemd carries the mark too, and it must continue to
//! run. Therefore `closed.json` records the last attempt that was closed as done. Processes of that
//! attempt and of older ones are never killed.

use super::fence::FenceStore;
use super::process::{self, ProcessId};
use remoor_host::disk::atomic_write;
use remoor_host::files::environment;
use remoor_model::{Fence, NodeName};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The content of `closed.json`: the last attempts that a manager closed.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ClosedAttempts {
    /// The last closed attempt.
    last: Option<Fence>,
    /// The last attempt that was closed as done.
    done: Option<Fence>,
}

/// Records that an attempt is closed: Ansible runs nothing for this attempt any more.
pub(super) fn close(state_dir: &Path, fence: &Fence, done: bool) -> io::Result<()> {
    let mut closed = read_closed(state_dir);
    closed.last = Some(fence.clone());
    if done {
        closed.done = Some(fence.clone());
    }
    atomic_write(&path(state_dir), &serde_json::to_vec(&closed)?, 0o600).map_err(|e| e.into_io())
}

/// Kills the processes of attempts older than `fence` on `node`; `fence` must be stored already.
/// Some: a description of the killed processes. Err: the processes that still run.
pub(super) fn kill_older(
    state_dir: &Path,
    node: &NodeName,
    fence: &Fence,
    grace: Duration,
) -> Result<Option<String>, Vec<ProcessId>> {
    let done = read_closed(state_dir).done.filter(|done| done.cluster == fence.cluster);
    let older = |mark: &Fence| mark.cluster == fence.cluster && mark < fence && done.as_ref().is_none_or(|d| mark > d);
    let members = || marked_processes(node).into_iter().filter(|m| older(&m.mark)).collect::<Vec<_>>();
    let first = members();
    let Some(one) = first.first() else { return Ok(None) };
    let by_force = process::terminate_all(&|| members().iter().map(|m| m.id).collect(), grace)?;
    let how = if by_force { "killed" } else { "ended" };
    Ok(Some(format!("Ansible processes of attempt {} were {how} ({})", one.mark.attempt, first.len())))
}

/// Describes an Ansible process of the current attempt on this node, unless that attempt was
/// closed. Only processes of root or of the caller count, because otherwise any user could prevent
/// examinations of the node. Daemons do not count.
pub(super) fn running_ansible(state_dir: &Path, node: &NodeName) -> Option<String> {
    let current = FenceStore::new(state_dir).current().ok()??;
    if read_closed(state_dir).last.as_ref() == Some(&current) {
        return None;
    }
    let found = marked_processes(node).into_iter().find(|m| m.mark == current && m.trusted && m.attached)?;
    Some(format!("attempt {}, process {} of Ansible", current.attempt, found.id.pid))
}

/// A process that carries a mark.
struct MarkedProcess {
    id: ProcessId,
    mark: Fence,
    /// Whether the process runs as root or as the caller.
    trusted: bool,
    /// Whether the leader of the process's session is alive. If so, the process is not a daemon.
    attached: bool,
}

/// All processes with a mark of `node`, without the caller and its ancestors.
fn marked_processes(node: &NodeName) -> Vec<MarkedProcess> {
    let processes = process::all_processes();
    let spared = process::ancestors(&processes);
    let own = rustix::process::geteuid().as_raw();
    let running = processes.iter().filter(|(pid, stat)| stat.running && !spared.contains(pid));
    running
        .filter_map(|(pid, stat)| {
            let (of, mark) = Fence::of_mark(&read_mark(*pid)?)?;
            let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
            (of == *node).then(|| MarkedProcess {
                id: ProcessId { pid: *pid, start: stat.start },
                mark,
                trusted: owner == 0 || owner == own,
                attached: processes.get(&stat.session).is_some_and(|leader| leader.running),
            })
        })
        .collect()
}

/// The mark of a process. None if the process has no mark or has ended, or if the caller has no
/// permission to read its environment.
fn read_mark(pid: i32) -> Option<String> {
    let (name, variables) = (Fence::MARK.as_bytes(), environment(pid)?);
    let value = variables.iter().find_map(|var| var.strip_prefix(name)?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Reads `closed.json`. A file that cannot be read counts as if no attempt was closed.
fn read_closed(state_dir: &Path) -> ClosedAttempts {
    fs::read(path(state_dir)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(remoor_host::disk::CLOSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sample_fence;
    use std::process::{Child, Command};

    /// Starts a process like a task of Ansible whose connection has ended: it has a session of its
    /// own.
    fn task(node: &str, attempt: u64) -> Child {
        let mark = sample_fence(attempt).mark(&node.into());
        let mut command = Command::new("setsid");
        let child = command.args(["sleep", "300"]).env(Fence::MARK, mark).spawn().unwrap();
        let cmdline = format!("/proc/{}/cmdline", child.id());
        while fs::read(&cmdline).unwrap().starts_with(b"setsid") || fs::read(&cmdline).unwrap().is_empty() {
            std::thread::yield_now();
        }
        child
    }

    fn is_running(child: &mut Child) -> bool {
        child.try_wait().unwrap().is_none()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    const GRACE: Duration = Duration::from_secs(10);

    #[test]
    fn only_processes_of_older_attempts_are_killed() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeName::from("marked");
        let (mut old, mut done) = (task("marked", 4), task("marked", 3));
        let mut spared = [task("marked", 6), task("marked", 7), task("another", 4)];
        close(dir.path(), &sample_fence(3), true).unwrap();
        let ended = kill_older(dir.path(), &node, &sample_fence(6), GRACE).unwrap().unwrap();
        assert!(ended.starts_with("Ansible processes of attempt 4 were ended"), "{ended}");
        assert!(!is_running(&mut old) && is_running(&mut done) && spared.iter_mut().all(is_running));
        assert_eq!(kill_older(dir.path(), &node, &sample_fence(6), GRACE), Ok(None));
        close(dir.path(), &Fence { cluster: "c9".into(), ..sample_fence(1) }, true).unwrap();
        assert!(
            kill_older(dir.path(), &node, &sample_fence(4), GRACE).unwrap().is_some(),
            "done was another cluster's"
        );
        let other_cluster = Fence { cluster: "c2".into(), ..sample_fence(9) };
        assert_eq!(kill_older(dir.path(), &node, &other_cluster, GRACE), Ok(None));
        old.wait().unwrap();
        done.wait().unwrap();
        spared.into_iter().for_each(end);
    }

    #[test]
    fn a_task_of_an_attempt_that_is_not_closed_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeName::from("looked-at");
        let child = task("looked-at", 4);
        assert_eq!(running_ansible(dir.path(), &node), None, "no attempt was here");
        FenceStore::new(dir.path()).advance(&sample_fence(4)).unwrap();
        let description = running_ansible(dir.path(), &node).unwrap();
        assert_eq!(description, format!("attempt 4, process {} of Ansible", child.id()));
        assert_eq!(running_ansible(dir.path(), &"w9".into()), None, "it is another node's");
        close(dir.path(), &sample_fence(4), false).unwrap();
        assert_eq!(running_ansible(dir.path(), &node), None);
        FenceStore::new(dir.path()).advance(&sample_fence(5)).unwrap();
        assert_eq!(running_ansible(dir.path(), &node), None, "its fence ended what was older");
        end(child);
    }

    #[test]
    fn a_failed_attempt_does_not_replace_the_last_done_one() {
        let dir = tempfile::tempdir().unwrap();
        close(dir.path(), &sample_fence(3), true).unwrap();
        close(dir.path(), &sample_fence(4), false).unwrap();
        assert_eq!(
            read_closed(dir.path()),
            ClosedAttempts { last: Some(sample_fence(4)), done: Some(sample_fence(3)) }
        );
    }
}
