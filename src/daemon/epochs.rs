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
use crate::rpc::connect::{Proved, proved};
use crate::rpc::join::Peer;
use crate::rpc::tls::ClientTls;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Asked at once, of those that claim it: any one of them can prove it, and the others have their turn in the next round.
const ASKED_MAX: usize = 16;
/// The same of nodes that nobody named: they say themselves where they answer.
const STRANGERS_MAX: usize = 2;
/// Between two rounds at least, whatever is claimed meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a round in vain is doubled with each further one, up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Once one has proved it, the others have so long: one of them may be a manager.
const MORE_WITHIN: Duration = Duration::from_millis(200);
/// At its start a manager waits so long at most for workers that it knows.
const START_WITHIN: Duration = Duration::from_secs(1);
/// A manager part that is to end has this long, before its daemon does.
const PARKED_WITHIN: Duration = Duration::from_secs(10);

/// Somebody to ask.
#[derive(Clone)]
struct Place {
    name: NodeName,
    /// Id and key in hex, as managers named them; None: nobody did, and any node of the cluster may answer.
    known: Option<(NodeId, String)>,
    api: SocketAddr,
    gossip: SocketAddr,
}

/// Who proved it, and what.
struct Proof {
    place: Place,
    proved: Proved,
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
    /// Sees every claim proved, or tries again, until `stopped`. What is proved the node hears, and never goes back from; a manager of
    /// the newer epoch is asked from then on, until the node has its certificate.
    pub async fn follow(self, mut stopped: watch::Receiver<bool>) {
        let mut claims = self.gossip.claims();
        let (mut round, mut failures) = (0_usize, 0_u32);
        let mut said: Option<Instant> = None;
        loop {
            let noted = claims.borrow_and_update().clone();
            let (known, certified) = (self.own.epoch(), self.own.certified());
            let me = &self.own.id().name;
            let news = |claim: &Claim| claim.epoch > known || claim.manages && claim.epoch > certified;
            let here: Vec<_> = noted.get(me).filter(|claim| claim.epoch > certified).into_iter().collect();
            let others = noted.iter().filter(|(name, claim)| *name != me && news(claim));
            let (signed, strange): (Vec<_>, Vec<_>) = others.partition(|(_, claim)| claim.signed);
            let places = |of: Vec<(&NodeName, &Claim)>| of.into_iter().map(|(n, c)| self.place(n, c)).collect();
            let open = !here.is_empty() || !signed.is_empty() || !strange.is_empty();
            if open {
                round += 1;
                let own = here.iter().map(|claim| self.place(me, claim)).collect();
                let mut asked = turn(places(signed), round, ASKED_MAX);
                asked.extend(turn(places(strange), round, STRANGERS_MAX));
                let (own, others) = tokio::join!(
                    ask(own, &self.tls, certified, MORE_WITHIN),
                    ask(asked, &self.tls, certified, MORE_WITHIN)
                );
                let mut learnt = false;
                for Proof { place, proved } in own.proofs.iter().chain(&others.proofs) {
                    learnt |= proved.managed && place.name != *me && self.own.meet_manager(place.as_peer(proved));
                }
                for Proof { place, proved } in own.proofs.iter().chain(&others.proofs) {
                    if proved.epoch > self.own.epoch() {
                        let (by, addr, epoch) = (&place.name, place.api, proved.epoch);
                        tracing::warn!(%by, %addr, %epoch, before = %known, "proves that the cluster was founded anew");
                        self.own.hear_epoch(epoch);
                        learnt = true;
                    }
                }
                if let (Some(proof), Some(claim)) = (own.proofs.first(), here.first()) {
                    return self.end(claim.addr, proof.proved.epoch).await;
                }
                if learnt {
                    self.own.ask_soon();
                }
                failures = if learnt { 0 } else { failures.saturating_add(1) };
                let again = said.is_none_or(|at| at.elapsed() > PAUSE_MAX);
                let none = own.proofs.is_empty() && others.proofs.is_empty();
                if let Some(why) = own.why.or(others.why).filter(|_| none && again) {
                    tracing::warn!(
                        why,
                        "a node says that the cluster was founded anew, and that could not be seen proved"
                    );
                    said = Some(Instant::now());
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

    fn place(&self, name: &NodeName, claim: &Claim) -> Place {
        let me = self.own.id();
        let known = if *name == me.name { Some((me.id, self.key.clone())) } else { self.own.named(name) };
        let api = SocketAddr::from((claim.addr.ip(), claim.api));
        Place { name: name.clone(), known, api, gossip: claim.addr }
    }
}

impl Place {
    fn as_peer(&self, proved: &Proved) -> Peer {
        Peer {
            name: self.name.clone(),
            id: proved.node,
            gossip_addr: self.gossip.to_string(),
            api_addr: self.api.to_string(),
            public_key: proved.key.clone(),
        }
    }
}

/// Before a manager takes part: whether a worker that it knows proves a newer epoch than `epoch`; managers are asked by Raft's own
/// question. Of many some are asked, by chance. Who does not answer at once is heard of by gossip.
pub async fn at_start(peers: &[Peer], managers: &[Peer], tls: &ClientTls, epoch: Epoch) -> Option<Epoch> {
    let (by, epoch) = proved_by(peers, managers, tls, epoch).await?;
    tracing::warn!(%by, %epoch, "proves that the cluster was founded anew while this manager was away");
    Some(epoch)
}

/// Which of these, that is no manager, proves a newer epoch than `epoch`, within a second.
pub async fn proved_by(peers: &[Peer], managers: &[Peer], tls: &ClientTls, epoch: Epoch) -> Option<(NodeName, Epoch)> {
    let workers = peers.iter().filter(|peer| managers.iter().all(|m| m.id != peer.id));
    let place = |peer: &Peer| {
        let known = Some((peer.id, peer.public_key.clone()));
        Some(Place {
            name: peer.name.clone(),
            known,
            api: peer.api_addr.parse().ok()?,
            gossip: peer.gossip_addr.parse().ok()?,
        })
    };
    let mut dice = [0; 2];
    let _ = getrandom::fill(&mut dice); // without it the first ones are asked
    let places = turn(workers.filter_map(place).collect(), usize::from(u16::from_le_bytes(dice)), ASKED_MAX);
    let answered = tokio::time::timeout(START_WITHIN, ask(places, tls, epoch, Duration::ZERO)).await.ok()?;
    let Proof { place, proved } = answered.proofs.into_iter().next()?;
    Some((place.name, proved.epoch))
}

/// Another part of them in each round.
fn turn(mut places: Vec<Place>, round: usize, most: usize) -> Vec<Place> {
    if places.len() > most {
        let first = round.wrapping_mul(most) % places.len();
        places.rotate_left(first);
        places.truncate(most);
    }
    places
}

/// What came of asking.
#[derive(Default)]
struct Answered {
    proofs: Vec<Proof>,
    /// Of one that proved nothing.
    why: Option<String>,
}

/// Who proves an epoch newer than `than`: up to the first that managed, or those that are done within `more` after the first.
async fn ask(places: Vec<Place>, tls: &ClientTls, than: Epoch, more: Duration) -> Answered {
    let asked = places.into_iter().map(|place| async move {
        let known = place.known.as_ref().map(|(id, key)| (*id, key.as_str()));
        let proved = proved(&place.api.to_string(), tls, known).await;
        (place, proved)
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut answered = Answered::default();
    let mut until = None;
    loop {
        let next = match until {
            None => asked.next().await,
            Some(until) => tokio::time::timeout_at(until, asked.next()).await.ok().flatten(),
        };
        let Some((place, proved)) = next else { return answered };
        match proved {
            Ok(proved) if proved.epoch > than => {
                let enough = proved.managed;
                answered.proofs.push(Proof { place, proved });
                until = until.or(Some(tokio::time::Instant::now() + more));
                if enough {
                    return answered;
                }
            }
            Ok(proved) => drop(
                answered.why.get_or_insert(format!("the certificate of {} is of epoch {}", place.name, proved.epoch)),
            ),
            Err(error) => drop(answered.why.get_or_insert(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn_however_many_claim_it() {
        let at = |n: u16| SocketAddr::from(([127, 0, 0, 1], n));
        let place = |n: u16| Place { name: format!("w{n}").as_str().into(), known: None, api: at(n), gossip: at(n) };
        let places = || -> Vec<Place> { (0..40).map(place).collect() };
        let mut met = std::collections::BTreeSet::new();
        for round in 1..=5 {
            let asked = turn(places(), round, ASKED_MAX);
            assert_eq!(asked.len(), ASKED_MAX);
            met.extend(asked.into_iter().map(|place| place.name));
        }
        assert_eq!(met.len(), 40);
        assert_eq!(turn(places().into_iter().take(3).collect(), 7, ASKED_MAX).len(), 3);
    }
}
