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

/// Maximum number of unreadable paths that the digest of one service lists. Further ones are
/// counted.
pub const UNREADABLE_MAX: usize = 200;

/// The kind of a declared path. `Absent` means that the path is declared but does not exist.
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

/// One declared path as found on the node. It has no times, inode and size, because they change
/// without a change of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileEntry {
    /// Absolute path on the node.
    pub path: String,
    pub kind: FileKind,
    /// Permission bits, `mode & 0o7777`; 0 for symlinks.
    pub mode: u32,
    /// The owner's name, because managers do not know the node's numeric ids. An id without a name
    /// is written as `#1234`.
    pub owner: String,
    pub group: String,
    /// Hash of the file's content. A secret file has the HMAC of its content with the node's digest
    /// key.
    pub sha256: Option<Sha256>,
    /// Target of a symlink.
    pub target: Option<String>,
    /// Whether all output hides the content and its diff.
    #[serde(default)]
    pub secret: bool,
}

impl FileEntry {
    /// Whether the content is hidden: the file is declared secret, or only its owner may access it.
    pub fn is_hidden(&self) -> bool {
        self.secret || self.kind == FileKind::File && only_owner(self.mode)
    }
}

/// Whether only the owner may access a file with this mode. Such a file is hidden like a secret
/// file.
pub fn only_owner(mode: u32) -> bool {
    mode & 0o077 == 0
}

/// The declared files of one service as found on a node, and their root hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDigest {
    pub root: Sha256,
    /// The file entries, sorted by path.
    pub entries: Vec<FileEntry>,
    /// Unreadable paths, each with the reason. If there is an unreadable path, the verdict on the
    /// service cannot be `same`. A path that is not UTF-8 is written like a shell's `$'...'`. So
    /// two such paths stay distinct, and neither equals the path of an entry.
    pub unreadable: BTreeMap<String, String>,
    /// Number of unreadable paths that are not listed in `unreadable`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreadable_more: u64,
}

impl ServiceDigest {
    /// A digest of `entries`, which may be in any order. It lists the first [`UNREADABLE_MAX`]
    /// unreadable paths and counts the others.
    pub fn new(mut entries: Vec<FileEntry>, mut unreadable: BTreeMap<String, String>) -> Self {
        entries.sort();
        let last = unreadable.keys().nth(UNREADABLE_MAX).cloned();
        let more = last.map_or(0, |from| unreadable.split_off(&from).len() as u64);
        Self { root: Self::root_of(&entries), entries, unreadable, unreadable_more: more }
    }

    /// One line `path: why` for each listed unreadable path, and a last line with the number of the
    /// others.
    pub fn describe_unreadable(&self) -> impl Iterator<Item = String> + '_ {
        let named = self.unreadable.iter().map(|(path, why)| format!("{path}: {why}"));
        let more = (self.unreadable_more > 0).then(|| format!("{} more can't be read", self.unreadable_more));
        named.chain(more)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The digests of all services of a node, and the root hash over them.
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
