//! `unarchive`: what is in an archive, put below a directory.
//!
//! The node's own tar or unzip unpacks it into a directory that nobody else may enter. What is there then is compared with
//! what is below `dest`, and only what differs is moved to its place, by the same guarded ways that all modules go: so
//! no name and no link of an archive leads elsewhere, a check says what a run would do, and an archive that can't be
//! unpacked to its end leaves nothing behind.

use super::content::{asset, blob};
use super::unpack::{self, Kind};
use super::web::{self, Wish};
use super::{Answer, Call, Outcome, command, said};
use crate::playbook::event::AttributeChange;
use crate::playbook::safe::{self, Attributes};
use rustix::fs::{FileType, Stat};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

/// Where an archive is unpacked, below its `dest`. One name, so that the next run clears what a killed one left.
const YARD: &str = ".remoor-unarchive";
/// Entries of one archive.
const ENTRIES_MAX: usize = 1_000_000;
/// Largest archive that is fetched, in bytes.
const ARCHIVE_MAX: u64 = 16 << 30;
/// Attribute changes that are told.
const TOLD_MAX: usize = 200;

/// The archive as a file on the disk, and what keeps it there.
struct Source {
    path: PathBuf,
    _temporary: Option<NamedTempFile>,
}

pub fn unarchive(call: &mut Call) -> Answer {
    let src = call.need(&["src"])?;
    let dest = call.path(&["dest"])?;
    if call.text(&["creates"]).is_some_and(|path| !path.is_empty()) {
        let path = call.path(&["creates"])?;
        if call.is_by_command(&path) {
            return Ok(Outcome::unknown(format!("whether {} is there depends on what was not run", path.display())));
        }
        if command::exists(call, &path)? {
            let said = format!("skipped, since {} exists", path.display());
            return Ok(Outcome { skipped: true, ..Outcome::ok(said) });
        }
    }
    if call.is_by_command(&dest) {
        return Ok(Outcome::unknown(format!("{} is made by what was not run", dest.display())));
    }
    let Some((top, _)) = call.ground.node.follow(&dest).filter(|(_, s)| safe::kind(s) == FileType::Directory) else {
        return Err(call.ground.node.missing(format!("dest '{}' must be an existing dir", dest.display())));
    };
    let source = match source(call, &src)? {
        Some(source) => source,
        None => {
            if let Some(would) = call.ground.node.would_mut() {
                would.by_command(&dest);
            }
            return Ok(Outcome::unknown("what is in the archive, only fetching it can tell"));
        }
    };
    let kind = kind(&source.path)?;
    let yard = yard(call, &top)?;
    let mut out = unpacked(call, kind, &source.path, &yard, &top);
    if !call.ground.node.checks() {
        // Emptied but for what was not needed.
        let cleared = safe::remove_tree(&yard);
        if out.is_ok() {
            cleared?;
        }
    }
    if let Ok(out) = &mut out {
        for (key, value) in [("dest", dest.display().to_string()), ("src", src), ("handler", kind.handler().to_owned())]
        {
            out.more.insert(key.into(), json!(value));
        }
        call.path_info(&top, out);
    }
    out
}

/// The archive on the disk. None: a check does not fetch it.
fn source(call: &mut Call, src: &str) -> Result<Option<Source>, String> {
    let fail = |e: std::io::Error| format!("cannot keep the archive: {e}");
    let temporary = || tempfile::Builder::new().prefix(".remoor-archive-").tempfile().map_err(fail);
    let held = |file: NamedTempFile| Some(Source { path: file.path().to_owned(), _temporary: Some(file) });
    let remote = call.flag("remote_src", false) || !call.flag("copy", true);
    if !remote {
        let found = asset(call.task, src).ok_or_else(|| format!("`{src}` is not among the files of this plan"))?;
        let file = temporary()?;
        std::fs::write(file.path(), blob(call.plan, found)?).map_err(fail)?;
        return Ok(held(file));
    }
    if src.contains("://") {
        if call.ground.node.checks() {
            return Ok(None);
        }
        let got = web::ask(call, &Wish::get(src))?;
        if got.status != 200 {
            return Err(format!("{}: {}", web::shown(src), got.said()));
        }
        let mut file = temporary()?;
        got.save(call, file.as_file_mut(), ARCHIVE_MAX)?;
        return Ok(held(file));
    }
    let path = call.path(&["src"])?;
    if call.is_by_command(&path) {
        return Ok(None);
    }
    let Some((real, stat)) = call.ground.node.follow(&path) else {
        return Err(call.ground.node.missing(format!("Source '{}' does not exist", path.display())));
    };
    if safe::kind(&stat) != FileType::RegularFile {
        return Err(format!("{} is no file", path.display()));
    }
    if !call.ground.node.checks() {
        return Ok(Some(Source { path: real, _temporary: None }));
    }
    // It may be one that only would be there.
    let mut file = temporary()?;
    std::io::copy(&mut call.ground.node.open(&real)?, file.as_file_mut()).map_err(fail)?;
    Ok(held(file))
}

