//! What configuration a node has, as hashes.

use super::{ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDigest {
    pub root: Sha256,
    /// By path, in order.
    pub entries: Vec<FileEntry>,
    /// What could not be read, and why: the service is then unknown, never same.
    pub unreadable: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDigest {
    /// Over (service name, service root), sorted by name.
    pub root: Sha256,
    pub services: BTreeMap<ServiceName, ServiceDigest>,
}
