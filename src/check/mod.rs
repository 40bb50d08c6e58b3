//! Check files: goss's format, read strictly, rendered for one node, and run.
//!
//! `header`, `applies`, `render` and `parse` are pure and run on the manager and on the node alike; `run` asks the machine.
//! What a failing check leads to is not decided here.

mod assign;
mod deb;
mod explain;
mod gjson;
mod go_regex;
mod go_value;
mod groups;
mod header;
mod judge;
mod leftover;
mod load;
mod load_matcher;
mod matcher;
mod meta;
mod own;
mod patience;
mod patterns;
mod probe;
mod render;
mod run;
mod semver_range;
mod spawn;
mod spec;
mod suggest;
mod yaml;

pub use explain::Explained;
pub use header::{DigestOptions, Header, Template, header};
pub use load::{Check, parse};
pub use meta::{Meta, Waiver};
pub use patience::Patience;
pub use render::{Applies, applies, render};
pub use run::{RunOptions, run};
pub use spec::Kind;

#[cfg(test)]
mod tests;
