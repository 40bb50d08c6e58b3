//! Tests resource types that use the network, with servers in the test.

use super::*;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A self-signed certificate, which is its own CA. It expires on 1 January 2001.
fn certificate(names: &[&str]) -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.not_before = date_time_ymd(1999, 1, 1);
    params.not_after = date_time_ymd(2001, 1, 1);
    params.distinguished_name.push(rcgen::DnType::CommonName, names[0]);
    let signing_key = KeyPair::generate().unwrap();
    CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
}

/// A self-signed certificate that is valid now.
fn fresh(name: &str) -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn pem(dir: &Path, name: &str, key: &CertifiedKey<KeyPair>) -> (String, String) {
    let (cert, private) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    fs::write(&cert, key.cert.pem()).unwrap();
    fs::write(&private, key.signing_key.serialize_pem()).unwrap();
    (cert.display().to_string(), private.display().to_string())
}

/// Answers each request of `count` TLS connections with 204. With `client`, only clients with this
/// certificate are accepted.
fn https(count: usize, key: &CertifiedKey<KeyPair>, client: Option<&CertifiedKey<KeyPair>>) -> (u16, JoinHandle<()>) {
    let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let mut roots = RootCertStore::empty();
            roots.add(client.cert.der().clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain: Vec<CertificateDer<'static>> = vec![key.cert.der().clone()];
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let config = Arc::new(builder.with_single_cert(chain, private).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        for _ in 0..count {
            let (stream, _) = listener.accept().unwrap();
            let mut tls = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && tls.read(&mut byte).unwrap_or(0) == 1 {
                request.push(byte[0]);
            }
            // A client that does not trust the server has closed the connection.
            let _ = tls.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    (port, thread)
}

#[test]
fn https_trusts_whom_the_check_names() {
    let dir = tempfile::tempdir().unwrap();
    let key = fresh("localhost");
    let (ca, _) = pem(dir.path(), "ca", &key);
    let (other, _) = pem(dir.path(), "other", &fresh("localhost"));
    let (port, thread) = https(5, &key, None);
    let ask = |host: &str, rest: &str| answers(&format!("http: {{'https://{host}:{port}/': {{status: 204{rest}}}}}"));
    assert_eq!(ask("localhost", &format!(", ca-file: {ca}")), ["status Pass"]);
    assert_eq!(ask("localhost", ", allow-insecure: true"), ["status Pass"]);
    let stranger = "status Fail invalid peer certificate: UnknownIssuer";
    assert_eq!(ask("localhost", ""), [stranger]);
    let wrong = ask("localhost", &format!(", ca-file: {other}"));
    assert!(wrong[0].starts_with("status Fail invalid peer certificate"), "{wrong:?}");
    let name = ask("127.0.0.1", &format!(", ca-file: {ca}"));
    assert!(name[0].starts_with("status Fail invalid peer certificate: certificate not valid for name"), "{name:?}");
    thread.join().unwrap();
    assert_eq!(
        ask("localhost", &format!(", ca-file: {}", dir.path().join("none").display())),
        ["status Fail No such file or directory (os error 2)"]
    );
    let empty = dir.path().join("empty.pem");
    fs::write(&empty, "nothing\n").unwrap();
    let found = ask("localhost", &format!(", ca-file: {}", empty.display()));
    assert!(found[0].ends_with("empty.pem: it contains no certificate"), "{found:?}");
}

#[test]
fn https_shows_the_certificate_that_the_check_names() {
    let dir = tempfile::tempdir().unwrap();
    let (server, client) = (fresh("localhost"), fresh("client"));
    let (ca, foreign_key) = pem(dir.path(), "server", &server);
    let (cert, key) = pem(dir.path(), "client", &client);
    let (port, thread) = https(2, &server, Some(&client));
    let ask =
        |rest: &str| answers(&format!("http: {{'https://localhost:{port}/': {{status: 204, ca-file: {ca}{rest}}}}}"));
    assert_eq!(ask(&format!(", cert-file: {cert}, key-file: {key}")), ["status Pass"]);
    let nobody = ask("");
    assert!(nobody[0].starts_with("status Fail") && nobody[0].contains("CertificateRequired"), "{nobody:?}");
    thread.join().unwrap();
    let unfit = ask(&format!(", cert-file: {cert}, key-file: {foreign_key}"));
    assert!(unfit[0].starts_with("status Fail") && unfit[0].contains("client.pem and"), "{unfit:?}");
}

/// A server that sends one of `texts` after each empty line from the client, and returns everything
/// that it received. With `at_once`, the server sends without waiting.
fn plain_server(texts: &'static [&'static str], at_once: bool) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut heard, mut byte) = (Vec::new(), [0]);
        for text in texts {
            while !at_once && stream.read(&mut byte).unwrap_or(0) == 1 {
                heard.push(byte[0]);
                if heard.ends_with(b"\r\n\r\n") {
                    break;
                }
            }
            stream.write_all(text.as_bytes()).unwrap();
        }
        String::from_utf8_lossy(&heard).into_owned()
    });
    (port, thread)
}

