//! `recover`: rebuilds the cluster on a surviving manager after a permanent loss of the majority of
//! managers. The other managers are asked before anything is written, because they may be alive or
//! have a newer log.

use super::admin::AdminError;
use super::applied_watermark;
use super::epochs;
use super::incomplete_init;
use super::layout::{Layout, NodeConfig};
use super::rebuild::{self, RebuildError, RebuildResult};
use crate::manager::api::managers_of;
use crate::manager::{Authorities, wall};
use remoor_cluster::raft::{LastState, RaftConfig, RaftError, last_state};
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::identity::{Credentials, IdentityError};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::position::{NO_LOG, POSITION_PATH, PositionReply};
use remoor_cluster::rpc::tls::ClientTls;
use remoor_host::disk::{DataDir, DiskError, Identity};
use remoor_model::{ClusterRebuild, EPOCHS_A_SECOND, Epoch, Inventory, Node, NodeId, RaftId, Refusal, majority};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Timeout of one request for its log position to one address of a manager.
pub(super) const ASK_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    pub dir: PathBuf,
    /// Name of the operator, for the journal.
    pub by: String,
    /// New addresses of nodes, each with the name of its node.
    pub places: Vec<(String, NodePlacement)>,
    /// Continue even if a majority of the managers answers.
    pub even_if_majority_alive: bool,
    /// Continue even if another manager that answers has a newer log.
    pub even_if_behind: bool,
    /// Continue even if the log of this directory is older than the log that this manager once had.
    pub even_if_rolled_back: bool,
}

/// A new address of a node. The API and gossip ports are given only if they have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlacement {
    pub ip: IpAddr,
    pub ports: Option<(u16, u16)>,
}

impl std::str::FromStr for NodePlacement {
    type Err = String;

    /// Parses `10.0.0.5`, or `10.0.0.5:7947,7946` with the API port and the gossip port.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is neither IP nor IP:API_PORT,GOSSIP_PORT");
        if let Ok(ip) = text.parse() {
            return Ok(Self { ip, ports: None });
        }
        let (api, gossip) = text.split_once(',').ok_or_else(bad)?;
        let (api, gossip): (SocketAddr, u16) = (api.parse().map_err(|_| bad())?, gossip.parse().map_err(|_| bad())?);
        Ok(Self { ip: api.ip(), ports: Some((api.port(), gossip)) })
    }
}

impl NodePlacement {
    /// The new API and gossip addresses of the node.
    fn addresses_for(&self, node: &Node) -> (SocketAddr, SocketAddr) {
        let port = |addr: &str, usual: u16| addr.rsplit_once(':').and_then(|(_, p)| p.parse().ok()).unwrap_or(usual);
        let before = (port(&node.spec.api, 7947), port(&node.spec.gossip, 7946));
        let (api, gossip) = self.ports.unwrap_or(before);
        ((self.ip, api).into(), (self.ip, gossip).into())
    }
}

/// The new addresses of `--set-addr` for each node.
pub(super) fn moved_addresses(
    inventory: &Inventory,
    places: &[(String, NodePlacement)],
) -> Result<BTreeMap<NodeId, (SocketAddr, SocketAddr)>, RecoverError> {
    let of = |(name, place): &(String, NodePlacement)| {
        let node = inventory.by_name(name).ok_or_else(|| RecoverError::NoSuchNode(name.clone()))?;
        Ok((node.id, place.addresses_for(node)))
    };
    places.iter().map(of).collect()
}

/// The answer of another manager to the question for its log position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PositionAnswer {
    Position(PositionReply),
    /// The node is a manager that has lost its log, so it can't vote.
    NoLog(String),
    /// The manager answers the question with an error.
    OtherAnswer(String),
    Silent(String),
}

/// Another voter of the cluster, according to the data directory of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherManager {
    pub name: String,
    pub raft: RaftId,
    pub addr: String,
    pub said: PositionAnswer,
}

impl OtherManager {
    fn answers(&self) -> bool {
        !matches!(self.said, PositionAnswer::Silent(_))
    }

