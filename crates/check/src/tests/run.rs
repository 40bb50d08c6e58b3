//! Tests each resource type on this machine, with passing and failing assertions.

use super::*;
use remoor_model::{CheckState, Now, OnFail, Severity};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A new directory with `f` (two lines, mode 0640), a link to it, a directory, a pipe, and a link
/// to itself.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::write(path.join("f"), "listen 80;\nuser root\n").unwrap();
    fs::set_permissions(path.join("f"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("f", path.join("link")).unwrap();
    symlink("loop", path.join("loop")).unwrap();
    fs::create_dir(path.join("d")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    dir
}

fn file(path: &Path, attributes: &str) -> Vec<String> {
    answers(&format!("file: {{{}: {{{attributes}}}}}", path.display()))
}

#[test]
fn files() {
    let dir = place();
    let f = dir.path().join("f");
    let sha256 = "ab".repeat(32);
    assert_eq!(
        file(&f, "exists: true, mode: \"0640\", size: 21, filetype: file"),
        ["exists Pass", "mode Pass", "size Pass", "filetype Pass"]
    );
    assert_eq!(file(&f, "exists: true, mode: \"0644\", size: {gt: 21}"), ["exists Pass", "mode Fail", "size Fail"]);
    assert_eq!(
        file(&f, "exists: true, contents: ['listen 80', '!443', '/^user r..t$/']"),
        ["exists Pass", "contents Pass"]
    );
    assert_eq!(
        file(&f, "exists: true, contents: ['listen 443', '!user', '/80;$/']"),
        ["exists Pass", "contents Fail not met: listen 443, !user"]
    );
    assert_eq!(file(&f, "exists: true, contents: \"listen 80;\\nuser root\\n\""), ["exists Pass", "contents Pass"]);
    assert_eq!(file(&f, &format!("exists: true, sha256: {sha256}")), ["exists Pass", "sha256 Fail"]);
    let real = remoor_model::Sha256::digest(b"listen 80;\nuser root\n");
    assert_eq!(file(&f, &format!("exists: true, sha256: {real}")), ["exists Pass", "sha256 Pass"]);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let names = remoor_host::files::Names::load();
    let mine =
        format!("exists: true, owner: '{}', uid: {uid}, group: '{}', gid: {gid}", names.owner(uid), names.group(gid));
    assert_eq!(file(&f, &mine), ["exists Pass", "owner Pass", "uid Pass", "group Pass", "gid Pass"]);
    assert_eq!(file(&f, "exists: true, owner: nobody-at-all, uid: 54321"), ["exists Pass", "owner Fail", "uid Fail"]);
}

#[test]
fn results_hide_file_contents() {
    let dir = place();
    let path = dir.path().join("words");
    let asked = |content: &str, matcher: &str| {
        fs::write(&path, content).unwrap();
        let told = results(&format!("file: {{'{}': {{exists: true, contents: {matcher}}}}}", path.display()));
        assert!(!format!("{told:?}").contains("hunter2"), "{told:?}");
        (told[1].found.clone(), told[1].message.clone())
    };
    for (content, matcher, found, message) in [
        ("user: hunter2\n", "{and: [{have-prefix: user}, {not: {match-regexp: 'hunter\\d'}}]}", "1 lines", ""),
        ("hunter2", "{gt: 5}", "1 lines", "a string is not a number"),
        ("hunter2", "{semver-constraint: '>1.0.0'}", "1 lines", "a string is not a version"),
        ("{\"a\": \"hunter2\"}", "{gjson: {a: {lt: 5}}}", "1 lines", "a string is not a number"),
        ("{\"a\": \"hunter2\"}", "{gjson: {a: x}}", "1 lines", ""),
        ("{\"a\": \"hunter2\"}", "{gjson: {b: x}}", "1 lines", "nothing at `b`"),
    ] {
        assert_eq!(asked(content, matcher), (found.to_owned(), message.to_owned()), "{matcher}");
    }
}

#[test]
fn links_pipes_and_what_is_not_there() {
    let dir = place();
    let path = |name: &str| dir.path().join(name);
    assert_eq!(
        file(&path("link"), "exists: true, filetype: symlink, linked-to: f"),
        ["exists Pass", "linked-to Pass", "filetype Pass"]
    );
    assert_eq!(
        file(&path("link"), "exists: true, linked-to: g, contents: [listen]"),
        ["exists Pass", "linked-to Fail", "contents Pass"]
    );
    assert_eq!(file(&path("f"), "exists: true, linked-to: f"), ["exists Pass", "linked-to Fail not a symlink"]);
    assert_eq!(file(&path("gone"), "exists: false, mode: \"0644\""), ["exists Pass", "mode Skip"]);
    assert_eq!(file(&path("gone"), "exists: true, mode: \"0644\""), ["exists Fail", "mode Skip"]);
    assert_eq!(
        file(&path("pipe"), "exists: true, filetype: pipe, contents: [x]"),
        ["exists Pass", "filetype Pass", "contents Fail a pipe has no contents to compare"]
    );
    assert_eq!(file(&path("d"), "exists: true, filetype: directory"), ["exists Pass", "filetype Pass"]);
    let looping = file(&path("loop/x"), "exists: true");
    assert!(looping[0].starts_with("exists Unknown"), "{looping:?}");
    let big = fs::File::create(path("big")).unwrap();
    big.set_len(remoor_host::files::MAX_FILE + 1).unwrap();
    assert_eq!(
        file(&path("big"), "exists: true, contents: [x]"),
        ["exists Pass", "contents Unknown larger than 16 MiB"]
    );
}

#[test]
fn commands() {
    assert_eq!(
        answers("command: {a: {exec: 'echo hi; exit 2', exit-status: 2, stdout: [hi]}}"),
        ["exit-status Pass", "stdout Pass"]
    );
    assert_eq!(
        answers("command: {a: {exec: 'echo why >&2; exit 1', exit-status: 0, stderr: ['!why']}}"),
        ["exit-status Fail why", "stderr Fail not met: !why"]
    );
    assert_eq!(
        answers("command: {a: {exec: 'echo 7', exit-status: 0, stdout: {lt: 7}}}"),
        ["exit-status Pass", "stdout Fail"]
    );
    assert_eq!(
        answers("command: {a: {exec: 'echo x', exit-status: 0, stdout: {lt: 7}}}")[1],
        "stdout Fail x\n is not a number".replace('\n', "")
    );
    let cut = answers("command: {a: {exec: 'head -c 1048577 /dev/zero', exit-status: 0, stdout: [x]}}");
    assert_eq!(cut, ["exit-status Pass", "stdout Unknown more than 1048576 bytes"]);
}

#[test]
fn a_command_that_takes_too_long_is_unknown() {
    let slow = answers("command: {a: {exec: 'sleep 86000', exit-status: 0, timeout: 200}}");
    assert_eq!(slow, ["exit-status Unknown no answer within 200 ms"]);
    let options = CheckRunOptions { timeout: Duration::from_millis(200), ..CheckRunOptions::with_defaults(Wall(0)) };
    let found = super::super::run(&checks("command: {a: {exec: 'sleep 86000', exit-status: 0}}"), &options);
    assert_eq!(found[0].state, CheckState::Unknown);
}

#[test]
fn ports() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ask = |rest: &str| answers(&format!("port: {{p: {{port: 'tcp:{port}', {rest}}}}}"));
    assert_eq!(ask("listening: true, ip: [127.0.0.1]"), ["listening Pass", "ip Pass"]);
    assert_eq!(ask("listening: true, ip: [0.0.0.0]"), ["listening Pass", "ip Fail"]);
    assert_eq!(answers(&format!("port: {{tcp6:{port}: {{listening: false}}}}")), ["listening Pass"]);
    assert_eq!(answers(&format!("addr: {{'tcp://127.0.0.1:{port}': {{reachable: true}}}}")), ["reachable Pass"]);
    drop(listener);
    retry_until(|| ask("listening: true, ip: [127.0.0.1]"), |found| found == ["listening Fail", "ip Skip"]);
    let reachable = || answers(&format!("addr: {{'tcp://127.0.0.1:{port}': {{reachable: true}}}}"));
    retry_until(reachable, |found| found == ["reachable Fail"]);
}

#[test]
fn processes() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("remoor-test-process-{}", std::process::id());
    let long = dir.path().join(&name);
    fs::copy("/bin/sleep", &long).unwrap();
    let ask = |name: &str| answers(&format!("process: {{{name}: {{running: true}}}}"));
    assert_eq!(ask(&name), ["running Fail"]);
    let mut child =
        Ended(Command::new(&long).arg("86000").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let found = (ask(&name), ask(&format!("{name}x")), ask(&name[..15]));
    child.0.kill().unwrap();
    // A zombie process does not count as running.
    let deadline = Instant::now() + Duration::from_secs(60);
    while ask(&name) != ["running Fail"] {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(found, (vec!["running Pass".into()], vec!["running Fail".into()], vec!["running Pass".into()]));
}

#[test]
fn services() {
    let found =
        answers("service: {no-such-unit-anywhere: {running: false, enabled: false}, other-none: {running: true}}");
    assert_eq!(found, ["enabled Pass", "running Pass", "running Fail"]);
    if Path::new("/run/systemd/system").exists() {
        // Three names, two of them for the same unit. The answers must be those of systemctl.
        let units = ["dbus", "dbus.service", "systemd-journald"];
        for unit in units {
            let says = |what: &str| Command::new("systemctl").args([what, "--quiet", unit]).status().unwrap().success();
            let (enabled, running) = (says("is-enabled"), says("is-active"));
            let others: String =
                units.iter().map(|unit| format!("o-{unit}: {{name: {unit}, running: true}}, ")).collect();
            let text = format!("service: {{{others}x: {{name: {unit}, enabled: {enabled}, running: {running}}}}}");
            assert_eq!(answers(&text)[3..], ["enabled Pass", "running Pass"], "{unit}");
        }
    }
}

#[test]
fn accounts() {
    assert_eq!(
        answers("user: {root: {exists: true, uid: 0, groups: [root], home: /root}}"),
        ["exists Pass", "uid Pass", "groups Pass", "home Pass"]
    );
    assert_eq!(
        answers("user: {root: {exists: true, uid: 1, shell: /none}}"),
        ["exists Pass", "uid Fail", "shell Fail"]
    );
    assert_eq!(answers("user: {no-such-user: {exists: true, uid: 1}}"), ["exists Fail", "uid Skip"]);
    assert_eq!(
        answers("group: {root: {exists: true, gid: 0}, none-such: {exists: false}}"),
        ["exists Pass", "gid Pass", "exists Pass"]
    );
}

#[test]
fn packages() {
    let found = answers(
        "package: {no-such-package-x: {installed: false}, dpkg: {installed: true, versions: [{match-regexp: '^[0-9]'}]}}",
    );
    if Path::new("/var/lib/dpkg/status").exists() {
        assert_eq!(found, ["installed Pass", "installed Pass", "versions Pass"]);
        assert_eq!(answers("package: {dpkg: {installed: true, versions: ['0']}}"), ["installed Pass", "versions Fail"]);
        assert_eq!(
            answers("package: {no-such-package-x: {installed: true, versions: ['0']}}"),
            ["installed Fail", "versions Skip"]
        );
    } else {
        assert!(found[0].starts_with("installed Unknown"), "{found:?}");
    }
}

/// Answers `count` requests with `response`.
fn serve(count: usize, response: &'static str) -> (u16, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                request.push(byte[0]);
            }
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (port, thread)
}

#[test]
fn http() {
    let response = "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 25\r\nConnection: close\r\n\r\n{\"members\": [1, 2, \"w1\"]}";
    let (port, thread) = serve(3, response);
    let ask = |rest: &str| answers(&format!("http: {{'http://127.0.0.1:{port}/x': {{{rest}}}}}"));
    assert_eq!(
        ask("status: 200, headers: ['Server: nginx'], body: {gjson: {members.#: 3, members.2: w1}}"),
        ["status Pass", "headers Pass", "body Pass"]
    );
    assert_eq!(ask("status: 404, body: [w1]"), ["status Fail", "body Skip"]);
    assert_eq!(ask("status: 200, body: [w2]"), ["status Pass", "body Fail not met: w2"]);
    thread.join().unwrap();
    let refused = ask("status: 200, body: [w2]");
    assert!(refused[0].starts_with("status Fail"), "{refused:?}");
    assert_eq!(refused[1], "body Skip");
}

#[test]
fn http_redirects_are_followed_unless_told_otherwise() {
    let (target, second) = serve(1, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    let response = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{target}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let (port, first) = serve(2, response.leak());
    let ask = |rest: &str| answers(&format!("http: {{'http://127.0.0.1:{port}/': {{{rest}}}}}"));
    assert_eq!(ask("status: 302, no-follow-redirects: true"), ["status Pass"]);
    assert_eq!(ask("status: 204"), ["status Pass"]);
    first.join().unwrap();
    second.join().unwrap();
}

#[test]
fn a_silent_server_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let silent = answers(&format!("http: {{'http://127.0.0.1:{port}/': {{status: 200, timeout: 200}}}}"));
    assert!(silent[0].starts_with("status Unknown"), "{silent:?}");
}

#[test]
fn results_come_in_order_and_say_what_they_are_about() {
    let text: String = (0..40).map(|n| format!("  c{n}: {{exec: 'exit {n}', exit-status: {n}}}\n")).collect();
    let found = results(&format!("command:\n{text}"));
    let names: Vec<String> = found.iter().map(|result| result.check.clone()).collect();
    assert_eq!(names, (0..40).map(|n| format!("command:c{n}")).collect::<Vec<_>>());
    assert!(found.iter().all(|result| result.state == CheckState::Pass));
    let one = &results("command: {c: {exec: 'exit 1', exit-status: 0, meta: {remoor: {severity: warning}}}}")[0];
    assert_eq!((one.severity, one.on_fail, &*one.expected, &*one.found), (Severity::Warning, OnFail::Alert, "0", "1"));
}

#[test]
fn a_skipped_check_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let text = format!("command: {{a: {{exec: 'touch {}', exit-status: 0, skip: true}}}}", mark.display());
    assert_eq!(answers(&text), ["exit-status Skip"]);
    assert!(!mark.exists());
}

