//! The CA is replaced while daemons run. No node loses access, whichever nodes die, join or leave
//! meanwhile. Afterwards no node accepts the old CA.

use super::*;
use crate::local::three_managers;
use crate::time_limit::BoundedCommand;
use remoor_cluster::rpc::token;

fn credentials(dir: &std::path::Path, name: &str) -> Credentials {
    Credentials::load(&dir.join(name)).expect("read").expect("credentials")
}

/// The number of CAs that a node trusts, and the digest of the CA that issues its certificates.
fn trust(dir: &std::path::Path, name: &str) -> (usize, String) {
    let ca_pem = credentials(dir, name).ca_pem;
    (ca_pem.matches("BEGIN CERTIFICATE").count(), token::ca_digest(&ca_pem).expect("a CA"))
}

fn keys(of: &Daemon) -> Value {
    serde_json::from_slice(&of.ask(&["key", "status", "--json"]).stdout).unwrap_or_default()
}

/// The states of the credentials of this name on the list of operators.
fn operator_states(of: &Daemon, name: &str) -> Vec<Value> {
    let listed = keys(of)["operators"].as_array().cloned().unwrap_or_default();
    listed.into_iter().filter(|o| o["name"] == name).map(|o| o["state"].clone()).collect()
}

fn wait_until_alive(of: &Daemon, wanted: &[&str]) {
    wait_until(&format!("{wanted:?} are alive"), || {
        let nodes = of.json("status")["nodes"].as_array().cloned()?;
        let alive = |name: &&str| nodes.iter().any(|n| n["name"] == **name && n["presence"] == "alive");
        wanted.iter().all(alive).then_some(())
    });
}

fn wait_until_away(of: &Daemon, name: &str) {
    wait_until(&format!("{name} is away"), || {
        let nodes = of.json("status")["nodes"].as_array().cloned()?;
        let gone = |n: &Value| n["name"] == name && matches!(n["presence"].as_str(), Some("away" | "agent-down"));
        nodes.iter().any(gone).then_some(())
    });
}

fn wait_for_step(of: &Daemon, wanted: &str) {
    wait_until(&format!("the rotation is at {wanted}"), || (keys(of)["ca"]["next"]["step"] == wanted).then_some(()));
}

fn wait_until_rotated(of: &Daemon, serial: u64) -> u64 {
    wait_until("the rotation has ended", || {
        let keys = keys(of);
        let now = keys["ca"]["serial"].as_u64()?;
        (keys["ca"]["next"].is_null() && now > serial).then_some(now)
    })
}

fn waits_for_w2_alone(of: &Daemon) {
    wait_until("only w2 is outstanding", || {
        let next = &keys(of)["ca"]["next"];
        let (here, away) = (next["waits_for"].as_array()?, next["away"].as_array()?);
        (here.is_empty() && away.len() == 1 && away[0] == "w2" && next["step"] == "trust").then_some(())
    });
}

/// The index of the leader among m1, m2 and m3, from 0.
fn leader_index(of: &Daemon) -> usize {
    wait_until("a manager leads", || {
        of.json("status")["as_of"]["leader"].as_str()?.strip_prefix('m')?.parse::<usize>().ok()?.checked_sub(1)
    })
}

/// Writes a log entry through the current leader.
fn write_entry(of: &Daemon, dir: &std::path::Path) {
    let out = wait_until("an order is accepted", || {
        let out = of.ask(&["token", "rotate", "--role", "worker", "-q"]);
        out.status.success().then_some(out)
    });
    fs::write(dir.join("worker"), String::from_utf8_lossy(&out.stdout).trim()).expect("written");
}

fn all_vote(of: &Daemon, wanted: usize) {
    wait_until(&format!("{wanted} are voters"), || {
        let nodes = of.json("status")["nodes"].as_array().cloned()?;
        let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("voter" | "leader"));
        (nodes.iter().filter(votes).count() == wanted).then_some(())
    });
}

/// The output of `join` for a worker. `token` is the name of the token's file.
fn join_worker(dir: &std::path::Path, name: &str, address: Ipv4Addr, to: Ipv4Addr, token: &str) -> Output {
    let mut join = remoor();
    join.args(["join", &format!("{to}:7947"), "--name", name, "--advertise", &address.to_string(), "--dir"]);
    join.arg(dir.join(name)).arg("--token-file").arg(dir.join(token)).bounded_output()
}

