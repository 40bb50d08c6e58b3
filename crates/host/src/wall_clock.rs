//! The wall clock of this machine.

use remoor_model::Wall;
use std::time::{SystemTime, UNIX_EPOCH};

/// The present time, for certificates, signatures and texts that people read; 0 before 1970.
pub fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
