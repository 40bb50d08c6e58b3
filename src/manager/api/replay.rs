//! `GET /v1/nodes/{name}/replay`: the events that the leader received about a node, and the actions
//! that followed from them. The answer also contains the rules that led to the last verdict. The
//! source is the flight recorder, which contains only steps of the current leadership.

use super::super::{ManagerContext, messages, recorder::RecordedStep};
use super::{as_of, find_node};
use axum::extract::{Path, State};
use remoor_cluster::rpc::view::{ReplayStep, ReplayVerdict, ReplayView, RuleView};
use remoor_cluster::rpc::wire::{self, ApiFailure, TimedJson};
use remoor_engine::{Action, Rule, explain};
use remoor_model::{Command, Finding, NodeId};
use std::sync::Arc;

/// Maximum number of engine steps in one answer. The oldest steps are omitted.
const SHOWN_MAX: usize = 500;

pub async fn replay(
    State(shared): State<Arc<ManagerContext>>,
    Path(name): Path<String>,
) -> Result<TimedJson<ReplayView>, ApiFailure> {
    let inventory = shared.inventory();
    let node = find_node(&inventory, &name)?;
    let (since, dropped, steps) = shared.published.recorded_steps(node.id);
    let shown = &steps[steps.len().saturating_sub(SHOWN_MAX)..];
    let verdict = node.examination.finding.as_ref().map(|finding| {
        let recorded = steps.iter().rev().find(|s| !s.rules.is_empty() && concludes(s, finding));
        let (from, rules) = match recorded {
            Some(step) => ("evidence", step.rules.clone()),
            None => ("journal", explain(&inventory, &node, finding, None)),
        };
        ReplayVerdict {
            at: wire::rfc3339(finding.at),
            by: finding.by.to_string(),
            from: from.to_owned(),
            evidence: finding.evidence.clone(),
            rules: rules.into_iter().map(rule).collect(),
        }
    });
    Ok(TimedJson(ReplayView {
        version: 1,
        as_of: as_of(&shared),
        node: name,
        since: since.map(wire::rfc3339),
        dropped,
        left_out: (steps.len() - shown.len()) as u64,
        steps: shown.iter().map(|s| step(s, node.id)).collect(),
        verdict,
    }))
}

fn concludes(step: &RecordedStep, finding: &Finding) -> bool {
    step.actions.iter().any(
        |a| matches!(a, Action::Propose { command: Command::Conclude { finding: f, .. }, .. } if f.at == finding.at),
    )
}

fn step(step: &RecordedStep, node: NodeId) -> ReplayStep {
    let own: Vec<&Action> =
        step.actions.iter().zip(&step.about).filter(|(_, about)| **about == Some(node)).map(|(a, _)| a).collect();
    ReplayStep {
        at: wire::rfc3339(step.at),
        told: messages::describe_event(&step.event),
        asked: own.iter().map(|a| messages::describe_action(a)).collect(),
        event: serde_json::to_value(&step.event).unwrap_or_default(),
        actions: own.iter().map(|a| serde_json::to_value(a).unwrap_or_default()).collect(),
    }
}

fn rule(rule: Rule) -> RuleView {
    let agrees = rule.gives == rule.concluded;
    RuleView { decides: rule.decides, rule: rule.rule, gives: rule.gives, concluded: rule.concluded, agrees }
}
