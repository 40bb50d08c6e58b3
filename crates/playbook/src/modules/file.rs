//! The `file` module: the type of a path (file, directory, link, absent), its attributes and its
//! times.

use super::{ModuleCall, ModuleResult, TaskOutcome, describe_changes};
use crate::os::atomic_fs::{self, Attributes};
use crate::run::event::AttributeChange;
use rustix::fs::{FileType, Stat};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of entries that `recurse` examines.
const TREE_MAX: usize = 1_000_000;
/// Options that set attributes or times of an existing file.
const ATTRIBUTES: [&str; 5] = ["mode", "owner", "group", "access_time", "modification_time"];

pub fn file(call: &mut ModuleCall) -> ModuleResult {
    let path = call.path(&["path", "dest", "name"])?;
    if call.depends_on_skipped_command(&path) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            path.display()
        )));
    }
    let now = call.ground.node.stat(&path)?;
    let state = call.text(&["state"]).unwrap_or_else(|| {
        let kind = now.as_ref().map(atomic_fs::kind);
        match kind {
            Some(FileType::Directory) => "directory",
            Some(FileType::Symlink) if call.args.contains_key("src") => "link",
            _ if call.flag("recurse", false) => "directory",
            _ => "file",
        }
        .to_owned()
    });
    if state != "directory" && call.flag("recurse", false) {
        return Err("`recurse` requires `state: directory`".into());
    }
    let mut out = match state.as_str() {
        "absent" => absent(call, &path, now.as_ref()),
        "directory" => directory(call, &path, now.as_ref()),
        "touch" => touch(call, &path, now.as_ref()),
        "link" => link(call, &path, now.as_ref()),
        "hard" => hard(call, &path, now.as_ref()),
        "file" => match now {
            None => {
                let message =
                    format!("file ({}) is absent, cannot continue; `state: touch` creates it", path.display());
                Err(call.ground.node.note_missing(message))
            }
            Some(_) if call.args.contains_key("state") && call.ground.node.is_directory(&path) => {
                Err(format!("{} is a directory, not a file", path.display()))
            }
            Some(stat) => set_attributes(call, &path, &stat, false, "preserve"),
        },
        other => Err(format!("`{other}` is not a valid state of file")),
    }?;
    out.extra_keys.insert("path".into(), json!(path.display().to_string()));
    out.extra_keys.insert("dest".into(), json!(path.display().to_string()));
    call.add_path_info(&path, &mut out);
    if state == "absent" {
        out.extra_keys.insert("state".into(), json!("absent"));
    }
    if let (true, Some(src)) = (matches!(state.as_str(), "link" | "hard"), call.text(&["src"])) {
        out.extra_keys.insert("src".into(), json!(src));
    }
    Ok(out)
}

/// The outcome of a task that changed the type of a path, for example from `absent` to `link`.
fn state_change(before: &str, after: impl Into<String>, msg: impl Into<String>) -> TaskOutcome {
    let mut out = TaskOutcome::change(msg);
    out.attributes.push(AttributeChange::new("state", before, after));
    out
}

fn kind_name(stat: Option<&Stat>) -> &'static str {
    match stat.map(atomic_fs::kind) {
        None => "absent",
        Some(FileType::Directory) => "directory",
        Some(FileType::Symlink) => "link",
        Some(_) => "file",
    }
}

fn absent(call: &mut ModuleCall, path: &Path, now: Option<&Stat>) -> ModuleResult {
    match now {
        None => Ok(TaskOutcome::ok("does not exist")),
        Some(stat) => {
            let msg = call.ground.remove_or_park(path, stat)?;
            Ok(state_change(kind_name(now), "absent", msg))
        }
    }
}

