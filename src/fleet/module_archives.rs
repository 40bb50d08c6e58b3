//! Modules that are not native, packed and stored as files of a generation.
//!
//! ```text
//! operator's machine: compile ──ModuleRequest──> ModuleRecorder ──> Packer (ansible-core)
//!                                                 └─> .remoor/modules/NAME-HASH.zip, index.json
//! managers:           compile ──ModuleRequest──> StoredModules: the same answers from these files
//! ```
//! The index has the answer to each request of the compiler, including refusals, up to a limit. So
//! managers compile what the operator's machine compiled, and no manager needs ansible-core. A
//! cleanup uses native modules only, because Python modules do not check which paths a cleanup must
//! not delete.

use super::{ClusterContext, FleetVariables, PlanScope, plans};
use remoor_config::{CONFIG_FILE, Fleet};
use remoor_model::{ClusterRole, Fault, FileSet, Phase, Sha256, count_noun};
use remoor_playbook::{ModuleOrigin, ModuleRefusal, ModuleRequest, ModuleSource, PackedModule, PythonModule};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The directory of a generation with its packed modules. A directory of this name in a fleet
/// directory is not read.
pub const MODULES_DIR: &str = ".remoor/modules";
const INDEX_FILE: &str = ".remoor/modules/index.json";
/// Version of the format of the index.
const INDEX_VERSION: u32 = 1;
/// Maximum size of the index in bytes.
const INDEX_MAX: usize = 4 << 20;
/// Maximum length in characters of the reason why a module was not packed.
const REASON_MAX: usize = 2000;
/// Limits for the packed modules of a generation.
const LIMITS: ArchiveLimits = ArchiveLimits { requests: 2000, archive: 8 << 20, all: 16 << 20 };

/// Limits for the packed modules of one generation.
#[derive(Debug, Clone, Copy)]
struct ArchiveLimits {
    /// Maximum number of different requests.
    requests: usize,
    /// Maximum size of one archive in bytes.
    archive: usize,
    /// Maximum size of all archives together in bytes.
    all: usize,
}

/// The content of the index file.
#[derive(Debug, Serialize, Deserialize)]
struct ModuleIndex {
    version: u32,
    /// The packed modules by the name of their archive, without `.zip`.
    modules: BTreeMap<String, StoredModule>,
    answers: Vec<StoredAnswer>,
}

/// One packed module, without its archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredModule {
    name: String,
    origin: ModuleOrigin,
    module: PythonModule,
}

/// The answer to one request: the name of an archive, or the reason of the refusal.
#[derive(Debug, Serialize, Deserialize)]
struct StoredAnswer {
    request: ModuleRequest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<ModuleRefusal>,
}

/// Packs the modules of `source` that the provisioning playbooks of a fleet need, and stores them
/// as files of the fleet. Files of an earlier call are removed first. A fleet without such modules
/// gets no file. Returns a warning for each task that is refused, for each encrypted file of tasks
/// whose modules are not known, and about modules that could not be packed.
///
/// Faults of the playbooks are not reported here; `lint` and `summary` report them.
pub fn store_modules(fleet: &mut Fleet, source: &dyn ModuleSource) -> Result<Vec<Fault>, Fault> {
    store_within(fleet, source, LIMITS)
}

fn store_within(fleet: &mut Fleet, source: &dyn ModuleSource, limits: ArchiveLimits) -> Result<Vec<Fault>, Fault> {
    let old: Vec<String> = fleet.files.paths_below(MODULES_DIR).map(str::to_owned).collect();
    old.iter().for_each(|path| drop(fleet.files.0.remove(path)));
    let recorder = ModuleRecorder { source, limits, answers: RefCell::default() };
    let known = ClusterContext::default();
    let variables = FleetVariables::new(fleet, &known);
    let mut warnings = BTreeSet::new();
    for host in fleet.inventory.hosts.keys() {
        for role in [ClusterRole::Worker, ClusterRole::Manager] {
            let Ok(context) = variables.of_host(host, role) else { continue };
            if plans::provisions_natively(fleet, host) {
                // The modules that faulty playbooks need are packed as far as they compile.
                let scope = PlanScope::default();
                let compiled = plans::compile_with(fleet, host, &context, Phase::Provision, &scope, Some(&recorder));
                let Ok(compiled) = compiled else { continue };
                warnings.extend(compiled.refused);
                warnings.extend(compiled.unopened_tasks.iter().map(|path| unread_tasks(path)));
            }
        }
    }
    let answers = recorder.answers.into_inner();
    let mut warnings: Vec<Fault> = warnings.into_iter().collect();
    if !answers.is_empty() {
        warnings.extend(unpacked_modules(&answers));
        add_files(&mut fleet.files, answers)?;
    }
    Ok(warnings)
}

/// The warning about an encrypted file of tasks that could not be opened.
fn unread_tasks(path: &str) -> Fault {
    let message = "is encrypted and was not opened, so modules that only its tasks need are not packed, and such tasks \
        are refused";
    Fault::warn(path, 0, 0, message).hint("name the password with --vault-password-file FILE or --vault-id ID@FILE")
}

