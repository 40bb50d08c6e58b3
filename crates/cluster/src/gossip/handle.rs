//! The handle of the running gossip member: start, publish, query, leave. It works around known
//! faults of memberlist. It never reaps members, always shuts a member down before dropping it, and
//! publishes one update at a time.

use super::config::{Config, GossipTiming, KeyLookup};
use super::delegate::{GossipState, NodeEventDelegate};
use super::error::{GossipError, MemberlistError};
use super::event::{EpochClaim, Member, MemberEvent};
use super::guard::MessageGuard;
use super::judge::{Judge, Judgement, is_valid_name};
use super::meta::{self, SignatureScope};
use super::transport::{GossipKeyring, GossipTransport, Refusals, TransportOptions};
use bytes::Bytes;
use memberlist::proto::MaybeResolvedAddress;
use memberlist::{Memberlist, Options};
use remoor_host::wall_clock;
use remoor_model::{NodeName, Report};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};

type List = Memberlist<GossipTransport, NodeEventDelegate>;

/// memberlist must never reap dead members, because reaping corrupts its index and causes a later
/// panic.
const NEVER_REAP: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Maximum time of a shutdown. The shutdown waits for memberlist's tasks, and a hanging task must
/// not hang the daemon.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);
/// Minimum time between two signatures that other nodes cause.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// Maximum attempts to find a free port. A port can be taken between the search and the bind.
const PORT_TRIES: usize = 10;

/// A handle to the running member. Clones refer to the same member. Dropping a handle does not stop
/// the member.
#[derive(Clone)]
pub struct Gossip {
    name: NodeName,
    inner: Arc<RwLock<Arc<Inner>>>,
    keyring: Arc<GossipKeyring>,
    refusals: Arc<Refusals>,
}

/// The member at one address. A change of the address replaces the member.
struct Inner {
    list: List,
    shared: Arc<GossipState>,
    cfg: Config,
    /// The report that this member publishes. It is locked during a whole update. Otherwise two
    /// concurrent updates could leave the older report published.
    report: Mutex<Report>,
}

/// Binds and starts a member. The member has no peers until [`Gossip::join`] succeeds or another
/// node joins through this address.
///
/// The first event is the node's own `Alive`. The receiver must be read, because the channel is
/// unbounded and unread events stay in memory.
pub async fn start(cfg: Config, report: Report) -> Result<(Gossip, mpsc::UnboundedReceiver<MemberEvent>), GossipError> {
    if !is_valid_name(cfg.name.as_str()) {
        return Err(GossipError::Name(cfg.name.0.len()));
    }
    if cfg.advertise.ip().is_unspecified() {
        return Err(GossipError::Advertise(cfg.advertise));
    }
    let keyring = Arc::new(GossipKeyring::new(&cfg.cluster, cfg.key)?);
    let refusals = Arc::new(Refusals::default());
    let mut tries = 0;
    let (tx, rx) = mpsc::unbounded_channel();
    loop {
        tries += 1;
        let first = |judge, meta| GossipState::new(judge, meta, &cfg.timing, tx.clone());
        match start_once(&cfg, &keyring, &refusals, &report, first).await {
            Err(GossipError::Start { .. }) if cfg.bind.port() == 0 && tries < PORT_TRIES => {}
            Err(error) => return Err(error),
            Ok(inner) => {
                let renewals = inner.shared.renewals();
                let gossip =
                    Gossip { name: cfg.name, inner: Arc::new(RwLock::new(Arc::new(inner))), keyring, refusals };
                tokio::spawn(renew_signature(Arc::downgrade(&gossip.inner), renewals));
                return Ok((gossip, rx));
            }
        }
    }
}

/// Signs the report again whenever that is requested, until the member is dropped.
async fn renew_signature(member: Weak<RwLock<Arc<Inner>>>, mut requests: watch::Receiver<u64>) {
    while requests.changed().await.is_ok() {
        tokio::time::sleep(RENEWAL_PAUSE).await;
        let Some(member) = member.upgrade() else { return };
        match announce(&member, Report::clone).await {
            Ok(()) => tracing::debug!("the report was signed again, because others raised the incarnation"),
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "the report was not signed again"),
        }
    }
}

