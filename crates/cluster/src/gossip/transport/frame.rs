//! The encrypted form of gossip's packets and streams, and the keys for it. It is the form of
//! memberlist 0.8.5, because the previous version of remoor uses it.
//!
//! ```text
//!   12 | length of the label 1 | label | 15 | algorithm 1 | length of the text 4 | nonce 12 | text | tag 16
//! ```
//! In this layout, 12 and 15 are the values of single bytes, and the other numbers are lengths in
//! bytes. The label is authenticated with the text. Nothing here uses the network.

use super::super::error::GossipError;
use bytes::{BufMut, BytesMut};
use memberlist::proto::{EncryptionAlgorithm, Label, SecretKey};
use remoor_model::ClusterId;
use std::sync::{Arc, PoisonError, RwLock};

const LABELED: u8 = 12;
const ENCRYPTED: u8 = 15;
const ALGORITHM: EncryptionAlgorithm = EncryptionAlgorithm::NoPadding;
const NONCE: usize = 12;
const TAG: usize = 16;

/// The reason why received bytes are not passed on, or why a text was not encrypted.
#[derive(Debug, thiserror::Error)]
pub enum GossipFrameError {
    #[error("not a frame of this cluster")]
    Foreign,
    #[error("a frame of {0} bytes is announced")]
    TooLong(usize),
    #[error("too many large frames arrive at once")]
    Crowded,
    #[error("the frame does not have the announced length")]
    Length,
    #[error("no gossip key decrypts the frame")]
    Key,
    #[error("the message in the frame was refused")]
    Refused,
    #[error("encrypting a frame")]
    Seal,
    #[error("reading a frame")]
    Read(#[source] std::io::Error),
}

impl From<GossipFrameError> for std::io::Error {
    fn from(error: GossipFrameError) -> Self {
        match error {
            GossipFrameError::Read(error) => error,
            other => Self::new(std::io::ErrorKind::InvalidData, other),
        }
    }
}

/// The gossip keys and the label of the cluster. The first key encrypts; all keys decrypt.
pub struct GossipKeyring {
    label: Label,
    /// The constant bytes of a frame: everything before the length of the text.
    start: Vec<u8>,
    keys: RwLock<Arc<[SecretKey]>>,
}

impl GossipKeyring {
    /// The keyring of a cluster with one key.
    pub fn new(cluster: &ClusterId, key: [u8; 32]) -> Result<Self, GossipError> {
        let label = Label::try_from(format!("remoor-{cluster}")).map_err(|_| GossipError::Label)?;
        let length = u8::try_from(label.len()).map_err(|_| GossipError::Label)?;
        let start = [&[LABELED, length], label.as_bytes(), &[ENCRYPTED, ALGORITHM.as_u8()]].concat();
        Ok(Self { label, start, keys: RwLock::new(Arc::new([SecretKey::Aes256(key)])) })
    }

