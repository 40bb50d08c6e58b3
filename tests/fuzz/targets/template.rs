//! A template, as a `.j2` file and as an inventory variable that a playbook reads. It is checked
//! and rendered in the same way as for the expected contents of a node's files.

use remoor_model::FileSet;
use remoor_playbook::{CompileOptions, HostContext, compile, review};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const PLAYBOOK: &str = "- hosts: all\n  vars: {list: [b, a, 3], deep: {port: 80, on: true}, none: null, x: 1.5, name: web}\n  tasks:\n  \
    - template: {src: t.j2, dest: /t}\n  - copy: {content: \"{{ text }}\", dest: /c}\n    when: name == 'web'\n";

pub fn target(bytes: &[u8]) -> bool {
    let text = super::text(bytes);
    // The template engine does not limit a text that is doubled repeatedly. Doubling needs a loop
    // or many concatenations, so such inputs are skipped.
    if text.contains("for") && text.contains(['~', '*', '+']) || text.matches(['~', '*']).count() > 4 {
        return false;
    }
    // A password hash is slow by design, so one per template is enough.
    if text.matches("password_hash").count() > 1 {
        return false;
    }
    let files = [("site.yml", PLAYBOOK), ("t.j2", text)];
    let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
    let Value::Object(vars) = json!({"text": text, "inventory_hostname": "h"}) else { return false };
    let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
    match compile(&files, "site.yml", &host, &CompileOptions::default()) {
        Ok(compiled) => {
            let (made, faults) = review(&compiled.plan, &Map::new(), &files, &[]);
            assert!(made.values().all(|file| file.content.len() <= 16 << 20));
            assert!(faults.iter().all(|fault| !fault.message.is_empty()));
            let again: BTreeMap<_, _> = review(&compiled.plan, &Map::new(), &files, &[]).0;
            assert!(
                made == again || text.contains("now") || text.contains("strftime"),
                "rendering again gave another result"
            );
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            let lines = u32::try_from(text.lines().count() + 1).unwrap_or(u32::MAX).max(7);
            assert!(faults.iter().all(|fault| !fault.message.is_empty() && fault.line <= lines), "{faults:?}");
        }
    }
    true
}
