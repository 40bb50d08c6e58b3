//! What is to be done about a verdict: the group's policy for the occasion, and what stands against it.

use crate::model::{
    Availability, Cause, FleetSummary, Inventory, Lifecycle, Node, Occasion, Policy, Reason, Remedy, ServiceName,
    Verdict, Wall,
};
use std::collections::BTreeSet;

/// The occasion a cause of absence is for the policies. A reinstalled node is handled as one that rebooted.
pub fn occasion(cause: Cause) -> Occasion {
    match cause {
        Cause::Network | Cause::Unknown => Occasion::Network,
        Cause::Reboot | Cause::Reinstalled => Occasion::Reboot,
        Cause::Agent => Occasion::Agent,
        Cause::Left => Occasion::Left,
    }
}

/// Unknown leads to nothing (I9); a decommissioned node is never set up (I8); one that was only adopted is set up again
/// only where its group says so.
pub fn remedy(
    inventory: &Inventory,
    node: &Node,
    occasion: Occasion,
    verdict: &Verdict,
    reasons: &[Reason],
    at: Wall,
) -> Remedy {
    decide(inventory, node, occasion, verdict, reasons, at).0
}

/// The same, with the rule that decided.
pub fn decide(
    inventory: &Inventory,
    node: &Node,
    occasion: Occasion,
    verdict: &Verdict,
    reasons: &[Reason],
    at: Wall,
) -> (Remedy, String) {
    let Some((name, group)) = inventory.group(node) else {
        return (Remedy::Report, "the inventory has no group for the node".to_owned());
    };
    if matches!(verdict, Verdict::Unknown(_)) {
        return (Remedy::Report, "unknown is not drift".to_owned());
    }
    if node.lifecycle != Lifecycle::Commissioned {
        return (Remedy::Report, format!("the node is {}, not commissioned", node.lifecycle.word()));
    }
    let policy = match verdict {
        // Its own address: no word of an operator is needed to make that right on its return.
        Verdict::Outdated if node.moved.is_some() => {
            match (group.policy_of(node, occasion), group.policy(Occasion::Apply)) {
                (Policy::Report, apply) => apply,
                (on_return, _) => on_return,
            }
        }
        // Where only others moved, it is said and left at that.
        Verdict::Outdated if inventory.only_moved(node) => match group.policy_of(node, occasion) {
            Policy::Resetup if !matches!(occasion, Occasion::Live | Occasion::Apply) => Policy::Resetup,
            _ => Policy::Report,
        },
        Verdict::Outdated => match (group.policy(Occasion::Apply), group.policy_of(node, occasion)) {
            (Policy::Report, Policy::Resetup) if occasion != Occasion::Live => Policy::Resetup,
            (apply, _) => apply,
        },
        _ => group.policy_of(node, occasion),
    };
    // Who was never away, or only lags behind what is desired, is not set up "always".
    let policy = match (policy, verdict) {
        (Policy::Resetup, Verdict::Same) if matches!(occasion, Occasion::Live | Occasion::Apply) => Policy::Check,
        (policy, _) => policy,
    };
    let grave = reasons.iter().any(|r| r.grave);
    let wanted = match (policy, verdict) {
        (Policy::Resetup, _) => Some(Vec::new()),
        (Policy::Check, Verdict::Outdated) => Some(Vec::new()),
        (Policy::Check, Verdict::Conflict) if node.moved.is_some() => Some(Vec::new()),
        (Policy::Check, v) if v.drifted() && grave && group.whole => Some(Vec::new()),
        (Policy::Check, v) if v.drifted() && grave => {
            let named: BTreeSet<_> = reasons.iter().filter(|r| r.grave).map(|r| r.service.clone()).collect();
            inventory.generation().map(|g| {
                let mut all = with_dependents(&g.summary, &named);
                all.retain(|s| named.contains(s) || group.services.contains(s));
                all
            })
        }
        _ => None,
    };
    let rule = format!("the policy of {name} for {} is {}", word(occasion), policy_word(policy));
    let Some(services) = wanted else {
        if *verdict == Verdict::Same {
            return (Remedy::None, "nothing differs".to_owned());
        }
        let weight = if policy == Policy::Check && !grave { ", and no reason is grave" } else { "" };
        return (Remedy::Report, rule + weight);
    };
    if let Some(job) = node.job {
        return (Remedy::Blocked(format!("job {job} is open")), "a job is open".to_owned());
    }
    if node.availability == Availability::Pause {
        return (Remedy::Blocked("the node is paused".to_owned()), "the node is paused".to_owned());
    }
    if flapping(inventory, node, at) && occasion != Occasion::Live {
        return (Remedy::Held("flapping".to_owned()), format!("{} absences of late", node.recent.len()));
    }
    let weight = if policy == Policy::Check && grave { ", and a reason is grave" } else { "" };
    (Remedy::Resetup(services), rule + weight)
}

fn word(occasion: Occasion) -> &'static str {
    match occasion {
        Occasion::Network => "network",
        Occasion::Reboot => "reboot",
        Occasion::Agent => "agent",
        Occasion::Left => "left",
        Occasion::Live => "live",
        Occasion::Apply => "apply",
    }
}

fn policy_word(policy: Policy) -> &'static str {
    match policy {
        Policy::Report => "report",
        Policy::Check => "check",
        Policy::Resetup => "resetup",
    }
}

/// So many absences within the window that the node is held down instead of set up again.
pub fn flapping(inventory: &Inventory, node: &Node, at: Wall) -> bool {
    let limits = inventory.limits();
    let recent = node.recent.iter().filter(|opened| at.since(**opened) < limits.flap_window_ms).count() as u32;
    limits.flap_count > 0 && recent >= limits.flap_count
}

/// The services named, and those that depend on them, each once, by name.
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
            return all.into_iter().collect();
        }
        all.extend(more);
    }
}
