//! Undoing an attempt: which one may be undone, and how its node stands afterwards.

use super::*;

impl Inventory {
    /// Refuses with the reason. Whether the copies are still on the node, only the node knows.
    pub(super) fn may_undo(&self, node: &Node, attempt: AttemptId) -> Result<(), Refusal> {
        let name = node.name();
        let of = self.jobs.values().filter(|j| j.node == node.id);
        let known = of.flat_map(|j| j.attempts.iter().map(move |a| (j, a))).find(|(_, a)| a.id == attempt);
        let refuse = |code: &str, text: String| Refusal::new(code, text);
        let Some((job, known)) = known else {
            let text = format!("no attempt {attempt} of {name} is on record");
            return Err(refuse("unknown-attempt", text).next(format!("remoor job list --node {name}")));
        };
        if job.undo.is_some() {
            return Err(refuse("nothing-to-undo", format!("attempt {attempt} was an undo itself; it copied nothing")));
        }
        if known.phase == Phase::Fence {
            let text = format!("attempt {attempt} ended before its cleanup began; it changed nothing");
            return Err(refuse("nothing-to-undo", text));
        }
        if node.away() {
            let text = format!("{name} is away; an undo is not queued");
            return Err(refuse("away", text).next(format!("remoor wait {name} --for=alive")));
        }
        if matches!(node.lifecycle, Lifecycle::Decommissioning | Lifecycle::Decommissioned) {
            let text = format!("{name} is {}; what was on it is not put back", node.lifecycle.word());
            return Err(refuse("decommissioned", text).next(format!("remoor commission {name}")));
        }
        if let Some(open) = node.job.and_then(|j| self.job(j)).filter(|j| j.state == JobState::Open) {
            let text = format!("job {} is open on {name}", open.id);
            return Err(refuse("job-open", text).next(format!("remoor job cancel {}", open.id)));
        }
        // What remoor itself wants gives way, and is held afterwards; what an operator wants does not.
        if let Some(by) = node.want.as_ref().filter(|w| w.undo.is_none()).and_then(|w| w.by.as_ref()) {
            let text = format!("a re-setup of {name} is queued (by {by}), which would overwrite it");
            return Err(refuse("already-wanted", text).next(format!("remoor job cancel {name}")));
        }
        Ok(())
    }
}

impl Node {
    /// What was put back is not set up again until an operator says so, and is looked at now.
    pub(super) fn undone(&mut self, attempt: AttemptId, by: &str, at: Wall) {
        let why = format!("undone by {by} (attempt {attempt}); remoor resume {}", self.name());
        self.hold = Some(Hold { why, since: at, until: None });
        self.unseen = true;
        // The phase in which an earlier try of the undo ended; how the undone attempt ended still stands.
        self.failed.take_if(|phase| phase == Phase::Undo.word());
    }
}
