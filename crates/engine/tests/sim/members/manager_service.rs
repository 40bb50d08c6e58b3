//! A manager service in the simulation of membership: a log that contains member lists, and a
//! leader's knowledge of the other members.

use remoor_engine::RoleManager;
use remoor_model::{InventoryEntry, RaftId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A member list. During a change, the list has two sets of voters, and a majority of each set must
/// agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    pub voters: Vec<BTreeSet<RaftId>>,
    /// Addresses of all members. Members in no voter set are learners.
    pub nodes: BTreeMap<RaftId, String>,
}

impl Config {
    pub fn all_voters(&self) -> BTreeSet<RaftId> {
        self.voters.iter().flatten().copied().collect()
    }

    pub fn votes(&self, id: RaftId) -> bool {
        self.voters.iter().any(|set| set.contains(&id))
    }

    pub fn learners(&self) -> impl Iterator<Item = RaftId> {
        self.nodes.keys().copied().filter(|id| !self.votes(*id))
    }

    pub fn is_joint(&self) -> bool {
        self.voters.len() > 1
    }

    pub fn target(&self) -> BTreeSet<RaftId> {
        self.voters.last().cloned().unwrap_or_default()
    }

    /// Whether the members for which `has` is true are a majority of each set of voters. A joint
    /// list has two sets.
    pub fn quorum(&self, has: impl Fn(RaftId) -> bool) -> bool {
        !self.voters.is_empty()
            && self.voters.iter().all(|set| set.iter().filter(|id| has(**id)).count() * 2 > set.len())
    }

    /// The next member list on the way to these voters. As in openraft, a joint list comes first.
    pub fn next_towards(&self, goal: &BTreeSet<RaftId>) -> Config {
        let last = self.target();
        let voters = if self.voters.contains(goal) { vec![goal.clone()] } else { vec![last, goal.clone()] };
        let mut next = Config { voters, nodes: self.nodes.clone() };
        let before = self.all_voters();
        let gone: Vec<RaftId> = before.into_iter().filter(|id| !next.votes(*id)).collect();
        gone.iter().for_each(|id| drop(next.nodes.remove(id)));
        next
    }

    pub fn is_valid(&self) -> bool {
        self.voters.iter().flatten().all(|id| self.nodes.contains_key(id))
    }
}

#[derive(Debug)]
pub enum Payload {
    Blank,
    Members(Config),
    Command(Box<InventoryEntry>),
}

#[derive(Debug)]
pub struct Item {
    pub term: u64,
    pub payload: Payload,
}

pub type Log = Vec<Arc<Item>>;

#[derive(Clone)]
pub struct SimManagerService {
    pub id: RaftId,
    /// The number of the host's log. If the log is lost, the new empty log has another number.
    pub log_no: u64,
    pub log: Log,
    /// Log indexes of the entries that contain a member list.
    lists: Vec<u64>,
    pub commit: u64,
    pub term: u64,
    /// Time of the last message of a leader. `patience` is the maximum wait for the next message.
    pub heard: u64,
    pub patience: u64,
    pub lead: Option<Lead>,
}

impl SimManagerService {
    pub fn empty(id: RaftId, log_no: u64, now: u64) -> Self {
        let (log, lists) = (Vec::new(), Vec::new());
        Self { id, log_no, log, lists, commit: 0, term: 0, heard: now, patience: 2_000, lead: None }
    }

    pub fn last(&self) -> u64 {
        self.log.len() as u64
    }

    pub fn last_term(&self) -> u64 {
        self.log.last().map_or(0, |item| item.term)
    }

    pub fn push(&mut self, item: Arc<Item>) -> u64 {
        let index = self.last() + 1;
        if matches!(item.payload, Payload::Members(_)) {
            self.lists.push(index);
        }
        self.log.push(item);
        index
    }

    pub fn extend(&mut self, items: &[Arc<Item>]) {
        for item in items {
            self.push(item.clone());
        }
    }

    /// Removes all entries after the first `len`.
    pub fn truncate(&mut self, len: u64) {
        self.log.truncate(len as usize);
        self.lists.retain(|at| *at <= len);
    }

    fn list_at(&self, index: u64) -> Option<&Config> {
        match &self.log.get(index as usize - 1)?.payload {
            Payload::Members(config) => Some(config),
            _ => None,
        }
    }

    /// The member list in force. It is the last one in the log, even if it is not committed.
    pub fn config(&self) -> Option<&Config> {
        self.lists.last().and_then(|at| self.list_at(*at))
    }

    /// All member lists that may be in force: the last committed one and all later ones.
    pub fn configs(&self) -> impl Iterator<Item = &Config> {
        let first = self.lists.iter().rposition(|at| *at <= self.commit).unwrap_or(0);
        self.lists[first..].iter().filter_map(|at| self.list_at(*at))
    }

    pub fn list_index(&self) -> u64 {
        self.lists.last().copied().unwrap_or(0)
    }

    /// The number of member lists in the log that are not committed.
    pub fn lists_open(&self) -> usize {
        self.lists.iter().filter(|at| **at > self.commit).count()
    }

    /// The length of the common prefix of two logs: the number of equal entries before the first
    /// different entry.
    pub fn common_prefix(&self, other: &SimManagerService) -> u64 {
        let mut at = self.log.len().min(other.log.len());
        while at > 0 && !Arc::ptr_eq(&self.log[at - 1], &other.log[at - 1]) {
            at -= 1;
        }
        at as u64
    }
}

/// The state of a leader: its knowledge of the other members, and its role manager.
#[derive(Clone)]
pub struct Lead {
    pub matched: BTreeMap<RaftId, u64>,
    pub acked: BTreeMap<RaftId, u64>,
    /// The last time at which a majority of the voters answered this leader.
    pub quorum_at: u64,
    /// For each learner that is reachable and lacks few entries: the time since which both are
    /// true. This is calculated independently of the role manager.
    pub close: BTreeMap<RaftId, u64>,
    pub roles: RoleManager,
    /// The number of the role manager's current step. Answers to steps with another number are
    /// ignored.
    pub ticket: u64,
    /// The members that this leader asked to take over the leadership, each with the time of the
    /// request.
    pub asked: BTreeMap<RaftId, u64>,
}

impl Lead {
    pub fn new(now: u64) -> Self {
        Self {
            matched: BTreeMap::new(),
            acked: BTreeMap::new(),
            quorum_at: now,
            close: BTreeMap::new(),
            roles: RoleManager::default(),
            ticket: 0,
            asked: BTreeMap::new(),
        }
    }
}
