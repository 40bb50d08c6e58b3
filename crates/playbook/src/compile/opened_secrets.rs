//! What a compilation has opened in the files of the fleet directory, and which of it the plan
//! needs.
//!
//! The compiler reads whole files, which may also concern other hosts: a playbook has plays of
//! several hosts. So a plan records only the secrets that occur in the plan. Otherwise its node
//! would learn the secrets of other hosts.

use crate::plan::{Plan, PlanSecrets};
use remoor_model::Sha256;
use remoor_vault::OpenedKey;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum length in bytes of the parts by which a text is found in a plan.
const PART_MIN: usize = 4;

/// The opened files and texts of a compilation.
#[derive(Default)]
pub(super) struct OpenedSecrets {
    files: BTreeMap<String, OpenedFile>,
    /// The opened texts with the tag `!vault`, each with its key.
    texts: BTreeSet<(String, OpenedKey)>,
}

/// An opened file.
#[derive(Default)]
struct OpenedFile {
    key: OpenedKey,
    /// The content. None: the compiler reads the file only as YAML.
    content: Option<Vec<u8>>,
    /// The variables that the file sets.
    variables: Option<Value>,
}

impl OpenedSecrets {
    /// Adds a file that is read as YAML. A file of variables gets them with `add_variables`.
    pub fn add_file(&mut self, path: &str, key: OpenedKey) {
        self.files.entry(path.to_owned()).or_default().key = key;
    }

    /// Adds a file that the plan contains as it is, or as a template.
    pub fn add_content(&mut self, path: &str, key: OpenedKey, content: &[u8]) {
        self.add_file(path, key);
        let file = self.files.entry(path.to_owned()).or_default();
        file.content.get_or_insert_with(|| content.to_owned());
    }

    pub fn add_variables(&mut self, path: &str, variables: Value) {
        self.files.entry(path.to_owned()).or_default().variables = Some(variables);
    }

    /// Adds a text with the tag `!vault`.
    pub fn add_text(&mut self, text: &str, key: OpenedKey) {
        self.texts.insert((text.to_owned(), key));
    }

    /// Records everything, for faults: they may show a text that the plan does not contain.
    pub fn record_all(&self, secrets: &mut PlanSecrets) {
        for file in self.files.values() {
            file.content.iter().for_each(|content| secrets.add_content(content));
            file.variables.iter().for_each(|variables| secrets.add_value(variables));
        }
        self.texts.iter().for_each(|(text, _)| secrets.add_text(text));
    }

    /// Records what occurs in the plan. Returns the hashes of the recorded texts with the tag
    /// `!vault`.
    pub fn record_needed(&self, plan: &Plan, secrets: &mut PlanSecrets) -> BTreeSet<String> {
        if self.files.is_empty() && self.texts.is_empty() {
            return BTreeSet::new();
        }
        let plan = PlanText::new(plan);
        for (path, file) in &self.files {
            let is_named = plan.contains_string(path);
            if !is_named && file.variables.is_none() {
                continue;
            }
            // The compiler reads files of variables only for plays of this host.
            secrets.add_file(path);
            secrets.add_key(&file.key);
            file.content.iter().filter(|_| is_named).for_each(|content| secrets.add_content(content));
            file.variables.iter().for_each(|variables| plan.record_values(variables, secrets));
        }
        let mut hashes = BTreeSet::new();
        for (text, key) in self.texts.iter().filter(|(text, _)| plan.contains(text)) {
            secrets.add_text(text);
            secrets.add_key(key);
            hashes.insert(Sha256::digest(text.as_bytes()).to_string());
        }
        hashes
    }
}

/// The parts of a plan in which texts of the fleet directory occur, as JSON.
struct PlanText(Vec<String>);

impl PlanText {
    fn new(plan: &Plan) -> Self {
        let parts = [
            serde_json::to_string(&plan.layers),
            serde_json::to_string(&plan.plays),
            serde_json::to_string(&plan.extra),
            serde_json::to_string(&plan.vars),
        ];
        Self(parts.into_iter().flatten().collect())
    }

    /// Whether the plan has a string that is equal to this text.
    fn contains_string(&self, text: &str) -> bool {
        let json = Value::from(text).to_string();
        self.0.iter().any(|part| part.contains(&json))
    }

    /// Whether a text may occur in the plan. The compiler may have split the text, for example at
    /// commas, or may have quoted it. So the words of the text are searched, and all of them must
    /// occur. When in doubt, the answer is yes.
    fn contains(&self, text: &str) -> bool {
        let is_end = |c: char| c.is_whitespace() || c.is_control() || "\"'\\,=".contains(c);
        let mut words = text.split(is_end).filter(|word| word.len() >= PART_MIN).peekable();
        if words.peek().is_some() {
            return words.all(|word| self.0.iter().any(|part| part.contains(word)));
        }
        let json = Value::from(text.trim()).to_string();
        let escaped = Value::from(super::encrypted::escape_markup(text.trim())).to_string();
        [json, escaped].iter().any(|json| self.0.iter().any(|part| part.contains(&json[1..json.len() - 1])))
    }

    /// Records the texts and numbers of a value that occur in the plan.
    fn record_values(&self, value: &Value, secrets: &mut PlanSecrets) {
        match value {
            Value::String(text) if self.contains(text) => secrets.add_text(text),
            Value::Number(number) if self.contains(&number.to_string()) => secrets.add_value(value),
            Value::Array(items) => items.iter().for_each(|item| self.record_values(item, secrets)),
            Value::Object(map) => map.values().for_each(|item| self.record_values(item, secrets)),
            Value::String(_) | Value::Number(_) | Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_in_every_form_that_the_compiler_makes() {
        let escaped = super::super::encrypted::escape_markup("it's {{ x }}\n\"quoted\"");
        let layer = serde_json::json!({"a": escaped, "b": ["adm", "sudoers"], "c": 12345, "d": "a'{{"});
        let plan = PlanText(vec![layer.to_string()]);
        for text in ["it's {{ x }}\n\"quoted\"", "adm,sudoers", "12345", "a'{{", "adm"] {
            assert!(plan.contains(text), "{text}");
        }
        for text in ["other", "adm,other", "12346", "b'{{", "sudoers other"] {
            assert!(!plan.contains(text), "{text}");
        }
        assert!(plan.contains_string("sudoers") && !plan.contains_string("sudoer"));
    }
}
