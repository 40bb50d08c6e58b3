//! The modules `command`, `shell`, `raw` and `script`. The compiler has already split a command
//! into words, so a value with spaces stays one argument. Check mode runs none of them, and their
//! results are then UNKNOWN.

use super::content::{asset_content, find_asset};
use super::{ModuleCall, ModuleResult, TaskOutcome, UMASK, failure_message, spawn_failure};
use crate::lang::word_split;
use crate::os::acting_user::acting_user;
use crate::os::process::{self, CommandSpec, Finished};
use crate::plan::TaskCondition;
use crate::template::expr;
use crate::vars::scope::with_trace;
use crate::vars::{unknown, var_map};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of directory entries that one glob of `creates` or `removes` examines.
const GLOBBED_MAX: usize = 100_000;

pub fn command(call: &mut ModuleCall) -> ModuleResult {
    let argv = match argv(call)? {
        Some(argv) => argv,
        None => {
            return Ok(TaskOutcome::indeterminate("its arguments depend on a result that is unknown in check mode"));
        }
    };
    if argv.is_empty() {
        return Err("the command is empty".into());
    }
    let said = json!(argv);
    execute(call, argv, said)
}

/// The words of the command. None: they depend on a value that is UNKNOWN in check mode.
fn argv(call: &ModuleCall) -> Result<Option<Vec<String>>, String> {
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let expands = call.flag("expand_argument_vars", true);
    let (words, trace) = with_trace(|| -> Result<Vec<String>, String> {
        // The words before rendering are used, because the rendered `args` no longer show which
        // words were quoted and which text came from a value.
        if let Some(Value::Array(words)) = call.task.args.get("words") {
            let mut out = Vec::new();
            for word in words {
                let source = word.get(0).and_then(Value::as_str).unwrap_or_default();
                let quoted = word.get(1).and_then(Value::as_bool).unwrap_or(false);
                let source = if expands { call.expand(source) } else { source.to_owned() };
                let rendered = expr::render_text(call.scope, &source).map_err(|e| expr::explain(&e))?;
                if !rendered.is_empty() || quoted || !var_map::has_markup(&source) {
                    out.push(rendered);
                }
            }
            return Ok(out);
        }
        if let (Some(Value::Array(raw)), Some(Value::Array(argv))) = (call.task.args.get("argv"), call.args.get("argv"))
        {
            let plain = |at: usize| {
                raw.get(at).and_then(Value::as_str).filter(|s| raw.len() == argv.len() && !var_map::has_markup(s))
            };
            let word = |(at, value): (usize, &Value)| match plain(at) {
                Some(source) if expands => call.expand(source),
                _ => text(value),
            };
            return Ok(argv.iter().enumerate().map(word).collect());
        }
        match call.args.get("argv").or(call.args.get("cmd")) {
            Some(Value::Array(words)) => Ok(words.iter().map(text).collect()),
            Some(Value::String(line)) => Ok(word_split::split_words(line)?.into_iter().map(|w| w.text).collect()),
            _ => Err("`cmd` is missing".into()),
        }
    });
    if trace.unknown { Ok(None) } else { words.map(Some) }
}

pub fn shell(call: &mut ModuleCall) -> ModuleResult {
    let script = call.required_text(&["cmd"])?;
    let shell = call.text(&["executable"]).unwrap_or_else(|| "/bin/sh".into());
    let said = json!(script);
    execute(call, vec![shell, "-c".into(), script], said)
}

pub fn raw(call: &mut ModuleCall) -> ModuleResult {
    let script = call.required_text(&["cmd"])?;
    let shell = call.text(&["executable"]).unwrap_or_else(|| "/bin/sh".into());
    let said = json!(script);
    let mut out = execute(call, vec![shell, "-c".into(), script], said)?;
    out.keep_trailing_newlines = true;
    Ok(out)
}

