//! Changing who takes part: learners, voters, and who leads. One change at a time, each against the list it was made for.

use super::StateMachine;
use super::error::MemberError;
use super::handle::Raft;
use super::status::RaftStatus;
use super::types::{self, Types};
use crate::model::RaftId;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError as CoreError};
use openraft::{BasicNode, ChangeMembers, Precondition};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longest wait for one step; then its outcome is unknown.
const STEP_MAX: Duration = Duration::from_secs(5);

/// Longest time that proposals wait for a new leader to take over, three times: until none is under way, until it has
/// what was proposed, and until it leads. Each takes some milliseconds where it works.
const QUIET_MAX: Duration = Duration::from_secs(1);

type Change = ChangeMembers<u64, BasicNode>;

impl<S: StateMachine> Raft<S> {
    /// Adds a member that receives the log but has no vote; also gives a known one another address. Returns when committed,
    /// not when it has caught up, which the status shows.
    pub async fn add_learner(&self, id: RaftId, addr: String) -> Result<(), MemberError> {
        let status = self.inner.status.borrow().clone();
        let known = status.voters.get(&id).or_else(|| status.learners.get(&id));
        let node = BTreeMap::from([(id.0, BasicNode { addr: addr.clone() })]);
        match known {
            Some(same) if *same == addr && status.is_leader => Ok(()),
            // Every message names its target, so a wrong address reaches nobody who would answer.
            Some(_) => self.change(Change::SetNodes(node)).await,
            None => self.change(Change::AddNodes(node)).await,
        }
    }

    /// Removes a member without a vote. An unknown id is no error.
    pub async fn remove_learner(&self, id: RaftId) -> Result<(), MemberError> {
        self.change(Change::RemoveNodes(BTreeSet::from([id.0]))).await
    }

    /// Makes exactly `ids` the voters; those added must be learners, those left out are members no longer. Two entries: a
    /// crash between them leaves the status `joint`, and calling this again finishes it.
    pub async fn set_voters(&self, ids: BTreeSet<RaftId>) -> Result<(), MemberError> {
        if ids.is_empty() {
            return Err(MemberError::Refused { why: "there must be a voter".to_owned() });
        }
        self.change(Change::ReplaceAllVoters(ids.into_iter().map(|id| id.0).collect())).await
    }

    /// Hands leadership to the voter `to` and returns once it is seen to lead, within 5 s.
    pub async fn transfer_leader(&self, to: RaftId) -> Result<(), MemberError> {
        let _one_at_a_time = self.inner.change.try_lock().map_err(|_| MemberError::InFlight)?;
        let mut status = self.inner.status.clone();
        let now = status.borrow().clone();
        if now.leader == Some(to) {
            return Ok(());
        }
        if now.leader != Some(now.id) {
            let leader = now.leader.and_then(|id| Some((id, now.voters.get(&id)?.clone())));
            return Err(MemberError::NotLeader { leader });
        }
        if !now.voters.contains_key(&to) {
            return Err(MemberError::Refused { why: format!("raft id {to} is no voter") });
        }
        {
            // A member that lacks an entry of this log pays no heed to the order, and nobody would lead until all had missed a
            // leader for the time of an election. So nothing is appended from before it has all until it leads.
            let _closed = tokio::time::timeout(QUIET_MAX, self.inner.door.write()).await;
            let unknown = |e: &dyn std::fmt::Display| MemberError::Unknown { why: e.to_string() };
            // What was proposed before is in the log when this is answered.
            self.inner.core.with_raft_state(|_| ()).await.map_err(|e| unknown(&e))?;
            let last = self.inner.log.last().map_or(0, |(_, index)| index);
            let has_all = |s: &RaftStatus| s.matched.get(&to).is_some_and(|have| *have >= last);
            if tokio::time::timeout(QUIET_MAX, status.wait_for(|s| has_all(s) || !s.running)).await.is_err() {
                return Err(MemberError::Refused { why: format!("raft id {to} does not have all entries") });
            }
            self.inner.core.trigger().transfer_leader(to.0).await.map_err(|e| unknown(&e))?;
            let _ = tokio::time::timeout(QUIET_MAX, status.wait_for(|s| s.leader == Some(to) || !s.running)).await;
        }
        let seen = tokio::time::timeout(STEP_MAX, status.wait_for(|s| s.leader == Some(to) || !s.running)).await;
        match seen {
            Ok(Ok(status)) if status.leader == Some(to) => Ok(()),
            Ok(_) => Err(MemberError::Unknown { why: "raft has stopped".to_owned() }),
            Err(_) => {
                Err(MemberError::Unknown { why: format!("raft id {to} does not lead after {} s", STEP_MAX.as_secs()) })
            }
        }
    }

    async fn change(&self, change: Change) -> Result<(), MemberError> {
        let _one_at_a_time = self.inner.change.try_lock().map_err(|_| MemberError::InFlight)?;
        let seen = self.inner.core.metrics().borrow_watched().membership_config.clone();
        let precondition = Precondition::LastMembershipLogId { last_membership_log_id: *seen.log_id() };
        let changed = self.inner.core.change_membership_if(change, false, [precondition]);
        match tokio::time::timeout(STEP_MAX, changed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(CoreError::APIError(error))) => Err(self.refusal(error)),
            Ok(Err(CoreError::Fatal(fatal))) => Err(MemberError::Unknown { why: fatal.to_string() }),
            Err(_) => Err(MemberError::Unknown { why: format!("not committed within {} s", STEP_MAX.as_secs()) }),
        }
    }

    fn refusal(&self, error: ClientWriteError<Types<S>>) -> MemberError {
        match error {
            ClientWriteError::ForwardToLeader(forward) => {
                MemberError::NotLeader { leader: types::leader::<S>(&forward, self.inner.us.id) }
            }
            ClientWriteError::LogEntryDiscarded(_) => MemberError::Unknown { why: error.to_string() },
            ClientWriteError::PreconditionFailed(_)
            | ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_),
            ) => MemberError::InFlight,
            ClientWriteError::ChangeMembershipError(other) => MemberError::Refused { why: other.to_string() },
        }
    }
}
