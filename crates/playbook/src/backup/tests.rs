//! Tests what a backup keeps, and what undo restores.

use super::*;
use crate::os::tree_removal;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn a_manifest_names_any_path_and_older_ones_are_read() {
    let old = r#"[{"path": "/etc/a", "was": "link", "target": "b"}, {"path": "/etc/c", "was": "parked", "to": "/p"},
        {"path": "/etc/f", "was": "file", "copy": "files/000000", "mode": 420, "uid": 0, "gid": 0}]"#;
    let old: Vec<BackupEntry> = serde_json::from_str(old).unwrap();
    assert_eq!(old[0], BackupEntry { path: "/etc/a".into(), was: Was::Link { target: "b".into() } });
    assert_eq!(old[1].was, Was::Parked { to: "/p".into() });
    assert_eq!(serde_json::to_value(&old[1]).unwrap()["path"], "/etc/c", "text stays text");
    let odd = PathBuf::from(OsStr::from_bytes(b"/a\xff\n"));
    for was in [Was::Link { target: odd.clone() }, Was::Parked { to: odd.clone() }, Was::Absent] {
        let entry = BackupEntry { path: odd.clone(), was };
        assert_eq!(serde_json::from_slice::<BackupEntry>(&serde_json::to_vec(&entry).unwrap()).unwrap(), entry);
    }
}

/// Keeps the file `app/x` in a backup. Then the application, which owns `app`, replaces `app` by a
/// link to `etc`.
fn with_swapped_link(swap: impl FnOnce(&Path), restore: impl FnOnce(&Path, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().canonicalize().unwrap();
    for name in ["app/x", "etc"] {
        std::fs::create_dir_all(d.join(name)).unwrap();
    }
    std::fs::write(d.join("app/x/shadow"), "the app's").unwrap();
    std::fs::write(d.join("etc/shadow"), "root's").unwrap();
    std::os::unix::fs::chown(d.join("app"), Some(54321), Some(54321)).unwrap();
    swap(&d);
    std::fs::rename(d.join("app/x"), d.join("app/y")).unwrap();
    std::os::unix::fs::symlink(d.join("etc"), d.join("app/x")).unwrap();
    restore(&d.join("backup"), &d.join("app/x"));
    let left: Vec<_> = std::fs::read_dir(d.join("etc")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["shadow"]);
    assert_eq!(std::fs::read_to_string(d.join("etc/shadow")).unwrap(), "root's");
}

fn backup_in(d: &Path) -> Backup {
    Backup::open(Some(&d.join("backup"))).unwrap()
}

/// Whether this process is root. Some tests need a directory of another user, which only root can
/// create.
fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        eprintln!("SKIPPED: LINKS OF AN APPLICATION: only root can make a directory that is another's");
    }
    is
}

#[test]
fn undo_does_not_follow_a_directory_that_became_a_link() {
    if !is_root() {
        return;
    }
    let keep = |d: &Path| {
        let mut backup = backup_in(d);
        for name in ["shadow", "new", "made", "link", "large"] {
            backup.keep(&d.join("app/x").join(name)).unwrap();
        }
        std::fs::write(d.join("app/x/shadow"), "changed").unwrap();
    };
    with_swapped_link(keep, |backup, _| {
        let error = undo(backup).unwrap_err();
        assert!(error.restored.is_empty(), "{error}");
        assert!(error.failed.iter().all(|line| line.contains("`x` in it is a link")), "{error}");
    });
}

#[test]
fn a_tree_comes_back_in_the_place_of_a_link() {
    if !is_root() {
        return;
    }
    let keep = |d: &Path| {
        std::fs::create_dir(d.join("app/x/sub")).unwrap();
        std::os::unix::fs::symlink("shadow", d.join("app/x/link")).unwrap();
        backup_in(d).keep_leaving(&d.join("app/x"), true).unwrap();
        std::fs::remove_file(d.join("app/x/link")).unwrap();
    };
    with_swapped_link(keep, |backup, x| {
        undo(backup).unwrap();
        assert!(!x.is_symlink(), "the directory itself comes back in the place of the link");
        assert_eq!(std::fs::read_to_string(x.join("link")).unwrap(), "the app's");
    });
}

#[test]
fn nothing_is_copied_aside_from_behind_a_link() {
    if !is_root() {
        return;
    }
    with_swapped_link(
        |d| drop(backup_in(d)),
        |backup, x| {
            let mut open = Backup::open(Some(backup)).unwrap();
            for refused in [open.keep(&x.join("shadow")), open.keep_leaving(&x.join("shadow"), false)] {
                assert!(refused.unwrap_err().line().contains("`x` in it is a link"));
            }
            assert!(open.keep_leaving(&x.join("sub"), true).is_err());
            assert_eq!(std::fs::read_dir(backup.join("files")).unwrap().count(), 0);
        },
    );
}

#[test]
fn nothing_is_touched_behind_a_link() {
    if !is_root() {
        return;
    }
    with_swapped_link(
        |_| {},
        |elsewhere, x| {
            let (shadow, all) = (x.join("shadow"), Attributes { mode: Some(0o777), ..Attributes::default() });
            std::fs::write(elsewhere, "mine").unwrap();
            for (doing, refused) in [
                ("look", atomic_fs::stat_path(&shadow).map(drop)),
                ("read", atomic_fs::read(&shadow).map(drop)),
                ("write", atomic_fs::write(&TempFileNotes::default(), &shadow, b"", all, &mut |_| Ok(()))),
                ("attributes", atomic_fs::set_attributes(&shadow, all)),
                ("directory", atomic_fs::make_directory(&TempFileNotes::default(), &x.join("made"), all)),
                ("link", atomic_fs::link(&TempFileNotes::default(), &x.join("link"), Path::new("shadow"))),
                ("second name", atomic_fs::second_name(&TempFileNotes::default(), elsewhere, &x.join("name"))),
                (
                    "second name of",
                    atomic_fs::second_name(&TempFileNotes::default(), &shadow, &elsewhere.with_file_name("name")),
                ),
                ("rename", atomic_fs::rename(elsewhere, &shadow, "move it")),
                ("remove", atomic_fs::remove(&shadow, false)),
                ("tree", tree_removal::remove(&x.join("tree"))),
                ("walk", atomic_fs::walk(&x.join("tree"), 9).map(drop)),
            ] {
                assert!(refused.unwrap_err().line().contains("`x` in it is a link"), "{doing}");
            }
        },
    );
}

