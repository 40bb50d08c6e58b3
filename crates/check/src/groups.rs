//! `any-of` and `all-of`: the result of a group follows from the results of its members. Pure.

use super::judge::{Detail, JudgedAssertion, judge};
use super::load::Check;
use super::probe::{ProbeAnswer, ProbeAnswers, ProbeError};
use super::spec::{HOLDS, ResourceKind};
use remoor_model::{CheckResult, CheckState};
use std::collections::BTreeMap;

/// The combined result of all assertions of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberOutcome {
    Holds,
    Fails,
    /// An assertion of the check has the result `Unknown`, and none fails.
    Unanswered,
    /// The check was skipped.
    Skipped,
}

/// Fills in the results of the groups among `checks`. `results` has a list for each check, in the
/// same order; the lists of groups are empty. `parse` ensures that a group comes after its members.
/// `waive` is applied to each result that is filled in.
pub(super) fn settle(
    checks: &[Check],
    results: Vec<&mut Vec<JudgedAssertion>>,
    detail: Detail,
    waive: impl Fn(&Check, &mut CheckResult),
) {
    // The label of a check is unique within its file, but not among the services of a node.
    let mut outcomes: BTreeMap<(&str, &str, String), MemberOutcome> = BTreeMap::new();
    for (check, results) in checks.iter().zip(results) {
        let of = |label: String| (check.service.as_str(), check.file.as_str(), label);
        if check.kind.is_group() {
            let members: Vec<(&str, MemberOutcome)> = check
                .members
                .iter()
                .map(|label| {
                    (label.as_str(), outcomes.get(&of(label.clone())).copied().unwrap_or(MemberOutcome::Unanswered))
                })
                .collect();
            *results = judge_group(check, &members, detail);
            results.iter_mut().for_each(|judged| waive(check, &mut judged.result));
        }
        outcomes.insert(of(check.label()), outcome(results));
    }
}

fn judge_group(check: &Check, members: &[(&str, MemberOutcome)], detail: Detail) -> Vec<JudgedAssertion> {
    let (answer, skipped) = match answer(check.kind, members) {
        Some(answer) => (answer, check.skip),
        None => (Ok(true.into()), true),
    };
    let mut results = judge(check, &ProbeAnswers::from([(HOLDS, answer)]), detail);
    if skipped {
        for judged in &mut results {
            (judged.result.state, judged.explained) = (CheckState::Skip, None);
            judged.result.found.clear();
        }
    }
    results
}

/// The answer for a group; None if all members were skipped.
fn answer(kind: ResourceKind, members: &[(&str, MemberOutcome)]) -> Option<ProbeAnswer> {
    let those = |wanted: MemberOutcome| -> Vec<&str> {
        members.iter().filter(|(_, outcome)| *outcome == wanted).map(|(label, _)| *label).collect()
    };
    let (hold, fail, open) =
        (those(MemberOutcome::Holds), those(MemberOutcome::Fails), those(MemberOutcome::Unanswered));
    let unanswered = |open: &[&str]| Err(ProbeError::Unknown(format!("no answer: {}", open.join(", "))));
    if hold.is_empty() && fail.is_empty() && open.is_empty() {
        return None;
    }
    Some(match kind {
        ResourceKind::AnyOf if !hold.is_empty() => Ok(true.into()),
        ResourceKind::AnyOf if !open.is_empty() => unanswered(&open),
        ResourceKind::AnyOf => Err(ProbeError::Failed(format!("no member passes: {}", fail.join(", ")))),
        _ if !fail.is_empty() => Err(ProbeError::Failed(format!("failing members: {}", fail.join(", ")))),
        _ if !open.is_empty() => unanswered(&open),
        _ => Ok(true.into()),
    })
}

/// Combines the results of all assertions of one check. A waived failure does not count as a
/// failure.
fn outcome(results: &[JudgedAssertion]) -> MemberOutcome {
    let any = |state: CheckState| results.iter().any(|judged| judged.result.state == state);
    if any(CheckState::Fail) {
        MemberOutcome::Fails
    } else if any(CheckState::Unknown) {
        MemberOutcome::Unanswered
    } else if any(CheckState::Pass) || any(CheckState::Waived) {
        MemberOutcome::Holds
    } else {
        MemberOutcome::Skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arbitrary_outcome() -> impl Strategy<Value = MemberOutcome> {
        prop_oneof![
            Just(MemberOutcome::Holds),
            Just(MemberOutcome::Fails),
            Just(MemberOutcome::Unanswered),
            Just(MemberOutcome::Skipped)
        ]
    }

    proptest! {
        /// If a group gives an answer, the answer must be the same for all possible results of the
        /// unanswered members. Otherwise the group must give no answer.
        #[test]
        fn a_group_answers_when_and_only_when_nothing_can_change_it(
            outcomes in prop::collection::vec(arbitrary_outcome(), 1..6),
            all in any::<bool>(),
        ) {
            let kind = if all { ResourceKind::AllOf } else { ResourceKind::AnyOf };
            let members: Vec<(&str, MemberOutcome)> = outcomes.iter().map(|outcome| ("m", *outcome)).collect();
            let asked: Vec<MemberOutcome> = outcomes.into_iter().filter(|outcome| *outcome != MemberOutcome::Skipped).collect();
            let settled = |open: bool| {
                let holds = |outcome: &MemberOutcome| *outcome == MemberOutcome::Holds || (*outcome == MemberOutcome::Unanswered && open);
                if all { asked.iter().all(holds) } else { asked.iter().any(holds) }
            };
            match answer(kind, &members) {
                None => prop_assert!(asked.is_empty()),
                Some(Ok(_)) => prop_assert!(settled(false) && settled(true)),
                Some(Err(ProbeError::Failed(_))) => prop_assert!(!settled(false) && !settled(true)),
                Some(Err(ProbeError::Unknown(_))) => prop_assert_ne!(settled(false), settled(true)),
            }
        }
    }
}
