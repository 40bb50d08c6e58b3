//! openraft's types for this project. They are generic over the state machine, so that entries keep
//! their type up to the disk and the wire.

use super::StateMachine;
use openraft::type_config::alias;
use openraft::{BasicNode, EntryPayload};
use remoor_model::RaftId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The type configuration; never constructed.
pub struct Types<S>(PhantomData<fn() -> S>);

impl<S: StateMachine> openraft::RaftTypeConfig for Types<S> {
    type D = ProposedEntry<S::Entry>;
    type R = Option<S::Applied>;
    type NodeId = u64;
    type Node = BasicNode;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload<Self::D, u64, BasicNode>;
    type Entry = openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type Responder<T>
        = openraft::impls::ProgressResponder<Self, T>
    where
        T: Send + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: Send + 'static;
    type AsyncRuntime = openraft::TokioRuntime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub type LogId<S> = alias::LogIdOf<Types<S>>;
pub type Vote<S> = alias::VoteOf<Types<S>>;
pub type LogEntry<S> = alias::EntryOf<Types<S>>;
pub type StoredMembership<S> = alias::StoredMembershipOf<Types<S>>;
pub type SnapshotMeta<S> = alias::SnapshotMetaOf<Types<S>>;

/// A proposed entry. It is shared, because the log keeps all entries in memory and returns copies.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound(serialize = "E: Serialize", deserialize = "E: Deserialize<'de>"))]
pub struct ProposedEntry<E>(pub Arc<E>);

impl<E> Clone for ProposedEntry<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: fmt::Debug> fmt::Debug for ProposedEntry<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E> fmt::Display for ProposedEntry<E> {
    // openraft uses this text to log an entry. The text is short, because the content may be long
    // and the code that applies the entry logs it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("command")
    }
}

/// The leader to which openraft forwards. None if openraft names no leader. Also None if openraft
/// names this member, because a member that forwards does not lead.
pub fn leader<S: StateMachine>(
    forward: &openraft::errors::ForwardToLeader<Types<S>>,
    ours: RaftId,
) -> Option<(RaftId, String)> {
    match (forward.leader_id, &forward.leader_node) {
        (Some(id), Some(node)) if id != ours.0 => Some((RaftId(id), node.addr.clone())),
        _ => None,
    }
}

// openraft requires these traits of the configuration type. A derive would also require them of the
// state machine.
impl<S> fmt::Debug for Types<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Types")
    }
}
impl<S> Clone for Types<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Types<S> {}
impl<S> Default for Types<S> {
    fn default() -> Self {
        Self(PhantomData)
    }
}
impl<S> PartialEq for Types<S> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl<S> Eq for Types<S> {}
impl<S> PartialOrd for Types<S> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<S> Ord for Types<S> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}
