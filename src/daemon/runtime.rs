//! The threads of the daemon: an agent at rest needs one, a manager part has its own.

use crate::disk::DataDir;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// A look at the node, and names that are looked up.
const AGENT_BLOCKING_MAX: usize = 8;
/// A thread that has done its work goes, and its stack with it, long before the next look.
const AGENT_KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Two, so that a long render does not delay an order.
const MANAGER_THREADS: usize = 2;
/// What a manager part is in the middle of, such as a write to disk, has this long to come to its end.
const MANAGER_END_MAX: Duration = Duration::from_secs(1);

/// The runtime of the daemon of `dir`: of its agent, its gossip and the connections to its API. An agent alone has little to
/// do and never blocks but on other threads, so all its tasks share the one that is there. On a manager many agents make
/// their handshakes, on two threads; a node that is promoted makes do with the one until its next start, since what it
/// answers as a manager is worked out on [`Threads`]. A directory that can't be read counts as a manager's; running the
/// daemon then says what is wrong with it.
pub fn runtime(dir: &Path) -> io::Result<Runtime> {
    let worker = matches!(DataDir::peek(dir), Ok(Some(identity)) if identity.raft.is_none());
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

/// The threads of a manager part, apart from those of the daemon. They come with it, so that a worker has none, and Raft has
/// its time on a node that is promoted as on one that was started as a manager; and they go with it. Its
/// files are moved after that; what is on a disk by then and takes longer than a second goes on in files that have other names.
pub struct Threads {
    work: Work,
    raft: RaftThread,
}

struct Work {
    runtime: Option<Runtime>,
    handle: Handle,
}

/// Raft's own, so that nothing else of the manager part delays heartbeats. One, which is the runtime's only one: an entry passes
/// through many short tasks, one after the other, and handing them from thread to thread costs more than they do.
struct RaftThread {
    handle: Handle,
    /// It ends when this is dropped.
    stop: oneshot::Sender<()>,
    /// Closed once it has ended.
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
            // An error means that the other end was dropped, which is the sign.
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
            runtime.shutdown_background(); // waiting is not allowed where this is dropped
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

    /// For Raft and nothing else.
    pub fn raft(&self) -> Handle {
        self.raft.handle.clone()
    }

    /// Ends all tasks where they wait next. One that does not come to wait in time is left to itself.
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
            tracing::warn!("the threads of the manager part did not end as they should");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Identity;
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
