//! Arguments of `remoor play`: those of ansible-playbook, by the same letters, as far as remoor has what they mean.

use super::Output;
use crate::cli::format::Format;
use crate::cli::out::Out;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct PlayArgs {
    /// The playbook
    #[arg(value_name = "PLAYBOOK")]
    pub playbook: PathBuf,
    /// Inventory: a file, a directory, a program, or a list of hosts with a comma in it (repeatable); without it there is only
    /// this machine, as `localhost`
    #[arg(short, long, value_name = "INVENTORY")]
    pub inventory: Vec<String>,
    /// Only these hosts of it: patterns as in `hosts:`, or @FILE with one a line (repeatable)
    #[arg(short, long, value_name = "PATTERN")]
    pub limit: Vec<String>,
    /// Only tasks with one of these tags, and those tagged `always` (repeat, or separate by commas)
    #[arg(short, long, value_name = "TAG", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// No tasks with one of these tags
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub skip_tags: Vec<String>,
    /// Variables stronger than all others: KEY=VALUE.., a mapping in YAML or JSON, or @FILE of one (repeatable)
    #[arg(short, long, value_name = "VARS")]
    pub extra_vars: Vec<String>,
    /// Change nothing, tell what would be changed
    #[arg(short = 'C', long)]
    pub check: bool,
    /// Show how files are changed, or would be
    #[arg(short = 'D', long)]
    pub diff: bool,
    /// 1 if anything would be changed, or can't be told
    #[arg(long, requires = "check")]
    pub exit_code: bool,
    /// Hosts at once
    #[arg(short, long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub forks: u16,
    /// Directory below which everything lies that the playbook names; else its own, or one above that has `roles`,
    /// `ansible.cfg` or `remoor.yml`
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    #[command(flatten)]
    pub login: PlayLogin,
    /// Also on nodes that managers of remoor set up
    #[arg(long, help_heading = "Safety")]
    pub force: bool,
    /// Lines that commands print, as they come
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// table, or json: one event a line
    #[arg(short, long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    pub output: PlayFormat,
    /// The same as --output=json
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// How to get to the hosts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct PlayLogin {
    /// `local`: every host is this machine; `ssh` and `smart`: by ssh. `ansible_connection` of a host wins
    #[arg(short, long, value_name = "KIND", default_value = "ssh")]
    pub connection: PlayConnection,
    /// User to log in as; `ansible_user` of a host wins, and without either ssh's own configuration
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Private key for the login, unless a host has its own
    #[arg(long, visible_alias = "key-file", value_name = "FILE")]
    pub private_key: Option<PathBuf>,
    /// Configuration for ssh instead of your own
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// Seconds until a host counts as unreachable
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub timeout: u16,
    /// Tasks are root's where nothing says otherwise, by sudo without a password
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
    /// The output of this command; its exit code is an answer too.
    pub fn out(&self) -> Out {
        let output = if self.json || self.output == PlayFormat::Json { Format::Json } else { Format::Table };
        Out::new(&Output { output, json: false, no_headers: false, quiet: false }).judging()
    }
}
