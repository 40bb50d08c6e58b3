//! The real work of an executor on its own machine: digest, checks and plans.

use super::background;
use super::cancel::{SessionCancel, Stop};
use super::executor::panic_text;
use super::wire::{PlayOrder, RunOrder, RunPhase};
use super::{AskController, ExecutorWork, RunPaths};
use remoor_check as check;
use remoor_host::files;
use remoor_host::wall_clock::now;
use remoor_model::{CheckResult, CheckState, Exam, NodeDigest, NodeManifest, OnFail, Severity};
use remoor_playbook as playbook;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Maximum delay until a stop reaches the running plan.
const POLL: Duration = Duration::from_millis(50);

/// Memory is not trimmed before a task if at most this much is resident, in KiB. Most of it is the
/// program itself, of which each kind of task uses another part.
const RESIDENT_KB: usize = 11 << 10;

/// The real [`ExecutorWork`]: it examines the executor's own machine and runs plans there.
#[derive(Default)]
pub struct NodeWork {
    /// The directory in which the tasks of a play resolve relative paths. None: a relative path is
    /// an error.
    pub working_dir: Option<PathBuf>,
}

impl ExecutorWork for NodeWork {
    fn examine(&self, manifest: &NodeManifest, key: &[u8; 32]) -> Exam {
        let begun = std::time::Instant::now();
        let (digest, checks) = examine_manifest(manifest, key);
        Exam { digest, checks, took_ms: begun.elapsed().as_millis() as u64, ..Exam::default() }
    }

