//! Runs a suite once, or repeatedly until it passes. The functions block and print nothing.

use super::suite::Suite;
use remoor_check::{self as check, AssertionOutcome};
use remoor_model::{CheckState, Severity, Wall};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The options of a run of check files.
#[derive(Debug, Clone)]
pub struct SuiteRunOptions {
    /// Maximum number of parallel checks.
    pub parallelism: usize,
    /// While the suite does not pass, it is repeated for this time after the first start. None: the
    /// suite runs once.
    pub retry_for: Option<Duration>,
    /// Pause between two runs of the suite.
    pub pause: Duration,
}

/// The result of the suite's last try.
#[derive(Debug)]
pub struct SuiteRun {
    pub outcomes: Vec<AssertionOutcome>,
    pub started: SystemTime,
    pub took: Duration,
    pub tries: u32,
    /// Indexes into `outcomes` of the assertions that are reported one by one, in their order. The
    /// totals count all assertions.
    pub told: Vec<usize>,
}

impl SuiteRun {
    /// Number of assertions with this state.
    pub fn count(&self, state: CheckState) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.result.state == state).count()
    }

    /// The assertions that are reported one by one.
    pub fn reported_outcomes(&self) -> impl Iterator<Item = &AssertionOutcome> + Clone {
        self.told.iter().filter_map(|at| self.outcomes.get(*at))
    }

    /// Whether no assertion failed and none is unknown. Assertions of severity `info` are ignored.
    pub fn is_as_wanted(&self) -> bool {
        !self.outcomes.iter().any(|outcome| {
            matches!(outcome.result.state, CheckState::Fail | CheckState::Unknown)
                && outcome.result.severity != Severity::Info
        })
    }
}

/// Runs the suite. `tell` receives a line for each try that is repeated.
pub fn run(suite: &Suite, options: &SuiteRunOptions, tell: &mut dyn FnMut(&str)) -> SuiteRun {
    let deadline = options.retry_for.map(|time| Instant::now() + time);
    let mut tries = 0;
    loop {
        tries += 1;
        let (started, clock) = (SystemTime::now(), Instant::now());
        let options_now = check::CheckRunOptions {
            parallelism: options.parallelism,
            ..check::CheckRunOptions::with_defaults(wall(started))
        };
        let outcomes = check::run_in_full(&suite.checks, &options_now);
        let told = (0..outcomes.len()).collect();
        let run = SuiteRun { outcomes, started, took: clock.elapsed(), tries, told };
        let again = deadline.is_some_and(|deadline| Instant::now() + options.pause < deadline);
        if run.is_as_wanted() || !again {
            return run;
        }
        let (failed, unknown) = (run.count(CheckState::Fail), run.count(CheckState::Unknown));
        tell(&format!(
            "attempt {tries}: {failed} failed, {unknown} unknown; next attempt in {} ms",
            options.pause.as_millis()
        ));
        thread::sleep(options.pause);
    }
}

fn wall(time: SystemTime) -> Wall {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
