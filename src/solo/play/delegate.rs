//! Answers the requests of the run on one host. The run requests delegated tasks, which another
//! host or this machine runs for it, and the results of tasks that one host runs for all. It also
//! sends files that this machine stores (`fetch`).
//!
//! The host may be compromised. So the task, its options and the host that runs it come from this
//! process's own copy of the plan (`plan_delegated`), and the number of requests is limited.

use super::connection::HostConnection;
use super::events::PlayRunEvent;
use super::host::{self, EVENTS, FOREVER, PlayContext};
use super::reboot::PendingReboot;
use super::rsync::{RsyncEnds, connect};
use super::run::{PlayStop, Through};
use super::sent_files::{AskedFile, OutgoingFile, TOTAL_MAX};
use super::throttle::HostPermit;
use remoor_exec::ssh::{Canceller, Session, SshError};
use remoor_exec::wire::{ExecutorOrder, PlayOrder, Reply};
use remoor_model::Fault;
use remoor_playbook::{
    ControllerFile, ControllerRequest, ControllerView, DelegatedRequest, DelegatedTask, DelegationError, FetchAnswer,
    FetchRequest, FileAnswer, IncomingFile, KnownAnswers, LookupAnswer, LookupRequest, OnceAnswer, Plan, RebootRequest,
    RequestLimits, RequestedTask, SharedNames, Task, TaskOccurrence, plan_delegated, plan_fetch, plan_inventory_change,
    plan_lookup, read_request, with_lookup_answers,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Maximum number of requests of one host in a run. The largest loop has 10,000 items, and each
/// item of a delegated task is one request.
const REQUESTS_MAX: u32 = 20_000;

/// Maximum number of lookups of one host in a run, because each may start a program.
const LOOKUPS_MAX: u32 = 5_000;
/// Maximum size in bytes of the answers to the lookups of one host, which are kept.
const ANSWERS_MAX: usize = 64 << 20;

/// A request of a run: its number and its content.
pub(super) type NumberedRequest = (u64, Vec<u8>);

/// The requests of one host.
pub(super) struct ControllerService<'h> {
    host: &'h str,
    plan: Arc<Plan>,
    shared: PlayContext,
    /// Open sessions by host, with and without sudo.
    sessions: BTreeMap<(String, bool), Session>,
    /// How often the host has requested each task and item.
    requested: BTreeMap<TaskOccurrence, u32>,
    /// The task that the host was chosen to run for all hosts (`run_once`).
    turn: Option<u32>,
    /// What the host has requested so far in the run.
    totals: RequestTotals,
    /// How far the hosts may run, and the hosts that failed.
    through: watch::Receiver<Through>,
    /// The file that the host is sending.
    fetched: Option<IncomingFile>,
    /// The file that is being sent to the host.
    sent: Option<OutgoingFile>,
    /// The task with `throttle` that the host may run.
    permit: HostPermit,
    /// The names that the host may read of other hosts, once it has asked for them.
    readable: Option<Option<SharedNames>>,
    /// The answers to the lookups of this session.
    answers: Arc<KnownAnswers>,
    /// Set while the host is being restarted.
    reboot: Option<PendingReboot>,
    /// The control socket of the login of this session, if it has one.
    login: Option<PathBuf>,
}

/// What a host has requested in all its sessions of a run. The limits apply to these numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestTotals {
    requests: u32,
    lookups: u32,
    /// Size in bytes of all answers to lookups, with their arguments.
    answer_bytes: usize,
    /// Size in bytes of all files that were sent to the host.
    sent_bytes: u64,
}

/// An event of the executor that runs a delegated task.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    Output {
        i: u32,
        line: String,
    },
    #[serde(other)]
    Other,
}

impl<'h> ControllerService<'h> {
    pub fn new(
        host: &'h str,
        plan: Arc<Plan>,
        shared: PlayContext,
        through: watch::Receiver<Through>,
        permit: HostPermit,
    ) -> Self {
        Self {
            host,
            plan,
            shared,
            sessions: BTreeMap::new(),
            requested: BTreeMap::new(),
            turn: None,
            totals: RequestTotals::default(),
            through,
            fetched: None,
            sent: None,
            permit,
            readable: None,
            answers: Arc::default(),
            reboot: None,
            login: None,
        }
    }

