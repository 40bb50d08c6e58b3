//! Where the markup of a Tera template is, and the words in it. Understands no more of it than the bounds need; whether it is
//! a template at all was asked of Tera before.

/// One `{{ .. }}` or `{% .. %}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Markup<'a> {
    pub tag: bool,
    /// Without the marks and their `-`.
    pub inner: &'a str,
    /// Bytes from the beginning of the text: of `inner`, of the opening mark, and behind the closing one.
    pub inner_at: usize,
    pub start: usize,
    pub end: usize,
    /// Its end has a `-`, which takes white space away.
    pub trims: bool,
}

impl Markup<'_> {
    /// The word with which a tag begins; empty: none, or no tag.
    pub fn keyword(&self) -> &str {
        let inner = if self.tag { self.inner.trim_start() } else { "" };
        &inner[..inner.find(|c| !is_word(c)).unwrap_or(inner.len())]
    }
}

pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// All markup but comments and what stands between `raw` and `endraw`.
pub(super) fn markups(text: &str) -> Vec<Markup<'_>> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find('{') {
        let start = at + found;
        let open = text.get(start..start + 2).unwrap_or_default();
        let rest = &text[(start + open.len()).min(text.len())..];
        at = match open {
            "{#" => text.len() - rest.find("#}").map_or(0, |end| rest.len() - end - 2),
            "{%" if raw_tag(rest, "raw").is_some() => after_raw(text, start + 2),
            "{%" | "{{" => {
                let markup = whole(text, start, open == "{%");
                out.push(markup);
                markup.end
            }
            _ => start + 1,
        };
    }
    out
}

/// The markup that opens at `start`, to the end of the text if it is not closed.
fn whole(text: &str, start: usize, tag: bool) -> Markup<'_> {
    let inner_at = start + 2 + usize::from(text[start + 2..].starts_with('-'));
    let (close, rest) = (if tag { "%}" } else { "}}" }, &text[inner_at..]);
    let mut at = 0;
    while at < rest.len() && !rest[at..].starts_with(close) {
        at += word_length(&rest[at..]);
    }
    let inner = &rest[..at];
    let trims = inner.ends_with('-');
    let inner = inner.strip_suffix('-').unwrap_or(inner);
    Markup { tag, inner, inner_at, start, end: (inner_at + at + 2).min(text.len()), trims }
}

/// Bytes of the text in quotes, or else of the one character, with which `rest` begins.
fn word_length(rest: &str) -> usize {
    let mut chars = rest.char_indices();
    let Some((_, first)) = chars.next() else { return 0 };
    if !matches!(first, '"' | '\'' | '`') {
        return first.len_utf8();
    }
    let mut escaped = false;
    for (at, c) in chars {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == first => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Bytes of `- name -%}` with which `rest` begins.
fn raw_tag(rest: &str, name: &str) -> Option<usize> {
    let inner = rest.strip_prefix('-').unwrap_or(rest).trim_ascii_start();
    let end = inner.strip_prefix(name)?.trim_ascii_start();
    let end = end.strip_prefix('-').unwrap_or(end).strip_prefix("%}")?;
    Some(rest.len() - end.len())
}

fn after_raw(text: &str, mut at: usize) -> usize {
    while let Some(found) = text[at..].find("{%") {
        at += found + 2;
        if let Some(length) = raw_tag(&text[at..], "endraw") {
            return at + length;
        }
    }
    text.len()
}

/// A word of an expression, or what else stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word<'a> {
    Name(&'a str),
    /// Without its quotes, as it is written.
    Text(&'a str),
    Sign(char),
}

/// The words of an expression, each with its first byte and the one behind it. White space is none.
pub(super) fn words(inner: &str) -> Vec<(Word<'_>, usize, usize)> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(first) = inner[at..].chars().next() {
        let start = at;
        let rest = &inner[at..];
        at += if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { word_length(rest) };
        let text = &inner[start..at];
        match first {
            c if c.is_whitespace() => {}
            c if is_word(c) => out.push((Word::Name(text), start, at)),
            '"' | '\'' | '`' => out.push((Word::Text(text.get(1..text.len() - 1).unwrap_or_default()), start, at)),
            c => out.push((Word::Sign(c), start, at)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn markup_ends_where_tera_says() {
        let text =
            "a {{- x | f(a=\"}}\") -}} {# {{ no }} #}{% raw -%} {{ no }} {%- endraw %}{% set y = '\\'%}' %}{ {{z}}";
        let found = markups(text);
        let told: Vec<(bool, &str, bool)> = found.iter().map(|m| (m.tag, m.inner.trim(), m.trims)).collect();
        assert_eq!(told, [(false, "x | f(a=\"}}\")", true), (true, "set y = '\\'%}'", false), (false, "z", false)]);
        assert_eq!(found[1].keyword(), "set");
        assert!(found.iter().all(|m| &text[m.inner_at..m.inner_at + m.inner.len()] == m.inner));
        let all = words("a.b1['c d'] ~ 2");
        let words: Vec<Word> = all.iter().map(|(word, ..)| *word).collect();
        use Word::{Name, Sign, Text};
        assert_eq!(words, [Name("a"), Sign('.'), Name("b1"), Sign('['), Text("c d"), Sign(']'), Sign('~'), Name("2")]);
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[{}%#\\-'\"\\\\ä rawend\n]{0,40}") {
            for markup in markups(&text) {
                prop_assert!(markup.start < markup.end && text.get(markup.start..markup.end).is_some());
                words(markup.inner);
            }
        }
    }
}
