//! A barrier before each play. There, the run on one host waits for the runs on the other hosts
//! that start the same play.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Called with the index of a play before it starts. Blocks until the play may start, and returns
/// the hosts that failed or were unreachable by then. None: the play must not start.
type Pass = dyn Fn(u32) -> Option<BTreeSet<String>> + Send + Sync;

/// The barrier that a run passes before each play. All clones are the same barrier.
#[derive(Clone)]
pub struct PlayBarrier(Arc<Pass>);

impl PlayBarrier {
    pub fn new(pass: impl Fn(u32) -> Option<BTreeSet<String>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(pass))
    }

    /// Waits until the play may start. Returns the hosts that failed or were unreachable in earlier
    /// plays. None: the run ends before this play.
    pub(crate) fn pass(&self, play: u32) -> Option<BTreeSet<String>> {
        (self.0)(play)
    }
}

impl fmt::Debug for PlayBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}
