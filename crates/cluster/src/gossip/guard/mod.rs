//! Checks each decrypted message before memberlist receives it. memberlist believes every message
//! that it can decode, and its arithmetic is not checked for overflows. The guard passes a message
//! on, replaces it by a weaker one, or drops it. `docs/design/gossip.md` has the rules and their
//! reasons.
//!
//! ```text
//!   transport ──> envelope (who sent it?) ──> wire (is it whole?) ──> guard ──> memberlist
//!                            ledger (which incarnation?) <──────────────┤
//!                            delegate (whose record?) <─────────────────┘
//! ```

mod asked;
mod envelope;
mod ledger;
mod senders;
#[cfg(test)]
mod tests;
pub mod wire;

use super::config::{GossipTiming, KeyLookup};
use super::delegate::{GossipState, RecordRejection};
use super::judge::is_valid_name;
use super::meta;
use super::transport::Refusals;
use bytes::{Bytes, BytesMut};
use ed25519_dalek::SigningKey;
use envelope::{EnvelopeError, EnvelopeSealer, OpenedDatagram};
use ledger::IncarnationLedger;
pub use ledger::highest_at;
use memberlist::proto::{Data, PushNodeState, PushPull, PushPullRef, State, Suspect};
use remoor_host::wall_clock;
use remoor_model::{NodeName, Report, Wall};
use senders::SenderCheck;
use smol_str::SmolStr;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::{MessageView, OwnedMessage};

type NodeRecord = PushNodeState<SmolStr, SocketAddr>;

/// If the difference between this node's incarnation number and the limit of its report is smaller,
/// the report is signed again. Until then, this node uses fewer numbers than this.
const RENEWAL_MARGIN: u32 = 64;
/// Time in milliseconds by which a signed time may be ahead of this clock and still count.
const CLOCK_AHEAD_MS: u64 = 24 * 3_600_000;

/// The reason why a message is not passed on. None for a message that honest nodes send too; it is
/// not counted.
type Refused = Option<&'static str>;

/// The result of checking one message.
enum Verdict {
    Pass,
    /// A weaker message is passed on instead.
    Replace(OwnedMessage),
    Drop(Refused),
}

/// A claim that a node is alive.
#[derive(Clone, Copy)]
struct AliveClaim<'a> {
    name: &'a str,
    addr: SocketAddr,
    meta: &'a [u8],
    number: u32,
}

/// A claim that a node failed or left.
#[derive(Clone, Copy)]
struct Accusation<'a> {
    name: &'a str,
    from: &'a str,
    number: u32,
}

/// The guard of one member at one address.
pub struct MessageGuard {
    shared: Arc<GossipState>,
    refusals: Arc<Refusals>,
    ledger: Mutex<IncarnationLedger>,
    senders: SenderCheck,
    /// The time that a suspected node has for a contradiction. Within this time, no message that
    /// the node failed is believed. It is shorter than memberlist's suspicion, because the sender
    /// has suspected the node for longer than this node has.
    grace: Duration,
}

impl MessageGuard {
    /// The guard before a memberlist whose table is empty.
    pub fn new(shared: Arc<GossipState>, signer: &SigningKey, refusals: Arc<Refusals>, timing: &GossipTiming) -> Self {
        let factor = u32::try_from(timing.suspicion_mult).unwrap_or(u32::MAX);
        let grace = timing.probe_interval.saturating_mul(factor) / 2;
        let (cluster, me) = (shared.judge.cluster.clone(), shared.judge.me.clone());
        let sealer = EnvelopeSealer::new(cluster, me, signer.clone(), wall_clock::now());
        let senders = SenderCheck::new(shared.clone(), sealer);
        Self { shared, refusals, ledger: Mutex::new(IncarnationLedger::new(Instant::now())), senders, grace }
    }

    /// The maximum number of bytes that a datagram has in addition to its messages.
    pub fn overhead(&self) -> usize {
        self.senders.overhead()
    }

    /// Puts the messages for the member at `to` into an envelope. None if the member can't open it.
    pub fn seal(&self, to: SocketAddr, text: &[u8]) -> Option<Vec<u8>> {
        self.senders.seal(to, text)
    }

