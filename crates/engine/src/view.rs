//! The leader's view of a node, in addition to the inventory: the node's presence and its
//! conditions.

use super::examination::host_rebooted;
use super::manager::{FIRST_SIGHT_MS, ManagerEngine, StepContext};
use super::routes::Route;
use super::{mass_return, policy};
use remoor_model::{
    AbsenceKind, FleetView, Inventory, JobState, Node, NodeName, Now, Trigger, Wall, count_noun, weekday_text,
};
use serde::{Deserialize, Serialize};

/// The presence of a node according to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    Alive,
    /// Gossip lost the node, but the absence is not committed yet.
    Suspect,
    Away,
    AgentDown,
    Left,
    /// Accepted, but not in gossip and never examined.
    NeverSeen,
}

/// A condition of a node, such as `waiting`, with its reason. Conditions are shown in addition to
/// the node's states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCondition {
    pub is: String,
    pub why: String,
}

impl ManagerEngine {
    /// The node's presence according to the inventory and gossip.
    pub fn presence_of(&self, node: &Node) -> Presence {
        if let Some(absence) = node.absence.as_ref().filter(|a| a.returned.is_none()) {
            return match absence.kind {
                AbsenceKind::Away => Presence::Away,
                AbsenceKind::AgentDown => Presence::AgentDown,
                AbsenceKind::Left => Presence::Left,
            };
        }
        match self.seen.get(&node.id) {
            Some(seen) if seen.is_present() => Presence::Alive,
            _ if node.examination.last_identity.is_none() => Presence::NeverSeen,
            _ => Presence::Suspect,
        }
    }

    /// The presence for display. None if a new leader has received no gossip about the node yet.
    pub fn reported_presence(&self, now: Now, node: &Node) -> Option<Presence> {
        let unheard = self.seen.get(&node.id).is_none_or(|seen| !seen.alive && seen.report.is_none());
        let begins = now.ms_since(self.leading_since) <= FIRST_SIGHT_MS;
        Some(self.presence_of(node)).filter(|is| *is != Presence::Suspect || !unheard || !begins)
    }

    /// The managers that cannot reach the node's SSH port although the node is in gossip. Each has
    /// the time at which its current failure began.
    pub fn unreachable_from(&self, now: Now, inventory: &Inventory, node: &Node) -> Vec<(NodeName, Wall)> {
        if self.presence_of(node) != Presence::Alive {
            return Vec::new();
        }
        let missed = self.routes.unreachable_from(node.id, now, inventory.limits().probe_ms).into_iter();
        let missed = missed.filter_map(|(by, since, _)| Some((inventory.node(by)?, since)));
        let up = |by: &Node| *by.name() == self.me || self.presence_of(by) == Presence::Alive;
        missed.filter(|(by, _)| up(by)).map(|(by, since)| (by.name().clone(), since)).collect()
    }

    /// The condition of a job that may begin but has no usable route to the node.
    fn route_condition(&self, at: StepContext, node: &Node) -> Option<NodeCondition> {
        let condition = |is: &str, why: String| Some(NodeCondition { is: is.to_owned(), why });
        match self.route(at, node) {
            Route::FromLeader => None,
            Route::Querying => condition("waiting", "asking the managers which of them reach it".to_owned()),
            Route::FromManager(other) => {
                let other = at.inventory.node(other).map_or_else(String::new, |n| n.name().to_string());
                condition(
                    "waiting",
                    format!("{} does not reach it; {other} does and must become leader first", self.me),
                )
            }
            Route::NoRoute => condition("blocked", format!("no route to {}", node.name())),
        }
    }

