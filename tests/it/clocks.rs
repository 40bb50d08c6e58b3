//! Daemons whose wall clock is wrong for a while, on the loopback of this machine. Each daemon
//! recovers by itself after its clock is right again. The clock of the machine is never changed.
//! Instead, a preloaded library shifts the clock of one process.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use remoor_cluster::rpc::identity::{Credentials, certificate_life};
use remoor_model::Wall;
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

const DAY_S: i64 = 24 * 3_600;

/// The library that shifts the clock. It is built once, with the C compiler that links this test.
fn library() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a folder");
        let library = dir.path().join("wrong_clock.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standins/wrong_clock.c");
        run_successfully(
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).arg("-ldl"),
        );
        (dir, library)
    });
    library
}

/// A file that sets the wall clock of one process.
struct WrongClock(PathBuf);

impl WrongClock {
    fn new(file: PathBuf, ahead_s: i64) -> Self {
        fs::write(&file, ahead_s.to_ne_bytes()).expect("written");
        Self(file)
    }

    /// Sets how far the clock is ahead, in seconds. The change also affects a running process.
    fn set(&self, ahead_s: i64) {
        let file = fs::File::options().write(true).open(&self.0).expect("the file");
        file.write_all_at(&ahead_s.to_ne_bytes(), 0).expect("written");
    }

    fn command(&self) -> Command {
        let mut command = remoor();
        command.env("LD_PRELOAD", library()).env("WRONG_CLOCK", &self.0);
        command
    }
}

/// Daemons by name. Each has the folder of its name in `dir`.
struct Cluster {
    daemons: Vec<(&'static str, Daemon)>,
    /// Declared after the daemons, because fields are dropped in the order of their declaration.
    /// When a test fails, a dropped daemon prints its log, which is in this folder.
    dir: tempfile::TempDir,
}

impl Cluster {
    fn of_three() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let [m1, m2, m3] = three_managers(dir.path(), net());
        let cluster = Self { daemons: vec![("m1", m1), ("m2", m2), ("m3", m3)], dir };
        cluster.wait_until_all_vote(&["m1", "m2", "m3"]);
        cluster
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The address that a node advertises.
    fn address_of(&self, name: &str) -> Ipv4Addr {
        let config = fs::read(self.folder(name).join("node.json")).expect("read");
        let config: Value = serde_json::from_slice(&config).expect("JSON");
        config["advertise"].as_str().and_then(|at| at.parse().ok()).expect("an address")
    }

    fn daemon(&mut self, name: &str) -> &mut Daemon {
        &mut self.daemons.iter_mut().find(|(known, _)| *known == name).expect("a daemon").1
    }

    fn kill(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.daemon(name).kill());
    }

    fn start(&mut self, names: &[&str]) {
        for name in names {
            let daemon = Daemon::start(&self.folder(name));
            *self.daemon(name) = daemon;
        }
    }

    /// Starts a daemon whose clock is `ahead_s` seconds ahead.
    fn start_ahead(&mut self, name: &str, ahead_s: i64) -> WrongClock {
        let clock = WrongClock::new(self.dir.path().join(format!("{name}.clock")), ahead_s);
        let daemon = Daemon::start_command(clock.command(), &self.folder(name));
        *self.daemon(name) = daemon;
        clock
    }

    /// The time at which the validity of the node's stored certificate begins.
    fn certificate_begins(&self, name: &str) -> Wall {
        let credentials = Credentials::load(&self.folder(name)).expect("read").expect("credentials");
        certificate_life(&credentials.cert_pem).expect("a certificate").0
    }

    fn wait_until_it_begins_in_the_future(&self, name: &str) {
        wait_until(&format!("the certificate of {name} begins in the future"), || {
            (self.certificate_begins(name) > now()).then_some(())
        });
    }

    /// Waits until each of these managers knows a leader that has a quorum, and until all three
    /// managers are voters that are up.
    fn wait_until_all_vote(&self, names: &[&str]) {
        for (name, daemon) in self.daemons.iter().filter(|(name, _)| names.contains(name)) {
            wait_until(&format!("all three vote, as {name} sees it"), || {
                let status = daemon.json("status");
                let is = |n: &&Value| matches!(n["manager"].as_str(), Some("leader" | "voter"));
                let votes = status["nodes"].as_array()?.iter().filter(is).count();
                let led = status["as_of"]["stale"] == false;
                (votes == 3 && status["managers_up"] == 3 && led).then_some(())
            });
        }
    }
}

fn now() -> Wall {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Wall(since.as_millis() as u64)
}

fn print_recovery(what: &str, since: Instant) {
    eprintln!("{what} recovered {:.1} s after the clock was right", since.elapsed().as_secs_f64());
}

/// m3 runs alone while its clock is wrong, so that no other manager can warn it.
#[test]
fn a_manager_whose_clock_was_wrong_once_takes_part_again() {
    let mut cluster = Cluster::of_three();
    cluster.kill(&["m1", "m2", "m3"]);
    let clock = cluster.start_ahead("m3", 80 * DAY_S);
    cluster.wait_until_it_begins_in_the_future("m3");
    cluster.start(&["m1", "m2"]);
    clock.set(0);
    let since = Instant::now();
    cluster.wait_until_all_vote(&["m1", "m2", "m3"]);
    print_recovery("one manager", since);
    assert!(cluster.certificate_begins("m3") < now());
}

