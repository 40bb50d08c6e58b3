//! The envelope of a datagram. It proves which node sent the datagram, and shows whether the
//! datagram was sent before. The envelope is needed inside the encryption, because the encryption
//! proves only that the sender has the gossip key. Nothing here uses the network.
//!
//! ```text
//!   32 | length of the name 1 | name of the sender | counter 8 | MAC 16 | messages
//! ```
//! Sender and receiver compute the same key from their own secret node key and the public node key
//! of the other (X25519). So no third node can compute the MAC (HMAC-SHA256). The counter begins
//! with the time of the start in microseconds, so that it is higher than before a restart.

use super::super::config::KeyLookup;
use bytes::{Buf, BytesMut};
use ed25519_dalek::{SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use remoor_model::{ClusterId, Instance, NodeName, Wall};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first byte. No message of memberlist begins with it.
const ENVELOPE: u8 = 32;
const COUNTER: usize = 8;
const MAC: usize = 16;
/// Maximum number of stored pair keys. If there are more pairs, their keys are computed again.
const PAIRS_MAX: usize = 16_384;

type Key = [u8; 32];

/// The reason why a datagram is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvelopeError {
    Length,
    Forged,
    Replayed,
    Removed,
}

/// A datagram whose envelope was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenedDatagram {
    /// None if the datagram has no envelope, or if the key of its sender is not known here.
    pub sender: Option<NodeName>,
    pub text: BytesMut,
}

/// The received counters of a sender: the highest one, and a bit for each of the 128 counters up to
/// it.
#[derive(Debug, Default)]
struct ReplayWindow {
    highest: u64,
    received: u128,
}

impl ReplayWindow {
    /// Whether the counter is new. If so, it counts as received.
    fn accept(&mut self, counter: u64) -> bool {
        if counter > self.highest {
            let step = u32::try_from(counter - self.highest).unwrap_or(u32::MAX);
            self.received = self.received.checked_shl(step).unwrap_or(0) | 1;
            self.highest = counter;
            return true;
        }
        let bit = u32::try_from(self.highest - counter).ok().and_then(|age| 1_u128.checked_shl(age));
        let Some(bit) = bit.filter(|bit| self.received & bit == 0) else { return false };
        self.received |= bit;
        true
    }
}

/// The keys and counters of other nodes.
#[derive(Default)]
struct Peers {
    /// The common key with each node, by the public key of the node.
    pairs: BTreeMap<Key, Key>,
    /// The counters of each sender, with the start of its agent. None for a sender that is not a
    /// live member.
    windows: BTreeMap<NodeName, (Option<Instance>, ReplayWindow)>,
}

/// Makes and opens envelopes for one node.
pub struct EnvelopeSealer {
    cluster: ClusterId,
    me: NodeName,
    signer: SigningKey,
    counter: AtomicU64,
    peers: Mutex<Peers>,
}

