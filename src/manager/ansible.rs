//! Provisioner kind `ansible`: the user's own playbooks, run by this manager's `ansible-playbook` while the executor's session
//! holds the node's fence.
//!
//! ```text
//! ready ──version, syntax──>   play ──files.rs──> a folder (0700) ──ansible-playbook──> lines ──told.rs──> events
//!                                                                  └─callback.py       what is left of it: left.rs
//! ```
//! What a task starts on the node has `REMOOR_ATTEMPT` in its environment, by which the next attempt's fence finds it: it
//! runs on when `ansible-playbook` is ended here.
//!
//! Not here: what is run when, and whether it did what it should; cleaned check and verification are the same for all.

mod files;
mod left;
mod told;

use crate::config::Fleet;
use crate::model::{Node, NodeName};
use crate::playbook::Cancel;
use crate::playbook::process::{self, Finished, Job, SpawnError};
use files::{Prepared, prepare};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use told::Told;

const PROGRAM: &str = "ansible-playbook";
/// The oldest ansible-core that this is tried with.
const OLDEST: (u32, u32) = (2, 14);
/// For `--version` and for `--syntax-check`, which start Python and read files.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// One run of a playbook on one node.
pub struct Play {
    pub fleet: Arc<Fleet>,
    pub host: String,
    /// Relative to the fleet directory.
    pub playbook: String,
    /// Empty: everything.
    pub tags: Vec<String>,
    /// Strongest variables: `remoor_job` and its kin.
    pub extra: Map<String, Value>,
    /// What the managers know of each node, for its variables.
    pub known: BTreeMap<String, Known>,
    pub keys: Keys,
    /// Says on the node whose processes they are, see [`Fence::mark`](crate::model::Fence::mark).
    pub mark: String,
    pub timeout: Duration,
}

/// Private keys that ssh is offered after all that the operator's configuration names; none: that alone holds.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    pub with_identity: Vec<PathBuf>,
    pub without_identity: Vec<PathBuf>,
}

/// What the managers know of a node beyond the inventory.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Where it is entered, unless the inventory has an `ansible_host` for it.
    pub addr: Option<String>,
    pub host_keys: Vec<String>,
    /// `remoor_*` variables.
    pub vars: Map<String, Value>,
}

impl Known {
    pub fn of(node: &Node, fleet: &Fleet) -> Self {
        let role = if node.role == crate::model::ClusterRole::Manager { "manager" } else { "worker" };
        let vars = json!({
            "remoor_node_id": node.id.0,
            "remoor_role": role,
            "remoor_lifecycle": node.lifecycle.word(),
        });
        Self {
            addr: node.ip().map(|ip| ip.to_string()).filter(|_| fleet.ansible_host(node.name().as_str()).is_none()),
            host_keys: node.spec.ssh_host_keys.clone(),
            vars: vars.as_object().cloned().unwrap_or_default(),
        }
    }
}

/// Why the node is not as the playbook wants it.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// Nothing was run: fleet or manager must be changed first.
    #[error("{0}")]
    Plan(String),
    /// Nothing was run: the folder can't be written.
    #[error("the files for ansible-playbook can't be written")]
    Files(#[from] io::Error),
    /// Tasks may have been done. `rc`: of the failed task's command, else of ansible-playbook; `tail`: the last lines.
    #[error("{why}")]
    Failed { why: String, rc: Option<i32>, tail: Vec<String> },
}

/// Folder for the runs below the attempts' logs. What a crash left in it is removed, and what it left running is ended.
pub fn sweep(runs: &Path) {
    let dir = folder(runs);
    for run in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
        left::end(&files::word(&run.path()));
    }
    if dir.exists()
        && let Err(error) = std::fs::remove_dir_all(&dir)
    {
        tracing::warn!(%error, path = %dir.display(), "what an earlier run of ansible-playbook left can't be removed");
    }
}

fn folder(runs: &Path) -> PathBuf {
    runs.join("ansible")
}

/// A folder of its own for one run.
fn private(runs: &Path) -> io::Result<TempDir> {
    let base = folder(runs);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&base)?;
    tempfile::Builder::new().prefix("run-").tempdir_in(&base)
}

/// Whether `play` could be run here: this manager's ansible-playbook is there and not too old, and with `syntax` it finds
/// nothing wrong with the playbook before a task. Blocking; nothing is contacted.
pub fn ready(play: &Play, syntax: bool, runs: &Path, cancel: &Cancel) -> Result<(), PlayError> {
    ready_with(PROGRAM, play, syntax, runs, cancel)
}

fn ready_with(program: &str, play: &Play, syntax: bool, runs: &Path, cancel: &Cancel) -> Result<(), PlayError> {
    let argv = vec![program.to_owned(), "--version".to_owned()];
    let job = Job { argv, timeout: Some(LOOK_TIMEOUT), ..Job::default() };
    let done = process::run(&job, cancel, &mut |_| {}).map_err(|error| of_spawn(program, &error))?;
    fits(program, &done)?;
    if !syntax {
        return Ok(());
    }
    known_playbook(play)?;
    let dir = private(runs)?;
    let Prepared { mut job, hide } = prepare(program, play, dir.path())?;
    job.argv.insert(1, "--syntax-check".to_owned());
    job.timeout = Some(LOOK_TIMEOUT);
    let mut told = Told::new(files::word(dir.path()), play.host.clone(), dir.path().join("fleet"), hide);
    let done = process::run(&job, cancel, &mut |line| drop(told.line(line)));
    let done = done.map_err(|error| of_spawn(program, &error))?;
    if stopped(&done) {
        left::end(&files::word(dir.path()));
        return Err(PlayError::Plan(format!("{}: ansible-playbook could not check it in time", play.playbook)));
    }
    match done.rc {
        Some(0) => Ok(()),
        _ => Err(PlayError::Plan(format!("{}: ansible-playbook refuses it: {}", play.playbook, told.complaint()))),
    }
}

