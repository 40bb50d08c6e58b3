//! Provisioner kind `ansible`: the user's own playbooks, run by this manager's `ansible-playbook` while the executor's session
//! holds the node's fence.
//!
//! ```text
//! folder (0700, gone with the run): fleet/ = the generation's files, where it runs; callback_plugins/ beside the playbook
//!                                   inventory.json, extra.json (0600), known_hosts = recorded keys only
//! ```
//! What a task starts on the node has `REMOOR_ATTEMPT` in its environment, by which the next attempt's fence finds it: it
//! runs on when `ansible-playbook` is ended here.
//!
//! Not here: what is run when, and whether it did what it should; cleaned check and verification are the same for all.

use crate::config::Fleet;
use crate::model::{FileSet, Node, NodeName};
use crate::playbook::Cancel;
use crate::playbook::process::{self, Job, SpawnError};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Lines that are passed on; after them one that says so.
const LINES_MAX: usize = 20_000;
const PROGRAM: &str = "ansible-playbook";
/// Puts the mark into the environment of every play, and so of each task on the node, after `become` too. An inventory or
/// a command line can't: Ansible takes `environment` from playbooks only. Ansible loads what lies beside a playbook in a
/// folder of this name, whatever the user's `ansible.cfg` says.
const MARKER: &str = include_str!("ansible_mark.py");
const MARKER_PLACE: &str = "callback_plugins/remoor_mark.py";
/// Ansible's connections outlive their task by so much, seconds, to serve the next.
const PERSIST: u32 = 20;

/// One run of a playbook on one node.
pub struct Play {
    pub fleet: Arc<Fleet>,
    pub host: String,
    /// Relative to the fleet directory.
    pub playbook: String,
    /// Empty: everything.
    pub tags: Vec<String>,
    /// Strongest variables: `remoor_job` and its kin.
    pub extra: Map<String, Value>,
    /// What the managers know of each node, for its variables.
    pub known: BTreeMap<String, Known>,
    pub keys: Keys,
    /// Says on the node whose processes they are, see [`Fence::mark`](crate::model::Fence::mark).
    pub mark: String,
    pub timeout: Duration,
}

/// Private keys that ssh is offered after all that the operator's configuration names; none: that alone holds.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    pub with_identity: Vec<PathBuf>,
    pub without_identity: Vec<PathBuf>,
}

/// What the managers know of a node beyond the inventory.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Where it is entered, unless the inventory has an `ansible_host` for it.
    pub addr: Option<String>,
    pub host_keys: Vec<String>,
    /// `remoor_*` variables.
    pub vars: Map<String, Value>,
}

impl Known {
    pub fn of(node: &Node, fleet: &Fleet) -> Self {
        let role = if node.role == crate::model::ClusterRole::Manager { "manager" } else { "worker" };
        let vars = json!({
            "remoor_node_id": node.id.0,
            "remoor_role": role,
            "remoor_lifecycle": node.lifecycle.word(),
        });
        Self {
            addr: node.ip().map(|ip| ip.to_string()).filter(|_| fleet.ansible_host(node.name().as_str()).is_none()),
            host_keys: node.spec.ssh_host_keys.clone(),
            vars: vars.as_object().cloned().unwrap_or_default(),
        }
    }
}

/// Why the node is not as the playbook wants it.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// Nothing was run: fleet or manager must be changed first.
    #[error("{0}")]
    Plan(String),
    /// Nothing was run: the folder can't be written.
    #[error("the files for ansible-playbook can't be written")]
    Files(#[from] io::Error),
    /// Tasks may have been done. `tail`: the last lines.
    #[error("{why}")]
    Failed { why: String, rc: Option<i32>, tail: Vec<String> },
}

/// Folder for the runs below the attempts' logs. What a crash left in it is removed.
pub fn sweep(runs: &Path) {
    let dir = folder(runs);
    if dir.exists()
        && let Err(error) = std::fs::remove_dir_all(&dir)
    {
        tracing::warn!(%error, path = %dir.display(), "what an earlier run of ansible-playbook left can't be removed");
    }
}

fn folder(runs: &Path) -> PathBuf {
    runs.join("ansible")
}

/// Runs it to its end; `emit` gets its lines. Blocking. On timeout and cancel the whole process group is ended.
pub fn play(play: &Play, runs: &Path, cancel: &Cancel, emit: &mut dyn FnMut(&str)) -> Result<(), PlayError> {
    play_with(PROGRAM, play, runs, cancel, emit)
}

