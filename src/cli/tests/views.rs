//! Example views for tests: three managers and two workers, some of them with problems.

use crate::cli::moment;
use remoor_cluster::rpc::view::*;
use remoor_model::*;
use std::collections::BTreeMap;

pub const AT: &str = "2026-03-05T12:05:00.000Z";

/// A time on the day of [`AT`].
pub fn time_of_day(time: &str) -> Wall {
    moment::parse(&format!("2026-03-05T{time}Z")).expect("a time")
}

pub fn as_of() -> AsOf {
    AsOf { by: "m1".into(), leader: Some("m1".into()), at: AT.into(), ..AsOf::default() }
}

pub fn baseline(time: &str) -> Baseline {
    Baseline {
        generation: GenerationSeq(3),
        desired: Sha256([1; 32]),
        root: Sha256([2; 32]),
        blob: Sha256([3; 32]),
        adopted: false,
        at: time_of_day(time),
    }
}

pub fn reason() -> Reason {
    let text = "contiv_network: /etc/default/netplugin sha256 expected 1f2e.. got 99aa..".into();
    Reason::new(Witness::Digest, "contiv_network".into(), text, true)
}

/// A verdict as in the scenarios A01 and A02 of docs/design/scenarios.md. The node was away because
/// of the network, and one file changed meanwhile.
pub fn drifted_finding() -> Finding {
    Finding {
        overtaken: None,
        damaged: Vec::new(),
        basis: 0,
        absence: Some(AbsenceNo(3)),
        cause: Some(AbsenceCause::Network),
        planned: false,
        evidence: vec!["boot id is the same, 6f1c2d3e".into(), "the agent lost 4 peers for 90 s".into()],
        verdict: Verdict::Drifted,
        reasons: vec![reason()],
        planned_action: PlannedAction::Resetup(vec!["contiv_network".into()]),
        trigger: Trigger::Network,
        by: "m1".into(),
        at: time_of_day("12:01:09"),
        took_ms: 4_200,
        digest: Some(Sha256([4; 32])),
        checks: (12, 1, 0),
        failure_hash: None,
        identity: HostFingerprint::default(),
    }
}

fn drifted_config() -> ConfigView {
    ConfigView { finding: Some(drifted_finding()), baseline: Some(baseline("09:30:00")), outdated: false }
}

pub fn node(id: u64, name: &str) -> NodeView {
    NodeView {
        id,
        name: name.into(),
        group: Some("service-worker".into()),
        role: "worker".into(),
        manager: None,
        presence: "alive".into(),
        presence_since: Some("2026-03-05T09:00:00Z".into()),
        operation: OperationView {
            lifecycle: "commissioned".into(),
            failed: None,
            availability: Availability::Active,
            maintenance: None,
        },
        addresses: AddressesView {
            api: format!("10.0.0.{id}:7947"),
            gossip: format!("10.0.0.{id}:7946"),
            ssh: Some(format!("10.0.0.{id}:22")),
            ssh_fingerprints: vec![format!("SHA256:key-of-{name}")],
        },
        config: ConfigView { finding: None, baseline: Some(baseline("09:30:00")), outdated: false },
        conditions: Vec::new(),
        job: None,
        absences: 0,
        agent: ReportedAgentView { faults: 0, report: None, version: "0.1.0".into() },
        reachability: ReachabilityView::default(),
        membership: NodeMembershipView { state: "worker".into(), ..NodeMembershipView::default() },
        zone: String::new(),
        services: Vec::new(),
        certificate_until: Some("2026-06-03T09:00:00Z".into()),
    }
}

pub fn manager(id: u64, name: &str, is: &str) -> NodeView {
    let group = Some("service-master".into());
    let membership = NodeMembershipView { state: is.into(), ..NodeMembershipView::default() };
    NodeView { role: "manager".into(), manager: Some(is.into()), membership, group, ..node(id, name) }
}

/// A status in which w1 is being set up, w2 is away, and m3 is outdated.
pub fn status() -> StatusView {
    let w1 = NodeView {
        config: drifted_config(),
        job: Some(17),
        absences: 3,
        conditions: vec![ConditionView { is: "resetup".into(), why: "job 17, attempt 1, cleanup".into() }],
        ..node(4, "w1")
    };
    let w2 = NodeView {
        presence: "away".into(),
        presence_since: Some("2026-03-05T12:01:30Z".into()),
        absences: 1,
        ..node(5, "w2")
    };
    let mut m3 = manager(3, "m3", "voter");
    m3.config.outdated = true;
    StatusView {
        version: 1,
        as_of: as_of(),
        cluster: "c0ffee00c0ffee00".into(),
        epoch: 1,
        generation: 3,
        generation_at: Some("2026-03-04T18:00:00Z".into()),
        managers_up: 3,
        managers: 3,
        breaker: None,
        warnings: vec!["2 of 3 managers answered late".into()],
        nodes: vec![manager(1, "m1", "leader"), manager(2, "m2", "voter"), m3, w1, w2],
        ssh_key: None,
        backup: None,
        pending: Vec::new(),
        left: Vec::new(),
    }
}

