//! Deliberate bugs, at least one for each invariant of docs/design/invariants.md. A check is
//! useless if no bug can break it. No bug is in the program itself. Each bug changes what passes
//! between the engine and the simulated world, or is in the simulated executor.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Bug that breaks invariant I1: a phase begins when its entry is proposed, not when it is
    /// applied.
    ActsBeforeCommit,
    /// Bug that breaks invariant I2: the executor takes no lock.
    NoLock,
    /// Bug that breaks invariant I3: cleanup and its verification are reported as done without
    /// running.
    SkipsCleanup,
    /// Bug that breaks invariant I4: the executor keeps no fence. Older attempts are accepted, and
    /// newer attempts do not end them.
    NoFence,
    /// Bug that breaks invariant I5: the rejoin loop learns of new members too late.
    ForgetsMembers,
    /// Bug that breaks invariant I6: a grant reuses the Raft id of a manager.
    ReusesRaftId,
    /// Bug that breaks invariant I7: the limits of the fleet do not reach the inventory.
    IgnoresBudget,
    /// Bug that breaks invariant I8: the inventory does not keep the fact that a node was
    /// decommissioned.
    ForgetsDecommission,
    /// Bug that breaks invariant I8: the inventory does not keep the fact that a node was drained.
    ForgetsDrain,
    /// Bug that breaks invariant I9: a failed examination counts as an examination of a node
    /// without any files.
    UnknownIsDrift,
    /// Bug that breaks invariant I10: the end of the provisioning phase is not reported.
    LosesResults,
    /// Bug that breaks invariant I10: a changed address of a node is not reported.
    StaysAtTheOldAddress,
    /// Bug that breaks invariant I11: an absence is opened again after its verdict.
    ConcludesTwice,
    /// Bug that breaks invariant I12: a refused command changes the state.
    RefusesHalfway,
    /// Bug that breaks invariant I13: the maintenance windows of the fleet do not reach the
    /// inventory.
    IgnoresWindows,
    /// Bug that breaks invariant I14: the leader does not learn that it can't reach a node.
    OpensWithoutRoute,
    /// Bug that breaks invariant I14: the pause between two transfers of the leadership does not
    /// reach the inventory.
    HandsOverAtOnce,
    /// Bug that breaks invariant I15: after a job about some services, the state of all services is
    /// recorded.
    RecordsAll,
    /// Bug that breaks invariant I16: after a job about all services, the current state of a
    /// monitor-only service is recorded.
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
