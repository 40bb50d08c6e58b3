//! Drives the role manager: passes Raft's membership to it and carries out its steps as calls.

use super::ManagerContext;
use super::api::managers_of;
use remoor_cluster::raft::{CLAIM, RaftStatus};
use remoor_cluster::rpc::node::{ASK_PATH, MANAGE_PATH, ManageReply, ManageRequest};
use remoor_engine::{Membership, RoleManager, RoleStep, RoleSubject};
use remoor_model::{
    Applied, ClusterRole, Command, Inventory, InventoryEntry, Node, NodeId, NodeName, Now, RaftId, Report, majority,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Maximum time of one step of the role manager. It is shorter than the time after which the role
/// manager counts a step as lost. So a late answer can't be mistaken for the answer to a later
/// step.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a node that becomes a manager, because the node writes its identity and opens its
/// log before it answers.
const MANAGE_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for the answers of voters, which are asked immediately before a change of the voters.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Maximum age of a member's last answer, in milliseconds, for the member to count as reachable. It
/// is several heartbeats, and less than the duration of an election.
pub const HEARD_MS: u64 = 1_500;

/// Raft's membership in the form that the role manager uses.
pub fn membership(status: &RaftStatus) -> Membership {
    let heard = status.acked_ms.iter().filter(|(_, ms)| **ms <= HEARD_MS);
    Membership {
        me: status.id,
        voters: status.voters.clone(),
        learners: status.learners.clone(),
        target: status.target.clone(),
        joint: status.joint,
        committed: status.members_committed,
        last_log: status.last_log.unwrap_or(0),
        matched: status.matched.clone(),
        heard: heard.map(|(id, _)| *id).collect(),
    }
}

/// Result of a step of the role manager. Err contains the reason why the step must be repeated.
type Outcome = Result<(), String>;

pub struct Members {
    shared: Arc<ManagerContext>,
    /// Whether the leadership is being handed over for a reason other than a change of roles.
    busy: Arc<AtomicBool>,
    roles: RoleManager,
    /// Channel for the result of the role manager's running step.
    ended: (mpsc::UnboundedSender<Outcome>, mpsc::UnboundedReceiver<Outcome>),
}

impl Members {
    pub fn new(shared: Arc<ManagerContext>) -> Self {
        Self { shared, busy: Arc::default(), roles: RoleManager::default(), ended: mpsc::unbounded_channel() }
    }

    /// Discards the role manager's steps of an earlier leadership; late answers to them are
    /// ignored.
    pub fn forget(&mut self) {
        self.roles = RoleManager::default();
        self.ended = mpsc::unbounded_channel();
        self.shared.published.set_role_waits(BTreeMap::new());
    }

    /// Checks the membership and starts at most one step. `present` contains the members in gossip.
    pub fn tick(&mut self, now: Now, present: &BTreeMap<NodeName, Report>) {
        while let Ok(outcome) = self.ended.1.try_recv() {
            self.roles.finish_step(now, outcome);
        }
        let status = self.shared.raft.status().borrow().clone();
        if !status.is_leader || self.busy.load(Ordering::SeqCst) {
            return;
        }
        let inventory = self.shared.inventory();
        let up: BTreeSet<NodeId> = present.keys().filter_map(|name| inventory.names.get(name)).copied().collect();
        let seen = membership(&status);
        let step = self.roles.step(now, &inventory, &seen, &up);
        let waits =
            inventory.nodes.keys().filter_map(|id| Some((*id, self.roles.waits(RoleSubject::Node(*id))?.to_owned())));
        self.shared.published.set_role_waits(waits.collect());
        let Some(step) = step else { return };
        let (shared, ended) = (self.shared.clone(), self.ended.0.clone());
        tokio::spawn(async move {
            let performed = tokio::time::timeout(STEP_TIMEOUT, perform(&shared, &inventory, &seen, &step)).await;
            let outcome =
                performed.unwrap_or_else(|_| Err(format!("the step took longer than {} s", STEP_TIMEOUT.as_secs())));
            match &outcome {
                Ok(()) => tracing::info!(?step, "a step of the role manager is done"),
                Err(error) => tracing::warn!(?step, error, "a step of the role manager failed; retrying"),
            }
            let _ = ended.send(outcome);
        });
    }

    /// Hands the leadership over. With `to`, the new leader is the manager `to`, which reaches a
    /// node and must have all entries that are applied here. Without `to`, it is any other voter,
    /// so that this node can be set up again.
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
                    tracing::info!(to = %id, %why, "leadership handed over");
                    break;
                }
            }
            busy.store(false, Ordering::SeqCst);
        });
    }
}

