//! Seven nodes, the connections between them, and a model of Raft in steps of half a second. The
//! model contains only those functions of Raft on which membership depends.

use super::manager_service::{Config, Item, Lead, Log, Payload, SimManagerService};
use super::options::Options;
use super::planted::Planted;
use crate::rng::Rng;
use crate::search::Outcome;
use remoor_engine::RoleStep;
use remoor_model::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const BEAT_MS: u64 = 500;
/// A member that received a message of a leader within this time (ms) votes for no other candidate.
const LEASE_MS: u64 = 1_000;
pub const NAMES: [&str; 7] = ["m1", "m2", "m3", "w1", "w2", "w3", "w4"];

pub struct Host {
    pub node: NodeId,
    pub up: bool,
    pub down_since: u64,
    /// The number of the network partition. Only hosts of the same partition reach each other.
    pub side: usize,
    /// Whether the host accepts only few entries in each step of the Raft model.
    pub slow: bool,
    pub place: u64,
    /// Index of the log entry by which the host last joined. None if the host has no identity.
    pub joined: Option<u64>,
    /// The number of earlier keys of the host, which it replaced by its current key.
    pub keys: u64,
    /// The number of crashes and losses of identity of this host. If the number has changed since a
    /// request was sent, the answer to this request is ignored.
    pub life: u64,
    /// The newest Raft id with which the host ran a manager service.
    pub newest: RaftId,
    pub part: Option<SimManagerService>,
}

#[derive(Debug, Clone)]
pub enum Due {
    Beat,
    Tick,
    Perform(Order),
    /// Deliver an operator's order to the current leader.
    Tell(Command),
    Boot {
        host: usize,
        wiped: bool,
    },
    Heal {
        host: usize,
    },
}

/// A step of the role manager that waits for its execution.
#[derive(Debug, Clone)]
pub struct Order {
    pub host: usize,
    pub term: u64,
    pub ticket: u64,
    pub step: RoleStep,
    /// The number of the member list for which the role manager made this step.
    pub list: u64,
}

/// The action that follows when an entry is committed.
#[derive(Debug, Clone)]
pub enum Then {
    Nothing,
    End(Order),
    /// Propose the second entry of a change of the voters, because the first entry was committed.
    Second(Order),
    Joined {
        host: usize,
        life: u64,
    },
}

pub struct Pending {
    pub host: usize,
    pub term: u64,
    pub index: u64,
    pub item: Arc<Item>,
    pub until: u64,
    pub then: Then,
}

pub struct World {
    pub options: Options,
    pub rng: Rng,
    pub now: u64,
    serial: u64,
    pub queue: BTreeMap<(u64, u64), Due>,
    pub hosts: Vec<Host>,
    /// All entries that any leader ever committed, and the state after each.
    pub committed: Log,
    pub states: Vec<Arc<Inventory>>,
    pub refused: BTreeSet<u64>,
    /// The last committed member list.
    pub list: Config,
    pub list_at: u64,
    pub pending: Vec<Pending>,
    /// For each Raft id, the log on which it voted.
    pub voted_on: BTreeMap<RaftId, u64>,
    /// For each term, the member that led in it.
    pub led: BTreeMap<u64, RaftId>,
    pub logs: u64,
    pub calm_since: Option<u64>,
    /// While an orphan should be removed: the term and the number of committed entries, and the
    /// time since which both have not changed. The law about orphans uses this.
    pub stuck: Option<((u64, usize), u64)>,
    pub outcome: Outcome,
}

impl World {
    /// A world with three managers and four workers.
    pub fn new(options: Options) -> Self {
        let rng = Rng::new(options.seed);
        let mut world = Self {
            options,
            rng,
            now: 0,
            serial: 0,
            queue: BTreeMap::new(),
            hosts: Vec::new(),
            committed: Vec::new(),
            states: vec![Arc::default()],
            refused: BTreeSet::new(),
            list: Config::default(),
            list_at: 0,
            pending: Vec::new(),
            voted_on: BTreeMap::new(),
            led: BTreeMap::new(),
            logs: 0,
            calm_since: None,
            stuck: None,
            outcome: Outcome::default(),
        };
        world.create_cluster();
        world.schedule(BEAT_MS, Due::Beat);
        world.schedule(1_000, Due::Tick);
        world
    }