#[test]
fn http_by_the_proxy_that_the_check_names() {
    // No server listens at the target, so an answer can come only from the proxy.
    let text = |proxy: &str| format!("http: {{'http://127.0.0.1:1/x': {{status: 204{proxy}}}}}");
    let (port, proxy) =
        plain_server(&["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"], false);
    assert_eq!(answers(&text(&format!(", proxy: 'http://127.0.0.1:{port}'"))), ["status Pass"]);
    let heard = proxy.join().unwrap();
    assert!(heard.starts_with("CONNECT 127.0.0.1:1 ") && heard.contains("\r\nGET /x "), "{heard}");
    let (port, proxy) = plain_server(&["HTTP/1.1 403 Forbidden\r\n\r\n"], false);
    assert!(answers(&text(&format!(", proxy: 'http://127.0.0.1:{port}'")))[0].starts_with("status Unknown"));
    proxy.join().unwrap();
    assert!(answers(&text(""))[0].starts_with("status Fail"));
}

#[test]
fn addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ask = |rest: &str| answers(&format!("addr: {{a: {{address: '{rest}}}}}"));
    assert_eq!(ask(&format!("127.0.0.1:{port}', reachable: true")), ["reachable Pass"], "without a scheme it is TCP");
    assert_eq!(ask(&format!("tcp://127.0.0.1:{port}', reachable: true, local-address: 127.0.0.2")), ["reachable Pass"]);
    let (_, from) = listener.accept().and_then(|_| listener.accept()).unwrap();
    assert_eq!(from.ip().to_string(), "127.0.0.2");
    let absent = ask(&format!("tcp://127.0.0.1:{port}', reachable: false, local-address: 192.0.2.1"));
    assert!(absent[0].starts_with("reachable Fail local-address 192.0.2.1: "), "{absent:?}");
    assert_eq!(ask(&format!("tcp://127.0.0.1:{port}', reachable: true, local-address: '::1'")), ["reachable Fail"]);
    drop(listener);
    let from = || ask(&format!("tcp://127.0.0.1:{port}', reachable: true, local-address: 127.0.0.2"));
    retry_until(from, |found| found == ["reachable Fail"]);
    assert_eq!(ask("udp://127.0.0.1:1', reachable: true, local-address: 127.0.0.2"), ["reachable Pass"]);
    let absent = ask("udp://127.0.0.1:1', reachable: true, local-address: 192.0.2.1");
    assert!(absent[0].starts_with("reachable Fail local-address 192.0.2.1: "), "{absent:?}");
}

#[test]
fn interfaces() {
    assert_eq!(
        answers("interface: {lo: {exists: true, addrs: [127.0.0.1/8], mtu: {gt: 0}}}"),
        ["exists Pass", "addrs Pass", "mtu Pass"]
    );
    assert_eq!(
        answers("interface: {lo: {exists: true, addrs: [192.0.2.1/8], mtu: 1}}"),
        ["exists Pass", "addrs Fail", "mtu Fail"]
    );
    assert_eq!(answers("interface: {no-such0: {exists: false, mtu: 5}}"), ["exists Pass", "mtu Skip"]);
    assert_eq!(answers("interface: {no-such0: {exists: true}}"), ["exists Fail"]);
    let mtu: u32 = fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
    assert_eq!(answers(&format!("interface: {{lo: {{exists: true, mtu: {mtu}}}}}"))[1], "mtu Pass");
}

