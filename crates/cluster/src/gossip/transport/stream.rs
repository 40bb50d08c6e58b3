//! One TCP connection of gossip. memberlist reads only decrypted messages. The memory of a frame
//! grows with the bytes that arrive, and large frames share one memory limit.

use super::frame::{GossipFrameError, GossipKeyring};
use super::places::StreamPlace;
use bytes::{Buf, BytesMut};
use memberlist::proto::{ProtoReader, ProtoWriter};
use memberlist::transport::Connection;
use std::io::{ErrorKind, Result};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum length of a frame, in bytes. A state exchange has up to 600 bytes for each node.
const FRAME_MAX: usize = 16 << 20;
/// A frame below this size does not count towards the memory limit of large frames. The state
/// exchange of a hundred nodes is smaller.
const SMALL_FRAME: usize = 64 << 10;
/// Maximum memory of all frames above [`SMALL_FRAME`] that arrive at the same time, in bytes.
const LARGE_FRAMES_MAX: usize = 32 << 20;

/// The memory limit of large frames, in units of `SMALL_FRAME` bytes. Clones share the limit.
#[derive(Clone)]
pub struct FrameBudget(Arc<Semaphore>);

impl Default for FrameBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_FRAMES_MAX / SMALL_FRAME)))
    }
}

impl FrameBudget {
    /// Reserves memory for a buffer of `bytes` within the limit. The units in `held` are already
    /// reserved.
    fn extend(
        &self,
        held: &mut Option<OwnedSemaphorePermit>,
        bytes: usize,
    ) -> std::result::Result<(), GossipFrameError> {
        let missing = (bytes / SMALL_FRAME).saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
        let units = u32::try_from(missing).map_err(|_| GossipFrameError::Crowded)?;
        let more = self.0.clone().try_acquire_many_owned(units).map_err(|_| GossipFrameError::Crowded)?;
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }
}

/// A connection, incoming or outgoing.
pub struct GossipStream {
    reader: StreamReader,
    writer: StreamWriter,
}

/// The reading half of a connection: the socket, and the message that memberlist reads next.
pub struct StreamReader {
    socket: OwnedReadHalf,
    message: BytesMut,
    budget: FrameBudget,
    held: Option<OwnedSemaphorePermit>,
    place: Option<Arc<StreamPlace>>,
}

/// The writing half of a connection.
pub struct StreamWriter {
    socket: OwnedWriteHalf,
    place: Option<Arc<StreamPlace>>,
}

impl GossipStream {
    /// A connection that has received no message yet.
    pub fn new(socket: TcpStream, budget: FrameBudget) -> Self {
        let (read, write) = socket.into_split();
        let reader = StreamReader { socket: read, message: BytesMut::new(), budget, held: None, place: None };
        Self { reader, writer: StreamWriter { socket: write, place: None } }
    }

    /// The reading half of this connection.
    pub fn reader(&mut self) -> &mut StreamReader {
        &mut self.reader
    }

    /// Keeps the connection's place until both halves of the connection are dropped.
    pub fn hold(&mut self, place: StreamPlace) {
        let place = Arc::new(place);
        (self.reader.place, self.writer.place) = (Some(place.clone()), Some(place));
    }
}

impl StreamReader {
    /// Whether there is a received message that memberlist has not read.
    pub fn has_message(&self) -> bool {
        !self.message.is_empty()
    }

    /// Sets the message that memberlist reads next.
    pub fn set_message(&mut self, message: BytesMut) {
        self.message = message;
    }

    /// Reads and decrypts one frame. Its memory counts towards the limit of large frames until this
    /// half of the connection is dropped.
    pub async fn read_frame(&mut self, keyring: &GossipKeyring) -> std::result::Result<BytesMut, GossipFrameError> {
        let mut head = vec![0; keyring.head_len()];
        self.socket.read_exact(&mut head).await.map_err(GossipFrameError::Read)?;
        let length = keyring.rest_len(&head)?;
        if length > FRAME_MAX {
            return Err(GossipFrameError::TooLong(length));
        }
        let mut rest = BytesMut::with_capacity(length.min(SMALL_FRAME));
        while rest.len() < length {
            if rest.len() == rest.capacity() {
                let more = rest.len().min(length - rest.len());
                self.budget.extend(&mut self.held, rest.len() + more)?;
                rest.reserve(more);
            }
            let missing = (length - rest.len()).min(rest.capacity() - rest.len());
            if (&mut self.socket).take(missing as u64).read_buf(&mut rest).await.map_err(GossipFrameError::Read)? == 0 {
                return Err(GossipFrameError::Read(ErrorKind::UnexpectedEof.into()));
            }
        }
        keyring.open(rest)
    }

    fn take_bytes(&mut self, buf: &mut [u8]) -> usize {
        let length = self.peek_bytes(buf);
        self.message.advance(length);
        length
    }

    fn peek_bytes(&self, buf: &mut [u8]) -> usize {
        let length = buf.len().min(self.message.len());
        buf[..length].copy_from_slice(&self.message[..length]);
        length
    }

    fn require(&self, length: usize) -> Result<()> {
        if self.message.len() < length { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl ProtoReader for StreamReader {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        Ok(self.take_bytes(buf))
    }

    async fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.require(buf.len())?;
        self.take_bytes(buf);
        Ok(())
    }

    async fn peek(&mut self, buf: &mut [u8]) -> Result<usize> {
        Ok(self.peek_bytes(buf))
    }

    async fn peek_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.require(buf.len())?;
        self.peek_bytes(buf);
        Ok(())
    }
}

impl ProtoWriter for StreamWriter {
    async fn close(&mut self) -> Result<()> {
        self.socket.shutdown().await
    }

    async fn write_all(&mut self, payload: &[u8]) -> Result<()> {
        self.socket.write_all(payload).await
    }

    async fn flush(&mut self) -> Result<()> {
        self.socket.flush().await
    }
}

impl Connection for GossipStream {
    type Reader = StreamReader;
    type Writer = StreamWriter;

    fn split(self) -> (StreamReader, StreamWriter) {
        (self.reader, self.writer)
    }

    async fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        ProtoReader::read(&mut self.reader, buf).await
    }

    async fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        ProtoReader::read_exact(&mut self.reader, buf).await
    }

    async fn peek(&mut self, buf: &mut [u8]) -> Result<usize> {
        ProtoReader::peek(&mut self.reader, buf).await
    }

    async fn peek_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        ProtoReader::peek_exact(&mut self.reader, buf).await
    }

    async fn write_all(&mut self, payload: &[u8]) -> Result<()> {
        ProtoWriter::write_all(&mut self.writer, payload).await
    }

    async fn flush(&mut self) -> Result<()> {
        ProtoWriter::flush(&mut self.writer).await
    }

    async fn close(&mut self) -> Result<()> {
        ProtoWriter::close(&mut self.writer).await
    }
}
