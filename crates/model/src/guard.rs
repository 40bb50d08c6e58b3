//! Decides whether a re-setup may begin now. The engine asks before a proposal, and the state
//! machine asks again when it applies the entry. So two concurrent proposals cannot exceed a budget
//! together (invariant I7).

use super::{
    Availability, GroupName, GroupSummary, Inventory, Job, JobKind, JobSpec, JobState, Lifecycle, Node, Trigger, Wall,
    Witness, weekday_text,
};
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::fmt;

/// The reason why a requested re-setup waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "code", content = "text")]
pub enum Wait {
    Away,
    Unexamined,
    Lifecycle(String),
    KeyChanged(String),
    Paused,
    Maintenance,
    /// The re-setup waits for a maintenance window, which opens at this time. None if it never
    /// opens.
    Window(Option<Wall>),
    Held(String),
    Moved,
    Breaker(String),
    Budget(String),
    Manager(String),
    Quorum(String),
    Canary(String),
    NoGeneration,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Away => f.write_str("waiting for the node to come back"),
            Wait::Unexamined => f.write_str("waiting for the verdict on its absence"),
            Wait::Lifecycle(word) => write!(f, "the node is {word}"),
            Wait::KeyChanged(fingerprint) => write!(f, "its SSH host key changed to {fingerprint}"),
            Wait::Paused => f.write_str("paused"),
            Wait::Maintenance => f.write_str("in maintenance"),
            Wait::Window(Some(at)) => write!(f, "window opens at {}", weekday_text(*at)),
            Wait::Window(None) => f.write_str("its windows never open"),
            Wait::Held(why) => write!(f, "held: {why}"),
            Wait::Moved => f.write_str("its address changed just now and may change again"),
            Wait::Breaker(why) => write!(f, "breaker open: {why}"),
            Wait::Budget(text) => write!(f, "budget: {text}"),
            Wait::Manager(name) => write!(f, "manager {name} is being set up"),
            Wait::Quorum(text) => write!(f, "quorum: {text}"),
            Wait::Canary(text) => write!(f, "canary: {text}"),
            Wait::NoGeneration => f.write_str("no fleet was applied for this node"),
        }
    }
}

/// Returns the first precondition that is not met, as the error. `at` is the current time.
///
/// An operator's order ignores pause, maintenance and breaker. With `now` it also ignores hold and
/// window. With `force` it ignores that the agent is silent, if the host still answers. An undo
/// ignores hold and window, because they concern provisioning. No order overrides the lifecycle,
/// the host key, the budgets of running work, the quorum and the canary of an ordered rollout.
/// Windows protect nodes in service. They do not delay an order to commission or decommission a
/// node. They do not delay the repair of a node that an earlier attempt left half done either.
pub fn may_open(inventory: &Inventory, node: &Node, spec: &JobSpec, at: Wall) -> Result<(), Wait> {
    FleetView::new(inventory).may_open(node, spec, at)
}

/// One state of the fleet, for many calls of [`FleetView::may_open`]. Values that are equal for all
/// nodes are computed once.
pub struct FleetView<'a> {
    inventory: &'a Inventory,
    busy: OnceCell<Vec<&'a Node>>,
    in_service: OnceCell<usize>,
}

impl<'a> FleetView<'a> {
    /// A view of this state. Nothing is computed yet.
    pub fn new(inventory: &'a Inventory) -> Self {
        Self { inventory, busy: OnceCell::new(), in_service: OnceCell::new() }
    }

    /// Checks whether a requested re-setup may begin, see [`may_open`].
    pub fn may_open(&self, node: &Node, spec: &JobSpec, at: Wall) -> Result<(), Wait> {
        let question = PreconditionInput::new(self, node, spec, at);
        match PRECONDITIONS.iter().find_map(|ask| ask(&question)) {
            Some(wait) => Err(wait),
            None => Ok(()),
        }
    }

    /// Checks whether the next attempt of an open job may begin.
    pub fn may_retry(&self, node: &Node, job: &Job, at: Wall) -> Result<(), Wait> {
        self.may_open(node, &job.spec, at)
    }

    /// All preconditions that are not met, in order.
    pub fn obstacles(&self, node: &Node, spec: &JobSpec, at: Wall) -> Vec<Wait> {
        let question = PreconditionInput::new(self, node, spec, at);
        PRECONDITIONS.iter().filter_map(|ask| ask(&question)).collect()
    }

    /// Whether the breaker of the whole fleet is open. Nothing may then begin without an operator's
    /// order.
    pub fn is_shut(&self) -> bool {
        self.inventory.breaker.as_ref().is_some_and(|b| b.group.is_none())
    }

