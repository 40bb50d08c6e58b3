//! The open Raft streams of a client to one server. A caller often waits only a short time for an
//! answer, for example a fraction of a second for a heartbeat. If a connection ended whenever its
//! caller gives up, each message on a slow link would need a new connection and would be late
//! again. So both steps are completed in a separate task:
//! - A dial continues after its caller gave up, and the next caller uses the connection.
//! - A late answer is read and dropped. Then the connection is free for the next message.

use super::client::ApiError;
use super::connect::{self, ClientTarget, NegotiatedConnection, RaftStream, Sender};
use super::raft_stream;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum streams to one server, including unused streams and streams of late answers.
const STREAMS_MAX: usize = 16;
/// Time for which a late answer is awaited after its caller gave up. It is longer than TCP needs
/// for one retransmission. If nothing arrives, the connection is probably dead, and a new one works
/// sooner than the retransmissions of the old one.
const LATE_MAX: Duration = Duration::from_secs(3);
/// A dial that is not completed after this time does not delay the next dial, because its packets
/// may be lost.
const DIAL_SPACING: Duration = Duration::from_millis(500);
/// Pause after which Raft streams are tried again at a server that did not support them. It may
/// have been upgraded since.
const UNSUPPORTED_RETRY: Duration = Duration::from_secs(60);

/// A stream that no message uses at present.
pub(super) struct FreeStream {
    stream: Box<RaftStream>,
    /// The value of `Client::certificate_generation` when the stream was opened.
    generation: u64,
    since: Instant,
    /// Whether the stream was used before. The server may have closed it since.
    pub used: bool,
    _permit: OwnedSemaphorePermit,
}

/// The result of a dial that several callers await.
type Dial = Shared<BoxFuture<'static, Result<(), ApiError>>>;

/// When a server did not support streams, and an HTTP connection to it with its generation.
type HttpOnly = (Instant, Option<(Sender, u64)>);

pub(super) struct RaftStreamPool {
    target: ClientTarget,
    free: Mutex<Vec<FreeStream>>,
    /// Wakes one caller for each stream that becomes free.
    freed: Notify,
    /// The last dial, and the time at which it began.
    dial: Mutex<Option<(Instant, Dial)>>,
    permits: Arc<Semaphore>,
    /// The time at which a dial last found that the server's program is too old for Raft streams,
    /// and the connection of this dial with its generation.
    unsupported: Mutex<Option<HttpOnly>>,
}

impl RaftStreamPool {
    pub fn new(target: ClientTarget) -> Self {
        Self {
            target,
            free: Mutex::default(),
            freed: Notify::new(),
            dial: Mutex::default(),
            permits: Arc::new(Semaphore::new(STREAMS_MAX)),
            unsupported: Mutex::default(),
        }
    }

    /// A free stream whose last use is at most `idle_max` ago, or a new one. None if the server
    /// does not support Raft streams. `generation` is that of our present certificate.
    pub async fn take(self: &Arc<Self>, generation: u64, idle_max: Duration) -> Result<Option<FreeStream>, ApiError> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(stream) = self.take_free(generation, idle_max) {
                return Ok(Some(stream));
            }
            if self.is_unsupported() {
                return Ok(None);
            }
            let dial = self.dial(generation);
            tokio::select! {
                dialled = dial => dialled?,
                () = freed => {}
            }
        }
    }

    fn take_free(&self, generation: u64, idle_max: Duration) -> Option<FreeStream> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.retain(|stream| stream.since.elapsed() < idle_max && stream.generation == generation);
        free.pop()
    }

    /// Drops the free streams. If the server has closed one of them, it has probably ended and thus
    /// closed all of them.
    pub fn drop_free(&self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn put(&self, stream: FreeStream) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        self.freed.notify_one();
    }

    fn is_unsupported(&self) -> bool {
        let unsupported = self.unsupported.lock().unwrap_or_else(PoisonError::into_inner);
        unsupported.as_ref().is_some_and(|(at, _)| at.elapsed() < UNSUPPORTED_RETRY)
    }

    /// The connection of the dial that found no support of Raft streams. It can be used for HTTP.
    pub fn take_http(&self) -> Option<(Sender, u64)> {
        self.unsupported.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.1.take()
    }

    /// The dial that is under way, or a new one. It runs to its end whether or not it is awaited.
    fn dial(self: &Arc<Self>, generation: u64) -> Dial {
        let mut last = self.dial.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, dial)) = &*last
            && dial.peek().is_none()
            && begun.elapsed() < DIAL_SPACING
        {
            return dial.clone();
        }
        let pool = self.clone();
        let dial = async move { pool.open(generation).await }.boxed().shared();
        tokio::spawn(dial.clone());
        *last = Some((Instant::now(), dial.clone()));
        dial
    }

    async fn open(&self, generation: u64) -> Result<(), ApiError> {
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return Ok(()) };
        let spoken = connect::connect_raft_stream(&self.target).await?;
        let mut unsupported = self.unsupported.lock().unwrap_or_else(PoisonError::into_inner);
        match spoken {
            NegotiatedConnection::RaftStream(stream) => {
                *unsupported = None;
                self.put(FreeStream { stream, generation, since: Instant::now(), used: false, _permit: permit });
            }
            NegotiatedConnection::Http(sender) => *unsupported = Some((Instant::now(), Some((sender, generation)))),
        }
        Ok(())
    }

    /// Sends a message on a stream, and returns the answer. The inner `Err` is the server's error
    /// answer. After an outer error the server has possibly not received the message.
    pub fn ask(
        self: &Arc<Self>,
        mut open: FreeStream,
        kind: &str,
        body: Bytes,
    ) -> impl Future<Output = io::Result<Result<Vec<u8>, Vec<u8>>>> + Send + use<> {
        let (pool, kind) = (self.clone(), kind.to_owned());
        let asked = async move {
            let answer = raft_stream::ask(&mut open.stream, &kind, &body).await?;
            // After an error answer the server's role may be about to change. So the next message
            // opens a new connection.
            if answer.is_ok() {
                pool.put(FreeStream { since: Instant::now(), used: true, ..open });
            }
            Ok(answer)
        };
        CompletedLate(Some(Box::pin(asked)))
    }
}

/// A future that is completed in a separate task if its caller gives up.
struct CompletedLate<F: Future<Output: Send + 'static> + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for CompletedLate<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(inner) = &mut self.0 else { return Poll::Pending };
        let polled = inner.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Drop for CompletedLate<F> {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(LATE_MAX, rest));
        }
    }
}
