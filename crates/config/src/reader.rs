//! Reads typed values from the tree of a parsed YAML file. Records every fault instead of stopping
//! at the first.
//!
//! The position of each value is kept under its dotted path (`groups.web.provision`), for faults
//! that are found after this reading.

use super::scalar::Scalar;
use super::tree::{ConfigNode, ConfigNodeKind};
use remoor_model::Fault;
use std::collections::BTreeMap;

/// Position in a file; line and column count from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldPosition {
    pub line: u32,
    pub column: u32,
}

/// Collects faults and positions while values are read.
pub struct ConfigReader<'a> {
    pub file: &'a str,
    pub faults: Vec<Fault>,
    pub places: BTreeMap<String, FieldPosition>,
}

/// A mapping whose keys were checked against the known ones.
pub struct Section<'n> {
    path: String,
    entries: BTreeMap<&'n str, &'n ConfigNode>,
}

impl<'n> Section<'n> {
    /// The value of a key of this section. None if the section has no such key.
    pub fn get(&self, key: &str) -> Option<&'n ConfigNode> {
        self.entries.get(key).copied()
    }
    /// The dotted path of a key of this section.
    pub fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

impl<'a> ConfigReader<'a> {
    pub fn new(file: &'a str) -> Self {
        Self { file, faults: Vec::new(), places: BTreeMap::new() }
    }

    /// Records an error at `node` and returns it, so that a hint can be added.
    pub fn fault(&mut self, node: &ConfigNode, message: impl Into<String>) -> &mut Fault {
        self.faults.push(Fault::error(self.file, node.line, node.column, message));
        self.faults.last_mut().expect("one was pushed")
    }

