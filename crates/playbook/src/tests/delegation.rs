//! Requests for delegated tasks, as correct and as compromised nodes make them.

use super::*;
use crate::modules::TaskOutcome;
use crate::{
    ControllerLink, ControllerRequest, ControllerView, DelegatedTask, DelegationError, plan_delegated, read_request,
};
use serde_json::Value;
use std::collections::BTreeSet;

const PLAYBOOK: &str = "\
- hosts: all
  vars: {script: safe, hidden: other, both: '{{ script }} {{ r.stdout }}'}
  tasks:
    - {command: id, register: r}
    - {command: 'run {{ both }}', delegate_to: localhost, when: r.rc == 0}
    - {command: 'run {{ item }}', delegate_to: '{{ r.stdout }}', loop: [a, b]}
    - {command: 'run {{ ansible_hostname }} {{ url }}', delegate_to: db1, retries: 3}
    - {include_tasks: more.yml, loop: [x], loop_control: {loop_var: outer}}
    - {set_fact: {y: 1}, delegate_to: db1, delegate_facts: true}
    - {command: 'show {{ hostvars.b.y }}', delegate_to: db1}
    - {include_tasks: never.yml, when: r.rc == 9, loop: [x], loop_control: {loop_var: inner}}
";

/// A host of the group `web` with these variables.
pub(super) fn make_host(name: &str, vars: &Value) -> HostContext {
    HostContext {
        name: name.into(),
        group: "web".into(),
        vars: vars.as_object().unwrap().clone(),
        origins: Default::default(),
    }
}

fn delegating_plan() -> Plan {
    let files = [
        ("site.yml", PLAYBOOK),
        ("more.yml", "- {command: 'run {{ outer }}', delegate_to: db1}\n"),
        ("never.yml", "- {command: 'never {{ inner }}', delegate_to: db1}\n"),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    let vars = json!({
        "inventory_hostname": "w1", "group_names": [], "url": "http://w1", "token": "secret", "hostvars": {"b": {}},
    });
    let host = make_host("w1", &vars);
    let options = CompileOptions { delegates: true, ..CompileOptions::default() };
    compile(&FileSet(files.into()), "site.yml", &host, &options).unwrap().plan
}

fn request(task: u32, item: Value, state: Value) -> Result<DelegatedTask, DelegationError> {
    let vars = |name: &str| ["db1", "localhost"].contains(&name).then(Map::new);
    plan_request(&delegating_plan(), &json!({"task": task, "item": item, "state": state}), &vars)
}

/// What the controller knows about a run: no host failed.
pub(super) fn view(check: bool, host_vars: &dyn Fn(&str) -> Option<Map<String, Value>>) -> ControllerView<'_> {
    static LOST: BTreeSet<String> = BTreeSet::new();
    ControllerView { check, through: u32::MAX, lost: &LOST, host_vars }
}

fn plan_request(
    plan: &Plan,
    request: &Value,
    vars: &dyn Fn(&str) -> Option<Map<String, Value>>,
) -> Result<DelegatedTask, DelegationError> {
    let text = json!({"delegate": request}).to_string();
    match read_request(plan, false, text.as_bytes())? {
        ControllerRequest::Delegate(request) => plan_delegated(plan, request, &view(false, vars)),
        other => panic!("{other:?}"),
    }
}

fn refusal(task: u32, item: Value, state: Value) -> String {
    request(task, item, state).map(|task| task.host).unwrap_err().to_string()
}

/// The number of the task with this text.
fn number(text: &str) -> u32 {
    let (mut found, plan) = (None, delegating_plan());
    plan.each_task(&mut |task| {
        let args = Value::Object(task.args.clone()).to_string();
        found = found.or((args.contains(text) || task.module == text).then_some(task.id));
    });
    found.unwrap()
}

