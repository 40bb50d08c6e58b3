//! Files that a daemon can do without but must not lose silently. A file that cannot be parsed is
//! renamed to `NAME.damaged` and reported until an operator removes it. Files without which the
//! daemon cannot start are read elsewhere, because their damage is an error.

use super::{DiskError, sync_dir};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

const SUFFIX: &str = ".damaged";
/// Maximum number of names that `damaged_files` returns.
const NAMES_MAX: usize = 16;

/// Content of a file that may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredFile<T> {
    Missing,
    Whole(T),
    /// The file could not be parsed and was renamed to this path.
    Damaged(PathBuf),
}

impl<T: Default> StoredFile<T> {
    /// The content, or the default if there is none.
    pub fn or_default(self) -> T {
        match self {
            StoredFile::Whole(value) => value,
            StoredFile::Missing | StoredFile::Damaged(_) => T::default(),
        }
    }
}

/// Reads a JSON file. A file that is not valid JSON, or a directory, is renamed and logged as an
/// error. Err: the file could not be read now, or could not be renamed; it is unchanged.
pub fn read_or_rename_damaged<T: DeserializeOwned>(path: &Path) -> Result<StoredFile<T>, DiskError> {
    let why = match std::fs::read(path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => return Ok(StoredFile::Whole(value)),
            Err(error) => error.to_string(),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(StoredFile::Missing),
        Err(e) if e.kind() == std::io::ErrorKind::IsADirectory => e.to_string(),
        // The cause may be a missing permission, too many open files or a failing disk. The content
        // itself may be intact.
        Err(e) => return Err(DiskError::io("reading", path)(e)),
    };
    rename_damaged(path, &why).map(StoredFile::Damaged)
}

/// Renames `path` to `NAME.damaged`, replaces an earlier file of that name, and logs the damage.
pub fn rename_damaged(path: &Path, why: &str) -> Result<PathBuf, DiskError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(SUFFIX);
    let aside = path.with_file_name(name);
    std::fs::rename(path, &aside).map_err(DiskError::io("renaming damaged", path))?;
    sync_dir(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    tracing::error!(file = %path.display(), kept = %aside.display(), %why, "a damaged file was renamed; remoor starts a new one");
    Ok(aside)
}

/// Names of the damaged files in `dir`, sorted.
pub fn damaged_files(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(SUFFIX)).collect();
    names.sort();
    names.truncate(NAMES_MAX);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_renamed_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        assert_eq!(read_or_rename_damaged::<u32>(&path).unwrap(), StoredFile::Missing);
        std::fs::write(&path, "7").unwrap();
        assert_eq!(read_or_rename_damaged::<u32>(&path).unwrap(), StoredFile::Whole(7));
        assert!(damaged_files(dir.path()).is_empty());
        for bad in ["{ half", ""] {
            std::fs::write(&path, bad).unwrap();
            let aside = dir.path().join("a.json.damaged");
            assert_eq!(read_or_rename_damaged::<u32>(&path).unwrap(), StoredFile::Damaged(aside.clone()));
            assert_eq!((std::fs::read_to_string(&aside).unwrap().as_str(), path.exists()), (bad, false));
        }
        assert_eq!(damaged_files(dir.path()), ["a.json.damaged"]);
        std::fs::create_dir(dir.path().join("b.json")).unwrap();
        assert!(matches!(read_or_rename_damaged::<u32>(&dir.path().join("b.json")).unwrap(), StoredFile::Damaged(_)));
    }

    #[test]
    fn a_temporarily_unreadable_file_is_not_renamed() {
        let dir = tempfile::tempdir().unwrap();
        // Opening a link to itself fails for every user (ELOOP); EACCES would not fail for root.
        let path = dir.path().join("a.json");
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let error = read_or_rename_damaged::<u32>(&path).unwrap_err();
        assert!(matches!(error, DiskError::Io { .. }), "{error}");
        assert!(path.is_symlink() && damaged_files(dir.path()).is_empty());
    }
}
