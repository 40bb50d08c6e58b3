//! Requests of nodes: Raft and blobs between managers, manifest and peers for agents, and joins.

use super::super::members::HEARD_MS;
use super::super::{CaPair, ManagerContext, examine, gossip_key, wall};
use super::authorization::{check_csr_key, check_raft_sender};
use super::waiting_networks::WaitingNetworks;
use super::{Actor, pending, propose, tokens};
use axum::Extension;
use axum::extract::{FromRequest, Path, Request, State};
use remoor_cluster::raft::{CLAIM, RaftError, RaftStatus};
use remoor_cluster::rpc::agent::ManifestReply;
use remoor_cluster::rpc::ca::Validity;
use remoor_cluster::rpc::caller::{Caller, PeerAddr};
use remoor_cluster::rpc::dial_back;
use remoor_cluster::rpc::identity::{GossipKey, IdentityError};
use remoor_cluster::rpc::join::{JoinReply, JoinRequest, PeerInfo};
use remoor_cluster::rpc::join_proof::ChannelBinding;
use remoor_cluster::rpc::limit::RateLimit;
use remoor_cluster::rpc::renew::RenewReply;
use remoor_cluster::rpc::token::Secret;
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Json, Raw, rfc3339};
use remoor_model::{Applied, ClusterRole, Command, Inventory, Node, NodeSpec, RaftId, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub async fn raft(
    State(shared): State<Arc<ManagerContext>>,
    caller: Caller,
    Path(kind): Path<String>,
    Raw(body): Raw,
) -> Result<Vec<u8>, ApiFailure> {
    let sender = shared.raft.sender(&body).map_err(raft_failure)?;
    check_raft_sender(&shared, &caller, sender.from)?;
    shared.raft.admit(&sender).await.map_err(raft_failure)?;
    if kind == CLAIM {
        return Ok(Vec::new());
    }
    let reply = shared.raft.handle(&kind, body.to_vec()).await;
    let reply = reply.map_err(|error| {
        if let RaftError::BadMessage { why } = &error {
            shared.notices.notify(
                "unreadable",
                None,
                &format!("the messages of another manager can't be read here: {why}"),
            );
        }
        ApiFailure::new(Code::Conflict, error.to_string())
    })?;
    if matches!(kind.as_str(), "append" | "snapshot") {
        shared.observed.note_leader_heard();
    }
    Ok(reply)
}

fn raft_failure(error: RaftError) -> ApiFailure {
    let code = match &error {
        RaftError::WrongCluster { .. } => Code::WrongCluster,
        RaftError::WrongEpoch { .. } => Code::WrongEpoch,
        RaftError::StaleIncarnation { .. } => Code::StaleDirectory,
        _ => Code::Conflict,
    };
    let failure = ApiFailure::new(code, error.to_string());
    match error {
        RaftError::WrongEpoch { ours, .. } => failure.details(serde_json::json!({ "epoch": ours })),
        RaftError::StaleIncarnation { refused, .. } => {
            failure.details(serde_json::json!({ "since": rfc3339(refused.since) }))
        }
        _ => failure,
    }
}

pub async fn get_blob(
    State(shared): State<Arc<ManagerContext>>,
    Path(sha): Path<String>,
) -> Result<Vec<u8>, ApiFailure> {
    let sha = Sha256::parse(&sha).ok_or_else(|| ApiFailure::new(Code::BadRequest, "not a SHA-256"))?;
    let store = shared.blobs.clone();
    let bytes = run_disk_io(move || store.get(&sha)).await?;
    bytes.ok_or_else(|| ApiFailure::new(Code::NotFound, format!("this manager does not have blob {sha}")))
}

pub async fn put_blob(
    State(shared): State<Arc<ManagerContext>>,
    Path(sha): Path<String>,
    Raw(body): Raw,
) -> Result<(), ApiFailure> {
    if Sha256::parse(&sha) != Some(Sha256::digest(&body)) {
        return Err(ApiFailure::new(Code::BadRequest, "the content does not have this hash"));
    }
    let store = shared.blobs.clone();
    run_disk_io(move || store.put(&body)).await.map(|_| ())
}

/// Runs disk work on a blocking thread, separate from Raft's heartbeats.
async fn run_disk_io<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, remoor_host::disk::DiskError> + Send + 'static,
) -> Result<T, ApiFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| ApiFailure::new(Code::Internal, "a task of this manager ended early"))?;
    done.map_err(|e| ApiFailure::new(Code::Internal, e.to_string()))
}