/// The clocks of the two managers agree with each other, so each manager issues itself a
/// certificate whose validity begins in the future.
#[test]
fn two_managers_whose_clocks_were_wrong_once_form_a_quorum_again() {
    let mut cluster = Cluster::of_three();
    cluster.kill(&["m1", "m2", "m3"]);
    let clocks = ["m2", "m3"].map(|name| cluster.start_ahead(name, 80 * DAY_S));
    cluster.wait_until_it_begins_in_the_future("m2");
    cluster.wait_until_it_begins_in_the_future("m3");
    cluster.start(&["m1"]);
    clocks.iter().for_each(|clock| clock.set(0));
    let since = Instant::now();
    cluster.wait_until_all_vote(&["m1", "m2", "m3"]);
    print_recovery("two managers", since);
}

/// The clocks of the only manager and of a worker are wrong for a while. No other manager can warn
/// the manager, so it issues certificates whose validity begins in the future. Later both
/// certificates are renewed.
#[test]
fn a_worker_whose_certificate_is_of_the_future_gets_a_new_one() {
    let (dir, at) = (tempfile::tempdir().expect("a folder"), net());
    let m1 = one_manager(dir.path(), at(1));
    let mut join = remoor();
    join.args(["join", &format!("{}:7947", at(1)), "--name", "w1", "--advertise", &at(2).to_string(), "--dir"]);
    run_successfully(join.arg(dir.path().join("w1")).arg("--token-file").arg(dir.path().join("worker")));
    let w1 = Daemon::start(&dir.path().join("w1"));
    let mut cluster = Cluster { daemons: vec![("m1", m1), ("w1", w1)], dir };
    cluster.kill(&["m1", "w1"]);
    let clocks = ["m1", "w1"].map(|name| cluster.start_ahead(name, 80 * DAY_S));
    cluster.wait_until_it_begins_in_the_future("m1");
    cluster.wait_until_it_begins_in_the_future("w1");
    clocks.iter().for_each(|clock| clock.set(0));
    let (since, corrected) = (Instant::now(), now());
    wait_until("a manager answered the agent of w1", || {
        let view = cluster.daemon("w1").json("status");
        let at: jiff::Timestamp = view["manager"]["at"].as_str()?.parse().ok()?;
        let later = at.as_millisecond() as u64 > corrected.0 && at.as_millisecond() as u64 <= now().0;
        (later && view["manager"]["error"].is_null() && cluster.certificate_begins("w1") < corrected).then_some(())
    });
    print_recovery("a worker", since);
}

/// The leader's clock is set 80 days ahead while the leader runs. By that clock, the removal of a
/// node that left is overdue, and so is the renewal of the leader's own certificate.
#[test]
fn while_clocks_differ_no_certificate_is_issued_and_no_node_is_forgotten() {
    let mut cluster = Cluster::of_three();
    let join = |cluster: &Cluster, name: &str, last: u8| {
        let (mut join, to) = (remoor(), cluster.address_of("m1"));
        let at = Ipv4Addr::from([to.octets()[0], to.octets()[1], to.octets()[2], last]);
        join.args(["join", &format!("{to}:7947"), "--name", name, "--advertise", &at.to_string(), "--dir"]);
        join.arg(cluster.folder(name)).arg("--token-file").arg(cluster.folder("worker")).bounded_output()
    };
    assert!(join(&cluster, "w1", 11).status.success());
    let w1 = Daemon::start(&cluster.folder("w1"));
    wait_until("a manager answered the agent of w1", || w1.json("status")["manager"]["name"].is_string().then_some(()));
    let left = |cluster: &mut Cluster| cluster.daemon("m1").json("status")["left"].clone();
    wait_until("w1 has left", || {
        (w1.ask(&["leave", "--yes"]).status.success() || left(&mut cluster)[0]["name"] == "w1").then_some(())
    });
    wait_until("m1 has applied it", || (left(&mut cluster)[0]["name"] == "w1").then_some(()));

    cluster.kill(&["m1", "m2", "m3"]);
    let clocks = ["m1", "m2", "m3"].map(|name| (name, cluster.start_ahead(name, 0)));
    cluster.wait_until_all_vote(&["m1", "m2", "m3"]);
    let leader = wait_until("a leader", || {
        let leader = cluster.daemon("m1").json("status")["as_of"]["leader"].as_str()?.to_owned();
        clocks.iter().find(|(name, _)| *name == leader)
    });
    let before = cluster.certificate_begins(leader.0);
    leader.1.set(80 * DAY_S);
    let other = if leader.0 == "m1" { "m2" } else { "m1" };
    let warns = |cluster: &mut Cluster| {
        // The leader answers the status query, so the warnings are about the other managers.
        let warnings = cluster.daemon(other).json("status")["warnings"].to_string();
        warnings.contains(&format!("the clock of {other} is 80 d behind that of {}", leader.0))
    };
    wait_until("the status warns of the clocks", || warns(&mut cluster).then_some(()));
    wait_until("another manager sends a notice", || {
        let log = fs::read_to_string(cluster.folder(other).join("log")).ok()?;
        log.contains(&format!("the clock of {} is 80 d ahead", leader.0)).then_some(())
    });
    let refused = join(&cluster, "w2", 12);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(4) && text.contains("until the clocks of the managers agree"), "{text}");
    // The leader stamps the log entry with its own wrong time. If the entry were applied with that
    // time, w1 would be removed.
    let ordered = cluster.daemon(other).ask(&["maintenance", "m1", "--for", "1h"]);
    assert!(ordered.status.success(), "{ordered:?}");
    assert_eq!(left(&mut cluster)[0]["name"], "w1");
    assert_eq!(cluster.certificate_begins(leader.0), before, "it issued none for itself");

    leader.1.set(0);
    let since = Instant::now();
    wait_until("the warning ends", || (!warns(&mut cluster)).then_some(()));
    wait_until("a worker joins", || join(&cluster, "w2", 12).status.success().then_some(()));
    print_recovery("joining", since);
    assert_eq!(left(&mut cluster)[0]["name"], "w1");
}
