//! Runs a program that gives a secret, with a time limit and a limit of its output.

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Maximum duration of a program. It may ask a service, but not wait for ever.
const PROGRAM_MAX: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);
/// Time in which a failed program's standard error must end. A process that the program has left
/// may keep the pipe open.
const ERRORS_WAIT: Duration = Duration::from_secs(1);
/// Maximum size of the standard error that is read, in bytes.
const ERRORS_MAX: u64 = 4 << 10;

/// Runs the command, gives it `input`, and returns its standard output. An output of more than
/// `output_max` bytes is an error, and ends the program at once. The standard error is that of the
/// caller, unless the command says otherwise. The error is a phrase that follows the name of the
/// program, for example `did not end within 60 s`.
///
/// The program leads its own process group, so that all of its processes are killed if it does not
/// end. So it cannot ask on the terminal, unlike in Ansible.
pub fn run(command: &mut Command, input: Option<Vec<u8>>, output_max: u64) -> Result<Vec<u8>, String> {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| format!("can't be run: {e}"))?;
    let ended = wait(&mut child, input, output_max);
    if ended.is_err() {
        end(&mut child);
    }
    ended
}

fn wait(child: &mut Child, input: Option<Vec<u8>>, output_max: u64) -> Result<Vec<u8>, String> {
    let output = read_in_thread(child.stdout.take().ok_or("has no output")?, output_max);
    let errors = child.stderr.take().map(|errors| read_in_thread(errors, ERRORS_MAX));
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // A program that does not read its input ends the thread with an error of the pipe.
        std::thread::spawn(move || pipe.write_all(&input));
    }
    let deadline = Instant::now() + PROGRAM_MAX;
    let late = || format!("did not end within {} s", PROGRAM_MAX.as_secs());
    let bytes = output.recv_timeout(PROGRAM_MAX).map_err(|_| late())?.map_err(|e| format!("can't be read: {e}"))?;
    if bytes.len() as u64 > output_max {
        return Err(format!("printed more than {output_max} bytes"));
    }
    loop {
        match child.try_wait().map_err(|e| format!("is lost: {e}"))? {
            Some(status) if status.success() => return Ok(bytes),
            Some(status) => {
                let errors = errors.and_then(|errors| errors.recv_timeout(ERRORS_WAIT).ok()?.ok()).unwrap_or_default();
                return Err(format!("failed: {status}{}", first_line(&errors)));
            }
            None if Instant::now() > deadline => return Err(late()),
            None => std::thread::sleep(TICK),
        }
    }
}

fn read_in_thread(pipe: impl Read + Send + 'static, max: u64) -> Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe;
        let read = pipe.by_ref().take(max + 1).read_to_end(&mut bytes).map(|_| bytes);
        let _nobody_waits = sender.send(read);
        // A program that writes more than the limit must not end by a closed pipe.
        let _rest = std::io::copy(&mut pipe, &mut std::io::sink());
    });
    receiver
}

/// The first line with text, as the end of a message.
fn first_line(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(|line| format!(" ({line})")).unwrap_or_default()
}

fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _already_ended = kill_process_group(group, Signal::KILL);
    }
    let _already_waited = child.wait();
}
