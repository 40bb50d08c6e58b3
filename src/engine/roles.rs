//! The role manager: brings Raft's membership to the roles that are desired, and back, one change at a time.
//!
//! It compares both ways whenever it is asked, so an event that was missed costs nothing: managers that Raft lacks, members that
//! nobody wants, ids that nobody has, and changes that a dead leader left half done. It keeps no record of the observed role,
//! which follows from the membership alone. What swarmkit's `role_manager.go` gets wrong is in SCENARIOS E1 to E29.

use crate::model::{ClusterRole, Inventory, Node, NodeId, Now, RaftId, majority};
use std::collections::{BTreeMap, BTreeSet};

/// Entries that a learner may lack when it is given a vote.
const LAG_MAX: u64 = 100;
/// A learner lacks no more for so long before it votes: a promotion must not cost the quorum.
pub const STEADY_MS: u64 = 10_000;
/// A step without an answer is taken for lost; doing one twice does no harm.
const LOST_MS: u64 = 15_000;
/// What failed is tried again after this time; what else is to be done goes on meanwhile.
const RETRY_MS: u64 = 5_000;

/// Raft as its leader sees it now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    /// The leader, who asks.
    pub me: RaftId,
    /// Of all configurations in force, with the addresses that Raft has.
    pub voters: BTreeMap<RaftId, String>,
    pub learners: BTreeMap<RaftId, String>,
    /// The voters after a change that is half done; otherwise those of `voters`.
    pub target: BTreeSet<RaftId>,
    pub joint: bool,
    /// Whether this list is committed; until then Raft takes no other.
    pub committed: bool,
    pub last_log: u64,
    /// Up to where each other member has the log.
    pub matched: BTreeMap<RaftId, u64>,
    /// Other members that answered of late.
    pub heard: BTreeSet<RaftId>,
}

impl Membership {
    fn has(&self, raft: RaftId) -> bool {
        self.voters.contains_key(&raft) || self.learners.contains_key(&raft)
    }

    /// The leader itself does.
    pub fn answers(&self, raft: RaftId) -> bool {
        raft == self.me || self.heard.contains(&raft)
    }

    /// Who takes part, and how; of this a step is made.
    pub fn list(&self) -> (Vec<RaftId>, Vec<RaftId>, &BTreeSet<RaftId>, bool) {
        (self.voters.keys().copied().collect(), self.learners.keys().copied().collect(), &self.target, self.joint)
    }

    /// How many entries a member lacks.
    pub fn lag(&self, raft: RaftId) -> u64 {
        self.last_log.saturating_sub(self.matched.get(&raft).copied().unwrap_or(0))
    }

    /// How many of these answer, where that is no majority of them.
    pub fn too_few(&self, voters: &BTreeSet<RaftId>) -> Option<usize> {
        let up = voters.iter().filter(|id| self.answers(**id)).count();
        (up < majority(voters.len())).then_some(up)
    }

    /// A change needs a majority of those before and of those after. Err: who is missing, in words.
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

/// What is to be done next. Each is safe to be done twice, and by a leader that is none any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleStep {
    /// Propose the entry that gives the node an id.
    Grant {
        node: NodeId,
    },
    /// Have the node at its API address run a manager part under this id, and make that a learner. Only the same node may answer.
    Enlist {
        node: NodeId,
        raft: RaftId,
        addr: String,
    },
    /// The member is at another address than Raft has.
    Readdress {
        raft: RaftId,
        addr: String,
    },
    /// Make exactly these the voters; `raft` is whom it is about.
    SetVoters {
        voters: BTreeSet<RaftId>,
        raft: RaftId,
    },
    RemoveLearner {
        raft: RaftId,
    },
    /// The leader is to go: this voter leads first.
    HandOver {
        to: RaftId,
    },
    /// Propose the entry by which the id is nobody's any more.
    Retire {
        node: NodeId,
        raft: RaftId,
    },
    /// Propose the entry that takes a node out which has left Raft, as was ordered.
    Remove {
        node: NodeId,
    },
}

/// Whom a step, or a wait, is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    Node(NodeId),
    /// A member of Raft that no node has the id of.
    Orphan(RaftId),
}

/// Of one leadership; a new leader begins with an empty one.
#[derive(Debug, Clone, Default)]
pub struct Roles {
    under_way: Option<(RoleStep, Whose, Now)>,
    /// Since when a learner lacks next to nothing.
    steady: BTreeMap<RaftId, Now>,
    /// When a step about them last failed, and why, until one is done.
    failed: BTreeMap<Whose, (Now, String)>,
    /// Voters that did not take the leadership.
    declined: BTreeSet<RaftId>,
    waits: BTreeMap<Whose, String>,
}

/// One look at what is desired and what is.
struct Look<'a> {
    now: Now,
    inventory: &'a Inventory,
    raft: &'a Membership,
    up: &'a BTreeSet<NodeId>,
}

