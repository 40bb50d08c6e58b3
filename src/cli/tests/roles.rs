//! `remoor promote` and `remoor demote` with a fake manager and prepared answers: the orders, the
//! wait, and the output about managers.

use super::transport::{Daemon, verb};
use super::{local_status, views};
use crate::cli::args::Verb;
use crate::cli::command::{members, nodes, roles};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use axum::routing::{get, post};
use axum::{Json, Router};
use expect_test::{Expect, expect};
use remoor_cluster::rpc::view::*;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

async fn change(daemon: &Daemon, out: &Out, line: &str) -> anyhow::Result<Exit> {
    match verb(line) {
        Verb::Promote(args) => roles::promote(&daemon.api(), out, &args).await,
        Verb::Demote(args) => roles::demote(&daemon.api(), out, &args).await,
        other => panic!("{other:?}"),
    }
}

/// A node with a desired role and its state in Raft.
fn node(name: &str, role: &str, state: &str, waits: Option<&str>, lag: Option<u64>) -> NodeView {
    let id = u64::from(*name.as_bytes().last().expect("a name") - b'0');
    let membership = NodeMembershipView { state: state.into(), waits: waits.map(str::to_owned), silent: None, lag };
    NodeView { role: role.into(), membership, ..views::node(id, name) }
}

fn status(nodes: Vec<NodeView>) -> StatusView {
    StatusView { nodes, ..views::clean_status() }
}

/// A fake manager. It answers requests for the status with `answers` in turn and repeats the last
/// one. The command uses the first answer to resolve the names. The fake manager answers an order
/// with a warning.
async fn cluster(answers: Vec<Result<StatusView, ApiFailure>>, asked: Arc<AtomicUsize>) -> Daemon {
    let answers = Arc::new(answers);
    let status = move || {
        let (answers, turn) = (answers.clone(), asked.fetch_add(1, Ordering::SeqCst));
        async move {
            match &answers[turn.min(answers.len() - 1)] {
                Ok(view) => Ok(Json(view.clone())),
                Err(failure) => Err(ApiFailure::new(failure.code, failure.message.clone())),
            }
        }
    };
    let order = |Json(body): Json<Value>| async move {
        let answer = |node: &Value| {
            json!({"node": node, "version": 1, "text": format!("{}: ordered", node.as_str().unwrap_or_default()),
                "nothing_to_do": false, "queued": false})
        };
        if body["nodes"] == json!(["m1"]) {
            return Err(ApiFailure::new(Code::Refused, "m1 is the only manager"));
        }
        let orders: Vec<Value> = body["nodes"].as_array().into_iter().flatten().map(answer).collect();
        Ok(Json(json!({"version": 1, "orders": orders, "warnings": ["2 managers survive no loss"]})))
    };
    let agent = || async {
        let mut view = local_status::agent();
        view.node.name = "m3".to_owned();
        Json(view)
    };
    let router = Router::new().route("/v1/status", get(status)).route("/v1/orders", post(order));
    Daemon::start(router.route("/v1/agent", get(agent))).await
}

