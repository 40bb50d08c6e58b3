//! Metadata of a path, without its content.

use super::Names;
use super::cache::Stamp;
use remoor_model::{FileEntry, FileKind};
use std::fs::{FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The metadata of a path at the time when it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathMetadata {
    pub kind: FileKind,
    pub mode: u32,
    uid: u32,
    gid: u32,
    pub stamp: Stamp,
}

impl PathMetadata {
    pub(super) fn from_metadata(meta: &Metadata) -> Self {
        let kind = kind_of(meta.file_type());
        let mode = if kind == FileKind::Symlink { 0 } else { meta.mode() & 0o7777 };
        Self { kind, mode, uid: meta.uid(), gid: meta.gid(), stamp: Stamp::from_metadata(meta) }
    }

    /// Makes the digest entry of `path`. Its hash and its link target are not set yet.
    pub(super) fn entry(&self, path: &str, secret: bool, names: &Names) -> FileEntry {
        FileEntry {
            path: path.to_owned(),
            kind: self.kind,
            mode: self.mode,
            owner: names.owner(self.uid),
            group: names.group(self.gid),
            sha256: None,
            target: None,
            secret,
        }
    }
}

fn kind_of(kind: FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Dir
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else if kind.is_socket() {
        FileKind::Socket
    } else if kind.is_fifo() {
        FileKind::Fifo
    } else if kind.is_char_device() {
        FileKind::CharDevice
    } else {
        FileKind::BlockDevice
    }
}
