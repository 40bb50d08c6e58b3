//! Writes the input of one run of `ansible-playbook`: the generation's files, the inventory, the
//! variables, the recorded host keys and the callback.
//!
//! ```text
//! folder (0700, removed after the run)
//!   fleet/                        the generation's files and the working directory
//!   fleet/.../callback_plugins/   beside the playbook
//!   inventory.json, extra.json    0600
//!   known_hosts                   recorded keys only
//! ```
//! Secrets are only in these files, never in an argument or in the environment.

use super::{AnsibleNode, AnsibleRun, PlayError};
use remoor_config::Fleet;
use remoor_model::FileSet;
use remoor_playbook::process::CommandSpec;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The callback plugin. It reports each task as a line. It also sets `REMOOR_ATTEMPT` in the
/// environment of every play. So each task on the node has this variable, also after `become`.
/// Inventory and command line can't set it, because Ansible takes `environment` only from
/// playbooks. The plugin is in the folder `callback_plugins` beside the playbook. Ansible loads
/// plugins from there even if the user's `ansible.cfg` has other settings.
const CALLBACK: &str = include_str!("callback.py");
const CALLBACK_PLACE: &str = "callback_plugins/remoor_lines.py";
/// Time in seconds for which Ansible's connections stay open after a task, for the next task.
const PERSIST: u32 = 20;
/// Name of the variable with the run's id. Every process that a run starts on the manager has it in
/// its environment.
pub(super) const RUN_ID_VAR: &str = "REMOOR_LINES";
/// Inventory variables that Ansible uses as passwords.
const PASSWORDS: [&str; 8] = [
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_sudo_pass",
    "ansible_su_pass",
    "ansible_ssh_private_key_passphrase",
];
/// Minimum length of a masked password. A shorter one would match parts of other words.
const PASSWORD_MIN: usize = 4;

/// An Ansible run whose files are written, so that it can start.
pub(super) struct PreparedRun {
    pub job: CommandSpec,
    /// Passwords of the inventory, which are masked in all output of the run.
    pub hide: Vec<String>,
}

