//! Counts the data that the transport and the guard refused, and logs one line for each reason and
//! minute. Not every refusal is logged, because strangers cause refusals as fast as they send.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

/// The refusals by reason. The reasons are fixed texts, so their number is bounded.
#[derive(Default)]
pub struct Refusals(Mutex<BTreeMap<&'static str, ReasonCount>>);

#[derive(Default)]
struct ReasonCount {
    logged: Option<Instant>,
    /// The number of refusals since the last log line.
    times: u64,
    total: u64,
}

impl Refusals {
    /// Counts a refusal. Logs it if the last line about this reason is at least a minute old.
    pub fn count(&self, reason: &'static str, from: SocketAddr, now: Instant) {
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = reasons.entry(reason).or_default();
        (seen.times, seen.total) = (seen.times + 1, seen.total + 1);
        if seen.logged.is_none_or(|at| now.saturating_duration_since(at) >= INTERVAL) {
            tracing::warn!(reason, %from, times = seen.times, "gossip was refused");
            (seen.logged, seen.times) = (Some(now), 0);
        }
    }

    /// The number of refusals since the start of the program, by reason.
    pub fn totals(&self) -> BTreeMap<&'static str, u64> {
        let reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.iter().map(|(reason, seen)| (*reason, seen.total)).collect()
    }
}
