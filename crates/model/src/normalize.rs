//! Removes the lines of a file that `normalize:` ignores, before the content is hashed. A node and
//! a manager that renders the expected content use the same code.

use super::Sha256;
use regex::bytes::{RegexBuilder, RegexSet, RegexSetBuilder};
use std::fmt;

/// Maximum number of patterns for one service. `PATTERN_MAX` is the maximum length of a pattern, in
/// bytes.
pub const NORMALIZE_MAX: usize = 32;
const PATTERN_MAX: usize = 1024;
/// Maximum size of the compiled patterns of one service, in bytes.
const COMPILED_MAX: usize = 1 << 20;

/// The compiled `normalize:` of one service. A line is the text before a line end, or before the
/// end of the content.
#[derive(Debug, Clone)]
pub struct Normalizer {
    lines: RegexSet,
    id: u64,
}

/// The reason why patterns cannot be used. Nothing was read or hashed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NormalizeError {
    /// The faulty pattern. None if the error concerns all patterns together.
    pub pattern: Option<String>,
    pub why: String,
}

impl fmt::Display for NormalizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Some(pattern) => write!(f, "`{pattern}` {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl Normalizer {
    /// Compiles the patterns. Returns None if there are no patterns; the whole content is then
    /// hashed.
    pub fn new(patterns: &[String]) -> Result<Option<Self>, NormalizeError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        if patterns.len() > NORMALIZE_MAX {
            return Err(NormalizeError { pattern: None, why: format!("more than {NORMALIZE_MAX} patterns") });
        }
        patterns.iter().try_for_each(|pattern| Self::check(pattern))?;
        let mut set = RegexSetBuilder::new(patterns);
        let lines = set.size_limit(COMPILED_MAX).dfa_size_limit(COMPILED_MAX).build();
        let lines = lines.map_err(|_| NormalizeError {
            pattern: None,
            why: format!("the patterns are together larger than {} KiB when compiled", COMPILED_MAX >> 10),
        })?;
        if drops_all(|line| lines.is_match(line)) {
            return Err(NormalizeError { pattern: None, why: "the patterns together drop every line".to_owned() });
        }
        let Sha256(hash) = Sha256::digest(patterns.join("\n").as_bytes());
        let id = hash.first_chunk().map_or(1, |first| u64::from_be_bytes(*first).max(1));
        Ok(Some(Self { lines, id }))
    }

    /// Checks one pattern. A pattern that matches every line is refused, because it would make all
    /// contents equal.
    pub fn check(pattern: &str) -> Result<(), NormalizeError> {
        let refuse = |why: &str| Err(NormalizeError { pattern: Some(pattern.to_owned()), why: why.to_owned() });
        if pattern.len() > PATTERN_MAX {
            return refuse("is longer than 1 KiB");
        }
        match RegexBuilder::new(pattern).size_limit(COMPILED_MAX).build() {
            Ok(regex) if drops_all(|line| regex.is_match(line)) => refuse("drops every line"),
            Ok(_) => Ok(()),
            Err(regex::Error::CompiledTooBig(_)) => refuse("is too large when compiled"),
            // The error message of the regex crate shows the pattern in several lines. Its last
            // line names the error.
            Err(error) => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                refuse(&format!("is no regular expression: {last}"))
            }
        }
    }

    /// A number that identifies the patterns. Equal patterns have equal numbers, and other patterns
    /// have other numbers. The number is never 0.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The lines of `content` that are not ignored, with their line ends.
    pub fn significant_lines<'a>(&'a self, content: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let lines = content.split_inclusive(|byte| *byte == b'\n');
        lines.filter(|line| !self.lines.is_match(line.strip_suffix(b"\n").unwrap_or(line)))
    }

    /// The hash of the lines that are not ignored.
    pub fn sha256(&self, content: &[u8]) -> Sha256 {
        Sha256::digest(&self.significant_lines(content).collect::<Vec<_>>().concat())
    }
}

