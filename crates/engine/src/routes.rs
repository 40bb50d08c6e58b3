//! Stores which managers reach the SSH ports of which nodes, and decides when to ask the managers
//! again. `runner` decides about the consequences for jobs.

use super::event::Reachability;
use remoor_model::{NodeId, Now, Wall};
use std::collections::{BTreeMap, BTreeSet};

/// Time limit for a manager's answer whether it reaches a node. A manager that exceeds the limit
/// counts as not answering.
const ANSWER_MS: u64 = 10_000;
/// Minimum pause between two queries about the same node after failed logins to it. It applies
/// while no manager has reported that it cannot reach the node.
const AGAIN_MS: u64 = 5_000;

/// The route from the managers to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// The leader reaches the node, or has no result about the node.
    FromLeader,
    /// The managers were asked whether they reach the node, and have not all answered yet.
    Querying,
    /// The leader does not reach the node, but this manager does.
    FromManager(NodeId),
    /// No manager that answered reaches the node.
    NoRoute,
}

/// For each node, the results of the managers that tried to reach its SSH port. They are discarded
/// at the end of the leadership. Managers that cannot reach a node report this again to the next
/// leader.
#[derive(Debug, Clone, Default)]
pub(super) struct RouteTable {
    /// The last result for each pair of node and manager, and its time of arrival.
    results: BTreeMap<(NodeId, NodeId), (Reachability, Now)>,
    queried_at: BTreeMap<NodeId, Now>,
    suspect: BTreeSet<NodeId>,
}

impl RouteTable {
    /// Stores a manager's result for the node. The result contains the time since which the manager
    /// does not reach the node.
    pub fn record(&mut self, node: NodeId, by: NodeId, line: Reachability, now: Now) {
        self.results.insert((node, by), (line, now));
    }

    /// Records a successful login from this manager, which overrides an earlier failure.
    pub fn confirm_reachable(&mut self, node: NodeId, by: NodeId, now: Now) {
        if let Some(found) = self.results.get_mut(&(node, by)) {
            *found = (Reachability::Reachable, now);
        }
    }

    /// Records a failed login from this manager. The failure does not prove that the node is
    /// unreachable, but it is a reason to ask the managers.
    pub fn suspect(&mut self, node: NodeId, by: NodeId) {
        if matches!(self.results.get(&(node, by)), Some((Reachability::Reachable, _))) {
            self.results.remove(&(node, by));
        }
        self.suspect.insert(node);
    }

    /// Makes a query due, because it is unknown which managers reach the node.
    pub fn mark_unknown(&mut self, node: NodeId) {
        self.suspect.insert(node);
    }

    /// Deletes the results of a node that went away.
    pub fn forget(&mut self, node: NodeId) {
        self.results.retain(|(of, _), _| *of != node);
        self.queried_at.remove(&node);
        self.suspect.remove(&node);
    }

    /// Whether the managers must be asked about this node now. If so, the query is recorded.
    /// `every` is the pause between queries as long as a manager cannot reach the node.
    pub fn should_query(&mut self, node: NodeId, now: Now, every: u64) -> bool {
        let missed = self.results_for(node).any(|(_, line, _)| *line != Reachability::Reachable);
        if !missed && !self.suspect.contains(&node) {
            return false;
        }
        let pause = if missed { every } else { every.min(AGAIN_MS) };
        if self.queried_at.get(&node).is_some_and(|at| now.ms_since(*at) < pause) {
            return false;
        }
        self.suspect.remove(&node);
        self.queried_at.insert(node, now);
        true
    }

    /// The managers that cannot reach the node. Each has the time at which its current failure
    /// began, and the reason.
    pub fn unreachable_from(&self, node: NodeId, now: Now, every: u64) -> Vec<(NodeId, Wall, &str)> {
        let fresh = self.results_for(node).filter(|(_, _, at)| now.ms_since(*at) <= validity_ms(every));
        fresh
            .filter_map(|(by, line, _)| match line {
                Reachability::Unreachable { why, since } => Some((by, *since, why.as_str())),
                Reachability::Reachable => None,
            })
            .collect()
    }

    /// Whether a manager reaches the node. None if there is no recent result.
    pub fn reaches(&self, node: NodeId, by: NodeId, now: Now, every: u64) -> Option<bool> {
        let (line, at) = self.results.get(&(node, by))?;
        (now.ms_since(*at) <= validity_ms(every)).then_some(*line == Reachability::Reachable)
    }

    /// Whether the manager was asked recently and has not answered yet.
    pub fn is_awaiting(&self, node: NodeId, by: NodeId, now: Now) -> bool {
        let Some(asked) = self.queried_at.get(&node).filter(|at| now.ms_since(**at) < ANSWER_MS) else { return false };
        self.results.get(&(node, by)).is_none_or(|(_, at)| at < asked)
    }

