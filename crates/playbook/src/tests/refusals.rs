//! Tasks that cannot be compiled fail when a run reaches them, and are errors only if every run
//! does.

use super::language::{order, run_files};
use super::*;

fn faults(tasks: &str) -> Result<Vec<String>, Vec<String>> {
    let texts = |faults: Vec<remoor_model::Fault>| faults.iter().map(|fault| fault.message.clone()).collect();
    let text = format!("- hosts: all\n  vars: {{on: true, off: false}}\n  tasks:\n{tasks}");
    let part = "- {pacman: {name: x}}\n".to_owned();
    let debian = "- {debug: }\n".to_owned();
    let files = [("site.yml", text), ("part.yml", part.clone()), ("on-Windows.yml", part), ("on-Debian.yml", debian)];
    let files = FileSet(files.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect());
    let host = HostContext { name: "w1".into(), ..HostContext::default() };
    compile(&files, "site.yml", &host, &CompileOptions::default())
        .map(|compiled| texts(compiled.refused))
        .map_err(texts)
}

#[test]
fn a_refused_task_is_an_error_only_if_every_run_reaches_it() {
    for (tasks, certain) in [
        ("  - pacman: {name: x}\n", true),
        ("  - {pacman: {name: x}, when: on}\n", true),
        ("  - {pacman: {name: x}, when: off}\n", false),
        ("  - {pacman: {name: x}, when: ansible_os_family == 'Archlinux'}\n", false),
        ("  - {pacman: {name: x}, when: ansible_check_mode}\n", false),
        ("  - {command: 'true', register: r}\n  - {pacman: {name: x}, when: r is changed}\n", false),
        ("  - {pacman: {name: x}, ignore_errors: true}\n", false),
        ("  - {pacman: {name: '{{ item }}'}, loop: '{{ on | ternary([], [1]) }}'}\n", false),
        ("  - {pacman: {name: x}, tags: never}\n", false),
        ("  - {block: [{pacman: {name: x}}], rescue: [{debug: }]}\n", false),
        ("  - {block: [{pacman: {name: x}}], always: [{debug: }]}\n", true),
        ("  - {debug: {msg: '{{ 1 | nope }}'}, when: [on, '1 is nope']}\n", true),
        ("  - {debug: {msg: '{{ 1 | nope }}'}, when: [off, '1 is nope']}\n", false),
        ("  - {include_tasks: gone.yml, when: off}\n", false),
        ("  - {include_tasks: gone.yml, when: on}\n", true),
        ("  - {command: 'true', notify: nobody}\n", true),
        ("  - {command: 'true', notify: nobody, when: ansible_system == 'Other'}\n", false),
        ("  - {command: 'true', notify: h}\n  handlers: [{name: h, pacman: {name: x}}]\n", true),
        ("  - {command: 'true', notify: h, when: off}\n  handlers: [{name: h, pacman: {name: x}}]\n", false),
    ] {
        let told = faults(tasks);
        assert_eq!(told.is_err(), certain, "{tasks}{told:?}");
        let noted = told.as_ref().is_ok_and(|notes| !notes.is_empty());
        assert_eq!(noted, !certain, "{tasks}{told:?}");
    }
}

