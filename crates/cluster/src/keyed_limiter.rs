//! A rate limit for each of many keys that other machines choose, such as addresses and names. It
//! remembers a bounded number of keys. Pure; the time is passed in.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// The treatment of a new key while the maximum number of keys is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// Keys with a full bucket are forgotten. If the number of keys is still at its maximum, all
    /// new keys share one bucket, so that nobody gains attempts by choosing new keys.
    ShareBucket,
    /// The key whose bucket will be full first is forgotten. So a new key is always allowed.
    ForgetOldest,
}

/// A token bucket for each key. It allows `burst` events at once, and after that one event in each
/// `refill`.
#[derive(Debug)]
pub(crate) struct KeyedLimiter<K> {
    burst: u32,
    refill: Duration,
    keys_max: usize,
    overflow: Overflow,
    /// The time at which each key's bucket will be full again. A key with a full bucket need not be
    /// in the map. The key None stands for the shared bucket.
    full_at: BTreeMap<Option<K>, Instant>,
}

/// The address itself, or the /64 network of an IPv6 address, because one machine may use every
/// address of its /64 network.
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

impl<K: Ord + Clone> KeyedLimiter<K> {
    pub fn new(burst: u32, refill: Duration, keys_max: usize, overflow: Overflow) -> Self {
        Self { burst: burst.max(1), refill, keys_max, overflow, full_at: BTreeMap::new() }
    }

    /// Takes one token from the bucket of `key`, or returns the time until there is one.
    pub fn take(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        let key = self.bucket_of(key, now);
        let filled = self.full_at.get(&key).copied().unwrap_or(now).max(now) + self.refill;
        let wait = filled.saturating_duration_since(now + self.refill * self.burst);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.full_at.insert(key, filled);
        Ok(())
    }

    /// The bucket of `key`, or None for the shared bucket. If the maximum number of keys is
    /// remembered, forgets keys as `overflow` says.
    fn bucket_of(&mut self, key: K, now: Instant) -> Option<K> {
        let key = Some(key);
        if self.full_at.len() >= self.keys_max && !self.full_at.contains_key(&key) {
            match self.overflow {
                Overflow::ShareBucket => self.full_at.retain(|_, at| *at > now),
                Overflow::ForgetOldest => {
                    let oldest = self.full_at.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone());
                    oldest.and_then(|oldest| self.full_at.remove(&oldest));
                }
            }
            if self.full_at.len() >= self.keys_max {
                return None;
            }
        }
        key
    }

    #[cfg(test)]
    pub fn remembered_keys(&self) -> usize {
        self.full_at.len()
    }
}
