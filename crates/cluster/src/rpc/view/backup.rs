//! Requests and answers about backups.

use serde::{Deserialize, Serialize};

/// Body of `POST /v1/backup`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupRequest {
    /// Absolute path on the manager's disk. The file must not exist.
    pub file: String,
    /// Public keys of age (`age1...`) for which the backup is encrypted; at most 16. Without a key,
    /// the backup is not encrypted.
    pub recipients: Vec<String>,
}

/// The answer to [`BackupRequest`]: the backup was written, read back and verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTakenView {
    pub version: u32,
    pub file: String,
    pub made: String,
    /// The manager that made the backup. The backup contains the keys of this manager.
    pub by: String,
    pub epoch: u64,
    /// Index of the last entry in the backup.
    pub index: u64,
    pub generation: u64,
    pub nodes: u64,
    pub bytes: u64,
    pub sha256: String,
    /// Whether no leader was known when the backup was made. Other managers may then have newer
    /// entries.
    pub stale: bool,
}

/// Body of `POST /v1/backup/plan`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupPlanRequest {
    /// Absolute path of the directory for the planned backups.
    pub dir: String,
    /// The interval of the backups. 0 ends the planned backups.
    pub every_ms: u64,
    pub keep: u32,
    /// Public keys of age, as in [`BackupRequest`].
    pub recipients: Vec<String>,
}

/// The state of a manager's own backups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupView {
    /// The manager that made the backups. Empty from an older manager, which shows only its own
    /// backups.
    #[serde(default)]
    pub by: String,
    /// The time of the last backup that was read back and verified.
    pub at: Option<String>,
    pub age_ms: Option<u64>,
    pub file: Option<String>,
    /// The interval of the planned backups. None if none is planned.
    pub every_ms: Option<u64>,
    /// Whether the last backup is older than twice the interval.
    pub late: bool,
    /// The reason why the last attempt to make a backup failed.
    pub error: Option<String>,
}
