//! Tests commands that run as another user than the one who runs the plan.

use super::*;
use crate::os::accounts;

/// A user that every Linux has, without files of its own.
const OTHER: &str = "nobody";

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: only root can run commands as another user");
    }
    root
}

/// Runs these tasks as root. Returns what they write to the file `said`, to which all users may
/// write.
fn run_and_read(text: &str, login: Option<u32>) -> (Ran, String) {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::set_permissions(d, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(d.join("said"), "").unwrap();
    std::fs::set_permissions(d.join("said"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let site = format!("- hosts: all\n  tasks:\n{text}");
    let script = "#!/bin/sh\necho \"$(id -un) $*\" >> \"$2\"\n";
    let plan = plan(d, &[("site.yml", &site), ("files/who.sh", script)]);
    let ran = go(&plan, &PlaybookRunOptions { login, ..options(d) });
    (ran, std::fs::read_to_string(d.join("said")).unwrap())
}

#[test]
fn commands_are_the_users_that_become_user_names() {
    if !root() {
        return;
    }
    let text = "
    - {command: 'tee -a {{ dir }}/said', args: {stdin: plain}}
    - become: yes
      become_user: nobody
      environment: {OWN: own}
      block:
        - {shell: 'echo \"$(id -un) $USER $LOGNAME $HOME $OWN ${SUDO_UID-none} $(id -G)\" >> {{ dir }}/said'}
        - command: sh -c 'echo \"$(id -un) $0\" >> {{ dir }}/said' $USER
        - {raw: 'umask >> {{ dir }}/said'}
        - {script: 'who.sh a {{ dir }}/said'}
        - {shell: 'id -un >> {{ dir }}/said', become_user: root}
        - {debug: {msg: of no user}}
";
    let (ran, said) = run_and_read(text, None);
    ran.assert_success();
    let entry = accounts::user(OTHER, &CancelToken::new()).unwrap();
    let groups = std::process::Command::new("id").args(["-G", OTHER]).output().unwrap();
    let groups = String::from_utf8(groups.stdout).unwrap();
    let home = &entry[5];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "plain");
    assert_eq!(lines[1], format!("nobody nobody nobody {home} own none {}", groups.trim()));
    assert_eq!(lines[2..4], ["nobody nobody", "0022"]);
    assert!(lines[4].starts_with("nobody a /"), "{said}");
    assert_eq!(lines[5..], ["root"]);
}

#[test]
fn the_user_may_depend_on_facts_results_and_items() {
    if !root() {
        return;
    }
    let text = "
    - {command: echo nobody, register: who, changed_when: false}
    - become: '{{ ansible_system == \"Linux\" }}'
      block:
        - {shell: 'id -un >> {{ dir }}/said', become_user: '{{ who.stdout }}'}
        - {shell: 'id -un >> {{ dir }}/said', become_user: '{{ item }}', loop: [nobody, root]}
        - {shell: 'id -un >> {{ dir }}/said', become_user: '{{ who.stdout | default(\"root\") }}'}
        - {shell: 'id -un >> {{ dir }}/said', become_user: '{{ nowhere | default(omit) }}'}
        - {copy: {content: x, dest: '{{ dir }}/copied'}, become_user: '{{ ansible_user_id }}'}
        - {copy: {content: x, dest: '{{ dir }}/refused'}, become_user: '{{ who.stdout }}', ignore_errors: true, register: r}
    - {assert: {that: ['\"works only with command\" in r.msg']}}
    - {shell: 'id -un >> {{ dir }}/said', become: '{{ who.stdout == \"x\" }}', become_user: '{{ who.stdout }}'}
";
    let (ran, said) = run_and_read(text, None);
    ran.assert_success();
    assert_eq!(said, "nobody\nnobody\nroot\nnobody\nroot\nroot\n");
    let login = accounts::user(OTHER, &CancelToken::new()).unwrap()[2].parse().unwrap();
    let text = "
    - {shell: 'id -un >> {{ dir }}/said', become: '{{ ansible_system == \"Linux\" }}'}
    - {shell: 'id -un >> {{ dir }}/said', become: '{{ ansible_system != \"Linux\" }}'}
    - {file: {path: '{{ dir }}/said', state: touch}, become: '{{ ansible_system != \"Linux\" }}', ignore_errors: true, register: r}
    - {assert: {that: ['\"no `become`\" in r.msg']}}
";
    let (ran, said) = run_and_read(text, Some(login));
    ran.assert_success();
    assert_eq!(said, "root\nnobody\n");
}

#[test]
fn what_the_user_may_not_do_fails_and_so_does_a_user_that_is_not_there() {
    if !root() {
        return;
    }
    let (ran, _) = run_and_read("    - {command: cat /etc/shadow, become: yes, become_user: nobody}\n", None);
    assert!(ran.end.failure.is_some_and(|f| f.rc == Some(1)), "a file of root's");
    let (ran, _) = run_and_read("    - {shell: id, become: yes, become_user: no-such-user-here}\n", None);
    let failure = ran.end.failure.unwrap();
    assert!(failure.message.contains("there is no user `no-such-user-here`"), "{}", failure.message);
}

/// The login user is another user, and becomes root by sudo for the tasks that need it.
#[test]
fn commands_without_become_are_the_logins() {
    if !root() {
        return;
    }
    let uid = accounts::user(OTHER, &CancelToken::new()).unwrap()[2].parse().unwrap();
    let text = "
    - {shell: 'id -un >> {{ dir }}/said'}
    - {shell: 'id -un >> {{ dir }}/said', become: yes}
";
    let (ran, said) = run_and_read(text, Some(uid));
    ran.assert_success();
    assert_eq!(said, "nobody\nroot\n");
}
