//! Collects the errors and warnings of a compilation, so that all of them can be reported.

use remoor_model::Fault;

#[derive(Default)]
pub(super) struct Diagnostics {
    pub faults: Vec<Fault>,
    /// Exceeded limits of the whole plan. They are errors wherever they are found.
    pub limits: Vec<Fault>,
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
}