/// The keys of the CAs; only managers receive them.
#[derive(Debug, Serialize, Deserialize)]
pub struct CaKeysReply {
    /// Key of the first CA, for managers of an older version.
    pub key_pem: Secret,
    /// All CAs with their keys, beginning with the cluster's first CA. Empty in the answer of an
    /// older manager.
    #[serde(default)]
    pub cas: Vec<CaPair>,
}

pub async fn ca(State(shared): State<Arc<ManagerContext>>) -> Result<axum::Json<CaKeysReply>, ApiFailure> {
    let cas = shared.keys.cas.all_cas().iter().map(|ca| CaPair::from_ca(ca)).collect();
    Ok(axum::Json(CaKeysReply { key_pem: shared.keys.cas.first().key_pem(), cas }))
}

/// Stores the key of the next CA on this manager, before the entry with the CA's certificate is
/// proposed. Has no other effect.
pub async fn keep_ca(
    State(shared): State<Arc<ManagerContext>>,
    Json(pair): Json<CaPair>,
) -> Result<axum::Json<()>, ApiFailure> {
    let ca = pair.open().map_err(|e| ApiFailure::new(Code::BadRequest, e.to_string()))?;
    if *ca.cluster() != shared.identity.cluster {
        return Err(ApiFailure::new(Code::WrongCluster, format!("the CA belongs to cluster {}", ca.cluster())));
    }
    let kept = tokio::task::spawn_blocking(move || {
        shared.keys.cas.tidy(&shared.inventory());
        shared.keys.cas.keep(ca)
    });
    let kept = kept.await.map_err(|_| ApiFailure::new(Code::Internal, "a task of this manager ended early"))?;
    kept.map(axum::Json).map_err(|e| ApiFailure::new(Code::Internal, e.to_string()))
}

/// The cluster's SSH key; only managers receive it.
#[derive(Debug, Serialize, Deserialize)]
pub struct SshKeyReply {
    pub key: Secret,
}

pub async fn ssh_key(State(shared): State<Arc<ManagerContext>>) -> Result<axum::Json<SshKeyReply>, ApiFailure> {
    let none = || ApiFailure::new(Code::NotFound, "this manager has no SSH key of the cluster");
    let key = shared.keys.ssh_key.get().ok_or_else(none)?;
    Ok(axum::Json(SshKeyReply { key: key.private().to_owned().into() }))
}

/// Returns the manifest of the caller's own node.
pub async fn manifest(
    State(shared): State<Arc<ManagerContext>>,
    Extension(node): Extension<Arc<Node>>,
) -> Result<axum::Json<ManifestReply>, ApiFailure> {
    let manifest = examine::manifest_for(&shared, node.id).await;
    let manifest = manifest.map_err(|e| ApiFailure::new(Code::Unavailable, e.to_string()))?;
    Ok(axum::Json(ManifestReply {
        manifest,
        digest_key: hex::encode(shared.keys.digest_key(node.id)),
        check_interval_ms: shared.inventory().limits().check_interval_ms,
        rejoin_ms: shared.inventory().limits().rejoin_ms,
    }))
}

/// The managers in the form in which they are sent to a node that requests the list, joins or
/// becomes a manager. Managers that are being demoted are included, because one of them may lead
/// until another manager can.
pub fn managers_of(inventory: &Inventory) -> Vec<PeerInfo> {
    inventory.nodes.values().filter(|n| n.manages()).map(|n| PeerInfo::for_node(n)).collect()
}

/// The settings with which a manager admits machines.
pub struct JoinConfig {
    pub shared: Arc<ManagerContext>,
    /// Returns the current gossip keys of this manager.
    pub held: Box<dyn Fn() -> Vec<GossipKey> + Send + Sync>,
    /// Validity of node certificates.
    pub certificate_validity: Duration,
    /// Whether machines without the secret of a token may ask an operator to accept them.
    pub join_requests: bool,
}

