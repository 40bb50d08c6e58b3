//! What of a generation every decision needs: groups, services, policies and limits. The files themselves are a blob.

use super::{GroupName, Node, NodeName, ServiceName, Sha256, Windows};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The strongest reason that the evidence shows; reboot before agent before network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    Network,
    Reboot,
    Agent,
    Left,
    Reinstalled,
    Unknown,
}

/// What a policy is chosen by: a cause of absence, or an occasion without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Occasion {
    Network,
    Reboot,
    Agent,
    Left,
    /// Drift of a node that was never away.
    Live,
    /// A new generation.
    Apply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Examine and say.
    Report,
    /// Examine, set up again if drifted.
    Check,
    /// Set up again always.
    Resetup,
}

/// Variables that an order gives its job, by name.
pub type Vars = BTreeMap<String, serde_json::Value>;

/// What the cluster knows beyond the fleet; nothing where there is no cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// IP addresses by node name, as entered.
    pub addresses: BTreeMap<String, String>,
    /// Names of the nodes whose desired cluster role is manager.
    pub managers: BTreeSet<String>,
    /// Of the job that renders with it, stronger than the fleet's; none where it is about what is desired.
    #[serde(default)]
    pub vars: Vars,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSummary {
    pub hosts: BTreeMap<NodeName, HostSummary>,
    pub groups: BTreeMap<GroupName, GroupSummary>,
    pub services: BTreeMap<ServiceName, ServiceSummary>,
    pub limits: Limits,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSummary {
    pub group: GroupName,
    /// Hash of all that this host is to be: plans, templates, files, checks, variables. Differs: the desired state changed.
    pub desired: Sha256,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSummary {
    pub services: Vec<ServiceName>,
    /// Absent occasions have `default_policy`.
    pub policy: BTreeMap<Occasion, Policy>,
    /// Never two of it at once below a majority of its members.
    pub quorum: bool,
    /// Set up the whole group again instead of the drifted services and their dependents.
    pub whole: bool,
    /// At most so many of this group are set up again at once.
    pub parallel: u32,
    /// When re-setups may begin; the fleet's own are in them already.
    #[serde(default)]
    pub windows: Windows,
}

impl GroupSummary {
    /// `check` on return, `report` otherwise, unless the group says differently.
    pub fn policy(&self, occasion: Occasion) -> Policy {
        self.policy.get(&occasion).copied().unwrap_or(match occasion {
            Occasion::Live | Occasion::Apply => Policy::Report,
            _ => Policy::Check,
        })
    }

    /// The same for one node: where the group says nothing, a node that was only adopted is reported on.
    pub fn policy_of(&self, node: &Node, occasion: Occasion) -> Policy {
        if self.spares(node, occasion) { Policy::Report } else { self.policy(occasion) }
    }

    /// Only its adoption keeps this node from being set up again.
    pub fn spares(&self, node: &Node, occasion: Occasion) -> bool {
        node.watched && !self.policy.contains_key(&occasion) && self.policy(occasion) != Policy::Report
    }
}

impl FleetSummary {
    /// Whether a service is only looked at.
    pub fn watches(&self, service: &ServiceName) -> bool {
        self.services.get(service).is_some_and(|s| s.watched)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSummary {
    pub depends_on: Vec<ServiceName>,
    /// A difference on a recorded path alone leads to a re-setup.
    pub resetup_on_recorded: bool,
    /// Only looked at: nothing of it is a reason to set up again, and cleanup leaves it as it is.
    #[serde(default)]
    pub watched: bool,
}

/// Every duration and budget; `remoor.yml` may set each (`limits:`). Milliseconds unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Settle time after a reboot, at most; ends early once everything passes.
    pub settle_ms: u64,
    /// Waits before the 2nd, 3rd, 4th attempt; after the last the job is held.
    pub retry_ms: Vec<u64>,
    /// So many absences ...
    pub flap_count: u32,
    /// ... within this time are flapping ...
    pub flap_window_ms: u64,
    /// ... which holds a node down this long.
    pub flap_hold_ms: u64,
    /// Whole fleet, percent of nodes set up again at once (at least 1).
    pub fleet_percent: u32,
    /// Breaker: more than this percent of a group (and at least `breaker_min` nodes) drifted or away within `breaker_window_ms`.
    pub breaker_group_percent: u32,
    pub breaker_fleet_percent: u32,
    pub breaker_min: u32,
    pub breaker_window_ms: u64,
    /// New automatic attempts start so long after a leader change.
    pub leader_grace_ms: u64,
    /// SSH probe of a silent node, at most this often.
    pub probe_ms: u64,
    /// An examination that ended unknown is tried again after this time.
    pub unknown_retry_ms: u64,
    /// Longest examination.
    pub exam_timeout_ms: u64,
    /// Longest phase of an attempt.
    pub phase_timeout_ms: u64,
    /// The agent's own checks, and the pass over its files.
    pub check_interval_ms: u64,
    /// A node with peers dials known nodes that are missing this often.
    pub rejoin_ms: u64,
    /// A node that left is taken out so long afterwards.
    pub remove_left_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            settle_ms: 60_000,
            retry_ms: vec![60_000, 300_000, 900_000],
            flap_count: 3,
            flap_window_ms: 600_000,
            flap_hold_ms: 600_000,
            fleet_percent: 10,
            breaker_group_percent: 20,
            breaker_fleet_percent: 40,
            breaker_min: 3,
            breaker_window_ms: 600_000,
            leader_grace_ms: 60_000,
            probe_ms: 30_000,
            unknown_retry_ms: 5_000,
            exam_timeout_ms: 20_000,
            phase_timeout_ms: 1_800_000,
            check_interval_ms: 60_000,
            rejoin_ms: 60_000,
            remove_left_ms: 7 * 24 * 3_600_000,
        }
    }
}
