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

/// Maximum number of connections. A further one replaces the oldest one of the address with the
/// most connections.
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

/// The last run, and when it ended.
type LatestRun = Mutex<Option<(Instant, Arc<SuiteRun>)>>;

struct HealthEndpoint {
    suite: Suite,
    run: SuiteRunOptions,
    options: ServeOptions,
    latest: Arc<LatestRun>,
}

/// Serves the endpoint until SIGTERM, SIGHUP or Ctrl-C arrives. `started` receives the address on
/// which the server listens.
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
        let limits = ServerLimits { connections: CONNECTIONS_MAX, ..ServerLimits::default() };
        serve(listener, suite, run, options, limits, ended).await;
        Ok(())
    })
}

/// Serves the endpoint until `ended` completes.
async fn serve(
    listener: TcpListener,
    suite: Suite,
    run: SuiteRunOptions,
    options: ServeOptions,
    limits: ServerLimits,
    ended: impl Future<Output = ()>,
) {
    let path = options.endpoint.clone();
    let health = Arc::new(HealthEndpoint { suite, run, options, latest: Arc::default() });
    let metrics = health.clone();
    let router = Router::new()
        .route(&path, get(move || async move { health.answer().await }))
        .route("/metrics", get(move || async move { metrics.metrics().await }));
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

    /// The last result if it is new enough, otherwise the result of a new run. Further requests
    /// wait for the same run, even if the client that caused the run has disconnected.
    async fn result(self: Arc<Self>) -> Option<Arc<SuiteRun>> {
        let mut latest = self.latest.clone().lock_owned().await;
        if let Some((_, run)) = latest.as_ref().filter(|(at, _)| at.elapsed() < self.options.cache) {
            return Some(run.clone());
        }
        // A run cannot be stopped, so it keeps the lock until its end. Otherwise clients that
        // disconnect could start any number of runs at the same time.
        let own = self.clone();
        let run = spawn_blocking(move || {
            let new = Arc::new(run(&own.suite, &own.run, &mut |_| {}));
            *latest = Some((Instant::now(), new.clone()));
            new
        });
        run.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::{SuiteOptions, load};
    use super::*;
    use std::path::Path;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::task::JoinHandle;

    const LONG: Duration = Duration::from_secs(60);

    /// Serves the checks in `text`.
    async fn start(dir: &Path, text: &str, cache: Duration, limits: ServerLimits) -> (SocketAddr, JoinHandle<()>) {
        let file = dir.join("goss.yaml");
        std::fs::write(&file, text).unwrap();
        let suite = load(&SuiteOptions { files: vec![file], ..SuiteOptions::default() }).unwrap();
        let run = SuiteRunOptions { parallelism: 1, retry_for: None, pause: Duration::ZERO };
        let options = ServeOptions { endpoint: "/healthz".to_owned(), cache, form: Form::Structured };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        (addr, tokio::spawn(serve(listener, suite, run, options, limits, std::future::pending())))
    }

    fn usual_limits() -> ServerLimits {
        ServerLimits { connections: CONNECTIONS_MAX, ..ServerLimits::default() }
    }

    async fn send(stream: &mut TcpStream, path: &str, headers: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        // The server may answer and close the connection before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
    }

    /// Everything that the server sends until it closes the connection.
    async fn read(stream: &mut TcpStream) -> String {
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the server closes");
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn get(addr: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        send(&mut stream, path, "").await;
        read(&mut stream).await
    }

    /// A check that appends a line to `log` in each run, and lasts until `end` exists.
    fn slow_check(log: &Path, end: &Path) -> String {
        let exec = format!("echo run >> {}; until [ -e {} ]; do sleep 0.01; done", log.display(), end.display());
        format!("command: {{slow: {{exec: '{exec}', exit-status: 0, timeout: 60000}}}}\n")
    }

    async fn wait_for(what: impl Fn() -> bool) {
        let deadline = Instant::now() + LONG;
        while !what() {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn the_status_follows_the_checks_and_results_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("f");
        let text = format!("file: {{{}: {{exists: true}}}}\n", wanted.display());
        for (cache, second) in [(Duration::ZERO, "200"), (Duration::from_secs(86_400), "503")] {
            let _ = std::fs::remove_file(&wanted);
            let (addr, server) = start(dir.path(), &text, cache, usual_limits()).await;
            let first = get(addr, "/healthz").await;
            assert!(first.starts_with("HTTP/1.1 503") && first.contains("\"failed-count\":1"), "{first}");
            std::fs::write(&wanted, "").unwrap();
            assert!(get(addr, "/healthz").await.starts_with(&format!("HTTP/1.1 {second}")));
            assert!(get(addr, "/metrics").await.contains("goss_tests_run_outcomes_total"));
            assert!(get(addr, "/other").await.starts_with("HTTP/1.1 404"));
            server.abort();
        }
    }

    #[tokio::test]
    async fn clients_that_disconnect_start_no_further_runs() {
        let dir = tempfile::tempdir().unwrap();
        let (log, end) = (dir.path().join("log"), dir.path().join("end"));
        let (addr, server) = start(dir.path(), &slow_check(&log, &end), LONG * 60, usual_limits()).await;
        let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        for _ in 0..5 {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            send(&mut stream, "/healthz", "").await;
            wait_for(|| runs() > 0).await;
        }
        // All those clients are gone, and the server may have noticed it. The answer to this client
        // is the result of the run that is still going on.
        let mut last = TcpStream::connect(addr).await.unwrap();
        send(&mut last, "/healthz", "").await;
        std::fs::write(&end, "").unwrap();
        assert!(read(&mut last).await.starts_with("HTTP/1.1 200"));
        assert_eq!(runs(), 1);
        server.abort();
    }

    #[tokio::test]
    async fn idle_connections_keep_no_other_address_out() {
        let dir = tempfile::tempdir().unwrap();
        let (addr, server) = start(dir.path(), "file: {/: {exists: true}}\n", LONG, usual_limits()).await;
        let mut idle = Vec::new();
        for _ in 0..1_000 {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let _ = stream.write_all(b"GET /healthz HT").await;
            idle.push(stream);
        }
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(addr).await.unwrap();
        send(&mut other, "/healthz", "").await;
        assert!(read(&mut other).await.starts_with("HTTP/1.1 200"));
        server.abort();
    }

    #[tokio::test]
    async fn bad_requests_are_refused_and_end() {
        let dir = tempfile::tempdir().unwrap();
        let limits = ServerLimits { header: Duration::from_millis(200), ..usual_limits() };
        let (addr, server) = start(dir.path(), "file: {/: {exists: true}}\n", LONG, limits).await;
        let many = (0..100).map(|n| format!("X-{n}: a\r\n")).collect::<String>();
        for headers in [format!("X: {}\r\n", "a".repeat(200 << 10)), many] {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            send(&mut stream, "/healthz", &headers).await;
            let answer = read(&mut stream).await;
            // The answer is lost if the client was still sending.
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        }
        // A request whose header never ends.
        let mut slow = TcpStream::connect(addr).await.unwrap();
        slow.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await.unwrap();
        let answer = read(&mut slow).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
        // A body that never ends is not read.
        let mut body = TcpStream::connect(addr).await.unwrap();
        send(&mut body, "/healthz", "Content-Length: 1000000000\r\n").await;
        assert!(read(&mut body).await.starts_with("HTTP/1.1 200"));
        for line in ["no HTTP at all\r\n\r\n", "POST /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"] {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(line.as_bytes()).await.unwrap();
            let answer = read(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
        assert!(get(addr, "/healthz").await.starts_with("HTTP/1.1 200"));
        server.abort();
    }
}
