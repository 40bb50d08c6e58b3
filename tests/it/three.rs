//! Three managers on the loopback of this machine, as processes. A generation needs a majority. A
//! forwarded order keeps the name of the operator. A manager without a quorum reports its last
//! known state and marks it as old. A single manager reports an occupied port or a full disk. These
//! tests do not need real hosts; only the test with the small disk needs root.

use crate::local::{Daemon, LONG, net, one_manager, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use remoor_cluster::rpc::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// The answer to one order, with the times of the order and of the answer.
struct Answer {
    begun: Instant,
    ended: Instant,
    /// `done`, or the code of the error.
    code: String,
}

/// Sends orders to the socket, one after another, until `over` is set.
fn send_orders(socket: PathBuf, over: Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<Answer>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = Client::unix(&socket).with_timeout(LONG);
        let mut answers = Vec::new();
        while !over.load(Ordering::Acquire) {
            let (begun, order) = (Instant::now(), json!({"for_ms": 3_600_000}));
            let answer = runtime.block_on(client.post::<Value>("/v1/nodes/m1/maintenance", &order));
            let code = answer.map_or_else(|e| e.code().unwrap_or("no answer").to_owned(), |_| "done".to_owned());
            answers.push(Answer { begun, ended: Instant::now(), code });
            std::thread::sleep(Duration::from_millis(2));
        }
        answers
    })
}

/// A leader freezes, and later another one dies, while orders are given to a follower. Each order
/// ends soon after the election of the next leader. Without a majority the order is refused. The
/// advice does not name `recover`, because the majority was lost only a moment ago.
#[test]
fn an_order_through_a_follower_ends_soon_after_a_change_of_leader() {
    let mut three = Three::start();
    let frozen = three.leader(&[0, 1, 2]);
    let rest = [(frozen + 1) % 3, (frozen + 2) % 3];
    let leads = |three: &Three, at: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = Client::unix(three.folder(at).join("s")).with_timeout(LONG);
        let state = runtime.block_on(client.get::<Value>("/v1/raft/state"));
        state.is_ok_and(|state| state["as_of"]["stale"] == false)
    };
    let mut raw = std::os::unix::net::UnixStream::connect(three.folder(rest[0]).join("s")).expect("connected");
    raw.write_all(b"HEAD /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut head = String::new();
    raw.read_to_string(&mut head).expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "a HEAD is forwarded as a read: {head}");

    let over = Arc::new(AtomicBool::new(false));
    let orders: Vec<_> = (0..4).map(|_| send_orders(three.folder(rest[0]).join("s"), over.clone())).collect();
    std::thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_child(&three.daemons[frozen].child);
    let stopped = Instant::now();
    kill_process(pid, Signal::STOP).expect("stopped");
    let next = wait_until("another leads", || rest.into_iter().find(|at| leads(&three, *at)));
    let elected = Instant::now();
    wait_until("an order is done", || {
        (three.daemons[rest[0]].ask(&["maintenance", "m1", "--for", "1h"]).status.code() == Some(0)).then_some(())
    });
    over.store(true, Ordering::Release);
    let answers: Vec<Answer> = orders.into_iter().flat_map(|order| order.join().expect("no panic")).collect();
    kill_process(pid, Signal::CONT).expect("the process continues");
    let during: Vec<&Answer> = answers.iter().filter(|a| a.begun < elected && a.ended > stopped).collect();
    let late = |a: &&&Answer| a.ended.saturating_duration_since(elected);
    let last = during.iter().max_by_key(late).expect("an order was under way");
    let codes: BTreeSet<&str> = during.iter().map(|a| a.code.as_str()).collect();
    eprintln!(
        "FIGURES: the leader froze; another was elected after {} ms; {} orders were under way and ended within {} ms after \
         that: {codes:?}",
        (elected - stopped).as_millis(),
        during.len(),
        late(&last).as_millis()
    );
    assert!(late(&last) < Duration::from_secs(5), "{:?}", late(&last));
    let known = ["done", "refused", "outcome-unknown", "no-quorum", "retry"];
    assert!(codes.iter().all(|code| known.contains(code)), "{codes:?}");

    // The next leader dies. An order waits until another one leads.
    wait_until("the former leader follows", || {
        let raft = three.daemons[next].json("raft-members");
        let lags = raft["members"].as_array()?.iter().filter_map(|m| m["lag"].as_u64()).collect::<Vec<_>>();
        (lags.len() == 3 && lags.iter().all(|lag| *lag < 10)).then_some(())
    });
    let left = [rest[0], rest[1], frozen].into_iter().find(|at| *at != next).expect("a follower");
    three.daemons[next].kill();
    let begun = Instant::now();
    let out = three.daemons[left].ask(&["maintenance", "m1", "--for", "1h"]);
    eprintln!("FIGURES: an order after the death of the leader: {:?} after {:?}", out.status.code(), begun.elapsed());
    let waited = begun.elapsed() >= Duration::from_secs(3);
    assert!(out.status.code() == Some(0) || waited, "the order waits for the election: {out:?}");
    wait_until("an order is done", || {
        (three.daemons[left].ask(&["maintenance", "m1", "--for", "1h"]).status.code() == Some(0)).then_some(())
    });
    let last = (0..3).find(|at| ![next, left].contains(at)).expect("another one");
    three.daemons[last].kill();
    let out = wait_until("the order is refused", || {
        let out = three.daemons[left].ask(&["maintenance", "m1", "--for", "1h"]);
        String::from_utf8_lossy(&out.stderr).contains("no majority").then_some(out)
    });
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("nothing was changed") && !text.contains("recover"), "{text}");
    let text = String::from_utf8_lossy(&three.daemons[left].ask(&["status"]).stderr).into_owned();
    assert!(text.contains("STALE: no quorum") && !text.contains("recover"), "{text}");
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
    // If the disk is full, an unfinished copy of the program is removed, which makes space again.
    // So the copy must be complete before.
    wait_until("the daemon has copied its program", || {
        let copies = fs::read_dir(home.join("bin")).ok()?.flatten();
        copies.into_iter().any(|copy| copy.file_name().to_string_lossy().starts_with("remoor-")).then_some(())
    });

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

