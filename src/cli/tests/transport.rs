//! Commands whose daemon does not run, refuses an order, or has no quorum; and commands that follow
//! jobs. The fake daemon speaks real HTTP with prepared answers.

use super::views;
use crate::cli::api::Api;
use crate::cli::args::{self, ConnectionOptions, Verb};
use crate::cli::command::{examine, job, order, status, watch};
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;
use crate::cli::format::Format;
use crate::cli::out::Out;
use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router};
use remoor_cluster::rpc::server::ServerLimits;
use remoor_cluster::rpc::unix::{LocalSocket, serve_unix};
use remoor_cluster::rpc::view::{AsOf, CheckView, JobsView, NodeView, OrderView, StatusView, WhyView};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code};
use remoor_model::{AttemptOutcome, JobState, Phase};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// A fake daemon with prepared answers. The daemon ends when this value is dropped.
pub struct Daemon {
    dir: TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Daemon {
    pub async fn start(router: Router) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = LocalSocket::bind(&dir.path().join("s")).await.unwrap();
        let serve = serve_unix(socket, wire::finish(router), ServerLimits::default(), std::future::pending());
        Self { dir, task: tokio::spawn(serve) }
    }

    pub fn api(&self) -> Api {
        api(self.dir.path().join("s"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn api(socket: std::path::PathBuf) -> Api {
    Api::open(&ConnectionOptions { socket, ..ConnectionOptions::default() }).unwrap()
}

pub fn verb(line: &str) -> Verb {
    args::parse(line.split_whitespace().map(Into::into)).unwrap().verb
}

async fn resetup(api: &Api, out: &Out, line: &str) -> anyhow::Result<Exit> {
    let Verb::Resetup(args) = verb(line) else { panic!("{line}") };
    order::resetup(api, out, &args).await
}

async fn ask_status(api: &Api) -> anyhow::Result<Exit> {
    let Verb::Status(args) = verb("remoor status") else { panic!("status") };
    status::run(api, &Out::memory(Format::Table, false), &args).await
}

#[tokio::test]
async fn no_daemon_has_exit_code_3_and_a_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let stop = CommandError::from_error(&ask_status(&api(dir.path().join("none"))).await.unwrap_err());
    assert_eq!(stop.exit, Exit::CouldNotAsk);
    let text = stop.render();
    assert!(text.starts_with("error: can't reach ") && text.contains("\nnext: systemctl start remoor"), "{text}");
}

#[tokio::test]
async fn a_stale_answer_has_exit_code_3() {
    let stale = || async {
        let mut view = views::clean_status();
        view.as_of.stale = true;
        Json(view)
    };
    let daemon = Daemon::start(Router::new().route("/v1/status", get(stale))).await;
    assert_eq!(ask_status(&daemon.api()).await.unwrap(), Exit::CouldNotAsk);
}

#[tokio::test]
async fn error_answers_keep_their_code_and_next_step() {
    for (code, exit) in
        [(Code::Refused, Exit::Refused), (Code::NoQuorum, Exit::CouldNotAsk), (Code::Unavailable, Exit::CouldNotAsk)]
    {
        let refuse = move || async move { ApiFailure::new(code, "not now").next("remoor do that") };
        let daemon = Daemon::start(Router::new().route("/v1/status", get(refuse))).await;
        let stop = CommandError::from_error(&ask_status(&daemon.api()).await.unwrap_err());
        assert_eq!((stop.exit, stop.render().as_str()), (exit, "error: not now\nnext: remoor do that\n"));
    }
}

/// A fake manager whose job ends at the third request. It counts the orders.
fn fleet_with_a_job(orders: Arc<AtomicUsize>, end: JobState) -> Router {
    let asked = Arc::new(AtomicUsize::new(0));
    let jobs = move || {
        let asked = asked.clone();
        async move {
            let mut view = JobsView { jobs: Vec::new(), ..views::jobs() };
            let turn = asked.fetch_add(1, Ordering::SeqCst);
            if turn > 0 {
                let mut job = views::job(17);
                let attempt = &mut job.attempts[1];
                if turn > 2 {
                    job.state = end;
                    job.closed = Some(views::time_of_day("12:04:52"));
                    attempt.phase = Phase::Verify;
                    attempt.closed = Some((
                        views::time_of_day("12:04:52"),
                        if end == JobState::Done {
                            AttemptOutcome::Done
                        } else {
                            AttemptOutcome::Cancelled("by bob".into())
                        },
                    ));
                }
                view.jobs.push(job);
            }
            Json(view)
        }
    };
    let order = move |Path((node, verb)): Path<(String, String)>, Json(body): Json<Value>| {
        orders.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_eq!((verb.as_str(), &body["services"][0]), ("resetup", &Value::from("contiv_network")));
            Json(OrderView { version: 1, text: format!("{node}: ordered"), ..OrderView::default() })
        }
    };
    let log = || async {
        let (tx, rx) = mpsc::channel(4);
        let event = serde_json::json!({"event": "task", "name": "stop netplugin", "status": "changed", "took_ms": 4, "msg": ""});
        let item = serde_json::json!({"type": "task", "job": 17, "attempt": 25, "phase": "cleanup", "event": event});
        tx.send(item).await.unwrap();
        tx.send(serde_json::json!({"type": "end", "text": "done"})).await.unwrap();
        wire::ndjson(rx)
    };
    let clean = || async {
        let nodes = vec![views::node(4, "w1"), views::node(5, "w2")];
        Json(StatusView { nodes, ..views::clean_status() })
    };
    Router::new()
        .route("/v1/status", get(clean))
        .route("/v1/jobs", get(jobs))
        .route("/v1/jobs/{id}/log", get(log))
        .route("/v1/nodes/{name}/{verb}", post(order))
}

#[tokio::test]
async fn a_resetup_is_followed_to_its_end() {
    let orders = Arc::new(AtomicUsize::new(0));
    let daemon = Daemon::start(fleet_with_a_job(orders.clone(), JobState::Done)).await;
    let out = Out::memory(Format::Table, false);
    let exit = resetup(&daemon.api(), &out, "remoor resetup w1 --service contiv_network").await.unwrap();
    let (answer, talk) = out.captured_text();
    assert_eq!((exit, orders.load(Ordering::SeqCst)), (Exit::Done, 1));
    assert_eq!(answer, "w1: ordered\nw1: job 17 done in 3:42\n", "{talk}");
    assert!(talk.contains("w1  job 17  attempt 2  cleanup"), "{talk}");
    assert!(talk.contains("w1  job 17  attempt 2  done  3:42"), "{talk}");
    assert!(talk.contains("w1    changed  stop netplugin (4 ms)"), "{talk}");
}

#[tokio::test]
async fn a_failed_job_has_exit_code_5() {
    let daemon = Daemon::start(fleet_with_a_job(Arc::default(), JobState::Cancelled)).await;
    let out = Out::memory(Format::Json, false);
    let exit = resetup(&daemon.api(), &out, "remoor resetup w1 --service contiv_network").await.unwrap();
    let view: Value = serde_json::from_str(&out.captured_text().0).unwrap();
    assert_eq!(exit, Exit::Failed);
    assert_eq!((&view["orders"][0]["node"], &view["orders"][0]["job"]["state"]), (&"w1".into(), &"cancelled".into()));
}

#[tokio::test]
async fn a_batch_with_one_wrong_node_orders_nothing() {
    let orders = Arc::new(AtomicUsize::new(0));
    let daemon = Daemon::start(fleet_with_a_job(orders.clone(), JobState::Done)).await;
    let out = Out::memory(Format::Table, false);
    let error = resetup(&daemon.api(), &out, "remoor resetup w1 w9").await.unwrap_err();
    assert_eq!((CommandError::from_error(&error).exit, orders.load(Ordering::SeqCst)), (Exit::Refused, 0));
}

#[tokio::test]
async fn an_order_for_several_nodes_is_one_request() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let orders = move |Json(body): Json<Value>| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_eq!(body["nodes"], serde_json::json!(["w1", "w2"]));
            assert_eq!((&body["order"], &body["force"]), (&Value::from("resetup"), &Value::from(true)));
            let order_view = |node: &str| {
                serde_json::json!({"node": node, "version": 1, "text": format!("{node}: queued"),
                "nothing_to_do": false, "queued": true})
            };
            Json(serde_json::json!({"version": 1, "orders": [order_view("w2"), order_view("w1")]}))
        }
    };
    let router = fleet_with_a_job(Arc::default(), JobState::Done).route("/v1/orders", post(orders));
    let daemon = Daemon::start(router).await;
    let out = Out::memory(Format::Table, false);
    let exit = resetup(&daemon.api(), &out, "remoor resetup w1 w2 --force").await.unwrap();
    assert_eq!((exit, asked.load(Ordering::SeqCst)), (Exit::Done, 1));
    assert_eq!(out.captured_text().0, "w1: queued\nw2: queued\n");
}

