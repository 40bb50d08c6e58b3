//! The module `synchronize`: runs rsync on the machine that executes the task. The controller has
//! already replaced the path on the other machine by an address (`delegate/synchronize.rs`).

use super::{ModuleCall, ModuleResult, TaskOutcome, UMASK};
use crate::filters::shell_quote;
use crate::lang::word_split;
use crate::os::process::CommandSpec;
use serde_json::{Value, json};
use std::path::Path;

/// The name of the module.
pub(crate) const SYNCHRONIZE: &str = "synchronize";
/// An internal option: whether rsync connects to the host of the plan.
pub(crate) const CONNECTS: &str = "_connects";
/// An internal option: the directory of the playbook on the controller.
pub(crate) const PLAYBOOK_DIR: &str = "_playbook_dir";
/// An internal option: the command with which rsync connects to the other machine.
pub(crate) const RSYNC_SHELL: &str = "_rsh";

/// Stands before each line of rsync's output that is about a change.
const MARKER: &str = "<<CHANGED>>";
/// Maximum size in bytes of the registered output.
const OUTPUT_MAX: usize = 512 << 10;

pub fn synchronize(call: &mut ModuleCall) -> ModuleResult {
    let check = call.ground.node.is_check_mode();
    let missing =
        |_| "the machine that runs the task has no program `rsync`; install the package rsync there".to_owned();
    let program = call.find_program("rsync").map_err(missing)?;
    let RsyncCommand { argv, shown } = command_line(call, &program, check)?;
    let command = shown.join(" ");
    let job = CommandSpec { argv, umask: Some(UMASK), ..CommandSpec::default() };
    if !check {
        call.ground.node.begin_change()?;
    }
    let done = call.run_spec_quietly(job)?;
    if done.timed_out || done.cancelled {
        return Err(super::failure_message("rsync", &done));
    }
    let rc = done.rc.unwrap_or(-1);
    if rc != 0 {
        if check && call.ground.node.has_predicted_changes() {
            return Ok(TaskOutcome::indeterminate(format!(
                "{}; earlier tasks may change that",
                done.stderr.trim_end()
            )));
        }
        // The shell of the other machine ends with 127 if it finds no rsync. rsync does not always
        // learn this code before it ends itself.
        let is_missing = rc == 127 || done.stderr.contains("not found");
        let hint =
            if is_missing { "rsync is missing on the other machine: install the package rsync there\n" } else { "" };
        let msg = format!("{}{hint}", done.stderr);
        let keys = json!({"cmd": command, "msg": msg, "rc": rc});
        return Ok(TaskOutcome { failed: true, ..TaskOutcome::default() }.with_result(keys));
    }
    let changed = match call.text_list("link_dest").is_some_and(|dirs| !dirs.is_empty()) {
        // rsync also lists files that are as they should be, with a dot.
        true => !done.stdout.contains(&format!("{MARKER}.")),
        false => done.stdout.contains(MARKER),
    };
    let output = shorten(done.stdout.replace(MARKER, ""));
    let lines: Vec<&str> = output.split('\n').filter(|line| !line.is_empty()).collect();
    let keys = json!({"cmd": command, "msg": output, "rc": 0, "stdout_lines": lines});
    let diff = Some(output.clone()).filter(|output| !output.is_empty());
    if changed
        && let Some(would) = call.ground.node.predicted_state_mut()
        && let Some(dest) = call.args.get("dest").and_then(Value::as_str)
    {
        would.add_skipped_path(Path::new(dest.trim_end_matches('/')));
    }
    Ok(TaskOutcome { changed, diff, ..TaskOutcome::default() }.with_result(keys))
}

/// The command of rsync.
struct RsyncCommand {
    argv: Vec<String>,
    /// The same words, quoted for a shell where Ansible quotes them.
    shown: Vec<String>,
}

impl RsyncCommand {
    fn add(&mut self, holds: bool, option: &str) {
        if holds {
            self.add_quoted(option, option);
        }
    }

    fn add_quoted(&mut self, word: &str, shown: &str) {
        self.argv.push(word.to_owned());
        self.shown.push(shown.to_owned());
    }
}

