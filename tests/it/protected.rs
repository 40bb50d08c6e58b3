//! The protection of a daemon's process and files. No process without the right to trace can read
//! its memory. The daemon writes no core file, and its files are only for their owner.

use crate::local::{Daemon, PROGRAM, net, remoor, run_successfully, wait_until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// A command whose process has no right to trace other processes, even as root. The same applies to
/// the processes that it starts.
fn without_tracing(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        // Since Linux 6.15, `perfmon` or `sys_admin` is enough to read memory.
        command.arg("--bounding-set=-sys_ptrace,-perfmon,-sys_admin");
    }
    command.arg(program);
    command
}

/// Files and directories below `dir` that other users may enter or read. Copies of the program and
/// files of the test itself are not listed.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).expect("readable").flatten() {
            let Ok(meta) = entry.path().symlink_metadata() else { continue }; // a temporary file
            let name = entry.file_name().to_string_lossy().into_owned();
            // A copy of the program has a temporary name until it is complete.
            let is_program = name.starts_with("remoor-") || path.ends_with("bin") && name.starts_with(".tmp");
            if meta.mode() & 0o077 != 0 && name != "log" && !is_program {
                found.push(format!("{} {:o}", entry.path().display(), meta.mode() & 0o7777));
            }
            if meta.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn a_daemon_is_not_dumpable_and_creates_nothing_for_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path().join("m1");
    let mut init = remoor();
    init.args(["init", "--name", "m1", "--advertise", &net()(1).to_string(), "--dir"]).arg(&home);
    run_successfully(&mut init);

    let mut agent = without_tracing(PROGRAM);
    // The directory of the socket does not exist yet.
    let socket = dir.path().join("run/remoor.sock");
    agent.args(["agent", "--dir"]).arg(&home).arg("--socket").arg(&socket);
    let log = fs::File::create(home.join("log")).expect("a log");
    let child = agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("util-linux has setpriv");
    let pid = child.id();
    let _daemon = Daemon::adopt(&home, child);
    wait_until("the manager leads", || {
        remoor().args(["status", "--socket"]).arg(&socket).output().is_ok_and(|out| out.status.success()).then_some(())
    });

    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).expect("readable for its owner");
    let status = read("status");
    assert!(status.contains("Umask:\t0077"), "{status}");
    let limits = read("limits");
    assert!(limits.lines().any(|line| line.starts_with("Max core file size        0 ")), "{limits}");
    // A process that has the right to read another's memory can also read the other's environment.
    // So the test tries to read the environment.
    let environ = |pid: &str| {
        without_tracing("cat").arg(format!("/proc/{pid}/environ")).stdout(Stdio::null()).output().expect("ran").status
    };
    assert!(environ("self").success(), "the test can't tell a dumpable process");
    // Without root, the test's user owns the daemon and may read its key files anyway.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(environ(&pid.to_string()).success(), !is_root, "whether the daemon is dumpable");
    assert_eq!(open_to_others(&home), Vec::<String>::new());
    let runtime = fs::metadata(dir.path().join("run")).expect("made by the daemon").permissions().mode();
    assert_eq!(runtime & 0o7777, 0o700);
}
