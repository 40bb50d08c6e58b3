//! Three members of Debian's etcd on this machine, as `tests/tools.sh test` installs it.

use crate::load::{Http, Request, Target};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;

pub struct Etcd {
    members: Vec<Child>,
    ports: Vec<u16>,
}

impl Etcd {
    /// The path of the etcd program. None: etcd is not installed.
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var("PATH").unwrap_or_default();
        path.split(':').map(|dir| Path::new(dir).join("etcd")).find(|file| file.is_file())
    }

    pub fn start(program: &Path, dir: &Path) -> Result<Self> {
        // All ports are held open at the same time, so that no port is chosen twice.
        let held = (0..2 * MEMBERS).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
        let ports = held.iter().map(|l| Ok(l.local_addr()?.port())).collect::<std::io::Result<Vec<u16>>>()?;
        drop(held);
        let (clients, peers) = ports.split_at(MEMBERS);
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> = (0..MEMBERS).map(|at| format!("e{at}={}", url(&peers[at]))).collect();
        let mut etcd = Self { members: Vec::new(), ports: clients.to_vec() };
        for at in 0..MEMBERS {
            let name = format!("e{at}");
            let log = File::create(dir.join(format!("{name}.log")))?;
            let member = Command::new(program)
                .args(["--name", &name, "--logger", "zap", "--log-level", "error", "--enable-v2"])
                .args(["--listen-client-urls", &url(&clients[at]), "--advertise-client-urls", &url(&clients[at])])
                .args(["--listen-peer-urls", &url(&peers[at]), "--initial-advertise-peer-urls", &url(&peers[at])])
                .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new", "--data-dir"])
                .arg(dir.join(&name))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .context("starting etcd")?;
            etcd.members.push(member);
        }
        Ok(etcd)
    }

    /// The leading member. Waits until a member leads.
    pub async fn leader(&self) -> Result<Target> {
        let status = Request::json("POST", "/v3/maintenance/status", "{}");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            for port in &self.ports {
                let target = Target::Tcp(*port);
                let Ok(mut http) = Http::connect(&target).await else { continue };
                let Ok(body) = http.ask(&status).await else { continue };
                let status: Value = serde_json::from_slice(&body)?;
                if status["leader"].is_string() && status["leader"] == status["header"]["member_id"] {
                    return Ok(target);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("etcd has no leader")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill(); // it may have ended already
            let _ = member.wait();
        }
    }
}
