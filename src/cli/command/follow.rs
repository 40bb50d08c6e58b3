//! Follows jobs. Prints a line for each phase with its time, and a line for each task that changed
//! something or failed. The jobs are polled, so a change of the leader does not end the following.
//! The logs of the jobs are read in addition.

use super::{job, watch};
use crate::cli::api::{self, Api};
use crate::cli::duration;
use crate::cli::exit::Exit;
use crate::cli::interrupt::Interrupt;
use crate::cli::moment::Today;
use crate::cli::out::Out;
use crate::cli::story;
use indicatif::ProgressBar;
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::view::{AsOf, ConditionView, JobsView, StreamItem, WhyView};
use remoor_model::{AttemptId, AttemptOutcome, Job, JobState, JournalEvent, Phase, Wall};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const EVERY: Duration = Duration::from_millis(500);
/// Following ends if no manager answers for this time. A change of the leader takes less.
const SILENT_MAX: Duration = Duration::from_secs(120);
/// Maximum time that `--detach` waits for the number of the job.
const BEGIN_WITHIN: Duration = Duration::from_secs(3);
/// Maximum number of log lines that wait to be printed. If the queue is full, the reader of the log
/// waits.
const LOG_DEPTH: usize = 256;

/// A node whose next job is followed. The job results from the operator's order.
#[derive(Debug)]
pub struct FollowedJob {
    pub node: String,
    id: u64,
    /// Number of the newest job before the operator's order was sent. The job that the order starts
    /// has a higher number.
    before: u64,
    /// The followed job, as a manager last reported it. None: the job is not opened yet.
    pub last: Option<Job>,
    /// The last printed phase of the job.
    shown: Option<(AttemptId, Phase)>,
    closed_shown: Option<AttemptId>,
    waiting: String,
    /// The exit code for the job. None: the job has not ended.
    exit: Option<Exit>,
}

impl FollowedJob {
    pub fn new(node: &str, id: u64, before: u64) -> Self {
        Self {
            node: node.to_owned(),
            id,
            before,
            last: None,
            shown: None,
            closed_shown: None,
            waiting: String::new(),
            exit: None,
        }
    }
}

/// The number of the newest job, and the names of the nodes by id. Every later job has a higher
/// number.
pub async fn newest_job(api: &Api) -> Result<(u64, BTreeMap<u64, String>), ApiError> {
    let view: JobsView = api.get("/v1/jobs?limit=1").await?;
    Ok((view.jobs.iter().map(|j| j.id.0).max().unwrap_or(0), view.names))
}

/// The URL path that requests the jobs of these nodes. It excludes jobs that already existed when
/// the operator's orders were sent.
fn query(followed: &[FollowedJob]) -> String {
    let nodes: Vec<String> = followed.iter().map(|f| api::segment(&f.node)).collect();
    let after = followed.iter().map(|f| f.before).min().unwrap_or(0);
    format!("/v1/jobs?node={}&after={after}", nodes.join(","))
}

/// Waits until the followed jobs are opened, for at most `BEGIN_WITHIN`, and prints their numbers.
pub async fn wait_for_jobs(api: &Api, out: &Out, followed: &mut [FollowedJob]) -> anyhow::Result<()> {
    let ends = Instant::now() + BEGIN_WITHIN;
    if followed.is_empty() {
        return Ok(());
    }
    let query = query(followed);
    loop {
        let view: JobsView = api.get(&query).await?;
        for one in followed.iter_mut().filter(|f| f.last.is_none()) {
            one.last = find(&view, one).cloned();
        }
        if followed.iter().all(|f| f.last.is_some()) || Instant::now() >= ends {
            break;
        }
        tokio::time::sleep(EVERY).await;
    }
    for one in followed {
        match &one.last {
            Some(job) => out.talk(&format!("{}: job {1}; follow: remoor job logs {1} -f", one.node, job.id)),
            None => out.talk(&format!("{0}: no job yet; remoor why {0} shows what it waits for", one.node)),
        }
    }
    Ok(())
}

fn find<'a>(view: &'a JobsView, one: &FollowedJob) -> Option<&'a Job> {
    match &one.last {
        Some(known) => view.jobs.iter().find(|j| j.id == known.id),
        None => view.jobs.iter().filter(|j| j.node.0 == one.id && j.id.0 > one.before).max_by_key(|j| j.id),
    }
}

