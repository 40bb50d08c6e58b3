//! The CAs whose keys this manager has: the cluster's first CA, from whose key other secrets are
//! derived, the current CA, and the next CA during a rotation. The replicated state contains the
//! certificate of the CA that issues certificates.
//!
//! The key of a new CA is stored on a majority of the managers before the entry with the CA's
//! certificate is proposed. A manager without the key fetches it from another manager.

use remoor_cluster::rpc::ca::ClusterCa;
use remoor_cluster::rpc::identity::IdentityError;
use remoor_cluster::rpc::token::Secret;
use remoor_model::{Inventory, Sha256, ca_id};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of CAs on this manager that the replicated state does not contain. Such CAs
/// remain after rotations that failed to start.
const UNNAMED_MAX: usize = 4;

/// A CA with its key, as sent between managers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaPair {
    pub cert_pem: String,
    pub key_pem: Secret,
}

impl CaPair {
    pub fn from_ca(ca: &ClusterCa) -> Self {
        Self { cert_pem: ca.cert_pem().to_owned(), key_pem: ca.key_pem() }
    }

    pub fn open(&self) -> Result<ClusterCa, IdentityError> {
        ClusterCa::from_pem(&self.cert_pem, &self.key_pem)
    }
}

/// The CAs in the folder `ca` of the data directory. The files of the first CA are `ca.pem` and
/// `ca.key`; the file name of a later CA is its [`ca_id`].
pub struct Authorities {
    dir: PathBuf,
    first: Arc<ClusterCa>,
    later: Mutex<BTreeMap<Sha256, Arc<ClusterCa>>>,
}

