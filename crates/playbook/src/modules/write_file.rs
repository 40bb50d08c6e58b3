//! Writes a regular file with given content and attributes, for all modules that do so.

use super::{ModuleCall, ModuleResult, TaskOutcome, Tool, checksum, describe_changes, diff, require_success};
use crate::os::atomic_fs::{self, Attributes};
use crate::run::event::AttributeChange;
use rustix::fs::{FileType, Stat};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Writes `content` to `dest`, or to `name` in it if `dest` is a directory.
pub fn write_content(call: &mut ModuleCall, dest: &Path, content: Vec<u8>, source: &str, name: &Path) -> ModuleResult {
    let mut dest = dest.to_owned();
    if call.depends_on_skipped_command(&dest) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            dest.display()
        )));
    }
    let asked = call.text(&["dest", "path", "name"]).unwrap_or_default();
    let into = call.ground.node.is_directory(&dest);
    if into || asked.ends_with('/') {
        let name = name.file_name().map(PathBuf::from);
        dest.push(name.ok_or_else(|| format!("{} is a directory", dest.display()))?);
    }
    let Some((dest, now)) = resolve_target(call, &dest)? else {
        return Ok(TaskOutcome::ok("exists, and `force` is off"));
    };
    let old = read_old(call, &dest, now.as_ref())?;
    update_file(call, &dest, old, content, source)
}

/// The present content of the file. None: the file does not exist, or it is too large for memory. A
/// file that large always counts as different.
pub fn read_old(call: &ModuleCall, dest: &Path, now: Option<&Stat>) -> Result<Option<Vec<u8>>, String> {
    Ok(now.filter(|stat| !is_large(stat)).map(|_| call.ground.node.read(dest)).transpose()?)
}

/// Whether a file is too large to be held in memory.
pub fn is_large(stat: &Stat) -> bool {
    u64::try_from(stat.st_size).unwrap_or(0) > atomic_fs::READ_MAX
}

/// Returns the path to write to after links are handled, and the present metadata of that path.
/// None: the file exists, and `force: false` forbids replacing it.
pub fn resolve_target(call: &ModuleCall, dest: &Path) -> Result<Option<(PathBuf, Option<Stat>)>, String> {
    let mut dest = dest.to_owned();
    let mut now = call.ground.node.stat(&dest)?;
    if now.is_some_and(|s| atomic_fs::kind(&s) == FileType::Symlink) {
        match call.task.module.as_str() {
            // These modules edit the target of a link.
            "lineinfile" | "blockinfile" | "replace" => (dest, now) = call.ground.node.follow_trusted(&dest)?,
            _ if call.flag("follow", false) => (dest, now) = call.ground.node.follow_trusted(&dest)?,
            "copy" | "template" if !call.flag("force", true) => return Ok(None),
            // The new file replaces the link.
            "assemble" | "copy" | "template" => now = None,
            _ => return Err(format!("{} is a symbolic link; `follow: true` writes to its target", dest.display())),
        }
    }
    if now.is_some_and(|s| atomic_fs::kind(&s) != FileType::RegularFile) {
        return Err(format!("{} exists and is not a regular file", dest.display()));
    }
    Ok((now.is_none() || call.flag("force", true)).then_some((dest, now)))
}

/// Creates the missing parent directories of a file. They get mode 0755.
pub fn make_parents(call: &mut ModuleCall, path: &Path) -> Result<(), String> {
    let mut missing = Vec::new();
    let mut at = path.parent().unwrap_or(path);
    while call.ground.node.follow(at).is_none() {
        missing.push(at.to_owned());
        at = at.parent().ok_or("the path has no parent")?;
    }
    for dir in missing.iter().rev() {
        call.ground.back_up(dir)?;
        call.ground.node.make_directory(dir, Attributes { mode: Some(0o755), ..Attributes::default() })?;
    }
    Ok(())
}

/// Owner and group that a file keeps when it is replaced. As in Ansible, a user who may not give
/// files to the present owner and group becomes their owner.
fn kept_owner(stat: &Stat) -> (Option<u32>, Option<u32>) {
    let own = rustix::process::geteuid();
    let member = || {
        let groups = rustix::process::getgroups().unwrap_or_default();
        groups.into_iter().chain([rustix::process::getegid()]).any(|group| group.as_raw() == stat.st_gid)
    };
    let may = own.is_root() || own.as_raw() == stat.st_uid && member();
    (may.then_some(stat.st_uid), may.then_some(stat.st_gid))
}

