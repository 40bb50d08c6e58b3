//! The `wait_for` module: polls until a port, a path, a text in a file or on a port, or the end of
//! a port's connections is found, or until the timeout.

use super::{Answer, Call, Outcome, pieces};
use crate::pyregex;
use regex::bytes::Regex;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of bytes read from a port in search of a text.
const HEARD_MAX: usize = 1 << 20;
/// TCP connection states and their numbers in `/proc/net/tcp`.
const STATES: [(&str, &str); 6] = [
    ("ESTABLISHED", "01"),
    ("SYN_SENT", "02"),
    ("SYN_RECV", "03"),
    ("FIN_WAIT1", "04"),
    ("FIN_WAIT2", "05"),
    ("TIME_WAIT", "06"),
];

/// The condition to wait for.
enum Wanted {
    Nothing,
    Port { host: String, port: u16, pattern: Option<Regex>, open: bool },
    Path { path: PathBuf, pattern: Option<Regex>, there: bool },
    Drained(Drained),
}

/// The condition that a local port has no connections.
struct Drained {
    port: u16,
    /// Local addresses. An unspecified address (0.0.0.0, ::) means all.
    at: BTreeSet<IpAddr>,
    /// Remote addresses whose connections do not count.
    excluded: BTreeSet<IpAddr>,
    /// The numbers of the connection states that count.
    states: Vec<&'static str>,
}

/// The match of `search_regex`: groups and named groups.
#[derive(Default)]
struct Found {
    groups: Vec<Value>,
    named: Map<String, Value>,
}

pub fn wait_for(call: &mut Call) -> Answer {
    let timeout = call.seconds("timeout", 300.0)?;
    let limit = call.left().map_or(timeout, |t| t.min(timeout));
    let pause = call.seconds("sleep", 1.0)?.clamp(Duration::from_millis(50), Duration::from_secs(60));
    let connect = call.seconds("connect_timeout", 5.0)?.max(Duration::from_millis(10));
    let wanted = wanted(call)?;
    let checks = call.ground.node.checks();
    let start = Instant::now();
    if !checks && !nap(call, call.seconds("delay", 0.0)?) {
        return Err("cancelled".into());
    }
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let found = match &wanted {
            // Without a port or path, `wait_for` only waits for the timeout.
            Wanted::Nothing => (start.elapsed() >= timeout).then(Found::default),
            Wanted::Path { path, pattern, there } => match present(call, path, pattern.as_ref())? {
                found if *there => found,
                Some(_) => None,
                None => Some(Found::default()),
            },
            Wanted::Port { host, port, open, pattern } => {
                let stream = connected(host, *port, connect.min(left.max(Duration::from_millis(10))));
                match (stream, pattern) {
                    (stream, _) if !open => stream.is_none().then(Found::default),
                    (Some(stream), Some(pattern)) => heard(call, stream, pattern, left),
                    (stream, _) => stream.map(|_| Found::default()),
                }
            }
            Wanted::Drained(drained) => (drained.connections()? == 0).then(Found::default),
        };
        if let Some(found) = found {
            return Ok(told(call, &wanted, found, start.elapsed()));
        }
        if checks {
            return Ok(Outcome::unknown("the condition does not hold now, and check mode does not wait"));
        }
        if start.elapsed() >= limit {
            let why = format!("{} after {} s", wanted.unmet(), limit.as_secs());
            let mut out = Outcome { failed: true, msg: call.text(&["msg"]).unwrap_or(why), ..Outcome::default() };
            out.more.insert("elapsed".into(), json!(start.elapsed().as_secs()));
            return Ok(out);
        }
        let left = limit.saturating_sub(start.elapsed());
        if !nap(call, pause.min(left.max(Duration::from_millis(10)))) {
            return Err("cancelled".into());
        }
    }
}

