//! `vars_prompt`: variables of a play that a person enters before the run.

use super::{CompileOptions, Compiler, HostContext, VaultAccess, encrypted};
use crate::filters::crypt_password;
use crate::lang::python;
use crate::lang::yaml::{SpannedData, SpannedNode};
use crate::vars::scope::plain_value;
use remoor_model::{FileSet, did_you_mean};
use remoor_vault::sealed_part;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The values that were entered, for each play by its index.
pub type PromptAnswers = BTreeMap<u32, Map<String, Value>>;

/// One variable of `vars_prompt`.
#[derive(Debug, Clone, PartialEq)]
pub struct VarsPrompt {
    /// The index of the play, see `Play::index`.
    pub play: u32,
    pub name: String,
    /// The text that asks for the value.
    pub text: String,
    /// The value if nothing is entered.
    pub default: Option<Value>,
    /// Whether the input is not shown.
    pub private: bool,
    /// Whether the value must be entered twice.
    pub confirm: bool,
    /// How the value is hashed. None: the variable is the value itself.
    pub hash: Option<PromptHash>,
}

/// How a value of `vars_prompt` is hashed (`encrypt`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptHash {
    /// Whether the hash is that of SHA-512, otherwise of SHA-256.
    long: bool,
    /// The salt of the playbook. None: it is random.
    pub salt: Option<String>,
    /// The length of a random salt.
    pub salt_size: usize,
}

impl PromptHash {
    /// Hashes a value. The error is a message.
    pub fn hash(&self, value: &str, salt: &str) -> Result<String, String> {
        crypt_password(self.long, value, salt, None)
    }
}

/// The length of a salt if the playbook does not set it; the maximum of crypt(3).
const SALT_SIZE: usize = 16;

/// The keys of an entry of `vars_prompt`.
const KEYS: [&str; 9] = ["name", "prompt", "default", "private", "confirm", "encrypt", "salt", "salt_size", "unsafe"];

/// The variables of `playbook` that must be asked for. An extra variable is not asked for. Errors
/// of the playbook are left to `outline`.
pub fn vars_prompts(
    files: &FileSet,
    playbook: &str,
    extra_vars: &Map<String, Value>,
    vault: Option<VaultAccess>,
) -> Vec<VarsPrompt> {
    let extra_vars = vault.map_or_else(|| extra_vars.clone(), |v| encrypted::open_variables(v.vault, extra_vars));
    let options = CompileOptions { extra_vars, vault, ..CompileOptions::default() };
    let nobody = HostContext::default();
    let mut compiler = Compiler::new(files, &nobody, &options);
    let mut out = Vec::new();
    for (index, source) in compiler.sources(playbook).iter().enumerate() {
        if let Some(prompts) = source.node().and_then(|node| node.get("vars_prompt")) {
            out.extend(compiler.prompts(index, &source.file, prompts));
        }
    }
    out.retain(|prompt| !options.extra_vars.contains_key(&prompt.name));
    out
}

impl Compiler<'_> {
    /// The variables of `vars_prompt` of a play: the values that were entered, or the defaults.
    pub(super) fn prompted_vars(&mut self, index: usize, file: &str, node: &SpannedNode) -> Map<String, Value> {
        let Some(prompts) = node.get("vars_prompt") else { return Map::new() };
        let prompts = self.prompts(index, file, prompts);
        let value = |prompt: VarsPrompt| {
            let entered = self.options.prompted.get(&prompt.play).and_then(|answers| answers.get(&prompt.name));
            // What a person enters is never a template.
            let entered = entered.map(|value| match value.as_str() {
                Some(text) => json!(encrypted::escape_markup(text)),
                None => value.clone(),
            });
            (prompt.name, entered.or(prompt.default).unwrap_or(Value::Null))
        };
        prompts.into_iter().map(value).collect()
    }

    fn prompts(&mut self, index: usize, file: &str, node: &SpannedNode) -> Vec<VarsPrompt> {
        let items = match &node.data {
            SpannedData::List(items) => items.as_slice(),
            SpannedData::Null => &[],
            _ => std::slice::from_ref(node),
        };
        items.iter().filter_map(|item| self.prompt(index, file, item)).collect()
    }

    fn prompt(&mut self, index: usize, file: &str, item: &SpannedNode) -> Option<VarsPrompt> {
        let at = (item.line, item.column);
        let Some(pairs) = item.map() else {
            self.fault(file, at, format!("`vars_prompt` takes a list of maps, found {}", item.kind()));
            return None;
        };
        for (key, _) in pairs {
            let at = (key.line, key.column);
            if !KEYS.contains(&key.text.as_str()) {
                let fault = self.fault(file, at, format!("unknown option `{}` of vars_prompt", key.text));
                fault.hint = did_you_mean(&key.text, KEYS);
            }
        }
        let name = item.get("name").and_then(SpannedNode::text).filter(|name| super::is_name(name));
        let Some(name) = name else {
            self.fault(file, at, "an entry of `vars_prompt` needs the name of a variable as `name`");
            return None;
        };
        if let Some(default) = item.get("default") {
            self.check_markup(file, default);
        }
        let hash = self.prompt_hash(file, item);
        let mut flag = |key: &str, usual: bool| item.get(key).map_or(usual, |value| self.boolean(file, key, value));
        Some(VarsPrompt {
            play: u32::try_from(index).unwrap_or(u32::MAX),
            private: flag("private", true),
            confirm: flag("confirm", false),
            hash,
            text: item.get("prompt").and_then(SpannedNode::text).unwrap_or_else(|| name.clone()),
            default: item.get("default").map(SpannedNode::json).filter(|default| !default.is_null()).map(as_text),
            name,
        })
    }
}

impl Compiler<'_> {
    /// The hash that the keys `encrypt`, `salt` and `salt_size` of an entry describe.
    fn prompt_hash(&mut self, file: &str, item: &SpannedNode) -> Option<PromptHash> {
        let node = item.get("encrypt").filter(|node| node.data != SpannedData::Null)?;
        let kind = node.text().unwrap_or_default();
        let long = match kind.as_str() {
            "sha512_crypt" => true,
            "sha256_crypt" => false,
            _ => {
                let message = format!("the value `{kind}` of `encrypt` of vars_prompt is not part of the language");
                self.fault_hint(file, (node.line, node.column), message, "use sha512_crypt or sha256_crypt");
                return None;
            }
        };
        let size = item.get("salt_size").and_then(|size| size.json().as_u64());
        let salt_size = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(SALT_SIZE).clamp(1, SALT_SIZE);
        Some(PromptHash { long, salt: item.get("salt").and_then(SpannedNode::text), salt_size })
    }
}

/// A default as if a person had entered it: a text. An encrypted default is opened later.
fn as_text(default: Value) -> Value {
    match &default {
        Value::String(_) => default,
        _ if sealed_part(&default).is_some() => default,
        _ => python::text(&plain_value(&default)).map_or(default, Value::String),
    }
}
