//! Tests that goss accepts remoor's check files, including the `remoor:` block. The test is skipped
//! if goss is not on the PATH. The module `types` compares the answers of goss and remoor.

use super::*;
use std::fs;
use std::process::{Command, Output};

/// Runs goss; None if it is not installed.
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
fn goss_accepts_our_files() {
    let Some(rendered) = goss(TEXT, &["render"]) else {
        eprintln!("SKIPPED: GOSS IS NOT ON THE PATH, SO IT WAS NOT CHECKED WHETHER IT ACCEPTS THESE FILES");
        return;
    };
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    assert!(!checks(TEXT).is_empty());
}
