//! What nodes ask: Raft and blobs between managers, manifest and peers for agents, joining.

use super::super::{Shared, examine, wall};
use super::{manager, member, propose};
use crate::model::{Applied, ClusterRole, Command, Inventory, NodeSpec, RaftId, Sha256};
use crate::rpc::agent::{ManifestReply, PeersReply};
use crate::rpc::ca::{ClusterCa, Validity};
use crate::rpc::caller::{Caller, PeerAddr};
use crate::rpc::identity::GossipKey;
use crate::rpc::join::{JoinReply, JoinRequest, Peer};
use crate::rpc::limit::RateLimit;
use crate::rpc::token::Secret;
use crate::rpc::wire::{self, Code, Failure, Json, Raw};
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const CERTIFICATE_DAYS: u32 = 90;

pub async fn raft(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(kind): Path<String>,
    Raw(body): Raw,
) -> Result<Vec<u8>, Failure> {
    raft_peer(&shared, &caller)?;
    let reply = shared.raft.handle(&kind, body.to_vec()).await;
    let reply = reply.map_err(|e| Failure::new(Code::Conflict, e.to_string()))?;
    if matches!(kind.as_str(), "append" | "snapshot") {
        shared.hear_leader();
    }
    Ok(reply)
}

/// A manager of the applied inventory; on a fresh log, which knows nobody, also one that the joining named.
fn raft_peer(shared: &Shared, caller: &Caller) -> Result<(), Failure> {
    match caller {
        Caller::Node { id, .. } if shared.inventory().nodes.is_empty() && shared.sponsors.contains(id) => Ok(()),
        _ => manager(shared, caller).map(drop),
    }
}

pub async fn get_blob(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(sha): Path<String>,
) -> Result<Vec<u8>, Failure> {
    manager(&shared, &caller)?;
    let sha = Sha256::parse(&sha).ok_or_else(|| Failure::new(Code::BadRequest, "not a SHA-256"))?;
    let store = shared.blobs.clone();
    let bytes = aside(move || store.get(&sha)).await?;
    bytes.ok_or_else(|| Failure::new(Code::NotFound, format!("blob {sha} is not here")))
}

pub async fn put_blob(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(sha): Path<String>,
    Raw(body): Raw,
) -> Result<(), Failure> {
    manager(&shared, &caller)?;
    if Sha256::parse(&sha) != Some(Sha256::of(&body)) {
        return Err(Failure::new(Code::BadRequest, "the content does not have this hash"));
    }
    let store = shared.blobs.clone();
    aside(move || store.put(&body)).await.map(|_| ())
}

/// Reads or writes the disk away from the threads on which Raft's heartbeats run.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::disk::DiskError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| Failure::new(Code::Internal, "a task of this manager ended early"))?;
    done.map_err(|e| Failure::new(Code::Internal, e.to_string()))
}

/// The CA's key, handed to managers only.
#[derive(Debug, Serialize, Deserialize)]
pub struct CaReply {
    pub key_pem: String,
}

pub async fn ca(State(desk): State<Arc<JoinDesk>>, caller: Caller) -> Result<axum::Json<CaReply>, Failure> {
    manager(&desk.parts.shared, &caller)?;
    Ok(axum::Json(CaReply { key_pem: desk.parts.ca.key_pem().reveal().to_owned() }))
}

/// The cluster's SSH key, handed to managers only.
#[derive(Debug, Serialize, Deserialize)]
pub struct SshKeyReply {
    pub key: Secret,
}

pub async fn ssh_key(State(shared): State<Arc<Shared>>, caller: Caller) -> Result<axum::Json<SshKeyReply>, Failure> {
    manager(&shared, &caller)?;
    let none = || Failure::new(Code::NotFound, "this manager has no SSH key of the cluster");
    let key = shared.ssh_key.get().ok_or_else(none)?;
    Ok(axum::Json(SshKeyReply { key: key.private().to_owned().into() }))
}

