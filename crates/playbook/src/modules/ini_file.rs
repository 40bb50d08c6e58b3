//! The `ini_file` module: one option of a section, or a whole section.

use super::block::load_existing;
use super::{ModuleCall, ModuleResult, TaskOutcome, write_file};
use regex::Regex;

pub fn ini_file(call: &mut ModuleCall) -> ModuleResult {
    let Some((path, old)) = load_existing(call)? else {
        return Ok(TaskOutcome::indeterminate("the file depends on a command that check mode did not run"));
    };
    let present = call.text(&["state"]).as_deref() != Some("absent");
    if old.is_none() && !call.flag("create", true) {
        return Err(call
            .ground
            .node
            .note_missing(format!("{} does not exist; set `create: true` to create it", path.display())));
    }
    if old.is_none() && !present {
        return Ok(TaskOutcome::ok("OK"));
    }
    let wanted = WantedOption::from_options(call)?;
    if present && wanted.values.is_empty() && !wanted.allow_no_value {
        return Err("`value` is missing; `allow_no_value: true` sets the option without a value".into());
    }
    let text = super::decode_utf8(old.clone().unwrap_or_default(), &path.display())?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if lines.is_empty() {
        // As in Ansible, an empty file gets an empty first line.
        lines.push("\n".into());
    } else if let Some(last) = lines.last_mut().filter(|l| !l.ends_with('\n')) {
        last.push('\n');
    }
    let section = call.text(&["section"]).filter(|s| !s.is_empty());
    let option = call.text(&["option"]).filter(|o| !o.is_empty());
    let mut msg = "OK";
    match (present, option, section_range(&lines, section.as_deref())) {
        (false, None, Some((from, to))) => {
            lines.drain(from - usize::from(section.is_some())..to);
            msg = "section removed";
        }
        (false, None, None) | (true, None, Some(_)) | (false, Some(_), None) => {}
        (true, option, None) => {
            lines.extend(section.map(|s| format!("[{s}]\n")));
            lines.extend(option.iter().flat_map(|option| wanted.lines(option)));
            msg = if option.is_some() { "section and option added" } else { "only section added" };
        }
        (true, Some(option), Some((from, to))) => {
            let (inner, said) = wanted.set(&option, &lines[from..to])?;
            msg = said;
            lines.splice(from..to, inner);
        }
        (false, Some(option), Some((from, to))) => {
            let inner = wanted.remove_option(&option, &lines[from..to])?;
            msg = if inner.len() == to - from { "OK" } else { "option changed" };
            lines.splice(from..to, inner);
        }
    }
    let new = lines.concat();
    // An empty file stays empty if nothing was added.
    let new = if text.is_empty() && new == "\n" { text } else { new };
    if old.is_none() {
        write_file::make_parents(call, &path)?;
    }
    let mut out = write_file::update_file(call, &path, old, new.into_bytes(), "ini_file")?;
    if out.changed && (out.msg == "created" || out.msg.starts_with("content changed")) {
        out.msg = msg.into();
    }
    Ok(out)
}

/// The range of lines of a section without its header. Without a section name: the lines before the
/// first section.
fn section_range(lines: &[String], section: Option<&str>) -> Option<(usize, usize)> {
    let next = |from: usize| lines[from..].iter().position(|l| l.starts_with('[')).map_or(lines.len(), |at| from + at);
    let Some(section) = section else { return Some((0, next(0))) };
    let named = |l: &String| {
        l.strip_prefix('[').and_then(|l| l.split_once(']')).is_some_and(|(name, _)| name.trim() == section.trim())
    };
    let from = lines.iter().position(named)? + 1;
    Some((from, next(from)))
}

/// The wanted values of an option, and the rules by which its lines are compared and written.
struct WantedOption {
    /// The wanted values of the option, without duplicates.
    values: Vec<String>,
    /// Whether the option may have no value (`allow_no_value`).
    allow_no_value: bool,
    exclusive: bool,
    /// Whether lines of the option that are commented out are changed too
    /// (`modify_inactive_option`).
    match_commented: bool,
    /// Whether two lines count as equal if they differ only in the spaces around the value
    /// (`ignore_spaces`).
    ignore_spaces: bool,
    separator: &'static str,
}

