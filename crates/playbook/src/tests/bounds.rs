//! Tests values that exceed the limits of a run.

use super::*;
use std::io::Write;

fn content(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

#[test]
fn a_file_that_was_too_large_to_be_held_is_replaced() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::create_dir_all(d.join("from/sub")).unwrap();
    make_large_file(&d.join("big"), "old");
    make_large_file(&d.join("from/sub/big"), "tree");
    std::fs::write(d.join("from/small"), "small").unwrap();
    let options = PlaybookRunOptions { backup: Some(d.join("backup")), ..options(d) };
    let text = "
    - {copy: {content: new, dest: '{{ dir }}/big', backup: true}, register: it}
    - {assert: {that: [it is changed, it.backup_file is defined]}}
    - {copy: {remote_src: true, src: '{{ dir }}/from/', dest: '{{ dir }}/to'}}
";
    let ran = go(&tasks(d, text), &options).assert_success();
    assert_eq!(ran.end.changed, 2);
    assert_eq!((content(&d.join("big")).as_str(), end_of(&d.join("to/sub/big")).as_str()), ("new", "tree"));
    assert_eq!(content(&d.join("to/small")), "small");
    let aside = std::fs::read_dir(d).unwrap().map(|e| e.unwrap().path());
    let aside = aside.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("big.")).collect::<Vec<_>>();
    assert_eq!(aside.iter().map(|p| end_of(p)).collect::<Vec<_>>(), ["old"]);
    let again = "    - {copy: {remote_src: true, src: '{{ dir }}/from/', dest: '{{ dir }}/to'}}\n";
    assert_eq!(go(&tasks(d, again), &options).assert_success().end.changed, 0);
    undo(&d.join("backup")).unwrap();
    assert_eq!(end_of(&d.join("big")), "old");
}

#[test]
fn large_logs_are_searched() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    let mut log = std::fs::File::create(d.join("app.log")).unwrap();
    log.set_len(65 << 20).unwrap();
    std::io::Seek::seek(&mut log, std::io::SeekFrom::End(0)).unwrap();
    log.write_all(b"\nserver: ready after 7 s\n").unwrap();
    let text = "
    - {wait_for: {path: '{{ dir }}/app.log', search_regex: '^server: ready after (\\d+)', timeout: 60}, register: it}
    - {assert: {that: it.match_groups | first == '7'}}
    - {find: {paths: '{{ dir }}', patterns: '*.log', contains: 'server: r'}, register: it}
    - {assert: {that: it.matched == 1}}
    - {find: {paths: '{{ dir }}', patterns: '*.log', contains: 'ready'}, register: it}
    - {assert: {that: it.matched == 0}}
";
    go(&tasks(d, text), &options(d)).assert_success();
}

#[test]
fn a_time_limit_is_one_for_all_programs_of_a_task() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("git"), "#!/bin/sh\nexec sleep 2\n").unwrap();
    std::fs::set_permissions(d.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "
    - git: {repo: /nowhere.git, dest: '{{ dir }}/clone', executable: '{{ dir }}/git'}
      timeout: 3
";
    let failure = go(&tasks(d, text), &options(d)).end.failure.unwrap().message;
    assert!(failure.contains("timed out"), "{failure}");
}

#[test]
fn a_long_message_is_cut() {
    let dir = TempDir::new().unwrap();
    let text = "
    - set_fact: {r: '{{ range(100000) | list }}'}
    - debug: {var: r}
";
    let ran = go(&tasks(dir.path(), text), &options(dir.path())).assert_success();
    let Some(RunEvent::Task(done)) = ran.events.iter().rfind(|e| matches!(e, RunEvent::Task(_))) else {
        panic!("no task")
    };
    assert!(done.msg.len() < 300 << 10 && done.msg.ends_with("bytes]"), "{}", done.msg.len());
}

#[test]
fn yes_is_read_alike_everywhere() {
    let dir = TempDir::new().unwrap();
    let d = dir.path();
    std::fs::write(d.join("there"), "x").unwrap();
    for yes in ["true", "True", "'true'", "'YES'", "'1'", "1", "on", "'t'"] {
        let text =
            format!("    - {{copy: {{remote_src: {yes}, src: '{{{{ dir }}}}/there', dest: '{{{{ dir }}}}/here'}}}}\n");
        let plan = tasks(d, &text);
        assert!(predict_files(&plan, &Map::new()).is_empty(), "{yes}: its content is the node's");
        go(&plan, &options(d)).assert_success();
        assert_eq!(content(&d.join("here")), "x", "{yes}");
    }
}
