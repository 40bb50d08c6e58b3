//! Tests which keywords, roles and includes the compiler accepts and rejects.

use super::tests::{compile_files, files, host, names};
use super::*;
use crate::lang::hosts::InventoryNames;
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn check_faults(list: &[(&str, &str)], expected: Expect) {
    let faults = compile(&files(list), "site.yml", &host(), &CompileOptions::default()).unwrap_err();
    expected.assert_eq(&faults.iter().map(|f| format!("{f}\n")).collect::<String>());
}

fn check_warnings(list: &[(&str, &str)], expected: Expect) {
    let warnings = compile_files(list, &[]).warnings;
    expected.assert_eq(&warnings.iter().map(|f| format!("{f}\n")).collect::<String>());
}

#[test]
fn each_keyword_is_obeyed_or_refused_by_name() {
    let text = "\
- hosts: all
  strategy: debug
  vars_prompt: [{name: x}]
  connection: local
  remote_user: deploy
  fact_path: /x
  gather_timeout: 5
  tasks:
    - {debug: , throttle: 1}
    - {debug: , debugger: on_failed}
    - {copy: {content: x, dest: /x}, become: yes, become_user: postgres}
    - {debug: , become_method: su}
    - {debug: , become_flags: -i}
    - {debug: , check_mode: '{{ nowhere }}'}
    - {debug: , delegate_to: '{{ item }}', loop: [1]}
    - {debug: , async: 10, poll: 0}
    - {debug: , collections: [acme.own]}
    - {debug: , module_defaults: {group/aws: {}, debgu: {}, copy: {mdoe: x}}}
    - {debug: , listen: x}
    - {debug: , loop: [1], loop_control: {loop_vra: x}}
    - {include_tasks: a.yml, become: yes}
    - {import_tasks: a.yml, loop: [1]}
    - {import_tasks: '{{ port }}.yml'}
    - {include_role: {name: none}}
    - {import_role: {tasks_from: x}}
    - {meta: refresh_inventory}
    - {meta: flush_handler}
    - {meta: end_role}
    - {local_action: debug}
    - {include_vars: {dir: v, file: x}}
    - {include_vars: none.yml}
    - {block: [], loop: [1]}
";
    check_faults(
        &[("site.yml", text), ("a.yml", "[]")],
        expect![[r#"
            site.yml:2:3: `strategy` other than linear and free is not part of the language
              hint: use `provisioner: ansible`
            site.yml:4:3: `connection: local`, and w1 is not this machine
              hint: `remoor play --connection local` makes every host this machine; else use `provisioner: ansible`
            site.yml:5:3: `remote_user` must be the same as in the inventory
              hint: set `ansible_user` in the inventory
            site.yml:6:3: `fact_path` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:7:3: `gather_timeout` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:9:17: `throttle` works only during `remoor play`, because the nodes of a fleet do not wait for each other
              hint: use `provisioner: ansible`
            site.yml:10:17: `debugger` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:12:17: `become_method` `su` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:13:17: `become_flags` `-i` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:16:34: `poll: 0` in a fleet: the task could outlive its attempt
              hint: omit `poll`, so that the run waits for the task
            site.yml:17:30: collection `acme.own` may give modules another meaning
              hint: use `provisioner: ansible`
            site.yml:18:35: groups of modules are not part of the language
              hint: use `provisioner: ansible`
            site.yml:18:50: unknown module `debgu`
              hint: did you mean `debug`?
            site.yml:18:68: unknown option `mdoe` of copy
              hint: did you mean `mode`?
            site.yml:19:17: `listen` is for handlers
            site.yml:20:43: unknown option `loop_vra` of loop_control
              hint: did you mean `loop_var`?
            site.yml:21:30: `become` does nothing on include_tasks
              hint: write it into `apply:` of the include
            site.yml:22:29: `loop` does nothing on import_tasks
              hint: use include_tasks
            site.yml:23:8: import_tasks takes a fixed name
              hint: use include_tasks; only variables of the play and extra vars are known this early
            site.yml:24:8: role `none` is not in the fleet directory (looked for roles/none)
            site.yml:25:8: import_role needs `name` or `role`
            site.yml:26:8: meta `refresh_inventory` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:27:8: unknown meta `flush_handler`
              hint: use `provisioner: ansible`
            site.yml:28:8: meta `end_role` is only for tasks of a role
            site.yml:29:8: `local_action` is not part of the language
              hint: use `provisioner: ansible`
            site.yml:30:8: `file` and `dir` exclude each other
            site.yml:31:8: none.yml is not in the fleet directory
            site.yml:32:19: unknown block keyword `loop`
        "#]],
    );
}

#[test]
fn keywords_that_mean_nothing_new_are_taken() {
    let text = "\
- hosts: all
  strategy: linear
  gather_facts: no
  any_errors_fatal: '{{ port == 80 }}'
  module_defaults: {copy: {mode: '0600', owner: root}}
  tasks:
    - {name: a, copy: {content: x, dest: /a, owner: me}, check_mode: no, diff: no, throttle: 0, ignore_unreachable: yes}
    - {name: b, copy: {content: x, dest: /b}, become_user: postgres, delegate_to: w1, delegate_facts: yes, any_errors_fatal: no}
    - block:
        - {name: c, command: 'true', notify: h2}
      notify: h
      timeout: 5
      tags: ['{{ port }}']
      collections: [ansible.builtin, community.general]
  handlers: [{name: h, debug: }, {name: h2, debug: }]
";
    let plan = compile_files(&[("site.yml", text)], &[]).plan;
    let mut tasks = Vec::new();
    plan.plays[0].each_task(&mut |task| tasks.push(task.clone()));
    let arg = |at: usize, name: &str| tasks[at].args[name].as_str().unwrap().to_owned();
    assert_eq!((arg(0, "mode"), arg(0, "owner"), arg(1, "owner")), ("0600".into(), "me".into(), "root".into()));
    assert_eq!(
        (
            tasks[0].modes.check_mode.clone(),
            tasks[0].modes.diff.clone(),
            tasks[0].outcome.fatal,
            tasks[1].outcome.fatal
        ),
        (Some(false.into()), Some(false.into()), true, false)
    );
    assert_eq!((tasks[2].notify.join(" "), tasks[2].tags.join(" ")), ("h h2".into(), "80".into()));
    assert_eq!(tasks[2].timeout, Some(serde_json::json!(5)));
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let text = "\
- hosts: all
  vars: {größe: 1}
  tasks:
    - {include_tasks: a.yml, register: r}
    - {debug: , loop_control: {label: x}}
    - {yum: {name: x, lock_timeout: 30}}
    - {meta: reset_connection}
  vars_files: [v.yml]
  handlers: [{import_tasks: a.yml, listen: topic}]
";
    check_warnings(
        &[("site.yml", text), ("a.yml", "- debug:\n"), ("v.yml", "a-b: 1\n3: 4\n")],
        expect![[r#"
            site.yml:2:10: warning: `größe` has letters beyond ASCII, so no template can read it
              hint: rename the variable
            site.yml:4:30: warning: `register` on include_tasks sets no variable
              hint: register the result of a task in the file
            site.yml:5:17: warning: `loop_control` without a loop has no effect
              hint: remove it, or add a loop
            site.yml:9:36: warning: `listen` has no effect on import_tasks
              hint: write it into the handlers of the file
            v.yml:1:1: warning: `a-b` is not a name, so only the lookup `vars` can read it
              hint: rename the variable
            v.yml:2:1: warning: `3` is not a name, so only the lookup `vars` can read it
              hint: rename the variable
        "#]],
    );
}

#[test]
fn ansibles_search_for_files_and_roles_is_that_of_the_compiler() {
    let list = [
        ("site.yml", "- hosts: all\n  roles: [r, parts/group]\n"),
        ("roles/r/handlers/main.yml", "- import_tasks: of-tasks.yml\n"),
        ("roles/r/tasks/of-tasks.yml", "- {name: imported, debug: }\n"),
        (
            "roles/r/tasks/main.yml",
            "- {name: t, template: {src: outer.j2, dest: /x}, notify: imported}\n- {include_role: {name: '{{ role_path }}/../s'}}\n",
        ),
        ("roles/s/tasks/main.yml", "- {name: of s, debug: }\n"),
        ("roles/r/templates/outer.j2", "{% include 'part-' ~ port ~ '.j2' %}"),
        ("roles/r/templates/part-80.j2", "inner"),
        ("roles/parts/group/one/tasks/main.yml", "- {name: not run, debug: }\n"),
    ];
    let plan = compile_files(&list, &[]).plan;
    assert_eq!(names(&plan), ["t", "include_role {{ role_path }}/../s", "of s", "imported"]);
    let (files, faults) = crate::review(&plan, &Map::new(), &files(&list), &[]);
    assert_eq!(faults, []);
    assert_eq!(files["/x"].content, b"inner");
}

#[test]
fn the_tasks_of_a_block_are_handlers() {
    let text = "\
- hosts: all
  tasks: [{command: a, notify: [one, topic]}]
  handlers:
    - block: [{name: one, command: b}, {name: two, command: c, listen: topic}]
      rescue: [{name: never, command: d}]
";
    let plan = compile_files(&[("site.yml", text)], &[]).plan;
    let handlers: Vec<_> = plan.plays[0].handlers.iter().map(|handler| (&handler.names[0], &handler.listen)).collect();
    assert_eq!(handlers, [(&"one".to_owned(), &vec![]), (&"two".to_owned(), &vec!["topic".to_owned()])]);
    check_warnings(
        &[("site.yml", text)],
        expect![[r#"
            site.yml:5:15: warning: `rescue` has no effect in a block of handlers
              hint: move these tasks to a file, and notify a handler that includes the file with `include_tasks`
        "#]],
    );
    let on_one_line = "- {hosts: all, tasks: [{command: a, notify: topic}], handlers: [{block: [{command: b}, {command: c, listen: topic}]}]}";
    let plan = compile_files(&[("site.yml", on_one_line)], &[]).plan;
    let listens: Vec<_> = plan.plays[0].handlers.iter().map(|handler| handler.listen.len()).collect();
    assert_eq!(listens, [0, 1]);
    let included =
        "- {hosts: all, tasks: [{command: a, notify: topic}], handlers: [{include_tasks: a.yml, listen: topic}]}";
    let plan = compile_files(&[("site.yml", included), ("a.yml", "- {name: inner, debug: }\n")], &[]).plan;
    assert_eq!(plan.plays[0].handlers[0].listen, ["topic"]);
}

/// A name of which nothing is known matches files of the whole directory, but not the secrets of
/// other hosts, because the plan goes to a host.
#[test]
fn a_name_that_only_the_run_knows_selects_no_secrets() {
    let list = [
        (
            "site.yml",
            "- hosts: all\n  tasks:\n    - {command: id, register: r}\n    - {copy: {src: '{{ r.stdout }}', dest: /x}}\n\
             \x20   - {copy: {src: 'host_vars/{{ r.stdout }}', dest: /y}}\n",
        ),
        (".vault_pass", "secret"),
        (".git/config", "secret"),
        ("ansible.cfg", "[defaults]\n"),
        ("group_vars/all.yml", "a: secret\n"),
        ("host_vars/other.yml", "a: secret\n"),
        ("certs/ca.crt", "certificate"),
    ];
    let plan = compile_files(&list, &[]).plan;
    let mut all = Vec::new();
    plan.plays[0].each_task(&mut |task| all.extend(task.files.assets.values().map(|asset| asset.path.clone())));
    assert_eq!(all, ["certs/ca.crt", "site.yml", "host_vars/other.yml"]);
}

#[test]
fn a_computed_name_selects_a_file_beside_the_playbook_too() {
    let list = [
        ("site.yml", "- hosts: all\n  roles: [{role: r, conf: b}]\n"),
        (
            "roles/r/tasks/main.yml",
            "- {template: {src: '{{ conf }}.j2', dest: /x}}\n- {template: {src: '{{ found }}.j2', dest: /y}}\n\
             - {copy: {src: '{{ conf }}.txt', dest: /z}}\n",
        ),
        ("roles/r/templates/a.j2", "of the role"),
        ("roles/r/files/a.txt", "of the role"),
        ("templates/a.j2", "of the playbook"),
        ("templates/b.j2", "of the playbook"),
        ("files/b.txt", "of the playbook"),
        ("files/c.txt", "not named"),
    ];
    let plan = compile_files(&list, &[]).plan;
    let mut all = Vec::new();
    plan.plays[0].each_task(&mut |task| {
        let assets = task.files.assets.iter().filter(|(name, _)| !name.contains('/'));
        all.push(assets.map(|(name, asset)| format!("{name}: {}", asset.path)).collect::<Vec<_>>());
    });
    let templates = ["a.j2: roles/r/templates/a.j2", "b.j2: templates/b.j2"];
    assert_eq!(all, [&templates[..], &templates, &["a.txt: roles/r/files/a.txt", "b.txt: files/b.txt"]]);
}

#[test]
fn include_vars_finds_the_first_file_outside_of_vars() {
    let list = [
        (
            "site.yml",
            "- hosts: all\n  tasks:\n    - include_vars: \"{{ lookup('first_found', ['none.yml', 'yes.yml']) }}\"\n    \
             - copy: {content: '{{ y }}', dest: /x}\n",
        ),
        ("vars/other.yml", "z: 1\n"),
        ("yes.yml", "y: found\n"),
    ];
    let plan = compile_files(&list, &[]).plan;
    let (reviewed, faults) = crate::review(&plan, &Map::new(), &files(&list), &[]);
    assert_eq!(faults, []);
    assert_eq!(reviewed["/x"].content, b"found");
}

#[test]
fn a_computed_include_of_tasks_selects_no_handlers() {
    let list = [
        ("site.yml", "- hosts: all\n  roles: [r]\n"),
        ("roles/r/tasks/main.yml", "- include_tasks: '{{ item }}'\n  with_first_found: ['{{ a }}/{{ b }}.yml']\n"),
        ("roles/r/tasks/setup/debian.yml", "- {name: setup, debug: }\n"),
        ("roles/r/handlers/main.yml", "- {name: h, debug: , listen: topic}\n"),
    ];
    let compiled = compile_files(&list, &[]);
    assert!(compiled.warnings.iter().all(|fault| !fault.message.contains("handlers")), "{:?}", compiled.warnings);
    assert_eq!(names(&compiled.plan), ["include_tasks {{ item }}", "setup", "h"]);
}

#[test]
fn an_unsupported_option_that_is_omitted_does_no_harm() {
    let task =
        |value: &str| format!("- hosts: all\n  tasks: [{{copy: {{content: x, dest: /x, attributes: {value}}}}}]\n");
    let plan = compile_files(&[("site.yml", &task("'{{ nowhere | default(omit) }}'"))], &[]).plan;
    assert_eq!(names(&plan).len(), 1);
    let args = serde_json::json!({"content": "x", "dest": "/x", "attributes": "+i"});
    let refused = check_rendered("copy", args.as_object().unwrap());
    assert_eq!(refused.unwrap(), "`attributes` of copy is not part of the language");
    let text = task("+i");
    let faults = compile(&files(&[("site.yml", &text)]), "site.yml", &host(), &CompileOptions::default()).unwrap_err();
    assert!(faults[0].message.contains("`attributes` of copy is not part of the language"), "{faults:?}");
}

#[test]
fn a_task_that_needs_no_host_may_be_delegated_to_any_name() {
    let hosts = InventoryNames { hosts: vec!["w1".into()], ..InventoryNames::default() };
    let options = CompileOptions { delegates: true, hosts: Some(&hosts), ..CompileOptions::default() };
    let compile_task = |task: &str| {
        let text = format!("- hosts: all\n  tasks: [{{{task}, delegate_to: nobody}}]\n");
        compile(&files(&[("site.yml", &text)]), "site.yml", &host(), &options)
    };
    let plan = compile_task("set_fact: {y: 1}").unwrap().plan;
    plan.each_task(&mut |task| assert!(task.hosts.delegation.is_none()));
    for task in ["command: 'true'", "set_fact: {y: 1}, delegate_facts: true"] {
        let faults = compile_task(task).unwrap_err();
        assert!(faults[0].message.contains("`nobody` is not a host of the inventory"), "{faults:?}");
    }
}

#[test]
fn a_fleet_refuses_only_delegated_tasks_that_need_a_host() {
    let compile_site = |tasks: &str| {
        let text =
            format!("- hosts: all\n  tasks:\n    - import_tasks: inner.yml\n      delegate_to: localhost\n{tasks}");
        let inner = "- assert: {that: true}\n- {set_fact: {y: 1}, run_once: true}\n";
        compile(&files(&[("site.yml", &text), ("inner.yml", inner)]), "site.yml", &host(), &CompileOptions::default())
    };
    let plan = compile_site("    - {debug: , delegate_to: '{{ item }}', loop: [1]}\n").unwrap().plan;
    plan.each_task(&mut |task| assert!(task.hosts.delegation.is_none()));
    for (task, place) in [
        ("- block: [{command: 'true'}]\n      delegate_to: localhost", (6, 20)),
        ("- {set_fact: {y: 1}, delegate_facts: true, delegate_to: w9}", (5, 61)),
    ] {
        let faults = compile_site(&format!("    {task}\n")).unwrap_err();
        assert_eq!((faults.len(), faults[0].line, faults[0].column), (1, place.0, place.1), "{faults:?}");
        assert!(faults[0].message.contains("`delegate_to` another host"), "{faults:?}");
    }
}

#[test]
fn a_loop_may_call_the_lookup_of_a_collection() {
    let text = "- hosts: all\n  tasks: [{debug: {msg: '{{ item.path }}'}, with_community.general.filetree: d, when: item.state == 'file'}]\n";
    let options = CompileOptions { delegates: true, ..CompileOptions::default() };
    let list = files(&[("site.yml", text)]);
    let plan = compile(&list, "site.yml", &host(), &options).unwrap().plan;
    let (_, faults) = crate::review(&plan, &Map::new(), &list, &[]);
    assert_eq!(faults, []);
    let refused = compile(&list, "site.yml", &host(), &CompileOptions::default()).unwrap().refused;
    assert!(refused[0].message.contains("lookup `community.general.filetree`"), "{refused:?}");
}

#[test]
fn old_spellings_are_noted() {
    let text = "\
- hosts: all
  tasks:
    - action: debug msg=x
    - {debug: msg=x, sudo: yes}
    - {include: a.yml, vars: {v: 1}}
    - {include: '{{ port }}.yml', loop: [1]}
    - {debug: , with_items: port}
    - {ansible.builtin.debug: , when: '{{ port }}'}
";
    check_warnings(
        &[("site.yml", text), ("a.yml", "[]"), ("80.yml", "[]")],
        expect![[r#"
        site.yml:3:7: warning: `action` is an old spelling
          hint: write `debug:` with its options
        site.yml:3:7: warning: `action` with option=value in one text
          hint: write the options as a map
        site.yml:4:8: warning: `debug` with option=value in one text
          hint: write the options as a map
        site.yml:4:22: warning: `sudo` is an old spelling
          hint: write `become`
        site.yml:5:8: warning: `include` is an old spelling
          hint: write `import_tasks`
        site.yml:6:8: warning: `include` is an old spelling
          hint: write `include_tasks`
        site.yml:7:29: warning: bare `port` is read as a variable
          hint: write "{{ port }}"
        site.yml:8:39: warning: `when` is already an expression
          hint: leave out the {{ }}
    "#]],
    );
}

#[test]
fn what_runs_once_is_done_by_the_first_of_a_batch() {
    let text = "\
- hosts: all
  serial: 2
  tasks:
    - {name: once, command: id, run_once: yes, register: r, failed_when: r.rc == 1}
    - {name: each, debug: }
    - {meta: end_play}
";
    let hosts =
        InventoryNames { hosts: ["w0", "w1", "w2", "w3"].map(str::to_owned).to_vec(), ..InventoryNames::default() };
    let plan = |name: &str, text: &str| {
        let host = HostContext { name: name.into(), ..host() };
        let options = CompileOptions { hosts: Some(&hosts), ..CompileOptions::default() };
        compile(&files(&[("site.yml", text)]), "site.yml", &host, &options).map(|c| names(&c.plan).len())
    };
    assert_eq!(["w0", "w1", "w2", "w3"].map(|name| plan(name, text).unwrap()), [3, 2, 3, 2]);
    let read = text.replace("name: each, debug: ", "debug: {var: r}");
    assert!(plan("w0", &read).is_ok());
    let message = plan("w1", &read).unwrap_err()[0].to_string();
    assert!(message.starts_with("site.yml:4:1: `r` is set by a `run_once` task"), "{message}");
    // During `remoor play`, the controller chooses the host that runs the task.
    let host = HostContext { name: "w1".into(), ..host() };
    let options = CompileOptions { hosts: Some(&hosts), delegates: true, ..CompileOptions::default() };
    let chosen = compile(&files(&[("site.yml", &read)]), "site.yml", &host, &options).unwrap().plan;
    let mut once = Vec::new();
    chosen.each_task(&mut |task| once.push((task.name.clone(), task.hosts.once, task.outcome.fatal)));
    let expected = [("once", true, true), ("debug", false, false), ("meta end_play", false, false)];
    assert_eq!(once, expected.map(|(name, once, fatal)| (name.to_owned(), once, fatal)));
    let asks = text.replace("{meta: end_play}", "{meta: end_play, when: port == 80}");
    assert!(plan("w1", &asks).unwrap_err()[0].hint.as_ref().unwrap().contains("end_host"));
}

#[test]
fn roles_that_need_each_other_and_files_that_multiply_are_bounded() {
    let list = [
        ("site.yml", "- hosts: all\n  roles: [a]\n"),
        ("roles/a/meta/main.yml", "dependencies: [b]\n"),
        ("roles/b/meta/main.yml", "dependencies:\n  - role: a\n"),
        ("roles/a/tasks/main.yml", "- debug:\n"),
        ("roles/b/tasks/main.yml", "- include_role: {name: b, tasks_from: more}\n"),
        ("roles/b/tasks/more.yml", "- include_role: {name: b, tasks_from: '{{ x }}'}\n"),
    ];
    check_faults(
        &list,
        expect![[r#"
        roles/b/meta/main.yml:2:5: role `a` needs itself: roles/a -> roles/b -> roles/a
        roles/b/tasks/more.yml:1:3: `b` could refer to 0 roles, expected 1 to 100
    "#]],
    );
    let mut list = vec![("site.yml".to_owned(), "- hosts: all\n  tasks: [{import_tasks: f0.yml}]\n".to_owned())];
    for i in 0..18 {
        let next = format!("- import_tasks: f{}.yml\n", i + 1);
        list.push((format!("f{i}.yml"), next.repeat(4)));
    }
    list.push(("f18.yml".to_owned(), "[]".to_owned()));
    let list: Vec<(&str, &str)> = list.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let faults = compile(&files(&list), "site.yml", &host(), &CompileOptions::default()).unwrap_err();
    assert!(faults[0].message.contains("opens more than"), "{}", faults[0]);
}

proptest! {
    /// The compiler accepts or rejects any value of any keyword without a panic, and each error has
    /// a line and a column.
    #[test]
    fn any_keyword_with_any_value_is_answered(
        picks in proptest::collection::vec((0usize..400, 0usize..24), 1..6),
        level in 0usize..4,
    ) {
        let values = [
            "", "yes", "no", "1", "-1", "2.5", "x", "'{{ port }}'", "'{{ nowhere }}'", "'{{'", "[]", "[1, x]", "[[x], {a: 1}]",
            "{}", "{a: 1}", "{name: r}", "{file: t.yml}", "t.yml", "r", "'a=1 b=2'", "{dir: ., files_matching: '['}", "[r, {role: r, when: x}]",
            "[{debug: }]", "{files: [t.yml], paths: ['{{ x }}'], skip: yes}",
        ];
        let modules: Vec<&str> = module_specs::MODULES.iter().map(|m| m.name).collect();
        let loops = ["with_items", "with_fileglob", "with_first_found", "with_sequence", "with_subelements", "action", "local_action", "include"];
        let keys: Vec<&str> = [module_specs::TASK_KEYS, module_specs::BLOCK_KEYS, module_specs::PLAY_KEYS, &modules, &loops].concat();
        let mut pairs: Vec<(&str, &str)> = picks.iter().map(|(k, v)| (keys[k % keys.len()], values[*v])).collect();
        pairs.sort();
        pairs.dedup_by(|a, b| a.0 == b.0);
        let body = pairs.iter().map(|(k, v)| format!("{k}: {v}")).collect::<Vec<_>>().join(", ");
        let text = match level {
            0 => format!("- {{hosts: all, {body}}}\n"),
            1 => format!("- {{hosts: all, tasks: [{{{body}}}]}}\n"),
            2 => format!("- {{hosts: all, handlers: [{{{body}}}], tasks: [{{block: [{{debug: }}], {body}}}]}}\n"),
            _ => format!("- {{hosts: all, roles: [{{role: r, {body}}}]}}\n- {{import_playbook: p.yml, {body}}}\n"),
        };
        let list = [
            ("site.yml", text.as_str()),
            ("t.yml", "- {name: t, debug: }\n"),
            ("p.yml", "- {hosts: all}\n"),
            ("roles/r/tasks/main.yml", "- {name: r, debug: }\n"),
        ];
        if let Err(faults) = compile(&files(&list), "site.yml", &host(), &CompileOptions::default()) {
            prop_assert!(!faults.is_empty() && faults.iter().all(|f| f.line > 0), "{text}{faults:?}");
        }
    }
}
