//! `port`: listening sockets, from `/proc/net`. As in goss, a socket for both IP versions is listed
//! only under IPv6.

use super::{ProbeAnswers, ProbeContext, unknown_error};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketFamily {
    Tcp,
    Tcp6,
    Udp,
    Udp6,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    family: SocketFamily,
    number: u16,
}

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListeningSocket {
    port: Port,
    ip: IpAddr,
}

impl Port {
    /// Parses `tcp6:80`, or `80` for TCP.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (family, number) = text.split_once(':').unwrap_or(("tcp", text));
        let family = match family {
            "tcp" => SocketFamily::Tcp,
            "tcp6" => SocketFamily::Tcp6,
            "udp" => SocketFamily::Udp,
            "udp6" => SocketFamily::Udp6,
            _ => return None,
        };
        Some(Self { family, number: number.parse().ok()? })
    }
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let sockets = match ask.world.sockets() {
        Ok(sockets) => sockets,
        Err(why) => return ProbeAnswers::from([("listening", Err(unknown_error(why)))]),
    };
    let wanted = Port::parse(&ask.check.name);
    let mut ips: Vec<String> = sockets
        .iter()
        .filter(|socket| Some(&socket.port) == wanted.as_ref())
        .map(|socket| socket.ip.to_string())
        .collect();
    ips.sort();
    ips.dedup();
    ProbeAnswers::from([("listening", Ok((!ips.is_empty()).into())), ("ip", Ok(ips.into()))])
}

/// All listening sockets. A family that the kernel does not support has none.
pub(super) fn sockets() -> Result<Vec<ListeningSocket>, String> {
    let tables = [
        ("tcp", SocketFamily::Tcp),
        ("tcp6", SocketFamily::Tcp6),
        ("udp", SocketFamily::Udp),
        ("udp6", SocketFamily::Udp6),
    ];
    let mut out = Vec::new();
    for (table, family) in tables {
        let path = format!("/proc/net/{table}");
        match fs::read_to_string(&path) {
            Ok(text) => out.extend(parse_listening(&text, family)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && table.ends_with('6') => {}
            Err(e) => return Err(format!("{path}: {e}")),
        }
    }
    Ok(out)
}

fn parse_listening(text: &str, family: SocketFamily) -> impl Iterator<Item = ListeningSocket> {
    // The state is LISTEN for TCP. UDP has no connections, and a bound socket is in the state
    // CLOSE.
    let state = if matches!(family, SocketFamily::Tcp | SocketFamily::Tcp6) { "0A" } else { "07" };
    text.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1)?;
        let _remote = fields.next()?;
        let (ip, port) = local.split_once(':').filter(|_| fields.next() == Some(state))?;
        Some(ListeningSocket { port: Port { family, number: u16::from_str_radix(port, 16).ok()? }, ip: address(ip)? })
    })
}

/// Parses an IP address. The kernel prints it as 32-bit words in the machine's own byte order.
fn address(hex_words: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for at in (0..hex_words.len()).step_by(8) {
        let word = u32::from_str_radix(hex_words.get(at..at + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(v4) => Some(Ipv4Addr::from(v4).into()),
        Err(_) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ports() {
        assert_eq!(Port::parse("80"), Port::parse("tcp:80"));
        assert_eq!(Port::parse("udp6:53"), Some(Port { family: SocketFamily::Udp6, number: 53 }));
        assert_eq!(["sctp:1", "tcp:", "tcp:70000", "x"].map(Port::parse), [const { None }; 4]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn only_listening_sockets_count() {
        let text = "  sl  local_address rem_address   st\n   0: 0100007F:0050 00000000:0000 0A 0:0\n   1: 00000000:0051 00000000:0000 01 0:0\n";
        let found: Vec<ListeningSocket> = parse_listening(text, SocketFamily::Tcp).collect();
        assert_eq!(found, [ListeningSocket { port: Port::parse("tcp:80").unwrap(), ip: "127.0.0.1".parse().unwrap() }]);
        let text = "h\n 0: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 0\n";
        let found: Vec<ListeningSocket> = parse_listening(text, SocketFamily::Udp6).collect();
        assert_eq!(found[0].ip.to_string(), "::1");
    }
}
