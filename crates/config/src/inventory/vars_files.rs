//! `group_vars/` and `host_vars/` next to the inventory. For each name of a group or host, the
//! first existing one of these is read, as in Ansible: the directory, the file without suffix,
//! `.yml`, `.yaml`, `.json`. Any further file or directory for that name is not read, and causes a
//! warning.

use super::draft::{Draft, FileVars, SourcePosition, VarsWithOrigins};
use super::source::{entries, read_content, relative_name};
use crate::tree;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Suffixes of files that sops has encrypted. As with the vars plugin of `community.sops`, each of
/// them is read, after the other files of its group or host.
const SOPS_ENDINGS: &[&str] = &[".sops.yml", ".sops.yaml", ".sops.json"];
/// Suffixes of files with variables, in the order in which they are tried.
const ENDINGS: &[&str] = &["", ".yml", ".yaml", ".json"];
/// Maximum depth of directories below `group_vars` and `host_vars`.
const DEPTH_MAX: usize = 16;

/// Whether `group_vars` and `host_vars` are next to the inventory or next to a playbook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VarsLocation {
    Inventory,
    Playbook,
}

/// Reads `group_vars` and `host_vars` below `base` into `draft`. The variables override those of an
/// earlier call.
pub fn read(root: &Path, base: &Path, beside: VarsLocation, draft: &mut Draft) {
    let mut names: BTreeSet<String> = draft.groups.keys().cloned().collect();
    names.extend(["all".to_owned(), "ungrouped".to_owned()]);
    for (name, vars) in directory(root, &base.join("group_vars"), "group", &names, draft) {
        let group = draft.groups.entry(name).or_default();
        if beside == VarsLocation::Inventory { &mut group.file_vars } else { &mut group.near_vars }.extend(vars);
    }
    let names: BTreeSet<String> = draft.hosts.keys().cloned().collect();
    for (name, vars) in directory(root, &base.join("host_vars"), "host", &names, draft) {
        let host = draft.hosts.entry(name).or_default();
        if beside == VarsLocation::Inventory { &mut host.file_vars } else { &mut host.near_vars }.extend(vars);
    }
}

/// The variables that the directory `path` has for each of `names`. Names without variables are
/// omitted.
fn directory(
    root: &Path,
    path: &Path,
    kind: &str,
    names: &BTreeSet<String>,
    draft: &mut Draft,
) -> Vec<(String, Vec<FileVars>)> {
    if !path.is_dir() {
        return Vec::new();
    }
    let present = match entries(path) {
        Ok(present) => present,
        Err(why) => {
            draft.faults.push(SourcePosition::new(&relative_name(root, path), 0, 0).fault(why));
            return Vec::new();
        }
    };
    let (mut out, mut by_sops) = (Vec::new(), Vec::new());
    for entry in &present {
        if entry.starts_with('.') || entry.ends_with('~') {
            continue;
        }
        let stem = SOPS_ENDINGS.iter().find_map(|ending| entry.strip_suffix(ending));
        if let Some(stem) = stem.filter(|stem| names.contains(*stem)) {
            let vars = read_vars_file(root, &path.join(entry), draft);
            by_sops.push((stem.to_owned(), vars.into_iter().collect()));
            continue;
        }
        let at = SourcePosition::new(&relative_name(root, &path.join(entry)), 0, 0);
        let stem =
            ENDINGS.iter().rev().find_map(|ending| entry.strip_suffix(ending).filter(|stem| names.contains(*stem)));
        // A copy such as `all.yml.sample` is no file of variables, and not misspelled either.
        if stem.is_none() && entry.split_once('.').is_some_and(|(name, _)| names.contains(name)) {
            continue;
        }
        let Some(name) = stem else {
            let stem = ENDINGS[1..].iter().find_map(|ending| entry.strip_suffix(ending)).unwrap_or(entry);
            let mut fault = at.fault(format!("there is no {kind} `{stem}`"));
            fault.hint = remoor_model::did_you_mean(stem, names.iter().map(String::as_str));
            fault.warning = true;
            draft.warnings.push(fault);
            continue;
        };
        let first =
            ENDINGS.iter().map(|ending| format!("{name}{ending}")).find(|candidate| present.contains(candidate));
        if first.as_ref() != Some(entry) {
            let mut fault = at.fault(format!("is not read, because `{}` comes first", first.unwrap_or_default()));
            fault.hint = Some("put both into one directory of that name".into());
            fault.warning = true;
            draft.warnings.push(fault);
            continue;
        }
        let mut files = Vec::new();
        collect_files(root, &path.join(entry), &mut files, 0, draft);
        files.sort_by_key(|file| SOPS_ENDINGS.iter().any(|ending| file.to_string_lossy().ends_with(ending)));
        let vars = files.iter().filter_map(|file| read_vars_file(root, file, draft)).collect();
        out.push((name.to_owned(), vars));
    }
    out.extend(by_sops);
    out
}

/// Appends to `out` the file `path`, or all files below the directory `path`, sorted by name.
fn collect_files(root: &Path, path: &Path, out: &mut Vec<PathBuf>, depth: usize, draft: &mut Draft) {
    if !path.is_dir() {
        out.push(path.to_owned());
        return;
    }
    let at = SourcePosition::new(&relative_name(root, path), 0, 0);
    if depth >= DEPTH_MAX {
        draft.faults.push(at.fault(format!("directories nested deeper than {DEPTH_MAX}")));
        return;
    }
    match entries(path) {
        Ok(names) => {
            for name in names.iter().filter(|name| !name.starts_with('.') && !name.ends_with('~')) {
                let inner = path.join(name);
                let ending = inner.extension().map(|ending| format!(".{}", ending.display())).unwrap_or_default();
                if if inner.is_dir() { ending.is_empty() } else { ENDINGS.contains(&ending.as_str()) } {
                    collect_files(root, &inner, out, depth + 1, draft);
                }
            }
        }
        Err(why) => draft.faults.push(at.fault(why)),
    }
}

/// Reads the variables of one file. None: the file is empty, or has a fault, which is recorded.
fn read_vars_file(root: &Path, path: &Path, draft: &mut Draft) -> Option<FileVars> {
    let file = relative_name(root, path);
    let at = SourcePosition::new(&file, 0, 0);
    let text = match read_content(path).map(String::from_utf8) {
        Ok(Ok(text)) => text,
        Ok(Err(_)) => {
            draft.faults.push(at.fault("is not UTF-8"));
            return None;
        }
        Err(why) => {
            draft.faults.push(at.fault(why));
            return None;
        }
    };
    if remoor_vault::is_encrypted_yaml(text.as_bytes()) {
        draft.encrypted.insert(file.clone(), text);
        return Some(FileVars::Encrypted(file));
    }
    let node = match tree::parse_variables(&file, &text) {
        Ok((node, warnings)) => {
            draft.warnings.extend(warnings);
            node?
        }
        Err(faults) => {
            draft.faults.extend(faults);
            return None;
        }
    };
    match node.entries() {
        Some(entries) => {
            let vars = entries.iter().map(|(key, value)| (key.text.clone(), (value.to_json(), file.clone())));
            Some(FileVars::Plain(vars.collect::<VarsWithOrigins>()))
        }
        None => {
            let at = SourcePosition::new(&file, node.line, node.column);
            draft.faults.push(at.fault(format!("takes a mapping of variables, not {}", node.kind_name())));
            None
        }
    }
}
