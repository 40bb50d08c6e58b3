//! Tasks that restart the host, and the runs that continue after them.

use super::delegation::{make_host, view};
use super::*;
use crate::{
    ControllerLink, ControllerRequest, LookupAnswer, LookupRequest, RebootRequest, ResumedRun, perform_file_test,
    plan_lookup, read_request, with_lookup_answers,
};
use std::sync::{Arc, Mutex};

/// A task that restarts the host: the file `boot` contains its boot time.
const REBOOT: &str = "reboot: {reboot_command: \"/bin/sh -c 'echo x >> {{ dir }}/boot; touch {{ dir }}/restarted'\", boot_time_command: 'cat {{ dir }}/boot'}";

fn plan_of(dir: &Path, files: &[(&str, &str)]) -> Plan {
    let vars = json!({"dir": dir, "inventory_hostname": "w1", "group_names": []});
    let options = CompileOptions { delegates: true, ..CompileOptions::default() };
    let replaced = |text: &str| text.replace("REBOOT", REBOOT).into_bytes();
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), replaced(text)));
    compile(&FileSet(files.collect()), "site.yml", &make_host("w1", &vars), &options)
        .unwrap_or_else(|faults| panic!("{faults:?}"))
        .plan
}

/// Runs the plan with all its sessions, as the controller does. Returns the last session, with the
/// events of all of them, and the number of sessions.
fn run_with_reboots(dir: &Path, plan: &Plan, expired: bool) -> (Ran, usize) {
    std::fs::write(dir.join("boot"), "x\n").unwrap();
    let pending: Arc<Mutex<Option<RebootRequest>>> = Arc::default();
    let mut events = Vec::new();
    let mut next = plan.clone();
    for sessions in 1.. {
        let (copy, noted) = (next.clone(), Arc::clone(&pending));
        let controller = ControllerLink::new(move |request| {
            match read_request(&copy, false, request).unwrap() {
                ControllerRequest::Reboot(reboot) => *noted.lock().unwrap() = reboot,
                ControllerRequest::Begin(_) | ControllerRequest::End => {}
                ControllerRequest::Lookup(request) => return Ok(answer_test(&copy, *request).encode()),
                other => panic!("{other:?}"),
            }
            Ok(b"null".to_vec())
        });
        let ran = go(&next, &PlaybookRunOptions { controller: Some(controller), ..options(dir) });
        events.extend(ran.events);
        let Some(reboot) = pending.lock().unwrap().clone().filter(|_| ran.end.rebooting.is_some()) else {
            return (Ran { end: ran.end, events }, sessions);
        };
        assert!(sessions < 10, "{:?}", ran.end);
        // The checkpoint passes through the messages of the session.
        let packed = rmp_serde::to_vec_named(&Plan {
            resumed: Some(ResumedRun { checkpoint: reboot.checkpoint, elapsed: 7, expired, replaced: None }),
            ..plan.clone()
        });
        next = rmp_serde::from_slice(&packed.unwrap()).unwrap();
    }
    unreachable!()
}

