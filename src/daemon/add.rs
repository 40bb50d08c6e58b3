//! `node add`, run on a manager: installs remoor on a machine over SSH and joins the machine to the
//! cluster. Every step is idempotent, so the same command continues after a failed attempt.
//!
//! ```text
//! ask the manager -> log in -> program -> unit -> authorized_keys
//!   -> invitation -> join -> start -> alive in gossip
//! ```
//! The operator gives the machine's host keys; no other key is accepted.

use super::unit::unit_of_copied_program;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::view::{InviteRequest, InviteView, NodeView, StatusView};
use remoor_exec::ssh::{self, Launch, LoginTarget, Remote, RemoteConfig, Shell, SshError};
use remoor_model::{Sha256, reserved_by_ansible};
use serde_json::Value;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_secs(10);
const COMMAND: Duration = Duration::from_secs(30);
const UPLOAD: Duration = Duration::from_secs(300);
/// Timeout of `remoor join`, which may have to wait for an election of the managers.
const JOIN: Duration = Duration::from_secs(90);
/// Timeout from the start of the agent until the managers report the node as alive.
const SEEN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);

/// The program that a package installs. Only the package replaces it.
const PACKAGED: &str = "/usr/bin/remoor";
const LOOK: &str = "uname -sm; test -d /run/systemd/system && echo systemd || echo none; \
                    sha256sum /usr/local/bin/remoor 2>/dev/null | cut -c1-64 | grep . || echo none; \
                    test -x /usr/bin/remoor && echo packaged || echo none; \
                    systemctl is-active remoor 2>/dev/null || true; \
                    cat /var/lib/remoor/identity.json 2>/dev/null || true";
const PUT: &str = "set -eu; umask 022; d=/usr/local/bin; mkdir -p $d; t=$d/.remoor.$$; trap 'rm -f \"$t\"' EXIT; \
                   cat > \"$t\"; echo \"$1  $t\" | sha256sum -c --quiet - >&2; chmod 0755 \"$t\"; \"$t\" --version; \
                   mv -f \"$t\" $d/remoor";
const PUT_UNIT: &str = "set -eu; umask 022; f=/etc/systemd/system/remoor.service; t=$f.$$; trap 'rm -f \"$t\"' EXIT; \
                        cat > \"$t\"; mv -f \"$t\" $f; systemctl daemon-reload";
/// Removes the program and the unit that an earlier `node add` copied, because they have precedence
/// over those of the package.
const REMOVE_COPY: &str = "rm -f /usr/local/bin/remoor /etc/systemd/system/remoor.service; systemctl daemon-reload";
const LAST_WORDS: &str = "journalctl -u remoor -n 10 --no-pager -o cat 2>/dev/null || true";

#[derive(Debug, Clone)]
pub struct AddOptions {
    pub host: String,
    pub name: String,
    /// The group that must contain the host in the applied inventory. None if the operator named no
    /// group.
    pub group: Option<String>,
    pub manager: bool,
    /// Failure domain of the machine; an empty text if it is unknown.
    pub zone: String,
    pub user: String,
    pub port: u16,
    pub identity: Option<PathBuf>,
    /// Address at which the other nodes reach the machine. None means the address of `host`.
    pub advertise: Option<IpAddr>,
    /// Host keys as lines `type base64`, verified by the operator.
    pub host_keys: Vec<String>,
    /// Socket of the manager on this machine.
    pub socket: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    pub id: u64,
    /// Whether the host key that the managers recorded is one that the operator verified. If false,
    /// the first login of a manager may be refused.
    pub same_host_key: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The request failed before anything was changed on the machine. A later error is a `Stopped`.
    #[error("the manager on this machine did not answer the request")]
    Api(#[from] ApiError),
    /// The steps in `done` stay done on the machine and in the cluster. The same command continues
    /// after them.
    #[error("{host}: {step} failed: {why}")]
    Stopped { host: String, step: &'static str, why: String, done: Vec<&'static str>, next: String },
}

/// Adds one machine. Returns when the managers report the node as alive. `tell` receives one line
/// for each step as the step begins.
pub async fn add(options: &AddOptions, tell: &mut dyn FnMut(&str)) -> Result<Added, AddError> {
    let client = Client::unix(&options.socket);
    let status: StatusView = client.get("/v1/status").await?;
    let (cluster, ssh_key) = (status.cluster, status.ssh_key);
    let left = status.left.iter().any(|left| left.name == options.name);
    let mut work = AddRun { options, client, cluster, ssh_key, left, done: Vec::new() };
    if let Some(means) = reserved_by_ansible(&options.name) {
        let why = format!("{:?} can't be the name of a node: in an inventory it means {means}", options.name);
        return Err(work.stopped_at_step("checking the name", why, "--name as in your inventory"));
    }
    if let Some(group) = &options.group {
        work.check_group(group).await?;
    }
    let advertise = work.advertise().await?;
    let dir = tempfile::Builder::new().prefix("remoor-").tempdir();
    let dir = dir.map_err(|e| work.stopped_at_step("preparing the login", e.to_string(), "make room in /tmp"))?;
    // This connection runs single commands only and starts no executor, so it needs no executor
    // program.
    let remote = Remote::new(RemoteConfig {
        control_dir: dir.path().join("s"),
        builds: Vec::new(),
        launch: Launch::Upload,
        state_dir: remoor_exec::STATE_DIR.to_owned(),
        arguments: Vec::new(),
    });
    let remote = remote.map_err(|e| work.login(&e))?;
    tell(&format!("logging in to {} as {}", options.host, options.user));
    let shell = remote.shell(&work.target()).await.map_err(|e| work.login(&e))?;
    let installed = work.install(&shell, advertise, tell).await;
    shell.close().await;
    installed?;
    tell("waiting until the managers see the node");
    work.wait_until_alive().await
}

struct AddRun<'a> {
    options: &'a AddOptions,
    client: Client,
    cluster: String,
    /// The line with the cluster's SSH key for `authorized_keys`. None if the cluster has no SSH
    /// key.
    ssh_key: Option<String>,
    /// Whether the node left the cluster voluntarily before.
    left: bool,
    done: Vec<&'static str>,
}

