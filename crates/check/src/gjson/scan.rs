//! Splits a path into its parts: names, arguments, selectors. Does not use any JSON document.

use serde_json::Value;
use std::borrow::Cow;

/// The rest of a path after a name or an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GjsonStep<'a> {
    End,
    /// The rest of the path continues within the found value.
    Into(&'a str),
    /// The rest of the path is applied to the found value, or to nothing if no value was found.
    Pipe(&'a str),
}

/// The modifiers. A name with `@` that is not in this list is a key.
pub(super) const MODIFIERS: [&str; 12] =
    ["this", "ugly", "pretty", "valid", "reverse", "flatten", "keys", "values", "join", "fromstr", "group", "dig"];

/// A modifier call in a path: `@name:argument`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModifierCall<'a> {
    pub name: &'a str,
    pub argument: &'a str,
}

/// One entry of `[a,b]` or `{a,"name":b}`: its path, and the name before the path. The name is
/// empty if there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selector<'a> {
    name: &'a str,
    pub path: &'a str,
}

impl Selector<'_> {
    /// The key of the selected value: the given name, or the last component of the path.
    pub fn key(&self) -> String {
        if !self.name.is_empty() {
            return serde_json::from_str(self.name).unwrap_or_else(|_| self.name.to_owned());
        }
        let separator = |(at, c): &(usize, char)| ".|".contains(*c) && !self.path[..*at].ends_with('\\');
        let last = self.path.char_indices().rev().find(separator).map_or(self.path, |(at, _)| &self.path[at + 1..]);
        let simple = !last.contains(|c: char| c < ' ' || "[]{}()#|!".contains(c));
        if simple { last.to_owned() } else { "_".to_owned() }
    }
}

/// Reads a key. Returns the key without backslashes, whether it has wildcards, and the next step.
pub(super) fn name(path: &str) -> (Cow<'_, str>, bool, GjsonStep<'_>) {
    let mut plain = String::new();
    let (mut escaped, mut wild, mut start) = (false, false, 0);
    let mut chars = path.char_indices();
    let mut step = GjsonStep::End;
    let mut end = path.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '|' => {
                (step, end) = (next(path, at), at);
                break;
            }
            '*' | '?' => wild = true,
            '\\' => {
                escaped = true;
                plain.push_str(&path[start..at]);
                // The character after a backslash is literal.
                start = chars.next().map_or(path.len(), |(at, _)| at);
            }
            _ => {}
        }
    }
    if !escaped {
        return (Cow::Borrowed(&path[..end]), wild, step);
    }
    plain.push_str(&path[start..end]);
    (Cow::Owned(plain), wild, step)
}

/// Reads a list index, or `#`.
pub(super) fn index(path: &str) -> (&str, GjsonStep<'_>) {
    match path.find(['.', '|']) {
        Some(at) => (&path[..at], next(path, at)),
        None => (path, GjsonStep::End),
    }
}

/// The step after the `.` or `|` at `at`. Before a modifier or a selection, a dot acts as a pipe.
fn next(path: &str, at: usize) -> GjsonStep<'_> {
    let rest = &path[at + 1..];
    let works = rest.strip_prefix('@').map_or(rest.starts_with(['[', '{']), |rest| {
        MODIFIERS.contains(&&rest[..rest.find(['.', '|', ':']).unwrap_or(rest.len())])
    });
    if path[at..].starts_with('|') || works { GjsonStep::Pipe(rest) } else { GjsonStep::Into(rest) }
}

/// Splits at the first `|` that is not within a query.
pub(super) fn split_pipe(path: &str) -> (&str, Option<&str>) {
    let mut at = 0;
    if path.starts_with('{') {
        at = balanced_length(path);
    }
    while let Some(c) = path[at..].chars().next() {
        match c {
            '|' => return (&path[..at], Some(&path[at + 1..])),
            '\\' => at += 1 + path[at + 1..].chars().next().map_or(0, char::len_utf8),
            '.' if path[at..].starts_with(".#(") || path[at..].starts_with(".#[") => {
                at += 2 + balanced_length(&path[at + 2..])
            }
            c => at += c.len_utf8(),
        }
    }
    (path, None)
}

/// Reads `@name` or `@name:argument`, and returns it with the rest of the path. None if no modifier
/// has this name.
pub(super) fn modifier(path: &str) -> Option<(ModifierCall<'_>, &str)> {
    let body = path.strip_prefix('@')?;
    let end = body.find([':', '|', '.']).unwrap_or(body.len());
    let (name, rest) = body.split_at(end);
    if !MODIFIERS.contains(&name) {
        return None;
    }
    let Some(rest) = rest.strip_prefix(':') else { return Some((ModifierCall { name, argument: "" }, rest)) };
    let mut end = 0;
    if rest.starts_with(['{', '[', '"']) {
        end = balanced_length(rest);
    } else {
        while let Some(c) = rest[end..].chars().next().filter(|c| *c != '|') {
            end += if "{[\"(".contains(c) { balanced_length(&rest[end..]) } else { c.len_utf8() };
        }
    }
    Some((ModifierCall { name, argument: &rest[..end] }, &rest[end..]))
}

