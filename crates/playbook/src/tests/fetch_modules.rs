//! Tests modules that fetch something from elsewhere (`get_url`, `uri`, `unarchive`, `git`), and
//! `mount`.

use super::check::{changed_tasks, tree};
use super::*;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// An HTTP server on the loopback that answers `hello`, or 304 if the client already has this
/// content. Returns its address, the number of requests, and the last request.
fn server() -> (String, Arc<AtomicUsize>, Arc<Mutex<String>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (count, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(String::new())));
    let (asked, text) = (count.clone(), last.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            asked.fetch_add(1, Ordering::SeqCst);
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..n]).into_owned();
            let line = |first: &str, body: &str, more: &str| {
                format!("HTTP/1.1 {first}\r\n{more}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
            };
            let answer = match request.split(' ').nth(1).unwrap_or_default() {
                "/sums" => line("200 OK", "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d", ""),
                "/packed" => line("200 OK", "x", "Content-Encoding: gzip\r\n"),
                "/endless" => "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_owned() + &"x".repeat(17 << 20),
                "/round" => line("302 Found", "", "Location: /round\r\n"),
                "/gone" => line("404 Not Found", "", ""),
                "/away" => line("302 Found", "", "Location: ftp://h/x\r\n"),
                _ if request.to_ascii_lowercase().contains("if-modified-since") => {
                    "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n".to_owned()
                }
                _ if request.starts_with("HEAD") => line("200 OK", "hello", "").trim_end_matches("hello").to_owned(),
                _ => line("200 OK", "hello", ""),
            };
            *text.lock().unwrap() = request;
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, count, last)
}

#[test]
fn who_fetches_a_file_is_told_to_no_other_server_that_has_its_sum() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("file"), "hello").unwrap();
    let (address, ..) = server();
    for own in [false, true] {
        let (other, _, last) = server();
        let url = if own { &other } else { &address };
        let text = format!(
            "    - get_url: {{url: '{url}/file', dest: '{{{{ dir }}}}/file', checksum: 'sha1:{other}/sums', url_username: me, \
             url_password: swordfish, force_basic_auth: yes, headers: {{X-Token: swordfish}}}}\n"
        );
        go(&tasks(d, &text), &options(d)).assert_success();
        let request = last.lock().unwrap().to_ascii_lowercase();
        assert!(request.starts_with("get /sums "), "{request}");
        assert_eq!((request.contains("authorization"), request.contains("x-token")), (own, own), "{request}");
    }
}

fn failure_message(ran: &Ran) -> String {
    ran.end.failure.as_ref().map(|f| f.message.clone()).unwrap_or_default()
}

#[test]
fn files_are_fetched_once_and_only_with_the_right_sum() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let (address, count, _) = server();
    let asked = || count.load(Ordering::SeqCst);
    let run = |options: &str, check: bool| {
        let text = format!("    - get_url: {{url: '{address}/x/file.txt?token=swordfish', {options}}}\n");
        let ran = go(&tasks(d, &text), &PlaybookRunOptions { check, ..self::options(d) });
        (ran.end.changed, ran.end.unknown, failure_message(&ran))
    };
    assert_eq!(run("dest: '{{ dir }}/', mode: '0600'", true), (1, 0, String::new()));
    assert_eq!((asked(), d.join("file.txt").exists()), (1, false), "by HEAD");
    assert_eq!(run("dest: '{{ dir }}/', mode: '0600'", false).0, 1);
    assert_eq!(std::fs::read_to_string(d.join("file.txt")).unwrap(), "hello");
    // `get_url` asks for the file only if it is newer than the local copy, in check mode too.
    for check in [true, false] {
        assert_eq!(run("dest: '{{ dir }}/file.txt', mode: '0600'", check), (0, 0, String::new()));
        assert_eq!(run("dest: '{{ dir }}/file.txt', mode: '0640'", check), (1, 0, String::new()));
    }
    assert_eq!(asked(), 6);
    let sum = "checksum: 'sha1:aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d'";
    assert_eq!(run(&format!("dest: '{{{{ dir }}}}/file.txt', {sum}"), false).0, 0);
    assert_eq!(asked(), 6);
    std::fs::write(d.join("file.txt"), "other").unwrap();
    assert_eq!(run(&format!("dest: '{{{{ dir }}}}/file.txt', {sum}"), true), (1, 0, String::new()));
    assert_eq!(run(&format!("dest: '{{{{ dir }}}}/file.txt', {sum}"), false).0, 1);
    std::fs::write(d.join("file.txt"), "something longer").unwrap();
    assert_eq!(run("dest: '{{ dir }}/file.txt', force: yes", true), (1, 0, String::new()));
    std::fs::write(d.join("file.txt"), "olleh").unwrap();
    assert_eq!(run("dest: '{{ dir }}/file.txt', force: yes", true), (0, 1, String::new()));
    assert_eq!(run("dest: '{{ dir }}/file.txt', force: yes", false).0, 1);
    let (_, _, message) = run("dest: '{{ dir }}/file.txt', checksum: 'md5:00', force: yes", false);
    assert!(message.contains("nothing was written") && !message.contains("swordfish"), "{message}");
    assert_eq!(std::fs::read_to_string(d.join("file.txt")).unwrap(), "hello");
    let left =
        std::fs::read_dir(d).unwrap().filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(left.count(), 0, "nothing half-written");
}

