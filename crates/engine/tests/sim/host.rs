//! One machine of the world: its real state, and the handling of orders by its executor.

use remoor_model::{
    AgentRecord, AttemptId, BootId, CheckResult, CheckState, CheckSummary, Exam, FileEntry, FileKind, GenerationSeq,
    Instance, Isolation, NodeDigest, NodeId, OnFail, Phase, Report, ServiceDigest, Severity, Sha256, Wall,
    failure_hash,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    None,
    /// The host is completely disconnected.
    Full,
    /// Gossip from or to the host is lost in one direction, but SSH works.
    Gossip,
    /// This manager has no route to the host, but all other managers have one.
    From(usize),
}

/// The result of the leader's handshakes with a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greetings {
    Unanswered,
    Answered,
    /// The leader receives no result.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sshd {
    Up,
    Down,
    Hangs,
}

/// A service on a host: one file and one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimService {
    /// The version of the file. None if the file does not exist.
    pub version: Option<Sha256>,
    /// Number of manual edits since the file was written.
    pub edits: u64,
    pub running: bool,
    pub enabled: bool,
}

/// A run of the executor that is in progress.
#[derive(Debug, Clone)]
pub struct Run {
    pub serial: u64,
    pub attempt: AttemptId,
    pub phase: Phase,
    /// The term of the leader that receives the result.
    pub term: u64,
    /// Whether the manager that ordered the run does not wait for it any more. The run continues.
    pub orphan: bool,
    /// Whether the run must end after its current step.
    pub stopping: bool,
    /// The attempt that the run undoes, if the run is an undo.
    pub undo: Option<AttemptId>,
    pub fails: bool,
    pub services: Vec<&'static str>,
    pub version: Sha256,
}

#[derive(Debug, Clone)]
pub struct SimAgent {
    pub up: bool,
    pub instance: u64,
    pub isolation: u32,
    /// Whether the agent has already counted the current isolation.
    pub isolated: bool,
    pub left: bool,
}

#[derive(Debug, Clone, Default)]
pub struct SimExecutor {
    /// The newest attempt whose orders the executor has accepted. A reboot does not change it.
    pub fence: AttemptId,
    /// The attempt that holds the executor's lock. A reboot releases the lock.
    pub session: Option<AttemptId>,
    pub runs: Vec<Run>,
    /// The backups of the last five attempts.
    pub copies: BTreeMap<AttemptId, BTreeMap<&'static str, SimService>>,
    /// Number of phases that will fail on this host, beginning with the next one.
    pub failing: u32,
    /// Whether the next cleanup leaves something on the host.
    pub leftovers: bool,
}

/// Reasons why checks do not pass although the units run.
#[derive(Debug, Clone, Default)]
pub struct CheckFaults {
    pub hang: bool,
    /// Whether a check that only warns fails, independently of the units.
    pub warns: bool,
    /// Whether a check that requires no action fails.
    pub murmurs: bool,
}

/// The state of a host in the gossip of the managers.
#[derive(Debug, Clone, Default)]
pub struct GossipView {
    /// The agent's report. None if the host is not in gossip.
    pub report: Option<Report>,
    /// The number of the address that gossip shows for the host.
    pub place: u64,
    pub silent_ms: u64,
}

#[derive(Debug, Clone)]
pub struct Host {
    pub name: &'static str,
    pub id: NodeId,
    pub group: &'static str,
    pub manager: bool,
    pub up: bool,
    pub boot: u64,
    pub agent: SimAgent,
    pub executor: SimExecutor,
    pub gossip_view: GossipView,
    pub cut: Cut,
    /// The result of handshakes with the daemon during [`Cut::Gossip`].
    pub greetings: Greetings,
    /// Managers that do not reach the SSH port of this host, although the host is in gossip.
    pub unreachable_from: BTreeSet<usize>,
    pub sshd: Sshd,
    pub key: u64,
    /// The number of the host's current address.
    pub place: u64,
    pub parts: BTreeMap<&'static str, SimService>,
    /// Whether [`MONITORED`] is monitor-only.
    pub has_monitored: bool,
    pub unreadable: bool,
    pub check_faults: CheckFaults,
    digest: Option<NodeDigest>,
}

/// The name of the monitor-only service, which only some hosts have.
pub const MONITORED: &str = "tool";
/// The name of the check whose failure only causes a warning.
pub const WARNING: &str = "http:latency";
const MURMUR: &str = "command:uptime";

/// The gossip address with the number `place`.
pub fn gossip(place: u64) -> String {
    format!("10.0.0.{place}:7946")
}

pub fn services(group: &str) -> &'static [&'static str] {
    match group {
        "master" => &["etcd", "net"],
        "worker" => &["net", "web"],
        _ => &["tool", "web"],
    }
}

/// Whether a manager renders the files of the service. The files of `tool` are only recorded.
pub fn is_rendered(service: &str) -> bool {
    service != "tool"
}

impl Host {
    pub fn new(name: &'static str, group: &'static str, version: Sha256) -> Self {
        let part = SimService { version: Some(version), edits: 0, running: true, enabled: true };
        Self {
            name,
            id: NodeId(0),
            group,
            manager: name.starts_with('m'),
            up: true,
            boot: 1,
            agent: SimAgent { up: true, instance: 1, isolation: 0, isolated: false, left: false },
            executor: SimExecutor::default(),
            gossip_view: GossipView::default(),
            cut: Cut::None,
            greetings: Greetings::Unanswered,
            unreachable_from: BTreeSet::new(),
            sshd: Sshd::Up,
            key: 1,
            place: 0,
            parts: services(group).iter().map(|s| (*s, part.clone())).collect(),
            has_monitored: false,
            unreadable: false,
            check_faults: CheckFaults::default(),
            digest: None,
        }
    }