impl Look<'_> {
    fn whose(&self, raft: RaftId) -> Whose {
        self.inventory.holds(raft).map_or(Whose::Orphan(raft), |node| Whose::Node(node.id))
    }

    fn is_wanted(&self, raft: RaftId) -> bool {
        self.inventory.holds(raft).is_some_and(|node| node.role == ClusterRole::Manager)
    }
}

impl Roles {
    /// The next step, which is taken for begun; none while one is under way. `up` are the nodes that gossip has.
    pub fn step(
        &mut self,
        now: Now,
        inventory: &Inventory,
        raft: &Membership,
        up: &BTreeSet<NodeId>,
    ) -> Option<RoleStep> {
        self.watch(now, raft);
        if let Some((_, _, since)) = &self.under_way {
            if now.since(*since) <= LOST_MS {
                return None;
            }
            self.ended(now, Err("no answer came".to_owned()));
        }
        if inventory.holds(raft.me).is_some_and(|node| node.role == ClusterRole::Manager) {
            self.declined.clear(); // the leader stays
        }
        self.waits.clear();
        let look = Look { now, inventory, raft, up };
        let next = self.next(&look);
        if raft.committed && !raft.joint {
            // Of whom nothing is wanted any more, what failed is over.
            let Self { failed, waits, .. } = self;
            failed.retain(|whose, _| waits.contains_key(whose));
        }
        let (step, whose) = next?;
        self.under_way = Some((step.clone(), whose, now));
        Some(step)
    }

    /// The step under way came to its end, or nobody knows. Err: why it is to be done again, in words.
    pub fn ended(&mut self, now: Now, outcome: Result<(), String>) {
        let Some((step, whose, _)) = self.under_way.take() else { return };
        match (outcome, step) {
            (Ok(()), _) => drop(self.failed.remove(&whose)),
            // The next one is asked at once.
            (Err(_), RoleStep::HandOver { to }) => drop(self.declined.insert(to)),
            (Err(why), _) => drop(self.failed.insert(whose, (now, why))),
        }
    }

    /// What stands between a node, or an orphan, and what is desired of it.
    pub fn waits(&self, whose: Whose) -> Option<&str> {
        self.waits.get(&whose).map(String::as_str)
    }

    fn watch(&mut self, now: Now, raft: &Membership) {
        let close = |id: &RaftId| raft.heard.contains(id) && raft.lag(*id) <= LAG_MAX;
        self.steady.retain(|id, _| raft.learners.contains_key(id) && close(id));
        for id in raft.learners.keys().filter(|id| close(id)) {
            self.steady.entry(*id).or_insert(now);
        }
    }

    fn wait(&mut self, whose: Whose, why: impl Into<String>) {
        self.waits.entry(whose).or_insert_with(|| why.into());
    }

    fn may(&self, whose: Whose, now: Now) -> bool {
        self.failed.get(&whose).is_none_or(|(at, _)| now.since(*at) >= RETRY_MS)
    }

    /// What failed stays told until it is done, also while it is tried again.
    fn tell_failure(&mut self, whose: Whose) {
        if let Some((_, why)) = self.failed.get(&whose) {
            let text = format!("the last step failed and is tried again: {why}");
            self.wait(whose, text);
        }
    }

    /// A step for them is due, unless the last one failed just now.
    fn due(&mut self, look: &Look, steps: &mut Vec<(RoleStep, Whose)>, step: RoleStep, whose: Whose) {
        self.tell_failure(whose);
        if self.may(whose, look.now) {
            steps.push((step, whose));
        }
    }

    fn next(&mut self, look: &Look) -> Option<(RoleStep, Whose)> {
        let raft = look.raft;
        if !raft.committed {
            self.wait_all(look, "waiting until the last change of managers is committed");
            return None;
        }
        if raft.joint {
            // A leader died between the two halves, and what it began is the only change that Raft takes.
            let changed = raft.voters.keys().chain(&raft.target).find(|id| !raft.target.contains(id));
            let about = changed.or(raft.target.last()).copied()?;
            let whose = look.whose(about);
            self.tell_failure(whose);
            self.wait_all(look, "waiting until a change of managers that is half done is finished");
            let step = RoleStep::SetVoters { voters: raft.target.clone(), raft: about };
            return self.may(whose, look.now).then_some((step, whose));
        }
        let mut steps = Vec::new();
        self.grow(look, &mut steps);
        self.shrink(look, &mut steps);
        self.retire(look, &mut steps);
        // Who failed last comes last: two that fail by turns would keep out all that come after them.
        let first = (0..steps.len()).min_by_key(|at| self.failed.get(&steps[*at].1).map(|(when, _)| *when))?;
        let chosen = steps.swap_remove(first);
        for (_, whose) in steps.into_iter().filter(|(_, whose)| *whose != chosen.1) {
            self.wait(whose, "one change of managers at a time");
        }
        Some(chosen)
    }

