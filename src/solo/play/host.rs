//! One host: a session, its events as they arrive, and its end. Any error of the session concerns
//! only this host.

use super::prepare::Host;
use super::road::{Road, usual_state_dir};
use super::run::{Ending, Progress, Through};
use super::tally::{Counted, Recap, Tally};
use super::told::{FailureView, HostState, TaskView, Told};
use remoor_exec::ssh::{Remote, Session, SshError, here};
use remoor_exec::wire::{Order, PlayOrder, Reply};
use serde::Deserialize;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// A run has no time limit of its own; the executor needs some number.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum number of events that were read but not reported yet. More stay in the session and slow
/// the run down.
const EVENTS: usize = 64;

/// The values shared by all hosts of a run.
#[derive(Clone)]
pub(super) struct Shared {
    /// Err: no host can be reached.
    pub remote: Result<Option<Arc<Remote>>, SshError>,
    pub order: Arc<PlayOrder>,
    pub diff: bool,
    pub ending: watch::Receiver<Ending>,
    pub tell: mpsc::Sender<Told>,
    /// At most one message for each play of each host.
    pub progress: mpsc::UnboundedSender<(String, Progress)>,
}

/// The end of a host's run.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub state: HostState,
    pub recap: Recap,
    pub message: Option<String>,
    pub failure: Option<FailureView>,
    pub owed: Vec<String>,
    /// Caused by a task whose failure stops all hosts.
    pub fatal: bool,
}

impl Ended {
    fn early(state: HostState, message: impl Into<String>) -> Self {
        let recap = match state {
            HostState::Unreachable => Recap { unreachable: 1, ..Recap::default() },
            HostState::Refused => Recap { failed: 1, ..Recap::default() },
            HostState::Unknown => Recap { unknown: 1, ..Recap::default() },
            HostState::Done | HostState::Failed | HostState::Cancelled => Recap::default(),
        };
        Self { state, recap, message: Some(message.into()), failure: None, owed: Vec::new(), fatal: false }
    }

    /// An internal error on this side.
    pub fn defect() -> Self {
        Self::early(HostState::Unknown, "defect of remoor")
    }
}

/// Runs the host's plan as far as `through` allows, and reports everything.
pub(super) async fn play(host: Host, mut shared: Shared, through: watch::Receiver<Through>) {
    let begun = Instant::now();
    let (name, connection) = (host.name.clone(), host.road.word().to_owned());
    shared.say(Told::HostStart { host: name, connection }).await;
    let ended = session(&host, &mut shared, through).await;
    told(&host, &ended, begun, &shared).await;
    let _nobody_waits = shared.progress.send((host.name, Progress::Ended(Box::new(ended))));
}

/// The end of a host for which no play was started.
pub(super) async fn not_begun(host: &Host, shared: &Shared) -> Ended {
    let ended = Ended::early(HostState::Cancelled, "not begun");
    told(host, &ended, Instant::now(), shared).await;
    ended
}

async fn told(host: &Host, ended: &Ended, begun: Instant, shared: &Shared) {
    let Ended { state, recap, message, failure, owed, .. } = ended.clone();
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    shared.say(Told::HostEnd { host: host.name.clone(), state, recap, message, failure, owed, took_ms }).await;
}

async fn session(host: &Host, shared: &mut Shared, mut through: watch::Receiver<Through>) -> Ended {
    let plan = match rmp_serde::to_vec_named(&host.plan) {
        Ok(plan) => plan,
        Err(e) => return Ended::early(HostState::Failed, format!("the plan can't be sent: {e}")),
    };
    let mut ending = shared.ending.clone();
    let opened = tokio::select! {
        opened = open(host, shared) => opened,
        // Nothing runs on the host yet, so nothing is lost.
        _ = ending.wait_for(|ending| *ending != Ending::Not) => return Ended::early(HostState::Cancelled, "not begun"),
    };
    let mut session = match opened {
        Ok(session) => session,
        Err(e) => return Ended::early(HostState::Unreachable, unreachable(&e)),
    };
    let mut heard = Heard { host: host.name.clone(), shared: shared.clone(), tally: Tally::default(), any: false };
    let Through { play, lost } = through.borrow_and_update().clone();
    let order = Order::Play(PlayOrder { plan, through: Some(play), lost, ..(*shared.order).clone() });
    let reply = ordered(&mut session, order, &mut heard, &mut ending, &mut through).await;
    session.close().await;
    heard.end(reply)
}

