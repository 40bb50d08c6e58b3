//! Detects that the cluster was rebuilt (a newer epoch) without this node. This node asks a node
//! that claims a newer epoch in gossip for proof. The proof is the certificate at that node's API,
//! which a CA of the cluster issued for that node's own key. A worker can give this proof too. So
//! the managers of an older epoch stop deciding even if no manager of the newer epoch is up.
//!
//! ```text
//! manager of epoch 7 --renews--> certificate of w1 --gossip: w1 has epoch 7--> manager of epoch 3
//! manager of epoch 3 --handshake with w1--> epoch 7 is proved; the manager archives its log
//! ```
//! If the proof shows this very node at another address, another daemon of this node runs there in
//! the newer epoch, and this daemon exits.

use super::run::DaemonError;
use crate::agent::AgentState;
use futures_util::stream::{FuturesUnordered, StreamExt};
use remoor_cluster::gossip::{EpochClaim, Gossip};
use remoor_cluster::incarnation::{EpochClaimant, OwnEpochs};
use remoor_cluster::rpc::connect::{VerifiedNode, verify_node};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_model::{Epoch, NodeId, NodeName};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Maximum number of nodes with a claimed newer epoch that are asked in one round. One proof is
/// enough. The other nodes are asked in the next rounds.
const ASKED_MAX: usize = 16;
/// Maximum number of asked nodes in one round that no manager has reported. It is small, because
/// such nodes choose the addresses at which they are asked.
const STRANGERS_MAX: usize = 2;
/// Minimum pause between two rounds of requests for proof, even if new claims arrive.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause between two rounds of requests for proof. The pause doubles with each round
/// without proof.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time to wait for further answers after the first proof, because one of the other asked nodes may
/// be a manager.
const MORE_WITHIN: Duration = Duration::from_millis(200);
/// Maximum time that a starting manager waits for the workers' proofs of a newer epoch.
const START_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time for the manager service to stop before the daemon exits because of a newer epoch.
const PARKED_WITHIN: Duration = Duration::from_secs(10);

/// A node that is asked for proof of a newer epoch.
#[derive(Clone)]
struct Claimant {
    name: NodeName,
    /// Id and key (hex) as a manager reported them. None if no manager reported the node; any node
    /// of the cluster may then answer.
    known: Option<(NodeId, String)>,
    api: SocketAddr,
    gossip: SocketAddr,
}

/// A proof of a newer epoch, and the node that gave it.
struct Proof {
    place: Claimant,
    proved: VerifiedNode,
}

/// The inputs of the task that asks for proof of newer epochs.
pub struct Epochs {
    pub gossip: Gossip,
    pub own: AgentState,
    pub tls: ClientTls,
    /// Public key of this node, in hex.
    pub key: String,
    pub fatal: mpsc::Sender<DaemonError>,
}

