//! Determines the current address of this node: the address in `node.json` if the machine has it.
//! Otherwise it is the source address of the machine's routes to the known nodes. The daemon
//! follows changes of the address; the managers decide whether they record a change.

use super::layout::{Layout, NodeConfig};
use super::run::DaemonError;
use remoor_cluster::gossip::{Gossip, cache, netlink};
use remoor_cluster::rpc::server::{self, Served, ServerLimits};
use remoor_cluster::rpc::tls::ServerTls;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

/// Maximum wait at boot for the address in `node.json`, because a machine may get its address after
/// the daemon starts.
const BOOT_MAX: Duration = Duration::from_secs(10);
const BOOT_STEP: Duration = Duration::from_millis(500);
/// Time for which the address must be gone before the node moves. A lease renewal or a network
/// reconfiguration removes an address only for a moment.
const SETTLE: Duration = Duration::from_secs(3);
/// Interval at which the address is checked even without a notification from the kernel, because
/// notifications may be lost. It is also the pause after a failed move.
const EVERY: Duration = Duration::from_secs(30);
/// Maximum number of route lookups, one for each known node.
const ROUTES_MAX: usize = 64;

/// Looks up the source addresses that this machine's routes use. A lookup sends no packet.
trait Routes {
    /// Source address of a packet to `peer`; None if no route exists.
    fn source(&self, peer: IpAddr) -> Option<IpAddr>;
}

struct Kernel;

