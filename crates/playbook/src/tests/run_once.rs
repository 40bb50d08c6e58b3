//! Tasks that one host runs for all hosts (`run_once`).

use super::delegation::make_host;
use super::*;
use crate::{ControllerLink, ControllerRequest, OnceAnswer, read_request};
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// The plan of one of the hosts `w1` and `w2`.
fn plan_of(name: &str, dir: &Path, text: &str) -> Plan {
    let hosts = InventoryNames { hosts: ["w1", "w2"].map(str::to_owned).to_vec(), ..InventoryNames::default() };
    let vars = json!({"dir": dir, "inventory_hostname": name, "group_names": [], "fixed": "inventory"});
    let host = make_host(name, &vars);
    let options = CompileOptions { delegates: true, hosts: Some(&hosts), ..CompileOptions::default() };
    let files = [("site.yml", text), ("v.yml", "from_file: '{{ fixed }}'\n")];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    compile(&FileSet(files.into()), "site.yml", &host, &options).unwrap().plan
}

/// Runs the plan of `w1`, which is chosen for all tasks, and then that of `w2` with its results.
/// `change` may change each result on its way.
fn run_both(dir: &Path, text: &str, change: impl Fn(&mut Value) + Send + Sync + 'static) -> [Ran; 2] {
    let results = Arc::new(Mutex::new(Vec::new()));
    let change = Arc::new(change);
    ["w1", "w2"].map(|name| {
        let plan = plan_of(name, dir, text);
        let (copy, results, change) = (plan.clone(), Arc::clone(&results), Arc::clone(&change));
        let controller = ControllerLink::new(move |request| {
            let mut results = results.lock().unwrap();
            Ok(match read_request(&copy, false, request).unwrap() {
                ControllerRequest::Turn(_) if copy.host == "w1" => OnceAnswer::Run.encode(),
                ControllerRequest::Turn(_) => {
                    OnceAnswer::Known { host: "w1".to_owned(), content: results.remove(0) }.encode()
                }
                ControllerRequest::Result { mut content, .. } => {
                    change(&mut content);
                    results.push(content);
                    b"null".to_vec()
                }
                other => panic!("{other:?}"),
            })
        });
        go(&plan, &PlaybookRunOptions { controller: Some(controller), ..options(dir) })
    })
}

#[test]
fn the_other_hosts_know_what_the_task_has_set() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {shell: 'echo x >> {{ dir }}/count; wc -l < {{ dir }}/count', run_once: true, register: r}
    - {set_fact: {own: '{{ inventory_hostname }}', markup: \"{{ '{' ~ '{ fixed }' ~ '}' }}\"}, run_once: true}
    - {include_vars: v.yml, run_once: true}
    - {command: 'echo {{ item }}', loop: [a, b], run_once: true, register: each}
    - {command: 'false', run_once: true, register: bad, ignore_errors: true}
    - {command: 'true', run_once: true, when: inventory_hostname == 'w2', register: skipped}
    - assert:
        that:
          - r.stdout == '1' and own == 'w1' and from_file == 'inventory'
          - markup == '{' ~ '{ fixed }' ~ '}'
          - each.results[1].stdout == 'b' and bad is failed and skipped is skipped
";
    let [first, second] = run_both(dir.path(), text, |_| ());
    let (first, second) = (first.assert_success(), second.assert_success());
    assert_eq!(first.statuses().len(), 8, "{}", first.text());
    assert_eq!(second.statuses().len(), 1, "only the last task: {}", second.text());
}

#[test]
fn a_result_sets_only_what_the_task_may_set() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  vars: {script: playbook}
  tasks:
    - {set_fact: {own: 1}, run_once: true}
    - {assert: {that: [script == 'playbook', fixed == 'inventory', own == 1, from_file is undefined]}}
";
    let [_, second] = run_both(dir.path(), text, |content| {
        for name in ["script", "fixed"] {
            content["facts"].as_array_mut().unwrap().push(json!([null, name, "forged"]));
        }
        content["included"] = json!([["v.yml", null]]);
    });
    second.assert_success();
}