    fn position(&self) -> Option<&PositionReply> {
        if let PositionAnswer::Position(position) = &self.said { Some(position) } else { None }
    }
}

/// A reason against the recovery. The message of each reason names a next step for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    HasLeader {
        by: String,
        leader: String,
    },
    MajorityAlive {
        up: usize,
        of: usize,
        others: Vec<String>,
    },
    Superseded {
        by: String,
        epoch: Epoch,
    },
    Behind {
        survivor: String,
        term: u64,
        index: u64,
    },
    RolledBack {
        ends: u64,
        applied: u64,
    },
    /// A node that is a worker according to this directory proves a newer epoch. So the cluster was
    /// rebuilt on another machine.
    RebuiltElsewhere {
        by: String,
        epoch: Epoch,
    },
}

impl Objection {
    pub fn next(&self) -> String {
        match self {
            Self::HasLeader { .. } | Self::MajorityAlive { .. } => {
                "systemctl start remoor on this machine: it rejoins them; --even-if-majority-alive rebuilds the \
                 cluster regardless"
                    .to_owned()
            }
            Self::Superseded { by, .. } => {
                format!("systemctl start remoor on this machine: it archives its log; then remoor promote it on {by}")
            }
            Self::Behind { survivor, .. } => {
                format!(
                    "the same command on {survivor}; --even-if-behind discards the entries that only {survivor} has"
                )
            }
            Self::RebuiltElsewhere { by, epoch } => format!(
                "bring back the manager of epoch {epoch} (remoor status on {by} names it); --even-if-behind discards what was \
                 decided in that epoch"
            ),
            Self::RolledBack { ends, applied } => format!(
                "put the newer raft/ back, or run the same command on another survivor; --even-if-rolled-back discards what was \
                 decided in the entries {} to {applied}",
                ends + 1
            ),
        }
    }
}

