//! How a machine becomes a node: its join request, the reply, and the machine's side of the
//! exchange.
//!
//! The managers decide whether the secret of the join token is valid, and which id the machine
//! gets.

use super::ca;
use super::client::{ApiError, Client};
use super::identity::{self, Credentials, GossipKey, IdentityError, NodeKey};
use super::join_proof::ChannelBinding;
use super::tls::ClientTls;
use super::token::{self, Secret, Token};
use super::verify;
use super::wire::Code;
use remoor_model::{ClusterId, Epoch, Node, NodeId, NodeName, RaftId, Wall, ZONE_MAX, is_zone, reserved_by_ansible};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The path of join requests of earlier versions, which contain the secret. Workers answer here
/// with the addresses of the managers.
pub const JOIN_PATH: &str = "/join/v1";
/// The path of join requests with a proof instead of the secret.
pub const JOIN_PROVED_PATH: &str = "/join/v2";
/// Maximum time for the answer of the managers, who commit the acceptance before they answer.
const JOIN_WITHIN: Duration = Duration::from_secs(30);
/// Maximum length of a node's name, in bytes.
const NAME_CHARS_MAX: usize = 253;
/// The rule of [`check_name`], for messages.
pub const NAME_RULE: &str = "letters, digits, dots, dashes and _, at most 253, not starting with a dot or dash";
const TEXT_BYTES_MAX: usize = 1024;
const HOST_KEYS_MAX: usize = 16;
/// Maximum bytes of all texts of a request without a secret. Such a request enters the log before
/// anybody has decided about the machine. Three SSH host keys have about 1 KiB.
const STRANGER_BYTES_MAX: usize = 4096;

/// The data that a joining machine sends about itself. [`join`] sets the proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The secret of the token. Only earlier versions send it.
    #[serde(default, skip_serializing_if = "Secret::is_empty")]
    pub secret: Secret,
    /// The proof that the machine knows the secret ([`super::join_proof`]). Empty if the token has
    /// no secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proof: String,
    pub name: NodeName,
    /// Host and port of the machine's API, as other nodes reach it. During the join the machine
    /// answers dial-back requests there ([`super::dial_back`]).
    pub advertise: String,
    /// Address and port of the machine's gossip.
    pub gossip_addr: String,
    /// The key that signs the machine's gossip reports, in hex. The signing request must be for the
    /// same key.
    pub node_public_key: String,
    pub tls_csr_pem: String,
    /// The SSH host keys of the machine, as lines in the format of `/etc/ssh/*.pub`.
    #[serde(default)]
    pub ssh_host_keys: Vec<String>,
    pub machine_id: String,
    /// The version of remoor on the machine.
    pub version: String,
    #[serde(default)]
    pub want_manager: bool,
    /// Whether the node is to be drained from the beginning.
    #[serde(default)]
    pub drain: bool,
    /// The zone of the machine: nodes of one zone may fail together. Empty if none was given.
    #[serde(default)]
    pub zone: String,
    /// Boot id of the machine.
    #[serde(default)]
    pub boot: String,
    /// The time of the machine's clock. [`join`] sets a missing time. None from an older version.
    #[serde(default)]
    pub now: Option<Wall>,
    /// The cluster that the machine's data directory names, if the machine was a node before.
    #[serde(default)]
    pub cluster: Option<ClusterId>,
}

/// Maximum difference between the clocks of a joining machine and of the manager, in milliseconds.
pub const SKEW_MAX_MS: u64 = 60_000;

/// Whether a node may have this name. The error may be sent to an unauthenticated machine.
pub fn check_name(name: &NodeName) -> Result<(), IdentityError> {
    let name = name.as_str();
    let usable = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.bytes().all(usable) || name.starts_with(['.', '-']) {
        let name = name.chars().take(64).collect::<String>();
        let reason = format!("{name:?} is not a valid node name: {NAME_RULE}");
        return Err(IdentityError::Malformed { what: "join request", reason });
    }
    if let Some(means) = reserved_by_ansible(name) {
        let reason = format!("{name:?} is not a valid node name: in an inventory it means {means}");
        return Err(IdentityError::Malformed { what: "join request", reason });
    }
    Ok(())
}

