//! Calls of code that runs on this machine: the daemon, the executor, checks, playbooks. No other
//! module of the command line calls such code.

use crate::cli::args::{ExecArgs, LocalNodeArgs};
use crate::cli::error::{self, CommandError};
use crate::cli::exit::Exit;
use crate::daemon::{self, NodeConfig};
use crate::module_packer;
use crate::solo;
use crate::telemetry;
use anyhow::Context;
use remoor_cluster::rpc::identity::GossipKey;
use remoor_cluster::rpc::join::JoinError;
use remoor_cluster::rpc::token::Token;
use remoor_exec as exec;
use remoor_exec::ssh;
use remoor_host::files;
use remoor_model::Fault;
use remoor_vault::Vault;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

mod fleet_dir;

pub use crate::daemon::{AddError, AddOptions, Added, ArchivedLog, ToAdd};
pub use crate::daemon::{
    BackupError, BackupHead, NodePlacement, Objection, RebuildResult, RecoverOptions, Recovery,
    RecoveryState as LookedAt,
};
pub use crate::daemon::{PositionAnswer, RestoreOptions, Restored};
pub use crate::solo::digest;
pub use crate::solo::play::{
    Connection as PlayConnectionKind, HostState, Login as PlayLogin, PlayRequest, PlayRunEvent, PlayStop as PlayEnding,
    PlaySummary, PreparedPlay, Prompter as PlayPrompter, Recap, VarsPrompt,
};
pub use crate::solo::{
    AdditionError, Changes, Form, ImportRequest, ImportSummary, LastRun, RenderedCheckFile, ServeOptions, Suite,
    SuiteOptions, SuiteRun, SuiteRunOptions, VaultOptions, check_file_schema, end_programs, goss_json, in_form,
    serve_until_signal, state_home,
};
pub use fleet_dir::{PackedFleet, check_files, import, lint, module_policy, pack};

const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of play events that wait to be shown. If the queue is full, the hosts wait.
const PLAY_QUEUE: usize = 256;

pub struct InitCommand {
    pub here: LocalNodeArgs,
    pub name: String,
    pub force: bool,
    pub gossip_key_file: Option<PathBuf>,
}

pub struct InitResult {
    pub worker_token: String,
    pub manager_token: String,
    pub operator_credentials: PathBuf,
    /// The line for `authorized_keys` on the nodes, so that the managers can log in.
    pub ssh_key: String,
}

pub struct JoinCommand {
    pub here: LocalNodeArgs,
    pub name: String,
    /// API address of a manager: host and port.
    pub addr: String,
    pub token: String,
    pub manager: bool,
    /// Maximum time to wait for `remoor accept`, if the token is public.
    pub wait: Duration,
}

pub struct AgentCommand {
    pub dir: PathBuf,
    pub socket: PathBuf,
}

/// Starts a cluster with the data directory of `options`.
pub fn init(options: InitCommand) -> anyhow::Result<InitResult> {
    // The file is read before the old identity is archived, so that a wrong file changes nothing.
    let gossip_key = options.gossip_key_file.as_deref().map(gossip_key).transpose()?;
    if options.force {
        daemon::archive_data_dir(&options.here.dir).map_err(admin_error)?;
    }
    let config = node_config(&options.here);
    let LocalNodeArgs { dir, ssh_host_keys, authorize, drain, zone, .. } = options.here;
    let options = daemon::InitOptions { dir, name: options.name, config, ssh_host_keys, drain, zone, gossip_key };
    let done = runtime()?.block_on(daemon::init(&options)).map_err(admin_error)?;
    if let Some(user) = authorize {
        let next = "add the line that remoor status -o template='{{ ssh_key }}' prints to its authorized_keys by hand";
        authorize_managers(&user, &done.ssh_key, next)?;
    }
    Ok(InitResult {
        worker_token: done.worker_token,
        manager_token: done.manager_token,
        operator_credentials: done.operator,
        ssh_key: done.ssh_key,
    })
}

