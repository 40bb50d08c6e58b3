//! Replaces control characters with visible ones, so that text from remote machines can't control
//! the terminal.

use std::borrow::Cow;

/// Characters that reorder or hide text, but are not control characters in Unicode.
fn invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// For one line: every control character becomes its picture (`␛`) or code.
pub fn line(text: &str) -> Cow<'_, str> {
    filter(text, |_| false)
}

/// For several lines: line ends and tabs stay.
pub fn block(text: &str) -> Cow<'_, str> {
    filter(text, |c| c == '\n' || c == '\t')
}

/// For a cell of a row, or a name on its own line: only characters that would begin a new line are
/// replaced.
pub fn cell(text: &str) -> Cow<'_, str> {
    filter(text, |c| !matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'))
}

fn filter(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |c: char| (c.is_control() || invisible(c)) && !keep(c);
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !bad(c) => out.push(c),
            '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('\u{2421}'),
            c => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_made_visible() {
        assert_eq!(line("plain ünïcode ✓"), "plain ünïcode ✓");
        assert_eq!(line("\u{1b}[2Jgone\r\n"), "␛[2Jgone␍␊");
        assert_eq!(line("a\u{9b}31mb"), "a<U+009B>31mb");
        assert_eq!(line("evil\u{202e}txt"), "evil<U+202E>txt");
        assert_eq!(block("a\tb\nc\u{7}"), "a\tb\nc␇");
        assert_eq!(cell("a\tb\u{7}\r\nc\u{85}\u{2028}"), "a\tb\u{7}␍␊c<U+0085><U+2028>");
    }
}
