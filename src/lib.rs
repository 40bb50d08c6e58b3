//! remoor: finds out why a server was away and whether its configuration drifted, and sets it up
//! again.
//!
//! The modules in reading order. The allowed imports are drawn in `docs/ARCHITECTURE.md` and
//! enforced by a test.

#![deny(unsafe_code)] // except files/trim_memory.rs, which explains why

pub mod engine; // every decision; no clock, no IO
pub mod model; // plain data, and `Inventory::apply`, the replicated state machine

pub mod check; // check files: parse (pure) and run
pub mod config; // remoor.yml and Ansible inventories
pub mod disk; // atomic files, identity of the data directory
pub mod exec; // the executor on the node: one session, a series of orders
pub mod files; // digests of declared files
pub mod gossip; // membership by memberlist
pub mod playbook; // compile (pure) and run
pub mod raft; // the log by openraft
pub mod rpc; // identity, TLS, wire types, client and server plumbing
pub mod ssh; // the manager's end of an executor session
pub mod systemd; // systemd over D-Bus
pub mod telemetry; // logs and metrics
pub mod web; // redirections and trust, of checks and playbooks alike

pub mod fleet; // what a fleet directory means for one node: lint, manifest, plans

pub mod agent; // driver: what runs on every node
pub mod daemon; // driver: one process, agent and perhaps manager
pub mod manager; // driver: the loop around the engine
pub mod solo; // what runs without a cluster

pub mod cli; // the command line
