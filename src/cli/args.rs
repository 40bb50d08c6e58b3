//! The command line as clap sees it: every verb, flag and help text. `docs/cli.md` says the same at length, and a test
//! holds the two together. Decides nothing.

use super::duration::Span;
use super::exit;
use super::format::Format;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

/// Where the daemon of this machine answers.
pub const SOCKET: &str = "/run/remoor/remoor.sock";

/// Finds out why a server was away, whether its configuration drifted, and sets it up again.
#[derive(Debug, Parser)]
#[command(name = "remoor", version, arg_required_else_help = true, max_term_width = 100, propagate_version = true)]
#[command(long_about = "Finds out why a server was away, whether its configuration drifted, and sets it up again.

Examples:
  remoor status                    what is up, what drifted, what is being done
  remoor why w1                    the whole story of one node
  remoor resetup w1                clean up and provision w1, if it drifted
  remoor lint fleet && remoor apply fleet
  remoor status --exit-code        1 unless all is as desired, for scripts")]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show every node: up or not, drifted or not, and what is being done about it
    #[command(long_about = "Show every node: up or not, drifted or not, and what is being done about it.

Examples:
  remoor status
  remoor status --exit-code --quiet    names of the nodes that are not as desired; 1 if there are any
  remoor status --watch=2s")]
    Status(StatusArgs),
    /// List the nodes with addresses and roles, or describe one
    Nodes(NodesArgs),
    /// Follow what happens, line by line, until Ctrl-C
    Watch(WatchArgs),
    /// Show what happened: absences, verdicts, re-setups, orders
    History(HistoryArgs),
    /// Tell the whole story of a node: away since when, why, verdict, what was not done and why, next steps
    Why(WhyArgs),
    /// List, show, follow and cancel re-setups
    #[command(subcommand)]
    Job(JobVerb),
    /// Wait until nodes are as asked
    #[command(long_about = "Wait until nodes are as asked: 0 when they are, 1 when the time is over.

Examples:
  remoor wait w1 --for=clean --timeout=5m")]
    Wait(WaitArgs),
    /// Examine nodes now over SSH: digest and checks; runs nothing else
    Check(CheckArgs),
    /// Show how the files of a node differ from what they should be
    Diff(DiffArgs),
    /// Take what is on a node as its baseline; runs nothing
    #[command(long_about = "Take what is on a node as its baseline, and show what changed; runs nothing.

Examples:
  remoor adopt w1                      everything that is declared
  remoor adopt w1 /etc/etcd/etcd.conf  keep this night's hot-fix
  remoor adopt --group web")]
    Adopt(AdoptArgs),
    /// Clean up and provision nodes again, where they drifted
    #[command(
        long_about = "Clean up and provision nodes again, where they drifted. Follows the job; Ctrl-C only stops following.

Examples:
  remoor resetup w1
  remoor resetup w1 --service etcd --force    also if nothing drifted
  remoor resetup --group web --detach"
    )]
    Resetup(ResetupArgs),
    /// Check a fleet directory and make it the current generation; contacts no node
    Apply(ApplyArgs),
    /// Check a fleet directory: configuration, playbooks, checks, templates
    Lint(LintArgs),
    /// Roll the current generation out to nodes, the first one alone
    Update(UpdateArgs),
    /// Print the inventory as Ansible reads it from a script
    Inventory(InventoryArgs),
    /// Provision new nodes for the first time
    Commission(CommissionArgs),
    /// Clean nodes up and provision them no more
    Decommission(DecommissionArgs),
    /// Examine and report only: no automatic re-setup of these nodes
    Pause(NodesOrderArgs),
    /// End pause and hold of nodes; without a node, close the breaker
    Resume(ResumeArgs),
    /// Announce an absence, or end the announcement
    Maintenance(MaintenanceArgs),
    /// Accept the changed SSH host key of a node after comparing its fingerprint
    TrustKey(TrustKeyArgs),
    /// Start a cluster on this machine; prints the tokens by which others join
    Init(InitArgs),
    /// Make this machine a node of a cluster
    Join(JoinArgs),
    /// Run the daemon; systemd does this
    Agent(AgentArgs),
    /// Add machines to the cluster from here
    #[command(subcommand)]
    Node(NodeVerb),
    /// Serve one session of a manager on standard input and output; managers start it over SSH
    #[command(hide = true)]
    Exec(ExecArgs),
    /// Print a completion script
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory
    Man(ManArgs),
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Socket of the daemon on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true)]
    pub socket: PathBuf,
    /// Ask these managers over TLS instead, in this order (repeat, or separate by commas)
    #[arg(long, value_name = "HOST:PORT", env = "REMOOR_MANAGER", value_delimiter = ',', requires = "credentials")]
    pub manager: Vec<String>,
    /// An operator's credentials, as `remoor init` wrote them
    #[arg(long, value_name = "FILE", env = "REMOOR_CREDENTIALS", hide_env_values = true)]
    pub credentials: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// table, wide, json, or template='...' (Tera over the JSON)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", conflicts_with = "json")]
    pub output: Format,
    /// The same as --output=json
    #[arg(long)]
    pub json: bool,
    /// Tables without their first line
    #[arg(long)]
    pub no_headers: bool,
    /// Names only
    #[arg(short, long)]
    pub quiet: bool,
}