    fn check_plan(&self, plan: &[u8], cancel: &SessionCancel) -> Option<String> {
        let plan: playbook::Plan = match rmp_serde::from_slice(plan) {
            Ok(plan) => plan,
            Err(error) => return Some(unreadable_plan(&error)),
        };
        let (children, news) = mpsc::channel();
        let stop = playbook::CancelToken::with_watcher(move |pid, began| {
            let _the_check_is_over = children.send((pid, began));
        });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (plan_stop, over_soon) = (&stop, &over);
            scope.spawn(move || watch(cancel, plan_stop, &news, over_soon));
            let _end_signal = EndSignal(&over);
            playbook::check_python(&plan, plan_stop)
        })
    }

    fn run(
        &self,
        order: &RunOrder,
        paths: &RunPaths,
        cancel: &SessionCancel,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value {
        let plan: playbook::Plan = match rmp_serde::from_slice(&order.plan) {
            Ok(plan) => plan,
            Err(error) => return refused_end(&unreadable_plan(&error)),
        };
        let options = playbook::PlaybookRunOptions {
            run_id: order.fence.attempt.to_string(),
            gate: None,
            pending_handlers: Vec::new(),
            journal: match order.phase {
                RunPhase::Cleanup => paths.cleanup_journal.clone(),
                RunPhase::Provision => paths.journal.clone(),
            },
            backup: Some(paths.backup.clone()),
            task_timeout_ms: order.timeout_ms,
            phase: match order.phase {
                RunPhase::Cleanup => playbook::ResetupPhase::Cleanup,
                RunPhase::Provision => playbook::ResetupPhase::Provision,
            },
            protect: order.protect.clone(),
            park_dir: paths.park.clone(),
            secret: order.secret.clone(),
            check: false,
            // A task in the background could outlive its attempt, so a fleet has none.
            background: None,
            ..playbook::PlaybookRunOptions::default()
        };
        drive(&plan, &options, cancel, sink).0
    }

    fn play(
        &self,
        order: &PlayOrder,
        journal: &Path,
        cancel: &SessionCancel,
        ask: AskController,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value {
        let plan: playbook::Plan = match rmp_serde::from_slice(&order.plan) {
            Ok(plan) => plan,
            Err(error) => return refused_end(&unreadable_plan(&error)),
        };
        let login = login_uid().filter(|_| plan.needs_root());
        let options = playbook::PlaybookRunOptions {
            run_id: order.run_id.clone(),
            // The file belongs to runs of the whole playbook. A delegated task has no handlers.
            journal: if plan.delegated.is_some() { Default::default() } else { journal.to_owned() },
            controller: plan.delegated.is_none().then(|| playbook::ControllerLink::new(move |request| ask(request))),
            gate: order.through.map(|through| {
                let gate = std::sync::Arc::clone(cancel.gate());
                gate.open(through, &order.lost);
                playbook::PlayBarrier::new(move |play| gate.pass(play))
            }),
            check: order.check,
            login,
            background: Some(background::starter()),
            working_dir: self.working_dir.clone(),
            ..playbook::PlaybookRunOptions::default()
        };
        let (mut end, defect) = drive(&plan, &options, cancel, sink);
        if defect && let Some(fields) = end.as_object_mut() {
            fields.insert("defect".to_owned(), true.into());
        }
        end
    }

    fn undo(&self, backup: &Path) -> Result<Vec<String>, String> {
        playbook::undo(backup).map_err(|e| e.to_string())
    }
}

/// Runs a plan. A stop of `cancel` also stops the plan. True: a defect of this program ended the
/// run, and the result of the current task is unknown.
fn drive(
    plan: &playbook::Plan,
    options: &playbook::PlaybookRunOptions,
    cancel: &SessionCancel,
    sink: &mut dyn FnMut(Vec<u8>),
) -> (serde_json::Value, bool) {
    let (children, news) = mpsc::channel();
    let stop = playbook::CancelToken::with_watcher(move |pid, began| {
        let _the_run_is_over = children.send((pid, began));
    });
    let over = AtomicBool::new(false);
    let (end, panicked) = std::thread::scope(|scope| {
        let (plan_stop, over_soon) = (&stop, &over);
        scope.spawn(move || watch(cancel, plan_stop, &news, over_soon));
        // The watching thread must be notified of the end of the run, also after a panic. Otherwise
        // the scope would wait for the thread forever.
        let _end_signal = EndSignal(&over);
        let mut under_way = None;
        let mut trim = files::StepTrim::with_floor(RESIDENT_KB);
        trim.before_step();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            playbook::run(plan, options, &stop, &mut |event| {
                if let playbook::RunEvent::TaskStart { i, name, .. } = &event {
                    under_way = Some((*i, name.clone()));
                    trim.before_step();
                }
                sink(serde_json::to_vec(&event).unwrap_or_default());
            })
        }));
        match ran {
            Ok(end) => (end, false),
            Err(panic) => {
                let (event, end) = defect(plan, under_way, &panic_text(&*panic));
                sink(serde_json::to_vec(&event).unwrap_or_default());
                (end, true)
            }
        }
    });
    let mut end = serde_json::to_value(end).unwrap_or_default();
    if let Some(fields) = end.as_object_mut() {
        if fields.get("failure").is_some_and(|f| !f.is_null()) {
            fields.insert("failed".to_owned(), true.into());
        } else {
            fields.remove("failed"); // here `failed` is a count of ignored failures, but the executor reads a boolean
        }
        if let Some(why) = cancel.stop_reason().map(Stop::as_str) {
            fields.insert("stopped".to_owned(), why.into());
        }
    }
    (end, panicked)
}

/// The uid of the user who logged in, if this process is root by sudo.
fn login_uid() -> Option<u32> {
    let login = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    (rustix::process::geteuid().is_root() && login != 0).then_some(login)
}

/// While a plan runs, passes the stops of `cancel` on to `stop`, which the plan checks. Also
/// records in `cancel` the commands that the plan has started, so that a newer attempt finds them
/// even if they left the session of the executor.
fn watch(cancel: &SessionCancel, stop: &playbook::CancelToken, news: &mpsc::Receiver<(u32, bool)>, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        if cancel.stop_reason().is_some() {
            stop.stop();
        }
        if cancel.is_killed() {
            stop.cancel();
        }
        match news.recv_timeout(POLL) {
            Ok((pid, true)) => cancel.record_started(pid),
            Ok((pid, false)) => cancel.record_ended(pid),
            Err(_) => {}
        }
    }
    news.try_iter().filter(|(_, began)| !began).for_each(|(pid, _)| cancel.record_ended(pid));
}

/// When this value is dropped, also after a panic, the run is marked as over.
struct EndSignal<'a>(&'a AtomicBool);

