//! Who is let in at all, asked before a handler reads anything of a request: the kind of caller that a path is for. What a
//! caller may do there, the handlers ask again.

use super::super::Shared;
use super::{manager, member, operator};
use crate::rpc::caller::Caller;
use crate::rpc::join::JOIN_PATH;
use crate::rpc::position::POSITION_PATH;
use crate::rpc::wire::{Code, Failure};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Whom a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// Operators, root on this machine, and managers that pass a request on.
    Operators,
    /// Nodes, each about itself.
    Nodes,
    Managers,
    /// Who speaks by a Raft id: what became of that id is the answer, also to a node that was removed.
    Raft,
    /// Anybody, by a token.
    Join,
}

impl Door {
    /// A path of no kind is for managers only.
    fn of(path: &str) -> Self {
        let below = |top: &str| path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'));
        match () {
            () if path == JOIN_PATH => Door::Join,
            // Also who was a manager before the cluster was founded anew.
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