/// Reads a gossip key. Rejects a file that other users can read.
fn gossip_key(file: &Path) -> anyhow::Result<GossipKey> {
    GossipKey::load(file).map_err(|error| {
        let stop =
            CommandError::usage_error(format!("the gossip key can't be read from {}", file.display())).cause(&error);
        stop.next("create a file of mode 0600 with 64 hex digits: openssl rand -hex 32").into()
    })
}

/// Converts an error of `init` or `join`. If the command was refused before anything was changed,
/// the exit code is that of a refusal, not of a failure.
fn admin_error(error: daemon::AdminError) -> anyhow::Error {
    use daemon::AdminError as E;
    let (exit, next) = match &error {
        E::Address(_) | E::Token(_) => (Exit::Usage, None),
        other if other.is_refusal() => (Exit::Refused, None),
        E::Join(JoinError::Replaced { .. }) => (
            Exit::Refused,
            Some("create a new token (remoor token rotate, on a manager), then retry the command with it"),
        ),
        E::Disk(e) if e.is_damage() => (Exit::Failed, Some("put that file back, or use another directory with --dir")),
        E::Disk(_) => {
            (Exit::Failed, Some("--dir with a directory that this user can write to, on a disk with free space"))
        }
        _ => return error.into(),
    };
    let mut stop = CommandError::from_error(&error.into());
    stop.exit = exit;
    stop.next = next.map(str::to_owned).or(stop.next);
    stop.into()
}

/// Adds the managers' SSH key to the user's authorized keys. The machine is a node already, so the
/// error says that only the login of the managers is missing.
fn authorize_managers(user: &str, line: &str, next: &str) -> anyhow::Result<()> {
    ssh::authorize_here(user, line).map(drop).map_err(|error| {
        let text = format!("this machine is a node now, but the managers can't log in as {user} yet");
        CommandError::new(Exit::Failed, text).cause(&error).next(next).into()
    })
}

/// Records that the tokens of `init` in `dir` were printed. From then on, another `init` with `dir`
/// is refused.
pub fn record_tokens_printed(dir: &Path) -> anyhow::Result<()> {
    Ok(daemon::mark_tokens_printed(dir)?)
}

/// Joins this machine to the cluster of the manager at `addr`. `tell` receives messages for the
/// operator while the command runs.
pub fn join(options: JoinCommand, tell: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    if let Err(error) = Token::parse(&options.token) {
        let stop = CommandError::usage_error("the token can't be read").cause(&error);
        return Err(stop.next("pass the complete token, as remoor init printed it, in --token-file FILE").into());
    }
    let config = node_config(&options.here);
    let authorize = options.here.authorize;
    let options = daemon::JoinOptions {
        dir: options.here.dir,
        name: options.name,
        config,
        ssh_host_keys: options.here.ssh_host_keys,
        addr: options.addr,
        token: options.token,
        manager: options.manager,
        drain: options.here.drain,
        zone: options.here.zone,
        wait: options.wait,
    };
    let reply = runtime()?.block_on(daemon::join(&options, tell)).map_err(|e| error::join_error(admin_error(e)))?;
    match (authorize, reply.ssh_key) {
        (Some(user), Some(line)) => {
            authorize_managers(&user, &line, &format!("add this line to its authorized_keys: {line}"))
        }
        (Some(_), None) => {
            let stop = CommandError::new(Exit::Failed, "this machine is a node now, but the cluster has no SSH key");
            Err(stop.next("add a key that the managers use to authorized_keys by hand").into())
        }
        (None, _) => Ok(()),
    }
}

/// Whether the token contains the secret that allows to join.
pub fn is_secret_token(text: &str) -> bool {
    Token::parse(text).is_ok_and(|token| !token.secret().is_empty())
}

/// Parses `NODE=ADDR`.
pub fn set_addr(text: &str) -> Result<(String, NodePlacement), String> {
    let (name, place) = text.split_once('=').ok_or("expected NODE=ADDR")?;
    Ok((name.to_owned(), place.parse()?))
}

