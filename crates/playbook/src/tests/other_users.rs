//! Tests tasks that run as another user than the one who runs the plan.

use super::*;
use crate::os::accounts;

/// A user that every Linux has, without files of its own.
const OTHER: &str = "nobody";

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: only root can run tasks as another user");
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
    - {assert: {that: ['\"Permission denied\" in r.msg']}}
    - {shell: 'id -un >> {{ dir }}/said', become: '{{ who.stdout == \"x\" }}', become_user: '{{ who.stdout }}'}
";
    let (ran, said) = run_and_read(text, None);
    ran.assert_success();
    assert_eq!(said, "nobody\nnobody\nroot\nnobody\nroot\nroot\n");
    let login = accounts::user(OTHER, &CancelToken::new()).unwrap()[2].parse().unwrap();
    let text = "
    - {shell: 'id -un >> {{ dir }}/said', become: '{{ ansible_system == \"Linux\" }}'}
    - {shell: 'id -un >> {{ dir }}/said', become: '{{ ansible_system != \"Linux\" }}'}
    - {file: {path: '{{ dir }}/new', state: touch}, become: '{{ ansible_system != \"Linux\" }}', ignore_errors: true, register: r}
    - {assert: {that: ['\"Permission denied\" in r.msg']}}
    - {file: {path: '{{ dir }}/new', state: touch}, become: '{{ ansible_system == \"Linux\" }}'}
";
    let (ran, said) = run_and_read(text, Some(login));
    ran.assert_success();
    assert_eq!(said, "root\nnobody\n");
}

