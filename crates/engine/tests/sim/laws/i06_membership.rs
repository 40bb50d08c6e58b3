//! I6, as far as the inventory ensures it: a Raft id is granted once, to one node, and is never
//! taken away or changed; the founder's is 1. Changes of the membership itself are not simulated
//! here.

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
