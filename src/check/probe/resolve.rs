//! Names of hosts by this machine's own resolver, with a deadline, which the resolver has not.

use super::{Trouble, unknown};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What the resolver says of such a name where it is certain that there is none; glibc's words and musl's. Any other
/// error leaves it open.
const NO_SUCH_NAME: [&str; 4] =
    ["Name or service not known", "No address associated", "Name does not resolve", "Name has no usable address"];

/// The addresses of `HOST:PORT`; none: there is no such name.
pub(super) fn resolve(address: &str, timeout: Duration) -> Result<Vec<SocketAddr>, Trouble> {
    let address = address.to_owned();
    // A thread that still waits for the resolver ends with it, by the resolver's own bounds.
    let (tx, rx) = mpsc::channel();
    thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || drop(tx.send(address.to_socket_addrs().map(Iterator::collect::<Vec<_>>))))
        .map_err(unknown)?;
    let Ok(resolved) = rx.recv_timeout(timeout) else { return Err(unknown("the name is not resolved in time")) };
    resolved.or_else(|error| if is_certain(&error) { Ok(Vec::new()) } else { Err(unknown(error)) })
}

fn is_certain(error: &io::Error) -> bool {
    let text = error.to_string();
    NO_SUCH_NAME.iter().any(|words| text.contains(words))
}
