//! Digests of real directories, stored and compared.

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.path("etc")).unwrap();
        place
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn write(&self, name: &str, content: &str, mode: u32) {
        fs::write(self.path(name), content).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }
    fn request(&self) -> DigestRequest {
        DigestRequest { paths: vec![self.path("etc")], ..DigestRequest::default() }
    }
    /// Makes a digest, stores it in a file and reads it again.
    fn store_and_read(&self, request: &DigestRequest) -> StoredDigest {
        let taken = StoredDigest::compute(request).unwrap();
        fs::write(self.path("kept.json"), serde_json::to_vec(&taken).unwrap()).unwrap();
        let read = StoredDigest::read(&self.path("kept.json")).unwrap();
        assert_eq!(read, taken);
        read
    }
    fn compare_now(&self, before: &StoredDigest, paths: &[PathBuf], key: Option<PathBuf>) -> DigestComparison {
        compare(before, &StoredDigest::compute(&before.repeat_request(paths, key).unwrap()).unwrap())
    }
    /// Describes the differences, for example `added etc/a` or `changed etc/b mode 0644 -> 0600`.
    fn describe_changes(&self, comparison: &DigestComparison) -> Vec<String> {
        let prefix = format!("{}/", self.dir.path().display());
        let line = |c: &PathChange| {
            let what = serde_json::to_value(c.change).unwrap();
            let attributes: Vec<String> = c.attributes.iter().map(|a| format!(" {}", a.describe())).collect();
            format!("{} {}{}", what.as_str().unwrap(), c.path.replace(&prefix, ""), attributes.concat())
        };
        comparison.differences.iter().map(line).collect()
    }
}

#[test]
fn each_path_is_unchanged_added_missing_or_changed() {
    let place = Place::new();
    for name in ["same", "gone", "edited", "open", "late"] {
        place.write(&format!("etc/{name}"), name, 0o644);
    }
    symlink("same", place.path("etc/link")).unwrap();
    let before = place.store_and_read(&place.request());
    let quiet = place.compare_now(&before, &[], None);
    assert_eq!((quiet.unchanged, quiet.differences.len(), quiet.unclear.len()), (7, 0, 0));
    assert_eq!((quiet.before, quiet.root), (before.root, before.root));
    fs::remove_file(place.path("etc/gone")).unwrap();
    place.write("etc/new", "", 0o644);
    place.write("etc/edited", "other", 0o644);
    place.write("etc/open", "open", 0o666);
    fs::remove_file(place.path("etc/link")).unwrap();
    symlink("late", place.path("etc/link")).unwrap();
    let after = place.compare_now(&before, &[], None);
    let hash = |text: &str| Sha256::digest(text.as_bytes()).short_hex();
    let told = [
        format!("changed etc/edited sha256 {}.. -> {}..", hash("edited"), hash("other")),
        "missing etc/gone".to_owned(),
        "changed etc/link target same -> late".to_owned(),
        "added etc/new".to_owned(),
        "changed etc/open mode 0644 -> 0666".to_owned(),
    ];
    assert_eq!(place.describe_changes(&after), told);
    assert_eq!((after.unchanged, after.unclear.len()), (3, 0));
    // The comparison is limited to one of the paths, and to a path that the digest does not
    // mention.
    let part = place.compare_now(&before, &[place.path("etc/open"), place.path("etc/../etc/gone")], None);
    assert_eq!((place.describe_changes(&part), part.unchanged), (vec!["missing etc/gone".into(), told[4].clone()], 0));
    assert!(matches!(before.repeat_request(&[place.path("elsewhere")], None), Err(DigestError::Outside(..))));
    // The whole directory is removed.
    fs::remove_dir_all(place.path("etc")).unwrap();
    let all = place.compare_now(&before, &[], None);
    assert!(all.differences.iter().all(|c| c.change == PathChangeKind::Missing) && all.differences.len() == 7);
}

#[test]
fn a_content_that_only_its_owner_may_read_is_never_hashed_plainly_and_never_called_unchanged() {
    let place = Place::new();
    place.write("etc/key", "hunter2", 0o600);
    place.write("etc/plain", "public", 0o644);
    let plain = Sha256::digest(b"hunter2").to_string();
    let bare = place.store_and_read(&place.request());
    assert_eq!(bare.keyless(), 1);
    let same = place.compare_now(&bare, &[], None);
    assert_eq!((same.unchanged, same.unclear.len()), (2, 1));
    assert!(same.unclear[0].ends_with("etc/key: its content was not compared: only its owner may read it"));

    let key = place.path("key");
    let keyed = DigestRequest { key: Some(key.clone()), ..place.request() };
    let before = place.store_and_read(&keyed);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let json = serde_json::to_string(&before).unwrap();
    assert!(!json.contains(&plain) && !json.contains(fs::read_to_string(&key).unwrap().trim()));
    assert!(place.compare_now(&before, &[], Some(key.clone())).unclear.is_empty());
    place.write("etc/key", "hunter3", 0o600);
    assert_eq!(
        place.describe_changes(&place.compare_now(&before, &[], Some(key.clone()))),
        ["changed etc/key content"]
    );
    // Without the same key, the contents of secret files can't be compared. Their modes are
    // compared.
    let other = place.path("other");
    assert!(matches!(before.repeat_request(&[], Some(other.clone())), Err(DigestError::Key { .. })) && !other.exists());
    StoredDigest::compute(&DigestRequest { key: Some(other.clone()), ..place.request() }).unwrap();
    for (other, lines) in [(Some(other), 2), (None, 1)] {
        let after = place.compare_now(&before, &[], other);
        assert_eq!((place.describe_changes(&after), after.unclear.len()), (vec![], lines));
        assert_eq!(after.unclear[0] == "the key differs from that of the earlier digest", lines == 2);
    }
    place.write("etc/key", "hunter2", 0o644);
    let after = place.compare_now(&before, &[], Some(key.clone()));
    assert_eq!(
        (place.describe_changes(&after), after.unclear.len()),
        (vec!["changed etc/key mode 0600 -> 0644".to_owned()], 0)
    );

    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    assert!(StoredDigest::compute(&keyed).unwrap_err().to_string().contains("mode 0640"));
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    for wrong in ["", "00", &"0".repeat(66), &"g".repeat(64)] {
        fs::write(&key, wrong).unwrap();
        assert!(matches!(StoredDigest::compute(&keyed), Err(DigestError::Key { .. })), "{wrong}");
    }
}

