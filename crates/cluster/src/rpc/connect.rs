//! Opens one connection of a client: dials, and checks the server's identity. The connection is
//! then ready for HTTP or for Raft messages without HTTP. No part of a request is sent here.

use super::body;
use super::caller::{self, Caller, node_dns};
use super::client::ApiError;
use super::join_proof::ChannelBinding;
use super::raft_stream;
use super::tls::ClientTls;
use super::verify::{ANY_NODE, identity_fault};
use super::wire::{Code, ErrorBody, SMALL_BODY_MAX};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use remoor_model::{Epoch, NodeId};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Maximum time for dialling, handshake included.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// If the server leaves sent bytes unacknowledged for this time, the connection is closed.
const SILENT_MS_MAX: u32 = 30_000;

/// The reason of the error for a server whose certificate does not show that it is a manager.
const NO_MANAGER: &str = "its certificate does not show that it is a manager, so it received nothing: it is a worker, a \
                          worker intercepts the connection, or it is a manager of an earlier version, which shows this \
                          only after its upgrade";

/// The destination of a client's requests.
#[derive(Clone)]
pub(super) enum ClientTarget {
    Unix(PathBuf),
    Tls { addr: String, tls: ClientTls, expected: Option<NodeId> },
}

impl std::fmt::Display for ClientTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tls { addr, expected: None, .. } => f.write_str(addr),
            Self::Tls { addr, expected: Some(node), .. } => write!(f, "{addr} (node {node})"),
        }
    }
}

/// The sending half of a connection. Dropping it ends the connection.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// A connection for Raft messages without HTTP.
pub(super) type RaftStream = TlsStream<TcpStream>;

/// A connection with the protocol that the server chose.
pub(super) enum NegotiatedConnection {
    RaftStream(Box<RaftStream>),
    Http(Sender),
}

/// Dials for HTTP. An error means that the server has received no part of a request.
pub(super) async fn connect(target: &ClientTarget) -> Result<Sender, ApiError> {
    in_time(target, dial(target)).await.map(|(sender, _)| sender)
}

/// Like [`connect`], for a request that contains a proof for this connection.
pub(super) async fn connect_bound(target: &ClientTarget) -> Result<(Sender, ChannelBinding), ApiError> {
    let (sender, binding) = in_time(target, dial(target)).await?;
    let none = || ApiError::Protocol { addr: target.to_string(), reason: "the connection is not TLS".to_owned() };
    Ok((sender, binding.ok_or_else(none)?))
}

/// Dials for Raft messages without HTTP. If the server's program is too old for them, the
/// connection is for HTTP.
pub(super) async fn connect_raft_stream(target: &ClientTarget) -> Result<NegotiatedConnection, ApiError> {
    in_time(target, async {
        let ClientTarget::Tls { addr, tls, expected } = target else {
            return dial(target).await.map(|(sender, _)| NegotiatedConnection::Http(sender));
        };
        let mut config = (*tls.current()).clone();
        config.alpn_protocols = vec![raft_stream::PROTOCOL.to_vec(), b"http/1.1".to_vec()];
        let stream = secure(target, addr, Arc::new(config), server_name(target, tls, *expected)?).await?;
        match stream.get_ref().1.alpn_protocol() {
            Some(raft_stream::PROTOCOL) => Ok(NegotiatedConnection::RaftStream(Box::new(stream))),
            _ => http(target, stream).await.map(NegotiatedConnection::Http),
        }
    })
    .await
}

/// The content of a node's verified certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedNode {
    pub node: NodeId,
    /// The public key in hex.
    pub key: String,
    pub epoch: Epoch,
    /// Whether the node was a manager when the certificate was issued.
    pub was_manager: bool,
}

/// Reads the verified certificate of the node at `addr`. If `expected` (id and key) is given, the
/// certificate must match it. A valid signature of the CA alone does not prove that the server is
/// the expected node. Only the handshake is performed; no request is sent.
pub async fn verify_node(
    addr: &str,
    tls: &ClientTls,
    expected: Option<(NodeId, &str)>,
) -> Result<VerifiedNode, ApiError> {
    let id = expected.map(|(id, _)| id);
    let target = ClientTarget::Tls { addr: addr.to_owned(), tls: tls.clone(), expected: id };
    in_time(&target, async {
        let stream = secure(&target, addr, tls.current(), server_name(&target, tls, id)?).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let (Some(certificate), Some(cluster)) = (shown, tls.cluster()) else {
            return Err(identity(&target, "the server sent no certificate".to_owned()));
        };
        match Caller::from_certificate(certificate, cluster) {
            Ok(Caller::Node { id, epoch, key, .. }) if expected.is_none_or(|(_, known)| known == key) => {
                Ok(VerifiedNode { node: id, key, epoch, was_manager: caller::is_manager_certificate(certificate) })
            }
            Ok(Caller::Node { .. }) => {
                Err(identity(&target, "its certificate is not for the node's known key".to_owned()))
            }
            Ok(_) => Err(identity(&target, "its certificate is not that of a node".to_owned())),
            Err(error) => Err(identity(&target, error.to_string())),
        }
    })
    .await
}

async fn in_time<T>(target: &ClientTarget, dialling: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    match tokio::time::timeout(CONNECT_WITHIN, dialling).await {
        Ok(result) => result,
        Err(_) => {
            let reason = format!("no answer within {} s", CONNECT_WITHIN.as_secs());
            Err(ApiError::Unreachable { addr: target.to_string(), reason })
        }
    }
}