/// The user that runs this command, for the journal.
pub fn user() -> String {
    match rustix::process::getuid().as_raw() {
        0 => "root".to_owned(),
        uid => format!("uid {uid}"),
    }
}

/// The plan of a recovery, with the objections to it.
pub fn plan_recovery(options: &RecoverOptions) -> anyhow::Result<LookedAt> {
    runtime()?.block_on(daemon::prepare_recovery(options)).map_err(|error| recovery_error(error, &options.dir))
}

/// Executes a recovery.
pub fn recover(recovery: Recovery) -> anyhow::Result<RebuildResult> {
    let dir = recovery.dir().to_owned();
    daemon::recover(recovery).map_err(|error| recovery_error(error, &dir))
}

/// Records the new addresses of nodes in the data directory. Returns the name of this node, and
/// each name with its new gossip address.
pub fn record_addresses(
    dir: &Path,
    places: &[(String, NodePlacement)],
) -> anyhow::Result<(String, Vec<(String, std::net::SocketAddr)>)> {
    daemon::record_addresses(dir, places).map_err(|error| recovery_error(error, dir))
}

/// The archived logs in the data directory that are older than `age`.
pub fn old_archives(dir: &Path, age: Duration) -> anyhow::Result<Vec<ArchivedLog>> {
    daemon::old_archives(dir, age).map_err(|error| recovery_error(error, dir))
}

fn recovery_error(error: daemon::RecoverError, dir: &Path) -> anyhow::Error {
    use daemon::RecoverError as E;
    let (exit, next) = match error {
        E::Admin(error) => return admin_error(error),
        E::NoManager { .. } => (Exit::Refused, "run the command on a machine that was a manager".to_owned()),
        E::OnlyCopy => (Exit::Refused, "remoor demote this node on another manager first".to_owned()),
        E::NoNode { .. } => (Exit::Refused, "run the command on a node, or name its directory with --dir".to_owned()),
        E::NoSuchNode(_) => {
            (Exit::Usage, "use --set-addr NODE=ADDR and --name NODE with a node of this cluster".to_owned())
        }
        E::NodeFile(_) => (Exit::Usage, "correct that file, or put it back".to_owned()),
        E::State(_) => (Exit::Refused, "check the daemon's log on this machine: journalctl -u remoor".to_owned()),
        E::Log(_) | E::Found(_) => {
            let next = format!(
                "run the command on another surviving manager, or restore a backup; keep {} unchanged",
                dir.display()
            );
            (Exit::Failed, next)
        }
    };
    let stop = CommandError::from_error(&error.into());
    CommandError { exit, ..stop }.next(next).into()
}

/// Restores a backup into an empty directory. This machine becomes the only manager.
pub fn restore(options: &RestoreOptions) -> anyhow::Result<Restored> {
    use daemon::RestoreError as E;
    let error = match runtime()?.block_on(daemon::restore(options)) {
        Ok(restored) => return Ok(restored),
        // The usual advice after a disk error is to put a file of the node's directory back. A
        // restore begins with a directory without a node, so this advice would be wrong here.
        Err(E::Recover(daemon::RecoverError::Admin(daemon::AdminError::Disk(error)))) => {
            let stop = CommandError::from_error(&anyhow::Error::from(error));
            let next = "--dir with a directory that is empty or does not exist, and that this user can write to";
            return Err(CommandError { exit: Exit::Refused, ..stop }.next(next).into());
        }
        Err(E::Recover(error)) => return Err(recovery_error(error, &options.dir)),
        Err(E::Backup(error)) => return Err(backup_error(error)),
        Err(error) => error,
    };
    let next = match &error {
        E::Taken { .. } => "--dir with an empty directory; nothing was changed",
        E::HasLeader { .. } | E::UnknownLeader { .. } => {
            "nothing, if that cluster is to continue; otherwise stop remoor on its managers and retry the command; \
             --even-if-majority-alive restores anyway and ends that cluster"
        }
        _ => "use another backup",
    };
    let stop = CommandError::from_error(&error.into());
    Err(CommandError { exit: Exit::Refused, ..stop }.next(next).into())
}

