//! The role manager reconciles the Raft membership with the desired roles, one change at a time.
//!
//! Each call compares the membership and the desired roles completely, so a missed event has no
//! effect. The comparison finds managers that are missing in Raft, members that are not desired,
//! and Raft ids without a node. It also finds changes that a failed leader left unfinished. The
//! role manager stores no observed roles, because they follow from the membership. It avoids the
//! faults of swarmkit's `role_manager.go` that docs/design/scenarios.md lists (E1 to E29).

use remoor_model::{ClusterRole, Inventory, Node, NodeId, Now, RaftId, majority};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of entries that a learner may lack when it becomes a voter.
const LAG_MAX: u64 = 100;
/// Minimum time for which a learner must be caught up before it becomes a voter, because a
/// promotion must not cost the quorum.
pub const STEADY_MS: u64 = 10_000;
/// Time after which an unfinished step of the role manager is repeated. The repetition does no
/// harm.
const LOST_MS: u64 = 15_000;
/// Pause before the role manager repeats a failed step. Steps about other nodes and orphans
/// continue in this time.
const RETRY_MS: u64 = 5_000;

/// The current Raft state as its leader sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    /// The leader, which calls the role manager.
    pub me: RaftId,
    /// Voters of all active configurations, with their addresses in Raft.
    pub voters: BTreeMap<RaftId, String>,
    pub learners: BTreeMap<RaftId, String>,
    /// The voters after the unfinished membership change. If no change is unfinished, these are the
    /// members in `voters`.
    pub target: BTreeSet<RaftId>,
    pub joint: bool,
    /// Whether the current membership is committed. Until then, Raft accepts no other membership
    /// change.
    pub committed: bool,
    pub last_log: u64,
    /// For each member except the leader, the last log index that is known to be stored on it.
    pub matched: BTreeMap<RaftId, u64>,
    /// Members, except the leader, that answered the leader recently.
    pub heard: BTreeSet<RaftId>,
}

impl Membership {
    fn is_member(&self, raft: RaftId) -> bool {
        self.voters.contains_key(&raft) || self.learners.contains_key(&raft)
    }

    /// Whether the member answered recently. The leader itself always answers.
    pub fn answers(&self, raft: RaftId) -> bool {
        raft == self.me || self.heard.contains(&raft)
    }

    /// The voters, the learners, the voters after an unfinished change, and whether a change is
    /// unfinished. A step is derived from these values.
    pub fn list(&self) -> (Vec<RaftId>, Vec<RaftId>, &BTreeSet<RaftId>, bool) {
        (self.voters.keys().copied().collect(), self.learners.keys().copied().collect(), &self.target, self.joint)
    }

    /// Number of the leader's log entries that a member lacks.
    pub fn lag(&self, raft: RaftId) -> u64 {
        self.last_log.saturating_sub(self.matched.get(&raft).copied().unwrap_or(0))
    }

    /// The number of these voters that answer, if it is less than a majority of them.
    pub fn too_few(&self, voters: &BTreeSet<RaftId>) -> Option<usize> {
        let up = voters.iter().filter(|id| self.answers(**id)).count();
        (up < majority(voters.len())).then_some(up)
    }

    /// Checks that a majority of the current voters and a majority of the `next` voters answer. The
    /// error is the waiting reason that `remoor status` shows.
    fn can_become(&self, next: &BTreeSet<RaftId>) -> Result<(), String> {
        let before: BTreeSet<RaftId> = self.voters.keys().copied().collect();
        for voters in [&before, next] {
            if let Some(up) = self.too_few(voters) {
                return Err(format!("waiting for quorum, {up} of {} managers answer", voters.len()));
            }
        }
        Ok(())
    }
}

/// A step of the role manager. A repetition does no harm, even if a former leader performs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleStep {
    /// Propose the entry that gives the node a Raft id.
    Grant {
        node: NodeId,
    },
    /// Order the node at this API address to run a manager service under this Raft id, and add the
    /// node as a learner. Only this node may answer.
    Enlist {
        node: NodeId,
        raft: RaftId,
        addr: String,
    },
    /// Change the member's address in Raft to `addr`.
    Readdress {
        raft: RaftId,
        addr: String,
    },
    /// Make exactly these members the voters. `raft` is the member that is added or removed.
    SetVoters {
        voters: BTreeSet<RaftId>,
        raft: RaftId,
    },
    RemoveLearner {
        raft: RaftId,
    },
    /// Hand the leadership over to this voter, because the leader is being demoted.
    HandOver {
        to: RaftId,
    },
    /// Propose the entry that retires the node's Raft id.
    Retire {
        node: NodeId,
        raft: RaftId,
    },
    /// Propose the entry that removes a node. The node has left Raft, and an operator ordered its
    /// removal.
    Remove {
        node: NodeId,
    },
}