    fn create_cluster(&mut self) {
        let mut voters = BTreeMap::new();
        for at in 0..NAMES.len() {
            let index = self.committed.len() as u64 + 1;
            let host = Host {
                node: NodeId(index),
                up: true,
                down_since: 0,
                side: 0,
                slow: false,
                place: 1,
                joined: Some(index),
                keys: 0,
                life: 0,
                newest: RaftId(0),
                part: None,
            };
            self.hosts.push(host);
            let role = if at < 3 { ClusterRole::Manager } else { ClusterRole::Worker };
            let command = Command::Accept { spec: self.spec(at), role };
            self.committed_now(0, command);
        }
        for at in 0..3 {
            self.committed_now(0, Command::Grant { node: self.hosts[at].node, founder: at == 0 });
            let id = self.state().nodes[&self.hosts[at].node].raft.unwrap_or_default();
            voters.insert(id, self.api(at));
            self.hosts[at].newest = id;
        }
        let config = Config { voters: vec![voters.keys().copied().collect()], nodes: voters };
        self.commit(Arc::new(Item { term: 0, payload: Payload::Members(config) }));
        for at in 0..3 {
            let mut part = self.new_part(self.hosts[at].newest);
            part.extend(&self.committed);
            part.commit = part.last();
            part.patience = self.rng.in_range(500, 3_000);
            self.hosts[at].part = Some(part);
        }
    }

    fn committed_now(&mut self, term: u64, command: Command) {
        let entry = InventoryEntry { at: Wall(self.now), by: "sim".to_owned(), command };
        self.commit(Arc::new(Item { term, payload: Payload::Command(Box::new(entry)) }));
    }

    pub fn new_part(&mut self, id: RaftId) -> SimManagerService {
        self.logs += 1;
        SimManagerService::empty(id, self.logs, self.now)
    }

    /// The state after all committed entries.
    pub fn state(&self) -> Arc<Inventory> {
        self.states[self.committed.len()].clone()
    }

    pub fn api(&self, at: usize) -> String {
        format!("10.0.{at}.{}:7947", self.hosts[at].place)
    }

    pub fn gossip(&self, at: usize) -> String {
        format!("10.0.{at}.{}:7946", self.hosts[at].place)
    }

    pub fn spec(&self, at: usize) -> NodeSpec {
        NodeSpec {
            name: NAMES[at].into(),
            public_key: format!("key {} of {}", self.hosts[at].keys, NAMES[at]),
            api: self.api(at),
            gossip: self.gossip(at),
            ..NodeSpec::default()
        }
    }

    pub fn has_planted(&self, planted: Planted) -> bool {
        self.options.planted == Some(planted)
    }

    pub fn schedule(&mut self, ms: u64, due: Due) {
        self.serial += 1;
        self.queue.insert((self.now + ms, self.serial), due);
    }

    pub fn fire(&mut self, what: &'static str) {
        self.outcome.fire(what);
        self.trace(|_| what.to_owned());
    }

    pub fn trace(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.options.trace {
            let line = format!("{:>7} {}", self.now, what(self));
            self.outcome.note(line);
        }
    }

    /// Records a broken law. If a bug is planted, only the law of this bug counts.
    pub fn breaks(&mut self, law: &str, what: impl FnOnce() -> String) {
        if self.outcome.broken.is_none() && self.options.law().is_none_or(|only| only == law) {
            self.outcome.broken = Some(format!("{law}: {}", what()));
        }
    }

    pub fn run_until(&mut self, end: u64) {
        while self.outcome.broken.is_none() {
            match self.queue.first_key_value() {
                Some(((at, _), _)) if *at <= end => {}
                _ => break,
            }
            let Some(((at, _), due)) = self.queue.pop_first() else { break };
            self.now = at;
            self.happen(due);
            self.check();
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Beat => {
                self.beat();
                self.schedule(BEAT_MS, Due::Beat);
            }
            Due::Tick => {
                self.tick();
                self.schedule(1_000, Due::Tick);
            }
            Due::Perform(order) => self.perform(order),
            Due::Tell(command) => self.order(command),
            Due::Boot { host, wiped } => self.boot(host, wiped),
            Due::Heal { host } => (self.hosts[host].side, self.hosts[host].slow) = (0, false),
        }
    }

    /// Whether a delayed step of the role manager still waits for its execution.
    pub fn comes_late(&self) -> bool {
        self.queue.values().any(|due| matches!(due, Due::Perform(_)))
    }

