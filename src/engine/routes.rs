//! Who reaches whom: what the managers found out about their ways to the nodes' SSH ports, and when to ask them again. What
//! follows from it for a job is in `runner`.

use super::event::Line;
use crate::model::{NodeId, Now, Wall};
use std::collections::{BTreeMap, BTreeSet};

/// Managers that were asked have answered by then, or are taken for silent.
const ANSWER_MS: u64 = 10_000;
/// A node that is reached as far as anybody knows, and was doubted again, is asked about no sooner than this.
const AGAIN_MS: u64 = 5_000;

/// How a node is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Road {
    /// From the leader, as far as it knows.
    Here,
    /// The managers were asked just now.
    Asking,
    /// Not from the leader; from this manager.
    From(NodeId),
    /// From no manager that answered.
    Nowhere,
}

/// Forgotten with the leadership; whoever leads next is told by the managers that miss a node.
#[derive(Debug, Clone, Default)]
pub(super) struct Routes {
    /// By node and manager: the last word, and when it came.
    found: BTreeMap<(NodeId, NodeId), (Line, Now)>,
    asked: BTreeMap<NodeId, Now>,
    doubted: BTreeSet<NodeId>,
}

impl Routes {
    /// A manager says whether it reaches the node. Since when it does not, it knows best itself.
    pub fn told(&mut self, node: NodeId, by: NodeId, line: Line, now: Now) {
        self.found.insert((node, by), (line, now));
    }

    /// Somebody logged in from there: it is reached, whatever was said before.
    pub fn proven(&mut self, node: NodeId, by: NodeId, now: Now) {
        if let Some(found) = self.found.get_mut(&(node, by)) {
            *found = (Line::Open, now);
        }
    }

    /// A login from there failed. That is no word about the way yet, but a reason to ask.
    pub fn doubt(&mut self, node: NodeId, by: NodeId) {
        if matches!(self.found.get(&(node, by)), Some((Line::Open, _))) {
            self.found.remove(&(node, by));
        }
        self.doubted.insert(node);
    }

    /// Whether this manager reaches the node must be known, and is not.
    pub fn wonder(&mut self, node: NodeId) {
        self.doubted.insert(node);
    }

    /// The node went away: what is said of ways to it is about another question.
    pub fn forget(&mut self, node: NodeId) {
        self.found.retain(|(of, _), _| *of != node);
        self.asked.remove(&node);
        self.doubted.remove(&node);
    }

    /// Whether the managers are to be asked about this node now; asked about it they are then. `every`: the pause while
    /// somebody is known not to reach it.
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

    /// The managers that don't reach the node, since when, and why not.
    pub fn missed_by(&self, node: NodeId, now: Now, every: u64) -> Vec<(NodeId, Wall, &str)> {
        let fresh = self.of(node).filter(|(_, _, at)| now.since(*at) <= valid(every));
        fresh
            .filter_map(|(by, line, _)| match line {
                Line::Dead { why, since } => Some((by, *since, why.as_str())),
                Line::Open => None,
            })
            .collect()
    }

    /// Whether a manager reaches the node; None: nobody knows, or not lately.
    pub fn reaches(&self, node: NodeId, by: NodeId, now: Now, every: u64) -> Option<bool> {
        let (line, at) = self.found.get(&(node, by))?;
        (now.since(*at) <= valid(every)).then_some(*line == Line::Open)
    }

    /// Asked a moment ago, and this manager has not answered yet.
    pub fn awaits(&self, node: NodeId, by: NodeId, now: Now) -> bool {
        let Some(asked) = self.asked.get(&node).filter(|at| now.since(**at) < ANSWER_MS) else { return false };
        self.found.get(&(node, by)).is_none_or(|(_, at)| at < asked)
    }

    /// The road to the node for the leader `me`. `others`: the managers that could take its place, found out only where it
    /// does not reach the node itself.
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
            // While it is asked again, what was said before holds.
            None if others.iter().any(|by| self.awaits(node, *by, now) && !missed(by)) => Road::Asking,
            None => Road::Nowhere,
        }
    }

    fn of(&self, node: NodeId) -> impl Iterator<Item = (NodeId, &Line, Now)> {
        let range = (node, NodeId(0))..=(node, NodeId(u64::MAX));
        self.found.range(range).map(|((_, by), (line, at))| (*by, line, *at))
    }
}

/// A word is good until the next two askings should have brought another.
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
    fn what_nobody_doubts_is_reached_and_asks_nobody() {
        let mut routes = Routes::default();
        assert_eq!(road(&routes, 0), Road::Here);
        assert!(!routes.ask(W1, Now(0), EVERY));
        routes.told(W1, ME, Line::Open, Now(0));
        assert!(!routes.ask(W1, Now(90_000), EVERY));
    }

    #[test]
    fn a_failed_login_asks_all_and_the_answers_make_the_road() {
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
        assert!(!routes.ask(W1, Now(30_900), EVERY), "every 30 s at most");
        assert!(routes.ask(W1, Now(31_000), EVERY));
        assert_eq!(road(&routes, 31_000), Road::Nowhere, "until somebody says otherwise");
        routes.told(W1, ME, Line::Open, Now(31_010));
        assert_eq!(road(&routes, 31_010), Road::Here);
    }

    #[test]
    fn who_does_not_answer_is_waited_for_a_moment_only() {
        let mut routes = Routes::default();
        routes.told(W1, ME, dead(), Now(0));
        assert!(routes.ask(W1, Now(0), EVERY));
        assert_eq!(road(&routes, 9_999), Road::Asking);
        assert_eq!(road(&routes, 10_000), Road::Nowhere);
    }

    #[test]
    fn old_words_and_words_about_who_went_away_count_for_nothing() {
        let mut routes = Routes::default();
        routes.told(W1, ME, dead(), Now(0));
        routes.told(W1, NodeId(2), Line::Open, Now(0));
        assert_eq!(road(&routes, 70_000), Road::From(NodeId(2)));
        assert_eq!(road(&routes, 70_001), Road::Here);
        assert!(routes.missed_by(W1, Now(70_001), EVERY).is_empty());
        routes.forget(W1);
        assert_eq!(road(&routes, 1), Road::Here);
        routes.proven(W1, ME, Now(2));
        assert_eq!(routes.reaches(W1, ME, Now(2), EVERY), None, "a login where nobody doubted is not kept");
    }
}