fn directory(call: &mut ModuleCall, path: &Path, now: Option<&Stat>) -> ModuleResult {
    let mut out = match now {
        None => {
            let mut missing: Vec<PathBuf> = Vec::new();
            let mut at = path;
            while call.ground.node.stat(at)?.is_none() {
                missing.push(at.to_owned());
                at = at.parent().ok_or("the path has no parent")?;
            }
            for dir in missing.iter().rev() {
                let want = call.attributes(None, 0o755, true)?;
                call.ground.back_up(dir)?;
                call.ground.node.make_directory(dir, want)?;
            }
            state_change("absent", "directory", "created")
        }
        Some(stat) if atomic_fs::kind(stat) == FileType::Directory => {
            set_attributes(call, path, stat, true, "preserve")?
        }
        Some(stat) if atomic_fs::kind(stat) == FileType::Symlink => {
            let led = call.ground.node.follow(path).filter(|(_, stat)| atomic_fs::kind(stat) == FileType::Directory);
            if led.is_none() {
                return Err(format!("{} is a symbolic link that does not lead to a directory", path.display()));
            }
            set_attributes(call, path, stat, true, "preserve")?
        }
        Some(_) => return Err(format!("{} exists and is not a directory", path.display())),
    };
    if call.flag("recurse", false) {
        recurse(call, path, &mut out)?;
    }
    Ok(out)
}

/// Sets the attributes of everything below a directory and, with `follow`, of the targets of links.
/// Skips links that a user other than root could have created, and links to system directories.
fn recurse(call: &mut ModuleCall, path: &Path, out: &mut TaskOutcome) -> Result<(), String> {
    let follow = call.flag("follow", true);
    let mut open = vec![call.ground.node.follow_trusted(path)?.0];
    let (mut seen, mut left, mut count) = (BTreeSet::new(), TREE_MAX, 0);
    while let Some(top) = open.pop() {
        if !seen.insert(top.clone()) {
            continue;
        }
        let entries = call.ground.node.walk(&top, left)?;
        left -= entries.len();
        for (inner, stat) in entries {
            let (inner, stat) = match atomic_fs::kind(&stat) {
                FileType::Symlink if !follow => continue,
                FileType::Symlink => match call.ground.node.follow_trusted(&inner) {
                    Ok((real, Some(stat))) if !super::is_vital(&real) => {
                        open.extend((atomic_fs::kind(&stat) == FileType::Directory).then(|| real.clone()));
                        (real, stat)
                    }
                    _ => continue,
                },
                _ => (inner, stat),
            };
            let want = call.attributes(Some(&stat), 0o644, atomic_fs::kind(&stat) == FileType::Directory)?;
            let changes = call.attribute_changes(&stat, want);
            if !changes.is_empty() {
                call.ground.back_up(&inner)?;
                call.ground.node.set_attributes(&inner, want)?;
                count += 1;
                if count <= 100 {
                    out.attributes.extend(changes);
                }
            }
        }
    }
    if count > 0 {
        out.changed = true;
        let entries = if count == 1 { "entry" } else { "entries" };
        out.msg = format!("{} {count} {entries} changed", out.msg).trim().to_owned();
    }
    Ok(())
}

/// Returns the target of a link whose target is to be changed. Only links that no user but root can
/// have created are followed.
fn follow_target(call: &ModuleCall, path: &Path) -> Result<(PathBuf, Stat), String> {
    if !call.flag("follow", true) {
        return Err("owner, mode and times of a symbolic link itself cannot be set".into());
    }
    let (real, stat) = call.ground.node.follow_trusted(path)?;
    let message = || format!("{} is a dangling symbolic link", path.display());
    stat.map(|stat| (real, stat)).ok_or_else(|| call.ground.node.note_missing(message()))
}

