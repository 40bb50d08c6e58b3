//! Runs attempts. Each attempt has one task, and one SSH session from the fence to the
//! verification.

use super::ansible::{self, AnsibleRun, EndOnDrop, PlayError};
use super::attempt_error::{nothing_run, plan, session_lost, ssh, step, too_long, unexpected_reply};
use super::cleanup_verification::{CleanupExpectation, taken_down};
use super::context::known_in;
use super::examine::{self, PreparedExam, Sent};
use super::{ManagerContext, wall};
use crate::fleet::{self, PlanScope, RenderedContent};
use remoor_cluster::rpc::view::StreamItem;
use remoor_config::Fleet;
use remoor_engine::{EngineEvent, PhaseResult, Verified, observed_fingerprint, reported_fingerprint};
use remoor_exec::ssh::Session;
use remoor_exec::wire::{self, ExecutorOrder, Reply, RunOrder};
use remoor_model::{
    AttemptId, Baseline, Failure, Fault, Fence, Generation, Job, JobId, NodeDigest, NodeId, Phase, Record, ServiceName,
    Sha256, error_with_causes,
};
use remoor_playbook::{CancelToken, Secrets};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Maximum time that a fence order waits for a `remoor play` that currently works on the node.
const PLAY_WAIT_MAX: Duration = Duration::from_secs(100);
const FENCE_TIMEOUT: Duration = Duration::from_secs(120);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const CLEANED_TIMEOUT: Duration = Duration::from_secs(60);
const UNDO_TIMEOUT: Duration = Duration::from_secs(300);
/// The manager waits for the executor's answer until the executor's own time limit and this
/// additional time are over. Then it gives the session up.
const SLACK: Duration = Duration::from_secs(20);

/// How an attempt ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AttemptEnd {
    Not,
    AfterTask,
    Now,
}

struct Running {
    phases: mpsc::UnboundedSender<Phase>,
    ending: watch::Sender<AttemptEnd>,
    task: JoinHandle<()>,
}

pub struct Attempts {
    shared: Arc<ManagerContext>,
    events: mpsc::UnboundedSender<EngineEvent>,
    running: BTreeMap<AttemptId, Running>,
    /// Attempts that were told to end and whose tasks may still run.
    ending: BTreeMap<AttemptId, (watch::Sender<AttemptEnd>, JoinHandle<()>)>,
}

impl Attempts {
    pub fn new(shared: Arc<ManagerContext>, events: mpsc::UnboundedSender<EngineEvent>) -> Self {
        ansible::sweep(&shared.runs);
        Self { shared, events, running: BTreeMap::new(), ending: BTreeMap::new() }
    }

    /// Starts `phase` of an attempt that is committed and open.
    pub fn run(&mut self, job: JobId, attempt: AttemptId, phase: Phase, node: NodeId) {
        let running = self.running.entry(attempt).or_insert_with(|| {
            let (phases, rx) = mpsc::unbounded_channel();
            let (ending, told) = watch::channel(AttemptEnd::Not);
            let (shared, events, facts) = (self.shared.clone(), self.events.clone(), examine::Facts::new());
            let (secret, python_plan, frozen, session) = (Vec::new(), None, None, None);
            let work =
                Work { shared, events, job, attempt, node, ending: told, session, facts, secret, python_plan, frozen };
            Running { phases, ending, task: tokio::spawn(work.serve(rx)) }
        });
        let _ = running.phases.send(phase);
    }

    /// Ends a closed attempt and its session. The current task may finish, unless `now` is set.
    pub fn stop(&mut self, attempt: AttemptId, now: bool) {
        self.ending.retain(|_, (_, task)| !task.is_finished());
        if let Some(running) = self.running.remove(&attempt) {
            self.ending.insert(attempt, (running.ending, running.task));
        }
        let Some((ending, _)) = self.ending.get(&attempt) else { return };
        let wanted = if now { AttemptEnd::Now } else { AttemptEnd::AfterTask };
        ending.send_modify(|ending| *ending = wanted.max(*ending));
    }

