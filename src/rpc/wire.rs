//! What every answer of the API has in common: the error body, moments, event streams, and extractors that answer a bad
//! request in the same form. The answers themselves, with their source and age, are in `view`.

use crate::model::Wall;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// What helps where no majority of the managers answers.
pub const NO_QUORUM_NEXT: &str = "bring a majority of the managers back (remoor raft-members names them); if they are lost for \
                                  ever: systemctl stop remoor, then remoor recover --force-new-cluster --dry-run";

/// Largest body of a request, bytes, unless a route says otherwise.
pub const BODY_MAX: usize = 2 << 20;
/// Header of a request that a manager passes on: for whom it asks.
pub const BEHALF: &str = "remoor-on-behalf-of";
/// The same: an operator's key, in hex, which may be revoked.
pub const BEHALF_KEY: &str = "remoor-on-behalf-of-key";
/// Largest body of Raft messages and blobs, bytes; also the largest answer that a client takes.
pub const LARGE_BODY_MAX: usize = 64 << 20;
/// Of an unknown key, in an answer.
const KEY_CHARS_MAX: usize = 64;
/// How long a request's body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How often an event stream says that it is still there, by an empty line.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident;)*) => {
        /// What went wrong, for programs. A client takes codes that it does not know, too.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// As on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// The HTTP status that goes with it.
            pub fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)* }
            }
        }
    };
}

codes! {
    /// The request can't be understood.
    BadRequest = "bad-request", BAD_REQUEST;
    /// The request's body has a key that means nothing here; `details.key` names it. Nothing was changed.
    UnknownKey = "unknown-key", BAD_REQUEST;
    /// The fleet, a file of it or a value in it is not valid.
    Invalid = "invalid", UNPROCESSABLE_ENTITY;
    /// A caller without a certificate asked for what needs one.
    Unauthenticated = "unauthenticated", UNAUTHORIZED;
    /// The caller's certificate ran out.
    CredentialExpired = "credential-expired", UNAUTHORIZED;
    /// The secret of a join token is not, or no longer, a valid one.
    BadToken = "bad-token", UNAUTHORIZED;
    /// Waits for an operator's `remoor accept`; ask again.
    Pending = "pending", FORBIDDEN;
    /// The clock of the machine that joins is off; `details.skew_ms` says how far it is ahead.
    ClockSkew = "clock-skew", CONFLICT;
    /// The caller is known, but may not do this.
    Forbidden = "forbidden", FORBIDDEN;
    /// The caller was removed from the cluster.
    NodeRemoved = "node-removed", FORBIDDEN;
    /// The caller is no member of Raft any more: the id by which it speaks is nobody's, and never will be.
    Retired = "retired", FORBIDDEN;
    /// The caller's data directory is a copy, or an older one: as a member of Raft it would break what it has promised.
    StaleDirectory = "stale-directory", FORBIDDEN;
    /// A machine that wants to join can't be dialled at the address that it names.
    Unreachable = "unreachable", UNPROCESSABLE_ENTITY;
    /// Sent to, or by, another node than meant.
    WrongNode = "wrong-node", CONFLICT;
    /// Sent by a node of an older or newer epoch.
    WrongEpoch = "wrong-epoch", CONFLICT;
    /// Sent by a node of another cluster.
    WrongCluster = "wrong-cluster", CONFLICT;
    NotFound = "not-found", NOT_FOUND;
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED;
    /// What is there is not what the caller thought.
    Conflict = "conflict", CONFLICT;
    /// A guard refuses: nothing was changed.
    Refused = "refused", CONFLICT;
    TooLarge = "too-large", PAYLOAD_TOO_LARGE;
    RateLimited = "rate-limited", TOO_MANY_REQUESTS;
    /// Another manager leads; `details.leader` says which, if known. Nothing was changed.
    NotLeader = "not-leader", MISDIRECTED_REQUEST;
    /// This manager lags behind; ask again, or another. Nothing was changed.
    Retry = "retry", SERVICE_UNAVAILABLE;
    /// No majority of managers can be reached. Nothing was changed.
    NoQuorum = "no-quorum", SERVICE_UNAVAILABLE;
    /// Whether the command was committed is not known.
    OutcomeUnknown = "outcome-unknown", GATEWAY_TIMEOUT;
    /// This daemon does not do that: a worker asked for what managers answer, or a part that is not running.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE;
    /// The other side did not answer in time.
    Timeout = "timeout", GATEWAY_TIMEOUT;
    /// A fault of remoor itself.
    Internal = "internal", INTERNAL_SERVER_ERROR;
}

