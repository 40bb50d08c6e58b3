//! The world: hosts, network, managers with their log, and the queue of future events. The world
//! has one thread, one clock and one seed. The engine and the inventory are the real ones;
//! everything else is a model.

use super::host::{Host, MONITORED, Run, gossip, services};
use super::laws::{Fact, Laws};
use super::options::Options;
use super::planted::{self, Planted};
use super::rng::Rng;
use super::search::Outcome;
use remoor_engine::{
    self as engine, About, Action, EngineEvent, ExamOutcome, ExaminationTicket, ManagerEngine, NodeCondition,
    PhaseResult, Purpose,
};
use remoor_model::*;
use std::collections::{BTreeMap, BTreeSet};

/// The wall clock at the beginning of every run.
pub const EPOCH: u64 = 1_000_000_000;

/// One leadership of a manager. A deposed leader does not know at first that it is deposed. Until
/// then it acts on the entries that were committed before.
pub struct Leader {
    pub engine: ManagerEngine,
    pub host: usize,
    pub term: u64,
    pub view: Option<Inventory>,
    pub until: u64,
}

#[derive(Debug, Clone)]
pub enum Due {
    /// The event of every second. It advances the managers' clocks, gossip, elections and faults.
    Second,
    Propose {
        term: Option<u64>,
        about: About,
        entry: Box<InventoryEntry>,
    },
    Tell {
        term: u64,
        event: Box<EngineEvent>,
    },
    Probe {
        term: u64,
        node: NodeId,
    },
    Greet {
        term: u64,
        node: NodeId,
    },
    Reach {
        term: u64,
        node: NodeId,
        managers: Vec<NodeId>,
    },
    Examine {
        term: u64,
        node: NodeId,
        ticket: ExaminationTicket,
        from: Option<NodeId>,
    },
    Order {
        term: u64,
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        node: NodeId,
    },
    Stop {
        term: u64,
        attempt: AttemptId,
        now: bool,
    },
    /// Complete the first half of a run of the executor, or complete the second half and end the
    /// run.
    Step {
        host: usize,
        serial: u64,
        last: bool,
    },
    HandOver {
        term: u64,
        to: Option<usize>,
    },
    PowerOn {
        host: usize,
    },
    AgentOn {
        host: usize,
    },
    Heal {
        host: usize,
    },
    SshOn {
        host: usize,
    },
    Roads {
        host: usize,
    },
    ChecksOn {
        host: usize,
    },
}

pub struct World {
    pub options: Options,
    pub rng: Rng,
    pub now: u64,
    serial: u64,
    queue: BTreeMap<(u64, u64), Due>,
    pub hosts: Vec<Host>,
    /// The state after all committed entries. Every manager that is up to date has this state.
    pub state: Inventory,
    pub leader: Option<Leader>,
    pub deposed: Vec<Leader>,
    pub term: u64,
    pub election_at: Option<u64>,
    pub skew: [u64; 3],
    pub blobs: BTreeMap<Sha256, NodeDigest>,
    pub blobs_missing: bool,
    pub version: u64,
    pub calm: bool,
    /// Notices to operators, by key.
    pub notices: BTreeSet<String>,
    pub laws: Laws,
    pub outcome: Outcome,
}

pub const HOSTS: [(&str, &str); 9] = [
    ("m1", "master"),
    ("m2", "master"),
    ("m3", "master"),
    ("w1", "worker"),
    ("w2", "worker"),
    ("w3", "worker"),
    ("w4", "worker"),
    ("x1", "edge"),
    ("x2", "edge"),
];

