//! The list of operators. An attacker with the CA's key can mint certificates, but no node accepts
//! orders with them. Each operator on the list can be revoked alone, also the operator of `init`.

use super::*;
use crate::formats::unpack_data_dir;
use remoor_cluster::rpc::ca::{ClusterCa, Validity};
use remoor_cluster::rpc::identity::TlsIdentity;
use remoor_cluster::rpc::node::{MANAGE_PATH, ManageRequest};
use remoor_model::{Epoch, INIT_OPERATOR};
use serde_json::json;
use std::path::Path;

/// The output of a command that asks the manager .1 with the credentials in `file`.
fn ask_as(cluster: &Cluster, file: &Path, args: &[&str]) -> Output {
    let mut command = remoor();
    command.args(args).args(["--manager", &cluster.api(1), "--credentials"]).arg(file).bounded_output()
}

#[track_caller]
fn assert_refused(out: &Output, why: &str) {
    let text = output_text(out);
    assert!(out.status.code() == Some(4) && text.contains(why), "{why}: {text}");
}

/// One route of each kind: reads, streams, orders, and orders about operators and keys.
const ROUTES: [(&str, &str); 9] = [
    ("GET", "/v1/status"),
    ("GET", "/v1/history"),
    ("GET", "/v1/watch"),
    ("GET", "/v1/raft/state"),
    ("POST", "/v1/apply"),
    ("POST", "/v1/nodes/w1/pause"),
    ("POST", "/v1/operators"),
    ("POST", "/v1/operators/revoke"),
    ("POST", "/v1/tokens/rotate"),
];

fn request(client: &Client, (method, path): (&str, &str)) -> Result<(), ApiError> {
    let body = json!({"name": INIT_OPERATOR, "role": "worker"}).to_string();
    wait(async {
        match method {
            "GET" if path == "/v1/watch" => client.stream_lines(path).await.map(drop),
            "GET" => client.get_bytes(path).await.map(drop),
            _ => client.post_bytes(path, body.into()).await.map(drop),
        }
    })
}

#[test]
fn a_certificate_minted_with_the_cas_key_can_order_nothing() {
    let cluster = Cluster::new(false);
    let _w1 = cluster.worker("w1", 2);
    wait_until("w1 is alive", || (cluster.m1.json("status")["nodes"][1]["presence"] == "alive").then_some(()));
    let applied = || cluster.m1.json("status")["nodes"][1]["availability"].clone();
    let (before, ca) = (applied(), ClusterCa::load(&cluster.folder("m1/ca")).expect("the CA"));
    let validity = || Validity::days_from_now(30);
    for name in [INIT_OPERATOR, "zoe", "root@m1"] {
        let minted = ca.issue_operator(name, validity()).expect("minted");
        let tls = ClientTls::member(&minted).expect("TLS");
        for route in ROUTES {
            let answer = request(&Client::tls(cluster.api(1), &tls, None), route);
            let Err(ApiError::Status { code, message, next, .. }) = answer else { panic!("{route:?}: {answer:?}") };
            assert!(code == "forbidden" && message.contains("not on the list"), "{route:?}: {message}");
            assert!(next.is_some_and(|next| next.contains("remoor key operator")), "{route:?}");
        }
    }

    // A certificate with the manager's id but another key can't make a worker a manager.
    let (m1, w1, key) = (cluster.credentials("m1"), cluster.credentials("w1"), NodeKey::generate().expect("a key"));
    let csr = key.csr_pem().expect("a request");
    let cert_pem = ca.issue_as(true, m1.node, &"m1".into(), Epoch(1), &csr, validity()).expect("minted");
    let minted = TlsIdentity { cert_pem, key_pem: key.to_pem().expect("a key"), ..m1.tls() };
    let order = ManageRequest {
        cluster: w1.cluster.clone(),
        epoch: w1.epoch,
        node: w1.node,
        raft: remoor_model::RaftId(99),
        managers: Vec::new(),
    };
    let client = Client::tls(cluster.api(2), &ClientTls::member(&minted).expect("TLS"), Some(w1.node));
    let answer = wait(client.post::<Value>(MANAGE_PATH, &order));
    assert_eq!(answer.expect_err("refused").code(), Some("forbidden"));
    let identity: Value =
        serde_json::from_slice(&fs::read(cluster.folder("w1/identity.json")).expect("read")).expect("JSON");
    assert!(identity["raft"].is_null(), "{identity}");
    assert_eq!(applied(), before);
}