#[test]
fn a_node_can_request_only_delegated_tasks() {
    let state = json!({"registers": {"r": {"rc": 0, "stdout": "out"}}});
    let task = request(number("both"), Value::Null, state.clone()).unwrap();
    assert_eq!((task.host.as_str(), task.limits.times_max), ("localhost", 1));
    for (id, why) in [(number("id"), "is not delegated"), (number("set_fact"), "is not delegated"), (999, "no task")] {
        let error = request(id, Value::Null, state.clone()).unwrap_err();
        assert!(matches!(error, DelegationError::Forbidden(_)) && error.to_string().contains(why), "{error}");
    }
    for text in ["{", r#"{"delegate": 1}"#, r#"{"turn": 1}"#, r#"{"result": {"task": 1, "content": null}}"#] {
        let error = read_request(&delegating_plan(), false, text.as_bytes()).unwrap_err();
        assert!(matches!(error, DelegationError::Forbidden(_)), "{text}: {error}");
    }
}

#[test]
fn the_controller_decides_on_condition_items_and_host() {
    let with = |rc: u32, stdout: &str| json!({"registers": {"r": {"rc": rc, "stdout": stdout}}});
    assert!(refusal(number("both"), Value::Null, with(1, "")).contains("does not hold"));
    let looped = number("item");
    assert_eq!(request(looped, json!([1, "b"]), with(0, "db1")).unwrap().host, "db1");
    for item in [json!([1, "a"]), json!([2, "c"])] {
        assert!(refusal(looped, item, with(0, "db1")).contains("other items"));
    }
    assert!(refusal(looped, Value::Null, with(0, "db1")).contains("an item is missing"));
    assert_eq!(refusal(looped, json!([0, "a"]), with(0, "db2")), "`delegate_to`: `db2` is not a host of the inventory");
    // A result of the node is data and no template.
    assert!(refusal(looped, json!([0, "a"]), with(0, "{{ 'db1' }}")).contains("`{{ 'db1' }}` is not a host"));
}

#[test]
fn a_node_cannot_replace_variables_of_the_playbook() {
    let forged = json!({
        "facts": {"url": "evil", "ansible_hostname": "mine"},
        "registers": {"script": "evil", "url": "evil", "r": {"rc": 0, "stdout": "out"}},
        "included": [[0, null], [1, "script"]], "files": [0], "exports": {"defaults": [], "vars": [0]},
    });
    let state = |id: u32| request(id, Value::Null, forged.clone()).unwrap().plan.delegated.unwrap().state;
    let known = state(number("both"));
    assert_eq!(known["registers"], json!({"r": {"rc": 0, "stdout": "out"}}));
    assert_eq!((&known["included"], &known["files"], &known["exports"]["vars"]), (&json!([]), &json!([]), &json!([])));
    assert_eq!(state(number("url"))["facts"], json!({"ansible_hostname": "mine"}));
}

/// The variables of the loop of an include.
fn make_layer(name: &str, item: &str) -> Value {
    json!({name: item, "ansible_loop_var": name})
}