/// Reads a backup and verifies it completely. `identity` has the private key of an encrypted one.
pub fn verify_backup(file: &Path, identity: Option<&Path>) -> anyhow::Result<BackupHead> {
    daemon::verify(file, identity).map_err(backup_error)
}

/// Checks a public key of age.
pub fn recipient(key: &str) -> Result<String, String> {
    daemon::parse_recipient(key).map(|key| key.to_string())
}

fn backup_error(error: BackupError) -> anyhow::Error {
    let (exit, next) = match &error {
        BackupError::File { .. } => (Exit::Usage, "use a file that can be read"),
        BackupError::Encrypted(_) | BackupError::Identity { .. } => {
            (Exit::Refused, "--identity FILE with the private key of age that belongs to the public key")
        }
        BackupError::TooNew { .. } => (Exit::Refused, "install the newer program"),
        _ => (Exit::Refused, "use another backup; remoor backup --verify FILE checks one"),
    };
    let stop = CommandError::from_error(&error.into());
    CommandError { exit, ..stop }.next(next).into()
}

/// Protects the memory and the new files of this process from other users, because both will
/// contain keys of a node.
pub fn protect_process() -> anyhow::Result<()> {
    remoor_host::process::protect_process().context("the memory of this process can't be protected")
}

/// The argument with which this program starts as a child that calls [`serve_rendering`].
const RENDER: &str = "render";

/// From now on, this process renders templates in child processes. Their memory and processor time
/// are limited.
pub fn render_in_children() {
    remoor_host::template::render_in_children(RENDER);
}

/// Renders the templates that the parent process sends.
pub fn serve_rendering() -> anyhow::Result<()> {
    remoor_host::template::serve_rendering().context("rendering for the parent failed")
}

/// Runs the daemon until it is stopped.
pub fn run(options: AgentCommand) -> anyhow::Result<()> {
    let registry = telemetry::Registry::new();
    telemetry::init(&registry)?;
    telemetry::exit_on_panic(&[daemon::OPENING_THREAD], daemon::panic_file(&options.dir));
    let options = daemon::DaemonOptions { dir: options.dir, socket: options.socket };
    let ended = daemon::runtime(&options.dir).context("starting tokio")?.block_on(daemon::run(&options, registry));
    ended.map_err(|error| daemon_error(error, &options.dir))
}

/// Adds the next step to an error about the data directory. Other errors have a next step already.
fn daemon_error(error: daemon::DaemonError, dir: &Path) -> anyhow::Error {
    let next = match &error {
        daemon::DaemonError::NodeFile(_) => {
            "correct that file: it needs an advertise address, api_port and gossip_port".to_owned()
        }
        other if other.is_damage() => format!(
            "put back that file as it was on this machine; or run remoor remove for this node on a manager, move {} away here, and run remoor join",
            dir.display()
        ),
        _ => return error.into(),
    };
    CommandError::from_error(&error.into()).next(next).into()
}

/// Runs the executor for one session of a manager, on standard input and output.
pub fn exec(args: &ExecArgs) -> anyhow::Result<std::process::ExitCode> {
    let working_dir = if args.relative_paths { Some(std::env::current_dir()?) } else { None };
    Ok(exec::main(&args.state_dir, &exec::NodeWork { working_dir }))
}

/// Runs the job on standard input, for an executor.
pub fn serve_job() -> std::process::ExitCode {
    exec::serve_job()
}

/// The SSH host keys that a machine offers now, each as (fingerprint, key). The keys are not
/// verified.
pub fn offered_keys(host: &str, port: u16) -> Result<Vec<(String, String)>, String> {
    let runtime = runtime().map_err(|e| e.to_string())?;
    let keys = runtime.block_on(ssh::scan_host_keys(host, port, SCAN_TIMEOUT)).map_err(|e| e.to_string())?;
    Ok(keys.into_iter().filter_map(|key| Some((ssh::fingerprint(&key)?, key))).collect())
}

