//! Entries about re-setups: requests, jobs, attempts, phases.

use super::*;

impl Inventory {
    pub(super) fn job_entry(&mut self, at: &At) -> Decision {
        match at.command {
            Command::Want { node, want } => self.want(at, *node, want),
            Command::DropWant { node, why } => {
                let (id, moment) = (*node, at.entry.at);
                let changed = self.change(id)?;
                let Some(want) = changed.want.take() else {
                    return Err(Refusal::new("nothing-wanted", "no re-setup is waiting"));
                };
                if want.decommission && changed.availability == Availability::Drain {
                    changed.availability = Availability::Active;
                }
                if want.undo.is_none()
                    && matches!(changed.lifecycle, Lifecycle::Commissioning | Lifecycle::Decommissioning)
                {
                    changed.stays(why);
                }
                if want.by.is_none() {
                    let why = "its waiting re-setup was called off".to_owned();
                    changed.hold = Some(Hold { why, since: moment, until: None });
                }
                self.note(at, Some(id), Happening::WantDropped { why: why.clone() });
                Ok(Applied::Done)
            }
            Command::OpenJob { node, runner } => self.open_job(at, *node, runner),
            Command::NextAttempt { job, after, runner, why } => self.next_attempt(at, *job, *after, runner, why),
            Command::Phase { job, attempt, phase } => {
                let (id, attempt_id, phase) = (*job, *attempt, *phase);
                let job = self.change_job(id)?;
                let (kind, node) = (job.kind(), job.node);
                let attempt = open_attempt(job, attempt_id)?;
                if attempt.phase.next(kind) != Some(phase) {
                    let text = format!("{phase} does not follow {}", attempt.phase);
                    return Err(Refusal::new("wrong-phase", text));
                }
                attempt.phase = phase;
                let changed = self.change(node)?;
                changed.altered = at.index;
                if phase == Phase::Provision {
                    changed.provisioned_at = changed.ip().map(str::to_owned);
                }
                self.note(at, Some(node), Happening::Phase { job: id, attempt: attempt_id, phase });
                Ok(Applied::Done)
            }
            Command::CloseAttempt { job, attempt, outcome, baseline, marks } => {
                self.close_attempt(at, *job, *attempt, outcome, baseline.as_ref(), marks.as_ref())
            }
            Command::HoldJob { job, why } => {
                let id = *job;
                let job = self.change_job(id)?;
                if job.state != JobState::Open || job.open_attempt().is_some() {
                    return Err(Refusal::new("wrong-state", format!("job {id} is not waiting")));
                }
                job.state = JobState::Held;
                let node = job.node;
                self.change(node)?.hold = Some(Hold { why: why.clone(), since: at.entry.at, until: None });
                self.note(at, Some(node), Happening::JobHeld { job: id, why: why.clone() });
                Ok(Applied::Done)
            }
            Command::CancelJob { job, why, now } => self.cancel_job(at, *job, why, *now),
            other => unreachable!("{other:?} is no entry about a job"),
        }
    }

    /// Records a request for a re-setup. It waits until all preconditions are met.
    pub(super) fn want(&mut self, at: &At, id: NodeId, want: &Want) -> Decision {
        let known = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node {id}")))?;
        if let Some(attempt) = want.undo {
            self.may_undo(known, attempt)?;
        }
        self.may_be_part(known, want)?;
        if known.availability == Availability::Drain && !want.decommission {
            let text = format!("{} is drained: nothing is provisioned on it", known.name());
            return Err(Refusal::new("drained", text).next(format!("remoor resume {}", known.name())));
        }
        let out = matches!(known.lifecycle, Lifecycle::Decommissioning | Lifecycle::Decommissioned);
        if out && !want.decommission && !want.commission {
            let text = format!("{} is {}, so it is not set up again", known.name(), known.lifecycle.word());
            return Err(Refusal::new("decommissioned", text).next(format!("remoor commission {}", known.name())));
        }
        if want.decommission && known.lifecycle == Lifecycle::Decommissioned {
            let text = format!("{} is decommissioned already", known.name());
            return Err(Refusal::new("decommissioned", text));
        }
        if want.by.is_none() && (known.want.is_some() || known.job.is_some()) {
            return Err(Refusal::new("already-wanted", "a re-setup is waiting already, or the node's job is held"));
        }
        if self.group(known).is_none() {
            let text = format!("the applied fleet does not contain {}", known.name());
            return Err(Refusal::new("no-generation", text).next("remoor apply DIR"));
        }
        if let Some(job) = known.job.and_then(|j| self.job(j)).filter(|j| j.state == JobState::Open) {
            let text = format!("job {} is open on {}", job.id, known.name());
            return Err(Refusal::new("job-open", text).next(format!("remoor job logs {} -f", job.id)));
        }
        self.end_held(id, at.entry.at)?;
        let node = self.change(id)?;
        node.want = Some(want.clone());
        node.lifecycle = match (want.decommission, node.lifecycle) {
            (_, lifecycle) if want.undo.is_some() => lifecycle,
            (true, _) => Lifecycle::Decommissioning,
            (false, Lifecycle::Commissioned) => Lifecycle::Commissioned,
            (false, _) => Lifecycle::Commissioning,
        };
        let (services, operator) = (want.services.clone(), want.by.clone());
        self.note(at, Some(id), Happening::Wanted { services, operator, undo: want.undo });
        Ok(Applied::Done)
    }

