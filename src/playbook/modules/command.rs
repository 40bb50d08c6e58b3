//! `command` and `shell`. A command's words were split by the compiler, so a value with blanks stays one argument.

use super::{Answer, Call, Outcome, UMASK, complaint, started};
use crate::playbook::process::{self, Job};
use crate::playbook::{data, expr, split};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn command(call: &mut Call) -> Answer {
    let argv = argv(call)?;
    if argv.is_empty() {
        return Err("the command is empty".into());
    }
    execute(call, argv)
}

fn argv(call: &Call) -> Result<Vec<String>, String> {
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    if let Some(Value::Array(argv)) = call.args.get("argv") {
        return Ok(argv.iter().map(text).collect());
    }
    // The raw words: what `args` holds rendered has lost which of them were quoted.
    if let Some(Value::Array(words)) = call.task.args.get("words") {
        let mut out = Vec::new();
        for word in words {
            let source = word.get(0).and_then(Value::as_str).unwrap_or_default();
            let quoted = word.get(1).and_then(Value::as_bool).unwrap_or(false);
            let rendered = expr::render_text(call.scope, source).map_err(|e| expr::explain(&e))?;
            if !rendered.is_empty() || quoted || !data::has_markup(source) {
                out.push(rendered);
            }
        }
        return Ok(out);
    }
    match call.args.get("cmd").or(call.args.get("argv")) {
        Some(Value::Array(words)) => Ok(words.iter().map(text).collect()),
        Some(Value::String(line)) => Ok(split::words(line)?.into_iter().map(|w| w.text).collect()),
        _ => Err("`cmd` is missing".into()),
    }
}

pub fn shell(call: &mut Call) -> Answer {
    let script = call.need(&["cmd"])?;
    let shell = call.text(&["executable"]).unwrap_or_else(|| "/bin/sh".into());
    execute(call, vec![shell, "-c".into(), script])
}

fn execute(call: &mut Call, argv: Vec<String>) -> Answer {
    let dir = call.text(&["chdir"]).map(PathBuf::from);
    let seen = |path: &str| -> Result<bool, String> {
        let path = dir.as_ref().map_or_else(|| PathBuf::from(path), |d| d.join(path));
        exists(&path)
    };
    if let Some(path) = call.text(&["creates"])
        && seen(&path)?
    {
        return Ok(Outcome { rc: Some(0), ..Outcome::ok(format!("not run: {path} is there")) });
    }
    if let Some(path) = call.text(&["removes"])
        && !seen(&path)?
    {
        return Ok(Outcome { rc: Some(0), ..Outcome::ok(format!("not run: {path} is not there")) });
    }
    let stdin = call.text(&["stdin"]).map(|mut text| {
        if call.flag("stdin_add_newline", true) && !text.ends_with('\n') {
            text.push('\n');
        }
        text.into_bytes()
    });
    let job = Job { argv, env: call.env.clone(), dir, stdin, timeout: call.timeout, umask: Some(UMASK) };
    let done = process::run(&job, call.cancel, call.emit).map_err(|e| started(&e))?;
    let failed = !done.success();
    Ok(Outcome {
        changed: true,
        failed,
        msg: if failed { complaint("the command", &done) } else { String::new() },
        rc: done.rc.or(Some(-1)),
        output: Some(done),
        ..Outcome::default()
    })
}

/// A path, or anything that matches it as a glob.
fn exists(path: &Path) -> Result<bool, String> {
    let text = path.to_string_lossy();
    if !text.contains(['*', '?', '[']) {
        return Ok(path.symlink_metadata().is_ok());
    }
    let glob =
        globset::GlobBuilder::new(&text).literal_separator(true).build().map_err(|e| e.to_string())?.compile_matcher();
    let fixed: PathBuf =
        path.components().take_while(|c| !c.as_os_str().to_string_lossy().contains(['*', '?', '['])).collect();
    let depth = path.components().count() - fixed.components().count();
    let mut open = vec![(fixed, depth)];
    while let Some((dir, depth)) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let inner = entry.path();
            if glob.is_match(&inner) {
                return Ok(true);
            }
            if depth > 1 && entry.file_type().is_ok_and(|t| t.is_dir()) {
                open.push((inner, depth - 1));
            }
        }
    }
    Ok(false)
}
