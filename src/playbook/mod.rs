//! Playbooks.

mod compile;
mod data;
mod expr;
mod filters;
mod lint;
mod names;
mod plan;
mod scope;
mod split;
mod tera_text;
mod version;
mod yaml;
mod yaml_text;

pub use compile::{CompileOptions, Compiled, HostContext, compile};
pub use plan::*;