fn play_with(
    program: &str,
    play: &Play,
    runs: &Path,
    cancel: &Cancel,
    emit: &mut dyn FnMut(&str),
) -> Result<(), PlayError> {
    if play.fleet.files.get(&play.playbook).is_none() {
        return Err(PlayError::Plan(format!("the fleet has no file {}", play.playbook)));
    }
    let base = folder(runs);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&base)?;
    let dir = tempfile::Builder::new().prefix("run-").tempdir_in(&base)?;
    let job = prepare(program, play, dir.path())?;
    let (mut count, mut recap, mut no_hosts, mut reached) = (0, false, false, false);
    let mut line = |line: &str| {
        recap |= line.starts_with("PLAY RECAP");
        no_hosts |= line.starts_with("skipping: no hosts matched");
        reached |= recap && line.split_whitespace().next() == Some(play.host.as_str());
        count += 1;
        match count {
            ..=LINES_MAX => emit(line),
            n if n == LINES_MAX + 1 => emit("[further lines are left out]"),
            _ => {}
        }
    };
    let done = process::run(&job, cancel, &mut line).map_err(|error| of_spawn(program, &error))?;
    let failed = |why: String| PlayError::Failed { why, rc: done.rc, tail: done.tail.clone() };
    if done.timed_out {
        return Err(failed(format!("ansible-playbook took longer than {} s and was ended", play.timeout.as_secs())));
    }
    if done.cancelled {
        return Err(failed("ansible-playbook was ended before its time".to_owned()));
    }
    match done.rc {
        Some(0) if no_hosts && !reached => {
            Err(failed(format!("{} has no play for {}: nothing was run", play.playbook, play.host)))
        }
        Some(0) => Ok(()),
        Some(4) => Err(failed(format!("{}: Ansible can't reach {} or has no Python there", play.playbook, play.host))),
        Some(rc) => Err(failed(format!("{}: ansible-playbook ended with {rc}", play.playbook))),
        None => Err(failed(format!("{}: ansible-playbook was killed", play.playbook))),
    }
}

fn of_spawn(program: &str, error: &SpawnError) -> PlayError {
    match error {
        SpawnError::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => PlayError::Plan(format!(
            "this manager has no {program}, which the group's `provisioner: ansible` needs; next: apt-get install \
             ansible-core on every manager"
        )),
        SpawnError::Start { source, .. } => PlayError::Plan(format!("{program} can't be started: {source}")),
        SpawnError::Empty => PlayError::Plan(error.to_string()),
    }
}

/// Writes everything into `dir`; the command that uses it.
fn prepare(program: &str, play: &Play, dir: &Path) -> Result<Job, PlayError> {
    let fleet = dir.join("fleet");
    write_files(&play.fleet.files, &fleet)?;
    let marker = fleet.join(&play.playbook).with_file_name(MARKER_PLACE);
    if let Some(parent) = marker.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    write_private(&marker, MARKER.as_bytes())?;
    let inventory = inventory(&play.fleet, &play.known, &fleet).map_err(PlayError::Plan)?;
    let known_hosts = dir.join("known_hosts");
    write_private(&known_hosts, known_hosts_text(&play.fleet, &play.known).as_bytes())?;
    let config = ssh_config(play, dir).map_err(PlayError::Plan)?;
    let ssh_args = ssh_args(config.as_deref(), &known_hosts);
    let mut extra = play.extra.clone();
    // As variables, since those of an inventory win over the environment's.
    extra.insert("ansible_ssh_args".to_owned(), json!(ssh_args));
    for var in ["ansible_host_key_checking", "ansible_ssh_host_key_checking"] {
        extra.insert(var.to_owned(), json!(true));
    }
    let (inventory_path, extra_path) = (dir.join("inventory.json"), dir.join("extra.json"));
    write_private(&inventory_path, inventory.to_string().as_bytes())?;
    write_private(&extra_path, Value::Object(extra).to_string().as_bytes())?;
    let text = |path: &Path| path.display().to_string();
    let mut argv = vec![program.to_owned(), "-i".to_owned(), text(&inventory_path)];
    argv.extend(["--limit".to_owned(), play.host.clone()]);
    argv.extend(["--extra-vars".to_owned(), format!("@{}", text(&extra_path))]);
    if !play.tags.is_empty() {
        argv.extend(["--tags".to_owned(), play.tags.join(",")]);
    }
    argv.extend(["--".to_owned(), play.playbook.clone()]);
    let env = [
        ("ANSIBLE_HOST_KEY_CHECKING", "True".to_owned()),
        ("ANSIBLE_SSH_ARGS", ssh_args),
        ("ANSIBLE_SSH_CONTROL_PATH_DIR", text(&dir.join("cp"))),
        ("ANSIBLE_LOCAL_TEMP", text(&dir.join("tmp"))),
        ("ANSIBLE_PIPELINING", "True".to_owned()),
        ("ANSIBLE_NOCOLOR", "1".to_owned()),
        ("ANSIBLE_FORCE_COLOR", "0".to_owned()),
        ("ANSIBLE_NOCOWS", "1".to_owned()),
        ("ANSIBLE_RETRY_FILES_ENABLED", "False".to_owned()),
        ("ANSIBLE_STDOUT_CALLBACK", "default".to_owned()),
        // By another name than on the node: what runs on the manager is ended with ansible-playbook.
        ("REMOOR_MARK", play.mark.clone()),
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Job { argv, env, dir: Some(fleet), stdin: None, timeout: Some(play.timeout), umask: None })
}