impl std::fmt::Display for Objection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HasLeader { by, leader } => write!(f, "{by} answers and follows a live leader: {leader}"),
            Self::MajorityAlive { up, of, others } => {
                let others = if others.is_empty() { String::new() } else { format!(" ({} answer)", others.join(", ")) };
                write!(f, "{up} of {of} managers are up, including this one{others}: they are a majority")
            }
            Self::Superseded { by, epoch } => {
                write!(f, "{by} already has epoch {epoch}: the cluster was rebuilt without this manager")
            }
            Self::Behind { survivor, term, index } => {
                write!(f, "{survivor} has a newer log: it ends at entry {index} of term {term}")
            }
            Self::RebuiltElsewhere { by, epoch } => {
                write!(f, "{by} has a certificate of epoch {epoch}: the cluster was rebuilt on another machine since")
            }
            Self::RolledBack { ends, applied } => write!(
                f,
                "the log here ends at entry {ends}, but this manager had applied entry {applied}: it was restored from an \
                 older copy"
            ),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("{0}")]
    NodeFile(String),
    /// The directory does not belong to a manager, so no recovery is possible with it.
    #[error("{} does not belong to a manager: {why}", dir.display())]
    NoManager { dir: PathBuf, why: &'static str },
    /// Archives were to be deleted, but this manager has lost its log.
    #[error("this manager has lost its log, and an archive may be the only copy of it; nothing was deleted")]
    OnlyCopy,
    /// The directory does not belong to a node.
    #[error("{} does not belong to a node: {why}", dir.display())]
    NoNode { dir: PathBuf, why: &'static str },
    #[error("no node is called {0}")]
    NoSuchNode(String),
    #[error("the state can't be carried over: {}", .0.message)]
    State(Refusal),
    #[error("the log can't be read")]
    Log(#[from] RaftError),
    #[error(transparent)]
    Found(#[from] RebuildError),
}

impl From<DiskError> for RecoverError {
    fn from(error: DiskError) -> Self {
        Self::Admin(error.into())
    }
}

impl From<IdentityError> for RecoverError {
    fn from(error: IdentityError) -> Self {
        Self::Admin(error.into())
    }
}

/// The plan of a recovery, and the reasons against it. The directory stays locked until this value
/// is dropped.
pub struct Recovery {
    pub name: String,
    pub cluster: String,
    /// The epoch before and after the recovery.
    pub epochs: (Epoch, Epoch),
    pub raft: (RaftId, RaftId),
    /// Term and index of the last log entry in this directory.
    pub term: u64,
    pub index: u64,
    pub generation: u64,
    pub nodes: usize,
    /// Names of the nodes with an open attempt. The recovery ends these attempts.
    pub open: Vec<String>,
    pub others: Vec<OtherManager>,
    /// The remaining reasons against the recovery, after the given options were applied.
    pub objections: Vec<Objection>,
    data: DataDir,
    identity: Identity,
    config: NodeConfig,
    state: LastState<Inventory>,
}

impl Recovery {
    pub fn dir(&self) -> &std::path::Path {
        self.data.path()
    }
}

/// The result of [`prepare_recovery`].
pub enum RecoveryState {
    /// An interrupted recovery was completed.
    Finished(RebuildResult),
    Ready(Box<Recovery>),
}

/// Reads the directory and asks the other voters. No daemon may use the directory. Nothing is
/// changed, except that an interrupted recovery is completed.
pub async fn prepare_recovery(options: &RecoverOptions) -> Result<RecoveryState, RecoverError> {
    let none = |why| RecoverError::NoManager { dir: options.dir.clone(), why };
    if !options.dir.join("identity.json").exists() {
        return Err(none("it has no identity.json"));
    }
    let data = incomplete_init::open(&options.dir)?;
    if let Some(founded) = rebuild::finish(&data)? {
        return Ok(RecoveryState::Finished(founded));
    }
    let identity = data.identity()?.ok_or_else(|| none("it has no identity.json"))?;
    let credentials = Credentials::load(&options.dir)?.ok_or_else(|| none("it has no credentials.json"))?;
    let mut config = NodeConfig::load(&options.dir).map_err(RecoverError::NodeFile)?;
    let layout = Layout(options.dir.clone());
    let id = identity.raft.ok_or_else(|| none("its node is a worker"))?;
    if !layout.raft_log().exists() {
        return Err(none("its log is gone"));
    }
    let log = RaftConfig {
        dir: layout.raft(),
        id,
        cluster: identity.cluster.clone(),
        epoch: identity.epoch,
        timing: remoor_cluster::raft::RaftTiming::default(),
    };
    let mut last = last_state::<Inventory>(&log).await?;
    let places = moved_addresses(&last.state, &options.places)?;
    let others = ask(&last, &identity, &credentials, &places).await?;

    let peers: Vec<PeerInfo> = last.state.nodes.values().map(|n| PeerInfo::for_node(n)).collect();
    let tls = ClientTls::member(&credentials.tls())?;
    let own = identity.epoch.max(last.state.epoch);
    let elsewhere = epochs::proved_by(&peers, &managers_of(&last.state), &tls, own).await;
    let before = elsewhere.as_ref().map_or(own, |(_, epoch)| own.max(*epoch));
    let cas = Authorities::load(&options.dir.join("ca")).map_err(|_| none("the key of its CA can't be read"))?;
    if cas.for_certificate(last.state.issuer()).is_none() {
        return Err(none("the key of the current issuing CA is not in its ca/: recover on a manager that has it"));
    }
    let next = last.state.authority.next.as_ref();
    let with = ClusterRebuild {
        next_ca: next.is_some_and(|next| cas.for_certificate(&next.ca_pem).is_some()),
        epoch: next_epoch(before)?,
        founder: identity.node,
        at: wall(),
        by: options.by.clone(),
        how: "recovered without a majority".to_owned(),
        new_addresses: places.iter().map(|(id, (api, gossip))| (*id, (api.to_string(), gossip.to_string()))).collect(),
    };
    if let Some((api, gossip)) = places.get(&identity.node) {
        (config.advertise, config.api_port, config.gossip_port) = (api.ip(), api.port(), gossip.port());
    }
    config.check().map_err(AdminError::Address)?;
    let found = (last.term, last.index);
    let open = last.state.jobs.values().filter(|j| j.open_attempt().is_some());
    let open = open.filter_map(|j| Some(last.state.node(j.node)?.name().to_string())).collect();
    let applied = applied_watermark::load_index(&layout, &identity, id)?;
    let mut objections = objections(&identity, found, &last.voters, &others);
    if found.1 < applied {
        objections.push(Objection::RolledBack { ends: found.1, applied });
    }
    let superseded = objections.iter().any(|o| matches!(o, Objection::Superseded { .. }));
    if let Some((by, epoch)) = elsewhere.filter(|_| !superseded) {
        objections.push(Objection::RebuiltElsewhere { by: by.to_string(), epoch });
    }
    objections.retain(|o| match o {
        Objection::Behind { .. } | Objection::RebuiltElsewhere { .. } => !options.even_if_behind,
        Objection::RolledBack { .. } => !options.even_if_rolled_back,
        // The cluster continues without this node, and no option overrides that.
        Objection::Superseded { .. } => true,
        _ => !options.even_if_majority_alive,
    });
    let raft = last.state.rebuild_cluster(&with).map_err(RecoverError::State)?;
    last.index = last.state.applied;
    Ok(RecoveryState::Ready(Box::new(Recovery {
        name: identity.name.to_string(),
        cluster: identity.cluster.to_string(),
        epochs: (before, with.epoch),
        raft: (id, raft),
        term: found.0,
        index: found.1,
        generation: last.state.current.0,
        nodes: last.state.nodes.len(),
        open,
        others,
        objections,
        data,
        identity,
        config,
        state: last,
    })))
}

/// Carries out the recovery. It does not check the objections again.
pub fn recover(recovery: Recovery) -> Result<RebuildResult, RecoverError> {
    let Recovery { data, identity, config, state, raft, .. } = recovery;
    Ok(rebuild::rebuild_cluster(&data, &identity, state, raft.1, config)?)
}

/// A new epoch: the current time in seconds, followed by four random digits. So the later of two
/// epochs is greater, even if they were made from the same state on different machines. Two epochs
/// of the same second differ. The result is always greater than `before`.
pub(super) fn next_epoch(before: Epoch) -> Result<Epoch, RecoverError> {
    let mut dice = [0; 8];
    getrandom::fill(&mut dice).map_err(|e| AdminError::Entry(format!("no randomness: {e}")))?;
    let first = before.0.saturating_add(1).max(wall().0 / 1_000 * EPOCHS_A_SECOND);
    Ok(Epoch(first.saturating_add(u64::from_le_bytes(dice) % EPOCHS_A_SECOND)))
}

async fn ask(
    last: &LastState<Inventory>,
    identity: &Identity,
    credentials: &Credentials,
    places: &BTreeMap<NodeId, (SocketAddr, SocketAddr)>,
) -> Result<Vec<OtherManager>, RecoverError> {
    let tls = ClientTls::member(&credentials.tls())?;
    let voters = last.voters.iter().filter(|(id, _)| Some(**id) != identity.raft);
    let asked = voters.map(|(raft, entered)| {
        let node = last.state.raft_id_holder(*raft);
        let placed = node.and_then(|n| places.get(&n.id)).map(|(api, _)| api.to_string());
        let mut addrs: Vec<String> =
            placed.into_iter().chain(node.map(|n| n.spec.api.clone())).chain([entered.clone()]).collect();
        addrs.dedup();
        let name = node.map_or_else(|| format!("Raft id {raft}"), |n| n.name().to_string());
        let (tls, node) = (tls.clone(), node.map(|n| n.id));
        async move {
            let mut other =
                OtherManager { name, raft: *raft, addr: entered.clone(), said: PositionAnswer::Silent(String::new()) };
            for addr in addrs {
                let said = query_position(&Client::tls(addr.clone(), &tls, node).with_timeout(ASK_WITHIN)).await;
                if !other.answers() {
                    (other.addr, other.said) = (addr, said);
                }
            }
            other
        }
    });
    Ok(futures_util::future::join_all(asked).await)
}

/// Asks a manager for its log position.
pub(super) async fn query_position(client: &Client) -> PositionAnswer {
    match client.get::<PositionReply>(POSITION_PATH).await {
        Ok(position) => PositionAnswer::Position(position),
        Err(ApiError::Status { message, details, .. }) if details[NO_LOG] == true => PositionAnswer::NoLog(message),
        Err(ApiError::Status { message, .. }) => PositionAnswer::OtherAnswer(message),
        Err(error) => PositionAnswer::Silent(error.to_string()),
    }
}

/// The reasons against rebuilding the cluster from this directory. `found` is the term and index of
/// the last entry of the directory's log.
fn objections(
    identity: &Identity,
    found: (u64, u64),
    voters: &BTreeMap<RaftId, String>,
    others: &[OtherManager],
) -> Vec<Objection> {
    let mut objections = Vec::new();
    let newer = others.iter().filter_map(|o| Some((o, o.position()?))).find(|(_, p)| p.epoch > identity.epoch);
    if let Some((other, position)) = newer {
        objections.push(Objection::Superseded { by: other.name.clone(), epoch: position.epoch });
    }
    // A manager of another epoch, or without a log, does not count as a voter of the cluster that
    // this recovery would replace.
    let peers: Vec<&OtherManager> = others
        .iter()
        .filter(|o| o.answers() && !matches!(o.said, PositionAnswer::NoLog(_)))
        .filter(|o| o.position().is_none_or(|position| position.epoch == identity.epoch))
        .collect();
    let led = peers.iter().find_map(|o| Some((o, o.position()?.leader.clone()?)));
    if let Some((other, leader)) = led {
        objections.push(Objection::HasLeader { by: other.name.clone(), leader });
    }
    let own = usize::from(identity.raft.is_some_and(|id| voters.contains_key(&id)));
    let up = peers.len() + own;
    if up >= majority(voters.len()) {
        let others = peers.iter().map(|o| o.name.clone()).collect();
        objections.push(Objection::MajorityAlive { up, of: voters.len(), others });
    }
    let most = peers.iter().filter_map(|o| o.position().map(|p| (p.term, p.index, &o.name))).max();
    if let Some((term, index, name)) = most.filter(|(term, index, _)| (*term, *index) > found) {
        objections.push(Objection::Behind { survivor: name.clone(), term, index });
    }
    objections
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn identity() -> Identity {
        let mut identity = Identity::new("c1".into(), Epoch(4), NodeId(1), "m1".into()).expect("an identity");
        identity.raft = Some(RaftId(1));
        identity
    }

    fn voters(of: u64) -> BTreeMap<RaftId, String> {
        (1..=of).map(|id| (RaftId(id), format!("10.0.0.{id}:7947"))).collect()
    }

    fn other_manager(id: u64, said: PositionAnswer) -> OtherManager {
        OtherManager { name: format!("m{id}"), raft: RaftId(id), addr: String::new(), said }
    }

    fn position_at(epoch: u64, term: u64, index: u64, leader: Option<&str>) -> PositionAnswer {
        let leader = leader.map(str::to_owned);
        PositionAnswer::Position(PositionReply { epoch: Epoch(epoch), raft: RaftId(9), term, index, leader })
    }

    fn silent() -> PositionAnswer {
        PositionAnswer::Silent("nobody is there".to_owned())
    }

    #[test]
    fn a_majority_that_lives_and_a_live_leader_speak_against_it() {
        let object = |of: u64, others: &[OtherManager]| objections(&identity(), (3, 100), &voters(of), others);
        assert_eq!(object(3, &[other_manager(2, silent()), other_manager(3, silent())]), []);
        let two = |said: PositionAnswer| [other_manager(2, said), other_manager(3, silent())];
        assert!(matches!(
            &object(3, &two(position_at(4, 3, 100, None)))[..],
            [Objection::MajorityAlive { up: 2, of: 3, .. }]
        ));
        assert!(
            matches!(
                &object(3, &two(PositionAnswer::OtherAnswer("no such endpoint".to_owned())))[..],
                [Objection::MajorityAlive { .. }]
            ),
            "who answers is there"
        );
        let lost = || PositionAnswer::NoLog("m2 has lost its log".to_owned());
        assert_eq!(object(3, &[other_manager(2, lost()), other_manager(3, lost())]), [], "the main case");
        let five = |said: PositionAnswer| {
            [vec![other_manager(2, said)], (3..=5).map(|id| other_manager(id, silent())).collect()].concat()
        };
        assert_eq!(
            object(5, &five(position_at(4, 3, 90, None))),
            [],
            "two of five are no majority, and this one knows more"
        );
        let led = object(5, &five(position_at(4, 3, 100, Some("m7"))));
        assert!(
            matches!(&led[..], [Objection::HasLeader { leader, .. }] if leader == "m7"),
            "docs/design/scenarios.md, E18: {led:?}"
        );
        assert!(matches!(&object(1, &[])[..], [Objection::MajorityAlive { up: 1, of: 1, .. }]), "it needs nobody else");
        assert_eq!(object(3, &two(position_at(3, 3, 100, Some("m3")))), [], "of an epoch that is over");
    }

    #[test]
    fn the_survivor_that_knows_the_most_is_named() {
        let rest = |a: PositionAnswer, b: PositionAnswer| {
            let others = vec![
                other_manager(2, a),
                other_manager(3, b),
                other_manager(4, silent()),
                other_manager(5, silent()),
                other_manager(6, silent()),
            ];
            objections(&identity(), (3, 100), &voters(7), &others)
        };
        assert_eq!(
            rest(position_at(4, 3, 100, None), position_at(4, 2, 900, None)),
            [],
            "a greater term counts more than a greater index"
        );
        let named = rest(position_at(4, 3, 101, None), position_at(4, 4, 7, None));
        assert_eq!(named, [Objection::Behind { survivor: "m3".to_owned(), term: 4, index: 7 }]);
        let newer = rest(position_at(5, 9, 1, None), silent());
        assert_eq!(newer, [Objection::Superseded { by: "m2".to_owned(), epoch: Epoch(5) }]);
    }

    #[test]
    fn an_epoch_is_newer_than_all_before_and_than_those_of_before() {
        let next = |before| next_epoch(Epoch(before)).expect("an epoch").0;
        let second = wall().0 / 1_000;
        let now = next(1) / EPOCHS_A_SECOND;
        assert!((second..=second + 1).contains(&now), "{now}");
        let behind = u64::MAX / 2;
        let after = behind + 1..=behind + EPOCHS_A_SECOND;
        assert!(after.contains(&next(behind)), "a clock that is behind is no reason");
        let alike = |before| (0..8).map(|_| next(before)).collect::<BTreeSet<_>>().len() < 3;
        assert!(!alike(1) && !alike(behind), "two of one past are two, whatever the second");
    }

    #[test]
    fn a_place_is_an_address_with_or_without_ports() {
        let place = |text: &str| text.parse::<NodePlacement>();
        assert_eq!(place("10.0.0.5"), Ok(NodePlacement { ip: [10, 0, 0, 5].into(), ports: None }));
        assert_eq!(place("10.0.0.5:1,2"), Ok(NodePlacement { ip: [10, 0, 0, 5].into(), ports: Some((1, 2)) }));
        assert!(place("[::1]:1,2").is_ok_and(|p| p.ip.is_ipv6()));
        for bad in ["", "m2", "10.0.0.5:7947", "10.0.0.5,1", "10.0.0.5:1,2,3"] {
            assert!(place(bad).is_err_and(|e| e.contains("API_PORT")), "{bad}");
        }
    }
}
