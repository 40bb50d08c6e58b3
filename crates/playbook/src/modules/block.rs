//! The `blockinfile` and `replace` modules: a marked block of lines, and a pattern in the text of a
//! file.

use super::lineinfile::compile_pattern;
use super::{ModuleCall, ModuleResult, TaskOutcome, write_file};
use crate::lang::file_regex::{FileRegex, LineRules};
use serde_json::json;
use std::path::PathBuf;

/// The path of a file and its content. None: the file does not exist.
pub type ExistingFile = (PathBuf, Option<Vec<u8>>);

/// Loads the file of the task. None: a command that check mode did not run would create or remove
/// the file.
pub fn load_existing(call: &ModuleCall) -> Result<Option<ExistingFile>, String> {
    let path = call.path(&["path", "dest", "destfile", "name"])?;
    if call.depends_on_skipped_command(&path) {
        return Ok(None);
    }
    let path = match call.ground.node.stat(&path)? {
        Some(_) => write_file::resolve_target(call, &path)?.map_or(path, |(path, _)| path),
        None => path,
    };
    let old = match call.ground.node.stat(&path)? {
        Some(_) => Some(call.ground.node.read(&path)?),
        None => None,
    };
    Ok(Some((path, old)))
}

pub fn blockinfile(call: &mut ModuleCall) -> ModuleResult {
    let Some((path, old)) = load_existing(call)? else {
        return Ok(TaskOutcome::indeterminate("the file depends on a command that check mode did not run"));
    };
    let present = call.text(&["state"]).as_deref() != Some("absent");
    if old.is_none() && !(present && call.flag("create", false)) {
        if !present {
            return Ok(TaskOutcome::ok("file not present"));
        }
        let message = format!("{} does not exist; set `create: true` to create it", path.display());
        return Err(call.ground.node.note_missing(message));
    }
    let marker = call.text(&["marker"]).unwrap_or_else(|| "# {mark} ANSIBLE MANAGED BLOCK".into());
    let mark = |option: &str, word: &str| {
        let word = call.text(&[option]).unwrap_or_else(|| word.into());
        format!("{}\n", marker.replace("{mark}", &word)).into_bytes()
    };
    let (begin, end) = (mark("marker_begin", "BEGIN"), mark("marker_end", "END"));
    if begin == end {
        return Err("`marker` must contain `{mark}`, or the begin and end of the block are the same line".into());
    }
    let mut block: Vec<Vec<u8>> = Vec::new();
    let text = call.text(&["block", "content"]).filter(|b| present && !b.is_empty());
    if let Some(mut text) = text {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        block.push(begin.clone());
        block.extend(text.split_inclusive('\n').map(|l| l.as_bytes().to_vec()));
        block.push(end.clone());
    }
    let before = old.clone().unwrap_or_default();
    let mut lines: Vec<Vec<u8>> = before.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let last = |mark: &[u8], lines: &[Vec<u8>]| lines.iter().rposition(|l| l == mark);
    let mut at = match (last(&begin, &lines), last(&end, &lines)) {
        (Some(from), Some(to)) => {
            lines.drain(from.min(to)..=from.max(to));
            from.min(to)
        }
        _ => insertion_index(call, &lines)?,
    };
    if let Some(previous) = at.checked_sub(1).and_then(|at| lines.get_mut(at)).filter(|l| !l.ends_with(b"\n")) {
        previous.push(b'\n');
    }
    if call.flag("prepend_newline", false) && !block.is_empty() && at > 0 && lines[at - 1] != b"\n" {
        lines.insert(at, b"\n".to_vec());
        at += 1;
    }
    let (any, after) = (!block.is_empty(), at + block.len());
    lines.splice(at..at, block);
    if call.flag("append_newline", false) && any && lines.get(after).is_some_and(|l| l != b"\n") {
        lines.insert(after, b"\n".to_vec());
    }
    let created = old.is_none();
    if created {
        write_file::make_parents(call, &path)?;
    }
    let mut out = write_file::update_file(call, &path, old, lines.concat(), "blockinfile")?;
    if out.changed && out.diff.is_some() {
        out.msg = if created {
            "File created"
        } else if any {
            "Block inserted"
        } else {
            "Block removed"
        }
        .into();
    }
    Ok(out)
}

/// The index of the line before which a new block is inserted.
fn insertion_index(call: &ModuleCall, lines: &[Vec<u8>]) -> Result<usize, String> {
    let (after, before) = (call.text(&["insertafter"]), call.text(&["insertbefore"]));
    let find = |text: &str| -> Result<Option<usize>, String> {
        let pattern = compile_pattern(text)?;
        let found = lines.iter().rposition(|l| pattern.is_match(l.strip_suffix(b"\n").unwrap_or(l)));
        pattern.check().map(|()| found)
    };
    Ok(match (after.as_deref(), before.as_deref()) {
        (None | Some("EOF"), None) => lines.len(),
        (Some(text), _) if text != "EOF" => find(text)?.map_or(lines.len(), |at| at + 1),
        (_, Some("BOF")) => 0,
        (_, Some(text)) => find(text)?.unwrap_or(lines.len()),
        _ => lines.len(),
    })
}

pub fn replace(call: &mut ModuleCall) -> ModuleResult {
    let Some((path, old)) = load_existing(call)? else {
        return Ok(TaskOutcome::indeterminate("the file depends on a command that check mode did not run"));
    };
    let Some(old) = old else {
        return Err(call.ground.node.note_missing(format!("{} does not exist", path.display())));
    };
    let build =
        |text: &str, many: bool| FileRegex::new(text, LineRules { multi_line: many, dot_matches_new_line: !many });
    let pattern = build(&call.required_text(&["regexp"])?, true)?;
    let with = call.text(&["replace"]).unwrap_or_default();
    let section = match (call.text(&["after"]), call.text(&["before"])) {
        (None, None) => None,
        (Some(after), Some(before)) => Some(format!("{after}(?P<subsection>.*?){before}")),
        (Some(after), None) => Some(format!("{after}(?P<subsection>.*)")),
        (None, Some(before)) => Some(format!("(?P<subsection>.*){before}")),
    };
    let range = match section {
        None => 0..old.len(),
        Some(text) => match build(&text, false).and_then(|p| {
            let found = p.group(&old, "subsection");
            p.check().map(|()| found)
        })? {
            Some(range) => range,
            None => {
                let said = format!("Pattern for before/after params did not match the given file: {}", path.display());
                return Ok(TaskOutcome::ok(said));
            }
        },
    };
    let part = &old[range.clone()];
    let (replaced, count) = pattern.replace_all(part, &with)?;
    let new = [&old[..range.start], &replaced, &old[range.end..]].concat();
    let mut out = write_file::update_file(call, &path, Some(old), new, "replace")?;
    if out.changed && out.diff.is_some() {
        out.msg = format!("{count} replacements made");
    }
    out.extra_keys.insert("rc".into(), json!(0));
    Ok(out)
}
