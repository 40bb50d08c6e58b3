//! Real hosts: systemd-nspawn containers of the tests' lab. They need root.

use super::guard::Guard;
use super::world::World;
use crate::lab::cluster::Cluster;
use crate::lab::tool::Output;
use crate::lab::{Host, Lab, five};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::{Path, PathBuf};

/// Running hosts. If `cluster` is set, remoor runs on them.
pub struct Real {
    lab: Option<Lab>,
    cluster: Option<Cluster>,
    guard: Guard,
}

impl Real {
    pub fn start(name: &str) -> Result<Real> {
        let guard = Guard::post()?;
        Ok(Real { lab: Some(five::start(name)?), cluster: None, guard })
    }

    fn lab(&self) -> Result<&Lab> {
        self.lab.as_ref().or(self.cluster.as_ref().map(|cluster| &cluster.lab)).context("the lab is up")
    }

    fn cluster(&self) -> Result<&Cluster> {
        self.cluster.as_ref().context("remoor is on the hosts")
    }
}

impl World for Real {
    fn form(&mut self) -> Result<()> {
        let lab = self.lab.take().context("remoor is put on the hosts once")?;
        self.cluster = Some(Cluster::create(lab)?);
        Ok(())
    }

    fn apply(&self) -> Result<()> {
        self.cluster()?.apply(limits)
    }

    fn introduce(&self) -> Result<Vec<String>> {
        let lab = self.lab()?;
        let line = |host: Host| Ok(format!("{} {:<13} boot {}", host.name, host.ip, lab.boot_id(&host.name)?));
        five::hosts(lab).into_iter().map(line).collect()
    }

    fn remoor(&self, host: &str, argv: &[&str]) -> Result<Output> {
        self.cluster()?.run(host, argv)
    }

    fn console(&self, host: &str, script: &str) -> Result<()> {
        self.lab()?.shell(host, script).map(drop)
    }

    fn cut(&self, host: &str) -> Result<()> {
        self.lab()?.cut(host)
    }

    fn heal(&self, host: &str) -> Result<()> {
        self.lab()?.heal_host(host)
    }

    fn wait_isolated(&self, host: &str) -> Result<()> {
        self.lab()?.wait_isolated(host)
    }

    fn mischief(&self, occasion: usize) -> String {
        format!("sed -i s/eth0/{}/ /etc/default/netplugin", ["eth9", "eth7"][occasion % 2])
    }

    fn kill_agent(&self, host: &str) -> Result<()> {
        self.lab()?.kill(host, "remoor", Signal::KILL).map(drop)
    }

    fn nginx_pid(&self, host: &str) -> Result<u32> {
        five::main_pid(self.lab()?, host, "nginx.service")
    }

    fn runs(&self, host: &str) -> Result<Vec<String>> {
        let text = self.lab()?.read(host, five::RUNS)?;
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }

    fn save_logs(&self) -> Result<PathBuf> {
        self.cluster()?.save_logs("demo")?;
        Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/hosts"))
    }

    fn keep(self: Box<Self>) -> Result<String> {
        let lab = self.cluster.map(|cluster| cluster.lab).or(self.lab).context("the lab is up")?;
        let text = lab.keep();
        self.guard.keep()?;
        Ok(format!("{text}then, on m1:        remoor status\n"))
    }

    fn end(self: Box<Self>) -> Result<()> {
        drop((self.cluster, self.lab));
        self.guard.end()
    }
}

/// The fleet with the default limits, except that a new leader waits only five seconds instead of a
/// minute before it repairs nodes.
fn limits(path: &str, text: String) -> String {
    if path == "remoor.yml" { format!("{text}\nlimits: {{leader-grace: 5s}}\n") } else { text }
}
