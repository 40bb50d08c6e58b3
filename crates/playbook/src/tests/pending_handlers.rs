//! Tests handlers: handlers that earlier runs left pending, names with markup, and that each
//! handler runs once.

use super::*;

/// Names of the handlers that ran, in order.
fn handlers(ran: &Ran) -> Vec<&str> {
    let done = |e: &'_ RunEvent| matches!(e, RunEvent::Handler(_));
    ran.events
        .iter()
        .filter(|e| done(e))
        .filter_map(|e| if let RunEvent::Handler(d) = e { Some(d.name.as_str()) } else { None })
        .collect()
}

#[test]
fn what_is_owed_runs_after_the_tasks_that_may_mend_what_it_acts_on() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let site = |content: &str, last: &str, between: &str| {
        let text = format!(
            "
- hosts: all
  handlers:
    - {{name: restart, command: \"grep -q good '{{{{ dir }}}}/conf'\"}}
  pre_tasks:
    - {{name: before, command: 'true'}}
  tasks:
    - {{name: config, copy: {{content: {content}, dest: '{{{{ dir }}}}/conf'}}, notify: restart}}
    {between}
    - {{name: last, command: '{last}'}}
"
        );
        plan(d, &[("site.yml", &text)])
    };
    let broken = go(&site("broken", "false", ""), &options(d));
    assert_eq!(broken.end.pending_handlers, ["restart"]);
    // The state after a run that was killed before the handler: the file is correct, so the task
    // changes nothing.
    std::fs::write(d.join("conf"), "good").unwrap();
    let flushed = go(&site("good", "false", "- meta: flush_handlers"), &options(d));
    assert_eq!((handlers(&flushed), flushed.end.failed), (vec!["restart"], 1), "{:#?}", flushed.end);
    std::fs::write(d.join("conf"), "broken").unwrap();
    std::fs::write(d.join("journal"), "[\"restart\"]").unwrap();
    let mended = go(&site("good", "true", ""), &options(d)).assert_success();
    assert_eq!(mended.statuses().last().unwrap(), &("restart".to_owned(), Status::Changed));
    assert_eq!(handlers(&mended), ["restart"]);
    assert!(mended.end.pending_handlers.is_empty() && !d.join("journal").exists());
}

#[test]
fn what_is_owed_outlives_a_play_that_is_ended_early() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let play = "
    - {name: config, copy: {content: x, dest: '{{ dir }}/conf'}, notify: restart}
  handlers: [{name: restart, command: \"touch '{{ dir }}/restarted'\"}]
";
    std::fs::write(d.join("journal"), "[\"restart\", \"gone\"]").unwrap();
    let ended = go(&tasks(d, &format!("    - meta: end_host{play}")), &options(d)).assert_success();
    assert_eq!(ended.end.pending_handlers, ["restart"]);
    let next = go(&tasks(d, &format!("    - command: 'true'{play}")), &options(d)).assert_success();
    assert!(next.end.pending_handlers.is_empty() && d.join("restarted").exists());
}

#[test]
fn a_handler_with_markup_in_its_name_is_notified_by_what_that_comes_to() {
    let dir = TempDir::new().unwrap();
    let text = "
- hosts: all
  vars: {what: web}
  handlers:
    - {name: 'reload {{ what }}', command: 'true'}
    - {name: first, command: 'true', notify: [then, 'reload web']}
    - {name: then, command: 'true'}
  tasks:
    - {name: one, command: 'true', notify: [then, first]}
    - {name: two, command: 'true', notify: 'reload {{ what }}'}
";
    let ran = go(&plan(dir.path(), &[("site.yml", text)]), &options(dir.path())).assert_success();
    // `then` was notified twice before it ran.
    assert_eq!(handlers(&ran), ["reload web", "first", "then", "reload web"]);
    assert!(ran.end.pending_handlers.is_empty());
}

#[test]
fn each_item_notifies_by_its_own_name() {
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all
  tasks:
    - copy: {content: x, dest: '{{ dir }}/b'}
    - {copy: {content: x, dest: '{{ dir }}/{{ item }}'}, loop: [a, b, c], register: made, notify: 'told {{ item }}'}
  handlers:
    - {name: told a, file: {path: '{{ dir }}/told-a', state: touch}}
    - {name: told b, file: {path: '{{ dir }}/told-b', state: touch}}
    - {name: told c, file: {path: '{{ dir }}/told-c', state: touch}}
";
    let plan = plan(dir.path(), &[("site.yml", text)]);
    go(&plan, &options(dir.path())).assert_success();
    let told = ["a", "b", "c"].map(|name| dir.path().join(format!("told-{name}")).exists());
    // As in Ansible, an item that changed nothing notifies too if another item changed something.
    assert_eq!(told, [true, true, true]);
}

#[test]
fn what_some_items_have_changed_is_owed_whatever_becomes_of_the_others() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    // An undefined variable, a `when` and a `break_when` that cannot be evaluated, each at the
    // second item.
    for (at, task) in [
        "copy: {content: 'x{{ item.more }}', dest: '{{ dir }}/f'}",
        "copy: {content: same, dest: '{{ dir }}/f'}, when: item.more == ''",
        "copy: {content: same, dest: '{{ dir }}/f'}, loop_control: {break_when: item.later == 'x'}",
    ]
    .into_iter()
    .enumerate()
    {
        let play = |items: &str, first: &str, rest: &str| {
            let task = task.replace("{{ dir }}/f", &format!("{{{{ dir }}}}/f{at}-{}", first.len()));
            format!(
                "    {first}- {{name: config, {task}, loop: {items}, notify: reload}}{rest}
  handlers: [{{name: reload, command: \"touch '{{{{ dir }}}}/reloaded{at}'\"}}]
"
            )
        };
        let faulty = "[{name: a, more: '', later: y}, {name: b}]";
        let broken = go(&tasks(d, &play(faulty, "", "")), &options(d));
        assert!(broken.end.failure.is_some() && handlers(&broken).is_empty(), "{task}");
        assert_eq!(broken.end.pending_handlers, ["reload"], "{task}");
        // In this second run, the file of item `a` is already correct, so only the handler changes
        // something.
        let next = go(&tasks(d, &play("[{name: a, more: '', later: y}]", "", "")), &options(d)).assert_success();
        assert_eq!((handlers(&next), next.end.changed), (vec!["reload"], 1), "{task}");
        let rescued = play(faulty, "block:\n      ", "\n      rescue: [{debug: {}}]");
        let rescued = rescued.replacen("    block:", "    - block:", 1);
        let rescued = go(&tasks(d, &rescued), &options(d)).assert_success();
        // As in Ansible, a task that failed notifies nobody.
        assert_eq!((handlers(&rescued).len(), rescued.end.failed), (0, 0), "{task}");
        assert!(rescued.end.pending_handlers.is_empty(), "{task}");
    }
}

#[test]
fn one_that_failed_in_the_middle_is_owed_by_a_broken_run_only() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let play = |rest: &str| {
        let text = format!(
            "    - {{name: half, shell: \"echo x >> '{{{{ dir }}}}/half'; exit 1\", notify: told{rest}}}
  handlers: [{{name: told, command: 'true'}}]
"
        );
        go(&tasks(d, &text), &options(d))
    };
    assert_eq!(play("").end.pending_handlers, ["told"]);
    assert_eq!(std::fs::read_to_string(d.join("journal")).unwrap(), "[\"told\"]");
    std::fs::remove_file(d.join("journal")).unwrap();
    let ignored = play(", ignore_errors: true").assert_success();
    assert!(handlers(&ignored).is_empty() && ignored.end.pending_handlers.is_empty() && !d.join("journal").exists());
}

#[test]
fn an_item_that_is_ignored_excuses_no_other() {
    let dir = TempDir::new().unwrap();
    for items in ["[no, yes]", "[yes, no]"] {
        let text = format!("    - {{fail: {{msg: so}}, loop: {items}, ignore_errors: '{{{{ item }}}}'}}\n");
        let ran = go(&tasks(dir.path(), &text), &options(dir.path()));
        assert!(ran.end.failure.is_some(), "{items}");
    }
}

#[test]
fn handlers_that_notify_each_other_without_end_fail() {
    let dir = TempDir::new().unwrap();
    let text = "
    - {command: 'true', notify: one}
  handlers:
    - {name: one, command: 'true', notify: two}
    - {name: two, command: 'true', notify: one}
";
    let ran = go(&tasks(dir.path(), text), &options(dir.path()));
    assert_eq!(ran.end.failure.unwrap().message, "handlers notify each other without end: one");
    assert_eq!(ran.end.pending_handlers, ["one"]);
}
