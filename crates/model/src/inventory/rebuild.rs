//! The first state of a new epoch: the result of a recovery or restore.
//!
//! Nodes, generations, verdicts, jobs and the journal are kept. The Raft membership is reset: one
//! manager begins the new cluster. The other managers wait until an operator decides their role.

use super::*;

/// Distance between the last known log index and the first one of the new epoch. It is necessary
/// because node, job and Raft ids are log indices. The old cluster may have granted ids that no
/// surviving node knows.
pub const EPOCH_GAP: u64 = 1_000_000;

/// The number of a new epoch is the second in which it begins, multiplied by this factor, plus a
/// random number below this factor. So two epochs that begin in the same second from the same past
/// have different numbers.
pub const EPOCHS_A_SECOND: u64 = 10_000;

/// Number of log indices that are reserved for each epoch number. A second has [`EPOCHS_A_SECOND`]
/// numbers. So two epochs from the same past have disjoint indices, unless the first one writes
/// more than a million entries a second. Until the year 2255, JSON represents such an index
/// exactly.
const IDS_AN_EPOCH: u64 = 100;

/// Parameters of a new epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRebuild {
    /// The new epoch. It must be greater than the epoch in the state so far.
    pub epoch: Epoch,
    /// The node that becomes the only manager.
    pub founder: NodeId,
    pub at: Wall,
    /// The operator who ordered the rebuild, for the journal.
    pub by: String,
    /// `recovered` or `restored from a backup of ...`. The journal contains the text, and so does
    /// the outcome of the attempts that the rebuild ends.
    pub how: String,
    /// Nodes with new addresses. Each has its API address and its gossip address.
    pub new_addresses: BTreeMap<NodeId, (String, String)>,
    /// Whether the founder has the key of the new CA that is being distributed.
    pub next_ca: bool,
}

impl Inventory {
    /// Turns this state into the first state of the new epoch. Returns the founder's Raft id, which
    /// is the log index of this change. Open attempts end. Their jobs continue with further
    /// attempts under the fence of the new epoch. A refusal changes nothing.
    pub fn rebuild_cluster(&mut self, with: &ClusterRebuild) -> Result<RaftId, Refusal> {
        if with.epoch <= self.epoch {
            let text = format!("epoch {} is not newer than {}", with.epoch, self.epoch);
            return Err(Refusal::new("old-epoch", text));
        }
        let unknown =
            [&with.founder].into_iter().chain(with.new_addresses.keys()).find(|id| !self.nodes.contains_key(id));
        if let Some(id) = unknown {
            return Err(Refusal::new("unknown-node", format!("no node has the id {id}")));
        }
        let index = (self.applied + EPOCH_GAP).max(with.epoch.0.saturating_mul(IDS_AN_EPOCH));
        let raft = RaftId(index);
        (self.epoch, self.applied) = (with.epoch, index);
        // Nodes may have newer gossip keys than this state contains, so all nodes request the keys
        // again over TLS.
        self.gossip.changed = index;
        let authority = Arc::make_mut(&mut self.authority);
        authority.changed = index;
        match &mut authority.next {
            // Nodes may be further in the CA rotation than this state, so the new CA issues from
            // now on. A node that knows only the old CA accepts the new CA's certificates by the
            // cross-signed certificate.
            Some(next) if with.next_ca => next.step = CaStep::Issue,
            // Only lost managers have the key of the new CA. No certificate depends on that key
            // yet, so the rotation is dropped.
            Some(next) if next.step == CaStep::Trust => authority.next = None,
            _ => {}
        }
        self.end_attempts(index, with);
        for node in self.nodes.values_mut() {
            let founds = node.id == with.founder;
            if founds || node.manages() || with.new_addresses.contains_key(&node.id) {
                let node = Arc::make_mut(node);
                node.awaiting_role_decision =
                    !founds && (node.awaiting_role_decision || node.role == ClusterRole::Manager);
                node.role = if founds { ClusterRole::Manager } else { ClusterRole::Worker };
                node.raft = founds.then_some(raft);
                if founds {
                    node.removing = None;
                }
                if let Some((api, gossip)) = with.new_addresses.get(&node.id) {
                    (node.spec.api, node.spec.gossip) = (api.clone(), gossip.clone());
                    node.examination.invalidated_at_index = index;
                }
            }
        }
        let founder = self.nodes[&with.founder].name().clone();
        let text =
            format!("the cluster was {}: epoch {} begins with {founder} as its only manager", with.how, with.epoch);
        self.record_history(index, with, None, JournalEvent::Operator { text });
        Ok(raft)
    }

