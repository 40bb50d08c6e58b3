//! Metrics over plain HTTP. They are served if `node.json` contains an address for them. `GET
//! /metrics` is the only route.

use crate::agent;
use axum::Router;
use axum::routing::get;
use remoor_cluster::rpc::plain_http::serve_plain;
use remoor_cluster::rpc::server::ServerLimits;
use remoor_cluster::rpc::wire;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Maximum number of connections; a scraper needs one.
const CONNECTIONS_MAX: usize = 16;

/// A function that produces the metrics text of one answer.
pub type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves the metrics until `ended` completes.
pub async fn serve(listener: TcpListener, text: MetricsText, ended: impl Future<Output = ()>) {
    let metrics = move || {
        let text = text.clone();
        async move { agent::exposition(text()) }
    };
    let router = wire::finish(Router::new().route("/metrics", get(metrics)));
    let limits = ServerLimits { connections: CONNECTIONS_MAX, ..ServerLimits::default() };
    serve_plain(listener, router, limits, ended).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(addr: std::net::SocketAddr, line: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(addr).await.expect("connected");
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn metrics_are_served_and_nothing_else() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let server = tokio::spawn(serve(listener, Arc::new(|| "remoor_x 1\n".to_owned()), std::future::pending()));
        let answer = ask(addr, "GET /metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nremoor_x 1\n"), "{answer}");
        assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
        for (line, status) in [("POST /metrics", "405"), ("GET /v1/agent", "404"), ("GET /", "404")] {
            let answer = ask(addr, line).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
        }
        server.abort();
    }
}
