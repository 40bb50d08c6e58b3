//! Takes the digest of a node's declared files and watches their directories. For these tasks it
//! reads accounts and the mount table.
//!
//! The crates `check` and `exec` use the accounts, the mounts and the queries with a deadline too.
//! They also use the environment of a process (`environment.rs`) and its mapped pages
//! (`trim_memory.rs`), which are read from `/proc`.
//!
//! This module only reads. It never follows a symbolic link that is declared or found, never
//! crosses a mount below a declared directory, and opens only regular files. It waits once, for one
//! second, for a file server that does not answer, and then skips the files of that server. A
//! server that stops answering during a read, or that is about to be mounted, can still block the
//! digest (`mounts.rs`).
//!
//! The crate `model` defines the digest and its differences.

mod cache;
mod content;
mod deadline;
mod display_path;
mod environment;
mod expand;
mod mounts;
mod names;
mod path_metadata;
mod read;
mod trim_memory;
mod watch;

pub use cache::Cache;
pub use deadline::run_with_deadline;
pub use environment::environment;
pub use expand::secret_matcher;
pub use mounts::{Mount, Servers, mounts};
pub use names::{Account, Names};
pub use trim_memory::{LoadedFiles, StepTrim, trim_memory};
pub use watch::{FileEvent, WatchError, Watcher, directories, watch};

use read::{ReadOptions, SecretRule};
use remoor_model::{NodeDigest, NodeManifest, NormalizeError, Normalizer, ServiceDigest, ServiceManifest};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maximum size of a file in bytes. A larger file is reported as unreadable and not hashed.
pub const MAX_FILE: u64 = 16 << 20;

/// The digest of everything that `manifest` declares. The content of secret files is hashed with
/// `key` (HMAC-SHA256).
///
/// Blocks while it reads. Files that `cache` knows to be unchanged are not read; with an empty
/// cache, every file is read. Paths that cannot be read are listed per service in `unreadable`,
/// never omitted silently.
pub fn digest(manifest: &NodeManifest, key: &[u8; 32], cache: &mut Cache) -> NodeDigest {
    digest_with_servers(manifest, key, cache, &Servers::now())
}

/// Like [`digest`], for a caller that also uses `servers` elsewhere, so that the caller waits only
/// once for each silent server.
pub fn digest_with_servers(
    manifest: &NodeManifest,
    key: &[u8; 32],
    cache: &mut Cache,
    servers: &Servers,
) -> NodeDigest {
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
    let secret = SecretRule::Globs(expand::secret_matcher(&service.secret, &mut faults));
    let normalize = Normalizer::new(&service.normalize).unwrap_or_else(|error| {
        faults.insert("normalize".to_owned(), error.to_string());
        None
    });
    // If the secret globs are invalid, no file may be read. If the normalize patterns are invalid,
    // no content can be hashed.
    if let Some((what, why)) = faults.into_iter().next() {
        return ServiceDigest::new(Vec::new(), BTreeMap::from([("/".to_owned(), format!("{what}: {why}"))]));
    }
    let how = ReadOptions { secret, key: Some(*key), normalize };
    let (entries, unreadable) = read::entries(expand::expand(service, servers), &how, names, cache);
    ServiceDigest::new(entries, unreadable)
}

/// Input of [`tree_digest`], without a manifest.
#[derive(Debug, Clone, Default)]
pub struct TreeRequest {
    /// Absolute paths without globs, each with everything below it if it is a directory.
    pub paths: Vec<PathBuf>,
    /// Globs of paths that are left out, with the syntax of `exclude` of a service.
    pub exclude: Vec<String>,
    /// Regular expressions; lines that match one of them are ignored when the content is hashed.
    pub normalize: Vec<String>,
    /// Key for the content of files that only their owner may read. None: their content is not
    /// read, and they have no hash.
    pub key: Option<[u8; 32]>,
}

/// The reason why a [`TreeRequest`] is invalid. Nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("`{0}` is not a valid glob: {1}")]
    Glob(String, String),
    #[error("{} is named, but an exclude glob covers it", .0.display())]
    Excluded(PathBuf),
    #[error(transparent)]
    Normalize(NormalizeError),
}

/// The digest of some paths of this machine. Blocks while it reads every file. Paths that cannot be
/// read are listed, never omitted silently.
pub fn tree_digest(tree: &TreeRequest) -> Result<ServiceDigest, TreeError> {
    let mut faults = BTreeMap::new();
    let exclude = expand::matcher(&tree.exclude, &mut faults);
    if let Some((glob, why)) = faults.into_iter().next() {
        return Err(TreeError::Glob(glob, why));
    }
    if let Some(path) = tree.paths.iter().find(|path| exclude.is_match(path)) {
        return Err(TreeError::Excluded(path.clone()));
    }
    let normalize = Normalizer::new(&tree.normalize).map_err(TreeError::Normalize)?;
    let how = ReadOptions { secret: SecretRule::OwnerOnly, key: tree.key, normalize };
    let mut cache = Cache::default();
    let (entries, unreadable) =
        read::entries(expand::expand_paths(&tree.paths, &exclude, &Servers::now()), &how, &Names::load(), &mut cache);
    Ok(ServiceDigest::new(entries, unreadable))
}

#[cfg(test)]
mod tests;
