//! Check files: goss's format, read strictly, rendered for one node, and run.
//!
//! `header`, `applies`, `render` and `parse` are pure and run on the manager and on the node alike; `run` asks the machine.
//! What a failing check leads to is not decided here.

mod deb;
mod gjson;
mod groups;
mod header;
mod judge;
mod leftover;
mod load;
mod matcher;
mod meta;
mod own;
mod patience;
mod patterns;
mod probe;
mod render;
mod run;
mod spawn;
mod spec;
mod suggest;
mod yaml;

pub use header::{DigestOptions, Header, Template, header};
pub use load::{Check, parse};
pub use meta::{Meta, Waiver};
pub use patience::Patience;
pub use render::{Applies, applies, render};
pub use run::{RunOptions, run};
pub use spec::Kind;

#[cfg(test)]
mod tests;
