//! The proof of a joining machine that it knows the secret of a token. The machine sends the proof
//! instead of the secret.
//!
//! The proof is an HMAC over a value that only the two ends of one TLS connection can compute
//! (RFC 9266, `tls-exporter`). So a server that receives the proof can't use it on another
//! connection. The proof reveals nothing about the secret.

use super::token::Secret;
use hmac::{Hmac, KeyInit, Mac};
use remoor_model::Sha256;
use rustls::ConnectionCommon;

/// The label of RFC 9266. Its context is empty.
const LABEL: &[u8] = b"EXPORTER-Channel-Binding";
const PURPOSE: &[u8] = b"remoor join 2";

/// A value that identifies one TLS connection. Both ends compute the same value, and nobody else
/// can compute it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChannelBinding([u8; 32]);

impl ChannelBinding {
    /// The value of a connection after its handshake. None before the end of the handshake.
    pub(super) fn of_connection<Side>(connection: &ConnectionCommon<Side>) -> Option<Self> {
        connection.export_keying_material([0; 32], LABEL, None).ok().map(Self)
    }

    /// The proof for the machine with this key (hex) that it knows `secret`, in hex.
    pub(super) fn prove(&self, secret: &Secret, key: &str) -> String {
        hex::encode(self.mac(&secret.hash(), key).finalize().into_bytes())
    }

    /// Whether `proof` is the proof for the secret with the hash `stored`. Takes constant time.
    pub fn verify(&self, proof: &str, stored: &Sha256, key: &str) -> bool {
        hex::decode(proof).is_ok_and(|proof| self.mac(stored, key).verify_slice(&proof).is_ok())
    }

    fn mac(&self, secret: &Sha256, key: &str) -> Hmac<sha2::Sha256> {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&secret.0).expect("any key length will do");
        // The two values before the key have a fixed length, so the parts can't be confused.
        [PURPOSE, &self.0, key.as_bytes()].iter().for_each(|part| mac.update(part));
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_counts_for_one_secret_one_key_and_one_connection() {
        let (secret, other) = (Secret::from("a".repeat(32)), Secret::from("b".repeat(32)));
        let here = ChannelBinding([1; 32]);
        let proof = here.prove(&secret, "key");
        assert!(here.verify(&proof, &secret.hash(), "key"));
        assert!(!here.verify(&proof, &other.hash(), "key") && !here.verify(&proof, &secret.hash(), "yek"));
        assert!(!ChannelBinding([2; 32]).verify(&proof, &secret.hash(), "key"));
        for bad in ["", "zz", &proof[2..]] {
            assert!(!here.verify(bad, &secret.hash(), "key"), "{bad}");
        }
    }
}
