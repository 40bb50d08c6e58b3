//! remoor and other tools, each with the same 20 tasks: 5 directories, 5 copies, 5 templates, 3
//! lines and 2 commands.

use crate::node::{COUNTS, FAR, Node, address, names};
use crate::run_tool;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const REMOOR: &str = "remoor";
pub const LOGIN: &str = "`ssh host true`";
pub const SCRIPT: &str = "`ssh host sh -s`";
pub const ANSIBLE: &str = "ansible-core 2.19.14 with pipelining";
const PYINFRA_DEPLOY: &str = include_str!("deploy.py");
const WORK: &str = include_str!("work.sh");

/// One measured case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The number of hosts on which the playbook runs. They are the first hosts.
    pub hosts: usize,
    /// Whether the run is over the slow link, to one host.
    pub far: bool,
    /// Whether the run is in check mode with differences.
    pub check: bool,
}

impl Case {
    pub fn on_hosts(hosts: usize) -> Self {
        Self { hosts, far: false, check: false }
    }

    fn ssh_config(self) -> &'static str {
        if self.far { "ssh_config_far" } else { "ssh_config" }
    }
}

pub struct Tool {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether the tool supports a check mode with differences.
    pub checks: bool,
    pub command: fn(&Node, Case) -> Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ours,
    /// ssh alone, as the minimum.
    Floor,
    /// Another tool. It is left out if it can't run, and it runs less often on many hosts.
    Peer,
}

/// remoor, the plain logins, and the tools that pip could install. A tool that could not be
/// installed is named.
pub fn available_tools(node: &Node) -> Vec<Tool> {
    let mut tools = vec![
        Tool { name: LOGIN, kind: Kind::Floor, checks: false, command: login },
        Tool { name: SCRIPT, kind: Kind::Floor, checks: false, command: script },
        Tool { name: REMOOR, kind: Kind::Ours, checks: true, command: remoor },
    ];
    let peer = |name, checks, command| Tool { name, kind: Kind::Peer, checks, command };
    let peers = [
        (peer(ANSIBLE, true, ansible), "ansible-core==2.19.14", "bin/ansible-playbook"),
        (peer("mitogen", true, ansible_with_mitogen), "mitogen", "mitogen-is-there"),
        (peer("pyinfra", false, pyinfra), "pyinfra", "bin/pyinfra"),
    ];
    for (tool, package, made) in peers {
        match have(node, package, made) {
            Ok(()) => tools.push(tool),
            Err(why) => println!("NOT TO BE HAD, LEFT OUT: {}: {why:#}", tool.name),
        }
    }
    tools
}

/// The virtual environment that all tools of pip share.
fn venv() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("playbook-peers")
}

/// Installs `package` unless it is installed. `made` is a file that the package contains or that
/// marks it as installed.
fn have(node: &Node, package: &str, made: &str) -> Result<()> {
    let made = venv().join(made);
    if made.exists() {
        return Ok(());
    }
    if !venv().join("bin/pip").exists() {
        run_tool(node.command("python3").args(["-m", "venv"]).arg(venv()))?;
    }
    // pip keeps the caller's environment, because the environment may define where packages come
    // from.
    run_tool(Command::new(venv().join("bin/pip")).args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        package,
    ]))?;
    if !made.exists() {
        fs::write(&made, "")?;
    }
    Ok(())
}

/// Writes the playbook and its files, for each tool in the language of the tool.
pub fn write(node: &Node, user: &str) -> Result<()> {
    let top = node.path("top").display().to_string();
    let mut tasks = String::new();
    let mut add = |task: &str| tasks += &format!("    - {{name: {task}}}\n");
    for n in 1..=5 {
        add(&format!("directory {n}, file: {{path: '{{{{ own }}}}/d{n}', state: directory, mode: \"0755\"}}"));
    }
    for n in 1..=5 {
        // A later task adds lines to the first file, so this task only creates it if it does not
        // exist.
        add(&format!(
            "copy {n}, copy: {{src: copy, dest: '{{{{ own }}}}/d{n}/copy', mode: \"0644\", force: {}}}",
            n != 1
        ));
    }
    for n in 1..=5 {
        let file = format!("{{{{ own }}}}/d{n}/template");
        add(&format!(
            "template {n}, template: {{src: template.j2, dest: '{file}', mode: \"0644\"}}, vars: {{port: {n}}}"
        ));
    }
    for n in 1..=3 {
        add(&format!("line {n}, lineinfile: {{path: '{{{{ own }}}}/d1/copy', regexp: ^k{n}=, line: k{n}=v{n}}}"));
    }
    for n in 1..=2 {
        add(&format!("command {n}, command: 'true', changed_when: false"));
    }
    let play = format!(
        "- hosts: all\n  gather_facts: false\n  vars: {{own: '{top}/{{{{ inventory_hostname }}}}'}}\n  tasks:\n"
    );
    fs::write(node.path("site.yml"), format!("{play}{tasks}"))?;
    // The executor is the parent of the shell. This is the last task, so the executor has reached
    // its peak memory.
    let peak = "    - {name: peak, shell: 'grep VmHWM /proc/$PPID/status'}\n";
    fs::write(node.path("peak.yml"), format!("{play}{tasks}{peak}"))?;
    fs::write(node.path("copy"), "a copied line\n")?;
    fs::write(node.path("template.j2"), "port {{ port }}\n")?;
    fs::write(node.path("deploy.py"), PYINFRA_DEPLOY)?;
    fs::write(node.path("work.sh"), WORK)?;
    let state = node.path("state").display().to_string();
    let python = venv().join("bin/python").display().to_string();
    let pyinfra = |n: usize, address: &str| {
        let (dir, port) = (node.path("").display().to_string(), node.port);
        format!(
            "    (\"{address}\", {{\"ssh_user\": \"{user}\", \"ssh_port\": {port}, \"ssh_key\": \"{dir}user\", \
             \"ssh_known_hosts_file\": \"{dir}known\", \"own\": \"{top}/n{n}\"}}),\n"
        )
    };
    for count in COUNTS {
        let line =
            |name: &String| format!("{name} remoor_state_dir={state}/{name} ansible_python_interpreter={python}\n");
        fs::write(node.path(&format!("hosts{count}")), names(count).iter().map(line).collect::<String>())?;
        let hosts: String = (1..=count).map(|n| pyinfra(n, &address(n))).collect();
        fs::write(node.path(&format!("hosts{count}.py")), format!("hosts = [\n{hosts}]\n"))?;
    }
    fs::write(node.path("far.py"), format!("hosts = [\n{}]\n", pyinfra(1, FAR)))?;
    Ok(())
}