impl JoinRequest {
    /// Whether the request is consistent and proves that the sender holds the key that it names.
    /// Managers call this before they use any other part of the request. The error may be sent to
    /// the sender.
    pub fn check(&self) -> Result<(), IdentityError> {
        let bad = |reason: String| IdentityError::Malformed { what: "join request", reason };
        check_name(&self.name)?;
        for (what, text) in [
            ("advertise", &self.advertise),
            ("gossip_addr", &self.gossip_addr),
            ("machine_id", &self.machine_id),
            ("version", &self.version),
        ] {
            if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
                return Err(bad(format!("{what} is empty, too long or holds control characters")));
            }
        }
        for (what, addr) in [("advertise", &self.advertise), ("gossip_addr", &self.gossip_addr)] {
            let port = addr.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                return Err(bad(format!("{what} {addr:?} is not host:port")));
            }
        }
        if !self.zone.is_empty() && !is_zone(&self.zone) {
            return Err(bad(format!("a zone's name has 1 to {ZONE_MAX} bytes, and no spaces")));
        }
        if self.ssh_host_keys.len() > HOST_KEYS_MAX {
            return Err(bad(format!("more than {HOST_KEYS_MAX} SSH host keys")));
        }
        if self.boot.len() > TEXT_BYTES_MAX || self.boot.chars().any(char::is_control) {
            return Err(bad("boot is too long or holds control characters".into()));
        }
        // A line break would add a line to known_hosts, with content of the sender's choice.
        if self.ssh_host_keys.iter().any(|k| k.len() > TEXT_BYTES_MAX * 4 || k.chars().any(char::is_control)) {
            return Err(bad("an SSH host key is too long or holds control characters".into()));
        }
        let named = hex::decode(&self.node_public_key).map_err(|_| bad("node_public_key is not hex".into()))?;
        if ca::csr_key(&self.tls_csr_pem)? != named {
            return Err(bad("the signing request is for another key than node_public_key".into()));
        }
        Ok(())
    }
}

impl JoinRequest {
    /// Rejects a request whose texts are too long for a machine without a secret.
    pub fn check_short(&self) -> Result<(), IdentityError> {
        let (name, texts) = (self.name.as_str(), [&self.advertise, &self.gossip_addr, &self.machine_id, &self.version]);
        let others = [&self.zone, &self.boot, &self.node_public_key].into_iter().chain(&self.ssh_host_keys);
        let bytes = name.len() + texts.into_iter().chain(others).map(String::len).sum::<usize>();
        if bytes <= STRANGER_BYTES_MAX {
            return Ok(());
        }
        let reason = format!("its texts have {bytes} bytes, without a secret at most {STRANGER_BYTES_MAX}");
        Err(IdentityError::Malformed { what: "join request", reason })
    }
}

/// A node of the cluster, as described to a joining machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    pub name: NodeName,
    pub id: NodeId,
    pub gossip_addr: String,
    pub api_addr: String,
    /// The key that signs the node's gossip reports, in hex.
    pub public_key: String,
}

impl PeerInfo {
    /// The node as recorded in the inventory.
    pub fn for_node(node: &Node) -> Self {
        Self {
            name: node.name().clone(),
            id: node.id,
            gossip_addr: node.spec.gossip.clone(),
            api_addr: node.spec.api.clone(),
            public_key: node.spec.public_key.clone(),
        }
    }
}

/// The reply to a join: everything that makes the machine a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinReply {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub node: NodeId,
    /// The node name under which the machine was accepted.
    pub name: NodeName,
    /// Set if the node has to start its manager service at once.
    pub raft: Option<RaftId>,
    pub cert_pem: String,
    pub ca_pem: String,
    pub gossip_key_hex: Secret,
    pub peers: Vec<PeerInfo>,
    pub managers: Vec<PeerInfo>,
    /// The line for `authorized_keys` with which the managers log in. It is meant for operators who
    /// want to add it. None from an older cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<String>,
}

impl JoinReply {
    /// The credentials to store on disk.
    pub fn credentials(&self, key: &NodeKey) -> Result<Credentials, IdentityError> {
        Ok(Credentials {
            cluster: self.cluster.clone(),
            epoch: self.epoch,
            node: self.node,
            name: self.name.clone(),
            ca_pem: self.ca_pem.clone(),
            cert_pem: self.cert_pem.clone(),
            key_pem: key.to_pem()?,
            gossip_key: GossipKey::from_hex(self.gossip_key_hex.reveal())?,
            gossip_others: Vec::new(),
        })
    }
}

/// The reason why a machine did not become a node. Nothing changed on this machine.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// [`ApiError`] says whether the cluster may have accepted the machine. Another join with the
    /// same key is safe.
    #[error("can't join through {addr}")]
    Api { addr: String, source: ApiError },
    #[error("can't prepare the join")]
    Prepare { source: IdentityError },
    /// The answer came from the right cluster but is inconsistent.
    #[error("the answer of {addr} is not valid: {reason}")]
    Reply { addr: String, reason: String },
    /// The CA was replaced between the handshake and the answer. In the handshake the CA of the
    /// token was still valid.
    #[error("{addr} answered with another CA than the token names, because the CA was replaced just now")]
    Replaced { addr: String },
    /// The secret was not sent, because the manager accepts no proof of it.
    #[error(
        "the manager at {addr} runs an earlier version, which would need the secret of the token in clear; next: \
         upgrade the managers first, or join with the program of their version and upgrade it afterwards"
    )]
    TooOld { addr: String },
}

