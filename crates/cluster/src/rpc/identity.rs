//! The identity of a machine: one ed25519 key, and the credentials from its cluster, stored in a
//! directory.
//!
//! The key signs gossip reports and authenticates TLS connections. It is created before the join
//! and stays the same when certificates change. The [CA](super::ca) issues certificates;
//! [TLS](super::tls) uses them.

use super::private_file;
use super::token::{self, Secret};
use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey};
use remoor_model::{ClusterId, Epoch, NodeId, NodeName, Sha256, Wall, count_noun};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Errors of keys, certificates or their files. Nothing on disk has changed. Even after a failed
/// write (`File`), the file has its old content.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("can't {action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} can't be used: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{} has mode {mode:04o}, others may use it; next: chmod 600 {}", path.display(), path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{} has version {found}, this program knows version 1: install the newer program", path.display())]
    TooNew { path: PathBuf, found: u32 },
    #[error("not a valid {what}: {reason}")]
    Malformed { what: &'static str, reason: String },
    #[error("can't create a {what}")]
    Issue { what: &'static str, source: rcgen::Error },
    #[error("the kernel returned no random numbers: {reason}")]
    Random { reason: String },
}

/// A node's key. Other nodes recognise the machine by the public half.
#[derive(Clone)]
pub struct NodeKey(SigningKey);

impl NodeKey {
    /// Generates a random key.
    pub fn generate() -> Result<Self, IdentityError> {
        Ok(Self(SigningKey::from_bytes(&token::random()?)))
    }

    /// Reads a key from PKCS#8 PEM.
    pub fn from_pem(pem: &str) -> Result<Self, IdentityError> {
        SigningKey::from_pkcs8_pem(pem)
            .map(Self)
            .map_err(|e| IdentityError::Malformed { what: "node key", reason: e.to_string() })
    }

    /// This key as PKCS#8 PEM.
    pub fn to_pem(&self) -> Result<Secret, IdentityError> {
        self.0
            .to_pkcs8_pem(LineEnding::LF)
            .map(|pem| Secret::from(pem.as_str().to_owned()))
            .map_err(|e| IdentityError::Malformed { what: "node key", reason: e.to_string() })
    }

    /// Loads the key in `dir`. If there is no key, a new one is generated and stored. So a machine
    /// that repeats its join has the same key.
    pub fn load_or_create(dir: &Path) -> Result<Self, IdentityError> {
        let path = dir.join(KEY_FILE);
        match private_file::read(&path) {
            Ok(pem) => Self::from_pem(&pem).map_err(|e| damaged_error(&path, e)),
            Err(IdentityError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let key = Self::generate()?;
                private_file::write(&path, key.to_pem()?.reveal().as_bytes())?;
                Ok(key)
            }
            Err(other) => Err(other),
        }
    }

    /// The key that signs gossip reports.
    pub fn signing_key(&self) -> &SigningKey {
        &self.0
    }

    /// The raw public key.
    pub fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// A signing request for a certificate. It proves possession of the key. It requests no name,
    /// because the CA chooses the names.
    pub fn csr_pem(&self) -> Result<String, IdentityError> {
        let failed = |source| IdentityError::Issue { what: "signing request", source };
        let key = rcgen::KeyPair::from_pem(self.to_pem()?.reveal()).map_err(failed)?;
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.serialize_request(&key).and_then(|csr| csr.pem()).map_err(failed)
    }
}

/// The data with which TLS authenticates a node or an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsIdentity {
    pub cluster: ClusterId,
    /// One CA certificate; several during a CA rotation.
    pub ca_pem: String,
    pub cert_pem: String,
    pub key_pem: Secret,
}

impl TlsIdentity {
    /// Writes an operator's identity to `path`, mode 0600.
    pub fn save(&self, path: &Path) -> Result<(), IdentityError> {
        private_file::write(path, &to_json(path, self)?)
    }

    /// Reads the identity that [`save`](Self::save) wrote.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        from_json(path)
    }
}

