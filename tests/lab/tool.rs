//! Runs a command with a time limit, and waits for a condition. This module does not depend on the
//! rest of the lab.

use anyhow::{Context, Result, bail};
use std::borrow::BorrowMut;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// The limit, or ten times the limit with `REMOOR_LONG`. The durations of production, which that
/// variable selects, are often ten times as long. A limit in the lab only ends hangs, so it may be
/// long.
pub fn scaled_limit(limit: Duration) -> Duration {
    if has_production_durations() { limit * 10 } else { limit }
}

/// Whether the fleets have the durations of production (`make test-long`).
pub fn has_production_durations() -> bool {
    std::env::var_os("REMOOR_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Maximum output of a command that is kept, in bytes. Further output is read and dropped.
const KEPT_BYTES: usize = 16 << 20;

/// The result of a command.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit code, or 128 plus the number of the signal that ended the command.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Output {
    pub fn ok(&self) -> bool {
        self.code == 0
    }

    /// Standard output as text, without the white space around it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// The output, or an error if the command did not succeed.
    pub fn require_success(self, what: &str) -> Result<Output> {
        if !self.ok() {
            let text = if self.stderr.is_empty() { &self.stdout } else { &self.stderr };
            bail!("{what}: exit {}: {}", self.code, String::from_utf8_lossy(text).trim());
        }
        Ok(self)
    }
}

/// Runs `command` to its end. None for `stdin` means an empty input. At `limit` the command and its
/// children are killed, and an error is returned.
pub fn run(mut command: impl BorrowMut<Command>, stdin: Option<&[u8]>, limit: Duration) -> Result<Output> {
    let command = command.borrow_mut();
    let what = command.get_program().to_string_lossy().into_owned();
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {what}"))?;
    let (done, ended) = mpsc::channel();
    let stdout = collect(child.stdout.take(), done.clone());
    let stderr = collect(child.stderr.take(), done);
    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), stdin) {
        let bytes = bytes.to_vec();
        // A command may end without reading its input, so a broken pipe is not an error here.
        std::thread::spawn(move || drop(pipe.write_all(&bytes)));
    }
    let status = wait_child(&mut child, limit).with_context(|| format!("{what}: no end after {limit:?}"))?;
    // A background process may hold the pipes open, so the readers get only a short time.
    let grace = Instant::now() + Duration::from_secs(2);
    for _ in 0..2 {
        let _ = ended.recv_timeout(grace.saturating_duration_since(Instant::now()));
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let take = |kept: Arc<Mutex<Vec<u8>>>| std::mem::take(&mut *kept.lock().expect("no reader panics"));
    Ok(Output { code, stdout: take(stdout), stderr: take(stderr) })
}

fn wait_child(child: &mut Child, limit: Duration) -> Result<std::process::ExitStatus> {
    let end = Instant::now() + scaled_limit(limit);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > end {
            let group = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            bail!("killed");
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>, done: mpsc::Sender<()>) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let into = kept.clone();
    if let Some(mut pipe) = pipe {
        std::thread::spawn(move || {
            let mut part = [0; 16 << 10];
            while let Ok(n @ 1..) = pipe.read(&mut part) {
                let mut kept = into.lock().expect("no holder panics");
                let room = KEPT_BYTES.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&part[..room]);
            }
            let _ = done.send(());
        });
    }
    kept
}

/// Runs a command on this machine, which must succeed within a minute. Returns its standard output.
pub fn run_tool(argv: &[&str]) -> Result<String> {
    run_tool_with(argv, None, Duration::from_secs(60))
}

/// Like [`run_tool`], with input and its own limit.
pub fn run_tool_with(argv: &[&str], stdin: Option<&[u8]>, limit: Duration) -> Result<String> {
    Ok(run(command(argv), stdin, limit)?.require_success(&argv.join(" "))?.text())
}

/// Runs a command on this machine. Its failure is ignored, for example when it removes an object
/// that does not exist.
pub fn attempt(argv: &[&str]) {
    let _ = run(command(argv), None, Duration::from_secs(60));
}

pub fn command(argv: &[&str]) -> Command {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]);
    command
}

/// The path of a program. The directories of root's programs are searched too.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/bin:/bin";
    path.split(':').map(|dir| PathBuf::from(dir).join(name)).find(|file| file.is_file())
}

/// Repeats `ask` until it returns `Some`. The pause is 30 ms at first and 300 ms later, to limit
/// the load. After `limit` (see [`scaled_limit`]) an error names `what`.
pub fn wait_for<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Result<T> {
    let end = Instant::now() + scaled_limit(limit);
    let mut pause = Duration::from_millis(30);
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if Instant::now() > end {
            bail!("waited {:?} for {what}", scaled_limit(limit));
        }
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(Duration::from_millis(300));
    }
}
