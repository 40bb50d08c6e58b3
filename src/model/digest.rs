//! What configuration a node has, as hashes.

use super::{ServiceName, Sha256};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    Socket,
    Fifo,
    CharDevice,
    BlockDevice,
    Absent,
}

/// One declared path as found. No times, inode or size: they change without the configuration changing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileEntry {
    /// Absolute.
    pub path: String,
    pub kind: FileKind,
    /// Permission bits, `mode & 0o7777`; 0 for symlinks.
    pub mode: u32,
    /// Names, since managers can't know the ids; `#1234` for an id without a name.
    pub owner: String,
    pub group: String,
    /// Of a file's content; of a secret file, the HMAC with the node's digest key.
    pub sha256: Option<Sha256>,
    /// Of a symlink.
    pub target: Option<String>,
    /// No diff, no content in any output.
    #[serde(default)]
    pub secret: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDigest {
    pub root: Sha256,
    /// By path, in order.
    pub entries: Vec<FileEntry>,
    /// What could not be read, and why: the service is then unknown, never same.
    pub unreadable: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDigest {
    /// Over (service name, service root), sorted by name.
    pub root: Sha256,
    pub services: BTreeMap<ServiceName, ServiceDigest>,
}

/// What a baseline's blob holds: the digest, and how far the manager can render it itself. Reads the blobs of before,
/// which held the digest alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub root: Sha256,
    pub services: BTreeMap<ServiceName, ServiceDigest>,
    /// Facts of the node that its last provisioning could read.
    #[serde(default)]
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Paths whose recorded content is what the manager renders; all others are recorded only. None: nobody compared.
    #[serde(default)]
    pub rendered: Option<BTreeSet<String>>,
    /// Addresses and roles that its last provisioning was rendered with: it is compared by these, not by those of now.
    /// None: nobody noted them.
    #[serde(default)]
    pub known: Option<super::Known>,
}

impl Record {
    pub fn digest(&self) -> NodeDigest {
        NodeDigest { root: self.root, services: self.services.clone() }
    }

    /// What is recorded after a job about `services` (empty: about all), where `self` is all that was found: of these what
    /// was found, of all others what stood in `before`, so that what had drifted there stays drift. Of the facts, the
    /// newer ones hold.
    pub fn of_part(self, services: &[ServiceName], before: Option<&Record>) -> Record {
        let Some(before) = before.filter(|_| !services.is_empty()) else { return self };
        let about = |name: &ServiceName| services.contains(name);
        let others: BTreeMap<_, _> = before.services.iter().filter(|(name, _)| !about(name)).collect();
        let made: BTreeMap<_, _> = self.services.iter().filter(|(name, _)| about(name)).collect();
        let (kept, new) = (paths(&others), paths(&made));
        let rendered = before.rendered.as_ref().zip(self.rendered.as_ref()).map(|(old, now)| {
            let old = old.iter().filter(|path| kept.contains(path.as_str()));
            old.chain(now.iter().filter(|path| new.contains(path.as_str()))).cloned().collect()
        });
        let services = others.into_iter().chain(made).map(|(name, s)| (name.clone(), s.clone())).collect();
        let mut facts = before.facts.clone();
        facts.extend(self.facts);
        Record { root: NodeDigest::root_of(&services), services, facts, rendered, known: before.known.clone() }
    }
}

fn paths<'a>(services: &BTreeMap<&ServiceName, &'a ServiceDigest>) -> BTreeSet<&'a str> {
    services.values().flat_map(|s| &s.entries).map(|entry| entry.path.as_str()).collect()
}

/// Format of an entry's bytes; raised when they change, so that old and new roots never compare equal by accident.
const ENTRY_VERSION: u8 = 1;
/// What precedes hashed bytes, so that no node of a tree can be passed off as another sort (RFC 6962 does so with two).
const LEAF: u8 = 0;
const INNER: u8 = 1;
const BUCKET: u8 = 2;
const NODE: u8 = 3;
/// At most so many entries share one bucket; above, they are spread over 16 children by the next hex digit of their key.
const BUCKET_SIZE: usize = 16;
const KEY_DIGITS: usize = 64;

