//! The Python process that finds and packs modules, and its protocol: one JSON line for each
//! request and answer.

use super::PYTHON_SETTING;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("packer.py");
/// Maximum size of an answer in bytes, which contains an archive in base64.
const ANSWER_MAX: u64 = 16 << 20;
/// Time for the process to end and to remove its temporary files, before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a process gave no answer. It must be dropped.
#[derive(Debug)]
pub enum PackerError {
    /// The process cannot be started, ended, or gave an answer that cannot be read.
    Ended(String),
    /// The answer took too long.
    TooSlow(String),
}

/// A running packer. It ends when this value is dropped.
#[derive(Debug)]
pub struct PackerProcess {
    child: Child,
    /// None: the process was told to end.
    stdin: Option<ChildStdin>,
    answers: Receiver<Vec<u8>>,
}

impl PackerProcess {
    /// Starts the process in `root`.
    pub fn start(python: &[OsString], root: &Path) -> Result<Self, String> {
        let (program, args) = python.split_first().ok_or("no Python is named")?;
        let failed = |e: std::io::Error| format!("{} cannot be started: {e}", program.display());
        let mut child = Command::new(program)
            .args(args)
            .args(["-c", PROGRAM])
            .current_dir(root)
            .env("ANSIBLE_NOCOLOR", "1")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the pipes of the packer are missing".to_owned());
        };
        let (send, answers) = sync_channel(1);
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout);
            loop {
                let mut line = Vec::new();
                // An answer that is too long ends the stream, and so the process.
                match lines.by_ref().take(ANSWER_MAX).read_until(b'\n', &mut line) {
                    Ok(_) if line.ends_with(b"\n") => {}
                    _ => return,
                }
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, stdin: Some(stdin), answers })
    }

    /// Sends a request and waits for the answer. After an error, the process must be dropped.
    pub fn request(&mut self, request: &Value, timeout: Duration) -> Result<Value, PackerError> {
        let ended = || PackerError::Ended("the Python process that packs modules ended".to_owned());
        let stdin = self.stdin.as_mut().ok_or_else(ended)?;
        let sent = stdin.write_all(format!("{request}\n").as_bytes()).and_then(|()| stdin.flush());
        sent.map_err(|_| ended())?;
        let line = self.answers.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Disconnected => ended(),
            RecvTimeoutError::Timeout => {
                let seconds = timeout.as_secs();
                PackerError::TooSlow(format!("the Python process that packs modules did not answer within {seconds} s"))
            }
        })?;
        serde_json::from_slice(&line).map_err(|e| {
            PackerError::Ended(format!(
                "the Python process that packs modules gave an answer that remoor cannot read: {e}"
            ))
        })
    }
}

impl Drop for PackerProcess {
    fn drop(&mut self) {
        self.stdin = None;
        let deadline = Instant::now() + END_TIMEOUT;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The Python that has ansible-core: the one that the environment names, the one of
/// `ansible-playbook` on PATH, or `python3`.
pub fn find_python() -> Vec<OsString> {
    if let Some(named) = std::env::var_os(PYTHON_SETTING).filter(|named| !named.is_empty()) {
        return vec![named];
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program =
        std::env::split_paths(&path).map(|dir| dir.join("ansible-playbook")).find(|program| program.is_file());
    program.and_then(|program| python_of_script(&program)).unwrap_or_else(|| vec!["python3".into()])
}

/// The interpreter in the first line of a script, if it is a Python.
fn python_of_script(script: &Path) -> Option<Vec<OsString>> {
    let mut first = Vec::new();
    BufReader::new(std::fs::File::open(script).ok()?).take(4096).read_until(b'\n', &mut first).ok()?;
    let line = String::from_utf8(first).ok()?;
    let mut words = line.strip_prefix("#!")?.split_whitespace();
    let mut program = PathBuf::from(words.next()?);
    if program.file_name()? == "env" {
        program = PathBuf::from(words.find(|word| !word.starts_with('-'))?);
    }
    let python = program.file_name()?.to_str()?.starts_with("python");
    python.then(|| vec![program.into_os_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_of_a_script_is_in_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("ansible-playbook");
        for (line, python) in [
            ("#!/opt/a/bin/python3.11\n", Some("/opt/a/bin/python3.11")),
            ("#!/usr/bin/env -S python3 -I\nx", Some("python3")),
            ("#!/bin/sh\n", None),
            ("", None),
        ] {
            std::fs::write(&script, line).unwrap();
            let want = python.map(|python| vec![OsString::from(python)]);
            assert_eq!(python_of_script(&script), want, "{line:?}");
        }
    }
}
