//! Where a run waits before each of its plays, for the hosts that are to begin it with this one.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Asked with the index of a play before it begins; blocks until it may, and gives the hosts that failed or were not reached
/// before. None: it is not to begin at all.
type Pass = dyn Fn(u32) -> Option<BTreeSet<String>> + Send + Sync;

/// Clones are the same one.
#[derive(Clone)]
pub struct Gate(Arc<Pass>);

impl Gate {
    pub fn new(pass: impl Fn(u32) -> Option<BTreeSet<String>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(pass))
    }

    /// Waits until the play may begin, and gives the hosts lost before it; None: the run ends before it.
    pub(super) fn pass(&self, play: u32) -> Option<BTreeSet<String>> {
        (self.0)(play)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}