/// The SSH host keys of a host in a known_hosts file.
pub fn known_keys(file: &Path, host: &str, port: u16) -> anyhow::Result<Vec<String>> {
    Ok(ssh::known_keys(file, host, port)?)
}

/// The hosts of the applied inventory that are not nodes, and the number of all hosts of the
/// inventory.
pub fn hosts_to_add(socket: &Path, group: Option<&str>) -> anyhow::Result<(Vec<ToAdd>, usize)> {
    Ok(runtime()?.block_on(daemon::to_add(socket, group))?)
}

/// Like [`node_add`], for several machines. The results are in the order of the machines. `tell`
/// receives each message with the name of the node.
pub fn node_add_many(
    all: &[AddOptions],
    tell: &mut dyn FnMut(&str, &str),
) -> anyhow::Result<Vec<Result<Added, AddError>>> {
    Ok(runtime()?.block_on(daemon::add_many(all, tell)))
}

/// Installs remoor on a machine and makes it a node.
pub fn node_add(options: &AddOptions, tell: &mut dyn FnMut(&str)) -> anyhow::Result<Added> {
    Ok(runtime()?.block_on(daemon::add(options, tell))?)
}

/// Parses the name of a zone. An empty text means no zone.
pub fn zone_or_none(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { zone(text) }
}

/// Parses the name of a zone.
pub fn zone(text: &str) -> Result<String, String> {
    use remoor_model::{ZONE_MAX, is_zone};
    let named = is_zone(text).then(|| text.to_owned());
    named.ok_or_else(|| format!("the name of a zone has 1 to {ZONE_MAX} bytes and no spaces"))
}

/// Parses `KEY=VALUE`. The value is YAML.
pub fn extra_var(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((name.to_owned(), remoor_config::parse_value(value)?))
}

/// Makes the digest of paths on this machine.
pub fn take_digest(request: &digest::DigestRequest) -> anyhow::Result<digest::StoredDigest> {
    digest::StoredDigest::compute(request).map_err(digest_error)
}

/// Reads a saved digest.
pub fn read_digest(file: &Path) -> anyhow::Result<digest::StoredDigest> {
    digest::StoredDigest::read(file).map_err(digest_error)
}

/// Compares the present files with the digest `before`. If `paths` is not empty, only those paths
/// are compared.
pub fn compare_digests(
    before: &digest::StoredDigest,
    paths: &[PathBuf],
    key: Option<PathBuf>,
) -> anyhow::Result<digest::DigestComparison> {
    let now = before.repeat_request(paths, key).and_then(|request| digest::StoredDigest::compute(&request));
    Ok(digest::compare(before, &now.map_err(digest_error)?))
}

fn digest_error(error: digest::DigestError) -> anyhow::Error {
    CommandError { exit: Exit::Usage, ..CommandError::from_error(&error.into()) }.into()
}

/// Loads check files with the files that they include, or returns all their faults.
///
/// Freed memory is returned to the system before and after the load, because parsing arguments,
/// loading files and running checks each use other memory.
pub fn suite(options: &SuiteOptions) -> Result<Suite, Vec<Fault>> {
    files::trim_memory();
    let suite = solo::load(options)?;
    files::trim_memory();
    Ok(suite)
}

/// The rendered texts of check files and of the files that they include, with all faults.
pub fn rendered_suite(options: &SuiteOptions) -> Result<(Vec<RenderedCheckFile>, Vec<Fault>), Vec<Fault>> {
    solo::render(options)
}

/// The checks of a host of a fleet directory, to be run on this machine.
pub fn fleet_suite(dir: &Path, host: &str, only: &[String]) -> Result<Suite, Vec<Fault>> {
    solo::suite_of_host(dir, host, check_files(dir, host)?, only)
}

