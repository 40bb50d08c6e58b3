//! Takes the digest of a node's declared files, and watches their directories. For that it reads accounts, and what is mounted
//! where; both, questions with a deadline, the environment of a process and its mapped pages (`environment.rs`, `pages.rs`, about no
//! file but those in `/proc`) are here for `check` and `exec` too, which may import nothing else that is of the machine.
//!
//! Reads only: never follows a symlink that is itself declared or found, never crosses a mount below a declared directory, never
//! opens anything but regular files. A file server that is away is waited for once, a second long, and what lies on it is left
//! alone; one that goes away while it is read from, or is only about to be mounted, can hold a pass up (`mounts.rs`). What the
//! digest means, and what differs, is `model`'s.

mod cache;
mod content;
mod deadline;
mod environment;
mod expand;
mod mounts;
mod names;
mod pages;
mod read;
mod seen;
mod shown;
mod watch;

pub use cache::Cache;
pub use deadline::within;
pub use environment::environment;
pub use expand::secrets;
pub use mounts::{Mount, Servers, mounts};
pub use names::{Account, Names};
pub use pages::{Loaded, let_go, let_go_above};
pub use watch::{Event, WatchError, Watcher, directories, watch};

use crate::model::{Manifest, NodeDigest, NormalizeError, Normalizer, ServiceDigest, ServiceManifest};
use read::{How, Secret};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A larger file is reported as unreadable instead of being hashed.
pub const MAX_FILE: u64 = 16 << 20;

/// The digest of everything that `manifest` declares. `key` hashes the content of secret files (HMAC-SHA256).
///
/// Blocks while it reads. Files that `cache` knows unchanged are not read; a fresh cache makes a full pass. What can't be read is
/// listed per service in `unreadable`, never left out silently.
pub fn digest(manifest: &Manifest, key: &[u8; 32], cache: &mut Cache) -> NodeDigest {
    digest_beside(manifest, key, cache, &Servers::now())
}

/// The same for who asks `servers` for something else too, so that one that is away is waited for once.
pub fn digest_beside(manifest: &Manifest, key: &[u8; 32], cache: &mut Cache, servers: &Servers) -> NodeDigest {
    let names = Names::load();
    cache.begin(key);
    let mut services = BTreeMap::new();
    for service in &manifest.services {
        services.insert(service.name.clone(), service_digest(service, key, &names, servers, cache));
    }
    cache.end();
    NodeDigest { root: NodeDigest::root_of(&services), services }
}

fn service_digest(
    service: &ServiceManifest,
    key: &[u8; 32],
    names: &Names,
    servers: &Servers,
    cache: &mut Cache,
) -> ServiceDigest {
    let mut faults = BTreeMap::new();
    let secret = Secret::Globs(expand::secrets(&service.secret, &mut faults));
    let normalize = Normalizer::new(&service.normalize).unwrap_or_else(|error| {
        faults.insert("normalize".to_owned(), error.to_string());
        None
    });
    // Who can't tell what is secret reads nothing, and who can't tell which lines count knows no content.
    if let Some((what, why)) = faults.into_iter().next() {
        return ServiceDigest::new(Vec::new(), BTreeMap::from([("/".to_owned(), format!("{what}: {why}"))]));
    }
    let how = How { secret, key: Some(*key), normalize };
    let (entries, unreadable) = read::entries(expand::expand(service, servers), &how, names, cache);
    ServiceDigest::new(entries, unreadable)
}

/// What [`tree`] looks at, without a manifest.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Absolute; each as it is, and everything below those that are directories.
    pub paths: Vec<PathBuf>,
    /// Globs, as those of a service.
    pub exclude: Vec<String>,
    /// Regular expressions of lines that do not count.
    pub normalize: Vec<String>,
    /// For the content of files that only their owner may read; None: it is not read, and such a file has no hash.
    pub key: Option<[u8; 32]>,
}

/// Why a [`Tree`] can't be looked at; nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("`{0}` is no glob: {1}")]
    Glob(String, String),
    #[error("{} is named, and a glob of what is left out covers it", .0.display())]
    Excluded(PathBuf),
    #[error(transparent)]
    Normalize(NormalizeError),
}

/// The digest of some paths of this machine. Blocks while it reads every file. What can't be read is listed, never left out
/// silently.
pub fn tree(tree: &Tree) -> Result<ServiceDigest, TreeError> {
    let mut faults = BTreeMap::new();
    let exclude = expand::matcher(&tree.exclude, &mut faults);
    if let Some((glob, why)) = faults.into_iter().next() {
        return Err(TreeError::Glob(glob, why));
    }
    if let Some(path) = tree.paths.iter().find(|path| exclude.is_match(path)) {
        return Err(TreeError::Excluded(path.clone()));
    }
    let normalize = Normalizer::new(&tree.normalize).map_err(TreeError::Normalize)?;
    let how = How { secret: Secret::OwnerOnly, key: tree.key, normalize };
    let mut cache = Cache::default();
    let (entries, unreadable) =
        read::entries(expand::below(&tree.paths, &exclude, &Servers::now()), &how, &Names::load(), &mut cache);
    Ok(ServiceDigest::new(entries, unreadable))
}

#[cfg(test)]
mod tests;
