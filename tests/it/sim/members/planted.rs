//! Bugs on purpose, one or more for each law of membership; each sits in the world, or between it and the role manager.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A voter that lost its log goes on under its id.
    WipedKeepsId,
    /// A node is enlisted, whatever was decided since that was to be done.
    EnlistsAnybody,
    /// The same, and the node runs a part under any id that it is told, also one from before it lost its log.
    ObeysOldOrders,
    /// The second half of a change is never done by anybody but who began it.
    JointStays,
    /// Members without a node are left out of what the role manager sees.
    OrphansUnseen,
    /// The id is taken from a node as soon as it is demoted.
    RetiresAtOnce,
    /// The leader mistakes who has least of the log for who has most.
    HeirLags,
    /// Learners are taken for caught up, and for heard.
    LagHidden,
    /// A second is taken for the while that a learner has to be steady.
    Hasty,
    /// A demotion is refused only where it leaves no voter.
    JudgedByVoters,
    /// Neither the role manager nor Raft minds a change that is in flight.
    TwoAtOnce,
    /// Everybody is taken for heard.
    QuorumAssumed,
    /// The role manager does not hear of demotions before the vote was given.
    CancelIgnored,
    /// A change of voters is carried out late, whatever changed since.
    LateOnAnyList,
    /// Nobody looks whether an id that is to be retired is a member again.
    RetiresLate,
    /// The part of a retired id is never parked.
    NeverParks,
    /// A joining node says itself which role it has.
    JoinsAsItLikes,
    /// A vote is given to whoever asks, whatever it has of the log.
    VotesForShortLogs,
    /// Whoever is to be a worker can be removed, also while it is a member of Raft.
    RemovesMembers,
    /// Nobody looks whether the key of who joins was removed.
    LetsKeysBackIn,
    /// A removal that waited for Raft is not brought to its end.
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
