//! A Go template. The input is variables as YAML, a line `---`, and the template.

use remoor_check::{self as check, Outside};
use std::collections::BTreeMap;

const VARS: &str = "{list: [a, b, 3], name: web, deep: {port: 80, on: true}, none: null, x: 1.5}";
/// Maximum output of a Go template, in bytes, as in remoor's renderer.
const OUTPUT_MAX: usize = 4 << 20;

pub fn target(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (vars, template) = text.split_once("\n---\n").unwrap_or((VARS, text));
    let Ok(vars) = check::vars("vars.yml", vars) else { return true };
    let env = BTreeMap::from([("HOME".to_owned(), "/".to_owned())]);
    let read = |path: &str| if path == "f" { Ok("one\ntwo\n".to_owned()) } else { Err("not there".to_owned()) };
    match check::render_go("t.yml", template, &vars, &Outside { env: &env, read: &read }) {
        Ok(out) => assert!(out.len() <= OUTPUT_MAX),
        Err(fault) => {
            assert!(!fault.message.is_empty());
            assert!(fault.line as usize <= template.lines().count() + 1, "{fault}");
        }
    }
    true
}
