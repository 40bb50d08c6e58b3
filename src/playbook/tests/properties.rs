//! Whatever the tasks are: a check predicts the run and writes nothing, a second run changes nothing, and a run that was
//! ended at any task and begun again ends in the same tree.

use super::check::{changed, tree};
use super::*;
use proptest::prelude::*;

/// A task over a small set of names, so that they meet. All of them can be repeated.
fn task() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(vec!["a", "b", "d", "d/a", "d/b", "d/e/f", "l"]);
    let mode = || prop::sample::select(vec!["'0600'", "'0644'", "'0755'", "u+x", "'g-r,o='"]);
    let text = || prop::sample::select(vec!["one", "two", "x=1\\ny=2\\n", ""]);
    let at = |name: &str| format!("'{{{{ dir }}}}/t/{name}'");
    prop_oneof![
        4 => (name(), text(), mode()).prop_map(move |(n, t, m)| format!("copy: {{dest: {}, content: \"{t}\", mode: {m}}}", at(n))),
        2 => (name(), text()).prop_map(move |(n, t)| format!("copy: {{dest: {}, content: \"{t}\", force: no}}", at(n))),
        3 => (name(), mode()).prop_map(move |(n, m)| format!("file: {{path: {}, state: directory, mode: {m}}}", at(n))),
        1 => (name(), mode()).prop_map(move |(n, m)| format!("file: {{path: {}, state: directory, recurse: yes, mode: {m}}}", at(n))),
        3 => name().prop_map(move |n| format!("file: {{path: {}, state: absent}}", at(n))),
        2 => (name(), mode()).prop_map(move |(n, m)| format!("file: {{path: {}, mode: {m}}}", at(n))),
        2 => (name(), name()).prop_map(move |(n, m)| format!("file: {{path: {}, src: {}, state: link}}", at(n), at(m))),
        1 => (name(), name()).prop_map(move |(n, m)| format!("file: {{path: {}, src: {m}, state: link, force: yes}}", at(n))),
        1 => (name(), name()).prop_map(move |(n, m)| format!("file: {{path: {}, src: {}, state: hard, force: yes}}", at(n), at(m))),
        3 => (name(), prop::bool::ANY).prop_map(move |(n, c)| format!("lineinfile: {{path: {}, line: x=2, regexp: ^x=, create: {c}}}", at(n))),
        1 => name().prop_map(move |n| format!("lineinfile: {{path: {}, regexp: ^x, state: absent}}", at(n))),
        1 => (name(), name()).prop_map(move |(n, m)| format!("copy: {{src: {}, dest: {}, remote_src: yes}}", at(m), at(n))),
        1 => name().prop_map(move |n| format!("file: {{path: {}, state: touch, modification_time: preserve, access_time: preserve}}", at(n))),
        1 => (name(), name()).prop_map(move |(n, m)| format!("command: touch {} creates={}", at(m), at(n))),
    ]
}

/// Tasks that may fail, as they do then: later ones go on.
fn playbook(tasks: &[String]) -> String {
    let lines = tasks.iter().enumerate().map(|(i, t)| format!("    - {{{t}, name: t{i}, ignore_errors: yes}}\n"));
    format!("- hosts: all\n  tasks:\n{}", lines.map(|l| quoted(&l)).collect::<String>())
}

/// A command line within a flow map.
fn quoted(line: &str) -> String {
    match line.split_once("command: touch ") {
        Some((head, rest)) => {
            let (words, tail) = rest.split_once(", name:").unwrap_or((rest, ""));
            format!("{head}command: \"touch {words}\", name:{tail}")
        }
        None => line.to_owned(),
    }
}

fn failed(ran: &Ran) -> Vec<String> {
    ran.statuses().into_iter().filter(|(_, s)| *s == Status::Ignored).map(|(n, _)| n).collect()
}

fn fresh() -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir_all(dir.path().join("t/d")).unwrap();
    std::fs::write(dir.path().join("t/a"), "x=1\n").unwrap();
    std::fs::write(dir.path().join("t/d/a"), "old").unwrap();
    dir
}

fn at_t(dir: &TempDir) -> BTreeMap<String, String> {
    let own = dir.path().display().to_string();
    tree(&dir.path().join("t")).into_iter().map(|(k, v)| (k, v.replace(&own, ""))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_check_predicts_the_run_and_writes_nothing(tasks in prop::collection::vec(task(), 1..10)) {
        let dir = fresh();
        let plan = plan(dir.path(), &[("site.yml", &playbook(&tasks))]);
        let before = tree(dir.path());
        let check = go(&plan, &RunOptions { check: true, ..options(dir.path()) });
        prop_assert_eq!(tree(dir.path()), before);
        prop_assume!(check.end.unknown == 0);
        // After a command that was not run nothing is certain, though nothing of it was reported.
        prop_assume!(check.end.would_run == 0);
        let run = go(&plan, &options(dir.path()));
        prop_assert_eq!(changed(&check), changed(&run), "{:#?}\n{:#?}", check.statuses(), run.events);
        prop_assert_eq!(failed(&check), failed(&run));
    }

    #[test]
    fn a_second_run_of_one_task_changes_nothing(task in task()) {
        let dir = fresh();
        let plan = plan(dir.path(), &[("site.yml", &playbook(&[task]))]);
        go(&plan, &options(dir.path()));
        let after = at_t(&dir);
        let second = go(&plan, &options(dir.path()));
        prop_assume!(!again(&plan));
        prop_assert_eq!(second.end.changed, 0, "{:#?}", second.events);
        prop_assert_eq!(at_t(&dir), after);
    }

    #[test]
    fn a_run_that_was_ended_at_any_task_and_begun_again_ends_in_the_same_tree(
        tasks in prop::collection::vec(settling(), 1..8), at in 0usize..8,
    ) {
        let (whole, cut) = (fresh(), fresh());
        let text = playbook(&tasks);
        go(&plan(whole.path(), &[("site.yml", &text)]), &options(whole.path())).good();
        let plan = plan(cut.path(), &[("site.yml", &text)]);
        let cancel = Cancel::new();
        let mut seen = 0;
        run(&plan, &options(cut.path()), &cancel, &mut |e| {
            if matches!(e, Event::TaskStart { .. }) {
                if seen == at {
                    cancel.cancel();
                }
                seen += 1;
            }
        });
        go(&plan, &options(cut.path())).good();
        prop_assert_eq!(at_t(&whole), at_t(&cut));
    }
}

/// Whether a task may always find something to do: a command, whose file may be another than it looks for.
fn again(plan: &Plan) -> bool {
    let tasks = plan.plays[0].sections.iter().flatten();
    tasks.into_iter().any(|step| matches!(step, Step::Task(task) if task.module == "command"))
}

/// Tasks of which each decides the whole of its path, whatever was there before.
fn settling() -> impl Strategy<Value = String> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let text = || prop::sample::select(vec!["one", "two", "x=1\\n"]);
    let at = |name: &str| format!("'{{{{ dir }}}}/t/{name}'");
    prop_oneof![
        3 => (name(), text()).prop_map(move |(n, t)| format!("copy: {{dest: {}, content: \"{t}\", mode: '0640'}}", at(n))),
        1 => name().prop_map(move |n| format!("file: {{path: {}, state: absent}}", at(n))),
        1 => name().prop_map(move |n| format!("file: {{path: {}, state: directory, mode: '0750'}}", at(&format!("d/{n}")))),
        1 => name().prop_map(move |n| format!("file: {{path: {}, src: d/a, state: link, force: yes}}", at(n))),
    ]
}
