//! A new certificate authority on its way to all nodes, from the managers' side: its key goes to a majority of them before the
//! entry that names it, its certificate by that entry; the leader goes on when all have said that they are where they should be.

use super::{Authorities, CaPair, Shared, api, wall};
use crate::model::{Command, Entry, Inventory, Node, NodeId, ca_id};
use crate::rpc::ca::{ClusterCa, Validity};
use crate::rpc::client::ApiError;
use crate::rpc::identity::{IdentityError, TlsIdentity};
use crate::rpc::node::ASK_PATH;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often the leader looks whether all have confirmed, and a manager whether it lacks a key.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A step lasts at least so long: who was just lost by a moment's packet loss is there again and waited for.
const STEP_MIN_MS: u64 = 5_000;
/// How often nodes that are waited for are told to ask, and at most how many at a time; what they are asked takes so long.
const SPUR_EVERY: Duration = Duration::from_secs(5);
const SPUR_MAX: usize = 50;
const SPUR_WITHIN: Duration = Duration::from_secs(3);
/// How long another manager may take to store a key, or to hand its keys out.
const HAND_WITHIN: Duration = Duration::from_secs(5);
/// A manager part that starts has not heard who is there.
const FETCH_AGAIN: Duration = Duration::from_secs(3);

/// Who has not confirmed the step.
#[derive(Debug, Default)]
pub struct Missing<'a> {
    pub here: Vec<&'a Node>,
    pub away: Vec<&'a Node>,
    /// Those of `away` that manage: nothing ends without them.
    pub managers: Vec<&'a Node>,
}

impl<'a> Missing<'a> {
    /// Those that are away and waited for, and those that an operator has the rotation go on `without`. One of these that is there
    /// again is waited for.
    pub fn split(&self, without: &BTreeSet<NodeId>) -> (Vec<&'a Node>, Vec<&'a Node>) {
        self.away.iter().partition(|n| n.manages() || !without.contains(&n.id))
    }
}

pub fn missing<'a>(shared: &Shared, inventory: &'a Inventory) -> Missing<'a> {
    let changed = inventory.authority.changed;
    let mut missing = Missing::default();
    for node in inventory.nodes.values().filter(|n| !shared.ca_confirmed.holds(n.id, changed)) {
        // Who waits for a new certificate gossips, and may ask for nothing else.
        let lapsed = inventory.lapsed.contains_key(&node.id);
        if *node.name() == shared.me || shared.report_of(node.name()).is_some() && !lapsed {
            missing.here.push(node);
        } else {
            missing.away.push(node);
            if node.manages() {
                missing.managers.push(node);
            }
        }
    }
    missing
}

/// How long an operator's certificate holds.
const OPERATOR_DAYS: u32 = 365;

/// New credentials of an operator, by the CA that issues. None: its key is not here yet.
pub fn operator(shared: &Shared, inventory: &Inventory, name: &str) -> Result<Option<TlsIdentity>, IdentityError> {
    let Some(ca) = shared.cas.of(inventory.issuer()) else { return Ok(None) };
    let issued = ca.issue_operator(name, Validity::days_from_now(OPERATOR_DAYS))?;
    let cert_pem = issued.cert_pem.clone() + &inventory.cross_chain();
    Ok(Some(TlsIdentity { ca_pem: inventory.roots().concat(), cert_pem, ..issued }))
}

/// Why there is no new authority. Nothing was changed, but that some managers may hold a key that nobody uses.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    #[error("this manager does not have the key of the present CA yet")]
    Lacks,
    #[error("the key of the new CA is on {on} of {of} managers only: {first}")]
    Few { on: usize, of: usize, first: String },
    #[error("{0}")]
    Failed(String),
}

/// A new authority whose key is on a majority of the managers, this one among them: the entry that begins it, and which managers do
/// not have it yet.
pub async fn make(shared: &Arc<Shared>) -> Result<(Command, Vec<String>), MakeError> {
    let inventory = shared.inventory();
    let present = shared.cas.of(&inventory.ca_pem).ok_or(MakeError::Lacks)?;
    let failed = |e: IdentityError| MakeError::Failed(e.to_string());
    let next = ClusterCa::create_next(present.cluster()).map_err(failed)?;
    let (pair, ca_pem) = (CaPair::of(&next), next.cert_pem().to_owned());
    let cross_pem = present.cross(&next).map_err(failed)?;
    let cas = shared.cas.clone();
    let of = inventory.clone();
    let keep = move || {
        // Those of attempts before, which came to nothing, go first.
        cas.tidy(&of);
        cas.keep(next)
    };
    let kept = tokio::task::spawn_blocking(keep).await;
    kept.map_err(|e| MakeError::Failed(e.to_string()))?.map_err(failed)?;

    let others: Vec<&Node> = inventory.managers().filter(|n| n.id != shared.id).collect();
    let hand = |node: &Node| {
        let client = shared.peers.node(node.id, &node.spec.api).within(HAND_WITHIN);
        let (pair, name) = (pair.clone(), node.name().to_string());
        async move { (name, client.post::<()>(CA_KEYS_PATH, &pair).await) }
    };
    let handed = join_all(others.iter().map(|node| hand(node))).await;
    let lack: Vec<(String, ApiError)> = handed.into_iter().filter_map(|(name, r)| Some((name, r.err()?))).collect();
    let (of, on) = (others.len() + 1, others.len() + 1 - lack.len());
    if on * 2 <= of {
        let first = lack.first().map(|(name, error)| format!("{name}: {error}")).unwrap_or_default();
        return Err(MakeError::Few { on, of, first });
    }
    Ok((Command::RotateCa { ca_pem, cross_pem }, lack.into_iter().map(|(name, _)| name).collect()))
}

