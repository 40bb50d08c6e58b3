//! Requests to a daemon, over its local socket or over TLS. The connections are pooled, and each
//! request has a timeout.
//!
//! The client repeats a request only if the server has certainly not received it. A Raft message is
//! an exception: it may be sent once more, because Raft tolerates duplicates.

use super::body::{self, BodyError};
use super::clocks::PeerClocks;
use super::connect::{self, ClientTarget, Sender};
use super::join_proof::ChannelBinding;
use super::raft_stream_pool::{FreeStream, RaftStreamPool};
use super::tls::ClientTls;
use super::wire::{ApiFailure, BEHALF, BEHALF_KEY, CLOCK, Code, ErrorBody, HEARTBEAT, LARGE_BODY_MAX};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use remoor_model::{NodeId, Wall};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Timeout of a request unless [`Client::with_timeout`] sets another.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);
/// Maximum time for which an unused connection is kept. It is well below the server's timeout, so
/// that requests do not use a connection that the server is closing.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Maximum unused connections kept.
const POOL_MAX: usize = 8;
/// Maximum length of a line of an event stream, in bytes.
const LINE_MAX: usize = 1 << 20;
/// If an event stream sends nothing for this time, it counts as broken.
const SILENCE_MAX: Duration = HEARTBEAT.saturating_mul(3);
/// Maximum characters of a body that an error message shows. It applies to a body that is no API
/// error.
const SHOWN_MAX: usize = 200;

/// The reason why a request was not answered successfully.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ApiError {
    /// The daemon answered with an error. The code says in which state the server is afterwards.
    #[error("{message}")]
    Status { code: String, message: String, next: Option<String>, details: Box<Value>, http: u16 },
    /// There is no connection. Nothing was sent, so a retry here or at another daemon is safe.
    #[error("can't reach {addr}: {reason}")]
    Unreachable { addr: String, reason: String },
    /// The server is not the expected node, or it rejects our certificate. Nothing was done, and a
    /// retry will not help.
    #[error("{addr} can't be trusted or does not trust us: {reason}")]
    Identity { addr: String, reason: String },
    /// The request was sent, but not answered in time. It may have been executed.
    #[error("{addr} did not answer within {} ms", waited.as_millis())]
    Timeout { addr: String, waited: Duration },
    /// The request was sent, but the connection broke or the answer is invalid. The request may
    /// have been executed.
    #[error("talking to {addr} failed: {reason}")]
    Protocol { addr: String, reason: String },
}

impl ApiError {
    /// The machine-readable code of an error answer.
    pub fn code(&self) -> Option<&str> {
        if let Self::Status { code, .. } = self { Some(code) } else { None }
    }

    /// Whether the request may have been executed although there is no valid answer.
    pub fn maybe_done(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Protocol { .. })
    }

    /// Converts the error into the answer to another caller. If the other daemon answered, the
    /// result is its own error. Otherwise the result is our message with the code that `unanswered`
    /// returns.
    pub fn into_failure(self, unanswered: impl FnOnce(&Self) -> Code) -> ApiFailure {
        match self {
            Self::Status { code, message, next, details, .. } => {
                let failure = ApiFailure::new(Code::parse(&code).unwrap_or(Code::Internal), message).details(*details);
                match next {
                    Some(next) => failure.next(next),
                    None => failure,
                }
            }
            other => ApiFailure::new(unanswered(&other), other.to_string()),
        }
    }
}

/// A client of one daemon. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientShared>,
    timeout: Duration,
    answer_max: usize,
    behalf: Option<(Arc<str>, Option<Arc<str>>)>,
    clocks: Option<PeerClocks>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.shared.target)
    }
}

struct ClientShared {
    target: ClientTarget,
    idle: Mutex<Vec<(PooledConnection, Instant)>>,
    raft_streams: Arc<RaftStreamPool>,
}

/// A connection, and the value of [`Client::certificate_generation`] when it was opened.
struct PooledConnection {
    sender: Sender,
    certificate_generation: u64,
}

impl Client {
    /// A client of the daemon on this machine, by the path of its socket.
    pub fn unix(path: impl AsRef<Path>) -> Self {
        Self::new(ClientTarget::Unix(path.as_ref().into()))
    }