impl Code {
    /// The code of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An answer that says no: `{"error": {"code", "message", "next", "details"}}`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: Code,
    /// For people: lower case, no final stop.
    pub message: String,
    /// The command to try next.
    pub next: Option<String>,
    /// For programs; what it holds depends on the code.
    pub details: Box<Value>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), next: None, details: Box::default() }
    }

    /// Adds the command to try next.
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next = Some(command.into());
        self
    }

    /// Adds facts for programs.
    pub fn details(mut self, details: Value) -> Self {
        self.details = Box::new(details);
        self
    }
}

/// The error body as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorBody {
    pub error: ErrorFields,
}

/// The fields of [`ErrorBody`]; the code is text, since another version may have more of them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorFields {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { code, message, next, details } = self;
        let error = ErrorFields { code: code.as_str().to_owned(), message, next, details: *details };
        (code.status(), axum::Json(ErrorBody { error })).into_response()
    }
}

/// A moment as RFC 3339 with milliseconds, UTC.
pub fn rfc3339(at: Wall) -> String {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    // Wall times beyond the year 9999 come from no clock; they show as the last moment that can be written.
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{moment:.3}")
}

/// An answer as JSON, in which the moments of the log have their text beside them.
#[derive(Debug, Clone, Copy)]
pub struct Answer<T>(pub T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        match serde_json::to_value(self.0) {
            Ok(mut value) => {
                super::view::with_times(&mut value);
                axum::Json(value).into_response()
            }
            Err(error) => Failure::new(Code::Internal, format!("the answer can't be written: {error}")).into_response(),
        }
    }
}

/// A request's body as JSON. A bad one is answered with `bad-request`, naming the place.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Raw(body) = Raw::from_request(request, state).await?;
        let bad = |e: serde_json::Error| Failure::new(Code::BadRequest, format!("the request's body: {e}"));
        serde_json::from_slice(&body).map(Self).map_err(bad)
    }
}

/// The body of an order to `/v1`: a JSON object, or nothing, which is the same as `{}`. A key that means nothing here is
/// refused by name, since an order that is half understood is another order; so is a value of the wrong type, with its place.
#[derive(Debug, Clone, Copy)]
pub struct Strict<T>(pub T);

impl<T: DeserializeOwned + Serialize + Default + 'static, S: Send + Sync> FromRequest<S> for Strict<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Raw(body) = Raw::from_request(request, state).await?;
        strictly(&body).map(Self)
    }
}

/// The keys of a body, each with a value that fits; written down once for each kind of body.
fn keys_of<T: Serialize + Default + 'static>() -> Arc<Map<String, Value>> {
    static KNOWN: Mutex<BTreeMap<TypeId, Arc<Map<String, Value>>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let keys = || match serde_json::to_value(T::default()) {
        Ok(Value::Object(keys)) => Arc::new(keys),
        _ => Arc::default(),
    };
    known.entry(TypeId::of::<T>()).or_insert_with(keys).clone()
}

fn strictly<T: DeserializeOwned + Serialize + Default + 'static>(body: &[u8]) -> Result<T, Failure> {
    let bad = |text: String| Failure::new(Code::BadRequest, format!("the request's body: {text}"));
    let body = if body.is_empty() { b"{}" } else { body };
    let given: Map<String, Value> = serde_json::from_slice(body).map_err(|e| bad(e.to_string()))?;
    let known = keys_of::<T>();
    if let Some(key) = given.keys().find(|key| !known.contains_key(*key)) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let key: String = key.chars().filter(|c| !c.is_control()).take(KEY_CHARS_MAX).collect();
        let may = if names.is_empty() { "it takes none".to_owned() } else { format!("it takes {}", names.join(", ")) };
        let failure = Failure::new(Code::UnknownKey, format!("the request's body: unknown key `{key}`; {may}"));
        return Err(failure.details(serde_json::json!({ "key": key, "known": names })));
    }
    serde_json::from_slice(body).map_err(|e| match misfit::<T>(&given, &known) {
        Some((path, why)) => bad(format!("{path}: {why}")).details(serde_json::json!({ "path": path })),
        None => bad(e.to_string()),
    })
}

