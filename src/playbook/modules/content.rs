//! `template` and `copy`: a file with this content and these attributes.

use super::{Answer, Call, Outcome, attribute_changes, complaint, diff};
use crate::model::Sha256;
use crate::playbook::plan::{Asset, Plan, Task};
use crate::playbook::safe;
use crate::playbook::scope::Scope;
use crate::playbook::{expr, tera_text};
use rustix::fs::FileType;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The content that a `template` or `copy` task with rendered options gives, and where it comes from.
pub fn content_of(
    plan: &Plan,
    task: &Task,
    args: &serde_json::Map<String, Value>,
    scope: &Scope,
) -> Result<(Vec<u8>, String), String> {
    if task.module == "copy"
        && let Some(content) = args.get("content")
    {
        let text = match content {
            Value::String(s) => s.clone(),
            Value::Null => String::new(),
            other => crate::playbook::yaml_text::json(other, None),
        };
        return Ok((text.into_bytes(), "content".into()));
    }
    let src = args.get("src").and_then(Value::as_str).ok_or("`src` is missing")?;
    let asset = asset(task, src).ok_or_else(|| format!("`{src}` is not among the files of this plan"))?;
    let bytes = blob(plan, asset)?;
    if task.module == "copy" {
        return Ok((bytes.to_vec(), asset.path.clone()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8", asset.path))?;
    let rendered = if asset.path.ends_with(".tera") {
        tera_text::render(scope, text).map_err(|(line, _, message)| format!("{}:{line}: {message}", asset.path))?
    } else {
        let mut parts: BTreeMap<String, Arc<str>> = BTreeMap::new();
        for (name, part) in &task.parts {
            parts.insert(name.clone(), String::from_utf8_lossy(blob(plan, part)?).into());
        }
        expr::render(scope, &asset.path, text, &parts).map_err(|e| {
            format!("{}:{}: {}", e.name().unwrap_or(&asset.path), e.line().unwrap_or(0), expr::explain(&e))
        })?
    };
    Ok((rendered.into_bytes(), asset.path.clone()))
}

/// Why a `.tera` file can't be rendered: its path and text, line, column and message. None: it can, or is none.
pub fn tera_fault(
    plan: &Plan,
    task: &Task,
    args: &serde_json::Map<String, Value>,
    scope: &Scope,
) -> Option<(String, String, u32, u32, String)> {
    let asset = asset(task, args.get("src")?.as_str()?).filter(|asset| asset.path.ends_with(".tera"))?;
    let text = std::str::from_utf8(blob(plan, asset).ok()?).ok()?;
    let (line, column, message) = tera_text::render(scope, text).err()?;
    Some((asset.path.clone(), text.to_owned(), line, column, message))
}

fn asset<'t>(task: &'t Task, src: &str) -> Option<&'t Asset> {
    let plain = src.strip_prefix("./").unwrap_or(src);
    let short = plain.strip_prefix("templates/").or(plain.strip_prefix("files/"));
    [Some(src), Some(plain), short].into_iter().flatten().find_map(|name| task.assets.get(name))
}

fn blob<'p>(plan: &'p Plan, asset: &Asset) -> Result<&'p [u8], String> {
    plan.blobs
        .get(&asset.sha256)
        .map(|b| b.0.as_slice())
        .ok_or_else(|| format!("{}: its content is not in the plan", asset.path))
}

pub fn template(call: &mut Call) -> Answer {
    let (content, source) = content_of(call.plan, call.task, &call.args, call.scope)?;
    let dest = call.path(&["dest"])?;
    place(call, &dest, content, &source)
}

pub fn copy(call: &mut Call) -> Answer {
    let dest = call.path(&["dest"])?;
    if call.flag("remote_src", false) {
        let src = call.path(&["src"])?;
        let content = safe::read(&src)?;
        return place(call, &dest, content, &src.display().to_string());
    }
    let (content, source) = content_of(call.plan, call.task, &call.args, call.scope)?;
    place(call, &dest, content, &source)
}