impl FileKind {
    fn byte(self) -> u8 {
        match self {
            FileKind::File => b'f',
            FileKind::Dir => b'd',
            FileKind::Symlink => b'l',
            FileKind::Socket => b's',
            FileKind::Fifo => b'p',
            FileKind::CharDevice => b'c',
            FileKind::BlockDevice => b'b',
            FileKind::Absent => b'a',
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::File => "file",
            FileKind::Dir => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Socket => "socket",
            FileKind::Fifo => "pipe",
            FileKind::CharDevice => "character device",
            FileKind::BlockDevice => "block device",
            FileKind::Absent => "absent",
        })
    }
}

impl FileEntry {
    /// The bytes that are hashed: every attribute that counts, each with its length, the version first. Not the `secret` flag.
    pub fn canonical(&self) -> Vec<u8> {
        let mut out = vec![ENTRY_VERSION, self.kind.byte()];
        push_text(&mut out, &self.path);
        out.extend_from_slice(&self.mode.to_be_bytes());
        push_text(&mut out, &self.owner);
        push_text(&mut out, &self.group);
        match &self.sha256 {
            Some(sha256) => {
                out.push(1);
                out.extend_from_slice(&sha256.0);
            }
            None => out.push(0),
        }
        match &self.target {
            Some(target) => {
                out.push(1);
                push_text(&mut out, target);
            }
            None => out.push(0),
        }
        out
    }
}

impl ServiceDigest {
    /// Root of the tree over `entries`, whatever their order. No entries: all zero.
    pub fn root_of(entries: &[FileEntry]) -> Sha256 {
        let mut leaves: Vec<(Sha256, Sha256)> =
            entries.iter().map(|entry| (Sha256::of(entry.path.as_bytes()), tagged(LEAF, &entry.canonical()))).collect();
        leaves.sort_unstable();
        subtree(&leaves, 0)
    }
}

impl NodeDigest {
    /// Root over the services that have entries; one without says nothing of the node, so it does not count.
    pub fn root_of(services: &BTreeMap<ServiceName, ServiceDigest>) -> Sha256 {
        let mut bytes = Vec::new();
        for (name, service) in services.iter().filter(|(_, service)| !service.entries.is_empty()) {
            push_text(&mut bytes, name.as_str());
            bytes.extend_from_slice(&service.root.0);
        }
        tagged(NODE, &bytes)
    }
}

fn subtree(leaves: &[(Sha256, Sha256)], digit: usize) -> Sha256 {
    if leaves.is_empty() {
        return Sha256::default();
    }
    let mut bytes = Vec::with_capacity(BUCKET_SIZE * 32);
    if leaves.len() <= BUCKET_SIZE || digit == KEY_DIGITS {
        leaves.iter().for_each(|(_, leaf)| bytes.extend_from_slice(&leaf.0));
        return tagged(BUCKET, &bytes);
    }
    let mut rest = leaves;
    for child in 0..16 {
        let (mine, others) = rest.split_at(rest.partition_point(|(key, _)| hex_digit(key, digit) <= child));
        bytes.extend_from_slice(&subtree(mine, digit + 1).0);
        rest = others;
    }
    tagged(INNER, &bytes)
}

