//! `addr`: whether a TCP connection can be made.

use super::{Answer, Answers, Ask, unknown};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const DEFAULT_MS: u64 = 500;

pub(super) fn ask(ask: &Ask) -> Answers {
    let address = ask.check.name.trim_start_matches("tcp://").to_owned();
    Answers::from([("reachable", connect(address, ask.timeout(DEFAULT_MS)))])
}

fn connect(address: String, timeout: Duration) -> Answer {
    let deadline = Instant::now() + timeout;
    // The resolver has no deadline of its own; a thread that still waits for it ends with it.
    let (tx, rx) = mpsc::channel();
    thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || drop(tx.send(address.to_socket_addrs().map(Iterator::collect::<Vec<_>>))))
        .map_err(unknown)?;
    let Ok(resolved) = rx.recv_timeout(timeout) else { return Err(unknown("the name is not resolved in time")) };
    let addresses = resolved.map_err(unknown)?;
    let open = addresses.iter().any(|address| {
        let left = deadline.saturating_duration_since(Instant::now());
        !left.is_zero() && TcpStream::connect_timeout(address, left).is_ok()
    });
    Ok(open.into())
}
