//! The loop over plays, batches and hosts. The play's `Schedule` decides what happens after a host
//! has ended, and the loop performs it.
//!
//! A host has one session for all of its plays. Between two plays, it waits for the hosts that
//! begin the next play together with it. A problem of one host does not affect the others unless
//! the play says so.

use super::connection::ConnectionFinder;
use super::events::{HostState, PlayRunEvent, PlaySummary};
use super::host::{self, HostResult, PlayContext};
use super::later_plays::NextPlan;
use super::lookups::PlayLookups;
use super::prepare::{Host, PreparedPlay};
use super::recap::Recap;
use super::sockets::ControlSocketDir;
use remoor_exec::STATE_DIR;
use remoor_exec::ssh::{Build, Launch, Remote, RemoteConfig, SshError};
use remoor_exec::wire::PlayOrder;
use remoor_model::Fault;
use remoor_playbook::{BatchVerdict, HostEnd, PlayExchange, PlayKeys, Schedule};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// The ways in which a run stops early, from the least to the most urgent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlayStop {
    #[default]
    Not,
    /// No more hosts are started. Running tasks are finished.
    AfterTask,
    /// No more hosts are started. Running tasks are stopped.
    Now,
    /// Tasks that do not stop are abandoned.
    GiveUp,
}

/// Lets a caller stop a run early. All clones share one state.
#[derive(Debug, Clone)]
pub struct Control {
    ending: Arc<watch::Sender<PlayStop>>,
    urged: Arc<watch::Sender<bool>>,
}

impl Default for Control {
    fn default() -> Self {
        Self { ending: Arc::new(watch::Sender::new(PlayStop::Not)), urged: Arc::new(watch::Sender::new(false)) }
    }
}

impl Control {
    /// Switches to the next more urgent way to stop, and returns it.
    pub fn urge(&self) -> PlayStop {
        let first = !self.urged.send_replace(true);
        self.ending.send_modify(|ending| {
            *ending = match *ending {
                PlayStop::Not => PlayStop::AfterTask,
                // A play caused this stop, so the first request of the user is not more urgent.
                PlayStop::AfterTask if first => PlayStop::AfterTask,
                PlayStop::AfterTask => PlayStop::Now,
                PlayStop::Now | PlayStop::GiveUp => PlayStop::GiveUp,
            };
        });
        *self.ending.borrow()
    }

    /// Whether the user requested the stop.
    fn was_urged(&self) -> bool {
        *self.urged.borrow()
    }

    /// Starts no more hosts, and stops the running hosts after their current tasks. The user did
    /// not request this stop.
    fn stop(&self) {
        self.ending.send_modify(|ending| *ending = PlayStop::AfterTask.max(*ending));
    }

    fn is_stopped(&self) -> bool {
        *self.ending.borrow() != PlayStop::Not
    }
}

/// The limit up to which a host may run its plan.
#[derive(Debug, Clone)]
pub(super) struct Through {
    /// The last play that the host may begin.
    pub play: u32,
    /// Hosts that failed or were unreachable before this play.
    pub lost: Vec<String>,
    /// The plan with which the host continues, if the inventory has changed.
    pub next: Option<Arc<NextPlan>>,
}

/// A message from the task that runs one host to the loop over all hosts.
#[derive(Debug)]
pub(super) enum Progress {
    /// The host has completed this play.
    Played(u32),
    Ended(Box<HostResult>),
}