#[test]
fn what_is_not_on_record_is_not_taken_for_parked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    std::fs::write(&file, "old").unwrap();
    let mut backup = Backup::open(Some(&dir.path().join("backup"))).unwrap();
    assert!(backup.park(&file, &dir.path().join("nowhere/f")).is_err());
    drop(backup);
    let mut backup = Backup::open(Some(&dir.path().join("backup"))).unwrap();
    backup.keep_exchanged(&file).unwrap();
    std::fs::write(&file, "new").unwrap();
    undo(&dir.path().join("backup")).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
}

/// The number of hard links and the size of each file that the backup has kept.
fn kept_in(backup: &Path) -> Vec<(u64, u64)> {
    let files = std::fs::read_dir(backup.join("files")).unwrap().map(|e| e.unwrap().metadata().unwrap());
    files.map(|meta| (meta.nlink(), meta.len())).collect()
}

#[test]
fn other_attributes_copy_nothing_and_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    let mode_of = |name: &str| d.join(name).metadata().unwrap().mode() & 0o777;
    let set = |name: &str, mode| std::fs::set_permissions(d.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    let mut backup = backup_in(d);
    for name in ["mode", "then-content", "then-parked", "parked-and-back"] {
        std::fs::write(d.join(name), "old").unwrap();
        set(name, 0o640);
        backup.keep(&d.join(name)).unwrap();
        set(name, 0o666);
    }
    assert_eq!(kept_in(&d.join("backup")), [], "no content for them");
    backup.keep(&d.join("mode")).unwrap();
    backup.keep_exchanged(&d.join("then-content")).unwrap();
    std::fs::remove_file(d.join("then-content")).unwrap();
    std::fs::write(d.join("then-content"), "new").unwrap();
    backup.park(&d.join("then-parked"), &d.join("parked")).unwrap();
    let back = d.join("parked-and-back");
    let before = backup.park(&back, &d.join("aside")).unwrap();
    std::fs::rename(d.join("aside"), &back).unwrap();
    backup.not_parked(&back, before);
    backup.keep_exchanged(&back).unwrap();
    std::fs::remove_file(&back).unwrap();
    // The backup is opened again, as the next phase of the attempt does.
    drop(backup);
    let mut backup = backup_in(d);
    backup.keep_exchanged(&d.join("then-parked")).unwrap();
    std::fs::write(d.join("then-parked"), "").unwrap();
    undo(&d.join("backup")).unwrap();
    for name in ["mode", "then-content", "then-parked", "parked-and-back"] {
        assert_eq!(std::fs::read_to_string(d.join(name)).unwrap(), "old", "{name}");
        assert_eq!(mode_of(name), 0o640, "{name}");
    }
    assert_eq!(undo(&d.join("backup")).unwrap(), Vec::<String>::new());
}

#[test]
fn what_goes_keeps_its_room_and_what_is_copied_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    std::fs::create_dir(d.join("tree")).unwrap();
    std::fs::write(d.join("tree/small"), "small").unwrap();
    std::fs::write(d.join("exchanged"), "small").unwrap();
    std::fs::File::create(d.join("tree/twice")).unwrap().set_len(60 << 20).unwrap();
    let mut backup = Backup { copied: COPIED_MAX, ..backup_in(d) };
    backup.keep_leaving(&d.join("tree"), true).unwrap();
    let mut kept = kept_in(&d.join("backup"));
    kept.sort_unstable();
    assert_eq!(kept, [(2, 5), (2, 60 << 20)], "second names, however small");
    let refused = backup.keep_exchanged(&d.join("exchanged")).unwrap_err().line();
    assert!(refused.contains("one run copies at most 32 GiB"), "{refused}");
    // The file has another name, through which a program could change a hard link in the backup. So
    // the backup must copy the file, but the limit is reached.
    std::fs::hard_link(d.join("tree/twice"), d.join("other")).unwrap();
    let refused = backup.keep_leaving(&d.join("other"), false).unwrap_err().line();
    assert!(refused.contains("one run copies at most 32 GiB"), "{refused}");
    std::fs::remove_dir_all(d.join("tree")).unwrap();
    undo(&d.join("backup")).unwrap();
    assert_eq!(std::fs::read_to_string(d.join("tree/small")).unwrap(), "small");
}

/// If the manifest could not be written, the path must not count as backed up. The next call for
/// the path must try again.
#[test]
fn what_could_not_be_put_on_record_is_not_taken_for_kept() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    std::fs::write(d.join("f"), "old").unwrap();
    let mut backup = backup_in(d);
    backup.to.as_mut().unwrap().1.fill_up();
    for _ in 0..2 {
        assert!(backup.keep_exchanged(&d.join("f")).unwrap_err().line().contains("is full"));
        assert!(backup.park(&d.join("f"), &d.join("parked")).is_err() && d.join("f").exists());
    }
    assert_eq!(undo(&d.join("backup")).unwrap(), Vec::<String>::new());
    assert_eq!(backup_in(d).entries, 0);
}
