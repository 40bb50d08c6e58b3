//! Variables of the command line (`-e`, as in Ansible). An option is `a=1 b="x y"` with texts as
//! values, a mapping in YAML or JSON, or `@FILE` with a mapping in the file. The file may be
//! encrypted.

use super::source::read_content;
use super::{encrypted, shell_words};
use crate::tree;
use remoor_model::Fault;
use remoor_vault::{Vault, seal_variable};
use serde_json::{Map, Value};
use std::path::Path;

/// The file name in faults about text that is not from a file.
const OPTION_NAME: &str = "--extra-vars";

/// The variables of one `-e` option. Reads the file if the option names a file. The values of an
/// encrypted file are sealed.
pub fn extra_vars(text: &str, vault: &Vault) -> Result<Map<String, Value>, Vec<Fault>> {
    let text = text.trim();
    if let Some(file) = text.strip_prefix('@') {
        let bytes = read_content(Path::new(file)).map_err(|why| vec![Fault::error(file, 0, 0, why)])?;
        let text = String::from_utf8(bytes).map_err(|_| vec![Fault::error(file, 0, 0, "is not UTF-8")])?;
        if !remoor_vault::is_encrypted_yaml(text.as_bytes()) {
            return mapping(file, &text);
        }
        let variables = encrypted::read(file, &text, vault).map_err(|fault| vec![fault])?;
        let names: Vec<String> = variables.keys().cloned().collect();
        let key = vault.keep_file(&text, variables);
        return Ok(names.into_iter().map(|name| (name.clone(), seal_variable(&key, &name))).collect());
    }
    if text.starts_with(['{', '[']) {
        return mapping(OPTION_NAME, text);
    }
    let wrong =
        |why: String| vec![Fault::error(OPTION_NAME, 0, 0, why).hint("KEY=VALUE, a mapping in YAML or JSON, or @FILE")];
    let mut out = Map::new();
    for word in shell_words::split_without_comments(text).map_err(|why| wrong(format!("`{text}` has {why}")))? {
        match word.split_once('=') {
            Some((name, value)) if !name.is_empty() => out.insert(name.to_owned(), Value::from(value)),
            _ => return Err(wrong(format!("`{word}` is not KEY=VALUE"))),
        };
    }
    Ok(out)
}

fn mapping(file: &str, text: &str) -> Result<Map<String, Value>, Vec<Fault>> {
    let Some(node) = tree::parse(file, text)? else { return Ok(Map::new()) };
    let Some(entries) = node.entries() else {
        let message = format!("takes a mapping of variables, not {}", node.kind_name());
        return Err(vec![Fault::error(file, node.line, node.column, message)]);
    };
    Ok(entries.iter().map(|(key, value)| (key.text.clone(), value.to_json())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pairs_are_texts_and_mappings_keep_their_types() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("v.yml");
        std::fs::write(&file, "a: yes\nb: [1]\n").unwrap();
        for (text, want) in [
            ("a=1 b=yes", json!({"a": "1", "b": "yes"})),
            ("a=\"x y\" c='#1=2'", json!({"a": "x y", "c": "#1=2"})),
            ("{\"a\": 1, \"b\": [true]}", json!({"a": 1, "b": [true]})),
            (&format!("@{}", file.display()), json!({"a": true, "b": [1]})),
            ("", json!({})),
        ] {
            assert_eq!(extra_vars(text, &Vault::default()).map(Value::Object), Ok(want), "{text}");
        }
        for (text, word) in [
            ("a", "`a` is not KEY=VALUE"),
            ("a='", "without its end"),
            ("[1]", "takes a mapping"),
            ("{a: ", "--extra-vars:1"),
            ("@/nonexistent", "/nonexistent"),
        ] {
            let faults = extra_vars(text, &Vault::default()).unwrap_err();
            assert!(faults[0].to_string().contains(word), "{text}: {}", faults[0]);
        }
    }
}
