//! The running member: start it, publish, ask, leave. Holds memberlist and works around its known faults: it
//! never reaps, never drops a running one without shutting it down, updates one at a time.

use super::config::Config;
use super::delegate::{Ears, Shared};
use super::error::{Cause, GossipError};
use super::event::{Claim, Member, MemberEvent};
use super::judge::{Judge, Judgement, good_name};
use super::meta::{self, Scope};
use crate::model::{NodeName, Report};
use bytes::Bytes;
use memberlist::net::NetTransportOptions;
use memberlist::proto::{EncryptionAlgorithm, Label, MaybeResolvedAddress, SecretKey};
use memberlist::tokio::{TokioSocketAddrResolver, TokioTcp, TokioTcpMemberlist};
use memberlist::{Memberlist, Options};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};

type List = TokioTcpMemberlist<SmolStr, TokioSocketAddrResolver, Ears>;

/// Reaping the dead corrupts memberlist's index and makes it panic later, so it is put off for ever.
const NEVER_REAP: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Shutting down joins the crate's tasks; one that hangs must not hang the daemon.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);
/// A port can be taken between looking for a free one and binding it.
const PORT_TRIES: usize = 10;

/// The key by which it sends, and others that it reads.
type Keys = ([u8; 32], Vec<[u8; 32]>);

/// A handle to the running member; clones are the same member. Dropping it does not stop the member.
#[derive(Clone)]
pub struct Gossip {
    name: NodeName,
    inner: Arc<RwLock<Arc<Inner>>>,
    keys: Arc<StdMutex<Keys>>,
}

/// The member at one address.
struct Inner {
    list: List,
    shared: Arc<Shared>,
    cfg: Config,
    /// The report in force. Locked for a whole update, since two at a time could leave the older one in force.
    report: Mutex<Report>,
}

/// Binds, and is a cluster of one until [`Gossip::join`] succeeds or somebody joins by this address.
///
/// The first event is the node's own `Alive`. The receiver must be read: what is not read stays in memory.
pub async fn start(cfg: Config, report: Report) -> Result<(Gossip, mpsc::UnboundedReceiver<MemberEvent>), GossipError> {
    if !good_name(cfg.name.as_str()) {
        return Err(GossipError::Name(cfg.name.0.len()));
    }
    if cfg.advertise.ip().is_unspecified() {
        return Err(GossipError::Advertise(cfg.advertise));
    }
    let mut tries = 0;
    let (tx, rx) = mpsc::unbounded_channel();
    loop {
        tries += 1;
        let first = |judge, meta| Shared::new(judge, meta, &cfg.timing, tx.clone());
        match start_once(&cfg, &report, first).await {
            Err(GossipError::Start { .. }) if cfg.bind.port() == 0 && tries < PORT_TRIES => {}
            Err(error) => return Err(error),
            Ok(inner) => {
                let keys = Arc::new(StdMutex::new((cfg.key, Vec::new())));
                return Ok((Gossip { name: cfg.name, inner: Arc::new(RwLock::new(Arc::new(inner))), keys }, rx));
            }
        }
    }
}

async fn start_once(
    cfg: &Config,
    report: &Report,
    share: impl FnOnce(Judge, Bytes) -> Shared,
) -> Result<Inner, GossipError> {
    let failed = |source: Cause| GossipError::Start { bind: cfg.bind, source };
    // The port has to be known before binding, because the address is signed.
    let (mut bind, mut advertise) = (cfg.bind, cfg.advertise);
    if bind.port() == 0 {
        bind.set_port(free_port(bind).map_err(|e| failed(e.into()))?);
    }
    if advertise.port() == 0 {
        advertise.set_port(bind.port());
    }
    let scope = Scope { cluster: &cfg.cluster, name: &cfg.name, addr: advertise };
    let meta = meta::encode(report, scope, &cfg.signer).map_err(GossipError::Report)?;
    let judge = Judge {
        cluster: cfg.cluster.clone(),
        me: cfg.name.clone(),
        addr: advertise,
        own_key: cfg.signer.verifying_key(),
        verify: cfg.verify.clone(),
    };
    let shared = Arc::new(share(judge, Bytes::new()));
    shared.set_own(report, meta.into());

    let mut net =
        NetTransportOptions::<SmolStr, TokioSocketAddrResolver, TokioTcp>::new(SmolStr::new(cfg.name.as_str()))
            .with_advertise_address(advertise);
    net.add_bind_address(bind);
    let list = Memberlist::with_delegate(Ears(shared.clone()), net, options(cfg)?)
        .await
        .map_err(|e| failed(e.to_string().into()))?;
    tracing::info!(node = %cfg.name, %bind, %advertise, "gossip started");
    Ok(Inner { list, shared, cfg: cfg.clone(), report: Mutex::new(report.clone()) })
}

