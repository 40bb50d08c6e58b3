//! States and values for unit tests that need only a part of them.

use super::*;

/// A fleet with one group, `web`. The first `adopted` nodes match their desired state. The next
/// `joined` nodes have only joined. The names are w1, w2 and so on.
pub fn fleet(adopted: u64, joined: u64) -> Inventory {
    let mut inventory = Inventory::default();
    let mut summary = FleetSummary::default();
    summary.groups.insert("web".into(), GroupSummary::default());
    let (desired, generation) = (Sha256::digest(b"one"), GenerationSeq(1));
    let name = |id: u64| NodeName::from(format!("w{id}").as_str());
    let mut commands = Vec::new();
    for id in 1..=adopted + joined {
        summary.hosts.insert(name(id), HostSummary { group: "web".into(), desired });
        let spec = NodeSpec { name: name(id), public_key: format!("key {id}"), ..NodeSpec::default() };
        commands.push(Command::Accept { spec, role: ClusterRole::Worker });
    }
    commands.push(Command::Generation { blob: desired, summary: Box::new(summary) });
    let (root, blob) = (Sha256::default(), Sha256::default());
    commands.extend((1..=adopted).map(|id| {
        let baseline = Baseline { generation, desired, root, blob, adopted: true, at: Wall(3) };
        Command::Adopt { node: NodeId(id), baseline, basis: 0 }
    }));
    for (index, command) in (1..).zip(commands) {
        let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
        assert_eq!(applied.refusal(), None);
    }
    inventory
}

/// The finding of a node that was never away and matches its desired state.
pub fn finding() -> Finding {
    Finding {
        absence: None,
        cause: None,
        planned: false,
        evidence: Vec::new(),
        verdict: Verdict::Same,
        overtaken: None,
        reasons: Vec::new(),
        planned_action: PlannedAction::None,
        trigger: Trigger::Live,
        by: "m1".into(),
        at: Wall(1),
        took_ms: 1,
        digest: None,
        checks: (0, 0, 0),
        failure_hash: None,
        identity: HostFingerprint::default(),
        damaged: Vec::new(),
        basis: 1,
    }
}
