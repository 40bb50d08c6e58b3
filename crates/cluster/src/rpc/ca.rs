//! The cluster's certificate authority. Its certificates identify a caller; they do not grant
//! permissions.
//!
//! A node's certificate has the DNS name `node-<id>.<cluster>.remoor`, an operator's certificate
//! `operator.<cluster>.remoor`. The common name is the node's name, for information only, or the
//! operator's name. The organisation is the cluster. In a node's certificate, the organisational
//! unit is the epoch. The title `manager` marks the certificate of a manager. Names in a signing
//! request are ignored.

use super::identity::{self, IdentityError, TlsIdentity};
use super::token::{self, Secret};
use super::{caller, private_file};
use hmac::{Hmac, KeyInit, Mac};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose as Use, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use remoor_model::{CERTIFICATE_DAYS, ClusterId, Epoch, FORMER_MAX, NodeId, NodeName, Wall};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use x509_parser::prelude::{FromDer, X509Certificate};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The period for which a node's certificate is valid. The issuing manager's `node.json` may set
/// another one.
pub const NODE_LIFE: Duration = DAY.saturating_mul(CERTIFICATE_DAYS);
/// The period for which the CA's own certificate is valid, in days.
const CA_DAYS: u32 = 3652;
/// The time by which a new certificate is backdated, for machines whose clock is behind.
const BACKDATED: Duration = DAY;
/// Default name of the CA's files, without the extension.
const FILES: &str = "ca";
/// The common name of a cluster's first CA. The name of a later CA ends with random digits, so that
/// certificates show which CA issued them.
const CA_NAME: &str = "remoor CA";

/// The period in which a certificate is valid, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

impl Validity {
    /// A validity from a day ago until `days` from now.
    pub fn days_from_now(days: u32) -> Self {
        let now = SystemTime::now();
        Self { from: now - BACKDATED, until: now + DAY * days }
    }

    /// A validity that ends `life` from now. It begins a day ago, or a tenth of `life` ago if that
    /// is less.
    pub fn valid_for(life: Duration) -> Self {
        let now = SystemTime::now();
        Self { from: now - BACKDATED.min(life / 10), until: now + life }
    }
}

/// The certificate authority: certificate and private key.
pub struct ClusterCa {
    cluster: ClusterId,
    name: String,
    cert_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl ClusterCa {
    /// Creates the first authority of a cluster, with an ed25519 key, valid for ten years.
    pub fn create(cluster: &ClusterId) -> Result<Self, IdentityError> {
        Self::with_common_name(cluster, CA_NAME)
    }

    /// Creates an authority that will replace another one.
    pub fn create_next(cluster: &ClusterId) -> Result<Self, IdentityError> {
        Self::with_common_name(cluster, &format!("{CA_NAME} {}", hex::encode(token::random::<4>()?)))
    }

    fn with_common_name(cluster: &ClusterId, name: &str) -> Result<Self, IdentityError> {
        let failed = |source| IdentityError::Issue { what: "cluster CA", source };
        caller::check_cluster(cluster)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(failed)?;
        let cert_pem = ca_params(cluster, name, 0)?.self_signed(&key).map_err(failed)?.pem();
        Self::from_pem(&cert_pem, &key.serialize_pem().into())
    }

    /// Signs the certificate of `next` with this authority. Append the result to a certificate that
    /// `next` issued. Nodes that trust only this authority can then verify that certificate.
    pub fn cross_sign(&self, next: &Self) -> Result<String, IdentityError> {
        let failed = |source| IdentityError::Issue { what: "cluster CA", source };
        // CAs that follow `next` may be below it in a chain.
        let below = u8::try_from(FORMER_MAX).unwrap_or(u8::MAX);
        let params = ca_params(&self.cluster, &next.name, below)?;
        Ok(params.signed_by(next.issuer.key(), &self.issuer).map_err(failed)?.pem())
    }

    /// The authority of this certificate and key. The result is an error if they do not belong
    /// together.
    pub fn from_pem(cert_pem: &str, key_pem: &Secret) -> Result<Self, IdentityError> {
        let malformed = |what, reason: String| IdentityError::Malformed { what, reason };
        let key = KeyPair::from_pem(key_pem.reveal()).map_err(|e| malformed("CA key", e.to_string()))?;
        let der = identity::certificates("CA certificate", cert_pem)?.remove(0);
        let (cluster, name) = {
            let (_, parsed) =
                X509Certificate::from_der(&der).map_err(|e| malformed("CA certificate", e.to_string()))?;
            if parsed.public_key().subject_public_key.data.as_ref() != key.der_bytes() {
                return Err(malformed("CA key", "it does not belong to the CA's certificate".into()));
            }
            let organisation = parsed.subject().iter_organization().next().and_then(|o| o.as_str().ok());
            let cluster = organisation.ok_or_else(|| malformed("CA certificate", "it names no cluster".into()))?;
            let name = parsed.subject().iter_common_name().next().and_then(|n| n.as_str().ok()).unwrap_or_default();
            (ClusterId::from(cluster), name.to_owned())
        };
        caller::check_cluster(&cluster)?;
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|e| malformed("CA certificate", e.to_string()))?;
        Ok(Self { cluster, name, cert_pem: cert_pem.to_owned(), issuer })
    }

