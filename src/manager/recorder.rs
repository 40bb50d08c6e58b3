//! The leader's flight recorder: the last engine steps that had an effect. It is in memory only,
//! and no decision depends on it.

use remoor_engine::{About, Action, EngineEvent, ExamOutcome, PhaseResult, Rule, explain};
use remoor_model::{Applied, AttemptId, Command, Inventory, NodeId, Wall, differences};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Maximum number of recorded engine steps. The oldest steps are dropped first.
const STEPS_MAX: usize = 4_096;
/// Maximum number of digest entries that are stored for one engine step. Only entries that differ
/// from the expected digest are stored.
const ENTRIES_MAX: usize = 100;
const CHECKS_MAX: usize = 100;

/// One engine step: the event that the engine received and the actions that it returned.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStep {
    pub at: Wall,
    pub event: EngineEvent,
    pub actions: Vec<Action>,
    /// The rules that led to the verdict, if one of the actions records a verdict.
    pub rules: Vec<Rule>,
    /// The nodes that the event and the actions are about.
    pub nodes: BTreeSet<NodeId>,
    /// The node that each action is about, in the order of `actions`.
    pub about: Vec<Option<NodeId>>,
}

#[derive(Debug, Default)]
pub struct Recorder {
    leading_since: Option<Wall>,
    steps: VecDeque<Arc<RecordedStep>>,
    dropped: u64,
}

impl Recorder {
    /// Starts a new record, because a new leadership does not know the events of earlier ones.
    pub fn begin(&mut self, at: Wall) {
        *self = Self { leading_since: Some(at), ..Self::default() };
    }

    /// The beginning of the last leadership. None if this manager has not led since its start.
    pub fn leading_since(&self) -> Option<Wall> {
        self.leading_since
    }

    /// Number of engine steps that were dropped because the record was full.
    pub fn dropped_count(&self) -> u64 {
        self.dropped
    }

    pub fn add(&mut self, step: RecordedStep) {
        if self.steps.len() >= STEPS_MAX {
            self.steps.pop_front();
            self.dropped += 1;
        }
        self.steps.push_back(Arc::new(step));
    }

    /// The recorded engine steps about `node`, oldest first.
    pub fn steps_about(&self, node: NodeId) -> Vec<Arc<RecordedStep>> {
        self.steps.iter().filter(|s| s.nodes.contains(&node)).cloned().collect()
    }
}

/// Returns a copy of the event for the record. The copy's evidence contains only the digest entries
/// that differ.
pub fn keep(event: &EngineEvent) -> EngineEvent {
    let mut event = event.clone();
    match &mut event {
        EngineEvent::Examined { outcome, .. } => {
            if let ExamOutcome::Found(evidence) = outcome.as_mut() {
                trim(evidence);
            }
        }
        EngineEvent::Ran { result, .. } => {
            if let PhaseResult::Verified(verified) = result.as_mut() {
                trim(&mut verified.evidence);
            }
        }
        _ => {}
    }
    event
}

fn trim(evidence: &mut remoor_engine::Evidence) {
    let found = &mut evidence.exam.digest;
    let differing: BTreeSet<(String, String)> = evidence
        .expected
        .iter()
        .flat_map(|expected| differences(expected, found))
        .map(|d| (d.service.to_string(), d.path))
        .take(ENTRIES_MAX)
        .collect();
    for digest in evidence.expected.iter_mut().chain([found]) {
        for (name, service) in &mut digest.services {
            service.entries.retain(|e| differing.contains(&(name.to_string(), e.path.clone())));
        }
    }
    evidence.rendered.retain(|path| differing.iter().any(|(_, differs)| differs == path));
    let checks = &mut evidence.exam.checks;
    checks.sort_by_key(|c| c.state == remoor_model::CheckState::Pass);
    checks.truncate(CHECKS_MAX);
}

/// The engine step to record. None if the event is routine and caused no action.
pub fn step(at: Wall, inventory: &Inventory, event: EngineEvent, actions: &[Action]) -> Option<RecordedStep> {
    let idle = match &event {
        EngineEvent::Tick | EngineEvent::Changed | EngineEvent::Sighted { .. } | EngineEvent::Renewed { .. } => true,
        EngineEvent::Proposed { applied, .. } => !matches!(applied, None | Some(Applied::Refused(_))),
        _ => false,
    };
    if idle && actions.is_empty() {
        return None;
    }
    let about: Vec<Option<NodeId>> = actions.iter().map(|a| node_of(inventory, a)).collect();
    let told = match &event {
        EngineEvent::Alive { node, .. }
        | EngineEvent::Renewed { node }
        | EngineEvent::Sighted { node, .. }
        | EngineEvent::Reported { node, .. }
        | EngineEvent::Greeted { node, .. }
        | EngineEvent::Gone { node }
        | EngineEvent::Probed { node, .. }
        | EngineEvent::Reach { node, .. }
        | EngineEvent::Examined { node, .. } => Some(*node),
        EngineEvent::Ran { job, .. } => inventory.job(*job).map(|j| j.node),
        EngineEvent::Proposed { about: About::Node(node), .. } => Some(*node),
        EngineEvent::Proposed { .. } | EngineEvent::Rendered { .. } | EngineEvent::Changed | EngineEvent::Tick => None,
    };
    let nodes = about.iter().flatten().copied().chain(told).collect();
    let rules = rules(inventory, &event, actions);
    Some(RecordedStep { at, event, actions: actions.to_vec(), rules, nodes, about })
}

