//! A mistake in a file that a person wrote, with its position and a hint.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One fault. `line` and `column` count from 1. 0 means that the fault concerns the whole file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fault {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub message: String,
    pub hint: Option<String>,
    /// Whether the fault is only a warning, which does not stop `apply`.
    pub warning: bool,
}

impl Fault {
    /// A fault that stops `apply`, without a hint.
    pub fn error(file: &str, line: u32, column: u32, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, column, message: message.into(), hint: None, warning: false }
    }
    /// A warning without a hint.
    pub fn warn(file: &str, line: u32, column: u32, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::error(file, line, column, message) }
    }
    /// Adds a hint to the fault.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}{}", if self.warning { "warning: " } else { "" }, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}