/// The command of rsync as Ansible builds and registers it. Only what the playbook itself writes
/// for this machine may contain `$NAME` and `~`: the host may have an influence on the path on the
/// other machine, and would get values of the environment of this machine.
fn command_line(call: &ModuleCall, program: &str, check: bool) -> Result<RsyncCommand, String> {
    let mut command = RsyncCommand { argv: vec![program.to_owned()], shown: vec![program.to_owned()] };
    let mut add = |holds: bool, option: &str| command.add(holds, option);
    let delays = call.flag("delay_updates", true);
    let connects = call.text(&[RSYNC_SHELL]).is_some();
    let pulls = connects && call.text(&["mode"]).as_deref() == Some("pull");
    add(delays, "--delay-updates");
    // With `delete`, rsync would read the rules of `.rsync-filter` in files that the host has sent.
    add(delays && !(pulls && call.flag("delete", false)), "-F");
    add(call.flag("compress", true), "--compress");
    let timeout = call.text(&["rsync_timeout"]).filter(|seconds| seconds != "0");
    add(timeout.is_some(), &format!("--timeout={}", timeout.as_deref().unwrap_or_default()));
    add(check, "--dry-run");
    for (name, option) in [
        ("delete", "--delete-after"),
        ("existing_only", "--existing"),
        ("checksum", "--checksum"),
        ("copy_links", "--copy-links"),
    ] {
        add(call.flag(name, false), option);
    }
    let archive = call.flag("archive", true);
    add(archive, "--archive");
    for name in ["recursive", "links", "perms", "times", "owner", "group"] {
        match call.given_flag(name) {
            Some(false) if archive => add(true, &format!("--no-{name}")),
            Some(true) if !archive => add(true, &format!("--{name}")),
            _ => {}
        }
    }
    add(call.flag("dirs", false), "--dirs");
    // What the host sends as a link would lead a later task to another file of this machine.
    for option in ["--safe-links", "--no-devices", "--no-specials"] {
        add(pulls, option);
    }
    let remote = connects.then_some(if pulls { "src" } else { "dest" });
    let (src, dest) = (path(call, "src", remote)?, path(call, "dest", remote)?);
    if src.starts_with("rsync://") && dest.starts_with("rsync://") {
        return Err("either src or dest must be a localhost".to_owned());
    }
    let options = split_options(call, "rsync_opts");
    if let Some(shell) = call.text(&[RSYNC_SHELL]).filter(|_| !options.iter().any(|option| option.contains("--rsh"))) {
        command.add_quoted(&format!("--rsh={shell}"), &format!("--rsh={}", shell_quote(&shell)));
    }
    if let Some(path) = call.text(&["rsync_path"]).filter(|path| !path.is_empty()) {
        command.add_quoted(&format!("--rsync-path={path}"), &format!("--rsync-path={}", shell_quote(&path)));
    }
    for option in &options {
        let words = word_split::split_words(option).map_err(|why| format!("`rsync_opts`: {why}"))?;
        command.argv.extend(words.iter().map(|word| call.expand(&word.text)));
        command.shown.push(option.clone());
    }
    let mut add = |holds: bool, option: &str| command.add(holds, option);
    add(call.flag("partial", false), "--partial");
    let links = split_options(call, "link_dest");
    for (at, dir) in links.iter().enumerate() {
        add(at == 0, "-H");
        // Without it, rsync does not report a new hard link as a change.
        add(at == 0, "-vv");
        let dir = call.expand(dir);
        let parent = Path::new(&dest).parent().unwrap_or(Path::new("/")).display().to_string();
        if parent.starts_with(&dir) {
            return Err(format!(
                "Hardlinking into a subdirectory of the source would cause recursion. {parent} and {dest}"
            ));
        }
        add(true, &format!("--link-dest={dir}"));
    }
    command.add_quoted(&format!("--out-format={MARKER}%i %n%L"), &format!("--out-format='{MARKER}%i %n%L'"));
    for path in [&src, &dest] {
        // A path that begins like an option must not be one.
        let word = if path.starts_with('-') { format!("./{path}") } else { path.clone() };
        command.add_quoted(&word, &shell_quote(&word));
    }
    Ok(command)
}

/// The items of an option that is a list or a text with commas.
fn split_options(call: &ModuleCall, name: &str) -> Vec<String> {
    match call.args.get(name) {
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::String(text)) => text.split(',').map(str::to_owned).collect(),
        _ => call.text_list(name).unwrap_or_default(),
    }
}

/// A path of rsync; `remote` is the option with the path on the other machine. A relative path is
/// one of the controller, below the directory of the playbook.
fn path(call: &ModuleCall, name: &str, remote: Option<&str>) -> Result<String, String> {
    let text = call.required_text(&[name])?;
    let text = if remote == Some(name) { text } else { call.expand(&text) };
    let base = call.text(&[PLAYBOOK_DIR]).filter(|dir| !dir.is_empty());
    let Some(base) = base.filter(|_| !text.starts_with('/') && !text.contains(':')) else { return Ok(text) };
    let in_files = format!("{base}/files/{text}");
    Ok(if Path::new(&in_files).exists() { in_files } else { format!("{base}/{text}") })
}

/// The output, without the lines that are too many for a result.
fn shorten(output: String) -> String {
    if output.len() <= OUTPUT_MAX {
        return output;
    }
    let mut end = OUTPUT_MAX;
    while !output.is_char_boundary(end) {
        end -= 1;
    }
    let end = output[..end].rfind('\n').map_or(end, |at| at + 1);
    format!("{}[output cut]\n", &output[..end])
}
