//! The agent's metrics, written into the process's registry on each request. They contain no
//! history and no secrets. Labels contain only names; the label of a command check is the command's
//! first word.

use super::local_state::AgentState;
use crate::telemetry::{MetricKind, Registry, render_all};
use remoor_cluster::gossip::Gossip;
use remoor_model::{CheckResult, CheckState, Sha256, Wall};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum length of a label value, in characters.
const LABEL_MAX: usize = 128;

const GAUGES: &[(&str, &str)] = &[
    ("remoor_agent_info", "1, with the version of the agent."),
    ("remoor_agent_start_time_seconds", "When the agent started, seconds since 1970."),
    ("remoor_agent_peers", "Live peers according to this node's gossip."),
    ("remoor_agent_peers_known", "Peers that managers named or gossip has seen."),
    ("remoor_agent_isolated", "1 while the node has no live peer after it had some."),
    ("remoor_agent_generation", "Generation of the manifest used by the last examination."),
    ("remoor_agent_digest_age_seconds", "Age of the last digest."),
    ("remoor_agent_unreadable_files", "Declared files that the last examination could not read."),
    ("remoor_agent_manager_contact_age_seconds", "Time since a manager last answered."),
    ("remoor_agent_check", "1 for the current state of an assertion of a check; at most 500."),
    ("remoor_agent_checks", "Assertions of the last examination by state."),
    ("remoor_agent_checks_left_out", "Assertions beyond 500, which remoor_agent_check does not list."),
];
const COUNTERS: &[(&str, &str)] = &[
    ("remoor_agent_restarts_total", "Starts of the agent after an unclean end within one boot, ever."),
    ("remoor_agent_isolations_total", "Episodes without any live peer, ever."),
];

const REFUSED: &str = "remoor_gossip_refused_total";

/// A handle to the metrics; all clones share one state.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    own: AgentState,
    gossip: Option<Gossip>,
    /// The lock that each request for the metrics holds. Without it, two concurrent requests would
    /// see each other's partial values.
    writing: Arc<Mutex<()>>,
}

impl Metrics {
    /// `registry` may also contain metrics of other components.
    pub fn new(registry: Registry, own: AgentState) -> Self {
        GAUGES.iter().for_each(|(name, help)| registry.describe(name, MetricKind::Gauge, help));
        COUNTERS.iter().for_each(|(name, help)| registry.describe(name, MetricKind::Counter, help));
        registry.describe(REFUSED, MetricKind::Counter, "Gossip that was refused, by reason.");
        Self { registry, own, gossip: None, writing: Arc::default() }
    }

    /// Adds the metrics of the gossip member.
    pub fn with_gossip(self, gossip: Gossip) -> Self {
        Self { gossip: Some(gossip), ..self }
    }

    /// All metrics as Prometheus text, as of `now`, together with the metrics of `others`.
    pub fn render(&self, now: Wall, others: &[Registry]) -> String {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let view = self.own.view(now);
        for (name, _) in GAUGES.iter().chain(COUNTERS) {
            self.registry.clear(name);
        }
        let refusals = self.gossip.as_ref().map(Gossip::refusals).unwrap_or_default();
        self.registry.clear(REFUSED);
        for (reason, count) in refusals {
            self.registry.add(REFUSED, &[("reason", reason)], count);
        }
        let set = |name: &str, value: f64| self.registry.set(name, &[], value);
        self.registry.set("remoor_agent_info", &[("version", view.node.agent_version.as_str())], 1.0);
        set("remoor_agent_start_time_seconds", self.own.start_time().0 as f64 / 1000.0);
        self.registry.add("remoor_agent_restarts_total", &[], u64::from(view.node.crashes));
        self.registry.add("remoor_agent_isolations_total", &[], u64::from(view.isolation.episodes));
        set("remoor_agent_isolated", f64::from(u8::from(view.isolation.alone)));
        set("remoor_agent_peers", f64::from(view.peers_alive));
        set("remoor_agent_peers_known", view.peers.len() as f64);
        if let Some(age) = view.manager.age_ms {
            set("remoor_agent_manager_contact_age_seconds", age as f64 / 1000.0);
        }
        let all = [std::slice::from_ref(&self.registry), others].concat();
        let Some(look) = view.look else { return render_all(&all) };
        set("remoor_agent_generation", look.generation as f64);
        set("remoor_agent_digest_age_seconds", look.age_ms as f64 / 1000.0);
        set("remoor_agent_unreadable_files", look.unreadable.len() as f64);
        set("remoor_agent_checks_left_out", look.checks_left_out as f64);
        for (state, count) in [("pass", look.passed), ("fail", look.failed), ("unknown", look.unknown)] {
            self.registry.set("remoor_agent_checks", &[("state", state)], f64::from(count));
        }
        for result in &look.checks {
            let (check, service) = (label(result), cut(result.service.as_str()));
            let property = cut(&result.property);
            let labels = [
                ("service", service.as_str()),
                ("check", check.as_str()),
                ("property", property.as_str()),
                ("state", state_name(result.state)),
            ];
            self.registry.set("remoor_agent_check", &labels, 1.0);
        }
        render_all(&all)
    }
}

