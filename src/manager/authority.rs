//! The managers' side of a CA rotation. The key of the new CA is copied to a majority of the
//! managers. After that, the entry with the new CA's certificate is proposed. The leader starts the
//! next step of the rotation when all nodes have confirmed the current one.

use super::{Authorities, CaPair, ManagerContext, api, wall};
use futures_util::future::join_all;
use remoor_cluster::rpc::ca::{ClusterCa, Validity};
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::identity::{IdentityError, TlsIdentity};
use remoor_cluster::rpc::node::ASK_PATH;
use remoor_model::{Command, Inventory, InventoryEntry, Node, NodeId, ca_id};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval at which the leader checks which nodes have confirmed the current step of the CA
/// rotation. At the same interval, each manager checks for missing CA keys.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum duration of a step of the CA rotation in milliseconds. A node that gossip lost for a
/// moment because of packet loss returns within this time. So the rotation does not continue
/// without this node.
const STEP_MIN_MS: u64 = 5_000;
/// Interval of the requests to nodes that have not confirmed the current step of the CA rotation.
/// Such a request asks the node to contact the managers. At most `REQUEST_CALL_MAX` nodes are asked
/// at a time.
const REQUEST_CALL_EVERY: Duration = Duration::from_secs(5);
const REQUEST_CALL_MAX: usize = 50;
const REQUEST_CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for another manager to store a CA key or to send its CA keys.
const HAND_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two attempts to fetch a CA key from other managers. A manager service that has
/// just started does not know the other members of Raft yet.
const FETCH_AGAIN: Duration = Duration::from_secs(3);

/// Nodes that have not confirmed the current step of the CA rotation.
#[derive(Debug, Default)]
pub struct UnconfirmedNodes<'a> {
    pub here: Vec<&'a Node>,
    pub away: Vec<&'a Node>,
    /// Managers among `away`. The rotation can't end without them.
    pub managers: Vec<&'a Node>,
}

impl<'a> UnconfirmedNodes<'a> {
    /// The absent nodes: first those that the rotation waits for, then those that an operator
    /// excluded with `without`. The rotation waits for an excluded node again when it is back.
    pub fn split(&self, without: &BTreeSet<NodeId>) -> (Vec<&'a Node>, Vec<&'a Node>) {
        self.away.iter().partition(|n| n.manages() || !without.contains(&n.id))
    }
}

