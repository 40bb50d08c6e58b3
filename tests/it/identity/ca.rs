//! The CA is replaced while daemons run: nobody is cut off, whoever dies meanwhile, and the old one opens nothing afterwards.

use super::*;
use crate::local::three_managers;
use remoor::rpc::token;

fn credentials(dir: &std::path::Path, name: &str) -> Credentials {
    Credentials::load(&dir.join(name)).expect("read").expect("credentials")
}

/// How many CAs this node trusts, and the digest of the one that issues.
fn trust(dir: &std::path::Path, name: &str) -> (usize, String) {
    let ca_pem = credentials(dir, name).ca_pem;
    (ca_pem.matches("BEGIN CERTIFICATE").count(), token::ca_digest(&ca_pem).expect("a CA"))
}

fn keys(of: &Daemon) -> Value {
    serde_json::from_slice(&of.ask(&["key", "status", "--json"]).stdout).unwrap_or_default()
}

fn alive(of: &Daemon, wanted: &[&str]) {
    until(&format!("{wanted:?} are alive"), || {
        let nodes = of.json("status")["nodes"].as_array().cloned()?;
        let alive = |name: &&str| nodes.iter().any(|n| n["name"] == **name && n["presence"] == "alive");
        wanted.iter().all(alive).then_some(())
    });
}

fn away(of: &Daemon, name: &str) {
    until(&format!("{name} is missed"), || {
        let nodes = of.json("status")["nodes"].as_array().cloned()?;
        let gone = |n: &Value| n["name"] == name && matches!(n["presence"].as_str(), Some("away" | "agent-down"));
        nodes.iter().any(gone).then_some(())
    });
}

fn step(of: &Daemon, wanted: &str) {
    until(&format!("the rotation is at {wanted}"), || (keys(of)["ca"]["next"]["step"] == wanted).then_some(()));
}

fn ended(of: &Daemon, serial: u64) -> u64 {
    until("the rotation is over", || {
        let keys = keys(of);
        let now = keys["ca"]["serial"].as_u64()?;
        (keys["ca"]["next"].is_null() && now > serial).then_some(now)
    })
}

fn waits_for_w2_alone(of: &Daemon) {
    until("w2 alone is waited for", || {
        let next = &keys(of)["ca"]["next"];
        let (here, away) = (next["waits_for"].as_array()?, next["away"].as_array()?);
        (here.is_empty() && away.len() == 1 && away[0] == "w2" && next["step"] == "trust").then_some(())
    });
}

/// Which of m1, m2 and m3, from 0.
fn leads(of: &Daemon) -> usize {
    until("somebody leads", || {
        of.json("status")["as_of"]["leader"].as_str()?.strip_prefix('m')?.parse::<usize>().ok()?.checked_sub(1)
    })
}

/// Something that is entered, and told by whoever leads.
fn writes(of: &Daemon, dir: &std::path::Path) {
    let out = until("an order is taken", || {
        let out = of.ask(&["token", "rotate", "--role", "worker", "-q"]);
        out.status.success().then_some(out)
    });
    fs::write(dir.join("worker"), String::from_utf8_lossy(&out.stdout).trim()).expect("written");
}

