//! The `unarchive` module: extracts an archive below a directory.
//!
//! The node's own tar or unzip unpacks the archive into a temporary directory of this run, which no
//! other user can enter or move. Neither program unpacks below `dest`, because `dest` may belong to
//! another user.
//!
//! The unpacked tree is then compared with `dest`. Only entries that differ are moved into place,
//! by the same guarded operations that all modules use. So no name or link in an archive can lead
//! outside `dest`, and check mode predicts what a run does. An archive that cannot be unpacked
//! completely leaves nothing behind.

use super::content::{asset_content, find_asset};
use super::http_request::{self, WebRequest};
use super::unpack::{self, ArchiveFormat};
use super::{ModuleCall, ModuleResult, TaskOutcome, command, describe_changes};
use crate::os::acting_user::acting_user;
use crate::os::atomic_fs::{self, Attributes};
use crate::os::temp_files::TempFileNotes;
use crate::run::event::AttributeChange;
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
/// Maximum size in bytes of an archive that check mode unpacks for inspection. The limit applies to
/// the packed and to the unpacked size.
const INSPECTED_MAX: u64 = 256 << 20;
/// The message for an archive that exceeds `INSPECTED_MAX`.
const TOO_LARGE: &str = "the archive is too large to be inspected in check mode";
/// Maximum number of reported attribute changes.
const REPORTED_MAX: usize = 200;

/// The open archive. Other programs get a path in `/proc` that names this open file, even if the
/// original is renamed meanwhile.
struct ArchiveSource {
    path: PathBuf,
    file: File,
}

impl ArchiveSource {
    /// `place` is the path of the file. A program of another user cannot open the files of this
    /// process.
    fn from_file(file: File, place: &Path) -> Self {
        match acting_user() {
            Some(_) => Self { path: place.to_owned(), file },
            None => Self { path: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(), file },
        }
    }
}

pub fn unarchive(call: &mut ModuleCall) -> ModuleResult {
    let src = call.required_text(&["src"])?;
    let dest = call.path(&["dest"])?;
    if call.text(&["creates"]).is_some_and(|path| !path.is_empty()) {
        let path = call.path(&["creates"])?;
        if call.depends_on_skipped_command(&path) {
            return Ok(TaskOutcome::indeterminate(format!(
                "whether {} exists depends on a command that check mode did not run",
                path.display()
            )));
        }
        if command::exists(call, &path)? {
            let said = format!("skipped, since {} exists", path.display());
            return Ok(TaskOutcome { skipped: true, ..TaskOutcome::ok(said) });
        }
    }
    if call.depends_on_skipped_command(&dest) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            dest.display()
        )));
    }
    let there = call.ground.node.find_trusted(&dest)?.filter(|(_, s)| atomic_fs::kind(s) == FileType::Directory);
    let Some((top, _)) = there else {
        return Err(call.ground.node.note_missing(format!("dest '{}' must be an existing dir", dest.display())));
    };
    let fail = |e: std::io::Error| format!("cannot create a temporary directory for unpacking: {e}");
    let room = call.ground.node.notes().private_dir().map_err(fail)?;
    let yard = room.path().canonicalize().map_err(fail)?;
    let source = match open_source(call, &src, &yard)? {
        Some(source) => source,
        None => return Ok(indeterminate_outcome(call, &dest, "only a download can show the content of the archive")),
    };
    let told = |why: String| why.replace(&source.path.display().to_string(), &src);
    let kind = detect_format(&source).map_err(told)?;
    let checks = call.ground.node.is_check_mode();
    let packed = source.file.metadata().map_or(0, |meta| meta.len());
    if checks
        && (packed > INSPECTED_MAX
            || unpack::uncompressed_size(call, kind, &source.path).map_err(told)? > INSPECTED_MAX)
    {
        return Ok(indeterminate_outcome(call, &dest, TOO_LARGE));
    }
    let out = unpack_and_move(call, kind, &source.path, &yard, (&dest, &top)).map_err(told);
    // Removes the temporary directory with everything that was not moved out of it.
    let cleared = room.close();
    let mut out = out?;
    cleared.map_err(|e| format!("cannot remove the temporary directory: {e}"))?;
    for (key, value) in [("dest", dest.display().to_string()), ("src", src), ("handler", kind.handler().to_owned())] {
        out.extra_keys.insert(key.into(), json!(value));
    }
    call.add_path_info(&top, &mut out);
    Ok(out)
}

/// The outcome if check mode cannot inspect the archive. Everything below `dest` is then unknown.
fn indeterminate_outcome(call: &mut ModuleCall, dest: &Path, why: &str) -> TaskOutcome {
    if let Some(would) = call.ground.node.predicted_state_mut() {
        would.add_skipped_path(dest);
    }
    TaskOutcome::indeterminate(why)
}

