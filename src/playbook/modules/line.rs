//! `lineinfile`: one line of a file, replaced, inserted or removed.

use super::{Answer, Call, Outcome, content};
use crate::playbook::filters;
use regex::bytes::Regex;

pub fn lineinfile(call: &mut Call) -> Answer {
    let path = call.path(&["path", "dest", "name"])?;
    if call.is_by_command(&path) {
        return Ok(Outcome::unknown(format!("{} is made by what was not run", path.display())));
    }
    let absent = call.text(&["state"]).as_deref() == Some("absent");
    let old = match call.ground.node.look(&path)? {
        Some(_) => Some(call.ground.node.read(&path)?),
        None if absent => return Ok(Outcome::ok("is not there")),
        None if call.flag("create", false) => None,
        None => {
            let message = format!("{} is not there; `create: true` would make it", path.display());
            return Err(call.ground.node.missing(message));
        }
    };
    let pattern = call.text(&["regexp", "regex"]).map(|p| pattern_text(&p)).transpose()?;
    let search = call.text(&["search_string"]);
    let line = call.text(&["line"]);
    let before = old.clone().unwrap_or_default();
    let lines: Vec<&[u8]> = before.split_inclusive(|b| *b == b'\n').collect();
    let fits = |l: &[u8]| match (&pattern, &search) {
        (Some(p), _) => p.is_match(body(l)),
        (None, Some(s)) => contains(l, s.as_bytes()),
        (None, None) => line.as_deref().is_some_and(|want| body(l) == want.as_bytes()),
    };
    let new = if absent {
        if pattern.is_none() && search.is_none() && line.is_none() {
            return Err("`line` or `regexp` is missing".into());
        }
        lines.iter().filter(|l| !fits(l)).flat_map(|l| l.iter().copied()).collect()
    } else {
        present(call, &lines, line.clone().ok_or("`line` is missing")?, pattern.as_ref(), &fits)?
    };
    let mut out = content::finish(call, &path, old, new, "lineinfile")?;
    if out.changed && out.msg == "content changed" {
        out.msg = if absent { "line removed" } else { "line set" }.into();
    }
    Ok(out)
}

fn present(
    call: &Call,
    lines: &[&[u8]],
    line: String,
    pattern: Option<&Regex>,
    fits: &dyn Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, String> {
    let first = call.flag("firstmatch", false);
    let pick = |hits: Vec<usize>| if first { hits.first().copied() } else { hits.last().copied() };
    let hit = pick((0..lines.len()).filter(|i| fits(lines[*i])).collect());
    let mut out: Vec<Vec<u8>> = lines.iter().map(|l| l.to_vec()).collect();
    let ended = |text: &[u8]| [text, b"\n"].concat();
    if let Some(at) = hit {
        let new = match pattern.filter(|_| call.flag("backrefs", false)).and_then(|p| p.captures(body(lines[at]))) {
            Some(captures) => {
                let mut expanded = Vec::new();
                captures.expand(filters::replacement(&line).as_bytes(), &mut expanded);
                expanded
            }
            None => line.into_bytes(),
        };
        if body(lines[at]) != new.as_slice() {
            let end = lines[at].ends_with(b"\n");
            out[at] = if end { ended(&new) } else { new };
        }
        return Ok(out.concat());
    }
    if call.flag("backrefs", false) {
        return Ok(out.concat());
    }
    // The line may stand there although the pattern does not find it.
    if lines.iter().any(|l| body(l) == line.as_bytes()) {
        return Ok(out.concat());
    }
    let near = |names: &str| -> Result<Option<usize>, String> {
        let Some(text) = call.text(&[names]).filter(|t| t != "EOF" && t != "BOF") else { return Ok(None) };
        let p = pattern_text(&text)?;
        Ok(pick((0..lines.len()).filter(|i| p.is_match(body(lines[*i]))).collect()))
    };
    let at = if call.text(&["insertbefore"]).as_deref() == Some("BOF") {
        0
    } else if let Some(at) = near("insertbefore")? {
        at
    } else if let Some(at) = near("insertafter")? {
        at + 1
    } else {
        out.len()
    };
    if at == out.len()
        && let Some(last) = out.last_mut()
        && !last.ends_with(b"\n")
    {
        last.push(b'\n');
    }
    if at > 0
        && let Some(previous) = out.get_mut(at - 1)
        && !previous.ends_with(b"\n")
    {
        previous.push(b'\n');
    }
    out.insert(at, ended(line.as_bytes()));
    Ok(out.concat())
}

fn pattern_text(text: &str) -> Result<Regex, String> {
    regex::bytes::RegexBuilder::new(text).size_limit(1 << 20).build().map_err(|e| format!("pattern `{text}`: {e}"))
}

fn body(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && line.windows(part.len()).any(|w| w == part)
}
