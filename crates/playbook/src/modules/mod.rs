//! The Ansible modules as they run on the node, and their common parts: options, guarded file
//! changes, outcomes.

mod account;
mod alternatives;
mod apt;
mod apt_key;
mod apt_repository;
mod argument_types;
mod assemble;
mod assert;
mod async_status;
mod authorized_key;
mod block;
mod checksum;
mod chunked_search;
mod command;
mod content;
mod copy;
mod cron;
mod deb822_repository;
mod debconf;
mod debug;
mod diff;
mod dnf;
mod dpkg_selections;
mod expansion;
mod fact_modules;
mod fail;
mod file;
mod find;
mod get_url;
mod getent;
mod git;
mod http_request;
mod ini_file;
mod iptables;
mod kernel;
mod known_hosts;
mod lineinfile;
mod locale_gen;
mod mount;
mod package;
mod pam_limits;
mod pause;
mod ping;
mod pip;
mod python_module;
mod python_runtime;
mod reboot;
mod run_context;
mod selinux_labels;
mod service;
mod set_fact;
mod set_stats;
mod setup;
mod stat;
mod synchronize;
mod task_outcome;
mod tempfile;
mod timezone;
mod ufw;
mod unarchive;
mod unpack;
mod uri;
mod user_secrets;
mod validate_argument_spec;
mod wait_for;
mod wait_for_connection;
mod write_file;

pub use apt_repository::repository_file;
pub(crate) use argument_types::map_of_text;
pub(crate) use async_status::{JOB_RESULT_MAX, job_dir, write_job_result};
pub(crate) use checksum::file_checksum;
pub use content::{ContentError, asset_content, content_of, find_asset, template_of};
pub(crate) use fact_modules::FACT_MODULES;
pub(crate) use python_runtime::{PYTHON_VARIABLE, PythonRuntime, chooses_python, find_python, named_python};
pub(crate) use reboot::{REBOOT, RebootStep};
pub use run_context::RunContext;
pub(crate) use synchronize::{CONNECTS, PLAYBOOK_DIR, RSYNC_SHELL, SYNCHRONIZE};
pub use task_outcome::{ModuleResult, TaskOutcome};

