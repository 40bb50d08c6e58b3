//! Data directories of other versions of the program. A directory of an earlier version is opened
//! unchanged. A directory of a later format is rejected and left unchanged.
//! `tests/fixtures/data-format.sh` created the directories of earlier versions.

pub mod types;

use crate::lab::tool::run;
use crate::local::{Daemon, LONG, net, remoor, run_successfully, wait_until};
use remoor_host::disk::DATA_FORMAT;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unpacks a directory that the last program with `format` wrote, and changes the address of the
/// node to `at`.
pub fn unpack_data_dir(dir: &Path, format: u32, at: std::net::Ipv4Addr) -> PathBuf {
    let file = format!("{}/tests/fixtures/data-format-{format}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    run_successfully(Command::new("tar").arg("-C").arg(dir).args(["--no-same-owner", "-xzf", &file]));
    let home = dir.join("m1");
    edit(&home.join("node.json"), "advertise", at.to_string().into());
    home
}

fn edit(path: &Path, key: &str, value: Value) {
    let mut file: Value = serde_json::from_slice(&fs::read(path).expect("read")).expect("JSON");
    file[key] = value;
    fs::write(path, file.to_string()).expect("written");
}

#[test]
fn a_data_directory_of_every_former_format_opens_with_its_contents() {
    for format in 1..=DATA_FORMAT {
        let dir = tempfile::tempdir().expect("a folder");
        let home = unpack_data_dir(dir.path(), format, net()(1));
        assert!(!home.join("raft/life").exists(), "the program that wrote it did not count its starts");
        let manager = Daemon::start(&home);
        let status = wait_until("it leads", || {
            let out = manager.ask(&["status", "--json"]);
            (out.status.code() == Some(0)).then(|| serde_json::from_slice::<Value>(&out.stdout).expect("JSON"))
        });
        assert_eq!((&status["generation"], &status["managers"]), (&1.into(), &1.into()), "{status}");
        let node = &status["nodes"][0];
        assert_eq!((&node["name"], &node["manager"]), (&"m1".into(), &"leader".into()), "{node}");
        let members = manager.json("raft-members");
        assert!(members["last_applied"].as_u64() > Some(9) && members["term"].as_u64() > Some(2), "{members}");
        let history = manager.json("history").to_string();
        for decided in ["maintenance announced", "the worker token was rotated"] {
            assert!(history.contains(decided), "{decided}: {history}");
        }
        let out = manager.ask(&["pause", "m1"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let identity: Value =
            serde_json::from_slice(&fs::read(home.join("identity.json")).expect("read")).expect("JSON");
        assert_eq!(identity["version"], DATA_FORMAT);
        assert!(home.join("raft/life").exists());
    }
}

#[test]
fn a_data_directory_of_a_newer_format_is_rejected_and_left_unchanged() {
    let dir = tempfile::tempdir().expect("a folder");
    let home = unpack_data_dir(dir.path(), DATA_FORMAT, net()(1));
    edit(&home.join("identity.json"), "version", (DATA_FORMAT + 1).into());
    let files = || {
        let all = run_successfully(Command::new("find").arg(&home).args([
            "-type",
            "f",
            "!",
            "-name",
            "*lock",
            "-exec",
            "sha256sum",
            "{}",
            "+",
        ]));
        let mut lines: Vec<String> = String::from_utf8_lossy(&all.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = files();
    for verb in [&["agent", "--dir"][..], &["recover", "--force-new-cluster", "--yes", "--dir"]] {
        let out = run(remoor().args(verb).arg(&home), None, LONG).expect("it ends");
        let text = String::from_utf8_lossy(&out.stderr);
        let wanted = format!("has format {}, this program knows up to {DATA_FORMAT}", DATA_FORMAT + 1);
        assert!(out.code != 0 && text.contains(&wanted) && text.contains("install the newer program"), "{text}");
    }
    assert_eq!(files(), before);
}
