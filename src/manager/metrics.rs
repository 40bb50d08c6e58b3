//! Metrics of a manager for Prometheus. Gauges show the applied state at the time of the request.
//! Counters count the entries that were applied since this process started.

use crate::telemetry::{MetricKind, Registry};
use remoor_model::{AttemptOutcome, Inventory, JobState, JournalEvent, Node, Verdict};

const VERDICTS: &str = "remoor_verdicts_total";
const ATTEMPTS: &str = "remoor_attempts_total";
const ABSENCES: &str = "remoor_absences_total";
const HELD: &str = "remoor_jobs_held_total";
const REFUSED: &str = "remoor_entries_refused_total";

/// Values of this manager, the input of [`text`].
pub struct ManagerMetrics {
    pub leads: bool,
    /// Milliseconds since this manager last knew of a majority that agrees. None if it has known of
    /// no such majority since this process started.
    pub age_ms: Option<u64>,
    /// Each other manager with the difference of its clock to this manager's clock in seconds,
    /// positive if the other clock is ahead.
    pub clocks: Vec<(String, f64)>,
}

/// A registry with the counters that [`count`] increases.
pub fn counters() -> Registry {
    let registry = Registry::new();
    for (name, help) in [
        (VERDICTS, "verdicts by kind, since this process started"),
        (ATTEMPTS, "ended attempts by outcome: done, superseded, cancelled, or the class of the failure"),
        (ABSENCES, "absences that were recorded"),
        (HELD, "held jobs: they are not retried and wait for an operator"),
        (REFUSED, "entries that the state machine refused, by reason"),
    ] {
        registry.describe(name, MetricKind::Counter, help);
    }
    registry
}

/// Increases the counter for an applied journal item.
pub fn count(counters: &Registry, what: &JournalEvent) {
    match what {
        JournalEvent::Concluded { finding } => counters.add(VERDICTS, &[("verdict", finding.verdict.as_str())], 1),
        JournalEvent::AttemptClosed { outcome, .. } => counters.add(ATTEMPTS, &[("outcome", outcome_word(outcome))], 1),
        JournalEvent::Away { .. } => counters.add(ABSENCES, &[], 1),
        JournalEvent::JobHeld { .. } => counters.add(HELD, &[], 1),
        _ => {}
    }
}

/// Counts a committed entry that the state machine refused, by the code of the refusal.
pub fn count_refusal(counters: &Registry, code: &str) {
    counters.add(REFUSED, &[("code", code)], 1);
}

fn outcome_word(outcome: &AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Done => "done",
        AttemptOutcome::Failed(failure) => failure.class.as_str(),
        AttemptOutcome::Superseded(_) => "superseded",
        AttemptOutcome::Cancelled(_) => "cancelled",
    }
}

