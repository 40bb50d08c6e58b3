//! The types that ask others, against servers of the test on this machine.

use super::*;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use simple_dns::rdata::{A, CAA, CNAME, MX, NS, PTR, RData, SRV, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Signed by itself and so its own authority; good until the first of January 2001.
fn certificate(names: &[&str]) -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.not_before = date_time_ymd(1999, 1, 1);
    params.not_after = date_time_ymd(2001, 1, 1);
    params.distinguished_name.push(rcgen::DnType::CommonName, names[0]);
    let signing_key = KeyPair::generate().unwrap();
    CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
}

/// The same, good now.
fn fresh(name: &str) -> CertifiedKey<KeyPair> {
    rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn pem(dir: &Path, name: &str, key: &CertifiedKey<KeyPair>) -> (String, String) {
    let (cert, private) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    fs::write(&cert, key.cert.pem()).unwrap();
    fs::write(&private, key.signing_key.serialize_pem()).unwrap();
    (cert.display().to_string(), private.display().to_string())
}

/// Answers `count` connections by TLS with 204 to each request; with `client`, only those that show this certificate.
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
            // A client that does not trust us has gone.
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
    assert!(found[0].ends_with("empty.pem: there is no certificate in it"), "{found:?}");
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

/// Says `texts`, one to each part of a connection that ends with an empty line, and gives what it heard. The first without waiting
/// if `at_once`.
fn plain(texts: &'static [&'static str], at_once: bool) -> (u16, JoinHandle<String>) {
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
    // Nobody listens at the target: whoever gets an answer has asked the proxy.
    let text = |proxy: &str| format!("http: {{'http://127.0.0.1:1/x': {{status: 204{proxy}}}}}");
    let (port, proxy) =
        plain(&["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"], false);
    assert_eq!(answers(&text(&format!(", proxy: 'http://127.0.0.1:{port}'"))), ["status Pass"]);
    let heard = proxy.join().unwrap();
    assert!(heard.starts_with("CONNECT 127.0.0.1:1 ") && heard.contains("\r\nGET /x "), "{heard}");
    let (port, proxy) = plain(&["HTTP/1.1 403 Forbidden\r\n\r\n"], false);
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
    assert_eq!(ask(&format!("tcp://127.0.0.1:{port}', reachable: true, local-address: 127.0.0.2")), ["reachable Fail"]);
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
    // The clock of these runs stands at the beginning of 1970: 11323 days are left.
    assert_eq!(
        ask(&path, "not-after: {gt: 11322d}, subject: {contain-substring: CN=a.test}, dns-names: [b.test]"),
        ["not-after Pass", "subject Pass", "dns-names Pass"]
    );
    assert_eq!(
        ask(&path, "not-after: {gt: 11323d}, issuer: CN=b.test, dns-names: {consist-of: [b.test]}"),
        ["not-after Fail", "issuer Fail", "dns-names Fail"]
    );
    let at = |days: u64| {
        let checks = checks(&format!("remoor: {{cert: {{'{path}': {{not-after: {{gt: 2w}}}}}}}}"));
        super::super::run(&checks, &RunOptions::at(Wall(days * 86_400_000)))[0].clone()
    };
    assert_eq!(at(11_308).state, crate::model::CheckState::Pass);
    assert_eq!((at(11_309).state, &*at(11_309).found), (crate::model::CheckState::Fail, "14.0"));
    assert_eq!(&*at(11_324).found, "-1.0");
    let der = dir.path().join("a.der");
    fs::write(&der, key.cert.der()).unwrap();
    assert_eq!(ask(&der.display().to_string(), "not-after: {gt: 1d}"), ["not-after Pass"]);
    let none = ask(&dir.path().join("none").display().to_string(), "not-after: {gt: 1d}, subject: x");
    let why = "Fail No such file or directory (os error 2)";
    assert_eq!(none, [format!("not-after {why}"), format!("subject {why}")]);
    assert!(ask(&private, "not-after: {gt: 1d}")[0].starts_with("not-after Fail no certificate"));
    fs::write(&der, &key.cert.der()[..99]).unwrap();
    assert!(ask(&der.display().to_string(), "not-after: {gt: 1d}")[0].starts_with("not-after Fail no certificate"));
}

