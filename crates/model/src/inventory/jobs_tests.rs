//! Tests of jobs, entry by entry: changed host keys, and jobs about some services of a node.

use super::*;

/// A state in which w1 (node 1) has an open attempt with the id 4, which an operator ordered.
fn open() -> Inventory {
    let mut inventory = inventory_with_request();
    let command = Command::OpenJob { node: NodeId(1), runner: "m1".into() };
    assert_eq!(apply(&mut inventory, 4, command), None);
    inventory
}

/// A state in which w1 has a waiting re-setup.
fn inventory_with_request() -> Inventory {
    let mut inventory = Inventory::default();
    let mut summary = FleetSummary::default();
    let host = HostSummary { group: "web".into(), desired: Sha256::digest(b"one") };
    summary.hosts.insert("w1".into(), host);
    summary.groups.insert("web".into(), GroupSummary::default());
    let want = JobSpec { by: Some("admin".to_owned()), ..JobSpec::new(Trigger::Live) }.into_request(Wall(0));
    for (index, command) in (1..).zip([
        Command::Accept { spec: NodeSpec { name: "w1".into(), ..NodeSpec::default() }, role: ClusterRole::Worker },
        Command::Generation { blob: Sha256::digest(b"one"), summary: Box::new(summary) },
        Command::RequestResetup { node: NodeId(1), want: Box::new(want) },
    ]) {
        assert_eq!(apply(&mut inventory, index, command), None);
    }
    inventory
}

/// Applies the command. Returns the code of the refusal, or None if the command was applied.
fn apply(inventory: &mut Inventory, index: u64, command: Command) -> Option<String> {
    let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "m1".to_owned(), command });
    applied.refusal().map(|refusal| refusal.code.to_string())
}

#[test]
fn host_key_reports_from_before_trust_key_are_ignored() {
    let node = NodeId(1);
    let trust = Command::TrustKey { node, keys: vec!["ssh-ed25519 AAAA".to_owned()] };
    let changed = |basis| Command::KeyChanged { node, fingerprint: "SHA256:x".to_owned(), basis };
    let message = "the host key changed".to_owned();
    let failure = Failure { class: FailureClass::HostKey, phase: Phase::Fence, rc: None, message, tail: Vec::new() };
    let (job, attempt) = (JobId(4), AttemptId(4));
    let closed =
        Command::CloseAttempt { job, attempt, outcome: AttemptOutcome::Failed(failure), baseline: None, marks: None };
    let accused = |inventory: &Inventory| inventory.node(node).and_then(|n| n.host_key.changed.clone()).is_some();

    let mut before = open();
    assert_eq!(apply(&mut before, 5, closed.clone()), None);
    assert!(accused(&before), "no key was trusted since");
    let mut after = open();
    assert_eq!(apply(&mut after, 5, trust.clone()), None);
    assert_eq!(apply(&mut after, 6, closed), None);
    assert!(!accused(&after), "the attempt began before trust-key");

    let mut looked = open();
    assert_eq!(apply(&mut looked, 5, trust), None);
    assert_eq!(apply(&mut looked, 6, changed(4)), Some("stale".to_owned()), "the examination began before trust-key");
    assert!(!accused(&looked));
    assert_eq!(apply(&mut looked, 7, changed(5)), None);
    assert!(accused(&looked), "the examination began after trust-key");
}