async fn dial(target: &ClientTarget) -> Result<(Sender, Option<ChannelBinding>), ApiError> {
    match target {
        ClientTarget::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|e| connect_error(target, &e))?;
            Ok((http(target, stream).await?, None))
        }
        ClientTarget::Tls { addr, tls, expected } => {
            let stream = secure(target, addr, tls.current(), server_name(target, tls, *expected)?).await?;
            let (_, connection) = stream.get_ref();
            let binding = ChannelBinding::of_connection(connection);
            let shown = connection.peer_certificates().and_then(|chain| chain.first());
            let manages = shown.is_some_and(|certificate| caller::is_manager_certificate(certificate));
            let sender = http(target, stream).await?;
            match tls.managers_only().filter(|_| !manages) {
                Some(redirect) => Err(ask_for_managers(target, sender, redirect).await),
                None => Ok((sender, binding)),
            }
        }
    }
}

/// Sends an empty request to a node whose certificate does not show that it is a manager. Returns
/// the error for the caller. If the node's answer names the managers, the error is this answer.
async fn ask_for_managers(target: &ClientTarget, mut sender: Sender, redirect: &str) -> ApiError {
    let no_manager = || identity(target, NO_MANAGER.to_owned());
    let request = Request::post(redirect).header(header::HOST, "remoor");
    let Ok(request) = request.header(header::CONTENT_TYPE, "application/json").body(Full::new("{}".into())) else {
        return no_manager();
    };
    let Ok(answer) = sender.send_request(request).await else { return no_manager() };
    let http = answer.status().as_u16();
    let Ok(body) = body::receive(answer.into_body(), SMALL_BODY_MAX).await else { return no_manager() };
    match serde_json::from_slice(&body) {
        Ok(ErrorBody { error: e }) if e.code == Code::NotLeader.as_str() => {
            ApiError::Status { code: e.code, message: e.message, next: e.next, details: Box::new(e.details), http }
        }
        _ => no_manager(),
    }
}

fn server_name(
    target: &ClientTarget,
    tls: &ClientTls,
    expected: Option<NodeId>,
) -> Result<ServerName<'static>, ApiError> {
    let name = match (expected, tls.cluster()) {
        (Some(node), Some(cluster)) => node_dns(node, cluster),
        _ => ANY_NODE.to_owned(),
    };
    ServerName::try_from(name).map_err(|e| identity(target, e.to_string()))
}

async fn secure(
    target: &ClientTarget,
    addr: &str,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<TlsStream<TcpStream>, ApiError> {
    let tcp = TcpStream::connect(addr).await.map_err(|e| connect_error(target, &e))?;
    // The connection works without the two TCP options below. They only improve it, so errors are
    // ignored.
    let _ = rustix::net::sockopt::set_tcp_nodelay(&tcp, true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&tcp, SILENT_MS_MAX);
    TlsConnector::from(config).connect(name, tcp).await.map_err(|e| connect_error(target, &e))
}

async fn http(
    target: &ClientTarget,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Sender, ApiError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(target, &e))?;
    // The task ends when the sender is dropped. An error is ignored here, because the request on
    // the connection fails with the same error.
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    Ok(sender)
}

fn connect_error(target: &ClientTarget, error: &std::io::Error) -> ApiError {
    fault(target, error).unwrap_or_else(|| unreachable(target, error))
}

fn unreachable(target: &ClientTarget, error: &dyn std::error::Error) -> ApiError {
    ApiError::Unreachable { addr: target.to_string(), reason: chain(error) }
}

fn identity(target: &ClientTarget, reason: String) -> ApiError {
    ApiError::Identity { addr: target.to_string(), reason }
}

/// Converts an error into an identity error, if one of its causes is a TLS error about an identity.
pub(super) fn fault(target: &ClientTarget, error: &(dyn std::error::Error + 'static)) -> Option<ApiError> {
    let mut next = Some(error);
    while let Some(error) = next {
        // The source() of an io::Error skips the error that it wraps, so look at the wrapped error
        // too.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(|e| e.get_ref());
        let tls = wrapped.and_then(|e| e.downcast_ref()).or_else(|| error.downcast_ref::<rustls::Error>());
        if let Some(words) = tls.and_then(identity_fault) {
            return Some(identity(target, words.to_owned()));
        }
        next = error.source();
    }
    None
}

/// An error and its causes on one line, without repetition.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    // rustls ends some messages with a link to its manual. The link does not help operators.
    let words = |error: &dyn std::error::Error| {
        let text = error.to_string();
        text.split(": https://docs.rs").next().unwrap_or_default().to_owned()
    };
    let mut text = words(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = words(cause);
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Opens connections on which a test sends arbitrary bytes.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::*;
    use std::net::IpAddr;

    /// Opens a connection from `from` to the server at `addr`. Only the handshake has taken place.
    pub async fn open(
        addr: &str,
        tls: &ClientTls,
        from: IpAddr,
    ) -> std::io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static> {
        let to: std::net::SocketAddr = addr.parse().map_err(std::io::Error::other)?;
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        let name = ServerName::try_from(ANY_NODE).map_err(std::io::Error::other)?;
        TlsConnector::from(tls.current()).connect(name, socket.connect(to).await?).await
    }
}
