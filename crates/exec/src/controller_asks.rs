//! Requests of a running plan to the controller, over the session that is open. The thread that
//! runs the plan asks and waits. The thread that reads orders delivers the answer.
//!
//! A run has at most one open request. An answer to another request is dropped.

use std::sync::{Condvar, Mutex, PoisonError};

/// The open request of one session.
#[derive(Debug, Default)]
pub struct ControllerAsks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last request.
    last: u64,
    /// Whether the last request still waits for its answer.
    open: bool,
    answer: Option<Vec<u8>>,
    closed: bool,
}

impl ControllerAsks {
    /// Calls `send` with the number of a new request, and waits for the answer. None: the session
    /// was closed, so no answer follows.
    pub fn ask(&self, send: impl FnOnce(u64)) -> Option<Vec<u8>> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        (state.last, state.open, state.answer) = (state.last + 1, true, None);
        let id = state.last;
        drop(state);
        send(id);
        let mut state = self.lock();
        while !state.closed && state.answer.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.open = false;
        state.answer.take()
    }

    /// Delivers the answer to the request `id`. Does nothing if that request is not open.
    pub fn answer(&self, id: u64, content: Vec<u8>) {
        let mut state = self.lock();
        if state.open && state.last == id {
            state.answer.get_or_insert(content);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the wait for an answer, now and in the future.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_the_open_request_is_taken() {
        let asks = ControllerAsks::default();
        asks.answer(1, b"too early".to_vec());
        let answer = asks.ask(|id| {
            asks.answer(id + 1, b"of another request".to_vec());
            asks.answer(id, b"first".to_vec());
            asks.answer(id, b"again".to_vec());
        });
        assert_eq!(answer.as_deref(), Some(&b"first"[..]));
        let answer = asks.ask(|id| {
            asks.answer(id - 1, b"late".to_vec());
            asks.answer(id, b"second".to_vec());
        });
        assert_eq!(answer.as_deref(), Some(&b"second"[..]));
    }

    #[test]
    fn a_closed_session_ends_the_wait() {
        let asks = ControllerAsks::default();
        assert_eq!(asks.ask(|_| asks.close()), None);
        assert_eq!(asks.ask(|_| panic!("no request follows")), None);
    }
}
