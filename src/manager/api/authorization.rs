//! Checks by path which kind of caller may send a request, before a handler reads any of it.
//! Handlers check again what the caller may do.

use super::super::ManagerContext;
use super::{manager, member, operator};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::join::JOIN_PATH;
use remoor_cluster::rpc::position::POSITION_PATH;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use remoor_model::Node;
use std::sync::Arc;

/// The callers that a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Operators, root on this machine, and managers that forward a request.
    Operators,
    /// Nodes, each for itself.
    Nodes,
    Managers,
    /// Callers that speak by a Raft id. The handler answers what became of that id, also to a
    /// removed node.
    Raft,
    /// Anybody with a token.
    Join,
}

impl Audience {
    /// Paths of no known kind are for managers only.
    fn for_path(path: &str) -> Self {
        let below = |top: &str| path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'));
        match () {
            () if path == JOIN_PATH => Audience::Join,
            // Also for nodes that were managers before the cluster was rebuilt.
            () if path == POSITION_PATH => Audience::Nodes,
            () if below("/v1") => Audience::Operators,
            () if below("/agent/v1") => Audience::Nodes,
            () if below("/raft") => Audience::Raft,
            () => Audience::Managers,
        }
    }
}

pub async fn admit(State(shared): State<Arc<ManagerContext>>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().unwrap_or(&Caller::Anonymous);
    match judge(&shared, caller, Audience::for_path(request.uri().path())) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn judge(shared: &ManagerContext, caller: &Caller, door: Audience) -> Result<(), ApiFailure> {
    match door {
        Audience::Join => Ok(()),
        Audience::Operators => operator(shared, caller).map(drop),
        Audience::Nodes => member(shared, caller).map(drop),
        Audience::Managers => manager(shared, caller).map(drop),
        Audience::Raft if matches!(caller, Caller::Node { .. }) => Ok(()),
        Audience::Raft => Err(ApiFailure::new(Code::Unauthenticated, "only managers of the cluster may ask this")),
    }
}

/// Whether this node counts as a manager before anything of its message was read. Any other node
/// only asks what became of its Raft id, which takes a short message.
pub(super) fn counts_as_manager(shared: &ManagerContext, caller: &Caller) -> bool {
    let Caller::Node { id, key, .. } = caller else { return false };
    let inventory = shared.inventory();
    let node = inventory.node(*id).filter(|node| node.spec.public_key == *key);
    node.is_some_and(Node::manages) || shared.sponsors.is_known_manager(*id) || shared.sponsors.is_initial_manager(*id)
}

#[cfg(test)]
mod tests;
