//! Serves a router over plain HTTP to every client that can connect. It is used for metrics only.

use super::caller::{Caller, PeerAddr};
use super::server::{ServerLimits, accept_loop, serve_connection};
use axum::Router;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Serves `router` until `shutdown` is ready. Every caller is anonymous.
pub async fn serve_plain(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let serve = |(stream, addr): (TcpStream, SocketAddr), stop: watch::Receiver<bool>| {
        let router = router.clone();
        async move {
            serve_connection(stream, router, (Caller::Anonymous, PeerAddr(Some(addr)), None), limits.header, stop)
                .await;
        }
    };
    accept_loop(&listener, serve, limits, shutdown).await;
}
