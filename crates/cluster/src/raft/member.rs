//! Changes of the members: learners, voters and the leader. Only one change runs at a time, and it
//! is checked against the list of members for which it was made.

use super::StateMachine;
use super::error::MemberError;
use super::handle::Raft;
use super::status::RaftStatus;
use super::types::{self, Types};
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError as CoreError};
use openraft::{BasicNode, ChangeMembers, Precondition};
use remoor_model::RaftId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum wait for one step of a change of members. After this time the outcome is unknown.
const STEP_MAX: Duration = Duration::from_secs(5);

/// Maximum time of each of three waits during a transfer of leadership: until no proposal is under
/// way, until the new leader has all entries, and until it leads. Proposals wait meanwhile. Each
/// wait normally takes some milliseconds.
const QUIET_MAX: Duration = Duration::from_secs(1);

type Change = ChangeMembers<u64, BasicNode>;

impl<S: StateMachine> Raft<S> {
    /// Adds a learner, or changes the address of a known member. Returns when the change is
    /// committed. The status shows when the learner has caught up.
    pub async fn add_learner(&self, id: RaftId, addr: String) -> Result<(), MemberError> {
        let status = self.inner.status.borrow().clone();
        let known = status.voters.get(&id).or_else(|| status.learners.get(&id));
        let node = BTreeMap::from([(id.0, BasicNode { addr: addr.clone() })]);
        match known {
            Some(same) if *same == addr && status.is_leader => Ok(()),
            // A wrong address is harmless, because every message names its target and no other
            // member answers it.
            Some(_) => self.change(Change::SetNodes(node)).await,
            None => self.change(Change::AddNodes(node)).await,
        }
    }

    /// Removes a learner. An unknown id is not an error.
    pub async fn remove_learner(&self, id: RaftId) -> Result<(), MemberError> {
        self.change(Change::RemoveNodes(BTreeSet::from([id.0]))).await
    }

    /// Makes exactly `ids` the voters. An added voter must be a learner. A removed voter is no
    /// longer a member. The change takes two entries. After a crash between them the status is
    /// `joint`, and another call completes the change.
    pub async fn set_voters(&self, ids: BTreeSet<RaftId>) -> Result<(), MemberError> {
        if ids.is_empty() {
            return Err(MemberError::Refused { why: "there must be a voter".to_owned() });
        }
        self.change(Change::ReplaceAllVoters(ids.into_iter().map(|id| id.0).collect())).await
    }

    /// Transfers leadership to the voter `to`. Returns once `to` leads. Each wait during the
    /// transfer ends after at most 5 s.
    pub async fn transfer_leader(&self, to: RaftId) -> Result<(), MemberError> {
        let _one_at_a_time = self.inner.change.try_lock().map_err(|_| MemberError::InFlight)?;
        let mut status = self.inner.status.clone();
        let now = status.borrow().clone();
        if now.leader == Some(to) {
            return Ok(());
        }
        if now.leader != Some(now.id) {
            let leader = now.leader_address().map(|(id, addr)| (id, addr.clone()));
            return Err(MemberError::NotLeader { leader });
        }
        if !now.voters.contains_key(&to) {
            return Err(MemberError::Refused { why: format!("raft id {to} is not a voter") });
        }
        {
            // A member that lacks an entry of this log ignores the transfer. Then no member would
            // lead until all members had missed a leader for an election timeout. So this member
            // lets no proposal into its log until `to` has all entries and leads.
            let _closed = tokio::time::timeout(QUIET_MAX, self.inner.proposal_gate.write()).await;
            let unknown = |e: &dyn std::fmt::Display| MemberError::Unknown { why: e.to_string() };
            // When this call is answered, earlier proposals are in the log.
            let vote = self.inner.core.with_raft_state(|state| *state.vote_ref()).await;
            let term = vote.map_err(|e| unknown(&e))?.leader_id.term;
            let last = self.inner.log.last().map_or(0, |(_, index)| index);
            let has_all = |s: &RaftStatus| s.matched.get(&to).is_some_and(|have| *have >= last);
            if tokio::time::timeout(QUIET_MAX, status.wait_for(|s| has_all(s) || !s.running)).await.is_err() {
                return Err(MemberError::Refused { why: format!("raft id {to} does not have all entries") });
            }
            self.give_up_leading(term);
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

    /// Publishes that this member no longer leads in the term `term`. Must be called before the
    /// transfer, because the next leader may begin to lead long before its first message arrives
    /// here. Until then, openraft keeps the state `Leader` but proposes nothing.
    fn give_up_leading(&self, term: u64) {
        self.inner.handed_over.store(term, Ordering::Release);
        self.inner.publish_status.send_modify(|status| status.give_up_leading(term));
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
                MemberError::NotLeader { leader: types::leader::<S>(&forward, self.inner.local.id) }
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
