//! The run on one host: a session, its events as they arrive, and its end. An error of the session
//! affects only this host.

use super::connection::{ConnectionFinder, HostConnection, usual_state_dir};
use super::delegate::{ControllerService, RequestTotals};
use super::events::{FailureView, HostState, PlayRunEvent, PlayTaskView};
use super::later_plays::{InventoryChanges, NextPlan};
use super::lookups::PlayLookups;
use super::prepare::Host;
use super::recap::{Counted, Recap, RecapCounter};
use super::run::{PlayStop, Progress, Through};
use super::run_once::RunOnceResults;
use super::shared_values::HostVariablesOfRun;
use super::throttle::{HostPermit, TaskLimits};
use remoor_exec::ssh::{Canceller, Remote, Session, SshError, start_local};
use remoor_exec::wire::{ExecutorOrder, PlayOrder, Reply};
use remoor_playbook::Plan;
use serde::Deserialize;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// The time limit of a run. A run has no limit of its own, but the executor needs a value.
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum number of events that were read but not reported yet. Further events stay in the session
/// and slow the run down.
pub(super) const EVENTS: usize = 64;

/// The values shared by all hosts of a run.
#[derive(Clone)]
pub(super) struct PlayContext {
    /// The SSH client. None: no host needs one. Err: no host can be reached over SSH.
    pub remote: Result<Option<Arc<Remote>>, SshError>,
    pub order: Arc<PlayOrder>,
    /// The connections to the hosts of the inventory, for delegated tasks.
    pub connections: Arc<ConnectionFinder>,
    /// Changes of the inventory. None: no task changes it.
    pub changes: Option<Arc<InventoryChanges>>,
    pub once: Arc<RunOnceResults>,
    pub limits: Arc<TaskLimits>,
    pub values: Arc<HostVariablesOfRun>,
    pub lookups: Arc<PlayLookups>,
    /// The directory of the playbook, in which the tasks on the controller run.
    pub playbook_dir: Arc<Path>,
    pub diff: bool,
    pub ending: watch::Receiver<PlayStop>,
    pub tell: mpsc::Sender<PlayRunEvent>,
    /// The progress of each host, with at most one message for each play of a host.
    pub progress: mpsc::UnboundedSender<(String, Progress)>,
}

/// The result of the run on one host.
#[derive(Debug, Clone)]
pub(super) struct HostResult {
    pub state: HostState,
    pub recap: Recap,
    pub message: Option<String>,
    pub failure: Option<FailureView>,
    pub owed: Vec<String>,
    /// Whether the run ended because of a task whose failure stops all hosts.
    pub fatal: bool,
}

impl HostResult {
    fn without_run(state: HostState, message: impl Into<String>) -> Self {
        let recap = match state {
            HostState::Unreachable => Recap { unreachable: 1, ..Recap::default() },
            HostState::Refused => Recap { failed: 1, ..Recap::default() },
            HostState::Unknown => Recap { unknown: 1, ..Recap::default() },
            HostState::Done | HostState::Failed | HostState::Cancelled => Recap::default(),
        };
        Self { state, recap, message: Some(message.into()), failure: None, owed: Vec::new(), fatal: false }
    }

    /// The result after an internal error of this program.
    pub fn defect() -> Self {
        Self::without_run(HostState::Unknown, "defect of remoor")
    }
}

/// Runs the host's plan as far as `through` allows, and reports all events and the end.
pub(super) async fn play(host: Host, mut shared: PlayContext, through: watch::Receiver<Through>) {
    let begun = Instant::now();
    let (name, connection) = (host.name.clone(), host.road.name().to_owned());
    shared.send(PlayRunEvent::HostStart { host: name, connection }).await;
    let ended = session(&host, &mut shared, through).await;
    send_host_end(&host, &ended, begun, &shared).await;
    let _nobody_waits = shared.progress.send((host.name, Progress::Ended(Box::new(ended))));
}

/// Reports the end of a host on which no play was started.
pub(super) async fn not_begun(host: &Host, shared: &PlayContext) -> HostResult {
    let ended = HostResult::without_run(HostState::Cancelled, "not begun");
    send_host_end(host, &ended, Instant::now(), shared).await;
    ended
}

async fn send_host_end(host: &Host, ended: &HostResult, begun: Instant, shared: &PlayContext) {
    let HostResult { state, recap, message, failure, owed, .. } = ended.clone();
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    shared.send(PlayRunEvent::HostEnd { host: host.name.clone(), state, recap, message, failure, owed, took_ms }).await;
}

