//! Limits the time in which tests wait for child processes. A child that hangs is killed, so that
//! the test fails and prints the output so far.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// The time after which a command counts as hanging. It is longer than any timeout of a command
/// itself.
const LIMIT: Duration = Duration::from_secs(600);

/// Kills a child after a time, unless this value is dropped before. After the kill, the exit of the
/// child comes at once. The end of its output also comes at once, unless a process that the child
/// started still holds the output.
pub struct TimeLimit {
    _stop: Sender<()>,
}

impl TimeLimit {
    pub fn start(child: &Child, limit: Duration) -> Self {
        // A descriptor is used because a process id may later mean another process.
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("the child is not reaped");
        let (stop, stopped) = mpsc::channel();
        std::thread::spawn(move || {
            if stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a child process is killed after {limit:?}");
                let _may_have_ended = pidfd_send_signal(process, Signal::KILL);
            }
        });
        Self { _stop: stop }
    }
}

/// Methods that wait for at most [`LIMIT`].
pub trait BoundedCommand {
    /// Like [`Command::output`] with an empty standard input.
    fn bounded_output(&mut self) -> Output;
}

impl BoundedCommand for Command {
    fn bounded_output(&mut self) -> Output {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn().unwrap_or_else(|e| panic!("{self:?}: {e}")).bounded_output()
    }
}

/// Methods that wait for at most [`LIMIT`].
pub trait BoundedChild {
    /// Like [`Child::wait`], for at most [`LIMIT`].
    fn bounded_wait(&mut self) -> ExitStatus;
    /// Like [`Child::wait_with_output`], for at most [`LIMIT`].
    fn bounded_output(self) -> Output;
}

impl BoundedChild for Child {
    fn bounded_wait(&mut self) -> ExitStatus {
        let _limit = TimeLimit::start(self, LIMIT);
        self.wait().expect("an exit")
    }

    fn bounded_output(self) -> Output {
        let _limit = TimeLimit::start(&self, LIMIT);
        self.wait_with_output().expect("an exit")
    }
}

#[test]
fn a_hanging_child_is_killed_and_its_output_ends() {
    let mut hanging = Command::new("sh");
    hanging.args(["-c", "echo begun; exec sleep 600"]).stdout(Stdio::piped());
    let child = hanging.spawn().expect("sh");
    let limit = TimeLimit::start(&child, Duration::from_millis(300));
    let Output { status, stdout, .. } = child.wait_with_output().expect("an exit");
    drop(limit);
    assert_eq!((status.signal(), stdout.as_slice()), (Some(9), &b"begun\n"[..]));
    // A limit that is dropped before its time kills nothing.
    let mut child = Command::new("sleep").arg("1").spawn().expect("sleep");
    drop(TimeLimit::start(&child, Duration::from_millis(100)));
    assert!(child.wait().expect("an exit").success());
}
