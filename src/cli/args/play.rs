//! Arguments of `remoor play`. An option that `ansible-playbook` also has takes its name and letter
//! from there.

use super::Output;
use crate::cli::format::Format;
use crate::cli::out::Out;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct PlayArgs {
    /// Playbook to run
    #[arg(value_name = "PLAYBOOK")]
    pub playbook: PathBuf,
    /// Inventory: a file, a directory, a program, or a list of hosts that contains a comma
    /// (repeatable); default: only this machine, as `localhost`
    #[arg(short, long, value_name = "INVENTORY")]
    pub inventory: Vec<String>,
    /// Only these hosts: patterns as in `hosts:`, or @FILE with one pattern per line (repeatable)
    #[arg(short, long, value_name = "PATTERN")]
    pub limit: Vec<String>,
    /// Only tasks with one of these tags, and tasks tagged `always` (repeatable, or separated by
    /// commas)
    #[arg(short, long, value_name = "TAG", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// Skip tasks with one of these tags
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub skip_tags: Vec<String>,
    /// Variables that override all others: KEY=VALUE.., a YAML or JSON mapping, or @FILE
    /// (repeatable)
    #[arg(short, long, value_name = "VARS")]
    pub extra_vars: Vec<String>,
    /// Refuse tasks whose module is not native (it needs Python on the host and ansible-core here)
    #[arg(long)]
    pub native_only: bool,
    /// Change nothing; report what would change
    #[arg(short = 'C', long)]
    pub check: bool,
    /// Show the differences in changed files
    #[arg(short = 'D', long)]
    pub diff: bool,
    /// Exit code 1 if anything would change, or if that is unknown
    #[arg(long, requires = "check")]
    pub exit_code: bool,
    /// Number of hosts that run in parallel
    #[arg(short, long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub forks: u16,
    /// Root directory of all files that the playbook uses (default: its own directory, or a parent
    /// with `roles`, `ansible.cfg` or `remoor.yml`)
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Refuse tasks that remoor cannot run even if their condition may be false
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub vault: VaultArgs,
    #[command(flatten)]
    pub login: PlayLogin,
    /// Run even on nodes that remoor managers set up
    #[arg(long, help_heading = "Safety")]
    pub force: bool,
    /// Print the output of commands as it arrives
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Format: table, or json (one event per line)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    pub output: PlayFormat,
    /// Same as --output=json
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The passwords of content that ansible-vault has encrypted.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Secrets")]
pub struct VaultArgs {
    /// File with a password of ansible-vault, or a program that prints the password (repeatable)
    #[arg(long, visible_alias = "vault-pass-file", value_name = "FILE")]
    pub vault_password_file: Vec<PathBuf>,
    /// Password of a vault id, as ID@FILE; FILE may be a program (repeatable)
    #[arg(long, value_name = "ID@FILE")]
    pub vault_id: Vec<String>,
}

/// How to connect to the hosts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct PlayLogin {
    /// `ssh` or `smart`: over SSH. `local`: every host is this machine. `ansible_connection` of a
    /// host wins
    #[arg(short, long, value_name = "KIND", default_value = "ssh")]
    pub connection: PlayConnection,
    /// User for the login; `ansible_user` of a host wins (default: from the SSH configuration)
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Private key for the login, for hosts without their own
    #[arg(long, visible_alias = "key-file", value_name = "FILE")]
    pub private_key: Option<PathBuf>,
    /// SSH configuration file to use instead of your own
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// Connection timeout in seconds
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub timeout: u16,
    /// Run tasks as root with passwordless sudo, unless a task says otherwise
    #[arg(short, long)]
    pub r#become: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlayConnection {
    Ssh,
    Smart,
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlayFormat {
    Table,
    Json,
}

impl PlayArgs {
    /// The output of this command. A closed pipe does not end the play, because the caller also
    /// needs the exit code.
    pub fn output(&self) -> Out {
        let output = if self.json || self.output == PlayFormat::Json { Format::Json } else { Format::Table };
        Out::new(&Output { output, json: false, no_headers: false, quiet: false }).with_exit_as_answer()
    }
}
