//! The names, addresses and keys of peers that a node has on disk, so that it knows them without a
//! request to a manager.

use ed25519_dalek::VerifyingKey;
use remoor_cluster::gossip::KeyLookup;
use remoor_cluster::rpc::join::PeerInfo;
use remoor_host::disk::{DiskError, StoredFile, atomic_write, read_or_rename_damaged};
use remoor_model::{GenerationSeq, NodeName};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

/// The keys with which gossip verifies records, and the names of removed nodes. Gossip looks up a
/// key for each record, so the lock is held only briefly.
#[derive(Clone, Default)]
pub struct KeyBook(Arc<RwLock<BTreeMap<NodeName, KeyLookup>>>);

impl KeyBook {
    pub fn look_up(&self, name: &NodeName) -> KeyLookup {
        let keys = self.0.read().unwrap_or_else(|p| p.into_inner());
        keys.get(name).cloned().unwrap_or(KeyLookup::Unknown)
    }

    /// Adds the given names with their public keys (hex). Returns true if a key is new or changed.
    /// Only such a key is decoded, because decoding is expensive and a manager calls this for every
    /// node at every log entry.
    pub fn set<'a>(&self, peers: impl Iterator<Item = (&'a NodeName, &'a str)>) -> bool {
        let fresh = {
            let keys = self.0.read().unwrap_or_else(|p| p.into_inner());
            let new = peers.filter_map(|(name, hex)| Some((name, bytes_of(hex)?))).filter(
                |(name, bytes)| !matches!(keys.get(*name), Some(KeyLookup::Known(key)) if key.as_bytes() == bytes),
            );
            let known = new.filter_map(|(name, bytes)| Some((name.clone(), VerifyingKey::from_bytes(&bytes).ok()?)));
            known.map(|(name, key)| (name, KeyLookup::Known(key))).collect()
        };
        self.learn(fresh)
    }

    /// Records the names of removed nodes. A name that a current node has is not recorded. Returns
    /// true if one of the names was not recorded as removed before.
    pub fn remove<'a>(&self, names: impl Iterator<Item = &'a NodeName>) -> bool {
        self.learn(names.map(|name| (name.clone(), KeyLookup::Removed)).collect())
    }

    fn learn(&self, fresh: BTreeMap<NodeName, KeyLookup>) -> bool {
        let mut keys = self.0.write().unwrap_or_else(|p| p.into_inner());
        let changed = fresh.iter().any(|(name, key)| keys.get(name) != Some(key));
        keys.extend(fresh);
        changed
    }
}