async fn perform(shared: &ManagerContext, inventory: &Inventory, seen: &Membership, step: &RoleStep) -> Outcome {
    let raft = &shared.raft;
    let changed = match step {
        RoleStep::Grant { node } => return propose(shared, Command::Grant { node: *node, founder: false }).await,
        RoleStep::Retire { node, raft: id } => {
            let status = raft.status().borrow().clone();
            if status.voters.contains_key(id) || status.learners.contains_key(id) {
                return Err("the node is a member of Raft again".to_owned());
            }
            return propose(shared, Command::Retire { node: *node, raft: *id }).await;
        }
        RoleStep::Remove { node } => {
            let order = inventory.node(*node).and_then(|node| node.removing.as_ref());
            let rotate_gossip = order.is_some_and(|order| order.rotate_gossip);
            propose(shared, Command::Remove { node: *node, force: true, rotate_gossip }).await?;
            tell_removed(shared, inventory.node(*node));
            return Ok(());
        }
        RoleStep::Enlist { node, raft: id, addr } => {
            still_to_manage(shared, *node, *id)?;
            manage(shared, inventory, *node, *id, addr).await?;
            still_to_manage(shared, *node, *id)?;
            raft.add_learner(*id, addr.clone()).await
        }
        RoleStep::Readdress { raft: id, addr } => {
            let status = raft.status().borrow().clone();
            if !status.voters.contains_key(id) && !status.learners.contains_key(id) {
                return Err("the node is not a member of Raft any more".to_owned());
            }
            raft.add_learner(*id, addr.clone()).await
        }
        RoleStep::SetVoters { voters, raft: about } => {
            answer_now(shared, voters).await?;
            // The role manager made the step for the membership `seen`. If the membership has
            // changed since then, the step could undo that change.
            if membership(&raft.status().borrow()).list() != seen.list() {
                return Err("the membership has changed meanwhile".to_owned());
            }
            let wanted = shared.inventory().raft_id_holder(*about).is_some_and(|n| n.role == ClusterRole::Manager);
            if !seen.joint && wanted != voters.contains(about) {
                return Err("the role of the node has changed meanwhile".to_owned());
            }
            raft.set_voters(voters.clone()).await
        }
        RoleStep::RemoveLearner { raft: id } => raft.remove_learner(*id).await,
        RoleStep::HandOver { to } => raft.transfer_leader(*to).await,
    };
    changed.map_err(|e| e.to_string())
}

/// Makes a removed node ask the managers, so that it learns of its removal. If the message is lost,
/// the node learns of it later by its own requests.
pub fn tell_removed(shared: &ManagerContext, node: Option<&Node>) {
    let Some(node) = node else { return };
    let client = shared.peers.node(node.id, &node.spec.api).with_timeout(ANSWER_WITHIN);
    tokio::spawn(async move { drop(client.post_bytes(ASK_PATH, Vec::new().into()).await) });
}

/// Checks that the node is still intended to be a manager with this Raft id. During the request to
/// the node, the promotion may have been cancelled, or the node may have received another Raft id.
fn still_to_manage(shared: &ManagerContext, node: NodeId, raft: RaftId) -> Result<(), String> {
    let inventory = shared.inventory();
    let stands = |n: &Node| n.role == ClusterRole::Manager && n.raft == Some(raft);
    inventory.node(node).filter(|n| stands(n)).map(drop).ok_or_else(|| "the promotion was cancelled".to_owned())
}

/// Checks, immediately before a change of voters, that a majority of the current voters and of the
/// next voters answers. A change can't be undone after it has begun, and without both majorities
/// nothing is committed. A voter that answered a moment ago may be down now.
async fn answer_now(shared: &ManagerContext, next: &BTreeSet<RaftId>) -> Result<(), String> {
    let status = shared.raft.status().borrow().clone();
    let known = status.voters.iter().chain(&status.learners).filter(|(id, _)| **id != status.id);
    let asked = known.filter(|(id, _)| status.voters.contains_key(*id) || next.contains(*id)).map(|(id, addr)| {
        let client = shared.peers.member(*id, addr).with_timeout(ANSWER_WITHIN);
        let claim = shared.raft.claim(*id);
        async move { client.post_bytes(&format!("/raft/{CLAIM}"), claim.ok()?.into()).await.ok().map(|_| *id) }
    });
    let answered = futures_util::future::join_all(asked).await;
    let answered: BTreeSet<RaftId> = answered.into_iter().flatten().chain([status.id]).collect();
    for voters in [&status.voters.keys().copied().collect(), next] {
        let up = voters.intersection(&answered).count();
        if up < majority(voters.len()) {
            return Err(format!("{up} of {} managers answer now, and a majority is needed", voters.len()));
        }
    }
    Ok(())
}

async fn propose(shared: &ManagerContext, command: Command) -> Result<(), String> {
    let entry = InventoryEntry { at: shared.entry_time(), by: shared.identity.name.to_string(), command };
    match shared.raft.propose(entry).await {
        Ok((_, Applied::Refused(refusal))) => Err(refusal.to_string()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends the order to become a manager to the address that Raft will use. So an address where the
/// node does not answer never enters the membership (docs/design/scenarios.md, E14).
async fn manage(
    shared: &ManagerContext,
    inventory: &Inventory,
    node: NodeId,
    raft: RaftId,
    addr: &str,
) -> Result<(), String> {
    let managers = managers_of(inventory).into_iter().filter(|peer| peer.id != node).collect();
    let request =
        ManageRequest { cluster: shared.identity.cluster.clone(), epoch: inventory.epoch, node, raft, managers };
    let client = shared.peers.node(node, addr).with_timeout(MANAGE_WITHIN);
    let reply: ManageReply = client.post(MANAGE_PATH, &request).await.map_err(|e| format!("{addr}: {e}"))?;
    match reply.raft == raft {
        true => Ok(()),
        false => Err(format!("{addr} answers with Raft id {} instead of {raft}", reply.raft)),
    }
}
