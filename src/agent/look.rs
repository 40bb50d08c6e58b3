//! One look of the agent at its node: its watches, the digest of its files, its checks. Blocks; when to look is not decided here.

use super::now;
use crate::check;
use crate::files;
use crate::model::{CheckResult, CheckSummary, GenerationSeq, Manifest, NodeDigest, Now, Wall};
use crate::rpc::agent::ManifestReply;
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// So often every file is read, also those that seem to be as they were.
const READ_ALL: Duration = Duration::from_secs(24 * 3600);
/// What the node is there for goes first, on processors and, by schedulers that heed it, on disks.
const NICE: i32 = 10;

/// What a look needs of the one before.
pub(super) struct Eyes {
    stirred: UnboundedSender<files::Event>,
    watcher: Option<files::Watcher>,
    /// It was said that there is no watcher.
    unwatched: bool,
    cache: files::Cache,
    read_all_at: Option<Instant>,
    patience: check::Patience,
}

/// What one look at the node came to.
pub(super) struct Look {
    pub digest: NodeDigest,
    pub checks: CheckSummary,
    pub results: Vec<CheckResult>,
    pub generation: GenerationSeq,
    pub began: Wall,
    pub took_ms: u64,
}

impl Eyes {
    /// `stirred` is told what happens in the folders of the declared files, from the first look on.
    pub(super) fn new(stirred: UnboundedSender<files::Event>) -> Self {
        Self {
            stirred,
            watcher: None,
            unwatched: false,
            cache: files::Cache::default(),
            read_all_at: None,
            patience: check::Patience::default(),
        }
    }

    pub(super) fn look(&mut self, known: &ManifestReply) -> Look {
        let (began, clock) = (now(), Instant::now());
        // First of all: what changes from here on stirs, and what has changed before is read below.
        let servers = files::Servers::now();
        self.watch(files::directories(&known.manifest, &servers));
        let digest = self.digest(known, &servers, clock);
        let (checks, results) = summary(&known.manifest, &mut self.patience);
        let (generation, took_ms) = (known.manifest.generation, clock.elapsed().as_millis() as u64);
        Look { digest, checks, results, generation, began, took_ms }
    }

    /// At each look, since a folder that is new, or was removed and made again, has no watch. Without inotify the pass at each
    /// interval remains.
    fn watch(&mut self, dirs: BTreeSet<PathBuf>) {
        if let Some(watcher) = &mut self.watcher {
            watcher.set(dirs);
            return;
        }
        let stirred = self.stirred.clone();
        match files::watch(dirs, move |event| drop(stirred.send(event))) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) if !self.unwatched => {
                tracing::warn!(%error, "files are not watched, only looked at in intervals");
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
        let _ = hex::decode_to_slice(&known.digest_key, &mut key); // a bad key: secrets differ, and a manager looks
        behind(|| files::digest_beside(&known.manifest, &key, &mut self.cache, servers))
    }
}

/// Runs `what` in a thread of its own, which all other work goes before; so do the threads that it begins.
fn behind<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let quietly = || {
        let _ = rustix::process::nice(NICE); // then it is in nobody's way less
        what()
    };
    thread::scope(|scope| scope.spawn(quietly).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Periodic checks only: a failure counts once it has lasted as long as the check says.
fn summary(manifest: &Manifest, patience: &mut check::Patience) -> (CheckSummary, Vec<CheckResult>) {
    let mut checks = Vec::new();
    // Written for a newer agent, perhaps: the other files are asked all the same, and the whole is not known.
    let mut unread = false;
    for service in &manifest.services {
        for file in &service.checks {
            match check::parse(&file.file, &service.name, &file.text) {
                Ok(more) => checks.extend(more),
                Err(_) => unread = true,
            }
        }
    }
    let mut results = check::run(&checks, &check::RunOptions::at(now()));
    patience.settle(&checks, &mut results, Now(now().0));
    let summary = match CheckSummary::of(&results) {
        CheckSummary::Fail => CheckSummary::Fail,
        _ if unread => CheckSummary::Unknown,
        summary => summary,
    };
    (summary, results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ServiceManifest;
    use rustix::process::getpriority_process;
    use std::fs;
    use tokio::sync::mpsc;

    const LONG: Duration = Duration::from_secs(120);

    fn known(files: &str) -> ManifestReply {
        let service = ServiceManifest { name: "s".into(), files: vec![files.to_owned()], ..Default::default() };
        let manifest = Manifest { services: vec![service], ..Default::default() };
        ManifestReply { manifest, digest_key: String::new(), check_interval_ms: 60_000, rejoin_ms: 0 }
    }

    #[tokio::test]
    async fn a_folder_made_again_and_a_new_one_are_watched_from_the_next_look_on() {
        let dir = tempfile::tempdir().unwrap();
        let (tx, mut stirs) = mpsc::unbounded_channel();
        let mut eyes = Eyes::new(tx);
        let conf = dir.path().join("conf");
        fs::create_dir(&conf).unwrap();
        let known = known(&format!("{}/", conf.display()));
        eyes.look(&known);
        fs::remove_dir(&conf).unwrap();
        fs::create_dir_all(conf.join("new")).unwrap();
        let told = |event: Option<files::Event>| matches!(event, Some(files::Event::Changed(path)) if path == conf);
        while !told(tokio::time::timeout(LONG, stirs.recv()).await.expect("a stir, for another look")) {}
        eyes.look(&known);
        for file in ["f", "new/f"].map(|name| conf.join(name)) {
            fs::write(&file, "x").unwrap();
            let wanted = Some(files::Event::Changed(file));
            while tokio::time::timeout(LONG, stirs.recv()).await.expect("a stir for each file") != wanted {}
        }
    }

    #[test]
    fn once_a_day_every_file_is_read() {
        let mut eyes = Eyes::new(mpsc::unbounded_channel().0);
        // One that was not written just now.
        let known = known(&format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR")));
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
        let quiet = behind(|| thread::scope(|scope| scope.spawn(nice).join().unwrap()));
        assert_eq!((quiet, nice()), ((before + NICE).min(19), before));
    }
}
