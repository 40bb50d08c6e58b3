//! Handles changed addresses of nodes: renders the desired state with the current addresses, and
//! directs clients to managers that moved.

use super::context::known_of;
use super::peers::ManagerAddresses;
use super::{ManagerContext, blobs};
use crate::fleet;
use remoor_cluster::raft::RaftStatus;
use remoor_model::{GenerationSeq, Node, NodeId, NodeName, RaftId, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Renders a generation with the current addresses. The result contains each host whose desired
/// state changes by this, with the new hash of its desired state. Err contains the reason of a
/// failed rendering. None means that the generation can't be loaded now; the engine may request the
/// rendering again.
pub async fn render(
    shared: &Arc<ManagerContext>,
    seq: GenerationSeq,
) -> Option<Result<BTreeMap<NodeName, Sha256>, String>> {
    let inventory = shared.inventory();
    let generation = inventory.generations.get(&seq).cloned()?;
    blobs::ensure(shared, &generation.blob).await;
    let shared = shared.clone();
    let work = move || {
        let fleet = shared
            .fleets
            .fleet(&generation)
            .map_err(|error| tracing::warn!(%error, "the fleet could not be loaded to render it with new addresses"))
            .ok()?;
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

/// Makes this manager's clients use the address that another manager signs in gossip, if it differs
/// from the recorded address or from Raft's address. So a cluster whose managers moved gets a
/// quorum, which is needed to record the new addresses.
pub fn follow(shared: &ManagerContext) {
    let status = shared.raft.status().borrow().clone();
    let inventory = shared.inventory();
    let managers = inventory.nodes.values().filter_map(|node| {
        let (raft, entered) = (node.raft?, node.spec.api.as_str());
        let signed = shared.observed.signed_address(node.name()).map(|addr| addr.ip());
        Some(KnownManager { node: node.id, raft, api: entered, signed })
    });
    shared.peers.redirect(whereabouts(&managers.collect::<Vec<_>>(), &status));
}

/// A manager in the applied state.
struct KnownManager<'a> {
    node: NodeId,
    raft: RaftId,
    api: &'a str,
    /// The manager's current gossip IP address, signed by the manager itself.
    signed: Option<IpAddr>,
}

impl KnownManager<'_> {
    /// The manager's current API address: the signed IP address with the recorded port.
    fn now(&self) -> String {
        let port = self.api.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        match (self.signed, port) {
            (Some(ip), Some(port)) => SocketAddr::from((ip, port)).to_string(),
            _ => self.api.to_owned(),
        }
    }
}

fn whereabouts(managers: &[KnownManager<'_>], status: &RaftStatus) -> ManagerAddresses {
    let taken: BTreeSet<String> = managers.iter().map(KnownManager::now).collect();
    let mut found = ManagerAddresses::default();
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
        // Without a signed address, the address in Raft's latest membership is used.
        found.members.extend(signed.or_else(|| member.cloned()).map(|at| (manager.raft, at)));
    }
    // If two managers have the same address, it is unknown which of the two answers at that
    // address.
    let another = |addr: &str, node: NodeId| managers.iter().any(|m| m.node != node && m.now() == addr);
    found.entered.retain(|addr, node| !twice.contains(addr) && !another(addr, *node));
    found
}

/// A warning if the inventory's own `ansible_host` differs from the new address of a node that
/// moved.
pub fn contradiction(shared: &ManagerContext, node: &Node) -> Option<String> {
    let (written, ip, moved) = (shared.ansible_host(node.name())?, node.ip()?, node.setup.address_change.as_ref()?);
    let text =
        format!("the inventory's ansible_host {written} is used, but the node moved from {} to {ip}", moved.from);
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

    fn manager_at(raft: u64, api: &str, signed: Option<[u8; 4]>) -> KnownManager<'_> {
        KnownManager { node: NodeId(raft + 100), raft: RaftId(raft), api, signed: signed.map(IpAddr::from) }
    }

    #[test]
    fn a_manager_is_contacted_at_its_signed_address() {
        let managers = [manager_at(1, "10.0.0.1:7947", None), manager_at(7, OLD, Some([10, 0, 0, 12]))];
        let found = whereabouts(&managers, &status([(1, "10.0.0.1:7947"), (7, OLD)]));
        let at = |addr: &str, node| (addr.to_owned(), Some(NodeId(node)));
        assert_eq!(
            (found.for_address(OLD), found.for_address("10.0.0.1:7947")),
            (at(NEW, 107), at("10.0.0.1:7947", 101))
        );
        assert_eq!(found.for_member(RaftId(7), OLD), at(NEW, 107));
    }

    #[test]
    fn a_stream_that_began_at_the_old_address_finds_its_member_once_raft_has_the_new_one() {
        let moved = status([(1, "10.0.0.1:7947"), (7, NEW)]);
        for signed in [Some([10, 0, 0, 12]), None] {
            let found = whereabouts(&[manager_at(1, "10.0.0.1:7947", None), manager_at(7, NEW, signed)], &moved);
            assert!(found.moved.is_empty(), "the old address is not in use any more: {found:?}");
            assert_eq!(found.for_member(RaftId(7), OLD), (NEW.to_owned(), Some(NodeId(107))), "{signed:?}");
        }
    }

    #[test]
    fn an_address_taken_over_by_another_manager_belongs_to_that_manager() {
        let managers = [manager_at(1, "10.0.0.1:7947", Some([10, 0, 0, 2])), manager_at(7, OLD, Some([10, 0, 0, 12]))];
        let found = whereabouts(&managers, &status([(1, "10.0.0.1:7947"), (7, OLD)]));
        let at = |addr: &str, node: Option<u64>| (addr.to_owned(), node.map(NodeId));
        assert_eq!(found.for_address(OLD), at(OLD, None));
        assert_eq!(found.for_member(RaftId(1), "10.0.0.1:7947"), at(OLD, Some(101)));
        assert_eq!(found.for_member(RaftId(7), OLD), at(NEW, Some(107)));
        assert_eq!(found.for_member(RaftId(9), "10.0.0.3:7947"), at("10.0.0.3:7947", None), "not entered yet");
    }
}
