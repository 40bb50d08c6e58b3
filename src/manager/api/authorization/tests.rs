//! Sends a request to every route as every kind of caller, and compares the answers with the table
//! in `answers.txt`. For each route and caller, the table contains the body limit, and the status
//! or the letter of the refusal.

use super::super::{JoinConfig, JoinService, Route, router, routes};
use super::*;
use crate::manager::backup::Keeper;
use crate::manager::{Authorities, ManagerIdentity, ManagerTiming, Peers, Sponsors, Startup};
use crate::telemetry::Registry;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Method;
use expect_test::expect_file;
use hyper::body::{Frame, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use remoor_cluster::raft::{BoxFuture, Raft, RaftConfig, RaftTiming, Transport, TransportError};
use remoor_cluster::rpc::ca::{ClusterCa, Validity};
use remoor_cluster::rpc::caller::PeerAddr;
use remoor_cluster::rpc::identity::{NodeKey, TlsIdentity};
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::wire::{BEHALF, BEHALF_KEY, BODY_MAX, LARGE_BODY_MAX, SMALL_BODY_MAX};
use remoor_exec::ssh::{Launch, Remote, RemoteConfig};
use remoor_host::disk::BlobStore;
use remoor_model::{
    Applied, ClusterRole, Command, Epoch, Inventory, InventoryEntry, NodeId, NodeSpec, RaftId, Sha256, Wall, ca_id,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// Every route with values for its parameters, and some requests that match no route.
fn requests() -> Vec<(String, String)> {
    let values = [
        ("{name}", "nobody"),
        ("{order}", "pause"),
        ("{kind}", "claim"),
        ("{sha}", "x"),
        ("{id}", "9"),
        ("{attempt}", "9"),
        ("examine/{node}", "examine/99?basis=0"),
        ("{node}", "99"),
    ];
    let path = |path: &str| values.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
    let requests = routes().into_iter().map(|route| (route.method.to_string(), path(route.path)));
    let others = [("GET", "/v1/nothing"), ("POST", "/v1/status"), ("GET", "/v1/backup")];
    requests.chain(others.map(|(method, path)| (method.to_owned(), path.to_owned()))).collect()
}

/// The transport of a manager that reaches no other one.
struct Unconnected;

impl Transport for Unconnected {
    fn send(
        &self,
        _: RaftId,
        _: String,
        _: &'static str,
        _: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>> {
        Box::pin(async { Err(TransportError::Unreachable("no network".to_owned())) })
    }
}

/// A body that is longer than any route accepts. A route that reads the body answers `too-large`.
struct EndlessBody;

impl hyper::body::Body for EndlessBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(1 << 40)
    }
}

/// A manager that answers requests. The cluster has the managers m1 (which leads and answers), m2
/// and m3 (which is being demoted), the workers w1, w2 (left) and w3 (removed), and the operators
/// ann and bob (revoked).
struct AnsweringManager {
    shared: Arc<ManagerContext>,
    router: Router,
    callers: Vec<(&'static str, Caller, HeaderMap)>,
}

impl AnsweringManager {
    async fn start(dir: &Path) -> Self {
        let cluster: remoor_model::ClusterId = "c1".into();
        let ca = ClusterCa::create(&cluster).expect("a CA");
        let config = RaftConfig {
            dir: dir.join("raft"),
            id: RaftId(1),
            cluster: cluster.clone(),
            epoch: Epoch(1),
            timing: RaftTiming::default(),
        };
        let (raft, _) = Raft::<Inventory>::start(config, Arc::new(Unconnected)).await.expect("Raft");
        raft.initialize("m1:7947".to_owned()).await.expect("a member");
        raft.status().wait_for(|status| status.leads()).await.expect("a leader");
        let own = write_members(&raft, &ca).await;
        let key = NodeKey::generate().expect("a key");
        let csr = key.csr_pem().expect("a request");
        let tls = TlsIdentity {
            cluster: cluster.clone(),
            ca_pem: ca.cert_pem().to_owned(),
            cert_pem: ca.issue_node(own, &"m1".into(), Epoch(1), &csr, Validity::days_from_now(1)).expect("issued"),
            key_pem: key.to_pem().expect("a key"),
        };
        let remote = RemoteConfig {
            control_dir: dir.join("ssh"),
            builds: Vec::new(),
            launch: Launch::Upload,
            state_dir: "/var/lib/remoor".to_owned(),
            arguments: Vec::new(),
        };
        let shared = Arc::new(ManagerContext::new(Startup {
            identity: ManagerIdentity { name: "m1".into(), node: own, cluster },
            raft,
            blobs: Arc::new(BlobStore::new(&dir.join("blobs")).expect("blobs")),
            remote: Remote::new(remote).expect("a remote"),
            peers: Arc::new(Peers::new(ClientTls::member(&tls).expect("TLS"))),
            ssh_key_file: dir.join("ssh-key"),
            runs: dir.join("runs"),
            vaults: dir.join("vault"),
            sponsors: Sponsors::new(Vec::new(), watch::channel(Vec::new()).1, || {}),
            secret: [0; 32],
            cas: Arc::new(Authorities::take(&dir.join("ca"), vec![ca]).expect("stored")),
            timing: ManagerTiming::default(),
            counts: Registry::new(),
        }));
        let keeper = Keeper::new(shared.clone(), dir).expect("a keeper");
        let (held, life) = (Box::new(Vec::new), Duration::from_secs(86_400));
        let config = JoinConfig { shared: shared.clone(), held, certificate_validity: life, join_requests: true };
        let desk = Arc::new(JoinService::new(config));
        let router = router(desk, keeper);
        let callers = callers(&shared.inventory());
        Self { shared, router, callers }
    }

    /// Sends one request. Returns the status, and the text if the request was refused.
    async fn ask(&self, request: (&str, &str), by: &(&str, Caller, HeaderMap), body: Body, n: u16) -> (u16, String) {
        let mut asked = Request::new(body);
        *asked.method_mut() = request.0.parse().expect("a method");
        *asked.uri_mut() = request.1.parse().expect("a path");
        *asked.headers_mut() = by.2.clone();
        asked.extensions_mut().insert(by.1.clone());
        // Each request comes from another network, because the number of joins from one network is
        // limited.
        let [a, b] = n.to_be_bytes();
        asked.extensions_mut().insert(PeerAddr(Some(SocketAddr::from((Ipv4Addr::new(10, a, b, 1), 1)))));
        let Ok(answer) = TowerToHyperService::new(self.router.clone()).call(asked).await;
        let status = answer.status().as_u16();
        if answer.status().is_success() {
            return (status, String::new());
        }
        let bytes = axum::body::to_bytes(answer.into_body(), BODY_MAX).await.expect("an answer");
        let error: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |key: &str| error["error"][key].as_str().unwrap_or_default().to_owned();
        let next = if text("next").is_empty() { String::new() } else { format!(" [{}]", text("next")) };
        (status, format!("{}: {}{next}", text("code"), text("message")))
    }

    /// A small body that is correct for most routes.
    fn small_body(&self, path: &str) -> Body {
        match path {
            "/raft/claim" => self.shared.raft.claim(RaftId(0)).expect("a message").into(),
            // This body is not valid. With a valid body, the node would leave.
            "/agent/v1/leave" => "{\"x\": 1}".into(),
            _ => "{}".into(),
        }
    }
}

async fn write_members(raft: &Raft<Inventory>, ca: &ClusterCa) -> NodeId {
    let write = async |command| {
        let entry = InventoryEntry { at: Wall(1_000), by: "test".to_owned(), command };
        let (_, applied) = raft.propose(entry).await.expect("proposed");
        assert_eq!(applied.refusal(), None);
        applied
    };
    let secret = Sha256::default;
    let (cluster, ca_pem) = ("c1".into(), ca.cert_pem().to_owned());
    let (worker_secret, manager_secret) = (secret(), secret());
    write(Command::Init { cluster, epoch: Epoch(1), ca_pem, worker_secret, manager_secret }).await;
    let mut ids = Vec::new();
    for name in ["m1", "m2", "m3", "w1", "w2", "w3"] {
        let spec = NodeSpec {
            name: name.into(),
            public_key: format!("key of {name}"),
            api: format!("{name}:7947"),
            gossip: format!("{name}:7946"),
            machine_id: name.to_owned(),
            ..NodeSpec::default()
        };
        let role = if name.starts_with('m') { ClusterRole::Manager } else { ClusterRole::Worker };
        let Applied::Node(node) = write(Command::Accept { spec, role }).await else { panic!("not a node") };
        if role == ClusterRole::Manager {
            write(Command::Grant { node, founder: name == "m1" }).await;
        }
        ids.push(node);
    }
    let until = Wall(u64::MAX);
    for name in ["ann", "bob"] {
        let key = format!("key of {name}");
        let (name, ca) = (name.to_owned(), ca_id(ca.cert_pem()));
        write(Command::MakeOperator { name, key, ca, until, enforce: true }).await;
    }
    write(Command::RevokeOperator { name: "bob".to_owned() }).await;
    write(Command::Role { node: ids[2], role: ClusterRole::Worker }).await;
    write(Command::Leave { node: ids[4] }).await;
    write(Command::Remove { node: ids[5], force: true, rotate_gossip: false }).await;
    ids[0]
}

/// One caller of every kind, each with a name for the table, and the headers of its requests.
fn callers(inventory: &Inventory) -> Vec<(&'static str, Caller, HeaderMap)> {
    let (cert_not_before, cert_not_after) = (Wall(0), Wall(u64::MAX));
    let node = |id: NodeId, key: &str| {
        let key = format!("key of {key}");
        Caller::Node { id, epoch: Epoch(1), key, cert_not_before, cert_not_after, replaced: false }
    };
    let named = |name: &str| node(inventory.names[name], name);
    let operator = |name: &str| {
        let (key, name) = (format!("key of {name}"), name.to_owned());
        Caller::Operator { name, key, cert_not_before, cert_not_after, replaced: false }
    };
    let behalf = |name: &'static str, key: &'static str| {
        HeaderMap::from_iter(
            [(BEHALF, name), (BEHALF_KEY, key)]
                .map(|(header, value)| (header.parse().expect("a name"), value.parse().expect("a value"))),
        )
    };
    let gone = |ids: Vec<&NodeId>| **ids.first().expect("a node");
    let (left, removed) = (&inventory.departed.left, &inventory.departed.removed);
    let none = HeaderMap::new;
    vec![
        ("stranger", Caller::Anonymous, none()),
        ("root", Caller::Local { uid: 0 }, none()),
        ("user", Caller::Local { uid: 4_242 }, none()),
        ("operator", operator("ann"), none()),
        ("revoked", operator("bob"), none()),
        ("minted", operator("eve"), none()),
        ("m1", named("m1"), none()),
        ("m2", named("m2"), none()),
        ("m2 for ann", named("m2"), behalf("ann", "key of ann")),
        ("m2 for bob", named("m2"), behalf("bob", "key of bob")),
        ("m2 for eve", named("m2"), behalf("eve", "key of eve")),
        ("leaving", named("m3"), none()),
        ("w1", named("w1"), none()),
        ("w1 for ann", named("w1"), behalf("ann", "key of ann")),
        ("copy of m2", node(inventory.names["m2"], "somebody"), none()),
        ("left", node(gone(left.keys().collect()), "w2"), none()),
        ("removed", node(gone(removed.keys().collect()), "w3"), none()),
        ("unknown", node(NodeId(2), "x"), none()),
        ("future", node(NodeId(9_999), "x"), none()),
    ]
}

/// Codes of answers that mean a refusal of the caller.
const REFUSALS: [&str; 5] = ["unauthenticated", "forbidden", "node-removed", "retired", "retry"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_answers_every_kind_of_caller_as_the_table_says() {
    let dir = tempfile::tempdir().expect("a folder");
    let manager = AnsweringManager::start(dir.path()).await;
    let (mut texts, mut late, mut n) = (Vec::new(), String::new(), 0);
    let mut table = format!("{:36} {:>5}", "", "body");
    for (column, _) in manager.callers.iter().enumerate() {
        table.push_str(&format!(" {column:>3}"));
    }
    for (method, path) in &requests() {
        let request = (method.as_str(), path.as_str());
        let (mut row, mut limits, mut read_first) = (String::new(), Vec::new(), Vec::new());
        for by in &manager.callers {
            n += 1;
            let (status, text) = manager.ask(request, by, manager.small_body(request.1), n).await;
            let refused = REFUSALS.iter().any(|code| text.starts_with(&format!("{code}:")));
            let cell = match refused {
                true => {
                    let at = texts.iter().position(|known| *known == text).unwrap_or(texts.len());
                    texts.extend((at == texts.len()).then(|| text.clone()));
                    char::from(b'a' + u8::try_from(at).expect("few texts")).to_string()
                }
                false => status.to_string(),
            };
            row.push_str(&format!(" {cell:>3}"));
            n += 1;
            let (status, long) = manager.ask(request, by, Body::new(EndlessBody), n).await;
            if status == 413 {
                let most = long.rsplit(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
                let word = match most {
                    SMALL_BODY_MAX => "64K",
                    BODY_MAX => "2M",
                    LARGE_BODY_MAX => "64M",
                    _ => "?",
                };
                limits.extend((!limits.contains(&word)).then_some(word));
                read_first.extend(refused.then(|| format!("{} {word}", by.0)));
            } else {
                assert!(!refused || long == text, "{request:?} of {}: {text}, {long}", by.0);
            }
        }
        table.push_str(&format!("\n{:36} {:>5}{row}", format!("{method} {path}"), limits.join("/")));
        if !read_first.is_empty() {
            late.push_str(&format!("{method} {path}: {}\n", read_first.join(", ")));
        }
    }
    let columns: Vec<_> = manager.callers.iter().enumerate().map(|(n, by)| format!("{n} {}", by.0)).collect();
    let texts = texts.iter().zip('a'..).map(|(text, letter)| format!("{letter} {text}\n"));
    let (columns, texts) = (columns.join(", "), texts.collect::<String>());
    let late = format!("The body is read up to this length before these callers are refused:\n{late}");
    expect_file!["answers.txt"].assert_eq(&format!("{columns}\n\n{table}\n\n{texts}\n{late}"));
    manager.shared.raft.shutdown().await;
}

/// Whether a text contains the route: its method and path in backticks. In the table of orders, the
/// method is omitted.
fn is_listed(text: &str, route: &Route) -> bool {
    text.match_indices(route.path).any(|(at, path)| {
        let (before, after) = (&text[..at], &text[at + path.len()..]);
        let order = before.ends_with('`') && route.method == Method::POST;
        after.starts_with(['`', '?', ' ']) && (order || before.ends_with(&format!("`{} ", route.method)))
    })
}

#[test]
fn the_reference_lists_every_route() {
    let text = include_str!("../../../../docs/reference/api.md");
    let missing: Vec<_> = routes().into_iter().filter(|route| !is_listed(text, route)).collect();
    let missing: Vec<_> = missing.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(missing, Vec::<String>::new());
}
