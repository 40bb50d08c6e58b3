//! The renewal of a certificate on request.

use super::*;

/// A worker's certificate allows the renewal of only that worker's own certificate.
#[test]
fn a_certificate_is_renewed_for_its_own_node_and_key_only() {
    let cluster = Cluster::new(false);
    for (name, last) in [("w1", 2), ("w2", 3)] {
        run_successfully(cluster.join_command(name, name, last).arg("--token-file").arg(cluster.folder("worker")));
    }
    let (w1, w2) = (cluster.credentials("w1"), cluster.credentials("w2"));
    let ask = |by: Option<&Credentials>, csr: String| {
        let tls = match by {
            Some(credentials) => ClientTls::member(&credentials.tls()).expect("TLS"),
            None => {
                ClientTls::joiner(Token::parse(&cluster.public_token()).expect("a token").ca_digest()).expect("TLS")
            }
        };
        let body = serde_json::json!({ "tls_csr_pem": csr });
        wait(Client::tls(cluster.api(1), &tls, None).post::<Value>("/agent/v1/renew", &body))
    };
    let csr = |c: &Credentials| c.key().expect("a key").csr_pem().expect("a request");
    let code = |answer: Result<Value, ApiError>| answer.expect_err("refused").code().map(str::to_owned);
    assert_eq!(code(ask(Some(&w1), csr(&w2))).as_deref(), Some("forbidden"), "another's key");
    let fresh = NodeKey::generate().expect("a key").csr_pem().expect("a request");
    assert_eq!(code(ask(Some(&w1), fresh)).as_deref(), Some("forbidden"), "a new key");
    assert_eq!(code(ask(Some(&w1), "rubbish".to_owned())).as_deref(), Some("bad-request"));
    assert_eq!(code(ask(None, csr(&w1))).as_deref(), Some("unauthenticated"), "without a certificate");
    let reply = ask(Some(&w1), csr(&w1)).expect("its own");
    let cert = reply["cert_pem"].as_str().expect("a certificate");
    assert!(certificate_not_after(cert).expect("a certificate").ms_since(now()) > 89 * 24 * 3_600_000);
}