    pub fn stop_all(&mut self) {
        let ending = std::mem::take(&mut self.ending).into_values().map(|(_, task)| task);
        for task in std::mem::take(&mut self.running).into_values().map(|r| r.task).chain(ending) {
            task.abort();
        }
    }
}

struct Work {
    shared: Arc<ManagerContext>,
    events: mpsc::UnboundedSender<EngineEvent>,
    job: JobId,
    attempt: AttemptId,
    node: NodeId,
    ending: watch::Receiver<AttemptEnd>,
    session: Option<Session>,
    /// Facts of the node that this attempt's provisioning gathered.
    facts: examine::Facts,
    /// Globs of the paths that the phases of this attempt declare secret.
    secret: Vec<String>,
    /// The serialized provisioning plan, without blobs, if the node needs Python for it. The node
    /// checks it before the cleanup begins.
    python_plan: Option<Vec<u8>>,
    /// The addresses and roles that the provisioning used for rendering, and the hash of the
    /// desired state. The verification uses the same values. If an address changes between the two,
    /// a later job handles the change.
    frozen: Option<(fleet::ClusterContext, Sha256)>,
}

/// The work of one phase of an attempt, and the input from which it was compiled.
struct Made {
    fleet: Arc<Fleet>,
    host: String,
    scope: PlanScope,
    known: fleet::ClusterContext,
    /// Hash of the desired state, from the same inventory as `known`.
    desired: Sha256,
    work: fleet::PhaseWork,
}

impl Work {
    async fn serve(mut self, mut phases: mpsc::UnboundedReceiver<Phase>) {
        while let Some(phase) = phases.recv().await {
            let begun = std::time::Instant::now();
            let ending = *self.ending.borrow() != AttemptEnd::Not;
            let done = match ending {
                true => Err(step(phase, None, "cancelled before it began".to_owned(), Vec::new())),
                false => self.phase(phase).await,
            };
            let result = match done {
                Ok(result) => result,
                Err(failure) => PhaseResult::Failed(*failure),
            };
            tracing::info!(job = %self.job, attempt = %self.attempt, %phase, ms = begun.elapsed().as_millis() as u64, "phase ended");
            let event = EngineEvent::Ran { job: self.job, attempt: self.attempt, phase, result: Box::new(result) };
            if self.events.send(event).is_err() {
                break;
            }
        }
        if let Some(mut session) = self.session.take() {
            let close = ExecutorOrder::Close { fence: self.fence_token(), done: self.is_done() };
            let _ = session.order(close, &mut |_| {}, CLOSE_TIMEOUT).await; // after an error, the executor ends with the session
            session.close().await;
        }
    }

    async fn phase(&mut self, phase: Phase) -> Result<PhaseResult, Box<Failure>> {
        let inventory = self.shared.inventory();
        let job = inventory.jobs.get(&self.job).cloned().ok_or_else(|| plan(phase, "the job no longer exists"))?;
        let current = inventory.generations.get(&job.generation).cloned();
        let current = current.ok_or_else(|| plan(phase, "the generation of the job no longer exists"))?;
        let node = inventory.nodes.get(&self.node).cloned().ok_or_else(|| plan(phase, "the node is gone"))?;
        let applied = node.setup.baseline.as_ref().and_then(|b| inventory.generations.get(&b.generation)).cloned();
        let before = applied.unwrap_or_else(|| current.clone());
        let limit = Duration::from_millis(inventory.limits().phase_timeout_ms);
        match phase {
            Phase::Fence => {
                if job.spec.undo.is_none() {
                    self.may_begin(&job, &before, &current).await?;
                }
                self.fence(phase, &job).await
            }
            Phase::Cleanup => self.run(phase, &job, &before, limit).await,
            Phase::Cleaned => self.verify_cleanup(phase, &job, &before).await,
            Phase::Provision => self.run(phase, &job, &current, limit).await,
            Phase::Verify => self.verify(phase, &job, current).await,
            Phase::Undo => self.undo(phase, &job).await,
        }
    }

    fn is_done(&self) -> bool {
        self.shared.inventory().job(self.job).is_some_and(|j| j.state == remoor_model::JobState::Done)
    }

