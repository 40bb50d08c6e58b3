//! Stores the results of the last run of a suite in the user's state directory, so that the next
//! run can report the changes.
//!
//! The file contains only hashes: one for the name of each assertion and one for its result. So it
//! contains no text of the machine, and no secret.

use super::bounded_read::{Versioned, read_bounded, regular};
use super::run::SuiteRun;
use super::suite::Suite;
use remoor_check::AssertionOutcome;
use remoor_host::disk::{DiskError, atomic_write};
use remoor_model::{CheckState, Sha256};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Version of the file with the results. Other versions are not read.
const VERSION: u32 = 1;
/// Maximum size of the file with the results, in bytes: about 180,000 assertions.
const FILE_MAX: usize = 16 << 20;
/// Maximum number of stored suites. The suites with the oldest runs are removed first.
const SUITES_MAX: usize = 256;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRun {
    version: u32,
    /// The results: the hash of each assertion's name, with the hash of its result.
    results: BTreeMap<String, String>,
}

/// The results of the last run of a suite, and the file in which they are stored.
#[derive(Debug)]
pub struct LastRun {
    path: PathBuf,
    /// The stored results. None: no last run is known.
    results: Option<BTreeMap<String, String>>,
    /// The reason why the stored run can't be used.
    pub unusable: Option<String>,
}

/// The number of changes since the last run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes {
    /// Number of assertions that are new or have another result than in the last run.
    pub changed: usize,
    /// Number of assertions of the last run that are not in this run.
    pub gone: usize,
}

/// The state directory by the XDG rules: `XDG_STATE_HOME`, or `.local/state` in `HOME`. None:
/// neither variable is an absolute path.
pub fn state_home() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

impl LastRun {
    /// Loads the stored run of `suite` below `state_home`. An unreadable file counts as missing,
    /// but the reason is kept.
    pub fn load(suite: &Suite, state_home: &Path) -> Self {
        let path = state_home.join("remoor/checks").join(format!("{}.json", suite.name));
        match read(&path) {
            Ok(results) => Self { path, results, unusable: None },
            Err(why) => Self { unusable: Some(format!("{}: {why}", path.display())), path, results: None },
        }
    }

    /// Whether no earlier run is known.
    pub fn is_first(&self) -> bool {
        self.results.is_none()
    }

    /// Limits the report of `run` to the changed assertions. None: no last run is known, so the
    /// whole run is reported.
    pub fn compare(&self, run: &mut SuiteRun) -> Option<Changes> {
        let before = self.results.as_ref()?;
        let now = results(run);
        run.told = (0..now.len()).filter(|at| before.get(&now[*at].0) != Some(&now[*at].1)).collect();
        let asked: BTreeMap<String, String> = now.into_iter().collect();
        let gone = before.keys().filter(|name| !asked.contains_key(*name)).count();
        Some(Changes { changed: run.told.len(), gone })
    }

    /// Stores `run` for the next run, with mode 0600.
    pub fn keep(&self, run: &SuiteRun) -> Result<(), DiskError> {
        let failed = |action, error| DiskError::io(action, &self.path)(error);
        let kept = StoredRun { version: VERSION, results: results(run).into_iter().collect() };
        let text = serde_json::to_vec(&kept).map_err(|e| failed("writing", e.into()))?;
        if text.len() > FILE_MAX {
            return Err(failed("writing", io::Error::other(format!("more than {} MiB", FILE_MAX >> 20))));
        }
        if let Some(dir) = self.path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(DiskError::io("creating directory", dir))?;
            forget_oldest(dir, &self.path);
        }
        atomic_write(&self.path, &text, 0o600)
    }
}

/// Name and result of each assertion, in their order. The found value counts only if the assertion
/// does not pass, because a value that changes within its bounds is not a change.
fn results(run: &SuiteRun) -> Vec<(String, String)> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut named = |outcome: &AssertionOutcome| {
        let result = &outcome.result;
        let name = hash(&[result.service.as_str(), &result.check, &result.property]);
        // Two files may contain the same check, so a number is added to the later names.
        let number = seen.entry(name.clone()).or_default();
        *number += 1;
        if *number == 1 { name } else { format!("{name}.{number}") }
    };
    run.outcomes.iter().map(|outcome| (named(outcome), answer(outcome))).collect()
}

fn answer(outcome: &AssertionOutcome) -> String {
    let result = &outcome.result;
    let state = format!("{:?} {:?}", result.state, result.severity);
    match result.state {
        CheckState::Pass | CheckState::Skip => hash(&[&state]),
        CheckState::Fail | CheckState::Unknown | CheckState::Waived => {
            let seen = outcome.seen.map(|Sha256(whole)| hex::encode(whole)).unwrap_or_default();
            hash(&[&state, &result.expected, &result.found, &result.message, &seen])
        }
    }
}

/// A shortened hash. A collision gives an attacker no advantage.
fn hash(parts: &[&str]) -> String {
    let Sha256(whole) = Sha256::digest(serde_json::json!(parts).to_string().as_bytes());
    hex::encode(&whole[..16])
}

/// Reads the stored results. None: the file does not exist. The error is the reason why the file
/// can't be used.
fn read(path: &Path) -> Result<Option<BTreeMap<String, String>>, String> {
    let file = match regular(path, OFlags::NOFOLLOW) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|e| e.to_string())?,
    };
    let bytes = read_bounded(file, FILE_MAX as u64).map_err(|e| e.to_string())?;
    let damaged = |e: serde_json::Error| format!("it is damaged (line {}, column {})", e.line(), e.column());
    let versioned: Versioned = serde_json::from_slice(&bytes).map_err(damaged)?;
    if let Some(why) = versioned.version_mismatch(VERSION) {
        return Err(why);
    }
    let kept: StoredRun = serde_json::from_slice(&bytes).map_err(damaged)?;
    Ok(Some(kept.results))
}

/// Removes the oldest files, so that one more fits. A file that can't be removed stays; it only
/// uses space.
fn forget_oldest(dir: &Path, but: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let ours = |path: &PathBuf| path != but && path.extension().is_some_and(|end| end == "json");
    let mut kept: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(ours)
        .filter_map(|path| Some((fs::symlink_metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    kept.sort();
    for (_, path) in kept.iter().take((kept.len() + 1).saturating_sub(SUITES_MAX)) {
        let _ = fs::remove_file(path);
    }
}
