//! Brings the Raft membership towards the granted ids: learner first, then voter, one change in flight.
//!
//! Demotion, removal and their safeguards belong to the membership issue.

use super::Shared;
use crate::model::{NodeId, NodeName, RaftId, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Entries that a learner may lack when it is given a vote.
const LAG_MAX: u64 = 100;
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Members {
    shared: Arc<Shared>,
    busy: Arc<AtomicBool>,
}

impl Members {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, busy: Arc::default() }
    }

    /// Adds the first granted node that gossip has and Raft has not, or has at another address than is entered.
    pub fn tick(&mut self, present: &BTreeMap<NodeName, Report>) {
        let status = self.shared.raft.status().borrow().clone();
        let inventory = self.shared.inventory();
        let next = inventory.nodes.values().find_map(|n| {
            let id = n.raft?;
            let known = status.voters.get(&id);
            (present.contains_key(n.name()) && known != Some(&n.spec.api)).then(|| (id, n.spec.api.clone()))
        });
        let Some((id, addr)) = next else { return };
        if self.busy.swap(true, Ordering::SeqCst) {
            return;
        }
        let (shared, busy) = (self.shared.clone(), self.busy.clone());
        let learner = status.learners.contains_key(&id);
        tokio::spawn(async move {
            let step = tokio::time::timeout(STEP_TIMEOUT, add(&shared, id, addr, learner)).await;
            match step {
                Ok(Ok(())) => tracing::info!(raft = %id, "is a voter at the entered address now"),
                Ok(Err(error)) => tracing::warn!(raft = %id, %error, "could not be made a voter; tried again"),
                Err(_) => tracing::warn!(raft = %id, "making it a voter took too long; tried again"),
            }
            busy.store(false, Ordering::SeqCst);
        });
    }

    /// Hands the leadership to another voter: so that this node can be set up again, or to the one that has a way to a node
    /// (`to`), once that one has everything that is applied here.
    pub fn hand_over(&mut self, why: String, to: Option<NodeId>) {
        if self.busy.swap(true, Ordering::SeqCst) {
            return;
        }
        let (shared, busy) = (self.shared.clone(), self.busy.clone());
        tokio::spawn(async move {
            let status = shared.raft.status().borrow().clone();
            let wanted = to.and_then(|to| shared.inventory().node(to)?.raft);
            let has_all = |id: &RaftId| status.matched.get(id).is_some_and(|have| Some(*have) >= status.last_applied);
            let fits = |id: &&RaftId| to.is_none() || wanted == Some(**id) && has_all(id);
            for id in status.voters.keys().filter(|id| **id != status.id).filter(fits) {
                let step = tokio::time::timeout(STEP_TIMEOUT, shared.raft.transfer_leader(*id)).await;
                if matches!(step, Ok(Ok(()))) {
                    tracing::info!(to = %id, %why, "handed the leadership over");
                    break;
                }
            }
            busy.store(false, Ordering::SeqCst);
        });
    }
}

async fn add(shared: &Shared, id: RaftId, addr: String, learner: bool) -> Result<(), crate::raft::MemberError> {
    let status = shared.raft.status().borrow().clone();
    if !learner || status.learners.get(&id) != Some(&addr) {
        shared.raft.add_learner(id, addr).await?;
    }
    if status.voters.contains_key(&id) {
        return Ok(());
    }
    // A vote only for who has nearly the whole log: a promotion must not cost the quorum.
    let mut status = shared.raft.status();
    let caught_up = |s: &crate::raft::RaftStatus| {
        s.matched.get(&id).is_some_and(|have| have + LAG_MAX >= s.last_log.unwrap_or(0)) || !s.is_leader
    };
    let _ = status.wait_for(caught_up).await; // the caller bounds the whole step
    let mut voters: BTreeSet<RaftId> = shared.raft.status().borrow().voters.keys().copied().collect();
    voters.insert(id);
    shared.raft.set_voters(voters).await
}