#[tokio::test]
async fn an_order_that_is_dropped_ends_the_following() {
    let view = WhyView { want: None, ..views::why_view() };
    let router = Router::new()
        .route("/v1/status", get(|| async { Json(views::clean_status()) }))
        .route("/v1/jobs", get(|| async { Json(JobsView { jobs: Vec::new(), ..views::jobs() }) }))
        .route("/v1/nodes/{name}/why", get(move || async move { Json(view) }))
        .route(
            "/v1/nodes/{name}/resetup",
            post(|| async { Json(OrderView { text: "w1: ordered".into(), ..OrderView::default() }) }),
        );
    let daemon = Daemon::start(router).await;
    let out = Out::memory(Format::Table, false);
    let exit = resetup(&daemon.api(), &out, "remoor resetup w1").await.unwrap();
    assert_eq!(exit, Exit::Refused);
    assert!(out.captured_text().0.contains("w1: not started: "), "{:?}", out.captured_text());
}

/// If a manager without a leader does not show an order, the order is not dropped. This manager
/// possibly does not know the order yet.
#[tokio::test]
async fn a_stale_answer_without_the_order_does_not_mean_dropped() {
    let as_of = AsOf { stale: true, leader: None, ..views::as_of() };
    let view = WhyView { as_of, want: None, ..views::why_view() };
    let fleet = fleet_with_a_job(Arc::default(), JobState::Done);
    let router = fleet.route("/v1/nodes/{name}/why", get(move || async move { Json(view) }));
    let out = Out::memory(Format::Table, false);
    let daemon = Daemon::start(router).await;
    let exit = resetup(&daemon.api(), &out, "remoor resetup w1 --service contiv_network").await.unwrap();
    assert_eq!(exit, Exit::Done, "{:?}", out.captured_text());
}

