//! Filters and tests in Python during `remoor play`, beside ansible-playbook: the same playbook
//! runs with both, and the results are compared.

use crate::local::remoor;
use crate::play_ssh::{Server, run_to_end};
use crate::python_modules::{ansible_dir, path_with, site_command, write_files};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Stdio;

const SITE: &str = r#"
- hosts: all
  gather_facts: false
  roles: [own]
  vars:
    raw: "{% raw %}{{ 1 + 1 }}{% endraw %}"
    lazy: "{{ shown.stdout | mine(2) }}"
  tasks:
    - {command: echo computed, register: shown, check_mode: false}
    - {set_fact: {kept: "{{ raw | same }}"}}
    - {set_fact: {never: 1}, when: shown.stdout is not of_length(8)}
    - {set_fact: {looped: "{{ looped | default([]) + [item] }}"}, loop: "{{ 'a,b' | my.own.parts(sign=',') }}"}
    - {debug: {msg: "{{ shown.stdout | fails }}"}, ignore_errors: true, register: failed}
    - {debug: {msg: "{{ 'x' | no_json }}"}, ignore_errors: true, register: no_json}
    - {debug: {msg: "{{ 'x' | mine(nope=1) }}"}, ignore_errors: true, register: no_argument}
    - {template: {src: results.j2, dest: "{{ dir }}/templated"}, check_mode: false}
    - copy:
        dest: "{{ dir }}/results.json"
        content: "{{ {
          'role': of_role, 'lazy': lazy, 'kept': kept, 'never': never is defined, 'looped': looped,
          'failed': 'division by zero' in failed.msg, 'no_json': no_json is failed, 'no_argument': no_argument is failed,
          'types': ['x', 1, 1.5, true, none, [1], {'a': 1}] | map('type_name') | list,
          'converted': ['tuple', 'generator', 'none', 'keys', 'time'] | map('converted') | list,
          'set': 'set' | converted | sort, 'undefined': (nothing | mine) | default('d'),
          'replaced': 'x' | upper, 'native': 'x' | ansible.builtin.upper, 'legacy': 'x' | ansible.legacy.upper,
          'selected': ['12345678', 'a'] | select('of_length', 8) | list,
          'rejected': [{'n': 'a'}, {'n': 'bb'}] | rejectattr('n', 'of_length', n=1) | list,
          'first_wins': 'x' | both, 'nested': raw | mine | mine, 'conditional': 'y' if 'a' is my.own.single else 'n',
          'truth': 'x' is number_of
          } | to_nice_json }}"
      check_mode: false
"#;
const FILTERS: &str = "import datetime

def converted(kind):
    return {'tuple': (1, (2,)), 'generator': (x for x in 'xy'), 'none': None, 'keys': {1: {2: 3}},
            'time': datetime.datetime(2020, 1, 2, 3), 'set': {3, 1}}[kind]

class FilterModule(object):
    def filters(self):
        return {
            'mine': lambda value, times=1: '<%s>' % (value * times), 'same': lambda value: value,
            'fails': lambda value: 1 / 0, 'no_json': lambda value: object(), 'converted': converted,
            'type_name': lambda value: type(value).__name__.replace('_AnsibleLazyTemplateDict', 'dict'),
            'upper': lambda value: value + '!', 'both': lambda value: 'playbook',
        }
";
const TESTS: &str = "class TestModule(object):
    def tests(self):
        return {'of_length': lambda value, n=1: len(value) == n, 'number_of': lambda value: len(value)}
";
const OF_ROLE: &str = "class FilterModule(object):
    def filters(self):
        return {'both': lambda value: 'role', 'of_role': lambda value: value + ' of role'}
";
const PARTS: &str = "class FilterModule(object):
    def filters(self):
        return {'parts': lambda value, sign: value.split(sign)}
";
const SINGLE: &str = "class TestModule(object):
    def tests(self):
        return {'single': lambda value: len(value) == 1}
";

