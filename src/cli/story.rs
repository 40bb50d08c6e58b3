//! Journal events as text. Some texts need earlier events. The text of a verdict contains the
//! length of the absence. The text of a job contains the reasons only if the verdict before the job
//! did not contain them.

use super::duration::age;
use super::moment::Today;
use super::reasons;
use remoor_model::sanitize;
use remoor_model::{
    AbsenceCause, AbsenceKind, AbsenceNo, AttemptId, AttemptOutcome, Finding, HistoryItem, JournalEvent, NodeName,
    PlannedAction, Reason, ServiceName, Wall, count_noun,
};
use std::collections::{BTreeMap, BTreeSet};

/// Number of columns for the details of an event. With the time and the name of the node in front
/// of them, the line fits in 100 columns.
const DETAIL_WIDTH: usize = 76;

/// The text of an event: one line, and details for the lines below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventText {
    pub headline: String,
    pub details: Vec<String>,
}

/// The facts of earlier events that the texts of later events need.
#[derive(Debug, Default)]
pub struct Story {
    names: BTreeMap<u64, String>,
    /// The time at which the node was last seen and the time of its return, by node and number of
    /// the absence.
    absences: BTreeMap<(u64, AbsenceNo), (Wall, Option<Wall>)>,
    /// The number of each attempt within its job.
    attempts: BTreeMap<AttemptId, u32>,
    /// Texts of the reasons of each node's last verdict.
    reasons: BTreeMap<u64, BTreeSet<String>>,
}

