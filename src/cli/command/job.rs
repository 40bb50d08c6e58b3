//! `remoor job list`, `show`, `logs` and `cancel`.

use super::watch::StreamPrinter;
use crate::cli::api::{self, Api};
use crate::cli::args::{JobListArgs, JobLogsArgs, JobShowArgs, JobVerb};
use crate::cli::duration;
use crate::cli::error::{self, CommandError};
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::reasons::{self, ReasonLine};
use crate::cli::story;
use crate::cli::table::{self, Table};
use remoor_cluster::rpc::view::{CancelRequest, JobsView, OrderView, QueuedView};
use remoor_model::{Attempt, AttemptOutcome, Job, JobKind, JobState};

pub async fn run(api: &Api, out: &Out, verb: &JobVerb) -> anyhow::Result<Exit> {
    match verb {
        JobVerb::List(args) => list(out, &get_jobs(api, args).await?),
        JobVerb::Show(JobShowArgs { job, .. }) => show(out, &api.get(&format!("/v1/jobs?job={job}")).await?, *job),
        JobVerb::Logs(args) => logs(api, out, args).await,
        JobVerb::Cancel(args) => {
            // A number always means a job. If the name of a node is a number, the operator must
            // cancel by the number of the job.
            let path = match args.what.parse::<u64>() {
                Ok(job) => format!("/v1/jobs/{job}/cancel"),
                Err(_) => format!("/v1/nodes/{}/cancel", api::segment(&args.what)),
            };
            let view: OrderView = api.post(&path, &CancelRequest { now: args.now }).await?;
            if !out.machine(&view)? {
                out.text(&format!("{}\n", view.text))?;
            }
            Ok(Exit::Done)
        }
    }
}

async fn get_jobs(api: &Api, args: &JobListArgs) -> anyhow::Result<JobsView> {
    let mut query: Vec<String> = Vec::new();
    query.extend(args.node.as_deref().map(|node| format!("node={}", api::segment(node))));
    query.extend(args.open.then(|| "open=true".to_owned()));
    let path = if query.is_empty() { "/v1/jobs".to_owned() } else { format!("/v1/jobs?{}", query.join("&")) };
    api.get(&path).await.map_err(|error| match (&args.node, error.code()) {
        (Some(node), Some("not-found")) => CommandError::into(error::unknown_nodes(std::slice::from_ref(node))),
        _ => anyhow::Error::from(error),
    })
}