impl Output {
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output.clone() }
    }
}

/// Which nodes an order is about.
#[derive(Debug, Clone, Default, Args)]
pub struct Which {
    /// Names of nodes
    #[arg(value_name = "NODE", required_unless_present_any = ["group", "all"])]
    pub nodes: Vec<String>,
    /// All nodes of a host group
    #[arg(short, long, value_name = "GROUP", conflicts_with = "nodes")]
    pub group: Option<String>,
    /// All nodes
    #[arg(long, conflicts_with_all = ["nodes", "group"])]
    pub all: bool,
}

/// How an order that leads to a job is followed.
#[derive(Debug, Clone, Default, Args)]
pub struct Following {
    /// Refuse instead of queueing for a node that is away
    #[arg(long)]
    pub no_queue: bool,
    /// Don't follow the job
    #[arg(short, long)]
    pub detach: bool,
}

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
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// List the jobs, newest last
    List(JobListArgs),
    /// Show one job with its attempts
    Show(JobShowArgs),
    /// Print what a job's attempts printed
    Logs(JobLogsArgs),
    /// End a job; its node is held until `remoor resume NODE`
    Cancel(JobShowArgs),
}

impl JobVerb {
    /// What all of them have.
    pub fn common(&self) -> (&Connection, &Output) {
        match self {
            JobVerb::List(args) => (&args.connection, &args.output),
            JobVerb::Show(args) | JobVerb::Cancel(args) => (&args.connection, &args.output),
            JobVerb::Logs(args) => (&args.connection, &args.output),
        }
    }
}

