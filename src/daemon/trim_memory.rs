//! Decides when the daemon returns unused memory to the kernel (`files/trim_memory.rs`): while the
//! daemon is idle.

use std::io;
use std::time::Duration;
use tokio::sync::watch;

/// The times at which memory is trimmed.
#[derive(Debug, Clone, Copy)]
pub struct TrimSchedule {
    /// Delay of a pass after the agent's examination of its node or request to the managers,
    /// because an answer may still be in transfer.
    pub settle: Duration,
    /// Minimum time between two passes that trim memory.
    pub spacing: Duration,
    /// If there is no examination or request for this time, a pass trims memory nevertheless.
    pub at_latest: Duration,
}

impl Default for TrimSchedule {
    fn default() -> Self {
        Self { settle: Duration::from_secs(2), spacing: Duration::from_secs(5), at_latest: Duration::from_secs(120) }
    }
}

/// Trims memory after each examination by the agent and each request to the managers; `worked`
/// signals them. The loop ends when `worked` is closed or a pass fails. `pass` returns the released
/// memory in KiB.
pub async fn trim_when_idle(
    pace: TrimSchedule,
    mut worked: watch::Receiver<u64>,
    mut pass: impl FnMut() -> io::Result<u64>,
) {
    loop {
        if let Ok(Err(_)) = tokio::time::timeout(pace.at_latest, worked.changed()).await {
            return;
        }
        tokio::time::sleep(pace.settle).await;
        worked.mark_unchanged();
        match pass() {
            Ok(kb) => tracing::trace!(kb, "memory trimmed"),
            Err(error) => {
                tracing::info!(%error, "memory can't be trimmed; the pages of the program stay resident");
                return;
            }
        }
        tokio::time::sleep(pace.spacing).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tokio::sync::mpsc;

    const SPACING: Duration = Duration::from_millis(200);

    fn pace(at_latest: Duration) -> TrimSchedule {
        TrimSchedule { settle: Duration::from_millis(1), spacing: SPACING, at_latest }
    }

    /// Starts the loop that trims memory. Each pass sends the time at which it ran to the returned
    /// receiver.
    fn start_loop(
        pace: TrimSchedule,
        looked: watch::Receiver<u64>,
    ) -> (tokio::task::JoinHandle<()>, mpsc::Receiver<Instant>) {
        let (tell, passes) = mpsc::channel(100);
        let pass = move || tell.try_send(Instant::now()).map(|()| 1).map_err(io::Error::other);
        (tokio::spawn(trim_when_idle(pace, looked, pass)), passes)
    }

    #[tokio::test]
    async fn passes_follow_looks_at_a_distance_and_end_with_them() {
        let (tell, looked) = watch::channel(0);
        let (task, mut passes) = start_loop(pace(Duration::from_secs(3600)), looked);
        let mut last: Option<Instant> = None;
        for _ in 0..3 {
            let at = loop {
                tell.send_modify(|looks| *looks += 1);
                if let Ok(at) = tokio::time::timeout(SPACING / 20, passes.recv()).await {
                    break at.expect("a pass");
                }
            };
            assert!(last.is_none_or(|last| at - last >= SPACING));
            last = Some(at);
        }
        drop(tell);
        task.await.expect("no panic");
    }

    #[tokio::test]
    async fn without_a_look_there_are_passes_too_and_one_that_fails_is_the_last() {
        let (_tell, looked) = watch::channel(0);
        let (task, mut passes) = start_loop(pace(SPACING), looked);
        let first = passes.recv().await.expect("a pass");
        assert!(passes.recv().await.expect("a pass") - first >= SPACING * 2);
        drop(passes);
        task.await.expect("no panic");
    }
}
