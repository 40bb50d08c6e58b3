//! The digest of paths on this machine. It is computed, stored as JSON, and later compared with the
//! current state.
//!
//! A secret file, which only its owner may read, has an HMAC of its content; without a key it has
//! no hash.

mod compare;
mod key;

pub use compare::{Attribute, DigestComparison, PathChange, PathChangeKind, compare};

use super::bounded_read::{Versioned, read_bounded, regular};
use remoor_host::files::{self, TreeError, TreeRequest};
use remoor_model::{FileEntry, FileKind, ServiceDigest, Sha256};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Version of the JSON of a stored digest. Other versions are rejected.
const VERSION: u32 = 1;
/// Maximum size of the JSON of a stored digest, in bytes: about 500,000 digest entries.
const FILE_MAX: u64 = 256 << 20;

/// The paths and options of a digest.
#[derive(Debug, Clone, Default)]
pub struct DigestRequest {
    /// The paths; each stands for everything below it too. Empty: the current directory.
    pub paths: Vec<PathBuf>,
    /// Globs of excluded paths.
    pub exclude: Vec<String>,
    /// Regular expressions of lines that are ignored when contents are hashed.
    pub normalize: Vec<String>,
    /// File with the key for the HMAC of secret files. The file is created if it does not exist.
    pub key: Option<PathBuf>,
}

/// A digest of paths, in the form in which it is stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredDigest {
    pub version: u32,
    /// Root hash of all entries of the digest.
    pub root: Sha256,
    /// The absolute paths of the request for which the digest was made.
    pub paths: Vec<String>,
    pub exclude: Vec<String>,
    pub normalize: Vec<String>,
    /// Fingerprint of the key with which the contents of secret files were hashed. None: there was
    /// no key, so secret files have no hash.
    pub key: Option<String>,
    /// The entries of the digest, one for each path, sorted by path.
    pub entries: Vec<FileEntry>,
    /// The paths that could not be read, with the reasons; see [`ServiceDigest`].
    pub unreadable: BTreeMap<String, String>,
    pub unreadable_more: u64,
    /// Hash of all other fields, to detect accidental changes. The seal does not stop an attacker,
    /// who can compute it again.
    pub seal: Sha256,
}

/// The reason why no digest was made, or why no digest could be compared. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    #[error("{} can't be used: its name is not UTF-8", .0.display())]
    Name(PathBuf),
    #[error("the absolute path of {} can't be determined", .0.display())]
    Place(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{} can't be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("{} is not a valid digest: {why}", path.display())]
    Invalid { path: PathBuf, why: String },
    #[error("the key {} can't be used: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error("{0} is not in the earlier digest, which covers {1}")]
    Outside(String, String),
}

impl StoredDigest {
    /// Reads every file of `request`. Unreadable files are listed in the digest. This function
    /// blocks.
    pub fn compute(request: &DigestRequest) -> Result<Self, DigestError> {
        let here = [PathBuf::from(".")];
        let paths = if request.paths.is_empty() { &here[..] } else { &request.paths };
        let paths = paths.iter().map(|path| absolute(path)).collect::<Result<Vec<_>, _>>()?;
        let key = request.key.as_deref().map(key::read_or_make).transpose()?;
        let (exclude, normalize) = (request.exclude.clone(), request.normalize.clone());
        let tree = TreeRequest { paths: paths.iter().map(PathBuf::from).collect(), exclude, normalize, key };
        let ServiceDigest { root, entries, unreadable, unreadable_more } = files::tree_digest(&tree)?;
        let (version, key) = (VERSION, key.as_ref().map(key::name));
        let TreeRequest { exclude, normalize, .. } = tree;
        let seal = Sha256::default();
        let mut taken =
            Self { version, root, paths, exclude, normalize, key, entries, unreadable, unreadable_more, seal };
        taken.seal = taken.compute_seal();
        Ok(taken)
    }

    /// Computes the seal. It includes the paths of the secret entries, because the root hash does
    /// not cover whether an entry is secret.
    fn compute_seal(&self) -> Sha256 {
        let secret: Vec<&str> = self.entries.iter().filter(|e| e.secret).map(|e| e.path.as_str()).collect();
        let what = (self.version, self.root, &self.paths, &self.exclude, &self.normalize, &self.key);
        Sha256::digest(json!([what, self.unreadable, self.unreadable_more, secret]).to_string().as_bytes())
    }

