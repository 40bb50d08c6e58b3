//! Exchanges orders and replies over a pair of streams: frames, heartbeats, one order at a time.
//!
//! ```text
//! order() -> writer task (heartbeat each 10 s) -> executor -> reader task -> order()
//! ```

use super::error::SshError;
use crate::wire::frame::{self, FrameError, PREFACE};
use crate::wire::reply_limits::{HEAD, check_json, limits_of};
use crate::wire::{ExecutorOrder, Hello, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout_at};

/// Heartbeat interval and maximum silence of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeartbeatTiming {
    /// The heartbeat interval. The executor gives up its manager after 30 s without a frame, so two
    /// heartbeats may be late.
    pub heartbeat: Duration,
    /// Time without any frame after which the executor counts as lost. Executors answer each
    /// heartbeat.
    pub silence: Duration,
}

impl Default for HeartbeatTiming {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(10), silence: Duration::from_secs(40) }
    }
}

/// Maximum number of bytes that a login shell may print before the first frame.
const NOISE_MAX: usize = 64 * 1024;
/// Queue length for outgoing frames. At most an order and a cancel are queued at one time.
const OUTGOING_MAX: usize = 4;
/// Queue length for events that were read and not yet handled. More events stay in the pipe, which
/// slows the run down.
const INCOMING_MAX: usize = 256;
/// Maximum bytes of frames whose replies were read and not yet handled. A longer frame waits until
/// the queue is empty.
const INCOMING_BYTES_MAX: usize = 4 << 20;

/// If the receiver of an event takes longer than this, it has blocked. To handle an event takes
/// microseconds.
const SLOW: Duration = Duration::from_secs(1);

/// Stops a run, lets its plays begin, or answers its requests, from another task.
#[derive(Debug, Clone)]
pub struct Canceller(mpsc::Sender<Vec<u8>>);

impl Canceller {
    /// Orders the executor to stop after its current task; with `now`, also to kill that task. The
    /// executor then answers the current order. Does nothing after the session is over.
    pub async fn cancel(&self, now: bool) {
        self.send(&ExecutorOrder::Cancel { now }).await;
    }

    /// Lets the plays up to `play` begin, without the hosts in `lost`. Does nothing after the
    /// session is over.
    pub async fn go(&self, play: u32, lost: Vec<String>) {
        self.send(&ExecutorOrder::Go { play, lost }).await;
    }

    /// Answers the request `id` of the run. Does nothing after the session is over. Fails if the
    /// answer is too large for a frame.
    pub async fn answer(&self, id: u64, content: Vec<u8>) -> Result<(), FrameError> {
        let frame = frame::encode(&ExecutorOrder::Answer { id, content })?;
        let _over = self.0.send(frame).await;
        Ok(())
    }

    async fn send(&self, order: &ExecutorOrder) {
        if let Ok(frame) = frame::encode(order) {
            let _over = self.0.send(frame).await;
        }
    }
}

/// The receiver of the events of an order.
pub(super) enum EventSink<'a> {
    Call(&'a mut (dyn FnMut(Reply) + Send)),
    /// If the queue is full, the run waits.
    Queue(&'a mpsc::Sender<Reply>),
}

impl EventSink<'_> {
    async fn take(&mut self, event: Reply) {
        match self {
            EventSink::Call(on_event) => on_event(event),
            EventSink::Queue(queue) => drop(queue.send(event).await),
        }
    }
}

/// A reply, or the reason why no more replies follow. The permit is the reply's share of the bytes
/// in the queue.
type Incoming = (Result<Reply, SshError>, Option<OwnedSemaphorePermit>);

/// The streams of one session after the greeting. When this value is dropped, the streams are
/// closed, and the executor treats its manager as lost.
pub(super) struct Channel {
    outgoing: mpsc::Sender<Vec<u8>>,
    incoming: mpsc::Receiver<Incoming>,
    heard: Arc<LastFrame>,
    silence: Duration,
    /// Whether an order was sent whose final reply was not received. Then no further order is sent,
    /// because the next reply could be taken for the reply to another order.
    unanswered: bool,
    tasks: [JoinHandle<()>; 2],
}

