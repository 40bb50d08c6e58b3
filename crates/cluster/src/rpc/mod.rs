//! The basis of the daemon's API: machine identity, TLS between machines, server, client, wire
//! types, joining.
//!
//! ```text
//!  client ── connect ── TLS 1.3 (tls, verify) ── server ── Caller + router     over TCP
//!         └──────────── socket, mode 0600 ────── unix   ── Caller + router     on the same machine
//! ```
//!
//! This folder identifies the caller. The layers above decide from the applied inventory what the
//! caller may do. This folder makes no decision about nodes.

pub mod agent; // requests and answers of agents
pub mod ca; // the cluster's certificate authority
pub mod caller; // identity of a caller
pub mod client; // requests, pooled
pub mod client_verifier; // verification of client certificates; expired ones pass a handshake
pub mod clocks; // comparison with the clocks of other nodes
pub mod connect; // one connection of a client
pub mod dial_back; // dials the address of a joining machine before the machine is accepted
pub mod handshake_limiter; // limit of unfinished handshakes
pub mod identity; // keys and credentials of a node or an operator, on disk
pub mod join; // how a machine becomes a node
pub mod join_proof; // proof of a join token's secret, bound to one connection
pub mod leave; // a node that leaves permanently
pub mod limit; // token bucket per peer address
pub mod node; // requests of the leader to a node that becomes a manager
pub mod plain_http; // serving a router over plain HTTP
pub mod position; // the end of a manager's log
pub mod raft_stream; // Raft messages without HTTP
mod raft_stream_pool;
pub mod renew; // when a certificate is renewed, and the messages for it
pub mod server; // serving a router over TLS
pub mod tls; // rustls configurations, replaceable while in use
pub mod token; // secrets and join tokens
pub mod unix; // serving a router on a local socket
pub mod verify; // verification of server certificates
pub mod view; // answers of `/v1`
pub mod wire; // error body, extractors, event streams

mod body; // receives bodies within their limit
mod connection_places; // places for connections, by identity
mod private_file;

#[cfg(test)]
mod loopback;
