//! Conclusions about a node, and the action that results.

use super::{AbsenceCause, AbsenceNo, BootId, Instance, NodeName, ServiceName, Sha256, Trigger, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The result of a comparison of three states of a node: its desired state, its baseline, and the
/// state that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "why")]
pub enum Verdict {
    Same,
    /// The desired state has changed since the baseline was recorded.
    Outdated,
    /// The state on the node changed. The alias `provisioned-wrong` is a verdict of earlier
    /// versions, which no version ever concluded. A node that differs after provisioning fails its
    /// attempt with [`super::FailureClass::ProvisionedWrong`] instead.
    #[serde(alias = "provisioned-wrong")]
    Drifted,
    /// Both the desired state and the state on the node have changed since the baseline was
    /// recorded.
    Conflict,
    /// The examination was inconclusive. It is not drift: the examination is retried and then an
    /// alert is raised, but it never triggers a re-setup (invariant I9).
    Unknown(String),
}

impl Verdict {
    /// The name of the verdict as it is stored and displayed, without the reason.
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Outdated => "outdated",
            Verdict::Drifted => "drifted",
            Verdict::Conflict => "conflict",
            Verdict::Unknown(_) => "unknown",
        }
    }
    /// Whether the node differs from its baseline.
    pub fn is_drifted(&self) -> bool {
        matches!(self, Verdict::Drifted | Verdict::Conflict)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Unknown(why) => write!(f, "unknown: {why}"),
            other => f.write_str(other.as_str()),
        }
    }
}

/// One deviation from the desired state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub service: ServiceName,
    pub text: String,
    /// Whether the reason triggers a re-setup by itself. Otherwise it is only reported.
    #[serde(rename = "grave")]
    pub actionable: bool,
    pub by: Witness,
    /// The object of the reason: a path, or a check and its property. Empty if the reason concerns
    /// the whole service or node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The time of the earliest examination since which every examination has found the reason.
    /// None if the reason is not part of a finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Wall>,
}

impl Reason {
    /// A reason without an object and without a date.
    pub fn new(by: Witness, service: ServiceName, text: String, actionable: bool) -> Self {
        Self { service, text, actionable, by, about: String::new(), since: None }
    }

    /// Sets the date of each reason to `at`. A reason that the finding `before` contains too keeps
    /// its earlier date.
    pub fn date_reasons(found: Vec<Reason>, before: Option<&Finding>, at: Wall) -> Vec<Reason> {
        let mut stood = BTreeMap::new();
        for (reason, finding) in before.iter().flat_map(|f| f.reasons.iter().map(move |r| (r, f))) {
            let since = reason.since.unwrap_or(finding.at);
            let first = stood.entry((&reason.service, reason.by, &reason.about)).or_insert(since);
            *first = since.min(*first);
        }
        let since = |r: &Reason| stood.get(&(&r.service, r.by, &r.about)).copied().unwrap_or(at);
        found.into_iter().map(|r| Reason { since: Some(since(&r)), ..r }).collect()
    }

    /// Whether the reason is drift: a difference from the baseline. A failed check that only warns
    /// is reported, but is not drift.
    pub fn drifts(&self) -> bool {
        self.by == Witness::Digest || self.by == Witness::Check && self.actionable
    }
}

/// The kind of evidence for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    Digest,
    Check,
    Desired,
}

/// The action that the policy derives from a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do", content = "what")]
pub enum PlannedAction {
    None,
    Report,
    /// The services to set up again, with their dependents. Empty for the whole group.
    Resetup(Vec<ServiceName>),
    Held(String),
    Blocked(String),
}

impl fmt::Display for PlannedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlannedAction::None => f.write_str("none"),
            PlannedAction::Report => f.write_str("report"),
            PlannedAction::Resetup(services) if services.is_empty() => f.write_str("resetup(group)"),
            PlannedAction::Resetup(services) => {
                write!(f, "resetup({})", services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", "))
            }
            PlannedAction::Held(why) => write!(f, "held: {why}"),
            PlannedAction::Blocked(why) => write!(f, "blocked: {why}"),
        }
    }
}