/// Sets mode, owner, group and times that differ. `times` is the default of the time options:
/// `preserve` or `now`.
fn set_attributes(call: &mut ModuleCall, path: &Path, stat: &Stat, directory: bool, times: &str) -> ModuleResult {
    if atomic_fs::kind(stat) == FileType::Symlink {
        let asks = |option: &&str| call.args.contains_key(*option);
        if times == "preserve" && !ATTRIBUTES.iter().any(asks) {
            return Ok(TaskOutcome::default());
        }
        let (real, stat) = follow_target(call, path)?;
        return set_attributes(call, &real, &stat, atomic_fs::kind(&stat) == FileType::Directory, times);
    }
    let want = call.attributes(Some(stat), 0o644, directory)?;
    let changes = call.attribute_changes(stat, want);
    let (accessed, modified) =
        (time_option(call, "access_time", times)?, time_option(call, "modification_time", times)?);
    let accessed = accessed.filter(|at| *at != stat.st_atime);
    let modified = modified.filter(|at| *at != stat.st_mtime);
    if changes.is_empty() && accessed.is_none() && modified.is_none() {
        return Ok(TaskOutcome::default());
    }
    call.ground.back_up(path)?;
    if !changes.is_empty() {
        call.ground.node.set_attributes(path, want)?;
    }
    if accessed.is_some() || modified.is_some() {
        call.ground.node.set_times(path, accessed, modified)?;
    }
    let mut out = TaskOutcome::change(describe_changes(&changes));
    out.attributes = changes;
    if out.msg.is_empty() {
        out.msg = "times set".into();
    }
    Ok(out)
}

/// The value of a time option in seconds since 1970. `unless` is the text that applies if the
/// option is not set. None: the time is left unchanged.
fn time_option(call: &ModuleCall, option: &str, unless: &str) -> Result<Option<i64>, String> {
    let text = call.text(&[option]).filter(|t| !t.is_empty()).unwrap_or_else(|| unless.to_owned());
    match text.as_str() {
        "preserve" => Ok(None),
        "now" => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
            Ok(Some(i64::try_from(now).unwrap_or(i64::MAX)))
        }
        text => {
            let format = call.text(&[&format!("{option}_format")]).unwrap_or_else(|| "%Y%m%d%H%M.%S".into());
            let wrong = |e: jiff::Error| format!("`{option}: {text}` does not match the time format `{format}`: {e}");
            let at = jiff::civil::DateTime::strptime(&format, text).map_err(wrong)?;
            let at = at.to_zoned(jiff::tz::TimeZone::system()).map_err(wrong)?;
            Ok(Some(at.timestamp().as_second()))
        }
    }
}

/// Creates an empty file if none exists, and sets its times, by default to now.
fn touch(call: &mut ModuleCall, path: &Path, now: Option<&Stat>) -> ModuleResult {
    match now {
        None => {
            let want = call.attributes(None, 0o644, false)?;
            let (accessed, modified) =
                (time_option(call, "access_time", "now")?, time_option(call, "modification_time", "now")?);
            call.ground.back_up(path)?;
            call.ground.node.write(path, b"", want, &mut |_| Ok(()))?;
            if call.text(&["access_time", "modification_time"]).is_some() {
                call.ground.node.set_times(path, accessed, modified)?;
            }
            Ok(state_change("absent", "file", "created"))
        }
        Some(stat) => {
            let mut out = set_attributes(call, path, stat, atomic_fs::kind(stat) == FileType::Directory, "now")?;
            // A `touch` with the time `now` always counts as a change, even if the file already has
            // that time by chance.
            let now = |o: &str| call.text(&[o]).is_none_or(|t| t == "now");
            out.changed |= now("access_time") || now("modification_time");
            Ok(out)
        }
    }
}