/// Performs the test of a file that a condition makes.
fn answer_test(plan: &Plan, request: LookupRequest) -> LookupAnswer {
    let planned = with_lookup_answers(Arc::default(), || plan_lookup(plan, request, &view(false, &|_| None)));
    let call = planned.unwrap().call;
    let holds = perform_file_test(&call.name, &[Path::new(call.terms[0].as_str().unwrap())]);
    LookupAnswer::Items(vec![json!(holds.unwrap())])
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("log")).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_run_continues_after_the_task_that_restarted_its_host() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  pre_tasks: [{shell: 'echo pre >> {{ dir }}/log'}]
  tasks:
    - {set_fact: {before: '{{ ansible_hostname }}'}}
    - {command: echo out, register: r, notify: late}
    - {name: restart, REBOOT, register: again, when: \"not (dir ~ '/restarted') is exists and r.stdout == 'out'\", notify: late}
    - {shell: 'echo {{ r.stdout }} {{ before == ansible_hostname }} {{ again.elapsed }} {{ again.rebooted }} {{ again is changed }} >> {{ dir }}/log'}
    - {include_vars: v.yml}
    - {name: second, REBOOT, throttle: 1}
    - {shell: 'echo {{ from_file }} >> {{ dir }}/log'}
  handlers: [{name: late, shell: 'echo late >> {{ dir }}/log'}]
- hosts: all
  tasks: [{shell: 'echo {{ r.stdout }} >> {{ dir }}/log'}]
";
    let plan = plan_of(dir.path(), &[("site.yml", text), ("v.yml", "from_file: file\n")]);
    let (ran, sessions) = run_with_reboots(dir.path(), &plan, false);
    let ran = ran.assert_success();
    assert_eq!((sessions, log(dir.path()).as_str()), (3, "pre out True 7 True True file late out"));
    let statuses = ran.statuses();
    assert_eq!(statuses.iter().filter(|(name, _)| name == "restart").count(), 1, "{statuses:?}");
    assert_eq!((ran.end.ok, ran.end.changed, ran.end.failed), (2, 8, 0), "{statuses:?}");
    assert_eq!(ran.end.pending_handlers, Vec::<String>::new());
    let starts = ran.events.iter().filter(|event| matches!(event, RunEvent::TaskStart { .. })).count();
    assert_eq!(starts, statuses.len(), "each task is reported once");
}

#[test]
fn a_run_continues_in_blocks_includes_roles_and_handlers() {
    let dir = TempDir::new().unwrap();
    let say = |text: &str| format!("{{shell: 'echo {text} >> {{{{ dir }}}}/log'}}");
    let site = format!(
        "\
- hosts: all
  tasks:
    - block:
        - {one}
        - {{name: bad, command: 'false'}}
        - {never}
      rescue:
        - {{REBOOT}}
        - {{shell: 'echo rescued {{{{ ansible_failed_task.name }}}} {{{{ ansible_failed_result.rc }}}} >> {{{{ dir }}}}/log'}}
      always:
        - {{REBOOT}}
        - {always}
    - block:
        - block: [{{command: 'false'}}]
          always: [{{REBOOT}}, {inner}]
        - {never}
      rescue: [{outer}]
    - {{include_tasks: more.yml, loop: [a, b, c], loop_control: {{loop_var: outer, index_var: at}}}}
    - {{include_role: {{name: r}}, vars: {{given: role}}}}
    - {{command: 'true', notify: [first, second, third]}}
    - {{meta: flush_handlers}}
    - {after}
  handlers:
    - {{name: first, shell: 'echo first >> {{{{ dir }}}}/log'}}
    - {{name: second, REBOOT, notify: fourth}}
    - {{name: third, include_tasks: handled.yml}}
    - {{name: fourth, shell: 'echo fourth >> {{{{ dir }}}}/log'}}
",
        one = say("one"),
        never = say("never"),
        always = say("always"),
        inner = say("inner"),
        outer = say("outer"),
        after = say("after"),
    );
    let files = [
        ("site.yml", site.as_str()),
        (
            "more.yml",
            "- {shell: 'echo {{ outer }}{{ at }} >> {{ dir }}/log'}\n- {REBOOT, when: outer == 'b'}\n- {shell: 'echo {{ outer }}{{ at }} >> {{ dir }}/log'}\n",
        ),
        (
            "roles/r/tasks/main.yml",
            "- {REBOOT}\n- {shell: 'echo {{ given }} {{ preset }} >> {{ dir }}/log', notify: role handler}\n",
        ),
        ("roles/r/defaults/main.yml", "preset: default\n"),
        ("roles/r/handlers/main.yml", "- {name: role handler, shell: 'echo role-handler >> {{ dir }}/log'}\n"),
        ("handled.yml", "- {REBOOT}\n- {shell: 'echo third >> {{ dir }}/log'}\n"),
    ];
    let (ran, sessions) = run_with_reboots(dir.path(), &plan_of(dir.path(), &files), false);
    let ran = ran.assert_success();
    let expected = "one rescued bad 1 always inner outer a0 a0 b1 b1 c2 c2 role default role-handler first third \
                    fourth after";
    assert_eq!(log(dir.path()), expected, "{:?}", ran.statuses());
    assert_eq!(sessions, 8);
    assert!(!dir.path().join("journal").exists());
}

