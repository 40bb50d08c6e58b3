//! Tests the lock against other processes. Each `LockStranger` is a process group of its own that
//! holds the lock file by flock(1).

use super::*;
use crate::wire::sample_fence;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

const GRACE: Duration = Duration::from_millis(500);

struct LockStranger {
    child: Child,
    holder: Holder,
}

impl LockStranger {
    /// Starts a process group that holds the lock, and writes its record. The process group then
    /// makes the file `ready` and runs `script`.
    fn hold(dir: &Path, kind: HolderKind, script: &str) -> Self {
        let ready = dir.join("ready");
        let child = Command::new("flock")
            .arg(dir.join("run.lock"))
            .args(["sh", "-c", &format!(": > '{}'; {script}", ready.display())])
            .process_group(0)
            .spawn()
            .expect("flock(1) of util-linux");
        wait_for("the stranger", || ready.exists());
        let process = ProcessId::from_pid(child.id() as i32).unwrap();
        let holder = Holder {
            kind,
            fence: (kind == HolderKind::Attempt).then(|| sample_fence(1)),
            process,
            leads_group: true,
            leads_session: false,
            children: vec![],
            boot: boot(),
            run: None,
        };
        let stranger = Self { child, holder };
        stranger.record(dir);
        stranger
    }

    fn record(&self, dir: &Path) {
        write_record(&open(dir).unwrap(), Some(&self.holder)).unwrap();
    }

    fn is_alive(&self) -> bool {
        self.holder.process.is_alive()
    }
}

impl Drop for LockStranger {
    fn drop(&mut self) {
        let _all = self.holder.family().terminate(Duration::from_secs(5));
        let _reaped = self.child.wait();
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn take(dir: &Path, wait: Duration) -> Result<(RunLock, Option<String>), LockError> {
    RunLock::take_for_attempt(dir, &sample_fence(2), GRACE, Instant::now() + wait, &mut |_| WaitDecision::Wait)
}

#[test]
fn a_free_lock_is_taken_and_released() {
    let dir = tempfile::tempdir().unwrap();
    let (lock, ended) = take(dir.path(), GRACE).unwrap();
    assert_eq!(ended, None);
    let other = open(dir.path()).unwrap();
    assert!(!try_flock(&other).unwrap());
    assert_eq!(read_record(&other).unwrap().fence, Some(sample_fence(2)));
    drop(lock);
    assert!(try_flock(&other).unwrap());
    assert_eq!(read_record(&other), None);
}

#[test]
fn an_older_attempt_is_killed_with_its_whole_group() {
    let dir = tempfile::tempdir().unwrap();
    let stranger = LockStranger::hold(dir.path(), HolderKind::Attempt, "sleep 300 & sleep 300");
    let (_lock, ended) = take(dir.path(), Duration::from_secs(60)).unwrap();
    assert!(ended.unwrap().contains("attempt 1, process"));
    assert!(!stranger.is_alive());
    assert!(stranger.holder.family().members().is_empty());
}

#[test]
fn an_attempt_that_ignores_term_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let deaf = dir.path().join("deaf");
    let script = format!("trap '' TERM; : > '{}'; while :; do sleep 0.1; done", deaf.display());
    let stranger = LockStranger::hold(dir.path(), HolderKind::Attempt, &script);
    wait_for("the trap", || deaf.exists());
    let (_lock, ended) = take(dir.path(), Duration::from_secs(60)).unwrap();
    assert!(ended.unwrap().contains("was killed"));
    assert!(!stranger.is_alive());
}

#[test]
fn children_of_a_dead_attempt_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut stranger = LockStranger::hold(dir.path(), HolderKind::Attempt, "sleep 300");
    let mut orphan = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
    let child = ProcessId::from_pid(orphan.id() as i32).unwrap();
    stranger.holder.children = vec![child];
    stranger.record(dir.path());
    stranger.child.kill().unwrap();
    stranger.child.wait().unwrap();
    let (_lock, _ended) = take(dir.path(), Duration::from_secs(60)).unwrap();
    assert!(stranger.holder.family().members().is_empty());
    orphan.wait().unwrap();
}

#[test]
fn a_reused_pid_is_never_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut innocent = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
    let process = ProcessId::from_pid(innocent.id() as i32).unwrap();
    let dead = Holder {
        kind: HolderKind::Attempt,
        fence: Some(sample_fence(1)),
        process: ProcessId { start: process.start - 1, ..process },
        leads_group: true,
        leads_session: true,
        children: vec![ProcessId { start: process.start - 1, ..process }],
        boot: boot(),
        run: None,
    };
    write_record(&open(dir.path()).unwrap(), Some(&dead)).unwrap();
    let (_lock, ended) = take(dir.path(), Duration::from_secs(60)).unwrap();
    assert_eq!(ended, None);
    assert!(process.is_alive());
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[test]
fn a_record_of_an_earlier_boot_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let mut innocent = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
    let process = ProcessId::from_pid(innocent.id() as i32).unwrap();
    let own = Holder::for_this_process(HolderKind::Attempt, None).unwrap();
    let before = Holder { process, leads_group: true, boot: "another".into(), ..own };
    write_record(&open(dir.path()).unwrap(), Some(&before)).unwrap();
    take(dir.path(), Duration::from_secs(60)).unwrap();
    assert!(process.is_alive());
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[test]
fn an_attempt_waits_for_a_play_and_never_kills_it() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.05; done", go.display());
    let stranger = LockStranger::hold(dir.path(), HolderKind::Play, &script);
    let refused = take(dir.path(), Duration::from_millis(300));
    assert!(matches!(refused, Err(LockError::Held(holder)) if holder.kind == HolderKind::Play));
    assert!(stranger.is_alive());

    let mut asked = 0;
    let far = Instant::now() + Duration::from_secs(60);
    let taken = RunLock::take_for_attempt(dir.path(), &sample_fence(2), GRACE, far, &mut |who| {
        // After the third call of this callback the play may end. Then the record of the play may
        // be missing, although the lock was still held just before.
        assert!(asked >= 3 || who.contains("remoor play"), "{who}");
        asked += 1;
        if asked == 3 {
            assert!(stranger.is_alive());
            fs::write(&go, b"").unwrap();
        }
        WaitDecision::Wait
    });
    assert_eq!(taken.unwrap().1, None);
    assert!(asked >= 3);
}