    /// Sets the control socket of the login of the session that the service answers.
    pub fn set_login(&mut self, socket: Option<&Path>) {
        self.login = socket.map(Path::to_owned);
    }

    /// Answers the requests in their order. Returns the reason when a request is not allowed; the
    /// session with the host must then end.
    pub async fn serve(&mut self, mut requests: mpsc::Receiver<NumberedRequest>, canceller: Canceller) -> String {
        while let Some((id, request)) = requests.recv().await {
            let answer = match self.answer(&request).await {
                Ok(answer) => answer,
                Err(why) => return why,
            };
            if let Err(e) = canceller.answer(id, answer).await {
                let error = DelegationError::Failed(format!("the answer can't be sent: {e}"));
                let _too_large = canceller.answer(id, error.answer()).await;
            }
        }
        std::future::pending().await
    }

    /// Continues the service of a former session of the same run.
    pub fn with_totals(self, totals: RequestTotals) -> Self {
        Self { totals, ..self }
    }

    /// Closes the sessions with the hosts that ran tasks. Returns what the host has requested.
    pub async fn close(self) -> RequestTotals {
        // Each session may take some seconds, so they are closed together.
        let mut closing: JoinSet<()> = self.sessions.into_values().map(Session::close).collect();
        while closing.join_next().await.is_some() {}
        self.totals
    }

