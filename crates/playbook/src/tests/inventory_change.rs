//! Tasks that change the inventory for later plays, as correct and as compromised hosts request it.

use super::delegation::{make_host, view};
use super::*;
use crate::{ControllerLink, ControllerRequest, PlannedChange, ValueOrigin, plan_inventory_change, read_request};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

fn plan_of(tasks: &str) -> Plan {
    let text = format!("- hosts: all\n  vars: {{fixed: playbook}}\n  tasks:\n{tasks}");
    let files = FileSet([("site.yml".to_owned(), text.into_bytes())].into());
    let vars = json!({"inventory_hostname": "w1", "group_names": []});
    let options = CompileOptions { delegates: true, ..CompileOptions::default() };
    compile(&files, "site.yml", &make_host("w1", &vars), &options).unwrap().plan
}

/// What a run of these tasks requests with the first task. The controller knows the host `db1`.
fn request_change_as(origin: ValueOrigin, tasks: &str, item: &Value, state: &Value) -> Result<PlannedChange, String> {
    let plan = plan_of(tasks);
    let text = json!({"inventory": {"task": 1, "item": item, "state": state}}).to_string();
    let known = |name: &str| ["db1", "localhost"].contains(&name).then(Map::new);
    match read_request(&plan, false, text.as_bytes()).map_err(|e| e.to_string())? {
        ControllerRequest::Inventory(request) => {
            plan_inventory_change(&plan, request, &view(false, &known), origin).map_err(|e| e.to_string())
        }
        other => panic!("{other:?}"),
    }
}

fn request_change(tasks: &str, state: &Value) -> Result<PlannedChange, String> {
    request_change_as(ValueOrigin::Hosts, tasks, &Value::Null, state)
}

fn add_host(options: &str) -> String {
    format!("    - {{add_host: {{{options}}}, register: r}}\n")
}

#[test]
fn the_controller_evaluates_the_options_of_the_task() {
    let state = json!({"registers": {"r": {"stdout": "web"}, "fixed": "evil"}, "facts": {"ansible_os": "Red Hat"}});
    let add = add_host("name: '{{ fixed }}-{{ r.stdout }}:2222', groups: 'a, b', x: '{{ fixed }}'");
    let change = request_change(&add, &state).unwrap();
    assert_eq!((change.host.as_str(), change.groups.join(" ")), ("playbook-web", "a b".to_owned()));
    assert_eq!(Value::Object(change.vars), json!({"x": "playbook", "ansible_ssh_port": 2222}));
    let change = request_change("    - {group_by: {key: 'os {{ ansible_os }}', parents: [any os]}}\n", &state).unwrap();
    assert_eq!(change.host.as_str(), "w1");
    assert_eq!((change.groups, change.parents), (vec!["os-Red-Hat".to_owned()], vec!["any-os".to_owned()]));
    for (tasks, why) in [
        ("    - {add_host: {name: x}, when: fixed == 'evil'}\n", "the condition does not hold"),
        ("    - {command: id}\n", "the task does not change the inventory"),
        ("    - {add_host: {name: '{{ r.stdout }} *'}, register: r}\n", "`web *` cannot be the name"),
        ("    - {group_by: {key: '!{{ fixed }}'}}\n", "`!playbook` cannot be the name"),
        ("    - {group_by: {key: ../all}}\n", "`../all` cannot be the name"),
    ] {
        let error = request_change(tasks, &state).unwrap_err();
        assert!(error.contains(why), "{tasks}: {error}");
    }
}

#[test]
fn values_of_a_host_choose_only_the_address_of_a_new_host() {
    let state = json!({"registers": {"r": {"x": "evil", "db": "db1", "own": "localhost", "port": 99, "two": "a b", "shell": "x;id"}}});
    let plan = |options: &str| request_change(&add_host(options), &state);
    for options in [
        "name: '{{ r.x }}', ansible_host: '{{ r.x }}', ansible_port: '{{ r.port }}', ansible_user: '{{ r.x }}', y: 1",
        "name: new, ansible_connection: local, ansible_python_interpreter: '{{ fixed }}', ansible_ssh_common_args: -v",
        "name: db1, ansible_host: 192.0.2.1, ansible_user: root",
        "name: '{{ r.db }}', groups: g",
        "name: localhost",
    ] {
        assert!(plan(options).is_ok(), "{options}: {:?}", plan(options));
    }
    let only = "only the playbook may choose";
    for (options, why) in [
        ("name: new, ansible_connection: '{{ r.x }}'", only),
        ("name: new, ansible_connection: \"{{ 'local' if r.x == 'evil' else 'ssh' }}\"", only),
        ("name: new, ansible_ssh_common_args: '-o ProxyCommand={{ r.x }}'", only),
        ("name: new, ansible_python_interpreter: \"{{ r.x | default('/usr/bin/python3') }}\"", only),
        ("name: new, remoor_state_dir: '/{{ r.x }}'", only),
        ("name: db1, ansible_host: '{{ r.x }}'", only),
        ("name: '{{ r.db }}', ansible_user: root", "cannot be set for the known host `db1`"),
        ("name: '{{ r.db }}', y: 1", "cannot be set for the known host `db1`"),
        // Later plays use the variables of the inventory in lookups and paths of the controller.
        ("name: new, release: '{{ r.x }}'", only),
        ("name: new, ansible_host: '{{ r.shell }}'", "`x;id` cannot be"),
        ("name: '{{ r.shell }}'", "`x;id` cannot be the name"),
        ("name: 'a$(id)'", "cannot be the name"),
        ("name: '{{ r.own }}'", "only the playbook may name this machine"),
        ("name: new, ansible_host: '{{ r.two }}'", "`a b` cannot be"),
        ("name: new, ansible_port: '{{ r.x }}'", "`evil` cannot be"),
    ] {
        let error = plan(options).unwrap_err();
        assert!(error.contains(why), "{options}: {error}");
        if why == only {
            let trusted = request_change_as(ValueOrigin::ThisMachine, &add_host(options), &Value::Null, &state);
            assert!(trusted.is_ok(), "{options}: {trusted:?}");
        }
    }
    // The items of a loop count too.
    let with_loop = |items: &str| {
        format!("    - {{add_host: {{name: x, ansible_connection: '{{{{ item }}}}'}}, register: r, loop: {items}}}\n")
    };
    let of_loop = |items: &str, item: &str| {
        request_change_as(ValueOrigin::Hosts, &with_loop(items), &json!([0, item]), &state).map(|change| change.vars)
    };
    assert_eq!(of_loop("[ssh]", "ssh").unwrap()["ansible_connection"], "ssh");
    assert!(of_loop("['{{ r.x }}']", "evil").unwrap_err().contains(only));
}

