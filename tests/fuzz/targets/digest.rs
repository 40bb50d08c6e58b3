//! What comes over the wire: frames that are garbage, answers of a node as well as orders to it, and a walk whose answers were
//! tampered with. Whatever a walk finds fits together, and where nobody tampered it is what is there.

use remoor_exec::wire::{ExecutorOrder, Reply, frame};
use remoor_model::{
    BranchContent, DigestSummary, DigestTrees, DigestWalk, FileEntry, FileKind, NodeDigest, ServiceDigest, ServiceName,
    Sha256, WalkStep,
};
use std::collections::BTreeMap;

pub fn target(bytes: &[u8]) -> bool {
    let Some((kind, rest)) = bytes.split_first() else { return false };
    if kind % 2 == 0 {
        frames(rest)
    } else {
        walk(rest)
    }
    true
}

/// A stream as it comes from a node that may send anything.
fn frames(mut input: &[u8]) {
    let mut walk: Option<DigestWalk> = None;
    while let Ok(Some(content)) = frame::read(&mut input) {
        ordered(&content);
        let told = match frame::decode::<Reply>(&content) {
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
                exam.digest.services.values().flat_map(|s| &s.entries).for_each(canonical);
                continue;
            }
            Ok(_) | Err(_) => continue,
        };
        match told {
            Ok(WalkStep::Found(found)) => fits(&found),
            Ok(WalkStep::Ask(_)) => {}
            Err(_) => walk = None,
        }
    }
}

/// What an executor takes for an order is one that could have been sent: written again it is read as the same.
fn ordered(content: &[u8]) {
    if let Ok(order) = frame::decode::<ExecutorOrder>(content) {
        let again = frame::encode(&order).expect("an order is a frame");
        assert!(frame::decode::<ExecutorOrder>(&again[4..]).is_ok_and(|read| read == order));
    }
}

/// The bytes of an entry say all that counts of it: one of another path has others.
fn canonical(entry: &FileEntry) {
    let other = FileEntry { path: format!("{}x", entry.path), ..entry.clone() };
    let moved = FileEntry { owner: format!("{}{}", entry.owner, entry.group), group: String::new(), ..entry.clone() };
    assert_ne!(entry.canonical(), other.canonical());
    assert_eq!(entry.group.is_empty(), entry.canonical() == moved.canonical());
}

/// Two digests from the first bytes, and what is changed of the answers from those behind them.
fn walk(input: &[u8]) {
    let mut input = Input(input);
    let (known, is) = (node(&mut input), node(&mut input));
    let roots = DigestWalk::roots(&known);
    let (outlines, trees) = DigestTrees::summarize(is.clone(), &roots);
    let mut tampered = false;
    let outlines: BTreeMap<ServiceName, DigestSummary> = sent(&outlines, &mut input, &mut tampered).unwrap_or_default();
    tampered |= outlines.len() != is.services.len();
    let Ok((mut walk, mut next)) = DigestWalk::begin(known, outlines) else {
        assert!(tampered, "an honest node leads nobody astray");
        return;
    };
    for _ in 0..=16 {
        match next {
            WalkStep::Found(found) => {
                fits(&found);
                assert!(tampered || *found == is, "what is found is what is there");
                return;
            }
            WalkStep::Ask(questions) => {
                let Ok(answers) = trees.answer(&questions) else {
                    assert!(tampered, "what a walk asks has an answer");
                    return;
                };
                let answers: Vec<BranchContent> = match sent(&answers, &mut input, &mut tampered) {
                    Some(answers) => answers,
                    None => return,
                };
                match walk.answers(answers) {
                    Ok(then) => next = then,
                    Err(_) => {
                        assert!(tampered, "an honest node leads nobody astray");
                        return;
                    }
                }
            }
        }
    }
    panic!("a walk that does not end");
}

/// As it arrives; some of its bytes may be others. None: it is no answer any more.
fn sent<T: serde::Serialize + serde::de::DeserializeOwned>(
    what: &T,
    input: &mut Input,
    tampered: &mut bool,
) -> Option<T> {
    let mut bytes = frame::encode(what).expect("it is a frame");
    for _ in 0..input.byte() % 4 {
        let (at, to) = (usize::from(input.byte()) << 8 | usize::from(input.byte()), input.byte());
        let at = 4 + at % (bytes.len() - 4);
        *tampered |= bytes[at] != to;
        bytes[at] = to;
    }
    frame::decode(&bytes[4..]).ok()
}

fn fits(found: &NodeDigest) {
    assert_eq!(found.root, NodeDigest::root_of(&found.services));
    for service in found.services.values() {
        assert_eq!(service.root, ServiceDigest::root_of(&service.entries));
    }
}

/// Up to two services with up to a thousand files, most of them alike in every digest.
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

/// Bytes one after the other, then zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
}