impl Drop for EndSignal<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The last event and the end of a run that a defect of this program ended. The event is about the
/// current task. As after a crash, the file for pending handlers contains the handlers that still
/// have to run.
fn defect(
    plan: &playbook::Plan,
    under_way: Option<(u32, String)>,
    panic: &str,
) -> (playbook::RunEvent, playbook::RunEnd) {
    let (i, name) = under_way.unwrap_or((0, "before the first task".to_owned()));
    let message = format!("defect of remoor while running: {panic}");
    let failure = playbook::RunFailure {
        task: name.clone(),
        file: plan.playbook.clone(),
        message: message.clone(),
        ..playbook::RunFailure::default()
    };
    let done = playbook::TaskReport {
        i,
        turn: 0,
        name,
        module: String::new(),
        item: None,
        status: playbook::Status::Failed,
        changed: false,
        msg: message,
        rc: None,
        stdout_tail: String::new(),
        diff: None,
        attributes: Vec::new(),
        path: None,
        took_ms: 0,
    };
    let end = playbook::RunEnd { failed: 1, failure: Some(failure), ..playbook::RunEnd::default() };
    (playbook::RunEvent::Task(done), end)
}

fn unreadable_plan(error: &rmp_serde::decode::Error) -> String {
    format!("the plan could not be read: {error}")
}

/// The result of a run that was refused before it began.
fn refused_end(message: &str) -> serde_json::Value {
    let failure = playbook::RunFailure { message: message.to_owned(), ..playbook::RunFailure::default() };
    let end = playbook::RunEnd { failure: Some(failure), ..playbook::RunEnd::default() };
    let mut end = serde_json::to_value(end).unwrap_or_default();
    if let Some(fields) = end.as_object_mut() {
        fields.insert("refused".to_owned(), message.into());
        fields.remove("failed");
    }
    end
}

