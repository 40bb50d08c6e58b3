//! Deliberate bugs, one or more for each law of membership. Each bug is in the world, or between
//! the world and the role manager.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Planted bug: a voter that lost its log continues under its old Raft id.
    WipedKeepsId,
    /// Planted bug: a node is enlisted, even if its desired role has changed since the step was
    /// made.
    EnlistsAnybody,
    /// Planted bug: the bug `EnlistsAnybody`. In addition, a node that lost its log accepts an
    /// order with its former Raft id.
    ObeysOldOrders,
    /// Planted bug: only the leader that began a change of members completes it.
    JointStays,
    /// Planted bug: the role manager does not detect orphans.
    OrphansUnseen,
    /// Planted bug: the Raft id of a node is retired as soon as the node is demoted.
    RetiresAtOnce,
    /// Planted bug: the role manager chooses the member with the shortest log as the next leader,
    /// instead of the longest.
    HeirLags,
    /// Planted bug: all learners count as caught up and reachable.
    LagHidden,
    /// Planted bug: a learner that has caught up becomes a voter after one second.
    Hasty,
    /// Planted bug: a demotion is rejected only if it leaves no voter.
    JudgedByVoters,
    /// Planted bug: neither the role manager nor Raft rejects a change while another one is in
    /// flight.
    TwoAtOnce,
    /// Planted bug: every member counts as reachable.
    QuorumAssumed,
    /// Planted bug: if a learner is demoted, the role manager does not learn of it before the
    /// learner becomes a voter.
    CancelIgnored,
    /// Planted bug: a delayed change of voters is performed, even if the member list has changed in
    /// the meantime.
    LateOnAnyList,
    /// Planted bug: a Raft id is retired, even if its node has become a member of Raft again.
    RetiresLate,
    /// Planted bug: a manager service whose Raft id is retired is never archived.
    NeverParks,
    /// Planted bug: a joining node chooses its own role.
    JoinsAsItLikes,
    /// Planted bug: a vote is given to any candidate, whatever its log contains.
    VotesForShortLogs,
    /// Planted bug: a node that is being demoted can be removed while it is still a member of Raft.
    RemovesMembers,
    /// Planted bug: the key of a joining node is not compared with removed keys.
    LetsKeysBackIn,
    /// Planted bug: a removal that waited for Raft is never completed.
    ForgetsRemovals,
}

pub const ALL: [(Planted, &str); 21] = [
    (Planted::WipedKeepsId, "one log"),
    (Planted::EnlistsAnybody, "wanted"),
    (Planted::ObeysOldOrders, "one log"),
    (Planted::JointStays, "rest"),
    (Planted::OrphansUnseen, "orphan"),
    (Planted::RetiresAtOnce, "retire"),
    (Planted::HeirLags, "heir"),
    (Planted::LagHidden, "steady"),
    (Planted::Hasty, "steady"),
    (Planted::JudgedByVoters, "last manager"),
    (Planted::TwoAtOnce, "one change"),
    (Planted::QuorumAssumed, "quorum"),
    (Planted::CancelIgnored, "wanted"),
    (Planted::LateOnAnyList, "one change"),
    (Planted::RetiresLate, "retire"),
    (Planted::NeverParks, "rest"),
    (Planted::JoinsAsItLikes, "role"),
    (Planted::VotesForShortLogs, "committed"),
    (Planted::RemovesMembers, "removed"),
    (Planted::LetsKeysBackIn, "back"),
    (Planted::ForgetsRemovals, "rest"),
];
