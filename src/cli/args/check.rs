//! Arguments of `remoor check`: of nodes, asked by a manager, and of check files, run on this machine.

use super::{Connection, Output, Which};
use crate::cli::drivers::Form;
use crate::cli::duration::Span;
use crate::cli::format::Format;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// Value of `--output`: the forms of all commands, and those of goss.
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

/// Whether the arguments, readable or not, ask for the answer of a plugin.
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

/// What has no meaning for nodes: each has to be said here, since clap waives `requires` where the required is in conflict.
const HERE: [&str; 8] = ["file", "add", "vars", "vars_inline", "only", "retry_timeout", "sleep", "parallel"];

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required_unless_present_any = ["group", "all", "file", "add"], conflicts_with_all = HERE)]
    pub nodes: Vec<String>,
    /// All nodes of a host group
    #[arg(short, long, value_name = "GROUP", conflicts_with = "nodes", conflicts_with_all = HERE)]
    pub group: Option<String>,
    /// All nodes of the applied fleet
    #[arg(long, conflicts_with_all = ["nodes", "group"], conflicts_with_all = HERE)]
    pub all: bool,
    /// Which check files concern the node, and why not the others; nothing is asked of it
    #[arg(long, conflicts_with_all = ["group", "all", "file", "add"])]
    pub list: bool,
    /// The checks as the node gets them, after their templates; nothing is asked of it
    #[arg(long, conflicts_with_all = ["group", "all", "file", "add"])]
    pub render: bool,
    /// With --list or --render: of this fleet directory, without a manager
    #[arg(long, value_name = "DIR", conflicts_with_all = ["group", "all", "file", "add"])]
    pub fleet: Option<PathBuf>,
    #[command(flatten)]
    pub here: CheckHere,
    /// table, wide, json, or template='...' (Tera over the JSON); with --file also documentation, rspecish, structured, tap,
    /// junit, nagios, prometheus, silent
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "table",
        conflicts_with = "json",
        help_heading = "Output"
    )]
    pub output: CheckFormat,
    /// The same as --output=json
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Tables without their first line
    #[arg(long, help_heading = "Output")]
    pub no_headers: bool,
    /// Names only
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    #[command(flatten)]
    pub connection: Connection,
}

/// What is run on this machine, without a cluster.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "On this machine, without a cluster")]
pub struct CheckHere {
    /// Run the checks of these files, of the directories' .yml, .yaml and .json, or of standard input (-)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub file: Vec<PathBuf>,
    /// Write a check of what this machine has now, instead of running any: the type of a resource, then ids. To standard
    /// output, or added to the one --file
    #[arg(long, value_names = ["TYPE", "ID"], num_args = 2..)]
    pub add: Vec<String>,
    /// Variables for templates, a YAML or JSON file; of several the last one's word holds
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with = "add")]
    pub vars: Vec<PathBuf>,
    /// The same as text, stronger than files
    #[arg(long, value_name = "TEXT", requires = "file", conflicts_with = "add")]
    pub vars_inline: Option<String>,
    /// Only checks with this tag in `meta.tags`; repeatable
    #[arg(long, value_name = "TAG", requires = "file", conflicts_with = "add")]
    pub only: Vec<String>,
    /// Tell only the results that differ from the last run with this option; all of them count
    #[arg(long, conflicts_with_all = ["add", "list", "render"])]
    pub changed_only: bool,
    /// Run again so long, until all pass
    #[arg(long, value_name = "TIME", requires = "file", conflicts_with = "add")]
    pub retry_timeout: Option<Span>,
    /// Wait between two tries
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "retry_timeout")]
    pub sleep: Span,
    /// Checks at once
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256),
        requires = "file", conflicts_with = "add")]
    pub parallel: u16,
}

impl CheckArgs {
    pub fn which(&self) -> Which {
        Which { nodes: self.nodes.clone(), group: self.group.clone(), all: self.all }
    }

    /// Runs checks on this machine, without a cluster.
    pub fn is_here(&self) -> bool {
        !self.here.file.is_empty() || !self.here.add.is_empty()
    }

    /// None: a form of goss.
    pub fn common(&self) -> Option<Output> {
        let Self { json, no_headers, quiet, .. } = *self;
        match &self.output {
            CheckFormat::Common(output) => Some(Output { output: output.clone(), json, no_headers, quiet }),
            CheckFormat::Goss(_) => None,
        }
    }
}