fn state_name(state: CheckState) -> &'static str {
    match state {
        CheckState::Pass => "pass",
        CheckState::Fail => "fail",
        CheckState::Unknown => "unknown",
        CheckState::Skip => "skip",
        CheckState::Waived => "waived",
    }
}

/// The check's name without possible secrets: the arguments of a command, and user and query of a
/// URL are removed. A hash distinguishes checks with equal shortened names.
fn label(result: &CheckResult) -> String {
    let name = result.check.as_str();
    let (kind, id) = name.split_once(':').unwrap_or(("", name));
    let bare = match kind {
        "command" => id.split_whitespace().next().unwrap_or_default().split('=').next().unwrap_or_default().to_owned(),
        "http" | "addr" => {
            let address = id.split(['?', '#']).next().unwrap_or_default();
            match (address.split_once("://"), address.rsplit_once('@')) {
                (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
                (None, Some((_, host))) => host.to_owned(),
                (_, None) => address.to_owned(),
            }
        }
        _ => return cut(name),
    };
    if bare == id {
        return cut(name);
    }
    format!("{}#{}", cut(&format!("{kind}:{bare}")), Sha256::digest(id.as_bytes()).short_hex())
}

fn cut(text: &str) -> String {
    text.chars().take(LABEL_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::local_state::{CHECKS_MAX, ExaminationSummary, tests::sample_state};
    use super::*;
    use remoor_model::{NodeDigest, OnFail, Severity};

    fn result(check: &str, state: CheckState) -> CheckResult {
        CheckResult {
            service: "nginx".into(),
            check: check.to_owned(),
            property: "running".to_owned(),
            state,
            severity: Severity::Critical,
            on_fail: OnFail::Resetup,
            expected: "hunter2".to_owned(),
            found: "hunter3".to_owned(),
            message: "hunter4".to_owned(),
            took_ms: 1,
        }
    }

    fn metrics_with(checks: Vec<CheckResult>) -> Metrics {
        let own = sample_state();
        own.set_examination(ExaminationSummary::new(Wall(60_000), 12, 3, &NodeDigest::default(), checks));
        Metrics::new(Registry::new(), own)
    }

    #[test]
    fn what_the_agent_knows_is_told_and_what_is_over_is_not() {
        let metrics = metrics_with(vec![result("service:nginx", CheckState::Fail)]);
        let text = metrics.render(Wall(70_000), &[]);
        for line in [
            "remoor_agent_check{check=\"service:nginx\",property=\"running\",service=\"nginx\",state=\"fail\"} 1",
            "remoor_agent_checks{state=\"fail\"} 1",
            "remoor_agent_digest_age_seconds 10",
            "remoor_agent_generation 3",
            "remoor_agent_isolations_total 2",
            "remoor_agent_restarts_total 1",
            "remoor_agent_peers 1",
            "remoor_agent_peers_known 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        metrics.own.set_examination(ExaminationSummary::new(
            Wall(70_000),
            12,
            3,
            &NodeDigest::default(),
            vec![result("service:nginx", CheckState::Pass)],
        ));
        let text = metrics.render(Wall(70_000), &[]);
        assert!(text.contains("state=\"pass\"} 1") && !text.contains("service=\"nginx\",state=\"fail\""), "{text}");
        assert!(text.contains("remoor_agent_isolations_total 2\n"), "not added up at each question: {text}");
    }

    #[test]
    fn labels_hold_no_secrets() {
        let checks = [
            "command:curl -u user:hunter5 localhost",
            "command:TOKEN=hunter6 run",
            "http:https://me:hunter7@host/path?key=hunter8",
            "service:nginx",
        ];
        let text = metrics_with(checks.iter().map(|c| result(c, CheckState::Pass)).collect()).render(Wall(0), &[]);
        assert!(!text.contains("hunter"), "{text}");
        assert!(text.contains("check=\"command:curl#") && text.contains("check=\"http:https://host/path#"), "{text}");
    }

    #[test]
    fn checks_are_bounded_and_failures_come_first() {
        let mut checks: Vec<_> =
            (0..CHECKS_MAX + 20).map(|n| result(&format!("file:/f{n}"), CheckState::Pass)).collect();
        checks.push(result("file:/bad", CheckState::Fail));
        let text = metrics_with(checks).render(Wall(0), &[]);
        assert_eq!(text.lines().filter(|l| l.starts_with("remoor_agent_check{")).count(), CHECKS_MAX);
        assert!(text.contains("check=\"file:/bad\""), "{text}");
        assert!(text.contains("remoor_agent_checks_left_out 21\n"), "{text}");
    }
}
