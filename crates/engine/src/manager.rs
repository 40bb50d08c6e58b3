//! The leader's engine: its observations and requests, and one function `step`.
//!
//! A new leader knows only the inventory. At most one proposal is in flight for each node. So no
//! entry is based on a state that the leader's previous entry is about to change. The modules
//! `presence`, `examination`, `live`, `resetup`, `runner` and `view` belong to the engine.

use super::address_tracking::Rendering;
use super::budget;
use super::event::{About, Action, EngineEvent, Purpose};
use super::examination::RunningExamination;
use super::routes::{Route, RouteTable};
use remoor_model::{
    Applied, AttemptId, CheckSummary, Command, FleetView, HostFingerprint, Inventory, Node, NodeId, NodeName, Now,
    Phase, Report, ResetupRequest, Sha256, Verdict, Wall,
};
use std::collections::{BTreeMap, BTreeSet};

/// Timeout of a proposal. A proposal may still be applied after its timeout. `apply` refuses a
/// proposal that is outdated.
pub(super) const PROPOSAL_MS: u64 = 15_000;
/// Time for the answer of an examination, in addition to the examination's own timeout.
const EXAM_SLACK_MS: u64 = 10_000;
/// Time in which a new leader reports no absences, because gossip must first show it which nodes
/// are present.
pub(super) const FIRST_SIGHT_MS: u64 = 15_000;
/// Maximum wait of a requested re-setup after its examination. After a longer wait, the node is
/// examined again before the re-setup begins.
const STALE_WANT_MS: u64 = 120_000;

/// The observations and requests of this leader about one node. They are discarded at the end of
/// the leadership.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeObservation {
    pub alive: bool,
    pub since: Now,
    pub since_wall: Wall,
    pub report: Option<Report>,
    /// The time at which the report was last new or renewed.
    pub report_renewed: Now,
    pub proposing: Option<Now>,
    pub probed: Option<Now>,
    pub exam: Option<RunningExamination>,
    /// Earliest time of the next examination.
    pub exam_due: Now,
    pub exam_failures: u32,
    pub last_failure: Option<String>,
    /// The time at which the node began to settle, and the maximum duration of the settling in ms.
    pub settling: Option<(Now, u64)>,
    pub last_examination: Option<LastExamination>,
    /// The host fingerprint in a report that was older than the last examination. It does not
    /// indicate an absence. It is stored until gossip delivers another report.
    pub outdated_report: Option<HostFingerprint>,
    /// The time at which the node was last seen, set when an examination finds its host without an
    /// agent. Such an examination does not count as seeing the node.
    pub last_seen_before: Option<Wall>,
    /// The last handshake with the daemon, if the node is not in gossip.
    pub greeting: Option<Greeting>,
    /// The node's gossip address, signed by the node.
    pub gossip: Option<String>,
    /// The address that the node announces and that is recorded for another node. A notice has
    /// already reported this address.
    pub held: Option<String>,
}

impl NodeObservation {
    /// Whether the node is in gossip, or its daemon answered the last handshake.
    pub fn is_present(&self) -> bool {
        self.alive || self.greeting.is_some_and(|greeting| greeting.answered)
    }

    /// Stores a report. Returns whether the agent was restarted since the previous report.
    fn receive(&mut self, report: Report, now: Now) -> bool {
        let before = self.report.as_ref().map(reported_fingerprint);
        let restarted = before.is_some_and(|before| before != reported_fingerprint(&report));
        (self.report, self.report_renewed) = (Some(report), now);
        restarted
    }

    /// Requires a new examination at once.
    fn require_examination(&mut self, now: Now) {
        (self.exam_due, self.exam_failures, self.settling) = (now, 0, None);
    }
}

/// The leader's handshakes with the daemon of a node that gossip lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Greeting {
    /// The time of the last request for a handshake, or of its result.
    pub at: Now,
    pub pending: bool,
    /// Whether the last handshake that has ended was answered.
    pub answered: bool,
}

