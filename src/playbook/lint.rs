//! Reads templates without rendering them: which filters and tests they name, which templates they include, which words
//! could be variables. A scanner, not a parser: it errs on the side of finding too much.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Filter,
    Test,
}

#[derive(Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Sign(char),
}

/// Tokens inside `{{ }}` and `{% %}`, comments and raw blocks left out.
fn tokens(template: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        rest = &rest[at + 1..];
        let end = match rest.as_bytes().first() {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => {
                rest = rest.find("#}").map_or("", |end| &rest[end + 2..]);
                continue;
            }
            _ => continue,
        };
        rest = &rest[1..];
        let start = out.len();
        rest = section(rest, end, &mut out);
        if out.get(start) == Some(&Token::Word("raw")) {
            rest = rest.find("endraw").map_or("", |end| &rest[end..]);
        }
        out.push(Token::Sign(';'));
    }
    out
}

fn section<'a>(mut rest: &'a str, end: &str, out: &mut Vec<Token<'a>>) -> &'a str {
    while let Some(c) = rest.chars().next() {
        if rest.starts_with(end) {
            return &rest[2..];
        }
        if c == '\'' || c == '"' {
            let body = &rest[1..];
            let mut escaped = false;
            let close = body.find(|x: char| {
                let hit = x == c && !escaped;
                escaped = x == '\\' && !escaped;
                hit
            });
            let close = close.unwrap_or(body.len());
            out.push(Token::Text(&body[..close]));
            rest = body.get(close + 1..).unwrap_or("");
        } else if c.is_alphabetic() || c == '_' {
            let len = rest.find(|x: char| !(x.is_alphanumeric() || x == '_')).unwrap_or(rest.len());
            out.push(Token::Word(&rest[..len]));
            rest = &rest[len..];
        } else {
            if !c.is_whitespace() {
                out.push(Token::Sign(c));
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    rest
}

/// Names behind `|` and `is`.
pub fn filters_and_tests(template: &str) -> Vec<(Kind, String)> {
    let tokens = tokens(template);
    let mut out = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let (kind, mut at) = match token {
            Token::Sign('|') => (Kind::Filter, i + 1),
            Token::Word("is") if tokens.get(i + 1) == Some(&Token::Word("not")) => (Kind::Test, i + 2),
            Token::Word("is") => (Kind::Test, i + 1),
            _ => continue,
        };
        let Some(Token::Word(first)) = tokens.get(at) else { continue };
        let mut name = (*first).to_owned();
        while let (Some(Token::Sign('.')), Some(Token::Word(next))) = (tokens.get(at + 1), tokens.get(at + 2)) {
            name = format!("{name}.{next}");
            at += 2;
        }
        out.push((kind, name));
    }
    out
}

/// Names of templates that this one includes, imports or extends by a fixed name.
pub fn includes(template: &str) -> BTreeSet<String> {
    let tokens = tokens(template);
    let pairs = tokens.windows(2).filter_map(|pair| match pair {
        [Token::Word("include" | "import" | "extends" | "from"), Token::Text(name)] => Some((*name).to_owned()),
        _ => None,
    });
    pairs.collect()
}

/// Names given to `lookup` and `query`.
pub fn lookups(template: &str) -> Vec<String> {
    let tokens = tokens(template);
    let calls = tokens.windows(3).filter_map(|call| match call {
        [Token::Word("lookup" | "query" | "q"), Token::Sign('('), Token::Text(name)] => Some((*name).to_owned()),
        _ => None,
    });
    calls.collect()
}

/// Every word that could name a variable, in markup or not.
pub fn words(text: &str, out: &mut BTreeSet<String>) {
    for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
        if word.starts_with(|c: char| c.is_alphabetic() || c == '_') && !out.contains(word) {
            out.insert(word.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_names() {
        let text = "a | b {{ x | default('|no') | map('upper') }}{% if y is not defined and z is version('1', '<') %}{# | none #}";
        let found: Vec<String> = filters_and_tests(text).into_iter().map(|(_, n)| n).collect();
        assert_eq!(found, ["default", "map", "defined", "version"]);
        assert_eq!(
            includes("{% include 'a.j2' %}{% from \"m.j2\" import x %}").into_iter().collect::<Vec<_>>(),
            ["a.j2", "m.j2"]
        );
        assert!(filters_and_tests("{% raw %}{{ a | nope }}{% endraw %}").is_empty());
        assert_eq!(lookups("{{ lookup('url', 'http://x') }}"), ["url"]);
    }
}
