//! Two daemons on the loopback of this machine, as processes. The tests check the answers of a
//! worker's socket, while its manager is alive and after the manager was killed; and the report of
//! the worker's agent in the manager's answers. They need neither real hosts nor root.

use crate::time_limit::BoundedCommand;
use remoor_host::disk::{CLOSED, FENCE};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

pub const LONG: Duration = Duration::from_secs(300);
/// The program of the version under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_remoor");

pub struct Daemon {
    dir: PathBuf,
    pub child: Child,
}

impl Daemon {
    pub fn start(dir: &Path) -> Self {
        Self::start_program(Path::new(PROGRAM), dir)
    }

    /// Starts the daemon with `program`, which may be of another version.
    pub fn start_program(program: &Path, dir: &Path) -> Self {
        Self::start_command(program_command(program), dir)
    }

    /// Starts the daemon with `command`, which names the program and may set its environment.
    pub fn start_command(mut command: Command, dir: &Path) -> Self {
        let log = fs::File::create(dir.join("log")).expect("a log");
        command.args(["agent", "--dir"]).arg(dir).arg("--socket").arg(dir.join("s"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("a daemon");
        Self { dir: dir.to_owned(), child }
    }

    /// Takes `child`, a daemon with its log in `dir`. The daemon ends when the value is dropped.
    pub fn adopt(dir: &Path, child: Child) -> Self {
        Self { dir: dir.to_owned(), child }
    }

    pub fn kill(&mut self) {
        // The kill fails if the daemon has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a command to the socket of this daemon.
    pub fn ask(&self, args: &[&str]) -> Output {
        remoor().args(args).arg("--socket").arg(self.dir.join("s")).bounded_output()
    }

    pub fn json(&self, verb: &str) -> Value {
        serde_json::from_slice(&self.ask(&[verb, "--json"]).stdout).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            eprintln!("{}:\n{log}", self.dir.display());
        }
    }
}

pub fn remoor() -> Command {
    program_command(Path::new(PROGRAM))
}

/// The command `program` without the environment variables that remoor reads.
pub fn program_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["REMOOR_SOCKET", "REMOOR_MANAGER", "REMOOR_CREDENTIALS", "REMOOR_DIR", "REMOOR_TOKEN"] {
        command.env_remove(name);
    }
    command
}

pub fn run_successfully(command: &mut Command) -> Output {
    let out = command.bounded_output();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Addresses for one test; all of 127/8 is local. Each call makes a separate network. The process
/// id separates the networks of two test runs.
pub fn net() -> impl Fn(u8) -> Ipv4Addr + Copy {
    static NEXT: AtomicU8 = AtomicU8::new(100);
    let (net, run) = (NEXT.fetch_add(1, Ordering::Relaxed), (std::process::id() % 250) as u8 + 1);
    move |last| Ipv4Addr::new(127, net, run, last)
}

/// A cluster of one manager, m1, in the folder `m1` of `dir`. The tokens are in the files `manager`
/// and `worker` of `dir`.
pub fn one_manager(dir: &Path, at: Ipv4Addr) -> Daemon {
    one_manager_of(Path::new(PROGRAM), dir, at)
}

fn one_manager_of(program: &Path, dir: &Path, at: Ipv4Addr) -> Daemon {
    let home = dir.join("m1");
    let mut init = program_command(program);
    init.args(["init", "--json", "--name", "m1", "--advertise", &at.to_string(), "--dir"]).arg(&home);
    let output: Value = serde_json::from_slice(&run_successfully(&mut init).stdout).expect("JSON");
    for role in ["manager", "worker"] {
        let token = output[format!("{role}_token")].as_str().expect("a token");
        fs::write(dir.join(role), token).expect("written");
    }
    let manager = Daemon::start_program(program, &home);
    wait_until("the manager leads", || (manager.ask(&["status"]).status.code() == Some(0)).then_some(()));
    manager
}

/// Writes a fleet of two files into a subfolder of `dir` and applies it.
pub fn apply_small(manager: &Daemon, dir: &Path, config: &str, inventory: &str) {
    let fleet = dir.join("fleet");
    fs::create_dir_all(&fleet).expect("made");
    for (name, text) in [("remoor.yml", config), ("inventory.yml", inventory)] {
        fs::write(fleet.join(name), text).expect("written");
    }
    let out = manager.ask(&["apply", fleet.to_str().expect("UTF-8")]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Three managers m1, m2 and m3 at the first three addresses of `host`. Each has the folder of its
/// name in `dir`. The cluster's tokens are in the files `manager` and `worker` of `dir`.
pub fn three_managers(dir: &Path, host: impl Fn(u8) -> Ipv4Addr) -> [Daemon; 3] {
    three_managers_of(Path::new(PROGRAM), dir, host)
}

/// Like [`three_managers`], but `program` creates and runs all of them. The program may be of
/// another version.
pub fn three_managers_of(program: &Path, dir: &Path, host: impl Fn(u8) -> Ipv4Addr) -> [Daemon; 3] {
    let first = one_manager_of(program, dir, host(1));
    let joined = |name: &str, last: u8| {
        let (mut join, at) = (program_command(program), host(last).to_string());
        join.args(["join", &format!("{}:7947", host(1)), "--manager", "--name", name, "--advertise", &at, "--dir"]);
        run_successfully(join.arg(dir.join(name)).arg("--token-file").arg(dir.join("manager")));
        Daemon::start_program(program, &dir.join(name))
    };
    let (second, third) = (joined("m2", 2), joined("m3", 3));
    [first, second, third]
}

fn get(addr: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(LONG)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn a_worker_answers_for_itself_with_and_without_its_manager() {
    let dir = tempfile::tempdir().expect("a folder");
    let (m1, w1) = (dir.path().join("m1"), dir.path().join("w1"));
    let host = net();
    let (at_m1, at_w1) = (host(1), host(2));
    let mut manager = one_manager(dir.path(), at_m1);
    let operator = ["--manager".to_owned(), format!("{at_m1}:7947"), "--credentials".to_owned()];
    let as_operator = |args: &[&str]| -> (Option<i32>, Value) {
        let out = remoor().args(args).arg("--json").args(&operator).arg(m1.join("operator.json")).bounded_output();
        (out.status.code(), serde_json::from_slice(&out.stdout).unwrap_or_default())
    };

    let mut join = remoor();
    join.args(["join", &format!("{at_m1}:7947"), "--name", "w1", "--advertise", &at_w1.to_string(), "--dir"]).arg(&w1);
    run_successfully(join.arg("--token-file").arg(dir.path().join("worker")));
    let node = w1.join("node.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&node).expect("read")).expect("JSON");
    let metrics: SocketAddr = (at_w1, 9947).into();
    config["metrics"] = metrics.to_string().into();
    fs::write(&node, config.to_string()).expect("written");
    let mut worker = Daemon::start(&w1);

    // While its manager is alive, the worker answers for itself and never for the cluster.
    let view = wait_until("the agent has contacted its manager", || {
        let view = worker.json("status");
        (view["manager"]["name"] == "m1" && view["peers_alive"] == 1).then_some(view)
    });
    assert_eq!((&view["kind"], &view["node"]["name"]), (&"agent".into(), &"w1".into()));
    let out = worker.ask(&["status"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("not the cluster's view: w1 is no manager"), "{out:?}");
    for order in [&["resetup", "w1"][..], &["pause", "w1"], &["history"], &["why", "w1", "--replay"]] {
        let out = worker.ask(order);
        let message = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{order:?}: {message}");
        assert!(
            message.contains("w1 is not a manager") && message.contains(&format!("--manager {at_m1}:7947")),
            "{message}"
        );
    }
    let text = get(metrics, "/metrics").expect("metrics");
    assert!(text.contains("\nremoor_agent_peers 1\n") && text.contains("remoor_agent_info{version="), "{text}");
    assert!(get(metrics, "/v1/agent").expect("an answer").starts_with("HTTP/1.1 404"));

    // The manager shows the report of the worker, and the gossip events that the manager received
    // as the leader.
    let node = wait_until("the manager has the report", || {
        let (_, status) = as_operator(&["status"]);
        let nodes = status["nodes"].as_array()?;
        nodes.iter().find(|n| n["name"] == "w1" && n["report"]["version"].is_string()).cloned()
    });
    assert_eq!(node["agent_version"], env!("CARGO_PKG_VERSION"));
    let (code, replay) = as_operator(&["why", "w1", "--replay"]);
    assert_eq!(code, Some(0));
    let steps = replay["steps"].as_array().expect("steps");
    assert!(steps.iter().any(|s| s["told"].as_str().is_some_and(|t| t.starts_with("alive in gossip"))), "{replay}");
    let asked = |s: &Value| s["asked"].to_string().contains("its boot id and instance, as first seen");
    assert!(replay["since"].is_string() && steps.iter().any(asked), "{replay}");
    let (_, history) = as_operator(&["history"]);
    assert!(history["items"][0]["time"].as_str().is_some_and(|t| t.ends_with('Z')), "{history}");

    // From here on, the worker has no manager.
    manager.kill();
    wait_until("the agent has noticed that its manager is away", || {
        let view = worker.json("status");
        (view["manager"]["error"].is_string() && view["peers"][0]["presence"] == "gone").then_some(())
    });
    assert_eq!(worker.json("status")["manager"]["name"], "m1", "who answered last is not forgotten");
    worker.kill();
    let out = worker.ask(&["status"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&out.stderr).contains("next: systemctl start remoor"), "{out:?}");
}

/// A playbook run may change a node's desired state, and gossip does not show this. So the agent
/// queries its managers as soon as it notices a playbook run. It does not wait for the next regular
/// query.
#[test]
fn an_agent_asks_its_managers_when_something_has_run_on_its_node() {
    /// Interval of an agent's queries if managers have reported everything that gossip shows.
    /// `TO_BE_TOLD` is the interval while something is missing.
    const AT_REST: Duration = Duration::from_secs(120);
    const TO_BE_TOLD: Duration = Duration::from_secs(20);
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let w1 = dir.path().join("w1");
    let manager = one_manager(dir.path(), host(1));
    let mut join = remoor();
    join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &host(2).to_string(), "--dir"]);
    run_successfully(join.arg(&w1).arg("--token-file").arg(dir.path().join("worker")));
    let config = "version: 1\ninventory: inventory.yml\ngroups:\n  web: {services: []}\nlimits: {check-interval: 1s}\n";
    apply_small(&manager, dir.path(), config, "web: {hosts: {m1: {}, w1: {}}}\n");
    let worker = Daemon::start(&w1);
    for mark in [FENCE, CLOSED] {
        let asked = || worker.json("status")["manager"]["at"].as_str().map(str::to_owned);
        let (mut last, mut since) = (asked(), Instant::now());
        wait_until("the agent to be at rest", || {
            let now = asked();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            (last.is_some() && since.elapsed() > TO_BE_TOLD + Duration::from_secs(5)).then_some(())
        });
        fs::write(w1.join(mark), "{}").expect("written");
        wait_until("the agent to ask", || (asked() != last).then_some(()));
        assert!(since.elapsed() < AT_REST, "{mark}: it asked because it was time to");
    }
}

#[test]
fn managers_that_move_find_each_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let host = net();
    let [m1, m2, m3] = three_managers(dir.path(), host);

    /// Whether all three managers are voters, alive, and recorded at these addresses.
    fn all_at(at: &Daemon, places: [Ipv4Addr; 3]) -> Option<()> {
        let status = at.json("status");
        let nodes = status["nodes"].as_array()?;
        let there = |(name, ip): (&str, Ipv4Addr)| {
            let node = nodes.iter().find(|n| n["name"] == name);
            node.is_some_and(|n| {
                let vote = matches!(n["manager"].as_str(), Some("leader" | "voter")) && n["presence"] == "alive";
                vote && n["gossip"] == format!("{ip}:7946") && n["api"] == format!("{ip}:7947")
            })
        };
        ["m1", "m2", "m3"].into_iter().zip(places).all(there).then_some(())
    }
    let moved = |mut daemon: Daemon, to: Ipv4Addr| {
        daemon.kill();
        let node = daemon.dir.join("node.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&node).expect("read")).expect("JSON");
        config["advertise"] = to.to_string().into();
        fs::write(&node, config.to_string()).expect("written");
        let dir = daemon.dir.clone();
        drop(daemon);
        Daemon::start(&dir)
    };
    wait_until("three managers", || all_at(&m1, [host(1), host(2), host(3)]));
    // First a follower moves, then the leader. Only gossip announces the new addresses.
    let m2 = moved(m2, host(12));
    wait_until("m2 at its new address", || all_at(&m1, [host(1), host(12), host(3)]));
    let m1 = moved(m1, host(11));
    wait_until("m1 at its new address", || all_at(&m2, [host(11), host(12), host(3)]));
    // The two managers with new addresses are a majority without m3. They form a quorum only if
    // Raft uses their new addresses.
    drop(m3);
    wait_until("the two that moved to agree", || {
        let out = m1.ask(&["maintenance", "m3", "--for", "1h"]);
        (out.status.code() == Some(0)).then_some(())
    });
    let seen = m2.json("status");
    let leader = seen["as_of"]["leader"].as_str().unwrap_or_default().to_owned();
    assert!(["m1", "m2"].contains(&leader.as_str()), "{seen}");
}

/// `check --list` and `check --render` give the same answer with a manager and with only the fleet
/// directory. No query is sent to the listed node.
#[test]
fn the_checks_of_a_node_are_listed_with_and_without_a_manager() {
    let dir = tempfile::tempdir().expect("a folder");
    let (fleet, checks) = (dir.path().join("fleet"), dir.path().join("fleet/checks"));
    fs::create_dir_all(&checks).expect("made");
    let text = "remoor: {service: app, roles: [web]}\nport:\n  tcp:{{ vars.port }}: {listening: true}\n";
    fs::write(checks.join("app.yml"), text).expect("written");
    fs::write(checks.join("api.yml"), text.replace("web", "api")).expect("written");
    let m1 = one_manager(dir.path(), net()(1));
    let early = m1.ask(&["check", "--list", "m1"]);
    let message = String::from_utf8_lossy(&early.stderr);
    assert!(early.status.code() != Some(0) && message.contains("remoor apply DIR"), "{message}");
    let config = "version: 1\ninventory: inventory.yml\ngroups: {api: {services: [app]}, web: {services: [app]}}\nservices: {app: {files: [/etc/app]}}\n";
    apply_small(&m1, dir.path(), config, "web: {hosts: {m1: {port: 8081}}}\n");

    let stdout_of = |out: &Output| String::from_utf8_lossy(&out.stdout).into_owned();
    let directory = fleet.to_str().expect("UTF-8");
    for (how, has, hasnt) in [
        ("--list", "its roles are api; the node's are web and", "8081"),
        ("--render", "# checks/app.yml (app)\nport:\n  tcp:8081: {listening: true}\n", "api.yml"),
    ] {
        let asked = m1.ask(&["check", how, "m1"]);
        let read = run_successfully(remoor().args(["check", how, "m1", "--fleet", directory]));
        for out in [asked, read] {
            let text = stdout_of(&out);
            assert!(out.status.code() == Some(0) && text.contains(has) && !text.contains(hasnt), "{out:?}");
        }
    }
    let json = m1.ask(&["check", "--list", "m1", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["generation"], &json["files"][1]["checks"][0]["check"]), (&1.into(), &"port:tcp:8081".into()));
    let wrong = remoor().args(["check", "--list", "m9", "--fleet", directory]).bounded_output();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

#[test]
fn variables_are_shown_with_their_origin_and_some_may_not_be_set_by_an_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let m1 = one_manager(dir.path(), net()(1));
    let config = "version: 1\ninventory: inventory.yml\nvars: {colour: red, zone: 1}\ngroups:\n  web: {services: [], vars: {zone: 2}}\n";
    apply_small(&m1, dir.path(), config, "web: {hosts: {m1: {workers: 4}}}\n");

    let shown = String::from_utf8(m1.ask(&["nodes", "m1", "-o", "wide"]).stdout).expect("UTF-8");
    let has = |start: &str, end: &str| shown.lines().any(|l| l.starts_with(start) && l.contains(end));
    assert!(has("colour", "remoor.yml: vars") && has("zone", "groups.web.vars"), "{shown}");
    assert!(has("workers", "inventory.yml"), "{shown}");
    for (wrong, expected) in [
        (&["resetup", "m1", "-e", "ansible_host=elsewhere"][..], "an order can't set the variable ansible_host"),
        (&["commission", "m1", "-e", "peers=[]"], "an order can't set the variable peers"),
        (&["update", "m1", "-e", "a-b=1"], "not a variable name"),
    ] {
        let out = m1.ask(wrong);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && text.contains(expected), "{wrong:?}: {text}");
    }
}
