//! Arguments of `remoor check`. The command examines nodes through a manager, or runs check files
//! on this machine.

use super::{ConnectionOptions, NodeSelection, Output};
use crate::cli::drivers::Form;
use crate::cli::duration::Span;
use crate::cli::format::Format;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::OsString;
use std::net::SocketAddr;
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

/// The address on which a health endpoint listens. `:8080` means all addresses, as in goss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
        whole.parse().map(Self).map_err(|_| format!("{text:?} is not an address; write 127.0.0.1:8080 or :8080"))
    }
}

/// Arguments that are valid only for checks on this machine. Every argument for nodes lists them as
/// conflicts, because clap does not enforce `requires` if the required argument is itself in
/// conflict.
const HERE: [&str; 10] =
    ["file", "add", "vars", "vars_inline", "only", "strict", "retry_timeout", "sleep", "serve", "parallel"];

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required_unless_present_any = ["group", "all", "file", "add", "autoadd", "as_host"], conflicts_with_all = HERE)]
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
    /// Print the checks of the node, or the files of --file, with their templates rendered;
    /// contacts no node and runs nothing
    #[arg(long, conflicts_with_all = ["group", "all", "add"])]
    pub render: bool,
    /// With --list, --render or --as: use this fleet directory instead of asking a manager
    #[arg(long, value_name = "DIR", conflicts_with_all = ["group", "all", "file", "add"])]
    pub fleet: Option<PathBuf>,
    #[command(flatten)]
    pub here: LocalCheckArgs,
    /// Format: table (default), wide, json, or template='...' (a Tera template over the JSON); with
    /// --file also documentation, rspecish, structured, tap, junit, nagios, prometheus, silent
    #[arg(short, long, value_name = "FORMAT", conflicts_with = "json", help_heading = "Output")]
    pub output: Option<CheckFormat>,
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
    /// [default: $GOSS_FILE or ./goss.yaml]
    #[arg(long, value_name = "FILE", num_args = 0.., default_missing_value = "",
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub file: Vec<PathBuf>,
    /// With --fleet: run the checks of this host of the fleet on this machine
    #[arg(long = "as", value_name = "HOST", requires = "fleet",
        conflicts_with_all = ["nodes", "group", "all", "file", "add", "list", "render"])]
    pub as_host: Option<String>,
    /// Write a check for the present state of resources (a type, then ids) instead of running
    /// checks. The check goes to standard output, or is added to the file of --file
    #[arg(long, value_names = ["TYPE", "ID"], num_args = 2..)]
    pub add: Vec<String>,
    /// Write checks for the unit, ports, files, package, processes and user of a service of this
    /// machine, as --add does
    #[arg(long, value_name = "NAME", conflicts_with_all = ["nodes", "group", "all", "list", "render", "add"])]
    pub autoadd: Option<String>,
    /// YAML or JSON file with template variables (repeatable; later files win)
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with = "add")]
    pub vars: Vec<PathBuf>,
    /// Template variables as YAML or JSON text; overrides --vars
    #[arg(long, value_name = "TEXT", requires = "file", conflicts_with = "add")]
    pub vars_inline: Option<String>,
    /// Only checks with this tag in `meta.tags` (repeatable)
    #[arg(long, value_name = "TAG", conflicts_with = "add")]
    pub only: Vec<String>,
    /// Refuse what goss accepts in a plain goss file although it is probably a mistake
    #[arg(long, requires = "file", conflicts_with = "add")]
    pub strict: bool,
    /// Print only the results that changed since the last run with this option; the exit code
    /// covers all
    #[arg(long, conflicts_with_all = ["add", "list", "render"])]
    pub changed_only: bool,
    /// Repeat the checks until all pass, for at most this time
    #[arg(long, value_name = "TIME", conflicts_with = "add")]
    pub retry_timeout: Option<Span>,
    /// Pause between two tries [default: 1s]
    #[arg(long, value_name = "TIME", requires = "retry_timeout")]
    pub sleep: Option<Span>,
    /// Serve a health endpoint on this address, such as 127.0.0.1:8080, instead of running once:
    /// 200 if all checks pass, otherwise 503. `/metrics` has metrics for Prometheus
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["add", "render", "changed_only", "retry_timeout"])]
    pub serve: Option<ListenAddress>,
    /// With --serve: the path of the endpoint [default: /healthz]
    #[arg(long, value_name = "PATH", requires = "serve")]
    pub endpoint: Option<String>,
    /// With --serve: time for which a result is kept [default: 5s]
    #[arg(long, value_name = "TIME", requires = "serve")]
    pub cache: Option<Span>,
    /// Number of checks that run in parallel [default: 8]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "add")]
    pub parallel: Option<u16>,
}

impl CheckArgs {
    pub fn selection(&self) -> NodeSelection {
        NodeSelection { nodes: self.nodes.clone(), group: self.group.clone(), all: self.all }
    }

    /// Whether the command runs on this machine, without a cluster.
    pub fn runs_locally(&self) -> bool {
        !self.here.file.is_empty() || self.adds() || self.here.as_host.is_some()
    }

    /// Whether the command writes checks instead of running them.
    pub fn adds(&self) -> bool {
        !self.here.add.is_empty() || self.here.autoadd.is_some()
    }

    /// The output options of all commands. None: a format of goss was chosen.
    pub fn common(&self) -> Option<Output> {
        let Self { json, no_headers, quiet, .. } = *self;
        match &self.output {
            None => Some(Output { output: Format::Table, json, no_headers, quiet }),
            Some(CheckFormat::Common(output)) => Some(Output { output: output.clone(), json, no_headers, quiet }),
            Some(CheckFormat::Goss(_)) => None,
        }
    }
}
