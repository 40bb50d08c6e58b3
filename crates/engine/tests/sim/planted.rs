//! Deliberate bugs, at least one for each invariant, because a check that no bug can break is
//! useless. None of the bugs is in the program. Each is between the engine and the world, or in the
//! world's executor.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// I1: a phase begins when its entry is proposed, not when it is applied.
    ActsBeforeCommit,
    /// I2: the executor takes no lock.
    NoLock,
    /// I3: cleanup and its verification are reported as done without running.
    SkipsCleanup,
    /// I4: the executor keeps no fence: older attempts are obeyed, and newer ones do not end them.
    NoFence,
    /// I5: the rejoin loop learns of members too late.
    ForgetsMembers,
    /// I6: a grant reuses the Raft id of a manager.
    ReusesRaftId,
    /// I7: the limits of the fleet are lost on the way to the inventory.
    IgnoresBudget,
    /// I8: the inventory forgets that a node was decommissioned.
    ForgetsDecommission,
    /// I8: the inventory forgets that a node was drained.
    ForgetsDrain,
    /// I9: a failed examination is treated as one that found nothing on the node.
    UnknownIsDrift,
    /// I10: the end of a phase is not reported.
    LosesResults,
    /// I10: a changed address of a node is not reported.
    StaysAtTheOldAddress,
    /// I11: an absence is opened again after its verdict.
    ConcludesTwice,
    /// I12: a refused command leaves a trace.
    RefusesHalfway,
    /// I13: the windows of the fleet are lost on the way to the inventory.
    IgnoresWindows,
    /// I14: the leader does not learn that it can't reach a node.
    OpensWithoutRoute,
    /// I14: the pause between two leadership transfers is lost on the way to the inventory.
    HandsOverAtOnce,
    /// I15: the state of all services is recorded after a job about some.
    RecordsAll,
    /// I16: the found state of a monitor-only service is recorded after a job about all services.
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
