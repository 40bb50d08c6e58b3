//! Tests modules that work on files, and some others. `set_a` tests the rest.

use super::check::{changed_tasks, tree};
use super::*;

/// Runs a task on a file with the content `before`, and returns the new content. Asserts that check
/// mode predicts it and that a second run changes nothing.
fn edit_file(task: &str, before: &str) -> String {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("f"), before).unwrap();
    let plan = tasks(d, &format!("    - {task}\n"));
    let check = go(&plan, &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(std::fs::read_to_string(d.join("f")).unwrap(), before, "{task}");
    let run = go(&plan, &options(d)).assert_success();
    assert_eq!(changed_tasks(&check), changed_tasks(&run), "{task}");
    assert_eq!(go(&plan, &options(d)).assert_success().end.changed, 0, "{task} again");
    let after = std::fs::read_to_string(d.join("f")).unwrap();
    assert_eq!(run.end.changed, u32::from(after != before), "{task}");
    after
}

#[test]
fn blocks() {
    let (b, e) = ("# BEGIN ANSIBLE MANAGED BLOCK\n", "# END ANSIBLE MANAGED BLOCK\n");
    for (options, before, after) in [
        ("block: x", "a\n".to_owned(), format!("a\n{b}x\n{e}")),
        ("block: x", "a".to_owned(), format!("a\n{b}x\n{e}")),
        ("block: \"y\\nz\\n\"", format!("a\n{b}x\n{e}c\n"), format!("a\n{b}y\nz\n{e}c\n")),
        ("block: x, insertbefore: ^c", "a\nc\nc\n".to_owned(), format!("a\nc\n{b}x\n{e}c\n")),
        ("block: x, insertafter: ^a", "a\nc\n".to_owned(), format!("a\n{b}x\n{e}c\n")),
        ("block: x, insertbefore: BOF", "a\n".to_owned(), format!("{b}x\n{e}a\n")),
        ("block: ''", format!("a\n{b}x\n{e}c\n"), "a\nc\n".to_owned()),
        ("state: absent", format!("a\n{b}x\n{e}"), "a\n".to_owned()),
        ("state: absent", "a\n".to_owned(), "a\n".to_owned()),
        (
            "block: x, marker: '<{mark}>', marker_begin: in, marker_end: out",
            "a\n".to_owned(),
            "a\n<in>\nx\n<out>\n".to_owned(),
        ),
        (
            "block: x, prepend_newline: yes, append_newline: yes, insertafter: ^a",
            "a\nc\n".to_owned(),
            format!("a\n\n{b}x\n{e}\nc\n"),
        ),
    ] {
        assert_eq!(
            edit_file(&format!("blockinfile: {{path: '{{{{ dir }}}}/f', {options}}}"), &before),
            after,
            "{options}"
        );
    }
}

#[test]
fn replacements() {
    for (options, before, after) in [
        ("regexp: 'b+', replace: x", "abba b\n", "axa x\n"),
        ("regexp: '^(a)(\\d)$', replace: '\\2\\1'", "a1\nba2\na3\n", "1a\nba2\n3a\n"),
        ("regexp: '^#.*\\n'", "#x\na\n#y\n", "a\n"),
        ("regexp: a, replace: x, after: '<', before: '>'", "a<aa>a\n", "a<xx>a\n"),
        ("regexp: a, replace: x, after: '<'", "a<a\na\n", "a<x\nx\n"),
        ("regexp: a, replace: x, before: '>'", "a>a\n", "x>a\n"),
        ("regexp: a, replace: x, after: none", "a\n", "a\n"),
    ] {
        assert_eq!(edit_file(&format!("replace: {{path: '{{{{ dir }}}}/f', {options}}}"), before), after, "{options}");
    }
}