    pub fn reaches(&self, from: usize, to: usize) -> bool {
        self.hosts[from].up && self.hosts[to].up && self.hosts[from].side == self.hosts[to].side
    }

    fn is_message_lost(&mut self) -> bool {
        self.calm_since.is_none() && self.rng.chance(self.options.loss_permille)
    }

    /// The other host that runs the manager service with this Raft id. None if no such host is
    /// reachable now.
    fn peer(&mut self, from: usize, id: RaftId) -> Option<usize> {
        let runs = |h: &Host| h.part.as_ref().is_some_and(|p| p.id == id);
        let to = (0..self.hosts.len()).find(|to| *to != from && runs(&self.hosts[*to]) && self.reaches(from, *to))?;
        (!self.is_message_lost()).then_some(to)
    }

    fn beat(&mut self) {
        let all = self.hosts.len();
        let first = self.rng.up_to(all);
        for at in (first..first + all).map(|at| at % all) {
            let now = self.now;
            let Some(part) = self.hosts[at].part.as_ref().filter(|_| self.hosts[at].up) else { continue };
            if part.lead.is_some() {
                self.replicate(at);
            } else if now - part.heard > part.patience && part.configs().any(|c| c.votes(part.id)) {
                // A member also campaigns if an uncommitted list removes it as a voter, because it
                // is possible that no other member has that list.
                self.campaign(at, false);
            }
        }
        self.settle();
    }

    /// Exchanges messages between the leader and all members, then handles the entries that are
    /// committed.
    fn replicate(&mut self, at: usize) {
        let Some(mut part) = self.hosts[at].part.take() else { return };
        let ids: Vec<RaftId> = part.config().map(|c| c.nodes.keys().copied().collect()).unwrap_or_default();
        for id in ids.into_iter().filter(|id| *id != part.id) {
            let Some(to) = self.peer(at, id) else { continue };
            let slow = self.hosts[to].slow;
            let Some(peer) = self.hosts[to].part.as_mut() else { continue };
            if peer.term > part.term {
                (part.term, part.lead, part.heard) = (peer.term, None, self.now);
                break;
            }
            (peer.term, peer.lead, peer.heard) = (part.term, None, self.now);
            let shared = peer.common_prefix(&part);
            let (lost, had) = (shared < peer.commit, peer.commit);
            if shared < part.last() {
                peer.truncate(shared);
                let many = if slow { 20 } else { usize::MAX };
                let end = part.log.len().min((shared as usize).saturating_add(many));
                peer.extend(&part.log[shared as usize..end]);
            }
            let matched = if shared < part.last() { peer.last() } else { shared };
            peer.commit = peer.commit.max(part.commit.min(matched));
            let (votes, log_no) = (part.config().is_some_and(|c| c.votes(id)), peer.log_no);
            if lost {
                self.breaks("committed", || {
                    format!("{} is to drop what it had as committed: {shared} < {had}", NAMES[to])
                });
            }
            if votes {
                self.check_vote_log(id, log_no);
            }
            if let Some(lead) = &mut part.lead {
                lead.matched.insert(id, matched);
                lead.acked.insert(id, self.now);
            }
        }
        let news = self.advance(&mut part);
        let removed = part.list_index() <= part.commit && part.config().is_none_or(|c| !c.votes(part.id));
        if removed && part.lead.take().is_some() {
            part.heard = self.now;
        }
        let first = part.commit + 1 - news.len() as u64;
        self.hosts[at].part = Some(part);
        for (index, item) in (first..).zip(news) {
            match self.committed.get(index as usize - 1) {
                None if index == self.committed.len() as u64 + 1 => self.commit(item),
                Some(known) if Arc::ptr_eq(known, &item) => {}
                _ => self.breaks("committed", || format!("{} commits another entry {index}", NAMES[at])),
            }
        }
    }

