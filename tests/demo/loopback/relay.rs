//! The network between the loopback hosts. It listens on every front address and forwards bytes to
//! the back address. A host that is cut off neither receives nor sends. Datagrams to and from the
//! host are lost. Its connections stall in both directions, whichever side opened them. After the
//! cut is healed they continue, as TCP does.
//!
//! The kernel identifies the sender. A datagram comes from the back address of its sender. For a
//! connection, the relay looks up which connecting sockets the processes of a host hold. It does
//! this for open connections when the host is cut off, and for new connections when they arrive
//! during the cut. Traffic that belongs to no host belongs to the operator. Delay and loss are not
//! supported.

use super::place::{GOSSIP, Place, TCP};
use super::tree;
use crate::lab::five::HOSTS;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;

/// The hosts that are cut off, each with the connecting sockets that its processes hold.
type Cut = BTreeMap<String, BTreeSet<SocketAddrV4>>;

/// The relay with bound sockets. It forwards nothing before [`Relay::start`].
pub struct Relay {
    place: Place,
    tcp: Vec<(&'static str, u16, TcpListener)>,
    udp: Vec<Arc<UdpSocket>>,
    cut: watch::Sender<Cut>,
    /// The first process of each host.
    roots: BTreeMap<String, i32>,
}

impl Relay {
    /// Binds all sockets. Returns an error if an address is in use.
    pub async fn bind(place: Place) -> Result<Relay> {
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for host in HOSTS {
            for port in TCP {
                let at = place.front_socket(host, port);
                tcp.push((host, port, TcpListener::bind(at).await.with_context(|| format!("listening on {at}"))?));
            }
            let at = place.front_socket(host, GOSSIP);
            udp.push(Arc::new(UdpSocket::bind(at).await.with_context(|| format!("listening on {at}, UDP"))?));
        }
        Ok(Relay { place, tcp, udp, cut: watch::Sender::default(), roots: BTreeMap::new() })
    }

    /// Starts forwarding, which continues until the runtime ends. `roots` has the first process of
    /// each host.
    pub fn start(mut self, roots: BTreeMap<String, i32>) -> Arc<Relay> {
        self.roots = roots;
        let listeners = std::mem::take(&mut self.tcp);
        let relay = Arc::new(self);
        for (host, port, listener) in listeners {
            tokio::spawn(relay.clone().accept(host, port, listener));
        }
        for at in 0..HOSTS.len() {
            tokio::spawn(relay.clone().datagrams(at));
        }
        relay
    }

    /// Cuts a host off, or connects it again. This function blocks, because it reads the host's
    /// processes from /proc.
    pub fn change(&self, host: &str, cut: bool) {
        self.cut.send_modify(|cables| {
            cables.remove(host);
            if cut {
                cables.insert(host.to_owned(), BTreeSet::new());
            }
        });
        self.record_sockets(host);
    }

    /// Records the connecting sockets of a host that is cut off. This function blocks.
    fn record_sockets(&self, host: &str) {
        let Some(root) = self.roots.get(host) else { return };
        let held = tree::sockets(&tree::Tree::read().descendants(*root));
        self.cut.send_modify(|cables| {
            if let Some(known) = cables.get_mut(host) {
                known.extend(held);
            }
        });
    }

    async fn datagrams(self: Arc<Self>, at: usize) {
        let mut packet = vec![0; 1 << 16];
        let to = HOSTS[at];
        loop {
            let Ok((length, SocketAddr::V4(from))) = self.udp[at].recv_from(&mut packet).await else { continue };
            let Some(sender) = HOSTS.iter().position(|host| *from.ip() == self.place.back_address(host)) else {
                continue;
            };
            let cut = self.cut.borrow().clone();
            if !cut.contains_key(to) && !cut.contains_key(HOSTS[sender]) {
                // The datagram is sent from the front address of its sender, so that an answer
                // reaches the relay.
                let _lost = self.udp[sender].send_to(&packet[..length], self.place.back_socket(to, GOSSIP)).await;
            }
        }
    }

    async fn accept(self: Arc<Self>, host: &'static str, port: u16, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, SocketAddr::V4(from))) => {
                    tokio::spawn(self.clone().carry(host, port, stream, from));
                }
                // A connection can't be accepted, for example, when no file descriptors are left.
                // The pause limits the retries.
                _ => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    }

    async fn carry(self: Arc<Self>, to: &'static str, port: u16, stream: TcpStream, from: SocketAddrV4) {
        let cut: Vec<String> = self.cut.borrow().keys().cloned().collect();
        if !cut.is_empty() {
            let relay = self.clone();
            let looked = tokio::task::spawn_blocking(move || cut.iter().for_each(|host| relay.record_sockets(host)));
            let _never_panics = looked.await;
        }
        let line = ForwardedConnection { to, from, cut: self.cut.subscribe() };
        line.clone().wait_connected().await;
        let Ok(server) = TcpStream::connect(self.place.back_socket(to, port)).await else { return };
        let _a_little_slower = (stream.set_nodelay(true), server.set_nodelay(true));
        let ((client_in, client_out), (server_in, server_out)) = (stream.into_split(), server.into_split());
        tokio::join!(line.clone().pump(client_in, server_out), line.pump(server_in, client_out));
    }
}

/// The two hosts of one forwarded connection.
#[derive(Clone)]
struct ForwardedConnection {
    to: &'static str,
    /// The address of the connecting socket.
    from: SocketAddrV4,
    cut: watch::Receiver<Cut>,
}

impl ForwardedConnection {
    /// Waits until neither host of the connection is cut off.
    async fn wait_connected(mut self) {
        let (to, from) = (self.to, self.from);
        let whole = |cut: &Cut| !cut.contains_key(to) && !cut.values().any(|held| held.contains(&from));
        let _the_relay_ends = self.cut.wait_for(whole).await;
    }

    async fn pump(self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut part = vec![0; 16 << 10];
        loop {
            let read = from.read(&mut part).await;
            self.clone().wait_connected().await;
            match read {
                Ok(n @ 1..) if to.write_all(&part[..n]).await.is_ok() => {}
                _ => break,
            }
        }
        let _gone_already = to.shutdown().await;
    }
}