#[test]
fn a_retry_passes_when_the_state_comes() {
    let dir = tempfile::tempdir().unwrap();
    let tries = dir.path().join("tries");
    let exec = format!("echo x >> {0}; test $(wc -l < {0}) -ge 3", tries.display());
    let with = |count: u32| {
        let _ = fs::remove_file(&tries);
        answers(&format!(
            "command: {{a: {{exec: '{exec}', exit-status: 0, meta: {{remoor: {{retry: {{count: {count}, delay: 1ms}}}}}}}}}}"
        ))
    };
    assert_eq!(with(1), ["exit-status Fail"]);
    assert_eq!(with(5), ["exit-status Pass"]);
    assert_eq!(fs::read_to_string(&tries).unwrap().lines().count(), 3, "it stops once it passes");
}

#[test]
fn a_waiver_holds_until_it_expires() {
    let checks = checks(
        "command: {a: {exec: 'exit 1', exit-status: 0, meta: {remoor: {waiver: {until: 1970-01-01, reason: known}}}}}",
    );
    let state = |now| super::super::run(&checks, &CheckRunOptions::with_defaults(Wall(now)))[0].state;
    assert_eq!(state(86_399_999), CheckState::Waived);
    assert_eq!(state(86_400_000), CheckState::Fail);
}

