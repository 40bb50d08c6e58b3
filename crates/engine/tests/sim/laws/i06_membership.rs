//! The part of invariant I6 (docs/design/invariants.md) that the inventory ensures. A Raft id is
//! granted once and to one node, and is never withdrawn or changed. The founder's id is 1. Changes
//! of the Raft membership are not simulated here.

use super::*;
use std::collections::BTreeSet;

pub struct Membership;

impl Law for Membership {
    fn name(&self) -> &'static str {
        "I6"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        let Fact::Applied { before, entry, .. } = fact else { return Ok(()) };
        for (id, node) in &before.nodes {
            let Some(now) = world.state.node(*id) else { return Err(format!("node {id} is gone")) };
            if node.raft.is_some() && now.raft != node.raft {
                return Err(format!("{} had the Raft id {:?} and has {:?}", now.name(), node.raft, now.raft));
            }
        }
        if matches!(entry.command, Command::Grant { .. }) {
            let mut ids = BTreeSet::new();
            if let Some(twice) = world.state.nodes.values().filter_map(|n| n.raft).find(|id| !ids.insert(*id)) {
                return Err(format!("the Raft id {twice} is given twice"));
            }
        }
        Ok(())
    }
}
