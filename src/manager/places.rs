//! Addresses, outside of the engine: what is desired rendered with those of now, and other managers found where they are.

use super::peers::Places;
use super::shared::known_of;
use super::{Shared, blobs};
use crate::fleet;
use crate::model::{GenerationSeq, Node, NodeId, NodeName, RaftId, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// The hosts of a generation that are to be something else at the addresses of now. Err: why it can't be rendered with
/// them. None: it is not here to be rendered, and may be asked for again.
pub async fn render(shared: &Arc<Shared>, seq: GenerationSeq) -> Option<Result<BTreeMap<NodeName, Sha256>, String>> {
    let inventory = shared.inventory();
    let generation = inventory.generations.get(&seq).cloned()?;
    blobs::ensure(shared, &generation.blob).await;
    let shared = shared.clone();
    let work = move || {
        let fleet = shared.book.fleet(&generation).map_err(|error| tracing::warn!(%error, "not rendered anew")).ok()?;
        let summary = match fleet::summary(&fleet, &known_of(&inventory)) {
            Ok(summary) => summary,
            Err(faults) => {
                let faults: Vec<String> = faults.iter().take(3).map(ToString::to_string).collect();
                return Some(Err(faults.join("; ")));
            }
        };
        let applied = |name: &NodeName| generation.summary.hosts.get(name).map(|h| h.desired);
        let hosts = summary.hosts.into_iter().map(|(name, host)| (name, host.desired));
        Some(Ok(hosts.filter(|(name, desired)| applied(name).is_some_and(|before| before != *desired)).collect()))
    };
    tokio::task::spawn_blocking(work).await.ok()?
}

/// Managers that sign at another address than the one entered, or than the one that Raft has, are asked there: so that a
/// cluster whose managers moved has a quorum again before anything can be entered.
pub fn follow(shared: &Shared) {
    let status = shared.raft.status().borrow().clone();
    let inventory = shared.inventory();
    let now = |node: &Node| {
        let port: u16 = node.spec.api.rsplit_once(':')?.1.parse().ok()?;
        let ip = shared.signed_at(node.name()).map(|addr| addr.ip()).or_else(|| node.ip()?.parse().ok())?;
        Some(SocketAddr::from((ip, port)).to_string())
    };
    let managers = || inventory.nodes.values().filter_map(|n| Some((n, n.raft?, now(n)?)));
    let taken: BTreeSet<String> = managers().map(|(_, _, now)| now).collect();
    let mut moved = BTreeMap::new();
    for (node, raft, now) in managers() {
        let known = [Some(&node.spec.api), status.voters.get(&raft), status.learners.get(&raft)];
        for before in known.into_iter().flatten().filter(|before| !taken.contains(*before)) {
            moved.insert(before.clone(), (now.clone(), node.id));
        }
    }
    let ids: BTreeMap<RaftId, NodeId> = inventory.nodes.values().filter_map(|n| Some((n.raft?, n.id))).collect();
    let mut entered = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for (raft, addr) in status.voters.iter().chain(&status.learners) {
        let Some(node) = ids.get(raft) else { continue };
        if entered.insert(addr.clone(), *node).is_some_and(|other| other != *node) {
            twice.insert(addr.clone());
        }
    }
    entered.retain(|addr, _| !twice.contains(addr)); // who of them answers nobody can say
    shared.peers.redirect(Places { moved, entered, ids });
}

/// Where the inventory's own word for a node that moved stands against where it is.
pub fn contradiction(shared: &Shared, node: &Node) -> Option<String> {
    let (written, ip, moved) = (shared.ansible_host(node.name())?, node.ip()?, node.moved.as_ref()?);
    let text = format!("ansible_host {written} of the inventory is asked; the node moved from {} to {ip}", moved.from);
    (written != ip).then_some(text)
}