/// As in Ansible, check mode sends HEAD, and the task fails where the run would fail.
#[test]
fn what_a_server_has_not_fails_in_a_check_as_in_a_run() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("there"), "x").unwrap();
    let (address, ..) = server();
    for dest in ["new", "there", ""] {
        for check in [true, false] {
            let text = format!("    - get_url: {{url: '{address}/gone', dest: '{{{{ dir }}}}/{dest}', force: yes}}\n");
            let message = failure_message(&go(&tasks(d, &text), &PlaybookRunOptions { check, ..options(d) }));
            assert_eq!(message, "Request failed: HTTP Error 404: Not Found", "{dest} {check}");
        }
    }
}

#[test]
fn answers_have_bounds_and_requests_are_not_sent_in_a_check() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let (address, count, last) = server();
    let run = |path: &str, options: &str| {
        let text = format!("    - uri: {{url: '{address}{path}', {options}}}\n");
        failure_message(&go(&tasks(d, &text), &options_of(d)))
    };
    fn options_of(d: &Path) -> PlaybookRunOptions {
        options(d)
    }
    for (path, options, want) in [
        ("/endless", "return_content: yes", "more than 16 MiB"),
        ("/packed", "return_content: yes", "`decompress: false` stores it unchanged"),
        ("/packed", "return_content: yes, decompress: no", ""),
        ("/round", "method: GET", "redirects more than"),
        ("/away", "method: GET", "redirects to a URL that is not http"),
        ("/x", "body: {a: 1}, method: POST", "did you mean json?"),
        ("/x", "method: 'GE T'", "must be one word"),
        ("/x", "headers: '{{ [1] }}'", "takes a map"),
    ] {
        let message = run(path, options);
        assert!(message.contains(want) && message.is_empty() == want.is_empty(), "{path} {options}: {message}");
    }
    assert_eq!(
        run("/x", "use_proxy: no, url_username: me, url_password: p, force_basic_auth: yes, http_agent: a b"),
        ""
    );
    let request = last.lock().unwrap().to_ascii_lowercase();
    assert!(request.contains("user-agent: a b") && request.contains("authorization: basic bwu6ca=="), "{request}");
    // `uri` uses the proxy in the environment of the task, except for hosts in `no_proxy`.
    let text = |beside: &str| {
        format!(
            "    - uri: {{url: 'http://127.0.0.2:1/x'}}\n      environment: {{http_proxy: '{address}', no_proxy: '{beside}'}}\n"
        )
    };
    let before = count.load(Ordering::SeqCst);
    go(&tasks(d, &text("")), &options(d));
    assert_eq!(count.load(Ordering::SeqCst), before + 1);
    go(&tasks(d, &text("other, 127.0.0.2")), &options(d));
    assert_eq!(count.load(Ordering::SeqCst), before + 1);
    let text = format!(
        "    - {{name: post, uri: {{url: '{address}/x', method: POST}}, register: r}}\n    - {{name: needs it, debug: {{msg: '{{{{ r.content }}}}'}}}}\n    - {{name: known, assert: {{that: r is not changed}}}}\n"
    );
    let check = go(&tasks(d, &text), &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    let statuses: Vec<Status> = check.statuses().into_iter().map(|(_, s)| s).collect();
    assert_eq!(statuses, [Status::WouldRun, Status::Unknown, Status::Ok]);
    assert_eq!(count.load(Ordering::SeqCst), before + 1);
}