#[test]
fn every_operator_is_listed_and_revoked_alone() {
    let cluster = Cluster::new(false);
    let (own, zoe, max) = (cluster.folder("m1/operator.json"), cluster.folder("zoe.json"), cluster.folder("max.json"));
    for (name, file) in [("zoe", &zoe), ("max", &max)] {
        run_successfully(
            remoor().args(["key", "operator", name, "--file"]).arg(file).arg("--socket").arg(cluster.folder("m1/s")),
        );
    }
    let listed = || {
        let keys: Value = serde_json::from_slice(&cluster.m1.ask(&["key", "status", "--json"]).stdout).expect("JSON");
        let mut listed: Vec<_> = keys["operators"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|o| (o["name"].clone(), o["state"].clone()))
            .collect();
        listed.sort_by_key(|(name, _)| name.to_string());
        listed
            .into_iter()
            .map(|(name, state)| format!("{} {}", name.as_str().unwrap_or(""), state.as_str().unwrap_or("")))
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(), ["max counts", "operator counts", "zoe counts"]);
    for file in [&own, &zoe, &max] {
        assert!(ask_as(&cluster, file, &["status"]).status.success());
    }
    // An operator can revoke another one, and even its own credentials.
    assert!(ask_as(&cluster, &zoe, &["key", "operator", INIT_OPERATOR, "--revoke"]).status.success());
    assert_refused(&ask_as(&cluster, &own, &["status"]), "were revoked at");
    for file in [&zoe, &max] {
        assert!(ask_as(&cluster, file, &["status"]).status.success());
    }
    assert!(ask_as(&cluster, &zoe, &["key", "operator", "zoe", "--revoke"]).status.success());
    assert_refused(&ask_as(&cluster, &zoe, &["pause", "m1"]), "were revoked at");
    assert_eq!(listed(), ["max counts", "operator revoked", "zoe revoked"]);
    // The third operator can still give orders.
    assert!(ask_as(&cluster, &max, &["key", "rotate", "gossip"]).status.success());
}

#[test]
fn an_invalid_operator_name_is_refused_before_anything_is_created() {
    let cluster = Cluster::new(false);
    for name in ["../x", "a/b", "root@m1", "", "a\nb", &"x".repeat(65)] {
        let file = cluster.folder("new.json");
        let mut command = remoor();
        command.args(["key", "operator", name, "--file"]).arg(&file).arg("--socket").arg(cluster.folder("m1/s"));
        let out = command.bounded_output();
        let text = output_text(&out);
        assert!(out.status.code() == Some(2) && text.contains("is not a valid operator name"), "{name:?}: {text}");
        assert!(!file.exists() && text.lines().count() < 6, "{text}");
    }
    let client = Client::unix(cluster.folder("m1/s"));
    let answer = wait(client.post::<Value>("/v1/operators", &json!({"name": "../x"})));
    assert_eq!(answer.expect_err("refused").code(), Some("refused"));
}

/// Nobody is locked out by the upgrade: the list begins with the first new credentials.
#[test]
fn a_cluster_of_an_earlier_version_begins_its_list_with_the_first_new_credentials() {
    let (dir, at) = (tempfile::tempdir().expect("a folder"), net()(1));
    let home = unpack_data_dir(dir.path(), 1, at);
    let m1 = Daemon::start(&home);
    let (own, eve, zoe) = (home.join("operator.json"), dir.path().join("eve.json"), dir.path().join("zoe.json"));
    let ask = |file: &Path| {
        let mut status = remoor();
        status.args(["status", "--manager", &format!("{at}:7947"), "--credentials"]).arg(file).bounded_output()
    };
    let warns = || m1.json("status")["warnings"].to_string().contains("begin the list of operators");
    wait_until("the credentials of init are accepted", || ask(&own).status.success().then_some(()));
    let ca = ClusterCa::load(&home.join("ca")).expect("the CA");
    let minted = ca.issue_operator("eve", Validity::days_from_now(30)).expect("minted");
    minted.save(&eve).expect("saved");
    assert!(ask(&eve).status.success() && warns(), "as in the earlier version");

    let out = m1.ask(&["key", "operator", "zoe", "--file", zoe.to_str().expect("UTF-8")]);
    assert!(out.status.success(), "{}", output_text(&out));
    assert_refused(&ask(&eve), "not on the list");
    assert!(ask(&zoe).status.success() && !warns());
    wait_until("m1 has put the credentials of init on the list", || ask(&own).status.success().then_some(()));
}
