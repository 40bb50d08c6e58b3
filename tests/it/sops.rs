//! Files of variables that a real sops has encrypted: `play` and managers open them with the
//! program sops, and the review by `lint` does not run it. `tests/tools.sh` gets sops. If this
//! machine has none, the tests print so in capitals.

use crate::disaster::text;
use crate::local::{Daemon, PROGRAM, net, one_manager, program_command, remoor, wait_until};
use crate::python_modules::{path_with, write_files};
use crate::time_limit::BoundedCommand;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A key of age that only these tests use.
const IDENTITY: &str = "AGE-SECRET-KEY-1P47V4PXD0GXAGM0GHG6250NXL6NCZJS0F227FVW70VF9UCTU5GCQ2RQAE2";
const RECIPIENT: &str = "age18whufjr4py54jum8kp85qqg33ps672g6zukjagf5gdfzlq8dns5swj6hjd";
const SECRET: &str = "correct horse battery";

fn has_sops() -> bool {
    let found = Command::new("sops").args(["--version", "--disable-version-check"]).output().is_ok();
    if !found {
        eprintln!("SKIPPED: SOPS: it is not installed; next: make test-tools");
    }
    found
}

/// Encrypts YAML text, in the given format.
fn encrypt(dir: &Path, plain: &str, format: &str) -> String {
    let path = dir.join("plain");
    fs::write(&path, plain).expect("written");
    let mut command = Command::new("sops");
    command.args(["--encrypt", "--age", RECIPIENT, "--input-type", "yaml", "--output-type", format]).arg(&path);
    let output = command.bounded_output();
    assert!(output.status.success(), "{}", text(&output));
    fs::remove_file(path).expect("removed");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The key file, in `dir`.
fn key_file(dir: &Path) -> PathBuf {
    let path = dir.join("keys.txt");
    fs::write(&path, IDENTITY).expect("written");
    path
}

const SITE: &str = "- hosts: all
  gather_facts: false
  vars_files: [more.yml]
  tasks:
    - copy: {content: \"{{ password }} {{ greeting }} {{ port + 1 }} {{ of_host }} {{ more }}\\n\", dest: '{{ out }}/made'}
    - command: echo {{ password }}
";

#[test]
fn a_play_opens_files_of_variables_and_shows_no_secret() {
    if !has_sops() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let project = dir.path().join("project");
    let all = encrypt(dir.path(), &format!("password: {SECRET}\nport: 5432\ngreeting: by sops\n"), "yaml");
    let hosts = format!("w1 ansible_connection=local out={}\n", dir.path().display());
    write_files(
        &project,
        &[
            ("site.yml", SITE),
            ("hosts", &hosts),
            // As with the vars plugin of community.sops, the file of sops comes last.
            ("group_vars/all.sops.yml", &all),
            ("group_vars/all.yml", "greeting: plain\npassword: plain\n"),
            ("host_vars/w1/a.sops.json", &encrypt(dir.path(), "of_host: one\n", "json")),
            ("host_vars/w1/b.yml", "of_host: two\n"),
            ("more.yml", &encrypt(dir.path(), "more: '{{ greeting }}!'\n", "yaml")),
        ],
    );
    let command = |verb: &str| {
        let mut command = remoor();
        command.env("HOME", dir.path()).env_remove("SOPS_AGE_KEY").env_remove("SOPS_AGE_KEY_FILE").arg(verb);
        command
    };
    let play = |key: &Path| {
        let mut command = command("play");
        command.env("SOPS_AGE_KEY_FILE", key).arg(project.join("site.yml")).arg("-i").arg(project.join("hosts"));
        command.args(["--diff", "-v"]).bounded_output()
    };
    // lint runs no program called sops.
    let (bin, ran) = (dir.path().join("bin"), dir.path().join("ran"));
    fs::create_dir(&bin).expect("made");
    fs::write(bin.join("sops"), format!("#!/bin/sh\ntouch {}\n", ran.display())).expect("written");
    fs::set_permissions(bin.join("sops"), fs::Permissions::from_mode(0o755)).expect("set");
    let linted = command("lint").env("PATH", path_with(&bin)).arg(&project).bounded_output();
    assert!(!ran.exists());
    assert!(
        linted.status.success()
            && text(&linted).contains("encrypted by sops, which only `remoor play` and managers run"),
        "{}",
        text(&linted)
    );

    let refused = play(Path::new("/nonexistent"));
    let said = text(&refused);
    for words in
        ["group_vars/all.sops.yml", "the program sops failed", "Failed to get the data key", "sops --decrypt FILE"]
    {
        assert!(!refused.status.success() && said.contains(words), "{words}: {said}");
    }
    assert!(!dir.path().join("made").exists());

    let key = key_file(dir.path());
    let played = play(&key);
    let said = text(&played);
    assert!(played.status.success(), "{said}");
    let made = fs::read_to_string(dir.path().join("made")).expect("the file");
    assert_eq!(made, format!("{SECRET} by sops 5433 one by sops!\n"));
    assert!(!said.contains(SECRET), "{said}");

    // A changed value does not pass.
    let damaged = all.replacen("password: ENC[AES256_GCM,data:", "password: ENC[AES256_GCM,data:AAAA", 1);
    write_files(&project, &[("group_vars/all.sops.yml", &damaged)]);
    let refused = play(&key);
    assert!(!refused.status.success() && text(&refused).contains("the program sops failed"), "{}", text(&refused));
}

const FLEET: &str = "version: 1
inventory: hosts
groups:
  web: {services: [app], provision: site.yml, cleanup: cleanup.yml}
services:
  app: {files: [/etc/app-of-this-test.conf]}
";
const FLEET_SITE: &str = "- hosts: all
  gather_facts: false
  tasks: [{copy: {content: '{{ password }}', dest: /etc/app-of-this-test.conf}}]
";
const CLEANUP: &str = "- hosts: all\n  tasks: [{file: {path: /etc/app-of-this-test.conf, state: absent}}]\n";

#[test]
fn a_manager_with_the_key_accepts_a_fleet_and_stores_only_ciphertext() {
    if !has_sops() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let fleet = dir.path().join("fleet");
    write_files(
        &fleet,
        &[
            ("remoor.yml", FLEET),
            ("hosts", "[web]\nw1 ansible_host=127.0.0.9\n"),
            ("site.yml", FLEET_SITE),
            ("cleanup.yml", CLEANUP),
            ("group_vars/web.sops.yaml", &encrypt(dir.path(), &format!("password: {SECRET}\n"), "yaml")),
        ],
    );
    drop(one_manager(dir.path(), net()(1)));
    let home = dir.path().join("m1");
    let start = |key: &Path| {
        let mut command = program_command(Path::new(PROGRAM));
        command.env("SOPS_AGE_KEY_FILE", key);
        let manager = Daemon::start_command(command, &home);
        wait_until("the manager leads", || (manager.ask(&["status"]).status.code() == Some(0)).then_some(()));
        manager
    };
    let apply = |manager: &Daemon| manager.ask(&["apply", fleet.to_str().expect("UTF-8")]);
    let manager = start(Path::new("/nonexistent"));
    let refused = apply(&manager);
    let said = text(&refused);
    assert!(!refused.status.success() && said.contains("Failed to get the data key"), "{said}");
    drop(manager);

    let manager = start(&key_file(dir.path()));
    let applied = apply(&manager);
    assert!(applied.status.success(), "{}", text(&applied));
    let shown = manager.ask(&["inventory", "--list"]);
    assert!(shown.status.success() && !text(&shown).contains(SECRET), "{}", text(&shown));
    drop(manager);
    let found = Command::new("grep").args(["-r", "-l", SECRET]).arg(&home).bounded_output();
    assert_eq!(found.status.code(), Some(1), "the plaintext is in {}", text(&found));
}
