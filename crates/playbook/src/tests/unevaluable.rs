//! Tests conditions and loops that cannot be evaluated. The results are those of ansible-core 2.19.

use super::*;

#[test]
fn a_condition_that_fails_is_a_failure_of_its_task() {
    let dir = TempDir::new().unwrap();
    let text = r#"
- hosts: all
  vars: {said: "{{ facts.nope }}", facts: {}}
  tasks:
    - {name: when, command: 'true', when: said == 'x', ignore_errors: true, register: w}
    - assert: {that: ["w is failed", "w.msg is search('nope')", "w is not changed", "w.ignored"]}
    - {name: loop, command: 'true', loop: "{{ said }}", ignore_errors: true, register: l}
    - assert: {that: ["l is failed", "l.msg is search('nope')"]}
    - name: items
      command: 'true'
      loop: [1, 2, 3]
      when: item == 1 or item == 3 or said == 'x'
      ignore_errors: true
      register: i
    - assert: {that: ["i is failed", "i.results | map(attribute='failed') == [false, true, false]", "i.results[1].item == 2"]}
    - {name: break, command: 'true', loop: [1, 2], loop_control: {break_when: ["said == 'x'"]}, ignore_errors: true, register: b}
    - assert: {that: "b is failed"}
    - {name: include, include_tasks: more.yml, when: said == 'x', ignore_errors: true}
    - include_tasks: "{{ item }}.yml"
      loop: [more, other]
      when: item == 'more' or said == 'x'
      ignore_errors: true
    - block:
        - {name: rescued, command: 'true', when: said == 'x', failed_when: false}
        - {name: never, command: 'true'}
      rescue:
        - assert: {that: ["ansible_failed_task.name == 'rescued'", "ansible_failed_result.msg is search('nope')"]}
"#;
    let files = [("site.yml", text), ("more.yml", "- {name: more, command: 'true'}\n"), ("other.yml", "[]\n")];
    let ran = go(&plan(dir.path(), &files), &options(dir.path())).assert_success();
    let of = |name: &str| ran.statuses().into_iter().filter(|(n, _)| n == name).map(|(_, s)| s).collect::<Vec<_>>();
    for name in ["when", "loop", "include"] {
        assert_eq!(of(name), [Status::Ignored], "{name}");
    }
    assert_eq!(of("items"), [Status::Changed, Status::Ignored, Status::Changed]);
    assert_eq!(of("break"), [Status::Changed, Status::Ignored]);
    assert_eq!((of("more"), of("rescued"), of("never")), (vec![Status::Changed], vec![Status::Failed], vec![]));
    assert_eq!(ran.end.failed, 0);
}

#[test]
fn a_condition_that_fails_ends_the_run_where_nothing_ignores_it() {
    let dir = TempDir::new().unwrap();
    let task = "{name: t, command: 'true', when: r.nope == 'x'}";
    let text =
        format!("    - {{command: 'true', register: r}}\n    - {task}\n    - {{name: after, command: 'true'}}\n");
    let ran = go(&tasks(dir.path(), &text), &options(dir.path()));
    let failure = ran.end.failure.as_ref().unwrap();
    assert_eq!((failure.task.as_str(), failure.line), ("t", 4));
    assert!(failure.message.starts_with("when: "), "{failure:?}");
    assert_eq!((ran.end.failed, ran.statuses().len()), (1, 2), "{:?}", ran.statuses());
}

#[test]
fn no_condition_judges_a_task_with_an_option_that_cannot_be_evaluated() {
    let dir = TempDir::new().unwrap();
    let text = r#"
- hosts: all
  tasks:
    - {debug: {msg: x}, register: t}
    - {name: hidden, shell: "echo {{ t.nope.path }}", failed_when: false, retries: 2, delay: 9999, until: false, ignore_errors: true, register: r}
    - assert: {that: ["r is failed", "r.msg is search('nope')"]}
    - {name: judged, file: {path: /nonexistent/x/y, mode: '0600'}, failed_when: r2.rc == 1, ignore_errors: true, register: r2}
    - assert: {that: ["r2 is failed", "r2.msg is search('/nonexistent/x/y')", "r2.msg is search('r2.rc')"]}
"#;
    let ran = go(&plan(dir.path(), &[("site.yml", text)]), &options(dir.path()));
    assert_eq!(ran.end.failure.map(|failure| failure.message), None);
}
