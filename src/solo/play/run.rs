//! The loop over the hosts: so many at once as are asked for; what happens to one is not the others' business.

use super::host::{self, Ended, Shared};
use super::prepare::Prepared;
use super::told::{Summary, Told};
use crate::exec::STATE_DIR;
use crate::exec::wire::PlayOrder;
use crate::ssh::{Build, Launch, Remote, RemoteConfig, SshError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How a run is to end early.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    #[default]
    Not,
    /// No host is begun; tasks that are under way are finished.
    AfterTask,
    /// These are ended too.
    Now,
    /// Nobody waits for what does not end.
    GiveUp,
}

/// From outside a run: how it is to end early. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Control(Arc<watch::Sender<Ending>>);

impl Default for Control {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Ending::Not)))
    }
}

impl Control {
    /// The next more urgent ending; says which.
    pub fn urge(&self) -> Ending {
        self.0.send_modify(|ending| {
            *ending = match *ending {
                Ending::Not => Ending::AfterTask,
                Ending::AfterTask => Ending::Now,
                Ending::Now | Ending::GiveUp => Ending::GiveUp,
            };
        });
        *self.0.borrow()
    }
}

/// Runs all hosts to their ends. What happens is told to `tell` as it comes, last the summary, which is returned too. On a
/// runtime of several threads.
pub async fn run(prepared: Prepared, control: &Control, tell: mpsc::Sender<Told>) -> Summary {
    let begun = Instant::now();
    let request = &prepared.request;
    let forks = request.forks.max(1);
    let (remote, _sockets) = match remote(&prepared) {
        Ok((remote, dir)) => (Ok(remote), dir),
        Err(e) => (Err(e), None),
    };
    let order = PlayOrder {
        plan: Vec::new(),
        name: prepared.playbook.display().to_string(),
        run_id: run_id(),
        tags: request.tags.clone(),
        check: request.check,
        force: request.force,
    };
    let shared =
        Shared { remote, order: Arc::new(order), diff: request.diff, ending: control.0.subscribe(), tell: tell.clone() };
    shared.say(Told::RunStart {
        playbook: request.playbook.display().to_string(),
        hosts: prepared.hosts(),
        check: request.check,
        diff: request.diff,
        forks,
    });
    let mut summary = Summary::default();
    let mut hosts = prepared.hosts.into_iter();
    let mut running: JoinSet<(String, Ended)> = JoinSet::new();
    let mut names = BTreeMap::new();
    loop {
        while running.len() < forks
            && let Some(next) = hosts.next()
        {
            let name = next.name.clone();
            let task = running.spawn(host::play(next, shared.clone()));
            names.insert(task.id(), name);
        }
        match running.join_next_with_id().await {
            None => break,
            Some(Ok((_, (name, ended)))) => summary.note(name, &ended),
            // A defect of this side; what runs on that host stops after its task.
            Some(Err(e)) => {
                let name = names.get(&e.id()).cloned().unwrap_or_default();
                summary.note(name, &Ended::defect());
            }
        }
    }
    summary.interrupted = *control.0.borrow() != Ending::Not;
    summary.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    shared.say(Told::RunEnd(summary.clone()));
    summary
}

impl Summary {
    fn note(&mut self, name: String, ended: &Ended) {
        self.recap.insert(name.clone(), ended.recap);
        self.states.insert(name, ended.state);
    }
}

/// What logs in; None where nobody is logged in to. The directory holds control sockets, and goes with the run.
fn remote(prepared: &Prepared) -> Result<(Option<Arc<Remote>>, Option<TempDir>), SshError> {
    if prepared.is_local() {
        return Ok((None, None));
    }
    let local = |e: std::io::Error| SshError::Local(e.to_string());
    // Short, for the sockets in it.
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && dir.is_dir());
    let place = runtime.unwrap_or_else(|| PathBuf::from("/tmp"));
    let dir = tempfile::Builder::new().prefix("remoor-").tempdir_in(&place).map_err(local)?;
    let config = RemoteConfig {
        control_dir: dir.path().to_owned(),
        builds: vec![Build::own().map_err(local)?],
        launch: Launch::Upload,
        state_dir: STATE_DIR.to_owned(),
        arguments: vec!["exec".to_owned(), "-".to_owned()],
    };
    Ok((Some(Arc::new(Remote::new(config)?)), Some(dir)))
}

/// What this run is called in audit lines: when it began, and by which process.
fn run_id() -> String {
    format!("{}-{}", jiff::Timestamp::now().as_second(), std::process::id())
}