/// The last examination of a node, and the agent's report at the time of the examination.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastExamination {
    pub hint: ReportSummary,
    pub at: Now,
    /// Number of previous examinations with the same report. The node is examined again with the
    /// same report, because the result of an examination may be lost before it is committed. The
    /// pause grows with each repetition.
    pub repeats: u32,
    /// Number of recent examinations before which the agent reported changed check results. A high
    /// number means that the checks flap.
    pub check_changes: u32,
}

/// The part of an agent's report that is about files and checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportSummary {
    pub digest: Sha256,
    pub checks: CheckSummary,
    pub failure_hash: u64,
}

impl ReportSummary {
    /// The part of `report` that is compared between examinations.
    pub fn from_report(report: &Report) -> Self {
        Self { digest: report.digest, checks: report.checks, failure_hash: report.failure_hash }
    }
}

/// The state of the engine during one leadership.
#[derive(Debug, Clone)]
pub struct ManagerEngine {
    pub(super) me: NodeName,
    pub(super) leading_since: Now,
    pub(super) seen: BTreeMap<NodeId, NodeObservation>,
    /// Attempts that this leader opened. An open attempt of another leader is taken over.
    pub(super) own_attempts: BTreeSet<AttemptId>,
    /// For each attempt: the phase that was ordered and has no result yet.
    pub(super) running: BTreeMap<AttemptId, Phase>,
    /// Results of phases that are not applied yet. Each result is proposed until it is applied.
    pub(super) unapplied_results: BTreeMap<AttemptId, (Phase, Command)>,
    /// Attempts whose run was stopped during a phase, and whose executor has not reported the end
    /// of the run yet. The current task of the run may still be in progress.
    pub(super) stopping: BTreeSet<AttemptId>,
    pub(super) verify_tries: BTreeMap<AttemptId, (u32, Now)>,
    pub(super) proposing_fleet: Option<Now>,
    pub(super) rendering: Rendering,
    /// The last result of [`Self::awaits_mass_return`], with the applied log index and the time for
    /// which it was computed.
    mass_return_cache: Option<(u64, Wall, bool)>,
    /// The results of the managers that tried to reach each node.
    pub(super) routes: RouteTable,
    /// The time at which the leadership was last offered to a manager that can reach more nodes.
    pub(super) handed_over_at: Option<Now>,
    pub(super) next_ticket: u64,
    /// Number of running examinations, at most [`EXAMINATIONS_MAX`]. It equals the number of
    /// `exam`s in `seen`. It is stored separately, because it is needed for each node at each tick.
    pub(super) examining: usize,
    /// Nodes to examine as soon as a running examination ends.
    pub(super) queued: BTreeSet<NodeId>,
}

/// The time and the applied state for one call of [`ManagerEngine::step`].
#[derive(Clone, Copy)]
pub(super) struct StepContext<'a> {
    pub now: Now,
    pub wall: Wall,
    pub inventory: &'a Inventory,
    pub ground: &'a FleetView<'a>,
}

impl ManagerEngine {
    /// The engine of the manager `me`, which became leader at `now`.
    pub fn new(me: NodeName, now: Now) -> Self {
        Self {
            me,
            leading_since: now,
            seen: BTreeMap::new(),
            own_attempts: BTreeSet::new(),
            running: BTreeMap::new(),
            unapplied_results: BTreeMap::new(),
            stopping: BTreeSet::new(),
            verify_tries: BTreeMap::new(),
            proposing_fleet: None,
            rendering: Rendering::default(),
            mass_return_cache: None,
            routes: RouteTable::default(),
            handed_over_at: None,
            next_ticket: 0,
            examining: 0,
            queued: BTreeSet::new(),
        }
    }

