//! What configuration a node has, as hashes.

mod differences;
mod outline;
mod record;
mod tree;
mod walk;

pub use differences::*;
pub use outline::*;
pub use record::*;
pub use walk::*;

use super::{ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// So many paths that could not be read are named in the digest of one service; the rest is counted.
pub const UNREADABLE_MAX: usize = 200;

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

/// One declared path as found. No times, inode or size: they change without the configuration changing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileEntry {
    /// Absolute.
    pub path: String,
    pub kind: FileKind,
    /// Permission bits, `mode & 0o7777`; 0 for symlinks.
    pub mode: u32,
    /// Names, since managers can't know the ids; `#1234` for an id without a name.
    pub owner: String,
    pub group: String,
    /// Of a file's content; of a secret file, the HMAC with the node's digest key.
    pub sha256: Option<Sha256>,
    /// Of a symlink.
    pub target: Option<String>,
    /// No diff, no content in any output.
    #[serde(default)]
    pub secret: bool,
}

impl FileEntry {
    /// Its content is shown to nobody: it is called secret, or only its owner may read it.
    pub fn hidden(&self) -> bool {
        self.secret || self.kind == FileKind::File && only_owner(self.mode)
    }
}

/// Nobody else may read what has such a mode: its content is shown as little as that of a secret.
pub fn only_owner(mode: u32) -> bool {
    mode & 0o077 == 0
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDigest {
    pub root: Sha256,
    /// By path, in order.
    pub entries: Vec<FileEntry>,
    /// What could not be read, and why: the service is then unknown, never same. A path that is no UTF-8 is written as a
    /// shell's `$'...'`, so that two of them stay two and none is taken for a path of an entry.
    pub unreadable: BTreeMap<String, String>,
    /// How many paths could not be read besides those of `unreadable`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unreadable_more: u64,
}

impl ServiceDigest {
    /// From what was read, in any order, and what could not be: the first [`UNREADABLE_MAX`] of these are kept.
    pub fn new(mut entries: Vec<FileEntry>, mut unreadable: BTreeMap<String, String>) -> Self {
        entries.sort();
        let last = unreadable.keys().nth(UNREADABLE_MAX).cloned();
        let more = last.map_or(0, |from| unreadable.split_off(&from).len() as u64);
        Self { root: Self::root_of(&entries), entries, unreadable, unreadable_more: more }
    }

    /// What could not be read, as `path: why`, and at last how many more there are.
    pub fn unclear(&self) -> impl Iterator<Item = String> + '_ {
        let named = self.unreadable.iter().map(|(path, why)| format!("{path}: {why}"));
        let more = (self.unreadable_more > 0).then(|| format!("{} more can't be read", self.unreadable_more));
        named.chain(more)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDigest {
    /// Over (service name, service root), sorted by name.
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
