//! Ends processes on the manager that remain after a run of ansible-playbook. Ansible's workers and
//! their ssh processes have their own sessions, so they survive the end of the process group. They
//! are found by the run's id in their environment.
//!
//! Processes on the node are not handled here; the fence of the next attempt ends them.

use super::files::RUN_ID_VAR;
use remoor_host::files::environment;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;

/// Maximum number of rounds that list and kill processes. A process that is forked during the
/// listing is found in the next round.
const LOOKS: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Kills every process of this machine that has the run's id in its environment. A process with an
/// unreadable environment is not found.
pub(super) fn end(word: &str) {
    if word.is_empty() {
        return;
    }
    for _ in 0..LOOKS {
        if marked_pids(word).into_iter().filter(|pid| kill(*pid, word)).count() == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    tracing::warn!(word, "processes of an ansible-playbook run can't be ended");
}

/// Kills the process if it has the run's id. Returns true if it was killed. The handle of the
/// process is opened before its environment is read. So if another process gets the same number, it
/// is never killed.
fn kill(pid: i32, word: &str) -> bool {
    let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    has_run_id(pid, word) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
}

fn marked_pids(word: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has_run_id(*pid, word)).collect()
}

/// Whether the process has the run's id. A process that has ended but was not waited for has no
/// environment.
pub(super) fn has_run_id(pid: i32, word: &str) -> bool {
    let is = |var: &[u8]| {
        var.strip_prefix(RUN_ID_VAR.as_bytes()).and_then(|v| v.strip_prefix(b"=")) == Some(word.as_bytes())
    };
    environment(pid).is_some_and(|vars| vars.iter().any(|var| is(var)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    fn only_processes_with_the_run_id_are_killed() {
        let start = |word: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' TERM; while :; do sleep 300; done"]).env(RUN_ID_VAR, word).process_group(0);
            command.spawn().unwrap()
        };
        let word = format!("run-of-test-{}", std::process::id());
        let (mut meant, mut other) = (start(&word), start(&format!("{word}-2")));
        while !has_run_id(meant.id() as i32, &word) {
            std::thread::yield_now();
        }
        end(&word);
        assert_eq!(meant.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        assert!(other.try_wait().unwrap().is_none(), "another run's was ended");
        assert_eq!(marked_pids(&word), Vec::<i32>::new());
        end(&format!("{word}-2"));
        assert_eq!(other.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
