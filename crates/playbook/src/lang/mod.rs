//! The language as text: its words, YAML, words of a command line, patterns of hosts, and Python's
//! formats and regular expressions. Expressions and templates belong in `template`, and the
//! translation of a playbook to a plan in `compile`.

pub(crate) mod file_regex;
pub(crate) mod hosts;
pub mod language;
mod merge_keys;
pub(crate) mod pyregex;
pub(crate) mod python;
pub(crate) mod pyyaml;
pub(crate) mod version;
pub(crate) mod word_split;
pub(crate) mod yaml;
mod yaml_scalar;
