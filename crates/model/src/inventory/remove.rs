//! The entry that removes a node permanently, and the record that is kept of the node.
//!
//! A member of Raft is never removed directly. With `force` the node is demoted first. The leader's
//! role manager proposes the removal again after the node's Raft id is retired.

use super::*;

impl Inventory {
    pub(super) fn remove(&mut self, at: &ApplyContext, id: NodeId, force: bool, rotate_gossip: bool) -> Decision {
        let order = PendingRemoval { by: at.entry.by.clone(), since: at.entry.at, rotate_gossip };
        if let NodeMembership::Left(_) = self.membership(id) {
            return self.remove_left(at, id, order); // it is not in the cluster and is not a manager
        }
        let node = self.member(id)?;
        if !force {
            self.may_go(node, at.entry.at)?;
        }
        self.may_remember()?;
        self.no_open_job(node)?;
        if node.manages() { self.begin_removal(at, id, order) } else { self.forget(at, id, order) }
    }

    pub(super) fn may_remember(&self) -> Result<(), Refusal> {
        if self.departed.removed.len() < REMOVED_MAX {
            return Ok(());
        }
        let text = format!("{REMOVED_MAX} removed nodes are remembered, which is the maximum");
        Err(Refusal::new("too-many-removed", text).next("wait until entries expire: remoor nodes --removed"))
    }

    pub(super) fn no_open_job(&self, node: &Node) -> Result<(), Refusal> {
        let Some(job) = node.job.and_then(|j| self.job(j)).filter(|j| j.state == JobState::Open) else { return Ok(()) };
        let text = format!("job {} is open on {}", job.id, node.name());
        Err(Refusal::new("job-open", text).next(format!("remoor job cancel {}", job.id)))
    }

    /// Checks a removal without force. Only a worker that is away, or was never observed, can be
    /// removed.
    fn may_go(&self, node: &Node, moment: Wall) -> Result<(), Refusal> {
        let name = node.name();
        if node.role == ClusterRole::Manager {
            let text = format!("{name} is a manager");
            return Err(
                Refusal::new("manager", text).next(format!("remoor demote {name}, or remoor remove {name} --force"))
            );
        }
        if let Some(raft) = node.raft {
            let text = format!("{name} has not left Raft yet, where its id is {raft}");
            return Err(Refusal::new("raft-member", text).next(format!("remoor nodes {name} shows what it waits for")));
        }
        let up = Refusal::new("node-up", format!("node {name} is up; stop it or use --force"))
            .next(format!("systemctl stop remoor on {name}, or remoor remove {name} --force"));
        match &node.absence {
            Some(absence) if absence.returned.is_some() => Err(up),
            Some(absence) if absence.kind != AbsenceKind::Left && moment.ms_since(absence.opened) < DOWN_MS => {
                let text = format!("{name} has been away for less than {} s", DOWN_MS / 1_000);
                Err(Refusal::new("just-gone", text).next(format!("remoor remove {name} again in a moment")))
            }
            Some(_) => Ok(()),
            // A node that was never observed has no absence. The API checks in gossip whether such
            // a node is alive before it proposes the order.
            None if node.examination.last_identity.is_none() => Ok(()),
            None => Err(up),
        }
    }

    /// Demotes the node. The node is removed once it has left Raft.
    fn begin_removal(&mut self, at: &ApplyContext, id: NodeId, order: PendingRemoval) -> Decision {
        let node = self.change(id)?;
        if node.role == ClusterRole::Worker && node.removing.is_some() {
            let text = format!("{} is being removed already", node.name());
            return Err(Refusal::new("nothing-new", text).next(format!("remoor nodes {}", node.name())));
        }
        if node.role == ClusterRole::Manager {
            self.set_role(at, id, ClusterRole::Worker)?;
        }
        self.change(id)?.removing = Some(order);
        self.note(at, Some(id), JournalEvent::Operator { text: "to be removed once it has left Raft".to_owned() });
        Ok(Applied::Done)
    }

    fn forget(&mut self, at: &ApplyContext, id: NodeId, order: PendingRemoval) -> Decision {
        let node = self.withdraw(at, id, "removed")?;
        self.remember(at, &node, node.removing.clone().unwrap_or(order));
        Ok(Applied::Done)
    }

