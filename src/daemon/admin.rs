//! `init` creates a cluster with one node; `join` adds this machine to a cluster. After success
//! `remoor agent` can start from the data directory. After an error nothing blocks the next
//! attempt.

use super::incomplete_init::{self, UnfinishedCommand};
use super::layout::{Layout, NodeConfig};
use super::transport::NoTransport;
use crate::manager::wall;
use remoor_cluster::raft::{Raft, RaftConfig, RaftError};
use remoor_cluster::rpc::ca::{ClusterCa, Validity};
use remoor_cluster::rpc::client::ApiError;
use remoor_cluster::rpc::dial_back::{self, DialBackResponder};
use remoor_cluster::rpc::identity::{
    Credentials, GossipKey, IdentityError, NodeKey, TlsIdentity, certificate_key, certificate_not_after, fingerprint,
};
use remoor_cluster::rpc::join::{JoinError, JoinReply, JoinRequest, NAME_RULE, PeerInfo};
use remoor_cluster::rpc::token::{Secret, Token, TokenError, has_ca_digest};
use remoor_cluster::rpc::wire::Code;
use remoor_exec::ssh::{ClusterKey, KeyError};
use remoor_host::disk::{DiskError, Identity};
use remoor_model::{
    Applied, ClusterId, ClusterRole, Command, Epoch, INIT_OPERATOR, Inventory, InventoryEntry, NodeId, NodeName,
    NodeSpec, RaftId, Wall, ca_id, reserved_by_ansible,
};
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Start of the year 2025. An earlier clock is wrong, because this program was built later.
const CLOCK_MIN: Wall = Wall(1_735_689_600_000);
const ELECTION_PATIENCE: Duration = Duration::from_secs(30);
/// Interval of the join requests while the machine waits for an operator to accept it.
const ASK_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct InitOptions {
    pub dir: PathBuf,
    pub name: String,
    pub config: NodeConfig,
    /// Directory with the public host keys of sshd.
    pub ssh_host_keys: PathBuf,
    /// Whether the node starts drained, so that nothing is provisioned on it.
    pub drain: bool,
    /// Failure domain of the machine; an empty text if it is unknown.
    pub zone: String,
    /// The gossip key; None generates a random key.
    pub gossip_key: Option<GossipKey>,
}

#[derive(Debug, Clone)]
pub struct InitOutcome {
    pub worker_token: String,
    pub manager_token: String,
    /// Credentials of the operator who ran `init`, mode 0600.
    pub operator: PathBuf,
    /// The line for `authorized_keys` of the nodes, with the public key of the managers.
    pub ssh_key: String,
}

#[derive(Debug, Clone)]
pub struct JoinOptions {
    pub dir: PathBuf,
    pub name: String,
    pub config: NodeConfig,
    /// Directory with the public host keys of sshd.
    pub ssh_host_keys: PathBuf,
    /// `host:port` of any manager.
    pub addr: String,
    pub token: String,
    pub manager: bool,
    /// Whether the node starts drained, so that nothing is provisioned on it.
    pub drain: bool,
    /// Failure domain of the machine; an empty text if it is unknown.
    pub zone: String,
    /// Maximum wait for an operator to accept the node. It applies if the token contains no secret.
    pub wait: Duration,
}

