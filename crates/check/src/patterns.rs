//! goss's line patterns for file contents, output and bodies: `foo`, `!foo`, `/re/`, `!/re/`.

use super::go_regex::{GoRegex, go_regex};
use super::near_miss::describe_near_miss;
use std::fmt;

/// A list of patterns. Each pattern must match some line; each negated pattern must match no line.
#[derive(Debug, Clone)]
pub(super) struct Patterns(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    /// The pattern as written.
    text: String,
    negated: bool,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    Contains(String),
    Matches(GoRegex),
}

impl Patterns {
    /// Err: the index of the faulty pattern, and the reason.
    pub fn parse(patterns: &[String]) -> Result<Self, (usize, String)> {
        let parsed: Result<Vec<Pattern>, _> =
            patterns.iter().enumerate().map(|(number, text)| Pattern::parse(text).map_err(|e| (number, e))).collect();
        parsed.map(Self)
    }

    /// Like [`Patterns::parse`], with goss's reading of the texts that `parse` reads differently or
    /// rejects.
    pub fn parse_as_goss(patterns: &[String]) -> Result<Self, (usize, String)> {
        let parse = |(number, text): (usize, &String)| Pattern::parse_as_goss(text).map_err(|e| (number, e));
        patterns.iter().enumerate().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// The patterns, as written, that `text` does not satisfy.
    pub fn unmet_patterns(&self, text: &str) -> Vec<&str> {
        // For goss, an empty pattern is met by a text without any line.
        let unmet = |pattern: &&Pattern| pattern.line(text).is_some() == pattern.negated && !pattern.text.is_empty();
        self.0.iter().filter(unmet).map(|pattern| pattern.text.as_str()).collect()
    }

    /// The patterns that `text` satisfies, in the order of the matching lines; negated patterns
    /// come last.
    pub fn met_patterns(&self, text: &str) -> Vec<&str> {
        let mut all = Vec::new();
        for pattern in &self.0 {
            let line = pattern.line(text);
            if line.is_some() != pattern.negated {
                all.push((line.unwrap_or(usize::MAX), pattern.text.as_str()));
            }
        }
        all.sort_by_key(|(line, _)| *line);
        all.into_iter().map(|(_, written)| written).collect()
    }

    /// A remark about the line that nearly satisfies the first unmet pattern. None for a negated
    /// pattern and for a regular expression.
    pub fn near_miss(&self, text: &str) -> Option<String> {
        let unmet = self.0.iter().find(|pattern| !pattern.negated && pattern.line(text).is_none())?;
        match &unmet.test {
            Test::Contains(part) => describe_near_miss(part, text),
            Test::Matches(_) => None,
        }
    }

    /// All patterns, as written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|pattern| pattern.text.as_str())
    }

    /// The cost of searching `text` for all patterns, in comparisons.
    pub fn cost(&self, text: &str) -> usize {
        let each = |pattern: &Pattern| match &pattern.test {
            Test::Contains(_) => 0,
            Test::Matches(regex) => regex.cost(text),
        };
        self.0.iter().map(|pattern| each(pattern).saturating_add(text.len() / 256)).fold(0, usize::saturating_add)
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (negated, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let test = match rest.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some("") => return Err("an empty pattern asserts nothing".to_owned()),
            Some(regex) => Test::Matches(go_regex(regex)?),
            // At the beginning of a pattern, `\!` means a literal `!` and `\/` a literal `/`.
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

impl Pattern {
    /// Reads a pattern as goss does, which ignores each `\\`, `/` and `!` at the beginning of a
    /// text.
    fn parse_as_goss(text: &str) -> Result<Self, String> {
        let (negated, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let test = match rest.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some(regex) => Test::Matches(go_regex(regex)?),
            None => Test::Contains(text.trim_start_matches(['\\', '/', '!']).to_owned()),
        };
        Ok(Self { text: text.to_owned(), negated, test })
    }

    /// The index of the first line that the pattern matches. A carriage return at the end of a
    /// line, including the last, is not part of the line.
    fn line(&self, text: &str) -> Option<usize> {
        let mut lines = text.split_terminator('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        lines.position(|line| self.test.holds(line))
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
        let texts: Vec<&str> = self.texts().collect();
        write!(f, "[{}]", texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find_unmet(patterns: &[&str], text: &str) -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|p| p.to_string()).collect();
        Patterns::parse(&patterns).unwrap().unmet_patterns(text).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn each_form_of_a_pattern() {
        let text = "listen 80;\n!important\n/etc/x\n";
        let good = ["listen", "!443", "/^listen [0-9]+;$/", "!/^80/", "\\!important", "\\/etc", "/etc/x"];
        assert!(find_unmet(&good, text).is_empty());
        assert_eq!(
            find_unmet(&["443", "!listen", "/^80/", "!/;$/", "/etc/x"], text),
            ["443", "!listen", "/^80/", "!/;$/"]
        );
        assert_eq!(find_unmet(&["a", "!a"], ""), ["a"]);
        assert!(Patterns::parse(&["ok".into(), "/(/".into()]).is_err_and(|(number, _)| number == 1));
        for nothing in ["", "!", "//", "!//"] {
            assert!(Patterns::parse(&[nothing.into()]).is_err(), "{nothing}");
        }
        assert!(find_unmet(&["/a$/", "/b$/", "/^$/"], "a\r\n\r\nb\r").is_empty());
    }

    proptest! {
        #[test]
        fn a_pattern_and_its_negation_never_agree(text in "[ab\n]{0,12}", part in "[ab]{1,3}") {
            for pattern in [part.clone(), format!("/{part}/")] {
                let plain = find_unmet(&[&pattern], &text).is_empty();
                let negated = find_unmet(&[&format!("!{pattern}")], &text).is_empty();
                prop_assert_eq!(plain, text.contains(&part));
                prop_assert_ne!(plain, negated);
            }
        }
    }
}