/// Creates or changes a symbolic link.
fn link(call: &mut ModuleCall, path: &Path, now: Option<&Stat>) -> ModuleResult {
    let Some(target) = call.text(&["src"]).map(PathBuf::from) else {
        return match now {
            Some(stat) if atomic_fs::kind(stat) == FileType::Symlink => {
                set_attributes(call, path, stat, false, "preserve")
            }
            _ => Err("`src` (the target of the link) is missing".into()),
        };
    };
    let force = call.flag("force", false);
    let seen = if target.is_absolute() { target.clone() } else { path.parent().unwrap_or(path).join(&target) };
    if !force && call.ground.node.follow(&seen).is_none() {
        let message = format!("{} does not exist; `force: true` creates a dangling link", target.display());
        return Err(call.ground.node.note_missing(message));
    }
    let mut out = TaskOutcome::default();
    match now {
        Some(stat) if atomic_fs::kind(stat) == FileType::Symlink => {
            let old = call.ground.node.read_link(path)?;
            if old != target {
                call.ground.back_up_removed(path, false)?;
                out = TaskOutcome::change(format!("now points to {}", target.display()));
                let change = AttributeChange::new("target", old.display().to_string(), target.display().to_string());
                out.attributes.push(change);
            }
        }
        Some(stat) if force && atomic_fs::kind(stat) == FileType::Directory => {
            if !call.ground.node.list(path)?.is_empty() {
                return Err(format!("{} is a directory that is not empty; it was left unchanged", path.display()));
            }
            call.ground.remove_or_park(path, stat)?;
            out = state_change("directory", "link", format!("now points to {}", target.display()));
        }
        Some(stat) if force => {
            call.ground.remove_or_park(path, stat)?;
            out = state_change("file", "link", format!("now points to {}", target.display()));
        }
        Some(_) => return Err(format!("{} exists and is not a link; `force: true` replaces a file", path.display())),
        None => {
            call.ground.back_up(path)?;
            out = state_change("absent", "link", format!("now points to {}", target.display()));
        }
    }
    if out.changed {
        call.ground.node.link(path, &target)?;
    }
    set_target_attributes(call, path, &mut out)?;
    Ok(out)
}

/// Sets `mode`, `owner` and `group` of a link task on the target of the link. A target that does
/// not exist is no error. `follow: false` is an error, because a link has no attributes of its own.
fn set_target_attributes(call: &mut ModuleCall, path: &Path, out: &mut TaskOutcome) -> Result<(), String> {
    if !["mode", "owner", "group"].iter().any(|o| call.args.contains_key(*o)) {
        return Ok(());
    }
    if call.flag("follow", true) && call.ground.node.follow(path).is_none() {
        return Ok(());
    }
    let (real, stat) = follow_target(call, path)?;
    let want = call.attributes(Some(&stat), 0o644, atomic_fs::kind(&stat) == FileType::Directory)?;
    let changes = call.attribute_changes(&stat, want);
    if !changes.is_empty() {
        call.ground.back_up(&real)?;
        call.ground.node.set_attributes(&real, Attributes { ..want })?;
        out.changed = true;
        out.attributes.extend(changes);
    }
    Ok(())
}

/// Creates a hard link.
fn hard(call: &mut ModuleCall, path: &Path, now: Option<&Stat>) -> ModuleResult {
    let source = call.path(&["src"])?;
    let from = call.ground.node.stat(&source)?;
    let from = from.ok_or_else(|| call.ground.node.note_missing(format!("{} does not exist", source.display())))?;
    let mut out = TaskOutcome::default();
    let same = now.is_some_and(|stat| (stat.st_dev, stat.st_ino) == (from.st_dev, from.st_ino));
    if !same {
        if now.is_some_and(|stat| atomic_fs::kind(stat) == FileType::Directory) {
            return Err(format!("{} is a directory; it was left unchanged", path.display()));
        }
        if now.is_some() && !call.flag("force", false) {
            return Err(format!("{} exists; `force: true` replaces it", path.display()));
        }
        call.ground.hard_link(&source, path)?;
        out = state_change(kind_name(now), "hard", format!("hard link to {}", source.display()));
    }
    if let Some(stat) = call.ground.node.stat(path)? {
        let more = set_attributes(call, path, &stat, false, "preserve")?;
        out.changed |= more.changed;
        out.attributes.extend(more.attributes);
    }
    Ok(out)
}
