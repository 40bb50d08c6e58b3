//! The `unarchive` module: extracts an archive below a directory.
//!
//! The node's own tar or unzip unpacks it into a temporary directory of this run that no other user
//! can enter or move. It never unpacks below `dest`, which may belong to another user. The unpacked
//! tree is then compared with `dest`. Only entries that differ are moved into place, with the same
//! guarded operations as in all modules. So no name or link in an archive can lead outside `dest`,
//! check mode predicts what a run would do, and an archive that cannot be unpacked completely
//! leaves nothing behind.

use super::content::{asset, blob};
use super::unpack::{self, Kind};
use super::web::{self, Wish};
use super::{Answer, Call, Outcome, command, said};
use crate::event::AttributeChange;
use crate::notes::Notes;
use crate::safe::{self, Attributes};
use rustix::fs::{FileType, Stat};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of entries in an archive.
const ENTRIES_MAX: usize = 1_000_000;
/// Maximum size of an archive that is downloaded, in bytes.
const ARCHIVE_MAX: u64 = 16 << 30;
/// Maximum size of an archive that check mode unpacks for inspection, in bytes, packed and
/// unpacked.
const TRIAL_MAX: u64 = 256 << 20;
/// The message for larger archives.
const LARGE: &str = "the archive is too large to be inspected in check mode";
/// Maximum number of reported attribute changes.
const TOLD_MAX: usize = 200;

/// The open archive, and a path in `/proc` for other programs that names this open file even if
/// others rename the original.
struct Source {
    path: PathBuf,
    file: File,
}

impl Source {
    fn of(file: File) -> Self {
        Self { path: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(), file }
    }
}

pub fn unarchive(call: &mut Call) -> Answer {
    let src = call.need(&["src"])?;
    let dest = call.path(&["dest"])?;
    if call.text(&["creates"]).is_some_and(|path| !path.is_empty()) {
        let path = call.path(&["creates"])?;
        if call.is_by_command(&path) {
            return Ok(Outcome::unknown(format!(
                "whether {} exists depends on a command that check mode did not run",
                path.display()
            )));
        }
        if command::exists(call, &path)? {
            let said = format!("skipped, since {} exists", path.display());
            return Ok(Outcome { skipped: true, ..Outcome::ok(said) });
        }
    }
    if call.is_by_command(&dest) {
        return Ok(Outcome::unknown(format!("{} depends on a command that check mode did not run", dest.display())));
    }
    let there = call.ground.node.lead_to(&dest)?.filter(|(_, s)| safe::kind(s) == FileType::Directory);
    let Some((top, _)) = there else {
        return Err(call.ground.node.missing(format!("dest '{}' must be an existing dir", dest.display())));
    };
    let fail = |e: std::io::Error| format!("cannot create a temporary directory for unpacking: {e}");
    let room = call.ground.node.notes().room().map_err(fail)?;
    let yard = room.path().canonicalize().map_err(fail)?;
    let source = match source(call, &src, &yard)? {
        Some(source) => source,
        None => return Ok(untold(call, &dest, "only a download can show the content of the archive")),
    };
    let told = |why: String| why.replace(&source.path.display().to_string(), &src);
    let kind = kind(&source).map_err(told)?;
    let checks = call.ground.node.checks();
    let packed = source.file.metadata().map_or(0, |meta| meta.len());
    if checks && (packed > TRIAL_MAX || unpack::size(call, kind, &source.path).map_err(told)? > TRIAL_MAX) {
        return Ok(untold(call, &dest, LARGE));
    }
    let out = unpacked(call, kind, &source.path, &yard, (&dest, &top)).map_err(told);
    // Removes the temporary directory and whatever was not moved out of it.
    let cleared = room.close();
    let mut out = out?;
    cleared.map_err(|e| format!("cannot remove the temporary directory: {e}"))?;
    for (key, value) in [("dest", dest.display().to_string()), ("src", src), ("handler", kind.handler().to_owned())] {
        out.more.insert(key.into(), json!(value));
    }
    call.path_info(&top, &mut out);
    Ok(out)
}

/// The outcome if check mode cannot inspect the archive: everything below `dest` is then unknown.
fn untold(call: &mut Call, dest: &Path, why: &str) -> Outcome {
    if let Some(would) = call.ground.node.would_mut() {
        would.by_command(dest);
    }
    Outcome::unknown(why)
}

/// Opens the archive; stores it in `room` if it is not on disk yet. None: check mode does not
/// download it.
fn source(call: &mut Call, src: &str, room: &Path) -> Result<Option<Source>, String> {
    let fail = |e: std::io::Error| format!("cannot store the archive: {e}");
    let held = room.join("archive");
    let private = Attributes { mode: Some(0o600), ..Attributes::default() };
    let remote = call.flag("remote_src", false) || !call.flag("copy", true);
    if !remote {
        let found = asset(call.task, src).ok_or_else(|| format!("the plan does not contain the file `{src}`"))?;
        safe::write(&Notes::default(), &held, blob(call.plan, found)?, private, &mut |_| Ok(()))?;
        return Ok(Some(Source::of(safe::open(&held)?.0)));
    }
    if src.contains("://") {
        if call.ground.node.checks() {
            return Ok(None);
        }
        let got = web::ask(call, &Wish::get(src))?;
        if got.status != 200 {
            return Err(format!("{}: {}", web::shown(src), got.said()));
        }
        got.save(call, &mut File::create_new(&held).map_err(fail)?, ARCHIVE_MAX)?;
        return Ok(Some(Source::of(safe::open(&held)?.0)));
    }
    let path = call.path(&["src"])?;
    if call.is_by_command(&path) {
        return Ok(None);
    }
    let Some((real, stat)) = call.ground.node.lead_to(&path)? else {
        return Err(call.ground.node.missing(format!("Source '{}' does not exist", path.display())));
    };
    if safe::kind(&stat) != FileType::RegularFile {
        return Err(format!("{} is not a regular file", path.display()));
    }
    if !call.ground.node.checks() {
        return Ok(Some(Source::of(safe::open(&real)?.0)));
    }
    // The archive may exist only in the prediction, so its content is copied to disk. The copy is
    // cut at the inspection limit.
    let mut file = File::create_new(&held).map_err(fail)?;
    std::io::copy(&mut call.ground.node.open(&real)?.take(TRIAL_MAX + 1), &mut file).map_err(fail)?;
    Ok(Some(Source::of(safe::open(&held)?.0)))
}

