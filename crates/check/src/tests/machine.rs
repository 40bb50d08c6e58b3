//! Tests the resource types that read the state of this machine and that the module `run` does not
//! test. Also tests checks of special files.

use super::*;
use remoor_model::CheckState;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

/// `property state` of each result, with the found value and the message.
fn results_with_values(text: &str) -> Vec<String> {
    results(text).into_iter().map(|r| format!("{} {:?} {}{}", r.property, r.state, r.found, r.message)).collect()
}

#[test]
fn mounts() {
    assert_eq!(
        answers("mount: {/proc: {exists: true, filesystem: proc, opts: [rw], source: proc, vfs-opts: [rw]}}"),
        ["exists Pass", "opts Pass", "vfs-opts Pass", "source Pass", "filesystem Pass"]
    );
    assert_eq!(
        answers("mount: {p: {mountpoint: /proc/, exists: true, filesystem: ext4, opts: [ro]}}"),
        ["exists Pass", "opts Fail", "filesystem Fail"]
    );
    assert_eq!(answers("mount: {/: {exists: true, usage: {le: 100}}}"), ["exists Pass", "usage Pass"]);
    assert_eq!(answers("mount: {/: {exists: true, usage: {gt: 100}}}"), ["exists Pass", "usage Fail"]);
    assert_eq!(
        answers("mount: {/proc: {exists: true, usage: {lt: 100}}}"),
        ["exists Pass", "usage Fail this file system has no size"]
    );
    assert_eq!(answers("mount: {/no/such: {exists: false, opts: [rw]}}"), ["exists Pass", "opts Skip"]);
    assert_eq!(answers("mount: {/no/such: {exists: true}}"), ["exists Fail"]);
    // Checks that query the same filesystem at the same time all get an answer.
    let many: String =
        (0..16).map(|n| format!("m{n}: {{mountpoint: /, exists: true, usage: {{le: 100}}}}, ")).collect();
    assert!(results(&format!("mount: {{{many}}}")).iter().all(|result| result.state == CheckState::Pass));
}

#[test]
fn kernel_parameters() {
    assert_eq!(answers("kernel-param: {kernel.ostype: {value: Linux}}"), ["value Pass"]);
    assert_eq!(answers("kernel-param: {x: {name: kernel/ostype, value: Hurd}}"), ["value Fail"]);
    assert_eq!(answers("kernel-param: {kernel.pid_max: {value: {gt: 300}}}"), ["value Pass"]);
    assert_eq!(answers("kernel-param: {no.such.thing: {value: '1'}}"), ["value Fail there is no such parameter"]);
    assert_eq!(answers("kernel-param: {net.ipv4: {value: '1'}}"), ["value Fail the name is a group of parameters"]);
}

#[test]
fn packages() {
    if Command::new("dpkg-query").arg("--version").output().is_err() {
        let why = results("package: {x: {installed: true}}")[0].message.clone();
        assert!(!why.is_empty(), "without a package manager there is a reason");
        return;
    }
    let real = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "dpkg"]).output().unwrap();
    let real = String::from_utf8(real.stdout).unwrap();
    let of = |rest: &str| format!("package: {{dpkg: {{installed: true{rest}}}}}");
    assert_eq!(answers(&of(&format!(", versions: ['{real}']"))), ["installed Pass", "versions Pass"]);
    assert_eq!(answers(&of(", versions: ['0']")), ["installed Pass", "versions Fail"]);
    assert_eq!(
        answers("package: {no-such-package: {installed: false, versions: ['1']}}"),
        ["installed Pass", "versions Skip"]
    );
    let constraint =
        |text: &str| results_with_values(&of(&format!(", meta: {{remoor: {{deb-constraint: '{text}'}}}}")));
    assert_eq!(constraint(&format!(">= {real}, << 9999")), ["installed Pass true", "deb-constraint Pass true"]);
    assert_eq!(
        constraint(&format!(">> {real}")),
        ["installed Pass true".to_owned(), format!("deb-constraint Fail {real} is installed, which is not >> {real}")]
    );
    let absent = "package: {no-such-package: {installed: true, meta: {remoor: {deb-constraint: '= 1'}}}}";
    assert_eq!(answers(absent), ["installed Fail", "deb-constraint Skip"]);
}