/// Service `a` and service `other` of w1 (node 1) were found drifted. Then a job about `services`
/// succeeds; an empty list stands for all services. The service `clock` is only monitored. `has`
/// lists the services of w1.
fn inventory_after_job(other: &str, services: &[&str], has: &[&str]) -> Inventory {
    let mut inventory = open();
    let generation = inventory.generations.get_mut(&GenerationSeq(1)).map(Arc::make_mut).unwrap();
    generation
        .summary
        .services
        .insert("clock".into(), ServiceSummary { monitor_only: true, ..ServiceSummary::default() });
    generation.summary.groups.get_mut("web").unwrap().services = has.iter().map(|s| (*s).into()).collect();
    let reason = |s: &str, grave| Reason::new(Witness::Digest, s.into(), s.to_owned(), grave);
    let reasons = vec![reason("a", true), reason(other, false)];
    let services = services.iter().map(|s| (*s).into()).collect();
    let node = inventory.nodes.get_mut(&NodeId(1)).map(Arc::make_mut).unwrap();
    node.examination.finding = Some(Finding { verdict: Verdict::Drifted, reasons, ..sample::finding() });
    node.examination.drifted_since = Some(Wall(1));
    inventory.jobs.get_mut(&JobId(4)).map(Arc::make_mut).unwrap().spec.services = services;
    for (index, phase) in (5..).zip([Phase::Cleanup, Phase::Cleaned, Phase::Provision, Phase::Verify]) {
        let phase = Command::Phase { job: JobId(4), attempt: AttemptId(4), phase };
        assert_eq!(apply(&mut inventory, index, phase), None);
    }
    assert_eq!(apply(&mut inventory, 9, close_successful(JobId(4), AttemptId(4), "one")), None);
    inventory
}

fn close_successful(job: JobId, attempt: AttemptId, desired: &str) -> Command {
    let baseline = Baseline {
        generation: GenerationSeq(1),
        desired: Sha256::digest(desired.as_bytes()),
        root: Sha256::default(),
        blob: Sha256::default(),
        adopted: false,
        at: Wall(9),
    };
    Command::CloseAttempt { job, attempt, outcome: AttemptOutcome::Done, baseline: Some(baseline), marks: None }
}

#[test]
fn a_partial_job_does_not_clear_drift_of_other_services() {
    for (other, verdict, since) in [("a", Verdict::Same, None), ("b", Verdict::Drifted, Some(Wall(1)))] {
        let inventory = inventory_after_job(other, &["a"], &["a", "b"]);
        let node = inventory.node(NodeId(1)).unwrap();
        let told = node.examination.finding.as_ref().map(|f| f.verdict.clone());
        assert_eq!((told, node.examination.drifted_since), (Some(verdict), since), "{other}");
        assert!(node.examination.needs_examination, "the node is examined again");
    }
}

#[test]
fn a_full_job_does_not_clear_drift_of_monitored_services() {
    let (all, own) = (["a", "b", "clock"], ["a", "b"]);
    for (other, has, verdict, unseen) in [
        ("b", &own[..], Verdict::Same, false),
        ("b", &all, Verdict::Same, true),
        ("clock", &all, Verdict::Drifted, true),
    ] {
        let inventory = inventory_after_job(other, &[], has);
        let node = inventory.node(NodeId(1)).unwrap();
        let told = node.examination.finding.as_ref().map(|f| f.verdict.clone());
        assert_eq!((told, node.examination.needs_examination), (Some(verdict), unseen), "{other} {has:?}");
    }
}

/// A state in which w1 was set up with generation 1, and generation 2 was applied later. Job 8
/// about `services` is open.
fn outdated_inventory(services: &[&str]) -> Inventory {
    let mut inventory = open();
    let node = inventory.nodes.get_mut(&NodeId(1)).map(Arc::make_mut).unwrap();
    let Command::CloseAttempt { baseline, .. } = close_successful(JobId(4), AttemptId(4), "one") else {
        unreachable!()
    };
    (node.setup.baseline, node.lifecycle) = (baseline, Lifecycle::Commissioned);
    let cancelled = Command::CancelJob { job: JobId(4), why: String::new(), now: false };
    let services = services.iter().map(|s| (*s).into()).collect();
    let want = JobSpec { by: Some("admin".to_owned()), now: true, services, ..JobSpec::new(Trigger::Live) }
        .into_request(Wall(0));
    let mut summary = inventory.generation().unwrap().summary.clone();
    summary.hosts.values_mut().for_each(|host| host.desired = Sha256::digest(b"two"));
    for (index, command) in (5..).zip([
        cancelled,
        Command::RequestResetup { node: NodeId(1), want: Box::new(want) },
        Command::Generation { blob: Sha256::digest(b"two"), summary: Box::new(summary) },
        Command::OpenJob { node: NodeId(1), runner: "m1".into() },
    ]) {
        assert_eq!(apply(&mut inventory, index, command), None);
    }
    inventory
}

