//! Tests options and results of modules against Ansible's documentation. `set_b` tests more
//! modules.

use super::*;

/// Runs tasks (with their indent), and returns the directory.
fn run_tasks(files: &[(&str, &str)], text: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let site = format!("- hosts: all\n  tasks:\n{text}");
    let mut all = vec![("site.yml", site.as_str())];
    all.extend(files);
    go(&plan(dir.path(), &all), &options(dir.path())).assert_success();
    dir
}

fn faults(text: &str) -> Vec<String> {
    let host = HostContext { name: "w1".into(), group: "web".into(), vars: Map::new(), ..HostContext::default() };
    let set = BTreeMap::from([("site.yml".to_owned(), format!("- hosts: all\n  tasks:\n{text}").into_bytes())]);
    let compiled = compile(&FileSet(set), "site.yml", &host, &CompileOptions::default());
    compiled.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn lineinfile_as_ansible_has_it() {
    for (before, options, after) in [
        ("a=1\nb\na=2\n", "regexp: ^a=, line: a=3", "a=1\nb\na=3\n"),
        ("a=1\nb\na=2\n", "regexp: ^a=, line: a=3, firstmatch: yes", "a=3\nb\na=2\n"),
        ("a\nb\nc\n", "regexp: ^x, line: x, insertafter: ^a", "a\nx\nb\nc\n"),
        ("a\nb\nc\n", "regexp: ^b, line: x, insertafter: ^a", "a\nx\nc\n"),
        ("a\nb\na\n", "line: x, insertafter: ^a", "a\nb\na\nx\n"),
        ("a\nb\na\n", "line: x, insertafter: ^a, firstmatch: yes", "a\nx\nb\na\n"),
        ("a\nb\na\n", "line: x, insertbefore: ^a", "a\nb\nx\na\n"),
        ("a\nb\n", "line: x, insertbefore: ^none", "a\nb\nx\n"),
        ("a\nb\n", "line: x, insertbefore: BOF", "x\na\nb\n"),
        ("a\nb\n", "line: x, insertafter: EOF", "a\nb\nx\n"),
        ("a", "line: x", "a\nx\n"),
        ("a\nx", "line: x", "a\nx\n"),
        ("a\nx\n", "line: x, regexp: ^none", "a\nx\n"),
        ("", "line: x", "x\n"),
        ("k = 1\n", "regexp: '^(k) = (\\d)', line: '\\2 is \\g<1>', backrefs: yes", "1 is k\n"),
        ("k = 1\n", "regexp: ^none, line: x, backrefs: yes", "k = 1\n"),
        ("a.b\naxb\n", "search_string: a.b, line: x", "x\naxb\n"),
        ("a\nb\na\n", "line: a, state: absent", "b\n"),
        ("a1\nb\na2\n", "regexp: ^a, state: absent", "b\n"),
        ("a.b\naxb\n", "search_string: a.b, state: absent", "axb\n"),
        ("a\r\n", "line: a", "a\n"),
        // A brace without a count is literal, as in Python.
        ("http {\n}\n", "line: '  x;', insertafter: '^http {'", "http {\n  x;\n}\n"),
        ("a{1}\n", "regexp: '^a\\{1}$', line: x", "x\n"),
    ] {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("f"), before).unwrap();
        let tasks = tasks(dir.path(), &format!("    - lineinfile: {{path: '{{{{ dir }}}}/f', {options}}}\n"));
        let first = go(&tasks, &self::options(dir.path())).assert_success();
        assert_eq!(std::fs::read_to_string(dir.path().join("f")).unwrap(), after, "{before:?} {options}");
        assert_eq!(first.end.changed, u32::from(before != after), "{before:?} {options}");
        assert_eq!(go(&tasks, &self::options(dir.path())).assert_success().end.changed, 0, "{options}");
    }
}

