//! remoor: finds out why a server was away and whether its configuration drifted, and sets it up
//! again.
//!
//! This crate is the application: the code that runs on a node, the manager with its API, and the
//! command line. The libraries are in `crates/`. `docs/ARCHITECTURE.md` says which crate may import
//! which, and a test checks it.

pub mod telemetry; // logs and metrics

pub mod module_packer; // packs modules that are not native, with ansible-core

pub mod fleet; // the meaning of a fleet directory for one node: lint, manifest, plans

pub mod agent; // the code that runs on every node
pub mod daemon; // one process: the agent, and the manager if the node is one
pub mod manager; // the loop around the engine
pub mod solo; // the code that runs without a cluster

pub mod cli; // the command line
