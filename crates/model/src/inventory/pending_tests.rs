//! Tests of join requests, entry by entry: the allowed and the refused ones.

use super::*;

const W: ClusterRole = ClusterRole::Worker;
const M: ClusterRole = ClusterRole::Manager;

fn apply(inventory: &mut Inventory, at: u64, command: Command) -> Applied {
    let before = inventory.clone();
    let index = inventory.applied + 1;
    let applied = inventory.apply(index, &InventoryEntry { at: Wall(at), by: "test".to_owned(), command });
    if applied.refusal().is_some() {
        assert_eq!(Inventory { applied: index, ..before }, *inventory, "I12: {applied:?}");
    }
    applied
}

fn machine(name: &str, key: &str, id: &str, boot: &str) -> NodeSpec {
    let (machine_id, boot, public_key) = (id.to_owned(), boot.to_owned(), key.to_owned());
    NodeSpec { name: name.into(), public_key, machine_id, boot, ..NodeSpec::default() }
}

fn pend(name: &str, key: &str) -> Command {
    Command::Pend { spec: machine(name, key, key, "b"), role: W }
}

fn accept_pending(name: &str, key: &str) -> Command {
    Command::AcceptPending { spec: machine(name, key, key, "b") }
}

fn admit(name: &str, key: &str, role: ClusterRole) -> Command {
    Command::Admit { name: name.into(), key: key.to_owned(), role }
}

fn refusal_code(applied: &Applied) -> &str {
    applied.refusal().map_or("done", |r| r.code.as_str())
}

#[test]
fn a_machine_joins_only_after_an_operator_accepted_its_key() {
    let mut i = Inventory::default();
    assert_eq!(refusal_code(&apply(&mut i, 1, accept_pending("w1", "a"))), "not-accepted", "never asked");
    assert_eq!(apply(&mut i, 1, pend("w1", "a")), Applied::Done);
    assert_eq!(refusal_code(&apply(&mut i, 2, accept_pending("w1", "a"))), "not-accepted");
    assert_eq!(refusal_code(&apply(&mut i, 3, admit("w1", "b", W))), "identity-conflict", "another was seen");
    assert_eq!(refusal_code(&apply(&mut i, 3, admit("w2", "a", W))), "not-pending");
    assert_eq!(apply(&mut i, 3, admit("w1", "a", M)), Applied::Done);
    assert_eq!(refusal_code(&apply(&mut i, 4, accept_pending("w1", "b"))), "not-accepted", "another key");
    let Applied::Node(id) = apply(&mut i, 4, accept_pending("w1", "a")) else { panic!("not accepted") };
    assert_eq!(i.nodes[&id].role, M, "what the operator said");
    assert_eq!(apply(&mut i, 5, accept_pending("w1", "a")), Applied::Node(id), "its answer was lost");
    assert_eq!(
        refusal_code(&apply(&mut i, 6 + PENDING_MS, accept_pending("w1", "a"))),
        "not-accepted",
        "a yes counts for a day"
    );
}

#[test]
fn a_denied_machine_cannot_join_and_does_not_reserve_its_name() {
    let mut i = Inventory::default();
    apply(&mut i, 1, pend("w1", "a"));
    assert_eq!(refusal_code(&apply(&mut i, 1, pend("w1", "b"))), "identity-conflict");
    assert_eq!(refusal_code(&apply(&mut i, 1, pend("w2", "a"))), "identity-conflict", "one machine waits once");
    assert_eq!(apply(&mut i, 2, Command::Deny { name: "w1".into() }), Applied::Done);
    assert_eq!(refusal_code(&apply(&mut i, 3, accept_pending("w1", "a"))), "not-accepted");
    assert_eq!(refusal_code(&apply(&mut i, 3, pend("w1", "a"))), "denied", "it is not asked about again");
    assert_eq!(apply(&mut i, 4, pend("w1", "b")), Applied::Done, "the right machine of that name");
    assert_eq!(refusal_code(&apply(&mut i, 5 + PENDING_MS, pend("w1", "a"))), "denied", "the next day");
}