/// Runs a file of the fleet directory as a program. The words after the file name are the arguments
/// of the program.
pub fn script(call: &mut ModuleCall) -> ModuleResult {
    let Some(mut words) = argv(call)? else {
        return Ok(TaskOutcome::indeterminate("its arguments depend on a result that is unknown in check mode"));
    };
    if words.is_empty() {
        return Err("`cmd` is missing".into());
    }
    let said = json!(words.join(" "));
    let name = words.remove(0);
    let source = find_asset(call.task, &name).ok_or_else(|| format!("the plan does not contain the file `{name}`"))?;
    let content = asset_content(call.plan, source)?;
    let mut argv: Vec<String> = match call.text(&["executable"]) {
        Some(line) => word_split::split_words(&line)?.into_iter().map(|w| w.text).collect(),
        None => Vec::new(),
    };
    if call.ground.node.is_check_mode() {
        argv.push(name);
        argv.extend(words);
        return execute(call, argv, said);
    }
    let fail = |e: std::io::Error| format!("cannot write the script: {e}");
    let notes = call.ground.node.notes();
    let make = |path: &Path| {
        notes.note(path)?;
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)
    };
    let mut file = tempfile::Builder::new().prefix(".remoor-script-").make(make).map_err(fail)?;
    file.write_all(content).map_err(fail)?;
    // The kernel does not run a program that is open for writing (ETXTBSY), so the file is closed
    // first.
    let path = file.into_temp_path();
    argv.push(path.display().to_string());
    argv.extend(words);
    execute(call, argv, said)
}

fn execute(call: &mut ModuleCall, argv: Vec<String>, said: Value) -> ModuleResult {
    let dir = call.text(&["chdir"]).map(|dir| call.resolve_in_working_dir(PathBuf::from(call.expand(&dir))));
    if let Some(dir) = dir.as_deref().filter(|dir| !call.ground.node.is_directory(dir)) {
        return Err(call.ground.node.note_missing(format!("`chdir`: {} is not a directory", dir.display())));
    }
    // A program of another user starts in the home directory of that user.
    let home = acting_user().map(|user| user.home.clone());
    let full = |path: &str| match dir.as_ref().or(home.as_ref()) {
        Some(dir) => dir.join(path),
        None => std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)),
    };
    for (option, wanted) in [("creates", true), ("removes", false)] {
        let Some(path) = call.text(&[option]) else { continue };
        if call.depends_on_skipped_command(&full(&path)) {
            return Ok(TaskOutcome::indeterminate(format!(
                "whether {path} exists depends on a command that check mode did not run"
            )));
        }
        if exists(call, &full(&path))? == wanted {
            let how = if wanted { "exists" } else { "does not exist" };
            let mut out =
                TaskOutcome { rc: Some(0), ..TaskOutcome::ok(format!("Did not run command since '{path}' {how}")) };
            out.output = Some(Finished { stdout: format!("skipped, since {path} {how}"), ..Finished::default() });
            out.extra_keys.insert("cmd".into(), said);
            // If `creates` or `removes` makes the command unnecessary, Ansible reports a script as
            // `skipped`, but other commands as `ok`.
            out.skipped = call.task.module == "script";
            return Ok(out);
        }
    }
    if call.ground.node.is_check_mode() {
        let paths: Vec<PathBuf> =
            ["creates", "removes"].iter().filter_map(|o| call.text(&[o])).map(|p| full(&p)).collect();
        return Ok(skipped_outcome(call, &paths, said));
    }
    let stdin = call.text(&["stdin"]).map(|mut text| {
        if call.flag("stdin_add_newline", true) {
            text.push('\n');
        }
        text.into_bytes()
    });
    call.ground.node.begin_change()?;
    let job = CommandSpec {
        argv,
        env: call.env.clone(),
        dir,
        stdin,
        timeout: call.time_left(),
        umask: Some(UMASK),
        clean: false,
    };
    let (start, clock) = (jiff::Zoned::now(), Instant::now());
    let done = match process::run(&job, call.cancel, call.emit) {
        Ok(done) => done,
        Err(e) => {
            let mut out = TaskOutcome { failed: true, rc: e.errno(), msg: spawn_failure(&e), ..TaskOutcome::default() };
            out.output = Some(Finished::default());
            out.extra_keys.insert("cmd".into(), said);
            return Ok(out);
        }
    };
    let took = clock.elapsed();
    let failed = !done.success();
    let mut out = TaskOutcome {
        changed: true,
        failed,
        msg: if failed { failure_message("the command", &done) } else { String::new() },
        rc: done.rc.or(Some(-1)),
        output: Some(done),
        keep_trailing_newlines: !call.flag("strip_empty_ends", true),
        ..TaskOutcome::default()
    };
    let time = |at: &jiff::Zoned| json!(at.strftime("%Y-%m-%d %H:%M:%S%.6f").to_string());
    out.extra_keys.insert("cmd".into(), said);
    out.extra_keys.insert("start".into(), time(&start));
    out.extra_keys.insert("end".into(), time(&jiff::Zoned::now()));
    let seconds = took.as_secs();
    let delta = format!("{}:{:02}:{:02}.{:06}", seconds / 3600, seconds / 60 % 60, seconds % 60, took.subsec_micros());
    out.extra_keys.insert("delta".into(), json!(delta));
    Ok(out)
}

