//! Tests that load, render and run complete check files.

mod as_goss;
mod dns;
mod examples;
mod extensions;
mod go_regex;
mod goss;
mod load;
mod machine;
mod matcher;
mod matching;
mod measured;
mod network;
mod run;
mod shipped;
mod types;

use super::*;
use remoor_model::{CheckResult, Wall};
use std::time::{Duration, Instant};

fn checks(text: &str) -> Vec<Check> {
    parse("f.yml", &"s".into(), text).unwrap_or_else(|faults| panic!("{}", lines(&faults)))
}

fn lines<T: ToString>(all: &[T]) -> String {
    all.iter().map(|one| one.to_string() + "\n").collect()
}

fn results(text: &str) -> Vec<CheckResult> {
    super::run(&checks(text), &CheckRunOptions::with_defaults(Wall(0)))
}

/// `property state` of each result, and its message if there is one.
fn answers(text: &str) -> Vec<String> {
    let line = |r: CheckResult| format!("{} {:?} {}", r.property, r.state, r.message).trim_end().to_owned();
    results(text).into_iter().map(line).collect()
}

/// Repeats `ask` until the answers satisfy `are_so`. The first answers may be wrong, because a
/// child process that another test is starting may keep a closed listener open for a moment.
fn retry_until(ask: impl Fn() -> Vec<String>, are_so: impl Fn(&[String]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = ask();
        if are_so(&found) {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?}");
    }
}

/// A child process that is killed when the test ends, even after a panic.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
