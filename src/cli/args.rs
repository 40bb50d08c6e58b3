//! The command line as clap reads it: all commands, flags and help texts. `docs/reference/cli.md`
//! documents them in full, and a test requires that the page omits no command and no flag.

mod ask;
mod check;
mod digest;
mod disaster;
mod headings;
mod keys;
mod local;
mod order;
mod play;

pub use ask::*;
pub use check::*;
pub use digest::*;
pub use disaster::*;
pub use keys::*;
pub use local::*;
pub use order::*;
pub use play::*;

use super::duration::Span;
use super::exit;
use super::format::Format;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::path::PathBuf;
use std::sync::LazyLock;

/// The socket on which the daemon of this machine listens.
pub const SOCKET: &str = "/run/remoor/remoor.sock";

/// Find out why a server was away and whether its configuration drifted, and set it up again
#[derive(Debug, Parser)]
#[command(name = "remoor", version = VERSION.as_str(), arg_required_else_help = true, max_term_width = 100, propagate_version = true)]
#[command(long_about = "Find out why a server was away and whether its configuration drifted, and set it up again.

Examples:
  remoor status                    which nodes are up, which drifted, what remoor does about it
  remoor why w1                    the full story of one node, and what to do next
  remoor diff w1                   what differs on w1
  remoor resetup w1                clean up and provision w1 again, if it drifted
  remoor lint fleet && remoor apply fleet
  remoor status --exit-code        exit code 1 unless every node is as desired; for scripts")]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show all nodes: presence, drift, and what remoor does about it
    #[command(long_about = "Show all nodes: presence, drift, and what remoor does about it.

Examples:
  remoor status
  remoor status --exit-code --quiet    names of the nodes that are not as desired; 1 if there are any
  remoor status --watch=2s             repeat every 2 seconds")]
    Status(StatusArgs),
    /// List the nodes with their addresses and roles, or describe one node
    Nodes(NodesArgs),
    /// List the Raft members: voters, learners, replication lag, orphans
    #[command(long_about = "List the Raft members: voters and learners, how far each one is behind the leader, when it
last answered, and orphans (members that belong to no node). Changes nothing. Works without a quorum
too; the answer is then marked as stale.

Examples:
  remoor raft-members
  remoor raft-members --table    how many failures a cluster of 1 to 9 managers survives")]
    RaftMembers(RaftMembersArgs),
    /// Print events as they happen, one per line, until Ctrl-C
    Watch(WatchArgs),
    /// Show past events: absences, verdicts, re-setups, operator commands
    History(HistoryArgs),
    /// Explain the state of a node: cause, verdict, what was not done and why, next steps
    Why(WhyArgs),
    /// List, show, follow and cancel jobs (re-setups, decommissionings, undos)
    #[command(subcommand)]
    Job(JobVerb),
    /// Wait until nodes have reached a state
    #[command(
        long_about = "Wait until nodes have reached a state. Exit code 0: reached. 1: not reached before the timeout.

Examples:
  remoor wait w1 --for=clean --timeout=5m"
    )]
    Wait(WaitArgs),
    /// Examine nodes over SSH now, or run check files on this machine
    #[command(long_about = "Examine nodes over SSH now: compare their files with the digest and run their checks.
Changes nothing on the nodes.

With --file, run check files (goss's format or remoor's) on this machine instead. This needs no
cluster, no daemon and no data directory. With --add, write a check for the present state of this
machine.

Examples:
  remoor check w1
  remoor check --file goss.yaml                     1 if a check fails or has no answer
  remoor check --file checks/ --vars vars.yml       all check files of a directory
  remoor check --file - --retry-timeout 1m < goss.yaml
  remoor check --file goss.yaml -o junit > report.xml
  remoor check --add file /etc/nginx/nginx.conf --file goss.yaml")]
    Check(CheckArgs),
    /// Show how the files of a node differ from what they should be
    Diff(DiffArgs),
    /// Record the present state of a node as its baseline; runs nothing
    #[command(long_about = "Record the present state of a node as its baseline, and show what changed; runs nothing.

Examples:
  remoor adopt w1                      all files that the fleet declares
  remoor adopt w1 /etc/etcd/etcd.conf  only this file: keep last night's hot-fix
  remoor adopt --group web")]
    Adopt(AdoptArgs),
    /// Clean up and provision nodes again, if they drifted
    #[command(
        long_about = "Clean up and provision nodes again, if they drifted. The command follows the job; Ctrl-C stops
following, not the job.

Examples:
  remoor resetup w1
  remoor resetup w1 --check                   show what would be done; nothing is run
  remoor resetup w1 --service etcd --force    even if nothing drifted
  remoor resetup --group web --detach"
    )]
    Resetup(ResetupArgs),
    /// Restore the files that an attempt backed up, and hold the node
    #[command(long_about = "Restore the files that an attempt backed up before it changed them, and hold the node.

