//! Which manager reaches which node: the managers' results for the nodes' SSH ports, and when to
//! ask the managers again. The consequences for jobs are in `runner`.

use super::event::Line;
use remoor_model::{NodeId, Now, Wall};
use std::collections::{BTreeMap, BTreeSet};

/// Managers that did not answer after this time count as silent.
const ANSWER_MS: u64 = 10_000;
/// Minimum pause between two queries about a node that is reachable as far as known and became
/// suspect again.
const AGAIN_MS: u64 = 5_000;

/// How a node is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    /// From the leader, as far as it knows.
    Here,
    /// The managers were asked a moment ago.
    Asking,
    /// Not from the leader, but from this manager.
    From(NodeId),
    /// From none of the managers that answered.
    Nowhere,
}

/// Discarded with the leadership. Managers that cannot reach a node tell the next leader.
#[derive(Debug, Clone, Default)]
pub(super) struct Routes {
    /// By node and manager: the last result, and when it arrived.
    found: BTreeMap<(NodeId, NodeId), (Line, Now)>,
    asked: BTreeMap<NodeId, Now>,
    doubted: BTreeSet<NodeId>,
}

impl Routes {
    /// Stores a manager's result for the node. The manager itself reports since when the node is
    /// unreachable.
    pub fn told(&mut self, node: NodeId, by: NodeId, line: Line, now: Now) {
        self.found.insert((node, by), (line, now));
    }

    /// A login from this manager succeeded, so the node is reachable, whatever was reported before.
    pub fn proven(&mut self, node: NodeId, by: NodeId, now: Now) {
        if let Some(found) = self.found.get_mut(&(node, by)) {
            *found = (Line::Open, now);
        }
    }

    /// A login from this manager failed. This does not prove that the node is unreachable, but is a
    /// reason to ask.
    pub fn doubt(&mut self, node: NodeId, by: NodeId) {
        if matches!(self.found.get(&(node, by)), Some((Line::Open, _))) {
            self.found.remove(&(node, by));
        }
        self.doubted.insert(node);
    }

    /// Requests a query, because it is unknown whether the managers reach the node.
    pub fn wonder(&mut self, node: NodeId) {
        self.doubted.insert(node);
    }

    /// The node went away. Earlier results do not apply to it any more.
    pub fn forget(&mut self, node: NodeId) {
        self.found.retain(|(of, _), _| *of != node);
        self.asked.remove(&node);
        self.doubted.remove(&node);
    }

    /// Whether the managers must be asked about this node now. If so, records the query. `every` is
    /// the pause while a manager cannot reach the node.
    pub fn ask(&mut self, node: NodeId, now: Now, every: u64) -> bool {
        let missed = self.of(node).any(|(_, line, _)| *line != Line::Open);
        if !missed && !self.doubted.contains(&node) {
            return false;
        }
        let pause = if missed { every } else { every.min(AGAIN_MS) };
        if self.asked.get(&node).is_some_and(|at| now.since(*at) < pause) {
            return false;
        }
        self.doubted.remove(&node);
        self.asked.insert(node, now);
        true
    }

    /// The managers that cannot reach the node, since when, and why.
    pub fn missed_by(&self, node: NodeId, now: Now, every: u64) -> Vec<(NodeId, Wall, &str)> {
        let fresh = self.of(node).filter(|(_, _, at)| now.since(*at) <= valid(every));
        fresh
            .filter_map(|(by, line, _)| match line {
                Line::Dead { why, since } => Some((by, *since, why.as_str())),
                Line::Open => None,
            })
            .collect()
    }

    /// Whether a manager reaches the node; None: unknown, or not known recently.
    pub fn reaches(&self, node: NodeId, by: NodeId, now: Now, every: u64) -> Option<bool> {
        let (line, at) = self.found.get(&(node, by))?;
        (now.since(*at) <= valid(every)).then_some(*line == Line::Open)
    }

    /// The manager was asked a moment ago and has not answered yet.
    pub fn awaits(&self, node: NodeId, by: NodeId, now: Now) -> bool {
        let Some(asked) = self.asked.get(&node).filter(|at| now.since(**at) < ANSWER_MS) else { return false };
        self.found.get(&(node, by)).is_none_or(|(_, at)| at < asked)
    }

