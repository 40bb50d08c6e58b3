//! Backups, as they are asked for and told of.

use serde::{Deserialize, Serialize};

/// Body of `POST /v1/backup`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupRequest {
    /// Absolute, on the manager's disk; must not exist.
    pub file: String,
}

/// Its answer: the file was read back and is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupTakenView {
    pub version: u32,
    pub file: String,
    pub made: String,
    /// The manager whose keys are in it.
    pub by: String,
    pub epoch: u64,
    /// The last entry in it.
    pub index: u64,
    pub generation: u64,
    pub nodes: u64,
    pub bytes: u64,
    pub sha256: String,
    /// No leader was known: others may know more.
    pub stale: bool,
}

/// Body of `POST /v1/backup/plan`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackupPlanRequest {
    /// Absolute.
    pub dir: String,
    /// 0: no more.
    pub every_ms: u64,
    pub keep: u32,
}

/// What a manager knows of its own backups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupView {
    /// The manager; empty: an older one, that which answers.
    #[serde(default)]
    pub by: String,
    /// The last one that was read back and was whole.
    pub at: Option<String>,
    pub age_ms: Option<u64>,
    pub file: Option<String>,
    /// As planned.
    pub every_ms: Option<u64>,
    /// Older than twice that.
    pub late: bool,
    /// Why the last one was not made.
    pub error: Option<String>,
}