impl World {
    /// A world with nine nodes in three groups; three of them are managers. All nodes are adopted
    /// except the last, which was only accepted.
    pub fn new(options: Options) -> Self {
        let mut hosts: Vec<Host> =
            HOSTS.iter().map(|(name, group)| Host::new(name, group, desired_hash(group, 1))).collect();
        (1..).zip(&mut hosts).for_each(|(home, host)| host.place = home);
        hosts.iter_mut().for_each(|host| host.has_monitored = options.with_monitored);
        let mut rng = Rng::new(options.seed);
        let planted = options.planted.and_then(|p| planted::ALL.iter().find(|(q, _)| *q == p));
        let laws = planted.map_or_else(Laws::create_all, |(_, law)| Laws::create_all().keep_only(law));
        let skew = [0; 3].map(|_: u64| rng.in_range(0, options.skew_ms + 1));
        let mut world = Self {
            options,
            rng,
            now: 0,
            serial: 0,
            queue: BTreeMap::new(),
            hosts,
            state: Inventory::default(),
            leader: None,
            deposed: Vec::new(),
            term: 0,
            election_at: Some(1_000),
            skew,
            blobs: BTreeMap::new(),
            blobs_missing: false,
            version: 1,
            calm: false,
            notices: BTreeSet::new(),
            laws,
            outcome: Outcome::default(),
        };
        world.create_cluster();
        world.schedule(1_000, Due::Second);
        world
    }

    fn create_cluster(&mut self) {
        self.write(Command::Init {
            cluster: "c".to_owned().into(),
            epoch: Epoch(1),
            ca_pem: String::new(),
            worker_secret: Sha256::default(),
            manager_secret: Sha256::default(),
        });
        for at in 0..self.hosts.len() {
            let host = &self.hosts[at];
            let spec = NodeSpec {
                name: host.name.into(),
                public_key: format!("key of {}", host.name),
                ssh_host_keys: host.keys(),
                machine_id: host.name.to_owned(),
                api: host.gossip().replace("7946", "7947"),
                gossip: host.gossip(),
                ..NodeSpec::default()
            };
            let manager = host.manager;
            let role = if manager { ClusterRole::Manager } else { ClusterRole::Worker };
            if let Applied::Node(id) = self.write(Command::Accept { spec, role }) {
                self.hosts[at].id = id;
                if manager {
                    self.write(Command::Grant { node: id, founder: at == 0 });
                }
            }
        }
        let generation = self.generation();
        self.write(generation);
        for at in 0..self.hosts.len() - 1 {
            let baseline = self.baseline(at, true);
            self.write(Command::Adopt { node: self.hosts[at].id, baseline, basis: 0 });
        }
        // No service is installed on the last host yet.
        let last = self.hosts.len() - 1;
        for service in
            services(self.hosts[last].group).iter().filter(|s| !self.options.with_monitored || **s != MONITORED)
        {
            let part = self.hosts[last].part(service);
            (part.version, part.running, part.enabled) = (None, false, false);
        }
    }

    /// The command with which an operator applies the current version of the fleet.
    pub fn generation(&self) -> Command {
        let returns = [Trigger::Network, Trigger::Reboot, Trigger::Agent, Trigger::Left].map(|o| (o, Policy::Check));
        let group = |name: &str, quorum, parallel, policy: &[(Trigger, Policy)]| {
            let summary = GroupSummary {
                services: services(name).iter().map(|s| (*s).into()).collect(),
                // All nodes but one were only adopted. Without a configured policy, their drift
                // would only be reported.
                policy: returns.iter().chain(policy).copied().collect(),
                quorum,
                whole: false,
                parallel,
                windows: self.options.windows(name),
            };
            (GroupName::from(name), summary)
        };
        let edge =
            [(Trigger::Live, Policy::Check), (Trigger::Apply, Policy::Check), (Trigger::Reboot, Policy::Resetup)];
        let summary = FleetSummary {
            hosts: HOSTS
                .iter()
                .map(|(name, of)| {
                    let desired = self.rendered_hash(name, of, self.version);
                    ((*name).into(), HostSummary { group: (*of).into(), desired })
                })
                .collect(),
            groups: [group("master", true, 1, &[]), group("worker", false, 2, &[]), group("edge", false, 1, &edge)]
                .into(),
            services: ["etcd", "net", "web", "tool"]
                .map(|name| {
                    let depends_on = if name == "web" { vec!["net".into()] } else { Vec::new() };
                    let watched = self.options.with_monitored && name == MONITORED;
                    (name.into(), ServiceSummary { depends_on, monitor_only: watched, ..ServiceSummary::default() })
                })
                .into(),
            limits: self.options.limits.clone(),
        };
        Command::Generation { blob: Sha256::digest(&self.version.to_be_bytes()), summary: Box::new(summary) }
    }

