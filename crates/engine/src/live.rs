//! Handles nodes that are not absent: decides when to examine them, and rolls out a new generation.
//! This module opens no job.

use super::event::{Action, Purpose};
use super::manager::{LastExamination, ManagerEngine, ReportSummary, StepContext};
use remoor_model::{
    Availability, CheckSummary, Command, Finding, Inventory, JobSpec, Lifecycle, Node, Now, PlannedAction, Sha256,
    Trigger, Verdict, report_stale_ms,
};

/// Number of changes of the check results after which further examinations are delayed.
const TURNS_FREE: u32 = 4;
/// Maximum number of times that the pause between examinations doubles. The first pause is the
/// check interval.
const DOUBLED_MAX: u32 = 3;

impl ManagerEngine {
    /// Handles a node that is not absent. The agent's reports decide when the node is examined.
    /// They never decide the result of an examination.
    pub(super) fn live(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) {
        let alive = self.seen.get(&node.id).is_some_and(|s| s.is_present());
        if !alive || node.lifecycle != Lifecycle::Commissioned || node.host_key.changed.is_some() {
            return;
        }
        let Some(baseline) = &node.setup.baseline else { return };
        if self.roll_out(at, node, out) {
            return;
        }
        let Some((looked, report)) =
            self.seen.get(&node.id).and_then(|s| Some((s.last_examination, s.report.as_ref()?)))
        else {
            return;
        };
        let finding = node.examination.finding.as_ref();
        let unclear = finding.is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
        let hint = ReportSummary::from_report(report);
        let last = finding.and_then(|f| f.digest).unwrap_or(baseline.root);
        let hashed = report.digest != Sha256::default() && report.digest != last;
        let checked = !matches_finding(&hint, finding);
        let every = at.inventory.limits().check_interval_ms;
        // If the desired state equals the applied one again, the last verdict `outdated` or
        // `conflict` is not true any more.
        let behind = at.inventory.is_outdated(node);
        let moved_back = !behind && finding.is_some_and(|f| matches!(f.verdict, Verdict::Outdated | Verdict::Conflict));
        let rested = looked.is_none_or(|before| at.now.ms_since(before.at) >= pause_before_next(&before, &hint, every));
        let news =
            (hashed || checked || moved_back || node.half_done()) && rested || node.examination.needs_examination;
        let owed = at.inventory.own_address_change(node).is_some();
        // A due re-setup that is neither requested nor running was held, paused or dropped before.
        // It may begin now.
        let due = finding.is_some_and(|f| match f.planned_action {
            PlannedAction::Held(_) => true,
            PlannedAction::Resetup(_) | PlannedAction::Blocked(_) => f.verdict.is_drifted() || owed,
            PlannedAction::None | PlannedAction::Report => false,
        });
        // The node's own address changed, but the last finding does not show this. Its verdict is
        // `same`, or it only reports live drift.
        let said = |f: &Finding| {
            f.verdict != Verdict::Same && (f.trigger != Trigger::Live || f.planned_action != PlannedAction::Report)
        };
        let unsaid = owed && finding.is_none_or(|f| !said(f));
        let due = due && node.availability == Availability::Active && node.active_hold(at.wall).is_none();
        if unclear || due || news || unsaid || self.is_overdue(at, node, looked) {
            let told = finding.filter(|_| unclear || due).map_or(Trigger::Live, |f| f.trigger);
            // An address change counts as a return, and the policy for live drift does not apply to
            // it.
            let occasion = if owed && told == Trigger::Live { Trigger::Network } else { told };
            self.examine(at, node, Purpose::Live(occasion), out);
        }
    }

    /// Whether the node must be examined independently of its agent's report. This is so if the
    /// last examination is too old, or if the report is stale.
    fn is_overdue(&self, at: StepContext, node: &Node, looked: Option<LastExamination>) -> bool {
        let limit = report_stale_ms(at.inventory.nodes.len());
        let unseen = |since: Now| looked.is_none_or(|l| l.at < since || at.now.ms_since(l.at) >= limit);
        at.wall.ms_since(node.examination.seen) >= at.inventory.limits().examination_interval_ms
            || self.report_stale_since(at.now, at.inventory, node).is_some_and(unseen)
    }

