//! Tasks of another user, beside ansible-playbook: the same playbook runs with both as root and
//! with a `become_user` that the test creates. The results, the files and their owners are
//! compared.

use crate::python_modules::{ansible_dir, site_command};
use crate::time_limit::BoundedCommand;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const SITE: &str = r#"
- hosts: all
  gather_facts: false
  become: true
  become_user: "{{ user }}"
  environment: {OWN: mine}
  vars: {own: "{{ dir }}/own", number: 7}
  tasks:
    - {file: {path: "{{ own }}/made/deep", state: directory}, register: directory}
    - {copy: {content: "a\n", dest: "{{ own }}/made/copied"}, register: copied}
    - {copy: {src: data, dest: "{{ own }}/made/", mode: "0640"}, register: sent}
    - {template: {src: t.j2, dest: "{{ own }}/made/rendered"}, register: rendered}
    - {copy: {src: "{{ own }}/made/copied", dest: "{{ own }}/made/again", remote_src: true}, register: remote}
    - {lineinfile: {path: "{{ own }}/old", line: b=2}, register: line}
    - {blockinfile: {path: "{{ own }}/old", block: c=3}, register: block}
    - {replace: {path: "{{ own }}/old", regexp: a=1, replace: a=2}, register: replaced}
    - {file: {path: "{{ own }}/link", src: made, state: link}, register: link}
    - {copy: {content: "l\n", dest: "{{ own }}/link/through"}, register: through}
    - {file: {path: ~/at-home, state: touch, mode: "0600", modification_time: preserve, access_time: preserve}, register: home}
    - {file: {path: "{{ own }}/gone", state: absent}, register: absent}
    - {assemble: {src: "{{ own }}/parts", dest: "{{ own }}/whole"}, register: assembled}
    - {unarchive: {src: packed.tar, dest: "{{ own }}/made/deep"}, register: unpacked}
    - {git: {repo: "file://{{ own }}/repository", dest: "{{ own }}/clone", version: master}, register: cloned}
    - {known_hosts: {path: "{{ own }}/known_hosts", name: h1, key: "h1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHFXeS0MRkGnwGJTVGnAZUdzq4YbpIFDsGJLsbR1sHEk"}, register: known}
    - {stat: {path: "{{ own }}/old"}, register: stat}
    - {stat: {path: "{{ dir }}/closed/secret"}, register: closed, ignore_errors: true}
    - {find: {paths: "{{ own }}/parts"}, register: found}
    - {slurp: {src: "{{ own }}/old"}, register: read}
    - {slurp: {src: "{{ dir }}/secret"}, register: unreadable, ignore_errors: true}
    - {copy: {content: x, dest: "{{ dir }}/new"}, register: unwritable, ignore_errors: true}
    - {file: {path: "{{ dir }}/secret", mode: "0644"}, register: unchangeable, ignore_errors: true}
    - {file: {path: "{{ dir }}/secret", state: absent}, register: unremovable, ignore_errors: true}
    - {file: {path: "{{ own }}/old", owner: root}, register: ungivable, ignore_errors: true}
    - {command: sh -c 'id -un; id -G; umask; echo $HOME $USER $LOGNAME $OWN', register: said, changed_when: false}
    - {command: "cat {{ dir }}/secret", register: refused, ignore_errors: true, changed_when: false}
    - {shell: 'cat /proc/self/status | grep -E "^(Uid|Gid|CapEff|CapPrm)"', register: ids, changed_when: false}
    - {script: said.sh one, register: script}
    - {setup: {gather_subset: ["!all", "!min", user]}, register: facts}
    - {shell: id -un, async: 600, poll: 0, register: job, changed_when: false}
    - {async_status: {jid: "{{ job.ansible_job_id }}"}, register: of_job, until: of_job is finished, retries: 600, delay: 0.1}
    - {shell: stat -c %U ~/.ansible_async ~/.ansible_async/j*, register: owners, changed_when: false}
    - {debug: {msg: nobody}, become_user: no-such-user-at-all, register: shown}
    - copy:
        dest: "{{ dir }}/results.json"
        content: "{{ {'directory': directory, 'copied': copied, 'sent': sent, 'rendered': rendered, 'remote': remote, 'line': line,
          'block': block, 'replaced': replaced, 'link': link, 'through': through, 'home': home, 'absent': absent, 'assembled': assembled,
          'unpacked': unpacked, 'cloned': cloned, 'known': known, 'stat': stat, 'closed': closed, 'found': found, 'read': read,
          'unreadable': unreadable, 'unwritable': unwritable, 'unchangeable': unchangeable, 'unremovable': unremovable,
          'ungivable': ungivable, 'said': said, 'refused': refused, 'ids': ids, 'script': script, 'of_job': of_job, 'owners': owners,
          'shown': shown, 'facts': facts.ansible_facts | dict2items | selectattr('key', 'match', 'ansible_(user|real|effective)_') | items2dict
          } | to_nice_json }}"
        mode: "0644"
      become: false