pub struct JoinService {
    pub(super) parts: JoinConfig,
    limit: RateLimit,
    /// Names with an admission in progress, so that a name is never granted twice.
    busy: Mutex<BTreeSet<String>>,
    pub(super) waiting: WaitingNetworks,
}

impl JoinService {
    pub fn new(parts: JoinConfig) -> Self {
        let limit = RateLimit::new(20, Duration::from_secs(1));
        Self { parts, limit, busy: Mutex::default(), waiting: WaitingNetworks::default() }
    }

    pub(super) fn context(&self) -> &Arc<ManagerContext> {
        &self.parts.shared
    }

    /// Issues a certificate for a node of the inventory. `csr_pem` must be signed with the node's
    /// key.
    pub(super) fn issue(&self, node: &Node, csr_pem: &str) -> Result<RenewReply, ApiFailure> {
        self.parts.shared.check_clocks()?;
        self.issue_as(false, node, csr_pem)
    }

    fn issue_as(&self, manager: bool, node: &Node, csr_pem: &str) -> Result<RenewReply, ApiFailure> {
        check_csr_key(node, csr_pem)?;
        let bad = |e: IdentityError| ApiFailure::new(Code::BadRequest, e.to_string());
        let (shared, inventory) = (&self.parts.shared, self.parts.shared.inventory());
        let lacks = || ApiFailure::new(Code::Retry, "this manager does not have the key of the new CA yet");
        let ca = shared.keys.cas.for_certificate(inventory.issuer()).ok_or_else(lacks)?;
        let validity = Validity::valid_for(self.parts.certificate_validity);
        let issued = ca.issue_as(manager, node.id, node.name(), inventory.epoch, csr_pem, validity).map_err(bad)?;
        Ok(RenewReply {
            cert_pem: issued + &inventory.cross_chain(),
            ca_pem: inventory.roots().concat(),
            ca: inventory.authority.changed,
        })
    }

    /// The gossip keys that every node must have. The first key encrypts sent messages.
    pub(super) fn gossip_keys(&self, inventory: &Inventory) -> Result<Vec<GossipKey>, ApiFailure> {
        let keys = gossip_key::keys(&self.parts.shared.keys.cas, &inventory.gossip, &(self.parts.held)());
        keys.map_err(|e| ApiFailure::new(Code::Retry, e.to_string()))
    }

    /// Issues a certificate for this manager's own node.
    pub fn issue_own(&self, csr_pem: &str) -> Result<RenewReply, String> {
        let (shared, inventory) = (&self.parts.shared, self.parts.shared.inventory());
        let node = inventory.node(shared.identity.node).ok_or("this manager does not know its own node yet")?;
        match shared.compare_clocks().own_objection() {
            Some(why) => Err(why),
            None => self.issue_as(true, node, csr_pem).map_err(|e| e.to_string()),
        }
    }
}

/// Admits a machine that has a token or was accepted. The machine receives a node id, a
/// certificate, the gossip key and the peers; a machine that joins as a manager also receives its
/// Raft id. A machine with the same key and name joins as the same node. Followers answer
/// `not-leader` with the leader's address.
pub async fn join(
    State(desk): State<Arc<JoinService>>,
    from: PeerAddr,
    request: Request,
) -> Result<axum::Json<JoinReply>, ApiFailure> {
    desk.limit.admit(from)?;
    let binding = request.extensions().get::<ChannelBinding>().copied();
    let Json(request): Json<JoinRequest> = Json::from_request(request, &()).await?;
    let shared = &desk.parts.shared;
    let status = shared.raft.status().borrow().clone();
    if !status.is_leader {
        let leader = status.leader_address().map(|(_, addr)| addr);
        let failure = ApiFailure::new(Code::NotLeader, "another manager leads");
        return Err(failure.details(serde_json::json!({"leader": leader})));
    }
    request.check().map_err(|e| ApiFailure::new(Code::BadRequest, e.to_string()))?;
    // The clocks are compared before the machine's clock is judged, because this manager's clock
    // may be the wrong one.
    shared.check_clocks()?;
    pending::check_clock(request.now, wall())?;
    let inventory = shared.inventory();
    if let Some(cluster) = request.cluster.as_ref().filter(|cluster| **cluster != inventory.cluster) {
        let text =
            format!("the data directory belongs to cluster {cluster}, and this cluster is {}", inventory.cluster);
        return Err(ApiFailure::new(Code::WrongCluster, text).next("move the directory away, then repeat the command"));
    }
    let secret = tokens::proved_secret(&inventory, &request, binding.as_ref())?;
    let ticket = match secret {
        Some(secret) => ticket(&inventory, &request, secret)?,
        None => JoinAuthorization::Accepted,
    };
    not_alive(shared, &inventory, &status, &request)?;
    let name = request.name.to_string();
    let _turn = desk.turn(name)?;
    if secret.is_none() {
        pending::check_accepted(&desk, &request, from).await?;
    }
    // The address is verified after the authorization. Otherwise an unknown machine could make this
    // manager connect to any address.
    dial_back::verify_address(&request).await?;
    admit(&desk, request, ticket).await.map(axum::Json)
}

