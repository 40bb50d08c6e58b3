//! The state of a node in a few words, and whether the node is as desired. All commands use the
//! same words. The functions are pure.

use super::duration;
use super::moment::{self, Today};
use super::story;
use remoor_cluster::rpc::view::{BackupView, NodeView};
use remoor_model::{Availability, Verdict};

/// The role of a node, with an unfinished role change in brackets.
pub fn role(node: &NodeView) -> String {
    match (node.role.as_str(), node.manager.as_deref()) {
        ("manager", Some("leader")) => "leader".to_owned(),
        ("manager", Some("voter")) => "manager".to_owned(),
        ("manager", Some(other)) => format!("manager ({other})"),
        ("manager", None) => "manager (no vote yet)".to_owned(),
        (_, None) if node.membership.state == "lost" => "manager (lost)".to_owned(),
        (role, None) => role.to_owned(),
        (role, Some(is)) => format!("{role} (still {is})"),
    }
}

/// The state of a manager in Raft, and the reason why the state differs from the desired role.
/// Empty: the node is a worker.
pub fn manager(node: &NodeView) -> String {
    let mut out = match (node.membership.state.as_str(), node.membership.lag) {
        ("worker", _) => return String::new(),
        // Managers of older versions do not send a node's state in Raft.
        ("", _) => return node.manager.clone().unwrap_or_default(),
        ("learner", Some(lag)) if lag > 0 => format!("learner {lag} behind"),
        (state, _) => state.to_owned(),
    };
    // The reason "catching up" is omitted, because the lag is shown already.
    if let Some(why) =
        node.membership.waits.as_ref().filter(|why| node.membership.lag.is_none() || !why.starts_with("catching up"))
    {
        out.push_str(&format!(": {why}"));
    }
    if let Some(silent) = &node.membership.silent {
        out.push_str(&format!(": {silent}"));
    }
    out
}

/// The age of the last verified backup, and the schedule of backups.
pub fn backup(backup: &BackupView) -> String {
    let mut out = match (backup.age_ms, &backup.file) {
        (Some(age), Some(file)) => format!("verified {} ago ({file})", duration::age(age)),
        _ => "none yet".to_owned(),
    };
    if let Some(every) = backup.every_ms {
        out.push_str(&format!(", one every {}", duration::age(every)));
    }
    if backup.late {
        out.push_str(", LATE");
    }
    if let Some(error) = &backup.error {
        out.push_str(&format!("; the last attempt failed: {error}"));
    }
    out
}

/// The presence of a node, with the time since it began unless the node is alive.
pub fn presence(node: &NodeView, today: Today) -> String {
    let since = node.presence_since.as_deref().and_then(moment::parse);
    match (node.presence.as_str(), since) {
        ("alive" | "never-seen" | "unknown", _) | (_, None) => node.presence.clone(),
        (presence, Some(since)) => format!("{presence} {}", today.age(since)),
    }
}

/// Whether the configuration is as desired, as far as the managers know: `ok`, `outdated`, the word
/// of a verdict, or `none` if the node was never provisioned or adopted.
pub fn config(node: &NodeView) -> &str {
    let Some(baseline) = &node.config.baseline else { return "none" };
    let newer = node.config.finding.as_ref().filter(|f| f.at > baseline.at);
    match newer.map(|f| &f.verdict) {
        None | Some(Verdict::Same) if node.config.outdated => "outdated",
        None | Some(Verdict::Same) => "ok",
        // The node was outdated when it was examined, but is not outdated now.
        Some(Verdict::Outdated) if !node.config.outdated => "ok",
        Some(other) => other.as_str(),
    }
}

/// Checks of the last examination: `12 ok`, `2 of 12 fail`, `1 of 12 unknown`.
pub fn checks(node: &NodeView) -> String {
    let Some(finding) = &node.config.finding else { return String::new() };
    if node.config.baseline.as_ref().is_some_and(|b| b.at >= finding.at) && finding.checks.1 + finding.checks.2 > 0 {
        // A later provisioning was verified after the last examination, so the failed checks of
        // that examination are not shown.
        return String::new();
    }
    match finding.checks {
        (0, 0, 0) => String::new(),
        (pass, 0, 0) => format!("{pass} ok"),
        (pass, 0, unknown) => format!("{unknown} of {} unknown", pass + unknown),
        (pass, fail, unknown) => format!("{fail} of {} fail", pass + fail + unknown),
    }
}

/// The current activity of the node, or the reason why it waits. Empty: there is neither.
pub fn activity(node: &NodeView) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(failed) = &node.operation.failed {
        parts.push(format!("failed: {failed}"));
    }
    match node.operation.availability {
        Availability::Active => {}
        Availability::Pause => parts.push("paused".to_owned()),
        Availability::Drain => parts.push("drained".to_owned()),
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

/// The reason why the node is not as desired. None: the node is as desired. A decommissioned worker
/// is always as desired, even if it is away.
pub fn why_not_desired(node: &NodeView) -> Option<String> {
    let out = match node.operation.availability {
        Availability::Drain => matches!(node.operation.lifecycle.as_str(), "accepted" | "decommissioned"),
        _ => node.operation.lifecycle == "decommissioned",
    };
    if out && node.job.is_none() {
        // A voter must be present, even if it has no services.
        let votes = node.role == "manager" && !matches!(node.presence.as_str(), "alive" | "unknown");
        return votes.then(|| format!("is {}", node.presence));
    }
    if node.presence != "alive" {
        return Some(format!("is {}", node.presence));
    }
    if let Some(silent) = node.membership.silent.as_ref().filter(|_| node.manager.as_deref() == Some("voter")) {
        return Some(format!("does not act as a manager: {silent}"));
    }
    if node.operation.lifecycle != "commissioned" {
        return Some(format!("is {}", node.operation.lifecycle));
    }
    if let Some(failed) = &node.operation.failed {
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
        word => {
            let difference = difference(node).map(|text| format!(": {text}")).unwrap_or_default();
            Some(format!("is {word}{difference}"))
        }
    }
}

/// The drift of a node in one line. None: the node did not drift.
pub fn difference(node: &NodeView) -> Option<String> {
    let finding = node.config.finding.as_ref().filter(|_| matches!(config(node), "drifted" | "conflict"))?;
    Some(story::reason_list(&finding.reasons)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::views;

    #[test]
    fn the_last_backup_is_shown_with_its_age_and_its_error() {
        let view = |age_ms: Option<u64>, every_ms, late, error: Option<&str>| BackupView {
            by: "m1".to_owned(),
            at: None,
            age_ms,
            file: age_ms.map(|_| "/b/x".to_owned()),
            every_ms,
            late,
            error: error.map(str::to_owned),
        };
        assert_eq!(backup(&view(Some(3 * 3_600_000), None, false, None)), "verified 3 h ago (/b/x)");
        let late = view(None, Some(6 * 3_600_000), true, Some("no space"));
        assert_eq!(backup(&late), "none yet, one every 6 h, LATE; the last attempt failed: no space");
    }

    #[test]
    fn a_lost_manager_is_not_shown_as_a_worker() {
        let mut node = views::node(4, "m2");
        assert_eq!((role(&node), manager(&node)), ("worker".to_owned(), String::new()));
        node.membership.state = "lost".to_owned();
        assert_eq!((role(&node).as_str(), manager(&node).as_str()), ("manager (lost)", "lost"));
    }
}