/// The first value that does not fit, found by putting each alone into a body that does. A flattened struct keeps no places.
fn misfit<T: DeserializeOwned>(given: &Map<String, Value>, fits: &Map<String, Value>) -> Option<(String, String)> {
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

/// A request's body as bytes.
#[derive(Debug, Clone)]
pub struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        match tokio::time::timeout(BODY_WITHIN, Bytes::from_request(request, state)).await {
            Ok(Ok(bytes)) => Ok(Self(bytes)),
            Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(Failure::new(Code::TooLarge, "the request's body is larger than this endpoint takes"))
            }
            Ok(Err(rejection)) => Err(Failure::new(Code::BadRequest, rejection.body_text())),
            Err(_) => Err(late()),
        }
    }
}

/// A body of at most `most` bytes, in the time that bodies have; for whoever passes a request on.
pub async fn bounded(body: Body, most: usize) -> Result<Bytes, Failure> {
    match tokio::time::timeout(BODY_WITHIN, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let text = format!("the request's body broke off, or is larger than {most} bytes");
            Err(Failure::new(Code::TooLarge, text))
        }
        Err(_) => Err(late()),
    }
}

fn late() -> Failure {
    Failure::new(Code::Timeout, format!("the request's body did not arrive within {} s", BODY_WITHIN.as_secs()))
}

/// The limit for routes that take Raft messages or blobs: `.layer(large_body())`.
pub fn large_body() -> DefaultBodyLimit {
    DefaultBodyLimit::max(LARGE_BODY_MAX)
}

/// Gives a router the usual body limit (routes with a [`large_body`] of their own keep it) and answers for everything else.
pub fn finish(router: Router) -> Router {
    let no_such = |method: Method, uri: Uri| async move {
        Failure::new(Code::NotFound, format!("no such endpoint: {method} {}", uri.path()))
    };
    let wrong_method = |method: Method, uri: Uri| async move {
        Failure::new(Code::MethodNotAllowed, format!("{} does not take {method}", uri.path()))
    };
    router.fallback(no_such).method_not_allowed_fallback(wrong_method).layer(DefaultBodyLimit::max(BODY_MAX))
}

/// An answer of one JSON value a line for as long as the sender lives, with an empty line every 10 s in between. When the
/// client goes away the receiver is dropped, which the sender sees.
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
        let of = |body: &str| strictly::<OrdersRequest>(body.as_bytes());
        assert!(of(r#"{"order": "update", "nodes": ["w1", "w2"], "no_canary": true}"#).unwrap().request.no_canary);
        let good = of(r#"{"order": "resetup", "nodes": ["w1"], "now": true}"#).unwrap();
        assert_eq!((good.order.as_str(), good.request.now), ("resetup", true), "flattened keys are known");
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
        assert_eq!(strictly::<OrderRequest>(b"").unwrap(), OrderRequest::default());
        assert_eq!(strictly::<Nothing>(b"{}").unwrap(), Nothing {});
        assert_eq!(strictly::<Nothing>(b"{\"now\": true}").unwrap_err().code, Code::UnknownKey);
        assert_eq!(strictly::<InviteRequest>(b"{}").unwrap_err().code, Code::BadRequest, "a name is wanted");
        let long = format!("{{\"{}\": 1}}", "x".repeat(9_999));
        assert!(of(&long).unwrap_err().message.len() < 500);
    }

    #[tokio::test]
    async fn a_body_that_is_passed_on_has_a_bound() {
        assert_eq!(bounded(Body::from("1234"), 4).await.unwrap(), "1234");
        assert_eq!(bounded(Body::from("12345"), 4).await.unwrap_err().code, Code::TooLarge);
    }

    #[test]
    fn moments_have_milliseconds_and_an_end() {
        assert_eq!(rfc3339(Wall(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert!(rfc3339(Wall(u64::MAX)).starts_with("9999-"));
    }
}