async fn start_once(
    cfg: &Config,
    keyring: &Arc<GossipKeyring>,
    refusals: &Arc<Refusals>,
    report: &Report,
    share: impl FnOnce(Judge, Bytes) -> GossipState,
) -> Result<Inner, GossipError> {
    let failed = |source: MemberlistError| GossipError::Start { bind: cfg.bind, source };
    // The port must be known before the bind, because the signed report contains the address.
    let (mut bind, mut advertise) = (cfg.bind, cfg.advertise);
    if bind.port() == 0 {
        bind.set_port(free_port(bind).map_err(|e| failed(e.into()))?);
    }
    if advertise.port() == 0 {
        advertise.set_port(bind.port());
    }
    let scope = SignatureScope { cluster: &cfg.cluster, name: &cfg.name, addr: advertise };
    let mut report = report.clone();
    report.stamp(wall_clock::now());
    let meta = meta::encode(&report, scope, &cfg.signer).map_err(GossipError::Report)?;
    let judge = Judge {
        cluster: cfg.cluster.clone(),
        me: cfg.name.clone(),
        addr: advertise,
        own_key: cfg.signer.verifying_key(),
        verify: cfg.verify.clone(),
    };
    let shared = Arc::new(share(judge, Bytes::new()));
    shared.set_own(&report, meta.into());

    let transport = TransportOptions {
        name: SmolStr::new(cfg.name.as_str()),
        bind,
        advertise,
        keyring: keyring.clone(),
        guard: Arc::new(MessageGuard::new(shared.clone(), &cfg.signer, refusals.clone(), &cfg.timing)),
        refusals: refusals.clone(),
        first_frame: cfg.timing.stream_timeout,
    };
    let list = Memberlist::with_delegate(NodeEventDelegate(shared.clone()), transport, options(&cfg.timing))
        .await
        .map_err(|e| failed(e.to_string().into()))?;
    tracing::info!(node = %cfg.name, %bind, %advertise, "gossip started");
    Ok(Inner { list, shared, cfg: cfg.clone(), report: Mutex::new(report) })
}

fn options(t: &GossipTiming) -> Options {
    // memberlist gets neither a label nor a key, because the transport encrypts.
    Options::lan()
        .with_probe_interval(t.probe_interval)
        .with_probe_timeout(t.probe_timeout)
        .with_timeout(t.stream_timeout)
        .with_suspicion_mult(t.suspicion_mult)
        .with_suspicion_max_timeout_mult(t.suspicion_max_mult)
        .with_gossip_interval(t.gossip_interval)
        .with_push_pull_interval(t.exchange_interval)
        .with_gossip_to_the_dead_time(NEVER_REAP)
        .with_dead_node_reclaim_time(t.reclaim)
}

/// A port that is currently free for TCP and UDP.
fn free_port(bind: SocketAddr) -> std::io::Result<u16> {
    let mut last = None;
    for _ in 0..PORT_TRIES {
        let tcp = TcpListener::bind(bind)?;
        let addr = tcp.local_addr()?;
        match UdpSocket::bind(addr) {
            Ok(_) => return Ok(addr.port()),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()))
}

impl Gossip {
    /// This node's name.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// The advertised address. If its configured port is 0, it has the port that was bound.
    pub fn addr(&self) -> SocketAddr {
        self.current().shared.judge.addr
    }

    fn current(&self) -> Arc<Inner> {
        current_member(&self.inner)
    }