#[test]
fn options_of_sections() {
    for (options, before, after) in [
        ("section: s, option: a, value: 1", "", "\n[s]\na = 1\n"),
        ("section: s, option: a, values: [x, y]", "[s]\nb = 1\na = y\n#a = 0\n", "[s]\nb = 1\na = y\na = x\n"),
        ("section: s, option: a, value: 1", "[s]\na = 1\n;a = 2\n", "[s]\na = 1\n"),
        ("section: s, option: a, allow_no_value: yes", "[s]\n#a = 1\n", "[s]\na\n"),
        ("section: s, allow_no_value: yes", "[r]\n", "[r]\n[s]\n"),
        ("section: s, option: a, value: 2", "[s]\na = 1\nb = 1\n[t]\na = 1\n", "[s]\na = 2\nb = 1\n[t]\na = 1\n"),
        ("section: s, option: a, value: 2, no_extra_spaces: yes", "[s]\n", "[s]\na=2\n"),
        ("section: s, option: a, value: 2", "[s]\n#a = 1\n", "[s]\na = 2\n"),
        ("section: s, option: a, value: 2, modify_inactive_option: no", "[s]\n#a = 1\n", "[s]\na = 2\n#a = 1\n"),
        ("section: s, option: c, value: 1", "[s]\nb = 1\n\n[t]\n", "[s]\nb = 1\nc = 1\n\n[t]\n"),
        ("section: s, option: a, state: absent", "[s]\na = 1\na = 2\nb = 1\n", "[s]\nb = 1\n"),
        ("section: s, option: a, value: 2, exclusive: no, state: absent", "[s]\na = 1\na = 2\n", "[s]\na = 1\n"),
        ("section: s, option: a, value: 2, exclusive: no", "[s]\na = 1\n", "[s]\na = 1\na = 2\n"),
        ("section: s, option: a, values: [x, y]", "[s]\na = 1\na = 2\na = 3\n", "[s]\na = x\na = y\n"),
        ("section: s, state: absent", "[r]\nx = 1\n[s]\na = 1\n[t]\n", "[r]\nx = 1\n[t]\n"),
        ("section: s, option: flag, allow_no_value: yes", "[s]\n", "[s]\nflag\n"),
        ("section: '', option: top, value: 1", "x = 1\n[s]\n", "x = 1\ntop = 1\n[s]\n"),
        ("section: s, option: a, value: '1', ignore_spaces: yes", "[s]\na=1\n", "[s]\na=1\n"),
    ] {
        assert_eq!(edit_file(&format!("ini_file: {{path: '{{{{ dir }}}}/f', {options}}}"), before), after, "{options}");
    }
}

#[test]
fn keys_and_jobs() {
    let key = |options: &str, before: &str| {
        edit_file(
            &format!("authorized_key: {{user: root, path: '{{{{ dir }}}}/f', manage_dir: no, {options}}}"),
            before,
        )
    };
    assert_eq!(key("key: ssh-ed25519 AAAA me", "ssh-rsa BBBB you\n"), "ssh-rsa BBBB you\nssh-ed25519 AAAA me\n");
    assert_eq!(key("key: ssh-rsa BBBB, key_options: no-pty", "ssh-rsa BBBB you\n"), "no-pty ssh-rsa BBBB you\n");
    assert_eq!(key("key: ssh-rsa BBBB, comment: me", "ssh-rsa BBBB you\n"), "ssh-rsa BBBB me\n");
    assert_eq!(key("key: ssh-rsa BBBB, state: absent", "# x\nssh-rsa BBBB you\nssh-rsa CC\n"), "# x\nssh-rsa CC\n");
    assert_eq!(key("key: ssh-rsa CC, exclusive: yes", "# x\nssh-rsa BBBB you\nssh-rsa CC\n"), "ssh-rsa CC\n");
    let cron =
        |options: &str, before: &str| edit_file(&format!("cron: {{cron_file: '{{{{ dir }}}}/f', {options}}}"), before);
    let one = "#Ansible: a\n5 * * * * root true\n";
    assert_eq!(cron("name: a, job: 'true', minute: 5", ""), one);
    assert_eq!(cron("name: a, job: 'false', special_time: daily, user: www", one), "#Ansible: a\n@daily www false\n");
    assert_eq!(cron("name: a, job: 'true', minute: 5, disabled: yes", one), "#Ansible: a\n#5 * * * * root true\n");
    assert_eq!(cron("name: b, job: x", one), format!("{one}#Ansible: b\n* * * * * root x\n"));
    assert_eq!(cron("name: a, state: absent", &format!("{one}#Ansible: b\n1 x\n")), "#Ansible: b\n1 x\n");
    assert_eq!(cron("name: PATH, env: yes, job: /bin", one), format!("PATH=\"/bin\"\n{one}"));
    assert_eq!(cron("name: PATH, env: yes, state: absent", &format!("PATH=\"/bin\"\n{one}")), one);
}

