//! Connects the role manager with Raft: the leader's tick, the execution of a step, and the waits
//! for entries.

use super::manager_service::{Config, Item, Payload, SimManagerService};
use super::planted::Planted;
use super::world::{Due, NAMES, Order, Pending, Then, World};
use remoor_engine::{Membership, RoleManager, RoleStep};
use remoor_model::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum age in milliseconds of a member's last answer with which the leader counts the member as
/// reachable.
pub const HEARD_MS: u64 = 3_000;
/// Time after which a proposer treats its uncommitted entry as failed.
const STEP_MS: u64 = 5_000;
/// The time after which an unanswered step of the role manager counts as lost.
const ANSWER_MS: u64 = 20_000;
/// The maximum number of entries that a learner may lack to become a voter. The role manager has
/// the same limit.
const LAG_MAX: u64 = 100;

impl World {
    pub fn tick(&mut self) {
        if self.calm_since.is_none() {
            self.weather();
        }
        for at in 0..self.hosts.len() {
            if !self.hosts[at].up {
                continue;
            }
            self.archive_if_retired(at);
            self.learn_of_removal(at);
            if self.hosts[at].joined.is_none() {
                self.join(at);
            }
            if self.leads(at) {
                self.tick_leader(at);
            }
        }
    }

    /// Whether this node believes that it leads, as its status would show. A deposed leader may
    /// believe this wrongly for a while.
    pub fn leads(&self, at: usize) -> bool {
        let Some(part) = self.hosts[at].part.as_ref().filter(|_| self.hosts[at].up) else { return false };
        let fresh = |p: &SimManagerService| p.commit > 0 && p.log[p.commit as usize - 1].term == p.term;
        part.lead.as_ref().is_some_and(|l| self.now - l.quorum_at <= self.options.believes_ms) && fresh(part)
    }

    /// Archives the Raft data of a node whose Raft id was retired. The node learns this from any
    /// manager that it reaches, including itself.
    fn archive_if_retired(&mut self, at: usize) {
        let Some(id) = self.hosts[at].part.as_ref().map(|p| p.id) else { return };
        let knows = |other: usize| {
            let part = self.hosts[other].part.as_ref().filter(|_| self.reaches(at, other));
            part.is_some_and(|p| self.states[p.commit as usize].is_retired(id))
        };
        if !self.has_planted(Planted::NeverParks) && (0..self.hosts.len()).any(knows) {
            self.trace(|_| format!("{} archives the log of {id}", NAMES[at]));
            self.fire("a log is archived");
            self.hosts[at].part = None;
        }
    }

    /// Makes a node without an identity join again with its key.
    fn join(&mut self, at: usize) {
        let life = self.hosts[at].life;
        let waits =
            self.pending.iter().any(|p| matches!(p.then, Then::Joined { host, life: l } if (host, l) == (at, life)));
        let Some(leader) = (0..self.hosts.len()).find(|l| self.leads(*l) && self.reaches(at, *l)) else { return };
        if !waits {
            // A machine with a replaced key becomes a new node. It joins as a worker, because the
            // liveness check would otherwise require that it becomes a manager.
            let role = if self.hosts[at].keys > 0 { ClusterRole::Worker } else { ClusterRole::Manager };
            let command = Command::Accept { spec: self.spec(at), role };
            self.propose(leader, command, Then::Joined { host: at, life });
        }
    }

    pub fn state_of(&self, at: usize) -> Arc<Inventory> {
        let commit = self.hosts[at].part.as_ref().map_or(0, |p| p.commit);
        self.states[commit as usize].clone()
    }

    fn membership(&self, at: usize) -> Option<(Membership, Config)> {
        let part = self.hosts[at].part.as_ref()?;
        let (config, lead) = (part.config()?, part.lead.as_ref()?);
        let nodes = |votes: bool| {
            let chosen = config.nodes.iter().filter(|(id, _)| config.votes(**id) == votes);
            chosen.map(|(id, addr)| (*id, addr.clone())).collect()
        };
        let membership = Membership {
            me: part.id,
            voters: nodes(true),
            learners: nodes(false),
            target: config.target(),
            joint: config.is_joint(),
            committed: part.list_index() <= part.commit,
            last_log: part.last(),
            matched: lead.matched.clone(),
            heard: lead.acked.iter().filter(|(_, when)| self.now - **when <= HEARD_MS).map(|(id, _)| *id).collect(),
        };
        Some((membership, config.clone()))
    }