    /// Reads a mapping. A key that is not in `known` is a fault. An empty value is an empty
    /// mapping.
    pub fn section<'n>(&mut self, node: &'n ConfigNode, path: &str, known: &[&str]) -> Section<'n> {
        let mut entries = BTreeMap::new();
        for (key, value) in self.mapping(node, path) {
            if known.contains(&key) {
                entries.insert(key, value);
                continue;
            }
            let place = self.places.get(&join(path, key)).copied().unwrap_or_default();
            let inside = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
            let mut fault = Fault::error(self.file, place.line, place.column, format!("unknown field `{key}`{inside}"));
            fault.hint = remoor_model::suggest_or_list(key, known.iter().copied());
            self.faults.push(fault);
        }
        Section { path: path.to_owned(), entries }
    }

    /// A mapping with any keys; the positions of the keys are kept.
    pub fn mapping<'n>(&mut self, node: &'n ConfigNode, path: &str) -> Vec<(&'n str, &'n ConfigNode)> {
        if node.is_null() {
            return Vec::new();
        }
        let Some(entries) = node.entries() else {
            self.report_wrong_kind(node, path, "a mapping");
            return Vec::new();
        };
        let mut out = Vec::new();
        for (key, value) in entries {
            self.places.insert(join(path, &key.text), FieldPosition { line: key.line, column: key.column });
            out.push((key.text.as_str(), value));
        }
        out
    }

    /// A list; the positions of the items are kept under their index from 0.
    pub fn list<'n>(&mut self, node: &'n ConfigNode, path: &str) -> &'n [ConfigNode] {
        match &node.kind {
            ConfigNodeKind::List(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.places
                        .insert(join(path, &n.to_string()), FieldPosition { line: item.line, column: item.column });
                }
                items
            }
            _ if node.is_null() => &[],
            _ => {
                self.report_wrong_kind(node, path, "a list").hint = Some("write it as [a, b], also for one".into());
                &[]
            }
        }
    }

    /// A list of non-empty texts.
    pub fn texts(&mut self, node: &ConfigNode, path: &str) -> Vec<String> {
        let items = self.list(node, path);
        items.iter().enumerate().filter_map(|(n, item)| self.text(item, &join(path, &n.to_string()))).collect()
    }

    /// A non-empty text; a number counts as the text in the file.
    pub fn text(&mut self, node: &ConfigNode, path: &str) -> Option<String> {
        match &node.kind {
            ConfigNodeKind::Scalar {
                text,
                scalar: Scalar::Str | Scalar::Int(_) | Scalar::Float(_) | Scalar::MergeKey,
            } if !text.is_empty() => Some(text.clone()),
            ConfigNodeKind::Scalar { scalar: Scalar::Str, .. } => {
                self.fault(node, format!("`{path}` is empty"));
                None
            }
            ConfigNodeKind::Scalar { scalar: Scalar::Bool(_), .. } => {
                self.report_wrong_kind(node, path, "text").hint = Some("put it in quotes if that is its text".into());
                None
            }
            _ => {
                self.report_wrong_kind(node, path, "text");
                None
            }
        }
    }

    /// `true` or `false`. Other spellings of YAML 1.1 are refused, because they are often meant as
    /// text.
    pub fn boolean(&mut self, node: &ConfigNode, path: &str) -> Option<bool> {
        match &node.kind {
            ConfigNodeKind::Scalar { text, scalar: Scalar::Bool(value) } => {
                if !matches!(text.as_str(), "true" | "false") {
                    self.fault(node, format!("`{path}` takes true or false, not `{text}`")).hint =
                        Some(format!("write {value}"));
                    return None;
                }
                Some(*value)
            }
            _ => {
                self.report_wrong_kind(node, path, "true or false");
                None
            }
        }
    }

    /// A whole number from `min` to `max`.
    pub fn number(&mut self, node: &ConfigNode, path: &str, min: u32, max: u32) -> Option<u32> {
        let value = match &node.kind {
            ConfigNodeKind::Scalar { scalar: Scalar::Int(value), .. } => Some(*value),
            _ => None,
        };
        match value.and_then(|value| u32::try_from(value).ok()).filter(|value| (min..=max).contains(value)) {
            Some(value) => Some(value),
            None => {
                self.report_wrong_kind(node, path, &format!("a whole number from {min} to {max}"));
                None
            }
        }
    }

    /// A duration such as `500ms`, `60s`, `15m` or `2h`, in milliseconds; at most 30 days.
    pub fn duration(&mut self, node: &ConfigNode, path: &str) -> Option<u64> {
        let ConfigNodeKind::Scalar { text, scalar } = &node.kind else {
            self.report_wrong_kind(node, path, "a time").hint = Some("write it as 500ms, 60s, 15m or 2h".into());
            return None;
        };
        match milliseconds(text) {
            Some(ms) if ms <= DURATION_MAX_MS => Some(ms),
            Some(_) => {
                self.fault(node, format!("`{path}` is longer than 30 days"));
                None
            }
            None => {
                let hint = match scalar {
                    Scalar::Int(_) => format!("a time needs its unit: {text}s or {text}ms"),
                    _ => "write it as 500ms, 60s, 15m or 2h".to_owned(),
                };
                self.fault(node, format!("`{path}` takes a time, not `{}`", cut(text))).hint = Some(hint);
                None
            }
        }
    }

    /// One of the known words, converted to its value.
    pub fn keyword<T: Copy>(&mut self, node: &ConfigNode, path: &str, known: &[(&str, T)]) -> Option<T> {
        let ConfigNodeKind::Scalar { text, .. } = &node.kind else {
            self.report_wrong_kind(node, path, "a word").hint =
                remoor_model::suggest_or_list("", known.iter().map(|(word, _)| *word));
            return None;
        };
        if let Some((_, value)) = known.iter().find(|(word, _)| word == text) {
            return Some(*value);
        }
        let hint = remoor_model::suggest_or_list(text, known.iter().map(|(word, _)| *word));
        self.fault(node, format!("`{}` is not a value of `{path}`", cut(text))).hint = hint;
        None
    }

    fn report_wrong_kind(&mut self, node: &ConfigNode, path: &str, wanted: &str) -> &mut Fault {
        let found = match &node.kind {
            ConfigNodeKind::Scalar {
                text,
                scalar: Scalar::Str | Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_),
            } if !text.is_empty() => {
                format!("`{}`", cut(text))
            }
            _ => node.kind_name().to_owned(),
        };
        let path = if path.is_empty() { "the file" } else { &format!("`{path}`") };
        self.fault(node, format!("{path} takes {wanted}, not {found}"))
    }
}

/// Maximum duration: 30 days. A longer duration is probably a mistake in the unit.
const DURATION_MAX_MS: u64 = 30 * 24 * 3_600_000;

/// Parses a duration: digits and one unit, such as `15m`. Returns milliseconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(split);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// The dotted path of `key` below `path`.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The first 60 characters of a text, for messages.
fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn durations_are_parsed() {
        let table = [
            ("500ms", Some(500)),
            ("60s", Some(60_000)),
            ("1m", Some(60_000)),
            ("2h", Some(7_200_000)),
            ("0s", Some(0)),
        ];
        for (text, want) in table {
            assert_eq!(milliseconds(text), want, "{text}");
        }
        for text in ["", "60", "s", "1.5s", "-1s", "1 s", "1m30s", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(milliseconds(text), None, "{text}");
        }
    }
}
