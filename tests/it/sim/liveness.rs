//! I10: once the faults stop, a leader, no open work, every absence concluded, no drift that policy would repair.

use super::world::World;
use remoor::model::*;

/// What is still missing; None: at rest.
pub fn missing(world: &mut World) -> Option<String> {
    if world.leader.is_none() {
        return Some("a leader".to_owned());
    }
    if let Some(job) = world.state.jobs.values().find(|j| j.state == JobState::Open || j.state == JobState::Held) {
        return Some(format!("the end of job {} of node {}, {:?}", job.id, job.node, job.state));
    }
    for at in 0..world.hosts.len() {
        let node = world.state.node(world.hosts[at].id).expect("every host is a node").clone();
        let name = node.name().clone();
        if let Some(absence) = &node.absence {
            return Some(format!("the verdict on absence {} of {name}", absence.no));
        }
        if node.want.is_some() {
            return Some(format!("what is wanted of {name}: {:?}", node.want));
        }
        if node.marks.is_none() {
            return Some(format!("a first sight of {name}"));
        }
        match node.lifecycle {
            Lifecycle::Commissioned => {
                if let Some(text) = drift(world, at, &node) {
                    return Some(format!("{name}: {text}"));
                }
            }
            Lifecycle::Decommissioned if world.hosts[at].parts.values().any(|p| p.version.is_some() && p.edits == 0) => {
                let manual = world.hosts[at].parts.values().any(|p| p.edits > 0);
                if !manual {
                    return Some(format!("a clean {name}"));
                }
            }
            _ => {}
        }
    }
    None
}

fn drift(world: &mut World, at: usize, node: &Node) -> Option<String> {
    let Some(baseline) = &node.baseline else { return Some("commissioned, and nothing recorded".to_owned()) };
    let finding = node.finding.as_ref();
    if finding.is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_))) {
        return Some("the last word is unknown".to_owned());
    }
    let edge = world.hosts[at].group == "edge";
    if edge && world.state.desired(node) != Some(baseline.desired) {
        return Some("not of the current generation, which is rolled out".to_owned());
    }
    let expected = world.blobs.get(&baseline.blob).expect("baselines are kept").clone();
    if world.hosts[at].as_in(&expected) {
        return finding.filter(|f| f.verdict.drifted()).map(|_| "called drifted, and is not".to_owned());
    }
    let Some(finding) = finding.filter(|f| f.verdict.drifted()) else {
        return Some("drifted, and nobody noticed".to_owned());
    };
    let (_, group) = world.state.group(node)?;
    let grave = finding.reasons.iter().any(|r| r.grave);
    let only_reported = finding.remedy == Remedy::Report;
    let by_policy = group.policy(finding.occasion) == Policy::Report
        || finding.verdict == Verdict::Conflict && !grave
        || !grave;
    match only_reported && by_policy {
        true => None,
        false => Some(format!("drifted, and not repaired: {:?} {:?}", finding.occasion, finding.remedy)),
    }
}
