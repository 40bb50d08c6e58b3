//! The report of an agent about itself, which is sent by gossip. It is a hint, never evidence.

use super::{BootId, CheckResult, CheckState, Epoch, GenerationSeq, Instance, OnFail, Sha256, Wall};
use serde::{Deserialize, Serialize};

/// Summary of the periodic checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckSummary {
    /// There is no manifest yet, or the checks have not run yet.
    #[default]
    None,
    Pass,
    Fail,
    Unknown,
}

impl CheckSummary {
    /// The worst of the results. Checks with `on-fail: none` do not count.
    pub fn from_results(results: &[CheckResult]) -> Self {
        let any = |state| results.iter().any(|r| r.state == state && r.on_fail != OnFail::None);
        match () {
            () if any(CheckState::Fail) => CheckSummary::Fail,
            () if any(CheckState::Unknown) => CheckSummary::Unknown,
            () => CheckSummary::Pass,
        }
    }
}

/// The report of an agent. Gossip sends it with a signature; both together have at most 256 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whether the agent announced that it leaves. Its silence is then not a failure.
    pub leaving: bool,
    pub boot: BootId,
    pub instance: Instance,
    /// Number of episodes without any live peer since the agent's record began.
    pub isolation: u32,
    /// Root of the node digest. All zero if it was not computed yet.
    pub digest: Sha256,
    /// Generation of the manifest by which the digest was computed.
    pub generation: GenerationSeq,
    pub checks: CheckSummary,
    /// Version of the agent's program. Empty if the agent does not report it.
    #[serde(default)]
    pub version: String,
    /// Hash of failed and inconclusive checks, see [`super::failure_hash`]. 0 if there is no
    /// problem, or from an older agent, which does not report it.
    #[serde(default, rename = "amiss")]
    pub failure_hash: u64,
    /// Epoch of the certificate that the node's API presents. Other nodes can verify the epoch at
    /// the API. 0 from an older agent, which does not report it.
    #[serde(default)]
    pub epoch: Epoch,
    /// The port of the node's API. 0 from an older agent, which does not report it.
    #[serde(default)]
    pub api: u16,
    /// Whether a manager service runs on the node.
    #[serde(default)]
    pub manages: bool,
    /// Orders the reports of one node. The upper 32 bits are the number of the agent's start. The
    /// lower ones are the number of the report since that start. 0 from an older agent, which does
    /// not report it.
    #[serde(default)]
    pub sequence: u64,
    /// The time of the node's wall clock when it signed the report. 0 from an older agent.
    #[serde(default)]
    pub signed_at: Wall,
}

/// Minimum interval at which an agent signs its report again although nothing changed.
const RENEWAL_MIN_MS: u64 = 5 * 60_000;
/// An agent signs its unchanged report again after at least this time multiplied by the number of
/// nodes. So all nodes together renew about one report a second. The total is limited because each
/// renewal is gossiped to all nodes.
const RENEWAL_PER_NODE_MS: u64 = 1_000;
/// A report that was not renewed for this number of renewal intervals is stale.
const RENEWALS_MISSED: u64 = 3;

/// Interval at which an agent in a cluster of `nodes` nodes signs its report again, in
/// milliseconds.
pub fn report_renewal_ms(nodes: usize) -> u64 {
    (nodes as u64).saturating_mul(RENEWAL_PER_NODE_MS).max(RENEWAL_MIN_MS)
}

/// Age from which the last report of a node is stale, in milliseconds. The node may then have
/// changed although no report shows the change.
pub fn report_stale_ms(nodes: usize) -> u64 {
    report_renewal_ms(nodes).saturating_mul(RENEWALS_MISSED)
}

impl Report {
    /// Whether the report could not be read. Boot id and instance are then empty, although every
    /// agent sets them. Such a report shows only that the node is alive.
    pub fn is_blank(&self) -> bool {
        self.boot.as_str().is_empty() && self.instance.0.is_empty()
    }

    /// Sets the time of signing, and gives the report the next sequence number of its node.
    pub fn stamp(&mut self, now: Wall) {
        self.sequence = self.sequence.saturating_add(1);
        self.signed_at = now;
    }

    /// The sequence number and the time of signing, which order the reports of one node.
    pub fn order(&self) -> ReportOrder {
        ReportOrder { sequence: self.sequence, signed_at: self.signed_at }
    }

    /// Whether the report is equal to `before` except for its sequence number and its time of
    /// signing.
    pub fn is_renewal_of(&self, before: &Report) -> bool {
        let ReportOrder { sequence, signed_at } = before.order();
        Report { sequence, signed_at, ..self.clone() } == *before
    }
}

/// The sequence number and the time of signing of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportOrder {
    sequence: u64,
    signed_at: Wall,
}

impl ReportOrder {
    /// Whether the report was signed before `other`, a report of the same node. Both the number and
    /// the clock must show it. A data directory that was rolled back lowers the number, and a clock
    /// that was set back lowers the time. After such an event, reports from before the event can be
    /// replayed. A report of an older agent has neither, so it is older than each numbered one.
    pub fn is_older_than(self, other: ReportOrder) -> bool {
        self.sequence < other.sequence && self.signed_at <= other.signed_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed_report(sequence: u64, at: u64) -> Report {
        Report { sequence, signed_at: Wall(at), ..Report::default() }
    }

    #[test]
    fn a_report_is_older_if_number_and_clock_agree() {
        let known = signed_report(5, 1_000).order();
        for (report, older) in [
            (signed_report(4, 900), true),
            (signed_report(4, 1_000), true),
            (signed_report(5, 1_000), false),
            (signed_report(6, 900), false),
            // The data directory of the node was rolled back.
            (signed_report(1, 2_000), false),
            // A program of an earlier version replaced the agent's program.
            (signed_report(0, 0), true),
        ] {
            assert_eq!(report.order().is_older_than(known), older, "{report:?}");
        }
        let unnumbered = signed_report(0, 0).order();
        assert!(!unnumbered.is_older_than(unnumbered), "reports of older agents are not ordered");
    }

    #[test]
    fn all_nodes_together_renew_about_one_report_a_second() {
        assert_eq!(
            (report_renewal_ms(3), report_renewal_ms(300), report_renewal_ms(1_000)),
            (300_000, 300_000, 1_000_000)
        );
        assert_eq!(report_stale_ms(3), 900_000);
    }
}
