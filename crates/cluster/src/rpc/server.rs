//! Serves a router over TLS and attaches the caller's identity to each request. Invalid input uses
//! only bounded time and memory.
//!
//! No input on the port ends the daemon. A failing connection ends alone.

use super::caller::{Caller, PeerAddr};
use super::client_verifier::IssuerStatus;
use super::connection_places::{ConnectionPlaces, Precedence};
use super::handshake_limiter::HandshakeLimiter;
use super::join_proof::ChannelBinding;
use super::raft_stream::{self, ThreadChooser};
use super::renew::RENEW_PATH;
use super::tls::{JudgedChain, ServerTls};
use super::wire::{ApiFailure, CLOCK, Code};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use remoor_host::wall_clock::now;
use rustls_pki_types::CertificateDer;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Maximum bytes that are read and discarded from a client whose handshake failed or whose body was
/// rejected. The reading ensures that the client receives the TLS alert or the answer.
const LINGER_BYTES_MAX: u64 = 1 << 20;
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of headers of a request. `HEADER_BYTES_MAX` is their maximum size in bytes.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Pause after a connection could not be accepted, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// If a client leaves sent bytes unacknowledged for this time, its connection is closed.
const SILENT_MS_MAX: u32 = 30_000;

/// The limits of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Maximum open connections after their handshake. Further connections are closed at once.
    pub connections: usize,
    /// Maximum open connections in addition to `connections`. Only managers and operators may use
    /// them.
    pub reserved: usize,
    /// Maximum connections of all addresses whose handshake has not ended. A further connection
    /// replaces the oldest one of the address with the most connections.
    pub handshakes: usize,
    /// Maximum connections without a certificate. They count as part of `connections`.
    pub anonymous: usize,
    /// Timeout of the TLS handshake.
    pub handshake: Duration,
    /// Timeout of a request's header; also the maximum pause between two requests on a connection.
    pub header: Duration,
    /// Maximum time that running requests get to finish after the shutdown was requested.
    pub drain: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 384,
            reserved: 128,
            handshakes: 256,
            anonymous: 128,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            drain: Duration::from_secs(3),
        }
    }
}

/// Whether connections are reserved for this caller, because it is a manager or operator. The
/// function is called for each connection.
pub type ReservedCallers = Arc<dyn Fn(&Caller) -> bool + Send + Sync>;

/// The services of one port: a router, and the threads for messages without HTTP.
#[derive(Clone)]
pub struct Served {
    pub router: Router,
    pub thread_chooser: ThreadChooser,
    pub reserved: ReservedCallers,
}

impl From<Router> for Served {
    fn from(router: Router) -> Self {
        Self { router, thread_chooser: Arc::new(|_| None), reserved: Arc::new(|_| false) }
    }
}