    /// A client of the daemon at `addr` (host and port). If `expected` is given, the daemon must be
    /// that node; otherwise it may be any node of the cluster.
    pub fn tls(addr: impl Into<String>, tls: &ClientTls, expected: Option<NodeId>) -> Self {
        Self::new(ClientTarget::Tls { addr: addr.into(), tls: tls.clone(), expected })
    }

    fn new(target: ClientTarget) -> Self {
        let raft_streams = Arc::new(RaftStreamPool::new(target.clone()));
        Self {
            shared: Arc::new(ClientShared { target, idle: Mutex::default(), raft_streams }),
            timeout: REQUEST_WITHIN,
            answer_max: LARGE_BODY_MAX,
            behalf: None,
            clocks: None,
        }
    }

    /// A client with the same daemon and connections, and another timeout. The timeout includes
    /// everything from dialling to the last byte of the answer.
    pub fn with_timeout(&self, within: Duration) -> Self {
        Self { timeout: within, ..self.clone() }
    }

    /// A client with the same daemon and connections, for which an answer of more than `most` bytes
    /// is a protocol error.
    pub fn with_answer_max(&self, most: usize) -> Self {
        Self { answer_max: most, ..self.clone() }
    }

    /// A client with the same daemon and connections, for forwarded requests. Its requests contain
    /// the name of the original caller, and the key of an operator in hex.
    pub fn on_behalf(&self, of: &str, key: Option<&str>) -> Self {
        Self { behalf: Some((of.into(), key.map(Arc::from))), ..self.clone() }
    }

    /// A client with the same daemon and connections. If the client expects a certain node, the
    /// clock in each answer of that node is recorded in `clocks`.
    pub fn comparing_clocks(&self, clocks: &PeerClocks) -> Self {
        Self { clocks: Some(clocks.clone()), ..self.clone() }
    }

    /// The address to which requests are sent, for messages to operators.
    pub fn addr(&self) -> String {
        self.shared.target.to_string()
    }