#[test]
fn a_failure_ends_the_run_of_the_other_hosts_or_is_rescued_there() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - block: [{command: 'sh -c \"echo hidden-text; exit 3\"', run_once: true, no_log: true, register: r}]
      rescue: [{assert: {that: [r.rc == 3, ansible_failed_result.rc == 3]}}]
    - {shell: 'echo hidden-text; exit 4', run_once: true, no_log: true}
    - {command: 'touch {{ dir }}/never'}
";
    let [first, second] = run_both(dir.path(), text, |_| ());
    assert!(first.end.failure.is_some() && first.end.fatal);
    assert_eq!((second.end.failure.as_ref(), second.end.cancelled, second.end.fatal), (None, true, false));
    assert_eq!(second.statuses().len(), 1, "only the rescue: {}", second.text());
    assert!(!dir.path().join("never").exists());
    let shown = format!("{:?}{}", second.end, second.text());
    assert!(!shown.contains("hidden-text"), "{shown}");
}

#[test]
fn a_run_without_an_answer_fails_at_the_task() {
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all\n  tasks:\n    - {command: 'touch {{ dir }}/never', run_once: true}\n";
    for (answer, why) in [(Err("gone"), Some("gone")), (Ok("?"), Some("not readable")), (Ok("\"stopped\""), None)] {
        let answer = answer.map(|text: &str| text.as_bytes().to_vec()).map_err(str::to_owned);
        let controller = ControllerLink::new(move |_| answer.clone());
        let plan = plan_of("w2", dir.path(), text);
        let end = go(&plan, &PlaybookRunOptions { controller: Some(controller), ..options(dir.path()) }).end;
        let message = end.failure.map(|failure| failure.message);
        assert_eq!(message.is_some(), why.is_some(), "{message:?}");
        assert!(message.unwrap_or_default().contains(why.unwrap_or_default()));
        assert_eq!(end.cancelled, why.is_none());
    }
    assert!(!dir.path().join("never").exists());
}

#[test]
fn a_host_shares_only_what_it_may_set_and_others_may_read() {
    let dir = TempDir::new().unwrap();
    let text = "\
- hosts: all
  tasks:
    - {set_fact: {mine: 1, hidden: 2}}
    - {set_fact: {given: 3}, delegate_to: w2, delegate_facts: true}
    - {debug: {msg: '{{ hostvars.w2.mine }} {{ hostvars.w2.ansible_hostname }}'}}
";
    let mut plan = plan_of("w1", dir.path(), text);
    let all = json!({"w1": {}, "w2": {}});
    plan.shared.insert("hostvars".to_owned(), crate::SharedVar::new(all));
    let request = |plan: &Plan, check: bool| {
        let own = json!({
            "facts": {"ansible_hostname": "w1", "ansible_kernel": "k", "fixed": "forged"},
            "set": {"mine": [1, "\u{1}unknown", {"\u{1}unknown": true}], "hidden": 2, "fixed": "forged"},
        });
        let others = json!({
            "w1": {"set": {"given": 0}},
            "w2": {"set": {"given": 3, "fixed": "forged", "mine": 9}, "facts": {"ansible_host": "evil"}},
        });
        let text = json!({"share": {"own": own, "others": others}}).to_string();
        read_request(plan, check, text.as_bytes()).map(|request| match request {
            ControllerRequest::Share(values) => serde_json::to_value(values).unwrap(),
            other => panic!("{other:?}"),
        })
    };
    assert!(request(&plan, false).unwrap_err().to_string().contains("no other host reads"));
    plan.shares = crate::SharedNames::find(&[&plan]);
    let expected = json!({
        "own": {"facts": {"ansible_hostname": "w1"}, "set": {"mine": [1, null, {}]}},
        "others": {"w2": {"facts": {}, "set": {"given": 3}}},
    });
    assert_eq!(request(&plan, false).unwrap(), expected, "only check mode has unknown values");
    let predicted = request(&plan, true).unwrap();
    assert_eq!(predicted["own"]["set"]["mine"], json!([1, "\u{1}unknown", {"\u{1}unknown": true}]));
    let unread = plan_of("w1", dir.path(), "- hosts: all\n  tasks:\n    - {set_fact: {mine: 1}}\n");
    assert_eq!(crate::SharedNames::find(&[&unread]), None);
}