fn write_project(dir: &Path) {
    let own = "collections/ansible_collections/my/own/plugins";
    let files = [
        ("site.yml", SITE),
        ("filter_plugins/filters.py", FILTERS),
        ("test_plugins/tests.py", TESTS),
        ("roles/own/filter_plugins/role.py", OF_ROLE),
        ("roles/own/defaults/main.yml", "word: \"{{ 'word' | of_role }}\"\n"),
        ("roles/own/tasks/main.yml", "- {set_fact: {of_role: \"{{ word }} {{ 'x' | both }}\"}}\n"),
        (&format!("{own}/filter/parts.py"), PARTS),
        (&format!("{own}/test/single.py"), SINGLE),
        (
            "results.j2",
            "{% for name in ['a', shown.stdout] if name is of_length(8) %}{{ name | mine }} {{ word | default('-') | of_role }}\n{% endfor %}\n",
        ),
        ("out/.keep", ""),
    ];
    write_files(dir, &files);
}

#[test]
fn filters_and_tests_in_python_give_what_ansible_gives() {
    let Some(bin) = ansible_dir() else { return };
    let (native, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    for round in ["--check", ""] {
        for (dir, is_remoor) in [(native.path(), true), (other.path(), false)] {
            write_project(dir);
            let vars = json!({"dir": dir.join("out"), "remoor_state_dir": dir.join("state")});
            let mut command = site_command(&bin, is_remoor, dir, &vars);
            command.args(["--check"].iter().filter(|_| round == "--check"));
            let (code, text) = run_to_end(&mut command);
            assert_eq!(code, Some(0), "{round}: {text}");
            if is_remoor {
                assert!(text.contains("`msg`: filter `fails`: "), "{text}");
                assert!(text.contains("object"), "the type of the result is not named: {text}");
            }
        }
        let read = |dir: &Path, name: &str| fs::read_to_string(dir.join("out").join(name)).expect(name);
        let results = |dir| serde_json::from_str::<Value>(&read(dir, "results.json")).expect("JSON");
        let (ours, theirs) = (results(native.path()), results(other.path()));
        for (name, result) in theirs.as_object().expect("an object") {
            assert_eq!(&ours[name], result, "{name} {round}");
        }
        assert_eq!(read(native.path(), "templated"), read(other.path(), "templated"), "{round}");
    }
}

#[test]
fn a_host_gets_the_results_over_ssh() {
    let Some(bin) = ansible_dir() else { return };
    let Some(server) = Server::start() else { return };
    fs::create_dir(server.path("filter_plugins")).expect("a directory");
    server.write("filter_plugins/filters.py", FILTERS);
    let text = "- hosts: h1,h2
  gather_facts: no
  tasks:
    - {command: 'echo of {{ inventory_hostname }}', register: r}
    - {copy: {dest: '{{ dir }}/{{ inventory_hostname }}', content: '{{ r.stdout | mine }}'}}
    - {copy: {dest: '{{ dir }}/far', content: '{{ r.stdout | mine(2) }}'}, delegate_to: h3, when: inventory_hostname == 'h1'}
";
    let mut command = server.command_for(text, &[]);
    let (code, said) = run_to_end(command.env("PATH", path_with(&bin)));
    assert_eq!(code, Some(0), "{said}");
    let read = |name: &str| fs::read_to_string(server.path(name)).expect(name);
    assert_eq!((read("h1"), read("h2"), read("far")), ("<of h1>".into(), "<of h2>".into(), "<of h1of h1>".into()));

    let (code, said) = run_to_end(&mut server.command_for(text, &["--native-only"]));
    assert!(code != Some(0) && said.contains("`--native-only` refuses plugins in Python"), "{said}");
}

#[test]
fn lint_names_the_tasks_that_need_ansible_on_the_controller() {
    let dir = tempfile::tempdir().expect("a directory");
    write_project(dir.path());
    fs::write(dir.path().join("hosts"), "h1 dir=/nowhere\n").expect("an inventory");
    let said = |args: &[&str]| {
        let mut command = remoor();
        command.arg("lint").arg(dir.path()).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        run_to_end(&mut command)
    };
    let (code, text) = said(&[]);
    assert_eq!(code, Some(0), "{text}");
    for want in [
        "warning: filter `same` is a plugin in Python, for which the manager needs ansible-core",
        "warning: test `of_length` is a plugin in Python",
        "warning: filter `my.own.parts` is a plugin in Python",
        "warning: filter `of_role` is a plugin in Python",
    ] {
        assert!(text.contains(want), "{want}\n{text}");
    }
    let (code, text) = said(&["--native-only"]);
    assert!(code != Some(0) && text.contains("filter `same` is not part of the language"), "{text}");
}
