//! Answers about one node. `/v1/status` has one for each node.

use remoor_model::{Availability, Baseline, CheckSummary, Finding, Maintenance, Report, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A condition of a node, and its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionView {
    pub is: String,
    pub why: String,
}

/// One node in `/v1/status` and in answers about a node. The JSON object is flat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    pub id: u64,
    pub name: String,
    pub group: Option<String>,
    /// The desired role: `manager` or `worker`.
    pub role: String,
    /// The actual role according to the Raft membership: `leader`, `voter` or `learner`. None if
    /// the node is not a member of Raft.
    pub manager: Option<String>,
    /// `alive`, `suspect`, `away`, `agent-down`, `left` or `never-seen`. `unknown` if no leader
    /// confirms the presence.
    pub presence: String,
    pub presence_since: Option<String>,
    #[serde(flatten)]
    pub operation: OperationView,
    #[serde(flatten)]
    pub addresses: AddressesView,
    #[serde(flatten)]
    pub config: ConfigView,
    pub conditions: Vec<ConditionView>,
    pub job: Option<u64>,
    pub absences: u64,
    #[serde(flatten)]
    pub agent: ReportedAgentView,
    #[serde(flatten)]
    pub reachability: ReachabilityView,
    #[serde(flatten)]
    pub membership: NodeMembershipView,
    /// The zone that the operator set: nodes of one zone may fail together. Empty if none is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// The services of the node's group in the current generation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// The end of the certificate that the node presented in its last request to the answering
    /// manager. None if the node sent no request since that manager's daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<String>,
}

/// Whether a node is in service, and an operator's orders for the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationView {
    pub lifecycle: String,
    /// The phase in which the last job failed. The lifecycle does not show it.
    pub failed: Option<String>,
    pub availability: Availability,
    pub maintenance: Option<Maintenance>,
}

/// The addresses of a node, and its SSH host keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesView {
    pub api: String,
    pub gossip: String,
    pub ssh: Option<String>,
    pub ssh_fingerprints: Vec<String>,
}

/// The known configuration of a node, compared with its desired state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigView {
    /// The finding of the last verdict.
    pub finding: Option<Finding>,
    pub baseline: Option<Baseline>,
    /// Whether the desired state changed since the last provisioning.
    pub outdated: bool,
}

/// The known facts about a node's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedAgentView {
    #[serde(rename = "agent_faults")]
    pub faults: u32,
    /// The report that the agent gossips about itself. It is only a hint.
    pub report: Option<ReportView>,
    /// The version of the agent's program, or the version at the node's join if the agent does not
    /// report one.
    #[serde(default, rename = "agent_version")]
    pub version: String,
}

/// Whether managers reach a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachabilityView {
    /// The managers that cannot reach the node's SSH port although gossip lists the node as alive.
    pub unreachable_from: Vec<String>,
    /// The managers of `unreachable_from`, each with the time of its first failed attempt to reach
    /// the node.
    #[serde(default)]
    pub unreachable_since: BTreeMap<String, String>,
    /// The number of gossip pings that the node did not answer since the answering manager's daemon
    /// started. A short interruption does not make the node suspect.
    #[serde(default)]
    pub unanswered: u64,
}

/// The membership of a node in Raft, compared with its desired role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMembershipView {
    /// The desired role compared with the Raft membership: `worker`, `promoting`, `learner`,
    /// `voter`, `leader`, `demoting`, `lost`.
    #[serde(default, rename = "manager_state")]
    pub state: String,
    /// The condition for which the leader waits before the node gets its desired role.
    #[serde(default, rename = "manager_waits", skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The time for which a Raft member has not answered the leader, as text. Such a member takes
    /// no part in decisions, even if gossip lists its node as alive. None for a member that
    /// answers. Also None if no leader answered, because only the leader knows this time.
    #[serde(default, rename = "manager_silent", skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// Number of entries that a learner lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
}

