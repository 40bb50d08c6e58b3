//! Serves a router over plain HTTP to every client that can connect. It is used for metrics only.

use super::caller::{Caller, PeerAddr};
use super::handshake_limiter::HandshakeLimiter;
use super::server::{ServerLimits, accept_loop, serve_connection};
use axum::Router;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Serves `router` until `shutdown` is ready. Every caller is anonymous.
///
/// If all `connections` of `limits` are open, a new connection replaces the oldest one of the
/// address with the most connections. So a client that opens connections and leaves them idle does
/// not keep other addresses out.
pub async fn serve_plain(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let open = HandshakeLimiter::new(limits.connections);
    let serve = |(stream, addr): (TcpStream, SocketAddr), stop: watch::Receiver<bool>| {
        let (router, mut slot) = (router.clone(), open.enter(addr.ip()));
        async move {
            let caller = (Caller::Anonymous, PeerAddr(Some(addr)), None);
            tokio::select! {
                () = serve_connection(stream, router, caller, limits.header, stop) => {}
                () = slot.until_dropped() => tracing::debug!(%addr, "too many connections, closing the oldest of this address"),
            }
        }
    };
    // A replaced connection ends only a moment later.
    let limits = ServerLimits { connections: 2 * limits.connections, ..limits };
    accept_loop(&listener, serve, limits, shutdown).await;
}