    /// Runs one tick of the leader, at which its role manager may begin a step.
    fn tick_leader(&mut self, at: usize) {
        let state = self.state_of(at);
        self.record_moves(at, &state);
        let Some((mut seen, config)) = self.membership(at) else { return };
        let truth = seen.clone();
        let mut up = BTreeSet::new();
        for host in 0..self.hosts.len() {
            let heard = self.reaches(at, host) && self.hosts[host].joined.is_some();
            if heard && (self.calm_since.is_some() || !self.rng.chance(self.options.gossip_lag_permille)) {
                up.insert(self.hosts[host].node);
            }
        }
        let mut believed = state.clone();
        self.plant_in_input(&mut seen, &mut believed);
        let (now, hasty) = (self.now, self.has_planted(Planted::Hasty));
        let Some(lead) = self.hosts[at].part.as_mut().and_then(|p| p.lead.as_mut()) else { return };
        let close = |id: &RaftId| truth.heard.contains(id) && truth.lag(*id) <= LAG_MAX;
        lead.close.retain(|id, _| truth.learners.contains_key(id) && close(id));
        for id in truth.learners.keys().filter(|id| close(id)) {
            lead.close.entry(*id).or_insert(now);
        }
        if state.raft_id_holder(truth.me).is_some_and(|n| n.role == ClusterRole::Manager) {
            lead.asked.retain(|_, at| now - *at <= ANSWER_MS); // the answer may still arrive
        }
        let clock = if hasty { now * 11 } else { now };
        let step = lead.roles.step(Now(clock), &believed, &seen, &up);
        self.outcome.steps += 1;
        let Some(step) = step else { return };
        self.trace(|_| format!("{} does {step:?}", NAMES[at]));
        self.judge(at, &step, &state, &truth, &config);
        let Some(part) = self.hosts[at].part.as_mut() else { return };
        let (term, list) = (part.term, part.list_index());
        let Some(lead) = part.lead.as_mut() else { return };
        lead.ticket += 1;
        if let RoleStep::HandOver { to } = step {
            lead.asked.insert(to, now);
        }
        let order = Order { host: at, term, ticket: lead.ticket, step, list };
        self.send(order);
    }

    /// Schedules the execution of the leader's step. The step may be lost, delayed or duplicated.
    fn send(&mut self, order: Order) {
        if self.calm_since.is_some() {
            self.schedule(100, Due::Perform(order));
            return;
        }
        if self.rng.chance(self.options.lost_permille) {
            self.fire("step lost");
            return;
        }
        if self.rng.chance(self.options.twice_permille) {
            self.fire("step sent twice");
            let ms = self.rng.in_range(100, 40_000);
            self.schedule(ms, Due::Perform(order.clone()));
        }
        let late = self.rng.chance(self.options.late_permille);
        let ms = if late { self.rng.in_range(1_000, 40_000) } else { self.rng.in_range(0, 300) };
        if late {
            self.fire("step late");
        }
        self.schedule(ms, Due::Perform(order));
    }

    pub fn end(&mut self, order: &Order, done: bool) {
        let part = self.hosts[order.host].part.as_mut().filter(|p| p.term == order.term);
        let Some(lead) = part.and_then(|p| p.lead.as_mut()).filter(|l| l.ticket == order.ticket) else { return };
        lead.ticket += 1; // a second answer to the same step is ignored
        let outcome = done.then_some(()).ok_or_else(|| "no answer".to_owned());
        RoleManager::finish_step(&mut lead.roles, Now(self.now), outcome);
        self.trace(|_| format!("{} got the result of {:?}: {done}", NAMES[order.host], order.step));
        if !done {
            self.fire("step failed");
        }
    }

    /// Performs the step if the manager service still leads. As in Raft, the leader's term may have
    /// changed since the step was sent. Three kinds of delayed steps could do damage and are
    /// checked again: the enlistment of a node, the retirement of an id, and the change of the
    /// member list.
    pub fn perform(&mut self, order: Order) {
        let at = order.host;
        let leads = self.hosts[at].up && self.hosts[at].part.as_ref().is_some_and(|p| p.lead.is_some());
        if !leads {
            self.fire("step of a former leader");
            self.end(&order, false);
            return;
        }
        let begun = match order.step.clone() {
            RoleStep::Grant { node } => {
                self.propose(at, Command::Grant { node, founder: false }, Then::End(order.clone()))
            }
            RoleStep::Retire { raft, .. } if self.is_member(at, raft) && !self.has_planted(Planted::RetiresLate) => {
                self.fire("a member is not retired");
                false
            }
            RoleStep::Remove { .. } if self.has_planted(Planted::ForgetsRemovals) => false,
            RoleStep::Remove { node } => {
                self.propose(at, Command::Remove { node, force: true, rotate_gossip: false }, Then::End(order.clone()))
            }
            RoleStep::Retire { node, raft } => {
                self.propose(at, Command::Retire { node, raft }, Then::End(order.clone()))
            }
            RoleStep::Enlist { node, raft, addr } => self.add_learner(&order, node, raft, &addr),
            RoleStep::Readdress { raft, addr } => {
                let set = |c: &mut Config| {
                    c.nodes.entry(raft).and_modify(|a| a.clone_from(&addr));
                };
                self.change(at, set, Then::End(order.clone()))
            }
            RoleStep::SetVoters { voters, .. } => self.set_voters(&order, &voters),
            RoleStep::RemoveLearner { raft } => {
                self.change(at, |c| drop(c.nodes.remove(&raft)), Then::End(order.clone()))
            }
            RoleStep::HandOver { to } => {
                let done = self.hand_over(at, to);
                self.end(&order, done);
                return;
            }
        };
        if !begun {
            self.end(&order, false);
        }
    }

