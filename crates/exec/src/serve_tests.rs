//! Tests sessions over pipes. `ScriptedWork` is a small implementation of `ExecutorWork` that
//! reports tasks until it is stopped.

use super::*;
use crate::lock::RunLock;
use crate::runs::RunPaths;
use crate::wire::{PROTO, PlayOrder, RunOrder, RunPhase, sample_fence};
use crate::work::AskController;
use proptest::prelude::*;
use remoor_model::{AttemptId, Exam, NodeManifest, NodeName, ServiceManifest};
use std::io::{PipeReader, PipeWriter};
use std::os::unix::process::CommandExt;

/// The text of the plan selects the behaviour: `ok`, `fail`, `refuse`, `panic`, `tasks` (until
/// stopped), `keep` (a file for undo), `long` (one task that lasts until the file `go` exists or
/// the task is killed).
struct ScriptedWork;

impl ExecutorWork for ScriptedWork {
    fn examine(&self, manifest: &NodeManifest, key: &[u8; 32]) -> Exam {
        assert_eq!(key, &[7; 32]);
        let mut exam = Exam { boot: "not the machine's".into(), ..Exam::default() };
        for service in &manifest.services {
            exam.digest.services.insert(service.name.clone(), Default::default());
        }
        exam
    }

    fn check_plan(&self, plan: &[u8], _: &SessionCancel) -> Option<String> {
        (plan == b"refuse").then(|| "no Python".to_owned())
    }

    fn run(
        &self,
        order: &RunOrder,
        paths: &RunPaths,
        cancel: &SessionCancel,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value {
        let mut tasks = 0;
        match order.plan.as_slice() {
            b"fail" => return serde_json::json!({"failed": "task 1"}),
            b"refuse" => return serde_json::json!({"refused": "no such module"}),
            b"panic" => panic!("a defect"),
            b"keep" => std::fs::write(paths.backup.join("etc-hosts"), b"old").unwrap(),
            b"long" => {
                sink(b"{\"task\":1}".to_vec());
                while !cancel.is_killed() && !paths.state_dir.join("go").exists() {
                    thread::sleep(Duration::from_millis(5));
                }
                std::fs::write(paths.state_dir.join(if cancel.is_killed() { "killed" } else { "finished" }), b"")
                    .unwrap();
            }
            b"tasks" => {
                while cancel.stop_reason().is_none() {
                    tasks += 1;
                    sink(format!("{{\"task\":{tasks}}}").into_bytes());
                    thread::sleep(Duration::from_millis(20));
                }
            }
            _ => sink(b"{\"task\":1}".to_vec()),
        }
        serde_json::json!({"failed": null, "tasks": tasks})
    }

    fn play(
        &self,
        order: &PlayOrder,
        journal: &Path,
        cancel: &SessionCancel,
        _ask: AskController,
        sink: &mut dyn FnMut(Vec<u8>),
    ) -> serde_json::Value {
        let holder = std::fs::read_to_string(journal.parent().unwrap().join("run.lock")).unwrap();
        sink(holder.into_bytes());
        while order.plan == b"long" && !cancel.is_killed() && !journal.parent().unwrap().join("go").exists() {
            thread::sleep(Duration::from_millis(5));
        }
        serde_json::json!({"journal": journal})
    }

    fn undo(&self, backup: &Path) -> Result<Vec<String>, String> {
        std::fs::read_dir(backup)
            .map_err(|e| e.to_string())?
            .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()).map_err(|e| e.to_string()))
            .collect()
    }
}

struct SessionPeer {
    orders: Option<PipeWriter>,
    replies: PipeReader,
    server: thread::JoinHandle<u8>,
}

fn start(dir: &Path) -> SessionPeer {
    start_with(dir, Tuning { grace: Duration::from_millis(500), ..Tuning::default() })
}

fn start_with(dir: &Path, tuning: Tuning) -> SessionPeer {
    let (input, orders) = std::io::pipe().unwrap();
    let (mut replies, output) = std::io::pipe().unwrap();
    let dir = dir.to_owned();
    let server = thread::spawn(move || serve_with(input, output, &dir, &ScriptedWork, &tuning));
    let mut preface = vec![0; frame::PREFACE.len()];
    replies.read_exact(&mut preface).unwrap();
    assert_eq!(preface, frame::PREFACE);
    let mut peer = SessionPeer { orders: Some(orders), replies, server };
    assert!(matches!(peer.receive(), Reply::Hello(hello) if hello.proto == PROTO));
    peer
}

