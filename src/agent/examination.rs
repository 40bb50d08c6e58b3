//! The agent's own examination of its node: file watches, the digest of its files, its checks. It
//! needs no manager and no login. The functions of this module block the calling thread.
//! `schedule.rs` decides when such an examination begins.

use super::now;
use remoor_check as check;
use remoor_cluster::rpc::agent::ManifestReply;
use remoor_host::files;
use remoor_model::{CheckResult, CheckSummary, GenerationSeq, NodeDigest, NodeManifest, Now, Wall};
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Interval at which the agent reads every file, even if the metadata of the file has not changed.
const READ_ALL: Duration = Duration::from_secs(24 * 3600);
/// The nice value of the thread that computes the digest. It gives priority to the node's own
/// services on the CPUs, and on disks whose I/O scheduler respects the value.
const NICE: i32 = 10;

/// The state that the agent keeps between its examinations of the node.
pub(super) struct Examiner {
    stirred: UnboundedSender<files::FileEvent>,
    watcher: Option<files::Watcher>,
    /// Whether it was already logged that no file watcher is available.
    unwatched: bool,
    cache: files::Cache,
    read_all_at: Option<Instant>,
    patience: check::FailureThreshold,
}

/// The result of one examination of the node by its agent.
pub(super) struct AgentExamination {
    pub digest: NodeDigest,
    pub checks: CheckSummary,
    pub results: Vec<CheckResult>,
    pub generation: GenerationSeq,
    pub began: Wall,
    pub took_ms: u64,
}

impl Examiner {
    /// `stirred` receives the events in the directories of the declared files, beginning with the
    /// agent's first examination.
    pub(super) fn new(stirred: UnboundedSender<files::FileEvent>) -> Self {
        Self {
            stirred,
            watcher: None,
            unwatched: false,
            cache: files::Cache::default(),
            read_all_at: None,
            patience: check::FailureThreshold::default(),
        }
    }

    pub(super) fn examine(&mut self, known: &ManifestReply) -> AgentExamination {
        let (began, clock) = (now(), Instant::now());
        // The watches are set before the files are read. A change after the watches are set raises
        // an event. An earlier change is found when the files are read.
        let servers = files::Servers::now();
        self.watch(files::directories(&known.manifest, &servers));
        let digest = self.digest(known, &servers, clock);
        let (checks, results) = summary(&known.manifest, &mut self.patience);
        let (generation, took_ms) = (known.manifest.generation, clock.elapsed().as_millis() as u64);
        AgentExamination { digest, checks, results, generation, began, took_ms }
    }

    /// Updates the watches, because a new or recreated directory has none. Without inotify, the
    /// agent examines its node only at the regular interval.
    fn watch(&mut self, dirs: BTreeSet<PathBuf>) {
        if let Some(watcher) = &mut self.watcher {
            watcher.set(dirs);
            return;
        }
        let stirred = self.stirred.clone();
        match files::watch(dirs, move |event| drop(stirred.send(event))) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) if !self.unwatched => {
                tracing::warn!(%error, "files can't be watched; they are examined at intervals only");
                self.unwatched = true;
            }
            Err(_) => {}
        }
    }

    fn digest(&mut self, known: &ManifestReply, servers: &files::Servers, now: Instant) -> NodeDigest {
        if self.read_all_at.is_none_or(|at| now >= at) {
            self.cache.clear();
            self.read_all_at = Some(now + READ_ALL);
        }
        let mut key = [0; 32];
        // An invalid digest key changes the hashes of secret files, so a manager examines the node.
        let _ = hex::decode_to_slice(&known.digest_key, &mut key);
        run_at_low_priority(|| files::digest_with_servers(&known.manifest, &key, &mut self.cache, servers))
    }
}