use super::compile;
use super::node::PredictedState;
use super::plan::{Plan, Task, TaskPrivileges};
use crate::os::acting_user::{self, env_var};
use crate::os::atomic_fs::{self, Attributes, SafeError};
use crate::os::process::{CommandSpec, Finished};
use crate::os::{accounts, process};
use crate::run::event::{AttributeChange, CancelToken, ResetupPhase};
use crate::run::privileges;
use crate::vars::scope::ExprScope;
use crate::vars::var_map;
use run_context::is_vital;
use rustix::fs::{FileType, Stat};
use serde_json::{Map, Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// The umask of commands and helper programs, as in a login shell. Services must be able to read
/// the files that these programs create. The executor's own umask is stricter.
const UMASK: u32 = 0o022;

impl From<SafeError> for String {
    fn from(e: SafeError) -> Self {
        e.line()
    }
}

/// One execution of one task.
pub struct ModuleCall<'a, 'g> {
    pub plan: &'a Plan,
    pub task: &'a Task,
    /// The options of the task, with all templates rendered.
    pub args: Map<String, Value>,
    pub scope: &'a ExprScope,
    pub env: Vec<(String, String)>,
    /// The privileges of the task, without templates.
    pub privileges: TaskPrivileges,
    /// The deadline of the task (its `timeout`), if it has one.
    pub until: Option<Instant>,
    pub cancel: &'a CancelToken,
    pub ground: &'a mut RunContext<'g>,
    pub emit: &'a mut dyn FnMut(&str),
}

impl<'a> ModuleCall<'a, '_> {
    pub fn tool(&self) -> Tool<'a> {
        Tool { env: self.env.clone(), deadline: self.until, cancel: self.cancel }
    }

    /// The time until the task's deadline. None: the task has no deadline.
    pub fn time_left(&self) -> Option<Duration> {
        time_until(self.until)
    }

    /// Whether this run is the cleanup of a node.
    pub fn is_cleanup(&self) -> bool {
        self.ground.options.phase == ResetupPhase::Cleanup
    }

    /// The first of these options that is set, as text. A boolean becomes `True` or `False`, as in
    /// Python.
    pub fn text(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| match self.args.get(*name)? {
            Value::String(s) => Some(s.clone()),
            Value::Number(n) => Some(n.to_string()),
            Value::Bool(b) => Some(if *b { "True" } else { "False" }.to_owned()),
            _ => None,
        })
    }

    /// The first of these options that is set, as text. Fails if none is set or the text is empty.
    pub fn required_text(&self, names: &[&str]) -> Result<String, String> {
        self.text(names).filter(|t| !t.is_empty()).ok_or_else(|| format!("`{}` is missing or empty", names[0]))
    }

    /// A boolean option. `default` if it is not set.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        match self.args.get(name) {
            None | Some(Value::Null) => default,
            // `run_module` has already rejected values that are not booleans.
            Some(value) => var_map::boolean(value) == Some(true),
        }
    }

    /// A boolean option. None: it is not set.
    pub fn given_flag(&self, name: &str) -> Option<bool> {
        self.args.get(name).filter(|v| !v.is_null()).map(|_| self.flag(name, false))
    }

    /// A list option whose items may contain commas. None: the option is not set.
    pub fn text_list(&self, name: &str) -> Option<Vec<String>> {
        match self.args.get(name)? {
            Value::Null => None,
            Value::Array(items) => {
                Some(items.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect())
            }
            other => Some(vec![other.as_str().map_or_else(|| other.to_string(), str::to_owned)]),
        }
    }

    /// The first of these options that is set: a list, or a text that is split at commas.
    pub fn list(&self, names: &[&str]) -> Vec<String> {
        for name in names {
            match self.args.get(*name) {
                Some(Value::Array(items)) => {
                    return items
                        .iter()
                        .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                        .filter(|s| !s.is_empty())
                        .collect();
                }
                Some(Value::String(s)) => {
                    return s.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect();
                }
                _ => {}
            }
        }
        Vec::new()
    }

    /// A duration option in seconds. Fails on text that is not a number and on negative values.
    pub fn seconds(&self, name: &str, default: f64) -> Result<Duration, String> {
        let value = match self.text(&[name]) {
            None => default,
            Some(text) => text.parse().map_err(|_| format!("`{name}` is not a number: {text}"))?,
        };
        Duration::try_from_secs_f64(value).map_err(|_| format!("`{name}` is not a valid duration in seconds: {value}"))
    }

    /// The text with environment variables and home directories expanded.
    pub fn expand(&self, text: &str) -> String {
        let entry = |name: &str| self.ground.node.user(name).filter(|entry| entry[0] == name);
        expansion::expand(text, &self.env, &|name| entry(name)?.get(5).cloned())
    }

    /// A path option: absolute after expansion, without `..`.
    pub fn path(&self, names: &[&str]) -> Result<PathBuf, String> {
        let text = self.required_text(names)?;
        let path = self.resolve_in_working_dir(PathBuf::from(self.expand(&text)));
        if !path.is_absolute() || path.components().any(|c| c == Component::ParentDir) {
            return Err(format!("`{text}` is not an absolute path without `..`"));
        }
        // Collecting the components drops trailing and doubled slashes.
        Ok(path.components().collect())
    }

    /// Makes a relative path absolute if the run has a working directory. Leading `..` lead to its
    /// parents.
    pub fn resolve_in_working_dir(&self, path: PathBuf) -> PathBuf {
        let Some(dir) = self.ground.options.working_dir.as_deref().filter(|_| path.is_relative()) else { return path };
        let parts: Vec<_> = path.components().filter(|part| *part != Component::CurDir).collect();
        let ups = parts.iter().take_while(|part| **part == Component::ParentDir).count();
        let above = dir.ancestors().nth(ups).unwrap_or(Path::new("/"));
        above.join(parts[ups..].iter().collect::<PathBuf>())
    }

    /// A path option. None: the task does not set it.
    pub fn optional_path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        self.args.contains_key(name).then(|| self.path(&[name])).transpose()
    }

    /// The attributes to set on a file from `mode`, `owner` and `group`. `old` is the current state
    /// of the file. None: the file is new, and gets `fresh_mode` unless `mode` is set.
    pub fn attributes(&self, old: Option<&Stat>, fresh_mode: u32, directory: bool) -> Result<Attributes, String> {
        let base = old.map_or(fresh_mode, atomic_fs::mode_of);
        let mode = match self.text(&["mode"]) {
            Some(text) if text != "preserve" => Some(accounts::mode(&text, base, directory)?),
            _ => old.is_none().then_some(fresh_mode),
        };
        let uid = self.text(&["owner"]).map(|name| self.ground.node.uid(&name)).transpose()?;
        let gid = self.text(&["group"]).map(|name| self.ground.node.gid(&name)).transpose()?;
        Ok(Attributes { mode, uid, gid })
    }

    /// The attributes of `stat` that differ from `want`, each with the old and the new value as
    /// text.
    pub fn attribute_changes(&self, stat: &Stat, want: Attributes) -> Vec<AttributeChange> {
        let mut out = Vec::new();
        let node = &self.ground.node;
        let name = |entry: Option<Vec<String>>, id: u32| {
            entry.and_then(|e| e.into_iter().next()).unwrap_or_else(|| id.to_string())
        };
        let user = |id: u32| name(node.user(&id.to_string()), id);
        let group = |id: u32| name(node.group(&id.to_string()), id);
        if let Some(mode) = want.mode.filter(|m| *m != atomic_fs::mode_of(stat)) {
            out.push(AttributeChange::new("mode", format!("{:04o}", atomic_fs::mode_of(stat)), format!("{mode:04o}")));
        }
        if let Some(uid) = want.uid.filter(|u| *u != stat.st_uid) {
            out.push(AttributeChange::new("owner", user(stat.st_uid), user(uid)));
        }
        if let Some(gid) = want.gid.filter(|g| *g != stat.st_gid) {
            out.push(AttributeChange::new("group", group(stat.st_gid), group(gid)));
        }
        out
    }

    /// Adds mode, owner, group, size and type of a file to the result. Adds nothing if the file
    /// does not exist.
    pub fn add_path_info(&self, path: &Path, out: &mut TaskOutcome) {
        let node = &self.ground.node;
        let Ok(Some(stat)) = node.stat(path) else { return };
        let name = |entry: Option<Vec<String>>| entry.and_then(|e| e.into_iter().next());
        let state = match atomic_fs::kind(&stat) {
            FileType::Directory => "directory",
            FileType::Symlink => "link",
            _ if stat.st_nlink > 1 => "hard",
            _ => "file",
        };
        let mut set = |key: &str, value: Value| drop(out.extra_keys.insert(key.into(), value));
        set("state", json!(state));
        set("mode", json!(format!("{:04o}", atomic_fs::mode_of(&stat))));
        set("uid", account::id_value(stat.st_uid, node.is_check_mode()));
        set("gid", account::id_value(stat.st_gid, node.is_check_mode()));
        set("size", json!(stat.st_size));
        for (key, entry) in
            [("owner", node.user(&stat.st_uid.to_string())), ("group", node.group(&stat.st_gid.to_string()))]
        {
            if let Some(name) = name(entry) {
                set(key, json!(name));
            }
        }
    }

    /// The content of a file whose lines will be edited, as bytes and as text. If the file does not
    /// exist, None and an empty text. Fails if the content is not UTF-8.
    pub fn read_text(&self, path: &Path) -> Result<(Option<Vec<u8>>, String), String> {
        let node = &self.ground.node;
        let old = node.stat(path)?.map(|_| node.read(path)).transpose()?;
        let text = decode_utf8(old.clone().unwrap_or_default(), &path.display())?;
        Ok((old, text))
    }

    /// Runs a helper program that only reads. It also runs in check mode, and its output lines are
    /// not events.
    pub fn run_quietly(&self, argv: &[&str]) -> Result<Finished, String> {
        self.tool().run(argv)
    }

    /// Runs a program that changes the node. Its output lines are events. In check mode the program
    /// is not run; `effect` then records the expected result in the predicted state.
    pub fn run_or_predict(
        &mut self,
        argv: &[&str],
        effect: impl FnOnce(&mut PredictedState),
    ) -> Result<Finished, String> {
        self.feed_or_predict(argv, None, effect)
    }

    /// The text that an earlier task of this run would leave behind under `key`. None: this is no
    /// check mode, or no earlier task changes it.
    pub fn predicted_text(&self, key: &str) -> Option<String> {
        self.ground.node.predicted_state()?.text(key)
    }

    /// Whether a command that check mode did not run would create or remove `path`.
    pub fn depends_on_skipped_command(&self, path: &Path) -> bool {
        self.ground.node.predicted_state().is_some_and(|would| would.depends_on_skipped_command(path))
    }

    /// Like `run_or_predict`, with a text for the standard input of the program.
    pub fn feed_or_predict(
        &mut self,
        argv: &[&str],
        input: Option<Vec<u8>>,
        effect: impl FnOnce(&mut PredictedState),
    ) -> Result<Finished, String> {
        if let Some(would) = self.ground.node.predicted_state_mut() {
            effect(would);
            return Ok(Finished { rc: Some(0), ..Finished::default() });
        }
        self.run_changing(argv, input)
    }

    /// The path of a program: in PATH of the task, or in a directory for system programs.
    pub fn find_program(&self, name: &str) -> Result<String, String> {
        find_program(&self.env, name)
            .ok_or_else(|| self.ground.node.note_missing(format!("this node has no program `{name}`")))
    }

    /// Runs a program that changes the node, also in check mode. Its output lines are events.
    fn run_changing(&mut self, argv: &[&str], stdin: Option<Vec<u8>>) -> Result<Finished, String> {
        let argv = helper_command(&self.env, argv);
        self.run_spec(CommandSpec { argv, stdin, umask: Some(UMASK), ..CommandSpec::default() })
    }

    /// Runs a command that changes the node, also in check mode, with the environment and the
    /// deadline of the task. Its output lines are events.
    fn run_spec(&mut self, job: CommandSpec) -> Result<Finished, String> {
        self.ground.node.begin_change()?;
        let job = CommandSpec { env: self.env.clone(), timeout: self.time_left(), ..job };
        let done = process::run(&job, self.cancel, self.emit).map_err(|e| spawn_failure(&e));
        self.ground.node.forget_accounts();
        done
    }

    /// Like `run_spec`, for a command that only reads. Its output lines are not events.
    fn run_spec_quietly(&self, job: CommandSpec) -> Result<Finished, String> {
        let job = CommandSpec { env: self.env.clone(), timeout: self.time_left(), ..job };
        process::run(&job, self.cancel, &mut |_| {}).map_err(|e| spawn_failure(&e))
    }
}

