//! The only place where the command line calls what runs on this machine: the daemon, the executor, the fleet's checks.

use crate::cli::args::Here;
use crate::cli::error::{self, Stop};
use crate::cli::exit::Exit;
use crate::config::Fleet;
use crate::daemon::{self, NodeConfig};
use crate::model::{CheckFile, Fault};
use crate::rpc::identity::GossipKey;
use crate::rpc::join::JoinError;
use crate::rpc::token::Token;
use crate::{exec, files, fleet, solo, ssh, telemetry};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

pub use crate::daemon::{AddError, AddOptions, Added, ToAdd};
pub use crate::daemon::{
    BackupError, BackupHead, Founded, Looked as LookedAt, Objection, Place, RecoverOptions, Recovery,
};
pub use crate::daemon::{RestoreOptions, Restored, Said};
pub use crate::solo::digest;
pub use crate::solo::play::{
    Connection as PlayConnectionKind, Ending as PlayEnding, HostState, Login as PlayLogin, Prepared as PreparedPlay,
    Recap, Request as PlayRequest, Summary, Told,
};
pub use crate::solo::{
    AdditionError, Changes, Form, LastRun, RunOptions as SuiteRunOptions, Suite, SuiteOptions, SuiteRun, end_programs,
    goss_json, in_form, state_home,
};

const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// News of a play that were not shown yet; more wait on their hosts.
const PLAY_QUEUE: usize = 256;

pub struct InitOptions {
    pub here: Here,
    pub name: String,
    pub force: bool,
    pub gossip_key_file: Option<PathBuf>,
}

pub struct InitDone {
    pub worker_token: String,
    pub manager_token: String,
    pub operator_credentials: PathBuf,
    /// The line for `authorized_keys` of nodes, by which the managers log in.
    pub ssh_key: String,
}

pub struct JoinOptions {
    pub here: Here,
    pub name: String,
    /// API of a manager, host and port.
    pub addr: String,
    pub token: String,
    pub manager: bool,
    /// How long to wait for an operator's yes, where the token has no secret.
    pub wait: Duration,
}

pub struct RunOptions {
    pub dir: PathBuf,
    pub socket: PathBuf,
}

/// Starts a cluster in `dir`.
pub fn init(options: InitOptions) -> anyhow::Result<InitDone> {
    // Before anything is moved.
    let gossip_key = options.gossip_key_file.as_deref().map(gossip_key).transpose()?;
    if options.force {
        daemon::move_aside(&options.here.dir).map_err(of_admin)?;
    }
    let config = node_config(&options.here);
    let Here { dir, ssh_host_keys, authorize, drain, zone, .. } = options.here;
    let options = daemon::InitOptions { dir, name: options.name, config, ssh_host_keys, drain, zone, gossip_key };
    let done = runtime()?.block_on(daemon::init(&options)).map_err(of_admin)?;
    if let Some(user) = authorize {
        let next = "put the line that remoor status -o template='{{ ssh_key }}' prints there by hand";
        authorized(&user, &done.ssh_key, next)?;
    }
    Ok(InitDone {
        worker_token: done.worker_token,
        manager_token: done.manager_token,
        operator_credentials: done.operator,
        ssh_key: done.ssh_key,
    })
}

/// A key that others could have read is none.
fn gossip_key(file: &Path) -> anyhow::Result<GossipKey> {
    GossipKey::load(file).map_err(|error| {
        let stop = Stop::usage(format!("the gossip key can't be read from {}", file.display())).cause(&error);
        stop.next("a file of mode 0600 with 64 hex digits: openssl rand -hex 32").into()
    })
}

/// Of `init` and `join`: what was refused before anything was begun does not count as a failure.
fn of_admin(error: daemon::AdminError) -> anyhow::Error {
    use daemon::AdminError as E;
    let (exit, next) = match &error {
        E::Address(_) | E::Token(_) => (Exit::Usage, None),
        other if other.is_refusal() => (Exit::Refused, None),
        E::Join(JoinError::Replaced { .. }) => {
            (Exit::Refused, Some("with a new token (remoor token rotate, on a manager), the same command"))
        }
        E::Disk(e) if e.is_damage() => (Exit::Failed, Some("put that file back, or name another directory with --dir")),
        E::Disk(_) => (Exit::Failed, Some("--dir with a directory in which this user may write, on a disk with room")),
        _ => return error.into(),
    };
    let mut stop = Stop::of(&error.into());
    stop.exit = exit;
    stop.next = next.map(str::to_owned).or(stop.next);
    stop.into()
}

/// The node is one already; only the managers' login is missing where this fails.
fn authorized(user: &str, line: &str, next: &str) -> anyhow::Result<()> {
    ssh::authorize_here(user, line).map(drop).map_err(|error| {
        let text = format!("this machine is a node now, but the managers can't log in as {user} yet");
        Stop::new(Exit::Failed, text).cause(&error).next(next).into()
    })
}