/// A worker starts while its disk is full, and reports the full disk. It saves its record as soon
/// as there is space.
#[test]
fn an_agent_starts_on_a_full_disk_and_says_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: A FULL DISK: only root can make a small one");
        return;
    }
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let disk = Disk::mount(&dir.path().join("disk"));
    let home = disk.0.join("w1");
    let manager = one_manager(dir.path(), host(1));
    let mut join = remoor();
    join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &host(2).to_string(), "--dir"]);
    run_successfully(join.arg(&home).arg("--token-file").arg(dir.path().join("worker")));
    let mut worker = Daemon::start(&home);
    wait_until("the worker has contacted its manager", || {
        (worker.json("status")["manager"]["name"] == "m1").then_some(())
    });
    worker.kill();
    let ballast = disk.0.join("ballast");
    let mut file = fs::File::create(&ballast).expect("made");
    for size in [65_536, 4_096, 1] {
        while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
    }
    let log = fs::File::create(dir.path().join("log")).expect("a log");
    let mut agent = remoor();
    agent.args(["agent", "--dir"]).arg(&home).arg("--socket").arg(home.join("s"));
    let child = agent.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log).spawn();
    let worker = Daemon::adopt(&home, child.expect("a daemon"));
    let why = wait_until("the worker reports the full disk", || {
        worker.json("status")["node"]["unsaved"].as_str().map(str::to_owned)
    });
    assert!(why.contains("No space left on device"), "{why}");
    let text = String::from_utf8_lossy(&worker.ask(&["status"]).stdout).into_owned();
    assert!(text.contains("the agent's record is not saved"), "{text}");
    let text = fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(text.contains("the agent starts without it"), "{text}");
    wait_until("the manager sees the worker", || {
        let status = manager.json("status");
        let node = status["nodes"].as_array()?.iter().find(|n| n["name"] == "w1").cloned()?;
        (node["presence"] == "alive").then_some(())
    });
    drop(file);
    fs::remove_file(&ballast).expect("removed");
    wait_until("the record is saved", || {
        let status = worker.json("status");
        (status["kind"] == "agent" && status["node"]["unsaved"].is_null()).then_some(())
    });
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
