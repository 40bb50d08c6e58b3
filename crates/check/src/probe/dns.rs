//! `dns`: the addresses or records of a name. Without `server`, this machine's resolver is queried,
//! including the hosts file. With `server`, only that server is queried.

use super::resolve::resolve;
use super::{ProbeAnswers, ProbeContext, ProbeError, failed_error, unknown_error};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const DEFAULT_MS: u64 = 500;
/// Number of times a query is sent by UDP, at equal intervals, because datagrams may be lost.
const TRIES: u32 = 3;
const TYPES: [(&str, TYPE); 9] = [
    ("A", TYPE::A),
    ("AAAA", TYPE::AAAA),
    ("CAA", TYPE::CAA),
    ("CNAME", TYPE::CNAME),
    ("MX", TYPE::MX),
    ("NS", TYPE::NS),
    ("PTR", TYPE::PTR),
    ("SRV", TYPE::SRV),
    ("TXT", TYPE::TXT),
];

/// Err: the reason why the DNS name of a check is not valid. Record types other than A and AAAA
/// also need a `server`.
pub(super) fn validate(name: &str, server: Option<&str>) -> Result<(), String> {
    let (wanted, host) = split(name)?;
    match wanted {
        Some(TYPE::PTR) if host.parse::<IpAddr>().is_err() => Err(format!("`{name}`: PTR needs an IP address")),
        Some(TYPE::A | TYPE::AAAA) | None => Ok(()),
        Some(_) if server.is_none() => Err(format!("`{name}` needs a `server`")),
        Some(_) => Ok(()),
    }?;
    if host.is_empty() || Name::new(host).is_err() {
        return Err(format!("`{host}` is not a valid name"));
    }
    Ok(())
}

/// Splits off the record type, as in `MX:example.org`. None if the name has no type.
fn split(name: &str) -> Result<(Option<TYPE>, &str), String> {
    match name.split_once(':') {
        Some((prefix, host)) if !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_uppercase()) => {
            let known = TYPES.iter().find(|(name, _)| *name == prefix);
            let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
            let unknown = || format!("`{name}`: unknown record type; known: {}", names.join(", "));
            known.map(|(_, kind)| (Some(*kind), host)).ok_or_else(unknown)
        }
        _ => Ok((None, name)),
    }
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let timeout = ask.timeout(DEFAULT_MS);
    let found = split(&ask.check.name).map_err(unknown_error).and_then(|(wanted, host)| match ask.argument("server") {
        None => resolve_locally(wanted, host, timeout),
        Some(server) => query_server(wanted, host, server, timeout),
    });
    match found {
        Ok(mut addrs) => {
            addrs.sort();
            addrs.dedup();
            let resolvable = !addrs.is_empty();
            let addrs = if resolvable { Ok(addrs.into()) } else { Err(failed_error("the name does not resolve")) };
            ProbeAnswers::from([("resolvable", Ok(resolvable.into())), ("addrs", addrs)])
        }
        Err(trouble) => ProbeAnswers::from([("resolvable", Err(trouble.clone())), ("addrs", Err(trouble))]),
    }
}

fn resolve_locally(wanted: Option<TYPE>, host: &str, timeout: Duration) -> Result<Vec<String>, ProbeError> {
    let address = if host.contains(':') { format!("[{host}]:0") } else { format!("{host}:0") };
    let fits = |ip: &IpAddr| match wanted {
        Some(TYPE::A) => ip.is_ipv4(),
        Some(TYPE::AAAA) => ip.is_ipv6(),
        _ => true,
    };
    let addresses = resolve(&address, timeout)?;
    Ok(addresses.iter().map(SocketAddr::ip).filter(fits).map(|ip| ip.to_string()).collect())
}