/// The tokens of `init` in `dir` were told: a next `init` there refuses, instead of making new ones.
pub fn tokens_told(dir: &Path) -> anyhow::Result<()> {
    Ok(daemon::tokens_told(dir)?)
}

/// Makes this machine a node of the cluster behind `addr`; `tell` hears what is to be done meanwhile.
pub fn join(options: JoinOptions, tell: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    if let Err(error) = Token::parse(&options.token) {
        let stop = Stop::usage("the token can't be read").cause(&error);
        return Err(stop.next("the whole token, as remoor init printed it, in --token-file FILE").into());
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
    let reply = runtime()?.block_on(daemon::join(&options, tell)).map_err(|e| error::of_join(of_admin(e)))?;
    match (authorize, reply.ssh_key) {
        (Some(user), Some(line)) => authorized(&user, &line, &format!("add this line to its authorized_keys: {line}")),
        (Some(_), None) => {
            let stop = Stop::new(Exit::Failed, "this machine is a node now, but the cluster has no SSH key of its own");
            Err(stop.next("put a key that the managers use into authorized_keys by hand").into())
        }
        (None, _) => Ok(()),
    }
}

/// Whether whoever reads this token could join by it.
pub fn is_secret_token(text: &str) -> bool {
    Token::parse(text).is_ok_and(|token| !token.secret().is_empty())
}

/// `NODE=ADDR`.
pub fn set_addr(text: &str) -> Result<(String, Place), String> {
    let (name, place) = text.split_once('=').ok_or("it is written NODE=ADDR")?;
    Ok((name.to_owned(), place.parse()?))
}

/// Who runs this command, for the journal.
pub fn user() -> String {
    match rustix::process::getuid().as_raw() {
        0 => "root".to_owned(),
        uid => format!("uid {uid}"),
    }
}

/// What a recovery would do, and what speaks against it.
pub fn look_at(options: &RecoverOptions) -> anyhow::Result<LookedAt> {
    runtime()?.block_on(daemon::look(options)).map_err(|error| of_recovery(error, &options.dir))
}

/// Does it.
pub fn recover(recovery: Recovery) -> anyhow::Result<Founded> {
    let dir = recovery.dir().to_owned();
    daemon::recover(recovery).map_err(|error| of_recovery(error, &dir))
}

fn of_recovery(error: daemon::RecoverError, dir: &Path) -> anyhow::Error {
    use daemon::RecoverError as E;
    let (exit, next) = match error {
        E::Admin(error) => return of_admin(error),
        E::NoManager { .. } => (Exit::Refused, "the same command on a machine that was a manager".to_owned()),
        E::NoSuchNode(_) => {
            (Exit::Usage, "--set-addr NODE=ADDR and --name NODE with a node of this cluster".to_owned())
        }
        E::NodeFile(_) => (Exit::Usage, "correct that file, or put it back".to_owned()),
        E::State(_) => (Exit::Refused, "look at the log of this machine".to_owned()),
        E::Log(_) | E::Found(_) => {
            let next =
                format!("the same command on another survivor, or a backup, while {} stays as it is", dir.display());
            (Exit::Failed, next)
        }
    };
    let stop = Stop::of(&error.into());
    Stop { exit, ..stop }.next(next).into()
}

/// Makes an empty directory that of the only manager of what a backup holds.
pub fn restore(options: &RestoreOptions) -> anyhow::Result<Restored> {
    use daemon::RestoreError as E;
    let error = match runtime()?.block_on(daemon::restore(options)) {
        Ok(restored) => return Ok(restored),
        // Of a directory that is no node's nothing is to be put back.
        Err(E::Recover(daemon::RecoverError::Admin(daemon::AdminError::Disk(error)))) => {
            let stop = Stop::of(&anyhow::Error::from(error));
            let next = "--dir with a directory that is empty, or not there yet, and that this user may write";
            return Err(Stop { exit: Exit::Refused, ..stop }.next(next).into());
        }
        Err(E::Recover(error)) => return Err(of_recovery(error, &options.dir)),
        Err(E::Backup(error)) => return Err(of_backup(error)),
        Err(error) => error,
    };
    let next = match &error {
        E::Taken { .. } => "--dir with an empty directory; nothing was touched",
        E::Led { .. } | E::Unclear { .. } => {
            "nothing, where that cluster is to go on; else stop remoor on its managers, and the same command; \
             --even-if-majority-alive restores all the same, and ends it"
        }
        _ => "another backup",
    };
    let stop = Stop::of(&error.into());
    Err(Stop { exit: Exit::Refused, ..stop }.next(next).into())
}

/// A backup that is whole.
pub fn verify_backup(file: &Path) -> anyhow::Result<BackupHead> {
    daemon::verify(file).map_err(of_backup)
}

fn of_backup(error: BackupError) -> anyhow::Error {
    let (exit, next) = match &error {
        BackupError::File { .. } => (Exit::Usage, "name a file that can be read"),
        BackupError::TooNew { .. } => (Exit::Refused, "install the newer program"),
        _ => (Exit::Refused, "another backup; remoor backup --verify FILE tells whether one is whole"),
    };
    let stop = Stop::of(&error.into());
    Stop { exit, ..stop }.next(next).into()
}

/// The daemon; returns when it was told to stop.
pub fn run(options: RunOptions) -> anyhow::Result<()> {
    let registry = telemetry::Registry::new();
    telemetry::init(&registry)?;
    telemetry::exit_on_panic(&[daemon::OPENING_THREAD], daemon::last_words(&options.dir));
    let options = daemon::RunOptions { dir: options.dir, socket: options.socket };
    let ended = daemon::runtime(&options.dir).context("starting tokio")?.block_on(daemon::run(&options, registry));
    ended.map_err(|error| of_daemon(error, &options.dir))
}

/// What to do about a directory that a daemon can't start on; other errors say it themselves.
fn of_daemon(error: daemon::DaemonError, dir: &Path) -> anyhow::Error {
    let next = match &error {
        daemon::DaemonError::NodeFile(_) => {
            "correct that file: an advertise address, api_port and gossip_port".to_owned()
        }
        other if other.is_damage() => format!(
            "put that file back as it was on this machine; or remoor remove this node on a manager, move {} aside here, and remoor join",
            dir.display()
        ),
        _ => return error.into(),
    };
    Stop::of(&error.into()).next(next).into()
}

/// Serves one session on standard input and output.
pub fn exec(state_dir: &Path) -> anyhow::Result<std::process::ExitCode> {
    Ok(exec::main(state_dir, &exec::NodeWork))
}

/// The SSH host keys that a machine offers now, each with its fingerprint; nobody vouches for them.
pub fn offered_keys(host: &str, port: u16) -> Result<Vec<(String, String)>, String> {
    let runtime = runtime().map_err(|e| e.to_string())?;
    let keys = runtime.block_on(ssh::scan_host_keys(host, port, SCAN_TIMEOUT)).map_err(|e| e.to_string())?;
    Ok(keys.into_iter().filter_map(|key| Some((ssh::fingerprint(&key)?, key))).collect())
}

/// The SSH host keys that a file of known hosts has for a host.
pub fn known_keys(file: &Path, host: &str, port: u16) -> anyhow::Result<Vec<String>> {
    Ok(ssh::known_keys(file, host, port)?)
}

/// Hosts of the applied inventory that are no nodes, and how many there are with those that are.
pub fn to_add(socket: &Path, group: Option<&str>) -> anyhow::Result<(Vec<ToAdd>, usize)> {
    Ok(runtime()?.block_on(daemon::to_add(socket, group))?)
}

/// Each as [`node_add`] does it, in their order; `tell` gets each line with its node's name.
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

/// The name of a zone, or nothing.
pub fn zone_or_none(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { zone(text) }
}

/// The name of a zone.
pub fn zone(text: &str) -> Result<String, String> {
    use crate::model::{ZONE_MAX, is_zone};
    let named = is_zone(text).then(|| text.to_owned());
    named.ok_or_else(|| format!("a zone's name has 1 to {ZONE_MAX} bytes, and no spaces"))
}

/// `KEY=VALUE` of an order, the value as YAML.
pub fn extra_var(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text.split_once('=').ok_or("it is written KEY=VALUE")?;
    Ok((name.to_owned(), crate::config::value(value)?))
}

/// The check files of a fleet directory as this host would get them: with the inventory's addresses, and without facts.
pub fn check_files(dir: &Path, host: &str) -> Result<Vec<CheckFile>, Vec<Fault>> {
    let loaded = Fleet::load(dir)?;
    fleet::listed(&loaded, host, &fleet::Known::default(), &serde_json::Map::new())
}

/// The digest of paths of this machine.
pub fn take_digest(request: &digest::Request) -> anyhow::Result<digest::Taken> {
    digest::Taken::of(request).map_err(of_digest)
}

/// A digest that was kept.
pub fn read_digest(file: &Path) -> anyhow::Result<digest::Taken> {
    digest::Taken::read(file).map_err(of_digest)
}

/// What is different now of what `before` is of; `paths`: only of these.
pub fn compare_digests(
    before: &digest::Taken,
    paths: &[PathBuf],
    key: Option<PathBuf>,
) -> anyhow::Result<digest::Comparison> {
    let now = before.again(paths, key).and_then(|request| digest::Taken::of(&request));
    Ok(digest::compare(before, &now.map_err(of_digest)?))
}

fn of_digest(error: digest::DigestError) -> anyhow::Error {
    Stop { exit: Exit::Usage, ..Stop::of(&error.into()) }.into()
}

/// Every fault of a fleet directory, warnings too; without `remoor.yml`, of the playbooks that lie there.
pub fn lint(dir: &Path) -> Vec<Fault> {
    let named = ["remoor.yml", "remoor.yaml"].iter().any(|name| dir.join(name).exists());
    if dir.is_dir() && !named {
        return solo::play::lint(dir);
    }
    match Fleet::load(dir) {
        Ok(loaded) => fleet::lint(&loaded),
        Err(faults) => faults,
    }
}

/// The fleet as `/v1/apply` takes it.
pub fn pack(dir: &Path) -> Result<Vec<u8>, Vec<Fault>> {
    let loaded = Fleet::load(dir)?;
    rmp_serde::to_vec_named(&loaded.files)
        .map_err(|e| vec![Fault::error(&dir.display().to_string(), 0, 0, format!("can't be packed: {e}"))])
}

/// Check files of this machine, with what they include, or everything that is wrong with them.
///
/// Beside a small suite most of the memory is the program: reading arguments, reading files and running checks each use another
/// part of it.
pub fn suite(options: &SuiteOptions) -> Result<Suite, Vec<Fault>> {
    files::let_go();
    let suite = solo::load(options)?;
    files::let_go();
    Ok(suite)
}

/// Runs them here; `tell` hears of each try but the last.
pub fn run_suite(suite: &Suite, options: &SuiteRunOptions, tell: &mut dyn FnMut(&str)) -> SuiteRun {
    solo::run(suite, options, tell)
}

/// Variables of one `--extra-vars`.
pub fn play_vars(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, Vec<Fault>> {
    crate::config::extra_vars(text)
}

/// A playbook compiled for every host that it means, or everything that is wrong; no host is touched.
pub fn prepare_play(request: PlayRequest) -> Result<PreparedPlay, Vec<Fault>> {
    solo::play::prepare(request)
}

/// What a play has to say.
pub enum PlayNews {
    Told(Told),
    /// A Ctrl-C came, or another's wish that it ends; so it is to end now.
    Urged(PlayEnding),
}

/// Runs it on all its hosts to the end; `tell` is called on this thread as the news come. Ctrl-C lets tasks under way finish,
/// the second one ends them.
pub fn play(prepared: PreparedPlay, tell: &mut dyn FnMut(PlayNews)) -> anyhow::Result<Summary> {
    let runtime = runtime()?;
    let summary = runtime.block_on(async {
        let control = solo::play::Control::default();
        let (mut interrupt, mut term, mut hangup) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let (sender, mut told) = mpsc::channel(PLAY_QUEUE);
        let inner = control.clone();
        let run = tokio::spawn(async move { solo::play::run(prepared, &inner, sender).await });
        loop {
            tokio::select! {
                news = told.recv() => match news {
                    Some(news) => tell(PlayNews::Told(news)),
                    None => break,
                },
                _ = interrupt.recv() => tell(PlayNews::Urged(control.urge())),
                _ = term.recv() => tell(PlayNews::Urged(control.urge())),
                _ = hangup.recv() => tell(PlayNews::Urged(control.urge())),
            }
        }
        run.await.context("the run ended without a summary")
    });
    runtime.shutdown_background();
    summary
}

/// Checks of what this machine has now.
pub fn observe(kind: &str, ids: &[String]) -> Result<Vec<solo::Addition>, AdditionError> {
    solo::observe(kind, ids)
}

/// Them as a file.
pub fn addition_text(more: &[solo::Addition]) -> Result<String, AdditionError> {
    solo::addition_text(more)
}

/// Adds them to a file, all or none.
pub fn add_to(file: &Path, more: &[solo::Addition]) -> Result<(), AdditionError> {
    solo::add_to(file, more)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("starting tokio")
}

fn node_config(here: &Here) -> NodeConfig {
    let Here { advertise, bind, api_port, gossip_port, .. } = *here;
    NodeConfig { advertise, bind, api_port, gossip_port, metrics: None, certificate_life_s: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_in_the_middle_of_another_ca_is_sent_for_another_token() {
        let error = daemon::AdminError::Join(JoinError::Replaced { addr: "m1:7947".to_owned() });
        let stop = Stop::of(&error::of_join(of_admin(error)));
        assert_eq!(stop.exit, Exit::Refused);
        assert!(stop.next.is_some_and(|next| next.contains("with a new token") && next.ends_with("the same command")));
    }
}