async fn open(host: &Host, shared: &Shared) -> Result<Session, SshError> {
    match (&host.road, &shared.remote) {
        (Road::Here { named }, _) => {
            // The real path, not /proc/self: with sudo that would be another program.
            let own = std::env::current_exe().map_err(|e| SshError::Local(format!("this program's own path: {e}")))?;
            let state_dir = named.clone().or_else(|| usual_state_dir(host.sudo));
            let state_dir = state_dir
                .ok_or_else(|| SshError::Local("HOME is not set to a directory for the state of a run".to_owned()))?;
            let sudo = ["sudo", "-n", "--"].iter().filter(|_| host.sudo).map(OsString::from);
            let mut program: Vec<OsString> = sudo.collect();
            program.extend([own.into(), "exec".into(), "-".into()]);
            program.extend(["--state-dir".into(), state_dir.into()]);
            here(&program).await
        }
        (Road::There(target), Ok(Some(remote))) => remote.open(target).await,
        (Road::There(_), Err(e)) => Err(e.clone()),
        (Road::There(_), Ok(None)) => Err(SshError::Local("no place for control sockets".to_owned())),
    }
}

/// Runs `order` and returns its final reply. Meanwhile it forwards which plays may begin, and
/// requests to stop early.
async fn ordered(
    session: &mut Session,
    order: Order,
    heard: &mut Heard,
    ending: &mut watch::Receiver<Ending>,
    through: &mut watch::Receiver<Through>,
) -> Result<Reply, SshError> {
    let canceller = session.canceller();
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut running = std::pin::pin!(session.order_into(order, &sender, FOREVER));
    let reply = loop {
        tokio::select! {
            reply = &mut running => break reply,
            Some(event) = events.recv() => heard.event(event).await,
            Ok(()) = through.changed() => {
                let Through { play, lost } = through.borrow_and_update().clone();
                canceller.go(play, lost).await;
            }
            Ok(()) = ending.changed() => {
                let now = *ending.borrow_and_update();
                match now {
                    Ending::Not => {}
                    Ending::AfterTask => canceller.cancel(false).await,
                    Ending::Now => canceller.cancel(true).await,
                    Ending::GiveUp => break Err(SshError::Lost("not waited for any longer".to_owned())),
                }
            }
        }
    };
    while let Ok(event) = events.try_recv() {
        heard.event(event).await;
    }
    reply
}

