//! Counters and gauges with labels, printed as Prometheus text. No histograms, no network.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of series per metric name. Additional series are dropped and counted, so that a
/// label with unlimited values can't exhaust memory.
pub const SERIES_MAX: usize = 4096;
const NAMES_MAX: usize = 512;
const DROPPED: &str = "remoor_metrics_dropped_total";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that may increase and decrease.
    Gauge,
}

type Labels = Vec<(String, String)>;

#[derive(Debug)]
struct Family {
    kind: MetricKind,
    help: &'static str,
    series: BTreeMap<Labels, f64>,
}

/// A handle of the registry. All clones share one registry.
///
/// Metric and label names are constants of the program and must match `[a-zA-Z_][a-zA-Z0-9_]*`.
/// Other names, and names that were never described, are dropped and counted in
/// `remoor_metrics_dropped_total`. Label values may be any text.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    families: Arc<Mutex<BTreeMap<&'static str, Family>>>,
}

impl Registry {
    pub fn new() -> Self {
        let registry = Self::default();
        registry.describe(
            DROPPED,
            MetricKind::Counter,
            "Values not recorded: too many series, or a name that is not described.",
        );
        registry.add(DROPPED, &[], 0);
        registry
    }

    /// Describes a metric before its first use. A second description changes nothing.
    pub fn describe(&self, name: &'static str, kind: MetricKind, help: &'static str) {
        let mut families = self.lock();
        if !good_name(name) || families.len() >= NAMES_MAX && !families.contains_key(name) {
            count_dropped(&mut families);
            return;
        }
        families.entry(name).or_insert(Family { kind, help, series: BTreeMap::new() });
    }

    /// Increases a counter. If the metric is a gauge, the call changes nothing and is counted in
    /// `remoor_metrics_dropped_total`.
    pub fn add(&self, name: &str, labels: &[(&str, &str)], by: u64) {
        self.change(name, labels, MetricKind::Counter, |value| *value += by as f64);
    }

    /// Sets a gauge. If the metric is a counter, the call changes nothing and is counted in
    /// `remoor_metrics_dropped_total`.
    pub fn set(&self, name: &str, labels: &[(&str, &str)], to: f64) {
        self.change(name, labels, MetricKind::Gauge, |value| *value = to);
    }

    /// Removes one series, for example of a removed node.
    pub fn remove(&self, name: &str, labels: &[(&str, &str)]) {
        if let (Some(labels), Some(family)) = (sorted_labels(labels), self.lock().get_mut(name)) {
            family.series.remove(&labels);
        }
    }

    /// Removes all series of a name and keeps the description. Metrics that are rewritten on each
    /// request use this.
    pub fn clear(&self, name: &str) {
        if let Some(family) = self.lock().get_mut(name) {
            family.series.clear();
        }
    }

    /// The value of one series.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.lock().get(name)?.series.get(&sorted_labels(labels)?).copied()
    }

    /// All metrics in the text exposition format 0.0.4, sorted by name and labels.
    pub fn render(&self) -> String {
        render_all(std::slice::from_ref(self))
    }

    fn change(&self, name: &str, labels: &[(&str, &str)], kind: MetricKind, change: impl FnOnce(&mut f64)) {
        let mut families = self.lock();
        let family = families.get_mut(name).filter(|family| family.kind == kind);
        if let (Some(family), Some(labels)) = (family, sorted_labels(labels))
            && (family.series.len() < SERIES_MAX || family.series.contains_key(&labels))
        {
            change(family.series.entry(labels).or_insert(0.0));
            return;
        }
        count_dropped(&mut families);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Family>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The metrics of all `registries` in the text exposition format 0.0.4, sorted by name and labels.
/// The format allows each name only once, so values of one name and of equal labels are added.
pub fn render_all(registries: &[Registry]) -> String {
    let mut all: BTreeMap<&'static str, Family> = BTreeMap::new();
    for registry in registries {
        for (name, family) in registry.lock().iter() {
            let Family { kind, help, .. } = *family;
            let sum = all.entry(name).or_insert(Family { kind, help, series: BTreeMap::new() });
            for (labels, value) in &family.series {
                *sum.series.entry(labels.clone()).or_insert(0.0) += value;
            }
        }
    }
    let mut out = String::new();
    for (name, family) in all.iter().filter(|(_, family)| !family.series.is_empty()) {
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
        // A write to a String can't fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in &family.series {
            let _ = writeln!(out, "{name}{} {}", braces(labels), number(*value));
        }
    }
    out
}

