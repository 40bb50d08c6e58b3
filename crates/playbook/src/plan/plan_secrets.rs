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
/// Maximum number of secret texts of a plan, in all their forms.
const TEXTS_MAX: usize = 20_000;
/// Maximum size of all secret texts of a plan together, in bytes. The search for them needs about
/// 50 times as much memory.
const TEXT_BYTES_MAX: usize = 2 << 20;
/// Maximum size in bytes of a file whose content is a secret text as a whole.
const CONTENT_TEXT_MAX: usize = 8 << 10;
/// Maximum number of lines of a file that are secret texts.
const CONTENT_LINES_MAX: usize = 200;
/// Maximum size in bytes of a line of a file that is a secret text. A longer line is cut.
const CONTENT_LINE_MAX: usize = 1 << 10;

/// The secret texts and files of a plan. `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSecrets {
    texts: BTreeSet<String>,
    /// Paths in the fleet directory of files whose content is secret.
    files: BTreeSet<String>,
    /// Keys that only the holder of the vault passwords can derive, in hex.
    keys: BTreeSet<String>,
    /// Hashes of secret contents without the spaces at both ends.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    contents: BTreeSet<String>,
    /// Whether a text was left out because there are too many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
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
        let Self { texts, files, keys, contents, incomplete } = self;
        texts.is_empty() && files.is_empty() && keys.is_empty() && contents.is_empty() && !incomplete
    }

    /// The texts to hide, in all forms in which they may occur.
    pub fn texts(&self) -> &BTreeSet<String> {
        &self.texts
    }

    /// Whether there are more texts than remoor can search for. Then no text may be shown at all.
    pub fn exceeds_limits(&self) -> bool {
        self.incomplete || self.texts.iter().map(String::len).sum::<usize>() > TEXT_BYTES_MAX
    }

    /// What a plan whose secrets exceed the limits has too many of.
    pub(crate) fn limits_text() -> String {
        format!("{TEXTS_MAX} secret texts, or {} MiB of them", TEXT_BYTES_MAX >> 20)
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
        self.add_forms(forms);
    }

    /// Adds the secrets of another plan.
    pub fn add_all(&mut self, other: &Self) {
        self.files.extend(other.files.iter().cloned());
        self.keys.extend(other.keys.iter().cloned());
        self.contents.extend(other.contents.iter().cloned());
        self.incomplete |= other.incomplete;
        self.add_forms(other.texts.iter().cloned());
    }

    fn add_forms(&mut self, forms: impl IntoIterator<Item = String>) {
        for form in forms.into_iter().filter(|form| !form.is_empty()) {
            if self.texts.len() < TEXTS_MAX {
                self.texts.insert(form);
            } else if !self.texts.contains(&form) {
                self.incomplete = true;
            }
        }
    }

    /// Adds the content of a file, which may be large: its hash, and its first lines. The content
    /// as a whole is a secret text only if it is small, because the search for large texts is
    /// expensive.
    pub fn add_content(&mut self, content: &[u8]) {
        self.contents.insert(content_hash(content));
        let text = String::from_utf8_lossy(content);
        let lines = text.lines().map(str::trim).filter(|line| line.chars().nth(LINE_MIN - 1).is_some());
        let lines: Vec<String> = lines
            .take(CONTENT_LINES_MAX)
            .map(|line| line[..line.floor_char_boundary(CONTENT_LINE_MAX)].to_owned())
            .collect();
        self.add_forms(lines);
        if content.len() <= CONTENT_TEXT_MAX {
            self.add_text(&text);
        }
    }

    /// Whether a content is equal to a secret content.
    pub fn contains_content(&self, content: &[u8]) -> bool {
        !self.contents.is_empty() && self.contents.contains(&content_hash(content))
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
        let (contents, incomplete) = (self.contents.clone(), self.incomplete);
        let mut kept = Self { files: self.files.clone(), contents, incomplete, ..Self::default() };
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

fn content_hash(content: &[u8]) -> String {
    Sha256::digest(content.trim_ascii()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_takes_no_room_from_other_texts() {
        let mut secrets = PlanSecrets::default();
        let lines: String = (0..21_000).map(|line| format!("line {line} of a large file\n")).collect();
        secrets.add_content(lines.as_bytes());
        secrets.add_content(&vec![b'x'; 2 << 20]);
        secrets.add_text("a later password");
        assert!(secrets.texts().contains("a later password") && !secrets.exceeds_limits());
        assert!(secrets.texts().iter().all(|text| text.len() <= CONTENT_LINE_MAX) && secrets.texts().len() < 300);
        assert!(secrets.contains_content(format!("\n{lines}").as_bytes()) && !secrets.contains_content(b"line 1"));
        // A small file is hidden in all forms.
        secrets.add_content(b"small key\n");
        assert!(["small key", "c21hbGwga2V5", "c21hbGwga2V5Cg=="].iter().all(|text| secrets.texts().contains(*text)));
        let copy: PlanSecrets = serde_json::from_str(&serde_json::to_string(&secrets).unwrap()).unwrap();
        assert_eq!(copy, secrets);
    }

    #[test]
    fn a_text_that_is_left_out_is_recorded() {
        let mut secrets = PlanSecrets::default();
        let mut number = 0;
        while secrets.texts().len() < TEXTS_MAX {
            secrets.add_text(&format!("secret {number}"));
            number += 1;
        }
        let last = secrets.texts().last().unwrap().clone();
        secrets.incomplete = false;
        secrets.add_forms([last]);
        assert!(!secrets.exceeds_limits(), "a known text needs no room");
        secrets.add_text("one more");
        assert!(secrets.exceeds_limits());
        let mut large = PlanSecrets::default();
        large.add_text(&"y".repeat(TEXT_BYTES_MAX));
        assert!(large.exceeds_limits());
    }
}
