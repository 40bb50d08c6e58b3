//! Replies on their way to the manager: a bounded queue and the thread that writes it.
//!
//! A manager that reads slowly slows the run down; one that is lost does not hold it up, since then replies are dropped.

use super::cancel::{Cancel, Stop};
use super::wire::{Reply, frame};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// Frames in flight; events are small, so a burst of a loop's items fits.
const QUEUE: usize = 256;
const FULL_POLL: Duration = Duration::from_millis(20);

enum Item {
    Frame(Vec<u8>),
    /// Answered once all before it is written.
    Flush(mpsc::Sender<()>),
}

/// Cheap to clone; all clones write to the same stream, frame by frame.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: SyncSender<Item>,
    cancel: Arc<Cancel>,
}

impl Outbox {
    /// Starts the writing thread. It ends with the last clone, or when the stream fails: then the manager is lost.
    pub fn start(mut output: impl Write + Send + 'static, cancel: Arc<Cancel>) -> Self {
        let (queue, items) = mpsc::sync_channel(QUEUE);
        let told = Arc::clone(&cancel);
        thread::spawn(move || {
            if output.write_all(frame::PREFACE).is_err() {
                return told.stop(Stop::ManagerLost);
            }
            for item in items {
                match item {
                    Item::Frame(bytes) => {
                        if output.write_all(&bytes).and_then(|()| output.flush()).is_err() {
                            return told.stop(Stop::ManagerLost);
                        }
                    }
                    // Nobody waiting for the answer any longer is fine.
                    Item::Flush(done) => drop(done.send(())),
                }
            }
        });
        Self { queue, cancel }
    }

    /// Waits while the queue is full and the manager is there.
    pub fn send(&self, reply: &Reply) {
        let bytes = match frame::encode(reply) {
            Ok(bytes) => bytes,
            // A reply that is too large for a frame; an error is not.
            Err(e) => match frame::encode(&Reply::Error { message: format!("a reply was not sent: {e}") }) {
                Ok(bytes) => bytes,
                Err(_) => return,
            },
        };
        self.push(Item::Frame(bytes));
    }

    /// Sends unless the queue is full. For signs of life, of which one more in the queue says nothing new.
    pub fn send_if_room(&self, reply: &Reply) {
        if let Ok(bytes) = frame::encode(reply) {
            let _full_or_lost = self.queue.try_send(Item::Frame(bytes));
        }
    }

    /// Waits until everything sent so far is written, at most `at_most`.
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
        while self.cancel.stopped() != Some(Stop::ManagerLost) {
            match self.queue.try_send(item) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => item = back,
            }
            thread::sleep(FULL_POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_manager_does_not_hold_up_a_run() {
        // Nobody reads: the pipe fills up, then the queue.
        let (_unread, output) = std::io::pipe().unwrap();
        let cancel = Arc::new(Cancel::default());
        let outbox = Outbox::start(output, Arc::clone(&cancel));
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
        let cancel = Arc::new(Cancel::default());
        let outbox = Outbox::start(output, Arc::clone(&cancel));
        let deadline = Instant::now() + Duration::from_secs(120);
        while cancel.stopped().is_none() && Instant::now() < deadline {
            outbox.send(&Reply::Closed);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(cancel.stopped(), Some(Stop::ManagerLost));
    }
}
