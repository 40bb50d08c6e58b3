//! The threads of the daemon: an agent at rest needs one.

use crate::disk::DataDir;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A look at the node, and names that are looked up.
const AGENT_BLOCKING_MAX: usize = 8;
/// A thread that has done its work goes, and its stack with it, long before the next look.
const AGENT_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The runtime of the daemon of `dir`. On a manager two threads, so that a long render does not delay Raft; an agent alone has
/// little to do and never blocks but on other threads, so all its tasks share the one that is there. A directory that can't be
/// read counts as a manager's; running the daemon then says what is wrong with it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Identity;
    use tokio::runtime::RuntimeFlavor;

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