impl Channel {
    /// Reads the greeting and skips text that a login shell prints before it. Err(`Lost`): the
    /// stream ended before the greeting.
    pub async fn greet<R>(input: R) -> Result<(Hello, BufReader<R>), SshError>
    where
        R: AsyncRead + Unpin,
    {
        let mut input = BufReader::new(input);
        let mut noise = Vec::new();
        while !noise.ends_with(PREFACE) {
            if noise.len() == NOISE_MAX {
                return Err(SshError::Protocol("too much was printed before the greeting of an executor".to_owned()));
            }
            match input.read_u8().await {
                Ok(byte) => noise.push(byte),
                Err(_) => return Err(SshError::Lost("the stream ended before the greeting".to_owned())),
            }
        }
        match read_reply(&mut input, &room()).await? {
            Some((Reply::Hello(hello), _)) => Ok((hello, input)),
            Some(_) => Err(SshError::Protocol("the first frame is not a hello".to_owned())),
            None => Err(SshError::Lost("the stream ended before the greeting".to_owned())),
        }
    }

    /// Starts the reader and writer tasks.
    pub fn start<R, W>(input: R, output: W, pace: HeartbeatTiming) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let heard = Arc::new(LastFrame::new());
        let (outgoing, frames) = mpsc::channel(OUTGOING_MAX);
        let (replies, incoming) = mpsc::channel(INCOMING_MAX);
        let reader = tokio::spawn(read_replies(input, replies, Arc::clone(&heard)));
        let writer = tokio::spawn(write_frames(output, frames, pace.heartbeat));
        Self { outgoing, incoming, heard, silence: pace.silence, unanswered: false, tasks: [reader, writer] }
    }

    /// A handle that can cancel a run while `order` waits for its reply.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.outgoing.clone())
    }

    /// Sends an order and waits for its final reply. Events, and heartbeat replies that name the
    /// run for which the executor waits, go to `events`. After an error, or if this future is
    /// dropped, no further order can be sent.
    pub async fn order(
        &mut self,
        order: &ExecutorOrder,
        mut events: EventSink<'_>,
        at_most: Duration,
    ) -> Result<Reply, SshError> {
        if self.unanswered {
            return Err(SshError::Lost("an earlier order was abandoned".to_owned()));
        }
        let frame = frame::encode(order).map_err(|e| SshError::Protocol(format!("{}: {e}", order.kind())))?;
        self.unanswered = true;
        self.heard.record();
        let deadline = Instant::now() + at_most;
        // If the writer task has ended, sending fails, and the reader task reports the reason.
        let _see_below = timeout_at(deadline, self.outgoing.send(frame)).await;
        loop {
            let silent_at = self.heard.last() + self.silence;
            tokio::select! {
                reply = self.incoming.recv() => match reply.map(|(reply, _room)| reply) {
                    Some(Ok(reply)) if reply.is_final() => {
                        self.unanswered = false;
                        return Ok(reply);
                    }
                    Some(Ok(event)) => {
                        let before = Instant::now();
                        events.take(event).await;
                        // While the receiver blocked, no frame was read. The other end may have
                        // sent frames during that time, so it does not count as silent.
                        if before.elapsed() > SLOW {
                            self.heard.record();
                        }
                    }
                    Some(Err(e)) => return Err(e),
                    None => return Err(SshError::Lost("the session has ended".to_owned())),
                },
                () = sleep_until(deadline) => {
                    self.canceller().cancel(true).await;
                    return Err(SshError::Timeout("no answer to an order"));
                }
                () = sleep_until(silent_at) => {
                    if self.heard.last() + self.silence <= Instant::now() {
                        return Err(SshError::Lost(format!("nothing was received for {:?}", self.silence)));
                    }
                }
            }
        }
    }

    /// Returns when the stream ends, falls silent, or sends an unexpected reply. After that no
    /// further order can be sent. Dropping this future earlier loses nothing.
    pub async fn wait_for_loss(&mut self) -> SshError {
        if self.unanswered {
            return SshError::Lost("an earlier order was abandoned".to_owned());
        }
        let error = loop {
            let silent_at = self.heard.last() + self.silence;
            tokio::select! {
                reply = self.incoming.recv() => match reply.map(|(reply, _room)| reply) {
                    Some(Ok(reply)) if reply.is_final() => {
                        break SshError::Protocol(super::error::clip(&format!("a reply without an order: {reply:?}")));
                    }
                    Some(Ok(_late_event)) => {}
                    Some(Err(e)) => break e,
                    None => break SshError::Lost("the session has ended".to_owned()),
                },
                () = sleep_until(silent_at) => {
                    if self.heard.last() + self.silence <= Instant::now() {
                        break SshError::Lost(format!("nothing was received for {:?}", self.silence));
                    }
                }
            }
        };
        self.unanswered = true;
        error
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The time of the last received frame.
struct LastFrame {
    from: Instant,
    ms: AtomicU64,
}

impl LastFrame {
    fn new() -> Self {
        Self { from: Instant::now(), ms: AtomicU64::new(0) }
    }
    fn record(&self) {
        let ms = u64::try_from(self.from.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ms.store(ms, Ordering::Relaxed);
    }
    fn last(&self) -> Instant {
        self.from + Duration::from_millis(self.ms.load(Ordering::Relaxed))
    }
}

async fn write_frames(mut output: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Vec<u8>>, every: Duration) {
    let Ok(heartbeat) = frame::encode(&ExecutorOrder::Heartbeat) else { return };
    let mut clock = interval_at(Instant::now() + every, every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let written = tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => write(&mut output, &frame).await,
                None => return,
            },
            _ = clock.tick() => write(&mut output, &heartbeat).await,
        };
        if written.is_err() {
            return;
        }
    }
}