#[tokio::test]
async fn logs_are_printed_until_their_end() {
    let daemon = Daemon::start(fleet_with_a_job(Arc::default(), JobState::Done)).await;
    let Verb::Job(verb) = verb("remoor job logs 17 --follow") else { panic!("job") };
    let out = Out::memory(Format::Table, false);
    assert_eq!(job::run(&daemon.api(), &out, &verb).await.unwrap(), Exit::Done);
    assert_eq!(out.captured_text().0, "job 17  cleanup  changed  stop netplugin (4 ms)\nend: done\n");
}

#[tokio::test]
async fn an_interrupted_watch_has_exit_code_3() {
    let ends = || async { wire::ndjson(mpsc::channel(1).1) };
    let daemon = Daemon::start(Router::new().route("/v1/watch", get(ends))).await;
    let error = watch::run(&daemon.api(), &Out::memory(Format::Table, false)).await.unwrap_err();
    assert_eq!(CommandError::from_error(&error).exit, Exit::CouldNotAsk);
}

#[tokio::test]
async fn a_check_of_several_nodes_continues_after_an_error() {
    let status = || async {
        let of = |(id, name, group): (u64, &str, Option<&str>)| NodeView {
            group: group.map(str::to_owned),
            ..views::node(id, name)
        };
        let nodes = [(1, "w1", Some("web")), (2, "d1", Some("db")), (3, "w2", Some("web")), (4, "new", None)];
        Json(StatusView { nodes: nodes.map(of).into(), ..views::clean_status() })
    };
    let look = |Path(node): Path<String>| async move {
        let verdict = match node.as_str() {
            "d1" => return Err(ApiFailure::new(Code::Unavailable, "no way to d1")),
            "w2" => "drifted",
            _ => "same",
        };
        let (reasons, checks, differences) = Default::default();
        let verdict = verdict.to_owned();
        Ok(Json(CheckView {
            version: 1,
            as_of: views::as_of(),
            node,
            verdict,
            reasons,
            checks,
            differences,
            took_ms: 1,
        }))
    };
    let router = Router::new().route("/v1/status", get(status)).route("/v1/nodes/{name}/check", post(look));
    let daemon = Daemon::start(router).await;
    let cases = [
        ("remoor check --group web", ["w1", "w2"].as_slice(), [].as_slice(), Exit::No),
        ("remoor check --all", ["w1", "w2"].as_slice(), ["d1"].as_slice(), Exit::CouldNotAsk),
    ];
    for (line, seen, silent, wanted) in cases {
        let Verb::Check(args) = verb(line) else { panic!("{line}") };
        let out = Out::memory(Format::Json, false);
        let exit = examine::check(&daemon.api(), &out, &args).await.unwrap();
        let view: Value = serde_json::from_str(&out.captured_text().0).unwrap();
        let names = |key: &str| -> Vec<&str> {
            view[key].as_array().into_iter().flatten().filter_map(|one| one["node"].as_str()).collect()
        };
        assert_eq!((exit, names("nodes").as_slice(), names("errors").as_slice()), (wanted, seen, silent), "{line}");
    }
}
