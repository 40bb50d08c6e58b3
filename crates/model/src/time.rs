//! Two kinds of time. The caller passes both in, because the pure layers read no clock.

use serde::{Deserialize, Serialize};

/// Monotonic milliseconds of one process. They are used for timers in the engine and never stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Now(pub u64);

impl Now {
    /// This moment plus `ms` milliseconds.
    pub fn plus_ms(self, ms: u64) -> Now {
        Now(self.0.saturating_add(ms))
    }
    /// Milliseconds from `earlier` to this moment; 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Now) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A wall-clock time in milliseconds since 1970 UTC. The time of an entry is that of its proposer's
/// clock. Wall-clock times are for people, and for limits over periods of minutes or longer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub u64);

impl Wall {
    /// This moment plus `ms` milliseconds.
    pub fn plus_ms(self, ms: u64) -> Wall {
        Wall(self.0.saturating_add(ms))
    }
    /// Milliseconds from `earlier` to this moment; 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Wall) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
