//! Arguments of what is for bad days: backups, and founding the cluster anew.

use super::{Connection, Output, local::absolute};
use crate::cli::drivers::{self, Place};
use crate::cli::duration::Span;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Found a new cluster of one manager with all that this one knows; there is no other way to recover
    #[arg(long, required = true)]
    pub force_new_cluster: bool,
    /// Ask the other managers and say what would be done; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// A node is elsewhere from now on: ADDR is IP, or IP:API_PORT,GOSSIP_PORT (repeatable)
    #[arg(long, value_name = "NODE=ADDR", value_parser = drivers::set_addr)]
    pub set_addr: Vec<(String, Place)>,
    /// Where the node keeps its identity and state
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    /// Also where so many managers answer that they can go on by themselves: they are shut out
    #[arg(long, help_heading = "Safety")]
    pub even_if_majority_alive: bool,
    /// Also where another manager answers that knows more: what only it knows is lost
    #[arg(long, help_heading = "Safety")]
    pub even_if_behind: bool,
    /// Also where raft/ here was put back from an older copy: what was decided since is lost
    #[arg(long, help_heading = "Safety")]
    pub even_if_rolled_back: bool,
    /// Don't ask
    #[arg(short, long, help_heading = "Safety")]
    pub yes: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Where the backup goes, or is; with --every the directory for them
    #[arg(value_name = "FILE", required_unless_present = "end", value_parser = absolute)]
    pub file: Option<PathBuf>,
    /// Read a backup and check all of it; asks no manager
    #[arg(long, conflicts_with_all = ["every", "keep", "end"])]
    pub verify: bool,
    /// From now on make one so often
    #[arg(long, value_name = "TIME", requires = "keep", conflicts_with = "end")]
    pub every: Option<Span>,
    /// Keep so many of those
    #[arg(long, value_name = "COUNT", requires = "every", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub keep: Option<u32>,
    /// Make none by itself any more
    #[arg(long, conflicts_with = "file")]
    pub end: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// As which node of the backup; the one that made it if left out
    #[arg(long, value_name = "NODE")]
    pub name: Option<String>,
    /// A node is elsewhere from now on, this one too: ADDR is IP, or IP:API_PORT,GOSSIP_PORT (repeatable)
    #[arg(long, value_name = "NODE=ADDR", value_parser = drivers::set_addr)]
    pub set_addr: Vec<(String, Place)>,
    /// The new epoch is to be greater than this one, where a node is known to be in it
    #[arg(long, value_name = "EPOCH")]
    pub epoch: Option<u64>,
    /// Also where a manager of the backup answers that follows a leader: that cluster ends by it
    #[arg(long, help_heading = "Safety")]
    pub even_if_majority_alive: bool,
    /// Where the node keeps its identity and state; holds no node yet
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: Output,
}
