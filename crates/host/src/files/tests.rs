//! Tests the digest against a real directory.

use super::*;
use remoor_model::{Difference, DigestChange, FileKind, differences};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const KEY: [u8; 32] = [1; 32];

struct TestFiles {
    dir: tempfile::TempDir,
    manifest: NodeManifest,
}

impl TestFiles {
    /// Declares `files`, relative to a new directory.
    fn new(files: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut place = Self { dir, manifest: NodeManifest::default() };
        let files = files.iter().map(|f| format!("{}/{f}", place.dir.path().display())).collect();
        place.manifest.services = vec![ServiceManifest { name: "s".into(), files, ..Default::default() }];
        place
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }
    fn service(&mut self) -> &mut ServiceManifest {
        &mut self.manifest.services[0]
    }
    fn digest(&self) -> NodeDigest {
        digest(&self.manifest, &KEY, &mut Cache::default())
    }
    /// Paths of the digest's entries, relative to the test directory.
    fn names(&self) -> Vec<String> {
        let entries = &self.digest().services["s"].entries;
        entries.iter().map(|e| e.path.strip_prefix(self.dir.path().to_str().unwrap()).unwrap().to_owned()).collect()
    }
    fn unreadable(&self) -> Vec<String> {
        self.digest().services["s"].unreadable.values().cloned().collect()
    }
}

fn changes(before: &NodeDigest, after: &NodeDigest) -> Vec<String> {
    let name = |d: &Difference| match &d.what {
        DigestChange::Missing => "missing".to_owned(),
        DigestChange::Extra => "extra".to_owned(),
        DigestChange::Changed { attribute, .. } => attribute.clone(),
    };
    differences(before, after).iter().map(name).collect()
}

fn mkfifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[test]
fn each_attribute_counts_and_times_do_not() {
    let place = TestFiles::new(&["f", "l", "gone"]);
    place.write("f", "one");
    symlink("f", place.path("l")).unwrap();
    let mut last = place.digest();
    let mut expect = |wanted: &[&str]| {
        let now = place.digest();
        assert_eq!(changes(&last, &now), wanted);
        assert_eq!(last.root == now.root, wanted.is_empty());
        last = now;
    };
    let file = File::options().write(true).open(place.path("f")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    expect(&[]);
    fs::rename(place.path("f"), place.path("t")).unwrap();
    fs::copy(place.path("t"), place.path("f")).unwrap();
    expect(&[]); // another inode
    place.write("f", "two");
    expect(&["sha256"]);
    fs::set_permissions(place.path("f"), Permissions::from_mode(0o4711)).unwrap();
    expect(&["mode"]);
    fs::remove_file(place.path("l")).unwrap();
    symlink("elsewhere", place.path("l")).unwrap();
    expect(&["target"]);
    fs::remove_file(place.path("l")).unwrap();
    place.write("l", "a file");
    expect(&["kind"]);
    fs::remove_file(place.path("l")).unwrap();
    expect(&["missing"]);
    place.write("gone", "here");
    expect(&["extra"]);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(place.path("f"), Some(54321), None).unwrap();
        // A change of the owner removes the setuid bit.
        expect(&["mode", "owner"]);
        std::os::unix::fs::chown(place.path("f"), None, Some(54321)).unwrap();
        expect(&["group"]);
        assert!(last.services["s"].entries.iter().any(|e| e.owner == "#54321"));
    }
}

#[test]
fn a_managed_directory_holds_everything_below_it() {
    let mut place = TestFiles::new(&["conf/"]);
    place.write("conf/a", "");
    place.write("conf/sub/deep/b", "");
    place.write("conf/old.dpkg-old", "");
    place.write("conf/.b.swp", "");
    place.write("conf/cache/x", "");
    place.write("conf/sub/run.pid", "");
    place.service().exclude = vec!["*.pid".into(), "cache/".into()];
    assert_eq!(place.names(), ["/conf", "/conf/a", "/conf/sub", "/conf/sub/deep", "/conf/sub/deep/b"]);
    let before = place.digest();
    place.write("conf/sub/extra", "");
    assert_eq!(changes(&before, &place.digest()), ["extra"]);
}

