//! Making a path a regular file with this content and these attributes, for all modules that do.

use super::{Answer, Call, Outcome, Tool, checksum, complaint, diff, said};
use crate::playbook::event::AttributeChange;
use crate::playbook::safe::{self, Attributes};
use rustix::fs::{FileType, Stat};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Makes `dest`, or `name` in it if it is a directory, a file with this content.
pub fn place(call: &mut Call, dest: &Path, content: Vec<u8>, source: &str, name: &Path) -> Answer {
    let mut dest = dest.to_owned();
    if call.is_by_command(&dest) {
        return Ok(Outcome::unknown(format!("{} is made by what was not run", dest.display())));
    }
    let asked = call.text(&["dest", "path", "name"]).unwrap_or_default();
    let into = call.ground.node.is_directory(&dest);
    if into || asked.ends_with('/') {
        let name = name.file_name().map(PathBuf::from);
        dest.push(name.ok_or_else(|| format!("{} is a directory", dest.display()))?);
    }
    let Some((dest, now)) = regular(call, &dest)? else {
        return Ok(Outcome::ok("is there, and `force` is off"));
    };
    let old = old(call, &dest, now.as_ref())?;
    finish(call, &dest, old, content, source)
}

/// What is in the file there now. None also where that is too large to be held: then it is another than any content.
pub fn old(call: &Call, dest: &Path, now: Option<&Stat>) -> Result<Option<Vec<u8>>, String> {
    Ok(now.filter(|stat| !is_large(stat)).map(|_| call.ground.node.read(dest)).transpose()?)
}

/// Whether a file is too large to be held in memory.
pub fn is_large(stat: &Stat) -> bool {
    u64::try_from(stat.st_size).unwrap_or(0) > safe::READ_MAX
}

/// Where the file is to be and what is there now; None: it is there, and is not to be replaced.
pub fn regular(call: &Call, dest: &Path) -> Result<Option<(PathBuf, Option<Stat>)>, String> {
    let mut dest = dest.to_owned();
    let mut now = call.ground.node.look(&dest)?;
    if now.is_some_and(|s| safe::kind(&s) == FileType::Symlink) {
        match call.task.module.as_str() {
            // They change what is in a file, wherever it is.
            "lineinfile" | "blockinfile" | "replace" => (dest, now) = call.ground.node.lead(&dest)?,
            _ if call.flag("follow", false) => (dest, now) = call.ground.node.lead(&dest)?,
            "copy" | "template" if !call.flag("force", true) => return Ok(None),
            // The file takes the place of the link.
            "copy" | "template" => now = None,
            _ => return Err(format!("{} is a symbolic link; `follow: true` writes where it leads", dest.display())),
        }
    }
    if now.is_some_and(|s| safe::kind(&s) != FileType::RegularFile) {
        return Err(format!("{} is there and is not a regular file", dest.display()));
    }
    Ok((now.is_none() || call.flag("force", true)).then_some((dest, now)))
}

/// Makes the directories that are missing above a file, as a login would.
pub fn make_above(call: &mut Call, path: &Path) -> Result<(), String> {
    let mut missing = Vec::new();
    let mut at = path.parent().unwrap_or(path);
    while call.ground.node.follow(at).is_none() {
        missing.push(at.to_owned());
        at = at.parent().ok_or("the path has no parent")?;
    }
    for dir in missing.iter().rev() {
        call.ground.keep(dir)?;
        call.ground.node.make_directory(dir, Attributes { mode: Some(0o755), ..Attributes::default() })?;
    }
    Ok(())
}

/// Exchanges the content of a regular file, or makes it, or only sets attributes, or finds nothing to do.
pub fn finish(call: &mut Call, dest: &Path, old: Option<Vec<u8>>, content: Vec<u8>, source: &str) -> Answer {
    finish_with(call, dest, old, content, source, 0o644)
}

