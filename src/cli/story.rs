//! Journal items as sentences. Reads several items as one story where they belong together: a verdict says how long the
//! node was away.

use super::duration::age;
use super::moment::Today;
use crate::model::{
    AbsenceNo, AttemptId, Cause, Finding, Gone, Happening, HistoryItem, NodeName, Outcome, Reason, Remedy, ServiceName,
    Verdict, Wall, counted,
};
use std::collections::BTreeMap;

/// What one item's sentence needs of the items before it.
#[derive(Debug, Default)]
pub struct Story {
    names: BTreeMap<u64, String>,
    /// Absences by node and number: last seen, and back.
    absences: BTreeMap<(u64, AbsenceNo), (Wall, Option<Wall>)>,
    /// Number of an attempt within its job.
    attempts: BTreeMap<AttemptId, u32>,
}

impl Story {
    pub fn new(names: BTreeMap<u64, String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// `name` is how the stream calls the node.
    pub fn learn(&mut self, id: u64, name: &str) {
        self.names.insert(id, name.to_owned());
    }

    pub fn name(&self, id: u64) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| format!("node {id}"))
    }

    /// The sentence of `item`; items must come in their order.
    pub fn tell(&mut self, item: &HistoryItem) -> String {
        let node = item.node.map(|n| n.0).unwrap_or(0);
        match &item.what {
            Happening::Away { absence, last_seen, retrospect, .. } => {
                self.absences.insert((node, *absence), (*last_seen, retrospect.then_some(item.at)));
            }
            Happening::Returned { absence } => {
                if let Some(away) = self.absences.get_mut(&(node, *absence)) {
                    away.1 = Some(item.at);
                }
            }
            Happening::AttemptOpened { attempt, no, .. } => {
                self.attempts.insert(*attempt, *no);
            }
            _ => {}
        }
        self.sentence(item, node)
    }

    fn sentence(&self, item: &HistoryItem, node: u64) -> String {
        match &item.what {
            Happening::Accepted { name } => format!("joined as {name}"),
            Happening::Generation { seq } => format!("generation {seq} applied by {}", item.by),
            Happening::Away { last_seen, gone, seen_by, retrospect: false, .. } => {
                format!("{}, last seen {}{}", gone_words(*gone), before(item.at, *last_seen), missed_by(seen_by))
            }
            Happening::Away { last_seen, .. } => {
                let before = before(item.at, *last_seen);
                format!("was away while nobody looked: its traces differ from {before}")
            }
            Happening::Gone { gone, .. } => gone_words(*gone).to_owned(),
            Happening::Returned { absence } => match self.away_for(node, *absence) {
                Some(ms) => format!("back after {}; examining", age(ms)),
                None => "back; examining".to_owned(),
            },
            Happening::Concluded { finding } => {
                let away = finding.absence.and_then(|no| self.away_for(node, no));
                verdict(finding, away)
            }
            Happening::Wanted { services, operator, undo } => {
                let by = operator.as_deref().map(|o| format!(", ordered by {o}")).unwrap_or_default();
                match undo {
                    Some(attempt) => format!("undo of attempt {attempt} wanted{by}"),
                    None => format!("re-setup wanted: {}{by}", service_list(services)),
                }
            }
            Happening::WantDropped { why } => format!("no longer wanted: {why}"),
            Happening::JobOpened { job, undo: Some(attempt), .. } => {
                format!("job {job} opened: undo of attempt {attempt}")
            }
            Happening::JobOpened { job, services, reasons, generation, undo: None } => {
                let because =
                    if reasons.is_empty() { String::new() } else { format!(", because {}", reason_list(reasons)) };
                format!(
                    "job {job} opened: re-setup of {} with generation {generation}{because}",
                    service_list(services)
                )
            }
            Happening::AttemptOpened { job, no, runner, why, .. } => {
                let why = if *no == 1 { String::new() } else { format!(": {why}") };
                format!("job {job}: attempt {no} by {runner}{why}")
            }
            Happening::Phase { job, phase, .. } => format!("job {job}: {phase} begins"),
            Happening::AttemptClosed { job, attempt, outcome } => {
                let no = self.attempts.get(attempt).map(|no| format!(" {no}")).unwrap_or_default();
                format!("job {job}: attempt{no} {}", outcome_words(outcome))
            }
            Happening::JobHeld { job, why } => format!("job {job} held: {why}"),
            Happening::JobCancelled { job, why } => format!("job {job} cancelled: {why}"),
            Happening::JobDone { job } => format!("job {job} done"),
            Happening::Adopted { files: true } => format!("what is there was adopted by {}", item.by),
            Happening::Adopted { files: false } => format!("baseline adopted by {}, no files in it", item.by),
            Happening::KeyChanged { fingerprint } => {
                format!("offers another SSH host key, {fingerprint}: nothing is sent to it until trust-key")
            }
            Happening::KeyTrusted { keys } => {
                format!("host key trusted by {} ({})", item.by, counted(keys.len(), "key"))
            }
            Happening::Moved { from, to } => format!("its address is {to} now, was {from}"),
            Happening::Rendered { changed, fault: None } => {
                format!("addresses changed: something else is desired on {} now", counted(*changed, "host"))
            }
            Happening::Rendered { fault: Some(why), .. } => {
                format!("addresses changed, and the fleet can't be rendered with them: {why}")
            }
            Happening::Breaker { why } => format!("breaker opened: {why}; no automatic re-setup until remoor resume"),
            Happening::Resumed => format!("resumed by {}", item.by),
            Happening::AgentFault { cause, count } => format!("agent fault {count} ({})", cause_word(*cause)),
            Happening::Operator { text } => format!("{text} (by {})", item.by),
        }
    }

    fn away_for(&self, node: u64, absence: AbsenceNo) -> Option<u64> {
        let (last_seen, back) = self.absences.get(&(node, absence))?;
        back.map(|back| back.since(*last_seen))
    }
}

