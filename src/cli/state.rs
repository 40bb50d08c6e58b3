//! What a node's view amounts to in one word, and whether that is as desired. Pure; the same words in every command.

use super::moment::{self, Today};
use crate::model::Verdict;
use crate::rpc::view::NodeView;

/// Role as it is, with what is under way in brackets.
pub fn role(node: &NodeView) -> String {
    match (node.role.as_str(), node.manager.as_deref()) {
        ("manager", Some("leader")) => "leader".to_owned(),
        ("manager", Some("voter")) => "manager".to_owned(),
        ("manager", Some(other)) => format!("manager ({other})"),
        ("manager", None) => "manager (no vote yet)".to_owned(),
        (role, None) => role.to_owned(),
        (role, Some(is)) => format!("{role} (still {is})"),
    }
}

/// Presence, with its age where it is not simply alive.
pub fn seen(node: &NodeView, today: Today) -> String {
    let since = node.presence_since.as_deref().and_then(moment::parse);
    match (node.presence.as_str(), since) {
        ("alive" | "never-seen" | "unknown", _) | (_, None) => node.presence.clone(),
        (presence, Some(since)) => format!("{presence} {}", today.age(since)),
    }
}

/// Whether the configuration is as desired, as far as anybody knows: `ok`, a verdict's word, `outdated`, or `none` where
/// nothing was ever provisioned or adopted.
pub fn config(node: &NodeView) -> &str {
    let Some(baseline) = &node.baseline else { return "none" };
    let newer = node.finding.as_ref().filter(|f| f.at > baseline.at);
    match newer.map(|f| &f.verdict) {
        None | Some(Verdict::Same) if node.outdated => "outdated",
        None | Some(Verdict::Same) => "ok",
        // Said of what was desired then.
        Some(Verdict::Outdated) if !node.outdated => "ok",
        Some(other) => other.word(),
    }
}

/// Checks of the last examination: `12 ok`, `2 of 12 fail`, `1 of 12 unknown`.
pub fn checks(node: &NodeView) -> String {
    let Some(finding) = &node.finding else { return String::new() };
    if node.baseline.as_ref().is_some_and(|b| b.at >= finding.at) && finding.checks.1 + finding.checks.2 > 0 {
        // A provisioning that was verified came after it.
        return String::new();
    }
    match finding.checks {
        (0, 0, 0) => String::new(),
        (pass, 0, 0) => format!("{pass} ok"),
        (pass, 0, unknown) => format!("{unknown} of {} unknown", pass + unknown),
        (pass, fail, unknown) => format!("{fail} of {} fail", pass + fail + unknown),
    }
}

/// What is being done or waited for, in words; empty: nothing.
pub fn doing(node: &NodeView) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(failed) = &node.failed {
        parts.push(format!("failed: {failed}"));
    }
    if node.availability == crate::model::Availability::Pause {
        parts.push("paused".to_owned());
    }
    for condition in &node.conditions {
        parts.push(if condition.why.is_empty() {
            condition.is.clone()
        } else {
            format!("{}: {}", condition.is, condition.why)
        });
    }
    let named = node.conditions.iter().any(|c| c.is == "resetup" || c.why.starts_with("job "));
    if let Some(job) = node.job.filter(|_| !named) {
        parts.push(format!("job {job}"));
    }
    parts.join("; ")
}

/// Why the node is not as desired; None: it is. A decommissioned node is, wherever it may be.
pub fn undesired(node: &NodeView) -> Option<String> {
    if node.lifecycle == "decommissioned" && node.job.is_none() {
        return None;
    }
    if node.presence != "alive" {
        return Some(format!("is {}", node.presence));
    }
    if node.lifecycle != "commissioned" {
        return Some(format!("is {}", node.lifecycle));
    }
    if let Some(failed) = &node.failed {
        return Some(format!("failed in {failed}"));
    }
    if let Some(job) = node.job {
        return Some(format!("is being set up by job {job}"));
    }
    let open = ["examining", "settling", "waiting", "blocked", "resetup", "held", "host-key-changed"];
    if let Some(condition) = node.conditions.iter().find(|c| open.contains(&c.is.as_str())) {
        return Some(format!("is {}: {}", condition.is, condition.why));
    }
    match config(node) {
        "ok" => None,
        "none" => Some("was never provisioned or adopted".to_owned()),
        word => Some(format!("is {word}")),
    }
}