    /// The route to the node for the leader `me`. `others` returns the managers that could take
    /// over the leadership. `others` is called only if the leader cannot reach the node.
    pub fn road(&self, node: NodeId, me: NodeId, others: impl FnOnce() -> Vec<NodeId>, now: Now, every: u64) -> Route {
        match self.reaches(node, me, now, every) {
            Some(true) => return Route::FromLeader,
            None if self.is_awaiting(node, me, now) => return Route::Querying,
            None => return Route::FromLeader,
            Some(false) => {}
        }
        let others = others();
        let open = |by: &&NodeId| self.reaches(node, **by, now, every) == Some(true);
        let missed = |by: &NodeId| self.reaches(node, *by, now, every) == Some(false);
        match others.iter().find(open) {
            Some(other) => Route::FromManager(*other),
            // Earlier results stay valid during a query.
            None if others.iter().any(|by| self.is_awaiting(node, *by, now) && !missed(by)) => Route::Querying,
            None => Route::NoRoute,
        }
    }

    fn results_for(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &Reachability, Now)> {
        let range = (node, NodeId(0))..=(node, NodeId(u64::MAX));
        self.results.range(range).map(|((_, by), (line, at))| (*by, line, *at))
    }
}

/// Age up to which a result is valid, in milliseconds. Two later queries should have replaced an
/// older result.
fn validity_ms(every: u64) -> u64 {
    2 * every + ANSWER_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: u64 = 30_000;
    const W1: NodeId = NodeId(9);
    const ME: NodeId = NodeId(1);
    const OTHERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    fn dead() -> Reachability {
        Reachability::Unreachable { why: "timed out".to_owned(), since: Wall(7) }
    }

    fn route(routes: &RouteTable, now: u64) -> Route {
        routes.road(W1, ME, || OTHERS.to_vec(), Now(now), EVERY)
    }

    #[test]
    fn without_suspicion_a_node_counts_as_reachable_and_no_query_is_sent() {
        let mut routes = RouteTable::default();
        assert_eq!(route(&routes, 0), Route::FromLeader);
        assert!(!routes.should_query(W1, Now(0), EVERY));
        routes.record(W1, ME, Reachability::Reachable, Now(0));
        assert!(!routes.should_query(W1, Now(90_000), EVERY));
    }

    #[test]
    fn a_failed_login_queries_all_managers_and_their_answers_give_the_route() {
        let mut routes = RouteTable::default();
        routes.record(W1, ME, Reachability::Reachable, Now(0));
        routes.suspect(W1, ME);
        assert!(routes.should_query(W1, Now(1_000), EVERY));
        assert_eq!(route(&routes, 1_000), Route::Querying);
        assert!(!routes.should_query(W1, Now(2_000), EVERY), "asked already");
        routes.record(W1, ME, dead(), Now(4_000));
        assert_eq!(route(&routes, 4_000), Route::Querying, "the others have not answered");
        routes.record(W1, NodeId(2), dead(), Now(4_000));
        routes.record(W1, NodeId(3), Reachability::Reachable, Now(4_000));
        assert_eq!(route(&routes, 4_000), Route::FromManager(NodeId(3)));
        assert_eq!(routes.unreachable_from(W1, Now(4_000), EVERY).len(), 2);
        routes.record(W1, NodeId(3), dead(), Now(5_000));
        assert_eq!(route(&routes, 5_000), Route::NoRoute);
        assert!(!routes.should_query(W1, Now(30_900), EVERY), "at most every 30 s");
        assert!(routes.should_query(W1, Now(31_000), EVERY));
        assert_eq!(route(&routes, 31_000), Route::NoRoute, "until a manager reports otherwise");
        routes.record(W1, ME, Reachability::Reachable, Now(31_010));
        assert_eq!(route(&routes, 31_010), Route::FromLeader);
    }

    #[test]
    fn a_silent_manager_is_waited_for_only_briefly() {
        let mut routes = RouteTable::default();
        routes.record(W1, ME, dead(), Now(0));
        assert!(routes.should_query(W1, Now(0), EVERY));
        assert_eq!(route(&routes, 9_999), Route::Querying);
        assert_eq!(route(&routes, 10_000), Route::NoRoute);
    }

    #[test]
    fn results_expire_and_are_dropped_when_the_node_goes_away() {
        let mut routes = RouteTable::default();
        routes.record(W1, ME, dead(), Now(0));
        routes.record(W1, NodeId(2), Reachability::Reachable, Now(0));
        assert_eq!(route(&routes, 70_000), Route::FromManager(NodeId(2)));
        assert_eq!(route(&routes, 70_001), Route::FromLeader);
        assert!(routes.unreachable_from(W1, Now(70_001), EVERY).is_empty());
        routes.forget(W1);
        assert_eq!(route(&routes, 1), Route::FromLeader);
        routes.confirm_reachable(W1, ME, Now(2));
        assert_eq!(routes.reaches(W1, ME, Now(2), EVERY), None, "a login without suspicion is not stored");
    }
}