    fn wait_all(&mut self, look: &Look, why: &str) {
        for node in look.inventory.nodes.values() {
            let member = node.raft.is_some_and(|id| look.raft.voters.contains_key(&id));
            if member != (node.role == ClusterRole::Manager) {
                self.wait(Whose::Node(node.id), why);
            }
        }
    }

    /// Managers that Raft lacks, or has elsewhere.
    fn grow(&mut self, look: &Look, steps: &mut Vec<(RoleStep, Whose)>) {
        for node in look.inventory.managers() {
            if let Some(step) = self.admit(look, node) {
                self.due(look, steps, step, Whose::Node(node.id));
            }
        }
    }

    /// What is next for a node that is to be a manager.
    fn admit(&mut self, look: &Look, node: &Node) -> Option<RoleStep> {
        let (whose, addr, raft) = (Whose::Node(node.id), node.spec.api.clone(), look.raft);
        let Some(id) = node.raft else { return Some(RoleStep::Grant { node: node.id }) };
        let up = look.up.contains(&node.id);
        let at = raft.voters.get(&id).or_else(|| raft.learners.get(&id));
        match at {
            Some(at) if *at != addr && up => return Some(RoleStep::Readdress { raft: id, addr }),
            Some(_) if raft.voters.contains_key(&id) => return None,
            // Nobody believes who answers there; an operator's yes is what it lacks.
            None if up && look.inventory.lapsed.get(&node.id).is_some_and(|l| l.accepted_until.is_none()) => {
                self.wait(whose, format!("its certificate counts no more; next: remoor accept {}", node.name()));
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
                false => "its manager part does not answer".to_owned(),
            };
            self.wait(whose, why);
            return None;
        };
        if look.now.since(*since) < STEADY_MS {
            self.wait(whose, format!("caught up; votes once it was so for {} s", STEADY_MS / 1_000));
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

    /// Members that nobody wants: learners first, then voters that are dead, then others, and the leader at last.
    fn shrink(&mut self, look: &Look, steps: &mut Vec<(RoleStep, Whose)>) {
        let raft = look.raft;
        let unwanted = |ids: &BTreeMap<RaftId, String>| -> Vec<RaftId> {
            ids.keys().copied().filter(|id| !look.is_wanted(*id)).collect()
        };
        for id in unwanted(&raft.learners) {
            self.due(look, steps, RoleStep::RemoveLearner { raft: id }, look.whose(id));
        }
        let mut voters = unwanted(&raft.voters);
        voters.sort_by_key(|id| (*id == raft.me, raft.answers(*id)));
        let wanted = look.inventory.managers().count();
        let coming = look.inventory.managers().any(|node| self.is_coming(look, node));
        for id in voters {
            let whose = look.whose(id);
            let next: BTreeSet<RaftId> = raft.voters.keys().copied().filter(|v| *v != id).collect();
            if next.is_empty() {
                self.wait(whose, "it is the only voter");
            } else if let Err(why) = raft.can_become(&next) {
                self.wait(whose, why);
            } else if coming && raft.answers(id) && next.len() < wanted {
                self.wait(whose, "it votes until those do that are to vote");
            } else if let Some(to) = (id == raft.me).then(|| self.heir(look)).flatten() {
                self.due(look, steps, RoleStep::HandOver { to }, whose);
            } else {
                self.due(look, steps, RoleStep::SetVoters { voters: next, raft: id }, whose);
            }
        }
    }

    /// Is to vote, does not yet, and nothing speaks against it: as a learner it answers, or it is there and no step failed.
    fn is_coming(&self, look: &Look, node: &Node) -> bool {
        match node.raft {
            Some(id) if look.raft.voters.contains_key(&id) => false,
            Some(id) if look.raft.learners.contains_key(&id) => look.raft.heard.contains(&id),
            _ => look.up.contains(&node.id) && !self.failed.contains_key(&Whose::Node(node.id)),
        }
    }

    /// Who leads after a leader that is to go: the one that has most of the log, of those that answer and stay. None has to
    /// take it: then the leader leaves by the change itself.
    fn heir(&self, look: &Look) -> Option<RaftId> {
        let raft = look.raft;
        let fits =
            |id: &&RaftId| **id != raft.me && look.is_wanted(**id) && raft.answers(**id) && !self.declined.contains(id);
        raft.voters.keys().filter(fits).min_by_key(|id| raft.lag(**id)).copied()
    }

    /// Ids of workers that are out of Raft; and who has none and is to be removed.
    fn retire(&mut self, look: &Look, steps: &mut Vec<(RoleStep, Whose)>) {
        for node in look.inventory.nodes.values().filter(|n| n.role == ClusterRole::Worker) {
            let step = match node.raft {
                Some(raft) if !look.raft.has(raft) => RoleStep::Retire { node: node.id, raft },
                None if node.removing.is_some() => RoleStep::Remove { node: node.id },
                _ => continue,
            };
            self.due(look, steps, step, Whose::Node(node.id));
        }
    }
}

#[cfg(test)]
mod tests;
