//! Arguments of the commands that only read (status, nodes, history, jobs), and of the commands
//! that examine a node over SSH.

use super::{ConnectionOptions, NodeSelection, Output};
use crate::cli::duration::Span;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Exit code 1 unless every node is as desired
    #[arg(long)]
    pub exit_code: bool,
    /// Repeat: redraw on a terminal, append otherwise; the default interval is 2s
    #[arg(short, long, value_name = "EVERY", num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
    pub watch: Option<Span>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct NodesArgs {
    /// Describe this node
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// List the removed nodes instead, and until when they are remembered
    #[arg(long, conflicts_with = "node")]
    pub removed: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct RaftMembersArgs {
    /// Print a table of cluster sizes and the failures that each survives; contacts no manager
    #[arg(long)]
    pub table: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Only events of this node
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// Maximum number of events; the newest are shown
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Name of a node
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Show the events and actions of the leader step by step, and the rules behind the last
    /// verdict
    #[arg(long)]
    pub replay: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// List the jobs, newest last, and the queued orders
    List(JobListArgs),
    /// Show a job and its attempts
    Show(JobShowArgs),
    /// Print the output of a job
    Logs(JobLogsArgs),
    /// Cancel a job, or the queued order of a node
    #[command(long_about = "Cancel a job after its current task. Its node is held until `remoor resume NODE`.

With the name of a node, cancel its open job; if there is none, cancel its queued order.

Examples:
  remoor job cancel 17
  remoor job cancel 17 --now    end the current task too; also works for a job that is being cancelled
  remoor job cancel w2          w2 is away: cancel the order that waits for its return")]
    Cancel(JobCancelArgs),
}

impl JobVerb {
    /// The arguments that all job commands share.
    pub fn common(&self) -> (&ConnectionOptions, &Output) {
        match self {
            JobVerb::List(args) => (&args.connection, &args.output),
            JobVerb::Show(args) => (&args.connection, &args.output),
            JobVerb::Cancel(args) => (&args.connection, &args.output),
            JobVerb::Logs(args) => (&args.connection, &args.output),
        }
    }
}

#[derive(Debug, Args)]
pub struct JobListArgs {
    /// Only jobs of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Only open and held jobs, and queued orders
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct JobShowArgs {
    /// Number of a job
    #[arg(value_name = "JOB")]
    pub job: u64,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct JobCancelArgs {
    /// Number of a job, or name of a node
    #[arg(value_name = "JOB|NODE")]
    pub what: String,
    /// End the current task at once instead of letting it finish
    #[arg(long)]
    pub now: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct JobLogsArgs {
    /// Number of a job
    #[arg(value_name = "JOB")]
    pub job: u64,
    /// Follow the output until the job ends
    #[arg(short, long)]
    pub follow: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// Alive, commissioned, as desired, and no open job
    Clean,
    Alive,
    Commissioned,
    Decommissioned,
}

#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    pub which: NodeSelection,
    /// State to wait for
    #[arg(long = "for", value_name = "GOAL")]
    pub goal: Goal,
    /// Maximum time to wait
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub timeout: Span,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Name of a node
    #[arg(value_name = "NODE")]
    pub node: String,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// Names of nodes, then optionally the absolute paths to adopt (default: all)
    #[arg(value_name = "NODE|PATH", required_unless_present_any = ["group", "all"])]
    pub what: Vec<String>,
    /// All nodes of a group
    #[arg(short, long, value_name = "GROUP")]
    pub group: Option<String>,
    /// All nodes
    #[arg(long, conflicts_with = "group")]
    pub all: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}
