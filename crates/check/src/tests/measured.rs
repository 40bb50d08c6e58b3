//! Tests the checks of measured values: file systems, numbers and metrics, and their reactions to a
//! failure. The answers about a file system are compared with those of `df`.

use super::load::faults;
use super::*;
use expect_test::expect;
use remoor_model::OnFail;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::thread;

/// What `df` prints in this column for the file system of `path`.
fn df(column: &str, path: &str) -> String {
    let output = Command::new("df").args([&format!("--output={column}"), "-B1", path]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().nth(1).unwrap().trim().to_owned()
}

#[test]
fn the_file_system_of_a_path_is_that_of_df() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep");
    fs::create_dir(&path).unwrap();
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    for path in [path.display().to_string(), link.display().to_string(), "/proc/self".to_owned()] {
        let text = format!(
            "filesystem: {{'{path}': {{mount-point: '{}', filesystem: {}}}}}",
            df("target", &path),
            df("fstype", &path)
        );
        assert_eq!(answers(&text), ["mount-point Pass", "filesystem Pass"], "{text}");
    }
    // Other programs use the file system too, so the numbers may differ a little.
    let free: u64 = df("avail", "/").parse().unwrap();
    let text = format!("free-bytes: {{and: [{{gt: {}}}, {{lt: {}}}]}}", free / 2, free * 2);
    assert_eq!(
        answers(&format!("filesystem: {{/etc: {{usage: {{le: 100}}, {text}}}}}")),
        ["usage Pass", "free-bytes Pass"]
    );
    let inodes = df("ipcent", "/").trim_end_matches('%').parse::<u64>().unwrap_or(0);
    let near = format!("{{and: [{{ge: {}}}, {{le: {}}}]}}", inodes.saturating_sub(2), inodes + 2);
    assert_eq!(answers(&format!("filesystem: {{/: {{inode-usage: {near}}}}}")), ["inode-usage Pass"]);
}

#[test]
fn a_path_without_a_file_system_is_a_failure() {
    let none = "filesystem: {/no/such/path: {usage: {lt: 90}, free-bytes: {gt: 1GiB}}}";
    assert_eq!(answers(none), ["usage Fail there is no such path", "free-bytes Fail there is no such path"]);
    assert_eq!(answers("filesystem: {/proc: {usage: {lt: 90}}}"), ["usage Fail this file system has no size"]);
    assert_eq!(answers("filesystem: {/proc: {inode-usage: 0}}"), ["inode-usage Pass"]);
}

#[test]
fn numbers_of_a_command() {
    let text = |own: &str| {
        format!(
            "command: {{a: {{exec: 'echo threads: 12; echo load 0.5', exit-status: 0, meta: {{remoor: {{{own}}}}}}}}}"
        )
    };
    assert_eq!(
        answers(&text(r"numbers: {'threads: (\d+)': {lt: 20}, 'load (\S+)': {gt: 1}, 'none (\d)': 1}")),
        [
            "exit-status Pass",
            r"threads: (\d+) Pass",
            r"load (\S+) Fail",
            r"none (\d) Fail nothing matches the expression"
        ]
    );
    let found = results(&text(r"numbers: {'load (\S+)': {gt: 1}}"));
    assert_eq!((found[1].expected.as_str(), found[1].found.as_str()), ("gt 1", "0.5"));
    let hangs =
        r"command: {a: {exec: sleep 86000, exit-status: 0, timeout: 1, meta: {remoor: {numbers: {'(\d)': 1}}}}}";
    assert_eq!(answers(hangs), ["exit-status Unknown no answer within 1 ms", r"(\d) Unknown no answer within 1 ms"]);
}

#[test]
fn metrics_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.prom");
    fs::write(&file, "# TYPE size gauge\nsize{disk=\"a\"} 5e9\nsize{disk=\"b\"} 7\n").unwrap();
    let text = |own: &str| format!("file: {{'{}': {{exists: true, meta: {{remoor: {{{own}}}}}}}}}", file.display());
    let own = r#"metrics: {'size{disk="a"}': {ge: 5000000000}, 'size{disk="b"}': 8, size: 1}"#;
    let wanted = [
        "exists Pass",
        r#"size{disk="a"} Pass"#,
        r#"size{disk="b"} Fail"#,
        "size Unknown 2 metrics match; name more labels",
    ];
    assert_eq!(answers(&text(own)), wanted);
    // The number is shown, although results have no other content of a file.
    assert_eq!(results(&text(own))[2].found, "7");
    // Unless only the owner may read the file.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let found = results(&text(own));
    assert!(found[2].found != "7" && found[2].expected != "8", "{:?}", found[2]);
    fs::remove_file(&file).unwrap();
    assert_eq!(answers(&text("metrics: {size: 1}")), ["exists Fail", "size Skip"]);
}