/// A status in which all nodes are as desired.
pub fn clean_status() -> StatusView {
    let nodes = vec![manager(1, "m1", "leader"), node(4, "w1")];
    StatusView { nodes, warnings: Vec::new(), managers: 1, managers_up: 1, ..status() }
}

fn item(index: u64, time: &str, what: JournalEvent) -> HistoryItem {
    HistoryItem { index, at: time_of_day(time), by: "m1".into(), node: Some(NodeId(4)), what }
}

pub fn story() -> Vec<HistoryItem> {
    let (job, attempt) = (JobId(17), AttemptId(17));
    let no = AbsenceNo(3);
    let seen_by = vec!["m1".into(), "m2".into()];
    vec![
        item(
            10,
            "11:59:40",
            JournalEvent::Away {
                absence: no,
                last_seen: time_of_day("11:59:30"),
                gone: AbsenceKind::Away,
                seen_by,
                retrospect: false,
            },
        ),
        item(11, "12:01:02", JournalEvent::Returned { absence: no }),
        item(12, "12:01:09", JournalEvent::Concluded { finding: Box::new(drifted_finding()) }),
        item(
            17,
            "12:01:10",
            JournalEvent::JobOpened {
                job,
                services: vec!["contiv_network".into()],
                reasons: vec![reason()],
                generation: GenerationSeq(3),
                undo: None,
            },
        ),
        item(
            17,
            "12:01:10",
            JournalEvent::AttemptOpened { job, attempt, no: 1, runner: "m1".into(), why: "first attempt".into() },
        ),
        item(18, "12:01:12", JournalEvent::Phase { job, attempt, phase: Phase::Cleanup }),
        item(21, "12:01:52", JournalEvent::AttemptClosed { job, attempt, outcome: AttemptOutcome::Done }),
        item(21, "12:01:52", JournalEvent::JobDone { job }),
    ]
}

pub fn history() -> HistoryView {
    HistoryView { version: 1, as_of: as_of(), names: BTreeMap::from([(4, "w1".into())]), items: story() }
}

pub fn failed_attempt() -> Attempt {
    let failure = Failure {
        class: FailureClass::Step,
        phase: Phase::Provision,
        rc: Some(2),
        message: "playbooks/provision.yml:12: start netplugin: unit failed".into(),
        tail: vec!["netplugin: no such device".into()],
    };
    Attempt {
        id: AttemptId(17),
        no: 1,
        opened: time_of_day("12:01:10"),
        why: "first attempt".into(),
        runner: "m1".into(),
        phase: Phase::Provision,
        closed: Some((time_of_day("12:01:52"), AttemptOutcome::Failed(failure))),
    }
}

pub fn job(id: u64) -> Job {
    let second = Attempt {
        id: AttemptId(25),
        no: 2,
        opened: time_of_day("12:02:52"),
        why: "retry after a failure".into(),
        runner: "m2".into(),
        phase: Phase::Cleanup,
        closed: None,
    };
    Job {
        id: JobId(id),
        node: NodeId(4),
        opened: time_of_day("12:01:10"),
        spec: JobSpec {
            reasons: vec![reason()],
            services: vec!["contiv_network".into()],
            ..JobSpec::new(Trigger::Network)
        },
        generation: GenerationSeq(3),
        end_task_now: false,
        state: JobState::Open,
        attempts: vec![failed_attempt(), second],
        failures: 1,
        retry_at: None,
        closed: None,
        result: None,
        attempts_dropped: 0,
    }
}

pub fn jobs() -> JobsView {
    let done = Job {
        node: NodeId(5),
        spec: JobSpec { by: Some("alice".into()), ..JobSpec::new(Trigger::Network) },
        state: JobState::Done,
        attempts: Vec::new(),
        closed: Some(time_of_day("12:02:00")),
        ..job(9)
    };
    let names = BTreeMap::from([(4, "w1".into()), (5, "w2".into())]);
    JobsView { version: 1, as_of: as_of(), names, jobs: vec![done, job(17)], queued: Vec::new() }
}

pub fn why_view() -> WhyView {
    let node = NodeView { config: drifted_config(), absences: 3, ..node(4, "w1") };
    WhyView {
        version: 1,
        as_of: as_of(),
        node,
        absence: Some(Absence {
            no: AbsenceNo(4),
            opened: time_of_day("12:04:00"),
            last_seen: time_of_day("12:03:50"),
            seen_by: vec!["m1".into(), "m2".into()],
            kind: AbsenceKind::AgentDown,
            before: HostFingerprint::default(),
            returned: None,
            after: None,
            planned: false,
        }),
        want: Some(
            JobSpec {
                reasons: vec![reason()],
                services: vec!["contiv_network".into()],
                by: Some("alice".into()),
                ..JobSpec::new(Trigger::Network)
            }
            .into_request(time_of_day("12:04:30")),
        ),
        job: None,
        history: story(),
        not_done: vec!["not yet: waiting for the node to come back".into()],
        next: vec!["on w1: systemctl restart remoor".into()],
    }
}
