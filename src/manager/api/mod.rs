//! The HTTP API of a manager (docs/reference/api.md): `/v1` for operators, `/agent/v1` for nodes, `/raft` and
//! `/blob` between managers.
//!
//! A manager that does not lead forwards `/v1` requests to the leader. Without a leader it answers
//! reads from its own state, marked as stale, and refuses the rest.

mod authorization;
mod backup;
mod checks;
mod examination;
mod fleet;
mod forward;
mod invite;
mod jobs;
mod keys;
mod leave;
mod member;
mod operators;
mod order;
mod peer_list;
mod pending;
mod plan;
mod position;
mod reachability;
mod read;
mod remove;
mod renew;
mod replay;
mod roles;
mod state;
mod tokens;
mod undo;
mod vars;
mod waiting_networks;

use super::{ManagerContext, wall};
use axum::Router;
use axum::routing::{get, post};
use remoor_cluster::raft::ProposeError;
use remoor_cluster::rpc::agent::{CA_PATH, GOSSIP_KEYS_PATH};
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::renew::RENEW_PATH;
use remoor_cluster::rpc::view::AsOf;
use remoor_cluster::rpc::wire::{self, ApiFailure, Code};
use remoor_model::{Applied, Command, Inventory, InventoryEntry, Node, NodeId, Refusal};
use std::sync::Arc;

pub use backup::routes as backups;
pub use member::{CaKeysReply, JoinConfig, JoinService, SshKeyReply, managers_of};
pub use peer_list::PeerListCache;
pub use read::metrics_text as metrics;

/// All routes of a manager; `desk` admits machines.
pub fn router(shared: Arc<ManagerContext>, desk: Arc<JoinService>) -> Router {
    let v1 = Router::new()
        .route("/v1/status", get(read::status))
        .route("/v1/raft", get(roles::raft))
        .route("/v1/removed", get(remove::list_removed))
        .route("/v1/nodes", post(invite::invite))
        .route("/v1/accept", post(pending::accept))
        .route("/v1/keys", get(keys::status))
        .route("/v1/keys/rotate", post(keys::rotate))
        .route("/v1/operators", post(operators::make))
        .route("/v1/operators/revoke", post(operators::revoke))
        .route("/v1/tokens", get(tokens::list))
        .route("/v1/tokens/rotate", post(tokens::rotate))
        .route("/v1/nodes/{name}/why", get(read::explain_node))
        .route("/v1/nodes/{name}/replay", get(replay::replay))
        .route("/v1/nodes/{name}/vars", get(vars::vars))
        .route("/v1/nodes/{name}/checks", get(checks::checks))
        .route("/v1/history", get(read::history))
        .route("/v1/jobs", get(jobs::jobs))
        .route("/v1/jobs/{id}/log", get(read::job_log))
        .route("/v1/jobs/{id}/cancel", post(order::cancel))
        .route("/v1/attempts/{id}/undo", post(undo::undo))
        .route("/v1/orders", post(order::orders))
        .route("/v1/watch", get(read::watch))
        .route("/v1/metrics", get(read::prometheus))
        .route("/v1/inventory", get(fleet::inventory))
        .route("/v1/apply", post(fleet::apply).layer(wire::large_body()))
        .route("/v1/nodes/{name}/check", post(examination::check))
        .route("/v1/nodes/{name}/diff", post(examination::diff))
        .route("/v1/nodes/{name}/adopt", post(examination::adopt))
        .route("/v1/nodes/{name}/plan", post(plan::plan))
        .route("/v1/nodes/{name}/{order}", post(order::order))
        .route("/v1/resume", post(order::resume_fleet))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), forward::to_leader))
        .with_state(shared.clone());
    let inner = Router::new()
        .route("/v1/raft/state", get(state::state))
        .route("/raft/{kind}", post(member::raft))
        .route("/blob/{sha}", get(member::get_blob).post(member::put_blob).layer(wire::large_body()))
        .route("/manager/v1/reach/{node}", get(reachability::ask).post(reachability::report))
        .route("/manager/v1/examine/{node}", get(reachability::examine))
        .route("/manager/v1/log/{attempt}", get(jobs::own_log))
        .route(remoor_cluster::rpc::position::POSITION_PATH, get(position::position))
        .route(super::authority::CA_KEYS_PATH, get(member::ca).post(member::keep_ca))
        .route("/manager/v1/ssh-key", get(member::ssh_key))
        .route("/agent/v1/manifest", get(member::manifest))
        .route("/agent/v1/peers", get(peer_list::peers))
        .route(remoor_cluster::rpc::leave::LEAVE_PATH, post(leave::leave).layer(wire::small_body()))
        .route(CA_PATH, post(keys::trusted_cas).layer(wire::small_body()))
        .with_state(shared.clone());
    let join = Router::new()
        .route(remoor_cluster::rpc::join::JOIN_PATH, post(member::join))
        .route(RENEW_PATH, post(renew::renew))
        .route(GOSSIP_KEYS_PATH, post(keys::gossip_keys))
        .layer(wire::small_body())
        .with_state(desk);
    let all = v1.merge(inner).merge(join);
    wire::finish(all.layer(axum::middleware::from_fn_with_state(shared, authorization::admit)))
}