#[test]
fn a_plain_directory_is_itself_only_and_a_glob_names_files() {
    let place = TestFiles::new(&["dir", "*.conf", "x/**/*.d", "sites-*/", "none/*.conf"]);
    for file in ["dir/a", "b.conf", "c.conf/inner", "x/y/z/f.d", "x/g.d", "sites-on/s/t", "other"] {
        place.write(file, "");
    }
    assert_eq!(place.names(), ["/b.conf", "/dir", "/sites-on", "/sites-on/s", "/sites-on/s/t", "/x/g.d", "/x/y/z/f.d"]);
}

#[test]
fn a_declared_missing_path_is_absent_and_a_leftover_may_be_declared() {
    let place = TestFiles::new(&["f", "d/", "h/*.x", "a.dpkg-old", "file/below"]);
    place.write("a.dpkg-old", "");
    place.write("file", "");
    let digest = place.digest();
    let kinds: Vec<FileKind> = digest.services["s"].entries.iter().map(|e| e.kind).collect();
    assert_eq!(place.names(), ["/a.dpkg-old", "/d", "/f", "/file/below"]);
    assert_eq!(kinds, [FileKind::File, FileKind::Absent, FileKind::Absent, FileKind::Absent]);
}

#[test]
fn links_and_pipes_are_listed_and_not_followed() {
    let place = TestFiles::new(&["d/"]);
    place.write("d/a", "");
    symlink("..", place.path("d/loop")).unwrap();
    symlink("/etc", place.path("d/etc")).unwrap();
    mkfifo(&place.path("d/pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(place.path("d/socket")).unwrap();
    let digest = place.digest();
    let kinds: Vec<FileKind> = digest.services["s"].entries.iter().map(|e| e.kind).collect();
    use FileKind::{Dir, Fifo, File, Socket, Symlink};
    assert_eq!(kinds, [Dir, File, Symlink, Symlink, Fifo, Socket]);
    assert!(digest.services["s"].unreadable.is_empty());
}

#[test]
fn unreadable_paths_are_reported() {
    let mut place = TestFiles::new(&["big", "d/", "loop/x", "ok"]);
    let big = File::create(place.path("big")).unwrap();
    big.set_len(MAX_FILE + 1).unwrap();
    place.write("ok", "");
    place.write("d/fine", "");
    fs::write(place.path("d").join(OsStr::from_bytes(b"\xff")), "").unwrap();
    symlink("loop", place.path("loop")).unwrap();
    place.service().files.extend(["relative".to_owned(), "/[".to_owned()]);
    let mut why = place.unreadable();
    why.retain(|why| !why.contains("symbolic links"));
    assert_eq!(why.len(), 4, "{why:?}");
    assert!(why.iter().any(|w| w == "larger than 16 MiB"), "{why:?}");
    assert!(why.iter().any(|w| w == "the name is not UTF-8"), "{why:?}");
    assert_eq!(place.unreadable().len(), 5, "the looping path too");
    assert_eq!(place.names(), ["/d", "/d/fine", "/ok"], "the readable rest is listed");
    big.set_len(MAX_FILE).unwrap();
    assert!(place.names().contains(&"/big".to_owned()));
}

/// Different file names must have different texts. If two file names had the same text, only one of
/// them would be reported.
#[test]
fn each_name_that_is_not_utf8_is_reported_separately() {
    let place = TestFiles::new(&["d/"]);
    place.write("d/\\xff", "a name of plain letters");
    for name in [&b"\xff"[..], b"\xfe", b"a\xffb", b"\xef\xbf\xbd\xff"] {
        fs::write(place.path("d").join(OsStr::from_bytes(name)), "").unwrap();
    }
    let folder = place.path("d").join(OsStr::from_bytes(b"folder\xff"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("below"), "").unwrap();
    let digest = place.digest();
    let service = &digest.services["s"];
    assert_eq!(place.names(), ["/d", "/d/\\xff"]);
    let reported: Vec<String> = service.describe_unreadable().collect();
    assert_eq!(reported.len(), 5, "{reported:?}");
    let dir = place.path("d").display().to_string();
    for name in [r"\xff", r"\xfe", r"a\xffb", r"\xef\xbf\xbd\xff", r"folder\xff"] {
        let line = format!("$'{dir}/{name}': the name is not UTF-8");
        assert!(reported.contains(&line), "{line} is not in {reported:?}");
    }
    // The file whose name has only ASCII characters is still compared.
    let before = place.digest();
    fs::remove_file(place.path("d/\\xff")).unwrap();
    assert_eq!(changes(&before, &place.digest()), ["missing"]);
}

#[test]
fn a_file_that_vanishes_between_walk_and_read_is_omitted() {
    let place = TestFiles::new(&["d/", "e"]);
    place.write("d/a", "");
    place.write("e", "");
    let expansion = expand::expand(&place.manifest.services[0], &Servers::default());
    fs::remove_file(place.path("d/a")).unwrap();
    fs::remove_file(place.path("e")).unwrap();
    let how = ReadOptions { secret: SecretRule::OwnerOnly, key: None, normalize: None };
    let (entries, unreadable) = read::entries(expansion, &how, &Names::default(), &mut Cache::default());
    let kinds: Vec<FileKind> = entries.iter().map(|e| e.kind).collect();
    assert_eq!((kinds, unreadable.len()), (vec![FileKind::Dir, FileKind::Absent], 0), "what is declared is absent");
}

/// Lines that match `normalize` do not change the hash of a file. The manager uses the same rule
/// when it hashes rendered files.
#[test]
fn normalized_lines_do_not_count() {
    let mut place = TestFiles::new(&["d/"]);
    place.service().secret = vec!["*.key".into()];
    let write = |stamp: &str, rest: &str| {
        for name in ["d/a.conf", "d/a.key"] {
            place.write(name, &format!("# generated {stamp}\nlisten {rest}\n"));
        }
    };
    write("Monday", "80");
    let raw = place.digest();
    let mut cache = Cache::without_settle_time();
    let mut manifest = place.manifest.clone();
    manifest.services[0].normalize = vec!["^# generated".into()];
    let by = |cache: &mut Cache| digest(&manifest, &KEY, cache);
    assert_eq!(digest(&place.manifest, &KEY, &mut cache), raw);
    let first = by(&mut cache);
    assert_eq!(changes(&raw, &first), ["sha256", "sha256"], "the cache does not mistake one hash for the other");
    let rule = Normalizer::new(&manifest.services[0].normalize).unwrap().unwrap();
    let plain = first.services["s"].entries.iter().find(|e| e.path.ends_with("a.conf")).unwrap();
    assert_eq!(plain.sha256, Some(rule.sha256(b"# generated by hand\nlisten 80\n")));
    assert_eq!(plain.sha256, Some(remoor_model::Sha256::digest(b"listen 80\n")));
    write("Tuesday, at length", "80");
    assert_eq!(changes(&first, &by(&mut cache)), [""; 0]);
    write("Tuesday", "81");
    assert_eq!(changes(&first, &by(&mut cache)), ["sha256", "sha256"]);
}

#[test]
fn an_invalid_rule_makes_the_service_unknown() {
    let place = TestFiles::new(&["d/", "gone"]);
    place.write("d/a", "");
    let before = place.digest();
    for (normalize, secret) in [(vec!["(".to_owned()], vec![]), (vec![], vec!["[".to_owned()])] {
        let mut manifest = place.manifest.clone();
        (manifest.services[0].normalize, manifest.services[0].secret) = (normalize, secret);
        let digest = digest(&manifest, &KEY, &mut Cache::default());
        assert_eq!(changes(&before, &digest), [""; 0], "unknown, not missing");
        assert_eq!(digest.services["s"].describe_unreadable().count(), 1);
    }
}

#[test]
fn a_tree_covers_everything_below_its_paths_and_hides_private_content() {
    let place = TestFiles::new(&[]);
    place.write("d[1]/a", "hunter2");
    place.write("d[1]/b", "public");
    place.write("d[1]/skip.log", "");
    place.write("d1/a", "");
    fs::set_permissions(place.path("d[1]/a"), Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(place.path("d[1]/b"), Permissions::from_mode(0o640)).unwrap();
    let of = |key| {
        let (paths, exclude) = (vec![place.path("d[1]"), place.path("none")], vec!["*.log".to_owned()]);
        tree_digest(&TreeRequest { paths, exclude, key, ..TreeRequest::default() }).unwrap()
    };
    let (none, one, two) = (of(None), of(Some([1; 32])), of(Some([2; 32])));
    let kinds: Vec<FileKind> = none.entries.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [FileKind::Dir, FileKind::File, FileKind::File, FileKind::Absent]);
    let plain = remoor_model::Sha256::digest(b"hunter2");
    let hashes = [&none, &one, &two].map(|t| t.entries[1].sha256);
    assert!(hashes[0].is_none() && hashes[1] != hashes[2] && !hashes.contains(&Some(plain)));
    assert!(none.entries[1].secret && !none.entries[2].secret);
    assert_eq!(none.entries[2].sha256, Some(remoor_model::Sha256::digest(b"public")));
    let wrong = |exclude: &str, normalize: &str| {
        let (exclude, normalize) = (vec![exclude.to_owned()], vec![normalize.to_owned()]);
        tree_digest(&TreeRequest { exclude, normalize, ..TreeRequest::default() }).unwrap_err().to_string()
    };
    assert!(wrong("[", "x").starts_with("`[` is not a valid glob"));
    assert!(wrong("x", ".*").ends_with("drops every line"));
}

#[test]
fn an_unchanged_file_is_not_read_again_and_a_changed_one_is() {
    let place = TestFiles::new(&["d/"]);
    place.write("d/a", "one");
    place.write("d/b", "two");
    let mut cache = Cache::without_settle_time();
    let first = digest(&place.manifest, &KEY, &mut cache);
    assert_eq!(cache.reads(), 2);
    assert_eq!(digest(&place.manifest, &KEY, &mut cache), first);
    assert_eq!(cache.reads(), 2);

    // The file keeps its size, and its modification time is reset. Only the change time shows the
    // write.
    let path = place.path("d/a");
    let before = fs::metadata(&path).unwrap();
    let changed = |meta: &fs::Metadata| {
        use std::os::unix::fs::MetadataExt;
        (meta.ctime(), meta.ctime_nsec())
    };
    loop {
        fs::write(&path, "uno").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(before.modified().unwrap()).unwrap();
        if changed(&fs::metadata(&path).unwrap()) != changed(&before) {
            break;
        }
    }
    let second = digest(&place.manifest, &KEY, &mut cache);
    assert_eq!(cache.reads(), 3);
    assert_eq!(changes(&first, &second), ["sha256"]);
    assert_eq!(second, place.digest());
}

#[test]
fn secrets_are_hashed_with_the_key() {
    let mut place = TestFiles::new(&["d/"]);
    place.write("d/site.key", "hunter2");
    place.write("d/site.crt", "public");
    place.service().secret = vec!["*.key".into()];
    let by = |key: u8| digest(&place.manifest, &[key; 32], &mut Cache::default());
    let (one, two) = (by(1), by(2));
    let found = differences(&one, &two);
    assert_eq!(found.len(), 1);
    assert!(found[0].to_string().ends_with("site.key content differs"), "{}", found[0]);
    let entry = one.services["s"].entries.iter().find(|e| e.secret).unwrap();
    assert_ne!(entry.sha256, Some(remoor_model::Sha256::digest(b"hunter2")));
}
