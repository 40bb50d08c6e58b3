//! Bugs on purpose, one for each invariant: an invariant that no bug can break checks nothing. None of them is in the
//! program; each sits between the engine and the world, or in the world's executor.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// I1: a phase is begun when its entry is proposed, not when it was applied.
    ActsBeforeCommit,
    /// I2: the executor takes no lock.
    NoLock,
    /// I3: cleanup and its check are reported as done and never run.
    SkipsCleanup,
    /// I4: the executor keeps no fence: older attempts are obeyed, and not ended by newer ones.
    NoFence,
    /// I5: the rejoin loop is told of members too late.
    ForgetsMembers,
    /// I6: a grant takes the Raft id of a manager that has one.
    ReusesRaftId,
    /// I7: the limits of the fleet are lost on the way into the inventory.
    IgnoresBudget,
    /// I8: the inventory forgets that a node was decommissioned.
    ForgetsDecommission,
    /// I8: the inventory forgets that a node was drained.
    ForgetsDrain,
    /// I9: an examination that failed is taken for one that found nothing on the node.
    UnknownIsDrift,
    /// I10: nobody hears that a phase ended.
    LosesResults,
    /// I10: nobody hears that a node signs at another address.
    StaysAtTheOldAddress,
    /// I11: an absence is opened again after its verdict.
    ConcludesTwice,
    /// I12: a refused command leaves a trace.
    RefusesHalfway,
    /// I13: the windows of the fleet are lost on the way into the inventory.
    IgnoresWindows,
    /// I14: the leader is never told that it has no way to a node.
    OpensWithoutRoute,
    /// I14: the pause between two hand-overs is lost on the way into the inventory.
    HandsOverAtOnce,
    /// I15: what is found of all services is recorded after a job about some.
    RecordsAll,
    /// I16: what is found of a service that is only looked at is recorded after a job about all.
    TakesOver,
}

pub const ALL: [(Planted, &str); 19] = [
    (Planted::ActsBeforeCommit, "I1"),
    (Planted::NoLock, "I2"),
    (Planted::SkipsCleanup, "I3"),
    (Planted::NoFence, "I4"),
    (Planted::ForgetsMembers, "I5"),
    (Planted::ReusesRaftId, "I6"),
    (Planted::IgnoresBudget, "I7"),
    (Planted::ForgetsDecommission, "I8"),
    (Planted::ForgetsDrain, "I8"),
    (Planted::UnknownIsDrift, "I9"),
    (Planted::LosesResults, "I10"),
    (Planted::StaysAtTheOldAddress, "I10"),
    (Planted::ConcludesTwice, "I11"),
    (Planted::RefusesHalfway, "I12"),
    (Planted::IgnoresWindows, "I13"),
    (Planted::OpensWithoutRoute, "I14"),
    (Planted::HandsOverAtOnce, "I14"),
    (Planted::RecordsAll, "I15"),
    (Planted::TakesOver, "I16"),
];