    fn fence_token(&self) -> Fence {
        Fence {
            cluster: self.shared.identity.cluster.clone(),
            epoch: self.shared.inventory().epoch,
            attempt: self.attempt,
        }
    }

    async fn fence(&mut self, phase: Phase, job: &Job) -> Result<PhaseResult, Box<Failure>> {
        let target = examine::target(&self.shared, self.node).await.map_err(|e| plan(phase, &e.to_string()))?;
        let session = self.shared.remote.open(&target).await.map_err(|e| ssh(phase, e))?;
        self.session = Some(session);
        let order = ExecutorOrder::Fence {
            fence: self.fence_token(),
            node: target.node.clone(),
            job: job.id,
            timeout_ms: PLAY_WAIT_MAX.as_millis() as u64,
        };
        match self.ask(phase, order, &mut |_| {}, FENCE_TIMEOUT).await? {
            Reply::Fenced { ended } => {
                if let Some(ended) = ended {
                    tracing::warn!(job = %self.job, attempt = %self.attempt, %ended, "an older run was ended by the fence");
                }
                self.check_python(phase).await
            }
            Reply::Refused { why, .. } => {
                Err(step(phase, None, format!("the node refused the fence: {why}"), Vec::new()))
            }
            other => Err(unexpected_reply(phase, &other)),
        }
    }

    /// Checks on the node that it has the Python that the provisioning plan needs. After a cleanup
    /// this would be too late.
    async fn check_python(&mut self, phase: Phase) -> Result<PhaseResult, Box<Failure>> {
        let Some(plan) = self.python_plan.take() else { return Ok(PhaseResult::Ok) };
        let order = ExecutorOrder::CheckPlan { fence: self.fence_token(), plan };
        match self.ask(phase, order, &mut |_| {}, FENCE_TIMEOUT).await? {
            Reply::PlanChecked { refused: None } => Ok(PhaseResult::Ok),
            Reply::PlanChecked { refused: Some(why) } => {
                Err(step(phase, None, nothing_run(Phase::Provision, &why), Vec::new()))
            }
            Reply::Refused { why, .. } => Err(step(phase, None, format!("the node refused: {why}"), Vec::new())),
            other => Err(unexpected_reply(phase, &other)),
        }
    }

    async fn run(
        &mut self,
        phase: Phase,
        job: &Job,
        generation: &Arc<Generation>,
        limit: Duration,
    ) -> Result<PhaseResult, Box<Failure>> {
        let made = self.work(phase, job, generation).await.map_err(|text| plan(phase, &text))?;
        if phase == Phase::Provision {
            self.frozen = Some((made.known, made.desired));
        }
        let (compiled, protect) = match made.work {
            fleet::PhaseWork::Plan { plan, protect, secret } => {
                self.secret.extend(secret);
                (plan, protect)
            }
            // Ansible uses the current inventory. The files that it writes count as recorded, not
            // as rendered.
            fleet::PhaseWork::Ansible { playbook, tags } => {
                let play = self.play((made.fleet, made.host, made.scope), playbook, tags, limit);
                return self.ansible(phase, play).await;
            }
        };
        let bytes = rmp_serde::to_vec_named(&compiled).map_err(|e| plan(phase, &e.to_string()))?;
        let half = if phase == Phase::Cleanup { wire::RunPhase::Cleanup } else { wire::RunPhase::Provision };
        let tags = job.spec.services.iter().map(ToString::to_string).collect();
        let timeout_ms = limit.as_millis() as u64;
        self.secret.sort();
        self.secret.dedup();
        let (fence, secret) = (self.fence_token(), self.secret.clone());
        let mut secrets = Secrets::new(&secret);
        secrets.set_plan(&compiled.secrets);
        let order = ExecutorOrder::Run(RunOrder { fence, phase: half, plan: bytes, protect, secret, tags, timeout_ms });
        let mut log = super::blobs::AttemptLog::open(&self.shared, self.attempt);
        let (shared, job_id, attempt) = (self.shared.clone(), self.job.0, self.attempt.0);
        let mut tail: Vec<String> = Vec::new();
        let mut on_event = |reply: Reply| {
            if let Reply::Event { event } = reply
                && let Ok(mut event) = serde_json::from_slice::<serde_json::Value>(&event)
            {
                secrets.strip(&mut event);
                if let Some(line) = event.get("line").and_then(|l| l.as_str()) {
                    tail.push(line.to_owned());
                    if tail.len() > 20 {
                        tail.remove(0);
                    }
                }
                let item = StreamItem::Task { job: job_id, attempt, phase: phase.as_str().to_owned(), event };
                log.line(&item);
                shared.published.emit(item);
            }
        };
        match self.ask(phase, order, &mut on_event, limit + SLACK).await? {
            Reply::RunEnd(end) => match end.get("failure").filter(|f| !f.is_null()) {
                None if end.get("cancelled").and_then(|c| c.as_bool()) == Some(true) => {
                    Err(step(phase, None, format!("the run was cancelled{}", too_long(&end, limit)), tail))
                }
                None => {
                    if phase == Phase::Provision {
                        self.facts = end.get("facts").and_then(|f| f.as_object()).cloned().unwrap_or_default();
                    }
                    Ok(PhaseResult::Ok)
                }
                Some(failure) => {
                    let text = |key: &str| failure.get(key).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
                    let rc = failure.get("rc").and_then(|v| v.as_i64()).map(|rc| rc as i32);
                    let line = failure.get("line").and_then(|v| v.as_u64()).unwrap_or(0);
                    let message = format!("{}:{line}: {}: {}", text("file"), text("task"), text("message"))
                        + &too_long(&end, limit);
                    let lines = failure.get("tail").and_then(|t| t.as_array()).cloned().unwrap_or_default();
                    let lines: Vec<String> = lines.iter().filter_map(|l| l.as_str()).map(str::to_owned).collect();
                    Err(step(phase, rc, message, if lines.is_empty() { tail } else { lines }))
                }
            },
            Reply::Refused { why, .. } => Err(step(phase, None, format!("the node refused: {why}"), Vec::new())),
            other => Err(unexpected_reply(phase, &other)),
        }
    }