    /// Deletes the node from the list of nodes, so that nothing is run on it any more (invariant
    /// I8). An open absence gets its single verdict here (invariant I11). `why` is one word, such
    /// as `removed`. If the deletion is refused, nothing has changed.
    pub(super) fn withdraw(&mut self, at: &ApplyContext, id: NodeId, why: &str) -> Result<Arc<Node>, Refusal> {
        self.close_held_job(id, at.entry.at)?;
        let cancelled = |j: &Job| {
            matches!(j.attempts.last(), Some(Attempt { closed: Some((_, AttemptOutcome::Cancelled(_))), .. }))
        };
        for job in self.jobs.values_mut().filter(|j| j.node == id && !j.end_task_now && cancelled(j)) {
            Arc::make_mut(job).end_task_now = true; // a task that was allowed to finish ends now
        }
        let node = self.nodes.remove(&id).ok_or_else(|| self.departed.membership(id).no_such_node(id))?;
        self.names.remove(node.name());
        self.expired_certificates.remove(&id);
        if let Some(absence) = &node.absence {
            let finding = Box::new(closing_finding(absence, at, why));
            self.note(at, Some(id), JournalEvent::Concluded { finding });
        }
        if node.pending_resetup.is_some() {
            let past = if why == "left" { "left" } else { "was removed" };
            self.note(at, Some(id), JournalEvent::WantDropped { why: format!("the node {past}") });
        }
        Ok(node)
    }

    /// Stores the record of a removed node. The node's key cannot join while the record exists.
    pub(super) fn remember(&mut self, at: &ApplyContext, node: &Node, order: PendingRemoval) {
        let (moment, by) = (at.entry.at, order.by);
        self.note(at, Some(node.id), JournalEvent::Operator { text: format!("removed for good, as {by} ordered") });
        let removed = RemovedRecord {
            name: node.name().clone(),
            public_key: node.spec.public_key.clone(),
            machine_id: node.spec.machine_id.clone(),
            at: moment,
            by,
            until: moment.plus_ms(REMOVED_MS),
            rotate_gossip_after: if order.rotate_gossip { at.index } else { 0 },
        };
        self.departed.removed.insert(node.id, Arc::new(removed));
    }

    /// Drops the records of nodes whose certificates have certainly expired.
    pub(super) fn forget_removed(&mut self, moment: Wall) {
        self.departed.removed.retain(|_, removed| moment < removed.until);
    }

    /// Refuses a machine with the key of a removed node, because it may be a copy, or may have
    /// missed the removal. A new machine with the name of a group is refused too, because host
    /// patterns could not distinguish the node from the group.
    pub(super) fn may_join(&self, spec: &NodeSpec) -> Result<(), Refusal> {
        let group = GroupName(spec.name.0.clone());
        let new = !self.names.contains_key(&spec.name);
        if new && self.generation().is_some_and(|g| g.summary.groups.contains_key(&group)) {
            let text = format!("the applied fleet has a group {group}, and a node with that name would be ambiguous");
            return Err(Refusal::new("reserved-name", text).next("use --name with the name from your inventory"));
        }
        let Some(removed) = self.removed_key(&spec.public_key) else { return Ok(()) };
        let text = format!("this data directory belongs to {}, which was permanently removed", removed.name);
        Err(Refusal::new("node-removed", text)
            .next("move the data directory away and run remoor join again; the new directory gets a new key"))
    }
}

/// The finding that closes an absence without an examination.
fn closing_finding(absence: &Absence, at: &ApplyContext, why: &str) -> Finding {
    let left = absence.kind == AbsenceKind::Left;
    Finding {
        absence: Some(absence.no),
        cause: Some(if left { AbsenceCause::Left } else { AbsenceCause::Unknown }),
        planned: absence.planned,
        evidence: Vec::new(),
        verdict: Verdict::Unknown(why.to_owned()),
        overtaken: None,
        reasons: Vec::new(),
        planned_action: PlannedAction::None,
        trigger: if left { Trigger::Left } else { Trigger::Live },
        by: at.entry.by.as_str().into(),
        at: at.entry.at,
        took_ms: 0,
        digest: None,
        checks: (0, 0, 0),
        failure_hash: None,
        identity: absence.before.clone(),
        damaged: Vec::new(),
        basis: at.index,
    }
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
