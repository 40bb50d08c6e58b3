//! The `lineinfile` module: replaces, inserts or removes one line of a file.

use super::{ModuleCall, ModuleResult, TaskOutcome, write_file};
use crate::lang::file_regex::{FileRegex, LineRules};
use serde_json::json;

pub fn lineinfile(call: &mut ModuleCall) -> ModuleResult {
    let path = call.path(&["path", "dest", "destfile", "name"])?;
    if call.depends_on_skipped_command(&path) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            path.display()
        )));
    }
    let absent = call.text(&["state"]).as_deref() == Some("absent");
    // Follows a link, unless a user other than root may have created it.
    let path = match call.ground.node.stat(&path)? {
        Some(_) => write_file::resolve_target(call, &path)?.map_or(path, |(path, _)| path),
        None => path,
    };
    let old = match call.ground.node.stat(&path)? {
        Some(_) => Some(call.ground.node.read(&path)?),
        None if absent => {
            let mut out = TaskOutcome::ok("file not present");
            out.extra_keys.insert("found".into(), json!(0));
            return Ok(out);
        }
        None if call.flag("create", false) => None,
        None => {
            let message = format!("{} does not exist; set `create: true` to create it", path.display());
            return Err(call.ground.node.note_missing(message));
        }
    };
    let pattern = call.text(&["regexp", "regex"]).filter(|p| !p.is_empty()).map(|p| compile_pattern(&p)).transpose()?;
    let search = call.text(&["search_string"]);
    let line = call.text(&["line", "value"]);
    let before = old.clone().unwrap_or_default();
    let lines: Vec<&[u8]> = before.split_inclusive(|b| *b == b'\n').collect();
    let fits = |l: &[u8]| match (&pattern, &search) {
        (Some(p), _) => p.is_match(without_newline(l)),
        (None, Some(s)) => contains(l, s.as_bytes()),
        (None, None) => line.as_deref().is_some_and(|want| without_newline(l) == want.as_bytes()),
    };
    let mut found = 0;
    let (new, said) = if absent {
        if pattern.is_none() && search.is_none() && line.is_none() {
            return Err("`line` or `regexp` is missing".into());
        }
        found = lines.iter().filter(|l| fits(l)).count();
        let rest = lines.iter().filter(|l| !fits(l)).flat_map(|l| l.iter().copied()).collect();
        (rest, format!("{found} line(s) removed"))
    } else {
        let line = line.clone().ok_or("`line` is missing")?;
        let searches = pattern.is_some() || search.is_some();
        let (new, said) = insert_or_replace(call, &lines, &line, pattern.as_ref(), searches.then_some(&fits))?;
        (new, said.to_owned())
    };
    pattern.as_ref().map_or(Ok(()), FileRegex::check)?;
    if old.is_none() {
        write_file::make_parents(call, &path)?;
    }
    let mut out = write_file::update_file(call, &path, old, new, "lineinfile")?;
    if out.changed && out.msg.starts_with("content changed") || out.msg == "created" {
        out.msg = out.msg.replace("content changed", &said).replace("created", &said);
    }
    if absent {
        out.extra_keys.insert("found".into(), json!(found));
    }
    let backup = out.extra_keys.get("backup_file").cloned().unwrap_or_else(|| json!(""));
    out.extra_keys.insert("backup".into(), backup);
    Ok(out)
}

/// Whether a line matches `regexp` or `search_string`.
type LineMatcher<'f> = &'f dyn Fn(&[u8]) -> bool;

/// The content with the line in it, and the message for the result. `fits` is None if the task has
/// neither `regexp` nor `search_string`.
fn insert_or_replace(
    call: &ModuleCall,
    lines: &[&[u8]],
    line: &str,
    pattern: Option<&FileRegex>,
    fits: Option<LineMatcher>,
) -> Result<(Vec<u8>, &'static str), String> {
    let first = call.flag("firstmatch", false);
    let pick = |fits: &dyn Fn(&[u8]) -> bool| {
        let mut hits = (0..lines.len()).filter(|i| fits(lines[*i]));
        if first { hits.next() } else { hits.last() }
    };
    let backrefs = call.flag("backrefs", false);
    let matched = fits.and_then(|fits| pick(fits));
    // The file may already have the line although the pattern does not match it.
    let exact = || pick(&|l| without_newline(l) == line.as_bytes());
    let mut out: Vec<Vec<u8>> = lines.iter().map(|l| l.to_vec()).collect();
    let ended = |text: &[u8]| if text.ends_with(b"\n") { text.to_vec() } else { [text, b"\n"].concat() };
    if let Some(at) = matched.or_else(exact) {
        let pattern = pattern.filter(|_| backrefs && matched.is_some());
        let expanded = pattern.map(|p| p.expand(without_newline(lines[at]), line)).transpose()?.flatten();
        let new = expanded.unwrap_or_else(|| line.as_bytes().to_vec());
        out[at] = ended(&new);
        return Ok((out.concat(), "line replaced"));
    }
    if backrefs {
        return Ok((out.concat(), ""));
    }
    let (after, before) = (call.text(&["insertafter"]), call.text(&["insertbefore"]));
    let near = |text: &Option<String>| -> Result<Option<usize>, String> {
        let Some(text) = text.as_ref().filter(|t| *t != "EOF" && *t != "BOF") else { return Ok(None) };
        let p = compile_pattern(text)?;
        let found = pick(&|l| p.is_match(without_newline(l)));
        p.check().map(|()| found)
    };
    let at = if [&after, &before].iter().any(|o| o.as_deref() == Some("BOF")) {
        0
    } else if before.is_some() {
        near(&before)?.unwrap_or(out.len())
    } else {
        near(&after)?.map_or(out.len(), |at| at + 1)
    };
    if let Some(previous) = at.checked_sub(1).and_then(|at| out.get_mut(at)).filter(|p| !p.ends_with(b"\n")) {
        previous.push(b'\n');
    }
    out.insert(at, ended(line.as_bytes()));
    Ok((out.concat(), "line added"))
}

/// Compiles a pattern that matches single lines.
pub fn compile_pattern(text: &str) -> Result<FileRegex, String> {
    FileRegex::new(text, LineRules::default())
}

fn without_newline(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && line.windows(part.len()).any(|w| w == part)
}
