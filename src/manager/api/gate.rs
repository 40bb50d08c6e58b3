//! Checks by path which kind of caller may send a request, before a handler reads any of it.
//! Handlers check again what the caller may do.

use super::super::Shared;
use super::{manager, member, operator};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::join::JOIN_PATH;
use remoor_cluster::rpc::position::POSITION_PATH;
use remoor_cluster::rpc::wire::{Code, Failure};
use std::sync::Arc;

/// The callers that a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
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

impl Door {
    /// Paths of no known kind are for managers only.
    fn of(path: &str) -> Self {
        let below = |top: &str| path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'));
        match () {
            () if path == JOIN_PATH => Door::Join,
            // Also for nodes that were managers before the cluster was rebuilt.
            () if path == POSITION_PATH => Door::Nodes,
            () if below("/v1") => Door::Operators,
            () if below("/agent/v1") => Door::Nodes,
            () if below("/raft") => Door::Raft,
            () => Door::Managers,
        }
    }
}

pub async fn admit(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().unwrap_or(&Caller::Anonymous);
    match judge(&shared, caller, Door::of(request.uri().path())) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn judge(shared: &Shared, caller: &Caller, door: Door) -> Result<(), Failure> {
    match door {
        Door::Join => Ok(()),
        Door::Operators => operator(shared, caller).map(drop),
        Door::Nodes => member(shared, caller).map(drop),
        Door::Managers => manager(shared, caller).map(drop),
        Door::Raft if matches!(caller, Caller::Node { .. }) => Ok(()),
        Door::Raft => Err(Failure::new(Code::Unauthenticated, "only managers of the cluster may ask this")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_has_its_door() {
        let source = include_str!("mod.rs");
        let routes: Vec<&str> =
            source.lines().filter_map(|l| l.trim().strip_prefix(".route(\"")?.split('"').next()).collect();
        assert!(routes.len() > 30, "{routes:?}");
        for path in routes {
            let door = match path.split('/').nth(1) {
                Some("v1") => Door::Operators,
                Some("agent") => Door::Nodes,
                _ if path == POSITION_PATH => Door::Nodes,
                Some("raft") => Door::Raft,
                Some("manager" | "blob") => Door::Managers,
                _ => panic!("{path} is of no kind: say who may ask it"),
            };
            assert_eq!(Door::of(path), door, "{path}");
        }
        assert_eq!(Door::of(JOIN_PATH), Door::Join);
        for path in ["/v1", "/v12/status", "/join/v1/x", "/", ""] {
            assert_eq!(Door::of(path), Door::Managers, "{path}");
        }
    }
}