    /// Writes `ca.pem` and `ca.key` into `dir`, mode 0600.
    pub fn save(&self, dir: &Path) -> Result<(), IdentityError> {
        self.save_as(dir, FILES)
    }

    /// Like [`Self::save`], with another file name. The certificate is written last, because the
    /// authority takes effect with it.
    pub fn save_as(&self, dir: &Path, name: &str) -> Result<(), IdentityError> {
        private_file::write(&key_file(dir, name), self.key_pem().reveal().as_bytes())?;
        private_file::write(&cert_file(dir, name), self.cert_pem.as_bytes())
    }

    /// Reads the files that [`save`](Self::save) wrote.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        Self::load_as(dir, FILES)
    }

    /// Reads the files that [`save_as`](Self::save_as) wrote.
    pub fn load_as(dir: &Path, name: &str) -> Result<Self, IdentityError> {
        let (cert_path, key_path) = (cert_file(dir, name), key_file(dir, name));
        let (cert, key) = (private_file::read(&cert_path)?, private_file::read(&key_path)?);
        Self::from_pem(&cert, &key.into()).map_err(|e| IdentityError::Damaged {
            path: if matches!(e, IdentityError::Malformed { what: "CA key", .. }) { key_path } else { cert_path },
            what: e.to_string(),
        })
    }

    /// The cluster of this authority.
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The authority's certificate.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The last moment at which the authority's certificate is valid.
    pub fn not_after(&self) -> Result<Wall, IdentityError> {
        identity::certificate_not_after(&self.cert_pem)
    }

    /// A secret that every manager can derive and no other node can. It is the HMAC-SHA256 of
    /// `label` with the CA's private key, which only managers have.
    pub fn derive_secret(&self, label: &str) -> Result<[u8; 32], IdentityError> {
        // Use the raw key, because its PEM encoding may differ between managers.
        let key = identity::NodeKey::from_pem(self.key_pem().reveal())?;
        let malformed =
            |e: hmac::digest::InvalidLength| IdentityError::Malformed { what: "CA key", reason: e.to_string() };
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key.signing_key().to_bytes()).map_err(malformed)?;
        mac.update(label.as_bytes());
        Ok(mac.finalize().into_bytes().into())
    }

    /// The private key as PKCS#8 PEM. It may be sent only to another manager, over mutually
    /// authenticated TLS.
    pub fn key_pem(&self) -> Secret {
        self.issuer.key().serialize_pem().into()
    }

    /// Issues a node's certificate for the key that signed `csr_pem`. The node can use the
    /// certificate as a client and as a server.
    pub fn issue_node(
        &self,
        node: NodeId,
        name: &NodeName,
        epoch: Epoch,
        csr_pem: &str,
        validity: Validity,
    ) -> Result<String, IdentityError> {
        self.issue_as(false, node, name, epoch, csr_pem, validity)
    }

    /// Like [`Self::issue_node`]. `manager` marks the certificate of a manager. Joining machines
    /// and operators' clients send their requests only to a server with this mark. A node of an
    /// older epoch also recognises a manager of the new epoch by the mark. The node may request a
    /// new certificate from that manager (`daemon/epochs.rs`).
    pub fn issue_as(
        &self,
        manager: bool,
        node: NodeId,
        name: &NodeName,
        epoch: Epoch,
        csr_pem: &str,
        validity: Validity,
    ) -> Result<String, IdentityError> {
        let mut params = params(&self.cluster, name.as_str(), validity)?;
        params.distinguished_name.push(DnType::OrganizationalUnitName, caller::epoch_unit(epoch));
        if manager {
            params.distinguished_name.push(DnType::CustomDnType(caller::TITLE.to_vec()), caller::MANAGER);
        }
        params.subject_alt_names = vec![dns(caller::node_dns(node, &self.cluster))?];
        params.extended_key_usages = vec![Use::ServerAuth, Use::ClientAuth];
        self.issue(params, csr_pem)
    }

    /// Issues an operator's certificate with a new key. The certificate is valid for clients only.
    pub fn issue_operator(&self, name: &str, validity: Validity) -> Result<TlsIdentity, IdentityError> {
        let key = identity::NodeKey::generate()?;
        let mut params = params(&self.cluster, name, validity)?;
        params.subject_alt_names = vec![dns(caller::operator_dns(&self.cluster))?];
        params.extended_key_usages = vec![Use::ClientAuth];
        Ok(TlsIdentity {
            cluster: self.cluster.clone(),
            ca_pem: self.cert_pem.clone(),
            cert_pem: self.issue(params, &key.csr_pem()?)?,
            key_pem: key.to_pem()?,
        })
    }

    fn issue(&self, params: CertificateParams, csr_pem: &str) -> Result<String, IdentityError> {
        let request = read_csr(csr_pem)?;
        let signed = params.signed_by(&request.public_key, &self.issuer);
        Ok(signed.map_err(|source| IdentityError::Issue { what: "certificate", source })?.pem())
    }
}

