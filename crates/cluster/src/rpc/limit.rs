//! A token bucket for each client address. It prevents guessing of join secrets.

use super::caller::PeerAddr;
use super::wire::{ApiFailure, Code};
pub use crate::keyed_limiter::network;

use crate::keyed_limiter::{KeyedLimiter, Overflow};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum remembered addresses. Beyond it, all new addresses share one bucket.
const ADDRESSES_MAX: usize = 4096;

/// Allows each address `burst` attempts at once, and after that one attempt in each `refill`.
#[derive(Debug)]
pub struct RateLimit(Mutex<KeyedLimiter<IpAddr>>);

impl RateLimit {
    /// A limit of `burst` attempts at once, and after that one attempt in each `refill`.
    pub fn new(burst: u32, refill: Duration) -> Self {
        Self(Mutex::new(KeyedLimiter::new(burst, refill, ADDRESSES_MAX, Overflow::ShareBucket)))
    }

    /// Takes one token from the bucket of the caller's address now. If there is no token, the error
    /// is the answer to the caller. Callers on the local socket are not limited.
    pub fn admit(&self, peer: PeerAddr) -> Result<(), ApiFailure> {
        let Some(addr) = peer.0 else { return Ok(()) };
        self.take(addr.ip(), Instant::now()).map_err(|wait| {
            let message = format!("too many attempts from {}; retry in {} s", addr.ip(), wait.as_secs() + 1);
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            ApiFailure::new(Code::RateLimited, message).details(serde_json::json!({ "wait_ms": wait_ms }))
        })
    }

    /// Takes one token from the bucket of `peer`, or returns the time until there is a token. All
    /// addresses of an IPv6 /64 network share one bucket.
    pub fn take(&self, peer: IpAddr, now: Instant) -> Result<(), Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(network(peer), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    #[test]
    fn a_burst_then_one_per_refill() {
        let limit = RateLimit::new(3, SECOND);
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(limit.take(ip(1), start), Ok(()));
        }
        assert_eq!(limit.take(ip(1), start), Err(SECOND));
        assert_eq!(limit.take(ip(2), start), Ok(()), "another address has its own bucket");
        assert_eq!(limit.take(ip(1), start + SECOND), Ok(()));
        assert!(limit.take(ip(1), start + SECOND).is_err());
        let later = start + 100 * SECOND;
        assert_eq!((0..9).filter(|_| limit.take(ip(1), later).is_ok()).count(), 3, "at most a burst is saved up");
    }

    #[test]
    fn the_answer_says_how_long_to_wait() {
        let limit = RateLimit::new(1, 1000 * SECOND);
        let peer = PeerAddr(Some((ip(1), 7).into()));
        limit.admit(peer).unwrap();
        let failure = limit.admit(peer).unwrap_err();
        assert_eq!(failure.code, Code::RateLimited);
        assert!(failure.details["wait_ms"].as_u64().is_some_and(|ms| ms > 0));
        assert_eq!(limit.admit(PeerAddr(None)), Ok(()));
    }

    #[test]
    fn memory_is_bounded() {
        let limit = RateLimit::new(2, SECOND);
        let start = Instant::now();
        for n in 0..ADDRESSES_MAX as u32 * 2 {
            let _ = limit.take(ip(n), start);
        }
        assert!(limit.0.lock().unwrap().remembered_keys() <= ADDRESSES_MAX + 1);
        assert!(limit.take(ip(u32::MAX), start).is_err(), "the shared bucket is used up");
        assert_eq!(limit.take(ip(u32::MAX), start + 10 * SECOND), Ok(()), "full buckets are forgotten");
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let limit = RateLimit::new(1, SECOND);
        let now = Instant::now();
        assert!(limit.take("2001:db8::1".parse().unwrap(), now).is_ok());
        assert!(limit.take("2001:db8::2".parse().unwrap(), now).is_err());
        assert!(limit.take("2001:db8:0:1::1".parse().unwrap(), now).is_ok());
    }
}