    /// Ends the open attempts. They belong to the old epoch, so their results are no longer
    /// accepted.
    fn end_attempts(&mut self, index: u64, with: &ClusterRebuild) {
        let open = self.jobs.values().filter_map(|job| Some((job.id, job.node, job.open_attempt()?.clone())));
        for (id, node, attempt) in open.collect::<Vec<_>>() {
            let message = format!("the cluster was {} while it ran", with.how);
            let (class, phase) = (FailureClass::Unreachable, attempt.phase);
            let outcome = AttemptOutcome::Failed(Failure { class, phase, rc: None, message, tail: Vec::new() });
            if let Some(job) = self.jobs.get_mut(&id).map(Arc::make_mut) {
                job.retry_at = Some(with.at);
                if let Some(last) = job.attempts.last_mut() {
                    last.closed = Some((with.at, outcome.clone()));
                }
            }
            if let Some(node) = self.nodes.get_mut(&node).map(Arc::make_mut) {
                node.examination.invalidated_at_index = index;
                node.record_failure(phase);
            }
            let what = JournalEvent::AttemptClosed { job: id, attempt: attempt.id, outcome };
            self.record_history(index, with, Some(node), what);
        }
    }

    fn record_history(&mut self, index: u64, with: &ClusterRebuild, node: Option<NodeId>, what: JournalEvent) {
        let item = HistoryItem { index, at: with.at, by: with.by.clone(), node, what };
        self.keep_item(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rebuild_parameters(epoch: u64, founder: u64) -> ClusterRebuild {
        ClusterRebuild {
            epoch: Epoch(epoch),
            founder: NodeId(founder),
            at: Wall(90),
            by: "root".to_owned(),
            how: "recovered".to_owned(),
            new_addresses: BTreeMap::new(),
            next_ca: false,
        }
    }

    fn write(inventory: &mut Inventory, command: Command) -> Applied {
        let index = inventory.applied + 1;
        inventory.apply(index, &InventoryEntry { at: Wall(index), by: "m1".to_owned(), command })
    }

    /// A state in which w1 to w3 (nodes 1 to 3) are managers, and w4 and w5 are workers. w3 is
    /// being demoted.
    fn three_managers() -> Inventory {
        let mut inventory = sample::fleet(0, 5);
        for node in [1, 2, 3].map(NodeId) {
            write(&mut inventory, Command::Role { node, role: ClusterRole::Manager });
            write(&mut inventory, Command::Grant { node, founder: node == NodeId(1) });
        }
        write(&mut inventory, Command::Role { node: NodeId(3), role: ClusterRole::Worker });
        inventory
    }

    #[test]
    fn a_rebuild_keeps_one_manager_and_the_others_wait_for_an_operators_decision() {
        let mut inventory = three_managers();
        let before = inventory.clone();
        let raft = inventory.rebuild_cluster(&rebuild_parameters(2, 2)).expect("a new epoch");
        assert_eq!((raft.0, inventory.applied), (before.applied + EPOCH_GAP, raft.0));
        let is = |inventory: &Inventory, id: u64| {
            let node = &inventory.nodes[&NodeId(id)];
            (node.role, node.raft, node.awaiting_role_decision)
        };
        use ClusterRole::{Manager, Worker};
        assert_eq!(is(&inventory, 2), (Manager, Some(raft), false));
        assert_eq!(is(&inventory, 1), (Worker, None, true), "docs/design/scenarios.md, E19");
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

        // A node that waits for a role decision still waits after the second recovery.
        demoted.nodes.get_mut(&NodeId(1)).map(Arc::make_mut).expect("a node").awaiting_role_decision = true;
        demoted.rebuild_cluster(&rebuild_parameters(3, 2)).expect("another epoch");
        assert!(is(&demoted, 1).2);
    }

    #[test]
    fn two_epochs_from_the_same_past_have_disjoint_ids() {
        let (mut first, mut second) = (three_managers(), three_managers());
        let epoch = 1_795_000_000 * EPOCHS_A_SECOND;
        let one = first.rebuild_cluster(&rebuild_parameters(epoch, 1)).expect("an epoch");
        let two = second.rebuild_cluster(&rebuild_parameters(epoch + 60 * EPOCHS_A_SECOND, 2)).expect("another one");
        assert!(one.0 + 60_000_000 <= two.0, "{one} and {two}");
        let three =
            three_managers().rebuild_cluster(&rebuild_parameters(epoch + 1, 1)).expect("one of the same second");
        assert!(one.0 + IDS_AN_EPOCH <= three.0, "{one} and {three}");
        assert!(two.0 < 1 << 53, "JSON has it whole");
    }

    #[test]
    fn a_rebuild_cancels_the_founders_removal_and_renews_the_gossip_key_index() {
        let mut inventory = three_managers();
        let node = NodeId(2);
        assert_eq!(write(&mut inventory, Command::Remove { node, force: true, rotate_gossip: false }), Applied::Done);
        assert!(inventory.nodes[&node].removing.is_some());
        let raft = inventory.rebuild_cluster(&rebuild_parameters(2, 2)).expect("a new epoch");
        assert_eq!((inventory.nodes[&node].removing.clone(), inventory.gossip.changed), (None, raft.0));
    }

    #[test]
    fn a_rebuild_drops_a_new_ca_without_its_key_and_issues_from_one_with_its_key() {
        let mut inventory = three_managers();
        let new = Command::RotateCa { ca_pem: "B".to_owned(), cross_pem: "[B]".to_owned() };
        assert_eq!(write(&mut inventory, new), Applied::Done);
        let (mut lost, mut held) = (inventory.clone(), inventory);
        let raft = lost.rebuild_cluster(&rebuild_parameters(2, 2)).expect("a new epoch");
        assert_eq!((lost.authority.next.clone(), lost.authority.changed), (None, raft.0));
        assert_eq!(lost.may_rotate_ca(), Ok(()));
        held.rebuild_cluster(&ClusterRebuild { next_ca: true, ..rebuild_parameters(2, 2) }).expect("a new epoch");
        assert_eq!((held.issuer(), held.roots().len()), ("B", 2));
    }

    #[test]
    fn a_rebuild_with_an_old_epoch_or_an_unknown_node_changes_nothing() {
        let mut inventory = three_managers();
        let before = inventory.clone();
        let elsewhere = (NodeId(99), (String::new(), String::new()));
        for (with, code) in [
            (rebuild_parameters(before.epoch.0, 2), "old-epoch"),
            (rebuild_parameters(9, 99), "unknown-node"),
            (ClusterRebuild { new_addresses: [elsewhere].into(), ..rebuild_parameters(9, 2) }, "unknown-node"),
        ] {
            assert_eq!(inventory.rebuild_cluster(&with).expect_err("refused").code, code);
            assert_eq!(inventory, before);
        }
    }

    #[test]
    fn a_rebuild_ends_open_attempts_and_their_jobs_continue() {
        let mut inventory = sample::fleet(1, 3);
        let node = NodeId(2);
        let want =
            JobSpec { by: Some("alice".to_owned()), now: true, ..JobSpec::new(Trigger::Live) }.into_request(Wall(1));
        assert_eq!(write(&mut inventory, Command::RequestResetup { node, want: Box::new(want) }).refusal(), None);
        let opened = write(&mut inventory, Command::OpenJob { node, runner: "w1".into() });
        let Applied::Job(job, attempt) = opened else { panic!("{opened:?}") };
        assert_eq!(write(&mut inventory, Command::Phase { job, attempt, phase: Phase::Cleanup }), Applied::Done);
        let raft = inventory.rebuild_cluster(&rebuild_parameters(2, 1)).expect("a new epoch");
        let found = inventory.job(job).expect("on record");
        assert_eq!((found.state, found.open_attempt(), found.retry_at), (JobState::Open, None, Some(Wall(90))));
        assert!(inventory.node(node).expect("a node").half_done(), "it ended in its cleanup");
        let late = Command::CloseAttempt {
            job,
            attempt,
            outcome: AttemptOutcome::Cancelled("late".to_owned()),
            baseline: None,
            marks: None,
        };
        assert_eq!(write(&mut inventory, late).refusal().map(|r| r.code.as_str()), Some("attempt-closed"));
        let next = Command::NextAttempt { job, after: attempt, runner: "w1".into(), why: "again".to_owned() };
        let Applied::Job(_, next) = write(&mut inventory, next) else { panic!("no other attempt") };
        assert!(next.0 > raft.0 && next > attempt);
    }
}