/// The warning about modules that were not packed because software is missing or fails.
fn unpacked_modules(answers: &Answers) -> Option<Fault> {
    let missing = || {
        answers.iter().filter_map(|(request, answer)| match answer {
            Err(ModuleRefusal::NoCore(_)) => Some((&request.name, "this machine has no ansible-core".to_owned())),
            Err(ModuleRefusal::NoCollection(name)) => {
                Some((&request.name, format!("the collection {name} is not installed")))
            }
            Err(ModuleRefusal::Failed(why)) => Some((&request.name, why.clone())),
            _ => None,
        })
    };
    let (name, why) = missing().next()?;
    let all = count_noun(missing().count(), "module");
    let message =
        format!("{all} cannot be packed, and a task that needs one of them is refused; the first is `{name}`: {why}");
    Some(Fault::warn(CONFIG_FILE, 0, 0, message).hint("remoor lint names the tasks"))
}

/// Adds the archives and the index to the files of a fleet. Equal answers give equal files.
fn add_files(files: &mut FileSet, answers: Answers) -> Result<(), Fault> {
    let mut index = ModuleIndex { version: INDEX_VERSION, modules: BTreeMap::new(), answers: Vec::new() };
    for (request, answer) in answers {
        let (module, refused) = match answer {
            Ok(packed) => {
                let PackedModule { name, module, origin, archive } = &*packed;
                let key = format!("{name}-{}", module.sha256.get(..16).unwrap_or_default());
                files.0.insert(archive_path(&key), archive.clone());
                let stored = StoredModule { name: name.clone(), origin: origin.clone(), module: module.clone() };
                index.modules.entry(key.clone()).or_insert(stored);
                (Some(key), None)
            }
            Err(refusal) => (None, Some(refusal)),
        };
        index.answers.push(StoredAnswer { request, module, refused });
    }
    let text = serde_json::to_vec_pretty(&index);
    let text = text.map_err(|e| Fault::error(INDEX_FILE, 0, 0, format!("can't be written as JSON: {e}")))?;
    if text.len() > INDEX_MAX {
        let message = format!("would be larger than {} MiB", INDEX_MAX >> 20);
        return Err(Fault::error(INDEX_FILE, 0, 0, message).hint("use fewer modules that are not native"));
    }
    files.0.insert(INDEX_FILE.to_owned(), text);
    Ok(())
}

fn archive_path(key: &str) -> String {
    format!("{MODULES_DIR}/{key}.zip")
}

type Answers = BTreeMap<ModuleRequest, Result<Arc<PackedModule>, ModuleRefusal>>;

/// Passes requests on to a source, and keeps the answers within limits.
#[derive(Debug)]
struct ModuleRecorder<'a> {
    source: &'a dyn ModuleSource,
    limits: ArchiveLimits,
    answers: RefCell<Answers>,
}

impl ModuleRecorder<'_> {
    /// The reason why a packed module cannot be stored in addition to those in `answers`.
    fn excess(&self, answers: &Answers, packed: &PackedModule) -> Option<String> {
        let size = packed.archive.len();
        if size > self.limits.archive {
            return Some(format!("it has {size} bytes, and the limit is {}", self.limits.archive));
        }
        let stored: BTreeMap<&str, usize> = answers
            .values()
            .flatten()
            .map(|other| (other.module.sha256.as_str(), other.archive.len()))
            .chain([(packed.module.sha256.as_str(), size)])
            .collect();
        let all: usize = stored.values().sum();
        (all > self.limits.all).then(|| {
            format!("with it the modules of this fleet have {all} bytes, and the limit is {}", self.limits.all)
        })
    }
}

impl ModuleSource for ModuleRecorder<'_> {
    fn pack(&self, request: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        let mut answers = self.answers.borrow_mut();
        if let Some(known) = answers.get(request) {
            return known.clone();
        }
        if answers.len() >= self.limits.requests {
            // Not recorded, so that the index stays bounded. A manager answers `NotStored`.
            let message = format!("this fleet needs more than {} of them", self.limits.requests);
            return Err(ModuleRefusal::Failed(message));
        }
        let answer = match self.source.pack(request) {
            Ok(packed) => match self.excess(&answers, &packed) {
                None => Ok(packed),
                Some(why) => Err(ModuleRefusal::Failed(why)),
            },
            // The reason names a program of this machine, which must not become part of a
            // generation.
            Err(ModuleRefusal::NoCore(why)) => {
                answers.insert(request.clone(), Err(ModuleRefusal::NoCore(NO_CORE.to_owned())));
                return Err(ModuleRefusal::NoCore(why));
            }
            Err(ModuleRefusal::NotFound(why)) => Err(ModuleRefusal::NotFound(without_directories(&why))),
            Err(ModuleRefusal::Failed(why)) => Err(ModuleRefusal::Failed(without_directories(&why))),
            Err(refusal) => Err(refusal),
        };
        answers.insert(request.clone(), answer.clone());
        answer
    }
}

