//! What the readers of files that people write have in common.
#![doc = include_str!("../README.md")]

mod suggestions;

pub use suggestions::{did_you_mean, nearest, suggest_or_list};