/// Whether the patterns match a line that occurs in no real file, or all of several lines that have
/// nothing in common.
fn drops_all(finds: impl Fn(&[u8]) -> bool) -> bool {
    const UNLIKE: [&[u8]; 5] = [b"port = 80", b"[main]", b"  - name: \"x\"", b"</Directory>", b"0.0.0.0/0 via eth0;"];
    finds(b"\x01") || UNLIKE.iter().all(|line| finds(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normalizer(patterns: &[&str]) -> Result<Option<Normalizer>, NormalizeError> {
        Normalizer::new(&patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn matching_lines_are_dropped_completely_and_the_rest_is_unchanged() {
        let stamps = normalizer(&["^# generated", "^Date: .*$"]).unwrap().unwrap();
        for (content, wanted) in [
            ("# generated 1\na\nDate: x\r\nb", "a\nb"),
            ("a\n# generated 1\n", "a\n"),
            ("a # generated\n\n", "a # generated\n\n"),
            ("", ""),
            ("Date: 1", ""),
        ] {
            assert_eq!(
                stamps.significant_lines(content.as_bytes()).collect::<Vec<_>>().concat(),
                wanted.as_bytes(),
                "{content:?}"
            );
            assert_eq!(stamps.sha256(content.as_bytes()), Sha256::digest(wanted.as_bytes()));
        }
        let bytes = b"\xff\xfe\n# generated \xff\n";
        assert_eq!(stamps.sha256(bytes), Sha256::digest(b"\xff\xfe\n"), "what is no UTF-8 has lines too");
        assert!(normalizer(&[]).unwrap().is_none());
        assert_ne!(stamps.id(), normalizer(&["^# generated"]).unwrap().unwrap().id());
    }

    #[test]
    fn patterns_that_are_too_large_or_drop_every_line_are_refused() {
        let why = |patterns: &[&str]| normalizer(patterns).unwrap_err().to_string();
        let text = [
            why(&["a", "("]),
            why(&["(a{1000}){1000}"]),
            why(&["x*"]),
            why(&[".+"]),
            why(&[&"a".repeat(PATTERN_MAX + 1)]).split_off(PATTERN_MAX),
            why(&["a"; NORMALIZE_MAX + 1]),
            why(&["\\pL{10}"; NORMALIZE_MAX]),
        ];
        expect_test::expect![[r#"
            `(` is no regular expression: unclosed group
            `(a{1000}){1000}` is too large when compiled
            `x*` drops every line
            `.+` drops every line
            aa` is longer than 1 KiB
            more than 32 patterns
            the patterns are together larger than 1024 KiB when compiled"#]]
        .assert_eq(&text.join("\n"));
        // A backtracking engine would need exponential time for these patterns. This engine needs
        // linear time.
        let slow = normalizer(&["^(a+)+$", "^(a|aa)+$"]).unwrap().unwrap();
        let line = "a".repeat(1 << 20) + "b\n";
        assert_eq!(slow.significant_lines(line.as_bytes()).count(), 1);
    }

    proptest! {
        /// The lines without a match are kept, and no others. A second pass drops nothing more.
        #[test]
        fn exactly_the_lines_without_a_match_are_kept(content in "[ab#\n\r]{0,40}") {
            let normalizer = normalizer(&["^#", "b$"]).unwrap().unwrap();
            let kept = String::from_utf8(normalizer.significant_lines(content.as_bytes()).collect::<Vec<_>>().concat()).unwrap();
            let drops = |line: &str| line.starts_with('#') || line.ends_with('b');
            let wanted: String =
                content.split_inclusive('\n').filter(|l| !drops(l.trim_end_matches('\n'))).collect();
            prop_assert_eq!(&kept, &wanted);
            let again: Vec<&[u8]> = normalizer.significant_lines(kept.as_bytes()).collect();
            prop_assert_eq!(again.concat(), kept.as_bytes());
        }
    }
}
