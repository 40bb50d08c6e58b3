//! The command line as clap sees it: every verb, flag and help text. `docs/cli.md` says the same at length, and a test
//! holds the two together. Decides nothing.

mod ask;
mod check;
mod digest;
mod disaster;
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

use super::exit;
use super::format::Format;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
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
  remoor status --exit-code --quiet    which are not as desired; 1 if any is
  remoor status --watch=2s")]
    Status(StatusArgs),
    /// List the nodes with addresses and roles, or describe one
    Nodes(NodesArgs),
    /// List Raft's own members: who votes, who learns, how far behind, and what is nobody's
    #[command(
        long_about = "List Raft's own members: who votes, who learns, how far behind they are, when they answered last,
and what is nobody's. Changes nothing; works without a majority too, and says then that it is stale.

Examples:
  remoor raft-members
  remoor raft-members --table    how many losses so many managers survive"
    )]
    RaftMembers(RaftMembersArgs),
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
    /// Examine nodes now over SSH: digest and checks; or run check files on this machine
    #[command(long_about = "Examine nodes now over SSH: digest and checks; runs nothing else.

With --file, run check files on this machine instead, goss's or remoor's: no cluster, no daemon
and no data directory are needed. With --add, write a check of what this machine has now.

Examples:
  remoor check w1
  remoor check --file goss.yaml                     1 if anything fails or can't be told
  remoor check --file checks/ --vars vars.yml       a directory; files with a `remoor:` block too
  remoor check --file - --retry-timeout 1m < goss.yaml
  remoor check --file goss.yaml -o junit > report.xml
  remoor check --add file /etc/nginx/nginx.conf --file goss.yaml")]
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
  remoor resetup w1 --check                   what would be done; nothing is run
  remoor resetup w1 --service etcd --force    also if nothing drifted
  remoor resetup --group web --detach"
    )]
    Resetup(ResetupArgs),
    /// Put back the files that an attempt copied aside, and hold the node
    #[command(long_about = "Put back the files that an attempt copied aside before it touched them, and hold the node.

ATTEMPT is the id that `remoor job show` prints; the first attempt of a job has the job's number. Only files are put
back: units are neither started nor stopped, packages stay. The node is examined at once and then held until
`remoor resume NODE`, so that nothing sets it up again by itself. A node keeps the copies of its last 5 attempts.

Examples:
  remoor undo 17")]
    Undo(UndoArgs),
    /// Check a fleet directory and make it the current generation; contacts no node
    Apply(ApplyArgs),
    /// Check a fleet directory: configuration, playbooks, checks, templates; or one of playbooks alone
    Lint(LintArgs),
    /// Roll the current generation out to nodes, the first one alone
    Update(UpdateArgs),
    /// Print the inventory as Ansible reads it from a script
    Inventory(InventoryArgs),
    /// Provision new nodes for the first time
    Commission(CommissionArgs),
    /// Clean nodes up and provision them no more
    Decommission(DecommissionArgs),
    /// Clean nodes up and keep them empty; a manager goes on voting
    #[command(
        long_about = "Clean nodes up and keep them empty: nothing is provisioned on them until `remoor resume NODE`. A manager goes on voting.

Asks first, and prints the services. Refused where too few of a group with `quorum` would be left.
A machine that is only to manage is drained from the first: init --drain, join --drain.

Examples:
  remoor drain m1
  remoor drain m1 --confirm m1       without asking
  remoor resume m1                   and remoor commission m1: as before"
    )]
    Drain(DecommissionArgs),
    /// Say what fails together: a rack, a room; managers are to stand in several
    #[command(
        long_about = "Say in which zone nodes stand: what fails together, a rack or a room. Of managers it is told where the \
loss of one zone would end the quorum.

Examples:
  remoor zone m1 w3 --set rack-a
  remoor zone m1 --clear
  remoor raft-members --table        how managers are spread best"
    )]
    Zone(ZoneArgs),
    /// Examine and report only: no automatic re-setup of these nodes
    Pause(NodesOrderArgs),
    /// End pause and hold of nodes; without a node, close the breaker
    Resume(ResumeArgs),
    /// Announce an absence, or end the announcement
    Maintenance(MaintenanceArgs),
    /// Make managers of nodes: they vote once they have caught up
    #[command(long_about = "Make managers of nodes: each learns the log, and votes once it has caught up.

Follows until it is so; Ctrl-C only stops following. An odd number survives most: 3 the loss of one, 5 of two.

Examples:
  remoor promote w1 w2           one order: of one manager make three
  remoor promote w1 --no-wait    remoor nodes shows how far it is
  remoor demote w1               takes it back, at any time")]
    Promote(RoleArgs),
    /// Make workers of managers; of one that has no vote yet, cancel the promotion
    #[command(long_about = "Make workers of managers: each leaves Raft first, the leader after another one leads.

Follows until it is so; Ctrl-C only stops following. It waits while no majority would be left that answers; the last
manager is refused. Of a node that has no vote yet it cancels the promotion.

Examples:
  remoor demote m3
  remoor demote m2 m3 --timeout=10m
  remoor promote m3              takes it back, at any time")]
    Demote(RoleArgs),
    /// Take nodes out of the cluster for good
    #[command(long_about = "Take nodes out of the cluster for good: their names are free, their keys are refused.

Nothing is run on them: what they serve they go on serving, so decommission first what is to be cleaned up. A node that is up
is refused, and so is a manager: stop or demote it first, or use --force. Asks before it does anything.

