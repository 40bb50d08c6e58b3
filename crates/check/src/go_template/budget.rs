//! The cost limits of one template: its work, the length of its output, and the size and depth of
//! its values. Costs are only added up; a value that is dropped does not lower them.

use crate::regex_steps::steps;
use serde_json::Value;

/// Maximum total work: roughly the bytes of all values that the template creates. Each evaluated
/// operand also counts, even if it creates no value.
const WORK_MAX: usize = 64 << 20;
const OUTPUT_MAX: usize = 4 << 20;
/// Maximum length of a string and of a list that a function may create.
pub(super) const TEXT_MAX: usize = 1 << 20;
pub(super) const LIST_MAX: usize = 10_000;
/// Maximum depth of a value, so that no recursion over it is deep.
const VALUE_DEPTH_MAX: usize = 40;
/// Fixed cost of a value, in addition to its text.
const VALUE: usize = 64;
/// Cost of compiling a regular expression or of opening a file.
const CALL: usize = 16 << 10;
/// This number of steps of a regular expression costs as much as one byte of a value.
const REGEX_SHARE: usize = 32;

#[derive(Debug)]
pub(super) struct TemplateBudget {
    left: usize,
}

impl TemplateBudget {
    pub fn new() -> Self {
        Self { left: WORK_MAX }
    }

    /// Adds the cost of a value to the work of the template. Called before the value is stored.
    pub fn spend(&mut self, value: &Value) -> Result<(), String> {
        let weight = weight(value, 0).ok_or_else(|| format!("a value is nested more than {VALUE_DEPTH_MAX} deep"))?;
        self.work(weight)
    }

    /// Adds the cost of a function call to the work of the template. Called before the function
    /// reads its arguments.
    pub fn ask(&mut self, name: &str, arguments: &[&Value]) -> Result<(), String> {
        for value in arguments {
            self.work(weight(value, 0).unwrap_or(WORK_MAX) / 8)?;
        }
        match (name, arguments) {
            ("readFile", _) => self.work(CALL),
            (
                "regexMatch" | "findStringSubmatch" | "regexReplaceAll",
                [Value::String(regex), Value::String(text), ..],
            ) => {
                let once = steps(regex).saturating_mul(text.len()) / REGEX_SHARE;
                // Replacing all matches may scan the rest of the text once per match.
                let times = if name == "regexReplaceAll" { 1 + text.len() / 64 } else { 1 };
                self.work(CALL.saturating_add(once.saturating_mul(times)))
            }
            _ => Ok(()),
        }
    }

    pub fn work(&mut self, weight: usize) -> Result<(), String> {
        self.left =
            self.left.checked_sub(weight.max(1)).ok_or("the template needs too much work; does it repeat itself?")?;
        Ok(())
    }

    /// Appends `text` to the output `out`, and adds the length of `text` to the work of the
    /// template.
    pub fn write(&mut self, out: &mut String, text: &str) -> Result<(), String> {
        if out.len() + text.len() > OUTPUT_MAX {
            return Err(format!("the result is longer than {} MiB", OUTPUT_MAX >> 20));
        }
        self.work(text.len())?;
        out.push_str(text);
        Ok(())
    }
}

/// The cost of a value. None if the value is nested too deeply.
fn weight(value: &Value, depth: usize) -> Option<usize> {
    if depth > VALUE_DEPTH_MAX {
        return None;
    }
    Some(
        VALUE
            + match value {
                Value::String(text) => text.len(),
                Value::Array(items) => items.iter().try_fold(0, |sum, item| Some(sum + weight(item, depth + 1)?))?,
                Value::Object(map) => map
                    .iter()
                    .try_fold(0, |sum, (key, item)| Some(sum + VALUE + key.len() + weight(item, depth + 1)?))?,
                Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            },
    )
}

/// Checks that a string of `parts` parts of `length` bytes is not too long, before it is created.
pub(super) fn fits(parts: usize, length: usize) -> Result<(), String> {
    match parts.checked_mul(length) {
        Some(whole) if whole <= TEXT_MAX => Ok(()),
        _ => Err(format!("a text of more than {} MiB", TEXT_MAX >> 20)),
    }
}
