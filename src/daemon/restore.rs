//! `restore`: turns an empty data directory into that of the only manager of a new epoch, with the
//! state of a backup.

use super::admin::{self, AdminError};
use super::incomplete_init::{self, UnfinishedCommand};
use super::layout::{Layout, NodeConfig};
use super::recover::{
    ASK_WITHIN, NodePlacement, PositionAnswer, RecoverError, moved_addresses, next_epoch, query_position,
};
use crate::manager::api::managers_of;
use crate::manager::backup::{BackupError, ClusterBackup, Head};
use crate::manager::{Authorities, wall};
use remoor_cluster::raft::{LastState, RaftConfig, RaftError};
use remoor_cluster::rpc::ca::{NODE_LIFE, Validity};
use remoor_cluster::rpc::client::Client;
use remoor_cluster::rpc::identity::{Credentials, IdentityError, NodeKey};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::position::PositionReply;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::wire::rfc3339;
use remoor_host::disk::{BlobStore, DiskError, Identity, atomic_write};
use remoor_model::{ClusterRebuild, Epoch, Inventory, NodeId, RaftId};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory with the public host keys of the SSH server.
const SSH_HOST_KEYS: &str = "/etc/ssh";

#[derive(Debug, Clone, Default)]
pub struct RestoreOptions {
    pub dir: PathBuf,
    pub file: PathBuf,
    /// File with the private key of an encrypted backup.
    pub identity: Option<PathBuf>,
    /// Name of the operator, for the journal.
    pub by: String,
    /// Name of the node that this machine becomes; None for the node that made the backup.
    pub name: Option<String>,
    pub places: Vec<(String, NodePlacement)>,
    /// The epoch that the operator gave. The new epoch must be greater.
    pub epoch: Option<u64>,
    /// Continue even if a manager of the backup answers and follows a leader. The new epoch ends
    /// the cluster of that leader.
    pub even_if_majority_alive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    pub head: Head,
    pub name: String,
    pub api: String,
    pub epoch: Epoch,
    pub raft: RaftId,
    /// Names of the other managers in the backup's state. They are lost after the restore.
    pub lost: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The data directory belongs to a node already. It is unchanged.
    #[error("{} already belongs to node {name}", dir.display())]
    Taken { dir: PathBuf, name: String },
    /// A manager of the backup is alive and has a leader. No file of the attempted restore remains
    /// in the data directory.
    #[error("{by} answers and follows a live leader: {leader}; a restored manager ends that cluster")]
    HasLeader { by: String, leader: String },
    /// A manager of the backup answers, but with an error. No file of the attempted restore remains
    /// in the data directory.
    #[error("{by} answers, but not whether it follows a leader: {why}")]
    UnknownLeader { by: String, why: String },
    #[error("{0} is not in the backup; the cluster can't be restored without it")]
    MissingFile(&'static str),
}

impl From<AdminError> for RestoreError {
    fn from(error: AdminError) -> Self {
        Self::Recover(error.into())
    }
}

impl From<DiskError> for RestoreError {
    fn from(error: DiskError) -> Self {
        Self::Recover(error.into())
    }
}

impl From<IdentityError> for RestoreError {
    fn from(error: IdentityError) -> Self {
        Self::Recover(error.into())
    }
}

impl From<RaftError> for RestoreError {
    fn from(error: RaftError) -> Self {
        Self::Recover(error.into())
    }
}

/// Reads a backup and verifies all of it. `identity` has the private key of an encrypted backup.
/// Blocks.
pub fn verify(file: &Path, identity: Option<&Path>) -> Result<Head, BackupError> {
    ClusterBackup::read(file, identity).map(|backup| backup.head)
}

/// Restores a backup into the directory. The backup is verified before anything is written. If a
/// manager of the backup follows a leader, nothing remains in the directory. If the command is
/// killed, the next attempt removes its files. Blocks, and asks the managers.
pub async fn restore(options: &RestoreOptions) -> Result<Restored, RestoreError> {
    let layout = Layout(options.dir.clone());
    let ClusterBackup { head, mut state, blobs, files } =
        ClusterBackup::read(&options.file, options.identity.as_deref())?;
    let data = incomplete_init::open(&options.dir)?;
    if let Some(identity) = data.identity()? {
        return Err(RestoreError::Taken { dir: options.dir.clone(), name: identity.name.to_string() });
    }
    for name in ["node.key", "credentials.json", "ca/ca.key"] {
        if !files.contains_key(name) {
            return Err(RestoreError::MissingFile(name));
        }
    }
    let name = options.name.clone().unwrap_or_else(|| head.name.to_string());
    let node = state.by_name(&name).map(|n| n.id).ok_or_else(|| RecoverError::NoSuchNode(name.clone()))?;
    let places = moved_addresses(&state, &options.places)?;
    let config = own_address(&state, node, places.get(&node), files.get("node.json").filter(|_| node == head.node))?;
    config.check().map_err(AdminError::Address)?;
    incomplete_init::clear(&options.dir)?;
    incomplete_init::begin(&options.dir, UnfinishedCommand::Restored)?;

    for (path, bytes) in &files {
        let path = options.dir.join(path);
        if let Some(folder) = path.parent() {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(DiskError::io("creating directory", folder))?;
        }
        atomic_write(&path, bytes, 0o600)?;
    }
    if !options.even_if_majority_alive
        && let Err(error) = check_no_live_manager(&options.dir, &state).await
    {
        incomplete_init::clear(&options.dir)?;
        return Err(error);
    }
    let store = BlobStore::new(&layout.blobs())?;
    for bytes in blobs.values() {
        store.put(bytes)?;
    }
    config.save(&options.dir)?;

    let epoch = next_epoch(head.epoch.max(Epoch(options.epoch.unwrap_or(0))))?;
    let mut with = ClusterRebuild {
        epoch,
        founder: node,
        at: wall(),
        by: options.by.clone(),
        how: format!("restored from a backup of {}", rfc3339(head.made)),
        new_addresses: places.iter().map(|(id, (api, gossip))| (*id, (api.to_string(), gossip.to_string()))).collect(),
        next_ca: false,
    };
    with.new_addresses.insert(node, (config.api().to_string(), config.gossip().to_string()));
    let cas = Authorities::load(&options.dir.join("ca"))?;
    with.next_ca = state.authority.next.as_ref().is_some_and(|next| cas.for_certificate(&next.ca_pem).is_some());
    let raft = state.rebuild_cluster(&with).map_err(RecoverError::State)?;
    let key = credentials(&options.dir, node, &name, &head, &state, &cas)?;
    if let Some(founder) = state.nodes.get_mut(&node).map(Arc::make_mut) {
        let spec = &mut founder.spec;
        (spec.public_key, spec.machine_id, spec.boot) = (key, admin::machine_id(), admin::boot());
        spec.version = env!("CARGO_PKG_VERSION").to_owned();
        let keys = admin::own_host_keys(Path::new(SSH_HOST_KEYS));
        if !keys.is_empty() {
            spec.ssh_host_keys = keys;
        }
    }
    let lost = state.nodes.values().filter(|n| n.awaiting_role_decision).map(|n| n.name().to_string()).collect();
    let peers: Vec<PeerInfo> = state.nodes.values().map(|n| PeerInfo::for_node(n)).collect();
    admin::save_peers(&layout, &peers, &managers_of(&state))?;

    let cluster = state.cluster.clone();
    let settings = RaftConfig {
        dir: layout.raft(),
        id: raft,
        cluster: cluster.clone(),
        epoch,
        timing: remoor_cluster::raft::RaftTiming::default(),
    };
    let last = LastState { index: state.applied, term: head.term, voters: Default::default(), state };
    remoor_cluster::raft::seed(&settings, config.api().to_string(), last)?;
    let mut identity = Identity::new(cluster, epoch, node, name.as_str().into())?;
    (identity.raft, identity.log_begun) = (Some(raft), true);
    data.store_identity(&identity)?;
    incomplete_init::end(&options.dir)?;
    Ok(Restored { head, name, api: config.api().to_string(), epoch, raft, lost })
}

/// Asks the managers of the backup with the credentials in `dir`. Fails if one of them follows a
/// leader, or answers with an error.
async fn check_no_live_manager(dir: &Path, state: &Inventory) -> Result<(), RestoreError> {
    let credentials = Credentials::load(dir)?.ok_or(RestoreError::MissingFile("credentials.json"))?;
    let tls = ClientTls::member(&credentials.tls())?;
    let asked = managers_of(state).into_iter().map(|manager| {
        let client = Client::tls(manager.api_addr, &tls, Some(manager.id)).with_timeout(ASK_WITHIN);
        async move { (manager.name.to_string(), query_position(&client).await) }
    });
    for (by, said) in futures_util::future::join_all(asked).await {
        match said {
            PositionAnswer::Position(PositionReply { leader: Some(leader), .. }) => {
                return Err(RestoreError::HasLeader { by, leader });
            }
            PositionAnswer::OtherAnswer(why) => return Err(RestoreError::UnknownLeader { by, why }),
            PositionAnswer::Position(_) | PositionAnswer::NoLog(_) | PositionAnswer::Silent(_) => {}
        }
    }
    Ok(())
}

/// The address of the new manager. The first one that exists is used: the address that the operator
/// gave, the one in the backup's `node.json`, or the one in the state.
fn own_address(
    state: &remoor_model::Inventory,
    node: NodeId,
    place: Option<&(SocketAddr, SocketAddr)>,
    file: Option<&Vec<u8>>,
) -> Result<NodeConfig, RestoreError> {
    let before: Option<NodeConfig> = file.and_then(|bytes| serde_json::from_slice(bytes).ok());
    let entered = || {
        let spec = &state.node(node)?.spec;
        Some((spec.api.parse::<SocketAddr>().ok()?, spec.gossip.parse::<SocketAddr>().ok()?))
    };
    if let (None, Some(before)) = (place, before.clone()) {
        return Ok(before);
    }
    let unknown =
        || AdminError::Address("the address of this machine is unknown; next: --set-addr NODE=ADDR".to_owned());
    let (api, gossip) = place.copied().or_else(entered).ok_or_else(unknown)?;
    let kept = |b: NodeConfig| (b.metrics, b.certificate_life_s, b.join_requests);
    let (metrics, certificate_life_s, join_requests) = before.map_or((None, None, None), kept);
    Ok(NodeConfig {
        advertise: api.ip(),
        bind: None,
        api_port: api.port(),
        gossip_port: gossip.port(),
        metrics,
        certificate_life_s,
        join_requests,
    })
}

/// Writes the credentials with a new certificate. If this machine becomes the node that made the
/// backup, it keeps that node's key. Otherwise a new key is made. Returns the public key, in hex.
fn credentials(
    dir: &Path,
    node: NodeId,
    name: &str,
    head: &Head,
    state: &Inventory,
    cas: &Authorities,
) -> Result<String, RestoreError> {
    let epoch = state.epoch;
    let ca = cas.for_certificate(state.issuer()).ok_or(RestoreError::MissingFile("the key of the CA that issues"))?;
    let before = Credentials::load(dir)?.ok_or(RestoreError::MissingFile("credentials.json"))?;
    let key = if node == head.node { before.key()? } else { NodeKey::generate()? };
    let validity = Validity::valid_for(NODE_LIFE);
    let cert_pem = ca.issue_as(true, node, &name.into(), epoch, &key.csr_pem()?, validity)? + &state.cross_chain();
    let (ca_pem, key_pem) = (state.roots().concat(), key.to_pem()?);
    let now = Credentials { epoch, node, name: name.into(), ca_pem, cert_pem, key_pem, ..before };
    now.save(dir)?;
    Ok(hex::encode(key.public()))
}