    /// Orders the node to start a manager service, and then adds the node as a learner. Does
    /// nothing if the node is no longer desired as a manager.
    fn add_learner(&mut self, order: &Order, node: NodeId, raft: RaftId, addr: &str) -> bool {
        let state = self.state_of(order.host);
        let wanted = state.raft_id_holder(raft).is_some_and(|n| n.id == node && n.role == ClusterRole::Manager);
        if !wanted && !self.has_planted(Planted::EnlistsAnybody) && !self.has_planted(Planted::ObeysOldOrders) {
            self.fire("learner no longer desired");
            return false;
        }
        let Some(to) = (0..self.hosts.len()).find(|to| self.api(*to) == addr && self.hosts[*to].node == node) else {
            return false;
        };
        let known = self.is_member(order.host, raft);
        if !self.reaches(order.host, to) || !self.accept_order(to, raft) {
            return false;
        }
        if known {
            self.end(order, true);
            return true;
        }
        let addr = addr.to_owned();
        let add = |c: &mut Config| {
            c.nodes.entry(raft).or_insert(addr);
        };
        self.change(order.host, add, Then::End(order.clone()))
    }

    fn is_member(&self, at: usize, raft: RaftId) -> bool {
        let config = self.hosts[at].part.as_ref().and_then(SimManagerService::config);
        config.is_some_and(|c| c.nodes.contains_key(&raft))
    }

    /// Handles the leader's order on the node: starts a manager service with this Raft id. The node
    /// refuses a Raft id that is older than the newest one that it knows.
    fn accept_order(&mut self, at: usize, raft: RaftId) -> bool {
        let host = &self.hosts[at];
        let Some(joined) = host.joined else { return false };
        if host.part.as_ref().is_some_and(|p| p.id == raft) {
            return true;
        }
        if (raft.0 <= joined || raft <= host.newest) && !self.has_planted(Planted::ObeysOldOrders) {
            self.fire("an id of before is refused");
            return false;
        }
        if self.voted_on.contains_key(&raft) {
            self.breaks("one log", || format!("{} begins an empty log as {raft}, which voted before", NAMES[at]));
        }
        let part = self.new_part(raft);
        let host = &mut self.hosts[at];
        (host.newest, host.part) = (raft, Some(part));
        true
    }

    fn set_voters(&mut self, order: &Order, voters: &BTreeSet<RaftId>) -> bool {
        let Some(part) = self.hosts[order.host].part.as_ref() else { return false };
        let joint = part.config().is_some_and(Config::is_joint);
        if part.list_index() != order.list
            && !self.has_planted(Planted::LateOnAnyList)
            && !self.has_planted(Planted::TwoAtOnce)
        {
            self.fire("a change for an older list is refused");
            return false;
        }
        if joint {
            self.fire("a half change of another leader is finished");
            if self.has_planted(Planted::JointStays) {
                return false;
            }
        }
        self.change(order.host, |c| *c = c.next_towards(voters), Then::Second(order.clone()))
    }

    fn hand_over(&mut self, at: usize, to: RaftId) -> bool {
        let declines = self.calm_since.is_none() && self.rng.chance(self.options.declines_permille);
        let Some(part) = self.hosts[at].part.as_ref() else { return false };
        let has_all = |p: &SimManagerService| p.id == to && p.common_prefix(part) == part.last();
        let heir =
            (0..self.hosts.len()).find(|h| self.reaches(at, *h) && self.hosts[*h].part.as_ref().is_some_and(has_all));
        let Some(heir) = heir.filter(|_| !declines && part.config().is_some_and(|c| c.votes(to))) else {
            self.fire("leadership declined");
            return false;
        };
        // The other members have the removed leader's term, so the next leader has it too.
        let term = part.term;
        if let Some(heir) = self.hosts[heir].part.as_mut() {
            heir.term = heir.term.max(term);
        }
        self.campaign(heir, true);
        let done = self.hosts[heir].part.as_ref().is_some_and(|p| p.lead.is_some());
        self.fire(if done { "leadership handed over" } else { "leadership not accepted" });
        done
    }