/// Whether what `--version` said is of one that is new enough.
fn fits(program: &str, done: &Finished) -> Result<(), PlayError> {
    if !done.success() {
        let why = done.tail.last().cloned().unwrap_or_else(|| "it says nothing".to_owned());
        return Err(PlayError::Plan(format!("`{program} --version` fails on this manager: {why}; next: {INSTALL}")));
    }
    let first = done.stdout.lines().next().unwrap_or_default();
    match version(first) {
        Some(found) if found >= OLDEST => Ok(()),
        found => {
            let found = found.map_or_else(|| format!("`{first}`"), |(major, minor)| format!("{major}.{minor}"));
            Err(PlayError::Plan(format!(
                "this manager's {program} is {found}, and remoor needs ansible-core {}.{} or newer; next: {INSTALL}",
                OLDEST.0, OLDEST.1
            )))
        }
    }
}

const INSTALL: &str = "apt-get install ansible-core on every manager";

/// Major and minor of what `--version` says first: `ansible-playbook [core 2.19.1]`, and `ansible-playbook 2.9.6` before
/// there was a core.
fn version(line: &str) -> Option<(u32, u32)> {
    let number = line.split_whitespace().last()?.trim_end_matches(']');
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Runs it to its end; `emit` gets its events, as a native run has them. Blocking. On timeout and cancel everything that it
/// started on this manager is ended.
pub fn play(play: &Play, runs: &Path, cancel: &Cancel, emit: &mut dyn FnMut(Value)) -> Result<(), PlayError> {
    play_with(PROGRAM, play, runs, cancel, emit)
}

fn play_with(
    program: &str,
    play: &Play,
    runs: &Path,
    cancel: &Cancel,
    emit: &mut dyn FnMut(Value),
) -> Result<(), PlayError> {
    known_playbook(play)?;
    let dir = private(runs)?;
    let Prepared { job, hide } = prepare(program, play, dir.path())?;
    let mut told = Told::new(files::word(dir.path()), play.host.clone(), dir.path().join("fleet"), hide);
    let done = process::run(&job, cancel, &mut |line| told.line(line).into_iter().for_each(&mut *emit));
    let done = done.map_err(|error| of_spawn(program, &error))?;
    if stopped(&done) {
        left::end(&files::word(dir.path()));
    }
    told.recap().into_iter().for_each(&mut *emit);
    judge(play, &done, &told)
}

/// What the end of ansible-playbook means.
fn judge(play: &Play, done: &Finished, told: &Told) -> Result<(), PlayError> {
    let name = &play.playbook;
    let failed = |why: String| Err(PlayError::Failed { why, rc: done.rc, tail: told.tail() });
    if done.timed_out {
        return failed(format!(
            "ansible-playbook took longer than {} s and was ended{}",
            play.timeout.as_secs(),
            told.at()
        ));
    }
    if done.cancelled {
        return failed(format!("ansible-playbook was ended before its time{}", told.at()));
    }
    match (done.rc, told.failure()) {
        (Some(0), _) if told.reached_nobody() => {
            failed(format!("{name} has no play for {}: nothing was run", play.host))
        }
        (Some(0), _) => Ok(()),
        (_, Some(failure)) => {
            let tail = if failure.tail.is_empty() { told.tail() } else { failure.tail.clone() };
            Err(PlayError::Failed { why: failure.words(&play.host), rc: failure.rc.or(done.rc), tail })
        }
        // Errors of its own: of any kind, in what it reads, in how it was called.
        (Some(1 | 4 | 5), None) if !told.begun() => {
            Err(PlayError::Plan(format!("{name}: ansible-playbook refuses it, nothing was run: {}", told.complaint())))
        }
        (Some(rc), None) => failed(format!("{name}: ansible-playbook ended with {rc}: {}", told.complaint())),
        (None, None) => failed(format!("{name}: ansible-playbook was killed{}", told.at())),
    }
}

/// Whether it was ended, so that what it started may still be there.
fn stopped(done: &Finished) -> bool {
    done.timed_out || done.cancelled || done.rc.is_none()
}

fn known_playbook(play: &Play) -> Result<(), PlayError> {
    match play.fleet.files.get(&play.playbook) {
        Some(_) => Ok(()),
        None => Err(PlayError::Plan(format!("the fleet has no file {}", play.playbook))),
    }
}

fn of_spawn(program: &str, error: &SpawnError) -> PlayError {
    match error {
        SpawnError::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => PlayError::Plan(format!(
            "this manager has no {program}, which the group's `provisioner: ansible` needs; next: {INSTALL}"
        )),
        SpawnError::Start { source, .. } => PlayError::Plan(format!("{program} can't be started: {source}")),
        SpawnError::Empty => PlayError::Plan(error.to_string()),
    }
}

/// Names and knowledge of all nodes.
pub fn known<'a>(nodes: impl Iterator<Item = &'a Arc<Node>>, fleet: &Fleet) -> BTreeMap<String, Known> {
    nodes.map(|node| (NodeName::to_string(node.name()), Known::of(node, fleet))).collect()
}

/// Ends the run when whoever waits for it is dropped.
pub struct EndOnDrop(pub Cancel);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;
