//! Properties that hold for any tasks. Check mode predicts the run and writes nothing. A second run
//! changes nothing. A run that was stopped at any task and repeated gives the same tree. For killed
//! runs see `tests/it/killed.rs`.

use super::check::{changed_tasks, tree};
use super::*;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

/// A repeatable task on a small set of names, so that tasks affect each other.
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
        2 => (name(), mode(), prop::bool::ANY).prop_map(move |(n, m, f)| format!("template: {{src: t.j2, dest: {}, mode: {m}, force: {f}}}", at(n))),
        1 => (name(), mode()).prop_map(move |(n, m)| format!("copy: {{src: tree/, dest: {}, directory_mode: {m}}}", at(n))),
        1 => (name(), name()).prop_map(move |(n, m)| format!("copy: {{src: {}, dest: {}, remote_src: yes, mode: preserve}}", at(m), at(n))),
        2 => (name(), text(), prop::bool::ANY).prop_map(move |(n, t, c)| format!("blockinfile: {{path: {}, block: \"{t}\", create: {c}}}", at(n))),
        1 => name().prop_map(move |n| format!("blockinfile: {{path: {}, state: absent}}", at(n))),
        1 => name().prop_map(move |n| format!("replace: {{path: {}, regexp: '^x=.*$', replace: y=3}}", at(n))),
        2 => (name(), prop::bool::ANY).prop_map(move |(n, c)| format!("ini_file: {{path: {}, section: s, option: o, value: '1', create: {c}}}", at(n))),
        1 => name().prop_map(move |n| format!("ini_file: {{path: {}, section: s, state: absent}}", at(n))),
        1 => name().prop_map(move |n| format!("sysctl: {{name: remoor.test, value: '1', sysctl_file: {}, reload: no}}", at(n))),
        1 => name().prop_map(move |n| format!("stat: {{path: {}}}", at(n))),
        1 => name().prop_map(move |n| format!("slurp: {{src: {}}}", at(n))),
        1 => name().prop_map(move |n| format!("find: {{paths: {}, file_type: any, recurse: yes}}", at(n))),
        1 => name().prop_map(move |n| format!("include_tasks: {{file: more.yml}}, vars: {{at: {}}}", at(n))),
        1 => Just("set_fact: {seen: '{{ seen | int + 1 }}'}".to_owned()),
        1 => Just("assert: {that: [seen | int < 2]}".to_owned()),
        1 => Just("fail: {msg: so}".to_owned()),
        1 => Just("debug: {var: seen}".to_owned()),
        1 => Just("ping: {}".to_owned()),
        1 => Just("meta: flush_handlers".to_owned()),
    ]
}

/// Keywords of a task: a condition on the previous task, a loop, handlers.
fn task_keywords() -> impl Strategy<Value = String> {
    let when = prop::sample::select(vec![
        "",
        "",
        "",
        ", when: before is changed",
        ", when: before is not failed",
        ", when: '(before.stat | default({})).exists | default(true)'",
        ", when: '(before.files | default([]) | length) < 2'",
        ", when: [before is not skipped, seen | int < 3]",
    ]);
    let repeat = prop::sample::select(vec!["", "", "", ", loop: [1, 2]", ", loop: []", ", with_dict: {k: 1, l: 2}"]);
    let notify = prop::sample::select(vec!["", "", ", notify: h1", ", notify: [h2, both]"]);
    (when, repeat, notify).prop_map(|(when, repeat, notify)| format!("{when}{repeat}{notify}"))
}

/// Generates fewer than `most` tasks, each with random keywords.
fn tasks_of(task: impl Strategy<Value = String>, most: usize) -> impl Strategy<Value = Vec<String>> {
    let one = (task, task_keywords()).prop_map(|(task, beside)| match task.starts_with("meta") {
        true => task,
        // The task that is included has a `notify` of its own.
        false if task.starts_with("include") => task + beside.split(", notify").next().unwrap_or_default(),
        false => task + &beside,
    });
    prop::collection::vec(one, 1..most)
}

/// Handlers that change files, so that the tree shows whether they ran.
const HANDLERS: &str = "  handlers:
    - {name: h1, listen: both, copy: {content: told, dest: '{{ dir }}/t/h1'}, ignore_errors: yes}
    - {name: h2, lineinfile: {path: '{{ dir }}/t/h2', line: told, create: yes}, notify: h3, ignore_errors: yes}
    - {name: h3, listen: both, file: {path: '{{ dir }}/t/h1', mode: '0600', state: touch, access_time: preserve, modification_time: preserve}, ignore_errors: yes}
";

/// A playbook of tasks that may fail; later tasks continue. Each task can read the result of the
/// previous one.
fn playbook(tasks: &[String]) -> String {
    let lines = tasks.iter().enumerate().map(|(i, t)| match t.starts_with("meta") || t.starts_with("include_tasks") {
        true => format!("    - {{{t}, name: t{i}}}\n"),
        false => format!("    - {{{t}, name: t{i}, register: before, ignore_errors: yes}}\n"),
    });
    let lines: String = lines.map(|l| quote_command(&l)).collect();
    format!("- hosts: all\n  vars: {{seen: 0, before: {{changed: false, failed: false}}}}\n  tasks:\n{lines}{HANDLERS}")
}

