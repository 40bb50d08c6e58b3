//! Tests the language by running plans: roles, includes, precedence of variables, blocks, loops,
//! handlers, meta. Each table was verified with ansible-core 2.19, unless a comment states
//! otherwise.

use crate::tests::{Ran, go, options, plan};
use crate::*;
use remoor_model::FileSet;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// Names of the tasks and handlers that were not skipped, in order.
pub(super) fn order(ran: &Ran) -> Vec<String> {
    ran.statuses().into_iter().filter(|(_, s)| *s != Status::Skipped).map(|(n, _)| n).collect()
}

pub(super) fn run_files(files: &[(&str, &str)]) -> Ran {
    let dir = TempDir::new().unwrap();
    go(&plan(dir.path(), files), &options(dir.path()))
}

fn run_tasks(text: &str) -> Ran {
    run_files(&[("site.yml", &format!("- hosts: all\n  tasks:\n{text}"))])
}

#[test]
fn variables_have_ansibles_precedence() {
    let levels = [
        "defaults",
        "inventory",
        "play",
        "vars_files",
        "role_vars",
        "block",
        "task",
        "include_vars",
        "set_fact",
        "role_params",
        "include_params",
        "extra",
    ];
    // Each level of precedence sets one variable for itself and one for each higher level. So each
    // variable is set at its own level and at all lower ones.
    let vars = |level: &str| {
        let at = levels.iter().position(|l| *l == level).unwrap();
        let pairs: Vec<String> = (at..levels.len()).map(|k| format!("l{k}: {level}")).collect();
        pairs.join(", ")
    };
    let all: Vec<String> = levels.iter().enumerate().map(|(k, level)| format!("\"l{k} == '{level}'\"")).collect();
    let main = format!(
        "- include_vars: iv.yml\n- set_fact: {{{}}}\n- include_tasks: inner.yml\n  vars: {{{}}}\n",
        vars("set_fact"),
        vars("include_params")
    );
    let inner = format!(
        "- block:\n    - assert: {{that: [{}]}}\n      vars: {{{}}}\n  vars: {{{}}}\n",
        all.join(", "),
        vars("task"),
        vars("block")
    );
    let site = format!(
        "- hosts: all\n  vars: {{{}}}\n  vars_files: [vf.yml]\n  roles:\n    - {{role: r, {}}}\n",
        vars("play"),
        vars("role_params")
    );
    let files = [
        ("site.yml", site),
        ("vf.yml", format!("{{{}}}", vars("vars_files"))),
        ("iv.yml", format!("{{{}}}", vars("include_vars"))),
        ("roles/r/defaults/main.yml", format!("{{{}}}", vars("defaults"))),
        ("roles/r/vars/main.yml", format!("{{{}}}", vars("role_vars"))),
        ("roles/r/tasks/main.yml", main),
        ("roles/r/tasks/inner.yml", inner),
    ];
    let set: BTreeMap<String, Vec<u8>> = files.into_iter().map(|(p, t)| (p.to_owned(), t.into_bytes())).collect();
    let map = |level: &str| -> serde_json::Map<String, serde_json::Value> {
        let at = levels.iter().position(|l| *l == level).unwrap();
        (at..levels.len()).map(|k| (format!("l{k}"), serde_json::json!(level))).collect()
    };
    let host = HostContext { name: "w1".into(), group: "web".into(), vars: map("inventory"), ..HostContext::default() };
    let compile_options = CompileOptions { extra_vars: map("extra"), ..CompileOptions::default() };
    let plan = compile(&remoor_model::FileSet(set), "site.yml", &host, &compile_options).unwrap().plan;
    let dir = TempDir::new().unwrap();
    go(&plan, &options(dir.path())).assert_success();
}