    /// Processes one event and returns the resulting actions. `inventory` is the applied state. It
    /// includes every entry of this engine whose `Proposed` event was delivered.
    pub fn step(&mut self, now: Now, wall: Wall, inventory: &Inventory, event: EngineEvent) -> Vec<Action> {
        let ground = FleetView::new(inventory);
        let at = StepContext { now, wall, inventory, ground: &ground };
        let mut out = Vec::new();
        let mut attend: Vec<NodeId> = Vec::new();
        match event {
            EngineEvent::Alive { node, report } => {
                let seen = self.seen.entry(node).or_default();
                seen.greeting = None;
                if seen.receive(report, now) || !seen.alive {
                    (seen.alive, seen.since, seen.since_wall) = (true, now, wall);
                    seen.require_examination(now);
                }
                attend.push(node);
            }
            EngineEvent::Reported { node, report } => {
                if let Some(seen) = self.seen.get_mut(&node).filter(|seen| seen.is_present()) {
                    if seen.receive(report, now) {
                        seen.require_examination(now);
                    }
                    attend.push(node);
                }
            }
            EngineEvent::Renewed { node } => self.seen.entry(node).or_default().report_renewed = now,
            EngineEvent::Sighted { node, gossip } => self.seen.entry(node).or_default().gossip = Some(gossip),
            EngineEvent::Rendered { generation, moved, result } => {
                self.rendering.store_result(generation, moved, result)
            }
            EngineEvent::Gone { node } => {
                let seen = self.seen.entry(node).or_default();
                (seen.gossip, seen.greeting) = (None, None);
                (seen.alive, seen.since, seen.since_wall, seen.probed) = (false, now, wall, None);
                self.routes.forget(node);
                attend.push(node);
            }
            EngineEvent::Greeted { node, answers } => {
                self.handle_greeting(at, node, answers, &mut out);
                attend.push(node);
            }
            EngineEvent::Probed { node, answers } => self.handle_probe(at, node, answers, &mut out),
            EngineEvent::Reach { node, by, line } => {
                if self.seen.get(&node).is_some_and(|s| s.is_present()) {
                    self.routes.record(node, by, line, now);
                    attend.push(node);
                }
            }
            EngineEvent::Examined { node, ticket, outcome } => {
                self.handle_examined(at, node, ticket, *outcome, &mut out);
                attend.extend(self.queued.pop_first());
            }
            EngineEvent::Ran { job, attempt, phase, result } => {
                self.handle_phase_result(at, job, attempt, phase, *result, &mut out);
                attend.extend(inventory.job(job).map(|j| j.node));
            }
            EngineEvent::Proposed { about, applied } => {
                match about {
                    About::Fleet => self.proposing_fleet = None,
                    About::Node(node) => {
                        self.seen.entry(node).or_default().proposing = None;
                        attend.push(node);
                    }
                }
                if let Some(Applied::Job(_, attempt)) = applied {
                    self.own_attempts.insert(attempt);
                }
                attend.extend(self.nodes_with_work(inventory));
            }
            EngineEvent::Changed | EngineEvent::Tick => attend.extend(inventory.nodes.keys()),
        }
        self.breaker(at, &mut out);
        self.render(at, &mut out);
        self.forget_left_nodes(at, &mut out);
        let mut full = BTreeSet::new();
        for id in attend {
            if let Some(node) = inventory.node(id) {
                self.attend(at, node, &mut full, &mut out);
            }
        }
        let ended: Vec<AttemptId> =
            self.own_attempts.iter().copied().filter(|a| !has_open_attempt(inventory, *a)).collect();
        for attempt in ended {
            self.forget(inventory, attempt, &mut out);
        }
        for attempt in self.stopping.extract_if(.., |a| ends_task_now(inventory, *a)) {
            out.push(Action::Stop { attempt, now: true });
        }
        out
    }

    /// Stops the run of an attempt that is not open any more. If the job was cancelled with `now`,
    /// the current task of the run ends at once. Otherwise the task may finish.
    fn forget(&mut self, inventory: &Inventory, attempt: AttemptId, out: &mut Vec<Action>) {
        self.own_attempts.remove(&attempt);
        let answered = self.unapplied_results.remove(&attempt).map(|(phase, _)| phase);
        self.verify_tries.remove(&attempt);
        let now = ends_task_now(inventory, attempt);
        if self.running.remove(&attempt).is_some_and(|phase| answered != Some(phase)) && !now {
            self.stopping.insert(attempt);
        }
        out.push(Action::Stop { attempt, now });
    }

    fn nodes_with_work(&self, inventory: &Inventory) -> Vec<NodeId> {
        inventory.nodes.values().filter(|n| n.pending_resetup.is_some() || n.job.is_some()).map(|n| n.id).collect()
    }