/// Finishes job 8. The result contains only the generation and the baseline's blob, as an older
/// manager proposes it.
fn finish(inventory: &mut Inventory, attempt: u64, index: u64) {
    let attempt = AttemptId(attempt);
    for (index, phase) in (index..).zip([Phase::Cleanup, Phase::Cleaned, Phase::Provision, Phase::Verify]) {
        assert_eq!(apply(inventory, index, Command::Phase { job: JobId(8), attempt, phase }), None);
    }
    assert_eq!(apply(inventory, index + 4, close_successful(JobId(8), attempt, "two")), None);
}

#[test]
fn a_partial_job_of_an_outdated_node_uses_its_own_generation_and_leaves_it_outdated() {
    let of = |inventory: &Inventory| inventory.job(JobId(8)).unwrap().generation;
    let mut part = outdated_inventory(&["a"]);
    assert_eq!(of(&part), GenerationSeq(1), "applied between order and job");
    let next = Command::NextAttempt { job: JobId(8), after: AttemptId(8), runner: "m1".into(), why: String::new() };
    assert_eq!(apply(&mut part, 9, next.clone()), None);
    assert_eq!(of(&part), GenerationSeq(1), "or before a further attempt");
    finish(&mut part, 9, 10);
    let node = part.node(NodeId(1)).unwrap();
    assert!(part.is_outdated(node) && node.examination.needs_examination);
    assert_eq!(node.setup.baseline.as_ref().map(|b| b.desired), Some(Sha256::digest(b"one")));
    assert_eq!(part.job(JobId(8)).unwrap().result, node.setup.baseline);

    let mut whole = outdated_inventory(&[]);
    assert_eq!(of(&whole), GenerationSeq(2));
    assert_eq!(apply(&mut whole, 9, next), None);
    assert_eq!(of(&whole), GenerationSeq(2));
    finish(&mut whole, 9, 10);
    assert!(!whole.is_outdated(whole.node(NodeId(1)).unwrap()));
}

#[test]
fn a_node_with_a_changed_address_is_set_up_as_a_whole() {
    let mut inventory = outdated_inventory(&["a"]);
    let node = inventory.nodes.get_mut(&NodeId(1)).map(Arc::make_mut).unwrap();
    node.setup.address_change = Some(AddressChange { from: "10.0.0.1".to_owned(), since: Wall(1) });
    let part = |by: Option<&str>| {
        let by = by.map(str::to_owned);
        let spec = JobSpec { by, services: vec!["a".into()], ..JobSpec::new(Trigger::Network) };
        Command::RequestResetup { node: NodeId(1), want: Box::new(spec.into_request(Wall(9))) }
    };
    let cancelled = Command::CancelJob { job: JobId(8), why: String::new(), now: false };
    assert_eq!(apply(&mut inventory, 9, cancelled), None);
    assert_eq!(apply(&mut inventory, 10, part(Some("admin"))), Some("moved".to_owned()));
    assert_eq!(apply(&mut inventory, 11, part(None)), None);
    inventory.nodes.get_mut(&NodeId(1)).map(Arc::make_mut).unwrap().hold = None;
    assert_eq!(apply(&mut inventory, 10_000_000, Command::OpenJob { node: NodeId(1), runner: "m1".into() }), None);
    let job = inventory.job(JobId(10_000_000)).unwrap();
    assert_eq!((job.generation, job.spec.services.as_slice()), (GenerationSeq(2), [].as_slice()));
}

