//! Go templates, as far as goss's files need them: a small interpreter without side effects, each fault with its place.
//!
//! Knows `if`, `else if`, `with`, `range`, `break`, `continue`, `define`, `template`, `block`, variables, pipelines, comments and
//! trimming, the functions of Go and goss, and some of sprig's. A missing key is a fault. Time, depth, memory and output are
//! bounded. What reaches out, the environment and files, is handed in.
//!
//! Stricter than Go: a `printf` that does not fit its arguments is a fault and not a text that says so.

mod budget;
mod exec;
mod functions;
mod lex;
mod parse;
mod printf;
mod sprig;
mod tree;
mod words;

use crate::model::Fault;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// What templates may ask for beside their variables.
pub struct Outside<'a> {
    pub env: &'a BTreeMap<String, String>,
    /// The text of a file, or why it can't be had; bounds its length.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
}

/// Why a template has no result, and where, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    line: u32,
    column: u32,
    message: String,
    hint: Option<String>,
}

/// Where something stands: line and column from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    line: u32,
    column: u32,
}

impl Place {
    fn trouble(self, message: impl Into<String>) -> Trouble {
        Trouble { line: self.line, column: self.column, message: message.into(), hint: None }
    }
}

impl Trouble {
    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// `text` with its markup carried out. `vars` is `.Vars`, and the environment `.Env`.
pub fn render(file: &str, text: &str, vars: &Map<String, Value>, outside: &Outside) -> Result<String, Fault> {
    let done = parse::parse(text).and_then(|program| exec::run(&program, vars, outside));
    done.map_err(|trouble| {
        let fault = Fault::error(file, trouble.line, trouble.column, trouble.message);
        Fault { hint: trouble.hint, ..fault }
    })
}