/// Errors of `init` and `join`. The files of a failed attempt do not block the next attempt. The
/// next attempt reuses the node's key. A marker shows that the failed attempt was not completed, so
/// the next attempt may remove all other files.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("the data directory can't be used")]
    Disk(#[from] DiskError),
    /// The data directory belongs to a node already. `whose` and `cluster` together name that
    /// node's cluster in the message, for example `another cluster`. `next` names the command that
    /// helps.
    #[error("{} already belongs to node {name} of {whose} cluster; next: {next}", dir.display())]
    Taken { dir: PathBuf, name: NodeName, whose: &'static str, next: &'static str },
    #[error("remoor runs on {} already ({holder}); next: remoor status, or systemctl stop remoor", dir.display())]
    Running { dir: PathBuf, holder: String },
    /// The data directory contains a log or a CA, but no identity. Nothing in it was changed.
    #[error(
        "{} holds {found}/ but no identity.json: it belonged to a node and is not overwritten; next: put \
         identity.json back, or move the directory away", dir.display()
    )]
    Leftover { dir: PathBuf, found: &'static str },
    #[error(
        "the clock of this machine shows {0}, before this program was built: its certificates would be invalid; \
         next: set the clock (timedatectl set-ntp true), then the same command"
    )]
    Clock(String),
    /// A name or an address can't be used. Nothing was created.
    #[error("{0}")]
    Address(String),
    #[error("keys and certificates could not be created")]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    SshKey(#[from] KeyError),
    #[error("the log could not be started")]
    Raft(#[from] RaftError),
    #[error("a first entry was not applied: {0}")]
    Entry(String),
    #[error("the token can't be read")]
    Token(#[from] TokenError),
    #[error("joining failed")]
    Join(#[from] JoinError),
}

impl AdminError {
    /// Whether the error was found before anything was changed.
    pub fn is_refusal(&self) -> bool {
        let directory = matches!(self, Self::Disk(DiskError::Foreign(_) | DiskError::TooNew { .. }));
        directory || matches!(self, Self::Taken { .. } | Self::Running { .. } | Self::Leftover { .. } | Self::Clock(_))
    }
}

/// Creates the CA, the gossip key, the SSH key, the join secrets and the first four log entries.
/// The directory counts as unfinished until [`super::mark_tokens_printed`] is called or a daemon
/// has run on it. On an unfinished directory, the next `init` begins again with a new cluster.
pub async fn init(options: &InitOptions) -> Result<InitOutcome, AdminError> {
    let layout = Layout(options.dir.clone());
    check_options(&options.name, &options.config)?;
    check_clock(wall())?;
    let data = incomplete_init::open(&options.dir)?;
    if let Some(identity) = data.identity()?
        && !incomplete_init::discard_unprinted_init(&options.dir)?
    {
        let (dir, name, whose) = (options.dir.clone(), identity.name, "a");
        let next = "systemctl start remoor; or, for another cluster, init --force, which renames the directory";
        return Err(AdminError::Taken { dir, name, whose, next });
    }
    incomplete_init::clear(&options.dir)?;
    incomplete_init::begin(&options.dir, UnfinishedCommand::Cluster)?;
    let cluster = ClusterId(random_hex(8)?);
    let name = NodeName(options.name.clone());
    let ca = ClusterCa::create(&cluster)?;
    let gossip_key = options.gossip_key.clone().map_or_else(GossipKey::generate, Ok)?;
    let (worker, manager) = (Secret::generate()?, Secret::generate()?);
    let key = NodeKey::load_or_create(&options.dir)?;
    let epoch = Epoch(1);
    let api = options.config.api().to_string();
    let raft_config = RaftConfig {
        dir: layout.raft(),
        id: RaftId(1),
        cluster: cluster.clone(),
        epoch,
        timing: remoor_cluster::raft::RaftTiming::default(),
    };
    let (raft, _applied) = Raft::<Inventory>::start(raft_config, Arc::new(NoTransport)).await?;
    raft.initialize(api.clone()).await?;
    let spec = NodeSpec {
        name: name.clone(),
        api: api.clone(),
        gossip: options.config.gossip().to_string(),
        public_key: hex::encode(key.public()),
        ssh_host_keys: own_host_keys(&options.ssh_host_keys),
        machine_id: machine_id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        drain: options.drain,
        zone: options.zone.clone(),
        boot: boot(),
    };
    let operator = ca.issue_operator(INIT_OPERATOR, Validity::days_from_now(365))?;
    let first = first_entries(&raft, epoch, &ca, [&worker, &manager], spec, &operator).await;
    raft.shutdown().await;
    let node = first?;
    ca.save(&layout.ca())?;
    let ssh_key = ClusterKey::create(&cluster)?;
    ssh_key.save(&layout.ssh_key())?;
    let cert_pem =
        ca.issue_as(true, node, &name, epoch, &key.csr_pem()?, Validity::valid_for(options.config.certificate_life()))?;
    let credentials = Credentials {
        cluster: cluster.clone(),
        epoch,
        node,
        name: name.clone(),
        ca_pem: ca.cert_pem().to_owned(),
        cert_pem,
        key_pem: key.to_pem()?,
        gossip_key,
        gossip_others: Vec::new(),
    };
    credentials.save(&options.dir)?;
    operator.save(&layout.operator())?;
    options.config.save(&options.dir)?;
    let own = PeerInfo {
        name: name.clone(),
        id: node,
        gossip_addr: options.config.gossip().to_string(),
        api_addr: api,
        public_key: hex::encode(key.public()),
    };
    let own = std::slice::from_ref(&own);
    save_peers(&layout, own, own)?;
    let mut identity = Identity::new(cluster, epoch, node, name)?;
    (identity.raft, identity.log_begun) = (Some(RaftId(1)), true);
    data.store_identity(&identity)?;
    Ok(InitOutcome {
        worker_token: Token::new(ca.cert_pem(), worker)?.reveal(),
        manager_token: Token::new(ca.cert_pem(), manager)?.reveal(),
        operator: layout.operator(),
        ssh_key: ssh_key.line(),
    })
}

async fn first_entries(
    raft: &Raft<Inventory>,
    epoch: Epoch,
    ca: &ClusterCa,
    [worker, manager]: [&Secret; 2],
    spec: NodeSpec,
    operator: &TlsIdentity,
) -> Result<NodeId, AdminError> {
    let init = Command::Init {
        cluster: operator.cluster.clone(),
        epoch,
        ca_pem: ca.cert_pem().to_owned(),
        worker_secret: worker.hash(),
        manager_secret: manager.hash(),
    };
    propose(raft, init).await?;
    let Applied::Node(node) = propose(raft, Command::Accept { spec, role: ClusterRole::Manager }).await? else {
        return Err(AdminError::Entry("the node was not accepted".to_owned()));
    };
    propose(raft, Command::Grant { node, founder: true }).await?;
    let operator = Command::MakeOperator {
        name: INIT_OPERATOR.to_owned(),
        key: hex::encode(certificate_key(&operator.cert_pem)?),
        ca: ca_id(ca.cert_pem()),
        until: certificate_not_after(&operator.cert_pem)?,
        enforce: true,
    };
    propose(raft, operator).await?;
    Ok(node)
}

/// Proposes one of the first commands in the log of a new cluster. The proposal is repeated until
/// this machine, the only member, has been elected as leader.
async fn propose(raft: &Raft<Inventory>, command: Command) -> Result<Applied, AdminError> {
    let mut last = String::new();
    for _ in 0..100 {
        let entry = InventoryEntry { at: wall(), by: "init".to_owned(), command: command.clone() };
        match raft.propose(entry).await {
            Ok((_, Applied::Refused(refusal))) => return Err(AdminError::Entry(refusal.message)),
            Ok((_, applied)) => return Ok(applied),
            Err(error @ remoor_cluster::raft::ProposeError::NotLeader { .. }) => last = error.to_string(),
            Err(error) => return Err(AdminError::Entry(error.to_string())),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(AdminError::Entry(last))
}

/// Asks a manager for an identity and stores the identity. `tell` receives the messages for the
/// user while the command runs.
pub async fn join(options: &JoinOptions, tell: &mut dyn FnMut(&str)) -> Result<JoinReply, AdminError> {
    let layout = Layout(options.dir.clone());
    let token = Token::parse(&options.token)?;
    check_options(&options.name, &options.config)?;
    check_clock(wall())?;
    let data = incomplete_init::open(&options.dir)?;
    let before = data.identity()?;
    match &before {
        Some(identity) if !incomplete_init::has_left(&options.dir) => {
            return Err(taken_error(options, identity.name.clone(), &token));
        }
        // This node left its cluster. The managers give the machine a new identity, and the files
        // of the old node are overwritten. The CA among these files is not used to verify the
        // managers, because the cluster may have replaced it in the meantime.
        Some(_) => {}
        None => incomplete_init::clear(&options.dir)?,
    }
    let key = NodeKey::load_or_create(&options.dir)?;
    let request = JoinRequest {
        secret: Secret::default(),
        proof: String::new(),
        name: NodeName(options.name.clone()),
        advertise: options.config.api().to_string(),
        gossip_addr: options.config.gossip().to_string(),
        node_public_key: hex::encode(key.public()),
        tls_csr_pem: key.csr_pem()?,
        ssh_host_keys: own_host_keys(&options.ssh_host_keys),
        machine_id: machine_id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        want_manager: options.manager,
        drain: options.drain,
        zone: options.zone.clone(),
        boot: boot(),
        now: None,
        cluster: before.map(|identity| identity.cluster),
    };
    let answering = start_dial_back_responder(&options.config, &key).await?;
    let reply = ask(options, &token, request, tell).await?;
    drop(answering);
    incomplete_init::begin(&options.dir, UnfinishedCommand::Node)?;
    reply.credentials(&key)?.save(&options.dir)?;
    options.config.save(&options.dir)?;
    save_peers(&layout, &reply.peers, &reply.managers)?;
    let mut identity = Identity::new(reply.cluster.clone(), reply.epoch, reply.node, reply.name.clone())?;
    identity.raft = reply.raft;
    data.store_identity(&identity)?;
    incomplete_init::clear_left_mark(&options.dir)?;
    incomplete_init::end(&options.dir)?;
    Ok(reply)
}

fn taken_error(options: &JoinOptions, name: NodeName, token: &Token) -> AdminError {
    let ca =
        Credentials::load(&options.dir).ok().flatten().and_then(|c| has_ca_digest(&c.ca_pem, token.ca_digest()).ok());
    let (whose, next) = match ca == Some(true) {
        true => ("the token's", "systemctl start remoor: the node has joined already"),
        false if ca.is_none() => ("a", "put credentials.json back: without it the cluster can't be determined"),
        false => ("another", "move the directory away, then the same command"),
    };
    AdminError::Taken { dir: options.dir.clone(), name, whose, next }
}

/// Rejects a name or addresses that a manager would refuse, and an address that no other node could
/// dial.
fn check_options(name: &str, config: &NodeConfig) -> Result<(), AdminError> {
    remoor_cluster::rpc::join::check_name(&NodeName(name.to_owned())).map_err(|_| {
        let why =
            reserved_by_ansible(name).map_or(NAME_RULE.to_owned(), |means| format!("in an inventory it means {means}"));
        AdminError::Address(format!("{name:?} can't be the name of a node ({why}); next: --name as in your inventory"))
    })?;
    config.check().map_err(AdminError::Address)
}

/// Listens for the leader, which dials this machine before it accepts the join.
async fn start_dial_back_responder(config: &NodeConfig, key: &NodeKey) -> Result<DialBackResponder, AdminError> {
    let (bind, api) = (config.api_bind(), config.api().to_string());
    dial_back::start_answering(bind, &api, key.signing_key()).await.map_err(|error| {
        let next = match error.kind() {
            std::io::ErrorKind::AddrInUse => "stop the process that listens there, or choose another --api-port",
            _ => "--advertise with an address of this machine; behind NAT, --bind with the local address",
        };
        AdminError::Address(format!("can't listen at {bind}: {error}; next: {next}"))
    })
}

/// Rejects a clock before 2025. Certificates are valid from one day before the clock time of their
/// issuer, so a wrong clock creates invalid certificates.
fn check_clock(now: Wall) -> Result<(), AdminError> {
    if now < CLOCK_MIN { Err(AdminError::Clock(remoor_cluster::rpc::wire::rfc3339(now))) } else { Ok(()) }
}

/// Addresses of managers, as reported by nodes that are not managers (docs/design/scenarios.md,
/// E27). A limited number of them is asked, each once. Each manager at such an address must prove
/// that it belongs to the token's cluster.
#[derive(Debug, Default)]
struct NamedManagers {
    known: BTreeSet<String>,
    next: VecDeque<String>,
}

const NAMED_MAX: usize = 8;

impl NamedManagers {
    /// The next address to ask after this error. The result is Some only if a worker answered, or
    /// if a manager that a worker reported can't be reached.
    fn next_manager_after(&mut self, error: &ApiError) -> Option<String> {
        match error {
            ApiError::Status { code, details, .. } if code == Code::NotLeader.as_str() => {
                for addr in details["managers"].as_array()?.iter().filter_map(|addr| addr.as_str()) {
                    if self.known.len() < NAMED_MAX && self.known.insert(addr.to_owned()) {
                        self.next.push_back(addr.to_owned());
                    }
                }
            }
            ApiError::Unreachable { .. } | ApiError::Identity { .. } => {}
            _ => return None,
        }
        self.next.pop_front()
    }
}

/// Sends the join request until it succeeds. It follows the managers to their leader and waits for
/// an election to end. It also waits until an operator accepts the node, at most `options.wait`. A
/// repeated request with the same key is safe.
async fn ask(
    options: &JoinOptions,
    token: &Token,
    request: JoinRequest,
    tell: &mut dyn FnMut(&str),
) -> Result<JoinReply, JoinError> {
    let mut at = options.addr.clone();
    // The address that is asked again when no leader is known.
    let mut home = at.clone();
    let mut named = NamedManagers::default();
    let begun = Instant::now();
    // The last time at which a manager accepted requests.
    let mut heard = begun;
    let mut told = false;
    loop {
        let error = match remoor_cluster::rpc::join::join(&at, token, request.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let JoinError::Api { source, .. } = &error else { return Err(error) };
        if let Some(manager) = named.next_manager_after(source) {
            (at, home) = (manager.clone(), manager);
            continue;
        }
        let ApiError::Status { code, details, .. } = source else {
            // The manager may be restarting, so the request is repeated for a while. Before the
            // first `Pending` answer, an unreachable manager is an error.
            if !told || !matches!(source, ApiError::Unreachable { .. }) || heard.elapsed() > ELECTION_PATIENCE {
                return Err(error);
            }
            at = home.clone();
            tokio::time::sleep(ASK_AGAIN).await;
            continue;
        };
        if code == Code::Pending.as_str() {
            if !told {
                let fingerprint = fingerprint(&request.node_public_key);
                let name = &request.name;
                tell(&format!("{name} waits to be accepted; its key has the fingerprint {fingerprint}"));
                tell(&format!("next: compare the fingerprint in remoor nodes on a manager, then remoor accept {name}"));
            }
            (told, heard) = (true, Instant::now());
            if begun.elapsed() >= options.wait {
                return Err(error);
            }
            tokio::time::sleep(ASK_AGAIN.min(options.wait.saturating_sub(begun.elapsed()))).await;
            continue;
        }
        if told && code == Code::RateLimited.as_str() && begun.elapsed() < options.wait {
            heard = Instant::now();
        }
        let passing = matches!(code.as_str(), "not-leader" | "retry" | "no-quorum" | "rate-limited");
        let passing = passing && details["managers"].is_null();
        if !passing || heard.elapsed() > ELECTION_PATIENCE {
            return Err(error);
        }
        at = details["leader"].as_str().unwrap_or(&home).to_owned();
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
}

pub(super) fn save_peers(layout: &Layout, peers: &[PeerInfo], managers: &[PeerInfo]) -> Result<(), DiskError> {
    let bytes = serde_json::to_vec_pretty(&(peers, managers)).unwrap_or_default();
    remoor_host::disk::atomic_write(&layout.peers(), &bytes, 0o600)
}

/// The public host keys of this machine's sshd, read from its files. The managers check them at the
/// first login.
pub(super) fn own_host_keys(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.filter_map(|e| Some(e.ok()?.path()));
    let keys = paths.filter(|p| is_public_host_key(p)).filter_map(|p| std::fs::read_to_string(p).ok());
    let mut keys: Vec<String> = keys
        .map(|text| text.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .filter(|k| !k.is_empty())
        .collect();
    keys.sort();
    keys
}

fn is_public_host_key(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("ssh_host_") && n.ends_with("_key.pub"))
}

pub(super) fn boot() -> String {
    remoor_host::disk::boot_id().map(|boot| boot.as_str().to_owned()).unwrap_or_default()
}

pub(super) fn machine_id() -> String {
    std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

pub(super) fn random_hex(bytes: usize) -> Result<String, AdminError> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|e| AdminError::Entry(format!("no randomness: {e}")))?;
    Ok(hex::encode(random))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn options(dir: &Path) -> InitOptions {
        let config = NodeConfig {
            advertise: std::net::Ipv4Addr::LOCALHOST.into(),
            bind: None,
            api_port: 7947,
            gossip_port: 7946,
            metrics: None,
            certificate_life_s: None,
            join_requests: None,
        };
        let (drain, zone) = (false, String::new());
        InitOptions {
            dir: dir.to_owned(),
            name: "m1".to_owned(),
            config,
            ssh_host_keys: dir.join("no-keys"),
            drain,
            zone,
            gossip_key: None,
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tokens_that_nobody_was_told_are_made_anew_and_told_ones_stay_good() {
        let dir = tempfile::tempdir().expect("a folder");
        let options = options(&dir.path().join("d"));
        let lost = init(&options).await.expect("a cluster");
        // The state after a kill before the tokens were printed: all files exist, but nobody knows
        // the tokens.
        let told = init(&options).await.expect("another cluster");
        assert_ne!(lost.worker_token, told.worker_token);
        super::super::mark_tokens_printed(&options.dir).expect("told");
        let identity = || std::fs::read(options.dir.join("identity.json")).expect("an identity");
        let before = identity();
        assert!(matches!(init(&options).await, Err(AdminError::Taken { .. })));
        assert_eq!(identity(), before);
    }

    #[test]
    fn what_means_something_else_in_an_inventory_is_no_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let config = options(dir.path()).config;
        for name in ["all", "ungrouped", "localhost", "LocalHost"] {
            let error = check_options(name, &config).expect_err("refused").to_string();
            assert!(error.contains("in an inventory it means") && error.contains("--name"), "{error}");
        }
        assert!(check_options("all-in-one", &config).is_ok());
    }

    #[test]
    fn managers_that_were_named_are_asked_once_each_and_so_many_at_most() {
        let refused = |code: Code, details: serde_json::Value| ApiError::Status {
            code: code.as_str().to_owned(),
            message: String::new(),
            next: None,
            details: Box::new(details),
            http: 0,
        };
        let names = |managers: &[&str]| refused(Code::NotLeader, serde_json::json!({ "managers": managers }));
        let silent = ApiError::Unreachable { addr: String::new(), reason: String::new() };
        let stranger = ApiError::Identity { addr: String::new(), reason: String::new() };
        let mut named = NamedManagers::default();
        assert_eq!(named.next_manager_after(&silent), None, "nobody was named");
        assert_eq!(
            named.next_manager_after(&refused(Code::NotLeader, serde_json::json!({ "leader": "c" }))),
            None,
            "followed as ever"
        );
        assert_eq!(named.next_manager_after(&names(&["a", "b"])).as_deref(), Some("a"));
        assert_eq!(named.next_manager_after(&refused(Code::BadToken, serde_json::Value::Null)), None, "its word holds");
        assert_eq!(named.next_manager_after(&names(&["a", "b", "c"])).as_deref(), Some("b"), "a was none either");
        assert_eq!(named.next_manager_after(&stranger).as_deref(), Some("c"));
        assert_eq!(named.next_manager_after(&names(&["a", "b"])), None);
        let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let mut error = names(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let asked = std::iter::from_fn(|| named.next_manager_after(&std::mem::replace(&mut error, silent.clone())));
        assert_eq!(asked.count(), NAMED_MAX - 3);
    }

    #[test]
    fn a_clock_of_before_the_program_is_refused() {
        let error = check_clock(Wall(86_400_000)).expect_err("1970").to_string();
        assert!(error.contains("1970-01-02") && error.contains("timedatectl"), "{error}");
        assert!(check_clock(wall()).is_ok());
    }
}
