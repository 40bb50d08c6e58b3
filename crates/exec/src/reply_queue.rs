//! Replies on their way to the manager: a bounded queue and the thread that writes it.
//!
//! A manager that reads slowly slows the run down. After the manager is lost, replies are dropped,
//! so that they do not block the run.

use super::cancel::{SessionCancel, Stop};
use super::wire::{Reply, frame};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of queued frames. Events are small, so the events of a task with a long loop fit.
const QUEUE: usize = 256;
const FULL_POLL: Duration = Duration::from_millis(20);

enum Item {
    Frame(Vec<u8>),
    /// Is answered after all earlier items were written.
    Flush(mpsc::Sender<()>),
}

/// The queue for replies, which is cheap to clone. All clones write whole frames to the same
/// stream.
#[derive(Clone)]
pub(super) struct ReplyQueue {
    queue: SyncSender<Item>,
    cancel: Arc<SessionCancel>,
}

impl ReplyQueue {
    /// Starts the writer thread. The thread ends when the last clone is dropped or the stream
    /// fails. If the stream fails, the manager counts as lost.
    pub fn start(mut output: impl Write + Send + 'static, cancel: Arc<SessionCancel>) -> Self {
        let (queue, items) = mpsc::sync_channel(QUEUE);
        let writer_cancel = Arc::clone(&cancel);
        thread::spawn(move || {
            if output.write_all(frame::PREFACE).is_err() {
                return writer_cancel.stop(Stop::ManagerLost);
            }
            for item in items {
                match item {
                    Item::Frame(bytes) => {
                        if output.write_all(&bytes).and_then(|()| output.flush()).is_err() {
                            return writer_cancel.stop(Stop::ManagerLost);
                        }
                    }
                    // The caller of `flush` may have given up waiting; this is no fault.
                    Item::Flush(done) => drop(done.send(())),
                }
            }
        });
        Self { queue, cancel }
    }

    /// Queues a reply. Waits while the queue is full, unless the manager is lost.
    pub fn send(&self, reply: &Reply) {
        let bytes = match frame::encode_reply(reply) {
            Ok(bytes) => bytes,
            // The reply is too large for its kind; the replacement is small.
            Err(e) => match frame::encode(&replacement_reply(reply, &e.to_string())) {
                Ok(bytes) => bytes,
                Err(_) => return,
            },
        };
        self.push(Item::Frame(bytes));
    }

    /// Sends a reply, or drops it if the queue is full. Used for heartbeat replies, because a
    /// second heartbeat reply in the queue has no effect.
    pub fn send_if_room(&self, reply: &Reply) {
        if let Ok(bytes) = frame::encode(reply) {
            let _full_or_lost = self.queue.try_send(Item::Frame(bytes));
        }
    }

    /// Waits until all frames sent so far are written, for at most `at_most`.
    pub fn flush(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        let (done, written) = mpsc::channel();
        let mut item = Item::Flush(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(item) {
            if Instant::now() > deadline {
                return;
            }
            item = back;
            thread::sleep(FULL_POLL);
        }
        let _written_or_out_of_time = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    fn push(&self, mut item: Item) {
        while self.cancel.stop_reason() != Some(Stop::ManagerLost) {
            match self.queue.try_send(item) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => item = back,
            }
            thread::sleep(FULL_POLL);
        }
    }
}

/// The replacement for a reply that cannot be sent. An event is replaced by an event, because the
/// run continues.
fn replacement_reply(reply: &Reply, why: &str) -> Reply {
    let Reply::Event { event } = reply else {
        return Reply::Error { message: format!("a reply was not sent: {why}") };
    };
    let task = serde_json::from_slice(event).ok().and_then(|event: serde_json::Value| event["i"].as_u64());
    let line = format!("[an event was not sent: {why}]");
    let event = serde_json::json!({"event": "output", "i": task.unwrap_or(0), "line": line});
    Reply::Event { event: event.to_string().into_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oversized_event_does_not_end_its_order() {
        let large = serde_json::json!({"event": "task", "i": 7, "msg": "x".repeat(40 << 20)}).to_string();
        let (mut input, output) = std::io::pipe().unwrap();
        let outbox = ReplyQueue::start(output, Arc::new(SessionCancel::default()));
        outbox.send(&Reply::Event { event: large.into_bytes() });
        drop(outbox);
        let mut sent = Vec::new();
        std::io::Read::read_to_end(&mut input, &mut sent).unwrap();
        let sent = String::from_utf8_lossy(&sent).into_owned();
        assert!(sent.len() < 1000 && !sent.contains("Error"), "{sent}");
        assert!(!replacement_reply(&Reply::Event { event: b"?".to_vec() }, "too large").is_final());
        let Reply::Event { event } = replacement_reply(&Reply::Event { event: br#"{"i":7}"#.to_vec() }, "too large")
        else {
            panic!("another reply")
        };
        let event = String::from_utf8(event).unwrap();
        assert_eq!(event, r#"{"event":"output","i":7,"line":"[an event was not sent: too large]"}"#);
        assert!(replacement_reply(&Reply::Closed, "too large").is_final());
    }

    #[test]
    fn a_lost_manager_does_not_block_a_run() {
        // Nothing reads the pipe, so first the pipe and then the queue become full.
        let (_unread, output) = std::io::pipe().unwrap();
        let cancel = Arc::new(SessionCancel::default());
        let outbox = ReplyQueue::start(output, Arc::clone(&cancel));
        let watchdog = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            cancel.stop(Stop::ManagerLost);
        });
        let event = Reply::Event { event: vec![b'x'; 4096] };
        for _ in 0..QUEUE * 2 {
            outbox.send(&event);
        }
        watchdog.join().unwrap();
    }

    #[test]
    fn a_closed_stream_means_that_the_manager_is_lost() {
        let (unread, output) = std::io::pipe().unwrap();
        drop(unread);
        let cancel = Arc::new(SessionCancel::default());
        let outbox = ReplyQueue::start(output, Arc::clone(&cancel));
        let deadline = Instant::now() + Duration::from_secs(120);
        while cancel.stop_reason().is_none() && Instant::now() < deadline {
            outbox.send(&Reply::Closed);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(cancel.stop_reason(), Some(Stop::ManagerLost));
    }
}