ATTEMPT is the id that `remoor job show` prints. The first attempt of a job has the number of the
job. Only files are restored: units are neither started nor stopped, and packages stay. The node is
examined at once. It is then held until `remoor resume NODE`, so that it is not set up again
automatically. A node keeps the backups of its last 5 attempts.

Examples:
  remoor undo 17")]
    Undo(UndoArgs),
    /// Validate a fleet directory and make it the current generation; contacts no node
    Apply(ApplyArgs),
    /// Validate a fleet directory: configuration, playbooks, checks, templates
    Lint(LintArgs),
    /// Roll the current generation out to nodes, to a canary first
    Update(UpdateArgs),
    /// Print the inventory in the format of an Ansible inventory script
    Inventory(InventoryArgs),
    /// Provision new nodes for the first time
    Commission(CommissionArgs),
    /// Clean up nodes and do not provision them again
    Decommission(DecommissionArgs),
    /// Clean up nodes and keep them empty; a manager keeps its vote
    #[command(
        long_about = "Clean up nodes and keep them empty: nothing is provisioned on them until `remoor resume NODE`.
A manager keeps its vote.

Prints the affected services and asks for confirmation. Refused if a group with `quorum` would lose
its majority. To set up a machine as a manager without services, use init --drain or join --drain.

Examples:
  remoor drain m1
  remoor drain m1 --confirm m1       without a prompt
  remoor resume m1                   then remoor commission m1: undoes the drain"
    )]
    Drain(DecommissionArgs),
    /// Set the zone (failure domain) of nodes: a rack, a room, a site
    #[command(
        long_about = "Set the zone of nodes: the failure domain that they share, such as a rack or a room. remoor warns if
the loss of one zone would end the quorum of the managers.

Examples:
  remoor zone m1 w3 --set rack-a
  remoor zone m1 --clear
  remoor raft-members --table        the best spread of managers over zones"
    )]
    Zone(ZoneArgs),
    /// Stop automatic re-setups of nodes; they are still examined and reported
    Pause(NodesOrderArgs),
    /// End the pause, hold or drain of nodes; without a node, close the circuit breaker
    Resume(ResumeArgs),
    /// Announce a maintenance window for nodes, or end it
    Maintenance(MaintenanceArgs),
    /// Make nodes managers: each becomes a voter once it has caught up
    #[command(long_about = "Make nodes managers: each first replicates the log as a learner, then becomes a voter.

Waits until the nodes vote; Ctrl-C only stops waiting. Use an odd number of managers: 3 survive the
loss of one, 5 the loss of two.

Examples:
  remoor promote w1 w2           from one manager to three, with one command
  remoor promote w1 --no-wait    remoor nodes shows the progress
  remoor demote w1               reverses it, at any time")]
    Promote(RoleArgs),
    /// Make managers workers, or cancel a promotion that is not finished
    #[command(
        long_about = "Make managers workers: each leaves Raft first. A leader hands its leadership over before it leaves.

Waits until the nodes are workers; Ctrl-C only stops waiting. A manager stays while the remaining
voters would have no quorum. The last manager is refused. For a node that does not vote yet, the
promotion is cancelled.

Examples:
  remoor demote m3
  remoor demote m2 m3 --timeout=10m
  remoor promote m3              reverses it, at any time"
    )]
    Demote(RoleArgs),
    /// Remove nodes from the cluster permanently
    #[command(
        long_about = "Remove nodes from the cluster permanently: their names become free and their keys are rejected.

Nothing is run on the nodes, so their services keep running. Decommission them first if they are to
be cleaned up. A node that is up is refused, and so is a manager: stop or demote it first, or use
--force. Asks for confirmation.

Examples:
  remoor remove w3               w3 is down and will not come back
  remoor remove w1 w2 --yes      one order: all of them, or none
  remoor remove m3 --force       leaves Raft first, then the cluster
  remoor nodes --removed         removed nodes, and until when they are remembered"
    )]
    Remove(RemoveArgs),
    /// Take this machine out of its cluster until it joins again
    #[command(
        long_about = "Take this machine out of its cluster, permanently or until it joins again. Run it as root on the
machine itself.

The managers stop watching the machine and setting it up. Its daemon stops working, and its
certificate is no longer accepted. Nothing is cleaned up: its services keep running, so decommission
it first if they are to end. A manager is refused: demote it first.

If you run remoor join on it later, with its data directory unchanged, it returns as the same node
with its id and history. It is removed automatically after 7 days (remove-left in remoor.yml);
remoor remove NODE removes it at once.