    /// Commits the entries that a majority of each set of voters has. Returns the new entries.
    fn advance(&mut self, part: &mut SimManagerService) -> Log {
        let (id, last) = (part.id, part.last());
        let (Some(config), Some(lead)) = (part.config(), part.lead.as_ref()) else { return Vec::new() };
        let now = self.now;
        let answered = config.quorum(|v| v == id || lead.acked.get(&v) == Some(&now));
        let has = |v: &RaftId| if *v == id { last } else { lead.matched.get(v).copied().unwrap_or(0) };
        let agreed = |set: &BTreeSet<RaftId>| {
            let mut have: Vec<u64> = set.iter().map(has).collect();
            have.sort_unstable_by(|a, b| b.cmp(a));
            have[have.len() / 2]
        };
        let agreed = config.voters.iter().map(agreed).min().unwrap_or(0).min(last);
        let mine = config.votes(id).then_some(part.log_no);
        let before = part.commit;
        if agreed > before && part.log[agreed as usize - 1].term == part.term {
            part.commit = agreed;
        }
        if answered && let Some(lead) = &mut part.lead {
            lead.quorum_at = now;
        }
        if let Some(log_no) = mine {
            self.check_vote_log(id, log_no);
        }
        part.log[before as usize..part.commit as usize].to_vec()
    }

    pub fn commit(&mut self, item: Arc<Item>) {
        let index = self.committed.len() as u64 + 1;
        let mut state = self.state();
        match &item.payload {
            Payload::Command(entry) => {
                let before = state.clone();
                let inventory = Arc::make_mut(&mut state);
                let mut applied = inventory.apply(index, entry);
                self.plant_in_inventory(&before, inventory, entry, &mut applied);
                self.plant_in_removal(&before, inventory, entry, &mut applied);
                if applied.refusal().is_some() {
                    self.refused.insert(index);
                }
                self.trace(|_| format!("committed {index}: {:?} -> {applied:?}", entry.command));
                self.check_applied(&before, &state, &entry.command, &applied);
                self.judge_removed(&before, &state);
            }
            Payload::Members(config) => {
                self.trace(|_| format!("committed {index}: voters {:?} of {:?}", config.voters, config.nodes.keys()));
                (self.list, self.list_at) = (config.clone(), index);
            }
            Payload::Blank => {}
        }
        self.committed.push(item);
        self.states.push(state);
    }

    /// Requests votes for the host. `forced` means that the current leader transfers its
    /// leadership.
    pub fn campaign(&mut self, at: usize, forced: bool) {
        let Some(mut part) = self.hosts[at].part.take() else { return };
        let config = part.config().cloned().unwrap_or_default();
        let (mut term, mut granted) = (part.term, Vec::new());
        for id in config.all_voters().into_iter().filter(|id| *id != part.id) {
            let Some(to) = self.peer(at, id) else { continue };
            let Some(peer) = self.hosts[to].part.as_ref() else { continue };
            term = term.max(peer.term);
            let follows = self.now - peer.heard < LEASE_MS && peer.config().is_some();
            let leads = peer.lead.as_ref().is_some_and(|l| self.now - l.quorum_at < LEASE_MS);
            let longer = (part.last_term(), part.last()) >= (peer.last_term(), peer.last());
            let fits = longer || self.has_planted(Planted::VotesForShortLogs);
            if peer.term <= part.term && fits && (forced || !follows && !leads) {
                granted.push((id, to));
            }
        }
        part.heard = self.now;
        part.patience = self.rng.in_range(1_500, 3_500);
        let mine = (part.id, part.log_no);
        if config.quorum(|v| v == part.id || granted.iter().any(|(id, _)| *id == v)) {
            part.term += 1;
            let has = self.committed.len();
            let complete = part.log.len() >= has && Arc::ptr_eq(&part.log[has - 1], &self.committed[has - 1]);
            part.lead = Some(Lead::new(self.now));
            part.push(Arc::new(Item { term: part.term, payload: Payload::Blank }));
            let (term, id, now) = (part.term, part.id, self.now);
            self.hosts[at].part = Some(part);
            self.trace(|_| format!("{} leads in term {term} as {id}", NAMES[at]));
            self.check_vote_log(mine.0, mine.1);
            for (id, to) in granted {
                let Some(peer) = self.hosts[to].part.as_mut() else { continue };
                (peer.term, peer.lead, peer.heard) = (term, None, now);
                let log_no = peer.log_no;
                self.check_vote_log(id, log_no);
            }
            if *self.led.entry(term).or_insert(id) != id {
                self.breaks("committed", || format!("two lead in term {term}"));
            }
            if !complete {
                self.breaks("committed", || format!("{} leads and lacks what is committed", NAMES[at]));
            }
        } else {
            part.term = term;
            self.hosts[at].part = Some(part);
        }
    }
}