    /// The answer to a request. The error is the reason why the request is not allowed.
    pub async fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        self.totals.requests += 1;
        if self.totals.requests > REQUESTS_MAX {
            return Err(format!("more than {REQUESTS_MAX} requests to the controller"));
        }
        let plan = Arc::clone(&self.plan);
        match read_request(&plan, self.shared.order.check, request).map_err(|e| e.to_string())? {
            ControllerRequest::Delegate(request) => self.delegate(request).await,
            ControllerRequest::Turn(requested) => {
                let task = self.check_begun(requested)?;
                let mut ending = self.shared.ending.clone();
                let answer = tokio::select! {
                    biased;
                    _ = ending.wait_for(|ending| *ending != PlayStop::Not) => OnceAnswer::Stopped,
                    answer = self.shared.once.take_turn(self.host, &task.place) => answer,
                };
                self.turn = (answer == OnceAnswer::Run).then_some(task.id);
                Ok(answer.encode())
            }
            ControllerRequest::Result { requested, content } => {
                let task = self.check_begun(requested)?;
                self.turn = None;
                let why = self.shared.once.publish(self.host, &task.place, content)?;
                Ok(serde_json::to_vec(&why).unwrap_or_default())
            }
            ControllerRequest::Begin(requested) => {
                let task = self.check_begun(requested)?;
                let ending = self.shared.ending.clone();
                let refused = self.permit.begin(&self.shared.limits, (requested.play, task), ending).await;
                refused.map_or(Ok(Vec::new()), Err)
            }
            ControllerRequest::End => {
                self.permit.end_task();
                Ok(Vec::new())
            }
            ControllerRequest::Share(mut values) => {
                values.retain_new_facts(&|name| self.shared.connections.variables_of(name));
                let why = self.shared.values.store(self.host, values);
                Ok(serde_json::to_vec(&why).unwrap_or_default())
            }
            ControllerRequest::Others => {
                self.find_readable().await?;
                let values = self.shared.values.values_for(self.host, self.readable.iter().flatten().next());
                Ok(serde_json::to_vec(&values).unwrap_or_default())
            }
            ControllerRequest::Publish { task, values } => {
                let why = self.shared.values.publish(self.host, task, values.own);
                Ok(serde_json::to_vec(&why).unwrap_or_default())
            }
            ControllerRequest::Await(task) => self.await_others(task).await,
            ControllerRequest::Read(file) => Ok(self.open_file(file).await?.encode()),
            ControllerRequest::More => Ok(self.send_part(false).await?.encode()),
            ControllerRequest::Lookup(request) => Ok(self.lookup(*request).await?.encode()),
            ControllerRequest::Inventory(request) => self.change_inventory(request).await,
            ControllerRequest::Reboot(request) => {
                let why = self.note_reboot(request);
                Ok(serde_json::to_vec(&why).unwrap_or_default())
            }
            ControllerRequest::Fetch(request) => Ok(self.fetch(request).await?.encode()),
            ControllerRequest::Part(part) => {
                let mut file = self.fetched.take().ok_or("a part of a file that it did not announce")?;
                let written = tokio::task::spawn_blocking(move || (file.write(&part), file)).await;
                let (answer, file) = written.map_err(|e| e.to_string())?;
                let answer = answer.unwrap_or_else(FetchAnswer::Failed);
                self.fetched = Some(file).filter(|_| answer == FetchAnswer::More);
                Ok(answer.encode())
            }
        }
    }

    /// Finds the names that the host may read of others. They are the same for the whole run, and
    /// to find them takes long.
    async fn find_readable(&mut self) -> Result<(), String> {
        if self.readable.is_none() {
            self.readable = Some(self.evaluate(|plan, _| plan.names_read_of_others()).await?);
        }
        Ok(())
    }

    /// The values that a task reads of the other hosts of the batch, once they have set them.
    async fn await_others(&mut self, task: u32) -> Result<Vec<u8>, String> {
        self.find_readable().await?;
        let readable = self.readable.iter().flatten().next();
        let mut ending = self.shared.ending.clone();
        let values = tokio::select! {
            biased;
            // The run ends after this answer.
            _ = ending.wait_for(|ending| *ending != PlayStop::Not) => BTreeMap::new(),
            values = self.shared.values.await_others(self.host, task, readable) => values,
        };
        Ok(serde_json::to_vec(&values).unwrap_or_default())
    }

    /// The requested task. The error is the reason why the host may not request it yet.
    fn check_begun<'p>(&self, requested: RequestedTask<'p>) -> Result<&'p Task, String> {
        match (self.plan.first_play()..=self.through.borrow().play).contains(&requested.play) {
            true => Ok(requested.task),
            false => Err(format!("the task {} of a play that has not begun, or is over", requested.task.id)),
        }
    }

    /// Counts a request for a task. The error is the reason why the host may not request it now.
    fn admit(&mut self, limits: &RequestLimits) -> Result<(), String> {
        let task = limits.occurrence.task;
        if limits.once && self.turn != Some(task) {
            return Err(format!("the task {task}, which it was not chosen to run"));
        }
        if limits.throttled && !self.permit.allows(task) {
            return Err(format!("the task {task}, which it may not begin yet"));
        }
        let times = self.requested.entry(limits.occurrence.clone()).or_default();
        *times += 1;
        if *times > limits.times_max {
            return Err(format!("the task {task} was requested again, after {} times", limits.times_max));
        }
        Ok(())
    }

    /// Performs a lookup. The error is the reason why the request is not allowed.
    async fn lookup(&mut self, request: LookupRequest) -> Result<LookupAnswer, String> {
        self.totals.lookups += 1;
        if self.totals.lookups > LOOKUPS_MAX || self.totals.answer_bytes > ANSWERS_MAX {
            let most = ANSWERS_MAX >> 20;
            return Err(format!("more than {LOOKUPS_MAX} lookups, or {most} MiB of answers to them"));
        }
        let lookup = match self.evaluate(move |plan, view| plan_lookup(plan, request, view)).await? {
            Ok(lookup) => lookup,
            Err(e @ DelegationError::Forbidden(_)) => return Err(e.to_string()),
            Err(e) => return Ok(LookupAnswer::of_error(&e)),
        };
        let (lookups, key) = (Arc::clone(&self.shared.lookups), lookup.call.key());
        let performed = tokio::task::spawn_blocking(move || lookups.perform(&lookup)).await;
        let answer = performed.map_err(|e| e.to_string())?;
        if let LookupAnswer::Items(items) = &answer {
            self.totals.answer_bytes += key.len() + serde_json::to_string(items).map_or(0, |text| text.len());
            Arc::make_mut(&mut self.answers).insert(key, items.clone());
        }
        Ok(answer)
    }

    /// Begins to send a file. The error is the reason why the request is not allowed.
    async fn open_file(&mut self, file: ControllerFile<'_>) -> Result<FileAnswer, String> {
        self.sent = None;
        let task = self.check_begun(file.requested)?;
        let (lookups, playbook) = (Arc::clone(&self.shared.lookups), self.plan.playbook.clone());
        let asked = AskedFile {
            from: task.place.file.clone(),
            subdirectory: file.subdirectory(),
            of_run: file.of_run.cloned(),
            planned: file.planned_paths().map(str::to_owned).collect(),
            name: file.name,
        };
        let opened = tokio::task::spawn_blocking(move || asked.open(&lookups, &playbook));
        let opened = match opened.await.map_err(|e| e.to_string())? {
            Ok(opened) => opened,
            Err(why) => return Ok(FileAnswer::Failed(why)),
        };
        self.totals.sent_bytes += opened.left;
        if self.totals.sent_bytes > TOTAL_MAX {
            return Ok(FileAnswer::Failed(format!("the files of this host exceed {} MiB", TOTAL_MAX >> 20)));
        }
        self.sent = Some(opened);
        self.send_part(true).await
    }

    /// Sends the next part of a file.
    async fn send_part(&mut self, first: bool) -> Result<FileAnswer, String> {
        let mut file = self.sent.take().ok_or("a part of no file")?;
        let read = tokio::task::spawn_blocking(move || (file.next_part(first), file)).await;
        let ((answer, last), file) = read.map_err(|e| e.to_string())?;
        self.sent = Some(file).filter(|_| !last);
        Ok(answer)
    }

    /// Changes the inventory for later plays. The error is the reason why the request is not
    /// allowed.
    async fn change_inventory(&mut self, request: DelegatedRequest) -> Result<Vec<u8>, String> {
        let changes = self.shared.changes.clone().ok_or("a change of the inventory, which its plan does not have")?;
        let origin = changes.value_origin();
        let planned = self.evaluate(move |plan, view| plan_inventory_change(plan, request, view, origin)).await?;
        let change = match planned {
            Ok(change) => change,
            Err(e @ DelegationError::Forbidden(_)) => return Err(e.to_string()),
            Err(e) => return Ok(e.answer()),
        };
        self.admit(&change.limits)?;
        Ok(changes.add(self.host, &change))
    }

    /// Notes that the host is about to be restarted, or is not any more. Some: the reason why it
    /// must not be restarted.
    fn note_reboot(&mut self, request: Option<RebootRequest>) -> Option<String> {
        let local = matches!(
            self.shared.connections.connection_of_plays(self.host, false),
            Ok((HostConnection::Local { .. }, _))
        );
        if local && request.is_some() {
            return Some("the reboot would restart the machine that runs `remoor play`".to_owned());
        }
        self.reboot = request.map(|request| PendingReboot::new(request, self.reboot.as_ref()));
        None
    }

    /// The reboot that the host has announced. None: the end of its session is the end of its run.
    pub fn reboot(&self) -> Option<&PendingReboot> {
        self.reboot.as_ref()
    }

    /// Begins to store a file of the host. The error is the reason why the request is not allowed.
    async fn fetch(&mut self, request: FetchRequest) -> Result<FetchAnswer, String> {
        self.fetched = None;
        let (size, sha1) = (request.size, request.sha1.clone());
        let playbook = PathBuf::from(&self.shared.order.name);
        let directory = playbook.parent().unwrap_or(Path::new("/")).to_owned();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let planned = self.evaluate(move |plan, view| plan_fetch(plan, request, view, &directory, home.as_deref()));
        let target = match planned.await? {
            Ok(target) => target,
            Err(e @ DelegationError::Forbidden(_)) => return Err(e.to_string()),
            Err(e) => return Ok(FetchAnswer::Failed(e.to_string())),
        };
        self.admit(&target.limits)?;
        let opened = tokio::task::spawn_blocking(move || IncomingFile::open(target, size, sha1)).await;
        match opened.map_err(|e| e.to_string())? {
            Ok((file, answer)) => {
                self.fetched = file;
                Ok(answer)
            }
            Err(why) => Ok(FetchAnswer::Failed(why)),
        }
    }

    /// Calls `evaluate` with what the controller knows, on a thread of its own, because a template
    /// may take long.
    async fn evaluate<T: Send + 'static>(
        &self,
        evaluate: impl FnOnce(&Plan, &ControllerView) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (plan, connections) = (Arc::clone(&self.plan), Arc::clone(&self.shared.connections));
        let check = self.shared.order.check;
        let Through { play: through, lost, .. } = self.through.borrow().clone();
        let (lost, answers) = (lost.into_iter().collect(), Arc::clone(&self.answers));
        let evaluated = tokio::task::spawn_blocking(move || {
            let host_vars = |name: &str| connections.variables_of(name);
            let view = ControllerView { check, through, lost: &lost, host_vars: &host_vars };
            with_lookup_answers(answers, || evaluate(&plan, &view))
        });
        evaluated.await.map_err(|e| e.to_string())
    }

    /// Runs a delegated task. The error is the reason why the request is not allowed.
    async fn delegate(&mut self, request: DelegatedRequest) -> Result<Vec<u8>, String> {
        let task = match self.evaluate(move |plan, view| plan_delegated(plan, request, view)).await? {
            Ok(task) => task,
            Err(e @ DelegationError::Forbidden(_)) => return Err(e.to_string()),
            Err(e) => return Ok(e.answer()),
        };
        self.admit(&task.limits)?;
        let host = task.host.clone();
        Ok(match self.run(task).await {
            Ok(answer) => answer,
            Err(why) => DelegationError::Failed(format!("delegated to {host}: {why}")).answer(),
        })
    }

    async fn run(&mut self, mut task: DelegatedTask) -> Result<Vec<u8>, String> {
        if let Some(transfer) = task.rsync.take() {
            let ends =
                RsyncEnds { host: self.host, login: self.login.as_deref(), connections: &self.shared.connections };
            let route = ends.find_route(&task.host)?;
            let (lookups, playbook) = (Arc::clone(&self.shared.lookups), self.plan.playbook.clone());
            let connected = tokio::task::spawn_blocking(move || {
                connect(transfer, &route, &mut task, (&lookups.root, &playbook), &lookups.made).map(|()| task)
            });
            task = connected.await.map_err(|e| e.to_string())??;
        }
        let mut makes_temp_file = false;
        task.plan.each_task(&mut |task| makes_temp_file |= task.module == "tempfile");
        let root = task.plan.needs_root();
        let first = |faults: Vec<Fault>| faults.first().map(|fault| fault.message.clone()).unwrap_or_default();
        let (road, _warnings) = self.shared.connections.connection_to(&task.host, root).map_err(first)?;
        let sudo = root && road.is_root() != Some(true);
        let plan = rmp_serde::to_vec_named(&task.plan).map_err(|e| format!("the plan can't be sent: {e}"))?;
        let key = (task.host, sudo);
        let mut session = match self.sessions.remove(&key) {
            Some(session) => session,
            None => host::open(&road, sudo, &self.shared).await.map_err(|e| host::unreachable(&e))?,
        };
        let order = PlayOrder { plan, through: None, lost: Vec::new(), ..(*self.shared.order).clone() };
        let reply = self.run_order(&mut session, ExecutorOrder::Play(order)).await.map_err(|e| e.to_string())?;
        let is_here = matches!(road, HostConnection::Local { .. });
        self.sessions.insert(key, session);
        match reply {
            Reply::RunEnd(end) => {
                let answer = end_of_run(&end)?;
                if is_here && makes_temp_file {
                    self.shared.lookups.made.add(&answer);
                }
                Ok(answer)
            }
            Reply::Refused { why, .. } => Err(why),
            Reply::Error { message } => Err(message),
            other => Err(format!("not understood: {other:?}")),
        }
    }

    /// Runs `order` and returns its final reply. After an error the session is unusable.
    async fn run_order(&self, session: &mut Session, order: ExecutorOrder) -> Result<Reply, SshError> {
        let canceller = session.canceller();
        let mut ending = self.shared.ending.clone();
        let (sender, mut events) = mpsc::channel(EVENTS);
        let mut running = std::pin::pin!(session.order_into(order, &sender, FOREVER));
        let reply = loop {
            tokio::select! {
                reply = &mut running => break reply,
                Some(event) = events.recv() => self.event(event).await?,
                Ok(()) = ending.changed() => {
                    if *ending.borrow_and_update() >= PlayStop::Now {
                        canceller.cancel(true).await;
                    }
                }
            }
        };
        while let Ok(event) = events.try_recv() {
            self.event(event).await?;
        }
        reply
    }

    /// Reports the output of a command as that of the host that delegated the task.
    async fn event(&self, reply: Reply) -> Result<(), SshError> {
        match reply {
            Reply::Event { event } => {
                if let Ok(Event::Output { i, line }) = serde_json::from_slice(&event) {
                    self.shared.send(PlayRunEvent::Output { host: self.host.to_owned(), i, line }).await;
                }
                Ok(())
            }
            Reply::Ask { .. } => Err(SshError::Protocol("a delegated task cannot be delegated again".to_owned())),
            _ => Ok(()),
        }
    }
}