/// The credentials of a node: everything that makes a machine a node of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub node: NodeId,
    pub name: NodeName,
    pub ca_pem: String,
    pub cert_pem: String,
    /// PKCS#8 PEM of the [`NodeKey`].
    pub key_pem: Secret,
    /// The key that encrypts gossip. It is the same on every node.
    pub gossip_key: GossipKey,
    /// The gossip keys that the node accepts in addition to `gossip_key` while the gossip key is
    /// rotated.
    pub gossip_others: Vec<GossipKey>,
}

/// The gossip key of a cluster. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct GossipKey(pub [u8; 32]);

impl GossipKey {
    /// Generates a random key.
    pub fn generate() -> Result<Self, IdentityError> {
        Ok(Self(token::random()?))
    }

    /// Reads a gossip key of 64 hex digits.
    pub fn from_hex(text: &str) -> Result<Self, IdentityError> {
        let mut key = [0; 32];
        hex::decode_to_slice(text, &mut key)
            .map_err(|_| IdentityError::Malformed { what: "gossip key", reason: "not 64 hex digits".into() })?;
        Ok(Self(key))
    }

    /// Reads the gossip key from a file that only its owner may read.
    pub fn load(file: &Path) -> Result<Self, IdentityError> {
        Self::from_hex(private_file::read(file)?.trim())
    }

    /// The gossip key as hex.
    pub fn to_hex(&self) -> Secret {
        hex::encode(self.0).into()
    }
}

impl std::fmt::Debug for GossipKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

const DAY_MS: u64 = 24 * 3_600_000;
/// A certificate that ends within this number of days is reported. Its renewal should have
/// succeeded earlier, after at most 80 % of its 90 days.
const ENDING_DAYS: u64 = 14;
const KEY_FILE: &str = "node.key";
const CREDENTIALS_FILE: &str = "credentials.json";

/// The content of `credentials.json`: everything except the private key. It is one file, so that
/// all of it changes at once.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    cluster: ClusterId,
    epoch: Epoch,
    node: NodeId,
    name: NodeName,
    ca_pem: String,
    cert_pem: String,
    gossip_key: Secret,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gossip_others: Vec<Secret>,
}

impl Credentials {
    /// Writes `node.key` and `credentials.json` into `dir`, mode 0600. `credentials.json` is
    /// written last, because the credentials take effect with it.
    pub fn save(&self, dir: &Path) -> Result<(), IdentityError> {
        let key_path = dir.join(KEY_FILE);
        // The key identifies the machine. It is written once, and renewals do not change it.
        let kept = private_file::read(&key_path).is_ok_and(|pem| pem == self.key_pem.reveal());
        if !kept {
            private_file::write(&key_path, self.key_pem.reveal().as_bytes())?;
        }
        let stored = Stored {
            version: 1,
            cluster: self.cluster.clone(),
            epoch: self.epoch,
            node: self.node,
            name: self.name.clone(),
            ca_pem: self.ca_pem.clone(),
            cert_pem: self.cert_pem.clone(),
            gossip_key: self.gossip_key.to_hex(),
            gossip_others: self.gossip_others.iter().map(GossipKey::to_hex).collect(),
        };
        let path = dir.join(CREDENTIALS_FILE);
        private_file::write(&path, &to_json(&path, &stored)?)
    }