/// The path of a program: in PATH of `env` or of this process, or in a directory for system
/// programs, which PATH of a login user may lack.
fn find_program(env: &[(String, String)], name: &str) -> Option<String> {
    let own = env.iter().rev().find(|(key, _)| key == "PATH").map(|(_, value)| value.clone());
    let path = own.or_else(|| env_var("PATH")).unwrap_or_default();
    let dirs = path.split(':').filter(|dir| !dir.is_empty()).chain(["/sbin", "/usr/sbin", "/usr/local/sbin"]);
    let is_program = |path: &PathBuf| {
        let found = std::fs::metadata(path);
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(is_program);
    found.map(|path| path.display().to_string())
}

/// The command line of a helper program, with the path of the program.
fn helper_command(env: &[(String, String)], argv: &[&str]) -> Vec<String> {
    let mut argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    if let Some(program) = argv.first_mut().filter(|program| !program.contains('/'))
        && let Some(path) = find_program(env, program)
    {
        *program = path;
    }
    argv
}

/// The environment, deadline and cancellation of a task's helper programs.
pub struct Tool<'a> {
    env: Vec<(String, String)>,
    deadline: Option<Instant>,
    cancel: &'a CancelToken,
}

fn time_until(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(Instant::now()))
}

impl Tool<'_> {
    /// Runs a helper program. Its output lines are not events.
    pub fn run(&self, argv: &[&str]) -> Result<Finished, String> {
        self.feed(argv, None)
    }

    /// Like `run`, with a text for the standard input of the program.
    pub fn feed(&self, argv: &[&str], stdin: Option<Vec<u8>>) -> Result<Finished, String> {
        let job = CommandSpec {
            argv: helper_command(&self.env, argv),
            env: self.env.clone(),
            stdin,
            timeout: time_until(self.deadline),
            umask: Some(UMASK),
            ..CommandSpec::default()
        };
        process::run(&job, self.cancel, &mut |_| {}).map_err(|e| spawn_failure(&e))
    }
}