/// All hosts, as Ansible's YAML plugin reads them: each with its merged variables, groups with their members only.
fn inventory(fleet: &Fleet, known: &BTreeMap<String, Known>, dir: &Path) -> Result<Value, String> {
    let mut hosts = Map::new();
    for name in fleet.inventory.hosts.keys() {
        let (mut vars, _) = fleet.vars(name).map_err(|f| f.to_string())?;
        let target = fleet.ssh_target(name).map_err(|f| f.to_string())?;
        let of_node = known.get(name);
        let host = of_node.and_then(|k| k.addr.clone()).unwrap_or(target.host);
        for (var, value) in [("ansible_host", json!(host)), ("ansible_port", json!(target.port))] {
            vars.insert(var.to_owned(), value);
        }
        vars.insert("ansible_user".to_owned(), json!(target.user));
        if let Some(identity) = target.identity {
            vars.insert("ansible_ssh_private_key_file".to_owned(), json!(dir.join(identity)));
        }
        if target.sudo {
            vars.entry("ansible_become").or_insert(json!(true));
        }
        vars.extend(of_node.map(|k| k.vars.clone()).unwrap_or_default());
        hosts.insert(name.clone(), Value::Object(vars));
    }
    let mut children = Map::new();
    for (name, group) in fleet.inventory.groups.iter().filter(|(name, _)| *name != "all") {
        let names = |names: &[String]| names.iter().map(|n| (n.clone(), json!({}))).collect::<Map<_, _>>();
        children.insert(name.clone(), json!({"hosts": names(&group.hosts), "children": names(&group.children)}));
    }
    Ok(json!({"all": {"hosts": hosts, "children": children}}))
}

/// Recorded keys under every address at which a run may look for the node.
fn known_hosts_text(fleet: &Fleet, known: &BTreeMap<String, Known>) -> String {
    let mut text = String::new();
    for (name, known) in known {
        let Ok(target) = fleet.ssh_target(name) else { continue };
        let host = known.addr.clone().unwrap_or(target.host);
        let host = if target.port == 22 { host } else { format!("[{host}]:{}", target.port) };
        for key in &known.host_keys {
            text.push_str(&format!("{host} {key}\n"));
        }
    }
    text
}

/// The ssh_config of a run in `dir`; None: ssh reads those that it always reads. With keys to offer it is one that includes
/// what else would be read and names them after that, for each host of the inventory and nobody on the way to it.
fn ssh_config(play: &Play, dir: &Path) -> Result<Option<PathBuf>, String> {
    let own = play.fleet.config.ssh.config.as_ref().map(|file| dir.join("fleet").join(file));
    if play.keys.without_identity.is_empty() {
        return Ok(own);
    }
    let mut text = match &own {
        Some(own) => format!("Include \"{}\"\n", own.display()),
        None => "Include ~/.ssh/config\nMatch all\nInclude /etc/ssh/ssh_config\n".to_owned(),
    };
    for name in play.fleet.inventory.hosts.keys() {
        let target = play.fleet.ssh_target(name).map_err(|f| f.to_string())?;
        let host = play.known.get(name).and_then(|k| k.addr.clone()).unwrap_or(target.host);
        // What `Host` would take for a pattern is left to the operator's own keys.
        if host.bytes().any(|b| !b.is_ascii_alphanumeric() && !b"._-:%".contains(&b)) {
            continue;
        }
        text.push_str(&format!("Host {host}\n"));
        let keys = if target.identity.is_some() { &play.keys.with_identity } else { &play.keys.without_identity };
        keys.iter().for_each(|key| text.push_str(&format!("  IdentityFile {}\n", key.display())));
    }
    let path = dir.join("ssh_config");
    write_private(&path, text.as_bytes()).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Some(path))
}

/// First on ssh's command line, where the first value of an option holds.
fn ssh_args(config: Option<&Path>, known_hosts: &Path) -> String {
    let config = config.map(|file| format!("-F {} ", quoted(file)));
    format!(
        "{}-o StrictHostKeyChecking=yes -o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o UpdateHostKeys=no \
         -o VerifyHostKeyDNS=no -o BatchMode=yes -o ControlMaster=auto -o ControlPersist={PERSIST}s",
        config.unwrap_or_default(),
        quoted(known_hosts)
    )
}

/// One word for Python's shlex.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\"'\"'"))
}

/// The paths of a file set lead nowhere but below `dir`. Scripts keep no execute bit: a generation has none.
fn write_files(files: &FileSet, dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(dir)?;
    for (name, content) in &files.0 {
        if Path::new(name).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(io::Error::other(format!("{name} leads out of the fleet")));
        }
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        write_private(&path, content)?;
    }
    Ok(())
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

/// Names and knowledge of all nodes.
pub fn known<'a>(nodes: impl Iterator<Item = &'a Arc<Node>>, fleet: &Fleet) -> BTreeMap<String, Known> {
    nodes.map(|node| (NodeName::to_string(node.name()), Known::of(node, fleet))).collect()
}

#[cfg(test)]
#[path = "ansible_tests.rs"]
mod tests;