impl SessionPeer {
    fn send(&mut self, order: &ExecutorOrder) {
        self.orders.as_mut().unwrap().write_all(&frame::encode(order).unwrap()).unwrap();
    }

    fn receive(&mut self) -> Reply {
        frame::decode(&frame::read(&mut self.replies).unwrap().expect("a reply")).unwrap()
    }

    fn ask(&mut self, order: &ExecutorOrder) -> Reply {
        self.send(order);
        loop {
            let reply = self.receive();
            if reply.is_final() {
                return reply;
            }
        }
    }

    fn close_orders(mut self) -> u8 {
        self.orders = None;
        exit_of(self.server)
    }
}

fn exit_of(server: thread::JoinHandle<u8>) -> u8 {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !server.is_finished() {
        assert!(Instant::now() < deadline, "the session does not end");
        thread::sleep(Duration::from_millis(5));
    }
    server.join().unwrap()
}

fn fence(n: u64) -> ExecutorOrder {
    let (node, job) = (NodeName::from("w1"), remoor_model::JobId(1));
    ExecutorOrder::Fence { fence: sample_fence(n), node, job, timeout_ms: 20_000 }
}

fn run(n: u64, plan: &str) -> ExecutorOrder {
    ExecutorOrder::Run(RunOrder {
        fence: sample_fence(n),
        phase: RunPhase::Cleanup,
        plan: plan.into(),
        protect: vec![],
        secret: vec![],
        tags: vec!["nginx".into()],
        timeout_ms: 60_000,
    })
}

fn close(n: u64) -> ExecutorOrder {
    ExecutorOrder::Close { fence: sample_fence(n), done: true }
}

#[test]
fn a_session_examines_fences_runs_and_closes() {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = start(dir.path());
    let manifest = NodeManifest {
        services: vec![ServiceManifest { name: "nginx".into(), ..Default::default() }],
        ..Default::default()
    };
    let Reply::Exam(exam) = peer.ask(&ExecutorOrder::Examine { manifest, digest_key: [7; 32], known: None }) else {
        panic!()
    };
    assert_eq!(exam.digest.services.len(), 1);
    assert_eq!(exam.boot.as_str().len(), 36, "the value of the machine, not of the work");
    assert_eq!(peer.ask(&fence(3)), Reply::Fenced { ended: None });
    assert_eq!(peer.ask(&fence(3)), Reply::Fenced { ended: None }, "again, in the same session");
    peer.send(&run(3, "ok"));
    assert!(matches!(peer.receive(), Reply::Event { event } if event == b"{\"task\":1}"));
    assert!(matches!(peer.receive(), Reply::RunEnd(end) if end["failed"].is_null()));
    let gone = dir.path().join("gone").display().to_string();
    let cleaned = ExecutorOrder::Cleaned { fence: sample_fence(3), units: vec![], files: vec![gone], keep: vec![] };
    assert_eq!(peer.ask(&cleaned), Reply::Cleaned { leftovers: vec![] });
    assert_eq!(peer.ask(&close(3)), Reply::Closed);
    assert_eq!(exit_of(peer.server), 0);
    let audit = std::fs::read_to_string(dir.path().join("runs.log")).unwrap();
    assert!(audit.contains("cleanup 1-3 nginx started") && audit.contains("cleanup 1-3 nginx done"), "{audit}");
}

#[test]
fn nothing_runs_without_the_fence_of_this_session() {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = start(dir.path());
    for order in [run(3, "ok"), ExecutorOrder::Undo { attempt: AttemptId(3) }, close(3)] {
        assert!(matches!(peer.ask(&order), Reply::Refused { .. }), "{order:?}");
    }
    peer.ask(&fence(3));
    assert!(matches!(peer.ask(&run(4, "ok")), Reply::Refused { holder: Some(h), .. } if h == sample_fence(3)));
    assert!(!dir.path().join("runs.log").exists());
    // A newer attempt stores its fence while the attempt of this session holds the node.
    crate::FenceStore::new(dir.path()).advance(&sample_fence(9)).unwrap();
    assert!(matches!(peer.ask(&run(3, "ok")), Reply::Refused { holder: Some(h), .. } if h == sample_fence(9)));
    assert!(!dir.path().join("runs.log").exists());
    assert_eq!(peer.close_orders(), 12);
}

