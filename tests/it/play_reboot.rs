//! `remoor play` with tasks that restart the host, over SSH to a separate sshd on loopback. The
//! hosts are this machine, so the command of the task only changes the boot time that the host
//! reports. `hosts/played.rs` restarts a real host.

use crate::play_ssh::{Server, run_to_end};
use std::fs;

/// A play on h1. `REBOOT` stands for the options of a task whose reboot command is `command`.
fn play(server: &Server, command: &str, tasks: &str) -> (Option<i32>, String, String) {
    server.write("boot", "first\n");
    server.write("reboot.sh", command);
    let options = "reboot_command: '/bin/sh {{ dir }}/reboot.sh {{ dir }}', boot_time_command: 'cat {{ dir }}/boot'";
    let tasks = tasks.replace("REBOOT", options);
    let text = format!("- hosts: h1\n  gather_facts: no\n  tasks:\n{tasks}");
    let (code, text) = run_to_end(&mut server.command_for(&text, &[]));
    let out = fs::read_to_string(server.path("out")).unwrap_or_default();
    let _there_or_not = fs::remove_file(server.path("out"));
    (code, text, out)
}

const TASKS: &str = "    - {command: echo known, register: before}
    - {name: restart, reboot: {REBOOT}, register: r, notify: h}
    - {shell: 'echo {{ before.stdout }} {{ r.rebooted }} {{ r is changed }} {{ r.elapsed > 0 }} >> {{ dir }}/out'}
  handlers: [{name: h, shell: 'echo handler >> {{ dir }}/out'}]
";

#[test]
fn a_run_continues_in_another_session_after_the_reboot() {
    let Some(server) = Server::start() else { return };
    // The program is uploaded first, so that each session is one login.
    assert_eq!(play(&server, "", "    - {command: 'true'}\n").0, Some(0));
    for (how, command, least) in [
        ("the session ends in an orderly way", "echo second > $1/boot", 2),
        ("the executor dies with its host", "echo second > $1/boot; kill -9 $PPID; sleep 60", 2),
        ("the host goes down later", "(sleep 4; echo second > $1/boot) > /dev/null 2>&1 &", 3),
    ] {
        let before = server.counts().0;
        let (code, text, out) = play(&server, command, TASKS);
        assert_eq!((code, out.as_str()), (Some(0), "known True True True\nhandler\n"), "{how}: {text}");
        assert!(server.counts().0 - before >= least, "{how}: {text}");
        let counts = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(counts.contains("ok=4 changed=4"), "{how}: {text}");
        assert_eq!(text.matches("restart").count(), 1, "{how}: {text}");
    }
}

#[test]
fn a_host_that_does_not_restart_fails_the_task() {
    let Some(server) = Server::start() else { return };
    let tasks = "    - block: [{reboot: {reboot_timeout: 1, REBOOT}, register: r}]
      rescue: [{shell: 'echo {{ r.msg }} >> {{ dir }}/out'}]
";
    let (code, text, out) = play(&server, "", tasks);
    let why = "timed out after 1 s while waiting for the reboot: the boot time has not changed\n";
    assert_eq!((code, out.as_str()), (Some(0), why), "{text}");
    // The host does not answer any more, because its sshd has ended.
    let gone = format!("echo second > $1/boot; kill {}", server.pid());
    let tasks =
        "    - {name: restart, reboot: {reboot_timeout: 1, REBOOT}}\n    - {shell: 'echo never >> {{ dir }}/out'}\n";
    let (code, text, out) = play(&server, &gone, tasks);
    assert!(code == Some(5) && out.is_empty(), "{text}");
    assert!(text.contains("the host did not answer after its reboot"), "{text}");
}

#[test]
fn the_machine_of_the_run_is_not_restarted() {
    let Some(server) = Server::start() else { return };
    let state = server.dir().display();
    server.write("hosts", &format!("h1 ansible_connection=local remoor_state_dir={state}/s1\n"));
    let (code, text, _) = play(&server, "echo second > $1/boot", "    - {reboot: {REBOOT}}\n");
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("would restart the machine that runs `remoor play`"), "{text}");
    assert_eq!(fs::read_to_string(server.path("boot")).expect("boot"), "first\n");
}
