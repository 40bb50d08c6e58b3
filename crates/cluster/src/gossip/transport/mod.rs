//! The transport below memberlist: UDP and TCP. It encrypts everything that this node sends. It
//! bounds, decrypts and checks everything that arrives before memberlist reads it, because
//! memberlist allocates as much memory as a stranger announces. It does not judge reports; the
//! delegate does.
//!
//! ```text
//!   TCP ──> places (how many?) ──> stream (how long?) ──┐
//!                                                       ├──> frame ──> guard ──> memberlist
//!   UDP ────────────────────────────────────────────────┘   (decrypt)
//! ```

mod frame;
mod listen;
mod places;
mod refusals;
mod stream;

pub use super::guard::MessageGuard;
use frame::GossipFrameError;
pub use frame::GossipKeyring;
use listen::{DatagramListener, StrangerFilter, StreamListener};
use memberlist::agnostic::RuntimeLite;
use memberlist::proto::Payload;
use memberlist::proto::ProtoWriter;
use memberlist::tokio::{TokioRuntime, TokioSocketAddrResolver};
use memberlist::transport::{
    PacketSubscriber, StreamSubscriber, Transport, TransportError, packet_stream, promised_stream,
};
pub use refusals::Refusals;
use smol_str::SmolStr;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stream::{FrameBudget, GossipStream, StreamReader, StreamWriter};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

type Instant = <TokioRuntime as RuntimeLite>::Instant;

/// Maximum size of a datagram that is sent, in bytes: the payload of one Ethernet frame.
const DATAGRAM_MAX: usize = 1472;
/// Maximum datagrams that wait for memberlist. Further ones wait in the kernel's buffer.
const DATAGRAMS_WAITING: usize = 256;
/// Wanted size of the kernel's receive buffer for datagrams, in bytes.
const RECEIVE_BUFFER: usize = 2 << 20;

/// The input of [`GossipTransport`].
pub struct TransportOptions {
    pub name: SmolStr,
    /// The local address for UDP and TCP. The port is not 0.
    pub bind: SocketAddr,
    pub advertise: SocketAddr,
    pub keyring: Arc<GossipKeyring>,
    /// Checks each message before memberlist receives it.
    pub guard: Arc<MessageGuard>,
    pub refusals: Arc<Refusals>,
    /// The maximum time that an incoming stream may take for its first frame.
    pub first_frame: Duration,
}

/// An error of the transport. memberlist logs or returns it.
#[derive(Debug, thiserror::Error)]
pub enum GossipTransportError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Other(Cow<'static, str>),
}

impl TransportError for GossipTransportError {
    fn is_remote_failure(&self) -> bool {
        let Self::Io(error) = self else { return false };
        matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::TimedOut
                | ErrorKind::NotConnected
        )
    }

    fn custom(text: Cow<'static, str>) -> Self {
        Self::Other(text)
    }
}

impl From<GossipFrameError> for GossipTransportError {
    fn from(error: GossipFrameError) -> Self {
        Self::Io(error.into())
    }
}

/// The transport of one member at one address.
pub struct GossipTransport {
    options: TransportOptions,
    /// The memory limit for replies on streams that this member opened. Incoming streams have
    /// another limit.
    budget: FrameBudget,
    /// None after the shutdown, because only dropping the socket frees the port.
    socket: Mutex<Option<Arc<UdpSocket>>>,
    datagrams: PacketSubscriber<SocketAddr, Instant>,
    streams: StreamSubscriber<SocketAddr, GossipStream>,
    listeners: Mutex<JoinSet<()>>,
}

impl GossipTransport {
    fn socket(&self) -> MutexGuard<'_, Option<Arc<UdpSocket>>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for GossipTransport {
    type Error = GossipTransportError;
    type Id = SmolStr;
    type Address = SocketAddr;
    type ResolvedAddress = SocketAddr;
    type Resolver = TokioSocketAddrResolver;
    type Connection = GossipStream;
    type Runtime = TokioRuntime;
    type Options = TransportOptions;

