//! The authorization of callers. The table of routes has the audience of each route. For each
//! request, [`admit`] identifies the caller before the body is read, and adds the caller to the
//! request as an extension for the handler. The functions at the end check the content of messages.

use super::super::ManagerContext;
use super::{leave, operators};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use remoor_cluster::incarnation::{NamedManager, SenderVerdict, judge_sender};
use remoor_cluster::rpc::ca;
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::wire::{self, ApiFailure, BodyLimit, Code};
use remoor_model::{ClusterRole, Inventory, Node, NodeId, NodeMembership, RaftId};
use std::sync::Arc;

/// Maximum length of an operator's name in a forwarded request.
const BEHALF_MAX: usize = 200;

/// The callers for which a route is intended, and the extension that its handler receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Operators, root on this machine, and managers that forward a request. The handler receives
    /// an `Actor`.
    Operators,
    /// Operators that are logged in on this machine, because they can read its keys anyway. The
    /// handler receives an `Actor`.
    LocalOperators,
    /// Nodes, each for its own data. The handler receives the calling [`Node`].
    Nodes,
    /// Managers, also those that are being demoted and have not left Raft yet. The handler receives
    /// the calling [`Node`].
    Managers,
    /// Managers that are not being demoted, because a demoted manager does not need the cluster's
    /// keys any more. The handler receives the calling [`Node`].
    StayingManagers,
    /// Nodes that use a Raft id. The handler checks the id with `check_raft_sender`. Even a removed
    /// node gets an answer whether its Raft id is still valid.
    RaftMembers,
    /// Any caller, because the message contains the proof.
    Anybody,
}

/// The author of an order for the journal, the manager that forwarded it, and the operator's key.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub text: String,
    pub via: Option<NodeId>,
    pub key: Option<String>,
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