/// Opens the archive. An archive that is not on disk yet is stored in `room`. None: check mode does
/// not download the archive.
fn open_source(call: &mut ModuleCall, src: &str, room: &Path) -> Result<Option<ArchiveSource>, String> {
    let fail = |e: std::io::Error| format!("cannot store the archive: {e}");
    let held = room.join("archive");
    let private = Attributes { mode: Some(0o600), ..Attributes::default() };
    let remote = call.flag("remote_src", false) || !call.flag("copy", true);
    if !remote {
        let found = find_asset(call.task, src).ok_or_else(|| format!("the plan does not contain the file `{src}`"))?;
        atomic_fs::write(&TempFileNotes::default(), &held, asset_content(call.plan, found)?, private, &mut |_| Ok(()))?;
        return Ok(Some(ArchiveSource::from_file(atomic_fs::open(&held)?.0, &held)));
    }
    if src.contains("://") {
        if call.ground.node.is_check_mode() {
            return Ok(None);
        }
        let got = http_request::send_request(call, &WebRequest::get(src))?;
        if got.status != 200 {
            return Err(format!("{}: {}", http_request::host_of(src), got.status_text()));
        }
        got.write_body(call, &mut File::create_new(&held).map_err(fail)?, ARCHIVE_MAX)?;
        return Ok(Some(ArchiveSource::from_file(atomic_fs::open(&held)?.0, &held)));
    }
    let path = call.path(&["src"])?;
    if call.depends_on_skipped_command(&path) {
        return Ok(None);
    }
    let Some((real, stat)) = call.ground.node.find_trusted(&path)? else {
        return Err(call.ground.node.note_missing(format!("Source '{}' does not exist", path.display())));
    };
    if atomic_fs::kind(&stat) != FileType::RegularFile {
        return Err(format!("{} is not a regular file", path.display()));
    }
    if !call.ground.node.is_check_mode() {
        return Ok(Some(ArchiveSource::from_file(atomic_fs::open(&real)?.0, &real)));
    }
    // The archive may exist only in the prediction, so its content is copied to disk. The copy is
    // cut at the inspection limit.
    let mut file = File::create_new(&held).map_err(fail)?;
    std::io::copy(&mut call.ground.node.open(&real)?.take(INSPECTED_MAX + 1), &mut file).map_err(fail)?;
    Ok(Some(ArchiveSource::from_file(atomic_fs::open(&held)?.0, &held)))
}

/// Detects the format of the archive by its first bytes.
fn detect_format(source: &ArchiveSource) -> Result<ArchiveFormat, String> {
    let fail = |e: std::io::Error| format!("cannot read the archive: {e}");
    let mut begin = [0; 8];
    let length = source.file.read_at(&mut begin, 0).map_err(fail)?;
    if length == 0 {
        return Err(format!("Invalid archive '{}', the file is 0 bytes", source.path.display()));
    }
    Ok(ArchiveFormat::detect(&begin[..length]))
}

/// Unpacks the archive into `yard`, checks its entries and moves them to `top`.
fn unpack_and_move(
    call: &mut ModuleCall,
    kind: ArchiveFormat,
    archive: &Path,
    yard: &Path,
    (dest, top): (&Path, &Path),
) -> ModuleResult {
    // Unpacks into a subdirectory, because an archive may change the mode of the directory into
    // which it is unpacked.
    let root = yard.join("root");
    atomic_fs::make_directory(
        &TempFileNotes::default(),
        &root,
        Attributes { mode: Some(0o700), ..Attributes::default() },
    )?;
    let members = match kind {
        ArchiveFormat::Zip => unpack::unzip(call, archive, &root)?,
        ArchiveFormat::Tar(packed) => unpack::untar(call, archive, packed, yard, &root)?,
    };
    for name in &members {
        let path = Path::new(name);
        if path.is_absolute() || path.components().any(|c| c == Component::ParentDir) {
            return Err(format!("the archive entry `{name}` is outside the destination; nothing was changed"));
        }
    }
    let packed = atomic_fs::stat_path(&root)?;
    atomic_fs::set_attributes(&root, Attributes { mode: Some(0o700), ..Attributes::default() })?;
    let entries = atomic_fs::walk(&root, ENTRIES_MAX)?;
    for (path, stat) in &entries {
        let name = path.strip_prefix(&root).unwrap_or(path);
        match atomic_fs::kind(stat) {
            FileType::Symlink => check_link_target(name, &atomic_fs::read_link(path)?, top)?,
            FileType::RegularFile | FileType::Directory => {}
            _ => {
                let what = "is not a file, directory or symbolic link; nothing was changed";
                return Err(format!("the archive entry `{}` {what}", name.display()));
            }
        }
    }
    let size = |stat: &Stat| u64::try_from(stat.st_size).unwrap_or(0);
    if call.ground.node.is_check_mode() {
        // A sparse file is small in the archive but large when its content is held in memory.
        if entries.iter().map(|(_, stat)| size(stat)).sum::<u64>() > INSPECTED_MAX {
            return Ok(indeterminate_outcome(call, dest, TOO_LARGE));
        }
    } else {
        // One sync covers all files, so that each file has its content on disk before it is
        // renamed.
        let fd = rustix::fs::open(
            &root,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        );
        fd.and_then(rustix::fs::syncfs).map_err(|e| format!("{}: cannot sync it: {e}", root.display()))?;
    }
    let mut work = TreeMove {
        root: &root,
        top,
        listed_directories: listed_directories(&members),
        out: TaskOutcome::default(),
        deferred_attributes: Vec::new(),
    };
    let whole = members.iter().any(|name| Path::new(name).components().all(|c| c == Component::CurDir));
    if let Some(packed) = packed.filter(|_| whole) {
        work.apply_root_entry(call, &packed)?;
    }
    for (path, stat) in &entries {
        work.move_entry(call, path, stat)?;
    }
    for (path, attributes) in work.deferred_attributes.iter().rev() {
        call.ground.node.set_attributes(path, *attributes)?;
    }
    let mut out = work.out;
    out.changed = !out.attributes.is_empty();
    out.msg = describe_changes(&out.attributes).chars().take(2000).collect();
    if call.flag("list_files", false) {
        out.extra_keys.insert("files".into(), json!(members));
    }
    Ok(out)
}

