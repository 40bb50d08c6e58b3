//! What a run of ansible-playbook leaves running on the manager when it is ended: its workers and their ssh lead sessions of
//! their own, so the end of its process group is not theirs. They are found by the run's word in their environment.
//!
//! Not here: what runs on the node; the next attempt's fence ends that.

use super::files::WORD;
use crate::files::environment;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::time::Duration;

/// A process that is being born while we look is found at the next look, and one that was killed is gone by then.
const LOOKS: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Kills every process of this machine whose environment has the run's word, as far as it may be looked into.
pub(super) fn end(word: &str) {
    if word.is_empty() {
        return;
    }
    for _ in 0..LOOKS {
        if marked(word).into_iter().filter(|pid| kill(*pid, word)).count() == 0 {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    tracing::warn!(word, "what a run of ansible-playbook left running can't be ended");
}

/// True: it was there and got the signal. The handle is opened first and the mark read after it, so that nobody else who was
/// given the number meanwhile is meant.
fn kill(pid: i32, word: &str) -> bool {
    let Some(handle) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return false;
    };
    has(pid, word) && pidfd_send_signal(&handle, Signal::KILL).is_ok()
}

fn marked(word: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has(*pid, word)).collect()
}

/// One that has ended and is not waited for has no environment any more.
fn has(pid: i32, word: &str) -> bool {
    let is = |var: &[u8]| var.strip_prefix(WORD.as_bytes()).and_then(|v| v.strip_prefix(b"=")) == Some(word.as_bytes());
    environment(pid).is_some_and(|vars| vars.iter().any(|var| is(var)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    #[test]
    fn only_what_has_the_word_is_ended() {
        let start = |word: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", "trap '' TERM; while :; do sleep 300; done"]).env(WORD, word).process_group(0);
            command.spawn().unwrap()
        };
        let word = format!("run-of-test-{}", std::process::id());
        let (mut meant, mut other) = (start(&word), start(&format!("{word}-2")));
        while !has(meant.id() as i32, &word) {
            std::thread::yield_now();
        }
        end(&word);
        assert_eq!(meant.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        assert!(other.try_wait().unwrap().is_none(), "another run's was ended");
        assert_eq!(marked(&word), Vec::<i32>::new());
        end(&format!("{word}-2"));
        assert_eq!(other.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