/// Runs the shell script `script`, which makes an archive, in the directory `d`.
fn make_archive(d: &Path, script: &str) {
    let done = Command::new("sh").arg("-ec").arg(script).current_dir(d).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn archives_are_unpacked_once_and_a_check_says_so() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    make_archive(
        d,
        "mkdir -p t/sub to; echo one > t/one; echo two > t/sub/two; ln -s ../one t/sub/l; touch -d 2020-01-01 t/one t/sub/two; chmod 500 t/sub; tar -czf a.tgz t; chmod 700 t/sub; rm -r t",
    );
    let text = "
    - {name: unpack, unarchive: {src: '{{ dir }}/a.tgz', dest: '{{ dir }}/to', remote_src: yes, mode: 'go-w'}}
    - {name: then, lineinfile: {path: '{{ dir }}/to/t/one', line: more}}
    - {name: newer, unarchive: {src: '{{ dir }}/a.tgz', dest: '{{ dir }}/to', remote_src: yes, keep_newer: yes}}
";
    let plan = tasks(d, text);
    let before = tree(d);
    let check = go(&plan, &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(tree(d), before);
    let run = go(&plan, &options(d)).assert_success();
    assert_eq!(
        (changed_tasks(&check), changed_tasks(&run)),
        (vec!["unpack".into(), "then".into()], vec!["unpack".into(), "then".into()])
    );
    assert_eq!(std::fs::read_to_string(d.join("to/t/one")).unwrap(), "one\nmore\n");
    assert_eq!(std::fs::read_link(d.join("to/t/sub/l")).unwrap(), Path::new("../one"));
    let mode = std::fs::metadata(d.join("to/t/sub")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o500);
    assert_eq!(std::fs::read_dir(d.join("to")).unwrap().count(), 1, "nothing of ours is left there");
    // A second run of `unarchive` restores the state that the archive has.
    let again = go(
        &tasks(d, "    - unarchive: {src: '{{ dir }}/a.tgz', dest: '{{ dir }}/to', remote_src: yes}\n"),
        &options(d),
    )
    .assert_success();
    assert_eq!(again.end.changed, 1);
    let again = go(
        &tasks(d, "    - unarchive: {src: '{{ dir }}/a.tgz', dest: '{{ dir }}/to', remote_src: yes}\n"),
        &options(d),
    )
    .assert_success();
    assert_eq!(again.end.changed, 0);
    assert_eq!(std::fs::read_dir(d.join("to")).unwrap().count(), 1);
}

#[test]
fn archives_that_lead_elsewhere_change_nothing() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    make_archive(
        d,
        "mkdir to x; echo v > victim; echo e > x/f
        tar -C x --transform 's,^f,../victim,' -cPf up.tar f
        tar -C x --transform \"s,^f,$PWD/victim,\" -cPf absolute.tar f
        ln -s /etc x/l; tar -C x -cf link.tar l; rm x/l
        ln -s ../.. x/l; tar -C x -cf above.tar l; rm x/l
        mkfifo x/p; tar -C x -cf pipe.tar p; rm x/p
        echo nonsense > broken.tar; tar -C x -czf cut.tgz f; truncate -s 20 cut.tgz",
    );
    let before = tree(&d.join("to"));
    for (name, want) in [
        ("up.tar", "Member name contains"),
        ("absolute.tar", "outside the destination"),
        ("link.tar", "leads to /etc"),
        ("above.tar", "leads to ../.."),
        ("pipe.tar", "is not a file, directory or symbolic link"),
        ("broken.tar", "cannot unpack the archive"),
        ("cut.tgz", "cannot unpack the archive"),
    ] {
        let text =
            format!("    - unarchive: {{src: '{{{{ dir }}}}/{name}', dest: '{{{{ dir }}}}/to', remote_src: yes}}\n");
        for check in [true, false] {
            let message = failure_message(&go(&tasks(d, &text), &PlaybookRunOptions { check, ..options(d) }));
            assert!(!message.is_empty() && message.contains(want), "{name}: {message}");
            assert_eq!(tree(&d.join("to")), before, "{name}");
        }
    }
    assert_eq!(std::fs::read_to_string(d.join("victim")).unwrap(), "v\n");
    // Without tar in the PATH of the task, the message names the missing program.
    let without = "
- hosts: all
  environment: {PATH: '{{ dir }}/none'}
  tasks:
    - unarchive: {src: '{{ dir }}/link.tar', dest: '{{ dir }}/to', remote_src: yes}
";
    let message = failure_message(&go(&plan(d, &[("site.yml", without)]), &options(d)));
    assert!(message.contains("this node needs `tar`"), "{message}");
}