/// Serves nodes, operators and anonymous clients until `shutdown` is ready. Then it waits for
/// running requests, within the limits.
pub async fn serve_tls(
    listener: TcpListener,
    tls: ServerTls,
    served: impl Into<Served>,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let served: Served = served.into();
    let places = ConnectionPlaces::new(&limits);
    let doors = HandshakeLimiter::new(limits.handshakes);
    let serve = |(stream, addr): (TcpStream, SocketAddr), stop: watch::Receiver<bool>| {
        let (tls, served, places, mut guest) = (tls.clone(), served.clone(), places.clone(), doors.enter(addr.ip()));
        async move {
            let shaken = tokio::select! {
                shaken = handshake(stream, &tls, addr, limits.handshake) => shaken,
                () = guest.until_dropped() => {
                    return tracing::debug!(%addr, "too many unfinished handshakes, closing the oldest of this address");
                }
            };
            let Some((mut stream, caller, judged)) = shaken else { return };
            drop(guest);
            let precedence = if (served.reserved)(&caller) { Precedence::Reserved } else { Precedence::Common };
            let _open = match places.take(&caller, precedence) {
                Ok(place) => place,
                Err(taken) => return tracing::debug!(%addr, "{taken} are taken, closing a new connection"),
            };
            let other = async {
                match judged {
                    Some(judged) => judged.until_changed().await,
                    None => std::future::pending().await,
                }
            };
            let peer = PeerAddr(Some(addr));
            let serving = async move {
                if stream.get_ref().1.alpn_protocol() != Some(raft_stream::PROTOCOL) {
                    let caller = (caller, peer, ChannelBinding::of_connection(stream.get_ref().1));
                    return serve_connection(stream, served.router, caller, limits.header, stop).await;
                }
                // Only messages of nodes are read, because a message is read before the router
                // checks the authorisation, and possibly on Raft's thread.
                let node = if let Caller::Node { id, .. } = &caller { Some(*id) } else { None };
                let Some(node) = node.filter(|_| !caller.may_only_renew(now())) else {
                    return tracing::debug!(%addr, "only nodes may send messages without HTTP");
                };
                let Some(threads) = (served.thread_chooser)(node) else {
                    let ended =
                        raft_stream::serve(&mut stream, served.router, (caller, peer), false, limits.header, stop)
                            .await;
                    return log_connection_end(&peer, ended);
                };
                // The serving task is in a JoinSet, so that it is aborted when the task that
                // spawned it is aborted.
                let mut task = JoinSet::new();
                task.spawn_on(
                    async move {
                        raft_stream::take_over(&mut stream)?;
                        raft_stream::serve(&mut stream, served.router, (caller, peer), true, limits.header, stop).await
                    },
                    &threads,
                );
                // If the runtime of the chosen threads has shut down, the task ends without a
                // result.
                log_connection_end(&peer, task.join_next().await.and_then(Result::ok).unwrap_or(Ok(())));
            };
            tokio::select! {
                () = serving => {}
                () = other => tracing::debug!(%addr, "the CA of the caller's certificate was replaced; closing the connection"),
            }
        }
    };
    // Each kind of connection is limited above, so this limit must not be below their sum.
    // Handshakes count twice, because a dropped connection ends only a moment later.
    let sum = limits.connections + limits.reserved + 2 * limits.handshakes;
    let limits = ServerLimits { connections: sum, ..limits };
    accept_loop(&listener, serve, limits, shutdown).await;
}

/// A source of connections.
pub(super) trait Accept {
    type Connection;

    /// The next connection. Cancelling the future loses no connection.
    fn next(&self) -> impl Future<Output = std::io::Result<Self::Connection>> + Send;
}

impl Accept for TcpListener {
    type Connection = (TcpStream, SocketAddr);

    async fn next(&self) -> std::io::Result<Self::Connection> {
        let (stream, addr) = self.accept().await?;
        // The connection works without the two TCP options below. They only improve it, so errors
        // are ignored.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&stream, true);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, SILENT_MS_MAX);
        Ok((stream, addr))
    }
}

/// Accepts connections until `shutdown` is ready, and serves each in its own task. Then it waits
/// for the tasks, at most for `drain`.
pub(super) async fn accept_loop<A: Accept, S: Future<Output = ()> + Send + 'static>(
    listener: &A,
    serve: impl Fn(A::Connection, watch::Receiver<bool>) -> S,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            // A panic of a handler ends only its connection. The panic hook has logged it.
            Some(_) = tasks.join_next() => {}
            accepted = listener.next() => match accepted {
                Ok(_) if tasks.len() >= limits.connections => tracing::debug!("too many connections, closing a new one"),
                Ok(connection) => drop(tasks.spawn(serve(connection, stopped.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    stop.send_replace(true);
    let all_done = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.drain, all_done).await.is_err() {
        tasks.shutdown().await;
    }
}

type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

async fn handshake(
    tcp: TcpStream,
    tls: &ServerTls,
    addr: SocketAddr,
    within: Duration,
) -> Option<(TlsStream, Caller, Option<JudgedChain>)> {
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.current());
    let stream = match tokio::time::timeout(within, acceptor.accept(tcp).into_fallible()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err((error, mut tcp))) => {
            tracing::debug!(%addr, %error, "TLS handshake failed");
            linger(&mut tcp).await;
            return None;
        }
        Err(_) => {
            tracing::debug!(%addr, "TLS handshake timed out");
            return None;
        }
    };
    let chain: Vec<CertificateDer<'static>> =
        stream.get_ref().1.peer_certificates().into_iter().flatten().map(|c| c.clone().into_owned()).collect();
    let Some(certificate) = chain.first() else { return Some((stream, Caller::Anonymous, None)) };
    match Caller::from_certificate(certificate, tls.cluster()) {
        Ok(caller) => {
            let judged = tls.judge(chain);
            let caller = if judged.by == IssuerStatus::Present { caller } else { caller.with_replaced_ca() };
            Some((stream, caller, Some(judged)))
        }
        Err(error) => {
            tracing::warn!(%addr, %error, "the caller's certificate is of this cluster but names no node or operator");
            None
        }
    }
}

