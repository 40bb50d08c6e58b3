//! Runs checks in parallel, protected against panics, with one result per assertion.

use super::groups;
use super::judge::{Detail, JudgedAssertion, judge};
use super::load::Check;
use super::outcome::AssertionOutcome;
use super::probe::{self, ProbeAnswers, ProbeContext, ProbeError, World};
use super::spec::ResourceKind;
use remoor_model::{CheckResult, CheckState, Wall};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

#[derive(Debug, Clone)]
pub struct CheckRunOptions {
    /// Timeout of checks without a timeout of their own. A shorter default of goss takes
    /// precedence.
    pub timeout: Duration,
    /// Maximum number of checks at the same time, at least 1.
    pub parallelism: usize,
    /// The current time, for waivers and certificates.
    pub now: Wall,
}

impl CheckRunOptions {
    /// Defaults: a timeout of ten seconds and eight checks at the same time.
    pub fn with_defaults(now: Wall) -> Self {
        Self { timeout: Duration::from_secs(10), parallelism: 8, now }
    }
}

/// Runs all `checks` and returns one result per assertion, in the order of `checks`. Blocks until
/// the last check has answered or timed out.
///
/// A check that fails to answer, panics or times out is `Unknown`. A check is retried as its
/// `retry` requires. `for` is not applied here; see `FailureThreshold`.
pub fn run(checks: &[Check], options: &CheckRunOptions) -> Vec<CheckResult> {
    let all = answers(checks, options, Detail::Results);
    all.into_iter().flat_map(|answer| answer.judged).map(|judged| judged.result).collect()
}

/// Like [`run`], with all details of each assertion.
pub fn run_in_full(checks: &[Check], options: &CheckRunOptions) -> Vec<AssertionOutcome> {
    let mut outcomes = Vec::new();
    for (check, answer) in checks.iter().zip(answers(checks, options, Detail::Full)) {
        let mut took = answer.took;
        for judged in answer.judged {
            let outcome = AssertionOutcome::new(check, judged);
            outcomes.push(AssertionOutcome { started: answer.started, took: std::mem::take(&mut took), ..outcome });
        }
    }
    outcomes
}

/// The results of one check at its last attempt.
struct CheckRun {
    judged: Vec<JudgedAssertion>,
    started: SystemTime,
    took: Duration,
}

/// Runs `checks` and returns one answer per check, in the order of `checks`.
fn answers(checks: &[Check], options: &CheckRunOptions, detail: Detail) -> Vec<CheckRun> {
    let world = World::new(checks, options.timeout);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((number, check)) =
            { Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, checks.get(n)?))) }
        {
            done.push((number, with_retries(check, &world, options, detail)));
        }
        done
    };
    let mut all: Vec<(usize, CheckRun)> = thread::scope(|scope| {
        let started: Vec<_> = (1..threads(checks, options.parallelism)).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        // These threads cannot panic, because panics of checks are caught.
        all.extend(started.into_iter().flat_map(|thread| thread.join().unwrap_or_default()));
        all
    });
    all.sort_by_key(|(number, _)| *number);
    let mut all: Vec<CheckRun> = all.into_iter().map(|(_, answer)| answer).collect();
    let judged: Vec<&mut Vec<JudgedAssertion>> = all.iter_mut().map(|answer| &mut answer.judged).collect();
    groups::settle(checks, judged, detail, |check, result| waive(check, result, options.now));
    all
}

/// Number of threads to use. Checks that wait for other programs or machines need one thread each.
/// Checks of local state use at most one thread per processor, but two on a machine with one
/// processor, because reading a file may wait for the disk. Each thread costs memory and start-up
/// time.
fn threads(checks: &[Check], parallelism: usize) -> usize {
    let waiting = checks.iter().filter(|check| waits_for_others(check)).count();
    // All services are queried with one call, and so are all packages. One thread waits for the
    // answer while another runs the other checks.
    let shared =
        usize::from(checks.iter().any(|check| matches!(check.kind, ResourceKind::Service | ResourceKind::Package)));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let own = (checks.len() - waiting).min(processors.max(2)) + shared;
    own.max(waiting).clamp(1, parallelism.max(1))
}