    /// The nodes with an open attempt.
    fn busy(&self) -> &[&'a Node] {
        let open = |n: &&Node| n.job.and_then(|j| self.inventory.job(j)).is_some_and(|j| j.open_attempt().is_some());
        self.busy.get_or_init(|| self.inventory.nodes.values().map(|n| n.as_ref()).filter(open).collect())
    }

    fn in_service(&self) -> usize {
        *self.in_service.get_or_init(|| self.inventory.nodes.values().filter(|n| n.in_service()).count())
    }
}

struct PreconditionInput<'q, 'a> {
    fleet: &'q FleetView<'a>,
    inventory: &'a Inventory,
    node: &'q Node,
    spec: &'q JobSpec,
    at: Wall,
    automatic: bool,
    group: Option<(&'a GroupName, &'a GroupSummary)>,
}

/// One precondition of a re-setup. The result is None if it is met.
type Precondition = fn(&PreconditionInput) -> Option<Wait>;

/// All preconditions, in the order in which they are checked and reported.
const PRECONDITIONS: [Precondition; 15] = [
    node_is_away,
    absence_unexamined,
    lifecycle,
    key_changed,
    no_generation,
    node_paused,
    maintenance,
    node_held,
    moved_recently,
    window,
    breaker,
    rollout,
    budgets,
    manager,
    quorum,
];

impl<'q, 'a> PreconditionInput<'q, 'a> {
    fn new(fleet: &'q FleetView<'a>, node: &'q Node, spec: &'q JobSpec, at: Wall) -> Self {
        let inventory = fleet.inventory;
        let (automatic, group) = (spec.by.is_none(), inventory.group(node));
        Self { fleet, inventory, node, spec, at, automatic, group }
    }

    /// Whether the operator uses `force`, and the host answers while its agent is silent.
    fn is_forced(&self) -> bool {
        self.spec.force && !self.automatic && self.node.agent_down()
    }

    /// The other nodes with an open attempt.
    fn busy(&self) -> impl Iterator<Item = &'a Node> + use<'_, 'q, 'a> {
        self.fleet.busy().iter().copied().filter(|n| n.id != self.node.id)
    }

    fn of_group(&self, node: &Node) -> bool {
        self.group.is_some_and(|(name, _)| self.inventory.group(node).is_some_and(|(other, _)| name == other))
    }
}

fn node_is_away(q: &PreconditionInput) -> Option<Wait> {
    (q.node.is_away() && !q.is_forced()).then_some(Wait::Away)
}

fn absence_unexamined(q: &PreconditionInput) -> Option<Wait> {
    (q.node.absence.is_some() && !q.node.is_away() && !q.spec.now).then_some(Wait::Unexamined)
}

fn lifecycle(q: &PreconditionInput) -> Option<Wait> {
    if q.node.removing.is_some() {
        return Some(Wait::Lifecycle("being removed".to_owned()));
    }
    let stands = match q.node.lifecycle {
        Lifecycle::Decommissioned => true,
        Lifecycle::Decommissioning => !q.spec.decommission,
        _ => false,
    };
    stands.then(|| Wait::Lifecycle(q.node.lifecycle.as_str().to_owned()))
}

fn key_changed(q: &PreconditionInput) -> Option<Wait> {
    q.node.host_key.changed.clone().map(Wait::KeyChanged)
}

fn no_generation(q: &PreconditionInput) -> Option<Wait> {
    q.group.is_none().then_some(Wait::NoGeneration)
}

fn node_paused(q: &PreconditionInput) -> Option<Wait> {
    (q.automatic && q.node.availability == Availability::Pause).then_some(Wait::Paused)
}

fn maintenance(q: &PreconditionInput) -> Option<Wait> {
    (q.automatic && !q.spec.now && q.node.in_maintenance(q.at)).then_some(Wait::Maintenance)
}

fn node_held(q: &PreconditionInput) -> Option<Wait> {
    let hold = q.node.active_hold(q.at).filter(|_| !q.spec.now && q.spec.undo.is_none());
    hold.map(|hold| Wait::Held(hold.why.clone()))
}

/// Checks an automatic re-setup because of a changed address. It waits until the address is stable,
/// because the address may change again.
fn moved_recently(q: &PreconditionInput) -> Option<Wait> {
    let own = q.inventory.own_address_change(q.node).filter(|_| q.automatic && !q.spec.now && !q.node.half_done())?;
    let only = q.spec.reasons.iter().all(|r| r.by == Witness::Desired);
    (only && q.at.ms_since(own.since) < q.inventory.limits().settle_ms).then_some(Wait::Moved)
}

