//! The replicated state and the only function that changes it.
//!
//! `apply` is total and deterministic: the same log gives the same state on every manager. It reads
//! no clock; each entry contains its time. A refused entry does not change the state (invariant
//! I12). An entry that violates an invariant (I3, I7, I8, I11) is refused even if the engine
//! proposes it by mistake.

mod addresses;
mod authority;
mod authorization;
mod batch;
mod breaker;
mod drain;
mod gossip_key;
mod invites;
mod jobs;
mod leave;
mod membership;
mod node_orders;
mod nodes;
mod operators;
mod pending;
mod rebuild;
mod remove;
mod roles;
mod undo;

pub use addresses::ip_of;
pub use breaker::Breaker;
pub use membership::NodeMembership;
pub use rebuild::{ClusterRebuild, EPOCH_GAP, EPOCHS_A_SECOND};

use super::*;
use crate::flat_form;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The replicated state of the cluster. A clone is cheap, because clones share the large parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub ca_pem: Arc<String>,
    pub admission: Admission,
    pub gossip: GossipKeys,
    /// The CA that will replace `ca_pem`, if a rotation is in progress, and the former CAs.
    pub authority: Arc<Authority>,
    /// Operator credentials that an entry recorded, by their key in hex.
    pub operators: BTreeMap<String, Arc<OperatorKey>>,
    /// Whether only the credentials in `operators` are accepted. False in a cluster of an earlier
    /// version until the first new credentials are recorded.
    pub only_listed_operators: bool,
    /// Nodes that presented an expired certificate.
    pub expired_certificates: BTreeMap<NodeId, ExpiredCertificate>,
    pub nodes: BTreeMap<NodeId, Arc<Node>>,
    pub names: BTreeMap<NodeName, NodeId>,
    pub departed: DepartedNodes,
    /// The current generation, and the generations to which a node or an open job refers.
    pub generations: BTreeMap<GenerationSeq, Arc<Generation>>,
    pub current: GenerationSeq,
    /// All open jobs, and the last [`JOBS_KEPT`] closed ones.
    pub jobs: BTreeMap<JobId, Arc<Job>>,
    pub history: History,
    pub breaker: Option<Breaker>,
    /// The time at which an operator last closed a breaker. Earlier drift and absences do not count
    /// for opening a breaker.
    pub breaker_closed_at: Wall,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Index of the last entry that changed a node's address.
    pub moved_at_index: u64,
}

/// The secrets and invitations to join, and the machines that requested to join.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    pub worker_secret: Sha256,
    pub manager_secret: Sha256,
    pub worker_token: TokenRecord,
    pub manager_token: TokenRecord,
    /// Open invitations, by the hash of their secret.
    pub invites: BTreeMap<Sha256, Arc<Invite>>,
    /// Machines that wait for an operator's permission to join, by their name.
    pub pending: BTreeMap<NodeName, Arc<PendingJoin>>,
    /// Machines that operators denied, by their key in hex.
    pub denied: BTreeMap<String, Arc<DeniedKey>>,
}

/// Nodes that are no longer in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DepartedNodes {
    /// Nodes that left by their own request. They stay here until they return or are removed. Their
    /// names stay reserved.
    pub left: BTreeMap<NodeId, Arc<LeftNode>>,
    /// Permanently removed nodes. They stay here as long as one of their certificates can be valid.
    pub removed: BTreeMap<NodeId, Arc<RemovedRecord>>,
}