    /// The time since which the node's report is stale. None if the report is renewed in time, or
    /// if the agent is an older one that does not renew reports. A stale report may be a replayed
    /// one, so the node must still be examined.
    pub(super) fn report_stale_since(&self, now: Now, inventory: &Inventory, node: &Node) -> Option<Now> {
        let seen = self.seen.get(&node.id).filter(|seen| seen.is_present())?;
        seen.report.as_ref().filter(|report| report.sequence != 0)?;
        let limit = report_stale_ms(inventory.nodes.len());
        (now.ms_since(seen.report_renewed) >= limit).then(|| seen.report_renewed.plus_ms(limit))
    }

    /// Rolls out a new generation if the group's policy requires it. A canary goes first, and a
    /// held job stops the rollout.
    fn roll_out(&mut self, at: StepContext, node: &Node, out: &mut Vec<Action>) -> bool {
        let applied = node.setup.baseline.as_ref().map(|b| b.desired);
        if at.inventory.desired_hash(node).is_none_or(|desired| Some(desired) == applied) {
            return false;
        }
        let Some((name, group)) = at.inventory.group(node) else { return false };
        let only_moved = node.setup.address_change.is_none() && at.inventory.only_addresses_changed(node);
        if only_moved || group.policy(Trigger::Apply) == remoor_model::Policy::Report {
            return false;
        }
        if at.inventory.held_in_rollout(name).next().is_some() {
            return false;
        }
        let want = JobSpec::new(Trigger::Apply).into_request(at.wall);
        self.propose(at, node.id, Command::RequestResetup { node: node.id, want: Box::new(want) }, out);
        true
    }
}

/// Whether the last examination found the same check results that the agent reports. The hashes are
/// compared, so that one failed check does not hide another.
fn matches_finding(hint: &ReportSummary, finding: Option<&Finding>) -> bool {
    let found = finding.map_or(Some(0), |f| f.failure_hash);
    match (hint.checks, found) {
        (CheckSummary::None, _) => true,
        (CheckSummary::Pass, Some(found)) => found == 0,
        (CheckSummary::Fail | CheckSummary::Unknown, Some(found)) if hint.failure_hash != 0 => {
            found == hint.failure_hash
        }
        // An older agent reports no hash, or an older manager stored none.
        (CheckSummary::Fail | CheckSummary::Unknown, Some(found)) => found != 0,
        (CheckSummary::Pass, None) => finding.is_none_or(|f| f.checks.1 == 0),
        (CheckSummary::Fail, None) => finding.is_some_and(|f| f.checks.1 > 0),
        (CheckSummary::Unknown, None) => finding.is_some_and(|f| f.checks.2 > 0),
    }
}

/// Returns the record of an examination at `now`. `before` is the record of the previous
/// examination, and `hint` is the agent's current report.
pub(super) fn record_examination(
    before: Option<LastExamination>,
    hint: ReportSummary,
    now: Now,
    every: u64,
) -> LastExamination {
    // If the checks did not change for longer than any pause, the count of changes begins again.
    let lately = |before: &LastExamination| now.ms_since(before.at) < every << (DOUBLED_MAX + 1);
    let turns = before
        .filter(lately)
        .map_or(0, |b| b.check_changes + u32::from(b.hint.digest == hint.digest && b.hint != hint));
    let again = before.filter(|b| b.hint == hint).map_or(0, |b| b.repeats + 1);
    LastExamination { hint, at: now, repeats: again, check_changes: turns }
}