/// Computes digest and checks of everything in the manifest. A check file that cannot be parsed
/// gives one unknown result.
pub fn examine_manifest(manifest: &NodeManifest, key: &[u8; 32]) -> (NodeDigest, Vec<CheckResult>) {
    let digest = files::digest(manifest, key, &mut files::Cache::default());
    let mut checks = Vec::new();
    let mut results = Vec::new();
    for service in &manifest.services {
        for file in &service.checks {
            match check::parse(&file.file, &service.name, &file.text) {
                Ok(more) => checks.extend(more),
                Err(faults) => results.push(CheckResult {
                    service: service.name.clone(),
                    check: file.file.clone(),
                    property: "load".to_owned(),
                    state: CheckState::Unknown,
                    severity: Severity::Critical,
                    on_fail: OnFail::Alert,
                    expected: "a check file that loads".to_owned(),
                    found: String::new(),
                    message: faults.first().map(ToString::to_string).unwrap_or_default(),
                    took_ms: 0,
                }),
            }
        }
    }
    results.extend(check::run(&checks, &check::CheckRunOptions::with_defaults(now())));
    (digest, results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{SessionOutcome, outcome_of};
    use crate::wire::sample_fence;
    use remoor_playbook::{PLAN_VERSION, Plan, PlanStep, Play, Task};

    /// A plan whose second task panics in this program.
    fn plan() -> Plan {
        let task = |id, module: &str| {
            let args = [("msg".to_owned(), serde_json::json!("hello"))].into_iter().collect();
            let name = format!("task {id}");
            PlanStep::Task(Box::new(Task { id, name, module: module.into(), args, ..Task::default() }))
        };
        let sections = vec![vec![task(1, "debug"), task(2, "panic")]];
        let play = Play { name: "p".into(), sections, ..Play::default() };
        Plan {
            version: PLAN_VERSION,
            shared: Default::default(),
            playbook: "site.yml".into(),
            host: "w1".into(),
            vars: Default::default(),
            extra: Default::default(),
            layers: vec![],
            plays: vec![play],
            blobs: Default::default(),
            modules: Default::default(),
            delegated: None,
            resumed: None,
            shares: None,
            secrets: Default::default(),
        }
    }

    #[test]
    fn a_panic_in_a_run_ends_it_with_a_failure_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let order = RunOrder {
            fence: sample_fence(1),
            phase: RunPhase::Cleanup,
            plan: rmp_serde::to_vec_named(&plan()).unwrap(),
            protect: vec![],
            secret: vec![],
            tags: vec![],
            timeout_ms: 60_000,
        };
        let paths = RunPaths::prepare(dir.path(), &order.fence).unwrap();
        let (sender, receiver) = mpsc::channel();
        // The call runs in another thread, so that the test fails if the call blocks forever.
        std::thread::spawn(move || {
            let mut events = Vec::new();
            let end =
                NodeWork::default().run(&order, &paths, &SessionCancel::default(), &mut |event| events.push(event));
            sender.send((end, events))
        });
        let (end, events) = receiver.recv_timeout(Duration::from_secs(30)).expect("the run ends");
        assert_eq!((&end["failure"]["task"], &end["failed"]), (&"task 2".into(), &true.into()));
        assert!(end["failure"]["message"].as_str().unwrap().contains("a defect in a module"), "{end}");
        let last: serde_json::Value = serde_json::from_slice(events.last().unwrap()).unwrap();
        assert_eq!((&last["event"], &last["i"], &last["status"]), (&"task".into(), &2.into(), &"failed".into()));
        assert!(last["msg"].as_str().unwrap().contains("a defect in a module"), "{last}");
    }

    fn no_controller() -> AskController {
        std::sync::Arc::new(|_| Err("no controller".to_owned()))
    }

    #[test]
    fn an_unreadable_plan_is_refused_without_a_failed_task() {
        let dir = tempfile::tempdir().unwrap();
        let order = PlayOrder {
            plan: b"no plan".to_vec(),
            name: "x.yml".into(),
            run_id: "r1".into(),
            tags: vec![],
            check: false,
            force: false,
            through: None,
            lost: vec![],
        };
        let end = NodeWork::default().play(
            &order,
            &dir.path().join("journal"),
            &SessionCancel::default(),
            no_controller(),
            &mut |_| (),
        );
        assert_eq!(outcome_of(&end, None), SessionOutcome::PlanRefused, "{end}");
        assert!(end["failure"]["message"].as_str().unwrap().contains("could not be read"), "{end}");
    }

    /// The plan of a cleanup does not define the handlers of a provisioning. If the cleanup removed
    /// these handlers from the file for pending handlers, a service would keep running with its old
    /// configuration.
    #[test]
    fn a_cleanup_keeps_pending_handlers_of_a_provisioning() {
        let dir = tempfile::tempdir().unwrap();
        let play = |text: &str| {
            let vars = serde_json::json!({"inventory_hostname": "w1", "group_names": [], "dir": dir.path()});
            let vars = vars.as_object().unwrap().clone();
            let host = playbook::HostContext {
                name: "w1".into(),
                group: "web".into(),
                vars,
                ..playbook::HostContext::default()
            };
            let text = format!("- hosts: all\n  tasks:\n{text}").into_bytes();
            let files = remoor_model::FileSet([("site.yml".to_owned(), text)].into());
            let compiled = playbook::compile(&files, "site.yml", &host, &playbook::CompileOptions::default());
            rmp_serde::to_vec_named(&compiled.unwrap().plan).unwrap()
        };
        let run = |attempt, phase, text: &str| {
            let (fence, plan) = (sample_fence(attempt), play(text));
            let order =
                RunOrder { fence, phase, plan, protect: vec![], secret: vec![], tags: vec![], timeout_ms: 60_000 };
            let paths = RunPaths::prepare(dir.path(), &order.fence).unwrap();
            let mut events = Vec::new();
            let end = NodeWork::default().run(&order, &paths, &SessionCancel::default(), &mut |event| {
                events.push(String::from_utf8_lossy(&event).into_owned());
            });
            (end["failure"].is_null(), events.iter().any(|e| e.contains("\"handler\"") && e.contains("restart x")))
        };
        let provision = |fails: bool| {
            format!(
                "    - {{copy: {{content: new, dest: '{{{{ dir }}}}/x.conf'}}, notify: restart x}}
    - {{fail: {{msg: later}}, when: {fails}}}
  handlers:
    - {{name: restart x, command: 'true'}}
"
            )
        };
        let cleanup = "    - {command: 'true', notify: reload}
  handlers:
    - {name: reload, command: 'true'}
";
        assert_eq!(run(1, RunPhase::Provision, &provision(true)), (false, false), "the handler is pending");
        assert_eq!(run(2, RunPhase::Cleanup, cleanup), (true, false), "the cleanup does not run it");
        assert!(!dir.path().join("journal-cleanup.json").exists(), "the cleanup has no pending handlers");
        assert_eq!(
            run(2, RunPhase::Provision, &provision(false)),
            (true, true),
            "the file is as it was, and x restarts"
        );
        assert!(!dir.path().join("journal.json").exists());
    }
}
