//! The gossip key on its way to all nodes, from the managers' side: what each node is to hold, who has said that it does, and
//! when the leader goes on. A new key is derived from the CA's, which every manager has and no worker.

use super::{Authorities, Shared, wall};
use crate::model::{Command, Entry, GossipKeys, Instance, Inventory, Node, NodeId, Sha256};
use crate::rpc::identity::{GossipKey, IdentityError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often the leader looks whether all have confirmed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A step lasts at least so long: who was just lost by a moment's packet loss is there again and waited for.
const STEP_MIN_MS: u64 = 5_000;

/// A node that is there has confirmed a step after so long: nodes spread their questions over a minute, and are told to ask.
const CONFIRM: Duration = Duration::from_secs(120);

/// What nodes said that they hold, as the number of the entry; hints of this manager, which they say again.
#[derive(Debug, Default)]
pub struct Confirmed {
    said: Mutex<BTreeMap<NodeId, u64>>,
    waits: Mutex<BTreeMap<NodeId, Wait>>,
}

/// A leader waits for a node to confirm the step that began with entry `changed`, in one start of its agent.
#[derive(Debug)]
struct Wait {
    changed: u64,
    start: Option<Instance>,
    since: Instant,
}

impl Confirmed {
    pub fn hear(&self, node: NodeId, changed: u64) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(node, changed);
    }

    pub(super) fn holds(&self, node: NodeId, changed: u64) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).get(&node) == Some(&changed)
    }

    /// Whom this manager, which leads, waits for `now`; nobody where it does not lead. Its time begins anew for a node with each
    /// step, when it comes back, and under each leader: none had time before.
    pub(super) fn waits_for(&self, changed: u64, here: impl Iterator<Item = (NodeId, Option<Instance>)>, now: Instant) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *waits);
        *waits = here
            .map(|(node, start)| {
                let same = before.remove(&node).filter(|wait| wait.changed == changed && wait.start == start);
                (node, same.unwrap_or(Wait { changed, start, since: now }))
            })
            .collect();
    }

    /// Whether a node had time enough to confirm the step.
    pub(super) fn is_overdue(&self, node: NodeId, changed: u64, now: Instant) -> bool {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.get(&node).is_some_and(|wait| wait.changed == changed && now.duration_since(wait.since) >= CONFIRM)
    }

    /// The look of every manager at what is on its way, `here` being who is there and has not confirmed it.
    pub(super) fn look(&self, shared: &Shared, changed: u64, here: &[&Node]) {
        // A leadership outlives a lease that runs out for a moment, and so does the time that nodes had.
        let here = if shared.shown().is_some() { here } else { &[] };
        let start = |node: &Node| shared.report_of(node.name()).map(|report| report.instance);
        self.waits_for(changed, here.iter().map(|node| (node.id, start(node))), Instant::now());
    }
}

/// What is in force, by its number. `held`: the keys of this manager's own gossip, of which one is `init`'s as long as that
/// counts, since it is derived from nothing.
pub fn keys(cas: &Authorities, keys: &GossipKeys, held: &[GossipKey]) -> Result<Vec<GossipKey>, IdentityError> {
    let unknown =
        || IdentityError::Malformed { what: "gossip key", reason: "this manager does not have it yet".into() };
    let derived = |base: Option<Sha256>, serial: u64| {
        let ca = cas.by_id(base).ok_or_else(unknown)?;
        ca.derived(&format!("remoor gossip key {serial}")).map(GossipKey)
    };
    let (first, other) = keys.held();
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

/// Nodes that are there and have not confirmed the step, and those that are not there and are not waited for.
pub fn missing<'a>(shared: &Shared, inventory: &'a Inventory) -> (Vec<&'a Node>, Vec<&'a Node>) {
    let changed = inventory.gossip.changed;
    let open = inventory.nodes.values().map(|n| &**n).filter(|n| !shared.key_confirmed.holds(n.id, changed));
    // Who waits for a new certificate gossips, and may ask for nothing else.
    let lapsed = |node: &Node| inventory.lapsed.contains_key(&node.id);
    let here = |node: &Node| *node.name() == shared.me || shared.report_of(node.name()).is_some() && !lapsed(node);
    open.partition(|node| here(node))
}

/// The leader's part, as long as the manager part runs.
pub async fn lead(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut since = (0, wall());
    while tokio::time::timeout(LOOK_EVERY, stopped.wait_for(|stop| *stop)).await.is_err() {
        let inventory = shared.inventory();
        let changed = inventory.gossip.changed;
        if since.0 != changed {
            since = (changed, wall());
        }
        if inventory.gossip.next.is_none() {
            continue;
        }
        let (here, _) = missing(&shared, &inventory);
        shared.key_confirmed.look(&shared, changed, &here);
        let leads = shared.raft.status().borrow().is_leader;
        let over = wall().since(since.1) >= STEP_MIN_MS;
        if !leads || !over || !here.is_empty() {
            continue;
        }
        let entry = Entry { at: wall(), by: shared.me.to_string(), command: Command::GossipStep { changed } };
        if let Err(error) = shared.raft.propose(entry).await {
            tracing::debug!(%error, "the next step of the gossip key was not entered; tried again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{KeyStep, NextKey, ca_id};
    use crate::rpc::ca::ClusterCa;

    #[test]
    fn a_node_has_its_time_from_when_the_step_its_own_start_and_the_leadership_began() {
        let (confirmed, began) = (Confirmed::default(), Instant::now());
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
        assert_eq!(overdue(7, 421), [true, false], "it was started anew");
        waits(9, &[(1, 1), (2, 2)], 600);
        assert_eq!((overdue(9, 719), overdue(9, 720)), ([false; 2], [true; 2]), "a step of its own");
        waits(9, &[], 721);
        waits(9, &[(1, 1), (2, 2)], 722);
        assert_eq!(overdue(9, 800), [false; 2], "another manager led meanwhile");
    }

    #[test]
    fn every_manager_gives_out_the_same_keys_and_the_first_one_while_it_counts() {
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
        assert_eq!(of(&at(0, Some(KeyStep::Use)), joined), joined, "who joined then never had the first");
        assert_eq!(of(&at(9, None), &in_use), joined);
        assert_eq!(keys(&other, &at(9, None), alone).unwrap(), joined);
        assert!(keys(&ca, &at(0, Some(KeyStep::Insert)), joined).is_err());

        // Once the CA was replaced, by the key of the new one: who has the old CA's key can't tell.
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