/// The author of an order for the journal, the manager that forwarded it, and the operator's key.
#[derive(Debug, Clone)]
struct Actor {
    text: String,
    via: Option<NodeId>,
    key: Option<String>,
}

impl From<String> for Actor {
    fn from(text: String) -> Self {
        Self { text, via: None, key: None }
    }
}

impl std::ops::Deref for Actor {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// Allows operators, root on a manager, and managers that forward a request.
fn operator(shared: &ManagerContext, caller: &Caller) -> Result<Actor, ApiFailure> {
    match caller {
        Caller::Operator { name, key, .. } => {
            operators::check_not_revoked(&shared.inventory(), name, key)?;
            Ok(Actor { text: name.clone(), via: None, key: Some(key.clone()) })
        }
        Caller::Local { uid: 0 } => Ok(format!("root@{}", shared.identity.name).into()),
        // A daemon without root: its user could do all this with the daemon's keys as well.
        Caller::Local { uid } if *uid == rustix::process::geteuid().as_raw() => {
            Ok(format!("uid {uid}@{}", shared.identity.name).into())
        }
        Caller::Local { uid } => {
            Err(ApiFailure::new(Code::Forbidden, format!("user {uid} may not give orders")).next("use sudo"))
        }
        Caller::Node { behalf, .. } => {
            let node = manager(shared, caller)?;
            let text = behalf
                .as_ref()
                .map_or_else(|| format!("unknown user on {}", node.name()), |behalf| behalf.name.clone());
            let key = behalf.as_ref().and_then(|behalf| behalf.key.clone());
            Ok(Actor { text, via: Some(node.id), key })
        }
        Caller::Anonymous => Err(ApiFailure::new(Code::Unauthenticated, "the request has no client certificate")),
    }
}

/// The calling manager, also one that is to leave and has not left Raft yet. The applied inventory
/// decides what a caller may do, not its certificate.
fn manager(shared: &ManagerContext, caller: &Caller) -> Result<Arc<Node>, ApiFailure> {
    let node = member(shared, caller)?;
    if node.manages() {
        return Ok(node);
    }
    let next = "run the command on a manager, or here with --manager HOST:PORT --credentials FILE; remoor status lists managers";
    Err(ApiFailure::new(Code::Forbidden, format!("{} is not a manager", node.name())).next(next))
}

fn member(shared: &ManagerContext, caller: &Caller) -> Result<Arc<Node>, ApiFailure> {
    let Caller::Node { id, key, cert_not_after, .. } = caller else {
        return Err(ApiFailure::new(Code::Unauthenticated, "only nodes of the cluster may ask this"));
    };
    let inventory = shared.inventory();
    not_removed(shared, &inventory, *id)?;
    // A certificate proves that the node was admitted, and node ids are log indexes. Either this
    // manager has not applied that index yet, or the cluster was restored from before it, or the
    // removal was forgotten.
    let lag = || match id.0 <= inventory.applied {
        true => {
            let text = format!(
                "the cluster has no node {id}: it was removed, or the cluster was restored from before it joined"
            );
            ApiFailure::new(Code::NodeRemoved, text).next("on it: remoor join with an empty data directory")
        }
        false => ApiFailure::new(Code::Retry, format!("this manager does not know node {id} yet")),
    };
    let node = inventory.nodes.get(id).cloned().ok_or_else(lag)?;
    check_node_key(&node, key)?;
    shared.observed.certificates.record_expiry(*id, *cert_not_after);
    Ok(node)
}

/// A certificate is valid only for the key that the node joined with. Somebody who got hold of a
/// CA's key therefore can't pose as an existing node.
fn check_node_key(node: &Node, key: &str) -> Result<(), ApiFailure> {
    if node.spec.public_key == key {
        return Ok(());
    }
    Err(ApiFailure::new(Code::Forbidden, format!("this certificate is not for the key of {}", node.name())))
}

/// Refuses nodes that left or were removed, by name, and says how to join again.
fn not_removed(shared: &ManagerContext, inventory: &Inventory, id: NodeId) -> Result<(), ApiFailure> {
    leave::check_not_left(inventory, id, shared.raft.status().borrow().leads())?;
    let Some(removed) = inventory.departed.removed.get(&id) else { return Ok(()) };
    let text =
        format!("{} was removed from the cluster at {} by {}", removed.name, wire::rfc3339(removed.at), removed.by);
    Err(ApiFailure::new(Code::NodeRemoved, text)
        .next("to make it a node again, on it: remoor join with an empty data directory"))
}

/// Proposes a command and waits until it is applied here. A refusal becomes the error that the
/// operator reads. The forwarding manager may have been removed meanwhile, so that is checked here;
/// the state machine checks it and the operator's key again.
async fn propose(shared: &ManagerContext, by: &Actor, command: Command) -> Result<Applied, ApiFailure> {
    let inventory = shared.inventory();
    if let Some(via) = by.via {
        not_removed(shared, &inventory, via)?;
    }
    // Keys of other callers are not registered, so they can't be revoked.
    let key = by.key.clone().filter(|key| inventory.operators.contains_key(key));
    let entry =
        InventoryEntry { at: shared.entry_time(), by: by.text.clone(), command: command.with_issuers(by.via, key) };
    match shared.raft.propose(entry).await {
        Ok((_, Applied::Refused(refusal))) => Err(refusal_failure(refusal)),
        Ok((_, applied)) => Ok(applied),
        Err(ProposeError::NotLeader { leader: Some(_) }) => {
            Err(ApiFailure::new(Code::Retry, "another manager leads now; retry"))
        }
        Err(error @ ProposeError::NotLeader { leader: None }) => {
            Err(ApiFailure::new(Code::NoQuorum, error.to_string()))
        }
        Err(error @ ProposeError::Unknown { .. }) => Err(ApiFailure::new(Code::OutcomeUnknown, error.to_string())),
    }
}

/// A refusal of the state machine as an operator reads it.
fn refusal_failure(refusal: Refusal) -> ApiFailure {
    let details = serde_json::json!({"refusal": refusal.code});
    let failure = ApiFailure::new(Code::Refused, refusal.message).details(details);
    match refusal.next {
        Some(next) => failure.next(next),
        None => failure,
    }
}

fn find_node(inventory: &Inventory, name: &str) -> Result<Arc<Node>, ApiFailure> {
    let id = inventory.names.get(name);
    let unknown = || ApiFailure::new(Code::NotFound, format!("no node is called {name}")).next("remoor nodes");
    id.and_then(|id| inventory.nodes.get(id).cloned())
        .ok_or_else(|| leave::left_failure(inventory, name).unwrap_or_else(unknown))
}

fn as_of(shared: &ManagerContext) -> AsOf {
    let status = shared.raft.status().borrow().clone();
    let inventory = shared.inventory();
    let leader = status.leader.and_then(|id| inventory.nodes.values().find(|n| n.raft == Some(id)));
    // If no leader was heard since the start, the state is as old as its last entry.
    let age_ms = || shared.age_ms().unwrap_or_else(|| wall().ms_since(inventory.last_entry_at()));
    AsOf {
        by: shared.identity.name.to_string(),
        leader: leader.map(|n| n.name().to_string()),
        at: wire::rfc3339(wall()),
        stale: !status.leads(),
        heard: forward::is_in_vain(),
        age_ms: if status.leads() { 0 } else { age_ms() },
    }
}
