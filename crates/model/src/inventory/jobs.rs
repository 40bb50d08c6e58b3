//! Entries about re-setups: requests, jobs, attempts, phases.

use super::*;

impl Inventory {
    pub(super) fn job_entry(&mut self, at: &ApplyContext) -> Decision {
        match at.command {
            Command::RequestResetup { node, want } => self.request_resetup(at, *node, want),
            Command::DropRequest { node, why } => {
                let (id, moment) = (*node, at.entry.at);
                let changed = self.change(id)?;
                let Some(want) = changed.pending_resetup.take() else {
                    return Err(Refusal::new("nothing-wanted", "no re-setup is waiting"));
                };
                if want.spec.decommission && changed.availability == Availability::Drain {
                    changed.availability = Availability::Active;
                }
                if want.spec.undo.is_none()
                    && matches!(changed.lifecycle, Lifecycle::Commissioning | Lifecycle::Decommissioning)
                {
                    changed.restore_lifecycle(why);
                }
                if want.spec.by.is_none() {
                    let why = "its waiting re-setup was called off".to_owned();
                    changed.hold = Some(Hold { why, since: moment, until: None });
                }
                self.note(at, Some(id), JournalEvent::WantDropped { why: why.clone() });
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
                changed.examination.invalidated_at_index = at.index;
                if phase == Phase::Provision {
                    changed.setup.provisioned_at = changed.ip().map(str::to_owned);
                }
                self.note(at, Some(node), JournalEvent::Phase { job: id, attempt: attempt_id, phase });
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
                self.note(at, Some(node), JournalEvent::JobHeld { job: id, why: why.clone() });
                Ok(Applied::Done)
            }
            Command::CancelJob { job, why, now } => self.cancel_job(at, *job, why, *now),
            other => unreachable!("{other:?} is no entry about a job"),
        }
    }

