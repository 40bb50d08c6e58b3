//! Decides which plays of a run may begin. The manager (or `remoor play`) releases each play,
//! because all hosts of the run begin a play together.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};

/// The gate of one run. The thread that reads orders opens it, and the thread that runs the plan
/// waits.
#[derive(Debug, Default)]
pub struct PlayGate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The last play that may begin.
    through: Option<u32>,
    /// Hosts that take part in no later play, because they failed or were not reached.
    lost: BTreeSet<String>,
    closed: bool,
}

impl PlayGate {
    /// Lets the plays up to `play` begin, without the hosts in `lost`, which failed or were not
    /// reached.
    pub fn open(&self, play: u32, lost: &[String]) {
        self.change(|state| {
            state.through = state.through.max(Some(play));
            state.lost.extend(lost.iter().cloned());
        });
    }

    /// Lets no further play begin.
    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Waits until `play` may begin. Returns the hosts that failed or were not reached before this
    /// play. None: no play may begin any more.
    pub fn pass(&self, play: u32) -> Option<BTreeSet<String>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed && state.through < Some(play) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.closed).then(|| state.lost.clone())
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}