pub fn unconfirmed_nodes<'a>(shared: &ManagerContext, inventory: &'a Inventory) -> UnconfirmedNodes<'a> {
    let changed = inventory.authority.changed;
    let mut missing = UnconfirmedNodes::default();
    for node in inventory.nodes.values().filter(|n| !shared.observed.ca_confirmed.holds(n.id, changed)) {
        // A node whose certificate expired is in gossip, but managers accept only its renewal
        // requests. So it counts as absent until it has a new certificate.
        let lapsed = inventory.expired_certificates.contains_key(&node.id);
        if *node.name() == shared.identity.name || shared.observed.report_of(node.name()).is_some() && !lapsed {
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

/// Validity of an operator's certificate.
const OPERATOR_DAYS: u32 = 365;

/// New credentials of an operator, from the current CA. None if this manager does not have the CA's
/// key yet.
pub fn operator(
    shared: &ManagerContext,
    inventory: &Inventory,
    name: &str,
) -> Result<Option<TlsIdentity>, IdentityError> {
    let Some(ca) = shared.keys.cas.for_certificate(inventory.issuer()) else { return Ok(None) };
    let issued = ca.issue_operator(name, Validity::days_from_now(OPERATOR_DAYS))?;
    let cert_pem = issued.cert_pem.clone() + &inventory.cross_chain();
    Ok(Some(TlsIdentity { ca_pem: inventory.roots().concat(), cert_pem, ..issued }))
}

/// The reason why no CA rotation was started. Some managers may have an unused CA key now; nothing
/// else has changed.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    #[error("this manager does not have the key of the present CA yet")]
    Lacks,
    #[error("only {on} of {of} managers have the key of the new CA: {first}")]
    Few { on: usize, of: usize, first: String },
    #[error("{0}")]
    Failed(String),
}

/// Makes a new CA and copies its key to a majority of the managers, including this one. Returns the
/// command that starts the rotation, and the names of the managers that do not have the key yet.
pub async fn make(shared: &Arc<ManagerContext>) -> Result<(Command, Vec<String>), MakeError> {
    let inventory = shared.inventory();
    let present = shared.keys.cas.for_certificate(&inventory.ca_pem).ok_or(MakeError::Lacks)?;
    let failed = |e: IdentityError| MakeError::Failed(e.to_string());
    let next = ClusterCa::create_next(present.cluster()).map_err(failed)?;
    let (pair, ca_pem) = (CaPair::from_ca(&next), next.cert_pem().to_owned());
    let cross_pem = present.cross_sign(&next).map_err(failed)?;
    let cas = shared.keys.cas.clone();
    let of = inventory.clone();
    let keep = move || {
        // CA keys of earlier rotations that failed to start are removed first.
        cas.tidy(&of);
        cas.keep(next)
    };
    let kept = tokio::task::spawn_blocking(keep).await;
    kept.map_err(|e| MakeError::Failed(e.to_string()))?.map_err(failed)?;

    let others: Vec<&Node> = inventory.managers().filter(|n| n.id != shared.identity.node).collect();
    let hand = |node: &Node| {
        let client = shared.peers.node(node.id, &node.spec.api).with_timeout(HAND_WITHIN);
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

/// API path for CA keys, used between managers.
pub const CA_KEYS_PATH: &str = "/manager/v1/ca";

/// Whether this manager has all CA keys that the state requires of a manager.
pub fn complete(shared: &ManagerContext, inventory: &Inventory) -> bool {
    Authorities::required_ids(inventory).into_iter().all(|id| shared.keys.cas.by_id(Some(id)).is_some())
}

/// Fetches missing CA keys and removes keys that are not needed any more. It runs on every manager
/// as long as the manager service runs.
pub async fn follow(shared: Arc<ManagerContext>, mut stopped: watch::Receiver<bool>) {
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
            // `tidy` logs its own errors.
            let _ = tokio::task::spawn_blocking(move || shared.keys.cas.tidy(&inventory)).await;
        }
    }
}

/// Fetches missing CA keys from the other managers. It accepts only a key that belongs to a
/// certificate in the state.
async fn fetch(shared: &Arc<ManagerContext>, inventory: &Inventory) {
    for node in inventory.managers().filter(|n| n.id != shared.identity.node) {
        let client = shared.peers.node(node.id, &node.spec.api).with_timeout(HAND_WITHIN);
        let reply: api::CaKeysReply = match client.get(CA_KEYS_PATH).await {
            Ok(reply) => reply,
            Err(error) => {
                tracing::debug!(from = %node.name(), %error, "the key of the new CA could not be fetched");
                continue;
            }
        };
        let needed = Authorities::required_ids(inventory);
        for pair in reply.cas.into_iter().filter(|pair| needed.contains(&ca_id(&pair.cert_pem))) {
            let cas = shared.keys.cas.clone();
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

/// Proposes the next step of a CA rotation when the nodes have confirmed the current one. This task
/// runs as long as the manager service runs, and acts only on the leader.
pub async fn lead(shared: Arc<ManagerContext>, mut stopped: watch::Receiver<bool>) {
    let mut since = (0, wall());
    let mut spurred = Instant::now();
    while tokio::time::timeout(LOOK_EVERY, stopped.wait_for(|stop| *stop)).await.is_err() {
        let inventory = shared.inventory();
        let changed = inventory.authority.changed;
        if since.0 != changed {
            since = (changed, wall());
            spurred = Instant::now() - REQUEST_CALL_EVERY;
        }
        let Some(next) = &inventory.authority.next else { continue };
        let missing = unconfirmed_nodes(&shared, &inventory);
        shared.observed.ca_confirmed.update_waits(&shared, changed, &missing.here);
        if !shared.raft.status().borrow().is_leader {
            continue;
        }
        if spurred.elapsed() >= REQUEST_CALL_EVERY {
            spurred = Instant::now();
            missing.here.iter().take(REQUEST_CALL_MAX).for_each(|node| request_call(&shared, node));
        }
        if wall().ms_since(since.1) < STEP_MIN_MS
            || !missing.here.is_empty()
            || !missing.split(&next.without).0.is_empty()
        {
            continue;
        }
        let entry = InventoryEntry {
            at: shared.entry_time(),
            by: shared.identity.name.to_string(),
            command: Command::CaStep { changed },
        };
        if let Err(error) = shared.raft.propose(entry).await {
            tracing::debug!(%error, "the next step of the CA rotation was not applied; retrying");
        }
    }
}

/// Asks a node to contact the managers, because it has not confirmed the current step of the CA
/// rotation. If the message is lost, the node contacts them later by itself.
fn request_call(shared: &ManagerContext, node: &Node) {
    let client = shared.peers.node(node.id, &node.spec.api).with_timeout(REQUEST_CALL_TIMEOUT);
    tokio::spawn(async move { drop(client.post_bytes(ASK_PATH, Vec::new().into()).await) });
}
