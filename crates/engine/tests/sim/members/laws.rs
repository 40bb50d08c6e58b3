//! The laws of membership, each checked with the real state of the world. This file also has the
//! planted bugs between the world and the role manager.

use super::manager_service::{Config, SimManagerService};
use super::planted::Planted;
use super::world::{NAMES, Then, World};
use remoor_engine::{Membership, RoleStep, RoleSubject, STEADY_MS};
use remoor_model::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Duration of two ticks of the role manager in milliseconds.
const TWO_TICKS_MS: u64 = 10_000;
/// Time after the end of the faults within which all running steps of the role manager end, in
/// milliseconds.
const OVER_MS: u64 = 25_000;

impl World {
    /// Checks the laws about the current state. It is called after every event.
    pub fn check(&mut self) {
        let Some(calm) = self.calm_since.filter(|calm| self.now > calm + OVER_MS) else { return };
        let leader = (0..self.hosts.len()).find(|at| self.leads(*at) && self.hosts[*at].part.as_ref().is_some());
        let Some(part) = leader.and_then(|at| self.hosts[at].part.as_ref()) else {
            self.stuck = None;
            return;
        };
        let runs = |id: RaftId| self.hosts.iter().any(|h| h.up && h.part.as_ref().is_some_and(|p| p.id == id));
        let state = self.states.last().cloned().unwrap_or_default();
        let wanted = |id: &RaftId| state.raft_id_holder(*id).is_some_and(|n| n.role == ClusterRole::Manager);
        let goes = |id: RaftId| {
            let mut voters = self.list.all_voters();
            voters.remove(&id);
            !voters.is_empty() && voters.iter().filter(|v| runs(**v)).count() * 2 > voters.len()
        };
        let quorum = self.list.quorum(runs);
        let unwanted = self.list.nodes.keys().copied().find(|id| quorum && !wanted(id) && goes(*id));
        let mark = (part.term, self.committed.len());
        match (unwanted, self.stuck) {
            (None, _) => self.stuck = None,
            (Some(id), Some((before, since))) if before == mark => {
                // The member keeps its vote until a promoted learner was up to date for this time.
                let promoted = self.list.nodes.keys().any(|id| wanted(id) && !self.list.all_voters().contains(id));
                let patience = TWO_TICKS_MS + if promoted { STEADY_MS } else { 0 };
                if self.now > since + patience {
                    let why = format!("{id} of {:?} is not desired, and nothing was done for {patience} ms", self.list);
                    self.breaks("orphan", || why);
                }
            }
            _ => self.stuck = Some((mark, self.now.max(calm))),
        }
    }

    /// Checks that a member uses only one log for its votes. A member that confirms a stored entry
    /// counts for a majority like a voter, so confirmations are checked too.
    pub fn check_vote_log(&mut self, id: RaftId, log_no: u64) {
        let first = *self.voted_on.entry(id).or_insert(log_no);
        if first != log_no {
            self.breaks("one log", || format!("{id} votes on log {log_no}, and voted on log {first} before"));
        }
    }

    /// Checks the laws about commands. It is called after each command in the log.
    pub fn check_applied(&mut self, before: &Inventory, after: &Inventory, command: &Command, applied: &Applied) {
        let managers = |state: &Inventory| state.managers().count();
        if managers(after) == 0 && managers(before) > 0 {
            self.breaks("last manager", || format!("{command:?} leaves none"));
        }
        if let Applied::Refused(_) = applied {
            return;
        }
        match command {
            Command::Retire { raft, .. } if self.list.nodes.contains_key(raft) => {
                self.breaks("retire", || format!("{raft} is retired and still a member"));
            }
            Command::Accept { spec, .. } => {
                let role = |state: &Inventory| state.by_name(spec.name.as_str()).map(|n| n.role);
                if role(before).is_some() && role(before) != role(after) {
                    self.breaks("role", || format!("{} joins and has another role", spec.name));
                }
            }
            Command::Grant { .. } => {
                let Applied::Raft(id) = applied else { return };
                if self.voted_on.contains_key(id) && before.raft_id_holder(*id).is_none() {
                    self.breaks("one log", || format!("{id} is granted again"));
                }
            }
            _ => {}
        }
    }

    /// Checks a member list that a leader appends to its log.
    pub fn judge_list(&mut self, at: usize, before: &Config, after: &Config) {
        let state = self.state_of(at);
        let wanted = |id: &RaftId| state.raft_id_holder(*id).is_some_and(|n| n.role == ClusterRole::Manager);
        if let Some(new) = after.nodes.keys().find(|id| !before.nodes.contains_key(id) && !wanted(id)) {
            self.breaks("wanted", || format!("{new} is made a member, and is no manager's"));
        }
        let (from, to) = (before.all_voters(), after.target());
        if !before.is_joint() && from.symmetric_difference(&to).count() > 1 {
            self.breaks("one change", || format!("{} goes from {from:?} to {to:?} at once", NAMES[at]));
        }
    }

