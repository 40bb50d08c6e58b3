//! What a node is asked to look at: made by the manager from a generation, cached by the agent, sent with every examination.

use super::{GenerationSeq, GroupName, NodeName, OnFail, ServiceName, Severity};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub node: NodeName,
    pub group: GroupName,
    pub generation: GenerationSeq,
    pub services: Vec<ServiceManifest>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceManifest {
    pub name: ServiceName,
    /// Absolute paths or globs of files; a path ending in `/` is a managed directory: extra files in it are drift.
    pub files: Vec<String>,
    /// Globs; win over `files`.
    pub exclude: Vec<String>,
    /// Globs of files whose content is hashed with the node's key and never shown.
    pub secret: Vec<String>,
    /// Regular expressions of lines that do not count in the content of its files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub normalize: Vec<String>,
    /// systemd units that cleanup must have stopped and disabled.
    pub units: Vec<String>,
    /// Paths that cleanup may park but never delete.
    pub state: Vec<String>,
    /// Files of `files` that stay through cleanup (shared with other services or packages), as globs.
    pub keep: Vec<String>,
    /// Rendered check files of this service for this node: (file name for messages, goss YAML text after templating).
    pub checks: Vec<CheckText>,
}

/// One file below `checks/`, seen from one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckFile {
    /// Relative to the fleet directory.
    pub file: String,
    pub service: ServiceName,
    /// Whether the node is asked by it.
    pub applies: bool,
    /// What chose it, or what did not, in words.
    pub why: String,
    /// As the node gets it, with an empty line for each of the `remoor:` block; empty where it does not apply.
    pub text: String,
    pub checks: Vec<ListedCheck>,
}

/// A check that a node is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedCheck {
    /// Of the rendered text.
    pub line: u32,
    /// `type:id`, as in results.
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