/// The directories that the archive lists, and the topmost component of each entry. Only these
/// directories get the attributes of the archive.
fn listed_directories(members: &[String]) -> BTreeSet<PathBuf> {
    let plain = |name: &str| -> PathBuf { Path::new(name).components().filter(|c| *c != Component::CurDir).collect() };
    let mut out: BTreeSet<PathBuf> =
        members.iter().filter(|name| name.ends_with('/')).map(|name| plain(name)).collect();
    out.extend(members.iter().filter_map(|name| Some(PathBuf::from(plain(name).components().next()?.as_os_str()))));
    out
}

/// Rejects a link that leads outside the destination. `..` is accepted only at the start of a
/// target, because elsewhere another link could change its meaning.
fn check_link_target(name: &Path, target: &Path, top: &Path) -> Result<(), String> {
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
struct TreeMove<'a> {
    root: &'a Path,
    top: &'a Path,
    listed_directories: BTreeSet<PathBuf>,
    out: TaskOutcome,
    /// Directory attributes that are set last, because nothing can be moved into a directory that
    /// is not writable.
    deferred_attributes: Vec<(PathBuf, Attributes)>,
}

impl TreeMove<'_> {
    fn record_change(&mut self, change: AttributeChange) {
        if self.out.attributes.len() < REPORTED_MAX {
            self.out.attributes.push(change);
        }
    }

    fn record_changes(&mut self, path: &Path, changes: Vec<AttributeChange>) {
        for change in changes {
            self.record_change(AttributeChange::new(
                &format!("{} of {}", change.name, path.display()),
                change.before,
                change.after,
            ));
        }
    }

    /// Sets on the destination directory the attributes that the archive has for its root
    /// directory.
    fn apply_root_entry(&mut self, call: &mut ModuleCall, packed: &Stat) -> Result<(), String> {
        let Some(now) = call.ground.node.stat(self.top)?.filter(|_| !super::is_vital(self.top)) else { return Ok(()) };
        let want = wanted_attributes(call, packed, true)?;
        let changes = call.attribute_changes(&now, want);
        if !changes.is_empty() {
            call.ground.back_up(self.top)?;
            self.deferred_attributes.push((self.top.to_owned(), want));
            self.record_changes(self.top, changes);
        }
        Ok(())
    }

    /// Moves one entry to its destination, unless the destination is equal already.
    fn move_entry(&mut self, call: &mut ModuleCall, path: &Path, stat: &Stat) -> Result<(), String> {
        let name = path.strip_prefix(self.root).unwrap_or(path);
        let to = self.top.join(name);
        let now = call.ground.node.stat(&to)?;
        match atomic_fs::kind(stat) {
            FileType::Directory => self.directory(call, path, name, &to, stat, now),
            FileType::Symlink => {
                let target = atomic_fs::read_link(path)?;
                let link = now.is_some_and(|s| atomic_fs::kind(&s) == FileType::Symlink);
                if link && call.ground.node.read_link(&to)? == target {
                    return Ok(());
                }
                if now.is_some_and(|s| atomic_fs::kind(&s) == FileType::Directory) {
                    return Err(format!("{} is a directory, but a link in the archive", to.display()));
                }
                call.ground.back_up_replaced(&to)?;
                call.ground.node.link(&to, &target)?;
                self.record_change(AttributeChange::new(
                    &to.display().to_string(),
                    "",
                    format!("link to {}", target.display()),
                ));
                Ok(())
            }
            _ => self.file(call, path, &to, stat, now),
        }
    }

    fn directory(
        &mut self,
        call: &mut ModuleCall,
        path: &Path,
        name: &Path,
        to: &Path,
        stat: &Stat,
        now: Option<Stat>,
    ) -> Result<(), String> {
        let want = wanted_attributes(call, stat, true)?;
        if atomic_fs::mode_of(stat) & 0o700 != 0o700 {
            // The unpacked directory must be writable, because its entries are moved out of it
            // later.
            let mode = Some(atomic_fs::mode_of(stat) | 0o700);
            atomic_fs::set_attributes(path, Attributes { mode, ..Attributes::default() })?;
        }
        let Some(now) = now else {
            call.ground.back_up(to)?;
            let open = Attributes { mode: want.mode.map(|mode| mode | 0o700), ..want };
            call.ground.node.make_directory(to, open)?;
            if open != want {
                self.deferred_attributes.push((to.to_owned(), want));
            }
            self.record_change(AttributeChange::new(&to.display().to_string(), "absent", "directory"));
            return Ok(());
        };
        if atomic_fs::kind(&now) == FileType::Symlink && call.ground.node.is_directory(to) {
            return Ok(());
        }
        if atomic_fs::kind(&now) != FileType::Directory {
            return Err(format!("{} exists and is not a directory", to.display()));
        }
        let changes = call.attribute_changes(&now, want);
        if self.listed_directories.contains(name) && !changes.is_empty() {
            call.ground.back_up(to)?;
            self.deferred_attributes.push((to.to_owned(), want));
            self.record_changes(to, changes);
        }
        Ok(())
    }

    fn file(
        &mut self,
        call: &mut ModuleCall,
        path: &Path,
        to: &Path,
        stat: &Stat,
        now: Option<Stat>,
    ) -> Result<(), String> {
        let want = wanted_attributes(call, stat, false)?;
        if let Some(now) = &now {
            if atomic_fs::kind(now) == FileType::Directory {
                return Err(format!("{} is a directory, but a file in the archive", to.display()));
            }
            if call.flag("keep_newer", false) && now.st_mtime > stat.st_mtime {
                return Ok(());
            }
            let same = atomic_fs::kind(now) == FileType::RegularFile
                && now.st_size == stat.st_size
                && call.ground.node.same_content(path, to)?;
            if same {
                let changes = call.attribute_changes(now, want);
                if !changes.is_empty() {
                    call.ground.back_up(to)?;
                    call.ground.node.set_attributes(to, want)?;
                    self.record_changes(to, changes);
                }
                return Ok(());
            }
        }
        if stat.st_size == 0 {
            let emptied = now.is_some_and(|now| now.st_size > 0);
            call.ground.write(to, emptied, b"", want, &mut |_| Ok(()))?;
        } else {
            call.ground.back_up_replaced(to)?;
            call.ground.node.adopt(path, to, want)?;
        }
        if stat.st_size == 0 || call.ground.node.is_check_mode() {
            call.ground.node.set_times(to, None, Some(stat.st_mtime))?;
        }
        let before = if now.is_some() { "other content" } else { "absent" };
        self.record_change(AttributeChange::new(&to.display().to_string(), before, format!("{} bytes", stat.st_size)));
        Ok(())
    }
}

/// The attributes from the task's options, or else from the archive. The archive's owner and group
/// are used only if this process is root.
fn wanted_attributes(call: &ModuleCall, packed: &Stat, directory: bool) -> Result<Attributes, String> {
    let given = call.attributes(Some(packed), 0o644, directory)?;
    let root = rustix::process::geteuid().is_root();
    Ok(Attributes {
        mode: given.mode.or(Some(atomic_fs::mode_of(packed))),
        uid: given.uid.or(root.then_some(packed.st_uid)),
        gid: given.gid.or(root.then_some(packed.st_gid)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_the_destination_are_rejected() {
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
            assert_eq!(check_link_target(Path::new(name), Path::new(target), top).is_ok(), good, "{name} -> {target}");
        }
        assert!(check_link_target(Path::new("etc/a"), Path::new("/usr/b"), Path::new("/")).is_ok());
    }

    #[test]
    fn listed_directories_of_an_archive() {
        let list = ["./a/", "./a/b/c", "d"].map(str::to_owned);
        assert_eq!(listed_directories(&list), BTreeSet::from(["a", "d"].map(PathBuf::from)));
    }
}
