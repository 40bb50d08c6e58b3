//! Admission and membership, with real processes on the loopback of this machine: certificates that
//! are renewed while the daemons run, an expired certificate, replaced tokens, machines that wait
//! for approval, wrong clocks and copied keys. These tests need neither real hosts nor root.

mod ca;
mod intercepted;
mod operators;
mod renewal;

use crate::local::{Daemon, net, one_manager, remoor, run_successfully, wait_until};
use crate::time_limit::{BoundedChild, BoundedCommand};
use remoor_cluster::rpc::agent::PeersReply;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::dial_back;
use remoor_cluster::rpc::identity::{Credentials, NodeKey, certificate_not_after, fingerprint};
use remoor_cluster::rpc::join::{self, JoinError, JoinRequest};
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::token::Token;
use remoor_model::{NodeId, Wall};
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

/// Validity of a certificate in seconds. It is long enough to renew in time, and short enough to
/// expire during a test.
const LIFE_S: u64 = 20;

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn now() -> Wall {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Wall(since.as_millis() as u64)
}

/// The daemon m1. The certificates that it issues are valid for [`LIFE_S`] or for the default
/// period.
struct Cluster {
    /// Declared before the folder, because fields are dropped in the order of their declaration.
    /// When a test fails, a dropped daemon prints its log, which is in the folder.
    m1: Daemon,
    dir: tempfile::TempDir,
    at: Box<dyn Fn(u8) -> Ipv4Addr>,
}

