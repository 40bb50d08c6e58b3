//! What a node is to Raft, beside what it is to be. Derived from the membership and never stored, so that it can't be wrong
//! (SCENARIOS E4, E5); the command line, the API and tests all ask here.

use super::Membership;
use crate::model::{ClusterRole, Node};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// No member, and to be none.
    Worker,
    /// To be a manager, and no member yet; or a member that a half-done change takes out, and that comes back after it.
    Promoting,
    /// To be a manager, and a member without a vote. None: nobody knows how many entries it lacks.
    Learner {
        lag: Option<u64>,
    },
    Voter,
    Leader,
    /// To be a worker, and a member still, or its id is not retired yet: to be promoted now would be to manage under it again,
    /// which a node that has parked what it had of it refuses.
    Demoting,
    /// Was a manager when the cluster was founded anew without it, and nobody has said since what it is to be.
    Lost,
}

impl Observed {
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

    /// It is what it is to be, as far as anybody has said.
    pub fn is_reached(self) -> bool {
        matches!(self, Observed::Worker | Observed::Voter | Observed::Leader | Observed::Lost)
    }
}

/// `raft.me` leads; nobody does where that is an id that no node has.
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
    use crate::model::{NodeId, RaftId, sample};
    use std::collections::{BTreeMap, BTreeSet};

    const ID: RaftId = RaftId(7);

    /// What the membership makes of the node's id.
    #[derive(Debug, Clone, Copy)]
    enum Member {
        No,
        Learner,
        /// That never answered this leader.
        SilentLearner,
        Voter,
        /// Out when the change is finished that is half done.
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
    fn every_role_with_every_id_and_membership_is_one_word() {
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
                // Another node has that id, or none: a member that this node is not.
                assert_eq!(of(role, None, member), without, "{role:?} {member:?} without an id");
                let before = if role == ClusterRole::Worker { O::Demoting } else { without };
                assert_eq!(of(role, Some(RaftId(99)), member), before, "{role:?} {member:?} with an id of before");
            }
        }
    }

    #[test]
    fn a_manager_of_before_is_lost_until_somebody_says_what_it_is_to_be() {
        let w1 = Node::clone(&sample::fleet(0, 1).nodes[&NodeId(1)]);
        let of = |role, raft| observed(&Node { role, raft, lost: true, ..w1.clone() }, &membership(Member::No));
        assert_eq!(of(ClusterRole::Worker, None), Observed::Lost);
        assert_eq!(of(ClusterRole::Manager, Some(ID)), Observed::Promoting);
    }

    #[test]
    fn what_is_reached_is_what_was_ordered() {
        let reached = |role, member| of(role, Some(ID), member).is_reached();
        let all = [Member::No, Member::Learner, Member::Voter, Member::Leaving, Member::Leads];
        assert_eq!(all.map(|m| reached(ClusterRole::Manager, m)), [false, false, true, false, true]);
        assert_eq!(all.map(|m| reached(ClusterRole::Worker, m)), [false; 5]);
        assert!(of(ClusterRole::Worker, None, Member::No).is_reached());
    }
}