/// Admits a request if its caller belongs to the audience of the route, and limits the body to the
/// length that the route allows. Any other request is rejected.
pub(super) async fn admit(
    State((shared, audience, body_max)): State<(Arc<ManagerContext>, Audience, usize)>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(caller) = request.extensions().get::<Caller>().cloned() {
        operators::wait_until_listed(&shared, &caller).await;
    }
    match identify(&shared, audience, body_max, &mut request) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn identify(
    shared: &ManagerContext,
    audience: Audience,
    mut body_max: usize,
    request: &mut Request,
) -> Result<(), ApiFailure> {
    let caller = request.extensions().get().unwrap_or(&Caller::Anonymous);
    let (mut actor, mut node) = (None, None);
    match audience {
        Audience::Operators => actor = Some(operator(shared, caller, request.headers())?),
        Audience::LocalOperators => actor = Some(local_operator(shared, caller, request.headers())?),
        Audience::Nodes => node = Some(member(shared, caller)?),
        Audience::Managers => node = Some(manager(shared, caller)?),
        Audience::StayingManagers => node = Some(staying_manager(shared, caller)?),
        Audience::RaftMembers => match caller {
            Caller::Node { id, key, .. } if shared.is_manager(*id) && has_known_key(shared, *id, key) => {}
            // A node that is not known as a manager may only ask whether its Raft id is still
            // valid. A short message is enough for this.
            Caller::Node { .. } => body_max = wire::SMALL_BODY_MAX,
            _ => return Err(unauthenticated_failure("managers")),
        },
        Audience::Anybody => {}
    }
    let extensions = request.extensions_mut();
    extensions.insert(BodyLimit(body_max));
    actor.and_then(|actor| extensions.insert(actor));
    node.and_then(|node| extensions.insert(node));
    Ok(())
}

fn unauthenticated_failure(who: &str) -> ApiFailure {
    ApiFailure::new(Code::Unauthenticated, format!("only {who} of the cluster may ask this"))
}

/// Allows operators, root on this machine, and managers that forward a request.
fn operator(shared: &ManagerContext, caller: &Caller, headers: &HeaderMap) -> Result<Actor, ApiFailure> {
    match caller {
        Caller::Operator { name, key, .. } => {
            let text = operators::check_listed(&shared.inventory(), name, key)?;
            Ok(Actor { text, via: None, key: Some(key.clone()) })
        }
        Caller::Local { uid: 0 } => Ok(format!("root@{}", shared.identity.name).into()),
        Caller::Local { uid } if caller.runs_this_daemon() => Ok(format!("uid {uid}@{}", shared.identity.name).into()),
        Caller::Local { uid } => {
            Err(ApiFailure::new(Code::Forbidden, format!("user {uid} may not give orders")).next("use sudo"))
        }
        Caller::Node { .. } => {
            let node = manager(shared, caller)?;
            let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let name = header(wire::BEHALF).filter(|name| !name.is_empty() && name.len() <= BEHALF_MAX);
            let key = header(wire::BEHALF_KEY);
            if let Some(key) = &key {
                // The forwarding manager may not know yet that the credentials were revoked.
                operators::check_listed(&shared.inventory(), name.as_deref().unwrap_or("an operator"), key)?;
            }
            let text = name.unwrap_or_else(|| format!("unknown user on {}", node.name()));
            Ok(Actor { text, via: Some(node.id), key })
        }
        Caller::Anonymous => Err(ApiFailure::new(Code::Unauthenticated, "the request has no client certificate")),
    }
}

fn local_operator(shared: &ManagerContext, caller: &Caller, headers: &HeaderMap) -> Result<Actor, ApiFailure> {
    let actor = operator(shared, caller, headers)?;
    match caller {
        Caller::Local { .. } => Ok(actor),
        _ => Err(ApiFailure::new(Code::Forbidden, "a backup contains keys, so it is only made on the manager itself")
            .next("run the command on a manager, without --manager")),
    }
}

/// Returns the calling manager. The applied state, not the caller's certificate, decides whether
/// the caller is a manager.
fn manager(shared: &ManagerContext, caller: &Caller) -> Result<Arc<Node>, ApiFailure> {
    let node = member(shared, caller)?;
    if node.manages() {
        return Ok(node);
    }
    let next = "run the command on a manager, or here with --manager HOST:PORT --credentials FILE; remoor status lists managers";
    Err(ApiFailure::new(Code::Forbidden, format!("{} is not a manager", node.name())).next(next))
}

fn staying_manager(shared: &ManagerContext, caller: &Caller) -> Result<Arc<Node>, ApiFailure> {
    let node = manager(shared, caller)?;
    match node.role {
        ClusterRole::Manager => Ok(node),
        ClusterRole::Worker => {
            Err(ApiFailure::new(Code::Forbidden, format!("the desired role of {} is worker", node.name())))
        }
    }
}

fn member(shared: &ManagerContext, caller: &Caller) -> Result<Arc<Node>, ApiFailure> {
    let Caller::Node { id, key, epoch, cert_not_after, .. } = caller else {
        return Err(unauthenticated_failure("nodes"));
    };
    let inventory = shared.inventory();
    check_not_removed(shared, &inventory, *id)?;
    // The state of an epoch contains from its beginning all nodes that it took over from earlier
    // epochs. So a node of an ended epoch that is unknown here stays unknown.
    let ended = *epoch < inventory.epoch;
    // The certificate proves that the node was admitted, and the node's id is the log index of the
    // admission. So there are three possible reasons why the node is unknown. This manager has not
    // applied that index yet, the cluster was restored from an earlier state, or the record of the
    // removal was deleted.
    let lag = || match id.0 <= inventory.applied || ended {
        true => {
            let text = format!(
                "the cluster has no node {id}: it was removed, or the cluster was restored from before it joined"
            );
            ApiFailure::new(Code::NodeRemoved, text).next("on it: remoor join with an empty data directory")
        }
        false => ApiFailure::new(Code::Retry, format!("this manager does not know node {id} yet")),
    };
    let node = inventory.nodes.get(id).cloned().ok_or_else(lag)?;
    if ended && node.spec.public_key != *key {
        // A backup was restored twice. The other cluster, whose epoch has ended, gave the id to
        // another machine, or restored the node with a new key.
        let name = node.name();
        let text = format!(
            "the node belongs to epoch {epoch}, which has ended; in epoch {} its id belongs to {name}, with another key",
            inventory.epoch
        );
        return Err(ApiFailure::new(Code::NodeRemoved, text)
            .next(format!("on it: remoor join with an empty data directory; as {name}: first remoor remove {name}")));
    }
    check_node_key(&node, key)?;
    shared.observed.certificates.record_expiry(*id, *cert_not_after);
    Ok(node)
}

/// False if the log contains the node with another key.
fn has_known_key(shared: &ManagerContext, id: NodeId, key: &str) -> bool {
    shared.inventory().node(id).is_none_or(|node| node.spec.public_key == key)
}

/// Rejects a certificate for another key than the key that the node joined with. So a person with a
/// stolen CA key can't impersonate an existing node.
fn check_node_key(node: &Node, key: &str) -> Result<(), ApiFailure> {
    if node.spec.public_key == key {
        return Ok(());
    }
    Err(ApiFailure::new(Code::Forbidden, format!("this certificate is not for the key of {}", node.name())))
}

/// Rejects nodes that left or were removed. The error contains the name and the way to join again.
pub(super) fn check_not_removed(shared: &ManagerContext, inventory: &Inventory, id: NodeId) -> Result<(), ApiFailure> {
    match inventory.membership(id) {
        NodeMembership::Member(_) | NodeMembership::Unknown => Ok(()),
        NodeMembership::Left(left) => Err(leave::left_member_failure(left, shared.raft.status().borrow().leads())),
        NodeMembership::Removed(removed) => {
            let (at, by) = (wire::rfc3339(removed.at), &removed.by);
            let text = format!("{} was removed from the cluster at {at} by {by}", removed.name);
            Err(ApiFailure::new(Code::NodeRemoved, text)
                .next("to make it a node again, on it: remoor join with an empty data directory"))
        }
    }
}

impl ManagerContext {
    /// Whether the node `id` is a manager as far as this manager knows. The applied state or the
    /// lists of [`Sponsors`](super::super::Sponsors) must name it as a manager; the lists may be
    /// newer. A manager that is being demoted counts too. The result decides the body limit of the
    /// messages of `id`, and whether this node obeys an order of `id` to run the manager service.
    /// The authorization of routes uses only the applied state.
    pub fn is_manager(&self, id: NodeId) -> bool {
        let inventory = self.inventory();
        let node = inventory.node(id);
        node.is_some_and(Node::manages) || self.named_manager(&inventory, id).speaks(node)
    }

    fn named_manager(&self, inventory: &Inventory, id: NodeId) -> NamedManager {
        NamedManager {
            by_agent: self.sponsors.is_known_manager(id),
            by_order: self.sponsors.is_initial_manager(id),
            // This manager's Raft id is the index of the log entry that granted it. So if the
            // applied index is lower, this manager's log is behind.
            log_is_behind: inventory.applied < self.raft.status().borrow().id.0,
        }
    }
}

/// Allows a node that may use the Raft id of its message. [`judge_sender`] decides this.
pub(super) fn check_raft_sender(shared: &ManagerContext, caller: &Caller, sender: RaftId) -> Result<(), ApiFailure> {
    let Caller::Node { id, key, cert_not_after, .. } = caller else { return Err(unauthenticated_failure("managers")) };
    let inventory = shared.inventory();
    let node = inventory.node(*id);
    if let Some(node) = node {
        check_node_key(node, key)?;
        shared.observed.certificates.record_expiry(*id, *cert_not_after);
    }
    let name = node.map_or_else(|| format!("node {id}"), |n| n.name().to_string());
    match judge_sender(&inventory, *id, sender, shared.named_manager(&inventory, *id)) {
        SenderVerdict::Accept => Ok(()),
        SenderVerdict::Retired => {
            let text = format!(
                "Raft id {sender} of {name} is retired: that id was removed from the managers and is never used again"
            );
            Err(ApiFailure::new(Code::Retired, text).next(format!("to make it a manager again: remoor promote {name}")))
        }
        SenderVerdict::HeldByOther(holder) => {
            let text = format!("{name} uses Raft id {sender}, which belongs to {}", holder.name());
            Err(ApiFailure::new(Code::Forbidden, text))
        }
        SenderVerdict::Out => check_not_removed(shared, &inventory, *id),
        SenderVerdict::Unknown => {
            shared.sponsors.refresh();
            let text = format!("this manager does not know Raft id {sender} of {name} yet");
            Err(ApiFailure::new(Code::Retry, text))
        }
    }
}

/// Allows a node to request a certificate for its own key only.
pub(super) fn check_csr_key(node: &Node, csr_pem: &str) -> Result<(), ApiFailure> {
    let key = ca::csr_key(csr_pem).map_err(|e| ApiFailure::new(Code::BadRequest, e.to_string()))?;
    if hex::encode(key) == node.spec.public_key {
        return Ok(());
    }
    Err(ApiFailure::new(Code::Forbidden, format!("this is not the key of {}", node.name())))
}

#[cfg(test)]
mod tests;