#[test]
fn it_is_told_that_no_run_reaches_a_refused_task() {
    for (tasks, possible) in [
        ("  - {pacman: {name: x}, when: off}\n", false),
        ("  - {pacman: {name: x}, when: nobody_sets_this is defined}\n", false),
        ("  - {pacman: {name: x}, loop: []}\n", false),
        ("  - {pacman: {name: x}, when: ansible_os_family == 'Windows'}\n", false),
        (
            "  - {pacman: {name: x}, when: [ansible_hostname == 'x', \"ansible_facts['os_family'] == 'Windows'\"]}\n",
            false,
        ),
        ("  - {pacman: {name: x}, when: ansible_hostname == 'x' and ansible_facts.system == 'Win32NT'}\n", false),
        ("  - block: [{pacman: {name: x}}]\n    when: ansible_os_family in ['Windows', 'FreeBSD']\n", false),
        ("  - {include_tasks: gone.yml, when: off}\n", false),
        (
            "  - {debug: , notify: h}\n  handlers: [{name: h, pacman: {name: x}, when: ansible_system == 'AIX'}]\n",
            false,
        ),
        (
            "  - {debug: , notify: h, when: ansible_system == 'AIX'}\n  handlers: [{name: h, pacman: {name: x}}]\n",
            false,
        ),
        ("  handlers: [{name: h, pacman: {name: x}}]\n", false),
        ("  - {include_tasks: part.yml, when: ansible_os_family == 'Windows'}\n", false),
        (
            "  - {include_tasks: '{{ item }}', when: ansible_os_family == 'Windows', loop: '{{ ansible_mounts }}'}\n",
            false,
        ),
        ("  - {include_tasks: part.yml, when: ansible_os_family == 'Debian'}\n", true),
        (
            "  - {pacman: {name: x}, when: family == 'windows', vars: {family: '{{ ansible_os_family | lower }}'}}\n",
            false,
        ),
        ("  - {debug: , notify: '{{ ansible_hostname }}'}\n  handlers: [{name: h, pacman: {name: x}}]\n", true),
        (
            "  - {debug: , notify: h}\n  handlers: [{name: h, debug: , notify: k}, {name: k, pacman: {name: x}, when: ansible_hostname == 'x'}]\n",
            true,
        ),
        ("  - {pacman: {name: x}, when: ansible_os_family == 'Debian'}\n", true),
        ("  - {pacman: {name: x}, when: ansible_os_family != 'Debian'}\n", true),
        ("  - {pacman: {name: x}, when: ansible_facts.distribution == 'Debian'}\n", true),
        ("  - {pacman: {name: x}, when: ansible_facts.distribution is not defined}\n", true),
        ("  - {command: 'true', register: r}\n  - {pacman: {name: x}, when: r.rc == 1}\n", true),
        ("  - {set_fact: {f: 1}, when: ansible_hostname == 'x'}\n  - {pacman: {name: x}, when: f is defined}\n", true),
        ("  - {pacman: {name: x}, loop: '{{ ansible_mounts }}'}\n", true),
        ("  - {include_tasks: 'gone{{ ansible_system }}.yml', when: ansible_hostname == 'x'}\n", true),
        ("  - {include_tasks: 'on-{{ ansible_os_family }}.yml'}\n", false),
        ("  - {include_tasks: './on-{{ family }}.yml', vars: {family: '{{ ansible_facts.os_family }}'}}\n", false),
        ("  - {include_tasks: 'on-{{ ansible_distribution }}.yml'}\n", true),
        ("  - {pacman: {name: x}, ignore_errors: true}\n", true),
    ] {
        let told = faults(tasks).unwrap();
        assert!(!told.is_empty(), "{tasks}");
        let late = told.iter().all(|note| note.starts_with("this task fails if it is reached: "));
        let never = told.iter().all(|note| note.starts_with("this task could not be run, but no run "));
        assert_eq!((late, never), (possible, !possible), "{tasks}{told:?}");
    }
}

#[test]
fn a_refused_task_fails_by_name_when_it_is_reached() {
    let site = "
- hosts: all
  tasks:
    - block:
        - {name: caught, pacman: {name: '{{ gone }}'}, when: ansible_system == 'Linux', register: r}
        - {name: never, fail: }
      rescue:
        - {name: seen, assert: {that: ['ansible_failed_task.name == \"caught\"', '\"`pacman`\" in ansible_failed_result.msg']}}
    - {name: ignored, copy: {nonsense: 1}, register: r, ignore_errors: true}
    - {name: known, assert: {that: [r is failed, '\"nonsense\" in r.msg']}}
    - {include_tasks: '{{ ansible_system }}.yml'}
    - {name: end, pacman: {name: x}, when: r is failed}
";
    let part = "- {name: skipped, pacman: {name: x}, when: ansible_system == 'Other'}\n- {name: part, debug: }\n";
    let ran = run_files(&[("site.yml", site), ("Linux.yml", part)]);
    let want = ["caught", "seen", "ignored", "known", "include_tasks Linux.yml", "skipped", "part", "end"];
    assert_eq!(ran.statuses().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), want);
    let failure = ran.end.failure.unwrap();
    assert_eq!((failure.task.as_str(), failure.line), ("end", 12));
    assert!(failure.message.contains("module `pacman` is not part of the language"), "{}", failure.message);
    // The facts of the node are known before its first task.
    let early = run_files(&[(
        "site.yml",
        "- hosts: all\n  tasks:\n    - {name: before, command: 'true'}\n    - {pacman: {name: x}, when: ansible_system == 'Linux'}\n",
    )]);
    assert!(order(&early).is_empty() && early.end.failure.unwrap().message.contains("pacman"));
}

