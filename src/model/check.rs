//! Checks: what is asked of a node, and the answer.

use super::{NodeDigest, ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How much a failing check matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
    #[default]
    Critical,
}

/// What a failing check asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFail {
    None,
    Alert,
    Resetup,
}

/// `Unknown` is neither pass nor fail: the check erred or timed out, and triggers nothing (I9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    Pass,
    Fail,
    Unknown,
    Skip,
    Waived,
}

/// The answer to one assertion of one check (`service:nginx: running`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub service: ServiceName,
    /// `type:id`, as in the file: `service:nginx`, `file:/etc/nginx/nginx.conf`.
    pub check: String,
    /// The attribute asserted: `running`, `sha256`.
    pub property: String,
    pub state: CheckState,
    pub severity: Severity,
    pub on_fail: OnFail,
    /// For people; never the content of a secret.
    pub expected: String,
    pub found: String,
    pub message: String,
    pub took_ms: u64,
}

impl CheckResult {
    /// What is not as asserted, in one line: `service:nginx running: expected true, found false`.
    pub fn told(&self) -> String {
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

/// Short hash of what is amiss on a node: which assertions fail or had no answer, how much each of them matters, and which
/// declared files could not be read. 0: nothing is.
///
/// An agent and an examination that find the same come to the same. Neither values nor messages are in it, since they may
/// differ from one look to the next; nor is a check with `on-fail: none`, which asks for nothing.
pub fn amiss(digest: &NodeDigest, checks: &[CheckResult]) -> u64 {
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
    let Sha256(hash) = Sha256::of(lines.into_iter().collect::<String>().as_bytes());
    hash.first_chunk().map_or(1, |first| u64::from_be_bytes(*first).max(1))
}

#[cfg(test)]
impl CheckResult {
    /// A critical check of `service` that fails, and asks for a re-setup.
    pub fn failing(service: &str, check: &str) -> Self {
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

    fn of(checks: &[CheckResult]) -> u64 {
        amiss(&NodeDigest::default(), checks)
    }

    #[test]
    fn what_is_amiss_is_told_apart_and_how_it_was_found_is_not() {
        let (one, two) = (CheckResult::failing("web", "service:nginx"), CheckResult::failing("web", "service:php"));
        let passing = CheckResult { state: CheckState::Pass, ..one.clone() };
        assert_eq!((of(&[]), of(std::slice::from_ref(&passing))), (0, 0));
        let all = [
            of(std::slice::from_ref(&one)),
            of(std::slice::from_ref(&two)),
            of(&[one.clone(), two.clone()]),
            of(&[CheckResult { state: CheckState::Unknown, ..one.clone() }]),
            of(&[CheckResult { on_fail: OnFail::Alert, severity: Severity::Warning, ..one.clone() }]),
            of(&[CheckResult { property: "enabled".to_owned(), ..one.clone() }]),
        ];
        assert!(!all.contains(&0));
        assert_eq!(BTreeSet::from(all).len(), all.len(), "{all:?}");
        assert_eq!(of(&[two.clone(), passing, one.clone()]), of(&[one.clone(), two]), "in any order");
        let later = CheckResult { found: "dead".to_owned(), message: "exit 1".to_owned(), took_ms: 9, ..one.clone() };
        assert_eq!(of(&[later]), of(std::slice::from_ref(&one)));
        assert_eq!(of(&[CheckResult { on_fail: OnFail::None, ..one }]), 0);
    }

    #[test]
    fn a_file_that_can_not_be_read_is_amiss_whatever_the_reason() {
        let unreadable = |path: &str, why: &str| {
            let mut digest = NodeDigest::default();
            let service = digest.services.entry("web".into()).or_default();
            service.unreadable.insert(path.to_owned(), why.to_owned());
            amiss(&digest, &[])
        };
        let first = unreadable("/etc/a", "input/output error");
        assert_ne!(first, 0);
        assert_eq!(first, unreadable("/etc/a", "too large"));
        assert_ne!(first, unreadable("/etc/b", "input/output error"));
    }
}
