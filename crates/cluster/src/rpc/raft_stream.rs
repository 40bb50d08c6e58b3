//! Raft's short messages without HTTP. The client opens a TLS connection to the API's port and
//! requests [`PROTOCOL`] by ALPN. A decision takes several such messages in sequence, and HTTP's
//! overhead for these messages was a third of the decision's duration.
//!
//! ```text
//! client -> length (4 bytes, big endian), length of the kind (1), kind, body
//! server <- length (4), 0 or 1, the body or, after 1, the error as the API has it in JSON
//! ```
//!
//! Messages follow one another on a connection, and only nodes may send them. For a node that the
//! server does not know as a manager, the size limit is lower and Raft's threads are not used. The
//! router gives the same answer as to `POST /raft/{kind}` of the same caller, so authorisation is
//! in one function only. Older servers do not support this ALPN protocol; clients then use HTTP.
//! Snapshots are large and always use HTTP.

use super::caller::{Caller, PeerAddr};
use super::server::answer;
use super::wire::{self, LARGE_BODY_MAX, SMALL_BODY_MAX};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, Request, header};
use hyper_util::service::TowerToHyperService;
use remoor_model::NodeId;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The ALPN protocol name.
pub const PROTOCOL: &[u8] = b"remoor-raft/1";
/// Maximum length of a message's kind.
const KIND_MAX: usize = 32;
/// Maximum time for the rest of a message after its first byte.
const REST_WITHIN: Duration = Duration::from_secs(30);
/// Memory reserved for a message before its bytes arrive, in bytes.
const ROOM: usize = 64 << 10;

/// Chooses the threads that serve a connection of this node; it is called for each connection. For
/// a node that is not known to be a manager it returns None, and the threads that accepted the
/// connection serve it.
pub type ThreadChooser = Arc<dyn Fn(NodeId) -> Option<Handle> + Send + Sync>;

/// Sends a message and receives the answer. The inner `Err` is the server's error answer. After an
/// outer error the connection must not be used again.
pub(super) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    kind: &str,
    body: &[u8],
) -> io::Result<Result<Vec<u8>, Vec<u8>>> {
    let kind_length = u8::try_from(kind.len()).map_err(io::Error::other)?;
    send(stream, &[&[kind_length], kind.as_bytes(), body]).await?;
    let Some(first) = read_first_byte(stream).await? else {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended before the answer"));
    };
    let mut answer = read_rest(stream, first, LARGE_BODY_MAX).await?;
    match answer.first().copied() {
        Some(said @ (0 | 1)) => {
            answer.remove(0);
            Ok(if said == 0 { Ok(answer) } else { Err(answer) })
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of neither kind")),
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(4 + length);
    frame.extend_from_slice(&u32::try_from(length).map_err(io::Error::other)?.to_be_bytes());
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Reads the first byte of a message. None if the connection ended between two messages.
async fn read_first_byte(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u8>> {
    let mut first = [0];
    Ok((stream.read(&mut first).await? == 1).then_some(first[0]))
}

/// Reads the rest of a message whose first byte is `first`. The body has at most `most` bytes.
async fn read_rest(stream: &mut (impl AsyncRead + Unpin), first: u8, most: usize) -> io::Result<Vec<u8>> {
    let read = async {
        let mut length = [first, 0, 0, 0];
        stream.read_exact(&mut length[1..]).await?;
        let length = u32::from_be_bytes(length) as usize;
        if length > most + 1 + KIND_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
        }
        let mut message = Vec::with_capacity(length.min(ROOM));
        match stream.take(length as u64).read_to_end(&mut message).await? {
            read if read == length => Ok(message),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the rest of a message did not arrive in time");
    tokio::time::timeout(REST_WITHIN, read).await.map_err(late)?
}

/// Maximum message size in bytes. `placed` says whether the connection runs on the threads that
/// [`ThreadChooser`] chose.
fn message_size_max(placed: bool) -> usize {
    if placed { LARGE_BODY_MAX } else { SMALL_BODY_MAX }
}

/// Serves one connection until it ends, sends nothing for `idle`, or `stop` becomes true between
/// two messages. `placed` says whether this runs on the threads that [`ThreadChooser`] chose.
pub(super) async fn serve(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    router: Router,
    (caller, peer): (Caller, PeerAddr),
    placed: bool,
    idle: Duration,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let service = TowerToHyperService::new(router);
    loop {
        let first = tokio::select! {
            first = tokio::time::timeout(idle, read_first_byte(stream)) => first??,
            // A closed channel means that the server is gone, so the connection ends too.
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let Some(first) = first else { return Ok(()) };
        let message = read_rest(stream, first, message_size_max(placed)).await?;
        let request = request(message).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        let response = answer(service.clone(), request, caller.clone(), peer).await;
        let last = response.headers().contains_key(header::CONNECTION);
        let said = u8::from(!response.status().is_success());
        let body = wire::read_bounded(response.into_body(), LARGE_BODY_MAX).await.map_err(io::Error::other)?;
        send(stream, &[&[said], &body]).await?;
        if last {
            return Ok(());
        }
    }
}

/// Converts a message into an HTTP request for the router.
fn request(message: Vec<u8>) -> Result<Request<Body>, &'static str> {
    let message = Bytes::from(message);
    let length = usize::from(*message.first().ok_or("an empty message")?);
    let kind = message.get(1..1 + length).filter(|kind| kind.len() <= KIND_MAX).ok_or("not a message kind")?;
    let plain = kind.iter().all(|c| c.is_ascii_lowercase() || *c == b'-');
    let short = |kind: &&str| plain && !kind.is_empty() && *kind != "snapshot";
    let kind = std::str::from_utf8(kind).ok().filter(short).ok_or("not a message kind")?;
    let request = Request::builder().method(Method::POST).uri(format!("/raft/{kind}"));
    request.body(Body::from(message.slice(1 + length..))).map_err(|_| "not a message kind")
}

/// Reads the messages of a node that is no known manager, and converts them into requests, for the
/// fuzz targets. Returns the number of requests before the first error.
#[cfg(any(test, feature = "testing"))]
pub async fn count_requests(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some(first)) = read_first_byte(&mut bytes).await {
        let Ok(message) = read_rest(&mut bytes, first, message_size_max(false)).await else { break };
        if request(message).is_err() {
            break;
        }
        count += 1;
    }
    count
}

/// Registers the connection with the current runtime instead of the runtime that accepted it.
/// Otherwise each message would wake the threads of both runtimes.
pub(super) fn take_over(stream: &mut tokio_rustls::server::TlsStream<TcpStream>) -> io::Result<()> {
    let (tcp, _) = stream.get_mut();
    let again = rustix::io::fcntl_dupfd_cloexec(&*tcp, 0)?;
    *tcp = TcpStream::from_std(std::net::TcpStream::from(again))?;
    Ok(())
}