/// Minimum pause between the last examination and the next one. `hint` is the agent's current
/// report. If files or check results changed, the node is examined at once, unless its checks flap.
fn pause_before_next(before: &LastExamination, hint: &ReportSummary, every: u64) -> u64 {
    match before.check_changes.checked_sub(TURNS_FREE) {
        _ if before.hint == *hint => every << before.repeats.min(DOUBLED_MAX),
        Some(turns) if before.hint.digest == hint.digest => every << turns.min(DOUBLED_MAX),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::sample;

    const EVERY: u64 = 60_000;

    fn hint(checks: CheckSummary, amiss: u64) -> ReportSummary {
        ReportSummary { digest: Sha256::digest(b"files"), checks, failure_hash: amiss }
    }

    fn finding(amiss: Option<u64>, failed: u32) -> Finding {
        Finding { failure_hash: amiss, checks: (5, failed, 0), ..sample::finding() }
    }

    #[test]
    fn a_failure_is_known_only_if_the_last_examination_found_the_same() {
        let (pass, fail) = (hint(CheckSummary::Pass, 0), |amiss| hint(CheckSummary::Fail, amiss));
        let unknown = |amiss| hint(CheckSummary::Unknown, amiss);
        let hung = |amiss| Finding { checks: (5, 0, 1), ..finding(amiss, 0) };
        for (hint, finding, expect) in [
            (pass, None, true),
            (fail(7), None, false),
            (fail(7), Some(finding(Some(7), 1)), true),
            (fail(8), Some(finding(Some(7), 1)), false),
            (fail(7), Some(finding(Some(0), 0)), false),
            (pass, Some(finding(Some(7), 1)), false),
            // A failed check with `on-fail: none` is counted, but causes no examination.
            (pass, Some(finding(Some(0), 1)), true),
            // An older agent reports only that a check failed. An older manager stored only the
            // number of failures.
            (fail(0), Some(finding(Some(7), 1)), true),
            (fail(0), Some(finding(Some(0), 0)), false),
            (fail(7), Some(finding(None, 1)), true),
            (fail(7), Some(finding(None, 0)), false),
            (pass, Some(finding(None, 1)), false),
            // An inconclusive check is examined like a failed one.
            (unknown(7), None, false),
            (unknown(7), Some(finding(Some(0), 0)), false),
            (unknown(7), Some(hung(Some(7))), true),
            (unknown(0), Some(finding(Some(0), 0)), false),
            (unknown(0), Some(hung(Some(7))), true),
            (unknown(7), Some(finding(None, 1)), false),
            (unknown(7), Some(hung(None)), true),
            (hint(CheckSummary::None, 0), Some(finding(Some(7), 1)), true),
        ] {
            assert_eq!(matches_finding(&hint, finding.as_ref()), expect, "{hint:?} {finding:?}");
        }
    }

    /// The numbers of the check intervals in which a node is examined. `hint` returns the agent's
    /// report in each interval.
    fn examination_times(intervals: u64, hint: impl Fn(u64) -> ReportSummary) -> Vec<u64> {
        let (mut last, mut all) = (None, Vec::new());
        for n in 0..intervals {
            let (now, hint) = (Now(n * EVERY), hint(n));
            if last.is_none_or(|l: LastExamination| now.ms_since(l.at) >= pause_before_next(&l, &hint, EVERY)) {
                last = Some(record_examination(last, hint, now, EVERY));
                all.push(n);
            }
        }
        all
    }

    #[test]
    fn flapping_checks_are_examined_ever_later_and_changed_files_at_once() {
        let flapping = examination_times(60, |n| hint(CheckSummary::Fail, n + 1));
        assert_eq!(flapping, [0, 1, 2, 3, 4, 5, 7, 11, 19, 27, 35, 43, 51, 59]);
        assert_eq!(examination_times(60, |_| hint(CheckSummary::Fail, 7)), [0, 1, 3, 7, 15, 23, 31, 39, 47, 55]);
        let edited = |n: u64| ReportSummary { digest: Sha256::digest(&n.to_be_bytes()), ..hint(CheckSummary::Pass, 0) };
        assert_eq!(examination_times(20, edited), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn checks_without_changes_for_long_are_examined_at_once_again() {
        let turned = LastExamination { hint: hint(CheckSummary::Fail, 1), at: Now(0), repeats: 0, check_changes: 9 };
        let now = Now(EVERY << (DOUBLED_MAX + 1));
        let next = record_examination(Some(turned), hint(CheckSummary::Pass, 0), now, EVERY);
        assert_eq!(pause_before_next(&next, &hint(CheckSummary::Fail, 2), EVERY), 0);
    }
}
