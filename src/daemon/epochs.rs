//! Whether the cluster was founded anew without this node's word. Who says so by gossip is asked to prove it: by the certificate at
//! its API, for its own key, which takes a CA of the cluster. A worker can prove it, too, so that the managers of an older epoch
//! stop deciding also while no manager of the newer one is up.
//!
//! ```text
//! manager of the new epoch --renews--> w1's certificate --gossip: epoch 7--> a manager of epoch 3 --handshake--> proved: it parks
//! ```
//! Where that is proved of this very node at another address, another daemon of it goes on there, and this one ends.

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

/// Asked at once, of those that claim it: any one of them can prove it, and the others have their turn in the next round.
const ASKED_MAX: usize = 16;
/// Between two rounds at least, whatever is claimed meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a round in vain is doubled with each further one, up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// At its start a manager waits so long at most for workers that it knows.
const START_WITHIN: Duration = Duration::from_secs(1);
/// A manager part that is to end has this long, before its daemon does.
const PARKED_WITHIN: Duration = Duration::from_secs(10);

/// Somebody to ask.
struct Place {
    id: NodeId,
    addr: String,
    /// In hex.
    key: String,
}

/// What a certificate said.
struct Proof {
    by: NodeId,
    addr: String,
    epoch: Epoch,
}

/// What the task is about.
pub struct Epochs {
    pub gossip: Gossip,
    pub own: Own,
    pub tls: ClientTls,
    /// Of this node, in hex.
    pub key: String,
    pub fatal: mpsc::Sender<DaemonError>,
}

impl Epochs {
    /// Sees every claim proved, or tries again, until `stopped`. What is proved the node hears, and never goes back from.
    pub async fn follow(self, mut stopped: watch::Receiver<bool>) {
        let mut claims = self.gossip.claims();
        let (mut round, mut said) = (0_usize, String::new());
        let mut failures = 0_u32;
        loop {
            let noted = claims.borrow_and_update().clone();
            let (known, certified) = (self.own.epoch(), self.own.certified());
            let me = &self.own.id().name;
            let here: Vec<_> = noted.get(me).filter(|claim| claim.epoch > certified).into_iter().collect();
            let others: BTreeMap<_, _> =
                noted.iter().filter(|(name, claim)| *name != me && claim.epoch > known).collect();
            let open = !here.is_empty() || !others.is_empty();
            if open {
                round += 1;
                let places = (self.places(here.iter().map(|claim| (me, *claim))), self.places(others));
                let ((own, why), (other, more)) = tokio::join!(
                    newest(places.0, &self.tls, certified),
                    newest(turn(places.1, round), &self.tls, known)
                );
                for proof in own.iter().chain(&other).filter(|proof| proof.epoch > self.own.epoch()) {
                    let (by, addr, epoch) = (proof.by, &proof.addr, proof.epoch);
                    tracing::warn!(node = %by, %addr, %epoch, before = %known, "proves that the cluster was founded anew");
                    self.own.hear_epoch(epoch);
                }
                if let (Some(proof), Some(claim)) = (own, here.first()) {
                    return self.end(claim.addr, proof.epoch).await;
                }
                failures = if other.is_some() { 0 } else { failures.saturating_add(1) };
                let why = why.or(more).filter(|_| other.is_none());
                if let Some(why) = why.filter(|why| *why != said) {
                    tracing::warn!(
                        why,
                        "a node says that the cluster was founded anew, and that could not be seen proved"
                    );
                    said = why;
                }
                tokio::select! {
                    () = tokio::time::sleep(PAUSE) => {}
                    _ = stopped.wait_for(|stop| *stop) => return,
                }
            }
            let pause = if open { PAUSE.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX) } else { PAUSE_MAX };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                changed = claims.changed() => if changed.is_err() {
                    return;
                },
                _ = stopped.wait_for(|stop| *stop) => return,
                () = self.own.until_removed() => return,
            }
        }
    }

    /// Another daemon of this node has a newer certificate: the part ends first, on disk too.
    async fn end(&self, addr: SocketAddr, epoch: Epoch) {
        let mut standing = self.own.follow_standing();
        let _ = tokio::time::timeout(PARKED_WITHIN, standing.wait_for(|shown| !shown.manages)).await;
        let _ = self.fatal.send(DaemonError::Refounded { addr, epoch }).await;
    }

    /// Where they answer, as far as managers named them.
    fn places<'a>(&self, claims: impl IntoIterator<Item = (&'a NodeName, &'a Claim)>) -> Vec<Place> {
        let me = self.own.id();
        let known = |name: &NodeName| match *name == me.name {
            true => Some((me.id, self.key.clone())),
            false => self.own.named(name),
        };
        let place = |(name, claim): (&NodeName, &Claim)| {
            let (id, key) = known(name)?;
            Some(Place { id, addr: SocketAddr::from((claim.addr.ip(), claim.api)).to_string(), key })
        };
        claims.into_iter().filter_map(place).collect()
    }
}