    /// The addresses, roles and variables with which the installed configuration was rendered. The
    /// cleanup removes that configuration, so it needs the same values.
    async fn known_before(&self) -> fleet::ClusterContext {
        let recorded = self.load_record(Phase::Fence).await.ok().flatten().and_then(|r| r.known);
        recorded.unwrap_or_else(|| self.shared.render_context())
    }

    /// The record of the node's baseline from before this attempt; None if the node has no
    /// baseline.
    async fn load_record(&self, phase: Phase) -> Result<Option<Record>, Box<Failure>> {
        let inventory = self.shared.inventory();
        let node = inventory.nodes.get(&self.node).ok_or_else(|| plan(phase, "the node is gone"))?;
        examine::load_record(&self.shared, node).await.map_err(|why| {
            let next = "the job continues once a manager that holds it answers";
            step(phase, None, format!("the record of the node can't be read: {why}; {next}"), Vec::new())
        })
    }

    /// Compiles the work of `phase`. The error contains the text of every error in the fleet's
    /// files.
    async fn work(&self, phase: Phase, job: &Job, generation: &Arc<Generation>) -> Result<Made, String> {
        super::blobs::ensure(&self.shared, &generation.blob).await;
        let inventory = self.shared.inventory();
        let node = inventory.nodes.get(&self.node).cloned().ok_or("the node is gone")?;
        let host = node.name().to_string();
        let same = inventory.generations.get(&generation.seq).unwrap_or(generation);
        let desired = same.desired_hash(node.name()).unwrap_or_default();
        let known = known_in(phase, job, self.known_before().await, &inventory);
        let mut extra: serde_json::Map<_, _> = known.vars.clone().into_iter().collect();
        let own = serde_json::json!({
            "remoor_job": self.job.0,
            "remoor_attempt": self.attempt.0,
            "remoor_phase": phase.as_str(),
            "remoor_services": job.spec.services,
        });
        extra.extend(own.as_object().cloned().unwrap_or_default());
        let scope = PlanScope { services: job.spec.services.clone(), extra };
        let (shared, generation) = (self.shared.clone(), generation.clone());
        let compiled = tokio::task::spawn_blocking(move || {
            let fleet = shared.fleets.fleet(&generation).map_err(|e| e.to_string())?;
            let work = fleet::work(&fleet, &host, &known, phase, &scope);
            let joined = |faults: Vec<Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            let work = work.map_err(joined)?;
            Ok(Made { fleet, host, scope, known, desired, work })
        });
        compiled.await.map_err(|_| "compiling ended early".to_owned())?
    }

