//! Seals the datagrams of this node, and finds out which node sent a received datagram. A node uses
//! an envelope if it knows the key of the receiver, and if the receiver's report says that it reads
//! envelopes. The previous version sends and receives datagrams without envelopes.

use super::super::delegate::GossipState;
use super::super::meta;
use super::asked::AskedNodes;
use super::envelope::{EnvelopeError, EnvelopeSealer, OpenedDatagram};
use super::wire::{self, MessageView};
use bytes::BytesMut;
use remoor_model::NodeName;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first bytes of the messages that ask for an acknowledgement.
const PINGS: [u8; 2] = [2, 3];

/// Seals the datagrams of this node and opens those of others.
pub struct SenderCheck {
    shared: Arc<GossipState>,
    sealer: EnvelopeSealer,
    asked: Mutex<AskedNodes>,
}

impl SenderCheck {
    /// The check of a member that has sent and received nothing yet.
    pub fn new(shared: Arc<GossipState>, sealer: EnvelopeSealer) -> Self {
        Self { shared, sealer, asked: Mutex::default() }
    }

    fn lock_asked(&self) -> MutexGuard<'_, AskedNodes> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of bytes that an envelope has in addition to its text.
    pub fn overhead(&self) -> usize {
        self.sealer.overhead()
    }

    /// Puts a text for the member at `to` into an envelope. None if the member can't open it.
    /// Records the nodes that the text asks for an acknowledgement.
    pub fn seal(&self, to: SocketAddr, text: &[u8]) -> Option<Vec<u8>> {
        let receiver = {
            let view = self.shared.view();
            view.member_at(to).map(|(name, entry)| {
                let key = entry.key.filter(|_| entry.signed && meta::reads_envelopes(&entry.meta));
                (name.clone(), key)
            })
        };
        let (name, key) = receiver.map_or((None, None), |(name, key)| (Some(name), key));
        self.note_pings(name.as_ref(), text);
        self.sealer.seal(&name?, &key?, text)
    }

    fn note_pings(&self, receiver: Option<&NodeName>, text: &[u8]) {
        // memberlist sends a ping as the first message of a datagram.
        let parts = wire::split(text).unwrap_or_default();
        let ping = parts.first().filter(|part| part.first().is_some_and(|tag| PINGS.contains(tag)));
        match ping.and_then(|part| wire::decode(part).ok()) {
            Some(MessageView::Ping(ping)) => {
                self.lock_asked().ask(ping.sequence_number(), Some(NodeName::from(*ping.target().id())));
            }
            Some(MessageView::IndirectPing(ping)) => self.lock_asked().ask(ping.sequence_number(), receiver.cloned()),
            _ => {}
        }
    }

    /// Opens the envelope of a received datagram, if it has one.
    pub fn open(&self, text: BytesMut) -> Result<OpenedDatagram, EnvelopeError> {
        let instance_of = |name: &NodeName| self.shared.view().get(name).map(|entry| entry.report.instance.clone());
        self.sealer.open(text, &*self.shared.judge.verify, instance_of)
    }

    /// Whether an acknowledgement with this number can be true. Either `sender` was asked for it,
    /// or the acknowledgement has no envelope and a node was asked that need not send envelopes.
    pub fn may_acknowledge(&self, sender: Option<&NodeName>, number: u32) -> bool {
        let asked = self.lock_asked();
        asked.get(number).iter().any(|node| match node {
            Some(node) => sender == Some(node) || sender.is_none() && !self.proves_itself(node),
            None => true,
        })
    }

    /// Whether the node sends only datagrams with envelopes to this node.
    fn proves_itself(&self, name: &NodeName) -> bool {
        let view = self.shared.view();
        let reads = view.get(name).is_some_and(|entry| entry.signed && meta::reads_envelopes(&entry.meta));
        // A node that has not sent an envelope yet may not know the key of this node, because this
        // node may have joined just now.
        reads && self.sealer.has_heard(name)
    }
}
