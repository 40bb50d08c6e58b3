//! The executor's binary: this program itself, found on a node under the hash of its content.

use crate::disk::{self, DiskError};
use crate::model::Sha256;
use std::path::Path;
use std::sync::OnceLock;

/// Older ones beyond this many are removed.
const KEPT: usize = 2;

/// The running program and its hash; read once.
pub(super) fn own() -> Result<&'static (Vec<u8>, Sha256), String> {
    static OWN: OnceLock<Result<(Vec<u8>, Sha256), String>> = OnceLock::new();
    let read = || {
        let bytes = std::fs::read("/proc/self/exe").map_err(|e| format!("the own program can't be read: {e}"))?;
        let hash = Sha256::of(&bytes);
        Ok((bytes, hash))
    };
    OWN.get_or_init(read).as_ref().map_err(Clone::clone)
}

/// The running program and its hash, for an installation.
pub fn own_binary() -> Result<(&'static [u8], Sha256), String> {
    own().map(|(bytes, hash)| (bytes.as_slice(), *hash))
}

/// Name of a binary in a node's `bin` directory.
pub(super) fn name(hash: &Sha256) -> String {
    format!("remoor-{hash}")
}

/// Puts the running program into `dir` under its hash, mode 0755, where managers of the same version look for it.
pub fn keep_binary(dir: &Path) -> Result<(), DiskError> {
    let (bytes, hash) =
        own().map_err(|text| DiskError::io("reading", Path::new("/proc/self/exe"))(std::io::Error::other(text)))?;
    std::fs::create_dir_all(dir).map_err(DiskError::io("making", dir))?;
    let path = dir.join(name(hash));
    if !path.exists() {
        disk::atomic_write(&path, bytes, 0o755)?;
    }
    let mut others: Vec<_> = std::fs::read_dir(dir)
        .map_err(DiskError::io("reading", dir))?
        .flatten()
        .filter(|e| e.path() != path)
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
        .collect();
    others.sort();
    for (_, old) in others.iter().take(others.len().saturating_sub(KEPT - 1)) {
        let _ = std::fs::remove_file(old); // tried again at the next start
    }
    Ok(())
}