    /// Proposes the command, unless a proposal for this node is in flight.
    pub(super) fn propose(&mut self, at: StepContext, node: NodeId, command: Command, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node).or_default();
        if seen.proposing.is_none() {
            seen.proposing = Some(at.now);
            out.push(Action::Propose { about: About::Node(node), command });
        }
    }

    fn breaker(&mut self, at: StepContext, out: &mut Vec<Action>) {
        if self.fleet_is_free(at.now)
            && let Some(command) = budget::breaker(at.inventory, at.wall)
        {
            self.proposing_fleet = Some(at.now);
            if let Command::BreakerOpened { why, .. } = &command {
                let text = format!("breaker opened: {why}; no automatic re-setup until `remoor resume`");
                out.push(Action::Notify { key: "breaker".to_owned(), node: None, text });
            }
            out.push(Action::Propose { about: About::Fleet, command });
        }
    }

    /// Discards the observations of nodes that left, because they are not valid after a return.
    /// Proposes to delete a node's record if the node did not return within the time for which
    /// records are kept.
    fn forget_left_nodes(&mut self, at: StepContext, out: &mut Vec<Action>) {
        for id in at.inventory.departed.left.keys() {
            self.queued.remove(id);
            if let Some(seen) = self.seen.remove(id) {
                self.examining -= usize::from(seen.exam.is_some());
                self.routes.forget(*id);
            }
        }
        if self.fleet_is_free(at.now)
            && let Some(command) = at.inventory.next_to_forget(at.wall)
        {
            self.proposing_fleet = Some(at.now);
            out.push(Action::Propose { about: About::Fleet, command });
        }
    }

    /// Whether no proposal for the whole fleet is in flight.
    pub(super) fn fleet_is_free(&self, now: Now) -> bool {
        self.proposing_fleet.is_none_or(|since| now.ms_since(since) > PROPOSAL_MS)
    }

    /// Derives the next action for this node from the applied state. `full` contains the groups
    /// whose budget is used up.
    fn attend(&mut self, at: StepContext, node: &Node, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node.id).or_default();
        match seen.proposing {
            Some(since) if at.now.ms_since(since) <= PROPOSAL_MS => return,
            _ => seen.proposing = None,
        }
        let limit = at.inventory.limits().exam_timeout_ms + EXAM_SLACK_MS;
        if seen.exam.is_some_and(|e| at.now.ms_since(e.began) > limit) {
            seen.exam = None;
            seen.exam_due = at.now;
            self.examining -= 1;
        }
        // The node's new address is recorded before its return. So the node is examined at its
        // current address.
        if self.update_address(at, node, out) {
            return;
        }
        self.query_reachability(at, node, out);
        self.presence(at, node, out);
        if self.seen.entry(node.id).or_default().proposing.is_none() {
            self.work(at, node, full, out);
        }
    }

    fn work(&mut self, at: StepContext, node: &Node, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        if let Some(job) = node.job.and_then(|j| at.inventory.job(j)) {
            self.drive(at, node, job, out);
            return;
        }
        if node.absence.is_some() && node.pending_resetup.as_ref().is_none_or(|w| !w.spec.now && !w.spec.force) {
            return;
        }
        if let Some(want) = &node.pending_resetup {
            self.begin(at, node, want, full, out);
            return;
        }
        self.live(at, node, out);
    }

    /// Opens the job of a requested re-setup as soon as no condition blocks it.
    fn begin(
        &mut self,
        at: StepContext,
        node: &Node,
        want: &ResetupRequest,
        full: &mut BTreeSet<String>,
        out: &mut Vec<Action>,
    ) {
        // Conditions that block all nodes are checked first. This code runs at every log entry for
        // each requested re-setup, and there may be a thousand of them.
        let too_early = at.now.ms_since(self.leading_since) < at.inventory.limits().leader_grace_ms;
        if full.contains("") || want.spec.by.is_none() && (too_early || at.ground.is_shut()) {
            return;
        }
        let group = at.inventory.group(node).map_or("", |(name, _)| name.as_str());
        if full.contains(group) {
            return;
        }
        if let Err(wait) = at.ground.may_open(node, &want.spec, at.wall) {
            if let remoor_model::Wait::Budget(text) = wait {
                full.insert(if text.contains("of the fleet") { String::new() } else { group.to_owned() });
            }
            return;
        }
        if want.spec.by.is_none() && (self.awaits_mass_return(at) || self.is_rendering(at.now)) {
            return;
        }
        // The node is examined again in three cases: its examination is old, a hold began after the
        // examination, or an inconclusive examination followed (invariant I9).
        if needs_new_examination(at, node, want) {
            if self.route(at, node) != Route::NoRoute {
                self.examine(at, node, Purpose::Live(want.spec.trigger), out);
            }
        } else if self.is_me(at, node) {
            let others = at.inventory.nodes.values().filter(|n| n.raft.is_some() && n.id != node.id);
            let can =
                |n: &Node| n.pending_resetup.is_some() && self.route(at, n) != Route::NoRoute && may_open_now(at, n);
            if others.into_iter().any(|n| can(n)) {
                // Another manager also needs a re-setup, and this leader can start it. That
                // re-setup goes first. Otherwise two managers that both wait for a re-setup would
                // hand the leadership to each other forever.
                return;
            }
            out.push(Action::HandOver { why: format!("{} is to be set up again", self.me), to: None });
        } else if self.runs_here(at, node, out) {
            full.insert(group.to_owned());
            self.propose(at, node.id, Command::OpenJob { node: node.id, runner: self.me.clone() }, out);
        }
    }

    /// Whether automatic re-setups must wait, because many returned nodes have no verdict yet (see
    /// `mass_return`). The result is computed once for each state and time.
    pub(super) fn awaits_mass_return(&mut self, at: StepContext) -> bool {
        match self.mass_return_cache {
            Some((applied, wall, crowd)) if (applied, wall) == (at.inventory.applied, at.wall) => crowd,
            _ => {
                let crowd = super::mass_return::nodes_without_verdict(at.inventory, at.wall).is_some();
                self.mass_return_cache = Some((at.inventory.applied, at.wall, crowd));
                crowd
            }
        }
    }

    /// Whether the node is this leader and another manager can take over the leadership.
    pub(super) fn is_me(&self, at: StepContext, node: &Node) -> bool {
        node.name() == &self.me && at.inventory.nodes.values().filter(|n| n.raft.is_some()).count() > 1
    }
}

