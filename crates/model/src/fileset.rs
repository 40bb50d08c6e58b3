//! The files of a fleet directory as one value, from which a generation is made.

use super::Sha256;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The content of each file by its path. Paths are relative to the fleet directory, separated by
/// `/`, and have no `.` or `..`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileSet(pub BTreeMap<String, Vec<u8>>);

impl FileSet {
    /// The content of the file. None if the file does not exist.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(Vec::as_slice)
    }
    /// The content of the file as text. None if the file does not exist or is not UTF-8.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.get(path).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }
    /// The paths below `dir`, in order. `dir` has no slash at its end. An empty `dir` stands for
    /// all paths.
    pub fn paths_below<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .keys()
            .map(String::as_str)
            .filter(move |path| dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/')))
    }
    /// The hash of all files except those below `dir`. It depends on paths and contents only.
    pub fn sha256_without(&self, dir: &str) -> Sha256 {
        let mut text = Vec::new();
        let is_below = |path: &str| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        for (path, content) in self.0.iter().filter(|(path, _)| !is_below(path)) {
            text.extend_from_slice(&(path.len() as u64).to_be_bytes());
            text.extend_from_slice(path.as_bytes());
            text.extend_from_slice(&Sha256::digest(content).0);
        }
        Sha256::digest(&text)
    }
}
