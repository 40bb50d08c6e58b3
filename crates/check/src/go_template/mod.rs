//! Go templates, as far as goss files need them: a small interpreter. It has no side effects, and
//! its faults have positions.
//!
//! Supports `if`, `else if`, `with`, `range`, `break`, `continue`, `define`, `template` and
//! `block`. Supports variables, pipelines, comments, trimming, the functions of Go and goss, and
//! some functions of sprig. A missing key is a fault. Time, depth, memory and output are limited.
//! The caller provides the environment and the files.
//!
//! One rule is stricter than in Go: a `printf` whose format does not fit its arguments is a fault.
//! Go writes a message about it into the rendered text instead.

mod budget;
mod exec;
mod functions;
mod lex;
mod parse;
mod printf;
mod sprig;
mod tree;
mod values;

use remoor_model::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// External data that templates may read in addition to their variables.
pub struct Outside<'a> {
    pub env: &'a BTreeMap<String, String>,
    /// Reads a file, or returns the reason why it cannot be read. This callback also limits the
    /// length of the text.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
}

/// The reason why a template failed, with line and column from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TemplateError {
    line: u32,
    column: u32,
    message: String,
    hint: Option<String>,
}

/// A position: line and column from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    line: u32,
    column: u32,
}

impl Place {
    fn trouble(self, message: impl Into<String>) -> TemplateError {
        TemplateError { line: self.line, column: self.column, message: message.into(), hint: None }
    }
}

impl TemplateError {
    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Renders a template. `vars` is available as `.Vars` and the environment as `.Env`.
pub fn render(file: &str, text: &str, vars: &Map<String, Value>, outside: &Outside) -> Result<String, Fault> {
    let done = parse::parse(text).and_then(|program| exec::run(&program, vars, outside));
    done.map_err(|trouble| {
        let fault = Fault::error(file, trouble.line, trouble.column, trouble.message);
        Fault { hint: trouble.hint, ..fault }
    })
}