    /// The number of messages and connections that were refused since the start, by reason.
    pub fn refusals(&self) -> BTreeMap<&'static str, u64> {
        self.refusals.totals()
    }

    /// Moves the running member to another address; its instance stays the same. The member leaves
    /// the old address without a leave message, because peers could not receive a message from
    /// there. All peers are reported `Gone`, and each is reported `Alive` again after it is
    /// dialled.
    ///
    /// After an error the member is stopped, and the move may be tried again.
    pub async fn move_to(&self, bind: SocketAddr, advertise: SocketAddr) -> Result<(), GossipError> {
        if advertise.ip().is_unspecified() {
            return Err(GossipError::Advertise(advertise));
        }
        let old = self.current();
        // Hold the lock, so that no report is meanwhile published at the old address only.
        let report = old.report.lock().await;
        stop(&old.list).await;
        let cfg = Config { bind, advertise, ..old.cfg.clone() };
        let timing = cfg.timing.clone();
        let successor = |judge, meta| old.shared.create_successor(judge, meta, &timing);
        let inner = start_once(&cfg, &self.keyring, &self.refusals, &report, successor).await?;
        *self.inner.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(inner);
        Ok(())
    }

    /// Signs and announces a report that replaces the current one. The new report gets the next
    /// sequence number.
    ///
    /// Returns once the report was sent to a first peer, or at once if there are no peers. After
    /// [`GossipError::Announce`] the new report is in force anyway and is sent with the next state
    /// exchange. After any other error the old report stays in force.
    pub async fn publish(&self, report: Report) -> Result<(), GossipError> {
        announce(&self.inner, |_| report).await
    }

    /// This node's last published report, with its sequence number.
    pub fn own_report(&self) -> Report {
        self.current().shared.own_report().clone()
    }

    /// The live members by name, this node included.
    pub fn members(&self) -> Vec<Member> {
        self.current().shared.view().members()
    }

    /// The signed record of a live member, in the form that is sent.
    #[cfg(any(test, feature = "testing"))]
    pub fn record(&self, name: &NodeName) -> Option<Bytes> {
        self.current().shared.view().get(name).map(|entry| entry.meta.clone())
    }

    /// The address of each live member, and whether its signature verifies. Unlike
    /// [`Self::members`], it copies no reports.
    pub fn addresses(&self) -> Vec<(NodeName, SocketAddr, bool)> {
        self.current().shared.view().addresses()
    }

    /// Whether the node is a live member.
    pub fn has_member(&self, name: &NodeName) -> bool {
        self.current().shared.view().get(name).is_some()
    }

    /// A map of the nodes that claim a newer epoch than that of this node's report. The map is
    /// updated as claims arrive. It includes nodes whose record is rejected, such as a second
    /// daemon of this node.
    pub fn claims(&self) -> watch::Receiver<BTreeMap<NodeName, EpochClaim>> {
        self.current().shared.claims()
    }

    /// The number of live members besides this node; 0 is isolation.
    pub fn peers_alive(&self) -> usize {
        self.current().shared.view().len_without(self.name())
    }

    /// Exchanges state with the member at `addr`. The members that the other side knows arrive as
    /// events, some of them after this method returns.
    ///
    /// Takes at most three stream timeouts. Dropping the future does not cancel the exchange.
    pub async fn join(&self, addr: SocketAddr) -> Result<(), GossipError> {
        let inner = self.current();
        let list = inner.list.clone();
        let exchange = tokio::spawn(async move { list.join(MaybeResolvedAddress::Resolved(addr)).await.map(drop) });
        match tokio::time::timeout(inner.cfg.timing.stream_timeout * 3, exchange).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(memberlist::error::Error::NotRunning))) => Err(GossipError::Stopped),
            Ok(Ok(Err(e))) => Err(GossipError::Join { addr, source: e.to_string().into() }),
            Ok(Err(e)) => Err(GossipError::Join { addr, source: e.into() }),
            Err(_) => Err(GossipError::JoinTimeout { addr }),
        }
    }

    /// Judges every member again whose key has changed. Call this method after the keys behind
    /// `Config::verify` changed.
    ///
    /// Emits an `Update` if a signature started or stopped being valid, `Gone` for a removed node,
    /// `Forged` and `Gone` for an impostor, and `Alive` for a live node whose record was rejected
    /// before.
    pub async fn recheck(&self) {
        let inner = self.current();
        let shared = &inner.shared;
        // Members may come or go between the request to memberlist and the judgement. In that case
        // the members are read again.
        for _ in 0..5 {
            let version = shared.view().version;
            let online = inner.list.online_members().await;
            let mut view = shared.view();
            if view.version != version {
                continue;
            }
            view.retain_newest(|name| matches!((shared.judge.verify)(name), KeyLookup::Known(_)));
            for name in view.names() {
                let Some(entry) = view.get(&name) else { continue };
                if shared.is_verified(&view, &name, entry.addr, &entry.meta) {
                    continue;
                }
                let entry = entry.clone();
                let judgement = shared.judge.judge(&name, entry.addr, &entry.meta);
                if matches!(judgement, Judgement::Own { .. } | Judgement::Member { .. }) {
                    continue;
                }
                if judgement == Judgement::Forged {
                    let event = view.alarm_forged(&name, entry.addr, std::time::Instant::now());
                    shared.emit(&view, event);
                }
                shared.remove_claim(&name);
                let event = view.remove(&name);
                shared.emit(&view, event);
            }
            for node in online {
                let (name, addr) = (NodeName::from(node.id().as_str()), *node.address());
                let meta = node.meta().as_bytes();
                if !shared.is_verified(&view, &name, addr, meta) {
                    shared.take_into(&mut view, name, addr, Bytes::copy_from_slice(meta));
                }
            }
            return;
        }
    }

    /// Replaces the gossip keys. From now on the member encrypts with `first`, and accepts `first`
    /// and `others` but no other key. A change of the address keeps the keys.
    pub fn set_keys(&self, first: [u8; 32], others: &[[u8; 32]]) {
        self.keyring.set(first, others);
    }

    /// Announces that this node leaves, and stops. Takes at most the update timeout and the leave
    /// timeout plus 5 s. Failures are only logged.
    pub async fn leave(self) {
        // With memberlist alone, peers cannot distinguish a leaving node from a failed one. So the
        // report announces the leave first.
        if let Err(error) = announce(&self.inner, |current| Report { leaving: true, ..current.clone() }).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "leaving was not announced; peers may report this node as failed"
            );
        }
        let inner = self.current();
        if let Err(error) = inner.list.leave(inner.cfg.timing.leave_timeout).await {
            tracing::warn!(%error, "leaving was not announced; peers may report this node as failed");
        }
        self.shutdown().await;
    }

    /// Stops without an announcement, as a crash would. Peers detect the stop by probing.
    pub async fn shutdown(self) {
        stop(&self.current().list).await;
    }

    /// A counter that changes whenever a member came or went.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.current().shared.changes()
    }
}

