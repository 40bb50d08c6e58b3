//! Patterns of Python's `re` for the content of files, which may have any encoding. A pattern with
//! look-around or backreferences needs UTF-8.

use crate::filters;
use crate::lang::pyregex::{self, Replacement};
use std::cell::RefCell;
use std::ops::Range;

/// A compiled pattern.
pub struct FileRegex {
    engine: Engine,
    pattern: String,
    /// The first error of a match, for `check`.
    failed: RefCell<Option<String>>,
}

enum Engine {
    Bytes(regex::bytes::Regex),
    /// The engine for look-around and backreferences.
    Text(Box<fancy_regex::Regex>),
}

/// How `.`, `^` and `$` match.
#[derive(Debug, Clone, Copy, Default)]
pub struct LineRules {
    pub multi_line: bool,
    pub dot_matches_new_line: bool,
}

impl FileRegex {
    pub fn new(pattern: &str, rules: LineRules) -> Result<Self, String> {
        let LineRules { multi_line, dot_matches_new_line } = rules;
        let bytes = pyregex::bytes(pattern).multi_line(multi_line).dot_matches_new_line(dot_matches_new_line).build();
        let engine = match bytes {
            Ok(regex) => Engine::Bytes(regex),
            Err(e) => {
                let text = pyregex::text(pattern, multi_line, dot_matches_new_line);
                // The error of the simple engine shows the pattern with a mark at the fault.
                Engine::Text(Box::new(text.map_err(|_| format!("pattern `{pattern}`: {e}"))?))
            }
        };
        Ok(Self { engine, pattern: pattern.to_owned(), failed: RefCell::new(None) })
    }

    /// Fails if a match failed since the pattern was compiled.
    pub fn check(&self) -> Result<(), String> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }

    fn fail<T>(&self, why: &str) -> Option<T> {
        self.failed.borrow_mut().get_or_insert_with(|| format!("pattern `{}`: {why}", self.pattern));
        None
    }

    fn as_text<'t>(&self, content: &'t [u8]) -> Option<&'t str> {
        std::str::from_utf8(content).ok().or_else(|| self.fail("look-around and backreferences need UTF-8"))
    }

    fn captures<'t>(&self, regex: &fancy_regex::Regex, content: &'t [u8]) -> Option<fancy_regex::Captures<'t, str>> {
        // After one failure the task fails, so the other lines need no time.
        if self.failed.borrow().is_some() {
            return None;
        }
        match regex.captures(self.as_text(content)?) {
            Ok(found) => found,
            Err(e) => self.fail(&e.to_string()),
        }
    }

    pub fn is_match(&self, content: &[u8]) -> bool {
        match &self.engine {
            Engine::Bytes(regex) => regex.is_match(content),
            Engine::Text(regex) => self.captures(regex, content).is_some(),
        }
    }

    /// The range of a named group in the first match.
    pub fn group(&self, content: &[u8], name: &str) -> Option<Range<usize>> {
        match &self.engine {
            Engine::Bytes(regex) => Some(regex.captures(content)?.name(name)?.range()),
            Engine::Text(regex) => Some(self.captures(regex, content)?.name(name)?.range()),
        }
    }

    /// Python's replacement `with` for the first match.
    pub fn expand(&self, content: &[u8], with: &str) -> Result<Option<Vec<u8>>, String> {
        match &self.engine {
            Engine::Bytes(regex) => Ok(regex.captures(content).map(|found| {
                let mut out = Vec::new();
                found.expand(filters::replacement(with).as_bytes(), &mut out);
                out
            })),
            Engine::Text(regex) => match self.captures(regex, content) {
                None => self.check().map(|()| None),
                Some(found) => {
                    let mut out = String::new();
                    Replacement::new(with)?.expand(&found, &mut out)?;
                    Ok(Some(out.into_bytes()))
                }
            },
        }
    }

    /// Replaces all matches by Python's replacement `with`, and returns their number.
    pub fn replace_all(&self, content: &[u8], with: &str) -> Result<(Vec<u8>, usize), String> {
        match &self.engine {
            Engine::Bytes(regex) => {
                let with = filters::replacement(with);
                Ok((regex.replace_all(content, with.as_bytes()).into_owned(), regex.find_iter(content).count()))
            }
            Engine::Text(regex) => {
                let text = self.as_text(content);
                self.check()?;
                let (out, count) = pyregex::substitute(regex, &Replacement::new(with)?, text.unwrap_or_default(), 0)?;
                Ok((out.into_bytes(), count))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_around_and_backreferences_match() {
        let lines = LineRules { multi_line: true, ..LineRules::default() };
        let regex = |pattern: &str| FileRegex::new(pattern, lines).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            regex("^(?!#)(\\w+)=\\d").replace_all(b"a=1\n#b=2\nc=3\n", "\\1=0").unwrap(),
            (b"a=0\n#b=2\nc=0\n".to_vec(), 2)
        );
        assert!(regex("(.)\\1").is_match(b"abba") && !regex("(.)\\1").is_match(b"abab"));
        assert_eq!(regex("(?<=x)(\\d)").expand(b"x7", "<\\g<1>>").unwrap(), Some(b"<7>".to_vec()));
        let latin = regex("(?<!a)b");
        assert!(!latin.is_match(b"\xffb") && latin.check().unwrap_err().contains("UTF-8"));
        assert!(FileRegex::new("(", lines).is_err());
    }
}