#[test]
fn an_equal_fence_of_another_session_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = start(dir.path());
    first.ask(&fence(3));
    assert_eq!(first.close_orders(), 12);
    let mut second = start(dir.path());
    for n in [2, 3] {
        assert!(matches!(second.ask(&fence(n)), Reply::Refused { holder: Some(h), .. } if h == sample_fence(3)));
    }
    assert_eq!(second.close_orders(), 13);
    let mut third = start(dir.path());
    assert_eq!(third.ask(&fence(4)), Reply::Fenced { ended: None });
    drop(third);
}

#[test]
fn a_blocking_play_is_reported_during_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    // The holder must be another process, because a process never blocks itself.
    let ready = dir.path().join("ready");
    let lock = dir.path().join("run.lock");
    let mut play = std::process::Command::new("flock")
        .arg(&lock)
        .args(["sh", "-c", &format!(": > '{}'; read line", ready.display())])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !ready.exists() {
        assert!(play.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(10));
    }
    let id = crate::ProcessId::from_pid(play.id() as i32).unwrap();
    let own = crate::Holder::for_this_process(crate::HolderKind::Play, None).unwrap();
    let holder = crate::Holder { process: id, leads_group: false, leads_session: false, ..own };
    std::fs::write(&lock, serde_json::to_vec(&holder).unwrap()).unwrap();

    let mut peer = start(dir.path());
    peer.send(&fence(3));
    let Reply::Alive { waiting_for: Some(who) } = peer.receive() else { panic!() };
    assert!(who.contains("remoor play"), "{who}");
    assert!(id.is_alive());
    drop(play.stdin.take());
    play.wait().unwrap();
    loop {
        match peer.receive() {
            Reply::Alive { .. } => {}
            reply => break assert_eq!(reply, Reply::Fenced { ended: None }),
        }
    }
}

#[test]
fn the_fence_is_stored_before_an_older_attempt_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    // When the older attempt receives TERM, it copies `fence.json`, to show which fence was stored
    // then.
    let script = "trap 'cp fence.json seen; exit 0' TERM; : > ready; while :; do sleep 0.05; done";
    let mut older = std::process::Command::new("flock")
        .args(["-o", "run.lock", "sh", "-c", script])
        .current_dir(dir)
        .process_group(0)
        .spawn()
        .unwrap();
    while !dir.join("ready").exists() {
        assert!(older.try_wait().unwrap().is_none());
        thread::sleep(Duration::from_millis(10));
    }
    crate::FenceStore::new(dir).advance(&sample_fence(2)).unwrap();
    let process = crate::ProcessId::from_pid(older.id() as i32).unwrap();
    let own = crate::Holder::for_this_process(crate::HolderKind::Attempt, Some(sample_fence(2))).unwrap();
    let holder = crate::Holder { process, leads_group: true, leads_session: false, ..own };
    std::fs::write(dir.join("run.lock"), serde_json::to_vec(&holder).unwrap()).unwrap();

    let mut peer = start_with(dir, Tuning { grace: Duration::from_secs(20), ..Tuning::default() });
    let reply = peer.ask(&fence(3));
    assert!(matches!(&reply, Reply::Fenced { ended: Some(who) } if who.contains("attempt 2")), "{reply:?}");
    let seen: remoor_model::Fence = serde_json::from_slice(&std::fs::read(dir.join("seen")).unwrap()).unwrap();
    assert_eq!(seen, sample_fence(3));
    older.wait().unwrap();
}

#[test]
fn the_end_of_the_stream_stops_a_run_and_releases_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = start(dir.path());
    peer.ask(&fence(3));
    peer.send(&run(3, "tasks"));
    assert!(matches!(peer.receive(), Reply::Event { .. }));
    assert!(RunLock::take_for_play(dir.path(), "r1").is_err());
    assert_eq!(peer.close_orders(), 12);
    RunLock::take_for_play(dir.path(), "r1").unwrap();
    assert!(std::fs::read_to_string(dir.path().join("runs.log")).unwrap().contains("stopped"));
}

