//! Arguments of the verbs about who may come in: tokens, and yes or no to who waits.

use super::{Connection, Output};
use crate::cli::duration::Span;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleWord {
    Worker,
    Manager,
}

impl RoleWord {
    pub fn word(self) -> &'static str {
        match self {
            RoleWord::Worker => "worker",
            RoleWord::Manager => "manager",
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Show since when the join tokens count, and the part of them that is no secret
    List(TokenListArgs),
    /// Replace a join token, and print the new one, once
    #[command(
        long_about = "Replace the join token of a role, and print the new one, once: the managers keep its hash only.

The one before stops at once, or when the time of --keep-old is over. Nodes that have joined are not concerned.

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
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct TokenRotateArgs {
    /// Whose token
    #[arg(long, value_name = "ROLE")]
    pub role: RoleWord,
    /// How long the token before counts on, at most 7d
    #[arg(long, value_name = "TIME")]
    pub keep_old: Option<Span>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyWord {
    /// Encrypts what the nodes gossip
    Gossip,
    /// Signs the certificates of all nodes
    Ca,
}

#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Replace a key on all nodes, without a break
    #[command(
        long_about = "Replace a key on all nodes, without a break: all take the new one in, then all use it, then the old one goes.

Each step waits for the nodes that are there. One that is away fetches the gossip key by its certificate when it comes back; the
CA waits for it, unless --finish says that it is not to: then it waits for remoor accept on its return. remoor key status
shows how far it is, and for whom it waits. Join tokens of before go on until the old CA counts no more, and not longer.

Examples:
  remoor key rotate gossip
  remoor key rotate ca
  remoor key rotate ca --finish    a node is away for long, and the rest need not wait"
    )]
    Rotate(KeyRotateArgs),
    /// Show how far a new key is, which nodes it waits for, and which operators have credentials
    Status(KeyStatusArgs),
    /// Make credentials for an operator, or revoke those that were made
    #[command(
        long_about = "Make credentials for an operator, for --credentials, which hold for a year; or revoke those that were made.

Whoever has the file may order anything. remoor key status lists what was made here. What init left on its manager is not among
it, and can't be revoked but by another CA (remoor key rotate ca), after which all credentials but that file are to be made anew.

Examples:
  remoor key operator zoe --file zoe.json
  remoor key operator zoe --revoke"
    )]
    Operator(KeyOperatorArgs),
}

#[derive(Debug, Args)]
pub struct KeyOperatorArgs {
    /// Whose; the journal names them by it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Where to write them; the file must not be there yet
    #[arg(long, value_name = "FILE", required_unless_present = "revoke", conflicts_with = "revoke")]
    pub file: Option<PathBuf>,
    /// All that were made for this name count no more
    #[arg(long)]
    pub revoke: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct KeyRotateArgs {
    /// Which key
    #[arg(value_name = "KEY")]
    pub key: KeyWord,
    /// End the rotation of the CA that is under way without the workers that are away
    #[arg(long)]
    pub finish: bool,
    /// Don't ask whether that is meant
    #[arg(long, help_heading = "Safety")]
    pub yes: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct KeyStatusArgs {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// Under which it waits, as remoor nodes shows it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What it is to be; as it asked if left out
    #[arg(long, value_name = "ROLE", conflicts_with = "deny")]
    pub role: Option<RoleWord>,
    /// Don't let it in
    #[arg(long)]
    pub deny: bool,
    /// Only if its key has this fingerprint, as remoor join printed it
    #[arg(long, value_name = "FINGERPRINT", help_heading = "Safety")]
    pub fingerprint: Option<String>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}