/// Reserves the name of a join request. The reservation ends with the request, also if the client
/// disconnects.
struct JoinTurnGuard<'a> {
    desk: &'a JoinService,
    name: String,
}

impl JoinService {
    fn turn(&self, name: String) -> Result<JoinTurnGuard<'_>, ApiFailure> {
        if !self.busy().insert(name.clone()) {
            return Err(ApiFailure::new(Code::Retry, format!("{name} is being admitted right now")));
        }
        Ok(JoinTurnGuard { desk: self, name })
    }

    fn busy(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.busy.lock().unwrap_or_else(|p| p.into_inner())
    }
}

impl Drop for JoinTurnGuard<'_> {
    fn drop(&mut self) {
        self.desk.busy().remove(&self.name);
    }
}

/// Refuses the join of a node that is running. If two machines have the same key, one is a copy
/// (docs/design/scenarios.md, E13). The join of a running manager would archive its current log. A
/// node that lost its data directory does not answer any more, so it may join soon after its last
/// answer.
fn not_alive(
    shared: &ManagerContext,
    inventory: &Inventory,
    status: &RaftStatus,
    request: &JoinRequest,
) -> Result<(), ApiFailure> {
    let known = inventory.by_name(request.name.as_str());
    let Some(node) = known.filter(|n| n.spec.public_key == request.node_public_key) else { return Ok(()) };
    if let Some(text) = copy_reason(node, shared.observed.signed_address(node.name()), request) {
        let name = node.name();
        shared.notices.notify(&format!("copy {name} {}", request.advertise), Some(name.as_str()), &text);
        let next = format!(
            "on a copy of {name}'s disk: rm node.key in its data directory, give it its own machine id (rm /etc/machine-id; \
             systemd-machine-id-setup), and join under another name; if this is {name} itself, stop its other daemon, and join \
             once remoor nodes shows it as away"
        );
        let details = serde_json::json!({ "refusal": "copied-identity" });
        return Err(ApiFailure::new(Code::Refused, text).details(details).next(next));
    }
    let heard = |id: &RaftId| *id == status.id || status.acked_ms.get(id).is_some_and(|ms| *ms <= HEARD_MS);
    if node.raft.as_ref().is_some_and(heard) {
        let text = format!("{} runs as a manager and is not joined a second time", request.name);
        return Err(ApiFailure::new(Code::Retry, text).next("stop it first; if this is a copy of it, remove node.key"));
    }
    Ok(())
}

/// The reason why the joining machine, which has the key of `node`, must be another machine than
/// `node`. None if it may be the same machine. `signed` is the gossip address that the running node
/// signs.
fn copy_reason(node: &Node, signed: Option<SocketAddr>, request: &JoinRequest) -> Option<String> {
    let (name, from) = (node.name(), &request.gossip_addr);
    let elsewhere = signed.filter(|addr| from.parse() != Ok(*addr));
    if let Some(addr) = elsewhere {
        return Some(format!(
            "{name} runs at {addr}: it is not joined a second time from {from}, which has a copy of its key"
        ));
    }
    let away = node.absence.as_ref().is_some_and(|absence| absence.returned.is_none());
    let seen = node.examination.last_identity.is_some() && !away;
    let (was, is) = (&node.spec.machine_id, &request.machine_id);
    (seen && !was.is_empty() && was != is).then(|| {
        format!("{name} is not away, and is the machine {was}: it is not joined a second time from the machine {is}, which has a copy of its key")
    })
}

