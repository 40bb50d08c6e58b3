//! The relation of a node id, a name or a machine to the cluster. Only this file combines the maps
//! of the replicated state in order to determine this relation.
//!
//! A node id is in one state at a time:
//!
//! | from | entry | to |
//! |---|---|---|
//! | `Unknown` | `Accept`, `AcceptInvited`, `AcceptPending` | `Member` |
//! | `Member` | `Leave` | `Left` |
//! | `Member` | `Remove`; a manager leaves Raft first | `Removed` |
//! | `Left` | `Accept`, `AcceptInvited`, `AcceptPending` with the same name and key | `Member` |
//! | `Left` | `Remove`, `ForgetLeft` | `Removed` |
//! | `Removed` | the first entry after [`REMOVED_MS`] | `Unknown` |
//!
//! Invitations, join requests and denials concern names and keys. They are possible in every state
//! of a node: a member may request to join again, and an operator may deny the key of a member.

use super::*;

/// The relation of a node id to the cluster.
#[derive(Debug, Clone, Copy)]
pub enum NodeMembership<'a> {
    /// No node had the id, or the record of its removal has expired.
    Unknown,
    /// A node of the cluster, even if it is being removed or its certificate expired.
    Member(&'a Arc<Node>),
    Left(&'a LeftNode),
    Removed(&'a RemovedRecord),
}

impl<'a> NodeMembership<'a> {
    /// The name of the node that has or had the id.
    pub fn name(self) -> Option<&'a NodeName> {
        match self {
            NodeMembership::Unknown => None,
            NodeMembership::Member(node) => Some(node.name()),
            NodeMembership::Left(left) => Some(left.node.name()),
            NodeMembership::Removed(removed) => Some(&removed.name),
        }
    }

    /// Whether the node left or was removed.
    pub fn is_out(self) -> bool {
        matches!(self, NodeMembership::Left(_) | NodeMembership::Removed(_))
    }

    /// The refusal for an id without a node. If the node left or was removed, the refusal names it.
    pub(super) fn no_such_node(self, id: NodeId) -> Refusal {
        let refusal = match self {
            NodeMembership::Left(left) => Refusal::new("node-left", format!("{} has left", left.node.name())),
            NodeMembership::Removed(removed) => Refusal::new("node-removed", format!("{} was removed", removed.name)),
            NodeMembership::Member(_) | NodeMembership::Unknown => {
                Refusal::new("unknown-node", format!("no node has the id {id}"))
            }
        };
        refusal.next("remoor nodes")
    }
}

impl DepartedNodes {
    /// The membership of an id that belongs to no present node of the cluster.
    pub(super) fn membership(&self, id: NodeId) -> NodeMembership<'_> {
        match (self.left.get(&id), self.removed.get(&id)) {
            (Some(left), _) => NodeMembership::Left(left),
            (None, Some(removed)) => NodeMembership::Removed(removed),
            (None, None) => NodeMembership::Unknown,
        }
    }

    fn names(&self) -> impl Iterator<Item = (NodeId, &NodeName)> {
        let left = self.left.iter().map(|(id, left)| (*id, left.node.name()));
        left.chain(self.removed.iter().map(|(id, removed)| (*id, &removed.name)))
    }
}

impl Inventory {
    /// The membership of this id.
    pub fn membership(&self, id: NodeId) -> NodeMembership<'_> {
        self.nodes.get(&id).map_or_else(|| self.departed.membership(id), NodeMembership::Member)
    }

    /// The id of the node with this name. If there is no such node, the id of a node that left with
    /// this name. Otherwise the id of the node with this name that was removed last.
    pub fn id_by_name(&self, name: &str) -> Option<NodeId> {
        let left = || self.departed.left.values().find(|l| l.node.name().as_str() == name).map(|l| l.node.id);
        let removed = self.departed.removed.iter().filter(|(_, r)| r.name.as_str() == name);
        let last = || removed.max_by_key(|(_, r)| r.at).map(|(id, _)| *id);
        self.names.get(name).copied().or_else(left).or_else(last)
    }

    /// The membership of the node with this name, see [`Self::id_by_name`].
    pub fn membership_by_name(&self, name: &str) -> NodeMembership<'_> {
        self.id_by_name(name).map_or(NodeMembership::Unknown, |id| self.membership(id))
    }

    /// Ids and names of all nodes, also of those that left or were removed.
    pub fn all_names(&self) -> impl Iterator<Item = (NodeId, &NodeName)> {
        self.nodes.values().map(|n| (n.id, n.name())).chain(self.departed.names())
    }

    /// Names of nodes that left or were removed, unless another node has the name now.
    pub fn removed_names(&self) -> impl Iterator<Item = &NodeName> {
        self.departed.names().map(|(_, name)| name).filter(|name| !self.names.contains_key(*name))
    }

    /// The removed node with this key.
    pub fn removed_key(&self, public_key: &str) -> Option<&RemovedRecord> {
        self.departed.removed.values().map(Arc::as_ref).find(|r| r.public_key == public_key)
    }

    /// The node of the cluster with this id. An id that no node of the cluster has is refused.
    pub(super) fn member(&self, id: NodeId) -> Result<&Node, Refusal> {
        self.node(id).ok_or_else(|| self.departed.membership(id).no_such_node(id))
    }

    /// The membership of the machine with this name and this key. The machine is refused if a node
    /// of the cluster, or a node that left, has only its name or only its key. It is also refused
    /// if the node left from another machine.
    pub(super) fn identify(&self, spec: &NodeSpec) -> Result<NodeMembership<'_>, Refusal> {
        let conflict = |text: String, next: String| Err(Refusal::new("identity-conflict", text).next(next));
        if let Some(node) = self.names.get(&spec.name).and_then(|id| self.nodes.get(id)) {
            if node.spec.public_key == spec.public_key {
                return Ok(NodeMembership::Member(node));
            }
            let text = format!("the name {} belongs to node {}, which has another key", spec.name, node.id);
            let next = format!(
                "if the machine that had it is gone for good, or lost its data directory: remoor remove {} on a manager, \
                 then the same command; else join under another name",
                spec.name
            );
            return conflict(text, next);
        }
        let known = |l: &&Arc<LeftNode>| l.node.spec.public_key == spec.public_key || *l.node.name() == spec.name;
        if let Some(left) = self.departed.left.values().find(known) {
            let (name, was) = (left.node.name(), &left.node.spec);
            if was.public_key != spec.public_key {
                let text = format!("the name {name} belongs to node {}, which left and has another key", left.node.id);
                let next = format!(
                    "if that node does not return: remoor remove {name} on a manager; else join under another name"
                );
                return conflict(text, next);
            }
            if *name != spec.name {
                return conflict(format!("this key belongs to {name}, which left"), format!("join as {name}"));
            }
            if !was.machine_id.is_empty() && !spec.machine_id.is_empty() && was.machine_id != spec.machine_id {
                let text = format!("this data directory belongs to {name}, which left, and comes from another machine");
                let next = format!(
                    "move the data directory away; then run remoor remove {name} on a manager, or join under another name"
                );
                return conflict(text, next);
            }
            return Ok(NodeMembership::Left(left));
        }
        if let Some(other) = self.nodes.values().find(|n| n.spec.public_key == spec.public_key) {
            let text = format!("this key belongs to node {}", other.name());
            return conflict(text, "give the copy its own identity".to_owned());
        }
        Ok(self.removed_key(&spec.public_key).map_or(NodeMembership::Unknown, NodeMembership::Removed))
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
