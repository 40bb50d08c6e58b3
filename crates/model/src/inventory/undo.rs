//! The undo of an attempt: the attempts that can be undone, and the state of the node afterwards.

use super::*;

impl Inventory {
    /// Refuses an attempt that cannot be undone, with the reason. Only the node knows whether its
    /// backed-up files still exist.
    pub(super) fn may_undo(&self, node: &Node, attempt: AttemptId) -> Result<(), Refusal> {
        let name = node.name();
        let of = self.jobs.values().filter(|j| j.node == node.id);
        let known = of.flat_map(|j| j.attempts.iter().map(move |a| (j, a))).find(|(_, a)| a.id == attempt);
        let refuse = |code: &str, text: String| Refusal::new(code, text);
        let Some((job, known)) = known else {
            let text = format!("no attempt {attempt} of {name} is on record");
            return Err(refuse("unknown-attempt", text).next(format!("remoor job list --node {name}")));
        };
        if job.spec.undo.is_some() {
            return Err(refuse(
                "nothing-to-undo",
                format!("attempt {attempt} was an undo itself; it backed up no files"),
            ));
        }
        if known.phase == Phase::Fence {
            let text = format!("attempt {attempt} ended before its cleanup began; it changed nothing");
            return Err(refuse("nothing-to-undo", text));
        }
        if node.is_away() {
            let text = format!("{name} is away; an undo is not queued");
            return Err(refuse("away", text).next(format!("remoor wait {name} --for=alive")));
        }
        if matches!(node.lifecycle, Lifecycle::Decommissioning | Lifecycle::Decommissioned) {
            let text = format!("{name} is {}; its files are not restored", node.lifecycle.as_str());
            return Err(refuse("decommissioned", text).next(format!("remoor commission {name}")));
        }
        if let Some(open) = node.job.and_then(|j| self.job(j)).filter(|j| j.state == JobState::Open) {
            let text = format!("job {} is open on {name}", open.id);
            return Err(refuse("job-open", text).next(format!("remoor job cancel {}", open.id)));
        }
        // The undo replaces an automatic request, because the node is held afterwards. It never
        // replaces an operator's request.
        if let Some(by) =
            node.pending_resetup.as_ref().filter(|w| w.spec.undo.is_none()).and_then(|w| w.spec.by.as_ref())
        {
            let text = format!("a re-setup of {name} is queued (by {by}), which would overwrite it");
            return Err(refuse("already-wanted", text).next(format!("remoor job cancel {name}")));
        }
        Ok(())
    }
}

impl Node {
    /// Records a finished undo. Restored files are not provisioned again until an operator resumes
    /// the node. The node is examined again after the undo.
    pub(super) fn mark_undone(&mut self, attempt: AttemptId, by: &str, at: Wall) {
        let why = format!("undone by {by} (attempt {attempt}); remoor resume {}", self.name());
        self.hold = Some(Hold { why, since: at, until: None });
        self.examination.needs_examination = true;
        // Only the phase of a failed undo is cleared. The failure of the undone attempt itself
        // stays recorded.
        self.failed.take_if(|phase| phase == Phase::Undo.as_str());
    }
}
