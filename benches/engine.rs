//! The speed of the engine's decisions. 1000 nodes lose the network together, and all return
//! drifted within one minute. One run has a circuit breaker that never opens. The other has the
//! default breaker, which opens and is closed by an operator. Time is simulated. The bench measures
//! the real time inside `ManagerEngine::step`. It also measures how long it takes to compute the
//! conditions of all nodes, which `remoor status` shows. Run the bench with `cargo bench --bench
//! engine`.

mod figures;

use remoor_engine::{About, Action, EngineEvent, Evidence, ExamOutcome, ManagerEngine, PhaseResult, Verified};
use remoor_model::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const NODES: u64 = 1_000;
const GROUPS: u64 = 20;
const EPOCH: u64 = 1_000_000;
const SECOND: u64 = 1_000;
/// Times of the scenario, in seconds: the network fails, the network returns, and an operator
/// closes the circuit breaker.
const LOST_S: u64 = 30;
const BACK_S: u64 = LOST_S + 75;
const RESUMED_S: u64 = BACK_S + 300;
/// Interval, in simulated seconds, at which the bench computes the conditions of all nodes, as the
/// API does for `status`.
const READ_EVERY_S: u64 = 10;
/// Maximum simulated time, in seconds, until all nodes are repaired. With the default budgets, the
/// repair of all nodes takes far less time.
const PATIENCE_S: u64 = 3_600;
const COMMAND: &str = "cargo bench --bench engine";

struct Fleet {
    engine: ManagerEngine,
    inventory: Inventory,
    now: u64,
    serial: u64,
    queue: BTreeMap<(u64, u64), Due>,
    drifted: BTreeSet<NodeId>,
    good: NodeDigest,
    bad: NodeDigest,
    steps: Vec<Duration>,
    /// The real time of each computation of the conditions of all nodes.
    views: Vec<Duration>,
    busy_max: usize,
    /// Maximum number of nodes of one group that were set up at the same time.
    group_max: usize,
    /// Number of jobs that began while a circuit breaker was open.
    broken: usize,
}

enum Due {
    Event(Box<EngineEvent>),
    Commit(About, Box<Command>),
    Phase { job: JobId, attempt: AttemptId, phase: Phase, node: NodeId },
}

fn digest(content: &[u8]) -> NodeDigest {
    let entries = vec![FileEntry {
        path: "/etc/web".to_owned(),
        kind: FileKind::File,
        mode: 0o644,
        owner: "root".to_owned(),
        group: "root".to_owned(),
        sha256: Some(Sha256::digest(content)),
        target: None,
        secret: false,
    }];
    let service = ServiceDigest::new(entries, BTreeMap::new());
    let services = BTreeMap::from([("web".into(), service)]);
    NodeDigest { root: NodeDigest::root_of(&services), services }
}

impl Fleet {
    fn new(limits: Limits) -> Self {
        let name = |n: u64| NodeName(format!("n{n}"));
        let group = |n: u64| GroupName(format!("g{}", n % GROUPS));
        let summary = FleetSummary {
            hosts: (0..NODES)
                .map(|n| (name(n), HostSummary { group: group(n), desired: Sha256::digest(b"wanted") }))
                .collect(),
            groups: (0..GROUPS)
                .map(|n| (group(n), GroupSummary { services: vec!["web".into()], parallel: 1, ..Default::default() }))
                .collect(),
            services: BTreeMap::from([("web".into(), ServiceSummary::default())]),
            limits,
        };
        let mut fleet = Self {
            engine: ManagerEngine::new(name(0), Now(0)),
            inventory: Inventory::default(),
            now: 0,
            serial: 0,
            queue: BTreeMap::new(),
            drifted: BTreeSet::new(),
            good: digest(b"good"),
            bad: digest(b"bad"),
            steps: Vec::new(),
            views: Vec::new(),
            busy_max: 0,
            group_max: 0,
            broken: 0,
        };
        fleet.write(Command::Generation { blob: Sha256::default(), summary: Box::new(summary) });
        for n in 0..NODES {
            let spec = NodeSpec { name: name(n), public_key: n.to_string(), ..NodeSpec::default() };
            let Applied::Node(node) = fleet.write(Command::Accept { spec, role: ClusterRole::Worker }) else {
                continue;
            };
            let baseline = fleet.baseline();
            fleet.write(Command::Adopt { node, baseline, basis: 0 });
            fleet.write(Command::Entrust { node });
            fleet.write(Command::Fingerprint { node, marks: Fleet::marks(node, 0) });
        }
        fleet
    }

