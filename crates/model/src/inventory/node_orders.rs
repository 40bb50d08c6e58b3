//! Entries about a single node: host keys, availability, maintenance, host fingerprint, adoption
//! and resume.

use super::*;

impl Inventory {
    /// Replaces the node's known SSH host keys with `keys`.
    pub(super) fn trust_key(&mut self, at: &ApplyContext, id: NodeId, keys: &[String]) -> Decision {
        if keys.is_empty() {
            return Err(Refusal::new("no-key", "no key was given to trust"));
        }
        let node = self.change(id)?;
        node.spec.ssh_host_keys = keys.to_vec();
        node.host_key.changed = None;
        (node.examination.invalidated_at_index, node.host_key.trusted_at_index) = (at.index, at.index);
        self.note(at, Some(id), JournalEvent::KeyTrusted { keys: keys.to_vec() });
        Ok(Applied::Done)
    }

    /// Records that the node offered an SSH host key that is not trusted.
    pub(super) fn record_changed_key(
        &mut self,
        at: &ApplyContext,
        id: NodeId,
        fingerprint: &str,
        basis: u64,
    ) -> Decision {
        let node = self.change(id)?;
        if basis != 0 && basis < node.examination.invalidated_at_index {
            return Err(Refusal::new("stale", "the node changed after that key was offered"));
        }
        node.host_key.changed = Some(fingerprint.to_owned());
        self.note(at, Some(id), JournalEvent::KeyChanged { fingerprint: fingerprint.to_owned() });
        Ok(Applied::Done)
    }

    pub(super) fn set_availability(&mut self, at: &ApplyContext, id: NodeId, availability: Availability) -> Decision {
        let drained = self.node(id).filter(|n| n.availability == Availability::Drain);
        if let Some(name) = drained.map(|n| n.name().clone()) {
            let text = format!("{name} is drained; nothing is provisioned on it");
            return Err(Refusal::new("drained", text).next(format!("remoor resume {name}")));
        }
        self.change(id)?.availability = availability;
        let text = format!("availability {availability:?}").to_lowercase();
        self.note(at, Some(id), JournalEvent::Operator { text });
        Ok(Applied::Done)
    }

    /// Begins an announced maintenance of the node, or ends it if `until` is None.
    pub(super) fn set_maintenance(&mut self, at: &ApplyContext, id: NodeId, until: Option<Wall>) -> Decision {
        let by = at.entry.by.clone();
        self.change(id)?.maintenance = until.map(|until| Maintenance { from: at.entry.at, until, by });
        let text = if until.is_some() { "maintenance announced" } else { "maintenance ended" };
        self.note(at, Some(id), JournalEvent::Operator { text: text.to_owned() });
        Ok(Applied::Done)
    }

    pub(super) fn record_fingerprint(&mut self, at: &ApplyContext, id: NodeId, marks: &HostFingerprint) -> Decision {
        let node = self.change(id)?;
        if node.absence.is_some() {
            return Err(Refusal::new("absent", "an absence is open"));
        }
        node.examination.last_identity = Some(marks.clone());
        node.examination.seen = at.entry.at;
        Ok(Applied::Done)
    }

    /// Makes the current state of the node its baseline.
    pub(super) fn adopt(&mut self, at: &ApplyContext, id: NodeId, baseline: &Baseline, basis: u64) -> Decision {
        let known = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node {id}")))?;
        self.may_adopt(known, basis)?;
        self.close_held_job(id, at.entry.at)?;
        let node = self.change(id)?;
        node.pending_resetup = node.pending_resetup.take().filter(|w| w.spec.by.is_some());
        node.hold = None;
        node.setup.adopted_only |= node.setup.baseline.is_none();
        node.setup.baseline = Some(baseline.clone());
        node.lifecycle = Lifecycle::Commissioned;
        node.failed = None;
        node.examination.invalidated_at_index = at.index;
        node.examination.needs_examination = false;
        node.setup.address_change = None;
        node.mark_as_desired(Some(baseline.root), at.entry.at);
        self.note(at, Some(id), JournalEvent::Adopted { files: true });
        Ok(Applied::Done)
    }

    /// Checks whether the node may be adopted. `basis` is the applied index when the examination
    /// began, or 0 if it is unknown.
    fn may_adopt(&self, node: &Node, basis: u64) -> Result<(), Refusal> {
        let name = node.name();
        if node.job.and_then(|j| self.job(j)).is_some_and(|j| j.state == JobState::Open) {
            let text = format!("{name} is being set up; its current state cannot be adopted as a baseline");
            return Err(Refusal::new("job-open", text).next("remoor job cancel"));
        }
        if node.lifecycle == Lifecycle::Decommissioning {
            let text = format!("{name} is being decommissioned");
            return Err(Refusal::new("decommissioned", text).next(format!("remoor commission {name}")));
        }
        if basis != 0 && basis < node.examination.invalidated_at_index {
            let text = format!("{name} changed while it was examined; nothing was adopted");
            return Err(Refusal::new("outlived", text).next(format!("remoor adopt {name}")));
        }
        if node.availability == Availability::Drain {
            let text = format!("{name} is drained; its current state will be cleaned up");
            return Err(Refusal::new("drained", text).next(format!("remoor resume {name}")));
        }
        Ok(())
    }

    /// Puts an adopted node under the policies of its group.
    pub(super) fn entrust(&mut self, at: &ApplyContext, id: NodeId) -> Decision {
        let node = self.change(id)?;
        if !node.setup.adopted_only {
            let text = format!("{} is not an adopted node, or remoor manages it already", node.name());
            return Err(Refusal::new("not-adopted", text));
        }
        node.setup.adopted_only = false;
        let text = "entrusted to remoor: the policies of its group hold".to_owned();
        self.note(at, Some(id), JournalEvent::Operator { text });
        Ok(Applied::Done)
    }

    /// Ends a hold and a drain of the node. A held re-setup is requested again.
    pub(super) fn resume_node(&mut self, at: &ApplyContext, id: NodeId) -> Decision {
        let held = self.close_held_job(id, at.entry.at)?;
        let node = self.change(id)?;
        node.end_drain(held.as_deref());
        node.hold = None;
        // A failed undo is not repeated automatically. An operator may order it again.
        if let Some(job) = held.filter(|j| j.spec.undo.is_none()) {
            node.pending_resetup = Some(job.to_request(at.entry.at));
        }
        self.note(at, Some(id), JournalEvent::Resumed);
        Ok(Applied::Done)
    }
}