fn hex_digit(key: &Sha256, digit: usize) -> u8 {
    let byte = key.0[digit / 2];
    if digit.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

fn tagged(tag: u8, bytes: &[u8]) -> Sha256 {
    let mut all = Vec::with_capacity(bytes.len() + 1);
    all.push(tag);
    all.extend_from_slice(bytes);
    Sha256::of(&all)
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// One attribute in which two digests disagree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Difference {
    pub service: ServiceName,
    pub path: String,
    pub what: Change,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Expected, and not there.
    Missing,
    /// There, and not expected.
    Extra,
    /// `attribute` is `sha256`, `mode`, `owner`, `group`, `kind` or `target`. Of a secret's `sha256` both values are `SECRET`.
    Changed { attribute: String, expected: String, found: String },
}

/// Stands in a difference where the hash of a secret file would.
pub const SECRET: &str = "(secret)";

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ", self.service, self.path)?;
        match &self.what {
            Change::Missing => f.write_str("missing"),
            Change::Extra => f.write_str("extra"),
            Change::Changed { expected, .. } if expected == SECRET => f.write_str("content differs"),
            Change::Changed { attribute, expected, found } => write!(f, "{attribute} expected {expected} got {found}"),
        }
    }
}

/// Everything in which `found` disagrees with `expected`, by service and path. Paths that `found` could not read are left out,
/// since unknown is not a difference; without such paths, no differences and equal roots mean the same.
pub fn differences(expected: &NodeDigest, found: &NodeDigest) -> Vec<Difference> {
    let names: BTreeSet<&ServiceName> = expected.services.keys().chain(found.services.keys()).collect();
    let none = ServiceDigest::default();
    let mut out = Vec::new();
    for service in names {
        let there = found.services.get(service).unwrap_or(&none);
        let wanted = by_path(expected.services.get(service).unwrap_or(&none));
        let seen = by_path(there);
        let paths: BTreeSet<&str> = wanted.keys().chain(seen.keys()).copied().collect();
        for path in paths {
            if !is_unreadable(there, path) {
                let mut add = |what| out.push(Difference { service: service.clone(), path: path.to_owned(), what });
                compare(wanted.get(path).copied(), seen.get(path).copied(), &mut add);
            }
        }
    }
    out
}

fn by_path(service: &ServiceDigest) -> BTreeMap<&str, &FileEntry> {
    service.entries.iter().map(|entry| (entry.path.as_str(), entry)).collect()
}

/// The path itself or a directory above it could not be read.
fn is_unreadable(service: &ServiceDigest, path: &str) -> bool {
    service.unreadable.keys().any(|bad| {
        path.strip_prefix(bad.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || bad.ends_with('/'))
    })
}