#[test]
fn it_is_told_that_ansible_refuses_a_task_too() {
    for (task, in_ansible) in [
        ("command: 'true', notify: nobody", true),
        ("debug: {msg: '{{ 1 | nope }}'}", true),
        ("debug: {msg: '{{ 1 is nope }}'}", true),
        ("copy: {nonsense: 1, content: x, dest: /x}", true),
        // Ansible may find these filters in a collection.
        ("debug: {msg: '{{ 1 | random_mac }}'}", false),
        ("debug: {msg: '{{ 1 | community.general.nope }}'}", false),
        ("copy: {attributes: +i, content: x, dest: /x}", false),
        ("pacman: {name: x}", false),
    ] {
        let told = faults(&format!("  - {{{task}, when: ansible_hostname == 'x'}}\n")).unwrap();
        let note = if in_ansible {
            "this task fails if it is reached, in Ansible too: "
        } else {
            "this task fails if it is reached: "
        };
        assert!(!told.is_empty() && told.iter().all(|text| text.starts_with(note)), "{task}: {told:?}");
    }
}

/// Verified with ansible-core 2.19: these tasks report no change, so nothing searches the handler.
#[test]
fn a_task_that_never_changes_anything_may_notify_no_handler() {
    for task in ["systemd: {daemon_reload: true}", "debug: {msg: x}", "stat: {path: /}"] {
        assert_eq!(faults(&format!("  - {{{task}, notify: nobody}}\n")), Ok(Vec::new()), "{task}");
    }
    for task in ["systemd: {daemon_reload: true, name: x}", "debug: {msg: x}, changed_when: true"] {
        let told = faults(&format!("  - {{{task}, notify: nobody}}\n"));
        assert!(told.is_err_and(|all| all[0].contains("no handler is called `nobody`")), "{task}");
    }
}