#[test]
fn processes_of_a_user_with_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("rt-{}", std::process::id());
    let program = dir.path().join(&name);
    fs::copy("/bin/sleep", &program).unwrap();
    // The start fails with "text file busy" while a child process of another test still has the
    // copied program open for writing. Such a child closes the file when it calls `exec`.
    let start = |seconds: &str| loop {
        match Command::new(&program).arg(seconds).stdout(Stdio::null()).spawn() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            started => return Ended(started.unwrap()),
        }
    };
    let _running = [start("86001"), start("86001"), start("86002")];
    let ask = |running: bool, own: &str| {
        results_with_values(&format!("process: {{{name}: {{running: {running}, meta: {{remoor: {{{own}}}}}}}}}"))
    };
    let me = rustix::process::geteuid().as_raw();
    let user = remoor_host::files::Names::load().owner(me);
    assert_eq!(ask(true, "count: 3"), ["running Pass true", "count Pass 3"]);
    assert_eq!(
        ask(true, &format!("user: '{user}', args: ' 86001', count: {{ge: 2}}")),
        ["running Pass true", "count Pass 2"]
    );
    assert_eq!(
        ask(true, &format!("user: '{me}', args: '/ 8600[2-9]$/', count: 2")),
        ["running Pass true", "count Fail 1"]
    );
    assert_eq!(ask(true, "user: nobody-at-all"), ["running Fail false"]);
    assert_eq!(ask(false, "args: '86003', count: 0"), ["running Pass false", "count Pass 0"]);
}

#[test]
fn what_is_no_plain_file_has_no_contents() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("gone", at("dangling")).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    fs::create_dir(at("d")).unwrap();
    let table = [
        (at("socket"), "socket", "Fail a socket has no contents to compare"),
        ("/dev/zero".to_owned(), "character-device", "Fail a character-device has no contents to compare"),
        (at("zero"), "symlink", "Fail a character-device has no contents to compare"),
        (at("d"), "directory", "Fail a directory has no contents to compare"),
        (at("loop"), "symlink", "Unknown Too many levels of symbolic links (os error 40)"),
        (at("dangling"), "symlink", "Fail No such file or directory (os error 2)"),
        // A file of the kernel that even root cannot read from its beginning.
        ("/proc/self/mem".to_owned(), "file", "Unknown Input/output error (os error 5)"),
    ];
    for (path, filetype, why) in table {
        let text = format!("file: {{{path}: {{exists: true, filetype: {filetype}, contents: ['!x'], md5: a}}}}");
        let wanted =
            ["exists Pass".to_owned(), "filetype Pass".into(), format!("contents {why}"), format!("md5 {why}")];
        assert_eq!(answers(&text), wanted, "{path}");
    }
}

#[test]
fn md5() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "abc").unwrap();
    let ask = |md5: &str, rest: &str| {
        results_with_values(&format!("file: {{{}: {{exists: true, md5: {md5}{rest}}}}}", path.display()))[1].clone()
    };
    // The MD5 hash of `abc`, from RFC 1321.
    let real = "900150983cd24fb0d6963f7d28e17f72";
    assert_eq!(ask(real, ""), format!("md5 Pass {real}"));
    assert_eq!(ask("ab", ""), format!("md5 Fail {real}"));
    assert!(!ask("ab", ", meta: {remoor: {secret: true}}").contains(real));
}

#[test]
fn goss_tries_again_too() {
    let dir = tempfile::tempdir().unwrap();
    let tries = dir.path().join("tries").display().to_string();
    let ask = |rest: &str| {
        let _ = fs::remove_file(&tries);
        let exec = format!("echo x >> {tries}; test $(wc -l < {tries}) -ge 3");
        let found = answers(&format!("command: {{a: {{exec: '{exec}', exit-status: 0{rest}}}}}"));
        (found, fs::read_to_string(&tries).unwrap().lines().count())
    };
    assert_eq!(ask(", retry_count: 5, retry_delay: 1ms"), (vec!["exit-status Pass".to_owned()], 3));
    assert_eq!(ask(", retry_count: 1, retry_delay: 1"), (vec!["exit-status Fail".to_owned()], 2));
    assert_eq!(ask(""), (vec!["exit-status Fail".to_owned()], 1));
}

#[test]
fn systemd_has_no_runlevels() {
    let found = answers("service: {no-such-unit: {runlevels: {have-len: 0}}, x: {runlevels: ['3']}}");
    assert_eq!(found, ["runlevels Pass", "runlevels Fail"]);
}