/// Whether the node must be examined again before this requested re-setup begins. Only an automatic
/// request needs this, and only if the examination that caused it is outdated.
pub(super) fn needs_new_examination(at: StepContext, node: &Node, want: &ResetupRequest) -> bool {
    let unknown = node.examination.finding.as_ref().is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
    let old =
        |e: Wall| unknown || at.wall.ms_since(e) > STALE_WANT_MS || node.hold.as_ref().is_some_and(|h| h.since >= e);
    want.spec.by.is_none() && want.examined.is_some_and(old)
}

fn may_open_now(at: StepContext, node: &Node) -> bool {
    node.pending_resetup.as_ref().is_some_and(|want| at.ground.may_open(node, &want.spec, at.wall).is_ok())
}

/// Whether an attempt runs on the node. An agent restart is then expected, and a finding describes
/// an unfinished state.
pub(super) fn in_attempt(at: StepContext, node: &Node) -> bool {
    node.job.and_then(|j| at.inventory.job(j)).is_some_and(|j| j.open_attempt().is_some())
}

/// The host fingerprint that the agent's report contains. It is only a hint, as the whole report
/// is.
pub fn reported_fingerprint(report: &Report) -> HostFingerprint {
    HostFingerprint { boot: report.boot.clone(), instance: report.instance.clone(), isolation: report.isolation }
}

/// Whether the job of the attempt was cancelled with `now`. Without `now`, the current task may
/// finish.
fn ends_task_now(inventory: &Inventory, attempt: AttemptId) -> bool {
    inventory.jobs.values().any(|j| j.end_task_now && j.attempts.iter().any(|a| a.id == attempt))
}

fn has_open_attempt(inventory: &Inventory, attempt: AttemptId) -> bool {
    inventory.jobs.values().any(|j| j.open_attempt().is_some_and(|a| a.id == attempt))
}