#[test]
fn silence_stops_a_run_and_heartbeats_keep_it_going() {
    let dir = tempfile::tempdir().unwrap();
    // Even on a busy machine, this thread sends its next heartbeat before this time has passed.
    let silence = Duration::from_secs(3);
    let mut peer = start_with(dir.path(), Tuning { silence, ..Tuning::default() });
    peer.ask(&fence(3));
    peer.send(&run(3, "tasks"));
    let from = Instant::now();
    let mut alive = 0;
    while from.elapsed() < silence * 3 / 2 {
        peer.send(&ExecutorOrder::Heartbeat);
        while !matches!(peer.receive(), Reply::Alive { .. }) {}
        alive += 1;
    }
    assert!(alive > 2 && !peer.server.is_finished());
    // The manager's stream stays open, but the manager sends nothing.
    assert_eq!(exit_of(peer.server), 12);
    drop(peer.orders);
}

#[test]
fn an_idle_session_ends_with_silence_too() {
    let dir = tempfile::tempdir().unwrap();
    let silence = Duration::from_millis(300);
    let peer = start_with(dir.path(), Tuning { silence, ..Tuning::default() });
    assert_eq!(exit_of(peer.server), 12);
    drop(peer.orders);
}

#[test]
fn a_session_that_only_examined_ends_without_close() {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = start(dir.path());
    peer.ask(&ExecutorOrder::Examine { manifest: NodeManifest::default(), digest_key: [7; 32], known: None });
    assert_eq!(peer.close_orders(), 0);
}

#[test]
fn cancel_and_timeout_stop_a_run() {
    for by_time in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut peer = start(dir.path());
        peer.ask(&fence(3));
        let ExecutorOrder::Run(mut order) = run(3, "tasks") else { unreachable!() };
        // Even on a busy machine, the first task sends its event before this timeout.
        order.timeout_ms = if by_time { 2_000 } else { 60_000 };
        peer.send(&ExecutorOrder::Run(order));
        assert!(matches!(peer.receive(), Reply::Event { .. }));
        if !by_time {
            peer.send(&ExecutorOrder::Cancel { now: false });
        }
        while !matches!(peer.receive(), Reply::RunEnd(_)) {}
        assert!(matches!(peer.ask(&run(3, "ok")), Reply::Refused { .. }), "a stop is for good");
        assert_eq!(peer.ask(&close(3)), Reply::Closed);
        assert_eq!(exit_of(peer.server), 14);
    }
}

/// A session whose one long task has begun.
fn in_a_long_task(dir: &Path, overtime: Duration, timeout_ms: u64) -> SessionPeer {
    let mut peer = start_with(dir, Tuning { overtime, ..Tuning::default() });
    peer.ask(&fence(3));
    let ExecutorOrder::Run(order) = run(3, "long") else { unreachable!() };
    peer.send(&ExecutorOrder::Run(RunOrder { timeout_ms, ..order }));
    assert!(matches!(peer.receive(), Reply::Event { .. }));
    peer
}

#[test]
fn a_started_task_finishes_when_the_manager_is_lost_or_cancels() {
    for lost in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut peer = in_a_long_task(dir.path(), Duration::from_secs(60), 60_000);
        if lost {
            peer.orders = None;
        } else {
            peer.send(&ExecutorOrder::Cancel { now: false });
        }
        // After this time the executor has received the stop, and the task still runs.
        thread::sleep(Duration::from_millis(300));
        assert!(RunLock::take_for_play(dir.path(), "r1").is_err() && !dir.path().join("killed").exists());
        std::fs::write(dir.path().join("go"), b"").unwrap();
        if !lost {
            assert!(matches!(peer.receive(), Reply::RunEnd(_)));
            assert!(matches!(peer.ask(&run(3, "ok")), Reply::Refused { .. }), "nothing further is begun");
            peer.send(&close(3));
        }
        assert_eq!(exit_of(peer.server), if lost { 12 } else { 14 });
        assert!(dir.path().join("finished").exists());
    }
}

