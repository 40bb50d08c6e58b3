//! `GET /v1/raft/state`: a hash of this manager's own applied state, so that an operator can
//! compare the managers. This request is not forwarded to the leader.

use super::super::ManagerContext;
use super::as_of;
use axum::extract::State;
use remoor_cluster::rpc::view::RaftStateView;
use remoor_cluster::rpc::wire::{ApiFailure, Code, TimedJson};
use remoor_model::{Inventory, Sha256};
use std::sync::Arc;

pub async fn state(State(shared): State<Arc<ManagerContext>>) -> Result<TimedJson<RaftStateView>, ApiFailure> {
    let inventory = shared.inventory();
    let (as_of, joint) = (as_of(&shared), shared.raft.status().borrow().joint);
    let applied = inventory.applied;
    let failed = |why: String| ApiFailure::new(Code::Internal, format!("the state can't be hashed: {why}"));
    let hashed = tokio::task::spawn_blocking(move || hash(&inventory)).await.map_err(|e| failed(e.to_string()))?;
    let sha256 = hashed.map_err(|e| failed(e.to_string()))?;
    Ok(TimedJson(RaftStateView { version: 1, as_of, applied, sha256, joint }))
}

/// Hash of the state in the form of a snapshot. The same log gives the same hash on every manager.
fn hash(inventory: &Inventory) -> Result<Sha256, rmp_serde::encode::Error> {
    Ok(Sha256::digest(&rmp_serde::to_vec_named(inventory)?))
}

#[cfg(test)]
mod tests {
    use super::hash;
    use remoor_model::{Command, InventoryEntry, Wall, sample};

    #[test]
    fn the_same_entries_give_the_same_hash_and_one_more_another() {
        let (mut one, mut two) = (sample::fleet(0, 4), sample::fleet(0, 4));
        let before = hash(&one).expect("a hash");
        assert_eq!(before, hash(&two).expect("a hash"));
        let entry = InventoryEntry { at: Wall(7), by: "alice".to_owned(), command: Command::Resume };
        one.apply(one.applied + 1, &entry);
        let after = hash(&one).expect("a hash");
        assert_ne!(before, after);
        two.apply(two.applied + 1, &entry);
        assert_eq!(after, hash(&two).expect("a hash"));
    }
}