async fn session(host: &Host, shared: &mut PlayContext, mut through: watch::Receiver<Through>) -> HostResult {
    let name = host.name.clone();
    let mut ending = shared.ending.clone();
    let mut heard = EventReader {
        host: name.clone(),
        shared: shared.clone(),
        tally: RecapCounter::default(),
        any: false,
        plan: Arc::clone(&host.plan),
        permit: HostPermit::default(),
    };
    let (mut host, mut from_play) = (host.clone(), 0);
    let mut totals = RequestTotals::default();
    loop {
        if let Some(why) = &host.fault {
            return heard.end_without_run(HostState::Failed, why.clone());
        }
        let plan = match rmp_serde::to_vec_named(&*host.plan) {
            Ok(plan) => plan,
            Err(e) => return heard.end_without_run(HostState::Failed, format!("the plan can't be sent: {e}")),
        };
        let opened = tokio::select! {
            opened = open(&host.road, host.sudo, shared) => opened,
            // Nothing runs on the host now, so the host can be cancelled without loss.
            _ = ending.wait_for(|ending| *ending != PlayStop::Not) => {
                let when = if heard.any { "stopped before its next play" } else { "not begun" };
                return heard.end_without_run(HostState::Cancelled, when);
            }
        };
        let session = match opened {
            Ok(session) => session,
            Err(e) => return heard.end_without_run(HostState::Unreachable, unreachable(&e)),
        };
        let (own, permit) = (Arc::clone(&host.plan), heard.permit.clone());
        let delegated = ControllerService::new(&name, own, shared.clone(), through.clone(), permit);
        let mut delegated = delegated.with_totals(totals);
        let (heard_of, ending_of) = (&mut heard, &mut ending);
        let mut run = HostRun { heard: heard_of, ending: ending_of, through: &mut through, delegated: &mut delegated };
        let reply = run.in_session(session, plan).await;
        let reply = run.after_reboots(&host, reply).await;
        heard.permit.end_task();
        totals = delegated.close().await;
        let Some((next, checkpoint)) = next_plan(&reply, from_play, &through) else { return heard.end(reply) };
        // Each later play of a continued plan may refer to layers of the plan before.
        let continued = Plan::clone(&next.host.plan).continue_from(next.from_play, &host.plan, checkpoint);
        (host, from_play) = (Host { plan: Arc::new(continued), ..next.host.clone() }, next.from_play);
        heard.plan = Arc::clone(&host.plan);
        shared.connections = Arc::clone(&next.connections);
    }
}

/// The plan with which the host continues after this end of a session, and the checkpoint.
/// `from_play`: the play at which the present plan began.
fn next_plan(
    reply: &Result<Reply, SshError>,
    from_play: u32,
    through: &watch::Receiver<Through>,
) -> Option<(Arc<NextPlan>, String)> {
    let Ok(Reply::RunEnd(end)) = reply else { return None };
    let checkpoint = end.get("checkpoint")?.as_str()?.to_owned();
    let next = through.borrow().next.clone().filter(|next| next.from_play > from_play)?;
    Some((next, checkpoint))
}

/// The run on one host, over all its sessions.
pub(super) struct HostRun<'r, 'h> {
    heard: &'r mut EventReader,
    pub ending: &'r mut watch::Receiver<PlayStop>,
    through: &'r mut watch::Receiver<Through>,
    pub delegated: &'r mut ControllerService<'h>,
}

impl HostRun<'_, '_> {
    /// Runs a plan in a new session, and closes the session.
    pub async fn in_session(&mut self, mut session: Session, plan: Vec<u8>) -> Result<Reply, SshError> {
        let Through { play, lost, .. } = self.through.borrow_and_update().clone();
        self.delegated.set_login(session.control_socket());
        let order = (*self.heard.shared.order).clone();
        let order = ExecutorOrder::Play(PlayOrder { plan, through: Some(play), lost, ..order });
        let reply = run_order(&mut session, order, self.heard, self.ending, self.through, self.delegated).await;
        session.close().await;
        reply
    }

    /// Reports an event that the host itself could not send.
    pub async fn report_event(&mut self, event: &serde_json::Value) {
        self.heard.event(Reply::Event { event: event.to_string().into_bytes() }).await;
    }

