//! goss's line patterns, for contents, output and bodies: `foo`, `!foo`, `/re/`, `!/re/`; and its regular expressions.

use regex::Regex;
use std::fmt;

/// A list of patterns: each plain one must match some line, each negated one no line.
#[derive(Debug, Clone)]
pub(super) struct Patterns(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    /// As written.
    text: String,
    negated: bool,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    Contains(String),
    Matches(Regex),
}

impl Patterns {
    /// Err: number of the faulty pattern, and why.
    pub fn parse(patterns: &[String]) -> Result<Self, (usize, String)> {
        let parsed: Result<Vec<Pattern>, _> =
            patterns.iter().enumerate().map(|(number, text)| Pattern::parse(text).map_err(|e| (number, e))).collect();
        parsed.map(Self)
    }

    /// The patterns, as written, that `text` does not satisfy.
    pub fn unmet(&self, text: &str) -> Vec<&str> {
        let unmet = |pattern: &&Pattern| text.lines().any(|line| pattern.test.holds(line)) == pattern.negated;
        self.0.iter().filter(unmet).map(|pattern| pattern.text.as_str()).collect()
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (negated, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let test = match rest.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some(regex) => Test::Matches(go_regex(regex)?),
            // `\!` and `\/` stand for the character itself at the beginning.
            None => {
                Test::Contains(rest.strip_prefix('\\').filter(|r| r.starts_with(['!', '/'])).unwrap_or(rest).to_owned())
            }
        };
        match &test {
            Test::Contains(part) if part.is_empty() => Err("an empty pattern asserts nothing".to_owned()),
            _ => Ok(Self { text: text.to_owned(), negated, test }),
        }
    }
}

impl Test {
    fn holds(&self, line: &str) -> bool {
        match self {
            Test::Contains(part) => line.contains(part),
            Test::Matches(regex) => regex.is_match(line),
        }
    }
}

impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.0.iter().map(|pattern| pattern.text.as_str()).collect();
        write!(f, "[{}]", texts.join(", "))
    }
}

/// A regular expression as Go reads it: `\d`, `\w`, `\s` and `\b` know ASCII only.
pub(super) fn go_regex(text: &str) -> Result<Regex, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('d') => out.push_str("[0-9]"),
            Some('D') => out.push_str("[^0-9]"),
            Some('w') => out.push_str("[0-9A-Za-z_]"),
            Some('W') => out.push_str("[^0-9A-Za-z_]"),
            Some('s') => out.push_str(r"[\t\n\f\r ]"),
            Some('S') => out.push_str(r"[^\t\n\f\r ]"),
            Some('b') => out.push_str(r"(?-u:\b)"),
            Some('Q') => return Err(r"\Q is not known here; escape each character".to_owned()),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    Regex::new(&out).map_err(|e| e.to_string().lines().last().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unmet(patterns: &[&str], text: &str) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|p| p.to_string()).collect();
        Patterns::parse(&patterns).unwrap().unmet(text).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn each_form_of_a_pattern() {
        let text = "listen 80;\n!important\n/etc/x\n";
        let good = ["listen", "!443", "/^listen [0-9]+;$/", "!/^80/", "\\!important", "\\/etc", "/etc/x"];
        assert!(unmet(&good, text).is_empty());
        assert_eq!(unmet(&["443", "!listen", "/^80/", "!/;$/", "/etc/x"], text), ["443", "!listen", "/^80/", "!/;$/"]);
        assert_eq!(unmet(&["a", "!a"], ""), ["a"]);
        assert!(Patterns::parse(&["ok".into(), "/(/".into()]).is_err_and(|(number, _)| number == 1));
        assert!(Patterns::parse(&["!".into()]).is_err());
    }

    #[test]
    fn classes_are_those_of_go() {
        assert!(!go_regex(r"^\d$").unwrap().is_match("٣"));
        assert!(go_regex(r"^[\w.]+\s\\d\.$").unwrap().is_match("a.b \\d."));
        assert!(!go_regex(r"^\w$").unwrap().is_match("é"));
        assert!(!go_regex(r"^.\b").unwrap().is_match("ab"));
        assert!(go_regex(r"\Qa\E").is_err());
    }

    proptest! {
        #[test]
        fn a_pattern_and_its_negation_never_agree(text in "[ab\n]{0,12}", part in "[ab]{1,3}") {
            for pattern in [part.clone(), format!("/{part}/")] {
                let plain = unmet(&[&pattern], &text).is_empty();
                let negated = unmet(&[&format!("!{pattern}")], &text).is_empty();
                prop_assert_eq!(plain, text.contains(&part));
                prop_assert_ne!(plain, negated);
            }
        }
    }
}
