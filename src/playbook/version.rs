//! Comparing versions loosely, as `is version` does: numbers by value, words by text, words before numbers.

use std::cmp::Ordering;

/// Whether `a op b`; the error names an unknown operator.
pub fn holds(a: &str, op: &str, b: &str) -> Result<bool, String> {
    let order = compare(a, b);
    Ok(match op {
        "==" | "=" | "eq" => order == Ordering::Equal,
        "!=" | "<>" | "ne" => order != Ordering::Equal,
        "<" | "lt" => order == Ordering::Less,
        "<=" | "le" => order != Ordering::Greater,
        ">" | "gt" => order == Ordering::Greater,
        ">=" | "ge" => order != Ordering::Less,
        other => return Err(format!("version: unknown operator `{other}`")),
    })
}

/// Order of two versions.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (parts(a), parts(b));
    for i in 0..a.len().max(b.len()) {
        let order = match (a.get(i), b.get(i)) {
            (Some(x), Some(y)) => x.cmp(y),
            // `1.2` equals nothing but itself, `1.2-rc1` comes before it, `1.2.1` after.
            (Some(Part::Word(_)), None) => Ordering::Less,
            (None, Some(Part::Word(_))) => Ordering::Greater,
            (Some(_), None) => Ordering::Greater,
            _ => Ordering::Less,
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Word(String),
    Number(u64),
}

fn parts(version: &str) -> Vec<Part> {
    let mut out = Vec::new();
    let mut rest = version.trim().trim_start_matches(['v', 'V']);
    while let Some(c) = rest.chars().next() {
        let digit = c.is_ascii_digit();
        let end = rest.find(|x: char| x.is_ascii_digit() != digit || !x.is_alphanumeric()).unwrap_or(rest.len());
        if end == 0 {
            rest = &rest[c.len_utf8()..];
            continue;
        }
        out.push(match rest[..end].parse() {
            Ok(n) if digit => Part::Number(n),
            _ => Part::Word(rest[..end].to_owned()),
        });
        rest = &rest[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_like_people() {
        for (a, op, b) in [
            ("1.10", ">", "1.9"),
            ("12.4", ">=", "12"),
            ("1.2-rc1", "<", "1.2"),
            ("v2.0", "==", "2.0"),
            ("7", "lt", "8"),
        ] {
            assert_eq!(holds(a, op, b), Ok(true), "{a} {op} {b}");
        }
        assert!(holds("1", "~", "2").is_err());
    }
}
