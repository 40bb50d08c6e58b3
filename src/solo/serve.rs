//! `remoor check --serve`: a health endpoint that runs a suite when it is asked, and metrics of the
//! last run. Simultaneous requests share one run, and a result is kept for a moment, so requests
//! cannot make the checks run all the time.

use super::report::{Form, in_form};
use super::run::{SuiteRun, SuiteRunOptions, run};
use super::suite::Suite;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use remoor_check::end_programs;
use remoor_cluster::rpc::plain_http::serve_plain;
use remoor_cluster::rpc::server::ServerLimits;
use remoor_cluster::rpc::wire;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// Maximum number of connections. Further ones wait.
const CONNECTIONS_MAX: usize = 64;

/// The options of the health endpoint.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The path of the endpoint. `/metrics` has the metrics.
    pub endpoint: String,
    /// Time for which a result is the answer to further requests.
    pub cache: Duration,
    /// The format of the answer.
    pub form: Form,
}

struct HealthEndpoint {
    suite: Suite,
    run: SuiteRunOptions,
    options: ServeOptions,
    latest: Mutex<Option<(Instant, Arc<SuiteRun>)>>,
}

/// Serves the endpoint until SIGTERM, SIGHUP or Ctrl-C arrives. `started` receives the address on which
/// the server listens.
pub fn serve_until_signal(
    address: SocketAddr,
    suite: Suite,
    run: SuiteRunOptions,
    options: ServeOptions,
    started: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        started(listener.local_addr()?);
        let (mut interrupt, mut term, mut hangup) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let ended = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = term.recv() => {}
                _ = hangup.recv() => {}
            }
            end_programs();
        };
        serve(listener, suite, run, options, ended).await;
        Ok(())
    })
}

/// Serves the endpoint until `ended` completes.
async fn serve(
    listener: TcpListener,
    suite: Suite,
    run: SuiteRunOptions,
    options: ServeOptions,
    ended: impl Future<Output = ()>,
) {
    let path = options.endpoint.clone();
    let health = Arc::new(HealthEndpoint { suite, run, options, latest: Mutex::new(None) });
    let metrics = health.clone();
    let router = Router::new()
        .route(&path, get(move || async move { health.answer().await }))
        .route("/metrics", get(move || async move { metrics.metrics().await }));
    let limits = ServerLimits { connections: CONNECTIONS_MAX, ..ServerLimits::default() };
    serve_plain(listener, wire::finish(router), limits, ended).await;
}

impl HealthEndpoint {
    /// 200 if everything is as desired, otherwise 503.
    async fn answer(self: Arc<Self>) -> Response {
        let form = self.options.form;
        let Some(run) = self.result().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
        let status = if run.is_as_wanted() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let kind = if form == Form::Structured { "application/json" } else { "text/plain; charset=utf-8" };
        (status, [(header::CONTENT_TYPE, kind)], in_form(form, &run)).into_response()
    }

    async fn metrics(self: Arc<Self>) -> Response {
        let Some(run) = self.result().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], in_form(Form::Prometheus, &run)).into_response()
    }

    /// The last result if it is new enough, otherwise the result of a new run. Further requests wait
    /// for the same run.
    async fn result(self: Arc<Self>) -> Option<Arc<SuiteRun>> {
        let mut latest = self.latest.lock().await;
        if let Some((_, run)) = latest.as_ref().filter(|(at, _)| at.elapsed() < self.options.cache) {
            return Some(run.clone());
        }
        let own = self.clone();
        let new = spawn_blocking(move || Arc::new(run(&own.suite, &own.run, &mut |_| {}))).await.ok()?;
        *latest = Some((Instant::now(), new.clone()));
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::{SuiteOptions, load};
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn get(addr: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_status_follows_the_checks_and_results_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (file, wanted) = (dir.path().join("goss.yaml"), dir.path().join("f"));
        std::fs::write(&file, format!("file: {{{}: {{exists: true}}}}\n", wanted.display())).unwrap();
        for (cache, second) in [(Duration::ZERO, "200"), (Duration::from_secs(86_400), "503")] {
            let _ = std::fs::remove_file(&wanted);
            let suite = load(&SuiteOptions { files: vec![file.clone()], ..SuiteOptions::default() }).unwrap();
            let run = SuiteRunOptions { parallelism: 1, retry_for: None, pause: Duration::ZERO };
            let options = ServeOptions { endpoint: "/healthz".to_owned(), cache, form: Form::Structured };
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let addr = listener.local_addr().unwrap();
            let server = tokio::spawn(serve(listener, suite, run, options, std::future::pending()));
            let first = get(addr, "/healthz").await;
            assert!(first.starts_with("HTTP/1.1 503") && first.contains("\"failed-count\":1"), "{first}");
            std::fs::write(&wanted, "").unwrap();
            assert!(get(addr, "/healthz").await.starts_with(&format!("HTTP/1.1 {second}")));
            assert!(get(addr, "/metrics").await.contains("goss_tests_run_outcomes_total"));
            assert!(get(addr, "/other").await.starts_with("HTTP/1.1 404"));
            server.abort();
        }
    }
}
