//! Signals a run to stop after its current task, or immediately.

use super::controller_asks::ControllerAsks;
use super::play_gate::PlayGate;
use super::process::ProcessId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The reason why a run stops early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The manager ordered the stop.
    Asked,
    /// The manager ordered the stop, and also to kill the current task.
    Killed,
    /// The time limit of the order to run the plan has passed.
    Timeout,
    /// No manager is connected any longer.
    ManagerLost,
}

impl Stop {
    /// The reason as text in the executor's replies. Managers compare this text, so it must not
    /// change.
    pub fn as_str(self) -> &'static str {
        match self {
            Stop::Asked => "cancelled",
            Stop::Killed => "cancelled at once",
            Stop::Timeout => "out of time",
            Stop::ManagerLost => "the manager was lost",
        }
    }
}

/// Called with all running children whenever one starts or ends.
type Watcher = Box<dyn Fn(&[ProcessId]) + Send + Sync>;

/// Stop signal of one session. A stop cannot be taken back. The value also records the processes
/// that the run has started, so that a later attempt can kill them if this executor dies.
#[derive(Default)]
pub struct SessionCancel {
    stop: Mutex<Option<Stop>>,
    kill: AtomicBool,
    children: Mutex<Vec<ProcessId>>,
    watcher: Mutex<Option<Watcher>>,
    gate: Arc<PlayGate>,
    asks: Arc<ControllerAsks>,
}

impl SessionCancel {
    /// Stops the run. The first reason is kept, but `Stop::ManagerLost` replaces any other reason.
    pub fn stop(&self, why: Stop) {
        let mut stop = lock_unpoisoned(&self.stop);
        if stop.is_none() || why == Stop::ManagerLost {
            *stop = Some(why);
        }
        drop(stop);
        self.gate.close();
        // A task that has begun may finish after other stops, also on the host that runs it.
        if why == Stop::ManagerLost {
            self.asks.close();
        }
    }

    /// The requests of the run to the controller. After a kill, or without a manager, no answer
    /// follows.
    pub fn asks(&self) -> &Arc<ControllerAsks> {
        &self.asks
    }

    /// The gate that decides which plays may begin. After a stop none may begin.
    pub fn gate(&self) -> &Arc<PlayGate> {
        &self.gate
    }

    /// Stops the run without waiting for the current task.
    pub fn kill(&self, why: Stop) {
        self.stop(why);
        self.kill.store(true, Ordering::SeqCst);
        self.asks.close();
    }

    pub fn is_killed(&self) -> bool {
        self.kill.load(Ordering::SeqCst)
    }

    /// The reason for the stop. None: the run continues.
    pub fn stop_reason(&self) -> Option<Stop> {
        *lock_unpoisoned(&self.stop)
    }

    /// Records a process that a run has started in its own process group. Call it as soon as the
    /// process runs.
    pub fn record_started(&self, pid: u32) {
        let Some(id) = i32::try_from(pid).ok().and_then(ProcessId::from_pid) else { return };
        let mut children = lock_unpoisoned(&self.children);
        children.push(id);
        self.notify_watcher(&children);
    }

    /// Removes a process from the record. Call it after the process was reaped.
    pub fn record_ended(&self, pid: u32) {
        let mut children = lock_unpoisoned(&self.children);
        children.retain(|child| u32::try_from(child.pid) != Ok(pid));
        self.notify_watcher(&children);
    }

    pub(super) fn watch(&self, watcher: Option<Watcher>) {
        *lock_unpoisoned(&self.watcher) = watcher;
    }

    fn notify_watcher(&self, children: &[ProcessId]) {
        if let Some(watcher) = &*lock_unpoisoned(&self.watcher) {
            watcher(children);
        }
    }
}

/// Locks despite poisoning: every statement leaves the guarded value consistent, so a panic in
/// another thread does no harm.
fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_lost_manager_outweighs_other_reasons() {
        let cancel = SessionCancel::default();
        assert_eq!(cancel.stop_reason(), None);
        cancel.stop(Stop::Asked);
        cancel.stop(Stop::Timeout);
        assert_eq!(cancel.stop_reason(), Some(Stop::Asked));
        cancel.stop(Stop::ManagerLost);
        assert_eq!(cancel.stop_reason(), Some(Stop::ManagerLost));
        assert!(!cancel.is_killed(), "the current task continues");
        cancel.kill(Stop::Timeout);
        assert!(cancel.is_killed() && cancel.stop_reason() == Some(Stop::ManagerLost));
    }

    #[test]
    fn the_watcher_sees_children_start_and_end() {
        let cancel = SessionCancel::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        cancel.watch(Some(Box::new(move |children| lock_unpoisoned(&log).push(children.len()))));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        cancel.record_started(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        cancel.record_ended(child.id());
        assert_eq!(*lock_unpoisoned(&seen), [1, 0]);
    }
}
