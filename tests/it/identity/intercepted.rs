//! A server with a worker's certificate at the address of a manager. Such a server receives neither
//! the secret of a token nor the fleet.

use super::*;
use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use remoor_cluster::rpc::caller::shows_manager;
use remoor_cluster::rpc::join::JOIN_PROVED_PATH;
use remoor_cluster::rpc::join::testing::request;
use remoor_cluster::rpc::server::{ServerLimits, serve_tls};
use remoor_cluster::rpc::tls::ServerTls;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use std::sync::{Arc, Mutex};

/// The path and the body of each request that the interceptor received.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// A server with the certificate of a worker, which records all requests. It stops when it is
/// dropped.
struct Interceptor {
    seen: Seen,
    _runtime: tokio::runtime::Runtime,
}

impl Interceptor {
    fn start(by: &Credentials, at: String) -> Self {
        let seen = Seen::default();
        let record = async |State(seen): State<Seen>, request: Request| {
            let path = request.uri().path().to_owned();
            let body: Bytes = to_bytes(request.into_body(), 1 << 26).await.unwrap_or_default();
            seen.lock().expect("no panic").push((path, String::from_utf8_lossy(&body).into_owned()));
            ApiFailure::new(Code::Refused, "the interceptor has what it wanted")
        };
        let router = Router::new().fallback(record).with_state(seen.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (runtime, tls) = (runtime.expect("a runtime"), ServerTls::new(&by.tls()).expect("TLS"));
        let listener = runtime.block_on(tokio::net::TcpListener::bind(at)).expect("it listens");
        runtime.spawn(serve_tls(listener, tls, router, ServerLimits::default(), std::future::pending()));
        Self { seen, _runtime: runtime }
    }

    /// The requests so far; forgets them.
    fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.seen.lock().expect("no panic"))
    }
}

#[test]
fn an_interceptor_with_a_workers_certificate_receives_neither_a_secret_nor_the_fleet() {
    let cluster = Cluster::new(false);
    let _w1 = cluster.worker("w1", 2);
    let interceptor = Interceptor::start(&cluster.credentials("w1"), cluster.api(9));
    let (api, at) = (cluster.api(9), (cluster.at)(5).to_string());

    for role in ["manager", "worker"] {
        let mut join = remoor();
        join.args(["join", &api, "--name", "m5", "--advertise", &at, "--dir"]).arg(cluster.folder("m5"));
        join.args((role == "manager").then_some("--manager")).arg("--token-file").arg(cluster.folder(role));
        let (out, seen) = (join.bounded_output(), interceptor.take());
        let token = fs::read_to_string(cluster.folder(role)).expect("a token");
        let secret = token.trim().rsplit('-').next().expect("a secret");
        assert!(!format!("{seen:?}").contains(secret), "the interceptor has the secret of the {role} token");
        assert_eq!(seen, [("/join/v1".to_owned(), "{}".to_owned())]);
        let text = output_text(&out);
        assert!(!out.status.success() && text.contains("does not show that it is a manager"), "{text}");
        assert!(!cluster.folder("m5/identity.json").exists());
    }

    let fleet = cluster.folder("fleet");
    fs::create_dir_all(&fleet).expect("made");
    let config = "version: 1\ninventory: inventory.yml\ngroups:\n  web: {services: []}\n";
    fs::write(fleet.join("remoor.yml"), config).expect("written");
    fs::write(fleet.join("inventory.yml"), "web:\n  hosts:\n    fleet-of-secrets:\n").expect("written");
    let commands = [vec!["apply", fleet.to_str().expect("UTF-8")], vec!["status"], vec!["pause", "w1"]];
    for args in commands {
        let mut command = remoor();
        command.args(&args).args(["--manager", &api, "--credentials"]).arg(cluster.folder("m1/operator.json"));
        let (out, seen) = (command.bounded_output(), interceptor.take());
        let text = output_text(&out);
        assert!(!format!("{seen:?}").contains("fleet-of-secrets"), "the interceptor has the fleet");
        assert_eq!(seen, [("/v1/status".to_owned(), "{}".to_owned())], "{args:?}: {text}");
        assert!(!out.status.success() && text.contains("does not show that it is a manager"), "{text}");
    }
}

#[test]
fn a_proof_of_another_connection_admits_nobody() {
    let cluster = Cluster::new(false);
    let token = Token::parse(&fs::read_to_string(cluster.folder("worker")).expect("a token")).expect("a token");
    let tls = ClientTls::joiner(token.ca_digest()).expect("TLS");
    for proof in ["ab".repeat(32), token.secret().hash().to_string(), "no hex".to_owned()] {
        let asked = JoinRequest { proof, ..request(&NodeKey::generate().expect("a key")) };
        let answer = wait(Client::tls(cluster.api(1), &tls, None).post::<Value>(JOIN_PROVED_PATH, &asked));
        assert_eq!(answer.expect_err("refused").code(), Some("bad-token"));
    }
    assert_eq!((cluster.names(), cluster.pending_machines()), (vec!["m1".to_owned()], Vec::new()));
}

#[test]
fn a_worker_that_is_promoted_shows_that_it_is_a_manager() {
    let cluster = Cluster::new(false);
    let w1 = cluster.worker("w1", 2);
    let shows = |name: &str| shows_manager(&cluster.credentials(name).cert_pem).expect("a certificate");
    assert!(shows("m1") && !shows("w1"));
    wait_until("w1 is alive", || (w1.json("status")["manager"]["name"] == "m1").then_some(()));
    let out = cluster.m1.ask(&["promote", "w1", "--no-wait"]);
    assert!(out.status.success(), "{}", output_text(&out));
    wait_until("the certificate of w1 shows the new role", || shows("w1").then_some(()));
    wait_until("an operator's client accepts w1", || {
        let mut status = remoor();
        status.args(["status", "--manager", &cluster.api(2), "--credentials"]).arg(cluster.folder("m1/operator.json"));
        status.bounded_output().status.success().then_some(())
    });
    // A machine that joins as a manager shows it from the beginning.
    run_successfully(
        cluster.join_command("m3", "m3", 3).arg("--manager").arg("--token-file").arg(cluster.folder("manager")),
    );
    assert!(shows("m3"));
}
