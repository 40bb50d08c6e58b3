//! The attributes in which two digests differ.

use super::{FileEntry, FileKind, NodeDigest, ServiceDigest};
use crate::{ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One attribute in which two digests differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Difference {
    pub service: ServiceName,
    pub path: String,
    pub what: DigestChange,
}

/// The kind of a difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DigestChange {
    /// The path is expected, but was not found.
    Missing,
    /// The path was found, but is not expected.
    Extra,
    /// The path has another attribute. `attribute` is `sha256`, `mode`, `owner`, `group`, `kind` or
    /// `target`. For the `sha256` of a secret file, both values are [`SECRET`].
    Changed { attribute: String, expected: String, found: String },
}

/// The text that replaces the hash of a secret file in a difference.
pub const SECRET: &str = "(secret)";

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ", self.service, self.path)?;
        match &self.what {
            DigestChange::Missing => f.write_str("missing"),
            DigestChange::Extra => f.write_str("extra"),
            DigestChange::Changed { expected, .. } if expected == SECRET => f.write_str("content differs"),
            DigestChange::Changed { attribute, expected, found } => {
                write!(f, "{attribute} expected {expected} got {found}")
            }
        }
    }
}

/// All differences between `found` and `expected`, by service and path. Paths that `found` could
/// not read are skipped, because unknown is not a difference. If all paths were read and the result
/// is empty, the roots are equal.
pub fn differences(expected: &NodeDigest, found: &NodeDigest) -> Vec<Difference> {
    let names: BTreeSet<&ServiceName> = expected.services.keys().chain(found.services.keys()).collect();
    let none = ServiceDigest::default();
    let mut out = Vec::new();
    for service in names {
        let there = found.services.get(service).unwrap_or(&none);
        let unread = UnreadablePaths::from_digest(there);
        let wanted = entries_by_path(expected.services.get(service).unwrap_or(&none));
        let seen = entries_by_path(there);
        let paths: BTreeSet<&str> = wanted.keys().chain(seen.keys()).copied().collect();
        for path in paths {
            // A path that has an entry was read, even if a directory above it was reported as
            // unreadable.
            if seen.contains_key(path) || !unread.covers(path) {
                let mut add = |what| out.push(Difference { service: service.clone(), path: path.to_owned(), what });
                compare(wanted.get(path).copied(), seen.get(path).copied(), &mut add);
            }
        }
    }
    out
}

fn entries_by_path(service: &ServiceDigest) -> BTreeMap<&str, &FileEntry> {
    service.entries.iter().map(|entry| (entry.path.as_str(), entry)).collect()
}

/// The unreadable paths of a service, without paths below another unreadable path. Their order puts
/// each path directly before the paths below it. So a lookup needs one binary search and one
/// comparison, although a node may report any number of paths of any depth.
struct UnreadablePaths<'a> {
    paths: Vec<&'a str>,
    /// Whether some unreadable paths are not listed. Then any path may be one of them.
    more: bool,
}

impl<'a> UnreadablePaths<'a> {
    fn from_digest(service: &'a ServiceDigest) -> Self {
        let mut all: Vec<&str> = service.unreadable.keys().map(|path| path.trim_end_matches('/')).collect();
        all.sort_unstable_by(|a, b| cmp_path_components(a, b));
        let mut paths: Vec<&str> = Vec::new();
        for path in all {
            if !paths.last().is_some_and(|outer| is_at_or_below(path, outer)) {
                paths.push(path);
            }
        }
        Self { paths, more: service.unreadable_more > 0 }
    }

    /// Whether the path itself or a directory above it could not be read.
    fn covers(&self, path: &str) -> bool {
        let after = self.paths.partition_point(|bad| cmp_path_components(bad, path).is_le());
        self.more || after > 0 && is_at_or_below(path, self.paths[after - 1])
    }
}

fn is_at_or_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Compares paths as text, with `/` before all other characters: `/d`, `/d/a`, `/d-x`.
fn cmp_path_components(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| if byte == b'/' { 0 } else { byte };
    a.bytes().map(rank).cmp(b.bytes().map(rank))
}

fn compare(expected: Option<&FileEntry>, found: Option<&FileEntry>, add: &mut impl FnMut(DigestChange)) {
    let mut changed = |attribute: &str, expected: String, found: String| {
        add(DigestChange::Changed { attribute: attribute.to_owned(), expected, found });
    };
    match (expected, found) {
        (None, None) => {}
        (Some(e), None) if e.kind == FileKind::Absent => changed("kind", e.kind.to_string(), "undeclared".to_owned()),
        (None, Some(f)) if f.kind == FileKind::Absent => changed("kind", "undeclared".to_owned(), f.kind.to_string()),
        (Some(_), None) => add(DigestChange::Missing),
        (None, Some(_)) => add(DigestChange::Extra),
        (Some(e), Some(f)) if e.kind != f.kind => match (e.kind, f.kind) {
            (_, FileKind::Absent) => add(DigestChange::Missing),
            (FileKind::Absent, _) => add(DigestChange::Extra),
            _ => changed("kind", e.kind.to_string(), f.kind.to_string()),
        },
        (Some(e), Some(f)) => {
            if e.sha256 != f.sha256 {
                let secret = e.secret || f.secret;
                let show = |sha256: Option<Sha256>| match sha256 {
                    _ if secret => SECRET.to_owned(),
                    Some(sha256) => format!("{}..", sha256.short_hex()),
                    None => "none".to_owned(),
                };
                changed("sha256", show(e.sha256), show(f.sha256));
            }
            if e.mode != f.mode {
                changed("mode", format!("{:04o}", e.mode), format!("{:04o}", f.mode));
            }
            if e.owner != f.owner {
                changed("owner", e.owner.clone(), f.owner.clone());
            }
            if e.group != f.group {
                changed("group", e.group.clone(), f.group.clone());
            }
            if e.target != f.target {
                let show = |target: &Option<String>| target.clone().unwrap_or_else(|| "none".to_owned());
                changed("target", show(&e.target), show(&f.target));
            }
        }
    }
}
