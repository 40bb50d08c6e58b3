//! remoor: finds out why a server was away, whether its configuration drifted, and sets it up again.
//!
//! The application: what runs on a node, the manager with its API, and the command line. The libraries stand in
//! `crates/`. `docs/ARCHITECTURE.md` draws who may import whom, and a test holds it.

pub mod telemetry; // logs and metrics

pub mod fleet; // what a fleet directory means for one node: lint, manifest, plans

pub mod agent; // driver: what runs on every node
pub mod daemon; // driver: one process, agent and perhaps manager
pub mod manager; // driver: the loop around the engine
pub mod solo; // what runs without a cluster

pub mod cli; // the command line
