//! `ini_file`: one option of one section, or a whole section.

use super::block::existing;
use super::{Answer, Call, Outcome, place};
use regex::Regex;

pub fn ini_file(call: &mut Call) -> Answer {
    let Some((path, old)) = existing(call)? else {
        return Ok(Outcome::unknown("the file is made by what was not run"));
    };
    let present = call.text(&["state"]).as_deref() != Some("absent");
    if old.is_none() && !call.flag("create", true) {
        return Err(call.ground.node.missing(format!("{} is not there; `create: true` would make it", path.display())));
    }
    if old.is_none() && !present {
        return Ok(Outcome::ok("OK"));
    }
    let text =
        String::from_utf8(old.clone().unwrap_or_default()).map_err(|_| format!("{} is not UTF-8", path.display()))?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if let Some(last) = lines.last_mut().filter(|l| !l.ends_with('\n')) {
        last.push('\n');
    }
    let section = call.text(&["section"]).filter(|s| !s.is_empty());
    let option = call.text(&["option"]).filter(|o| !o.is_empty());
    let found = bounds(&lines, section.as_deref());
    let mut msg = "OK";
    match (present, option, found) {
        (false, None, Some((from, to))) => {
            let head = usize::from(section.is_some());
            lines.drain(from - head..to);
            msg = "section removed";
        }
        (false, None, None) | (true, None, Some(_)) | (false, Some(_), None) => {}
        (true, None, None) => {
            lines.extend(section.map(|s| format!("[{s}]\n")));
            msg = "section and option added";
        }
        (_, Some(option), Some((from, to))) => {
            let inner: Vec<String> = lines[from..to].to_vec();
            let (inner, said) = set(call, inner, &option, present)?;
            msg = said;
            lines.splice(from..to, inner);
        }
        (true, Some(option), None) => {
            lines.extend(section.map(|s| format!("[{s}]\n")));
            let (inner, _) = set(call, Vec::new(), &option, true)?;
            lines.extend(inner);
            msg = "section and option added";
        }
    }
    let new = lines.concat();
    // A line end at the end is no change of its own.
    let new = if new.trim_end_matches('\n') == text.trim_end_matches('\n') && old.is_some() { text } else { new };
    if old.is_none() {
        place::make_above(call, &path)?;
    }
    let mut out = place::finish(call, &path, old, new.into_bytes(), "ini_file")?;
    if out.changed && (out.msg == "created" || out.msg.starts_with("content changed")) {
        out.msg = msg.into();
    }
    Ok(out)
}

/// The lines of a section, its head left out; without a name those before the first.
fn bounds(lines: &[String], section: Option<&str>) -> Option<(usize, usize)> {
    let head = |line: &str| line.trim_start().starts_with('[');
    let next = |from: usize| lines[from..].iter().position(|l| head(l)).map_or(lines.len(), |at| from + at);
    let Some(section) = section else { return Some((0, next(0))) };
    let named = |l: &String| l.trim().strip_prefix('[').and_then(|l| l.strip_suffix(']')) == Some(section);
    let from = lines.iter().position(named)? + 1;
    Some((from, next(from)))
}

fn set(
    call: &Call,
    mut lines: Vec<String>,
    option: &str,
    present: bool,
) -> Result<(Vec<String>, &'static str), String> {
    let name = regex::escape(option);
    let build = |text: String| Regex::new(&text).map_err(|e| e.to_string());
    let active = build(format!(r"^[ \t]*{name}[ \t]*(=|$)[ \t]*(.*)"))?;
    let inactive = build(format!(r"^[ \t]*[#;][ \t]*{name}[ \t]*(=|$)[ \t]*(.*)"))?;
    let values = match (call.list_of_texts("values"), call.text(&["value"])) {
        (Some(values), _) => values,
        (None, Some(value)) => vec![value],
        (None, None) => Vec::new(),
    };
    let exclusive = call.flag("exclusive", true);
    let body = |l: &str| l.trim_end_matches(['\r', '\n']).to_owned();
    let held = |l: &str| active.captures(&body(l)).map(|c| c.get(2).map_or(String::new(), |m| m.as_str().to_owned()));
    if !present {
        let before = lines.len();
        lines.retain(|l| !held(l).is_some_and(|v| exclusive || values.is_empty() || values.contains(&v)));
        return Ok((lines.clone(), if lines.len() == before { "OK" } else { "option changed" }));
    }
    let sign = if call.flag("no_extra_spaces", false) { "=" } else { " = " };
    if values.is_empty() && !call.flag("allow_no_value", false) {
        return Err("`value` is missing; `allow_no_value: true` sets the option without one".into());
    }
    let wanted: Vec<(Option<&String>, String)> = match values.is_empty() {
        true => vec![(None, format!("{option}\n"))],
        false => values.iter().map(|v| (Some(v), format!("{option}{sign}{v}\n"))).collect(),
    };
    let mut said = "OK";
    // What holds a value already stays where it is, as it is written if only blanks differ and that was asked for.
    let spaces = call.flag("ignore_spaces", false);
    let mut taken = vec![false; lines.len()];
    let mut open: Vec<String> = Vec::new();
    for (value, line) in &wanted {
        let same = |l: &str| match (held(l), value) {
            (Some(have), Some(want)) => have.trim_end() == want.as_str() && (spaces || l == line),
            (Some(have), None) => have.is_empty() && body(l).trim() == option,
            _ => false,
        };
        match (0..lines.len()).find(|i| !taken[*i] && same(&lines[*i])) {
            Some(at) => taken[at] = true,
            None => open.push(line.clone()),
        }
    }
    if exclusive || wanted.len() == 1 && call.text(&["value"]).is_none() {
        // Others of the same name get the values that are missing, or go.
        let mut at = 0;
        while at < lines.len() {
            if taken[at] || held(&lines[at]).is_none() {
                at += 1;
            } else if open.is_empty() {
                lines.remove(at);
                taken.remove(at);
                said = "option changed";
            } else {
                lines[at] = open.remove(0);
                taken[at] = true;
                said = "option changed";
                at += 1;
            }
        }
    }
    if call.flag("modify_inactive_option", true) {
        for (at, line) in lines.iter_mut().enumerate() {
            if !open.is_empty() && !taken[at] && inactive.is_match(&body(line)) {
                *line = open.remove(0);
                taken[at] = true;
                said = "option changed";
            }
        }
    }
    if !open.is_empty() {
        let blank = |l: &String| l.trim().is_empty() || l.trim_start().starts_with(['#', ';']);
        let at = lines.iter().rposition(|l| !blank(l)).map_or(0, |at| at + 1);
        lines.splice(at..at, open);
        said = "option added";
    }
    Ok((lines, said))
}