fn kind(path: &Path) -> Result<Kind, String> {
    let mut begin = Vec::new();
    safe::open(path)?.0.take(8).read_to_end(&mut begin).map_err(|e| format!("{}: {e}", path.display()))?;
    if begin.is_empty() {
        return Err(format!("Invalid archive '{}', the file is 0 bytes", path.display()));
    }
    Ok(Kind::of(&begin))
}

/// An empty directory for what is unpacked: beside its place, so that it is only renamed; in a check elsewhere, to the end
/// of the run, for later tasks to see what would be there.
fn yard(call: &mut Call, top: &Path) -> Result<PathBuf, String> {
    if call.ground.node.checks() {
        let dir = TempDir::with_prefix(".remoor-unarchive-").map_err(|e| format!("cannot make a directory: {e}"))?;
        let path = dir.path().canonicalize().map_err(|e| format!("{}: {e}", dir.path().display()))?;
        call.ground.keep_until_end(dir);
        return Ok(path);
    }
    let path = top.join(YARD);
    if safe::look(&path)?.is_some() {
        safe::remove_tree(&path)?;
    }
    safe::make_directory(call.ground.node.notes(), &path, Attributes { mode: Some(0o700), ..Attributes::default() })?;
    Ok(path)
}

fn unpacked(call: &mut Call, kind: Kind, archive: &Path, yard: &Path, top: &Path) -> Answer {
    // What is unpacked lies one deeper, since an archive may change the mode of the directory that it is unpacked in.
    let root = yard.join("root");
    safe::make_directory(call.ground.node.notes(), &root, Attributes { mode: Some(0o700), ..Attributes::default() })?;
    let members = match kind {
        Kind::Zip => unpack::unzip(call, archive, &root)?,
        Kind::Tar(packed) => unpack::untar(call, archive, packed, yard, &root)?,
    };
    for name in &members {
        let path = Path::new(name);
        if path.is_absolute() || path.components().any(|c| c == Component::ParentDir) {
            return Err(format!("the archive's `{name}` is not below where it is unpacked; nothing was changed"));
        }
    }
    let packed = safe::look(&root)?;
    safe::set_attributes(&root, Attributes { mode: Some(0o700), ..Attributes::default() })?;
    let entries = safe::walk(&root, ENTRIES_MAX)?;
    for (path, stat) in &entries {
        let name = path.strip_prefix(&root).unwrap_or(path);
        match safe::kind(stat) {
            FileType::Symlink => stays(name, &safe::read_link(path)?, top)?,
            FileType::RegularFile | FileType::Directory => {}
            _ => {
                let what = "is neither a file nor a directory nor a link; nothing was changed";
                return Err(format!("the archive's `{}` {what}", name.display()));
            }
        }
    }
    if !call.ground.node.checks() {
        // Once for all, so that each name that is given is of content that outlives a crash.
        let fd = rustix::fs::open(
            &root,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
        fd.and_then(rustix::fs::syncfs).map_err(|e| format!("{}: cannot sync it: {e}", root.display()))?;
    }
    let mut work = Work { root: &root, top, named: named(&members), out: Outcome::default(), late: Vec::new() };
    let whole = members.iter().any(|name| Path::new(name).components().all(|c| c == Component::CurDir));
    if let Some(packed) = packed.filter(|_| whole) {
        work.whole(call, &packed)?;
    }
    for (path, stat) in &entries {
        work.entry(call, path, stat)?;
    }
    for (path, attributes) in work.late.iter().rev() {
        call.ground.node.set_attributes(path, *attributes)?;
    }
    let mut out = work.out;
    out.changed = !out.attributes.is_empty();
    out.msg = said(&out.attributes).chars().take(2000).collect();
    if call.flag("list_files", false) {
        out.more.insert("files".into(), json!(members));
    }
    Ok(out)
}

/// Directories that the archive itself names, and the topmost of each entry: only of those the attributes are set.
fn named(members: &[String]) -> BTreeSet<PathBuf> {
    let plain = |name: &str| -> PathBuf { Path::new(name).components().filter(|c| *c != Component::CurDir).collect() };
    let mut out: BTreeSet<PathBuf> =
        members.iter().filter(|name| name.ends_with('/')).map(|name| plain(name)).collect();
    out.extend(members.iter().filter_map(|name| Some(PathBuf::from(plain(name).components().next()?.as_os_str()))));
    out
}

/// Refuses a link of the archive that leads out of the place where it is unpacked. With `..` only at its begin it can be told
/// whatever other links there are.
fn stays(name: &Path, target: &Path, top: &Path) -> Result<(), String> {
    let depth = name.components().count().saturating_sub(1);
    let mut parts = target.components().peekable();
    let mut good = true;
    if target.is_absolute() {
        good = target.starts_with(top);
    } else {
        let mut ups = 0;
        while parts.next_if(|c| matches!(c, Component::ParentDir | Component::CurDir)).is_some_and(|c| {
            ups += usize::from(c == Component::ParentDir);
            true
        }) {}
        good &= ups <= depth;
    }
    if good && parts.all(|c| c != Component::ParentDir) {
        return Ok(());
    }
    Err(format!(
        "the archive's link `{}` leads to {}, out of {}; nothing was changed",
        name.display(),
        target.display(),
        top.display()
    ))
}

/// What is unpacked, on its way to its place.
struct Work<'a> {
    root: &'a Path,
    top: &'a Path,
    named: BTreeSet<PathBuf>,
    out: Outcome,
    /// Attributes of directories that are set in the end: nothing can be put into one that may not be written.
    late: Vec<(PathBuf, Attributes)>,
}

