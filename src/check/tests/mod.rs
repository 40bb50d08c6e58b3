//! Whole check files: loaded, rendered, run.

mod examples;
mod go_regex;
mod goss;
mod load;
mod machine;
mod matcher;
mod matching;
mod names;
mod network;
mod own;
mod run;

use super::*;
use crate::model::{CheckResult, Wall};

fn checks(text: &str) -> Vec<Check> {
    parse("f.yml", &"s".into(), text).unwrap_or_else(|faults| panic!("{}", lines(&faults)))
}

fn lines<T: ToString>(all: &[T]) -> String {
    all.iter().map(|one| one.to_string() + "\n").collect()
}

fn results(text: &str) -> Vec<CheckResult> {
    super::run(&checks(text), &RunOptions::at(Wall(0)))
}

/// `property state` of each result, and the message where there is one.
fn answers(text: &str) -> Vec<String> {
    let line = |r: CheckResult| format!("{} {:?} {}", r.property, r.state, r.message).trim_end().to_owned();
    results(text).into_iter().map(line).collect()
}
