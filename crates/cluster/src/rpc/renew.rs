//! Renewal of a node's certificate. Any manager renews it for the same key, long before its end.
//! This file decides the time of a renewal, and defines the messages.
//!
//! A node whose certificate has expired may send only this request. It gets a new certificate once
//! an operator has accepted it.

use super::caller;
use super::identity::{self, Credentials, IdentityError};
use super::verify;
use remoor_model::{Sha256, Wall};
use serde::{Deserialize, Serialize};

/// The path at which managers renew certificates.
pub const RENEW_PATH: &str = "/agent/v1/renew";

/// A node's request for a new certificate. Its current certificate identifies the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// A signing request for the node's existing key.
    pub tls_csr_pem: String,
    #[serde(default)]
    pub machine_id: String,
}

/// The answer to a [`RenewRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewReply {
    /// The new certificate. Cross-signed certificates may follow; in them, an earlier CA confirms
    /// the issuing CA.
    pub cert_pem: String,
    /// The CAs to trust. The issuing CA is the first. Empty from older managers; the node then
    /// keeps its CAs.
    #[serde(default)]
    pub ca_pem: String,
    /// Index of the log entry that set the CAs in `ca_pem`.
    #[serde(default)]
    pub ca: u64,
}

/// The time at which the first certificate of `cert_pem` should be renewed. It is between 50 and 80
/// % of the certificate's validity, at a point derived from its key, so that nodes that joined
/// together do not renew together. The result is 0 (renew at once) if the certificate begins after
/// `now`. In that case a clock was wrong at its issue, or this machine's clock is behind.
pub fn renewal_time(cert_pem: &str, now: Wall) -> Result<Wall, IdentityError> {
    let (from, until) = identity::certificate_life(cert_pem)?;
    if now < from {
        return Ok(Wall::default());
    }
    let digest = Sha256::digest(&identity::certificate_key(cert_pem)?).0;
    let spread = u64::from(u16::from_be_bytes([digest[0], digest[1]]));
    // The share is in millionths: one half, plus up to three tenths.
    let share = 500_000 + 300_000 * spread / u64::from(u16::MAX);
    let life = u128::from(until.ms_since(from));
    Ok(from.plus_ms(u64::try_from(life * u128::from(share) / 1_000_000).unwrap_or(u64::MAX)))
}