/// The error, with what the user can do about it.
fn unreachable(error: &SshError) -> String {
    match error {
        SshError::Auth(said) if said.contains("sudo") => {
            format!("{error}; remoor asks sudo once, without a password: NOPASSWD in sudoers, or log in as root")
        }
        SshError::HostKeyChanged { offered: Some(offered), .. } => {
            format!(
                "its host key ({offered}) differs from the one in known_hosts: it was reinstalled, or it is another \
                 host; nothing was sent"
            )
        }
        SshError::HostKeyChanged { offered: None, .. } => {
            "its host key is not in known_hosts; verify the key, then log in once with ssh, or add it with ssh-keyscan"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// The error that interrupted a run, in the executor or the connection, with what the user can do
/// about it.
fn interrupted(error: &SshError) -> String {
    match error {
        SshError::Ended(_) => format!("{error}; check the host's kernel log for the cause, then play again"),
        SshError::Lost(_) => {
            format!("{error}; the run there ends after its task, play again once the host answers")
        }
        _ => error.to_string(),
    }
}

/// Processes the events of one host.
struct Heard {
    host: String,
    shared: Shared,
    tally: Tally,
    /// Whether something was started on the host.
    any: bool,
}

/// The events that are reported.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    TaskStart {
        i: u32,
        name: String,
        item: Option<String>,
    },
    Task(Box<TaskView>),
    Handler(Box<TaskView>),
    Output {
        i: u32,
        line: String,
    },
    PlayEnd {
        play: u32,
    },
    #[serde(other)]
    Other,
}

impl Heard {
    async fn event(&mut self, reply: Reply) {
        let Reply::Event { event } = reply else { return };
        let Ok(event) = serde_json::from_slice::<Event>(&event) else { return };
        self.any = true;
        let host = self.host.clone();
        let told = match event {
            Event::TaskStart { i, name, item } => Told::TaskStart { host, i, name, item },
            Event::Output { i, line } => Told::Output { host, i, line },
            Event::Task(done) => self.done(*done, false),
            Event::Handler(done) => self.done(*done, true),
            Event::PlayEnd { play } => {
                let _nobody_waits = self.shared.progress.send((host, Progress::Played(play)));
                return;
            }
            Event::Other => return,
        };
        self.shared.say(told).await;
    }

    fn done(&mut self, mut task: TaskView, handler: bool) -> Told {
        let include = task.module.starts_with("include_") && task.module != "include_vars";
        self.tally.count(&Counted {
            task: (task.i, task.turn, handler),
            item: task.item.is_some(),
            include,
            changed: task.changed,
            status: &task.status,
        });
        if !self.shared.diff {
            task.diff = None;
            task.attributes.clear();
        }
        task.path = task.path.filter(|_| task.diff.is_some() || !task.attributes.is_empty());
        (task.host, task.handler) = (self.host.clone(), handler);
        Told::Task(task)
    }

    fn end(mut self, reply: Result<Reply, SshError>) -> Ended {
        match reply {
            Ok(Reply::RunEnd(end)) => self.ran(&end),
            Ok(Reply::Refused { why, .. }) => Ended::early(HostState::Refused, why),
            Ok(Reply::Error { message }) if !self.any => {
                let recap = Recap { failed: 1, ..Recap::default() };
                Ended { recap, ..Ended::early(HostState::Failed, message) }
            }
            Ok(Reply::Error { message }) => self.lost(message),
            Ok(other) => self.lost(format!("not understood: {other:?}")),
            Err(e) => self.lost(interrupted(&e)),
        }
    }

    fn lost(&mut self, message: String) -> Ended {
        let mut recap = self.tally.recap(false, 0, 0);
        recap.unknown += 1;
        let message = format!("{message}; the effect of the interrupted task is unknown");
        Ended { recap, ..Ended::early(HostState::Unknown, message) }
    }

    fn ran(&mut self, end: &serde_json::Value) -> Ended {
        let failure: Option<FailureView> =
            end.get("failure").filter(|f| !f.is_null()).and_then(|f| serde_json::from_value(f.clone()).ok());
        let is = |key: &str| end.get(key).and_then(serde_json::Value::as_bool) == Some(true);
        let owed = end.get("pending_handlers").and_then(|o| serde_json::from_value(o.clone()).ok()).unwrap_or_default();
        let stopped = end.get("stopped").and_then(serde_json::Value::as_str).map(str::to_owned);
        if is("defect") {
            let message = failure.map(|f| f.message).unwrap_or_default();
            return Ended { owed, ..self.lost(message) };
        }
        let count = |key: &str| {
            end.get(key).and_then(serde_json::Value::as_u64).map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
        };
        let recap = self.tally.recap(failure.is_some(), count("changed"), count("unknown"));
        let (state, message) = match (&failure, is("cancelled")) {
            (Some(failure), _) => (HostState::Failed, Some(failure.message.clone())),
            (None, true) => (HostState::Cancelled, stopped),
            (None, false) => (HostState::Done, None),
        };
        Ended { state, recap, message, failure, owed, fatal: is("fatal") }
    }
}

impl Shared {
    /// Reports an event. A slow reader slows this host down; a reader that has gone does not.
    pub async fn say(&self, told: Told) {
        let _nobody_listens = self.tell.send(told).await;
    }
}
