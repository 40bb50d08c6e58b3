//! A Rust file in the form that the rules need: the paths that its code names, without comments and
//! literals.
//!
//! This module reads tokens and does not parse the language. It does not find paths that macros
//! build, but this project has none.

pub struct Source {
    /// The path, relative to the root of the project: `src/manager/mod.rs`.
    pub path: String,
    pub text: String,
    /// All paths in the code, each as its segments.
    pub names: Vec<Vec<String>>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), names: names(&code(text)) }
    }

    /// The path of this file's module, beginning with the crate: `remoor_exec::ssh::channel`. None
    /// for tests and benchmarks, which are not part of a library or program.
    pub fn module(&self) -> Option<String> {
        let (krate, file) = match self.path.strip_prefix("crates/") {
            Some(rest) => rest.split_once("/src/").map(|(name, file)| (format!("remoor_{name}"), file))?,
            None => ("remoor".to_owned(), self.path.strip_prefix("src/")?),
        };
        let file = file.strip_suffix(".rs").unwrap_or(file);
        let modules = file.split('/').filter(|name| !matches!(*name, "mod" | "lib" | "main"));
        Some(std::iter::once(krate.as_str()).chain(modules).collect::<Vec<_>>().join("::"))
    }

    /// The full paths of items in this workspace that the file names. A path with `super::` counts
    /// only if it certainly leaves the top module of the file.
    pub fn imports(&self) -> Vec<String> {
        let Some(module) = self.module() else { return Vec::new() };
        let segments: Vec<&str> = module.split("::").collect();
        let full = |name: &Vec<String>| match name[0].as_str() {
            "crate" => Some([&[segments[0].to_owned()], &name[1..]].concat().join("::")),
            "super" => {
                let ups = name.iter().take_while(|s| *s == "super").count();
                let leaves = ups + 1 >= segments.len() && segments.len() > 2;
                leaves.then(|| [&[segments[0].to_owned()], &name[ups..]].concat().join("::"))
            }
            first => (first == "remoor" || first.starts_with("remoor_")).then(|| name.join("::")),
        };
        self.names.iter().filter_map(full).collect()
    }
}

/// Whether `name` is `module` or an item in it.
pub fn is_within(name: &str, module: &str) -> bool {
    name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The text of a Rust file without comments and literals.
fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::new();
    let mut i = 0;
    while i < chars.len() {
        let in_word = i > 0 && (at(i - 1).is_alphanumeric() || at(i - 1) == '_');
        let hashes = |from: usize| (from..).take_while(|j| at(*j) == '#').count();
        let raw = [1, 2].into_iter().find(|n| !in_word && at(i + n - 1) == 'r' && at(i + n + hashes(i + n)) == '"');
        if at(i) == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if at(i) == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            loop {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 || i >= chars.len() {
                    break;
                }
            }
        } else if let Some(n) = raw.filter(|n| *n == 1 || matches!(at(i), 'b' | 'c')) {
            let hashes = hashes(i + n);
            i += n + hashes + 1;
            while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|j| at(i + j) == '#')) {
                i += 1;
            }
            i += 1 + hashes;
            out.push('"');
        } else if !in_word && matches!(at(i), 'b' | 'c') && matches!(at(i + 1), '"' | '\'') {
            i += 1; // the prefix of a literal
        } else if at(i) == '"' || at(i) == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            let quote = at(i);
            i += 1;
            while i < chars.len() && at(i) != quote {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
            out.push('"');
        } else {
            out.push(at(i));
            i += 1;
        }
    }
    out
}

/// All paths in `code`, also those of one segment. Groups (`a::{b, c::d}`) are expanded.
fn names(code: &str) -> Vec<Vec<String>> {
    let mut tokens: Vec<String> = Vec::new();
    for c in code.chars().filter(|c| !c.is_whitespace() || *c == ' ' || *c == '\n') {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(last) if word(c) && last.chars().all(word) => last.push(c),
            Some(last) if c == ':' && last == ":" => last.push(c),
            _ => tokens.push(c.to_string()),
        }
    }
    tokens.retain(|t| !t.trim().is_empty());
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at = path_at(&tokens, at, &[], &mut out).max(at + 1);
    }
    out
}

/// Reads the path that begins at `at`, if one begins there. Returns the index of its end.
fn path_at(tokens: &[String], mut at: usize, before: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let word = |t: Option<&String>| t.is_some_and(|t| t.starts_with(|c: char| c.is_alphabetic() || c == '_'));
    let mut path = before.to_vec();
    if !word(tokens.get(at)) {
        return at;
    }
    loop {
        path.push(tokens[at].clone());
        at += 1;
        if tokens.get(at).is_none_or(|t| t != "::") {
            break;
        }
        if word(tokens.get(at + 1)) {
            at += 1;
            continue;
        }
        if tokens.get(at + 1).is_some_and(|t| t == "{") {
            at += 2;
            while tokens.get(at).is_some_and(|t| t != "}") {
                at = path_at(tokens, at, &path, out).max(at + 1);
            }
            return at + 1;
        }
        break;
    }
    out.push(path);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined_paths(text: &str) -> Vec<String> {
        names(&code(text)).iter().map(|n| n.join("::")).collect()
    }

    #[test]
    fn groups_are_expanded() {
        assert_eq!(
            joined_paths("pub use a::{self, b::{C, d::*}, e as f};\nx::<T>::y(z)"),
            ["pub", "use", "a::self", "a::b::C", "a::b::d", "a::e", "a::as", "a::f", "x", "T", "y", "z"]
        );
    }

    #[test]
    fn comments_and_literals_are_ignored() {
        let text = r##"/* a::b /* c */ d */ let x = "e::f \" g"; // h::i
            let y = (r#"j::k " l"#, b"m", '"', '\'', n::o); fn p<'q>() {}"##;
        let all = joined_paths(text);
        assert_eq!(all, ["let", "x", "let", "y", "n::o", "fn", "p", "q"]);
    }

    #[test]
    fn imports_are_returned_as_full_paths() {
        let of = |path, text| Source::new(path, text).imports();
        let text = "use crate::{agent::Node, fleet}; use remoor_model::x; super::super::super::daemon::y();";
        let all = ["remoor::agent::Node", "remoor::fleet", "remoor_model::x", "remoor::daemon::y"];
        assert_eq!(of("src/manager/api/order.rs", text), all);
        assert_eq!(of("crates/host/src/disk/blob.rs", "use super::super::files;"), ["remoor_host::files"]);
        assert_eq!(of("src/manager/api/order.rs", "use super::super::own;"), [""; 0]);
    }
}
