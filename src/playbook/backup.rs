//! What was there before a run: every path is copied aside once, before its first change, with a manifest that `undo` reads.

use super::notes::Notes;
use super::safe::{self, Attributes, SafeError};
use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Entries of one directory that is about to be removed.
const TREE_MAX: usize = 20_000;
/// Bytes of files over `safe::READ_MAX` that one run copies at most.
const COPIED_MAX: u64 = 32 << 30;
/// So much of a disk stays free at least; a tenth of it where that is less.
const RESERVE_MAX: u64 = 1 << 30;
const PRIVATE: Attributes = Attributes { mode: Some(0o600), uid: None, gid: None };

/// What lay at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "was")]
pub enum Was {
    Absent,
    File {
        copy: String,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Link {
        #[serde(with = "any_name")]
        target: PathBuf,
    },
    Directory {
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// Moved aside because it is protected.
    Parked {
        #[serde(with = "any_name")]
        to: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    #[serde(with = "any_name")]
    path: PathBuf,
    #[serde(flatten)]
    was: Was,
}

/// Paths in the manifest: text as it is; one that is no UTF-8, which is no name for JSON, by its bytes in hex.
mod any_name {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Name {
        Text(String),
        Bytes { hex: String },
    }

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        let name = match path.to_str() {
            Some(text) => Name::Text(text.to_owned()),
            None => Name::Bytes { hex: hex::encode(path.as_os_str().as_bytes()) },
        };
        name.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Name::deserialize(from)? {
            Name::Text(text) => text.into(),
            Name::Bytes { hex } => OsString::from_vec(hex::decode(hex).map_err(D::Error::custom)?).into(),
        })
    }
}

/// The directory that copies go to. Without one, nothing is kept.
#[derive(Debug, Default)]
pub struct Backup {
    dir: Option<PathBuf>,
    entries: Vec<Entry>,
    seen: BTreeSet<PathBuf>,
    /// Bytes of large files that this run copied.
    copied: u64,
}

/// What is about to happen to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It may be changed where it is.
    Stays,
    Leaves,
}

impl Backup {
    /// Goes on with what the directory already holds: the phases of one attempt may share it.
    pub fn open(dir: Option<&Path>) -> Result<Self, SafeError> {
        let Some(dir) = dir else { return Ok(Self::default()) };
        let fail = |what| move |source| SafeError::Io { path: dir.to_owned(), what, source };
        std::fs::create_dir_all(dir.join("files")).map_err(fail("make the backup directory"))?;
        safe::set_attributes(dir, Attributes { mode: Some(0o700), ..Attributes::default() })?;
        let entries = read(dir)?;
        let seen = entries.iter().map(|e| e.path.clone()).collect();
        Ok(Self { dir: Some(dir.to_owned()), entries, seen, copied: 0 })
    }

    /// Keeps what is at `path` now, unless that was done before. On disk when this returns.
    pub fn keep(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.keep_one(path, Fate::Stays)? { self.save() } else { Ok(()) }
    }

    /// The same for what is about to go from `path`, or to get another content by rename.
    pub fn keep_leaving(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.keep_one(path, Fate::Leaves)? { self.save() } else { Ok(()) }
    }

    /// Keeps a directory with everything in it.
    pub fn keep_tree(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.dir.is_none() {
            return Ok(());
        }
        self.keep_one(path, Fate::Leaves)?;
        for (inner, _) in safe::walk(path, TREE_MAX)? {
            self.keep_one(&inner, Fate::Leaves)?;
        }
        self.save()
    }

    /// Notes that `path` is about to be moved to `to`. On disk when this returns.
    pub fn parked(&mut self, path: &Path, to: &Path) -> Result<(), SafeError> {
        if self.dir.is_none() || !self.seen.insert(path.to_owned()) {
            return Ok(());
        }
        self.entries.push(Entry { path: path.to_owned(), was: Was::Parked { to: to.to_owned() } });
        self.save()
    }

