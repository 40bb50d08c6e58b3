//! Addresses, outside of the engine: what is desired rendered with those of now, and other managers found where they are.

use super::peers::Whereabouts;
use super::shared::known_of;
use super::{Shared, blobs};
use crate::fleet;
use crate::model::{GenerationSeq, Node, NodeId, NodeName, RaftId, Sha256};
use crate::raft::RaftStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The hosts of a generation that are to be something else at the addresses of now. Err: why it can't be rendered with
/// them. None: it is not here to be rendered, and may be asked for again.
pub async fn render(shared: &Arc<Shared>, seq: GenerationSeq) -> Option<Result<BTreeMap<NodeName, Sha256>, String>> {
    let inventory = shared.inventory();
    let generation = inventory.generations.get(&seq).cloned()?;
    blobs::ensure(shared, &generation.blob).await;
    let shared = shared.clone();
    let work = move || {
        let fleet = shared.book.fleet(&generation).map_err(|error| tracing::warn!(%error, "not rendered anew")).ok()?;
        let summary = match fleet::summary(&fleet, &known_of(&inventory)) {
            Ok(summary) => summary,
            Err(faults) => {
                let faults: Vec<String> = faults.iter().take(3).map(ToString::to_string).collect();
                return Some(Err(faults.join("; ")));
            }
        };
        let applied = |name: &NodeName| generation.summary.hosts.get(name).map(|h| h.desired);
        let hosts = summary.hosts.into_iter().map(|(name, host)| (name, host.desired));
        Some(Ok(hosts.filter(|(name, desired)| applied(name).is_some_and(|before| before != *desired)).collect()))
    };
    tokio::task::spawn_blocking(work).await.ok()?
}

/// Managers that sign at another address than the one entered, or than the one that Raft has, are asked there: so that a
/// cluster whose managers moved has a quorum again before anything can be entered.
pub fn follow(shared: &Shared) {
    let status = shared.raft.status().borrow().clone();
    let inventory = shared.inventory();
    let managers = inventory.nodes.values().filter_map(|node| {
        let entered = node.spec.api.as_str();
        let signed = shared.signed_at(node.name()).map(|addr| addr.ip());
        Some(Entered { node: node.id, raft: node.raft?, api: entered, signed })
    });
    shared.peers.redirect(whereabouts(&managers.collect::<Vec<_>>(), &status));
}

/// A manager as the state has it.
struct Entered<'a> {
    node: NodeId,
    raft: RaftId,
    api: &'a str,
    /// Where it gossips now, by its own signature.
    signed: Option<IpAddr>,
}

impl Entered<'_> {
    /// The API listens where gossip does, on the port that was entered.
    fn now(&self) -> String {
        let port = self.api.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        match (self.signed, port) {
            (Some(ip), Some(port)) => SocketAddr::from((ip, port)).to_string(),
            _ => self.api.to_owned(),
        }
    }
}

fn whereabouts(managers: &[Entered<'_>], status: &RaftStatus) -> Whereabouts {
    let taken: BTreeSet<String> = managers.iter().map(Entered::now).collect();
    let mut found = Whereabouts::default();
    let mut twice = BTreeSet::new();
    for manager in managers {
        let member = status.voters.get(&manager.raft).or_else(|| status.learners.get(&manager.raft));
        let now = manager.now();
        for before in [manager.api].into_iter().chain(member.map(String::as_str)).filter(|b| !taken.contains(*b)) {
            found.moved.insert(before.to_owned(), (now.clone(), manager.node));
        }
        found.ids.insert(manager.raft, manager.node);
        if let Some(at) = member
            && found.entered.insert(at.clone(), manager.node).is_some_and(|other| other != manager.node)
        {
            twice.insert(at.clone());
        }
        let signed = manager.signed.map(|_| now);
        // Raft's newest word where gossip has none.
        found.members.extend(signed.or_else(|| member.cloned()).map(|at| (manager.raft, at)));
    }
    // Who answers where two are said to be nobody can say.
    let another = |addr: &str, node: NodeId| managers.iter().any(|m| m.node != node && m.now() == addr);
    found.entered.retain(|addr, node| !twice.contains(addr) && !another(addr, *node));
    found
}

/// Where the inventory's own word for a node that moved stands against where it is.
pub fn contradiction(shared: &Shared, node: &Node) -> Option<String> {
    let (written, ip, moved) = (shared.ansible_host(node.name())?, node.ip()?, node.moved.as_ref()?);
    let text = format!("ansible_host {written} of the inventory is asked; the node moved from {} to {ip}", moved.from);
    (written != ip).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "10.0.0.2:7947";
    const NEW: &str = "10.0.0.12:7947";

    fn status(voters: [(u64, &str); 2]) -> RaftStatus {
        let voters = voters.into_iter().map(|(id, addr)| (RaftId(id), addr.to_owned())).collect();
        RaftStatus { voters, ..RaftStatus::default() }
    }

    fn entered(raft: u64, api: &str, signed: Option<[u8; 4]>) -> Entered<'_> {
        Entered { node: NodeId(raft + 100), raft: RaftId(raft), api, signed: signed.map(IpAddr::from) }
    }

    #[test]
    fn a_manager_is_asked_where_it_signs_whatever_is_entered() {
        let managers = [entered(1, "10.0.0.1:7947", None), entered(7, OLD, Some([10, 0, 0, 12]))];
        let found = whereabouts(&managers, &status([(1, "10.0.0.1:7947"), (7, OLD)]));
        let at = |addr: &str, node| (addr.to_owned(), Some(NodeId(node)));
        assert_eq!((found.of(OLD), found.of("10.0.0.1:7947")), (at(NEW, 107), at("10.0.0.1:7947", 101)));
        assert_eq!(found.of_member(RaftId(7), OLD), at(NEW, 107));
    }

    #[test]
    fn a_stream_that_began_at_the_old_address_finds_its_member_once_raft_has_the_new_one() {
        let moved = status([(1, "10.0.0.1:7947"), (7, NEW)]);
        for signed in [Some([10, 0, 0, 12]), None] {
            let found = whereabouts(&[entered(1, "10.0.0.1:7947", None), entered(7, NEW, signed)], &moved);
            assert!(found.moved.is_empty(), "nobody is told of an address that nobody has any more: {found:?}");
            assert_eq!(found.of_member(RaftId(7), OLD), (NEW.to_owned(), Some(NodeId(107))), "{signed:?}");
        }
    }

    #[test]
    fn an_address_that_another_manager_took_over_is_the_other_ones() {
        let managers = [entered(1, "10.0.0.1:7947", Some([10, 0, 0, 2])), entered(7, OLD, Some([10, 0, 0, 12]))];
        let found = whereabouts(&managers, &status([(1, "10.0.0.1:7947"), (7, OLD)]));
        let at = |addr: &str, node: Option<u64>| (addr.to_owned(), node.map(NodeId));
        assert_eq!(found.of(OLD), at(OLD, None));
        assert_eq!(found.of_member(RaftId(1), "10.0.0.1:7947"), at(OLD, Some(101)));
        assert_eq!(found.of_member(RaftId(7), OLD), at(NEW, Some(107)));
        assert_eq!(found.of_member(RaftId(9), "10.0.0.3:7947"), at("10.0.0.3:7947", None), "not entered yet");
    }
}
