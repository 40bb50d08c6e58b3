//! `wait_for`: a port, a path or a text in a file, asked again and again until it is so or the time is up.

use super::{Answer, Call, Outcome};
use crate::playbook::pyregex;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

pub fn wait_for(call: &mut Call) -> Answer {
    let timeout = call.seconds("timeout", 300.0)?;
    let limit = call.timeout.map_or(timeout, |t| t.min(timeout));
    let pause = call.seconds("sleep", 1.0)?.clamp(Duration::from_millis(50), Duration::from_secs(60));
    let connect = call.seconds("connect_timeout", 5.0)?.max(Duration::from_millis(10));
    let host = call.text(&["host"]).unwrap_or_else(|| "127.0.0.1".into());
    let port = call.text(&["port"]).map(|p| p.parse::<u16>().map_err(|_| format!("`{p}` is no port"))).transpose()?;
    let path = call.args.get("path").map(|_| call.path(&["path"])).transpose()?;
    let wanted = !matches!(call.text(&["state"]).as_deref(), Some("absent" | "stopped" | "drained"));
    let pattern = call.text(&["search_regex"]);
    let pattern = pattern
        .map(|p| pyregex::bytes(&p).multi_line(true).build().map_err(|e| format!("pattern `{p}`: {e}")))
        .transpose()?;
    let checks = call.ground.node.checks();
    let start = Instant::now();
    if !checks && !nap(call, call.seconds("delay", 0.0)?) {
        return Err("cancelled".into());
    }
    loop {
        let there = match (&port, &path) {
            (Some(port), _) => open(&host, *port, connect),
            (None, Some(path)) => present(call, path, pattern.as_ref())?,
            // Neither: this is only a pause.
            (None, None) => start.elapsed() >= timeout,
        };
        if there == wanted {
            return Ok(Outcome::ok(format!("waited {} s", start.elapsed().as_secs())));
        }
        if checks {
            return Ok(Outcome::unknown("it is not so now, and check mode does not wait"));
        }
        if start.elapsed() >= limit {
            let what = path.map_or_else(|| format!("{host}:{}", port.unwrap_or_default()), |p| p.display().to_string());
            let why =
                format!("{what} is {} after {} s", if wanted { "not there" } else { "still there" }, limit.as_secs());
            return Err(call.text(&["msg"]).unwrap_or(why));
        }
        let left = limit.saturating_sub(start.elapsed());
        if !nap(call, pause.min(left.max(Duration::from_millis(10)))) {
            return Err("cancelled".into());
        }
    }
}

/// Sleeps; false if cancelled meanwhile.
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

fn open(host: &str, port: u16, timeout: Duration) -> bool {
    let addresses = (host, port).to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|a| TcpStream::connect_timeout(&a, timeout).is_ok()))
}

fn present(call: &Call, path: &Path, pattern: Option<&regex::bytes::Regex>) -> Result<bool, String> {
    let node = &call.ground.node;
    match (node.follow(path), pattern) {
        (there, None) => Ok(there.is_some()),
        (None, _) => Ok(false),
        (Some((real, _)), Some(pattern)) => Ok(pattern.is_match(&node.read(&real)?)),
    }
}