impl Epochs {
    /// Asks for proof of every claimed epoch, with retries, until `stopped`. A proved epoch is
    /// stored in the agent's state and never withdrawn. Afterwards the agent asks a manager of the
    /// newer epoch, until this node has a certificate of that epoch.
    pub async fn follow(self, mut stopped: watch::Receiver<bool>) {
        let mut claims = self.gossip.claims();
        let (mut round, mut failures) = (0_usize, 0_u32);
        let mut said: Option<Instant> = None;
        loop {
            let noted = claims.borrow_and_update().clone();
            let epochs = OwnEpochs { known: self.own.epoch(), certified: self.own.certificate_epoch() };
            let me = &self.own.id().name;
            let by = |claim: &EpochClaim| if claim.manages { EpochClaimant::Manager } else { EpochClaimant::Worker };
            let here = noted.get(me).filter(|claim| epochs.needs_proof(claim.epoch, EpochClaimant::ThisNode));
            let others = noted.iter().filter(|(name, claim)| *name != me && epochs.needs_proof(claim.epoch, by(claim)));
            let (signed, strange): (Vec<_>, Vec<_>) = others.partition(|(_, claim)| claim.signed);
            let places = |of: Vec<(&NodeName, &EpochClaim)>| of.into_iter().map(|(n, c)| self.place(n, c)).collect();
            let open = here.is_some() || !signed.is_empty() || !strange.is_empty();
            if open {
                round += 1;
                let own = here.iter().map(|claim| self.place(me, claim)).collect();
                let mut asked = select_batch(places(signed), round, ASKED_MAX);
                asked.extend(select_batch(places(strange), round, STRANGERS_MAX));
                let (own, others) = tokio::join!(
                    ask(own, &self.tls, epochs.certified, MORE_WITHIN),
                    ask(asked, &self.tls, epochs.certified, MORE_WITHIN)
                );
                let mut learnt = false;
                for Proof { place, proved } in own.proofs.iter().chain(&others.proofs) {
                    learnt |=
                        proved.was_manager && place.name != *me && self.own.add_met_manager(place.as_peer(proved));
                }
                for Proof { place, proved } in own.proofs.iter().chain(&others.proofs) {
                    if proved.epoch > self.own.epoch() {
                        let (by, addr, epoch) = (&place.name, place.api, proved.epoch);
                        tracing::warn!(
                            %by, %addr, %epoch, before = %epochs.known,
                            "a node proved that the cluster was rebuilt (newer epoch)"
                        );
                        self.own.learn_epoch(epoch);
                        learnt = true;
                    }
                }
                if let (Some(proof), Some(claim)) = (own.proofs.first(), here) {
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
                        "a node claims that the cluster was rebuilt (newer epoch), but the claim could not be verified"
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

    /// Ends this daemon, because another daemon of this node has a newer certificate. It first
    /// waits until the manager service has stopped and the stop is on disk.
    async fn end(&self, addr: SocketAddr, epoch: Epoch) {
        let mut standing = self.own.follow_published();
        let _ = tokio::time::timeout(PARKED_WITHIN, standing.wait_for(|shown| !shown.manages)).await;
        let _ = self.fatal.send(DaemonError::RebuiltElsewhere { addr, epoch }).await;
    }

    fn place(&self, name: &NodeName, claim: &EpochClaim) -> Claimant {
        let me = self.own.id();
        let known = if *name == me.name { Some((me.id, self.key.clone())) } else { self.own.named_peer(name) };
        let api = SocketAddr::from((claim.addr.ip(), claim.api));
        Claimant { name: name.clone(), known, api, gossip: claim.addr }
    }
}

impl Claimant {
    fn as_peer(&self, proved: &VerifiedNode) -> PeerInfo {
        PeerInfo {
            name: self.name.clone(),
            id: proved.node,
            gossip_addr: self.gossip.to_string(),
            api_addr: self.api.to_string(),
            public_key: proved.key.clone(),
        }
    }
}

/// Asks workers, before a manager takes part, whether the cluster has an epoch newer than `epoch`.
/// Managers are not asked here, because the manager service asks them when it starts. If there are
/// many workers, a random selection of them is asked. Gossip delivers the epochs of the other
/// workers later.
pub async fn newer_epoch_at_start(
    peers: &[PeerInfo],
    managers: &[PeerInfo],
    tls: &ClientTls,
    epoch: Epoch,
) -> Option<Epoch> {
    let (by, epoch) = proved_by(peers, managers, tls, epoch).await?;
    tracing::warn!(%by, %epoch, "a worker proved that the cluster was rebuilt (newer epoch) while this manager was down");
    Some(epoch)
}

/// The first worker among `peers` that proves an epoch newer than `epoch` within one second. Nodes
/// in `managers` are not asked.
pub async fn proved_by(
    peers: &[PeerInfo],
    managers: &[PeerInfo],
    tls: &ClientTls,
    epoch: Epoch,
) -> Option<(NodeName, Epoch)> {
    let workers = peers.iter().filter(|peer| managers.iter().all(|m| m.id != peer.id));
    let place = |peer: &PeerInfo| {
        let known = Some((peer.id, peer.public_key.clone()));
        Some(Claimant {
            name: peer.name.clone(),
            known,
            api: peer.api_addr.parse().ok()?,
            gossip: peer.gossip_addr.parse().ok()?,
        })
    };
    let mut dice = [0; 2];
    let _ = getrandom::fill(&mut dice); // on an error the first workers are asked
    let places = select_batch(workers.filter_map(place).collect(), usize::from(u16::from_le_bytes(dice)), ASKED_MAX);
    let answered = tokio::time::timeout(START_WITHIN, ask(places, tls, epoch, Duration::ZERO)).await.ok()?;
    let Proof { place, proved } = answered.proofs.into_iter().next()?;
    Some((place.name, proved.epoch))
}

/// Selects at most `most` of the nodes in `places`. Each round selects the ones that follow those
/// of the round before.
fn select_batch(mut places: Vec<Claimant>, round: usize, most: usize) -> Vec<Claimant> {
    if places.len() > most {
        let first = round.wrapping_mul(most) % places.len();
        places.rotate_left(first);
        places.truncate(most);
    }
    places
}

/// The results of one round of requests for proof of a newer epoch.
#[derive(Default)]
struct ProofRound {
    proofs: Vec<Proof>,
    /// The error of one node that gave no proof.
    why: Option<String>,
}

/// Collects the proofs of an epoch newer than `than`. It returns at the first proof by a manager,
/// or when the time `more` has passed since the first proof.
async fn ask(places: Vec<Claimant>, tls: &ClientTls, than: Epoch, more: Duration) -> ProofRound {
    let asked = places.into_iter().map(|place| async move {
        let known = place.known.as_ref().map(|(id, key)| (*id, key.as_str()));
        let proved = verify_node(&place.api.to_string(), tls, known).await;
        (place, proved)
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut answered = ProofRound::default();
    let mut until = None;
    loop {
        let next = match until {
            None => asked.next().await,
            Some(until) => tokio::time::timeout_at(until, asked.next()).await.ok().flatten(),
        };
        let Some((place, proved)) = next else { return answered };
        match proved {
            Ok(proved) if proved.epoch > than => {
                let enough = proved.was_manager;
                answered.proofs.push(Proof { place, proved });
                until = until.or(Some(tokio::time::Instant::now() + more));
                if enough {
                    return answered;
                }
            }
            Ok(proved) => drop(
                answered.why.get_or_insert(format!("the certificate of {} has epoch {}", place.name, proved.epoch)),
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
        let place = |n: u16| Claimant { name: format!("w{n}").as_str().into(), known: None, api: at(n), gossip: at(n) };
        let places = || -> Vec<Claimant> { (0..40).map(place).collect() };
        let mut met = std::collections::BTreeSet::new();
        for round in 1..=5 {
            let asked = select_batch(places(), round, ASKED_MAX);
            assert_eq!(asked.len(), ASKED_MAX);
            met.extend(asked.into_iter().map(|place| place.name));
        }
        assert_eq!(met.len(), 40);
        assert_eq!(select_batch(places().into_iter().take(3).collect(), 7, ASKED_MAX).len(), 3);
    }
}
