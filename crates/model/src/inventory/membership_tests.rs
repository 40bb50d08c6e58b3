//! Tests of the states of node ids: each transition of the table, the states that exclude each
//! other, and the facts that are possible in every state.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const DAY: u64 = 24 * 3_600_000;
const W: ClusterRole = ClusterRole::Worker;
const M: ClusterRole = ClusterRole::Manager;
const SECRET: Sha256 = Sha256([7; 32]);

/// All transitions between the states of a node id. A node that is being removed is a member until
/// it has left Raft.
const TRANSITIONS: [(&str, &str); 10] = [
    ("unknown", "member"),
    ("member", "left"),
    ("member", "removing"),
    ("member", "removed"),
    ("removing", "member"),
    ("removing", "left"),
    ("removing", "removed"),
    ("left", "member"),
    ("left", "removed"),
    ("removed", "unknown"),
];

fn state(inventory: &Inventory, id: NodeId) -> &'static str {
    match inventory.membership(id) {
        NodeMembership::Unknown => "unknown",
        NodeMembership::Member(node) if node.removing.is_some() => "removing",
        NodeMembership::Member(_) => "member",
        NodeMembership::Left(_) => "left",
        NodeMembership::Removed(_) => "removed",
    }
}

fn apply(inventory: &mut Inventory, at: u64, command: Command) -> Applied {
    let index = inventory.applied + 1;
    inventory.apply(index, &InventoryEntry { at: Wall(at), by: "test".to_owned(), command })
}

fn spec(name: &str, key: &str) -> NodeSpec {
    NodeSpec { name: name.into(), public_key: key.to_owned(), ..NodeSpec::default() }
}

#[test]
fn each_transition_of_a_node_id() {
    let (m1, m2, w1, second) = (NodeId(1), NodeId(3), NodeId(6), NodeId(14));
    let role = |role| Command::Role { node: m2, role };
    let remove = |node| Command::Remove { node, force: true, rotate_gossip: false };
    let join = |name: &str| Command::Accept { spec: spec(name, name), role: M };
    let invited = || Command::AcceptInvited { spec: spec("w1", "a"), secret: SECRET };
    let accepted = || Command::AcceptPending { spec: spec("w1", "b") };
    let admit = Command::Admit { name: "w1".into(), key: "b".to_owned(), role: W };
    let mut inventory = Inventory::default();
    for (day, command, node, is) in [
        (0, join("m1"), m1, "member"),
        (0, Command::Grant { node: m1, founder: true }, m1, "member"),
        (0, join("m2"), m2, "member"),
        (0, Command::Grant { node: m2, founder: false }, m2, "member"),
        (0, Command::Invite { secret: SECRET, name: "w1".into(), role: W, expires: Wall(DAY) }, w1, "unknown"),
        (0, invited(), w1, "member"),
        (0, Command::CertificateExpired { node: w1 }, w1, "member"),
        (0, Command::Leave { node: w1 }, w1, "left"),
        (0, invited(), w1, "member"),
        (0, Command::Leave { node: w1 }, w1, "left"),
        (0, remove(w1), w1, "removed"),
        (0, Command::Pend { spec: spec("w1", "b"), role: W }, second, "unknown"),
        (0, admit, second, "unknown"),
        (0, accepted(), second, "member"),
        (0, Command::Leave { node: second }, second, "left"),
        (0, accepted(), second, "member"),
        (0, Command::Leave { node: second }, second, "left"),
        (7, Command::ForgetLeft { node: second, since: Wall(0) }, second, "removed"),
        (8, remove(m2), m2, "removing"),
        (8, role(M), m2, "member"),
        (8, remove(m2), m2, "removing"),
        (8, Command::Retire { node: m2, raft: RaftId(4) }, m2, "removing"),
        (8, remove(m2), m2, "removed"),
        (96, join("m3"), w1, "removed"),
        (97, join("m4"), w1, "unknown"),
        (105, join("m5"), m2, "unknown"),
    ] {
        let applied = apply(&mut inventory, day * DAY, command.clone());
        assert_eq!((applied.refusal(), state(&inventory, node)), (None, is), "{command:?}");
    }
}