#[test]
fn certificates_that_servers_show() {
    let (port, thread) = https(1, &certificate(&["a.test"]), None);
    let ask = |port: u16, rest: &str| answers(&format!("remoor: {{cert: {{'localhost:{port}': {{{rest}}}}}}}"));
    assert_eq!(ask(port, "not-after: {gt: 1d}, dns-names: [a.test]"), ["not-after Pass", "dns-names Pass"]);
    thread.join().unwrap();
    // It shows its own before it asks for ours.
    let (port, thread) = https(1, &certificate(&["a.test"]), Some(&fresh("client")));
    assert_eq!(ask(port, "dns-names: [a.test]"), ["dns-names Pass"]);
    thread.join().unwrap();
    assert!(ask(port, "dns-names: [a.test]")[0].starts_with("dns-names Fail"), "nobody listens any more");
    let (port, thread) = plain(&["220 mail.test ESMTP\r\n"], true);
    let spoken = ask(port, "dns-names: [a.test], timeout: 60000");
    assert!(spoken[0].starts_with("dns-names Fail"), "it speaks no TLS: {spoken:?}");
    thread.join().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let found = ask(silent.local_addr().unwrap().port(), "dns-names: [a.test], timeout: 200");
    assert_eq!(found, ["dns-names Unknown no handshake in time"]);
}

/// A name server; ends with this.
struct NameServer {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"end", self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn name_server() -> NameServer {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(address).unwrap();
    let thread = thread::spawn(move || {
        let mut lost = false;
        let mut buffer = [0; 512];
        loop {
            let (length, from) = udp.recv_from(&mut buffer).unwrap();
            let query = &buffer[..length];
            if query == b"end" {
                return;
            }
            let name = Packet::parse(query).unwrap().questions[0].qname.to_string();
            match name.as_str() {
                "silent.test" => {}
                "lost.test" if !std::mem::replace(&mut lost, true) => {}
                "garbage.test" => drop(udp.send_to(b"\0\0", from).unwrap()),
                "large.test" => {
                    udp.send_to(&answer(query, PacketFlag::TRUNCATION), from).unwrap();
                    let (mut stream, _) = tcp.accept().unwrap();
                    by_tcp(&mut stream);
                }
                _ => drop(udp.send_to(&answer(query, PacketFlag::empty()), from).unwrap()),
            }
        }
    });
    NameServer { address, thread: Some(thread) }
}

fn by_tcp(stream: &mut TcpStream) {
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut query = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut query).unwrap();
    let answer = answer(&query, PacketFlag::empty());
    stream.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&answer).unwrap();
}

fn answer(query: &[u8], flags: PacketFlag) -> Vec<u8> {
    let query = Packet::parse(query).unwrap();
    let question = query.questions[0].clone();
    let name = question.qname.to_string();
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(flags | PacketFlag::RESPONSE);
    let QTYPE::TYPE(kind) = question.qtype else { panic!("no type") };
    let of = |text: &'static str| Name::new(text).unwrap();
    let found = match (name.as_str(), kind) {
        ("broken.test", _) => {
            *reply.rcode_mut() = RCODE::ServerFailure;
            vec![]
        }
        ("a.test" | "lost.test", TYPE::A) => vec![
            RData::CNAME(CNAME(of("real.test"))),
            RData::A(A { address: 0xC000_0202 }),
            RData::A(A { address: 0xC000_0201 }),
        ],
        ("a.test", TYPE::MX) => vec![RData::MX(MX { preference: 10, exchange: of("mx.test") })],
        ("a.test", TYPE::NS) => vec![RData::NS(NS(of("ns\\.x.test")))],
        ("a.test", TYPE::CNAME) => vec![RData::CNAME(CNAME(of("real.test")))],
        ("a.test", TYPE::SRV) => vec![RData::SRV(SRV { priority: 1, weight: 2, port: 3, target: of("srv.test") })],
        ("a.test", TYPE::TXT) => {
            vec![RData::TXT(TXT::new().with_string("v=spf1 -all").unwrap().with_string("say \"x\"").unwrap())]
        }
        ("a.test", TYPE::CAA) => {
            vec![RData::CAA(CAA { flag: 0, tag: "issue".try_into().unwrap(), value: b"ca.test"[..].into() })]
        }
        ("large.test", TYPE::TXT) if flags.is_empty() => vec![RData::TXT(TXT::new().with_string("all of it").unwrap())],
        ("7.2.0.192.in-addr.arpa", TYPE::PTR) => vec![RData::PTR(PTR(of("host.test")))],
        ("a.test" | "large.test" | "lost.test", _) => vec![],
        _ => {
            *reply.rcode_mut() = RCODE::NameError;
            vec![]
        }
    };
    reply.answers =
        found.into_iter().map(|data| ResourceRecord::new(question.qname.clone(), CLASS::IN, 1, data)).collect();
    reply.questions.push(question);
    reply.build_bytes_vec().unwrap()
}