/// The plan of a playbook with the files that its tasks use.
fn make_plan(dir: &TempDir, tasks: &[String]) -> Plan {
    let files = [
        ("site.yml", &*playbook(tasks)),
        ("more.yml", "- {name: more, copy: {content: more, dest: '{{ at }}'}, ignore_errors: yes, notify: h1}\n"),
        ("templates/t.j2", "x={{ 1 + 1 }}\n{% for i in [1, 2] %}\n{{ i }}\n{% endfor %}\n"),
        ("files/tree/one", "1\n"),
        ("files/tree/sub/two", "2\n"),
    ];
    plan(dir.path(), &files)
}

/// Quotes the command line in a flow map.
fn quote_command(line: &str) -> String {
    match line.split_once("command: touch ") {
        Some((head, rest)) => {
            let (words, tail) = rest.split_once(", name:").unwrap_or((rest, ""));
            format!("{head}command: \"touch {words}\", name:{tail}")
        }
        None => line.to_owned(),
    }
}

fn failed_tasks(ran: &Ran) -> Vec<String> {
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
    fn a_check_predicts_the_run_and_writes_nothing(tasks in tasks_of(task(), 10)) {
        assert_check_predicts(&tasks, |dir, plan| go(plan, &PlaybookRunOptions { check: true, ..options(dir.path()) }))?;
    }

    #[test]
    fn a_second_run_of_one_task_changes_nothing(task in task()) {
        let dir = fresh();
        let plan = make_plan(&dir, &[task]);
        go(&plan, &options(dir.path()));
        let after = at_t(&dir);
        let second = go(&plan, &options(dir.path()));
        prop_assume!(!may_change_again(&plan));
        prop_assert_eq!(second.end.changed, 0, "{:#?}", second.events);
        prop_assert_eq!(at_t(&dir), after);
    }

    #[test]
    fn a_second_run_changes_nothing_where_each_task_has_paths_of_its_own(tasks in tasks_of(task(), 8)) {
        assert_settled(&tasks, |_| {})?;
    }

    #[test]
    fn a_run_that_was_ended_at_any_task_and_begun_again_ends_in_the_same_tree(
        tasks in prop::collection::vec(settling_task(), 1..8), at in 0usize..8,
    ) {
        let (whole, cut) = (fresh(), fresh());
        let text = playbook(&tasks);
        go(&plan(whole.path(), &[("site.yml", &text)]), &options(whole.path())).assert_success();
        let plan = plan(cut.path(), &[("site.yml", &text)]);
        let cancel = CancelToken::new();
        let mut seen = 0;
        run(&plan, &options(cut.path()), &cancel, &mut |e| {
            if matches!(e, RunEvent::TaskStart { .. }) {
                if seen == at {
                    cancel.cancel();
                }
                seen += 1;
            }
        });
        go(&plan, &options(cut.path())).assert_success();
        prop_assert_eq!(at_t(&whole), at_t(&cut));
    }
}

/// Asserts that check mode, run by `check`, predicts the run. Cases that check mode cannot predict
/// are skipped.
fn assert_check_predicts(tasks: &[String], check: impl Fn(&TempDir, &Plan) -> Ran) -> Result<(), TestCaseError> {
    let dir = fresh();
    let plan = make_plan(&dir, tasks);
    let before = tree(dir.path());
    let check = check(&dir, &plan);
    prop_assert_eq!(tree(dir.path()), before);
    prop_assume!(check.end.unknown == 0);
    // After a command that was not run, later predictions are uncertain even if they are not
    // reported so, including those of handlers.
    let command = |(name, status): &(String, Status)| *status == Status::WouldRun && !name.starts_with('h');
    prop_assume!(!check.statuses().iter().any(command));
    let run = go(&plan, &options(dir.path()));
    prop_assert_eq!(changed_tasks(&check), changed_tasks(&run), "{:#?}\n{:#?}", check.statuses(), run.events);
    prop_assert_eq!(failed_tasks(&check), failed_tasks(&run));
    Ok(())
}

/// Asserts that a second run changes nothing. `between` may change the tree between the two runs.
fn assert_settled(tasks: &[String], between: impl Fn(&TempDir)) -> Result<(), TestCaseError> {
    let dir = fresh();
    let own = |(i, task): (usize, &String)| task.replace("/t/", &format!("/t/own{i}/"));
    let mut all: Vec<String> = (0..tasks.len())
        .flat_map(|i| {
            let at = format!("'{{{{ dir }}}}/t/own{i}");
            [
                format!("file: {{path: {at}/d', state: directory}}"),
                format!("copy: {{content: \"x=1\\n\", dest: {at}/a', force: no}}"),
            ]
        })
        .collect();
    all.extend(tasks.iter().enumerate().map(own));
    let plan = make_plan(&dir, &all);
    // The second run does not create the initial files again if a task removed them.
    let rest = make_plan(&dir, &all[2 * tasks.len()..]);
    prop_assume!(!may_change_again(&rest));
    // A condition on the previous task may have another result in the second run.
    prop_assume!(!tasks.iter().any(|task| task.contains("before is")));
    go(&plan, &options(dir.path()));
    let after = at_t(&dir);
    between(&dir);
    let second = go(&rest, &options(dir.path()));
    prop_assert_eq!(changed_tasks(&second), Vec::<String>::new(), "{:#?}", second.events);
    prop_assert_eq!(at_t(&dir), after);
    Ok(())
}

