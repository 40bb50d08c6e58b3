//! Tests of a CA rotation on running servers and clients. They check which peers trust each other
//! at each step and afterwards.

use super::super::renew::RENEW_PATH;
use super::*;

/// A CA and its successors. The latest CA is the last.
fn line(of: usize) -> Vec<Cluster> {
    let next = |_| Cluster { ca: ClusterCa::create_next(&"c1".into()).unwrap() };
    std::iter::once(Cluster::new("c1")).chain((1..of).map(next)).collect()
}

/// The cross-signed certificates of `line`. With them, nodes that know an earlier CA can verify
/// certificates of the last one.
fn cross(line: &[Cluster]) -> String {
    line.windows(2).rev().map(|pair| pair[0].ca.cross_sign(&pair[1].ca).unwrap()).collect()
}

/// The identity of node `id`: a certificate of the first of `roots`, and the cross-signed
/// certificates. It trusts all of `roots`.
fn node(id: u64, roots: &[&Cluster], cross: &str) -> TlsIdentity {
    let own = roots[0].node(id);
    TlsIdentity {
        ca_pem: roots.iter().map(|c| c.ca.cert_pem()).collect(),
        cert_pem: own.cert_pem.clone() + cross,
        ..own
    }
}

fn joiner(of: &Cluster) -> ClientTls {
    ClientTls::joiner(&super::super::token::ca_digest(of.ca.cert_pem()).unwrap()).unwrap()
}

#[tokio::test]
async fn at_every_step_neighbours_take_each_other_for_who_they_are() {
    let line = line(2);
    let (old, new) = (&line[0], &line[1]);
    let states = || {
        [
            node(1, &[old], ""),
            node(1, &[old, new], ""),
            node(1, &[new, old], &cross(&line)),
            node(1, &[new], &cross(&line)),
        ]
    };
    for (at, identity) in states().iter().enumerate() {
        let server = Server::start(identity, router(), ServerLimits::default()).await;
        for (of, client) in states().iter().enumerate().filter(|(of, _)| at.abs_diff(*of) <= 1) {
            let client = Client::tls(&server.addr, &ClientTls::member(client).unwrap(), Some(NodeId(1)));
            ask_identity(&client).await.unwrap_or_else(|e| panic!("{of} asks {at}: {e:?}"));
        }
        // This client missed the first step of the CA rotation. It verifies the second step by the
        // cross-signed certificate.
        if at == 2 {
            let late = Client::tls(&server.addr, &old.client(7), Some(NodeId(1)));
            assert!(ask_identity(&late).await.unwrap().contains("NodeId(7)"));
        }
        // A token from before the rotation is valid as long as the old CA is trusted.
        for (of, token, good) in [(0, old, at < 3), (1, new, at > 1)] {
            let asked = ask_identity(&Client::tls(&server.addr, &joiner(token), None)).await;
            assert_eq!(asked.is_ok(), good, "a token of {of} at {at}: {asked:?}");
            if !good && at == 3 {
                assert!(identity_reason(asked).contains("replaced since"));
            }
        }
    }
}

#[tokio::test]
async fn once_it_was_replaced_a_ca_opens_nothing_but_a_renewal() {
    let line = line(3);
    let (first, last) = (&line[0], &line[2]);
    let vouched = node(1, &[last], &cross(&line));
    let former = format!("{}{}", line[1].ca.cert_pem(), first.ca.cert_pem());
    let tls = ServerTls::new(&node(1, &[first, last], "")).unwrap();
    let server = Server::start_with(tls.clone(), router(), ServerLimits::default()).await;
    let open = Client::tls(&server.addr, &first.client(7), Some(NodeId(1)));
    assert!(ask_identity(&open).await.unwrap().contains("replaced: false"));
    let waits = tokio::spawn({
        let open = open.clone();
        async move { open.get::<Value>("/never").await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;

    tls.replace(&vouched, &former).unwrap();
    let ended = tokio::time::timeout(SOON, waits).await.expect("the open connection is closed").unwrap();
    ended.unwrap_err();
    // This client knows only the first CA. Two CAs followed, each cross-signed by its predecessor.
    for refused in [open, Client::tls(&server.addr, &first.client(8), None)] {
        let Err(ApiError::Status { code, message, .. }) = ask_identity(&refused).await else {
            panic!("request was accepted")
        };
        assert_eq!((code.as_str(), message.contains("was replaced")), ("credential-expired", true), "{message}");
        let error = refused.post::<Value>(RENEW_PATH, &json!({})).await.unwrap_err();
        assert_eq!(error.code(), Some("not-found"), "the router is asked: {error:?}");
    }
    let operator = first.ca.issue_operator("zoe", Validity::days_from_now(1)).unwrap();
    let error =
        ask_identity(&Client::tls(&server.addr, &ClientTls::member(&operator).unwrap(), None)).await.unwrap_err();
    assert_eq!(error.code(), Some("credential-expired"));

    // The key of the old CA is useless now. Here it cross-signs a forged CA, and a certificate of
    // the forged CA is rejected even with that signature.
    let own = Cluster { ca: ClusterCa::create_next(&"c1".into()).unwrap() };
    let mut forged = own.node(7);
    forged.cert_pem += &first.ca.cross_sign(&own.ca).unwrap();
    forged.ca_pem = last.ca.cert_pem().to_owned();
    let reason =
        identity_reason(ask_identity(&Client::tls(&server.addr, &ClientTls::member(&forged).unwrap(), None)).await);
    assert!(reason.starts_with("it refuses our certificate"), "{reason}");

    // Once the old CA is forgotten, its certificates are rejected like those of a stranger.
    tls.replace(&vouched, "").unwrap();
    let reason = identity_reason(ask_identity(&Client::tls(&server.addr, &first.client(9), None)).await);
    assert!(reason.starts_with("it refuses our certificate"), "{reason}");
    ask_identity(&Client::tls(&server.addr, &last.client(9), Some(NodeId(1)))).await.unwrap();
}

#[tokio::test]
async fn a_join_that_another_ca_answers_than_the_handshake_was_by_says_so() {
    let (old, next) = (Cluster::new("c1"), Arc::new(Cluster::new("c1")));
    let secret = Secret::generate().unwrap();
    let router = join_router(next, &secret, Arc::default());
    let server = Server::start(&manager_identity(&old.ca, 1), router, ServerLimits::default()).await;
    let token = Token::new(old.ca.cert_pem(), secret).unwrap();
    let request = join::testing::request(&NodeKey::generate().unwrap());
    let error = join::join(&server.addr, &token, request).await.unwrap_err();
    assert!(matches!(error, JoinError::Replaced { .. }), "{error:?}");
}
