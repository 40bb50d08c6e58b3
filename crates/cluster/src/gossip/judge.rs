//! Decides whether a gossip record is accepted. Pure: the input is a record, the result a
//! judgement.

use super::config::KeyLookup;
use super::meta::{self, SignatureScope};
use ed25519_dalek::VerifyingKey;
use remoor_model::{ClusterId, NodeName, Report};
use std::net::SocketAddr;
use std::sync::Arc;

/// Maximum length of a node name on the wire, in bytes: the length of a DNS name.
pub const NAME_MAX: usize = 253;

/// Whether the text is a valid node name and safe to print.
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(|b| b.is_ascii_graphic())
}

/// The result of judging a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Accepted. `key` is None for a node that the inventory does not know. `signed` is false if
    /// the report could not be read.
    Member { report: Report, signed: bool, key: Option<[u8; 32]> },
    /// This node's own record at its own address with a valid signature. The running daemon signed
    /// it, or an earlier start of the daemon did.
    Own { report: Report },
    /// A record with this node's name and address that this node's key did not sign. Either an
    /// earlier key of the node signed it, or it is forged.
    OwnUnsigned,
    /// A record with this node's name that names another address and that this node's key did not
    /// sign.
    OwnForged,
    /// A record with this node's name that names another address and that this node's key signed.
    /// Either this node sent it before its address changed, or the data directory was copied.
    OwnElsewhere { report: Report },
    /// A record with another node's name. It is not signed with the key that the inventory has for
    /// that node.
    Forged,
    /// The node was removed from the cluster.
    Removed,
    /// The record's name is not a valid node name.
    BadName,
}

/// The data by which records are judged.
pub struct Judge {
    pub cluster: ClusterId,
    pub me: NodeName,
    /// This node's advertised address.
    pub addr: SocketAddr,
    pub own_key: VerifyingKey,
    pub verify: Arc<dyn Fn(&NodeName) -> KeyLookup + Send + Sync>,
}

impl Judge {
    /// Judges one record. Performs at most one signature check and never blocks.
    pub fn judge(&self, name: &NodeName, addr: SocketAddr, bytes: &[u8]) -> Judgement {
        if *name == self.me {
            return self.judge_own(addr, bytes);
        }
        if !is_valid_name(name.as_str()) {
            return Judgement::BadName;
        }
        match (self.verify)(name) {
            KeyLookup::Removed => Judgement::Removed,
            KeyLookup::Unknown => {
                Judgement::Member { report: meta::decode(bytes).unwrap_or_default(), signed: false, key: None }
            }
            KeyLookup::Known(key) => {
                if !meta::verify(bytes, self.scope(name, addr), &key) {
                    return Judgement::Forged;
                }
                let report = meta::decode(bytes);
                // A report of a newer version cannot be read here, although its signature is valid.
                Judgement::Member {
                    signed: report.is_some(),
                    report: report.unwrap_or_default(),
                    key: Some(key.to_bytes()),
                }
            }
        }
    }

    fn judge_own(&self, addr: SocketAddr, bytes: &[u8]) -> Judgement {
        // Verify with the local key instead of the inventory's, because a node that was just
        // removed must still recognise its own record.
        let signed = meta::verify(bytes, self.scope(&self.me, addr), &self.own_key);
        let report = meta::decode(bytes).unwrap_or_default();
        match (addr == self.addr, signed) {
            (true, true) => Judgement::Own { report },
            (true, false) => Judgement::OwnUnsigned,
            (false, true) => Judgement::OwnElsewhere { report },
            (false, false) => Judgement::OwnForged,
        }
    }

    fn scope<'a>(&'a self, name: &'a NodeName, addr: SocketAddr) -> SignatureScope<'a> {
        SignatureScope { cluster: &self.cluster, name, addr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::SigningKey;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn addr(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 7946))
    }

    fn judge() -> Judge {
        Judge {
            cluster: "c".into(),
            me: "me".into(),
            addr: addr(1),
            own_key: key(1).verifying_key(),
            verify: Arc::new(|name| match name.as_str() {
                "known" => KeyLookup::Known(key(2).verifying_key()),
                "removed" => KeyLookup::Removed,
                _ => KeyLookup::Unknown,
            }),
        }
    }

    fn record(name: &str, at: SocketAddr, signer: &SigningKey) -> Vec<u8> {
        let scope = SignatureScope { cluster: &"c".into(), name: &name.into(), addr: at };
        meta::encode(&report(), scope, signer).expect("encode")
    }

    fn report() -> Report {
        Report { instance: "00000000000000aa".into(), isolation: 3, ..Report::default() }
    }

    fn judge_record(name: &str, at: SocketAddr, bytes: &[u8]) -> Judgement {
        judge().judge(&name.into(), at, bytes)
    }

    #[test]
    fn a_known_node_needs_its_own_signature() {
        let good = record("known", addr(2), &key(2));
        let member = Judgement::Member { report: report(), signed: true, key: Some(key(2).verifying_key().to_bytes()) };
        assert_eq!(judge_record("known", addr(2), &good), member);
        assert_eq!(judge_record("known", addr(3), &good), Judgement::Forged, "carried over to another address");
        assert_eq!(
            judge_record("known", addr(2), &record("known", addr(2), &key(3))),
            Judgement::Forged,
            "another key"
        );
        assert_eq!(judge_record("known", addr(2), b""), Judgement::Forged, "no report");
    }

    #[test]
    fn unknown_nodes_are_let_in_without_being_believed_and_removed_ones_not() {
        let record = record("new", addr(2), &key(9));
        assert_eq!(
            judge_record("new", addr(2), &record),
            Judgement::Member { report: report(), signed: false, key: None }
        );
        let junk = Judgement::Member { report: Report::default(), signed: false, key: None };
        assert_eq!(judge_record("new", addr(2), b"junk"), junk);
        assert_eq!(judge_record("removed", addr(2), &record), Judgement::Removed);
        for name in ["", "a b", "a\nb", "ä", &"x".repeat(NAME_MAX + 1)] {
            assert_eq!(judge_record(name, addr(2), &record), Judgement::BadName, "{name:?}");
        }
    }

    #[test]
    fn a_version_that_is_not_read_keeps_its_node_present_and_is_not_believed() {
        let mut newer = record("known", addr(2), &key(2));
        newer.truncate(newer.len() - 64);
        newer[0] = 2;
        let signed = meta::sign_as(
            newer,
            SignatureScope { cluster: &"c".into(), name: &"known".into(), addr: addr(2) },
            &key(2),
        );
        let member = Judgement::Member {
            report: Report::default(),
            signed: false,
            key: Some(key(2).verifying_key().to_bytes()),
        };
        assert_eq!(judge_record("known", addr(2), &signed), member);
        let mut changed = signed;
        changed[5] ^= 1;
        assert_eq!(judge_record("known", addr(2), &changed), Judgement::Forged);
    }

    #[test]
    fn the_own_name_is_told_by_address_and_key() {
        let cases = [
            (addr(1), key(1), Judgement::Own { report: report() }),
            (addr(1), key(2), Judgement::OwnUnsigned),
            (addr(2), key(1), Judgement::OwnElsewhere { report: report() }),
            (addr(2), key(2), Judgement::OwnForged),
        ];
        for (at, signer, expect) in cases {
            assert_eq!(judge_record("me", at, &record("me", at, &signer)), expect);
        }
    }
}