#[test]
fn a_running_command_of_a_dead_play_holds_the_node_and_its_daemon_does_not() {
    let dir = tempfile::tempdir().unwrap();
    // The lock is free because the play has ended. A daemon in the group of the play and a recorded
    // command still run.
    let child = Command::new("sh").args(["-c", "sleep 300 & wait"]).process_group(0).spawn().unwrap();
    let process = ProcessId::from_pid(child.id() as i32).unwrap();
    let own = Holder::for_this_process(HolderKind::Play, None).unwrap();
    let mut stranger =
        LockStranger { child, holder: Holder { process, leads_group: true, leads_session: false, ..own } };
    wait_for("the daemon", || stranger.holder.family().members().len() == 2);
    let mut command = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
    let under_way = ProcessId::from_pid(command.id() as i32).unwrap();
    stranger.holder.children = vec![under_way];
    stranger.record(dir.path());
    stranger.child.kill().unwrap();
    stranger.child.wait().unwrap();
    assert_eq!(stranger.holder.family().members().len(), 2);

    let named = format!("process {} of remoor play (process {}, ended) holds the node", under_way.pid, process.pid);
    assert_eq!(RunLock::take_for_play(dir.path(), "r2").unwrap_err().to_string(), named);
    assert_eq!(take(dir.path(), Duration::from_millis(200)).unwrap_err().to_string(), named);
    assert!(under_way.is_alive());

    command.kill().unwrap();
    command.wait().unwrap();
    assert!(!stranger.holder.family().members().is_empty(), "the daemon continues to run");
    drop(RunLock::take_for_play(dir.path(), "r2").unwrap());
    stranger.record(dir.path());
    assert_eq!(take(dir.path(), Duration::ZERO).unwrap().1, None);
    assert!(!stranger.holder.family().members().is_empty());
}

#[test]
fn the_wait_for_a_play_can_be_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let _stranger = LockStranger::hold(dir.path(), HolderKind::Play, "sleep 300");
    let far = Instant::now() + Duration::from_secs(60);
    let taken = RunLock::take_for_attempt(dir.path(), &sample_fence(2), GRACE, far, &mut |_| WaitDecision::GiveUp);
    assert!(matches!(taken, Err(LockError::GivenUp)));
}

#[test]
fn a_play_takes_a_free_lock_and_kills_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(running_attempt(dir.path()), None);
    let own = RunLock::take_for_play(dir.path(), "r1").unwrap();
    assert_eq!(running_attempt(dir.path()), None);
    drop(own);
    let stranger = LockStranger::hold(dir.path(), HolderKind::Attempt, "sleep 300");
    assert!(running_attempt(dir.path()).is_some_and(|who| who.contains("attempt")));
    assert!(matches!(RunLock::take_for_play(dir.path(), "r1"), Err(LockError::Held(_))));
    assert!(stranger.is_alive());
}

#[test]
fn sessions_of_one_run_share_the_node_and_exclude_others() {
    let dir = tempfile::tempdir().unwrap();
    let first = RunLock::take_for_play(dir.path(), "r1").unwrap();
    let second = RunLock::take_for_play(dir.path(), "r1").unwrap();
    for left in [first, second] {
        assert!(matches!(RunLock::take_for_play(dir.path(), "r2"), Err(LockError::Held(_))));
        let at_once = Instant::now();
        let mut pause = |_: &str| WaitDecision::GiveUp;
        let attempt = RunLock::take_for_attempt(dir.path(), &sample_fence(1), Duration::ZERO, at_once, &mut pause);
        assert!(attempt.is_err());
        drop(left);
    }
    RunLock::take_for_play(dir.path(), "r2").unwrap();
}

#[test]
fn a_session_waits_while_another_one_of_its_run_begins() {
    let dir = tempfile::tempdir().unwrap();
    let other = open(dir.path()).unwrap();
    assert!(try_flock(&other).unwrap());
    let own = Holder::for_this_process(HolderKind::Play, None).unwrap();
    let dead = ProcessId { start: own.process.start + 1, ..own.process };
    // The lock is held without a record, and then with the record of a run that was killed.
    for record in [None, Some(Holder { run: Some("r0".to_owned()), process: dead, ..own.clone() })] {
        write_record(&other, record.as_ref()).unwrap();
        thread::scope(|scope| {
            let taken = scope.spawn(|| RunLock::take_for_play(dir.path(), "r1"));
            thread::sleep(POLL * 3);
            assert!(!taken.is_finished());
            write_record(&other, Some(&Holder { run: Some("r1".to_owned()), ..own.clone() })).unwrap();
            assert!(share(&other).unwrap());
            taken.join().unwrap().unwrap();
        });
        assert!(try_flock(&other).unwrap());
    }
}

#[test]
fn sessions_of_one_run_that_begin_and_end_together_share_the_node() {
    let dir = tempfile::tempdir().unwrap();
    for run in 0..20 {
        let run = format!("r{run}");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| drop(RunLock::take_for_play(dir.path(), &run).unwrap()));
            }
        });
    }
}