impl Story {
    pub fn new(names: BTreeMap<u64, String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Records the name of a node that a stream reports.
    pub fn learn(&mut self, id: u64, name: &str) {
        self.names.insert(id, name.to_owned());
    }

    pub fn name(&self, id: u64) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| format!("node {id}"))
    }

    /// The text of `item`. The caller must pass the items in their order.
    pub fn describe_event(&mut self, item: &HistoryItem) -> EventText {
        let node = item.node.map(|n| n.0).unwrap_or(0);
        match &item.what {
            JournalEvent::Away { absence, last_seen, retrospect, .. } => {
                self.absences.insert((node, *absence), (*last_seen, retrospect.then_some(item.at)));
            }
            JournalEvent::Returned { absence } => {
                if let Some(away) = self.absences.get_mut(&(node, *absence)) {
                    away.1 = Some(item.at);
                }
            }
            JournalEvent::AttemptOpened { attempt, no, .. } => {
                self.attempts.insert(*attempt, *no);
            }
            _ => {}
        }
        let text = EventText { headline: self.headline(item, node), details: self.details(item, node) };
        if let JournalEvent::Concluded { finding } = &item.what {
            self.reasons.insert(node, finding.reasons.iter().map(|reason| reason.text.clone()).collect());
        }
        text
    }

    /// The lines below a journal item. A verdict has its reasons and its evidence. A job has the
    /// reasons that the node's last verdict did not have.
    fn details(&self, item: &HistoryItem, node: u64) -> Vec<String> {
        match &item.what {
            JournalEvent::Concluded { finding } => {
                let mut details = reasons::top_summaries(&finding.reasons);
                details.extend(reasons::pack_lines("evidence: ", &finding.evidence, DETAIL_WIDTH));
                details
            }
            JournalEvent::JobOpened { reasons, .. } => {
                let known = self.reasons.get(&node);
                let new = |reason: &&Reason| !known.is_some_and(|known| known.contains(&reason.text));
                let new: Vec<Reason> = reasons.iter().filter(new).cloned().collect();
                reasons::top_summaries(&new)
            }
            _ => Vec::new(),
        }
    }

    fn headline(&self, item: &HistoryItem, node: u64) -> String {
        match &item.what {
            JournalEvent::Accepted { name } => format!("joined as {name}"),
            JournalEvent::Generation { seq } => format!("generation {seq} applied by {}", item.by),
            JournalEvent::Away { last_seen, gone, seen_by, retrospect: false, .. } => {
                format!(
                    "{}, last seen {}{}",
                    gone_words(*gone),
                    time_before(item.at, *last_seen),
                    missed_by_suffix(seen_by)
                )
            }
            JournalEvent::Away { last_seen, .. } => {
                let before = time_before(item.at, *last_seen);
                format!("was absent unnoticed: boot id, agent instance or isolation count differs from {before}")
            }
            JournalEvent::Gone { gone, .. } => gone_words(*gone).to_owned(),
            JournalEvent::Returned { absence } => match self.away_for(node, *absence) {
                Some(ms) => format!("back after {}; examining", age(ms)),
                None => "back; examining".to_owned(),
            },
            JournalEvent::Concluded { finding } => {
                let away = finding.absence.and_then(|no| self.away_for(node, no));
                verdict_line(finding, away)
            }
            JournalEvent::Wanted { services, operator, undo } => {
                let by = operator.as_deref().map(|o| format!(", ordered by {o}")).unwrap_or_default();
                match undo {
                    Some(attempt) => format!("undo of attempt {attempt} requested{by}"),
                    None => format!("re-setup requested: {}{by}", service_list(services)),
                }
            }
            JournalEvent::WantDropped { why } => format!("request dropped: {why}"),
            JournalEvent::JobOpened { job, undo: Some(attempt), .. } => {
                format!("job {job} opened: undo of attempt {attempt}")
            }
            JournalEvent::JobOpened { job, services, generation, undo: None, .. } => {
                format!("job {job} opened: re-setup of {} with generation {generation}", service_list(services))
            }
            JournalEvent::AttemptOpened { job, no, runner, why, .. } => {
                let why = if *no == 1 { String::new() } else { format!(": {why}") };
                format!("job {job}: attempt {no} by {runner}{why}")
            }
            JournalEvent::Phase { job, phase, .. } => format!("job {job}: phase {phase} begins"),
            JournalEvent::AttemptClosed { job, attempt, outcome } => {
                let no = self.attempts.get(attempt).map(|no| format!(" {no}")).unwrap_or_default();
                format!("job {job}: attempt{no} {}", outcome_words(outcome))
            }
            JournalEvent::JobHeld { job, why } => format!("job {job} held: {why}"),
            JournalEvent::JobCancelled { job, why } => format!("job {job} cancelled: {why}"),
            JournalEvent::JobDone { job } => format!("job {job} done"),
            JournalEvent::Adopted { files: true } => format!("current state adopted as the baseline by {}", item.by),
            JournalEvent::Adopted { files: false } => format!("empty baseline (no files) adopted by {}", item.by),
            JournalEvent::KeyChanged { fingerprint } => {
                format!(
                    "SSH host key changed to {fingerprint}; remoor sends nothing to the node until remoor trust-key"
                )
            }
            JournalEvent::KeyTrusted { keys } => {
                format!("host key trusted by {} ({})", item.by, count_noun(keys.len(), "key"))
            }
            JournalEvent::Moved { from, to } => format!("address changed: {from} -> {to}"),
            JournalEvent::Rendered { changed, fault: None } => {
                format!("addresses changed: the desired configuration of {} changed", count_noun(*changed, "host"))
            }
            JournalEvent::Rendered { fault: Some(why), .. } => {
                format!("addresses changed, and the fleet can't be rendered with the new ones: {why}")
            }
            JournalEvent::Breaker { why } => {
                format!("circuit breaker opened: {why}; no automatic re-setups until remoor resume")
            }
            JournalEvent::Resumed => format!("resumed by {}", item.by),
            JournalEvent::AgentFault { cause, count } => format!("agent fault {count} ({})", cause_word(*cause)),
            JournalEvent::Operator { text } => format!("{text} (by {})", item.by),
        }
    }

    fn away_for(&self, node: u64, absence: AbsenceNo) -> Option<u64> {
        let (last_seen, back) = self.absences.get(&(node, absence))?;
        back.map(|back| back.ms_since(*last_seen))
    }
}

