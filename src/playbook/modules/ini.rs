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
    let wanted = Wanted::of(call)?;
    if present && wanted.values.is_empty() && !wanted.bare {
        return Err("`value` is missing; `allow_no_value: true` sets the option without one".into());
    }
    let text = super::whole_text(old.clone().unwrap_or_default(), &path.display())?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if lines.is_empty() {
        // As Ansible has it, what was empty begins with a line of nothing.
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
    // A file of nothing stays one.
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

/// The lines of a section, its head left out; without a name those before the first.
fn bounds(lines: &[String], section: Option<&str>) -> Option<(usize, usize)> {
    let next = |from: usize| lines[from..].iter().position(|l| l.starts_with('[')).map_or(lines.len(), |at| from + at);
    let Some(section) = section else { return Some((0, next(0))) };
    let named = |l: &String| {
        l.strip_prefix('[').and_then(|l| l.split_once(']')).is_some_and(|(name, _)| name.trim() == section.trim())
    };
    let from = lines.iter().position(named)? + 1;
    Some((from, next(from)))
}

/// What an option is to have.
struct Wanted {
    /// Each once.
    values: Vec<String>,
    /// It may stand without a value.
    bare: bool,
    exclusive: bool,
    /// What stands in a comment counts too.
    inactive: bool,
    /// Other blanks around the same value are no difference.
    blanks: bool,
    sign: &'static str,
}

impl Wanted {
    fn of(call: &Call) -> Result<Self, String> {
        let given = match (call.list_of_texts("values"), call.text(&["value"])) {
            (Some(_), Some(_)) => return Err("`value` and `values` can't both be given".into()),
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

    /// All lines of an option that is not there yet.
    fn lines(&self, option: &str) -> Vec<String> {
        match self.values.is_empty() {
            true if self.bare => vec![format!("{option}\n")],
            _ => self.values.iter().map(|value| self.line(option, value)).collect(),
        }
    }

    /// Lines of a section with the option in it, and what was done. Lines that hold a wanted value stay where they are, others
    /// of the option get the values that are left, and what is over then is removed or added.
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

    /// Lines of the values that no line has; `none`: the option was to have none.
    fn missing(&self, option: &str, none: bool) -> Vec<String> {
        if none || !self.values.is_empty() { self.lines(option) } else { Vec::new() }
    }

    /// Lines of a section without the option, or without those of its values.
    fn unset(&self, option: &str, lines: &[String]) -> Result<Vec<String>, String> {
        let active = pattern(option, "")?;
        let goes = |have: String| self.exclusive || self.values.contains(&have);
        Ok(lines.iter().filter(|line| !held(&active, line).is_some_and(goes)).cloned().collect())
    }
}

/// Finds an option at the begin of a line, behind `sign`.
fn pattern(option: &str, sign: &str) -> Result<Regex, String> {
    let name = regex::escape(option);
    Regex::new(&format!(r"^[ \t]*{sign}[ \t]*{name}[ \t]*(?:=|$)[ \t]*(.*)")).map_err(|e| e.to_string())
}

/// The value that a line has of it.
fn held(pattern: &Regex, line: &str) -> Option<String> {
    let captures = pattern.captures(line.strip_suffix('\n').unwrap_or(line))?;
    Some(captures.get(1).map_or(String::new(), |value| value.as_str().to_owned()))
}