/// The message for a command that could not be started, with its cause.
fn spawn_failure(e: &process::SpawnError) -> String {
    match std::error::Error::source(e) {
        Some(source) => format!("{e}: {source}"),
        None => e.to_string(),
    }
}

/// Decodes a file that will be edited and written back. Other encodings are rejected, because a
/// lossy conversion would damage the file.
fn decode_utf8(bytes: Vec<u8>, name: &dyn std::fmt::Display) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8; it was left unchanged"))
}

/// The message for a command that failed: how it ended, and its last line of output.
fn failure_message(what: &str, done: &Finished) -> String {
    let how = match (done.rc, done.timed_out, done.cancelled) {
        (_, true, _) => "timed out".to_owned(),
        (_, _, true) => "was cancelled".to_owned(),
        (Some(signal), _, _) if signal < 0 => format!("was killed by signal {}", -signal),
        (Some(rc), _, _) => format!("exited with code {rc}"),
        (None, _, _) => "was killed".to_owned(),
    };
    let last = done.stdout.lines().chain(done.stderr.lines()).rfind(|l| !l.trim().is_empty()).unwrap_or_default();
    format!("{what} {how}: {last}").trim_end_matches([':', ' ']).chars().take(2000).collect()
}

/// Fails with `failure_message` unless the command succeeded.
fn require_success(what: &str, done: &Finished) -> Result<(), String> {
    if done.success() { Ok(()) } else { Err(failure_message(what, done)) }
}

