//! Determines the action for a verdict: the group's policy for the trigger, and the conditions that
//! block it.

use remoor_model::{
    AbsenceCause, Availability, FleetSummary, GroupSummary, Inventory, Lifecycle, Node, PlannedAction, Policy, Reason,
    ServiceName, Trigger, Verdict, Wall, count_noun,
};
use std::collections::BTreeSet;

/// The policy trigger for a cause of absence. A reinstallation is handled like a reboot.
pub fn trigger_for(cause: AbsenceCause) -> Trigger {
    match cause {
        AbsenceCause::Network | AbsenceCause::Unknown => Trigger::Network,
        AbsenceCause::Reboot | AbsenceCause::Reinstalled => Trigger::Reboot,
        AbsenceCause::Agent => Trigger::Agent,
        AbsenceCause::Left => Trigger::Left,
    }
}

/// The planned action for a verdict. An unknown verdict triggers nothing (invariant I9), and a
/// decommissioned node is never set up (invariant I8). An adopted node is set up again only if a
/// policy is configured for its group.
pub fn planned_action(
    inventory: &Inventory,
    node: &Node,
    occasion: Trigger,
    verdict: &Verdict,
    reasons: &[Reason],
    at: Wall,
) -> PlannedAction {
    decide(inventory, node, occasion, verdict, reasons, at).0
}

/// The planned action for a verdict, and the rule that led to the action.
pub fn decide(
    inventory: &Inventory,
    node: &Node,
    occasion: Trigger,
    verdict: &Verdict,
    reasons: &[Reason],
    at: Wall,
) -> (PlannedAction, String) {
    let Some((name, group)) = inventory.group(node) else {
        return (PlannedAction::Report, "the inventory has no group for the node".to_owned());
    };
    if matches!(verdict, Verdict::Unknown(_)) {
        return (PlannedAction::Report, "unknown is not drift".to_owned());
    }
    if node.lifecycle != Lifecycle::Commissioned {
        return (PlannedAction::Report, format!("the node is {}, not commissioned", node.lifecycle.as_str()));
    }
    // No policy sets up monitored services, so their differences do not count as drift here.
    let only_watched = inventory.drifts_only_monitored(reasons);
    let verdict = match verdict {
        Verdict::Drifted if only_watched => {
            return (PlannedAction::Report, "all differences are in services that are monitored only".to_owned());
        }
        Verdict::Conflict if only_watched => &Verdict::Outdated,
        other => other,
    };
    let policy = effective_policy(inventory, node, group, occasion, verdict);
    let grave = reasons.iter().any(|r| r.actionable);
    let rolls_out = group.policy(Trigger::Apply) != Policy::Report
        && !inventory.only_addresses_changed(node)
        && inventory.held_in_rollout(name).next().is_none();
    let wanted = match (policy, verdict) {
        (Policy::Resetup, _) => Some(Vec::new()),
        (Policy::Check, Verdict::Outdated) => Some(Vec::new()),
        (Policy::Check, Verdict::Conflict) if inventory.own_address_change(node).is_some() => Some(Vec::new()),
        // The new generation is rolled out to the whole group. So one re-setup of all services is
        // enough.
        (Policy::Check, Verdict::Conflict) if grave && rolls_out => Some(Vec::new()),
        (Policy::Check, v) if v.is_drifted() && grave && group.whole => Some(Vec::new()),
        (Policy::Check, v) if v.is_drifted() && grave => {
            let named: BTreeSet<_> = reasons.iter().filter(|r| r.actionable).map(|r| r.service.clone()).collect();
            // The generation with which the services are set up determines which services depend on
            // them.
            let named: Vec<ServiceName> = named.into_iter().collect();
            inventory.generations.get(&inventory.source_generation(node, &named)).map(|g| {
                let mut all = with_dependents(&g.summary, &named.iter().cloned().collect());
                all.retain(|s| named.contains(s) || g.services_of(node.name()).contains(s));
                all
            })
        }
        _ => None,
    };
    let rule = format!("the policy of {name} for {} is {}", trigger_word(occasion), policy_word(policy));
    let Some(services) = wanted else {
        if *verdict == Verdict::Same {
            return (PlannedAction::None, "nothing differs".to_owned());
        }
        let weight = if policy == Policy::Check && !grave { ", and no reason is actionable" } else { "" };
        return (PlannedAction::Report, rule + weight);
    };
    if let Some(job) = node.job {
        return (PlannedAction::Blocked(format!("job {job} is open")), "a job is open".to_owned());
    }
    let kept = match node.availability {
        Availability::Active => None,
        Availability::Pause => Some("the node is paused"),
        Availability::Drain => Some("the node is drained"),
    };
    if let Some(why) = kept {
        return (PlannedAction::Blocked(why.to_owned()), why.to_owned());
    }
    if is_flapping(inventory, node, at) && occasion != Trigger::Live {
        return (
            PlannedAction::Held("flapping".to_owned()),
            format!("{} recently", count_noun(node.absences.recent.len(), "absence")),
        );
    }
    let weight = if policy == Policy::Check && grave { ", and a reason is actionable" } else { "" };
    (PlannedAction::Resetup(services), rule + weight)
}

