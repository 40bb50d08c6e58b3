//! Tests of walks with the answers of real trees: the result equals the complete digest, and the
//! cost is limited.

use super::super::digest_summary::{DigestTrees, FLAT_MAX};
use super::*;
use crate::differences;
use proptest::prelude::*;

fn entry(path: &str) -> FileEntry {
    FileEntry { sha256: Some(Sha256::digest(path.as_bytes())), ..crate::digest::tests::entry(path) }
}

fn service(entries: Vec<FileEntry>) -> ServiceDigest {
    ServiceDigest::new(entries, BTreeMap::new())
}

fn node(services: Vec<(&str, ServiceDigest)>) -> NodeDigest {
    let services: BTreeMap<ServiceName, ServiceDigest> = services.into_iter().map(|(n, s)| (n.into(), s)).collect();
    NodeDigest { root: NodeDigest::root_of(&services), services }
}

fn files(count: usize) -> Vec<FileEntry> {
    (0..count).map(|n| entry(&format!("/etc/service/conf.d/{:03}/{n:05}.conf", n % 200))).collect()
}

/// The result of a walk, and its cost in both directions. The bytes are those of MessagePack with
/// field names.
struct WalkResult {
    found: NodeDigest,
    round_trips: usize,
    bytes: usize,
    entries: usize,
}

fn size(value: &impl serde::Serialize) -> usize {
    rmp_serde::to_vec_named(value).unwrap().len()
}

fn run_walk(known: &NodeDigest, is: &NodeDigest) -> WalkResult {
    let roots = DigestWalk::roots(known);
    let (outlines, trees) = DigestTrees::summarize(is.clone(), &roots);
    let mut cost = (1, size(&roots) + size(&outlines), 0);
    let count = |below: &BranchContent| match below {
        BranchContent::Entries(entries) => entries.len(),
        BranchContent::Branches(_) => 0,
    };
    cost.2 += outlines.values().filter_map(|o| o.content.as_ref()).map(count).sum::<usize>();
    let (mut walk, mut next) = DigestWalk::begin(known.clone(), outlines).unwrap();
    loop {
        match next {
            WalkStep::Found(found) => {
                return WalkResult { found: *found, round_trips: cost.0, bytes: cost.1, entries: cost.2 };
            }
            WalkStep::Ask(questions) => {
                let answers = trees.answer(&questions).unwrap();
                cost = (
                    cost.0 + 1,
                    cost.1 + size(&questions) + size(&answers),
                    cost.2 + answers.iter().map(count).sum::<usize>(),
                );
                assert!(cost.0 < 12, "it ends");
                next = walk.answers(answers).unwrap();
            }
        }
    }
}

#[test]
fn one_changed_file_of_20_000_is_found_in_4_round_trips_and_4_kb() {
    let known = node(vec![("app", service(files(20_000)))]);
    let mut worst = (0, 0);
    for victim in (0..20_000).step_by(1_999) {
        for how in 0..3 {
            let mut entries = files(20_000);
            match how {
                0 => entries[victim].sha256 = Some(Sha256::digest(b"edited")),
                1 => drop(entries.remove(victim)),
                _ => entries.push(entry(&format!("/etc/service/conf.d/new{victim}"))),
            }
            let is = node(vec![("app", service(entries))]);
            let walked = run_walk(&known, &is);
            assert_eq!(differences(&known, &walked.found).len(), 1);
            assert_eq!(walked.found, is);
            worst = (worst.0.max(walked.round_trips), worst.1.max(walked.bytes));
        }
    }
    assert!(worst.0 <= 4 && worst.1 <= 4_000, "{} round trips, {} bytes", worst.0, worst.1);
    let same = run_walk(&known, &known);
    assert_eq!((same.round_trips, same.entries, &same.found), (1, 0, &known));
    assert!(same.bytes < 250, "{}", same.bytes);
}

#[test]
fn small_services_and_large_differences_are_sent_completely() {
    let known = node(vec![("a", service(files(FLAT_MAX))), ("b", service(files(5)))]);
    let mut edited = files(FLAT_MAX);
    edited[17].mode = 0o600;
    let is = node(vec![("a", service(edited)), ("b", service(files(5)))]);
    let flat = run_walk(&known, &is);
    assert_eq!((flat.round_trips, flat.entries, flat.found), (1, FLAT_MAX, is), "of the one that differs");
    let known = node(vec![("a", service(files(20_000)))]);
    let others = files(20_000).into_iter().map(|e| FileEntry { owner: "app".to_owned(), ..e }).collect();
    let is = node(vec![("a", service(others))]);
    let all = run_walk(&known, &is);
    assert_eq!((all.entries, all.found), (20_000, is.clone()), "each once");
    assert!(all.round_trips <= 5);
    let nothing = node(vec![]);
    for (known, is) in [(&nothing, &is), (&is, &nothing), (&nothing, &nothing)] {
        assert_eq!(&run_walk(known, is).found, is);
    }
}