#[test]
fn certificates_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let key = certificate(&["a.test", "b.test"]);
    let (path, private) = pem(dir.path(), "a", &key);
    let ask = |path: &str, rest: &str| answers(&format!("remoor: {{cert: {{'{path}': {{{rest}}}}}}}"));
    // These runs use the beginning of 1970 as current time, so the certificate expires in 11323
    // days.
    assert_eq!(
        ask(&path, "not-after: {gt: 11322d}, subject: {contain-substring: CN=a.test}, dns-names: [b.test]"),
        ["not-after Pass", "subject Pass", "dns-names Pass"]
    );
    assert_eq!(
        ask(&path, "not-after: {gt: 11323d}, issuer: CN=b.test, dns-names: {consist-of: [b.test]}"),
        ["not-after Fail", "issuer Fail", "dns-names Fail not asked for: a.test"]
    );
    let at = |days: u64| {
        let checks = checks(&format!("remoor: {{cert: {{'{path}': {{not-after: {{gt: 2w}}}}}}}}"));
        super::super::run(&checks, &CheckRunOptions::with_defaults(Wall(days * 86_400_000)))[0].clone()
    };
    assert_eq!(at(11_308).state, remoor_model::CheckState::Pass);
    assert_eq!((at(11_309).state, &*at(11_309).found), (remoor_model::CheckState::Fail, "14.0"));
    assert_eq!(&*at(11_324).found, "-1.0");
    let der = dir.path().join("a.der");
    fs::write(&der, key.cert.der()).unwrap();
    assert_eq!(ask(&der.display().to_string(), "not-after: {gt: 1d}"), ["not-after Pass"]);
    let none = ask(&dir.path().join("none").display().to_string(), "not-after: {gt: 1d}, subject: x");
    let why = "Fail No such file or directory (os error 2)";
    assert_eq!(none, [format!("not-after {why}"), format!("subject {why}")]);
    assert!(ask(&private, "not-after: {gt: 1d}")[0].starts_with("not-after Fail not a certificate"));
    fs::write(&der, &key.cert.der()[..99]).unwrap();
    assert!(ask(&der.display().to_string(), "not-after: {gt: 1d}")[0].starts_with("not-after Fail not a certificate"));
}

#[test]
fn certificates_that_servers_show() {
    let (port, thread) = https(1, &certificate(&["a.test"]), None);
    let ask = |port: u16, rest: &str| answers(&format!("remoor: {{cert: {{'localhost:{port}': {{{rest}}}}}}}"));
    assert_eq!(ask(port, "not-after: {gt: 1d}, dns-names: [a.test]"), ["not-after Pass", "dns-names Pass"]);
    thread.join().unwrap();
    // The server presents its certificate before it requests the certificate of the client.
    let (port, thread) = https(1, &certificate(&["a.test"]), Some(&fresh("client")));
    assert_eq!(ask(port, "dns-names: [a.test]"), ["dns-names Pass"]);
    thread.join().unwrap();
    let nobody_listens = || ask(port, "dns-names: [a.test], timeout: 500");
    retry_until(nobody_listens, |found| found[0].starts_with("dns-names Fail"));
    let (port, thread) = plain_server(&["220 mail.test ESMTP\r\n"], true);
    let spoken = ask(port, "dns-names: [a.test], timeout: 60000");
    assert!(spoken[0].starts_with("dns-names Fail"), "it speaks no TLS: {spoken:?}");
    thread.join().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let found = ask(silent.local_addr().unwrap().port(), "dns-names: [a.test], timeout: 200");
    assert_eq!(found, ["dns-names Unknown the TLS handshake timed out"]);
}
