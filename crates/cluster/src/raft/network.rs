//! openraft's calls to other members, encoded for a [`Transport`], each with a timeout.

use super::snapshot::{Image, RaftSnapshot};
use super::types::{Types, Vote};
use super::wire::{self, LocalMember};
use super::{RaftTiming, StateMachine};
use futures_util::future::{Either, select};
use futures_util::{Stream, StreamExt};
use openraft::base::{BoxFuture as BaseFuture, BoxStream as BaseStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use remoor_model::RaftId;
use serde::{Serialize, de::DeserializeOwned};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The timeout of a large request grows by one millisecond for this number of bytes (10 MB/s).
const BYTES_PER_MS: u64 = 10_000;

/// Maximum length in bytes of a request that is sent once more if its answer is late. Heartbeats
/// and requests for votes are shorter.
const SHORT_MAX: usize = 1024;

/// Maximum delay until followers learn that entries are committed and apply them, if no further
/// entries follow.
const COMMITTED_LATE: Duration = Duration::from_millis(5);

/// A boxed future, for trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The reason why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// There is no connection, so the member has not received the request.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The connection ended before the answer. The member may have acted on the request.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The member answered with an error, such as a wrong cluster or target.
    #[error("refused: {0}")]
    Refused(String),
}

/// Sends requests to other members. The receiver passes each request to [`super::Raft::handle`]
/// with the same `kind`.
///
/// The caller enforces timeouts by dropping the future. The kinds are `append`, `vote`, `pre-vote`,
/// `snapshot` and `transfer`.
pub trait Transport: Send + Sync + 'static {
    /// Sends `body` to the member `target`, whose last known address is `addr`, and returns the
    /// answer.
    fn send(
        &self,
        target: RaftId,
        addr: String,
        kind: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>>;
}

/// Creates a [`PeerClient`] for each member.
pub struct Network {
    pub local: LocalMember,
    pub transport: Arc<dyn Transport>,
    pub timing: RaftTiming,
}

impl<S: StateMachine> RaftNetworkFactory<Types<S>> for Network {
    type Network = PeerClient<S>;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> PeerClient<S> {
        PeerClient {
            local: self.local.clone(),
            transport: self.transport.clone(),
            timing: self.timing.clone(),
            target: RaftId(target),
            addr: node.addr.clone(),
            state: PhantomData,
        }
    }
}

/// The connection of openraft to one other member.
pub struct PeerClient<S> {
    local: LocalMember,
    transport: Arc<dyn Transport>,
    timing: RaftTiming,
    target: RaftId,
    addr: String,
    state: PhantomData<fn() -> S>,
}

impl<S: StateMachine> PeerClient<S> {
    async fn call<T: Serialize, R: DeserializeOwned>(
        &self,
        action: RPCTypes,
        kind: &'static str,
        body: &T,
        tail: &[u8],
        limit: Duration,
    ) -> Result<R, RPCError<Types<S>>> {
        let request = wire::request(&self.local.address(self.target), body, tail)
            .map_err(|e| RPCError::Network(NetworkError::new(&e)))?;
        let timeout = limit + Duration::from_millis(request.len() as u64 / BYTES_PER_MS);
        let answer = tokio::time::timeout(timeout, self.send(kind, request))
            .await
            .map_err(|_| Timeout { action, id: self.local.id.0, target: self.target.0, timeout })?
            .map_err(|e| match e {
                TransportError::Lost(_) => RPCError::Network(NetworkError::new(&e)),
                // Report the member as unreachable, because openraft then waits before it retries.
                TransportError::Unreachable(_) | TransportError::Refused(_) => {
                    RPCError::Unreachable(Unreachable::new(&e))
                }
            })?;
        let opened = wire::open_reply(&answer).map_err(|e| RPCError::Network(NetworkError::new(&e)));
        let (reply, claim) = opened?;
        // A vote or acknowledgement of a rejected incarnation must not count.
        let met = self.local.incarnations.check_claim(self.target, claim).await;
        met.map_err(|e| RPCError::Unreachable(Unreachable::new(&e)))?;
        Ok(reply)
    }

