//! A prepared play for tests of its controller. The tests send what a lying host would send.

use super::delegate::ControllerService;
use super::events::PlayRunEvent;
use super::host::PlayContext;
use super::lookups::PlayLookups;
use super::run::{PlayStop, Progress, Through};
use super::throttle::HostPermit;
use super::{PlayRequest, PreparedPlay, prepare};
use remoor_exec::wire::PlayOrder;
use remoor_playbook::Plan;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};

pub struct TestPlay {
    pub dir: TempDir,
    pub prepared: PreparedPlay,
    pub shared: PlayContext,
    pub ending: watch::Sender<PlayStop>,
    pub through: watch::Sender<Through>,
    pub events: mpsc::Receiver<PlayRunEvent>,
    pub progress: mpsc::UnboundedReceiver<(String, Progress)>,
}

impl TestPlay {
    /// The play has begun its first part. No host of it can be reached over SSH.
    pub fn new(playbook: &str, inventory: &str) -> Self {
        Self::with_files(playbook, inventory, &[])
    }

    /// Like `new`, with these other files in the directory of the playbook.
    pub fn with_files(playbook: &str, inventory: &str, files: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        for name in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "---\n").unwrap();
        }
        std::fs::write(dir.path().join("site.yml"), playbook).unwrap();
        std::fs::write(dir.path().join("inv"), inventory).unwrap();
        let inventory = vec![dir.path().join("inv").display().to_string()];
        let playbook = dir.path().join("site.yml");
        let request = PlayRequest { playbook, inventory, forks: 1, ..PlayRequest::default() };
        let prepared = prepare(request).unwrap_or_else(|faults| panic!("{faults:?}"));
        let (tell, events) = mpsc::channel(64);
        let (sender, progress) = mpsc::unbounded_channel();
        let order = PlayOrder {
            plan: Vec::new(),
            name: "site.yml".to_owned(),
            run_id: "r1".to_owned(),
            tags: Vec::new(),
            check: false,
            force: false,
            through: None,
            lost: Vec::new(),
        };
        let ending = watch::Sender::new(PlayStop::Not);
        let shared = PlayContext {
            once: Arc::default(),
            limits: Arc::default(),
            values: Arc::default(),
            lookups: Arc::new(PlayLookups::of_play(&prepared)),
            playbook_dir: Path::new("/").into(),
            // No host can be reached over SSH, so each allowed request has a failed task as answer.
            remote: Ok(None),
            order: Arc::new(order),
            connections: Arc::clone(&prepared.connections),
            changes: prepared.changes.clone(),
            diff: false,
            ending: ending.subscribe(),
            tell,
            progress: sender,
        };
        let through = watch::Sender::new(Through { play: 0, lost: Vec::new(), next: None });
        Self { dir, prepared, shared, ending, through, events, progress }
    }

    /// The plan of the host with this name.
    pub fn plan(&self, host: &str) -> Arc<Plan> {
        let host = self.prepared.hosts.iter().find(|one| one.name == host);
        Arc::clone(&host.expect("a host of the play").plan)
    }

    /// Answers the requests of this host.
    pub fn service<'h>(&self, host: &'h str) -> ControllerService<'h> {
        self.service_with(host, HostPermit::default())
    }

    /// Like `service`, with the permit that the reader of the host's events shares.
    pub fn service_with<'h>(&self, host: &'h str, permit: HostPermit) -> ControllerService<'h> {
        ControllerService::new(host, self.plan(host), self.shared.clone(), self.through.subscribe(), permit)
    }
}
