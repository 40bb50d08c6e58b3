//! Tells a run that it should stop after its current task, or at once.

use super::gate::Gate;
use super::process::ProcessId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a run stops early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The manager ordered it.
    Asked,
    /// The manager ordered to stop and also to kill the current task.
    Killed,
    /// The time of the order is over.
    Timeout,
    /// No manager is connected any longer.
    ManagerLost,
}

impl Stop {
    /// The text for replies. Managers compare it, so it must not change.
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

/// Stop signal of one session. A stop cannot be taken back. It also records the processes that the
/// run has started, so that a later attempt can kill them if this executor dies.
#[derive(Default)]
pub struct Cancel {
    stop: Mutex<Option<Stop>>,
    kill: AtomicBool,
    children: Mutex<Vec<ProcessId>>,
    watcher: Mutex<Option<Watcher>>,
    gate: Arc<Gate>,
}

impl Cancel {
    /// The first reason is kept, except that a lost manager outweighs it.
    pub fn stop(&self, why: Stop) {
        let mut stop = held(&self.stop);
        if stop.is_none() || why == Stop::ManagerLost {
            *stop = Some(why);
        }
        drop(stop);
        self.gate.close();
    }

    /// The gate that decides which plays may begin. After a stop none may begin.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Stops the run without waiting for the current task.
    pub fn kill(&self, why: Stop) {
        self.stop(why);
        self.kill.store(true, Ordering::SeqCst);
    }

    pub fn killed(&self) -> bool {
        self.kill.load(Ordering::SeqCst)
    }

    /// The reason for the stop. None: the run continues.
    pub fn stopped(&self) -> Option<Stop> {
        *held(&self.stop)
    }

    /// Records a process that a run has started in its own process group. Call it as soon as the
    /// process runs.
    pub fn began(&self, pid: u32) {
        let Some(id) = i32::try_from(pid).ok().and_then(ProcessId::of) else { return };
        let mut children = held(&self.children);
        children.push(id);
        self.tell(&children);
    }

    /// Removes a process from the record. Call it after the process was reaped.
    pub fn ended(&self, pid: u32) {
        let mut children = held(&self.children);
        children.retain(|child| u32::try_from(child.pid) != Ok(pid));
        self.tell(&children);
    }

    pub(super) fn watch(&self, watcher: Option<Watcher>) {
        *held(&self.watcher) = watcher;
    }

    fn tell(&self, children: &[ProcessId]) {
        if let Some(watcher) = &*held(&self.watcher) {
            watcher(children);
        }
    }
}

/// Locks despite poisoning: every statement leaves the guarded value consistent, so a panic in
/// another thread does no harm.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_lost_manager_outweighs_other_reasons() {
        let cancel = Cancel::default();
        assert_eq!(cancel.stopped(), None);
        cancel.stop(Stop::Asked);
        cancel.stop(Stop::Timeout);
        assert_eq!(cancel.stopped(), Some(Stop::Asked));
        cancel.stop(Stop::ManagerLost);
        assert_eq!(cancel.stopped(), Some(Stop::ManagerLost));
        assert!(!cancel.killed(), "the current task continues");
        cancel.kill(Stop::Timeout);
        assert!(cancel.killed() && cancel.stopped() == Some(Stop::ManagerLost));
    }

    #[test]
    fn the_watcher_sees_children_come_and_go() {
        let cancel = Cancel::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        cancel.watch(Some(Box::new(move |children| held(&log).push(children.len()))));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        cancel.began(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        cancel.ended(child.id());
        assert_eq!(*held(&seen), [1, 0]);
    }
}
