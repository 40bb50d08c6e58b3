//! Inventories in INI format: `[group]`, `[group:vars]`, `[group:children]`, hosts with
//! `name=value` after them.

use super::draft::{Draft, SourcePosition};
use super::{literal, pattern, shell_words};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Reads the lines of `text` into `draft`; also records faults there.
pub fn read(file: &str, text: &str, draft: &mut Draft) {
    let mut declared: BTreeSet<String> = draft.groups.keys().cloned().collect();
    declared.extend(["all".to_owned(), "ungrouped".to_owned()]);
    let mut ini =
        IniReader { file, draft, group: "ungrouped".into(), part: Part::Hosts, declared, wanted: BTreeMap::new() };
    for (n, raw) in text.lines().enumerate() {
        let line = raw.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let column = raw.len() - raw.trim_start().len() + 1;
        ini.read_line(line, &SourcePosition::new(file, n as u32 + 1, column as u32));
    }
    for (group, (at, message)) in ini.wanted {
        if !ini.declared.contains(&group) {
            ini.draft
                .faults
                .push(at.fault(message).hint(format!("declare it, if only by an empty section: [{group}]")));
        }
    }
}

enum Part {
    Hosts,
    Vars,
    Children,
    /// The heading was invalid. The lines of the section are skipped, because they would only cause
    /// follow-up faults.
    Skip,
}

struct IniReader<'a> {
    file: &'a str,
    draft: &'a mut Draft,
    group: String,
    part: Part,
    declared: BTreeSet<String>,
    /// Groups that the file mentions and must declare somewhere, each with its first position and
    /// the message of the fault if the declaration is missing.
    wanted: BTreeMap<String, (SourcePosition, String)>,
}

impl IniReader<'_> {
    fn read_line(&mut self, line: &str, at: &SourcePosition) {
        match heading(line) {
            Some(Ok((group, part))) => self.section(group, part, at),
            Some(Err(why)) => {
                self.part = Part::Skip;
                self.draft.faults.push(at.fault(why).hint("write [group], [group:vars] or [group:children]"));
            }
            None => match self.part {
                Part::Hosts => self.hosts(line, at),
                Part::Vars => self.variable(line, at),
                Part::Children => self.child(line, at),
                Part::Skip => {}
            },
        }
    }

    fn section(&mut self, group: &str, part: Option<&str>, at: &SourcePosition) {
        self.part = match part {
            None | Some("hosts") => Part::Hosts,
            Some("vars") => Part::Vars,
            Some("children") => Part::Children,
            Some(other) => {
                self.draft.faults.push(
                    at.fault(format!("[{group}:{other}] has an unknown kind of section"))
                        .hint("hosts, vars or children"),
                );
                self.part = Part::Skip;
                return;
            }
        };
        self.group = group.to_owned();
        if matches!(self.part, Part::Vars) {
            let message = format!("[{group}:vars] is for a group that is not declared");
            self.wanted.entry(group.to_owned()).or_insert((at.clone(), message));
        } else {
            self.declared.insert(group.to_owned());
            self.draft.group(group, at);
        }
    }

    fn hosts(&mut self, line: &str, at: &SourcePosition) {
        let words = match shell_words::split(line) {
            Ok(words) => words,
            Err(why) => {
                self.draft.faults.push(at.fault(why));
                return;
            }
        };
        let Some((pattern, assignments)) = words.split_first() else { return };
        let (names, port) = match pattern::expand(pattern) {
            Ok(expanded) => expanded,
            Err(why) => {
                self.draft.faults.push(at.fault(why));
                return;
            }
        };
        let mut vars = Vec::new();
        for word in assignments {
            match word.split_once('=') {
                Some((name, value)) if !name.is_empty() => vars.push((name, literal::value(value))),
                _ => {
                    let fault = at.fault(format!("`{word}` after the host `{pattern}` is not name=value"));
                    self.draft.faults.push(fault.hint("one host a line; no blanks around `=`"));
                }
            }
        }
        for name in names {
            let origin = format!("{}: host {name}", self.file);
            let known = self.draft.hosts.contains_key(&name);
            self.draft.add_host(&self.group, &name, at);
            if let (Some(port), false) = (port, known) {
                self.draft.set_host(&name, "ansible_port", Value::from(port), &origin);
            }
            for (key, value) in &vars {
                self.draft.set_host(&name, key, value.clone(), &origin);
            }
        }
    }

    fn variable(&mut self, line: &str, at: &SourcePosition) {
        match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                let origin = format!("{}: group {}", self.file, self.group);
                self.draft.set_group(&self.group, name.trim(), literal::value(value.trim()), &origin, at);
            }
            _ => self.draft.faults.push(at.fault(format!("`{line}` is not name=value"))),
        }
    }

    fn child(&mut self, line: &str, at: &SourcePosition) {
        let (name, rest) = line.split_at(line.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(line.len()));
        if name.contains([':', ']', '=']) || !(rest.trim().is_empty() || rest.trim_start().starts_with('#')) {
            self.draft.faults.push(at.fault(format!("`{line}` is not a group name")));
            return;
        }
        self.draft.add_child(&self.group, name, at);
        let message = format!("[{}:children] names the group `{name}`, which is not declared", self.group);
        self.wanted.entry(name.to_owned()).or_insert((at.clone(), message));
    }
}

/// The heading of a section: the group and the text after its colon. None if the line is no
/// heading.
fn heading(line: &str) -> Option<Result<(&str, Option<&str>), String>> {
    let inner = line.strip_prefix('[')?;
    let wrong = || line.ends_with(']').then(|| Err(format!("`{line}` is not a section")));
    let Some((inner, rest)) = inner.split_once(']') else { return wrong() };
    // A line such as `[fe80::1]:22` begins with a host, not with a section.
    if !(rest.trim().is_empty() || rest.trim_start().starts_with('#')) {
        return wrong();
    }
    let (group, part) = match inner.split_once(':') {
        Some((group, part)) => (group, Some(part)),
        None => (inner, None),
    };
    let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    if group.is_empty() || group.contains(char::is_whitespace) || part.is_some_and(|part| !is_word(part)) {
        return Some(Err(format!("`{line}` is not a section")));
    }
    Some(Ok((group, part)))
}
