//! The meaning of a fleet directory for one node: its variables, manifest, plans, and the hash of
//! its desired state.
//!
//! This layer is between `config`, `check`, `playbook` and the drivers. `lint` on a laptop, `apply`
//! on a manager and every examination use the same functions. The layer is pure, except
//! `FleetCache`, which reads generations from the blob store.

mod check_list;
mod cleanup_coverage;
mod context;
pub mod effects;
mod fleet_cache;
mod manifest;
mod mentions;
pub mod module_archives;
mod paths;
mod plans;
mod rendered_content;
mod summary;
mod vault_directory;

pub use check_list::list_check_files;
pub use context::{FleetVariables, LargeVariables, NodeVariables, context};
pub use fleet_cache::{FleetCache, FleetCacheError};
pub use manifest::{Expected, manifest};
pub use paths::paths;
pub use plans::{PhaseWork, PlanScope, compile, expected_files, tags_of, work};
pub use remoor_model::ClusterContext;
pub use rendered_content::RenderedContent;
pub use summary::{lint, lint_strictly, summary};
pub use vault_directory::VaultDirectory;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vault_tests;
