//! `remoor play` with the module `synchronize`, over SSH to a separate sshd on loopback. The
//! results are those of ansible.posix with the same playbooks and the same sshd.

use crate::play_ssh::{Server, run_to_end};
use std::fs;
use std::path::Path;

/// Starts the sshd, and adds this machine to the inventory. None: a program is missing, and its
/// name was printed on stderr.
fn start() -> Option<Server> {
    if !["/usr/bin/rsync", "/bin/rsync"].iter().any(|path| Path::new(path).exists()) {
        eprintln!("SKIPPED: rsync is missing, so no files were synchronized (Debian: rsync)");
        return None;
    }
    let server = Server::start()?;
    let (hosts, dir) = (fs::read_to_string(server.path("hosts")).expect("hosts"), server.dir().display());
    server.write("hosts", &format!("{hosts}localhost ansible_connection=local remoor_state_dir={dir}/s0\n"));
    for (name, text) in [("files/tree/a", "a\n"), ("files/tree/sub/b", "b\n"), ("plain", "p\n")] {
        fs::create_dir_all(server.path(name).parent().expect("a directory")).expect("a directory");
        server.write(name, text);
    }
    Some(server)
}

/// Plays `tasks` on h1. Returns the exit code, the output, and the file `out`.
fn play(server: &Server, tasks: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let text = format!("- hosts: h1\n  gather_facts: no\n  tasks:\n{tasks}");
    let (code, text) = run_to_end(&mut server.command_for(&text, args));
    (code, text, fs::read_to_string(server.path("out")).unwrap_or_default())
}

#[test]
fn directories_are_copied_to_the_host_and_back() {
    let Some(server) = start() else { return };
    let tasks = r"
    - {synchronize: {src: tree/, dest: '{{ dir }}/pushed'}, register: pushed}
    - {ansible.posix.synchronize: {src: tree/, dest: '{{ dir }}/pushed'}, register: again}
    - {file: {path: '{{ dir }}/pushed/extra', state: touch}}
    - {synchronize: {src: tree/, dest: '{{ dir }}/pushed', delete: true, rsync_opts: [--exclude=sub]}, register: deleted}
    - {synchronize: {src: '{{ dir }}/pushed/', dest: pulled, mode: pull}, register: pulled}
    - {synchronize: {src: plain, dest: '{{ dir }}/{{ item }}', archive: false, perms: true}, loop: [p1, p2], register: looped}
    - {synchronize: {src: none/, dest: '{{ dir }}/x'}, register: failed, ignore_errors: true}
    - {synchronize: {src: '{{ dir }}/pushed/', dest: '{{ dir }}/here'}, delegate_to: '{{ inventory_hostname }}', register: here}
    - {synchronize: {src: tree, dest: '{{ dir }}/local'}, connection: local, register: local}
    - copy:
        dest: '{{ dir }}/out'
        content: |
          {{ pushed.changed }} {{ pushed.rc }} {{ pushed.msg | to_json }}
          {{ again.changed }} {{ again.stdout_lines | to_json }}
          {{ deleted.stdout_lines | to_json }}
          {{ pulled.stdout_lines | to_json }}
          {{ looped.results | map(attribute='stdout_lines') | to_json }}
          {{ failed.rc }} {{ failed is failed }}
          {{ here.stdout_lines | to_json }} {{ here.cmd }}
          {{ local.stdout_lines | to_json }}
";
    let (code, text, out) = play(&server, tasks, &[]);
    assert_eq!(code, Some(0), "{text}");
    let dir = server.dir().display();
    let created = format!("created directory {dir}/pushed");
    let rsync = if Path::new("/usr/bin/rsync").exists() { "/usr/bin/rsync" } else { "/bin/rsync" };
    let want = format!(
        r#"True 0 "{created}\ncd+++++++++ ./\n<f+++++++++ a\ncd+++++++++ sub/\n<f+++++++++ sub/b\n"
False []
[".d..t...... ./", "*deleting   extra"]
["created directory {dir}/pulled", "cd+++++++++ ./", ">f+++++++++ a", "cd+++++++++ sub/", ">f+++++++++ sub/b"]
[["<f+++++++++ plain"], ["<f+++++++++ plain"]]
23 True
["created directory {dir}/here", "cd+++++++++ ./", ">f+++++++++ a", "cd+++++++++ sub/", ">f+++++++++ sub/b"] {rsync} --delay-updates -F --compress --archive --out-format='<<CHANGED>>%i %n%L' {dir}/pushed/ {dir}/here
["created directory {dir}/local", "cd+++++++++ tree/", ">f+++++++++ tree/a", "cd+++++++++ tree/sub/", ">f+++++++++ tree/sub/b"]
"#
    );
    assert_eq!(out, want, "{text}");
    assert_eq!(fs::read_to_string(server.path("pulled/sub/b")).expect("a file"), "b\n");
    // rsync uses the login of the run.
    assert_eq!(server.counts().0, 1, "{text}");
}

