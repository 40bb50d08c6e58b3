//! Takes the digest of a node's declared files, and watches their directories.
//!
//! Reads only: never follows a symlink that is itself declared or found, never crosses a mount below a declared directory, never
//! opens anything but regular files. What the digest means, and what differs, is `model`'s.

mod cache;
mod expand;
mod names;
mod read;
mod shown;
mod watch;

pub use cache::Cache;
pub use names::{Account, Names};
pub use watch::{Event, WatchError, Watcher, directories, watch};

use crate::model::{FileKind, Manifest, NodeDigest, ServiceDigest, ServiceManifest};
use shown::shown;
use std::collections::BTreeMap;

/// A larger file is reported as unreadable instead of being hashed.
pub const MAX_FILE: u64 = 16 << 20;

/// The digest of everything that `manifest` declares. `key` hashes the content of secret files (HMAC-SHA256).
///
/// Blocks while it reads. Files that `cache` knows unchanged are not read; a fresh cache makes a full pass. What can't be read is
/// listed per service in `unreadable`, never left out silently.
pub fn digest(manifest: &Manifest, key: &[u8; 32], cache: &mut Cache) -> NodeDigest {
    let names = Names::load();
    cache.begin(key);
    let mut services = BTreeMap::new();
    for service in &manifest.services {
        services.insert(service.name.clone(), service_digest(service, &names, cache));
    }
    cache.end();
    NodeDigest { root: NodeDigest::root_of(&services), services }
}

fn service_digest(service: &ServiceManifest, names: &Names, cache: &mut Cache) -> ServiceDigest {
    let mut expansion = expand::expand(service);
    let secret = expand::matcher(&service.secret, &mut expansion.unreadable);
    let mut entries = Vec::with_capacity(expansion.paths.len());
    for (path, declared) in &expansion.paths {
        match read::entry(path, secret.is_match(path), names, cache) {
            // Found a moment ago by a walk and gone since: as if the walk had come later.
            Ok(entry) if entry.kind == FileKind::Absent && !declared => {}
            Ok(entry) => entries.push(entry),
            Err(why) => {
                expansion.unreadable.insert(shown(path), why);
            }
        }
    }
    ServiceDigest::new(entries, expansion.unreadable)
}

#[cfg(test)]
mod tests;
