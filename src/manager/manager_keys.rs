//! The secrets of one manager: the CAs, the cluster's SSH key, and the secret for digest keys.

use super::Authorities;
use super::ansible::Keys;
use remoor_exec::ssh::{self, ClusterKey};
use remoor_model::NodeId;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

pub struct ManagerKeys {
    /// The CAs that issue certificates.
    pub cas: Arc<Authorities>,
    /// Path of the cluster's SSH private key; the file may not exist.
    pub ssh_key_file: PathBuf,
    /// The key in `ssh_key_file`. It is not set until the key is loaded. In a cluster of an older
    /// version, which has no such key, it is never set.
    pub ssh_key: OnceLock<ClusterKey>,
    secret: [u8; 32],
}

impl ManagerKeys {
    /// `secret` is the managers' secret. The digest key of each node is derived from it.
    pub(super) fn new(cas: Arc<Authorities>, ssh_key_file: PathBuf, secret: [u8; 32]) -> Self {
        Self { cas, ssh_key_file, ssh_key: OnceLock::new(), secret }
    }

    /// Key for hashing the secret files of a node.
    pub fn digest_key(&self, node: NodeId) -> [u8; 32] {
        use hmac::{KeyInit, Mac};
        let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&self.secret).expect("any key length will do");
        mac.update(b"remoor digest key");
        mac.update(&node.0.to_be_bytes());
        mac.finalize().into_bytes().into()
    }

    /// The `authorized_keys` line that gives the managers access to a host.
    pub fn ssh_line(&self) -> Option<String> {
        self.ssh_key.get().map(ClusterKey::line)
    }

    /// Private keys that ssh offers after those of the operator's configuration. `identity_given`
    /// says whether the inventory names a key file for the node.
    pub(super) fn last_keys(&self, identity_given: bool) -> Vec<PathBuf> {
        let file = self.ssh_key.get().map(|_| self.ssh_key_file.clone());
        file.map(|file| ssh::last_offered_keys(file, identity_given)).unwrap_or_default()
    }

    /// The keys of [`last_keys`](Self::last_keys), for Ansible's ssh.
    pub(super) fn play_keys(&self) -> Keys {
        Keys { with_identity: self.last_keys(true), without_identity: self.last_keys(false) }
    }
}