    /// Checks before the fence that cleanup and provisioning are possible, and that the record of
    /// the node's baseline can be read. Without the record, the drift of services outside the job
    /// would become part of the new baseline. Changes nothing.
    async fn may_begin(
        &mut self,
        job: &Job,
        before: &Arc<Generation>,
        current: &Arc<Generation>,
    ) -> Result<(), Box<Failure>> {
        if !job.spec.decommission {
            self.load_record(Phase::Fence).await?;
        }
        let phases = [(Phase::Cleanup, before), (Phase::Provision, current)];
        for (phase, generation) in phases.into_iter().take(if job.spec.decommission { 1 } else { 2 }) {
            let made = self.work(phase, job, generation).await;
            let why = |text: String| plan(Phase::Fence, &nothing_run(phase, &text));
            let made = made.map_err(why)?;
            match made.work {
                fleet::PhaseWork::Plan { plan: mut compiled, secret, .. } => {
                    self.secret.extend(secret);
                    if !compiled.modules.is_empty() {
                        compiled.blobs.clear();
                        self.python_plan = Some(rmp_serde::to_vec_named(&compiled).map_err(|e| why(e.to_string()))?);
                    }
                }
                fleet::PhaseWork::Ansible { playbook, tags } => {
                    let play = self.play((made.fleet, made.host, made.scope), playbook, tags, Duration::ZERO);
                    // The cleanup uses the playbook of the installed generation, which can't be
                    // corrected any more, so its syntax is not checked. A native cleanup playbook
                    // is handled in the same way.
                    self.ready(play, phase == Phase::Provision).await.map_err(why)?;
                }
            }
        }
        Ok(())
    }

    fn play(
        &self,
        (fleet, host, scope): (Arc<Fleet>, String, PlanScope),
        playbook: String,
        tags: Vec<String>,
        timeout: Duration,
    ) -> AnsibleRun {
        let known = ansible::ansible_nodes(self.shared.inventory().nodes.values(), &fleet);
        let mark = self.fence_token().mark(&host.as_str().into());
        let keys = self.shared.keys.play_keys();
        AnsibleRun { fleet, host, playbook, tags, extra: scope.extra, known, keys, mark, timeout }
    }

    /// Checks that this manager's Ansible can run `play`. The error contains the reason why it
    /// can't.
    async fn ready(&self, play: AnsibleRun, syntax: bool) -> Result<(), String> {
        let cancel = CancelToken::new();
        let _guard = EndOnDrop(cancel.clone());
        let runs = self.shared.runs.clone();
        let asked = tokio::task::spawn_blocking(move || ansible::check_ready(&play, syntax, &runs, &cancel)).await;
        asked.map_err(|_| "a task of this manager ended early".to_owned())?.map_err(|error| error_with_causes(&error))
    }

