//! Limits the unfinished TLS handshakes of one address. A stranger who opens connections and sends
//! nothing must not use up the capacity of other addresses or of authenticated clients. Many nodes
//! may share one address behind NAT. So connections beyond the limit wait in a queue, and are
//! rejected only when the queue is full.

use super::limit::network;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Concurrent handshakes of one address. An agent's takes milliseconds.
const AT_ONCE: usize = 32;
/// Maximum connections of one address, in the handshake or queued.
const WITH_QUEUE: usize = 4 * AT_ONCE;

/// The limiter for all addresses. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct HandshakeLimiter(Arc<Mutex<HashMap<IpAddr, AddressHandshakes>>>);

#[derive(Debug)]
struct AddressHandshakes {
    permits: Arc<Semaphore>,
    /// Connections in the handshake or waiting for it.
    count: usize,
}

/// A connection whose handshake has not finished.
#[derive(Debug)]
pub struct HandshakeSlot {
    limiter: HandshakeLimiter,
    from: IpAddr,
    permits: Arc<Semaphore>,
}

impl HandshakeLimiter {
    /// Registers a connection. None: this address has too many unfinished handshakes. An IPv6
    /// address is its /64 network.
    pub fn try_acquire(&self, from: IpAddr) -> Option<HandshakeSlot> {
        let from = network(from);
        let mut doors = self.lock();
        let door = doors
            .entry(from)
            .or_insert_with(|| AddressHandshakes { permits: Arc::new(Semaphore::new(AT_ONCE)), count: 0 });
        if door.count >= WITH_QUEUE {
            return None;
        }
        door.count += 1;
        Some(HandshakeSlot { limiter: self.clone(), from, permits: door.permits.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, AddressHandshakes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandshakeSlot {
    /// Waits for a permit, in order of arrival. Keep the permit until the handshake has finished.
    pub async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().acquire_owned().await.ok()
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut doors = self.limiter.lock();
        if let Some(door) = doors.get_mut(&self.from) {
            door.count -= 1;
            if door.count == 0 {
                doors.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn one_address_waits_for_itself_alone_and_leaves_nothing_behind() {
        let doors = HandshakeLimiter::default();
        let (crowd, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut guests: Vec<HandshakeSlot> = (0..WITH_QUEUE).map(|_| doors.try_acquire(crowd).expect("room")).collect();
        assert!(doors.try_acquire(crowd).is_none(), "the queue is bounded");
        let mut turns: Vec<_> = guests.iter().map(|g| g.acquire().now_or_never().flatten()).collect();
        assert_eq!(turns.iter().flatten().count(), AT_ONCE);
        let honest = doors.try_acquire(other).expect("another address");
        assert!(honest.acquire().now_or_never().is_some(), "and it need not wait");
        // One handshake finishes: the first in the queue continues, and one more may enter.
        let next = guests.pop().expect("one that waits");
        turns.remove(0);
        assert!(next.acquire().now_or_never().is_some());
        drop((guests, turns, next, honest));
        assert!(doors.lock().is_empty(), "an address without connections takes no room");
    }
}
