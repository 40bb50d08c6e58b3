//! The `wait_for` module: polls until a condition holds or the timeout is reached. The condition
//! concerns a port, a path, a text in a file or from a port, or the open connections of a port.

use super::{ModuleCall, ModuleResult, TaskOutcome, chunked_search};
use crate::lang::pyregex;
use regex::bytes::Regex;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of bytes read from a port in search of a text.
const PORT_READ_MAX: usize = 1 << 20;
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
enum WaitCondition {
    Nothing,
    Port { host: String, port: u16, pattern: Option<Regex>, open: bool },
    Path { path: PathBuf, pattern: Option<Regex>, there: bool },
    Drained(DrainCondition),
}

/// The condition that a local port has no connections.
struct DrainCondition {
    port: u16,
    /// Local addresses whose connections count. An unspecified address (0.0.0.0, ::) means all.
    at: BTreeSet<IpAddr>,
    /// Remote addresses whose connections do not count.
    excluded: BTreeSet<IpAddr>,
    /// The numbers of the connection states that count.
    states: Vec<&'static str>,
}

/// The groups and named groups that `search_regex` matched.
#[derive(Default)]
struct PatternMatch {
    groups: Vec<Value>,
    named: Map<String, Value>,
}

pub fn wait_for(call: &mut ModuleCall) -> ModuleResult {
    let timeout = call.seconds("timeout", 300.0)?;
    let limit = call.time_left().map_or(timeout, |t| t.min(timeout));
    let pause = call.seconds("sleep", 1.0)?.clamp(Duration::from_millis(50), Duration::from_secs(60));
    let connect = call.seconds("connect_timeout", 5.0)?.max(Duration::from_millis(10));
    let wanted = parse_condition(call)?;
    let checks = call.ground.node.is_check_mode();
    let start = Instant::now();
    if !checks && !interruptible_sleep(call, call.seconds("delay", 0.0)?) {
        return Err("cancelled".into());
    }
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let found = match &wanted {
            // Without a port or path, `wait_for` only waits for the timeout.
            WaitCondition::Nothing => (start.elapsed() >= timeout).then(PatternMatch::default),
            WaitCondition::Path { path, pattern, there } => match find_in_path(call, path, pattern.as_ref())? {
                found if *there => found,
                Some(_) => None,
                None => Some(PatternMatch::default()),
            },
            WaitCondition::Port { host, port, open, pattern } => {
                let stream = connect_any(host, *port, connect.min(left.max(Duration::from_millis(10))));
                match (stream, pattern) {
                    (stream, _) if !open => stream.is_none().then(PatternMatch::default),
                    (Some(stream), Some(pattern)) => read_until_match(call, stream, pattern, left),
                    (stream, _) => stream.map(|_| PatternMatch::default()),
                }
            }
            WaitCondition::Drained(drained) => (drained.connections()? == 0).then(PatternMatch::default),
        };
        if let Some(found) = found {
            return Ok(met_outcome(call, &wanted, found, start.elapsed()));
        }
        if checks {
            return Ok(TaskOutcome::indeterminate("the condition does not hold now, and check mode does not wait"));
        }
        if start.elapsed() >= limit {
            let why = format!("{} after {} s", wanted.timeout_reason(), limit.as_secs());
            let mut out =
                TaskOutcome { failed: true, msg: call.text(&["msg"]).unwrap_or(why), ..TaskOutcome::default() };
            out.extra_keys.insert("elapsed".into(), json!(start.elapsed().as_secs()));
            return Ok(out);
        }
        let left = limit.saturating_sub(start.elapsed());
        if !interruptible_sleep(call, pause.min(left.max(Duration::from_millis(10)))) {
            return Err("cancelled".into());
        }
    }
}

fn parse_condition(call: &ModuleCall) -> Result<WaitCondition, String> {
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
        ("drained", Some(port), None) => Ok(WaitCondition::Drained(DrainCondition::new(call, &host, port)?)),
        ("started" | "present" | "stopped" | "absent", port, path) => {
            let up = matches!(state.as_str(), "started" | "present");
            let pattern = pattern.filter(|_| up);
            Ok(match (port, path) {
                (Some(port), _) => WaitCondition::Port { host, port, pattern, open: up },
                (None, Some(path)) => WaitCondition::Path { path, pattern, there: up },
                (None, None) => WaitCondition::Nothing,
            })
        }
        _ => Err(format!("`{state}` is not a valid state of wait_for")),
    }
}