flat_form! {
    Inventory {
        cluster: ClusterId,
        epoch: Epoch,
        ca_pem: Arc<String>,
        worker_secret: Sha256,
        manager_secret: Sha256,
        #[serde(default)]
        invites: BTreeMap<Sha256, Arc<Invite>>,
        #[serde(default)]
        worker_token: TokenRecord,
        #[serde(default)]
        manager_token: TokenRecord,
        #[serde(default)]
        gossip: GossipKeys,
        #[serde(default)]
        authority: Arc<Authority>,
        #[serde(default)]
        pending: BTreeMap<NodeName, Arc<PendingJoin>>,
        #[serde(default)]
        denied: BTreeMap<String, Arc<DeniedKey>>,
        #[serde(default)]
        operators: BTreeMap<String, Arc<OperatorKey>>,
        #[serde(default)]
        only_listed_operators: bool,
        #[serde(default, rename = "lapsed")]
        expired_certificates: BTreeMap<NodeId, ExpiredCertificate>,
        nodes: BTreeMap<NodeId, Arc<Node>>,
        names: BTreeMap<NodeName, NodeId>,
        #[serde(default)]
        left: BTreeMap<NodeId, Arc<LeftNode>>,
        #[serde(default)]
        removed: BTreeMap<NodeId, Arc<RemovedRecord>>,
        generations: BTreeMap<GenerationSeq, Arc<Generation>>,
        current: GenerationSeq,
        jobs: BTreeMap<JobId, Arc<Job>>,
        history: History,
        breaker: Option<Breaker>,
        #[serde(rename = "resumed")]
        breaker_closed_at: Wall,
        applied: u64,
        #[serde(default, rename = "moved")]
        moved_at_index: u64,
    } = Self {
        cluster,
        epoch,
        ca_pem,
        admission: Admission { worker_secret, manager_secret, worker_token, manager_token, invites, pending, denied },
        gossip,
        authority,
        operators,
        only_listed_operators,
        expired_certificates,
        nodes,
        names,
        departed: DepartedNodes { left, removed },
        generations,
        current,
        jobs,
        history,
        breaker,
        breaker_closed_at,
        applied,
        moved_at_index,
    }
}

/// Maximum number of closed jobs that are kept.
pub const JOBS_KEPT: usize = 500;

/// The entry that is being applied.
#[derive(Clone, Copy)]
struct ApplyContext<'a> {
    index: u64,
    entry: &'a InventoryEntry,
    /// The command that is decided now: that of the entry, or the inner command of a batch or of
    /// `Ordered`.
    command: &'a Command,
}

type Decision = Result<Applied, Refusal>;

impl Inventory {
    /// The time at which the newest item of the history was proposed. 0 if there is none.
    pub fn last_entry_at(&self) -> Wall {
        self.history.last().map_or(Wall(0), |item| item.at)
    }

    /// Applies one committed entry. `index` is its log index.
    pub fn apply(&mut self, index: u64, entry: &InventoryEntry) -> Applied {
        let at = ApplyContext { index, entry, command: &entry.command };
        let applied = self.decide(&at).unwrap_or_else(Applied::Refused);
        if applied.refusal().is_none() {
            self.forget_removed(entry.at);
        }
        self.applied = index;
        applied
    }