impl Authorities {
    /// Loads all CAs. A CA after the first one that can't be read is omitted, and fetched again
    /// from another manager. Blocks.
    pub fn load(dir: &Path) -> Result<Self, IdentityError> {
        let first = Arc::new(ClusterCa::load(dir)?);
        let mut later = BTreeMap::new();
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let names = files.filter(|path| path.extension().is_some_and(|ext| ext == "pem"));
        for name in names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())) {
            let Some(id) = Sha256::parse(&name) else { continue };
            match ClusterCa::load_as(dir, &name) {
                Ok(ca) => drop(later.insert(id, Arc::new(ca))),
                Err(error) => tracing::warn!(%error, "a CA can't be read, and is fetched from another manager"),
            }
        }
        Ok(Self { dir: dir.to_owned(), first, later: Mutex::new(later) })
    }

    /// Stores the CAs that another manager sent; `cas[0]` is the first CA. Blocks.
    pub fn take(dir: &Path, cas: Vec<ClusterCa>) -> Result<Self, IdentityError> {
        let mut cas = cas.into_iter();
        let none = || IdentityError::Malformed { what: "answer", reason: "it contains no CA".into() };
        let first = cas.next().ok_or_else(none)?;
        first.save(dir)?;
        let taken = Self { dir: dir.to_owned(), first: Arc::new(first), later: Mutex::default() };
        for ca in cas {
            taken.keep(ca)?;
        }
        Ok(taken)
    }

    /// The CA that `init` created.
    pub fn first(&self) -> &Arc<ClusterCa> {
        &self.first
    }

    /// The CA with this certificate. None if this manager does not have its key.
    pub fn for_certificate(&self, ca_pem: &str) -> Option<Arc<ClusterCa>> {
        self.by_id(Some(ca_id(ca_pem)))
    }

    /// The CA with this id, or the first CA if `id` is None.
    pub fn by_id(&self, id: Option<Sha256>) -> Option<Arc<ClusterCa>> {
        match id {
            Some(id) if id != ca_id(self.first.cert_pem()) => self.later_cas().get(&id).cloned(),
            _ => Some(self.first.clone()),
        }
    }

    /// All CAs, beginning with the cluster's first CA.
    pub fn all_cas(&self) -> Vec<Arc<ClusterCa>> {
        std::iter::once(self.first.clone()).chain(self.later_cas().values().cloned()).collect()
    }

    /// Stores a CA on disk and then uses it. Blocks.
    pub fn keep(&self, ca: ClusterCa) -> Result<(), IdentityError> {
        let id = ca_id(ca.cert_pem());
        if self.by_id(Some(id)).is_none() {
            ca.save_as(&self.dir, &id.to_string())?;
            self.later_cas().insert(id, Arc::new(ca));
        }
        Ok(())
    }

    /// The CAs whose keys a manager needs in this state: the trusted CAs, and the CAs from which
    /// the current gossip keys are derived.
    pub fn required_ids(inventory: &Inventory) -> BTreeSet<Sha256> {
        let based = [inventory.gossip.base, inventory.gossip.next.as_ref().and_then(|next| next.base)];
        inventory.roots().into_iter().map(ca_id).chain(based.into_iter().flatten()).collect()
    }

    /// Deletes keys of CAs that are not needed. A former CA is not needed if no current gossip key
    /// is derived from it. CAs that the state does not contain are deleted only if there are more
    /// than `UNNAMED_MAX` of them. Blocks.
    pub fn tidy(&self, inventory: &Inventory) {
        let needed = Self::required_ids(inventory);
        let former: BTreeSet<Sha256> = inventory.authority.former.iter().map(|f| ca_id(&f.ca_pem)).collect();
        let mut later = self.later_cas();
        let unneeded: Vec<Sha256> = later.keys().filter(|id| !needed.contains(id)).copied().collect();
        let unnamed = unneeded.iter().filter(|id| !former.contains(id)).count();
        for id in unneeded.into_iter().filter(|id| former.contains(id) || unnamed > UNNAMED_MAX) {
            later.remove(&id);
            for ending in ["key", "pem"] {
                let path = self.dir.join(format!("{id}.{ending}"));
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::warn!(path = %path.display(), %error, "the key of a CA that was replaced can't be deleted");
                }
            }
        }
    }

    fn later_cas(&self) -> MutexGuard<'_, BTreeMap<Sha256, Arc<ClusterCa>>> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{Command, InventoryEntry, Wall};

    #[test]
    fn first_ca_stays_and_replaced_ca_is_deleted_once_no_key_is_derived_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let ca = || ClusterCa::create_next(&"c1".into()).unwrap();
        let first = ClusterCa::create(&"c1".into()).unwrap();
        let mut inventory = Inventory { ca_pem: Arc::new(first.cert_pem().to_owned()), ..Inventory::default() };
        let held = Authorities::take(dir.path(), vec![first]).unwrap();
        let mut apply = |command: Command| {
            let index = inventory.applied + 1;
            let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
            assert_eq!(applied.refusal(), None);
            inventory.clone()
        };
        let mut rotate = || {
            let next = ca();
            let ca_pem = next.cert_pem().to_owned();
            held.keep(next).unwrap();
            let mut state = apply(Command::RotateCa { ca_pem: ca_pem.clone(), cross_pem: String::new() });
            for _ in 0..2 {
                held.tidy(&state);
                assert!(held.for_certificate(&ca_pem).is_some() && held.for_certificate(&state.ca_pem).is_some());
                state = apply(Command::CaStep { changed: state.authority.changed });
            }
            held.tidy(&state);
            (ca_pem, state)
        };
        let (second, _) = rotate();
        assert!(held.for_certificate(&second).is_some() && Arc::ptr_eq(&held.by_id(None).unwrap(), held.first()));
        let (third, state) = rotate();
        assert!(held.for_certificate(&second).is_none(), "the key of the second is not needed any more");
        let again = Authorities::load(dir.path()).unwrap();
        let names = |all: Vec<Arc<ClusterCa>>| all.iter().map(|ca| ca.cert_pem().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(again.all_cas()), names(held.all_cas()));
        assert_eq!(names(again.all_cas()), [held.first().cert_pem().to_owned(), third.clone()]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "two files each");

        // A current gossip key is derived from the key of this CA, so the CA is still needed.
        let based =
            Inventory { gossip: remoor_model::GossipKeys { base: Some(ca_id(&third)), ..Default::default() }, ..state };
        let later = Inventory { ca_pem: Arc::new(ca().cert_pem().to_owned()), ..based };
        held.tidy(&later);
        assert!(held.for_certificate(&third).is_some());
        // Keys of CA rotations that failed to start are removed.
        for _ in 0..=UNNAMED_MAX {
            held.keep(ca()).unwrap();
        }
        held.tidy(&later);
        assert_eq!(held.all_cas().len(), 2);
    }
}
