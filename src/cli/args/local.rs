//! Arguments of the commands that run on this machine: init, join, leave, the daemon, node add,
//! completions, manual pages.

use super::{ConnectionOptions, Output, SOCKET, WaitOptions};
use crate::cli::drivers;
use crate::cli::duration::Span;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

/// Makes a path absolute. A daemon passes its directory to ssh, which accepts no relative path.
pub(super) fn absolute(text: &str) -> Result<PathBuf, std::io::Error> {
    std::path::absolute(text)
}

/// The settings of this machine as a node, for `init` and `join`.
#[derive(Debug, Clone, Args)]
pub struct LocalNodeArgs {
    /// Data directory of the node
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    /// Name of the node, as in the inventory (default: the host name)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Address at which the other nodes reach this one
    #[arg(long, value_name = "IP")]
    pub advertise: IpAddr,
    /// Address to listen on, if it differs from --advertise
    #[arg(long, value_name = "IP")]
    pub bind: Option<IpAddr>,
    /// TCP port of the API
    #[arg(long, value_name = "PORT", default_value_t = 7947)]
    pub api_port: u16,
    /// TCP and UDP port of gossip
    #[arg(long, value_name = "PORT", default_value_t = 7946)]
    pub gossip_port: u16,
    /// Directory with the public host keys of this machine's SSH server
    #[arg(long, value_name = "DIR", default_value = "/etc/ssh")]
    pub ssh_host_keys: PathBuf,
    /// Provision nothing on this machine until `remoor resume`: for a manager without services
    #[arg(long)]
    pub drain: bool,
    /// Zone (failure domain) of this machine, such as a rack or a room
    #[arg(long, value_name = "ZONE", default_value = "", hide_default_value = true, value_parser = drivers::zone_or_none)]
    pub zone: String,
    /// Let the managers log in as USER: adds the cluster's SSH key to the user's authorized_keys
    #[arg(long, value_name = "USER")]
    pub authorize: Option<String>,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub here: LocalNodeArgs,
    /// File with the gossip key (64 hex digits, readable only by its owner), instead of a random
    /// key
    #[arg(long, value_name = "FILE")]
    pub gossip_key_file: Option<PathBuf>,
    /// Archive an existing identity in the data directory and start over
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("secret").args(["token", "token_file"]))]
pub struct JoinArgs {
    /// API address of a manager
    #[arg(value_name = "HOST:PORT")]
    pub addr: String,
    /// Public token (without the secret); the machine then waits for `remoor accept`. Pass a full
    /// token in --token-file or in the variable REMOOR_TOKEN, because other users of this machine
    /// can read the command line
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// File with the token; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Join as a manager; requires the manager token
    #[arg(long)]
    pub manager: bool,
    /// Maximum time to wait for `remoor accept`, with a public token
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub wait: Span,
    #[command(flatten)]
    pub here: LocalNodeArgs,
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Data directory of the node
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    /// Socket for commands on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true)]
    pub socket: PathBuf,
}

#[derive(Debug, Args)]
pub struct LeaveArgs {
    /// Do not ask for confirmation
    #[arg(short, long, help_heading = "Safety")]
    pub yes: bool,
    #[command(flatten)]
    pub waiting: WaitOptions,
    #[command(flatten)]
    pub output: Output,
    /// Socket of the daemon on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true, help_heading = "Connection")]
    pub socket: PathBuf,
}

impl LeaveArgs {
    /// The connection to the daemon of this machine, because only this daemon can leave the
    /// cluster.
    pub fn connection(&self) -> ConnectionOptions {
        ConnectionOptions { socket: self.socket.clone(), ..ConnectionOptions::default() }
    }
}

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Install remoor on machines over SSH and make them nodes
    #[command(
        long_about = "Install remoor on machines over SSH and make them nodes. Run it on a manager. If it was interrupted,
run it again: it continues where it stopped.

Examples:
  remoor node add 10.0.0.14 --name w1
  remoor node add --group web                             hosts of the inventory that are not nodes yet
  remoor node add --all --known-hosts ~/.ssh/known_hosts  8 at a time, without a prompt"
    )]
    Add(NodeAddArgs),
}

#[derive(Debug, Clone, Args)]
pub struct NodeAddArgs {
    /// Name or address of the machine, as for ssh
    #[arg(value_name = "HOST", required_unless_present_any = ["group", "all"])]
    pub host: Option<String>,
    /// Name of the node, as in the inventory (default: HOST)
    #[arg(long, value_name = "NAME", requires = "host")]
    pub name: Option<String>,
    /// Add the hosts of this inventory group that are not nodes yet. With HOST: the group that HOST
    /// must have in the inventory
    #[arg(short, long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Add all hosts of the inventory that are not nodes yet
    #[arg(long, conflicts_with_all = ["host", "group"])]
    pub all: bool,
    /// Join as a manager
    #[arg(long)]
    pub manager: bool,
    /// Zone (failure domain) of the machine, such as a rack or a room (default: unchanged)
    #[arg(long, value_name = "ZONE", default_value = "", hide_default_value = true, value_parser = drivers::zone_or_none)]
    pub zone: String,
    /// User for the SSH login (default: the inventory's, or root)
    #[arg(long, value_name = "USER")]
    pub ssh_user: Option<String>,
    /// SSH port
    #[arg(long, value_name = "PORT")]
    pub ssh_port: Option<u16>,
    /// Private key for the SSH login
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Address at which the other nodes reach the machine (default: the address of HOST)
    #[arg(long, value_name = "IP", requires = "host")]
    pub advertise: Option<IpAddr>,
    /// Expected fingerprint of the SSH host key
    #[arg(long, value_name = "FINGERPRINT", requires = "host", help_heading = "Safety")]
    pub fingerprint: Option<String>,
    /// Trust the host keys in this file (ssh's format). A machine that is not in it is refused
    /// without a prompt
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint", help_heading = "Safety")]
    pub known_hosts: Option<PathBuf>,
    /// Socket of the daemon on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true, help_heading = "Connection")]
    pub socket: PathBuf,
}

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// `-`: use standard input and output
    #[arg(value_name = "-", value_parser = ["-"])]
    pub stdio: String,
    /// Directory of the executor for its fence, backups and logs
    #[arg(long, hide = true, value_name = "DIR", default_value = remoor_exec::STATE_DIR)]
    pub state_dir: PathBuf,
    /// Resolve relative paths in tasks in the working directory
    #[arg(long, hide = true)]
    pub relative_paths: bool,
}

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The kind of file that the schema describes
    #[arg(value_name = "KIND")]
    pub kind: SchemaKind,
}

/// A kind of file that has a schema.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum SchemaKind {
    /// Check files
    Checks,
    /// remoor.yml
    Fleet,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to generate the script for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory for the pages; created if missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
