//! Splits a command line or `k=v` arguments into words before anything is rendered, so that a value
//! cannot become two words. Markup is copied unchanged; quotes around it are removed.

/// A word of a command line, and whether any part of it was quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellWord {
    pub text: String,
    pub quoted: bool,
}

/// Splits words as a POSIX shell does, without expansion. The error is the reason, such as a quote
/// that is not closed.
pub fn split_words(line: &str) -> Result<Vec<ShellWord>, &'static str> {
    let mut out = Vec::new();
    let mut current: Option<ShellWord> = None;
    let mut quote: Option<char> = None;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let close = match (c, rest.as_bytes().get(1)) {
            ('{', Some(b'{')) => Some("}}"),
            ('{', Some(b'%')) => Some("%}"),
            ('{', Some(b'#')) => Some("#}"),
            _ => None,
        };
        if let Some(close) = close {
            let end = rest[2..].find(close).ok_or("a {{ or {% is not closed")? + 4;
            current.get_or_insert_with(empty).text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some('"'), '\\') | (None, '\\') => {
                let Some(next) = rest.chars().next() else { return Err("the last character is a backslash") };
                rest = &rest[next.len_utf8()..];
                let word = current.get_or_insert_with(empty);
                if quote.is_some() && !matches!(next, '"' | '\\' | '$' | '`' | '\n') {
                    word.text.push('\\');
                }
                if next != '\n' {
                    word.text.push(next);
                }
            }
            (Some(_), c) => current.get_or_insert_with(empty).text.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                current.get_or_insert_with(empty).quoted = true;
            }
            (None, c) if c.is_whitespace() => out.extend(current.take()),
            (None, c) => current.get_or_insert_with(empty).text.push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    out.extend(current);
    Ok(out)
}

/// Splits the line after each blank that is outside markup and quotes. Joined, the pieces are the
/// line again.
pub fn pieces(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut at) = (0, 0);
    let mut quote: Option<char> = None;
    while let Some(c) = line[at..].chars().next() {
        let rest = &line[at..];
        if rest.starts_with("{{") || rest.starts_with("{%") {
            let close = if rest.starts_with("{{") { "}}" } else { "%}" };
            at += rest.find(close).map_or(rest.len(), |end| end + 2);
            continue;
        }
        at += c.len_utf8();
        match quote {
            Some(q) if q == c => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c.is_whitespace() => {
                out.push(&line[start..at]);
                start = at;
            }
            None => {}
        }
    }
    out.push(&line[start..]);
    out
}

fn empty() -> ShellWord {
    ShellWord { text: String::new(), quoted: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        split_words(line).unwrap().into_iter().map(|w| w.text).collect()
    }

    #[test]
    fn splits_like_a_shell() {
        assert_eq!(texts(r#"a "b c"  'd "e' f\ g """#), ["a", "b c", "d \"e", "f g", ""]);
        assert_eq!(
            texts(r#"echo {{ x | default("a b") }}-z "{{ y }} w""#),
            ["echo", "{{ x | default(\"a b\") }}-z", "{{ y }} w"]
        );
        assert_eq!(pieces("a 'b c' x={{ d e }} f"), ["a ", "'b c' ", "x={{ d e }} ", "f"]);
        assert!(split_words("a 'b").is_err());
        assert!(split_words("a {{ b").is_err());
    }
}
