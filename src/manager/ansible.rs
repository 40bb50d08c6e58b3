//! Provisioner kind `ansible`: the `ansible-playbook` of this manager runs the user's own
//! playbooks. During the run, the executor's session on the node holds the node's fence.
//!
//! ```text
//! ready ──version, syntax──> play ──files.rs──> private folder (0700)
//!   ──ansible-playbook, callback.py──> lines ──callback_events.rs──> events
//! after an early end: leftover_processes.rs ends the remaining processes on the manager
//! ```
//! Processes that a task starts on the node have `REMOOR_ATTEMPT` in their environment. They may
//! survive the end of `ansible-playbook`. The fence of the next attempt finds them by this
//! variable.
//!
//! The caller decides which playbook runs and when. The cleanup check and the verification are the
//! same as for native playbooks.

mod callback_events;
mod files;
mod leftover_processes;

use callback_events::CallbackReader;
use files::{PreparedRun, prepare};
use remoor_config::Fleet;
use remoor_model::{Node, NodeName};
use remoor_playbook::CancelToken;
use remoor_playbook::process::{self, CommandSpec, Finished, SpawnError};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const PROGRAM: &str = "ansible-playbook";
/// The oldest ansible-core that remoor is tested with.
const OLDEST: (u32, u32) = (2, 14);
/// Time limit for `--version` and `--syntax-check`, which start Python and read files.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// One run of a playbook for one node.
pub struct AnsibleRun {
    pub fleet: Arc<Fleet>,
    pub host: String,
    /// The playbook's path relative to the fleet directory.
    pub playbook: String,
    /// The tags of the tasks to run. An empty list runs all tasks.
    pub tags: Vec<String>,
    /// Variables with the highest precedence, for example `remoor_job`.
    pub extra: Map<String, Value>,
    /// Data of the managers about each node, by name.
    pub known: BTreeMap<String, AnsibleNode>,
    pub keys: Keys,
    /// The value of `REMOOR_ATTEMPT` for the processes that the run starts on the node, see
    /// [`Fence::mark`](remoor_model::Fence::mark).
    pub mark: String,
    pub timeout: Duration,
}

/// Private keys that ssh offers to nodes, after the keys of the operator's own ssh configuration.
/// If both lists are empty, only the operator's configuration applies.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    pub with_identity: Vec<PathBuf>,
    pub without_identity: Vec<PathBuf>,
}

/// Data of the managers about a node, in addition to the inventory.
#[derive(Debug, Clone, Default)]
pub struct AnsibleNode {
    /// The recorded address. None if the inventory has an `ansible_host` for the node.
    pub addr: Option<String>,
    pub host_keys: Vec<String>,
    /// The `remoor_*` variables.
    pub vars: Map<String, Value>,
}

impl AnsibleNode {
    pub fn from_node(node: &Node, fleet: &Fleet) -> Self {
        let role = if node.role == remoor_model::ClusterRole::Manager { "manager" } else { "worker" };
        let vars = json!({
            "remoor_node_id": node.id.0,
            "remoor_role": role,
            "remoor_lifecycle": node.lifecycle.as_str(),
        });
        Self {
            addr: node.ip().map(|ip| ip.to_string()).filter(|_| fleet.ansible_host(node.name().as_str()).is_none()),
            host_keys: node.spec.ssh_host_keys.clone(),
            vars: vars.as_object().cloned().unwrap_or_default(),
        }
    }
}

/// The reason why an Ansible run failed.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The run was refused before any task. The fleet or the manager must be changed first.
    #[error("{0}")]
    Plan(String),
    /// No task was run, because the run's folder can't be written.
    #[error("the files for ansible-playbook can't be written")]
    Files(#[from] io::Error),
    /// Tasks may have been run. `rc` is the exit code of the failed task's command. If there is
    /// none, it is the exit code of ansible-playbook. `tail` contains the last output lines.
    #[error("{why}")]
    Failed { why: String, rc: Option<i32>, tail: Vec<String> },
}

/// Cleans up after a crash of the daemon: ends processes of earlier Ansible runs and removes the
/// folders of these runs below `runs`.
pub fn sweep(runs: &Path) {
    let dir = folder(runs);
    for run in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
        leftover_processes::end(&files::run_id(&run.path()));
    }
    if dir.exists()
        && let Err(error) = std::fs::remove_dir_all(&dir)
    {
        tracing::warn!(%error, path = %dir.display(), "files of an earlier ansible-playbook run can't be removed");
    }
}

fn folder(runs: &Path) -> PathBuf {
    runs.join("ansible")
}

/// Creates a folder for one run that only this user can read.
fn private(runs: &Path) -> io::Result<TempDir> {
    let base = folder(runs);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&base)?;
    tempfile::Builder::new().prefix("run-").tempdir_in(&base)
}

/// Checks that `play` could run here: ansible-playbook is installed and not too old. With `syntax`
/// it also checks the syntax of the playbook. Contacts no node. Blocks.
pub fn check_ready(play: &AnsibleRun, syntax: bool, runs: &Path, cancel: &CancelToken) -> Result<(), PlayError> {
    ready_with(PROGRAM, play, syntax, runs, cancel)
}

