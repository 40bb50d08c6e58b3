//! Files on disk: atomic writes, the data directory with its lock and identity, content-addressed
//! blobs.
//!
//! This module does not know what the bytes mean. Files are replaced as a whole and are on the disk
//! when a call returns. A damaged file is an error that names it, or is renamed if the daemon can
//! do without it; it is never overwritten silently.

mod archives;
mod atomic;
mod blob;
mod boot;
mod damage;
mod data_dir;

pub use archives::{ARCHIVE_PREFIX, ArchivedLog, archived_logs};
pub use atomic::{atomic_write, sync_dir};
pub use blob::BlobStore;
pub use boot::boot_id;
pub use damage::{StoredFile, damaged_files, read_or_rename_damaged, rename_damaged};
pub use data_dir::{CLOSED, DATA_FORMAT, DataDir, FENCE, IDENTITY, Identity, LEFT};

use std::path::{Path, PathBuf};

/// The reason why a file could not be read or written. No variant leaves a half-written file in
/// place of a whole one.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The operating system returned an error. Retry after the cause is fixed.
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The content differs from the content that was written. An operator has to decide.
    #[error("{} is corrupted ({why})", path.display())]
    Corrupt { path: PathBuf, why: String },
    /// Another process uses the data directory.
    #[error("a second daemon on the same directory: {} is held by {holder}", path.display())]
    Held { path: PathBuf, holder: String },
    /// Other users may enter the directory and it contains foreign files, so its mode must not be
    /// changed.
    #[error("{} is accessible to other users and is not a remoor directory; choose another directory", .0.display())]
    Foreign(PathBuf),
    /// A later version of this program wrote the data directory.
    #[error("{} has format {found}, this program knows up to {known}: install the newer program", path.display())]
    TooNew { path: PathBuf, found: u32, known: u32 },
}

impl DiskError {
    /// Whether this error means that a file of this program is damaged. Files of the kernel
    /// (`/proc`) do not count.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { path, .. } if !path.starts_with("/proc"))
    }

    /// Adapter for `map_err`: the attempted action and its path.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// The error of the operating system, for callers whose own error names action and path.
    pub fn into_io(self) -> std::io::Error {
        match self {
            Self::Io { source, .. } => source,
            other => std::io::Error::other(other),
        }
    }
}