#[test]
fn a_denial_overrides_every_secret_until_it_is_revoked() {
    let mut i = Inventory::default();
    apply(&mut i, 1, pend("w1", "a"));
    apply(&mut i, 2, Command::Deny { name: "w1".into() });
    let by_token = |name| Command::Accept { spec: machine(name, "a", "a", "b"), role: W };
    let (secret, name, expires) = (Sha256([9; 32]), NodeName::from("w1"), Wall(9 * PENDING_MS));
    apply(&mut i, 3, Command::Invite { secret, name: name.clone(), role: W, expires });
    let invited = Command::AcceptInvited { spec: machine("w1", "a", "a", "b"), secret };
    for at in [3, 3 + 2 * PENDING_MS] {
        for command in [by_token("w1"), by_token("w2"), invited.clone(), pend("w2", "a")] {
            assert_eq!(refusal_code(&apply(&mut i, at, command)), "denied");
        }
    }
    let refusal = apply(&mut i, 4, by_token("w1")).refusal().cloned().expect("refused");
    assert!(refusal.next.is_some_and(|next| next.contains("remoor accept w1")));
    // Another machine with the same name may wait. The key identifies the denial to revoke.
    apply(&mut i, 5 + 2 * PENDING_MS, pend("w1", "b"));
    assert_eq!(apply(&mut i, 6 + 2 * PENDING_MS, admit("w1", "a", W)), Applied::Done);
    assert!(i.admission.denied.is_empty() && i.admission.pending[&name].answer == JoinDecision::None);
    assert!(matches!(apply(&mut i, 7 + 2 * PENDING_MS, by_token("w2")), Applied::Node(_)));

    // The acceptance of a denied machine that still waits also revokes the denial.
    let mut i = Inventory::default();
    apply(&mut i, 1, pend("w1", "a"));
    apply(&mut i, 2, Command::Deny { name: "w1".into() });
    assert_eq!(apply(&mut i, 3, admit("w1", "a", W)), Applied::Done);
    assert!(matches!(apply(&mut i, 4, accept_pending("w1", "a")), Applied::Node(_)));
}

#[test]
fn accepting_is_refused_if_name_or_disk_were_taken_meanwhile() {
    let taken = |spec: NodeSpec| {
        let mut i = Inventory::default();
        apply(&mut i, 1, pend("w1", "a"));
        assert!(matches!(apply(&mut i, 2, Command::Accept { spec, role: W }), Applied::Node(_)));
        refusal_code(&apply(&mut i, 3, admit("w1", "a", W))).to_owned()
    };
    assert_eq!(taken(machine("w1", "b", "b", "b")), "identity-conflict", "its name");
    assert_eq!(taken(machine("w2", "a", "a", "b")), "identity-conflict", "its key");
    assert_eq!(taken(machine("w2", "b", "a", "another")), "cloned-machine");
}

#[test]
fn the_number_of_waiting_machines_is_limited() {
    let mut i = Inventory::default();
    for n in 0..PENDING_MAX {
        assert_eq!(apply(&mut i, n as u64, pend(&format!("w{n}"), &format!("k{n}"))), Applied::Done);
    }
    assert_eq!(refusal_code(&apply(&mut i, 99, pend("x", "x"))), "too-many-pending");
    apply(&mut i, 99, Command::Deny { name: "w7".into() });
    assert_eq!(apply(&mut i, 99, pend("x", "x")), Applied::Done);
    assert!(
        i.admission.pending.len() == PENDING_MAX && !i.admission.pending.contains_key("w7"),
        "the answered one made room"
    );
    assert_eq!(apply(&mut i, 100 + PENDING_MS, pend("y", "y")), Applied::Done);
    assert_eq!(i.admission.pending.len(), 1, "undecided requests expire after a day");
}

#[test]
fn taken_names_taken_keys_and_copied_disks_are_refused_for_every_way_to_join() {
    let mut i = Inventory::default();
    let accept = |spec| Command::Accept { spec, role: W };
    assert!(matches!(apply(&mut i, 1, accept(machine("w1", "a", "id", "boot"))), Applied::Node(_)));
    for (name, key, id, boot, wanted) in [
        ("w1", "b", "other", "boot", "identity-conflict"),
        ("w2", "a", "other", "boot", "identity-conflict"),
        ("w2", "b", "id", "another", "cloned-machine"),
    ] {
        let spec = machine(name, key, id, boot);
        assert_eq!(refusal_code(&apply(&mut i, 2, accept(spec.clone()))), wanted);
        let pended = apply(&mut i, 2, Command::Pend { spec, role: W });
        assert_eq!(refusal_code(&pended), wanted);
        let Refusal { message: text, next, .. } = pended.refusal().expect("refused");
        let frees = next.as_ref().is_some_and(|next| next.contains("remoor remove w1 on a manager"));
        assert!((name, key) != ("w1", "b") || frees, "how the name becomes free: {next:?}");
        assert!(wanted != "cloned-machine" || text.contains("w2") && text.contains("w1"), "both names: {text}");
    }
    assert_eq!(i.nodes.len(), 1);
    let again = accept(machine("w1", "a", "id", "after a reboot"));
    assert!(matches!(apply(&mut i, 3, again), Applied::Node(_)), "the same node");
    for (key, id, boot) in [("c", "id", "after a reboot"), ("d", "", "x"), ("e", "id", "")] {
        let second = accept(machine(key, key, id, boot));
        assert!(matches!(apply(&mut i, 4, second), Applied::Node(_)), "{key}: one machine, or nothing told");
    }
}

