//! The content that `template` and `copy` write, built from the files in the plan.

use super::{ModuleCall, ModuleResult, TaskOutcome, write_file};
use crate::plan::{Asset, Plan, Task};
use crate::template::template_fault::{Language, TemplateFault};
use crate::template::{dialect, expr, lint, tera_text};
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::var_map::{self, Var, VarMap};
use regex::Regex;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// The reason why the content of a file cannot be built. Its text is the message of the failed
/// task.
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

/// The content of a `template` or `copy` task whose options are rendered, and the source of that
/// content for diffs.
pub fn content_of(
    plan: &Plan,
    task: &Task,
    args: &serde_json::Map<String, Value>,
    scope: &ExprScope,
) -> Result<(Vec<u8>, String), ContentError> {
    if task.module == "copy"
        && let Some(content) = args.get("content")
    {
        let text = match content {
            Value::String(s) => s.clone(),
            Value::Null => String::new(),
            other => crate::lang::python::json_line(other),
        };
        return Ok((text.into_bytes(), "content".into()));
    }
    let (asset, bytes) = source_of(plan, task, args).map_err(ContentError::Source)?;
    if task.module == "copy" {
        return Ok((bytes.to_vec(), asset.path.clone()));
    }
    let text = template_text(asset, bytes).map_err(ContentError::Source)?;
    let scope = &scope.with_layer(template_variables(asset, args, scope));
    let fault = |fault| ContentError::Template(Box::new(fault));
    let rendered = match Language::for_path(&asset.path) {
        Language::Tera => {
            tera_text::render(scope, &asset.path, text).map_err(fault)?.replace('\n', newline_sequence(args))
        }
        Language::Jinja => {
            let of_dialect = |path: &str, why| ContentError::Source(format!("{path}: {why}"));
            let dialect = dialect::read(text, args, false).map_err(|why| of_dialect(&asset.path, why))?;
            let args = &dialect.options;
            let text = &*apply_block_options(&dialect.text, args);
            let newline = newline_sequence(args);
            // Jinja2 removes one newline at the end of the source.
            let source = with_newlines(text.strip_suffix('\n').unwrap_or(text), newline);
            let mut parts: BTreeMap<String, Arc<str>> = BTreeMap::new();
            for (name, part) in &task.files.parts {
                let bytes = asset_content(plan, part).map_err(ContentError::Source)?;
                let part = String::from_utf8_lossy(bytes);
                let own = dialect::read(&part, args, true).map_err(|why| of_dialect(name, why))?;
                let part = apply_block_options(&own.text, args);
                // Jinja2 removes one trailing newline from an included template.
                let part = with_newlines(part.strip_suffix('\n').unwrap_or(&part), newline);
                parts.insert(name.clone(), (&*part).into());
            }
            let (rendered, trace) = with_trace(|| expr::render_file(scope, &asset.path, &source, &parts));
            let (rendered, is_value) = rendered.map_err(|e| {
                // If the error is in an included template, the path and text of that template are
                // reported.
                let part = e.name().and_then(|name| Some((task.files.parts.get(name)?, parts.get(name)?)));
                let (path, text) = part.map_or((&asset.path, text), |(part, text)| (&part.path, text));
                fault(TemplateFault::of_jinja(path, text, &e, &trace, scope))
            })?;
            // Ansible adds newlines until the result has as many at its end as the source.
            let ends = |text: &str, newline: &str| (text.len() - text.trim_end_matches(newline).len()) / newline.len();
            let missing = ends(text, "\n").saturating_sub(ends(&rendered, newline));
            if is_value { rendered } else { rendered + &newline.repeat(missing) }
        }
    };
    Ok((rendered.into_bytes(), asset.path.clone()))
}

