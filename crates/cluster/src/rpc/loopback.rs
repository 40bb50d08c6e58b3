//! Tests of the whole folder over connections on 127.0.0.1 and real local sockets: authentication,
//! caller identity, and invalid input.

mod raft_streams;
mod renewed;
mod rotated;
mod verifiers;

use super::ca::testing::{manager_identity, node_identity};
use super::ca::{ClusterCa, Validity};
use super::caller::{Caller, PeerAddr};
use super::client::{ApiError, Client};
use super::identity::{GossipKey, NodeKey, TlsIdentity};
use super::join::{self, JOIN_PROVED_PATH, JoinError, JoinReply, JoinRequest};
use super::join_proof::ChannelBinding;
use super::server::{ServerLimits, serve_tls};
use super::tls::{ClientTls, ServerTls};
use super::token::{Secret, Token};
use super::unix::{LocalSocket, SocketError, serve_unix};
use super::wire::{self, ApiFailure, Code};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use remoor_model::{ClusterId, Epoch, NodeId};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A generous timeout for steps that normally take no time.
const SOON: Duration = Duration::from_secs(120);

struct Cluster {
    ca: ClusterCa,
}

impl Cluster {
    fn new(id: &str) -> Self {
        Self { ca: ClusterCa::create(&ClusterId::from(id)).unwrap() }
    }

    fn node_valid(&self, id: u64, validity: Validity) -> TlsIdentity {
        node_identity(&self.ca, id, validity)
    }

    fn node(&self, id: u64) -> TlsIdentity {
        self.node_valid(id, Validity::days_from_now(90))
    }

    fn client(&self, id: u64) -> ClientTls {
        ClientTls::member(&self.node(id)).unwrap()
    }
}

fn seconds_around_now(before: u64, after: i64) -> Validity {
    let now = SystemTime::now();
    let shift = Duration::from_secs(after.unsigned_abs());
    let until = if after < 0 { now - shift } else { now + shift };
    Validity { from: now - Duration::from_secs(before), until }
}

/// A running server. It stops on request, or at the end of the test.
struct Server {
    addr: String,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(identity: &TlsIdentity, router: Router, limits: ServerLimits) -> Self {
        Self::start_with(ServerTls::new(identity).unwrap(), router, limits).await
    }

    async fn start_with(tls: ServerTls, router: Router, limits: ServerLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(serve_tls(listener, tls, router, limits, async { drop(stopped.await) }));
        Self { addr, stop: Some(stop), task }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(SOON, &mut self.task).await.expect("the server stops").unwrap();
    }
}

fn router() -> Router {
    let who = async |caller: Caller, peer: PeerAddr| {
        axum::Json(json!({ "caller": format!("{caller:?}"), "peer": peer.0.map(|p| p.ip().to_string()) }))
    };
    let echo = async |wire::Json(body): wire::Json<Value>| axum::Json(body);
    let blob = async |wire::Raw(body): wire::Raw| body;
    let no = async || {
        ApiFailure::new(Code::Refused, "would leave 0 managers").next("remoor promote w1").details(json!({"left": 0}))
    };
    let events = async || {
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            for n in 0..1000 {
                if sender.send(json!({ "n": n, "text": "x".repeat(n) })).await.is_err() {
                    break;
                }
            }
        });
        wire::ndjson(receiver)
    };
    wire::finish(
        Router::new()
            .route("/who", get(who))
            .route("/echo", post(echo))
            .route("/blob", post(blob).layer(Extension(wire::BodyLimit(wire::LARGE_BODY_MAX))))
            .route("/no", get(no))
            .route("/events", get(events))
            .route("/never", get(async || std::future::pending::<()>().await)),
    )
}

async fn ask_identity(client: &Client) -> Result<String, ApiError> {
    let answer: Value = client.get("/who").await?;
    Ok(answer["caller"].as_str().unwrap().to_owned())
}

fn identity_reason<T: std::fmt::Debug>(result: Result<T, ApiError>) -> String {
    match result {
        Err(ApiError::Identity { reason, .. }) => reason,
        other => panic!("expected an error of identity, got {other:?}"),
    }
}