    /// The node with this id. None if there is no such node, also if it left or was removed.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id).map(Arc::as_ref)
    }

    /// The node with this name. None if there is no such node, also if it left or was removed.
    pub fn by_name(&self, name: &str) -> Option<&Node> {
        self.names.get(name).and_then(|id| self.node(*id))
    }

    /// The job with this id. None if it is unknown or too old to be kept.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(Arc::as_ref)
    }

    /// The current generation. None if no fleet was applied yet.
    pub fn generation(&self) -> Option<&Generation> {
        self.generations.get(&self.current).map(Arc::as_ref)
    }

    /// Whether the current generation only monitors the service.
    pub fn is_monitor_only(&self, service: &ServiceName) -> bool {
        self.generation().is_some_and(|g| g.summary.is_monitor_only(service))
    }

    /// Whether at least one service of the node is only monitored.
    pub(super) fn has_monitor_only_service(&self, node: NodeId) -> bool {
        let group = self.node(node).and_then(|node| self.group(node));
        group.is_some_and(|(_, group)| group.services.iter().any(|service| self.is_monitor_only(service)))
    }

    /// Whether there is drift, and all of it concerns services that are only monitored. A re-setup
    /// cannot repair such drift.
    pub fn drifts_only_monitored(&self, reasons: &[Reason]) -> bool {
        let drift = || reasons.iter().filter(|r| r.drifts());
        drift().count() > 0 && drift().all(|r| self.is_monitor_only(&r.service))
    }

    /// The limits of the current generation, or the defaults before the first generation.
    pub fn limits(&self) -> &Limits {
        static DEFAULTS: LazyLock<Limits> = LazyLock::new(Limits::default);
        self.generation().map_or(&DEFAULTS, |g| &g.summary.limits)
    }

    /// The host group of a node in the current generation.
    pub fn group(&self, node: &Node) -> Option<(&GroupName, &GroupSummary)> {
        let generation = self.generation()?;
        let name = generation.group_of(node.name())?;
        Some((name, generation.summary.groups.get(name)?))
    }

    /// Hash of the node's desired state. None if the current generation does not contain the node.
    pub fn desired_hash(&self, node: &Node) -> Option<Sha256> {
        self.generation()?.desired_hash(node.name())
    }

    /// Whether the desired state changed since the node was set up or adopted.
    pub fn is_outdated(&self, node: &Node) -> bool {
        node.setup
            .baseline
            .as_ref()
            .is_some_and(|b| self.desired_hash(node).is_some_and(|desired| desired != b.desired))
    }

    /// The generation from which a re-setup of these services is provisioned. An empty list means
    /// all services. A partial re-setup of an outdated node uses the node's own generation, for two
    /// reasons. One record, one manifest and one cleanup cannot describe two generations. An order
    /// for some services does not request a change of the others.
    pub fn source_generation(&self, node: &Node, services: &[ServiceName]) -> GenerationSeq {
        let own = node.setup.baseline.as_ref().map(|b| b.generation).filter(|g| self.generations.contains_key(g));
        own.filter(|_| !services.is_empty() && self.is_outdated(node)).unwrap_or(self.current)
    }

    /// Nodes of the group that are held with the current generation. While there is such a node, no
    /// other member is set up automatically with this generation.
    pub fn held_in_rollout<'a>(&'a self, group: &'a GroupName) -> impl Iterator<Item = &'a Node> {
        let held = |j: &&Job| j.state == JobState::Held && j.kind() != JobKind::Undo && j.generation == self.current;
        let nodes = self.jobs.values().map(|j| j.as_ref()).filter(held).filter_map(|j| self.node(j.node));
        nodes.filter(move |n| self.group(n).is_some_and(|(name, _)| name == group))
    }

    fn decide(&mut self, at: &ApplyContext) -> Decision {
        match at.command {
            Command::Init { cluster, epoch, ca_pem, worker_secret, manager_secret } => {
                self.init(at, cluster, *epoch, ca_pem, (*worker_secret, *manager_secret))
            }
            Command::Accept { spec, role } => self.accept_node(at, spec, *role),
            Command::Invite { secret, name, role, expires } => self.invite(at, *secret, name, *role, *expires),
            Command::AcceptInvited { spec, secret } => self.accept_invited(at, spec, *secret),
            Command::Pend { spec, role } => self.pend(at, spec, *role),
            Command::Admit { name, key, role } => self.admit(at, name, key, *role),
            Command::Deny { name } => self.deny(at, name),
            Command::MakeOperator { name, key, ca, until, enforce } => {
                let operator = OperatorKey::new(at.entry, name, *ca, *until);
                self.make_operator(at, key, operator, *enforce)
            }
            Command::RevokeOperator { name } => self.revoke_operator(at, name),
            Command::AcceptPending { spec } => self.accept_pending(at, spec),
            Command::CertificateExpired { node } => self.record_expired_certificate(at, *node),
            Command::Readmit { node } => self.readmit(at, *node),
            Command::CertificateRenewed { node } => self.clear_expired_certificate(*node),
            Command::RotateToken { role, secret, keep_ms } => self.rotate_token(at, *role, *secret, *keep_ms),
            Command::RotateGossip => self.rotate_gossip(at),
            Command::GossipStep { changed } => self.gossip_step(at, *changed),
            Command::RotateCa { ca_pem, cross_pem } => self.rotate_ca(at, ca_pem, cross_pem),
            Command::CaStep { changed } => self.ca_step(at, *changed),
            Command::FinishCa { without } => self.finish_ca(at, without),
            Command::Grant { node, founder } => self.grant(at, *node, *founder),
            Command::Role { node, role } => self.set_role(at, *node, *role),
            Command::Retire { node, raft } => self.retire(at, *node, *raft),
            Command::Remove { node, force, rotate_gossip } => self.remove(at, *node, *force, *rotate_gossip),
            Command::Leave { node } => self.leave(at, *node),
            Command::ForgetLeft { node, since } => self.forget_left(at, *node, *since),
            Command::Readdress { node, api, gossip, over } => self.readdress(at, *node, api, gossip, *over),
            Command::Rendered { generation, moved, hosts, fault } => {
                self.apply_rendering(at, *generation, *moved, hosts, fault.as_deref())
            }
            Command::TrustKey { node, keys } => self.trust_key(at, *node, keys),
            Command::KeyChanged { node, fingerprint, basis } => self.record_changed_key(at, *node, fingerprint, *basis),
            Command::Generation { blob, summary } => self.new_generation(at, *blob, summary),
            Command::Availability { node, availability } => self.set_availability(at, *node, *availability),
            Command::Drain { node, want } => self.drain(at, *node, want),
            Command::Zone { node, zone } => self.zone(at, *node, zone),
            Command::Maintenance { node, until } => self.set_maintenance(at, *node, *until),
            Command::Fingerprint { node, marks } => self.record_fingerprint(at, *node, marks),
            Command::AbsenceOpened { .. }
            | Command::SetAbsenceKind { .. }
            | Command::Returned { .. }
            | Command::AwayAgain { .. }
            | Command::Conclude { .. }
            | Command::Inconclusive { .. } => self.absence_entry(at),
            Command::Adopt { node, baseline, basis } => self.adopt(at, *node, baseline, *basis),
            Command::Entrust { node } => self.entrust(at, *node),
            Command::RequestResetup { .. }
            | Command::DropRequest { .. }
            | Command::OpenJob { .. }
            | Command::NextAttempt { .. }
            | Command::Phase { .. }
            | Command::CloseAttempt { .. }
            | Command::HoldJob { .. }
            | Command::CancelJob { .. } => self.job_entry(at),
            Command::BreakerOpened { group, why } => self.open_breaker(at, group.as_ref(), why),
            Command::Resume => self.close_breaker(at),
            Command::ResumeNode { node } => self.resume_node(at, *node),
            Command::Batch(commands) => self.batch(at, commands),
            Command::Ordered { via, key, command } => self.decide_ordered(at, *via, key.as_deref(), command),
        }
    }

    /// Applies the first entry. `secrets` are the hashes of the workers' and of the managers' join
    /// secret.
    fn init(
        &mut self,
        at: &ApplyContext,
        cluster: &ClusterId,
        epoch: Epoch,
        ca_pem: &str,
        secrets: (Sha256, Sha256),
    ) -> Decision {
        if !self.cluster.0.is_empty() {
            return Err(Refusal::new("already-initialised", "this cluster is already initialised"));
        }
        self.cluster = cluster.clone();
        self.epoch = epoch;
        self.ca_pem = Arc::new(ca_pem.to_owned());
        (self.admission.worker_secret, self.admission.manager_secret) = secrets;
        let record = TokenRecord { since: at.entry.at, by: at.entry.by.clone(), old: None };
        (self.admission.worker_token, self.admission.manager_token) = (record.clone(), record);
        Ok(Applied::Done)
    }

    fn new_generation(&mut self, at: &ApplyContext, blob: Sha256, summary: &FleetSummary) -> Decision {
        let seq = GenerationSeq(self.current.0 + 1);
        if let Some(current) = self.generation()
            && current.blob == blob
            && current.has_summary(summary)
        {
            return Ok(Applied::Generation(self.current));
        }
        let generation = Generation {
            seq,
            blob,
            at: at.entry.at,
            by: at.entry.by.clone(),
            summary: summary.clone(),
            rendered: BTreeMap::new(),
            rendered_for: 0,
        };
        self.generations.insert(seq, Arc::new(generation));
        self.current = seq;
        let mut used: Vec<GenerationSeq> = vec![seq];
        used.extend(self.baselines().map(|b| b.generation));
        used.extend(self.jobs.values().filter(|j| j.closed.is_none()).map(|j| j.generation));
        self.generations.retain(|seq, _| used.contains(seq));
        self.note(at, None, JournalEvent::Generation { seq });
        Ok(Applied::Generation(seq))
    }

    fn change(&mut self, id: NodeId) -> Result<&mut Node, Refusal> {
        let Self { nodes, departed, .. } = self;
        nodes.get_mut(&id).map(Arc::make_mut).ok_or_else(|| departed.membership(id).no_such_node(id))
    }

    fn note(&mut self, at: &ApplyContext, node: Option<NodeId>, what: JournalEvent) {
        self.keep_item(HistoryItem { index: at.index, at: at.entry.at, by: at.entry.by.clone(), node, what });
    }

    fn keep_item(&mut self, item: HistoryItem) {
        self.history.push(item);
    }
}
