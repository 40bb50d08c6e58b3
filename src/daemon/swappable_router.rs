//! A router that can be replaced while it is served. The routes of a node change with its role, but
//! the port, the socket and the connections stay.

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A handle to the router; all clones share one state.
#[derive(Clone)]
pub struct SwappableRouter(Arc<RwLock<RoutingTarget>>);

/// The router and the threads that currently handle requests.
#[derive(Clone)]
struct RoutingTarget {
    router: Router,
    /// The threads that process requests. None means the threads that serve the connection.
    threads: Option<ManagerRuntime>,
    /// The runtime of Raft; it processes Raft's messages.
    raft: Option<Handle>,
}

/// The threads of a manager service. `ended` closes when they end.
#[derive(Clone)]
struct ManagerRuntime {
    threads: Handle,
    ended: watch::Receiver<()>,
}

impl ManagerRuntime {
    fn from_handle(threads: Handle) -> Self {
        let (last, ended) = watch::channel(());
        threads.spawn(async move {
            std::future::pending::<()>().await;
            drop(last);
        });
        Self { threads, ended }
    }

    /// Runs `work`, the answer to a request, on the calling thread, because moving it to another
    /// thread takes time. The tasks that `work` spawns run on the manager service's threads. None
    /// if those threads ended first.
    async fn decide(self, work: impl Future<Output = Response>) -> Option<Response> {
        let (mut ended, mut work) = (self.ended, std::pin::pin!(work));
        let within = std::future::poll_fn(|cx| {
            let _within = self.threads.enter();
            work.as_mut().poll(cx)
        });
        // The end of the threads is polled before `work`, because timers of an ended runtime must
        // not be polled.
        tokio::select! {
            biased;
            _ = ended.changed() => None,
            response = within => Some(response),
        }
    }

    /// Runs `work` on the manager service's worker threads, which serve no connections. None if the
    /// threads ended first.
    async fn read(self, work: impl Future<Output = Response> + Send + 'static) -> Option<Response> {
        // A `JoinSet` cancels the work if the client disconnects. A request that is answered
        // without a separate task is cancelled in the same way.
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.threads);
        match task.join_next().await? {
            Ok(response) => Some(response),
            Err(error) if error.is_panic() => {
                Some(ApiFailure::new(Code::Internal, "the request handler ended unexpectedly").into_response())
            }
            Err(_) => None,
        }
    }
}

impl SwappableRouter {
    pub fn new(router: Router) -> Self {
        Self(Arc::new(RwLock::new(RoutingTarget { router, threads: None, raft: None })))
    }

    /// Sets the router and the threads for all later requests. Running requests continue on the old
    /// ones.
    pub fn set(&self, router: Router, threads: Option<Handle>, raft: Option<Handle>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            RoutingTarget { router, threads: threads.map(ManagerRuntime::from_handle), raft };
    }

    /// The runtime for Raft's messages that do not arrive over HTTP; None if Raft does not run.
    pub fn raft(&self) -> Option<Handle> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).raft.clone()
    }

    /// A router that forwards each request to the current target.
    pub fn router(&self) -> Router {
        let switch = self.clone();
        Router::new().fallback(move |request: Request| {
            let way = switch.0.read().unwrap_or_else(PoisonError::into_inner).clone();
            answer(way, request)
        })
    }
}

/// Whether a request with this path is only forwarded to Raft's thread. Such a request must not be
/// moved to another thread first.
fn hands_on(path: &str) -> bool {
    path.starts_with("/raft/") && path != "/raft/snapshot"
}

async fn answer(way: RoutingTarget, request: Request) -> Response {
    let reading = request.method() == Method::GET;
    let long = matches!(request.uri().path(), "/v1/apply" | "/raft/snapshot");
    let hands_on = hands_on(request.uri().path());
    let service = TowerToHyperService::new(way.router);
    let answered = async move {
        match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    let Some(ground) = way.threads.filter(|_| !hands_on) else { return answered.await };
    // Requests that may take long run on worker threads. These are reads, whose answers are
    // serialized, and requests whose fleet or snapshot is parsed. Other write requests only wait
    // for Raft.
    let answered = if reading || long { ground.read(answered).await } else { ground.decide(answered).await };
    let ended = || match reading {
        true => ApiFailure::new(Code::Unavailable, "the manager service of this node has just stopped"),
        // The proposal of the request may already be in the log of other managers.
        false => ApiFailure::new(Code::OutcomeUnknown, "the manager service of this node stopped before it answered")
            .next("remoor history on another manager"),
    };
    answered.unwrap_or_else(|| ended().into_response())
}

#[cfg(test)]
mod tests {
    use super::super::runtime::Threads;
    use super::*;
    use axum::routing::get;
    use remoor_cluster::rpc::client::Client;
    use remoor_cluster::rpc::server::ServerLimits;
    use remoor_cluster::rpc::unix::{LocalSocket, serve_unix};

    #[tokio::test]
    async fn the_socket_stays_while_its_answers_change_and_work_ends_with_its_threads() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let worker = || Router::new().route("/who", get(|| async { "worker" }));
        let switch = SwappableRouter::new(worker());
        let socket = LocalSocket::bind(&path).await.expect("a socket");
        let server = tokio::spawn(serve_unix(socket, switch.router(), ServerLimits::default(), std::future::pending()));
        let client = Client::unix(&path);
        let who =
            || async { String::from_utf8(client.get_bytes("/who").await.expect("told").to_vec()).expect("UTF-8") };
        assert_eq!(who().await, "worker");

        let threads = Threads::start().expect("threads");
        let name = || std::thread::current().name().unwrap_or_default().to_owned();
        let manager = Router::new()
            .route("/who", get(move || async move { name() }))
            .route("/for-ever", get(std::future::pending::<()>).post(std::future::pending::<()>));
        switch.set(manager, Some(threads.handle()), Some(threads.raft()));
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
        switch.set(worker(), None, None);
        assert_eq!(who().await, "worker");
        threads.end().await;
        let left = asked.await.expect("no panic").expect_err("nobody answers any more");
        // The request may have reached the old router just before it was replaced; it then gets an
        // error code. If it reached the new router, the answer is 404.
        assert!(matches!(left.code(), Some("unavailable")) || left.to_string().contains("404"), "{left}");
        let left = ordered.await.expect("no panic").expect_err("nobody answers any more");
        assert!(matches!(left.code(), Some("outcome-unknown")) || left.to_string().contains("404"), "{left}");
        server.abort();
    }
}