/// A reason without the directories of this machine: of each absolute path, only the last name is
/// kept. A generation must not contain names of the operator's machine, and equal fleets must give
/// equal generations on all machines.
fn without_directories(why: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || "'\"`()[]{}<>,;:=".contains(c);
    let shorten = |word: &str| match word.trim_end_matches('/').rsplit_once('/') {
        Some((_, name)) if word.starts_with('/') => format!(".../{name}"),
        _ => word.to_owned(),
    };
    let short: String = why
        .split_inclusive(is_end)
        .map(|part| {
            let word = part.trim_end_matches(is_end);
            shorten(word) + &part[word.len()..]
        })
        .collect();
    short.chars().take(REASON_MAX).collect()
}

/// The source of modules for a generation without packed modules. It refuses each request, so that
/// the native module never replaces a module of `library/` in silence.
#[derive(Debug)]
pub struct NoStoredModules;

impl ModuleSource for NoStoredModules {
    fn pack(&self, _request: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        Err(ModuleRefusal::NotStored)
    }
}

const NO_CORE: &str = "the machine that applied the fleet has none";

/// The packed modules of a generation.
#[derive(Debug)]
pub struct StoredModules<'a> {
    files: &'a FileSet,
    index: ModuleIndex,
}

impl<'a> StoredModules<'a> {
    /// The packed modules among the files of a generation. None: the generation has none, because
    /// it needs none or an earlier version made it.
    pub fn open(files: &'a FileSet) -> Result<Option<Self>, Fault> {
        let Some(text) = files.get(INDEX_FILE) else { return Ok(None) };
        let wrong = |why: String| Fault::error(INDEX_FILE, 0, 0, why).hint("apply the fleet again");
        if text.len() > INDEX_MAX {
            return Err(wrong(format!("is larger than {} MiB", INDEX_MAX >> 20)));
        }
        let index: ModuleIndex = serde_json::from_slice(text).map_err(|e| wrong(format!("can't be read: {e}")))?;
        if index.version != INDEX_VERSION {
            let message = format!("has version {}, but this manager supports version {INDEX_VERSION}", index.version);
            return Err(wrong(message).hint("upgrade all managers, then apply the fleet again"));
        }
        Ok(Some(Self { files, index }))
    }

    fn load(&self, key: &str) -> Result<Arc<PackedModule>, String> {
        let stored = self.index.modules.get(key).ok_or_else(|| format!("{INDEX_FILE} has no {key}"))?;
        let path = archive_path(key);
        let archive = self.files.get(&path).ok_or_else(|| format!("{path} is missing"))?.to_vec();
        let StoredModule { name, origin, module } = stored.clone();
        Ok(Arc::new(PackedModule { name, module, origin, archive }))
    }
}

impl ModuleSource for StoredModules<'_> {
    fn pack(&self, request: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        let answers = &self.index.answers;
        let found = answers.iter().find(|answer| answer.request == *request).ok_or(ModuleRefusal::NotStored)?;
        match (&found.module, &found.refused) {
            (Some(key), _) => self.load(key).map_err(ModuleRefusal::Failed),
            (None, Some(refusal)) => Err(refusal.clone()),
            (None, None) => Err(ModuleRefusal::NotStored),
        }
    }
}

/// The faults of the stored modules of a fleet: a damaged index, an archive that is missing or has
/// another content, a file that the index does not name, an exceeded limit.
pub fn stored_module_faults(files: &FileSet) -> Vec<Fault> {
    let stored = match StoredModules::open(files) {
        Ok(stored) => stored,
        Err(fault) => return vec![fault],
    };
    let mut faults = Vec::new();
    let mut fault = |path: &str, why: &str| {
        faults.push(Fault::error(path, 0, 0, why).hint("remoor apply makes these files; apply the fleet again"));
    };
    if stored.iter().any(|stored| stored.index.answers.len() > LIMITS.requests) {
        fault(INDEX_FILE, "has too many answers");
    }
    let (mut all, mut named) = (0, BTreeSet::from([INDEX_FILE.to_owned()]));
    for (key, module) in stored.iter().flat_map(|stored| &stored.index.modules) {
        let path = archive_path(key);
        let archive = files.get(&path).unwrap_or_default();
        all += archive.len();
        if archive.len() > LIMITS.archive || all > LIMITS.all {
            fault(&path, "exceeds the limits of packed modules");
        } else if Sha256::digest(archive).to_string() != module.module.sha256 {
            fault(&path, "is missing, or is not the module that the index describes");
        }
        named.insert(path);
    }
    for path in files.paths_below(MODULES_DIR).filter(|path| !named.contains(*path)) {
        fault(path, "is not in the index of packed modules");
    }
    faults
}

#[cfg(test)]
mod tests;
