//! Requests for `synchronize`, as correct and as compromised hosts make them.

use super::delegation::{make_host, view};
use super::*;
use crate::{ControllerRequest, DelegatedTask, DelegationError, RsyncRoute, plan_delegated, read_request};
use serde_json::Value;
use std::path::PathBuf;

const PLAYBOOK: &str = "\
- hosts: all
  vars: {tree: /srv/tree, from: '{{ r.stdout }}', options: [--exclude=x]}
  tasks:
    - {command: id, register: r}
    - {synchronize: {src: '{{ tree }}/{{ item }}', dest: '{{ r.stdout }}', rsync_opts: '{{ options }}'}, loop: [a, b], become: true}
    - {synchronize: {src: '{{ from }}', dest: /x}}
    - {synchronize: {src: /x, dest: '{{ tree }}{{ ansible_hostname }}', mode: pull}}
    - {synchronize: {src: /x, dest: /y, rsync_opts: ['{{ r.stdout }}']}}
    - {synchronize: {src: /x, dest: /y, link_dest: '{{ set }}'}}
    - {synchronize: {src: /x, dest: '{{ r.stdout }}:/y'}}
    - {synchronize: {src: /x, dest: /y}, delegate_to: '{{ inventory_hostname }}'}
    - {synchronize: {src: /x, dest: /y}, connection: local}
    - {synchronize: {src: /x, dest: /y}, delegate_to: db1, become: true, become_user: app}
    - {set_fact: {set: '{{ r.stdout }}'}}
    - {synchronize: {src: /x, dest: /y}, environment: {PATH: '{{ ansible_hostname }}'}}
    - {synchronize: {src: /x, dest: /y}, environment: {PATH: '/bin{{ tree }}'}}
";

fn plan() -> Plan {
    let files = [("site.yml".to_owned(), PLAYBOOK.as_bytes().to_vec())];
    let host = make_host("w1", &json!({"inventory_hostname": "w1", "group_names": []}));
    let options = CompileOptions { delegates: true, ..CompileOptions::default() };
    compile(&FileSet(files.into()), "site.yml", &host, &options).unwrap().plan
}

fn request(task: u32, item: Value) -> Result<DelegatedTask, DelegationError> {
    let state = json!({
        "facts": {"ansible_hostname": "h"}, "registers": {"r": {"stdout": "/root"}, "set": "/s"},
    });
    let text = json!({"delegate": {"task": task, "item": item, "state": state}}).to_string();
    let plan = plan();
    let vars = |name: &str| ["db1", "localhost"].contains(&name).then(Map::new);
    match read_request(&plan, false, text.as_bytes())? {
        ControllerRequest::Delegate(request) => plan_delegated(&plan, request, &view(false, &vars)),
        other => panic!("{other:?}"),
    }
}

/// The options with which the module runs.
fn connect(mut task: DelegatedTask, route: &RsyncRoute) -> Result<Value, String> {
    task.rsync.take().unwrap().connect(&mut task.plan, route)?;
    let mut found = Value::Null;
    task.plan.each_task(&mut |task| found = json!([task.args, task.privileges.elevated]));
    Ok(found)
}

#[test]
fn a_host_chooses_only_its_own_path() {
    let task = request(2, json!([1, "b"])).unwrap();
    assert_eq!(task.host, "localhost");
    let transfer = task.rsync.as_ref().unwrap();
    assert_eq!(transfer.check_origin(|_| false), Ok(()));
    assert_eq!(transfer.local_path(), "/srv/tree/b");
    assert_eq!(request(13, Value::Null).unwrap().rsync.unwrap().check_origin(|_| false), Ok(()));
    for (task, option, local) in [(3, None, true), (4, None, true), (5, Some("rsync_opts"), false)] {
        let task = request(task, Value::Null).unwrap();
        let transfer = task.rsync.as_ref().unwrap();
        let said = transfer.check_origin(|_| true).err();
        assert_eq!(said.as_deref().map(|said| said.contains(&format!("`{}`", option.unwrap()))), option.map(|_| true));
        assert!(!local || transfer.check_origin(|_| false).is_err());
    }
    for (task, option) in [(6, "link_dest"), (7, "dest"), (12, "environment")] {
        let task = request(task, Value::Null).unwrap();
        let said = task.rsync.as_ref().unwrap().check_origin(|_| true).unwrap_err();
        assert!(said.contains(&format!("may choose `{option}`")), "{said}");
    }
}

#[test]
fn rsync_connects_by_the_login_of_the_run() {
    let socket = PathBuf::from("/run/s");
    let login = |user: &str| RsyncRoute::Login { socket: socket.clone(), host: "::1".into(), user: user.into() };
    let args = connect(request(2, json!([0, "a"])).unwrap(), &login("me")).unwrap();
    assert_eq!(args[0]["src"], "/srv/tree/a");
    assert_eq!(args[0]["dest"], "me@[::1]:/root");
    assert_eq!(args[0]["rsync_path"], "sudo -n -u root rsync");
    assert_eq!(args[0]["_rsh"], "ssh -F none -S /run/s -o BatchMode=yes -o ProxyCommand=false");
    assert_eq!(args[1], false, "rsync itself runs without `become`");
    let args = connect(request(2, json!([0, "a"])).unwrap(), &login("root")).unwrap();
    assert_eq!((&args[0]["dest"], &args[0]["rsync_path"]), (&json!("root@[::1]:/root"), &Value::Null));
    let args = connect(request(2, json!([0, "a"])).unwrap(), &RsyncRoute::Here).unwrap();
    assert_eq!((&args[0]["dest"], &args[1]), (&json!("/root"), &json!(true)));
    let ssh = RsyncRoute::Ssh { host: "w1.example.org".into(), port: 2222, user: String::new() };
    let task = request(10, Value::Null).unwrap();
    assert_eq!(task.host, "db1");
    let args = connect(task, &ssh).unwrap();
    assert_eq!(args[0]["dest"], "w1.example.org:/y");
    assert_eq!(args[0]["rsync_path"], "sudo -n -u app rsync");
    let said = connect(request(7, Value::Null).unwrap(), &ssh).unwrap_err();
    assert!(said.contains("names a host"), "{said}");
}

#[test]
fn a_task_of_the_host_itself_and_one_of_the_controller_alone_connect_to_nothing() {
    let error = request(8, Value::Null).unwrap_err();
    assert!(error.to_string().contains("is not delegated"), "{error}");
    let task = request(9, Value::Null).unwrap();
    assert!(task.host == "localhost" && task.rsync.is_none());
    let files = FileSet([("site.yml".to_owned(), PLAYBOOK.as_bytes().to_vec())].into());
    let host = make_host("w1", &json!({"inventory_hostname": "w1", "group_names": []}));
    let faults = compile(&files, "site.yml", &host, &CompileOptions::default()).unwrap_err();
    assert!(faults.iter().any(|fault| fault.message.contains("works only during `remoor play`")), "{faults:?}");
}
