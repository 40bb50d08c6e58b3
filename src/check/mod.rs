//! Check files: goss's format, read strictly, rendered for one node, and run.
//!
//! `header`, `applies`, `render` and `parse` are pure and run on the manager and on the node alike; `run` asks the machine.
//! What a failing check leads to is not decided here.

mod yaml;
mod header;
mod render;
mod suggest;

pub use header::{DigestOptions, Header, Template, header};
pub use render::{Applies, applies, render};
mod gjson;
mod matcher;
mod patterns;