/// Runs all hosts to their ends. Sends all events to `tell` as they occur. The summary is the last
/// event and is also returned. If the reader is slow, the hosts wait.
pub async fn run(prepared: PreparedPlay, control: &Control, tell: mpsc::Sender<PlayRunEvent>) -> PlaySummary {
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
        through: None,
        lost: Vec::new(),
    };
    let (progress, news) = mpsc::unbounded_channel();
    let (order, ending, diff) = (Arc::new(order), control.ending.subscribe(), request.diff);
    let connections = Arc::clone(&prepared.connections);
    let (once, limits, values) = (Arc::default(), Arc::default(), Arc::default());
    let (lookups, changes) = (Arc::new(PlayLookups::of_play(&prepared)), prepared.changes.clone());
    let playbook_dir = prepared.playbook.parent().unwrap_or(&prepared.root).into();
    let shared = PlayContext {
        remote,
        order,
        connections,
        changes,
        once,
        limits,
        values,
        lookups,
        playbook_dir,
        diff,
        ending,
        tell,
        progress,
    };
    shared
        .send(PlayRunEvent::RunStart {
            playbook: request.playbook.display().to_string(),
            hosts: prepared.hosts(),
            check: request.check,
            diff: request.diff,
            forks,
        })
        .await;
    // A single host has no other host to wait for between two plays.
    let alone = prepared.hosts.len() == 1 && prepared.changes.is_none();
    let waiting = prepared.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
    let mut hosts = Loop {
        shared: shared.clone(),
        control: control.clone(),
        forks,
        alone,
        waiting,
        running: BTreeMap::new(),
        tasks: JoinSet::new(),
        names: BTreeMap::new(),
        forgiving: false,
        news,
        summary: PlaySummary::default(),
    };
    hosts.plays(prepared.plays.into()).await;
    let mut summary = hosts.end().await;
    summary.interrupted = control.was_urged();
    summary.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    shared.send(PlayRunEvent::RunEnd(summary.clone())).await;
    summary
}

struct RunningHost {
    through: watch::Sender<Through>,
    /// The last play of the host.
    last: u32,
    /// The host with the plan that it runs.
    host: Host,
    /// The host with the plan with which it continues when its next play begins.
    next: Option<Host>,
}

impl RunningHost {
    /// Lets the host begin the play `play`, if necessary with its new plan.
    fn allow(&mut self, play: u32, lost: Vec<String>, connections: &Arc<ConnectionFinder>) {
        let next = self.next.take().map(|host| {
            self.host = host.clone();
            Arc::new(NextPlan { host, connections: Arc::clone(connections), from_play: play })
        });
        self.through.send_replace(Through { play, lost, next });
    }
}

struct Loop {
    shared: PlayContext,
    control: Control,
    forks: usize,
    alone: bool,
    /// Hosts that were not started.
    waiting: BTreeMap<String, Host>,
    /// Hosts that were started and have not ended.
    running: BTreeMap<String, RunningHost>,
    tasks: JoinSet<()>,
    names: BTreeMap<tokio::task::Id, String>,
    /// Whether the current play ignores unreachable hosts (`ignore_unreachable`).
    forgiving: bool,
    news: mpsc::UnboundedReceiver<(String, Progress)>,
    summary: PlaySummary,
}

impl Loop {
    async fn plays(&mut self, mut plays: VecDeque<(PlayKeys, Vec<String>)>) {
        let mut lost = BTreeSet::new();
        while let Some((keys, hosts)) = plays.pop_front() {
            // A host that has ended, in any way, does not run the later plays.
            lost.extend(self.summary.states.keys().cloned());
            self.forgiving = keys.ignore_unreachable;
            let mut schedule = Schedule::new(&keys, hosts, &lost);
            let batches: Vec<Vec<String>> =
                schedule.batches().iter().map(|batch| batch.iter().map(|host| (*host).to_owned()).collect()).collect();
            self.shared
                .send(PlayRunEvent::PlayStart { play: keys.index, name: keys.name.clone(), hosts: batches.concat() })
                .await;
            for batch in batches {
                self.batch(keys.index, batch, &mut schedule).await;
                if self.control.is_stopped() {
                    return;
                }
            }
            lost = schedule.lost_hosts();
            if let Some(later) = self.compile_later_plays(keys.index + 1).await {
                plays = later.into_iter().filter(|(later, _)| later.index > keys.index).collect();
            }
        }
    }