#[test]
fn a_node_with_an_expired_certificate_waits_for_acceptance_and_keeps_its_identity() {
    let mut i = Inventory::default();
    let Applied::Node(node) = apply(&mut i, 1, Command::Accept { spec: machine("w1", "a", "", ""), role: W }) else {
        panic!("not accepted")
    };
    assert_eq!(refusal_code(&apply(&mut i, 2, Command::CertificateExpired { node: NodeId(9) })), "unknown-node");
    assert_eq!(refusal_code(&apply(&mut i, 2, Command::Readmit { node })), "not-pending");
    let before = i.nodes.clone();
    assert_eq!(apply(&mut i, 2, Command::CertificateExpired { node }), Applied::Done);
    assert_eq!(refusal_code(&apply(&mut i, 3, Command::CertificateExpired { node })), "nothing-new");
    assert!(!i.expired_certificates[&node].is_accepted(Wall(3)));
    assert_eq!(apply(&mut i, 4, Command::Readmit { node }), Applied::Done);
    assert!(
        i.expired_certificates[&node].is_accepted(Wall(4 + PENDING_MS))
            && !i.expired_certificates[&node].is_accepted(Wall(5 + PENDING_MS))
    );
    assert_eq!(
        refusal_code(&apply(&mut i, 5, Command::CertificateExpired { node })),
        "nothing-new",
        "the yes is not forgotten"
    );
    assert_eq!(apply(&mut i, 6, Command::CertificateRenewed { node }), Applied::Done);
    assert_eq!((i.expired_certificates.len(), &i.nodes), (0, &before));
}

#[test]
fn a_rotated_secret_stays_valid_for_the_given_time() {
    let mut i = Inventory::default();
    let (first, second, third) = (Sha256([1; 32]), Sha256([2; 32]), Sha256([3; 32]));
    let (cluster, epoch, ca_pem) = ("c1".into(), Epoch(1), String::new());
    apply(&mut i, 5, Command::Init { cluster, epoch, ca_pem, worker_secret: first, manager_secret: second });
    assert_eq!((i.admission.worker_token.since, i.admission.worker_token.old), (Wall(5), None));
    let rotate = |secret, keep_ms| Command::RotateToken { role: W, secret, keep_ms };
    for known in [first, second] {
        assert_eq!(refusal_code(&apply(&mut i, 6, rotate(known, 0))), "nothing-new", "one secret for one role");
    }
    assert_eq!(apply(&mut i, 7, rotate(third, 100)), Applied::Done);
    assert_eq!(i.token(W).0, &third);
    assert_eq!(i.admission.worker_token.old, Some(OldSecret { secret: first, until: Wall(107) }));
    assert_eq!((i.token(M).0, i.admission.manager_token.since), (&second, Wall(5)));
}

#[test]
fn a_removed_key_cannot_wait() {
    let mut i = Inventory::default();
    apply(&mut i, 1, pend("w1", "a"));
    apply(&mut i, 1, admit("w1", "a", W));
    let Applied::Node(node) = apply(&mut i, 2, accept_pending("w1", "a")) else { panic!("not accepted") };
    apply(&mut i, 3, Command::CertificateExpired { node });
    assert!(i.expired_certificates.contains_key(&node));
    assert_eq!(apply(&mut i, 4, Command::Remove { node, force: true, rotate_gossip: false }), Applied::Done);
    assert!(i.expired_certificates.is_empty(), "nobody is asked about it any more");
    assert_eq!(refusal_code(&apply(&mut i, 5 + PENDING_MS, pend("w9", "a"))), "node-removed");
}
