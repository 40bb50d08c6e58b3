//! Records changed addresses of nodes. If a returning node signs an address that differs from its
//! recorded one, the new address is recorded first. The return is recorded afterwards. The desired
//! state is rendered with the new address before any node is compared with it. This module opens no
//! job.

use super::event::{About, Action};
use super::manager::{ManagerEngine, StepContext};
use remoor_model::{Command, GenerationSeq, Inventory, Node, NodeId, NodeName, Now, Sha256};
use std::collections::BTreeMap;

/// Timeout of [`Action::Render`], after which the rendering is requested again.
const RENDER_MS: u64 = 15_000;
/// Maximum time that examinations wait for a rendering. The limit exists because a rendering may
/// fail.
const RENDER_WAIT_MS: u64 = 60_000;

/// The decision about the gossip address that a node signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressDecision {
    /// The address is recorded already, or it is invalid.
    Stays,
    /// Record the address. `was` is the node that has this address in the inventory. That node is
    /// away or at another address.
    Enter { command: Command, was: Option<NodeId> },
    /// Another present node has the address. Two machines use one address, or one of them is not a
    /// node of this cluster.
    Held(NodeId),
}

/// Decides about the address `gossip`, which `node` signs in gossip. For the id of another node,
/// `elsewhere` returns whether that node currently signs a different address.
pub fn decide_address(
    inventory: &Inventory,
    node: &Node,
    gossip: &str,
    elsewhere: impl Fn(NodeId) -> bool,
) -> AddressDecision {
    let elsewhere_now = gossip.rsplit_once(':').filter(|_| node.spec.gossip != gossip);
    let Some((host, _)) = elsewhere_now else { return AddressDecision::Stays };
    let holder = inventory.address_holder(node.id, gossip);
    let over = holder.map(|n| n.id).filter(|id| elsewhere(*id));
    if let Some(holder) = holder.filter(|n| !n.is_away() && over.is_none()) {
        return AddressDecision::Held(holder.id);
    }
    // The API listens on the same IP address as gossip. The API's port is not in gossip and stays
    // the same.
    let port = node.spec.api.rsplit_once(':').map_or("7947", |(_, port)| port);
    let api = format!("{host}:{port}");
    let command = Command::Readdress { node: node.id, api, gossip: gossip.to_owned(), over };
    AddressDecision::Enter { command, was: holder.map(|n| n.id) }
}

/// The progress of rendering the desired state for changed addresses.
#[derive(Debug, Clone, Default)]
pub struct Rendering {
    /// The time since which a rendering is due.
    due: Option<Now>,
    asked: Option<Now>,
    /// The command with the result of the rendering. The engine proposes it repeatedly until it is
    /// applied or outdated.
    answer: Option<Command>,
}

impl Rendering {
    pub(super) fn store_result(
        &mut self,
        generation: GenerationSeq,
        moved: u64,
        result: Result<BTreeMap<NodeName, Sha256>, String>,
    ) {
        let (hosts, fault) = match result {
            Ok(hosts) => (hosts, None),
            Err(fault) => (BTreeMap::new(), Some(fault)),
        };
        self.answer = Some(Command::Rendered { generation, moved, hosts, fault });
    }
}

impl ManagerEngine {
    /// Records the node's address if it changed. Returns true while the address change is proposed
    /// but not applied. All other work on the node then waits.
    pub(super) fn update_address(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) -> bool {
        let Some(seen) = self.seen.get(&node.id) else { return false };
        if seen.held.is_none() && seen.gossip.as_ref() == Some(&node.spec.gossip) {
            return false; // for most entries the address of most nodes is unchanged
        }
        let Some(gossip) = seen.gossip.clone() else { return false };
        let elsewhere = |id: NodeId| {
            let there = self.seen.get(&id).filter(|s| s.alive).and_then(|s| s.gossip.as_ref());
            there.is_some_and(|other| *other != gossip)
        };
        let name = |id: NodeId| at.inventory.node(id).map(|n| n.name().to_string()).unwrap_or_default();
        match decide_address(at.inventory, node, &gossip, elsewhere) {
            AddressDecision::Stays => {
                self.seen.entry(node.id).or_default().held = None;
                false
            }
            AddressDecision::Held(other) => {
                let text = format!(
                    "{} announces the address {gossip}, which is recorded for {}: two machines use one address; the record \
                     stays, and logins still require the recorded host key",
                    node.name(),
                    name(other)
                );
                let seen = self.seen.entry(node.id).or_default();
                if seen.held.as_ref() != Some(&gossip) {
                    let key = format!("address-held {} {gossip}", node.id);
                    seen.held = Some(gossip);
                    out.push(Action::Notify { key, node: Some(node.id), text });
                }
                false
            }
            AddressDecision::Enter { command, was } => {
                if let Some(other) = was {
                    let text =
                        format!("{} now has the address {gossip}, which was recorded for {}", node.name(), name(other));
                    let key = format!("address-taken {} {gossip}", node.id);
                    out.push(Action::Notify { key, node: Some(node.id), text });
                }
                self.propose(at, node.id, command, out);
                true
            }
        }
    }

    /// Requests the rendering of the generation after an address change, and proposes the result.
    pub(super) fn render(&mut self, at: StepContext, out: &mut Vec<Action>) {
        let Some((generation, moved)) = at.inventory.pending_rendering() else {
            self.rendering = Rendering::default();
            return;
        };
        self.rendering.due.get_or_insert(at.now);
        let fits = |command: &Command| matches!(command, Command::Rendered { generation: g, moved: m, .. } if (*g, *m) == (generation, moved));
        if let Some(answer) = &self.rendering.answer {
            if !fits(answer) {
                (self.rendering.answer, self.rendering.asked) = (None, None);
            } else if self.fleet_is_free(at.now) {
                self.proposing_fleet = Some(at.now);
                out.push(Action::Propose { about: About::Fleet, command: answer.clone() });
            }
        }
        let waits = self.rendering.asked.is_some_and(|since| at.now.ms_since(since) < RENDER_MS);
        if self.rendering.answer.is_none() && !waits {
            self.rendering.asked = Some(at.now);
            out.push(Action::Render { generation, moved });
        }
    }

    /// Whether a new desired state is being rendered. Examinations then wait, because they would
    /// compare the node with the outdated desired state.
    pub(super) fn is_rendering(&self, now: Now) -> bool {
        self.rendering.due.is_some_and(|since| now.ms_since(since) < RENDER_WAIT_MS)
    }
}
