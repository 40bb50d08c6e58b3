//! Arguments of the verbs that ask: status, nodes, history, jobs, and what looks at a node over SSH.

use super::{Connection, Output, Which};
use crate::cli::duration::Span;
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// 1 unless every node is as desired
    #[arg(long)]
    pub exit_code: bool,
    /// Repeat: redraw on a terminal, append elsewhere
    #[arg(short, long, value_name = "EVERY", num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
    pub watch: Option<Span>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct NodesArgs {
    /// Describe this node
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// List instead those that were taken out for good, and until when that is remembered
    #[arg(long, conflicts_with = "node")]
    pub removed: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct RaftMembersArgs {
    /// Print instead how many losses so many managers survive; asks nobody
    #[arg(long)]
    pub table: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Only of this node
    #[arg(value_name = "NODE")]
    pub node: Option<String>,
    /// At most so many items, the newest
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    #[arg(value_name = "NODE")]
    pub node: String,
    /// What the leader was told and asked for, step by step, and which rule decided the last verdict
    #[arg(long)]
    pub replay: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// List the jobs, newest last, and what is queued
    List(JobListArgs),
    /// Show one job with its attempts
    Show(JobShowArgs),
    /// Print what a job's attempts printed
    Logs(JobLogsArgs),
    /// End a job, or call off what is queued for a node
    #[command(long_about = "End a job, after its current task; its node is held until `remoor resume NODE`.

With the name of a node: its open job, or else what is queued for it, which is called off.

Examples:
  remoor job cancel 17
  remoor job cancel 17 --now    ends the current task too; also of a job that was cancelled before
  remoor job cancel w2          w2 is away: what waits for its return")]
    Cancel(JobCancelArgs),
}

impl JobVerb {
    /// What all of them have.
    pub fn common(&self) -> (&Connection, &Output) {
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
    /// Only of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Only those that are open or held, and what is queued
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct JobShowArgs {
    #[arg(value_name = "JOB")]
    pub job: u64,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct JobCancelArgs {
    /// Number of a job, or name of a node
    #[arg(value_name = "JOB|NODE")]
    pub what: String,
    /// End the current task too, instead of letting it finish
    #[arg(long)]
    pub now: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct JobLogsArgs {
    #[arg(value_name = "JOB")]
    pub job: u64,
    /// Go on until the job ends
    #[arg(short, long)]
    pub follow: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// Alive, commissioned, as desired, nothing open
    Clean,
    Alive,
    Commissioned,
    Decommissioned,
}

#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    pub which: Which,
    /// What to wait for
    #[arg(long = "for", value_name = "GOAL")]
    pub goal: Goal,
    /// How long
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub timeout: Span,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    #[arg(value_name = "NODE")]
    pub node: String,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// Names of nodes, then absolute paths if only these are to be taken
    #[arg(value_name = "NODE|PATH", required_unless_present_any = ["group", "all"])]
    pub what: Vec<String>,
    /// All nodes of a host group
    #[arg(short, long, value_name = "GROUP")]
    pub group: Option<String>,
    /// All nodes
    #[arg(long, conflicts_with = "group")]
    pub all: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}