/// The outcome of a command in check mode: it would run, and counts as changed. Its effects are
/// unknown unless `changed_when: false` declares that it changes nothing.
fn skipped_outcome(call: &mut ModuleCall, paths: &[PathBuf], said: Value) -> TaskOutcome {
    let harmless =
        call.task.outcome.changed_when.as_ref().is_some_and(|all| all.iter().any(TaskCondition::is_always_false));
    if let Some(would) = call.ground.node.predicted_state_mut().filter(|_| !harmless) {
        would.mark_unknown();
        paths.iter().for_each(|path| would.add_skipped_path(path));
    }
    let mut out = TaskOutcome { changed: true, would_run: true, ..TaskOutcome::default() };
    out.msg = "not run in check mode".into();
    if call.task.outcome.ignore_errors.is_some() || call.task.outcome.failed_when.is_some() {
        out.extra_keys.insert("failed".into(), unknown::mark());
    }
    out.extra_keys.insert("cmd".into(), said);
    out
}

/// Whether `path` exists. A path with wildcards exists if any file matches it.
pub fn exists(call: &ModuleCall, path: &Path) -> Result<bool, String> {
    let node = &call.ground.node;
    let text = path.to_string_lossy();
    let wild = |part: &str| part.contains(['*', '?', '[']);
    if !wild(&text) {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(true) };
        // A symbolic link exists even if its target does not.
        let real = node.follow(dir).map(|(real, _)| real.join(name));
        return Ok(real.is_some_and(|real| node.stat(&real).is_ok_and(|stat| stat.is_some())));
    }
    let glob =
        globset::GlobBuilder::new(&text).literal_separator(true).build().map_err(|e| e.to_string())?.compile_matcher();
    let fixed: PathBuf = path.components().take_while(|c| !wild(&c.as_os_str().to_string_lossy())).collect();
    let depth = path.components().count() - fixed.components().count();
    let mut open = vec![(fixed, depth)];
    let mut seen = 0;
    while let Some((dir, depth)) = open.pop() {
        let Some((real, _)) = node.follow(&dir) else { continue };
        for name in node.list(&real).unwrap_or_default() {
            let inner = dir.join(&name);
            if glob.is_match(&inner) {
                return Ok(true);
            }
            seen += 1;
            if seen > GLOBBED_MAX {
                return Err(format!("`{text}` would examine more than {GLOBBED_MAX} files"));
            }
            if depth > 1 && node.is_directory(&real.join(&name)) {
                open.push((inner, depth - 1));
            }
        }
    }
    Ok(false)
}