    /// Compiles the plays again if a task has changed the inventory. Hosts that have begun get
    /// their new plans when their next plays begin. Returns all plays. None: nothing has changed,
    /// or the run ends.
    async fn compile_later_plays(&mut self, from_play: u32) -> Option<Vec<(PlayKeys, Vec<String>)>> {
        let changes = Arc::clone(self.shared.changes.as_ref()?);
        let compiled = tokio::task::spawn_blocking(move || changes.compile(from_play)).await;
        let prepared = compiled.unwrap_or_else(|e| Some(Err(vec![Fault::error("inventory", 0, 0, e.to_string())])))?;
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(faults) => {
                let why = faults.iter().find(|fault| !fault.warning).map(ToString::to_string).unwrap_or_default();
                self.summary.stopped.get_or_insert(format!("the changed inventory cannot be used: {why}"));
                self.control.stop();
                return None;
            }
        };
        self.shared.connections = Arc::clone(&prepared.connections);
        let mut hosts: BTreeMap<String, Host> =
            prepared.hosts.into_iter().map(|host| (host.name.clone(), host)).collect();
        for (name, running) in &mut self.running {
            let next = hosts.remove(name).unwrap_or_else(|| {
                // The later plays do not select the host any more.
                let mut host = running.host.clone();
                let plan = Arc::make_mut(&mut host.plan);
                plan.plays.retain(|play| play.index < from_play);
                plan.wait_for_inventory();
                host
            });
            running.last = if next.fault.is_some() { u32::MAX } else { next.plan.last_play() };
            running.next = Some(next);
        }
        for host in hosts.values_mut() {
            Arc::make_mut(&mut host.plan).plays.retain(|play| play.index >= from_play);
        }
        let is_new = |name: &String, host: &Host| {
            !self.summary.states.contains_key(name) && (host.fault.is_some() || host.plan.last_play() >= from_play)
        };
        hosts.retain(|name, host| is_new(name, host));
        self.waiting = hosts;
        Some(prepared.plays)
    }

    /// Runs one batch of a play until its last host has ended.
    async fn batch(&mut self, play: u32, batch: Vec<String>, schedule: &mut Schedule) {
        let hosts = batch.iter().filter(|name| self.running.contains_key(*name) || self.waiting.contains_key(*name));
        let hosts: Vec<String> = hosts.cloned().collect();
        self.shared.values.begin_batch(self.exchanges(play, &hosts));
        self.shared.once.begin_batch(hosts);
        let mut queue: VecDeque<String> = batch.into();
        let mut busy = BTreeSet::new();
        loop {
            let values = Arc::clone(&self.shared.values);
            let mut changed = std::pin::pin!(values.next_change());
            changed.as_mut().enable();
            // A host that waits for the values of others must not keep them from being started.
            while busy.len() < self.forks + self.shared.values.count_waiting()
                && !self.control.is_stopped()
                && let Some(name) = queue.pop_front()
            {
                self.begin(&name, play);
                busy.insert(name);
            }
            if busy.is_empty() {
                return;
            }
            let next = tokio::select! {
                next = self.next(play) => next,
                () = changed, if !queue.is_empty() => continue,
            };
            let Some((name, end)) = next else { return };
            busy.remove(&name);
            if let BatchVerdict::Stop(why) = schedule.host_ended(&name, end) {
                let more = queue.len() + busy.len() + self.running.len() + self.waiting.len() > 0;
                if more {
                    self.summary.stopped.get_or_insert(why);
                }
                self.control.stop();
            } else {
                self.shared.once.end_host(&name);
                self.shared.values.end_host(&name);
            }
        }
    }

    /// What each host exchanges with the others in a play.
    fn exchanges(&self, play: u32, hosts: &[String]) -> Vec<(String, Option<PlayExchange>)> {
        let exchange = |name: &String| {
            let running = self.running.get(name).map(|running| running.next.as_ref().unwrap_or(&running.host));
            let plan = &running.or_else(|| self.waiting.get(name))?.plan;
            plan.exchange_of(plan.plays.iter().find(|one| one.index == play)?)
        };
        hosts.iter().map(|name| (name.clone(), exchange(name))).collect()
    }

    /// Lets a host begin a play. The first play of a host starts its session.
    fn begin(&mut self, name: &str, play: u32) {
        let ended = self.summary.states.iter();
        let lost = ended.filter(|(_, state)| !matches!(state, HostState::Done | HostState::Cancelled));
        let lost = lost.map(|(name, _)| name.clone()).collect();
        let connections = &self.shared.connections;
        if let Some(running) = self.running.get_mut(name) {
            running.allow(play, lost, connections);
        } else if let Some(host) = self.waiting.remove(name) {
            let play = if self.alone { u32::MAX } else { play };
            let (sender, receiver) = watch::channel(Through { play, lost, next: None });
            let last = host.plan.last_play();
            let task = self.tasks.spawn(host::play(host.clone(), self.shared.clone(), receiver));
            self.names.insert(task.id(), name.to_owned());
            self.running.insert(name.to_owned(), RunningHost { through: sender, last, host, next: None });
        }
    }

    /// The next host that has completed `play`, and its result. None: no host runs.
    async fn next(&mut self, play: u32) -> Option<(String, HostEnd)> {
        loop {
            if self.running.is_empty() && self.news.is_empty() {
                return None;
            }
            tokio::select! {
                biased;
                news = self.news.recv() => match news? {
                    (name, Progress::Played(through)) if through == play => return Some((name, HostEnd::Done)),
                    (_, Progress::Played(_)) => {}
                    (name, Progress::Ended(ended)) => {
                        let end = match ended.state {
                            HostState::Done => HostEnd::Done,
                            HostState::Unreachable => HostEnd::Unreachable,
                            _ => HostEnd::Failed { everyone: ended.fatal },
                        };
                        self.note(&name, &ended);
                        return Some((name, end));
                    }
                },
                Some(joined) = self.tasks.join_next_with_id() => {
                    // This is an internal error of this process. The run on the host stops after
                    // its current task.
                    if let Err(e) = joined
                        && let Some(name) = self.names.get(&e.id()).cloned()
                    {
                        self.note(&name, &HostResult::defect());
                        return Some((name, HostEnd::Failed { everyone: false }));
                    }
                }
            }
        }
    }

    fn note(&mut self, name: &str, ended: &HostResult) {
        self.running.remove(name);
        let (mut recap, mut state) = (ended.recap, ended.state);
        if state == HostState::Unreachable && self.forgiving {
            (recap, state) = (Recap { skipped: 1, ignored: 1, ..Recap::default() }, HostState::Cancelled);
        }
        // As in Ansible, the recap leaves out a host on which nothing began.
        if state != HostState::Cancelled || recap != Recap::default() {
            self.summary.recap.insert(name.to_owned(), recap);
        }
        self.summary.states.insert(name.to_owned(), state);
    }

    /// Waits for the hosts that still run, and reports the hosts that were never started.
    async fn end(mut self) -> PlaySummary {
        for running in self.running.values_mut().filter(|_| self.shared.changes.is_some()) {
            let Through { play, lost, .. } = running.through.borrow().clone();
            // The host has no further play, and waits for the end of the run.
            if running.last <= play {
                running.next = running.next.take().filter(|_| running.host.plan.last_play() > play);
                running.allow(u32::MAX, lost, &self.shared.connections);
            }
        }
        // Running hosts end on their own. A host that waits for its next play would wait forever,
        // so it is stopped.
        if self.running.values().any(|running| running.last > running.through.borrow().play) {
            self.control.stop();
        }
        while self.next(u32::MAX).await.is_some() {}
        for (name, host) in std::mem::take(&mut self.waiting) {
            let ended = host::not_begun(&host, &self.shared).await;
            self.note(&name, &ended);
        }
        self.summary
    }
}

