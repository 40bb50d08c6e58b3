//! `remoor remove` with a fake manager and prepared answers: the confirmation, the wait until a
//! manager has left, and the list of removed nodes.

use super::transport::{Daemon, verb};
use super::{local_status, views};
use crate::cli::args::Verb;
use crate::cli::command::remove;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use axum::routing::{get, post};
use axum::{Json, Router};
use remoor_cluster::rpc::view::*;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fake manager. It answers requests for the status with `answers` in turn and repeats the last
/// one. For None it answers as a worker does. It counts the orders.
async fn cluster(answers: Vec<Option<StatusView>>, orders: Arc<AtomicUsize>) -> Daemon {
    let (answers, asked) = (Arc::new(answers), Arc::new(AtomicUsize::new(0)));
    let status = move || {
        let (answers, turn) = (answers.clone(), asked.fetch_add(1, Ordering::SeqCst));
        async move {
            let answer = answers[turn.min(answers.len() - 1)].clone();
            answer.map(Json).ok_or_else(|| ApiFailure::new(Code::Unavailable, "m3 is no manager"))
        }
    };
    let order = move |Json(body): Json<Value>| {
        orders.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_eq!((&body["order"], &body["force"]), (&"remove".into(), &true.into()));
            let order_view = |node: &Value| json!({"node": node, "version": 1, "text": "ordered", "nothing_to_do": false, "queued": false});
            let orders: Vec<Value> = body["nodes"].as_array().into_iter().flatten().map(order_view).collect();
            Json(json!({"version": 1, "orders": orders}))
        }
    };
    let agent = || async {
        let mut view = local_status::agent();
        (view.node.name, view.node.removed) = ("m3".to_owned(), Some("m3 was removed".to_owned()));
        Json(view)
    };
    let router = Router::new().route("/v1/status", get(status)).route("/v1/orders", post(order));
    Daemon::start(router.route("/v1/agent", get(agent))).await
}

async fn run_remove(daemon: &Daemon, out: &Out, line: &str) -> anyhow::Result<Exit> {
    let Verb::Remove(args) = verb(line) else { panic!("{line}") };
    remove::run(&daemon.api(), out, &args).await
}

/// A status with the node m3 in one state of its removal.
fn with_m3(lifecycle: &str, state: &str) -> Option<StatusView> {
    let role = if state == "voter" { "manager" } else { "worker" }.to_owned();
    let services = vec!["etcd".to_owned()];
    let mut m3 = NodeView { role, services, ..views::node(3, "m3") };
    m3.operation.lifecycle = lifecycle.to_owned();
    m3.membership.state = state.to_owned();
    Some(StatusView { nodes: vec![m3], ..views::clean_status() })
}

fn without_m3() -> Option<StatusView> {
    Some(views::clean_status())
}

#[tokio::test]
async fn remove_waits_until_a_manager_is_no_longer_a_node() {
    let answers = vec![with_m3("commissioned", "voter"), with_m3("removing", "demoting"), without_m3()];
    let daemon = cluster(answers, Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(run_remove(&daemon, &out, "remoor remove m3 --force --yes").await.unwrap(), Exit::Done);
    assert_eq!(
        out.captured_text(),
        ("ordered\nm3 is removed; its name is free\n".to_owned(), "waiting: m3: demoting\n".to_owned())
    );
}

#[tokio::test]
async fn a_reversed_removal_has_exit_code_1_and_the_own_removal_is_reported_by_the_agent() {
    let back = cluster(vec![with_m3("commissioned", "voter")], Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(run_remove(&back, &out, "remoor remove m3 --force --yes").await.unwrap(), Exit::No);
    assert!(out.captured_text().1.starts_with("not done: m3 is still a manager"), "{:?}", out.captured_text());

    let itself = cluster(vec![with_m3("commissioned", "voter"), None], Arc::default()).await;
    let out = Out::memory(Format::Table, false);
    assert_eq!(run_remove(&itself, &out, "remoor remove m3 --force --yes").await.unwrap(), Exit::Done);
    assert!(
        out.captured_text().0.ends_with("\nm3 (this machine) is removed; its name is free\n"),
        "{:?}",
        out.captured_text()
    );
}

#[tokio::test]
async fn remove_shows_the_effect_and_needs_confirmation() {
    let orders = Arc::new(AtomicUsize::new(0));
    let daemon = cluster(vec![with_m3("commissioned", "voter")], orders.clone()).await;
    let out = Out::memory(Format::Table, false);
    let error = run_remove(&daemon, &out, "remoor remove m3 --force").await.unwrap_err();
    let stop = CommandError::from_error(&error);
    assert_eq!((stop.exit, orders.load(Ordering::SeqCst)), (Exit::Refused, 0));
    assert!(stop.render().contains("next: the same command with --yes"), "{}", stop.render());
    let (_, talk) = out.captured_text();
    assert!(
        talk.contains("1 node permanently removed") && talk.contains("m3: manager") && talk.contains("etcd"),
        "{talk}"
    );
}

#[test]
fn removed_nodes_are_listed_with_their_expiry() {
    let node = RemovedNode {
        id: 4,
        name: "w1".into(),
        removed: "2026-03-05T12:01:09.000Z".into(),
        by: "root@m1".into(),
        until: "2026-06-10T12:01:09.000Z".into(),
        machine_id: "m".into(),
    };
    let view = RemovedView { version: 1, as_of: views::as_of(), removed: vec![node] };
    let out = Out::memory(Format::Table, false);
    assert_eq!(remove::show(&out, &view).unwrap(), Exit::Done);
    let (text, _) = out.captured_text();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["NODE", "ID", "REMOVED", "BY", "REMEMBERED", "UNTIL"]);
    assert_eq!(words[1][..4], ["w1", "4", "12:01:09", "root@m1"]);
    assert!(words[1][4].starts_with("2026-06-10"), "{text}");
}
