//! `remoor why NODE`: the whole story of one node, and what to do next.

use super::{nodes, replay};
use crate::cli::api::{self, Api};
use crate::cli::args::WhyArgs;
use crate::cli::exit::Exit;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::story::{self, Story};
use crate::cli::table;
use crate::model::{Absence, Finding, Job, NodeName, Outcome, Want};
use crate::rpc::view::{ReplayView, WhyView};
use std::collections::BTreeMap;

/// So many items of the journal are shown.
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
        out.lines(&tell(view))?;
    }
    Ok(out.source(&view.as_of))
}

fn tell(view: &WhyView) -> String {
    let today = Today::of(&view.as_of.at);
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
    section("Last verdict", view.node.finding.as_ref().map(|f| finding(f, today)).unwrap_or_default());
    section("Wanted", view.want.as_ref().map(|w| want(w, today)).unwrap_or_default());
    section("Job", view.job.as_ref().map(|j| job(j, today)).unwrap_or_default());
    section("Not done, and why", view.not_done.clone());
    let mut story = Story::new(BTreeMap::from([(view.node.id, view.node.name.clone())]));
    let told: Vec<String> =
        view.history.iter().map(|item| format!("{}  {}", today.show(item.at), story.tell(item))).collect();
    section("What happened", told[told.len().saturating_sub(ITEMS)..].to_vec());
    section("Next", view.next.clone());
    out
}

fn absence(absence: &Absence, today: Today) -> Vec<String> {
    let since = today.show(absence.last_seen);
    let lasted = absence
        .returned
        .map_or_else(|| today.age(absence.last_seen), |at| crate::cli::duration::age(at.since(absence.last_seen)));
    let by = match absence.seen_by.as_slice() {
        [] => "nobody saw it go: told from its traces".to_owned(),
        some => format!("missed by {}", some.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")),
    };
    let mut out = vec![
        format!("number {}: {}", absence.no, story::gone_words(absence.gone)),
        format!("last seen at {since}; {by}"),
    ];
    out.push(match absence.returned {
        Some(at) => format!("back at {} after {lasted}; being examined", today.show(at)),
        None => format!("away for {lasted} and not back"),
    });
    if absence.planned {
        out.push("planned: it was announced, or the agent said goodbye".to_owned());
    }
    out
}

fn finding(finding: &Finding, today: Today) -> Vec<String> {
    let took = crate::cli::duration::age(finding.took_ms);
    let verdict = finding.overtaken.as_ref().map_or(&finding.verdict, |(before, _)| before);
    let mut out = vec![format!("{verdict} (at {} by {}, after {took})", today.show(finding.at), finding.by)];
    if let Some((_, at)) = &finding.overtaken {
        out.push(format!("made right since: {}", today.show(*at)));
    }
    if let Some(cause) = finding.cause {
        let planned = if finding.planned { ", planned" } else { "" };
        out.push(format!("cause: {}{planned}", story::cause_word(cause)));
    }
    out.extend(finding.evidence.iter().map(|e| format!("evidence: {e}")));
    out.extend(finding.reasons.iter().map(|r| {
        let weight = if r.grave { "" } else { " (reported only)" };
        let since = r.since.map(|at| format!(", since {}", today.show(at))).unwrap_or_default();
        format!("reason: {}{weight}{since}", story::reason(r))
    }));
    let (pass, fail, unknown) = finding.checks;
    // What was made right since has the counts of that look: they would contradict the verdict.
    if finding.overtaken.is_none() && pass + fail + unknown > 0 {
        out.push(format!("checks: {pass} passed, {fail} failed, {unknown} unknown"));
    }
    out.push(format!("action: {}", finding.remedy));
    out
}

fn want(want: &Want, today: Today) -> Vec<String> {
    let by = want.by.as_deref().unwrap_or("remoor itself");
    let what = if want.decommission { "decommissioning" } else { "re-setup" };
    let services = story::service_list(&want.services);
    let mut out = vec![format!("{what} of {services}, since {}, by {by}", today.show(want.since))];
    out.extend(want.reasons.iter().map(|r| format!("reason: {}", story::reason(r))));
    out
}

fn job(job: &Job, today: Today) -> Vec<String> {
    let mut out = vec![format!(
        "{}: {} of {}, opened {}",
        job.id,
        super::job::state_words(job),
        story::service_list(&job.services),
        today.show(job.opened)
    )];
    out.extend(job.attempts.iter().map(|a| super::job::attempt_line(a, today)));
    if let Some(Outcome::Failed(failure)) = job.attempts.last().and_then(|a| a.closed.as_ref()).map(|(_, how)| how) {
        out.extend(failure.tail.iter().map(|line| format!("  | {line}")));
    }
    if let Some(at) = job.retry_at {
        out.push(format!("the next attempt is due at {}", today.show(at)));
    }
    out
}