#[test]
fn errors_of_a_lookup_do_not_hide_that_only_a_run_knows_its_argument() {
    let tasks = "
    - set_fact: {a: \"{{ query('first_found', names, errors='ignore') }}\"}
      vars: {names: ['{{ ansible_distribution }}.yml']}
    - {pacman: {name: x}, when: 'a == []'}
";
    assert!(faults(tasks).is_ok_and(|notes| !notes.is_empty()));
}

#[test]
fn an_import_may_be_named_by_the_defaults_of_its_role() {
    let files = [
        ("site.yml", "- {hosts: all, roles: [r]}\n"),
        ("roles/r/defaults/main.yml", "kind: first\n"),
        ("roles/r/tasks/main.yml", "- import_tasks: '{{ kind }}/part.yml'\n- import_role: {name: '{{ kind }}'}\n"),
        ("roles/r/tasks/first/part.yml", "- {name: part, debug: }\n"),
        ("roles/first/tasks/main.yml", "- {name: role, debug: }\n"),
    ];
    assert_eq!(order(&run_files(&files)), ["part", "role"]);
}

#[test]
fn delimiters_may_be_variables() {
    let site = "
- hosts: all
  tasks:
    - template:
        {src: t.j2, dest: '{{ dir }}/t', variable_start_string: '{{ begin }}', variable_end_string: '>>', block_start_string: '<%', block_end_string: '%>'}
      vars: {begin: '<<'}
";
    let dir = tempfile::TempDir::new().unwrap();
    let text = "<% if true %>{{ $x }} << dir | length > 0 >><% endif %> {% x %}\n";
    let ran = go(&plan(dir.path(), &[("site.yml", site), ("t.j2", text)]), &options(dir.path()));
    assert_eq!(ran.end.failure, None);
    assert_eq!(std::fs::read_to_string(dir.path().join("t")).unwrap(), "{{ $x }} True {% x %}\n");
}

/// Verified with ansible-core 2.19, which converts the list to a text.
#[test]
fn a_list_as_the_path_of_an_absent_file_removes_nothing() {
    let dir = tempfile::TempDir::new().unwrap();
    let site = |state: &str| {
        format!("- hosts: all\n  tasks:\n    - file: {{path: ['{}/a', /b/*], state: {state}}}\n", dir.path().display())
    };
    std::fs::write(dir.path().join("a"), "").unwrap();
    let ran = go(&plan(dir.path(), &[("site.yml", &site("absent"))]), &options(dir.path()));
    assert_eq!((ran.end.failure, dir.path().join("a").exists()), (None, true));
    let refused = faults("    - file: {path: [/a, /b], state: directory}\n");
    assert!(refused.is_err_and(|all| all[0].contains("`path` of file takes a text, found a list")));
}

/// Verified with ansible-core 2.19.
#[test]
fn facts_of_the_controller_are_seen_in_hostvars_after_they_were_gathered() {
    for (delegated, undefined) in [("delegate_to: localhost, delegate_facts: true", false), ("when: true", true)] {
        let text = format!(
            "- hosts: all\n  tasks:\n    - {{setup: , {delegated}}}\n    - {{debug: {{msg: \"{{{{ hostvars['localhost'].ansible_system }}}}\"}}}}\n"
        );
        let files = FileSet([("site.yml".to_owned(), text.into_bytes())].into());
        let vars = serde_json::json!({"hostvars": {"w1": {}}, "groups": {"all": ["w1"]}});
        let host =
            HostContext { name: "w1".into(), vars: vars.as_object().cloned().unwrap(), ..HostContext::default() };
        let choice = CompileOptions { delegates: true, ..CompileOptions::default() };
        let compiled = compile(&files, "site.yml", &host, &choice).unwrap();
        let (_, found) = review(&compiled.plan, &serde_json::Map::new(), &files, &[]);
        assert_eq!(found.iter().any(|fault| !fault.warning), undefined, "{delegated}: {found:?}");
    }
}

#[test]
fn a_template_that_a_run_may_select_is_left_out_if_it_is_wrong() {
    let site = "- hosts: all\n  tasks:\n    - template: {src: 't/{{ ansible_system }}.j2', dest: '{{ dir }}/x'}\n";
    let dir = tempfile::TempDir::new().unwrap();
    let files = |linux: &'static str| [("site.yml", site), ("t/Linux.j2", linux), ("t/Other.j2", "{% wrong")];
    let ran = go(&plan(dir.path(), &files("right")), &options(dir.path()));
    assert_eq!(ran.end.failure, None);
    let set = files("{{ wrong").map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    let host = HostContext { name: "w1".into(), ..HostContext::default() };
    assert!(compile(&FileSet(set.into()), "site.yml", &host, &CompileOptions::default()).is_err());
}

#[test]
fn a_task_on_the_controller_reads_a_file_of_the_controller_itself() {
    let task = "unarchive: {src: '/tmp/{{ ansible_architecture }}.tar', dest: /tmp}";
    for (delegated, refused) in [("delegate_to: localhost, ", false), ("", true)] {
        let text = format!("- hosts: all\n  tasks:\n    - {{{delegated}{task}}}\n");
        let files = FileSet([("site.yml".to_owned(), text.into_bytes())].into());
        let host = HostContext { name: "w1".into(), ..HostContext::default() };
        let choice = CompileOptions { delegates: true, ..CompileOptions::default() };
        assert_eq!(compile(&files, "site.yml", &host, &choice).is_err(), refused, "{delegated}");
    }
}
