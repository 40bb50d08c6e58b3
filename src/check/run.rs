//! Runs checks: in parallel, each guarded, with one answer per assertion.

use super::load::{Assertion, Check};
use super::matcher::{Matcher, short};
use super::probe::{self, Answers, Ask, Trouble, World};
use crate::model::{CheckResult, CheckState, Wall};
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Stands where the content of a secret would.
const SECRET: &str = "(secret)";

#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Longest wait of a check that names no timeout; where goss's default is shorter, that holds.
    pub timeout: Duration,
    /// Checks at once, at least 1.
    pub parallelism: usize,
    /// For waivers.
    pub now: Wall,
}

impl RunOptions {
    /// Ten seconds, eight at once.
    pub fn at(now: Wall) -> Self {
        Self { timeout: Duration::from_secs(10), parallelism: 8, now }
    }
}

/// Runs all `checks` and gives one result per assertion, in their order. Blocks until the last has answered or timed out.
///
/// What errs, panics or times out is `Unknown`. Tries a check again as its `retry` says. `for` is not counted here: see `Patience`.
pub fn run(checks: &[Check], options: &RunOptions) -> Vec<CheckResult> {
    let world = World::new(checks, options.timeout);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((number, check)) =
            { Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, checks.get(n)?))) }
        {
            done.push((number, with_retries(check, &world, options)));
        }
        done
    };
    let mut all: Vec<(usize, Vec<CheckResult>)> = thread::scope(|scope| {
        let threads = options.parallelism.clamp(1, checks.len().max(1));
        let started: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        // A worker can't panic: what it runs is guarded.
        all.extend(started.into_iter().flat_map(|thread| thread.join().unwrap_or_default()));
        all
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().flat_map(|(_, results)| results).collect()
}

fn with_retries(check: &Check, world: &World, options: &RunOptions) -> Vec<CheckResult> {
    let mut results = once(check, world, options);
    for _ in 0..check.meta.retries {
        if results.iter().all(|result| matches!(result.state, CheckState::Pass | CheckState::Skip)) {
            break;
        }
        thread::sleep(check.meta.retry_delay);
        results = once(check, &World::new([check], options.timeout), options);
    }
    results
}

fn once(check: &Check, world: &World, options: &RunOptions) -> Vec<CheckResult> {
    let started = Instant::now();
    let limit = options.timeout;
    let answers = if check.skip { Ok(Answers::new()) } else { guarded(|| probe::ask(&Ask { check, world, limit })) };
    let mut results = match answers {
        Ok(answers) => judge(check, &answers),
        Err(panic) => {
            judge(check, &check.assertions.iter().map(|a| (a.property, Err(Trouble::Unknown(panic.clone())))).collect())
        }
    };
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    for result in &mut results {
        result.took_ms = took_ms;
        waive(check, result, options.now);
    }
    results
}

/// A panic becomes an error with its message.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic: Box<dyn Any + Send>| {
        let text =
            panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
        format!("the check panicked: {}", text.unwrap_or_default())
    })
}

fn judge(check: &Check, answers: &Answers) -> Vec<CheckResult> {
    let mut shut = check.skip;
    let mut results = Vec::new();
    for (number, assertion) in check.assertions.iter().enumerate() {
        if shut {
            results.push(result(check, assertion, CheckState::Skip, None, String::new()));
            continue;
        }
        let answer = answers.get(assertion.property).cloned();
        let answer = answer.unwrap_or_else(|| Err(Trouble::Unknown("there is no answer".to_owned())));
        let found_false = answer == Ok(Value::Bool(false));
        let result = match answer {
            Ok(value) => compare(check, assertion, &value),
            Err(Trouble::Failed(why)) => result(check, assertion, CheckState::Fail, None, why),
            Err(Trouble::Unknown(why)) => result(check, assertion, CheckState::Unknown, None, why),
        };
        let first_is_off = number == 0 && (result.state != CheckState::Pass || found_false);
        shut = check.kind.spec().gated && first_is_off;
        results.push(result);
    }
    explain_status(check, answers, &mut results);
    results
}

fn compare(check: &Check, assertion: &Assertion, value: &Value) -> CheckResult {
    match assertion.matcher.matches(value) {
        Ok(true) => result(check, assertion, CheckState::Pass, Some(value), String::new()),
        Ok(false) => {
            let message = match (&assertion.matcher, value) {
                _ if check.meta.secret => String::new(),
                (Matcher::Lines(patterns), Value::String(text)) => {
                    format!("not met: {}", patterns.unmet(text).join(", "))
                }
                _ => String::new(),
            };
            result(check, assertion, CheckState::Fail, Some(value), message)
        }
        Err(_) if check.meta.secret => result(check, assertion, CheckState::Fail, Some(value), String::new()),
        Err(why) => result(check, assertion, CheckState::Fail, Some(value), why),
    }
}

/// A command that ended otherwise than wanted has often said why.
fn explain_status(check: &Check, answers: &Answers, results: &mut [CheckResult]) {
    let said = match answers.get("stderr") {
        Some(Ok(Value::String(text))) => text.lines().find(|line| !line.trim().is_empty()),
        _ => None,
    };
    if let (Some(line), false) = (said, check.meta.secret) {
        let failing = results.iter_mut().filter(|r| r.property == "exit-status" && r.state == CheckState::Fail);
        failing.for_each(|result| result.message = short(&Value::from(line)));
    }
}

fn result(
    check: &Check,
    assertion: &Assertion,
    state: CheckState,
    found: Option<&Value>,
    message: String,
) -> CheckResult {
    // A private file's content does not belong into a report, whether or not somebody thought of saying so.
    let found = match found {
        None => String::new(),
        Some(Value::String(text)) if assertion.stream && (check.kind == super::Kind::File || check.meta.secret) => {
            format!("{} lines", text.lines().count())
        }
        Some(_) if hidden(check, assertion) => SECRET.to_owned(),
        Some(value) => short(value),
    };
    let expected = if hidden(check, assertion) { SECRET.to_owned() } else { assertion.matcher.to_string() };
    CheckResult {
        service: check.service.clone(),
        check: check.label(),
        property: assertion.property.to_owned(),
        state,
        severity: check.meta.severity,
        on_fail: check.meta.on_fail,
        expected,
        found,
        message,
        took_ms: 0,
    }
}

/// Whether values of this property would tell something of a secret.
fn hidden(check: &Check, assertion: &Assertion) -> bool {
    check.meta.secret && (assertion.stream || matches!(assertion.property, "sha256" | "sha512" | "size"))
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
    fn a_panic_is_told_and_goes_no_further() {
        assert_eq!(guarded(|| 1), Ok(1));
        let told = guarded(|| -> () { panic!("at {}", 7) });
        assert_eq!(told, Err("the check panicked: at 7".to_owned()));
    }
}