#[test]
fn copies_of_files_and_directories() {
    let files = [("files/tree/a", "A"), ("files/tree/sub/b", "B"), ("files/one", "1")];
    let dir = run_tasks(
        &files,
        "
    - {copy: {src: tree, dest: '{{ dir }}/whole', mode: '0640', directory_mode: '0750'}, register: r}
    - {assert: {that: [r is changed, r.state == 'directory', r.dest == dir ~ '/whole']}}
    - {copy: {src: tree/, dest: '{{ dir }}/inside'}}
    - {copy: {src: tree/, dest: '{{ dir }}/inside'}, register: again}
    - {assert: {that: again is not changed}}
    - {copy: {src: one, dest: '{{ dir }}/new/dir/'}, register: o}
    - assert:
        that:
          - o.checksum == '356a192b7913b04c54574d18c28d46e6395428ab'
          - o.md5sum == 'c4ca4238a0b923820dcc509a6f75849b'
          - o.mode == '0644' and o.size == 1 and o.state == 'file' and o.dest == dir ~ '/new/dir/one'
    - {copy: {src: one, dest: '{{ dir }}/sum', checksum: 0000}, register: bad, ignore_errors: yes}
    - {copy: {src: one, dest: '{{ dir }}/sum', checksum: '{{ o.checksum }}'}}
    - {file: {src: a, dest: '{{ dir }}/inside/link', state: link}}
    - {file: {path: '{{ dir }}/inside/sub/b', mode: '0600'}}
    - {copy: {src: '{{ dir }}/inside/', dest: '{{ dir }}/remote', remote_src: yes, local_follow: no}}
    - {copy: {src: '{{ dir }}/inside', dest: '{{ dir }}/remote', remote_src: yes, local_follow: no}}
    - {copy: {src: '{{ dir }}/inside/', dest: '{{ dir }}/remote', remote_src: yes, local_follow: no}, register: same}
    - {copy: {src: '{{ dir }}/inside/sub/b', dest: '{{ dir }}/kept', remote_src: yes, mode: preserve}}
    - {copy: {content: new, dest: '{{ dir }}/kept', force: no}, register: forced}
    - {copy: {content: new, dest: '{{ dir }}/kept', backup: yes}, register: b}
    - {copy: {content: {x: [1]}, dest: '{{ dir }}/json'}}
    - {copy: {content: bad, dest: '{{ dir }}/kept', validate: 'grep -q good %s'}, ignore_errors: yes, register: v}
    - {assert: {that: [bad is failed, same is not changed, forced is not changed, v is failed, b.backup_file is match(dir)]}}
    - {stat: {path: '{{ b.backup_file }}'}, register: saved}
    - {assert: {that: [saved.stat.mode == '0600', saved.stat.size == 1]}}
",
    );
    let d = dir.path();
    let read = |name: &str| std::fs::read_to_string(d.join(name)).unwrap();
    let mode = |name: &str| std::fs::metadata(d.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((read("whole/tree/sub/b").as_str(), mode("whole/tree/sub/b")), ("B", 0o640));
    assert_eq!((mode("whole/tree/sub"), mode("whole"), mode("inside/sub")), (0o750, 0o750, 0o755));
    assert_eq!((read("new/dir/one").as_str(), read("sum").as_str(), read("json").as_str()), ("1", "1", "{\"x\": [1]}"));
    assert_eq!((mode("remote/sub/b"), mode("remote/inside/sub/b"), mode("kept")), (0o600, 0o600, 0o600));
    assert_eq!(std::fs::read_link(d.join("remote/link")).unwrap(), Path::new("a"));
    assert_eq!(read("kept"), "new");
}

#[test]
fn templates_with_their_blanks_and_line_ends() {
    let text = "{% if true %}\nx\n  {% endif %}\ny\n";
    let dir = run_tasks(
        &[("templates/t.j2", text)],
        "
    - {template: {src: t.j2, dest: '{{ dir }}/plain'}}
    - {template: {src: t.j2, dest: '{{ dir }}/lstrip', lstrip_blocks: yes}}
    - {template: {src: t.j2, dest: '{{ dir }}/untrimmed', trim_blocks: no}}
    - {template: {src: t.j2, dest: '{{ dir }}/dos', lstrip_blocks: yes, newline_sequence: \"\\r\\n\"}}
",
    );
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("plain"), "x\n  y\n");
    assert_eq!(read("lstrip"), "x\ny\n");
    assert_eq!(read("untrimmed"), "\nx\n  \ny\n");
    assert_eq!(read("dos"), "x\r\ny\r\n");
}

#[test]
fn files_links_and_times() {
    let dir = run_tasks(
        &[],
        "
    - {file: {path: '{{ dir }}/f', state: touch, modification_time: '202001021230.10', access_time: now}}
    - {stat: {path: '{{ dir }}/f'}, register: s}
    - {file: {path: '{{ dir }}/f', state: touch, modification_time: preserve, access_time: preserve}, register: kept}
    - {file: {path: '{{ dir }}/f', modification_time: '2020', modification_time_format: '%Y', state: file}, ignore_errors: yes, register: partial}
    - {file: {path: '{{ dir }}/f', state: touch}, register: touched}
    - {file: {path: '{{ dir }}/empty', state: directory}}
    - {file: {path: '{{ dir }}/empty', src: f, state: link}, ignore_errors: yes, register: refused}
    - {file: {path: '{{ dir }}/empty', src: f, state: link, force: yes, mode: '0600'}, register: linked}
    - {file: {path: '{{ dir }}/full/x', state: directory}}
    - {file: {path: '{{ dir }}/full', src: f, state: link, force: yes}, ignore_errors: yes, register: full}
    - {file: {path: '{{ dir }}/h', src: '{{ dir }}/f', state: hard}, register: hard}
    - {file: {path: '{{ dir }}/f', recurse: yes, state: touch}, ignore_errors: yes, register: recurse}
    - {stat: {path: '{{ dir }}/f', checksum_algorithm: sha256}, register: st}
    - {stat: {path: '{{ dir }}/empty'}, register: l}
    - {stat: {path: '{{ dir }}/empty', follow: yes}, register: lf}
    - assert:
        that:
          - s.stat.mtime | int | string != '0' and kept is not changed and touched is changed
          - refused is failed and linked is changed and full is failed and hard is changed and recurse is failed
          - hard.state == 'hard' and linked.state == 'link' and linked.src == 'f'
          - st.stat.nlink == 2 and st.stat.mode == '0600' and st.stat.wusr and not st.stat.woth and not st.stat.isuid
          - st.stat.checksum == 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
          - st.stat.pw_name is defined and st.stat.blocks is defined and st.stat.readable and not st.stat.executable
          - st.stat.mimetype == 'unknown' and st.stat.charset == 'unknown'
          - l.stat.islnk and l.stat.lnk_target == 'f' and l.stat.lnk_source is search('/f$') and lf.stat.isreg
",
    );
    let modified = std::fs::metadata(dir.path().join("f")).unwrap().modified().unwrap();
    assert!(modified.elapsed().unwrap().as_secs() < 100_000);
}

#[test]
fn commands_and_what_they_give() {
    let files = [("files/run.sh", "#!/bin/sh\necho \"$0\" | grep -c remoor; printf '%s|' \"$@\"; pwd\n")];
    run_tasks(
        &files,
        "
    - {command: 'echo $A ${A}x $NOT_SET_ANYWHERE', register: c, environment: {A: one}}
    - {command: 'echo $A', args: {expand_argument_vars: no}, register: raw_words, environment: {A: one}}
    - {command: {argv: [printf, '%s', '$A {{ v }}']}, register: argv, environment: {A: one}, vars: {v: '$A'}}
    - {command: {argv: [printf, '%s', '$A']}, register: plain, environment: {A: one}}
    - {shell: \"printf 'a\\n\\n'\", register: s}
    - {command: \"printf 'a\\\\n\\\\n'\", args: {strip_empty_ends: no}, register: whole}
    - {command: cat, args: {stdin: hi}, register: fed}
    - {command: cat, args: {stdin: hi, stdin_add_newline: no, strip_empty_ends: no}, register: bare}
    - {raw: echo hi, register: r}
    - {script: run.sh 'a b' c, args: {chdir: /}, register: sc}
    - {script: run.sh, args: {executable: /bin/sh -x, creates: /}, register: skipped}
    - {shell: 'exit 3', ignore_errors: yes, register: f}
    - {command: 'true', args: {creates: '/et*'}, register: glob}
    - assert:
        that:
          - c.stdout == 'one onex $NOT_SET_ANYWHERE' and c.cmd[0] == 'echo' and c.rc == 0 and c is changed
          - c.delta is match('0:00:') and c.start is defined and c.end is defined and c.stderr_lines == []
          - raw_words.stdout == '$A'
          - argv.stdout == '$A $A'
          - plain.stdout == 'one'
          - s.stdout == 'a' and whole.stdout == \"a\\n\\n\" and s.cmd is match('printf')
          - fed.stdout == 'hi' and bare.stdout == 'hi'
          - r.stdout == \"hi\\n\" and r.stdout_lines == ['hi'] and r is changed
          - sc.stdout == '1\\na b|c|/'
          - skipped is not changed and skipped.rc == 0 and skipped.stdout is match('skipped, since')
          - f.rc == 3 and f is failed and glob is not changed
",
    );
}

#[test]
fn results_of_modules_that_only_say() {
    run_tasks(
        &[],
        "
    - {debug: {msg: [1, {a: b}]}, register: d}
    - {debug: {var: 'd.msg[1].a'}, register: v}
    - {debug: {msg: x, verbosity: 1}, register: quiet}
    - {assert: {that: [1 == 1, 2 == 3], fail_msg: [nope, way]}, ignore_errors: yes, register: a}
    - {assert: {that: true, success_msg: fine, quiet: yes}, register: ok}
    - {fail: {}, ignore_errors: yes, register: f}
    - {set_fact: {x: 1, y: {z: [1]}, cacheable: no}, register: s}
    - {set_fact: {kept: 2, cacheable: yes}}
    - assert:
        that:
          - d.msg[0] == 1 and d.msg[1].a == 'b' and v['d.msg[1].a'] == 'b' and quiet is skipped
          - a is failed and a.assertion == '2 == 3' and not a.evaluated_to and a.msg == \"nope\\nway\"
          - ok.msg == 'fine' and f.msg == 'Failed as requested from task'
          - s.ansible_facts.y.z == [1] and x == 1 and cacheable is undefined
          - ansible_facts.kept == 2 and kept == 2 and ansible_facts.x is undefined
",
    );
}

#[test]
fn facts_of_a_module_do_not_replace_variables_of_the_play() {
    // ansible-core 2.19 gives the same values.
    run_tasks(
        &[],
        "
    - getent: {database: passwd, key: root}
      vars: {getent_passwd: mine}
    - assert: {that: getent_passwd.root.1 == '0' and ansible_facts.getent_passwd.root.1 == '0'}
    - assert: {that: getent_passwd == 'mine' and ansible_facts.getent_passwd.root.1 == '0'}
      vars: {getent_passwd: mine}
    - set_fact: {getent_passwd: set}
    - getent: {database: passwd, key: root}
    - assert: {that: getent_passwd == 'set'}
",
    );
}

#[test]
fn omitted_arguments_of_a_role_count_as_not_given() {
    run_tasks(
        &[],
        "
    - validate_argument_spec:
        argument_spec:
          port: {type: int}
          all: {type: dict, options: {size: {type: int}}}
        provided_arguments: {port: '{{ nothing | default(omit) }}', all: {size: '{{ nothing | default(omit) }}'}}
    - validate_argument_spec:
        argument_spec: {port: {required: true}}
        provided_arguments: {port: '{{ nothing | default(omit) }}'}
      register: r
      ignore_errors: true
    - assert: {that: r is failed}
",
    );
}

#[test]
fn options_that_exclude_each_other_may_be_omitted() {
    run_tasks(
        &[],
        "
    - copy: {content: '{{ item.content | default(omit) }}', src: '{{ item.src | default(omit) }}', dest: '{{ dir }}/c'}
      loop: [{content: a}]
    - copy: {content: '{{ item.content | default(omit) }}', src: '{{ item.src | default(omit) }}', dest: '{{ dir }}/c'}
      loop: [{content: a, src: b}]
      register: r
      ignore_errors: true
    - assert: {that: [r is failed, \"'not both' in r.results[0].msg\"]}
",
    );
}

#[test]
fn an_argument_whose_name_is_no_name_of_a_variable_is_not_evaluated() {
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all\n  tasks:\n    - validate_argument_spec: {argument_spec: {foo-bar: {choices: [x]}}}\n";
    let files = FileSet([("site.yml".to_owned(), text.as_bytes().to_vec())].into());
    let host = super::delegation::make_host("w1", &json!({"foo-bar": "x", "foo": 5, "bar": 3, "hostvars": {}}));
    let plan = compile(&files, "site.yml", &host, &CompileOptions::default()).unwrap().plan;
    go(&plan, &options(dir.path())).assert_success();
}

#[test]
fn options_that_are_not_there_are_refused_by_name() {
    for (task, want) in [
        ("copy: {src: a, dest: /b, decrypt: yes}", ""),
        ("file: {path: /a, attributes: +i}", "`attributes` of file is not part of the language"),
        ("lineinfile: {path: /a, line: b, unsafe_writes: yes, setype: etc_t}", ""),
        ("find: {paths: /a, setype: etc_t}", "unknown option `setype` of find"),
        ("apt_repository: {repo: 'ppa:a/b'}", "the value `ppa:a/b` of `repo` of apt_repository is not part"),
        (
            "lineinfile: {path: /a, line: b, insertbefore: x, insertafter: y}",
            "`insertbefore` or `insertafter`, not both",
        ),
        ("command: 'true warn=no'", ""),
        ("command: 'true warn=yes'", "`warn` of command"),
        ("set_fact: {a: 1, cacheable: yes}", ""),
        ("apt: {name: a, policy_rc_d: 101}", "`policy_rc_d` of apt"),
        ("apt: {name: a, state: newest}", "`newest` is not a valid `state` of apt"),
        ("yum: {name: a, installroot: /b}", "`installroot` of yum"),
        ("stat: {path: /a, checksum_algorithm: crc}", "`crc` is not a valid `checksum_algorithm` of stat"),
        ("copy: {content: x, src: y, dest: /z}", "`src` or `content`, not both"),
        ("file: {path: /a, unsafe_writes: no}", ""),
        ("package: {name: a, state: present, enablerepo: epel}", ""),
        ("package: {name: a, state: present, upgrade: dist, nothing: of the kind}", "unknown option `nothing`"),
        ("service: {daemon_reload: yes}", ""),
        ("service: {state: started}", "service needs `name` or `daemon_reload`"),
        ("ansible.posix.sysctl: {name: a, value: 1}", ""),
        ("community.general.sysctl: {name: a, value: 1}", "`community.general.sysctl` is not part"),
        ("lineinfile: {path: /a, line: b, regexp: '^b(?!c)'}", ""),
        ("lineinfile: {path: /a, line: b, regexp: '^b(?!c'}", "pattern of `regexp`"),
        ("debug: {msg: '{{ 5 | vault }}'}", ": filter `vault` is not part of the language"),
    ] {
        let found = faults(&format!("    - {task}\n"));
        let found: Vec<&String> = found.iter().filter(|f| !f.contains("is not in the fleet directory")).collect();
        match want {
            "" => assert!(found.is_empty(), "{task}: {found:?}"),
            want => assert!(found.len() == 1 && found[0].contains(want), "{task}: {found:?}"),
        }
    }
}

/// Makes a program in `dir` that logs its arguments and runs `script`.
fn program(dir: &Path, name: &str, script: &str) {
    let text = format!("#!/bin/sh\necho {name} \"$@\" >> '{}/log'\n{script}\n", dir.display());
    std::fs::write(dir.join(name), text).unwrap();
    std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn packages_are_asked_for_and_only_then_changed() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    program(
        d,
        "dpkg-query",
        "case \"$*\" in *'-- old'*) printf 'old\\tall\\tinstalled\\t1.0-1\\n';; *'-- left'*) printf 'left\\tall\\tconfig-files\\t1\\n';; *'-- both'*) printf 'both\\tall\\tinstalled\\t1\\n';; *'-- far'*) printf 'far\\ts390x\\tinstalled\\t1\\n';; *-f*Package*n) printf 'old\\nolder\\n';; esac",
    );
    program(
        d,
        "apt-cache",
        "case $1 in policy) printf 'old:\\n  Installed: 1.0-1\\n  Candidate: 2.0-1\\n';; pkgnames) printf 'new-a\\nnew-b\\nother\\n';; esac",
    );
    program(
        d,
        "apt-get",
        "case \"$*\" in *upgrade*) echo '0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.';; *autoremove*) echo '0 upgraded, 0 newly installed, 2 to remove and 0 not upgraded.';; *-s*) echo 'Inst fresh (1.0 x [amd64])';; esac",
    );
    let run = |task: &str, check: bool| {
        let _ = std::fs::remove_file(d.join("log"));
        let text = format!("    - apt: {{{task}}}\n      environment: {{PATH: '{{{{ dir }}}}:/usr/bin:/bin'}}\n");
        let ran = go(&tasks(d, &text), &PlaybookRunOptions { check, ..options(d) }).assert_success();
        let log = std::fs::read_to_string(d.join("log")).unwrap_or_default();
        let calls: Vec<String> = log.lines().filter(|l| l.starts_with("apt-get")).map(str::to_owned).collect();
        let tail = |c: &String| c.rsplit("--force-confold ").next().unwrap_or(c).to_owned();
        (ran.end.changed, calls.iter().map(tail).collect::<Vec<_>>().join("; "))
    };
    for (task, changed, called) in [
        ("name: old", 0, ""),
        ("name: [fresh]", 1, "install -- fresh"),
        ("name: fresh, only_upgrade: yes", 0, ""),
        ("name: old=1.0-1", 0, ""),
        ("name: old=1.0*", 0, ""),
        ("name: old=3, allow_downgrade: yes", 1, "--allow-downgrades install -- old=3"),
        ("name: old, state: latest", 1, "install -- old"),
        ("name: 'new-*'", 1, "install -- new-a new-b"),
        ("name: old, state: absent", 1, "remove -- old"),
        ("name: left, state: absent", 0, ""),
        ("name: left, state: absent, purge: yes", 1, "purge -- left"),
        ("name: fresh, state: absent", 0, ""),
        ("name: 'both:s390x'", 1, "install -- both:s390x"),
        ("name: 'both:s390x', state: absent", 0, ""),
        ("name: far", 1, "install -- far"),
        ("name: far, state: absent", 0, ""),
        ("name: 'far:s390x'", 0, ""),
        ("name: 'far:s390x', state: absent", 1, "remove -- far:s390x"),
        ("upgrade: dist", 0, "dist-upgrade"),
        ("autoremove: yes", 1, "--auto-remove autoremove"),
        ("name: src, state: build-dep", 1, "build-dep -- src"),
        ("state: fixed", 1, "--fix-broken install"),
        (
            "name: fresh, default_release: sid, install_recommends: no, fail_on_autoremove: yes",
            1,
            "-o APT::Install-Recommends=no -t sid --no-remove install -- fresh",
        ),
        (
            "name: fresh, dpkg_options: force-confnew",
            1,
            "apt-get -y -q -o DPkg::Lock::Timeout=60 -o Dpkg::Options::=--force-confnew install -- fresh",
        ),
        ("clean: yes", 1, "clean"),
    ] {
        let (had, log) = run(task, false);
        assert_eq!((had, log.as_str()), (changed, called), "{task}");
    }
    assert_eq!(run("name: fresh", true), (1, "-s install -- fresh".into()));
    assert_eq!(
        run("update_cache: yes", false).1,
        "apt-get -q -o DPkg::Lock::Timeout=60 -o APT::Update::Error-Mode=any update"
    );
    let twice = "    - {apt: {name: fresh}, environment: &e {PATH: '{{ dir }}:/usr/bin:/bin'}}\n    - {apt: {name: fresh}, environment: {PATH: '{{ dir }}:/usr/bin:/bin'}}\n".replace("&e ", "");
    let check = go(&tasks(d, &twice), &PlaybookRunOptions { check: true, ..options(d) }).assert_success();
    assert_eq!((check.end.changed, check.end.ok), (1, 1), "{:?}", check.statuses());
}

#[test]
fn what_variables_came_to_is_no_option_unless_the_module_knows_it() {
    for (vars, task, want) in [
        ("x: enable", "service: {name: a, enabled: '{{ x }}'}", "`enabled` of service takes yes or no, found `enable`"),
        (
            "x: removed",
            "lineinfile: {path: '{{ dir }}/f', line: a, create: yes, state: '{{ x }}'}",
            "is not a valid `state` of lineinfile",
        ),
        ("x: null", "copy: {dest: '{{ dir }}/f', content: '{{ x }}'}", "copy needs `src` or `content`"),
        (
            "x: [a]",
            "file: {path: '{{ dir }}/f', state: touch, owner: '{{ x }}'}",
            "`owner` of file takes a text, found a list",
        ),
        ("x: rw-r--r--", "file: {path: '{{ dir }}/f', state: touch, mode: '{{ x }}'}", "is not a file mode"),
    ] {
        let dir = TempDir::new().unwrap();
        let site = format!("- hosts: all\n  vars: {{{vars}}}\n  tasks:\n    - {task}\n");
        let ran = go(&plan(dir.path(), &[("site.yml", &site)]), &options(dir.path()));
        let failure = ran.end.failure.map(|f| f.message).unwrap_or_default();
        assert!(failure.contains(want), "{task}: {failure}");
        assert!(!dir.path().join("f").exists(), "{task}");
        let fixed = site.replace("'{{ x }}'", vars.trim_start_matches("x: "));
        let early = faults(fixed.split_once("  tasks:\n").unwrap().1);
        assert!(early.iter().any(|fault| fault.contains(want)), "{fixed}: {early:?}");
    }
}
