//! Tests the resource type `dns` with a name server in the test and with this machine's resolver.

use super::*;
use simple_dns::rdata::{A, CAA, CNAME, MX, NS, PTR, RData, SRV, TXT};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};

/// A name server that stops when this value is dropped.
struct NameServer {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // The server may be waiting for a query by TCP that no test sends. This connection ends the
        // wait.
        drop(TcpStream::connect(self.address));
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
                    // The write fails if the client has closed the connection.
                    let _ = by_tcp(&mut stream);
                }
                _ => drop(udp.send_to(&answer(query, PacketFlag::empty()), from).unwrap()),
            }
        }
    });
    NameServer { address, thread: Some(thread) }
}

fn by_tcp(stream: &mut TcpStream) -> io::Result<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut query = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut query)?;
    let answer = answer(&query, PacketFlag::empty());
    stream.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes())?;
    stream.write_all(&answer)
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
    let broken = format!("resolvable Unknown {} answered ServerFailure", server.address);
    assert_eq!(ask("broken.test", "resolvable: false"), [broken]);
}

#[test]
fn a_name_server_that_does_not_answer_well_is_unknown() {
    let server = name_server();
    let ask = |name: &str, timeout: u32| {
        let rest = format!("server: '{}', timeout: {timeout}, resolvable: false", server.address);
        answers(&format!("dns: {{'{name}': {{{rest}}}}}"))
    };
    let silent = format!("resolvable Unknown {} did not answer in time", server.address);
    assert_eq!(ask("A:silent.test", 150)[0], silent);
    assert_eq!(ask("A:garbage.test", 150)[0], silent);
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
