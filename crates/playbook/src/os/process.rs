//! Runs one command in its own process group, without a terminal. Both output streams are read
//! concurrently, with a limit.
//!
//! On timeout or cancel, the whole group receives TERM and, after a grace period, KILL. This file
//! knows nothing of tasks.

use crate::os::acting_user::{self, ActingUser};
use crate::run::event::{CancelToken, LineSplitter};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process_group, umask};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Maximum number of bytes kept of each stream; the rest is read and dropped.
const KEEP_MAX: usize = 4 << 20;
/// Time between the signals TERM and KILL to a command that must end.
const GRACE: Duration = Duration::from_secs(5);
/// Time to wait for output after the command has ended. A limit is needed, because children of the
/// command may keep the streams open for ever.
const LINGER: Duration = Duration::from_millis(1000);
const TICK: Duration = Duration::from_millis(50);
/// Maximum number of chunks of output that the reading threads have sent and that are not processed
/// yet.
const CHUNKS: usize = 64;

#[derive(Debug, Default)]
pub struct CommandSpec {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Whether the command starts without the environment of this process.
    pub clean: bool,
    pub dir: Option<PathBuf>,
    pub stdin: Option<Vec<u8>>,
    pub timeout: Option<Duration>,
    /// The umask of the command. None: that of this process.
    pub umask: Option<u32>,
}

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Finished {
    /// The exit code. A negative number is the signal that ended the command, as in Python. None:
    /// the command was stopped by the timeout or a cancel.
    pub rc: Option<i32>,
    pub stdout: String,
    /// Whether `stdout` differs from the bytes that the command wrote, because it was cut or is not
    /// UTF-8.
    pub partial: bool,
    pub stderr: String,
    pub tail: Vec<String>,
    pub timed_out: bool,
    pub cancelled: bool,
}

impl SpawnError {
    /// The system's error number for the failed start. None: the system reported no error.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Empty => None,
            Self::Start { source, .. } => source.raw_os_error(),
        }
    }
}

impl Finished {
    pub fn success(&self) -> bool {
        self.rc == Some(0) && !self.timed_out && !self.cancelled
    }
}

/// A command that could not be started; nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("the command is empty")]
    Empty,
    #[error("cannot start {program}")]
    Start { program: String, source: std::io::Error },
}

struct Chunk {
    error_stream: bool,
    bytes: Vec<u8>,
}

/// Runs a command to its end. `emit` receives the lines of output when they arrive. If this thread
/// acts as a user, the command is a process of that user, without the environment of this process.
pub fn run(job: &CommandSpec, cancel: &CancelToken, emit: &mut dyn FnMut(&str)) -> Result<Finished, SpawnError> {
    let user = acting_user::acting_user();
    // Only root may start and kill processes of the user.
    acting_user::as_root(|| run_as(job, user.as_deref(), cancel, emit))
}

fn run_as(
    job: &CommandSpec,
    user: Option<&ActingUser>,
    cancel: &CancelToken,
    emit: &mut dyn FnMut(&str),
) -> Result<Finished, SpawnError> {
    let (program, args) = job.argv.split_first().ok_or(SpawnError::Empty)?;
    let mut command = Command::new(program);
    if job.clean || user.is_some() {
        command.env_clear();
    }
    if let Some(user) = user {
        command.envs(user.env.iter().map(|(k, v)| (k, v)));
    }
    command
        .args(args)
        .envs(job.env.iter().map(|(k, v)| (k, v)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command.stdin(if job.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    if let Some(dir) = &job.dir {
        command.current_dir(dir);
    }
    let start = |command: &mut Command| match user {
        Some(user) => user.spawn(command, job.dir.is_none()),
        None => command.spawn(),
    };
    let mut child = spawn(&mut command, job.umask, start)
        .map_err(|source| SpawnError::Start { program: program.clone(), source })?;
    let (send, receive) = sync_channel(CHUNKS);
    if let Some(out) = child.stdout.take() {
        reader(out, false, send.clone());
    }
    if let Some(err) = child.stderr.take() {
        reader(err, true, send.clone());
    }
    drop(send);
    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), job.stdin.clone()) {
        // A failure is ignored: a command may close its input without reading it.
        std::thread::spawn(move || pipe.write_all(&bytes));
    }
    cancel.report_started(child.id());
    let mut leash = Leash { child: &mut child, ended: false };
    let finished = watch(leash.child, &receive, job.timeout, cancel, emit);
    leash.ended = true;
    drop(leash);
    cancel.report_ended(child.id());
    Ok(finished)
}

/// Starts a process with the umask `mask`. The umask is changed in this process during the start,
/// because a change in the child after `fork` would not be safe here. Other threads that create
/// files meanwhile set the mode of each file explicitly.
fn spawn(
    command: &mut Command,
    mask: Option<u32>,
    start: impl FnOnce(&mut Command) -> std::io::Result<Child>,
) -> std::io::Result<Child> {
    /// Serializes changes of the umask, so that two threads do not restore each other's value.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let Some(mask) = mask else { return start(command) };
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let own = umask(Mode::from_raw_mode(mask));
    let spawned = start(command);
    umask(own);
    spawned
}

/// Kills the process group of the command if the thread that waits for the command panics. Nothing
/// else would end the group.
struct Leash<'c> {
    child: &'c mut Child,
    ended: bool,
}

