//! The first state of a new epoch: what a recovery, or a restore, makes of the state that it found.
//!
//! Nodes, generations, verdicts, jobs and the journal stay. Who voted is forgotten: one manager founds the cluster anew, the
//! others are lost until an operator says what they are to be.

use super::*;

/// The first place in the log of an epoch is so far behind the last one that was found. Node, job and Raft ids are places in
/// the log, and the cluster of before may have given some that nobody who is left knows of.
pub const EPOCH_GAP: u64 = 1_000_000;

/// An epoch is so many times the second in which it began, and less than so much of chance: two that begin with one past in the
/// same second differ too.
pub const EPOCHS_A_SECOND: u64 = 10_000;

/// Of two epochs that begin with one past each has places of its own, unless the first one wrote more entries than this for each
/// number that lies between them: a million a second, for as long as it lasted. Until the year 2255 JSON has such a place whole.
const IDS_AN_EPOCH: u64 = 100;

/// How a new epoch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refounding {
    /// Greater than that of the state.
    pub epoch: Epoch,
    /// The only manager.
    pub founder: NodeId,
    pub at: Wall,
    /// Who ordered it, for the journal.
    pub by: String,
    /// `recovered` or `restored from a backup of ...`: goes into the journal and into what open attempts ended by.
    pub how: String,
    /// Nodes that are elsewhere from now on: API and gossip address.
    pub moved: BTreeMap<NodeId, (String, String)>,
    /// The founder has the key of the CA that is on its way.
    pub next_ca: bool,
}

impl Inventory {
    /// Makes this the state in which an epoch begins, and returns its only Raft id, which is the place in the log of this
    /// change. Open attempts end, and their jobs go on with another one, which is fenced by the new epoch. A refusal changes nothing.
    pub fn refound(&mut self, with: &Refounding) -> Result<RaftId, Refusal> {
        if with.epoch <= self.epoch {
            let text = format!("epoch {} is not newer than {}", with.epoch, self.epoch);
            return Err(Refusal::new("old-epoch", text));
        }
        let unknown = [&with.founder].into_iter().chain(with.moved.keys()).find(|id| !self.nodes.contains_key(id));
        if let Some(id) = unknown {
            return Err(Refusal::new("unknown-node", format!("no node has the id {id}")));
        }
        let index = (self.applied + EPOCH_GAP).max(with.epoch.0.saturating_mul(IDS_AN_EPOCH));
        let raft = RaftId(index);
        (self.epoch, self.applied) = (with.epoch, index);
        // Nodes may hold later keys than this state knows of: all ask again, over TLS.
        self.gossip.changed = index;
        let authority = Arc::make_mut(&mut self.authority);
        authority.changed = index;
        match &mut authority.next {
            // Nodes may be further with it than this state: by its certificates those that know only one of both are reached.
            Some(next) if with.next_ca => next.step = CaStep::Issue,
            // Its key is with those who are lost, and nothing hangs on it yet.
            Some(next) if next.step == CaStep::Trust => authority.next = None,
            _ => {}
        }
        self.end_attempts(index, with);
        for node in self.nodes.values_mut() {
            let founds = node.id == with.founder;
            if founds || node.manages() || with.moved.contains_key(&node.id) {
                let node = Arc::make_mut(node);
                node.lost = !founds && (node.lost || node.role == ClusterRole::Manager);
                node.role = if founds { ClusterRole::Manager } else { ClusterRole::Worker };
                node.raft = founds.then_some(raft);
                if founds {
                    node.removing = None;
                }
                if let Some((api, gossip)) = with.moved.get(&node.id) {
                    (node.spec.api, node.spec.gossip) = (api.clone(), gossip.clone());
                    node.altered = index;
                }
            }
        }
        let founder = self.nodes[&with.founder].name().clone();
        let text =
            format!("the cluster was {}: epoch {} begins with {founder} as its only manager", with.how, with.epoch);
        self.write_down(index, with, None, Happening::Operator { text });
        Ok(raft)
    }

