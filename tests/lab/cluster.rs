//! A remoor cluster on the lab's hosts: three managers and two workers, with the fleet of five
//! applied and commissioned. All actions use the command line, as an operator does.

use super::{Lab, five, wait_for};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Timeout of a step of a test. No step takes longer, even on a busy machine, so the timeout only
/// ends hangs.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Number of lines of each daemon's log in a report, for readers without access to the machine.
const LINES_TOLD: usize = 60;
const CHARS_TOLD: usize = 240;
const FLEET: &str = "/root/fleet";

/// A lab whose hosts run remoor.
pub struct Cluster {
    pub lab: Lab,
}

impl Cluster {
    /// Installs remoor, makes m1 a cluster of one, lets the other hosts join, and waits until all
    /// nodes are alive.
    pub fn create(lab: Lab) -> Result<Cluster> {
        let cluster = Cluster { lab };
        match cluster.form() {
            Ok(()) => Ok(cluster),
            Err(error) => {
                cluster.save_logs("up")?;
                Err(error)
            }
        }
    }

    /// Copies the log of each daemon into the build directory, for the analysis of a failure.
    pub fn save_logs(&self, why: &str) -> Result<()> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hosts");
        std::fs::create_dir_all(&dir)?;
        for host in five::HOSTS {
            let log =
                self.lab.exec(host, &["journalctl", "-u", "remoor", "-n", "2000", "--no-pager", "-o", "short-precise"]);
            let text = log.map(|o| o.text()).unwrap_or_default();
            std::fs::write(dir.join(format!("{}-{host}.log", why.replace([' ', ','], "_"))), text)?;
        }
        eprintln!("the daemons' logs are in {}", dir.display());
        Ok(())
    }

    fn form(&self) -> Result<()> {
        let cluster = self;
        let remoor = five::built_program("remoor")?;
        std::thread::scope(|scope| -> Result<()> {
            let install = |host: &'static str| {
                let (lab, remoor) = (&self.lab, &remoor);
                scope.spawn(move || match lab.exec(host, &["test", "-x", five::REMOOR]) {
                    Ok(output) if output.ok() => five::install_unit(lab, host),
                    _ => five::install_agent(lab, host, remoor),
                })
            };
            let all: Vec<_> = five::HOSTS.into_iter().map(install).collect();
            all.into_iter().try_for_each(|one| one.join().expect("no installer panics"))
        })?;
        let ip = |host: &str| cluster.lab.host(host).ip.to_string();
        let made = cluster.run_successfully("m1", &["init", "--name", "m1", "--advertise", &ip("m1"), "-o", "json"])?;
        let made: Value = serde_json::from_str(&made).context("the output of init")?;
        cluster.start("m1")?;
        wait_for("m1 to lead", PATIENCE, || cluster.status().ok())?;
        for host in &five::HOSTS[1..] {
            let manager = five::MASTERS.contains(host);
            let token = made[if manager { "manager_token" } else { "worker_token" }].as_str().context("a token")?;
            cluster.lab.push(host, token.as_bytes(), "/root/token", 0o600)?;
            let (addr, address) = (format!("{}:7947", ip("m1")), ip(host));
            let mut argv = vec!["join", &addr, "--token-file", "/root/token", "--name", host, "--advertise", &address];
            if manager {
                argv.push("--manager");
            }
            cluster.run_successfully(host, &argv)?;
            cluster.lab.shell(host, "rm /root/token")?;
            cluster.start(host)?;
        }
        cluster.wait("all to be seen, three of them voters", |status| {
            let nodes = status["nodes"].as_array()?;
            let alive = nodes.iter().filter(|n| n["presence"] == "alive").count();
            let voters = nodes.iter().filter(|n| matches!(n["manager"].as_str(), Some("leader" | "voter"))).count();
            (alive == 5 && voters == 3).then_some(())
        })
    }

    fn start(&self, host: &str) -> Result<()> {
        self.lab.shell(host, "systemctl enable --now remoor 2>&1").map(drop)
    }

    /// Runs `remoor` on a host's console and returns its standard output. The error contains the
    /// messages of the command.
    pub fn run_successfully(&self, host: &str, argv: &[&str]) -> Result<String> {
        let output = self.run_with_retry(host, argv)?;
        output.require_success(&format!("remoor {} on {host}", argv.join(" "))).map(|o| o.text())
    }

    /// Runs `remoor` on a host's console and returns its output with the exit code. If an election
    /// prevented the command, it is repeated once after the election. The output of a prevented
    /// command says that nothing was changed, that the query must be repeated, or that the answer
    /// is stale.
    pub fn run_with_retry(&self, host: &str, argv: &[&str]) -> Result<super::Output> {
        let output = self.run(host, argv)?;
        let text = String::from_utf8_lossy(&output.stderr);
        let again = ["nothing was changed", "ask again", "STALE: no quorum"].iter().any(|word| text.contains(word));
        if output.code != 3 || !again {
            return Ok(output);
        }
        self.wait("the election to be over", |s| s["as_of"]["leader"].as_str().map(drop))?;
        self.run(host, argv)
    }

    /// Runs `remoor` once on a host's console and returns its output with the exit code.
    pub fn run(&self, host: &str, argv: &[&str]) -> Result<super::Output> {
        self.lab.exec(host, &[&[five::REMOOR], argv].concat())
    }

    /// The output of the first manager that answers with exit code 0.
    pub fn ask(&self, argv: &[&str]) -> Result<String> {
        let mut message = String::new();
        for host in five::MASTERS {
            let output = self.run(host, argv)?;
            if output.ok() {
                return Ok(output.text());
            }
            message = String::from_utf8_lossy(&output.stderr).into_owned();
        }
        bail!("no manager answers: {message}")
    }

    /// `remoor status -o json` of the first manager that answers with a leader.
    pub fn status(&self) -> Result<Value> {
        serde_json::from_str(&self.ask(&["status", "-o", "json"])?).context("the output of status")
    }

    /// Repeats the status query until `ask` returns a value.
    pub fn wait<T>(&self, what: &str, mut ask: impl FnMut(&Value) -> Option<T>) -> Result<T> {
        let mut last = Value::Null;
        wait_for(what, PATIENCE, || {
            last = self.status().ok()?;
            ask(&last)
        })
        .with_context(|| format!("the last status: {last}"))
    }

    /// Applies the fleet. `edit` may change its files.
    pub fn apply(&self, edit: impl FnMut(&str, String) -> String) -> Result<()> {
        let dir = tempfile::tempdir()?;
        five::write(dir.path(), &five::hosts(&self.lab), edit)?;
        self.lab.shell("m1", &format!("rm -rf {FLEET}"))?;
        self.push_dir("m1", dir.path(), FLEET)?;
        self.run_successfully("m1", &["apply", FLEET]).map(drop)
    }

    fn push_dir(&self, host: &str, from: &Path, to: &str) -> Result<()> {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let dest = format!("{to}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.push_dir(host, &entry.path(), &dest)?;
            } else {
                self.lab.push(host, &std::fs::read(entry.path())?, &dest, 0o644)?;
            }
        }
        Ok(())
    }

    /// Commissions all five nodes, and waits until each is as desired.
    pub fn commission(&self) -> Result<()> {
        for host in five::HOSTS {
            self.run_successfully("m1", &["commission", host, "--detach"])?;
        }
        self.wait("all to be commissioned", |status| {
            let nodes = status["nodes"].as_array()?;
            nodes.iter().all(|n| n["lifecycle"] == "commissioned" && n["job"].is_null()).then_some(())
        })
    }

    /// Waits until every node is alive, commissioned and as desired, three managers are voters, and
    /// no job is open, requested or held. The condition `flapping` of a node is ignored.
    pub fn wait_quiet(&self) -> Result<()> {
        let open =
            ["examining", "settling", "waiting", "blocked", "resetup", "held", "maintenance", "host-key-changed"];
        let fine = |n: &Value| {
            let conditions = n["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            n["presence"] == "alive"
                && n["lifecycle"] == "commissioned"
                && n["job"].is_null()
                && n["outdated"] == false
                && n["failed"].is_null()
                && (n["finding"].is_null() || n["finding"]["verdict"]["is"] == "same")
                && !conditions.iter().any(|one| open.iter().any(|word| one["is"] == *word))
        };
        self.wait("a quiet fleet", |status| {
            let nodes = status["nodes"].as_array()?;
            let voters = nodes.iter().filter(|n| matches!(n["manager"].as_str(), Some("leader" | "voter"))).count();
            (nodes.len() == 5 && voters == 3 && status["breaker"].is_null() && nodes.iter().all(fine)).then_some(())
        })
    }

    /// Everything that a reader without access to this machine needs to understand a failure: the
    /// output of `remoor status` and `remoor why`, and the end of each daemon's log.
    pub fn describe(&self) -> String {
        let answer = |argv: &[&str]| self.ask(argv).unwrap_or_else(|e| format!("{e:#}"));
        let mut description = format!("--- status\n{}\n", answer(&["status"]));
        for host in five::HOSTS {
            description += &format!("--- why {host}\n{}\n", answer(&["why", host]));
        }
        let lines = LINES_TOLD.to_string();
        for host in five::HOSTS {
            let log = self.lab.exec(host, &["journalctl", "-u", "remoor", "-n", &lines, "--no-pager", "-o", "cat"]);
            let log = log.map_or_else(|e| format!("{e:#}"), |o| o.text());
            description += &format!("--- log of {host}\n");
            log.lines().for_each(|line| description.extend(line.chars().take(CHARS_TOLD).chain(['\n'])));
        }
        description
    }

    /// A node's row of the current status.
    pub fn node(&self, name: &str) -> Result<Value> {
        let status = self.status()?;
        row(&status, name).cloned().with_context(|| format!("no node {name} in the status"))
    }

    /// The name of the leader.
    pub fn leader(&self) -> Result<String> {
        self.status()?["as_of"]["leader"].as_str().map(str::to_owned).context("no leader")
    }

    /// The journal of one node, oldest event first.
    pub fn history(&self, node: &str) -> Result<Vec<Value>> {
        let text = self.ask(&["history", node, "-o", "json"])?;
        let view: Value = serde_json::from_str(&text)?;
        Ok(view["items"].as_array().cloned().unwrap_or_default())
    }

    /// The verdicts on a node's absences with their causes and remedies, oldest first.
    pub fn verdicts(&self, node: &str) -> Result<Vec<Value>> {
        let items = self.history(node)?;
        let concluded = items.into_iter().filter(|i| i["what"] == "concluded").map(|i| i["finding"].clone());
        Ok(concluded.filter(|f| !f["absence"].is_null()).collect())
    }

    /// Waits for the verdict on absence `no` of a node.
    pub fn verdict(&self, node: &str, no: u64) -> Result<Value> {
        wait_for(&format!("the verdict on absence {no} of {node}"), PATIENCE, || {
            self.verdicts(node).ok()?.into_iter().find(|f| f["absence"] == no)
        })
        .with_context(|| format!("{node}: {}", self.node(node).unwrap_or_default()))
    }

    /// The playbook runs on the host after the first `before` lines of its log, in their order.
    /// Each is (phase, service).
    pub fn ran_since(&self, host: &str, before: usize) -> Result<Vec<(String, String)>> {
        let runs = five::runs(&self.lab, host)?;
        ensure!(runs.len() >= before, "the log of runs of {host} became shorter");
        Ok(runs[before..].iter().map(|r| (r.phase.clone(), r.service.clone())).collect())
    }
}

/// A node's row in a status.
pub fn row<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["nodes"].as_array()?.iter().find(|n| n["name"] == name)
}

impl Lab {
    /// Waits until the agent of an isolated host has noticed that it has no peers.
    pub fn wait_isolated(&self, host: &str) -> Result<()> {
        wait_for(&format!("{host} to notice that it is alone"), PATIENCE, || {
            let record: Value = serde_json::from_slice(&self.read(host, "/var/lib/remoor/agent.json").ok()?).ok()?;
            let episode = &record["last_isolation"];
            (!episode.is_null() && episode["to"].is_null()).then_some(())
        })
    }
}