#[test]
fn results_hide_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "hunter2\n").unwrap();
    let rest = "meta: {remoor: {secret: true}}";
    let text =
        format!("file: {{{}: {{exists: true, sha256: ab, contents: [hunter3], size: 1, {rest}}}}}", key.display());
    let command = format!(
        "command: {{a: {{exec: 'cat {}; cat {0} >&2', exit-status: 1, stdout: [hunter3], {rest}}}}}",
        key.display()
    );
    for text in [text, command] {
        let told = format!("{:?}", results(&text));
        assert!(!told.contains("hunter") && told.contains("Fail"), "{told}");
        assert!(!told.contains(&remoor_model::Sha256::digest(b"hunter2\n").to_string()), "{told}");
    }
    // The check is not marked as secret, but only the owner may read the file.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let told =
        format!("{:?}", results(&format!("file: {{{}: {{exists: true, sha256: ab, contents: [x]}}}}", key.display())));
    assert!(!told.contains(&remoor_model::Sha256::digest(b"hunter2\n").to_string()), "{told}");
}

#[test]
fn a_periodic_failure_counts_once_it_has_lasted() {
    let checks = checks(
        "command: {a: {exec: 'exit 1', exit-status: 0, meta: {remoor: {for: 10s}}}, b: {exec: 'exit 1', exit-status: 0}}",
    );
    let failing = super::super::run(&checks, &CheckRunOptions::with_defaults(Wall(0)));
    let mut patience = FailureThreshold::default();
    let mut at = |ms, state: Option<CheckState>| {
        let mut results = failing.clone();
        if let Some(state) = state {
            results[0].state = state;
        }
        patience.settle(&checks, &mut results, Now(ms));
        (results[0].state, results[1].state)
    };
    assert_eq!(at(0, None), (CheckState::Pass, CheckState::Fail));
    assert_eq!(at(5_000, Some(CheckState::Unknown)).0, CheckState::Unknown);
    assert_eq!(at(9_999, None).0, CheckState::Pass);
    assert_eq!(at(10_000, None).0, CheckState::Fail);
    assert_eq!(at(11_000, Some(CheckState::Pass)).0, CheckState::Pass);
    assert_eq!(at(12_000, None).0, CheckState::Pass, "the time starts again");
}
