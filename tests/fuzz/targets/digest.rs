//! Data from the network. The first byte of the input selects one of two cases. The first case is
//! arbitrary frames, used as answers of a node and as orders to it. In the second case, a manager
//! requests the parts of a node's digest that it does not know, and the answers are changed on the
//! way. The digest that the manager gets is always consistent. If no answer was changed, it equals
//! the node's digest.

use remoor_exec::wire::{ExecutorOrder, Reply, frame};
use remoor_model::{
    BranchContent, DigestSummary, DigestTrees, DigestWalk, FileEntry, FileKind, NodeDigest, ServiceDigest, ServiceName,
    Sha256, WalkStep,
};
use std::collections::BTreeMap;

pub fn target(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = bytes.split_first() else { return false };
    if kind % 2 == 0 {
        read_frames(rest)
    } else {
        walk(rest)
    }
    true
}

/// Reads a stream of a node that may send arbitrary bytes.
fn read_frames(mut input: &[u8]) {
    let mut walk: Option<DigestWalk> = None;
    while let Ok(Some(content)) = frame::read(&mut input) {
        check_order_encoding(&content);
        let result = match frame::decode::<Reply>(&content) {
            Ok(Reply::Outlined { services, .. }) => match DigestWalk::begin(NodeDigest::default(), services) {
                Ok((begun, next)) => {
                    walk = Some(begun);
                    Ok(next)
                }
                Err(astray) => Err(astray),
            },
            Ok(Reply::Branches { below }) => match walk.as_mut() {
                Some(walk) => walk.answers(below),
                None => continue,
            },
            Ok(Reply::Exam(exam)) => {
                exam.digest.services.values().flat_map(|s| &s.entries).for_each(check_canonical_bytes);
                continue;
            }
            Ok(_) | Err(_) => continue,
        };
        match result {
            Ok(WalkStep::Found(found)) => check_roots(&found),
            Ok(WalkStep::Ask(_)) => {}
            Err(_) => walk = None,
        }
    }
}

/// Checks that an order that an executor accepts is the same after it is encoded and decoded again.
fn check_order_encoding(content: &[u8]) {
    if let Ok(order) = frame::decode::<ExecutorOrder>(content) {
        let again = frame::encode(&order).expect("an order can be encoded");
        assert!(frame::decode::<ExecutorOrder>(&again[4..]).is_ok_and(|read| read == order));
    }
}

/// Checks that the canonical bytes of a digest entry cover all its fields: an entry with another
/// path has other bytes.
fn check_canonical_bytes(entry: &FileEntry) {
    let other = FileEntry { path: format!("{}x", entry.path), ..entry.clone() };
    let moved = FileEntry { owner: format!("{}{}", entry.owner, entry.group), group: String::new(), ..entry.clone() };
    assert_ne!(entry.canonical(), other.canonical());
    assert_eq!(entry.group.is_empty(), entry.canonical() == moved.canonical());
}

/// Requests the digest of a node whose earlier digest the manager knows. The first bytes of the
/// input define both digests. The bytes after them define how the answers are changed.
fn walk(input: &[u8]) {
    let mut input = Input(input);
    let (known, is) = (node(&mut input), node(&mut input));
    let roots = DigestWalk::roots(&known);
    let (outlines, trees) = DigestTrees::summarize(is.clone(), &roots);
    let mut tampered = false;
    let outlines: BTreeMap<ServiceName, DigestSummary> =
        transmit(&outlines, &mut input, &mut tampered).unwrap_or_default();
    tampered |= outlines.len() != is.services.len();
    let Ok((mut walk, mut next)) = DigestWalk::begin(known, outlines) else {
        assert!(tampered, "the walk rejected the answers of an honest node");
        return;
    };
    for _ in 0..=16 {
        match next {
            WalkStep::Found(found) => {
                check_roots(&found);
                assert!(tampered || *found == is, "the walk found another digest than the node has");
                return;
            }
            WalkStep::Ask(questions) => {
                let Ok(answers) = trees.answer(&questions) else {
                    assert!(tampered, "the node could not answer a question of the walk");
                    return;
                };
                let answers: Vec<BranchContent> = match transmit(&answers, &mut input, &mut tampered) {
                    Some(answers) => answers,
                    None => return,
                };
                match walk.answers(answers) {
                    Ok(then) => next = then,
                    Err(_) => {
                        assert!(tampered, "the walk rejected the answers of an honest node");
                        return;
                    }
                }
            }
        }
    }
    panic!("the walk does not end");
}

/// Encodes a message, changes some of its bytes, and decodes it. None: the result can't be decoded.
fn transmit<T: serde::Serialize + serde::de::DeserializeOwned>(
    what: &T,
    input: &mut Input,
    tampered: &mut bool,
) -> Option<T> {
    let mut bytes = frame::encode(what).expect("it can be encoded");
    for _ in 0..input.byte() % 4 {
        let (at, to) = (usize::from(input.byte()) << 8 | usize::from(input.byte()), input.byte());
        let at = 4 + at % (bytes.len() - 4);
        *tampered |= bytes[at] != to;
        bytes[at] = to;
    }
    frame::decode(&bytes[4..]).ok()
}

fn check_roots(found: &NodeDigest) {
    assert_eq!(found.root, NodeDigest::root_of(&found.services));
    for service in found.services.values() {
        assert_eq!(service.root, ServiceDigest::root_of(&service.entries));
    }
}

/// A digest with at most two services, each with at most a thousand files. Most of the files are
/// equal in all digests that this function makes.
fn node(input: &mut Input) -> NodeDigest {
    let mut services = BTreeMap::new();
    for name in ["a", "b"].iter().take(usize::from(input.byte() % 3)) {
        let count = usize::from(input.byte()) * 4;
        let mut entries: Vec<FileEntry> = (0..count).map(|n| entry(n, 0)).collect();
        for _ in 0..input.byte() % 8 {
            let (at, what) = (usize::from(input.byte()) * 4, input.byte());
            match entries.get_mut(at) {
                Some(one) if what % 2 == 0 => *one = entry(at, what),
                Some(_) => drop(entries.remove(at)),
                None => entries.push(entry(1000 + at, what)),
            }
        }
        entries.sort();
        entries.dedup_by(|a, b| a.path == b.path);
        services.insert(ServiceName::from(*name), ServiceDigest::new(entries, BTreeMap::new()));
    }
    NodeDigest { root: NodeDigest::root_of(&services), services }
}

fn entry(n: usize, content: u8) -> FileEntry {
    FileEntry {
        path: format!("/etc/{n}"),
        kind: if content == 2 { FileKind::Absent } else { FileKind::File },
        mode: 0o644,
        owner: "root".into(),
        group: "root".into(),
        sha256: Some(Sha256::digest(&[content])),
        target: None,
        secret: false,
    }
}

/// Returns the bytes of the input one by one, then zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
}
