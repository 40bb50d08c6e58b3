//! Tests values that only the node knows: undefined values, and values that an option does not
//! accept.

use super::*;
use crate::os::atomic_fs;

/// The message of a failed task that may use `r`, a registered result, and `s`, a text that is not
/// known before the run.
fn failure(dir: &Path, task: &str) -> Option<String> {
    let before = "    - {command: echo removed, register: r}\n    - set_fact: {s: '{{ r.stdout }}'}\n";
    let ran = go(&tasks(dir, &format!("{before}    - {task}\n")), &options(dir));
    ran.end.failure.map(|failure| failure.message)
}

#[test]
fn what_is_undefined_is_an_error_beside_a_default_too() {
    let dir = TempDir::new().unwrap();
    for (condition, good) in [
        ("r.a.b.c | default(true)", true),
        ("r.a.b.c is not defined and r.rc == 0", true),
        ("r.a.b | first | default('x') == 'x'", true),
        ("r.a.get('b', 1).c | default('x') == 'x'", true),
        ("(r.a.b if r.a is defined else 'x') == 'x'", true),
        ("r.stdout_lines[0].upper() == 'REMOVED' and r.a.b | default(true)", true),
        ("r.nope != 'x' or r.a is defined", false),
        ("not r.nope and r.a is not defined", false),
        ("r.nope in ['a'] or r.a | default(true)", false),
        ("'a' not in r.nope and r.a | default(true)", false),
        ("r.nope | int == 0 and r.a | default(true)", false),
        ("r.nope | bool or r.a | default(true)", false),
        ("r.nope < 3 and r.a | default(true)", false),
        ("r.a.b.c == 1 or r.a | default(true)", false),
    ] {
        let failed = failure(dir.path(), &format!("{{debug: {{msg: a}}, when: \"{condition}\"}}"));
        assert_eq!(failed.is_none(), good, "{condition}: {failed:?}");
        assert!(failed.is_none_or(|message| message.contains("undefined")), "{condition}");
    }
    for (text, want) in [
        ("default_server {% for x in r.nope %}{{ x }}{% endfor %}", None),
        ("default_server {% if r.nope.deep %}x{% endif %}", None),
        ("default_server {{ r.nope.deep }}", None),
        (
            "default_server {% set ns = namespace(n=r.rc) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ r.nope.deep | d(2) }}",
            Some("12"),
        ),
        ("{% raw %}{{ r.nope.deep }}{% endraw %} {{ r.nope.deep | default('x') }}", Some("{{ r.nope.deep }} x")),
    ] {
        let files = [
            (
                "site.yml",
                "- hosts: all\n  tasks:\n    - {command: echo removed, register: r}\n    - {template: {src: t.j2, dest: '{{ dir }}/out'}, when: r.rc == 0}\n",
            ),
            ("templates/t.j2", text),
        ];
        let ran = go(&plan(dir.path(), &files), &options(dir.path()));
        let made = std::fs::read_to_string(dir.path().join("out"));
        match want {
            Some(want) => assert!(made.is_ok_and(|made| made.ends_with(want)), "{text}"),
            None => assert!(ran.end.failure.is_some() && made.is_err(), "{text}"),
        }
        let _none = std::fs::remove_file(dir.path().join("out"));
    }
}

#[test]
fn a_value_that_an_option_does_not_take_does_nothing() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("f"), "old\n").unwrap();
    for (task, want) in [
        (
            "lineinfile: {path: '{{ dir }}/f', line: x, state: '{{ s }}'}",
            "`removed` is not a valid `state` of lineinfile",
        ),
        (
            "authorized_key: {user: root, key: ssh-ed25519 AAAA, path: '{{ dir }}/k', state: '{{ s }}'}",
            "`removed` is not a valid `state` of authorized_key",
        ),
        (
            "copy: {content: x, dest: '{{ dir }}/f', backup: '{{ s }}'}",
            "`backup` of copy takes yes or no, found `removed`",
        ),
        ("copy: {content: x, dest: '{{ dir }}/f', owner: '{{ [s] }}'}", "`owner` of copy takes a text, found a list"),
        ("copy: {content: '{{ none }}', dest: '{{ dir }}/f'}", "copy needs `src` or `content`"),
        ("service: {name: '{{ [s, s] }}', state: started}", "`name` of service takes a text, found a list"),
        ("file: {path: '{{ dir }}/f', owner: '{{ 4294967295 }}'}", "is not a valid user or group id"),
        ("debug: {msg: \"{{ '%0999999999d' | format(r.rc) }}\"}", "a width of more than"),
    ] {
        let message = failure(d, task).unwrap_or_else(|| panic!("{task} is done"));
        assert!(message.contains(want), "{task}: {message}");
    }
    assert_eq!(std::fs::read_to_string(d.join("f")).unwrap(), "old\n");
    let wide = "debug: {msg: \"{{ '%s since 20260101, %05d %8.3f' | format(s, 7, 1.5) }}\"}";
    assert_eq!(failure(d, wide), None);
}