    /// Replaces the keys. From now on `first` encrypts, and `first` and `others` decrypt.
    pub fn set(&self, first: [u8; 32], others: &[[u8; 32]]) {
        let all = std::iter::once(first).chain(others.iter().copied()).map(SecretKey::Aes256).collect();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    fn keys(&self) -> Arc<[SecretKey]> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Length of a frame's head, in bytes: the constant bytes and the length of the text.
    pub fn head_len(&self) -> usize {
        self.start.len() + size_of::<u32>()
    }

    /// The number of bytes that a frame has in addition to its text.
    pub fn overhead(&self) -> usize {
        self.head_len() + NONCE + TAG
    }

    /// Encrypts a text into a whole frame.
    pub fn seal(&self, text: &[u8]) -> Result<BytesMut, GossipFrameError> {
        let length = u32::try_from(text.len()).map_err(|_| GossipFrameError::TooLong(text.len()))?;
        let key = *self.keys().first().ok_or(GossipFrameError::Seal)?;
        let nonce = EncryptionAlgorithm::random_nonce();
        let mut frame = BytesMut::with_capacity(self.overhead() + text.len());
        frame.put_slice(&self.start);
        frame.put_u32(length);
        frame.put_slice(&nonce);
        let mut body = frame.split_off(frame.len());
        body.put_slice(text);
        ALGORITHM.encrypt(key, nonce, self.label.as_bytes(), &mut body).map_err(|_| GossipFrameError::Seal)?;
        frame.unsplit(body);
        Ok(frame)
    }

    /// The number of bytes that follow the head of a frame.
    pub fn rest_len(&self, head: &[u8]) -> Result<usize, GossipFrameError> {
        let parts = head.split_last_chunk().filter(|(start, _)| *start == self.start);
        let (_, length) = parts.ok_or(GossipFrameError::Foreign)?;
        Ok((u32::from_be_bytes(*length) as usize).saturating_add(NONCE + TAG))
    }

    /// Decrypts the bytes that follow the head of a frame.
    pub fn open(&self, mut rest: BytesMut) -> Result<BytesMut, GossipFrameError> {
        if rest.len() < NONCE + TAG {
            return Err(GossipFrameError::Length);
        }
        let nonce = rest.split_to(NONCE);
        // A failed decryption does not change the bytes, so the next key can be tried.
        let opened = |key: &SecretKey| ALGORITHM.decrypt(key, &nonce, self.label.as_bytes(), &mut rest).is_ok();
        if self.keys().iter().any(opened) { Ok(rest) } else { Err(GossipFrameError::Key) }
    }

    /// Decrypts a datagram, which is one whole frame.
    pub fn open_datagram(&self, bytes: &[u8]) -> Result<BytesMut, GossipFrameError> {
        let (head, rest) = bytes.split_at_checked(self.head_len()).ok_or(GossipFrameError::Foreign)?;
        // The previous version of remoor ignores bytes after the frame and sends none.
        if self.rest_len(head)? != rest.len() {
            return Err(GossipFrameError::Length);
        }
        self.open(BytesMut::from(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memberlist::agnostic::tokio::TokioRuntime;
    use memberlist::proto::{Message, ProtoDecoder, ProtoEncoder};
    use smol_str::SmolStr;
    use std::net::SocketAddr;

    fn keyring_of(key: u8) -> GossipKeyring {
        GossipKeyring::new(&"test".into(), [key; 32]).expect("a short label")
    }

    /// The test uses memberlist's own functions, because the previous version of remoor encrypts
    /// and decrypts with them.
    #[tokio::test]
    async fn the_form_is_memberlists_own() {
        let ring = keyring_of(7);
        let message = Message::<SmolStr, SocketAddr>::UserData("a text".into());
        let mut encoder =
            ProtoEncoder::new(1472).with_messages([message]).with_label(Label::try_from("remoor-test").expect("label"));
        encoder.set_encryption(EncryptionAlgorithm::NoPadding, SecretKey::Aes256([7; 32]));
        let theirs = encoder.encode().next().expect("one").expect("encoded").into_bytes();
        let text = ring.open_datagram(&theirs).expect("opened");
        assert_eq!(theirs.len(), text.len() + ring.overhead());

        let mut decoder = ProtoDecoder::new();
        decoder.with_label(Label::try_from("remoor-test").expect("label")).with_verify_incoming(true);
        decoder.with_encryption(vec![SecretKey::Aes256([7; 32])]);
        let ours = ring.seal(&text).expect("sealed");
        assert_eq!(decoder.decode::<TokioRuntime>(ours).await.expect("decoded"), text);
    }

    #[test]
    fn only_a_whole_frame_of_a_known_key_and_cluster_is_opened() {
        let (ours, text) = (keyring_of(7), b"text".as_slice());
        let frame = ours.seal(text).expect("sealed");
        assert_eq!(ours.open_datagram(&frame).expect("opened"), text);
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 1;
            assert!(ours.open_datagram(&changed).is_err(), "byte {at}");
            assert!(ours.open_datagram(&frame[..at]).is_err(), "{at} bytes");
        }
        assert!(matches!(keyring_of(8).open_datagram(&frame), Err(GossipFrameError::Key)));
        let elsewhere = GossipKeyring::new(&"other".into(), [7; 32]).expect("label");
        assert!(matches!(elsewhere.open_datagram(&frame), Err(GossipFrameError::Foreign)));
    }

    #[test]
    fn keys_are_replaced_in_steps() {
        let ours = keyring_of(7);
        let old = ours.seal(b"old").expect("sealed");
        ours.set([8; 32], &[[7; 32]]);
        assert_eq!(ours.open_datagram(&old).expect("both keys"), b"old"[..]);
        assert_eq!(keyring_of(8).open_datagram(&ours.seal(b"new").expect("sealed")).expect("new"), b"new"[..]);
        ours.set([8; 32], &[]);
        assert!(matches!(ours.open_datagram(&old), Err(GossipFrameError::Key)));
    }
}
