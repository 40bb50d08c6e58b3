//! Tests that tasks do not destroy anything that they were not asked to change.

use super::*;
use crate::os::atomic_fs;
use std::os::unix::fs::MetadataExt;

fn failure(ran: Ran) -> String {
    ran.end.failure.expect("it fails").message
}

fn program(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_second_name_takes_no_directory_away_and_no_file_before_it_is_there() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::create_dir_all(d.join("tree/sub")).unwrap();
    std::fs::write(d.join("tree/sub/f"), "precious").unwrap();
    std::fs::write(d.join("file"), "precious").unwrap();
    std::fs::write(d.join("src"), "new").unwrap();
    // Neither hard link is possible: one would replace a directory, the other is to a file of
    // another file system.
    for (src, path) in [(d.join("src"), d.join("tree")), ("/proc/version".into(), d.join("file"))] {
        let task =
            format!("    - file: {{src: '{}', path: '{}', state: hard, force: yes}}\n", src.display(), path.display());
        for protect in [vec![], vec![path.display().to_string()]] {
            let said = failure(go(&tasks(d, &task), &PlaybookRunOptions { protect, ..options(d) }));
            assert!(said.contains("is a directory; it was left unchanged") || said.contains("hard link"), "{said}");
            assert_eq!(std::fs::read_to_string(d.join("tree/sub/f")).unwrap(), "precious");
            assert_eq!(std::fs::read_to_string(d.join("file")).unwrap(), "precious");
        }
    }
    let task = "    - file: {src: '{{ dir }}/src', path: '{{ dir }}/file', state: hard, force: yes}\n";
    assert_eq!(go(&tasks(d, task), &options(d)).assert_success().end.changed, 1);
    assert_eq!(std::fs::read_to_string(d.join("file")).unwrap(), "new");
    assert_eq!(std::fs::metadata(d.join("src")).unwrap().nlink(), 2);
}

/// This test runs only in check mode. If the task were not rejected, it would remove the programs
/// of this machine.
#[test]
fn links_in_the_place_of_directories_of_the_system_stay() {
    let Some(link) = ["/lib64", "/bin", "/sbin"].into_iter().find(|path| Path::new(path).is_symlink()) else {
        eprintln!("SKIPPED: this machine has no such link");
        return;
    };
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("f"), "x").unwrap();
    for task in ["state: absent", "state: link, src: /tmp", "state: link, src: /tmp, force: yes"] {
        let task = format!("    - file: {{path: {link}, {task}}}\n");
        let said = failure(go(&tasks(d, &task), &PlaybookRunOptions { check: true, ..options(d) }));
        assert!(said.contains("is never removed"), "{task}: {said}");
    }
    let task = format!("    - file: {{path: {link}, state: hard, src: '{{{{ dir }}}}/f', force: yes}}\n");
    assert!(
        failure(go(&tasks(d, &task), &PlaybookRunOptions { check: true, ..options(d) })).contains("is never removed")
    );
}

#[test]
fn a_large_secret_is_copied_aside_as_a_secret() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    make_large_file(&d.join("new"), "new");
    make_large_file(&d.join("secret"), "old");
    std::fs::set_permissions(d.join("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let task =
        "    - copy: {src: '{{ dir }}/new', dest: '{{ dir }}/secret', remote_src: yes, mode: '0644', backup: yes}\n";
    assert_eq!(go(&tasks(d, task), &options(d)).assert_success().end.changed, 1);
    let modes: Vec<u32> = std::fs::read_dir(d)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("secret."))
        .map(|entry| entry.metadata().unwrap().mode() & 0o777)
        .collect();
    assert_eq!(modes, [0o600]);
}

#[test]
fn a_file_that_is_no_utf_8_is_left_as_it_is() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    program(&d.join("crontab"), "case $* in *-l*) printf '# caf\\351\\n';; *) cat > ${0%/*}/written;; esac");
    let old = b"# caf\xe9\n";
    std::fs::write(d.join("f"), old).unwrap();
    for task in [
        "cron: {name: x, job: 'true'}",
        "cron: {name: x, job: 'true', cron_file: '{{ dir }}/f', user: root}",
        "sysctl: {name: a.b, value: 1, sysctl_file: '{{ dir }}/f', reload: no}",
        "authorized_key: {user: root, key: ssh-ed25519 AAAA, path: '{{ dir }}/f', manage_dir: no}",
    ] {
        let site = format!(
            "- hosts: all\n  environment: {{PATH: '{{{{ dir }}}}:/usr/bin:/bin'}}\n  tasks:\n    - {{{task}}}\n"
        );
        let said = failure(go(&plan(d, &[("site.yml", &site)]), &options(d)));
        assert!(said.contains("not UTF-8"), "{task}: {said}");
        assert!(std::fs::read(d.join("f")).unwrap() == old && !d.join("written").exists(), "{task}");
    }
}

#[test]
fn a_protected_file_is_parked_only_when_the_new_one_is_good() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("state"), "precious").unwrap();
    let run = |validate: &str| {
        let task = format!("    - copy: {{content: '', dest: '{{{{ dir }}}}/state', validate: '{validate} %s'}}\n");
        go(&tasks(d, &task), &PlaybookRunOptions { protect: vec![d.join("state").display().to_string()], ..options(d) })
    };
    assert!(failure(run("false")).contains("validation"));
    assert_eq!(std::fs::read_to_string(d.join("state")).unwrap(), "precious");
    assert_eq!(run("test -e").assert_success().end.changed, 1);
    assert_eq!(std::fs::read_to_string(d.join("state")).unwrap(), "");
    let parked: Vec<_> = std::fs::read_dir(d.join("parked/r1")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(parked.len(), 1);
    assert_eq!(std::fs::read_to_string(&parked[0]).unwrap(), "precious");
}

/// Regression test: a task opened a pipe for reading, and waited for a writer for ever.
#[test]
fn flags_are_not_asked_of_a_pipe() {
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().canonicalize().unwrap().join("p");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
        .unwrap();
    assert!(atomic_fs::flags(&pipe).unwrap_err().line().contains("neither a file nor a directory"));
}