#[tokio::test]
async fn everybody_is_who_they_are() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;

    let node = Client::tls(&server.addr, &cluster.client(7), Some(NodeId(1)));
    let seen = ask_identity(&node).await.unwrap();
    assert!(seen.starts_with("Node { id: NodeId(7), epoch: Epoch(1)"), "{seen}");
    let answer: Value = node.get("/who").await.unwrap();
    assert_eq!(answer["peer"], "127.0.0.1");

    let operator = cluster.ca.issue_operator("zoe", Validity::days_from_now(1)).unwrap();
    let operator = Client::tls(&server.addr, &ClientTls::member(&operator).unwrap(), None);
    let seen = ask_identity(&operator).await.unwrap();
    assert!(seen.starts_with("Operator { name: \"zoe\""), "{seen}");

    let token = Token::new(cluster.ca.cert_pem(), Secret::generate().unwrap()).unwrap();
    let stranger = Client::tls(&server.addr, &ClientTls::joiner(token.ca_digest()).unwrap(), None);
    assert_eq!(ask_identity(&stranger).await.unwrap(), "Anonymous");
    server.stop().await;
}

#[tokio::test]
async fn strangers_with_papers_are_refused_and_told_why() {
    let (ours, theirs) = (Cluster::new("c1"), Cluster::new("c1"));
    let server = Server::start(&ours.node(1), router(), ServerLimits::default()).await;

    // The client finds that the server is of another cluster before the server checks the client.
    let result = ask_identity(&Client::tls(&server.addr, &theirs.client(7), None)).await;
    assert_eq!(identity_reason(result), "its certificate belongs to another cluster");

    // This client trusts our CA, but its certificate is of another CA. So the server rejects it.
    let mut mixed = theirs.node(7);
    mixed.ca_pem = ours.ca.cert_pem().into();
    // The reason arrives even if the client has already sent more bytes than the server ever reads.
    let refused = Client::tls(&server.addr, &ClientTls::member(&mixed).unwrap(), None);
    for _ in 0..20 {
        let reason = identity_reason(refused.post_bytes("/blob", Bytes::from(vec![7; 256 << 10])).await);
        assert!(reason.starts_with("it refuses our certificate"), "{reason}");
    }

    let expired = ours.node_valid(7, seconds_around_now(100, -50));
    let result = ask_identity(&Client::tls(&server.addr, &ClientTls::member(&expired).unwrap(), None)).await;
    assert_eq!(result.unwrap_err().code(), Some("credential-expired"), "rejected with a readable reason");
    // A certificate of another CA already fails in the handshake.
    let foreign =
        TlsIdentity { ca_pem: ours.ca.cert_pem().into(), ..theirs.node_valid(7, seconds_around_now(100, -50)) };
    let reason =
        identity_reason(ask_identity(&Client::tls(&server.addr, &ClientTls::member(&foreign).unwrap(), None)).await);
    assert!(reason.starts_with("it refuses our certificate"), "{reason}");
    let in_seconds = |s| SystemTime::now() + Duration::from_secs(s);
    let early = ours.node_valid(7, Validity { from: in_seconds(100), until: in_seconds(200) });
    let result = ask_identity(&Client::tls(&server.addr, &ClientTls::member(&early).unwrap(), None)).await;
    let error = result.unwrap_err();
    assert_eq!(error.code(), Some("credential-expired"), "it may renew it");
    assert!(error.to_string().contains("not valid yet"), "{error}");

    // An operator's certificate is valid for clients, not for servers.
    let operator = ours.ca.issue_operator("zoe", Validity::days_from_now(1)).unwrap();
    let impostor = Server::start(&operator, router(), ServerLimits::default()).await;
    identity_reason(ask_identity(&Client::tls(&impostor.addr, &ours.client(7), None)).await);

    let outdated = Server::start(&expired, router(), ServerLimits::default()).await;
    let result = ask_identity(&Client::tls(&outdated.addr, &ours.client(8), None)).await;
    assert_eq!(identity_reason(result), "its certificate has expired");
}

#[tokio::test]
async fn another_node_than_expected_is_refused() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;
    let tls = cluster.client(7);
    let result = ask_identity(&Client::tls(&server.addr, &tls, Some(NodeId(2)))).await;
    assert_eq!(identity_reason(result), "it is another node than expected");
    assert!(ask_identity(&Client::tls(&server.addr, &tls, Some(NodeId(1)))).await.is_ok());
}