/// The state of the machine before anything is changed.
struct MachineState {
    /// SHA-256 of the program that an earlier `node add` copied, or `none`.
    copied: String,
    /// Whether a package installed the program.
    packaged: bool,
    active: bool,
    identity: Option<Value>,
}

impl AddRun<'_> {
    fn stopped_at_step(&self, step: &'static str, why: impl Into<String>, next: &str) -> AddError {
        let (host, next) = (self.options.host.clone(), next.to_owned());
        AddError::Stopped { host, step, why: why.into(), done: self.done.clone(), next }
    }

    fn login(&self, error: &SshError) -> AddError {
        let next = match error {
            SshError::HostKeyChanged { .. } => "compare the host key on the machine's console, then --fingerprint",
            SshError::Auth(_) => {
                "--ssh-user USER --identity FILE; a user other than root needs sudo without a password"
            }
            _ => "--ssh-port PORT, or check that sshd runs there",
        };
        self.stopped_at_step("the login", error.to_string(), next)
    }

    fn target(&self) -> LoginTarget {
        let o = self.options;
        LoginTarget {
            node: "host".into(),
            host: o.host.clone(),
            port: o.port,
            user: o.user.clone(),
            identity: o.identity.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
            last_keys: Vec::new(),
            sudo: o.user != "root",
            host_keys: o.host_keys.clone(),
            options: Vec::new(),
            user_config: None,
            connect_timeout: CONNECT,
            state_dir: None,
        }
    }

    async fn check_group(&self, group: &str) -> Result<(), AddError> {
        let list: Value = self.client.get("/v1/inventory").await?;
        if members(&list, group, 0).iter().any(|name| *name == self.options.name) {
            return Ok(());
        }
        let why = format!("the inventory does not list {} in group {group}", self.options.name);
        Err(self.stopped_at_step(
            "checking the inventory",
            why,
            "add the host to the group and run remoor apply, or omit --group",
        ))
    }

    async fn advertise(&self) -> Result<IpAddr, AddError> {
        if let Some(ip) = self.options.advertise {
            return Ok(ip);
        }
        let step = "finding the machine's address";
        let found = tokio::net::lookup_host((self.options.host.as_str(), self.options.port)).await;
        let found = found.map_err(|e| self.stopped_at_step(step, e.to_string(), "--advertise IP"))?;
        let first = found.map(|a| a.ip()).find(|ip| !ip.is_loopback() && !ip.is_unspecified());
        first.ok_or_else(|| {
            self.stopped_at_step(step, "other nodes can't reach the machine by this name", "--advertise IP")
        })
    }

    async fn install(&mut self, shell: &Shell, advertise: IpAddr, tell: &mut dyn FnMut(&str)) -> Result<(), AddError> {
        let found = self.examine_machine(shell).await?;
        let (bytes, hash) = ssh::own_binary().map_err(|e| {
            self.stopped_at_step("reading the program of this machine", e.to_string(), "install remoor here again")
        })?;
        let renewed = self.program(shell, &found, &bytes, hash, tell).await?;
        if found.packaged {
            let (step, next) = ("removing the copy of an earlier node add", "remove these files on that machine");
            self.run(shell, step, REMOVE_COPY, &[], b"", COMMAND, next).await?;
        } else {
            let (step, next) = ("installing the unit", "check /etc/systemd/system on that machine");
            self.run(shell, step, PUT_UNIT, &[], unit_of_copied_program().as_bytes(), COMMAND, next).await?;
            self.done.push("/etc/systemd/system/remoor.service was written");
        }
        self.authorize_ssh_key(shell, tell).await?;
        match &found.identity {
            Some(identity) if !self.left => tell(&format!("the machine is node {} already", identity["node"])),
            Some(_) => {
                let next = "systemctl stop remoor on that machine, then the same command";
                self.run(shell, "stopping its daemon", "exec systemctl stop remoor", &[], b"", COMMAND, next).await?;
                self.join(shell, &found, advertise, tell).await?;
            }
            None => self.join(shell, &found, advertise, tell).await?,
        }
        tell("starting the agent");
        let restart = if found.active && renewed { "systemctl restart remoor; " } else { "" };
        let script = format!("systemctl enable --now remoor 2>&1; {restart}systemctl is-active remoor");
        let said = shell.run(&script, &[], b"", COMMAND).await;
        if !said.as_ref().is_ok_and(|s| s.ok) {
            let why = match said {
                Ok(said) => format!("{} {}", said.stdout, said.stderr),
                Err(error) => error.to_string(),
            };
            let words = shell.run(LAST_WORDS, &[], b"", COMMAND).await.unwrap_or_default().stdout;
            return Err(self.stopped_at_step("starting the agent", format!("{}\n{words}", why.trim()), NEXT_JOURNAL));
        }
        self.done.push("remoor.service was enabled and started");
        Ok(())
    }

    /// Adds the cluster's SSH key to `authorized_keys`. This step comes before the join, because
    /// managers may log in as soon as they know the node.
    async fn authorize_ssh_key(&mut self, shell: &Shell, tell: &mut dyn FnMut(&str)) -> Result<(), AddError> {
        let user = &self.options.user;
        let Some(line) = &self.ssh_key else {
            tell(&format!("the cluster has no SSH key: make sure that the managers can log in as {user}"));
            return Ok(());
        };
        match ssh::authorize(shell, line).await {
            Ok(true) => {
                tell(&format!("the managers can now log in as {user} with the cluster's SSH key"));
                self.done.push("the cluster's key was added to the user's authorized_keys");
            }
            Ok(false) => tell(&format!("the managers can log in as {user} already")),
            Err(e) => {
                let next = "check ~/.ssh of that user, then the same command";
                return Err(self.stopped_at_step("authorizing the cluster's SSH key", e.to_string(), next));
            }
        }
        Ok(())
    }

    async fn examine_machine(&self, shell: &Shell) -> Result<MachineState, AddError> {
        let step = "examining the machine";
        let said =
            self.run(shell, step, LOOK, &[], b"", COMMAND, "sudo without a password, or --ssh-user root").await?;
        let mut lines = said.splitn(6, '\n').map(str::trim);
        let mut line = || lines.next().unwrap_or_default();
        let (machine, init, copied, packaged, active, identity) = (line(), line(), line(), line(), line(), line());
        let own = format!("Linux {}", std::env::consts::ARCH);
        if machine != own {
            let why = format!("the machine is {machine:?}, but this program is for {own}");
            return Err(self.stopped_at_step(
                step,
                why,
                "run node add on a manager with the same operating system and architecture",
            ));
        }
        if init != "systemd" {
            return Err(self.stopped_at_step(
                step,
                "the machine does not run systemd",
                "install and start remoor manually",
            ));
        }
        let identity: Option<Value> = serde_json::from_str(identity).ok();
        if let Some(identity) = &identity
            && (identity["cluster"] != *self.cluster || identity["name"] != *self.options.name)
        {
            let why = format!("the machine is node {} of cluster {} already", identity["name"], identity["cluster"]);
            let next =
                "--name with its current name; or, to make it a different node, rename /var/lib/remoor on that machine";
            return Err(self.stopped_at_step(step, why, next));
        }
        let packaged = packaged == "packaged";
        Ok(MachineState { copied: copied.to_owned(), packaged, active: active == "active", identity })
    }

    /// Installs this version of remoor, unless the machine already has it or has a package of
    /// remoor. Returns whether it was installed.
    async fn program(
        &mut self,
        shell: &Shell,
        found: &MachineState,
        bytes: &[u8],
        hash: Sha256,
        tell: &mut dyn FnMut(&str),
    ) -> Result<bool, AddError> {
        let hash = hash.to_string();
        if found.packaged {
            tell(&format!("a package has installed {PACKAGED}"));
            // A daemon that runs the copy must be restarted.
            return Ok(found.copied != "none");
        }
        if found.copied == hash {
            tell("this remoor version is installed already");
            return Ok(false);
        }
        tell(&format!("installing /usr/local/bin/remoor ({} MB)", bytes.len() >> 20));
        let next = "check the free space and the C library on that machine; a static build runs everywhere";
        self.run(shell, "installing the program", PUT, &[&hash], bytes, UPLOAD, next).await?;
        self.done.push("/usr/local/bin/remoor was installed");
        Ok(true)
    }

    async fn join(
        &mut self,
        shell: &Shell,
        found: &MachineState,
        advertise: IpAddr,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), AddError> {
        let o = self.options;
        let request = InviteRequest { name: o.name.clone(), want_manager: o.manager };
        let invited: Result<InviteView, ApiError> = self.client.post("/v1/nodes", &request).await;
        let step = "creating the join token";
        let invited =
            invited.map_err(|e| self.stopped_at_step(step, e.to_string(), "remoor status, then the same command"))?;
        let Some(manager) = invited.managers.first() else {
            return Err(self.stopped_at_step(step, "no manager is known", "remoor status, then the same command"));
        };
        tell(&format!("joining through {manager} as {}", if o.manager { "manager" } else { "worker" }));
        let program = if found.packaged { PACKAGED } else { "/usr/local/bin/remoor" };
        let script = "exec \"$1\" join \"$2\" --token-file - --name \"$3\" --advertise \"$4\" --zone \"$5\" $6";
        let (advertise, flag) = (advertise.to_string(), if o.manager { "--manager" } else { "" });
        let args = [program, manager.as_str(), &o.name, &advertise, &o.zone, flag];
        let next = "check that the machine can reach the manager's API port, then the same command";
        self.run(shell, "joining", script, &args, invited.token.reveal().as_bytes(), JOIN, next).await?;
        self.done.push("the machine was accepted as a node");
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one command with its name and advice")]
    async fn run(
        &self,
        shell: &Shell,
        step: &'static str,
        script: &str,
        args: &[&str],
        stdin: &[u8],
        within: Duration,
        next: &str,
    ) -> Result<String, AddError> {
        match shell.run(script, args, stdin, within).await {
            Ok(said) if said.ok => Ok(said.stdout),
            Ok(said) => {
                let why = if said.stderr.is_empty() { said.stdout } else { said.stderr };
                Err(self.stopped_at_step(step, why, next))
            }
            Err(error) => Err(self.stopped_at_step(step, error.to_string(), next)),
        }
    }

    async fn wait_until_alive(&self) -> Result<Added, AddError> {
        let begun = Instant::now();
        loop {
            let status: Result<StatusView, ApiError> = self.client.get("/v1/status").await;
            let row = status.ok().and_then(|s| s.nodes.into_iter().find(|n| n.name == self.options.name));
            match row {
                Some(node) if node.presence == "alive" => return Ok(self.added_node(&node)),
                row if begun.elapsed() > SEEN => {
                    let presence = row.map_or("unknown".to_owned(), |n| n.presence);
                    let why = format!("after {} s the node is {presence}", SEEN.as_secs());
                    let next =
                        "open TCP and UDP 7946 and TCP 7947 between the nodes; journalctl -u remoor on that machine";
                    return Err(self.stopped_at_step("waiting until the managers see the node", why, next));
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    fn added_node(&self, node: &NodeView) -> Added {
        let vouched =
            |print: &String| self.options.host_keys.iter().any(|key| ssh::fingerprint(key).as_ref() == Some(print));
        Added { id: node.id, same_host_key: node.addresses.ssh_fingerprints.iter().any(vouched) }
    }
}

const NEXT_JOURNAL: &str = "journalctl -u remoor on that machine, then the same command";
/// Maximum depth of nested groups. It is only a safety limit, because an applied inventory contains
/// no cycles.
const DEPTH_MAX: usize = 32;

/// The hosts of a group and of its child groups, from an inventory in the `--list` format.
pub(super) fn members<'a>(list: &'a Value, group: &str, depth: usize) -> Vec<&'a str> {
    let texts = |key: &str| list[group][key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut out: Vec<&str> = texts("hosts").collect();
    if depth < DEPTH_MAX {
        out.extend(texts("children").flat_map(|child| members(list, child, depth + 1)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_children_are_members() {
        let list = serde_json::json!({"a": {"hosts": ["x"], "children": ["b"]}, "b": {"hosts": ["y"]}});
        assert_eq!(members(&list, "a", 0), ["x", "y"]);
        assert!(members(&list, "c", 0).is_empty());
    }
}