"#;
/// The keys of results that are compared. Messages are remoor's own.
const KEYS: [&str; 27] = [
    "ansible_facts",
    "ansible_effective_user_id",
    "ansible_real_user_id",
    "ansible_user_dir",
    "ansible_user_gid",
    "ansible_user_id",
    "after",
    "changed",
    "content",
    "dest",
    "exists",
    "failed",
    "gid",
    "gr_name",
    "group",
    "matched",
    "mode",
    "owner",
    "path",
    "pw_name",
    "rc",
    "readable",
    "size",
    "state",
    "stdout",
    "uid",
    "writeable",
];

/// A user of this machine, which exists as long as this value. It has one more group.
struct TestUser {
    name: String,
    uid: u32,
    gid: u32,
}

fn run(program: &str, args: &[&str]) -> bool {
    let done = Command::new(program).args(args).stdin(Stdio::null()).bounded_output();
    if !done.status.success() {
        eprintln!("{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    done.status.success()
}

impl TestUser {
    /// None: this process is not root, so it can neither create users nor act as one.
    fn create(home: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: TASKS OF ANOTHER USER NEED A RUN OF ROOT, SO THEY WERE NOT COMPARED WITH ANSIBLE");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rmtest{}n{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let home = home.display().to_string();
        let more = format!("{name}x");
        assert!(run("groupadd", &[&more]));
        let mut user = Self { name: name.clone(), uid: 0, gid: 0 };
        let shell = ["--no-create-home", "--user-group", "--shell", "/bin/sh", "--home-dir", &home, "--groups", &more];
        assert!(run("useradd", &[&shell[..], &[&name]].concat()));
        let all = fs::read_to_string("/etc/passwd").expect("/etc/passwd");
        let line = all.lines().find(|line| line.starts_with(&format!("{name}:"))).expect("the new user");
        let id = |at: usize| line.split(':').nth(at).and_then(|id| id.parse().ok()).expect("an id");
        (user.uid, user.gid) = (id(2), id(3));
        Some(user)
    }

    fn give(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.gid)).expect("an owner");
    }
}

impl Drop for TestUser {
    fn drop(&mut self) {
        run("userdel", &[&self.name]);
        run("groupdel", &[&format!("{}x", self.name)]);
    }
}

fn write_file(path: PathBuf, text: &str, mode: u32) -> PathBuf {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    path
}

fn write_project(dir: &Path, user: &TestUser) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("a mode");
    write_file(dir.join("site.yml"), SITE, 0o600);
    write_file(dir.join("data"), "data\n", 0o600);
    write_file(dir.join("t.j2"), "{{ number + 1 }}\n", 0o600);
    write_file(dir.join("said.sh"), "#!/bin/sh\necho \"$(id -un) $1 $OWN\"\n", 0o700);
    write_file(dir.join("secret"), "secret\n", 0o600);
    write_file(dir.join("closed/secret"), "secret\n", 0o600);
    fs::set_permissions(dir.join("closed"), fs::Permissions::from_mode(0o700)).expect("a mode");
    let own = dir.join("own");
    let parts = ["one", "two"].map(|name| write_file(own.join("parts").join(name), name, 0o644));
    let old = write_file(own.join("old"), "a=1\n", 0o644);
    let gone = write_file(own.join("gone"), "", 0o644);
    for path in parts.iter().chain([&old, &gone, &own.join("parts"), &own]) {
        user.give(path);
    }
    let tar = dir.join("packed.tar").display().to_string();
    assert!(run("tar", &["-C", &dir.display().to_string(), "-cf", &tar, "data"]));
    let repository = own.join("repository").display().to_string();
    let git = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=master"];
    fs::create_dir(&repository).expect("a repository");
    for args in [&["init", "-q"][..], &["add", "f"], &["commit", "-q", "-m", "first"]] {
        if args[0] == "add" {
            write_file(own.join("repository/f"), "f\n", 0o644);
        }
        let date = ("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z");
        let mut command = Command::new("git");
        command.args(git).args(["-C", &repository]).args(args).env(date.0, date.1).env("GIT_AUTHOR_DATE", date.1);
        assert!(command.bounded_output().status.success(), "git {args:?}");
    }
    assert!(run("chown", &["-R", &format!("{}:{}", user.uid, user.gid), &repository]));
}