#[test]
fn values_of_a_host_are_no_templates_and_no_encrypted_values() {
    let text = "{{ lookup('pipe', 'id') }} {% raw %}{% endraw %}";
    let state = json!({"registers": {"r": {"x": text, "sealed": {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256"}}}});
    let tasks = add_host("name: new, y: ['{{ r.x }}']");
    let change = request_change_as(ValueOrigin::ThisMachine, &tasks, &Value::Null, &state).unwrap();
    // The variable has the same text if a later play renders it.
    let vars = json!({"inventory_hostname": "new", "group_names": [], "y": change.vars["y"]});
    let files = [("site.yml".to_owned(), b"- hosts: all\n  tasks: [{assert: {that: 'y[0] == want'}}]\n".to_vec())];
    let mut extra = Map::new();
    extra.insert("want".to_owned(), json!(text.replace('{', "{{ '{' }}")));
    let options = CompileOptions { extra_vars: extra, ..CompileOptions::default() };
    let plan = compile(&FileSet(files.into()), "site.yml", &make_host("new", &vars), &options).unwrap().plan;
    let dir = TempDir::new().unwrap();
    go(&plan, &super::options(dir.path())).assert_success();
    let stored = change.vars["y"][0].as_str().unwrap();
    assert!(!stored.contains("{{ lookup") && !stored.contains("{%"), "{stored}");
    let tasks = add_host("name: new, y: {z: '{{ r.sealed }}'}");
    let sealed = request_change_as(ValueOrigin::ThisMachine, &tasks, &Value::Null, &state).unwrap_err();
    assert!(sealed.contains("`y` is an encrypted value"), "{sealed}");
}

#[test]
fn a_run_that_waits_for_the_inventory_continues_with_another_plan() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {add_host: {name: new, y: 1}, register: a}
    - {command: echo out, register: r, notify: h}
    - {include_vars: v.yml}
  handlers: [{name: h, command: 'true'}]
- hosts: all
  tasks: [{shell: 'echo {{ r.stdout }} {{ from_file }} {{ a.add_host.host_name }} > {{ dir }}/out'}]
";
    let files = [("site.yml", text), ("v.yml", "from_file: file\n")];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    let vars = json!({"dir": dir.path(), "inventory_hostname": "w1", "group_names": []});
    let options_of = CompileOptions { delegates: true, ..CompileOptions::default() };
    let plan = compile(&FileSet(files.into()), "site.yml", &make_host("w1", &vars), &options_of).unwrap().plan;
    assert_eq!((plan.inventory_change_from(0), plan.last_play()), (Some(0), 1));
    let mut first = plan.clone();
    first.wait_for_inventory();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (copy, noted) = (first.clone(), Arc::clone(&asked));
    let controller = ControllerLink::new(move |request| match read_request(&copy, false, request).unwrap() {
        ControllerRequest::Inventory(request) => {
            let change = plan_inventory_change(&copy, request, &view(false, &|_| None), ValueOrigin::Hosts).unwrap();
            noted.lock().unwrap().push(change.host.clone());
            Ok(change.answer(true))
        }
        other => panic!("{other:?}"),
    });
    let gate = crate::PlayBarrier::new(|play| (play == 0).then(BTreeSet::new));
    let run_options = PlaybookRunOptions { controller: Some(controller), gate: Some(gate), ..options(dir.path()) };
    let ran = go(&first, &run_options);
    let checkpoint = ran.end.checkpoint.unwrap();
    assert!(ran.end.cancelled && !dir.path().join("out").exists());
    assert_eq!(*asked.lock().unwrap(), ["new"]);

    let next = plan.continue_from(1, &first, checkpoint);
    let end = go(&next, &options(dir.path())).assert_success().end;
    assert_eq!(std::fs::read_to_string(dir.path().join("out")).unwrap(), "out file new\n");
    assert_eq!((end.ok, end.changed), (1, 4), "the counts of both plans");
}