#[test]
fn a_node_cannot_choose_the_items_of_an_include_and_no_include_that_does_not_run() {
    let params = |layers: Value| json!({"params": layers, "registers": {"r": {"rc": 0, "stdout": ""}}});
    let task = request(number("outer"), Value::Null, params(json!([make_layer("outer", "x")]))).unwrap();
    assert_eq!(task.plan.delegated.unwrap().state["params"], json!([{"outer": "x"}]));
    for (text, layers, why) in [
        ("outer", json!([make_layer("outer", "; id")]), "its loop has other items than on the host"),
        ("outer", json!([{"outer": "x", "ansible_loop_var": "outer", "script": "evil"}]), "has other items"),
        ("outer", json!([]), "the item of an include is missing"),
        ("outer", json!([make_layer("outer", "x"), make_layer("outer", "x")]), "do not lead to the task"),
        ("inner", json!([make_layer("inner", "x")]), "its condition does not hold"),
        ("both", json!([make_layer("outer", "x")]), "do not lead to the task"),
    ] {
        let refused = refusal(number(text), Value::Null, params(layers));
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

#[test]
fn a_node_cannot_name_programs_of_another_host_or_change_other_hosts() {
    let python = json!({"ansible_python_interpreter": "/bin/sh -c id", "ansible_become_user": "x", "ansible_x": 1});
    let state = json!({
        "facts": python, "registers": python, "lost": ["b"],
        "others": {"b": {"y": "mine", "ansible_host": "evil", "ansible_lb": "evil"}, "db1": {"z": "evil"}},
    });
    let request = json!({"task": number("show"), "item": null, "state": state});
    let vars = |_: &str| Some(Map::from_iter([("ansible_lb".to_owned(), json!("own"))]));
    let plan = delegating_plan();
    let task = plan_request(&plan, &request, &vars).unwrap();
    let state = task.plan.delegated.unwrap().state.to_string();
    assert!(!state.contains("/bin/sh") && !state.contains("evil") && state.contains("mine"), "{state}");
    assert_eq!(task.plan.vars.get("ansible_python_interpreter"), None);
}

/// Runs a playbook whose delegated tasks all get these facts as their answer.
fn run_with_facts(dir: &Path, text: &str, facts: Value) -> String {
    let plan = compile_playbook(dir, text, &[]);
    let facts = facts.as_object().unwrap().clone();
    let answer = json!({"Ok": TaskOutcome { facts, ..TaskOutcome::default() }}).to_string().into_bytes();
    let controller = ControllerLink::new(move |_| Ok(answer.clone()));
    go(&plan, &PlaybookRunOptions { controller: Some(controller), ..options(dir) }).assert_success();
    std::fs::read_to_string(dir.join("a")).unwrap()
}

#[test]
fn another_host_cannot_set_variables_of_the_host_that_delegates() {
    let dir = TempDir::new().unwrap();
    let evil = json!({"url": "evil", "own": "evil", "ansible_lb": "k", "ansible_become_user": "evil"});
    let text = "\
- hosts: all
  vars: {own: mine}
  tasks:
    - {command: id, delegate_to: b}
    - {copy: {content: '{{ url }} {{ own }} {{ ansible_lb | default(0) }}', dest: '{{ dir }}/a'}}
";
    assert_eq!(run_with_facts(dir.path(), text, evil.clone()), "http://w1 mine 0");
    let text = text
        .replace("command: id", "setup: {filter: x}")
        .replace("(0) }}", "(0) }} {{ ansible_become_user | default(0) }}");
    assert_eq!(run_with_facts(dir.path(), &text, evil), "http://w1 mine k 0");
}

#[test]
fn the_host_of_the_task_receives_only_what_the_task_reads() {
    let state = json!({
        "facts": {"ansible_hostname": "w1", "ansible_env": {"TOKEN": "t"}},
        "registers": {"r": {"rc": 0, "stdout": "out"}, "y": 1},
    });
    let task = request(number("both"), Value::Null, state.clone()).unwrap();
    let layers: Vec<&String> =
        task.plan.layers.iter().flat_map(Map::keys).filter(|name| *name != "playbook_dir").collect();
    assert_eq!(layers, ["script", "both"]);
    assert!(task.plan.vars.is_empty() && task.plan.task_count() == 1, "{:?}", task.plan.vars);
    let task = request(number("url"), Value::Null, state).unwrap();
    assert_eq!(task.plan.vars.keys().collect::<Vec<_>>(), ["url"]);
    let delegated = task.plan.delegated.unwrap();
    assert_eq!(delegated.state["registers"], json!({}));
    assert_eq!(delegated.state["facts"], json!({"ansible_hostname": "w1"}));
}

/// The plan of `site.yml`, which may include the file `more.yml`.
fn plan_with_include(text: &str, more: &str) -> Plan {
    let files = [("site.yml", text), ("more.yml", more)];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    let host = make_host("w1", &json!({"inventory_hostname": "w1", "group_names": []}));
    let options = CompileOptions { delegates: true, ..CompileOptions::default() };
    compile(&FileSet(files.into()), "site.yml", &host, &options).unwrap().plan
}

#[test]
fn a_task_may_be_requested_as_often_as_its_plan_explains() {
    let more = "- {command: 'run {{ outer | default(0) }}', delegate_to: db1}\n";
    let limits = |text: &str, params: Value| {
        let plan = plan_with_include(text, more);
        let mut delegated = Vec::new();
        plan.each_task(&mut |task| delegated.extend(task.hosts.delegation.is_some().then_some(task.id)));
        let request = json!({"task": delegated[0], "item": null, "state": {"params": params}});
        let limits = plan_request(&plan, &request, &|_| Some(Map::new())).unwrap().limits;
        (limits.times_max, limits.occurrence.include_items)
    };
    let once = (1, Vec::new());
    assert_eq!(limits("- hosts: all\n  tasks: [{command: id, delegate_to: db1}]\n", json!([])), once);
    let retries = "- hosts: all\n  tasks: [{command: id, delegate_to: db1, retries: '{{ 1 + 2 }}'}]\n";
    assert_eq!(limits(retries, json!([])).0, 4);
    let until = "- hosts: all\n  tasks: [{command: id, delegate_to: db1, register: r, until: r.rc == 0}]\n";
    assert_eq!(limits(until, json!([])).0, 4, "Ansible's default of 3 retries");
    assert_eq!(limits("- hosts: all\n  tasks: [{include_tasks: more.yml}]\n", json!([])), once);
    let looped = "{include_tasks: more.yml, loop: [x, y, x], loop_control: {loop_var: outer}}";
    let text = format!("- hosts: all\n  tasks: [{looped}]\n");
    assert_eq!(limits(&text, json!([make_layer("outer", "x")])), (2, vec![0]), "two equal items");
    assert_eq!(limits(&text, json!([make_layer("outer", "y")])), (1, vec![1]));
    let handler = |tasks: &str| {
        let handlers = "[{name: h, command: id, delegate_to: db1}]";
        limits(&format!("- hosts: all\n  tasks: [{tasks}{{ping: }}]\n  handlers: {handlers}\n"), json!([])).0
    };
    assert_eq!(handler("{meta: flush_handlers}, "), handler("") + 20, "a flush has 20 rounds");
    assert!(handler("") < 200);
}

#[test]
fn the_host_of_the_task_receives_only_the_secret_texts_that_the_task_reads() {
    let mut plan = delegating_plan();
    let quoted = "pa\"ss\\wd\"";
    for text in ["http://w1", "secret", "result-of-a-task", quoted, "of-another-host"] {
        plan.secrets.add_text(text);
    }
    let state = json!({
        "registers": {"r": {"rc": 0, "stdout": format!("result-of-a-task {quoted}")}},
        "others": {"b": {"y": "of-another-host"}},
    });
    let request = |task: u32| {
        let request = json!({"task": task, "item": null, "state": state});
        plan_request(&plan, &request, &|_| Some(Map::new())).unwrap().plan.secrets
    };
    let url = request(number("url"));
    assert!(url.texts().contains("http://w1"), "{:?}", url.texts());
    assert!(!url.texts().iter().any(|text| text == "secret" || text == "result-of-a-task"), "{:?}", url.texts());
    assert!(request(number("show")).texts().contains("of-another-host"), "the task reads the other host's fact");
    let both = request(number("both"));
    assert!(both.texts().contains("result-of-a-task") && both.texts().contains(quoted), "the task reads the result");
}

pub(super) fn compile_playbook(dir: &Path, text: &str, files: &[(&str, &str)]) -> Plan {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
    let mut set: BTreeMap<String, Vec<u8>> = files.iter().map(owned).collect();
    set.extend([owned(&("site.yml", text))]);
    let vars =
        json!({"dir": dir, "inventory_hostname": "w1", "group_names": [], "url": "http://w1", "hostvars": {"w1": {}}});
    let host = make_host("w1", &vars);
    let compile_options = CompileOptions { delegates: true, ..CompileOptions::default() };
    compile(&FileSet(set), "site.yml", &host, &compile_options).unwrap().plan
}

/// Runs the playbook with a controller in this process. Every message passes through its encoded
/// form.
fn run_with_controller(dir: &Path, text: &str, files: &[(&str, &str)], check: bool) -> Ran {
    let plan = compile_playbook(dir, text, files);
    let copy = plan.clone();
    let controller = ControllerLink::new(move |request| {
        let Ok(ControllerRequest::Delegate(request)) = read_request(&copy, false, request) else {
            panic!("{}", String::from_utf8_lossy(request));
        };
        let task = match plan_delegated(&copy, request, &view(check, &|_| Some(Map::new()))) {
            Ok(task) => task,
            Err(error) => return Ok(error.answer()),
        };
        let sent = rmp_serde::to_vec_named(&task.plan).unwrap();
        let options = PlaybookRunOptions { check, ..PlaybookRunOptions::default() };
        let end = run(&rmp_serde::from_slice(&sent).unwrap(), &options, &CancelToken::new(), &mut |_| ());
        assert_eq!(end.failure, None);
        Ok(serde_json::to_vec(&end.answer).unwrap())
    });
    go(&plan, &PlaybookRunOptions { check, controller: Some(controller), ..options(dir) })
}

#[test]
fn the_result_of_a_delegated_task_is_that_of_any_task() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {command: echo one, register: r}
    - {set_fact: {named: '{{ r.stdout }}'}}
    - {include_vars: v.yml}
    - {copy: {content: '{{ named }} {{ from_file }} {{ inventory_hostname }}', dest: '{{ dir }}/a'}, delegate_to: b, register: c, notify: h}
    - {include_tasks: t.yml, loop: [x, y], loop_control: {loop_var: outer}}
    - {command: 'false', delegate_to: b, register: f, ignore_errors: true}
    - {assert: {that: [c is changed, c.dest == dir ~ '/a', f.rc == 1, f is failed, last.stdout == 'y1']}}
    - {setup: {filter: ansible_kernel}, delegate_to: b, delegate_facts: true}
    - {assert: {that: [hostvars.b.ansible_facts.kernel == ansible_facts.kernel]}}
  handlers: [{name: h, shell: 'echo h >> {{ dir }}/h', delegate_to: b}]
";
    let files = [
        ("v.yml", "from_file: '{{ url }}'\n"),
        (
            "t.yml",
            "- {command: 'echo {{ outer }}{{ item }}', loop: [1], delegate_to: b, register: all}\n- {set_fact: {last: '{{ all.results[0] }}'}}\n",
        ),
    ];
    let ran = run_with_controller(dir.path(), text, &files, false).assert_success();
    assert_eq!(std::fs::read_to_string(dir.path().join("a")).unwrap(), "one http://w1 w1");
    assert_eq!(std::fs::read_to_string(dir.path().join("h")).unwrap(), "h\n");
    let changed = ran.statuses().iter().filter(|(_, status)| *status == Status::Changed).count();
    assert_eq!(changed, 5, "{}", ran.text());
}

#[test]
fn check_mode_does_not_know_what_depends_on_a_delegated_command() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {command: 'touch {{ dir }}/a', delegate_to: b, register: r}
    - {copy: {content: x, dest: '{{ dir }}/b'}, delegate_to: b}
    - {command: 'touch {{ dir }}/c', delegate_to: b, when: r.rc == 0}
    - {copy: {content: x, dest: '{{ dir }}/d'}, delegate_to: '{{ r.stdout }}'}
";
    let ran = run_with_controller(dir.path(), text, &[], true).assert_success();
    let statuses: Vec<Status> = ran.statuses().into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses, [Status::WouldRun, Status::Changed, Status::Unknown, Status::Unknown], "{}", ran.text());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn without_a_controller_a_delegated_task_fails_when_it_is_reached() {
    let dir = TempDir::new().unwrap();
    let end = go(&delegating_plan(), &options(dir.path())).end;
    let failure = end.failure.unwrap();
    assert_eq!(failure.message, "a task can be delegated only during `remoor play`");
    assert_eq!((failure.line, end.ok + end.changed), (5, 1));
}