fn query_server(wanted: Option<TYPE>, host: &str, server: &str, timeout: Duration) -> Result<Vec<String>, ProbeError> {
    let until = Instant::now() + timeout;
    let server = *resolve(&with_port(server), timeout)?
        .first()
        .ok_or_else(|| unknown_error("the name of the server does not exist"))?;
    match wanted {
        Some(kind) => records(kind, host, server, until),
        None => {
            let (v4, v6) = (records(TYPE::A, host, server, until), records(TYPE::AAAA, host, server, until));
            // Addresses of one family are enough if the query for the other fails.
            match (v4, v6) {
                (Ok(v4), Ok(v6)) => Ok(v4.into_iter().chain(v6).collect()),
                (Ok(some), Err(_)) | (Err(_), Ok(some)) if !some.is_empty() => Ok(some),
                (Err(trouble), _) | (_, Err(trouble)) => Err(trouble),
            }
        }
    }
}

/// Converts `192.0.2.1`, `192.0.2.1:5353`, `::1`, `[::1]:5353` or a name to `HOST:PORT`. The
/// default port is 53.
fn with_port(server: &str) -> String {
    let has_port = server.parse::<IpAddr>().is_err() && super::addr::is_host_and_port(server);
    match server.parse::<Ipv6Addr>() {
        _ if has_port => server.to_owned(),
        Ok(v6) => format!("[{v6}]:53"),
        Err(_) => format!("{server}:53"),
    }
}

fn records(kind: TYPE, host: &str, server: SocketAddr, until: Instant) -> Result<Vec<String>, ProbeError> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(unknown_error)?;
    let id = u16::from_be_bytes(id);
    let name = if kind == TYPE::PTR { reverse(host)? } else { host.to_owned() };
    let name = Name::new(&name).map_err(unknown_error)?;
    let mut query = Packet::new_query(id);
    query.set_flags(PacketFlag::RECURSION_DESIRED);
    query.questions.push(Question::new(name.clone(), QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
    let query = query.build_bytes_vec().map_err(unknown_error)?;
    let is_ours = |packet: &Packet| {
        let same = |question: &Question| question.qname == name && question.qtype == QTYPE::TYPE(kind);
        packet.id() == id && packet.has_flags(PacketFlag::RESPONSE) && packet.questions.iter().all(same)
    };
    let mut bytes = send_udp(&query, server, until, |bytes| Packet::parse(bytes).is_ok_and(|packet| is_ours(&packet)))
        .map_err(|e| no_answer(server, &e))?;
    if Packet::parse(&bytes).is_ok_and(|packet| packet.has_flags(PacketFlag::TRUNCATION)) {
        bytes = send_tcp(&query, server, until).map_err(|e| no_answer(server, &e))?;
    }
    let packet =
        Packet::parse(&bytes).map_err(|e| unknown_error(format!("cannot read the answer of {server}: {e:?}")))?;
    if !is_ours(&packet) {
        return Err(unknown_error(format!("{server} answered another query")));
    }
    match packet.rcode() {
        RCODE::NoError | RCODE::NameError => {}
        other => return Err(unknown_error(format!("{server} answered {other:?}"))),
    }
    Ok(packet.answers.iter().flat_map(|record| texts(kind, &record.rdata)).collect())
}

fn no_answer(server: SocketAddr, error: &io::Error) -> ProbeError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            unknown_error(format!("{server} did not answer in time"))
        }
        _ => unknown_error(format!("{server}: {error}")),
    }
}

