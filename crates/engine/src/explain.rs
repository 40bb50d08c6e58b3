//! Shows the rule that led to a verdict. Repeats the decisions of `absence`, `drift` and `policy`
//! with the data of the finding and, if available, of its examination. It changes nothing and only
//! informs people.

use super::{absence, drift, policy};
use remoor_model::{Exam, Finding, Inventory, Node, Verdict};
use serde::{Deserialize, Serialize};

/// One decision, with the rule that determined it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The subject of the decision: `cause`, `verdict` or `action`.
    pub decides: String,
    pub rule: String,
    /// The result of the rule with the present data.
    pub gives: String,
    /// The result that was decided when the finding was made.
    pub concluded: String,
}

/// Cause, verdict and action of `finding`, each with its rule. `exam` is the examination of the
/// finding; `node` and `inventory` are then the states of that time. Without `exam`, the cause
/// comes from the finding, and the action is derived from the current state.
pub fn explain(inventory: &Inventory, node: &Node, finding: &Finding, exam: Option<&Exam>) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut add = |decides: &str, rule: String, gives: String, concluded: String| {
        rules.push(Rule { decides: decides.to_owned(), rule, gives, concluded });
    };
    if let Some(concluded) = finding.cause.filter(|_| finding.absence.is_some()) {
        let (cause, rule) = match (exam, &node.absence) {
            (Some(exam), Some(away)) => absence::strongest_cause(node, away, exam),
            _ => (concluded, absence::rule_of(concluded)),
        };
        add("cause", rule.to_owned(), format!("{cause:?}").to_lowercase(), format!("{concluded:?}").to_lowercase());
    }
    let then = finding.overtaken.as_ref().map_or(&finding.verdict, |(before, _)| before);
    if finding.overtaken.is_some() {
        // A repair removes the reasons from the finding, so the rule of the verdict can't be
        // evaluated again.
        add("verdict", "repaired since; its reasons are in the history".to_owned(), then.to_string(), then.to_string());
        return rules;
    }
    let unclear = match then {
        Verdict::Unknown(why) => vec![why.clone()],
        _ => Vec::new(),
    };
    let (verdict, rule) = drift::weigh(&finding.reasons, &unclear);
    add("verdict", rule.to_owned(), verdict.to_string(), then.to_string());
    let mut then = node.clone();
    if exam.is_none() {
        // The job that this finding caused must not change the repeated decision.
        then.job = None;
    }
    let (remedy, rule) =
        policy::decide(inventory, &then, finding.trigger, &finding.verdict, &finding.reasons, finding.at);
    add("action", rule, remedy.to_string(), finding.planned_action.to_string());
    rules
}
