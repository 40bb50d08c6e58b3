//! The names of files of the controller that a task may read during a run. A name that the run
//! computes is that of a host, which may be compromised.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Files and directories with settings and variables of all hosts.
const OF_ALL_HOSTS: [&str; 3] = ["ansible.cfg", "group_vars", "host_vars"];

/// Whether a file or directory of a playbook is private: a host gets it only if the playbook itself
/// writes its name. A name with a dot at the beginning is often that of a secret, for example
/// `.vault_pass` or `.git`.
pub fn is_private_name(name: &str) -> bool {
    name.starts_with('.') || OF_ALL_HOSTS.contains(&name)
}

/// The files of the controller for which the run of a task may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerNames {
    /// Names that were computed before the run. No value of the host is part of them.
    pub known: BTreeSet<String>,
    pub of_run: NamesOfRun,
}

impl ControllerNames {
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.of_run == NamesOfRun::None
    }
}

/// The other names for which the run may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamesOfRun {
    #[default]
    None,
    /// Only the run knows the name. It may mean a file that the plan has for the task, and a path
    /// below what `tempfile` has made on the controller in this run.
    Made,
    /// Like `Made`, and also a name that fits one of these patterns. The plan has no file for the
    /// task, so a task of the run makes the file.
    Fitting(BTreeSet<NamePattern>),
}

impl NamesOfRun {
    /// Whether a name fits a pattern. The name is relative, or an absolute path without the
    /// directory of all files.
    pub fn fits(&self, name: &str) -> bool {
        matches!(self, Self::Fitting(patterns) if patterns.iter().any(|pattern| pattern.fits(name)))
    }
}

/// The fixed texts of a name, in order. Between two of them there is a text that only the run
/// knows. This text contains no `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamePattern(Vec<String>);

impl NamePattern {
    /// None: the texts select too few names. A pattern has a whole component or a suffix of two
    /// characters, and does not leave the directory in which it begins.
    pub fn new(texts: Vec<String>) -> Option<Self> {
        let leaves = texts[..].first().is_none_or(|text| text.starts_with(['/', '~']));
        if leaves || texts.iter().any(|text| text.contains("..") || text.contains('\0')) {
            return None;
        }
        let whole = texts.join("\0");
        let is_fixed = |part: &str| !matches!(part, "" | ".") && !part.contains('\0');
        let suffix = whole.rsplit(['\0', '/']).next().unwrap_or_default();
        (whole.split('/').any(is_fixed) || suffix.len() >= 2).then_some(Self(texts))
    }

    fn fits(&self, name: &str) -> bool {
        let texts: Vec<String> = self.0.iter().map(|text| regex::escape(text)).collect();
        let leaves = name.split('/').any(|part| part == "..");
        !leaves && regex::Regex::new(&format!("^(?s:{})$", texts.join("[^/]*"))).is_ok_and(|regex| regex.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(texts: &[&str]) -> Option<NamePattern> {
        NamePattern::new(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn a_pattern_has_a_whole_component_or_a_suffix() {
        for texts in [&["", ""][..], &["", "/", ""], &["./", ""], &["", "w"], &["bel", ""], &["a", "/", ""]] {
            assert_eq!(pattern(texts), None, "{texts:?}");
        }
        for texts in [&["/etc/", ""][..], &["~/keys/", ""], &["../keys/", ""], &["keys/", "/../x.crt"], &[]] {
            assert_eq!(pattern(texts), None, "{texts:?} leaves the directory");
        }
        for texts in [&["pki/", ""][..], &["", ".crt"], &["", "/ca.crt"], &["a", "/pki/", "x"]] {
            assert!(pattern(texts).is_some(), "{texts:?}");
        }
    }

    #[test]
    fn a_name_fits_the_fixed_texts_only() {
        let names = NamesOfRun::Fitting(pattern(&["pki/", "/a*", ".crt"]).into_iter().collect());
        for name in ["pki/h1/a*.crt", "pki//a*b.crt"] {
            assert!(names.fits(name), "{name}");
        }
        for name in ["pki/h1/ab.crt", "pki/h1/a*/b.crt", "pki/../a*.crt", "pki/h1/a*.key", "x/pki/h1/a*.crt"] {
            assert!(!names.fits(name), "{name}");
        }
        assert!(!NamesOfRun::Made.fits("pki/h1/a*.crt"));
        assert!(!NamesOfRun::None.fits(""));
    }
}