fn count_dropped(families: &mut BTreeMap<&'static str, Family>) {
    if let Some(family) = families.get_mut(DROPPED) {
        *family.series.entry(vec![]).or_insert(0.0) += 1.0;
    }
}

/// The labels, sorted by name, so that the order in the call does not create a second series. None:
/// a label name is invalid or occurs twice.
fn sorted_labels(labels: &[(&str, &str)]) -> Option<Labels> {
    let mut labels: Labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    labels.sort();
    let distinct = labels.windows(2).all(|pair| pair[0].0 != pair[1].0);
    (distinct && labels.iter().all(|(name, _)| good_name(name))).then_some(labels)
}

fn good_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn braces(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// The value as text. Prometheus writes `+Inf` for infinity, where Rust writes `inf`.
fn number(value: f64) -> String {
    match value {
        v if v == f64::INFINITY => "+Inf".to_owned(),
        v if v == f64::NEG_INFINITY => "-Inf".to_owned(),
        v => v.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn several_registries_give_each_name_once() {
        let (one, other) = (Registry::new(), Registry::new());
        one.add("remoor_unknown_total", &[], 1);
        other.describe("remoor_peers", MetricKind::Gauge, "Live peers.");
        other.set("remoor_peers", &[], 2.0);
        let text = render_all(&[one, other]);
        assert_eq!(text.matches("# TYPE remoor_metrics_dropped_total").count(), 1, "{text}");
        assert!(text.contains("\nremoor_metrics_dropped_total 1\n") && text.contains("\nremoor_peers 2\n"), "{text}");
    }

    #[test]
    fn renders_sorted_escaped_text() {
        let registry = Registry::new();
        registry.describe("remoor_verdicts_total", MetricKind::Counter, "Verdicts by cause.");
        registry.describe("remoor_peers", MetricKind::Gauge, "Live peers.\nWithout this node.");
        registry.describe("remoor_unused", MetricKind::Gauge, "Never set, so not shown.");
        registry.set("remoor_peers", &[], 4.0);
        registry.set("remoor_peers", &[], 3.5);
        registry.add("remoor_verdicts_total", &[("node", "w2"), ("cause", "reboot")], 1);
        registry.add("remoor_verdicts_total", &[("cause", "reboot"), ("node", "w2")], 1);
        registry.add("remoor_verdicts_total", &[("node", "a\"b\\c\nd"), ("cause", "left")], 1);
        expect![[r#"
            # HELP remoor_metrics_dropped_total Values not recorded: too many series, or a name that is not described.
            # TYPE remoor_metrics_dropped_total counter
            remoor_metrics_dropped_total 0
            # HELP remoor_peers Live peers.\nWithout this node.
            # TYPE remoor_peers gauge
            remoor_peers 3.5
            # HELP remoor_verdicts_total Verdicts by cause.
            # TYPE remoor_verdicts_total counter
            remoor_verdicts_total{cause="left",node="a\"b\\c\nd"} 1
            remoor_verdicts_total{cause="reboot",node="w2"} 2
        "#]]
        .assert_eq(&registry.render());
    }

    #[test]
    fn what_can_not_be_recorded_is_counted() {
        let registry = Registry::new();
        registry.describe("ok_total", MetricKind::Counter, "");
        registry.describe("not ok", MetricKind::Counter, "");
        registry.add("unknown_total", &[], 1);
        registry.set("ok_total", &[], 1.0);
        registry.add("ok_total", &[("bad-label", "x")], 1);
        registry.add("ok_total", &[("twice", "x"), ("twice", "y")], 1);
        assert_eq!(registry.get(DROPPED, &[]), Some(5.0));
        assert_eq!(registry.get("ok_total", &[]), None);
    }

    #[test]
    fn series_are_bounded_and_can_be_forgotten() {
        let registry = Registry::new();
        registry.describe("x_total", MetricKind::Counter, "");
        for n in 0..SERIES_MAX + 3 {
            registry.add("x_total", &[("n", &n.to_string())], 1);
        }
        assert_eq!(registry.get(DROPPED, &[]), Some(3.0));
        registry.add("x_total", &[("n", "0")], 1);
        assert_eq!(registry.get("x_total", &[("n", "0")]), Some(2.0), "the old ones go on");
        registry.remove("x_total", &[("n", "0")]);
        registry.add("x_total", &[("n", "new")], 1);
        assert_eq!(registry.get("x_total", &[("n", "new")]), Some(1.0));
        registry.clear("x_total");
        assert_eq!(registry.get("x_total", &[("n", "new")]), None);
        registry.add("x_total", &[("n", "new")], 2);
        assert_eq!(registry.get("x_total", &[("n", "new")]), Some(2.0), "still described");
    }
}