    fn ledger(&self) -> MutexGuard<'_, IncarnationLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The messages of a datagram that memberlist may receive. None if there are none.
    pub fn check_datagram(&self, text: BytesMut, from: SocketAddr) -> Option<Bytes> {
        let refuse = |reason| self.refusals.count(reason, from, Instant::now());
        let OpenedDatagram { sender, text } = match self.senders.open(text) {
            Ok(opened) => opened,
            Err(error) => {
                refuse(envelope_reason(error));
                return None;
            }
        };
        let Some(parts) = wire::split(&text) else {
            refuse("a message is not whole");
            return None;
        };
        let messages: Vec<_> = parts.iter().map(|part| wire::decode(part).ok()).collect();
        let mut kept: Vec<Option<Vec<u8>>> = vec![None; parts.len()];
        let mut changed = false;
        // An accusation may concern an incarnation that another message of the same datagram
        // announces.
        for is_alive in [true, false] {
            for (n, message) in messages.iter().enumerate() {
                if matches!(message, Some(MessageView::Alive(_))) != is_alive {
                    continue;
                }
                let verdict =
                    message.as_ref().map_or(Verdict::Drop(Some(UNREADABLE)), |m| self.check_packet(m, sender.as_ref()));
                changed |= !matches!(verdict, Verdict::Pass);
                kept[n] = match verdict {
                    Verdict::Pass => Some(parts[n].to_vec()),
                    Verdict::Replace(weaker) => wire::encode(&weaker),
                    Verdict::Drop(reason) => {
                        reason.into_iter().for_each(refuse);
                        None
                    }
                };
            }
        }
        if !changed {
            return Some(text.freeze());
        }
        wire::join(&kept.into_iter().flatten().collect::<Vec<_>>()).map(Bytes::from)
    }

    /// The message of a stream, without the parts that memberlist must not receive. None if the
    /// whole message is refused.
    pub fn check_stream(&self, text: BytesMut, from: SocketAddr) -> Option<BytesMut> {
        let refuse = |reason| self.refusals.count(reason, from, Instant::now());
        let message = match wire::split(&text).as_deref() {
            Some([part]) => wire::decode(part).ok(),
            _ => None,
        };
        let verdict = match &message {
            Some(MessageView::PushPull(exchange)) => self.check_exchange(exchange, refuse),
            Some(MessageView::Ping(ping)) => self.check_ping(ping.target().id(), *ping.source().address()),
            Some(MessageView::Ack(_)) => Verdict::Pass,
            Some(MessageView::ErrorResponse(_)) => Verdict::Drop(Some("the peer reports an error")),
            Some(_) => Verdict::Drop(Some(UNEXPECTED)),
            None => Verdict::Drop(Some(UNREADABLE)),
        };
        match verdict {
            Verdict::Pass => Some(text),
            Verdict::Replace(weaker) => wire::encode(&weaker).map(|bytes| BytesMut::from(&bytes[..])),
            Verdict::Drop(reason) => {
                reason.into_iter().for_each(refuse);
                None
            }
        }
    }

    fn check_packet(&self, message: &MessageView<'_>, sender: Option<&NodeName>) -> Verdict {
        match message {
            MessageView::Ack(ack) if !self.senders.may_acknowledge(sender, ack.sequence_number()) => {
                Verdict::Drop(Some("an acknowledgement of a node that was not asked"))
            }
            MessageView::Ack(_) | MessageView::Nack(_) => Verdict::Pass,
            MessageView::Ping(ping) => self.check_ping(ping.target().id(), *ping.source().address()),
            MessageView::IndirectPing(ping) => {
                let (source, target) = (ping.source(), ping.target());
                // memberlist subtracts the length of the names from the size of a datagram.
                let named = is_valid_name(source.id()) && is_valid_name(target.id());
                let placed = is_plausible(*source.address()) && is_plausible(*target.address());
                if !named || !placed {
                    return Verdict::Drop(Some(BAD_NODE));
                }
                match self.ledger().known_number(&NodeName::from(*target.id())) {
                    Some(_) => Verdict::Pass,
                    None => Verdict::Drop(Some("a ping of a node that is not a member")),
                }
            }
            MessageView::Alive(alive) => {
                let (name, addr) = (*alive.node().id(), *alive.node().address());
                let claim = AliveClaim { name, addr, meta: alive.meta(), number: alive.incarnation() };
                self.check_alive(claim).map_or_else(Verdict::Drop, |()| Verdict::Pass)
            }
            MessageView::Suspect(suspect) => {
                let accusation =
                    Accusation { name: suspect.node(), from: suspect.from(), number: suspect.incarnation() };
                self.check_suspect(accusation).map_or_else(Verdict::Drop, |()| Verdict::Pass)
            }
            MessageView::Dead(dead) => {
                let accusation = Accusation { name: dead.node(), from: dead.from(), number: dead.incarnation() };
                match self.check_dead(accusation, dead.node() == dead.from()) {
                    Ok(true) => Verdict::Pass,
                    Ok(false) => {
                        let (node, from) = (SmolStr::new(accusation.name), SmolStr::new(accusation.from));
                        Verdict::Replace(Suspect::new(accusation.number, node, from).into())
                    }
                    Err(refused) => Verdict::Drop(refused),
                }
            }
            _ => Verdict::Drop(Some(UNEXPECTED)),
        }
    }