#[track_caller]
fn order_successfully(of: &Daemon, args: &[&str]) {
    let out = of.ask(args);
    assert!(out.status.success(), "{args:?}: {}", output_text(&out));
}

/// Checks that the order succeeds and that `expected` is in its output.
#[track_caller]
fn assert_accepted(of: &Daemon, args: &[&str], expected: &str) {
    let out = of.ask(args);
    assert!(out.status.success() && output_text(&out).contains(expected), "{args:?}: {}", output_text(&out));
}

/// Checks that the order exits with 4 and that `expected` is in its output.
#[track_caller]
fn assert_refused(of: &Daemon, args: &[&str], expected: &str) {
    let out = of.ask(args);
    assert!(out.status.code() == Some(4) && output_text(&out).contains(expected), "{args:?}: {}", output_text(&out));
}

/// Waits until these nodes trust the same single CA, which is not `old`. Returns its digest.
fn all_trust_another(dir: &std::path::Path, names: &[&str], old: &str) -> String {
    wait_until(&format!("{names:?} trust only the new CA"), || {
        let new = trust(dir, names[0]);
        (new.0 == 1 && new.1 != old && names.iter().all(|name| trust(dir, name) == new)).then_some(new.1)
    })
}

/// The names of the CA key files that this manager has. None: it has no directory for them.
fn keys_in(dir: &std::path::Path, name: &str) -> Option<Vec<std::ffi::OsString>> {
    let entries = fs::read_dir(dir.join(name).join("ca")).ok()?.flatten();
    let mut files: Vec<_> = entries.map(|e| e.file_name()).collect();
    files.sort();
    Some(files)
}

/// Checks that the managers .1, .2 and .3 accept the certificate `after` and reject `before`, which
/// is a certificate of the same node.
fn assert_only_renewed_is_accepted(at: impl Fn(u8) -> Ipv4Addr, before: &Credentials, after: &Credentials) {
    assert_eq!((after.node, &after.key_pem, &after.gossip_key), (before.node, &before.key_pem, &before.gossip_key));
    let peers = |as_of: &Credentials, last: u8| {
        let tls = ClientTls::member(&as_of.tls()).expect("TLS");
        wait(Client::tls(format!("{}:7947", at(last)), &tls, None).get::<PeersReply>("/agent/v1/peers"))
    };
    for last in [1, 2, 3] {
        peers(after, last).expect("the same node as before");
        let refused = peers(before, last).expect_err("the old one opens nothing");
        assert_eq!(refused.code(), Some("credential-expired"), "{refused:?}");
    }
}

/// Checks that private keys are only where they belong: not in the history, not in a log, and not
/// on a worker.
fn assert_no_key_is_shown(dir: &std::path::Path, manager: &Daemon, all: &[&str]) {
    let history = manager.json("history").to_string();
    assert!(history.contains("the new CA is the only one") && !history.contains("PRIVATE KEY"));
    for name in all {
        let log = fs::read_to_string(dir.join(name).join("log")).expect("a log");
        assert!(!log.contains("PRIVATE KEY"), "{name}");
    }
    for name in ["w1", "w5"] {
        assert!(!dir.join(name).join("ca").exists(), "only managers have keys of CAs");
    }
}

fn wait_until_managers_are_ready(managers: &[Daemon]) {
    wait_until_alive(&managers[0], &["m1", "m2", "m3"]);
    all_vote(&managers[0], 3);
    wait_until("m2 answers, and knows who leads", || {
        managers[1].ask(&["key", "status"]).status.success().then_some(())
    });
}

/// Checks that the rotation waits only for w2, and that both `key status` and `status` report it.
fn assert_shown_to_wait_for_w2(of: &Daemon) {
    waits_for_w2_alone(of);
    let text = output_text(&of.ask(&["key", "status"]));
    assert!(text.contains("waits for (away): w2") && text.contains("remoor key rotate ca --finish"), "{text}");
    let status = output_text(&of.ask(&["status"]));
    assert!(status.contains("the new CA waits for w2"), "{status}");
}