#[test]
fn metrics_of_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer).unwrap();
        let body = "requests_total{code=\"500\"} 3\nrequests_total{code=\"200\"} 90\nready 1\n";
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).unwrap();
    });
    let own = r#"metrics: {'requests_total{code="500"}': {lt: 3}, ready: 1}, numbers: {'(?m)^ready (\d)': 1}"#;
    assert_eq!(
        answers(&format!("http: {{'http://127.0.0.1:{port}/metrics': {{status: 200, meta: {{remoor: {{{own}}}}}}}}}")),
        ["status Pass", r"(?m)^ready (\d) Pass", r#"requests_total{code="500"} Fail"#, "ready Pass"]
    );
    server.join().unwrap();
}

#[test]
fn measured_values_alert_by_default() {
    let mut told = String::new();
    for text in [
        "filesystem: {/: {usage: {lt: 90}}}",
        "filesystem: {/: {usage: {lt: 90}, meta: {remoor: {on-fail: resetup}}}}",
        "journal: {nginx: {count: 0}}",
        "service: {a.timer: {running: true}}",
        "service: {a.timer: {running: true, meta: {remoor: {last-run-age: {lt: 26h}}}}}",
        "service: {a.timer: {running: true, meta: {remoor: {last-result: success}}}}",
        "service: {a: {running: true, meta: {remoor: {properties: {NRestarts: 0}}}}}",
        "command: {a: {exit-status: 0, meta: {remoor: {numbers: {'(\\d)': 1}}}}}",
        "http: {'http://a': {status: 200, meta: {remoor: {metrics: {up: 1}}}}}",
        "file: {/a: {exists: true, meta: {remoor: {metrics: {up: 1}}}}}",
        "process: {a: {running: true, meta: {remoor: {count: {ge: 2}}}}}",
        "mount: {/: {exists: true, usage: {lt: 90}}}",
    ] {
        let check = &checks(text)[0];
        told += &format!("{:?} {text}\n", check.meta.on_fail);
        assert!(check.meta.on_fail != OnFail::None);
    }
    expect![[r#"
        Alert filesystem: {/: {usage: {lt: 90}}}
        Resetup filesystem: {/: {usage: {lt: 90}, meta: {remoor: {on-fail: resetup}}}}
        Alert journal: {nginx: {count: 0}}
        Resetup service: {a.timer: {running: true}}
        Alert service: {a.timer: {running: true, meta: {remoor: {last-run-age: {lt: 26h}}}}}
        Alert service: {a.timer: {running: true, meta: {remoor: {last-result: success}}}}
        Alert service: {a: {running: true, meta: {remoor: {properties: {NRestarts: 0}}}}}
        Alert command: {a: {exit-status: 0, meta: {remoor: {numbers: {'(\d)': 1}}}}}
        Alert http: {'http://a': {status: 200, meta: {remoor: {metrics: {up: 1}}}}}
        Alert file: {/a: {exists: true, meta: {remoor: {metrics: {up: 1}}}}}
        Resetup process: {a: {running: true, meta: {remoor: {count: {ge: 2}}}}}
        Alert mount: {/: {exists: true, usage: {lt: 90}}}
    "#]]
    .assert_eq(&told);
}

#[test]
fn faults_of_measured_values() {
    let mut told = String::new();
    for text in [
        "filesystem: {var: {usage: {lt: 90}}}",
        "filesystem: {/var: {}}",
        "filesystem: {/var: {free-bytes: <5GB}}",
        "filesystem: {/var: {free-bytes: {gt: 5GB}}}",
        "filesystem: {/var: {inodes: 5}}",
        "journal: {a b: {count: 0}}",
        "journal: {a: {since: 1h}}",
        "journal: {a: {count: 0, since: yesterday, priority: error}}",
        "journal: {a: {count: 0, priority: error}}",
        "journal: {a: {count: 0, pattern: '('}}",
        "service: {backup: {meta: {remoor: {last-run-age: {lt: 26h}}}}}",
        "service: {a.timer: {meta: {remoor: {last-run-age: <26h}}}}",
        "service: {a.timer: {meta: {remoor: {next-run-in: {lt: 1y}}}}}",
        "service: {a: {meta: {remoor: {properties: {}}}}}",
        "service: {a: {meta: {remoor: {properties: {n-restarts: 0}}}}}",
        "port: {tcp:80: {listening: true, meta: {remoor: {metrics: {up: 1}}}}}",
        "command: {a: {exit-status: 0, meta: {remoor: {numbers: ['(\\d)']}}}}",
        "command: {a: {exit-status: 0, meta: {remoor: {numbers: {'\\d+': {lt: 5}}}}}}",
        "command: {a: {exit-status: 0, meta: {remoor: {metrics: {'up{job=a}': 1}}}}}",
        "any-of: {a: [port:tcp:80]}",
    ] {
        told += &faults(text);
    }
    expect![[r#"
        f.yml:1:14: the path `var` is not absolute
        f.yml:1:14: `filesystem:/var` asserts nothing
        f.yml:1:33: `<5GB` is not a number of bytes
          hint: write it as 500MiB or 5GiB
        f.yml:1:38: `5GB` is not a number of bytes
          hint: write it as 500MiB or 5GiB
        f.yml:1:21: unknown attribute `inodes` of filesystem
          hint: known: usage, free-bytes, inode-usage, mount-point, filesystem, timeout, title, meta, skip, path
        f.yml:1:11: `a b` is not a valid unit name; write `unit: "*"` for the whole journal
        f.yml:1:11: `journal:a` asserts nothing
        f.yml:1:11: `since: yesterday` is not a time; write it as 90s, 5m, 26h, 2d or 1w
        f.yml:1:11: unknown priority `error`; known: emerg, alert, crit, err, warning, notice, info, debug
        f.yml:1:11: `pattern` is not a valid regular expression: error: unclosed group
        f.yml:1:11: `last-run-age` is about a timer; write backup.timer
        f.yml:1:51: `<26h` is not a time
          hint: write {lt: 26h}
        f.yml:1:55: `1y` is not a time
          hint: write it as 90s, 5m, 26h, 2d or 1w
        f.yml:1:43: an empty map for `properties` asserts nothing
        f.yml:1:44: `n-restarts` is not a property of a unit; `systemctl show UNIT` lists them
        f.yml:1:50: unknown key `metrics`
          hint: it is available only for `command`, `file`, `http`
        f.yml:1:56: `numbers` is a list, not a map with an entry for each assertion
        f.yml:1:57: `\d+` has 0 groups; it needs one group, around the number: 'threads: (\d+)'; `(?:...)` does not count
        f.yml:1:57: `up{job=a}` is not a metric; write NAME or NAME{LABEL="VALUE"}
        f.yml:1:1: `any-of` is not a resource type of goss
          hint: put it in the `remoor:` block
    "#]].assert_eq(&told);
}

#[test]
fn types_of_remoor_may_be_templates_outside_of_the_block() {
    let text = "remoor:\n  service: db\n  vars: {dir: /}\nfilesystem:\n  {{ vars.dir }}: {usage: {le: 100}}\n";
    let (head, goss) = header("db.yml", text).unwrap();
    let context = serde_json::json!({"node": {}, "vars": head.vars, "peers": [], "expected": {}});
    let rendered = render("db.yml", &head, &goss, context.as_object().unwrap()).unwrap();
    let labels: Vec<String> = parse("db.yml", &"db".into(), &rendered).unwrap().iter().map(Check::label).collect();
    assert_eq!(labels, ["filesystem:/"]);
    // goss ignores such a type, so a plain goss file may have it for another purpose.
    let loaded = super::super::load("g.yml", &"g".into(), "filesystem: [anything]\n", Strictness::AsGoss).unwrap();
    assert_eq!((loaded.checks.len(), loaded.warnings.len()), (0, 1));
}

/// The part of the documentation about measured values, and the example in it.
fn document() -> (&'static str, &'static str) {
    let document = include_str!("../../../../docs/reference/checks.md");
    let (_, section) = document.split_once("## Measured values").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    (section, section.split("```").nth(1).unwrap().trim_start_matches("yaml\n"))
}

#[test]
fn the_example_in_the_documents_is_taken() {
    let labels: Vec<String> = checks(document().1).iter().map(Check::label).collect();
    let wanted = [
        "filesystem:/var/lib/mysql",
        "journal:nginx",
        "journal:no-oom",
        "service:backup.timer",
        "service:nginx",
        "http:http://127.0.0.1:9100/metrics",
        "command:queue",
    ];
    assert_eq!(labels, wanted);
    assert_eq!(super::super::warnings("f.yml", &"s".into(), document().1), []);
}

#[test]
fn the_documents_name_each_attribute() {
    use crate::spec::{EXTENSION_SPECS, ResourceKind, SPECS};
    let (section, _) = document();
    for spec in
        EXTENSION_SPECS.iter().filter(|spec| matches!(spec.kind, ResourceKind::Filesystem | ResourceKind::Journal))
    {
        for (name, _) in spec.attributes {
            assert!(section.contains(&format!("`{name}`")), "{} {name}", spec.name);
        }
    }
    let document = include_str!("../../../../docs/reference/checks.md");
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
    for (name, _) in SPECS.iter().flat_map(|spec| spec.extensions()) {
        assert!(
            rows.iter().any(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{name}`")))),
            "{name}"
        );
    }
}
