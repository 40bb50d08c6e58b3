//! Resolves host names with this machine's resolver, and adds a timeout, which the resolver does
//! not have.

use super::{ProbeError, unknown_error};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Messages of glibc and musl when a name certainly does not exist. After any other error the
/// result is unknown.
const NO_SUCH_NAME: [&str; 4] =
    ["Name or service not known", "No address associated", "Name does not resolve", "Name has no usable address"];

/// The addresses of `HOST:PORT`; empty if the name does not exist.
pub(super) fn resolve(address: &str, timeout: Duration) -> Result<Vec<SocketAddr>, ProbeError> {
    let address = address.to_owned();
    // After a timeout, the thread ends when the resolver gives up by its own limits.
    let (tx, rx) = mpsc::channel();
    thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || drop(tx.send(address.to_socket_addrs().map(Iterator::collect::<Vec<_>>))))
        .map_err(unknown_error)?;
    let Ok(resolved) = rx.recv_timeout(timeout) else { return Err(unknown_error("the name resolution timed out")) };
    resolved.or_else(|error| if is_certain(&error) { Ok(Vec::new()) } else { Err(unknown_error(error)) })
}

fn is_certain(error: &io::Error) -> bool {
    let text = error.to_string();
    NO_SUCH_NAME.iter().any(|words| text.contains(words))
}