/// Checks the maintenance windows. They protect nodes in service. They do not delay the repair of a
/// node that an earlier attempt left half done.
fn window(q: &PreconditionInput) -> Option<Wait> {
    let (_, group) = q.group.filter(|_| !q.spec.now && q.spec.undo.is_none() && !q.node.half_done())?;
    let takes_in_or_out = !q.automatic && (q.spec.decommission || !q.node.serves());
    (!takes_in_or_out && !group.windows.is_open(q.at)).then(|| Wait::Window(group.windows.next_opening(q.at)))
}

fn breaker(q: &PreconditionInput) -> Option<Wait> {
    let breaker = q.inventory.breaker.as_ref().filter(|_| q.automatic)?;
    let about = breaker.group.as_ref().is_none_or(|group| q.group.is_some_and(|(name, _)| name == group));
    about.then(|| Wait::Breaker(breaker.why.clone()))
}

fn rollout(q: &PreconditionInput) -> Option<Wait> {
    let applies = (q.automatic || q.spec.rollout) && q.spec.trigger == Trigger::Apply;
    let (name, _) = q.group.filter(|_| applies || joins_rollout(q))?;
    canary(q, name).err()
}

/// Whether the node joins the rollout of a newer generation. Every node that returns after the
/// generation was applied joins, whatever the reason of its absence (docs/design/design.md, section
/// 8). A node that only changed its address is set up without a canary. So is a node that an
/// earlier attempt left half done.
fn joins_rollout(q: &PreconditionInput) -> bool {
    let (inventory, node) = (q.inventory, q.node);
    let renewed = q.automatic && q.spec.undo.is_none() && !q.spec.decommission && q.spec.services.is_empty();
    renewed && inventory.is_outdated(node) && !inventory.only_addresses_changed(node) && !node.half_done()
}

fn budgets(q: &PreconditionInput) -> Option<Wait> {
    let (name, group) = q.group?;
    let fleet_max = (q.fleet.in_service() as u32 * q.inventory.limits().fleet_percent / 100).max(1);
    let busy = q.busy().count() as u32;
    if busy >= fleet_max {
        return Some(Wait::Budget(format!("{busy} of {fleet_max} re-setups of the fleet are running")));
    }
    let peers = q.busy().filter(|n| q.of_group(n)).count() as u32;
    let group_max = group.parallel.max(1);
    let full = peers >= group_max;
    full.then(|| Wait::Budget(format!("{peers} of {group_max} re-setups of group {name} are running")))
}

fn manager(q: &PreconditionInput) -> Option<Wait> {
    if !q.node.manages() {
        return None;
    }
    q.busy().find(|n| n.manages()).map(|other| Wait::Manager(other.name().to_string()))
}

/// Checks the quorum of the group. The re-setup of a node that is not in service cannot break the
/// quorum.
fn quorum(q: &PreconditionInput) -> Option<Wait> {
    let (name, _) = q.group.filter(|(_, group)| group.quorum && q.node.serves())?;
    let members: Vec<&Node> =
        q.inventory.nodes.values().map(|n| n.as_ref()).filter(|n| q.of_group(n) && n.serves()).collect();
    // Two nodes that earlier attempts left half done must not wait for each other. It is unknown
    // which of them still serves.
    let up = |n: &Node| !n.is_away() && q.busy().all(|busy| busy.id != n.id) && (q.node.half_done() || !n.half_done());
    let others = members.iter().filter(|n| n.id != q.node.id && up(n)).count();
    let majority = members.len() / 2 + 1;
    (members.len() > 1 && others < majority)
        .then(|| Wait::Quorum(format!("{others} other members of group {name} are up, {majority} must stay")))
}