    /// Sends a request and returns the answer. A short request without an answer is sent once more,
    /// because a packet may be lost. A duplicate has no effect at the receiver.
    async fn send(&self, kind: &'static str, request: Vec<u8>) -> Result<Vec<u8>, TransportError> {
        let send = |request| self.transport.send(self.target, self.addr.clone(), kind, request);
        if request.len() > SHORT_MAX {
            return send(request).await;
        }
        let mut first = send(request.clone());
        let repeat_after = Duration::from_millis(self.timing.repeat_ms);
        if let Ok(answer) = tokio::time::timeout(repeat_after, &mut first).await {
            return answer;
        }
        match select(first, send(request)).await {
            Either::Left((Err(_), other)) | Either::Right((Err(_), other)) => other.await,
            Either::Left((answer, _)) | Either::Right((answer, _)) => answer,
        }
    }
}

type Answers<'s, S> =
    Result<BaseStream<'s, Result<StreamAppendResult<Types<S>>, RPCError<Types<S>>>>, RPCError<Types<S>>>;

/// Drops requests that only report a new commit index if another request follows at once, because
/// the next request has the index too. Without the dropping, one client caused a quarter more
/// messages. The first request is sent unchanged, because it probes the member.
///
/// openraft treats the answer to a later request as the answer to all earlier ones, so a dropped
/// request needs no answer of its own. openraft counts the leader's lease from the creation of the
/// last request.
pub fn coalesce_commits<S: StateMachine>(
    input: impl Stream<Item = AppendEntriesRequest<Types<S>>> + Unpin,
) -> impl Stream<Item = AppendEntriesRequest<Types<S>>> {
    futures_util::stream::unfold((input.fuse(), true), async |(mut input, first)| {
        let mut request = input.next().await?;
        let until = tokio::time::Instant::now() + COMMITTED_LATE;
        while !first && request.entries.is_empty() {
            match tokio::time::timeout_at(until, input.next()).await {
                Ok(Some(next)) => request = next,
                Ok(None) | Err(_) => break,
            }
        }
        Some((request, (input, false)))
    })
}

impl<S: StateMachine> RaftNetworkV2<Types<S>> for PeerClient<S> {
    type SnapshotData = Image<S>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types<S>>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types<S>>, RPCError<Types<S>>> {
        // openraft itself ends heartbeats earlier. A member gets more time to sync entries, because
        // with a shorter timeout, openraft would only send the same entries again to a slow disk.
        let sync_max = Duration::from_millis(2 * self.timing.answer_ms);
        self.call(RPCTypes::AppendEntries, "append", &rpc, &[], option.hard_ttl().max(sync_max)).await
    }

    fn stream_append<'s, I>(&'s mut self, input: I, option: RPCOption) -> BaseFuture<'s, Answers<'s, S>>
    where
        I: Stream<Item = AppendEntriesRequest<Types<S>>> + OptionalSend + Unpin + 'static,
    {
        stream_append_sequential(self, Box::pin(coalesce_commits(input)), option)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types<S>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<S>>, RPCError<Types<S>>> {
        self.call(RPCTypes::Vote, "vote", &rpc, &[], option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types<S>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<S>>, RPCError<Types<S>>> {
        self.call(RPCTypes::Vote, "pre-vote", &rpc, &[], option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<S>,
        snapshot: RaftSnapshot<S>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types<S>>, StreamingError<Types<S>>> {
        let head = (vote, snapshot.meta);
        let bytes = snapshot.snapshot.bytes;
        let sent = self.call(RPCTypes::InstallSnapshot, "snapshot", &head, &bytes, option.hard_ttl());
        tokio::select! {
            closed = cancel => Err(closed.into()),
            answer = sent => Ok(answer?),
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<Types<S>>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types<S>>, RPCError<Types<S>>> {
        self.call(RPCTypes::TransferLeader, "transfer", &rpc, &[], option.hard_ttl()).await
    }
}
