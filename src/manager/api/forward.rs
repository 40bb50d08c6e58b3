//! Passing a request on to the leader.

use super::super::Shared;
use crate::rpc::client::ApiError;
use crate::rpc::wire::{self, Code, Failure};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Orders that examine a node answer within this time.
const WITHIN: Duration = Duration::from_secs(60);
const STREAM_DEPTH: usize = 256;

pub async fn to_leader(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let status = shared.raft.status().borrow().clone();
    if status.is_leader || request.extensions().get::<crate::rpc::caller::Caller>().is_some_and(is_node) {
        return next.run(request).await;
    }
    let leader =
        status.leader.and_then(|id| status.voters.get(&id).cloned()).filter(|_| status.leader != Some(status.id));
    match leader {
        Some(addr) => pass_on(&shared, &addr, request).await.unwrap_or_else(IntoResponse::into_response),
        None if request.method() == Method::GET => next.run(request).await,
        None => {
            let next = "bring a majority of the managers back; remoor status shows which are up";
            Failure::new(Code::NoQuorum, "no majority of the managers can be reached; nothing was changed")
                .next(next)
                .into_response()
        }
    }
}

/// A request that was passed on already is answered here, so that it can't go in circles.
fn is_node(caller: &crate::rpc::caller::Caller) -> bool {
    matches!(caller, crate::rpc::caller::Caller::Node { .. })
}

async fn pass_on(shared: &Arc<Shared>, addr: &str, request: Request) -> Result<Response, Failure> {
    super::operator(shared, request.extensions().get().unwrap_or(&crate::rpc::caller::Caller::Anonymous))?;
    let path = request.uri().path_and_query().map(|p| p.as_str().to_owned()).unwrap_or_default();
    let client = shared.peers.client(addr).within(WITHIN);
    let failed = failure_of;
    if request.method() == Method::GET && is_stream(request.uri().path()) {
        let mut lines = client.stream_lines(&path).await.map_err(failed)?;
        let (tx, rx) = mpsc::channel::<Value>(STREAM_DEPTH);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next().await {
                if tx.send(line).await.is_err() {
                    break;
                }
            }
        });
        return Ok(wire::ndjson(rx));
    }
    let answer = if request.method() == Method::GET {
        client.get_bytes(&path).await
    } else {
        let most = if path.starts_with("/v1/apply") { wire::LARGE_BODY_MAX } else { wire::BODY_MAX };
        let body = wire::bounded(request.into_body(), most).await?;
        client.post_bytes(&path, body).await
    };
    let answer = answer.map_err(failed)?;
    let kind = if path.starts_with("/v1/metrics") { "text/plain; version=0.0.4" } else { "application/json" };
    Ok(([("content-type", kind)], Body::from(answer)).into_response())
}

/// The paths whose answers are lines that go on.
fn is_stream(path: &str) -> bool {
    path == "/v1/watch" || path.starts_with("/v1/jobs/") && path.ends_with("/log")
}

/// The leader's own words where it answered, ours where it did not.
fn failure_of(error: ApiError) -> Failure {
    match error {
        ApiError::Status { code, message, next, details, .. } => {
            let failure = Failure::new(Code::parse(&code).unwrap_or(Code::Internal), message).details(*details);
            match next {
                Some(next) => failure.next(next),
                None => failure,
            }
        }
        ApiError::Unreachable { .. } | ApiError::Identity { .. } => Failure::new(Code::Retry, error.to_string()),
        ApiError::Timeout { .. } | ApiError::Protocol { .. } => Failure::new(Code::OutcomeUnknown, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::is_stream;

    #[test]
    fn only_logs_and_the_watch_are_streams_however_a_node_is_called() {
        assert!(is_stream("/v1/watch") && is_stream("/v1/jobs/17/log"));
        for path in ["/v1/nodes/logstash1/why", "/v1/nodes/a/log", "/v1/jobs/17", "/v1/history"] {
            assert!(!is_stream(path), "{path}");
        }
    }
}
