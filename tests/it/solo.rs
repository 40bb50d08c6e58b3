//! `remoor check --file` as a process: its standard input, its exit codes, and the processes that
//! remain after Ctrl-C.

use crate::local::{LONG, remoor};
use crate::time_limit::{BoundedChild, BoundedCommand};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Starts a run of the checks in `text`, which is written to standard input.
fn start_with_input(text: &str, args: &[&str]) -> Child {
    let mut child = start_without_input(args);
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the child reads");
    child
}

/// Starts a run that waits for its standard input.
fn start_without_input(args: &[&str]) -> Child {
    let mut command: Command = remoor();
    command
        .args(["check", "--file", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("remoor runs")
}

fn run_to_end(text: &str, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, .. } = start_with_input(text, args).bounded_output();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned())
}

/// Whether a process exists that has `mark` in its command line.
fn exists(mark: &str) -> bool {
    fs::read_dir("/proc").expect("/proc").flatten().any(|entry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
    })
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn standard_input_and_exit_codes() {
    let good = "file: {/: {exists: true}}\n";
    let bad = "file: {/no/such/file: {exists: true}}\n";
    let (code, text) = run_to_end(good, &[]);
    assert_eq!((code, text.starts_with("1 assertion passed")), (Some(0), true), "{text}");
    assert_eq!(run_to_end(bad, &["-o", "silent"]), (Some(1), String::new()));
    assert_eq!(run_to_end("file: {x: {}}\n", &[]).0, Some(1), "as in goss, one check fails");
    assert_eq!(run_to_end("file: {x: {}}\n", &["--strict"]).0, Some(2));
    assert_eq!(run_to_end(bad, &["-o", "nagios"]).0, Some(2));
    assert_eq!(run_to_end("fiile: {}\n", &["-o", "nagios", "--strict"]).0, Some(3));
    for wrong in [&["check", "--fiel", "x", "-onagios"][..], &["check", "w1", "--output=nagios"]] {
        let Output { status, stdout, .. } = remoor().args(wrong).bounded_output();
        let first = String::from_utf8_lossy(&stdout).into_owned();
        assert!(status.code() == Some(3) && first.starts_with("REMOOR UNKNOWN - "), "{wrong:?}: {first}");
    }
    assert_eq!(run_to_end("file: {\"{{ .Env.PATH | len | printf `/%d` }}\": {exists: false}}\n", &[]).0, Some(0));
}

/// Control characters in the output of a check are replaced by visible characters, even in a pipe,
/// because the output of a pipe may reach a terminal.
#[test]
fn output_to_a_pipe_has_no_raw_control_characters() {
    let text = "command: {say: {exec: \"printf 'a\\\\033[2Jb'\", exit-status: 0, stdout: {have-prefix: b}}}\n";
    let (code, output) = run_to_end(text, &["-o", "template={{ results[1]['matcher-result'].actual }}"]);
    assert_eq!((code, output.as_str()), (Some(1), "a\u{241b}[2Jb\n"));
}

#[test]
fn a_closed_output_does_not_change_the_verdict() {
    for (path, code) in [("/", 0), ("/no/such/file", 1)] {
        for form in ["table", "json", "tap", "template={{ results | length }}"] {
            let mut child = start_without_input(&["-o", form]);
            drop(child.stdout.take());
            let text = format!("file: {{{path}: {{exists: true}}}}\n");
            child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the child reads");
            let Output { status, stderr, .. } = child.bounded_output();
            assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(code), ""), "{form}");
        }
    }
}

#[test]
fn output_that_nobody_read_is_printed_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("goss.yml");
    fs::write(&file, "file: {/no/such/file: {exists: true}}\n").expect("written");
    let asked = || {
        let mut command = remoor();
        command.args(["check", "--changed-only", "--file"]).arg(&file).env("XDG_STATE_HOME", dir.path());
        command
    };
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut unread = asked();
    assert_eq!(unread.stdout(writer).status().expect("an exit").code(), Some(1));
    assert!(!dir.path().join("remoor").exists(), "nothing is kept");
    for is_printed in [true, false] {
        let Output { stdout, .. } = asked().bounded_output();
        let text = String::from_utf8_lossy(&stdout).into_owned();
        assert_eq!(text.contains("/no/such/file"), is_printed, "{text}");
    }
}

#[test]
fn an_interrupted_run_leaves_no_process() {
    let mark = format!("86395.{}", std::process::id());
    let text =
        format!("command: {{long: {{exec: \"sleep {mark} & sleep {mark}\", exit-status: 0, timeout: 600000}}}}\n");
    let mut child = start_with_input(&text, &["--retry-timeout", "1h"]);
    wait_until("the check runs", || exists(&mark));
    kill_process(Pid::from_child(&child), Signal::INT).expect("the process exists");
    assert_eq!(child.bounded_wait().code(), Some(130));
    wait_until("the processes of the check are gone", || !exists(&mark));
}
