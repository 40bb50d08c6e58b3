//! Deliberate bugs, at least one for each invariant. A check is useless if no bug can break it. No
//! bug is in the program itself. Each is between the engine and the world, or in the world's
//! executor.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// I1: a phase begins when its entry is proposed, not when it is applied.
    ActsBeforeCommit,
    /// I2: the executor takes no lock.
    NoLock,
    /// I3: cleanup and its verification are reported as done without running.
    SkipsCleanup,
    /// I4: the executor keeps no fence. Older attempts are accepted, and newer attempts do not end
    /// them.
    NoFence,
    /// I5: the rejoin loop learns of new members too late.
    ForgetsMembers,
    /// I6: a grant reuses the Raft id of a manager.
    ReusesRaftId,
    /// I7: the limits of the fleet do not reach the inventory.
    IgnoresBudget,
    /// I8: the inventory does not keep the fact that a node was decommissioned.
    ForgetsDecommission,
    /// I8: the inventory does not keep the fact that a node was drained.
    ForgetsDrain,
    /// I9: a failed examination counts as an examination of a node without any files.
    UnknownIsDrift,
    /// I10: the end of the provisioning phase is not reported.
    LosesResults,
    /// I10: a changed address of a node is not reported.
    StaysAtTheOldAddress,
    /// I11: an absence is opened again after its verdict.
    ConcludesTwice,
    /// I12: a refused command changes the state.
    RefusesHalfway,
    /// I13: the maintenance windows of the fleet do not reach the inventory.
    IgnoresWindows,
    /// I14: the leader does not learn that it can't reach a node.
    OpensWithoutRoute,
    /// I14: the pause between two transfers of the leadership does not reach the inventory.
    HandsOverAtOnce,
    /// I15: after a job about some services, the state of all services is recorded.
    RecordsAll,
    /// I16: after a job about all services, the current state of a monitor-only service is
    /// recorded.
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
