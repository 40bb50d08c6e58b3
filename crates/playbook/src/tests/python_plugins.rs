//! Filters and tests in Python: which names the compiler accepts, how a run calls them, and what a
//! compromised node can request. The controller of these tests performs no Python.

use super::delegation::{compile_playbook, make_host, view};
use super::lookups::run_playbook;
use super::*;
use crate::{ControllerRequest, ModuleRefusal, ModuleRequest, ModuleSource, PackedModule, PluginRequest};
use crate::{plan_lookup, read_request, with_lookup_answers};
use serde_json::Value;
use std::sync::Arc;

const FILTERS: &str = "class FilterModule(object):\n    def filters(self):\n        return {'mine': f, \"upper\": g}\n";
const TESTS: &str = "class TestModule(object):\n    def tests(self):\n        return {'same_as': t}\n";
const OF_ROLE: &str = "class FilterModule(object):\n    def filters(self):\n        return dict(of_role=f)\n";

#[test]
fn plugins_are_called_wherever_a_template_names_them() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  roles: [r]
  tasks:
    - {command: echo out, register: r}
    - {set_fact: {args: \"{{ r.stdout | mine(1, b=[2]) }}\"}}
    - {set_fact: {skipped: 1}, when: \"r.stdout is not same_as('out')\"}
    - {shell: 'echo {{ item | quote }} >> {{ dir }}/looped', loop: \"{{ ['a', 'b'] | map('mine') | list }}\"}
    - {template: {src: t.j2, dest: '{{ dir }}/t'}}
    - {copy: {dest: '{{ dir }}/far', content: \"{{ r.stdout | mine }}\"}, delegate_to: b}
    - {debug: {msg: \"{{ 'fail' | mine }}\"}, ignore_errors: true, register: failed}
    - {copy: {dest: '{{ dir }}/out', content: \"{{ args }} {{ skipped is defined }} {{ of_default }} {{ nope | mine | default('d') }}\"}}
    - {copy: {dest: '{{ dir }}/msg', content: '{{ failed.msg }}'}}
";
    let files = [
        ("filter_plugins/f.py", FILTERS),
        ("test_plugins/t.py", TESTS),
        ("roles/r/filter_plugins/r.py", OF_ROLE),
        ("roles/r/defaults/main.yml", "of_default: \"{{ 'x' | of_role }}\"\n"),
        ("roles/r/tasks/main.yml", "- {copy: {dest: '{{ dir }}/role', content: '{{ of_default }}'}}\n"),
        (
            "t.j2",
            "{% for x in ['y', 'out'] | select('same_as', r.stdout) %}{{ x | upper }} {{ x | ansible.builtin.upper }}{% endfor %}",
        ),
    ];
    let (ran, performed) = run_playbook(dir.path(), text, &files, false);
    ran.assert_success();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("out"), r#"mine["out",1]{"b":[2]} False of_role["x"] d"#);
    assert_eq!(read("role"), r#"of_role["x"]"#);
    assert_eq!(read("looped"), "mine[\"a\"]\nmine[\"b\"]\n");
    assert_eq!(read("t"), r#"upper["out"] OUT"#);
    assert_eq!(read("far"), r#"mine["out"]"#);
    assert!(read("msg").contains("filter `mine`: it has failed"), "{}", read("msg"));
    let places: Vec<_> = performed.iter().map(|call| call.places.clone()).collect();
    assert!(places.iter().all(|places| *places == ["", "roles/r"]), "{places:?}");
}

#[test]
fn a_result_is_data_and_check_mode_does_not_guess() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {set_fact: {kept: '{{ raw | mine }}'}, vars: {raw: '{% raw %}{{ url }}{% endraw %}'}}
    - {copy: {dest: '{{ dir }}/kept', content: '{{ kept }}'}}
    - {command: echo x, register: r}
    - {copy: {dest: '{{ dir }}/late', content: '{{ r.stdout | mine }}'}}
";
    let files = [("filter_plugins/f.py", FILTERS)];
    let (ran, _) = run_playbook(dir.path(), text, &files, false);
    ran.assert_success();
    assert_eq!(std::fs::read_to_string(dir.path().join("kept")).unwrap(), r#"mine["{{ url }}"]"#);
    let (ran, performed) = run_playbook(dir.path(), text, &files, true);
    let statuses: Vec<Status> = ran.assert_success().statuses().into_iter().map(|(_, status)| status).collect();
    assert_eq!(statuses[3], Status::Unknown);
    assert!(performed.iter().all(|call| call.call.terms == [json!("{{ url }}")]), "{performed:?}");
}

#[test]
fn a_warning_names_only_tasks_that_call_the_plugin() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {debug: {msg: \"{{ 'a' | mine }}\"}}
    - {copy: {src: t.j2, dest: '{{ dir }}/copied'}}
    - {template: {src: t.j2, dest: '{{ dir }}/t'}}
";
    let files = [("filter_plugins/f.py", FILTERS), ("t.j2", "{{ 'b' | mine }}")];
    let warnings = compile_playbook(dir.path(), text, &files).python_warnings("the manager");
    let lines: Vec<u32> = warnings.iter().filter(|w| w.message.contains("filter `mine`")).map(|w| w.line).collect();
    assert_eq!(lines, [3, 5], "{warnings:?}");
}

const ATTACKED: &str = "\
- hosts: all
  vars: {chosen: mine, size: 3}
  tasks:
    - {command: id, register: r}
    - {debug: {msg: \"{{ r.stdout | mine(size, b=2) }}\"}}
    - {debug: {msg: \"{{ [r.stdout] | map(r.name) | list }}\"}}
    - {debug: {msg: \"{{ 'x' | other }} {{ 'x' is same_as(r.stdout) }}\"}, when: r.rc == 0}
    - {debug: {msg: \"{{ r.stdout | mine }}\"}, when: chosen == 'evil'}
";

/// What the controller would call for a request of the node.
fn request(task: u32, state: &Value, call: &Value) -> String {
    let dir = TempDir::new().unwrap();
    let other = "return {'other': f, 'unused': g}";
    let files = [("filter_plugins/f.py", FILTERS), ("filter_plugins/o.py", other), ("test_plugins/t.py", TESTS)];
    let plan = compile_playbook(dir.path(), ATTACKED, &files);
    let request = json!({"lookup": {"task": task, "state": state, "item": null, "result": null, "call": call}});
    let hosts = |_: &str| Some(Map::new());
    let Ok(ControllerRequest::Lookup(request)) = read_request(&plan, false, request.to_string().as_bytes()) else {
        panic!("{call}")
    };
    match with_lookup_answers(Arc::default(), || plan_lookup(&plan, *request, &view(false, &hosts))) {
        Ok(planned) => planned.call.key(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_node_chooses_the_input_and_nothing_else() {
    let with = |stdout: &str| json!({"registers": {"r": {"stdout": stdout, "name": "unused", "rc": 0}}});
    let filter = |name: &str, terms: Value, options: Value| json!({"plugin": "filter", "name": name, "terms": terms, "options": options});
    let refused = "the controller's evaluation does not make this call";
    let call = filter("mine", json!(["input", 3]), json!({"b": 2}));
    assert_eq!(request(2, &with("input"), &call), r#"["filter","mine",["input",3],{"b":2}]"#);
    let markup = filter("mine", json!(["{{ 'x' | other }}", 3]), json!({"b": 2}));
    assert!(request(2, &with("{{ 'x' | other }}"), &markup).starts_with(r#"["filter","mine",["{{"#));
    let forged = json!({"registers": {"r": {"stdout": "input"}, "size": 4, "chosen": "evil"}, "facts": {"size": 4}});
    for (state, call) in [
        // Other arguments, another plugin, another kind of plugin, and a call of another task.
        (with("input"), filter("mine", json!(["input", 4]), json!({"b": 2}))),
        (with("input"), filter("mine", json!(["input", 3]), json!({"b": 3}))),
        (with("input"), filter("mine", json!(["input", 3]), json!({"b": 2, "c": 1}))),
        (with("input"), filter("other", json!(["input", 3]), json!({"b": 2}))),
        (with("input"), json!({"plugin": "test", "name": "mine", "terms": ["input", 3], "options": {"b": 2}})),
        (with("input"), json!({"name": "mine", "terms": ["input", 3], "options": {"b": 2}})),
        (with("{{ 'x' | other }}"), filter("other", json!(["x"]), json!({}))),
        (forged.clone(), filter("mine", json!(["input", 4]), json!({"b": 2}))),
    ] {
        assert!(request(2, &state, &call).contains(refused), "{call}: {}", request(2, &state, &call));
    }
    // The result of a node names a filter. A plugin that no text of the playbook names is unknown,
    // and the fact that the file defines it makes no difference.
    assert!(request(3, &with("input"), &filter("unused", json!(["input"]), json!({}))).contains(refused));
    let never = filter("mine", json!(["input"]), json!({}));
    assert_eq!(request(5, &forged, &never), "the condition does not hold on the controller");
}

/// The installed plugins of these tests.
#[derive(Debug)]
struct Installed(ModuleRefusal);

impl ModuleSource for Installed {
    fn pack(&self, _: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        Err(self.0.clone())
    }

    fn find_plugin(&self, request: &PluginRequest) -> Result<(), ModuleRefusal> {
        match request.in_files || request.name == "far.away.known" {
            true if self.0 != ModuleRefusal::NativeOnly => Ok(()),
            _ => Err(self.0.clone()),
        }
    }
}

/// The faults of a playbook that prints this expression. Empty: none.
fn faults(expression: &str, delegates: bool, refusal: ModuleRefusal) -> String {
    let playbook = format!("- {{hosts: all, tasks: [{{debug: {{msg: \"{{{{ {expression} }}}}\"}}}}]}}\n");
    let files = [
        ("site.yml", playbook.as_str()),
        ("filter_plugins/f.py", FILTERS),
        ("test_plugins/t.py", TESTS),
        ("roles/unused/filter_plugins/u.py", "{'of_unused': f, 'lower': g}"),
        ("elsewhere/filter_plugins/e.py", "{'of_elsewhere': f}"),
        ("collections/ansible_collections/my/own/plugins/filter/all.py", "{'of_collection': f}"),
    ];
    let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
    let source = Installed(refusal);
    let options = CompileOptions { delegates, modules: Some(&source), ..CompileOptions::default() };
    match compile(&files, "site.yml", &make_host("h", &json!({"inventory_hostname": "h"})), &options) {
        Ok(_) => String::new(),
        Err(faults) => faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("; "),
    }
}

#[test]
fn a_name_that_nobody_defines_stays_an_error() {
    let missing = || ModuleRefusal::NotFound(String::new());
    for known in [
        "1 | mine",
        "1 | ansible.legacy.mine",
        "1 is same_as(2)",
        "1 | of_unused",
        "'x' | lower",
        "1 | my.own.of_collection",
        "1 | far.away.known",
    ] {
        assert_eq!(faults(known, true, missing()), "", "{known}");
    }
    for (unknown, want) in [
        ("1 | mein", "unknown filter `mein`"),
        ("1 | ansible.builtin.mine", "unknown filter `ansible.builtin.mine`"),
        ("1 is mine", "unknown test `mine`"),
        ("1 | same_as", "unknown filter `same_as`"),
        ("1 | of_elsewhere", "unknown filter `of_elsewhere`"),
        ("1 | my.own.other", "unknown filter `my.own.other`"),
        ("1 | far.away.none", "unknown filter `far.away.none`"),
    ] {
        assert_eq!(faults(unknown, true, missing()).split(" (").next(), Some(want), "{unknown}");
    }
    let absent = ModuleRefusal::NoCollection("far.away".to_owned());
    let said = faults("1 | far.away.none", true, absent);
    assert!(said.contains("the collection far.away is not installed on this machine"), "{said}");
    let said = faults("1 | mine", true, ModuleRefusal::NativeOnly);
    assert!(said.contains("filter `mine` is not part of the language, and `--native-only` refuses"), "{said}");
    // A manager runs no plugin, also where a native filter has the same name.
    for name in ["mine", "upper", "my.own.of_collection"] {
        let said = faults(&format!("'x' | {name}"), false, missing());
        assert!(said.starts_with(&format!("filter `{name}` works only during `remoor play`")), "{said}");
    }
}
