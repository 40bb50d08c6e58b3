//! What an agent checks on its node. The manager derives it from a generation, the agent caches it,
//! and every examination contains it.

use super::{GenerationSeq, GroupName, NodeName, OnFail, ServiceName, Severity};
use serde::{Deserialize, Serialize};

/// The services of one node with their files and checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeManifest {
    pub node: NodeName,
    pub group: GroupName,
    pub generation: GenerationSeq,
    pub services: Vec<ServiceManifest>,
}

/// One service of a node: what to hash, check and clean up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceManifest {
    pub name: ServiceName,
    /// Absolute paths or globs. A path ending in `/` is a managed directory, in which additional
    /// files count as drift.
    pub files: Vec<String>,
    /// Globs that exclude files; they override `files`.
    pub exclude: Vec<String>,
    /// Globs of files whose content is hashed with the node's key and never shown.
    pub secret: Vec<String>,
    /// Regular expressions of lines that are ignored in the content of the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub normalize: Vec<String>,
    /// systemd units that cleanup must have stopped and disabled.
    pub units: Vec<String>,
    /// Paths that cleanup may move away but must not delete.
    pub state: Vec<String>,
    /// Globs of files in `files` that cleanup keeps, because other services or packages share them.
    pub keep: Vec<String>,
    /// The check files of this service, rendered for this node.
    pub checks: Vec<CheckText>,
}

/// One file below `checks/`, as it applies to one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFile {
    /// Path relative to the fleet directory.
    pub file: String,
    pub service: ServiceName,
    /// The node runs the checks of this file.
    pub applies: bool,
    /// Why the file applies or does not apply, as text.
    pub why: String,
    /// The text as sent to the node. Each line of the `remoor:` block is replaced by an empty line.
    /// Empty if the file does not apply.
    pub text: String,
    pub checks: Vec<ListedCheck>,
}

/// A check that a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedCheck {
    /// Line in the rendered text.
    pub line: u32,
    /// The check as `type:id`, in the same form as in results.
    pub check: String,
    pub title: Option<String>,
    pub severity: Severity,
    pub on_fail: OnFail,
}

/// A check file after its template was rendered for one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckText {
    pub file: String,
    pub text: String,
}