#[test]
fn a_path_that_is_named_is_not_left_out_in_silence() {
    let place = Place::new();
    place.write("etc/a", "a", 0o644);
    let excluded =
        |glob: &str| StoredDigest::compute(&DigestRequest { exclude: vec![glob.to_owned()], ..place.request() });
    assert!(matches!(excluded("etc"), Err(DigestError::Tree(TreeError::Excluded(path))) if path == place.path("etc")));
    assert_eq!(excluded("a").unwrap().entries.len(), 1);
}

#[test]
fn what_can_not_be_read_at_either_time_is_unclear() {
    let place = Place::new();
    place.write("etc/a", "a", 0o644);
    place.write("etc/big", "", 0o644);
    let big = |size| fs::File::options().write(true).open(place.path("etc/big")).unwrap().set_len(size).unwrap();
    let small = place.store_and_read(&place.request());
    big(remoor_host::files::MAX_FILE + 1);
    let large = place.store_and_read(&place.request());
    assert_eq!(large.unclear().len(), 1);
    for (before, why) in [
        (&small, "larger than 16 MiB"),
        (&large, "could not be read at the time of the earlier digest: larger than 16 MiB"),
    ] {
        let after = place.compare_now(before, &[], None);
        assert_eq!(place.describe_changes(&after), [""; 0]);
        assert!(after.unclear.iter().any(|line| line.ends_with(why)), "{:?}", after.unclear);
        big(0);
    }
}

#[test]
fn pipes_sockets_loops_and_odd_names_end() {
    let place = Place::new();
    let etc = place.path("etc");
    rustix::fs::mknodat(rustix::fs::CWD, etc.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(etc.join("socket")).unwrap();
    symlink("loop", etc.join("loop")).unwrap();
    symlink("/dev/zero", etc.join("zero")).unwrap();
    place.write("etc/[x]*", "a glob by name only", 0o644);
    let mut request = place.request();
    request.paths.extend(["pipe", "loop", "loop/below", "[x]*", "none"].map(|name| etc.join(name)));
    request.paths.push("/dev/zero".into());
    let taken = StoredDigest::compute(&request).unwrap();
    let kinds: Vec<FileKind> = taken.entries.iter().map(|e| e.kind).collect();
    use FileKind::*;
    assert_eq!(kinds, [CharDevice, Dir, File, Symlink, Absent, Fifo, Socket, Symlink]);
    let unclear = taken.unclear();
    assert_eq!((unclear.len(), taken.absent().count()), (1, 1), "{unclear:?}");
    assert!(unclear[0].contains("loop/below: Too many levels"), "{unclear:?}");
}

#[test]
fn a_file_that_is_no_digest_is_refused_with_the_reason() {
    let place = Place::new();
    place.write("etc/a", "a", 0o644);
    let taken = place.store_and_read(&place.request());
    let path = place.path("kept.json");
    let why = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = serde_json::to_value(&taken).unwrap();
        change(&mut value);
        fs::write(&path, value.to_string()).unwrap();
        StoredDigest::read(&path).unwrap_err().to_string()
    };
    assert!(why(&|v| v["entries"][1]["mode"] = 0o600.into()).ends_with("so it was modified"));
    assert!(why(&|v| v["entries"].as_array_mut().unwrap().reverse()).ends_with("not in order"));
    assert!(why(&|v| v["version"] = 3.into()).contains("version 3, this program knows 1: create it again"));
    assert!(
        why(&|v| {
            v["version"] = 2.into();
            v.as_object_mut().unwrap().remove("seal");
        })
        .contains("version 2, this program knows 1")
    );
    // The list has all fields that say which paths are covered and how they were hashed.
    let changes: [&dyn Fn(&mut serde_json::Value); 9] = [
        &|v| v["paths"] = serde_json::json!([]),
        &|v| v["paths"][0] = "/".into(),
        &|v| v["exclude"] = serde_json::json!(["*"]),
        &|v| v["normalize"] = serde_json::json!(["^a"]),
        &|v| v["key"] = "0".into(),
        &|v| v["unreadable"] = serde_json::json!({"/etc": "x"}),
        &|v| v["unreadable_more"] = 1.into(),
        &|v| v["entries"][1]["secret"] = true.into(),
        &|v| v["seal"] = "0".repeat(64).into(),
    ];
    for change in changes {
        assert!(why(change).ends_with("its seal does not match its content, so it was modified"), "{}", why(change));
    }
    assert!(why(&|v| v["more"] = 1.into()).contains("does not match the output of -o json"));
    assert!(why(&|v| v["entries"] = 1.into()).contains("is not a valid digest"));
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(StoredDigest::read(&path), Err(DigestError::Read(..))), "a pipe is not waited for");
}
