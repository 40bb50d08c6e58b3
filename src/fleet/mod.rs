//! The meaning of a fleet directory for one node: its variables, manifest, plans, and the hash of
//! its desired state.
//!
//! A layer between `config`, `check`, `playbook` and the drivers: `lint` on a laptop, `apply` on a
//! manager and every examination use the same functions. Pure, except `Book`, which reads
//! generations from the blob store.

mod book;
mod context;
mod inverse;
mod listed;
mod manifest;
mod mentions;
mod paths;
mod plans;
mod summary;
mod wanted;

pub use book::{Book, BookError};
pub use context::context;
pub use listed::listed;
pub use manifest::{Expected, manifest};
pub use paths::paths;
pub use plans::{Scope, Work, compile, expected_files, tags_of, work};
pub use remoor_model::Known;
pub use summary::{lint, summary};
pub use wanted::Wanted;

#[cfg(test)]
mod tests;
