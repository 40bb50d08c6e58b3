//! Compares versions as the test `version` does: by the schemes `loose` and `strict` of Python's
//! distutils, or by semver.org.

use std::cmp::Ordering;

/// The version schemes.
pub const TYPES: [&str; 4] = ["loose", "strict", "semver", "semantic"];

/// Whether `a op b` holds in the scheme `kind`. Fails for an unknown operator or an invalid
/// version.
pub fn holds(a: &str, op: &str, b: &str, kind: &str) -> Result<bool, String> {
    if a.is_empty() || b.is_empty() {
        return Err("version: a version is empty".into());
    }
    let wanted: fn(Ordering) -> bool = match op {
        "==" | "=" | "eq" => Ordering::is_eq,
        "!=" | "<>" | "ne" => Ordering::is_ne,
        "<" | "lt" => Ordering::is_lt,
        "<=" | "le" => Ordering::is_le,
        ">" | "gt" => Ordering::is_gt,
        ">=" | "ge" => Ordering::is_ge,
        other => return Err(format!("version: unknown operator `{other}`")),
    };
    let order = match kind {
        "loose" => loose(a, b)?,
        "strict" => strict(a)?.cmp(&strict(b)?),
        "semver" | "semantic" => {
            let parse = |v: &str| {
                semver::Version::parse(v).map_err(|e| format!("version: `{v}` is not a semantic version: {e}"))
            };
            parse(a)?.cmp_precedence(&parse(b)?)
        }
        other => return Err(format!("version: unknown type `{other}`; known are {}", TYPES.join(", "))),
    };
    Ok(wanted(order))
}

#[derive(PartialEq, Eq)]
enum Part {
    Word(String),
    Number(u128),
}

fn loose(a: &str, b: &str) -> Result<Ordering, String> {
    let (x, y) = (parts(a), parts(b));
    for (p, q) in x.iter().zip(&y) {
        let order = match (p, q) {
            (Part::Number(p), Part::Number(q)) => p.cmp(q),
            (Part::Word(p), Part::Word(q)) => p.cmp(q),
            _ => {
                return Err(format!(
                    "version: `{a}` and `{b}` cannot be compared: they have a number and a word in the same place"
                ));
            }
        };
        if order.is_ne() {
            return Ok(order);
        }
    }
    Ok(x.len().cmp(&y.len()))
}

/// Splits a version into runs of digits, of lowercase letters and of other characters. Dots are
/// left out.
fn parts(version: &str) -> Vec<Part> {
    let kind = |c: char| match c {
        '0'..='9' => 0,
        'a'..='z' => 1,
        '.' => 2,
        _ => 3,
    };
    let mut out = Vec::new();
    let mut rest = version;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| kind(c) != kind(first)).unwrap_or(rest.len());
        let word = &rest[..end];
        match kind(first) {
            0 => out.push(word.parse().map_or_else(|_| Part::Word(word.to_owned()), Part::Number)),
            2 => {}
            _ => out.push(Part::Word(word.to_owned())),
        }
        rest = &rest[end..];
    }
    out
}

/// Parses `1.2` or `1.2.3`, optionally with `a1` or `b1`, which sorts before the version itself.
fn strict(version: &str) -> Result<([u64; 3], (u8, u64)), String> {
    let wrong = || format!("version: `{version}` is not a strict version such as 1.2.3 or 1.2b1");
    let (numbers, before) = match version.find(['a', 'b']) {
        Some(at) => {
            let mark = u8::from(version.as_bytes()[at] == b'b');
            (&version[..at], (mark, version[at + 1..].parse().map_err(|_| wrong())?))
        }
        None => (version, (2, 0)),
    };
    let numbers: Vec<u64> = numbers.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
    match numbers.as_slice() {
        [a, b] => Ok(([*a, *b, 0], before)),
        [a, b, c] => Ok(([*a, *b, *c], before)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_its_type_says() {
        for (a, op, b, kind, want) in [
            ("1.10", ">", "1.9", "loose", true),
            ("12.4", ">=", "12", "loose", true),
            ("1.2-rc1", ">", "1.2", "loose", true),
            ("1.2", "==", "1.2.0", "loose", false),
            ("1.2", "==", "1.2.0", "strict", true),
            ("1.2b1", "<", "1.2", "strict", true),
            ("1.0.0-rc.2", "lt", "1.0.0-rc.10", "semver", true),
            ("1.0.0+a", "eq", "1.0.0+b", "semantic", true),
        ] {
            assert_eq!(holds(a, op, b, kind), Ok(want), "{a} {op} {b} {kind}");
        }
        for (a, op, b, kind) in
            [("1", "~", "2", "loose"), ("1", "<", "x", "loose"), ("1", "<", "2", "semver"), ("", "<", "2", "loose")]
        {
            assert!(holds(a, op, b, kind).is_err(), "{a} {op} {b} {kind}");
        }
    }
}
