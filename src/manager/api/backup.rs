//! Backups that this manager makes on its own disk. Only the local socket accepts requests about
//! backups, because a backup contains keys.

use super::super::ManagerContext;
use super::super::backup::{BackupError, BackupSchedule, Keeper, Recipients};
use axum::extract::State;
use remoor_cluster::rpc::view::{BackupPlanRequest, BackupRequest, BackupTakenView, Nothing};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Strict, rfc3339};
use std::path::PathBuf;
use std::sync::Arc;

/// Minimum interval of scheduled backups in milliseconds.
const EVERY_MIN_MS: u64 = 60_000;
/// Maximum number of backups that a schedule keeps.
const KEEP_MAX: u32 = 10_000;

fn absolute(text: &str) -> Result<PathBuf, ApiFailure> {
    let path = PathBuf::from(text);
    let bad = || ApiFailure::new(Code::BadRequest, format!("{text:?} is not an absolute path"));
    if path.is_absolute() { Ok(path) } else { Err(bad()) }
}

fn recipients(keys: Vec<String>) -> Result<Recipients, ApiFailure> {
    Recipients::try_from(keys).map_err(|why| ApiFailure::new(Code::BadRequest, format!("recipients: {why}")))
}

pub async fn take(
    State(shared): State<Arc<ManagerContext>>,
    State(keeper): State<Arc<Keeper>>,
    Strict(request): Strict<BackupRequest>,
) -> Result<axum::Json<BackupTakenView>, ApiFailure> {
    let path = absolute(&request.file)?;
    let recipients = recipients(request.recipients)?;
    let (head, sha, bytes) = keeper.take(path, recipients).await.map_err(|error| refusal(&error))?;
    Ok(axum::Json(BackupTakenView {
        version: 1,
        file: request.file,
        made: rfc3339(head.made),
        by: head.name.to_string(),
        epoch: head.epoch.0,
        index: head.index,
        generation: head.generation,
        nodes: head.nodes,
        bytes,
        sha256: sha.to_string(),
        stale: super::as_of(&shared).leader.is_none(),
    }))
}

fn refusal(error: &BackupError) -> ApiFailure {
    let text = remoor_model::error_with_causes(error);
    match error {
        BackupError::Exists(_) => ApiFailure::new(Code::Refused, text).next("choose another file name"),
        BackupError::NoBlob(_) => ApiFailure::new(Code::Unavailable, text).next("run the command on another manager"),
        _ => ApiFailure::new(Code::Unavailable, text).next("look at the disk of this manager; no backup was made"),
    }
}

pub async fn plan(
    State(keeper): State<Arc<Keeper>>,
    Strict(request): Strict<BackupPlanRequest>,
) -> Result<axum::Json<Nothing>, ApiFailure> {
    let bad = |text: String| Err(ApiFailure::new(Code::BadRequest, text));
    let wanted = match request.every_ms {
        0 => None,
        every_ms if every_ms < EVERY_MIN_MS => return bad("the minimum interval is one minute".to_owned()),
        every_ms if request.keep == 0 || request.keep > KEEP_MAX => {
            return bad(format!(
                "{} to keep, one every {every_ms} ms: the number to keep is 1 to {KEEP_MAX}",
                request.keep
            ));
        }
        every_ms => Some(BackupSchedule {
            dir: absolute(&request.dir)?,
            every_ms,
            keep: request.keep,
            recipients: recipients(request.recipients)?,
        }),
    };
    if let Some(plan) = wanted.as_ref().filter(|plan| !plan.dir.is_dir()) {
        return bad(format!("{} is not a directory", plan.dir.display()));
    }
    let stored = tokio::task::spawn_blocking(move || keeper.plan(wanted)).await;
    let stored = stored.map_err(|_| ApiFailure::new(Code::Internal, "a task of this manager ended early"))?;
    stored.map_err(|e| ApiFailure::new(Code::Unavailable, remoor_model::error_with_causes(&e)))?;
    Ok(axum::Json(Nothing {}))
}
