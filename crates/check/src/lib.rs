//! Check files: goss's format, read strictly, rendered for one node, and run.
//!
//! `header`, `applies`, `render` and `parse` are pure and run on managers and nodes alike. `run`
//! examines the machine. This module does not decide what follows from a failing check.

mod absent;
mod amend;
mod assign;
mod deb;
mod explain;
mod gjson;
mod go_regex;
mod go_template;
mod go_value;
mod goss_names;
mod groups;
mod header;
mod include;
mod judge;
mod leftover;
mod load;
mod load_matcher;
mod markup;
mod masked;
mod matcher;
mod meta;
mod observe;
mod outcome;
mod own;
mod patience;
mod patterns;
mod probe;
mod regex_steps;
mod render;
mod run;
mod semver_range;
mod spawn;
mod spec;
mod suggest;
mod vars;
mod xpath;
mod yaml;

pub use amend::{Addition, add};
pub use explain::Explained;
pub use go_template::{Outside, render as render_go};
pub use goss_names::{goss_property, goss_type};
pub use header::{DigestOptions, Header, Template, has_header, header};
pub use include::Include;
pub use load::{Check, Loaded, load, parse};
pub use markup::entity;
pub use meta::{Meta, Waiver};
pub use observe::{ObserveError, observe};
pub use outcome::Outcome;
pub use patience::Patience;
pub use render::{Applies, applies, merged_vars, render};
pub use run::{RunOptions, run, run_in_full};
pub use spawn::end_programs;
pub use spec::Kind;
pub use vars::{go_vars, vars};

#[cfg(test)]
mod tests;