    pub fn part(&mut self, service: &str) -> &mut SimService {
        self.digest = None;
        self.parts.get_mut(service).expect("a service of the group")
    }

    pub fn keys(&self) -> Vec<String> {
        vec![format!("key {} of {}", self.key, self.name)]
    }

    pub fn gossip(&self) -> String {
        gossip(self.place)
    }

    pub fn is_in_gossip(&self) -> bool {
        self.up && self.agent.up && !matches!(self.cut, Cut::Full | Cut::Gossip)
    }

    pub fn digest(&mut self) -> &NodeDigest {
        let (parts, unreadable) = (&self.parts, self.unreadable);
        self.digest.get_or_insert_with(|| take_digest(parts, unreadable))
    }

    /// Whether files and units match `baseline` and all services except the monitor-only one run.
    pub fn matches(&mut self, baseline: &NodeDigest) -> bool {
        self.digest().root == baseline.root
            && self.parts.iter().all(|(name, p)| p.running || self.is_monitor_only(name))
    }

    /// Whether this service is monitor-only.
    pub fn is_monitor_only(&self, service: &str) -> bool {
        self.has_monitored && service == MONITORED
    }

    pub fn clean(&self, services: &[&'static str]) -> bool {
        services.iter().all(|s| self.parts.get(s).is_none_or(|p| p.version.is_none() && !p.running))
    }

    pub fn checks(&self) -> Vec<CheckResult> {
        let result = |service: &str, check: String, good: bool, severity, on_fail| CheckResult {
            service: service.into(),
            check,
            property: "good".to_owned(),
            state: match (self.check_faults.hang, good) {
                (true, _) => CheckState::Unknown,
                (false, true) => CheckState::Pass,
                (false, false) => CheckState::Fail,
            },
            severity,
            on_fail,
            expected: "true".to_owned(),
            found: if self.check_faults.hang { String::new() } else { good.to_string() },
            message: if self.check_faults.hang { "timed out" } else { "" }.to_owned(),
            took_ms: 1,
        };
        let units = self.parts.iter().map(|(name, part)| {
            let on_fail = if self.is_monitor_only(name) { OnFail::Alert } else { OnFail::Resetup };
            result(name, format!("service:{name}"), part.running, Severity::Critical, on_fail)
        });
        let first = services(self.group)[0];
        let more = [
            result(first, WARNING.to_owned(), !self.check_faults.warns, Severity::Warning, OnFail::Alert),
            result(first, MURMUR.to_owned(), !self.check_faults.murmurs, Severity::Info, OnFail::None),
        ];
        units.chain(more).collect()
    }

    pub fn report(&mut self, leaving: bool) -> Report {
        let checks = self.checks();
        Report {
            leaving,
            boot: BootId(format!("boot-{}", self.boot)),
            instance: Instance(format!("agent-{}", self.agent.instance)),
            isolation: self.agent.isolation,
            digest: self.digest().root,
            generation: GenerationSeq(1),
            checks: CheckSummary::from_results(&checks),
            version: String::new(),
            failure_hash: failure_hash(self.digest(), &checks),
            ..Report::default()
        }
    }

    pub fn exam(&mut self) -> Exam {
        let agent = AgentRecord {
            boot: BootId(format!("boot-{}", self.boot)),
            instance: Instance(format!("agent-{}", self.agent.instance)),
            started: Wall(0),
            isolation: self.agent.isolation,
            last_isolation: Some(Isolation { from: Wall(0), to: Some(Wall(1_000)), peers_lost: 8 }),
            previous_end: Some("signal 9".to_owned()),
            left: self.agent.left,
            crashes: 0,
            damaged: None,
            starts: 1,
        };
        Exam {
            boot: agent.boot.clone(),
            machine_id: self.name.to_owned(),
            uptime_ms: 1,
            system_state: None,
            agent: Some(agent),
            agent_running: self.agent.up,
            digest: self.digest().clone(),
            checks: self.checks(),
            took_ms: 1,
            busy: self
                .executor
                .runs
                .iter()
                .find(|r| r.phase != Phase::Verify)
                .map(|r| format!("attempt {}", r.attempt)),
            damaged: Vec::new(),
        }
    }

    pub fn set_unreadable(&mut self, unreadable: bool) {
        (self.unreadable, self.digest) = (unreadable, None);
    }

    /// Boots the host. Enabled units run again, and all earlier processes are gone.
    pub fn boot(&mut self) {
        self.up = true;
        self.boot += 1;
        self.agent.instance += 1;
        self.agent.up = true;
        self.agent.left = false;
        self.executor.session = None;
        self.parts.values_mut().for_each(|p| p.running = p.enabled && p.version.is_some());
    }
}

fn take_digest(parts: &BTreeMap<&'static str, SimService>, unreadable: bool) -> NodeDigest {
    let mut digest = NodeDigest::default();
    for (at, (name, part)) in parts.iter().enumerate() {
        let mut service = ServiceDigest::default();
        let path = format!("/etc/{name}");
        if unreadable && at == 0 {
            service.unreadable.insert(path, "input/output error".to_owned());
        } else if let Some(version) = part.version {
            service.entries.push(FileEntry {
                path,
                kind: FileKind::File,
                mode: 0o644,
                owner: "root".to_owned(),
                group: "root".to_owned(),
                sha256: Some(Sha256::digest(format!("{version} {}", part.edits).as_bytes())),
                target: None,
                secret: false,
            });
        }
        service.root = ServiceDigest::root_of(&service.entries);
        digest.services.insert((*name).into(), service);
    }
    digest.root = NodeDigest::root_of(&digest.services);
    digest
}