#[test]
fn a_reboot_that_does_not_happen_fails_its_task() {
    let fails = |task: &str, expired: bool, want: &str| {
        let dir = TempDir::new().unwrap();
        let text = format!(
            "- hosts: all\n  tasks:\n    - block: [{{{task}, register: r}}]\n      rescue: [{{shell: 'echo {{{{ r.rebooted | default(\"-\") }}}} > {{{{ dir }}}}/log'}}]\n    - {{fail: {{msg: '{{{{ r.msg }}}}'}}}}\n"
        );
        let plan = plan_of(dir.path(), &[("site.yml", &text)]);
        let (ran, _) = run_with_reboots(dir.path(), &plan, expired);
        let message = ran.end.failure.unwrap().message;
        assert!(message.contains(want), "{task}: {message}");
        log(dir.path())
    };
    let boot = "boot_time_command: 'cat {{ dir }}/boot'";
    let command = "reboot_command: \"/bin/sh -c 'echo x >> {{ dir }}/boot'\"";
    let same = format!("reboot: {{reboot_command: /bin/true, {boot}, reboot_timeout: 5}}");
    assert_eq!(fails(&same, true, "timed out after 5 s while waiting for the reboot: the boot time has not"), "True");
    let test = format!("reboot: {{{command}, {boot}, test_command: 'echo no; false'}}");
    assert_eq!(fails(&test, true, "while waiting for the test command: `echo no; false` failed:  no"), "True");
    let bad = format!("reboot: {{reboot_command: \"/bin/sh -c 'echo bad; exit 3'\", {boot}}}");
    assert_eq!(fails(&bad, false, "the reboot command failed: bad"), "False");
    assert_eq!(fails("reboot: {boot_time_command: 'false'}", false, "the boot time of the host is not known"), "-");
    let missing = format!("reboot: {{reboot_command: no-such-program, search_paths: [/bin, /sbin], {boot}}}");
    assert_eq!(fails(&missing, false, "there is no program `no-such-program` in /bin, /sbin"), "-");
}

#[test]
fn check_mode_restarts_nothing_and_a_run_without_a_controller_refuses() {
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all\n  tasks:\n    - {REBOOT, register: r}\n    - {assert: {that: [r is changed, r.rebooted, r.elapsed == 0]}}\n";
    let plan = plan_of(dir.path(), &[("site.yml", text)]);
    let ran = go(&plan, &PlaybookRunOptions { check: true, ..options(dir.path()) }).assert_success();
    assert_eq!(ran.end.changed, 1);
    let failure = go(&plan, &options(dir.path())).end.failure.unwrap();
    assert_eq!(failure.message, "a host can be restarted only during `remoor play`");
    assert!(!dir.path().join("boot").exists());
}

#[test]
fn a_reboot_is_refused_where_the_run_could_not_continue() {
    let refusal = |task: &str, delegates: bool| {
        let text = format!("- hosts: all\n  tasks:\n    - {{{task}}}\n");
        let files = FileSet([("site.yml".to_owned(), text.into_bytes())].into());
        let options = CompileOptions { delegates, ..CompileOptions::default() };
        compile(&files, "site.yml", &make_host("w1", &json!({})), &options).unwrap_err()[0].message.clone()
    };
    assert!(refusal("reboot: {}", false).contains("works only during `remoor play`"));
    assert!(refusal("reboot: {}, loop: [1]", true).contains("in a loop"));
    assert!(refusal("reboot: {}, delegate_to: localhost", true).contains("of another host"));
    let dir = TempDir::new().unwrap();
    let plan = plan_of(dir.path(), &[("site.yml", "- hosts: all\n  tasks: [{command: id}]\n")]);
    let request = json!({"reboot": {"task": 1, "checkpoint": "", "post_reboot_delay": 0, "reboot_timeout": 1, "connect_timeout": null}});
    let refused = read_request(&plan, false, request.to_string().as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("does not restart the host"), "{refused}");
}