#[tokio::test]
async fn promote_waits_until_the_node_votes() {
    let behind = |lag: u64| {
        let waits = format!("catching up, {lag} entries behind");
        Ok(status(vec![node("w1", "manager", "learner", Some(&waits), Some(lag))]))
    };
    let away = || Ok(status(vec![node("w1", "manager", "promoting", Some("it is away"), None)]));
    let votes = Ok(status(vec![node("w1", "manager", "voter", None, None)]));
    let before = Ok(status(vec![node("w1", "worker", "worker", None, None)]));
    let daemon = cluster(vec![before, away(), away(), behind(120), behind(110), votes], Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(change(&daemon, &out, "remoor promote w1").await.unwrap(), Exit::Done);
    let (answer, talk) = out.captured_text();
    assert_eq!(answer, "w1: ordered\nw1 votes now\n");
    let text = [
        "warning: 2 managers survive no loss",
        "waiting: w1: promoting: it is away",
        "waiting: w1: learner 120 behind",
    ];
    assert_eq!(talk.lines().collect::<Vec<_>>(), text, "each reason once, and no new line if only a number changed");
}

#[tokio::test]
async fn a_timeout_has_exit_code_3_and_the_order_continues() {
    let waits = Some("waiting for quorum, 1 of 3 managers answer");
    let daemon = cluster(vec![Ok(status(vec![node("m2", "worker", "demoting", waits, None)]))], Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(change(&daemon, &out, "remoor demote m2 --timeout=600ms").await.unwrap(), Exit::CouldNotAsk);
    let (answer, talk) = out.captured_text();
    assert_eq!(answer, "m2: ordered\n");
    let last = "not done within 600 ms: m2: demoting: waiting for quorum, 1 of 3 managers answer; the order continues: \
                remoor nodes";
    assert_eq!(talk.lines().last(), Some(last));
}

#[tokio::test]
async fn no_wait_asks_once_and_json_has_the_warnings() {
    let asked = Arc::new(AtomicUsize::new(0));
    let nodes = vec![node("w1", "worker", "worker", None, None), node("w2", "worker", "worker", None, None)];
    let daemon = cluster(vec![Ok(status(nodes))], asked.clone()).await;
    let out = Out::memory(Format::Json, false);
    assert_eq!(change(&daemon, &out, "remoor promote w1 w2 --no-wait").await.unwrap(), Exit::Done);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "to resolve the names");
    let (answer, talk) = out.captured_text();
    let view: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&view["orders"][1]["node"], &view["orders"][1]["manager_state"]), (&"w2".into(), &Value::Null));
    assert_eq!((&view["warnings"][0], talk.as_str()), (&"2 managers survive no loss".into(), ""));
}

