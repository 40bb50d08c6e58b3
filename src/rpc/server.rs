//! Serves a router over TLS. Each request is told who calls; what nobody understands costs a bounded time and a bounded room.
//!
//! Whatever comes in on the port, the daemon goes on: a connection that fails ends alone.

use super::caller::{Caller, PeerAddr};
use super::door::Doors;
use super::lane::{self, Place};
use super::lapsed::By;
use super::renew::RENEW_PATH;
use super::tls::{Judged, ServerTls};
use super::wire::{Code, Failure};
use crate::model::Wall;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::CertificateDer;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Most bytes that are read, and thrown away, from a client whose handshake failed, so that it sees why.
const LINGER_BYTES_MAX: u64 = 1 << 20;
const LINGER: Duration = Duration::from_secs(1);
/// Most headers of a request, and most bytes of them.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 64 << 10;
/// How long accepting pauses when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a client may leave sent bytes unacknowledged before its connection is given up.
const SILENT_MS_MAX: u32 = 30_000;

/// What one server spends on its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open connections whose handshake is done; further ones are closed at once.
    pub connections: usize,
    /// Connections whose handshake is not done, of all addresses; further ones are closed at once.
    pub handshakes: usize,
    /// Of these, connections without a certificate.
    pub anonymous: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time for a request's header, also the longest pause between two requests of a connection.
    pub header: Duration,
    /// Time for running requests to end after shutdown was asked for.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshakes: 256,
            anonymous: 128,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            drain: Duration::from_secs(3),
        }
    }
}

/// What is served: a router, and where it is asked by messages without HTTP.
#[derive(Clone)]
pub struct Served {
    pub router: Router,
    pub place: Place,
}

impl From<Router> for Served {
    fn from(router: Router) -> Self {
        Self { router, place: Arc::new(|_| None) }
    }
}

/// Serves to nodes, operators and strangers until `shutdown` is ready; then waits for running requests, as long as the limits
/// say.
pub async fn serve_tls(
    listener: TcpListener,
    tls: ServerTls,
    served: impl Into<Served>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let served: Served = served.into();
    let anonymous = Arc::new(Semaphore::new(limits.anonymous));
    let (known, strangers) =
        (Arc::new(Semaphore::new(limits.connections)), Arc::new(Semaphore::new(limits.handshakes)));
    let doors = Doors::default();
    let serve = |(stream, addr): (TcpStream, SocketAddr), stop: watch::Receiver<bool>| {
        let (tls, served, anonymous, known) = (tls.clone(), served.clone(), anonymous.clone(), known.clone());
        let guest = strangers.clone().try_acquire_owned().ok().and_then(|place| Some((place, doors.knock(addr.ip())?)));
        async move {
            let Some((place, guest)) = guest else {
                return tracing::debug!(%addr, "too many unfinished handshakes, closing a new connection");
            };
            let Ok(turn) = tokio::time::timeout(limits.handshake, guest.turn()).await else { return };
            let Some((mut stream, caller, judged)) = handshake(stream, &tls, addr, limits.handshake).await else {
                return;
            };
            drop((turn, guest, place));
            let Ok(_open) = known.try_acquire() else {
                return tracing::debug!(%addr, "too many connections, closing a new one");
            };
            let place = (caller == Caller::Anonymous).then(|| anonymous.try_acquire());
            if let Some(Err(_)) = place {
                return tracing::debug!(%addr, "too many connections without certificate");
            }
            let other = async {
                match judged {
                    Some(judged) => judged.until_other().await,
                    None => std::future::pending().await,
                }
            };
            let peer = PeerAddr(Some(addr));
            let serving = async move {
                if stream.get_ref().1.alpn_protocol() != Some(lane::PROTOCOL) {
                    return serve_connection(stream, served.router, caller, peer, limits.header, stop).await;
                }
                // Of whoever else comes nothing is read: a message is taken in before the router is asked, and on Raft's thread.
                let node = if let Caller::Node { id, .. } = &caller { Some(*id) } else { None };
                let Some(node) = node.filter(|_| !caller.expired(now())) else {
                    return tracing::debug!(%addr, "only nodes speak without HTTP");
                };
                let Some(threads) = (served.place)(node) else {
                    let ended =
                        lane::serve(&mut stream, served.router, (caller, peer), false, limits.header, stop).await;
                    return told(&peer, ended);
                };
                // A set, so that it ends with this task.
                let mut task = JoinSet::new();
                task.spawn_on(
                    async move {
                        lane::take_over(&mut stream)?;
                        lane::serve(&mut stream, served.router, (caller, peer), true, limits.header, stop).await
                    },
                    &threads,
                );
                // Its threads may have ended.
                told(&peer, task.join_next().await.and_then(Result::ok).unwrap_or(Ok(())));
            };
            tokio::select! {
                () = serving => {}
                () = other => tracing::debug!(%addr, "the CA of the caller's certificate was replaced: the connection is ended"),
            }
        }
    };
    // Each part has its bound above; the sum must not be in their way.
    let limits = Limits { connections: limits.connections + limits.handshakes, ..limits };
    accept_loop(&listener, serve, limits, shutdown).await;
}