/// The node or the orphan that a step or a waiting reason is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoleSubject {
    Node(NodeId),
    /// A Raft member whose id no node has.
    Orphan(RaftId),
}

/// The role manager's state during one leadership. A new leader begins with an empty state.
#[derive(Debug, Clone, Default)]
pub struct RoleManager {
    under_way: Option<(RoleStep, RoleSubject, Now)>,
    /// For each learner that is caught up, the time at which it became caught up.
    steady: BTreeMap<RaftId, Now>,
    /// For each subject, the time and reason of its last failed step. They are kept until a step of
    /// the subject succeeds.
    failed: BTreeMap<RoleSubject, (Now, String)>,
    /// Voters that did not take over the leadership when asked.
    declined: BTreeSet<RaftId>,
    waits: BTreeMap<RoleSubject, String>,
}

/// The inputs of one step of the role manager: the desired and the observed state.
struct RoleInputs<'a> {
    now: Now,
    inventory: &'a Inventory,
    raft: &'a Membership,
    up: &'a BTreeSet<NodeId>,
}

impl RoleInputs<'_> {
    fn subject_of(&self, raft: RaftId) -> RoleSubject {
        self.inventory.raft_id_holder(raft).map_or(RoleSubject::Orphan(raft), |node| RoleSubject::Node(node.id))
    }

    fn is_wanted(&self, raft: RaftId) -> bool {
        self.inventory.raft_id_holder(raft).is_some_and(|node| node.role == ClusterRole::Manager)
    }
}

impl RoleManager {
    /// Returns the next step and records that it has begun. Returns None while a step is in
    /// progress, or if no step is needed or possible. `up` contains the nodes in gossip.
    pub fn step(
        &mut self,
        now: Now,
        inventory: &Inventory,
        raft: &Membership,
        up: &BTreeSet<NodeId>,
    ) -> Option<RoleStep> {
        self.watch(now, raft);
        if let Some((_, _, since)) = &self.under_way {
            if now.ms_since(*since) <= LOST_MS {
                return None;
            }
            self.finish_step(now, Err("no answer came".to_owned()));
        }
        if inventory.raft_id_holder(raft.me).is_some_and(|node| node.role == ClusterRole::Manager) {
            self.declined.clear(); // the leader is not being demoted
        }
        self.waits.clear();
        let look = RoleInputs { now, inventory, raft, up };
        let next = self.next(&look);
        if raft.committed && !raft.joint {
            // The failure of a subject that needs no step any more is deleted.
            let Self { failed, waits, .. } = self;
            failed.retain(|whose, _| waits.contains_key(whose));
        }
        let (step, whose) = next?;
        self.under_way = Some((step.clone(), whose, now));
        Some(step)
    }

    /// Finishes the current step. An error contains the reason why the step must be repeated.
    pub fn finish_step(&mut self, now: Now, outcome: Result<(), String>) {
        let Some((step, whose, _)) = self.under_way.take() else { return };
        match (outcome, step) {
            (Ok(()), _) => drop(self.failed.remove(&whose)),
            // This voter did not take over the leadership. The next call asks another voter,
            // without a pause.
            (Err(_), RoleStep::HandOver { to }) => drop(self.declined.insert(to)),
            (Err(why), _) => drop(self.failed.insert(whose, (now, why))),
        }
    }

    /// The reason why a node does not have its desired role yet, or why an orphan is not removed
    /// yet.
    pub fn waits(&self, whose: RoleSubject) -> Option<&str> {
        self.waits.get(&whose).map(String::as_str)
    }

    fn watch(&mut self, now: Now, raft: &Membership) {
        let close = |id: &RaftId| raft.heard.contains(id) && raft.lag(*id) <= LAG_MAX;
        self.steady.retain(|id, _| raft.learners.contains_key(id) && close(id));
        for id in raft.learners.keys().filter(|id| close(id)) {
            self.steady.entry(*id).or_insert(now);
        }
    }