/// The SSH client, or None if no host needs one. The directory contains control sockets and is
/// removed after the run.
fn remote(prepared: &PreparedPlay) -> Result<(Option<Arc<Remote>>, Option<ControlSocketDir>), SshError> {
    if prepared.is_local() && !prepared.delegates() && prepared.changes.is_none() {
        return Ok((None, None));
    }
    let local = |e: std::io::Error| SshError::Local(e.to_string());
    // The directory has a short path, because the length of a socket path is limited.
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute() && dir.is_dir());
    let place = runtime.unwrap_or_else(|| PathBuf::from("/tmp"));
    let dir = ControlSocketDir::new_in(&place).map_err(local)?;
    let config = RemoteConfig {
        control_dir: dir.path().to_owned(),
        builds: vec![Build::of_this_program().map_err(local)?],
        launch: Launch::Personal,
        state_dir: STATE_DIR.to_owned(),
        arguments: vec!["exec".to_owned(), "-".to_owned()],
    };
    Ok((Some(Arc::new(Remote::new(config)?)), Some(dir)))
}

/// A unique id of this run, for audit lines and for the lock of a node. All sessions of the run
/// share the lock.
fn run_id() -> String {
    let mut random = [0; 16];
    if getrandom::fill(&mut random).is_err() {
        random[..4].copy_from_slice(&std::process::id().to_be_bytes());
    }
    format!("{}-{}", jiff::Timestamp::now().as_second(), hex::encode(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_of_one_process_in_one_second_are_two() {
        let ids: BTreeSet<String> = (0..4).map(|_| run_id()).collect();
        assert_eq!(ids.len(), 4);
    }
}