#[tokio::test]
async fn the_asked_manager_can_be_demoted_itself() {
    let before =
        Ok(status(vec![node("m2", "manager", "voter", None, None), node("m3", "manager", "voter", None, None)]));
    let both = Ok(status(vec![
        node("m2", "worker", "demoting", None, None),
        node("m3", "worker", "demoting", Some("one change of managers at a time"), None),
    ]));
    let alone = |before: &Result<StatusView, ApiFailure>| {
        let mut view = before.as_ref().expect("a view").clone();
        view.as_of.stale = true;
        Ok(view)
    };
    let forbidden = || Err(ApiFailure::new(Code::Forbidden, "m3 is no manager"));
    let worker = || Err(ApiFailure::new(Code::Unavailable, "m3 is no manager: its agent knows about itself only"));
    let answers = vec![Ok(before.as_ref().unwrap().clone()), alone(&before), forbidden(), worker()];
    let daemon = cluster(answers, Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(change(&daemon, &out, "remoor demote m3").await.unwrap(), Exit::Done);
    let (answer, talk) = out.captured_text();
    assert_eq!(answer, "m3: ordered\nm3 is a worker now\n");
    assert!(talk.contains("waiting: m1 knows of no leader\nwaiting: m3 is no manager\n"), "{talk}");

    // After its own demotion, m3 can no longer report about m2.
    let daemon = cluster(vec![before, both, worker()], Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(change(&daemon, &out, "remoor demote m3 m2").await.unwrap(), Exit::CouldNotAsk);
    let (answer, talk) = out.captured_text();
    assert!(answer.ends_with("\nm3 is a worker now\n"), "{answer}");
    assert!(
        talk.ends_with("m3 is a worker now and can't see m2; the order continues: remoor nodes on a manager\n"),
        "{talk}"
    );
}

#[tokio::test]
async fn a_worker_answer_does_not_end_a_promotion() {
    let error = Err(ApiFailure::new(Code::Unavailable, "m3 is no manager"));
    let before = Ok(status(vec![node("w1", "worker", "worker", None, None)]));
    let daemon = cluster(vec![before, error], Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(change(&daemon, &out, "remoor promote w1 --timeout=600ms").await.unwrap(), Exit::CouldNotAsk);
    assert_eq!(out.captured_text().0, "w1: ordered\n");
}

#[tokio::test]
async fn a_contrary_order_is_reported() {
    let before = Ok(status(vec![node("w1", "worker", "worker", None, None)]));
    let begun = Ok(status(vec![node("w1", "manager", "promoting", None, None)]));
    let back = Ok(status(vec![node("w1", "worker", "worker", None, None)]));
    let daemon = cluster(vec![before, begun, back], Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(change(&daemon, &out, "remoor promote w1").await.unwrap(), Exit::No);
    assert!(out.captured_text().1.ends_with("not done: w1 becomes a worker again, because of another order\n"));
}

#[tokio::test]
async fn a_refused_demotion_has_exit_code_4_and_does_not_wait() {
    let asked = Arc::new(AtomicUsize::new(0));
    let daemon = cluster(vec![Ok(views::clean_status())], asked.clone()).await;
    let error = change(&daemon, &Out::memory(Format::Table, false), "remoor demote m1").await.unwrap_err();
    let stop = CommandError::from_error(&error);
    assert_eq!((stop.exit, stop.message.as_str()), (Exit::Refused, "m1 is the only manager"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

fn assert_output(show: impl FnOnce(&Out) -> anyhow::Result<Exit>, expected: Expect) {
    let out = Out::memory(Format::Table, false);
    let exit = show(&out).expect("nothing fails");
    let (answer, talk) = out.captured_text();
    expected.assert_eq(&format!("{answer}--- {}\n{talk}", exit.code()));
}

#[test]
fn nodes_shows_the_state_of_managers_and_what_they_wait_for() {
    let quorum = Some("waiting for quorum, 1 of 3 managers answer");
    let view = status(vec![
        views::manager(1, "m1", "leader"),
        views::manager(2, "m2", "voter"),
        node("m3", "worker", "demoting", quorum, None),
        node("w4", "manager", "promoting", Some("it is away"), None),
        node("w5", "manager", "learner", Some("catching up, 120 entries behind"), Some(120)),
        node("w6", "manager", "learner", Some("caught up; votes once it was so for 10 s"), Some(0)),
        views::node(7, "w7"),
        NodeView { manager: Some("voter".into()), ..node("m8", "manager", "", None, None) },
    ]);
    assert_output(
        |out| nodes::list(out, &view),
        expect![[r#"
            NODE  ID  MEMBERSHIP  STATUS  AVAILABILITY  GROUP           API            CERTIFICATE  MANAGER
            m1*   1   accepted    alive   active        service-master  10.0.0.1:7947  2026-06-03   leader
            m2    2   accepted    alive   active        service-master  10.0.0.2:7947  2026-06-03   voter
            m3    3   accepted    alive   active        service-worker  10.0.0.3:7947  2026-06-03   demoting: waiting for quorum, 1 of 3 managers answer
            w4    4   accepted    alive   active        service-worker  10.0.0.4:7947  2026-06-03   promoting: it is away
            w5    5   accepted    alive   active        service-worker  10.0.0.5:7947  2026-06-03   learner 120 behind
            w6    6   accepted    alive   active        service-worker  10.0.0.6:7947  2026-06-03   learner: caught up; votes once it was so for 10 s
            w7    7   accepted    alive   active        service-worker  10.0.0.7:7947  2026-06-03   -
            m8    8   accepted    alive   active        service-worker  10.0.0.8:7947  2026-06-03   voter
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
    let facts = nodes::facts(&view.nodes[2], &views::as_of());
    let expected = "demoting: waiting for quorum, 1 of 3 managers answer".to_owned();
    assert_eq!(facts[3], ("manager", expected));
    assert!(nodes::facts(&view.nodes[6], &views::as_of()).iter().all(|(name, _)| *name != "manager"));
}

#[test]
fn an_absent_manager_holds_a_vote_only_if_it_is_a_voter() {
    let gone = |manager: Option<&str>, state: &str| NodeView {
        presence: "away".into(),
        manager: manager.map(str::to_owned),
        ..node("m2", "manager", state, None, None)
    };
    for (view, expected) in [
        (gone(Some("voter"), "voter"), "and holds a vote; next, on m2: systemctl restart remoor"),
        (gone(Some("learner"), "learner"), "and becomes a voter when it is back; next, on m2"),
        (gone(None, "promoting"), "to cancel that: remoor demote m2"),
    ] {
        let out = Out::memory(Format::Table, false);
        nodes::list(&out, &status(vec![view])).unwrap();
        assert!(out.captured_text().1.contains(expected), "{expected}: {}", out.captured_text().1);
    }
}

fn member(id: u64, node: Option<&str>, is: &str) -> RaftMemberView {
    RaftMemberView {
        id,
        node: node.map(str::to_owned),
        role: node.map(|_| "manager".to_owned()),
        address: format!("10.0.0.{id}:7947"),
        is: is.to_owned(),
        matched: Some(500),
        lag: Some(0),
        answered_ms: Some(120),
        ..RaftMemberView::default()
    }
}

fn raft() -> RaftView {
    let m1 = RaftMemberView { answered_ms: None, ..member(1, Some("m1"), "leader") };
    let m9 = RaftMemberView { role: Some("worker".into()), ..member(9, Some("m2"), "voter") };
    let (matched, lag, answered_ms) = (Some(400), Some(100), Some(90_000));
    let lost = RaftMemberView { orphan: true, leaving: true, matched, lag, answered_ms, ..member(12, None, "voter") };
    let new = RaftMemberView { matched: None, lag: None, answered_ms: None, ..member(40, Some("w1"), "learner") };
    RaftView {
        version: 1,
        as_of: views::as_of(),
        term: 4,
        last_log: 500,
        last_applied: 499,
        joint: true,
        target: vec![1, 9],
        committed: false,
        members: vec![m1, m9, lost, new],
        warnings: vec!["a change of voters is half done: the leader finishes it".into()],
    }
}

#[test]
fn raft_members_are_listed_with_orphans_and_joint_changes() {
    assert_output(
        |out| members::show(out, &raft()),
        expect![[r#"
            term 4   log to 500, applied to 499   joint: yes   this list is not committed yet
            warning: a change of voters is half done: the leader finishes it

            ID  NODE  ADDRESS         RAFT     MATCH  LAG  ANSWERED    NOTE
            1   m1*   10.0.0.1:7947   leader   500    0    -           -
            9   m2    10.0.0.9:7947   voter    500    0    120 ms ago  to become a worker
            12  -     10.0.0.12:7947  voter    400    100  90 s ago    orphan, leaving
            40  w1    10.0.0.40:7947  learner  -      -    -           -
            --- 0
            as seen by m1 (leader) at 2026-03-05T12:05:00.000Z
        "#]],
    );
    let stale = AsOf { by: "m2".into(), leader: None, stale: true, age_ms: 42_000, ..views::as_of() };
    let out = Out::memory(Format::Json, false);
    assert_eq!(members::show(&out, &RaftView { as_of: stale, ..raft() }).unwrap(), Exit::CouldNotAsk);
    let (answer, talk) = out.captured_text();
    let view: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&view["joint"], &view["members"][2]["orphan"]), (&true.into(), &true.into()));
    assert!(talk.contains("STALE: no quorum; this is what m2 last knew 42 s ago"), "{talk}");
}

#[test]
fn the_table_of_failures_contacts_no_manager() {
    assert_output(
        members::table,
        expect![[r#"
            MANAGERS  MAJORITY  FAILURES SURVIVED  OVER THREE ZONES
            1         1         0                  1
            2         2         0                  1-1
            3         2         1                  1-1-1
            4         3         1                  2-1-1
            5         3         2                  2-2-1
            6         4         2                  2-2-2
            7         4         3                  3-2-2
            8         5         3                  3-3-2
            9         5         4                  3-3-3
            --- 0
        "#]],
    );
    let out = Out::memory(Format::Json, false);
    members::table(&out).unwrap();
    let view: Value = serde_json::from_str(&out.captured_text().0).unwrap();
    assert_eq!(view["table"][4], json!({"managers": 5, "majority": 3, "survives": 2, "zones": [2, 2, 1]}));
}