/// Creates a regular file, replaces its content, or sets only its attributes, whichever is needed.
pub fn update_file(
    call: &mut ModuleCall,
    dest: &Path,
    old: Option<Vec<u8>>,
    content: Vec<u8>,
    source: &str,
) -> ModuleResult {
    update_file_with_mode(call, dest, old, content, source, 0o644)
}

/// Writes a file that the module itself names, not an option of the task. A link to it is followed.
/// `mode` is the mode to set. None: a new file gets mode 0644, and an existing file keeps its mode.
pub fn write_system_file(
    call: &mut ModuleCall,
    path: &Path,
    content: Vec<u8>,
    source: &str,
    mode: Option<Value>,
) -> ModuleResult {
    let (path, now) = call.ground.node.follow_trusted(path)?;
    if now.is_some_and(|stat| atomic_fs::kind(&stat) != FileType::RegularFile) {
        return Err(format!("{} exists and is not a regular file", path.display()));
    }
    let old = read_old(call, &path, now.as_ref())?;
    // The options of the task are for other files.
    let own = std::mem::take(&mut call.args);
    call.args.extend(mode.map(|mode| ("mode".to_owned(), mode)));
    let done = update_file(call, &path, old, content, source);
    call.args = own;
    done
}

/// Like `update_file`; a new file gets mode `fresh` unless the task sets `mode`.
pub fn update_file_with_mode(
    call: &mut ModuleCall,
    dest: &Path,
    old: Option<Vec<u8>>,
    content: Vec<u8>,
    source: &str,
    fresh: u32,
) -> ModuleResult {
    let now = call.ground.node.stat(dest)?.filter(|stat| atomic_fs::kind(stat) != FileType::Symlink);
    let want = call.attributes(now.as_ref(), fresh, false)?;
    let mut out = TaskOutcome::default();
    out.extra_keys.insert("dest".into(), json!(dest.display().to_string()));
    out.extra_keys.insert("path".into(), json!(dest.display().to_string()));
    for (key, algorithm) in [("checksum", "sha1"), ("md5sum", "md5")] {
        out.extra_keys.insert(key.into(), json!(checksum::bytes_checksum(&content, algorithm)?));
    }
    out.attributes = now.as_ref().map(|stat| call.attribute_changes(stat, want)).unwrap_or_default();
    if old.as_deref() == Some(content.as_slice()) {
        if !out.attributes.is_empty() {
            call.ground.back_up(dest)?;
            call.ground.node.set_attributes(dest, want)?;
            out.changed = true;
            out.msg = describe_changes(&out.attributes);
        }
        call.add_path_info(dest, &mut out);
        return Ok(out);
    }
    let mut full = want;
    if let Some(stat) = &now {
        full.mode = want.mode.or(Some(atomic_fs::mode_of(stat)));
        let (uid, gid) = kept_owner(stat);
        full.uid = want.uid.or(uid);
        full.gid = want.gid.or(gid);
    }
    // A file whose old or new mode is private gets no diff. The old mode counts because the diff
    // would show the old content.
    let private = |mode: Option<u32>| mode.is_some_and(|m| m & 0o077 == 0);
    let secrets = &call.ground.secrets;
    let content_is_secret = secrets.is_secret_content(&content, source)
        || old.as_ref().is_some_and(|old| secrets.is_secret_content(old, source));
    let secret = private(full.mode)
        || private(now.as_ref().map(atomic_fs::mode_of))
        || secrets.is_secret(dest)
        || content_is_secret;
    let replaced = now.as_ref().filter(|stat| old.is_some() || is_large(stat));
    if let (Some(stat), true) = (replaced, call.flag("backup", false)) {
        out.extra_keys.insert("backup_file".into(), json!(backup(call, dest, stat)?));
    }
    let validate = call.text(&["validate"]);
    let emptied = content.is_empty() && now.as_ref().is_some_and(|stat| stat.st_size > 0);
    let tool = call.tool();
    call.ground.write(dest, emptied, &content, full, &mut |temp| match &validate {
        None => Ok(()),
        Some(line) => run_validation(&tool, line, temp),
    })?;
    out.changed = true;
    out.msg = match (&now, out.attributes.is_empty()) {
        (None, _) => "created".into(),
        (Some(_), true) => "content changed".into(),
        (Some(_), false) => format!("content changed, {}", describe_changes(&out.attributes)),
    };
    if now.is_none() {
        out.attributes.push(AttributeChange::new("state", "absent", "file"));
        out.attributes.push(AttributeChange::new("mode", "", format!("{:04o}", full.mode.unwrap_or(fresh))));
    }
    out.diff = (!secret && (old.is_some() || now.is_none()))
        .then(|| diff::unified_diff(old.as_deref(), &content, dest, source));
    call.add_path_info(dest, &mut out);
    Ok(out)
}

