//! What the engine shows of a node beside the inventory: presence, and what it is waiting for.

use super::manager::Manager;
use super::{crowd, policy};
use crate::model::{Gone, Inventory, JobState, Node, Now, Occasion, Wall, may_open, may_retry};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    Alive,
    /// Gone from gossip, the absence not yet committed.
    Suspect,
    Away,
    AgentDown,
    Left,
    /// Accepted and never seen since this leader began.
    NeverSeen,
}

/// Shown beside the states, with what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    pub is: String,
    pub why: String,
}

impl Manager {
    pub fn presence_of(&self, node: &Node) -> Presence {
        if let Some(absence) = node.absence.as_ref().filter(|a| a.returned.is_none()) {
            return match absence.gone {
                Gone::Away => Presence::Away,
                Gone::AgentDown => Presence::AgentDown,
                Gone::Left => Presence::Left,
            };
        }
        match self.seen.get(&node.id) {
            Some(seen) if seen.alive => Presence::Alive,
            _ if node.marks.is_none() => Presence::NeverSeen,
            _ => Presence::Suspect,
        }
    }

    pub fn conditions(&self, now: Now, wall: Wall, inventory: &Inventory, node: &Node) -> Vec<Condition> {
        let mut out = Vec::new();
        let mut add = |is: &str, why: String| out.push(Condition { is: is.to_owned(), why });
        let seen = self.seen.get(&node.id);
        if let Some(absence) = node.absence.as_ref().filter(|a| a.returned.is_some()) {
            let why = match seen.and_then(|s| s.last_failure.as_deref()) {
                Some(failure) => format!("absence {}: {failure}", absence.no),
                None => format!("absence {}", absence.no),
            };
            add("examining", why);
        }
        if let Some(since) = seen.and_then(|s| s.settling) {
            let limit = inventory.limits().settle_ms / 1000;
            add("settling", format!("rebooted, {} of at most {limit} s", now.since(since) / 1000));
        }
        if policy::flapping(inventory, node, wall) {
            add("flapping", format!("{} absences of late", node.recent.len()));
        }
        if let Some(fingerprint) = &node.key_changed {
            add("host-key-changed", format!("offers {fingerprint}; trust it with remoor trust-key"));
        }
        if let Some((moved, ip)) = node.moved.as_ref().zip(node.ip()) {
            add("moved", format!("from {} to {ip}, and not set up there yet", moved.from));
        }
        if let Some(gossip) = seen.and_then(|s| s.held.as_ref()) {
            add("address-held", format!("it signs at {gossip}, which is another node's address"));
        }
        if node.watched && inventory.group(node).is_some_and(|(_, g)| g.spares(node, Occasion::Network)) {
            add("adopted", "never set up by remoor: drift is reported, not repaired".to_owned());
        }
        if let Some(hold) = node.held(wall) {
            add("held", hold.why.clone());
        }
        if let Some(m) = node.maintenance.as_ref().filter(|_| node.in_maintenance(wall)) {
            add("maintenance", format!("announced by {}", m.by));
        }
        if let Some(want) = &node.want {
            let grace = inventory.limits().leader_grace_ms;
            match may_open(inventory, node, want, wall) {
                Err(wait) => add("waiting", wait.to_string()),
                Ok(()) if want.by.is_none() && now.since(self.began) < grace => {
                    add("waiting", format!("a new leader waits {} s", grace / 1000));
                }
                Ok(()) => match crowd::undecided(inventory, wall).filter(|_| want.by.is_none()) {
                    Some(others) => add("waiting", format!("{others} others that came back have no verdict yet")),
                    None => add("waiting", "about to begin".to_owned()),
                },
            }
        }
        if let Some(job) = node.job.and_then(|j| inventory.job(j)) {
            match (job.state, job.open_attempt()) {
                (JobState::Open, Some(a)) => add("resetup", format!("job {}, attempt {}, {}", job.id, a.no, a.phase)),
                (JobState::Open, None) => match may_retry(inventory, node, job, wall) {
                    Err(wait) => add("waiting", format!("job {}: {wait}", job.id)),
                    Ok(()) => add("waiting", format!("job {}: the next attempt", job.id)),
                },
                _ => {}
            }
        }
        out
    }
}
