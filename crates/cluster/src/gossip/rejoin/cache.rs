//! The last known addresses of nodes, on disk. With them a node finds the cluster again while all
//! managers are down. Nothing here uses the network.

use remoor_host::disk::atomic_write;
use remoor_model::NodeName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Maximum addresses kept for one node.
pub const ADDRS_MAX: usize = 4;
/// Maximum size of the cache file, in bytes. remoor never writes a larger file.
const FILE_MAX: u64 = 16 << 20;
const VERSION: u32 = 1;

/// Known nodes with their addresses, in the order in which the addresses are tried.
pub type Addresses = BTreeMap<NodeName, Vec<SocketAddr>>;

#[derive(Serialize, Deserialize)]
struct Form {
    version: u32,
    nodes: Addresses,
}

/// The reason why the cache could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The file cannot be read, but its content may be intact. The cache starts empty and the next
    /// save replaces the file.
    #[error("reading {path}")]
    Read { path: PathBuf, source: std::io::Error },
    /// The file is damaged or of another version. The cache starts empty and the next save replaces
    /// the file.
    #[error("{path} is not an address cache that this version can read")]
    Form { path: PathBuf },
    /// The file is unchanged.
    #[error("writing {path}")]
    Write { path: PathBuf, source: std::io::Error },
}

/// Reads the cache. A missing file counts as empty.
pub fn load(path: &Path) -> Result<Addresses, CacheError> {
    let read = |source| CacheError::Read { path: path.to_owned(), source };
    let form = || CacheError::Form { path: path.to_owned() };
    match std::fs::metadata(path) {
        Ok(found) if found.len() > FILE_MAX => return Err(form()),
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Addresses::new()),
        Err(e) => return Err(read(e)),
    }
    let text = std::fs::read(path).map_err(read)?;
    let found: Form = serde_json::from_slice(&text).map_err(|_| form())?;
    if found.version != VERSION {
        return Err(form());
    }
    Ok(found.nodes)
}

/// Replaces the cache file atomically: after a crash the file has either its complete old content
/// or the complete new one. Only the owner may read it.
pub fn save(path: &Path, nodes: &Addresses) -> Result<(), CacheError> {
    let write = |source| CacheError::Write { path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(&Form { version: VERSION, nodes: nodes.clone() })
        .map_err(|e| write(std::io::Error::other(e)))?;
    atomic_write(path, &text, 0o600).map_err(|e| write(e.into_io()))
}

/// The known nodes with their addresses. The address that the node uses as a live member (`seen`)
/// is the first. The known addresses follow, then the remembered ones.
pub fn merge(known: &Addresses, seen: &BTreeMap<NodeName, SocketAddr>, remembered: &Addresses) -> Addresses {
    let mut merged = Addresses::new();
    for (name, given) in known {
        let mut addrs: Vec<SocketAddr> = vec![];
        let old = remembered.get(name).into_iter().flatten();
        for addr in seen.get(name).into_iter().chain(given).chain(old) {
            if !addrs.contains(addr) && addrs.len() < ADDRS_MAX {
                addrs.push(*addr);
            }
        }
        merged.insert(name.clone(), addrs);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 7946))
    }

    #[test]
    fn comes_back_and_survives_damage() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("peers.json");
        assert_eq!(load(&path).expect("missing is empty"), Addresses::new());
        let nodes = Addresses::from([("a".into(), vec![addr(1), addr(2)]), ("b".into(), vec![])]);
        save(&path, &nodes).expect("save");
        save(&path, &nodes).expect("save over it");
        assert_eq!(load(&path).expect("load"), nodes);
        for damaged in ["", "{", "{\"version\":2,\"nodes\":{}}"] {
            std::fs::write(&path, damaged).expect("write");
            assert!(matches!(load(&path), Err(CacheError::Form { .. })), "{damaged:?}");
        }
        assert!(matches!(save(&dir.path().join("no/such"), &nodes), Err(CacheError::Write { .. })));
        let left = std::fs::read_dir(dir.path()).expect("list").count();
        assert_eq!(left, 1, "no temporary file is left");
    }

    #[test]
    fn merging_puts_the_seen_first_drops_the_unknown_and_bounds() {
        let known = Addresses::from([("a".into(), vec![addr(1), addr(2)]), ("b".into(), vec![])]);
        let seen = BTreeMap::from([("a".into(), addr(9)), ("x".into(), addr(8))]);
        let remembered = Addresses::from([
            ("a".into(), vec![addr(2), addr(3), addr(4)]),
            ("b".into(), vec![addr(5)]),
            ("y".into(), vec![addr(6)]),
        ]);
        let expect =
            Addresses::from([("a".into(), vec![addr(9), addr(1), addr(2), addr(3)]), ("b".into(), vec![addr(5)])]);
        assert_eq!(merge(&known, &seen, &remembered), expect);
    }
}