    fn marks(node: NodeId, isolation: u32) -> HostFingerprint {
        HostFingerprint { boot: BootId(format!("boot {node}")), instance: Instance(format!("agent {node}")), isolation }
    }

    fn baseline(&self) -> Baseline {
        let root = self.good.root;
        let at = Wall(EPOCH + self.now);
        Baseline {
            generation: self.inventory.current,
            desired: Sha256::digest(b"wanted"),
            root,
            blob: root,
            adopted: false,
            at,
        }
    }

    fn write(&mut self, command: Command) -> Applied {
        let entry = InventoryEntry { at: Wall(EPOCH + self.now), by: "bench".to_owned(), command };
        self.inventory.apply(self.inventory.applied + 1, &entry)
    }

    fn schedule(&mut self, ms: u64, due: Due) {
        self.serial += 1;
        self.queue.insert((self.now + ms, self.serial), due);
    }

    fn step(&mut self, event: EngineEvent) {
        let began = Instant::now();
        let actions = self.engine.step(Now(self.now), Wall(EPOCH + self.now), &self.inventory, event);
        self.steps.push(began.elapsed());
        for action in actions {
            match action {
                Action::Propose { about, command } => self.schedule(10, Due::Commit(about, Box::new(command))),
                Action::Examine { node, ticket, .. } => {
                    let outcome = Box::new(ExamOutcome::Found(self.evidence(node)));
                    self.schedule(400, Due::Event(Box::new(EngineEvent::Examined { node, ticket, outcome })));
                }
                Action::Run { job, attempt, phase, node } => {
                    self.schedule(500, Due::Phase { job, attempt, phase, node });
                }
                Action::Probe { node } => {
                    self.schedule(3 * SECOND, Due::Event(Box::new(EngineEvent::Probed { node, answers: false })));
                }
                Action::Greet { node } => {
                    self.schedule(2 * SECOND, Due::Event(Box::new(EngineEvent::Greeted { node, answers: false })));
                }
                Action::Stop { .. } | Action::Reach { .. } | Action::Render { .. } | Action::HandOver { .. } => {}
                Action::Notify { .. } => {}
            }
        }
    }

    /// Computes the conditions of all nodes, as the API does for `status`.
    fn read(&mut self) {
        let (began, now, wall) = (Instant::now(), Now(self.now), Wall(EPOCH + self.now));
        for node in self.inventory.nodes.values() {
            std::hint::black_box(self.engine.conditions(now, wall, &self.inventory, node));
        }
        self.views.push(began.elapsed());
    }

