//! A member's view of its log and of the other members, for operators and for the layers above.

use super::StateMachine;
use super::handle::Inner;
use super::types::Types;
use openraft::async_runtime::WatchReceiver;
use openraft::{Instant, RaftMetrics, ServerState};
use remoor_model::RaftId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Pause after a report of openraft in which only log positions changed. Each entry causes several
/// reports. Without the pause each report would wake all tasks that wait for the status.
const PAUSE: Duration = Duration::from_millis(5);

/// A member's own view of the Raft cluster. Other members may know newer facts, so output must name
/// the member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RaftStatus {
    pub id: RaftId,
    pub term: u64,
    /// The leader that this member follows. It may be this member itself.
    pub leader: Option<RaftId>,
    /// Whether this member leads: a majority acknowledged it within the last lease, and it has
    /// applied everything that was committed before.
    pub is_leader: bool,
    /// Whether this member led in this term and handed its leadership over. It then never leads
    /// again in this term, although it may still have a lease.
    pub handed_over: bool,
    /// The end of the leader's lease, which an acknowledgement of a majority renews. A reader
    /// compares it with the current time. None if this member is the only voter, or if no majority
    /// ever acknowledged it.
    pub leads_until: Option<std::time::Instant>,
    /// Index of the last entry in the log, committed or not.
    pub last_log: Option<u64>,
    pub last_applied: Option<u64>,
    /// The voters of the current configuration, with addresses. While `joint`, the voters of both
    /// the old and the new configuration.
    pub voters: BTreeMap<RaftId, String>,
    pub learners: BTreeMap<RaftId, String>,
    /// Whether a change of voters is half done. Setting the voters again completes it.
    pub joint: bool,
    /// The voters after the half-done change. If no change is half done, they equal `voters`.
    pub target: BTreeSet<RaftId>,
    /// Voters whose vote does not count yet, because the change that adds them is half done or not
    /// committed. Until the change is complete, the earlier voters are also needed for a quorum.
    pub entering: BTreeSet<RaftId>,
    /// Whether the newest list of members is committed. Until then no other change is accepted.
    pub members_committed: bool,
    /// On the leader: milliseconds since a majority last acknowledged this leader.
    pub quorum_acked_ms: Option<u64>,
    /// On the leader: the index up to which each other member has the log.
    pub matched: BTreeMap<RaftId, u64>,
    /// On the leader: milliseconds since the last answer of each other member. The map does not
    /// contain a member that never answered.
    pub acked_ms: BTreeMap<RaftId, u64>,
    /// On the leader: the duration of its uninterrupted leadership, in milliseconds.
    pub led_ms: Option<u64>,
    /// False once the log has stopped for any reason. The process should then exit.
    pub running: bool,
    /// The reason why the log stopped.
    pub stopped: Option<String>,
}

impl RaftStatus {
    /// Whether this member leads now. It compares the lease with the clock, because others may have
    /// elected another leader while this process was paused.
    pub fn leads(&self) -> bool {
        self.is_leader && self.leads_until.is_none_or(|until| std::time::Instant::now() < until)
    }

    /// The leader and its address, as far as this member knows. The leader may be this member.
    pub fn leader_address(&self) -> Option<(RaftId, &String)> {
        let id = self.leader?;
        Some((id, self.voters.get(&id)?))
    }

    /// Marks the status as not leading if this member handed its leadership over in this term.
    /// `handed_over` is the term of the last hand-over.
    pub(super) fn give_up_leading(&mut self, handed_over: u64) {
        self.handed_over = self.term == handed_over && self.leader == Some(self.id);
        self.is_leader &= !self.handed_over;
    }

    /// A copy of the status without the values that change merely because time passes.
    fn without_times(&self) -> Self {
        Self { quorum_acked_ms: None, leads_until: None, led_ms: None, acked_ms: BTreeMap::new(), ..self.clone() }
    }

    /// A copy of the status without log positions: only the leader and the members.
    fn without_positions(&self) -> Self {
        Self { last_log: None, last_applied: None, matched: BTreeMap::new(), ..self.without_times() }
    }
}

