//! Deliberate bugs, one or more for each law of membership. Each bug is in the world, or between
//! the world and the role manager.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A voter that lost its log continues under its old id.
    WipedKeepsId,
    /// A node is enlisted, even if its desired role has changed since the step was made.
    EnlistsAnybody,
    /// Like `EnlistsAnybody`. Besides, a node that lost its log accepts an order that names the
    /// Raft id that it had before.
    ObeysOldOrders,
    /// Only the leader that began a change of members completes it.
    JointStays,
    /// The role manager does not see Raft members without a node.
    OrphansUnseen,
    /// The id is retired as soon as the node is demoted.
    RetiresAtOnce,
    /// As the next leader, the role manager chooses the member with the shortest log instead of the
    /// longest.
    HeirLags,
    /// All learners count as caught up and reachable.
    LagHidden,
    /// A learner counts as steady after one second.
    Hasty,
    /// A demotion is rejected only if it leaves no voter.
    JudgedByVoters,
    /// Neither the role manager nor Raft rejects a change while another one is in flight.
    TwoAtOnce,
    /// Every member counts as reachable.
    QuorumAssumed,
    /// The role manager does not learn of demotions before the learner becomes a voter.
    CancelIgnored,
    /// A delayed change of voters is performed, even if the member list has changed since.
    LateOnAnyList,
    /// An id is retired without a check whether it is a Raft member again.
    RetiresLate,
    /// The manager service of a retired id is never archived.
    NeverParks,
    /// A joining node chooses its role itself.
    JoinsAsItLikes,
    /// A vote is given to any candidate, whatever its log contains.
    VotesForShortLogs,
    /// A node that is to become a worker can be removed while it is still a member of Raft.
    RemovesMembers,
    /// The key of a joining node is not compared with removed keys.
    LetsKeysBackIn,
    /// A removal that waited for Raft is never completed.
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
