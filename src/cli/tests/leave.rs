//! `remoor leave` with a fake daemon and prepared answers: the confirmation, the wait, and the
//! output about nodes that left.

use super::transport::{Daemon, verb};
use super::{local_status, views};
use crate::cli::args::Verb;
use crate::cli::command::{leave, nodes, selection};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use axum::routing::{get, post};
use axum::{Json, Router};
use remoor_cluster::rpc::view::*;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fake daemon of a worker. After the order to leave, it reports `after` more times that it is a
/// node. With `refusal` it refuses the order.
async fn worker(after: usize, refusal: Option<ApiFailure>, orders: Arc<AtomicUsize>) -> Daemon {
    let (asked, seen_orders) = (Arc::new(AtomicUsize::new(0)), orders.clone());
    let agent = move || {
        let left = seen_orders.load(Ordering::SeqCst) > 0 && asked.fetch_add(1, Ordering::SeqCst) >= after;
        async move {
            let mut view = local_status::agent();
            view.node.removed = left.then(|| "w1 left the cluster".to_owned());
            view.node.left = left;
            Json(view)
        }
    };
    let order = move || {
        orders.fetch_add(1, Ordering::SeqCst);
        async move {
            let until = "2026-03-12T12:01:09.000Z".to_owned();
            refusal.map_or_else(|| Ok(Json(LeaveReply { text: "w1 has left".to_owned(), until })), Err)
        }
    };
    let status = || async { ApiFailure::new(Code::Unavailable, "w1 is no manager") };
    let router = Router::new().route("/v1/agent", get(agent)).route("/v1/leave", post(order));
    Daemon::start(router.route("/v1/status", get(status))).await
}

async fn run_leave(daemon: &Daemon, line: &str) -> (anyhow::Result<Exit>, (String, String)) {
    let Verb::Leave(args) = verb(line) else { panic!("{line}") };
    let out = Out::memory(Format::Table, false);
    let ended = leave::run(&daemon.api(), &out, &args).await;
    (ended, out.captured_text())
}

#[tokio::test]
async fn leave_waits_until_the_daemon_has_stopped() {
    let orders = Arc::new(AtomicUsize::new(0));
    let daemon = worker(1, None, orders.clone()).await;
    let (ended, (text, talk)) = run_leave(&daemon, "remoor leave --yes").await;
    assert_eq!((ended.unwrap(), text.as_str()), (Exit::Done, "w1 has left\n"));
    assert!(talk.contains("waiting: the agent of") && talk.contains("nothing was cleaned up here"), "{talk}");
    assert!(talk.contains("next: systemctl disable --now remoor"), "{talk}");
    // The node has left already when the command runs for the second time, so no order is sent.
    let (ended, (_, talk)) = run_leave(&daemon, "remoor leave").await;
    assert_eq!((ended.unwrap(), orders.load(Ordering::SeqCst)), (Exit::Done, 1));
    assert!(talk.starts_with("nothing to do: w1 left"), "{talk}");
}

#[tokio::test]
async fn leave_needs_confirmation_and_refuses_managers_with_a_next_step() {
    let orders = Arc::new(AtomicUsize::new(0));
    let daemon = worker(0, None, orders.clone()).await;
    let (ended, (_, talk)) = run_leave(&daemon, "remoor leave").await;
    assert_eq!((CommandError::from_error(&ended.unwrap_err()).exit, orders.load(Ordering::SeqCst)), (Exit::Refused, 0));
    assert!(talk.contains("Nothing is cleaned up here"), "{talk}");

    let refusal = ApiFailure::new(Code::Refused, "m1 is a manager").next("remoor demote m1, then the same command");
    let daemon = worker(0, Some(refusal), Arc::default()).await;
    let stop = CommandError::from_error(&run_leave(&daemon, "remoor leave --yes").await.0.unwrap_err());
    assert_eq!(stop.exit, Exit::Refused);
    assert!(stop.render().contains("next: remoor demote m1"), "{}", stop.render());
}

#[test]
fn nodes_that_left_are_listed_and_named_in_errors() {
    let gone = LeftView {
        id: 9,
        name: "w9".into(),
        group: Some("web".into()),
        api: "10.0.0.9:7947".into(),
        left: "2026-03-05T12:01:09.000Z".into(),
        by: "leave on w9".into(),
        until: "2026-03-12T12:01:09.000Z".into(),
    };
    let status = StatusView { left: vec![gone], ..views::clean_status() };
    for format in [Format::Table, Format::Wide] {
        let out = Out::memory(format, false);
        nodes::list(&out, &status).unwrap();
        let (text, _) = out.captured_text();
        let row: Vec<&str> = text.lines().find(|l| l.starts_with("w9")).expect("a row").split_whitespace().collect();
        assert_eq!(row[..5], ["w9", "9", "left", "since", "12:01:09"], "{text}");
    }
    let args = crate::cli::args::NodeSelection { nodes: vec!["w9".to_owned()], ..Default::default() };
    let stop = CommandError::from_error(&selection::pick(&status, &args).unwrap_err());
    assert!(stop.message.starts_with("w9 left the cluster at"), "{}", stop.render());
    assert!(stop.next.is_some_and(|next| next.contains("remoor join on w9") && next.contains("remoor remove w9")));
}