/// Only the caller's own.
pub async fn manifest(State(shared): State<Arc<Shared>>, caller: Caller) -> Result<axum::Json<ManifestReply>, Failure> {
    let node = member(&shared, &caller)?;
    let manifest = examine::manifest_for(&shared, node.id).await;
    let manifest = manifest.map_err(|e| Failure::new(Code::Unavailable, e.to_string()))?;
    Ok(axum::Json(ManifestReply {
        manifest,
        digest_key: hex::encode(shared.digest_key(node.id)),
        check_interval_ms: shared.inventory().limits().check_interval_ms,
        rejoin_ms: shared.inventory().limits().rejoin_ms,
    }))
}

pub async fn peers(State(shared): State<Arc<Shared>>, caller: Caller) -> Result<axum::Json<PeersReply>, Failure> {
    member(&shared, &caller)?;
    let peers = all_peers(&shared);
    let managers = managers_of(&shared.inventory(), &peers);
    Ok(axum::Json(PeersReply { peers, managers }))
}

fn managers_of(inventory: &Inventory, peers: &[Peer]) -> Vec<Peer> {
    let is_manager = |p: &&Peer| inventory.node(p.id).is_some_and(|n| n.role == ClusterRole::Manager);
    peers.iter().filter(is_manager).cloned().collect()
}

fn all_peers(shared: &Shared) -> Vec<Peer> {
    let inventory = shared.inventory();
    let peer = |n: &crate::model::Node| Peer {
        name: n.name().clone(),
        id: n.id,
        gossip_addr: n.spec.gossip.clone(),
        api_addr: n.spec.api.clone(),
        public_key: n.spec.public_key.clone(),
    };
    inventory.nodes.values().map(|n| peer(n)).collect()
}

/// What admits machines: the CA, the gossip key, and a limit on attempts.
pub struct JoinParts {
    pub shared: Arc<Shared>,
    pub ca: ClusterCa,
    pub gossip_key: GossipKey,
}

pub struct JoinDesk {
    parts: JoinParts,
    limit: RateLimit,
    /// One admission at a time for a name, so that two can't both be granted.
    busy: Mutex<BTreeSet<String>>,
}

impl JoinDesk {
    pub fn new(parts: JoinParts) -> Self {
        let limit = RateLimit::new(20, std::time::Duration::from_secs(1));
        Self { parts, limit, busy: Mutex::default() }
    }
}

/// Accepts a machine that knows the secret: node id, certificate, gossip key, peers; a manager also gets its Raft id.
/// The same key under the same name joins as the same node. Followers answer `not-leader` with the leader's address.
pub async fn join(
    State(desk): State<Arc<JoinDesk>>,
    from: PeerAddr,
    Json(request): Json<JoinRequest>,
) -> Result<axum::Json<JoinReply>, Failure> {
    desk.limit.admit(from)?;
    let shared = &desk.parts.shared;
    let status = shared.raft.status().borrow().clone();
    if !status.is_leader {
        let leader = status.leader.and_then(|id| status.voters.get(&id).cloned());
        let failure = Failure::new(Code::NotLeader, "another manager leads");
        return Err(failure.details(serde_json::json!({"leader": leader})));
    }
    request.check().map_err(|e| Failure::new(Code::BadRequest, e.to_string()))?;
    let inventory = shared.inventory();
    let ticket = ticket(&inventory, &request)?;
    let name = request.name.to_string();
    let _turn = desk.turn(name)?;
    admit(&desk, request, ticket).await.map(axum::Json)
}

/// While it lives its name is admitted nowhere else. It ends with the request, also where the client goes away first.
struct Turn<'a> {
    desk: &'a JoinDesk,
    name: String,
}

impl JoinDesk {
    fn turn(&self, name: String) -> Result<Turn<'_>, Failure> {
        if !self.busy().insert(name.clone()) {
            return Err(Failure::new(Code::Retry, format!("{name} is being admitted right now")));
        }
        Ok(Turn { desk: self, name })
    }

    fn busy(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.busy.lock().unwrap_or_else(|p| p.into_inner())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.desk.busy().remove(&self.name);
    }
}

/// By what a machine comes in.
#[derive(Clone, Copy)]
enum Ticket {
    Token,
    Invite(Sha256),
}