    /// Whoever runs them is of another epoch: nothing that they report counts any more.
    fn end_attempts(&mut self, index: u64, with: &Refounding) {
        let open = self.jobs.values().filter_map(|job| Some((job.id, job.node, job.open_attempt()?.clone())));
        for (id, node, attempt) in open.collect::<Vec<_>>() {
            let message = format!("the cluster was {} while it ran", with.how);
            let (class, phase) = (FailureClass::Unreachable, attempt.phase);
            let outcome = Outcome::Failed(Failure { class, phase, rc: None, message, tail: Vec::new() });
            if let Some(job) = self.jobs.get_mut(&id).map(Arc::make_mut) {
                job.retry_at = Some(with.at);
                if let Some(last) = job.attempts.last_mut() {
                    last.closed = Some((with.at, outcome.clone()));
                }
            }
            if let Some(node) = self.nodes.get_mut(&node).map(Arc::make_mut) {
                node.altered = index;
                node.fail(phase);
            }
            let what = Happening::AttemptClosed { job: id, attempt: attempt.id, outcome };
            self.write_down(index, with, Some(node), what);
        }
    }

    fn write_down(&mut self, index: u64, with: &Refounding, node: Option<NodeId>, what: Happening) {
        let item = HistoryItem { index, at: with.at, by: with.by.clone(), node, what };
        self.keep_item(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn founding(epoch: u64, founder: u64) -> Refounding {
        Refounding {
            epoch: Epoch(epoch),
            founder: NodeId(founder),
            at: Wall(90),
            by: "root".to_owned(),
            how: "recovered".to_owned(),
            moved: BTreeMap::new(),
            next_ca: false,
        }
    }

    fn write(inventory: &mut Inventory, command: Command) -> Applied {
        let index = inventory.applied + 1;
        inventory.apply(index, &Entry { at: Wall(index), by: "m1".to_owned(), command })
    }

    /// w1 to w3 (nodes 1 to 3) are managers, w3 is on its way out; w4 and w5 are workers.
    fn three() -> Inventory {
        let mut inventory = sample::fleet(0, 5);
        for node in [1, 2, 3].map(NodeId) {
            write(&mut inventory, Command::Role { node, role: ClusterRole::Manager });
            write(&mut inventory, Command::Grant { node, founder: node == NodeId(1) });
        }
        write(&mut inventory, Command::Role { node: NodeId(3), role: ClusterRole::Worker });
        inventory
    }

    #[test]
    fn one_manager_founds_anew_and_the_others_are_lost_until_an_operator_says_what_they_are_to_be() {
        let mut inventory = three();
        let before = inventory.clone();
        let raft = inventory.refound(&founding(2, 2)).expect("a new epoch");
        assert_eq!((raft.0, inventory.applied), (before.applied + EPOCH_GAP, raft.0));
        let is = |inventory: &Inventory, id: u64| {
            let node = &inventory.nodes[&NodeId(id)];
            (node.role, node.raft, node.lost)
        };
        use ClusterRole::{Manager, Worker};
        assert_eq!(is(&inventory, 2), (Manager, Some(raft), false));
        assert_eq!(is(&inventory, 1), (Worker, None, true), "SCENARIOS E19");
        assert_eq!(is(&inventory, 3), (Worker, None, false), "it was to go anyway");
        assert_eq!(is(&inventory, 4), (Worker, None, false));
        for old in before.nodes.values().filter_map(|n| n.raft) {
            assert!(inventory.is_retired(old), "Raft id {old}");
        }
        assert_eq!((&inventory.generations, inventory.current), (&before.generations, before.current));
        assert!(before.history.iter().eq(inventory.history.iter().take(before.history.len())), "the journal stays");
        assert_eq!(inventory.history.len(), before.history.len() + 1);

        let mut demoted = inventory.clone();
        let role = |role| Command::Role { node: NodeId(1), role };
        assert_eq!(write(&mut demoted, role(Worker)), Applied::Done, "given up");
        assert_eq!(is(&demoted, 1), (Worker, None, false));
        assert_eq!(write(&mut inventory, role(Manager)), Applied::Done, "wanted again");
        assert_eq!(is(&inventory, 1), (Manager, None, false));
        let Applied::Raft(id) = write(&mut inventory, Command::Grant { node: NodeId(1), founder: false }) else {
            panic!("no id")
        };
        assert!(id > raft, "an id of this epoch");

        // Whom the second recovery finds lost stays so.
        demoted.nodes.get_mut(&NodeId(1)).map(Arc::make_mut).expect("a node").lost = true;
        demoted.refound(&founding(3, 2)).expect("another epoch");
        assert!(is(&demoted, 1).2);
    }

    #[test]
    fn of_two_that_begin_with_one_past_neither_gives_an_id_of_the_other() {
        let (mut first, mut second) = (three(), three());
        let epoch = 1_795_000_000 * EPOCHS_A_SECOND;
        let one = first.refound(&founding(epoch, 1)).expect("an epoch");
        let two = second.refound(&founding(epoch + 60 * EPOCHS_A_SECOND, 2)).expect("another one");
        assert!(one.0 + 60_000_000 <= two.0, "{one} and {two}");
        let three = three().refound(&founding(epoch + 1, 1)).expect("one of the same second");
        assert!(one.0 + IDS_AN_EPOCH <= three.0, "{one} and {three}");
        assert!(two.0 < 1 << 53, "JSON has it whole");
    }

    #[test]
    fn a_founder_that_was_to_be_removed_stays_and_all_ask_for_the_gossip_key_again() {
        let mut inventory = three();
        let node = NodeId(2);
        assert_eq!(write(&mut inventory, Command::Remove { node, force: true }), Applied::Done);
        assert!(inventory.nodes[&node].removing.is_some());
        let raft = inventory.refound(&founding(2, 2)).expect("a new epoch");
        assert_eq!((inventory.nodes[&node].removing.clone(), inventory.gossip.changed), (None, raft.0));
    }

    #[test]
    fn a_ca_on_its_way_whose_key_is_lost_is_given_up_and_one_whose_key_is_there_issues() {
        let mut inventory = three();
        let new = Command::RotateCa { ca_pem: "B".to_owned(), cross_pem: "[B]".to_owned() };
        assert_eq!(write(&mut inventory, new), Applied::Done);
        let (mut lost, mut held) = (inventory.clone(), inventory);
        let raft = lost.refound(&founding(2, 2)).expect("a new epoch");
        assert_eq!((lost.authority.next.clone(), lost.authority.changed), (None, raft.0));
        assert_eq!(lost.may_rotate_ca(), Ok(()));
        held.refound(&Refounding { next_ca: true, ..founding(2, 2) }).expect("a new epoch");
        assert_eq!((held.issuer(), held.roots().len()), ("B", 2));
    }

    #[test]
    fn an_epoch_that_is_not_newer_and_a_node_that_is_none_change_nothing() {
        let mut inventory = three();
        let before = inventory.clone();
        let elsewhere = (NodeId(99), (String::new(), String::new()));
        for (with, code) in [
            (founding(before.epoch.0, 2), "old-epoch"),
            (founding(9, 99), "unknown-node"),
            (Refounding { moved: [elsewhere].into(), ..founding(9, 2) }, "unknown-node"),
        ] {
            assert_eq!(inventory.refound(&with).expect_err("refused").code, code);
            assert_eq!(inventory, before);
        }
    }

    #[test]
    fn open_attempts_end_and_their_jobs_go_on() {
        let mut inventory = sample::fleet(1, 3);
        let node = NodeId(2);
        let want = Want { by: Some("alice".to_owned()), now: true, ..Want::new(Occasion::Live, Wall(1)) };
        assert_eq!(write(&mut inventory, Command::Want { node, want: Box::new(want) }).refusal(), None);
        let opened = write(&mut inventory, Command::OpenJob { node, runner: "w1".into() });
        let Applied::Job(job, attempt) = opened else { panic!("{opened:?}") };
        assert_eq!(write(&mut inventory, Command::Phase { job, attempt, phase: Phase::Cleanup }), Applied::Done);
        let raft = inventory.refound(&founding(2, 1)).expect("a new epoch");
        let found = inventory.job(job).expect("on record");
        assert_eq!((found.state, found.open_attempt(), found.retry_at), (JobState::Open, None, Some(Wall(90))));
        assert!(inventory.node(node).expect("a node").half_done(), "it ended in its cleanup");
        let late = Command::CloseAttempt {
            job,
            attempt,
            outcome: Outcome::Cancelled("late".to_owned()),
            baseline: None,
            marks: None,
        };
        assert_eq!(write(&mut inventory, late).refusal().map(|r| r.code.as_str()), Some("attempt-closed"));
        let next = Command::NextAttempt { job, after: attempt, runner: "w1".into(), why: "again".to_owned() };
        let Applied::Job(_, next) = write(&mut inventory, next) else { panic!("no other attempt") };
        assert!(next.0 > raft.0 && next > attempt);
    }
}
