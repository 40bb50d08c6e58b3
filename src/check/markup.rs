//! The characters to which HTML and XML give a meaning.

/// How such a character is written in a text or an attribute, as Go's `html` does; None: as itself.
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

/// `text` with each of them written so.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match entity(c) {
            Some(written) => out.push_str(written),
            None => out.push(c),
        }
    }
    out
}