/// Leaders are killed at two of the three steps, a manager is away as it begins, a worker misses the first step, and a machine
/// joins at each.
#[test]
fn the_ca_is_replaced_whoever_dies_meanwhile_and_who_missed_a_step_is_told_by_the_next() {
    let (dir, at) = (tempfile::tempdir().expect("a folder"), net());
    let dir = dir.path();
    let mut managers = three_managers(dir, at);
    alive(&managers[0], &["m1", "m2", "m3"]);
    until("all vote", || {
        let nodes = managers[0].json("status")["nodes"].as_array().cloned()?;
        let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("voter" | "leader"));
        (nodes.iter().filter(votes).count() == 3).then_some(())
    });
    until("m2 answers, and knows who leads", || managers[1].ask(&["key", "status"]).status.success().then_some(()));
    let join = |name: &str, last: u8, via: u8, token: &str| {
        let mut join = remoor();
        join.args([
            "join",
            &format!("{}:7947", at(via)),
            "--name",
            name,
            "--advertise",
            &at(last).to_string(),
            "--dir",
        ]);
        join.arg(dir.join(name)).arg("--token-file").arg(dir.join(token)).output().expect("remoor runs")
    };
    let worker = |name: &str, last: u8, via: u8| {
        let out = join(name, last, via, "worker");
        assert!(out.status.success(), "{}", said(&out));
        Daemon::start(&dir.join(name))
    };
    let (_w1, mut w2) = (worker("w1", 11, 2), worker("w2", 12, 2));
    let m2 = &managers[1];
    alive(m2, &["m1", "m2", "m3", "w1", "w2"]);
    let (old, before) = (trust(dir, "w1"), credentials(dir, "w1"));
    assert_eq!(old.0, 1);
    w2.kill();
    away(m2, "w2");
    writes(m2, dir);

    // Without m3 it begins, and does not end: no manager is left behind. What it lacks it fetches.
    managers[2].kill();
    let m2 = &managers[1];
    away(m2, "m3");
    until("another than m3 leads", || (leads(m2) != 2).then_some(()));
    let out = m2.ask(&["key", "rotate", "ca"]);
    assert!(
        out.status.success() && said(&out).contains("m3 can't be reached, and it can't end before"),
        "{}",
        said(&out)
    );
    let out = m2.ask(&["key", "rotate", "ca", "--finish", "--yes"]);
    assert!(out.status.code() == Some(4) && said(&out).contains("m3 manages, is away"), "{}", said(&out));
    managers[2] = Daemon::start(&dir.join("m3"));
    let m2 = &managers[1];
    for again in ["ca", "gossip"] {
        let out = m2.ask(&["key", "rotate", again]);
        assert!(out.status.code() == Some(4) && said(&out).contains("on its way"), "{}", said(&out));
    }
    waits_for_w2_alone(m2);
    assert!(["m1", "m2", "m3", "w1"].iter().all(|n| trust(dir, n) == (2, old.1.clone())), "the old one issues");
    let text = said(&m2.ask(&["key", "status"]));
    assert!(text.contains("away, and waited for: w2") && text.contains("remoor key rotate ca --finish"), "{text}");
    let status = said(&m2.ask(&["status"]));
    assert!(status.contains("the new CA waits for w2"), "{status}");
    let _w3 = worker("w3", 13, 2);
    assert_eq!(trust(dir, "w3"), (2, old.1.clone()));

    // The leader dies; the next one knows by the log.
    let leader = leads(&managers[1]);
    managers[leader].kill();
    let next = &managers[(leader + 1) % 3];
    until("another leads", || (leads(next) != leader).then_some(()));
    writes(next, dir);
    fs::copy(dir.join("worker"), dir.join("old-worker")).expect("copied");
    managers[leader] = Daemon::start(&dir.join(format!("m{}", leader + 1)));
    alive(&managers[1], &["m1", "m2", "m3", "w1", "w3"]);
    let out = managers[1].ask(&["key", "rotate", "ca", "--finish"]);
    assert!(out.status.code() == Some(4) && said(&out).contains("not waited for:"), "{}", said(&out));

    // Without a manager that follows the next step is taken, since it has confirmed the one before; but it does not end.
    waits_for_w2_alone(&managers[1]);
    let leader = leads(&managers[1]);
    let (killed, other) = ((leader + 1) % 3, (leader + 2) % 3);
    managers[killed].kill();
    let (at_other, m) = (other as u8 + 1, &managers[other]);
    away(m, &format!("m{}", killed + 1));
    let out = m.ask(&["key", "rotate", "ca", "--finish", "--yes"]);
    assert!(out.status.success() && said(&out).contains("w2"), "{}", said(&out));
    step(m, "issue");
    // Meanwhile comes who knows nothing of all this, and who has a token of before.
    assert_eq!(trust(dir, "w2"), old);
    let _w2 = Daemon::start(&dir.join("w2"));
    until("w2 has a certificate of the new one, nobody's yes asked for", || {
        (trust(dir, "w2").1 != old.1).then_some(())
    });
    let out = join("w4", 14, at_other, "old-worker");
    assert!(out.status.success(), "a token of before goes on: {}", said(&out));
    let _w4 = Daemon::start(&dir.join("w4"));
    writes(m, dir);
    let _w5 = worker("w5", 15, at_other);
    alive(m, &["w1", "w2", "w3", "w4", "w5"]);
    assert_eq!(keys(m)["ca"]["next"]["step"], "issue");
    // And the leader dies again.
    managers[leader].kill();
    managers[killed] = Daemon::start(&dir.join(format!("m{}", killed + 1)));
    until("another leads", || managers[other].ask(&["key", "status"]).status.success().then_some(()));
    writes(&managers[other], dir);
    managers[leader] = Daemon::start(&dir.join(format!("m{}", leader + 1)));
    let m2 = &managers[1];
    ended(m2, 0);

    let all = ["m1", "m2", "m3", "w1", "w2", "w3", "w4", "w5"];
    let new = until("all trust the new one alone", || {
        let new = trust(dir, "m2");
        (new.0 == 1 && new.1 != old.1 && all.iter().all(|name| trust(dir, name) == new)).then_some(new)
    });
    alive(m2, &all);
    for manager in &managers {
        until("each knows a leader", || (manager.json("status")["as_of"]["stale"] == false).then_some(()));
    }
    let after = credentials(dir, "w1");
    assert_eq!((after.node, &after.key_pem, &after.gossip_key), (before.node, &before.key_pem, &before.gossip_key));
    let peers = |as_of: &Credentials, last: u8| {
        let tls = ClientTls::member(&as_of.tls()).expect("TLS");
        wait(Client::tls(format!("{}:7947", at(last)), &tls, None).get::<PeersReply>("/agent/v1/peers"))
    };
    for last in [1, 2, 3] {
        peers(&after, last).expect("a node like before");
        let refused = peers(&before, last).expect_err("the old one opens nothing");
        assert_eq!(refused.code(), Some("credential-expired"), "{refused:?}");
    }
    let out = join("w6", 16, 2, "old-worker");
    assert!(!out.status.success() && said(&out).contains("a CA that was replaced since"), "{}", said(&out));
    writes(m2, dir);
    assert!(fs::read_to_string(dir.join("worker")).expect("a token").contains(&new.1), "new tokens name the new one");
    assert_eq!(join("w6", 16, 3, "worker").status.code(), Some(0));
    // No key was said where it does not belong.
    let history = m2.json("history").to_string();
    assert!(history.contains("the new CA is the only one") && !history.contains("PRIVATE KEY"));
    for name in all {
        let log = fs::read_to_string(dir.join(name).join("log")).expect("a log");
        assert!(!log.contains("PRIVATE KEY"), "{name}");
    }
    for name in ["w1", "w5"] {
        assert!(!dir.join(name).join("ca").exists(), "only managers have keys of CAs");
    }
}

