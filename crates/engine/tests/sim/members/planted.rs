//! Deliberate bugs, one or more for each law of membership. Each sits in the world, or between it
//! and the role manager.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A voter that lost its log continues with its id.
    WipedKeepsId,
    /// A node is enlisted, whatever was decided since the step was made.
    EnlistsAnybody,
    /// The same, and the node accepts any id, also one from before it lost its log.
    ObeysOldOrders,
    /// Only the leader that began a change ever does the second half.
    JointStays,
    /// The role manager does not see members without a node.
    OrphansUnseen,
    /// The id is retired as soon as the node is demoted.
    RetiresAtOnce,
    /// The leader takes the member with the shortest log for the one with the longest.
    HeirLags,
    /// Learners count as caught up and reachable.
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
    /// A change of voters is performed late, whatever changed since.
    LateOnAnyList,
    /// Whether an id is a member again is not checked before it is retired.
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