    /// The desired state of a host in this version of the fleet, for the recorded addresses. It
    /// contains the host's own address, and for a worker the addresses of all workers. With the
    /// original addresses, the result is [`desired_hash`].
    fn rendered_hash(&self, name: &str, group: &str, version: u64) -> Sha256 {
        let version = of_group(group, version);
        let within = |(_, (other, of)): &(u64, &(&str, &str))| *other == name || *of == group && group == "worker";
        let moved: Vec<String> = (1..)
            .zip(&HOSTS)
            .filter(within)
            .filter_map(|(home, (other, _))| {
                let at = self.state.by_name(other).map_or(gossip(home), |n| n.spec.gossip.clone());
                (at != gossip(home)).then(|| format!("{other} {at}"))
            })
            .collect();
        match moved.is_empty() {
            true => desired_hash(group, version),
            false => Sha256::digest(format!("{group} {version} {moved:?}").as_bytes()),
        }
    }

    fn version_of(&self, generation: &Generation) -> Option<u64> {
        (1..=self.version).find(|v| Sha256::digest(&v.to_be_bytes()) == generation.blob)
    }

    /// The version of a group's playbooks in this generation.
    pub fn generations_say(&self, generation: GenerationSeq, group: &str) -> Option<u64> {
        self.version_of(self.state.generations.get(&generation)?).map(|version| of_group(group, version))
    }

    /// Sends the answer of a manager to a render request.
    fn render(&mut self, term: u64, generation: GenerationSeq, moved: u64) {
        let Some(known) = self.state.generations.get(&generation).cloned() else { return };
        let Some(version) = self.version_of(&known) else { return };
        self.fire("rendered again");
        let hosts = HOSTS.iter().map(|(name, group)| (NodeName::from(*name), self.rendered_hash(name, group, version)));
        let differ = |(name, now): &(NodeName, Sha256)| known.summary.hosts.get(name).map(|h| h.desired) != Some(*now);
        let result = Ok(hosts.filter(differ).collect());
        let ms = self.rng.in_range(20, 2_000);
        self.schedule(ms, Due::Tell { term, event: Box::new(EngineEvent::Rendered { generation, moved, result }) });
    }

    pub fn baseline(&mut self, host: usize, adopted: bool) -> Baseline {
        let digest = self.hosts[host].digest().clone();
        let node = self.state.node(self.hosts[host].id).expect("an accepted node");
        let baseline = Baseline {
            generation: self.state.current,
            desired: self.state.desired_hash(node).unwrap_or_default(),
            root: digest.root,
            blob: digest.root,
            adopted,
            at: Wall(EPOCH + self.now),
        };
        self.blobs.insert(digest.root, digest);
        baseline
    }

    /// Commits an entry at once. It is used to create the cluster and for orders of an operator.
    pub fn write(&mut self, command: Command) -> Applied {
        let entry = InventoryEntry { at: Wall(EPOCH + self.now), by: "operator".to_owned(), command };
        self.commit(&entry)
    }

    pub fn schedule(&mut self, ms: u64, due: Due) {
        self.serial += 1;
        self.queue.insert((self.now + ms, self.serial), due);
    }

