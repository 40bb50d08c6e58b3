//! Entries about the circuit breaker.

use super::*;
use serde::{Deserialize, Serialize};

/// An open circuit breaker: no automatic re-setup begins in its group, or in the whole fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// The group that the breaker concerns. None if it concerns the whole fleet.
    pub group: Option<GroupName>,
    pub why: String,
    pub at: Wall,
}

impl Inventory {
    /// Opens a breaker. Only one breaker can be open. A breaker of the whole fleet replaces an open
    /// one of a group; any other one is refused.
    pub(super) fn open_breaker(&mut self, at: &ApplyContext, group: Option<&GroupName>, why: &str) -> Decision {
        let wider = |open: &Breaker| open.group.is_some() && group.is_none();
        if self.breaker.as_ref().is_some_and(|open| !wider(open)) {
            return Err(Refusal::new("breaker-open", "a breaker is open already"));
        }
        self.breaker = Some(Breaker { group: group.cloned(), why: why.to_owned(), at: at.entry.at });
        self.note(at, None, JournalEvent::Breaker { why: why.to_owned() });
        Ok(Applied::Done)
    }

    pub(super) fn close_breaker(&mut self, at: &ApplyContext) -> Decision {
        if self.breaker.take().is_none() {
            return Err(Refusal::new("nothing-to-resume", "no breaker is open"));
        }
        self.breaker_closed_at = at.entry.at;
        self.note(at, None, JournalEvent::Resumed);
        Ok(Applied::Done)
    }
}
