//! The configuration of a node as hashes.

mod differences;
mod digest_summary;
mod record;
mod tree;
mod walk;

pub use differences::*;
pub use digest_summary::*;
pub use record::*;
pub use walk::*;

use super::{ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of unreadable paths that the digest of one service names; the rest is counted.
pub const UNREADABLE_MAX: usize = 200;

/// The kind of a declared path. `Absent`: the path is declared, but does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    Socket,
    Fifo,
    CharDevice,
    BlockDevice,
    Absent,
}

/// One declared path as found on the node. Times, inode and size are left out, because they change
/// without a change of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileEntry {
    /// Absolute path on the node.
    pub path: String,
    pub kind: FileKind,
    /// Permission bits, `mode & 0o7777`; 0 for symlinks.
    pub mode: u32,
    /// The owner's name, because managers do not know the node's numeric IDs. An ID without a name
    /// is written as `#1234`.
    pub owner: String,
    pub group: String,
    /// Hash of the file's content; for a secret file, its HMAC with the node's digest key.
    pub sha256: Option<Sha256>,
    /// Target of a symlink.
    pub target: Option<String>,
    /// If set, no output shows a diff or the content.
    #[serde(default)]
    pub secret: bool,
}

impl FileEntry {
    /// The content is never shown: the file is declared secret, or only its owner may read it.
    pub fn is_hidden(&self) -> bool {
        self.secret || self.kind == FileKind::File && only_owner(self.mode)
    }
}

/// Only the owner may access a file with this mode. Its content is hidden like that of a secret.
pub fn only_owner(mode: u32) -> bool {
    mode & 0o077 == 0
}

/// The declared files of one service as found on a node, and their root hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDigest {
    pub root: Sha256,
    /// Sorted by path.
    pub entries: Vec<FileEntry>,
    /// Unreadable paths, each with the reason. If there are any, the verdict on the service cannot
    /// be `same`. A path that is not UTF-8 is written like a shell's `$'...'`, so that two such
    /// paths stay distinct and none equals an entry's path.
    pub unreadable: BTreeMap<String, String>,
    /// Number of unreadable paths that are not listed in `unreadable`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreadable_more: u64,
}

impl ServiceDigest {
    /// `entries` may be in any order. Keeps the first [`UNREADABLE_MAX`] unreadable paths and
    /// counts the rest.
    pub fn new(mut entries: Vec<FileEntry>, mut unreadable: BTreeMap<String, String>) -> Self {
        entries.sort();
        let last = unreadable.keys().nth(UNREADABLE_MAX).cloned();
        let more = last.map_or(0, |from| unreadable.split_off(&from).len() as u64);
        Self { root: Self::root_of(&entries), entries, unreadable, unreadable_more: more }
    }

    /// One line `path: why` for each unreadable path, then the number of paths that are not listed.
    pub fn describe_unreadable(&self) -> impl Iterator<Item = String> + '_ {
        let named = self.unreadable.iter().map(|(path, why)| format!("{path}: {why}"));
        let more = (self.unreadable_more > 0).then(|| format!("{} more can't be read", self.unreadable_more));
        named.chain(more)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// All services of a node as found, and the root hash over them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDigest {
    /// Hash over the pairs of service name and service root, sorted by name.
    pub root: Sha256,
    pub services: BTreeMap<ServiceName, ServiceDigest>,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::File => "file",
            FileKind::Dir => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Socket => "socket",
            FileKind::Fifo => "pipe",
            FileKind::CharDevice => "character device",
            FileKind::BlockDevice => "block device",
            FileKind::Absent => "absent",
        })
    }
}

#[cfg(test)]
mod tests;
