//! Handlers: what earlier runs owe, names with markup, and that each runs once.

use super::*;

/// Names of the handlers that ran, in order.
fn handlers(ran: &Ran) -> Vec<&str> {
    let done = |e: &'_ Event| matches!(e, Event::Handler(_));
    ran.events
        .iter()
        .filter(|e| done(e))
        .filter_map(|e| if let Event::Handler(d) = e { Some(d.name.as_str()) } else { None })
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
    // Killed before the handler: what it acts on is right by now, and the task finds nothing to do.
    std::fs::write(d.join("conf"), "good").unwrap();
    let flushed = go(&site("good", "false", "- meta: flush_handlers"), &options(d));
    assert_eq!((handlers(&flushed), flushed.end.failed), (vec!["restart"], 1), "{:#?}", flushed.end);
    std::fs::write(d.join("conf"), "broken").unwrap();
    std::fs::write(d.join("journal"), "[\"restart\"]").unwrap();
    let mended = go(&site("good", "true", ""), &options(d)).good();
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
    let ended = go(&tasks(d, &format!("    - meta: end_host{play}")), &options(d)).good();
    assert_eq!(ended.end.pending_handlers, ["restart"]);
    let next = go(&tasks(d, &format!("    - command: 'true'{play}")), &options(d)).good();
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
    let ran = go(&plan(dir.path(), &[("site.yml", text)]), &options(dir.path())).good();
    // `then` was notified twice before it ran.
    assert_eq!(handlers(&ran), ["reload web", "first", "then", "reload web"]);
    assert!(ran.end.pending_handlers.is_empty());
}
