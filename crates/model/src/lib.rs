//! Plain data without clock, IO and tokio, with ordered maps only. Every type here may be part of
//! the replicated state.
#![doc = include_str!("../README.md")]

mod authority;
mod bounds;
mod check;
mod count_noun;
mod digest;
mod entry;
mod error_causes;
mod exam;
mod fault;
mod fileset;
mod flat_form;
mod fleet;
mod gossip_key;
mod guard;
mod history;
mod ids;
mod inventory;
mod invite;
mod job;
mod majority;
mod manifest;
mod node;
mod normalize;
mod operators;
mod pending;
mod removed;
mod report;
mod resetup_request;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
pub mod sanitize;
#[cfg(test)]
mod stored_form_tests;
mod suggestions;
mod time;
mod verdict;
mod windows;
mod zones;

pub use authority::*;
pub use bounds::*;
pub use check::*;
pub use count_noun::*;
pub use digest::*;
pub use entry::*;
pub use error_causes::*;
pub use exam::*;
pub use fault::*;
pub use fileset::*;
pub use fleet::*;
pub use gossip_key::*;
pub use guard::*;
pub use history::*;
pub use ids::*;
pub use inventory::*;
pub use invite::*;
pub use job::*;
pub use majority::*;
pub use manifest::*;
pub use node::*;
pub use normalize::*;
pub use operators::*;
pub use pending::*;
pub use removed::*;
pub use report::*;
pub use resetup_request::*;
pub use suggestions::*;
pub use time::*;
pub use verdict::*;
pub use windows::*;
pub use zones::*;
