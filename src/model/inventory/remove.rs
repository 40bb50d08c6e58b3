//! The entry that takes a node out for good, and what is remembered of it.
//!
//! A member of Raft is never forgotten: with force it is demoted first, and the role manager of whoever leads asks again once
//! its id is retired.

use super::*;

impl Inventory {
    /// The name of a node, also of one that left or was removed.
    pub fn name_of(&self, id: NodeId) -> Option<&NodeName> {
        let left = || self.left.get(&id).map(|l| l.node.name());
        let removed = || self.removed.get(&id).map(|r| &r.name);
        self.node(id).map(Node::name).or_else(left).or_else(removed)
    }

    /// The removed node of this key.
    pub fn removed_key(&self, public_key: &str) -> Option<&Removed> {
        self.removed.values().map(Arc::as_ref).find(|r| r.public_key == public_key)
    }

    /// The node of this name that was removed last.
    pub fn removed_named(&self, name: &str) -> Option<NodeId> {
        let of_name = self.removed.iter().filter(|(_, r)| r.name.as_str() == name);
        of_name.max_by_key(|(_, r)| r.at).map(|(id, _)| *id)
    }

    /// Names that were those of nodes that left or were removed, and are no node's now.
    pub fn removed_names(&self) -> impl Iterator<Item = &NodeName> {
        let left = self.left.values().map(|l| l.node.name());
        left.chain(self.removed.values().map(|r| &r.name)).filter(|name| !self.names.contains_key(*name))
    }

    /// Whether this was a node, and is none any more by its own word or another's.
    pub fn is_out(&self, id: NodeId) -> bool {
        self.left.contains_key(&id) || self.removed.contains_key(&id)
    }

    pub(super) fn remove(&mut self, at: &At, id: NodeId, force: bool) -> Decision {
        if self.left.contains_key(&id) {
            return self.take_out(at, id); // it is not there, and manages nothing
        }
        let node = self.node(id).ok_or_else(|| nobody(&self.left, &self.removed, id))?;
        if !force {
            self.may_go(node, at.entry.at)?;
        }
        self.may_remember()?;
        self.no_open_job(node)?;
        if node.manages() { self.begin_removal(at, id) } else { self.forget(at, id) }
    }

    pub(super) fn may_remember(&self) -> Result<(), Refusal> {
        if self.removed.len() < REMOVED_MAX {
            return Ok(());
        }
        let text = format!("{REMOVED_MAX} removed nodes are remembered, and no more can be");
        Err(Refusal::new("too-many-removed", text).next("wait until some are forgotten: remoor nodes --removed"))
    }

    pub(super) fn no_open_job(&self, node: &Node) -> Result<(), Refusal> {
        let Some(job) = node.job.and_then(|j| self.job(j)).filter(|j| j.state == JobState::Open) else { return Ok(()) };
        let text = format!("job {} is open on {}", job.id, node.name());
        Err(Refusal::new("job-open", text).next(format!("remoor job cancel {}", job.id)))
    }

