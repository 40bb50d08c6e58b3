//! Entries about draining a node and about its zone.

use super::*;
use crate::{ZONE_MAX, is_zone};

impl Inventory {
    /// Drains the node: its services are cleaned up, and nothing is provisioned on it any more. A
    /// manager keeps its vote.
    pub(super) fn drain(&mut self, at: &ApplyContext, id: NodeId, want: &ResetupRequest) -> Decision {
        let known = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node {id}")))?;
        let name = known.name().clone();
        if known.availability == Availability::Drain {
            return Err(Refusal::new("nothing-new", format!("{name} is drained already")));
        }
        if let Some(job) = known.job.and_then(|j| self.job(j)).filter(|j| j.state == JobState::Open) {
            let text = format!("job {} is open on {name}", job.id);
            return Err(Refusal::new("job-open", text).next(format!("remoor job cancel {}", job.id)));
        }
        if !want.spec.decommission || want.spec.undo.is_some() {
            return Err(Refusal::new("drained", "draining accepts only a request that cleans up"));
        }
        if self.may_contain_services(known) {
            self.request_resetup(at, id, want)?;
        }
        self.change(id)?.availability = Availability::Drain;
        self.note(at, Some(id), JournalEvent::Operator { text: "drained: nothing is provisioned on it".to_owned() });
        Ok(Applied::Done)
    }

    /// Whether the node may have services that remoor provisioned.
    pub fn may_contain_services(&self, node: &Node) -> bool {
        !matches!(node.lifecycle, Lifecycle::Accepted | Lifecycle::Decommissioned) && self.group(node).is_some()
    }

    pub(super) fn zone(&mut self, at: &ApplyContext, id: NodeId, zone: &str) -> Decision {
        if !zone.is_empty() && !is_zone(zone) {
            return Err(Refusal::new("bad-zone", format!("a zone name must have 1 to {ZONE_MAX} bytes and no spaces")));
        }
        self.change(id)?.spec.zone = zone.to_owned();
        let text = if zone.is_empty() { "in no zone".to_owned() } else { format!("in zone {zone}") };
        self.note(at, Some(id), JournalEvent::Operator { text });
        Ok(Applied::Done)
    }
}

impl Node {
    /// Ends the drain by `resume`. The node becomes active, and a cleanup that has not begun is
    /// dropped. A failed cleanup is retried instead, so its node stays drained.
    pub(super) fn end_drain(&mut self, held: Option<&Job>) {
        if self.availability == Availability::Drain {
            if held.is_some_and(|job| job.spec.decommission) {
                return;
            }
            if self.pending_resetup.take_if(|want| want.spec.decommission).is_some() {
                self.restore_lifecycle("its draining was called off");
            }
        }
        self.availability = Availability::Active;
    }