    fn wait(&mut self, whose: RoleSubject, why: impl Into<String>) {
        self.waits.entry(whose).or_insert_with(|| why.into());
    }

    fn may_retry(&self, whose: RoleSubject, now: Now) -> bool {
        self.failed.get(&whose).is_none_or(|(at, _)| now.ms_since(*at) >= RETRY_MS)
    }

    /// Shows the last failure of the subject as its waiting reason, until a step succeeds.
    fn show_failure(&mut self, whose: RoleSubject) {
        if let Some((_, why)) = self.failed.get(&whose) {
            let text = format!("the last step failed and is tried again: {why}");
            self.wait(whose, text);
        }
    }

    /// Adds a step for the subject, unless its last step failed less than `RETRY_MS` ago.
    fn due(&mut self, look: &RoleInputs, steps: &mut Vec<(RoleStep, RoleSubject)>, step: RoleStep, whose: RoleSubject) {
        self.show_failure(whose);
        if self.may_retry(whose, look.now) {
            steps.push((step, whose));
        }
    }

    fn next(&mut self, look: &RoleInputs) -> Option<(RoleStep, RoleSubject)> {
        let raft = look.raft;
        if !raft.committed {
            self.wait_all(look, "waiting until the last change of managers is committed");
            return None;
        }
        if raft.joint {
            // A leader failed before it completed a change of the voters. Raft accepts only the
            // completion of that change.
            let changed = raft.voters.keys().chain(&raft.target).find(|id| !raft.target.contains(id));
            let about = changed.or(raft.target.last()).copied()?;
            let whose = look.subject_of(about);
            self.show_failure(whose);
            self.wait_all(look, "waiting until an unfinished change of managers is completed");
            let step = RoleStep::SetVoters { voters: raft.target.clone(), raft: about };
            return self.may_retry(whose, look.now).then_some((step, whose));
        }
        let mut steps = Vec::new();
        self.grow(look, &mut steps);
        self.shrink(look, &mut steps);
        self.retire(look, &mut steps);
        // The subject that failed most recently comes last. Otherwise two subjects that fail in
        // turn would block all others.
        let first = (0..steps.len()).min_by_key(|at| self.failed.get(&steps[*at].1).map(|(when, _)| *when))?;
        let chosen = steps.swap_remove(first);
        for (_, whose) in steps.into_iter().filter(|(_, whose)| *whose != chosen.1) {
            self.wait(whose, "one change of managers at a time");
        }
        Some(chosen)
    }

    fn wait_all(&mut self, look: &RoleInputs, why: &str) {
        for node in look.inventory.nodes.values() {
            let member = node.raft.is_some_and(|id| look.raft.voters.contains_key(&id));
            if member != (node.role == ClusterRole::Manager) {
                self.wait(RoleSubject::Node(node.id), why);
            }
        }
    }

    /// Adds steps for managers that are missing in Raft or have another address there.
    fn grow(&mut self, look: &RoleInputs, steps: &mut Vec<(RoleStep, RoleSubject)>) {
        for node in look.inventory.managers() {
            if let Some(step) = self.admit(look, node) {
                self.due(look, steps, step, RoleSubject::Node(node.id));
            }
        }
    }

    /// The next step for a node whose desired role is manager.
    fn admit(&mut self, look: &RoleInputs, node: &Node) -> Option<RoleStep> {
        let (whose, addr, raft) = (RoleSubject::Node(node.id), node.spec.api.clone(), look.raft);
        let Some(id) = node.raft else { return Some(RoleStep::Grant { node: node.id }) };
        let up = look.up.contains(&node.id);
        let at = raft.voters.get(&id).or_else(|| raft.learners.get(&id));
        match at {
            Some(at) if *at != addr && up => return Some(RoleStep::Readdress { raft: id, addr }),
            Some(_) if raft.voters.contains_key(&id) => return None,
            // The certificate of the node is not valid any more. Other managers would reject the
            // node's answer, so the promotion waits until an operator accepts the node again.
            None if up
                && look.inventory.expired_certificates.get(&node.id).is_some_and(|l| l.accepted_until.is_none()) =>
            {
                self.wait(whose, format!("its certificate is no longer valid; next: remoor accept {}", node.name()));
                return None;
            }
            None if up => return Some(RoleStep::Enlist { node: node.id, raft: id, addr }),
            None => {
                self.wait(whose, "it is away");
                return None;
            }
            Some(_) => {}
        }
        let Some(since) = self.steady.get(&id) else {
            let why = match raft.heard.contains(&id) {
                true => format!("catching up, {} entries behind", raft.lag(id)),
                false => "its manager service does not answer".to_owned(),
            };
            self.wait(whose, why);
            return None;
        };
        if look.now.ms_since(*since) < STEADY_MS {
            self.wait(whose, format!("caught up; becomes a voter after {} s without lag", STEADY_MS / 1_000));
            return None;
        }
        let voters: BTreeSet<RaftId> = raft.voters.keys().copied().chain([id]).collect();
        match raft.can_become(&voters) {
            Ok(()) => Some(RoleStep::SetVoters { voters, raft: id }),
            Err(why) => {
                self.wait(whose, why);
                None
            }
        }
    }

