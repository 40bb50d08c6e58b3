//! Tests of digests, their roots and their differences, also with arbitrary entries.

use super::*;
use proptest::prelude::*;

pub fn entry(path: &str) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        kind: FileKind::File,
        mode: 0o644,
        owner: "root".to_owned(),
        group: "root".to_owned(),
        sha256: Some(Sha256::digest(b"x")),
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
            (name.into(), ServiceDigest::new(entries, BTreeMap::new()))
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
            sha256: (sha256 > 0).then(|| Sha256::digest(&[sha256])),
            target: (target > 0).then(|| target.to_string()),
            secret: false,
        },
    )
}

fn arbitrary_node() -> impl Strategy<Value = NodeDigest> {
    let entries = || prop::collection::vec(arbitrary_entry(), 0..5);
    (entries(), entries()).prop_map(|(a, b)| node(vec![("a", a), ("b", b)]))
}

/// Two digests. The second one is independent, equal to the first, or the first with one changed
/// attribute of one file entry.
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
            5 => altered[victim].sha256 = Some(Sha256::digest(b"other")),
            6 => altered[victim].target = Some("other".to_owned()),
            _ => drop(altered.remove(victim)),
        }
        (node(vec![("s", entries)]), node(vec![("s", altered)]))
    })
}

#[test]
fn a_partial_record_keeps_the_other_services() {
    let at = |path: &str, text: &str| FileEntry { sha256: Some(Sha256::digest(text.as_bytes())), ..entry(path) };
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
    // The result differs from the found state only in service b, whose change the job about service
    // a does not accept.
    let left: Vec<String> = differences(&part.digest(), &found.digest()).into_iter().map(|d| d.path).collect();
    assert_eq!(left, ["/b"]);
    assert_eq!(found.clone().of_part(&[], Some(&before)), found, "a job about all");
    assert_eq!(found.clone().of_part(&["a".into()], None), found, "nothing was recorded before");
    // A record without `rendered` does not know the origin of its files. So the origin of service
    // b's files stays unknown, and the result has no `rendered`.
    let old = Record { rendered: None, ..before };
    assert_eq!(found.of_part(&["a".into()], Some(&old)).rendered, None);
}

#[test]
fn a_full_job_does_not_accept_the_state_of_monitored_services() {
    let at = |path: &str, text: &str| FileEntry { sha256: Some(Sha256::digest(text.as_bytes())), ..entry(path) };
    let record = |services: &[(&'static str, &str)], rendered: Option<&[&str]>| {
        let digest = node(services.iter().map(|(name, text)| (*name, vec![at(&format!("/{name}"), text)])).collect());
        let rendered = rendered.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
        Record { root: digest.root, services: digest.services, rendered, ..Record::default() }
    };
    let watched = |name: &ServiceName| ["clock", "new"].contains(&name.as_str());
    let before = record(&[("app", "1"), ("clock", "1"), ("gone", "1")], None);
    let found = record(&[("app", "2"), ("clock", "edited"), ("new", "1")], Some(&["/app", "/clock"]));
    let kept = found.clone().except_monitored(watched, Some(&before));
    assert_eq!(kept, record(&[("app", "2"), ("clock", "1"), ("new", "1")], Some(&["/app"])), "the root too");
    let left: Vec<String> = differences(&kept.digest(), &found.digest()).into_iter().map(|d| d.path).collect();
    assert_eq!(left, ["/clock"]);
    assert_eq!(found.clone().except_monitored(watched, None), found, "nothing was recorded before");
    assert_eq!(found.clone().except_monitored(|_| false, Some(&before)), found, "all is provisioned");
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
        entries.sort_by_key(|entry| Sha256::digest(format!("{seed}{}", entry.path).as_bytes()));
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

/// Roots are stored and sent, so they may change only together with `ENTRY_VERSION`.
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
    other[0].sha256 = Some(Sha256::digest(b"y"));
    other[1].mode = 0o4600;
    other[1].secret = true;
    other[1].sha256 = Some(Sha256::digest(b"z"));
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

fn paths_of(expected: &NodeDigest, found: &NodeDigest) -> Vec<String> {
    differences(expected, found).into_iter().map(|d| d.path).collect()
}

fn unreadable_map(paths: impl IntoIterator<Item = String>) -> BTreeMap<String, String> {
    paths.into_iter().map(|path| (path, "permission denied".to_owned())).collect()
}

#[test]
fn only_paths_that_were_read_can_differ() {
    let all = ["/d-x", "/d/a", "/dd", "/e/f/g", "/e/x", "/x"];
    let expected = node(vec![("s", all.map(entry).to_vec())]);
    let mut found = node(vec![("s", vec![])]);
    let mut left = |bad: &[&str], read: Vec<FileEntry>| {
        let service = ServiceDigest::new(read, unreadable_map(bad.iter().map(|path| (*path).to_owned())));
        found.services.insert("s".into(), service);
        paths_of(&expected, &found)
    };
    assert_eq!(left(&["/d"], vec![]), ["/d-x", "/dd", "/e/f/g", "/e/x", "/x"]);
    assert_eq!(left(&["/d/", "/e", "/e/f", "/x"], vec![]), ["/d-x", "/dd"]);
    assert_eq!(left(&["/e/f/g/h", "/dd/a"], vec![]), all);
    assert_eq!(left(&["/"], vec![]), [""; 0]);
    let edited = FileEntry { mode: 0o600, ..entry("/e/x") };
    assert_eq!(left(&["/"], vec![edited, entry("/e/new")]), ["/e/new", "/e/x"]);
}

/// A comparison of every path with every unreadable one would take 10^10 steps and block the
/// manager's loop.
#[test]
fn many_unreadable_paths_are_compared_quickly_with_many_entries() {
    const COUNT: usize = 100_000;
    let expected = node(vec![("s", (0..COUNT).map(|i| entry(&format!("/d/{i}/f"))).collect())]);
    let mut found = node(vec![("s", vec![])]);
    let service = found.services.get_mut("s").unwrap();
    service.unreadable = unreadable_map((1..COUNT).map(|i| format!("/d/{i}")));
    assert_eq!(paths_of(&expected, &found), ["/d/0/f"]);
}

#[test]
fn unreadable_paths_are_limited_and_omitted_ones_are_not_reported_missing() {
    let lines = |count: usize| unreadable_map((0..count).map(|i| format!("/d/{i:04}")));
    let whole = ServiceDigest::new(vec![], lines(UNREADABLE_MAX));
    assert_eq!(
        (whole.unreadable.len(), whole.unreadable_more, whole.describe_unreadable().count()),
        (UNREADABLE_MAX, 0, 200)
    );
    let cut = ServiceDigest::new(vec![FileEntry { mode: 0o600, ..entry("/b") }], lines(UNREADABLE_MAX + 41));
    assert_eq!((cut.unreadable.len(), cut.unreadable_more), (UNREADABLE_MAX, 41));
    assert_eq!(cut.describe_unreadable().last().as_deref(), Some("41 more can't be read"));
    assert!(cut.unreadable.contains_key("/d/0199") && !cut.unreadable.contains_key("/d/0200"), "the first ones");
    let expected = node(vec![("s", vec![entry("/a"), entry("/b"), entry("/d/0220")])]);
    let mut found = node(vec![]);
    found.services.insert("s".into(), cut.clone());
    assert_eq!(paths_of(&expected, &found), ["/b"], "whatever is not there may be among the rest");
    let bytes = rmp_serde::to_vec_named(&cut).unwrap();
    assert_eq!(rmp_serde::from_slice::<ServiceDigest>(&bytes).unwrap(), cut);
}
