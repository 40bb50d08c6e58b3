//! The observed Raft role of a node, which may differ from its desired role. It is derived from the
//! membership and never stored, so it cannot be outdated (docs/design/scenarios.md, E4 and E5). The
//! command line, the API and the tests use it.

use super::Membership;
use remoor_model::{ClusterRole, Node};

/// The observed Raft role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedRole {
    /// The desired role is worker, and the node is not a member of Raft.
    Worker,
    /// The desired role is manager, but the node is not a member of Raft yet. A member that an
    /// unfinished change removes, and that will be added again, has this role too.
    Promoting,
    /// The desired role is manager, and the node is a member of Raft without a vote. `lag` is the
    /// number of missing entries; None if it is unknown.
    Learner {
        lag: Option<u64>,
    },
    Voter,
    Leader,
    /// The desired role is worker, but the node is still a member of Raft, or its Raft id is not
    /// retired yet. A promotion at this time would reuse the Raft id, and a node that has archived
    /// its Raft data refuses a reused id.
    Demoting,
    /// The node was a manager when the cluster was rebuilt without it. No operator has decided its
    /// role yet.
    Lost,
}

impl ObservedRole {
    /// The role as the output shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            ObservedRole::Worker => "worker",
            ObservedRole::Promoting => "promoting",
            ObservedRole::Learner { .. } => "learner",
            ObservedRole::Voter => "voter",
            ObservedRole::Leader => "leader",
            ObservedRole::Demoting => "demoting",
            ObservedRole::Lost => "lost",
        }
    }

    /// Whether the observed role matches the desired one. It is also true if no operator has
    /// decided the desired role.
    pub fn is_reached(self) -> bool {
        matches!(self, ObservedRole::Worker | ObservedRole::Voter | ObservedRole::Leader | ObservedRole::Lost)
    }
}

/// The observed role of `node`. `raft.me` is the leader; there is no leader if no node has this id.
pub fn observed_role(node: &Node, raft: &Membership) -> ObservedRole {
    let wanted = node.role == ClusterRole::Manager;
    let id = node.raft.filter(|id| raft.voters.contains_key(id) || raft.learners.contains_key(id));
    match id {
        None if wanted => ObservedRole::Promoting,
        None if node.awaiting_role_decision => ObservedRole::Lost,
        None if node.raft.is_some() => ObservedRole::Demoting,
        None => ObservedRole::Worker,
        Some(_) if !wanted => ObservedRole::Demoting,
        Some(id) if !raft.voters.contains_key(&id) => {
            ObservedRole::Learner { lag: raft.matched.get(&id).map(|_| raft.lag(id)) }
        }
        Some(id) if !raft.target.contains(&id) => ObservedRole::Promoting,
        Some(id) if id == raft.me => ObservedRole::Leader,
        Some(_) => ObservedRole::Voter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{NodeId, RaftId, sample};
    use std::collections::{BTreeMap, BTreeSet};

    const ID: RaftId = RaftId(7);

    /// The state of the node's Raft id in the membership.
    #[derive(Debug, Clone, Copy)]
    enum Member {
        No,
        Learner,
        /// A learner that has never answered this leader.
        SilentLearner,
        Voter,
        /// A voter that an unfinished membership change removes.
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

    fn observe(role: ClusterRole, raft: Option<RaftId>, member: Member) -> ObservedRole {
        let w1 = Node::clone(&sample::fleet(0, 1).nodes[&NodeId(1)]);
        observed_role(&Node { role, raft, ..w1 }, &membership(member))
    }

    #[test]
    fn every_role_id_and_membership_gives_one_observed_role() {
        use ObservedRole as O;
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
                assert_eq!(observe(role, Some(ID), member), with_id, "{role:?} {member:?}");
                // The member is not this node: another node or no node has the id.
                assert_eq!(observe(role, None, member), without, "{role:?} {member:?} without an id");
                let before = if role == ClusterRole::Worker { O::Demoting } else { without };
                assert_eq!(observe(role, Some(RaftId(99)), member), before, "{role:?} {member:?} with an id of before");
            }
        }
    }

    #[test]
    fn a_former_manager_is_lost_until_its_role_is_decided() {
        let w1 = Node::clone(&sample::fleet(0, 1).nodes[&NodeId(1)]);
        let of = |role, raft| {
            observed_role(&Node { role, raft, awaiting_role_decision: true, ..w1.clone() }, &membership(Member::No))
        };
        assert_eq!(of(ClusterRole::Worker, None), ObservedRole::Lost);
        assert_eq!(of(ClusterRole::Manager, Some(ID)), ObservedRole::Promoting);
    }

    #[test]
    fn a_role_is_reached_if_it_matches_the_desired_one() {
        let reached = |role, member| observe(role, Some(ID), member).is_reached();
        let all = [Member::No, Member::Learner, Member::Voter, Member::Leaving, Member::Leads];
        assert_eq!(all.map(|m| reached(ClusterRole::Manager, m)), [false, false, true, false, true]);
        assert_eq!(all.map(|m| reached(ClusterRole::Worker, m)), [false; 5]);
        assert!(observe(ClusterRole::Worker, None, Member::No).is_reached());
    }
}