/// Runs a shell command for each host in parallel. A failure is found later, because results are
/// missing.
fn for_each_host(node: &Node, case: Case, does: &str) -> Command {
    let list = names(case.hosts).join(" ");
    let mut command = node.command("sh");
    command.arg("-c").arg(format!("for h in {list}; do ssh -F \"$0\" $h {does} & done; wait"));
    command.arg(node.path(case.ssh_config()));
    command
}

fn login(node: &Node, case: Case) -> Command {
    for_each_host(node, case, "true")
}

fn script(node: &Node, case: Case) -> Command {
    for_each_host(node, case, &format!("sh -s {}/$h <work.sh", node.path("top").display()))
}

pub fn remoor(node: &Node, case: Case) -> Command {
    let mut command = play(node, case.hosts, "site.yml");
    command.args(["--ssh-config", case.ssh_config()]);
    if case.check {
        command.args(["--check", "--diff"]);
    }
    command
}

/// The command that runs the playbook on this machine itself.
pub fn local(node: &Node) -> Command {
    let mut command = play(node, 1, "site.yml");
    command.args(["--connection", "local"]);
    command
}

fn play(node: &Node, hosts: usize, playbook: &str) -> Command {
    let mut command = node.command(env!("CARGO_BIN_EXE_remoor"));
    command.args(["play", playbook, "-i", &format!("hosts{hosts}"), "-o", "json"]);
    command
}

fn ansible(node: &Node, case: Case) -> Command {
    let mut command = node.command(venv().join("bin/ansible-playbook"));
    command.args(["site.yml", "-i", &format!("hosts{}", case.hosts), "--forks", "10"]);
    if case.check {
        command.args(["--check", "--diff"]);
    }
    let config = node.path(case.ssh_config());
    let args = format!("-F {} -C -o ControlMaster=auto -o ControlPersist=60s", config.display());
    command.env("ANSIBLE_SSH_ARGS", args).env("ANSIBLE_SSH_CONTROL_PATH_DIR", node.path("masters"));
    command.env("ANSIBLE_PIPELINING", "true").env("ANSIBLE_REMOTE_TEMP", node.path("home/remote"));
    command
}

fn ansible_with_mitogen(node: &Node, case: Case) -> Command {
    let mut command = ansible(node, case);
    let plugins = fs::read_dir(venv().join("lib")).ok().and_then(|mut all| all.next()?.ok());
    let plugins = plugins.map(|entry| entry.path().join("site-packages/ansible_mitogen/plugins/strategy"));
    command.env("ANSIBLE_STRATEGY", "mitogen_linear").env("ANSIBLE_STRATEGY_PLUGINS", plugins.unwrap_or_default());
    command
}

fn pyinfra(node: &Node, case: Case) -> Command {
    let mut command = node.command(venv().join("bin/pyinfra"));
    let hosts = if case.far { "far.py".to_owned() } else { format!("hosts{}.py", case.hosts) };
    command.args(["-y", &hosts, "deploy.py"]);
    command
}

/// The maximum resident memory of the executor while it runs `peak.yml` on one node, in MB.
pub fn peak(node: &Node) -> Result<f64> {
    node.empty()?;
    let text = run_tool(play(node, 1, "peak.yml").args(["--ssh-config", "ssh_config"]))?;
    let kb = text.lines().filter(|line| line.contains("VmHWM")).find_map(|line| {
        let (_, rest) = line.split_once("VmHWM:")?;
        rest.trim_start_matches([' ', '\\', 't']).split(' ').next()?.parse::<f64>().ok()
    });
    Ok(kb.with_context(|| format!("no VmHWM: {text}"))? / 1024.0)
}
