//! Invariant I10 (docs/design/invariants.md). Some time after the end of all faults, there is a
//! leader, no open work, and a verdict on every absence. There is also no drift that the policy
//! would repair.

use super::host::{SimService, WARNING};
use super::world::World;
use remoor_model::*;

/// The first unmet condition of invariant I10, as text. None if all conditions are met.
pub fn unmet_condition(world: &mut World) -> Option<String> {
    if world.leader.is_none() {
        return Some("a leader".to_owned());
    }
    let open = |j: &&std::sync::Arc<Job>| j.state == JobState::Open || j.state == JobState::Held;
    if let Some(job) = world.state.jobs.values().filter(open).find(|j| !stuck(world, j.node)) {
        let (id, state, node) = (job.id, job.state, job.node);
        return Some(format!("the end of job {id}, {state:?}, {}", wait_reasons(world, node)));
    }
    for at in 0..world.hosts.len() {
        let node = world.state.node(world.hosts[at].id).expect("every host is a node").clone();
        let name = node.name().clone();
        if node.spec.gossip != world.hosts[at].gossip() {
            return Some(format!("{name} entered at {}", world.hosts[at].gossip()));
        }
        if let Some(absence) = &node.absence {
            return Some(format!("the verdict on absence {} of {name}", absence.no));
        }
        if stuck(world, node.id) {
            continue;
        }
        if node.pending_resetup.is_some() {
            return Some(format!("what is wanted of {name}, {}", wait_reasons(world, node.id)));
        }
        if node.examination.last_identity.is_none() {
            return Some(format!("a first sight of {name}"));
        }
        match node.lifecycle {
            Lifecycle::Commissioned if node.examination.needs_examination => {
                return Some(format!("an examination of {name}, where something ran"));
            }
            Lifecycle::Commissioned => {
                if let Some(text) = drift(world, at, &node) {
                    return Some(format!("{name}: {text}"));
                }
            }
            Lifecycle::Decommissioned if own_parts(world, at).any(|p| p.version.is_some() && p.edits == 0) => {
                let manual = own_parts(world, at).any(|p| p.edits > 0);
                if !manual {
                    return Some(format!("a clean {name}"));
                }
            }
            _ => {}
        }
    }
    None
}

/// The services of a host that remoor provisions and cleans up.
fn own_parts(world: &World, at: usize) -> impl Iterator<Item = &SimService> {
    let host = &world.hosts[at];
    host.parts.iter().filter(|(name, _)| !host.is_monitor_only(name)).map(|(_, part)| part)
}

/// Whether a re-setup of the node would cost the quorum of its group. No order overrides this rule.
/// It applies if only two members of the group remain, or if jobs on other members were cancelled
/// before their end.
fn stuck(world: &World, id: NodeId) -> bool {
    let master = |id| world.hosts[world.host_of(id)].group == "master";
    let left = |n: &&std::sync::Arc<Node>| master(n.id) && n.serves() && (n.id == id || !n.half_done());
    let whole = world.state.node(id).is_some_and(|n| !n.half_done());
    master(id) && matches!((world.state.nodes.values().filter(left).count(), whole), (2, _) | (1, true))
}

/// The conditions of the node according to the engine, as text.
fn wait_reasons(world: &World, id: NodeId) -> String {
    let Some(node) = world.state.node(id) else { return String::new() };
    let texts: Vec<String> = world.conditions(node).into_iter().map(|c| format!("{}: {}", c.is, c.why)).collect();
    format!("{} of {}: {}", node.lifecycle.as_str(), node.name(), texts.join("; "))
}

fn drift(world: &mut World, at: usize, node: &Node) -> Option<String> {
    let Some(baseline) = &node.setup.baseline else { return Some("commissioned, and nothing recorded".to_owned()) };
    let finding = node.examination.finding.as_ref();
    if finding.is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_))) {
        return Some("the last result is unknown".to_owned());
    }
    if node.setup.address_change.is_some() && world.state.desired_hash(node) != Some(baseline.desired) {
        return Some("moved, and not set up for its address".to_owned());
    }
    let told = finding.is_some_and(|f| f.reasons.iter().any(|r| r.by == Witness::Check && r.text.contains(WARNING)));
    if told != world.hosts[at].check_faults.warns {
        return Some(
            if told { "its warning is reported but has ended" } else { "it warns, and this was not noticed" }
                .to_owned(),
        );
    }
    let edge = world.hosts[at].group == "edge";
    if edge && world.state.desired_hash(node) != Some(baseline.desired) {
        return Some("not of the current generation, which is rolled out".to_owned());
    }
    let expected = world.blobs.get(&baseline.blob).expect("baselines are kept").clone();
    if world.hosts[at].matches(&expected) {
        return finding.filter(|f| f.verdict.is_drifted()).map(|_| "called drifted, and is not".to_owned());
    }
    let Some(finding) = finding.filter(|f| f.verdict.is_drifted()) else {
        return Some("drifted, and this was not noticed".to_owned());
    };
    let (_, group) = world.state.group(node)?;
    let grave = finding.reasons.iter().any(|r| r.actionable);
    let only_reported = finding.planned_action == PlannedAction::Report;
    let by_policy = group.policy(finding.trigger) == Policy::Report || !grave;
    match only_reported && by_policy {
        true => None,
        false => Some(format!("drifted, and not repaired: {:?} {:?}", finding.trigger, finding.planned_action)),
    }
}