    /// Runs Ansible while the executor's session holds the fence. If the session is lost, the run
    /// is ended.
    async fn ansible(&mut self, phase: Phase, play: AnsibleRun) -> Result<PhaseResult, Box<Failure>> {
        let cancel = CancelToken::new();
        let guard = EndOnDrop(cancel.clone());
        let (shared, job, attempt) = (self.shared.clone(), self.job.0, self.attempt);
        let runs = shared.runs.clone();
        let mut run = tokio::task::spawn_blocking(move || {
            let mut log = super::blobs::AttemptLog::open(&shared, attempt);
            ansible::play(&play, &runs, &cancel, &mut |event| {
                let item = StreamItem::Task { job, attempt: attempt.0, phase: phase.as_str().to_owned(), event };
                log.line(&item);
                shared.published.emit(item);
            })
        });
        let mut ending = self.ending.clone();
        let session = self.session.as_mut().ok_or_else(|| session_lost(phase))?;
        let ended = tokio::select! {
            ended = &mut run => ended,
            // Ansible cannot stop between two tasks, so the run is ended at once.
            true = async { ending.wait_for(|ending| *ending != AttemptEnd::Not).await.is_ok() } => {
                guard.0.cancel();
                run.await
            }
            error = session.wait_for_loss() => {
                guard.0.cancel();
                // The attempt must not end before the processes of the Ansible run on this manager
                // have ended. They get TERM and, after a grace period, KILL, so this wait is
                // limited.
                let _ = run.await;
                return Err(ssh(phase, error));
            }
        };
        match ended.map_err(|_| plan(phase, "the run ended early"))? {
            Ok(()) => Ok(PhaseResult::Ok),
            Err(PlayError::Failed { why, rc, tail }) => Err(step(phase, rc, why, tail)),
            Err(error @ PlayError::Files(_)) => Err(step(phase, None, error_with_causes(&error), Vec::new())),
            Err(PlayError::Plan(text)) => Err(plan(phase, &text)),
        }
    }

    async fn verify_cleanup(
        &mut self,
        phase: Phase,
        job: &Job,
        before: &Arc<Generation>,
    ) -> Result<PhaseResult, Box<Failure>> {
        let prepared = examine::prepare(&self.shared, self.node, Some(before.clone())).await;
        let prepared = prepared.map_err(|e| plan(phase, &e.to_string()))?;
        let CleanupExpectation { units, files, keep } =
            taken_down(prepared.manifest.services, &job.spec.services, &before.summary);
        let order = ExecutorOrder::Cleaned { fence: self.fence_token(), units, files, keep };
        match self.ask(phase, order, &mut |_| {}, CLEANED_TIMEOUT).await? {
            Reply::Cleaned { leftovers } if leftovers.is_empty() => Ok(PhaseResult::Ok),
            Reply::Cleaned { leftovers } => {
                let message = format!("cleanup reported success but left: {}", leftovers.join(", "));
                Err(step(phase, None, message, leftovers))
            }
            other => Err(unexpected_reply(phase, &other)),
        }
    }

    /// Puts back the copies of files that the undone attempt made before it changed the files. A
    /// failure is not retried, because an operator decides what to do.
    async fn undo(&mut self, phase: Phase, job: &Job) -> Result<PhaseResult, Box<Failure>> {
        let attempt = job.spec.undo.ok_or_else(|| plan(phase, "the job undoes nothing"))?;
        match self.ask(phase, ExecutorOrder::Undo { attempt }, &mut |_| {}, UNDO_TIMEOUT).await? {
            Reply::Undone { restored } => {
                let mut log = super::blobs::AttemptLog::open(&self.shared, self.attempt);
                let count = match restored.len() {
                    0 => "nothing differed from the copies".to_owned(),
                    1 => "1 path was put back".to_owned(),
                    n => format!("{n} paths were put back"),
                };
                for line in restored.iter().map(|path| format!("put back {path}")).chain([count]) {
                    let event = serde_json::json!({"event": "output", "i": 0, "line": line});
                    let phase = phase.as_str().to_owned();
                    let item = StreamItem::Task { job: self.job.0, attempt: self.attempt.0, phase, event };
                    log.line(&item);
                    self.shared.published.emit(item);
                }
                Ok(PhaseResult::Ok)
            }
            Reply::Error { message } | Reply::Refused { why: message, .. } => Err(plan(phase, &message)),
            other => Err(unexpected_reply(phase, &other)),
        }
    }

    /// Sends an order in the open session. The order is cancelled if the attempt must end early.
    async fn ask(
        &mut self,
        phase: Phase,
        order: ExecutorOrder,
        on_event: &mut (dyn FnMut(Reply) + Send),
        at_most: Duration,
    ) -> Result<Reply, Box<Failure>> {
        let mut ending = self.ending.clone();
        let session = self.session.as_mut().ok_or_else(|| session_lost(phase))?;
        let canceller = session.canceller();
        let answered = session.order(order, on_event, at_most);
        tokio::pin!(answered);
        loop {
            tokio::select! {
                reply = &mut answered => return reply.map_err(|e| ssh(phase, e)),
                Ok(()) = ending.changed() => {
                    let now = *ending.borrow_and_update() == AttemptEnd::Now;
                    canceller.cancel(now).await;
                }
            }
        }
    }

