//! Nodes that are not absent: when to examine one, and the rollout of a new generation. Opens no
//! job.

use super::event::{Action, Purpose};
use super::manager::{Hint, Looked, Manager, Moment};
use remoor_model::{
    Availability, CheckSummary, Command, Finding, Lifecycle, Node, Now, Occasion, Remedy, Sha256, Verdict, Want,
};

/// Number of changes of the check result before the next examination is delayed.
const TURNS_FREE: u32 = 4;
/// Maximum number of times that the pause (the check interval) is doubled.
const DOUBLED_MAX: u32 = 3;

impl Manager {
    /// Handles a node that is not absent. The agent's reports determine when it is examined, but
    /// never the conclusion.
    pub(super) fn live(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) {
        let alive = self.seen.get(&node.id).is_some_and(|s| s.alive);
        if !alive || node.lifecycle != Lifecycle::Commissioned || node.key_changed.is_some() {
            return;
        }
        let Some(baseline) = &node.baseline else { return };
        if self.roll_out(at, node, out) {
            return;
        }
        let Some((looked, report)) = self.seen.get(&node.id).and_then(|s| Some((s.looked, s.report.as_ref()?))) else {
            return;
        };
        let finding = node.finding.as_ref();
        let unclear = finding.is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
        let hint = Hint::of(report);
        let last = finding.and_then(|f| f.digest).unwrap_or(baseline.root);
        let hashed = report.digest != Sha256::default() && report.digest != last;
        let checked = !known(&hint, finding);
        let every = at.inventory.limits().check_interval_ms;
        // The desired state changed back, so the conclusion that it had changed no longer holds.
        let behind = at.inventory.outdated(node);
        let moved_back = !behind && finding.is_some_and(|f| matches!(f.verdict, Verdict::Outdated | Verdict::Conflict));
        let rested = looked.is_none_or(|before| at.now.since(before.at) >= rest(&before, &hint, every));
        let news = (hashed || checked || moved_back || node.half_done()) && rested || node.unseen;
        let owed = at.inventory.own_move(node).is_some();
        // A due re-setup that is neither requested nor running was held, paused or dropped, and may
        // begin now.
        let due = finding.is_some_and(|f| match f.remedy {
            Remedy::Held(_) => true,
            Remedy::Resetup(_) | Remedy::Blocked(_) => f.verdict.drifted() || owed,
            Remedy::None | Remedy::Report => false,
        });
        // The address changed, but the last examination did not know the new desired state or had
        // another trigger.
        let said =
            |f: &Finding| f.verdict != Verdict::Same && (f.occasion != Occasion::Live || f.remedy != Remedy::Report);
        let unsaid = owed && finding.is_none_or(|f| !said(f));
        let due = due && node.availability == Availability::Active && node.held(at.wall).is_none();
        if unclear || due || news || unsaid {
            let told = finding.filter(|_| unclear || due).map_or(Occasion::Live, |f| f.occasion);
            // An address change counts as a return, however it was noticed. It does not fall under
            // the policy for live drift.
            let occasion = if owed && told == Occasion::Live { Occasion::Network } else { told };
            self.examine(at, node, Purpose::Live(occasion), out);
        }
    }

    /// Rolls out a new generation if the group's policy does so automatically. A canary goes first,
    /// and a held job stops the rest.
    fn roll_out(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) -> bool {
        let applied = node.baseline.as_ref().map(|b| b.desired);
        if at.inventory.desired(node).is_none_or(|desired| Some(desired) == applied) {
            return false;
        }
        let Some((name, group)) = at.inventory.group(node) else { return false };
        let only_moved = node.moved.is_none() && at.inventory.only_moved(node);
        if only_moved || group.policy(Occasion::Apply) == remoor_model::Policy::Report {
            return false;
        }
        if at.inventory.roll_out_held(name).next().is_some() {
            return false;
        }
        let want = Want::new(Occasion::Apply, at.wall);
        self.propose(at, node.id, Command::Want { node: node.id, want: Box::new(want) }, out);
        true
    }
}

/// The last examination found exactly the check results that the agent reports. Comparing the hash
/// ensures that one failing check does not hide another.
fn known(hint: &Hint, finding: Option<&Finding>) -> bool {
    let found = finding.map_or(Some(0), |f| f.amiss);
    match (hint.checks, found) {
        (CheckSummary::None, _) => true,
        (CheckSummary::Pass, Some(found)) => found == 0,
        (CheckSummary::Fail | CheckSummary::Unknown, Some(found)) if hint.amiss != 0 => found == hint.amiss,
        // An older agent reports no hash, or an older manager stored none.
        (CheckSummary::Fail | CheckSummary::Unknown, Some(found)) => found != 0,
        (CheckSummary::Pass, None) => finding.is_none_or(|f| f.checks.1 == 0),
        (CheckSummary::Fail, None) => finding.is_some_and(|f| f.checks.1 > 0),
        (CheckSummary::Unknown, None) => finding.is_some_and(|f| f.checks.2 > 0),
    }
}

