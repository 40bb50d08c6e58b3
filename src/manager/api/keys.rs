//! The gossip key's rotation: the operator's order and question, and what each node is to hold, by its certificate.

use super::super::{Shared, gossip_key};
use super::{JoinDesk, as_of, member, operator, propose};
use crate::model::{Command, KeyStep};
use crate::rpc::agent::{GossipKeysReply, GossipKeysRequest};
use crate::rpc::caller::Caller;
use crate::rpc::view::{AcceptedView, KeysView, RotateKeyRequest, RotationView};
use crate::rpc::wire::{self, Code, Failure, Json, Strict};
use axum::extract::State;
use std::sync::Arc;

/// What the caller's gossip is to hold, first the key by which it sends. What it holds is taken note of.
pub async fn held(
    State(desk): State<Arc<JoinDesk>>,
    caller: Caller,
    Json(request): Json<GossipKeysRequest>,
) -> Result<axum::Json<GossipKeysReply>, Failure> {
    let shared = desk.shared();
    let node = member(shared, &caller)?;
    let inventory = shared.inventory();
    shared.key_confirmed.hear(node.id, request.holds);
    let leads = shared.raft.status().borrow().is_leader;
    let keys = desk.gossip_keys(&inventory)?;
    let keys = keys.iter().map(|key| key.to_hex()).collect();
    Ok(axum::Json(GossipKeysReply { keys, changed: inventory.gossip.changed, leads }))
}

pub async fn rotate(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Strict(request): Strict<RotateKeyRequest>,
) -> Result<axum::Json<AcceptedView>, Failure> {
    let by = operator(&shared, &caller)?;
    if request.key != "gossip" {
        return Err(Failure::new(Code::BadRequest, "key is to be gossip"));
    }
    propose(&shared, &by, Command::RotateGossip).await?;
    let text = "a new gossip key goes to all nodes; those that are away get it when they come back".to_owned();
    Ok(axum::Json(AcceptedView { version: 1, text }))
}

pub async fn status(State(shared): State<Arc<Shared>>, caller: Caller) -> Result<axum::Json<KeysView>, Failure> {
    operator(&shared, &caller)?;
    let inventory = shared.inventory();
    let gossip = inventory.gossip.next.as_ref().map(|next| {
        let (waits_for, away) = gossip_key::missing(&shared, &inventory);
        let step = match next.step {
            KeyStep::Insert => "insert",
            KeyStep::Use => "use",
        };
        let (step, since) = (step.to_owned(), wire::rfc3339(next.since));
        RotationView { step, since, by: next.by.clone(), waits_for, away }
    });
    Ok(axum::Json(KeysView { version: 1, as_of: as_of(&shared), serial: inventory.gossip.serial, gossip }))
}
