//! Tests `hostvars` of the host itself and of other hosts. The results are those of ansible-core
//! 2.19.

use super::*;

fn hostvars(dir: &Path, text: &str) -> Plan {
    let all = json!({
        "w1": {"url": "{{ proto }}://{{ inventory_hostname }}", "proto": "http", "port": 1},
        "w2": {"url": "{{ proto }}://{{ inventory_hostname }}", "proto": "ftp", "many": "{{ groups.all | length }}", "open": "{{ tool }}"},
    });
    let mut vars = all["w1"].as_object().unwrap().clone();
    vars.insert("dir".into(), json!(dir.display().to_string()));
    vars.insert("inventory_hostname".into(), json!("w1"));
    vars.insert("groups".into(), json!({"all": ["w1", "w2"]}));
    vars.insert("hostvars".into(), all);
    let host = HostContext { name: "w1".into(), group: "web".into(), vars, ..HostContext::default() };
    let files = [("site.yml", text), ("more.yml", "included: '{{ port }}0'\n")];
    let set = files.into_iter().map(|(p, t)| (p.to_owned(), t.as_bytes().to_vec())).collect();
    let extra_vars = Map::from_iter([("extra".to_owned(), json!("x"))]);
    let options = CompileOptions { extra_vars, ..CompileOptions::default() };
    compile(&FileSet(set), "site.yml", &host, &options).unwrap().plan
}

#[test]
fn hostvars_of_the_own_host_have_what_its_tasks_set() {
    let dir = TempDir::new().unwrap();
    let text = r#"
- hosts: all
  vars: {tool: hammer, play_var: 1}
  tasks:
    - set_fact: {a: 1, port: 2}
    - {command: echo hi, register: r}
    - include_vars: {file: more.yml}
    - assert:
        that:
          - hostvars[inventory_hostname].a == 1
          - hostvars.w1.port == 2
          - hostvars['w1']['r'].stdout == 'hi'
          - hostvars.w1.included == '20'
          - hostvars.w1.extra == 'x'
          - hostvars.w1.ansible_facts.kernel == ansible_kernel
          - hostvars.w1.play_var is not defined
          - hostvars.w1.hostvars is not defined
          - hostvars.w1.nope | default('none') == 'none'
          - "'a' in hostvars.w1 and 'a' not in hostvars.w2"
          - hostvars | dict2items | map(attribute='key') | list == ['w1', 'w2']
          - hostvars.w3 is not defined
    - {set_fact: {b: '{{ item }}'}, loop: [1, 2], when: 'hostvars.w1.b | default(item) in [item, item - 1]'}
    - assert: {that: hostvars.w1.b == 2}
    - assert:
        that:
          - hostvars.w1.url == 'http://w1'
          - hostvars.w2.url == 'ftp://w2'
          - hostvars.w2.many == groups.all | length
    - {debug: {msg: '{{ hostvars.w2.open }}'}, ignore_errors: true, register: o}
    - assert: {that: "o is failed"}
"#;
    let plan = hostvars(dir.path(), text);
    go(&plan, &options(dir.path())).assert_success();
    // Check mode does not run the command, so a task that reads the result in `hostvars` is
    // UNKNOWN.
    let check = PlaybookRunOptions { check: true, ..options(dir.path()) };
    let ran = go(&hostvars(dir.path(), "- hosts: all\n  tasks:\n    - {command: echo hi, register: r}\n    - {name: reads, debug: {msg: '{{ hostvars.w1.r.stdout }}'}}\n"), &check).assert_success();
    assert_eq!(ran.statuses().last(), Some(&("reads".into(), Status::Unknown)));
}

#[test]
fn hostvars_of_the_own_host_leave_to_the_run_what_only_it_can_tell() {
    let dir = TempDir::new().unwrap();
    let text = "- hosts: all\n  tasks:\n    - {command: echo hi, register: r}\n    - copy: {content: '{{ hostvars.w1.r.stdout }}', dest: '{{ dir }}/f'}\n    - copy: {content: '{{ hostvars.w1.nope }}', dest: '{{ dir }}/g'}\n";
    let plan = hostvars(dir.path(), text);
    let files = FileSet(BTreeMap::from([("site.yml".to_owned(), text.as_bytes().to_vec())]));
    let (rendered, faults) = review(&plan, &Map::new(), &files, &[]);
    assert!(rendered.is_empty());
    let told: Vec<(u32, bool)> = faults.iter().map(|f| (f.line, f.warning)).collect();
    assert_eq!(told, [(5, false)], "{faults:?}");
}
