//! The `ini_file` module: one option of a section, or a whole section.

use super::block::existing;
use super::{Answer, Call, Outcome, place};
use regex::Regex;

pub fn ini_file(call: &mut Call) -> Answer {
    let Some((path, old)) = existing(call)? else {
        return Ok(Outcome::unknown("the file depends on a command that check mode did not run"));
    };
    let present = call.text(&["state"]).as_deref() != Some("absent");
    if old.is_none() && !call.flag("create", true) {
        return Err(call
            .ground
            .node
            .missing(format!("{} does not exist; set `create: true` to create it", path.display())));
    }
    if old.is_none() && !present {
        return Ok(Outcome::ok("OK"));
    }
    let wanted = Wanted::of(call)?;
    if present && wanted.values.is_empty() && !wanted.bare {
        return Err("`value` is missing; `allow_no_value: true` sets the option without a value".into());
    }
    let text = super::whole_text(old.clone().unwrap_or_default(), &path.display())?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if lines.is_empty() {
        // Like Ansible, starts an empty file with an empty line.
        lines.push("\n".into());
    } else if let Some(last) = lines.last_mut().filter(|l| !l.ends_with('\n')) {
        last.push('\n');
    }
    let section = call.text(&["section"]).filter(|s| !s.is_empty());
    let option = call.text(&["option"]).filter(|o| !o.is_empty());
    let mut msg = "OK";
    match (present, option, bounds(&lines, section.as_deref())) {
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
            let inner = wanted.unset(&option, &lines[from..to])?;
            msg = if inner.len() == to - from { "OK" } else { "option changed" };
            lines.splice(from..to, inner);
        }
    }
    let new = lines.concat();
    // An empty file stays empty if nothing was added.
    let new = if text.is_empty() && new == "\n" { text } else { new };
    if old.is_none() {
        place::make_above(call, &path)?;
    }
    let mut out = place::finish(call, &path, old, new.into_bytes(), "ini_file")?;
    if out.changed && (out.msg == "created" || out.msg.starts_with("content changed")) {
        out.msg = msg.into();
    }
    Ok(out)
}

/// The range of lines of a section without its header. Without a section name: the lines before the
/// first section.
fn bounds(lines: &[String], section: Option<&str>) -> Option<(usize, usize)> {
    let next = |from: usize| lines[from..].iter().position(|l| l.starts_with('[')).map_or(lines.len(), |at| from + at);
    let Some(section) = section else { return Some((0, next(0))) };
    let named = |l: &String| {
        l.strip_prefix('[').and_then(|l| l.split_once(']')).is_some_and(|(name, _)| name.trim() == section.trim())
    };
    let from = lines.iter().position(named)? + 1;
    Some((from, next(from)))
}

/// The wanted values of an option, and how its lines are compared and written.
struct Wanted {
    /// The values without duplicates.
    values: Vec<String>,
    /// The option may have no value (`allow_no_value`).
    bare: bool,
    exclusive: bool,
    /// Commented-out lines of the option are also changed (`modify_inactive_option`).
    inactive: bool,
    /// Different spaces around the same value are not a difference (`ignore_spaces`).
    blanks: bool,
    sign: &'static str,
}