/// A journal item as `TIME  NODE  headline`, followed by its indented details.
pub fn lines(story: &mut Story, item: &HistoryItem, today: Today) -> String {
    let name = item.node.map(|n| story.name(n.0)).unwrap_or_else(|| "-".to_owned());
    let text = story.describe_event(item);
    let mut out = format!("{}  {name}  {}", today.show(item.at), text.headline);
    for detail in &text.details {
        out.push_str(&format!("\n    {}", sanitize::cell(detail)));
    }
    out
}

/// The line for a verdict: `back after 92 s (network): drifted -> resetup(etcd)`.
fn verdict_line(finding: &Finding, away_ms: Option<u64>) -> String {
    let mut out = match (&finding.absence, away_ms) {
        (Some(_), Some(ms)) => format!("back after {}", age(ms)),
        (Some(_), None) => "back".to_owned(),
        (None, _) => "examined".to_owned(),
    };
    if finding.absence.is_some() {
        let cause = finding.cause.map_or("unknown", cause_word);
        let planned = if finding.planned { ", planned" } else { "" };
        out.push_str(&format!(" ({}{planned})", if cause == "unknown" { "unknown cause" } else { cause }));
    }
    out.push_str(&format!(": {} -> {}", finding.verdict, remedy_words(&finding.planned_action)));
    out
}

/// A verdict with its reasons and the planned remedy in one line: `drifted: reasons -> remedy`.
pub fn conclusion(finding: &Finding) -> String {
    let reasons = match finding.reasons.as_slice() {
        [] => String::new(),
        reasons => format!(": {}", reason_list(reasons)),
    };
    format!("{}{reasons} -> {}", finding.verdict, remedy_words(&finding.planned_action))
}

fn remedy_words(remedy: &PlannedAction) -> String {
    match remedy {
        PlannedAction::None => "nothing to do".to_owned(),
        PlannedAction::Report => "reported only".to_owned(),
        other => other.to_string(),
    }
}

/// The time between two moments: `92 s before`. Less than a second is not shown as a number,
/// because the times are not that precise.
fn time_before(at: Wall, earlier: Wall) -> String {
    match at.ms_since(earlier) {
        ..1_000 => "just before".to_owned(),
        ms => format!("{} before", age(ms)),
    }
}

fn missed_by_suffix(names: &[NodeName]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("; missed by {}", names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", "))
}

pub fn gone_words(gone: AbsenceKind) -> &'static str {
    match gone {
        AbsenceKind::Away => "away",
        AbsenceKind::AgentDown => "its agent is down, but its host answers on SSH",
        AbsenceKind::Left => "left: its agent announced its departure",
    }
}

pub fn cause_word(cause: AbsenceCause) -> &'static str {
    match cause {
        AbsenceCause::Network => "network",
        AbsenceCause::Reboot => "reboot",
        AbsenceCause::Agent => "agent",
        AbsenceCause::Left => "left",
        AbsenceCause::Reinstalled => "reinstalled",
        AbsenceCause::Unknown => "unknown",
    }
}

pub fn service_list(services: &[ServiceName]) -> String {
    if services.is_empty() {
        return "the whole group".to_owned();
    }
    services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", ")
}

/// The most important reasons of a verdict in one line.
pub fn reason_list(all: &[Reason]) -> String {
    reasons::top_summaries(all).join("; ")
}

pub fn outcome_words(outcome: &AttemptOutcome) -> String {
    match outcome {
        AttemptOutcome::Done => "done".to_owned(),
        AttemptOutcome::Failed(failure) => {
            let rc = failure.rc.map(|rc| format!(" rc={rc}")).unwrap_or_default();
            format!("failed(step={}{rc}): {}", failure.phase, failure.message)
        }
        AttemptOutcome::Superseded(why) => format!("superseded: {why}"),
        AttemptOutcome::Cancelled(why) => format!("cancelled: {why}"),
    }
}
