//! `for` of periodic checks: a check counts as failed only after it has failed for this duration.
//! Examinations ignore `for`, because they cannot wait.

use super::load::Check;
use remoor_model::{CheckResult, CheckState, Now};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The time at which each assertion began to fail, kept between periodic runs.
#[derive(Debug, Clone, Default)]
pub struct FailureThreshold {
    since: BTreeMap<(String, String, String), Now>,
}

impl FailureThreshold {
    /// Turns a failure that is younger than the `for` of its check into a pass with a message.
    /// `results` are the results of `checks` at the time `now`. An unknown result neither starts
    /// nor ends a failure.
    pub fn settle(&mut self, checks: &[Check], results: &mut [CheckResult], now: Now) {
        let patient: BTreeMap<(&str, String), Duration> = checks
            .iter()
            .filter(|check| !check.meta.fail_for.is_zero())
            .map(|check| ((check.service.as_str(), check.label()), check.meta.fail_for))
            .collect();
        let mut seen = BTreeSet::new();
        for result in results {
            let Some(wanted) = patient.get(&(result.service.as_str(), result.check.clone())) else { continue };
            let key = (result.service.to_string(), result.check.clone(), result.property.clone());
            seen.insert(key.clone());
            match result.state {
                CheckState::Fail => {
                    let since = *self.since.entry(key).or_insert(now);
                    let lasted = Duration::from_millis(now.ms_since(since));
                    if lasted < *wanted {
                        result.state = CheckState::Pass;
                        result.message = format!(
                            "has failed for {} s; counts as a failure after {} s",
                            lasted.as_secs(),
                            wanted.as_secs()
                        );
                    }
                }
                CheckState::Unknown => {}
                CheckState::Pass | CheckState::Skip | CheckState::Waived => drop(self.since.remove(&key)),
            }
        }
        self.since.retain(|key, _| seen.contains(key));
    }
}