#[test]
fn a_started_task_is_killed_on_order_or_after_its_timeout() {
    for (timeout_ms, order) in [(60_000, true), (50, false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut peer = in_a_long_task(dir.path(), Duration::from_millis(100), timeout_ms);
        if order {
            peer.send(&ExecutorOrder::Cancel { now: false });
            peer.send(&ExecutorOrder::Cancel { now: true });
        }
        assert!(matches!(peer.receive(), Reply::RunEnd(_)));
        assert!(dir.path().join("killed").exists());
        peer.send(&close(3));
        assert_eq!(exit_of(peer.server), 14);
    }
}

#[test]
fn the_timeout_of_an_order_is_kept_after_the_manager_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = in_a_long_task(dir.path(), Duration::from_millis(100), 2_000);
    peer.orders = None;
    assert_eq!(exit_of(peer.server), 12);
    assert!(dir.path().join("killed").exists());
}

#[test]
fn exit_codes_show_how_the_run_ended() {
    for (plan, code) in [("ok", 0), ("fail", 10), ("refuse", 11), ("panic", 10)] {
        let dir = tempfile::tempdir().unwrap();
        let mut peer = start(dir.path());
        peer.ask(&fence(3));
        let end = peer.ask(&run(3, plan));
        assert_eq!(matches!(end, Reply::Error { .. }), plan == "panic", "{end:?}");
        assert_eq!(peer.ask(&close(3)), Reply::Closed);
        assert_eq!(exit_of(peer.server), code, "{plan}");
    }
}

#[test]
fn undo_restores_the_backup_of_an_earlier_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = start(dir.path());
    first.ask(&fence(3));
    first.ask(&run(3, "keep"));
    first.ask(&close(3));
    let mut second = start(dir.path());
    assert_eq!(second.ask(&ExecutorOrder::Backups), Reply::Backups { attempts: vec![AttemptId(3)] });
    second.ask(&fence(4));
    let undone = second.ask(&ExecutorOrder::Undo { attempt: AttemptId(3) });
    assert_eq!(undone, Reply::Undone { restored: vec!["etc-hosts".into()] });
    let audit = std::fs::read_to_string(dir.path().join("runs.log")).unwrap();
    assert!(audit.ends_with(" undo 1-4 attempt-3 done\n"), "{audit}");
    assert!(matches!(second.ask(&ExecutorOrder::Undo { attempt: AttemptId(1) }), Reply::Error { .. }));
}

#[test]
fn fetching_requires_an_examination() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"text").unwrap();
    let fetch = ExecutorOrder::Fetch { paths: vec![dir.path().join("f").display().to_string()] };
    let mut peer = start(dir.path());
    assert!(matches!(peer.ask(&fetch), Reply::Refused { .. }));
    peer.ask(&ExecutorOrder::Examine { manifest: NodeManifest::default(), digest_key: [7; 32], known: None });
    let Reply::Fetched { files } = peer.ask(&fetch) else { panic!() };
    assert_eq!(files[0].content, b"text");
}

#[test]
fn too_many_unanswered_orders_end_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = start(dir.path());
    peer.ask(&fence(3));
    peer.send(&run(3, "tasks"));
    for _ in 0..ORDERS_MAX + 1 {
        // The executor may have closed the pipe already.
        let _cut_off = peer.orders.as_mut().unwrap().write_all(&frame::encode(&run(3, "ok")).unwrap());
    }
    assert_eq!(exit_of(peer.server), 11);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn garbage_is_answered_and_ends_the_session(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        let dir = tempfile::tempdir().unwrap();
        let mut peer = start(dir.path());
        peer.orders.as_mut().unwrap().write_all(&bytes).unwrap();
        peer.orders = None;
        prop_assert_eq!(exit_of(peer.server), 11);
        let mut said_why = false;
        while let Ok(Some(content)) = frame::read(&mut peer.replies) {
            said_why |= matches!(frame::decode::<Reply>(&content), Ok(Reply::Error { .. }));
        }
        prop_assert!(said_why);
    }
}

