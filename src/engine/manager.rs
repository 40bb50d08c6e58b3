//! The leader's engine: what it has seen and asked for, and one `step`.
//!
//! A new leader knows the inventory and nothing else. Each node has at most one proposal in flight, so an entry is
//! never proposed on a view that an own earlier entry is about to change. Its parts: `presence`, `examination`, `live`,
//! `resetup`, `runner`, `view`.

use super::budget;
use super::event::{About, Action, Event, Purpose};
use super::examination::Exam;
use super::place::Rendering;
use super::routes::{Road, Routes};
use crate::model::{
    Applied, AttemptId, CheckSummary, Command, Ground, Inventory, Marks, Node, NodeId, NodeName, Now, Phase, Report,
    Sha256, Verdict, Wall, Want,
};
use std::collections::{BTreeMap, BTreeSet};

/// A proposal without an answer is given up after this time; it may still be applied, which apply can bear.
pub(super) const PROPOSAL_MS: u64 = 15_000;
/// An examination without an answer, beyond its own limit.
const EXAM_SLACK_MS: u64 = 10_000;
/// A new leader takes nobody for absent before its gossip has settled.
pub(super) const FIRST_SIGHT_MS: u64 = 15_000;
/// A wanted re-setup that waited longer than this is examined again before it begins.
const STALE_WANT_MS: u64 = 120_000;

/// What this leader has seen of one node and asked about it; forgotten with the leadership.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub alive: bool,
    pub since: Now,
    pub since_wall: Wall,
    pub report: Option<Report>,
    pub proposing: Option<Now>,
    pub probed: Option<Now>,
    pub exam: Option<Exam>,
    /// Not before this time.
    pub exam_due: Now,
    pub exam_failures: u32,
    pub last_failure: Option<String>,
    /// Since when it settles, and for how long at most.
    pub settling: Option<(Now, u64)>,
    pub looked: Option<Looked>,
    /// A report that was older than an examination: until gossip has another one, it tells of no absence.
    pub outlived: Option<Marks>,
    /// When it was last seen before looks that found its host and no agent: these are no sight of the node.
    pub sighted: Option<Wall>,
    /// Where gossip has it, by its own signature.
    pub gossip: Option<String>,
    /// The address that was another node's when it was last told.
    pub held: Option<String>,
}

/// The last examination of a node, and what its agent said then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looked {
    pub hint: Hint,
    pub at: Now,
    /// Looks before it with the same hint: it causes one again ever later, but does, since the conclusion may have been lost.
    pub again: u32,
    /// Looks of late between which the word on the checks changed: checks that come and go.
    pub turns: u32,
}

/// What a report says of files and checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hint {
    pub digest: Sha256,
    pub checks: CheckSummary,
    pub amiss: u64,
}

impl Hint {
    pub fn of(report: &Report) -> Self {
        Self { digest: report.digest, checks: report.checks, amiss: report.amiss }
    }
}

#[derive(Debug, Clone)]
pub struct Manager {
    pub(super) me: NodeName,
    pub(super) began: Now,
    pub(super) seen: BTreeMap<NodeId, Seen>,
    /// Attempts opened under this leadership; any other open attempt is taken over.
    pub(super) mine: BTreeSet<AttemptId>,
    /// What was ordered for each attempt and not answered.
    pub(super) running: BTreeMap<AttemptId, Phase>,
    /// Answers that came and are not applied yet: proposed until they are.
    pub(super) answers: BTreeMap<AttemptId, (Phase, Command)>,
    /// Stopped while a phase was under way, and not heard of since: their current tasks may still run.
    pub(super) stopping: BTreeSet<AttemptId>,
    pub(super) verify_tries: BTreeMap<AttemptId, (u32, Now)>,
    pub(super) proposing_fleet: Option<Now>,
    pub(super) rendering: Rendering,
    /// The last answer of [`Manager::crowd`], and for which state and moment.
    crowd_at: Option<(u64, Wall, bool)>,
    /// Who reaches whom.
    pub(super) routes: Routes,
    /// When leadership was last offered to a manager with a better road.
    pub(super) handed: Option<Now>,
    pub(super) next_ticket: u64,
    /// Examinations under way, at most [`EXAMINATIONS_MAX`]: as many as there are `exam`s in `seen`, counted since it is asked
    /// for each node at each tick.
    pub(super) examining: usize,
    /// To be examined as soon as one of these has ended.
    pub(super) queued: BTreeSet<NodeId>,
}

