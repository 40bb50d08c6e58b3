//! Whether the cluster was founded anew without this node's word. Who says so by gossip is asked to prove it: by the certificate at
//! its API, which only a manager of the newer epoch can have issued. A worker can, too, so that the managers of an older epoch
//! stop deciding also while no manager of the newer one is up.
//!
//! ```text
//! manager of the new epoch --renews--> w1's certificate --gossip: epoch 7--> a manager of epoch 3 --handshake--> proved: it parks
//! ```
//! Where that is proved of this very node at another address, it lives there now, and this daemon ends.

use super::run::DaemonError;
use crate::agent::Own;
use crate::gossip::{Claim, Gossip};
use crate::model::{Epoch, NodeId, NodeName};
use crate::rpc::connect::proved_epoch;
use crate::rpc::join::Peer;
use crate::rpc::tls::ClientTls;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Asked at once: any one of them can prove it.
const ASKED_MAX: usize = 16;
/// The pause after a round in which nobody did, doubled with each further one up to the second.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// At its start a manager waits so long at most for nodes that it knows.
const START_WITHIN: Duration = Duration::from_secs(1);

/// A manager part that is to end has this long, before its daemon does.
const PARKED_WITHIN: Duration = Duration::from_secs(10);

/// Sees every claim proved, or refuted, until `stopped`. What is proved the node hears, and never goes back from.
pub async fn follow(
    gossip: Gossip,
    own: Own,
    tls: ClientTls,
    fatal: mpsc::Sender<DaemonError>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut claims = gossip.claims();
    let mut failures = 0;
    loop {
        let open: BTreeMap<NodeName, Claim> = claims.borrow_and_update().clone();
        let before = own.epoch();
        let open: BTreeMap<_, _> = open.into_iter().filter(|(_, claim)| claim.epoch > before).collect();
        let pause = match open.is_empty() {
            true => PAUSE_MAX,
            false => match prove(&own, &tls, &open).await {
                Some(epoch) => {
                    own.hear_epoch(epoch);
                    if let Some(claim) = open.get(&own.id().name)
                        && newest(places(&own, [(&own.id().name, claim)]), &tls, before).await.is_some()
                    {
                        let mut standing = own.follow_standing();
                        let _ = tokio::time::timeout(PARKED_WITHIN, standing.wait_for(|shown| !shown.manages)).await;
                        let _ = fatal.try_send(DaemonError::Refounded { addr: claim.addr, epoch });
                        return;
                    }
                    continue;
                }
                None => {
                    failures += 1;
                    PAUSE.saturating_mul(1 << (failures - 1_u32).min(16)).min(PAUSE_MAX)
                }
            },
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = claims.changed() => match changed {
                Ok(()) => failures = 0,
                Err(_) => return,
            },
            _ = stopped.wait_for(|stop| *stop) => return,
            () = own.until_removed() => return,
        }
    }
}

/// The newer epoch that one of these proves.
async fn prove(own: &Own, tls: &ClientTls, claims: &BTreeMap<NodeName, Claim>) -> Option<Epoch> {
    let newest = newest(places(own, claims), tls, own.epoch()).await;
    match newest {
        Some(epoch) => {
            tracing::warn!(%epoch, before = %own.epoch(), "a node proves that the cluster was founded anew");
        }
        None => {
            let by = claims.keys().map(NodeName::as_str).next().unwrap_or_default();
            tracing::warn!(by, "a node says that the cluster was founded anew, and does not prove it");
        }
    }
    newest
}

/// Where the nodes answer that claim it, as far as managers named them.
fn places<'a>(own: &Own, claims: impl IntoIterator<Item = (&'a NodeName, &'a Claim)>) -> Vec<(NodeId, String)> {
    let place = |(name, claim): (&NodeName, &Claim)| {
        let (id, port) = own.named(name)?;
        let port = Some(claim.api).filter(|port| *port != 0).or(port)?;
        Some((id, SocketAddr::from((claim.addr.ip(), port)).to_string()))
    };
    claims.into_iter().filter_map(place).collect()
}

/// Before a manager takes part: whether a node that it knows proves a newer epoch than `epoch`. Who does not answer at once
/// is heard of by gossip.
pub async fn at_start(peers: &[Peer], me: NodeId, tls: &ClientTls, epoch: Epoch) -> Option<Epoch> {
    let places = peers.iter().filter(|peer| peer.id != me).map(|peer| (peer.id, peer.api_addr.clone()));
    tokio::time::timeout(START_WITHIN, newest(places.collect(), tls, epoch)).await.ok().flatten()
}

/// The first epoch newer than `than` that one of these proves; None: none does.
async fn newest(places: Vec<(NodeId, String)>, tls: &ClientTls, than: Epoch) -> Option<Epoch> {
    let asked = places.into_iter().take(ASKED_MAX).map(|(id, addr)| async move {
        proved_epoch(&addr, tls, id).await.map_err(|error| tracing::debug!(%error, "an epoch is not proved")).ok()
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    while let Some(proved) = asked.next().await {
        if let Some(epoch) = proved.filter(|epoch| *epoch > than) {
            return Some(epoch);
        }
    }
    None
}