    async fn verify(&mut self, phase: Phase, job: &Job, current: Arc<Generation>) -> Result<PhaseResult, Box<Failure>> {
        let frozen = self.frozen.clone();
        let known = frozen.as_ref().map_or_else(|| self.shared.render_context(), |(known, _)| known.clone());
        let before = self.load_record(phase).await?;
        // A job for some services gathers only some facts of the node. The other facts come from
        // the record of the node's baseline.
        let part = before.as_ref().filter(|_| !job.spec.services.is_empty());
        let mut facts = part.map(|r| r.facts.clone()).unwrap_or_default();
        facts.extend(self.facts.clone());
        let seen = Some((facts.clone(), known));
        let prepared = examine::prepare_with(&self.shared, self.node, Some(current.clone()), seen).await;
        let prepared: PreparedExam = prepared.map_err(|e| plan(phase, &e.to_string()))?;
        let session = self.session.as_mut().ok_or_else(|| session_lost(phase))?;
        let evidence = examine::evidence(&self.shared, session, self.node, &prepared, Sent::Whole)
            .await
            .map_err(|e| ssh(phase, e))?;
        let (services, generation) = (job.spec.services.clone(), current.clone());
        // The comparison runs on a blocking thread, because it compiles expressions and hashes
        // contents.
        let compared = tokio::task::spawn_blocking(move || {
            let wanted = prepared.expected_content();
            let watches = |name: &ServiceName| generation.summary.is_monitor_only(name);
            let set_up = |name: &ServiceName| (services.is_empty() || services.contains(name)) && !watches(name);
            let wrong = wrong_files(&wanted, &evidence.exam.digest, set_up);
            let record = examine::record(&wanted, &facts, prepared.known.clone(), &evidence.exam.digest);
            let record = match services.is_empty() {
                true => record.except_monitored(watches, before.as_ref()),
                false => record.of_part(&services, before.as_ref()),
            };
            (evidence, wrong, record.root, rmp_serde::to_vec_named(&record))
        });
        let compared = compared.await.map_err(|_| plan(phase, "a task of this manager ended early"))?;
        let (evidence, wrong, root, bytes) = compared;
        let bytes = bytes.map_err(|e| plan(phase, &e.to_string()))?;
        let blob = super::blobs::store(&self.shared, bytes).await.map_err(|e| {
            step(phase, None, format!("the recorded digest could not be stored by a majority: {e}"), Vec::new())
        })?;
        let inventory = self.shared.inventory();
        let node = inventory.nodes.get(&self.node).ok_or_else(|| plan(phase, "the node is gone"))?;
        let desired = frozen.map(|(_, made)| made).or_else(|| current.desired_hash(node.name())).unwrap_or_default();
        let baseline = Baseline { generation: current.seq, desired, root, blob, adopted: false, at: wall() };
        let told = self
            .shared
            .observed
            .report_of(node.name())
            .filter(|report| !report.is_blank())
            .map(|r| reported_fingerprint(&r));
        let marks = observed_fingerprint(&evidence.exam, told.as_ref().or(node.examination.last_identity.as_ref()));
        Ok(PhaseResult::Verified(Verified { evidence, baseline, marks, wrong }))
    }
}

/// Paths that the manager rendered and whose content on the node differs from the rendered one.
/// `set_up` selects the services of the job. Differences in other services are omitted, because the
/// job's playbook did not cause them.
fn wrong_files(
    wanted: &RenderedContent<'_>,
    digest: &NodeDigest,
    set_up: impl Fn(&ServiceName) -> bool,
) -> Vec<String> {
    let of_job = digest.services.iter().filter(|(name, _)| set_up(name));
    let entries = of_job.flat_map(|(name, s)| s.entries.iter().map(move |e| (name, e))).filter(|(_, e)| !e.secret);
    entries.filter(|(name, e)| wanted.agrees(name, e) == Some(false)).map(|(_, e)| e.path.clone()).collect()
}

#[cfg(test)]
mod tests;
