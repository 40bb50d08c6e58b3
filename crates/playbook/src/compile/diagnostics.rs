//! Collects the errors and warnings of a compilation, so that all of them can be reported.

use super::HINT_ANSIBLE;
use remoor_model::Fault;
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Diagnostics {
    pub faults: Vec<Fault>,
    /// Exceeded limits of the whole plan. They are errors wherever they are found.
    pub limits: Vec<Fault>,
    pub warnings: Vec<Fault>,
    /// The errors with which Ansible fails too when it reaches the task.
    pub in_ansible: BTreeSet<FaultKey>,
}

/// What makes an error the same as another one: its file, line, column and message.
pub(super) type FaultKey = (String, u32, u32, String);

pub(super) fn key_of(fault: &Fault) -> FaultKey {
    (fault.file.clone(), fault.line, fault.column, fault.message.clone())
}

impl Diagnostics {
    /// Adds an error. The caller may give it a hint.
    pub fn fault(&mut self, file: &str, at: (u32, u32), message: impl Into<String>) -> &mut Fault {
        self.faults.push(Fault::error(file, at.0, at.1, message));
        let last = self.faults.len() - 1;
        &mut self.faults[last]
    }

    /// Notes that Ansible fails too with the last error.
    pub fn mark_in_ansible(&mut self) {
        self.in_ansible.extend(self.faults.last().map(key_of));
    }

    pub fn warn(&mut self, file: &str, at: (u32, u32), message: impl Into<String>, hint: impl Into<String>) {
        self.warnings.push(Fault::warn(file, at.0, at.1, message).hint(hint));
    }
}

/// Replaces the words about a fleet in a text by words about a playbook that runs without a fleet.
pub(super) fn drop_fleet_words(text: &str) -> String {
    text.replace("the fleet directory", "the directory of the playbook")
        .replace(HINT_ANSIBLE, "run this playbook with ansible-playbook")
}

/// Like `drop_fleet_words`, for the texts of faults.
pub(super) fn name_no_fleet(faults: &mut [Fault]) {
    for fault in faults {
        fault.message = drop_fleet_words(&fault.message);
        fault.hint = fault.hint.as_deref().map(drop_fleet_words);
    }
}

/// Sorts faults by their places, and removes repeated ones.
pub(super) fn sort_faults(faults: &mut Vec<Fault>) {
    faults.sort();
    faults.dedup();
}
