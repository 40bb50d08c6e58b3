//! The state machine of remoor's log is the inventory.

use super::StateMachine;
use remoor_model::{Applied, Entry, Inventory};

impl StateMachine for Inventory {
    type Entry = Entry;
    type Applied = Applied;

    fn apply(&mut self, index: u64, entry: &Entry) -> Applied {
        Inventory::apply(self, index, entry)
    }
}