fn wanted(call: &Call) -> Result<Wanted, String> {
    let host = call.text(&["host"]).unwrap_or_else(|| "127.0.0.1".into());
    let port =
        call.text(&["port"]).map(|p| p.parse::<u16>().map_err(|_| format!("`{p}` is not a port"))).transpose()?;
    let path = call.text(&["path"]).map(|_| call.path(&["path"])).transpose()?;
    let state = call.text(&["state"]).unwrap_or_else(|| "started".into());
    let compile = |p: String| pyregex::bytes(&p).multi_line(true).build().map_err(|e| format!("pattern `{p}`: {e}"));
    let pattern = call.text(&["search_regex"]).map(compile).transpose()?;
    if call.args.contains_key("exclude_hosts") && state != "drained" {
        return Err("`exclude_hosts` requires `state: drained`".into());
    }
    match (state.as_str(), port, path) {
        (_, Some(_), Some(_)) => Err("`port` and `path` cannot be combined".into()),
        ("stopped" | "drained", _, Some(_)) => {
            Err(format!("`state: {state}` requires `port`; use `absent` for a path"))
        }
        ("drained", None, None) => Err("`state: drained` requires `port`".into()),
        ("drained", Some(port), None) => Ok(Wanted::Drained(Drained::new(call, &host, port)?)),
        ("started" | "present" | "stopped" | "absent", port, path) => {
            let up = matches!(state.as_str(), "started" | "present");
            let pattern = pattern.filter(|_| up);
            Ok(match (port, path) {
                (Some(port), _) => Wanted::Port { host, port, pattern, open: up },
                (None, Some(path)) => Wanted::Path { path, pattern, there: up },
                (None, None) => Wanted::Nothing,
            })
        }
        _ => Err(format!("`{state}` is not a valid state of wait_for")),
    }
}

impl Wanted {
    /// The message for a timeout.
    fn unmet(&self) -> String {
        let text = |pattern: &Option<Regex>| match pattern {
            Some(pattern) => format!("`{}` is not in ", pattern.as_str().trim_start_matches("(?m)")),
            None => String::new(),
        };
        match self {
            Self::Nothing => "the task's timeout was reached".into(),
            Self::Port { host, port, pattern: pattern @ Some(_), .. } => format!("{}{host}:{port}", text(pattern)),
            Self::Port { host, port, open, .. } => {
                format!("{host}:{port} is {}", if *open { "not open" } else { "open" })
            }
            Self::Path { path, pattern: pattern @ Some(_), .. } => format!("{}{}", text(pattern), path.display()),
            Self::Path { path, there, .. } => {
                format!("{} {}", path.display(), if *there { "does not exist" } else { "still exists" })
            }
            Self::Drained(drained) => format!("port {} still has connections", drained.port),
        }
    }
}

impl Drained {
    fn new(call: &Call, host: &str, port: u16) -> Result<Self, String> {
        let named: Vec<String> = match call.list(&["active_connection_states"]) {
            none if none.is_empty() => STATES.iter().map(|(name, _)| (*name).to_owned()).collect(),
            some => some,
        };
        let number = |name: &String| {
            let found = STATES.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
            found.ok_or_else(|| {
                format!("`active_connection_states`: `{name}` is not one of {}", STATES.map(|s| s.0).join(", "))
            })
        };
        let mut excluded = BTreeSet::new();
        for host in call.list(&["exclude_hosts"]) {
            excluded.extend(addresses(&host)?);
        }
        let states = named.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Self { port, at: addresses(host)?, excluded, states })
    }

    /// The number of connections in the kernel's tables.
    fn connections(&self) -> Result<usize, String> {
        let mut count = 0;
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let text = match std::fs::read_to_string(table) {
                Ok(text) => text,
                // The machine has no IPv6.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(format!("{table}: {e}")),
            };
            count += text.lines().skip(1).filter(|line| self.counts(line)).count();
        }
        Ok(count)
    }

    fn counts(&self, line: &str) -> bool {
        let mut words = line.split_whitespace().skip(1);
        let (Some(local), Some(remote), Some(state)) = (words.next(), words.next(), words.next()) else { return false };
        let (Some((local, port)), Some((remote, _))) = (end_of(local), end_of(remote)) else { return false };
        let here = self.at.contains(&local) || self.at.iter().any(IpAddr::is_unspecified);
        port == self.port && here && self.states.contains(&state) && !self.excluded.contains(&remote)
    }
}

/// Parses an address and port of the kernel's tables: 32-bit words in native byte order, in hex.
fn end_of(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at * 8)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

fn addresses(host: &str) -> Result<BTreeSet<IpAddr>, String> {
    let found = (host, 0).to_socket_addrs().map_err(|e| format!("`{host}` has no address: {e}"))?;
    Ok(found.map(|address| address.ip().to_canonical()).collect())
}

/// The outcome when the condition holds.
fn told(call: &Call, wanted: &Wanted, found: Found, took: Duration) -> Outcome {
    let mut out = Outcome::ok(format!("waited {} s", took.as_secs()));
    for name in ["port", "path", "search_regex"] {
        out.more.insert(name.into(), call.args.get(name).cloned().unwrap_or_default());
    }
    out.more.insert("state".into(), json!(call.text(&["state"]).unwrap_or_else(|| "started".into())));
    out.more.insert("elapsed".into(), json!(took.as_secs()));
    out.more.insert("match_groups".into(), Value::Array(found.groups));
    out.more.insert("match_groupdict".into(), Value::Object(found.named));
    if let Wanted::Path { path, .. } = wanted {
        call.path_info(path, &mut out);
    }
    out
}