    /// Checks a ping. The answer goes to `source`.
    fn check_ping(&self, target: &str, source: SocketAddr) -> Verdict {
        if !is_plausible(source) {
            return Verdict::Drop(Some(BAD_NODE));
        }
        if target != self.shared.judge.me.as_str() {
            return Verdict::Drop(Some("a ping for another node"));
        }
        Verdict::Pass
    }

    /// Checks each node of a state exchange.
    fn check_exchange(&self, exchange: &PushPullRef<'_, &str, SocketAddr>, refuse: impl Fn(&'static str)) -> Verdict {
        let (mut kept, mut names) = (vec![], BTreeSet::new());
        let mut changed = !exchange.user_data().is_empty();
        for record in exchange.states().iter::<NodeRecord>() {
            let Ok(record) = record else {
                // After an error, the decoder returns the same error without end.
                refuse(UNREADABLE);
                changed = true;
                break;
            };
            let claim = AliveClaim {
                name: record.id(),
                addr: *record.address(),
                meta: record.meta(),
                number: record.incarnation(),
            };
            let result = match names.contains(claim.name) {
                true => Err(Some("a node occurs twice in an exchange")),
                false => self.check_record(claim, record.state()),
            };
            let state = result.unwrap_or_else(|refused| {
                refused.into_iter().for_each(&refuse);
                None
            });
            changed |= state != Some(record.state());
            if let Some((state, owned)) = state.zip(NodeRecord::from_ref(record).ok()) {
                names.insert(claim.name);
                kept.push(owned.with_state(state));
            }
        }
        if changed { Verdict::Replace(PushPull::new(exchange.join(), kept.into_iter()).into()) } else { Verdict::Pass }
    }

    /// The state that memberlist may store for a node of an exchange.
    fn check_record(&self, claim: AliveClaim<'_>, state: State) -> Result<Option<State>, Refused> {
        // For a record of an exchange, memberlist stores this node as the accuser.
        let accusation = Accusation { name: claim.name, from: self.shared.judge.me.as_str(), number: claim.number };
        match state {
            State::Alive => self.check_alive(claim).map(|()| Some(State::Alive)),
            State::Suspect | State::Dead => self.check_suspect(accusation).map(|()| Some(state)),
            State::Left => {
                // The record of a node that left contains its last report.
                let announced = meta::decode(claim.meta).is_some_and(|report| report.leaving);
                if announced && claim.name != self.shared.judge.me.as_str() {
                    self.check_alive(claim)?;
                }
                self.check_dead(accusation, true).map(|left| Some(if left { State::Left } else { State::Suspect }))
            }
            _ => Err(Some(UNEXPECTED)),
        }
    }

    fn check_alive(&self, claim: AliveClaim<'_>) -> Result<(), Refused> {
        if !is_valid_name(claim.name) || !is_plausible(claim.addr) || claim.meta.len() > meta::META_MAX {
            return Err(Some(BAD_NODE));
        }
        let name = NodeName::from(claim.name);
        if name == self.shared.judge.me {
            return self.check_own_alive(&name, claim);
        }
        let report = meta::decode(claim.meta);
        let known = matches!((self.shared.judge.verify)(&name), KeyLookup::Known(_));
        if claim.number > self.highest_number(report.as_ref().filter(|_| known)) {
            return Err(Some(TOO_HIGH));
        }
        self.shared.admit(&name, claim.addr, claim.meta).map_err(rejection_reason)?;
        // A report of a newer version can't be read. Its node may be leaving.
        let leaving = report.is_none_or(|report| report.leaving);
        self.ledger().pass_alive(&name, claim.number, leaving);
        Ok(())
    }

    /// The highest incarnation number of a node with this report. If the report has no time, the
    /// present time limits the number.
    fn highest_number(&self, report: Option<&Report>) -> u32 {
        let signed_at = report.map(|report| report.signed_at).filter(|at| at.0 != 0);
        highest_at(limit_time(signed_at.unwrap_or_else(wall_clock::now)))
    }

    /// Checks a record of this node. memberlist contradicts a record that differs from its own one,
    /// with the next incarnation number.
    fn check_own_alive(&self, me: &NodeName, claim: AliveClaim<'_>) -> Result<(), Refused> {
        let (_, own) = self.shared.own_record();
        let known = self.ledger().known_number(me).unwrap_or(0);
        let contradicts = claim.number > known || claim.number == known && own != claim.meta;
        if contradicts {
            self.check_own_number(claim.number).map_err(Some)?;
        }
        self.shared.admit(me, claim.addr, claim.meta).map_err(rejection_reason)?;
        let number = if own == claim.meta { claim.number } else { claim.number.saturating_add(1) };
        self.ledger().pass_alive(me, number, false);
        Ok(())
    }

    /// Whether this node may contradict a claim about itself with this incarnation number.
    fn check_own_number(&self, number: u32) -> Result<(), &'static str> {
        let (signed_at, _) = self.shared.own_record();
        if number > highest_at(limit_time(signed_at).max(wall_clock::now())) {
            return Err(TOO_HIGH);
        }
        if !self.ledger().may_contradict(Instant::now()) {
            return Err("this node is accused too often");
        }
        if number.saturating_add(RENEWAL_MARGIN) > highest_at(signed_at) {
            self.shared.request_renewal();
        }
        Ok(())
    }

    fn check_suspect(&self, accusation: Accusation<'_>) -> Result<(), Refused> {
        let name = self.check_accused(accusation)?;
        self.ledger().pass_suspect(&name, accusation.number, Instant::now());
        Ok(())
    }

    /// Whether a message that a node failed or left is passed on as it is. Otherwise it counts as a
    /// suspicion, which the node can contradict in time.
    fn check_dead(&self, accusation: Accusation<'_>, left: bool) -> Result<bool, Refused> {
        let name = self.check_accused(accusation)?;
        let (mut ledger, now) = (self.ledger(), Instant::now());
        let believed = match left {
            true => ledger.is_leaving(&name) || name == self.shared.judge.me,
            false => ledger.was_suspected_for(&name, accusation.number, self.grace, now),
        };
        if !believed {
            ledger.pass_suspect(&name, accusation.number, now);
        }
        Ok(believed)
    }

    /// The name of an accused node, if the accusation concerns an incarnation that is known here.
    fn check_accused(&self, accusation: Accusation<'_>) -> Result<NodeName, Refused> {
        if !is_valid_name(accusation.name) || !is_valid_name(accusation.from) {
            return Err(Some(BAD_NODE));
        }
        let name = NodeName::from(accusation.name);
        let known = self.ledger().known_number(&name);
        if name == self.shared.judge.me {
            // This node contradicts with the next number. So it can contradict an accusation with a
            // number that it had before a restart.
            if accusation.number >= known.unwrap_or(0) {
                self.check_own_number(accusation.number).map_err(Some)?;
                self.ledger().pass_alive(&name, accusation.number.saturating_add(1), false);
            }
            return Ok(name);
        }
        match known {
            Some(known) if accusation.number <= known => Ok(name),
            Some(_) => Err(Some("an accusation concerns an incarnation that is not known here")),
            // memberlist ignores accusations of nodes that are not in its table.
            None => Err(None),
        }
    }
}