fn bytes_of(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// The last known list of peers, on disk. With this list a node finds its cluster again even if all
/// managers are down.
pub struct PeerBook {
    path: PathBuf,
    pub peers: Vec<PeerInfo>,
    /// The peers that are managers or will become managers. A future manager does not answer
    /// `/agent/v1` yet.
    pub managers: Vec<PeerInfo>,
    /// The gossip addresses of `peers`.
    gossip: BTreeMap<NodeName, SocketAddr>,
}

impl PeerBook {
    /// Loads the saved peers. If the file does not exist or was damaged and renamed, the list is
    /// empty until a manager sends a new one. Fails if the file can't be read. Otherwise the next
    /// answer of a manager would overwrite a file that may still be intact.
    pub fn load(path: PathBuf) -> Result<Self, DiskError> {
        let saved = read_or_rename_damaged::<(Vec<PeerInfo>, Vec<PeerInfo>)>(&path)?;
        if let StoredFile::Damaged(kept) = &saved {
            let kept = kept.display();
            tracing::error!(
                %kept,
                "no peer is known now; next: repair the file or copy peers.json from another node, then restart"
            );
        }
        let (peers, managers) = saved.or_default();
        Ok(Self { path, gossip: gossip_addresses(&peers), peers, managers })
    }

    pub fn update(&mut self, peers: Vec<PeerInfo>, managers: Vec<PeerInfo>) -> Result<(), DiskError> {
        (self.peers, self.managers) = (peers, managers);
        self.gossip = gossip_addresses(&self.peers);
        let bytes = serde_json::to_vec_pretty(&(&self.peers, &self.managers)).unwrap_or_default();
        atomic_write(&self.path, &bytes, 0o600)
    }

    /// Whether the managers have already reported what gossip shows about a member. `signed` means
    /// that the member's record is signed with the key that the managers reported. `by` is the
    /// generation in the member's report. `known` is the newest generation that managers reported.
    pub fn is_reported(
        &self,
        name: &NodeName,
        addr: SocketAddr,
        signed: bool,
        by: GenerationSeq,
        known: GenerationSeq,
    ) -> bool {
        signed && by <= known && self.gossip.get(name) == Some(&addr)
    }

    /// The gossip addresses for each node name.
    pub fn addresses(&self) -> BTreeMap<NodeName, Vec<SocketAddr>> {
        self.gossip.iter().map(|(name, addr)| (name.clone(), vec![*addr])).collect()
    }
}

fn gossip_addresses(peers: &[PeerInfo]) -> BTreeMap<NodeName, SocketAddr> {
    peers.iter().filter_map(|peer| Some((peer.name.clone(), peer.gossip_addr.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_managers_did_not_tell_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut book = PeerBook::load(dir.path().join("peers.json")).expect("none yet");
        let peer = |name: &str, gossip: &str| PeerInfo {
            name: name.into(),
            id: Default::default(),
            gossip_addr: gossip.to_owned(),
            api_addr: String::new(),
            public_key: String::new(),
        };
        let (m1, w1) = (peer("m1", "10.0.0.1:7946"), peer("w1", "10.0.0.2:7946"));
        book.update(vec![m1.clone(), w1], vec![m1]).expect("saved");
        let told = |name: &str, addr: &str, signed, by| {
            book.is_reported(
                &name.into(),
                addr.parse().expect("an address"),
                signed,
                GenerationSeq(by),
                GenerationSeq(3),
            )
        };
        assert!(told("m1", "10.0.0.1:7946", true, 3) && told("w1", "10.0.0.2:7946", true, 3));
        assert!(told("m1", "10.0.0.1:7946", true, 2), "one that is behind");
        assert!(!told("m1", "10.0.0.1:7946", true, 4), "a new generation");
        assert!(!told("w1", "10.0.0.2:7946", false, 3), "another key");
        assert!(!told("w1", "10.0.0.9:7946", true, 3), "moved");
        assert!(!told("w2", "10.0.0.3:7946", true, 3), "new");
    }

    #[test]
    fn a_removed_name_has_no_key_until_another_node_has_it() {
        let (book, name) = (KeyBook::default(), NodeName::from("w1"));
        let key = |seed: u8| ed25519_dalek::SigningKey::from_bytes(&[seed; 32]).verifying_key();
        let set = |seed: u8| book.set([(&name, hex::encode(key(seed).to_bytes()).as_str())].into_iter());
        assert_eq!(book.look_up(&name), KeyLookup::Unknown);
        assert!(set(1) && !set(1));
        assert!(book.remove([&name].into_iter()) && !book.remove([&name].into_iter()));
        assert_eq!(book.look_up(&name), KeyLookup::Removed);
        assert!(set(2), "a new node takes the name");
        assert_eq!(book.look_up(&name), KeyLookup::Known(key(2)));
    }

    #[test]
    fn a_list_that_can_not_be_read_is_an_error_and_stays_and_a_damaged_one_is_put_aside() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("peers.json");
        assert!(PeerBook::load(path.clone()).expect("none yet").peers.is_empty());
        // A symbolic link to itself can't be opened by any user (ELOOP). An unreadable file
        // (EACCES) would not stop root.
        std::os::unix::fs::symlink(&path, &path).expect("linked");
        let Err(error) = PeerBook::load(path.clone()) else { panic!("read what can't be read") };
        assert!(matches!(&error, DiskError::Io { path: named, .. } if *named == path), "{error}");
        assert!(path.is_symlink() && !dir.path().join("peers.json.damaged").exists());
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "{ half").expect("written");
        assert!(PeerBook::load(path.clone()).expect("put aside").peers.is_empty());
        let kept = std::fs::read_to_string(dir.path().join("peers.json.damaged")).expect("kept");
        assert_eq!((kept.as_str(), path.exists()), ("{ half", false));
    }
}