    /// Refuses a partial request if only the whole node can be set up.
    fn may_be_part(&self, node: &Node, want: &Want) -> Result<(), Refusal> {
        let name = node.name();
        if want.services.is_empty() {
            return Ok(());
        }
        if node.baseline.is_none() {
            let text = format!("{name} was never set up as a whole");
            return Err(Refusal::new("not-set-up", text).next(format!("remoor commission {name}")));
        }
        if let Some(own) = self.own_move(node).filter(|_| want.by.is_some()) {
            let text = format!(
                "{name} was set up for address {}; it must be set up as a whole for its current address",
                own.from
            );
            return Err(Refusal::new("moved", text).next(format!("remoor resetup {name}")));
        }
        Ok(())
    }

    /// The services of an automatic job when it begins. A node whose address changed is set up as a
    /// whole.
    fn scope_of(&self, node: &Node, by: Option<&str>, services: &[ServiceName]) -> Vec<ServiceName> {
        let whole = by.is_none() && self.own_move(node).is_some();
        if whole { Vec::new() } else { services.to_vec() }
    }

    fn cancel_job(&mut self, at: &At, id: JobId, why: &str, now: bool) -> Decision {
        let moment = at.entry.at;
        let job = self.change_job(id)?;
        let node = job.node;
        let cancelled = matches!(job.attempts.last(), Some(Attempt { closed: Some((_, Outcome::Cancelled(_))), .. }));
        if job.closed.is_some() && now && cancelled && !job.cut {
            job.cut = true;
            self.note(at, Some(node), Happening::JobCancelled { job: id, why: why.to_owned() });
            return Ok(Applied::Done);
        }
        if job.closed.is_some() {
            return Err(Refusal::new("job-closed", format!("job {id} has ended")));
        }
        let mut reached = None;
        if let Some(attempt) = job.attempts.last_mut().filter(|a| a.closed.is_none()) {
            attempt.closed = Some((moment, Outcome::Cancelled(why.to_owned())));
            reached = Some(attempt.phase);
        }
        job.state = JobState::Cancelled;
        job.closed = Some(moment);
        job.cut = now;
        let changed = self.change(node)?;
        changed.job = None;
        changed.altered = at.index;
        if let Some(phase) = reached {
            changed.fail(phase);
        }
        changed.hold = Some(Hold { why: format!("job {id} was cancelled"), since: moment, until: None });
        self.note(at, Some(node), Happening::JobCancelled { job: id, why: why.to_owned() });
        Ok(Applied::Done)
    }

    fn open_job(&mut self, at: &At, id: NodeId, runner: &NodeName) -> Decision {
        let node = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node {id}")))?;
        let Some(mut want) = node.want.clone() else {
            return Err(Refusal::new("nothing-wanted", "no re-setup is waiting"));
        };
        if let Some(job) = node.job.and_then(|j| self.job(j))
            && job.state == JobState::Open
        {
            return Err(Refusal::new("job-open", format!("job {} is open", job.id)));
        }
        guard::may_open(self, node, &want, at.entry.at).map_err(|wait| Refusal::new("must-wait", wait.to_string()))?;
        want.services = self.scope_of(node, want.by.as_deref(), &want.services);
        let generation = self.source(node, &want.services);
        let (job_id, attempt_id) = (JobId(at.index), AttemptId(at.index));
        let attempt = Attempt {
            id: attempt_id,
            no: 1,
            opened: at.entry.at,
            why: "first attempt".to_owned(),
            runner: runner.clone(),
            phase: Phase::Fence,
            closed: None,
        };
        let job = Job {
            id: job_id,
            node: id,
            opened: at.entry.at,
            occasion: want.occasion,
            reasons: want.reasons.clone(),
            services: want.services.clone(),
            generation,
            by: want.by.clone(),
            now: want.now,
            decommission: want.decommission,
            force: want.force,
            undo: want.undo,
            vars: want.vars.clone(),
            rollout: want.rollout,
            state: JobState::Open,
            attempts: vec![attempt],
            failures: 0,
            retry_at: None,
            closed: None,
            result: None,
            attempts_dropped: 0,
            cut: false,
        };
        self.jobs.insert(job_id, Arc::new(job));
        self.trim_jobs();
        let node = self.change(id)?;
        node.want = None;
        node.altered = at.index;
        node.job = Some(job_id);
        if want.now {
            node.hold = None;
        }
        self.note(
            at,
            Some(id),
            Happening::JobOpened {
                job: job_id,
                services: want.services,
                reasons: want.reasons,
                generation,
                undo: want.undo,
            },
        );
        let opened = Happening::AttemptOpened {
            job: job_id,
            attempt: attempt_id,
            no: 1,
            runner: runner.clone(),
            why: "first attempt".into(),
        };
        self.note(at, Some(id), opened);
        Ok(Applied::Job(job_id, attempt_id))
    }

