//! Expands shell patterns in `gossfile` paths: `*`, `?` and `[a-z]` within one name. The result is
//! sorted. `**` and braces are not supported, as in goss, which has the patterns of Go's
//! `path/filepath`.

use std::fs;
use std::io::ErrorKind;
use std::iter::Peekable;
use std::path::{Component, Path, PathBuf};
use std::str::Chars;

/// Maximum number of names that are read per directory.
const NAMES_MAX: usize = 10_000;
/// Maximum number of paths that match one pattern.
const PATHS_MAX: usize = 1_000;

/// The existing paths that match `pattern`, relative to `base`. Fails if a directory can't be read
/// or a limit is exceeded.
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
                next.extend(matching_names(&dir, &name)?);
            } else {
                let path = dir.join(&name);
                match path.symlink_metadata() {
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                    Err(e) => return Err(format!("{}: {e}", path.display())),
                    Ok(_) => next.push(path),
                }
            }
            if next.len() > PATHS_MAX {
                return Err(format!("`{pattern}` matches more than {PATHS_MAX} paths"));
            }
        }
        found = next;
    }
    found.sort();
    Ok(found)
}

/// One element of a pattern.
enum PatternElement {
    /// The wildcard `*`.
    Any,
    /// One character. With false it must be in one of the ranges, with true in none of them.
    One(bool, Vec<(char, char)>),
}

/// Parses a pattern as Go does: `!` is not special, `[^a]` excludes `a`, and `\` escapes the next
/// character. None: the pattern is invalid.
fn signs(pattern: &str) -> Option<Vec<PatternElement>> {
    let mut chars = pattern.chars().peekable();
    let mut out = Vec::new();
    while let Some(c) = chars.next() {
        let sign = match c {
            '*' => PatternElement::Any,
            '?' => PatternElement::One(true, Vec::new()),
            '\\' => {
                let c = chars.next()?;
                PatternElement::One(false, vec![(c, c)])
            }
            '[' => {
                let not = chars.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                while ranges.is_empty() || chars.next_if_eq(&']').is_none() {
                    let from = member(&mut chars)?;
                    let to = if chars.next_if_eq(&'-').is_some() { member(&mut chars)? } else { from };
                    ranges.push((from, to));
                }
                PatternElement::One(not, ranges)
            }
            c => PatternElement::One(false, vec![(c, c)]),
        };
        out.push(sign);
    }
    Some(out)
}

/// Reads the next character within the `[]` of a pattern.
fn member(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    match chars.next()? {
        '-' | ']' => None,
        '\\' => chars.next(),
        c => Some(c),
    }
}

/// Whether a name matches the pattern. A `*` first matches as few characters as possible, and one
/// more whenever the rest does not match.
fn fits(signs: &[PatternElement], name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let (mut sign, mut at, mut star) = (0, 0, None);
    loop {
        match signs.get(sign) {
            Some(PatternElement::Any) => {
                star = Some((sign + 1, at));
                sign += 1;
                continue;
            }
            Some(PatternElement::One(not, ranges)) => {
                let of = |c: &char| ranges.iter().any(|(from, to)| (from..=to).contains(&c)) != *not;
                if name.get(at).is_some_and(of) {
                    (sign, at) = (sign + 1, at + 1);
                    continue;
                }
            }
            None if at == name.len() => return true,
            None => {}
        }
        match star {
            Some((behind, begun)) if begun < name.len() => {
                star = Some((behind, begun + 1));
                (sign, at) = (behind, begun + 1);
            }
            _ => return false,
        }
    }
}

fn matching_names(dir: &Path, name: &str) -> Result<Vec<PathBuf>, String> {
    let signs = signs(name).ok_or_else(|| format!("`{name}` is not a valid pattern"))?;
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
        if entry.file_name().to_str().is_some_and(|name| fits(&signs, name)) {
            out.push(entry.path());
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_go() {
        for (pattern, yes, no) in [
            ("[!a].yaml", "!.yaml a.yaml", "b.yaml .yaml"),
            ("[^a].yaml", "b.yaml !.yaml", "a.yaml"),
            ("[a-cx].yaml", "b.yaml x.yaml", "d.yaml -.yaml"),
            ("*.y*ml", ".yml a.yaml.yml", "a.yml.x"),
            ("a*b*c", "abc axbxbxc", "ab acb"),
            ("\\*[\\]-]", "", "*]"),
            ("[\\]\\-]{a}", "]{a} -{a}", "a]"),
            ("?", "é", "ab"),
        ] {
            let is = |name: &str| signs(pattern).is_some_and(|signs| fits(&signs, name));
            assert!(yes.split_whitespace().all(is), "{pattern}: {yes}");
            assert!(!no.split_whitespace().any(is), "{pattern}: {no}");
        }
        for pattern in ["[", "[]", "[]a]", "[a", "[a-]", "[-a]", "a\\"] {
            assert!(signs(pattern).is_none(), "{pattern}");
        }
    }
}