#[test]
fn zip_archives() {
    if Command::new("unzip").arg("-v").output().is_err() || Command::new("zip").arg("-v").output().is_err() {
        eprintln!("SKIPPED: there is no zip and unzip on this machine");
        return;
    }
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    make_archive(
        d,
        "mkdir -p t/sub to other; echo one > t/one; echo two > t/sub/two; chmod 640 t/one; zip -qr a.zip t; rm -r t; cp a.zip elsewhere",
    );
    let text = "
    - {name: unpack, unarchive: {src: '{{ dir }}/a.zip', dest: '{{ dir }}/to', remote_src: yes, list_files: yes}, register: r}
    - {name: again, unarchive: {src: '{{ dir }}/elsewhere', dest: '{{ dir }}/to', remote_src: yes}}
    - {name: part, unarchive: {src: '{{ dir }}/a.zip', dest: '{{ dir }}/other', remote_src: yes, exclude: ['t/sub/*']}}
    - {name: told, assert: {that: [\"r.handler == 'ZipArchive'\", \"'t/sub/two' in r.files\"]}}
";
    let before = tree(d);
    let check = go(&tasks(d, text), &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(tree(d), before);
    let run = go(&tasks(d, text), &options(d)).assert_success();
    assert_eq!(
        (changed_tasks(&check), changed_tasks(&run)),
        (vec!["unpack".into(), "part".into()], vec!["unpack".into(), "part".into()])
    );
    let mode = std::fs::metadata(d.join("to/t/one")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o640);
    assert!(d.join("other/t/one").exists() && !d.join("other/t/sub/two").exists());
}

#[test]
fn a_clone_is_predicted_and_its_password_is_no_argument() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    // A fake git that logs its arguments and has no repository.
    std::fs::write(
        d.join("git"),
        "#!/bin/sh\necho \"$@ $GIT_SSH_COMMAND\" >> ${0%/*}/argv; echo \"$GIT_CONFIG_KEY_0 $GIT_CONFIG_VALUE_0\" >> ${0%/*}/env\ncase $1 in ls-remote) printf 'aaaaaaaaaa\\tHEAD\\nbbbbbbbbbb\\trefs/tags/v1\\n';; *) exit 1;; esac\n",
    )
    .unwrap();
    std::fs::set_permissions(d.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "
    - {name: clone, git: {repo: 'https://me:swordfish@h/x.git', dest: '{{ dir }}/c', executable: '{{ dir }}/git', key_file: '{{ dir }}/a key', accept_hostkey: yes, version: v1}, register: r}
    - {name: known, assert: {that: [\"r.after == 'bbbbbbbbbb'\", r.before is none]}}
    - {name: made by it, stat: {path: '{{ dir }}/c/x'}}
";
    let check = go(&tasks(d, text), &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(changed_tasks(&check), ["clone"]);
    assert!(!d.join("c").exists());
    go(&tasks(d, text), &options(d));
    let read = |name: &str| std::fs::read_to_string(d.join(name)).unwrap();
    assert!(
        !read("argv").contains("swordfish") && read("argv").contains("clone --origin origin -- https://h/x.git"),
        "{}",
        read("argv")
    );
    assert!(
        read("argv").contains("/a key' -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new"),
        "{}",
        read("argv")
    );
    assert!(read("env").contains("url.https://me:swordfish@h/.insteadOf https://h/"));
    for (options, want) in [
        ("repo: --upload-pack=x, dest: /x", "`repo` can't be"),
        ("repo: x, dest: /x, version: -x", "`version` can't be"),
        ("repo: x", "`dest` is missing"),
        ("repo: x, dest: /x/y, executable: /no/git", "this node needs git"),
    ] {
        let message = failure_message(&go(&tasks(d, &format!("    - git: {{{options}}}\n")), &self::options(d)));
        assert!(message.contains(want), "{options}: {message}");
    }
}

#[test]
fn lines_of_fstab_and_what_is_mounted() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    let fstab = |options: &str, before: &str| {
        std::fs::write(d.join("f"), before).unwrap();
        let plan = tasks(d, &format!("    - ansible.posix.mount: {{fstab: '{{{{ dir }}}}/f', {options}}}\n"));
        let check = go(&plan, &PlaybookRunOptions { check: true, ..self::options(d) }).assert_success();
        assert_eq!(std::fs::read_to_string(d.join("f")).unwrap(), before);
        let run = go(&plan, &self::options(d)).assert_success();
        assert_eq!(changed_tasks(&check), changed_tasks(&run), "{options}");
        assert_eq!(go(&plan, &self::options(d)).assert_success().end.changed, 0, "{options} again");
        std::fs::read_to_string(d.join("f")).unwrap()
    };
    let one = "# a comment\n/dev/a /a ext4 defaults 0 1\n";
    assert_eq!(
        fstab("path: /b c, src: /dev/b, fstype: xfs, state: present", one),
        format!("{one}/dev/b /b\\040c xfs defaults 0 0\n")
    );
    assert_eq!(fstab("path: /a, src: /dev/a, fstype: ext4, state: present, passno: 1", one), one);
    assert_eq!(
        fstab("path: /a, src: /dev/a, fstype: ext4, state: present", "/dev/a /a ext4 defaults\n"),
        "/dev/a /a ext4 defaults\n"
    );
    assert_eq!(
        fstab("name: /a, src: /dev/c, fstype: ext4, opts: 'ro,noatime', boot: no, dump: 1, state: present", one),
        "# a comment\n/dev/c /a ext4 ro,noatime,noauto 1 0\n"
    );
    assert_eq!(
        fstab("path: none, src: /dev/t, fstype: swap, opts: sw, state: present", "/dev/s none swap sw 0 0\n"),
        "/dev/s none swap sw 0 0\n/dev/t none swap sw 0 0\n"
    );
    assert_eq!(fstab("path: /a, state: absent_from_fstab", one), "# a comment\n");
    assert_eq!(fstab("path: '{{ dir }}/nothing', state: absent", one), one);
    assert_eq!(fstab("path: '{{ dir }}', state: unmounted", one), one);
    let set = |set: &str| {
        let set: BTreeMap<String, Vec<u8>> =
            [("site.yml".to_owned(), format!("- hosts: all\n  tasks:\n    - {{{set}}}\n").into_bytes())].into();
        let host = HostContext { name: "w1".into(), group: "web".into(), vars: Map::new(), ..HostContext::default() };
        compile(&FileSet(set), "site.yml", &host, &CompileOptions::default())
            .err()
            .map(|f| f[0].to_string())
            .unwrap_or_default()
    };
    for (task, want) in [
        ("mount: {path: /a, state: mounted, src: x}", "needs `fstype`"),
        ("mount: {path: /a, state: ephemeral}", "the value `ephemeral` of `state` of mount is not part"),
        ("mount: {path: /a, state: present, src: x, fstype: y, opts_no_log: yes}", "`opts_no_log` of mount"),
        ("unarchive: {src: /x, dest: /y, copy: no, remote_src: yes}", "not both"),
        (
            "unarchive: {src: /x, dest: /y, remote_src: yes, extra_opts: [--to-command=sh]}",
            "`--to-command=sh` in `extra_opts`",
        ),
        (
            "unarchive: {src: /x, dest: /y, remote_src: yes, extra_opts: [--strip-components, 'x']}",
            "`x` in `extra_opts`",
        ),
        ("uri: {url: x, body_format: form-multipart}", "is not a valid `body_format` of uri"),
        ("git: {repo: x, dest: y, refspec: z}", "`refspec` of git"),
    ] {
        assert!(set(task).contains(want), "{task}: {}", set(task));
    }
}

fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let able = tried.is_ok_and(|out| out.status.success());
    if !able {
        eprintln!("SKIPPED: NOTHING MAY BE MOUNTED HERE");
    }
    able
}

#[test]
fn a_real_mount_goes_there_and_back() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    if !may_mount() {
        return;
    }
    let task = |name: &str, state: &str, more: &str| {
        format!(
            "    - {{name: '{name}', mount: {{path: '{{{{ dir }}}}/a/m', src: none, fstype: tmpfs, fstab: '{{{{ dir }}}}/f', state: {state}, opts: 'size=64k{more}'}}}}\n"
        )
    };
    let text = [
        task("mount", "mounted", ""),
        task("again", "mounted", ""),
        task("other options", "mounted", ",noexec"),
        task("remount", "remounted", ",noexec"),
        task("off", "unmounted", ",noexec"),
        task("off again", "unmounted", ",noexec"),
        task("on", "mounted", ",noexec"),
        task("gone", "absent", ""),
    ];
    let plan = tasks(d, &text.concat());
    std::fs::write(d.join("f"), "").unwrap();
    let want = ["mount", "other options", "remount", "off", "on", "gone"];
    let check = go(&plan, &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(changed_tasks(&check), want);
    let run = go(&plan, &options(d));
    // Unmounts after a failure too, so that nothing stays mounted.
    let _ = Command::new("umount").arg(d.join("a/m")).stderr(std::process::Stdio::null()).status();
    assert_eq!(changed_tasks(&run.assert_success()), want);
    assert!(d.join("a").exists() && !d.join("a/m").exists());
    // A failed mount leaves neither a line in fstab nor a directory.
    let bad = tasks(
        d,
        "    - mount: {path: '{{ dir }}/b/m', src: /no/such/device, fstype: ext4, fstab: '{{ dir }}/f', state: mounted}\n",
    );
    assert!(failure_message(&go(&bad, &options(d))).contains("mount exited with code"));
    assert!(!d.join("b").exists());
    assert_eq!(std::fs::read_to_string(d.join("f")).unwrap().trim(), "");
}

#[test]
fn what_cannot_be_mounted_anew_stays_mounted_as_it_was() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    if !may_mount() {
        return;
    }
    let mounted = |more: &str| {
        let text = format!(
            "    - mount: {{path: '{{{{ dir }}}}/m', src: none, fstype: tmpfs, fstab: '{{{{ dir }}}}/f', state: mounted, opts: 'size=64k{more}'}}\n"
        );
        go(&tasks(d, &text), &options(d))
    };
    std::fs::write(d.join("f"), "").unwrap();
    let first = mounted("");
    let second = mounted(",no-such-option=1");
    let still = Command::new("umount").arg(d.join("m")).stderr(std::process::Stdio::null()).status();
    first.assert_success();
    assert!(failure_message(&second).starts_with("mount exited with code"), "{}", failure_message(&second));
    assert!(still.is_ok_and(|s| s.success()), "it is mounted");
    assert_eq!(std::fs::read_to_string(d.join("f")).unwrap(), format!("none {}/m tmpfs size=64k 0 0\n", d.display()));
}

#[test]
fn a_check_asks_a_clone_without_touching_it() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    make_archive(
        d,
        "git init -q r; cd r; echo one > f; git add f; git -c user.name=a -c user.email=a@b commit -qm x; cd ..; git clone -q file://$PWD/r c; touch -d 2020-01-01 c/f",
    );
    let before = std::fs::read(d.join("c/.git/index")).unwrap();
    let plan = tasks(d, "    - git: {repo: '{{ dir }}/r', dest: '{{ dir }}/c'}\n");
    let check = go(&plan, &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(check.end.changed, 0);
    assert_eq!(std::fs::read(d.join("c/.git/index")).unwrap(), before);
}

#[test]
fn a_check_does_not_unpack_what_is_large() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    make_archive(d, "mkdir to; truncate -s 300M z; tar -cf - z | gzip -1 > full.tgz; tar -Sczf holes.tgz z; rm z");
    for name in ["full.tgz", "holes.tgz"] {
        let text =
            format!("    - unarchive: {{src: '{{{{ dir }}}}/{name}', dest: '{{{{ dir }}}}/to', remote_src: yes}}\n");
        let check = go(&tasks(d, &text), &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
        assert_eq!((check.end.unknown, check.end.changed), (1, 0), "{name}");
        assert!(check.text().contains("too large to be inspected in check mode"), "{name}: {}", check.text());
    }
}

/// A file is noted on disk while it is downloaded. If the run is killed, the next run finds the
/// note and removes the file.
#[test]
fn a_file_that_is_being_fetched_is_noted() {
    let dir = TempDir::new().unwrap();
    let d = &dir.path().canonicalize().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let notes = d.join("half-made");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n").unwrap();
        let noted = || {
            let texts = std::fs::read_dir(&notes).into_iter().flatten().flatten();
            texts
                .filter_map(|entry| std::fs::read(entry.path()).ok())
                .any(|text| String::from_utf8_lossy(&text).contains("/.remoor-url-"))
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !noted() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let seen = noted();
        stream.write_all(b"hello").unwrap();
        seen
    });
    let text = format!("    - get_url: {{url: '{url}', dest: '{{{{ dir }}}}/x'}}\n");
    go(&tasks(d, &text), &options(d)).assert_success();
    assert!(server.join().unwrap());
    assert_eq!(std::fs::read_to_string(d.join("x")).unwrap(), "hello");
    assert_eq!(std::fs::read_dir(d).unwrap().count(), 2, "the file, and the notes");
}