    fn next_attempt(&mut self, at: &At, id: JobId, after: AttemptId, runner: &NodeName, why: &str) -> Decision {
        let moment = at.entry.at;
        let job = self.job(id).ok_or_else(|| Refusal::new("unknown-job", format!("no job {id}")))?;
        if job.closed.is_some() || job.attempts.last().is_none_or(|a| a.id != after) {
            return Err(Refusal::new("attempt-superseded", "a later attempt was opened, or the job has ended"));
        }
        if job.open_attempt().is_none()
            && let Some(node) = self.node(job.node)
        {
            guard::Ground::new(self)
                .may_retry(node, job, moment)
                .map_err(|wait| Refusal::new("must-wait", wait.to_string()))?;
        }
        let node = self.node(job.node).ok_or_else(|| Refusal::new("unknown-node", format!("no node {}", job.node)))?;
        let services = self.scope_of(node, job.by.as_deref(), &job.services);
        let generation = self.source(node, &services);
        let job = self.change_job(id)?;
        job.state = JobState::Open;
        job.retry_at = None;
        (job.generation, job.services) = (generation, services);
        let no = job.attempts.last().map_or(1, |a| a.no + 1);
        let mut reached = None;
        if let Some(last) = job.attempts.last_mut().filter(|a| a.closed.is_none()) {
            last.closed = Some((moment, Outcome::Superseded(why.to_owned())));
            reached = Some(last.phase);
        }
        if job.attempts.len() >= 16 {
            job.attempts.remove(0);
            job.attempts_dropped += 1;
        }
        let attempt = AttemptId(at.index);
        job.attempts.push(Attempt {
            id: attempt,
            no,
            opened: moment,
            why: why.to_owned(),
            runner: runner.clone(),
            phase: Phase::Fence,
            closed: None,
        });
        let node = job.node;
        let changed = self.change(node)?;
        changed.altered = at.index;
        if let Some(phase) = reached {
            changed.fail(phase);
        }
        let what = Happening::AttemptOpened { job: id, attempt, no, runner: runner.clone(), why: why.to_owned() };
        self.note(at, Some(node), what);
        Ok(Applied::Job(id, attempt))
    }

