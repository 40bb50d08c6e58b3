//! Arguments of `remoor check`. The command examines nodes through a manager, or runs check files
//! on this machine.

use super::{ConnectionOptions, NodeSelection, Output};
use crate::cli::drivers::Form;
use crate::cli::duration::Span;
use crate::cli::format::Format;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// Value of `--output`: a format that all commands have, or a format of goss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckFormat {
    Common(Format),
    Goss(Form),
}

impl FromStr for CheckFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse(), text.parse()) {
            (Ok(format), _) => Ok(Self::Common(format)),
            (_, Ok(form)) => Ok(Self::Goss(form)),
            (Err(common), Err(())) => {
                let names: Vec<&str> = Form::ALL.iter().map(|(name, _)| *name).collect();
                Err(format!("{common}; with --file also {}", names.join(", ")))
            }
        }
    }
}

/// Whether the arguments request the output of a Nagios plugin. The arguments may be ones that clap
/// rejects, because a plugin reports usage errors in its own format too.
pub fn asks_for_a_plugin(args: &[OsString]) -> bool {
    let words: Vec<&str> =
        args.iter().skip(1).filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let ends_with_o =
        |word: &str| word == "--output" || word.ends_with('o') && word.starts_with('-') && !word.starts_with("--");
    let whole = |word: &str| {
        let value = word.strip_suffix("nagios").unwrap_or_default();
        ends_with_o(value.strip_suffix('=').unwrap_or(value))
    };
    words.first() == Some(&"check")
        && (words.iter().any(|word| whole(word))
            || words.windows(2).any(|two| ends_with_o(two[0]) && two[1] == "nagios"))
}

/// Arguments that are valid only for checks on this machine. Every argument for nodes lists them as
/// conflicts, because clap does not enforce `requires` if the required argument is itself in
/// conflict.
const HERE: [&str; 8] = ["file", "add", "vars", "vars_inline", "only", "retry_timeout", "sleep", "parallel"];

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required_unless_present_any = ["group", "all", "file", "add"], conflicts_with_all = HERE)]
    pub nodes: Vec<String>,
    /// All nodes of a group
    #[arg(short, long, value_name = "GROUP", conflicts_with = "nodes", conflicts_with_all = HERE)]
    pub group: Option<String>,
    /// All nodes of the fleet
    #[arg(long, conflicts_with_all = ["nodes", "group"], conflicts_with_all = HERE)]
    pub all: bool,
    /// List the check files with whether and why each applies to the node; contacts no node
    #[arg(long, conflicts_with_all = ["group", "all", "file", "add"])]
    pub list: bool,
    /// Print the checks of the node with their templates rendered; contacts no node
    #[arg(long, conflicts_with_all = ["group", "all", "file", "add"])]
    pub render: bool,
    /// With --list or --render: use this fleet directory instead of asking a manager
    #[arg(long, value_name = "DIR", conflicts_with_all = ["group", "all", "file", "add"])]
    pub fleet: Option<PathBuf>,
    #[command(flatten)]
    pub here: LocalCheckArgs,
    /// Format: table, wide, json, or template='...' (a Tera template over the JSON); with --file
    /// also documentation, rspecish, structured, tap, junit, nagios, prometheus, silent
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "table",
        conflicts_with = "json",
        help_heading = "Output"
    )]
    pub output: CheckFormat,
    /// Same as --output=json
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Omit the header line of tables
    #[arg(long, help_heading = "Output")]
    pub no_headers: bool,
    /// Print names only
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    #[command(flatten)]
    pub connection: ConnectionOptions,
}

/// Arguments of checks on this machine, without a cluster.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "On this machine, without a cluster")]
pub struct LocalCheckArgs {
    /// Check files, directories with .yml, .yaml and .json files, or `-` for standard input
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub file: Vec<PathBuf>,
    /// Write a check for the present state of resources (a type, then ids) instead of running
    /// checks. The check goes to standard output, or is added to the file of --file
    #[arg(long, value_names = ["TYPE", "ID"], num_args = 2..)]
    pub add: Vec<String>,
    /// YAML or JSON file with template variables (repeatable; later files win)
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with = "add")]
    pub vars: Vec<PathBuf>,
    /// Template variables as YAML or JSON text; overrides --vars
    #[arg(long, value_name = "TEXT", requires = "file", conflicts_with = "add")]
    pub vars_inline: Option<String>,
    /// Only checks with this tag in `meta.tags` (repeatable)
    #[arg(long, value_name = "TAG", requires = "file", conflicts_with = "add")]
    pub only: Vec<String>,
    /// Print only the results that changed since the last run with this option; the exit code
    /// covers all
    #[arg(long, conflicts_with_all = ["add", "list", "render"])]
    pub changed_only: bool,
    /// Repeat the checks until all pass, for at most this time
    #[arg(long, value_name = "TIME", requires = "file", conflicts_with = "add")]
    pub retry_timeout: Option<Span>,
    /// Pause between two tries
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "retry_timeout")]
    pub sleep: Span,
    /// Number of checks that run in parallel
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256),
        requires = "file", conflicts_with = "add")]
    pub parallel: u16,
}

impl CheckArgs {
    pub fn selection(&self) -> NodeSelection {
        NodeSelection { nodes: self.nodes.clone(), group: self.group.clone(), all: self.all }
    }

    /// Whether the command runs on this machine, without a cluster.
    pub fn runs_locally(&self) -> bool {
        !self.here.file.is_empty() || !self.here.add.is_empty()
    }

    /// The output options of all commands. None: a format of goss was chosen.
    pub fn common(&self) -> Option<Output> {
        let Self { json, no_headers, quiet, .. } = *self;
        match &self.output {
            CheckFormat::Common(output) => Some(Output { output: output.clone(), json, no_headers, quiet }),
            CheckFormat::Goss(_) => None,
        }
    }
}
