//! Determines which nodes this manager reaches: it connects to the SSH port and reads the banner,
//! without a login. There are two occasions: a request of the leader, and unanswered pings to a
//! node that is in gossip.
//!
//! ```text
//!  pings unanswered ─> probe_node() ─┬─ on the leader ──────────────> Event::Reach ─> engine
//!                                    └─ else POST /manager/v1/reach ──────┘  ↑
//!  Action::Reach ─> GET /manager/v1/reach of each manager ───────────────────┘
//! ```

use super::{ManagerContext, examine, wall};
use remoor_engine::Reachability;
use remoor_exec::ssh::{self, Probe};
use remoor_model::{NodeId, NodeName, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Maximum number of connections to SSH ports that this manager tries at the same time.
const PROBES_MAX: usize = 16;
/// Maximum number of examinations that this manager performs for other managers at the same time.
/// It equals the number that one manager requests at the same time.
const REMOTE_EXAMINATIONS_MAX: usize = 16;
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const ASK_TIMEOUT: Duration = Duration::from_secs(8);
/// Time for which the result of a probe is reused.
const REUSE_FOR: Duration = Duration::from_secs(2);
/// Maximum age of a probe's result that is still valid, and passed to the engine of a new
/// leadership.
const VALID_FOR: Duration = Duration::from_secs(60);
/// Maximum number of reports from other managers that wait for the engine.
const REPORTS_MAX: usize = 4_096;

/// The results of this manager's probes, and the reports of other managers that were not passed to
/// the engine yet.
pub struct ReachabilityReports {
    own: Mutex<BTreeMap<NodeId, (Reachability, Instant)>>,
    /// The reports of other managers whether they reach a node, by node and reporting manager.
    reports: Mutex<BTreeMap<(NodeId, NodeId), Reachability>>,
    places: Semaphore,
    /// Slots for examinations that other managers request. They are separate from the slots for
    /// probes, because probes would delay these examinations.
    pub(super) remote_examinations: Semaphore,
}

impl Default for ReachabilityReports {
    fn default() -> Self {
        Self {
            own: Mutex::default(),
            reports: Mutex::default(),
            places: Semaphore::new(PROBES_MAX),
            remote_examinations: Semaphore::new(REMOTE_EXAMINATIONS_MAX),
        }
    }
}

impl ReachabilityReports {
    fn own_results(&self) -> MutexGuard<'_, BTreeMap<NodeId, (Reachability, Instant)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the result of a probe. An Err in `found` contains the reason why the node is not
    /// reached. The first of several consecutive failures sets `since`.
    fn keep(&self, node: NodeId, found: Result<(), String>) -> Reachability {
        let mut own = self.own_results();
        let line = match (found, own.get(&node)) {
            (Ok(()), _) => Reachability::Reachable,
            (Err(why), Some((Reachability::Unreachable { since, .. }, _))) => {
                Reachability::Unreachable { why, since: *since }
            }
            (Err(why), _) => Reachability::Unreachable { why, since: wall() },
        };
        own.insert(node, (line.clone(), Instant::now()));
        line
    }

    /// The reason why this manager does not reach the node. None if it reaches the node, or has no
    /// recent result.
    pub fn unreachable_reason(&self, node: NodeId) -> Option<String> {
        match self.own_results().get(&node) {
            Some((Reachability::Unreachable { why, .. }, at)) if at.elapsed() < VALID_FOR => Some(why.clone()),
            _ => None,
        }
    }

    /// The nodes that this manager does not reach according to its recent probes.
    pub fn all_unreachable(&self) -> Vec<(NodeId, Reachability)> {
        let own = self.own_results();
        let late = own.iter().filter(|(_, (line, at))| *line != Reachability::Reachable && at.elapsed() < VALID_FOR);
        late.map(|(node, (line, _))| (*node, line.clone())).collect()
    }

    /// Stores another manager's report for the engine. If too many reports wait, the new report is
    /// dropped; the other manager sends its report again.
    pub fn add_report(&self, node: NodeId, by: NodeId, line: Reachability) {
        let mut heard = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() < REPORTS_MAX || heard.contains_key(&(node, by)) {
            heard.insert((node, by), line);
        }
    }

    pub fn take(&self) -> BTreeMap<(NodeId, NodeId), Reachability> {
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Checks whether this manager reaches the node's SSH port.
pub async fn probe_node(shared: &Arc<ManagerContext>, node: NodeId) -> Reachability {
    let _place = shared.observed.reaches.places.acquire().await;
    let known = shared
        .observed
        .reaches
        .own_results()
        .get(&node)
        .filter(|(_, at)| at.elapsed() < REUSE_FOR)
        .map(|(line, _)| line.clone());
    match known {
        Some(line) => line,
        None => shared.observed.reaches.keep(node, find(shared, node).await),
    }
}

async fn find(shared: &Arc<ManagerContext>, node: NodeId) -> Result<(), String> {
    let target = examine::target(shared, node).await.map_err(|e| e.to_string())?;
    if target.uses_another_route() {
        return Ok(()); // only a login shows whether the node is reached
    }
    match ssh::probe(&target.host, target.port, PROBE_TIMEOUT).await {
        Probe::Answers { .. } => Ok(()),
        Probe::Refused => Err("connection refused".to_owned()),
        Probe::Silent => Err("no SSH server answers".to_owned()),
        Probe::Unreachable { why } => Err(why),
    }
}

/// Asks a manager, possibly this one, whether it reaches the node. None if the manager did not
/// answer.
pub async fn ask(shared: &Arc<ManagerContext>, manager: NodeId, node: NodeId) -> Option<Reachability> {
    if manager == shared.identity.node {
        return Some(probe_node(shared, node).await);
    }
    let addr = address(shared, manager)?;
    let answer = shared.peers.client(&addr).with_timeout(ASK_TIMEOUT).get(&format!("/manager/v1/reach/{node}")).await;
    answer
        .map_err(|error| tracing::debug!(%manager, %error, "a manager does not answer whether it reaches the node"))
        .ok()
}

/// Asks all voters at once whether they reach the node. The answers are also passed to the engine.
pub async fn ask_all(shared: &Arc<ManagerContext>, node: NodeId) -> BTreeMap<NodeId, Reachability> {
    let voters: Vec<_> = shared.raft.status().borrow().voters.keys().copied().collect();
    let inventory = shared.inventory();
    let managers = inventory.nodes.values().filter(|n| n.raft.is_some_and(|id| voters.contains(&id)) && n.id != node);
    let asked = managers.map(|n| async move { Some((n.id, ask(shared, n.id, node).await?)) });
    let lines: BTreeMap<NodeId, Reachability> =
        futures_util::future::join_all(asked).await.into_iter().flatten().collect();
    lines.iter().for_each(|(by, line)| shared.observed.reaches.add_report(node, *by, line.clone()));
    lines
}

/// The API address of a manager. None if it is not a voter.
pub(super) fn address(shared: &ManagerContext, manager: NodeId) -> Option<String> {
    let raft = shared.inventory().node(manager)?.raft?;
    shared.raft.status().borrow().voters.get(&raft).cloned()
}

/// Detects members that do not answer this manager's pings.
#[derive(Default)]
pub struct PingMonitor {
    counted: BTreeMap<NodeName, u64>,
    missed: BTreeSet<NodeName>,
    looked: BTreeMap<NodeName, Instant>,
}

impl PingMonitor {
    /// Probes the members that did not answer pings since the last call, each at most once per
    /// `every`.
    pub fn tick(&mut self, shared: &Arc<ManagerContext>, members: &BTreeMap<NodeName, Report>, leads: bool) {
        let count = |name: &NodeName| (*name != shared.identity.name).then(|| shared.observed.unanswered_pings(name));
        let every = Duration::from_millis(shared.inventory().limits().probe_ms);
        for name in self.due(members, count, every) {
            let Some(node) = shared.inventory().by_name(name.as_str()).map(|n| n.id) else { continue };
            let shared = shared.clone();
            tokio::spawn(async move {
                let line = probe_node(&shared, node).await;
                match line {
                    line if leads => shared.observed.reaches.add_report(node, shared.identity.node, line),
                    Reachability::Reachable => {}
                    line => tell_leader(&shared, node, line).await,
                }
            });
        }
    }

    fn due(
        &mut self,
        members: &BTreeMap<NodeName, Report>,
        count: impl Fn(&NodeName) -> Option<u64>,
        every: Duration,
    ) -> Vec<NodeName> {
        self.counted.retain(|name, _| members.contains_key(name));
        self.missed.retain(|name| members.contains_key(name));
        self.looked.retain(|_, at| at.elapsed() < every);
        for name in members.keys() {
            let Some(now) = count(name) else { continue };
            if self.counted.insert(name.clone(), now).is_some_and(|before| now > before) {
                self.missed.insert(name.clone());
            }
        }
        let due: Vec<NodeName> = self.missed.iter().filter(|n| !self.looked.contains_key(*n)).cloned().collect();
        for name in &due {
            self.missed.remove(name);
            self.looked.insert(name.clone(), Instant::now());
        }
        due
    }
}

/// The API address of the leader. None if this manager leads, or knows no leader.
pub(super) fn leader_address(shared: &ManagerContext) -> Option<String> {
    let status = shared.raft.status().borrow().clone();
    status.leader_address().filter(|(id, _)| *id != status.id).map(|(_, addr)| addr.clone())
}

async fn tell_leader(shared: &Arc<ManagerContext>, node: NodeId, line: Reachability) {
    let Some(addr) = leader_address(shared) else { return };
    let path = format!("/manager/v1/reach/{node}");
    let told: Result<(), _> = shared.peers.client(&addr).with_timeout(ASK_TIMEOUT).post(&path, &line).await;
    if let Err(error) = told {
        tracing::debug!(%node, %error, "the leader could not be told that the node is unreachable"); // the node is probed again later
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn unreachable_since_is_the_time_of_the_first_failure() {
        let reaches = ReachabilityReports::default();
        let node = NodeId(4);
        let Reachability::Unreachable { since: first, .. } = reaches.keep(node, Err("timed out".to_owned())) else {
            panic!("dead")
        };
        std::thread::sleep(Duration::from_millis(5));
        let again = reaches.keep(node, Err("refused".to_owned()));
        assert_eq!(again, Reachability::Unreachable { why: "refused".to_owned(), since: first });
        assert_eq!(
            (reaches.unreachable_reason(node).as_deref(), reaches.all_unreachable().len()),
            (Some("refused"), 1)
        );
        assert_eq!(reaches.keep(node, Ok(())), Reachability::Reachable);
        assert!(reaches.unreachable_reason(node).is_none() && reaches.all_unreachable().is_empty());
        std::thread::sleep(Duration::from_millis(5));
        let Reachability::Unreachable { since, .. } = reaches.keep(node, Err("timed out".to_owned())) else {
            panic!("dead")
        };
        assert!(since > first);
    }

    #[test]
    fn only_the_latest_report_of_each_manager_is_kept_up_to_a_limit() {
        let reaches = ReachabilityReports::default();
        reaches.add_report(NodeId(4), NodeId(1), Reachability::Unreachable { why: String::new(), since: wall() });
        reaches.add_report(NodeId(4), NodeId(1), Reachability::Reachable);
        assert_eq!(reaches.take(), [((NodeId(4), NodeId(1)), Reachability::Reachable)].into());
        for n in 0..2 * REPORTS_MAX as u64 {
            reaches.add_report(NodeId(n), NodeId(1), Reachability::Reachable);
        }
        assert_eq!(reaches.take().len(), REPORTS_MAX);
        assert!(reaches.take().is_empty());
    }

    #[test]
    fn only_members_with_missed_pings_are_probed_and_not_too_often() {
        let members: BTreeMap<NodeName, Report> =
            ["m1", "w1", "w2"].map(|name| (NodeName::from(name), Report::default())).into();
        let pings = Cell::new(3);
        let count = |name: &NodeName| match name.as_str() {
            "m1" => None,
            "w1" => Some(pings.get()),
            _ => Some(0),
        };
        let mut scout = PingMonitor::default();
        let every = Duration::from_secs(3_600);
        assert!(scout.due(&members, count, every).is_empty(), "the first count is the baseline");
        pings.set(4);
        assert_eq!(scout.due(&members, count, every), ["w1".into()]);
        pings.set(5);
        assert!(scout.due(&members, count, every).is_empty());
        assert_eq!(scout.due(&members, count, Duration::ZERO), ["w1".into()], "later it is");
        assert!(scout.due(&BTreeMap::new(), count, Duration::ZERO).is_empty());
    }
}
