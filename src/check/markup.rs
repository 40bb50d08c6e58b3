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