#[test]
fn the_offered_fingerprint_is_found_and_not_the_expected_one() {
    let (old, new) = (format!("SHA256:{}", "a".repeat(43)), format!("SHA256:{}", "B/+".repeat(14) + "z"));
    let told = format!("the host key changed: {old} is expected, {new} was offered");
    assert_eq!(offered_fingerprint(&told), Some(new.as_str()));
    assert_eq!(offered_fingerprint(&format!("the host key changed: {old} is expected, another was offered")), None);
    assert_eq!(offered_fingerprint("key 2"), None);
}

#[test]
fn only_commission_revokes_a_decommission() {
    let node = NodeId(1);
    let order = |decommission, commission| {
        let by = Some("admin".to_owned());
        let spec = JobSpec { by, decommission, ..JobSpec::new(Trigger::Apply) };
        let want = ResetupRequest { commission, ..spec.into_request(Wall(0)) };
        Command::RequestResetup { node, want: Box::new(want) }
    };
    let mut inventory = inventory_with_request();
    assert_eq!(apply(&mut inventory, 6, order(true, false)), None);
    let update = order(false, false);
    assert_eq!(apply(&mut inventory, 7, update), Some("decommissioned".to_owned()), "an update that comes too late");
    assert!(inventory.node(node).unwrap().pending_resetup.as_ref().unwrap().spec.decommission, "the order stands");
    assert_eq!(apply(&mut inventory, 8, order(false, true)), None);
    assert_eq!(inventory.node(node).unwrap().lifecycle, Lifecycle::Commissioning);
}

#[test]
fn an_examination_from_before_a_change_is_not_adopted() {
    let mut inventory = inventory_with_request();
    let trust = Command::TrustKey { node: NodeId(1), keys: vec!["ssh-ed25519 AAAA".to_owned()] };
    assert_eq!(apply(&mut inventory, 5, trust), None);
    let (generation, desired, root, blob) =
        (GenerationSeq(1), Sha256::digest(b"one"), Sha256::digest(b"x"), Sha256::digest(b"y"));
    let baseline = Baseline { generation, desired, root, blob, adopted: true, at: Wall(3) };
    let adopt = |basis| Command::Adopt { node: NodeId(1), baseline: baseline.clone(), basis };
    assert_eq!(apply(&mut inventory, 6, adopt(4)), Some("outlived".to_owned()));
    assert_eq!(apply(&mut inventory, 7, adopt(5)), None);
}

#[test]
fn variables_of_an_order_are_kept_by_its_job_and_by_a_repeated_job() {
    let mut inventory = open();
    let vars = JobVars::from([("colour".to_owned(), serde_json::json!("red"))]);
    let cancel = Command::CancelJob { job: JobId(4), why: String::new(), now: false };
    assert_eq!(apply(&mut inventory, 5, cancel), None);
    let want = JobSpec { by: Some("admin".to_owned()), now: true, vars: vars.clone(), ..JobSpec::new(Trigger::Live) }
        .into_request(Wall(5));
    assert_eq!(apply(&mut inventory, 6, Command::RequestResetup { node: NodeId(1), want: Box::new(want) }), None);
    assert_eq!(apply(&mut inventory, 7, Command::OpenJob { node: NodeId(1), runner: "m1".into() }), None);
    let job = inventory.job(JobId(7)).expect("opened");
    assert_eq!((&job.spec.vars, &job.to_request(Wall(9)).spec.vars), (&vars, &vars));
    assert!(inventory.job(JobId(4)).is_some_and(|job| job.spec.vars.is_empty()), "that one was ordered without");

    let mut older = serde_json::to_value(JobSpec::new(Trigger::Live).into_request(Wall(1))).expect("JSON");
    older.as_object_mut().expect("an object").remove("vars");
    let read: ResetupRequest = serde_json::from_value(older).expect("as older managers wrote it");
    assert!(read.spec.vars.is_empty());
}
