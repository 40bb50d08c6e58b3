//! A cache of generations as loaded fleets, by the hash of their blob. The last few fleets, the
//! last summary and the last large variables stay in memory.

use super::{FleetVariables, LargeVariables, VaultDirectory};
use remoor_config::Fleet;
use remoor_host::disk::BlobStore;
use remoor_model::{ClusterContext, Fault, FileSet, FleetSummary, Generation, Sha256};
use remoor_vault::Vault;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of loaded generations in memory.
const LOADED_MAX: usize = 4;

/// The reason why this manager can't use a generation now. Nothing was changed. After `Missing`,
/// the caller fetches the blob from another manager and retries.
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

/// The values from which a summary was made, and the summary.
type MadeSummary = (Sha256, ClusterContext, Arc<FleetSummary>);

/// The values from which large variables were made, and the large variables.
type MadeVariables = (Sha256, BTreeMap<String, String>, Arc<LargeVariables>);

#[derive(Debug)]
pub struct FleetCache {
    blobs: Arc<BlobStore>,
    vaults: VaultDirectory,
    loaded: Mutex<BTreeMap<Sha256, Arc<Fleet>>>,
    summary: Mutex<Option<MadeSummary>>,
    variables: Mutex<Option<MadeVariables>>,
}

impl FleetCache {
    /// `vaults` contains the vault passwords of this manager.
    pub fn new(blobs: Arc<BlobStore>, vaults: VaultDirectory) -> Self {
        Self { blobs, vaults, loaded: Mutex::default(), summary: Mutex::default(), variables: Mutex::default() }
    }

    /// The vault passwords. If they changed, everything that was made with the earlier passwords is
    /// forgotten.
    fn vault(&self) -> Arc<Vault> {
        let (vault, changed) = self.vaults.vault();
        if changed {
            self.lock_loaded().clear();
            *self.summary.lock().unwrap_or_else(PoisonError::into_inner) = None;
            *self.variables.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        vault
    }

    /// Returns the fleet of `generation`, from memory or from the blob store. This function blocks.
    pub fn fleet(&self, generation: &Generation) -> Result<Arc<Fleet>, FleetCacheError> {
        let (seq, vault) = (generation.seq.0, self.vault());
        if let Some(fleet) = self.lock_loaded().get(&generation.blob) {
            return Ok(fleet.clone());
        }
        let bytes = self.blobs.get(&generation.blob).map_err(FleetCacheError::Store)?;
        let bytes = bytes.ok_or(FleetCacheError::Missing(generation.blob, seq))?;
        let files: FileSet = rmp_serde::from_slice(&bytes).map_err(|e| FleetCacheError::Corrupt(seq, e))?;
        self.load(generation.blob, &files, vault).map_err(|faults| FleetCacheError::Faults(seq, faults))
    }

    /// Returns the fleet of `files`, and its summary for the cluster state `known`. `blob` is the
    /// hash of `files`. The last summary is kept, so that an unchanged fleet that is applied again
    /// is not compiled again for all hosts.
    pub fn summarize(
        &self,
        blob: Sha256,
        files: &FileSet,
        known: &ClusterContext,
    ) -> Result<(Arc<Fleet>, Arc<FleetSummary>), Vec<Fault>> {
        let vault = self.vault();
        let cached = self.lock_loaded().get(&blob).cloned();
        let fleet = cached.map_or_else(|| self.load(blob, files, vault), Ok)?;
        let last = || self.summary.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, _, summary)) = last().as_ref().filter(|(of, with, _)| (of, with) == (&blob, known)) {
            return Ok((fleet, summary.clone()));
        }
        let summary = Arc::new(super::summary(&fleet, known)?);
        *last() = Some((blob, known.clone(), summary.clone()));
        Ok((fleet, summary))
    }

    /// The variables of the nodes of a loaded fleet. The last large variables are kept, because the
    /// agents of all nodes request their manifests one after the other. If the known addresses
    /// differ from those of the last call, the large variables are made again.
    pub fn variables<'a>(&self, blob: Sha256, fleet: &'a Fleet, known: &'a ClusterContext) -> FleetVariables<'a> {
        let last = || self.variables.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let same = |(of, with, _): &&MadeVariables| (of, with) == (&blob, &known.addresses);
        let kept = last().as_ref().filter(same).map(|(_, _, large)| large.clone());
        let large = kept.unwrap_or_else(|| {
            let large = Arc::new(LargeVariables::new(fleet, &known.addresses));
            *last() = Some((blob, known.addresses.clone(), large.clone()));
            large
        });
        FleetVariables::with_large(fleet, known, large)
    }

    fn load(&self, blob: Sha256, files: &FileSet, vault: Arc<Vault>) -> Result<Arc<Fleet>, Vec<Fault>> {
        let fleet = Arc::new(Fleet::from_files(files)?.with_vault(vault, false));
        let mut loaded = self.lock_loaded();
        if loaded.len() >= LOADED_MAX {
            loaded.pop_first();
        }
        loaded.insert(blob, fleet.clone());
        Ok(fleet)
    }

    fn lock_loaded(&self) -> std::sync::MutexGuard<'_, BTreeMap<Sha256, Arc<Fleet>>> {
        self.loaded.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
