//! Certificates that the verifiers accept and reject. The tests check the result of a handshake at
//! the client and at the server. [`super::rotated`] tests the verifiers after a rotation of the CA.
//! `remoor-check` tests the verifier of `cert` checks.

use super::*;
use rustls_pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The results of one handshake at both ends. The server waits for the client's certificate.
async fn shake(client: &ClientTls, name: &str, server: &ServerTls) -> (Result<(), String>, Result<(), String>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let (connected, accepted) = tokio::join!(
        TlsConnector::from(client.current()).connect(name, near),
        TlsAcceptor::from(server.current()).accept(far),
    );
    (connected.map(drop).map_err(|e| e.to_string()), accepted.map(drop).map_err(|e| e.to_string()))
}

fn seconds_ago(from: u64, until: u64) -> Validity {
    let before = |seconds| SystemTime::now() - Duration::from_secs(seconds);
    Validity { from: before(from), until: before(until) }
}

fn in_an_hour() -> Validity {
    let hours = |n: u64| SystemTime::now() + Duration::from_secs(n * 3600);
    Validity { from: hours(1), until: hours(2) }
}

#[tokio::test]
async fn a_client_accepts_a_server_by_ca_name_and_expiry() {
    let (c1, c2) = (Cluster::new("c1"), Cluster::new("c2"));
    let joiner = |of: &Cluster| ClientTls::joiner(&super::super::token::ca_digest(of.ca.cert_pem()).unwrap()).unwrap();
    let operator = c1.ca.issue_operator("zoe", Validity::days_from_now(1)).unwrap();
    let now = |identity: TlsIdentity| ServerTls::new(&identity).unwrap();
    let ours = now(c1.node(1));
    let clocks = || ClientTls::ignoring_dates(&c1.node(7)).unwrap();
    let (expired, early) = (now(c1.node_valid(1, seconds_ago(7200, 3600))), now(c1.node_valid(1, in_an_hour())));
    let stranger = now(c2.node_valid(1, in_an_hour()));
    let cases = [
        ("this node", c1.client(7), "node-1.c1.remoor", &ours, ""),
        ("any node", c1.client(7), "any.remoor", &ours, ""),
        ("a joining machine", joiner(&c1), "any.remoor", &ours, ""),
        ("another node", c1.client(7), "node-2.c1.remoor", &ours, "certificate not valid for name"),
        ("another cluster", c1.client(7), "any.remoor", &now(c2.node(1)), "UnknownIssuer"),
        ("a token of another cluster", joiner(&c2), "any.remoor", &ours, "NotTheTokensCa"),
        ("an operator", c1.client(7), "any.remoor", &now(operator), "certificate does not allow extended key usage"),
        ("an expired node", c1.client(7), "any.remoor", &expired, "certificate expired"),
        ("a node of the future", c1.client(7), "any.remoor", &early, "not valid yet"),
        ("for its clock, an expired node", clocks(), "node-1.c1.remoor", &expired, ""),
        ("for its clock, a node of the future", clocks(), "node-1.c1.remoor", &early, ""),
        ("for its clock, another node", clocks(), "node-2.c1.remoor", &early, "certificate not valid for name"),
        ("for its clock, another cluster", clocks(), "node-1.c1.remoor", &stranger, "UnknownIssuer"),
    ];
    for (what, client, name, server, refused) in cases {
        let (connected, _) = shake(&client, name, server).await;
        match connected {
            Ok(()) => assert_eq!(refused, "", "{what} was accepted"),
            Err(e) => assert!(!refused.is_empty() && e.contains(refused), "{what}: {e}"),
        }
    }
}

#[tokio::test]
async fn a_server_accepts_a_client_by_ca_and_use_and_tolerates_its_dates() {
    let (c1, c2) = (Cluster::new("c1"), Cluster::new("c2"));
    let next = Cluster { ca: ClusterCa::create_next(&"c1".into()).unwrap() };
    let member = |identity: TlsIdentity| ClientTls::member(&identity).unwrap();
    // A client that trusts this server and has a certificate of the cluster `of`.
    let shown = |of: &Cluster, validity: Validity| {
        member(TlsIdentity { ca_pem: c1.ca.cert_pem().into(), ..of.node_valid(7, validity) })
    };
    let days = Validity::days_from_now;
    let server = ServerTls::new(&c1.node(1)).unwrap();
    let replaced = ServerTls::new(&c1.node(1)).unwrap();
    replaced.replace(&c1.node(1), next.ca.cert_pem()).unwrap();
    let cases = [
        ("a node", c1.client(7), &server, ""),
        ("an operator", member(c1.ca.issue_operator("zoe", days(1)).unwrap()), &server, ""),
        (
            "no certificate",
            ClientTls::joiner(&super::super::token::ca_digest(c1.ca.cert_pem()).unwrap()).unwrap(),
            &server,
            "",
        ),
        ("an expired node", shown(&c1, seconds_ago(7200, 3600)), &server, ""),
        ("a node of the future", shown(&c1, in_an_hour()), &server, ""),
        ("another cluster", shown(&c2, days(1)), &server, "UnknownIssuer"),
        ("an expired stranger", shown(&c2, seconds_ago(7200, 3600)), &server, "UnknownIssuer"),
        ("an unknown CA of the same cluster", shown(&next, days(1)), &server, "UnknownIssuer"),
        ("a former CA", shown(&next, days(1)), &replaced, ""),
        ("a former CA, expired", shown(&next, seconds_ago(7200, 3600)), &replaced, ""),
        ("a former CA, of the future", shown(&next, in_an_hour()), &replaced, ""),
        ("a stranger of the future", shown(&c2, in_an_hour()), &server, "UnknownIssuer"),
    ];
    for (what, client, server, refused) in cases {
        let (_, accepted) = shake(&client, "any.remoor", server).await;
        match accepted {
            Ok(()) => assert_eq!(refused, "", "{what} was accepted"),
            Err(e) => assert!(!refused.is_empty() && e.contains(refused), "{what}: {e}"),
        }
    }
}