/// Checks the canary. A rollout waits for the first node of the group, and stops if a node of the
/// group is held. If the first node goes away, another node becomes the canary.
fn canary(q: &PreconditionInput, group: &GroupName) -> Result<(), Wait> {
    let (inventory, node) = (q.inventory, q.node);
    let absent = |other: &Node, job: &Job| other.is_away() && !(job.spec.force && other.agent_down());
    if let Some(held) = inventory.held_in_rollout(group).find(|n| n.id != node.id) {
        return Err(Wait::Canary(format!("{} is held with this generation", held.name())));
    }
    // If two jobs are both between attempts, the older one continues. So jobs never wait for each
    // other.
    let earlier = |job: &Job| job.open_attempt().is_some() || node.job.is_none_or(|own| job.id < own);
    let mut first = None;
    let rollouts = inventory.jobs.values().filter(|j| j.generation == inventory.current && j.kind() != JobKind::Undo);
    for job in rollouts.filter(|j| j.node != node.id) {
        let Some(other) = inventory.node(job.node) else { continue };
        if inventory.group(other).is_none_or(|(name, _)| name != group) {
            continue;
        }
        match job.state {
            JobState::Open if earlier(job) && !absent(other, job) => first = Some(other.name()),
            JobState::Open | JobState::Held | JobState::Done | JobState::Cancelled => {}
        }
    }
    let desired = |n: &Node| n.setup.baseline.as_ref().map(|b| b.desired) == inventory.desired_hash(n);
    let members = inventory.nodes.values().filter(|n| inventory.group(n).is_some_and(|(name, _)| name == group));
    match first {
        Some(first) if !members.into_iter().any(|n| desired(n)) => Err(Wait::Canary(format!("{first} comes first"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    const HOUR: u64 = 3_600_000;

    /// A fleet with the nodes w1, w2 and w3 (1 to 3) of group web, adopted before the current
    /// generation.
    fn outdated_fleet() -> Inventory {
        let mut inventory = Inventory::default();
        for name in ["w1", "w2", "w3"] {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            assert_ne!(write(&mut inventory, Command::Accept { spec, role: ClusterRole::Worker }), Applied::Done);
        }
        generation(&mut inventory, "one");
        for id in 1..=3 {
            let baseline = baseline("one");
            assert_eq!(write(&mut inventory, Command::Adopt { node: NodeId(id), baseline, basis: 0 }), Applied::Done);
        }
        generation(&mut inventory, "two");
        inventory
    }

    fn write(inventory: &mut Inventory, command: Command) -> Applied {
        let index = inventory.applied + 1;
        let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "admin".to_owned(), command });
        assert_eq!(applied.refusal(), None);
        applied
    }

    fn generation(inventory: &mut Inventory, desired: &str) {
        let mut summary = FleetSummary::default();
        for name in ["w1", "w2", "w3"] {
            let host = HostSummary { group: "web".into(), desired: Sha256::digest(desired.as_bytes()) };
            summary.hosts.insert(name.into(), host);
        }
        summary.groups.insert("web".into(), GroupSummary { parallel: 3, ..GroupSummary::default() });
        summary.limits.fleet_percent = 100;
        write(inventory, Command::Generation { blob: Sha256::digest(desired.as_bytes()), summary: Box::new(summary) });
    }

    fn baseline(desired: &str) -> Baseline {
        Baseline {
            generation: GenerationSeq(1),
            desired: Sha256::digest(desired.as_bytes()),
            root: Sha256::default(),
            blob: Sha256::default(),
            adopted: true,
            at: Wall(1),
        }
    }

    fn open(inventory: &mut Inventory, id: u64, spec: &JobSpec) -> (JobId, AttemptId) {
        let node = NodeId(id);
        write(inventory, Command::RequestResetup { node, want: Box::new(spec.clone().into_request(Wall(1))) });
        match write(inventory, Command::OpenJob { node, runner: "m1".into() }) {
            Applied::Job(job, attempt) => (job, attempt),
            other => panic!("{other:?}"),
        }
    }

    fn lose_attempt(inventory: &mut Inventory, (job, attempt): (JobId, AttemptId)) {
        let class = FailureClass::Unreachable;
        let failure = Failure { class, phase: Phase::Fence, rc: None, message: "lost".to_owned(), tail: Vec::new() };
        let outcome = AttemptOutcome::Failed(failure);
        write(inventory, Command::CloseAttempt { job, attempt, outcome, baseline: None, marks: None });
    }

    fn set_away(inventory: &mut Inventory, id: u64) {
        let (node, no) = (NodeId(id), AbsenceNo(1));
        let (last_seen, seen_by, gone) = (Wall(1), vec!["m1".into()], AbsenceKind::Away);
        write(inventory, Command::AbsenceOpened { node, no, last_seen, seen_by, gone, planned: false, returned: None });
    }

    fn check_may_open(inventory: &Inventory, id: u64, spec: &JobSpec) -> Result<(), Wait> {
        may_open(inventory, inventory.node(NodeId(id)).expect("a node"), spec, Wall(HOUR))
    }

    fn blocked_by_canary(name: &str) -> Result<(), Wait> {
        Err(Wait::Canary(format!("{name} comes first")))
    }

    #[test]
    fn an_ordered_rollout_waits_for_its_canary_and_stops_if_the_canary_is_held() {
        let mut inventory = outdated_fleet();
        let order = JobSpec { by: Some("admin".to_owned()), ..JobSpec::new(Trigger::Apply) };
        let rollout = JobSpec { rollout: true, ..order.clone() };
        assert_eq!(check_may_open(&inventory, 1, &rollout), Ok(()), "any of them may be the first");
        let (job, attempt) = open(&mut inventory, 1, &rollout);
        assert_eq!(check_may_open(&inventory, 2, &rollout), blocked_by_canary("w1"));
        assert_eq!(check_may_open(&inventory, 2, &order), Ok(()), "one alone, or without a canary");
        let mut done = inventory.clone();
        for phase in [Phase::Cleanup, Phase::Cleaned, Phase::Provision, Phase::Verify] {
            write(&mut done, Command::Phase { job, attempt, phase });
        }
        let (outcome, baseline) = (AttemptOutcome::Done, Some(baseline("two")));
        write(&mut done, Command::CloseAttempt { job, attempt, outcome, baseline, marks: None });
        assert_eq!(check_may_open(&done, 2, &rollout), Ok(()));
        lose_attempt(&mut inventory, (job, attempt));
        write(&mut inventory, Command::HoldJob { job, why: "enough".to_owned() });
        let held = Err(Wait::Canary("w1 is held with this generation".to_owned()));
        assert_eq!(check_may_open(&inventory, 2, &rollout), held);
        assert_eq!(check_may_open(&inventory, 2, &order), Ok(()));
        let again = inventory.job(job).expect("on record").to_request(Wall(9));
        assert!(again.spec.rollout, "resumed, it is part of the roll-out still");
    }

    #[test]
    fn a_node_that_returns_to_a_newer_generation_joins_its_rollout() {
        let mut inventory = outdated_fleet();
        let back = JobSpec::new(Trigger::Network);
        assert_eq!(check_may_open(&inventory, 2, &back), Ok(()), "it is the first itself");
        let (job, attempt) = open(&mut inventory, 1, &JobSpec::new(Trigger::Apply));
        assert_eq!(check_may_open(&inventory, 2, &back), blocked_by_canary("w1"));
        let part = JobSpec { services: vec!["etcd".into()], ..back.clone() };
        assert_eq!(check_may_open(&inventory, 2, &part), Ok(()), "a partial repair uses the node's own generation");
        let order = JobSpec { by: Some("admin".to_owned()), ..back.clone() };
        assert_eq!(check_may_open(&inventory, 2, &order), Ok(()));
        lose_attempt(&mut inventory, (job, attempt));
        write(&mut inventory, Command::HoldJob { job, why: "enough".to_owned() });
        let held = Err(Wait::Canary("w1 is held with this generation".to_owned()));
        assert_eq!(check_may_open(&inventory, 2, &back), held);
        // A node that already has this generation does not join the rollout.
        let baseline = baseline("two");
        write(&mut inventory, Command::Adopt { node: NodeId(3), baseline, basis: 0 });
        assert_eq!(check_may_open(&inventory, 3, &back), Ok(()));
    }

    #[test]
    fn a_canary_that_goes_away_is_replaced() {
        let (mut inventory, want) = (outdated_fleet(), JobSpec::new(Trigger::Apply));
        let first = open(&mut inventory, 1, &want);
        assert_eq!(check_may_open(&inventory, 2, &want), blocked_by_canary("w1"));
        lose_attempt(&mut inventory, first);
        assert_eq!(check_may_open(&inventory, 2, &want), blocked_by_canary("w1"), "it is tried again");
        set_away(&mut inventory, 1);
        assert_eq!(check_may_open(&inventory, 2, &want), Ok(()));
        let second = open(&mut inventory, 2, &want);
        assert_eq!(check_may_open(&inventory, 3, &want), blocked_by_canary("w2"));
        // The first node is back, and waits while the second one is being set up. If no attempt is
        // open, the older job continues.
        let no = AbsenceNo(1);
        write(&mut inventory, Command::Returned { node: NodeId(1), no, after: HostFingerprint::default() });
        let retry = |inventory: &Inventory, id: u64, job: JobId| {
            let (node, job) = (inventory.node(NodeId(id)).expect("a node"), inventory.job(job).expect("a job"));
            let fleet = FleetView::new(inventory);
            canary(&PreconditionInput::new(&fleet, node, &job.spec, Wall(HOUR)), &"web".into())
        };
        assert_eq!(retry(&inventory, 1, first.0), blocked_by_canary("w2"));
        lose_attempt(&mut inventory, second);
        assert_eq!(retry(&inventory, 1, first.0), Ok(()));
        assert_eq!(retry(&inventory, 2, second.0), blocked_by_canary("w1"));
    }
}
