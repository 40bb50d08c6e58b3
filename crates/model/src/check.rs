//! Checks of a node and their results.

use super::{NodeDigest, ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The severity of a failing check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
    #[default]
    Critical,
}

/// The reaction of remoor to a failing check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFail {
    None,
    Alert,
    Resetup,
}

/// The result of a check. `Unknown` means that the check could not run or timed out. A result
/// `Unknown` never triggers a re-setup (invariant I9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    Pass,
    Fail,
    Unknown,
    Skip,
    Waived,
}

/// The result of one assertion of one check (`service:nginx: running`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub service: ServiceName,
    /// `type:id` as in the check file: `service:nginx`, `file:/etc/nginx/nginx.conf`.
    pub check: String,
    /// The attribute that the check asserts: `running`, `sha256`.
    pub property: String,
    pub state: CheckState,
    pub severity: Severity,
    pub on_fail: OnFail,
    /// The expected value as text for people. It never contains the content of a secret file.
    pub expected: String,
    pub found: String,
    pub message: String,
    pub took_ms: u64,
}

impl CheckResult {
    /// Describes the failed assertion in one line: `service:nginx running: expected true, found
    /// false`.
    pub fn describe(&self) -> String {
        let mut text = format!("{} {}: ", self.check, self.property);
        if self.found.is_empty() {
            text += if self.message.is_empty() { "no answer" } else { &self.message };
            return text;
        }
        text += &format!("expected {}, found {}", self.expected, self.found);
        if !self.message.is_empty() {
            text += &format!(" ({})", self.message);
        }
        text
    }
}

/// A hash of all problems of a node: failed or inconclusive assertions with their severity and
/// `on-fail`, and declared files that could not be read. 0 means that the node has no problem.
///
/// An agent and an examination that find the same problems compute the same hash. The hash does not
/// include values and messages, because they may differ between two examinations. It does not
/// include checks with `on-fail: none` either.
pub fn failure_hash(digest: &NodeDigest, checks: &[CheckResult]) -> u64 {
    let mut lines = BTreeSet::new();
    for c in checks.iter().filter(|c| c.on_fail != OnFail::None) {
        if matches!(c.state, CheckState::Fail | CheckState::Unknown) {
            let how = format!("{:?} {:?} {:?}", c.state, c.severity, c.on_fail);
            lines.insert(format!("{}\0{}\0{}\0{how}\n", c.service, c.check, c.property));
        }
    }
    for (service, digest) in &digest.services {
        lines.extend(digest.unreadable.keys().map(|path| format!("{service}\0{path}\n")));
        if digest.unreadable_more > 0 {
            lines.insert(format!("{service}\0\0{}\n", digest.unreadable_more));
        }
    }
    if lines.is_empty() {
        return 0;
    }
    let Sha256(hash) = Sha256::digest(lines.into_iter().collect::<String>().as_bytes());
    hash.first_chunk().map_or(1, |first| u64::from_be_bytes(*first).max(1))
}

#[cfg(any(test, feature = "testing"))]
impl CheckResult {
    /// A critical check of `service` that fails and whose `on-fail` is `resetup`.
    pub fn sample_failing(service: &str, check: &str) -> Self {
        Self {
            service: service.into(),
            check: check.to_owned(),
            property: "running".to_owned(),
            state: CheckState::Fail,
            severity: Severity::Critical,
            on_fail: OnFail::Resetup,
            expected: "true".to_owned(),
            found: "false".to_owned(),
            message: String::new(),
            took_ms: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of_checks(checks: &[CheckResult]) -> u64 {
        failure_hash(&NodeDigest::default(), checks)
    }

    #[test]
    fn failure_hash_depends_on_the_failures_but_not_on_their_values() {
        let (one, two) =
            (CheckResult::sample_failing("web", "service:nginx"), CheckResult::sample_failing("web", "service:php"));
        let passing = CheckResult { state: CheckState::Pass, ..one.clone() };
        assert_eq!((hash_of_checks(&[]), hash_of_checks(std::slice::from_ref(&passing))), (0, 0));
        let all = [
            hash_of_checks(std::slice::from_ref(&one)),
            hash_of_checks(std::slice::from_ref(&two)),
            hash_of_checks(&[one.clone(), two.clone()]),
            hash_of_checks(&[CheckResult { state: CheckState::Unknown, ..one.clone() }]),
            hash_of_checks(&[CheckResult { on_fail: OnFail::Alert, severity: Severity::Warning, ..one.clone() }]),
            hash_of_checks(&[CheckResult { property: "enabled".to_owned(), ..one.clone() }]),
        ];
        assert!(!all.contains(&0));
        assert_eq!(BTreeSet::from(all).len(), all.len(), "{all:?}");
        assert_eq!(
            hash_of_checks(&[two.clone(), passing, one.clone()]),
            hash_of_checks(&[one.clone(), two]),
            "in any order"
        );
        let later = CheckResult { found: "dead".to_owned(), message: "exit 1".to_owned(), took_ms: 9, ..one.clone() };
        assert_eq!(hash_of_checks(&[later]), hash_of_checks(std::slice::from_ref(&one)));
        assert_eq!(hash_of_checks(&[CheckResult { on_fail: OnFail::None, ..one }]), 0);
    }

    #[test]
    fn failure_hash_includes_unreadable_files_but_not_the_reason() {
        let unreadable = |path: &str, why: &str| {
            let mut digest = NodeDigest::default();
            let service = digest.services.entry("web".into()).or_default();
            service.unreadable.insert(path.to_owned(), why.to_owned());
            failure_hash(&digest, &[])
        };
        let first = unreadable("/etc/a", "input/output error");
        assert_ne!(first, 0);
        assert_eq!(first, unreadable("/etc/a", "too large"));
        assert_ne!(first, unreadable("/etc/b", "input/output error"));
    }
}