#[test]
fn inconsistent_answers_are_rejected() {
    let known = node(vec![("app", service(files(1_000)))]);
    let mut edited = files(1_000);
    edited[3].mode = 0o600;
    let is = node(vec![("app", service(edited))]);
    let astray = |change: &dyn Fn(&mut Vec<BranchContent>)| {
        let (outlines, trees) = DigestTrees::summarize(is.clone(), &DigestWalk::roots(&known));
        let (mut walk, mut next) = DigestWalk::begin(known.clone(), outlines).unwrap();
        loop {
            let WalkStep::Ask(questions) = next else { return false };
            let mut answers = trees.answer(&questions).unwrap();
            change(&mut answers);
            next = match walk.answers(answers) {
                Ok(next) => next,
                Err(InconsistentAnswers(service)) => return service == ServiceName::from("app"),
            }
        }
    };
    let entries = |change: &'static dyn Fn(&mut Vec<FileEntry>)| {
        move |answers: &mut Vec<BranchContent>| {
            if let Some(BranchContent::Entries(entries)) = answers.first_mut() {
                change(entries);
            }
        }
    };
    assert!(!astray(&|_| ()), "left alone it arrives");
    assert!(astray(&entries(&|e| e[0].mode = 0)), "files changed between");
    assert!(astray(&entries(&|e| drop(e.pop()))));
    assert!(astray(&entries(&|e| e.push(entry("/elsewhere")))));
    assert!(astray(&entries(&|e| e.push(e[0].clone()))));
    assert!(astray(&|answers| answers.clear()));
    assert!(astray(&|answers| answers.push(BranchContent::Entries(Vec::new()))));
    for text in ["", "zz", &"f".repeat(255), &"é".repeat(128), &"0".repeat(256)] {
        assert!(astray(&|answers| answers[0] = BranchContent::Branches(text.to_owned())), "{text}");
    }
    // A node that always reports further branches is finally asked for all its file entries.
    assert!(astray(&|answers| answers.iter_mut().for_each(|a| *a = BranchContent::Branches("12".repeat(128)))));
    let mut outlines = DigestTrees::summarize(is.clone(), &DigestWalk::roots(&known)).0;
    outlines.values_mut().for_each(|o| o.content = None);
    assert!(DigestWalk::begin(known.clone(), outlines).is_err(), "another root and nothing below it");
    let (_, trees) = DigestTrees::summarize(is.clone(), &BTreeMap::new());
    let ask = |service: &str, branch: &str, times| {
        let question = BranchQuestion { service: service.into(), branch: branch.to_owned(), whole: false };
        trees.answer(&vec![question; times]).is_ok()
    };
    assert!(ask("app", &"f".repeat(64), QUESTIONS_MAX));
    assert!(!ask("app", &"f".repeat(65), 1) && !ask("app", "x", 1) && !ask("other", "", 1));
    assert!(!ask("app", "0", QUESTIONS_MAX + 1));
}

/// File entries of two services, and a copy in which some file entries were changed, removed or
/// added.
fn pair() -> impl Strategy<Value = (NodeDigest, NodeDigest)> {
    let change = (any::<prop::sample::Index>(), 0u8..4);
    (0usize..700, 0usize..40, prop::collection::vec(change, 0..40)).prop_map(|(a, b, changes)| {
        let mut is = [files(a), files(b)];
        for (at, how) in changes {
            let entries = &mut is[usize::from(how % 2 == 0 && b > 0)];
            if entries.is_empty() {
                continue;
            }
            let at = at.index(entries.len());
            match how {
                0 => entries[at].sha256 = None,
                1 => drop(entries.remove(at)),
                2 => entries[at].group.push('x'),
                _ => entries[at].path.push_str(".moved"),
            }
        }
        let [one, two] = is;
        let known = node(vec![("a", service(files(a))), ("b", service(files(b)))]);
        (known, node(vec![("a", service(one)), ("b", service(two)), ("c", service(files(a / 9)))]))
    })
}

proptest! {
    #[test]
    fn a_walk_finds_the_same_digest_as_the_complete_lists((known, is) in pair()) {
        let walked = run_walk(&known, &is);
        prop_assert_eq!(differences(&known, &walked.found), differences(&known, &is));
        prop_assert_eq!(&walked.found, &is);
    }
}