/// Returns `credentials` with the new certificate. A trusted CA must have issued it for this node
/// and its key. In addition, one of these conditions must hold: it ends later than the current
/// certificate, has a newer epoch, comes from another CA, replaces a certificate that begins after
/// `now`, or shows that the node is a manager while the current certificate does not.
pub fn apply_renewal(credentials: &Credentials, reply: &RenewReply, now: Wall) -> Result<Credentials, IdentityError> {
    let bad = |reason: &str| IdentityError::Malformed { what: "new certificate", reason: reason.to_owned() };
    let (cert_pem, before) = (&reply.cert_pem, &credentials.cert_pem);
    let ca_pem = if reply.ca_pem.is_empty() { &credentials.ca_pem } else { &reply.ca_pem };
    verify::issued_to_node(ca_pem, cert_pem, credentials.node, &credentials.cluster)?;
    if identity::certificate_key(cert_pem)? != credentials.key()?.public() {
        return Err(bad("it is for another key"));
    }
    let longer = identity::certificate_not_after(cert_pem)? > identity::certificate_not_after(before)?;
    let epoch = |pem| caller::certified_epoch(pem, &credentials.cluster);
    let newer = epoch(cert_pem)? > epoch(before)?;
    let early = now < identity::certificate_life(before)?.0;
    let manager = caller::shows_manager(cert_pem)? && !caller::shows_manager(before)?;
    if identity::names_issuer(before, ca_pem)? && !longer && !newer && !early && !manager {
        return Err(bad("it does not end later than the current one"));
    }
    Ok(Credentials { cert_pem: cert_pem.clone(), ca_pem: ca_pem.clone(), ..credentials.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::ca::{ClusterCa, Validity};
    use crate::rpc::identity::{GossipKey, NodeKey};
    use remoor_model::{Epoch, NodeId};
    use std::time::Duration;

    fn issue(ca: &ClusterCa, node: u64, key: &NodeKey, life: Duration) -> String {
        let csr = key.csr_pem().unwrap();
        ca.issue_node(NodeId(node), &"w1".into(), Epoch(1), &csr, Validity::valid_for(life)).unwrap()
    }

    #[test]
    fn each_key_has_its_moment_between_half_and_four_fifths_of_the_life() {
        let ca = ClusterCa::create(&"c1".into()).unwrap();
        let mut shares = Vec::new();
        for _ in 0..40 {
            let key = NodeKey::generate().unwrap();
            let certificate = issue(&ca, 7, &key, Duration::from_secs(90 * 86_400));
            let (from, until) = identity::certificate_life(&certificate).unwrap();
            let at = renewal_time(&certificate, from).unwrap();
            assert_eq!(renewal_time(&certificate, Wall(from.0 - 1)).unwrap(), Wall(0), "it is of the future");
            let share = at.ms_since(from) as f64 / until.ms_since(from) as f64;
            assert!((0.5..=0.8).contains(&share), "{share}");
            let again = issue(&ca, 7, &key, Duration::from_secs(90 * 86_400));
            assert!(
                renewal_time(&again, from.plus_ms(60_000)).unwrap().0.abs_diff(at.0) <= 60_000,
                "the key determines the time"
            );
            shares.push(share);
        }
        let (least, most) = (shares.iter().copied().fold(1.0, f64::min), shares.iter().copied().fold(0.0, f64::max));
        assert!(most - least > 0.1, "they are spread: {least} to {most}");
    }

    #[test]
    fn only_a_longer_one_of_this_node_for_its_key_is_taken() {
        let ca = ClusterCa::create(&"c1".into()).unwrap();
        let (key, hour) = (NodeKey::generate().unwrap(), Duration::from_secs(3_600));
        let credentials = Credentials {
            cluster: "c1".into(),
            epoch: Epoch(1),
            node: NodeId(7),
            name: "w1".into(),
            ca_pem: ca.cert_pem().to_owned(),
            cert_pem: issue(&ca, 7, &key, hour),
            key_pem: key.to_pem().unwrap(),
            gossip_key: GossipKey([7; 32]),
            gossip_others: Vec::new(),
        };
        let longer = issue(&ca, 7, &key, hour * 2);
        let reply = |cert_pem: String, ca_pem: String| RenewReply { cert_pem, ca_pem, ca: 0 };
        let renewed = |cert_pem: &str, ca_pem: String| {
            apply_renewal(&credentials, &reply(cert_pem.to_owned(), ca_pem), remoor_host::wall_clock::now())
        };
        let new = renewed(&longer, String::new()).unwrap();
        assert_eq!((&new.cert_pem, new.node, &new.key_pem), (&longer, NodeId(7), &credentials.key_pem));
        let other = ClusterCa::create_next(&"c1".into()).unwrap();
        for wrong in [
            issue(&ca, 8, &key, hour * 2),
            issue(&ca, 7, &NodeKey::generate().unwrap(), hour * 2),
            issue(&other, 7, &key, hour * 2),
            issue(&ca, 7, &key, hour / 2),
            "rubbish".to_owned(),
        ] {
            assert!(renewed(&wrong, String::new()).is_err());
        }
        // A certificate that ends sooner replaces one that begins in the future.
        let sooner = issue(&ca, 7, &key, hour / 2);
        let (from, _) = identity::certificate_life(&credentials.cert_pem).unwrap();
        let early = apply_renewal(&credentials, &reply(sooner.clone(), String::new()), Wall(from.0 - 1));
        assert_eq!(early.unwrap().cert_pem, sooner);
        // With a newer epoch, a certificate is accepted even if it does not end later.
        let csr = key.csr_pem().unwrap();
        let anew = ca.issue_node(NodeId(7), &"w1".into(), Epoch(2), &csr, Validity::valid_for(hour / 2)).unwrap();
        assert_eq!(renewed(&anew, String::new()).unwrap().cert_pem, anew);
        // A certificate of another CA that the managers declare trusted is accepted even if it ends
        // earlier.
        let (sooner, both) = (issue(&other, 7, &key, hour / 2), other.cert_pem().to_owned() + ca.cert_pem());
        assert_eq!(renewed(&sooner, both.clone()).unwrap().ca_pem, both);
    }
}