#[derive(Debug, Args)]
pub struct JobListArgs {
    /// Only of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Only those that are open or held
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
pub struct CheckArgs {
    #[command(flatten)]
    pub which: Which,
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

#[derive(Debug, Args)]
pub struct ResetupArgs {
    #[command(flatten)]
    pub which: Which,
    /// Only this service and its dependents (repeatable)
    #[arg(short, long, value_name = "SERVICE")]
    pub service: Vec<String>,
    /// Also where nothing drifted, or only the agent is down
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Don't wait for hold, window and settle time; fence and quorum stay
    #[arg(long, help_heading = "Safety")]
    pub now: bool,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// The fleet directory, with remoor.yml in it
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct LintArgs {
    /// The fleet directory, with remoor.yml in it
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub which: Which,
    /// Order all at once instead of waiting for the first one to end well
    #[arg(long, help_heading = "Safety")]
    pub no_canary: bool,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct InventoryArgs {
    /// Everything, as Ansible asks for it
    #[arg(long, required_unless_present = "host")]
    pub list: bool,
    /// The variables of one host
    #[arg(long, value_name = "HOST", conflicts_with = "list")]
    pub host: Option<String>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct CommissionArgs {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct DecommissionArgs {
    #[command(flatten)]
    pub which: Which,
    /// Also a node that is away: it is cleaned up on its return
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    /// Don't ask: the name of the node (or group), as typed at the question
    #[arg(long, value_name = "NAME", help_heading = "Safety")]
    pub confirm: Option<String>,
    /// Never ask; without --confirm the order is refused
    #[arg(long, help_heading = "Safety")]
    pub no_input: bool,
    #[command(flatten)]
    pub following: Following,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct NodesOrderArgs {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// End pause and hold of these; none: close the breaker
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct MaintenanceArgs {
    #[command(flatten)]
    pub which: Which,
    /// How long, from now
    #[arg(long = "for", value_name = "TIME", required_unless_present = "end")]
    pub time: Option<Span>,
    /// It is over
    #[arg(long, conflicts_with = "time")]
    pub end: bool,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct TrustKeyArgs {
    #[arg(value_name = "NODE")]
    pub node: String,
    /// As the machine itself shows it: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    #[arg(value_name = "FINGERPRINT")]
    pub fingerprint: String,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub connection: Connection,
}

/// What a machine needs to know of itself to be a node.
#[derive(Debug, Clone, Args)]
pub struct Here {
    /// Where the node keeps its identity and state
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true)]
    pub dir: PathBuf,
    /// Name of the node, as in the inventory; the machine's host name if left out
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Address at which the other nodes reach this one
    #[arg(long, value_name = "IP")]
    pub advertise: IpAddr,
    /// TCP port of the API
    #[arg(long, value_name = "PORT", default_value_t = 7443)]
    pub api_port: u16,
    /// TCP and UDP port of gossip
    #[arg(long, value_name = "PORT", default_value_t = 7946)]
    pub gossip_port: u16,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    #[command(flatten)]
    pub here: Here,
    /// Also where the directory holds another identity, which is moved aside
    #[arg(short, long, help_heading = "Safety")]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("secret").required(true).args(["token", "token_file"]))]
pub struct JoinArgs {
    /// API of a manager
    #[arg(value_name = "HOST:PORT")]
    pub addr: String,
    /// The token that `remoor init` printed; other users of this machine can see it while the command runs
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// File with the token; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Join as a manager; needs the manager token
    #[arg(long)]
    pub manager: bool,
    #[command(flatten)]
    pub here: Here,
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Where the node keeps its identity and state
    #[arg(long, value_name = "DIR", env = "REMOOR_DIR", default_value = "/var/lib/remoor", hide_env_values = true)]
    pub dir: PathBuf,
    /// Socket for the commands of this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true)]
    pub socket: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Install remoor on a machine over SSH and make it a node
    Add(NodeAddArgs),
}

#[derive(Debug, Clone, Args)]
pub struct NodeAddArgs {
    /// Name or address, as ssh knows it
    #[arg(value_name = "HOST")]
    pub host: String,
    /// Name of the node, as in the inventory; HOST if left out
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Host group; the inventory decides, this is compared with it
    #[arg(short, long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Join as a manager
    #[arg(long)]
    pub manager: bool,
    /// User to log in as
    #[arg(long, value_name = "USER")]
    pub ssh_user: Option<String>,
    /// Port of sshd
    #[arg(long, value_name = "PORT")]
    pub ssh_port: Option<u16>,
    /// Private key for the login
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Fingerprint of the host key that the machine must show
    #[arg(long, value_name = "FINGERPRINT", help_heading = "Safety")]
    pub fingerprint: Option<String>,
    /// Socket of the daemon on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true, help_heading = "Connection")]
    pub socket: PathBuf,
}

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// `-`: standard input and output
    #[arg(value_name = "-", value_parser = ["-"])]
    pub stdio: String,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Made if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// The command with the exit codes at the end of every help.
pub fn command() -> clap::Command {
    fn ending(command: clap::Command) -> clap::Command {
        let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
        let command = command.after_help(exit::HELP);
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, ending))
    }
    ending(Cli::command())
}

/// Reads arguments, the program's name first. Errors know their own text; so do `--help` and `--version`.
pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}