fn ready_with(
    program: &str,
    play: &AnsibleRun,
    syntax: bool,
    runs: &Path,
    cancel: &CancelToken,
) -> Result<(), PlayError> {
    let argv = vec![program.to_owned(), "--version".to_owned()];
    let job = CommandSpec { argv, timeout: Some(LOOK_TIMEOUT), ..CommandSpec::default() };
    let done = process::run(&job, cancel, &mut |_| {}).map_err(|error| of_spawn(program, &error))?;
    fits(program, &done)?;
    if !syntax {
        return Ok(());
    }
    known_playbook(play)?;
    let dir = private(runs)?;
    let PreparedRun { mut job, hide } = prepare(program, play, dir.path())?;
    job.argv.insert(1, "--syntax-check".to_owned());
    job.timeout = Some(LOOK_TIMEOUT);
    let mut told = CallbackReader::new(files::run_id(dir.path()), play.host.clone(), dir.path().join("fleet"), hide);
    let done = process::run(&job, cancel, &mut |line| drop(told.line(line)));
    let done = done.map_err(|error| of_spawn(program, &error))?;
    if was_stopped(&done) {
        leftover_processes::end(&files::run_id(dir.path()));
        return Err(PlayError::Plan(format!("{}: the syntax check of ansible-playbook did not finish", play.playbook)));
    }
    match done.rc {
        Some(0) => Ok(()),
        _ => Err(PlayError::Plan(format!("{}: ansible-playbook rejects it: {}", play.playbook, told.complaint()))),
    }
}

/// Checks that the Ansible version in the output of `--version` is not too old.
fn fits(program: &str, done: &Finished) -> Result<(), PlayError> {
    if !done.success() {
        let why = done.tail.last().cloned().unwrap_or_else(|| "no output".to_owned());
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

/// Parses the major and minor version from the first line of `ansible-playbook --version`. The
/// forms are `ansible-playbook [core 2.19.1]` and, before ansible-core, `ansible-playbook 2.9.6`.
fn version(line: &str) -> Option<(u32, u32)> {
    let number = line.split_whitespace().last()?.trim_end_matches(']');
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Runs the playbook to its end. `emit` receives events in the same form as those of a native
/// playbook. On timeout or cancellation, all processes that the run started on this manager are
/// ended. Blocks.
pub fn play(
    play: &AnsibleRun,
    runs: &Path,
    cancel: &CancelToken,
    emit: &mut dyn FnMut(Value),
) -> Result<(), PlayError> {
    play_with(PROGRAM, play, runs, cancel, emit)
}

fn play_with(
    program: &str,
    play: &AnsibleRun,
    runs: &Path,
    cancel: &CancelToken,
    emit: &mut dyn FnMut(Value),
) -> Result<(), PlayError> {
    known_playbook(play)?;
    let dir = private(runs)?;
    let PreparedRun { job, hide } = prepare(program, play, dir.path())?;
    let mut told = CallbackReader::new(files::run_id(dir.path()), play.host.clone(), dir.path().join("fleet"), hide);
    let done = process::run(&job, cancel, &mut |line| told.line(line).into_iter().for_each(&mut *emit));
    let done = done.map_err(|error| of_spawn(program, &error))?;
    if was_stopped(&done) {
        leftover_processes::end(&files::run_id(dir.path()));
    }
    told.recap().into_iter().for_each(&mut *emit);
    judge(play, &done, &told)
}

/// Converts the end of ansible-playbook to a result.
fn judge(play: &AnsibleRun, done: &Finished, told: &CallbackReader) -> Result<(), PlayError> {
    let name = &play.playbook;
    let failed = |why: String| Err(PlayError::Failed { why, rc: done.rc, tail: told.tail() });
    if done.timed_out {
        return failed(format!(
            "ansible-playbook took longer than {} s and was ended{}",
            play.timeout.as_secs(),
            told.task_suffix()
        ));
    }
    if done.cancelled {
        return failed(format!("ansible-playbook was cancelled{}", told.task_suffix()));
    }
    match (done.rc, told.failure()) {
        (Some(0), _) if told.matched_no_host() => {
            failed(format!("{name} has no play for {}: nothing was run", play.host))
        }
        (Some(0), _) => Ok(()),
        (_, Some(failure)) => {
            let tail = if failure.tail.is_empty() { told.tail() } else { failure.tail.clone() };
            Err(PlayError::Failed { why: failure.describe(&play.host), rc: failure.rc.or(done.rc), tail })
        }
        // Exit codes of Ansible itself: 1 for an unknown error, 4 for invalid input, 5 for invalid
        // options.
        (Some(1 | 4 | 5), None) if !told.has_begun() => {
            Err(PlayError::Plan(format!("{name}: ansible-playbook rejects it, nothing was run: {}", told.complaint())))
        }
        (Some(rc), None) => failed(format!("{name}: ansible-playbook ended with {rc}: {}", told.complaint())),
        (None, None) => failed(format!("{name}: ansible-playbook was killed{}", told.task_suffix())),
    }
}

/// Whether ansible-playbook was ended early. Processes that it started may then still run.
fn was_stopped(done: &Finished) -> bool {
    done.timed_out || done.cancelled || done.rc.is_none()
}

fn known_playbook(play: &AnsibleRun) -> Result<(), PlayError> {
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

/// Data of the managers about all nodes, by name.
pub fn ansible_nodes<'a>(nodes: impl Iterator<Item = &'a Arc<Node>>, fleet: &Fleet) -> BTreeMap<String, AnsibleNode> {
    nodes.map(|node| (NodeName::to_string(node.name()), AnsibleNode::from_node(node, fleet))).collect()
}

/// Cancels the run when the task that waits for it is dropped.
pub struct EndOnDrop(pub CancelToken);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;
