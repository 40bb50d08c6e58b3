//! The common parts of all answers of the API: the error body, timestamps and event streams. This
//! file also has the extractors, which answer an invalid request in the same form. The answers
//! themselves, with their source and age, are in `view`.

pub use super::body::{BODY_MAX, BodyLimit, LARGE_BODY_MAX, SMALL_BODY_MAX, read_bounded};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use remoor_model::Wall;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// The suggested next step if no quorum of managers answers.
pub const NO_QUORUM_NEXT: &str = "retry the command in a moment; if this continues, bring a majority of the managers back (remoor raft-members names them)";
/// The time without a leader from which advice names `recover`. `recover` can lose decisions, so
/// the managers first have time to return by themselves.
pub const QUORUM_LOST_AFTER: Duration = Duration::from_secs(180);
/// The suggested next step if no quorum of managers has answered for [`QUORUM_LOST_AFTER`].
pub const LOST_QUORUM_NEXT: &str = "bring a majority of the managers back (remoor raft-members names them); if they are lost for \
                                    ever: systemctl stop remoor, then remoor recover --force-new-cluster --dry-run";
/// The suggested next step if it is not known whether an order was accepted.
pub const OUTCOME_UNKNOWN_NEXT: &str = "remoor history shows whether it was accepted";

/// Header of a request that a manager forwards: the name of the original caller.
pub const BEHALF: &str = "remoor-on-behalf-of";
/// Header with the original operator's key in hex, so that a revoked key can be rejected.
pub const BEHALF_KEY: &str = "remoor-on-behalf-of-key";
/// Header of every answer: the clock of the answering machine, in milliseconds since 1970.
pub const CLOCK: &str = "remoor-clock";
/// Maximum characters of an unknown key that an answer repeats.
const KEY_CHARS_MAX: usize = 64;
/// Interval at which an event stream without events sends an empty line. The line shows the client
/// that the stream still works.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident;)*) => {
        /// The kind of a failure, for programs. A client also accepts codes that it does not know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All error codes.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The text of the code on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// The HTTP status of the code.
            pub fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)* }
            }
        }
    };
}

codes! {
    /// The request cannot be parsed.
    BadRequest = "bad-request", BAD_REQUEST;
    /// The request body has an unknown key; `details.key` names it. Nothing was changed.
    UnknownKey = "unknown-key", BAD_REQUEST;
    /// The fleet, one of its files or a value in it is not valid.
    Invalid = "invalid", UNPROCESSABLE_ENTITY;
    /// A caller without a certificate sent a request that needs a certificate.
    Unauthenticated = "unauthenticated", UNAUTHORIZED;
    /// The caller's certificate has expired, or its CA was replaced.
    CredentialExpired = "credential-expired", UNAUTHORIZED;
    /// The secret of a join token is not valid, or is no longer valid.
    BadToken = "bad-token", UNAUTHORIZED;
    /// The machine waits for an operator's `remoor accept`. Retry later.
    Pending = "pending", FORBIDDEN;
    /// The clock of the joining machine is wrong. `details.skew_ms` says by how much it is ahead.
    ClockSkew = "clock-skew", CONFLICT;
    /// The caller is known but not authorised for this request.
    Forbidden = "forbidden", FORBIDDEN;
    /// The caller was removed from the cluster.
    NodeRemoved = "node-removed", FORBIDDEN;
    /// The caller's Raft id is retired. The caller is not a member of Raft, and the id is never
    /// used again.
    Retired = "retired", FORBIDDEN;
    /// The caller's data directory is a copy or outdated. As a member of Raft, the caller would
    /// contradict its earlier votes and acknowledgements.
    StaleDirectory = "stale-directory", FORBIDDEN;
    /// The joining machine cannot be reached at the address in its request.
    Unreachable = "unreachable", UNPROCESSABLE_ENTITY;
    /// The request was sent to, or by, another node than intended.
    WrongNode = "wrong-node", CONFLICT;
    /// The request was sent by a node of an older or newer epoch.
    WrongEpoch = "wrong-epoch", CONFLICT;
    /// The request was sent by a node of another cluster.
    WrongCluster = "wrong-cluster", CONFLICT;
    NotFound = "not-found", NOT_FOUND;
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED;
    /// The current state is not what the caller expected.
    Conflict = "conflict", CONFLICT;
    /// A precondition is not met. Nothing was changed.
    Refused = "refused", CONFLICT;
    TooLarge = "too-large", PAYLOAD_TOO_LARGE;
    RateLimited = "rate-limited", TOO_MANY_REQUESTS;
    /// Another manager leads. `details.leader` names it if it is known. Nothing was changed.
    NotLeader = "not-leader", MISDIRECTED_REQUEST;
    /// This manager has not yet applied all committed entries of the log. Retry here or at another
    /// manager. Nothing was changed.
    Retry = "retry", SERVICE_UNAVAILABLE;
    /// No quorum of managers can be reached. Nothing was changed.
    NoQuorum = "no-quorum", SERVICE_UNAVAILABLE;
    /// It is not known whether the command was committed.
    OutcomeUnknown = "outcome-unknown", GATEWAY_TIMEOUT;
    /// This daemon cannot execute the request. It is a worker and the request is for managers, or
    /// the requested service is not running.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE;
    /// Another node, whose answer this daemon needed, did not answer in time.
    Timeout = "timeout", GATEWAY_TIMEOUT;
    /// A bug in remoor.
    Internal = "internal", INTERNAL_SERVER_ERROR;
}

