//! The plumbing below the daemon's API: who a machine is, TLS between machines, server, client, wire types, joining.
//!
//! ```text
//!  client ── connect ── TLS 1.3 (tls, verify) ── server ── Caller + router     over TCP
//!         └──────────── socket, mode 0600 ────── unix   ── Caller + router     on the same machine
//! ```
//! It says who calls; what the caller may do is decided above, from the applied inventory. No business verb lives here.

pub mod agent; // what agents are told
pub mod ca; // the cluster's certificate authority
pub mod caller; // who is calling
pub mod client; // requests, pooled
pub mod connect; // one connection of a client
pub mod door; // unfinished handshakes per peer address
pub mod identity; // keys and credentials of a node or an operator, on disk
pub mod join; // how a machine becomes a node
pub mod limit; // token bucket per peer address
pub mod plain; // serving a router over plain HTTP
pub mod server; // serving a router over TLS
pub mod tls; // rustls configurations, replaceable while in use
pub mod token; // secrets, join tokens
pub mod unix; // serving a router on a socket of this machine
pub mod verify; // what a client demands of a server's certificate
pub mod view; // what `/v1` answers
pub mod wire; // error body, extractors, event streams

mod private_file;

#[cfg(test)]
mod loopback;
