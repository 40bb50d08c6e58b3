//! Patterns of Python's `re`, matched by `fancy_regex`. Differences in syntax are translated, and
//! replacements are read as in Python. The steps of every match are limited.

use fancy_regex::{Regex, RegexBuilder};

/// Maximum length in bytes of the text that a replacement returns.
const TEXT_MAX: usize = 16 << 20;
/// Maximum number of backtracking steps of one match.
const BACKTRACK_MAX: usize = 1_000_000;

/// The options `ignorecase` and `multiline` of a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags {
    pub ignorecase: bool,
    pub multiline: bool,
}

/// Compiles a pattern of Python's `re`, with limits for its size and steps. `subject` is the text
/// that it will be matched against.
pub fn regex(pattern: &str, flags: Flags, subject: &str) -> Result<Regex, String> {
    RegexBuilder::new(&translate_pattern(pattern, flags.multiline, subject.ends_with('\n')))
        .case_insensitive(flags.ignorecase)
        .multi_line(flags.multiline)
        .backtrack_limit(BACKTRACK_MAX)
        .delegate_size_limit(1 << 20)
        .build()
        .map_err(|e| format!("pattern `{pattern}`: {}", e.to_string().replace('\n', " ")))
}

/// Like `regex`, for files that are UTF-8.
pub fn text(pattern: &str, multi_line: bool, dot_matches_new_line: bool) -> Result<Regex, String> {
    RegexBuilder::new(&translate_pattern(pattern, false, false))
        .multi_line(multi_line)
        .dot_matches_new_line(dot_matches_new_line)
        .backtrack_limit(BACKTRACK_MAX)
        .delegate_size_limit(1 << 20)
        .build()
        .map_err(|e| e.to_string())
}

/// Like `regex`, for the bytes of files, which may have any encoding. Look-around and
/// backreferences are not supported.
pub fn bytes(pattern: &str) -> regex::bytes::RegexBuilder {
    let mut builder = regex::bytes::RegexBuilder::new(&translate_pattern(pattern, false, false));
    builder.size_limit(1 << 20);
    builder
}

/// Translates syntax that has another meaning in `fancy_regex`: `[` and `&&` in classes, bare
/// braces, `\Z`, and `$` before a final newline.
fn translate_pattern(pattern: &str, multiline: bool, ends_line: bool) -> String {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::with_capacity(pattern.len() + 8);
    let (mut i, mut class) = (0, None);
    while let Some(&c) = chars.get(i) {
        match (c, class) {
            ('\\', _) => {
                let next = chars.get(i + 1).copied();
                match next {
                    Some('Z') if class.is_none() => out.push_str("\\z"),
                    Some(next) => out.extend(['\\', next]),
                    None => out.push('\\'),
                }
                i += 1;
            }
            ('[', None) => {
                class = Some(i + 1);
                out.push('[');
                if chars.get(i + 1) == Some(&'^') {
                    out.push('^');
                    i += 1;
                    class = Some(i + 1);
                }
            }
            // The first character of a class is literal.
            (']', Some(start)) if start == i => out.push_str("\\]"),
            (']', Some(_)) => {
                class = None;
                out.push(']');
            }
            ('[' | '&' | '~', Some(_)) => out.extend(['\\', c]),
            ('$', None) if !multiline && ends_line => out.push_str("(?=\\n?\\z)"),
            ('{', None) if !counts(&chars[i..]) => out.push_str("\\{"),
            ('}', None) if !closes(&chars[..i]) => out.push_str("\\}"),
            _ => out.push(c),
        }
        i += 1;
    }
    out
}

/// Whether a brace begins a repetition: `{2}`, `{2,}`, `{,3}` or `{2,3}`.
fn counts(from: &[char]) -> bool {
    let inner: String = from.iter().skip(1).take_while(|c| **c != '}').collect();
    let closed = from.len() > inner.chars().count() + 1;
    closed && !inner.is_empty() && inner != "," && inner.chars().all(|c| c.is_ascii_digit() || c == ',')
}

fn closes(before: &[char]) -> bool {
    before.iter().rposition(|c| *c == '{').is_some_and(|at| {
        let mut part: Vec<char> = before[at..].to_vec();
        part.push('}');
        counts(&part)
    })
}

/// A part of a replacement.
enum Piece {
    Text(String),
    Group(usize),
    Named(String),
}

/// A replacement in Python's syntax, with `\1`, `\g<1>`, `\g<name>` and `\n`.
pub struct Replacement(Vec<Piece>);

impl Replacement {
    pub fn new(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '\\' {
                plain.push(c);
                continue;
            }
            let group = match chars.next() {
                Some('g') if chars.peek() == Some(&'<') => {
                    let name: String = chars.by_ref().skip(1).take_while(|c| *c != '>').collect();
                    name.parse().map_or_else(|_| Piece::Named(name), Piece::Group)
                }
                Some(d) if d.is_ascii_digit() => {
                    let mut number = d.to_string();
                    if d != '0' {
                        number.extend(chars.next_if(char::is_ascii_digit));
                    }
                    Piece::Group(number.parse().unwrap_or(0))
                }
                escape => {
                    let c = match escape {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('r') => '\r',
                        Some('f') => '\u{c}',
                        Some('v') => '\u{b}',
                        Some('a') => '\u{7}',
                        Some('b') => '\u{8}',
                        Some('\\') => '\\',
                        Some(c) if c.is_ascii_alphabetic() => return Err(format!("bad escape \\{c} in `{text}`")),
                        Some(c) => {
                            plain.push('\\');
                            c
                        }
                        None => return Err(format!("`{text}` ends with a backslash")),
                    };
                    plain.push(c);
                    continue;
                }
            };
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
            pieces.push(group);
        }
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    /// Appends the replacement of one match to `out`. A group that did not match is empty.
    pub fn expand(&self, found: &fancy_regex::Captures<'_, str>, out: &mut String) -> Result<(), String> {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(n) if *n >= found.len() => return Err(format!("invalid group reference {n}")),
                Piece::Group(n) => out.push_str(found.get(*n).map_or("", |m| m.as_str())),
                Piece::Named(name) => out.push_str(found.name(name).map_or("", |m| m.as_str())),
            }
        }
        Ok(())
    }
}

/// `re.subn`: replaces at most `count` matches (0: all), and returns the text and the number of
/// replacements.
pub fn substitute(regex: &Regex, with: &Replacement, text: &str, count: usize) -> Result<(String, usize), String> {
    let mut out = String::with_capacity(text.len());
    let (mut last, mut done) = (0, 0);
    for found in regex.captures_iter(text) {
        let found = found.map_err(|e| e.to_string())?;
        let Some(whole) = found.get(0) else { continue };
        out.push_str(&text[last..whole.start()]);
        with.expand(&found, &mut out)?;
        if out.len() > TEXT_MAX {
            return Err(format!("the text is longer than {TEXT_MAX} bytes"));
        }
        last = whole.end();
        done += 1;
        if done == count {
            break;
        }
    }
    out.push_str(&text[last..]);
    Ok((out, done))
}