/// The attribute changes as one line of text.
fn describe_changes(changes: &[AttributeChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A value as text: a string as it is, other types as JSON.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Runs the module of one task as the user of the task. The rendered options are validated first,
/// because their values may come from variables.
pub fn run_module(call: &mut ModuleCall) -> ModuleResult {
    let other = python_for_value(call);
    if let Some(why) = compile::check_rendered(&call.task.module, &call.args).filter(|_| other.is_none()) {
        return Err(why);
    }
    if let Some(why) = selinux_labels::label_refusal(&call.args, Path::new("/sys/fs/selinux/enforce").exists()) {
        return Err(why);
    }
    // An earlier task may have created users or groups, so the cached accounts are dropped.
    call.ground.node.forget_accounts();
    let _acting = privileges::act_as_user(call.task, &call.privileges, call.ground, call.cancel)?;
    if let Some(user) = acting_user::acting_user() {
        let own = std::mem::replace(&mut call.env, user.env.clone());
        call.env.extend(own);
    }
    match other {
        None => run_named(call),
        Some(name) => python_module::python_module(call, name),
    }
}

/// The Python module of the plan that runs instead of a native one, because an option has a value
/// that the native module does not support.
fn python_for_value<'a>(call: &ModuleCall<'a, '_>) -> Option<&'a str> {
    let (plan, task): (&'a Plan, &'a Task) = (call.plan, call.task);
    let is_refused = |(name, value): (&String, &Value)| {
        value.as_str().is_some_and(|text| compile::is_refused_value(&task.module, name, text))
    };
    let mut names = plan.modules.keys().map(String::as_str);
    if call.args.iter().any(is_refused) { names.find(|name| task.may_run_as(name)) } else { None }
}

fn run_named(call: &mut ModuleCall) -> ModuleResult {
    match call.task.module.as_str() {
        "template" => content::template(call),
        "copy" => copy::copy(call),
        "file" => file::file(call),
        "lineinfile" => lineinfile::lineinfile(call),
        "command" => command::command(call),
        "shell" => command::shell(call),
        "raw" => command::raw(call),
        "script" => command::script(call),
        "service" | "systemd" => service::service(call),
        "apt" => apt::apt(call),
        "dnf" | "yum" => dnf::dnf(call),
        "package" => package::package(call),
        "user" => account::user(call),
        "group" => account::group(call),
        "wait_for" => wait_for::wait_for(call),
        "blockinfile" => block::blockinfile(call),
        "replace" => block::replace(call),
        "ini_file" => ini_file::ini_file(call),
        "authorized_key" => authorized_key::authorized_key(call),
        "cron" => cron::cron(call),
        "get_url" => get_url::get_url(call),
        "git" => git::git(call),
        "mount" => mount::mount(call),
        "unarchive" => unarchive::unarchive(call),
        "uri" => uri::uri(call),
        "sysctl" => kernel::sysctl(call),
        "modprobe" => kernel::modprobe(call),
        "hostname" => kernel::hostname(call),
        "service_facts" => fact_modules::service_facts(call),
        "package_facts" => fact_modules::package_facts(call),
        "find" => find::find(call),
        "slurp" => find::slurp(call),
        "getent" => getent::getent(call),
        "ping" => ping::ping(call),
        "pause" => pause::pause(call),
        "setup" | "gather_facts" => setup::setup(call),
        "alternatives" => alternatives::alternatives(call),
        "apt_key" => apt_key::apt_key(call),
        "apt_repository" => apt_repository::apt_repository(call),
        "assemble" => assemble::assemble(call),
        "deb822_repository" => deb822_repository::deb822_repository(call),
        "debconf" => debconf::debconf(call),
        "dpkg_selections" => dpkg_selections::dpkg_selections(call),
        "iptables" => iptables::iptables(call),
        "known_hosts" => known_hosts::known_hosts(call),
        "locale_gen" => locale_gen::locale_gen(call),
        "pam_limits" => pam_limits::pam_limits(call),
        "pip" => pip::pip(call),
        "timezone" => timezone::timezone(call),
        "ufw" => ufw::ufw(call),
        REBOOT => reboot::reboot(call),
        "wait_for_connection" => wait_for_connection::wait_for_connection(call),
        "tempfile" => tempfile::tempfile(call),
        "assert" => assert::assert(call),
        "async_status" => async_status::async_status(call),
        "validate_argument_spec" => validate_argument_spec::validate_argument_spec(call),
        "debug" => debug::debug(call),
        "set_fact" => set_fact::set_fact(call),
        "set_stats" => set_stats::set_stats(call),
        "stat" => stat::stat(call),
        SYNCHRONIZE => synchronize::synchronize(call),
        #[cfg(any(test, feature = "testing"))]
        "panic" => panic!("a defect in a module"),
        "fail" => fail::fail(call),
        name if call.plan.modules.contains_key(name) => python_module::python_module(call, name),
        other => Err(format!("the module `{other}` is not supported by this version of remoor")),
    }
}