/// The policy for `verdict`. If the desired state changed, it is the policy for a new generation,
/// otherwise the policy of the trigger.
fn effective_policy(
    inventory: &Inventory,
    node: &Node,
    group: &GroupSummary,
    occasion: Trigger,
    verdict: &Verdict,
) -> Policy {
    let policy = match verdict {
        // The node's own address changed. The policy for its return applies, so no operator must
        // order the re-setup. If this policy is `report`, the policy for a new generation applies.
        Verdict::Outdated if inventory.own_address_change(node).is_some() => {
            match (group.policy_of(node, occasion), group.policy(Trigger::Apply)) {
                (Policy::Report, apply) => apply,
                (on_return, _) => on_return,
            }
        }
        // If only addresses of other nodes changed, the difference is only reported.
        Verdict::Outdated if inventory.only_addresses_changed(node) => match group.policy_of(node, occasion) {
            Policy::Resetup if !matches!(occasion, Trigger::Live | Trigger::Apply) => Policy::Resetup,
            _ => Policy::Report,
        },
        Verdict::Outdated => match (group.policy(Trigger::Apply), group.policy_of(node, occasion)) {
            (Policy::Report, Policy::Resetup) if occasion != Trigger::Live => Policy::Resetup,
            (apply, _) => apply,
        },
        _ => group.policy_of(node, occasion),
    };
    // After an absence, the policy `resetup` also sets up a node without any difference. Live drift
    // and a new generation do not have this effect.
    match (policy, verdict) {
        (Policy::Resetup, Verdict::Same) if matches!(occasion, Trigger::Live | Trigger::Apply) => Policy::Check,
        (policy, _) => policy,
    }
}

fn trigger_word(occasion: Trigger) -> &'static str {
    match occasion {
        Trigger::Network => "network",
        Trigger::Reboot => "reboot",
        Trigger::Agent => "agent",
        Trigger::Left => "left",
        Trigger::Live => "live",
        Trigger::Apply => "apply",
    }
}

fn policy_word(policy: Policy) -> &'static str {
    match policy {
        Policy::Report => "report",
        Policy::Check => "check",
        Policy::Resetup => "resetup",
    }
}

/// Whether the node had at least `flap_count` absences within the last `flap_window_ms`. It is then
/// held instead of set up.
pub fn is_flapping(inventory: &Inventory, node: &Node, at: Wall) -> bool {
    let limits = inventory.limits();
    let recent =
        node.absences.recent.iter().filter(|opened| at.ms_since(**opened) < limits.flap_window_ms).count() as u32;
    limits.flap_count > 0 && recent >= limits.flap_count
}

