//! Content-addressed files: digest trees, generations and run logs, named by the SHA-256 of their
//! bytes.
//!
//! The store does not know which blobs are referenced; its owner decides what to remove.

use super::{DiskError, atomic_write, sync_dir};
use remoor_model::Sha256;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A directory of blobs: `ab/cdef...`, with the first two hex digits as subdirectory. Calls block.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct BlobStore {
    dir: PathBuf,
}

impl BlobStore {
    /// Opens the store in `dir`, which is created if absent.
    pub fn new(dir: &Path) -> Result<Self, DiskError> {
        std::fs::create_dir_all(dir).map_err(DiskError::io("creating directory", dir))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Stores `bytes` and returns their hash. The bytes are on the disk when this function returns.
    /// If the blob exists already, only its modification time is set to now; a damaged copy is
    /// replaced.
    pub fn put(&self, bytes: &[u8]) -> Result<Sha256, DiskError> {
        let hash = Sha256::digest(bytes);
        let path = self.path(&hash);
        if std::fs::read(&path).is_ok_and(|present| present == bytes) {
            // Sets the modification time to now, so that `remove_unnamed` keeps the blob. If this
            // fails, the blob may have to be fetched again.
            let _ = std::fs::File::open(&path).and_then(|file| file.set_modified(std::time::SystemTime::now()));
            return Ok(hash);
        }
        let fan = self.dir.join(&hash.to_string()[..2]);
        match std::fs::create_dir(&fan) {
            Ok(()) => sync_dir(&self.dir)?,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(DiskError::io("creating directory", &fan)(e)),
        }
        atomic_write(&path, bytes, 0o600)?;
        Ok(hash)
    }

    /// The bytes of `hash`, verified. None if absent. A damaged blob is an error: fetch it again
    /// and `put` it.
    pub fn get(&self, hash: &Sha256) -> Result<Option<Vec<u8>>, DiskError> {
        let path = self.path(hash);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(DiskError::io("reading", &path)(e)),
        };
        let found = Sha256::digest(&bytes);
        if found != *hash {
            return Err(DiskError::Corrupt { path, why: format!("its content hashes to {}", found.short_hex()) });
        }
        Ok(Some(bytes))
    }

    /// Removes blobs that are not in `named` and were stored before the time `before`. Returns the
    /// number of removed blobs.
    pub fn remove_unnamed(&self, named: &BTreeSet<Sha256>, before: std::time::SystemTime) -> Result<usize, DiskError> {
        let mut removed = 0;
        for hash in self.list()?.into_iter().filter(|hash| !named.contains(hash)) {
            let path = self.path(&hash);
            if !std::fs::metadata(&path).and_then(|m| m.modified()).is_ok_and(|at| at < before) {
                continue;
            }
            std::fs::remove_file(&path).map_err(DiskError::io("removing", &path))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// All blobs, sorted. Skips files that are not blobs.
    fn list(&self) -> Result<Vec<Sha256>, DiskError> {
        let mut found = Vec::new();
        for fan in entries(&self.dir)? {
            let Some(prefix) = fan.file_name().and_then(|n| n.to_str()).filter(|n| n.len() == 2) else { continue };
            if !fan.is_dir() {
                continue;
            }
            for file in entries(&fan)? {
                let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
                found.extend(Sha256::parse(&format!("{prefix}{name}")));
            }
        }
        found.sort();
        Ok(found)
    }

    fn path(&self, hash: &Sha256) -> PathBuf {
        let name = hash.to_string();
        self.dir.join(&name[..2]).join(&name[2..])
    }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, DiskError> {
    std::fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
        .map_err(DiskError::io("listing", dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    #[test]
    fn stored_blobs_are_kept_while_named_or_young() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::new(dir.path()).unwrap();
        let mut hashes: Vec<_> = (0..20u8).map(|i| store.put(&[i; 100]).unwrap()).collect();
        assert_eq!(store.put(&[3; 100]).unwrap(), hashes[3]);
        std::fs::write(dir.path().join("ab-note"), "no blob").unwrap();
        assert_eq!(store.get(&hashes[7]).unwrap(), Some(vec![7; 100]));
        let (past, future) = (SystemTime::UNIX_EPOCH, SystemTime::now() + Duration::from_secs(60));
        assert_eq!(store.remove_unnamed(&BTreeSet::new(), past).unwrap(), 0, "all are young");
        let gone = hashes.remove(7);
        assert_eq!(store.remove_unnamed(&hashes.iter().copied().collect(), future).unwrap(), 1);
        assert_eq!(store.get(&gone).unwrap(), None);
        hashes.sort();
        assert_eq!(BlobStore::new(dir.path()).unwrap().list().unwrap(), hashes);
        let old = File::open(store.path(&hashes[0])).unwrap();
        old.set_modified(past).unwrap();
        let bytes = store.get(&hashes[0]).unwrap().unwrap();
        store.put(&bytes).unwrap();
        assert!(old.metadata().unwrap().modified().unwrap() > past, "what is stored again is young again");
    }

    #[test]
    fn a_damaged_blob_is_an_error_with_its_path_until_it_is_put_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::new(dir.path()).unwrap();
        let hash = store.put(b"content").unwrap();
        let path = store.path(&hash);
        std::fs::write(&path, b"Content").unwrap();
        let error = store.get(&hash).unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        store.put(b"content").unwrap();
        assert_eq!(store.get(&hash).unwrap().as_deref(), Some(&b"content"[..]));
    }
}