    fn close_attempt(
        &mut self,
        at: &At,
        id: JobId,
        attempt_id: AttemptId,
        outcome: &Outcome,
        baseline: Option<&Baseline>,
        marks: Option<&Marks>,
    ) -> Decision {
        let limits = self.limits().clone();
        let moment = at.entry.at;
        let job = self.change_job(id)?;
        let (node_id, kind) = (job.node, job.kind());
        let attempt = open_attempt(job, attempt_id)?;
        if *outcome == Outcome::Done && attempt.phase.next(kind).is_some() {
            return Err(Refusal::new("wrong-phase", format!("an attempt in {} is not done", attempt.phase)));
        }
        if *outcome == Outcome::Done && kind == JobKind::Resetup && baseline.is_none() {
            return Err(Refusal::new("no-baseline", "a node that was set up has a baseline"));
        }
        attempt.closed = Some((moment, outcome.clone()));
        let undo = job.undo.zip(job.by.clone());
        let part = Some(job.services.clone()).filter(|part| kind == JobKind::Resetup && !part.is_empty());
        let mut failed = None;
        match outcome {
            Outcome::Done => {
                job.state = JobState::Done;
                job.closed = Some(moment);
            }
            Outcome::Failed(failure) => {
                failed = Some(failure.phase);
                let eats = failure.class == FailureClass::Step;
                job.failures += u32::from(eats);
                let wait = job.failures.checked_sub(1).and_then(|n| limits.retry_ms.get(n as usize));
                job.retry_at = if eats { wait.map(|ms| moment.after(*ms)) } else { Some(moment) };
            }
            Outcome::Superseded(_) | Outcome::Cancelled(_) => {}
        }
        let before = self.node(node_id).and_then(|n| n.baseline.clone());
        let baseline = baseline.map(|b| b.of_part(part.as_deref().unwrap_or_default(), before.as_ref()));
        if *outcome == Outcome::Done {
            self.change_job(id)?.result = baseline.clone();
        }
        // A job does not repair services outside its scope, so they are examined again. No job
        // repairs monitored services.
        let left = self.node(node_id).and_then(|n| n.finding.as_ref()).is_some_and(|finding| match &part {
            Some(part) => finding.beyond(part),
            None => kind == JobKind::Resetup && finding.drift_of(|service| self.watches(service)),
        });
        // The attempt's verification does not judge monitored services, so they are examined again.
        let looked_at = kind == JobKind::Resetup && self.looks_at(node_id);
        let node = self.change(node_id)?;
        node.altered = at.index;
        // An attempt that began before `trust-key` used the previous keys, so its failure says
        // nothing about the trusted ones.
        if let Outcome::Failed(Failure { class: FailureClass::HostKey, message, .. }) = outcome
            && attempt_id.0 > node.trusted
        {
            node.key_changed = Some(offered_in(message).unwrap_or(message).to_owned());
        }
        if *outcome == Outcome::Done {
            node.job = None;
            node.unknowns = 0;
            if let (Some(marks), None) = (marks, &node.absence) {
                node.marks = Some(marks.clone());
                node.seen = moment;
            }
            if let Some((undone, by)) = undo {
                node.undone(undone, &by, moment);
            } else {
                node.failed = None;
                node.hold = None;
                node.unseen = part.is_some() || left || looked_at;
                node.watched = false;
                // If the address changed during the attempt, the node was rendered with the old
                // address. A partial job does not repair an earlier change of address.
                let from = node.provisioned_at.take();
                let from = from.filter(|from| node.ip() != Some(from.as_str()));
                if part.is_none() {
                    node.moved = from.filter(|_| kind == JobKind::Resetup).map(|from| Moved { from, since: moment });
                }
                let root = baseline.as_ref().map(|b| b.root);
                node.baseline = baseline.filter(|_| kind == JobKind::Resetup);
                node.lifecycle =
                    if kind == JobKind::Resetup { Lifecycle::Commissioned } else { Lifecycle::Decommissioned };
                if !left {
                    node.is_right(root, moment);
                }
            }
        } else if let Some(phase) = failed {
            node.fail(phase);
        }
        self.note(
            at,
            Some(node_id),
            Happening::AttemptClosed { job: id, attempt: attempt_id, outcome: outcome.clone() },
        );
        if *outcome == Outcome::Done {
            self.note(at, Some(node_id), Happening::JobDone { job: id });
        }
        Ok(Applied::Done)
    }

    /// Closes a held job of this node and returns it.
    pub(super) fn end_held(&mut self, id: NodeId, moment: Wall) -> Result<Option<Arc<Job>>, Refusal> {
        let known = self.node(id).and_then(|n| n.job);
        let Some(job) = known.filter(|j| self.job(*j).is_some_and(|j| j.state == JobState::Held)) else {
            return Ok(None);
        };
        self.change(id)?.job = None;
        let held = self.change_job(job)?;
        held.state = JobState::Cancelled;
        held.closed = Some(moment);
        Ok(self.jobs.get(&job).cloned())
    }

    fn change_job(&mut self, id: JobId) -> Result<&mut Job, Refusal> {
        self.jobs
            .get_mut(&id)
            .map(Arc::make_mut)
            .ok_or_else(|| Refusal::new("unknown-job", format!("no job has the number {id}")).next("remoor job list"))
    }

    fn trim_jobs(&mut self) {
        let closed: Vec<JobId> = self.jobs.values().filter(|j| j.closed.is_some()).map(|j| j.id).collect();
        for id in closed.iter().take(closed.len().saturating_sub(JOBS_KEPT)) {
            self.jobs.remove(id);
        }
    }
}

/// The fingerprint that a failed login was offered. It is the last one in the message, because the
/// expected ones come first.
fn offered_in(message: &str) -> Option<&str> {
    let print = &message[message.rfind("SHA256:")?..];
    print.strip_suffix(" was offered").filter(|p| p.len() == 7 + 43)
}

fn open_attempt(job: &mut Job, id: AttemptId) -> Result<&mut Attempt, Refusal> {
    match job.attempts.last_mut() {
        Some(attempt) if attempt.id == id && attempt.closed.is_none() => Ok(attempt),
        _ => Err(Refusal::new("attempt-closed", format!("attempt {id} is not the open one"))),
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
