//! Cache of generations as loaded fleets, by blob; the last few stay in memory.

use remoor_config::Fleet;
use remoor_host::disk::BlobStore;
use remoor_model::{Fault, FileSet, Generation, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Maximum number of loaded generations in memory.
const LOADED_MAX: usize = 4;

/// Why a generation can't be used on this manager now. Nothing changed. After `Missing` the caller
/// fetches the blob from another manager and retries.
#[derive(Debug, thiserror::Error)]
pub enum FleetCacheError {
    #[error("the blob {0} of generation {1} is not on this manager")]
    Missing(Sha256, u64),
    #[error("the blob store can't be read")]
    Store(#[source] remoor_host::disk::DiskError),
    #[error("the blob of generation {0} is not a set of files")]
    Corrupt(u64, #[source] rmp_serde::decode::Error),
    #[error("generation {0} can't be loaded: {first}", first = .1.first().map(ToString::to_string).unwrap_or_default())]
    Faults(u64, Vec<Fault>),
}

#[derive(Debug)]
pub struct FleetCache {
    blobs: Arc<BlobStore>,
    loaded: Mutex<BTreeMap<Sha256, Arc<Fleet>>>,
}

impl FleetCache {
    pub fn new(blobs: Arc<BlobStore>) -> Self {
        Self { blobs, loaded: Mutex::default() }
    }

    /// Returns the fleet of `generation`, from memory or from the blob store. Blocks.
    pub fn fleet(&self, generation: &Generation) -> Result<Arc<Fleet>, FleetCacheError> {
        let seq = generation.seq.0;
        if let Some(fleet) = self.lock_loaded().get(&generation.blob) {
            return Ok(fleet.clone());
        }
        let bytes = self.blobs.get(&generation.blob).map_err(FleetCacheError::Store)?;
        let bytes = bytes.ok_or(FleetCacheError::Missing(generation.blob, seq))?;
        let files: FileSet = rmp_serde::from_slice(&bytes).map_err(|e| FleetCacheError::Corrupt(seq, e))?;
        let fleet = Arc::new(Fleet::from_files(&files).map_err(|faults| FleetCacheError::Faults(seq, faults))?);
        let mut loaded = self.lock_loaded();
        if loaded.len() >= LOADED_MAX {
            loaded.pop_first();
        }
        loaded.insert(generation.blob, fleet.clone());
        Ok(fleet)
    }

    fn lock_loaded(&self) -> std::sync::MutexGuard<'_, BTreeMap<Sha256, Arc<Fleet>>> {
        self.loaded.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