pub fn list(out: &Out, view: &JobsView) -> anyhow::Result<Exit> {
    if !out.machine(view)? {
        let today = Today::from_answer(&view.as_of.at);
        let mut table = Table::new(["JOB", "NODE", "STATE", "ATTEMPT", "OPENED", "TOOK", "SERVICES", "BECAUSE"]);
        for job in &view.jobs {
            table.row([
                job.id.to_string(),
                name(view, job),
                state_words(job),
                job.attempts.last().map(|a| a.no.to_string()).unwrap_or_default(),
                today.show(job.opened),
                duration::age(job.closed.unwrap_or(today.0).ms_since(job.opened)),
                if job.spec.undo.is_some() { String::new() } else { story::service_list(&job.spec.services) },
                reasons_text(job),
            ]);
        }
        for queued in &view.queued {
            let node = view.names.get(&queued.node).cloned().unwrap_or_else(|| format!("node {}", queued.node));
            let services = match queued.want.spec.undo {
                Some(_) => String::new(),
                None => story::service_list(&queued.want.spec.services),
            };
            table.row([
                "-".to_owned(),
                node,
                "queued".to_owned(),
                String::new(),
                String::new(),
                today.age(queued.want.since),
                services,
                queued_text(queued),
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
        let today = Today::from_answer(&view.as_of.at);
        let ended = job.closed.map(|at| format!("{} after {}", today.show(at), duration::age(at.ms_since(job.opened))));
        let mut facts = vec![
            ("job", job.id.to_string()),
            ("node", name(view, job)),
            ("state", state_words(job)),
            ("what", job_kind_text(job)),
            ("services", if job.spec.undo.is_some() { String::new() } else { story::service_list(&job.spec.services) }),
            ("generation", job.generation.to_string()),
            ("by", job.spec.by.clone().unwrap_or_else(|| "remoor (automatic)".to_owned())),
            ("opened", today.show(job.opened)),
            ("ended", ended.unwrap_or_default()),
        ];
        if let Some(at) = job.retry_at.filter(|_| job.closed.is_none()) {
            facts.push(("next attempt", today.show(at)));
        }
        facts.extend(job.spec.vars.iter().map(|(name, value)| ("variable", format!("{name}: {value}"))));
        let reasons = reasons::lines(&job.spec.reasons);
        facts.extend(reasons.iter().map(|line| ("because", line.summary())));
        facts.extend(reasons.iter().filter_map(ReasonLine::checksum).map(|checksum| ("checksum", checksum)));
        let mut text = table::fields(&facts);
        text.push_str("\nAttempts\n");
        if job.attempts_dropped > 0 {
            text.push_str(&format!("  {} earlier ones\n", job.attempts_dropped));
        }
        for attempt in &job.attempts {
            text.push_str(&format!("  {}\n", attempt_line(attempt, today)));
            if let Some((_, AttemptOutcome::Failed(failure))) = &attempt.closed {
                failure.tail.iter().for_each(|line| text.push_str(&format!("    | {line}\n")));
            }
        }
        out.text(&text)?;
    }
    Ok(out.source(&view.as_of))
}

async fn logs(api: &Api, out: &Out, args: &JobLogsArgs) -> anyhow::Result<Exit> {
    let names = api.get::<JobsView>("/v1/jobs?limit=0").await?.names;
    let mut teller = StreamPrinter::new(names);
    let mut interrupt = Interrupt::new()?;
    let mut lines = api.stream(&format!("/v1/jobs/{}/log?follow={}", args.job, args.follow)).await?;
    loop {
        let Some(line) = interrupt.unless_interrupted(lines.next()).await else {
            out.talk(&continues_text(args.job));
            return Ok(Exit::Interrupted);
        };
        match line? {
            Some(value) => teller.print(out, value)?,
            None => return Ok(Exit::Done),
        }
    }
}

/// The message after Ctrl-C ended the following of a job. The job itself continues.
pub fn continues_text(job: u64) -> String {
    format!("job {job} continues; follow it: remoor job logs {job} -f")
}

fn name(view: &JobsView, job: &Job) -> String {
    view.names.get(&job.node.0).cloned().unwrap_or_else(|| format!("node {}", job.node))
}

fn job_kind_text(job: &Job) -> String {
    match (job.kind(), job.spec.undo) {
        (JobKind::Undo, Some(attempt)) => format!("undo of attempt {attempt}"),
        (JobKind::Decommission, _) => "decommissioning".to_owned(),
        _ => "re-setup".to_owned(),
    }
}

/// The operator who ordered the queued work, or remoor; and the reasons why the work waits.
fn queued_text(queued: &QueuedView) -> String {
    let by =
        queued.want.spec.by.as_ref().map_or_else(|| "remoor (automatic)".to_owned(), |by| format!("ordered by {by}"));
    match queued.waits.as_slice() {
        [] => by,
        waits => format!("{by}; {}", waits.join("; ")),
    }
}

fn reasons_text(job: &Job) -> String {
    match (&job.spec.by, job.spec.reasons.as_slice()) {
        (Some(by), []) if job.spec.undo.is_some() => format!("{}, ordered by {by}", job_kind_text(job)),
        (Some(by), []) => format!("ordered by {by}"),
        (_, reasons) => story::reason_list(reasons),
    }
}

/// The state of a job in a word: the open attempt's phase, such as `cleanup`; or `waiting`, `held`,
/// `done`, `cancelled`.
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
            format!("after {} {}", duration::age(at.ms_since(attempt.opened)), story::outcome_words(outcome))
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