#[test]
fn an_oversized_frame_is_answered_and_ends_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = start(dir.path());
    peer.orders.as_mut().unwrap().write_all(&u32::MAX.to_be_bytes()).unwrap();
    assert!(matches!(peer.receive(), Reply::Error { message } if message.contains("more than")));
    assert_eq!(exit_of(peer.server), 11);
}

/// A manager is lost while its Ansible runs a task on this node. The connection ends, but the task
/// continues.
#[test]
fn processes_left_by_ansible_are_reported_and_killed_by_the_next_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeName::from("left-by-ansible");
    let mut first = start(dir.path());
    let fence = |n| ExecutorOrder::Fence {
        fence: sample_fence(n),
        node: NodeName::from("left-by-ansible"),
        job: remoor_model::JobId(1),
        timeout_ms: 20_000,
    };
    assert_eq!(first.ask(&fence(5)), Reply::Fenced { ended: None });
    let mark = sample_fence(5).mark(&node);
    let mut task = std::process::Command::new("setsid");
    let mut task = task.args(["sleep", "300"]).env(remoor_model::Fence::MARK, mark).spawn().unwrap();
    assert_eq!(first.close_orders(), 12);
    let manifest = NodeManifest { node, ..NodeManifest::default() };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut look = start(dir.path());
        let Reply::Exam(exam) =
            look.ask(&ExecutorOrder::Examine { manifest: manifest.clone(), digest_key: [7; 32], known: None })
        else {
            panic!()
        };
        look.close_orders();
        if exam.busy.is_some_and(|busy| busy.contains("of Ansible")) {
            break;
        }
        assert!(Instant::now() < deadline, "the task is not seen");
    }
    let mut second = start(dir.path());
    let Reply::Fenced { ended: Some(ended) } = second.ask(&fence(6)) else { panic!() };
    assert!(ended.contains("Ansible processes of attempt 5"), "{ended}");
    assert!(task.try_wait().unwrap().is_some(), "it still runs");
    second.close_orders();
}

fn play(plan: &str, force: bool) -> ExecutorOrder {
    let (name, run_id) = ("/srv/site.yml".to_owned(), if plan == "long" { "7-1" } else { "8-1" }.to_owned());
    ExecutorOrder::Play(PlayOrder {
        plan: plan.into(),
        name,
        run_id,
        tags: vec![],
        check: false,
        force,
        through: None,
        lost: vec![],
    })
}

#[test]
fn a_play_holds_the_node_and_excludes_another_play() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = start(dir.path());
    first.send(&play("long", false));
    let Reply::Event { event } = first.receive() else { panic!("it runs") };
    assert!(String::from_utf8(event).unwrap().contains("\"kind\":\"play\""), "and the lock records a play");

    let why = match start(dir.path()).ask(&play("ok", false)) {
        Reply::Refused { why, holder: None } => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("remoor play, process") && why.contains("nothing was run"), "{why}");

    std::fs::write(dir.path().join("go"), b"").unwrap();
    let Reply::RunEnd(end) = first.receive() else { panic!("it ends") };
    let journal = end["journal"].as_str().unwrap();
    assert!(journal.starts_with(dir.path().join("journal-play-").to_str().unwrap()), "{journal}");
    assert!(matches!(first.ask(&fence(3)), Reply::Fenced { ended: None }), "the node is free again");
    let reply = first.ask(&play("ok", true));
    assert!(matches!(reply, Reply::Refused { .. }), "a session that holds an attempt runs no play");
    assert_eq!(first.close_orders(), 12);
    let audit = std::fs::read_to_string(dir.path().join("runs.log")).unwrap();
    assert!(audit.contains(" play 7-1 - started") && audit.contains(" play 7-1 - done"), "{audit}");
}

#[test]
fn a_play_on_a_managed_node_needs_force() {
    for mark in [remoor_host::disk::IDENTITY, remoor_host::disk::FENCE] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(mark), b"").unwrap();
        let mut peer = start(dir.path());
        let Reply::Refused { why, .. } = peer.ask(&play("ok", false)) else { panic!("{mark}") };
        assert!(why.contains("--force"), "{why}");
        assert!(!dir.path().join("runs.log").exists(), "nothing was begun");
        assert!(matches!(peer.ask(&play("ok", true)), Reply::RunEnd(_)), "{mark}");
    }
}
