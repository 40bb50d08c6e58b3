//! The list of everything that an agent hashes and checks on its node. The manager derives it from
//! a generation, the agent caches it, and the manager sends it to the node for every examination.

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

/// One service of a node: the files to hash, the checks to run, and the objects to clean up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceManifest {
    pub name: ServiceName,
    /// Absolute paths or globs. A path that ends in `/` is a managed directory, in which an
    /// additional file is drift.
    pub files: Vec<String>,
    /// Globs that exclude files. They override `files`.
    pub exclude: Vec<String>,
    /// Globs of files whose content is hashed with the node's digest key and never shown.
    pub secret: Vec<String>,
    /// Regular expressions of lines that are ignored in the content of the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub normalize: Vec<String>,
    /// systemd units that must be stopped and disabled after cleanup.
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
    /// Whether the node runs the checks of this file.
    pub applies: bool,
    /// The reason why the file applies or does not apply, as text.
    pub why: String,
    /// The text that is sent to the node. An empty line replaces each line of the `remoor:` block.
    /// Empty if the file does not apply.
    pub text: String,
    pub checks: Vec<ListedCheck>,
}

/// A check that a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedCheck {
    /// Line number in the rendered text.
    pub line: u32,
    /// The check as `type:id`, in the form of the results.
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