    /// Appends a changed member list. Raft rejects it if the last list is not committed.
    fn change(&mut self, at: usize, edit: impl FnOnce(&mut Config), then: Then) -> bool {
        let Some(part) = self.hosts[at].part.as_ref() else { return false };
        let Some(mut config) = part.config().cloned() else { return false };
        let open = part.lists_open();
        if open > 0 && !self.has_planted(Planted::TwoAtOnce) {
            self.fire("a change while one is in flight is refused");
            return false;
        }
        let before = config.clone();
        edit(&mut config);
        if config.voters.iter().any(BTreeSet::is_empty) || !config.is_valid() {
            return false;
        }
        if open > 0 {
            self.breaks("one change", || format!("{} has {} lists in flight", NAMES[at], open + 1));
        }
        self.judge_list(at, &before, &config);
        self.append(at, Payload::Members(config), then)
    }

    pub fn propose(&mut self, at: usize, command: Command, then: Then) -> bool {
        let entry = InventoryEntry { at: Wall(self.now), by: "sim".to_owned(), command };
        self.append(at, Payload::Command(Box::new(entry)), then)
    }

    pub fn append(&mut self, at: usize, payload: Payload, then: Then) -> bool {
        let Some(part) = self.hosts[at].part.as_mut().filter(|p| p.lead.is_some()) else { return false };
        let (term, host, until) = (part.term, at, self.now + STEP_MS);
        let item = Arc::new(Item { term, payload });
        let index = part.push(item.clone());
        if !matches!(then, Then::Nothing) {
            self.pending.push(Pending { host, term, index, item, until, then });
        }
        true
    }

    /// Reports committed and lost log entries to the tasks that wait for these entries.
    pub fn settle(&mut self) {
        for wait in std::mem::take(&mut self.pending) {
            let part = self.hosts[wait.host].part.as_ref().filter(|_| self.hosts[wait.host].up);
            let has = |p: &&SimManagerService| {
                p.log.get(wait.index as usize - 1).is_some_and(|item| Arc::ptr_eq(item, &wait.item))
            };
            let Some(part) =
                part.filter(has).filter(|p| p.term == wait.term && p.lead.is_some() || p.commit >= wait.index)
            else {
                self.complete(wait.then, wait.index, false);
                continue;
            };
            if part.commit >= wait.index {
                self.complete(wait.then, wait.index, true);
            } else if self.now > wait.until {
                self.complete(wait.then, wait.index, false);
            } else {
                self.pending.push(wait);
            }
        }
    }

    fn complete(&mut self, then: Then, index: u64, committed: bool) {
        match then {
            Then::Nothing => {}
            Then::End(order) => self.end(&order, committed && !self.refused.contains(&index)),
            Then::Second(order) if committed => self.propose_second_half(order, index),
            Then::Second(order) => self.end(&order, false),
            Then::Joined { host, life } => {
                let lost = self.calm_since.is_none() && self.rng.chance(self.options.loss_permille);
                let asks = self.hosts[host].life == life && self.hosts[host].up && self.hosts[host].joined.is_none();
                if committed && self.refused.contains(&index) {
                    self.refused_to_join(host, index);
                } else if committed && !lost && asks {
                    let node = self.states[index as usize].by_name(NAMES[host]).map(|n| n.id);
                    self.hosts[host].node = node.unwrap_or(self.hosts[host].node);
                    self.hosts[host].joined = Some(index);
                    self.fire("joined again");
                }
            }
        }
    }

    fn propose_second_half(&mut self, order: Order, index: u64) {
        let Some(part) = self.hosts[order.host].part.as_ref() else { return };
        let config = part.config().cloned().unwrap_or_default();
        if !config.is_joint() {
            self.fire("voters changed");
            self.end(&order, true);
            return;
        }
        if self.calm_since.is_none() && self.rng.chance(self.options.half_permille) {
            self.fire("leader died between the halves");
            self.crash(order.host);
            let ms = self.rng.in_range(1_000, 20_000);
            self.schedule(ms, Due::Boot { host: order.host, wiped: false });
            return;
        }
        let same = part.list_index() == index || self.has_planted(Planted::TwoAtOnce);
        let target = config.target();
        let begun = same && self.change(order.host, |c| *c = c.next_towards(&target), Then::Second(order.clone()));
        if !begun {
            self.end(&order, false);
        }
    }
}