    /// Reads the credentials in `dir`. None if this machine never joined. A certificate for another
    /// key is an error.
    pub fn load(dir: &Path) -> Result<Option<Self>, IdentityError> {
        let path = dir.join(CREDENTIALS_FILE);
        let stored: Stored = match from_json(&path) {
            Ok(stored) => stored,
            Err(IdentityError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        if stored.version != 1 {
            return Err(IdentityError::TooNew { path, found: stored.version });
        }
        let key_path = dir.join(KEY_FILE);
        let key_pem = private_file::read(&key_path)?;
        let key = NodeKey::from_pem(&key_pem).map_err(|e| damaged_error(&key_path, e))?;
        let certified = certificate_key(&stored.cert_pem).map_err(|e| damaged_error(&path, e))?;
        if certified != key.public() {
            let what = format!("its certificate is not for the key in {}", key_path.display());
            return Err(IdentityError::Damaged { path, what });
        }
        let gossip_key = GossipKey::from_hex(stored.gossip_key.reveal()).map_err(|e| damaged_error(&path, e))?;
        let others = stored.gossip_others.iter().map(|key| GossipKey::from_hex(key.reveal())).collect::<Result<_, _>>();
        let gossip_others = others.map_err(|e| damaged_error(&path, e))?;
        Ok(Some(Self {
            cluster: stored.cluster,
            epoch: stored.epoch,
            node: stored.node,
            name: stored.name,
            ca_pem: stored.ca_pem,
            cert_pem: stored.cert_pem,
            key_pem: key_pem.into(),
            gossip_key,
            gossip_others,
        }))
    }

    /// The part of the credentials that TLS needs.
    pub fn tls(&self) -> TlsIdentity {
        TlsIdentity {
            cluster: self.cluster.clone(),
            ca_pem: self.ca_pem.clone(),
            cert_pem: self.cert_pem.clone(),
            key_pem: self.key_pem.clone(),
        }
    }

    /// The node's own key.
    pub fn key(&self) -> Result<NodeKey, IdentityError> {
        NodeKey::from_pem(self.key_pem.reveal())
    }
}

/// The certificates in a PEM text, in order; at least one.
pub(super) fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let malformed = |reason: String| IdentityError::Malformed { what, reason };
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| malformed(e.to_string()))?;
    if found.is_empty() { Err(malformed("no certificate in it".into())) } else { Ok(found) }
}

/// The raw public key of the first certificate in `pem`.
pub fn certificate_key(pem: &str) -> Result<Vec<u8>, IdentityError> {
    first_certificate(pem, |cert| cert.public_key().subject_public_key.data.to_vec())
}

/// The last millisecond at which the first certificate in `pem` is valid. The certificate should be
/// renewed before that time.
pub fn certificate_not_after(pem: &str) -> Result<Wall, IdentityError> {
    first_certificate(pem, not_after)
}

/// The first and the last moment at which the first certificate in `pem` is valid.
pub fn certificate_life(pem: &str) -> Result<(Wall, Wall), IdentityError> {
    first_certificate(pem, |cert| (not_before(cert), not_after(cert)))
}

/// Whether the first certificate in `pem` names the first one in `ca_pem` as its issuer. The
/// signature is not checked.
pub fn names_issuer(pem: &str, ca_pem: &str) -> Result<bool, IdentityError> {
    let issuer = first_certificate(pem, |cert| cert.issuer().as_raw().to_vec())?;
    Ok(issuer == first_certificate(ca_pem, |ca| ca.subject().as_raw().to_vec())?)
}

/// The number of certificates in `pem`.
pub fn certificate_count(pem: &str) -> usize {
    certificates("certificate", pem).map_or(0, |found| found.len())
}

/// The common name in the first certificate of `pem`.
pub fn certificate_name(pem: &str) -> Result<String, IdentityError> {
    let name = |cert: &X509Certificate<'_>| {
        cert.subject().iter_common_name().next().and_then(|n| n.as_str().ok()).unwrap_or_default().to_owned()
    };
    first_certificate(pem, name)
}

/// The SHA-256 fingerprint of a public key in hex, in the form that OpenSSH prints.
pub fn fingerprint(public_key: &str) -> String {
    use base64::Engine;
    let digest = Sha256::digest(&hex::decode(public_key).unwrap_or_default());
    format!("SHA256:{}", base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest.0))
}

/// A notice about a certificate that ends within 14 days or has ended, for example `certificate of
/// m1 ends in 12 days`. None for other certificates.
pub fn expiry_notice(name: &NodeName, not_after: Wall, now: Wall) -> Option<String> {
    let days = |ms: u64| match ms / DAY_MS {
        0 => "less than a day".to_owned(),
        n => count_noun(n, "day"),
    };
    let left = not_after.ms_since(now);
    if now > not_after {
        return Some(format!(
            "certificate of {name} ended {} ago: other nodes no longer accept it",
            days(now.ms_since(not_after))
        ));
    }
    (left < ENDING_DAYS * DAY_MS).then(|| format!("certificate of {name} ends in {}", days(left)))
}

/// The first moment at which a parsed certificate is valid.
pub(super) fn not_before(cert: &X509Certificate<'_>) -> Wall {
    Wall(u64::try_from(cert.validity().not_before.timestamp()).unwrap_or(0).saturating_mul(1000))
}