    pub fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Runs until `end`, or until a law is broken.
    pub fn run_until(&mut self, end: u64) {
        while self.outcome.broken.is_none() {
            match self.queue.first_key_value() {
                Some((&(at, serial), _)) if at <= end => {
                    let due = self.queue.remove(&(at, serial)).expect("was just seen");
                    self.now = at;
                    self.happen(due);
                }
                _ => break,
            }
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, due: Due) {
        if self.options.trace
            && !matches!(due, Due::Second)
            && !matches!(&due, Due::Tell { event, .. } if **event == EngineEvent::Tick)
        {
            self.note(format!("{due:?}"));
        }
        match due {
            Due::Second => self.second(),
            Due::Propose { term, about, entry } => self.append_or_lose(term, about, *entry),
            Due::Tell { term, event } => self.send_event(term, *event),
            Due::Probe { term, node } => self.probe(term, node),
            Due::Greet { term, node } => self.greet(term, node),
            Due::Reach { term, node, managers } => self.reach(term, node, &managers),
            Due::Examine { term, node, ticket, from } => self.examine(term, node, ticket, from),
            Due::Order { term, job, attempt, phase, node } => self.order(term, job, attempt, phase, node),
            Due::Stop { term, attempt, now } => self.stop(term, attempt, now),
            Due::Step { host, serial, last } => self.step(host, serial, last),
            Due::HandOver { term, to } => self.hand_over(term, to),
            Due::PowerOn { host } => self.power_on(host),
            Due::AgentOn { host } => self.agent_on(host),
            Due::Heal { host } => self.heal(host),
            Due::SshOn { host } => self.ssh_on(host),
            Due::Roads { host } => self.hosts[host].unreachable_from.clear(),
            Due::ChecksOn { host } => {
                self.hosts[host].check_faults.hang = false;
                self.hosts[host].set_unreadable(false);
            }
        }
    }

    pub fn note(&mut self, text: String) {
        if self.options.trace {
            self.outcome.note(format!("{:>8.3} {text}", self.now as f64 / 1_000.0));
        }
    }

    pub fn fire(&mut self, fault: &'static str) {
        self.outcome.fire(fault);
        self.note(fault.to_owned());
    }

    pub fn host_of(&self, node: NodeId) -> usize {
        self.hosts.iter().position(|h| h.id == node).expect("every node is a host")
    }

    /// The engine's conditions of the node, as in `status` and `why`.
    pub fn conditions(&self, node: &Node) -> Vec<NodeCondition> {
        let Some(leader) = &self.leader else { return Vec::new() };
        let wall = Wall(EPOCH + self.now + self.skew[leader.host]);
        leader.engine.conditions(Now(self.now), wall, &self.state, node)
    }

    /// Whether the node has the condition `is` with a reason that contains `why`.
    pub fn has_condition(&self, name: &str, is: &str, why: &str) -> bool {
        let node = self.state.by_name(name).expect("a node of that name");
        self.conditions(node).iter().any(|c| c.is == is && c.why.contains(why))
    }

    pub fn leader_of(&mut self, term: u64) -> Option<&mut Leader> {
        self.leader.as_mut().filter(|l| l.term == term).or_else(|| self.deposed.iter_mut().find(|l| l.term == term))
    }

    /// Passes an event to the engine of that term, if the engine still exists, and performs the
    /// actions of the engine.
    pub fn send_event(&mut self, term: u64, event: EngineEvent) {
        let mut event = event;
        if self.options.planted == Some(Planted::LosesResults)
            && matches!(event, EngineEvent::Ran { phase: Phase::Provision, .. })
        {
            return;
        }
        if self.options.planted == Some(Planted::StaysAtTheOldAddress) && matches!(event, EngineEvent::Sighted { .. }) {
            return;
        }
        self.tell_laws(&Fact::Told { term, event: &event });
        if self.options.planted == Some(Planted::OpensWithoutRoute)
            && let EngineEvent::Reach { by, line: engine::Reachability::Unreachable { .. }, .. } = &event
            && self.leader_of(term).map(|l| l.host) == Some(self.host_of(*by))
        {
            return;
        }
        if self.options.planted == Some(Planted::UnknownIsDrift)
            && let EngineEvent::Examined { node, outcome, .. } = &mut event
        {
            self.mistake(*node, outcome);
        }
        let wall = |host: usize, skew: &[u64; 3], now: u64| Wall(EPOCH + now + skew[host]);
        let (now, skew) = (self.now, self.skew);
        let (state, leader) = if self.leader.as_ref().is_some_and(|l| l.term == term) {
            (&self.state, self.leader.as_mut())
        } else {
            (&self.state, self.deposed.iter_mut().find(|l| l.term == term))
        };
        let Some(leader) = leader else { return };
        let inventory = leader.view.as_ref().unwrap_or(state);
        let actions = leader.engine.step(Now(now), wall(leader.host, &skew, now), inventory, event);
        self.outcome.steps += 1;
        for action in actions {
            self.perform(term, action);
        }
    }

    fn perform(&mut self, term: u64, action: Action) {
        if self.options.trace {
            self.note(format!("term {term}: {action:?}"));
        }
        match action {
            Action::Propose { about, command } => self.propose(term, about, command),
            Action::Probe { node } => {
                let ms = self.rng.in_range(5, 300);
                self.schedule(ms, Due::Probe { term, node });
            }
            Action::Greet { node } => {
                let ms = self.rng.in_range(5, 2_000);
                self.schedule(ms, Due::Greet { term, node });
            }
            Action::Reach { node, managers } => {
                let ms = self.rng.in_range(5, 50);
                self.schedule(ms, Due::Reach { term, node, managers });
            }
            Action::Examine { node, ticket, purpose: Purpose::Absence(_) | Purpose::Live(_), from } => {
                let ms = self.rng.in_range(20, 900);
                self.schedule(ms, Due::Examine { term, node, ticket, from });
            }
            Action::Run { job, attempt, phase, node } => {
                let current = self.leader.as_ref().is_some_and(|l| l.term == term);
                let view = self.leader_of(term).and_then(|l| l.view.clone());
                self.tell_laws(&Fact::Ordered { job, attempt, phase, node, view: view.as_ref(), current });
                let slow = self.options.slow_permille;
                let ms = if !self.calm && slow > 0 && self.rng.chance(slow) {
                    self.fire("order late");
                    self.rng.in_range(1_000, 8_000)
                } else {
                    self.rng.in_range(5, 200)
                };
                self.schedule(ms, Due::Order { term, job, attempt, phase, node });
            }
            Action::Stop { attempt, now } => {
                let ms = self.rng.in_range(5, 200);
                self.schedule(ms, Due::Stop { term, attempt, now });
            }
            Action::Render { generation, moved } => self.render(term, generation, moved),
            Action::HandOver { to, .. } => {
                let to = to.map(|to| self.host_of(to));
                if to.is_some() {
                    self.tell_laws(&Fact::HandsOver { term });
                }
                let ms = self.rng.in_range(50, 900);
                self.schedule(ms, Due::HandOver { term, to });
            }
            Action::Notify { key, .. } => {
                self.notices.insert(key);
            }
        }
    }

    /// Planted bug: changes the result of a failed examination to that of a node without any files.
    fn mistake(&mut self, node: NodeId, outcome: &mut ExamOutcome) {
        let host = self.host_of(node);
        let Some(expected) = self.state.node(node).and_then(|n| n.setup.baseline.as_ref()).map(|b| b.blob) else {
            return;
        };
        if let ExamOutcome::Unreachable(_) | ExamOutcome::Failed(_) = outcome {
            let mut exam = self.hosts[host].exam();
            exam.digest = NodeDigest::default();
            let rendered = services(self.hosts[host].group).iter().map(|s| format!("/etc/{s}")).collect();
            let expected = self.blobs.get(&expected).cloned();
            *outcome = ExamOutcome::Found(remoor_engine::Evidence { exam, expected, rendered });
        }
    }

    pub fn tell_laws(&mut self, fact: &Fact) {
        if self.outcome.broken.is_none() {
            let mut laws = std::mem::take(&mut self.laws);
            if let Err(broken) = laws.check(self, fact) {
                self.note(format!("BROKEN {broken}"));
                self.outcome.broken = Some(broken);
            }
            self.laws = laws;
        }
    }

    pub fn answer(&mut self, run: &Run, job: JobId, result: PhaseResult) {
        let event = EngineEvent::Ran { job, attempt: run.attempt, phase: run.phase, result: Box::new(result) };
        let ms = self.rng.in_range(5, 100);
        self.schedule(ms, Due::Tell { term: run.term, event: Box::new(event) });
    }
}

/// The version of a group's playbooks in this version of the fleet. An even version of the fleet
/// changes only the workers.
fn of_group(group: &str, version: u64) -> u64 {
    if group == "worker" { version } else { version.div_ceil(2) }
}

/// Hash of the desired state of a host of this group in that version.
pub fn desired_hash(group: &str, version: u64) -> Sha256 {
    Sha256::digest(format!("{group} {version}").as_bytes())
}