/// `set_fact` has precedence over a variable of the play, from its task on.
#[test]
fn the_user_follows_variables_that_tasks_change() {
    if !root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let text = "
- hosts: all
  become: yes
  become_user: '{{ who }}'
  vars: {who: root}
  tasks:
    - {command: id -un, register: before}
    - {set_fact: {who: nobody}}
    - {command: id -un, register: after}
    - {assert: {that: [before.stdout == 'root', after.stdout == 'nobody']}}
";
    go(&plan(dir.path(), &[("site.yml", text)]), &options(dir.path())).assert_success();
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

/// The entry of the user `nobody`: its id and its group.
fn other_ids() -> (u32, u32) {
    let entry = accounts::user(OTHER, &CancelToken::new()).unwrap();
    (entry[2].parse().unwrap(), entry[3].parse().unwrap())
}

/// A directory that only `OTHER` can use, inside one that every user can enter.
fn other_dir() -> (TempDir, std::path::PathBuf) {
    let dir = TempDir::new().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let own = dir.path().join("own");
    std::fs::create_dir(&own).unwrap();
    let (uid, gid) = other_ids();
    std::os::unix::fs::chown(&own, Some(uid), Some(gid)).unwrap();
    (dir, own)
}

fn owner(path: &Path) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

#[test]
fn native_modules_act_as_the_user_and_their_changes_can_be_undone() {
    if !root() {
        return;
    }
    let (dir, own) = other_dir();
    let d = dir.path();
    std::fs::write(own.join("old"), "a=1\n").unwrap();
    std::os::unix::fs::chown(own.join("old"), Some(other_ids().0), Some(other_ids().1)).unwrap();
    std::fs::write(d.join("roots"), "secret").unwrap();
    std::fs::set_permissions(d.join("roots"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = "
- hosts: all
  become: yes
  become_user: nobody
  tasks:
    - {file: {path: '{{ dir }}/own/made', state: directory}}
    - {copy: {content: x, dest: '{{ dir }}/own/made/copied'}}
    - {copy: {src: data, dest: '{{ dir }}/own/made/'}}
    - {template: {src: t.j2, dest: '{{ dir }}/own/made/rendered', mode: '0640'}}
    - {file: {path: '{{ dir }}/own/link', src: made, state: link}}
    - {lineinfile: {path: '{{ dir }}/own/old', line: b=2, backup: yes}, register: line}
    - {lineinfile: {path: '{{ dir }}/own/link/copied', line: more}}
    - {file: {path: '{{ dir }}/own/made/touched', state: touch, mode: '0604'}}
    - {slurp: {path: '{{ dir }}/roots'}, ignore_errors: yes, register: read}
    - {stat: {path: '{{ dir }}/own/made/copied'}, register: stat}
    - {find: {paths: '{{ dir }}/own', recurse: yes}, register: found}
    - {file: {path: '{{ dir }}/roots', mode: '0644'}, ignore_errors: yes, register: mode}
    - {file: {path: '{{ dir }}/own/made/copied', owner: root}, ignore_errors: yes, register: owner}
    - {copy: {content: x, dest: '{{ dir }}/new'}, ignore_errors: yes, register: new}
    - {tempfile: {state: directory}, register: temp}
    - {file: {path: '{{ temp.path }}', state: absent}}
    - {setup: {filter: ansible_user_id}}
    - assert:
        that:
          - read is failed and mode is failed and owner is failed and new is failed
          - stat.stat.pw_name == 'nobody' and stat.stat.mode == '0644' and stat.stat.writeable
          - found.matched >= 5 and found.files | map(attribute='pw_name') | unique == ['nobody']
          - ansible_user_id == 'nobody'
          - line.backup is defined
";
    let plan = plan(d, &[("site.yml", text), ("templates/t.j2", "{{ 1 + 1 }}\n"), ("files/data", "data")]);
    let options = PlaybookRunOptions { backup: Some(d.join("backup")), ..options(d) };
    go(&plan, &options).assert_success();
    let made = own.join("made");
    for name in ["", "copied", "data", "rendered", "touched"] {
        assert_eq!(owner(&made.join(name)), other_ids(), "{name}");
    }
    assert_eq!((owner(&own.join("link")), owner(&own.join("old"))), (other_ids(), other_ids()));
    assert_eq!(std::fs::read_to_string(made.join("copied")).unwrap(), "x\nmore\n");
    assert!(!d.join("new").exists());
    assert!(rustix::process::geteuid().is_root());
    let again = go(&plan, &options).assert_success();
    assert!(again.end.changed <= 5, "{:?}", again.statuses());
    undo(&d.join("backup")).unwrap();
    assert!(!made.exists() && !own.join("link").exists());
    assert_eq!(std::fs::read_to_string(own.join("old")).unwrap(), "a=1\n");
}

#[test]
fn root_backs_up_nothing_that_the_user_cannot_change() {
    use std::os::unix::fs::MetadataExt as _;
    if !root() {
        return;
    }
    let (dir, own) = other_dir();
    let d = dir.path();
    std::fs::create_dir(d.join("roots")).unwrap();
    std::fs::write(d.join("roots/f"), "x").unwrap();
    std::os::unix::fs::symlink("../roots", own.join("link")).unwrap();
    let (uid, gid) = other_ids();
    std::os::unix::fs::lchown(own.join("link"), Some(uid), Some(gid)).unwrap();
    let text = "
- hosts: all
  become: yes
  become_user: nobody
  tasks:
    - {file: {path: '{{ dir }}/own/link/f', state: absent}, ignore_errors: yes, register: removed}
    - {copy: {content: y, dest: '{{ dir }}/own/link/f'}, ignore_errors: yes, register: written}
    - {copy: {content: y, dest: '{{ dir }}/own/link/new'}, ignore_errors: yes, register: new}
    - assert: {that: [removed is failed, written is failed, new is failed]}
";
    let plan = plan(d, &[("site.yml", text)]);
    go(&plan, &PlaybookRunOptions { backup: Some(d.join("backup")), ..options(d) }).assert_success();
    assert_eq!(std::fs::metadata(d.join("roots/f")).unwrap().nlink(), 1);
    std::fs::write(d.join("roots/f"), "later").unwrap();
    std::fs::write(d.join("roots/new"), "later").unwrap();
    undo(&d.join("backup")).unwrap();
    for name in ["f", "new"] {
        assert_eq!(std::fs::read_to_string(d.join("roots").join(name)).unwrap(), "later", "{name}");
    }
}

/// The login user becomes root by sudo only for the tasks that need it.
#[test]
fn native_modules_without_become_act_as_the_login_user() {
    if !root() {
        return;
    }
    let (dir, own) = other_dir();
    let text = "
- hosts: all
  tasks:
    - {copy: {content: x, dest: '{{ dir }}/own/logins'}}
    - {copy: {content: x, dest: '{{ dir }}/own/roots'}, become: yes}
    - {copy: {content: x, dest: '{{ dir }}/new'}, ignore_errors: yes, register: new}
    - {copy: {content: y, dest: '{{ dir }}/own/roots'}}
    - {assert: {that: [new is failed]}}
";
    let plan = plan(dir.path(), &[("site.yml", text)]);
    go(&plan, &PlaybookRunOptions { login: Some(other_ids().0), ..options(dir.path()) }).assert_success();
    assert_eq!(owner(&own.join("logins")), other_ids());
    // As in Ansible, a user who replaces the file of another user becomes its owner.
    assert_eq!(owner(&own.join("roots")), other_ids());
    assert!(!dir.path().join("new").exists());
}

#[test]
fn check_mode_predicts_as_the_user_and_changes_nothing() {
    if !root() {
        return;
    }
    let (dir, own) = other_dir();
    let text = "
- hosts: all
  become: yes
  become_user: nobody
  tasks:
    - {name: allowed, copy: {content: x, dest: '{{ dir }}/own/new'}}
    - {name: denied, copy: {content: x, dest: '{{ dir }}/new'}, ignore_errors: yes}
    - {name: owned, file: {path: '{{ dir }}/own/new', owner: root}, ignore_errors: yes}
    - {name: same, file: {path: '{{ dir }}/own/new', owner: nobody}}
";
    let plan = plan(dir.path(), &[("site.yml", text)]);
    let ran = go(&plan, &PlaybookRunOptions { check: true, ..options(dir.path()) }).assert_success();
    let statuses: Vec<Status> = ran.statuses().into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses, [Status::Changed, Status::Ignored, Status::Ignored, Status::Ok]);
    assert!(std::fs::read_dir(&own).unwrap().next().is_none());
}

/// A cancelled run kills the programs of the user.
#[test]
fn a_program_of_the_user_ends_with_the_run() {
    if !root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let text = "
- hosts: all
  tasks:
    - {command: 'sh -c \"echo $$; exec sleep 300\"', become: yes, become_user: nobody}
";
    let plan = plan(dir.path(), &[("site.yml", text)]);
    let (cancel, mut pid) = (CancelToken::new(), None);
    let stop = cancel.clone();
    let end = run(&plan, &options(dir.path()), &cancel, &mut |event| {
        if let RunEvent::Output { line, .. } = event {
            pid = Some(line);
            stop.cancel();
        }
    });
    assert!(end.cancelled, "{end:?}");
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.unwrap())).unwrap_or_default();
    let ended = state.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with('Z'));
    assert!(ended, "{state}");
}
