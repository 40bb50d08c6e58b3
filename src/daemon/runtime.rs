//! The threads of the daemon. An idle agent needs one; a manager service has its own.

use remoor_host::disk::DataDir;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Maximum number of threads for blocking work, such as an examination by the agent or a name
/// lookup.
const AGENT_BLOCKING_MAX: usize = 8;
/// Time after which an idle thread and its stack are released. It is much shorter than the interval
/// of the agent's examinations.
const AGENT_KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Number of a manager service's threads for requests. With one thread only, a long rendering would
/// delay write requests.
const MANAGER_THREADS: usize = 2;
/// Maximum time for running work of a manager service, such as a write to disk, to end after the
/// service is stopped.
const MANAGER_END_MAX: Duration = Duration::from_secs(1);

/// The runtime of the daemon with the data directory `dir`: for its agent, gossip and API
/// connections. One thread is enough for a worker, because its agent has little to do and blocks
/// only on other threads. A manager gets two threads, because many agents make handshakes with it.
/// A promoted node keeps its single thread until the next start, because [`Threads`] process the
/// requests to a manager. A directory that can't be read counts as that of a manager. The daemon
/// reports the read error later.
pub fn runtime(dir: &Path) -> io::Result<Runtime> {
    let worker = matches!(DataDir::read_identity_unlocked(dir), Ok(Some(identity)) if identity.raft.is_none());
    if worker {
        let mut builder = Builder::new_current_thread();
        return builder
            .enable_all()
            .max_blocking_threads(AGENT_BLOCKING_MAX)
            .thread_keep_alive(AGENT_KEEP_ALIVE)
            .build();
    }
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// The threads of a manager service, separate from those of the daemon. They start and end with the
/// service, so a worker has none. Raft has its own thread on every manager. After the service is
/// stopped, its files are moved when its threads have ended, at the latest after a second. A disk
/// write that takes longer continues in the moved files.
pub struct Threads {
    work: Work,
    raft: RaftThread,
}

struct Work {
    runtime: Option<Runtime>,
    handle: Handle,
}

/// Raft's own thread, so that nothing else of the manager service delays heartbeats. The thread's
/// runtime has no second thread. An entry passes through many short tasks in sequence, and moving a
/// task to another thread costs more than the task itself.
struct RaftThread {
    handle: Handle,
    /// The thread ends when this sender is dropped.
    stop: oneshot::Sender<()>,
    /// Closed once the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl RaftThread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (ends, ended) = oneshot::channel();
        let run = move || {
            let _ends: oneshot::Sender<()> = ends;
            // The result is an error, because the stop signal is the drop of the sender.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(MANAGER_END_MAX);
        };
        std::thread::Builder::new().name("raft".to_owned()).spawn(run)?;
        Ok(Self { handle, stop, ended })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // blocking is not allowed in this drop
        }
    }
}

impl Threads {
    pub fn start() -> io::Result<Self> {
        let builder = &mut Builder::new_multi_thread();
        let runtime = builder.worker_threads(MANAGER_THREADS).thread_name("manager").enable_all().build()?;
        let work = Work { handle: runtime.handle().clone(), runtime: Some(runtime) };
        Ok(Self { work, raft: RaftThread::start()? })
    }

    pub fn handle(&self) -> Handle {
        self.work.handle.clone()
    }

    /// The runtime that is only for Raft.
    pub fn raft(&self) -> Handle {
        self.raft.handle.clone()
    }

    /// Ends all tasks of the manager service at their next await point. A task that does not reach
    /// one within `MANAGER_END_MAX` is abandoned.
    pub async fn end(self) {
        let Self { mut work, raft: RaftThread { stop, ended, .. } } = self;
        drop(stop);
        let end = move || {
            if let Some(runtime) = work.runtime.take() {
                runtime.shutdown_timeout(MANAGER_END_MAX);
            }
        };
        let raft = tokio::time::timeout(2 * MANAGER_END_MAX, ended);
        let (work, raft) = tokio::join!(tokio::task::spawn_blocking(end), raft);
        if work.is_err() || raft.is_err() {
            tracing::warn!("the threads of the manager service did not end cleanly");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_host::disk::Identity;
    use tokio::runtime::RuntimeFlavor;

    #[test]
    fn the_threads_of_a_manager_part_end_also_where_a_task_does_not_come_to_wait() {
        let daemon = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let ended = |stuck: bool| {
            let threads = Threads::start().expect("threads");
            let (begins, begun) = std::sync::mpsc::channel();
            let (goes, gone) = std::sync::mpsc::channel::<()>();
            threads.raft().spawn(async move {
                begins.send(std::thread::current().name().map(str::to_owned)).expect("waited for");
                match stuck {
                    true => drop(gone.recv()),
                    false => std::future::pending().await,
                }
            });
            assert_eq!(begun.recv().expect("it began").as_deref(), Some("raft"));
            daemon.block_on(threads.end());
            drop(goes);
        };
        ended(false);
        ended(true);
    }

    #[test]
    fn an_agent_alone_has_one_thread() {
        let dir = tempfile::tempdir().expect("a folder");
        let flavor = || runtime(dir.path()).expect("a runtime").handle().runtime_flavor();
        assert_eq!(flavor(), RuntimeFlavor::MultiThread, "not a node yet");
        let data = DataDir::open(dir.path()).expect("opened");
        let identity = Identity::new("c".into(), Default::default(), Default::default(), "w1".into());
        let mut identity = identity.expect("random");
        data.store_identity(&identity).expect("stored");
        assert_eq!(flavor(), RuntimeFlavor::CurrentThread, "read beside the lock");
        identity.raft = Some(Default::default());
        data.store_identity(&identity).expect("stored");
        assert_eq!(flavor(), RuntimeFlavor::MultiThread);
    }
}