impl Cluster {
    fn new(brief: bool) -> Self {
        let (dir, at) = (tempfile::tempdir().expect("a folder"), Box::new(net()));
        let mut m1 = one_manager(dir.path(), at(1));
        if brief {
            m1.kill();
            let node = dir.path().join("m1/node.json");
            let mut config: Value = serde_json::from_slice(&fs::read(&node).expect("read")).expect("JSON");
            config["certificate_life_s"] = LIFE_S.into();
            fs::write(&node, config.to_string()).expect("written");
            m1 = Daemon::start(&dir.path().join("m1"));
            wait_until("m1 leads again", || (m1.ask(&["status"]).status.code() == Some(0)).then_some(()));
        }
        Self { m1, dir, at }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn join_command(&self, folder: &str, name: &str, last: u8) -> Command {
        let (mut join, at) = (remoor(), (self.at)(last).to_string());
        join.args(["join", &self.api(1), "--name", name, "--advertise", &at, "--dir"]).arg(self.folder(folder));
        join
    }

    fn worker(&self, name: &str, last: u8) -> Daemon {
        run_successfully(self.join_command(name, name, last).arg("--token-file").arg(self.folder("worker")));
        Daemon::start(&self.folder(name))
    }

    fn api(&self, last: u8) -> String {
        format!("{}:7947", (self.at)(last))
    }

    fn credentials(&self, name: &str) -> Credentials {
        Credentials::load(&self.folder(name)).expect("read").expect("credentials")
    }

    fn ends(&self, name: &str) -> Wall {
        certificate_not_after(&self.credentials(name).cert_pem).expect("a certificate")
    }

    /// Requests the peers from m1 with the credentials of the node `name`.
    fn peers_as(&self, name: &str) -> Result<PeersReply, ApiError> {
        let tls = ClientTls::member(&self.credentials(name).tls()).expect("TLS");
        wait(Client::tls(self.api(1), &tls, None).get("/agent/v1/peers"))
    }

    fn pending_machines(&self) -> Vec<Value> {
        self.m1.json("nodes")["pending"].as_array().cloned().unwrap_or_default()
    }

    fn names(&self) -> Vec<String> {
        let nodes = self.m1.json("nodes")["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter_map(|n| n["name"].as_str()).map(str::to_owned).collect()
    }

    fn public_token(&self) -> String {
        let tokens: Value = serde_json::from_slice(&self.m1.ask(&["token", "list", "--json"]).stdout).expect("JSON");
        tokens["public"].as_str().expect("a token").to_owned()
    }
}

fn output_text(out: &Output) -> String {
    String::from_utf8_lossy(&[out.stdout.as_slice(), out.stderr.as_slice()].concat()).into_owned()
}

/// A running `join` command that waits for approval. It is killed when this value is dropped.
struct Waiting(Option<Child>);

impl Waiting {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self(Some(child.expect("remoor runs")))
    }

    fn end(mut self) -> Output {
        self.0.take().expect("once").bounded_output()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn certificates_are_renewed_while_the_daemons_run_and_used_at_once() {
    let cluster = Cluster::new(true);
    let w1 = cluster.worker("w1", 2);
    run_successfully(
        cluster.join_command("m2", "m2", 3).arg("--manager").arg("--token-file").arg(cluster.folder("manager")),
    );
    let (joined_w1, joined_m2) = (cluster.credentials("w1"), cluster.credentials("m2"));
    let m2 = Daemon::start(&cluster.folder("m2"));
    let first = certificate_not_after(&joined_w1.cert_pem).expect("a certificate");
    assert!(first.ms_since(now()) <= (LIFE_S + 1) * 1000, "it is brief");

    // m2 is a manager, so it issues its own certificate. The `node.json` of m2 has the default
    // validity period, so this certificate is valid for months.
    wait_until("the manager m2 has renewed its certificate", || {
        (cluster.ends("m2").ms_since(now()) > 80 * 24 * 3_600_000).then_some(())
    });
    wait_until("w1 has renewed its certificate twice, and the first has expired", || {
        (cluster.ends("w1").0 > first.0 + LIFE_S * 1000 && now() > first).then_some(())
    });
    let renewed = cluster.credentials("w1");
    let kept = |c: &Credentials| (c.node, c.name.clone(), c.key_pem.clone(), c.gossip_key.clone(), c.ca_pem.clone());
    assert_eq!(kept(&renewed), kept(&joined_w1), "all but the certificate is as it was");

    // The running processes use the new certificates: m1 and each of the two nodes authenticate
    // each other by TLS in both directions.
    let tls = ClientTls::member(&cluster.credentials("m1").tls()).expect("TLS");
    for (last, node) in [(2, joined_w1.node), (3, joined_m2.node)] {
        let answer = wait(Client::tls(cluster.api(last), &tls, Some(node)).get::<Value>("/nothing"));
        let error = answer.expect_err("nothing is there");
        assert!(matches!(error, ApiError::Status { .. }), "the server's certificate is a valid one: {error:?}");
    }
    wait_until("a manager answered the agent of w1 after the first certificate expired", || {
        let view = w1.json("status");
        let at: jiff::Timestamp = view["manager"]["at"].as_str()?.parse().ok()?;
        (at.as_millisecond() as u64 > first.0 && view["manager"]["error"].is_null()).then_some(())
    });
    wait_until("m2 is a voter and knows the leader", || {
        let status = m2.json("status");
        let me = status["nodes"].as_array()?.iter().find(|n| n["name"] == "m2").cloned()?;
        (matches!(me["manager"].as_str(), Some("voter" | "leader")) && status["as_of"]["stale"] == false).then_some(())
    });
    // The first certificate of w1 has expired. It can only be used to request a new certificate.
    let old = ClientTls::member(&joined_w1.tls()).expect("TLS");
    let refused = wait(Client::tls(cluster.api(1), &old, None).get::<PeersReply>("/agent/v1/peers"));
    assert_eq!(refused.expect_err("refused").code(), Some("credential-expired"));
}

/// docs/design/scenarios.md, E24: a node is off when its certificate expires.
#[test]
fn a_node_whose_certificate_expired_while_it_was_off_rejoins_with_the_same_identity() {
    let cluster = Cluster::new(true);
    let mut w1 = cluster.worker("w1", 2);
    wait_until("w1 is alive", || (cluster.m1.json("status")["nodes"][1]["presence"] == "alive").then_some(()));
    w1.kill();
    let (before, ends) = (cluster.credentials("w1"), cluster.ends("w1"));
    wait_until("the certificate has expired", || (now() > ends.plus_ms(1_500)).then_some(()));
    assert_eq!(cluster.peers_as("w1").expect_err("refused").code(), Some("credential-expired"));
    let _w1 = Daemon::start(&cluster.folder("w1"));

    let waits = wait_until("the machine waits", || cluster.pending_machines().into_iter().next());
    assert_eq!(
        (&waits["name"], &waits["why"], &waits["state"]),
        (&"w1".into(), &"certificate".into(), &"waiting".into())
    );
    let key = hex::encode(before.key().expect("a key").public());
    assert_eq!(waits["fingerprint"], fingerprint(&key));
    assert_eq!(cluster.ends("w1"), ends, "nothing without a yes");
    let out = cluster.m1.ask(&["accept", "w1", "--deny"]);
    assert_eq!(out.status.code(), Some(4), "{}", output_text(&out));
    let out = cluster.m1.ask(&["accept", "w1", "--fingerprint", "SHA256:another"]);
    assert_eq!(out.status.code(), Some(4), "{}", output_text(&out));

    let out = cluster.m1.ask(&["accept", "w1"]);
    assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
    wait_until("the node has a new certificate", || (cluster.ends("w1") > ends).then_some(()));
    let after = cluster.credentials("w1");
    assert_eq!((after.node, after.key_pem), (before.node, before.key_pem));
    wait_until("no machine waits any more", || cluster.pending_machines().is_empty().then_some(()));
    assert_eq!(cluster.names(), ["m1", "w1"]);
    wait_until("it is the same node as before", || cluster.peers_as("w1").ok());
}

#[test]
fn a_replaced_token_is_rejected_and_distinguished_from_a_wrong_one() {
    let cluster = Cluster::new(false);
    let join = |name: &str, last: u8, token: &str| {
        let file = cluster.folder("given");
        fs::write(&file, token).expect("written");
        cluster.join_command(name, name, last).arg("--token-file").arg(&file).bounded_output()
    };
    let rotate = |args: &[&str]| -> String {
        let out = cluster.m1.ask(&[&["token", "rotate", "-q"], args].concat());
        assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
        String::from_utf8(out.stdout).expect("UTF-8").trim().to_owned()
    };
    let first = fs::read_to_string(cluster.folder("worker")).expect("a token");
    let second = rotate(&["--role", "worker"]);
    let out = join("w1", 2, &first);
    assert!(out.status.code() == Some(4) && output_text(&out).contains("was replaced"), "{}", output_text(&out));
    assert!(
        output_text(&out).contains("next: for a new one, on a manager: remoor token rotate --role worker"),
        "{}",
        output_text(&out)
    );
    assert_eq!(join("w1", 2, &second).status.code(), Some(0));

    let third = rotate(&["--role", "worker", "--keep-old", "1h"]);
    assert_eq!(join("w2", 3, &second).status.code(), Some(0), "it goes on for an hour");
    assert_eq!(join("w3", 4, &third).status.code(), Some(0));
    let public = cluster.public_token();
    let out = join("w4", 5, &format!("{public}-{}", "ab".repeat(16)));
    let text = output_text(&out);
    assert!(out.status.code() == Some(4) && text.contains("not valid here") && text.contains("next: "), "{text}");
    let out = join("w4", 5, &fs::read_to_string(cluster.folder("manager")).expect("a token"));
    assert!(
        out.status.code() == Some(4) && output_text(&out).contains("for managers"),
        "the other role's stands: {}",
        output_text(&out)
    );
    assert_eq!(cluster.names(), ["m1", "w1", "w2", "w3"]);

    // The list shows when tokens were replaced. Neither the list nor the history contains a secret.
    let list = output_text(&cluster.m1.ask(&["token", "list"]));
    assert!(list.contains("worker") && list.contains("root@m1") || list.contains("uid "), "{list}");
    let history = output_text(&cluster.m1.ask(&["history"]));
    assert!(history.contains("the worker token was rotated"), "{history}");
    for token in [&first, &second, &third] {
        let secret = token.trim().rsplit('-').next().expect("a secret");
        assert!(!list.contains(secret) && !history.contains(secret));
        let log = fs::read_to_string(cluster.folder("m1/log")).expect("a log");
        assert!(!log.contains(secret), "nor in the daemon's log");
    }
}

#[test]
fn a_machine_without_a_secret_waits_for_approval_or_denial() {
    let cluster = Cluster::new(false);
    let public = cluster.public_token();
    let token = ["--token", public.as_str()];
    let waits = |name: &str| {
        wait_until("the machine waits", || {
            cluster.pending_machines().into_iter().find(|p| p["name"] == name && p["state"] == "waiting")
        })
    };

    // No operator approves w1 in time. The command prints the fingerprint to compare, and w1 is not
    // a node.
    let out = cluster.join_command("w1", "w1", 2).args(token).args(["--wait", "1s"]).bounded_output();
    let text = output_text(&out);
    let shown = waits("w1")["fingerprint"].as_str().expect("a fingerprint").to_owned();
    assert!(out.status.code() == Some(3) && text.contains(&shown) && text.contains("remoor accept w1"), "{text}");
    assert!(shown.starts_with("SHA256:") && !cluster.folder("w1/identity.json").exists());

    // A second `join` of w1 waits, and the operator approves w1 meanwhile. An approval with another
    // fingerprint is rejected.
    let out = cluster.m1.ask(&["accept", "w1", "--fingerprint", "SHA256:another"]);
    assert!(out.status.code() == Some(4) && output_text(&out).contains(&shown), "{}", output_text(&out));
    let again = Waiting::start(cluster.join_command("w1", "w1", 2).args(token));
    // Another machine with the name w1 is rejected and changes nothing.
    let out = cluster.join_command("thief", "w1", 9).args(token).bounded_output();
    assert!(out.status.code() == Some(4) && output_text(&out).contains("another key"), "{}", output_text(&out));
    assert_eq!(cluster.names(), ["m1"]);
    let out = cluster.m1.ask(&["accept", "w1", "--fingerprint", &shown]);
    assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
    let out = again.end();
    assert!(out.status.success() && output_text(&out).contains("w1 joined"), "{}", output_text(&out));
    let w1 = Daemon::start(&cluster.folder("w1"));
    wait_until("it is an ordinary node", || (w1.json("status")["manager"]["name"] == "m1").then_some(()));
    assert_eq!(cluster.pending_machines(), Vec::<Value>::new(), "who has come waits no more");

    // A denial ends the wait of `join` at once.
    let denied = Waiting::start(cluster.join_command("w2", "w2", 3).args(token));
    waits("w2");
    let table = output_text(&cluster.m1.ask(&["nodes"]));
    assert!(table.lines().any(|l| l.starts_with("w2") && l.contains("waiting") && l.contains("SHA256:")), "{table}");
    let out = cluster.m1.ask(&["accept", "w2", "--deny"]);
    assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
    let out = denied.end();
    assert!(out.status.code() == Some(4) && output_text(&out).contains("denied"), "{}", output_text(&out));
    let out = cluster.m1.ask(&["accept", "w9"]);
    assert!(out.status.code() == Some(4) && output_text(&out).contains("no machine waits"), "{}", output_text(&out));
    assert_eq!(cluster.names(), ["m1", "w1"]);

    // m2 joins as a manager because the operator approves that role.
    let third = Waiting::start(cluster.join_command("m2", "m2", 4).args(token));
    waits("m2");
    let out = cluster.m1.ask(&["accept", "m2", "--role", "manager"]);
    assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
    assert!(third.end().status.success());
    let _m2 = Daemon::start(&cluster.folder("m2"));
    wait_until("m2 is a voter", || {
        let nodes = cluster.m1.json("status")["nodes"].as_array().cloned()?;
        nodes.iter().any(|n| n["name"] == "m2" && n["manager"] == "voter").then_some(())
    });
}

#[test]
fn wrong_clocks_and_copied_disks_are_rejected_without_changes() {
    let cluster = Cluster::new(false);
    let w1 = cluster.worker("w1", 2);
    wait_until("w1 is alive", || (w1.json("status")["manager"]["name"] == "m1").then_some(()));
    let text = fs::read_to_string(cluster.folder("worker")).expect("a token");
    let (token, public) = (Token::parse(&text).expect("a token"), Token::parse(&cluster.public_token()));
    let key = NodeKey::generate().expect("a key");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let address = cluster.api(3);
    let answering = dial_back::start_answering(address.parse().expect("an address"), &address, key.signing_key());
    let _answering = runtime.block_on(answering).expect("it listens");
    let machine_id = fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
    let request = JoinRequest {
        name: "w2".into(),
        advertise: cluster.api(3),
        gossip_addr: format!("{}:7946", (cluster.at)(3)),
        ssh_host_keys: Vec::new(),
        boot: "another boot".to_owned(),
        ..join::testing::request(&key)
    };
    let refused = |token: &Token, request: JoinRequest| match wait(join::join(&cluster.api(1), token, request)) {
        Err(JoinError::Api { source: ApiError::Status { code, message, next, .. }, .. }) => {
            assert!(next.is_some(), "{message}");
            (code, message)
        }
        other => panic!("{other:?}"),
    };
    let before = (cluster.names(), cluster.pending_machines());
    let public = public.expect("a token");
    let strange = JoinRequest { cluster: Some("another".into()), ..request.clone() };
    assert_eq!(refused(&token, strange).0, "wrong-cluster", "a data directory of another cluster");
    for by in [&token, &public] {
        let behind = JoinRequest { now: Some(Wall(now().0 - 3_600_000)), ..request.clone() };
        let (code, message) = refused(by, behind);
        assert!(code == "clock-skew" && message.contains("behind") && message.contains("(-36"), "{message}");
        let (code, message) = refused(by, JoinRequest { now: Some(now().plus_ms(120_000)), ..request.clone() });
        assert!(code == "clock-skew" && message.contains("ahead of") && message.contains("(+1"), "{message}");
        if !machine_id.is_empty() {
            let (code, message) = refused(by, JoinRequest { machine_id: machine_id.clone(), ..request.clone() });
            assert!(code == "refused" && message.contains("w2 has the machine id of m1"), "{message}");
        }
        let (code, message) = refused(by, JoinRequest { name: "w1".into(), ..request.clone() });
        assert!(code == "refused" && message.contains("another key"), "{message}");
    }
    assert_eq!((cluster.names(), cluster.pending_machines()), before);
    let reply = wait(join::join(&cluster.api(1), &token, request)).expect("in time, and a machine of its own");
    assert!(reply.node > NodeId(0) && cluster.names() == ["m1", "w1", "w2"]);
}

/// docs/design/scenarios.md, E27: a machine joins through a node that is not a manager.
#[test]
fn a_join_through_a_node_that_is_not_a_manager_is_redirected_to_a_manager() {
    let cluster = Cluster::new(false);
    let w1 = cluster.worker("w1", 2);
    wait_until("w1 has contacted its manager", || (w1.json("status")["manager"]["name"] == "m1").then_some(()));
    let token = Token::parse(&fs::read_to_string(cluster.folder("worker")).expect("a token")).expect("a token");
    let tls = ClientTls::joiner(token.ca_digest()).expect("TLS");
    let nothing = serde_json::json!({});
    let asked = wait(Client::tls(cluster.api(2), &tls, None).post::<Value>(join::JOIN_PATH, &nothing));
    let Err(ApiError::Status { code, message, next, details, .. }) = asked else { panic!("a worker admits no node") };
    assert_eq!((code.as_str(), &details["managers"]), ("not-leader", &serde_json::json!([cluster.api(1)])));
    assert!(message == format!("w1 is not a manager: ask {}", cluster.api(1)) && next.is_some(), "{message}");

    let through = |last, name: &str, advertised: u8| {
        let mut join = remoor();
        join.args([
            "join",
            &cluster.api(last),
            "--name",
            name,
            "--advertise",
            &(cluster.at)(advertised).to_string(),
            "--dir",
        ]);
        run_successfully(join.arg(cluster.folder(name)).arg("--token-file").arg(cluster.folder("worker")));
    };
    through(2, "w2", 3);
    // m2 joins as a manager and is demoted. The next machine joins through m2 soon after the
    // demotion.
    run_successfully(
        cluster.join_command("m2", "m2", 4).arg("--manager").arg("--token-file").arg(cluster.folder("manager")),
    );
    let _m2 = Daemon::start(&cluster.folder("m2"));
    let state = || cluster.m1.json("status")["nodes"][3]["manager"].clone();
    wait_until("m2 is a voter", || (state() == "voter").then_some(()));
    let out = cluster.m1.ask(&["demote", "m2"]);
    assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
    through(4, "w3", 5);
    assert_eq!(cluster.names(), ["m1", "w1", "w2", "m2", "w3"]);
}

/// docs/design/scenarios.md, E14: a machine joins with a wrong address.
#[test]
fn a_join_with_a_wrong_address_is_rejected_without_changes() {
    let cluster = Cluster::new(false);
    let _w1 = cluster.worker("w1", 2);
    let before = (cluster.names(), cluster.pending_machines());
    let token = Token::parse(&fs::read_to_string(cluster.folder("worker")).expect("a token")).expect("a token");
    // The node listens at one address and announces another. Nothing listens at address 3; w1
    // listens at 2, the leader at 1.
    for (last, code, why) in
        [(3, "unreachable", "can't be dialled back"), (2, "wrong-node", "is not w2"), (1, "wrong-node", "is not w2")]
    {
        let mut join = cluster.join_command("w2", "w2", last);
        join.args(["--bind", &(cluster.at)(4).to_string()]).arg("--token-file").arg(cluster.folder("worker"));
        let out = join.bounded_output();
        let text = output_text(&out);
        let wanted = text.contains(why) && text.contains(&cluster.api(last)) && text.contains("next: set --advertise");
        assert!(out.status.code() == Some(4) && wanted, "{text}");
        assert!(!cluster.folder("w2/identity.json").exists());

        // A client of another implementation says by `answers: false` that it answers no dial-back
        // requests. The leader ignores that field and dials the address.
        let key = NodeKey::load_or_create(&cluster.folder("w2")).expect("a key");
        let request = serde_json::json!({
            "secret": token.secret().reveal(), "name": "w2", "advertise": cluster.api(last), "answers": false,
            "gossip_addr": format!("{}:7946", (cluster.at)(last)), "node_public_key": hex::encode(key.public()),
            "tls_csr_pem": key.csr_pem().expect("a request"), "machine_id": "m", "version": "0.1.0",
        });
        let tls = ClientTls::joiner(token.ca_digest()).expect("TLS");
        let answer = wait(Client::tls(cluster.api(1), &tls, None).post::<Value>(join::JOIN_PATH, &request));
        assert_eq!(answer.expect_err("refused").code(), Some(code));
    }
    assert_eq!((cluster.names(), cluster.pending_machines()), before);
}

/// docs/design/scenarios.md, E13: another machine uses the node's key, for example after a copy of
/// its disk.
#[test]
fn a_copied_key_does_not_take_over_a_live_nodes_address_but_the_returning_node_does() {
    let cluster = Cluster::new(false);
    let mut w1 = cluster.worker("w1", 2);
    let row = || cluster.m1.json("status")["nodes"][1].clone();
    wait_until("w1 is alive", || (row()["presence"] == "alive").then_some(()));
    let before = (row()["id"].clone(), row()["api"].clone());
    let copy = |folder: &str| {
        fs::create_dir(cluster.folder(folder)).expect("made");
        fs::copy(cluster.folder("w1/node.key"), cluster.folder(folder).join("node.key")).expect("copied");
    };
    copy("copy");
    let out = cluster.join_command("copy", "w1", 9).arg("--token-file").arg(cluster.folder("worker")).bounded_output();
    let elsewhere = format!("w1 runs at {}:7946", (cluster.at)(2));
    let text = output_text(&out);
    let wanted = [elsewhere.as_str(), "not joined a second time", "next: on a copy of w1's disk: rm node.key"];
    assert!(out.status.code() == Some(4) && wanted.iter().all(|part| text.contains(part)), "{text}");
    assert!(!cluster.folder("copy/identity.json").exists());
    assert_eq!((row()["id"].clone(), row()["api"].clone()), before);
    let warnings = cluster.m1.json("status")["warnings"].to_string();
    assert!(warnings.contains(&elsewhere), "{warnings}");

    // The machine to which the key belongs returns, first at its old address and later at another
    // address.
    w1.kill();
    copy("again");
    run_successfully(cluster.join_command("again", "w1", 2).arg("--token-file").arg(cluster.folder("worker")));
    let mut again = Daemon::start(&cluster.folder("again"));
    wait_until("w1 is alive again", || (again.json("status")["manager"]["name"] == "m1").then_some(()));
    again.kill();
    wait_until("w1 is away", || (row()["presence"] == "away").then_some(()));
    copy("moved");
    run_successfully(cluster.join_command("moved", "w1", 8).arg("--token-file").arg(cluster.folder("worker")));
    assert_eq!(row()["id"], before.0);
    let _moved = Daemon::start(&cluster.folder("moved"));
    wait_until("w1 is alive at its new address", || (row()["presence"] == "alive").then_some(()));
}

#[test]
fn the_gossip_key_is_replaced_without_interruption_and_absent_nodes_get_it_on_return() {
    let cluster = Cluster::new(false);
    let mut w1 = cluster.worker("w1", 2);
    let mut w2 = cluster.worker("w2", 3);
    let alive = |wanted: &[&str]| {
        wait_until(&format!("{wanted:?} are alive"), || {
            let nodes = cluster.m1.json("status")["nodes"].as_array().cloned()?;
            let alive = |name: &&str| nodes.iter().any(|n| n["name"] == **name && n["presence"] == "alive");
            wanted.iter().all(alive).then_some(())
        });
    };
    alive(&["m1", "w1", "w2"]);
    w2.kill();
    wait_until("w2 is away", || (cluster.m1.json("status")["nodes"][2]["presence"] == "away").then_some(()));
    let key = |name: &str| cluster.credentials(name).gossip_key;
    let old = key("m1");
    assert!(old == key("w1") && old == key("w2"));

    let out = cluster.m1.ask(&["key", "rotate", "gossip"]);
    assert_eq!(out.status.code(), Some(0), "{}", output_text(&out));
    let out = cluster.m1.ask(&["key", "rotate", "gossip"]);
    assert!(out.status.code() == Some(4) && output_text(&out).contains("in progress already"), "{}", output_text(&out));
    let text = output_text(&cluster.m1.ask(&["key", "status"]));
    assert!(text.contains("all nodes accept it") && text.contains("w2"), "{text}");
    wait_until("the new key is the only one", || {
        let keys = {
            let out = cluster.m1.ask(&["key", "status", "--json"]);
            serde_json::from_slice::<Value>(&out.stdout).unwrap_or_default()
        };
        (keys["gossip"].is_null() && keys["serial"].as_u64()? > 0).then_some(())
    });
    wait_until("m1 and w1 have only this key", || {
        let held = ["m1", "w1"].map(|name| cluster.credentials(name));
        held.iter().all(|c| c.gossip_others.is_empty() && c.gossip_key == held[0].gossip_key).then_some(())
    });
    let new = key("m1");
    assert!(new != old && key("w2") == old);
    alive(&["m1", "w1"]);

    // The absent node w2 has only the old gossip key. The certificate of w2 lets it return.
    let _w2 = Daemon::start(&cluster.folder("w2"));
    alive(&["w2"]);
    wait_until("w2 has the new key", || (key("w2") == new).then_some(()));
    // w1 is alive again after a restart. The machine w3 joins now and also gets the new gossip key.
    w1.kill();
    wait_until("w1 is away", || (cluster.m1.json("status")["nodes"][1]["presence"] == "away").then_some(()));
    let _w1 = Daemon::start(&cluster.folder("w1"));
    let _w3 = cluster.worker("w3", 4);
    assert!(key("w3") == new);
    alive(&["w1", "w2", "w3"]);
    let history = cluster.m1.json("history").to_string();
    assert!(history.contains("the new gossip key is the only one") && !history.contains(new.to_hex().reveal()));
    for name in ["m1", "w1", "w2"] {
        let log = fs::read_to_string(cluster.folder(name).join("log")).expect("a log");
        assert!(!log.contains(new.to_hex().reveal()) && !log.contains(old.to_hex().reveal()), "{name}");
    }
}

#[test]
fn the_operator_may_supply_the_first_gossip_key() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("key");
    let key = "5a".repeat(32);
    let init = |text: &str, mode: u32| {
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        let mut init = remoor();
        init.args(["init", "--name", "m1", "--advertise", "127.0.0.1", "--gossip-key-file"]).arg(&file);
        init.arg("--dir").arg(dir.path().join("m1")).bounded_output()
    };
    for (text, mode, why) in [(key.as_str(), 0o644, "others may use it"), ("abc", 0o600, "not 64 hex digits")] {
        let out = init(text, mode);
        assert!(
            out.status.code() == Some(2) && output_text(&out).contains(why) && !output_text(&out).contains(&key),
            "{}",
            output_text(&out)
        );
        assert!(!dir.path().join("m1/identity.json").exists());
    }
    let out = init(&format!("{key}\n"), 0o600);
    assert!(out.status.success() && !output_text(&out).contains(&key), "{}", output_text(&out));
    let credentials = Credentials::load(&dir.path().join("m1")).expect("read").expect("credentials");
    assert_eq!(credentials.gossip_key.to_hex().reveal(), key);
}