/// The part of `value` that is compared with `other`: keys that both have. Failed results have only
/// `failed` in common.
fn comparable(value: &Value, other: &Value) -> Value {
    match (value, other) {
        (Value::Object(map), Value::Object(other)) => {
            let fails = map.get("failed") == Some(&json!(true));
            let is_kept = |key: &str| key == "failed" || !fails && (key == "stat" || KEYS.contains(&key));
            let kept = map.iter().filter(|(key, _)| is_kept(key) && other.contains_key(*key));
            Value::Object(kept.map(|(key, value)| (key.clone(), comparable(value, &other[key]))).collect())
        }
        // Ansible keeps the last newline of some outputs.
        (Value::String(text), _) => json!(text.trim_end()),
        (value, _) => value.clone(),
    }
}

/// Mode, owner, group and content of everything below a directory, by path.
fn tree(top: &Path) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            let name = entry.strip_prefix(top).expect("below it").display().to_string();
            if name.contains(".git") || name.starts_with("repository") || name.starts_with(".ansible") {
                continue;
            }
            let meta = fs::symlink_metadata(&entry).expect("metadata");
            let content = match meta.is_file() {
                true => fs::read_to_string(&entry).unwrap_or_default(),
                false => String::new(),
            };
            // A host name in known_hosts may be hashed with a salt.
            let content = if name.ends_with("known_hosts") { content.lines().count().to_string() } else { content };
            out.insert(name, format!("{:o} {}:{} {content}", meta.mode(), meta.uid(), meta.gid()));
            if meta.is_dir() {
                open.push(entry);
            }
        }
    }
    out
}

#[test]
fn tasks_of_another_user_do_what_they_do_with_ansible() {
    let Some(bin) = ansible_dir() else { return };
    let (native, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let home = tempfile::tempdir().expect("a directory");
    let Some(user) = TestUser::create(home.path()) else { return };
    user.give(home.path());
    write_project(native.path(), &user);
    write_project(other.path(), &user);
    let mut homes = Vec::new();
    let sudo = Command::new("sudo").arg("-V").output().is_ok();
    for round in ["first", "again"] {
        for (dir, is_remoor) in [(native.path(), true), (other.path(), false)] {
            for entry in fs::read_dir(home.path()).expect("the home").flatten() {
                let _left_of_the_other = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
            }
            let vars = json!({"dir": dir, "remoor_state_dir": dir.join("state"), "user": user.name});
            let mut command = site_command(&bin, is_remoor, dir, &vars);
            command.env("ANSIBLE_BECOME_METHOD", if sudo { "sudo" } else { "su" }).env("ANSIBLE_PIPELINING", "1");
            command.env_remove("OWN").env_remove("LOGNAME");
            let done = command.bounded_output();
            let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{round}: {text}");
            homes.push(tree(home.path()));
        }
        let results = |dir: &Path| -> BTreeMap<String, Value> {
            let text = fs::read_to_string(dir.join("results.json")).expect("results");
            let text = text.replace(&dir.display().to_string(), "DIR");
            serde_json::from_str(&text).expect("JSON")
        };
        let (ours, theirs) = (results(native.path()), results(other.path()));
        let differing: Vec<String> = theirs
            .iter()
            .map(|(name, theirs)| (name, comparable(&ours[name], theirs), comparable(theirs, &ours[name]), &ours[name]))
            .filter(|(_, ours, theirs, _)| ours != theirs)
            .map(|(name, ours, theirs, all)| format!("{name}:\n  remoor  {ours}\n  ansible {theirs}\n  {all}\n"))
            .collect();
        assert!(differing.is_empty(), "{round}: {}", differing.concat());
        let failed = ours.values().filter(|result| result["failed"] == true).count();
        assert_eq!(failed, 7, "{round}: what the user may not do");
        assert_eq!(tree(&native.path().join("own")), tree(&other.path().join("own")), "{round}");
        let (theirs, ours) = (homes.pop(), homes.pop());
        assert_eq!(ours, theirs, "{round}");
        assert!(!native.path().join("new").exists(), "{round}");
        let left: Vec<_> = fs::read_dir("/tmp").into_iter().flatten().flatten().collect();
        let owned = |entry: &&fs::DirEntry| entry.metadata().is_ok_and(|meta| meta.uid() == user.uid);
        let ours = |entry: &&fs::DirEntry| entry.file_name().to_string_lossy().contains("remoor");
        assert_eq!(left.iter().filter(owned).filter(ours).count(), 0, "a file of a task was left behind");
    }
}