    /// Reads the digest in `path` (`-`: standard input). Fails if the root hash does not match the
    /// entries of the digest, or if the seal does not match the content.
    pub fn read(path: &Path) -> Result<Self, DigestError> {
        let failed = |error| DigestError::Read(path.to_owned(), error);
        let bytes = if path == Path::new("-") {
            read_bounded(io::stdin().lock(), FILE_MAX)
        } else {
            regular(path, OFlags::empty()).and_then(|file| read_bounded(file, FILE_MAX))
        };
        let invalid = |why: String| DigestError::Invalid { path: path.to_owned(), why };
        let bytes = bytes.map_err(failed)?;
        // The parser's message is not used, because it quotes the text of the file. The file may be
        // a key file.
        let strange = |e: serde_json::Error| {
            invalid(format!("line {}, column {} does not match the output of -o json", e.line(), e.column()))
        };
        let versioned: Versioned = serde_json::from_slice(&bytes).map_err(strange)?;
        if let Some(why) = versioned.version_mismatch(VERSION) {
            return Err(invalid(format!("{why}: create it again")));
        }
        let taken: Self = serde_json::from_slice(&bytes).map_err(strange)?;
        if !taken.entries.is_sorted_by(|a, b| a.path < b.path) {
            return Err(invalid("its entries are not in order".to_owned()));
        }
        if ServiceDigest::root_of(&taken.entries) != taken.root {
            return Err(invalid("its root does not match its entries, so it was modified".to_owned()));
        }
        if taken.compute_seal() != taken.seal {
            return Err(invalid("its seal does not match its content, so it was modified".to_owned()));
        }
        Ok(taken)
    }

    /// The request for a later digest of the same paths. If `paths` is not empty, the request is
    /// only for them; each must be inside the paths of the digest.
    pub fn repeat_request(&self, paths: &[PathBuf], key: Option<PathBuf>) -> Result<DigestRequest, DigestError> {
        // A key that does not exist yet would be created, and a new key would make the comparison
        // impossible.
        if let Some(path) = key.as_ref().filter(|path| !path.exists()) {
            let why = "it does not exist, and only the key of the earlier digest can be used".to_owned();
            return Err(DigestError::Key { path: path.clone(), why });
        }
        let mut inner = Vec::new();
        for path in paths {
            let path = absolute(path)?;
            if !self.paths.iter().any(|outer| Path::new(&path).starts_with(outer)) {
                return Err(DigestError::Outside(path, self.paths.join(", ")));
            }
            inner.push(PathBuf::from(path));
        }
        let paths = if inner.is_empty() { self.paths.iter().map(PathBuf::from).collect() } else { inner };
        Ok(DigestRequest { paths, exclude: self.exclude.clone(), normalize: self.normalize.clone(), key })
    }

    /// The paths that could not be read, one line each.
    pub fn unclear(&self) -> Vec<String> {
        let (unreadable, unreadable_more) = (self.unreadable.clone(), self.unreadable_more);
        ServiceDigest { unreadable, unreadable_more, ..ServiceDigest::default() }.describe_unreadable().collect()
    }

    /// Requested paths that do not exist.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|e| e.kind == FileKind::Absent).map(|e| e.path.as_str())
    }

    /// Number of secret files whose content was not read because no key was given.
    pub fn keyless(&self) -> usize {
        self.entries.iter().filter(|e| e.secret && e.kind == FileKind::File && e.sha256.is_none()).count()
    }
}

/// The absolute path, without `.` and `..`. Symlinks are resolved only if the path contains `..`.
fn absolute(path: &Path) -> Result<String, DigestError> {
    let up = path.components().any(|part| part == Component::ParentDir);
    let whole = match (path.parent(), path.file_name()) {
        _ if !up => std::path::absolute(path),
        (Some(dir), Some(name)) => dir.canonicalize().map(|dir| dir.join(name)),
        _ => path.canonicalize(),
    };
    let whole = whole.map_err(|e| DigestError::Place(path.to_owned(), e))?;
    let whole: PathBuf = whole.components().collect();
    whole.into_os_string().into_string().map_err(|name| DigestError::Name(name.into()))
}

#[cfg(test)]
mod tests;