/// Asks the manager at `addr` to accept this machine. The request is sent only to a manager of the
/// cluster that the token names, and contains a proof instead of the secret. The reply is checked
/// against the token and the requested key.
pub async fn join(addr: &str, token: &Token, mut request: JoinRequest) -> Result<JoinReply, JoinError> {
    let tls = ClientTls::joiner(token.ca_digest()).map_err(|source| JoinError::Prepare { source })?;
    let tls = tls.for_managers_only(JOIN_PATH);
    request.secret = Secret::default();
    request.now = request.now.or_else(|| Some(remoor_host::wall_clock::now()));
    let with_proof = |binding: &ChannelBinding| {
        if !token.secret().is_empty() {
            request.proof = binding.prove(token.secret(), &request.node_public_key);
        }
        // All fields are texts, numbers and lists, so this can't fail.
        serde_json::to_vec(&request).unwrap_or_default()
    };
    let client = Client::tls(addr, &tls, None).with_timeout(JOIN_WITHIN);
    let reply: JoinReply = client.post_bound(JOIN_PROVED_PATH, with_proof).await.map_err(|source| {
        match source.code() == Some(Code::NotFound.as_str()) {
            true => JoinError::TooOld { addr: addr.to_owned() },
            false => JoinError::Api { addr: addr.to_owned(), source },
        }
    })?;
    let unfit = |reason| JoinError::Reply { addr: addr.to_owned(), reason };
    if !token::has_ca_digest(&reply.ca_pem, token.ca_digest()).map_err(|e| unfit(e.to_string()))? {
        return Err(JoinError::Replaced { addr: addr.to_owned() });
    }
    check_reply(&reply, &request).map_err(unfit)?;
    Ok(reply)
}

fn check_reply(reply: &JoinReply, request: &JoinRequest) -> Result<(), String> {
    let text = |e: IdentityError| e.to_string();
    verify::issued_to_node(&reply.ca_pem, &reply.cert_pem, reply.node, &reply.cluster).map_err(text)?;
    if hex::encode(identity::certificate_key(&reply.cert_pem).map_err(text)?) != request.node_public_key {
        return Err("its certificate is for another key".into());
    }
    GossipKey::from_hex(reply.gossip_key_hex.reveal()).map_err(text)?;
    Ok(())
}

/// A join request for tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::*;

    pub fn request(key: &NodeKey) -> JoinRequest {
        JoinRequest {
            secret: Secret::default(),
            proof: String::new(),
            name: "w1".into(),
            advertise: "127.0.0.1:7373".into(),
            gossip_addr: "127.0.0.1:7374".into(),
            node_public_key: hex::encode(key.public()),
            tls_csr_pem: key.csr_pem().unwrap(),
            ssh_host_keys: vec!["ssh-ed25519 AAAA host".into()],
            machine_id: "0123456789abcdef0123456789abcdef".into(),
            version: "0.1.0".into(),
            want_manager: false,
            drain: false,
            zone: String::new(),
            boot: "b".into(),
            now: None,
            cluster: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::request;
    use super::*;

    #[test]
    fn requests_are_checked() {
        let key = NodeKey::generate().unwrap();
        let good = request(&key);
        good.check().unwrap();
        type Spoil = fn(&mut JoinRequest);
        let cases: [(&str, Spoil); 9] = [
            ("not a valid node name", |r| r.name = "a b".into()),
            ("not a valid node name", |r| r.name = "".into()),
            ("not a valid node name", |r| r.name = "-rf".into()),
            ("host:port", |r| r.advertise = "w1".into()),
            ("host:port", |r| r.gossip_addr = "10.0.0.1:0".into()),
            ("machine_id", |r| r.machine_id = "a\nb".into()),
            ("SSH host key", |r| r.ssh_host_keys = vec!["ssh-ed25519 AAAA\n* ssh-rsa BBBB".into()]),
            ("more than 16", |r| r.ssh_host_keys = vec!["k".into(); 17]),
            ("another key", |r| r.node_public_key = hex::encode([7; 32])),
        ];
        good.check_short().unwrap();
        let long = JoinRequest { ssh_host_keys: vec!["k".repeat(4000); 2], ..good.clone() };
        assert!(long.check().is_ok() && long.check_short().unwrap_err().to_string().contains("at most 4096"));
        for (wanted, spoil) in cases {
            let mut bad = good.clone();
            spoil(&mut bad);
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error} does not contain {wanted}");
        }
    }
}
