//! A job and its attempts, with the phases fence, cleanup, cleaned, provision and verify. Each
//! phase begins only after its entry was applied.
//!
//! ```text
//!  OpenJob ──> Fence ──> Cleanup ──> Cleaned ──> Provision ──> Verify ──> Done
//!                 └─────────┴─────── fails ─────────┴────────────┘
//!                                      │ retries left: next attempt from Fence on, higher number
//!                                      └ no retries left, or no retry can help: held
//! ```
//! An undo has only the phases `Fence` and `Undo`. A new leader never continues an attempt of
//! another leader. It opens the next attempt, whose fence ends processes that still run.

use super::event::{Action, PhaseResult, Verified};
use super::manager::{ManagerEngine, StepContext};
use super::routes::Route;
use remoor_model::{
    AttemptId, AttemptOutcome, CheckState, Command, Failure, FailureClass, Inventory, Job, JobId, JobState, Node,
    OnFail, Phase, ServiceName, Wall, join_limited,
};

/// Number of failed verifications after which an attempt fails. It is more than one, because
/// services need time to start.
const VERIFY_TRIES: u32 = 5;
const VERIFY_PAUSE_MS: u64 = 1_500;
/// Pause after an attempt that could not reach the node.
const UNREACHABLE_PAUSE_MS: u64 = 5_000;
/// Maximum number of attempts of one job, independently of their outcome. The job is then held.
const ATTEMPTS_MAX: u32 = 50;

impl ManagerEngine {
    pub(super) fn drive(&mut self, at: StepContext, node: &Node, job: &Job, out: &mut Vec<Action>) {
        if job.state != JobState::Open {
            return;
        }
        let Some(attempt) = job.open_attempt() else {
            self.retry(at, node, job, out);
            return;
        };
        if self.is_me(at, node) {
            out.push(Action::HandOver { why: format!("{} is to be set up again", self.me), to: None });
        } else if !self.own_attempts.contains(&attempt.id) {
            let why = format!("the leader changed from {} to {} in phase {}", attempt.runner, self.me, attempt.phase);
            let command = match self.route(at, node) {
                Route::FromLeader | Route::Querying => {
                    Command::NextAttempt { job: job.id, after: attempt.id, runner: self.me.clone(), why }
                }
                // No attempt is opened without a route to the node. A manager that has a route
                // opens the next attempt.
                Route::FromManager(_) | Route::NoRoute => {
                    let message = format!("{why}, which cannot reach the node");
                    let (class, phase) = (FailureClass::Unreachable, attempt.phase);
                    let failure = Failure { class, phase, rc: None, message, tail: Vec::new() };
                    close(job.id, attempt.id, AttemptOutcome::Failed(failure))
                }
            };
            self.propose(at, node.id, command, out);
        } else if let Some((_, command)) =
            self.unapplied_results.get(&attempt.id).filter(|(phase, _)| *phase == attempt.phase)
        {
            let command = command.clone();
            self.propose(at, node.id, command, out);
        } else if self.running.get(&attempt.id) != Some(&attempt.phase) {
            let pause = self.verify_tries.get(&attempt.id).is_some_and(|(_, due)| at.now < *due);
            // Provisioning waits for a rendering in progress, because it must use the same
            // addresses as the recorded hash of the desired state.
            let early = attempt.phase == Phase::Provision && self.is_rendering(at.now);
            if !pause && !early {
                self.running.insert(attempt.id, attempt.phase);
                out.push(Action::Run { job: job.id, attempt: attempt.id, phase: attempt.phase, node: node.id });
            }
        }
    }