impl Work<'_> {
    fn told(&mut self, change: AttributeChange) {
        if self.out.attributes.len() < TOLD_MAX {
            self.out.attributes.push(change);
        }
    }

    fn changes(&mut self, path: &Path, changes: Vec<AttributeChange>) {
        for change in changes {
            self.told(AttributeChange::new(
                &format!("{} of {}", change.name, path.display()),
                change.before,
                change.after,
            ));
        }
    }

    /// The archive has an entry for the directory itself that it is unpacked in.
    fn whole(&mut self, call: &mut Call, packed: &Stat) -> Result<(), String> {
        let Some(now) = call.ground.node.look(self.top)?.filter(|_| !super::is_vital(self.top)) else { return Ok(()) };
        let want = wanted(call, packed, true)?;
        let changes = call.attribute_changes(&now, want);
        if !changes.is_empty() {
            call.ground.keep(self.top)?;
            self.late.push((self.top.to_owned(), want));
            self.changes(self.top, changes);
        }
        Ok(())
    }

    fn entry(&mut self, call: &mut Call, path: &Path, stat: &Stat) -> Result<(), String> {
        let name = path.strip_prefix(self.root).unwrap_or(path);
        let to = self.top.join(name);
        let now = call.ground.node.look(&to)?;
        match safe::kind(stat) {
            FileType::Directory => self.directory(call, path, name, &to, stat, now),
            FileType::Symlink => {
                let target = safe::read_link(path)?;
                let link = now.is_some_and(|s| safe::kind(&s) == FileType::Symlink);
                if link && call.ground.node.read_link(&to)? == target {
                    return Ok(());
                }
                if now.is_some_and(|s| safe::kind(&s) == FileType::Directory) {
                    return Err(format!("{} is a directory, and in the archive a link", to.display()));
                }
                call.ground.keep_leaving(&to)?;
                call.ground.node.link(&to, &target)?;
                self.told(AttributeChange::new(&to.display().to_string(), "", format!("link to {}", target.display())));
                Ok(())
            }
            _ => self.file(call, path, &to, stat, now),
        }
    }

    fn directory(
        &mut self,
        call: &mut Call,
        path: &Path,
        name: &Path,
        to: &Path,
        stat: &Stat,
        now: Option<Stat>,
    ) -> Result<(), String> {
        let want = wanted(call, stat, true)?;
        if !call.ground.node.checks() && safe::mode_of(stat) & 0o700 != 0o700 {
            // What is in it is still to be taken out.
            let mode = Some(safe::mode_of(stat) | 0o700);
            safe::set_attributes(path, Attributes { mode, ..Attributes::default() })?;
        }
        let Some(now) = now else {
            call.ground.keep(to)?;
            let open = Attributes { mode: want.mode.map(|mode| mode | 0o700), ..want };
            call.ground.node.make_directory(to, open)?;
            if open != want {
                self.late.push((to.to_owned(), want));
            }
            self.told(AttributeChange::new(&to.display().to_string(), "absent", "directory"));
            return Ok(());
        };
        if safe::kind(&now) == FileType::Symlink && call.ground.node.is_directory(to) {
            return Ok(());
        }
        if safe::kind(&now) != FileType::Directory {
            return Err(format!("{} is there and is no directory", to.display()));
        }
        let changes = call.attribute_changes(&now, want);
        if self.named.contains(name) && !changes.is_empty() {
            call.ground.keep(to)?;
            self.late.push((to.to_owned(), want));
            self.changes(to, changes);
        }
        Ok(())
    }

    fn file(&mut self, call: &mut Call, path: &Path, to: &Path, stat: &Stat, now: Option<Stat>) -> Result<(), String> {
        let want = wanted(call, stat, false)?;
        if let Some(now) = &now {
            if safe::kind(now) == FileType::Directory {
                return Err(format!("{} is a directory, and in the archive a file", to.display()));
            }
            if call.flag("keep_newer", false) && now.st_mtime > stat.st_mtime {
                return Ok(());
            }
            let same = safe::kind(now) == FileType::RegularFile
                && now.st_size == stat.st_size
                && call.ground.node.same_content(path, to)?;
            if same {
                let changes = call.attribute_changes(now, want);
                if !changes.is_empty() {
                    call.ground.keep(to)?;
                    call.ground.node.set_attributes(to, want)?;
                    self.changes(to, changes);
                }
                return Ok(());
            }
        }
        match now {
            Some(now) if stat.st_size == 0 && now.st_size > 0 => call.ground.before_write(to, Some(b"-"), b"")?,
            _ => call.ground.keep_leaving(to)?,
        }
        call.ground.node.adopt(path, to, want)?;
        if call.ground.node.checks() {
            call.ground.node.set_times(to, None, Some(stat.st_mtime))?;
        }
        let before = if now.is_some() { "other content" } else { "absent" };
        self.told(AttributeChange::new(&to.display().to_string(), before, format!("{} bytes", stat.st_size)));
        Ok(())
    }
}