/// Makes `dest` a file with this content.
pub fn place(call: &mut Call, dest: &Path, content: Vec<u8>, source: &str) -> Answer {
    let mut dest = dest.to_owned();
    let asked = call.text(&["dest", "path", "name"]).unwrap_or_default();
    let into = safe::look(&dest)?.is_some_and(|s| safe::kind(&s) == FileType::Directory);
    if into || asked.ends_with('/') {
        let name = call.text(&["src"]).and_then(|s| Path::new(&s).file_name().map(PathBuf::from));
        dest.push(name.ok_or_else(|| format!("{} is a directory", dest.display()))?);
    }
    let mut now = safe::look(&dest)?;
    if now.is_some_and(|s| safe::kind(&s) == FileType::Symlink) {
        if !call.flag("follow", false) {
            return Err(format!("{} is a symbolic link; `follow: true` writes where it leads", dest.display()));
        }
        dest = std::fs::canonicalize(&dest).map_err(|e| format!("{}: cannot follow the link: {e}", dest.display()))?;
        now = safe::look(&dest)?;
    }
    if now.is_some_and(|s| safe::kind(&s) != FileType::RegularFile) {
        return Err(format!("{} is there and is not a regular file", dest.display()));
    }
    if now.is_some() && !call.flag("force", true) {
        return Ok(Outcome::ok("is there, and `force` is off"));
    }
    let old = now.map(|_| safe::read(&dest)).transpose()?;
    finish(call, &dest, old, content, source)
}

/// Exchanges the content of a regular file, or makes it, or only sets attributes, or finds nothing to do.
pub fn finish(call: &mut Call, dest: &Path, old: Option<Vec<u8>>, content: Vec<u8>, source: &str) -> Answer {
    let now = safe::look(dest)?;
    let want = call.attributes(now.as_ref(), 0o644, false)?;
    let mut out = Outcome::default();
    out.more.insert("dest".into(), json!(dest.display().to_string()));
    out.more.insert("path".into(), json!(dest.display().to_string()));
    out.more.insert("checksum".into(), json!(Sha256::of(&content).to_string()));
    let attributes = now.as_ref().map(|stat| attribute_changes(stat, want)).unwrap_or_default();
    if old.as_deref() == Some(content.as_slice()) {
        if !attributes.is_empty() {
            call.ground.backup.keep(dest)?;
            safe::set_attributes(dest, want)?;
            out.changed = true;
            out.msg = attributes.join(", ");
        }
        return Ok(out);
    }
    let mut full = want;
    if let Some(stat) = &now {
        full.mode = want.mode.or(Some(safe::mode_of(stat)));
        full.uid = want.uid.or(Some(stat.st_uid));
        full.gid = want.gid.or(Some(stat.st_gid));
    }
    let secret = full.mode.is_some_and(|m| m & 0o077 == 0);
    if let (Some(old), true) = (&old, call.flag("backup", false)) {
        let copy = format!("{}.{}.remoor~", dest.display(), call.ground.options.run_id);
        safe::write(Path::new(&copy), old, full, &mut |_| Ok(()))?;
        out.more.insert("backup_file".into(), json!(copy));
    }
    let validate = call.text(&["validate"]);
    call.ground.before_write(dest, old.as_deref(), &content)?;
    safe::write(dest, &content, full, &mut |temp| match &validate {
        None => Ok(()),
        Some(line) => validated(call, line, temp),
    })?;
    out.changed = true;
    out.msg = match (&old, attributes.is_empty()) {
        (None, _) => "created".into(),
        (Some(_), true) => "content changed".into(),
        (Some(_), false) => format!("content changed, {}", attributes.join(", ")),
    };
    out.diff = (!secret && !call.task.no_log).then(|| diff(old.as_deref(), &content, dest, source));
    Ok(out)
}

/// `validate: nginx -t -c %s`, split before the name is put in.
fn validated(call: &Call, line: &str, temp: &Path) -> Result<(), String> {
    let words = crate::playbook::split::words(line).map_err(|e| format!("validate: {e}"))?;
    let temp = temp.display().to_string();
    let argv: Vec<String> = words.into_iter().map(|w| w.text.replace("%s", &temp)).collect();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let done = call.quiet(&argv)?;
    if done.success() { Ok(()) } else { Err(complaint("validation", &done)) }
}
