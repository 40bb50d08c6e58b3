//! A real Prometheus scrapes a real manager with the shipped configuration, and evaluates the
//! shipped rules and each expression of the dashboard. If this machine has no Prometheus, the test
//! prints so in capitals.

use crate::local::{apply_small, net, one_manager, wait_until};
use crate::time_limit::BoundedCommand;
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The port of the metrics of a daemon, as in the shipped configuration.
const PORT: u16 = 9947;

struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    fn start(dir: &Path, at: Ipv4Addr) -> Self {
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", dir.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
        command.arg(format!("--web.listen-address={at}:9090"));
        let log = fs::File::create(dir.join("log")).expect("a log");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("Prometheus");
        Self { child, url: format!("http://{at}:9090/api/v1") }
    }

    /// The field `data` of an answer. None until Prometheus answers.
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let mut request = ureq::get(format!("{}/{path}", self.url)).config().http_status_as_error(false).build();
        for (name, value) in query {
            request = request.query(name, value);
        }
        let text = request.call().ok()?.body_mut().read_to_string().ok()?;
        let answer: Value = serde_json::from_str(&text).ok()?;
        assert_eq!(answer["status"], "success", "{path} {query:?}: {answer}");
        Some(answer["data"].clone())
    }

    /// The number of series that an expression selects now.
    fn count_series(&self, expression: &str) -> Option<usize> {
        Some(self.get("query", &[("query", expression)])?["result"].as_array()?.len())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The kill fails if the process has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn path_of_shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/monitoring").join(name)
}

/// The expressions of the dashboard's panels.
fn expressions_of_dashboard() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_slice(&fs::read(path_of_shipped("dashboard.json")).expect("read")).expect("JSON");
    let targets = dashboard["panels"].as_array().expect("panels").iter().flat_map(|panel| panel["targets"].as_array());
    let all = targets.flatten().map(|target| target["expr"].as_str().expect("an expression").to_owned());
    let all: Vec<String> = all.collect();
    assert!(all.len() > 10, "{all:?}");
    all
}

/// The names of metrics in a text.
fn metric_names(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("remoor_")).collect()
}

#[test]
fn prometheus_accepts_the_metrics_the_rules_and_the_dashboard() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("SKIPPED: PROMETHEUS: it is not installed; next: make test-tools");
        return;
    }
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let home = dir.path().join("m1");
    let mut manager = one_manager(dir.path(), host(1));
    manager.kill();
    let node = home.join("node.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&node).expect("read")).expect("JSON");
    let metrics = format!("{}:{PORT}", host(1));
    config["metrics"] = metrics.clone().into();
    fs::write(&node, config.to_string()).expect("written");
    let manager = crate::local::Daemon::start(&home);
    wait_until("the manager leads", || (manager.ask(&["status"]).status.code() == Some(0)).then_some(()));
    apply_small(
        &manager,
        dir.path(),
        "version: 1\ninventory: inventory.yml\ngroups: {web: {}}\n",
        "web: {hosts: {m1: }}\n",
    );

    let text = ureq::get(format!("http://{metrics}/metrics")).call().expect("metrics").body_mut().read_to_string();
    let text = text.expect("text");
    let file = dir.path().join("metrics.txt");
    fs::write(&file, &text).expect("written");
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(fs::File::open(&file).expect("opened"));
    let out = check.bounded_output();
    // Exit code 3 is advice about names, 1 is an invalid format.
    assert!(matches!(out.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&out.stderr));

    let mut rules = Command::new("promtool");
    let out = rules.args(["test", "rules"]).arg(path_of_shipped("remoor.rules.test.yml")).bounded_output();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));

    let work = dir.path().join("prometheus");
    fs::create_dir(&work).expect("made");
    fs::copy(path_of_shipped("remoor.rules.yml"), work.join("remoor.rules.yml")).expect("copied");
    let example = fs::read_to_string(path_of_shipped("prometheus.yml")).expect("read");
    let targets = example.find("targets: [").expect("targets");
    let mine = format!("{}targets: ['{metrics}']\n", &example[..targets]).replace("15s", "1s");
    fs::write(work.join("prometheus.yml"), mine).expect("written");
    let prometheus = Prometheus::start(&work, host(2));
    wait_until("Prometheus has scraped the manager", || {
        (prometheus.count_series("up{job=\"remoor\"} == 1")? == 1
            && prometheus.count_series("remoor_leader == 1")? == 1)
            .then_some(())
    });
    for expression in expressions_of_dashboard() {
        prometheus.count_series(&expression).unwrap_or_else(|| panic!("no answer to {expression}"));
    }
    wait_until("the rules are evaluated", || {
        let groups = prometheus.get("rules", &[])?["groups"].as_array()?.clone();
        let rules: Vec<Value> =
            groups.iter().filter_map(|group| group["rules"].as_array()).flatten().cloned().collect();
        (rules.len() > 10 && rules.iter().all(|rule| rule["health"] == "ok")).then_some(())
    });
}

#[test]
fn rules_and_dashboard_name_documented_metrics() {
    let guide = include_str!("../../docs/guides/monitoring.md");
    let documented = metric_names(guide);
    let used =
        expressions_of_dashboard().join(" ") + &fs::read_to_string(path_of_shipped("remoor.rules.yml")).expect("read");
    let unknown: Vec<&str> = metric_names(&used).into_iter().filter(|name| !documented.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
