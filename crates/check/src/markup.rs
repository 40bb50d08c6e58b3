//! Escapes the characters that have a meaning in HTML and XML.

/// The entity for a character in a text or an attribute, as in Go's `html` package. None if the
/// character needs no escape.
pub fn entity(c: char) -> Option<&'static str> {
    Some(match c {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&#34;",
        '\'' => "&#39;",
        _ => return None,
    })
}

/// `text` with the special characters of HTML and XML escaped.
pub(super) fn escape_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match entity(c) {
            Some(written) => out.push_str(written),
            None => out.push(c),
        }
    }
    out
}
