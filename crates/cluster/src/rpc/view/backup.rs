//! Requests and answers about backups.

use serde::{Deserialize, Serialize};

/// Body of `POST /v1/backup`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupRequest {
    /// Absolute path on the manager's disk; must not exist.
    pub file: String,
}

/// The answer to [`BackupRequest`]: the backup was written, read back and verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTakenView {
    pub version: u32,
    pub file: String,
    pub made: String,
    /// The manager whose keys it contains.
    pub by: String,
    pub epoch: u64,
    /// Index of the last entry in it.
    pub index: u64,
    pub generation: u64,
    pub nodes: u64,
    pub bytes: u64,
    pub sha256: String,
    /// No leader was known, so other managers may have newer entries.
    pub stale: bool,
}

/// Body of `POST /v1/backup/plan`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupPlanRequest {
    /// Absolute path.
    pub dir: String,
    /// 0: no further backups.
    pub every_ms: u64,
    pub keep: u32,
}

/// The state of a manager's own backups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupView {
    /// The manager; empty from an older one, which means the answering manager.
    #[serde(default)]
    pub by: String,
    /// The last backup that was read back and verified.
    pub at: Option<String>,
    pub age_ms: Option<u64>,
    pub file: Option<String>,
    /// The planned interval.
    pub every_ms: Option<u64>,
    /// Whether the last backup is older than twice the interval.
    pub late: bool,
    /// Why the last attempt failed.
    pub error: Option<String>,
}
