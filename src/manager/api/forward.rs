//! Forwards requests to the leader.

use super::super::{ManagerContext, wall};
use super::{Actor, operators};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use remoor_cluster::raft::RaftStatus;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::view::BackupView;
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Raw};
use remoor_model::RaftId;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// Time limit for requests that may examine a node.
const WITHIN: Duration = Duration::from_secs(60);
/// Time limit for requests that the leader answers from its own state. A leader that needs longer
/// does not work normally.
const READ_WITHIN: Duration = Duration::from_secs(5);
const STREAM_DEPTH: usize = 256;
/// Time in ms since the leader's last message after which no request is forwarded to it. A leader
/// sends a heartbeat every 250 ms, and after its loss another manager leads within 2 s.
const SILENCE_MS: u64 = 5_000;
/// Maximum wait for a leader. After this time, an order is refused with `no-quorum`. An election
/// normally ends within 2 s.
const LEADER_WAIT: Duration = Duration::from_secs(3);
/// The time within which a leader that was lost may still answer an order.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// Interval of the checks whether the leader is silent.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// If the leader does not answer a request, this is the maximum age of its last heartbeat with
/// which it still counts as alive.
const HEARD_AGAIN_WITHIN: Duration = Duration::from_millis(750);

/// The manager that answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnsweredBy {
    /// The manager that received the request.
    Asked,
    Leader,
    /// The leader, which answers from its own state. If the leader does not answer, the manager
    /// that received the request answers.
    QuickLeader,
    /// The leader, whose answer is a stream of lines.
    LeaderStream,
}

/// A request that may be forwarded: the manager that received it, its caller, and who answers it.
struct Forwarding<'a> {
    shared: &'a Arc<ManagerContext>,
    by: &'a Actor,
    answered_by: AnsweredBy,
}

pub(super) async fn to_leader(
    State((shared, answered_by)): State<(Arc<ManagerContext>, AnsweredBy)>,
    Extension(by): Extension<Actor>,
    request: Request,
    next: Next,
) -> Response {
    let route = Forwarding { shared: &shared, by: &by, answered_by };
    match is_read(&request) {
        true => answer_read(&route, request, next).await,
        // A request that another manager has forwarded is answered here, so that a request can't
        // circulate between managers.
        false if by.via.is_some() => next.run(request).await,
        false => answer_order(&route, request, next).await,
    }
}

/// Whether the request has no body and changes nothing.
fn is_read(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

async fn answer_read(route: &Forwarding<'_>, request: Request, next: Next) -> Response {
    let shared = route.shared;
    let mut status = shared.raft.status();
    if route.by.via.is_some() {
        // The manager that forwarded the request asks the next leader.
        let handed_over = status.borrow().handed_over;
        return match handed_over {
            true => ApiFailure::new(Code::NotLeader, "another manager begins to lead").into_response(),
            false => next.run(request).await,
        };
    }
    // If the next leader does not begin, the answer comes from this manager, marked as stale.
    let _ = tokio::time::timeout(LEADER_WAIT, status.wait_for(|status| !status.handed_over)).await;
    let status = status.borrow().clone();
    let Some(leader) = other_leader(shared, &status).filter(|_| !status.leads()) else {
        return next.run(request).await;
    };
    let again = copy_request(&request);
    let failure = match pass_on(route, &leader, request).await {
        Ok(answer) => return answer,
        Err(ForwardError { failure, nothing_done: false }) => return failure.into_response(),
        Err(ForwardError { failure, .. }) => failure,
    };
    tracing::debug!(%failure, "a query was not answered by the leader");
    // The leader has just died, or its API is closed. If no new leader answers, the answer comes
    // from this manager's state, marked as stale. The wait is as long as three heartbeats. Without
    // the wait, a leader that was killed a moment ago would still count as alive.
    tokio::time::sleep(HEARD_AGAIN_WITHIN).await;
    let now = shared.raft.status().borrow().clone();
    let heard = shared.age_ms().is_some_and(|ms| u128::from(ms) < HEARD_AGAIN_WITHIN.as_millis());
    if now.leader == status.leader && heard {
        return IN_VAIN.scope((), next.run(again)).await;
    }
    // During the wait, another manager or this one may have become the leader.
    if let Some(leader) = other_leader(shared, &now).filter(|_| heard)
        && let Ok(answer) = pass_on(route, &leader, copy_request(&again)).await
    {
        return answer;
    }
    next.run(again).await
}

/// Gives an order to the leader. While no manager leads, for example during a hand-over, the order
/// waits. The next leader receives the order only if the former leader has certainly done nothing.
async fn answer_order(route: &Forwarding<'_>, request: Request, next: Next) -> Response {
    let shared = route.shared;
    let (parts, body) = request.into_parts();
    let body = match Raw::from_request(Request::from_parts(parts.clone(), body), &()).await {
        Ok(Raw(body)) => body,
        Err(failure) => return failure.into_response(),
    };
    let deadline = Instant::now() + LEADER_WAIT;
    while let Some(leader) = wait_for_leader(shared, deadline).await {
        let request = Request::from_parts(parts.clone(), Body::from(body.clone()));
        let answer = match &leader {
            Leader::Here => next.clone().run(request).await,
            Leader::There(leader) => match pass_on(route, leader, request).await {
                Ok(answer) => answer,
                Err(ForwardError { failure, nothing_done: false }) => failure.into_response(),
                Err(ForwardError { failure, .. }) => ApiFailure { code: Code::NotLeader, ..failure }.into_response(),
            },
        };
        // This code means that the asked manager no longer leads, and that nothing was changed.
        if answer.status() != Code::NotLeader.status() {
            return answer;
        }
        let mut status = shared.raft.status();
        let seen = leadership(&status.borrow());
        let _ = tokio::time::timeout(LOOK_AGAIN, status.wait_for(|now| leadership(now) != seen)).await;
    }
    let text = "no majority of the managers can be reached; nothing was changed";
    ApiFailure::new(Code::NoQuorum, text).next(no_quorum_next(shared)).into_response()
}

/// The advice if no quorum answers.
pub(super) fn no_quorum_next(shared: &ManagerContext) -> &'static str {
    let without = shared.age_ms().map_or_else(|| shared.raft.time_without_leader(), Duration::from_millis);
    if without < wire::QUORUM_LOST_AFTER { wire::NO_QUORUM_NEXT } else { wire::LOST_QUORUM_NEXT }
}

