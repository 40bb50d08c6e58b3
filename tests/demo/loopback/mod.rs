//! Five hosts without root: ordinary processes of this user on one machine. Each host has its own
//! address, directory tree, SSH server, agent and real services. All hosts share the kernel, its
//! boot id and the user. Nothing outside the base directory is written, and only processes that the
//! hosts started are ever ended.
//!
//! ```text
//!   demo ── ground (relay) ─┬─ host m1 ─┬─ sshd ── executor ── playbook
//!                           │           ├─ remoor agent
//!                           ├─ host m2  ├─ etcd     (orphans are adopted by their host)
//!                           ..          └─ nginx
//! ```

pub mod ground;
mod host;
pub mod place;
mod relay;
mod tree;

use crate::lab::five::{HOSTS, MASTERS, built_program};
use crate::lab::tool::{Output, run, wait_for};
use crate::world::{PATIENCE, World, ask, status, wait};
use anyhow::{Context, Result};
use ground::BaseProcess;
use place::{API, GOSSIP, Place, Programs};
use serde_json::Value;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// The fleet of these hosts. It is compiled into the program, because the user of the demo possibly
/// can't read the source.
const FLEET: &[(&str, &str)] = &[
    ("remoor.yml", include_str!("../../fleets/loopback/remoor.yml")),
    ("playbooks/provision.yml", include_str!("../../fleets/loopback/playbooks/provision.yml")),
    ("playbooks/cleanup.yml", include_str!("../../fleets/loopback/playbooks/cleanup.yml")),
    ("checks/etcd.yml", include_str!("../../fleets/loopback/checks/etcd.yml")),
    ("checks/nginx.yml", include_str!("../../fleets/loopback/checks/nginx.yml")),
    ("templates/etcd.tera", include_str!("../../fleets/loopback/templates/etcd.tera")),
    ("templates/nginx.tera", include_str!("../../fleets/loopback/templates/nginx.tera")),
    ("templates/nginx.conf.j2", include_str!("../../fleets/loopback/templates/nginx.conf.j2")),
];
const INVENTORY: &str = include_str!("../../fleets/loopback/inventory.yml");

/// Running hosts. They end when this value is dropped.
pub struct Loopback {
    ground: BaseProcess,
    programs: Programs,
    user: String,
}

impl Loopback {
    /// The text about the hosts in the first line of the demo.
    pub fn describe() -> Result<String> {
        Ok(format!("loopback hosts, ordinary processes of {} with an sshd each", user()?))
    }

    /// Starts the hosts, and waits until the sshd of each host answers.
    pub fn start() -> Result<Loopback> {
        let (programs, user) = (Programs::find()?, user()?);
        let hosts = Loopback { ground: BaseProcess::begin()?, programs, user };
        for host in HOSTS {
            let at = hosts.place().front_socket(host, place::SSH);
            let answers = || {
                let mut banner = [0; 4];
                let mut stream = TcpStream::connect(at).ok()?;
                stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
                stream.read_exact(&mut banner).ok()?;
                (&banner == b"SSH-").then_some(())
            };
            wait_for(&format!("sshd of {host}"), PATIENCE, answers).map_err(|e| hosts.explain(e, host, "sshd"))?;
        }
        Ok(hosts)
    }

    fn place(&self) -> &Place {
        &self.ground.place
    }

    fn explain(&self, error: anyhow::Error, host: &str, log: &str) -> anyhow::Error {
        let log = self.place().dir(host).join(format!("log/{log}.log"));
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let from = text.len().saturating_sub(2000);
        error.context(format!("{} ends: {}", log.display(), text.get(from..).unwrap_or_default()))
    }

    fn join(&self, host: &str, words: &[&str]) -> Result<String> {
        let place = self.place();
        let (front, back, keys) =
            (place.front_address(host).to_string(), place.back_address(host).to_string(), place.dir(host).join("ssh"));
        let (api, gossip) = (API.to_string(), GOSSIP.to_string());
        let keys = keys.to_str().context("a path in UTF-8")?;
        let here = [
            "--name",
            host,
            "--advertise",
            &front,
            "--bind",
            &back,
            "--api-port",
            &api,
            "--gossip-port",
            &gossip,
            "--ssh-host-keys",
            keys,
        ];
        let output = self.remoor(host, &[words, &here[..]].concat())?;
        Ok(output.require_success(&format!("remoor {} on {host}", words[0]))?.text())
    }

    fn write_fleet(&self, dir: &Path) -> Result<()> {
        let path = |path: &Path| path.display().to_string();
        let place = self.place();
        let inventory = INVENTORY
            .replace("ansible_user: demo", &format!("ansible_user: {}", self.user))
            .replace("/tmp/remoor-demo", &path(&place.base))
            .replace("127.77.1.", &format!("127.77.{}.", place.net))
            .replace("/usr/bin/etcd", &path(&self.programs.etcd))
            .replace("/usr/sbin/nginx", &path(&self.programs.nginx));
        for (name, text) in FLEET.iter().copied().chain([("inventory.yml", inventory.as_str())]) {
            let to = dir.join(name);
            std::fs::create_dir_all(to.parent().context("a path within the fleet")?)?;
            std::fs::write(to, text)?;
        }
        Ok(())
    }