#[test]
fn a_role_of_a_collection_is_found_below_the_playbook() {
    let files = [
        ("site.yml", "- hosts: all\n  roles: [ns.tools.web]\n  tasks: [{include_role: {name: ns.tools.base}}]\n"),
        (
            "collections/ansible_collections/ns/tools/roles/web/tasks/main.yml",
            "- {name: 'web {{ size }} {{ role_name }} {{ ansible_role_name }} {{ ansible_collection_name }}', debug: }\n",
        ),
        ("collections/ansible_collections/ns/tools/roles/web/meta/main.yml", "dependencies: [ns.tools.base]\n"),
        ("collections/ansible_collections/ns/tools/roles/base/tasks/main.yml", "- {name: base, debug: }\n"),
        ("collections/ansible_collections/ns/tools/roles/base/defaults/main.yml", "size: 3\n"),
    ];
    let ran = run_files(&files).assert_success();
    assert_eq!(order(&ran), ["base", "web 3 web ns.tools.web ns.tools", "include_role ns.tools.base", "base"]);
}

/// The facts about Python are gathered only if a text of the playbook reads them.
#[test]
fn facts_about_python_are_those_of_the_node() {
    let has_python = std::process::Command::new("python3").arg("-c").arg("1").status().is_ok_and(|s| s.success());
    let read = "- hosts: all
  tasks:
    - assert:
        that:
          - ansible_python_version is version('3', '>=') and ansible_python.version.major == 3
          - ansible_python.version_info[0] == 3 and ansible_python.executable is match('/')
          - ansible_facts['python']['type'] == 'cpython' and ansible_facts.python_version == ansible_python_version
    - setup:
    - assert: {that: ansible_python.has_sslcontext is boolean}
";
    let others = "- hosts: all
  tasks:
    - assert: {that: \"vars['ansible_' ~ 'python'] is not defined\"}
";
    if has_python {
        run_files(&[("site.yml", read)]).assert_success();
    }
    run_files(&[("site.yml", others)]).assert_success();
}

#[test]
fn roles_bring_what_they_need_and_run_once() {
    let site = "
- hosts: all
  roles:
    - web
    - {role: web, web_port: 81}
    - web
    - {role: twice, tags: t}
    - twice
  tasks:
    - import_role: {name: late, tasks_from: other, vars_from: other}
    - assert: {that: [\"from_default == 'late'\", \"from_vars == 'other'\", \"exported == 'base'\"]}
    - {name: include, include_role: {name: '{{ which }}', public: true}, vars: {which: late, who: included}}
    - assert: {that: [\"from_vars == 'main'\", \"who == 'nobody'\"]}
  handlers:
    - {name: shared, command: 'true'}
";
    let files = [
        ("site.yml", site),
        ("roles/base/tasks/main.yml", "- {name: 'base for {{ who }} {{ web_port }}', debug: }\n"),
        ("roles/base/defaults/main.yml", "web_port: 1\nwho: nobody\n"),
        ("roles/base/vars/main.yml", "exported: base\n"),
        ("roles/web/meta/main.yml", "dependencies:\n  - {role: base, vars: {who: web}}\n"),
        ("roles/web/defaults/main.yml", "web_port: 80\n"),
        (
            "roles/web/tasks/main.yml",
            "- {name: 'web {{ web_port }} {{ role_name }} {{ exported }}', command: 'true', notify: [shared, restart]}\n",
        ),
        ("roles/web/handlers/main.yml", "- {name: restart, command: 'true'}\n- {name: shared, command: 'false'}\n"),
        ("roles/twice/meta/main.yml", "allow_duplicates: true\n"),
        ("roles/twice/tasks/main.yml", "- {name: twice, debug: }\n"),
        ("roles/late/defaults/main.yml", "from_default: late\n"),
        ("roles/late/vars/main.yml", "from_vars: main\n"),
        ("roles/late/vars/other.yml", "from_vars: other\n"),
        ("roles/late/tasks/main.yml", "- {name: 'late {{ who }}', debug: }\n"),
        ("roles/late/tasks/other.yml", "- {name: other, debug: }\n"),
    ];
    let ran = run_files(&files).assert_success();
    let want = ["base for web 1", "web 80 web base", "web 81 web base", "twice", "twice", "other"];
    let order = order(&ran);
    assert_eq!(&order[..6], want, "{order:?}");
    assert!(order.contains(&"late included".to_owned()), "{order:?}");
    // The play has its own handler `shared`. It is defined after the handler `shared` of the role,
    // so it is selected and runs last.
    assert_eq!(&order[order.len() - 2..], ["restart", "shared"]);
}

#[test]
fn includes_take_their_own_words_and_what_stands_around_them() {
    let site = "
- hosts: all
  vars: {n: 1}
  tasks:
    - block:
        - {include_tasks: {file: x.yml, apply: {environment: {A: applied}, become: no}}, vars: {v: one}}
        - {import_tasks: x.yml, environment: {A: imported}, vars: {v: two}}
        - {include: x.yml, vars: {v: three}}
      environment: {A: around, B: block}
      when: n == 1
    - {include_vars: {dir: vd, name: d, files_matching: '^[ab]', ignore_files: [b.yml]}}
    - assert: {that: \"d == {'a': 'A1', 'c': 3}\"}
    - {include_vars: '{{ item }}', with_first_found: [{files: ['{{ nowhere }}.yml', 'v{{ n }}.yml', v2.yml]}]}
    - assert: {that: \"text == 'one 1'\"}
    - {include_vars: {file: v2.yml}}
    - assert: {that: \"text == 'two'\"}
    - {include_vars: \"{{ lookup('first_found', params) }}\", vars: {params: {files: [none.yml, v1.yml]}}}
    - assert: {that: \"text == 'one 1'\"}
    - {name: 'dynamic {{ v }}', include_tasks: '{{ item }}.yml', loop: [y, z], loop_control: {loop_var: v}, when: v != 'z', vars: {item: '{{ v }}'}}
";
    let files = [
        ("site.yml", site),
        ("x.yml", "- {shell: 'echo $A$B', register: r}\n- {name: '{{ v }} {{ r.stdout }}', debug: }\n"),
        ("y.yml", "- {name: 'in y {{ v }}', debug: }\n"),
        ("z.yml", "- fail:\n"),
        ("vd/a.yml", "{a: 'A{{ n }}', c: 1}\n"),
        ("vd/b.yml", "b: 2\n"),
        ("vd/sub/a.json", "{\"c\": 3}\n"),
        ("vd/z.yml", "z: 2\n"),
        ("v1.yml", "text: 'one {{ n }}'\n"),
        ("vars/v2.yml", "text: two\n"),
    ];
    let ran = run_files(&files).assert_success();
    let order = order(&ran);
    for name in ["one appliedblock", "two importedblock", "three aroundblock", "in y y"] {
        assert!(order.contains(&name.to_owned()), "{name}: {order:?}");
    }
}

#[test]
fn files_of_a_play_may_depend_on_the_node() {
    let site = "
- hosts: all
  vars: {n: 1}
  vars_files:
    - [none.yml, 'v{{ n }}.yml']
    - [none.yml, 'os/{{ ansible_system }}.yml', os/default.yml]
    - 'vars/{{ nowhere }}/x.yml'
    - last.yml
  roles: [r]
  tasks:
    - assert: {that: [\"a == 'v1'\", \"b == 'linux 1'\", \"c == 'last'\", \"d == 'role'\"]}
    - {copy: {content: '{{ b }}', dest: /nowhere/at/all}, when: false}
";
    let files = [
        ("site.yml", site),
        ("v1.yml", "{a: v1, b: v1}"),
        ("os/Linux.yml", "{b: 'linux {{ n }}', c: os, d: os}"),
        ("os/default.yml", "{b: default}"),
        ("vars/none/x.yml", "{a: never}"),
        ("last.yml", "{c: last}"),
        ("roles/r/vars/main.yml", "{d: role}"),
    ];
    run_files(&files).assert_success();
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all\n  vars_files: ['{{ ansible_system }}.yml']\n  tasks:\n    - {copy: {content: '{{ b }}', dest: /x}}\n    - {copy: {content: y, dest: /y}}\n";
    let plan = plan(dir.path(), &[("site.yml", text), ("Linux.yml", "b: linux")]);
    let known =
        |facts: serde_json::Value| predict_files(&plan, facts.as_object().unwrap()).into_keys().collect::<Vec<_>>();
    assert_eq!(known(serde_json::json!({})), ["/y"]);
    assert_eq!(known(serde_json::json!({"ansible_system": "Linux"})), ["/x", "/y"]);
}

#[test]
fn a_file_for_another_system_may_hold_what_is_not_known_here() {
    let files = |system: &str, early: &str| {
        let site = format!(
            "- hosts: all\n  tasks:\n    - {{name: before, command: 'true', register: r}}\n    - include_tasks: \"os-{{{{ {early} }}}}.yml\"\n    - {{include_tasks: os-other.yml, when: ansible_system == '{system}'}}\n"
        );
        run_files(&[
            ("site.yml", &site),
            ("os-Linux.yml", "- {name: here, debug: }\n"),
            ("os-other.yml", "- {pacman: {name: x}}\n"),
        ])
    };
    assert_eq!(
        order(&files("Other", "ansible_system").assert_success()),
        ["before", "include_tasks os-Linux.yml", "here"]
    );
    // An include whose target is known before the first task is rejected before the first task.
    for (system, early) in [("Linux", "ansible_system"), ("Other", "ansible_system | replace('Linux', 'other')")] {
        let failure = files(system, early).end.failure.unwrap();
        assert_eq!(failure.task, "before the first task");
        assert!(failure.message.contains("os-other.yml:1: module `pacman` is not part"), "{}", failure.message);
    }
    let late = files("Other", "'other' if r.rc == 0 else 'Linux'").end.failure.unwrap();
    assert!(late.task == "pacman" && late.message.contains("`pacman` is not part"), "{late:?}");
}

#[test]
fn meta_ends_what_it_names() {
    let role = "- {name: in role, debug: }\n- {meta: end_role, when: n == 1}\n- {name: never, fail: }\n";
    let site = "
- hosts: all
  vars: {n: 1}
  roles: [r]
  tasks:
    - {name: after role, command: 'true', notify: h}
    - meta: noop
    - block:
        - {name: in block, debug: }
        - meta: end_host
      rescue: [{name: never, fail: }]
      always: [{name: never, fail: }]
    - {name: never, fail: }
  handlers: [{name: h, fail: }]
- hosts: all
  tasks:
    - {name: next play, debug: }
    - {meta: end_play, when: false}
    - meta: clear_facts
    - assert: {that: [ansible_hostname is undefined, inventory_hostname == 'w1']}
  handlers: [{name: h, fail: }]
";
    let ran = run_files(&[("site.yml", site), ("roles/r/tasks/main.yml", role)]).assert_success();
    assert_eq!(&order(&ran)[..4], ["in role", "after role", "in block", "next play"]);
    assert!(ran.end.pending_handlers.is_empty());
}

#[test]
fn handlers_are_found_by_their_last_name_and_listened_to() {
    let site = "
- hosts: all
  force_handlers: yes
  handlers:
    - {name: a, command: 'true'}
    - {name: a, command: 'true', listen: topic}
    - {name: a, command: 'false'}
    - {name: b, command: 'true', listen: [topic, other], notify: last}
    - import_tasks: more.yml
    - {name: tasks, include_tasks: inner.yml}
    - {name: last, command: 'true', when: n == 1}
    - {name: unasked, command: 'false'}
  vars: {n: 1}
  tasks:
    - {name: t, command: 'true', notify: [a, topic, '{{ more }}', tasks], vars: {more: imported}}
    - {name: failing, fail: , any_errors_fatal: true}
";
    let files = [
        ("site.yml", site),
        ("more.yml", "- {name: imported, command: 'true', listen: elsewhere}\n"),
        ("inner.yml", "- {name: inner, debug: }\n"),
    ];
    let ran = run_files(&files);
    assert_eq!(order(&ran), ["t", "failing", "a", "a", "b", "imported", "tasks", "inner", "last"]);
    assert!(ran.end.fatal && ran.end.failure.as_ref().unwrap().task == "failing", "{:?}", ran.end);
    assert!(ran.end.pending_handlers.is_empty());
    let rescued = run_tasks("    - {block: [{fail: , any_errors_fatal: yes}], rescue: [{debug: }]}\n").assert_success();
    assert!(!rescued.end.fatal);
}

#[test]
fn loops_and_tries_end_where_they_are_told() {
    let text = "
    - {command: 'echo {{ item }}', loop: [1, 2, 3], register: r, loop_control: {break_when: [item == 2, r.stdout == '2']}}
    - assert: {that: r.results | length == 2}
    - {debug: {msg: '{{ ansible_loop.index }}/{{ ansible_loop.length }}'}, loop: [a, b], loop_control: {extended: yes, extended_allitems: no}, register: r}
    - assert: {that: [\"r.results[1].msg == '2/2'\"]}
    - {shell: 'exit 1', register: r, retries: 2, delay: 0, ignore_errors: yes}
    - assert: {that: [r.attempts == 2, r is failed]}
    - {shell: 'exit 1', register: r, until: r.rc == 0, delay: 0, ignore_errors: yes}
    - assert: {that: r.attempts == 3}
    - {command: 'true', register: r, until: r.rc == 0, retries: 0}
    - assert: {that: r.attempts == 1}
    - {debug: {msg: '{{ item.0 }}-{{ item.1 }}'}, with_nested: [[a], '{{ two }}'], vars: {two: [1, 2]}, register: r}
    - assert: {that: \"r.results | map(attribute='msg') | list == ['a-1', 'a-2']\"}
    - {debug: {msg: '{{ item }}'}, with_sequence: 'count={{ n }} format=x%02d', vars: {n: 2}, register: r}
    - assert: {that: \"r.results[1].msg == 'x02'\"}
    - {debug: , module_defaults: {debug: {msg: given}}, register: r}
    - assert: {that: \"r.msg == 'given'\"}
    - {action: debug msg=old, register: r}
    - assert: {that: \"r.msg == 'old'\"}
    - {debug: {msg: here}, delegate_to: '{{ inventory_hostname }}', run_once: yes, register: r}
    - assert: {that: \"r.msg == 'here'\"}
";
    run_tasks(text).assert_success();
}

#[test]
fn files_of_the_set_are_looped_over() {
    let dir = TempDir::new().unwrap();
    let site = "
- hosts: all
  tasks:
    - {copy: {src: '{{ item }}', dest: '{{ dir }}/{{ item | basename }}'}, with_fileglob: ['conf/*.conf', '*.txt']}
    - {template: {src: '{{ item }}', dest: '{{ dir }}/first'}, with_first_found: ['{{ n }}.j2', default.j2], vars: {n: none}}
";
    let files = [
        ("site.yml", site),
        ("files/conf/a.conf", "A"),
        ("files/conf/b.conf", "B"),
        ("files/conf/c.other", "C"),
        ("files/t.txt", "T"),
        ("templates/default.j2", "{{ n }}"),
    ];
    let plan = plan(dir.path(), &files);
    go(&plan, &options(dir.path())).assert_success();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    assert_eq!(["a.conf", "b.conf", "t.txt", "first", "c.other"].map(read), ["A", "B", "T", "none", ""]);
    let known = predict_files(&plan, &serde_json::Map::new());
    let name = |path: &Path| path.display().to_string();
    assert_eq!(known[&name(&dir.path().join("first"))].content, b"none");
}

fn compile_play(text: &str, vars: serde_json::Value, options: &CompileOptions) -> Plan {
    let vars = vars.as_object().unwrap().clone();
    let host = HostContext { name: "w1".into(), vars, ..HostContext::default() };
    let files = FileSet([("site.yml".to_owned(), text.as_bytes().to_vec())].into());
    compile(&files, "site.yml", &host, options).unwrap().plan
}

/// Verified with ansible-core 2.19.
#[test]
fn the_login_user_is_a_variable_under_both_names() {
    let dir = TempDir::new().unwrap();
    for (vars, keyword, user, want) in [
        (json!({"ansible_user": "a"}), "", None, "a a"),
        (json!({"ansible_ssh_user": "a"}), "", None, "a a"),
        (json!({}), "remote_user: a, ", Some("a"), "a a"),
        (json!({"ansible_ssh_user": "b"}), "remote_user: a, ", None, "b b"),
        (json!({}), "", Some("c"), "c c"),
        (json!({}), "", None, "none none"),
    ] {
        let that = format!("'{want}' == ansible_user | default('none') ~ ' ' ~ ansible_ssh_user | default('none')");
        let text = format!("- {{hosts: all, {keyword}tasks: [{{assert: {{that: \"{that}\"}}}}]}}\n");
        let choice = CompileOptions { delegates: true, remote_user: user, ..CompileOptions::default() };
        let ran = go(&compile_play(&text, vars.clone(), &choice), &options(dir.path()));
        assert_eq!(ran.end.failure, None, "{vars} {keyword}");
    }
}

#[test]
fn a_task_of_another_login_user_runs_as_this_user() {
    let text = "
- hosts: all
  tasks:
    - {debug: , remote_user: me}
    - {debug: , remote_user: other}
    - {debug: , remote_user: other, become: true}
    - {debug: , become_user: x, remote_user: other, become: true}
    - {debug: , remote_user: other, delegate_to: localhost}
    - {block: [{debug: }, {debug: , remote_user: me}], remote_user: other}
";
    let choice = CompileOptions { delegates: true, remote_user: Some("me"), ..CompileOptions::default() };
    let mut found = Vec::new();
    compile_play(text, json!({}), &choice).each_task(&mut |task| {
        let own = &task.privileges;
        assert_eq!(own.elevated_if, None);
        found.push((own.elevated, own.become_user.clone()));
    });
    let text = |user: &str| Some(user.to_owned());
    let want = [
        (false, None),
        (true, text("other")),
        (true, None),
        (true, text("x")),
        (false, None),
        (true, text("other")),
        (false, None),
    ];
    assert_eq!(found, want);
}

/// Such a task could run as root, or as a user whom a result of the host chooses.
#[test]
fn another_login_user_must_be_certain() {
    for keywords in [
        "remote_user: '{{ r.x }}'",
        "remote_user: '{{ r.x | default(omit) }}'",
        "remote_user: '{{ u }}'",
        "remote_user: other, become: '{{ r.y }}'",
        "remote_user: other, become: '{% if r.y %}yes{% else %}no{% endif %}'",
        "remote_user: other, delegate_to: w2",
    ] {
        let text = format!("- {{hosts: all, vars: {{u: daemon}}, tasks: [{{debug: , {keywords}}}]}}\n");
        let host = HostContext { name: "w1".into(), ..HostContext::default() };
        let choice = CompileOptions { delegates: true, remote_user: Some("me"), ..CompileOptions::default() };
        let files = FileSet([("site.yml".to_owned(), text.into_bytes())].into());
        let faults = compile(&files, "site.yml", &host, &choice).expect_err(keywords);
        assert!(faults.iter().all(|fault| fault.message.contains("remote_user")), "{faults:#?}");
    }
}

#[test]
fn a_password_without_a_salt_has_the_same_hash_in_each_run_of_a_host() {
    let dir = TempDir::new().unwrap();
    let hash = |host: &str| {
        let path = dir.path().join(host);
        let text = "- {hosts: all, tasks: [{copy: {content: \"{{ 'x' | password_hash('sha256', rounds=1000) }}\", dest: '{{ f }}'}}]}\n";
        let vars = json!({"f": path.display().to_string(), "inventory_hostname": host});
        let ran = go(&compile_play(text, vars, &CompileOptions::default()), &options(dir.path()));
        assert_eq!(ran.end.failure, None);
        std::fs::read_to_string(path).unwrap()
    };
    let first = hash("w1");
    assert!(first.starts_with("$5$rounds=1000$") && first.split('$').nth(3).is_some_and(|salt| salt.len() == 16));
    assert_eq!(hash("w1"), first);
    assert_ne!(hash("w2"), first);
}

/// Verified with ansible-core 2.19.
#[test]
fn an_import_ignores_keywords_of_a_single_task() {
    let site = "
- hosts: all
  tasks:
    - {import_tasks: a.yml, register: r, async: 60, poll: 0, until: false, retries: 3, failed_when: true, changed_when: true}
    - {name: unset, debug: , when: r is not defined}
";
    assert_eq!(order(&run_files(&[("site.yml", site), ("a.yml", "- {name: part, debug: }\n")])), ["part", "unset"]);
}
