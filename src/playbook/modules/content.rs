//! `template` and `copy`: a file with this content and these attributes.

use super::{Answer, Call, Outcome, Tool, attribute_changes, complaint, diff};
use crate::model::Sha256;
use crate::playbook::plan::{Asset, Plan, Task};
use crate::playbook::safe;
use crate::playbook::scope::{Scope, traced};
use crate::playbook::template_fault::{Language, TemplateFault};
use crate::playbook::{expr, tera_text};
use rustix::fs::FileType;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why there is no content; the text of it is the message of the failed task.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("{0}")]
    Template(Box<TemplateFault>),
    #[error("{0}")]
    Source(String),
}

impl From<ContentError> for String {
    fn from(e: ContentError) -> Self {
        e.to_string()
    }
}

/// The content that a `template` or `copy` task with rendered options gives, and where it comes from.
pub fn content_of(
    plan: &Plan,
    task: &Task,
    args: &serde_json::Map<String, Value>,
    scope: &Scope,
) -> Result<(Vec<u8>, String), ContentError> {
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
    let (asset, bytes) = source_of(plan, task, args).map_err(ContentError::Source)?;
    if task.module == "copy" {
        return Ok((bytes.to_vec(), asset.path.clone()));
    }
    let text = template_text(asset, bytes).map_err(ContentError::Source)?;
    let fault = |fault| ContentError::Template(Box::new(fault));
    let rendered = match Language::of(&asset.path) {
        Language::Tera => tera_text::render(scope, &asset.path, text).map_err(fault)?,
        Language::Jinja => {
            let mut parts: BTreeMap<String, Arc<str>> = BTreeMap::new();
            for (name, part) in &task.parts {
                let bytes = blob(plan, part).map_err(ContentError::Source)?;
                parts.insert(name.clone(), String::from_utf8_lossy(bytes).into());
            }
            let (rendered, trace) = traced(|| expr::render(scope, &asset.path, text, &parts));
            rendered.map_err(|e| {
                // It may stand in a template that this one includes.
                let part = e.name().and_then(|name| Some((task.parts.get(name)?, parts.get(name)?)));
                let (path, text) = part.map_or((&asset.path, text), |(part, text)| (&part.path, text));
                fault(TemplateFault::of_jinja(path, text, &e, &trace, scope))
            })?
        }
    };
    Ok((rendered.into_bytes(), asset.path.clone()))
}

/// The template of a task, as text, and its path.
pub fn template_of<'p>(
    plan: &'p Plan,
    task: &'p Task,
    args: &serde_json::Map<String, Value>,
) -> Option<(&'p str, &'p str)> {
    let (asset, bytes) = source_of(plan, task, args).ok()?;
    Some((&asset.path, template_text(asset, bytes).ok()?))
}

fn source_of<'p>(
    plan: &'p Plan,
    task: &'p Task,
    args: &serde_json::Map<String, Value>,
) -> Result<(&'p Asset, &'p [u8]), String> {
    let src = args.get("src").and_then(Value::as_str).ok_or("`src` is missing")?;
    let asset = asset(task, src).ok_or_else(|| format!("`{src}` is not among the files of this plan"))?;
    Ok((asset, blob(plan, asset)?))
}

fn template_text<'p>(asset: &Asset, bytes: &'p [u8]) -> Result<&'p str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8", asset.path))
}

/// The file that a task's option names.
pub fn asset<'t>(task: &'t Task, src: &str) -> Option<&'t Asset> {
    let plain = src.strip_prefix("./").unwrap_or(src);
    let short = plain.strip_prefix("templates/").or(plain.strip_prefix("files/"));
    [Some(src), Some(plain), short].into_iter().flatten().find_map(|name| task.assets.get(name))
}

/// Its content.
pub fn blob<'p>(plan: &'p Plan, asset: &Asset) -> Result<&'p [u8], String> {
    plan.blobs
        .get(&asset.sha256)
        .map(|b| b.0.as_slice())
        .ok_or_else(|| format!("{}: its content is not in the plan", asset.path))
}

pub fn template(call: &mut Call) -> Answer {
    let (content, trace) = traced(|| content_of(call.plan, call.task, &call.args, call.scope));
    if trace.unknown {
        return Ok(Outcome::unknown("its content depends on what was not run"));
    }
    let (content, source) = content?;
    let dest = call.path(&["dest"])?;
    place(call, &dest, content, &source)
}