impl Code {
    /// The code whose text on the wire is `text`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error answer: `{"error": {"code", "message", "next", "details"}}`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiFailure {
    pub code: Code,
    /// The text for operators: lowercase, without a final full stop.
    pub message: String,
    /// The next command for operators to try.
    pub next: Option<String>,
    /// Facts for programs. Their content depends on the code.
    pub details: Box<Value>,
}

impl ApiFailure {
    /// A failure without a next step and details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), next: None, details: Box::default() }
    }

    /// Adds the command to try next.
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next = Some(command.into());
        self
    }

    /// Adds facts for programs to the error answer.
    pub fn details(mut self, details: Value) -> Self {
        self.details = Box::new(details);
        self
    }
}

/// The error body on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorBody {
    pub error: ErrorFields,
}

/// The fields of [`ErrorBody`]. The code is text, because another version may have more codes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorFields {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl IntoResponse for ApiFailure {
    fn into_response(self) -> Response {
        let Self { code, message, next, details } = self;
        let error = ErrorFields { code: code.as_str().to_owned(), message, next, details: *details };
        (code.status(), axum::Json(ErrorBody { error })).into_response()
    }
}

/// A time as RFC 3339 with milliseconds, in UTC.
pub fn rfc3339(at: Wall) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    // No clock shows a time after the year 9999. Such a time is formatted as the last representable
    // one.
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{moment:.3}")
}

/// An answer as JSON. Each time of the log in it also gets an RFC 3339 text.
#[derive(Debug, Clone, Copy)]
pub struct TimedJson<T>(pub T);

impl<T: Serialize> IntoResponse for TimedJson<T> {
    fn into_response(self) -> Response {
        match serde_json::to_value(self.0) {
            Ok(mut value) => {
                super::view::with_times(&mut value);
                axum::Json(value).into_response()
            }
            Err(error) => {
                ApiFailure::new(Code::Internal, format!("the answer cannot be encoded: {error}")).into_response()
            }
        }
    }
}

/// A request body as JSON. The answer to an invalid body is `bad-request` with the position of the
/// error.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiFailure;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiFailure> {
        let Raw(body) = Raw::from_request(request, state).await?;
        let bad = |e: serde_json::Error| ApiFailure::new(Code::BadRequest, format!("the request's body: {e}"));
        serde_json::from_slice(&body).map(Self).map_err(bad)
    }
}

/// The body of an order to `/v1`: a JSON object. An empty body equals `{}`. An unknown key is
/// rejected by its name, because an order without that key may have another meaning. A value of the
/// wrong type is rejected with its position.
#[derive(Debug, Clone, Copy)]
pub struct Strict<T>(pub T);

impl<T: DeserializeOwned + Serialize + Default + 'static, S: Send + Sync> FromRequest<S> for Strict<T> {
    type Rejection = ApiFailure;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiFailure> {
        let Raw(body) = Raw::from_request(request, state).await?;
        parse_strict(&body).map(Self)
    }
}

/// The keys of a body type, each with a valid value. They are computed once for each type.
fn known_keys<T: Serialize + Default + 'static>() -> Arc<Map<String, Value>> {
    static KNOWN: Mutex<BTreeMap<TypeId, Arc<Map<String, Value>>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let keys = || match serde_json::to_value(T::default()) {
        Ok(Value::Object(keys)) => Arc::new(keys),
        _ => Arc::default(),
    };
    known.entry(TypeId::of::<T>()).or_insert_with(keys).clone()
}

fn parse_strict<T: DeserializeOwned + Serialize + Default + 'static>(body: &[u8]) -> Result<T, ApiFailure> {
    let bad = |text: String| ApiFailure::new(Code::BadRequest, format!("the request's body: {text}"));
    let body = if body.is_empty() { b"{}" } else { body };
    let given: Map<String, Value> = serde_json::from_slice(body).map_err(|e| bad(e.to_string()))?;
    let known = known_keys::<T>();
    if let Some(key) = given.keys().find(|key| !known.contains_key(*key)) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let key: String = key.chars().filter(|c| !c.is_control()).take(KEY_CHARS_MAX).collect();
        let may = if names.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", names.join(", ")) };
        let failure = ApiFailure::new(Code::UnknownKey, format!("the request's body: unknown key `{key}`; {may}"));
        return Err(failure.details(serde_json::json!({ "key": key, "known": names })));
    }
    serde_json::from_slice(body).map_err(|e| match first_invalid_value::<T>(&given, &known) {
        Some((path, why)) => bad(format!("{path}: {why}")).details(serde_json::json!({ "path": path })),
        None => bad(e.to_string()),
    })
}