/// The moment and the state that one step is about.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub now: Now,
    pub wall: Wall,
    pub inventory: &'a Inventory,
    pub ground: &'a Ground<'a>,
}

impl Manager {
    /// The engine of the node `me`, which begins to lead at `now`.
    pub fn new(me: NodeName, now: Now) -> Self {
        Self {
            me,
            began: now,
            seen: BTreeMap::new(),
            mine: BTreeSet::new(),
            running: BTreeMap::new(),
            answers: BTreeMap::new(),
            stopping: BTreeSet::new(),
            verify_tries: BTreeMap::new(),
            proposing_fleet: None,
            rendering: Rendering::default(),
            crowd_at: None,
            routes: Routes::default(),
            handed: None,
            next_ticket: 0,
            examining: 0,
            queued: BTreeSet::new(),
        }
    }

    /// Takes one event and says what to do. `inventory` is the applied state, and includes every own entry whose
    /// `Proposed` was delivered.
    pub fn step(&mut self, now: Now, wall: Wall, inventory: &Inventory, event: Event) -> Vec<Action> {
        let ground = Ground::new(inventory);
        let at = Moment { now, wall, inventory, ground: &ground };
        let mut out = Vec::new();
        let mut attend: Vec<NodeId> = Vec::new();
        match event {
            Event::Alive { node, report } => {
                let seen = self.seen.entry(node).or_default();
                let restarted = seen.report.as_ref().is_some_and(|before| marks_of(before) != marks_of(&report));
                if !seen.alive || restarted {
                    (seen.alive, seen.since, seen.since_wall) = (true, now, wall);
                    (seen.exam_due, seen.exam_failures, seen.settling) = (now, 0, None);
                }
                seen.report = Some(report);
                attend.push(node);
            }
            Event::Sighted { node, gossip } => self.seen.entry(node).or_default().gossip = Some(gossip),
            Event::Rendered { generation, moved, result } => self.rendering.came(generation, moved, result),
            Event::Gone { node } => {
                let seen = self.seen.entry(node).or_default();
                seen.gossip = None;
                (seen.alive, seen.since, seen.since_wall, seen.probed) = (false, now, wall, None);
                self.routes.forget(node);
                attend.push(node);
            }
            Event::Probed { node, answers } => self.probed(at, node, answers, &mut out),
            Event::Reach { node, by, line } => {
                if self.seen.get(&node).is_some_and(|s| s.alive) {
                    self.routes.told(node, by, line, now);
                    attend.push(node);
                }
            }
            Event::Examined { node, ticket, outcome } => {
                self.examined(at, node, ticket, *outcome, &mut out);
                attend.extend(self.queued.pop_first());
            }
            Event::Ran { job, attempt, phase, result } => {
                self.ran(at, job, attempt, phase, *result, &mut out);
                attend.extend(inventory.job(job).map(|j| j.node));
            }
            Event::Proposed { about, applied } => {
                match about {
                    About::Fleet => self.proposing_fleet = None,
                    About::Node(node) => {
                        self.seen.entry(node).or_default().proposing = None;
                        attend.push(node);
                    }
                }
                if let Some(Applied::Job(_, attempt)) = applied {
                    self.mine.insert(attempt);
                }
                attend.extend(self.wanting(inventory));
            }
            Event::Changed | Event::Tick => attend.extend(inventory.nodes.keys()),
        }
        self.breaker(at, &mut out);
        self.render(at, &mut out);
        self.left(at, &mut out);
        let mut full = BTreeSet::new();
        for id in attend {
            if let Some(node) = inventory.node(id) {
                self.attend(at, node, &mut full, &mut out);
            }
        }
        let ended: Vec<AttemptId> = self.mine.iter().copied().filter(|a| !open(inventory, *a)).collect();
        for attempt in ended {
            self.forget(inventory, attempt, &mut out);
        }
        for attempt in self.stopping.extract_if(.., |a| cut(inventory, *a)) {
            out.push(Action::Stop { attempt, now: true });
        }
        out
    }