async fn write(output: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    output.write_all(bytes).await?;
    output.flush().await
}

async fn read_replies(mut input: impl AsyncRead + Unpin, replies: mpsc::Sender<Incoming>, heard: Arc<LastFrame>) {
    let room = room();
    loop {
        let (reply, share) = match read_reply(&mut input, &room).await {
            Ok(Some((reply, share))) => (Ok(reply), Some(share)),
            Ok(None) => (Err(SshError::Lost("the stream from the executor ended".to_owned())), None),
            Err(e) => (Err(e), None),
        };
        heard.record();
        let is_last = reply.is_err();
        match reply {
            Ok(Reply::Alive { waiting_for: None }) => {}
            // Between two orders nothing receives heartbeat replies, so such a reply may be
            // dropped.
            Ok(alive @ Reply::Alive { .. }) => drop(replies.try_send((Ok(alive), share))),
            other => {
                if replies.send((other, share)).await.is_err() {
                    return;
                }
            }
        }
        if is_last {
            return;
        }
    }
}

/// Makes the semaphore that limits the bytes of all frames that were read and not yet handled.
fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(INCOMING_BYTES_MAX))
}

/// Reads one reply. Ok(None): the stream ended between two frames. The permit reserves the frame's
/// bytes in the queue.
async fn read_reply(
    input: &mut (impl AsyncRead + Unpin),
    room: &Arc<Semaphore>,
) -> Result<Option<(Reply, OwnedSemaphorePermit)>, SshError> {
    let mut prefix = [0; 4];
    let mut got = 0;
    while got < prefix.len() {
        match input.read(&mut prefix[got..]).await {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) | Err(_) => return Err(SshError::Lost("the stream ended within a frame".to_owned())),
            Ok(n) => got += n,
        }
    }
    let refused = |e: frame::FrameError| SshError::Protocol(super::error::chain(&e));
    let length = frame::parse_length(prefix).map_err(refused)?;
    let share = u32::try_from(length.min(INCOMING_BYTES_MAX)).unwrap_or(u32::MAX);
    let over = |_| SshError::Lost("the session has ended".to_owned());
    let share = room.clone().acquire_many_owned(share).await.map_err(over)?;
    let mut head = [0; HEAD];
    let head = &mut head[..length.min(HEAD)];
    let cut = |_| SshError::Lost("the stream ended within a frame".to_owned());
    input.read_exact(head).await.map_err(cut)?;
    let limits = limits_of(head);
    limits.check_length(length).map_err(refused)?;
    // Memory grows with the bytes that arrive, not with the announced length.
    let mut content = head.to_vec();
    input.take((length - head.len()) as u64).read_to_end(&mut content).await.map_err(cut)?;
    if content.len() < length {
        return Err(SshError::Lost("the stream ended within a frame".to_owned()));
    }
    limits.check_values(&content).map_err(refused)?;
    let reply = frame::decode(&content).map_err(refused)?;
    check_json(&reply).map_err(refused)?;
    Ok(Some((reply, share)))
}

#[cfg(test)]
#[path = "channel_memory_tests.rs"]
mod memory_tests;
#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