    /// The values shared by all hosts.
    pub fn context(&self) -> &PlayContext {
        &self.heard.shared
    }
}

/// Opens a session with the host at `road`, as root by `sudo`.
pub(super) async fn open(road: &HostConnection, sudo: bool, shared: &PlayContext) -> Result<Session, SshError> {
    match (road, &shared.remote) {
        (HostConnection::Local { named }, _) => {
            // The program is started by its real path, because under sudo `/proc/self/exe` would be
            // another program.
            let own = std::env::current_exe().map_err(|e| SshError::Local(format!("this program's own path: {e}")))?;
            let state_dir = named.clone().or_else(|| usual_state_dir(sudo));
            let state_dir = state_dir
                .ok_or_else(|| SshError::Local("HOME is not set to a directory for the state of a run".to_owned()))?;
            let prefix = ["sudo", "-n", "--"].iter().filter(|_| sudo).map(OsString::from);
            let mut program: Vec<OsString> = prefix.collect();
            program.extend([own.into(), "exec".into(), "-".into()]);
            let state_dir = std::path::absolute(&state_dir).unwrap_or(state_dir);
            program.extend(["--state-dir".into(), state_dir.into(), "--relative-paths".into()]);
            start_local(&program, &shared.playbook_dir).await
        }
        (HostConnection::Ssh(target), Ok(Some(remote))) => {
            if let Some(changes) = &shared.changes {
                changes.note_remote();
            }
            remote.open(target).await
        }
        (HostConnection::Ssh(_), Err(e)) => Err(e.clone()),
        (HostConnection::Ssh(_), Ok(None)) => Err(SshError::Local("no place for control sockets".to_owned())),
    }
}

/// Runs `order` and returns its final reply. Meanwhile, this function tells the host which plays
/// may begin, forwards requests to stop early, and runs delegated tasks. With `PlayStop::GiveUp` it
/// ends even if the host reads nothing.
async fn run_order(
    session: &mut Session,
    order: ExecutorOrder,
    heard: &mut EventReader,
    ending: &watch::Receiver<PlayStop>,
    through: &watch::Receiver<Through>,
    delegated: &mut ControllerService<'_>,
) -> Result<Reply, SshError> {
    let canceller = session.canceller();
    let mut forwarding = std::pin::pin!(forward_changes(canceller.clone(), ending.clone(), through.clone()));
    let mut given_up = std::pin::pin!(wait_for_give_up(ending.clone()));
    // The run waits for each answer, so a second request before it is a violation.
    let (requests, received) = mpsc::channel(1);
    let mut serving = std::pin::pin!(delegated.serve(received, canceller.clone()));
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut running = std::pin::pin!(session.order_into(order, &sender, FOREVER));
    let reply = loop {
        tokio::select! {
            reply = &mut running => break reply,
            why = &mut serving => break Err(SshError::Protocol(why)),
            Some(event) = events.recv() => match event {
                Reply::Ask { id, request } => {
                    if requests.try_send((id, request)).is_err() {
                        break Err(SshError::Protocol("a request before the answer to another one".to_owned()));
                    }
                }
                event => heard.event(event).await,
            },
            never = &mut forwarding => match never {},
            () = &mut given_up => break Err(SshError::Lost("not waited for any longer".to_owned())),
        }
    };
    while let Ok(event) = events.try_recv() {
        heard.event(event).await;
    }
    reply
}