/// The variables that describe the template itself. Host, owner and times are left out, because
/// every run must produce the same text.
fn template_variables(asset: &Asset, args: &serde_json::Map<String, Value>, scope: &ExprScope) -> VarMap {
    let mut out = VarMap::default();
    let mut set = |name: &str, value: &str| out.set(name, Var::Plain(Value::from(value)));
    if !scope.knows("ansible_managed") {
        set("ansible_managed", "Ansible managed");
    }
    set("template_fullpath", &asset.path);
    for (name, option) in [("template_path", "src"), ("template_destpath", "dest")] {
        set(name, args.get(option).and_then(Value::as_str).unwrap_or_default());
    }
    out
}

/// The path of the template of a task, its text, and the scope in which it is rendered. None if the
/// plan does not contain the template or if it is not UTF-8.
pub fn template_of<'p>(
    plan: &'p Plan,
    task: &'p Task,
    args: &serde_json::Map<String, Value>,
    scope: &ExprScope,
) -> Option<(&'p str, &'p str, ExprScope)> {
    let (asset, bytes) = source_of(plan, task, args).ok()?;
    let text = template_text(asset, bytes).ok()?;
    Some((&asset.path, text, scope.with_layer(template_variables(asset, args, scope))))
}

fn source_of<'p>(
    plan: &'p Plan,
    task: &'p Task,
    args: &serde_json::Map<String, Value>,
) -> Result<(&'p Asset, &'p [u8]), String> {
    let src = args.get("src").and_then(Value::as_str).ok_or("`src` is missing")?;
    let asset = find_asset(task, src).ok_or_else(|| format!("the plan does not contain the file `{src}`"))?;
    Ok((asset, asset_content(plan, asset)?))
}

fn template_text<'p>(asset: &Asset, bytes: &'p [u8]) -> Result<&'p str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8", asset.path))
}

/// The plan's file for a name in a task option. `./`, `templates/` and `files/` before the name are
/// optional.
pub fn find_asset<'t>(task: &'t Task, src: &str) -> Option<&'t Asset> {
    let plain = src.strip_prefix("./").unwrap_or(src);
    let short = plain.strip_prefix("templates/").or(plain.strip_prefix("files/"));
    [Some(src), Some(plain), short].into_iter().flatten().find_map(|name| task.files.assets.get(name))
}

/// The content of a file in the plan.
pub fn asset_content<'p>(plan: &'p Plan, asset: &Asset) -> Result<&'p [u8], String> {
    plan.blobs
        .get(&asset.sha256)
        .map(|b| b.0.as_slice())
        .ok_or_else(|| format!("{}: the plan does not contain its content", asset.path))
}

/// Replaces `mode: preserve` by the mode of the source file.
pub fn apply_preserved_mode(call: &mut ModuleCall, asset: &Asset) -> Result<(), String> {
    if call.text(&["mode"]).as_deref() == Some("preserve") {
        let mode =
            asset.mode.ok_or_else(|| format!("the mode of {} is not known; set `mode` explicitly", asset.path))?;
        call.args.insert("mode".into(), format!("{mode:04o}").into());
    }
    Ok(())
}

pub fn template(call: &mut ModuleCall) -> ModuleResult {
    let (content, trace) = with_trace(|| content_of(call.plan, call.task, &call.args, call.scope));
    if trace.unknown {
        return Ok(TaskOutcome::indeterminate("its content depends on a result that is unknown in check mode"));
    }
    let (content, source) = content?;
    let dest = call.path(&["dest"])?;
    let name = call.text(&["src"]).unwrap_or_default();
    if let Some(asset) = find_asset(call.task, &name).cloned() {
        apply_preserved_mode(call, &asset)?;
    }
    write_file::write_content(call, &dest, content, &source, Path::new(&name))
}

