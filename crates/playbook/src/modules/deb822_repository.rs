//! The `deb822_repository` module: a repository of apt in the format of RFC 822, with its key.

use super::http_request::{self, WebRequest};
use super::{ModuleCall, ModuleResult, TaskOutcome, write_file};
use crate::os::atomic_fs::Attributes;
use crate::run::event::AttributeChange;
use rustix::fs::FileType;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SOURCES_DIR: &str = "/etc/apt/sources.list.d";
const KEYRINGS_DIR: &str = "/etc/apt/keyrings";
/// Maximum size of a downloaded key, in bytes.
const KEY_MAX: u64 = 4 << 20;
/// The fields of a repository in the order in which they are written, with their types.
const FIELDS: &[(&str, FieldKind)] = &[
    ("allow_downgrade_to_insecure", FieldKind::Boolean),
    ("allow_insecure", FieldKind::Boolean),
    ("allow_weak", FieldKind::Boolean),
    ("architectures", FieldKind::List),
    ("by_hash", FieldKind::Boolean),
    ("check_date", FieldKind::Boolean),
    ("check_valid_until", FieldKind::Boolean),
    ("components", FieldKind::List),
    ("date_max_future", FieldKind::Text),
    ("enabled", FieldKind::Boolean),
    ("inrelease_path", FieldKind::Text),
    ("languages", FieldKind::List),
    ("name", FieldKind::Text),
    ("pdiffs", FieldKind::Boolean),
    ("signed_by", FieldKind::Key),
    ("suites", FieldKind::List),
    ("targets", FieldKind::List),
    ("trusted", FieldKind::Boolean),
    ("types", FieldKind::List),
    ("uris", FieldKind::List),
];

#[derive(Clone, Copy)]
enum FieldKind {
    Boolean,
    List,
    Text,
    Key,
}

pub fn deb822_repository(call: &mut ModuleCall) -> ModuleResult {
    let name = call.required_text(&["name"])?;
    let slug = file_stem(&name);
    if slug.is_empty() {
        return Err(format!("`name` has no letter or digit for the name of a file: {name}"));
    }
    let sources = sources_path(&slug);
    if call.text(&["state"]).as_deref() == Some("absent") {
        return remove(call, &sources, &slug);
    }
    let mut changes = Vec::new();
    let mut key_file = None;
    let mut repository = String::new();
    for (option, kind) in FIELDS {
        let Some(mut value) = field_value(call, option, *kind) else { continue };
        if matches!(kind, FieldKind::Key) {
            let key = signing_key(call, &value, &slug, &mut changes)?;
            value = key.clone().unwrap_or(value);
            key_file = key;
        }
        let value = if value.contains('\n') { fold_lines(&value) } else { value };
        let space = if value.is_empty() || value.starts_with('\n') { "" } else { " " };
        repository.push_str(&format!("{}:{space}{value}\n", field_name(option)));
    }
    let mode = call.args.get("mode").cloned().unwrap_or_else(|| json!("0644"));
    let done = write_file::write_system_file(call, &sources, repository.clone().into_bytes(), &name, Some(mode))?;
    let mut out = TaskOutcome { changed: done.changed || !changes.is_empty(), ..done };
    out.attributes.extend(changes);
    let mut out = out.with_result(json!({"repo": repository, "dest": sources, "key_filename": key_file}));
    call.add_path_info(&sources, &mut out);
    Ok(out)
}

fn sources_path(slug: &str) -> PathBuf {
    Path::new(SOURCES_DIR).join(format!("{slug}.sources"))
}

/// The file of the repository `name`. None: the name has no letter or digit.
pub(super) fn repository_file(name: &str) -> Option<PathBuf> {
    Some(file_stem(name)).filter(|slug| !slug.is_empty()).map(|slug| sources_path(&slug))
}

/// The name in the form that is used for files: small letters, digits and dashes.
fn file_stem(name: &str) -> String {
    let mut out = String::new();
    let mut gap = false;
    for c in name.to_lowercase().chars() {
        let blank = c == '_' || c.is_whitespace();
        if blank && !gap {
            out.push('-');
        }
        gap = blank;
        if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' {
            out.push(c);
        }
    }
    out
}

/// The name of a field by the name of its option.
fn field_name(option: &str) -> String {
    match option {
        "name" => "X-Repolib-Name".into(),
        "uris" => "URIs".into(),
        _ => {
            let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
            option.split('_').map(capital).collect::<Vec<_>>().join("-")
        }
    }
}

