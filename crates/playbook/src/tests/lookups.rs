//! Lookups that the controller answers, as correct and as compromised nodes request them.

use super::delegation::{compile_playbook, view};
use super::*;
use crate::{
    ControllerLink, ControllerRequest, DelegationError, KnownAnswers, LookupAnswer, LookupCall, PlannedLookup,
    PluginKind, plan_delegated, plan_lookup, read_request, with_lookup_answers,
};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// A controller in this process, which performs each lookup as the text of its call.
#[derive(Default)]
struct FakeController {
    known: Mutex<Arc<KnownAnswers>>,
    performed: Mutex<Vec<PlannedLookup>>,
}

impl FakeController {
    fn answer(&self, plan: &Plan, request: &[u8], check: bool) -> Vec<u8> {
        let known = Arc::clone(&self.known.lock().unwrap());
        let hosts = |_: &str| Some(Map::new());
        match read_request(plan, false, request).unwrap() {
            ControllerRequest::Delegate(request) => {
                let task = with_lookup_answers(known, || plan_delegated(plan, request, &view(check, &hosts))).unwrap();
                let sent = rmp_serde::to_vec_named(&task.plan).unwrap();
                let plan = rmp_serde::from_slice(&sent).unwrap();
                let end = run(&plan, &PlaybookRunOptions::default(), &CancelToken::new(), &mut |_| ());
                serde_json::to_vec(&end.answer).unwrap()
            }
            ControllerRequest::Lookup(request) => {
                let lookup = match with_lookup_answers(known, || plan_lookup(plan, *request, &view(check, &hosts))) {
                    Ok(lookup) => lookup,
                    Err(error) => return LookupAnswer::of_error(&error).encode(),
                };
                let LookupCall { plugin, name, terms, options } = &lookup.call;
                let texts: Vec<&str> = terms.iter().filter_map(Value::as_str).collect();
                let items = match name.as_str() {
                    _ if *plugin == PluginKind::Test => vec![json!(terms.len() < 2 || terms[0] == terms[1])],
                    _ if *plugin == PluginKind::Filter && texts == ["fail"] => {
                        return LookupAnswer::Failed("it has failed".to_owned()).encode();
                    }
                    _ if *plugin == PluginKind::Filter => {
                        let options = if options.is_empty() { String::new() } else { json!(options).to_string() };
                        vec![json!(format!("{name}{}{options}", json!(terms)))]
                    }
                    "lines" => texts.iter().flat_map(|text| text.split(' ')).map(Value::from).collect(),
                    "pipe" if texts == ["fail"] => {
                        return LookupAnswer::Failed("it has failed".to_owned()).encode();
                    }
                    _ => {
                        vec![json!(format!("{name}({}{})", texts.join(","), if options.is_empty() { "" } else { "+" }))]
                    }
                };
                Arc::make_mut(&mut self.known.lock().unwrap()).insert(lookup.call.key(), items.clone());
                self.performed.lock().unwrap().push(lookup);
                LookupAnswer::Items(items).encode()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Runs the playbook, and returns the lookups that the controller has performed.
pub(super) fn run_playbook(dir: &Path, text: &str, files: &[(&str, &str)], check: bool) -> (Ran, Vec<PlannedLookup>) {
    let plan = compile_playbook(dir, text, files);
    let copy = plan.clone();
    let controller = Arc::new(FakeController::default());
    let own = Arc::clone(&controller);
    let link = ControllerLink::new(move |request| Ok(own.answer(&copy, request, check)));
    let ran = go(&plan, &PlaybookRunOptions { check, controller: Some(link), ..options(dir) });
    let performed = controller.performed.lock().unwrap().clone();
    (ran, performed)
}

#[test]
fn the_controller_answers_what_the_run_cannot() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  vars: {lazy: \"{{ lookup('pipe', 'of ' ~ word) }}\", word: play}
  tasks:
    - {command: echo 1, register: r}
    - {set_fact: {named: \"{{ lookup('password', 'p ' ~ r.stdout, length=3) }}\"}}
    - {set_fact: {inner: \"{{ lookup('pipe', lookup('ini', lazy)) }}\"}, when: \"lookup('pipe', 'yes') is search('yes')\"}
    - {set_fact: {skipped: \"{{ lookup('pipe', 'never') }}\"}, when: \"lookup('pipe', 'no') == 'x'\"}
    - {shell: 'echo {{ item }} {{ lookup(\"ini\", item) | quote }} >> {{ dir }}/looped', with_lines: [a b, c]}
    - {template: {src: t.j2, dest: '{{ dir }}/t'}, vars: {names: [x, y]}}
    - {include_tasks: '{{ lookup(\"env\", \"TASKS\") }}.yml', loop: [1, 2], loop_control: {loop_var: outer}}
    - {set_fact: {lenient: \"{{ lookup('pipe', 'fail', errors='ignore') }}|{{ q('pipe', 'fail', errors='ignore') }}\"}}
    - {command: 'true', register: judged, changed_when: \"lookup('pipe', judged.rc ~ 'j') == 'x'\"}
    - {copy: {dest: '{{ dir }}/delegated', content: \"{{ lookup('pipe', 'far') }}\"}, delegate_to: b}
    - {debug: {msg: \"{{ lookup('pipe', 'fail') }}\"}, ignore_errors: true, register: failed}
    - {copy: {dest: '{{ dir }}/out', content: '{{ named }} {{ inner }} {{ skipped is defined }} {{ lenient }} {{ failed.msg }} {{ judged is changed }}'}}
";
    let files = [
        (
            "t.j2",
            "{% for name in names %}{{ lookup('file', name ~ '.txt') }} {{ q('x.y.z', name, a=1) }}{% endfor %}\n",
        ),
        (
            "env(TASKS).yml",
            "- {shell: 'echo {{ outer }} {{ lookup(\"pipe\", \"i\" ~ outer) | quote }} >> {{ dir }}/included'}\n",
        ),
    ];
    let (ran, performed) = run_playbook(dir.path(), text, &files, false);
    let ran = ran.assert_success();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let out = read("out");
    assert!(
        out.starts_with("password(p 1+) pipe(ini(pipe(of play))) False |[] ") && out.ends_with("it has failed False"),
        "{out}\n{}",
        ran.text()
    );
    assert_eq!(read("looped"), "a ini(a)\nb ini(b)\nc ini(c)\n");
    assert_eq!(read("t"), "file(x.txt) ['x.y.z(x+)']file(y.txt) ['x.y.z(y+)']\n");
    assert_eq!(read("included"), "1 pipe(i1)\n2 pipe(i2)\n");
    assert_eq!(read("delegated"), "pipe(far)");
    assert!(performed.iter().all(|lookup| lookup.call.terms != [json!("never")]), "{performed:?}");
    let first = performed.iter().find(|lookup| lookup.call.name == "password").unwrap();
    assert_eq!(first.places, [""]);
    assert_eq!(first.variables["inventory_hostname"], "w1");
}

#[test]
fn an_answer_is_data_and_no_template() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {copy: {dest: '{{ dir }}/a', content: \"{{ lookup('pipe', '{{') }}\"}}
    - {copy: {dest: '{{ dir }}/b', content: \"{{ lookup('pipe', '{{ url }}') }}\"}, delegate_to: b, vars: {x: 1}}
    - {set_fact: {kept: \"{{ lookup('pipe', '{{ ur' ~ 'l }}') }}\"}}
    - {copy: {dest: '{{ dir }}/c', content: '{{ kept }}'}, delegate_to: b}
";
    let (ran, _) = run_playbook(dir.path(), text, &[], false);
    ran.assert_success();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("a"), "pipe({{)");
    assert_eq!(read("b"), "pipe({{ url }})");
    assert_eq!(read("c"), "pipe({{ url }})");
}

#[test]
fn check_mode_asks_for_what_it_knows() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {command: 'echo x', register: r}
    - {copy: {dest: '{{ dir }}/a', content: \"{{ lookup('pipe', 'known') }}\"}}
    - {copy: {dest: '{{ dir }}/b', content: \"{{ lookup('pipe', r.stdout) }}\"}}
";
    let (ran, performed) = run_playbook(dir.path(), text, &[], true);
    let statuses: Vec<Status> = ran.assert_success().statuses().into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses, [Status::WouldRun, Status::Changed, Status::Unknown]);
    assert_eq!(performed.iter().map(|lookup| lookup.call.terms.clone()).collect::<Vec<_>>(), [[json!("known")]]);
}

const ATTACKED: &str = "\
- hosts: all
  vars: {program: safe, deploy: false, both: '{{ program }} {{ r.stdout }}'}
  tasks:
    - {command: id, register: r}
    - {debug: {msg: \"{{ lookup('pipe', 'run ' ~ program) }}\"}}
    - {debug: {msg: \"{{ lookup('pipe', both) }}\"}}
    - {debug: {msg: \"{{ lookup('pipe', 'deploy') }}\"}, when: deploy}
    - {debug: {msg: \"{{ lookup('file', item) }}\"}, loop: [a, '{{ ansible_hostname }}']}
    - {shell: \"lookup('pipe', 'plain text')\"}
    - {debug: {msg: '{{ url }}'}}
";

/// The answer of the controller to a request for a lookup of a task.
fn attack(
    task: u32,
    state: &Value,
    item: &Value,
    call: &Value,
    through: u32,
) -> Result<PlannedLookup, DelegationError> {
    let dir = TempDir::new().unwrap();
    let plan = compile_playbook(dir.path(), ATTACKED, &[]);
    let request = json!({"lookup": {"task": task, "state": state, "item": item, "result": null, "call": call}});
    let hosts = |_: &str| Some(Map::new());
    match read_request(&plan, false, request.to_string().as_bytes())? {
        ControllerRequest::Lookup(request) => with_lookup_answers(Arc::default(), || {
            plan_lookup(&plan, *request, &crate::ControllerView { through, ..view(false, &hosts) })
        }),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_cannot_choose_what_the_controller_looks_up() {
    let pipe = |command: &str| json!({"name": "pipe", "terms": [command]});
    let none = || Value::Null;
    let told = |task: u32, state: Value, item: Value, call: Value| match attack(task, &state, &item, &call, 9) {
        Ok(lookup) => {
            let by = if lookup.depends_on_host { " by host" } else { "" };
            format!("{} {:?}{by}", lookup.call.name, lookup.call.terms)
        }
        Err(error) => error.to_string(),
    };
    let with = |stdout: &str| json!({"registers": {"r": {"stdout": stdout}}});
    assert_eq!(told(2, json!({}), none(), pipe("run safe")), r#"pipe [String("run safe")]"#);
    assert_eq!(told(3, with("x"), none(), pipe("safe x")), r#"pipe [String("safe x")] by host"#);
    let refused = "the controller's evaluation does not make this call of the lookup `pipe` with its own variables";
    // The text is in no task, in another task, or no template.
    assert_eq!(told(2, json!({}), none(), pipe("rm -rf /")), refused);
    assert_eq!(told(1, json!({}), none(), pipe("run safe")), refused);
    assert_eq!(told(6, json!({}), none(), pipe("plain text")), refused);
    // Another lookup, or another option.
    assert!(
        told(2, json!({}), none(), json!({"name": "lines", "terms": ["run safe"]})).contains("does not make this call")
    );
    let option = json!({"name": "pipe", "terms": ["run safe"], "options": {"x": 1}});
    assert_eq!(told(2, json!({}), none(), option), refused);
    // Forged values of variables of the playbook and the inventory.
    let forged = json!({
        "facts": {"program": "evil", "url": "{{ lookup('pipe', 'evil') }}"},
        "registers": {"program": "evil", "deploy": true, "url": "{{ lookup('pipe', 'evil') }}"},
        "included": [[0, null]], "files": [0], "others": {"w1": {"program": "evil"}},
        "exports": {"defaults": [0], "vars": [0]},
    });
    for task in [2, 3] {
        assert_eq!(told(task, forged.clone(), none(), pipe("run evil")), refused);
    }
    assert_eq!(told(7, forged.clone(), none(), pipe("evil")), refused);
    assert_eq!(told(4, forged, none(), pipe("deploy")), "the condition does not hold on the controller");
    // A result is data, also in an argument.
    assert_eq!(told(3, with("{{ lookup('pipe', 'evil') }}"), none(), pipe("evil")), refused);
    // Items that the loop does not have.
    let item = |name: &str| json!({"item": name, "ansible_loop_var": "item"});
    let file = |name: &str| json!({"name": "file", "terms": [name]});
    let facts = json!({"facts": {"ansible_hostname": "h"}});
    assert_eq!(told(5, facts.clone(), item("a"), file("a")), r#"file [String("a")] by host"#);
    assert_eq!(told(5, facts.clone(), item("h"), file("h")), r#"file [String("h")] by host"#);
    assert!(told(5, facts.clone(), item("/etc/shadow"), file("/etc/shadow")).contains("other items"));
    assert!(
        told(5, facts, json!({"item": "a", "ansible_loop_var": "item", "x": 1}), file("a")).contains("other items")
    );
    assert!(told(99, json!({}), none(), pipe("run safe")).contains("it names no task"));
}

/// The items of an include count as values of the host unless the playbook alone decides them.
#[test]
fn the_items_of_an_include_are_not_taken_from_the_host() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {command: id, register: r}
    - {include_tasks: one.yml, loop: '{{ r.stdout_lines }}', loop_control: {loop_var: target}, tags: of_host}
    - {include_tasks: one.yml, loop: [fixed], loop_control: {loop_var: target}, tags: of_playbook}
";
    let one = [("one.yml", "- {name: asks, debug: {msg: \"{{ lookup('pipe', 'dig ' ~ target) }}\"}}\n")];
    let plan = compile_playbook(dir.path(), text, &one);
    let mut ids = Vec::new();
    plan.each_task(&mut |task| ids.extend((task.name == "asks").then_some(task.id)));
    let ask = |id: u32, item: &str, term: &str| {
        let layer = json!({"target": item, "ansible_loop_var": "target"});
        let state = json!({"registers": {"r": {"stdout_lines": [item]}}, "params": [layer]});
        let call = json!({"name": "pipe", "terms": [term]});
        let request = json!({"lookup": {"task": id, "state": state, "item": null, "result": null, "call": call}});
        let hosts = |_: &str| Some(Map::new());
        let Ok(ControllerRequest::Lookup(request)) = read_request(&plan, false, request.to_string().as_bytes()) else {
            panic!()
        };
        let planned = with_lookup_answers(Arc::default(), || plan_lookup(&plan, *request, &view(false, &hosts)));
        planned.map(|lookup| lookup.depends_on_host).map_err(|error| error.to_string())
    };
    let [of_host, of_playbook] = ids[..] else { panic!("{ids:?}") };
    assert_eq!(ask(of_host, "; evil", "dig ; evil"), Ok(true));
    assert_eq!(ask(of_playbook, "fixed", "dig fixed"), Ok(false));
    assert!(ask(of_playbook, "; evil", "dig ; evil").unwrap_err().contains("other items"));
    assert!(ask(of_host, "{{ lookup('pipe', 'evil') }}", "evil").unwrap_err().contains("does not make this call"));
}

#[test]
fn a_play_that_has_not_begun_has_no_lookups() {
    let dir = TempDir::new().unwrap();
    let text =
        "- {hosts: all, tasks: [{ping: }]}\n- {hosts: all, tasks: [{debug: {msg: \"{{ lookup('pipe', 'x') }}\"}}]}\n";
    let plan = compile_playbook(dir.path(), text, &[]);
    let request = r#"{"lookup": {"task": 2, "state": {}, "item": null, "result": null, "call": {"name": "pipe", "terms": ["x"]}}}"#;
    let Ok(ControllerRequest::Lookup(request)) = read_request(&plan, false, request.as_bytes()) else { panic!() };
    let hosts = |_: &str| Some(Map::new());
    let error = plan_lookup(&plan, *request, &crate::ControllerView { through: 0, ..view(false, &hosts) }).unwrap_err();
    assert!(matches!(error, DelegationError::Forbidden(_)), "{error}");
}

#[test]
fn a_run_without_a_controller_says_why_a_lookup_fails() {
    let dir = TempDir::new().unwrap();
    let plan =
        compile_playbook(dir.path(), "- {hosts: all, tasks: [{debug: {msg: \"{{ lookup('pipe', 'x') }}\"}}]}\n", &[]);
    let failure = go(&plan, &options(dir.path())).end.failure.unwrap();
    assert!(failure.message.contains("lookup `pipe` works only during `remoor play`"), "{}", failure.message);
}

#[test]
fn first_found_in_a_variable_finds_the_files_of_the_role_by_its_absolute_path() {
    let dir = TempDir::new().unwrap();
    let task = "- include_vars: \"{{ lookup('first_found', names) }}\"
  vars: {names: {files: ['{{ ansible_system }}.yml', default.yml], paths: ['{{ role_path }}/vars']}}
- assert: {that: found == 'default'}
";
    for base in ["", "plays/"] {
        let files = [
            (format!("{base}site.yml"), "- hosts: all\n  roles: [r]\n"),
            (format!("{base}roles/r/tasks/main.yml"), task),
            (format!("{base}roles/r/vars/default.yml"), "found: default\n"),
            (format!("{base}roles/r/vars/Minix.yml"), "found: other\n"),
        ];
        let set = FileSet(files.into_iter().map(|(path, text)| (path, text.as_bytes().to_vec())).collect());
        let host = HostContext { name: "w1".into(), ..HostContext::default() };
        let options_of = CompileOptions { root: "/srv/site", delegates: true, ..CompileOptions::default() };
        let plan = compile(&set, &format!("{base}site.yml"), &host, &options_of).unwrap().plan;
        go(&plan, &options(dir.path())).assert_success();
    }
}
