//! `gossfile:` of a check file: the list of included files. This module only reads the entries; the
//! caller loads the files.

use super::yaml::{Yaml, YamlKey, YamlNode};
use remoor_model::{Fault, did_you_mean};

const KEYS: [&str; 4] = ["file", "skip", "title", "meta"];

/// One entry of `gossfile:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GossfileEntry {
    /// A path or glob, relative to the file that contains this entry.
    pub pattern: String,
    /// Line and column of the entry in the rendered text.
    pub line: u32,
    pub column: u32,
}

/// The entries that are not skipped, in the order of the file.
pub(super) fn read(file: &str, node: &YamlNode, faults: &mut Vec<Fault>) -> Vec<GossfileEntry> {
    let entries: &[(YamlKey, YamlNode)] = match &node.yaml {
        Yaml::Map(entries) => entries,
        Yaml::Null => &[],
        _ => {
            faults.push(node.fault(file, format!("`gossfile` is {}, not a map of files", node.kind())));
            &[]
        }
    };
    entries.iter().filter_map(|(key, node)| entry(file, key, node, faults)).collect()
}

fn entry(file: &str, key: &YamlKey, node: &YamlNode, faults: &mut Vec<Fault>) -> Option<GossfileEntry> {
    let attributes: &[(YamlKey, YamlNode)] = match &node.yaml {
        Yaml::Map(attributes) => attributes,
        Yaml::Null => &[],
        _ => {
            let fault = node.fault(file, format!("`gossfile:{}` is {}, not a map", key.text, node.kind()));
            faults.push(fault.hint("write `{}`, or `{skip: true}`"));
            return None;
        }
    };
    let mut include = GossfileEntry { pattern: key.text.clone(), line: key.line, column: key.column };
    let mut skip = false;
    for (key, node) in attributes {
        match (key.text.as_str(), &node.yaml) {
            ("file", Yaml::Text(path)) => include.pattern = path.clone(),
            ("skip", Yaml::Bool(yes)) => skip = *yes,
            ("title", Yaml::Text(_)) | ("meta", Yaml::Map(_)) => {}
            (name, _) if KEYS.contains(&name) => {
                faults.push(node.fault(file, format!("`{name}` of gossfile can't be {}", node.kind())));
            }
            (name, _) => {
                let hint = did_you_mean(name, KEYS).unwrap_or_else(|| format!("known: {}", KEYS.join(", ")));
                faults.push(key.fault(file, format!("unknown attribute `{name}` of gossfile")).hint(hint));
            }
        }
    }
    if include.pattern.is_empty() {
        faults.push(key.fault(file, "`gossfile` does not name a file"));
    }
    (!skip && !include.pattern.is_empty()).then_some(include)
}
