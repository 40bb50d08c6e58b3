//! Splits an XPath into tokens. The previous token decides whether `*` and `div` are names or
//! operators.

use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
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
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        // After an operand, `*` and `div` are operators; elsewhere both are names.
        let behind_operand = !matches!(
            tokens.last(),
            None | Some(Token::Operator(_) | Token::Axis(_) | Token::Sign("@" | "(" | "[" | "," | "/" | "//"))
        );
        let after_dot = rest[first.len_utf8()..].starts_with(|c: char| c.is_ascii_digit());
        let (token, length) = if matches!(first, '"' | '\'') {
            let end =
                rest[1..].find(first).ok_or_else(|| format!("a string that begins with {first} is not closed"))?;
            (Token::Text(rest[1..=end].to_owned()), end + 2)
        } else if first.is_ascii_digit() || (first == '.' && after_dot) {
            let length = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let number = rest[..length].parse().map_err(|_| format!("`{}` is not a number", &rest[..length]))?;
            (Token::Number(number), length)
        } else if first == '*' {
            (if behind_operand { Token::Operator("*") } else { Token::Sign("*") }, 1)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (if OPERATORS.contains(sign) { Token::Operator(sign) } else { Token::Sign(sign) }, sign.len())
        } else if first.is_alphabetic() || first == '_' {
            word(rest, behind_operand)
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

fn word(rest: &str, behind_operand: bool) -> (Token, usize) {
    let name = |text: &str| {
        text.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.' | '\u{b7}')).unwrap_or(text.len())
    };
    let mut length = name(rest);
    if let Some(word) = WORDS.iter().find(|word| behind_operand && rest[..length] == ***word) {
        return (Token::Operator(word), length);
    }
    if let Some(behind) = rest[length..].strip_prefix(':').filter(|behind| !behind.starts_with(':')) {
        let local = if behind.starts_with('*') { 1 } else { name(behind) };
        length += if local == 0 { 0 } else { 1 + local };
    }
    let text = &rest[..length];
    let behind = rest[length..].trim_start();
    if let Some(after) = behind.strip_prefix("::") {
        return (Token::Axis(text.to_owned()), rest.len() - after.len());
    }
    let token = match KINDS.iter().find(|kind| **kind == text) {
        _ if !behind.starts_with('(') => Token::Name(text.to_owned()),
        Some(kind) => Token::Kind(kind),
        None => Token::Call(text.to_owned()),
    };
    (token, length)
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(text) | Token::Call(text) => write!(f, "`{text}`"),
            Token::Axis(text) => write!(f, "`{text}::`"),
            Token::Text(text) => write!(f, "the text '{text}'"),
            Token::Number(number) => write!(f, "`{number}`"),
            Token::Kind(text) | Token::Operator(text) | Token::Sign(text) => write!(f, "`{text}`"),
        }
    }
}
