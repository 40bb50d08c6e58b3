//! Translates regular expressions of Go (RE2) into the syntax of the crate `regex`. Pure.
//!
//! The two syntaxes agree in most points; [`go_regex`] lists the differences. Both reject
//! look-around and backreferences.

use super::regex_steps::steps;
use regex::{Regex, RegexBuilder};
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// A compiled regular expression with its original text.
#[derive(Debug, Clone)]
pub(super) struct GoRegex {
    text: String,
    regex: Regex,
    steps: usize,
}

impl GoRegex {
    /// Whether the expression matches anywhere in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The cost of searching `text`, in the unit of `MatchBudget`: one comparison. A small
    /// expression costs one comparison per KiB of `text`. The cost of a large expression grows with
    /// the square of its number of steps (see `regex_steps`).
    pub fn cost(&self, text: &str) -> usize {
        let each = self.steps.saturating_mul(self.steps);
        (each.saturating_mul(text.len()) / COST_SHARE).max(text.len() / 1024)
    }

    /// The compiled expression, for callers that need captures.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }
}

impl fmt::Display for GoRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Maximum length of a pattern, and maximum memory of a compiled pattern, both in bytes:
/// `(\w{1000}){1000}` is rejected before it is compiled completely.
const LONGEST: usize = 16 << 10;
const COMPILED_MAX: usize = 4 << 20;
/// Divisor for the cost of a search in comparisons: the squared number of steps of the expression,
/// times the bytes of the text, divided by this number. 64 steps over 1 MiB cost 16,384
/// comparisons.
const COST_SHARE: usize = 1 << 18;
/// Maximum nesting of groups.
const DEEPEST: u32 = 100;

const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Compiles a pattern of Go. Err: a short reason.
///
/// | in Go | translation for the crate `regex` |
/// |---|---|
/// | `\d \w \s \b` and their negations match ASCII only | the ASCII classes |
/// | `\Q...\E` is literal text; without `\E` up to the end of the pattern | each character escaped |
/// | `\<`, `\_` and `\-` are literal; `{` is literal if no repetition follows | the literal character |
/// | `[`, `&` and `~` are literal within `[...]`, except in `[:alpha:]` | escaped, because the crate has nested classes and set operations |
/// | `\101` is octal, `\p{^Greek}` is a negation | `\x{41}`, `\P{Greek}` |
/// | `\C`, `\Z`, `\u`, `a**`, and flags other than `i m s U` are not supported | rejected |
/// | a repetition count is at most 1000 | a larger count is rejected |
pub(super) fn go_regex(text: &str) -> Result<GoRegex, String> {
    if text.len() > LONGEST {
        return Err(format!("the regular expression has {} bytes; the maximum is {LONGEST}", text.len()));
    }
    let mut writer = Writer { rest: text.chars().peekable(), out: String::with_capacity(text.len() * 2) };
    writer.translate()?;
    let regex = RegexBuilder::new(&writer.out)
        .size_limit(COMPILED_MAX)
        .nest_limit(DEEPEST)
        .build()
        .map_err(|e| e.to_string().lines().last().unwrap_or_default().trim().to_owned())?;
    Ok(GoRegex { text: text.to_owned(), regex, steps: steps(text) })
}

struct Writer<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
}

