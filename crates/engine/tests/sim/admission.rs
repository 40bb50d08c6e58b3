//! The simulation of admission, on the real inventory. Machines and copies of machines request
//! admission, with and without a token. Certificates of nodes expire. Operators approve, deny, or
//! do nothing. The gossip key is rotated while nodes join and leave. The world keeps its own
//! records, and each law compares the inventory with them. Each law has a planted bug that breaks
//! it.

use super::rng::Rng;
use super::search::{self, Outcome, Search};
use remoor_model::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SEEDS_TO_DETECTION: u64 = 300;
const STEPS: u64 = 250;
/// Events that must have happened in at least one seed.
const FAULTS: [&str; 11] = [
    "admission requested",
    "admitted",
    "approved",
    "certificate changed",
    "denied",
    "gossip key rotated",
    "gossip key step taken",
    "node left",
    "removed node forgotten",
    "removed node returned",
    "token rotated",
];
const HOUR: u64 = 3_600_000;
const NAMES: [&str; 5] = ["w1", "w2", "w3", "w4", "w5"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    /// Planted bug: a node is admitted without an approval.
    Unasked,
    /// Planted bug: an approval is valid for any machine that later waits under the approved name.
    NameOnly,
    /// Planted bug: an approval never expires.
    YesForever,
    /// Planted bug: machine ids are not compared.
    CopiesWelcome,
    /// Planted bug: the record of a node whose certificate has expired is deleted.
    LapsedForgotten,
    /// Planted bug: a replaced token remains valid.
    SecretStays,
    /// Planted bug: the new gossip key is used before all present nodes have it.
    KeyHasty,
    /// Planted bug: a token admits a machine that an operator has denied.
    NoForgotten,
    /// Planted bug: the record of a node that left is deleted immediately, so the node returns as a
    /// new node.
    Ghost,
    /// Planted bug: the record of a node that left is deleted before its time has expired.
    ForgottenEarly,
}

const ALL: [(Planted, &str); 10] = [
    (Planted::Unasked, "approval"),
    (Planted::NameOnly, "approval"),
    (Planted::YesForever, "approval"),
    (Planted::CopiesWelcome, "copy"),
    (Planted::LapsedForgotten, "identity"),
    (Planted::SecretStays, "secret"),
    (Planted::KeyHasty, "gossip"),
    (Planted::NoForgotten, "denial"),
    (Planted::Ghost, "ghost"),
    (Planted::ForgottenEarly, "too early"),
];

/// A machine with this name and key. Its machine id and boot id are derived from the key.
fn machine(name: usize, key: u64) -> NodeSpec {
    // Every third machine is a copy of the previous one, with another key.
    let disk = key - u64::from(key % 3 == 2);
    NodeSpec {
        name: NAMES[name].into(),
        public_key: format!("key {key}"),
        machine_id: format!("id {disk}"),
        boot: format!("boot {key}"),
        ..NodeSpec::default()
    }
}

/// The gossip state of a node. The values are: whether the node is present, the log index of its
/// last key change, the key that encrypts its messages, and the other key that it accepts.
type GossipState = (bool, u64, (u64, Option<u64>));