Examples:
  remoor leave
  remoor leave --yes && systemctl disable --now remoor
  remoor nodes                   on a manager: nodes that left, and until when they are kept"
    )]
    Leave(LeaveArgs),
    /// Show or rotate the join tokens
    #[command(subcommand)]
    Token(TokenVerb),
    /// Rotate the keys that all nodes share, show the progress, manage operator credentials
    #[command(subcommand)]
    Key(KeyVerb),
    /// Accept a waiting machine, or a node whose certificate expired
    #[command(
        long_about = "Accept a machine that joins with a public token, or a node whose certificate expired while it was
off.

remoor nodes lists the waiting machines with the fingerprints of their keys. Compare the fingerprint
with the one that remoor join printed on the machine. Your answer is valid for 24 hours; the machine
asks every few seconds.

Examples:
  remoor accept w7
  remoor accept w7 --fingerprint SHA256:... --role manager
  remoor accept w7 --deny"
    )]
    Accept(AcceptArgs),
    /// Trust the changed SSH host key of a node, after you compared its fingerprint
    TrustKey(TrustKeyArgs),
    /// Run an Ansible playbook on the hosts of an inventory; needs no cluster
    #[command(long_about = "Run an Ansible playbook on the hosts of an inventory, over one SSH session per host.

Needs no cluster and no daemon. The hosts need neither Python nor remoor. The playbook is compiled
for every host before any host is changed: errors and unsupported features are reported with file
and line, and the exit code is 2.

Examples:
  remoor play site.yml -i inventory.ini
  remoor play site.yml -i inventory/ --limit 'web:!web3' --check --diff
  remoor play site.yml -i web1,web2, -u deploy --become -e version=1.4
  remoor play setup.yml --connection local
  remoor play site.yml -i hosts.yml --check --exit-code    1 if anything would change")]
    Play(PlayArgs),
    /// Write a fleet directory from a playbook and its inventory; contacts no host
    #[command(long_about = "Write a fleet directory from a playbook and its inventory. Contacts no host.

DIR becomes a fleet: the playbook with its files, remoor.yml with groups and services, a cleanup
playbook, and checks. A service is a role, or the tasks of a playbook outside of roles. All policies
are `report`, so that nothing is set up again before you decide it. With the directory of the
playbook as DIR, only the new files are written. No file is replaced.

The command lists each task whose effect it could not find, with file and line, and the commands
that follow.

Examples:
  remoor import site.yml -i inventory.ini fleet
  remoor import site.yml -i hosts .                     beside the playbook
  remoor import site.yml -i hosts fleet --facts w1.json    facts of a host, not of Debian 12")]
    Import(ImportArgs),
    /// Back up the cluster to a file, now or on a schedule, or verify a backup
    #[command(
        long_about = "Back up the cluster to a file: its state, the files that the state refers to, and the keys. The
manager of this machine writes the file while it runs, and reads it back before it reports success.
The file contains the keys of the cluster: keep it safe, or encrypt it with --recipient for a public
key of age. `age-keygen -o FILE` makes a pair of keys. Keep the private key away from the managers.

Examples:
  remoor backup /var/backups/remoor.backup
  remoor backup /var/backups/remoor.backup --recipient age1...
  remoor backup --verify /var/backups/remoor.backup
  remoor backup /var/backups/remoor --every 6h --keep 14
  remoor backup --end                                     stop scheduled backups"
    )]
    Backup(BackupArgs),
    /// Restore a cluster from a backup into an empty data directory
    #[command(
        long_about = "Restore a cluster from a backup into an empty data directory. This machine becomes the only manager,
in a new epoch. Workers follow automatically. The other managers count as lost until you promote or
demote them.

Examples:
  remoor restore /var/backups/remoor.backup
  remoor restore b --name m2 --set-addr m2=10.0.0.9"
    )]
    Restore(RestoreArgs),
    /// Rebuild the cluster on a surviving manager after the quorum was lost permanently
    #[command(
        long_about = "Rebuild the cluster on a surviving manager after the quorum was lost permanently. Stop the daemon of
this machine first. The other managers are asked before anything is changed. The command is refused
if they have a quorum, follow a leader, or have a longer log than this manager.

Without --force-new-cluster, --set-addr only records on this machine where other nodes are now. It
loses nothing. Use it if all addresses changed at once.

Examples:
  remoor recover --force-new-cluster --dry-run    show what would be done, and any objections
  remoor recover --force-new-cluster
  remoor recover --force-new-cluster --set-addr m1=10.0.0.9
  remoor recover --set-addr m1=10.1.0.1 --set-addr m2=10.1.0.2    find nodes that have moved
  remoor recover --delete-archives 30d            delete old archived logs"
    )]
    Recover(RecoverArgs),
    /// Start a new cluster on this machine and print its join tokens
    Init(InitArgs),
    /// Join this machine to a cluster
    Join(JoinArgs),
    /// Run the daemon; normally started by systemd
    Agent(AgentArgs),
    /// Hash files of this machine, or compare them with earlier hashes; needs no cluster
    #[command(
        long_about = "Hash files of this machine with their attributes, or compare them with earlier hashes. Needs no