fn remaining_time(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Sends the query by UDP. Returns the first datagram from `server` for which `fits` is true.
fn send_udp(query: &[u8], server: SocketAddr, until: Instant, fits: impl Fn(&[u8]) -> bool) -> io::Result<Vec<u8>> {
    let any = if server.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    let pause = remaining_time(until)? / TRIES;
    let mut buffer = vec![0; 1 << 16];
    for number in 1..=TRIES {
        let again = if number == TRIES { until } else { Instant::now() + pause };
        socket.send(query)?;
        while let Ok(wait) = remaining_time(again) {
            socket.set_read_timeout(Some(wait))?;
            match socket.recv(&mut buffer) {
                Ok(length) if fits(&buffer[..length]) => return Ok(buffer[..length].to_vec()),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Sends the query by TCP, for an answer that is too large for a datagram.
fn send_tcp(query: &[u8], server: SocketAddr, until: Instant) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&server, remaining_time(until)?)?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.set_write_timeout(Some(remaining_time(until)?))?;
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    let mut exactly = |count: usize| {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            stream.set_read_timeout(Some(remaining_time(until)?))?;
            match stream.read(&mut bytes[filled..])? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                more => filled += more,
            }
        }
        Ok(bytes)
    };
    let length: [u8; 2] = exactly(2)?.try_into().map_err(|_| io::ErrorKind::UnexpectedEof)?;
    exactly(u16::from_be_bytes(length).into())
}

/// The record as goss prints it. Empty for a record of a type other than `kind`, such as a CNAME
/// record before an address.
fn texts(kind: TYPE, data: &RData) -> Vec<String> {
    match (kind, data) {
        (TYPE::A, RData::A(a)) => vec![Ipv4Addr::from(a.address).to_string()],
        (TYPE::AAAA, RData::AAAA(aaaa)) => vec![Ipv6Addr::from(aaaa.address).to_string()],
        (TYPE::CAA, RData::CAA(caa)) => {
            vec![format!("{} {} {}", caa.flag, caa.tag, String::from_utf8_lossy(&caa.value))]
        }
        (TYPE::CNAME, RData::CNAME(name)) => vec![full(&name.0)],
        (TYPE::MX, RData::MX(mx)) => vec![format!("{} {}", mx.preference, full(&mx.exchange))],
        (TYPE::NS, RData::NS(name)) => vec![full(&name.0)],
        (TYPE::PTR, RData::PTR(name)) => vec![full(&name.0)],
        (TYPE::SRV, RData::SRV(srv)) => {
            vec![format!("{} {} {} {}", srv.priority, srv.weight, srv.port, full(&srv.target))]
        }
        (TYPE::TXT, RData::TXT(txt)) => {
            let string = |(key, value): (&[u8], Option<&[u8]>)| match value {
                Some(value) => [key, b"=", value].concat(),
                None => key.to_vec(),
            };
            txt.iter_raw().map(string).map(|bytes| escape_bytes(&bytes, b"\"\\")).collect()
        }
        _ => Vec::new(),
    }
}

/// The DNS name as text, with a dot at its end.
fn full(name: &Name) -> String {
    let labels: String = name.as_bytes().map(|label| escape_bytes(label, b". '@;()\"\\") + ".").collect();
    if labels.is_empty() { ".".to_owned() } else { labels }
}

/// Escapes as zone files do: a backslash before each byte of `special`, and other non-printable
/// bytes as `\004`.
fn escape_bytes(bytes: &[u8], special: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        byte if special.contains(byte) => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        other => format!("\\{other:03}"),
    };
    bytes.iter().map(one).collect()
}

/// The name for a reverse lookup of an IP address.
fn reverse(address: &str) -> Result<String, ProbeError> {
    Ok(match address.parse::<IpAddr>().map_err(unknown_error)? {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_types_and_servers() {
        assert_eq!(split("MX:example.org"), Ok((Some(TYPE::MX), "example.org")));
        assert_eq!(split("::1"), Ok((None, "::1")));
        assert!(split("SSHFP:x").unwrap_err().ends_with("known: A, AAAA, CAA, CNAME, MX, NS, PTR, SRV, TXT"));
        assert_eq!(validate("A:localhost", None), Ok(()));
        assert_eq!(validate("TXT:x", None), Err("`TXT:x` needs a `server`".to_owned()));
        assert!(validate("PTR:x", Some("::1")).is_err() && validate("PTR:127.0.0.1", Some("::1")).is_ok());
        assert!(validate(&"a".repeat(64), None).is_err() && validate("", None).is_err());
        let servers = ["127.0.0.1", "127.0.0.1:5353", "::1", "[::1]:5353", "ns.example", "ns.example:54"];
        let wanted = ["127.0.0.1:53", "127.0.0.1:5353", "[::1]:53", "[::1]:5353", "ns.example:53", "ns.example:54"];
        assert_eq!(servers.map(with_port), wanted);
        assert_eq!(reverse("192.0.2.7").unwrap(), "7.2.0.192.in-addr.arpa");
        let v6 = reverse("2001:db8::1").unwrap();
        assert!(v6.starts_with("1.0.0.0.") && v6.ends_with("8.b.d.0.1.0.0.2.ip6.arpa") && v6.len() == 72, "{v6}");
    }
}