    fn retry(&mut self, at: StepContext, node: &Node, job: &Job, out: &mut Vec<Action>) {
        let Some(last) = job.attempts.last() else { return };
        let Some((closed, AttemptOutcome::Failed(failure))) = &last.closed else { return };
        let hold = match failure.class {
            FailureClass::ProvisionedWrong | FailureClass::Plan => true,
            FailureClass::Step => job.retry_at.is_none(),
            FailureClass::Unreachable | FailureClass::HostKey => false,
        };
        if hold || last.no >= ATTEMPTS_MAX {
            let why = format!("attempt {} failed in {}: {}", last.no, failure.phase, failure.message);
            let text = format!("{}: job {} is held: {why}", node.name(), job.id);
            out.push(Action::Notify { key: format!("held {}", job.id), node: Some(node.id), text });
            self.propose(at, node.id, Command::HoldJob { job: job.id, why }, out);
            return;
        }
        let alive = self.seen.get(&node.id).is_some_and(|s| s.is_present()) || job.spec.force && node.agent_down();
        let pause = is_paused_after(at, failure, *closed);
        let due = job.retry_at.is_some_and(|due| at.wall >= due);
        let free = due && alive && !pause && at.ground.may_retry(node, job, at.wall).is_ok();
        if free && self.runs_here(at, node, out) {
            let why = format!("attempt {} failed in {}: {}", last.no, failure.phase, failure.message);
            let command = Command::NextAttempt { job: job.id, after: last.id, runner: self.me.clone(), why };
            self.propose(at, node.id, command, out);
        }
    }

    pub(super) fn handle_phase_result(
        &mut self,
        at: StepContext,
        job_id: JobId,
        attempt_id: AttemptId,
        phase: Phase,
        result: PhaseResult,
        out: &mut Vec<Action>,
    ) {
        let Some(job) = at.inventory.job(job_id) else { return };
        let Some(attempt) = job.open_attempt().filter(|a| a.id == attempt_id) else {
            self.stopping.remove(&attempt_id);
            out.push(Action::Stop { attempt: attempt_id, now: false });
            return;
        };
        if attempt.phase != phase || !self.own_attempts.contains(&attempt_id) {
            return; // the result is a duplicate, or it belongs to an earlier leadership
        }
        let command = match result {
            PhaseResult::Ok => match phase.next(job.kind()) {
                Some(next) => Command::Phase { job: job_id, attempt: attempt.id, phase: next },
                None => close(job_id, attempt.id, AttemptOutcome::Done),
            },
            PhaseResult::Failed(failure) => {
                if let (FailureClass::Unreachable, Some(me)) = (failure.class, at.inventory.by_name(self.me.as_str())) {
                    self.routes.suspect(job.node, me.id);
                }
                close(job_id, attempt.id, AttemptOutcome::Failed(failure))
            }
            PhaseResult::Verified(verified) => match check_verification(at.inventory, job, &verified) {
                Ok(()) => Command::CloseAttempt {
                    job: job_id,
                    attempt: attempt.id,
                    outcome: AttemptOutcome::Done,
                    baseline: Some(verified.baseline),
                    marks: verified.marks,
                },
                Err(failure) => {
                    let tries = self.verify_tries.entry(attempt.id).or_default();
                    tries.0 += 1;
                    tries.1 = at.now.plus_ms(VERIFY_PAUSE_MS);
                    if tries.0 < VERIFY_TRIES && failure.class == FailureClass::Step {
                        self.running.remove(&attempt.id);
                        return;
                    }
                    close(job_id, attempt.id, AttemptOutcome::Failed(failure))
                }
            },
        };
        self.unapplied_results.insert(attempt.id, (phase, command));
    }
}

/// Whether the next attempt must still wait. `failure` is the failure of the last attempt, and
/// `closed` is the time at which that attempt ended.
pub(super) fn is_paused_after(at: StepContext, failure: &Failure, closed: Wall) -> bool {
    failure.class == FailureClass::Unreachable && at.wall.ms_since(closed) < UNREACHABLE_PAUSE_MS
}

fn close(job: JobId, attempt: AttemptId, outcome: AttemptOutcome) -> Command {
    let outcome = match outcome {
        AttemptOutcome::Failed(failure) => AttemptOutcome::Failed(failure.truncate_for_log()),
        other => other,
    };
    Command::CloseAttempt { job, attempt, outcome, baseline: None, marks: None }
}