    /// It was not moved after all: what lies there may be kept yet.
    pub fn not_parked(&mut self, path: &Path) {
        if self.entries.pop_if(|last| last.path == path && matches!(last.was, Was::Parked { .. })).is_some() {
            self.seen.remove(path);
        }
    }

    fn keep_one(&mut self, path: &Path, fate: Fate) -> Result<bool, SafeError> {
        let Some(dir) = self.dir.clone() else { return Ok(false) };
        if self.seen.contains(path) {
            return Ok(false);
        }
        let was = match safe::look(path)? {
            None => Was::Absent,
            Some(stat) => match safe::kind(&stat) {
                FileType::Directory => {
                    Was::Directory { mode: safe::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                FileType::Symlink => Was::Link { target: safe::read_link(path)? },
                FileType::RegularFile => {
                    let copy = format!("files/{:06}", self.entries.len());
                    // By one descriptor, so that the content of one file never gets the owner and mode of another.
                    let (file, stat) = safe::open(path)?;
                    if u64::try_from(stat.st_size).unwrap_or(0) > safe::READ_MAX {
                        self.keep_large(path, (&file, &stat), &dir.join(&copy), fate)?;
                    } else {
                        safe::write(
                            &Notes::default(),
                            &dir.join(&copy),
                            &safe::read_open(path, &file)?,
                            PRIVATE,
                            &mut |_| Ok(()),
                        )?;
                    }
                    Was::File { copy, mode: safe::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                // Sockets, pipes and devices are made again by whoever made them.
                _ => return Ok(false),
            },
        };
        self.seen.insert(path.to_owned());
        self.entries.push(Entry { path: path.to_owned(), was });
        Ok(true)
    }

    /// A large file that leaves keeps its content under a second name, which takes no room. Else it is copied, while
    /// there is room for that on the disk and in the bound of one attempt.
    fn keep_large(
        &mut self,
        path: &Path,
        (file, stat): (&File, &Stat),
        copy: &Path,
        fate: Fate,
    ) -> Result<(), SafeError> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // With another name besides, whoever writes there would write into what was kept.
        if fate == Fate::Leaves && stat.st_nlink == 1 && safe::second_name(path, copy).is_ok() {
            let same = |named: Stat| (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino);
            if safe::look(copy)?.is_some_and(same) {
                return Ok(());
            }
            // Another file was put in its place meanwhile.
            safe::remove(copy, false)?;
        }
        let refuse = |why: String| {
            let what = format!(
                "is {} MiB, and nothing was changed, since it can't be kept for an undo: {why}; make room there, move \
                 the file away, or name it in `state` of its service, which is moved aside as a whole",
                size >> 20
            );
            SafeError::refused(path, what)
        };
        if self.copied.saturating_add(size) > COPIED_MAX {
            return Err(refuse(format!("one attempt copies at most {} GiB of large files", COPIED_MAX >> 30)));
        }
        let room = rustix::fs::statvfs(copy.parent().unwrap_or(copy)).map_err(|e| refuse(e.to_string()))?;
        let (free, all) = (room.f_bavail.saturating_mul(room.f_frsize), room.f_blocks.saturating_mul(room.f_frsize));
        if size.saturating_add(RESERVE_MAX.min(all / 10)) > free {
            return Err(refuse(format!("{} has {} MiB free", copy.display(), free >> 20)));
        }
        safe::copy(&Notes::default(), file, copy, PRIVATE).map_err(|e| refuse(e.line()))?;
        self.copied += size;
        Ok(())
    }

    fn save(&self) -> Result<(), SafeError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let path = dir.join("manifest.json");
        let text = serde_json::to_vec_pretty(&self.entries)
            .map_err(|e| SafeError::refused(&path, format!("cannot be written, so nothing is taken away: {e}")))?;
        safe::write(&Notes::default(), &path, &text, PRIVATE, &mut |_| Ok(()))
    }
}

fn read(dir: &Path) -> Result<Vec<Entry>, SafeError> {
    let path = dir.join("manifest.json");
    if safe::look(&path)?.is_none() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&safe::read(&path)?).map_err(|e| SafeError::refused(&path, format!("is no manifest: {e}")))
}

/// What `undo` did not get done; what stands in `restored` is done, the rest is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{} of the paths could not be restored: {}", failed.len(), failed.join("; "))]
pub struct UndoError {
    pub restored: Vec<String>,
    pub failed: Vec<String>,
}

/// Puts back everything that a run copied aside, and returns the paths it changed. May be repeated.
pub fn undo(backup_dir: &Path) -> Result<Vec<String>, UndoError> {
    let entries = read(backup_dir).map_err(|e| UndoError { restored: Vec::new(), failed: vec![e.line()] })?;
    let (mut restored, mut failed) = (Vec::new(), Vec::new());
    // First what appeared goes away, innermost first; then what was there comes back, outermost first.
    for entry in entries.iter().rev().filter(|e| e.was == Was::Absent) {
        note(&entry.path, take_away(&entry.path), &mut restored, &mut failed);
    }
    for entry in entries.iter().filter(|e| e.was != Was::Absent) {
        note(&entry.path, put_back(backup_dir, entry), &mut restored, &mut failed);
    }
    if failed.is_empty() { Ok(restored) } else { Err(UndoError { restored, failed }) }
}

fn note(path: &Path, done: Result<bool, SafeError>, restored: &mut Vec<String>, failed: &mut Vec<String>) {
    match done {
        Ok(true) => restored.push(path.display().to_string()),
        Ok(false) => {}
        Err(e) => failed.push(e.line()),
    }
}

fn take_away(path: &Path) -> Result<bool, SafeError> {
    match safe::look(path)? {
        None => Ok(false),
        Some(stat) if safe::kind(&stat) == FileType::Directory => match safe::remove(path, true) {
            // Somebody else's files are in it by now: it stays.
            Err(SafeError::Io { source, .. })
                if source.raw_os_error() == Some(rustix::io::Errno::NOTEMPTY.raw_os_error()) =>
            {
                Ok(false)
            }
            other => other.map(|()| true),
        },
        Some(_) => safe::remove(path, false).map(|()| true),
    }
}

fn put_back(dir: &Path, entry: &Entry) -> Result<bool, SafeError> {
    let path = &entry.path;
    let now = safe::look(path)?;
    let same = |uid: u32, gid: u32, mode: u32| {
        now.is_some_and(|s| (s.st_uid, s.st_gid, safe::mode_of(&s)) == (uid, gid, mode))
    };
    match &entry.was {
        Was::Absent => Ok(false),
        Was::Directory { mode, uid, gid } => {
            let attributes = Attributes { mode: Some(*mode), uid: Some(*uid), gid: Some(*gid) };
            match &now {
                Some(stat) if safe::kind(stat) == FileType::Directory && same(*uid, *gid, *mode) => return Ok(false),
                Some(stat) if safe::kind(stat) == FileType::Directory => safe::set_attributes(path, attributes)?,
                Some(_) => {
                    safe::remove(path, false)?;
                    safe::make_directory(&Notes::default(), path, attributes)?;
                }
                None => safe::make_directory(&Notes::default(), path, attributes)?,
            }
            Ok(true)
        }
        Was::File { copy, mode, uid, gid } => {
            let copy = dir.join(copy);
            let regular = now.is_some_and(|s| safe::kind(&s) == FileType::RegularFile);
            if regular && same(*uid, *gid, *mode) && safe::same_content(path, &copy)? {
                return Ok(false);
            }
            // Never by the copy's own name: an undo may be repeated.
            safe::copy(
                &Notes::default(),
                &safe::open(&copy)?.0,
                path,
                Attributes { mode: Some(*mode), uid: Some(*uid), gid: Some(*gid) },
            )?;
            Ok(true)
        }
        Was::Link { target } => {
            let link = now.is_some_and(|s| safe::kind(&s) == FileType::Symlink);
            if link && safe::read_link(path)? == *target {
                return Ok(false);
            }
            safe::link(&Notes::default(), path, target)?;
            Ok(true)
        }
        Was::Parked { to } => {
            let Some(parked) = safe::look(to)? else { return Ok(false) };
            let file = |s: &rustix::fs::Stat| safe::kind(s) == FileType::RegularFile;
            if now.is_some_and(|s| !(file(&s) && file(&parked))) {
                return Err(SafeError::refused(
                    path,
                    format!("something new is there; what was parked stays at {}", to.display()),
                ));
            }
            safe::rename(to, path, "move it back")?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_manifest_names_any_path_and_older_ones_are_read() {
        let old = r#"[{"path": "/etc/a", "was": "link", "target": "b"}, {"path": "/etc/c", "was": "parked", "to": "/p"},
            {"path": "/etc/f", "was": "file", "copy": "files/000000", "mode": 420, "uid": 0, "gid": 0}]"#;
        let old: Vec<Entry> = serde_json::from_str(old).unwrap();
        assert_eq!(old[0], Entry { path: "/etc/a".into(), was: Was::Link { target: "b".into() } });
        assert_eq!(old[1].was, Was::Parked { to: "/p".into() });
        assert_eq!(serde_json::to_value(&old[1]).unwrap()["path"], "/etc/c", "text stays text");
        let odd = PathBuf::from(OsStr::from_bytes(b"/a\xff\n"));
        for was in [Was::Link { target: odd.clone() }, Was::Parked { to: odd.clone() }, Was::Absent] {
            let entry = Entry { path: odd.clone(), was };
            assert_eq!(serde_json::from_slice::<Entry>(&serde_json::to_vec(&entry).unwrap()).unwrap(), entry);
        }
    }

    /// `app/x` holds a file that is kept; then the application, who owns `app`, puts a link to `etc` in its place.
    fn swapped(swap: impl FnOnce(&Path), restore: impl FnOnce(&Path, &Path)) {
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

    /// The next ones need somebody else's directory, which only root can make.
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
        swapped(keep, |backup, _| {
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
            backup_in(d).keep_tree(&d.join("app/x")).unwrap();
            std::fs::remove_file(d.join("app/x/link")).unwrap();
        };
        swapped(keep, |backup, x| {
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
        swapped(
            |d| drop(backup_in(d)),
            |backup, x| {
                let mut open = Backup::open(Some(backup)).unwrap();
                for refused in [open.keep(&x.join("shadow")), open.keep_leaving(&x.join("shadow"))] {
                    assert!(refused.unwrap_err().line().contains("`x` in it is a link"));
                }
                assert!(open.keep_tree(&x.join("sub")).is_err());
                assert_eq!(std::fs::read_dir(backup.join("files")).unwrap().count(), 0);
            },
        );
    }

    #[test]
    fn nothing_is_touched_behind_a_link() {
        if !is_root() {
            return;
        }
        swapped(
            |_| {},
            |elsewhere, x| {
                let (shadow, all) = (x.join("shadow"), Attributes { mode: Some(0o777), ..Attributes::default() });
                std::fs::write(elsewhere, "mine").unwrap();
                for (doing, refused) in [
                    ("look", safe::look(&shadow).map(drop)),
                    ("read", safe::read(&shadow).map(drop)),
                    ("write", safe::write(&Notes::default(), &shadow, b"", all, &mut |_| Ok(()))),
                    ("attributes", safe::set_attributes(&shadow, all)),
                    ("directory", safe::make_directory(&Notes::default(), &x.join("made"), all)),
                    ("link", safe::link(&Notes::default(), &x.join("link"), Path::new("shadow"))),
                    ("second name", safe::second_name(elsewhere, &x.join("name"))),
                    ("second name of", safe::second_name(&shadow, &elsewhere.with_file_name("name"))),
                    ("rename", safe::rename(elsewhere, &shadow, "move it")),
                    ("remove", safe::remove(&shadow, false)),
                    ("tree", safe::remove_tree(&x.join("tree"))),
                    ("walk", safe::walk(&x.join("tree"), 9).map(drop)),
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
        backup.parked(&file, Path::new("/nowhere/f")).unwrap();
        backup.not_parked(&file);
        backup.keep(&file).unwrap();
        std::fs::write(&file, "new").unwrap();
        undo(&dir.path().join("backup")).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
    }
}
