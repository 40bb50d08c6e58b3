//! Where things are in the data directory, and the few settings of this node.

use crate::disk::{DiskError, atomic_write};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Layout(pub PathBuf);

impl Layout {
    pub fn raft(&self) -> PathBuf {
        self.0.join("raft")
    }
    pub fn blobs(&self) -> PathBuf {
        self.0.join("blobs")
    }
    /// Logs of attempts, on managers.
    pub fn runs(&self) -> PathBuf {
        self.0.join("job-logs")
    }
    /// The CA's key, on managers only.
    pub fn ca(&self) -> PathBuf {
        self.0.join("ca")
    }
    /// The cluster's SSH key, on managers only.
    pub fn ssh_key(&self) -> PathBuf {
        self.0.join("ssh.key")
    }
    pub fn ssh(&self) -> PathBuf {
        self.0.join("ssh")
    }
    pub fn peers(&self) -> PathBuf {
        self.0.join("peers.json")
    }
    /// Where known nodes were last seen.
    pub fn addresses(&self) -> PathBuf {
        self.0.join("addresses.json")
    }
    pub fn operator(&self) -> PathBuf {
        self.0.join("operator.json")
    }
}

/// `node.json`: addresses, written by `init` and `join`, editable while the daemon is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// IP address that the others dial. While the machine does not have it, and no `bind` is given, another one of the
    /// machine's is used in its place.
    pub advertise: std::net::IpAddr,
    /// IP address that is listened on, where it is another: behind an address translation, say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<std::net::IpAddr>,
    pub api_port: u16,
    pub gossip_port: u16,
    /// Where `GET /metrics` answers over plain HTTP, without asking who it is; none unless written here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<std::net::SocketAddr>,
}

impl NodeConfig {
    pub fn api(&self) -> std::net::SocketAddr {
        (self.advertise, self.api_port).into()
    }
    pub fn gossip(&self) -> std::net::SocketAddr {
        (self.advertise, self.gossip_port).into()
    }
    pub fn api_bind(&self) -> std::net::SocketAddr {
        (self.bind.unwrap_or(self.advertise), self.api_port).into()
    }
    pub fn gossip_bind(&self) -> std::net::SocketAddr {
        (self.bind.unwrap_or(self.advertise), self.gossip_port).into()
    }

    /// Errors name the file.
    pub fn load(dir: &Path) -> Result<Self, String> {
        let path = dir.join("node.json");
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))
    }

    pub fn save(&self, dir: &Path) -> Result<(), DiskError> {
        let bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        atomic_write(&dir.join("node.json"), &bytes, 0o600)
    }
}
