//! Warns before this node's certificate expires: daily in the log, and on a manager also with a
//! notice.

use remoor_cluster::rpc::identity;
use remoor_model::{NodeName, Wall};
use std::time::Duration;
use tokio::sync::watch;

/// Interval of the warnings about a certificate that expires soon.
const EVERY: Duration = Duration::from_secs(24 * 3600);
/// Delay of the first warning after the start of a manager. A manager needs this time to read the
/// targets of its notices and to receive the certificates of other nodes.
const SETTLED: Duration = Duration::from_secs(600);

/// Logs the warning about this node's certificate immediately and then daily. No warning is logged
/// while `told` returns true, because the manager service then warns.
pub fn warn_in_log(
    name: &NodeName,
    not_after: impl Fn() -> Wall + Send + 'static,
    told: impl Fn() -> bool + Send + 'static,
    stopped: watch::Receiver<bool>,
) {
    let name = name.clone();
    let round = move || {
        if !told() {
            log_expiry(&name, not_after());
        }
    };
    tokio::spawn(daily((Duration::ZERO, EVERY), stopped, round));
}

/// Warns on a manager: logs the warning once, and calls `tell` after the delay `SETTLED` and then
/// daily. `tell` sends a notice, which is logged too.
pub fn warn_on_manager(
    name: &NodeName,
    not_after: Wall,
    stopped: watch::Receiver<bool>,
    tell: impl Fn() + Send + 'static,
) {
    log_expiry(name, not_after);
    tokio::spawn(daily((SETTLED, EVERY), stopped, tell));
}

fn log_expiry(name: &NodeName, not_after: Wall) {
    if let Some(text) = identity::expiry_notice(name, not_after, crate::manager::wall()) {
        tracing::warn!("{text}");
    }
}

async fn daily((first, every): (Duration, Duration), mut stopped: watch::Receiver<bool>, round: impl Fn()) {
    let mut next = first;
    while tokio::time::timeout(next, stopped.wait_for(|stop| *stop)).await.is_err() {
        round();
        next = every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn it_goes_round_until_the_daemon_ends() {
        let (stop, stopped) = watch::channel(false);
        let rounds = Arc::new(AtomicU32::new(0));
        let count = rounds.clone();
        let round = move || {
            if count.fetch_add(1, Ordering::Relaxed) == 2 {
                stop.send_replace(true);
            }
        };
        let tick = Duration::from_millis(1);
        tokio::time::timeout(Duration::from_secs(60), daily((tick, tick), stopped, round)).await.unwrap();
        assert_eq!(rounds.load(Ordering::Relaxed), 3);
    }
}