    /// Sends a GET request for `path`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.json(&self.exchange(Method::GET, path, None).await?)
    }

    /// Sends `body` as JSON to `path`.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body)
            .map_err(|e| self.protocol(format!("the request cannot be encoded as JSON: {e}")))?;
        self.json(&self.exchange(Method::POST, path, Some(("application/json", body.into()))).await?)
    }

    /// Sends JSON on a new connection. `body` receives the value that identifies the connection,
    /// and returns the JSON. So the JSON can contain a proof that is valid on this connection only.
    pub(super) async fn post_bound<T: DeserializeOwned>(
        &self,
        path: &str,
        body: impl FnOnce(&ChannelBinding) -> Vec<u8>,
    ) -> Result<T, ApiError> {
        let exchange = async {
            let (mut sender, binding) = connect::connect_bound(&self.shared.target).await?;
            let request = self.build(Method::POST, path, Some(("application/json", body(&binding).into())))?;
            let response = sender.send_request(request).await.map_err(|e| self.broken_connection(&e))?;
            let status = response.status();
            let body = self.collect(response).await?;
            if status.is_success() { Ok(body) } else { Err(self.refusal(status, &body)) }
        };
        self.json(&self.in_time(exchange).await?)
    }

    /// Requests bytes, such as a blob.
    pub async fn get_bytes(&self, path: &str) -> Result<Bytes, ApiError> {
        self.exchange(Method::GET, path, None).await
    }

    /// Sends bytes and receives bytes, such as blobs.
    pub async fn post_bytes(&self, path: &str, body: Bytes) -> Result<Bytes, ApiError> {
        self.exchange(Method::POST, path, Some(("application/octet-stream", body))).await
    }

    /// Sends a Raft message and returns the answer. If the server supports messages without HTTP,
    /// HTTP is not used. The message may be sent twice, which Raft tolerates. If the caller gives
    /// up, a dial and the receipt of the answer continue in the background.
    pub async fn send_raft_message(&self, kind: &str, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
        let (pool, body) = (&self.shared.raft_streams, Bytes::from(body));
        self.in_time(async {
            let mut repeated = false;
            while let Some(open) = pool.take(self.certificate_generation(), IDLE_MAX).await? {
                // The server may have closed a stream that was used before.
                let last = repeated || !open.used;
                match self.send_on(open, kind, body.clone()).await {
                    Ok(answer) => return answer,
                    Err(error) if last => return Err(self.broken_connection(&error)),
                    Err(_) => {
                        repeated = true;
                        pool.drop_free();
                    }
                }
            }
            if let Some((sender, certificate_generation)) = pool.take_http() {
                self.keep(PooledConnection { sender, certificate_generation });
            }
            Ok(self.post_bytes(&format!("/raft/{kind}"), body).await?.into())
        })
        .await
    }

    /// Sends a message on an open stream. The outer error means that the connection was dropped.
    /// The server possibly did not receive the message.
    async fn send_on(&self, open: FreeStream, kind: &str, body: Bytes) -> std::io::Result<Result<Vec<u8>, ApiError>> {
        let answer = self.shared.raft_streams.ask(open, kind, body).await?;
        Ok(answer.map_err(|no| {
            let code = serde_json::from_slice::<ErrorBody>(&no).ok().and_then(|e| Code::parse(&e.error.code));
            self.refusal(code.unwrap_or(Code::Internal).status(), &no)
        }))
    }

    /// Opens an event stream. The request timeout limits only the opening. Afterwards `SILENCE_MAX`
    /// limits each wait for data.
    pub async fn stream_lines(&self, path: &str) -> Result<EventLines, ApiError> {
        let open = async {
            let (response, connection) = self.send(Method::GET, path, None).await?;
            match response.status() {
                status if status.is_success() => Ok((response, connection.sender)),
                status => Err(self.refusal(status, &self.collect(response).await?)),
            }
        };
        let (response, sender) = self.in_time(open).await?;
        Ok(EventLines {
            client: self.clone(),
            body: response.into_body(),
            _sender: sender,
            pending: BytesMut::new(),
            seen: 0,
        })
    }

    /// Sends one request and receives its whole answer.
    async fn exchange(&self, method: Method, path: &str, body: Option<Typed>) -> Result<Bytes, ApiError> {
        self.in_time(async {
            let asked = Instant::now();
            let (response, connection) = self.send(method, path, body).await?;
            self.record_clock(&response, asked);
            let status = response.status();
            let body = self.collect(response).await?;
            self.keep(connection);
            if status.is_success() { Ok(body) } else { Err(self.refusal(status, &body)) }
        })
        .await
    }

    /// Records the clock that an answer contains. Error answers contain it too.
    fn record_clock(&self, response: &Response<Incoming>, asked: Instant) {
        let (Some(clocks), ClientTarget::Tls { expected: Some(node), .. }) = (&self.clocks, &self.shared.target) else {
            return;
        };
        // Programs of earlier versions do not send the time of their clock.
        let wall = response.headers().get(CLOCK).and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(wall) = wall {
            clocks.record(*node, Wall(wall), asked, Instant::now());
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
        let timeout = || ApiError::Timeout { addr: self.addr(), waited: self.timeout };
        tokio::time::timeout(self.timeout, work).await.unwrap_or_else(|_| Err(timeout()))
    }

    fn build(&self, method: Method, path: &str, body: Option<Typed>) -> Result<Request<Full<Bytes>>, ApiError> {
        let (content_type, body) = body.unwrap_or(("", Bytes::new()));
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "remoor");
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some((behalf, key)) = &self.behalf {
            request = request.header(BEHALF, &**behalf);
            if let Some(key) = key {
                request = request.header(BEHALF_KEY, &**key);
            }
        }
        let bad = |e: hyper::http::Error| self.protocol(format!("{path:?} is not a path: {e}"));
        request.body(Full::new(body)).map_err(bad)
    }

    /// Sends a request, on a pooled connection if there is one. If a pooled connection turns out to
    /// be closed before the request was sent, the next one is used.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Typed>,
    ) -> Result<(Response<Incoming>, PooledConnection), ApiError> {
        let mut request = self.build(method, path, body)?;
        loop {
            let (mut connection, kept) = match self.take() {
                Some(connection) => (connection, true),
                None => {
                    let turn = self.certificate_generation();
                    (
                        PooledConnection {
                            sender: connect::connect(&self.shared.target).await?,
                            certificate_generation: turn,
                        },
                        false,
                    )
                }
            };
            let sender = &mut connection.sender;
            if sender.ready().await.is_err() && kept {
                continue;
            }
            let mut failed = match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(failed) => failed,
            };
            match failed.take_message() {
                Some(unsent) if kept => request = unsent,
                _ => return Err(self.broken_connection(failed.error())),
            }
        }
    }

    async fn collect(&self, response: Response<Incoming>) -> Result<Bytes, ApiError> {
        match body::receive(response.into_body(), self.answer_max).await {
            Ok(body) => Ok(body),
            Err(BodyError::TooLong) => {
                Err(self.protocol(format!("the answer has more than {} bytes", self.answer_max)))
            }
            Err(BodyError::Broken(e)) => Err(self.broken_connection(&e)),
        }
    }

    fn take(&self) -> Option<PooledConnection> {
        let (turn, mut idle) =
            (self.certificate_generation(), self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner));
        idle.retain(|(c, since)| {
            since.elapsed() < IDLE_MAX && c.certificate_generation == turn && !c.sender.is_closed()
        });
        idle.pop().map(|(connection, _)| connection)
    }

    fn keep(&self, connection: PooledConnection) {
        let (turn, mut idle) =
            (self.certificate_generation(), self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner));
        if idle.len() < POOL_MAX && connection.certificate_generation == turn && !connection.sender.is_closed() {
            idle.push((connection, Instant::now()));
        }
    }

    /// A number that changes with each renewal of our certificate. A server judges a connection by
    /// the certificate that opened it, so older connections are not used again.
    fn certificate_generation(&self) -> u64 {
        match &self.shared.target {
            ClientTarget::Unix(_) => 0,
            ClientTarget::Tls { tls, .. } => tls.generation(),
        }
    }

    fn json<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ApiError> {
        serde_json::from_slice(body).map_err(|e| self.protocol(format!("its answer can't be read: {e}")))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> ApiError {
        match serde_json::from_slice(body) {
            Ok(ErrorBody { error: e }) => ApiError::Status {
                code: e.code,
                message: e.message,
                next: e.next,
                details: Box::new(e.details),
                http: status.as_u16(),
            },
            Err(_) => {
                let shown: String = String::from_utf8_lossy(body).chars().take(SHOWN_MAX).collect();
                self.protocol(format!("it answered {status}: {shown}"))
            }
        }
    }

    fn broken_connection(&self, error: &(dyn std::error::Error + 'static)) -> ApiError {
        connect::fault(&self.shared.target, error).unwrap_or_else(|| self.protocol(connect::chain(error)))
    }

    fn protocol(&self, reason: String) -> ApiError {
        ApiError::Protocol { addr: self.addr(), reason }
    }
}

/// A request body and its content type.
type Typed = (&'static str, Bytes);

/// An event stream with one JSON value per line. The connection ends when this is dropped.
pub struct EventLines {
    client: Client,
    body: Incoming,
    /// Keeps the connection open.
    _sender: Sender,
    /// Received bytes that `next` has not returned yet.
    pending: BytesMut,
    /// Length of the prefix of `pending` that certainly contains no line end.
    seen: usize,
}

impl EventLines {
    /// The next event, or None after the last one. Cancelling the future loses no event. After an
    /// error the stream must not be used any more.
    pub async fn next(&mut self) -> Result<Option<Value>, ApiError> {
        loop {
            if let Some(line) = self.line() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return self.client.json(&line).map(Some);
            }
            if self.pending.len() > LINE_MAX {
                return Err(self.client.protocol(format!("received a line of more than {LINE_MAX} bytes")));
            }
            let frame = match tokio::time::timeout(SILENCE_MAX, self.body.frame()).await {
                Ok(frame) => frame,
                Err(_) => return Err(ApiError::Timeout { addr: self.client.addr(), waited: SILENCE_MAX }),
            };
            match frame {
                Some(Ok(frame)) => self.pending.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d)),
                Some(Err(e)) => return Err(self.client.broken_connection(&e)),
                None if self.pending.is_empty() => return Ok(None),
                None => return Err(self.client.protocol("the stream ended within a line".into())),
            }
        }
    }

    fn line(&mut self) -> Option<BytesMut> {
        let end = self.pending[self.seen..].iter().position(|b| *b == b'\n').map(|at| self.seen + at + 1);
        self.seen = if end.is_some() { 0 } else { self.pending.len() };
        end.map(|end| self.pending.split_to(end))
    }
}