    /// Only who is no manager, and is down, goes without force.
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
            return Err(Refusal::new("raft-member", text).next(format!("remoor nodes {name} says what it waits for")));
        }
        let up = Refusal::new("node-up", format!("node {name} is up; stop it or use --force"))
            .next(format!("systemctl stop remoor on {name}, or remoor remove {name} --force"));
        match &node.absence {
            Some(absence) if absence.returned.is_some() => Err(up),
            Some(absence) if absence.gone != Gone::Left && moment.since(absence.opened) < DOWN_MS => {
                let text = format!("{name} is away for less than {} s", DOWN_MS / 1_000);
                Err(Refusal::new("just-gone", text).next(format!("remoor remove {name} again in a moment")))
            }
            Some(_) => Ok(()),
            // Never seen, it never was away; gossip is asked before the order is proposed.
            None if node.marks.is_none() => Ok(()),
            None => Err(up),
        }
    }

    /// It is demoted, and removed once it has left Raft.
    fn begin_removal(&mut self, at: &At, id: NodeId) -> Decision {
        let node = self.change(id)?;
        if node.role == ClusterRole::Worker && node.removing.is_some() {
            let text = format!("{} is being removed already", node.name());
            return Err(Refusal::new("nothing-new", text).next(format!("remoor nodes {}", node.name())));
        }
        if node.role == ClusterRole::Manager {
            self.role(at, id, ClusterRole::Worker)?;
        }
        let removing = Removing { by: at.entry.by.clone(), since: at.entry.at };
        self.change(id)?.removing = Some(removing);
        self.note(at, Some(id), Happening::Operator { text: "to be removed once it has left Raft".to_owned() });
        Ok(Applied::Done)
    }

    fn forget(&mut self, at: &At, id: NodeId) -> Decision {
        let node = self.withdraw(at, id, "removed")?;
        let by = node.removing.as_ref().map_or(&at.entry.by, |r| &r.by).clone();
        self.remember(at, &node, by);
        Ok(Applied::Done)
    }

    /// It is no node any more, and nothing is done on it or about it (I8). Its open absence ends here, in one verdict (I11).
    /// `why` in one word. On a refusal nothing was changed.
    pub(super) fn withdraw(&mut self, at: &At, id: NodeId, why: &str) -> Result<Arc<Node>, Refusal> {
        self.end_held(id, at.entry.at)?;
        let cancelled =
            |j: &Job| matches!(j.attempts.last(), Some(Attempt { closed: Some((_, Outcome::Cancelled(_))), .. }));
        for job in self.jobs.values_mut().filter(|j| j.node == id && !j.cut && cancelled(j)) {
            Arc::make_mut(job).cut = true; // a task that was let finish is ended
        }
        let node = self.nodes.remove(&id).ok_or_else(|| nobody(&self.left, &self.removed, id))?;
        self.names.remove(node.name());
        self.lapsed.remove(&id);
        if let Some(absence) = &node.absence {
            let finding = Box::new(ended(absence, at, why));
            self.note(at, Some(id), Happening::Concluded { finding });
        }
        if node.want.is_some() {
            let past = if why == "left" { "left" } else { "was removed" };
            self.note(at, Some(id), Happening::WantDropped { why: format!("the node {past}") });
        }
        Ok(node)
    }

    /// What is left of a node that is none any more: its key is not let in again while this stands.
    pub(super) fn remember(&mut self, at: &At, node: &Node, by: String) {
        let moment = at.entry.at;
        self.note(at, Some(node.id), Happening::Operator { text: format!("removed for good, as {by} ordered") });
        let removed = Removed {
            name: node.name().clone(),
            public_key: node.spec.public_key.clone(),
            machine_id: node.spec.machine_id.clone(),
            at: moment,
            by,
            until: moment.after(REMOVED_MS),
        };
        self.removed.insert(node.id, Arc::new(removed));
    }

    /// Those whose certificates have ended for sure are forgotten.
    pub(super) fn forget_removed(&mut self, moment: Wall) {
        self.removed.retain(|_, removed| moment < removed.until);
    }

    /// A key that was removed is not let in again: what has it may be a copy, or know nothing of the removal.
    /// Nor is a machine let in under the name of a group: in every pattern it would stand for that.
    pub(super) fn may_join(&self, spec: &NodeSpec) -> Result<(), Refusal> {
        let group = GroupName(spec.name.0.clone());
        let new = !self.names.contains_key(&spec.name);
        if new && self.generation().is_some_and(|g| g.summary.groups.contains_key(&group)) {
            let text =
                format!("the applied fleet has a group {group}, and a node of that name could not be told from it");
            return Err(Refusal::new("reserved-name", text).next("--name as in your inventory"));
        }
        let Some(removed) = self.removed_key(&spec.public_key) else { return Ok(()) };
        let text = format!("this data directory is that of {}, which was removed for good", removed.name);
        Err(Refusal::new("node-removed", text)
            .next("move the data directory aside, and remoor join once more: a new one has a new key"))
    }
}

/// That nobody has this id, or nobody any more.
pub(super) fn nobody(
    left: &BTreeMap<NodeId, Arc<Left>>,
    removed: &BTreeMap<NodeId, Arc<Removed>>,
    id: NodeId,
) -> Refusal {
    let refusal = match (left.get(&id), removed.get(&id)) {
        (Some(left), _) => Refusal::new("node-left", format!("{} has left", left.node.name())),
        (None, Some(removed)) => Refusal::new("node-removed", format!("{} was removed", removed.name)),
        (None, None) => Refusal::new("unknown-node", format!("no node has the id {id}")),
    };
    refusal.next("remoor nodes")
}

/// What an absence ends in that nobody will examine any more.
fn ended(absence: &Absence, at: &At, why: &str) -> Finding {
    let left = absence.gone == Gone::Left;
    Finding {
        absence: Some(absence.no),
        cause: Some(if left { Cause::Left } else { Cause::Unknown }),
        planned: absence.planned,
        evidence: Vec::new(),
        verdict: Verdict::Unknown(why.to_owned()),
        overtaken: None,
        reasons: Vec::new(),
        remedy: Remedy::None,
        occasion: if left { Occasion::Left } else { Occasion::Live },
        by: at.entry.by.as_str().into(),
        at: at.entry.at,
        took_ms: 0,
        digest: None,
        checks: (0, 0, 0),
        amiss: None,
        marks: absence.before.clone(),
        damaged: Vec::new(),
        basis: at.index,
    }
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
