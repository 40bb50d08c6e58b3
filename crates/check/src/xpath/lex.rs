//! Splits an XPath into tokens. The previous token decides whether `*` and `div` are names or
//! operators.

use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum XPathToken {
    /// A name test: `a`, `p:a`, `p:*`.
    Name(String),
    /// A name followed by `(`.
    Call(String),
    /// `node`, `text`, `comment` or `processing-instruction`, followed by `(`.
    Kind(&'static str),
    /// A name followed by `::`, which is consumed.
    Axis(String),
    Text(String),
    Number(f64),
    Operator(&'static str),
    /// `/ // ( ) [ ] . .. @ , *`
    Sign(&'static str),
}

const SIGNS: [&str; 19] =
    ["//", "/", "(", ")", "[", "]", "..", ".", "@", ",", "!=", "<=", ">=", "=", "<", ">", "|", "+", "-"];
const OPERATORS: [&str; 9] = ["!=", "<=", ">=", "=", "<", ">", "|", "+", "-"];
const WORDS: [&str; 4] = ["or", "and", "div", "mod"];
const KINDS: [&str; 4] = ["node", "text", "comment", "processing-instruction"];

/// Err: an unexpected character, or a string that is not closed.
pub(super) fn tokens(text: &str) -> Result<Vec<XPathToken>, String> {
    let mut tokens: Vec<XPathToken> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // After an operand, `*` and `div` are operators; elsewhere both are names.
        let behind_operand = !matches!(
            tokens.last(),
            None | Some(
                XPathToken::Operator(_) | XPathToken::Axis(_) | XPathToken::Sign("@" | "(" | "[" | "," | "/" | "//")
            )
        );
        let after_dot = rest[first.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        let (token, length) = if matches!(first, '"' | '\'') {
            let end =
                rest[1..].find(first).ok_or_else(|| format!("a string that begins with {first} is not closed"))?;
            (XPathToken::Text(rest[1..=end].to_owned()), end + 2)
        } else if first.is_ascii_digit() || (first == '.' && after_dot) {
            let length = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let number = rest[..length].parse().map_err(|_| format!("`{}` is not a number", &rest[..length]))?;
            (XPathToken::Number(number), length)
        } else if first == '*' {
            (if behind_operand { XPathToken::Operator("*") } else { XPathToken::Sign("*") }, 1)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (if OPERATORS.contains(sign) { XPathToken::Operator(sign) } else { XPathToken::Sign(sign) }, sign.len())
        } else if first.is_alphabetic() || first == '_' {
            read_word(rest, behind_operand)
        } else if first == '$' {
            return Err("variables (`$`) are not supported".to_owned());
        } else {
            return Err(format!("`{first}` is not expected here"));
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn read_word(rest: &str, behind_operand: bool) -> (XPathToken, usize) {
    let name = |text: &str| {
        text.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.' | '\u{b7}')).unwrap_or(text.len())
    };
    let mut length = name(rest);
    if let Some(word) = WORDS.iter().find(|word| behind_operand && rest[..length] == ***word) {
        return (XPathToken::Operator(word), length);
    }
    if let Some(behind) = rest[length..].strip_prefix(':').filter(|behind| !behind.starts_with(':')) {
        let local = if behind.starts_with('*') { 1 } else { name(behind) };
        length += if local == 0 { 0 } else { 1 + local };
    }
    let text = &rest[..length];
    let behind = rest[length..].trim_start();
    if let Some(after) = behind.strip_prefix("::") {
        return (XPathToken::Axis(text.to_owned()), rest.len() - after.len());
    }
    let token = match KINDS.iter().find(|kind| **kind == text) {
        _ if !behind.starts_with('(') => XPathToken::Name(text.to_owned()),
        Some(kind) => XPathToken::Kind(kind),
        None => XPathToken::Call(text.to_owned()),
    };
    (token, length)
}

impl fmt::Display for XPathToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            XPathToken::Name(text) | XPathToken::Call(text) => write!(f, "`{text}`"),
            XPathToken::Axis(text) => write!(f, "`{text}::`"),
            XPathToken::Text(text) => write!(f, "the text '{text}'"),
            XPathToken::Number(number) => write!(f, "`{number}`"),
            XPathToken::Kind(text) | XPathToken::Operator(text) | XPathToken::Sign(text) => write!(f, "`{text}`"),
        }
    }
}