/// The raw public key in a signing request. The request proves possession of its private key.
pub fn csr_key(csr_pem: &str) -> Result<Vec<u8>, IdentityError> {
    Ok(read_csr(csr_pem)?.public_key.der_bytes().to_vec())
}

/// Parses a signing request and checks its signature. Only ed25519 keys are accepted.
fn read_csr(csr_pem: &str) -> Result<CertificateSigningRequestParams, IdentityError> {
    let malformed = |reason: String| IdentityError::Malformed { what: "signing request", reason };
    let request = CertificateSigningRequestParams::from_pem(csr_pem).map_err(|e| malformed(e.to_string()))?;
    if request.public_key.algorithm() != &rcgen::PKCS_ED25519 {
        return Err(malformed("its key is not ed25519".into()));
    }
    Ok(request)
}

fn cert_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.pem"))
}

fn key_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.key"))
}

/// The parameters of an authority. `below` is the maximum number of CAs below it in a chain.
fn ca_params(cluster: &ClusterId, name: &str, below: u8) -> Result<CertificateParams, IdentityError> {
    let mut params = params(cluster, name, Validity::days_from_now(CA_DAYS))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn params(cluster: &ClusterId, common_name: &str, validity: Validity) -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, cluster.as_str());
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = validity.from.into();
    params.not_after = validity.until.into();
    // The serial number is random. Otherwise every renewal for a key would have the same one.
    let mut serial = token::random::<16>()?;
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn dns(name: String) -> Result<SanType, IdentityError> {
    name.as_str()
        .try_into()
        .map(SanType::DnsName)
        .map_err(|source| IdentityError::Issue { what: "certificate", source })
}

