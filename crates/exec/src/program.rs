//! Runs a helper program with a time limit and bounded output.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const OUTPUT_MAX: u64 = 64 * 1024;
const POLL: Duration = Duration::from_millis(5);

pub(super) struct CapturedOutput {
    /// The first 64 KiB of the program's standard output.
    pub stdout: String,
}

/// Runs `command` without input in its own process group, for at most `at_most`. After that the
/// whole group is killed and the error is `TimedOut`. The exit code is ignored, because the callers
/// need only the output.
pub(super) fn capture_output(command: &mut Command, at_most: Duration) -> io::Result<CapturedOutput> {
    let deadline = Instant::now() + at_most;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env("LC_ALL", "C")
        .process_group(0)
        .spawn()?;
    let (done, text) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(OUTPUT_MAX).read_to_end(&mut bytes);
            // After the deadline there is no receiver any longer.
            drop(done.send(read.map(|_| bytes)));
        });
    }
    let read = text.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            kill(&mut child);
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(POLL);
    }
    match read {
        Ok(bytes) => Ok(CapturedOutput { stdout: String::from_utf8_lossy(&bytes?).into_owned() }),
        Err(_) => {
            kill(&mut child);
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _gone_already = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _reaped = child.wait();
}

/// Writes a script to `dir/name`. A child process writes the file. If this process had the file
/// open for writing while another thread forks, the start of the script would fail with "text file
/// busy".
#[cfg(test)]
pub(super) fn script(dir: &std::path::Path, name: &str, text: &str) -> std::path::PathBuf {
    let (source, path) = (dir.join(format!("{name}.text")), dir.join(name));
    std::fs::write(&source, text).unwrap();
    let made = Command::new("install").args(["-m", "755"]).args([&source, &path]).status().unwrap();
    assert!(made.success());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_read_for_every_exit_code() {
        let out =
            capture_output(Command::new("sh").args(["-c", "echo word; exit 3"]), Duration::from_secs(20)).unwrap();
        assert_eq!(out.stdout, "word\n");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let started = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 300 & sleep 300"]);
        let error = capture_output(&mut command, Duration::from_millis(100)).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(100));
    }
}
