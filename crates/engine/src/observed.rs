//! The observed Raft role of a node, in contrast to its desired role. It is derived from the
//! membership and never stored, so it cannot be outdated (docs/design/scenarios.md, E4 and E5). The
//! command line, the API and the tests all use it.

use super::Membership;
use remoor_model::{ClusterRole, Node};

/// The observed Raft role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// Not a member, and not to be one.
    Worker,
    /// To be a manager, but not a member yet; or a member that an unfinished change removes and
    /// that is added again afterwards.
    Promoting,
    /// To be a manager, and a member without a vote. `lag`: number of missing entries; None:
    /// unknown.
    Learner {
        lag: Option<u64>,
    },
    Voter,
    Leader,
    /// To be a worker, but still a member, or its id is not retired yet. A promotion now would
    /// reuse the id, which a node that archived its Raft data refuses.
    Demoting,
    /// Was a manager when the cluster was rebuilt without it. An operator has not decided its role
    /// yet.
    Lost,
}

impl Observed {
    /// The displayed form.
    pub fn word(self) -> &'static str {
        match self {
            Observed::Worker => "worker",
            Observed::Promoting => "promoting",
            Observed::Learner { .. } => "learner",
            Observed::Voter => "voter",
            Observed::Leader => "leader",
            Observed::Demoting => "demoting",
            Observed::Lost => "lost",
        }
    }

    /// The observed role matches the desired one, as far as an operator has decided it.
    pub fn is_reached(self) -> bool {
        matches!(self, Observed::Worker | Observed::Voter | Observed::Leader | Observed::Lost)
    }
}

/// `raft.me` is the leader; an id that no node has means that there is no leader.
pub fn observed(node: &Node, raft: &Membership) -> Observed {
    let wanted = node.role == ClusterRole::Manager;
    let id = node.raft.filter(|id| raft.voters.contains_key(id) || raft.learners.contains_key(id));
    match id {
        None if wanted => Observed::Promoting,
        None if node.lost => Observed::Lost,
        None if node.raft.is_some() => Observed::Demoting,
        None => Observed::Worker,
        Some(_) if !wanted => Observed::Demoting,
        Some(id) if !raft.voters.contains_key(&id) => {
            Observed::Learner { lag: raft.matched.get(&id).map(|_| raft.lag(id)) }
        }
        Some(id) if !raft.target.contains(&id) => Observed::Promoting,
        Some(id) if id == raft.me => Observed::Leader,
        Some(_) => Observed::Voter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{NodeId, RaftId, sample};
    use std::collections::{BTreeMap, BTreeSet};

    const ID: RaftId = RaftId(7);

    /// The membership state of the node's id.
    #[derive(Debug, Clone, Copy)]
    enum Member {
        No,
        Learner,
        /// A learner that never answered this leader.
        SilentLearner,
        Voter,
        /// Removed when the unfinished change is completed.
        Leaving,
        Leads,
        LeadsAndLeaves,
    }

    fn membership(member: Member) -> Membership {
        let other = RaftId(1);
        let (votes, learns) = match member {
            Member::No => (false, false),
            Member::Learner | Member::SilentLearner => (false, true),
            Member::Voter | Member::Leaving | Member::Leads | Member::LeadsAndLeaves => (true, false),
        };
        let leaves = matches!(member, Member::Leaving | Member::LeadsAndLeaves);
        let at = |id: RaftId| (id, format!("10.0.0.{id}:7947"));
        let target: BTreeSet<RaftId> = [other].into_iter().chain((votes && !leaves).then_some(ID)).collect();
        Membership {
            me: if matches!(member, Member::Leads | Member::LeadsAndLeaves) { ID } else { other },
            voters: [at(other)].into_iter().chain(votes.then(|| at(ID))).collect(),
            learners: learns.then(|| at(ID)).into_iter().collect(),
            target,
            joint: leaves,
            committed: true,
            last_log: 500,
            matched: if matches!(member, Member::SilentLearner) { BTreeMap::new() } else { [(ID, 380)].into() },
            heard: BTreeSet::new(),
        }
    }

    fn of(role: ClusterRole, raft: Option<RaftId>, member: Member) -> Observed {
        let w1 = Node::clone(&sample::fleet(0, 1).nodes[&NodeId(1)]);
        observed(&Node { role, raft, ..w1 }, &membership(member))
    }

    #[test]
    fn every_role_id_and_membership_gives_one_observed_role() {
        use Observed as O;
        let cases = [
            (Member::No, O::Promoting, O::Demoting),
            (Member::Learner, O::Learner { lag: Some(120) }, O::Demoting),
            (Member::SilentLearner, O::Learner { lag: None }, O::Demoting),
            (Member::Voter, O::Voter, O::Demoting),
            (Member::Leaving, O::Promoting, O::Demoting),
            (Member::Leads, O::Leader, O::Demoting),
            (Member::LeadsAndLeaves, O::Promoting, O::Demoting),
        ];
        for (member, manager, worker) in cases {
            let roles = [(ClusterRole::Manager, manager, O::Promoting), (ClusterRole::Worker, worker, O::Worker)];
            for (role, with_id, without) in roles {
                assert_eq!(of(role, Some(ID), member), with_id, "{role:?} {member:?}");
                // Another node has that id, or no node has it: a member that is not this node.
                assert_eq!(of(role, None, member), without, "{role:?} {member:?} without an id");
                let before = if role == ClusterRole::Worker { O::Demoting } else { without };
                assert_eq!(of(role, Some(RaftId(99)), member), before, "{role:?} {member:?} with an id of before");
            }
        }
    }

    #[test]
    fn a_former_manager_is_lost_until_its_role_is_decided() {
        let w1 = Node::clone(&sample::fleet(0, 1).nodes[&NodeId(1)]);
        let of = |role, raft| observed(&Node { role, raft, lost: true, ..w1.clone() }, &membership(Member::No));
        assert_eq!(of(ClusterRole::Worker, None), Observed::Lost);
        assert_eq!(of(ClusterRole::Manager, Some(ID)), Observed::Promoting);
    }

    #[test]
    fn a_role_is_reached_if_it_matches_the_desired_one() {
        let reached = |role, member| of(role, Some(ID), member).is_reached();
        let all = [Member::No, Member::Learner, Member::Voter, Member::Leaving, Member::Leads];
        assert_eq!(all.map(|m| reached(ClusterRole::Manager, m)), [false, false, true, false, true]);
        assert_eq!(all.map(|m| reached(ClusterRole::Worker, m)), [false; 5]);
        assert!(of(ClusterRole::Worker, None, Member::No).is_reached());
    }
}