/// Finds the first invalid value. It inserts each value alone into a valid body, because flattened
/// structs keep no positions.
fn first_invalid_value<T: DeserializeOwned>(
    given: &Map<String, Value>,
    fits: &Map<String, Value>,
) -> Option<(String, String)> {
    let fault = |key: &str, value: Value| {
        let mut one = fits.clone();
        one.insert(key.to_owned(), value);
        serde_json::from_value::<T>(Value::Object(one)).err().map(|e| e.to_string())
    };
    let (key, why) = given.iter().find_map(|(key, value)| Some((key, fault(key, value.clone())?)))?;
    let items = given[key].as_array().into_iter().flatten().enumerate();
    let inner = items.into_iter().find_map(|(at, item)| Some((at, fault(key, Value::Array(vec![item.clone()]))?)));
    Some(inner.map_or_else(|| (key.clone(), why), |(at, why)| (format!("{key}[{at}]"), why)))
}

/// A request body as bytes.
#[derive(Debug, Clone)]
pub struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = ApiFailure;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiFailure> {
        let most = request.extensions().get().map_or(BODY_MAX, |limit: &BodyLimit| limit.0);
        read_bounded(request.into_body(), most).await.map(Self)
    }
}

/// Adds error answers for requests that no route of the router accepts.
pub fn finish(router: Router) -> Router {
    let no_such = |method: Method, uri: Uri| async move {
        ApiFailure::new(Code::NotFound, format!("no such endpoint: {method} {}", uri.path()))
    };
    let wrong_method = |method: Method, uri: Uri| async move {
        ApiFailure::new(Code::MethodNotAllowed, format!("{} does not accept {method}", uri.path()))
    };
    router.fallback(no_such).method_not_allowed_fallback(wrong_method)
}

/// An answer with one JSON value in each line. It lasts as long as the sender exists. Every 10 s
/// without events it has an empty line. When the client disconnects, the receiver is dropped, and
/// the sender notices it.
pub fn ndjson(events: mpsc::Receiver<Value>) -> Response {
    let lines = futures_util::stream::unfold(events, |mut events| async move {
        let line = match tokio::time::timeout(HEARTBEAT, events.recv()).await {
            Ok(None) => return None,
            Ok(Some(event)) => format!("{event}\n"),
            Err(_) => "\n".to_owned(),
        };
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(line)), events))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert!(!code.status().is_success());
        }
        assert_eq!(Code::parse("of-the-future"), None);
    }

    #[test]
    fn an_order_that_is_half_understood_is_refused_by_name() {
        use crate::rpc::view::{InviteRequest, Nothing, OrderRequest, OrdersRequest};
        let of = |body: &str| parse_strict::<OrdersRequest>(body.as_bytes());
        assert!(of(r#"{"order": "update", "nodes": ["w1", "w2"], "no_canary": true}"#).unwrap().request.no_canary);
        let good = of(r#"{"order": "resetup", "nodes": ["w1"], "now": true}"#).unwrap();
        assert_eq!((good.order.as_str(), good.request.now), ("resetup", true), "flattened keys are known too");
        let refused = of(r#"{"nodes": ["w1"], "forse": false}"#).unwrap_err();
        assert_eq!((refused.code, &refused.details["key"]), (Code::UnknownKey, &"forse".into()));
        assert!(refused.message.contains("unknown key `forse`"), "{refused}");
        for (body, path) in [
            (r#"{"now": "yes"}"#, "now"),
            (r#"{"nodes": ["w1", 7]}"#, "nodes[1]"),
            (r#"{"nodes": "w1"}"#, "nodes"),
            (r#"{"for_ms": -1}"#, "for_ms"),
        ] {
            let refused = of(body).unwrap_err();
            assert_eq!((refused.code, &refused.details["path"]), (Code::BadRequest, &path.into()), "{body}: {refused}");
        }
        for body in ["[]", "7", "null", "{", "{\"now\": true} {}"] {
            assert_eq!(of(body).unwrap_err().code, Code::BadRequest, "{body}");
        }
        assert_eq!(parse_strict::<OrderRequest>(b"").unwrap(), OrderRequest::default());
        assert_eq!(parse_strict::<Nothing>(b"{}").unwrap(), Nothing {});
        assert_eq!(parse_strict::<Nothing>(b"{\"now\": true}").unwrap_err().code, Code::UnknownKey);
        assert_eq!(parse_strict::<InviteRequest>(b"{}").unwrap_err().code, Code::BadRequest, "a name is required");
        let long = format!("{{\"{}\": 1}}", "x".repeat(9_999));
        assert!(of(&long).unwrap_err().message.len() < 500);
    }

    #[test]
    fn moments_have_milliseconds_and_an_end() {
        assert_eq!(rfc3339(Wall(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert!(rfc3339(Wall(u64::MAX)).starts_with("9999-"));
    }
}
