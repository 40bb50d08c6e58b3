//! Reads contents of files for a diff; the manager selects the paths. Reads regular files only, and
//! never files that the manifest calls secret or that only their owner may read.

use super::wire::{FETCH_FILES_MAX, FETCH_MAX, FetchedFile};
use globset::GlobSet;
use remoor_host::files;
use remoor_model::{NodeManifest, only_owner};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Decides which files may be fetched, by the manifest of the last examination.
pub(super) struct Fetcher {
    secret: GlobSet,
}

impl Fetcher {
    /// Err: a glob of the manifest is invalid, so nothing may be fetched.
    pub fn new(manifest: &NodeManifest) -> Result<Self, String> {
        let secret: Vec<String> = manifest.services.iter().flat_map(|service| service.secret.clone()).collect();
        let mut faults = BTreeMap::new();
        let secret = files::secret_matcher(&secret, &mut faults);
        match faults.into_iter().next() {
            Some((glob, why)) => Err(format!("{glob}: not a glob: {why}")),
            None => Ok(Self { secret }),
        }
    }

    /// Returns one answer per path, in order. Err if there are more than [`FETCH_FILES_MAX`] paths.
    pub fn fetch(&self, paths: &[String]) -> Result<Vec<FetchedFile>, String> {
        if paths.len() > FETCH_FILES_MAX {
            return Err(format!("{} files at once, more than {FETCH_FILES_MAX}", paths.len()));
        }
        Ok(paths.iter().map(|path| self.fetch_file(path)).collect())
    }

    fn fetch_file(&self, path: &str) -> FetchedFile {
        let (content, size, error) = match self.read(path) {
            Ok((content, size)) => (content, size, None),
            Err(why) => (Vec::new(), 0, Some(why)),
        };
        FetchedFile { path: path.to_owned(), content, size, error }
    }

    /// Reads at most [`FETCH_MAX`] bytes; also returns the whole size. A path is secret if it or
    /// its canonical path matches a secret glob, so a symbolic link cannot be used to read a
    /// secret.
    fn read(&self, path: &str) -> Result<(Vec<u8>, u64), String> {
        let real = fs::canonicalize(path).map_err(|e| e.to_string())?;
        if self.secret.is_match(path) || self.secret.is_match(&real) {
            return Err("secret".to_owned());
        }
        let file = open(path).map_err(|e| e.to_string())?;
        let meta = file.metadata().map_err(|e| e.to_string())?;
        if !meta.is_file() {
            return Err("not a regular file".to_owned());
        }
        if only_owner(meta.mode()) {
            return Err("only its owner may read it; its content is never shown".to_owned());
        }
        let mut content = Vec::new();
        file.take(FETCH_MAX as u64).read_to_end(&mut content).map_err(|e| e.to_string())?;
        Ok((content, meta.len()))
    }
}

/// Opens a file for reading. Does not follow a symbolic link as the last component, and does not
/// block on a FIFO without a writer.
fn open(path: &str) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::ServiceManifest;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_links_and_devices_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(temporary.path()).unwrap();
        let path = |name: &str| dir.join(name).display().to_string();
        fs::write(path("plain"), b"hello").unwrap();
        fs::write(path("key.pem"), b"private").unwrap();
        fs::write(path("large"), vec![b'x'; FETCH_MAX + 10]).unwrap();
        fs::write(path("private"), b"private").unwrap();
        for (name, mode) in [("plain", 0o644), ("large", 0o644), ("private", 0o600)] {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(path("keys")).unwrap();
        fs::write(path("keys/id"), b"private").unwrap();
        std::os::unix::fs::symlink(path("keys"), path("innocent")).unwrap();
        std::os::unix::fs::symlink(path("plain"), path("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        let secret = vec![path("*.pem"), path("keys")];
        let service = ServiceManifest { secret, ..ServiceManifest::default() };
        let fetcher = Fetcher::new(&NodeManifest { services: vec![service], ..NodeManifest::default() }).unwrap();
        let get = |name: &str| fetcher.fetch(&[path(name)]).unwrap().remove(0);

        assert_eq!(get("plain").content, b"hello");
        assert_eq!((get("large").content.len(), get("large").size), (FETCH_MAX, FETCH_MAX as u64 + 10));
        for secret in ["key.pem", "keys/id", "innocent/id"] {
            let file = get(secret);
            assert_eq!((file.content.len(), file.error.as_deref()), (0, Some("secret")), "{secret}");
        }
        let file = get("private");
        assert_eq!((file.content.len(), file.size), (0, 0), "only its owner may read it");
        assert!(file.error.is_some_and(|why| why.ends_with("content is never shown")));
        for other in ["link", "fifo", "keys", "gone"] {
            assert!(get(other).error.is_some() && get(other).content.is_empty(), "{other}");
        }
        assert!(fetcher.fetch(&vec![path("plain"); FETCH_FILES_MAX + 1]).is_err());
    }
}
