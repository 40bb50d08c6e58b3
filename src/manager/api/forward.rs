//! Forwards requests to the leader.

use super::super::{ManagerContext, wall};
use super::{Actor, operators};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::view::BackupView;
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Raw};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
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

pub(super) async fn to_leader(
    State((shared, answered_by)): State<(Arc<ManagerContext>, AnsweredBy)>,
    Extension(by): Extension<Actor>,
    request: Request,
    next: Next,
) -> Response {
    let status = shared.raft.status().borrow().clone();
    // A request that another manager has forwarded is answered here, so that a request can't
    // circulate between managers.
    if by.via.is_some() || status.leads() {
        return next.run(request).await;
    }
    // After the loss of a leader, Raft still names it as the leader until another one is elected.
    // Without a majority, no other one is ever elected.
    let heard = shared.age_ms().is_some_and(|ms| ms < SILENCE_MS);
    let leader = status.leader.filter(|id| heard && *id != status.id).and_then(|id| status.voters.get(&id).cloned());
    let reading = request.method() == Method::GET;
    let Some(addr) = leader else {
        if reading {
            return next.run(request).await;
        }
        return ApiFailure::new(Code::NoQuorum, "no majority of the managers can be reached; nothing was changed")
            .next(wire::NO_QUORUM_NEXT)
            .into_response();
    };
    let again = reading.then(|| copy_request(&request));
    match (pass_on(&shared, &addr, &by, answered_by, request).await, again) {
        (Ok(answer), _) => answer,
        // The leader has just died, or its API is closed. If no new leader answers, the answer
        // comes from this manager's state, marked as stale.
        (Err(ForwardError { unreachable: true, .. }), Some(again)) => {
            // The wait is as long as three heartbeats. Without it, a leader that was killed a
            // moment ago would still count as alive.
            tokio::time::sleep(HEARD_AGAIN_WITHIN).await;
            let now = shared.raft.status().borrow().clone();
            let heard = shared.age_ms().is_some_and(|ms| u128::from(ms) < HEARD_AGAIN_WITHIN.as_millis());
            if now.leader == status.leader && heard {
                return IN_VAIN.scope((), next.run(again)).await;
            }
            // During the wait, another manager or this one may have become the leader.
            let other = now.leader.filter(|id| heard && *id != now.id).and_then(|id| now.voters.get(&id).cloned());
            if let Some(addr) = other
                && let Ok(answer) = pass_on(&shared, &addr, &by, answered_by, copy_request(&again)).await
            {
                return answer;
            }
            next.run(again).await
        }
        (Err(ForwardError { failure, .. }), _) => failure.into_response(),
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
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    *again.extensions_mut() = request.extensions().clone();
    again
}

/// The reason why the leader did not answer a request.
struct ForwardError {
    failure: ApiFailure,
    /// Whether the leader could not be reached.
    unreachable: bool,
}

impl From<ApiFailure> for ForwardError {
    fn from(failure: ApiFailure) -> Self {
        Self { failure, unreachable: false }
    }
}

/// Maximum number of streams that are forwarded at the same time. Each stream uses one connection
/// to the leader, and the number of such connections is limited. Forwarded orders and Raft need
/// connections too.
static STREAMS: Semaphore = Semaphore::const_new(32);

async fn pass_on(
    shared: &Arc<ManagerContext>,
    addr: &str,
    by: &Actor,
    answered_by: AnsweredBy,
    request: Request,
) -> Result<Response, ForwardError> {
    let is_status = request.uri().path() == "/v1/status";
    let path = request.uri().path_and_query().map(|p| p.as_str().to_owned()).unwrap_or_default();
    let within = if answered_by == AnsweredBy::QuickLeader { READ_WITHIN } else { WITHIN };
    let client = shared.peers.client(addr).with_timeout(within).on_behalf(by, by.key.as_deref());
    if answered_by == AnsweredBy::LeaderStream {
        let Ok(place) = STREAMS.try_acquire() else {
            let text = "this manager forwards as many event streams as it may";
            return Err(ApiFailure::new(Code::Retry, text).next("ask the leader (remoor status names it)").into());
        };
        let mut lines = client.stream_lines(&path).await.map_err(failure_of)?;
        let (tx, rx) = mpsc::channel::<Value>(STREAM_DEPTH);
        let (shared, by) = (shared.clone(), by.clone());
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
                () = operators::until_revoked(&shared, &by) => {}
            }
        });
        return Ok(wire::ndjson(rx));
    }
    let answer = if request.method() == Method::GET {
        client.get_bytes(&path).await
    } else {
        let Raw(body) = Raw::from_request(request, &()).await?;
        client.post_bytes(&path, body).await
    };
    let answer = answer.map_err(failure_of)?;
    let answer = match is_status {
        true => with_own(
            answer,
            shared.backups.view(&shared.identity.name, wall()),
            shared.backups.warning(&shared.identity.name, wall()),
        ),
        false => answer,
    };
    let kind = if path.starts_with("/v1/metrics") { "text/plain; version=0.0.4" } else { "application/json" };
    Ok(([("content-type", kind)], Body::from(answer)).into_response())
}

/// Replaces the backups in the leader's status by those of this manager, because each manager makes
/// its own backups. All other fields stay, including unknown fields of a newer leader.
fn with_own(answer: Bytes, backup: Option<BackupView>, warning: Option<String>) -> Bytes {
    let (Some(backup), Ok(mut status)) = (backup, serde_json::from_slice::<Value>(&answer)) else { return answer };
    let Ok(backup) = serde_json::to_value(backup) else { return answer };
    let Some(fields) = status.as_object_mut() else { return answer };
    fields.insert("backup".to_owned(), backup);
    if let Some(Value::Array(warnings)) = fields.get_mut("warnings") {
        warnings.extend(warning.map(Value::from));
    }
    status.to_string().into()
}

/// The leader's own error if the leader answered, otherwise an error of this manager.
fn failure_of(error: ApiError) -> ForwardError {
    // This code means that the asked manager has just stopped leading, or that its manager service
    // has ended and it answers as a worker.
    if error.code() == Some(Code::NotLeader.as_str()) {
        let failure = ApiFailure::new(Code::Retry, "the manager that led does not lead any more; nothing was changed");
        return ForwardError { failure, unreachable: true };
    }
    let unreachable = matches!(error, ApiError::Unreachable { .. } | ApiError::Timeout { .. });
    let failure = error.into_failure(|error| if error.maybe_done() { Code::OutcomeUnknown } else { Code::Retry });
    ForwardError { failure, unreachable }
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
            let bytes = with_own(leaders.to_string().into(), own.map(view), warning.map(str::to_owned));
            serde_json::from_slice(&bytes).expect("JSON")
        };
        assert_eq!(asked(None, None), leaders, "it makes none");
        assert_eq!(asked(Some("m2"), None), answer(json!(view("m2")), &["m1: late"]));
        assert_eq!(asked(Some("m2"), Some("m2: failed")), answer(json!(view("m2")), &["m1: late", "m2: failed"]));
        assert_eq!(with_own("?".into(), Some(view("m2")), None), "?");
    }
}