/// Detects the format of the archive by its first bytes.
fn kind(source: &Source) -> Result<Kind, String> {
    let fail = |e: std::io::Error| format!("cannot read the archive: {e}");
    let mut begin = [0; 8];
    let length = source.file.read_at(&mut begin, 0).map_err(fail)?;
    if length == 0 {
        return Err(format!("Invalid archive '{}', the file is 0 bytes", source.path.display()));
    }
    Ok(Kind::of(&begin[..length]))
}

/// Unpacks the archive into `yard`, checks its entries and moves them to `top`.
fn unpacked(call: &mut Call, kind: Kind, archive: &Path, yard: &Path, (dest, top): (&Path, &Path)) -> Answer {
    // Unpacks into a subdirectory, because an archive may change the mode of the directory into
    // which it is unpacked.
    let root = yard.join("root");
    safe::make_directory(&Notes::default(), &root, Attributes { mode: Some(0o700), ..Attributes::default() })?;
    let members = match kind {
        Kind::Zip => unpack::unzip(call, archive, &root)?,
        Kind::Tar(packed) => unpack::untar(call, archive, packed, yard, &root)?,
    };
    for name in &members {
        let path = Path::new(name);
        if path.is_absolute() || path.components().any(|c| c == Component::ParentDir) {
            return Err(format!("the archive entry `{name}` is outside the destination; nothing was changed"));
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
                let what = "is not a file, directory or symbolic link; nothing was changed";
                return Err(format!("the archive entry `{}` {what}", name.display()));
            }
        }
    }
    let size = |stat: &Stat| u64::try_from(stat.st_size).unwrap_or(0);
    if call.ground.node.checks() {
        // A sparse file is small in the archive but large when its content is held in memory.
        if entries.iter().map(|(_, stat)| size(stat)).sum::<u64>() > TRIAL_MAX {
            return Ok(untold(call, dest, LARGE));
        }
    } else {
        // Syncs once for all files, so that each file has its content on disk before it is renamed.
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

/// The directories that the archive lists, and the topmost component of each entry. Only these get
/// the archive's attributes.
fn named(members: &[String]) -> BTreeSet<PathBuf> {
    let plain = |name: &str| -> PathBuf { Path::new(name).components().filter(|c| *c != Component::CurDir).collect() };
    let mut out: BTreeSet<PathBuf> =
        members.iter().filter(|name| name.ends_with('/')).map(|name| plain(name)).collect();
    out.extend(members.iter().filter_map(|name| Some(PathBuf::from(plain(name).components().next()?.as_os_str()))));
    out
}

/// Rejects a link that leads outside the destination. `..` is accepted only at the start of a
/// target, because only then the check is valid whatever other links exist.
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
        "the archive link `{}` leads to {}, outside {}; nothing was changed",
        name.display(),
        target.display(),
        top.display()
    ))
}

/// The move of the unpacked tree into its destination.
struct Work<'a> {
    root: &'a Path,
    top: &'a Path,
    named: BTreeSet<PathBuf>,
    out: Outcome,
    /// Directory attributes that are set last, because nothing can be moved into a directory that
    /// is not writable.
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

    /// Applies the attributes of the archive's entry for its root directory to the destination.
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

    /// Moves one entry to its destination, if it differs.
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
                    return Err(format!("{} is a directory, but a link in the archive", to.display()));
                }
                call.ground.keep_exchanged(&to)?;
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
        if safe::mode_of(stat) & 0o700 != 0o700 {
            // The entries in this directory must still be moved out.
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
            return Err(format!("{} exists and is not a directory", to.display()));
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
                return Err(format!("{} is a directory, but a file in the archive", to.display()));
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
        if stat.st_size == 0 {
            let emptied = now.is_some_and(|now| now.st_size > 0);
            call.ground.write(to, emptied, b"", want, &mut |_| Ok(()))?;
        } else {
            call.ground.keep_exchanged(to)?;
            call.ground.node.adopt(path, to, want)?;
        }
        if stat.st_size == 0 || call.ground.node.checks() {
            call.ground.node.set_times(to, None, Some(stat.st_mtime))?;
        }
        let before = if now.is_some() { "other content" } else { "absent" };
        self.told(AttributeChange::new(&to.display().to_string(), before, format!("{} bytes", stat.st_size)));
        Ok(())
    }
}

/// The attributes from the task's options, else from the archive. Only root sets the archive's
/// owner and group.
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