impl EnvelopeSealer {
    /// The envelopes of the node `me`, which starts at `now`.
    pub fn new(cluster: ClusterId, me: NodeName, signer: SigningKey, now: Wall) -> Self {
        let counter = AtomicU64::new(now.0.saturating_mul(1_000));
        Self { cluster, me, signer, counter, peers: Mutex::default() }
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of bytes that an envelope has in addition to its text.
    pub fn overhead(&self) -> usize {
        1 + 1 + self.me.as_str().len() + COUNTER + MAC
    }

    /// Puts a text for the node `to` with the public key `key` into an envelope. None if the key is
    /// not valid.
    pub fn seal(&self, to: &NodeName, key: &Key, text: &[u8]) -> Option<Vec<u8>> {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let name = self.me.as_str().as_bytes();
        let mac = self.authenticate(key, [name, to.as_str().as_bytes(), &counter, text])?;
        let length = u8::try_from(name.len()).ok()?;
        Some([&[ENVELOPE, length], name, &counter, &mac, text].concat())
    }

    /// Opens the envelope of a datagram, if it has one. `instance_of` returns the start of the
    /// agent of a live member. The counters of a node that is not a live member, or whose agent has
    /// started again, are deleted, because the clock of the node may have been set back.
    pub fn open(
        &self,
        mut text: BytesMut,
        look_up: impl Fn(&NodeName) -> KeyLookup,
        instance_of: impl Fn(&NodeName) -> Option<Instance>,
    ) -> Result<OpenedDatagram, EnvelopeError> {
        let Some((&[ENVELOPE, length], rest)) = text.split_first_chunk() else {
            return Ok(OpenedDatagram { sender: None, text });
        };
        let split = || {
            let (name, rest) = rest.split_at_checked(usize::from(length))?;
            let (counter, rest) = rest.split_first_chunk::<COUNTER>()?;
            let (mac, messages) = rest.split_first_chunk::<MAC>()?;
            Some((std::str::from_utf8(name).ok()?, counter, mac, messages))
        };
        let (name, counter, mac, messages) = split().ok_or(EnvelopeError::Length)?;
        let sender = NodeName::from(name);
        let key = match look_up(&sender) {
            KeyLookup::Known(key) => Some(key),
            KeyLookup::Unknown => None,
            KeyLookup::Removed => return Err(EnvelopeError::Removed),
        };
        if let Some(key) = &key {
            let fields = [name.as_bytes(), self.me.as_str().as_bytes(), counter, messages];
            let expected = self.authenticate(key.as_bytes(), fields).ok_or(EnvelopeError::Forged)?;
            // The comparison takes the same time wherever the bytes differ.
            if expected.iter().zip(mac).fold(0, |all, (a, b)| all | (a ^ b)) != 0 {
                return Err(EnvelopeError::Forged);
            }
            let instance = instance_of(&sender);
            let mut peers = self.peers();
            let window = peers.windows.entry(sender.clone()).or_default();
            if instance.is_none() || window.0 != instance {
                *window = (instance, ReplayWindow::default());
            }
            if !window.1.accept(u64::from_be_bytes(*counter)) {
                return Err(EnvelopeError::Replayed);
            }
        }
        text.advance(text.len() - messages.len());
        Ok(OpenedDatagram { sender: key.map(|_| sender), text })
    }

    /// Whether an envelope of the node was opened while it was a member.
    pub fn has_heard(&self, name: &NodeName) -> bool {
        self.peers().windows.contains_key(name)
    }

    fn authenticate(&self, key: &Key, fields: [&[u8]; 4]) -> Option<[u8; MAC]> {
        let mut mac = hmac(&self.pair_key(key)?);
        for field in fields {
            mac.update(&(field.len() as u64).to_be_bytes());
            mac.update(field);
        }
        let mut out = [0; MAC];
        out.copy_from_slice(&mac.finalize().into_bytes()[..MAC]);
        Some(out)
    }

    /// The key that only this node and the node with the public key `key` can compute.
    fn pair_key(&self, key: &Key) -> Option<Key> {
        let mut peers = self.peers();
        if let Some(pair) = peers.pairs.get(key) {
            return Some(*pair);
        }
        let public = VerifyingKey::from_bytes(key).ok()?;
        let shared = public.to_montgomery().mul_clamped(self.signer.to_scalar_bytes()).to_bytes();
        let mut mac = hmac(&shared);
        mac.update(b"remoor gossip datagram");
        mac.update(self.cluster.0.as_bytes());
        let pair: Key = mac.finalize().into_bytes().into();
        if peers.pairs.len() >= PAIRS_MAX {
            peers.pairs.clear();
        }
        peers.pairs.insert(*key, pair);
        Some(pair)
    }
}

fn hmac(key: &Key) -> Hmac<Sha256> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    // HMAC fills a shorter key with zeros to the size of a block.
    Hmac::new(&block.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn sealer(name: &str, seed: u8) -> EnvelopeSealer {
        EnvelopeSealer::new("c".into(), name.into(), signer(seed), Wall(1_000))
    }

    fn open(at: &EnvelopeSealer, text: &[u8]) -> Result<OpenedDatagram, EnvelopeError> {
        let look_up = |name: &NodeName| match name.as_str() {
            "a" => KeyLookup::Known(signer(1).verifying_key()),
            "removed" => KeyLookup::Removed,
            _ => KeyLookup::Unknown,
        };
        at.open(BytesMut::from(text), look_up, |_| Some(Instance("1".to_owned())))
    }

    /// Seals a text for b.
    fn seal(from: &EnvelopeSealer, text: &[u8]) -> Vec<u8> {
        from.seal(&"b".into(), signer(2).verifying_key().as_bytes(), text).expect("a valid key")
    }

    #[test]
    fn only_the_named_sender_can_make_an_envelope_and_only_once() {
        let (a, b, c) = (sealer("a", 1), sealer("b", 2), sealer("c", 3));
        let sealed = seal(&a, b"text");
        assert_eq!(sealed.len(), 4 + a.overhead());
        let opened = OpenedDatagram { sender: Some("a".into()), text: BytesMut::from(&b"text"[..]) };
        assert_eq!(open(&b, &sealed), Ok(opened));
        assert_eq!(open(&b, &sealed), Err(EnvelopeError::Replayed));
        assert_eq!(open(&c, &sealed), Err(EnvelopeError::Forged), "meant for b");
        // c has its own key and the public keys of a and b.
        let forged = EnvelopeSealer::new("c".into(), "a".into(), signer(3), Wall(2_000));
        let forged = seal(&forged, b"text");
        assert_eq!(open(&b, &forged), Err(EnvelopeError::Forged));
        let fresh = seal(&a, b"text");
        for at in 0..fresh.len() {
            let mut changed = fresh.clone();
            changed[at] ^= 1;
            assert!(!matches!(open(&b, &changed), Ok(OpenedDatagram { sender: Some(_), .. })), "byte {at}");
        }
        assert!((2..a.overhead()).all(|end| open(&b, &fresh[..end]) == Err(EnvelopeError::Length)));
        assert!(open(&b, &fresh).is_ok(), "what was refused uses up no counter");
        assert!(b.has_heard(&"a".into()) && !b.has_heard(&"c".into()));
        let look_up = |_: &NodeName| KeyLookup::Known(signer(1).verifying_key());
        let again = b.open(BytesMut::from(&fresh[..]), look_up, |_| None);
        assert!(again.is_ok(), "a was gone in the meantime");
    }

    #[test]
    fn a_node_that_restarts_with_an_earlier_clock_is_heard_again() {
        let (b, look_up) = (sealer("b", 2), |_: &NodeName| KeyLookup::Known(signer(1).verifying_key()));
        let start = |text: &'static str| move |_: &NodeName| Some(Instance(text.to_owned()));
        let late = seal(&sealer("a", 1), b"text");
        let early = seal(&EnvelopeSealer::new("c".into(), "a".into(), signer(1), Wall(500)), b"text");
        let receive = |text: &[u8], instance| b.open(BytesMut::from(text), look_up, start(instance)).is_ok();
        assert!(receive(&late, "1"));
        assert!(!receive(&early, "1"), "its report is not known yet");
        assert!(receive(&early, "2") && !receive(&early, "2"));
    }

    #[test]
    fn an_unknown_sender_proves_nothing_and_a_removed_one_is_refused() {
        let b = sealer("b", 2);
        let plain = open(&b, b"\x04ack").expect("no envelope");
        assert_eq!((plain.sender, &plain.text[..]), (None, &b"\x04ack"[..]));
        let opened = open(&b, &seal(&sealer("new", 9), b"text")).expect("opened");
        assert_eq!((opened.sender, &opened.text[..]), (None, &b"text"[..]));
        let removed = seal(&sealer("removed", 9), b"text");
        assert_eq!(open(&b, &removed), Err(EnvelopeError::Removed));
    }

    #[test]
    fn a_window_accepts_each_counter_once_and_no_old_ones() {
        let mut window = ReplayWindow::default();
        assert!([1_000, 1_002, 1_001, 1_100].iter().all(|counter| window.accept(*counter)));
        assert!(![1_000, 1_001, 1_002, 1_100, 900].iter().any(|counter| window.accept(*counter)));
        assert!(window.accept(1_099) && window.accept(u64::MAX));
        assert!(!window.accept(1_098) && !window.accept(0) && !window.accept(u64::MAX));
    }
}
