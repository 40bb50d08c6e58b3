//! Decides which manager runs the work on a node. The leader runs it if it can reach the node.
//! Otherwise another manager takes over the leadership first. Examinations use the same routes, but
//! need no handover.

use super::event::Action;
use super::manager::{ManagerEngine, NodeObservation, PROPOSAL_MS, StepContext, needs_new_examination};
use super::resetup::is_paused_after;
use super::routes::Route;
use remoor_model::{AttemptOutcome, Job, JobState, Node, NodeId};

/// Minimum pause between two handovers of the leadership.
const HAND_OVER_MS: u64 = 15_000;
/// Time after a requested handover in which no work begins, because the next leader would have to
/// take over that work.
const HANDING_MS: u64 = 5_000;
/// Maximum number of waiting nodes whose routes are compared before a handover.
const WAITING_MAX: usize = 32;

impl ManagerEngine {
    /// The route to a node: from this leader, or from another manager that is up.
    pub(super) fn route(&self, at: StepContext, node: &Node) -> Route {
        let Some(me) = at.inventory.by_name(self.me.as_str()).map(|n| n.id) else { return Route::FromLeader };
        self.routes.road(node.id, me, || self.other_managers(at, node.id), at.now, probe_interval_ms(at))
    }

    /// Managers that could become the leader and run work on `node`. The leader and `node` itself
    /// are not in the list.
    fn other_managers(&self, at: StepContext, node: NodeId) -> Vec<NodeId> {
        let managers = at.inventory.nodes.values().filter(|n| n.raft.is_some() && n.name() != &self.me && n.id != node);
        managers
            .filter(|n| !n.is_away() && self.seen.get(&n.id).is_some_and(|s| s.is_present()))
            .map(|n| n.id)
            .collect()
    }

    /// Asks every manager that is up, including the leader, whether it reaches the node. Does
    /// nothing if no query is due.
    pub(super) fn query_reachability(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) {
        let alive = self.seen.get(&node.id).is_some_and(|s| s.is_present());
        if alive && !node.is_away() && self.routes.should_query(node.id, at.now, probe_interval_ms(at)) {
            let me = at.inventory.by_name(self.me.as_str()).map(|n| n.id);
            let managers = me.into_iter().chain(self.other_managers(at, node.id)).collect();
            out.push(Action::Reach { node: node.id, managers });
        }
    }

    /// Whether this leader may open an attempt on the node now. If only another manager reaches the
    /// node, the leadership is handed over first. If no manager reaches the node, no attempt is
    /// opened.
    pub(super) fn runs_here(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) -> bool {
        if self.handed_over_at.is_some_and(|last| at.now.ms_since(last) < HANDING_MS) {
            return false;
        }
        match self.route(at, node) {
            Route::FromLeader => return true,
            Route::Querying | Route::NoRoute => return false,
            Route::FromManager(_) => {}
        }
        // A new leader keeps the leadership at least for the grace period. Otherwise two managers
        // could hand it to each other repeatedly.
        let rested = at.now.ms_since(self.leading_since) >= at.inventory.limits().leader_grace_ms
            && self.handed_over_at.is_none_or(|last| at.now.ms_since(last) >= HAND_OVER_MS);
        let busy = at.inventory.jobs.values().any(|j| j.open_attempt().is_some());
        let asks = |s: &NodeObservation| s.proposing.is_some_and(|since| at.now.ms_since(since) <= PROPOSAL_MS);
        if !rested || busy || self.seen.values().any(asks) {
            return false;
        }
        if let Some(to) = self.better_leader(at, node) {
            self.handed_over_at = Some(at.now);
            let why = format!("{} does not reach {}", self.me, node.name());
            out.push(Action::HandOver { why, to: Some(to) });
        }
        false
    }

    /// The manager that should lead, because the leader cannot reach this node. This manager
    /// reaches the node, and it reaches more of the waiting nodes than any other manager. None if
    /// the leader reaches at least as many waiting nodes, because the leader can start that work
    /// without a handover.
    fn better_leader(&mut self, at: StepContext, node: &Node) -> Option<NodeId> {
        let me = at.inventory.by_name(self.me.as_str())?.id;
        let shut = self.awaits_mass_return(at) || self.is_rendering(at.now);
        let also = at.inventory.nodes.values().filter(|n| n.id != node.id && waits(at, n, shut)).map(|n| n.id);
        let also = also.filter(|id| self.seen.get(id).is_some_and(|s| s.is_present()));
        let waiting: Vec<NodeId> = std::iter::once(node.id).chain(also).take(WAITING_MAX).collect();
        let every = probe_interval_ms(at);
        let from_here = |n: &&NodeId| **n != me && self.routes.reaches(**n, me, at.now, every) != Some(false);
        let here = waiting.iter().filter(from_here).count();
        let others = self.other_managers(at, node.id);
        // Missing results of other managers are requested first. A result that stays unknown counts
        // as unreachable.
        let unknown = |n: &NodeId| others.iter().any(|by| self.routes.reaches(*n, *by, at.now, every).is_none());
        let unknown: Vec<NodeId> = waiting.iter().copied().filter(unknown).collect();
        if unknown.iter().any(|n| others.iter().any(|by| self.routes.is_awaiting(*n, *by, at.now))) {
            return None;
        }
        let reached = |by: NodeId| {
            let open = |n: &&NodeId| **n != by && self.routes.reaches(**n, by, at.now, every) == Some(true);
            waiting.iter().filter(open).count()
        };
        let able = others.iter().filter(|by| self.routes.reaches(node.id, **by, at.now, every) == Some(true));
        let best = able.map(|by| (reached(*by), std::cmp::Reverse(*by))).max();
        let (count, std::cmp::Reverse(by)) = best?;
        if count > here {
            return Some(by);
        }
        unknown.into_iter().for_each(|n| self.routes.mark_unknown(n));
        None
    }
}

/// Whether work on this node could begin at once. `shut` means that no automatic re-setup may begin
/// now, so automatic requests do not count.
fn waits(at: StepContext, node: &Node, shut: bool) -> bool {
    let retries = |job: &Job| {
        job.state == JobState::Open
            && job.open_attempt().is_none()
            && job.retry_at.is_some_and(|due| at.wall >= due)
            && !is_backing_off(at, job)
            && at.ground.may_retry(node, job, at.wall).is_ok()
    };
    match (&node.pending_resetup, node.job.and_then(|j| at.inventory.job(j))) {
        (_, Some(job)) => retries(job),
        (Some(want), None) => {
            let free = want.spec.by.is_some() || !shut && !needs_new_examination(at, node, want);
            free && at.ground.may_open(node, &want.spec, at.wall).is_ok()
        }
        (None, None) => false,
    }
}

/// Whether the last attempt failed to reach the node, and the pause after that failure is not over.
fn is_backing_off(at: StepContext, job: &Job) -> bool {
    job.attempts.last().and_then(|a| a.closed.as_ref()).is_some_and(|(closed, outcome)| match outcome {
        AttemptOutcome::Failed(failure) => is_paused_after(at, failure, *closed),
        _ => false,
    })
}

/// Pause between two queries about a node that a manager cannot reach, in milliseconds.
pub(super) fn probe_interval_ms(at: StepContext) -> u64 {
    at.inventory.limits().probe_ms
}