/// Checks the result of the verify phase. A re-setup succeeds only if its services are as rendered
/// and all their checks with `on-fail: resetup` pass. Services outside the job and monitored
/// services do not count, because a retry could not repair them. They are examined afterwards like
/// any other drift.
fn check_verification(inventory: &Inventory, job: &Job, verified: &Verified) -> Result<(), Failure> {
    let generation = inventory.generations.get(&job.generation);
    let watches = |name: &ServiceName| generation.is_some_and(|g| g.summary.is_monitor_only(name));
    let about =
        |name: &ServiceName| (job.spec.services.is_empty() || job.spec.services.contains(name)) && !watches(name);
    let failure = |class, message, tail| Failure { class, phase: Phase::Verify, rc: None, message, tail };
    if !verified.wrong.is_empty() {
        let message =
            format!("provisioned, but different from the rendered state: {}", join_limited(&verified.wrong, ", "));
        return Err(failure(FailureClass::ProvisionedWrong, message, Vec::new()));
    }
    let exam = &verified.evidence.exam;
    let unreadable: Vec<String> = exam
        .digest
        .services
        .iter()
        .filter(|(name, _)| about(name))
        .flat_map(|(name, s)| s.describe_unreadable().map(move |line| format!("{name}: {line}")))
        .collect();
    if let Some(first) = unreadable.first() {
        return Err(failure(FailureClass::Step, format!("could not read {first}"), unreadable));
    }
    let bad: Vec<String> = exam
        .checks
        .iter()
        .filter(|c| about(&c.service))
        .filter(|c| c.on_fail == OnFail::Resetup && matches!(c.state, CheckState::Fail | CheckState::Unknown))
        .map(|c| c.describe())
        .collect();
    match bad.first() {
        Some(first) => {
            Err(failure(FailureClass::Step, format!("check fails: {first}"), bad.into_iter().take(20).collect()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use remoor_model::{
        Baseline, CheckResult, ClusterRole, Exam, FleetSummary, GroupSummary, HostSummary, InventoryEntry, JobSpec,
        NodeSpec, ResetupRequest, ServiceDigest, ServiceSummary, Sha256, Trigger,
    };
    use std::collections::BTreeMap;

    /// The node w1 with an open job about all services. The service `clock` is monitored only;
    /// `app` is provisioned.
    fn inventory() -> Inventory {
        let mut summary = FleetSummary::default();
        let host = HostSummary { group: "web".into(), desired: Sha256::digest(b"one") };
        summary.hosts.insert("w1".into(), host);
        summary.groups.insert("web".into(), GroupSummary::default());
        for (name, watched) in [("app", false), ("clock", true)] {
            summary.services.insert(name.into(), ServiceSummary { monitor_only: watched, ..ServiceSummary::default() });
        }
        let want = JobSpec { by: Some("admin".into()), ..JobSpec::new(Trigger::Apply) };
        let want = ResetupRequest { commission: true, ..want.into_request(Wall(0)) };
        let mut inventory = Inventory::default();
        for (index, command) in (1..).zip([
            Command::Accept { spec: NodeSpec { name: "w1".into(), ..NodeSpec::default() }, role: ClusterRole::Worker },
            Command::Generation { blob: Sha256::digest(b"files"), summary: Box::new(summary) },
            Command::RequestResetup { node: remoor_model::NodeId(1), want: Box::new(want) },
            Command::OpenJob { node: remoor_model::NodeId(1), runner: "m1".into() },
        ]) {
            let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
            assert_eq!(applied.refusal(), None);
        }
        inventory
    }

    #[test]
    fn monitored_services_do_not_fail_an_attempt() {
        let inventory = inventory();
        let job = inventory.jobs.values().next().unwrap();
        let judged = |service: &str, unreadable: bool, state| {
            let mut exam = Exam::default();
            let unreadable = unreadable.then(|| ("/etc/x".to_owned(), "denied".to_owned()));
            let digest = ServiceDigest::new(Vec::new(), BTreeMap::from_iter(unreadable));
            exam.digest.services.insert(service.into(), digest);
            exam.checks.push(CheckResult { state, ..CheckResult::sample_failing(service, "port:tcp:80") });
            let baseline = Baseline {
                generation: job.generation,
                desired: Sha256::digest(b"one"),
                root: Sha256::default(),
                blob: Sha256::default(),
                adopted: false,
                at: Wall(9),
            };
            let evidence = Evidence { exam, expected: None, rendered: Default::default() };
            check_verification(&inventory, job, &Verified { evidence, baseline, marks: None, wrong: Vec::new() })
        };
        for (unreadable, state) in [
            (true, CheckState::Pass),
            (false, CheckState::Fail),
            (false, CheckState::Unknown),
            (true, CheckState::Fail),
        ] {
            assert!(judged("app", unreadable, state).is_err(), "{unreadable} {state:?}");
            assert_eq!(judged("clock", unreadable, state), Ok(()), "{unreadable} {state:?}");
        }
        assert_eq!(judged("app", false, CheckState::Pass), Ok(()));
    }
}