pub fn copy(call: &mut Call) -> Answer {
    let dest = call.path(&["dest"])?;
    if call.flag("remote_src", false) {
        let src = call.path(&["src"])?;
        let content = call.ground.node.read(&src)?;
        return place(call, &dest, content, &src.display().to_string());
    }
    let (content, trace) = traced(|| content_of(call.plan, call.task, &call.args, call.scope));
    if trace.unknown {
        return Ok(Outcome::unknown("its content depends on what was not run"));
    }
    let (content, source) = content?;
    place(call, &dest, content, &source)
}

/// Makes `dest` a file with this content.
pub fn place(call: &mut Call, dest: &Path, content: Vec<u8>, source: &str) -> Answer {
    let mut dest = dest.to_owned();
    if call.is_by_command(&dest) {
        return Ok(Outcome::unknown(format!("{} is made by what was not run", dest.display())));
    }
    let asked = call.text(&["dest", "path", "name"]).unwrap_or_default();
    let into = call.ground.node.look(&dest)?.is_some_and(|s| safe::kind(&s) == FileType::Directory);
    if into || asked.ends_with('/') {
        let name = call.text(&["src"]).and_then(|s| Path::new(&s).file_name().map(PathBuf::from));
        dest.push(name.ok_or_else(|| format!("{} is a directory", dest.display()))?);
    }
    let mut now = call.ground.node.look(&dest)?;
    if now.is_some_and(|s| safe::kind(&s) == FileType::Symlink) {
        if !call.flag("follow", false) {
            return Err(format!("{} is a symbolic link; `follow: true` writes where it leads", dest.display()));
        }
        let real = call.ground.node.follow(&dest).map(|(real, _)| real);
        dest = real.ok_or_else(|| format!("{}: cannot follow the link", dest.display()))?;
        now = call.ground.node.look(&dest)?;
    }
    if now.is_some_and(|s| safe::kind(&s) != FileType::RegularFile) {
        return Err(format!("{} is there and is not a regular file", dest.display()));
    }
    if now.is_some() && !call.flag("force", true) {
        return Ok(Outcome::ok("is there, and `force` is off"));
    }
    let old = now.map(|_| call.ground.node.read(&dest)).transpose()?;
    finish(call, &dest, old, content, source)
}

/// Exchanges the content of a regular file, or makes it, or only sets attributes, or finds nothing to do.
pub fn finish(call: &mut Call, dest: &Path, old: Option<Vec<u8>>, content: Vec<u8>, source: &str) -> Answer {
    let now = call.ground.node.look(dest)?;
    let want = call.attributes(now.as_ref(), 0o644, false)?;
    let mut out = Outcome::default();
    out.more.insert("dest".into(), json!(dest.display().to_string()));
    out.more.insert("path".into(), json!(dest.display().to_string()));
    out.more.insert("checksum".into(), json!(Sha256::of(&content).to_string()));
    let attributes = now.as_ref().map(|stat| attribute_changes(stat, want)).unwrap_or_default();
    if old.as_deref() == Some(content.as_slice()) {
        if !attributes.is_empty() {
            call.ground.keep(dest)?;
            call.ground.node.set_attributes(dest, want)?;
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
    // By what the file was, too: its old content would be in the diff.
    let private = |mode: Option<u32>| mode.is_some_and(|m| m & 0o077 == 0);
    let secret = private(full.mode) || private(now.as_ref().map(safe::mode_of)) || call.ground.secrets.hide(dest);
    if let (Some(old), true) = (&old, call.flag("backup", false)) {
        let copy = format!("{}.{}.remoor~", dest.display(), call.ground.options.run_id);
        call.ground.node.write(Path::new(&copy), old, full, &mut |_| Ok(()))?;
        out.more.insert("backup_file".into(), json!(copy));
    }
    let validate = call.text(&["validate"]);
    call.ground.before_write(dest, old.as_deref(), &content)?;
    let tool = call.tool();
    call.ground.node.write(dest, &content, full, &mut |temp| match &validate {
        None => Ok(()),
        Some(line) => validated(&tool, line, temp),
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
fn validated(tool: &Tool, line: &str, temp: &Path) -> Result<(), String> {
    let words = crate::playbook::split::words(line).map_err(|e| format!("validate: {e}"))?;
    let temp = temp.display().to_string();
    let argv: Vec<String> = words.into_iter().map(|w| w.text.replace("%s", &temp)).collect();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let done = tool.run(&argv)?;
    if done.success() { Ok(()) } else { Err(complaint("validation", &done)) }
}
