//! The error of a template that cannot be rendered, for `.j2` and `.tera` files and for texts with
//! markup in playbooks. The fields are for code, and the message is for people.

use crate::facts;
use crate::template::{expr, lint, tera_text};
use crate::vars::scope::{ExprScope, Trace};
use remoor_model::{Fault, nearest_word};
use std::fmt;

/// Variables that the manager sets in each phase of an attempt. They have no value before the
/// attempt.
pub const OF_AN_ATTEMPT: [&str; 4] = ["remoor_job", "remoor_attempt", "remoor_phase", "remoor_services"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateFault {
    /// Path of the template or playbook in the fleet directory.
    pub path: String,
    /// Line of the error in the file, from 1; 0: not known.
    pub line: u32,
    pub column: u32,
    pub message: String,
    /// The variable that causes the error, as `name` or `name.field`.
    pub variable: Option<String>,
    /// Whether `variable` has no value.
    pub undefined: bool,
    pub hint: Option<String>,
}

impl fmt::Display for TemplateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The template language of a text: Jinja2 or Tera.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Jinja,
    Tera,
}

impl Language {
    pub fn for_path(path: &str) -> Self {
        if path.ends_with(".tera") { Self::Tera } else { Self::Jinja }
    }
}

impl TemplateFault {
    /// Converts an error of minijinja for `text` in the file `path`. `trace` holds the names that
    /// the failed evaluation read without finding a value.
    pub fn of_jinja(path: &str, text: &str, error: &minijinja::Error, trace: &Trace, scope: &ExprScope) -> Self {
        let line = error.line().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        let undefined = error.kind() == minijinja::ErrorKind::UndefinedError;
        let mut out = Self { path: path.to_owned(), line, message: expr::explain(error), undefined, ..Self::default() };
        if !undefined {
            return out;
        }
        let missed = trace.missed.iter().rev().find(|name| !expr::is_function(name));
        let at_line = |offset: usize| (lint::place(text, offset).0 == line).then_some(offset);
        let read = missed.and_then(|name| {
            let uses = lint::uses(text, name);
            let here = uses.iter().find_map(|u| at_line(u.offset)).or(uses.first().map(|u| u.offset));
            here.map(|offset| (name.clone(), offset))
        });
        let field = || {
            lint::paths(text).into_iter().find(|(path, offset)| {
                (line == 0 || at_line(*offset).is_some())
                    && expr::eval(scope, path)
                        .map_or_else(|e| e.kind() == minijinja::ErrorKind::UndefinedError, |value| value.is_undefined())
            })
        };
        match read.or_else(field) {
            Some((name, offset)) => {
                (out.line, out.column) = lint::place(text, offset);
                out.variable = Some(name);
            }
            // `text` itself does not read the undefined name. A variable that `text` reads does.
            None => out.variable = missed.cloned(),
        }
        out
    }

    /// Finds a name that `text` reads although nothing defines it, not even during a run. Also
    /// returns whether the read is certain. This search is for a rendering that stopped early, at a
    /// name that is only known during a run.
    ///
    /// No read is certain if `text` handles undefined values or sets the name anywhere, because the
    /// template engines are more lenient than this scan.
    pub fn of_names(path: &str, text: &str, language: Language, scope: &ExprScope) -> Option<(Self, bool)> {
        let names = match language {
            Language::Jinja => expr::names_read(text),
            Language::Tera => tera_text::names_read(text),
        };
        let mut found: Option<(Self, bool)> = None;
        let lenient = lint::lenient(text);
        for name in names.iter().filter(|name| !scope.knows(name) && !lint::sets(text, name)) {
            let uses = lint::uses(text, name);
            let Some(first) = uses.iter().filter(|u| !u.guarded).min_by_key(|u| u.conditional) else { continue };
            // In Tera, an undefined name in a condition is false.
            let section = text[..first.offset].rfind("{%").map_or("", |at| &text[at..first.offset]);
            let asked =
                section.trim_start_matches(['{', '%', '-', ' ']).starts_with(['i', 'e']) && !section.contains("%}");
            if language == Language::Tera && asked {
                continue;
            }
            let certain = !first.conditional && !lenient;
            if found.as_ref().is_some_and(|(_, before)| *before || !certain) {
                continue;
            }
            let (line, column) = lint::place(text, first.offset);
            let fault = Self {
                path: path.to_owned(),
                line,
                column,
                message: format!("variable `{name}` is not defined"),
                variable: Some(name.clone()),
                undefined: true,
                hint: None,
            };
            found = Some((fault, certain));
        }
        found
    }

    /// Adds a hint: the nearest name in `scope` or `names`, or how to handle a missing value.
    pub fn with_hint(mut self, names: &[&str], scope: &ExprScope) -> Self {
        if let (None, true, Some(name)) = (&self.hint, self.undefined, &self.variable) {
            self.hint = Some(hint(name, scope, names, Language::for_path(&self.path)));
        }
        self
    }

    /// Converts the error to a finding of lint: an error if `certain`, else a warning.
    pub fn fault(self, certain: bool) -> Fault {
        let fault = if certain { Fault::error } else { Fault::warn };
        let fault = fault(&self.path, self.line, self.column, self.message);
        match self.hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

fn hint(name: &str, scope: &ExprScope, more: &[&str], language: Language) -> String {
    if let Some(why) = facts::absence_reason(name) {
        return why.to_owned();
    }
    let own = scope.names();
    let known = own.iter().map(AsRef::as_ref).chain(more.iter().copied());
    if !name.contains('.')
        && let Some(near) = nearest_word(name, known.chain(facts::NAMES.iter().copied()))
    {
        return format!("did you mean `{near}`?");
    }
    match language {
        Language::Jinja => "define it in the inventory, or add `| default(...)` where it may be missing".to_owned(),
        Language::Tera => "add `| default(value=...)` where it may be missing".to_owned(),
    }
}