/// Reads `!` and a JSON value, and returns the value with the rest of the path.
pub(super) fn literal(path: &str) -> Option<(Value, &str)> {
    let body = path.strip_prefix('!')?;
    let end = match body.as_bytes().first()? {
        b'{' | b'[' => balanced_length(body),
        b'"' | b'+' | b'-' | b'0'..=b'9' => body.len(),
        _ => body.find(['.', '|']).unwrap_or(body.len()),
    };
    let value = serde_json::Deserializer::from_str(&body[..end]).into_iter::<Value>().next()?.ok()?;
    Some((value, &body[end..]))
}

/// Reads the paths of `[...]` or `{...}`, and returns them with the rest of the path. None if the
/// bracket is not closed.
pub(super) fn selectors(path: &str) -> Option<(Vec<Selector<'_>>, &str)> {
    let mut all = Vec::new();
    let (mut depth, mut start, mut colon, mut modifier) = (1, 1, None, false);
    let mut at = 1;
    let bytes = path.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'@' if matches!(bytes[at - 1], b'.' | b'|') => modifier = true,
            b':' if !modifier && colon.is_none() && depth == 1 => colon = Some(at),
            b'"' => at += balanced_length(path.get(at..)?) - 1,
            b'[' | b'(' | b'{' => depth += 1,
            b']' | b')' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (*byte == b',' && depth == 1) {
            let name = colon.map_or("", |colon| &path[start..colon]);
            all.push(Selector { name, path: path.get(colon.map_or(start, |colon| colon + 1)..at)? });
            (start, colon, modifier) = (at + 1, None, false);
        }
        if depth == 0 {
            return Some((all, &path[at + 1..]));
        }
        at += 1;
    }
    None
}

/// The length in bytes of the bracket or quoted string at the beginning of `text`. If it is not
/// closed, the whole length of `text`. At least 1.
pub(super) fn balanced_length(text: &str) -> usize {
    let mut depth = 0usize;
    let mut quoted = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => quoted = !quoted,
            '{' | '[' | '(' if !quoted => depth += 1,
            '}' | ']' | ')' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && !quoted {
            return at + c.len_utf8();
        }
    }
    text.len().max(1)
}

/// Whether `pattern` matches all of `text`. `*` is any text, `?` any character, and `\` makes the
/// next character literal.
pub(super) fn matches_wildcard(text: &str, pattern: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut parts: Vec<Part> = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        parts.push(match c {
            '*' => Part::Any,
            '?' => Part::One,
            '\\' => chars.next().map_or(Part::Is('\\'), Part::Is),
            c => Part::Is(c),
        });
    }
    // `again` has the position in the text and the part of the pattern from which to retry after a
    // mismatch. None before the first `*`.
    let (mut at, mut part, mut again) = (0, 0, None);
    while at < text.len() {
        match parts.get(part) {
            Some(Part::Any) => {
                again = Some((at, part));
                part += 1;
                continue;
            }
            Some(Part::One) => part += 1,
            Some(Part::Is(c)) if *c == text[at] => part += 1,
            _ => match &mut again {
                Some((from, star)) => {
                    *from += 1;
                    at = *from;
                    part = *star + 1;
                    continue;
                }
                None => return false,
            },
        }
        at += 1;
    }
    parts[part..].iter().all(|part| matches!(part, Part::Any))
}

enum Part {
    Any,
    One,
    Is(char),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_a_path() {
        assert_eq!(name("a.b"), (Cow::Borrowed("a"), false, GjsonStep::Into("b")));
        assert_eq!(name("a\\.b|c"), (Cow::Borrowed("a.b"), false, GjsonStep::Pipe("c")));
        assert_eq!(name("a\\*b*.@this"), (Cow::Borrowed("a*b*"), true, GjsonStep::Pipe("@this")));
        assert_eq!(name("é.@context"), (Cow::Borrowed("é"), false, GjsonStep::Into("@context")));
        assert_eq!(split_pipe("a.#(b=\"|\").c|d|e"), ("a.#(b=\"|\").c", Some("d|e")));
        assert_eq!(modifier("@dig:a.b|c"), Some((ModifierCall { name: "dig", argument: "a.b" }, "|c")));
        assert_eq!(
            modifier("@flatten:{\"deep\":true}.0"),
            Some((ModifierCall { name: "flatten", argument: "{\"deep\":true}" }, ".0"))
        );
        assert_eq!(modifier("@nothing"), None);
        let (all, rest) = selectors("{a.b,\"x:y\":c|@dig:d,[e,f]}|g").unwrap();
        let keys: Vec<String> = all.iter().map(Selector::key).collect();
        assert_eq!((keys, rest), (vec!["b".to_owned(), "x:y".to_owned(), "_".to_owned()], "|g"));
        assert_eq!(balanced_length("(a(b)\")\\\"\")c"), 11);
    }

    fn slow_like(text: &[char], pattern: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, _) => text.is_empty(),
            (Some(('*', rest)), _) => (0..=text.len()).any(|taken| slow_like(&text[taken..], rest)),
            (Some(('?', rest)), Some((_, others))) => slow_like(others, rest),
            (Some((c, rest)), Some((d, others))) => c == d && slow_like(others, rest),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn wildcards_fit_as_by_trying_everything(text in "[ab]{0,8}", pattern in "[ab*?]{0,8}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches_wildcard(&text, &pattern), slow_like(&chars(&text), &chars(&pattern)));
        }
    }
}
