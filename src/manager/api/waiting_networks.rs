//! Limits the number of machines of one network that wait to be accepted. The leader counts them
//! before a request enters the log. So unknown machines of one network can neither fill the log nor
//! take all places of waiting machines. A new leader counts from zero; the limit for all networks
//! together is in the state.

use remoor_cluster::rpc::caller::PeerAddr;
use remoor_cluster::rpc::limit::network;
use remoor_model::{Inventory, JoinDecision, PENDING_MAX, PendingJoin, Refusal, Wall};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of machines of one network that wait to be accepted.
const NETWORK_MAX: usize = 8;

/// The public keys of the waiting machines by network. The value is true while the log entry of the
/// machine is being proposed.
type KeysByNetwork = BTreeMap<IpAddr, BTreeMap<String, bool>>;

/// The waiting machines that one manager has counted.
#[derive(Debug, Default)]
pub struct WaitingNetworks(Mutex<KeysByNetwork>);

/// The place of one machine among the waiting machines of its network, while its log entry is being
/// proposed.
#[derive(Debug)]
pub struct WaitingPlace<'a> {
    waiting: &'a WaitingNetworks,
    network: IpAddr,
    key: String,
}

impl WaitingNetworks {
    /// Counts the waiting machine with this key. Refuses if a limit is reached, or if a request of
    /// the same machine is being proposed.
    pub fn take(
        &self,
        from: PeerAddr,
        key: &str,
        inventory: &Inventory,
        now: Wall,
    ) -> Result<WaitingPlace<'_>, Refusal> {
        let (network, shown) = network_of(from);
        let waits = |p: &&Arc<PendingJoin>| p.answer == JoinDecision::None && p.expires >= now;
        let undecided =
            |key: &str| inventory.admission.pending.values().filter(waits).any(|p| p.spec.public_key == key);
        let mut networks = self.lock();
        networks.retain(|_, keys| {
            keys.retain(|key, proposed| *proposed || undecided(key));
            !keys.is_empty()
        });
        let too_many = |count: usize, which: &str| {
            let text = format!("{count} machines{which} wait to join, which is the maximum");
            Refusal::new("too-many-pending", text).next("remoor nodes, then remoor accept or --deny")
        };
        if networks.values().any(|keys| keys.get(key) == Some(&true)) {
            let text = "this machine's request is being entered already";
            return Err(Refusal::new("identity-conflict", text).next("ask again in a moment"));
        }
        let own = networks.get(&network).map_or(0, BTreeMap::len);
        if own >= NETWORK_MAX {
            return Err(too_many(own, &format!(" of the network {shown}")));
        }
        let proposed = networks.values().flat_map(BTreeMap::values).filter(|proposed| **proposed).count();
        let all = proposed + inventory.admission.pending.values().filter(waits).count();
        if all >= PENDING_MAX {
            return Err(too_many(all, ""));
        }
        networks.entry(network).or_default().insert(key.to_owned(), true);
        Ok(WaitingPlace { waiting: self, network, key: key.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, KeysByNetwork> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        if let Some(proposed) = self.waiting.lock().get_mut(&self.network).and_then(|keys| keys.get_mut(&self.key)) {
            *proposed = false;
        }
    }
}

/// The /24 or /64 network of a peer, and its name for people. All callers on the local socket are
/// one network.
fn network_of(from: PeerAddr) -> (IpAddr, String) {
    match from.0.map(|addr| network(addr.ip())) {
        Some(IpAddr::V4(v4)) => {
            let [a, b, c, _] = v4.octets();
            let network = Ipv4Addr::new(a, b, c, 0);
            (network.into(), format!("{network}/24"))
        }
        Some(network @ IpAddr::V6(_)) => (network, format!("{network}/64")),
        None => (Ipv4Addr::LOCALHOST.into(), "of this machine".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{ClusterRole, Command, InventoryEntry, NodeSpec};

    fn from(text: &str) -> PeerAddr {
        PeerAddr(Some((text.parse::<IpAddr>().unwrap(), 7).into()))
    }

    #[test]
    fn eight_machines_of_one_network_wait_until_they_are_answered() {
        let (mut inventory, waiting, now) = (Inventory::default(), WaitingNetworks::default(), Wall(5));
        let mut apply = |command| {
            let index = inventory.applied + 1;
            let entry = InventoryEntry { at: now, by: "test".to_owned(), command };
            assert_eq!(inventory.apply(index, &entry).refusal(), None);
            inventory.clone()
        };
        let pend = |n: usize| Command::Pend {
            spec: NodeSpec { name: format!("w{n}").as_str().into(), public_key: n.to_string(), ..NodeSpec::default() },
            role: ClusterRole::Worker,
        };
        let mut state = Inventory::default();
        for n in 0..NETWORK_MAX {
            let place = waiting.take(from(&format!("10.0.0.{n}")), &n.to_string(), &state, now).unwrap();
            state = apply(pend(n));
            drop(place);
        }
        let refused = waiting.take(from("10.0.0.99"), "9", &state, now).unwrap_err();
        assert!(refused.code == "too-many-pending" && refused.message.contains("10.0.0.0/24"), "{refused:?}");
        assert!(waiting.take(from("10.0.1.1"), "9", &state, now).is_ok(), "another network");
        assert!(waiting.take(from("2001:db8::1"), "9", &state, now).is_ok());
        let state = apply(Command::Deny { name: "w3".into() });
        drop(waiting.take(from("10.0.0.99"), "9", &state, now).expect("the place of an answered machine"));
        assert!(waiting.take(from("10.0.0.99"), "9", &state, now).is_ok(), "it did not enter the log");
    }

    #[test]
    fn places_are_taken_while_entries_are_proposed() {
        let (state, waiting) = (Inventory::default(), WaitingNetworks::default());
        let take = |n: usize| waiting.take(from("10.0.0.1"), &n.to_string(), &state, Wall(5));
        let places: Vec<_> = (0..NETWORK_MAX).map(|n| take(n).unwrap()).collect();
        assert!(take(8).is_err());
        let again = waiting.take(from("10.0.1.1"), "0", &state, Wall(5)).unwrap_err();
        assert_eq!(again.code, "identity-conflict", "one key under two names and from two networks");
        drop(places);
        assert!(take(8).is_ok(), "entries that were refused take no place");
    }
}
