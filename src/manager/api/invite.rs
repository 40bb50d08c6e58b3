//! Invitations for `remoor node add`. An invitation is a join token for one machine that is valid
//! once.

use super::super::{ManagerContext, wall};
use super::{Actor, propose};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::token::{Secret, Token};
use remoor_cluster::rpc::view::{InviteRequest, InviteView};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Strict};
use remoor_model::{ClusterRole, Command, Inventory, NodeName};
use std::sync::Arc;

/// Validity of an invitation in milliseconds. It is long enough to upload the program over a slow
/// connection.
const OPEN_FOR_MS: u64 = 15 * 60_000;

/// Commits the hash of a new secret and returns the secret to the operator. The secret can't be
/// shown again.
pub async fn invite(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<InviteRequest>,
) -> Result<axum::Json<InviteView>, ApiFailure> {
    let name = NodeName(request.name);
    remoor_cluster::rpc::join::check_name(&name).map_err(|e| ApiFailure::new(Code::BadRequest, e.to_string()))?;
    let internal = |e: remoor_cluster::rpc::identity::IdentityError| ApiFailure::new(Code::Internal, e.to_string());
    let secret = Secret::generate().map_err(internal)?;
    let token = Token::new(shared.inventory().issuer(), secret.clone()).map_err(internal)?;
    let role = if request.want_manager { ClusterRole::Manager } else { ClusterRole::Worker };
    let expires = wall().plus_ms(OPEN_FOR_MS);
    let command = Command::Invite { secret: secret.hash(), name: name.clone(), role, expires };
    propose(&shared, &by, command).await?;
    let inventory = shared.inventory();
    Ok(axum::Json(InviteView {
        version: 1,
        cluster: inventory.cluster.to_string(),
        name: name.to_string(),
        token: token.reveal().into(),
        expires: wire::rfc3339(expires),
        managers: managers(&shared, &inventory),
    }))
}

/// API addresses of the managers. This manager comes first, because it leads.
fn managers(shared: &ManagerContext, inventory: &Inventory) -> Vec<String> {
    let voters = shared.raft.status().borrow().voters.clone();
    let mut of: Vec<_> =
        inventory.nodes.values().filter(|n| n.raft.is_some_and(|id| voters.contains_key(&id))).collect();
    of.sort_by_key(|n| n.id != shared.identity.node);
    of.into_iter().map(|n| n.spec.api.clone()).collect()
}
