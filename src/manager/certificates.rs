//! Records the expiry of certificates: the manager's own, and those of the nodes that contacted it.
//! Nodes renew long before expiry, so a certificate that expires soon means that its renewal
//! failed.
//!
//! The expiry times are in memory only. After a start, a manager knows only its own certificate. It
//! learns the expiry of a node's certificate from the node's next request.

use super::{ManagerContext, Notices};
use remoor_cluster::rpc::identity;
use remoor_model::{Inventory, NodeId, Wall};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Key prefix of notices about certificates.
pub const CERTIFICATE: &str = "certificate";

/// The latest known expiry of each node's certificate.
#[derive(Debug, Default)]
pub struct Certificates(Mutex<BTreeMap<NodeId, Wall>>);

impl Certificates {
    pub fn record_expiry(&self, node: NodeId, not_after: Wall) {
        self.inner().insert(node, not_after);
    }

    /// Expiry of the certificate of `node`. None if the node has not contacted this manager.
    pub fn expiry_of(&self, node: NodeId) -> Option<Wall> {
        self.inner().get(&node).copied()
    }

    /// Warnings about certificates that expire soon: one line for each node of the inventory.
    pub fn expiry_warnings(&self, inventory: &Inventory, now: Wall) -> Vec<(NodeId, String)> {
        let seen = self.inner();
        let of_node = |(id, not_after): (&NodeId, &Wall)| {
            let text = identity::expiry_notice(inventory.node(*id)?.name(), *not_after, now)?;
            Some((*id, text))
        };
        seen.iter().filter_map(of_node).collect()
    }

    /// Sends notices about certificates that expire soon: the manager's own, and on the leader also
    /// those of the other nodes. This function must be called once a day.
    pub fn send_notices(&self, inventory: &Inventory, own: NodeId, leads: bool, notices: &Notices, now: Wall) {
        for (id, text) in self.expiry_warnings(inventory, now).into_iter().filter(|(id, _)| *id == own || leads) {
            let name = inventory.node(id).map(|node| node.name().to_string());
            notices.notify(&format!("{CERTIFICATE} {id}"), name.as_deref(), &text);
        }
    }

    fn inner(&self) -> MutexGuard<'_, BTreeMap<NodeId, Wall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ManagerContext {
    /// Calls [`Certificates::send_notices`] for this manager. This function must be called once a
    /// day.
    pub fn send_certificate_notices(&self, now: Wall) {
        self.observed.certificates.send_notices(
            &self.inventory(),
            self.identity.node,
            self.published.engine.leads(),
            &self.notices,
            now,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{ClusterRole, Command, InventoryEntry, NodeSpec};

    const DAY_MS: u64 = 24 * 3_600_000;

    #[test]
    fn a_manager_warns_about_its_own_certificate_and_the_leader_about_all() {
        let mut inventory = Inventory::default();
        for (index, name) in (1..).zip(["m1", "m2", "w1"]) {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            let command = Command::Accept { spec, role: ClusterRole::Manager };
            let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
            assert_eq!(applied.refusal(), None);
        }
        let (certificates, now) = (Certificates::default(), Wall(1_000 * DAY_MS));
        for (node, days) in [(1, 12), (2, 5), (3, 80), (9, 3)] {
            certificates.record_expiry(NodeId(node), now.plus_ms(days * DAY_MS));
        }
        let told = |own, leads| {
            let notices = Notices::default();
            certificates.send_notices(&inventory, NodeId(own), leads, &notices, now);
            assert!(notices.recent_but(&[CERTIFICATE]).is_empty(), "a status says it itself");
            notices.recent_but(&[])
        };
        assert_eq!(told(1, false), ["certificate of m1 ends in 12 days"]);
        assert_eq!(told(1, true), ["certificate of m1 ends in 12 days", "certificate of m2 ends in 5 days"]);
        assert_eq!(told(3, false), [""; 0]);
        certificates.record_expiry(NodeId(2), now.plus_ms(90 * DAY_MS));
        assert_eq!(certificates.expiry_warnings(&inventory, now).len(), 1, "m2 has a new one");
    }
}