impl WantedOption {
    fn from_options(call: &ModuleCall) -> Result<Self, String> {
        let given = match (call.text_list("values"), call.text(&["value"])) {
            (Some(_), Some(_)) => return Err("`value` and `values` cannot be combined".into()),
            (Some(values), None) => values,
            (None, value) => value.into_iter().collect(),
        };
        let mut values: Vec<String> = Vec::new();
        for value in given {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        Ok(Self {
            values,
            allow_no_value: call.flag("allow_no_value", false),
            exclusive: call.flag("exclusive", true),
            match_commented: call.flag("modify_inactive_option", true),
            ignore_spaces: call.flag("ignore_spaces", false),
            separator: if call.flag("no_extra_spaces", false) { "=" } else { " = " },
        })
    }

    fn line(&self, option: &str, value: &str) -> String {
        format!("{option}{}{value}\n", self.separator)
    }

    /// The lines for an option that the section does not contain yet.
    fn lines(&self, option: &str) -> Vec<String> {
        match self.values.is_empty() {
            true if self.allow_no_value => vec![format!("{option}\n")],
            _ => self.values.iter().map(|value| self.line(option, value)).collect(),
        }
    }

    /// Returns the section's lines with the option set, and the message for the result. A line with
    /// a wanted value stays where it is. The other wanted values replace other lines of the option.
    /// Surplus lines are removed, and missing lines are added.
    fn set(&self, option: &str, lines: &[String]) -> Result<(Vec<String>, &'static str), String> {
        let any = pattern(option, if self.match_commented { "[#;]?" } else { "" })?;
        let active = pattern(option, "")?;
        let mut lines: Vec<(String, bool)> = lines.iter().map(|line| (line.clone(), false)).collect();
        let mut left = self.values.clone();
        let (mut said, mut bare) = ("OK", false);
        let mut put = |line: &mut (String, bool), new: String, value: &str| {
            let same = self.ignore_spaces && line_value(&active, &line.0).is_some_and(|have| have == value);
            if !same && line.0 != new {
                line.0 = new;
                said = "option changed";
            }
            line.1 = true;
        };
        for line in &mut lines {
            let Some(have) = line_value(&any, &line.0) else { continue };
            if let Some(at) = left.iter().position(|value| *value == have) {
                let empty = have.is_empty() && self.allow_no_value;
                bare |= empty;
                let new = if empty { format!("{option}\n") } else { self.line(option, &have) };
                put(line, new, &have);
                left.remove(at);
            } else if self.values.is_empty() && self.allow_no_value {
                put(line, format!("{option}\n"), "");
                bare = true;
                break;
            }
        }
        if self.exclusive && !self.allow_no_value {
            for line in &mut lines {
                if !left.is_empty() && !line.1 && line_value(&any, &line.0).is_some() {
                    let value = left.remove(0);
                    put(line, self.line(option, &value), &value);
                }
            }
            let before = lines.len();
            lines.retain(|(line, done)| *done || line_value(&any, line).is_none());
            if lines.len() != before {
                said = "option changed";
            }
        }
        let mut out: Vec<String> = lines.into_iter().map(|(line, _)| line).collect();
        let more = Self { values: left, ..*self };
        let more =
            if self.values.is_empty() && bare { Vec::new() } else { more.lines_to_add(option, self.values.is_empty()) };
        if !more.is_empty() {
            let blank = |l: &String| l.trim().is_empty() || l.trim_start_matches([' ', '\t']).starts_with(['#', ';']);
            let at = out.iter().rposition(|l| !blank(l)).map_or(0, |at| at + 1);
            out.splice(at..at, more);
            said = "option added";
        }
        Ok((out, said))
    }

    /// The lines to add for the wanted values that no line has yet. `none`: the option should have
    /// no value.
    fn lines_to_add(&self, option: &str, none: bool) -> Vec<String> {
        if none || !self.values.is_empty() { self.lines(option) } else { Vec::new() }
    }

    /// The section's lines without the option, or only without its lines with the given values.
    fn remove_option(&self, option: &str, lines: &[String]) -> Result<Vec<String>, String> {
        let active = pattern(option, "")?;
        let goes = |have: String| self.exclusive || self.values.contains(&have);
        Ok(lines.iter().filter(|line| !line_value(&active, line).is_some_and(goes)).cloned().collect())
    }
}

/// A pattern for a line that sets the option, after the optional comment sign `sign`.
fn pattern(option: &str, sign: &str) -> Result<Regex, String> {
    let name = regex::escape(option);
    Regex::new(&format!(r"^[ \t]*{sign}[ \t]*{name}[ \t]*(?:=|$)[ \t]*(.*)")).map_err(|e| e.to_string())
}

/// The value that a line sets. None: the line does not match the pattern.
fn line_value(pattern: &Regex, line: &str) -> Option<String> {
    let captures = pattern.captures(line.strip_suffix('\n').unwrap_or(line))?;
    Some(captures.get(1).map_or(String::new(), |value| value.as_str().to_owned()))
}
