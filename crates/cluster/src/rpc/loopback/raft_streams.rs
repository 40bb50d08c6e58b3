//! Tests of Raft messages without HTTP. Such messages have the same router, callers and error
//! answers as requests over HTTP. Invalid input ends only its own connection.

use super::*;
use crate::rpc::raft_stream::PROTOCOL;
use crate::rpc::server::Served;
use axum::extract::Path;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};

fn raft() -> Router {
    let answer = async |caller: Caller, Path(kind): Path<String>, wire::Raw(body): wire::Raw| match kind.as_str() {
        "vote" => Err(ApiFailure::new(Code::Retired, "no").next("remoor promote w1").details(json!({"left": 0}))),
        "thread" => Ok(std::thread::current().name().unwrap_or_default().as_bytes().to_vec()),
        _ => {
            let Caller::Node { id, .. } = caller else { panic!("{caller:?}") };
            Ok([kind.as_bytes(), b" of ", id.to_string().as_bytes(), b": ", &body].concat())
        }
    };
    Router::new().route("/raft/{kind}", post(answer).layer(Extension(wire::BodyLimit(wire::LARGE_BODY_MAX))))
}

#[tokio::test]
async fn a_message_without_http_is_answered_as_a_request_is() {
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), wire::finish(raft()), ServerLimits::default()).await;
    let client = Client::tls(server.addr.clone(), &cluster.client(7), Some(NodeId(1))).with_timeout(SOON);
    for body in [&b""[..], b"x", &vec![b'y'; wire::SMALL_BODY_MAX]] {
        let said = client.send_raft_message("append", body.to_vec()).await.unwrap();
        assert_eq!(said, client.post_bytes("/raft/append", Bytes::copy_from_slice(body)).await.unwrap());
        assert_eq!(said, [b"append of 7: ", body].concat());
    }
    for no in
        [client.send_raft_message("vote", Vec::new()).await, client.send_raft_message("Vote/../x", Vec::new()).await]
    {
        match no.unwrap_err() {
            ApiError::Status { code, next, details, http, .. } => {
                assert_eq!((code.as_str(), next.as_deref(), http), ("retired", Some("remoor promote w1"), 403));
                assert_eq!(*details, json!({"left": 0}));
            }
            other => assert!(other.maybe_done(), "no kind of a message ends the connection: {other}"),
        }
    }
    let refused = client
        .send_raft_message("append", vec![b'y'; 2 * wire::SMALL_BODY_MAX])
        .await
        .expect_err("too long for a connection without its own threads");
    assert!(refused.maybe_done(), "{refused}");
    assert!(client.send_raft_message("snapshot", Vec::new()).await.is_err(), "snapshots use HTTP");
    assert_eq!(client.send_raft_message("append", b"on".to_vec()).await.unwrap(), b"append of 7: on");
    let elsewhere = Client::tls(server.addr.clone(), &cluster.client(7), Some(NodeId(2))).with_timeout(SOON);
    let refused = elsewhere.send_raft_message("append", Vec::new()).await.unwrap_err();
    assert!(matches!(refused, ApiError::Identity { .. }), "{refused}");
    server.stop().await;
    assert!(
        client.send_raft_message("append", Vec::new()).await.is_err(),
        "a pooled connection cannot be used any more"
    );
}

/// A connection on which a test may send arbitrary bytes.
async fn raw(addr: &str, tls: &ClientTls) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut config = (*tls.current()).clone();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let tcp = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from(crate::rpc::verify::ANY_NODE).unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(PROTOCOL));
    stream
}

