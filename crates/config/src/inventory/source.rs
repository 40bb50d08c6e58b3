//! Detects the kind of an inventory path and calls its reader: a directory (each source in it), an
//! executable, YAML or INI, distinguished as in Ansible.

use super::draft::{Draft, SourcePosition};
use super::{ini, script, yaml};
use crate::tree;
use remoor_model::Fault;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Names in a directory of sources that are not sources.
const NO_SOURCES: &[&str] = &["group_vars", "host_vars", "vars_plugins"];
/// Suffixes that Ansible skips in a directory of sources.
const NO_SOURCE_ENDINGS: &[&str] =
    &[".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry"];
/// Maximum depth of directories below an inventory directory.
const DEPTH_MAX: usize = 16;
/// Maximum number of files and directories of one inventory; some may be programs that take long.
const SOURCES_MAX: usize = 500;
/// Maximum number of entries of one directory.
const ENTRIES_MAX: usize = 10_000;

/// Reads all sources at `path`; records faults in `draft`. Files are named relative to `root`.
pub fn read(root: &Path, path: &Path, draft: &mut Draft) {
    walk(root, path, draft, 0);
}

fn walk(root: &Path, path: &Path, draft: &mut Draft, depth: usize) {
    let file = relative_name(root, path);
    let at = SourcePosition::new(&file, 0, 0);
    draft.sources += 1;
    if draft.sources > SOURCES_MAX {
        if draft.sources == SOURCES_MAX + 1 {
            draft.faults.push(at.fault(format!("with this one the inventory has more than {SOURCES_MAX} sources")));
        }
        return;
    }
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) => {
            let fault = at.fault(format!("the inventory could not be read: {error}"));
            draft.faults.push(fault);
            return;
        }
    };
    if meta.is_dir() {
        if depth >= DEPTH_MAX {
            draft.faults.push(at.fault(format!("directories nested deeper than {DEPTH_MAX}")));
            return;
        }
        match entries(path) {
            Ok(names) => {
                let mut found = false;
                for name in names.iter().filter(|name| is_source(name)) {
                    found = true;
                    walk(root, &path.join(name), draft, depth + 1);
                }
                if !found && depth == 0 {
                    draft.faults.push(at.fault("there is no inventory in this directory"));
                }
            }
            Err(why) => draft.faults.push(at.fault(why)),
        }
        return;
    }
    let bytes = match read_content(path) {
        Ok(bytes) => bytes,
        Err(why) => {
            draft.faults.push(at.fault(why));
            return;
        }
    };
    let executable = meta.permissions().mode() & 0o111 != 0;
    let program = bytes.starts_with(b"#!") || bytes.starts_with(b"\x7fELF");
    match (program, executable) {
        (true, true) => return script::read(&file, path, script::ScriptLimits::default(), draft),
        (true, false) => {
            draft.faults.push(at.fault("looks like a program but is not executable").hint(format!("chmod +x {file}")));
            return;
        }
        _ => {}
    }
    let Ok(text) = std::str::from_utf8(&bytes) else {
        draft.faults.push(at.fault("is not UTF-8"));
        return;
    };
    if let Some(fault) = vault_fault(&file, text) {
        draft.faults.push(fault);
        return;
    }
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("yml" | "yaml" | "json") => match tree::parse(&file, text) {
            Ok(Some(node)) => yaml::read(&file, &node, draft),
            Ok(None) => draft.faults.push(at.fault("the inventory is empty")),
            Err(faults) => draft.faults.extend(faults),
        },
        Some("toml") => {
            draft.faults.push(
                at.fault("inventories in TOML are not read").hint("ansible-inventory -i FILE --list --yaml --export"),
            );
        }
        None => match tree::parse(&file, text) {
            // A file without a suffix is YAML if it parses as a mapping, otherwise INI. An INI file
            // is never a mapping: a plain list of hosts is one YAML text, and sections are a YAML
            // list.
            Ok(Some(node)) if node.entries().is_some() => yaml::read(&file, &node, draft),
            Err(faults) if begins_as_yaml(text) => draft.faults.extend(faults),
            _ => ini::read(&file, text, draft),
        },
        Some(_) => ini::read(&file, text, draft),
    }
}

fn is_source(name: &str) -> bool {
    !name.starts_with('.')
        && !NO_SOURCES.contains(&name)
        && !NO_SOURCE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file is meant as YAML: the first line that is no comment is `---` or a key.
fn begins_as_yaml(text: &str) -> bool {
    let first = text
        .lines()
        .map(str::trim_end)
        .find(|line| !line.trim().is_empty() && !line.trim_start().starts_with(['#', ';']));
    first.is_some_and(|line| line == "---" || line.ends_with(':'))
}

/// Returns the fault if a source is encrypted as a whole. Its hosts must be known without a
/// password, because a generation contains only ciphertext.
fn vault_fault(file: &str, text: &str) -> Option<Fault> {
    remoor_vault::is_encrypted(text.as_bytes()).then(|| {
        Fault::error(file, 1, 1, "is an inventory that is encrypted as a whole")
            .hint("encrypt single values with `ansible-vault encrypt_string`, or files of group_vars and host_vars")
    })
}

/// Names in a directory, sorted.
pub fn entries(path: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| format!("could not be read: {error}"))? {
        let entry = entry.map_err(|error| format!("could not be read: {error}"))?;
        names.push(
            entry
                .file_name()
                .into_string()
                .map_err(|name| format!("has a name that is not UTF-8: {}", name.display()))?,
        );
        if names.len() > ENTRIES_MAX {
            return Err(format!("has more than {ENTRIES_MAX} entries"));
        }
    }
    names.sort();
    Ok(names)
}

/// A regular file's content, limited in size.
pub fn read_content(path: &Path) -> Result<Vec<u8>, String> {
    let meta = fs::metadata(path).map_err(|error| format!("could not be read: {error}"))?;
    if !meta.is_file() {
        return Err("is not a regular file".into());
    }
    let file = fs::File::open(path).map_err(|error| format!("could not be read: {error}"))?;
    let mut bytes = Vec::new();
    // A program may be larger than a text; its first bytes are enough to recognise it.
    file.take(tree::FILE_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("could not be read: {error}"))?;
    let program = bytes.starts_with(b"#!") || bytes.starts_with(b"\x7fELF");
    if bytes.len() > tree::FILE_MAX && !program {
        return Err(format!("is larger than {} MiB", tree::FILE_MAX >> 20));
    }
    Ok(bytes)
}

/// `path` for messages: relative to `root` if `path` is below `root`.
pub fn relative_name(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