#[test]
fn attributes_of_what_cannot_be_opened_are_set() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let _socket = std::os::unix::net::UnixListener::bind(d.join("s")).unwrap();
    symlink("s", d.join("l")).unwrap();
    let text = "    - {file: {path: '{{ dir }}/s', mode: '0612'}}\n";
    assert_eq!(go(&tasks(d, text), &options(d)).assert_success().end.changed, 1);
    assert_eq!(std::fs::metadata(d.join("s")).unwrap().permissions().mode() & 0o7777, 0o612);
    assert_eq!(go(&tasks(d, text), &options(d)).assert_success().end.changed, 0);
    let through =
        atomic_fs::set_attributes(&d.join("l"), atomic_fs::Attributes { mode: Some(0o777), ..Default::default() });
    assert!(through.unwrap_err().to_string().contains("symbolic link"));
}

/// As in Ansible 2.19, `ansible_play_hosts_all` lists all hosts, and `ansible_play_hosts` those
/// that have not failed. `ansible_play_batch` and `play_hosts` list only those of the batch that
/// have not failed.
#[test]
fn hosts_of_a_play_are_those_that_have_not_failed() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let text = "- hosts: all
  serial: 3
  tasks:
    - copy:
        content: '{{ ansible_play_hosts }} {{ ansible_play_batch }} {{ play_hosts }} {{ ansible_play_hosts_all | length }}'
        dest: '{{ dir }}/{{ ansible_play_name }}'
";
    let site =
        text.replacen("- hosts", "- name: first\n  hosts", 1) + &text.replacen("- hosts", "- name: second\n  hosts", 1);
    let vars = json!({"dir": d.display().to_string(), "inventory_hostname": "w1", "group_names": []});
    let host = HostContext {
        name: "w1".into(),
        group: "web".into(),
        vars: vars.as_object().unwrap().clone(),
        ..HostContext::default()
    };
    let hosts =
        InventoryNames { hosts: ["w1", "w2", "w3", "w4"].map(str::to_owned).into(), ..InventoryNames::default() };
    let set = FileSet([("site.yml".to_owned(), site.into_bytes())].into());
    let compiled = CompileOptions { hosts: Some(&hosts), ..CompileOptions::default() };
    let plan = compile(&set, "site.yml", &host, &compiled).unwrap().plan;
    let lost = |play: u32| if play == 0 { vec![] } else { vec!["w2".to_owned(), "w4".to_owned()] };
    let gate = PlayBarrier::new(move |play| Some(lost(play).into_iter().collect()));
    go(&plan, &PlaybookRunOptions { gate: Some(gate), ..options(d) }).assert_success();
    let told = |name: &str| std::fs::read_to_string(d.join(name)).unwrap();
    let batch = "['w1', 'w2', 'w3']";
    assert_eq!(told("first"), format!("['w1', 'w2', 'w3', 'w4'] {batch} {batch} 4"));
    assert_eq!(told("second"), "['w1', 'w3'] ['w1', 'w3'] ['w1', 'w3'] 4");
}

#[test]
fn a_variable_that_reads_what_is_undefined_is_undefined_itself() {
    let dir = TempDir::new().unwrap();
    let text = r#"
- hosts: all
  vars: {e: "{{ nothere }}", f: "{{ ansible_dns.nope }}", g: "{{ e }}", d: {}, h: "{{ d.y.z }}", i: ["{{ nothere }}"]}
  tasks:
    - command: echo hi
      register: r
    - assert:
        that:
          - e | default('x') == 'x' and f | default('x') == 'x' and g | default('x') == 'x' and h | default(2) == 2
          - not (e is defined) and f is undefined and g is not defined and (i[0] is undefined)
          - (e if e is defined else 3) == 3 and (late | default('x')) == 'x' and ([] | first | default(1)) == 1
      vars: {late: "{{ r.nope }}"}
    - {name: used, debug: {msg: "{{ 'a' ~ e }}"}, ignore_errors: true, register: used}
    - assert: {that: ["used is failed", "used.msg is search('nothere')"]}
"#;
    let ran = go(&plan(dir.path(), &[("site.yml", text)]), &options(dir.path()));
    assert_eq!(ran.end.failure.map(|failure| failure.message), None);
}

#[test]
fn a_label_that_cannot_be_rendered_fails_the_item_after_its_module_has_run() {
    let dir = TempDir::new().unwrap();
    let text = "    - {command: echo x, register: r}
    - shell: 'echo {{ item.a | default(0) }} >> {{ dir }}/out'
      loop: [{a: 1}, {b: 2}]
      loop_control: {label: '{{ r.stdout }}{{ item.a }}'}
      ignore_errors: true
      register: run
    - {debug: , loop: [1], when: r.rc == 1, loop_control: {label: '{{ r.nope }}'}, ignore_errors: true, register: skipped}
    - assert:
        that:
          - run is failed and run.results[0] is not failed and run.results[1] is failed
          - run.results[1].msg is search('Failed to template loop_control.label')
          - skipped is failed and skipped.results[0] is failed
";
    go(&tasks(dir.path(), text), &options(dir.path())).assert_success();
    assert_eq!(std::fs::read_to_string(dir.path().join("out")).unwrap(), "1\n0\n");
}
