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
mod shipped;
mod types;

use super::*;
use crate::model::{CheckResult, Wall};
use std::time::{Duration, Instant};

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

/// Asks until the answers are so. A listener that a test has closed lives on for a moment in a child that another test is just
/// about to start.
fn in_the_end(ask: impl Fn() -> Vec<String>, are_so: impl Fn(&[String]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = ask();
        if are_so(&found) {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?}");
    }
}

/// A child that does not outlive its test, however that ends.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
