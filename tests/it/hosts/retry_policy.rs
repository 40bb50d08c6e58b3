//! Decides which failed tests are retried. Real hosts share a machine with other work, so one
//! failure may have nothing to do with the program. The rules must hide nothing. A retry runs
//! alone, once, on new hosts, and is reported; at most [`MAX_RETRIES`] failures are retried. Only
//! tests on real hosts are retried, not simulations or unit tests. This module depends on no story
//! and on no host.

use super::fleets::one_line;
use anyhow::Result;

/// Maximum number of failures that are retried. If there are more failures, the machine is not
/// their cause.
pub const MAX_RETRIES: usize = 5;

/// A test that failed the first time.
#[derive(Debug)]
pub struct Failure<T> {
    pub name: &'static str,
    /// The first line of the reason for the failure.
    pub why: String,
    pub what: T,
}

/// The result of the retries. `flaky` has the lines for the end of the log, `failed` the lines
/// about final failures.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub flaky: Vec<String>,
    pub failed: Vec<String>,
}

/// Whether failed tests are retried at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// `REMOOR_STRICT` is set (`make ten`): no test is retried, so that a failure that happens once
    /// in a hundred runs is found.
    Strict,
    Second,
}

impl RetryPolicy {
    /// The policy that the environment sets.
    pub fn from_env() -> RetryPolicy {
        let set = std::env::var_os("REMOOR_STRICT").is_some_and(|value| !value.is_empty() && value != "0");
        if set { RetryPolicy::Strict } else { RetryPolicy::Second }
    }

    /// Runs each failed test again, one after the other, if the rules allow it.
    pub fn retry<T>(self, failures: Vec<Failure<T>>, mut again: impl FnMut(&T) -> Result<(), String>) -> Ending {
        let mut ending = Ending::default();
        let second = self == RetryPolicy::Second && failures.len() <= MAX_RETRIES;
        for Failure { name, why, what } in failures {
            if !second {
                ending.failed.push(format!("{name}: {why}"));
                continue;
            }
            // The number of the story is enough to find and to select it.
            let number = name.split(' ').next().unwrap_or(name);
            match again(&what) {
                Ok(()) => ending.flaky.push(format!("FLAKY: {number} failed once: {why}")),
                Err(then) => ending.failed.push(format!("{name}: {why}\n    and on retry: {then}")),
            }
        }
        ending
    }
}

/// Runs a test on its own hosts, with the same retry rules as the stories.
pub fn run_with_retry(name: &'static str, test: impl FnMut() -> Result<()>) -> Result<()> {
    run_with_retry_by(RetryPolicy::from_env(), name, test, &mut |line| eprintln!("{line}"))
}

fn run_with_retry_by(
    chances: RetryPolicy,
    name: &'static str,
    mut test: impl FnMut() -> Result<()>,
    say: &mut dyn FnMut(String),
) -> Result<()> {
    let Err(first) = test() else { return Ok(()) };
    say(format!("FAIL  {name}: {first:#}"));
    let failure = Failure { name, why: one_line(&first), what: () };
    let ending = chances.retry(vec![failure], |()| {
        say(format!("hosts: {name} failed, and is retried"));
        test().map_err(|again| {
            say(format!("FAIL  {name}, on retry: {again:#}"));
            one_line(&again)
        })
    });
    ending.flaky.into_iter().for_each(&mut *say);
    if ending.failed.is_empty() { Ok(()) } else { Err(first.context(ending.failed.join("\n"))) }
}

#[cfg(test)]
fn failures(count: usize) -> Vec<Failure<usize>> {
    let one = |at: usize| Failure { name: "A17b in between", why: format!("timeout ({at})"), what: at };
    (0..count).map(one).collect()
}

#[test]
fn a_test_that_passes_on_retry_is_flaky_and_one_that_fails_again_has_failed() {
    let ending =
        RetryPolicy::Second.retry(failures(2), |at| if *at == 0 { Ok(()) } else { Err("no leader".to_owned()) });
    assert_eq!(ending.flaky, ["FLAKY: A17b failed once: timeout (0)"]);
    assert_eq!(ending.failed, ["A17b in between: timeout (1)\n    and on retry: no leader"]);
    assert_eq!(RetryPolicy::Second.retry(failures(0), |_| Ok(())), Ending::default());
}

#[test]
fn many_failures_and_strict_runs_are_not_retried() {
    for (chances, count) in [(RetryPolicy::Second, MAX_RETRIES + 1), (RetryPolicy::Strict, 1)] {
        let ending = chances.retry(failures(count), |_| panic!("retried"));
        assert_eq!((ending.flaky.len(), ending.failed.len()), (0, count));
    }
    let mut runs = 0;
    let ending = RetryPolicy::Second.retry(failures(MAX_RETRIES), |_| {
        runs += 1;
        Ok(())
    });
    assert_eq!((runs, ending.flaky.len(), ending.failed.len()), (MAX_RETRIES, MAX_RETRIES, 0));
}

#[test]
fn a_separate_test_runs_at_most_twice() {
    for (chances, failing, passes, times) in [
        (RetryPolicy::Second, 0, true, 1),
        (RetryPolicy::Second, 1, true, 2),
        (RetryPolicy::Second, 2, false, 2),
        (RetryPolicy::Strict, 1, false, 1),
    ] {
        let (mut runs, mut text) = (0, Vec::new());
        let test = || {
            runs += 1;
            anyhow::ensure!(runs > failing, "the reason\nof the {runs}th");
            Ok(())
        };
        let ended = run_with_retry_by(chances, "A99 of its own", test, &mut |line| text.push(line));
        assert_eq!((ended.is_ok(), runs), (passes, times), "{chances:?}, {failing} failures");
        assert_eq!(text.contains(&"FLAKY: A99 failed once: the reason of the 1th".to_owned()), passes && failing > 0);
        assert_eq!(text.contains(&"FAIL  A99 of its own: the reason\nof the 1th".to_owned()), failing > 0, "{text:?}");
    }
}