/// Runs `what` in a separate thread of low priority. Threads that `what` starts inherit this
/// priority.
fn run_at_low_priority<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let quietly = || {
        let _ = rustix::process::nice(NICE); // on an error the thread has normal priority
        what()
    };
    thread::scope(|scope| scope.spawn(quietly).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs the agent's periodic checks. A failure counts after it has lasted as long as the check
/// requires.
fn summary(manifest: &NodeManifest, patience: &mut check::FailureThreshold) -> (CheckSummary, Vec<CheckResult>) {
    let mut checks = Vec::new();
    // A check file that can't be parsed may need a newer agent. The checks of the other files still
    // run, but the check summary is then `Unknown`.
    let mut unread = false;
    for service in &manifest.services {
        for file in &service.checks {
            match check::parse(&file.file, &service.name, &file.text) {
                Ok(more) => checks.extend(more),
                Err(_) => unread = true,
            }
        }
    }
    let mut results = check::run(&checks, &check::CheckRunOptions::with_defaults(now()));
    patience.settle(&checks, &mut results, Now(now().0));
    let summary = match CheckSummary::from_results(&results) {
        CheckSummary::Fail => CheckSummary::Fail,
        _ if unread => CheckSummary::Unknown,
        summary => summary,
    };
    (summary, results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::ServiceManifest;
    use rustix::process::getpriority_process;
    use std::fs;
    use tokio::sync::mpsc;

    const LONG: Duration = Duration::from_secs(120);

    fn manifest_with(files: &str) -> ManifestReply {
        let service = ServiceManifest { name: "s".into(), files: vec![files.to_owned()], ..Default::default() };
        let manifest = NodeManifest { services: vec![service], ..Default::default() };
        ManifestReply { manifest, digest_key: String::new(), check_interval_ms: 60_000, rejoin_ms: 0 }
    }

    #[tokio::test]
    async fn a_folder_made_again_and_a_new_one_are_watched_from_the_next_look_on() {
        let dir = tempfile::tempdir().unwrap();
        let (tx, mut stirs) = mpsc::unbounded_channel();
        let mut eyes = Examiner::new(tx);
        let conf = dir.path().join("conf");
        fs::create_dir(&conf).unwrap();
        let known = manifest_with(&format!("{}/", conf.display()));
        eyes.examine(&known);
        fs::remove_dir(&conf).unwrap();
        fs::create_dir_all(conf.join("new")).unwrap();
        let told =
            |event: Option<files::FileEvent>| matches!(event, Some(files::FileEvent::Changed(path)) if path == conf);
        while !told(tokio::time::timeout(LONG, stirs.recv()).await.expect("a stir, for another look")) {}
        eyes.examine(&known);
        for file in ["f", "new/f"].map(|name| conf.join(name)) {
            fs::write(&file, "x").unwrap();
            let wanted = Some(files::FileEvent::Changed(file));
            while tokio::time::timeout(LONG, stirs.recv()).await.expect("a stir for each file") != wanted {}
        }
    }

    #[test]
    fn once_a_day_every_file_is_read() {
        let mut eyes = Examiner::new(mpsc::unbounded_channel().0);
        // `Cargo.toml` was not written recently. A recently written file would be read at each
        // examination, even without a change.
        let known = manifest_with(&format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR")));
        let start = Instant::now();
        let mut reads = |after: Duration| {
            eyes.digest(&known, &files::Servers::default(), start + after);
            eyes.cache.reads()
        };
        let day = Duration::from_secs(86_400);
        assert_eq!([Duration::ZERO, day / 2, day, day * 3 / 2, day * 2].map(&mut reads), [1, 1, 2, 2, 3]);
    }

    #[test]
    fn files_are_read_behind_other_work_and_checks_are_not() {
        let nice = || getpriority_process(None).unwrap();
        let before = nice();
        let quiet = run_at_low_priority(|| thread::scope(|scope| scope.spawn(nice).join().unwrap()));
        assert_eq!((quiet, nice()), ((before + NICE).min(19), before));
    }
}