    /// Records a request for a re-setup. It waits until all preconditions are met.
    pub(super) fn request_resetup(&mut self, at: &ApplyContext, id: NodeId, want: &ResetupRequest) -> Decision {
        let spec = &want.spec;
        let known = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node {id}")))?;
        if let Some(attempt) = spec.undo {
            self.may_undo(known, attempt)?;
        }
        self.check_partial(known, spec)?;
        if known.availability == Availability::Drain && !spec.decommission {
            let text = format!("{} is drained: nothing is provisioned on it", known.name());
            return Err(Refusal::new("drained", text).next(format!("remoor resume {}", known.name())));
        }
        let out = matches!(known.lifecycle, Lifecycle::Decommissioning | Lifecycle::Decommissioned);
        if out && !spec.decommission && !want.commission {
            let text = format!("{} is {}, so it is not set up again", known.name(), known.lifecycle.as_str());
            return Err(Refusal::new("decommissioned", text).next(format!("remoor commission {}", known.name())));
        }
        if spec.decommission && known.lifecycle == Lifecycle::Decommissioned {
            let text = format!("{} is decommissioned already", known.name());
            return Err(Refusal::new("decommissioned", text));
        }
        if spec.by.is_none() && (known.pending_resetup.is_some() || known.job.is_some()) {
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
        self.close_held_job(id, at.entry.at)?;
        let node = self.change(id)?;
        node.pending_resetup = Some(want.clone());
        node.lifecycle = match (spec.decommission, node.lifecycle) {
            (_, lifecycle) if spec.undo.is_some() => lifecycle,
            (true, _) => Lifecycle::Decommissioning,
            (false, Lifecycle::Commissioned) => Lifecycle::Commissioned,
            (false, _) => Lifecycle::Commissioning,
        };
        let (services, operator) = (spec.services.clone(), spec.by.clone());
        self.note(at, Some(id), JournalEvent::Wanted { services, operator, undo: spec.undo });
        Ok(Applied::Done)
    }

    /// Refuses a request for some services if the node can only be set up as a whole.
    fn check_partial(&self, node: &Node, spec: &JobSpec) -> Result<(), Refusal> {
        let name = node.name();
        if spec.services.is_empty() {
            return Ok(());
        }
        if node.setup.baseline.is_none() {
            let text = format!("{name} was never set up as a whole");
            return Err(Refusal::new("not-set-up", text).next(format!("remoor commission {name}")));
        }
        if let Some(own) = self.own_address_change(node).filter(|_| spec.by.is_some()) {
            let text = format!(
                "{name} was set up for address {}; it must be set up as a whole for its current address",
                own.from
            );
            return Err(Refusal::new("moved", text).next(format!("remoor resetup {name}")));
        }
        Ok(())
    }

    /// The services of a job when it begins. An automatic job sets up the whole node if the node's
    /// address changed.
    fn scope_of(&self, node: &Node, spec: &JobSpec) -> Vec<ServiceName> {
        let whole = spec.by.is_none() && self.own_address_change(node).is_some();
        if whole { Vec::new() } else { spec.services.clone() }
    }

    fn cancel_job(&mut self, at: &ApplyContext, id: JobId, why: &str, now: bool) -> Decision {
        let moment = at.entry.at;
        let job = self.change_job(id)?;
        let node = job.node;
        let cancelled =
            matches!(job.attempts.last(), Some(Attempt { closed: Some((_, AttemptOutcome::Cancelled(_))), .. }));
        if job.closed.is_some() && now && cancelled && !job.end_task_now {
            job.end_task_now = true;
            self.note(at, Some(node), JournalEvent::JobCancelled { job: id, why: why.to_owned() });
            return Ok(Applied::Done);
        }
        if job.closed.is_some() {
            return Err(Refusal::new("job-closed", format!("job {id} has ended")));
        }
        let mut reached = None;
        if let Some(attempt) = job.attempts.last_mut().filter(|a| a.closed.is_none()) {
            attempt.closed = Some((moment, AttemptOutcome::Cancelled(why.to_owned())));
            reached = Some(attempt.phase);
        }
        job.state = JobState::Cancelled;
        job.closed = Some(moment);
        job.end_task_now = now;
        let changed = self.change(node)?;
        changed.job = None;
        changed.examination.invalidated_at_index = at.index;
        if let Some(phase) = reached {
            changed.record_failure(phase);
        }
        changed.hold = Some(Hold { why: format!("job {id} was cancelled"), since: moment, until: None });
        self.note(at, Some(node), JournalEvent::JobCancelled { job: id, why: why.to_owned() });
        Ok(Applied::Done)
    }

    fn open_job(&mut self, at: &ApplyContext, id: NodeId, runner: &NodeName) -> Decision {
        let node = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node {id}")))?;
        let Some(ResetupRequest { spec, .. }) = &node.pending_resetup else {
            return Err(Refusal::new("nothing-wanted", "no re-setup is waiting"));
        };
        if let Some(job) = node.job.and_then(|j| self.job(j))
            && job.state == JobState::Open
        {
            return Err(Refusal::new("job-open", format!("job {} is open", job.id)));
        }
        guard::may_open(self, node, spec, at.entry.at).map_err(|wait| Refusal::new("must-wait", wait.to_string()))?;
        let spec = JobSpec { services: self.scope_of(node, spec), ..spec.clone() };
        let generation = self.source_generation(node, &spec.services);
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
            spec: spec.clone(),
            generation,
            state: JobState::Open,
            attempts: vec![attempt],
            failures: 0,
            retry_at: None,
            closed: None,
            result: None,
            attempts_dropped: 0,
            end_task_now: false,
        };
        self.jobs.insert(job_id, Arc::new(job));
        self.trim_jobs();
        let node = self.change(id)?;
        node.pending_resetup = None;
        node.examination.invalidated_at_index = at.index;
        node.job = Some(job_id);
        if spec.now {
            node.hold = None;
        }
        self.note(
            at,
            Some(id),
            JournalEvent::JobOpened {
                job: job_id,
                services: spec.services,
                reasons: spec.reasons,
                generation,
                undo: spec.undo,
            },
        );
        let opened = JournalEvent::AttemptOpened {
            job: job_id,
            attempt: attempt_id,
            no: 1,
            runner: runner.clone(),
            why: "first attempt".into(),
        };
        self.note(at, Some(id), opened);
        Ok(Applied::Job(job_id, attempt_id))
    }