/// Whether a check waits for a program, for another machine, or for a retry delay.
fn waits_for_others(check: &Check) -> bool {
    let for_others = match check.kind {
        ResourceKind::Addr
        | ResourceKind::Cert
        | ResourceKind::Command
        | ResourceKind::Dns
        | ResourceKind::Filesystem
        | ResourceKind::Http
        | ResourceKind::Journal
        | ResourceKind::Mount => true,
        ResourceKind::File
        | ResourceKind::Group
        | ResourceKind::Interface
        | ResourceKind::KernelParam
        | ResourceKind::Matching
        | ResourceKind::Port
        // `threads` counts one more thread for the queries of packages and services.
        | ResourceKind::Package
        | ResourceKind::Process
        | ResourceKind::Service
        | ResourceKind::User
        | ResourceKind::AnyOf
        | ResourceKind::AllOf => false,
    };
    for_others || check.meta.retries > 0
}

fn with_retries(check: &Check, world: &World, options: &CheckRunOptions, detail: Detail) -> CheckRun {
    let mut answer = run_once(check, world, options, detail);
    for _ in 0..check.meta.retries {
        if answer.judged.iter().all(|one| matches!(one.result.state, CheckState::Pass | CheckState::Skip)) {
            break;
        }
        thread::sleep(check.meta.retry_delay);
        answer = run_once(check, &World::new([check], options.timeout), options, detail);
    }
    answer
}

fn run_once(check: &Check, world: &World, options: &CheckRunOptions, detail: Detail) -> CheckRun {
    let (wall, started) = (SystemTime::now(), Instant::now());
    let (limit, now) = (options.timeout, options.now);
    let asked = catch_panic(|| {
        let answers =
            if check.skip { ProbeAnswers::default() } else { probe::ask(&ProbeContext { check, world, limit, now }) };
        judge(check, &answers, detail)
    });
    let mut judged = asked.unwrap_or_else(|panic| {
        let none = || Err(ProbeError::Unknown(panic.clone()));
        judge(check, &check.assertions.iter().map(|a| (a.property, none())).collect(), detail)
    });
    let took = started.elapsed();
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    for one in &mut judged {
        one.result.took_ms = took_ms;
        waive(check, &mut one.result, options.now);
    }
    CheckRun { judged, started: wall, took }
}

/// Turns a panic into an error with its message.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic: Box<dyn Any + Send>| {
        let text =
            panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
        format!("the check panicked: {}", text.unwrap_or_default())
    })
}

fn waive(check: &Check, result: &mut CheckResult, now: Wall) {
    if let Some(waiver) = check.meta.waiver.as_ref().filter(|waiver| now < waiver.until)
        && result.state == CheckState::Fail
    {
        result.state = CheckState::Waived;
        result.message = format!("waived: {}", waiver.reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waiting_checks_get_a_thread_each() {
        let of = |text: &str, parallelism| threads(&super::super::parse("f", &"s".into(), text).unwrap(), parallelism);
        let many = |line: &str| (0..40).map(|n| line.replace('N', &n.to_string())).collect::<String>();
        let waiting = format!("command:\n{}", many("  cN: {exec: x, exit-status: 0}\n"));
        let own = format!("file:\n{}", many("  /N: {exists: true}\n"));
        let processors = thread::available_parallelism().unwrap().get().max(2);
        assert_eq!([1, 8, 100].map(|most| of(&waiting, most)), [1, 8, 40]);
        assert_eq!([1, 100].map(|most| of(&own, most)), [1, processors.min(40)]);
        assert_eq!(of(&format!("{own}service: {{s: {{running: true}}}}"), 100), processors.min(41) + 1);
        assert_eq!(of("file: {/x: {exists: true}}", 0), 1);
    }

    #[test]
    fn a_panic_is_caught_and_reported() {
        assert_eq!(catch_panic(|| 1), Ok(1));
        let told = catch_panic(|| -> () { panic!("at {}", 7) });
        assert_eq!(told, Err("the check panicked: at 7".to_owned()));
    }
}