/// Follows the jobs until each has ended, or until Ctrl-C. Returns the most serious exit code.
pub async fn follow_to_end(api: &Api, out: &Out, followed: &mut [FollowedJob]) -> anyhow::Result<Exit> {
    let screen = JobScreen::new(out);
    let (tx, mut logs) = mpsc::channel::<(u64, StreamItem)>(LOG_DEPTH);
    let mut silent: Option<Instant> = None;
    let mut interrupt = Interrupt::new()?;
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while followed.iter().any(|f| f.exit.is_none()) {
        tokio::select! {
            Some((id, item)) = logs.recv() => {
                if let Some(one) = followed.iter_mut().find(|f| f.last.as_ref().is_some_and(|j| j.id.0 == id)) {
                    screen.log(one, &item);
                }
                continue;
            }
            _ = tick.tick() => {}
            () = interrupt.wait() => {
                screen.detach(followed);
                return Ok(Exit::Interrupted);
            }
        }
        let Some(looked) = interrupt.unless_interrupted(poll_jobs(api, &screen, followed, &tx)).await else {
            screen.detach(followed);
            return Ok(Exit::Interrupted);
        };
        match looked {
            Ok(()) => silent = None,
            Err(error) if api::temporary(&error) => {
                let since = *silent.get_or_insert_with(|| {
                    screen.print_message(&format!("{error}; retrying"));
                    Instant::now()
                });
                if since.elapsed() > SILENT_MAX {
                    return Err(anyhow::Error::new(error).context("the managers no longer answer; the jobs continue"));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(followed.iter().filter_map(|f| f.exit).fold(Exit::Done, Exit::more_serious))
}

/// Polls all jobs once.
async fn poll_jobs(
    api: &Api,
    screen: &JobScreen<'_>,
    followed: &mut [FollowedJob],
    logs: &mpsc::Sender<(u64, StreamItem)>,
) -> Result<(), ApiError> {
    let view: JobsView = api.get(&query(followed)).await?;
    require_leader(&view.as_of)?;
    let today = Today::from_answer(&view.as_of.at);
    for one in followed.iter_mut().filter(|f| f.exit.is_none()) {
        match find(&view, one).cloned() {
            Some(job) => {
                if one.last.is_none() {
                    let what = job
                        .spec
                        .undo
                        .map_or_else(|| story::service_list(&job.spec.services), |a| format!("undo of attempt {a}"));
                    screen.print_message(&format!("{}  job {}  {what}", one.node, job.id));
                    read_log(api, job.id.0, logs.clone());
                }
                screen.job(one, job, today);
            }
            None if one.last.is_some() => {
                screen.answer(&format!("{}: the job is no longer on record; remoor history {0}", one.node));
                one.exit = Some(Exit::CouldNotAsk);
            }
            None => report_not_started(api, screen, one).await?,
        }
    }
    Ok(())
}

/// Rejects the answer of a manager that has no quorum, because the answer may be older than the
/// order.
fn require_leader(as_of: &AsOf) -> Result<(), ApiError> {
    match as_of.stale {
        true => Err(ApiError::Unreachable { addr: as_of.by.clone(), reason: "it has no quorum".to_owned() }),
        false => Ok(()),
    }
}

/// Prints why the job is not opened yet. If the order was dropped, following this node ends.
async fn report_not_started(api: &Api, screen: &JobScreen<'_>, one: &mut FollowedJob) -> Result<(), ApiError> {
    let why: WhyView = api.get(&format!("/v1/nodes/{}/why", api::segment(&one.node))).await?;
    require_leader(&why.as_of)?;
    if why.job.as_ref().is_some_and(|j| j.id.0 > one.before) {
        return Ok(());
    }
    if why.want.is_none() {
        // The job may have been opened since the last poll, and may even have ended. So the order
        // counts as dropped only if another query finds no job.
        let again: JobsView = api.get(&query(std::slice::from_ref(one))).await?;
        require_leader(&again.as_of)?;
        if find(&again, one).is_some() {
            return Ok(());
        }
        let dropped = why.history.iter().rev().find_map(|item| match &item.what {
            JournalEvent::WantDropped { why } => Some(why.clone()),
            _ => None,
        });
        let text = dropped.unwrap_or_else(|| "the order is no longer on record".to_owned());
        screen.answer(&format!("{}: not started: {text}", one.node));
        one.exit = Some(Exit::Refused);
        return Ok(());
    }
    let waits = |c: &&ConditionView| ["waiting", "settling", "blocked"].contains(&c.is.as_str());
    let word = |c: &ConditionView| match c.is.as_str() {
        "blocked" => format!("blocked: {}", c.why),
        _ => format!("waiting: {}", c.why),
    };
    let text = why.node.conditions.iter().filter(waits).map(word).collect::<Vec<_>>().join("; ");
    if !text.is_empty() && text != one.waiting {
        screen.print_message(&format!("{}  {text}", one.node));
        one.waiting = text;
    }
    Ok(())
}

/// Sends the log of the job to `logs` until the job ends. If the stream breaks, it is not opened
/// again, because the job is polled anyway.
fn read_log(api: &Api, id: u64, logs: mpsc::Sender<(u64, StreamItem)>) {
    let api = api.clone();
    tokio::spawn(async move {
        let Ok(mut lines) = api.stream(&format!("/v1/jobs/{id}/log?follow=true")).await else { return };
        while let Ok(Some(value)) = lines.next().await {
            if let Ok(item) = serde_json::from_value::<StreamItem>(value)
                && logs.send((id, item)).await.is_err()
            {
                return;
            }
        }
    });
}

/// Shows the progress of jobs: lines, and a spinner below the lines on a terminal.
struct JobScreen<'a> {
    out: &'a Out,
    bar: Option<ProgressBar>,
}

impl<'a> JobScreen<'a> {
    fn new(out: &'a Out) -> Self {
        let live = out.is_tty() && std::io::stderr().is_terminal() && !out.quiet;
        let bar = live.then(ProgressBar::new_spinner);
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self { out, bar }
    }

    fn print_message(&self, text: &str) {
        if !self.out.quiet {
            self.print_above_bar(|| self.out.talk(text));
        }
    }

    /// Prints a line of the answer. A closed standard output is ignored here, because the next
    /// write reports it.
    fn answer(&self, text: &str) {
        if !self.out.format.is_machine() {
            self.print_above_bar(|| drop(self.out.text(&format!("{text}\n"))));
        }
    }

    fn print_above_bar(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn phase(&self, one: &mut FollowedJob, attempt: AttemptId, phase: Phase, at: Wall) {
        if one.shown.is_some_and(|shown| shown >= (attempt, phase)) {
            return;
        }
        let Some(job) = &one.last else { return };
        one.shown = Some((attempt, phase));
        let no = job.attempts.iter().find(|a| a.id == attempt).map_or(1, |a| a.no);
        let clock = duration::clock(at.ms_since(job.opened));
        self.print_message(&format!("{}  job {}  attempt {no}  {:<9}  {clock}", one.node, job.id, phase.as_str()));
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} {phase}", one.node));
        }
    }

    /// Prints what has changed in the followed job since the previous call.
    fn job(&self, one: &mut FollowedJob, job: Job, today: Today) {
        one.last = Some(job.clone());
        if let Some(attempt) = job.attempts.last() {
            if attempt.closed.is_none() {
                self.phase(one, attempt.id, attempt.phase, today.0);
            }
            if let Some((at, outcome)) = &attempt.closed
                && one.closed_shown != Some(attempt.id)
            {
                one.closed_shown = Some(attempt.id);
                let clock = duration::clock(at.ms_since(job.opened));
                self.print_message(&format!(
                    "{}  job {}  attempt {}  {}  {clock}",
                    one.node,
                    job.id,
                    attempt.no,
                    story::outcome_words(outcome)
                ));
                if let AttemptOutcome::Failed(failure) = outcome {
                    failure.tail.iter().for_each(|line| self.print_message(&format!("    | {line}")));
                }
                if let Some(retry) = job.retry_at.filter(|_| job.state == JobState::Open) {
                    self.print_message(&format!("{}  job {}  next attempt at {}", one.node, job.id, today.show(retry)));
                }
            }
        }
        let took = duration::clock(job.closed.unwrap_or(today.0).ms_since(job.opened));
        let (text, exit) = match job.state {
            JobState::Open => return,
            JobState::Done => (format!("done in {took}"), Exit::Done),
            JobState::Held => {
                (format!("held after {took}: {}; next: remoor why {}", last_outcome(&job), one.node), Exit::Failed)
            }
            JobState::Cancelled => (format!("cancelled after {took}: {}", last_outcome(&job)), Exit::Failed),
        };
        self.answer(&format!("{}: job {} {text}", one.node, job.id));
        one.exit = Some(exit);
    }

    /// Prints an item of the job's log.
    fn log(&self, one: &mut FollowedJob, item: &StreamItem) {
        match item {
            StreamItem::History { item, .. } => {
                if let (JournalEvent::Phase { job, attempt, phase }, Some(known)) = (&item.what, &one.last)
                    && *job == known.id
                {
                    self.phase(one, *attempt, *phase, item.at);
                }
            }
            StreamItem::Task { phase, event, .. } if watch::is_notable(event) => {
                if let Some(text) = watch::task_text(event) {
                    self.print_message(&format!("{}    {text}", one.node));
                }
                if let Some(bar) = &self.bar {
                    bar.set_message(format!("{} {phase}", one.node));
                }
            }
            StreamItem::Task { phase, event, .. } => {
                if let (Some(bar), Some(name)) = (&self.bar, event.get("name").and_then(|n| n.as_str())) {
                    bar.set_message(
                        remoor_model::sanitize::line(&format!("{} {phase}: {name}", one.node)).into_owned(),
                    );
                }
            }
            StreamItem::Missed { count } => {
                self.print_message(&format!("{}    ({})", one.node, watch::missed_text(*count)))
            }
            // These items need no output, because the job is polled anyway.
            StreamItem::Resync { .. } | StreamItem::End { .. } => {}
        }
    }

    fn detach(&self, followed: &[FollowedJob]) {
        for one in followed.iter().filter(|f| f.exit.is_none()) {
            match &one.last {
                Some(job) => self.print_message(&format!("{}: {}", one.node, job::continues_text(job.id.0))),
                None => self.print_message(&format!(
                    "{0}: the order remains valid; remoor why {0} shows what it waits for",
                    one.node
                )),
            }
        }
    }
}

impl Drop for JobScreen<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn last_outcome(job: &Job) -> String {
    let outcome = job.attempts.last().and_then(|a| a.closed.as_ref()).map(|(_, outcome)| story::outcome_words(outcome));
    outcome.unwrap_or_else(|| "before its first attempt ended".to_owned())
}
