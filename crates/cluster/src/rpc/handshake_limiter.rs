//! Limits the unfinished TLS handshakes, and the connections of plain HTTP. A stranger who opens
//! connections and sends nothing must not use up the capacity for other addresses. If too many
//! handshakes are unfinished, one is dropped: the oldest of the address that has most of them. An
//! address has no limit of its own, because many nodes may share one address behind NAT.

use crate::keyed_limiter::network;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The limiter for all addresses. Clones share one limit.
#[derive(Debug, Clone)]
pub struct HandshakeLimiter(Arc<Mutex<UnfinishedHandshakes>>);

#[derive(Debug)]
struct UnfinishedHandshakes {
    most: usize,
    count: usize,
    /// The number that the next connection gets.
    next: u64,
    /// The connections of each address, in order of arrival. Dropping the sender drops the
    /// connection.
    by_address: HashMap<IpAddr, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// A connection whose handshake has not finished.
#[derive(Debug)]
pub struct HandshakeSlot {
    limiter: HandshakeLimiter,
    from: IpAddr,
    number: u64,
    dropped: oneshot::Receiver<()>,
}

impl HandshakeLimiter {
    /// Creates a limiter that allows at most `most` unfinished handshakes at the same time.
    pub fn new(most: usize) -> Self {
        let (count, next, by_address) = (0, 0, HashMap::new());
        Self(Arc::new(Mutex::new(UnfinishedHandshakes { most: most.max(1), count, next, by_address })))
    }

    /// Registers a connection. If too many connections are registered, another one is dropped. IPv6
    /// addresses count together if they are in the same /64 network.
    pub fn enter(&self, from: IpAddr) -> HandshakeSlot {
        let from = network(from);
        let (alive, dropped) = oneshot::channel();
        let mut unfinished = self.lock();
        if unfinished.count >= unfinished.most {
            unfinished.drop_one();
        }
        let number = unfinished.next;
        unfinished.next += 1;
        unfinished.count += 1;
        unfinished.by_address.entry(from).or_default().insert(number, alive);
        HandshakeSlot { limiter: self.clone(), from, number, dropped }
    }

    fn lock(&self) -> MutexGuard<'_, UnfinishedHandshakes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnfinishedHandshakes {
    /// Drops the oldest connection of the address with the most connections. If several addresses
    /// have equally many, it drops the connection that has waited longest.
    fn drop_one(&mut self) {
        let oldest = |of: &BTreeMap<u64, _>| of.first_key_value().map(|(number, _)| *number);
        let busiest = self.by_address.iter().max_by_key(|(_, of)| (of.len(), Reverse(oldest(of))));
        if let Some((from, number)) = busiest.and_then(|(from, of)| Some((*from, oldest(of)?))) {
            self.remove(from, number);
        }
    }

    fn remove(&mut self, from: IpAddr, number: u64) {
        let Some(of) = self.by_address.get_mut(&from) else { return };
        if of.remove(&number).is_some() {
            self.count -= 1;
        }
        if of.is_empty() {
            self.by_address.remove(&from);
        }
    }
}

impl HandshakeSlot {
    /// Returns when the connection must be closed because another one takes its place.
    pub async fn until_dropped(&mut self) {
        // This resolves when the sender is dropped, because the sender never sends.
        let _closed = (&mut self.dropped).await;
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.limiter.lock().remove(self.from, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn the_oldest_of_the_busiest_address_is_dropped_first() {
        let doors = HandshakeLimiter::new(8);
        let (crowd, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut honest = doors.enter(other);
        let mut silent: Vec<HandshakeSlot> = (0..20).map(|_| doors.enter(crowd)).collect();
        let dropped: Vec<bool> = silent.iter_mut().map(|one| one.until_dropped().now_or_never().is_some()).collect();
        assert_eq!(dropped, (0..20).map(|n| n < 13).collect::<Vec<_>>());
        assert!(honest.until_dropped().now_or_never().is_none(), "another address keeps its own");
        // A connection from a new address, or from the busiest address itself, also ends the oldest
        // connection of the busiest address.
        let mut late = doors.enter([10, 0, 0, 3].into());
        assert!(late.until_dropped().now_or_never().is_none());
        assert!(silent[13].until_dropped().now_or_never().is_some());
        drop((honest, late, silent));
        let left = doors.lock();
        assert!(left.by_address.is_empty() && left.count == 0, "an address without connections takes no room");
    }
}
