//! The part of a generation that every decision needs: groups, services, policies and limits. The
//! files themselves are stored as a blob.

use super::{GroupName, Node, NodeName, ServiceName, Sha256, Windows};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The cause of an absence. If the evidence shows several causes, `reboot` takes precedence over
/// `agent`, and `agent` over `network`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbsenceCause {
    Network,
    Reboot,
    Agent,
    Left,
    Reinstalled,
    Unknown,
}

/// The event to which a policy applies: an absence with a certain cause, or an event without an
/// absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    Network,
    Reboot,
    Agent,
    Left,
    /// Drift of a node that was not away.
    Live,
    /// A new generation.
    Apply,
}

/// The action of remoor on a node after the event of a [`Trigger`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The node is examined, and the result is reported.
    Report,
    /// The node is examined. If it drifted, it is set up again.
    Check,
    /// The node is always set up again.
    Resetup,
}

/// Variables that an order sets for its job, by name.
pub type JobVars = BTreeMap<String, serde_json::Value>;

/// The facts of the cluster that the fleet directory does not contain. Empty without a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterContext {
    /// IP addresses by node name, as recorded in the inventory.
    pub addresses: BTreeMap<String, String>,
    /// Names of the nodes whose desired cluster role is manager.
    pub managers: BTreeSet<String>,
    /// Variables of the job for which files are rendered. They override the fleet's variables.
    /// Empty when the desired state is rendered, because it belongs to no job.
    #[serde(default)]
    pub vars: JobVars,
}

/// The part of a generation that is kept in the replicated state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSummary {
    pub hosts: BTreeMap<NodeName, HostSummary>,
    pub groups: BTreeMap<GroupName, GroupSummary>,
    pub services: BTreeMap<ServiceName, ServiceSummary>,
    pub limits: Limits,
}

/// One host of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSummary {
    pub group: GroupName,
    /// Hash of everything that defines this host: plans, templates, files, checks, variables. If
    /// the hash changes, the desired state has changed.
    pub desired: Sha256,
}

/// One host group: its services, policies and limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSummary {
    pub services: Vec<ServiceName>,
    /// The configured policies. A trigger that is not in the map has the default policy, see
    /// [`GroupSummary::policy`].
    pub policy: BTreeMap<Trigger, Policy>,
    /// Whether a re-setup must leave a majority of the group's members up.
    pub quorum: bool,
    /// Whether a re-setup concerns all services of the group. Otherwise it concerns the drifted
    /// services and their dependents.
    pub whole: bool,
    /// Maximum number of members that are set up again at the same time.
    pub parallel: u32,
    /// The times at which re-setups may begin. They include the windows of the whole fleet.
    #[serde(default)]
    pub windows: Windows,
}

impl GroupSummary {
    /// The configured policy. The default is `check` after an absence and `report` otherwise.
    pub fn policy(&self, occasion: Trigger) -> Policy {
        self.policy.get(&occasion).copied().unwrap_or(match occasion {
            Trigger::Live | Trigger::Apply => Policy::Report,
            _ => Policy::Check,
        })
    }

    /// The policy for one node. Without a configured policy, drift of an adopted node is only
    /// reported.
    pub fn policy_of(&self, node: &Node, occasion: Trigger) -> Policy {
        if self.is_spared(node, occasion) { Policy::Report } else { self.policy(occasion) }
    }

    /// Whether the default policy does not set the node up again, because remoor only adopted it.
    pub fn is_spared(&self, node: &Node, occasion: Trigger) -> bool {
        node.setup.adopted_only && !self.policy.contains_key(&occasion) && self.policy(occasion) != Policy::Report
    }
}

impl FleetSummary {
    /// Whether the service is only monitored.
    pub fn is_monitor_only(&self, service: &ServiceName) -> bool {
        self.services.get(service).is_some_and(|s| s.monitor_only)
    }
}

/// The data of one service on which decisions depend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSummary {
    pub depends_on: Vec<ServiceName>,
    /// Whether a difference on a recorded path alone triggers a re-setup.
    pub resetup_on_recorded: bool,
    /// Whether the service is only monitored. It then never triggers a re-setup, and cleanup does
    /// not change it.
    #[serde(default, rename = "watched")]
    pub monitor_only: bool,
}

/// All durations and budgets. `remoor.yml` may set each of them (`limits:`). A value is in
/// milliseconds unless its name says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Maximum settle time after a reboot. It ends early when all checks pass.
    pub settle_ms: u64,
    /// Backoff before the 2nd, 3rd and 4th attempt. If the last attempt fails, the job is held.
    pub retry_ms: Vec<u64>,
    /// Number of absences that count as flapping if they occur within `flap_window_ms`.
    pub flap_count: u32,
    /// The period in which `flap_count` absences count as flapping.
    pub flap_window_ms: u64,
    /// The time for which a flapping node is held.
    pub flap_hold_ms: u64,
    /// Maximum percentage of all nodes that are set up again at the same time. At least 1 node is
    /// allowed.
    pub fleet_percent: u32,
    /// The breaker opens if more than this percentage of a group drifted or went away within
    /// `breaker_window_ms`. At least `breaker_min` nodes are necessary.
    pub breaker_group_percent: u32,
    pub breaker_fleet_percent: u32,
    pub breaker_min: u32,
    pub breaker_window_ms: u64,
    /// Delay after a change of the leader before new automatic attempts start.
    pub leader_grace_ms: u64,
    /// Minimum interval between SSH probes of a silent node.
    pub probe_ms: u64,
    /// Delay before an inconclusive examination is repeated.
    pub unknown_retry_ms: u64,
    /// Timeout of an examination.
    pub exam_timeout_ms: u64,
    /// Timeout of one phase of an attempt.
    pub phase_timeout_ms: u64,
    /// Interval at which the agent hashes its files and runs its checks.
    pub check_interval_ms: u64,
    /// Interval at which a node that has peers dials the missing nodes that it knows.
    pub rejoin_ms: u64,
    /// Delay before a node that left is removed.
    pub remove_left_ms: u64,
    /// Maximum time between two examinations of a node, whatever its agent reports. The default is
    /// not written, so that managers of the previous version can read a fleet that does not set
    /// this limit.
    #[serde(skip_serializing_if = "is_default_interval")]
    pub examination_interval_ms: u64,
}

/// Default of [`Limits::examination_interval_ms`].
const EXAMINATION_INTERVAL_MS: u64 = 6 * 3_600_000;

fn is_default_interval(ms: &u64) -> bool {
    *ms == EXAMINATION_INTERVAL_MS
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
            examination_interval_ms: EXAMINATION_INTERVAL_MS,
        }
    }
}
