//! Arguments of what runs on this machine without asking a manager.

use super::{Connection, Output, SOCKET};
use crate::cli::drivers;
use crate::cli::duration::Span;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

/// A daemon hands its directory to ssh, which takes absolute paths only.
pub(super) fn absolute(text: &str) -> Result<PathBuf, std::io::Error> {
    std::path::absolute(text)
}

/// What a machine needs to know of itself to be a node.
#[derive(Debug, Clone, Args)]
pub struct Here {
    /// Where the node keeps its identity and state
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    /// Name of the node, as in the inventory; the machine's host name if left out
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Address at which the other nodes reach this one
    #[arg(long, value_name = "IP")]
    pub advertise: IpAddr,
    /// Address to listen on, if it is not the one that the others dial
    #[arg(long, value_name = "IP")]
    pub bind: Option<IpAddr>,
    /// TCP port of the API
    #[arg(long, value_name = "PORT", default_value_t = 7947)]
    pub api_port: u16,
    /// TCP and UDP port of gossip
    #[arg(long, value_name = "PORT", default_value_t = 7946)]
    pub gossip_port: u16,
    /// Where the public host keys of this machine's SSH server are
    #[arg(long, value_name = "DIR", default_value = "/etc/ssh")]
    pub ssh_host_keys: PathBuf,
    /// Nothing is ever provisioned on it, until `remoor resume`: a machine that only manages
    #[arg(long)]
    pub drain: bool,
    /// What fails together with it, a rack or a room: managers are to stand in several
    #[arg(long, value_name = "ZONE", default_value = "", hide_default_value = true, value_parser = drivers::zone_or_none)]
    pub zone: String,
    /// Let the managers log in here as USER: adds the cluster's SSH key to its authorized_keys
    #[arg(long, value_name = "USER")]
    pub authorize: Option<String>,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub here: Here,
    /// File with the gossip key, 64 hex digits, instead of a new random one; others may not read it
    #[arg(long, value_name = "FILE")]
    pub gossip_key_file: Option<PathBuf>,
    /// Also where the directory holds another identity, which is moved aside
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("secret").args(["token", "token_file"]))]
pub struct JoinArgs {
    /// API of a manager
    #[arg(value_name = "HOST:PORT")]
    pub addr: String,
    /// The part of the token that is no secret, to wait for `remoor accept`; a whole one here can be read by other users of this
    /// machine while the command runs. A whole one belongs into --token-file, or into the variable REMOOR_TOKEN
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// File with the token; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Join as a manager; needs the manager token
    #[arg(long)]
    pub manager: bool,
    /// How long to wait for `remoor accept`, where the token has no secret
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub wait: Span,
    #[command(flatten)]
    pub here: Here,
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Where the node keeps its identity and state
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    /// Socket for the commands of this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true)]
    pub socket: PathBuf,
}

#[derive(Debug, Args)]
pub struct LeaveArgs {
    /// Don't ask
    #[arg(short, long, help_heading = "Safety")]
    pub yes: bool,
    /// Follow until the daemon has parked, as is done if nothing is said
    #[arg(long)]
    pub wait: bool,
    /// Don't follow
    #[arg(long, conflicts_with_all = ["wait", "timeout"])]
    pub no_wait: bool,
    /// How long to follow
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub timeout: Span,
    #[command(flatten)]
    pub output: Output,
    /// Socket of the daemon on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true, help_heading = "Connection")]
    pub socket: PathBuf,
}

impl LeaveArgs {
    /// Nobody but this machine's own daemon.
    pub fn connection(&self) -> Connection {
        Connection { socket: self.socket.clone(), ..Connection::default() }
    }
}

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Install remoor on machines over SSH and make them nodes
    #[command(
        long_about = "Install remoor on machines over SSH and make them nodes, from a manager. Goes on where an earlier one ended.

Examples:
  remoor node add 10.0.0.14 --name w1
  remoor node add --group web                             the hosts of the applied inventory that are no nodes yet
  remoor node add --all --known-hosts ~/.ssh/known_hosts  8 at a time, without a question"
    )]
    Add(NodeAddArgs),
}

#[derive(Debug, Clone, Args)]
pub struct NodeAddArgs {
    /// Name or address, as ssh knows it
    #[arg(value_name = "HOST", required_unless_present_any = ["group", "all"])]
    pub host: Option<String>,
    /// Name of the node, as in the inventory; HOST if left out
    #[arg(long, value_name = "NAME", requires = "host")]
    pub name: Option<String>,
    /// Without HOST: the hosts of this group of the applied inventory that are no nodes yet. With it: compared with the inventory
    #[arg(short, long, value_name = "GROUP")]
    pub group: Option<String>,
    /// All hosts of the applied inventory that are no nodes yet
    #[arg(long, conflicts_with_all = ["host", "group"])]
    pub all: bool,
    /// Join as a manager
    #[arg(long)]
    pub manager: bool,
    /// What fails together with it, a rack or a room; the zone stays as it was if left out
    #[arg(long, value_name = "ZONE", default_value = "", hide_default_value = true, value_parser = drivers::zone_or_none)]
    pub zone: String,
    /// User to log in as; if left out, the inventory's, or root
    #[arg(long, value_name = "USER")]
    pub ssh_user: Option<String>,
    /// Port of sshd
    #[arg(long, value_name = "PORT")]
    pub ssh_port: Option<u16>,
    /// Private key for the login
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Address at which the other nodes reach it; HOST's if left out
    #[arg(long, value_name = "IP", requires = "host")]
    pub advertise: Option<IpAddr>,
    /// Fingerprint of the host key that the machine must show
    #[arg(long, value_name = "FINGERPRINT", requires = "host", help_heading = "Safety")]
    pub fingerprint: Option<String>,
    /// Believe the host keys that this file has, as ssh writes it; who is not in it is refused, and nobody is asked
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint", help_heading = "Safety")]
    pub known_hosts: Option<PathBuf>,
    /// Socket of the daemon on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true, help_heading = "Connection")]
    pub socket: PathBuf,
}

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// `-`: standard input and output
    #[arg(value_name = "-", value_parser = ["-"])]
    pub stdio: String,
    /// Where the executor keeps its fence, backups and logs
    #[arg(long, hide = true, value_name = "DIR", default_value = crate::exec::STATE_DIR)]
    pub state_dir: PathBuf,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Made if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}