    /// Restores the lifecycle that the node had before a drain or decommissioning that was revoked.
    pub(super) fn restore_lifecycle(&mut self, why: &str) {
        self.lifecycle = if self.setup.baseline.is_some() { Lifecycle::Commissioned } else { Lifecycle::Accepted };
        // Some drift was only reported, because the node was being decommissioned. So the node is
        // examined again.
        if let Some(finding) = &mut self.examination.finding
            && finding.verdict.is_drifted()
            && finding.planned_action == PlannedAction::Report
        {
            finding.planned_action = PlannedAction::Blocked(why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(state: &mut Inventory, command: Command) -> Applied {
        let index = state.applied + 1;
        state.apply(index, &InventoryEntry { at: Wall(index), by: "root@m1".to_owned(), command })
    }

    fn code(state: &mut Inventory, command: Command) -> Option<String> {
        write(state, command).refusal().map(|r| r.code.clone())
    }

    /// A state with the adopted node w1 (node 1) of group web.
    fn one_adopted() -> Inventory {
        let mut state = Inventory::default();
        let spec = NodeSpec { name: "w1".into(), public_key: "w1".to_owned(), ..NodeSpec::default() };
        write(&mut state, Command::Accept { spec, role: ClusterRole::Worker });
        let mut summary = FleetSummary::default();
        summary.hosts.insert("w1".into(), HostSummary { group: "web".into(), desired: Sha256::digest(b"one") });
        summary.groups.insert("web".into(), GroupSummary::default());
        write(&mut state, Command::Generation { blob: Sha256::digest(b"files"), summary: Box::new(summary) });
        let baseline = Baseline {
            generation: GenerationSeq(1),
            desired: Sha256::digest(b"one"),
            root: Sha256::digest(b"root"),
            blob: Sha256::digest(b"digest"),
            adopted: true,
            at: Wall(1),
        };
        assert_eq!(write(&mut state, Command::Adopt { node: NodeId(1), baseline, basis: 0 }), Applied::Done);
        state
    }

    fn resetup_request(decommission: bool) -> ResetupRequest {
        JobSpec { by: Some("alice".to_owned()), decommission, ..JobSpec::new(Trigger::Apply) }.into_request(Wall(9))
    }

    #[test]
    fn a_drained_node_is_only_cleaned_up_until_it_is_resumed() {
        let mut state = one_adopted();
        let node = NodeId(1);
        let provision = || Command::RequestResetup { node, want: Box::new(resetup_request(false)) };
        let wrong = Command::Drain { node, want: Box::new(resetup_request(false)) };
        let before = state.nodes.clone();
        assert_eq!(code(&mut state, wrong).as_deref(), Some("drained"));
        assert_eq!(state.nodes, before, "I12");
        assert_eq!(code(&mut state, Command::Drain { node, want: Box::new(resetup_request(true)) }), None);
        let known = state.nodes[&node].clone();
        assert_eq!((known.availability, known.lifecycle), (Availability::Drain, Lifecycle::Decommissioning));
        assert_eq!(code(&mut state, provision()).as_deref(), Some("drained"));
        assert_eq!(
            code(&mut state, Command::Drain { node, want: Box::new(resetup_request(true)) }).as_deref(),
            Some("nothing-new")
        );
        assert_eq!(code(&mut state, Command::ResumeNode { node }), None);
        let known = &state.nodes[&node];
        assert_eq!((known.availability, known.lifecycle), (Availability::Active, Lifecycle::Commissioned));
        assert_eq!(known.pending_resetup, None, "what is active again is not cleaned up");
        assert_eq!(code(&mut state, provision()), None);
    }

    #[test]
    fn a_node_that_joins_drained_is_not_provisioned() {
        let mut state = Inventory::default();
        let spec = NodeSpec { name: "m1".into(), public_key: "m1".to_owned(), drain: true, ..NodeSpec::default() };
        write(&mut state, Command::Accept { spec, role: ClusterRole::Manager });
        let known = &state.nodes[&NodeId(1)];
        assert_eq!((known.availability, known.pending_resetup.clone()), (Availability::Drain, None));
        let baseline = one_adopted().nodes[&NodeId(1)].setup.baseline.clone().expect("adopted");
        let adopt = Command::Adopt { node: NodeId(1), baseline, basis: 0 };
        assert_eq!(code(&mut state, adopt).as_deref(), Some("drained"));
    }

    #[test]
    fn a_drained_node_is_empty_or_being_cleaned_up() {
        let (mut state, node) = (one_adopted(), NodeId(1));
        let adopt =
            Command::Adopt { node, baseline: state.nodes[&node].setup.baseline.clone().expect("adopted"), basis: 0 };
        let drain = || Command::Drain { node, want: Box::new(resetup_request(true)) };
        assert_eq!(code(&mut state, drain()), None);
        assert_eq!(
            code(&mut state, adopt.clone()).as_deref(),
            Some("decommissioned"),
            "its current state cannot be adopted"
        );
        // The drain was revoked before the cleanup began, so the state is the same as before the
        // drain.
        assert_eq!(code(&mut state, Command::DropRequest { node, why: "called off by alice".to_owned() }), None);
        let known = &state.nodes[&node];
        assert_eq!((known.availability, known.lifecycle), (Availability::Active, Lifecycle::Commissioned));
        assert_eq!((code(&mut state, adopt), code(&mut state, drain())), (None, None));
    }

    #[test]
    fn a_zone_name_has_no_spaces_and_is_kept_on_rejoin() {
        let mut state = one_adopted();
        let of = |zone: &str| Command::Zone { node: NodeId(1), zone: zone.to_owned() };
        assert_eq!(code(&mut state, of("rack 3")).as_deref(), Some("bad-zone"));
        assert_eq!(code(&mut state, of(&"x".repeat(ZONE_MAX + 1))).as_deref(), Some("bad-zone"));
        assert_eq!((code(&mut state, of("a")), state.nodes[&NodeId(1)].spec.zone.as_str()), (None, "a"));
        let spec = state.nodes[&NodeId(1)].spec.clone();
        let again = NodeSpec { zone: String::new(), ..spec };
        write(&mut state, Command::Accept { spec: again, role: ClusterRole::Worker });
        assert_eq!(state.nodes[&NodeId(1)].spec.zone, "a", "a node that joins again without a zone keeps its zone");
        assert_eq!((code(&mut state, of("")), state.nodes[&NodeId(1)].spec.zone.as_str()), (None, ""));
    }
}