/// The metrics: the state as gauges, and the counters.
pub fn registries(inventory: &Inventory, own: &ManagerMetrics, counters: &Registry) -> [Registry; 2] {
    let gauges = Registry::new();
    let gauge = |name: &'static str, help: &'static str, rows: Vec<(Vec<(&str, &str)>, f64)>| {
        gauges.describe(name, MetricKind::Gauge, help);
        rows.into_iter().for_each(|(labels, value)| gauges.set(name, &labels, value));
    };
    let one = |value: f64| vec![(Vec::new(), value)];
    let yes = |is: bool| if is { 1.0 } else { 0.0 };
    gauge("remoor_leader", "1 if this manager leads", one(yes(own.leads)));
    if let Some(ms) = own.age_ms {
        gauge(
            "remoor_quorum_age_seconds",
            "seconds since a majority last agreed, as far as this manager knows",
            one(ms as f64 / 1e3),
        );
    }
    let clocks = own.clocks.iter().map(|(manager, ahead)| (vec![("manager", manager.as_str())], *ahead));
    gauge(
        "remoor_clock_difference_seconds",
        "how far the clock of another manager is ahead of this one's; negative: behind",
        clocks.collect(),
    );
    gauge("remoor_raft_applied", "index of the last applied entry", one(inventory.applied as f64));
    gauge("remoor_generation", "sequence number of the applied fleet", one(inventory.current.0 as f64));
    gauge("remoor_breaker_open", "1 while a breaker is open", one(yes(inventory.breaker.is_some())));
    let jobs =
        |state: JobState| inventory.jobs.values().filter(|j| j.closed.is_none() && j.state == state).count() as f64;
    let states = [("open", JobState::Open), ("held", JobState::Held)];
    let states = states.map(|(word, state)| (vec![("state", word)], jobs(state)));
    gauge("remoor_jobs", "re-setup jobs by state: open, or held for an operator", states.to_vec());
    let per_node = |value: &dyn Fn(&Node) -> f64| {
        let node = |n: &'_ std::sync::Arc<Node>| (n.name().to_string(), value(n));
        inventory.nodes.values().map(node).collect::<Vec<_>>()
    };
    let verdict =
        |n: &Node, is: fn(&Verdict) -> bool| yes(n.examination.finding.as_ref().is_some_and(|f| is(&f.verdict)));
    type Of<'a> = &'a dyn Fn(&Node) -> f64;
    let nodes: [(&'static str, &'static str, Of); 8] = [
        ("remoor_node_away", "1 while the node is away", &|n| yes(n.is_away())),
        ("remoor_node_absences", "absences so far", &|n| n.absences.count.0 as f64),
        ("remoor_node_agent_faults", "crashes of the agent", &|n| n.absences.agent_faults as f64),
        ("remoor_node_drifted", "1 while the last verdict is drifted or conflict", &|n| {
            verdict(n, Verdict::is_drifted)
        }),
        ("remoor_node_unknown", "1 while the last verdict is unknown", &|n| {
            verdict(n, |v| matches!(v, Verdict::Unknown(_)))
        }),
        ("remoor_node_outdated", "1 while the desired configuration differs from the applied one", &|n| {
            yes(inventory.is_outdated(n))
        }),
        ("remoor_node_checks_failing", "checks that failed in the last examination", &|n| {
            n.examination.finding.as_ref().map_or(0.0, |f| f64::from(f.checks.1))
        }),
        ("remoor_node_half_done", "1 if the last re-setup of the node ended between cleanup and verification", &|n| {
            yes(n.half_done())
        }),
    ];
    for (name, help, value) in nodes {
        let rows = per_node(value);
        gauge(name, help, rows.iter().map(|(node, value)| (vec![("node", node.as_str())], *value)).collect());
    }
    [gauges, counters.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::render_all;
    use remoor_model::*;

    #[test]
    fn state_is_exported_as_gauges_and_events_are_counted() {
        let mut inventory = Inventory::default();
        let accept =
            Command::Accept { spec: NodeSpec { name: "w1".into(), ..NodeSpec::default() }, role: ClusterRole::Worker };
        let counters = counters();
        for (index, command) in
            (1..).zip([accept, Command::Resume, Command::DropRequest { node: NodeId(1), why: "x".into() }])
        {
            let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
            if let Some(refusal) = applied.refusal() {
                count_refusal(&counters, &refusal.code);
            }
        }
        count(&counters, &JournalEvent::JobHeld { job: JobId(4), why: "three failures".to_owned() });
        let closed = AttemptOutcome::Superseded("another leads".to_owned());
        count(&counters, &JournalEvent::AttemptClosed { job: JobId(4), attempt: AttemptId(4), outcome: closed });
        let own = ManagerMetrics { leads: true, age_ms: Some(1_500), clocks: Vec::new() };
        let text = render_all(&registries(&inventory, &own, &counters));
        for line in [
            "remoor_leader 1",
            "remoor_quorum_age_seconds 1.5",
            "remoor_raft_applied 3",
            "remoor_jobs{state=\"held\"} 0",
            "remoor_node_away{node=\"w1\"} 0",
            "remoor_node_unknown{node=\"w1\"} 0",
            "remoor_entries_refused_total{code=\"nothing-wanted\"} 1",
            "remoor_jobs_held_total 1",
            "remoor_attempts_total{outcome=\"superseded\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.lines().all(|l| l.starts_with("remoor_") || l.starts_with("# ")), "{text}");
    }
}