/// The authorization with which a machine joins.
#[derive(Clone, Copy)]
enum JoinAuthorization {
    Token,
    /// An operator accepted the machine.
    Accepted,
    Invite(Sha256),
}

/// Checks the token of a join request by the hash of its secret. The state machine checks it again
/// when the machine is accepted.
fn ticket(inventory: &Inventory, request: &JoinRequest, hash: Sha256) -> Result<JoinAuthorization, ApiFailure> {
    let by_manager_token = tokens::counts(inventory, ClusterRole::Manager, &hash, wall())?;
    let by_token = by_manager_token || tokens::counts(inventory, ClusterRole::Worker, &hash, wall())?;
    // The invitation is looked up by the hash of the secret, so the time of the lookup reveals
    // nothing about a secret.
    let invite = inventory.admission.invites.get(&hash).filter(|_| !by_token);
    let as_manager = match invite {
        Some(invite) if !invite.admits(&request.name, &request.node_public_key, wall()) => {
            let text = format!("this token is for {}, once, until {}", invite.name, wire::rfc3339(invite.expires));
            return Err(ApiFailure::new(Code::BadToken, text).next("remoor node add again"));
        }
        Some(invite) if invite.role == ClusterRole::Manager && !request.want_manager => {
            return Err(ApiFailure::new(Code::BadToken, "this token is for managers").next("remoor join --manager"));
        }
        Some(invite) => invite.role == ClusterRole::Manager,
        None if by_manager_token && !request.want_manager => {
            return Err(ApiFailure::new(Code::BadToken, "this token is for managers")
                .next("remoor join --manager, or take the worker token"));
        }
        None if by_token => by_manager_token,
        None => return Err(tokens::wrong_secret()),
    };
    if request.want_manager && !as_manager {
        return Err(ApiFailure::new(Code::BadToken, "this token admits workers only").next("use the manager token"));
    }
    let known = inventory.names.get(&request.name).and_then(|id| inventory.nodes.get(id));
    let same = known.is_some_and(|n| n.spec.public_key == request.node_public_key);
    if same && request.want_manager && known.is_some_and(|n| n.role == ClusterRole::Worker) {
        let text = format!("the desired role of {} is worker", request.name);
        let next = format!("join without --manager, then remoor promote {}", request.name);
        return Err(ApiFailure::new(Code::Conflict, text).next(next));
    }
    if same && !request.want_manager && known.is_some_and(|n| n.role == ClusterRole::Manager) {
        let text = format!("the desired role of {} is manager", request.name);
        return Err(ApiFailure::new(Code::Conflict, text).next("remoor join --manager, with the manager token"));
    }
    Ok(if invite.is_some() { JoinAuthorization::Invite(hash) } else { JoinAuthorization::Token })
}

/// The node's data according to the machine itself.
pub(super) fn spec_of(request: &JoinRequest) -> NodeSpec {
    NodeSpec {
        name: request.name.clone(),
        api: request.advertise.clone(),
        gossip: request.gossip_addr.clone(),
        public_key: request.node_public_key.clone(),
        ssh_host_keys: request.ssh_host_keys.clone(),
        machine_id: request.machine_id.clone(),
        version: request.version.clone(),
        drain: request.drain,
        zone: request.zone.clone(),
        boot: request.boot.clone(),
    }
}

