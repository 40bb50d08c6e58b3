//! Runs a program for a check, with a timeout and limited output. No process is left running
//! afterwards.

use super::orphan_processes::EnvironmentMark;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of bytes kept of each output stream by [`run`].
pub(super) const MAX_OUTPUT: usize = 1 << 20;
/// Time for which background processes may keep the output of an ended program open.
const LINGER: Duration = Duration::from_millis(200);
/// Maximum wait for a killed program to end.
const REAP: Duration = Duration::from_secs(2);
const PAUSE: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(10));

/// Set when this process is about to end.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Stops all programs that checks have started in this process, and prevents new ones. Call this
/// when the process receives a signal to end: the signal does not reach programs in process groups
/// of their own. Returns immediately; the programs end a moment later.
pub fn end_programs() {
    ENDING.store(true, Ordering::Relaxed);
}

#[derive(Debug)]
pub(super) struct ProgramOutput {
    /// The exit status as a shell reports it: 128 plus the signal number if a signal ended the
    /// program.
    pub status: i32,
    pub stdout: Stream,
    pub stderr: Stream,
}

/// The output of a program on one stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub bytes: Vec<u8>,
    /// The program wrote more than the maximum; the rest was discarded.
    pub truncated: bool,
}

impl Stream {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Runs `command` until it ends. Err: the reason why there is no result, for messages. When this
/// function returns, the process group of the program has been killed. After an error, processes
/// that left the group have been killed, too.
pub(super) fn run(command: &mut Command, timeout: Duration) -> Result<ProgramOutput, String> {
    run_with_limit(command, timeout, MAX_OUTPUT)
}

/// Like [`run`], with another maximum number of bytes of each output stream.
pub(super) fn run_with_limit(command: &mut Command, timeout: Duration, max: usize) -> Result<ProgramOutput, String> {
    let deadline = Instant::now() + timeout;
    let program = command.get_program().to_string_lossy().into_owned();
    if ENDING.load(Ordering::Relaxed) {
        return Err("interrupted".to_owned());
    }
    let mark = EnvironmentMark::put_into(command)?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{program} can't be started: {e}"))?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let mut group = Group { pid: Pid::from_child(&child), program, child, mark, reaped: false };
    let unblocked = out.as_ref().map_or(Ok(()), set_nonblocking).and(err.as_ref().map_or(Ok(()), set_nonblocking));
    unblocked.map_err(|e| e.to_string())?;
    let (mut stdout, mut stderr) = (Stream::default(), Stream::default());
    let mut pause = PAUSE.0;
    let mut linger: Option<Instant> = None;
    loop {
        if ENDING.load(Ordering::Relaxed) {
            return Err("interrupted".to_owned());
        }
        let moved = drain(&mut out, &mut stdout, max) | drain(&mut err, &mut stderr, max);
        if linger.is_none() && group.has_ended().map_err(|e| e.to_string())? {
            linger = Some(Instant::now() + LINGER);
        }
        if linger.is_some_and(|until| (out.is_none() && err.is_none()) || Instant::now() >= until) {
            let status = group.end().map_err(|e| e.to_string())?;
            let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            return Ok(ProgramOutput { status, stdout, stderr });
        }
        if Instant::now() >= deadline {
            return Err(format!("no answer within {} ms", timeout.as_millis()));
        }
        pause = if moved { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
        thread::sleep(pause);
    }
}

/// A program with its process group. Dropping this value kills the group.
struct Group {
    pid: Pid,
    program: String,
    child: Child,
    mark: EnvironmentMark,
    reaped: bool,
}

impl Group {
    /// Whether the program has ended. The program is not reaped, so that its process id still
    /// identifies the group.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    /// Kills the rest of the group after the program has ended. Processes that left the group may
    /// continue to run.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // This call fails if no process of the group is left, which is no error.
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        let deadline = Instant::now() + REAP;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(PAUSE.0);
        }
        if !self.mark.kill_all() {
            tracing::warn!(program = %self.program, "a command that timed out left processes");
        }
    }
}

fn set_nonblocking<T: AsFd>(pipe: &T) -> io::Result<()> {
    rustix::io::ioctl_fionbio(pipe, true).map_err(io::Error::from)
}

/// Reads the available output, and closes the pipe when it has ended. Returns true if anything was
/// read.
fn drain(pipe: &mut Option<impl Read>, stream: &mut Stream, max: usize) -> bool {
    let mut moved = false;
    let mut buffer = [0; 16 << 10];
    // The number of reads is bounded, so that the deadline is checked even if a program writes
    // without end.
    for _ in 0..64 {
        let Some(open) = pipe else { break };
        match open.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(n) => {
                moved = true;
                let room = max - stream.bytes.len();
                stream.bytes.extend_from_slice(&buffer[..n.min(room)]);
                stream.truncated |= n > room;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) => *pipe = None,
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn sh(text: &str, timeout: Duration) -> Result<ProgramOutput, String> {
        run(Command::new("sh").args(["-c", text]), timeout)
    }

    const LONG: Duration = Duration::from_secs(60);

    /// Whether a process whose command line holds `mark` exists.
    fn exists(mark: &str) -> bool {
        let own = std::process::id().to_string();
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            entry.file_name().to_string_lossy() != *own
                && fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
        })
    }

    #[test]
    fn output_and_status_arrive() {
        let output = sh("echo out; echo err >&2; exit 3", LONG).unwrap();
        assert_eq!((output.status, output.stdout.text(), output.stderr.text()), (3, "out\n".into(), "err\n".into()));
        assert_eq!(sh("kill -9 $$", LONG).unwrap().status, 137);
        assert!(run(&mut Command::new("/no/such/program"), LONG).unwrap_err().contains("can't be started"));
    }

    #[test]
    fn a_timeout_leaves_no_process() {
        let mark = format!("86399.{}", std::process::id());
        let started = Instant::now();
        let text = format!("sleep {mark} & sleep {mark}");
        let why = sh(&text, Duration::from_millis(300)).unwrap_err();
        assert_eq!(why, "no answer within 300 ms");
        assert!(started.elapsed() < LONG);
        let deadline = Instant::now() + LONG;
        while exists(&mark) {
            assert!(Instant::now() < deadline, "a process is left");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_timeout_kills_processes_outside_the_group() {
        let mark = format!("86397.{}", std::process::id());
        // Two processes run in sessions of their own: the first keeps its parent, and the second is
        // adopted by init. All processes start before the deadline.
        let text = format!("setsid sh -c 'sleep {mark} & sleep {mark}' & (setsid sleep {mark} &); sleep {mark}");
        assert!(sh(&text, Duration::from_secs(1)).is_err());
        assert!(!exists(&mark));
    }

    #[test]
    fn background_processes_are_killed_without_waiting() {
        let mark = format!("86398.{}", std::process::id());
        let output = sh(&format!("sleep {mark} & echo done"), LONG).unwrap();
        assert_eq!((output.status, output.stdout.text()), (0, "done\n".into()));
        let deadline = Instant::now() + LONG;
        while exists(&mark) {
            assert!(Instant::now() < deadline, "a process is left");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn endless_output_is_cut() {
        let output = sh("head -c 3000000 /dev/zero", LONG).unwrap();
        assert_eq!((output.status, output.stdout.bytes.len(), output.stdout.truncated), (0, MAX_OUTPUT, true));
        let output = sh("head -c 1048576 /dev/zero", LONG).unwrap();
        assert_eq!((output.stdout.bytes.len(), output.stdout.truncated), (MAX_OUTPUT, false));
        assert!(sh("yes", Duration::from_millis(300)).is_err());
    }
}