/// Translates one report of openraft. `lease` is the time for which an acknowledgement is valid.
pub fn project<S: StateMachine>(metrics: &RaftMetrics<Types<S>>, lease: Duration) -> RaftStatus {
    let elapsed = |at: openraft::TokioInstant| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
    let membership = metrics.membership_config.membership();
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    // A single voter is its own majority. openraft then receives no acknowledgements, so its time
    // of the last acknowledgement does not advance.
    let alone = voters.len() == 1 && voters.contains(&metrics.id) && metrics.state == ServerState::Leader;
    let now = std::time::Instant::now();
    let quorum_acked_ms = if alone { Some(0) } else { metrics.last_quorum_acked.map(|at| elapsed(at.into_inner())) };
    let acked = quorum_acked_ms.is_some_and(|ms| u128::from(ms) < lease.as_millis());
    let caught_up = metrics.last_applied.is_some_and(|id| id.leader_id == *metrics.vote.leader_id());
    let running = metrics.running_state.is_ok();

    let members = |voting: bool| {
        let chosen = membership.nodes().filter(|(id, _)| voters.contains(id) == voting);
        chosen.map(|(id, node)| (RaftId(*id), node.addr.clone())).collect()
    };
    let committed = metrics.committed_membership_config.membership();
    let target = || membership.get_joint_config().last().into_iter().flatten();
    let everywhere =
        |id: &u64| membership.get_joint_config().iter().chain(committed.get_joint_config()).all(|c| c.contains(id));
    let others = |id: &u64| *id != metrics.id;
    RaftStatus {
        id: RaftId(metrics.id),
        term: metrics.current_term,
        leader: metrics.current_leader.map(RaftId),
        is_leader: running && metrics.state == ServerState::Leader && acked && caught_up,
        handed_over: false, // `follow` sets it
        leads_until: quorum_acked_ms.filter(|_| !alone).map(|ms| now + lease.saturating_sub(Duration::from_millis(ms))),
        last_log: metrics.last_log_index,
        last_applied: metrics.last_applied.map(|id| id.index),
        voters: members(true),
        learners: members(false),
        joint: membership.get_joint_config().len() > 1,
        target: target().map(|id| RaftId(*id)).collect(),
        entering: target().filter(|id| !everywhere(id)).map(|id| RaftId(*id)).collect(),
        members_committed: metrics.membership_config.log_id() == metrics.committed_membership_config.log_id(),
        quorum_acked_ms,
        led_ms: None, // `follow` sets it, because one report does not contain it
        matched: metrics
            .replication
            .iter()
            .flatten()
            .filter(|(id, _)| others(id))
            .filter_map(|(id, matched)| Some((RaftId(*id), matched.as_ref()?.index)))
            .collect(),
        acked_ms: metrics
            .heartbeat
            .iter()
            .flatten()
            .filter(|(id, _)| others(id))
            .filter_map(|(id, at)| Some((RaftId(*id), elapsed(at.as_ref()?.into_inner()))))
            .collect(),
        running,
        stopped: metrics.running_state.as_ref().err().map(ToString::to_string),
    }
}

/// Follows openraft's reports until openraft ends. It also computes the status once per `tick`,
/// because a lease expires without a report. `handed_over` is the term in which this member last
/// handed its leadership over.
///
/// On the leader it requests a heartbeat from `raft` once per `tick`. A new leader has no lease
/// before its first heartbeat is answered, so that heartbeat is requested at once.
pub async fn follow<S: StateMachine>(
    mut metrics: impl WatchReceiver<openraft::type_config::alias::WatchOf<Types<S>>, RaftMetrics<Types<S>>>,
    raft: Weak<Inner<S>>,
    (status, handed_over): (watch::Sender<RaftStatus>, Arc<AtomicU64>),
    tick: Duration,
    lease: Duration,
) {
    let (mut begun, mut since) = (0, None::<std::time::Instant>);
    let mut beat = tokio::time::Instant::now();
    loop {
        let ended = match tokio::time::timeout_at(beat + tick, metrics.changed()).await {
            Ok(Ok(())) | Err(_) => false,
            Ok(Err(_)) => true,
        };
        // Copy the report and release it, because a held reference would block openraft's core.
        let report = metrics.borrow_watched().clone();
        let mut new = project::<S>(&report, lease);
        let first = report.state == ServerState::Leader && new.quorum_acked_ms.is_none() && new.term > begun;
        if first || beat.elapsed() >= tick {
            beat = tokio::time::Instant::now();
            if let Some(raft) = raft.upgrade().filter(|_| report.state == ServerState::Leader) {
                begun = new.term;
                // An error means that openraft has ended. Its reports show the end anyway.
                let _ = raft.core.trigger().heartbeat().await;
            }
        }
        new.give_up_leading(handed_over.load(Ordering::Acquire));
        since = since.filter(|_| new.is_leader).or_else(|| new.is_leader.then(std::time::Instant::now));
        new.led_ms = since.map(|since| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
        if ended && new.running {
            new.running = false;
            new.is_leader = false;
            new.stopped = Some("raft ended".to_owned());
        }
        let over = ended || !new.running;
        let mut moved = false;
        // Times are always refreshed, but a change of times alone does not wake waiters.
        status.send_if_modified(|old| {
            // The leadership may have been handed over since the report was read.
            new.give_up_leading(handed_over.load(Ordering::Acquire));
            let changed = old.without_times() != new.without_times();
            moved = old.without_positions() != new.without_positions();
            *old = new;
            changed
        });
        if over {
            return;
        }
        if !moved {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[test]
fn who_was_stopped_leads_no_more_before_the_next_report() {
    let now = std::time::Instant::now();
    let at = |leads_until| RaftStatus { is_leader: true, leads_until, ..RaftStatus::default() }.leads();
    assert!(at(None), "alone");
    assert!(at(Some(now + Duration::from_secs(60))));
    assert!(!at(Some(now)));
    assert!(!RaftStatus::default().leads());
}
