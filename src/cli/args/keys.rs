//! Arguments of the commands for join tokens, keys, operator credentials, and waiting machines.

use super::{ConnectionOptions, Output};
use crate::cli::duration::Span;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleWord {
    Worker,
    Manager,
}

impl RoleWord {
    pub fn name(self) -> &'static str {
        match self {
            RoleWord::Worker => "worker",
            RoleWord::Manager => "manager",
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Show when the join tokens were made, and the public token
    List(TokenListArgs),
    /// Replace a join token and print the new one, once
    #[command(
        long_about = "Replace the join token of a role and print the new one. It is printed only once, because the managers
keep only its hash.

The old token becomes invalid at once, or after the time of --keep-old. Nodes that have joined are
not affected.

Examples:
  remoor token rotate --role worker
  remoor token rotate --role manager --keep-old 24h
  remoor token rotate --role worker -q > token    for remoor join --token-file"
    )]
    Rotate(TokenRotateArgs),
}

#[derive(Debug, Args)]
pub struct TokenListArgs {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct TokenRotateArgs {
    /// Role of the token
    #[arg(long, value_name = "ROLE")]
    pub role: RoleWord,
    /// Keep the old token valid for this time, at most 7d
    #[arg(long, value_name = "TIME")]
    pub keep_old: Option<Span>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyWord {
    /// Encrypts the gossip traffic between nodes
    Gossip,
    /// Signs the certificates of all nodes
    Ca,
}

#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Replace a key on all nodes without interruption
    #[command(
        long_about = "Replace a key on all nodes without interruption: all nodes accept the new key, then all use it, then
the old one is deleted.

Each step waits for the nodes that are present. A node that is away fetches the gossip key with its
certificate when it returns. A CA rotation waits for nodes that are away, unless you use --finish;
such a node then needs remoor accept when it returns. remoor key status shows the progress and the
nodes it waits for. Join tokens made before the rotation are valid until the old CA is no longer
trusted.

Examples:
  remoor key rotate gossip
  remoor key rotate ca
  remoor key rotate ca --finish    do not wait for a node that will be away for long"
    )]
    Rotate(KeyRotateArgs),
    /// Show the progress of a rotation, the nodes it waits for, and the operator credentials
    Status(KeyStatusArgs),
    /// Create or revoke the credentials of an operator
    #[command(
        long_about = "Create credentials for an operator, for use with --credentials; or revoke them. Credentials are valid
for one year.

Anyone who has the file has full control of the cluster. The managers accept only the credentials
that remoor key status lists. The credentials that init wrote on the first manager have the name
operator.

Examples:
  remoor key operator zoe --file zoe.json
  remoor key operator zoe --revoke"
    )]
    Operator(KeyOperatorArgs),
}

#[derive(Debug, Args)]
pub struct KeyOperatorArgs {
    /// Name of the operator; the history shows it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// File for the credentials; must not exist yet
    #[arg(long, value_name = "FILE", required_unless_present = "revoke", conflicts_with = "revoke")]
    pub file: Option<PathBuf>,
    /// Revoke all credentials of this name
    #[arg(long)]
    pub revoke: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct KeyRotateArgs {
    /// Key to replace
    #[arg(value_name = "KEY")]
    pub key: KeyWord,
    /// Finish the current CA rotation without the workers that are away
    #[arg(long)]
    pub finish: bool,
    /// Do not ask for confirmation
    #[arg(long, help_heading = "Safety")]
    pub yes: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct KeyStatusArgs {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// Name of the waiting machine, as remoor nodes shows it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Role of the node (default: worker; required if the machine requested manager)
    #[arg(long, value_name = "ROLE", conflicts_with = "deny")]
    pub role: Option<RoleWord>,
    /// Reject the machine
    #[arg(long)]
    pub deny: bool,
    /// Accept only a key with this fingerprint, as remoor join printed it
    #[arg(long, value_name = "FINGERPRINT", help_heading = "Safety")]
    pub fingerprint: Option<String>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}