/// The leader is killed at two of the three steps of the rotation. A manager is absent at the
/// beginning, a worker misses the first step, and a machine joins at each step.
#[test]
fn the_ca_is_replaced_despite_failures_and_nodes_that_missed_a_step_catch_up() {
    let (dir, at) = (tempfile::tempdir().expect("a folder"), net());
    let dir = dir.path();
    let mut managers = three_managers(dir, at);
    wait_until_managers_are_ready(&managers);
    let join = |name: &str, last: u8, via: u8, token: &str| join_worker(dir, name, at(last), at(via), token);
    let worker = |name: &str, last: u8, via: u8| {
        let out = join(name, last, via, "worker");
        assert!(out.status.success(), "{}", output_text(&out));
        Daemon::start(&dir.join(name))
    };
    let (_w1, mut w2) = (worker("w1", 11, 2), worker("w2", 12, 2));
    let m2 = &managers[1];
    wait_until_alive(m2, &["m1", "m2", "m3", "w1", "w2"]);
    let (old, before) = (trust(dir, "w1"), credentials(dir, "w1"));
    assert_eq!(old.0, 1);
    w2.kill();
    wait_until_away(m2, "w2");
    write_entry(m2, dir);

    // Without m3 the rotation begins but can't end, because it must include every manager. m3 later
    // fetches the keys that it lacks.
    managers[2].kill();
    let m2 = &managers[1];
    wait_until_away(m2, "m3");
    wait_until("a manager other than m3 leads", || (leader_index(m2) != 2).then_some(()));
    let text = "m3 can't be reached, and the rotation can't end without";
    assert_accepted(m2, &["key", "rotate", "ca"], text);
    assert_refused(m2, &["key", "rotate", "ca", "--finish", "--yes"], "m3 is a manager and is away");
    managers[2] = Daemon::start(&dir.join("m3"));
    let m2 = &managers[1];
    for again in ["ca", "gossip"] {
        assert_refused(m2, &["key", "rotate", again], "in progress");
    }
    assert_shown_to_wait_for_w2(m2);
    assert!(["m1", "m2", "m3", "w1"].iter().all(|n| trust(dir, n) == (2, old.1.clone())), "the old one issues");
    let _w3 = worker("w3", 13, 2);
    assert_eq!(trust(dir, "w3"), (2, old.1.clone()));

    // The leader dies. The next leader continues from the log.
    let leader = leader_index(&managers[1]);
    managers[leader].kill();
    let next = &managers[(leader + 1) % 3];
    wait_until("another leads", || (leader_index(next) != leader).then_some(()));
    write_entry(next, dir);
    fs::copy(dir.join("worker"), dir.join("old-worker")).expect("copied");
    managers[leader] = Daemon::start(&dir.join(format!("m{}", leader + 1)));
    wait_until_alive(&managers[1], &["m1", "m2", "m3", "w1", "w3"]);
    assert_refused(&managers[1], &["key", "rotate", "ca", "--finish"], "does not wait for them:");

    // The rotation goes on to its next step without a follower, because that follower has confirmed
    // the previous step. But the rotation does not end without the follower.
    waits_for_w2_alone(&managers[1]);
    let leader = leader_index(&managers[1]);
    let (killed, other) = ((leader + 1) % 3, (leader + 2) % 3);
    managers[killed].kill();
    let (at_other, m) = (other as u8 + 1, &managers[other]);
    wait_until_away(m, &format!("m{}", killed + 1));
    assert_accepted(m, &["key", "rotate", "ca", "--finish", "--yes"], "w2");
    wait_for_step(m, "issue");
    // Meanwhile w2 returns, which missed all steps of the rotation. A machine joins with a token
    // from before the rotation.
    assert_eq!(trust(dir, "w2"), old);
    let _w2 = Daemon::start(&dir.join("w2"));
    wait_until("w2 has a certificate of the new CA without an approval", || {
        (trust(dir, "w2").1 != old.1).then_some(())
    });
    let out = join("w4", 14, at_other, "old-worker");
    assert!(out.status.success(), "an old token is still valid: {}", output_text(&out));
    let _w4 = Daemon::start(&dir.join("w4"));
    write_entry(m, dir);
    let _w5 = worker("w5", 15, at_other);
    wait_until_alive(m, &["w1", "w2", "w3", "w4", "w5"]);
    assert_eq!(keys(m)["ca"]["next"]["step"], "issue");
    // The leader dies for the second time.
    managers[leader].kill();
    managers[killed] = Daemon::start(&dir.join(format!("m{}", killed + 1)));
    wait_until("another leads", || managers[other].ask(&["key", "status"]).status.success().then_some(()));
    write_entry(&managers[other], dir);
    managers[leader] = Daemon::start(&dir.join(format!("m{}", leader + 1)));
    let m2 = &managers[1];
    wait_until_rotated(m2, 0);

    let all = ["m1", "m2", "m3", "w1", "w2", "w3", "w4", "w5"];
    let new = all_trust_another(dir, &all, &old.1);
    wait_until_alive(m2, &all);
    for manager in &managers {
        wait_until("each knows a leader", || (manager.json("status")["as_of"]["stale"] == false).then_some(()));
    }
    assert_only_renewed_is_accepted(at, &before, &credentials(dir, "w1"));
    let out = join("w6", 16, 2, "old-worker");
    let why = output_text(&out);
    assert!(!out.status.success() && why.contains("a CA that was replaced since"), "{why}");
    write_entry(m2, dir);
    assert!(fs::read_to_string(dir.join("worker")).expect("a token").contains(&new), "new tokens name the new one");
    assert_eq!(join("w6", 16, 3, "worker").status.code(), Some(0));
    assert_no_key_is_shown(dir, m2, &all);
}

