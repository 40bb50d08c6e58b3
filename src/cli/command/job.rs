//! `remoor job list|show|logs|cancel`.

use super::watch::Teller;
use crate::cli::api::Api;
use crate::cli::args::{JobListArgs, JobLogsArgs, JobShowArgs, JobVerb};
use crate::cli::duration;
use crate::cli::error;
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::story;
use crate::cli::table::{self, Table};
use crate::model::{Attempt, Job, JobState, Outcome};
use crate::rpc::view::{JobsView, OrderView};

pub async fn run(api: &Api, out: &Out, verb: &JobVerb) -> anyhow::Result<Exit> {
    match verb {
        JobVerb::List(args) => list(out, &filtered(api.get("/v1/jobs").await?, args)?),
        JobVerb::Show(JobShowArgs { job, .. }) => show(out, &api.get("/v1/jobs").await?, *job),
        JobVerb::Logs(args) => logs(api, out, args).await,
        JobVerb::Cancel(args) => {
            let view: OrderView = api.post(&format!("/v1/jobs/{}/cancel", args.job), &serde_json::json!({})).await?;
            if !out.machine(&view)? {
                out.text(&format!("{}\n", view.text))?;
            }
            Ok(Exit::Done)
        }
    }
}

fn filtered(mut view: JobsView, args: &JobListArgs) -> anyhow::Result<JobsView> {
    if let Some(node) = &args.node {
        let id = view.names.iter().find(|(_, name)| *name == node).map(|(id, _)| *id);
        let id = id.ok_or_else(|| error::unknown_nodes(std::slice::from_ref(node)))?;
        view.jobs.retain(|j| j.node.0 == id);
    }
    if args.open {
        view.jobs.retain(|j| matches!(j.state, JobState::Open | JobState::Held));
    }
    Ok(view)
}

pub fn list(out: &Out, view: &JobsView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        let today = Today::of(&view.as_of.at);
        let mut table = Table::new(["JOB", "NODE", "STATE", "ATTEMPT", "OPENED", "TOOK", "SERVICES", "BECAUSE"]);
        for job in &view.jobs {
            table.row([
                job.id.to_string(),
                name(view, job),
                state_words(job),
                job.attempts.last().map(|a| a.no.to_string()).unwrap_or_default(),
                today.show(job.opened),
                duration::age(job.closed.unwrap_or(today.0).since(job.opened)),
                story::service_list(&job.services),
                because(job),
            ]);
        }
        if out.quiet {
            let ids: Vec<String> = view.jobs.iter().map(|j| j.id.to_string()).collect();
            out.names(ids.iter().map(String::as_str))?;
        } else if table.is_empty() {
            out.talk("no jobs");
        } else {
            out.table(&table)?;
        }
    }
    Ok(out.source(&view.as_of))
}

pub fn show(out: &Out, view: &JobsView, id: u64) -> anyhow::Result<Exit> {
    let job = view.jobs.iter().find(|j| j.id.0 == id).ok_or_else(|| error::no_such_job(id))?;
    if !out.machine(job)? {
        let today = Today::of(&view.as_of.at);
        let ended = job.closed.map(|at| format!("{} after {}", today.show(at), duration::age(at.since(job.opened))));
        let mut facts = vec![
            ("job", job.id.to_string()),
            ("node", name(view, job)),
            ("state", state_words(job)),
            ("what", if job.decommission { "decommissioning".to_owned() } else { "re-setup".to_owned() }),
            ("services", story::service_list(&job.services)),
            ("generation", job.generation.to_string()),
            ("by", job.by.clone().unwrap_or_else(|| "remoor itself".to_owned())),
            ("opened", today.show(job.opened)),
            ("ended", ended.unwrap_or_default()),
        ];
        if let Some(at) = job.retry_at.filter(|_| job.closed.is_none()) {
            facts.push(("next attempt", today.show(at)));
        }
        facts.extend(job.reasons.iter().map(|r| ("because", story::reason(r))));
        let mut text = table::fields(&facts);
        text.push_str("\nAttempts\n");
        if job.attempts_dropped > 0 {
            text.push_str(&format!("  {} earlier ones\n", job.attempts_dropped));
        }
        for attempt in &job.attempts {
            text.push_str(&format!("  {}\n", attempt_line(attempt, today)));
            if let Some((_, Outcome::Failed(failure))) = &attempt.closed {
                failure.tail.iter().for_each(|line| text.push_str(&format!("    | {line}\n")));
            }
        }
        out.text(&text)?;
    }
    Ok(out.source(&view.as_of))
}

async fn logs(api: &Api, out: &Out, args: &JobLogsArgs) -> anyhow::Result<Exit> {
    let names = api.get::<JobsView>("/v1/jobs").await?.names;
    let mut teller = Teller::new(names);
    let mut interrupt = Interrupt::new()?;
    let mut lines = api.stream(&format!("/v1/jobs/{}/log?follow={}", args.job, args.follow)).await?;
    loop {
        let Some(line) = interrupt.or(lines.next()).await else {
            out.talk(&goes_on(args.job));
            return Ok(Exit::Interrupted);
        };
        match line? {
            Some(value) => teller.print(out, value)?,
            None => return Ok(Exit::Done),
        }
    }
}

/// What Ctrl-C while following says.
pub fn goes_on(job: u64) -> String {
    format!("job {job} goes on; follow: remoor job logs {job} -f")
}

fn name(view: &JobsView, job: &Job) -> String {
    view.names.get(&job.node.0).cloned().unwrap_or_else(|| format!("node {}", job.node))
}

fn because(job: &Job) -> String {
    match (&job.by, job.reasons.as_slice()) {
        (Some(by), []) => format!("ordered by {by}"),
        (_, reasons) => story::reason_list(reasons),
    }
}

/// `open: cleanup`, `held`, `done`.
pub fn state_words(job: &Job) -> String {
    match (job.state, job.open_attempt()) {
        (JobState::Open, Some(attempt)) => attempt.phase.to_string(),
        (JobState::Open, None) => "waiting".to_owned(),
        (JobState::Held, _) => "held".to_owned(),
        (JobState::Done, _) => "done".to_owned(),
        (JobState::Cancelled, _) => "cancelled".to_owned(),
    }
}

pub fn attempt_line(attempt: &Attempt, today: Today) -> String {
    let end = match &attempt.closed {
        None => format!("{} now", attempt.phase),
        Some((at, outcome)) => {
            format!("after {} {}", duration::age(at.since(attempt.opened)), story::outcome_words(outcome))
        }
    };
    let why = if attempt.no == 1 { String::new() } else { format!(", because {}", attempt.why) };
    format!(
        "{} (id {}) opened {} by {}{why}: {end}",
        attempt.no,
        attempt.id,
        today.show(attempt.opened),
        attempt.runner
    )
}
