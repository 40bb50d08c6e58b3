//! The managers' side of a gossip key rotation: the keys that each node must have, and the nodes
//! that have confirmed these keys. The leader starts each next step. A new key is derived from the
//! CA's key, which every manager but no worker has.

use super::{Authorities, ManagerContext, wall};
use remoor_cluster::rpc::identity::{GossipKey, IdentityError};
use remoor_model::{Command, GossipKeys, Instance, Inventory, InventoryEntry, Node, NodeId, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval at which the leader checks which nodes have confirmed the current step of the rotation.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum duration of a step of the gossip key rotation in milliseconds. A node that gossip lost
/// for a moment because of packet loss returns within this time. So the rotation does not continue
/// without this node.
const STEP_MIN_MS: u64 = 5_000;

/// Time in which a reachable node must confirm a step of a rotation. The nodes spread their
/// requests over a minute, and the leader asks them to send the request.
const CONFIRM: Duration = Duration::from_secs(120);

/// The step of a rotation that each node has confirmed, as the log index at which the step began.
/// The confirmations are in the memory of this manager only, because nodes repeat them.
#[derive(Debug, Default)]
pub struct Confirmations {
    nodes: Mutex<NodeConfirmations>,
}

#[derive(Debug, Default)]
struct NodeConfirmations {
    confirmed: BTreeMap<NodeId, u64>,
    waits: BTreeMap<NodeId, ConfirmationWait>,
}

/// The leader's wait for a node to confirm a step of a rotation. The entry at log index `changed`
/// began the step. A restart of the node's agent begins a new wait.
#[derive(Debug)]
struct ConfirmationWait {
    changed: u64,
    start: Option<Instance>,
    since: Instant,
}

impl Confirmations {
    pub fn record(&self, node: NodeId, changed: u64) {
        self.nodes().confirmed.insert(node, changed);
    }

    pub(super) fn holds(&self, node: NodeId, changed: u64) -> bool {
        self.nodes().confirmed.get(&node) == Some(&changed)
    }

    /// Sets the nodes that must confirm the step that began at log index `changed`. A new wait
    /// begins at `now`. `here` is empty if this manager does not lead. The wait for a node begins
    /// again with each step, with each return of the node, and with each leadership. Before that,
    /// the node could not confirm the step.
    pub(super) fn waits_for(&self, changed: u64, here: impl Iterator<Item = (NodeId, Option<Instance>)>, now: Instant) {
        let mut nodes = self.nodes();
        let mut before = std::mem::take(&mut nodes.waits);
        nodes.waits = here
            .map(|(node, start)| {
                let same = before.remove(&node).filter(|wait| wait.changed == changed && wait.start == start);
                (node, same.unwrap_or(ConfirmationWait { changed, start, since: now }))
            })
            .collect();
    }

    /// Whether the node has had enough time to confirm the step that began at log index `changed`.
    pub(super) fn is_overdue(&self, node: NodeId, changed: u64, now: Instant) -> bool {
        let nodes = self.nodes();
        nodes.waits.get(&node).is_some_and(|wait| wait.changed == changed && now.duration_since(wait.since) >= CONFIRM)
    }

    /// Updates the nodes that this manager waits for. `here` contains the reachable nodes that have
    /// not confirmed the step that began at log index `changed`.
    pub(super) fn update_waits(&self, shared: &ManagerContext, changed: u64, here: &[&Node]) {
        // An expired lease does not end the leadership, so the leader continues to wait for
        // confirmations.
        let here = if shared.published.engine.leads() { here } else { &[] };
        let start = |node: &Node| shared.observed.report_of(node.name()).map(|report| report.instance);
        self.waits_for(changed, here.iter().map(|node| (node.id, start(node))), Instant::now());
    }

    fn nodes(&self) -> MutexGuard<'_, NodeConfirmations> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The current gossip keys by serial number. The first key encrypts sent messages. `held` are the
/// keys of this manager's own gossip. They contain the key that `init` made, which is not derived
/// from a CA.
pub fn keys(cas: &Authorities, keys: &GossipKeys, held: &[GossipKey]) -> Result<Vec<GossipKey>, IdentityError> {
    let unknown =
        || IdentityError::Malformed { what: "gossip key", reason: "this manager does not have it yet".into() };
    let derived = |base: Option<Sha256>, serial: u64| {
        let ca = cas.by_id(base).ok_or_else(unknown)?;
        ca.derive_secret(&format!("remoor gossip key {serial}")).map(GossipKey)
    };
    let (first, other) = keys.active_keys();
    let on_its_way = keys.next.as_ref();
    let next = on_its_way.map(|next| derived(next.base, next.serial)).transpose()?;
    let of = |serial: u64| match (serial, on_its_way) {
        (0, _) => Ok(held.iter().find(|key| Some(*key) != next.as_ref()).cloned()),
        (_, Some(on_its_way)) if on_its_way.serial == serial => Ok(next.clone()),
        _ => derived(keys.base, serial).map(Some),
    };
    let first = of(first)?.ok_or_else(unknown)?;
    let other = other.map(of).transpose()?.flatten();
    Ok(std::iter::once(first).chain(other).collect())
}

/// The nodes that have not confirmed the current step of the key rotation: first the reachable
/// ones, then the absent ones. The leader does not wait for absent nodes.
pub fn unconfirmed_nodes<'a>(shared: &ManagerContext, inventory: &'a Inventory) -> (Vec<&'a Node>, Vec<&'a Node>) {
    let changed = inventory.gossip.changed;
    let open = inventory.nodes.values().map(|n| &**n).filter(|n| !shared.observed.key_confirmed.holds(n.id, changed));
    // A node whose certificate expired is in gossip, but managers accept only its renewal requests.
    // So it counts as absent until it has a new certificate.
    let lapsed = |node: &Node| inventory.expired_certificates.contains_key(&node.id);
    let here = |node: &Node| {
        *node.name() == shared.identity.name || shared.observed.report_of(node.name()).is_some() && !lapsed(node)
    };
    open.partition(|node| here(node))
}

/// Proposes the next step of a key rotation, and begins a rotation after a node was removed. Runs
/// as long as the manager service runs, and acts only on the leader.
pub async fn lead(shared: Arc<ManagerContext>, mut stopped: watch::Receiver<bool>) {
    let mut since = (0, wall());
    while tokio::time::timeout(LOOK_EVERY, stopped.wait_for(|stop| *stop)).await.is_err() {
        let inventory = shared.inventory();
        let changed = inventory.gossip.changed;
        if since.0 != changed {
            since = (changed, wall());
        }
        let leads = shared.raft.status().borrow().is_leader;
        if leads && inventory.is_gossip_rotation_due() {
            propose_step(&shared, Command::RotateGossip).await;
            continue;
        }
        if inventory.gossip.next.is_none() {
            continue;
        }
        let (here, _) = unconfirmed_nodes(&shared, &inventory);
        shared.observed.key_confirmed.update_waits(&shared, changed, &here);
        let over = wall().ms_since(since.1) >= STEP_MIN_MS;
        if !leads || !over || !here.is_empty() {
            continue;
        }
        propose_step(&shared, Command::GossipStep { changed }).await;
    }
}

async fn propose_step(shared: &ManagerContext, command: Command) {
    let entry = InventoryEntry { at: shared.entry_time(), by: shared.identity.name.to_string(), command };
    if let Err(error) = shared.raft.propose(entry).await {
        tracing::debug!(%error, "an entry of the gossip key rotation was not applied; retrying");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_cluster::rpc::ca::ClusterCa;
    use remoor_model::{KeyStep, NextKey, ca_id};

    #[test]
    fn the_wait_for_a_node_starts_with_step_agent_start_and_leadership() {
        let (confirmed, began) = (Confirmations::default(), Instant::now());
        let at = |s: u64| began + Duration::from_secs(s);
        let start = |n: u8| Some(Instance(n.to_string()));
        let waits = |changed, here: &[(u64, u8)], s| {
            confirmed.waits_for(changed, here.iter().map(|(node, n)| (NodeId(*node), start(*n))), at(s));
        };
        let overdue = |changed, s| [1, 2].map(|node| confirmed.is_overdue(NodeId(node), changed, at(s)));
        waits(7, &[(1, 1)], 0);
        waits(7, &[(1, 1), (2, 1)], 300);
        assert_eq!((overdue(7, 119), overdue(7, 300)), ([false; 2], [true, false]), "the other just came back");
        assert_eq!(overdue(9, 300), [false; 2], "the next step has begun, and was not looked at yet");
        assert_eq!(overdue(7, 420), [true; 2]);
        waits(7, &[(1, 1), (2, 2)], 421);
        assert_eq!(overdue(7, 421), [true, false], "it was restarted");
        waits(9, &[(1, 1), (2, 2)], 600);
        assert_eq!((overdue(9, 719), overdue(9, 720)), ([false; 2], [true; 2]), "the next step has its own time");
        waits(9, &[], 721);
        waits(9, &[(1, 1), (2, 2)], 722);
        assert_eq!(overdue(9, 800), [false; 2], "another manager led meanwhile");
    }

    #[test]
    fn every_manager_returns_the_same_keys_and_the_first_one_while_it_is_valid() {
        let (dir, ca) = (tempfile::tempdir().unwrap(), ClusterCa::create(&"c1".into()).unwrap());
        let other = ClusterCa::from_pem(ca.cert_pem(), &ca.key_pem()).unwrap();
        let taken = |name: &str, ca: ClusterCa| Authorities::take(&dir.path().join(name), vec![ca]).unwrap();
        let (ca, other) = (taken("one", ca), taken("other", other));
        let first = GossipKey([7; 32]);
        let at = |serial, step: Option<KeyStep>| {
            let next = step.map(|step| NextKey { serial: 9, step, ..NextKey::default() });
            GossipKeys { serial, next, changed: 9, base: None }
        };
        let of = |state: &GossipKeys, held: &[GossipKey]| keys(&ca, state, held).unwrap();
        let alone = std::slice::from_ref(&first);
        assert_eq!(of(&at(0, None), alone), alone);
        let insert = of(&at(0, Some(KeyStep::Insert)), alone);
        assert_eq!((insert.len(), &insert[0]), (2, &first));
        let in_use = of(&at(0, Some(KeyStep::Use)), &insert);
        assert_eq!(in_use, [insert[1].clone(), first.clone()]);
        assert_eq!(of(&at(0, Some(KeyStep::Use)), &in_use), in_use, "also once it uses the new one itself");
        let joined = std::slice::from_ref(&insert[1]);
        assert_eq!(of(&at(0, Some(KeyStep::Use)), joined), joined, "a node that joined then never had the first key");
        assert_eq!(of(&at(9, None), &in_use), joined);
        assert_eq!(keys(&other, &at(9, None), alone).unwrap(), joined);
        assert!(keys(&ca, &at(0, Some(KeyStep::Insert)), joined).is_err());

        // After a CA rotation, gossip keys are derived from the new CA's key. So a person who has
        // the old CA's key can't compute them.
        let later = ClusterCa::create_next(&"c1".into()).unwrap();
        let base = Some(ca_id(later.cert_pem()));
        let by_later = GossipKeys { serial: 9, base, next: None, changed: 9 };
        assert!(keys(&ca, &by_later, alone).is_err(), "not here yet");
        ca.keep(later).unwrap();
        let new = keys(&ca, &by_later, alone).unwrap();
        assert!(new.len() == 1 && new != joined);
        let next = Some(NextKey { serial: 12, step: KeyStep::Use, base, ..NextKey::default() });
        let both = keys(&ca, &GossipKeys { serial: 9, base: None, next, changed: 12 }, alone).unwrap();
        assert!(both[1..] == *joined && both[0] != new[0], "each by its own CA");
    }
}