fn compare(expected: Option<&FileEntry>, found: Option<&FileEntry>, add: &mut impl FnMut(Change)) {
    let mut changed = |attribute: &str, expected: String, found: String| {
        add(Change::Changed { attribute: attribute.to_owned(), expected, found });
    };
    match (expected, found) {
        (None, None) => {}
        (Some(e), None) if e.kind == FileKind::Absent => changed("kind", e.kind.to_string(), "undeclared".to_owned()),
        (None, Some(f)) if f.kind == FileKind::Absent => changed("kind", "undeclared".to_owned(), f.kind.to_string()),
        (Some(_), None) => add(Change::Missing),
        (None, Some(_)) => add(Change::Extra),
        (Some(e), Some(f)) if e.kind != f.kind => match (e.kind, f.kind) {
            (_, FileKind::Absent) => add(Change::Missing),
            (FileKind::Absent, _) => add(Change::Extra),
            _ => changed("kind", e.kind.to_string(), f.kind.to_string()),
        },
        (Some(e), Some(f)) => {
            if e.sha256 != f.sha256 {
                let secret = e.secret || f.secret;
                let show = |sha256: Option<Sha256>| match sha256 {
                    _ if secret => SECRET.to_owned(),
                    Some(sha256) => format!("{}..", sha256.short()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(path: &str) -> FileEntry {
        FileEntry {
            path: path.to_owned(),
            kind: FileKind::File,
            mode: 0o644,
            owner: "root".to_owned(),
            group: "root".to_owned(),
            sha256: Some(Sha256::of(b"x")),
            target: None,
            secret: false,
        }
    }

    fn node(services: Vec<(&str, Vec<FileEntry>)>) -> NodeDigest {
        let services: BTreeMap<ServiceName, ServiceDigest> = services
            .into_iter()
            .map(|(name, mut entries)| {
                entries.sort();
                entries.dedup_by(|a, b| a.path == b.path);
                let root = ServiceDigest::root_of(&entries);
                (name.into(), ServiceDigest { root, entries, unreadable: BTreeMap::new() })
            })
            .collect();
        NodeDigest { root: NodeDigest::root_of(&services), services }
    }

    fn arbitrary_entry() -> impl Strategy<Value = FileEntry> {
        let kinds = prop_oneof![
            Just(FileKind::File),
            Just(FileKind::Dir),
            Just(FileKind::Symlink),
            Just(FileKind::Fifo),
            Just(FileKind::Absent)
        ];
        (0u8..6, kinds, 0u32..3, "[ab]?", "[ab]?", 0u8..3, 0u8..3).prop_map(
            |(path, kind, mode, owner, group, sha256, target)| FileEntry {
                path: format!("/etc/{path}"),
                kind,
                mode,
                owner,
                group,
                sha256: (sha256 > 0).then(|| Sha256::of(&[sha256])),
                target: (target > 0).then(|| target.to_string()),
                secret: false,
            },
        )
    }

    fn arbitrary_node() -> impl Strategy<Value = NodeDigest> {
        let entries = || prop::collection::vec(arbitrary_entry(), 0..5);
        (entries(), entries()).prop_map(|(a, b)| node(vec![("a", a), ("b", b)]))
    }

    /// A second digest: independent, or the first with one attribute of one entry altered, or the first itself.
    fn pair() -> impl Strategy<Value = (NodeDigest, NodeDigest)> {
        (arbitrary_node(), arbitrary_node(), 0u8..8, any::<prop::sample::Index>()).prop_map(|(a, b, how, index)| {
            let Some(entries) = a.services.values().map(|s| s.entries.clone()).find(|e| !e.is_empty()) else {
                return (a, b);
            };
            let mut altered = entries.clone();
            let victim = index.index(altered.len());
            match how {
                0 => return (a, b),
                1 => return (a.clone(), a),
                2 => altered[victim].mode += 1,
                3 => altered[victim].owner.push('x'),
                4 => altered[victim].group.push('x'),
                5 => altered[victim].sha256 = Some(Sha256::of(b"other")),
                6 => altered[victim].target = Some("other".to_owned()),
                _ => drop(altered.remove(victim)),
            }
            (node(vec![("s", entries)]), node(vec![("s", altered)]))
        })
    }

    #[test]
    fn a_record_of_a_part_keeps_what_it_is_not_about() {
        let at = |path: &str, text: &str| FileEntry { sha256: Some(Sha256::of(text.as_bytes())), ..entry(path) };
        let record = |a: &str, b: &str, facts: serde_json::Value, rendered: &[&str]| {
            let digest = node(vec![("a", vec![at("/a", a)]), ("b", vec![at("/b", b)])]);
            Record {
                root: digest.root,
                services: digest.services,
                facts: facts.as_object().cloned().unwrap_or_default(),
                rendered: Some(rendered.iter().map(|path| (*path).to_owned()).collect()),
                known: None,
            }
        };
        let before = record("1", "1", serde_json::json!({"of b": 1, "both": 1}), &["/a", "/b"]);
        let found = record("2", "edited", serde_json::json!({"of a": 2, "both": 2}), &["/a"]);
        let part = found.clone().of_part(&["a".into()], Some(&before));
        let expected = record("2", "1", serde_json::json!({"of b": 1, "of a": 2, "both": 2}), &["/a", "/b"]);
        assert_eq!(part, expected, "the root too");
        // The edit of b is the one difference that is left.
        let left: Vec<String> = differences(&part.digest(), &found.digest()).into_iter().map(|d| d.path).collect();
        assert_eq!(left, ["/b"]);
        assert_eq!(found.clone().of_part(&[], Some(&before)), found, "a job about all");
        assert_eq!(found.clone().of_part(&["a".into()], None), found, "nothing was recorded before");
        // Who never compared says nothing of the origin, and this is not known of the rest by now either.
        let old = Record { rendered: None, ..before };
        assert_eq!(found.of_part(&["a".into()], Some(&old)).rendered, None);
    }

    proptest! {
        #[test]
        fn equal_roots_mean_no_differences((a, b) in pair()) {
            let found = differences(&a, &b);
            prop_assert_eq!(a.root == b.root, found.is_empty(), "{:?}", found);
        }

        #[test]
        fn order_does_not_count(count in 0usize..60, seed in any::<u64>()) {
            let mut entries: Vec<FileEntry> = (0..count).map(|i| entry(&format!("/f/{i}"))).collect();
            let root = ServiceDigest::root_of(&entries);
            entries.sort_by_key(|entry| Sha256::of(format!("{seed}{}", entry.path).as_bytes()));
            prop_assert_eq!(root, ServiceDigest::root_of(&entries));
        }

        #[test]
        fn every_entry_counts_in_a_deep_tree(victim in 0usize..600) {
            let mut entries: Vec<FileEntry> = (0..600).map(|i| entry(&format!("/f/{i}"))).collect();
            let root = ServiceDigest::root_of(&entries);
            entries[victim].mode = 0o600;
            prop_assert_ne!(root, ServiceDigest::root_of(&entries));
            entries.remove(victim);
            prop_assert_ne!(root, ServiceDigest::root_of(&entries));
        }
    }

    /// Roots are stored and sent: they may change only together with `ENTRY_VERSION`.
    #[test]
    fn the_roots_are_fixed() {
        let small = node(vec![("nginx", vec![entry("/etc/nginx.conf")])]);
        let large = node(vec![("nginx", (0..40).map(|i| entry(&format!("/etc/{i}"))).collect())]);
        expect_test::expect!["6105e98d56242d9ca13915c28c7a3508ac46275ddbe98f98035d9b2b1a8761f6 cdf629c57f9f57098dadddf0ba090259602aef829ebc9b3832f1c046546ad7cb"].assert_eq(&format!("{} {}", small.root, large.root));
    }

    #[test]
    fn differences_read_like_sentences() {
        let expected = node(vec![("etcd", vec![entry("/a"), entry("/b"), entry("/c"), entry("/d")])]);
        let mut other = [entry("/a"), entry("/b"), entry("/c"), entry("/e")];
        other[0].sha256 = Some(Sha256::of(b"y"));
        other[1].mode = 0o4600;
        other[1].secret = true;
        other[1].sha256 = Some(Sha256::of(b"z"));
        other[2].kind = FileKind::Fifo;
        let found = node(vec![("etcd", other.to_vec())]);
        let text: Vec<String> = differences(&expected, &found).iter().map(Difference::to_string).collect();
        expect_test::expect![[r#"
            etcd: /a sha256 expected 2d711642b726.. got a1fce4363854..
            etcd: /b content differs
            etcd: /b mode expected 0644 got 4600
            etcd: /c kind expected file got pipe
            etcd: /d missing
            etcd: /e extra"#]]
        .assert_eq(&text.join("\n"));
    }

    #[test]
    fn what_could_not_be_read_is_no_difference() {
        let expected = node(vec![("s", vec![entry("/d/a"), entry("/dd"), entry("/x")])]);
        let mut found = node(vec![("s", vec![])]);
        for service in found.services.values_mut() {
            service.unreadable.insert("/d".to_owned(), "permission denied".to_owned());
        }
        let paths: Vec<String> = differences(&expected, &found).into_iter().map(|d| d.path).collect();
        assert_eq!(paths, ["/dd", "/x"]);
    }
}
