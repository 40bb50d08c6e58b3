//! Replaces control characters with visible ones. Answers, messages and logs contain text of other
//! machines. Such text must not control a terminal and must not begin a line of its own. This also
//! holds for output that goes through a pipe or a file.

use std::borrow::Cow;

/// Whether the character reorders or hides text. Such characters are not control characters in
/// Unicode.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Sanitizes text for one line. Every control character is replaced by its picture (`␛`) or its
/// code.
pub fn line(text: &str) -> Cow<'_, str> {
    filter(text, |_| false)
}

/// Sanitizes text of several lines. Line ends and tabs stay.
pub fn block(text: &str) -> Cow<'_, str> {
    filter(text, |c| c == '\n' || c == '\t')
}

/// Sanitizes a cell of a row, or a name on its own line. Only characters that would begin a new
/// line are replaced.
pub fn cell(text: &str) -> Cow<'_, str> {
    filter(text, |c| !matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'))
}

/// Sanitizes a field of a log line. A further line is indented, so that it never looks like a log
/// line of its own.
pub fn log_field(text: &str) -> Cow<'_, str> {
    match block(text) {
        text if text.contains('\n') => Cow::Owned(text.replace('\n', "\n    ")),
        text => text,
    }
}

/// Sanitizes serialized JSON. Control characters become `\u` escapes, so the value of the JSON
/// stays the same. Such characters occur only in strings, except line ends and tabs, which stay.
pub fn json(text: &str) -> Cow<'_, str> {
    let bad = |c: char| (c.is_control() || is_invisible(c)) && c != '\n' && c != '\t';
    if !text.contains(bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match bad(c) {
            true => out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn filter(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let bad = |c: char| (c.is_control() || is_invisible(c)) && !keep(c);
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
        assert_eq!(log_field("a\r\nb\u{1b}"), "a␍\n    b␛");
        assert_eq!(cell("a\tb\u{7}\r\nc\u{85}\u{2028}"), "a\tb\u{7}␍␊c<U+0085><U+2028>");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({"a\u{7f}": ["\u{9b}31m\u{202e}\n", "ü\u{1b}", "\u{e0041}"]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let clean = json(&text);
        assert!(clean.contains("\\u009b31m\\u202e") && clean.contains("a\\u007f"), "{clean}");
        assert!(!clean.chars().any(|c| c.is_control() && c != '\n'), "{clean}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&clean).unwrap(), value);
    }
}
