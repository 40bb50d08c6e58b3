//! The paths in the data directory, and the few settings of this node.

use remoor_host::disk::{DiskError, atomic_write};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Layout(pub PathBuf);

impl Layout {
    pub fn raft(&self) -> PathBuf {
        self.0.join("raft")
    }
    /// The file of the replicated log.
    pub fn raft_log(&self) -> PathBuf {
        self.raft().join("log.redb")
    }
    pub fn blobs(&self) -> PathBuf {
        self.0.join("blobs")
    }
    /// Logs of job attempts; managers only.
    pub fn runs(&self) -> PathBuf {
        self.0.join("job-logs")
    }
    /// The vault passwords, one file for each vault id; managers only. Operators write it.
    pub fn vaults(&self) -> PathBuf {
        self.0.join("vault")
    }
    /// The CA's key; managers only.
    pub fn ca(&self) -> PathBuf {
        self.0.join("ca")
    }
    /// The cluster's SSH key; managers only.
    pub fn ssh_key(&self) -> PathBuf {
        self.0.join("ssh.key")
    }
    pub fn ssh(&self) -> PathBuf {
        self.0.join("ssh")
    }
    pub fn peers(&self) -> PathBuf {
        self.0.join("peers.json")
    }
    /// The last known addresses of the other nodes.
    pub fn addresses(&self) -> PathBuf {
        self.0.join("addresses.json")
    }
    pub fn operator(&self) -> PathBuf {
        self.0.join("operator.json")
    }
}

/// `node.json`: addresses and settings of this node. `init` and `join` write it. It may be edited
/// while the daemon is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// IP address that the other nodes dial. If the machine does not have this address and `bind`
    /// is not set, another address of the machine is used instead.
    pub advertise: std::net::IpAddr,
    /// IP address to listen on if it differs from `advertise`, for example behind NAT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<std::net::IpAddr>,
    pub api_port: u16,
    pub gossip_port: u16,
    /// Address of `GET /metrics` over plain HTTP without authentication; disabled by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<std::net::SocketAddr>,
    /// Validity in seconds of the certificates that this node issues as a manager; default 90 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_life_s: Option<u64>,
    /// On a manager: whether a machine without the secret of a token may ask an operator to accept
    /// it; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_requests: Option<bool>,
}

/// Limits of the certificate validity. A shorter validity would cause constant renewal. With a
/// longer one, the certificate of a removed node could be valid longer than the record of the
/// removal exists.
const LIFE_S: std::ops::RangeInclusive<u64> = 10..=remoor_cluster::rpc::ca::NODE_LIFE.as_secs();

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

    /// Validity of the certificates that this node issues as a manager.
    pub fn certificate_life(&self) -> std::time::Duration {
        let chosen = self.certificate_life_s.map(|s| s.clamp(*LIFE_S.start(), *LIFE_S.end()));
        chosen.map_or(remoor_cluster::rpc::ca::NODE_LIFE, std::time::Duration::from_secs)
    }

    /// Rejects addresses that other nodes can't dial. The error is a message for users.
    pub fn check(&self) -> Result<(), String> {
        let ip = self.advertise;
        if ip.is_unspecified() || ip.is_multicast() || ip == std::net::Ipv4Addr::BROADCAST {
            return Err(format!(
                "{ip} is not the address of a single machine; next: --advertise with an address that the other nodes can dial"
            ));
        }
        if self.api_port == 0 || self.gossip_port == 0 || self.api_port == self.gossip_port {
            let (api, gossip) = (self.api_port, self.gossip_port);
            return Err(format!("API port {api} and gossip port {gossip}: both must be set and must differ"));
        }
        Ok(())
    }

    /// Loads `node.json` from the data directory `dir`. The error message contains the file name.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_nobody_could_dial_are_refused() {
        let config = |advertise: &str, api_port, gossip_port| {
            let advertise = advertise.parse().unwrap();
            let (metrics, certificate_life_s, join_requests) = (None, None, None);
            let ports = (api_port, gossip_port);
            NodeConfig {
                advertise,
                bind: None,
                api_port: ports.0,
                gossip_port: ports.1,
                metrics,
                certificate_life_s,
                join_requests,
            }
            .check()
        };
        assert_eq!(config("10.0.0.1", 7947, 7946), Ok(()));
        for (advertise, api, gossip) in [
            ("0.0.0.0", 1, 2),
            ("::", 1, 2),
            ("224.0.0.1", 1, 2),
            ("255.255.255.255", 1, 2),
            ("10.0.0.1", 0, 2),
            ("10.0.0.1", 7946, 7946),
        ] {
            assert!(config(advertise, api, gossip).is_err(), "{advertise} {api} {gossip}");
        }
    }
}
