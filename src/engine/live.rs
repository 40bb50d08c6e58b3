//! Nodes that were never away: when to look at one, and the rollout of a new generation. It opens no job.

use super::event::{Action, Purpose};
use super::manager::{Manager, Moment};
use crate::model::{
    Availability, CheckSummary, Command, Finding, JobKind, Lifecycle, Node, Occasion, Remedy, Sha256, Verdict, Want,
};

impl Manager {
    /// A node that was never away: its agent's hints decide when to look, never what is concluded.
    pub(super) fn live(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node.id).or_default().clone();
        if !seen.alive || node.lifecycle != Lifecycle::Commissioned || node.key_changed.is_some() {
            return;
        }
        let Some(baseline) = &node.baseline else { return };
        if self.roll_out(at, node, out) {
            return;
        }
        let Some(report) = &seen.report else { return };
        let finding = node.finding.as_ref();
        let unclear = finding.is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
        let look = (report.digest, report.checks);
        let last = finding.and_then(|f| f.digest).unwrap_or(baseline.root);
        let failed = finding.is_some_and(|f| f.checks.1 > 0);
        let hashed = report.digest != Sha256::default() && report.digest != last;
        let checked = match report.checks {
            CheckSummary::Pass => failed,
            CheckSummary::Fail => !failed,
            CheckSummary::None | CheckSummary::Unknown => false,
        };
        let every = at.inventory.limits().check_interval_ms;
        // What was desired is desired again: the conclusion that it had changed no longer holds.
        let behind = at.inventory.outdated(node);
        let moved_back = !behind && finding.is_some_and(|f| matches!(f.verdict, Verdict::Outdated | Verdict::Conflict));
        let again = seen.looked_at.filter(|(before, _, _)| *before == look);
        let rested = again.is_none_or(|(_, since, times)| at.now.since(since) >= every << times.min(3));
        let news = (hashed || checked || moved_back || node.half_done()) && rested || node.unseen;
        let owed = at.inventory.own_move(node).is_some();
        // A re-setup that was due and is neither wanted nor under way was held, paused or called off, and is free again.
        let due = finding.is_some_and(|f| match f.remedy {
            Remedy::Held(_) => true,
            Remedy::Resetup(_) | Remedy::Blocked(_) => f.verdict.drifted() || owed,
            Remedy::None | Remedy::Report => false,
        });
        // It moved, and whoever looked last did not know what it was to be there, or looked for another reason.
        let said =
            |f: &Finding| f.verdict != Verdict::Same && (f.occasion != Occasion::Live || f.remedy != Remedy::Report);
        let unsaid = owed && finding.is_none_or(|f| !said(f));
        let due = due && node.availability == Availability::Active && node.held(at.wall).is_none();
        if unclear || due || news || unsaid {
            let told = finding.filter(|_| unclear || due).map_or(Occasion::Live, |f| f.occasion);
            // A move is a return, however it was noticed: what follows from it is not for the policy of live drift.
            let occasion = if owed && told == Occasion::Live { Occasion::Network } else { told };
            self.examine(at, node, Purpose::Live(occasion), out);
        }
    }

    /// A new generation, where the group's policy rolls it out by itself: a canary first, since a held job stops the rest.
    fn roll_out(&mut self, at: Moment, node: &Node, out: &mut Vec<Action>) -> bool {
        let Some((name, group)) = at.inventory.group(node) else { return false };
        let applied = node.baseline.as_ref().map(|b| b.desired);
        let behind = at.inventory.desired(node).is_some_and(|desired| Some(desired) != applied);
        let only_moved = node.moved.is_none() && at.inventory.only_moved(node);
        if !behind || only_moved || group.policy(Occasion::Apply) == crate::model::Policy::Report {
            return false;
        }
        let stuck = at.inventory.jobs.values().any(|j| {
            j.state == crate::model::JobState::Held
                && j.kind() != JobKind::Undo
                && j.generation == at.inventory.current
                && at.inventory.node(j.node).and_then(|n| at.inventory.group(n)).is_some_and(|(g, _)| g == name)
        });
        if stuck {
            return false;
        }
        let want = Want::new(Occasion::Apply, at.wall);
        self.propose(at, node.id, Command::Want { node: node.id, want: Box::new(want) }, out);
        true
    }
}
