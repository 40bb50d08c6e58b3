//! Entries about where nodes are, and what follows for what they are to be.

use super::*;
use std::net::{IpAddr, SocketAddr};

/// The IP address of `ip:port`.
pub fn ip_of(gossip: &str) -> Option<IpAddr> {
    gossip.parse::<SocketAddr>().ok().map(|addr| addr.ip())
}

impl Inventory {
    /// Another node that is entered at this address of gossip, those that are away last.
    pub fn holder(&self, node: NodeId, gossip: &str) -> Option<&Node> {
        let others = self.nodes.values().map(Arc::as_ref).filter(|n| n.id != node && n.spec.gossip == gossip);
        others.min_by_key(|n| n.away())
    }

    /// IP addresses by name, as entered.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        self.nodes.values().filter_map(|n| Some((n.name().to_string(), n.ip()?.to_string()))).collect()
    }

    /// The current generation and the last move, where its hashes were not made with that yet.
    pub fn unrendered(&self) -> Option<(GenerationSeq, u64)> {
        self.generation().filter(|g| g.rendered_for < self.moved).map(|g| (g.seq, self.moved))
    }

    /// What is desired of the node is not what it was set up with, and no generation is the reason: addresses changed.
    pub fn only_moved(&self, node: &Node) -> bool {
        let (Some(baseline), Some(generation)) = (&node.baseline, self.generation()) else { return false };
        let applied = generation.summary.hosts.get(node.name()).map(|h| h.desired);
        generation.desired(node.name()).is_some_and(|now| now != baseline.desired)
            && (baseline.generation == generation.seq || applied == Some(baseline.desired))
    }

    pub(super) fn readdress(&mut self, at: &At, id: NodeId, api: &str, gossip: &str, over: Option<NodeId>) -> Decision {
        if ip_of(gossip).is_none() {
            return Err(Refusal::new("bad-address", format!("{gossip:?} is not ip:port")));
        }
        let known = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node has the id {id}")))?;
        if (known.spec.api.as_str(), known.spec.gossip.as_str()) == (api, gossip) {
            return Err(Refusal::new("nothing-new", "it is entered there already"));
        }
        if let Some(other) = self.holder(id, gossip).filter(|n| !n.away() && Some(n.id) != over) {
            return Err(Refusal::new("address-held", format!("{gossip} is the address of {}", other.name())));
        }
        self.move_to(at, id, api, gossip)
    }

    pub(super) fn move_to(&mut self, at: &At, id: NodeId, api: &str, gossip: &str) -> Decision {
        let changed = self.change(id)?;
        let (before, from) = (changed.ip(), std::mem::replace(&mut changed.spec.gossip, gossip.to_owned()));
        changed.spec.api = api.to_owned();
        let to = changed.ip();
        if before == to {
            return Ok(Applied::Done); // another port: nothing is rendered with it
        }
        // Whoever looked at the old address may have seen another machine.
        changed.altered = at.index;
        changed.key_changed = None;
        changed.moved = match (changed.moved.take(), before) {
            (Some(moved), _) if to.is_some_and(|to| moved.from == to.to_string()) => None,
            (Some(moved), _) => Some(moved),
            (None, Some(before)) if changed.baseline.is_some() => {
                Some(Moved { from: before.to_string(), since: at.entry.at })
            }
            (None, _) => None,
        };
        self.moved = at.index;
        self.note(at, Some(id), Happening::Moved { from, to: gossip.to_owned() });
        Ok(Applied::Done)
    }

    pub(super) fn rendered(
        &mut self,
        at: &At,
        seq: GenerationSeq,
        moved: u64,
        hosts: &BTreeMap<NodeName, Sha256>,
        fault: Option<&str>,
    ) -> Decision {
        if seq != self.current || moved != self.moved {
            return Err(Refusal::new("overtaken", "another generation or another move came in between"));
        }
        let generation = self.generations.get_mut(&seq).map(Arc::make_mut);
        let generation = generation.ok_or_else(|| Refusal::new("no-generation", "no fleet was applied"))?;
        if generation.rendered_for >= moved {
            return Err(Refusal::new("nothing-new", "it was rendered anew already"));
        }
        generation.rendered_for = moved;
        let mut changed = 0;
        if fault.is_none() {
            let before = std::mem::take(&mut generation.rendered);
            generation.rendered = hosts.clone();
            let names = generation.summary.hosts.keys();
            changed = names.filter(|name| before.get(*name) != hosts.get(*name)).count() as u32;
        }
        if changed > 0 || fault.is_some() {
            self.note(at, None, Happening::Rendered { changed, fault: fault.map(str::to_owned) });
        }
        Ok(Applied::Done)
    }
}

impl Generation {
    /// Whether a fleet with this summary is this generation: as it was applied, or as it was rendered since.
    pub(super) fn says(&self, summary: &FleetSummary) -> bool {
        let mut own = self.summary.clone();
        if own == *summary {
            return true;
        }
        for (name, host) in &mut own.hosts {
            host.desired = self.rendered.get(name).copied().unwrap_or(host.desired);
        }
        own == *summary
    }
}
