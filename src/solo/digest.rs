//! The digest of paths of this machine: taken, kept as JSON, and compared with what is there later.
//!
//! The content of a file that only its owner may read stands in it as an HMAC, or not at all where there is no key.

mod compare;
mod key;

pub use compare::{Attribute, Comparison, PathChange, What, compare};

use super::bounded::{Versioned, bounded, regular};
use crate::files::{self, Tree, TreeError};
use crate::model::{FileEntry, FileKind, ServiceDigest, Sha256};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Of the JSON; another version is refused.
const VERSION: u32 = 1;
/// Largest JSON that is read, in bytes: some 500,000 entries.
const FILE_MAX: u64 = 256 << 20;

/// What a digest is taken of, and how.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Each with everything below it; none: the current directory.
    pub paths: Vec<PathBuf>,
    /// Globs of what is left out.
    pub exclude: Vec<String>,
    /// Regular expressions of lines that do not count.
    pub normalize: Vec<String>,
    /// File with the key for the content of files that only their owner may read; made where it is missing.
    pub key: Option<PathBuf>,
}

/// A digest as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    pub version: u32,
    /// Of all entries.
    pub root: Sha256,
    /// Absolute.
    pub paths: Vec<String>,
    pub exclude: Vec<String>,
    pub normalize: Vec<String>,
    /// Which key it was, not the key; None: secret files have no hash.
    pub key: Option<String>,
    /// By path, in order.
    pub entries: Vec<FileEntry>,
    /// What could not be read, and why; see [`ServiceDigest`].
    pub unreadable: BTreeMap<String, String>,
    pub unreadable_more: u64,
    /// Hash of everything else, by which a file that is not as it was kept is known. It stops nobody who makes it anew.
    pub seal: Sha256,
}

/// Why there is no digest, or none to compare with. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    #[error("{} can't be named: its name is not UTF-8", .0.display())]
    Name(PathBuf),
    #[error("{} can't be found out", .0.display())]
    Place(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{} can't be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("{} is no digest: {why}", path.display())]
    Invalid { path: PathBuf, why: String },
    #[error("the key {} can't be used: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error("{0} is not in the digest that it is to be compared with, which is of {1}")]
    Outside(String, String),
}

impl Taken {
    /// Reads every file of `request`. Blocks; what can't be read is listed.
    pub fn of(request: &Request) -> Result<Self, DigestError> {
        let here = [PathBuf::from(".")];
        let paths = if request.paths.is_empty() { &here[..] } else { &request.paths };
        let paths = paths.iter().map(|path| absolute(path)).collect::<Result<Vec<_>, _>>()?;
        let key = request.key.as_deref().map(key::read_or_make).transpose()?;
        let (exclude, normalize) = (request.exclude.clone(), request.normalize.clone());
        let tree = Tree { paths: paths.iter().map(PathBuf::from).collect(), exclude, normalize, key };
        let ServiceDigest { root, entries, unreadable, unreadable_more } = files::tree(&tree)?;
        let (version, key) = (VERSION, key.as_ref().map(key::name));
        let Tree { exclude, normalize, .. } = tree;
        let seal = Sha256::default();
        let mut taken =
            Self { version, root, paths, exclude, normalize, key, entries, unreadable, unreadable_more, seal };
        taken.seal = taken.sealed();
        Ok(taken)
    }

    /// The seal of what is in it. The root is that of the entries, but for which of them are secret.
    fn sealed(&self) -> Sha256 {
        let secret: Vec<&str> = self.entries.iter().filter(|e| e.secret).map(|e| e.path.as_str()).collect();
        let what = (self.version, self.root, &self.paths, &self.exclude, &self.normalize, &self.key);
        Sha256::of(json!([what, self.unreadable, self.unreadable_more, secret]).to_string().as_bytes())
    }

    /// What `path` keeps (`-`: standard input), if it is as it was kept: its root is that of its entries, and its seal that of
    /// everything.
    pub fn read(path: &Path) -> Result<Self, DigestError> {
        let failed = |error| DigestError::Read(path.to_owned(), error);
        let bytes = if path == Path::new("-") {
            bounded(io::stdin().lock(), FILE_MAX)
        } else {
            regular(path, OFlags::empty()).and_then(|file| bounded(file, FILE_MAX))
        };
        let invalid = |why: String| DigestError::Invalid { path: path.to_owned(), why };
        let bytes = bytes.map_err(failed)?;
        // Not in the words of the reader, which repeat what stands there: it may be the key.
        let strange = |e: serde_json::Error| {
            invalid(format!("line {}, column {} is not as in an answer of -o json", e.line(), e.column()))
        };
        let versioned: Versioned = serde_json::from_slice(&bytes).map_err(strange)?;
        if let Some(why) = versioned.other(VERSION) {
            return Err(invalid(format!("{why}: take it anew")));
        }
        let taken: Self = serde_json::from_slice(&bytes).map_err(strange)?;
        if !taken.entries.is_sorted_by(|a, b| a.path < b.path) {
            return Err(invalid("its entries are not in order".to_owned()));
        }
        if ServiceDigest::root_of(&taken.entries) != taken.root {
            return Err(invalid("its root is not that of its entries, so it was changed".to_owned()));
        }
        if taken.sealed() != taken.seal {
            return Err(invalid("its seal is not that of what stands in it, so it was changed".to_owned()));
        }
        Ok(taken)
    }

    /// How to look again at what it is of; `paths`: only at these, which must be among what it is of.
    pub fn again(&self, paths: &[PathBuf], key: Option<PathBuf>) -> Result<Request, DigestError> {
        // A new key would have nothing to be compared with.
        if let Some(path) = key.as_ref().filter(|path| !path.exists()) {
            let why = "there is none, and only the one of the earlier digest is of use".to_owned();
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
        Ok(Request { paths, exclude: self.exclude.clone(), normalize: self.normalize.clone(), key })
    }

    /// What could not be read, one line each.
    pub fn unclear(&self) -> Vec<String> {
        let (unreadable, unreadable_more) = (self.unreadable.clone(), self.unreadable_more);
        ServiceDigest { unreadable, unreadable_more, ..ServiceDigest::default() }.unclear().collect()
    }

    /// Paths that were asked for by name, and where there is nothing.
    pub fn absent(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|e| e.kind == FileKind::Absent).map(|e| e.path.as_str())
    }

    /// Files whose content was left unread for want of a key.
    pub fn keyless(&self) -> usize {
        self.entries.iter().filter(|e| e.secret && e.kind == FileKind::File && e.sha256.is_none()).count()
    }
}

/// Without `.` and `..`; links on the way are followed only where a `..` stands in it.
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