impl WaitCondition {
    /// The message of a task whose condition did not hold before the timeout.
    fn timeout_reason(&self) -> String {
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

impl DrainCondition {
    fn new(call: &ModuleCall, host: &str, port: u16) -> Result<Self, String> {
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

    /// The number of connections in the kernel's tables that the condition counts.
    fn connections(&self) -> Result<usize, String> {
        let mut count = 0;
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let text = match std::fs::read_to_string(table) {
                Ok(text) => text,
                // The table does not exist, because the machine has no IPv6.
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
        let (Some((local, port)), Some((remote, _))) = (parse_endpoint(local), parse_endpoint(remote)) else {
            return false;
        };
        let here = self.at.contains(&local) || self.at.iter().any(IpAddr::is_unspecified);
        port == self.port && here && self.states.contains(&state) && !self.excluded.contains(&remote)
    }
}

/// Parses an address and port of the kernel's tables: 32-bit words in native byte order, in hex.
fn parse_endpoint(text: &str) -> Option<(IpAddr, u16)> {
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

/// The outcome of a task whose condition holds.
fn met_outcome(call: &ModuleCall, wanted: &WaitCondition, found: PatternMatch, took: Duration) -> TaskOutcome {
    let mut out = TaskOutcome::ok(format!("waited {} s", took.as_secs()));
    for name in ["port", "path", "search_regex"] {
        out.extra_keys.insert(name.into(), call.args.get(name).cloned().unwrap_or_default());
    }
    out.extra_keys.insert("state".into(), json!(call.text(&["state"]).unwrap_or_else(|| "started".into())));
    out.extra_keys.insert("elapsed".into(), json!(took.as_secs()));
    out.extra_keys.insert("match_groups".into(), Value::Array(found.groups));
    out.extra_keys.insert("match_groupdict".into(), Value::Object(found.named));
    if let WaitCondition::Path { path, .. } = wanted {
        call.add_path_info(path, &mut out);
    }
    out
}

/// Sleeps. Returns false if the run was cancelled meanwhile.
pub fn interruptible_sleep(call: &ModuleCall, time: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < time {
        if call.cancel.is_stopped() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50).min(time.saturating_sub(start.elapsed())));
    }
    !call.cancel.is_stopped()
}

/// Connects to the first address that accepts within `timeout`.
fn connect_any(host: &str, port: u16, timeout: Duration) -> Option<TcpStream> {
    (host, port).to_socket_addrs().ok()?.find_map(|address| TcpStream::connect_timeout(&address, timeout).ok())
}

/// Reads from the connection until the pattern matches. None: the connection closed or the time
/// ended first.
fn read_until_match(call: &ModuleCall, mut stream: TcpStream, pattern: &Regex, left: Duration) -> Option<PatternMatch> {
    let start = Instant::now();
    let mut text = Vec::new();
    let mut piece = [0; 1024];
    stream.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
    while start.elapsed() < left && text.len() < PORT_READ_MAX && !call.cancel.is_stopped() {
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

fn search(pattern: &Regex, text: &[u8]) -> Option<PatternMatch> {
    let found = pattern.captures(text)?;
    let text = |part: Option<regex::bytes::Match>| {
        part.map_or(Value::Null, |part| json!(String::from_utf8_lossy(part.as_bytes())))
    };
    let named = pattern.capture_names().flatten().map(|name| (name.to_owned(), text(found.name(name)))).collect();
    Some(PatternMatch { groups: found.iter().skip(1).map(text).collect(), named })
}

/// Whether `path` exists and, with a pattern, whether its content matches.
fn find_in_path(call: &ModuleCall, path: &Path, pattern: Option<&Regex>) -> Result<Option<PatternMatch>, String> {
    let node = &call.ground.node;
    Ok(match (node.follow(path), pattern) {
        (there, None) => there.map(|_| PatternMatch::default()),
        (None, _) => None,
        (Some((real, _)), Some(pattern)) => {
            let found = chunked_search::find_first(&mut node.open(&real)?, |text| search(pattern, text));
            found.map_err(|e| format!("{}: {e}", real.display()))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_kernel_tables() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let line =
            |local: &str, remote: &str, state: &str| format!("   0: {local}:1F90 {remote}:C000 {state} 00000000:0 x");
        let (own, other) = (word([127, 0, 0, 1]), word([10, 0, 0, 7]));
        let mapped = [word([0; 4]), word([0; 4]), word([0, 0, 255, 255]), own.clone()].concat();
        let drained = |at: &str, states: &[&'static str]| DrainCondition {
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
    fn an_open_connection_is_counted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let drained =
            DrainCondition { port, at: addresses("127.0.0.1").unwrap(), excluded: BTreeSet::new(), states: vec!["01"] };
        assert_eq!(drained.connections(), Ok(0));
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _server = listener.accept().unwrap();
        assert_eq!(drained.connections(), Ok(1));
    }

    #[test]
    fn pattern_groups_are_returned() {
        let found = search(&Regex::new("(?m)^a=(?P<n>\\d+)(x)?$").unwrap(), b"b\na=12\n").unwrap();
        assert_eq!(json!([found.groups, found.named]), json!([["12", null], {"n": "12"}]));
        assert!(search(&Regex::new("z").unwrap(), b"a").is_none());
    }
}
