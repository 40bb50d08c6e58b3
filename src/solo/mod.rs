//! Commands that need no cluster: `digest`, `check --file` and `check --add` on this machine, and
//! `play` on any machine, and `import`, which writes a new fleet directory. The first three write
//! only two files: the target of `--add`, and the results that `--changed-only` stores. This module
//! does not depend on the manager.

mod add;
mod bounded_read;
pub mod digest;
mod glob;
mod import;
mod last_run;
mod machine;
pub mod play;
mod report;
mod run;
mod source;
mod suite;

pub use add::{AdditionError, add_to, addition_text, observe};
pub use import::{ImportRequest, ImportSummary, ImportedService, import};
pub use last_run::{Changes, LastRun, state_home};
pub use remoor_check::{Addition, end_programs};
pub use report::{Form, goss_json, in_form};
pub use run::{SuiteRun, SuiteRunOptions, run};
pub use suite::{Suite, SuiteOptions, load};

#[cfg(test)]
mod tests;
