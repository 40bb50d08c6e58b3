//! Variables for templates, from a YAML or JSON text.

use super::go_value::floats;
use super::load::Strictness;
use super::yaml::{self, Yaml, YamlNode};
use remoor_model::Fault;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Parses `text` as a map; an empty text is an empty map. The parser is as strict as for check
/// files: values that YAML readers interpret differently are faults.
pub fn vars(file: &str, text: &str) -> Result<Map<String, Value>, Vec<Fault>> {
    map(file, &yaml::parse(file, text)?)
}

fn map(file: &str, tree: &YamlNode) -> Result<Map<String, Value>, Vec<Fault>> {
    match (&tree.yaml, tree.value()) {
        (Yaml::Null, _) => Ok(Map::new()),
        (_, Value::Object(map)) => Ok(map),
        _ => Err(vec![tree.fault(file, format!("variables are a map, this is {}", tree.kind()))]),
    }
}

/// Like [`vars`], but with the values that goss's templates use: numbers in JSON are floating
/// point, so that a million prints as `1e+06`. With [`Strictness::AsGoss`], the text is read as
/// goss reads it.
pub fn go_vars(file: &str, text: &str, strictness: Strictness) -> Result<Map<String, Value>, Vec<Fault>> {
    let vars = match strictness {
        Strictness::Strict => vars(file, text)?,
        Strictness::AsGoss => map(file, &yaml::parse_as_goss(file, text)?.0)?,
    };
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(vars.into_iter().map(|(key, value)| (key, floats(value))).collect()),
        Err(_) => Ok(vars),
    }
}