    /// Checks a step of the role manager against the true state, `truth`.
    pub fn judge(&mut self, at: usize, step: &RoleStep, state: &Inventory, truth: &Membership, config: &Config) {
        let wanted = |id: RaftId| state.raft_id_holder(id).is_some_and(|n| n.role == ClusterRole::Manager);
        let role = |node: &NodeId| state.node(*node).map(|n| n.role);
        let answers = |id: RaftId| id == truth.me || truth.heard.contains(&id);
        let mut bad: Vec<(&str, &str)> = Vec::new();
        let mut must = |holds: bool, law: &'static str, what: &'static str| {
            if !holds {
                bad.push((law, what));
            }
        };
        match step {
            RoleStep::Grant { node } => must(role(node) == Some(ClusterRole::Manager), "wanted", "an id for a worker"),
            RoleStep::Enlist { node, raft, .. } => {
                must(
                    wanted(*raft) && state.raft_id_holder(*raft).map(|n| n.id) == Some(*node),
                    "wanted",
                    "enlists who is no manager",
                );
            }
            RoleStep::Readdress { raft, .. } => must(wanted(*raft), "wanted", "readdresses who is no manager"),
            RoleStep::RemoveLearner { raft } => {
                must(!wanted(*raft) && !config.votes(*raft), "wanted", "removes a learner that is wanted");
            }
            RoleStep::Retire { node, raft } => {
                must(role(node) == Some(ClusterRole::Worker), "wanted", "retires a manager");
                must(!config.nodes.contains_key(raft), "retire", "retires a member");
            }
            RoleStep::Remove { node } => {
                let fits = |n: &Node| n.role == ClusterRole::Worker && n.raft.is_none() && n.removing.is_some();
                must(state.node(*node).is_some_and(fits), "wanted", "removes who is not to go, or has not left Raft");
            }
            RoleStep::HandOver { to } => {
                must(wanted(*to) && config.votes(*to) && answers(*to) && *to != truth.me, "heir", "no fit heir");
                let lead = self.hosts[at].part.as_ref().and_then(|p| p.lead.as_ref());
                let asked = |id: &RaftId| lead.is_some_and(|l| l.asked.contains_key(id));
                let fits = |id: &RaftId| *id != truth.me && wanted(*id) && answers(*id) && !asked(id);
                let most = config.all_voters().into_iter().filter(fits).map(|id| truth.lag(id)).min();
                must(most.is_none_or(|lag| truth.lag(*to) <= lag), "heir", "another one lacks less of the log");
            }
            RoleStep::SetVoters { voters, .. } => {
                must(truth.committed, "one change", "while another one is in flight");
                let now = config.all_voters();
                if config.is_joint() {
                    must(*voters == config.target(), "one change", "another one before the first is complete");
                } else {
                    must(now.symmetric_difference(voters).count() == 1, "one change", "not one voter more or less");
                    let most = |of: &BTreeSet<RaftId>| of.iter().filter(|id| answers(**id)).count() * 2 > of.len();
                    must(most(&now) && most(voters), "quorum", "no majority answers");
                }
                let close = self.hosts[at].part.as_ref().and_then(|p| p.lead.as_ref()).map(|l| &l.close);
                for id in voters.difference(&now) {
                    must(wanted(*id), "wanted", "a vote for a worker");
                    let since = close.and_then(|close| close.get(id));
                    must(since.is_some_and(|s| self.now - s >= STEADY_MS), "steady", "a vote for a learner that lags");
                }
                if !config.is_joint() {
                    must(now.difference(voters).all(|id| !wanted(*id)), "wanted", "a manager is voted out");
                }
            }
        }
        for (law, what) in bad {
            self.breaks(law, || format!("{}: {what}: {step:?}", NAMES[at]));
        }
    }

