//! A playbook, compiled for one host. The result is either faults with their file and line, or a
//! plan. The plan is the same each time, and it is still the same after it was encoded and decoded.

use remoor_model::FileSet;
use remoor_playbook::{CompileOptions, HostContext, Plan, compile};
use serde_json::{Value, json};

/// Other files that the playbook may include. The tested playbook is added to them, so it may
/// include itself.
const OTHERS: [(&str, &str); 6] = [
    ("tasks.yml", "- debug: {msg: \"{{ item | default('x') }}\"}\n- import_tasks: more.yml\n"),
    ("more.yml", "- include_tasks: tasks.yml\n  when: false\n"),
    ("vars.yml", "a: 1\nb: \"{{ a }}\"\n"),
    ("roles/r/tasks/main.yml", "- command: /bin/true\n  notify: h\n"),
    ("roles/r/handlers/main.yml", "- name: h\n  debug:\n"),
    ("t.j2", "{{ name }}\n"),
];

pub fn target(bytes: &[u8]) -> bool {
    let text = super::text(bytes);
    let mut files = FileSet(OTHERS.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
    files.0.insert("site.yml".into(), text.as_bytes().to_vec());
    let Value::Object(vars) = json!({"name": "web", "group_names": ["web"], "inventory_hostname": "h"}) else {
        return true;
    };
    let host = HostContext { name: "h".into(), group: "web".into(), vars, ..HostContext::default() };
    let once = || compile(&files, "site.yml", &host, &CompileOptions::default());
    match once() {
        Ok(compiled) => {
            assert_eq!(
                once().map(|c| c.plan.sha256()).ok(),
                Some(compiled.plan.sha256()),
                "compiling again gave another plan"
            );
            let wire = serde_json::to_vec(&compiled.plan).expect("a plan is JSON");
            let back: Plan = serde_json::from_slice(&wire).expect("a plan can be decoded");
            assert_eq!(back.sha256(), compiled.plan.sha256());
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "rejected without a reason");
            assert!(faults.iter().all(|fault| !fault.message.is_empty() && !fault.file.is_empty()));
        }
    }
    true
}