/// The test also covers everything that depends on the CA's key: the gossip key, the operator's
/// credentials, a manager that joins later, and a restart.
#[test]
fn a_worker_that_missed_a_rotation_is_accepted_again_and_a_second_rotation_follows() {
    let mut cluster = Cluster::new(false);
    let dir = cluster.dir.path().to_owned();
    let _w1 = cluster.worker("w1", 2);
    let (mut w2, mut w3) = (cluster.worker("w2", 3), cluster.worker("w3", 5));
    wait_until_alive(&cluster.m1, &["m1", "w1", "w2", "w3"]);
    w2.kill();
    w3.kill();
    wait_until_away(&cluster.m1, "w2");
    order_successfully(&cluster.m1, &["remove", "w3", "--force", "--yes", "--keep-gossip-key"]);
    let (old, before) = (trust(&dir, "w2"), cluster.credentials("w2"));
    let copy = dir.join("copy.json");
    fs::copy(dir.join("m1/operator.json"), &copy).expect("copied");
    let finish = ["key", "rotate", "ca", "--finish", "--yes"];
    assert_refused(&cluster.m1, &finish, "no CA rotation is in progress");
    order_successfully(&cluster.m1, &["key", "rotate", "ca"]);
    order_successfully(&cluster.m1, &finish);
    let first = wait_until_rotated(&cluster.m1, 0);
    all_trust_another(&dir, &["m1", "w1"], &old.1);

    // Copies of the operator's credentials from before the rotation are rejected with a reason. The
    // credentials on m1 were renewed with the rotation.
    let operator = |file: &std::path::Path| {
        let mut status = remoor();
        status.args(["status", "--manager", &cluster.api(1), "--credentials"]).arg(file);
        status.bounded_output()
    };
    // A manager stores the new CA just before it uses it, and closes open connections at the end of
    // the rotation. So the first answer may be a success, or a rejection without a reason.
    let is_rejected = |out: &Output| !out.status.success() && output_text(out).contains("was replaced");
    wait_until("copies are rejected with a reason", || is_rejected(&operator(&copy)).then_some(()));
    let again = operator(&copy);
    assert!(is_rejected(&again), "{}", output_text(&again));
    wait_until("the operator's credentials on m1 are from the new CA", || {
        operator(&dir.join("m1/operator.json")).status.success().then_some(())
    });

    // One order creates credentials of the operator zoe, and another order revokes them.
    let zoe = dir.join("zoe.json");
    order_successfully(&cluster.m1, &["key", "operator", "zoe", "--file", &zoe.display().to_string()]);
    assert!(operator(&zoe).status.success());
    order_successfully(&cluster.m1, &["key", "operator", "zoe", "--revoke"]);
    let out = operator(&zoe);
    let why = output_text(&out);
    assert!(out.status.code() == Some(4) && why.contains("of zoe were revoked at"), "{why}");
    assert_eq!(operator_states(&cluster.m1, "zoe"), ["revoked"]);
    assert!(operator_states(&cluster.m1, "operator").contains(&"counts".into()), "the renewed ones");
    // A removed node learns that it was removed, and not only that its certificate is invalid.
    let w3 = Daemon::start(&dir.join("w3"));
    wait_until("w3 knows that it was removed", || {
        let why = w3.json("status")["node"]["removed"].as_str().map(str::to_owned)?;
        why.starts_with("w3 was removed from the cluster at").then_some(())
    });

    let _w2 = Daemon::start(&dir.join("w2"));
    let waits = wait_until("w2 waits", || cluster.pending_machines().into_iter().next());
    assert_eq!((&waits["name"], &waits["why"]), (&"w2".into(), &"certificate".into()));
    assert_eq!(trust(&dir, "w2"), old, "nothing without a yes");
    order_successfully(&cluster.m1, &["accept", "w2"]);
    wait_until("w2 is the same node as before", || cluster.peers_as("w2").ok());
    let after = cluster.credentials("w2");
    assert_eq!((after.node, after.key_pem, trust(&dir, "w2")), (before.node, before.key_pem, trust(&dir, "w1")));
    wait_until("no machine waits any more", || cluster.pending_machines().is_empty().then_some(()));

    // From now on, the gossip key is derived from the new CA's key. The gossip key is rotated once
    // more, then a daemon is restarted.
    let gossips = |serial: u64| {
        order_successfully(&cluster.m1, &["key", "rotate", "gossip"]);
        wait_until("all have the new gossip key", || {
            let held = ["m1", "w1", "w2"].map(|name| cluster.credentials(name));
            let same = held.iter().all(|c| c.gossip_others.is_empty() && c.gossip_key == held[0].gossip_key);
            let now = keys(&cluster.m1)["serial"].as_u64()?;
            (same && now > serial && held[0].gossip_key != before.gossip_key).then_some(now)
        })
    };
    let serial = gossips(0);
    order_successfully(&cluster.m1, &["key", "rotate", "ca"]);
    wait_until_rotated(&cluster.m1, first);
    cluster.m1.kill();
    cluster.m1 = Daemon::start(&dir.join("m1"));
    wait_until_alive(&cluster.m1, &["m1", "w1", "w2"]);
    let public = cluster.public_token();
    assert!(public.contains(&trust(&dir, "m1").1) && trust(&dir, "m1").0 == 1);

    // A manager that joins now receives the keys of the needed former CAs, and can lead.
    let manager = output_text(&cluster.m1.ask(&["token", "rotate", "--role", "manager", "-q"]));
    fs::write(dir.join("manager"), manager.trim()).expect("written");
    run_successfully(cluster.join_command("m2", "m2", 4).arg("--manager").arg("--token-file").arg(dir.join("manager")));
    let _m2 = Daemon::start(&dir.join("m2"));
    wait_until_alive(&cluster.m1, &["m2", "w1", "w2"]);
    assert!(cluster.credentials("m2").gossip_key == cluster.credentials("w1").gossip_key && serial > 0);
    let held = wait_until("the manager has the keys", || {
        keys_in(&dir, "m2").filter(|held| keys_in(&dir, "m1").as_ref() == Some(held))
    });
    assert_eq!(held.len(), 6, "the first, the one of the gossip key, the present one: a certificate and a key each");
}

