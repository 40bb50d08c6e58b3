//! Compares a digest with an earlier one.

use super::StoredDigest;
use remoor_model::{
    DigestChange, FileEntry, FileKind, NodeDigest, SECRET, ServiceDigest, ServiceName, Sha256, differences,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The result of `remoor digest --compare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DigestComparison {
    pub version: u32,
    /// Root hash of those entries of the earlier digest that were compared.
    pub before: Sha256,
    pub root: Sha256,
    /// Number of unchanged paths.
    pub unchanged: usize,
    /// The changes, sorted by path.
    pub differences: Vec<PathChange>,
    /// The paths that could not be compared, with the reasons.
    pub unclear: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathChange {
    pub path: String,
    pub change: PathChangeKind,
    /// The changed attributes. Empty if the path was added or is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathChangeKind {
    Added,
    Missing,
    Changed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attribute {
    /// The name of the attribute: `sha256`, `mode`, `owner`, `group`, `kind` or `target`.
    pub attribute: String,
    /// The earlier value. For the `sha256` of a secret file, both values are `(secret)`.
    pub before: String,
    pub now: String,
}

impl Attribute {
    /// The change as text for people.
    pub fn describe(&self) -> String {
        match self.before == SECRET {
            true => "content".to_owned(),
            false => format!("{} {} -> {}", self.attribute, self.before, self.now),
        }
    }
}

/// The differences in the paths that `now` covers. A path that one of the two digests could not
/// read is unclear and never unchanged. The same rule applies to content that was hashed with
/// another key, or not at all.
pub fn compare(before: &StoredDigest, now: &StoredDigest) -> DigestComparison {
    let inside = |path: &str| now.paths.iter().any(|outer| Path::new(path).starts_with(outer));
    let earlier = before.entries.iter().filter(|e| inside(&e.path)).cloned().collect();
    let (mut was, mut is) = (present(earlier, &before.unreadable), present(now.entries.clone(), &now.unreadable));
    (was.unreadable_more, is.unreadable_more) = (before.unreadable_more, now.unreadable_more);
    let root = was.root;
    let mut unclear = now.unclear();
    let then = before
        .unreadable
        .iter()
        .filter(|(path, _)| inside(path) || now.paths.iter().any(|p| Path::new(p).starts_with(path)));
    unclear
        .extend(then.map(|(path, why)| format!("{path}: could not be read at the time of the earlier digest: {why}")));
    if before.unreadable_more > 0 {
        unclear.push(format!("{} more could not be read at the time of the earlier digest", before.unreadable_more));
    }
    // If the earlier digest does not contain a path, not even as absent, the path is probably
    // misspelled.
    let told: BTreeSet<&str> = before.entries.iter().map(|e| e.path.as_str()).collect();
    for path in now.absent().filter(|path| !told.contains(*path)) {
        unclear.push(format!("{path}: it does not exist and is not in the earlier digest"));
    }
    if before.key.is_some() && now.key.is_some() && before.key != now.key {
        unclear.push("the key differs from that of the earlier digest".to_owned());
    }
    let (lines, without) = drop_incomparable(before, now, &mut was, &mut is);
    unclear.extend(lines);
    // A path that could not be read earlier must not be reported as new. So a path counts as
    // changed only if the comparison finds it in both directions: earlier with later, and later
    // with earlier.
    let (was, is) = (as_node_digest(was), as_node_digest(is));
    let backwards: BTreeSet<String> = differences(&is, &was).into_iter().map(|d| d.path).collect();
    let mut changes: BTreeMap<String, PathChange> = BTreeMap::new();
    for difference in differences(&was, &is).into_iter().filter(|d| backwards.contains(&d.path)) {
        let path = difference.path.clone();
        let change = |what| PathChange { path, change: what, attributes: Vec::new() };
        match difference.what {
            DigestChange::Missing => drop(changes.insert(difference.path, change(PathChangeKind::Missing))),
            DigestChange::Extra => drop(changes.insert(difference.path, change(PathChangeKind::Added))),
            DigestChange::Changed { attribute, expected, found } => {
                let into = changes.entry(difference.path).or_insert_with(|| change(PathChangeKind::Changed));
                into.attributes.push(Attribute { attribute, before: expected, now: found });
            }
        }
    }
    let paths = |digest: &NodeDigest| -> BTreeSet<String> {
        digest.services.values().flat_map(|s| &s.entries).map(|e| e.path.clone()).collect()
    };
    let unchanged = paths(&was)
        .intersection(&paths(&is))
        .filter(|path| !changes.contains_key(*path) && !without.contains(*path))
        .count();
    let differences = changes.into_values().collect();
    DigestComparison { version: 1, before: root, root: now.root, unchanged, differences, unclear }
}

/// Removes the digest entries of absent paths. A requested path that does not exist must equal a
/// path that was not requested.
fn present(mut entries: Vec<FileEntry>, unreadable: &BTreeMap<String, String>) -> ServiceDigest {
    entries.retain(|e| e.kind != FileKind::Absent);
    ServiceDigest {
        root: ServiceDigest::root_of(&entries),
        entries,
        unreadable: unreadable.clone(),
        unreadable_more: 0,
    }
}

/// Removes the hashes of files that can't be compared. Returns a line for each of these files that
/// was secret both times. No line is needed for a file that changed between secret and not secret,
/// because its mode differs.
fn drop_incomparable(
    before: &StoredDigest,
    now: &StoredDigest,
    was: &mut ServiceDigest,
    is: &mut ServiceDigest,
) -> (Vec<String>, BTreeSet<String>) {
    let same_key = before.key.is_some() && before.key == now.key;
    let then: BTreeMap<&str, bool> = was.entries.iter().map(|e| (e.path.as_str(), e.secret)).collect();
    let (mut lines, mut without) = (Vec::new(), BTreeSet::new());
    for entry in is.entries.iter().filter(|e| e.kind == FileKind::File) {
        match then.get(entry.path.as_str()) {
            Some(true) if entry.secret && !same_key => {
                lines.push(format!("{}: its content was not compared: only its owner may read it", entry.path));
            }
            Some(secret) if *secret != entry.secret => {}
            _ => continue,
        }
        without.insert(entry.path.clone());
    }
    for entry in was.entries.iter_mut().chain(&mut is.entries).filter(|e| without.contains(&e.path)) {
        entry.sha256 = None;
    }
    (lines, without)
}

fn as_node_digest(service: ServiceDigest) -> NodeDigest {
    NodeDigest { services: BTreeMap::from([(ServiceName::from(""), service)]), ..NodeDigest::default() }
}