/// Records an examination at `now` after the previous one.
pub(super) fn look(before: Option<Looked>, hint: Hint, now: Now, every: u64) -> Looked {
    // Checks without a change for longer than any pause start with a fresh count.
    let lately = |before: &Looked| now.since(before.at) < every << (DOUBLED_MAX + 1);
    let turns =
        before.filter(lately).map_or(0, |b| b.turns + u32::from(b.hint.digest == hint.digest && b.hint != hint));
    let again = before.filter(|b| b.hint == hint).map_or(0, |b| b.again + 1);
    Looked { hint, at: now, again, turns }
}

/// Pause after the last examination, given the agent's current report. Changed files are examined
/// at once, and so are changed checks, unless they flap.
fn rest(before: &Looked, hint: &Hint, every: u64) -> u64 {
    match before.turns.checked_sub(TURNS_FREE) {
        _ if before.hint == *hint => every << before.again.min(DOUBLED_MAX),
        Some(turns) if before.hint.digest == hint.digest => every << turns.min(DOUBLED_MAX),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::sample;

    const EVERY: u64 = 60_000;

    fn hint(checks: CheckSummary, amiss: u64) -> Hint {
        Hint { digest: Sha256::of(b"files"), checks, amiss }
    }

    fn finding(amiss: Option<u64>, failed: u32) -> Finding {
        Finding { amiss, checks: (5, failed, 0), ..sample::finding() }
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
            // A failing check with `on-fail: none` is only counted.
            (pass, Some(finding(Some(0), 1)), true),
            // Older agents report only that a check fails; older managers stored only the number of
            // failures.
            (fail(0), Some(finding(Some(7), 1)), true),
            (fail(0), Some(finding(Some(0), 0)), false),
            (fail(7), Some(finding(None, 1)), true),
            (fail(7), Some(finding(None, 0)), false),
            (pass, Some(finding(None, 1)), false),
            // An inconclusive check is examined like a failure.
            (unknown(7), None, false),
            (unknown(7), Some(finding(Some(0), 0)), false),
            (unknown(7), Some(hung(Some(7))), true),
            (unknown(0), Some(finding(Some(0), 0)), false),
            (unknown(0), Some(hung(Some(7))), true),
            (unknown(7), Some(finding(None, 1)), false),
            (unknown(7), Some(hung(None)), true),
            (hint(CheckSummary::None, 0), Some(finding(Some(7), 1)), true),
        ] {
            assert_eq!(known(&hint, finding.as_ref()), expect, "{hint:?} {finding:?}");
        }
    }

    /// Times of the examinations if the check report is taken from `hint` in each of so many
    /// intervals.
    fn looks(intervals: u64, hint: impl Fn(u64) -> Hint) -> Vec<u64> {
        let (mut last, mut all) = (None, Vec::new());
        for n in 0..intervals {
            let (now, hint) = (Now(n * EVERY), hint(n));
            if last.is_none_or(|l: Looked| now.since(l.at) >= rest(&l, &hint, EVERY)) {
                last = Some(look(last, hint, now, EVERY));
                all.push(n);
            }
        }
        all
    }

    #[test]
    fn flapping_checks_are_examined_ever_later_and_changed_files_at_once() {
        let flapping = looks(60, |n| hint(CheckSummary::Fail, n + 1));
        assert_eq!(flapping, [0, 1, 2, 3, 4, 5, 7, 11, 19, 27, 35, 43, 51, 59]);
        assert_eq!(looks(60, |_| hint(CheckSummary::Fail, 7)), [0, 1, 3, 7, 15, 23, 31, 39, 47, 55]);
        let edited = |n: u64| Hint { digest: Sha256::of(&n.to_be_bytes()), ..hint(CheckSummary::Pass, 0) };
        assert_eq!(looks(20, edited), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn checks_without_changes_for_long_are_examined_at_once_again() {
        let turned = Looked { hint: hint(CheckSummary::Fail, 1), at: Now(0), again: 0, turns: 9 };
        let now = Now(EVERY << (DOUBLED_MAX + 1));
        let next = look(Some(turned), hint(CheckSummary::Pass, 0), now, EVERY);
        assert_eq!(rest(&next, &hint(CheckSummary::Fail, 2), EVERY), 0);
    }
}
