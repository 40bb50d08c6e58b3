//! The parameters of one run: the rate of each fault, the durations, and the planted bug.

use super::planted::Planted;
use super::rng::Rng;
use super::world::EPOCH;
use remoor_model::{Limits, Wall, WeekSpan, Windows};

#[derive(Debug, Clone)]
pub struct Options {
    pub seed: u64,
    /// Length of the phase with faults.
    pub faults_ms: u64,
    /// Maximum length of the phase without faults (T of invariant I10). No work may be open when
    /// this phase ends.
    pub calm_ms: u64,
    /// Chance of a fault per simulated second, in thousandths.
    pub fault_permille: u64,
    pub operator_permille: u64,
    /// Chance that a proposal is lost, in thousandths.
    pub lost_permille: u64,
    pub slow_permille: u64,
    pub twice_permille: u64,
    /// Chance that a second passes without gossip from a node, in thousandths.
    pub gossip_lag_permille: u64,
    /// Chance that a phase of an attempt fails, in thousandths.
    pub failing_permille: u64,
    /// The maximum difference between the managers' clocks.
    pub skew_ms: u64,
    pub limits: Limits,
    /// Whether the maintenance windows of the workers are closed during one minute of the phase
    /// with faults.
    pub windows: bool,
    /// Whether one service of the edge group is monitor-only.
    pub with_monitored: bool,
    pub planted: Option<Planted>,
    pub trace: bool,
}

impl Options {
    /// The options for one seed of the search. The seed chooses the rates of all faults.
    pub fn for_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0bad_5eed);
        Self {
            seed,
            faults_ms: rng.in_range(60_000, 150_000),
            calm_ms: 400_000,
            fault_permille: [60, 150, 300, 500][rng.up_to(4)],
            operator_permille: [0, 60, 150, 300][rng.up_to(4)],
            lost_permille: [0, 20, 100][rng.up_to(3)],
            slow_permille: [0, 20, 60][rng.up_to(3)],
            twice_permille: [0, 30, 100][rng.up_to(3)],
            gossip_lag_permille: [100, 400, 700][rng.up_to(3)],
            failing_permille: [0, 60, 200][rng.up_to(3)],
            skew_ms: [0, 0, 3_000][rng.up_to(3)],
            limits: limits(),
            windows: rng.chance(500),
            with_monitored: rng.chance(400),
            planted: None,
            trace: false,
        }
    }

    /// The options for a story: only the story causes faults and orders.
    pub fn story() -> Self {
        Self {
            fault_permille: 0,
            operator_permille: 0,
            lost_permille: 0,
            slow_permille: 0,
            twice_permille: 0,
            gossip_lag_permille: 0,
            failing_permille: 0,
            skew_ms: 0,
            windows: false,
            with_monitored: false,
            ..Self::for_seed(1)
        }
    }
}

/// Start and end of the time in which no work may begin on the workers, in milliseconds from the
/// start of the run. Both are whole minutes of the wall clock.
const SHUT_MS: (u64, u64) = (20_000, 80_000);

impl Options {
    pub fn windows(&self, group: &str) -> Windows {
        let minute = |ms: u64| (((EPOCH + ms) / 60_000 + 3 * 1440) % (7 * 1440)) as u32;
        let deny = WeekSpan { from: minute(SHUT_MS.0), to: minute(SHUT_MS.1) };
        Windows { allow: Vec::new(), deny: if self.windows && group == "worker" { vec![deny] } else { Vec::new() } }
    }

    /// Whether the group's maintenance window is closed at this time, so that no work may begin.
    /// This is calculated independently of the program's own windows.
    pub fn is_window_closed(&self, group: &str, at: Wall) -> bool {
        self.windows && group == "worker" && (EPOCH + SHUT_MS.0..EPOCH + SHUT_MS.1).contains(&at.0)
    }
}

/// The limits of production, but with shorter times, because a run must contain many decisions
/// within a few simulated minutes.
pub fn limits() -> Limits {
    Limits {
        settle_ms: 6_000,
        retry_ms: vec![3_000, 6_000, 9_000],
        flap_count: 4,
        flap_window_ms: 60_000,
        flap_hold_ms: 15_000,
        fleet_percent: 25,
        leader_grace_ms: 5_000,
        probe_ms: 5_000,
        unknown_retry_ms: 2_000,
        exam_timeout_ms: 5_000,
        phase_timeout_ms: 60_000,
        breaker_window_ms: 40_000,
        check_interval_ms: 8_000,
        ..Limits::default()
    }
}