/// The term and its leader.
fn leadership(status: &RaftStatus) -> (u64, Option<RaftId>) {
    (status.term, status.leader)
}

/// The manager that leads.
enum Leader {
    Here,
    There(OtherLeader),
}

/// Another manager that leads.
struct OtherLeader {
    id: RaftId,
    addr: String,
}

/// The other manager that leads according to `status`. None if its last message is too old: after
/// the loss of a leader, Raft still names it as the leader until another one is elected. Without a
/// majority, no other one is ever elected.
fn other_leader(shared: &ManagerContext, status: &RaftStatus) -> Option<OtherLeader> {
    let heard = shared.age_ms().is_some_and(|ms| ms < SILENCE_MS);
    let (id, addr) = status.leader_address().filter(|(id, _)| heard && *id != status.id)?;
    Some(OtherLeader { id, addr: addr.clone() })
}

/// Waits until a manager leads. Returns None after `deadline`.
async fn wait_for_leader(shared: &ManagerContext, deadline: Instant) -> Option<Leader> {
    let mut status = shared.raft.status();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let now = status.borrow_and_update().clone();
        if now.leads() {
            return Some(Leader::Here);
        }
        if let Some(leader) = other_leader(shared, &now) {
            return Some(Leader::There(leader));
        }
        // A message of a leader does not change the status, so its age is checked again and again.
        let _ = tokio::time::timeout(left.min(LOOK_AGAIN), status.changed()).await;
    }
}

/// Waits until this manager no longer considers `id` as the leader, because another one leads or
/// `id` is silent.
async fn until_lost(shared: &ManagerContext, id: RaftId) {
    let mut status = shared.raft.status();
    loop {
        let seen = other_leader(shared, &status.borrow_and_update());
        if seen.is_none_or(|leader| leader.id != id) {
            return;
        }
        let _ = tokio::time::timeout(LOOK_AGAIN, status.changed()).await;
    }
}

tokio::task_local! {
    /// Set while this manager answers a request itself, because the leader sends heartbeats but
    /// does not answer requests.
    static IN_VAIN: ();
}

/// Whether the current request was forwarded without success to a leader that still sends
/// heartbeats.
pub(super) fn is_in_vain() -> bool {
    IN_VAIN.try_with(|()| ()).is_ok()
}

/// Copies a request that has no body.
fn copy_request(request: &Request) -> Request {
    let mut again = Request::new(Body::empty());
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    *again.extensions_mut() = request.extensions().clone();
    again
}

/// The reason why the leader did not answer a request.
struct ForwardError {
    failure: ApiFailure,
    /// Whether the leader has certainly changed nothing, so that another manager may answer the
    /// request. A read never changes anything.
    nothing_done: bool,
}

impl From<ApiFailure> for ForwardError {
    fn from(failure: ApiFailure) -> Self {
        Self { failure, nothing_done: false }
    }
}

/// Maximum number of streams that are forwarded at the same time. Each stream uses one connection
/// to the leader, and the number of such connections is limited. Forwarded orders and Raft need
/// connections too.
static STREAMS: Semaphore = Semaphore::const_new(32);

/// Forwards a request. If the leadership ends meanwhile, this function soon stops waiting for the
/// former leader, because that manager may be frozen.
async fn pass_on(route: &Forwarding<'_>, leader: &OtherLeader, request: Request) -> Result<Response, ForwardError> {
    let reads = is_read(&request);
    let lost = async {
        until_lost(route.shared, leader.id).await;
        if !reads {
            // The former leader may have completed the order, and its answer may be on its way.
            tokio::time::sleep(LAST_ANSWER).await;
        }
    };
    tokio::select! {
        answer = send(route, &leader.addr, request) => answer,
        () = lost => {
            let text = "the manager that led was lost before it answered";
            let failure = match reads {
                true => ApiFailure::new(Code::Retry, text),
                false => ApiFailure::new(Code::OutcomeUnknown, format!("{text}; the order may have been accepted"))
                    .next(wire::OUTCOME_UNKNOWN_NEXT),
            };
            Err(ForwardError { failure, nothing_done: reads })
        }
    }
}