/// Reads for a short time before the socket is closed. A socket that is closed with unread bytes is
/// reset, and the client would not receive the last bytes that were sent to it.
async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let drain = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // The result does not matter, because the connection ends in any case.
    let _ = tokio::time::timeout(LINGER, drain).await;
}

/// Serves the requests of one connection, one after the other, until the connection ends or `stop`
/// becomes true. On a TLS connection, each request has the channel binding as an extension.
pub(super) async fn serve_connection(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    (caller, peer, binding): (Caller, PeerAddr, Option<ChannelBinding>),
    header: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let inner = TowerToHyperService::new(router);
    // Whether the last request has a body. The body may have been rejected before its end.
    let has_body = AtomicBool::new(false);
    let service = hyper::service::service_fn(|mut request: Request<Incoming>| {
        has_body.store(!request.body().is_end_stream(), Ordering::Relaxed);
        binding.and_then(|binding| request.extensions_mut().insert(binding));
        let (inner, caller) = (inner.clone(), caller.clone());
        async move { Ok::<_, Infallible>(answer(inner, request.map(Body::new), caller, peer).await) }
    });
    let ended = {
        let mut connection = pin!(
            hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(header)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEADER_BYTES_MAX)
                .serve_connection(TokioIo::new(&mut stream), service)
        );
        tokio::select! {
            ended = connection.as_mut() => ended,
            // A closed channel means that the server is gone, so the connection ends too.
            _ = async { stop.wait_for(|stop| *stop).await.is_ok() } => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if ended.is_ok() && has_body.load(Ordering::Relaxed) {
        linger(&mut stream).await;
    }
    log_connection_end(&peer, ended);
}

fn log_connection_end(peer: &PeerAddr, ended: Result<(), impl std::fmt::Display>) {
    if let Err(error) = ended {
        tracing::debug!(?peer, %error, "connection ended");
    }
}

/// The router's response to a request of this caller. With an expired certificate, the caller may
/// only request a new one.
pub(super) async fn answer(
    router: TowerToHyperService<Router>,
    mut request: Request<Body>,
    caller: Caller,
    peer: PeerAddr,
) -> Response {
    let expired = caller.may_only_renew(now());
    // The layers above decide whether the certificate is renewed.
    let mut response = if expired && request.uri().path() != RENEW_PATH {
        let text = match caller.has_replaced_ca() {
            true => "the CA of the caller's certificate was replaced: the certificate is no longer accepted",
            false if caller.is_early(now()) => "the caller's certificate is not valid yet: is one of the clocks wrong?",
            false => "the caller's certificate has expired",
        };
        let failure = ApiFailure::new(Code::CredentialExpired, text);
        let next = match &caller {
            Caller::Node { .. } => "the node's daemon requests a new one; to follow it, on a manager: remoor nodes",
            _ if caller.has_replaced_ca() => {
                "create new credentials, as root on a manager: remoor key operator NAME --file FILE"
            }
            _ => "check the clocks of both machines; root on a manager needs no certificate",
        };
        failure.next(next).into_response()
    } else {
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(peer);
        match router.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    response.headers_mut().insert(CLOCK, HeaderValue::from(now().0));
    if expired {
        // Close the connection, because the client's next connection may use a new certificate.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
