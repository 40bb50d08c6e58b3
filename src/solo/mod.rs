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
mod project_dir;
mod report;
mod run;
mod serve;
mod source;
mod suite;
mod vault_passwords;

pub use add::{AdditionError, add_to, addition_text, observe, observe_service};
pub use import::{ImportRequest, ImportSummary, ImportedService, import, provision_with_ansible};
pub use last_run::{Changes, LastRun, state_home};
pub use remoor_check::{Addition, end_programs, schema as check_file_schema};
pub use report::{Form, goss_json, in_form};
pub use run::{SuiteRun, SuiteRunOptions, run};
pub use serve::{ServeOptions, serve_until_signal};
pub use suite::{RenderedCheckFile, Suite, SuiteOptions, load, render, suite_of_host};
pub use vault_passwords::VaultOptions;

#[cfg(test)]
mod tests;