/// Where connections come from.
pub(super) trait Accept {
    type Connection;

    /// The next connection. Cancelling loses none.
    fn next(&self) -> impl Future<Output = std::io::Result<Self::Connection>> + Send;
}

impl Accept for TcpListener {
    type Connection = (TcpStream, SocketAddr);

    async fn next(&self) -> std::io::Result<Self::Connection> {
        let (stream, addr) = self.accept().await?;
        // Both only make a connection better; it works without.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&stream, true);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, SILENT_MS_MAX);
        Ok((stream, addr))
    }
}

/// Accepts until `shutdown`, serves each connection in a task of its own, and at the end waits for the tasks.
pub(super) async fn accept_loop<A: Accept, S: Future<Output = ()> + Send + 'static>(
    listener: &A,
    serve: impl Fn(A::Connection, watch::Receiver<bool>) -> S,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            // A panic of a handler ends its connection only; the panic hook has told of it.
            Some(_) = tasks.join_next() => {}
            accepted = listener.next() => match accepted {
                Ok(_) if tasks.len() >= limits.connections => tracing::debug!("too many connections, closing a new one"),
                Ok(connection) => drop(tasks.spawn(serve(connection, stopped.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "can't accept a connection");
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
) -> Option<(TlsStream, Caller, Option<Judged>)> {
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.current());
    let stream = match tokio::time::timeout(within, acceptor.accept(tcp).into_fallible()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err((error, tcp))) => {
            tracing::debug!(%addr, %error, "TLS handshake failed");
            linger(tcp).await;
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
    match Caller::of_certificate(certificate, tls.cluster()) {
        Ok(caller) => {
            let judged = tls.judge(chain);
            let caller = if judged.by == By::Present { caller } else { caller.of_replaced_ca() };
            Some((stream, caller, Some(judged)))
        }
        Err(error) => {
            tracing::warn!(%addr, %error, "a certificate of this cluster that names nobody");
            None
        }
    }
}

/// Closing a socket that has unread bytes resets it, and the client never sees the TLS alert. So read on for a moment.
async fn linger(mut tcp: TcpStream) {
    let drain = async {
        tcp.shutdown().await?;
        tokio::io::copy(&mut tcp.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // Whatever comes of it, the connection is over.
    let _ = tokio::time::timeout(LINGER, drain).await;
}

/// Serves the requests of one connection, one after the other, until it ends or `stop` turns true.
pub(super) async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    caller: Caller,
    peer: PeerAddr,
    header: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let inner = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (inner, caller) = (inner.clone(), caller.clone());
        async move { Ok::<_, Infallible>(answer(inner, request.map(Body::new), caller, peer).await) }
    });
    let mut connection = pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        // A closed channel means that the server is gone: also a reason to stop.
        _ = async { stop.wait_for(|stop| *stop).await.is_ok() } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    told(&peer, ended);
}

fn told(peer: &PeerAddr, ended: Result<(), impl std::fmt::Display>) {
    if let Err(error) = ended {
        tracing::debug!(?peer, %error, "connection ended");
    }
}

/// What the router says to a request of this caller.
pub(super) async fn answer(
    router: TowerToHyperService<Router>,
    mut request: Request<Body>,
    caller: Caller,
    peer: PeerAddr,
) -> Response {
    let expired = caller.expired(now());
    // Whether its holder gets a new one is decided above.
    let mut response = if expired && request.uri().path() != RENEW_PATH {
        let text = match caller.replaced() {
            true => "the CA of the caller's certificate was replaced: it counts no more",
            false => "the caller's certificate has expired",
        };
        let failure = Failure::new(Code::CredentialExpired, text);
        let next = match &caller {
            Caller::Node { .. } => "its daemon asks for a new one; remoor nodes on a manager shows it",
            _ if caller.replaced() => "new ones: remoor key operator NAME --file FILE, as root on a manager",
            _ => "check the clocks of both machines; on a manager root needs no certificate",
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
    if expired {
        // The next connection may have a new one.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pub(super) fn now() -> Wall {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
}
