//! Collects the errors and warnings of a compilation, so that all of them can be reported.

use super::HINT_ANSIBLE;
use remoor_model::Fault;

#[derive(Default)]
pub(super) struct Diagnostics {
    pub faults: Vec<Fault>,
    pub warnings: Vec<Fault>,
}

impl Diagnostics {
    /// Adds an error. The caller may give it a hint.
    pub fn fault(&mut self, file: &str, at: (u32, u32), message: impl Into<String>) -> &mut Fault {
        self.faults.push(Fault::error(file, at.0, at.1, message));
        let last = self.faults.len() - 1;
        &mut self.faults[last]
    }

    pub fn warn(&mut self, file: &str, at: (u32, u32), message: impl Into<String>, hint: impl Into<String>) {
        self.warnings.push(Fault::warn(file, at.0, at.1, message).hint(hint));
    }

    /// Replaces all errors since index `from` by one warning, if only Ansible supports the features
    /// that these errors reject. The errors are in an included file that perhaps no run selects.
    /// Returns the first error in short form.
    pub fn soften_faults(&mut self, from: usize, file: &str, at: (u32, u32), name: &str) -> Option<String> {
        let new = self.faults.get(from..)?;
        let first = new.first()?;
        if !new.iter().all(|fault| fault.hint.as_ref().is_some_and(|hint| hint.contains(HINT_ANSIBLE))) {
            return None;
        }
        let reason = format!("{}:{}: {}", first.file, first.line, first.message);
        self.faults.truncate(from);
        self.warn(
            file,
            at,
            format!("`{name}` is left out: {reason}"),
            format!("a run that needs it fails; {HINT_ANSIBLE}"),
        );
        Some(reason)
    }
}
