//! The parameters of one run: the rate of each fault, the durations, and the planted bug.

use super::planted::{self, Planted};
use crate::rng::Rng;

#[derive(Debug, Clone)]
pub struct Options {
    pub seed: u64,
    pub faults_ms: u64,
    /// The time after the end of the faults within which the desired state must be reached.
    pub calm_ms: u64,
    /// Chance of a fault per simulated second, in thousandths.
    pub fault_permille: u64,
    pub operator_permille: u64,
    pub traffic_permille: u64,
    /// Chance that a live node is missing in gossip, in thousandths.
    pub gossip_lag_permille: u64,
    /// Chance that a message or an answer is lost, in thousandths.
    pub loss_permille: u64,
    /// Chance that a step of the role manager is lost, in thousandths.
    pub lost_permille: u64,
    pub late_permille: u64,
    pub twice_permille: u64,
    pub declines_permille: u64,
    /// Chance that the leader crashes between the two entries of a change of the voters, in
    /// thousandths.
    pub half_permille: u64,
    /// The time for which a leader without a majority believes that it leads.
    pub believes_ms: u64,
    pub planted: Option<Planted>,
    pub trace: bool,
}

impl Options {
    pub fn for_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0bad_5eed);
        Self {
            seed,
            faults_ms: rng.in_range(40_000, 120_000),
            calm_ms: 90_000,
            fault_permille: [0, 60, 150, 300][rng.up_to(4)],
            operator_permille: [60, 150, 300][rng.up_to(3)],
            traffic_permille: [0, 50, 200][rng.up_to(3)],
            gossip_lag_permille: [0, 100, 400][rng.up_to(3)],
            loss_permille: [0, 20, 100][rng.up_to(3)],
            lost_permille: [0, 30, 150][rng.up_to(3)],
            late_permille: [0, 50, 200][rng.up_to(3)],
            twice_permille: [0, 50, 200][rng.up_to(3)],
            declines_permille: [0, 300][rng.up_to(2)],
            half_permille: [0, 50, 200][rng.up_to(3)],
            believes_ms: [1_000, 3_000, 10_000][rng.up_to(3)],
            planted: None,
            trace: false,
        }
    }

    /// The only law that is checked. None if all laws are checked.
    pub fn law(&self) -> Option<&'static str> {
        let planted = self.planted?;
        planted::ALL.iter().find(|(p, _)| *p == planted).map(|(_, law)| *law)
    }
}