/// A verdict with all its evidence, as stored in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The absence after which the node was examined. None if the node was not away.
    pub absence: Option<AbsenceNo>,
    pub cause: Option<AbsenceCause>,
    /// Whether the absence was announced, or the node left on purpose.
    pub planned: bool,
    pub evidence: Vec<String>,
    pub verdict: Verdict,
    /// The verdict before a re-setup or an adoption made it obsolete, and the time of that event.
    #[serde(default)]
    pub overtaken: Option<(Verdict, Wall)>,
    pub reasons: Vec<Reason>,
    #[serde(rename = "remedy")]
    pub planned_action: PlannedAction,
    #[serde(rename = "occasion")]
    pub trigger: Trigger,
    /// The manager that concluded the finding.
    pub by: NodeName,
    pub at: Wall,
    /// Time from the return of the node, or from the order, to the conclusion, in milliseconds.
    pub took_ms: u64,
    pub digest: Option<Sha256>,
    /// Number of checks that passed, that failed, and that were inconclusive.
    pub checks: (u32, u32, u32),
    /// Hash of failed and inconclusive checks, see [`super::failure_hash`]. None if nothing was
    /// examined, or from an older manager.
    #[serde(default, rename = "amiss")]
    pub failure_hash: Option<u64>,
    #[serde(rename = "marks")]
    pub identity: HostFingerprint,
    /// Damaged files of the node's data directory that the examination found.
    #[serde(default)]
    pub damaged: Vec<String>,
    /// Index of the last applied entry when the examination began.
    #[serde(default)]
    pub basis: u64,
}

impl Finding {
    /// Whether the finding is inconclusive or shows drift of services other than these.
    pub fn affects_others(&self, services: &[ServiceName]) -> bool {
        matches!(self.verdict, Verdict::Unknown(_)) || self.drift_of(|service| !services.contains(service))
    }

    /// Whether the finding shows drift of a service for which `such` is true.
    pub fn drift_of(&self, such: impl Fn(&ServiceName) -> bool) -> bool {
        self.verdict.is_drifted() && self.reasons.iter().any(|r| r.drifts() && such(&r.service))
    }
}

/// Identifies a period in which the node was not absent. If any field changes, the node was absent
/// in between, even if no manager noticed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFingerprint {
    pub boot: BootId,
    pub instance: Instance,
    pub isolation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_reason_is_dated_from_the_first_of_consecutive_examinations_that_found_it() {
        let reason = |service: &str, by, about: &str, text: &str| Reason {
            about: about.to_owned(),
            ..Reason::new(by, service.into(), text.to_owned(), false)
        };
        let path = |text: &str| reason("app", Witness::Digest, "/etc/a", text);
        let since = |reasons: &[Reason]| reasons.iter().map(|r| r.since.map(|at| at.0)).collect::<Vec<_>>();
        let finding = |reasons, at| Finding { reasons, at: Wall(at), ..sample::finding() };
        let first = Reason::date_reasons(vec![path("mode")], None, Wall(1));
        // Another value of the same attribute is not a new difference. The same path in another
        // service or in a check is a new difference.
        let others = [
            path("sha256"),
            reason("db", Witness::Digest, "/etc/a", "mode"),
            reason("app", Witness::Check, "/etc/a", "mode"),
        ];
        let second = Reason::date_reasons(others.to_vec(), Some(&finding(first.clone(), 1)), Wall(2));
        assert_eq!(since(&second), [Some(1), Some(2), Some(2)]);
        let gone = Reason::date_reasons(Vec::new(), Some(&finding(second, 2)), Wall(3));
        let again = Reason::date_reasons(vec![path("mode")], Some(&finding(gone, 3)), Wall(4));
        assert_eq!(since(&again), [Some(4)], "it was right in between");
        // The reasons in a finding of an older manager have no date.
        let older = finding(vec![path("mode")], 7);
        assert_eq!(since(&Reason::date_reasons(vec![path("mode")], Some(&older), Wall(9))), [Some(7)]);
    }

    #[test]
    fn verdicts_are_stored_by_name_and_the_former_verdict_is_still_read() {
        let all = [Verdict::Same, Verdict::Outdated, Verdict::Drifted, Verdict::Conflict, Verdict::Unknown("x".into())];
        for verdict in all {
            let bytes = rmp_serde::to_vec_named(&verdict).expect("stored");
            assert_eq!(rmp_serde::from_slice::<Verdict>(&bytes).expect("read"), verdict);
        }
        #[derive(serde::Serialize)]
        struct Stored {
            is: &'static str,
        }
        let bytes = rmp_serde::to_vec_named(&Stored { is: "provisioned-wrong" }).expect("stored");
        assert_eq!(rmp_serde::from_slice::<Verdict>(&bytes).expect("read"), Verdict::Drifted);
    }
}
