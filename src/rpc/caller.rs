//! Who is calling, as far as the connection proves it, and the names in certificates that say so.
//!
//! Whether the caller was removed, is a manager, or may do what it asks is decided above, from the applied inventory.

use super::identity::{self, IdentityError};
use super::wire::{Code, Failure};
use crate::model::{ClusterId, Epoch, NodeId, Wall};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::net::SocketAddr;
use x509_parser::der_parser::Oid;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Who sent a request. Every request that a server of this module passes on carries one as an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A node with a certificate of this cluster, issued in `epoch`; `cert_not_after` is the last moment at which it holds.
    /// `behalf`: for whom it says to ask, in its own words; to be believed of managers only. `key`: the one of the certificate, in
    /// hex. `replaced`: the CA that issued it counts no more.
    Node { id: NodeId, epoch: Epoch, key: String, cert_not_after: Wall, replaced: bool, behalf: Option<Behalf> },
    /// A person or program with an operator's certificate of this cluster; `key` as above.
    Operator { name: String, key: String, cert_not_after: Wall, replaced: bool },
    /// A process of this machine, through the socket.
    Local { uid: u32 },
    /// Somebody without a certificate: a machine that wants to join, or anybody.
    Anonymous,
}

/// For whom a manager asks, as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behalf {
    pub name: String,
    /// An operator's key, in hex.
    pub key: Option<String>,
}

impl Caller {
    /// Who the holder of this certificate is. Its signature was checked during the handshake; this reads the names.
    pub fn of_certificate(der: &[u8], cluster: &ClusterId) -> Result<Self, IdentityError> {
        let bad = |reason: String| IdentityError::Malformed { what: "client certificate", reason };
        let (_, cert) = X509Certificate::from_der(der).map_err(|e| bad(e.to_string()))?;
        let cert_not_after = identity::not_after(&cert);
        let key = hex::encode(&cert.public_key().subject_public_key.data);
        let names = cert.subject_alternative_name().map_err(|e| bad(e.to_string()))?;
        let names = names.map(|n| n.value.general_names.as_slice()).unwrap_or_default();
        let [GeneralName::DNSName(dns)] = names else { return Err(bad("not exactly one DNS name in it".into())) };
        if *dns == operator_dns(cluster) {
            let name = cert.subject().iter_common_name().next().and_then(|n| n.as_str().ok());
            let name = name.ok_or_else(|| bad("operator without a name".into()))?.to_owned();
            return Ok(Self::Operator { name, key, cert_not_after, replaced: false });
        }
        let id = parse_node_dns(dns, cluster).ok_or_else(|| bad(format!("{dns:?} is no name of cluster {cluster}")))?;
        let unit = cert.subject().iter_organizational_unit().next().and_then(|u| u.as_str().ok());
        let epoch = unit.and_then(parse_epoch_unit).ok_or_else(|| bad("node without an epoch".into()))?;
        Ok(Self::Node { id, epoch, key, cert_not_after, replaced: false, behalf: None })
    }

    /// The same with a certificate of a CA that counts no more.
    pub(super) fn of_replaced_ca(mut self) -> Self {
        if let Self::Node { replaced, .. } | Self::Operator { replaced, .. } = &mut self {
            *replaced = true;
        }
        self
    }

    /// Whether the CA of the caller's certificate counts no more.
    pub fn replaced(&self) -> bool {
        matches!(self, Self::Node { replaced: true, .. } | Self::Operator { replaced: true, .. })
    }

    /// Whether the caller's certificate has run out by `now`, or with its CA. A connection may outlive the certificate that opened
    /// it.
    pub fn expired(&self, now: Wall) -> bool {
        match self {
            Self::Node { cert_not_after, replaced, .. } | Self::Operator { cert_not_after, replaced, .. } => {
                *replaced || now > *cert_not_after
            }
            Self::Local { .. } | Self::Anonymous => false,
        }
    }
}

/// The attribute of a title in a name, X.520, and what stands there in the certificate that a manager issued for itself.
pub(super) const TITLE: &[u64] = &[2, 5, 4, 12];
pub(super) const MANAGER: &str = "manager";

/// Whether a certificate whose signature was checked is that of a node that managed as it was issued.
pub fn managed(der: &[u8]) -> bool {
    let Ok((_, cert)) = X509Certificate::from_der(der) else { return false };
    let Ok(title) = Oid::from(TITLE) else { return false };
    cert.subject().iter_by_oid(&title).any(|value| value.as_str() == Ok(MANAGER))
}

