//! Files that only their owner may read: keys and credentials. They are written atomically.

use super::identity::IdentityError;
use remoor_host::disk::atomic_write;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Maximum size of a key or credentials file, in bytes. remoor writes much smaller files.
const SIZE_MAX: u64 = 1 << 20;

/// Writes `bytes` to `path` with mode 0600. A missing directory is created with mode 0700. After a
/// crash the file has either its complete old content or the complete new one.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    let failed = |source| IdentityError::File { action: "write", path: path.into(), source };
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    atomic_write(path, bytes, 0o600).map_err(|e| failed(e.into_io()))
}

/// Reads `path` as text. The result is an error if others than the owner may use the file.
pub fn read(path: &Path) -> Result<String, IdentityError> {
    let failed = |source| IdentityError::File { action: "read", path: path.into(), source };
    let damaged = |what: String| IdentityError::Damaged { path: path.into(), what };
    let file = std::fs::File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Open { path: path.into(), mode });
    }
    if about.len() > SIZE_MAX {
        return Err(damaged(format!("it is {} bytes long, more than {SIZE_MAX}", about.len())));
    }
    let mut text = String::new();
    file.take(SIZE_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_others_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("0640") && error.contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    fn errors_name_the_file() {
        let error = write(Path::new("/proc/no-such-dir/key"), b"").unwrap_err().to_string();
        assert_eq!(error, "can't write /proc/no-such-dir/key");
    }
}