/// Identities of nodes for tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::super::identity::{NodeKey, TlsIdentity};
    use super::*;

    /// The identity of node `id` of this CA's cluster, with a new key and a certificate of epoch 1.
    pub fn node_identity(ca: &ClusterCa, id: u64, validity: Validity) -> TlsIdentity {
        identity(ca, false, id, validity)
    }

    /// Like [`node_identity`], for a manager whose certificate is valid for a day.
    pub fn manager_identity(ca: &ClusterCa, id: u64) -> TlsIdentity {
        identity(ca, true, id, Validity::days_from_now(1))
    }

    fn identity(ca: &ClusterCa, manager: bool, id: u64, validity: Validity) -> TlsIdentity {
        let key = NodeKey::generate().expect("a key");
        let csr = key.csr_pem().expect("a request");
        let cert_pem = ca.issue_as(manager, NodeId(id), &"n".into(), Epoch(1), &csr, validity).expect("issued");
        let (cluster, ca_pem) = (ca.cluster().clone(), ca.cert_pem().into());
        TlsIdentity { cluster, ca_pem, cert_pem, key_pem: key.to_pem().expect("a key") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::identity::NodeKey;
    use base64::Engine;
    use rustls_pki_types::pem::PemObject;

    #[test]
    fn the_authority_survives_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let ca = ClusterCa::create(&"0a1b2c3d".into()).unwrap();
        ca.save(dir.path()).unwrap();
        let again = ClusterCa::load(dir.path()).unwrap();
        assert_eq!((again.cluster(), again.cert_pem()), (ca.cluster(), ca.cert_pem()));

        ClusterCa::create(&"other".into()).unwrap().save(dir.path()).unwrap();
        std::fs::write(dir.path().join("ca.pem"), ca.cert_pem()).unwrap();
        let error = ClusterCa::load(dir.path()).err().unwrap().to_string();
        assert!(error.contains("ca.key") && error.contains("does not belong"), "{error}");
    }

    #[test]
    fn a_secret_of_the_managers_takes_the_cas_key_and_nothing_that_a_worker_has() {
        let dir = tempfile::tempdir().unwrap();
        let ca = ClusterCa::create(&"c1".into()).unwrap();
        ca.save(dir.path()).unwrap();
        let (founder, other) =
            (ClusterCa::load(dir.path()).unwrap(), ClusterCa::from_pem(ca.cert_pem(), &ca.key_pem()));
        let secret = ca.derive_secret("digests").unwrap();
        for manager in [founder, other.unwrap()] {
            assert_eq!(
                manager.derive_secret("digests").unwrap(),
                secret,
                "both when loaded and when fetched from another manager"
            );
        }
        assert_ne!(ca.derive_secret("another").unwrap(), secret);
        assert_ne!(ClusterCa::create(&"c1".into()).unwrap().derive_secret("digests").unwrap(), secret);
        let mut by_certificate = Hmac::<sha2::Sha256>::new_from_slice(&public_key(&ca)).unwrap();
        by_certificate.update(b"digests");
        assert_ne!(<[u8; 32]>::from(by_certificate.finalize().into_bytes()), secret);
    }

    fn public_key(ca: &ClusterCa) -> Vec<u8> {
        identity::certificate_key(ca.cert_pem()).unwrap()
    }

    #[test]
    fn a_cluster_id_that_fits_no_name_is_refused() {
        for bad in ["", "UPPER", "a.b", "-a", "ü", &"a".repeat(64)] {
            assert!(ClusterCa::create(&bad.into()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn requests_are_checked() {
        let ca = ClusterCa::create(&"c1".into()).unwrap();
        let issue = |csr: &str| ca.issue_node(NodeId(7), &"w1".into(), Epoch(1), csr, Validity::days_from_now(90));
        let key = NodeKey::generate().unwrap();
        let csr = key.csr_pem().unwrap();
        assert_eq!(csr_key(&csr).unwrap(), key.public());
        let cert = issue(&csr).unwrap();
        assert_eq!(identity::certificate_key(&cert).unwrap(), key.public());
        assert_ne!(issue(&csr).unwrap(), cert, "a renewal has its own serial number");

        let until = identity::certificate_not_after(&cert).unwrap();
        let in_90_days = Validity::days_from_now(90).until.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert!(in_90_days.as_secs().abs_diff(until.0 / 1000) < 60);

        assert!(issue("rubbish").is_err());
        let ecdsa = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let foreign = CertificateParams::default().serialize_request(&ecdsa).unwrap().pem().unwrap();
        assert!(issue(&foreign).unwrap_err().to_string().contains("not ed25519"));

        // One flipped bit in the key invalidates the request's own signature.
        let mut der = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(csr.as_bytes()).unwrap().to_vec();
        let at = der.windows(32).position(|w| w == key.public()).unwrap();
        der[at] ^= 1;
        let body = base64::engine::general_purpose::STANDARD.encode(&der);
        let forged = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
        assert!(issue(&forged).is_err());
    }
}
