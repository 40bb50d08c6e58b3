//! The same 20 tasks on this machine itself, without a login: remoor, CFEngine's cf-agent and
//! `puppet apply`. The packages of CFEngine and Puppet are unpacked into a directory below target
//! and are not installed in the system. A missing tool is named and left out.

use crate::node::Node;
use crate::{Cost, Spread, run_tool, tools};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const POLICY: &str = include_str!("policy.cf");
const MANIFEST: &str = include_str!("site.pp");
const DEBS: &str = include_str!("debs.sh");
const PEAK: &str = include_str!("../peak.py");
const CFENGINE: &str = "cfengine3";
const PUPPET: &str = "puppet-agent";
/// The variable that makes CFEngine keep its keys, locks and state outside the system directories.
const CFENGINE_DIR: &str = "CFENGINE_TEST_OVERRIDE_WORKDIR";

/// The cost of a tool on this machine when nothing changes.
pub struct Local {
    pub name: &'static str,
    pub wall: Spread,
    /// Memory of the tool's largest process, in MB.
    pub mb: Option<f64>,
}

type Make = fn(&Node) -> Result<()>;

pub fn runs(node: &Node, rounds: usize) -> Result<Vec<Local>> {
    let mut locals = vec![run(node, tools::REMOOR, tools::local, rounds)?];
    type Run = fn(&Node) -> Command;
    let peers: [(&'static str, &str, Make, Run); 2] =
        [("cf-agent", CFENGINE, make_cfengine, cfengine), ("puppet apply", PUPPET, make_puppet, puppet)];
    for (name, package, make, command) in peers {
        let local = have(package).and_then(|()| make(node)).and_then(|()| run(node, name, command, rounds));
        match local {
            Ok(local) => locals.push(local),
            Err(why) => println!("NOT TO BE HAD, LEFT OUT: {name} (Debian: {package}): {why:#}"),
        }
    }
    Ok(locals)
}

fn run(node: &Node, name: &'static str, command: fn(&Node) -> Command, rounds: usize) -> Result<Local> {
    node.empty()?;
    fs::create_dir(node.path("top/n1"))?;
    run_tool(&mut command(node))?;
    node.check_done(1)?;
    let costs: Result<Vec<Cost>> = (0..rounds).map(|_| Ok(node.measure(&mut command(node))?.0)).collect();
    node.check_done(1)?;
    let wall = Spread::median_of(&costs?, |cost| cost.wall);
    let mb = match peak(node, &command(node)) {
        Ok(mb) => Some(mb),
        Err(why) => {
            println!("the memory of {name} was not measured: {why:#}");
            None
        }
    };
    Ok(Local { name, wall, mb })
}

/// The peak memory of a command, in MB. A small process starts the command, because the kernel's
/// value for a process includes the process that forked it.
fn peak(node: &Node, command: &Command) -> Result<f64> {
    let mut small = node.command("python3");
    small.args(["-I", "-S", "-c", PEAK, "1"]).arg(command.get_program()).args(command.get_args());
    small.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let text = run_tool(&mut small)?;
    Ok(text.trim().parse::<f64>().with_context(|| format!("not a number: {text}"))? / 1024.0)
}

/// The directory into which a package and all its dependencies are unpacked.
fn root(package: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("playbook-peers-debs").join(package)
}

fn have(package: &str) -> Result<()> {
    let dir = root(package);
    if dir.exists() {
        return Ok(());
    }
    println!("getting Debian's {package} into {}, installing nothing", dir.display());
    // The command keeps the caller's environment, because the environment may define where packages
    // come from.
    run_tool(Command::new("sh").args(["-c", DEBS, "debs.sh"]).arg(&dir).arg(package)).map(drop)
}

/// A program of a package, with the libraries of the package.
fn program_of(node: &Node, package: &str, program: &str) -> Command {
    let root = root(package);
    let mut libraries = vec![root.join("usr/lib")];
    for dir in ["usr/lib", "lib"] {
        libraries.extend(architecture_dirs(&root.join(dir)));
    }
    let mut command = node.command(root.join("usr/bin").join(program));
    command.env("LD_LIBRARY_PATH", search_path(&libraries));
    command
}

fn make_cfengine(node: &Node) -> Result<()> {
    let target_dir = node.path("top/n1").display().to_string();
    let (policy, work) = (node.path("policy.cf"), node.path("cfengine"));
    fs::write(&policy, POLICY.replace("OWN", &target_dir))?;
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o600))?;
    // cf-agent runs a program in this directory to check its policies. The directory has no other
    // program, so that no permanent process starts.
    fs::create_dir_all(work.join("bin"))?;
    fs::set_permissions(&work, fs::Permissions::from_mode(0o700))?;
    symlink(root(CFENGINE).join("usr/bin/cf-promises"), work.join("bin/cf-promises"))?;
    run_tool(program_of(node, CFENGINE, "cf-key").env(CFENGINE_DIR, work)).map(drop)
}

fn cfengine(node: &Node) -> Command {
    let mut command = program_of(node, CFENGINE, "cf-agent");
    command.env(CFENGINE_DIR, node.path("cfengine"));
    // `--no-lock` makes cf-agent run even if it has just run.
    command.args(["--no-lock", "--file"]).arg(node.path("policy.cf"));
    command
}

fn make_puppet(node: &Node) -> Result<()> {
    let target_dir = node.path("top/n1").display().to_string();
    fs::create_dir_all(node.path("puppet"))?;
    Ok(fs::write(node.path("site.pp"), MANIFEST.replace("OWN", &target_dir))?)
}

fn puppet(node: &Node) -> Command {
    let ruby = root(PUPPET).join("usr/lib/ruby");
    let mut command = program_of(node, PUPPET, "ruby");
    let mut paths = vec![ruby.join("vendor_ruby")];
    // Ruby has directories for its version and for the architecture.
    paths.extend(entries(&ruby).filter(|path| is_version(path)));
    for dir in architecture_dirs(&root(PUPPET).join("usr/lib")) {
        paths.extend(
            entries(&dir.join("ruby")).chain(entries(&dir.join("ruby/vendor_ruby"))).filter(|path| is_version(path)),
        );
    }
    command.env("RUBYLIB", search_path(&paths));
    command.env(
        "GEM_PATH",
        search_path(&entries(&root(PUPPET).join("usr/share/rubygems-integration")).collect::<Vec<_>>()),
    );
    command.arg(root(PUPPET).join("usr/bin/puppet")).arg("apply");
    for dir in ["confdir", "vardir", "rundir", "logdir", "ssldir", "publicdir"] {
        command.arg(format!("--{dir}")).arg(node.path(&format!("puppet/{dir}")));
    }
    command.arg(node.path("site.pp"));
    command
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The directories of architectures, such as `x86_64-linux-gnu`.
fn architecture_dirs(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(dir).filter(|path| path.to_string_lossy().contains("-linux-"))
}

fn is_version(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(|c: char| c.is_ascii_digit()))
}

fn search_path(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}
