//! Arguments of the commands that change nodes, and of the commands for the fleet directory.

use super::{ConnectionOptions, FollowOptions, NodeSelection, Output, VaultArgs, WaitOptions};
use crate::cli::drivers;
use crate::cli::duration::Span;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ResetupArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    /// Only this service and the services that depend on it (repeatable)
    #[arg(short, long, value_name = "SERVICE")]
    pub service: Vec<String>,
    /// Variable for these jobs only; overrides the fleet's. VALUE is YAML (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = drivers::extra_var, conflicts_with = "service")]
    pub extra_vars: Vec<(String, serde_json::Value)>,
    /// Show what would be done and what prevents it; nothing is run
    #[arg(long, conflicts_with_all = ["detach", "no_queue"])]
    pub check: bool,
    /// Set up even if nothing drifted or only the agent is down
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Ignore hold, maintenance window and settle time; fencing and quorum rules still apply
    #[arg(long, help_heading = "Safety")]
    pub now: bool,
    #[command(flatten)]
    pub following: FollowOptions,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct UndoArgs {
    /// Id of the attempt, as shown by `remoor job show`
    #[arg(value_name = "ATTEMPT")]
    pub attempt: u64,
    /// Return at once; do not follow the job
    #[arg(short, long)]
    pub detach: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Fleet directory (contains remoor.yml)
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Apply even if nodes in service would no longer be in a group; they are left unchanged
    #[arg(long)]
    pub orphans: bool,
    #[command(flatten)]
    pub vault: VaultArgs,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct LintArgs {
    /// Fleet directory (contains remoor.yml), or a directory of playbooks with an optional
    /// inventory
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Report tasks that remoor cannot run as faults even if their condition may be false
    #[arg(long)]
    pub strict: bool,
    /// Refuse tasks whose module is not native (it needs Python on the node and ansible-core on
    /// the manager)
    #[arg(long)]
    pub native_only: bool,
    #[command(flatten)]
    pub vault: VaultArgs,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Playbook that sets the hosts up
    #[arg(value_name = "PLAYBOOK")]
    pub playbook: PathBuf,
    /// Fleet directory to write: a new one, or the directory of the playbook
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Inventory: a file, a directory, or a program (repeatable)
    #[arg(short, long, value_name = "INVENTORY", required = true)]
    pub inventory: Vec<String>,
    /// JSON file with the facts that count as known, such as the output of `ansible -m setup HOST`
    /// (default: the facts of Debian 12)
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    /// Variable for these jobs only; overrides the fleet's. VALUE is YAML (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = drivers::extra_var)]
    pub extra_vars: Vec<(String, serde_json::Value)>,
    /// Roll out to all nodes at once, within the budgets, instead of to one node per group first
    #[arg(long, help_heading = "Safety")]
    pub no_canary: bool,
    /// Ignore hold and maintenance window; fencing and quorum rules still apply
    #[arg(long, help_heading = "Safety")]
    pub now: bool,
    #[command(flatten)]
    pub following: FollowOptions,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct InventoryArgs {
    /// Print the whole inventory (Ansible calls this)
    #[arg(long, required_unless_present = "host")]
    pub list: bool,
    /// Print the variables of one host
    #[arg(long, value_name = "HOST", conflicts_with = "list")]
    pub host: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct CommissionArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    /// Variable for these jobs only; overrides the fleet's. VALUE is YAML (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = drivers::extra_var)]
    pub extra_vars: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub following: FollowOptions,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct DecommissionArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    /// Accept nodes that are away: they are cleaned up when they return
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Confirm without a prompt: NAME is the node or group, as you would type it
    #[arg(long, value_name = "NAME", help_heading = "Safety")]
    pub confirm: Option<String>,
    /// Never prompt: refuse the command unless --confirm is given
    #[arg(long, help_heading = "Safety")]
    pub no_input: bool,
    #[command(flatten)]
    pub following: FollowOptions,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct ZoneArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    /// Name of the zone: a rack, a room, a site
    #[arg(long, value_name = "ZONE", required_unless_present = "clear", value_parser = drivers::zone)]
    pub set: Option<String>,
    /// Remove the nodes from their zone
    #[arg(long, conflicts_with = "set")]
    pub clear: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct NodesOrderArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Nodes whose pause, hold or drain ends; without a node, close the circuit breaker
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct MaintenanceArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    /// Length of the announced maintenance, from now
    #[arg(long = "for", value_name = "TIME", required_unless_present = "end")]
    pub time: Option<Span>,
    /// End the announced maintenance now
    #[arg(long, conflicts_with = "time")]
    pub end: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct RoleArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub waiting: WaitOptions,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    /// Remove nodes that are up, and managers (they leave Raft first)
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Keep the gossip key; without this option, a new key goes to all other nodes
    #[arg(long, help_heading = "Safety")]
    pub keep_gossip_key: bool,
    /// Do not ask for confirmation
    #[arg(short, long, help_heading = "Safety")]
    pub yes: bool,
    #[command(flatten)]
    pub waiting: WaitOptions,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct TrustKeyArgs {
    /// Name of a node
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Fingerprint as shown on the machine: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    #[arg(value_name = "FINGERPRINT")]
    pub fingerprint: String,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}