const UNREADABLE: &str = "a message cannot be read";
const UNEXPECTED: &str = "a message of a kind that members do not send";
const BAD_NODE: &str = "a message has an invalid name, address or report";
const TOO_HIGH: &str = "an incarnation is higher than its time allows";

/// Whether a member can have this address.
fn is_plausible(addr: SocketAddr) -> bool {
    let ip = addr.ip().to_canonical();
    let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
    addr.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !broadcast
}

/// The reason of a refusal, as text for the log. Each kind of error has one fixed text.
fn envelope_reason(error: EnvelopeError) -> &'static str {
    match error {
        EnvelopeError::Length => "a datagram has no whole envelope",
        EnvelopeError::Forged => "a datagram is not from the node that it names",
        EnvelopeError::Replayed => "a datagram was sent again",
        EnvelopeError::Removed => "a datagram of a removed node",
    }
}

/// The time up to which a signed time counts for the limit. A node whose clock was in the far
/// future may have got a high number from others. It must not stay above the limit of its next
/// reports.
fn limit_time(signed_at: Wall) -> Wall {
    signed_at.min(wall_clock::now().plus_ms(CLOCK_AHEAD_MS))
}

/// The reason of a rejection, as text for the log. Each kind of rejection has one fixed text.
fn rejection_reason(rejection: RecordRejection) -> Refused {
    Some(match rejection {
        RecordRejection::Forged => "a record has a signature that is not its node's",
        RecordRejection::Removed => "a record of a removed node",
        RecordRejection::BadName => BAD_NODE,
        RecordRejection::Crowded => "too many nodes that are not in the inventory",
        RecordRejection::OwnElsewhere => "a record has this node's name at another address",
        // Nodes that have not received the newest report yet send the one before it.
        RecordRejection::Outdated => return None,
    })
}