async fn wait_for_give_up(mut ending: watch::Receiver<PlayStop>) {
    if ending.wait_for(|ending| *ending == PlayStop::GiveUp).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Tells the host which plays may begin, and to stop early. Each message waits until the host has
/// read earlier ones, so the caller must not wait for this future alone.
async fn forward_changes(
    canceller: Canceller,
    mut ending: watch::Receiver<PlayStop>,
    mut through: watch::Receiver<Through>,
) -> Infallible {
    loop {
        tokio::select! {
            Ok(()) = through.changed() => {
                let Through { play, lost, next } = through.borrow_and_update().clone();
                match next {
                    // The run waits before its next play, and ends with a checkpoint.
                    Some(_) => canceller.cancel(false).await,
                    None => canceller.go(play, lost).await,
                }
            }
            Ok(()) = ending.changed() => {
                let now = *ending.borrow_and_update();
                match now {
                    PlayStop::Not | PlayStop::GiveUp => {}
                    PlayStop::AfterTask => canceller.cancel(false).await,
                    PlayStop::Now => canceller.cancel(true).await,
                }
            }
            else => std::future::pending().await,
        }
    }
}

/// The text of a failed connection's error, with the action that helps the user.
pub(super) fn unreachable(error: &SshError) -> String {
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

/// The error of the executor or the connection that interrupted a run, with the action that helps
/// the user.
fn interruption_message(error: &SshError) -> String {
    match error {
        SshError::Ended(_) => format!("{error}; check the host's kernel log for the cause, then play again"),
        SshError::Lost(_) => {
            format!("{error}; the run there ends after its task, play again once the host answers")
        }
        _ => error.to_string(),
    }
}

/// Processes the events of one host.
struct EventReader {
    host: String,
    shared: PlayContext,
    tally: RecapCounter,
    /// Whether a task was started on the host.
    any: bool,
    plan: Arc<Plan>,
    /// The task with `throttle` that the host may run.
    permit: HostPermit,
}

/// The events of the executor that are reported to the user.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    TaskStart {
        i: u32,
        name: String,
        item: Option<String>,
    },
    Task(Box<PlayTaskView>),
    Handler(Box<PlayTaskView>),
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

impl EventReader {
    async fn event(&mut self, reply: Reply) {
        let Reply::Event { event } = reply else { return };
        let Ok(event) = serde_json::from_slice::<Event>(&event) else { return };
        self.any = true;
        let host = self.host.clone();
        let told = match event {
            Event::TaskStart { i, name, item } => PlayRunEvent::TaskStart { host, i, name, item },
            Event::Output { i, line } => PlayRunEvent::Output { host, i, line },
            Event::Task(done) => self.task_event(*done, false),
            Event::Handler(done) => self.task_event(*done, true),
            Event::PlayEnd { play } => {
                // A host that lies may report the end of a play often, or of any play.
                if !self.plan.plays.iter().any(|known| known.index == play) || !self.permit.complete_play(play) {
                    return;
                }
                let _nobody_waits = self.shared.progress.send((host, Progress::Played(play)));
                return;
            }
            Event::Other => return,
        };
        self.shared.send(told).await;
    }

    fn task_event(&mut self, mut task: PlayTaskView, handler: bool) -> PlayRunEvent {
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
        PlayRunEvent::Task(task)
    }

    /// The result after an error outside of a session.
    fn end_without_run(&mut self, state: HostState, message: impl Into<String>) -> HostResult {
        let mut recap = self.tally.recap(state == HostState::Failed, 0, 0);
        recap.unreachable += u32::from(state == HostState::Unreachable);
        HostResult { recap, ..HostResult::without_run(state, message) }
    }

    fn end(mut self, reply: Result<Reply, SshError>) -> HostResult {
        match reply {
            Ok(Reply::RunEnd(end)) => self.end_of_run(&end),
            Ok(Reply::Refused { why, .. }) => HostResult::without_run(HostState::Refused, why),
            Ok(Reply::Error { message }) if !self.any => {
                let recap = Recap { failed: 1, ..Recap::default() };
                HostResult { recap, ..HostResult::without_run(HostState::Failed, message) }
            }
            Ok(Reply::Error { message }) => self.end_unknown(message),
            Ok(other) => self.end_unknown(format!("not understood: {other:?}")),
            Err(e) => self.end_unknown(interruption_message(&e)),
        }
    }

    fn end_unknown(&mut self, message: String) -> HostResult {
        let mut recap = self.tally.recap(false, 0, 0);
        recap.unknown += 1;
        let message = format!("{message}; the effect of the interrupted task is unknown");
        HostResult { recap, ..HostResult::without_run(HostState::Unknown, message) }
    }

    fn end_of_run(&mut self, end: &serde_json::Value) -> HostResult {
        let failure: Option<FailureView> =
            end.get("failure").filter(|f| !f.is_null()).and_then(|f| serde_json::from_value(f.clone()).ok());
        let is = |key: &str| end.get(key).and_then(serde_json::Value::as_bool) == Some(true);
        let owed = end.get("pending_handlers").and_then(|o| serde_json::from_value(o.clone()).ok()).unwrap_or_default();
        let stopped = end.get("stopped").and_then(serde_json::Value::as_str).map(str::to_owned);
        if is("defect") {
            let message = failure.map(|f| f.message).unwrap_or_default();
            return HostResult { owed, ..self.end_unknown(message) };
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
        HostResult { state, recap, message, failure, owed, fatal: is("fatal") && self.plan.may_end_all() }
    }
}

impl PlayContext {
    /// Reports an event. If the reader is slow, this host waits. If the reader has gone, the event
    /// is dropped.
    pub async fn send(&self, told: PlayRunEvent) {
        let _nobody_listens = self.tell.send(told).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestPlay;
    use super::*;
    use remoor_exec::wire::{Hello, PROTO, frame};
    use std::io::Write;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    /// A generous limit, because other tests may use the machine.
    const LONG: Duration = Duration::from_secs(60);

    /// Starts an executor that sends these replies and reads nothing. It ends after the file is
    /// removed.
    async fn start_deaf_executor(replies: &[Reply]) -> (Session, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let hello = Hello { proto: PROTO, ..Hello::default() };
        file.write_all(frame::PREFACE).unwrap();
        for reply in [&Reply::Hello(hello)].into_iter().chain(replies) {
            file.write_all(&frame::encode_reply(reply).unwrap()).unwrap();
        }
        let script = "cat \"$1\"; while [ -e \"$1\" ]; do sleep 0.1; done";
        let mut program: Vec<OsString> = ["sh", "-c", script, "sh"].into_iter().map(OsString::from).collect();
        program.push(file.path().into());
        (start_local(&program, Path::new("/")).await.unwrap(), file)
    }

    fn reader_of(play: &TestPlay) -> EventReader {
        let (shared, tally) = (play.shared.clone(), RecapCounter::default());
        EventReader {
            host: "w1".to_owned(),
            shared,
            tally,
            any: false,
            plan: play.plan("w1"),
            permit: HostPermit::default(),
        }
    }

    #[tokio::test]
    async fn a_host_that_reads_nothing_does_not_hold_up_the_third_request_to_stop() {
        let mut play = TestPlay::new("- hosts: all\n  tasks: [{ping: }]\n", "w1 ansible_connection=local\n");
        // The order does not fit into the pipe, and more messages follow than the queue holds.
        let order = ExecutorOrder::Play(PlayOrder { plan: vec![0; 1 << 20], ..(*play.shared.order).clone() });
        let event = Reply::Event { event: br#"{"event":"task-start","i":1,"name":"x","item":null}"#.to_vec() };
        let (mut session, _file) = start_deaf_executor(&[event]).await;
        let (mut heard, mut service) = (reader_of(&play), play.service("w1"));
        let (ending, through) = (play.ending.subscribe(), play.through.subscribe());
        let run = run_order(&mut session, order, &mut heard, &ending, &through, &mut service);
        let let_others_run = async || {
            for _ in 0..100 {
                yield_now().await;
            }
        };
        let stop = async {
            assert!(matches!(play.events.recv().await, Some(PlayRunEvent::TaskStart { .. })));
            for next in 1..10 {
                play.through.send_replace(Through { play: next, lost: Vec::new(), next: None });
                let_others_run().await;
            }
            for stop in [PlayStop::AfterTask, PlayStop::Now, PlayStop::GiveUp] {
                play.ending.send_replace(stop);
                let_others_run().await;
            }
        };
        let (reply, ()) = timeout(LONG, async { tokio::join!(run, stop) }).await.expect("the run has to end");
        assert!(matches!(&reply, Err(SshError::Lost(why)) if why.contains("not waited for")), "{reply:?}");
    }

    #[tokio::test]
    async fn the_end_of_a_play_counts_once_and_ends_the_permit() {
        let text = "- hosts: all\n  tasks: [{command: id, throttle: 1}]\n";
        let mut play = TestPlay::new(text, "w1 ansible_connection=local\nw2 ansible_connection=local\n");
        let mut heard = reader_of(&play);
        let mut service = play.service_with("w1", heard.permit.clone());
        service.answer(br#"{"begin": 1}"#).await.unwrap();
        let end = |play: u32| Reply::Event { event: format!(r#"{{"event":"play-end","play":{play}}}"#).into_bytes() };
        for reported in [0, 0, 7, 0] {
            heard.event(end(reported)).await;
        }
        let mut other = play.service("w2");
        timeout(LONG, other.answer(br#"{"begin": 1}"#)).await.expect("the permit has to be free").unwrap();
        assert!(matches!(play.progress.try_recv(), Ok((_, Progress::Played(0)))));
        assert!(play.progress.try_recv().is_err(), "other ends are not reported");
    }
}