impl Writer<'_> {
    fn translate(&mut self) -> Result<(), String> {
        let mut repeated = false;
        while let Some(c) = self.rest.next() {
            let repeats = match c {
                '*' | '+' | '?' => Some(c.to_string()),
                '{' => self.counts()?,
                _ => None,
            };
            if let Some(repeats) = repeats {
                if repeated {
                    return Err(format!("`{repeats}` repeats a repetition"));
                }
                self.out.push_str(&repeats);
                self.out.extend(self.rest.next_if_eq(&'?'));
                repeated = true;
                continue;
            }
            repeated = false;
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '{' => self.literal(c),
                '(' => self.group()?,
                c => self.out.push(c),
            }
        }
        Ok(())
    }

    /// Reads `n}`, `n,}` or `n,m}` after a `{`. None, without reading anything, if the `{` is a
    /// literal brace.
    fn counts(&mut self) -> Result<Option<String>, String> {
        let inside: String = self.rest.clone().take_while(|c| *c != '}').take(16).collect();
        let (least, most) = inside.split_once(',').unwrap_or((&inside, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        let closed = self.rest.clone().nth(inside.chars().count()) == Some('}');
        if !closed || least.is_empty() || !digits(least) || !digits(most) {
            return Ok(None);
        }
        if [least, most].iter().any(|n| n.parse::<u32>().is_ok_and(|n| n > 1000) || n.len() > 9) {
            return Err(format!("{{{inside}}} repeats more than 1000 times"));
        }
        self.rest.nth(inside.chars().count());
        Ok(Some(format!("{{{inside}}}")))
    }

    /// Reads a name or flags after a `(`. A flag that only the crate `regex` has is rejected.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('?') {
            return Ok(());
        }
        let flags: String = ahead.clone().take_while(|c| c.is_ascii_alphabetic() || *c == '-').collect();
        let named = ahead.clone().nth(usize::from(flags == "P")) == Some('<');
        if named && matches!(flags.as_str(), "" | "P") {
            let name: String = ahead.skip(flags.len() + 1).take_while(|c| *c != '>').collect();
            let closed = self.rest.clone().nth(flags.len() + 2 + name.chars().count()) == Some('>');
            if !closed || name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("`{name}` is not a valid group name"));
            }
            self.rest.nth(flags.len() + 2 + name.len());
            // The crate `regex` rejects a group name that begins with a digit or occurs twice. Such
            // a group is translated to a group without a name.
            let written = format!("?P<{name}>");
            if !name.starts_with(|c: char| c.is_ascii_digit()) && !self.out.contains(&written) {
                self.out.push_str(&written);
            }
            return Ok(());
        }
        if let Some(flag) = flags.chars().find(|c| !"imsU-".contains(*c)) {
            return Err(format!("unknown flag `{flag}`"));
        }
        self.out.extend(self.rest.next());
        Ok(())
    }

    /// Reads an escape outside of a class, after its `\`.
    fn escape(&mut self) -> Result<(), String> {
        match self.rest.peek() {
            Some('b') => self.write(r"(?-u:\b)"),
            Some('B') => self.write(r"(?-u:\B)"),
            Some(c @ ('A' | 'z')) => {
                let whole = format!("\\{c}");
                self.write(&whole);
            }
            Some('Q') => {
                self.rest.next();
                while let Some(c) = self.rest.next() {
                    if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                        break;
                    }
                    self.literal(c);
                }
            }
            _ => self.character_or_class()?,
        }
        Ok(())
    }

    /// Reads an escape that means the same inside and outside of a class: `\d`, `\pL`, `\x41`,
    /// `\n`, `\.`.
    fn character_or_class(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else { return Err("the expression ends with `\\`".to_owned()) };
        match c {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => self.out.push_str(r"[\t\n\f\r ]"),
            'S' => self.out.push_str(r"[^\t\n\f\r ]"),
            'p' | 'P' => self.unicode_class(c),
            _ => {
                let c = self.character(c)?;
                self.literal(c);
            }
        }
        Ok(())
    }

    /// Reads a Unicode class after `\p` or `\P`.
    fn unicode_class(&mut self, sign: char) {
        let mut negated = sign == 'P';
        let mut name = String::from("{");
        match self.rest.next() {
            Some('{') => {
                negated ^= self.rest.next_if_eq(&'^').is_some();
                name.extend(self.rest.by_ref().take_while(|c| *c != '}'));
            }
            one => name.extend(one),
        }
        self.out.push_str(if negated { r"\P" } else { r"\p" });
        self.out.push_str(&name);
        self.out.push('}');
    }

    /// The character that an escape means, given the character after the `\`.
    fn character(&mut self, first: char) -> Result<char, String> {
        Ok(match first {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => {
                let digits: String = match self.rest.next_if_eq(&'{') {
                    Some(_) => self.rest.by_ref().take_while(|c| *c != '}').collect(),
                    None => self.rest.by_ref().take(2).collect(),
                };
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| !digits.starts_with('+'));
                code.and_then(char::from_u32).ok_or_else(|| format!("`\\x{{{digits}}}` is not a character"))?
            }
            '0'..='7' => {
                let more = |c: &char| c.is_digit(8);
                let mut octal = first.to_digit(8).unwrap_or_default();
                let mut length = 1;
                while let (true, Some(c)) = (length < 3, self.rest.next_if(more)) {
                    octal = octal * 8 + c.to_digit(8).unwrap_or_default();
                    length += 1;
                }
                // `\1` alone is rejected: it would be a backreference, which Go does not support.
                char::from_u32(octal)
                    .filter(|_| first == '0' || length > 1)
                    .ok_or(format!("unknown escape `\\{first}`"))?
            }
            c if c.is_ascii_punctuation() => c,
            c => return Err(format!("unknown escape `\\{c}`")),
        })
    }

    /// Reads a character class after its `[`.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        self.out.extend(self.rest.next_if_eq(&'^'));
        let mut first = true;
        loop {
            let Some(c) = self.rest.next() else { return Err("unclosed character class".to_owned()) };
            match c {
                ']' if !first => break,
                '[' if self.rest.peek() == Some(&':') && self.rest.clone().any(|c| c == ']') => self.named_class()?,
                '\\' if self.rest.peek().is_some_and(|c| "dDwWsSpP".contains(*c)) => self.character_or_class()?,
                c => {
                    let low = self.class_character(c)?;
                    self.literal(low);
                    self.range(low)?;
                }
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// Reads the `-z` of a range after its first character, if there is one.
    fn range(&mut self, low: char) -> Result<(), String> {
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('-') || ahead.next().is_none_or(|c| c == ']') {
            return Ok(());
        }
        self.rest.next();
        let Some(c) = self.rest.next() else { return Err("unclosed character class".to_owned()) };
        let high = self.class_character(c)?;
        if high < low {
            return Err(format!("`{low}-{high}` is not a valid range"));
        }
        self.out.push('-');
        self.literal(high);
        Ok(())
    }

    fn class_character(&mut self, c: char) -> Result<char, String> {
        match c {
            '\\' => {
                let c = self.rest.next().ok_or("unclosed character class")?;
                self.character(c)
            }
            c => Ok(c),
        }
    }

    /// Reads `[:alpha:]` within a class, after its `[`. A `[:` without `:]` is two literal
    /// characters.
    fn named_class(&mut self) -> Result<(), String> {
        let name: String = self.rest.clone().skip(1).take_while(|c| *c != ':' && *c != ']').collect();
        let mut after = self.rest.clone().skip(1 + name.chars().count());
        if (after.next(), after.next()) != (Some(':'), Some(']')) {
            self.literal('[');
            return self.range('[');
        }
        if !NAMED.contains(&name.trim_start_matches('^')) {
            return Err(format!("unknown class `[:{name}:]`"));
        }
        self.rest.nth(name.chars().count() + 2);
        self.out.push_str(&format!("[:{name}:]"));
        Ok(())
    }

    fn write(&mut self, whole: &str) {
        self.rest.next();
        self.out.push_str(whole);
    }

    /// Writes a literal character, escaped if needed.
    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("\\x{{{:x}}}", u32::from(c)));
        }
    }
}