/// The CA is rotated after the worker w1 has left and the absent manager m3 was demoted. w1 returns
/// with a token and keeps its identity. m3 returns after an approval, as a worker.
#[test]
fn a_worker_that_left_and_a_forcibly_removed_manager_come_back_after_a_rotation() {
    let (dir, at) = (tempfile::tempdir().expect("a folder"), net());
    let dir = dir.path();
    let mut managers = three_managers(dir, at);
    all_vote(&managers[0], 3);
    let out = join_worker(dir, "w1", at(11), at(1), "worker");
    assert!(out.status.success(), "{}", output_text(&out));
    let mut w1 = Daemon::start(&dir.join("w1"));
    wait_until_alive(&managers[0], &["m1", "m2", "m3", "w1"]);
    let (old, before) = (trust(dir, "w1"), credentials(dir, "w1"));
    order_successfully(&w1, &["leave", "--yes"]);
    w1.kill();
    managers[2].kill();
    let m1 = &managers[0];
    wait_until_away(m1, "m3");
    wait_until("a manager other than m3 leads", || (leader_index(m1) != 2).then_some(()));

    order_successfully(m1, &["key", "rotate", "ca"]);
    let finish = ["key", "rotate", "ca", "--finish", "--yes"];
    let out = m1.ask(&finish);
    assert!(
        out.status.code() == Some(4) && output_text(&out).contains("m3 is a manager and is away"),
        "{}",
        output_text(&out)
    );
    order_successfully(m1, &["demote", "m3"]);
    order_successfully(m1, &finish);
    wait_until_rotated(m1, 0);
    let new = all_trust_another(dir, &["m1", "m2"], &old.1);

    // The old token is rejected, because it names a CA that does not exist anymore. With the
    // current token, w1 joins from its old directory.
    let out = join_worker(dir, "w1", at(11), at(2), "worker");
    let why = output_text(&out);
    assert!(!out.status.success() && why.contains("a CA that was replaced since"), "{why}");
    write_entry(m1, dir);
    let out = join_worker(dir, "w1", at(11), at(2), "worker");
    assert!(out.status.success(), "{}", output_text(&out));
    let _w1 = Daemon::start(&dir.join("w1"));
    wait_until_alive(m1, &["m1", "m2", "w1"]);
    let after = credentials(dir, "w1");
    assert_eq!((after.node, after.key_pem, trust(dir, "w1")), (before.node, before.key_pem, (1, new.clone())));

    // m3 believes that it is a manager, but no node trusts its certificate.
    managers[2] = Daemon::start(&dir.join("m3"));
    let m1 = &managers[0];
    let waits = wait_until("m3 waits", || {
        m1.json("nodes")["pending"].as_array()?.iter().find(|waits| waits["name"] == "m3").cloned()
    });
    assert_eq!((&waits["why"], &waits["state"]), (&"certificate".into(), &"waiting".into()));
    assert_eq!(trust(dir, "m3"), old, "nothing without a yes");
    order_successfully(m1, &["accept", "m3"]);
    wait_until("m3 is a worker, and its log is archived", || {
        let identity: Value = serde_json::from_slice(&fs::read(dir.join("m3/identity.json")).ok()?).ok()?;
        let mut entries = fs::read_dir(dir.join("m3")).ok()?.flatten();
        let aside = entries.find(|e| e.file_name().to_string_lossy().starts_with("raft.removed-"))?;
        let whole = aside.path().join("log.redb").exists();
        (identity["raft"].is_null() && whole && managers[2].json("status")["kind"] == "agent").then_some(())
    });
    assert!(!dir.join("m3/ca").exists(), "only managers have keys of CAs");
    wait_until("m3 has a certificate of the new CA", || (trust(dir, "m3") == (1, new.clone())).then_some(()));
    wait_until_alive(m1, &["m1", "m2", "m3", "w1"]);
    all_vote(m1, 2);
}