/// Copies a file that is too large for memory. It compares checksums and makes no diff. A new file
/// gets mode `fresh` unless the task sets `mode`.
pub fn copy_large(call: &mut ModuleCall, from: &Path, dest: &Path, fresh: u32) -> ModuleResult {
    if call.args.contains_key("validate") {
        return Err(format!("{} is too large for `validate`", from.display()));
    }
    let mut dest = dest.to_owned();
    if call.ground.node.is_directory(&dest) {
        dest.push(from.file_name().ok_or("the source has no name")?);
    }
    let Some((dest, now)) = resolve_target(call, &dest)? else {
        return Ok(TaskOutcome::ok("exists, and `force` is off"));
    };
    let want = call.attributes(now.as_ref(), fresh, false)?;
    let attributes = now.as_ref().map(|stat| call.attribute_changes(stat, want)).unwrap_or_default();
    let mut out = TaskOutcome { attributes, ..TaskOutcome::default() };
    let sum = checksum::file_checksum(&call.ground.node, from, "sha1")?;
    let same = now.is_some() && checksum::file_checksum(&call.ground.node, &dest, "sha1")? == sum;
    if !same {
        let mut full = want;
        if let Some(stat) = &now {
            full.mode = want.mode.or(Some(atomic_fs::mode_of(stat)));
            let (uid, gid) = kept_owner(stat);
            full.uid = want.uid.or(uid);
            full.gid = want.gid.or(gid);
        }
        if let (Some(stat), true) = (&now, call.flag("backup", false)) {
            out.extra_keys.insert("backup_file".into(), json!(backup(call, &dest, stat)?));
        }
        call.ground.back_up_replaced(&dest)?;
        call.ground.node.copy(from, &dest, full)?;
    } else if !out.attributes.is_empty() {
        call.ground.back_up(&dest)?;
        call.ground.node.set_attributes(&dest, want)?;
    }
    out.changed = !same || !out.attributes.is_empty();
    out.msg = if same { describe_changes(&out.attributes) } else { "content changed".into() };
    out.extra_keys.insert("checksum".into(), json!(sum));
    out.extra_keys.insert("dest".into(), json!(dest.display().to_string()));
    call.add_path_info(&dest, &mut out);
    Ok(out)
}

/// Copies the present file with its attributes to a name that contains the process id and the time.
/// Returns that name.
fn backup(call: &mut ModuleCall, dest: &Path, stat: &Stat) -> Result<String, String> {
    let time = jiff::Zoned::now().strftime("%Y-%m-%d@%H:%M:%S~").to_string();
    let copy = format!("{}.{}.{time}", dest.display(), std::process::id());
    let (uid, gid) = kept_owner(stat);
    let same = Attributes { mode: Some(atomic_fs::mode_of(stat)), uid, gid };
    call.ground.node.copy(dest, Path::new(&copy), same)?;
    Ok(copy)
}

/// Runs the `validate` command, for example `nginx -t -c %s`. The line is split into words before
/// the file name replaces `%s`.
fn run_validation(tool: &Tool, line: &str, temp: &Path) -> Result<(), String> {
    if !line.contains("%s") {
        return Err("`validate` must contain `%s` for the path of the new file".into());
    }
    let words = crate::lang::word_split::split_words(line).map_err(|e| format!("validate: {e}"))?;
    let temp = temp.display().to_string();
    let argv: Vec<String> = words.into_iter().map(|w| w.text.replace("%s", &temp)).collect();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let done = tool.run(&argv)?;
    require_success("validation", &done)
}