fn rules(inventory: &Inventory, event: &EngineEvent, actions: &[Action]) -> Vec<Rule> {
    let EngineEvent::Examined { node, outcome, .. } = event else { return Vec::new() };
    let exam = match outcome.as_ref() {
        ExamOutcome::Found(evidence) => Some(&evidence.exam),
        _ => None,
    };
    let concluded = actions.iter().find_map(|a| match a {
        Action::Propose { command: Command::Conclude { finding, .. }, .. } => Some(finding),
        _ => None,
    });
    match (concluded, inventory.node(*node)) {
        (Some(finding), Some(node)) => explain(inventory, node, finding, exam),
        _ => Vec::new(),
    }
}

fn node_of(inventory: &Inventory, action: &Action) -> Option<NodeId> {
    let of_attempt = |attempt: AttemptId| {
        let job = inventory.jobs.values().find(|j| j.attempts.iter().any(|a| a.id == attempt));
        job.map(|j| j.node)
    };
    match action {
        Action::Propose { about: About::Node(node), .. } => Some(*node),
        Action::Probe { node }
        | Action::Greet { node }
        | Action::Reach { node, .. }
        | Action::Examine { node, .. }
        | Action::Run { node, .. } => Some(*node),
        Action::Stop { attempt, .. } => of_attempt(*attempt),
        Action::Notify { node, .. } => *node,
        Action::Propose { .. } | Action::Render { .. } | Action::HandOver { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone_event(node: u64) -> EngineEvent {
        EngineEvent::Gone { node: NodeId(node) }
    }

    #[test]
    fn steps_without_effect_are_not_recorded_and_the_record_is_bounded() {
        let inventory = Inventory::default();
        assert_eq!(step(Wall(1), &inventory, EngineEvent::Tick, &[]), None);
        assert_eq!(step(Wall(1), &inventory, EngineEvent::Changed, &[]), None);
        let mut recorder = Recorder::default();
        assert_eq!(recorder.leading_since(), None);
        recorder.begin(Wall(5));
        let probe = [Action::Probe { node: NodeId(2) }];
        recorder.add(step(Wall(6), &inventory, EngineEvent::Tick, &probe).expect("it did something"));
        for n in 0..STEPS_MAX as u64 {
            recorder.add(step(Wall(7 + n), &inventory, gone_event(1), &[]).expect("news"));
        }
        assert_eq!((recorder.dropped_count(), recorder.steps_about(NodeId(1)).len()), (1, STEPS_MAX));
        assert!(recorder.steps_about(NodeId(2)).is_empty(), "the oldest is dropped first");
        recorder.begin(Wall(9));
        assert_eq!(
            (recorder.leading_since(), recorder.dropped_count(), recorder.steps_about(NodeId(1)).len()),
            (Some(Wall(9)), 0, 0)
        );
    }

    #[test]
    fn a_step_is_about_the_nodes_of_its_event_and_of_its_actions() {
        let inventory = Inventory::default();
        let actions = [Action::Probe { node: NodeId(2) }, Action::HandOver { why: "x".to_owned(), to: None }];
        let step = step(Wall(1), &inventory, gone_event(1), &actions).expect("news");
        assert_eq!(step.nodes, BTreeSet::from([NodeId(1), NodeId(2)]));
        assert_eq!(step.about, [Some(NodeId(2)), None]);
    }

    #[test]
    fn only_differing_digest_entries_are_kept() {
        use remoor_model::{FileEntry, FileKind, NodeDigest, ServiceDigest, Sha256};
        let entry = |path: &str, byte: u8| FileEntry {
            path: path.to_owned(),
            kind: FileKind::File,
            mode: 0o644,
            owner: "root".to_owned(),
            group: "root".to_owned(),
            sha256: Some(Sha256([byte; 32])),
            target: None,
            secret: false,
        };
        let digest = |entries: Vec<FileEntry>| NodeDigest {
            services: [(
                "web".into(),
                ServiceDigest { root: ServiceDigest::root_of(&entries), entries, ..Default::default() },
            )]
            .into(),
            ..NodeDigest::default()
        };
        let evidence = remoor_engine::Evidence {
            exam: remoor_model::Exam { digest: digest(vec![entry("/a", 1), entry("/b", 2)]), ..Default::default() },
            expected: Some(digest(vec![entry("/a", 1), entry("/b", 3)])),
            rendered: ["/a".to_owned(), "/b".to_owned()].into(),
        };
        let outcome = Box::new(ExamOutcome::Found(evidence));
        let event = EngineEvent::Examined { node: NodeId(1), ticket: remoor_engine::ExaminationTicket(1), outcome };
        let EngineEvent::Examined { outcome, .. } = keep(&event) else { panic!("another event") };
        let ExamOutcome::Found(kept) = *outcome else { panic!("another outcome") };
        let paths =
            |d: &NodeDigest| d.services.values().flat_map(|s| &s.entries).map(|e| e.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(&kept.exam.digest), ["/b"]);
        assert_eq!(paths(kept.expected.as_ref().expect("kept")), ["/b"]);
        assert_eq!(kept.rendered, ["/b".to_owned()].into());
    }
}