/// Between managers.
pub const CA_KEYS_PATH: &str = "/manager/v1/ca";

/// Whether all keys are here that this state needs of a manager.
pub fn complete(shared: &Shared, inventory: &Inventory) -> bool {
    Authorities::needed(inventory).into_iter().all(|id| shared.cas.by_id(Some(id)).is_some())
}

/// Of every manager, as long as its part runs: keys that it lacks are fetched, those that nothing needs any more go.
pub async fn follow(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut tidied = 0;
    let mut again = Instant::now();
    while tokio::time::timeout(LOOK_EVERY, stopped.wait_for(|stop| *stop)).await.is_err() {
        let inventory = shared.inventory();
        if !complete(&shared, &inventory) {
            if Instant::now() >= again {
                fetch(&shared, &inventory).await;
                again = Instant::now() + FETCH_AGAIN;
            }
        } else if tidied != inventory.authority.changed.max(inventory.gossip.changed) {
            tidied = inventory.authority.changed.max(inventory.gossip.changed);
            let shared = shared.clone();
            // What it could not do it says itself.
            let _ = tokio::task::spawn_blocking(move || shared.cas.tidy(&inventory)).await;
        }
    }
}

/// Only what the state names is taken: a key that belongs to such a certificate.
async fn fetch(shared: &Arc<Shared>, inventory: &Inventory) {
    for node in inventory.managers().filter(|n| n.id != shared.id) {
        let client = shared.peers.node(node.id, &node.spec.api).within(HAND_WITHIN);
        let reply: api::CaReply = match client.get(CA_KEYS_PATH).await {
            Ok(reply) => reply,
            Err(error) => {
                tracing::debug!(from = %node.name(), %error, "the key of the new CA was asked for in vain");
                continue;
            }
        };
        let needed = Authorities::needed(inventory);
        for pair in reply.cas.into_iter().filter(|pair| needed.contains(&ca_id(&pair.cert_pem))) {
            let cas = shared.cas.clone();
            let kept = tokio::task::spawn_blocking(move || pair.open().and_then(|ca| cas.keep(ca))).await;
            if let Ok(Err(error)) = kept {
                tracing::warn!(from = %node.name(), %error, "the key of the new CA can't be used");
            }
        }
        if complete(shared, inventory) {
            return;
        }
    }
}

/// The leader's part, as long as the manager part runs.
pub async fn lead(shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let mut since = (0, wall());
    let mut spurred = Instant::now();
    while tokio::time::timeout(LOOK_EVERY, stopped.wait_for(|stop| *stop)).await.is_err() {
        let inventory = shared.inventory();
        let changed = inventory.authority.changed;
        if since.0 != changed {
            since = (changed, wall());
            spurred = Instant::now() - SPUR_EVERY;
        }
        let Some(next) = &inventory.authority.next else { continue };
        let missing = missing(&shared, &inventory);
        shared.ca_confirmed.look(&shared, changed, &missing.here);
        if !shared.raft.status().borrow().is_leader {
            continue;
        }
        if spurred.elapsed() >= SPUR_EVERY {
            spurred = Instant::now();
            missing.here.iter().take(SPUR_MAX).for_each(|node| spur(&shared, node));
        }
        if wall().since(since.1) < STEP_MIN_MS || !missing.here.is_empty() || !missing.split(&next.without).0.is_empty()
        {
            continue;
        }
        let entry = Entry { at: wall(), by: shared.me.to_string(), command: Command::CaStep { changed } };
        if let Err(error) = shared.raft.propose(entry).await {
            tracing::debug!(%error, "the next step of the CA was not entered; tried again");
        }
    }
}

/// Has a node ask what there is; where that is lost it asks by itself, later.
fn spur(shared: &Shared, node: &Node) {
    let client = shared.peers.node(node.id, &node.spec.api).within(SPUR_WITHIN);
    tokio::spawn(async move { drop(client.post_bytes(ASK_PATH, Vec::new().into()).await) });
}