fn options(cfg: &Config) -> Result<Options, GossipError> {
    let t = &cfg.timing;
    let label = Label::try_from(format!("remoor-{}", cfg.cluster)).map_err(|_| GossipError::Label)?;
    Ok(Options::lan()
        .with_label(label)
        .with_probe_interval(t.probe_interval)
        .with_probe_timeout(t.probe_timeout)
        .with_timeout(t.stream_timeout)
        .with_suspicion_mult(t.suspicion_mult)
        .with_suspicion_max_timeout_mult(t.suspicion_max_mult)
        .with_gossip_interval(t.gossip_interval)
        .with_push_pull_interval(t.exchange_interval)
        .with_gossip_to_the_dead_time(NEVER_REAP)
        .with_dead_node_reclaim_time(t.reclaim)
        .with_primary_key(SecretKey::Aes256(cfg.key))
        .with_encryption_algo(EncryptionAlgorithm::NoPadding)
        .with_gossip_verify_incoming(true)
        .with_gossip_verify_outgoing(true))
}

/// Brings the keyring to these keys.
fn turn(list: &List, (first, others): &Keys) -> Result<(), GossipError> {
    let failed = |e: &dyn std::fmt::Display| GossipError::Key(e.to_string().into());
    let Some(ring) = list.keyring() else { return Ok(()) };
    for key in std::iter::once(first).chain(others) {
        ring.insert(SecretKey::Aes256(*key));
    }
    ring.use_key(first).map_err(|e| failed(&e))?;
    for old in ring.keys().filter(|old| !std::iter::once(first).chain(others).any(|key| old.as_ref() == key)) {
        ring.remove(&old).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// A port that is free for TCP and UDP at this moment.
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
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// As advertised, with the port that was bound if none was configured.
    pub fn addr(&self) -> SocketAddr {
        self.now().shared.judge.addr
    }

    fn now(&self) -> Arc<Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same member, instance and all, at another address: the old one is given up without a goodbye, which nobody
    /// would hear from there. All peers are `Gone` and come back as they are dialled.
    ///
    /// After an error the member is stopped, and this may be called again.
    pub async fn move_to(&self, bind: SocketAddr, advertise: SocketAddr) -> Result<(), GossipError> {
        if advertise.ip().is_unspecified() {
            return Err(GossipError::Advertise(advertise));
        }
        let old = self.now();
        // Nobody publishes meanwhile what only the old address would hear.
        let report = old.report.lock().await;
        stop(&old.list).await;
        let cfg = Config { bind, advertise, ..old.cfg.clone() };
        let timing = cfg.timing.clone();
        let inner = start_once(&cfg, &report, |judge, meta| old.shared.succeed(judge, meta, &timing)).await?;
        let keys = self.keys();
        turn(&inner.list, &keys)?;
        *self.inner.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(inner);
        Ok(())
    }

    /// Signs and announces a report in the place of the one before.
    ///
    /// Returns once it was sent to a first peer, or at once without peers. After [`GossipError::Announce`] the new
    /// report is in force all the same and travels with the next exchange; after any other error the old one is.
    pub async fn publish(&self, report: Report) -> Result<(), GossipError> {
        self.announce(|_| report).await
    }

    async fn announce(&self, next: impl FnOnce(&Report) -> Report) -> Result<(), GossipError> {
        let mut inner = self.now();
        let (inner, mut current) = loop {
            let current = inner.report.lock().await;
            let now = self.now();
            if Arc::ptr_eq(&now, &inner) {
                break (&*inner, current);
            }
            drop(current);
            inner = now; // it moved while this waited
        };
        let report = next(&current);
        let judge = &inner.shared.judge;
        let scope = Scope { cluster: &judge.cluster, name: &judge.me, addr: judge.addr };
        let meta = meta::encode(&report, scope, &inner.cfg.signer).map_err(GossipError::Report)?;
        inner.shared.set_own(&report, meta.into());
        *current = report;
        match inner.list.update_node(inner.cfg.timing.update_timeout).await {
            Ok(()) => Ok(()),
            Err(memberlist::error::Error::NotRunning) => Err(GossipError::Stopped),
            Err(e) => Err(GossipError::Announce(e.to_string().into())),
        }
    }

    /// The live members by name, this node included.
    pub fn members(&self) -> Vec<Member> {
        self.now().shared.view().members()
    }

    /// Who says to be of a newer epoch than the report in force, now and later; also where its record is not
    /// taken in, as that of a second daemon of one node.
    pub fn claims(&self) -> watch::Receiver<BTreeMap<NodeName, Claim>> {
        self.now().shared.claims()
    }

    /// How many live members there are besides this node; 0 is isolation.
    pub fn peers_alive(&self) -> usize {
        self.now().shared.view().len_without(self.name())
    }

    /// Exchanges state with whoever listens at `addr`. Members found come as events, sometimes after this returns.
    ///
    /// Lasts at most three stream timeouts. Dropping the future does not cancel the exchange.
    pub async fn join(&self, addr: SocketAddr) -> Result<(), GossipError> {
        let inner = self.now();
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

    /// Judges all members anew; to be called when the keys behind `Config::verify` changed.
    ///
    /// Makes the events that follow: `Update` where a signature counts now that did not or the reverse, `Gone` for
    /// removed and `Forged` and `Gone` for impostors, `Alive` for those who were kept out and are live.
    pub async fn recheck(&self) {
        let inner = self.now();
        let shared = &inner.shared;
        // Members may come and go between asking memberlist and judging; then the picture is taken again.
        for _ in 0..5 {
            let version = shared.view().version;
            let online = inner.list.online_members().await;
            let mut view = shared.view();
            if view.version != version {
                continue;
            }
            for name in view.names() {
                let Some(entry) = view.get(&name).cloned() else { continue };
                let judgement = shared.judge.judge(&name, entry.addr, &entry.meta);
                if matches!(judgement, Judgement::Own { .. } | Judgement::Member { .. }) {
                    continue;
                }
                if judgement == Judgement::Forged {
                    let event = view.forged(&name, entry.addr, std::time::Instant::now());
                    shared.emit(&view, event);
                }
                shared.unclaim(&name);
                let event = view.remove(&name);
                shared.emit(&view, event);
            }
            for node in online {
                let meta = Bytes::copy_from_slice(node.meta().as_bytes());
                shared.take_into(&mut view, NodeName::from(node.id().as_str()), *node.address(), meta);
            }
            return;
        }
    }

    /// Encrypts with `first` from now on, and reads it and the `others`, and no further key; also after a move.
    pub fn set_keys(&self, first: [u8; 32], others: &[[u8; 32]]) -> Result<(), GossipError> {
        let mut keys = self.keys();
        *keys = (first, others.to_vec());
        turn(&self.now().list, &keys)
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says goodbye, then stops. Lasts at most the update and leave timeouts and 5 s; failures on the way are logged.
    pub async fn leave(self) {
        // Peers can't tell a goodbye from a failure by memberlist alone, so the report says it first.
        if let Err(error) = self.announce(|current| Report { leaving: true, ..current.clone() }).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "peers may take the goodbye for a failure");
        }
        let inner = self.now();
        if let Err(error) = inner.list.leave(inner.cfg.timing.leave_timeout).await {
            tracing::warn!(%error, "peers may take the goodbye for a failure");
        }
        self.shutdown().await;
    }

    /// Stops without a word, as a crash would; peers find out by probing.
    pub async fn shutdown(self) {
        stop(&self.now().list).await;
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.now().shared.changes()
    }
}

async fn stop(list: &List) {
    match tokio::time::timeout(SHUTDOWN_MAX, list.shutdown()).await {
        Ok(Ok(())) => tracing::info!("gossip stopped"),
        Ok(Err(error)) => tracing::warn!(%error, "gossip stopped with an error"),
        Err(_) => tracing::warn!(limit = ?SHUTDOWN_MAX, "gossip did not stop in time"),
    }
}
