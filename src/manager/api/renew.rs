//! Renews a node's certificate. A valid certificate is renewed on request. A node with an expired
//! certificate keeps its identity, but waits for an operator's `remoor accept`.

use super::super::{ManagerContext, wall};
use super::{Actor, JoinService, propose};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::renew::{RenewReply, RenewRequest};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Json};
use remoor_model::{Command, Node};
use std::sync::Arc;

pub async fn renew(
    State(desk): State<Arc<JoinService>>,
    caller: Caller,
    Extension(node): Extension<Arc<Node>>,
    Json(request): Json<RenewRequest>,
) -> Result<axum::Json<RenewReply>, ApiFailure> {
    let shared = desk.context();
    let reply = desk.issue(&node, &request.tls_csr_pem)?;
    match caller.is_expired(wall()) {
        true => check_readmitted(shared, &node, &request.machine_id, caller.has_replaced_ca()).await?,
        // The certificate of the request is valid again, so the node does not wait for an operator
        // any more.
        false if shared.inventory().expired_certificates.contains_key(&node.id) => {
            propose(shared, &renewal_actor(&node), Command::CertificateRenewed { node: node.id }).await?;
        }
        false => {}
    }
    tracing::info!(node = %node.name(), "certificate renewed");
    Ok(axum::Json(reply))
}

/// Checks that an operator has accepted this node again; otherwise records the node as waiting.
async fn check_readmitted(
    shared: &ManagerContext,
    node: &Node,
    machine_id: &str,
    replaced: bool,
) -> Result<(), ApiFailure> {
    let name = node.name();
    let why = if replaced { "is from a CA that was replaced" } else { "expired" };
    if !node.spec.machine_id.is_empty() && node.spec.machine_id != machine_id {
        let text = format!("{name} presents a certificate that {why}, from another machine than the one that joined");
        return Err(ApiFailure::new(Code::Refused, text).next("remove the node, then join that machine again"));
    }
    let lapsed = shared.inventory().expired_certificates.get(&node.id).copied();
    if lapsed.is_some_and(|l| l.is_accepted(wall())) {
        return Ok(());
    }
    if lapsed.is_none_or(|l| l.accepted_until.is_some()) {
        propose(shared, &renewal_actor(node), Command::CertificateExpired { node: node.id }).await?;
    }
    let text = format!("the certificate of {name} {why}: it waits to be accepted again");
    Err(ApiFailure::new(Code::Pending, text).next(format!("remoor accept {name}, on a manager")))
}

fn renewal_actor(node: &Node) -> Actor {
    Actor::from(format!("renewal of {}", node.name()))
}
