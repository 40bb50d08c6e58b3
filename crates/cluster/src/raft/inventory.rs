//! The inventory is the state machine of remoor's log.

use super::StateMachine;
use remoor_model::{Applied, Inventory, InventoryEntry};

impl StateMachine for Inventory {
    type Entry = InventoryEntry;
    type Applied = Applied;

    fn apply(&mut self, index: u64, entry: &InventoryEntry) -> Applied {
        Inventory::apply(self, index, entry)
    }
}
