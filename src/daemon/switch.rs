//! A router that is exchanged while it is served: what a node answers changes with its part in the cluster, the port, the
//! socket and the connections stay.

use crate::rpc::wire::{Code, Failure};
use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A handle; clones are the same.
#[derive(Clone)]
pub struct Switch(Arc<RwLock<Way>>);

/// Where requests go now.
#[derive(Clone)]
struct Way {
    router: Router,
    /// On which threads they are answered; None: on those that serve the connection.
    threads: Option<Handle>,
}

impl Switch {
    pub fn new(router: Router) -> Self {
        Self(Arc::new(RwLock::new(Way { router, threads: None })))
    }

    /// From the next request on; what is being answered is answered as before.
    pub fn set(&self, router: Router, threads: Option<Handle>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Way { router, threads };
    }

    /// Everything that comes to it goes where the switch stands then.
    pub fn router(&self) -> Router {
        let switch = self.clone();
        Router::new().fallback(move |request: Request| {
            let way = switch.0.read().unwrap_or_else(PoisonError::into_inner).clone();
            answer(way, request)
        })
    }
}

/// What is only handed on to Raft's own thread is not handed to another one first.
fn hands_on(path: &str) -> bool {
    path.starts_with("/raft/") && path != "/raft/snapshot"
}

async fn answer(way: Way, request: Request) -> Response {
    let reading = request.method() == Method::GET;
    let hands_on = hands_on(request.uri().path());
    let service = TowerToHyperService::new(way.router);
    let answered = async move {
        match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    let Some(threads) = way.threads.filter(|_| !hands_on) else { return answered.await };
    // A set, so that who goes away ends the work, as without threads of its own.
    let mut task = JoinSet::new();
    task.spawn_on(answered, &threads);
    match task.join_next().await {
        Some(Ok(response)) => response,
        Some(Err(error)) if error.is_panic() => {
            Failure::new(Code::Internal, "what answers this ended early").into_response()
        }
        _ if reading => Failure::new(Code::Unavailable, "the manager part of this node has just ended").into_response(),
        // What it proposed may be in the log of others.
        _ => Failure::new(Code::OutcomeUnknown, "the manager part of this node ended before it answered")
            .next("remoor history, at another manager")
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::runtime::Threads;
    use super::*;
    use crate::rpc::client::Client;
    use crate::rpc::server::Limits;
    use crate::rpc::unix::{Socket, serve_unix};
    use axum::routing::get;

    #[tokio::test]
    async fn the_socket_stays_while_its_answers_change_and_work_ends_with_its_threads() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let worker = || Router::new().route("/who", get(|| async { "worker" }));
        let switch = Switch::new(worker());
        let socket = Socket::bind(&path).await.expect("a socket");
        let server = tokio::spawn(serve_unix(socket, switch.router(), Limits::default(), std::future::pending()));
        let client = Client::unix(&path);
        let who =
            || async { String::from_utf8(client.get_bytes("/who").await.expect("told").to_vec()).expect("UTF-8") };
        assert_eq!(who().await, "worker");

        let threads = Threads::start().expect("threads");
        let name = || std::thread::current().name().unwrap_or_default().to_owned();
        let manager = Router::new()
            .route("/who", get(move || async move { name() }))
            .route("/for-ever", get(std::future::pending::<()>).post(std::future::pending::<()>));
        switch.set(manager, Some(threads.handle()));
        assert_eq!(who().await, "manager", "the connection is the same, the threads are others");
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.get_bytes("/for-ever").await }
        });
        let ordered = tokio::spawn({
            let client = client.clone();
            async move { client.post::<()>("/for-ever", &()).await }
        });
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        switch.set(worker(), None);
        assert_eq!(who().await, "worker");
        threads.end().await;
        let left = asked.await.expect("no panic").expect_err("nobody answers any more");
        // Whoever came just before the switch is told so, whoever came after it that there is no such thing.
        assert!(matches!(left.code(), Some("unavailable")) || left.to_string().contains("404"), "{left}");
        let left = ordered.await.expect("no panic").expect_err("nobody answers any more");
        assert!(matches!(left.code(), Some("outcome-unknown")) || left.to_string().contains("404"), "{left}");
        server.abort();
    }
}