async fn admit(desk: &JoinService, request: JoinRequest, ticket: JoinAuthorization) -> Result<JoinReply, ApiFailure> {
    let shared = &desk.parts.shared;
    let spec = spec_of(&request);
    let role = if request.want_manager { ClusterRole::Manager } else { ClusterRole::Worker };
    let by = Actor::from(format!("join from {}", request.advertise));
    let accept = match ticket {
        JoinAuthorization::Token => Command::Accept { spec, role },
        JoinAuthorization::Accepted => Command::AcceptPending { spec },
        JoinAuthorization::Invite(secret) => Command::AcceptInvited { spec, secret },
    };
    let Applied::Node(node) = propose(shared, &by, accept).await? else {
        return Err(ApiFailure::new(Code::Internal, "unexpected result of the entry"));
    };
    let accepted_as = shared.inventory().node(node).map(|n| n.role);
    let manages = match ticket {
        JoinAuthorization::Accepted => accepted_as == Some(ClusterRole::Manager),
        JoinAuthorization::Token | JoinAuthorization::Invite(_) => request.want_manager,
    };
    let raft: Option<RaftId> = if manages {
        match propose(shared, &by, Command::Grant { node, founder: false }).await? {
            Applied::Raft(id) => Some(id),
            _ => return Err(ApiFailure::new(Code::Internal, "unexpected result of the entry")),
        }
    } else {
        None
    };
    let inventory = shared.inventory();
    let accepted =
        inventory.node(node).ok_or_else(|| ApiFailure::new(Code::Retry, "the node was removed meanwhile"))?;
    // A machine that joins as a manager receives the CA's key anyway, so its certificate may show
    // the role before its manager service runs.
    shared.check_clocks()?;
    let RenewReply { cert_pem, ca_pem, .. } = desk.issue_as(raft.is_some(), accepted, &request.tls_csr_pem)?;
    let peers = inventory.nodes.values().map(|n| PeerInfo::for_node(n)).collect();
    let managers = managers_of(&inventory).into_iter().filter(|p| p.id != node).collect();
    Ok(JoinReply {
        cluster: inventory.cluster.clone(),
        epoch: inventory.epoch,
        node,
        name: request.name,
        raft,
        cert_pem,
        ca_pem,
        gossip_key_hex: desk.gossip_keys(&inventory)?[0].to_hex(),
        peers,
        managers,
        ssh_key: shared.keys.ssh_line(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_cluster::rpc::identity::NodeKey;
    use remoor_cluster::rpc::join::testing::request;
    use remoor_model::{Absence, AbsenceKind, AbsenceNo, HostFingerprint, InventoryEntry, Wall};

    /// A copied machine must not join while the original runs (scenario E13 in
    /// docs/design/scenarios.md).
    #[test]
    fn a_machine_with_the_key_of_a_running_node_is_a_copy_unless_the_node_came_back() {
        let request = request(&NodeKey::generate().expect("a key"));
        let mut inventory = Inventory::default();
        let command = Command::Accept { spec: spec_of(&request), role: ClusterRole::Worker };
        inventory.apply(1, &InventoryEntry { at: Wall(1), by: "test".to_owned(), command });
        let node = inventory.by_name("w1").expect("a node");
        let at = |addr: &str| Some(addr.parse::<SocketAddr>().expect("an address"));
        let own = at(&request.gossip_addr);
        let other = JoinRequest { machine_id: "f".repeat(32), ..request.clone() };
        let says = |node: &Node, signed, request: &JoinRequest| copy_reason(node, signed, request).unwrap_or_default();

        assert_eq!(says(node, None, &request), "", "the first answer was lost");
        assert_eq!(says(node, own, &request), "", "it ended just now");
        assert!(says(node, at("127.0.0.9:7374"), &request).contains("w1 runs at 127.0.0.9:7374"));
        let named = JoinRequest { gossip_addr: "w1.example:7374".to_owned(), ..request.clone() };
        assert!(says(node, own, &named).contains("w1 runs at"), "a host name is not compared as an address");
        assert_eq!(says(node, None, &other), "", "it never ran");

        let mut seen = node.clone();
        seen.examination.last_identity = Some(HostFingerprint::default());
        assert_eq!(says(&seen, own, &request), "");
        for signed in [None, own] {
            assert!(says(&seen, signed, &other).contains("w1 is not away, and is the machine 0123"));
        }
        let absence = |returned| Absence {
            no: AbsenceNo(1),
            opened: Wall(5),
            last_seen: Wall(5),
            seen_by: Vec::new(),
            kind: AbsenceKind::Away,
            before: HostFingerprint::default(),
            returned,
            after: None,
            planned: false,
        };
        let away = Node { absence: Some(absence(None)), ..seen.clone() };
        assert_eq!(says(&away, None, &other), "", "its disk is in another machine");
        let back = Node { absence: Some(absence(Some(Wall(9)))), ..seen };
        assert!(says(&back, None, &other).contains("is not away"));
    }
}