    /// An attempt that is no longer open: whatever still runs for it is stopped, at once where its job says so.
    fn forget(&mut self, inventory: &Inventory, attempt: AttemptId, out: &mut Vec<Action>) {
        self.mine.remove(&attempt);
        let answered = self.answers.remove(&attempt).map(|(phase, _)| phase);
        self.verify_tries.remove(&attempt);
        let now = cut(inventory, attempt);
        if self.running.remove(&attempt).is_some_and(|phase| answered != Some(phase)) && !now {
            self.stopping.insert(attempt);
        }
        out.push(Action::Stop { attempt, now });
    }

    fn wanting(&self, inventory: &Inventory) -> Vec<NodeId> {
        inventory.nodes.values().filter(|n| n.want.is_some() || n.job.is_some()).map(|n| n.id).collect()
    }

    /// One thing at most is proposed for a node at a time.
    pub(super) fn propose(&mut self, at: Moment, node: NodeId, command: Command, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node).or_default();
        if seen.proposing.is_none() {
            seen.proposing = Some(at.now);
            out.push(Action::Propose { about: About::Node(node), command });
        }
    }

    fn breaker(&mut self, at: Moment, out: &mut Vec<Action>) {
        if self.fleet_is_free(at.now)
            && let Some(command) = budget::breaker(at.inventory, at.wall)
        {
            self.proposing_fleet = Some(at.now);
            if let Command::BreakerOpened { why, .. } = &command {
                let text = format!("breaker opened: {why}; no automatic re-setup until `remoor resume`");
                out.push(Action::Notify { key: "breaker".to_owned(), node: None, text });
            }
            out.push(Action::Propose { about: About::Fleet, command });
        }
    }

    /// What was seen of nodes that left is nothing to them when they come back; those whose time is over are taken out.
    fn left(&mut self, at: Moment, out: &mut Vec<Action>) {
        for id in at.inventory.left.keys() {
            self.queued.remove(id);
            if let Some(seen) = self.seen.remove(id) {
                self.examining -= usize::from(seen.exam.is_some());
                self.routes.forget(*id);
            }
        }
        if self.fleet_is_free(at.now)
            && let Some(command) = at.inventory.overstayed(at.wall)
        {
            self.proposing_fleet = Some(at.now);
            out.push(Action::Propose { about: About::Fleet, command });
        }
    }

    /// One thing at most is proposed for the whole fleet at a time.
    pub(super) fn fleet_is_free(&self, now: Now) -> bool {
        self.proposing_fleet.is_none_or(|since| now.since(since) > PROPOSAL_MS)
    }

    /// Derives from the applied state what this node needs next. `full` names groups whose budget is spent.
    fn attend(&mut self, at: Moment, node: &Node, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        let seen = self.seen.entry(node.id).or_default();
        match seen.proposing {
            Some(since) if at.now.since(since) <= PROPOSAL_MS => return,
            _ => seen.proposing = None,
        }
        let limit = at.inventory.limits().exam_timeout_ms + EXAM_SLACK_MS;
        if seen.exam.is_some_and(|e| at.now.since(e.began) > limit) {
            seen.exam = None;
            seen.exam_due = at.now;
            self.examining -= 1;
        }
        // Before its return is entered, so that it is looked for where it is.
        if self.place(at, node, out) {
            return;
        }
        self.ask_roads(at, node, out);
        self.presence(at, node, out);
        if self.seen.entry(node.id).or_default().proposing.is_none() {
            self.work(at, node, full, out);
        }
    }

    fn work(&mut self, at: Moment, node: &Node, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        if let Some(job) = node.job.and_then(|j| at.inventory.job(j)) {
            self.drive(at, node, job, out);
            return;
        }
        if node.absence.is_some() && node.want.as_ref().is_none_or(|w| !w.now && !w.force) {
            return;
        }
        if let Some(want) = &node.want {
            self.begin(at, node, want, full, out);
            return;
        }
        self.live(at, node, out);
    }

    /// A wanted re-setup: open its job as soon as nothing is in the way.
    fn begin(&mut self, at: Moment, node: &Node, want: &Want, full: &mut BTreeSet<String>, out: &mut Vec<Action>) {
        // What stands in the way of all is asked first: a thousand may want something, at every entry.
        let too_early = at.now.since(self.began) < at.inventory.limits().leader_grace_ms;
        if full.contains("") || want.by.is_none() && (too_early || at.ground.is_shut()) {
            return;
        }
        let group = at.inventory.group(node).map_or("", |(name, _)| name.as_str());
        if full.contains(group) {
            return;
        }
        if let Err(wait) = at.ground.may_open(node, want, at.wall) {
            if let crate::model::Wait::Budget(text) = wait {
                full.insert(if text.contains("of the fleet") { String::new() } else { group.to_owned() });
            }
            return;
        }
        if want.by.is_none() && (self.crowd(at) || self.is_rendering(at.now)) {
            return;
        }
        // Old news, news from before a hold, and news that was followed by "unknown" are looked at again (I9).
        if stale(at, node, want) {
            if self.road(at, node) != Road::Nowhere {
                self.examine(at, node, Purpose::Live(want.occasion), out);
            }
        } else if self.is_me(at, node) {
            let others = at.inventory.nodes.values().filter(|n| n.raft.is_some() && n.id != node.id);
            let can = |n: &Node| n.want.is_some() && self.road(at, n) != Road::Nowhere && may_open_now(at, n);
            if others.into_iter().any(|n| can(n)) {
                return; // its turn comes first: two managers that wait for each other's hand would pass leadership for ever
            }
            out.push(Action::HandOver { why: format!("{} is to be set up again", self.me), to: None });
        } else if self.runs_here(at, node, out) {
            full.insert(group.to_owned());
            self.propose(at, node.id, Command::OpenJob { node: node.id, runner: self.me.clone() }, out);
        }
    }

    /// Whether those that came back are too many to begin with one of them; found out once for each state and moment.
    pub(super) fn crowd(&mut self, at: Moment) -> bool {
        match self.crowd_at {
            Some((applied, wall, crowd)) if (applied, wall) == (at.inventory.applied, at.wall) => crowd,
            _ => {
                let crowd = super::crowd::undecided(at.inventory, at.wall).is_some();
                self.crowd_at = Some((at.inventory.applied, at.wall, crowd));
                crowd
            }
        }
    }

    /// This very node, with somebody to hand leadership to.
    pub(super) fn is_me(&self, at: Moment, node: &Node) -> bool {
        node.name() == &self.me && at.inventory.nodes.values().filter(|n| n.raft.is_some()).count() > 1
    }
}