/// Restores a backup that was made at step `moment` of a rotation. The backup has the keys of the
/// rotation, so the rotation continues. If `moment` is `trust`, the lost cluster had completed the
/// rotation after the backup, and only w2 had missed it.
fn restored_at(moment: &str) {
    let mut cluster = Cluster::new(false);
    let dir = cluster.dir.path().to_owned();
    let (mut w1, mut w2) = (cluster.worker("w1", 2), cluster.worker("w2", 3));
    wait_until_alive(&cluster.m1, &["m1", "w1", "w2"]);
    let old = trust(&dir, "m1");
    w2.kill();
    wait_until_away(&cluster.m1, "w2");
    order_successfully(&cluster.m1, &["key", "rotate", "ca"]);
    waits_for_w2_alone(&cluster.m1);
    let (file, finish) = (dir.join("backup"), ["key", "rotate", "ca", "--finish", "--yes"]);
    let backup = ["backup", file.to_str().expect("UTF-8")];
    if moment == "trust" {
        order_successfully(&cluster.m1, &backup);
        order_successfully(&cluster.m1, &finish);
        wait_until_rotated(&cluster.m1, 0);
        all_trust_another(&dir, &["m1", "w1"], &old.1);
    } else {
        // `--finish` excludes w2, but not w1, because w1 has confirmed the first step. So the
        // rotation waits for w1 in the second step.
        w1.kill();
        wait_until_away(&cluster.m1, "w1");
        order_successfully(&cluster.m1, &finish);
        wait_for_step(&cluster.m1, moment);
        order_successfully(&cluster.m1, &backup);
    }
    cluster.m1.kill();

    run_successfully(remoor().arg("restore").arg(&file).arg("--dir").arg(dir.join("again")));
    cluster.m1 = Daemon::start(&dir.join("again"));
    wait_until("the manager leads", || (cluster.m1.ask(&["status"]).status.code() == Some(0)).then_some(()));
    if moment != "trust" {
        assert_eq!(trust(&dir, "w1"), (2, old.1.clone()), "it has missed the step");
        w1 = Daemon::start(&dir.join("w1"));
    }
    assert_eq!(trust(&dir, "w2"), old);
    w2 = Daemon::start(&dir.join("w2"));
    wait_until_alive(&cluster.m1, &["m1", "w1", "w2"]);
    wait_until_rotated(&cluster.m1, 0);
    all_trust_another(&dir, &["again", "w1", "w2"], &old.1);
    for worker in [&w1, &w2] {
        wait_until("the node moved to the new epoch", || {
            (worker.json("status")["manager"]["name"] == "m1").then_some(())
        });
    }
    // A node that joins now gets a certificate of the new CA, because the manager has the key of
    // that CA.
    write_entry(&cluster.m1, &dir);
    let _w3 = cluster.worker("w3", 4);
    assert_eq!(trust(&dir, "w3"), trust(&dir, "again"));
    wait_until_alive(&cluster.m1, &["m1", "w1", "w2", "w3"]);
}