/// And what hangs on the CA's key: the gossip key, the operator's credentials, a manager that comes later, a restart.
#[test]
fn a_worker_that_was_left_behind_is_accepted_again_and_a_second_rotation_follows() {
    let mut cluster = Cluster::new(false);
    let dir = cluster.dir.path().to_owned();
    let _w1 = cluster.worker("w1", 2);
    let (mut w2, mut w3) = (cluster.worker("w2", 3), cluster.worker("w3", 5));
    alive(&cluster.m1, &["m1", "w1", "w2", "w3"]);
    w2.kill();
    w3.kill();
    away(&cluster.m1, "w2");
    let out = cluster.m1.ask(&["remove", "w3", "--force", "--yes"]);
    assert!(out.status.success(), "{}", said(&out));
    let (old, before) = (trust(&dir, "w2"), cluster.credentials("w2"));
    let copy = dir.join("copy.json");
    fs::copy(dir.join("m1/operator.json"), &copy).expect("copied");
    let out = cluster.m1.ask(&["key", "rotate", "ca", "--finish", "--yes"]);
    assert!(out.status.code() == Some(4) && said(&out).contains("no CA is on its way"), "{}", said(&out));
    let out = cluster.m1.ask(&["key", "rotate", "ca"]);
    assert!(out.status.success(), "{}", said(&out));
    let out = cluster.m1.ask(&["key", "rotate", "ca", "--finish", "--yes"]);
    assert!(out.status.success(), "{}", said(&out));
    let first = ended(&cluster.m1, 0);
    until("w1 trusts the new one alone", || {
        let now = trust(&dir, "w1");
        (now.0 == 1 && now.1 != old.1).then_some(())
    });

    // Copies of the operator's credentials are told, those on m1 have gone along.
    let operator = |file: &std::path::Path| {
        let mut status = remoor();
        status.args(["status", "--manager", &cluster.api(1), "--credentials"]).arg(file);
        status.output().expect("remoor runs")
    };
    let out = operator(&copy);
    assert!(!out.status.success() && said(&out).contains("was replaced"), "{}", said(&out));
    until("the operator's credentials on m1 are of the new one", || {
        operator(&dir.join("m1/operator.json")).status.success().then_some(())
    });

    // Others are made, and end by an order.
    let zoe = dir.join("zoe.json");
    let out = cluster.m1.ask(&["key", "operator", "zoe", "--file", &zoe.display().to_string()]);
    assert!(out.status.success(), "{}", said(&out));
    assert!(operator(&zoe).status.success());
    let out = cluster.m1.ask(&["key", "operator", "zoe", "--revoke"]);
    assert!(out.status.success(), "{}", said(&out));
    let out = operator(&zoe);
    assert!(out.status.code() == Some(4) && said(&out).contains("of zoe were revoked at"), "{}", said(&out));
    assert_eq!(keys(&cluster.m1)["operators"][0]["state"], "revoked");

    // Who was removed hears that, and not that its certificate counts no more.
    let w3 = Daemon::start(&dir.join("w3"));
    until("w3 knows that it was removed", || {
        let why = w3.json("status")["node"]["removed"].as_str().map(str::to_owned)?;
        why.starts_with("w3 was removed from the cluster at").then_some(())
    });

    let _w2 = Daemon::start(&dir.join("w2"));
    let waits = until("w2 waits", || cluster.waiting().into_iter().next());
    assert_eq!((&waits["name"], &waits["why"]), (&"w2".into(), &"certificate".into()));
    assert_eq!(trust(&dir, "w2"), old, "nothing without a yes");
    let out = cluster.m1.ask(&["accept", "w2"]);
    assert!(out.status.success(), "{}", said(&out));
    until("w2 is a node like before", || cluster.peers_as("w2").ok());
    let after = cluster.credentials("w2");
    assert_eq!((after.node, after.key_pem, trust(&dir, "w2")), (before.node, before.key_pem, trust(&dir, "w1")));
    until("nobody waits any more", || cluster.waiting().is_empty().then_some(()));

    // The gossip key comes from the new CA's key from now on, and once more all goes round; then a restart.
    let gossips = |serial: u64| {
        let out = cluster.m1.ask(&["key", "rotate", "gossip"]);
        assert!(out.status.success(), "{}", said(&out));
        until("all have the new gossip key", || {
            let held = ["m1", "w1", "w2"].map(|name| cluster.credentials(name));
            let same = held.iter().all(|c| c.gossip_others.is_empty() && c.gossip_key == held[0].gossip_key);
            let now = keys(&cluster.m1)["serial"].as_u64()?;
            (same && now > serial && held[0].gossip_key != before.gossip_key).then_some(now)
        })
    };
    let serial = gossips(0);
    let out = cluster.m1.ask(&["key", "rotate", "ca"]);
    assert!(out.status.success(), "{}", said(&out));
    ended(&cluster.m1, first);
    cluster.m1.kill();
    cluster.m1 = Daemon::start(&dir.join("m1"));
    alive(&cluster.m1, &["m1", "w1", "w2"]);
    let public = cluster.public_token();
    assert!(public.contains(&trust(&dir, "m1").1) && trust(&dir, "m1").0 == 1);

    // A manager that comes now gets what it needs of the keys of before, and can lead.
    let manager = said(&cluster.m1.ask(&["token", "rotate", "--role", "manager", "-q"]));
    fs::write(dir.join("manager"), manager.trim()).expect("written");
    done(cluster.joining("m2", "m2", 4).arg("--manager").arg("--token-file").arg(dir.join("manager")));
    let _m2 = Daemon::start(&dir.join("m2"));
    alive(&cluster.m1, &["m2", "w1", "w2"]);
    assert!(cluster.credentials("m2").gossip_key == cluster.credentials("w1").gossip_key && serial > 0);
    until("it has the keys", || {
        let held = |name: &str| {
            let mut files: Vec<_> = fs::read_dir(dir.join(name)).ok()?.flatten().map(|e| e.file_name()).collect();
            files.sort();
            Some(files)
        };
        (held("m2/ca")? == held("m1/ca")?).then_some(())
    });
    let held = fs::read_dir(dir.join("m1/ca")).expect("listed").count();
    assert_eq!(held, 6, "the first, the one of the gossip key, the present one: a certificate and a key each");
}
