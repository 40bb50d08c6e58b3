//! The secrets of a plan: the texts that came out of encrypted values and files.
//!
//! A plan is sent to its node with the plaintext, because the node needs it. This list says which
//! texts no diff, log, event or result may show. The matching belongs in `run/secrets.rs`.

use base64::Engine as _;
use remoor_model::Sha256;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// Minimum length in characters of a secret text. Shorter texts occur everywhere, so to hide them
/// would make all output unreadable.
const TEXT_MIN: usize = 4;
/// Minimum length in characters of a line of a secret text that is hidden alone.
const LINE_MIN: usize = 8;
/// Maximum number of secret texts of a plan.
const TEXTS_MAX: usize = 20_000;

/// The secret texts and files of a plan. `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSecrets {
    texts: BTreeSet<String>,
    /// Paths in the fleet directory of files whose content is secret.
    files: BTreeSet<String>,
    /// Keys that only the holder of the vault passwords can derive, in hex.
    keys: BTreeSet<String>,
}

/// A text as it is written in JSON, without the quotes around it.
fn json_form(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

impl fmt::Debug for PlanSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanSecrets({} texts, {} files)", self.texts.len(), self.files.len())
    }
}

impl PlanSecrets {
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.files.is_empty() && self.keys.is_empty()
    }

    /// The texts to hide, in all forms in which they may occur.
    pub fn texts(&self) -> &BTreeSet<String> {
        &self.texts
    }

    /// Whether the content of this file of the fleet directory is secret.
    pub fn contains_file(&self, path: &str) -> bool {
        self.files.contains(path)
    }

    /// Adds a text: the text itself, its lines, its form in JSON and its base64 form.
    pub fn add_text(&mut self, text: &str) {
        let trimmed = text.trim();
        if trimmed.chars().nth(TEXT_MIN - 1).is_none() {
            return;
        }

        let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let mut forms = vec![trimmed.to_owned(), json_form(trimmed), base64(trimmed), base64(text)];
        if trimmed.contains('\n') {
            let lines = trimmed.lines().map(str::trim).filter(|line| line.chars().nth(LINE_MIN - 1).is_some());
            forms.extend(lines.map(str::to_owned));
        }
        for form in forms {
            if self.texts.len() < TEXTS_MAX {
                self.texts.insert(form);
            }
        }
    }

    /// Adds all texts and numbers of a value.
    pub fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Number(number) => self.add_text(&number.to_string()),
            Value::Array(items) => items.iter().for_each(|item| self.add_value(item)),
            Value::Object(map) => map.values().for_each(|item| self.add_value(item)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// The secrets for another host that receives a part of the plan: only the texts that occur in
    /// `parts`, so that the host learns no other text. `parts` are plain texts or JSON.
    pub(crate) fn restricted_to(&self, parts: &[String]) -> Self {
        let mut kept = Self { files: self.files.clone(), ..Self::default() };
        let occurs = |text: &&String| {
            let json = json_form(text);
            parts.iter().any(|part| part.contains(text.as_str()) || part.contains(&json))
        };
        for text in self.texts.iter().filter(occurs) {
            kept.add_text(text);
        }
        kept
    }

    /// Adds a file of the fleet directory.
    pub fn add_file(&mut self, path: &str) {
        self.files.insert(path.to_owned());
    }

    /// Adds the key of an opened text, with which the hash of the plan is keyed.
    pub fn add_key(&mut self, key: &[u8]) {
        self.keys.insert(hex::encode(key));
    }

    /// The hash of `data`. If the plan contains secrets, the hash is keyed, so that nobody without
    /// the vault passwords can test guesses of the secrets with the hash.
    pub fn keyed_hash(&self, data: &[u8]) -> Sha256 {
        let plain = Sha256::digest(data);
        if self.keys.is_empty() {
            return plain;
        }
        let mut all = plain.0.to_vec();
        self.keys.iter().for_each(|key| all.extend(key.as_bytes()));
        Sha256::digest(&all)
    }
}
