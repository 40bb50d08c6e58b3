//! Reads the matchers of a check file, with goss's names, and reports faults.

use super::gjson;
use super::go_regex::go_regex;
use super::load::Loader;
use super::matcher::{Matcher, NumericComparison};
use super::patterns::Patterns;
use super::semver_range::SemverRange;
use super::yaml::{Yaml, YamlKey, YamlNode};
use remoor_model::did_you_mean;

pub(super) const KNOWN: [&str; 20] = [
    "have-prefix",
    "have-suffix",
    "match-regexp",
    "contain-substring",
    "have-len",
    "have-patterns",
    "have-key",
    "contain-element",
    "contain-elements",
    "consist-of",
    "not",
    "and",
    "or",
    "gt",
    "ge",
    "lt",
    "le",
    "equal",
    "gjson",
    "semver-constraint",
];

impl Loader<'_> {
    /// Reads the value of an asserted attribute. With `stream`, a list contains line patterns. None
    /// after a fault, or if goss ignores the attribute.
    ///
    /// In a plain goss file, a matcher that goss cannot evaluate never matches.
    pub fn read_asserted(&mut self, name: &str, stream: bool, node: &YamlNode) -> Option<Matcher> {
        let before = self.faults.len();
        let matcher = self.read_asserted_strictly(name, stream, node);
        match self.faults.get(before) {
            Some(fault) if self.is_as_goss() => {
                let why = fault.message.clone();
                let refused = self.faults.split_off(before);
                refused.into_iter().for_each(|fault| self.report(fault));
                Some(Matcher::Invalid(why))
            }
            _ => matcher,
        }
    }

    fn read_asserted_strictly(&mut self, name: &str, stream: bool, node: &YamlNode) -> Option<Matcher> {
        match &node.yaml {
            Yaml::List(items) if items.is_empty() => {
                let fault = node.fault(self.file, format!("an empty list for `{name}` asserts nothing"));
                self.report(fault.hint("remove it, or write `have-len: 0` or `consist-of: []` for an empty list"));
                (self.is_as_goss() && !stream).then_some(Matcher::List(Vec::new()))
            }
            Yaml::List(items) if stream => self.patterns(items).map(Matcher::Lines),
            _ => self.matcher(node),
        }
    }

    fn matcher(&mut self, node: &YamlNode) -> Option<Matcher> {
        match &node.yaml {
            Yaml::Null => {
                self.faults.push(node.fault(self.file, "a value is missing").hint("an empty text is written \"\""));
                None
            }
            Yaml::Bool(_) | Yaml::Number(_) | Yaml::Text(_) => Some(Matcher::Is(node.value())),
            Yaml::List(items) if items.is_empty() => {
                self.report(node.fault(self.file, "an empty list asserts nothing"));
                self.is_as_goss().then_some(Matcher::List(Vec::new()))
            }
            Yaml::List(items) => Some(Matcher::List(self.read_all(items)?)),
            Yaml::Map(pairs) => match &pairs[..] {
                [(key, node)] => self.read_named_matcher(key, node),
                _ => {
                    let fault = node.fault(self.file, "a matcher is a map with one key");
                    self.faults.push(fault.hint("combine several with `and: [...]`"));
                    None
                }
            },
        }
    }

    fn read_named_matcher(&mut self, key: &YamlKey, node: &YamlNode) -> Option<Matcher> {
        match key.text.as_str() {
            "have-prefix" => self.text(key, node).map(Matcher::HavePrefix),
            "have-suffix" => self.text(key, node).map(Matcher::HaveSuffix),
            "contain-substring" => self.text(key, node).map(Matcher::ContainSubstring),
            "match-regexp" => {
                let text = self.text(key, node)?;
                self.or_fault(node, go_regex(&text).map(Matcher::MatchRegexp), "not a valid regular expression")
            }
            "semver-constraint" => {
                let text = self.text(key, node)?;
                self.or_fault(node, SemverRange::parse(&text).map(Matcher::Semver), "not a valid version range")
            }
            "have-len" => match &node.yaml {
                Yaml::Number(n) if n.as_i64().is_some() => n.as_i64().map(Matcher::HaveLen),
                Yaml::Number(n) if self.is_as_goss() => {
                    let whole = Matcher::HaveLen(n.as_f64().unwrap_or_default() as i64);
                    self.report(node.fault(self.file, format!("`{}` is not a whole number", key.text)));
                    Some(whole)
                }
                _ => self.refuse(key, node, "a whole number"),
            },
            "have-key" => self.matcher(node).map(|inner| Matcher::HaveKey(Box::new(inner))),
            "contain-element" => match &node.yaml {
                Yaml::Bool(_) | Yaml::List(_) => self.refuse(key, node, "a string, a number or a matcher"),
                _ => self.matcher(node).map(|inner| Matcher::ContainElement(Box::new(inner))),
            },
            "not" => self.matcher(node).map(|inner| Matcher::Not(Box::new(inner))),
            "contain-elements" => Some(Matcher::ContainElements(self.list(key, node)?)),
            "consist-of" => Some(Matcher::ConsistOf(self.list(key, node)?)),
            "and" => Some(Matcher::And(self.list(key, node)?)),
            "or" => Some(Matcher::Or(self.list(key, node)?)),
            "have-patterns" => match &node.yaml {
                Yaml::List(items) if items.is_empty() && self.is_refused_as_empty(key, node) => None,
                Yaml::List(items) => self.patterns(items).map(Matcher::Patterns),
                _ => self.refuse(key, node, "a list"),
            },
            "equal" => Some(Matcher::Equal(node.value())),
            "gt" => self.comparison(NumericComparison::Gt, key, node),
            "ge" => self.comparison(NumericComparison::Ge, key, node),
            "lt" => self.comparison(NumericComparison::Lt, key, node),
            "le" => self.comparison(NumericComparison::Le, key, node),
            "gjson" => self.gjson(key, node),
            unknown => {
                let hint = did_you_mean(unknown, KNOWN).unwrap_or_else(|| format!("known: {}", KNOWN.join(", ")));
                self.faults.push(key.fault(self.file, format!("unknown matcher `{unknown}`")).hint(hint));
                None
            }
        }
    }

    fn comparison(&mut self, how: NumericComparison, key: &YamlKey, node: &YamlNode) -> Option<Matcher> {
        match &node.yaml {
            Yaml::Number(n) => Some(Matcher::Compare(how, n.clone())),
            _ => self.refuse(key, node, "a number"),
        }
    }

    fn gjson(&mut self, key: &YamlKey, node: &YamlNode) -> Option<Matcher> {
        let Yaml::Map(pairs) = &node.yaml else { return self.refuse(key, node, "a map of paths") };
        if pairs.is_empty() {
            // For goss, no path means no condition, whether or not the value is JSON.
            return (!self.is_refused_as_empty(key, node)).then_some(Matcher::And(Vec::new()));
        }
        let mut paths = Vec::new();
        for (path, node) in pairs {
            if let Some(why) = gjson::refusal(&path.text) {
                self.faults.push(path.fault(self.file, why));
            }
            paths.push((path.text.clone(), self.matcher(node)?));
        }
        Some(Matcher::Gjson(paths))
    }

    /// Reads a list of matchers; only `consist-of` may be empty.
    fn list(&mut self, key: &YamlKey, node: &YamlNode) -> Option<Vec<Matcher>> {
        match &node.yaml {
            Yaml::List(items)
                if items.is_empty() && key.text != "consist-of" && self.is_refused_as_empty(key, node) =>
            {
                None
            }
            Yaml::List(items) => self.read_all(items),
            _ => self.refuse(key, node, "a list"),
        }
    }

    fn read_all(&mut self, items: &[YamlNode]) -> Option<Vec<Matcher>> {
        let parsed: Vec<Option<Matcher>> = items.iter().map(|item| self.matcher(item)).collect();
        parsed.into_iter().collect()
    }

    fn patterns(&mut self, items: &[YamlNode]) -> Option<Patterns> {
        let mut texts = Vec::new();
        for item in items {
            let Yaml::Text(text) = &item.yaml else {
                let fault = item.fault(self.file, format!("a line pattern is a string, this is {}", item.kind()));
                self.faults.push(match item.yaml {
                    Yaml::List(_) | Yaml::Map(_) => fault.hint("for matchers write `contain-elements: [...]`"),
                    _ => fault.hint("write it in quotes"),
                });
                return None;
            };
            texts.push(text.clone());
        }
        let parse = if self.is_as_goss() { Patterns::parse_as_goss } else { Patterns::parse };
        match parse(&texts) {
            Ok(patterns) => Some(patterns),
            Err((number, why)) => {
                self.faults.push(items[number].fault(self.file, format!("faulty pattern `{}`: {why}", texts[number])));
                None
            }
        }
    }

    fn text(&mut self, key: &YamlKey, node: &YamlNode) -> Option<String> {
        match &node.yaml {
            Yaml::Text(text) => Some(text.clone()),
            _ => self.refuse(key, node, "a string"),
        }
    }

    fn or_fault(&mut self, node: &YamlNode, read: Result<Matcher, String>, what: &str) -> Option<Matcher> {
        read.map_err(|why| self.faults.push(node.fault(self.file, format!("{what}: {why}")))).ok()
    }

    /// Reports a matcher without elements. Returns whether it is refused; in a plain goss file, it
    /// has the meaning that goss gives it.
    fn is_refused_as_empty(&mut self, key: &YamlKey, node: &YamlNode) -> bool {
        let what = if matches!(node.yaml, Yaml::Map(_)) { "map" } else { "list" };
        self.report(node.fault(self.file, format!("an empty {what} for `{}` asserts nothing", key.text)));
        !self.is_as_goss()
    }

    fn refuse<T>(&mut self, key: &YamlKey, node: &YamlNode, wanted: &str) -> Option<T> {
        self.report_wrong_kind(key, node, wanted);
        None
    }
}
