//! Queries to a filesystem that may never answer. A thread in such a query cannot be killed, so the
//! caller does not wait for it.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Paths about which a query has not been answered yet.
static WAITING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static ANSWERED: Condvar = Condvar::new();
const STACK: usize = 128 << 10;

/// Runs `question` about `place` in its own thread. Only one thread per place runs at a time, so
/// that repeated calls do not accumulate threads. Err: no answer within `timeout`, or no thread
/// could be started.
pub fn run_with_deadline<T: Send + 'static>(
    timeout: Duration,
    place: &str,
    question: impl FnOnce(&str) -> T + Send + 'static,
) -> Result<T, String> {
    let began = Instant::now();
    let no_answer = || format!("the filesystem does not answer within {} ms", timeout.as_millis());
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let asked_before = |waiting: &mut BTreeSet<String>| waiting.contains(place);
    let (mut waiting, _) =
        ANSWERED.wait_timeout_while(waiting, timeout, asked_before).unwrap_or_else(PoisonError::into_inner);
    if !waiting.insert(place.to_owned()) {
        return Err(no_answer());
    }
    drop(waiting);
    let (tx, rx) = mpsc::channel();
    let asked = PendingQuestion(place.to_owned());
    let thread = thread::Builder::new().name("question".to_owned()).stack_size(STACK);
    let spawned = thread.spawn(move || {
        let answer = question(&asked.0);
        drop(asked);
        let _ = tx.send(answer); // the caller may have given up
    });
    spawned.map_err(|e| e.to_string())?;
    // The time spent waiting for an earlier query about the same path is subtracted.
    rx.recv_timeout(timeout.saturating_sub(began.elapsed())).map_err(|_| no_answer())
}

/// Marks a path as waiting until this value is dropped.
struct PendingQuestion(String);

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        ANSWERED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_filesystem_has_one_thread_and_does_not_block_callers() {
        let (release, held) = mpsc::channel::<()>();
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let silent = Err("the filesystem does not answer within 20 ms".to_owned());
        assert_eq!(run_with_deadline(short, "/dead", move |_| held.recv().unwrap_or_default()), silent);
        assert_eq!(run_with_deadline(short, "/dead", |_| panic!("a second thread waits for it")), silent);
        assert_eq!(run_with_deadline(long, "/alive", |_| 7), Ok(7));
        release.send(()).unwrap();
        assert_eq!(run_with_deadline(long, "/dead", |_| 8), Ok(8), "it answers again");
    }
}