fn field_value(call: &ModuleCall, option: &str, kind: FieldKind) -> Option<String> {
    match kind {
        FieldKind::Boolean => call.given_flag(option).map(|on| if on { "yes" } else { "no" }.to_owned()),
        FieldKind::Text | FieldKind::Key => call.text(&[option]),
        FieldKind::List if call.args.get(option).is_none_or(Value::is_null) => {
            (option == "types").then(|| "deb".to_owned())
        }
        FieldKind::List => Some(call.list(&[option]).join(" ")),
    }
}

/// A value of several lines: each is indented, and an empty line is a dot.
fn fold_lines(value: &str) -> String {
    let line = |line: &str| match line.trim() {
        "" => "\n    .".to_owned(),
        line => format!("\n    {line}"),
    };
    value.trim().lines().map(line).collect()
}

/// The file that has the key for `signed_by`, which may be a file or the URL of a key. None: the
/// value is a key or a fingerprint.
fn signing_key(
    call: &mut ModuleCall,
    value: &str,
    slug: &str,
    changes: &mut Vec<AttributeChange>,
) -> Result<Option<String>, String> {
    let is_file = |path: &Path| {
        path.is_absolute()
            && call.ground.node.follow(path).is_some_and(|(_, s)| FileType::from_raw_mode(s.st_mode).is_file())
    };
    if !value.contains('\n') && is_file(Path::new(value)) {
        return Ok(Some(value.to_owned()));
    }
    if value.contains(char::is_whitespace) || !value.contains("://") {
        return Ok(None);
    }
    let shown = http_request::mask_password(value);
    let got = http_request::send_request(call, &WebRequest::get(value))
        .map_err(|why| format!("cannot fetch the key of `signed_by`: {why}"))?;
    if got.status != 200 {
        return Err(format!("cannot fetch the key of `signed_by` from {shown}: {}", got.status_text()));
    }
    let key = got.read_body(call, KEY_MAX)?;
    if key.is_empty() {
        return Ok(Some(value.to_owned()));
    }
    let armored = String::from_utf8_lossy(&key).contains("-----BEGIN PGP PUBLIC KEY BLOCK-----");
    let path = key_path(slug, if armored { "asc" } else { "gpg" });
    ensure_keyrings(call, changes)?;
    let done = write_file::write_system_file(call, &path, key, &shown, Some(json!("0644")))?;
    if done.changed {
        changes.push(AttributeChange::new("key", "", path.display().to_string()));
    }
    Ok(Some(path.display().to_string()))
}

fn key_path(slug: &str, extension: &str) -> PathBuf {
    Path::new(KEYRINGS_DIR).join(format!("{slug}.{extension}"))
}

fn ensure_keyrings(call: &mut ModuleCall, changes: &mut Vec<AttributeChange>) -> Result<(), String> {
    let dir = Path::new(KEYRINGS_DIR);
    if call.ground.node.follow(dir).is_none() {
        call.ground.back_up(dir)?;
        call.ground.node.make_directory(dir, Attributes { mode: Some(0o755), ..Attributes::default() })?;
        changes.push(AttributeChange::new("directory", "absent", KEYRINGS_DIR));
    }
    Ok(())
}

/// Removes the repository and its keys.
fn remove(call: &mut ModuleCall, sources: &Path, slug: &str) -> ModuleResult {
    let mut out = TaskOutcome::default();
    let keys = ["asc", "gpg"].map(|extension| key_path(slug, extension));
    for path in [sources, &keys[0], &keys[1]] {
        if let Some(stat) = call.ground.node.stat(path)? {
            call.ground.remove_or_park(path, &stat)?;
            out.changed = true;
            out.attributes.push(AttributeChange::new("state", path.display().to_string(), "absent"));
        }
    }
    Ok(out.with_result(json!({"repo": null, "dest": sources, "key_filename": keys[1]})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_have_the_form_of_apt() {
        assert_eq!(file_stem("My Repo__x (1.0)"), "my-repo-x-10");
        assert_eq!(field_name("allow_downgrade_to_insecure"), "Allow-Downgrade-To-Insecure");
        assert_eq!(fold_lines("a\n\n  b\n"), "\n    a\n    .\n    b");
    }
}