impl Routes for Kernel {
    fn source(&self, peer: IpAddr) -> Option<IpAddr> {
        let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        // Connecting a datagram socket only looks up the route (udp(7)). Port 9 is the discard
        // port.
        socket.connect((peer, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    }
}

/// Whether the machine has this address: the kernel then uses the same address as the source of a
/// packet to it. A bind is not a reliable test, because it succeeds for any address if
/// `ip_nonlocal_bind` is set.
fn present(ip: IpAddr, routes: &impl Routes) -> bool {
    ip.is_loopback() || routes.source(ip) == Some(ip)
}

/// Chooses the address to use. `own` is the address in `node.json`, `current` the one in use. None
/// if no address could be determined; the node then keeps its address.
fn choose(own: IpAddr, current: IpAddr, peers: &[IpAddr], routes: &impl Routes) -> Option<IpAddr> {
    for ip in [own, current] {
        if present(ip, routes) {
            return Some(ip);
        }
    }
    let mut votes: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for peer in peers.iter().filter(|p| !p.is_loopback()).take(ROUTES_MAX) {
        if let Some(source) = routes.source(*peer).filter(|ip| !ip.is_loopback()) {
            *votes.entry(source).or_default() += 1;
        }
    }
    let most = votes.values().copied().max()?;
    votes.into_iter().find(|(_, count)| *count == most).map(|(ip, _)| ip)
}

fn peers(layout: &Layout) -> Vec<IpAddr> {
    let known = cache::load(&layout.addresses()).unwrap_or_default();
    known.into_values().flatten().map(|addr| addr.ip()).collect()
}

/// Returns the settings to start with. If `advertise` is not an address of this machine, another
/// address of the machine replaces it. If the operator has set `bind`, nothing is replaced.
pub async fn at_start(config: NodeConfig, layout: &Layout) -> NodeConfig {
    if config.bind.is_some() {
        return config;
    }
    let began = tokio::time::Instant::now();
    while !present(config.advertise, &Kernel) && began.elapsed() < BOOT_MAX {
        tokio::time::sleep(BOOT_STEP).await;
    }
    match choose(config.advertise, config.advertise, &peers(layout), &Kernel) {
        Some(ip) if ip != config.advertise => {
            tracing::warn!(configured = %config.advertise, now = %ip, "the address of this machine differs from node.json");
            NodeConfig { advertise: ip, ..config }
        }
        _ => config,
    }
}

/// Follows this node's address while the daemon runs. When the address changes, it moves gossip to
/// the new address and publishes the new address in `now`.
pub struct AddressFollower {
    /// The address in `node.json`.
    pub own: IpAddr,
    /// The settings with which the daemon started.
    pub config: NodeConfig,
    pub layout: Layout,
    pub gossip: Gossip,
    pub now: watch::Sender<IpAddr>,
    /// Whether gossip does not run, because a move to another address failed. The next move may
    /// then also go back to the current address, if the machine has that address again.
    pub stopped: bool,
}

impl AddressFollower {
    pub async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        if self.config.bind.is_some() {
            return;
        }
        let changed = Arc::new(Notify::new());
        let notify_tx = changed.clone();
        let listening = tokio::spawn(async move {
            let error = netlink::listen(notify_tx).await;
            tracing::warn!(%error, "kernel network notifications are unavailable; the address of this machine is polled instead");
        });
        loop {
            tokio::select! {
                _ = stopped.changed() => break,
                () = changed.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
            let Some(ip) = self.address_to_move_to() else { continue };
            tokio::select! {
                _ = stopped.changed() => break,
                () = tokio::time::sleep(SETTLE) => {}
            }
            if self.address_to_move_to() == Some(ip) {
                self.move_to(ip).await;
            }
        }
        listening.abort();
    }

    /// The address to move to. It differs from the current address, unless gossip is stopped. None
    /// if no move is needed.
    fn address_to_move_to(&self) -> Option<IpAddr> {
        let current = *self.now.borrow();
        choose(self.own, current, &peers(&self.layout), &Kernel).filter(|ip| self.stopped || *ip != current)
    }

    async fn move_to(&mut self, ip: IpAddr) {
        let before = *self.now.borrow();
        let config = NodeConfig { advertise: ip, ..self.config.clone() };
        match self.gossip.move_to(config.gossip_bind(), config.gossip()).await {
            Ok(()) => {
                tracing::warn!(%before, now = %ip, "the address of this machine changed; gossip moved to it");
                (self.config, self.stopped) = (config, false);
                // If gossip returns to the address that it had before a failed move, the API is
                // still served there and must not restart.
                self.now.send_if_modified(|now| std::mem::replace(now, ip) != ip);
            }
            Err(error) => {
                self.stopped = true;
                let error = &error as &dyn std::error::Error;
                tracing::error!(%before, now = %ip, error, "gossip could not start at the new address; will retry");
            }
        }
    }
}

/// Serves the API on `listener`, and after each address change at the new address. A failed bind is
/// retried.
pub async fn serve(
    listener: TcpListener,
    config: NodeConfig,
    mut now: watch::Receiver<IpAddr>,
    (tls, served): (ServerTls, Served),
    mut stopped: watch::Receiver<bool>,
) {
    let mut listener = Some(listener);
    loop {
        let ip = *now.borrow_and_update();
        let config = NodeConfig { advertise: ip, ..config.clone() };
        if listener.is_none() {
            listener = listen(&config)
                .await
                .map_err(|error| tracing::error!(%error, "the API can't be served at this address; will retry"))
                .ok();
        }
        let retry = listener.is_none();
        let (end, ended) = watch::channel(false);
        let serving = listener.take().map(|listener| {
            let until = async move {
                let mut ended = ended;
                let _ = ended.wait_for(|end| *end).await; // a dropped sender also ends the server
            };
            tokio::spawn(server::serve_tls(listener, tls.clone(), served.clone(), ServerLimits::default(), until))
        });
        let over = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => true,
            // If the sender of address changes was dropped, the address does not change any more.
            () = address_changed(&mut now) => false,
            () = tokio::time::sleep(SETTLE), if retry => false,
        };
        let _ = end.send(true);
        if over {
            if let Some(serving) = serving {
                let _ = serving.await;
            }
            return;
        }
    }
}

async fn address_changed(now: &mut watch::Receiver<IpAddr>) {
    if now.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Binds the port of the API.
pub async fn listen(config: &NodeConfig) -> Result<TcpListener, DaemonError> {
    let addr: SocketAddr = config.api_bind();
    TcpListener::bind(addr).await.map_err(|source| DaemonError::Listen { what: addr.to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_cluster::gossip;
    use remoor_model::Report;

    /// A simulated machine with these addresses, each in its own /24 network. The default route
    /// belongs to the first address.
    struct Machine(Vec<[u8; 4]>);

    impl Routes for Machine {
        fn source(&self, peer: IpAddr) -> Option<IpAddr> {
            let IpAddr::V4(peer) = peer else { return None };
            let near = self.0.iter().find(|own| own[..3] == peer.octets()[..3]);
            let exact = self.0.iter().find(|own| **own == peer.octets());
            exact.or(near).or(self.0.first()).map(|own| IpAddr::from(*own))
        }
    }

    fn choose_in(own: [u8; 4], current: [u8; 4], machine: &[[u8; 4]], peers: &[[u8; 4]]) -> Option<[u8; 4]> {
        let peers: Vec<IpAddr> = peers.iter().map(|p| IpAddr::from(*p)).collect();
        match choose(own.into(), current.into(), &peers, &Machine(machine.to_vec()))? {
            IpAddr::V4(ip) => Some(ip.octets()),
            IpAddr::V6(_) => None,
        }
    }

    #[test]
    fn an_address_that_is_there_stays_and_that_of_node_json_comes_first() {
        let (own, other, peers) = ([10, 0, 0, 4], [10, 0, 0, 50], [[10, 0, 0, 1], [10, 0, 0, 2]]);
        assert_eq!(choose_in(own, own, &[own, other], &peers), Some(own));
        assert_eq!(choose_in(own, other, &[other], &peers), Some(other), "moved before");
        assert_eq!(choose_in(own, other, &[other, own], &peers), Some(own), "back again");
    }

    #[test]
    fn a_lost_address_gives_way_to_the_one_that_most_known_nodes_are_reached_from() {
        let own = [10, 0, 0, 4];
        let peers = [[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 7, 3]];
        let machine = [[192, 168, 7, 9], [10, 0, 0, 50]];
        assert_eq!(choose_in(own, own, &machine, &peers), Some([10, 0, 0, 50]));
        assert_eq!(choose_in(own, own, &machine, &[]), None, "nobody is known");
        assert_eq!(choose_in(own, own, &[], &peers), None, "no route: it is waited for");
        assert_eq!(choose_in(own, own, &machine, &[[127, 0, 0, 1]]), None, "loopback tells nothing");
    }

    #[tokio::test]
    async fn after_a_move_that_failed_gossip_goes_on_at_the_old_address() {
        let dir = tempfile::tempdir().unwrap();
        let here = IpAddr::from([127, 0, 0, 1]);
        let config = NodeConfig {
            advertise: here,
            bind: None,
            api_port: 0,
            gossip_port: 0,
            metrics: None,
            certificate_life_s: None,
            join_requests: None,
        };
        let member = gossip::Config {
            cluster: "c1".into(),
            name: "w1".into(),
            bind: config.gossip_bind(),
            advertise: config.gossip(),
            key: [7; 32],
            signer: ed25519_dalek::SigningKey::from_bytes(&[1; 32]),
            verify: Arc::new(|_| gossip::KeyLookup::Unknown),
            timing: gossip::GossipTiming::default(),
        };
        let report = Report {
            boot: "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".into(),
            instance: "0000000000000001".into(),
            ..Report::default()
        };
        let (gossip, _events) = gossip::start(member, report).await.unwrap();
        let layout = Layout(dir.path().to_owned());
        let mut follow = AddressFollower {
            own: here,
            config,
            layout,
            gossip: gossip.clone(),
            now: watch::channel(here).0,
            stopped: false,
        };
        assert_eq!(follow.address_to_move_to(), None);
        // This address is in TEST-NET-3 (RFC 5737), so the bind fails.
        follow.move_to(IpAddr::from([203, 0, 113, 77])).await;
        assert_eq!((follow.address_to_move_to(), gossip.addr().ip()), (Some(here), here));
        follow.move_to(here).await;
        assert_eq!((follow.address_to_move_to(), *follow.now.borrow()), (None, here));
        gossip.join(gossip.addr()).await.expect("it runs");
        gossip.shutdown().await;
    }

    #[test]
    fn the_kernel_tells_an_own_address_from_another() {
        assert!(present(IpAddr::from([127, 0, 0, 1]), &Kernel) && present(IpAddr::from([127, 9, 9, 9]), &Kernel));
        // This address is in TEST-NET-3 (RFC 5737), which no machine has.
        assert!(!present(IpAddr::from([203, 0, 113, 77]), &Kernel));
    }
}
