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
pub mod dial_back; // the address of a machine that joins, dialled before it is let in
pub mod door; // unfinished handshakes per peer address
pub mod identity; // keys and credentials of a node or an operator, on disk
pub mod join; // how a machine becomes a node
pub mod lane; // Raft's messages without HTTP
pub mod lapsed; // a client's certificate that ran out gets through the handshake, and no further
pub mod leave; // a node that goes for good
pub mod limit; // token bucket per peer address
pub mod node; // what the leader asks of a node that is to be a manager
pub mod plain; // serving a router over plain HTTP
pub mod position; // where a manager's log ends
pub mod renew; // when a certificate is renewed, and the words for it
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