/// Sleeps. Returns false if the run was cancelled meanwhile.
pub fn nap(call: &Call, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if call.cancel.stopped() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50).min(time.saturating_sub(start.elapsed())));
    }
    !call.cancel.stopped()
}

/// Connects to the first address that accepts within `timeout`.
fn connected(host: &str, port: u16, timeout: Duration) -> Option<TcpStream> {
    (host, port).to_socket_addrs().ok()?.find_map(|address| TcpStream::connect_timeout(&address, timeout).ok())
}

/// Reads from the connection until the pattern matches. None: the connection closed or the time
/// ended first.
fn heard(call: &Call, mut stream: TcpStream, pattern: &Regex, left: Duration) -> Option<Found> {
    let start = Instant::now();
    let mut text = Vec::new();
    let mut piece = [0; 1024];
    stream.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
    while start.elapsed() < left && text.len() < HEARD_MAX && !call.cancel.stopped() {
        match stream.read(&mut piece) {
            Ok(0) => return None,
            Ok(n) => {
                text.extend_from_slice(&piece[..n]);
                if let Some(found) = search(pattern, &text) {
                    return Some(found);
                }
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return None,
        }
    }
    None
}

fn search(pattern: &Regex, text: &[u8]) -> Option<Found> {
    let found = pattern.captures(text)?;
    let text = |part: Option<regex::bytes::Match>| {
        part.map_or(Value::Null, |part| json!(String::from_utf8_lossy(part.as_bytes())))
    };
    let named = pattern.capture_names().flatten().map(|name| (name.to_owned(), text(found.name(name)))).collect();
    Some(Found { groups: found.iter().skip(1).map(text).collect(), named })
}

/// Whether `path` exists and, with a pattern, whether its content matches.
fn present(call: &Call, path: &Path, pattern: Option<&Regex>) -> Result<Option<Found>, String> {
    let node = &call.ground.node;
    Ok(match (node.follow(path), pattern) {
        (there, None) => there.map(|_| Found::default()),
        (None, _) => None,
        (Some((real, _)), Some(pattern)) => {
            let found = pieces::first(&mut node.open(&real)?, |text| search(pattern, text));
            found.map_err(|e| format!("{}: {e}", real.display()))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_of_the_kernels_tables() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let line =
            |local: &str, remote: &str, state: &str| format!("   0: {local}:1F90 {remote}:C000 {state} 00000000:0 x");
        let (own, other) = (word([127, 0, 0, 1]), word([10, 0, 0, 7]));
        let mapped = [word([0; 4]), word([0; 4]), word([0, 0, 255, 255]), own.clone()].concat();
        let drained = |at: &str, states: &[&'static str]| Drained {
            port: 8080,
            at: addresses(at).unwrap(),
            excluded: addresses("10.0.0.9").unwrap(),
            states: states.to_vec(),
        };
        assert!(drained("127.0.0.1", &["01"]).counts(&line(&own, &other, "01")));
        assert!(drained("127.0.0.1", &["01"]).counts(&line(&mapped, &other, "01")));
        assert!(drained("0.0.0.0", &["01"]).counts(&line(&other, &other, "01")));
        assert!(!drained("127.0.0.1", &["01"]).counts(&line(&other, &other, "01")), "another local address");
        assert!(!drained("127.0.0.1", &["01"]).counts(&line(&own, &other, "06")), "in a state that does not count");
        assert!(!drained("127.0.0.1", &["01"]).counts(&line(&own, &word([10, 0, 0, 9]), "01")), "an excluded host");
        assert!(!drained("127.0.0.1", &["01"]).counts("  sl  local_address rem_address   st tx_queue"));
    }

    #[test]
    fn a_connection_to_a_port_is_seen_until_it_ends() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let drained =
            Drained { port, at: addresses("127.0.0.1").unwrap(), excluded: BTreeSet::new(), states: vec!["01"] };
        assert_eq!(drained.connections(), Ok(0));
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _server = listener.accept().unwrap();
        assert_eq!(drained.connections(), Ok(1));
    }

    #[test]
    fn what_a_pattern_finds_is_told_by_group() {
        let found = search(&Regex::new("(?m)^a=(?P<n>\\d+)(x)?$").unwrap(), b"b\na=12\n").unwrap();
        assert_eq!(json!([found.groups, found.named]), json!([["12", null], {"n": "12"}]));
        assert!(search(&Regex::new("z").unwrap(), b"a").is_none());
    }
}