/// The id of the run in `dir`. Each line of the callback starts with it.
pub(super) fn run_id(dir: &Path) -> String {
    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Writes all files of the run into `dir` and returns the command that uses them.
pub(super) fn prepare(program: &str, play: &AnsibleRun, dir: &Path) -> Result<PreparedRun, PlayError> {
    let fleet = dir.join("fleet");
    write_files(&play.fleet.files, &fleet)?;
    let callback = fleet.join(&play.playbook).with_file_name(CALLBACK_PLACE);
    if let Some(parent) = callback.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    write_private(&callback, CALLBACK.as_bytes())?;
    let (inventory, opened) = inventory(&play.fleet, &play.known, &fleet).map_err(PlayError::Plan)?;
    let known_hosts = dir.join("known_hosts");
    write_private(&known_hosts, known_hosts_text(&play.fleet, &play.known).as_bytes())?;
    let config = ssh_config(play, dir).map_err(PlayError::Plan)?;
    let ssh_args = ssh_args(config.as_deref(), &known_hosts);
    let mut extra = play.extra.clone();
    // The SSH settings are extra variables. Ansible would ignore settings in the environment if the
    // inventory has variables for them.
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
        ("ANSIBLE_STDOUT_CALLBACK", "remoor_lines".to_owned()),
        (RUN_ID_VAR, run_id(dir)),
        // The variable is not named `REMOOR_ATTEMPT` as on the node. A fence on the manager's own
        // node would otherwise end these processes, which end with ansible-playbook anyway.
        ("REMOOR_MARK", play.mark.clone()),
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let job = CommandSpec {
        argv,
        env,
        dir: Some(fleet),
        stdin: None,
        timeout: Some(play.timeout),
        // With this umask, tasks that run on the manager itself create files with the same mode as
        // after a login.
        umask: Some(0o022),
        clean: false,
    };
    let mut hide = [passwords(&inventory), opened].concat();
    hide.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    hide.dedup();
    Ok(PreparedRun { job, hide })
}

/// The passwords for connections and `become` in an inventory, the longest first.
fn passwords(inventory: &Value) -> Vec<String> {
    let hosts = inventory["all"]["hosts"].as_object().into_iter().flat_map(|hosts| hosts.values());
    let values = hosts.flat_map(|vars| PASSWORDS.iter().filter_map(|name| vars[*name].as_str()));
    // A template is not a password; only Ansible knows its value.
    let mut found: Vec<String> =
        values.filter(|v| v.len() >= PASSWORD_MIN && !v.contains("{{")).map(str::to_owned).collect();
    found.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
    found.dedup();
    found
}

/// The inventory in the form that Ansible's YAML plugin reads. Hosts have their merged variables,
/// groups have only their members. The second value has the texts of encrypted variables.
fn inventory(fleet: &Fleet, known: &BTreeMap<String, AnsibleNode>, dir: &Path) -> Result<(Value, Vec<String>), String> {
    let mut opened = Vec::new();
    let mut hosts = Map::new();
    for name in fleet.inventory.hosts.keys() {
        let (mut vars, _) = fleet.vars(name).map_err(|f| f.to_string())?;
        open_vault_values(fleet, name, &mut vars, &mut opened)?;
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
    Ok((json!({"all": {"hosts": hosts, "children": children}}), opened))
}

/// Opens the encrypted variables of a host, because Ansible gets no vault password of a manager.
/// The file of this inventory is readable only by its owner, and removed after the run.
fn open_vault_values(
    fleet: &Fleet,
    host: &str,
    vars: &mut Map<String, Value>,
    texts: &mut Vec<String>,
) -> Result<(), String> {
    if let Some(fault) = fleet.inventory.unopened_of(host).first() {
        return Err(fault.to_string());
    }
    for (name, value) in vars.iter_mut() {
        match fleet.vault.open_value(value) {
            None => {}
            Some(Ok(opened)) => {
                texts.extend(opened.as_str().filter(|text| text.len() >= PASSWORD_MIN).map(str::to_owned));
                *value = opened;
            }
            Some(Err(error)) => {
                let next = fleet.vault.next_step(&error).unwrap_or_default();
                return Err(format!("the variable `{name}` of the host `{host}` {error}; {next}"));
            }
        }
    }
    Ok(())
}

/// The lines of `known_hosts`: the recorded host keys for each address of a run.
fn known_hosts_text(fleet: &Fleet, known: &BTreeMap<String, AnsibleNode>) -> String {
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

/// The path of the ssh_config file of a run in `dir`. None if ssh reads its usual files. If there
/// are keys to offer, a new file includes the usual files. It then lists the keys for each host of
/// the inventory, but not for jump hosts.
fn ssh_config(play: &AnsibleRun, dir: &Path) -> Result<Option<PathBuf>, String> {
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
        // A host name that ssh would read as a pattern is omitted, so ssh offers only the
        // operator's own keys to this host.
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

/// The first options on the command line of ssh. They override later ones, because ssh uses the
/// first value of an option.
fn ssh_args(config: Option<&Path>, known_hosts: &Path) -> String {
    let config = config.map(|file| format!("-F {} ", shell_quote(file)));
    format!(
        "{}-o StrictHostKeyChecking=yes -o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o UpdateHostKeys=no \
         -o VerifyHostKeyDNS=no -o BatchMode=yes -o ControlMaster=auto -o ControlPersist={PERSIST}s",
        config.unwrap_or_default(),
        shell_quote(known_hosts)
    )
}

/// Quotes a path for Python's shlex.
fn shell_quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\"'\"'"))
}

/// Writes a file set below `dir`. A path outside of `dir` is an error. Scripts get no execute bit,
/// because a generation does not store it.
fn write_files(files: &FileSet, dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(dir)?;
    for (name, content) in &files.0 {
        if Path::new(name).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(io::Error::other(format!("{name} is outside the fleet directory")));
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
