//! Arguments of the verbs that order something: re-setups and their relatives, and the fleet.

use super::{Connection, Following, Output, Which};
use crate::cli::drivers;
use crate::cli::duration::Span;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ResetupArgs {
    #[command(flatten)]
    pub which: Which,
    /// Only this service and its dependents (repeatable)
    #[arg(short, long, value_name = "SERVICE")]
    pub service: Vec<String>,
    /// A variable for these jobs only, stronger than the fleet's; VALUE is YAML (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = drivers::extra_var, conflicts_with = "service")]
    pub extra_vars: Vec<(String, serde_json::Value)>,
    /// Say what would be done and what stands against it; nothing is run
    #[arg(long, conflicts_with_all = ["detach", "no_queue"])]
    pub check: bool,
    /// Also where nothing drifted, or only the agent is down
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Don't wait for hold, window and settle time; fence and quorum stay
    #[arg(long, help_heading = "Safety")]
    pub now: bool,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct UndoArgs {
    /// Id of the attempt, as `remoor job show` prints it
    #[arg(value_name = "ATTEMPT")]
    pub attempt: u64,
    /// Don't follow the job
    #[arg(short, long)]
    pub detach: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The fleet directory, with remoor.yml in it
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Also where nodes in service would be in no group any more; they are left as they are
    #[arg(long)]
    pub orphans: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct LintArgs {
    /// The fleet directory, with remoor.yml in it; or one with playbooks, and an inventory if there is one
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub which: Which,
    /// A variable for these jobs only, stronger than the fleet's; VALUE is YAML (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = drivers::extra_var)]
    pub extra_vars: Vec<(String, serde_json::Value)>,
    /// Roll out to all at once, within the budgets, instead of to one of each group first
    #[arg(long, help_heading = "Safety")]
    pub no_canary: bool,
    /// Don't wait for hold and window; fence and quorum stay
    #[arg(long, help_heading = "Safety")]
    pub now: bool,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct InventoryArgs {
    /// Everything, as Ansible asks for it
    #[arg(long, required_unless_present = "host")]
    pub list: bool,
    /// The variables of one host
    #[arg(long, value_name = "HOST", conflicts_with = "list")]
    pub host: Option<String>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct CommissionArgs {
    #[command(flatten)]
    pub which: Which,
    /// A variable for these jobs only, stronger than the fleet's; VALUE is YAML (repeatable)
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = drivers::extra_var)]
    pub extra_vars: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct DecommissionArgs {
    #[command(flatten)]
    pub which: Which,
    /// Also a node that is away: it is cleaned up on its return
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Don't ask: the name of the node (or group), as typed at the question
    #[arg(long, value_name = "NAME", help_heading = "Safety")]
    pub confirm: Option<String>,
    /// Never ask; without --confirm the order is refused
    #[arg(long, help_heading = "Safety")]
    pub no_input: bool,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct ZoneArgs {
    #[command(flatten)]
    pub which: Which,
    /// Its name: a rack, a room, a site
    #[arg(long, value_name = "ZONE", required_unless_present = "clear", value_parser = drivers::zone)]
    pub set: Option<String>,
    /// They are in none
    #[arg(long, conflicts_with = "set")]
    pub clear: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct NodesOrderArgs {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// End pause and hold of these; none: close the breaker
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct MaintenanceArgs {
    #[command(flatten)]
    pub which: Which,
    /// How long, from now
    #[arg(long = "for", value_name = "TIME", required_unless_present = "end")]
    pub time: Option<Span>,
    /// It is over
    #[arg(long, conflicts_with = "time")]
    pub end: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct RoleArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    /// Follow until it is so, as is done if nothing is said
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
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    /// Also one that is up, and a manager, which leaves Raft first
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Don't ask
    #[arg(short, long, help_heading = "Safety")]
    pub yes: bool,
    /// Follow until it is out, as is done if nothing is said
    #[arg(long)]
    pub wait: bool,
    /// Don't follow a manager on its way out of Raft
    #[arg(long, conflicts_with_all = ["wait", "timeout"])]
    pub no_wait: bool,
    /// How long to follow
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub timeout: Span,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct TrustKeyArgs {
    #[arg(value_name = "NODE")]
    pub node: String,
    /// As the machine itself shows it: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    #[arg(value_name = "FINGERPRINT")]
    pub fingerprint: String,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}