    fn evidence(&self, node: NodeId) -> Evidence {
        let marks = Fleet::marks(node, 1);
        let agent = AgentRecord {
            boot: marks.boot.clone(),
            instance: marks.instance,
            isolation: marks.isolation,
            ..AgentRecord::default()
        };
        let digest = if self.drifted.contains(&node) { &self.bad } else { &self.good };
        let exam = Exam {
            boot: marks.boot,
            agent: Some(agent),
            agent_running: true,
            digest: digest.clone(),
            ..Exam::default()
        };
        Evidence { exam, expected: Some(self.good.clone()), rendered: BTreeSet::from(["/etc/web".to_owned()]) }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Event(event) => self.step(*event),
            Due::Commit(about, command) => {
                let breaker = self.inventory.breaker.as_ref().is_some_and(|b| b.group.is_none());
                let applied = self.write(*command);
                if let Applied::Job(..) = applied {
                    self.broken += usize::from(breaker);
                    self.count();
                }
                // The manager's loop tells the engine of every new log entry, and of the result of
                // each entry that this manager proposed.
                self.step(EngineEvent::Changed);
                self.step(EngineEvent::Proposed { about, applied: Some(applied) });
            }
            Due::Phase { job, attempt, phase, node } => {
                if phase == Phase::Provision && self.drifted.remove(&node) {
                    let report = self.report(node, 1);
                    self.schedule(900, Due::Event(Box::new(EngineEvent::Alive { node, report })));
                }
                let result = match phase {
                    Phase::Verify => PhaseResult::Verified(Verified {
                        evidence: self.evidence(node),
                        baseline: self.baseline(),
                        marks: Some(Fleet::marks(node, 1)),
                        wrong: Vec::new(),
                    }),
                    _ => PhaseResult::Ok,
                };
                self.step(EngineEvent::Ran { job, attempt, phase, result: Box::new(result) });
            }
        }
    }

    fn report(&self, node: NodeId, isolation: u32) -> Report {
        let marks = Fleet::marks(node, isolation);
        Report {
            boot: marks.boot,
            instance: marks.instance,
            isolation: marks.isolation,
            digest: if self.drifted.contains(&node) { self.bad.root } else { self.good.root },
            ..Report::default()
        }
    }

    fn busy(&self) -> usize {
        self.inventory.jobs.values().filter(|j| j.open_attempt().is_some()).count()
    }

    fn count(&mut self) {
        let mut groups = BTreeMap::<GroupName, usize>::new();
        for job in self.inventory.jobs.values().filter(|j| j.open_attempt().is_some()) {
            let group = self.inventory.node(job.node).and_then(|n| self.inventory.group(n));
            *groups.entry(group.map(|(name, _)| name.clone()).unwrap_or_default()).or_default() += 1;
        }
        self.busy_max = self.busy_max.max(groups.values().sum());
        self.group_max = self.group_max.max(groups.values().copied().max().unwrap_or(0));
    }

    fn run_to(&mut self, end: u64) {
        while let Some((&(at, serial), _)) = self.queue.first_key_value()
            && at <= end
        {
            self.now = at;
            if let Some(due) = self.queue.remove(&(at, serial)) {
                self.happen(due);
            }
        }
        self.now = end;
    }
}

/// The result of one run: the real durations of the engine's steps, and the violated rules.
struct Run {
    mean: Duration,
    late: Duration,
    longest: Duration,
    faults: Vec<String>,
}

fn run(title: &str, limits: Limits, breaks: bool) -> Run {
    let fleet_max = (NODES * u64::from(limits.fleet_percent) / 100) as usize;
    let mut fleet = Fleet::new(limits);
    let nodes: Vec<NodeId> = fleet.inventory.nodes.keys().copied().collect();
    let began = Instant::now();
    for (nth, node) in nodes.iter().enumerate() {
        let within_a_minute = nth as u64 * 60 * SECOND / NODES;
        let (here, back) = (fleet.report(*node, 0), fleet.report(*node, 1));
        fleet.schedule(0, Due::Event(Box::new(EngineEvent::Alive { node: *node, report: here })));
        fleet.schedule(LOST_S * SECOND + 5 * nth as u64, Due::Event(Box::new(EngineEvent::Gone { node: *node })));
        fleet.schedule(
            BACK_S * SECOND + within_a_minute,
            Due::Event(Box::new(EngineEvent::Alive { node: *node, report: back })),
        );
    }
    let (mut seconds, mut opened) = (0, None);
    while seconds < BACK_S + PATIENCE_S && !(seconds > BACK_S + 60 && fleet.quiet()) {
        if seconds == LOST_S + 10 {
            fleet.drifted = nodes.iter().copied().collect();
        }
        if seconds == RESUMED_S && breaks {
            opened = fleet.inventory.breaker.as_ref().map(|_| fleet.inventory.jobs.len());
            fleet.write(Command::Resume);
        }
        seconds += 1;
        fleet.step(EngineEvent::Tick);
        if seconds % READ_EVERY_S == 0 {
            fleet.read();
        }
        fleet.run_to(seconds * SECOND);
    }
    let total: Duration = fleet.steps.iter().sum();
    fleet.steps.sort();
    let at = |permille: usize| fleet.steps[(fleet.steps.len() - 1) * permille / 1_000];
    let count = fleet.steps.len();
    let run = Run {
        mean: total / count as u32,
        late: at(999),
        longest: at(1_000),
        faults: fleet.faults(fleet_max, breaks, opened),
    };
    println!("{title}: {count} decisions, {:.0} a second", count as f64 / total.as_secs_f64());
    println!("  mean {:?}, median {:?}, 99.9 % {:?}, longest {:?}", run.mean, at(500), run.late, run.longest);
    println!(
        "  at most {} of {fleet_max} at once, {} of a group; over after {seconds} simulated s",
        fleet.busy_max, fleet.group_max
    );
    let (read, reads) = (fleet.views.iter().sum::<Duration>(), fleet.views.len().max(1) as u32);
    println!(
        "  the views of all nodes: mean {:?}, longest {:?}",
        read / reads,
        fleet.views.iter().max().unwrap_or(&read)
    );
    if let Some(jobs) = opened {
        println!("  the breaker was open until second {RESUMED_S}; {jobs} re-setups had begun by then");
    }
    println!("  {:?} of real time, log of {} entries", began.elapsed(), fleet.inventory.applied);
    run
}