/// The same; a new file has mode `fresh` unless the options say otherwise.
pub fn finish_with(
    call: &mut Call,
    dest: &Path,
    old: Option<Vec<u8>>,
    content: Vec<u8>,
    source: &str,
    fresh: u32,
) -> Answer {
    let now = call.ground.node.look(dest)?.filter(|stat| safe::kind(stat) != FileType::Symlink);
    let want = call.attributes(now.as_ref(), fresh, false)?;
    let mut out = Outcome::default();
    out.more.insert("dest".into(), json!(dest.display().to_string()));
    out.more.insert("path".into(), json!(dest.display().to_string()));
    for (key, algorithm) in [("checksum", "sha1"), ("md5sum", "md5")] {
        out.more.insert(key.into(), json!(checksum::sum(&content, algorithm)?));
    }
    out.attributes = now.as_ref().map(|stat| call.attribute_changes(stat, want)).unwrap_or_default();
    if old.as_deref() == Some(content.as_slice()) {
        if !out.attributes.is_empty() {
            call.ground.keep(dest)?;
            call.ground.node.set_attributes(dest, want)?;
            out.changed = true;
            out.msg = said(&out.attributes);
        }
        call.path_info(dest, &mut out);
        return Ok(out);
    }
    let mut full = want;
    if let Some(stat) = &now {
        full.mode = want.mode.or(Some(safe::mode_of(stat)));
        full.uid = want.uid.or(Some(stat.st_uid));
        full.gid = want.gid.or(Some(stat.st_gid));
    }
    // By what the file was, too: its old content would be in the diff.
    let private = |mode: Option<u32>| mode.is_some_and(|m| m & 0o077 == 0);
    let secret = private(full.mode) || private(now.as_ref().map(safe::mode_of)) || call.ground.secrets.hide(dest);
    let replaced = now.as_ref().filter(|stat| old.is_some() || is_large(stat));
    if let (Some(stat), true) = (replaced, call.flag("backup", false)) {
        out.more.insert("backup_file".into(), json!(backup(call, dest, stat)?));
    }
    let validate = call.text(&["validate"]);
    let emptied = content.is_empty() && now.as_ref().is_some_and(|stat| stat.st_size > 0);
    let tool = call.tool();
    call.ground.write(dest, emptied, &content, full, &mut |temp| match &validate {
        None => Ok(()),
        Some(line) => validated(&tool, line, temp),
    })?;
    out.changed = true;
    out.msg = match (&now, out.attributes.is_empty()) {
        (None, _) => "created".into(),
        (Some(_), true) => "content changed".into(),
        (Some(_), false) => format!("content changed, {}", said(&out.attributes)),
    };
    if now.is_none() {
        out.attributes.push(AttributeChange::new("state", "absent", "file"));
        out.attributes.push(AttributeChange::new("mode", "", format!("{:04o}", full.mode.unwrap_or(fresh))));
    }
    out.diff = (!secret && (old.is_some() || now.is_none())).then(|| diff::of(old.as_deref(), &content, dest, source));
    call.path_info(dest, &mut out);
    Ok(out)
}

/// A file that is too large to be held in memory: compared by its sum, and without a diff.
/// A new one has mode `fresh` unless the options say otherwise.
pub fn large(call: &mut Call, from: &Path, dest: &Path, fresh: u32) -> Answer {
    if call.args.contains_key("validate") {
        return Err(format!("{} is too large for `validate`", from.display()));
    }
    let mut dest = dest.to_owned();
    if call.ground.node.is_directory(&dest) {
        dest.push(from.file_name().ok_or("the source has no name")?);
    }
    let Some((dest, now)) = regular(call, &dest)? else {
        return Ok(Outcome::ok("is there, and `force` is off"));
    };
    let want = call.attributes(now.as_ref(), fresh, false)?;
    let attributes = now.as_ref().map(|stat| call.attribute_changes(stat, want)).unwrap_or_default();
    let mut out = Outcome { attributes, ..Outcome::default() };
    let sum = checksum::of(&call.ground.node, from, "sha1")?;
    let same = now.is_some() && checksum::of(&call.ground.node, &dest, "sha1")? == sum;
    if !same {
        let mut full = want;
        if let Some(stat) = &now {
            full.mode = want.mode.or(Some(safe::mode_of(stat)));
            full.uid = want.uid.or(Some(stat.st_uid));
            full.gid = want.gid.or(Some(stat.st_gid));
        }
        if let (Some(stat), true) = (&now, call.flag("backup", false)) {
            out.more.insert("backup_file".into(), json!(backup(call, &dest, stat)?));
        }
        call.ground.keep_exchanged(&dest)?;
        call.ground.node.copy(from, &dest, full)?;
    } else if !out.attributes.is_empty() {
        call.ground.keep(&dest)?;
        call.ground.node.set_attributes(&dest, want)?;
    }
    out.changed = !same || !out.attributes.is_empty();
    out.msg = if same { said(&out.attributes) } else { "content changed".into() };
    out.more.insert("checksum".into(), json!(sum));
    out.more.insert("dest".into(), json!(dest.display().to_string()));
    call.path_info(&dest, &mut out);
    Ok(out)
}

/// Copies what is there aside, with its attributes, under a name with the time; which.
fn backup(call: &mut Call, dest: &Path, stat: &Stat) -> Result<String, String> {
    let time = jiff::Zoned::now().strftime("%Y-%m-%d@%H:%M:%S~").to_string();
    let copy = format!("{}.{}.{time}", dest.display(), std::process::id());
    let same = Attributes { mode: Some(safe::mode_of(stat)), uid: Some(stat.st_uid), gid: Some(stat.st_gid) };
    call.ground.node.copy(dest, Path::new(&copy), same)?;
    Ok(copy)
}

/// `validate: nginx -t -c %s`, split before the name is put in.
fn validated(tool: &Tool, line: &str, temp: &Path) -> Result<(), String> {
    if !line.contains("%s") {
        return Err("`validate` needs `%s`, for the name of the new file".into());
    }
    let words = crate::playbook::split::words(line).map_err(|e| format!("validate: {e}"))?;
    let temp = temp.display().to_string();
    let argv: Vec<String> = words.into_iter().map(|w| w.text.replace("%s", &temp)).collect();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let done = tool.run(&argv)?;
    if done.success() { Ok(()) } else { Err(complaint("validation", &done)) }
}
