//! Entries about nodes that leave by their own request. Such a node is no longer in the cluster
//! until it returns with the same identity.
//!
//! A node that left is kept separately from the other nodes. So everything that is derived from the
//! nodes ignores it: it is not observed, no verdict is concluded, and nothing is run on it
//! (invariant I8). Its name stays reserved.

use super::*;

impl Inventory {
    /// The baselines of all nodes, including those that left.
    pub fn baselines(&self) -> impl Iterator<Item = &Baseline> {
        let all = self.nodes.values().chain(self.departed.left.values().map(|l| &l.node));
        all.filter_map(|n| n.setup.baseline.as_ref())
    }

    /// The entry that removes a node that left and did not return in time. If there are several
    /// such nodes, it removes the one with the lowest id. None if there is none, or if the maximum
    /// number of removed nodes is already remembered.
    pub fn next_to_forget(&self, moment: Wall) -> Option<Command> {
        let (over, fits) = (self.limits().remove_left_ms, self.departed.removed.len() < REMOVED_MAX);
        let (id, left) = self.departed.left.iter().find(|(_, left)| fits && moment.ms_since(left.at) >= over)?;
        Some(Command::ForgetLeft { node: *id, since: left.at })
    }

    /// The first moment at which an applied entry drops the record of a removed node. None if there
    /// is no such record. A node that left is dropped by another entry, see
    /// [`Self::next_to_forget`].
    pub fn next_forgetting_at(&self) -> Option<Wall> {
        self.departed.removed.values().map(|removed| removed.until).min()
    }

    pub(super) fn leave(&mut self, at: &ApplyContext, id: NodeId) -> Decision {
        if let NodeMembership::Left(left) = self.membership(id) {
            return Err(Refusal::new("nothing-new", format!("{} has left already", left.node.name())));
        }
        let node = self.member(id)?;
        let name = node.name().clone();
        if node.role == ClusterRole::Manager {
            let only = self.managers().all(|n| n.id == id);
            let text = if only { format!("{name} is the only manager") } else { format!("{name} is a manager") };
            let next = match only {
                true => {
                    "promote another node and demote this one first; where the whole cluster is to end, just stop its \
                     daemons (systemctl disable --now remoor); if the other managers are lost, see remoor recover"
                        .to_owned()
                }
                false => format!("remoor demote {name}, then the same command"),
            };
            return Err(Refusal::new("manager", text).next(next));
        }
        if let Some(raft) = node.raft {
            let text = format!("{name} has not left Raft yet, where its id is {raft}");
            return Err(Refusal::new("raft-member", text).next(format!("remoor nodes {name} shows what it waits for")));
        }
        self.no_open_job(node)?;
        if self.departed.left.len() >= LEFT_MAX {
            let text = format!("{LEFT_MAX} nodes that left are kept, which is the maximum");
            return Err(Refusal::new("too-many-left", text)
                .next("remove some of them: remoor nodes lists them, remoor remove NODE"));
        }
        let node = self.withdraw(at, id, "left")?;
        let by = at.entry.by.clone();
        self.note(at, Some(id), JournalEvent::Operator { text: "left the cluster by its own word".to_owned() });
        let node = Node {
            removing: None,
            maintenance: None,
            hold: None,
            // A node that returns is examined like a new one, because its time outside the cluster
            // is not an absence.
            examination: NodeExamination {
                last_identity: None,
                consecutive_inconclusive: 0,
                needs_examination: node.setup.baseline.is_some(),
                invalidated_at_index: at.index,
                ..node.examination.clone()
            },
            absence: None,
            pending_resetup: None,
            job: None,
            ..node.as_ref().clone()
        };
        self.departed.left.insert(id, Arc::new(LeftNode { node: Arc::new(node), at: at.entry.at, by }));
        Ok(Applied::Done)
    }

    /// Makes the machine the same node again, in the role in which it is accepted now.
    pub(super) fn come_back(&mut self, at: &ApplyContext, id: NodeId, spec: &NodeSpec, role: ClusterRole) -> Decision {
        let left = self.departed.left.remove(&id).ok_or_else(|| self.membership(id).no_such_node(id))?;
        let (was, name) = (left.node.as_ref(), spec.name.clone());
        let zone = if spec.zone.is_empty() { was.spec.zone.clone() } else { spec.zone.clone() };
        // The returning node has its old addresses first. `move_to` below changes them as for any
        // other node, so that its peers are rendered again.
        let (api, gossip) = (was.spec.api.clone(), was.spec.gossip.clone());
        let node = Node {
            spec: NodeSpec { zone, api, gossip, ..spec.clone() },
            role,
            examination: NodeExamination {
                seen: at.entry.at,
                invalidated_at_index: at.index,
                ..was.examination.clone()
            },
            ..was.clone()
        };
        self.names.insert(name.clone(), id);
        self.nodes.insert(id, Arc::new(node));
        self.moved_at_index = at.index; // the peers were rendered without this address
        self.note(at, Some(id), JournalEvent::Accepted { name });
        self.move_to(at, id, &spec.api, &spec.gossip)?;
        Ok(Applied::Node(id))
    }

    /// Removes a node that left. Either an operator ordered it, or the node did not return in time.
    pub(super) fn remove_left(&mut self, at: &ApplyContext, id: NodeId, order: PendingRemoval) -> Decision {
        self.may_remember()?;
        let left = self.departed.left.remove(&id).ok_or_else(|| self.membership(id).no_such_node(id))?;
        self.remember(at, &left.node, order);
        Ok(Applied::Done)
    }

    pub(super) fn forget_left(&mut self, at: &ApplyContext, id: NodeId, since: Wall) -> Decision {
        let over = self.limits().remove_left_ms;
        let refuse = |code: &str, text: String| Err(Refusal::new(code, text).next("remoor nodes"));
        let NodeMembership::Left(left) = self.membership(id) else {
            return refuse("nothing-new", format!("node {id} is not a node that left"));
        };
        if left.at != since || at.entry.at.ms_since(since) < over {
            return refuse("too-early", format!("node {id} may still return"));
        }
        let order = PendingRemoval { by: at.entry.by.clone(), since: at.entry.at, rotate_gossip: false };
        self.remove_left(at, id, order)
    }
}

#[cfg(test)]
#[path = "leave_tests.rs"]
mod tests;