#[test]
fn names_by_a_server() {
    let server = name_server();
    let ask = |name: &str, rest: &str| {
        let text = format!("dns: {{'{name}': {{server: '{}', timeout: 60000, {rest}}}}}", server.address);
        answers(&text)
    };
    let table = [
        ("a.test", "192.0.2.1, 192.0.2.2"),
        ("A:a.test", "192.0.2.1, 192.0.2.2"),
        ("MX:a.test", "10 mx.test."),
        ("NS:a.test", "'ns\\.x.test.'"),
        ("CNAME:a.test", "real.test."),
        ("SRV:a.test", "1 2 3 srv.test."),
        ("TXT:a.test", "v=spf1 -all, 'say \\\"x\\\"'"),
        ("CAA:a.test", "0 issue ca.test"),
        ("PTR:192.0.2.7", "host.test."),
        ("TXT:large.test", "all of it"),
    ];
    for (name, addrs) in table {
        let found = ask(name, &format!("resolvable: true, addrs: {{consist-of: [{addrs}]}}"));
        assert_eq!(found, ["resolvable Pass", "addrs Pass"], "{name}");
    }
    assert_eq!(ask("A:a.test", "resolvable: true, addrs: [192.0.2.3]"), ["resolvable Pass", "addrs Fail"]);
    assert_eq!(ask("gone.test", "resolvable: false, addrs: [x]"), ["resolvable Pass", "addrs Skip"]);
    assert_eq!(ask("AAAA:a.test", "resolvable: false"), ["resolvable Pass"], "the name is there, the record is not");
    let broken = format!("resolvable Unknown {} answers ServerFailure", server.address);
    assert_eq!(ask("broken.test", "resolvable: false"), [broken]);
}

#[test]
fn a_name_server_that_does_not_answer_well_is_unknown() {
    let server = name_server();
    let ask = |name: &str, timeout: u32| {
        let rest = format!("server: '{}', timeout: {timeout}, resolvable: false", server.address);
        answers(&format!("dns: {{'{name}': {{{rest}}}}}"))
    };
    let silent = format!("resolvable Unknown {} does not answer in time", server.address);
    assert_eq!(ask("A:silent.test", 150), [silent.clone()]);
    assert_eq!(ask("A:garbage.test", 150), [silent]);
    assert_eq!(ask("A:lost.test", 3000), ["resolvable Fail"], "the question is put again");
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let found = answers(&format!("dns: {{x.test: {{server: '{nobody}', resolvable: false}}}}"));
    assert!(found[0].starts_with("resolvable Unknown"), "{found:?}");
}

#[test]
fn names_by_this_machine() {
    assert_eq!(answers("dns: {localhost: {resolvable: true, addrs: [127.0.0.1]}}"), ["resolvable Pass", "addrs Pass"]);
    assert_eq!(
        answers("dns: {x: {resolve: 'A:localhost', resolveable: true, addrs: {consist-of: [127.0.0.1]}}}"),
        ["resolvable Pass", "addrs Pass"]
    );
    assert_eq!(answers("dns: {'::1': {resolvable: true, addrs: ['::1']}}"), ["resolvable Pass", "addrs Pass"]);
    assert_eq!(answers("dns: {'AAAA:127.0.0.1': {resolvable: false}}"), ["resolvable Pass"]);
}
