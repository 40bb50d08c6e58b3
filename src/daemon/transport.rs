//! Sends Raft's messages over the managers' TLS port. Evaluates the error answers to them, because
//! an error may mean that this manager must stop.

use crate::manager::Peers;
use futures_util::future::BoxFuture;
use remoor_cluster::raft::{Transport, TransportError};
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::wire::Code;
use remoor_model::{Epoch, RaftId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A safety limit for one message; Raft has shorter timeouts of its own.
const WITHIN: Duration = Duration::from_secs(15);

/// The reason why a manager service stops permanently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PermanentEnd {
    #[error("the Raft id of this node is retired")]
    Retired,
    /// The data directory is a copy or an older state, according to another manager.
    #[error("the data directory is stale: {0}")]
    Stale(String),
}

/// Records whether this manager service must end. Also passes on the newer epochs that other
/// managers report to this manager. All clones share one state.
#[derive(Clone)]
pub struct Retirement {
    end: Arc<watch::Sender<Option<PermanentEnd>>>,
    learn_epoch: Arc<dyn Fn(Epoch) + Send + Sync>,
}

impl Retirement {
    /// `learn_epoch` receives each epoch that another manager reports.
    pub fn new(learn_epoch: impl Fn(Epoch) + Send + Sync + 'static) -> Self {
        Self { end: Arc::new(watch::channel(None).0), learn_epoch: Arc::new(learn_epoch) }
    }

    /// Records the reason why the manager service must end; only the first reason counts.
    pub fn report_end(&self, end: PermanentEnd, from: &str) {
        self.end.send_if_modified(|heard| {
            let first = heard.is_none();
            if first {
                tracing::info!(%from, ?end, "another node reports that this manager must stop");
                *heard = Some(end);
            }
            first
        });
    }

    /// Evaluates another manager's error answer to a message of this manager.
    pub fn evaluate_error(&self, error: &ApiError, from: &str) {
        if let Some(end) = end_of(error) {
            self.report_end(end, from);
        }
        if let ApiError::Status { code, details, .. } = error
            && code == Code::WrongEpoch.as_str()
            && let Some(epoch) = details["epoch"].as_u64()
        {
            (self.learn_epoch)(Epoch(epoch));
        }
    }

    pub fn follow(&self) -> watch::Receiver<Option<PermanentEnd>> {
        self.end.subscribe()
    }
}

/// The reason for a permanent end of the manager service, if the error answer contains one.
pub fn end_of(error: &ApiError) -> Option<PermanentEnd> {
    match error {
        ApiError::Status { code, .. } if code == Code::Retired.as_str() => Some(PermanentEnd::Retired),
        ApiError::Status { code, message, details, .. } if code == Code::StaleDirectory.as_str() => {
            let since = details["since"].as_str().unwrap_or("an earlier start");
            Some(PermanentEnd::Stale(format!("{message} (seen {since})")))
        }
        _ => None,
    }
}

pub struct TlsTransport {
    pub peers: Arc<Peers>,
    pub retired: Retirement,
}

impl Transport for TlsTransport {
    fn send(
        &self,
        target: RaftId,
        addr: String,
        kind: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>> {
        let (peers, retired) = (self.peers.clone(), self.retired.clone());
        Box::pin(async move {
            let client = peers.member(target, &addr).with_timeout(WITHIN);
            let sent = match kind {
                // A snapshot is sent over HTTP and not over Raft's own connection, because its
                // receiver must not block Raft's thread.
                "snapshot" => client.post_bytes("/raft/snapshot", body.into()).await.map(|answer| answer.to_vec()),
                _ => client.send_raft_message(kind, body).await,
            };
            // An error can end this manager service only if the answering node is proved to be the
            // Raft member `target`.
            if let Some(error) = sent.as_ref().err().filter(|_| peers.knows(target)) {
                retired.evaluate_error(error, &client.addr());
            }
            sent.map_err(|error| match error {
                ApiError::Status { message, .. } => TransportError::Refused(message),
                other => TransportError::Unreachable(other.to_string()),
            })
        })
    }
}

/// The transport of the founder, which is alone while `init` writes the first entries.
pub struct NoTransport;

impl Transport for NoTransport {
    fn send(
        &self,
        _: RaftId,
        addr: String,
        _: &'static str,
        _: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, TransportError>> {
        Box::pin(async move { Err(TransportError::Unreachable(format!("no messages are sent to {addr} during init"))) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::ManagerAddresses;
    use axum::{Router, extract::Path, routing::post};
    use remoor_cluster::rpc::ca::testing::node_identity;
    use remoor_cluster::rpc::ca::{ClusterCa, Validity};
    use remoor_cluster::rpc::server::{ServerLimits, serve_tls};
    use remoor_cluster::rpc::tls::{ClientTls, ServerTls};
    use remoor_cluster::rpc::wire::ApiFailure;
    use remoor_model::NodeId;

    #[tokio::test]
    async fn the_end_is_believed_of_a_member_that_is_known_and_in_so_many_words() {
        let ca = ClusterCa::create(&"c1".into()).expect("a CA");
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let addr = listener.local_addr().expect("an address").to_string();
        let answer = |Path(kind): Path<String>| async move {
            Err::<(), _>(ApiFailure::new(if kind == "vote" { Code::Retry } else { Code::Retired }, "no"))
        };
        let router = Router::new().route("/raft/{kind}", post(answer));
        let tls = ServerTls::new(&node_identity(&ca, 7, Validity::days_from_now(1))).expect("TLS");
        let server = tokio::spawn(serve_tls(listener, tls, router, ServerLimits::default(), std::future::pending()));
        let peers =
            Arc::new(Peers::new(ClientTls::member(&node_identity(&ca, 8, Validity::days_from_now(1))).expect("TLS")));
        let retired = Retirement::new(|_| {});
        let transport = TlsTransport { peers: peers.clone(), retired: retired.clone() };
        let send = |kind| transport.send(RaftId(3), addr.clone(), kind, Vec::new());

        send("pre-vote").await.expect_err("refused");
        assert_eq!(*retired.follow().borrow(), None, "by a node that may be anybody");
        peers.redirect(ManagerAddresses { ids: [(RaftId(3), NodeId(7))].into(), ..ManagerAddresses::default() });
        send("vote").await.expect_err("refused");
        assert_eq!(*retired.follow().borrow(), None, "for another reason");
        send("pre-vote").await.expect_err("refused");
        assert_eq!(*retired.follow().borrow(), Some(PermanentEnd::Retired));
        server.abort();
    }
}