/// The last millisecond at which a parsed certificate is valid. Certificates count in seconds, and
/// the last second belongs to the validity.
pub(super) fn not_after(cert: &X509Certificate<'_>) -> Wall {
    let last_second = u64::try_from(cert.validity().not_after.timestamp()).unwrap_or(0);
    Wall(last_second.saturating_mul(1000).saturating_add(999))
}

fn first_certificate<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, IdentityError> {
    let what = "certificate";
    let all = certificates(what, pem)?;
    match X509Certificate::from_der(&all[0]) {
        Ok((_, cert)) => Ok(read(&cert)),
        Err(e) => Err(IdentityError::Malformed { what, reason: e.to_string() }),
    }
}

fn to_json(path: &Path, value: &impl Serialize) -> Result<Vec<u8>, IdentityError> {
    serde_json::to_vec_pretty(value).map_err(|e| damaged_error(path, e))
}

fn from_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, IdentityError> {
    serde_json::from_str(&private_file::read(path)?).map_err(|e| damaged_error(path, e))
}

fn damaged_error(path: &Path, what: impl std::fmt::Display) -> IdentityError {
    IdentityError::Damaged { path: path.into(), what: what.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::ca::{ClusterCa, Validity};

    fn credentials() -> Credentials {
        let ca = ClusterCa::create(&"c1".into()).unwrap();
        let key = NodeKey::generate().unwrap();
        let cert_pem = ca
            .issue_node(NodeId(7), &"w1".into(), Epoch(1), &key.csr_pem().unwrap(), Validity::days_from_now(90))
            .unwrap();
        Credentials {
            cluster: "c1".into(),
            epoch: Epoch(1),
            node: NodeId(7),
            name: "w1".into(),
            ca_pem: ca.cert_pem().into(),
            cert_pem,
            key_pem: key.to_pem().unwrap(),
            gossip_key: GossipKey::generate().unwrap(),
            gossip_others: vec![GossipKey([7; 32])],
        }
    }

    #[test]
    fn credentials_survive_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Credentials::load(dir.path()).unwrap().is_none());
        let before = credentials();
        before.save(dir.path()).unwrap();
        assert_eq!(Credentials::load(dir.path()).unwrap().unwrap(), before);
        assert!(!format!("{before:?}").contains("PRIVATE KEY"));
    }

    #[test]
    fn the_end_of_a_certificate_is_told_two_weeks_before() {
        let until = certificate_not_after(&credentials().cert_pem).unwrap();
        let at = |days: u64, more_ms: u64| Wall(until.0 - days * DAY_MS + more_ms);
        let said = |now| expiry_notice(&"m1".into(), until, now);
        assert_eq!(said(at(90, 0)), None);
        assert_eq!(said(at(14, 0)), None);
        assert_eq!(said(at(14, 1)).unwrap(), "certificate of m1 ends in 13 days");
        assert_eq!(said(at(1, 0)).unwrap(), "certificate of m1 ends in 1 day");
        assert_eq!(said(until).unwrap(), "certificate of m1 ends in less than a day");
        assert!(said(until.plus_ms(1)).unwrap().starts_with("certificate of m1 ended less than a day ago"));
        assert!(said(until.plus_ms(2 * DAY_MS)).unwrap().starts_with("certificate of m1 ended 2 days ago"));
    }

    #[test]
    fn the_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = NodeKey::load_or_create(dir.path()).unwrap();
        assert_eq!(NodeKey::load_or_create(dir.path()).unwrap().public(), first.public());
    }

    #[test]
    fn damage_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        credentials().save(dir.path()).unwrap();

        let key_file = dir.path().join(KEY_FILE);
        private_file::write(&key_file, NodeKey::generate().unwrap().to_pem().unwrap().reveal().as_bytes()).unwrap();
        let error = Credentials::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("not for the key in") && error.contains(CREDENTIALS_FILE), "{error}");

        private_file::write(&key_file, b"rubbish").unwrap();
        let error = Credentials::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains(KEY_FILE), "{error}");

        private_file::write(&dir.path().join(CREDENTIALS_FILE), b"{\"version\":").unwrap();
        let error = Credentials::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains(CREDENTIALS_FILE) && error.contains("line 1"), "{error}");
    }
}
