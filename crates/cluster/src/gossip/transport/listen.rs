//! The two loops that receive datagrams and streams. They reject data that no gossip key decrypts,
//! and messages that the guard refuses.

use super::super::guard::MessageGuard;
use super::GossipTransport;
use super::Instant as RuntimeInstant;
use super::frame::{GossipFrameError, GossipKeyring};
use super::places::{StreamPlace, StreamPlaces};
use super::refusals::Refusals;
use super::stream::{FrameBudget, GossipStream};
use memberlist::agnostic::RuntimeLite;
use memberlist::tokio::TokioRuntime;
use memberlist::transport::{Packet, PacketProducer, StreamProducer, Transport};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

type Connection = <GossipTransport as Transport>::Connection;

/// Maximum length of a received datagram, in bytes. The kernel cuts longer ones, so they do not
/// decrypt.
const RECEIVED_MAX: usize = 4096;
/// Pause after an error of the listening socket, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// The checks that are the same for datagrams and streams.
#[derive(Clone)]
pub struct StrangerFilter {
    pub keyring: Arc<GossipKeyring>,
    pub guard: Arc<MessageGuard>,
    pub refusals: Arc<Refusals>,
}

/// Receives gossip's datagrams.
pub struct DatagramListener {
    pub socket: Arc<UdpSocket>,
    pub filter: StrangerFilter,
}

impl DatagramListener {
    /// Passes on the datagrams that decrypt, until memberlist stops listening.
    pub async fn run(self, to: PacketProducer<SocketAddr, RuntimeInstant>) {
        let mut buffer = vec![0; RECEIVED_MAX];
        loop {
            let (length, from) = match self.socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(error) => {
                    tracing::debug!(%error, "receiving a datagram failed");
                    tokio::time::sleep(ERROR_PAUSE).await;
                    continue;
                }
            };
            let arrived = TokioRuntime::now();
            let text = match self.filter.keyring.open_datagram(&buffer[..length]) {
                Ok(text) => text,
                Err(error) => {
                    self.filter.refusals.count(refusal_reason(&error), from, Instant::now());
                    continue;
                }
            };
            if let Some(checked) = self.filter.guard.check_datagram(text, from)
                && to.send(Packet::new(from, arrived, checked)).await.is_err()
            {
                return;
            }
        }
    }
}

/// Accepts gossip's streams.
pub struct StreamListener {
    pub listener: TcpListener,
    pub filter: StrangerFilter,
    pub budget: FrameBudget,
    pub first_frame: Duration,
}

/// An accepted stream whose first frame has not arrived yet.
struct FirstFrame {
    socket: TcpStream,
    from: SocketAddr,
    place: StreamPlace,
    ended: oneshot::Receiver<()>,
}

impl StreamListener {
    /// Passes on the streams whose first frame decrypts, until the task is aborted.
    pub async fn run(self, to: StreamProducer<SocketAddr, Connection>) {
        let (this, places) = (Arc::new(self), StreamPlaces::default());
        let mut streams = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = this.listener.accept() => accepted,
                Some(_) = streams.join_next() => continue,
            };
            let (socket, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "accepting a gossip stream failed");
                    tokio::time::sleep(ERROR_PAUSE).await;
                    continue;
                }
            };
            let Some((place, ended)) = places.take(from.ip(), Instant::now()) else {
                this.filter.refusals.count("too many streams", from, Instant::now());
                continue;
            };
            let (this, to) = (this.clone(), to.clone());
            let first = FirstFrame { socket, from, place, ended };
            streams.spawn(async move {
                if let Some((from, stream)) = this.receive(first).await {
                    // An error means that the receiver is closed, because the member stops.
                    let _ = to.send(from, stream).await;
                }
            });
        }
    }

    async fn receive(&self, first: FirstFrame) -> Option<(SocketAddr, Connection)> {
        let FirstFrame { socket, from, place, ended } = first;
        let mut stream = GossipStream::new(socket, self.budget.clone());
        let refuse = |reason| self.filter.refusals.count(reason, from, Instant::now());
        let frame = tokio::select! {
            frame = tokio::time::timeout(self.first_frame, stream.reader().read_frame(&self.filter.keyring)) => frame,
            _ = ended => {
                refuse("a stream was silent while others waited");
                return None;
            }
        };
        match frame {
            Ok(Ok(text)) => stream.reader().set_message(self.filter.guard.check_stream(text, from)?),
            Ok(Err(error)) => {
                refuse(refusal_reason(&error));
                return None;
            }
            Err(_) => {
                refuse("a stream was silent");
                return None;
            }
        }
        place.keep().then(|| {
            stream.hold(place);
            (from, stream)
        })
    }
}

/// The reason of a refusal, as text for the log. Each kind of error has one fixed text.
fn refusal_reason(error: &GossipFrameError) -> &'static str {
    match error {
        GossipFrameError::Foreign => "not a frame of this cluster",
        GossipFrameError::TooLong(_) => "the announced frame is too long",
        GossipFrameError::Crowded => "too many large frames at once",
        GossipFrameError::Length => "the frame does not have the announced length",
        GossipFrameError::Key => "no gossip key decrypts the frame",
        GossipFrameError::Refused => "a message was refused",
        GossipFrameError::Seal => "a frame could not be encrypted",
        GossipFrameError::Read(_) => "a stream ended before its first frame",
    }
}