    /// The route to the node for the leader `me`. `others` returns the managers that could take
    /// over leadership; it is called only if the leader cannot reach the node itself.
    pub fn road(&self, node: NodeId, me: NodeId, others: impl FnOnce() -> Vec<NodeId>, now: Now, every: u64) -> Road {
        match self.reaches(node, me, now, every) {
            Some(true) => return Road::Here,
            None if self.awaits(node, me, now) => return Road::Asking,
            None => return Road::Here,
            Some(false) => {}
        }
        let others = others();
        let open = |by: &&NodeId| self.reaches(node, **by, now, every) == Some(true);
        let missed = |by: &NodeId| self.reaches(node, *by, now, every) == Some(false);
        match others.iter().find(open) {
            Some(other) => Road::From(*other),
            // While a query is in progress, earlier results remain valid.
            None if others.iter().any(|by| self.awaits(node, *by, now) && !missed(by)) => Road::Asking,
            None => Road::Nowhere,
        }
    }

    fn of(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &Line, Now)> {
        let range = (node, NodeId(0))..=(node, NodeId(u64::MAX));
        self.found.range(range).map(|((_, by), (line, at))| (*by, line, *at))
    }
}

/// A result is valid until the next two queries should have replaced it.
fn valid(every: u64) -> u64 {
    2 * every + ANSWER_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: u64 = 30_000;
    const W1: NodeId = NodeId(9);
    const ME: NodeId = NodeId(1);
    const OTHERS: [NodeId; 2] = [NodeId(2), NodeId(3)];

    fn dead() -> Line {
        Line::Dead { why: "timed out".to_owned(), since: Wall(7) }
    }

    fn road(routes: &Routes, now: u64) -> Road {
        routes.road(W1, ME, || OTHERS.to_vec(), Now(now), EVERY)
    }

    #[test]
    fn without_suspicion_a_node_counts_as_reachable_and_no_query_is_sent() {
        let mut routes = Routes::default();
        assert_eq!(road(&routes, 0), Road::Here);
        assert!(!routes.ask(W1, Now(0), EVERY));
        routes.told(W1, ME, Line::Open, Now(0));
        assert!(!routes.ask(W1, Now(90_000), EVERY));
    }

    #[test]
    fn a_failed_login_queries_all_managers_and_their_answers_give_the_route() {
        let mut routes = Routes::default();
        routes.told(W1, ME, Line::Open, Now(0));
        routes.doubt(W1, ME);
        assert!(routes.ask(W1, Now(1_000), EVERY));
        assert_eq!(road(&routes, 1_000), Road::Asking);
        assert!(!routes.ask(W1, Now(2_000), EVERY), "asked already");
        routes.told(W1, ME, dead(), Now(4_000));
        assert_eq!(road(&routes, 4_000), Road::Asking, "the others have not answered");
        routes.told(W1, NodeId(2), dead(), Now(4_000));
        routes.told(W1, NodeId(3), Line::Open, Now(4_000));
        assert_eq!(road(&routes, 4_000), Road::From(NodeId(3)));
        assert_eq!(routes.missed_by(W1, Now(4_000), EVERY).len(), 2);
        routes.told(W1, NodeId(3), dead(), Now(5_000));
        assert_eq!(road(&routes, 5_000), Road::Nowhere);
        assert!(!routes.ask(W1, Now(30_900), EVERY), "at most every 30 s");
        assert!(routes.ask(W1, Now(31_000), EVERY));
        assert_eq!(road(&routes, 31_000), Road::Nowhere, "until a manager reports otherwise");
        routes.told(W1, ME, Line::Open, Now(31_010));
        assert_eq!(road(&routes, 31_010), Road::Here);
    }

    #[test]
    fn a_silent_manager_is_waited_for_only_briefly() {
        let mut routes = Routes::default();
        routes.told(W1, ME, dead(), Now(0));
        assert!(routes.ask(W1, Now(0), EVERY));
        assert_eq!(road(&routes, 9_999), Road::Asking);
        assert_eq!(road(&routes, 10_000), Road::Nowhere);
    }

    #[test]
    fn results_expire_and_are_dropped_when_the_node_goes_away() {
        let mut routes = Routes::default();
        routes.told(W1, ME, dead(), Now(0));
        routes.told(W1, NodeId(2), Line::Open, Now(0));
        assert_eq!(road(&routes, 70_000), Road::From(NodeId(2)));
        assert_eq!(road(&routes, 70_001), Road::Here);
        assert!(routes.missed_by(W1, Now(70_001), EVERY).is_empty());
        routes.forget(W1);
        assert_eq!(road(&routes, 1), Road::Here);
        routes.proven(W1, ME, Now(2));
        assert_eq!(routes.reaches(W1, ME, Now(2), EVERY), None, "a login without suspicion is not stored");
    }
}