struct World {
    rng: Rng,
    planted: Option<Planted>,
    now: u64,
    state: Inventory,
    /// Approvals of operators, by node name and public key. The value is the time until which the
    /// approval is valid.
    approved: BTreeMap<(NodeName, String), u64>,
    /// Public keys of machines that operators denied and did not accept afterwards.
    denied: BTreeSet<String>,
    /// All nodes that were ever admitted, with their public keys.
    known: BTreeMap<NodeId, String>,
    /// Nodes that left, with the time at which they left.
    left: BTreeMap<NodeId, u64>,
    forgotten: BTreeSet<NodeId>,
    /// Hashes of the secrets in the workers' join tokens, each with the time until which the secret
    /// is valid.
    secrets: BTreeMap<Sha256, u64>,
    gossip: BTreeMap<NodeId, GossipState>,
    broken: Option<(&'static str, String)>,
    fired: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            planted,
            now: 1_000 * HOUR,
            state: Inventory::default(),
            approved: BTreeMap::new(),
            denied: BTreeSet::new(),
            known: BTreeMap::new(),
            left: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            secrets: BTreeMap::new(),
            gossip: BTreeMap::new(),
            broken: None,
            fired: BTreeMap::new(),
        };
        let (cluster, epoch, ca_pem) = ("c1".into(), Epoch(1), String::new());
        let [worker_secret, manager_secret] = [Sha256([1; 32]), Sha256([2; 32])];
        world.apply(Command::Init { cluster, epoch, ca_pem, worker_secret, manager_secret });
        world.secrets.insert(worker_secret, u64::MAX);
        world
    }

    fn has_planted(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    fn breaks(&mut self, law: &'static str, why: impl FnOnce() -> String) {
        let listens = ALL.iter().find(|(planted, _)| self.has_planted(*planted)).is_none_or(|(_, of)| *of == law);
        if listens && self.broken.is_none() {
            self.broken = Some((law, why()));
        }
    }

    fn fire(&mut self, what: &'static str) {
        *self.fired.entry(what).or_default() += 1;
    }

    /// Applies the command. A planted bug changes the command or the result.
    fn apply(&mut self, command: Command) -> Applied {
        let mut at = self.now;
        let command = match command {
            Command::AcceptPending { spec } if self.has_planted(Planted::Unasked) => {
                Command::Accept { spec, role: ClusterRole::Worker }
            }
            Command::Admit { name, key, role } if self.has_planted(Planted::NameOnly) => {
                let key = self.state.admission.pending.get(&name).map_or(key, |p| p.spec.public_key.clone());
                Command::Admit { name, key, role }
            }
            Command::AcceptPending { spec } if self.has_planted(Planted::YesForever) => {
                at -= 30 * HOUR;
                Command::AcceptPending { spec }
            }
            Command::Accept { spec, role } if self.has_planted(Planted::CopiesWelcome) => {
                Command::Accept { spec: NodeSpec { boot: String::new(), ..spec }, role }
            }
            Command::RotateToken { role, secret, .. } if self.has_planted(Planted::SecretStays) => {
                Command::RotateToken { role, secret, keep_ms: 1_000 * HOUR }
            }
            other => other,
        };
        if self.has_planted(Planted::NoForgotten) && matches!(command, Command::Accept { .. }) {
            self.state.admission.denied.clear();
        }
        if self.has_planted(Planted::ForgottenEarly) && matches!(command, Command::ForgetLeft { .. }) {
            at += 30 * 24 * HOUR;
        }
        let before = self.state.clone();
        let index = self.state.applied + 1;
        let entry = InventoryEntry { at: Wall(at), by: "sim".to_owned(), command };
        let applied = self.state.apply(index, &entry);
        if applied.refusal().is_some() && (Inventory { applied: index, ..before } != self.state) {
            self.breaks("refusals", || format!("{:?} was rejected but changed the inventory", entry.command));
        }
        if self.has_planted(Planted::LapsedForgotten)
            && let (Command::CertificateExpired { node }, Applied::Done) = (&entry.command, &applied)
            && let Some(gone) = self.state.nodes.remove(node)
        {
            self.state.names.remove(gone.name());
        }
        if self.has_planted(Planted::Ghost)
            && let (Command::Leave { node }, Applied::Done) = (&entry.command, &applied)
        {
            self.state.departed.left.remove(node);
        }
        self.judge();
        applied
    }

    /// Checks the laws after every entry.
    fn judge(&mut self) {
        let state = self.state.clone();
        for (id, key) in self.known.clone() {
            let left = || state.departed.left.get(&id).map(|l| l.node.as_ref());
            let same = state.node(id).or_else(left).is_some_and(|n| n.spec.public_key == key);
            if !same && !self.forgotten.contains(&id) && !self.left.contains_key(&id) {
                self.breaks("identity", || format!("node {id} no longer has the key {key}"));
            }
        }
        if state.admission.pending.len() > PENDING_MAX {
            self.breaks("limit", || format!("{} machines wait", state.admission.pending.len()));
        }
        let nodes: Vec<_> = state.nodes.values().collect();
        for (at, one) in nodes.iter().enumerate() {
            for other in &nodes[at + 1..] {
                if one.spec.machine_id == other.spec.machine_id {
                    self.breaks("copy", || format!("{} is a copy of {}", other.name(), one.name()));
                }
                if one.spec.public_key == other.spec.public_key || one.name() == other.name() {
                    self.breaks("one key", || format!("{} and {} have the same key or name", other.name(), one.name()));
                }
            }
        }
        let there: Vec<_> = self.gossip.values().filter(|(here, ..)| *here).map(|(_, _, keys)| *keys).collect();
        for (sends, _) in &there {
            if let Some(deaf) = there.iter().find(|(first, other)| first != sends && *other != Some(*sends)) {
                self.breaks("gossip", || format!("a node with the keys {deaf:?} cannot read key {sends}"));
            }
        }
    }

    fn check_admitted(&mut self, applied: &Applied, spec: &NodeSpec) {
        let Applied::Node(id) = applied else { return };
        self.fire("admitted");
        if self.denied.contains(&spec.public_key) {
            self.breaks("denial", || format!("{} was admitted although it was denied", spec.public_key));
        }
        let was = |(known, key): &(&NodeId, &String)| **key == spec.public_key && !self.forgotten.contains(known);
        if let Some(ghost) = self.known.iter().find(was).map(|(known, _)| *known).filter(|known| known != id) {
            self.breaks("ghost", || format!("{} was node {ghost} and is now node {id}", spec.public_key));
        }
        if self.left.remove(id).is_some() {
            self.fire("removed node returned");
        }
        self.known.insert(*id, spec.public_key.clone());
        let gossip = &self.state.gossip;
        let keys = (gossip.active_keys().0, None);
        self.gossip.entry(*id).or_insert((false, 0, keys));
    }

    fn node(&mut self) -> Option<NodeId> {
        let ids: Vec<NodeId> = self.state.nodes.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[self.rng.up_to(ids.len())])
    }

    fn step(&mut self) {
        let pause = if self.rng.chance(60) { 20 * HOUR } else { 60_000 };
        self.now += self.rng.in_range(1_000, pause + 1_000);
        let (name, key) = (self.rng.up_to(NAMES.len()), self.rng.in_range(1, 10));
        let spec = machine(name, key);
        match self.rng.up_to(15) {
            0 | 1 => {
                if self.apply(Command::Pend { spec, role: ClusterRole::Worker }) == Applied::Done {
                    self.fire("admission requested");
                }
            }
            2 | 3 => {
                // The operator may approve an older request, although another machine waits under
                // this name now.
                let seen = self.state.admission.pending.get(&spec.name).map(|p| p.spec.public_key.clone());
                let key = seen.filter(|_| self.rng.chance(700)).unwrap_or(spec.public_key);
                let (name, role) = (spec.name, ClusterRole::Worker);
                if self.apply(Command::Admit { name: name.clone(), key: key.clone(), role }) == Applied::Done {
                    self.fire("approved");
                    self.denied.remove(&key);
                    // If the machine does not wait, `Admit` only revokes a denial. It is then not
                    // an approval.
                    let waits = self.state.admission.pending.get(&name).filter(|p| p.spec.public_key == key);
                    if let Some(until) = waits.map(|p| p.expires.0).filter(|until| *until >= self.now) {
                        self.approved.insert((name, key), until);
                    }
                }
            }
            4 if self.rng.chance(300) => {
                if self.apply(Command::Deny { name: spec.name.clone() }) == Applied::Done {
                    self.fire("denied");
                    self.denied.extend(self.state.admission.pending.get(&spec.name).map(|p| p.spec.public_key.clone()));
                    self.approved.retain(|(name, _), _| *name != spec.name);
                }
            }
            4..=6 => {
                let spec = self.state.admission.pending.get(&spec.name).map_or(spec, |p| p.spec.clone());
                let approved = self.approved.get(&(spec.name.clone(), spec.public_key.clone())).copied();
                let applied = self.apply(Command::AcceptPending { spec: spec.clone() });
                if matches!(applied, Applied::Node(_)) && approved.is_none_or(|until| self.now > until) {
                    self.breaks("approval", || {
                        format!("{} ({}) was admitted without an approval", spec.name, spec.public_key)
                    });
                }
                self.check_admitted(&applied, &spec);
            }
            7 if self.rng.chance(200) => {
                let applied = self.apply(Command::Accept { spec: spec.clone(), role: ClusterRole::Worker });
                self.check_admitted(&applied, &spec);
            }
            8 => {
                let Some(node) = self.node() else { return };
                let command = match self.rng.up_to(3) {
                    0 => Command::CertificateExpired { node },
                    1 => Command::Readmit { node },
                    _ => Command::CertificateRenewed { node },
                };
                if self.apply(command) == Applied::Done {
                    self.fire("certificate changed");
                }
            }
            9 if self.rng.chance(300) => {
                let secret = Sha256([self.rng.in_range(3, 250) as u8; 32]);
                let keep_ms = if self.rng.chance(500) { 0 } else { 10 * HOUR };
                let before = self.state.admission.worker_secret;
                if self.apply(Command::RotateToken { role: ClusterRole::Worker, secret, keep_ms }) == Applied::Done {
                    self.fire("token rotated");
                    self.secrets.values_mut().for_each(|until| *until = 0);
                    self.secrets.insert(before, self.now + keep_ms);
                    self.secrets.insert(secret, u64::MAX);
                }
            }
            13 if self.rng.chance(500) => {
                let Some(node) = self.node() else { return };
                if self.apply(Command::Leave { node }) == Applied::Done {
                    self.fire("node left");
                    self.left.insert(node, self.now);
                    self.gossip.remove(&node);
                }
            }
            14 => self.forget(),
            10 if self.rng.chance(200) => {
                if self.apply(Command::RotateGossip) == Applied::Done {
                    self.fire("gossip key rotated");
                }
            }
            _ => self.gossip(),
        }
        let (current, record) = self.state.token(ClusterRole::Worker);
        let counts = |secret: &Sha256| {
            secret == current || record.old.is_some_and(|old| old.secret == *secret && self.now <= old.until.0)
        };
        let wrong = self.secrets.iter().find(|(secret, until)| counts(secret) != (self.now <= **until));
        if let Some(why) = wrong.map(|(secret, until)| format!("{secret} must be valid until {until}")) {
            self.breaks("secret", || why);
        }
    }

    /// Deletes the record of a node that left, if the leader considers the deletion due. If no
    /// deletion is due, proposes to delete a record too early. A leader with a wrong clock would do
    /// this.
    fn forget(&mut self) {
        let due = self.state.next_to_forget(Wall(self.now));
        let any = || self.left.iter().next().map(|(node, at)| Command::ForgetLeft { node: *node, since: Wall(*at) });
        let Some(command) = due.or_else(any) else { return };
        let Command::ForgetLeft { node, .. } = command else { return };
        if self.apply(command) == Applied::Done {
            self.fire("removed node forgotten");
            let since = self.left.remove(&node).unwrap_or(u64::MAX);
            if self.now < since.saturating_add(7 * 24 * HOUR) {
                self.breaks("too early", || format!("node {node} left at {since} and is already forgotten"));
            }
            self.forgotten.insert(node);
        }
    }

    /// Makes a node join or leave gossip. The leader takes the next step of the key rotation when
    /// all present nodes have the current keys.
    fn gossip(&mut self) {
        let Some(node) = self.node() else { return };
        let (changed, held) = (self.state.gossip.changed, self.state.gossip.active_keys());
        let leave = self.rng.chance(250);
        if let Some(entry) = self.gossip.get_mut(&node) {
            // A returning node first fetches the gossip keys over TLS, because gossip is impossible
            // without them.
            *entry = if leave { (false, entry.1, entry.2) } else { (true, changed, held) };
        }
        let all = self.gossip.values().all(|(here, holds, _)| !here || *holds == changed);
        if (all || self.has_planted(Planted::KeyHasty)) && self.apply(Command::GossipStep { changed }) == Applied::Done
        {
            self.fire("gossip key step taken");
        }
        self.judge();
    }
}

fn run(seed: u64, planted: Option<Planted>) -> Outcome {
    let mut world = World::new(seed, planted);
    let mut steps = 0;
    while steps < STEPS && world.broken.is_none() {
        world.step();
        steps += 1;
    }
    let broken = world.broken.map(|(law, why)| format!("{law}: {why}"));
    Outcome { broken, fired: world.fired, steps, trace: VecDeque::new() }
}

#[test]
fn seeds() {
    let run = |seed, _| run(seed, None);
    Search { name: "sim::admission", failed_once: &[], faults: &FAULTS, faults_from: 100, rare: &[], run }.seeds();
}

#[test]
fn planted_bugs_are_found() {
    search::detects(&ALL, SEEDS_TO_DETECTION, |planted, seed| run(seed, Some(planted)).broken);
}