    fn agent_pid(&self, host: &str) -> Result<i32> {
        let lock = self.place().data(host).join("lock");
        std::fs::read_to_string(lock)?.trim().parse().context("the agent's process id")
    }
}

impl World for Loopback {
    fn form(&mut self) -> Result<()> {
        let made: Value =
            serde_json::from_str(&self.join("m1", &["init", "-o", "json"])?).context("the output of init")?;
        wait_for("m1 to lead", PATIENCE, || status(self).ok()).map_err(|e| self.explain(e, "m1", "remoor"))?;
        let addr = self.place().front_socket("m1", API).to_string();
        for host in &HOSTS[1..] {
            let manager = MASTERS.contains(host);
            let token = made[if manager { "manager_token" } else { "worker_token" }].as_str().context("a token")?;
            let file = self.place().dir(host).join("token");
            std::fs::write(&file, token)?;
            let mut words = vec!["join", &addr, "--token-file", file.to_str().context("a path in UTF-8")?];
            words.extend(manager.then_some("--manager"));
            self.join(host, &words)?;
            std::fs::remove_file(&file)?;
        }
        wait(self, "all to be seen, three of them voters", |status| {
            let nodes = status["nodes"].as_array()?;
            let alive = nodes.iter().filter(|n| n["presence"] == "alive").count();
            let voters = nodes.iter().filter(|n| matches!(n["manager"].as_str(), Some("leader" | "voter"))).count();
            (alive == 5 && voters == 3).then_some(())
        })
    }

    fn apply(&self) -> Result<()> {
        let dir = self.place().dir("m1").join("fleet");
        self.write_fleet(&dir)?;
        ask(self, "m1", &["apply", dir.to_str().context("a path in UTF-8")?])?.require_success("remoor apply").map(drop)
    }

    fn introduce(&self) -> Result<Vec<String>> {
        let place = self.place();
        let line = |host| format!("{host} {:<13} {}", place.front_address(host), place.dir(host).display());
        Ok(HOSTS.into_iter().map(line).collect())
    }

    fn remoor(&self, host: &str, argv: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.programs.remoor);
        command.env("REMOOR_DIR", self.place().data(host)).env("REMOOR_SOCKET", self.place().socket(host));
        command.env("PATH", place::search_path()).args(argv);
        run(command, None, COMMAND_LIMIT)
    }

    fn console(&self, host: &str, script: &str) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.place().dir(host));
        run(command, None, COMMAND_LIMIT)?.require_success(script).map(drop)
    }

    fn cut(&self, host: &str) -> Result<()> {
        self.ground.cut(host, true)
    }

    fn heal(&self, host: &str) -> Result<()> {
        self.ground.cut(host, false)
    }

    fn wait_isolated(&self, host: &str) -> Result<()> {
        wait_for(&format!("{host} to notice that it is alone"), PATIENCE, || {
            let record = std::fs::read(self.place().data(host).join("agent.json")).ok()?;
            let record: Value = serde_json::from_slice(&record).ok()?;
            let episode = &record["last_isolation"];
            (!episode.is_null() && episode["to"].is_null()).then_some(())
        })
    }

    fn mischief(&self, occasion: usize) -> String {
        format!("sed -i 's/connections 512/connections {}/' etc/nginx/nginx.conf", [9, 7][occasion % 2])
    }

    fn kill_agent(&self, host: &str) -> Result<()> {
        let pid = self.agent_pid(host)?;
        let pid = rustix::process::Pid::from_raw(pid).context("a process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).context("killing the agent")
    }

    fn nginx_pid(&self, host: &str) -> Result<u32> {
        std::fs::read_to_string(self.place().dir(host).join("run/nginx.pid"))?.trim().parse().context("a process id")
    }

    fn runs(&self, host: &str) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(self.place().dir(host).join("log/runs.log"))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn save_logs(&self) -> Result<PathBuf> {
        let to = built_program("remoor")?.with_file_name("loopback-logs");
        std::fs::create_dir_all(&to)?;
        for host in HOSTS {
            for log in std::fs::read_dir(self.place().dir(host).join("log"))?.flatten() {
                std::fs::copy(log.path(), to.join(format!("{host}-{}", log.file_name().to_string_lossy())))?;
            }
        }
        Ok(to)
    }

    fn keep(self: Box<Self>) -> Result<String> {
        let (place, demo) = (self.place().clone(), std::env::current_exe()?);
        let (base, demo, remoor) = (place.base.display(), demo.display(), self.programs.remoor.display());
        let text = format!(
            "remoor on m1:       REMOOR_SOCKET={} {remoor} status\n\
             a shell on a host:  ssh -F {base}/ssh_config w1    (its files: {base}/w1, its services: ./ctl there)\n\
             disconnect w1:      {demo} cut w1\nreconnect w1:       {demo} heal w1\n",
            place.socket("m1").display()
        );
        self.ground.keep()?;
        Ok(text)
    }

    fn end(self: Box<Self>) -> Result<()> {
        self.ground.end()
    }
}

/// The name of this user. The hosts accept logins with this name.
fn user() -> Result<String> {
    let mut command = Command::new("id");
    command.arg("-un");
    let output = run(command, None, COMMAND_LIMIT)?;
    Ok(output.require_success("this user has no name, and sshd rejects such users: id -un")?.text())
}
