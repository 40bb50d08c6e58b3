//! Two kinds of time, both handed in from outside: the pure layers own no clock.

use serde::{Deserialize, Serialize};

/// Monotonic milliseconds of one process; for timers in the engine, never stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Now(pub u64);

impl Now {
    /// This moment plus `ms` milliseconds.
    pub fn after(self, ms: u64) -> Now {
        Now(self.0.saturating_add(ms))
    }
    /// Milliseconds from `earlier` to this moment, 0 if it lies ahead.
    pub fn since(self, earlier: Now) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Wall clock, milliseconds since 1970 UTC, as the proposer of an entry saw it; for people and for budgets over minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub u64);

impl Wall {
    pub fn after(self, ms: u64) -> Wall {
        Wall(self.0.saturating_add(ms))
    }
    pub fn since(self, earlier: Wall) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
