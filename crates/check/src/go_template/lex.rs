//! Splits a template into text and the tokens of its actions, each with its position.

use super::{Place, TemplateError};
use serde_json::{Number, Value};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateToken {
    /// Text outside of `{{ }}`.
    Text(String),
    Open,
    Close,
    /// A keyword or the name of a function.
    Word(String),
    /// A field `.name`; the text is empty for the dot alone.
    Field(String),
    /// `$name`, without the `$`; empty for `$` alone.
    Variable(String),
    /// A string, a number or a character.
    Literal(Value),
    Pipe,
    Left,
    Right,
    Declare,
    Assign,
    Comma,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lexeme {
    pub token: TemplateToken,
    pub at: Place,
    /// Whether white space precedes the token. If so, the token does not continue the previous one.
    pub apart: bool,
}

pub(super) fn lex(text: &str) -> Result<Vec<Lexeme>, TemplateError> {
    let mut lexer = Lexer { rest: text, at: Place { line: 1, column: 1 }, out: Vec::new() };
    lexer.texts()?;
    Ok(lexer.out)
}

struct Lexer<'a> {
    rest: &'a str,
    at: Place,
    out: Vec<Lexeme>,
}

impl<'a> Lexer<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        for c in taken.chars() {
            if c == '\n' {
                self.at = Place { line: self.at.line.saturating_add(1), column: 1 };
            } else {
                self.at.column = self.at.column.saturating_add(1);
            }
        }
        self.rest = rest;
        taken
    }

    fn push(&mut self, token: TemplateToken, at: Place, apart: bool) {
        self.out.push(Lexeme { token, at, apart });
    }

    fn texts(&mut self) -> Result<(), TemplateError> {
        let mut trim = false;
        loop {
            let at = self.at;
            let found = self.rest.find("{{");
            let text = self.take(found.unwrap_or(self.rest.len()));
            let text = if trim { text.trim_start_matches(is_space) } else { text };
            let trims = found.is_some() && self.rest[2..].starts_with('-') && self.rest[3..].starts_with(is_space);
            let text = if trims { text.trim_end_matches(is_space) } else { text };
            if !text.is_empty() {
                self.push(TemplateToken::Text(text.to_owned()), at, false);
            }
            if found.is_none() {
                return Ok(());
            }
            let open = self.at;
            self.take(if trims { 3 } else { 2 });
            let inner = if trims { self.rest.trim_start_matches(is_space) } else { self.rest };
            if inner.starts_with("/*") {
                self.take(self.rest.len() - inner.len());
                trim = self.comment(open)?;
            } else {
                self.push(TemplateToken::Open, open, false);
                trim = self.action(open)?;
            }
        }
    }

    /// Skips a comment. Returns true if the text after it is trimmed.
    fn comment(&mut self, open: Place) -> Result<bool, TemplateError> {
        let Some(end) = self.rest.find("*/") else { return Err(open.trouble("the comment is not closed")) };
        self.take(end + 2);
        let trims = self.trims_right();
        if trims {
            self.take(self.rest.find('-').map_or(0, |at| at + 1));
        }
        if !self.rest.starts_with("}}") {
            return Err(open.trouble("a comment must end with `*/}}`"));
        }
        self.take(2);
        Ok(trims)
    }

    /// Whether white space and `-}}` follow.
    fn trims_right(&self) -> bool {
        let inner = self.rest.trim_start_matches(is_space);
        inner.len() < self.rest.len() && inner.starts_with("-}}")
    }

    /// Reads tokens up to the end of an action. Returns true if the text after it is trimmed.
    fn action(&mut self, open: Place) -> Result<bool, TemplateError> {
        loop {
            let trims = self.trims_right();
            let blank = self.rest.len() - self.rest.trim_start_matches(is_space).len();
            self.take(blank);
            let at = self.at;
            if trims || self.rest.starts_with("}}") {
                self.take(if trims { 3 } else { 2 });
                self.push(TemplateToken::Close, at, true);
                return Ok(trims);
            }
            let Some(first) = self.rest.chars().next() else { return Err(open.trouble("`{{` has no `}}`")) };
            let token = self.token(first, at)?;
            self.push(token, at, blank > 0);
        }
    }

    fn token(&mut self, first: char, at: Place) -> Result<TemplateToken, TemplateError> {
        let single = |token| Ok((1, token));
        let second = self.rest[first.len_utf8()..].chars().next();
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let (length, token) = match first {
            '|' => single(TemplateToken::Pipe),
            '(' => single(TemplateToken::Left),
            ')' => single(TemplateToken::Right),
            ',' => single(TemplateToken::Comma),
            ':' if second == Some('=') => Ok((2, TemplateToken::Declare)),
            '=' => single(TemplateToken::Assign),
            '"' | '`' | '\'' => self.read_quoted(first, at),
            '.' if digit(second) => self.number(at),
            '.' => {
                let name = leading_word(&self.rest[1..]);
                Ok((1 + name.len(), TemplateToken::Field(name.to_owned())))
            }
            '$' => {
                let name = leading_word(&self.rest[1..]);
                Ok((1 + name.len(), TemplateToken::Variable(name.to_owned())))
            }
            c if c.is_ascii_digit() || (matches!(c, '+' | '-') && (digit(second) || second == Some('.'))) => {
                self.number(at)
            }
            c if c.is_alphabetic() || c == '_' => {
                let name = leading_word(self.rest);
                Ok((name.len(), TemplateToken::Word(name.to_owned())))
            }
            other => Err(at.trouble(format!("`{}` is not expected here", other.escape_debug()))),
        }?;
        self.take(length);
        Ok(token)
    }

    fn number(&self, at: Place) -> Result<(usize, TemplateToken), TemplateError> {
        let mut end = 0;
        let mut before = ' ';
        for c in self.rest.chars() {
            let sign = matches!(c, '+' | '-') && (end == 0 || matches!(before, 'e' | 'E'));
            if !(sign || c == '.' || c == '_' || c.is_ascii_alphanumeric()) {
                break;
            }
            end += 1;
            before = c;
        }
        let text = &self.rest[..end];
        let number = number(text).ok_or_else(|| at.trouble(format!("`{text}` is not a number")))?;
        Ok((end, TemplateToken::Literal(Value::Number(number))))
    }

    fn read_quoted(&self, quote: char, at: Place) -> Result<(usize, TemplateToken), TemplateError> {
        let inner = &self.rest[1..];
        if quote == '`' {
            let end = inner.find('`').ok_or_else(|| at.trouble("the string is not closed"))?;
            return Ok((end + 2, TemplateToken::Literal(inner[..end].into())));
        }
        let mut escaped = false;
        let end = inner.char_indices().find(|(_, c)| {
            let ends = !escaped && (*c == quote || *c == '\n');
            escaped = !escaped && *c == '\\';
            ends
        });
        let Some((end, _)) = end.filter(|(_, c)| *c == quote) else {
            return Err(at
                .trouble("the string is not closed")
                .hint("a string over several lines is written between backquotes"));
        };
        let text = unescape(&inner[..end]).ok_or_else(|| {
            at.trouble("unknown escape in a string")
                .hint("write regular expressions between backquotes, where \\ is literal")
        })?;
        let value = match (quote, text.chars().next()) {
            ('\'', Some(c)) if c.len_utf8() == text.len() => u32::from(c).into(),
            ('\'', _) => return Err(at.trouble("single quotes hold one character; write a string in double quotes")),
            _ => text.into(),
        };
        Ok((end + 2, TemplateToken::Literal(value)))
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn leading_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

fn number(text: &str) -> Option<Number> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let lower = digits.to_ascii_lowercase();
    let radix = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(mark, radix)| Some((lower.strip_prefix(mark)?, radix)));
    let (body, radix) = radix.unwrap_or(match lower.strip_prefix('0') {
        Some(octal) if !octal.is_empty() && octal.bytes().all(|b| b.is_ascii_digit()) => (octal, 8),
        _ => (lower.as_str(), 10),
    });
    if body.bytes().all(|b| b.is_ascii_hexdigit()) && (radix == 16 || !body.contains('e')) {
        let whole = i64::from_str_radix(&format!("{}{body}", if negative { "-" } else { "" }), radix).ok()?;
        return Some(whole.into());
    }
    (radix == 10).then(|| plain.parse::<f64>().ok()).flatten().and_then(Number::from_f64)
}

/// Replaces Go's escapes. Escapes for bytes that are not valid UTF-8 by themselves are not
/// supported.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            c @ ('\\' | '\'' | '"') => c,
            'x' => hex(&mut chars, 2).filter(char::is_ascii)?,
            'u' => hex(&mut chars, 4)?,
            'U' => hex(&mut chars, 8)?,
            _ => return None,
        });
    }
    Some(out)
}

fn hex(chars: &mut std::str::Chars, digits: usize) -> Option<char> {
    let code: String = chars.by_ref().take(digits).collect();
    (code.len() == digits).then(|| u32::from_str_radix(&code, 16).ok()).flatten().and_then(char::from_u32)
}
