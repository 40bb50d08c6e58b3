//! Replaces a file so that a crash leaves either the old or the new content. Does not append.

use super::DiskError;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Replaces `path` by `bytes` with permission bits `mode` (the umask does not apply).
///
/// After Ok the content is on the disk. After an error the old file is unchanged, unless only the
/// last step failed, which makes the new name durable. A temporary file (`.name.*.tmp`) can be left
/// in the same directory only by a crash, or if it cannot be removed after an error.
pub fn atomic_write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let temporary = temporary_name(dir, path)?;
    let written = write_new(&temporary, bytes, mode)
        .and_then(|()| std::fs::rename(&temporary, path).map_err(DiskError::io("renaming to", path)));
    if let Err(error) = written {
        // The first error is returned; at worst a temporary file is left.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dir(dir)
}

/// Makes the names in `dir` durable. Without this call, a power cut may undo a rename or a new
/// file.
pub fn sync_dir(dir: &Path) -> Result<(), DiskError> {
    File::open(dir).and_then(|file| file.sync_all()).map_err(DiskError::io("syncing directory", dir))
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), DiskError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode & 0o600)
        .open(path)
        .map_err(DiskError::io("creating", path))?;
    file.write_all(bytes).map_err(DiskError::io("writing", path))?;
    file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(DiskError::io("setting mode of", path))?;
    file.sync_all().map_err(DiskError::io("syncing", path))
}

fn temporary_name(dir: &Path, path: &Path) -> Result<PathBuf, DiskError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|e| DiskError::io("drawing a temporary name for", path)(std::io::Error::other(e.to_string())))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(dir.join(format!(".{name}.{}.tmp", hex::encode(random))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn replaces_content_and_mode_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        atomic_write(&path, b"one", 0o644).unwrap();
        atomic_write(&path, b"two", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(names(dir.path()), ["key"]);
    }

    #[test]
    fn a_failed_write_keeps_the_old_state_and_removes_its_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        std::fs::create_dir(&path).unwrap();
        let error = atomic_write(&path, b"one", 0o644).unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(names(dir.path()), ["taken"]);
    }
}