impl Drop for Leash<'_> {
    fn drop(&mut self) {
        if !self.ended {
            signal(self.child, Signal::KILL);
        }
    }
}

fn reader(mut stream: impl Read + Send + 'static, error_stream: bool, send: SyncSender<Chunk>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(n) = stream.read(&mut buffer) {
            if n == 0 || send.send(Chunk { error_stream, bytes: buffer[..n].to_vec() }).is_err() {
                return;
            }
        }
    });
}

fn watch(
    child: &mut Child,
    chunks: &Receiver<Chunk>,
    timeout: Option<Duration>,
    cancel: &CancelToken,
    emit: &mut dyn FnMut(&str),
) -> Finished {
    let mut out = Finished::default();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut lines = [LineSplitter::default(), LineSplitter::default()];
    let start = Instant::now();
    let mut term: Option<Instant> = None;
    let mut killed = false;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut open = true;
    loop {
        if open {
            match chunks.recv_timeout(if ended.is_some() { Duration::from_millis(10) } else { TICK }) {
                Ok(chunk) => {
                    let (keep, lines) = match chunk.error_stream {
                        true => (&mut stderr, &mut lines[1]),
                        false => (&mut stdout, &mut lines[0]),
                    };
                    let room = KEEP_MAX.saturating_sub(Vec::len(keep));
                    keep.extend_from_slice(&chunk.bytes[..chunk.bytes.len().min(room)]);
                    lines.push(&chunk.bytes, emit);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        } else if ended.is_none() {
            std::thread::sleep(Duration::from_millis(1).max(start.elapsed() / 100).min(TICK));
        }
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
        {
            ended = Some((status, Instant::now()));
        }
        if let Some((_, at)) = ended
            && (!open || at.elapsed() > LINGER)
        {
            break;
        }
        if term.is_none() && ended.is_none() {
            out.cancelled = cancel.is_cancelled();
            out.timed_out = timeout.is_some_and(|t| start.elapsed() > t);
            if out.cancelled || out.timed_out {
                signal(child, Signal::TERM);
                term = Some(Instant::now());
            }
        } else if term.is_some_and(|at| at.elapsed() > GRACE) && !killed {
            signal(child, Signal::KILL);
            killed = true;
        }
    }
    if term.is_some() && !killed {
        // The group leader ended after TERM; other processes of the group may still run.
        signal(child, Signal::KILL);
    }
    let broken_off = out.timed_out || out.cancelled;
    let signal = |status: &ExitStatus| status.signal().filter(|_| !broken_off).map(|signal| -signal);
    out.rc = ended.and_then(|(status, _)| status.code().or_else(|| signal(&status)));
    for (i, l) in lines.iter_mut().enumerate() {
        l.close(emit);
        if i == 0 || out.tail.is_empty() || out.rc != Some(0) {
            out.tail.extend(l.tail());
        }
    }
    let extra = out.tail.len().saturating_sub(20);
    out.tail.drain(..extra);
    out.stdout = text(&stdout);
    out.partial = out.stdout.as_bytes() != stdout;
    out.stderr = text(&stderr);
    out
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // An error means that the group does not exist any more, so it has ended.
        let _ = kill_process_group(pid, signal);
    }
}

fn text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if bytes.len() >= KEEP_MAX {
        text.push_str("\n[output cut]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> CommandSpec {
        CommandSpec { argv: vec!["/bin/sh".into(), "-c".into(), script.into()], ..CommandSpec::default() }
    }

    #[test]
    fn two_hundred_thousand_lines_and_a_line_of_a_megabyte_stay_within_bounds() {
        let script = "seq 1 200000; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last";
        let (mut count, mut longest) = (0, 0);
        let done = run(&sh(script), &CancelToken::new(), &mut |line| {
            count += 1;
            longest = longest.max(line.len());
        })
        .unwrap();
        assert_eq!((done.rc, count), (Some(0), 200_002));
        assert!(longest <= LINE_BOUND, "{longest}");
        assert_eq!(done.tail.len(), 20);
        assert_eq!(done.tail.last().map(String::as_str), Some("last"));
        assert!(done.stdout.len() <= KEEP_MAX + 100 && !done.partial);
    }

    #[test]
    fn output_that_is_not_whole_is_marked() {
        for (script, partial) in
            [("printf 'caf\\303\\251'", false), ("printf 'caf\\351'", true), ("head -c 5000000 /dev/zero", true)]
        {
            let done = run(&sh(script), &CancelToken::new(), &mut |_| {}).unwrap();
            assert_eq!(done.partial, partial, "{script}");
        }
    }
    const LINE_BOUND: usize = (16 << 10) + 20;

    #[test]
    fn cancel_ends_the_whole_group() {
        let cancel = CancelToken::new();
        let mut children = Vec::new();
        let stop = cancel.clone();
        let script = "trap '' TERM; sleep 300 & echo $!; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 300; done' & sleep 0.1; echo $$; wait; sleep 300";
        let done = run(&sh(script), &cancel, &mut |line| {
            children.push(line.to_owned());
            if children.len() == 3 {
                stop.cancel();
            }
        })
        .unwrap();
        assert!(done.cancelled && !done.success());
        assert_eq!(children.len(), 3, "{children:?}");
        for pid in children {
            let deadline = Instant::now() + Duration::from_secs(120);
            while alive(&pid) {
                assert!(Instant::now() < deadline, "{pid} still runs");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    }

    #[test]
    fn a_child_that_keeps_the_streams_does_not_hang_us() {
        let done = run(&sh("sleep 30 & echo $!"), &CancelToken::new(), &mut |_| {}).unwrap();
        assert_eq!(done.rc, Some(0));
        let pid: i32 = done.stdout.trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn the_umask_asked_for_is_the_commands_alone() {
        for mask in [0o022, 0o027] {
            let done =
                run(&CommandSpec { umask: Some(mask), ..sh("umask") }, &CancelToken::new(), &mut |_| {}).unwrap();
            assert_eq!(done.stdout.trim(), format!("{mask:04o}"));
        }
    }

    #[test]
    fn a_panic_while_a_command_runs_ends_it() {
        let mut pid = String::new();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _never = run(&sh("echo $$; exec sleep 300"), &CancelToken::new(), &mut |line| {
                pid = line.to_owned();
                panic!("a defect");
            });
        }));
        assert!(ended.is_err() && !pid.is_empty());
        let deadline = Instant::now() + Duration::from_secs(20);
        while alive(&pid) {
            assert!(Instant::now() < deadline, "{pid} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn input_environment_and_time_limit() {
        let job = CommandSpec {
            stdin: Some(b"hello".to_vec()),
            env: vec![("X".into(), "y".into())],
            ..sh("cat; echo \" $X\"; exit 3")
        };
        let done = run(&job, &CancelToken::new(), &mut |_| {}).unwrap();
        assert_eq!((done.rc, done.stdout.as_str()), (Some(3), "hello y\n"));
        let job = CommandSpec { timeout: Some(Duration::from_millis(100)), ..sh("sleep 60") };
        let done = run(&job, &CancelToken::new(), &mut |_| {}).unwrap();
        assert!(done.timed_out && done.rc.is_none());
    }
}
