//! What remoor takes is a goss file, and the types that both know give the same results; where goss is on the PATH.

use super::*;
use crate::model::CheckState;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

/// None: there is no goss.
fn goss(text: &str, arguments: &[&str]) -> Option<Output> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("goss.yaml");
    fs::write(&file, text).unwrap();
    Command::new("goss").arg("-g").arg(&file).args(arguments).output().ok()
}

const TEXT: &str = r#"remoor:
  service: s
  cert: {/etc/x.pem: {not-after: {gt: 30d}}, "localhost:443": {subject: x}}
  any-of: {g: ["mount:/", "mount:/no/such"]}
  all-of: {h: {checks: ["any-of:g"], meta: {remoor: {severity: warning}}}}
mount:
  /: {exists: true, opts: [rw], usage: {le: 100}, filesystem: {not: proc}}
  /proc: {exists: true, source: proc, filesystem: proc, vfs-opts: [rw]}
  /dev: {exists: true, filesystem: nothing, opts: [no-such-option]}
  /no/such: {exists: true, opts: [rw]}
kernel-param:
  kernel.ostype: {value: Linux}
  net/ipv4/ip_default_ttl: {value: {gt: 1}}
  kernel.pid_max: {value: "1"}
  no.such: {value: "1"}
interface:
  lo: {exists: true, addrs: [127.0.0.1/8], mtu: {gt: 1000}}
  wrong: {name: lo, exists: true, addrs: [192.0.2.1/8], mtu: 1}
  no-such0: {exists: false, mtu: 5}
  no-such1: {exists: true}
dns:
  localhost: {resolvable: true, addrs: [127.0.0.1]}
  wrong: {resolve: localhost, resolvable: true, addrs: [192.0.2.1]}
  other: {resolve: localhost, resolvable: false, addrs: [x]}
addr:
  udp://127.0.0.1:1: {reachable: true}
  tcp://127.0.0.1:1: {reachable: true, local-address: 127.0.0.2}
  127.0.0.1:1: {reachable: false}
package:
  no-such-package: {installed: true, versions: ["1"], meta: {remoor: {deb-constraint: ">= 1"}}}
  none: {name: no-such-package, installed: false, versions: ["1"]}
file:
  /etc/passwd: {exists: true, md5: d41d8cd98f00b204e9800998ecf8427e}
  /dev/null: {exists: true, filetype: character-device}
process:
  no-such-process: {running: false, meta: {remoor: {user: root, args: "-x", count: 0}}}
"#;

#[test]
fn goss_takes_every_file_of_ours() {
    let Some(rendered) = goss(TEXT, &["render"]) else { return };
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    assert!(!checks(TEXT).is_empty());
}

/// What goss 0.4.9 says of `TEXT` (`goss -g FILE validate -f json`), recorded on Debian 12.
const TOLD: &str = "\
addr:127.0.0.1:1 reachable Pass
addr:tcp://127.0.0.1:1 reachable Fail
addr:udp://127.0.0.1:1 reachable Pass
dns:localhost addrs Pass
dns:localhost resolvable Pass
dns:other addrs Skip
dns:other resolvable Fail
dns:wrong addrs Fail
dns:wrong resolvable Pass
file:/dev/null exists Pass
file:/dev/null filetype Pass
file:/etc/passwd exists Pass
file:/etc/passwd md5 Fail
interface:lo addrs Pass
interface:lo exists Pass
interface:lo mtu Pass
interface:no-such0 exists Pass
interface:no-such0 mtu Skip
interface:no-such1 exists Fail
interface:wrong addrs Fail
interface:wrong exists Pass
interface:wrong mtu Fail
kernel-param:kernel.ostype value Pass
kernel-param:kernel.pid_max value Fail
kernel-param:net/ipv4/ip_default_ttl value Pass
kernel-param:no.such value Fail
mount:/ exists Pass
mount:/ filesystem Pass
mount:/ opts Pass
mount:/ usage Pass
mount:/dev exists Pass
mount:/dev filesystem Fail
mount:/dev opts Fail
mount:/no/such exists Fail
mount:/no/such opts Skip
mount:/proc exists Pass
mount:/proc filesystem Pass
mount:/proc source Pass
mount:/proc vfs-opts Pass
package:no-such-package installed Fail
package:no-such-package versions Skip
package:none installed Pass
package:none versions Skip
process:no-such-process running Pass
";

/// Of each assertion that both know.
fn ours() -> BTreeMap<String, CheckState> {
    let own = |r: &CheckResult| r.check.contains("-of:") || r.check.starts_with("cert:");
    let beyond = |r: &CheckResult| matches!(&*r.property, "deb-constraint" | "count");
    let known = results(TEXT).into_iter().filter(|r| !own(r) && !beyond(r));
    known.map(|r| (format!("{} {}", r.check, r.property), r.state)).collect()
}

fn listed(states: &BTreeMap<String, CheckState>) -> String {
    states.iter().map(|(what, state)| format!("{what} {state:?}\n")).collect()
}

#[test]
fn both_find_the_same() {
    assert_eq!(listed(&ours()), TOLD);
}

#[test]
fn what_was_recorded_is_what_goss_says() {
    let Some(output) = goss(TEXT, &["validate", "-f", "json"]) else { return };
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let state = |n: &Value| match n.as_u64() {
        Some(0) => CheckState::Pass,
        Some(1) => CheckState::Fail,
        _ => CheckState::Skip,
    };
    let line = |r: &Value| {
        let kind = r["resource-type"].as_str().unwrap().to_lowercase().replace("kernelparam", "kernel-param");
        // Of a check with a name of its own goss tells both.
        let id = r["resource-id"].as_str().unwrap().split(": ").next().unwrap();
        let property = r["property"].as_str().unwrap().to_lowercase().replace("version", "versions");
        (format!("{kind}:{id} {property}"), state(&r["result"]))
    };
    let theirs: BTreeMap<String, CheckState> = told["results"].as_array().unwrap().iter().map(line).collect();
    assert_eq!(listed(&theirs), TOLD);
}
