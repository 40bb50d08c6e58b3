//! `remoor why NODE`: prints all facts about one node and the next step.

use super::{nodes, replay};
use crate::cli::api::{self, Api};
use crate::cli::args::WhyArgs;
use crate::cli::exit::Exit;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::reasons::{self, ReasonLine};
use crate::cli::story::{self, Story};
use crate::cli::table;
use remoor_cluster::rpc::view::{ReplayView, WhyView};
use remoor_model::sanitize;
use remoor_model::{
    Absence, AttemptOutcome, Finding, HistoryItem, Job, JournalEvent, NodeName, Reason, ResetupRequest,
};
use std::collections::BTreeMap;

/// Number of journal events that `remoor why` shows.
const ITEMS: usize = 20;

pub async fn run(api: &Api, out: &Out, args: &WhyArgs) -> anyhow::Result<Exit> {
    if args.replay {
        let view: ReplayView = api.get(&format!("/v1/nodes/{}/replay", api::segment(&args.node))).await?;
        return replay::show(out, &view);
    }
    let view: WhyView = api.get(&format!("/v1/nodes/{}/why", api::segment(&args.node))).await?;
    show(out, &view)
}

pub fn show(out: &Out, view: &WhyView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        out.lines(&why_text(view))?;
    }
    Ok(out.source(&view.as_of))
}

fn why_text(view: &WhyView) -> String {
    let today = Today::from_answer(&view.as_of.at);
    let facts = nodes::facts(&view.node, &view.as_of);
    let mut out = table::fields(&facts.into_iter().filter(|(name, _)| *name != "last verdict").collect::<Vec<_>>());
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            out.push_str(&format!("\n{title}\n"));
            for line in lines {
                out.push_str(&format!("  {line}\n"));
            }
        }
    };
    section("Absence", view.absence.as_ref().map(|a| absence(a, today)).unwrap_or_default());
    section("Last verdict", view.node.config.finding.as_ref().map(|f| finding(f, today)).unwrap_or_default());
    section(
        "Requested",
        view.want.as_ref().map(|w| want(w, view.node.config.finding.as_ref(), today)).unwrap_or_default(),
    );
    section("Job", view.job.as_ref().map(|j| job(j, today)).unwrap_or_default());
    section("Not done, and why", view.not_done.clone());
    let mut story = Story::new(BTreeMap::from([(view.node.id, view.node.name.clone())]));
    let events: Vec<Vec<String>> = view.history.iter().map(|item| event(&mut story, item, view, today)).collect();
    section("What happened", events[events.len().saturating_sub(ITEMS)..].concat());
    section("Next", view.next.clone());
    out
}

/// An event and its details. The details of the last verdict are omitted, because that verdict has
/// its own section.
fn event(story: &mut Story, item: &HistoryItem, view: &WhyView, today: Today) -> Vec<String> {
    let text = story.describe_event(item);
    let mut lines = vec![format!("{}  {}", today.show(item.at), text.headline)];
    let last = view.node.config.finding.as_ref();
    let shown =
        matches!(&item.what, JournalEvent::Concluded { finding } if last.is_some_and(|last| last.at == finding.at));
    if !shown {
        lines.extend(text.details.iter().map(|detail| format!("    {}", sanitize::cell(detail))));
    }
    lines
}

fn absence(absence: &Absence, today: Today) -> Vec<String> {
    let since = today.show(absence.last_seen);
    let lasted = absence
        .returned
        .map_or_else(|| today.age(absence.last_seen), |at| crate::cli::duration::age(at.ms_since(absence.last_seen)));
    let by = match absence.seen_by.as_slice() {
        [] => "no manager noticed it; concluded from boot id and agent instance".to_owned(),
        some => format!("missed by {}", some.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")),
    };
    let mut out = vec![
        format!("number {}: {}", absence.no, story::gone_words(absence.kind)),
        format!("last seen at {since}; {by}"),
    ];
    out.push(match absence.returned {
        Some(at) => format!("back at {} after {lasted}; the examination is running", today.show(at)),
        None => format!("away for {lasted} and not back yet"),
    });
    if absence.planned {
        out.push("planned: announced by an operator or by the agent".to_owned());
    }
    out
}

fn finding(finding: &Finding, today: Today) -> Vec<String> {
    let took = crate::cli::duration::age(finding.took_ms);
    let verdict = finding.overtaken.as_ref().map_or(&finding.verdict, |(before, _)| before);
    let mut out = vec![format!("{verdict} (at {} by {}, after {took})", today.show(finding.at), finding.by)];
    if let Some((_, at)) = &finding.overtaken {
        out.push(format!("repaired or adopted since then: at {}", today.show(*at)));
    }
    let reasons = reasons::lines(&finding.reasons);
    out.extend(reasons.iter().map(|line| format!("reason: {}", line.with_date(today))));
    if let Some(cause) = finding.cause {
        let planned = if finding.planned { ", planned" } else { "" };
        out.push(format!("cause: {}{planned}", story::cause_word(cause)));
    }
    out.extend(finding.evidence.iter().map(|e| format!("evidence: {e}")));
    let (pass, fail, unknown) = finding.checks;
    // After a repair, the counts of check results are from a later examination and would contradict
    // the verdict.
    if finding.overtaken.is_none() && pass + fail + unknown > 0 {
        out.push(format!("checks: {pass} passed, {fail} failed, {unknown} unknown"));
    }
    out.push(format!("action: {}", finding.planned_action));
    out.extend(reasons.iter().filter_map(ReasonLine::checksum).map(|checksum| format!("checksum: {checksum}")));
    out
}

/// The lines about a request for a re-setup. Reasons that the last verdict also has are not
/// repeated.
fn want(want: &ResetupRequest, last: Option<&Finding>, today: Today) -> Vec<String> {
    let by = want.spec.by.as_deref().unwrap_or("remoor (automatic)");
    let what = if want.spec.decommission { "decommissioning" } else { "re-setup" };
    let services = story::service_list(&want.spec.services);
    let mut out = vec![format!("{what} of {services}, since {}, by {by}", today.show(want.since))];
    let known = |reason: &Reason| last.is_some_and(|last| last.reasons.iter().any(|r| r.text == reason.text));
    let new: Vec<Reason> = want.spec.reasons.iter().filter(|reason| !known(reason)).cloned().collect();
    out.extend(reasons::lines(&new).iter().map(|line| format!("reason: {}", line.summary())));
    out
}

fn job(job: &Job, today: Today) -> Vec<String> {
    let mut out = vec![format!(
        "{}: {} of {}, opened {}",
        job.id,
        super::job::state_words(job),
        story::service_list(&job.spec.services),
        today.show(job.opened)
    )];
    out.extend(job.attempts.iter().map(|a| super::job::attempt_line(a, today)));
    if let Some(AttemptOutcome::Failed(failure)) =
        job.attempts.last().and_then(|a| a.closed.as_ref()).map(|(_, how)| how)
    {
        out.extend(failure.tail.iter().map(|line| format!("  | {line}")));
    }
    if let Some(at) = job.retry_at {
        out.push(format!("the next attempt is due at {}", today.show(at)));
    }
    out
}