Examples:
  remoor remove w3               it is down, and won't come back
  remoor remove w1 w2 --yes      one order: all of them, or none
  remoor remove m3 --force       leaves Raft first, then the cluster
  remoor nodes --removed         who was removed, and until when that is remembered")]
    Remove(RemoveArgs),
    /// Take this machine out of its cluster, until it joins again
    #[command(
        long_about = "Take this machine out of its cluster, for good or until it joins again. To be said on the machine itself, by root.

The managers stop watching it and set it up no more, its daemon parks, its certificate opens nothing any more.
Nothing is cleaned up here: what it serves it goes on serving, so decommission it first where that is to end.
A manager is refused: demote it first.

remoor join on it, with its data directory as it is, brings it back as the same node, with id and history. After
7 days (remove-left in remoor.yml) it is removed by itself; remoor remove NODE does that at once.

Examples:
  remoor leave
  remoor leave --yes && systemctl disable --now remoor
  remoor nodes                   on a manager: who has left, and until when it is kept"
    )]
    Leave(LeaveArgs),
    /// Show or replace the tokens by which machines join
    #[command(subcommand)]
    Token(TokenVerb),
    /// Replace the keys that all nodes share, or show how far that is
    #[command(subcommand)]
    Key(KeyVerb),
    /// Let in a machine that waits, or a node whose certificate ran out
    #[command(
        long_about = "Let in a machine that joins without a secret, or a node whose certificate ran out while it was off.

remoor nodes lists who waits, each with the fingerprint of its key: compare it with what remoor join printed there.
A yes or no counts for 24 hours; the machine asks every few seconds.

Examples:
  remoor accept w7
  remoor accept w7 --fingerprint SHA256:... --role manager
  remoor accept w7 --deny"
    )]
    Accept(AcceptArgs),
    /// Accept the changed SSH host key of a node after comparing its fingerprint
    TrustKey(TrustKeyArgs),
    /// Run an Ansible playbook on the hosts of an inventory; needs no cluster
    #[command(long_about = "Run an Ansible playbook on the hosts of an inventory, over one SSH session for each.

Needs no cluster, no daemon, and on the hosts neither Python nor anything of remoor. Every host's part is compiled before any \
host is touched: what is wrong, and what of the language remoor hasn't, is told with its place, and 2 is the exit code.

Examples:
  remoor play site.yml -i inventory.ini
  remoor play site.yml -i inventory/ --limit 'web:!web3' --check --diff
  remoor play site.yml -i web1,web2, -u deploy --become -e version=1.4
  remoor play setup.yml --connection local
  remoor play site.yml -i hosts.yml --check --exit-code    1 if anything would be changed")]
    Play(PlayArgs),
    /// Back up the cluster into a file, now or from time to time, or check one
    #[command(
        long_about = "Back up the cluster into a file: its state, what that names, and the keys. The manager of this machine
makes it while it runs, and reads it back before it says done. The file holds the keys of the cluster.

Examples:
  remoor backup /var/backups/remoor.backup
  remoor backup --verify /var/backups/remoor.backup
  remoor backup /var/backups/remoor --every 6h --keep 14
  remoor backup --end                                     no more by themselves"
    )]
    Backup(BackupArgs),
    /// Make an empty data directory the only manager of a cluster that a backup holds
    #[command(
        long_about = "Make an empty data directory the only manager of a cluster that a backup holds, in a new epoch. Workers
come over by themselves; the other managers are lost until they are promoted or demoted.

Examples:
  remoor restore /var/backups/remoor.backup
  remoor restore b --name m2 --set-addr m2=10.0.0.9"
    )]
    Restore(RestoreArgs),
    /// Found the cluster anew on a survivor, where the majority of the managers is lost for ever
    #[command(
        long_about = "Found the cluster anew on a survivor, where the majority of the managers is lost for ever. The daemon of
this machine must not run. The other managers are asked first: it is refused while they are a majority, follow a
leader, or know more than this one.

Examples:
  remoor recover --force-new-cluster --dry-run    what would be done, and what speaks against it
  remoor recover --force-new-cluster
  remoor recover --force-new-cluster --set-addr m1=10.0.0.9"
    )]
    Recover(RecoverArgs),
    /// Start a cluster on this machine; prints the tokens by which others join
    Init(InitArgs),
    /// Make this machine a node of a cluster
    Join(JoinArgs),
    /// Run the daemon; systemd does this
    Agent(AgentArgs),
    /// Hash files of this machine, or tell what changed since; needs no cluster
    #[command(
        long_about = "Hash files of this machine with their attributes, or tell what changed since. Needs no cluster.

Examples:
  remoor digest /etc -o json > etc.json    keep it
  remoor digest --compare etc.json         1 if something changed
  remoor digest /etc/nginx -o wide         every file with its hash"
    )]
    Digest(DigestArgs),
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
    /// All nodes of the applied fleet
    #[arg(long, conflicts_with_all = ["nodes", "group"])]
    pub all: bool,
}

/// How an order that leads to a job is followed.
#[derive(Debug, Clone, Default, Args)]
pub struct Following {
    /// Refuse instead of queueing for a node that is away
    #[arg(long)]
    pub no_queue: bool,
    /// Follow the job, as is done if nothing is said
    #[arg(long)]
    pub wait: bool,
    /// Don't follow the job
    #[arg(short, long, visible_alias = "no-wait", conflicts_with = "wait")]
    pub detach: bool,
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
