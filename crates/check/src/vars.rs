//! Variables for templates, from a YAML or JSON text.

use super::go_value::floats;
use super::yaml::{self, Yaml};
use remoor_model::Fault;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Parses `text` as a map; an empty text is an empty map. The parser is as strict as for check
/// files: values that YAML readers interpret differently are faults.
pub fn vars(file: &str, text: &str) -> Result<Map<String, Value>, Vec<Fault>> {
    let tree = yaml::parse(file, text)?;
    match (&tree.yaml, tree.value()) {
        (Yaml::Null, _) => Ok(Map::new()),
        (_, Value::Object(map)) => Ok(map),
        _ => Err(vec![tree.fault(file, format!("variables are a map, this is {}", tree.kind()))]),
    }
}

/// Like [`vars`], but with the values that goss's templates use: numbers in JSON are floating
/// point, so that a million prints as `1e+06`.
pub fn go_vars(file: &str, text: &str) -> Result<Map<String, Value>, Vec<Fault>> {
    let vars = vars(file, text)?;
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(vars.into_iter().map(|(key, value)| (key, floats(value))).collect()),
        Err(_) => Ok(vars),
    }
}