impl Wanted {
    fn of(call: &Call) -> Result<Self, String> {
        let given = match (call.list_of_texts("values"), call.text(&["value"])) {
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
            bare: call.flag("allow_no_value", false),
            exclusive: call.flag("exclusive", true),
            inactive: call.flag("modify_inactive_option", true),
            blanks: call.flag("ignore_spaces", false),
            sign: if call.flag("no_extra_spaces", false) { "=" } else { " = " },
        })
    }

    fn line(&self, option: &str, value: &str) -> String {
        format!("{option}{}{value}\n", self.sign)
    }

    /// The lines of an option that the section does not have yet.
    fn lines(&self, option: &str) -> Vec<String> {
        match self.values.is_empty() {
            true if self.bare => vec![format!("{option}\n")],
            _ => self.values.iter().map(|value| self.line(option, value)).collect(),
        }
    }

    /// The section's lines after the option was set, and the message for the result. Lines that
    /// already have a wanted value stay in place. The remaining values replace other lines of the
    /// option; surplus lines are removed and missing lines added.
    fn set(&self, option: &str, lines: &[String]) -> Result<(Vec<String>, &'static str), String> {
        let any = pattern(option, if self.inactive { "[#;]?" } else { "" })?;
        let active = pattern(option, "")?;
        let mut lines: Vec<(String, bool)> = lines.iter().map(|line| (line.clone(), false)).collect();
        let mut left = self.values.clone();
        let (mut said, mut bare) = ("OK", false);
        let mut put = |line: &mut (String, bool), new: String, value: &str| {
            let same = self.blanks && held(&active, &line.0).is_some_and(|have| have == value);
            if !same && line.0 != new {
                line.0 = new;
                said = "option changed";
            }
            line.1 = true;
        };
        for line in &mut lines {
            let Some(have) = held(&any, &line.0) else { continue };
            if let Some(at) = left.iter().position(|value| *value == have) {
                let empty = have.is_empty() && self.bare;
                bare |= empty;
                let new = if empty { format!("{option}\n") } else { self.line(option, &have) };
                put(line, new, &have);
                left.remove(at);
            } else if self.values.is_empty() && self.bare {
                put(line, format!("{option}\n"), "");
                bare = true;
                break;
            }
        }
        if self.exclusive && !self.bare {
            for line in &mut lines {
                if !left.is_empty() && !line.1 && held(&any, &line.0).is_some() {
                    let value = left.remove(0);
                    put(line, self.line(option, &value), &value);
                }
            }
            let before = lines.len();
            lines.retain(|(line, done)| *done || held(&any, line).is_none());
            if lines.len() != before {
                said = "option changed";
            }
        }
        let mut out: Vec<String> = lines.into_iter().map(|(line, _)| line).collect();
        let more = Self { values: left, ..*self };
        let more =
            if self.values.is_empty() && bare { Vec::new() } else { more.missing(option, self.values.is_empty()) };
        if !more.is_empty() {
            let blank = |l: &String| l.trim().is_empty() || l.trim_start_matches([' ', '\t']).starts_with(['#', ';']);
            let at = out.iter().rposition(|l| !blank(l)).map_or(0, |at| at + 1);
            out.splice(at..at, more);
            said = "option added";
        }
        Ok((out, said))
    }

    /// The lines to add for the remaining values. `none`: the option should have no value.
    fn missing(&self, option: &str, none: bool) -> Vec<String> {
        if none || !self.values.is_empty() { self.lines(option) } else { Vec::new() }
    }

    /// The section's lines without the option, or only without its lines with the given values.
    fn unset(&self, option: &str, lines: &[String]) -> Result<Vec<String>, String> {
        let active = pattern(option, "")?;
        let goes = |have: String| self.exclusive || self.values.contains(&have);
        Ok(lines.iter().filter(|line| !held(&active, line).is_some_and(goes)).cloned().collect())
    }
}

/// A pattern for a line that sets the option, after the optional comment sign `sign`.
fn pattern(option: &str, sign: &str) -> Result<Regex, String> {
    let name = regex::escape(option);
    Regex::new(&format!(r"^[ \t]*{sign}[ \t]*{name}[ \t]*(?:=|$)[ \t]*(.*)")).map_err(|e| e.to_string())
}

/// The value that a line sets. None: the line does not match the pattern.
fn held(pattern: &Regex, line: &str) -> Option<String> {
    let captures = pattern.captures(line.strip_suffix('\n').unwrap_or(line))?;
    Some(captures.get(1).map_or(String::new(), |value| value.as_str().to_owned()))
}