    /// The first condition of liveness that is not met, as text. None if the desired state is
    /// reached.
    pub fn unmet_condition(&self) -> Option<String> {
        let state = self.states.last()?;
        let leader = (0..self.hosts.len()).filter(|at| self.leads(*at)).max_by_key(|at| self.term(*at));
        let Some(leader) = leader.and_then(|at| self.hosts[at].part.as_ref()) else {
            return Some("a leader".to_owned());
        };
        let wanted: BTreeSet<RaftId> = state.managers().filter_map(|n| n.raft).collect();
        if wanted.len() != state.managers().count() || self.list.voters != [wanted] {
            return Some(format!("the managers as voters, who are {:?}", self.list.voters));
        }
        if let Some(learner) = self.list.learners().next() {
            return Some(format!("a role for the learner {learner}"));
        }
        if leader.list_index() != self.list_at {
            return Some("a committed list".to_owned());
        }
        if let Some(removal) = self.being_removed(state) {
            return Some(removal);
        }
        for (at, host) in self.hosts.iter().enumerate() {
            let Some(node) = state.node(host.node) else { return Some(format!("the node {}", NAMES[at])) };
            let manager = node.role == ClusterRole::Manager;
            if node.spec.api != self.api(at) || host.joined.is_none() {
                return Some(format!("{} where it is", NAMES[at]));
            }
            if !manager && (node.raft.is_some() || host.part.is_some()) {
                return Some(format!("the worker {} without id and part: {:?}", NAMES[at], node.raft));
            }
            let serves = |p: &SimManagerService| Some(p.id) == node.raft && p.commit == self.committed.len() as u64;
            if manager && !host.part.as_ref().is_some_and(serves) {
                return Some(format!("the manager part of {}", NAMES[at]));
            }
            if node.raft.and_then(|id| self.list.nodes.get(&id)).is_some_and(|addr| *addr != node.spec.api) {
                return Some(format!("the address of {} in Raft", NAMES[at]));
            }
            if let Some(wait) = leader.lead.as_ref().and_then(|l| l.roles.waits(RoleSubject::Node(host.node))) {
                return Some(format!("rest: {} is waited for: {wait}", NAMES[at]));
            }
        }
        None
    }

    fn term(&self, at: usize) -> u64 {
        self.hosts[at].part.as_ref().map_or(0, |p| p.term)
    }

    /// Planted bugs in the inventory.
    pub fn plant_in_inventory(
        &mut self,
        before: &Inventory,
        after: &mut Inventory,
        entry: &InventoryEntry,
        applied: &mut Applied,
    ) {
        let mut set = |id: &NodeId, change: &dyn Fn(&mut Node)| {
            after.nodes.get_mut(id).map(Arc::make_mut).into_iter().for_each(change);
            *applied = Applied::Done;
        };
        match &entry.command {
            Command::Role { node, role: ClusterRole::Worker }
                if self.options.planted == Some(Planted::JudgedByVoters) =>
            {
                let raft = before.node(*node).and_then(|n| n.raft);
                let others = self.list.all_voters().into_iter().filter(|id| Some(*id) != raft).count();
                if others > 0 {
                    set(node, &|n| n.role = ClusterRole::Worker);
                }
            }
            Command::Accept { spec, role } if self.options.planted == Some(Planted::JoinsAsItLikes) => {
                if let Some(node) = before.by_name(spec.name.as_str()) {
                    set(&node.id, &|n| n.role = *role);
                }
            }
            Command::Role { node, role: ClusterRole::Worker }
                if self.options.planted == Some(Planted::RetiresAtOnce) =>
            {
                let Some(raft) = before.node(*node).and_then(|n| n.raft) else { return };
                if let Some(leader) = (0..self.hosts.len()).find(|at| self.leads(*at)) {
                    self.propose(leader, Command::Retire { node: *node, raft }, Then::Nothing);
                }
            }
            _ => {}
        }
    }

    /// Planted bugs in the input of the role manager.
    pub fn plant_in_input(&self, seen: &mut Membership, state: &mut Arc<Inventory>) {
        match self.options.planted {
            Some(Planted::OrphansUnseen) => {
                let known = |id: &RaftId| state.raft_id_holder(*id).is_some();
                seen.learners.retain(|id, _| known(id));
                // Orphans that are voters stay in the list of members. They get an invented node,
                // so that the role manager does not recognize them as orphans.
                let orphans: Vec<RaftId> = seen.voters.keys().copied().filter(|id| !known(id)).collect();
                let inventory = Arc::make_mut(state);
                for (orphan, at) in orphans.into_iter().zip(1_000_000..) {
                    let Some(mut node) = inventory.nodes.values().next().map(|n| (**n).clone()) else { return };
                    (node.id, node.raft, node.role) = (NodeId(at), Some(orphan), ClusterRole::Manager);
                    inventory.nodes.insert(node.id, Arc::new(node));
                }
            }
            Some(Planted::HeirLags) => {
                let last = seen.last_log;
                seen.matched.iter_mut().for_each(|(id, m)| {
                    if seen.voters.contains_key(id) {
                        *m = last.saturating_sub(*m);
                    }
                });
            }
            Some(Planted::LagHidden) => {
                for id in seen.learners.keys() {
                    seen.heard.insert(*id);
                    seen.matched.insert(*id, seen.last_log);
                }
            }
            Some(Planted::TwoAtOnce) => {
                (seen.committed, seen.joint) = (true, false);
                seen.target = seen.voters.keys().copied().collect();
            }
            Some(Planted::QuorumAssumed) => seen.heard = seen.voters.keys().copied().collect(),
            Some(Planted::CancelIgnored) => {
                let inventory = Arc::make_mut(state);
                for node in
                    inventory.nodes.values_mut().filter(|n| n.raft.is_some_and(|id| seen.learners.contains_key(&id)))
                {
                    Arc::make_mut(node).role = ClusterRole::Manager;
                }
            }
            _ => {}
        }
    }
}