/// Runs a suite on this machine. `tell` receives a message for each try except the last.
pub fn run_suite(suite: &Suite, options: &SuiteRunOptions, tell: &mut dyn FnMut(&str)) -> SuiteRun {
    solo::run(suite, options, tell)
}

/// The JSON Schema of `remoor.yml`.
pub fn fleet_schema() -> serde_json::Value {
    remoor_config::schema()
}

/// Parses one value of `--extra-vars`.
pub fn play_vars(text: &str, vault: &Vault) -> Result<serde_json::Map<String, serde_json::Value>, Vec<Fault>> {
    remoor_config::extra_vars(text, vault)
}

/// Compiles a playbook for all its hosts, or returns all faults. Contacts no host.
pub fn prepare_play(request: PlayRequest) -> Result<PreparedPlay, Vec<Fault>> {
    let prepared = solo::play::prepare(request);
    // The plans contain the modules.
    module_packer::release();
    prepared
}

/// An event of a running play.
pub enum PlayEvent {
    Event(PlayRunEvent),
    /// A Ctrl-C, SIGTERM or SIGHUP arrived. The value is the way in which the play ends.
    Ending(PlayEnding),
}

/// Runs a play on all its hosts. `tell` is called on this thread for each event. After the first
/// Ctrl-C, running tasks finish and no others begin. The second Ctrl-C ends running tasks.
pub fn play(prepared: PreparedPlay, tell: &mut dyn FnMut(PlayEvent)) -> anyhow::Result<PlaySummary> {
    let runtime = runtime()?;
    let summary = runtime.block_on(async {
        let control = solo::play::Control::default();
        let (mut interrupt, mut term, mut hangup) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let (sender, mut events) = mpsc::channel(PLAY_QUEUE);
        let inner = control.clone();
        let run = tokio::spawn(async move { solo::play::run(prepared, &inner, sender).await });
        loop {
            tokio::select! {
                news = events.recv() => match news {
                    Some(news) => tell(PlayEvent::Event(news)),
                    None => break,
                },
                _ = interrupt.recv() => tell(PlayEvent::Ending(control.urge())),
                _ = term.recv() => tell(PlayEvent::Ending(control.urge())),
                _ = hangup.recv() => tell(PlayEvent::Ending(control.urge())),
            }
        }
        run.await.context("the run ended without a summary")
    });
    runtime.shutdown_background();
    summary
}

/// Makes checks for the present state of resources on this machine.
pub fn observe(kind: &str, ids: &[String]) -> Result<Vec<solo::Addition>, AdditionError> {
    solo::observe(kind, ids)
}

/// Makes checks for the present state of a service of this machine and of what belongs to it.
pub fn observe_service(name: &str) -> Result<Vec<solo::Addition>, AdditionError> {
    solo::observe_service(name)
}

/// The checks as the text of a check file.
pub fn addition_text(more: &[solo::Addition]) -> Result<String, AdditionError> {
    solo::addition_text(more)
}

/// Adds all checks to a file, or none of them.
pub fn add_checks_to(file: &Path, more: &[solo::Addition]) -> Result<(), AdditionError> {
    solo::add_to(file, more)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("starting tokio")
}

fn node_config(here: &LocalNodeArgs) -> NodeConfig {
    let LocalNodeArgs { advertise, bind, api_port, gossip_port, .. } = *here;
    NodeConfig { advertise, bind, api_port, gossip_port, metrics: None, certificate_life_s: None, join_requests: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_during_a_ca_rotation_is_told_to_use_a_new_token() {
        let error = daemon::AdminError::Join(JoinError::Replaced { addr: "m1:7947".to_owned() });
        let stop = CommandError::from_error(&error::join_error(admin_error(error)));
        assert_eq!(stop.exit, Exit::Refused);
        assert!(stop.next.is_some_and(|next| next.contains("a new token") && next.contains("retry the command")));
    }
}
