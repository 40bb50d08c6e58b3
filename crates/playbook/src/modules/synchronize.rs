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
    let command = command_line(call, &program, check)?;
    let words = word_split::split_words(&command).map_err(|why| format!("`rsync_opts`: {why}"))?;
    let argv = words.iter().map(|word| call.expand(&word.text)).collect();
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
        // The shell of the other machine ends with this code if it finds no rsync.
        let hint =
            if rc == 127 { "rsync is missing on the other machine: install the package rsync there\n" } else { "" };
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

/// The command of rsync as Ansible builds and registers it.
fn command_line(call: &ModuleCall, program: &str, check: bool) -> Result<String, String> {
    let mut words = vec![program.to_owned()];
    let mut add = |holds: bool, option: &str| {
        if holds {
            words.push(option.to_owned());
        }
    };
    let delays = call.flag("delay_updates", true);
    add(delays, "--delay-updates");
    add(delays, "-F");
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
    let (src, dest) = (path(call, "src")?, path(call, "dest")?);
    if src.starts_with("rsync://") && dest.starts_with("rsync://") {
        return Err("either src or dest must be a localhost".to_owned());
    }
    let options = split_options(call, "rsync_opts");
    if let Some(shell) = call.text(&[RSYNC_SHELL]).filter(|_| !options.iter().any(|option| option.contains("--rsh"))) {
        add(true, &format!("--rsh={}", shell_quote(&shell)));
    }
    if let Some(path) = call.text(&["rsync_path"]).filter(|path| !path.is_empty()) {
        add(true, &format!("--rsync-path={}", shell_quote(&path)));
    }
    options.iter().for_each(|option| add(true, option));
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
    add(true, &format!("--out-format='{MARKER}%i %n%L'"));
    add(true, &shell_quote(&src));
    add(true, &shell_quote(&dest));
    Ok(words.join(" "))
}

/// The items of an option that is a list or a text with commas.
fn split_options(call: &ModuleCall, name: &str) -> Vec<String> {
    match call.args.get(name) {
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::String(text)) => text.split(',').map(str::to_owned).collect(),
        _ => call.text_list(name).unwrap_or_default(),
    }
}

/// A path of rsync. A relative path is one of the controller, below the directory of the playbook.
fn path(call: &ModuleCall, name: &str) -> Result<String, String> {
    let text = call.expand(&call.required_text(&[name])?);
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