fn current_member(member: &RwLock<Arc<Inner>>) -> Arc<Inner> {
    member.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Signs and announces the report that `next` makes of the current one.
async fn announce(member: &RwLock<Arc<Inner>>, next: impl FnOnce(&Report) -> Report) -> Result<(), GossipError> {
    let mut inner = current_member(member);
    let (inner, mut current) = loop {
        let current = inner.report.lock().await;
        let now = current_member(member);
        if Arc::ptr_eq(&now, &inner) {
            break (&*inner, current);
        }
        drop(current);
        inner = now; // the member moved while this call waited for the lock
    };
    let mut report = next(&current);
    report.sequence = current.sequence;
    report.stamp(wall_clock::now());
    let judge = &inner.shared.judge;
    let scope = SignatureScope { cluster: &judge.cluster, name: &judge.me, addr: judge.addr };
    let meta = meta::encode(&report, scope, &inner.cfg.signer).map_err(GossipError::Report)?;
    inner.shared.set_own(&report, meta.into());
    *current = report;
    match inner.list.update_node(inner.cfg.timing.update_timeout).await {
        Ok(()) => Ok(()),
        Err(memberlist::error::Error::NotRunning) => Err(GossipError::Stopped),
        Err(e) => Err(GossipError::Announce(e.to_string().into())),
    }
}

async fn stop(list: &List) {
    match tokio::time::timeout(SHUTDOWN_MAX, list.shutdown()).await {
        Ok(Ok(())) => tracing::info!("gossip stopped"),
        Ok(Err(error)) => tracing::warn!(%error, "gossip stopped with an error"),
        Err(_) => tracing::warn!(limit = ?SHUTDOWN_MAX, "gossip did not stop in time"),
    }
}
