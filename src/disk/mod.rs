//! What is kept on disk and how: atomic files, the data directory with its lock and identity, content-addressed blobs.
//!
//! Nothing here knows what the bytes mean. Files are replaced as a whole and are on disk when a call returns; a damaged
//! file is an error that names it, or is put aside where one can do without it; it is never reset.

mod atomic;
mod blob;
mod boot;
mod damage;
mod data_dir;

pub use atomic::{atomic_write, sync_dir};
pub use blob::BlobStore;
pub use boot::boot_id;
pub use damage::{Found, damaged, read_or_set_aside, set_aside};
pub use data_dir::{AgentLock, CLOSED, DATA_FORMAT, DataDir, FENCE, IDENTITY, Identity, LEFT};

use std::path::{Path, PathBuf};

/// Why something on disk could not be read or written. No variant leaves a half-written file in place of a whole one.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The operating system said no; may be tried again once the cause is gone.
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The content is not what was written; a person has to decide.
    #[error("{} is corrupted ({why})", path.display())]
    Corrupt { path: PathBuf, why: String },
    /// Another process works on this directory.
    #[error("a second daemon on the same directory: {} is held by {holder}", path.display())]
    Held { path: PathBuf, holder: String },
    /// Others may enter it, and what is in it is not of this program: it is not ours to shut.
    #[error("{} is open to others and is no directory of remoor; name one of its own", .0.display())]
    Foreign(PathBuf),
    /// Written by a later version of this program.
    #[error("{} has format {found}, this program knows up to {known}: install the newer program", path.display())]
    TooNew { path: PathBuf, found: u32, known: u32 },
}

impl DiskError {
    /// A file of this program is not what was written; what the kernel says of itself (`/proc`) is none.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { path, .. } if !path.starts_with("/proc"))
    }

    /// Adapter for `map_err`: what was attempted, and on which path.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// What the operating system said, for callers whose own error names action and path.
    pub fn into_io(self) -> std::io::Error {
        match self {
            Self::Io { source, .. } => source,
            other => std::io::Error::other(other),
        }
    }
}
