//! Tests of orders: rollouts, monitor-only services, and the choice of trusted host keys.

use super::*;
use remoor_model::{
    Applied, FleetSummary, GroupSummary, HostSummary, InventoryEntry, NodeSpec, ServiceSummary, Sha256, Wall, Witness,
};

#[test]
fn nodes_of_one_group_updated_together_are_a_rollout() {
    let mut inventory = Inventory::default();
    let mut summary = FleetSummary::default();
    let mut ids = Vec::new();
    let write = |inventory: &mut Inventory, command| {
        let index = inventory.applied + 1;
        inventory.apply(index, &InventoryEntry { at: Wall(index), by: "admin".to_owned(), command })
    };
    for (name, group) in [("w1", "web"), ("w2", "web"), ("d1", "db")] {
        let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
        let applied = write(&mut inventory, Command::Accept { spec, role: ClusterRole::Worker });
        let Applied::Node(id) = applied else { panic!("{applied:?}") };
        ids.push(id);
        summary.hosts.insert(name.into(), HostSummary { group: group.into(), desired: Sha256::digest(b"two") });
        summary.groups.insert(group.into(), GroupSummary::default());
    }
    write(&mut inventory, Command::Generation { blob: Sha256::digest(b"files"), summary: Box::new(summary) });
    let marked = |ids: &[NodeId]| {
        let spec = JobSpec { by: Some("admin".to_owned()), ..JobSpec::new(Trigger::Apply) };
        let want =
            |node: &NodeId| Command::RequestResetup { node: *node, want: Box::new(spec.clone().into_request(Wall(1))) };
        let mut commands: Vec<Command> = ids.iter().map(want).collect();
        roll_out(&inventory, &mut commands);
        let marks = commands.iter().map(|c| matches!(c, Command::RequestResetup { want, .. } if want.spec.rollout));
        marks.collect::<Vec<bool>>()
    };
    assert_eq!(marked(&ids), [true, true, false], "one of a group is alone in it");
    assert_eq!(marked(&ids[1..]), [false, false]);
    assert_eq!(marked(&ids[..1]), [false]);
}

#[test]
fn monitor_only_services_are_no_part_of_a_resetup() {
    let mut summary = FleetSummary::default();
    for (name, watched) in [("app", false), ("clock", true), ("other", false)] {
        summary.services.insert(name.into(), ServiceSummary { monitor_only: watched, ..ServiceSummary::default() });
    }
    let mut inventory = Inventory::default();
    let command = Command::Generation { blob: Sha256::digest(b"files"), summary: Box::new(summary) };
    inventory.apply(1, &InventoryEntry { at: Wall(1), by: "admin".to_owned(), command });
    let reason = |service: &str, by| Reason::new(by, service.into(), "differs".to_owned(), false);
    let of = |digest: &[&str], check: &[&str], desired: &[&str]| {
        let by = [(digest, Witness::Digest), (check, Witness::Check), (desired, Witness::Desired)];
        let reasons = by.iter().flat_map(|(services, by)| services.iter().map(|service| reason(service, *by)));
        drifted_services(&inventory, &["app".into(), "clock".into()], &reasons.collect::<Vec<_>>())
    };
    let app = Some(BTreeSet::from(["app".into()]));
    assert_eq!(of(&["app", "clock", "other"], &[], &[]), app);
    assert_eq!(of(&["clock", "clock"], &[], &[]), None);
    assert_eq!(of(&["clock"], &["app"], &[]), None, "an alert of app is no drift of it");
    assert_eq!(of(&["app"], &["clock"], &[]), app);
    // The reason "changed desired state" names no service, so it does not limit the re-setup to
    // single services.
    assert_eq!(of(&[], &[], &[""]), Some(BTreeSet::new()));
    assert_eq!(of(&[], &[], &[]), Some(BTreeSet::new()));
}

#[test]
fn only_compared_host_keys_are_trusted() {
    let key = |kind: &str, data: &str| format!("{kind} {data}");
    let (new, other) = (key("ssh-ed25519", "AAAAbmV3"), key("ssh-rsa", "AAAAb3RoZXI="));
    let (old, gone) = (key("ecdsa-sha2-nistp256", "AAAAb2xk"), key("ssh-ed25519", "AAAAZ29uZQ=="));
    let print = remoor_exec::ssh::fingerprint(&new).expect("a key line");
    let offered = || vec![new.clone(), other.clone(), old.clone()];
    assert_eq!(compared_keys(offered(), &print, &[]), std::slice::from_ref(&new));
    let recorded = [format!("{old} root@w1"), gone];
    assert_eq!(
        compared_keys(offered(), &print, &recorded),
        [new.clone(), old.clone()],
        "one that it offers no more goes"
    );
}