#[test]
fn check_mode_changes_nothing_and_predicts_the_change() {
    let Some(server) = start() else { return };
    let tasks = r"
    - {synchronize: {src: tree/, dest: '{{ dir }}/pushed'}, register: pushed}
    - {stat: {path: '{{ dir }}/pushed/a'}, register: copied}
    - {file: {path: '{{ dir }}/made', state: directory}}
    - {synchronize: {src: '{{ dir }}/made-later/', dest: '{{ dir }}/made'}}
    - {copy: {dest: '{{ dir }}/out', content: '{{ pushed.changed }} {{ pushed.stdout_lines[2] }}'}, check_mode: false}
";
    let (code, text, out) = play(&server, tasks, &["--check"]);
    assert_eq!((code, out.as_str()), (Some(0), "True <f+++++++++ a"), "{text}");
    assert!(!server.path("pushed").exists() && !server.path("made").exists(), "{text}");
    assert!(text.contains("tasks that check mode did not run may change that"), "{text}");
}

#[test]
fn become_concerns_the_other_machine() {
    let Some(server) = start() else { return };
    server.program("sudo", &format!("printf '%s\\n' \"$*\" >> {}/asked; shift 3; exec \"$@\"", server.dir().display()));
    server.program("id", "echo 1000");
    // The inventory names no user, so it is not known that the login is root.
    let tasks = r"
    - {synchronize: {src: tree/, dest: '{{ dir }}/pushed'}, become: true, register: r}
    - {synchronize: {src: tree/, dest: '{{ dir }}/other'}, become: true, become_user: nobody}
    - {synchronize: {src: tree/, dest: '{{ dir }}/own', rsync_path: rsync}, become: true}
";
    let (code, text, _) = play(&server, tasks, &[]);
    assert_eq!(code, Some(0), "{text}");
    let asked = fs::read_to_string(server.path("asked")).expect("asked");
    let users: Vec<&str> = asked.lines().filter_map(|line| line.split(" --server").next()).collect();
    assert_eq!(users, ["-n -u root rsync", "-n -u nobody rsync"], "{text}");
}