    fn next_attempt(
        &mut self,
        at: &ApplyContext,
        id: JobId,
        after: AttemptId,
        runner: &NodeName,
        why: &str,
    ) -> Decision {
        let moment = at.entry.at;
        let job = self.job(id).ok_or_else(|| Refusal::new("unknown-job", format!("no job {id}")))?;
        if job.closed.is_some() || job.attempts.last().is_none_or(|a| a.id != after) {
            return Err(Refusal::new("attempt-superseded", "a later attempt was opened, or the job has ended"));
        }
        if job.open_attempt().is_none()
            && let Some(node) = self.node(job.node)
        {
            guard::FleetView::new(self)
                .may_retry(node, job, moment)
                .map_err(|wait| Refusal::new("must-wait", wait.to_string()))?;
        }
        let node = self.node(job.node).ok_or_else(|| Refusal::new("unknown-node", format!("no node {}", job.node)))?;
        let services = self.scope_of(node, &job.spec);
        let generation = self.source_generation(node, &services);
        let job = self.change_job(id)?;
        job.state = JobState::Open;
        job.retry_at = None;
        (job.generation, job.spec.services) = (generation, services);
        let no = job.attempts.last().map_or(1, |a| a.no + 1);
        let mut reached = None;
        if let Some(last) = job.attempts.last_mut().filter(|a| a.closed.is_none()) {
            last.closed = Some((moment, AttemptOutcome::Superseded(why.to_owned())));
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
        changed.examination.invalidated_at_index = at.index;
        if let Some(phase) = reached {
            changed.record_failure(phase);
        }
        let what = JournalEvent::AttemptOpened { job: id, attempt, no, runner: runner.clone(), why: why.to_owned() };
        self.note(at, Some(node), what);
        Ok(Applied::Job(id, attempt))
    }

    fn close_attempt(
        &mut self,
        at: &ApplyContext,
        id: JobId,
        attempt: AttemptId,
        outcome: &AttemptOutcome,
        baseline: Option<&Baseline>,
        marks: Option<&HostFingerprint>,
    ) -> Decision {
        let closed = self.close_attempt_of_job(at, id, attempt, outcome, baseline)?;
        let node = closed.node;
        self.update_node_after_attempt(at, closed, marks)?;
        self.note(at, Some(node), JournalEvent::AttemptClosed { job: id, attempt, outcome: outcome.clone() });
        if *outcome == AttemptOutcome::Done {
            self.note(at, Some(node), JournalEvent::JobDone { job: id });
        }
        Ok(Applied::Done)
    }

    /// The first half of [`Self::close_attempt`]. It changes only the job.
    fn close_attempt_of_job<'a>(
        &mut self,
        at: &ApplyContext,
        id: JobId,
        attempt_id: AttemptId,
        outcome: &'a AttemptOutcome,
        baseline: Option<&Baseline>,
    ) -> Result<ClosedAttempt<'a>, Refusal> {
        let limits = self.limits().clone();
        let moment = at.entry.at;
        let job = self.change_job(id)?;
        let (node, kind) = (job.node, job.kind());
        let attempt = open_attempt(job, attempt_id)?;
        if *outcome == AttemptOutcome::Done && attempt.phase.next(kind).is_some() {
            return Err(Refusal::new("wrong-phase", format!("an attempt in {} is not done", attempt.phase)));
        }
        if *outcome == AttemptOutcome::Done && kind == JobKind::Resetup && baseline.is_none() {
            return Err(Refusal::new("no-baseline", "a node that was set up has a baseline"));
        }
        attempt.closed = Some((moment, outcome.clone()));
        let undo = job.spec.undo.zip(job.spec.by.clone());
        let part = Some(job.spec.services.clone()).filter(|part| kind == JobKind::Resetup && !part.is_empty());
        match outcome {
            AttemptOutcome::Done => {
                job.state = JobState::Done;
                job.closed = Some(moment);
            }
            AttemptOutcome::Failed(failure) => {
                let counts = failure.class == FailureClass::Step;
                job.failures += u32::from(counts);
                let wait = job.failures.checked_sub(1).and_then(|n| limits.retry_ms.get(n as usize));
                job.retry_at = if counts { wait.map(|ms| moment.plus_ms(*ms)) } else { Some(moment) };
            }
            AttemptOutcome::Superseded(_) | AttemptOutcome::Cancelled(_) => {}
        }
        let before = self.node(node).and_then(|n| n.setup.baseline.clone());
        let baseline = baseline.map(|b| b.of_part(part.as_deref().unwrap_or_default(), before.as_ref()));
        if *outcome == AttemptOutcome::Done {
            self.change_job(id)?.result = baseline.clone();
        }
        Ok(ClosedAttempt { id: attempt_id, node, kind, outcome, undo, part, baseline })
    }

    /// The second half of [`Self::close_attempt`]. It changes only the node.
    fn update_node_after_attempt(
        &mut self,
        at: &ApplyContext,
        closed: ClosedAttempt,
        marks: Option<&HostFingerprint>,
    ) -> Result<(), Refusal> {
        let (moment, kind) = (at.entry.at, closed.kind);
        // A job does not repair services outside its scope, and no job repairs monitored services.
        // Such services are examined again if they drifted.
        let drift_remains =
            self.node(closed.node).and_then(|n| n.examination.finding.as_ref()).is_some_and(|finding| {
                match &closed.part {
                    Some(part) => finding.affects_others(part),
                    None => kind == JobKind::Resetup && finding.drift_of(|service| self.is_monitor_only(service)),
                }
            });
        // The attempt's verification does not judge monitored services, so they are examined again.
        let unjudged = kind == JobKind::Resetup && self.has_monitor_only_service(closed.node);
        let node = self.change(closed.node)?;
        node.examination.invalidated_at_index = at.index;
        // An attempt that began before `trust-key` expected the previous SSH host keys. So its
        // failure proves nothing about the trusted keys.
        if let AttemptOutcome::Failed(Failure { class: FailureClass::HostKey, message, .. }) = closed.outcome
            && closed.id.0 > node.host_key.trusted_at_index
        {
            node.host_key.changed = Some(offered_fingerprint(message).unwrap_or(message).to_owned());
        }
        match closed.outcome {
            AttemptOutcome::Done => {
                node.job = None;
                node.examination.consecutive_inconclusive = 0;
                if let (Some(marks), None) = (marks, &node.absence) {
                    node.examination.last_identity = Some(marks.clone());
                    node.examination.seen = moment;
                }
                if let Some((undone, by)) = &closed.undo {
                    node.mark_undone(*undone, by, moment);
                } else {
                    node.examination.needs_examination = closed.part.is_some() || drift_remains || unjudged;
                    node.mark_job_done(closed, drift_remains, moment);
                }
            }
            AttemptOutcome::Failed(failure) => node.record_failure(failure.phase),
            AttemptOutcome::Superseded(_) | AttemptOutcome::Cancelled(_) => {}
        }
        Ok(())
    }

    /// Closes a held job of this node and returns it.
    pub(super) fn close_held_job(&mut self, id: NodeId, moment: Wall) -> Result<Option<Arc<Job>>, Refusal> {
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

/// An attempt that was closed in its job, and the facts that change its node.
struct ClosedAttempt<'a> {
    id: AttemptId,
    node: NodeId,
    kind: JobKind,
    outcome: &'a AttemptOutcome,
    /// The attempt that the job undid, and the operator who ordered the undo.
    undo: Option<(AttemptId, String)>,
    /// The services of a job about some services. None if the job concerned the whole node.
    part: Option<Vec<ServiceName>>,
    baseline: Option<Baseline>,
}

impl Node {
    /// Records that a re-setup or a decommissioning succeeded.
    fn mark_job_done(&mut self, closed: ClosedAttempt, drift_remains: bool, moment: Wall) {
        let resetup = closed.kind == JobKind::Resetup;
        self.failed = None;
        self.hold = None;
        self.setup.adopted_only = false;
        // If the node's address changed during the attempt, the node's files were rendered with the
        // old address. A partial job does not repair an earlier change of the address.
        let from = self.setup.provisioned_at.take();
        let from = from.filter(|from| self.ip() != Some(from.as_str()));
        if closed.part.is_none() {
            self.setup.address_change = from.filter(|_| resetup).map(|from| AddressChange { from, since: moment });
        }
        let root = closed.baseline.as_ref().map(|b| b.root);
        self.setup.baseline = closed.baseline.filter(|_| resetup);
        self.lifecycle = if resetup { Lifecycle::Commissioned } else { Lifecycle::Decommissioned };
        if !drift_remains {
            self.mark_as_desired(root, moment);
        }
    }
}

/// The fingerprint of the SSH host key that the node offered in a failed login. It is the last
/// fingerprint in the message, because the expected ones come first.
fn offered_fingerprint(message: &str) -> Option<&str> {
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