/// The view of the report that a node's agent gossips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportView {
    pub boot: String,
    pub instance: String,
    pub isolation: u32,
    pub digest: String,
    pub generation: u64,
    pub checks: String,
    /// The version of the agent's program; empty if it does not report one.
    #[serde(default)]
    pub version: String,
    /// The time at which the agent signed the report, by the node's clock. None from an older
    /// agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<String>,
}

impl ReportView {
    /// The view of a report. None if the report is blank, because the agent uses a newer version of
    /// the format.
    pub fn from_report(report: &Report) -> Option<Self> {
        let checks = match report.checks {
            CheckSummary::None => "none",
            CheckSummary::Pass => "pass",
            CheckSummary::Fail => "fail",
            CheckSummary::Unknown => "unknown",
        };
        let short = |text: &str| text.get(..8).unwrap_or(text).to_owned();
        let taken = report.digest != Sha256::default();
        (!report.is_blank()).then(|| Self {
            boot: short(report.boot.as_str()),
            instance: short(&report.instance.0),
            isolation: report.isolation,
            digest: if taken { report.digest.short_hex() } else { String::new() },
            generation: report.generation.0,
            checks: checks.to_owned(),
            version: report.version.clone(),
            signed_at: (report.sequence != 0).then(|| crate::rpc::wire::rfc3339(report.signed_at)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value};

    /// Fields that may be missing in an answer. Either the answer is from an older manager, which
    /// does not send the field, or the field has no value.
    const OPTIONAL: &str = "agent_version baseline certificate_until failed finding group job lag maintenance manager \
        manager_silent manager_state manager_waits presence_since report services ssh unanswered unreachable_since zone";

    /// The test fixes the JSON form of a node, because other programs read it. Managers of the
    /// previous version send and read it too.
    #[test]
    fn the_json_form_of_a_node() {
        let text = include_str!("node_view.json");
        let view: NodeView = serde_json::from_str(text).expect("the JSON form");
        assert_eq!(serde_json::to_string_pretty(&view).expect("JSON"), text.trim_end(), "all fields in their order");

        let fields: Map<String, Value> = serde_json::from_str(text).expect("a JSON object");
        let read = |fields: Map<String, Value>| serde_json::from_value::<NodeView>(Value::Object(fields)).ok();
        let without = |left_out: &dyn Fn(&str) -> bool| {
            let kept = fields.iter().filter(|(name, _)| !left_out(name));
            read(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        };
        let mut optional: Vec<&str> =
            fields.keys().map(String::as_str).filter(|name| without(&|left_out| left_out == *name).is_some()).collect();
        optional.sort_unstable();
        assert_eq!(optional.join(" "), OPTIONAL, "the fields that may be missing");
        let least = without(&|name| optional.contains(&name)).expect("the smallest form");
        let least = serde_json::to_value(least).expect("JSON");
        for (name, value) in least.as_object().expect("an object") {
            let unset = [Value::Null, 0.into(), "".into(), Value::Object(Map::new())].contains(value);
            assert!(if optional.contains(&name.as_str()) { unset } else { *value == fields[name] }, "{name}: {value}");
        }
        let mut newer = fields.clone();
        newer.insert("field_of_a_newer_version".to_owned(), 1.into());
        assert_eq!(read(newer), Some(view), "unknown fields are ignored");
    }

    #[test]
    fn a_report_is_shown_short_and_an_unreadable_one_not_at_all() {
        assert_eq!(ReportView::from_report(&Report::default()), None);
        let report = Report {
            boot: "6f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0".into(),
            instance: "00112233deadbeef".into(),
            checks: CheckSummary::Fail,
            version: "0.0.9".into(),
            ..Report::default()
        };
        let view = ReportView::from_report(&report).unwrap();
        assert_eq!((view.boot.as_str(), view.instance.as_str()), ("6f1c2d3e", "00112233"));
        assert_eq!((view.digest.as_str(), view.checks.as_str(), view.version.as_str()), ("", "fail", "0.0.9"));
    }
}