/// Prepares a template for minijinja, which removes the newline after a block (`trim_blocks`) and
/// keeps the blanks before a block. Normalizes line endings, and edits the text according to the
/// options `trim_blocks` and `lstrip_blocks`. Text in `raw` blocks stays as it is.
fn apply_block_options<'t>(text: &'t str, args: &serde_json::Map<String, Value>) -> Cow<'t, str> {
    /// `BEGIN` finds a block or comment after blanks at the start of a line, and `END` finds one at
    /// the end of a line. Blocks with an explicit `+` or `-` do not match.
    static BEGIN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?m)^[ \t]+(\{[%#])([^+])").ok());
    static END: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"([^-+])([%#]\}\n)").ok());
    static RAW: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?s)%\}.*?\{%[-+]?\s*endraw").ok());
    static OPEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\{%[-+]?\s*raw\s*[-+]?%\}").ok());
    let flag = |name: &str, default: bool| args.get(name).and_then(var_map::boolean).unwrap_or(default);
    let mut text = Cow::Borrowed(text);
    if text.contains('\r') {
        text = text.replace("\r\n", "\n").replace('\r', "\n").into();
    }
    let (trim, lstrip) = (flag("trim_blocks", true), flag("lstrip_blocks", false));
    let (Some(begin), Some(end), Some(raw), Some(open)) = (&*BEGIN, &*END, &*RAW, &*OPEN) else { return text };
    if trim && !lstrip {
        return text;
    }
    let change = |part: &str| {
        let part = if lstrip { begin.replace_all(part, "$1$2") } else { part.into() };
        if trim { part.into_owned() } else { end.replace_all(&part, "$1+$2").into_owned() }
    };
    let mut out = String::new();
    let mut from = 0;
    while let Some(start) = open.find_at(&text, from) {
        let inside = start.end() - 2;
        let close = raw.find_at(&text, inside).map_or(text.len(), |m| m.end());
        out.push_str(&change(&text[from..start.end()]));
        out.push_str(&text[start.end()..close]);
        from = close;
    }
    out.push_str(&change(&text[from..]));
    out.into()
}

/// The option `newline_sequence`: the line ending of the result.
fn newline_sequence(args: &serde_json::Map<String, Value>) -> &'static str {
    match args.get("newline_sequence").and_then(Value::as_str) {
        Some("\r\n" | "\\r\\n") => "\r\n",
        Some("\r" | "\\r") => "\r",
        _ => "\n",
    }
}

/// Replaces the newlines in the plain text of a template. Those in values stay as they are, and so
/// does the newline after a statement, which Jinja2 removes.
fn with_newlines<'t>(text: &'t str, newline: &str) -> Cow<'t, str> {
    if newline == "\n" {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    let mut trimmed = false;
    for part in lint::parts(text) {
        let plain = !part.whole.starts_with('{') || part.inner.is_none() && !part.whole.starts_with("{#");
        match (plain, trimmed, part.whole.strip_prefix('\n')) {
            (true, true, Some(rest)) => out.extend(["\n", &rest.replace('\n', newline)]),
            (true, ..) => out.push_str(&part.whole.replace('\n', newline)),
            _ => out.push_str(part.whole),
        }
        trimmed =
            !plain && !part.whole.starts_with("{{") && !part.whole.ends_with("+%}") && !part.whole.ends_with("+#}");
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn block_options_control_whitespace() {
        let text =
            "a\n  {% if x %}\n b {% y %}\n  {%+ z %}\n{% raw %}\n  {% k %}\n{% endraw %}\n  {# c #}\n  {{ v }}\n";
        let args = |v: Value| v.as_object().cloned().unwrap_or_default();
        assert_eq!(apply_block_options(text, &args(json!({}))), text);
        assert_eq!(
            apply_block_options(text, &args(json!({"lstrip_blocks": true}))),
            "a\n{% if x %}\n b {% y %}\n  {%+ z %}\n{% raw %}\n  {% k %}\n{% endraw %}\n{# c #}\n  {{ v }}\n"
        );
        assert_eq!(
            apply_block_options(text, &args(json!({"trim_blocks": "no"}))),
            "a\n  {% if x +%}\n b {% y +%}\n  {%+ z +%}\n{% raw %}\n  {% k %}\n{% endraw +%}\n  {# c +#}\n  {{ v }}\n"
        );
        assert_eq!(apply_block_options("a\r\nb\r", &args(json!({}))), "a\nb\n");
    }
}