async fn send(route: &Forwarding<'_>, addr: &str, request: Request) -> Result<Response, ForwardError> {
    let Forwarding { shared, by, answered_by } = *route;
    let reads = is_read(&request);
    let is_status = request.uri().path() == "/v1/status";
    let path = request.uri().path_and_query().map(|p| p.as_str().to_owned()).unwrap_or_default();
    let within = if answered_by == AnsweredBy::QuickLeader { READ_WITHIN } else { WITHIN };
    let client = shared.peers.client(addr).with_timeout(within).on_behalf(by, by.key.as_deref());
    if answered_by == AnsweredBy::LeaderStream {
        return stream(route, &client, &path).await;
    }
    let answer = if reads {
        client.get_bytes(&path).await
    } else {
        let Raw(body) = Raw::from_request(request, &()).await?;
        client.post_bytes(&path, body).await
    };
    let answer = answer.map_err(|error| failure_of(error, reads))?;
    let answer = match is_status {
        true => with_own(answer, shared.backups.view(&shared.identity.name, wall()), shared.own_warnings()),
        false => answer,
    };
    let kind = if path.starts_with("/v1/metrics") { "text/plain; version=0.0.4" } else { "application/json" };
    Ok(([("content-type", kind)], Body::from(answer)).into_response())
}

async fn stream(route: &Forwarding<'_>, client: &Client, path: &str) -> Result<Response, ForwardError> {
    let Ok(place) = STREAMS.try_acquire() else {
        let text = "this manager forwards as many event streams as it may";
        return Err(ApiFailure::new(Code::Retry, text).next("ask the leader (remoor status names it)").into());
    };
    let mut lines = client.stream_lines(path).await.map_err(|error| failure_of(error, true))?;
    let (tx, rx) = mpsc::channel::<Value>(STREAM_DEPTH);
    let (shared, by) = (route.shared.clone(), route.by.clone());
    tokio::spawn(async move {
        let _place = place;
        let copy = async {
            while let Ok(Some(line)) = lines.next().await {
                if tx.send(line).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = copy => {}
            () = operators::until_refused(&shared, &by) => {}
        }
    });
    Ok(wire::ndjson(rx))
}

/// Replaces the backups in the leader's status by those of this manager, because each manager makes
/// its own backups. Adds the warnings about this machine. All other fields stay the same, including
/// unknown fields of a newer leader.
fn with_own(answer: Bytes, backup: Option<BackupView>, own: Vec<String>) -> Bytes {
    if backup.is_none() && own.is_empty() {
        return answer;
    }
    let Ok(mut status) = serde_json::from_slice::<Value>(&answer) else { return answer };
    let Some(fields) = status.as_object_mut() else { return answer };
    if let Some(Ok(backup)) = backup.map(serde_json::to_value) {
        fields.insert("backup".to_owned(), backup);
    }
    if let Some(Value::Array(warnings)) = fields.get_mut("warnings") {
        warnings.extend(own.into_iter().map(Value::from));
    }
    status.to_string().into()
}

/// The leader's own error if the leader answered, otherwise an error of this manager.
fn failure_of(error: ApiError, reads: bool) -> ForwardError {
    // This code means that the asked manager has just stopped leading, or that its manager service
    // has ended and it answers as a worker.
    if error.code() == Some(Code::NotLeader.as_str()) {
        let failure = ApiFailure::new(Code::Retry, "the manager that led does not lead any more; nothing was changed");
        return ForwardError { failure, nothing_done: true };
    }
    let silent = reads && matches!(error, ApiError::Timeout { .. });
    let nothing_done = silent || matches!(error, ApiError::Unreachable { .. });
    let failure = error.into_failure(|error| if error.maybe_done() { Code::OutcomeUnknown } else { Code::Retry });
    ForwardError { failure, nothing_done }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_forwarded_status_shows_the_own_backups_in_the_leaders_answer() {
        let view =
            |by: &str| BackupView { by: by.to_owned(), error: Some("no space".to_owned()), ..BackupView::default() };
        let answer = |backup: Value, warnings: &[&str]| json!({"backup": backup, "new": 1, "warnings": warnings});
        let leaders = answer(json!(view("m1")), &["m1: late"]);
        let asked = |own: Option<&str>, warning: Option<&str>| -> Value {
            let bytes =
                with_own(leaders.to_string().into(), own.map(view), warning.map(str::to_owned).into_iter().collect());
            serde_json::from_slice(&bytes).expect("JSON")
        };
        assert_eq!(asked(None, None), leaders, "it makes none");
        assert_eq!(asked(Some("m2"), None), answer(json!(view("m2")), &["m1: late"]));
        assert_eq!(asked(Some("m2"), Some("m2: failed")), answer(json!(view("m2")), &["m1: late", "m2: failed"]));
        assert_eq!(with_own("?".into(), Some(view("m2")), Vec::new()), "?");
    }
}
