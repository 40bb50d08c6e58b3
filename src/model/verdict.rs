//! What was concluded about a node, and what is to be done about it.

use super::{AbsenceNo, BootId, Cause, Instance, NodeName, Occasion, ServiceName, Sha256, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Three-way comparison of what is desired now, what was last applied and what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "why")]
pub enum Verdict {
    Same,
    /// What is desired changed.
    Outdated,
    /// What is there changed. The alias was a verdict in name that nothing concluded: what was provisioned and is not as
    /// rendered is no verdict but the end of an attempt, [`super::FailureClass::ProvisionedWrong`].
    #[serde(alias = "provisioned-wrong")]
    Drifted,
    /// Both changed.
    Conflict,
    /// Not drift: it is retried, then an alert, never a re-setup (I9).
    Unknown(String),
}

impl Verdict {
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Outdated => "outdated",
            Verdict::Drifted => "drifted",
            Verdict::Conflict => "conflict",
            Verdict::Unknown(_) => "unknown",
        }
    }
    pub fn drifted(&self) -> bool {
        matches!(self, Verdict::Drifted | Verdict::Conflict)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Unknown(why) => write!(f, "unknown: {why}"),
            other => f.write_str(other.word()),
        }
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub service: ServiceName,
    pub text: String,
    /// Asks for a re-setup by itself; otherwise it is reported.
    pub grave: bool,
    pub by: Witness,
    /// What it says something of: a path, or a check and its property. Empty: the service or node as such.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The look that found it first, where each one since then found it too. None: it stands in no finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Wall>,
}

impl Reason {
    pub fn new(by: Witness, service: ServiceName, text: String, grave: bool) -> Self {
        Self { service, text, grave, by, about: String::new(), since: None }
    }

    /// What was found at `at`, after the finding `before`: what stood there already has stood since then.
    pub fn dated(found: Vec<Reason>, before: Option<&Finding>, at: Wall) -> Vec<Reason> {
        let mut stood = BTreeMap::new();
        for (reason, finding) in before.iter().flat_map(|f| f.reasons.iter().map(move |r| (r, f))) {
            let since = reason.since.unwrap_or(finding.at);
            let first = stood.entry((&reason.service, reason.by, &reason.about)).or_insert(since);
            *first = since.min(*first);
        }
        let since = |r: &Reason| stood.get(&(&r.service, r.by, &r.about)).copied().unwrap_or(at);
        found.into_iter().map(|r| Reason { since: Some(since(&r)), ..r }).collect()
    }

    /// What is there is not as recorded; a check that only warns is a reason to say so, not to call the configuration drifted.
    pub fn drifts(&self) -> bool {
        self.by == Witness::Digest || self.by == Witness::Check && self.grave
    }
}

/// What kind of evidence a reason rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    Digest,
    Check,
    Desired,
}

/// What policy makes of a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do", content = "what")]
pub enum Remedy {
    None,
    Report,
    /// The services to set up again, dependents included; empty: the whole group.
    Resetup(Vec<ServiceName>),
    Held(String),
    Blocked(String),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::None => f.write_str("none"),
            Remedy::Report => f.write_str("report"),
            Remedy::Resetup(services) if services.is_empty() => f.write_str("resetup(group)"),
            Remedy::Resetup(services) => {
                write!(f, "resetup({})", services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", "))
            }
            Remedy::Held(why) => write!(f, "held: {why}"),
            Remedy::Blocked(why) => write!(f, "blocked: {why}"),
        }
    }
}

/// A verdict with everything it rests on, as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// None: the node was never away.
    pub absence: Option<AbsenceNo>,
    pub cause: Option<Cause>,
    /// Announced, or left gracefully before.
    pub planned: bool,
    pub evidence: Vec<String>,
    pub verdict: Verdict,
    /// What it was before a re-setup or an adoption overtook it, and when that was.
    #[serde(default)]
    pub overtaken: Option<(Verdict, Wall)>,
    pub reasons: Vec<Reason>,
    pub remedy: Remedy,
    pub occasion: Occasion,
    /// The manager that concluded it.
    pub by: NodeName,
    pub at: Wall,
    /// From the alive event, or from the order, to the conclusion.
    pub took_ms: u64,
    pub digest: Option<Sha256>,
    /// Checks that passed, failed, could not tell.
    pub checks: (u32, u32, u32),
    /// What failed or could not be told, see [`super::amiss`]; None: nothing was examined, or an older manager concluded it.
    #[serde(default)]
    pub amiss: Option<u64>,
    pub marks: Marks,
    /// Damaged files of the node's data directory, as the examination found them.
    #[serde(default)]
    pub damaged: Vec<String>,
    /// Index of the last entry that was applied when the examination began.
    #[serde(default)]
    pub basis: u64,
}

impl Finding {
    /// It says of something beside these services that it is not as recorded, or could not tell.
    pub fn beyond(&self, services: &[ServiceName]) -> bool {
        matches!(self.verdict, Verdict::Unknown(_)) || self.drift_of(|service| !services.contains(service))
    }

    /// It says of such a service that it is not as recorded.
    pub fn drift_of(&self, such: impl Fn(&ServiceName) -> bool) -> bool {
        self.verdict.drifted() && self.reasons.iter().any(|r| r.drifts() && such(&r.service))
    }
}

/// What tells one stay of a node from the next: any difference is an absence, seen or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    pub boot: BootId,
    pub instance: Instance,
    pub isolation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample;

    #[test]
    fn a_reason_stands_since_the_first_of_the_looks_that_found_it_one_after_the_other() {
        let reason = |service: &str, by, about: &str, text: &str| Reason {
            about: about.to_owned(),
            ..Reason::new(by, service.into(), text.to_owned(), false)
        };
        let path = |text: &str| reason("app", Witness::Digest, "/etc/a", text);
        let since = |reasons: &[Reason]| reasons.iter().map(|r| r.since.map(|at| at.0)).collect::<Vec<_>>();
        let finding = |reasons, at| Finding { reasons, at: Wall(at), ..sample::finding() };
        let first = Reason::dated(vec![path("mode")], None, Wall(1));
        // Another value of the same is no other difference; the same path of another service, or in a check, is one.
        let others = [
            path("sha256"),
            reason("db", Witness::Digest, "/etc/a", "mode"),
            reason("app", Witness::Check, "/etc/a", "mode"),
        ];
        let second = Reason::dated(others.to_vec(), Some(&finding(first.clone(), 1)), Wall(2));
        assert_eq!(since(&second), [Some(1), Some(2), Some(2)]);
        let gone = Reason::dated(Vec::new(), Some(&finding(second, 2)), Wall(3));
        let again = Reason::dated(vec![path("mode")], Some(&finding(gone, 3)), Wall(4));
        assert_eq!(since(&again), [Some(4)], "it was right in between");
        // Older managers noted none.
        let older = finding(vec![path("mode")], 7);
        assert_eq!(since(&Reason::dated(vec![path("mode")], Some(&older), Wall(9))), [Some(7)]);
    }

    #[test]
    fn verdicts_are_stored_by_name_and_one_of_an_older_program_is_still_read() {
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
