//! Arguments of disaster recovery: of making and restoring backups, and of rebuilding the cluster.

use super::{ConnectionOptions, Output, local::absolute};
use crate::cli::drivers::{self, NodePlacement};
use crate::cli::duration::Span;
use clap::{ArgGroup, Args};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("recovery").args(["force_new_cluster", "set_addr", "delete_archives"]).required(true)
    .multiple(true))]
pub struct RecoverArgs {
    /// Rebuild the cluster with this machine as its only manager, from its own data
    #[arg(long)]
    pub force_new_cluster: bool,
    /// Delete the archived logs (raft.removed-*) of this machine that are older than TIME
    #[arg(long, value_name = "TIME", conflicts_with_all = ["force_new_cluster", "set_addr"])]
    pub delete_archives: Option<Span>,
    /// Show what would be done; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// New address of a node: ADDR is IP or IP:API_PORT,GOSSIP_PORT (repeatable). Without
    /// --force-new-cluster, only record it on this machine
    #[arg(long, value_name = "NODE=ADDR", value_parser = drivers::set_addr)]
    pub set_addr: Vec<(String, NodePlacement)>,
    /// Data directory of the node
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    /// Recover even if the other managers have a quorum; they are excluded from the new cluster
    #[arg(long, help_heading = "Safety", requires = "force_new_cluster")]
    pub even_if_majority_alive: bool,
    /// Recover even if another manager has a longer log; its additional entries are lost
    #[arg(long, help_heading = "Safety", requires = "force_new_cluster")]
    pub even_if_behind: bool,
    /// Recover even if raft/ was restored from an older copy; later decisions are lost
    #[arg(long, help_heading = "Safety", requires = "force_new_cluster")]
    pub even_if_rolled_back: bool,
    /// Do not ask for confirmation
    #[arg(short, long, help_heading = "Safety")]
    pub yes: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct BackupArgs {
    /// File of the backup; with --every, the directory for the backups
    #[arg(value_name = "FILE", required_unless_present = "end", value_parser = absolute)]
    pub file: Option<PathBuf>,
    /// Read a backup and verify it completely; contacts no manager
    #[arg(long, conflicts_with_all = ["every", "keep", "end"])]
    pub verify: bool,
    /// Make a backup at this interval from now on
    #[arg(long, value_name = "TIME", requires = "keep", conflicts_with = "end")]
    pub every: Option<Span>,
    /// Number of scheduled backups to keep
    #[arg(long, value_name = "COUNT", requires = "every", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub keep: Option<u32>,
    /// Stop scheduled backups
    #[arg(long, conflicts_with = "file")]
    pub end: bool,
    /// Encrypt for this public key of age (repeatable); the managers cannot read the backup
    #[arg(long, value_name = "AGE_KEY", conflicts_with_all = ["verify", "end"], value_parser = drivers::recipient)]
    pub recipient: Vec<String>,
    /// File with the private key of age, to verify an encrypted backup
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub identity: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// File of the backup
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// File with the private key of age, for an encrypted backup
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Node of the backup that this machine becomes (default: the one that made it)
    #[arg(long, value_name = "NODE")]
    pub name: Option<String>,
    /// New address of a node, or of this one: ADDR is IP or IP:API_PORT,GOSSIP_PORT (repeatable)
    #[arg(long, value_name = "NODE=ADDR", value_parser = drivers::set_addr)]
    pub set_addr: Vec<(String, NodePlacement)>,
    /// Start an epoch greater than this one, if a node is known to be in it
    #[arg(long, value_name = "EPOCH")]
    pub epoch: Option<u64>,
    /// Restore even if a manager of the backup still follows a leader; that cluster ends
    #[arg(long, help_heading = "Safety")]
    pub even_if_majority_alive: bool,
    /// Data directory of the node; must not contain a node yet
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true,
        value_parser = absolute)]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: Output,
}