#[test]
fn a_backup_of_the_first_step_of_a_rotation_becomes_a_cluster_that_ends_it() {
    restored_at("trust");
}

#[test]
fn a_backup_of_the_second_step_of_a_rotation_becomes_a_cluster_that_ends_it() {
    restored_at("issue");
}

/// One node joins as a manager at the first step, and a worker becomes a manager at the second
/// step. Then m1, which founded the cluster, is lost.
#[test]
fn a_node_promoted_during_a_rotation_has_the_keys_and_can_lead() {
    let mut cluster = Cluster::new(false);
    let dir = cluster.dir.path().to_owned();
    let (w1, mut w2, mut w3) = (cluster.worker("w1", 2), cluster.worker("w2", 3), cluster.worker("w3", 4));
    wait_until_alive(&cluster.m1, &["m1", "w1", "w2", "w3"]);
    let old = trust(&dir, "m1");
    w2.kill();
    wait_until_away(&cluster.m1, "w2");
    order_successfully(&cluster.m1, &["key", "rotate", "ca"]);
    waits_for_w2_alone(&cluster.m1);
    run_successfully(
        cluster.join_command("m2", "m2", 5).arg("--manager").arg("--token-file").arg(cluster.folder("manager")),
    );
    let m2 = Daemon::start(&dir.join("m2"));
    all_vote(&cluster.m1, 2);
    waits_for_w2_alone(&cluster.m1);
    assert_eq!((trust(&dir, "m2"), keys_in(&dir, "m2")), ((2, old.1.clone()), keys_in(&dir, "m1")));

    // `--finish` excludes w2, but not w3, because w3 has confirmed the first step. So the rotation
    // waits for w3 in the second step.
    w3.kill();
    wait_until_away(&cluster.m1, "w3");
    order_successfully(&cluster.m1, &["key", "rotate", "ca", "--finish", "--yes"]);
    wait_for_step(&cluster.m1, "issue");
    // On a busy machine, the two managers may be without a quorum for a moment, so the order is
    // repeated.
    wait_until("the promotion of w1 is accepted", || {
        cluster.m1.ask(&["promote", "w1", "--no-wait"]).status.success().then_some(())
    });
    all_vote(&cluster.m1, 3);
    assert_eq!(keys(&cluster.m1)["ca"]["next"]["step"], "issue");
    wait_until("the manager has the keys", || (keys_in(&dir, "w1")? == keys_in(&dir, "m1")?).then_some(()));
    w3 = Daemon::start(&dir.join("w3"));
    wait_until_rotated(&cluster.m1, 0);
    let new = all_trust_another(&dir, &["m1", "m2", "w1", "w3"], &old.1);

    cluster.m1.kill();
    let leader = wait_until("one of the two leads", || {
        let leader = m2.json("status")["as_of"]["leader"].as_str()?.to_owned();
        (leader != "m1" && m2.ask(&["key", "status"]).status.success()).then_some(leader)
    });
    write_entry(if leader == "m2" { &m2 } else { &w1 }, &dir);
    for (name, last, via) in [("w4", 6, 5), ("w5", 7, 2)] {
        let out = join_worker(&dir, name, (cluster.at)(last), (cluster.at)(via), "worker");
        assert!(out.status.success(), "{}", output_text(&out));
        assert_eq!(trust(&dir, name), (1, new.clone()));
    }
    assert_eq!(w3.json("status")["node"]["name"], "w3", "it runs on");
}