#[tokio::test]
async fn garbage_and_silence_cost_the_connection_alone() {
    let cluster = Cluster::new("c1");
    let limits = ServerLimits { header: Duration::from_millis(300), ..ServerLimits::default() };
    let server = Server::start(&cluster.node(1), wire::finish(raft()), limits).await;
    let garbage: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 9],
        &[0, 0, 0, 0],
        &[0, 0, 0, 1, 0],
        &[0, 0, 0, 2, 9, b'x'],
        &[0, 0, 0, 3, 2, b'.', b'/'],
        b"",
    ];
    for sent in garbage {
        let mut stream = raw(&server.addr, &cluster.client(7)).await;
        stream.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await;
        drop(ended.expect("it ends the connection")); // with or without a TLS close notification
        assert_eq!(answer, b"", "{sent:?}");
    }
    // The server reads nothing from a caller without a certificate.
    let joiner = ClientTls::joiner(&crate::rpc::token::ca_digest(cluster.ca.cert_pem()).unwrap()).unwrap();
    let mut stream = raw(&server.addr, &joiner).await;
    // The write may fail, because the server may have closed the connection.
    let _ = stream.write_all(&[0, 0, 0, 8, 6, b'a', b'p', b'p', b'e', b'n', b'd', b'!']).await;
    let mut answer = Vec::new();
    drop(tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it ends the connection"));
    assert_eq!(answer, b"");
    let client = Client::tls(server.addr.clone(), &cluster.client(7), None).with_timeout(SOON);
    assert_eq!(client.send_raft_message("append", b"on".to_vec()).await.unwrap(), b"append of 7: on");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_answered_on_the_threads_that_are_named_and_end_with_them() {
    let cluster = Cluster::new("c1");
    let mut own = tokio::runtime::Builder::new_multi_thread();
    let own = own.worker_threads(1).thread_name("own").enable_all().build().unwrap();
    let place = Arc::new(std::sync::Mutex::new(Some(own.handle().clone())));
    let named = place.clone();
    let thread_chooser = Arc::new(move |_| named.lock().unwrap().clone());
    let served = Served { thread_chooser, ..Served::from(wire::finish(raft())) };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let tls = ServerTls::new(&cluster.node(1)).unwrap();
    let server = tokio::spawn(serve_tls(listener, tls, served, ServerLimits::default(), std::future::pending()));
    let client = Client::tls(addr, &cluster.client(7), Some(NodeId(1))).with_timeout(SOON);
    for _ in 0..3 {
        assert_eq!(client.send_raft_message("thread", Vec::new()).await.unwrap(), b"own");
    }
    let long = vec![b'y'; 3 << 20];
    assert_eq!(client.send_raft_message("append", long.clone()).await.unwrap(), [b"append of 7: ", &long[..]].concat());
    *place.lock().unwrap() = None;
    assert_eq!(client.send_raft_message("thread", Vec::new()).await.unwrap(), b"own", "a connection keeps its threads");
    own.shutdown_background();
    let elsewhere = client.send_raft_message("thread", Vec::new()).await.unwrap();
    assert_ne!(elsewhere, b"own", "the next connection is served by the threads that accept it");
    server.abort();
}

/// Starts a relay that forwards connections to `to` with a delay in each direction. Returns the
/// address of the relay, and the number of connections so far.
async fn start_far_relay(to: String, delay: Duration) -> (String, Arc<AtomicUsize>) {
    async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, delay: Duration) {
        let (queue, mut under_way) = tokio::sync::mpsc::channel::<(tokio::time::Instant, Vec<u8>)>(1024);
        let receive = async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(read @ 1..) = from.read(&mut buffer).await {
                if queue.send((tokio::time::Instant::now() + delay, buffer[..read].to_vec())).await.is_err() {
                    return;
                }
            }
        };
        let deliver = async move {
            while let Some((due, piece)) = under_way.recv().await {
                tokio::time::sleep_until(due).await;
                if to.write_all(&piece).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(receive, deliver);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, count) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let far = TcpStream::connect(&to).await.unwrap();
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near_read, far_write, delay));
            tokio::spawn(carry(far_read, near_write, delay));
        }
    });
    (addr, count)
}

/// No answer arrives before the caller gives up. Nevertheless, each dial is completed and each
/// answer is read.
#[tokio::test]
async fn a_caller_that_gives_up_ends_neither_a_dial_nor_a_connection() {
    const CALLS: usize = 10;
    let cluster = Cluster::new("c1");
    let server = Server::start(&cluster.node(1), wire::finish(raft()), ServerLimits::default()).await;
    let (addr, connections) = start_far_relay(server.addr.clone(), Duration::from_millis(100)).await;
    let client = Client::tls(addr, &cluster.client(7), Some(NodeId(1)));
    let hasty = client.with_timeout(Duration::from_millis(150));
    for _ in 0..CALLS {
        hasty.send_raft_message("append", b"x".to_vec()).await.expect_err("the answer is late");
    }
    let answer = client.with_timeout(SOON).send_raft_message("append", b"on".to_vec()).await.unwrap();
    assert_eq!(answer, b"append of 7: on");
    let connections = connections.load(Ordering::Relaxed);
    assert!(connections < CALLS, "{connections} connections");
    server.stop().await;
}