/// In which epoch the first certificate of `pem` was issued, which is to be that of a node of this cluster.
pub fn certified_epoch(pem: &str, cluster: &ClusterId) -> Result<Epoch, IdentityError> {
    let bad = |reason: &str| IdentityError::Malformed { what: "certificate", reason: reason.to_owned() };
    let chain = identity::certificates("certificate", pem)?;
    match Caller::of_certificate(chain.first().ok_or_else(|| bad("there is none"))?, cluster)? {
        Caller::Node { epoch, .. } => Ok(epoch),
        _ => Err(bad("it is not that of a node")),
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let missing = || Failure::new(Code::Internal, "the server did not say who is calling");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

/// Where a request came from, as an extension; none through the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub Option<SocketAddr>);

impl<S: Sync> FromRequestParts<S> for PeerAddr {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(parts.extensions.get::<Self>().copied().unwrap_or(Self(None)))
    }
}

/// The name in a node's certificate.
pub fn node_dns(node: NodeId, cluster: &ClusterId) -> String {
    format!("node-{node}.{cluster}.remoor")
}

pub(super) fn operator_dns(cluster: &ClusterId) -> String {
    format!("operator.{cluster}.remoor")
}

pub(super) fn epoch_unit(epoch: Epoch) -> String {
    format!("epoch-{epoch}")
}

fn parse_epoch_unit(text: &str) -> Option<Epoch> {
    text.strip_prefix("epoch-")?.parse().ok().map(Epoch)
}

fn parse_node_dns(text: &str, cluster: &ClusterId) -> Option<NodeId> {
    let id = NodeId(text.strip_prefix("node-")?.split_once('.')?.0.parse().ok()?);
    // Written again and compared: "+7" and "007" are no ids.
    (node_dns(id, cluster) == text).then_some(id)
}

/// Whether a cluster id can be a part of a DNS name.
pub(super) fn check_cluster(cluster: &ClusterId) -> Result<(), IdentityError> {
    let id = cluster.as_str();
    let fits = (1..=63).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b == b'-')
        && !id.starts_with('-')
        && !id.ends_with('-');
    let reason = "it takes 1 to 63 characters of a-z, 0-9 and -".into();
    if fits { Ok(()) } else { Err(IdentityError::Malformed { what: "cluster id", reason }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::ca::{ClusterCa, Validity};
    use crate::rpc::identity::{NodeKey, certificates};

    #[test]
    fn certificates_say_who() {
        let cluster = ClusterId::from("c1");
        let ca = ClusterCa::create(&cluster).unwrap();
        let csr = NodeKey::generate().unwrap().csr_pem().unwrap();
        let pem = ca.issue_node(NodeId(7), &"w1".into(), Epoch(3), &csr, Validity::days_from_now(1)).unwrap();
        let der = &certificates("certificate", &pem).unwrap()[0];
        let caller = Caller::of_certificate(der, &cluster).unwrap();
        let Caller::Node { id: NodeId(7), epoch: Epoch(3), cert_not_after, .. } = caller else { panic!("{caller:?}") };
        assert!(!caller.expired(cert_not_after) && caller.expired(cert_not_after.after(1)));
        assert!(Caller::of_certificate(der, &"c2".into()).is_err());
        assert!(!managed(der));
        let own = ca.issue_as(true, NodeId(7), &"w1".into(), Epoch(3), &csr, Validity::days_from_now(1)).unwrap();
        let own = &certificates("certificate", &own).unwrap()[0];
        assert!(managed(own) && !managed(b"no certificate"));
        let same = Caller::of_certificate(own, &cluster).unwrap();
        assert!(
            matches!(same, Caller::Node { id: NodeId(7), epoch: Epoch(3), .. }),
            "as for an earlier program: {same:?}"
        );

        let pem = ca.issue_operator("zoë", Validity::days_from_now(1)).unwrap().cert_pem;
        let der = &certificates("certificate", &pem).unwrap()[0];
        let caller = Caller::of_certificate(der, &cluster).unwrap();
        assert!(matches!(&caller, Caller::Operator { name, .. } if name == "zoë"), "{caller:?}");

        let der = &certificates("certificate", ca.cert_pem()).unwrap()[0];
        assert!(Caller::of_certificate(der, &cluster).is_err(), "the CA itself is no caller");
    }

    #[test]
    fn node_names_are_read_strictly() {
        let cluster = ClusterId::from("c1");
        assert_eq!(parse_node_dns("node-7.c1.remoor", &cluster), Some(NodeId(7)));
        for bad in
            ["node-07.c1.remoor", "node-+7.c1.remoor", "node-7.c2.remoor", "node-7.c1.remoor.x", "node-.c1.remoor"]
        {
            assert_eq!(parse_node_dns(bad, &cluster), None, "{bad}");
        }
    }
}