#[tokio::test]
async fn answers_that_say_no_keep_their_form() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;
    let client = Client::tls(&server.addr, &cluster.client(7), None);

    let error = client.get::<Value>("/no").await.unwrap_err();
    let ApiError::Status { code, message, next, details, http } = error else { panic!("{error:?}") };
    assert_eq!((code.as_str(), http, next.as_deref()), ("refused", 409, Some("remoor promote w1")));
    assert_eq!((message.as_str(), *details), ("would leave 0 managers", json!({"left": 0})));

    let code = |e: ApiError| e.code().map(str::to_owned).unwrap_or_else(|| panic!("{e:?}"));
    assert_eq!(code(client.get::<Value>("/nowhere").await.unwrap_err()), "not-found");
    assert_eq!(code(client.get::<Value>("/echo").await.unwrap_err()), "method-not-allowed");
    assert_eq!(code(client.post_bytes("/echo", "{\"a\":".into()).await.unwrap_err()), "bad-request");

    let small = client.with_timeout(Duration::from_millis(300));
    let error = small.get::<Value>("/never").await.unwrap_err();
    assert!(matches!(error, ApiError::Timeout { .. }) && error.maybe_done(), "{error:?}");
    server.stop().await;

    let error = client.get::<Value>("/who").await.unwrap_err();
    assert!(matches!(error, ApiError::Unreachable { .. }) && !error.maybe_done(), "{error:?}");
}

#[tokio::test]
async fn bodies_are_bounded_by_route() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;
    let client = Client::tls(&server.addr, &cluster.client(7), None);

    let fits = json!({ "text": "x".repeat(wire::BODY_MAX / 2) });
    assert_eq!(client.post::<Value>("/echo", &fits).await.unwrap(), fits);
    let error = client.post::<Value>("/echo", &"x".repeat(wire::BODY_MAX)).await.unwrap_err();
    assert_eq!(error.code(), Some("too-large"), "{error:?}");

    let blob = Bytes::from(vec![7; wire::BODY_MAX * 4]);
    assert_eq!(client.post_bytes("/blob", blob.clone()).await.unwrap(), blob);
}

#[tokio::test]
async fn event_streams_arrive_whole() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;
    let client = Client::tls(&server.addr, &cluster.client(7), None);
    let mut lines = client.stream_lines("/events").await.unwrap();
    let mut seen = 0;
    while let Some(event) = tokio::time::timeout(SOON, lines.next()).await.unwrap().unwrap() {
        assert_eq!((event["n"].as_u64(), event["text"].as_str().map(str::len)), (Some(seen), Some(seen as usize)));
        seen += 1;
    }
    assert_eq!(seen, 1000);
    let error = client.stream_lines("/no").await.err().unwrap();
    assert_eq!(error.code(), Some("refused"));
}

#[tokio::test]
async fn event_streams_are_read_with_care() {
    let pieces = |pieces: &'static [&'static str]| {
        get(move || async move {
            let stream = futures_util::stream::iter(pieces.iter().map(|p| Ok::<_, std::convert::Infallible>(*p)));
            axum::body::Body::from_stream(stream)
        })
    };
    let endless = get(async || "x".repeat(3 << 20));
    let router = Router::new()
        .route("/pieces", pieces(&["\n\n{\"a\":", "1}", "\n", "\n2\n3\n", "\n"]))
        .route("/cut", pieces(&["1\n", "{\"a\":"]))
        .route("/rubbish", pieces(&["1\n", "rubbish\n"]))
        .route("/endless", endless);
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router, ServerLimits::default()).await;
    let client = Client::tls(&server.addr, &cluster.client(7), None);
    let read = async |path: &str| {
        let mut lines = client.stream_lines(path).await.unwrap();
        let mut seen = Vec::new();
        loop {
            match tokio::time::timeout(SOON, lines.next()).await.expect("the stream goes on") {
                Ok(Some(event)) => seen.push(event),
                Ok(None) => return (seen, String::new()),
                Err(error) => return (seen, error.to_string()),
            }
        }
    };
    assert_eq!(read("/pieces").await, (vec![json!({"a": 1}), json!(2), json!(3)], String::new()));
    for (path, wanted) in [("/cut", "ended within a line"), ("/rubbish", "can't be read"), ("/endless", "more than")] {
        let (_, error) = read(path).await;
        assert!(error.contains(wanted), "{path}: {error}");
    }
}