#[test]
fn rsync_of_another_host_logs_in_itself() {
    let Some(server) = start() else { return };
    // The other host has no login of its own, so ssh is replaced by a program that needs none.
    server.program(
        "ssh",
        &format!(
            "echo \"$@\" >> {}/asked; while [ $# -gt 0 ] && [ \"$1\" != rsync ]; do shift; done; exec \"$@\"",
            server.dir().display()
        ),
    );
    let tasks = r"
    - {synchronize: {src: '{{ dir }}/files/tree/', dest: '{{ dir }}/pushed', private_key: /k, dest_port: 2222}, delegate_to: h2}
";
    let (code, text, _) = play(&server, tasks, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(server.path("pushed/sub/b").exists(), "{text}");
    let asked = fs::read_to_string(server.path("asked")).expect("asked");
    let want = "-o BatchMode=yes -S none -i /k -o Port=2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null h1 rsync";
    assert!(asked.starts_with(want), "{asked}");
}

#[test]
fn a_host_chooses_neither_a_file_nor_a_program_of_the_controller() {
    let Some(server) = start() else { return };
    server.write("secret", "s\n");
    let tasks = r"
    - {shell: 'echo {{ dir }}/secret', register: r}
    - {set_fact: {chosen: '{{ r.stdout }}'}}
    - {synchronize: {src: '{{ r.stdout }}', dest: '{{ dir }}/x1'}, register: a, ignore_errors: true}
    - {synchronize: {src: '{{ item }}', dest: '{{ dir }}/x2'}, loop: ['{{ chosen }}'], register: b, ignore_errors: true}
    - {synchronize: {src: plain, dest: '{{ dir }}/x3', rsync_opts: ['--rsh={{ r.stdout }}']}, register: c, ignore_errors: true}
    - {synchronize: {src: '{{ dir }}/plain', dest: '{{ r.stdout }}', mode: pull}, register: d, ignore_errors: true}
    - {synchronize: {src: plain, dest: 'rsync:{{ r.stdout }}'}, register: e, ignore_errors: true}
    - {synchronize: {src: plain, dest: 'elsewhere:/x'}, register: f, ignore_errors: true}
    - {synchronize: {src: plain, dest: '{{ dir }}/y$HOME'}, register: named}
    - {file: {path: '{{ dir }}/sent', state: directory}}
    - {file: {src: /etc/hostname, dest: '{{ dir }}/sent/link', state: link, force: true}}
    - {copy: {dest: '{{ dir }}/sent/file', content: f}}
    - {synchronize: {src: '{{ dir }}/sent/', dest: '{{ dir }}/got', mode: pull}}
    - {synchronize: {src: plain, dest: '{{ r.stdout }}-copy'}, register: g}
    - copy:
        dest: '{{ dir }}/out'
        content: |
          {{ a.msg }}
          {{ b.results[0].msg }}
          {{ c.msg }}
          {{ d.msg }}
          {{ e.msg }}
          {{ f.msg }}
";
    let (code, text, out) = play(&server, tasks, &[]);
    assert_eq!(code, Some(0), "{text}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 6, "{out}");
    for (line, option) in lines.iter().zip(["src", "src", "rsync_opts", "dest", "dest"]) {
        let want = format!("delegated to localhost: only the playbook and the inventory may choose `{option}`");
        assert!(line.starts_with(&want), "{line}");
    }
    assert!(lines[5].contains("names a host"), "{out}");
    assert_eq!(fs::read_to_string(server.path("secret-copy")).expect("the host may choose its own file"), "p\n");
    // The environment of the controller is not part of the path on the host, and a link that the
    // host sends does not lead elsewhere.
    assert!(server.path("y$HOME").exists(), "{text}");
    assert!(server.path("got/file").exists() && server.path("got/link").symlink_metadata().is_err(), "{text}");
    assert!(!server.path("x1").exists() && !server.path("x2").exists() && !server.path("x3").exists());
}

#[test]
fn a_missing_rsync_is_reported_with_the_next_step() {
    let Some(server) = start() else { return };
    let tasks = "    - {synchronize: {src: plain, dest: '{{ dir }}/x', rsync_path: no-such-rsync}}\n";
    let (code, text, _) = play(&server, tasks, &[]);
    assert!(code == Some(5) && text.contains("rsync is missing on the other machine: install"), "{text}");
    let tasks = "    - {synchronize: {src: plain, dest: '{{ dir }}/x'}, environment: {PATH: /none}}\n";
    let (code, text, _) = play(&server, tasks, &[]);
    assert!(code == Some(5) && text.contains("has no program `rsync`; install the package rsync there"), "{text}");
}
