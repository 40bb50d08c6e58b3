//! How the nodes of a cluster communicate: membership by gossip, the replicated log, and RPC over
//! mutual TLS.
#![doc = include_str!("../README.md")]

pub mod gossip; // membership by memberlist
pub mod incarnation; // decides which process may act as which node; pure
pub mod raft; // the log by openraft
pub mod rpc; // identity, TLS, wire types, client and server

mod keyed_limiter; // rate limits for addresses and names, bounded in memory