#[tokio::test]
async fn connections_are_reused() {
    let cluster = Cluster::new("c1");
    let ports = async |peer: PeerAddr| axum::Json(peer.0.map(|p| p.port()));
    let server =
        Server::start(&cluster.node(1), Router::new().route("/port", get(ports)), ServerLimits::default()).await;
    let client = Client::tls(&server.addr, &cluster.client(7), None);
    let first: Option<u16> = client.get("/port").await.unwrap();
    for _ in 0..20 {
        assert_eq!(client.get::<Option<u16>>("/port").await.unwrap(), first);
    }
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let cluster = Cluster::new("c1");
    let identity = cluster.node(1);
    let server = Server::start(&identity, router(), ServerLimits::default()).await;
    let addr = server.addr.clone();
    let client = Client::tls(&addr, &cluster.client(7), None);
    ask_identity(&client).await.unwrap();
    server.stop().await;

    let listener = TcpListener::bind(&addr).await.unwrap();
    let tls = ServerTls::new(&identity).unwrap();
    let server = tokio::spawn(serve_tls(listener, tls, router(), ServerLimits::default(), std::future::pending()));
    ask_identity(&client).await.unwrap();
    server.abort();
}

/// The inputs of a thousand broken clients: nothing, text, random bytes, part of a handshake, a
/// record of maximum length.
fn garbage(n: usize) -> Vec<u8> {
    match n % 6 {
        0 => Vec::new(),
        1 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        2 => (0..n).map(|i| (i * 37 + n) as u8).collect(),
        3 => vec![0x16, 3, 1, 0, 5, 1, 0, 0, 1],
        4 => [&[0x16, 3, 1, 0xff, 0xff][..], &vec![n as u8; 20_000]].concat(),
        _ => vec![0; n * 16],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_malformed_connections_change_nothing() {
    let cluster = Cluster::new("c1");
    let limits = ServerLimits { handshake: Duration::from_secs(2), ..ServerLimits::default() };
    let server = Server::start(&cluster.node(1), router(), limits).await;
    let client = Client::tls(&server.addr, &cluster.client(7), None);
    ask_identity(&client).await.unwrap();

    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..1000 {
        if tasks.len() >= 100 {
            tasks.join_next().await;
        }
        let addr = server.addr.clone();
        tasks.spawn(async move {
            let mut tcp = TcpStream::connect(&addr).await.unwrap();
            // The write may fail, because the server may close the connection at any point.
            let _ = tcp.write_all(&garbage(n)).await;
            let mut answer = Vec::new();
            let ended = tokio::time::timeout(SOON, tcp.take(1 << 16).read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "connection {n} was left open");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    ask_identity(&client).await.unwrap();

    // Send garbage as HTTP after a valid handshake.
    let tls = tokio_rustls::TlsConnector::from(cluster.client(8).current());
    for text in [
        "\0\0\0\r\n\r\n",
        "GET /who HTTP/9\r\n\r\n",
        &format!("GET /who HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(1 << 20)),
    ] {
        let tcp = TcpStream::connect(&server.addr).await.unwrap();
        let mut stream = tls.connect("any.remoor".try_into().unwrap(), tcp).await.unwrap();
        let _ = stream.write_all(text.as_bytes()).await;
        let mut answer = Vec::new();
        // The read may end with a reset, because the server leaves bytes unread.
        let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await.expect("the server hangs up");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    ask_identity(&client).await.unwrap();

    // The limit is loose, because other tests open files too. A leak would leave a thousand files
    // open.
    let deadline = Instant::now() + SOON;
    while open_files() > 400 {
        assert!(Instant::now() < deadline, "{} files are open", open_files());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn strangers_cannot_take_every_place() {
    let cluster = Cluster::new("c1");
    let limits = ServerLimits { anonymous: 2, connections: 4, ..ServerLimits::default() };
    let server = Server::start(&cluster.node(1), router(), limits).await;
    let digest = super::token::ca_digest(cluster.ca.cert_pem()).unwrap();
    let stranger = ClientTls::joiner(&digest).unwrap();
    let hold: Vec<Client> = (0..2).map(|_| Client::tls(&server.addr, &stranger, None)).collect();
    for client in &hold {
        assert_eq!(ask_identity(client).await.unwrap(), "Anonymous");
    }
    assert!(ask_identity(&Client::tls(&server.addr, &stranger, None)).await.is_err());
    let member = Client::tls(&server.addr, &cluster.client(7), None);
    ask_identity(&member).await.unwrap();
    drop(hold);
    // A connection without a certificate is possible again once the server has noticed that the
    // clients disconnected.
    let deadline = Instant::now() + SOON;
    while ask_identity(&Client::tls(&server.addr, &stranger, None)).await.is_err() {
        assert!(Instant::now() < deadline, "the capacity was lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_address_that_says_nothing_keeps_nobody_else_out() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), router(), ServerLimits::default()).await;
    let mut silent = Vec::new();
    for _ in 0..600 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
        silent.extend(socket.connect(server.addr.parse().unwrap()).await);
    }
    let member = Client::tls(&server.addr, &cluster.client(7), None).with_timeout(SOON);
    ask_identity(&member).await.unwrap();
    drop(silent);
    server.stop().await;
}

#[tokio::test]
async fn the_socket_says_which_user_calls() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("remoor.sock");

    // The socket was left behind by a daemon that no longer runs.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let socket = LocalSocket::bind(&path).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve_unix(socket, router(), ServerLimits::default(), async { drop(stopped.await) }));
    let client = Client::unix(&path);
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(ask_identity(&client).await.unwrap(), format!("Local {{ uid: {uid} }}"));

    let error = LocalSocket::bind(&path).await.unwrap_err();
    assert!(matches!(error, SocketError::InUse(_)), "{error}");
    ask_identity(&client).await.unwrap();

    drop(stop);
    tokio::time::timeout(SOON, server).await.unwrap().unwrap();
    assert!(!path.exists(), "the socket is removed at the end");
    let error = ask_identity(&client).await.unwrap_err();
    assert!(matches!(error, ApiError::Unreachable { .. }), "{error:?}");

    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(LocalSocket::bind(&path).await.unwrap_err(), SocketError::NotASocket(_)));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let long = dir.path().join("x".repeat(120));
    assert!(matches!(LocalSocket::bind(&long).await.unwrap_err(), SocketError::TooLong { .. }));
}

/// The join endpoint of a manager in its smallest form. It checks the secret, counts the requests
/// that it received, and issues a certificate.
fn join_router(cluster: Arc<Cluster>, secret: &Secret, heard: Arc<AtomicUsize>) -> Router {
    let stored = secret.hash();
    let accept = async move |caller: Caller,
                             Extension(binding): Extension<ChannelBinding>,
                             wire::Json(request): wire::Json<JoinRequest>| {
        heard.fetch_add(1, Ordering::SeqCst);
        assert_eq!((caller, request.secret.is_empty()), (Caller::Anonymous, true));
        if !binding.verify(&request.proof, &stored, &request.node_public_key) {
            return Err(ApiFailure::new(Code::BadToken, "the token is not valid"));
        }
        let bad = |e: super::identity::IdentityError| ApiFailure::new(Code::BadRequest, e.to_string());
        request.check().map_err(bad)?;
        let validity = Validity::days_from_now(90);
        let cert_pem =
            cluster.ca.issue_node(NodeId(9), &request.name, Epoch(1), &request.tls_csr_pem, validity).map_err(bad)?;
        Ok(axum::Json(JoinReply {
            cluster: cluster.ca.cluster().clone(),
            epoch: Epoch(1),
            node: NodeId(9),
            name: request.name,
            raft: None,
            cert_pem,
            ca_pem: cluster.ca.cert_pem().into(),
            gossip_key_hex: GossipKey([3; 32]).to_hex(),
            peers: vec![],
            managers: vec![],
            ssh_key: None,
        }))
    };
    wire::finish(
        Router::new().route(JOIN_PROVED_PATH, post(accept)).merge(
            Router::new().route("/who", get(async |c: Caller| axum::Json(json!({ "caller": format!("{c:?}") })))),
        ),
    )
}

#[tokio::test]
async fn a_machine_joins_with_a_token() {
    let cluster = Arc::new(Cluster::new("c1"));
    let secret = Secret::generate().unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let router = join_router(cluster.clone(), &secret, heard.clone());
    let server = Server::start(&manager_identity(&cluster.ca, 1), router, ServerLimits::default()).await;

    let token = Token::new(cluster.ca.cert_pem(), secret.clone()).unwrap();
    let key = NodeKey::generate().unwrap();
    let request = join::testing::request(&key);
    let reply = join::join(&server.addr, &token, request.clone()).await.unwrap();
    let credentials = reply.credentials(&key).unwrap();
    assert_eq!((credentials.node, &credentials.gossip_key), (NodeId(9), &GossipKey([3; 32])));
    let client = Client::tls(&server.addr, &ClientTls::member(&credentials.tls()).unwrap(), Some(NodeId(1)));
    let seen = ask_identity(&client).await.unwrap();
    assert!(seen.starts_with("Node { id: NodeId(9)"), "{seen}");

    let wrong = Token::new(cluster.ca.cert_pem(), Secret::generate().unwrap()).unwrap();
    let error = join::join(&server.addr, &wrong, request.clone()).await.unwrap_err();
    let JoinError::Api { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.code(), Some("bad-token"));

    // With a token of another cluster, the secret does not leave this machine.
    let before = heard.load(Ordering::SeqCst);
    let foreign = Token::new(Cluster::new("c1").ca.cert_pem(), secret).unwrap();
    let error = join::join(&server.addr, &foreign, request).await.unwrap_err();
    let JoinError::Api { source: ApiError::Identity { reason, .. }, .. } = error else { panic!("{error:?}") };
    assert!(reason.contains("not the one that the token names"), "{reason}");
    assert_eq!(heard.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn a_server_that_only_shows_the_pinned_ca_is_refused() {
    // The CA's certificate is public, so an impostor can append it to its own chain.
    let (ours, theirs) = (Cluster::new("c1"), Cluster::new("c1"));
    let mut impostor = theirs.node(1);
    impostor.ca_pem = format!("{}{}", theirs.ca.cert_pem(), ours.ca.cert_pem());
    let server = Server::start(&impostor, router(), ServerLimits::default()).await;
    let digest = super::token::ca_digest(ours.ca.cert_pem()).unwrap();
    let reason =
        identity_reason(ask_identity(&Client::tls(&server.addr, &ClientTls::joiner(&digest).unwrap(), None)).await);
    assert_eq!(reason, "its certificate belongs to another cluster");
}

#[tokio::test]
async fn a_reply_for_somebody_else_is_refused() {
    let cluster = Arc::new(Cluster::new("c1"));
    let other = NodeKey::generate().unwrap().csr_pem().unwrap();
    let issuer = cluster.clone();
    let accept = async move || {
        let validity = Validity::days_from_now(90);
        let cert_pem = issuer.ca.issue_node(NodeId(9), &"w1".into(), Epoch(1), &other, validity).unwrap();
        axum::Json(JoinReply {
            cluster: issuer.ca.cluster().clone(),
            epoch: Epoch(1),
            node: NodeId(9),
            name: "w1".into(),
            raft: None,
            cert_pem,
            ca_pem: issuer.ca.cert_pem().into(),
            gossip_key_hex: GossipKey([3; 32]).to_hex(),
            peers: vec![],
            managers: vec![],
            ssh_key: None,
        })
    };
    let router = Router::new().route(JOIN_PROVED_PATH, post(accept));
    let server = Server::start(&manager_identity(&cluster.ca, 1), router, ServerLimits::default()).await;
    let token = Token::new(cluster.ca.cert_pem(), Secret::generate().unwrap()).unwrap();
    let request = join::testing::request(&NodeKey::generate().unwrap());
    let error = join::join(&server.addr, &token, request).await.unwrap_err();
    assert!(matches!(&error, JoinError::Reply { reason, .. } if reason.contains("another key")), "{error:?}");
}