    async fn new(options: TransportOptions) -> Result<Self, GossipTransportError> {
        let listener = TcpListener::bind(options.bind).await?;
        let socket = Arc::new(UdpSocket::bind(options.bind).await?);
        // The kernel reduces the requested size to its maximum.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER).map_err(std::io::Error::from)?;
        let (datagrams_to, datagrams) = packet_stream::<Self>(DATAGRAMS_WAITING);
        let (streams_to, streams) = promised_stream::<Self>();
        let filter = StrangerFilter {
            keyring: options.keyring.clone(),
            guard: options.guard.clone(),
            refusals: options.refusals.clone(),
        };
        let datagram_listener = DatagramListener { socket: socket.clone(), filter: filter.clone() };
        let stream_listener =
            StreamListener { listener, filter, budget: FrameBudget::default(), first_frame: options.first_frame };
        let mut listeners = JoinSet::new();
        listeners.spawn(datagram_listener.run(datagrams_to));
        listeners.spawn(stream_listener.run(streams_to));
        let (socket, listeners) = (Mutex::new(Some(socket)), Mutex::new(listeners));
        Ok(Self { options, budget: FrameBudget::default(), socket, datagrams, streams, listeners })
    }

    async fn resolve(&self, addr: &SocketAddr) -> Result<SocketAddr, GossipTransportError> {
        Ok(*addr)
    }

    fn local_id(&self) -> &SmolStr {
        &self.options.name
    }

    fn local_address(&self) -> &SocketAddr {
        &self.options.bind
    }

    fn advertise_address(&self) -> &SocketAddr {
        &self.options.advertise
    }

    fn max_packet_size(&self) -> usize {
        DATAGRAM_MAX
    }

    fn header_overhead(&self) -> usize {
        self.options.keyring.overhead() + self.options.guard.overhead()
    }

    fn blocked_address(&self, _addr: &SocketAddr) -> Result<(), GossipTransportError> {
        Ok(())
    }

    async fn read(&self, from: &SocketAddr, reader: &mut StreamReader) -> Result<usize, GossipTransportError> {
        // The first frame of an incoming stream was already read by the listener.
        if !reader.has_message() {
            let text = reader.read_frame(&self.options.keyring).await?;
            reader.set_message(self.options.guard.check_stream(text, *from).ok_or(GossipFrameError::Refused)?);
        }
        Ok(0)
    }

    async fn write(&self, stream: &mut StreamWriter, payload: Payload) -> Result<usize, GossipTransportError> {
        let frame = self.options.keyring.seal(payload.data())?;
        stream.write_all(&frame).await?;
        stream.flush().await?;
        Ok(frame.len())
    }

    async fn send_to(&self, addr: &SocketAddr, packet: Payload) -> Result<(usize, Instant), GossipTransportError> {
        let start = TokioRuntime::now();
        let sealed = self.options.guard.seal(*addr, packet.data());
        let frame = self.options.keyring.seal(sealed.as_deref().unwrap_or(packet.data()))?;
        let Some(socket) = self.socket().clone() else {
            return Err(std::io::Error::from(ErrorKind::NotConnected).into());
        };
        Ok((socket.send_to(&frame, addr).await?, start))
    }

    async fn open(&self, addr: &SocketAddr, deadline: Instant) -> Result<GossipStream, GossipTransportError> {
        let connected = tokio::time::timeout_at(deadline, TcpStream::connect(addr)).await;
        let socket = connected.map_err(std::io::Error::from)??;
        Ok(GossipStream::new(socket, self.budget.clone()))
    }

    fn packet(&self) -> PacketSubscriber<SocketAddr, Instant> {
        self.datagrams.clone()
    }

    fn stream(&self) -> StreamSubscriber<SocketAddr, GossipStream> {
        self.streams.clone()
    }

    fn packet_reliable(&self) -> bool {
        false
    }

    fn packet_secure(&self) -> bool {
        true
    }

    fn stream_secure(&self) -> bool {
        true
    }

    async fn shutdown(&self) -> Result<(), GossipTransportError> {
        self.socket().take();
        let mut listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        listeners.shutdown().await;
        Ok(())
    }
}