    /// All conditions that apply to the node, in display order.
    pub fn conditions(&self, now: Now, wall: Wall, inventory: &Inventory, node: &Node) -> Vec<NodeCondition> {
        let ground = FleetView::new(inventory);
        let at = StepContext { now, wall, inventory, ground: &ground };
        let mut out = Vec::new();
        let mut add = |is: &str, why: String| out.push(NodeCondition { is: is.to_owned(), why });
        let seen = self.seen.get(&node.id);
        if let Some(absence) = node.absence.as_ref().filter(|a| a.returned.is_some()) {
            let why = match seen.and_then(|s| s.last_failure.as_deref()) {
                Some(failure) => format!("absence {}: {failure}", absence.no),
                None => format!("absence {}", absence.no),
            };
            add("examining", why);
        }
        if let Some((seen, (since, limit))) = seen.and_then(|s| Some((s, s.settling?))) {
            let what = if host_rebooted(node, seen) { "rebooted" } else { "reconnected" };
            add("settling", format!("{what}, {} of at most {} s", now.ms_since(since) / 1000, limit / 1000));
        }
        if policy::is_flapping(inventory, node, wall) {
            add("flapping", format!("{} recently", count_noun(node.absences.recent.len(), "absence")));
        }
        let missed = self.unreachable_from(now, inventory, node);
        if !missed.is_empty() {
            let since = |(by, since): &(NodeName, Wall)| format!("{by} since {}", weekday_text(*since));
            add("unreachable-from", missed.iter().map(since).collect::<Vec<_>>().join(", "));
        }
        if seen.is_some_and(|seen| !seen.alive && seen.is_present()) {
            add("gossip-lost", "gossip does not list it, but its daemon answers a handshake".to_owned());
        }
        if let Some(seen) = seen.filter(|_| self.report_stale_since(now, inventory, node).is_some()) {
            let minutes = now.ms_since(seen.report_renewed) / 60_000;
            add(
                "stale",
                format!("its agent's report was not renewed for {minutes} min; the node is examined without it"),
            );
        }
        if let Some(fingerprint) = &node.host_key.changed {
            add("host-key-changed", format!("offers {fingerprint}; trust it with remoor trust-key"));
        }
        if let Some(finding) = node.examination.finding.as_ref().filter(|f| !f.damaged.is_empty()) {
            let names = finding.damaged.join(", ");
            add(
                "damaged",
                format!("{names} in its data directory; inspect them, then delete the files that were moved away"),
            );
        }
        if let Some((moved, ip)) = node.setup.address_change.as_ref().zip(node.ip()) {
            add("moved", format!("from {} to {ip}; not set up for the new address yet", moved.from));
        }
        if let Some(gossip) = seen.and_then(|s| s.held.as_ref()) {
            add("address-held", format!("it announces {gossip}, which is the recorded address of another node"));
        }
        if node.setup.adopted_only && inventory.group(node).is_some_and(|(_, g)| g.is_spared(node, Trigger::Network)) {
            add("adopted", "never set up by remoor: drift is reported, not repaired".to_owned());
        }
        if let Some(hold) = node.active_hold(wall) {
            add("held", hold.why.clone());
        }
        if let Some(m) = node.maintenance.as_ref().filter(|_| node.in_maintenance(wall)) {
            add("maintenance", format!("announced by {}", m.by));
        }
        if let Some(want) = &node.pending_resetup {
            let (grace, automatic) = (inventory.limits().leader_grace_ms, want.spec.by.is_none());
            match ground.may_open(node, &want.spec, wall) {
                Err(wait) => add("waiting", wait.to_string()),
                Ok(()) if automatic && now.ms_since(self.leading_since) < grace => {
                    add("waiting", format!("a new leader waits {} s", grace / 1000));
                }
                Ok(()) => match mass_return::nodes_without_verdict(inventory, wall).filter(|_| automatic) {
                    Some(others) => {
                        add("waiting", format!("no verdict yet about {} that returned", count_noun(others, "other")))
                    }
                    None => match self.route_condition(at, node) {
                        Some(block) => add(&block.is, block.why),
                        None => add("waiting", "about to begin".to_owned()),
                    },
                },
            }
        }
        if let Some(job) = node.job.and_then(|j| inventory.job(j)) {
            match (job.state, job.open_attempt()) {
                (JobState::Open, Some(a)) => add("resetup", format!("job {}, attempt {}, {}", job.id, a.no, a.phase)),
                (JobState::Open, None) => match ground.may_retry(node, job, wall) {
                    Err(wait) => add("waiting", format!("job {}: {wait}", job.id)),
                    Ok(()) => match self.route_condition(at, node) {
                        Some(block) => add(&block.is, format!("job {}: {}", job.id, block.why)),
                        None => add("waiting", format!("job {}: the next attempt", job.id)),
                    },
                },
                _ => {}
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineEvent;
    use remoor_model::{Command, HostFingerprint, InventoryEntry, NodeId, sample};

    #[test]
    fn a_new_leader_suspects_no_node_that_gossip_has_not_delivered_yet() {
        let mut inventory = sample::fleet(1, 0);
        let (node, at) = (NodeId(1), inventory.applied + 1);
        let command = Command::Fingerprint { node, marks: HostFingerprint::default() };
        inventory.apply(at, &InventoryEntry { at: Wall(at), by: "m1".to_owned(), command });
        let known = &inventory.nodes[&node];
        let mut leader = ManagerEngine::new("m1".into(), Now(0));
        assert_eq!(leader.reported_presence(Now(FIRST_SIGHT_MS), known), None);
        assert_eq!(leader.reported_presence(Now(FIRST_SIGHT_MS + 1), known), Some(Presence::Suspect));
        leader.step(Now(1), Wall(1), &inventory, EngineEvent::Alive { node, report: Default::default() });
        assert_eq!(leader.reported_presence(Now(2), known), Some(Presence::Alive));
        leader.step(Now(3), Wall(3), &inventory, EngineEvent::Gone { node });
        assert_eq!(
            leader.reported_presence(Now(4), known),
            Some(Presence::Suspect),
            "gossip delivered the node and then lost it"
        );
    }
}