/// The answer in the end of a run. The error is the reason why the run made none.
fn end_of_run(end: &serde_json::Value) -> Result<Vec<u8>, String> {
    match end.get("answer").filter(|answer| !answer.is_null()) {
        Some(answer) => serde_json::to_vec(answer).map_err(|e| e.to_string()),
        None => {
            let message = end.pointer("/failure/message").and_then(serde_json::Value::as_str);
            Err(message.unwrap_or("the run made no result").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestPlay;
    use super::*;
    use serde_json::json;

    /// A task has a limit of hosts only in a play of several hosts.
    const TWO_HOSTS: &str = "w1 ansible_connection=local\nw2 ansible_connection=local\nd1\n";

    /// The request to run a task without a loop on another host.
    fn delegate(task: u32) -> Vec<u8> {
        json!({"delegate": {"task": task, "item": null, "state": {}}}).to_string().into_bytes()
    }

    #[tokio::test]
    async fn a_host_that_requests_too_much_is_stopped() {
        let tasks = "- hosts: w1\n  tasks:\n    - {command: 'true', delegate_to: d1}\n    \
                     - {command: 'true', delegate_to: d1, retries: 2}\n    - {command: id}\n    \
                     - {command: 'true', delegate_to: d1, retries: 9999}\n";
        let play = TestPlay::new(tasks, "w1 ansible_connection=local\nd1\n");
        let mut service = play.service("w1");
        let text = |answer: Result<Vec<u8>, String>| String::from_utf8(answer.unwrap()).unwrap();
        assert!(text(service.answer(&delegate(1)).await).contains("delegated to d1: "));
        assert!(service.answer(&delegate(1)).await.unwrap_err().contains("requested again"));
        assert!(service.answer(&delegate(3)).await.unwrap_err().contains("is not delegated"));
        for _ in 0..3 {
            text(service.answer(&delegate(2)).await);
        }
        assert!(service.answer(&delegate(2)).await.unwrap_err().contains("requested again, after 3 times"));
        service.totals.requests = REQUESTS_MAX - 2;
        while service.totals.requests < REQUESTS_MAX {
            text(service.answer(&delegate(4)).await);
        }
        assert!(service.answer(&delegate(4)).await.unwrap_err().contains("more than 20000 requests"));
    }

    #[tokio::test]
    async fn a_host_delegates_tasks_for_all_hosts_only_in_its_turn() {
        let tasks = "{command: id, run_once: true, delegate_to: d1}, {command: id, throttle: 1, delegate_to: d1}";
        let text = format!("- hosts: w1,w2\n  tasks: [{tasks}]\n");
        let play = TestPlay::new(&text, TWO_HOSTS);
        let mut service = play.service("w1");
        assert!(service.answer(&delegate(1)).await.unwrap_err().contains("not chosen to run"));
        assert!(service.answer(&delegate(2)).await.unwrap_err().contains("may not begin yet"));
        service.answer(br#"{"turn": 1}"#).await.unwrap();
        service.answer(&delegate(1)).await.unwrap();
        service.answer(br#"{"begin": 2}"#).await.unwrap();
        service.answer(&delegate(2)).await.unwrap();
        service.answer(br#""end""#).await.unwrap();
        assert!(service.answer(&delegate(2)).await.unwrap_err().contains("may not begin yet"));
    }

    #[tokio::test]
    async fn a_host_begins_only_tasks_of_plays_that_have_begun() {
        let tasks = "{command: id, throttle: 1}, {command: id, run_once: true}";
        let text = format!("- hosts: w1\n  tasks: [{{ping: }}]\n- hosts: w1,w2\n  tasks: [{tasks}]\n");
        let play = TestPlay::new(&text, TWO_HOSTS);
        let mut service = play.service("w1");
        let result = json!({"result": {"task": 3, "content": {}}});
        for request in [json!({"begin": 2}), json!({"turn": 3}), result] {
            let refused = service.answer(request.to_string().as_bytes()).await.unwrap_err();
            assert!(refused.contains("has not begun"), "{request}: {refused}");
        }
        play.through.send_replace(Through { play: 1, lost: Vec::new(), next: None });
        for request in [json!({"begin": 2}), json!("end"), json!({"turn": 3})] {
            service.answer(request.to_string().as_bytes()).await.unwrap();
        }
    }
}
