//! Lists the checks of a node with the file of each, and the checks that do not apply to the node
//! with the reason. Contacts no node.

use super::super::{ManagerContext, examine};
use super::{as_of, find_node};
use axum::extract::{Path, State};
use remoor_cluster::rpc::view::ChecksView;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use std::sync::Arc;

pub(super) async fn checks(
    State(shared): State<Arc<ManagerContext>>,
    Path(name): Path<String>,
) -> Result<axum::Json<ChecksView>, ApiFailure> {
    let node = find_node(&shared.inventory(), &name)?;
    let (generation, files) = examine::check_files(&shared, node.id)
        .await
        .map_err(|error| ApiFailure::new(Code::Unavailable, error.to_string()).next(format!("remoor why {name}")))?;
    Ok(axum::Json(ChecksView { version: 1, as_of: as_of(&shared), node: name, generation: generation.0, files }))
}
