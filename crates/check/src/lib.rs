//! Check files: goss's format, read strictly, rendered for one node, and run.
//!
//! `header`, `applies`, `render` and `parse` are pure and run on managers and nodes alike. `run`
//! reads the state of the machine. This crate does not decide the reaction to a failing check.
#![doc = include_str!("../README.md")]

mod amend;
mod assign;
mod deb;
mod discover;
mod explain;
mod extensions;
mod failure_threshold;
mod gjson;
mod go_regex;
mod go_template;
mod go_value;
mod goss_names;
mod groups;
mod header;
mod hint;
mod include;
mod judge;
mod load;
mod load_matcher;
mod markup;
mod matcher;
mod meta;
mod missing_vars;
mod near_miss;
mod never_holds;
mod observe;
mod orphan_processes;
mod outcome;
mod patterns;
mod probe;
mod redact;
mod regex_steps;
mod render;
mod run;
mod schema;
mod semver_range;
mod spawn;
mod spec;
mod units;
mod vars;
mod yaml;

pub use amend::{Addition, add};
pub use discover::discover;
pub use explain::Explained;
pub use failure_threshold::FailureThreshold;
pub use go_template::{Outside, render as render_go};
pub use goss_names::{goss_property, goss_type};
pub use header::{DigestOptions, Header, Template, has_header, header};
pub use include::GossfileEntry;
pub use load::{Check, ParsedCheckFile, Strictness, load, parse, warnings};
pub use markup::entity;
pub use meta::{Meta, Waiver};
pub use observe::{ObserveError, observe};
pub use outcome::AssertionOutcome;
pub use render::{Applies, applies, merged_vars, render};
pub use run::{CheckRunOptions, run, run_in_full};
pub use schema::schema;
pub use spawn::end_programs;
pub use spec::ResourceKind;
pub use vars::{go_vars, vars};

#[cfg(test)]
mod tests;