/// The applied state decides again when the machine is accepted.
fn ticket(inventory: &Inventory, request: &JoinRequest) -> Result<Ticket, Failure> {
    let hash = request.secret.hash();
    let by_manager_token = request.secret.matches(&inventory.manager_secret);
    let by_token = by_manager_token || request.secret.matches(&inventory.worker_secret);
    // Looked up by its hash: how long that takes tells nothing of a secret.
    let invite = inventory.invites.get(&hash).filter(|_| !by_token);
    let as_manager = match invite {
        Some(invite) if !invite.admits(&request.name, &request.node_public_key, wall()) => {
            let text = format!("this token is for {}, once, until {}", invite.name, wire::rfc3339(invite.expires));
            return Err(Failure::new(Code::BadToken, text).next("remoor node add again"));
        }
        Some(invite) if invite.role == ClusterRole::Manager && !request.want_manager => {
            return Err(Failure::new(Code::BadToken, "this token is a manager's").next("remoor join --manager"));
        }
        Some(invite) => invite.role == ClusterRole::Manager,
        None if by_manager_token && !request.want_manager => {
            return Err(Failure::new(Code::BadToken, "this token is a manager's")
                .next("remoor join --manager, or take the worker token"));
        }
        None if by_token => by_manager_token,
        None => {
            return Err(Failure::new(Code::BadToken, "this token's secret is not valid here")
                .next("take the token that `remoor init` printed"));
        }
    };
    if request.want_manager && !as_manager {
        return Err(Failure::new(Code::BadToken, "this token admits workers only").next("use the manager token"));
    }
    let known = inventory.names.get(&request.name).and_then(|id| inventory.nodes.get(id));
    let same = known.is_some_and(|n| n.spec.public_key == request.node_public_key);
    if same && !request.want_manager && known.is_some_and(|n| n.role == ClusterRole::Manager) {
        let text = format!("{} was admitted as a manager already", request.name);
        return Err(Failure::new(Code::Conflict, text).next("remoor join --manager, with the manager token"));
    }
    Ok(if invite.is_some() { Ticket::Invite(hash) } else { Ticket::Token })
}

async fn admit(desk: &JoinDesk, request: JoinRequest, ticket: Ticket) -> Result<JoinReply, Failure> {
    let shared = &desk.parts.shared;
    let spec = NodeSpec {
        name: request.name.clone(),
        api: request.advertise.clone(),
        gossip: request.gossip_addr.clone(),
        public_key: request.node_public_key.clone(),
        ssh_host_keys: request.ssh_host_keys.clone(),
        machine_id: request.machine_id.clone(),
        version: request.version.clone(),
    };
    let role = if request.want_manager { ClusterRole::Manager } else { ClusterRole::Worker };
    let by = format!("join from {}", request.advertise);
    let accept = match ticket {
        Ticket::Token => Command::Accept { spec, role },
        Ticket::Invite(secret) => Command::AcceptInvited { spec, secret },
    };
    let Applied::Node(node) = propose(shared, &by, accept).await? else {
        return Err(Failure::new(Code::Internal, "an answer that does not fit the entry"));
    };
    let raft: Option<RaftId> = if request.want_manager {
        match propose(shared, &by, Command::Grant { node, founder: false }).await? {
            Applied::Raft(id) => Some(id),
            _ => return Err(Failure::new(Code::Internal, "an answer that does not fit the entry")),
        }
    } else {
        None
    };
    let inventory = shared.inventory();
    let ca = &desk.parts.ca;
    let validity = Validity::days_from_now(CERTIFICATE_DAYS);
    let cert_pem = ca
        .issue_node(node, &request.name, inventory.epoch, &request.tls_csr_pem, validity)
        .map_err(|e| Failure::new(Code::BadRequest, e.to_string()))?;
    let peers = all_peers(shared);
    let managers = managers_of(&inventory, &peers).into_iter().filter(|p| p.id != node).collect();
    Ok(JoinReply {
        cluster: inventory.cluster.clone(),
        epoch: inventory.epoch,
        node,
        name: request.name,
        raft,
        cert_pem,
        ca_pem: ca.cert_pem().to_owned(),
        gossip_key_hex: desk.parts.gossip_key.to_hex(),
        peers,
        managers,
        ssh_key: shared.ssh_line(),
    })
}