cluster.

Examples:
  remoor digest /etc -o json > etc.json    save the hashes
  remoor digest --compare etc.json         1 if something changed
  remoor digest /etc/nginx -o wide         every file with its hash"
    )]
    Digest(DigestArgs),
    /// Add machines to the cluster over SSH
    #[command(subcommand)]
    Node(NodeVerb),
    /// Serve one session of a manager on standard input and output; managers start it over SSH
    #[command(hide = true)]
    Exec(ExecArgs),
    /// Render templates for the process that starts it
    #[command(hide = true)]
    Render,
    /// Run a task of a playbook in the background, for the executor that starts it
    #[command(hide = true)]
    RunTask,
    /// Print the JSON Schema of check files or of remoor.yml, for editors
    Schema(SchemaArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
    /// Write the manual pages to a directory
    Man(ManArgs),
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionOptions {
    /// Socket of the daemon on this machine
    #[arg(long, value_name = "PATH", env = "REMOOR_SOCKET", default_value = SOCKET, hide_env_values = true)]
    pub socket: PathBuf,
    /// Ask these managers over TLS instead, in this order (repeatable, or separated by commas)
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "REMOOR_MANAGER",
        hide_env_values = true,
        value_delimiter = ',',
        requires = "credentials"
    )]
    pub manager: Vec<String>,
    /// File with operator credentials, written by `remoor init` or `remoor key operator`
    #[arg(long, value_name = "FILE", env = "REMOOR_CREDENTIALS", hide_env_values = true)]
    pub credentials: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Format: table, wide, json, or template='...' (a Tera template over the JSON)
    #[arg(short, long, value_name = "FORMAT", default_value = "table", conflicts_with = "json")]
    pub output: Format,
    /// Same as --output=json
    #[arg(long)]
    pub json: bool,
    /// Omit the header line of tables
    #[arg(long)]
    pub no_headers: bool,
    /// Print names only
    #[arg(short, long)]
    pub quiet: bool,
}

impl Output {
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output.clone() }
    }
}

/// The nodes that a command applies to.
#[derive(Debug, Clone, Default, Args)]
pub struct NodeSelection {
    /// Names of nodes
    #[arg(value_name = "NODE", required_unless_present_any = ["group", "all"])]
    pub nodes: Vec<String>,
    /// All nodes of a group
    #[arg(short, long, value_name = "GROUP", conflicts_with = "nodes")]
    pub group: Option<String>,
    /// All nodes of the fleet
    #[arg(long, conflicts_with_all = ["nodes", "group"])]
    pub all: bool,
}

/// How a command that starts a job follows it.
#[derive(Debug, Clone, Default, Args)]
pub struct FollowOptions {
    /// Refuse, instead of queueing the order, if the node is away
    #[arg(long)]
    pub no_queue: bool,
    /// Follow the job until it ends (default)
    #[arg(long)]
    pub wait: bool,
    /// Return at once; do not follow the job
    #[arg(short, long, visible_alias = "no-wait", conflicts_with = "wait")]
    pub detach: bool,
}

/// How a command waits until its order has taken effect.
#[derive(Debug, Clone, Args)]
pub struct WaitOptions {
    /// Wait until the change has taken effect (default)
    #[arg(long)]
    pub wait: bool,
    /// Return as soon as the order is accepted
    #[arg(long, conflicts_with_all = ["wait", "timeout"])]
    pub no_wait: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub timeout: Span,
}

/// The top command. Its help lists the commands under headings, and every help text ends with the
/// exit codes.
pub fn command() -> clap::Command {
    fn add_exit_codes(command: clap::Command) -> clap::Command {
        let names: Vec<String> = command.get_subcommands().map(|c| c.get_name().to_owned()).collect();
        let command = command.after_help(exit::HELP);
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, add_exit_codes))
    }
    headings::add_to(add_exit_codes(Cli::command()))
}

/// The version, and the commit with its date. Only `packaging/build.sh` sets the two.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION");
    match (option_env!("REMOOR_COMMIT"), option_env!("REMOOR_COMMIT_DATE")) {
        (Some(commit), Some(date)) => format!("{version} (commit {commit} of {date}, {})", std::env::consts::ARCH),
        _ => format!("{version} (not built as a package)"),
    }
});

/// Parses arguments; the first one is the program's name. `--help` and `--version` are returned as
/// errors whose text is the answer.
pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|e| e.format(&mut command))
}