#[test]
fn looking_and_small_ones() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let text = "
    - {file: {path: '{{ dir }}/t/sub/deep', state: directory}}
    - {copy: {content: hello, dest: '{{ dir }}/t/{{ item }}', mode: '0640'}, loop: [a.log, b.txt, .hidden.log, sub/c.log, sub/deep/d.log]}
    - {find: {paths: '{{ dir }}/t', patterns: '*.log'}, register: flat}
    - {find: {paths: ['{{ dir }}/t', /nowhere/at/all], patterns: '*.log', recurse: yes, hidden: yes}, register: all}
    - {find: {paths: '{{ dir }}/t', recurse: yes, depth: 2, patterns: ['^[ac]\\.log$'], use_regex: yes, get_checksum: yes}, register: regex}
    - {find: {paths: '{{ dir }}/t', file_type: directory, recurse: yes, excludes: deep}, register: dirs}
    - {find: {paths: '{{ dir }}/t', contains: 'hel', size: -5, age: -1h, mode: '0640'}, register: held}
    - {find: {paths: '{{ dir }}/t', contains: 'ello'}, register: inside}
    - {find: {paths: '{{ dir }}/t', size: 1k}, register: large}
    - {slurp: {src: '{{ dir }}/t/b.txt'}, register: read}
    - {tempfile: {path: '{{ dir }}', prefix: x., suffix: .y, state: directory}, register: temp}
    - {getent: {database: passwd, key: root}}
    - {getent: {database: passwd, key: nobody-of-that-name, fail_key: no}, register: nobody}
    - {ping: {}, register: p}
    - {setup: {filter: 'ansible_host*'}, register: facts}
    - {file: {path: '{{ item.path }}', state: absent}, loop: '{{ flat.files }}'}
    - assert:
        that:
          - flat.matched == 1 and flat.files[0].path == dir ~ '/t/a.log' and flat.files[0].mode == '0640' and flat is not changed
          - all.matched == 4 and all.skipped_paths | length == 1
          - regex.matched == 2 and regex.files[0].checksum == 'aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d'
          - dirs.matched == 1 and held.matched == 2 and inside.matched == 0 and large.matched == 0
          - (read.content | b64decode) == 'hello' and read.encoding == 'base64'
          - temp.path is match(dir ~ '/x\\.') and temp.path is search('\\.y$') and temp.state == 'directory' and temp is changed
          - getent_passwd is defined and nobody is not failed and p.ping == 'pong'
          - facts.ansible_facts.ansible_hostname is defined and facts.ansible_facts.ansible_kernel is undefined
";
    let plan = tasks(d, text);
    let before = tree(d);
    let check = go(&plan, &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(tree(d), before);
    assert_eq!(check.end.unknown, 1, "only what the temporary directory is called: {:?}", check.statuses());
    let run = go(&plan, &options(d)).assert_success();
    assert_eq!(changed_tasks(&check), changed_tasks(&run));
    assert!(!d.join("t/a.log").exists());
}

