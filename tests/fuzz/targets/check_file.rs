//! A check file from text to checks, as in lint and `remoor check --file`: header, `when`,
//! rendering, loading. Only checks of type `matching` are run, because they do not read the state
//! of the machine.

use remoor_check::{self as check, CheckRunOptions, ResourceKind, Strictness};
use remoor_model::{Fault, Wall};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

const FILE: &str = "checks/x.yml";

/// The variables with which the check file is rendered, in the form that a manager uses.
static CONTEXT: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let facts = json!({"cpus": 2, "os": {"family": "debian"}});
    let node =
        json!({"name": "w1", "hostname": "w1", "addr": "10.0.0.1", "group": "web", "role": "worker", "facts": facts});
    let context = json!({"node": node, "vars": {"port": 80, "names": ["a", "b"]}, "peers": [node], "expected": {}});
    context.as_object().cloned().unwrap_or_default()
});

pub fn target(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    if let Err(faults) = load_and_run(text) {
        assert_reasons(&faults);
    }
    // The text is also loaded without header and rendering, so that faults of YAML are found
    // sooner.
    if let Ok(loaded) = check::load(FILE, &"x".into(), text, Strictness::AsGoss) {
        run(&loaded.checks);
    }
    match check::load(FILE, &"x".into(), text, Strictness::Strict) {
        Ok(loaded) => run(&loaded.checks),
        Err(faults) => {
            assert_reasons(&faults);
            // A carriage return alone also ends a line in YAML.
            let lines = text.matches(['\n', '\r']).count() + 1;
            assert!(faults.iter().all(|fault| fault.line as usize <= lines + 1), "{faults:?}");
        }
    }
    true
}

fn load_and_run(text: &str) -> Result<(), Vec<Fault>> {
    let (header, rest) = check::header(FILE, text)?;
    check::applies(FILE, &header, "web", "worker", &CONTEXT)?;
    let rendered = check::render(FILE, &header, &rest, &CONTEXT)?;
    run(&check::load(FILE, &header.service, &rendered, Strictness::Strict)?.checks);
    Ok(())
}

fn run(checks: &[check::Check]) {
    let pure: Vec<check::Check> = checks.iter().filter(|check| check.kind == ResourceKind::Matching).cloned().collect();
    let options = CheckRunOptions { parallelism: 1, ..CheckRunOptions::with_defaults(Wall(0)) };
    for outcome in check::run_in_full(&pure, &options) {
        assert!(!outcome.result.message.contains("panicked"), "{}", outcome.result.message);
    }
}

/// Checks that a rejected file has a reason.
fn assert_reasons(faults: &[Fault]) {
    assert!(!faults.is_empty(), "rejected without a reason");
    assert!(faults.iter().all(|fault| fault.file == FILE && !fault.message.is_empty()), "{faults:?}");
}
