//! The hashes of a digest: of an entry, of a service's tree, of a node. This file defines the
//! meaning of the roots; it compares nothing.

use super::{FileEntry, FileKind, NodeDigest, ServiceDigest};
use crate::{ServiceName, Sha256};
use std::collections::BTreeMap;

/// Version of the bytes of a file entry. It must be raised when the format changes, so that an old
/// root never equals a new one by accident.
const ENTRY_VERSION: u8 = 1;
/// The first byte of the hashed text. It separates the kinds of tree nodes, so that a node of one
/// kind cannot have the hash of another kind (RFC 6962 uses two such bytes).
const LEAF: u8 = 0;
const INNER: u8 = 1;
const BUCKET: u8 = 2;
const NODE: u8 = 3;
/// Maximum number of file entries in one bucket. Larger sets are split into 16 children by the next
/// hex digit of their key.
pub(super) const BUCKET_SIZE: usize = 16;
pub(super) const KEY_DIGITS: usize = 64;
impl FileKind {
    fn byte(self) -> u8 {
        match self {
            FileKind::File => b'f',
            FileKind::Dir => b'd',
            FileKind::Symlink => b'l',
            FileKind::Socket => b's',
            FileKind::Fifo => b'p',
            FileKind::CharDevice => b'c',
            FileKind::BlockDevice => b'b',
            FileKind::Absent => b'a',
        }
    }
}
impl FileEntry {
    /// The bytes to hash: the version, then every relevant attribute with its length. They do not
    /// contain the `secret` flag.
    pub fn canonical(&self) -> Vec<u8> {
        let mut out = vec![ENTRY_VERSION, self.kind.byte()];
        push_text(&mut out, &self.path);
        out.extend_from_slice(&self.mode.to_be_bytes());
        push_text(&mut out, &self.owner);
        push_text(&mut out, &self.group);
        match &self.sha256 {
            Some(sha256) => {
                out.push(1);
                out.extend_from_slice(&sha256.0);
            }
            None => out.push(0),
        }
        match &self.target {
            Some(target) => {
                out.push(1);
                push_text(&mut out, target);
            }
            None => out.push(0),
        }
        out
    }
}
impl ServiceDigest {
    /// Root of the tree over `entries`. It does not depend on their order. Without entries it is
    /// all zero.
    pub fn root_of(entries: &[FileEntry]) -> Sha256 {
        let mut leaves: Vec<Leaf> = entries.iter().map(Leaf::from_entry).collect();
        leaves.sort_unstable();
        subtree(&leaves, 0)
    }
}

impl NodeDigest {
    /// Root over the services that have file entries. A service without file entries is skipped,
    /// because it contains no information about the node.
    pub fn root_of(services: &BTreeMap<ServiceName, ServiceDigest>) -> Sha256 {
        let mut bytes = Vec::new();
        for (name, service) in services.iter().filter(|(_, service)| !service.entries.is_empty()) {
            push_text(&mut bytes, name.as_str());
            bytes.extend_from_slice(&service.root.0);
        }
        hash_tagged(NODE, &bytes)
    }
}

/// The position of a file entry in the tree, and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leaf {
    /// Hash of the path alone.
    pub key: Sha256,
    pub hash: Sha256,
}

impl Leaf {
    pub(super) fn from_entry(entry: &FileEntry) -> Self {
        Self { key: Sha256::digest(entry.path.as_bytes()), hash: hash_tagged(LEAF, &entry.canonical()) }
    }
}

/// The hash over sorted `leaves` whose keys have the same first `digit` hex digits. Without leaves
/// it is all zero.
pub(super) fn subtree(leaves: &[Leaf], digit: usize) -> Sha256 {
    if leaves.is_empty() {
        return Sha256::default();
    }
    let mut bytes = Vec::with_capacity(BUCKET_SIZE * 32);
    if leaves.len() <= BUCKET_SIZE || digit == KEY_DIGITS {
        leaves.iter().for_each(|leaf| bytes.extend_from_slice(&leaf.hash.0));
        return hash_tagged(BUCKET, &bytes);
    }
    let mut rest = leaves;
    for child in 0..16 {
        let (mine, others) = rest.split_at(rest.partition_point(|leaf| hex_digit(&leaf.key, digit) <= child));
        bytes.extend_from_slice(&subtree(mine, digit + 1).0);
        rest = others;
    }
    hash_tagged(INNER, &bytes)
}

pub(super) fn hex_digit(key: &Sha256, digit: usize) -> u8 {
    let byte = key.0[digit / 2];
    if digit.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

fn hash_tagged(tag: u8, bytes: &[u8]) -> Sha256 {
    let mut all = Vec::with_capacity(bytes.len() + 1);
    all.push(tag);
    all.extend_from_slice(bytes);
    Sha256::digest(&all)
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