/// Number of playbooks among which a planted defect must be found.
const MANY: u32 = 300;
/// Number of playbooks that are tested without a planted defect. None of them may fail. With
/// `REMOOR_LONG`, the number is [`MANY`].
const FEW: u32 = 48;

/// Whether `property` fails for one of [`MANY`] playbooks.
fn finds_failure(property: impl Fn(&[String]) -> Result<(), TestCaseError>) -> bool {
    found_in(MANY, property)
}

/// Whether `property` fails for one of `cases` playbooks, always the same ones.
fn found_in(cases: u32, property: impl Fn(&[String]) -> Result<(), TestCaseError>) -> bool {
    let config = ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    let end = TestRunner::new_with_rng(config, rng).run(&tasks_of(task(), 10), |tasks| property(&tasks));
    matches!(end, Err(TestError::Fail(..)))
}

/// Each planted defect is one that a change of the code could introduce.
#[test]
fn the_properties_find_what_is_planted() {
    let check = |dir: &TempDir| PlaybookRunOptions { check: true, ..options(dir.path()) };
    let edit = |plan: &Plan, edit: &dyn Fn(&mut Task)| {
        let mut plan = plan.clone();
        for step in plan.plays.iter_mut().flat_map(|play| play.sections.iter_mut()).flatten() {
            if let PlanStep::Task(task) = step {
                edit(task);
            }
        }
        plan
    };
    let cases = if std::env::var_os("REMOOR_LONG").is_some() { MANY } else { FEW };
    assert!(
        !found_in(cases, |tasks| assert_check_predicts(tasks, |dir, plan| go(plan, &check(dir)))),
        "nothing is planted"
    );
    let without = |name: &'static str| {
        move |tasks: &[String]| {
            assert_check_predicts(tasks, |dir, plan| {
                let forgets = |task: &mut Task| {
                    task.args.remove(name);
                };
                go(&edit(plan, &forgets), &check(dir))
            })
        }
    };
    for option in ["mode", "force", "create", "directory_mode"] {
        assert!(finds_failure(without(option)), "a check that does not look at {option}");
    }
    let conditions = |task: &mut Task| task.when.clear();
    assert!(
        finds_failure(|tasks| assert_check_predicts(tasks, |dir, plan| go(&edit(plan, &conditions), &check(dir)))),
        "conditions"
    );
    let handlers = |task: &mut Task| task.notify.clear();
    assert!(
        finds_failure(|tasks| assert_check_predicts(tasks, |dir, plan| go(&edit(plan, &handlers), &check(dir)))),
        "handlers"
    );
    // Predicts each task as if the previous tasks had changed nothing.
    let alone = |tasks: &[String]| {
        assert_check_predicts(tasks, |dir, plan| {
            let mut whole = go(plan, &check(dir));
            let mut seen = BTreeMap::new();
            for (i, task) in tasks.iter().enumerate() {
                let one = go(&make_plan(dir, std::slice::from_ref(task)), &check(dir));
                let first = one.statuses().into_iter().find(|(name, _)| name == "t0");
                seen.extend(first.map(|(_, status)| (format!("t{i}"), status)));
            }
            for event in &mut whole.events {
                if let RunEvent::Task(done) = event
                    && let Some(status) = seen.get(&done.name)
                {
                    done.status = *status;
                }
            }
            whole
        })
    };
    assert!(finds_failure(alone), "a check that forgets what earlier tasks would make");
    let writes = |tasks: &[String]| {
        assert_check_predicts(tasks, |dir, plan| {
            std::fs::write(dir.path().join("t/d/written"), "").unwrap();
            go(plan, &check(dir))
        })
    };
    assert!(finds_failure(writes), "a check that writes");
    let undone = |dir: &TempDir| {
        for (name, _) in at_t(dir).into_iter().filter(|(_, what)| what.contains("100644") || what.starts_with("644")) {
            std::fs::set_permissions(dir.path().join("t").join(name), std::fs::Permissions::from_mode(0o640)).unwrap();
        }
    };
    assert!(finds_failure(|tasks| assert_settled(tasks, undone)), "what is made, and is not so afterwards");
}

/// Whether a task may change something in each run: a command may create another file than the one
/// in `creates`.
fn may_change_again(plan: &Plan) -> bool {
    let tasks = plan.plays[0].sections.iter().flatten();
    tasks.into_iter().any(|step| matches!(step, PlanStep::Task(task) if task.module == "command"))
}

/// Tasks that each determine the whole state of their path.
fn settling_task() -> impl Strategy<Value = String> {
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