impl Fleet {
    fn quiet(&self) -> bool {
        self.drifted.is_empty() && self.busy() == 0
    }

    fn faults(&self, fleet_max: usize, breaks: bool, opened: Option<usize>) -> Vec<String> {
        let repaired = self
            .inventory
            .nodes
            .values()
            .all(|n| n.absence.is_none() && n.pending_resetup.is_none() && n.job.is_none());
        let faults = [
            (!self.drifted.is_empty() || !repaired, format!("{} nodes are not repaired", self.drifted.len())),
            (self.busy_max > fleet_max, format!("{} at once", self.busy_max)),
            (self.group_max > 1, format!("{} of one group at once", self.group_max)),
            (self.broken > 0, format!("{} re-setups began though a breaker was open", self.broken)),
            (breaks != opened.is_some(), "the breaker".to_owned()),
        ];
        faults.into_iter().filter(|(wrong, _)| *wrong).map(|(_, text)| text).collect()
    }
}

fn main() -> std::process::ExitCode {
    let never = Limits { breaker_min: u32::MAX, ..Limits::default() };
    println!(
        "{NODES} nodes in {GROUPS} groups; defaults, but for the first run breaker-min: {} ({})",
        u32::MAX,
        Limits::default().breaker_min
    );
    let runs = [run("breaker closed", never, false), run("breaker open", Limits::default(), true)];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    let peak_mb = peak.unwrap_or(f64::MAX) / 1024.0;
    let faults: Vec<&String> = runs.iter().flat_map(|r| &r.faults).collect();
    let ms = |of: fn(&Run) -> Duration| runs.iter().map(of).max().unwrap_or_default().as_secs_f64() * 1000.0;
    let (mean, late, longest) = (ms(|r| r.mean), ms(|r| r.late), ms(|r| r.longest));
    let fine = if faults.is_empty() { "budgets kept, all repaired" } else { "NOT WHOLE" };
    let figure = figures::Figure {
        what: "engine, 1000 nodes back drifted in one minute, breaker open and closed",
        wanted: "under 1 ms a decision, budgets kept, all repaired, under 200 MB",
        found: format!("mean {mean:.3} ms, 99.9 % {late:.2} ms, longest {longest:.1} ms; {fine}; {peak_mb:.0} MB"),
        met: mean < 1.0 && peak_mb < 200.0 && faults.is_empty(),
        command: COMMAND,
    };
    figures::publish("engine", &[figure]);
    if faults.is_empty() {
        return std::process::ExitCode::SUCCESS;
    }
    println!("faults: {faults:?}");
    std::process::ExitCode::FAILURE
}