/// `TIME  NODE  sentence`.
pub fn line(story: &mut Story, item: &HistoryItem, today: Today) -> String {
    let name = item.node.map(|n| story.name(n.0)).unwrap_or_else(|| "-".to_owned());
    let sentence = story.tell(item);
    format!("{}  {name}  {sentence}", today.show(item.at))
}

/// `back after 92 s: network (evidence) — drifted: reasons -> remedy`.
fn verdict(finding: &Finding, away_ms: Option<u64>) -> String {
    let mut out = match (&finding.absence, away_ms) {
        (Some(_), Some(ms)) => format!("back after {}: ", age(ms)),
        (Some(_), None) => "back: ".to_owned(),
        (None, _) => "examined".to_owned(),
    };
    if finding.absence.is_some() {
        out.push_str(finding.cause.map_or("unknown", cause_word));
        if finding.planned {
            out.push_str(", planned");
        }
    }
    if !finding.evidence.is_empty() {
        out.push_str(&format!(" ({})", finding.evidence.join("; ")));
    }
    out.push_str(&format!(" \u{2014} {}", conclusion(finding)));
    out
}

/// `drifted: reasons -> remedy`.
pub fn conclusion(finding: &Finding) -> String {
    let mut out = match &finding.verdict {
        Verdict::Unknown(why) => format!("unknown: {why}"),
        other => other.word().to_owned(),
    };
    if !finding.reasons.is_empty() {
        out.push_str(&format!(": {}", reason_list(&finding.reasons)));
    }
    match &finding.remedy {
        Remedy::None => out.push_str(" -> nothing to do"),
        Remedy::Report => out.push_str(" -> reported only"),
        other => out.push_str(&format!(" -> {other}")),
    }
    out
}

/// `92 s before`; what is less than a second is no span that anybody measured.
fn before(at: Wall, earlier: Wall) -> String {
    match at.since(earlier) {
        ..1_000 => "just before".to_owned(),
        ms => format!("{} before", age(ms)),
    }
}

fn missed_by(names: &[NodeName]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("; missed by {}", names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", "))
}

pub fn gone_words(gone: Gone) -> &'static str {
    match gone {
        Gone::Away => "away",
        Gone::AgentDown => "its agent is down, its host answers on SSH",
        Gone::Left => "left, its agent said goodbye",
    }
}

pub fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Network => "network",
        Cause::Reboot => "reboot",
        Cause::Agent => "agent",
        Cause::Left => "left",
        Cause::Reinstalled => "reinstalled",
        Cause::Unknown => "unknown",
    }
}

pub fn service_list(services: &[ServiceName]) -> String {
    if services.is_empty() {
        return "the whole group".to_owned();
    }
    services.iter().map(ServiceName::as_str).collect::<Vec<_>>().join(", ")
}

/// At most so many reasons stand in one sentence.
const REASONS_MAX: usize = 3;

pub fn reason_list(reasons: &[Reason]) -> String {
    let mut texts: Vec<String> = reasons.iter().take(REASONS_MAX).map(reason).collect();
    if reasons.len() > REASONS_MAX {
        texts.push(format!("and {} more", reasons.len() - REASONS_MAX));
    }
    texts.join("; ")
}

/// The text of a reason, with its service where it does not say so itself.
pub fn reason(reason: &Reason) -> String {
    let service = reason.service.as_str();
    if service.is_empty() || reason.text.starts_with(service) {
        reason.text.clone()
    } else {
        format!("{service}: {}", reason.text)
    }
}

pub fn outcome_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Failed(failure) => {
            let rc = failure.rc.map(|rc| format!(" rc={rc}")).unwrap_or_default();
            format!("failed(step={}{rc}): {}", failure.phase, failure.message)
        }
        Outcome::Superseded(why) => format!("superseded: {why}"),
        Outcome::Cancelled(why) => format!("cancelled: {why}"),
    }
}