/// What remoor itself wants, and examined too long ago to begin with it.
pub(super) fn stale(at: Moment, node: &Node, want: &Want) -> bool {
    let unknown = node.finding.as_ref().is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
    let old = |e: Wall| unknown || at.wall.since(e) > STALE_WANT_MS || node.hold.as_ref().is_some_and(|h| h.since >= e);
    want.by.is_none() && want.examined.is_some_and(old)
}

fn may_open_now(at: Moment, node: &Node) -> bool {
    node.want.as_ref().is_some_and(|want| at.ground.may_open(node, want, at.wall).is_ok())
}

/// While an attempt runs, a restarted agent is nothing to wonder about, and what is found there is half done.
pub(super) fn in_attempt(at: Moment, node: &Node) -> bool {
    node.job.and_then(|j| at.inventory.job(j)).is_some_and(|j| j.open_attempt().is_some())
}

/// The marks that a report hints at.
pub fn marks_of(report: &Report) -> Marks {
    Marks { boot: report.boot.clone(), instance: report.instance.clone(), isolation: report.isolation }
}

/// Its job was cancelled with the word that nothing is let finish.
fn cut(inventory: &Inventory, attempt: AttemptId) -> bool {
    inventory.jobs.values().any(|j| j.cut && j.attempts.iter().any(|a| a.id == attempt))
}

fn open(inventory: &Inventory, attempt: AttemptId) -> bool {
    inventory.jobs.values().any(|j| j.open_attempt().is_some_and(|a| a.id == attempt))
}