    /// Removes members that are not desired. Learners come first, then voters that do not answer,
    /// then other voters, and the leader is last.
    fn shrink(&mut self, look: &RoleInputs, steps: &mut Vec<(RoleStep, RoleSubject)>) {
        let raft = look.raft;
        let unwanted = |ids: &BTreeMap<RaftId, String>| -> Vec<RaftId> {
            ids.keys().copied().filter(|id| !look.is_wanted(*id)).collect()
        };
        for id in unwanted(&raft.learners) {
            self.due(look, steps, RoleStep::RemoveLearner { raft: id }, look.subject_of(id));
        }
        let mut voters = unwanted(&raft.voters);
        voters.sort_by_key(|id| (*id == raft.me, raft.answers(*id)));
        let wanted = look.inventory.managers().count();
        let coming = look.inventory.managers().any(|node| self.is_coming(look, node));
        for id in voters {
            let whose = look.subject_of(id);
            let next: BTreeSet<RaftId> = raft.voters.keys().copied().filter(|v| *v != id).collect();
            if next.is_empty() {
                self.wait(whose, "it is the only voter");
            } else if let Err(why) = raft.can_become(&next) {
                self.wait(whose, why);
            } else if coming && raft.answers(id) && next.len() < wanted {
                self.wait(whose, "it keeps its vote until the promoted managers are voters");
            } else if let Some(to) = (id == raft.me).then(|| self.heir(look)).flatten() {
                self.due(look, steps, RoleStep::HandOver { to }, whose);
            } else {
                self.due(look, steps, RoleStep::SetVoters { voters: next, raft: id }, whose);
            }
        }
    }

    /// Whether the node will become a voter and makes progress. A learner makes progress if it
    /// answers. Any other node makes progress if it is in gossip and its last step did not fail.
    fn is_coming(&self, look: &RoleInputs, node: &Node) -> bool {
        match node.raft {
            Some(id) if look.raft.voters.contains_key(&id) => false,
            Some(id) if look.raft.learners.contains_key(&id) => look.raft.heard.contains(&id),
            _ => look.up.contains(&node.id) && !self.failed.contains_key(&RoleSubject::Node(node.id)),
        }
    }

    /// The voter to which a leader that is being demoted hands over the leadership. It must be
    /// desired as a manager, answer, and have the longest log. None if there is no such voter, or
    /// if all of them declined. The membership change itself then removes the leader.
    fn heir(&self, look: &RoleInputs) -> Option<RaftId> {
        let raft = look.raft;
        let fits =
            |id: &&RaftId| **id != raft.me && look.is_wanted(**id) && raft.answers(**id) && !self.declined.contains(id);
        raft.voters.keys().filter(fits).min_by_key(|id| raft.lag(**id)).copied()
    }

    /// Retires the Raft ids of workers that are not in Raft. Then removes nodes that have no Raft
    /// id and that an operator ordered to remove.
    fn retire(&mut self, look: &RoleInputs, steps: &mut Vec<(RoleStep, RoleSubject)>) {
        for node in look.inventory.nodes.values().filter(|n| n.role == ClusterRole::Worker) {
            let step = match node.raft {
                Some(raft) if !look.raft.is_member(raft) => RoleStep::Retire { node: node.id, raft },
                None if node.removing.is_some() => RoleStep::Remove { node: node.id },
                _ => continue,
            };
            self.due(look, steps, step, RoleSubject::Node(node.id));
        }
    }
}

#[cfg(test)]
mod tests;
