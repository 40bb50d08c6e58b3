//! Raft's messages over the managers' TLS port.

use crate::manager::Peers;
use crate::model::RaftId;
use crate::raft::{Transport, TransportError};
use crate::rpc::client::ApiError;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// Raft has shorter deadlines of its own; this ends what they forgot.
const WITHIN: Duration = Duration::from_secs(15);

pub struct TlsTransport(pub Arc<Peers>);

impl Transport for TlsTransport {
    fn send(
        &self,
        target: RaftId,
        addr: String,
        kind: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>> {
        let peers = self.0.clone();
        Box::pin(async move {
            let client = peers.client_of(&addr, Some(target)).within(WITHIN);
            let sent = client.post_bytes(&format!("/raft/{kind}"), body.into()).await.map(|b| b.to_vec());
            sent.map_err(|error| match error {
                ApiError::Status { message, .. } => TransportError::Refused(message),
                other => TransportError::Unreachable(other.to_string()),
            })
        })
    }
}

/// Of a node that is alone while `init` writes the first entries.
pub struct Nobody;

impl Transport for Nobody {
    fn send(
        &self,
        _: RaftId,
        addr: String,
        _: &'static str,
        _: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>> {
        Box::pin(async move { Err(TransportError::Unreachable(format!("nothing is sent to {addr} yet"))) })
    }
}