/// Attributes as the archive and the options want them. Whoever is not root owns what they unpack.
fn wanted(call: &Call, packed: &Stat, directory: bool) -> Result<Attributes, String> {
    let given = call.attributes(Some(packed), 0o644, directory)?;
    let root = rustix::process::geteuid().is_root();
    Ok(Attributes {
        mode: given.mode.or(Some(safe::mode_of(packed))),
        uid: given.uid.or(root.then_some(packed.st_uid)),
        gid: given.gid.or(root.then_some(packed.st_gid)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_where_they_are_unpacked() {
        let top = Path::new("/opt/x");
        for (name, target, good) in [
            ("a", "b", true),
            ("a", "b/c", true),
            ("d/a", "../b", true),
            ("d/e/a", "../../b", true),
            ("a", "./b", true),
            ("a", "/opt/x/b", true),
            ("a", "..", false),
            ("d/a", "../../b", false),
            ("d/a", "./../../b", false),
            ("a", "b/../..", false),
            ("a", "b/..", false),
            ("a", "/etc/passwd", false),
            ("a", "/opt/x/../y", false),
            ("a", "/opt/xy", false),
        ] {
            assert_eq!(stays(Path::new(name), Path::new(target), top).is_ok(), good, "{name} -> {target}");
        }
        assert!(stays(Path::new("etc/a"), Path::new("/usr/b"), Path::new("/")).is_ok());
    }

    #[test]
    fn directories_that_the_archive_names() {
        let list = ["./a/", "./a/b/c", "d"].map(str::to_owned);
        assert_eq!(named(&list), BTreeSet::from(["a", "d"].map(PathBuf::from)));
    }
}