#[test]
fn the_kernels_parameters_and_what_the_node_has() {
    let sysctl = |options: &str, before: &str| {
        edit_file(&format!("sysctl: {{sysctl_file: '{{{{ dir }}}}/f', reload: no, name: net.a.b, {options}}}"), before)
    };
    assert_eq!(sysctl("value: 1", "x.y = 2\n"), "x.y = 2\nnet.a.b=1\n");
    assert_eq!(sysctl("value: 1", "net.a.b = 0\nnet/a/b=2\n# net.a.b=3\n"), "net.a.b=1\n# net.a.b=3\n");
    assert_eq!(sysctl("value: '1  2'", "net.a.b = 1\t2\n"), "net.a.b = 1\t2\n");
    assert_eq!(sysctl("state: absent", "net.a.b=1\nx=1\n"), "x=1\n");
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let program = |name: &str, text: &str| {
        std::fs::write(d.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(d.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    program(
        "systemctl",
        "case $1 in list-units) echo 'a.service loaded active running A'; echo 'b.service loaded inactive dead B';; list-unit-files) echo 'a.service enabled enabled'; echo 'c.service disabled enabled';; show) echo LoadState=loaded; echo ActiveState=inactive; echo UnitFileState=disabled;; esac",
    );
    program("dpkg-query", "printf 'a\\t1.0\\tamd64\\tnet\\tinstalled\\nb\\t2\\tall\\tnet\\tconfig-files\\n'");
    let text = "
- hosts: all
  environment: {PATH: '{{ dir }}:/usr/bin:/bin'}
  tasks:
    - {service: {name: c, state: started}}
    - {service_facts: {}}
    - {package_facts: {manager: auto}}
    - {modprobe: {name: no-such-module-here}}
    - {modprobe: {name: no_such_module_here}}
    - {hostname: {name: another.name.here}}
    - {hostname: {name: another.name.here}}
    - assert:
        that:
          - services['a.service'].state == 'running' and services['a.service'].status == 'enabled'
          - services['b.service'].state == 'stopped' and services['c.service'].state == 'running'
          - packages.a[0].version == '1.0' and packages.b is undefined and ansible_hostname == 'another'
          - ansible_fqdn == 'another.name.here' and ansible_domain == 'name.here'
";
    let plan = plan(d, &[("site.yml", text)]);
    let check = go(&plan, &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!(check.statuses().into_iter().map(|(_, s)| s).collect::<Vec<_>>(), {
        use Status::*;
        [Changed, Ok, Ok, Changed, Ok, Changed, Ok, Ok]
    });
}

#[test]
fn a_value_that_the_kernel_refuses_is_not_written_to_the_file() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    // As procps: an unknown parameter is no error with -e, a refused value always is one.
    let program = "#!/bin/sh\ncase \"$*\" in *-e*missing*) exit 0;; *-p*) exit 0;; *) echo 'sysctl: permission denied' >&2; exit 1;; esac\n";
    std::fs::write(d.join("sysctl"), program).unwrap();
    std::fs::set_permissions(d.join("sysctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |name: &str, lenient: bool| {
        let _ = std::fs::remove_file(d.join("f"));
        let task = format!(
            "sysctl: {{name: {name}, value: 12345, sysctl_set: true, sysctl_file: '{{{{ dir }}}}/f', ignoreerrors: {lenient}}}"
        );
        let text =
            format!("- hosts: all\n  environment: {{PATH: '{{{{ dir }}}}:/usr/bin:/bin'}}\n  tasks:\n    - {task}\n");
        let ran = go(&plan(d, &[("site.yml", &text)]), &options(d));
        (ran.end.failure.map(|f| f.message).unwrap_or_default(), d.join("f").exists())
    };
    for lenient in [false, true] {
        let (message, written) = run("kernel.pid_max", lenient);
        assert!(message.contains("setting kernel.pid_max failed") && !written, "{message}");
    }
    assert_eq!(run("net.missing", true), (String::new(), true));
    assert!(!run("net.missing", false).1);
}

#[test]
fn the_pretty_and_the_static_hostname_are_set_before_the_current_one() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("hostnamectl"), format!("#!/bin/sh\necho \"$*\" >> {}/log\n", d.display())).unwrap();
    std::fs::set_permissions(d.join("hostnamectl"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "
- hosts: all
  environment: {PATH: '{{ dir }}:/usr/bin:/bin'}
  tasks:
    - {hostname: {name: remoor-test.name.here}}
";
    go(&plan(d, &[("site.yml", text)]), &options(d)).assert_success();
    let log = std::fs::read_to_string(d.join("log")).unwrap();
    let want =
        ["--pretty --static", "--transient"].map(|kind| format!("{kind} set-hostname -- remoor-test.name.here\n"));
    assert_eq!(log, want.concat());
}

/// Compares the commands that would be run. Check mode runs none of them.
#[test]
fn accounts_are_made_and_changed_as_the_options_say() {
    let dir = TempDir::new().unwrap();
    let said = |task: &str| {
        let site = format!("- hosts: all\n  tasks:\n    - {{{task}}}\n");
        let ran =
            go(&plan(dir.path(), &[("site.yml", &site)]), &PlaybookRunOptions { check: true, ..options(dir.path()) });
        let told = ran.events.iter().find_map(|e| match e {
            RunEvent::Task(done) => Some(done.msg.clone()),
            _ => None,
        });
        told.unwrap()
    };
    let day = 86_400 * 365;
    for (task, want) in [
        (
            "group: {name: remoor-new, gid: 4242, non_unique: yes, system: yes}",
            "groupadd --system --non-unique --gid 4242",
        ),
        ("group: {name: remoor-new, gid_min: 5000, gid_max: 5999}", "groupadd --key GID_MIN=5000 --key GID_MAX=5999"),
        ("group: {name: remoor-new, state: absent, force: yes}", ""),
        ("group: {name: daemon, state: absent, force: yes}", "groupdel --force"),
        (
            "user: {name: remoor-new, uid: 0, non_unique: yes, skeleton: /etc/skel, umask: '077', home: /srv/n}",
            "useradd --non-unique --uid 0 --home /srv/n --create-home --skel /etc/skel --key UMASK=077",
        ),
        (
            "user: {user: remoor-new, password: '$6$x', create_home: no, password_lock: no}",
            "useradd --no-create-home, password set",
        ),
        ("user: {name: remoor-new, generate_ssh_key: yes}", "useradd --create-home, SSH key created"),
        // The group tty exists.
        ("user: {name: tty, shell: /bin/sh}", "useradd --shell /bin/sh --no-user-group --create-home"),
        ("user: {name: tty, group: daemon}", "useradd --gid daemon --create-home"),
        ("user: {name: daemon, home: /srv/d, move_home: yes}", "usermod --home /srv/d --move-home"),
        (&format!("user: {{name: daemon, expires: {day}}}"), "usermod --expiredate 1971-01-01"),
        ("user: {name: daemon, expires: -1}", ""),
        ("user: {name: daemon, password: '$6$x', update_password: on_create}", ""),
    ] {
        assert_eq!(said(task), want, "{task}");
    }
}

#[test]
fn units_are_asked_for_and_told_over_dbus() {
    use remoor_host::systemd::testing::{empty, job, properties, stand_in};
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = log.clone();
    let systemd = stand_in(d, move |member, args, serial| {
        seen.lock().unwrap().push(format!("{member} {}", args.join(" ")));
        match (member, args.last().map(String::as_str).unwrap_or_default()) {
            ("GetAll", path) if path.ends_with("none_2eservice") => properties(serial, &[("LoadState", "not-found")]),
            ("GetAll", path) if path.ends_with("bad_2eservice") => {
                let of = [("LoadState", "loaded"), ("ActiveState", "failed"), ("Result", "exit-code")];
                properties(serial, &of)
            }
            ("GetAll", _) => {
                let of = [("LoadState", "loaded"), ("ActiveState", "inactive"), ("UnitFileState", "disabled")];
                properties(serial, &of)
            }
            ("StartUnit", _) if args[0] == "bad.service" => job(serial, "/job/2", "failed", false),
            ("StartUnit", _) => job(serial, "/job/1", "done", true),
            _ => empty(serial),
        }
    });
    let options = PlaybookRunOptions { systemd, ..options(d) };
    let run = |task: &str, check: bool| {
        let text = format!("- hosts: all\n  environment: {{PATH: '{{{{ dir }}}}'}}\n  tasks:\n    - {task}\n");
        let ran = go(&plan(d, &[("site.yml", &text)]), &PlaybookRunOptions { check, ..options.clone() });
        let said = std::mem::take(&mut *log.lock().unwrap());
        (ran.end.changed, ran.end.failure.map(|f| f.message).unwrap_or_default(), said)
    };
    let shown = |unit: &str| format!("GetAll  /org/freedesktop/systemd1/unit/{unit}_2eservice");
    let start = "service: {name: web, state: started, enabled: yes, daemon_reload: yes}";
    assert_eq!(run(start, true), (1, String::new(), vec![shown("web")]));
    let all = [
        "Reload ".to_owned(),
        shown("web"),
        "EnableUnitFiles web.service false false".into(),
        "Reload ".into(),
        "Subscribe ".into(),
        "StartUnit web.service replace".into(),
    ];
    assert_eq!(run(start, false), (1, String::new(), all.to_vec()));
    let (_, _, said) = run("systemd: {name: web, state: started, no_block: yes}", false);
    assert_eq!(said, [shown("web"), "StartUnit web.service replace".into()]);
    assert_eq!(run("systemd: {name: web, state: stopped, enabled: no}", false), (0, String::new(), vec![shown("web")]));
    let (_, why, _) = run("systemd: {name: bad, state: started}", false);
    assert_eq!(why, "start bad.service: the job ended as `failed`, result exit-code");
    let (_, why, _) = run("systemd: {name: none, state: started}", false);
    assert_eq!(why, "Could not find the requested service none: host");
}

/// Runs tasks and asserts conditions on what they register.
fn assert_results(dir: &Path, check: bool, tasks: &str, conditions: &[&str]) {
    let that: Vec<String> = conditions.iter().map(|condition| json!(condition).to_string()).collect();
    let text = format!("- hosts: all\n  tasks:\n{tasks}    - assert: {{that: [{}]}}\n", that.join(", "));
    let ran = go(&plan(dir, &[("site.yml", &text)]), &PlaybookRunOptions { check, ..options(dir) });
    ran.assert_success();
}

#[test]
fn results_have_the_keys_of_ansibles_modules() {
    let dir = TempDir::new().unwrap();
    let d = dir.path().canonicalize().unwrap();
    std::fs::write(d.join("f"), "a\n").unwrap();
    let user = "    - {user: {name: remoor-test-new, comment: Me, groups: [adm, tty], system: true}, register: new}
    - {user: {name: daemon, append: true}, register: old}
    - {user: {name: remoor-test-gone, state: absent}, register: gone}
";
    assert_results(
        &d,
        true,
        user,
        &[
            "new.comment == 'Me' and new.groups == 'adm,tty' and new.system and new.create_home",
            "old.append and not old.move_home and old.comment == 'daemon' and old.groups is undefined",
            "gone.state == 'absent' and gone.force is undefined",
        ],
    );
    let key = "    - authorized_key: {user: root, key: ssh-ed25519 AAAA me, path: '{{ dir }}/keys', manage_dir: false}
      register: r
";
    assert_results(
        &d,
        true,
        key,
        &["r.key == 'ssh-ed25519 AAAA me' and r.state == 'present' and not r.exclusive and r.key_options is none"],
    );
    assert_results(
        &d,
        true,
        "    - {pause: {minutes: 1}, register: r}\n",
        &["r.rc == 0 and r.stdout == 'Paused for 1.0 minutes' and r.delta == 60 and r.user_input == ''"],
    );
    let replace = "    - {replace: {path: '{{ dir }}/f', regexp: a, replace: b}, register: r}\n";
    assert_results(&d, false, replace, &["r.rc == 0 and r is changed"]);
}

#[test]
fn get_url_says_what_failed() {
    let dir = TempDir::new().unwrap();
    let d = dir.path().canonicalize().unwrap();
    std::fs::write(d.join("secret"), "text").unwrap();
    let tasks = "    - {get_url: {url: 'gopher://h/x', dest: '{{ dir }}/n'}, register: other, ignore_errors: true}
    - {get_url: {url: 'file://{{ dir }}/secret', dest: '{{ dir }}/n'}, register: file, ignore_errors: true}
";
    let conditions = [
        "other is failed and 'gopher://h/x' in other.msg and other.elapsed == 0 and other.status_code == -1",
        "file is failed and file.dest == dir ~ '/n' and file.url is search('secret')",
    ];
    for check in [true, false] {
        assert_results(&d, check, tasks, &conditions);
    }
    assert!(!d.join("n").exists());
}

#[test]
fn statistics_are_in_the_registered_result() {
    let dir = TempDir::new().unwrap();
    let text = "    - {set_stats: {data: {a: '{{ 1 + 1 }}', b: x}, per_host: yes}, register: r}
    - {set_stats: {data: {a b: 1}}, register: name, ignore_errors: true}
    - {set_stats: {data: text}, register: text, ignore_errors: true}
    - {set_stats: , register: empty}
    - assert:
        that:
          - \"r.ansible_stats == {'aggregate': true, 'data': {'a': 2, 'b': 'x'}, 'per_host': true} and r is not changed\"
          - name is failed and text is failed and empty.ansible_stats.data == {}
";
    go(&tasks(dir.path(), text), &options(dir.path())).assert_success();
}
