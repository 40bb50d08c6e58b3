//! The only place where the command line calls what runs on this machine: the daemon, the executor, the fleet's checks.

use super::args::NodeAddArgs;
use super::error::Stop;
use super::exit::Exit;
use crate::model::Fault;
use std::path::{Path, PathBuf};

pub struct InitOptions {
    pub dir: PathBuf,
    pub name: String,
    /// An IP address, without port.
    pub advertise: String,
    pub api_port: u16,
    pub gossip_port: u16,
    pub force: bool,
}

pub struct InitDone {
    pub worker_token: String,
    pub manager_token: String,
    pub operator_credentials: PathBuf,
}

pub struct JoinOptions {
    pub dir: PathBuf,
    pub name: String,
    /// An IP address, without port.
    pub advertise: String,
    pub api_port: u16,
    pub gossip_port: u16,
    /// API of a manager, host and port.
    pub addr: String,
    pub token: String,
    pub manager: bool,
}

pub struct RunOptions {
    pub dir: PathBuf,
    pub socket: PathBuf,
}

/// Starts a cluster in `dir`.
pub fn init(options: InitOptions) -> anyhow::Result<InitDone> {
    Err(absent(&format!("init of {} in {}", options.name, options.dir.display())))
}

/// Makes this machine a node of the cluster behind `addr`.
pub fn join(options: JoinOptions) -> anyhow::Result<()> {
    Err(absent(&format!("join of {} at {}", options.name, options.addr)))
}

/// The daemon; returns when it was told to stop.
pub fn run(options: RunOptions) -> anyhow::Result<()> {
    Err(absent(&format!("the agent in {}", options.dir.display())))
}

/// Serves one session on standard input and output.
pub fn exec() -> anyhow::Result<std::process::ExitCode> {
    Err(absent("the executor"))
}

/// Installs remoor on a machine and makes it a node.
pub fn node_add(args: &NodeAddArgs) -> anyhow::Result<()> {
    Err(absent(&format!("node add {}", args.host)))
}

/// Every fault of a fleet directory, warnings too.
pub fn lint(dir: &Path) -> Vec<Fault> {
    vec![Fault::error(&dir.display().to_string(), 0, 0, "this build can't read fleets")]
}

/// The fleet as `/v1/apply` takes it.
pub fn pack(dir: &Path) -> Result<Vec<u8>, Vec<Fault>> {
    Err(lint(dir))
}

fn absent(what: &str) -> anyhow::Error {
    Stop::new(Exit::Failed, format!("{what}: this build has no daemon in it")).into()
}
