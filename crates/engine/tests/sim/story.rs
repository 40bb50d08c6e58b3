//! A story is a test with fixed events: only the events of the test happen in the world. This file
//! has the methods to write one. All laws apply in a story too.

use super::liveness;
use super::options::Options;
use super::world::{EPOCH, World};
use remoor_model::*;

/// Whether the last finding of the node has this verdict.
pub fn has_verdict(world: &World, node: &str, verdict: &Verdict) -> bool {
    let finding = world.state.by_name(node).and_then(|n| n.examination.finding.as_ref());
    finding.is_some_and(|f| f.verdict == *verdict)
}

pub struct Story {
    pub world: World,
}

impl Story {
    /// Begins a story with nine nodes that are all in gossip, and a leader whose grace period is
    /// over.
    pub fn begin() -> Self {
        Self::with_options(Options::story())
    }

    pub fn with_options(options: Options) -> Self {
        let mut story = Self { world: World::new(Options { trace: true, ..options }) };
        story.secs(20);
        assert!(story.world.leader.is_some(), "a leader at the beginning");
        story
    }

    pub fn secs(&mut self, seconds: u64) {
        let end = self.world.now + seconds * 1_000;
        self.world.run_until(end);
        self.assert_lawful();
    }

    fn assert_lawful(&self) {
        if let Some(broken) = &self.world.outcome.broken {
            panic!("{broken}\n{}", self.events());
        }
    }

    fn events(&self) -> String {
        self.world.outcome.events()
    }

    /// Waits for a condition, in simulated time.
    pub fn wait_until(&mut self, what: &str, seconds: u64, done: impl Fn(&World) -> bool) {
        let end = self.world.now + seconds * 1_000;
        while !done(&self.world) {
            assert!(self.world.now < end, "not within {seconds} s: {what}\n{}", self.events());
            let next = self.world.now + 20;
            self.world.run_until(next);
            self.assert_lawful();
        }
    }

    pub fn wait_until_at_rest(&mut self, seconds: u64) {
        let end = self.world.now + seconds * 1_000;
        while let Some(missing) = liveness::unmet_condition(&mut self.world) {
            assert!(self.world.now < end, "not within {seconds} s: {missing}\n{}", self.events());
            self.secs(1);
        }
    }

    pub fn host_index(&self, name: &str) -> usize {
        self.world.hosts.iter().position(|h| h.name == name).expect("a host of that name")
    }

    pub fn node(&self, name: &str) -> &Node {
        self.world.state.by_name(name).expect("a node of that name")
    }

    pub fn leader(&self) -> usize {
        self.world.leader.as_ref().expect("a leader").host
    }

    pub fn order(&mut self, command: Command) {
        self.world.order_now(command);
        self.secs(1);
    }

    pub fn want(&mut self, name: &str, occasion: Trigger, decommission: bool) {
        let at = self.host_index(name);
        let mut command = self.world.request_resetup(at, occasion, decommission);
        if let Command::RequestResetup { want, .. } = &mut command {
            (want.spec.now, want.spec.force) = (false, false);
        }
        self.order(command);
    }

    pub fn edit(&mut self, name: &str, service: &str) {
        let at = self.host_index(name);
        self.world.hosts[at].part(service).edits = 7;
    }

    /// Every verdict on this node so far.
    pub fn verdicts(&self, name: &str) -> Vec<Finding> {
        let id = self.node(name).id;
        let concluded = self.world.state.history.iter().filter(|h| h.node == Some(id)).filter_map(|h| match &h.what {
            JournalEvent::Concluded { finding } => Some((**finding).clone()),
            _ => None,
        });
        concluded.collect()
    }

    /// The verdict on the only absence of this node.
    pub fn verdict(&self, name: &str) -> Finding {
        let all: Vec<Finding> = self.verdicts(name).into_iter().filter(|f| f.absence.is_some()).collect();
        assert_eq!(all.len(), 1, "one verdict on one absence of {name}: {all:?}");
        all[0].clone()
    }

    pub fn jobs(&self, name: &str) -> Vec<Job> {
        let id = self.node(name).id;
        self.world.state.jobs.values().filter(|j| j.node == id).map(|j| (**j).clone()).collect()
    }

    pub fn wall(&self) -> Wall {
        Wall(EPOCH + self.world.now)
    }
}
