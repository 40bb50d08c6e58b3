//! The `apt_repository` module: one-line repositories in `sources.list` and `sources.list.d`.
//!
//! Ansible rewrites all files of apt if it changes one of them. This module writes only the files
//! in which the repository changes.

use super::{ModuleCall, ModuleResult, TaskOutcome, apt, write_file};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SOURCES_LIST: &str = "/etc/apt/sources.list";
const SOURCES_DIR: &str = "/etc/apt/sources.list.d";
/// Maximum number of `.list` files that are read.
const FILES_MAX: usize = 10_000;

/// One line of a file of apt.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceLine {
    /// Whether the line is a repository, and not a comment or an empty line.
    valid: bool,
    enabled: bool,
    source: String,
    comment: String,
}

type SourceFiles = BTreeMap<PathBuf, Vec<SourceLine>>;

impl SourceLine {
    fn parse(line: &str) -> Self {
        let line = line.trim();
        let (enabled, line) = line.strip_prefix('#').map_or((true, line), |rest| (false, rest));
        let (line, comment) = match line.find('#').filter(|at| *at > 0) {
            Some(at) => (&line[..at], line[at + 1..].trim()),
            None => (line, ""),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let valid = words.first().is_some_and(|word| is_kind(word));
        let source = if valid { words.join(" ") } else { line.trim().to_owned() };
        Self { valid, enabled, source, comment: comment.to_owned() }
    }

    fn text(&self) -> String {
        let begin = if self.enabled { "" } else { "# " };
        let comment = if self.comment.is_empty() { String::new() } else { format!(" # {}", self.comment) };
        format!("{begin}{}{comment}\n", self.source)
    }
}

fn is_kind(word: &str) -> bool {
    matches!(word, "deb" | "deb-src")
}

pub fn apt_repository(call: &mut ModuleCall) -> ModuleResult {
    let repo = call.required_text(&["repo"])?;
    let state = call.text(&["state"]).unwrap_or_else(|| "present".into());
    let line = SourceLine::parse(&repo);
    if !line.valid || !line.enabled || repo.trim().contains('\n') {
        return Err(format!("Invalid repository string: {repo}"));
    }
    let before = read_files(call)?;
    let mut after = before.clone();
    let mut created = None;
    if state == "absent" {
        for lines in after.values_mut() {
            lines.retain(|have| !(have.valid && have.enabled && have.source == line.source));
        }
    } else {
        created = add(call, &mut after, &line)?;
    }
    let dumps = |files: &SourceFiles| -> BTreeMap<PathBuf, String> {
        let filled = files.iter().filter(|(_, lines)| !lines.is_empty());
        filled.map(|(path, lines)| (path.clone(), lines.iter().map(SourceLine::text).collect())).collect()
    };
    let (before, after) = (dumps(&before), dumps(&after));
    let only = |one: &BTreeMap<PathBuf, String>, other: &BTreeMap<PathBuf, String>| -> Vec<PathBuf> {
        one.keys().filter(|path| !other.contains_key(*path)).cloned().collect()
    };
    let (added, removed) = (only(&after, &before), only(&before, &after));
    let mut out = TaskOutcome { changed: before != after, ..TaskOutcome::default() };
    if out.changed {
        write_files(call, &before, &after, created.as_deref(), &mut out)?;
        update_cache(call, &before, &after)?;
    }
    Ok(out.with_result(json!({"repo": repo, "state": state, "sources_added": added, "sources_removed": removed})))
}

fn read_files(call: &ModuleCall) -> Result<SourceFiles, String> {
    let node = &call.ground.node;
    let mut paths = vec![PathBuf::from(SOURCES_LIST)];
    if node.is_directory(Path::new(SOURCES_DIR)) {
        let names = node.list(Path::new(SOURCES_DIR))?;
        let lists = names.iter().filter(|name| {
            let name = name.to_string_lossy();
            name.ends_with(".list") && !name.starts_with('.')
        });
        paths.extend(lists.map(|name| Path::new(SOURCES_DIR).join(name)));
    }
    if paths.len() > FILES_MAX {
        return Err(format!("{SOURCES_DIR} has more than {FILES_MAX} files"));
    }
    let mut out = BTreeMap::new();
    for path in paths {
        let Some((real, _)) = node.find_trusted(&path)? else { continue };
        let text = super::decode_utf8(node.read(&real)?, &path.display())?;
        out.insert(path, text.lines().map(SourceLine::parse).collect());
    }
    Ok(out)
}

/// Enables the repository wherever it is, or adds it to its file. Returns the file to which it was
/// added.
fn add(call: &ModuleCall, files: &mut SourceFiles, line: &SourceLine) -> Result<Option<PathBuf>, String> {
    let mut found = false;
    for have in files.values_mut().flatten().filter(|have| have.valid && have.source == line.source) {
        have.enabled = true;
        found = true;
    }
    if found {
        return Ok(None);
    }
    let path = new_file(call.text(&["filename"]), &line.source);
    if !path.is_absolute() || path.components().any(|c| c == std::path::Component::ParentDir) {
        return Err(format!("`filename` is neither a name nor an absolute path: {}", path.display()));
    }
    files.entry(path.clone()).or_default().push(SourceLine { comment: String::new(), ..line.clone() });
    Ok(Some(path))
}

/// The file to which a new repository is added.
fn new_file(filename: Option<String>, source: &str) -> PathBuf {
    let name = format!("{}.list", filename.unwrap_or_else(|| file_stem(source)));
    if name.contains('/') { PathBuf::from(&name) } else { Path::new(SOURCES_DIR).join(&name) }
}

/// The file that a task of `apt_repository` or `deb822_repository` with these options makes, or
/// removes with `state: absent`. None: another module, or the options do not tell.
pub fn repository_file(module: &str, args: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let path = match module {
        "deb822_repository" => super::deb822_repository::repository_file(text("name")?)?,
        "apt_repository" => {
            let line = SourceLine::parse(text("repo")?);
            new_file(text("filename").map(str::to_owned), line.valid.then_some(line.source.as_str())?)
        }
        _ => return None,
    };
    path.is_absolute().then(|| path.display().to_string())
}

/// The file name for a repository: its address without the protocol and the login, in letters,
/// digits and underscores.
fn file_stem(source: &str) -> String {
    let mut plain = String::new();
    let mut rest = source;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        rest = after.split_once(']').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let address = plain.split_whitespace().find(|word| !is_kind(word)).unwrap_or_default();
    let address = address.split_once("://").map_or(address, |(_, address)| address);
    let address = address.split_once('@').map_or(address, |(_, address)| address);
    let words: Vec<&str> =
        address.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join("_")
}

fn write_files(
    call: &mut ModuleCall,
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
    created: Option<&Path>,
    out: &mut TaskOutcome,
) -> Result<(), String> {
    for (path, text) in after.iter().filter(|(path, text)| before.get(*path) != Some(*text)) {
        let mode = call.args.get("mode").filter(|mode| !mode.is_null() && created == Some(path)).cloned();
        write_file::make_parents(call, path)?;
        let done = write_file::write_system_file(call, path, text.clone().into_bytes(), "apt_repository", mode)?;
        out.diff = out.diff.take().or(done.diff);
        out.diff_path = Some(path.display().to_string());
        out.attributes.extend(done.attributes);
    }
    for path in before.keys().filter(|path| !after.contains_key(*path)) {
        if let Some(stat) = call.ground.node.stat(path)? {
            call.ground.remove_or_park(path, &stat)?;
        }
    }
    Ok(())
}

/// Updates the package lists unless `update_cache` is off. If that fails, the files are restored.
fn update_cache(
    call: &mut ModuleCall,
    before: &BTreeMap<PathBuf, String>,
    after: &BTreeMap<PathBuf, String>,
) -> Result<(), String> {
    if !call.given_flag("update_cache").or(call.given_flag("update-cache")).unwrap_or(true) {
        return Ok(());
    }
    let Err(why) = apt::update_cache(call) else { return Ok(()) };
    for (path, text) in before.iter().filter(|(path, text)| after.get(*path) != Some(*text)) {
        write_file::write_system_file(call, path, text.clone().into_bytes(), "apt_repository", None::<Value>)?;
    }
    for path in after.keys().filter(|path| !before.contains_key(*path)) {
        call.ground.node.remove(path, false)?;
    }
    Err(format!("{why}; the repository was not kept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_apt_are_read_and_written() {
        let written = |line: &str| SourceLine::parse(line).text();
        assert_eq!(written("  deb   http://a  b main "), "deb http://a b main\n");
        assert_eq!(written("#deb http://a b # x"), "# deb http://a b # x\n");
        assert_eq!(written("# a comment"), "# a comment\n");
        assert_eq!(written(""), "\n");
        assert!(!SourceLine::parse("debs http://a").valid && !SourceLine::parse("#deb http://a b").enabled);
    }

    #[test]
    fn a_repository_has_a_file_of_its_own() {
        for (source, want) in [
            ("deb http://dl.example.com/linux/deb/ stable main", "dl_example_com_linux_deb"),
            ("deb [arch=amd64 signed-by=/a/b] https://u:p@x.org/y z", "x_org_y"),
            ("deb-src file:///srv/repo ./", "srv_repo"),
        ] {
            assert_eq!(file_stem(source), want);
        }
    }
}
