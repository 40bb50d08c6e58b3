//! Three managers on the loopback of this machine, as processes. A generation needs a majority. A
//! forwarded order keeps the name of the operator. A manager without a quorum reports its last
//! known state and marks it as old. A single manager reports an occupied port or a full disk. These
//! tests do not need real hosts; only the test with the small disk needs root.

use crate::local::{Daemon, net, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

struct Three {
    dir: tempfile::TempDir,
    daemons: [Daemon; 3],
}

impl Three {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let daemons = three_managers(dir.path(), net());
        let three = Self { dir, daemons };
        wait_until("three voters", || {
            let status = three.daemons[0].json("status");
            let votes =
                |n: &&Value| matches!(n["manager"].as_str(), Some("leader" | "voter")) && n["presence"] == "alive";
            (status["nodes"].as_array()?.iter().filter(votes).count() == 3).then_some(())
        });
        three
    }

    fn folder(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("m{}", at + 1))
    }

    /// The manager among `living` that reports itself as the leader.
    fn leader(&self, living: &[usize]) -> usize {
        wait_until("a leader", || {
            living.iter().copied().find(|at| {
                let as_of = self.daemons[*at].json("status")["as_of"].clone();
                as_of["stale"] == false && as_of["leader"] == as_of["by"] && as_of["by"] == format!("m{}", at + 1)
            })
        })
    }

    /// A fleet in which m2 has the variable `word`.
    fn fleet(&self, word: &str) -> PathBuf {
        let dir = self.dir.path().join("fleet");
        fs::create_dir_all(&dir).expect("made");
        fs::write(dir.join("hosts"), format!("[web]\nm1\nm2 word={word}\nm3\n")).expect("written");
        fs::write(dir.join("remoor.yml"), "version: 1\ninventory: hosts\ngroups:\n  web: {}\n").expect("written");
        dir
    }

    fn apply(&self, at: usize, word: &str) -> (Option<i32>, String) {
        let out = self.daemons[at].ask(&["apply", self.fleet(word).to_str().expect("UTF-8")]);
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

fn blobs(dir: &Path) -> usize {
    let fans = fs::read_dir(dir.join("blobs")).map(|fans| fans.flatten().collect::<Vec<_>>()).unwrap_or_default();
    fans.iter().map(|fan| fs::read_dir(fan.path()).map_or(0, Iterator::count)).sum()
}

#[test]
fn a_majority_holds_each_generation_and_an_isolated_manager_reports_it() {
    let mut three = Three::start();
    let leader = three.leader(&[0, 1, 2]);
    let [first, second] = [(leader + 1) % 3, (leader + 2) % 3];
    assert_eq!(three.apply(leader, "one").0, Some(0));

    // An order that a follower forwards keeps the operator's name.
    let out = three.daemons[first].ask(&["maintenance", "m1", "--for", "1h"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let history = three.daemons[leader].json("history").to_string();
    assert!(history.contains(&format!("@m{}", first + 1)) && !history.contains("unknown user on"), "{history}");

    // A follower forwards the query for Raft's members to the leader, because only the leader knows
    // the lag of each member.
    let raft = three.daemons[first].json("raft-members");
    let is = |raft: &Value| -> Vec<String> {
        raft["members"].as_array().into_iter().flatten().map(|m| format!("{} {}", m["node"], m["is"])).collect()
    };
    let named = |at: usize, is: &str| format!("\"m{}\" \"{is}\"", at + 1);
    let wanted: BTreeSet<String> = [named(leader, "leader"), named(first, "voter"), named(second, "voter")].into();
    assert_eq!(is(&raft).into_iter().collect::<BTreeSet<_>>(), wanted, "{raft}");
    assert_eq!(
        (&raft["joint"], &raft["as_of"]["stale"], &raft["warnings"]),
        (&false.into(), &false.into(), &json!([]))
    );
    assert!(raft["members"].as_array().into_iter().flatten().all(|m| m["lag"].is_u64()), "{raft}");

    // One of three managers is down. A generation can still be applied.
    three.daemons[second].kill();
    wait_until("an apply with two of three", || (three.apply(leader, "two").0 == Some(0)).then_some(()));
    let generation = |three: &Three, at: usize| three.daemons[at].json("status")["generation"].as_u64();
    assert_eq!(generation(&three, leader), Some(2));

    // The leader and another manager are down. Queries still work and report the age of the data.
    // Orders are rejected and change nothing.
    three.daemons[leader].kill();
    let left = first;
    let stale = wait_until("the remaining manager reports that it has no quorum", || {
        let out = three.daemons[left].ask(&["status", "--json"]);
        let view: Value = serde_json::from_slice(&out.stdout).ok()?;
        (view["as_of"]["stale"] == true && view["as_of"]["age_ms"].as_u64() >= Some(1_000)).then_some((out, view))
    });
    assert_eq!(stale.0.status.code(), Some(3), "{stale:?}");
    assert_eq!((&stale.1["generation"], &stale.1["as_of"]["by"]), (&2.into(), &format!("m{}", left + 1).into()));
    assert_ne!(stale.1["managers_up"], 0, "who answers is up: {}", stale.1);
    assert!(stale.1["warnings"].to_string().contains("2 of 3 are needed"), "{}", stale.1);
    let out = three.daemons[left].ask(&["raft-members"]);
    let (listed, text) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!((out.status.code(), listed.matches(":7947").count()), (Some(3), 3), "{listed}{text}");
    assert!(text.contains(&format!("STALE: no quorum; this is what m{} last knew", left + 1)), "{text}");
    let had = blobs(&three.folder(left));
    wait_until("a rejection", || {
        let (code, text) = three.apply(left, "three");
        assert_eq!(code, Some(3), "{text}");
        text.contains("nothing was changed").then_some(())
    });
    assert_eq!(blobs(&three.folder(left)), had, "what was refused is not kept");
    let out = three.daemons[left].ask(&["demote", &format!("m{}", second + 1)]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("nothing was changed"), "{out:?}");

    // With two of three managers there is a majority again. The second generation is valid under
    // any leader, and every leader can read it.
    three.daemons[second] = Daemon::start(&three.folder(second));
    let leads = three.leader(&[left, second]);
    assert_eq!(generation(&three, leads), Some(2));
    wait_until("an apply of the current generation", || {
        let (code, text) = three.apply(leads, "two");
        (code == Some(0)).then_some(()).or_else(|| (code == Some(2)).then(|| panic!("{text}")))
    });
    let out = three.daemons[leads].ask(&["inventory", "--host", "m2"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("\"two\""), "{out:?}");
}

#[test]
fn an_occupied_port_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = net()(1);
    let mut init = remoor();
    init.args(["init", "--name", "m1", "--advertise", &at.to_string(), "--dir"]).arg(dir.path().join("m1"));
    run_successfully(&mut init);
    let taken = std::net::TcpListener::bind((at, 7947)).expect("the port is free");
    let mut agent = remoor();
    agent.args(["agent", "--dir"]).arg(dir.path().join("m1")).arg("--socket").arg(dir.path().join("s"));
    let out = agent.bounded_output();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains(&format!("{at}:7947 can't be listened on")), "{text}");
    drop(taken);
    let again = Daemon::start(&dir.path().join("m1"));
    wait_until("the manager leads, with nothing lost", || {
        (again.ask(&["status"]).status.code() == Some(0)).then_some(())
    });
}

/// A manager has its own disk, which becomes full. An order that can't be stored is rejected with
/// the reason. After space was freed, orders work again.
#[test]
fn a_full_disk_is_reported_and_nothing_is_lost() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: A FULL DISK: only root can make a small one");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let disk = Disk::mount(&dir.path().join("disk"));
    let at = net()(1);
    let home = disk.0.join("m1");
    let mut init = remoor();
    init.args(["init", "--name", "m1", "--advertise", &at.to_string(), "--dir"]).arg(&home);
    run_successfully(&mut init);
    let daemon = Daemon::start(&home);
    wait_until("the manager leads", || (daemon.ask(&["status"]).status.code() == Some(0)).then_some(()));
    let fleet = dir.path().join("fleet");
    fs::create_dir(&fleet).expect("made");
    fs::write(fleet.join("hosts"), format!("[web]\nm1 word={}\n", "x".repeat(200_000))).expect("written");
    fs::write(fleet.join("remoor.yml"), "version: 1\ninventory: hosts\ngroups:\n  web: {}\n").expect("written");
    let apply = || daemon.ask(&["apply", fleet.to_str().expect("UTF-8")]);

    let ballast = disk.0.join("ballast");
    let mut file = fs::File::create(&ballast).expect("made");
    while std::io::Write::write_all(&mut file, &[0; 65536]).is_ok() {}
    let out = apply();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("No space left on device"), "{text}");
    drop(file);
    fs::remove_file(&ballast).expect("removed");
    wait_until("an apply after there is space", || (apply().status.code() == Some(0)).then_some(()));
    assert_eq!(daemon.json("status")["generation"], 1);
}

/// A small file system, with space for a node's copy of the program. It is unmounted when the value
/// is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Self {
        fs::create_dir(at).expect("made");
        run_successfully(
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=400m", "remoor-test"]).arg(at),
        );
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The unmount is lazy, because a killed daemon may use the disk for a moment.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