/// Before a manager takes part: whether a worker that it knows proves a newer epoch than `epoch`; managers are asked by Raft's own
/// question. Of many some are asked, by chance. Who does not answer at once is heard of by gossip.
pub async fn at_start(peers: &[Peer], managers: &[Peer], tls: &ClientTls, epoch: Epoch) -> Option<Epoch> {
    let workers = peers.iter().filter(|peer| managers.iter().all(|m| m.id != peer.id));
    let place = |peer: &Peer| Place { id: peer.id, addr: peer.api_addr.clone(), key: peer.public_key.clone() };
    let mut dice = [0; 2];
    let _ = getrandom::fill(&mut dice); // without it the first ones are asked
    let places = turn(workers.map(place).collect(), usize::from(u16::from_le_bytes(dice)));
    let (proof, _) = tokio::time::timeout(START_WITHIN, newest(places, tls, epoch)).await.ok()?;
    let Proof { by, addr, epoch } = proof?;
    tracing::warn!(node = %by, %addr, %epoch, "proves that the cluster was founded anew while this manager was away");
    Some(epoch)
}

/// Another part of them in each round.
fn turn(mut places: Vec<Place>, round: usize) -> Vec<Place> {
    if places.len() > ASKED_MAX {
        let first = round.wrapping_mul(ASKED_MAX) % places.len();
        places.rotate_left(first);
        places.truncate(ASKED_MAX);
    }
    places
}

/// The first epoch newer than `than` that one of these proves; else why one of them does not.
async fn newest(places: Vec<Place>, tls: &ClientTls, than: Epoch) -> (Option<Proof>, Option<String>) {
    let asked = places.into_iter().map(|Place { id, addr, key }| async move {
        let proved = proved_epoch(&addr, tls, id, &key).await;
        match proved.map_err(|error| error.to_string()) {
            Ok(epoch) if epoch > than => Ok(Proof { by: id, addr, epoch }),
            Ok(epoch) => Err(format!("{addr}: the certificate of node {id} is of epoch {epoch}")),
            Err(error) => Err(error),
        }
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut why = None;
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(proof) => return (Some(proof), None),
            Err(error) => drop(why.get_or_insert(error)),
        }
    }
    (None, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_however_many_claim_it() {
        let places = || -> Vec<Place> {
            (0..40).map(|n| Place { id: NodeId(n), addr: String::new(), key: String::new() }).collect()
        };
        let mut met = std::collections::BTreeSet::new();
        for round in 1..=5 {
            let asked = turn(places(), round);
            assert_eq!(asked.len(), ASKED_MAX);
            met.extend(asked.iter().map(|place| place.id));
        }
        assert_eq!(met.len(), 40);
        assert_eq!(turn(places().into_iter().take(3).collect(), 7).len(), 3);
    }
}