#[test]
fn a_node_in_any_state_may_have_a_denied_key_and_an_open_join_request() {
    let mut inventory = Inventory::default();
    let node = NodeId(1);
    for (command, is) in [
        (Command::Accept { spec: spec("w1", "a"), role: W }, "member"),
        (Command::Pend { spec: spec("w1", "a"), role: W }, "member"),
        (Command::Deny { name: "w1".into() }, "member"),
        (Command::Leave { node }, "left"),
        (Command::Remove { node, force: true, rotate_gossip: false }, "removed"),
    ] {
        assert_eq!(apply(&mut inventory, 1, command.clone()).refusal(), None, "{command:?}");
        assert_eq!(state(&inventory, node), is);
    }
    assert!(inventory.admission.denied.contains_key("a") && inventory.admission.pending.contains_key("w1"));
}

/// The command of one random step of a test. `pick` chooses a node that was accepted before.
fn command(kind: usize, name: usize, key: usize, pick: Option<(NodeId, &Inventory)>) -> Option<Command> {
    let names = ["w1", "w2", "m1"];
    let (spec, role) = (spec(names[name], &key.to_string()), if name == 2 { M } else { W });
    let (name, key) = (spec.name.clone(), spec.public_key.clone());
    let (node, inventory) = pick?;
    let raft = inventory.node(node).and_then(|n| n.raft);
    Some(match kind {
        0 | 1 => Command::Accept { spec, role },
        2 => Command::Pend { spec, role },
        3 => Command::Admit { name, key, role },
        4 => Command::Deny { name },
        5 => Command::AcceptPending { spec },
        6 => Command::CertificateExpired { node },
        7 | 8 => Command::Leave { node },
        9 | 10 => Command::Remove { node, force: true, rotate_gossip: false },
        11 => match inventory.membership(node) {
            NodeMembership::Left(left) => Command::ForgetLeft { node, since: left.at },
            NodeMembership::Member(_) | NodeMembership::Removed(_) | NodeMembership::Unknown => return None,
        },
        12 => Command::Role { node, role },
        13 => Command::Grant { node, founder: false },
        _ => Command::Retire { node, raft: raft? },
    })
}

fn check(before: &Inventory, after: &Inventory, accepted: &BTreeSet<NodeId>) {
    let Inventory { nodes, names, departed: DepartedNodes { left, removed }, .. } = after;
    for id in accepted {
        let maps = [nodes.contains_key(id), left.contains_key(id), removed.contains_key(id)];
        assert!(maps.into_iter().filter(|is| *is).count() <= 1, "{id} is in {maps:?}");
        let change = (state(before, *id), state(after, *id));
        assert!(change.0 == change.1 || TRANSITIONS.contains(&change), "{id}: {change:?}");
    }
    let named: BTreeMap<NodeName, NodeId> = nodes.values().map(|n| (n.name().clone(), n.id)).collect();
    assert_eq!((&named, named.len()), (names, nodes.len()), "each node has a name of its own");
    let of_left = left.values().map(|l| (l.node.name(), &l.node.spec.public_key));
    let known: Vec<_> = nodes.values().map(|n| (n.name(), &n.spec.public_key)).chain(of_left).collect();
    assert_eq!(known.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), known.len(), "names");
    let keys = known.iter().map(|(_, key)| *key).chain(removed.values().map(|r| &r.public_key));
    assert_eq!(keys.collect::<BTreeSet<_>>().len(), known.len() + removed.len(), "keys");
    assert!(after.expired_certificates.keys().all(|id| nodes.contains_key(id)), "only members have a certificate");
}

proptest! {
    #[test]
    fn no_node_id_name_or_key_has_two_states_at_once(
        steps in prop::collection::vec((0..15usize, 0..3usize, 0..4usize, 0..8usize, 0..5u64), 1..80),
    ) {
        let mut inventory = Inventory::default();
        apply(&mut inventory, 0, Command::Accept { spec: spec("first", "first"), role: M });
        apply(&mut inventory, 0, Command::Grant { node: NodeId(1), founder: true });
        let (mut accepted, mut day) = (BTreeSet::from([NodeId(1)]), 0);
        for (kind, name, key, pick, pause) in steps {
            day += if pause == 4 { 30 } else { pause };
            let node = accepted.iter().rev().nth(pick).copied();
            let Some(command) = command(kind, name, key, node.map(|id| (id, &inventory))) else { continue };
            let before = inventory.clone();
            if let Applied::Node(id) = apply(&mut inventory, day * DAY / 2, command) {
                accepted.insert(id);
            }
            check(&before, &inventory, &accepted);
        }
    }
}