/// The named services, and all services that depend on them and can be set up. The result is sorted
/// by name and has no duplicates.
pub fn with_dependents(summary: &FleetSummary, named: &BTreeSet<ServiceName>) -> Vec<ServiceName> {
    let mut all = named.clone();
    loop {
        let more: Vec<ServiceName> = summary
            .services
            .iter()
            .filter(|(name, service)| !all.contains(*name) && service.depends_on.iter().any(|d| all.contains(d)))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return all.into_iter().filter(|name| named.contains(name) || !summary.is_monitor_only(name)).collect();
        }
        all.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift;
    use remoor_model::*;
    use std::collections::BTreeMap;

    /// The node w1, which was adopted and which remoor may repair since `Command::Entrust`. Its
    /// group web has the default policies. Its address changed from .1 to .9.
    fn moved_node(after: Vec<Command>) -> Inventory {
        let mut inventory = Inventory::default();
        let gossip = |last: u8| format!("10.0.0.{last}:7946");
        let spec = NodeSpec { name: "w1".into(), gossip: gossip(1), ..NodeSpec::default() };
        let baseline = Baseline {
            generation: GenerationSeq(1),
            desired: Sha256::digest(b"one"),
            root: Sha256::default(),
            blob: Sha256::default(),
            adopted: true,
            at: Wall(3),
        };
        let mut commands = vec![
            Command::Accept { spec, role: ClusterRole::Worker },
            generation("one"),
            Command::Adopt { node: NodeId(1), baseline, basis: 0 },
            Command::Entrust { node: NodeId(1) },
            Command::Readdress { node: NodeId(1), api: String::new(), gossip: gossip(9), over: None },
        ];
        commands.extend(after);
        for (index, command) in (1..).zip(commands) {
            let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
            assert_eq!(applied.refusal(), None);
        }
        inventory
    }

    #[test]
    fn a_conflict_is_repaired_in_part_or_as_a_whole_depending_on_the_apply_policy() {
        let generation = |desired: &str, apply: Policy| {
            let Command::Generation { blob, mut summary } = generation(desired) else { unreachable!() };
            let group = summary.groups.get_mut("web").unwrap();
            group.services = vec!["app".into()];
            group.policy.insert(Trigger::Apply, apply);
            summary.hosts.insert("w2".into(), HostSummary { group: "web".into(), desired: blob });
            Command::Generation { blob, summary }
        };
        // The job that sets up w2 with the new generation fails and is held. After that, no other
        // node of the group is set up as a whole with this generation.
        let held = |apply| {
            let spec = NodeSpec { name: "w2".into(), public_key: "w2".into(), ..NodeSpec::default() };
            let (node, job, attempt) = (NodeId(7), JobId(9), AttemptId(9));
            let order = JobSpec { by: Some("admin".into()), ..JobSpec::new(Trigger::Apply) };
            let order = ResetupRequest { commission: true, ..order.into_request(Wall(8)) };
            let (class, phase, message) = (FailureClass::Step, Phase::Fence, "no".to_owned());
            let outcome = AttemptOutcome::Failed(Failure { class, phase, rc: None, message, tail: Vec::new() });
            vec![
                generation("two", apply),
                Command::Accept { spec, role: ClusterRole::Worker },
                Command::RequestResetup { node, want: Box::new(order) },
                Command::OpenJob { node, runner: "m1".into() },
                Command::CloseAttempt { job, attempt, outcome, baseline: None, marks: None },
                Command::HoldJob { job, why: "enough".into() },
            ]
        };
        for (after, services) in [
            (vec![generation("two", Policy::Report)], vec!["app".into()]),
            (vec![generation("two", Policy::Check)], Vec::new()),
            (held(Policy::Check), vec!["app".into()]),
        ] {
            let mut inventory = moved_node(after);
            let node = inventory.nodes.get_mut(&NodeId(1)).map(std::sync::Arc::make_mut).unwrap();
            node.setup.address_change = None;
            let node = inventory.by_name("w1").unwrap();
            let reason = Reason::new(Witness::Digest, "app".into(), String::new(), true);
            let (remedy, _) =
                decide(&inventory, node, Trigger::Network, &Verdict::Conflict, &[reason], Wall(9_000_000));
            assert_eq!(remedy, PlannedAction::Resetup(services));
        }
    }

    #[test]
    fn drift_of_monitored_services_triggers_no_re_setup_under_any_policy() {
        use Trigger::{Agent, Apply, Left, Live, Network, Reboot};
        let all = [Network, Reboot, Agent, Left, Live, Apply];
        let inventory = |policy: Policy| {
            let Command::Generation { blob, mut summary } = generation("one") else { unreachable!() };
            let group = summary.groups.get_mut("web").unwrap();
            group.services = vec!["app".into(), "clock".into()];
            group.policy = all.map(|occasion| (occasion, policy)).into();
            summary.services.insert("app".into(), ServiceSummary::default());
            summary.services.insert("clock".into(), ServiceSummary { monitor_only: true, ..ServiceSummary::default() });
            let mut inventory = moved_node(vec![Command::Generation { blob, summary }]);
            inventory.nodes.get_mut(&NodeId(1)).map(std::sync::Arc::make_mut).unwrap().setup.address_change = None;
            inventory
        };
        let reason = |service: &str, by, grave| Reason::new(by, service.into(), String::new(), grave);
        let clock = reason("clock", Witness::Digest, false);
        let alert = reason("app", Witness::Check, false);
        for (policy, occasion) in
            [Policy::Report, Policy::Check, Policy::Resetup].into_iter().flat_map(|p| all.map(|o| (p, o)))
        {
            let inventory = inventory(policy);
            let decide = |verdict: Verdict, reasons: &[Reason]| {
                let node = inventory.by_name("w1").unwrap();
                decide(&inventory, node, occasion, &verdict, reasons, Wall(9_000_000)).0
            };
            for reasons in [vec![clock.clone()], vec![clock.clone(), alert.clone()]] {
                assert_eq!(decide(Verdict::Drifted, &reasons), PlannedAction::Report, "{policy:?} {occasion:?}");
            }
            // A difference of a monitored service does not change the effect of other reasons:
            // drift of another service, or a changed desired state.
            let app = reason("app", Witness::Digest, true);
            let desired = reason("", Witness::Desired, false);
            assert_eq!(
                decide(Verdict::Drifted, &[app.clone(), clock.clone()]),
                decide(Verdict::Drifted, std::slice::from_ref(&app))
            );
            let (with, without) = ([clock.clone(), desired.clone()], [desired]);
            assert_eq!(decide(Verdict::Conflict, &with), decide(Verdict::Outdated, &without));
        }
    }

    #[test]
    fn dependents_are_set_up_with_a_service_except_monitored_ones() {
        let mut summary = FleetSummary::default();
        for (name, on, watched) in [("app", "", false), ("probe", "app", true), ("web", "probe", false)] {
            let depends_on = [on].into_iter().filter(|on| !on.is_empty()).map(Into::into).collect();
            summary
                .services
                .insert(name.into(), ServiceSummary { depends_on, monitor_only: watched, ..ServiceSummary::default() });
        }
        let with = |name: &str| with_dependents(&summary, &BTreeSet::from([name.into()]));
        assert_eq!(with("app"), ["app".into(), "web".into()]);
        assert_eq!(with("probe"), ["probe".into(), "web".into()], "who names it gets it, and never the whole group");
    }

    fn generation(desired: &str) -> Command {
        let mut summary = FleetSummary::default();
        let host = HostSummary { group: "web".into(), desired: Sha256::digest(desired.as_bytes()) };
        summary.hosts.insert("w1".into(), host);
        summary.groups.insert("web".into(), GroupSummary::default());
        Command::Generation { blob: Sha256::digest(desired.as_bytes()), summary: Box::new(summary) }
    }

    fn judge_moved(inventory: &Inventory) -> (PlannedAction, String) {
        let node = inventory.by_name("w1").unwrap();
        assert!(node.setup.address_change.is_some());
        let evidence =
            drift::Evidence { exam: Exam::default(), expected: Some(NodeDigest::default()), rendered: BTreeSet::new() };
        let (verdict, reasons) = drift::compare(inventory, node, &evidence);
        assert_eq!(verdict, Verdict::Outdated);
        let (remedy, _) = decide(inventory, node, Trigger::Network, &verdict, &reasons, Wall(9_000_000));
        (remedy, reasons[0].text.clone())
    }

    #[test]
    fn a_nodes_own_address_change_is_repaired_even_after_an_apply() {
        let hosts = BTreeMap::from([("w1".into(), Sha256::digest(b"one at 9"))]);
        let rendered = Command::Rendered { generation: GenerationSeq(1), moved: 5, hosts, fault: None };
        let (remedy, why) = judge_moved(&moved_node(vec![rendered.clone()]));
        assert_eq!(remedy, PlannedAction::Resetup(Vec::new()));
        assert!(why.starts_with("its own address changed from 10.0.0.1"), "{why}");
        for after in [vec![generation("two")], vec![rendered, generation("two")]] {
            let (remedy, why) = judge_moved(&moved_node(after));
            assert_eq!(remedy, PlannedAction::Resetup(Vec::new()));
            assert!(why.ends_with("and the desired state changed too"), "{why}");
        }
    }
}
