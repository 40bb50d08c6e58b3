//! Paths by shell pattern, for `gossfile`: `*`, `?` and `[a-z]` within one name, sorted. No `**`, no braces, as in goss.

use globset::GlobBuilder;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Most names of one directory that are looked at, and most paths that a pattern may lead to.
const NAMES_MAX: usize = 10_000;
const PATHS_MAX: usize = 1_000;

/// What is there under `pattern`, relative to `base`. Err: why it can't be said.
pub(super) fn expand(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![base.to_owned()];
    for component in Path::new(pattern).components() {
        let name = match component {
            Component::Normal(name) => name.to_string_lossy().into_owned(),
            other => {
                found.iter_mut().for_each(|path| path.push(other));
                continue;
            }
        };
        let mut next = Vec::new();
        for dir in found {
            if name.contains(['*', '?', '[']) {
                next.extend(matching(&dir, &name)?);
            } else {
                let path = dir.join(&name);
                match path.symlink_metadata() {
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                    Err(e) => return Err(format!("{}: {e}", path.display())),
                    Ok(_) => next.push(path),
                }
            }
            if next.len() > PATHS_MAX {
                return Err(format!("`{pattern}` leads to more than {PATHS_MAX} paths"));
            }
        }
        found = next;
    }
    found.sort();
    Ok(found)
}

fn matching(dir: &Path, name: &str) -> Result<Vec<PathBuf>, String> {
    let plain = name.replace('}', "[}]").replace('{', "[{]");
    let glob = GlobBuilder::new(&plain).literal_separator(true).build();
    let glob = glob.map_err(|e| format!("`{name}` is no pattern: {}", e.kind()))?.compile_matcher();
    let told = |e: std::io::Error| format!("{}: {e}", dir.display());
    let entries = match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        entries => entries.map_err(told)?,
    };
    let mut out = Vec::new();
    for (number, entry) in entries.enumerate() {
        let entry = entry.map_err(told)?;
        if number >= NAMES_MAX {
            return Err(format!("{} has more than {NAMES_MAX} names", dir.display()));
        }
        if glob.is_match(entry.file_name()) {
            out.push(entry.path());
        }
    }
    Ok(out)
}
