//! Small files that must survive a power cut, and the directories they are in.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes `dir` with mode 0700 if it is missing. An existing one keeps its mode.
pub(super) fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Replaces `path` by `bytes`, mode 0600: after Ok the new content survives a power cut, after an error the old
/// content stands.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(dir) = path.parent() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path without a directory"));
    };
    let temporary = path.with_extension(format!("tmp.{}", std::process::id()));
    let written = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(e) = written {
        let _nothing_left_behind = fs::remove_file(&temporary);
        return Err(e);
    }
    File::open(dir)?.sync_all()
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
