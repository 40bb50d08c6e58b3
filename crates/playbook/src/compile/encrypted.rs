//! Encrypted files and values. The compiler opens them with the vault passwords of the caller, and
//! records every plaintext as a secret of the plan.
//!
//! A value that no password opens stays sealed. It is a fault only if the plan needs it. If the
//! caller only reviews the playbook (`VaultAccess::may_stay_encrypted`), it counts as unknown, with
//! a warning.

use super::opened_secrets::OpenedSecrets;
use super::{Compiler, HostContext, needed_vars};
use crate::lang::yaml::{SpannedData, SpannedNode};
use crate::plan::{Plan, PlanSecrets};
use crate::vars::var_map::{SharedVar, has_markup};
use remoor_model::{Fault, Sha256};
use remoor_vault::{
    OpenedKey, Vault, VaultError, is_encrypted, is_encrypted_yaml, is_file_variable, is_sealed, sealed_part,
};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A part of the message of each warning about content that could not be opened.
const UNKNOWN_VALUE: &str = "its value counts as unknown";
/// Maximum nesting of values that opened values contain.
const DEPTH_MAX: usize = 16;

/// The vault passwords of a compilation.
#[derive(Debug, Clone, Copy)]
pub struct VaultAccess<'a> {
    pub vault: &'a Vault,
    /// Whether content that no password opens counts as unknown, with a warning. Otherwise it is a
    /// fault where the plan needs it.
    pub may_stay_encrypted: bool,
}

/// What a compilation has opened, and what it could not open.
#[derive(Default)]
pub(super) struct EncryptedContent {
    /// The secrets of the files that the compiler has read.
    pub opened: OpenedSecrets,
    /// Files of variables that could not be opened, so that it is not known what they define.
    pub unopened: BTreeSet<String>,
    /// Files of tasks or plays that could not be opened.
    pub unopened_tasks: BTreeSet<String>,
    /// Warnings about content that no password opens, and that counts as unknown.
    pub unknown: Vec<Fault>,
    /// The fault of each `!vault` text that could not be opened, by the encrypted text.
    faults: BTreeMap<String, Fault>,
    /// Encrypted files with a list of tasks or plays.
    tasks: BTreeSet<String>,
}

impl<'a> Compiler<'a> {
    /// The content of a file of the fleet directory, decrypted. An encrypted file that can't be
    /// opened is reported, and its encrypted text is returned.
    pub(super) fn content(&mut self, path: &str) -> Option<Cow<'a, [u8]>> {
        let (content, key) = self.open_content(path, is_encrypted)?;
        if let Some(key) = key {
            self.encrypted.opened.add_content(path, key, &content);
        }
        Some(content)
    }

    /// Like `content`, for a YAML file that is then given to `open_texts`. It may be encrypted by
    /// sops.
    pub(super) fn yaml_content(&mut self, path: &str) -> Option<Cow<'a, [u8]>> {
        let (content, key) = self.open_content(path, is_encrypted_yaml)?;
        if let Some(key) = key {
            self.encrypted.opened.add_file(path, key);
        }
        Some(content)
    }

    fn open_content(
        &mut self,
        path: &str,
        is_encrypted: fn(&[u8]) -> bool,
    ) -> Option<(Cow<'a, [u8]>, Option<OpenedKey>)> {
        let raw = self.files.get(path)?;
        if !is_encrypted(raw) {
            return Some((Cow::Borrowed(raw), None));
        }
        match open_file(self.vault(), raw) {
            Ok((plain, key)) => Some((Cow::Owned(plain), Some(key))),
            Err(error) => {
                let fault = self.vault_fault(path, (1, 1), String::new(), &error);
                self.report(fault);
                Some((Cow::Borrowed(raw), None))
            }
        }
    }

    /// Like `content`, but records nothing. None if the file can't be opened or is not UTF-8.
    pub(super) fn peek(&self, path: &str) -> Option<Cow<'a, str>> {
        let raw = self.files.get(path)?;
        match is_encrypted(raw) {
            false => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
            true => String::from_utf8(open_file(self.vault(), raw).ok()?.0).ok().map(Cow::Owned),
        }
    }

    /// Opens the encrypted texts of a YAML file, and records the secrets of the file.
    pub(super) fn open_texts(&mut self, path: &str, node: &mut SpannedNode) {
        if self.files.get(path).is_some_and(is_encrypted_yaml) {
            match node.list() {
                Some(_) => drop(self.encrypted.tasks.insert(path.to_owned())),
                None => self.encrypted.opened.add_variables(path, node.json()),
            }
        }
        self.open_node(path, node);
    }

    fn open_node(&mut self, path: &str, node: &mut SpannedNode) {
        let at = (node.line, node.column);
        match &mut node.data {
            SpannedData::Encrypted(text) => match open_text(self.vault(), text) {
                Ok((plain, key)) => {
                    self.encrypted.opened.add_text(&plain, key);
                    node.data = SpannedData::Text(escape_markup(&plain));
                }
                Err(error) => {
                    let fault = self.vault_fault(path, at, String::new(), &error);
                    self.encrypted.faults.insert(text.clone(), fault);
                }
            },
            SpannedData::List(items) => items.iter_mut().for_each(|item| self.open_node(path, item)),
            SpannedData::Map(pairs) => pairs.iter_mut().for_each(|(_, item)| self.open_node(path, item)),
            SpannedData::Null | SpannedData::Bool(_) | SpannedData::Number(_) | SpannedData::Text(_) => {}
        }
    }

    /// Whether the tasks of this file must not be shown.
    pub(super) fn hides_tasks(&self, file: &str) -> bool {
        self.encrypted.tasks.contains(file)
    }

    fn vault(&self) -> &'a Vault {
        static NONE: std::sync::LazyLock<Vault> = std::sync::LazyLock::new(Vault::default);
        self.options.vault.map_or(&NONE, |access| access.vault)
    }

    /// The fault for content that could not be opened; `what` names a part of the file.
    fn vault_fault(&self, file: &str, at: (u32, u32), what: String, error: &VaultError) -> Fault {
        let fault = Fault::error(file, at.0, at.1, format!("{what}{error}"));
        Fault { hint: self.vault().next_step(error).map(str::to_owned), ..fault }
    }

    /// Reports that content is needed and could not be opened. No task can be left out for it,
    /// because the run would then do something else than the playbook says.
    fn report(&mut self, fault: Fault) {
        match self.options.vault.is_some_and(|access| access.may_stay_encrypted) {
            true => self.encrypted.unknown.push(unknown_note(fault)),
            false if self.diagnostics.limits.contains(&fault) => {}
            false => self.diagnostics.limits.push(fault),
        }
    }

    /// Reports that a file of variables could not be opened.
    pub(super) fn record_unopened_file(&mut self, path: &str) {
        self.encrypted.unopened.insert(path.to_owned());
    }

    /// Opens the values of the inventory that the plan needs, and reports the needed values that
    /// can't be opened. `host` is the host before its values were opened. Returns all opened
    /// secrets, also those that the plan does not contain: faults must not show them.
    pub(super) fn finish_secrets(
        &mut self,
        plan: &mut Plan,
        host: &HostContext,
        extra: &Map<String, Value>,
    ) -> PlanSecrets {
        let (mut secrets, mut hashes) = (PlanSecrets::default(), BTreeSet::new());
        let vault = self.vault();
        for (name, value) in host.vars.iter().filter(|(name, _)| plan.vars.contains_key(*name)).chain(extra) {
            open_and_record_value(vault, value, &mut secrets, 0);
            if let Some(Ok(Value::String(text))) = vault.open_value(value).filter(|_| !is_file_variable(value)) {
                hashes.insert(Sha256::digest(text.as_bytes()).to_string());
            }
            self.report_sealed(plan.vars.get(name).or(plan.extra.get(name)), name, host);
        }
        let (words, whole) = needed_vars::words_of(plan);
        if plan.shared.values().any(SharedVar::is_sealed) {
            let mut kept = BTreeMap::new();
            for (shared_name, shared) in std::mem::take(&mut plan.shared) {
                let opened = match shared.is_sealed() {
                    false => shared,
                    true => SharedVar::new(self.open_shared(
                        shared.json(),
                        &|name| whole || words.contains(name),
                        &mut secrets,
                    )),
                };
                kept.insert(shared_name, opened);
            }
            plan.shared = kept;
        }
        let mut needed: Vec<Value> = Vec::new();
        for layer in &mut plan.layers {
            // A value that nobody reads needs no password, as in Ansible.
            layer.retain(|name, value| whole || words.contains(name) || sealed_part(value).is_none());
            needed.extend(layer.values().filter_map(|value| sealed_part(value).cloned()));
        }
        plan.each_task(&mut |task| {
            let all = task.args.values().chain(&task.environment).chain(task.repeat.as_ref().map(|r| &r.items));
            needed.extend(all.filter_map(sealed_part).cloned());
        });
        for value in needed {
            let text = value.as_object().and_then(|map| map.values().next()).and_then(Value::as_str);
            let fault = text.and_then(|text| self.encrypted.faults.get(text).cloned());
            let fault = fault.unwrap_or_else(|| Fault::error(&plan.playbook, 0, 0, "a value is encrypted"));
            self.report(fault);
        }
        let mut all = secrets.clone();
        self.encrypted.opened.record_all(&mut all);
        hashes.extend(self.encrypted.opened.record_needed(plan, &mut secrets));
        if words.contains("vault_encrypted") && !hashes.is_empty() {
            let hashes = hashes.into_iter().map(Value::String).collect();
            plan.extra.insert(crate::filters::ENCRYPTED_TEXTS.to_owned(), hashes);
        }
        plan.secrets = secrets;
        all
    }

    /// Reports the sealed values in a variable of the host, if any.
    fn report_sealed(&mut self, value: Option<&Value>, name: &str, host: &HostContext) {
        let Some(sealed) = value.and_then(sealed_part) else { return };
        if let Some(Err(error)) = self.vault().open_value(sealed) {
            let origin = host.origins.get(name).map_or("the inventory", String::as_str);
            let file = origin.split(": ").next().unwrap_or(origin);
            let fault = self.vault_fault(file, (0, 0), format!("the variable `{name}` "), &error);
            self.report(fault);
        }
    }

    /// `hostvars` with the sealed variables that the plan names opened, and without the others. So
    /// a node gets no secret of another host that its plan does not name.
    fn open_shared(&mut self, value: &Value, needs: &dyn Fn(&str) -> bool, secrets: &mut PlanSecrets) -> Value {
        let Value::Object(hosts) = value else { return value.clone() };
        let mut out = Map::new();
        for (host, vars) in hosts {
            let Value::Object(vars) = vars else {
                out.insert(host.clone(), vars.clone());
                continue;
            };
            let mut kept = Map::new();
            for (name, value) in vars {
                if sealed_part(value).is_none() {
                    kept.insert(name.clone(), value.clone());
                } else if needs(name) {
                    let opened = open_and_record_value(self.vault(), value, secrets, 0);
                    let of = HostContext { name: host.clone(), ..HostContext::default() };
                    self.report_sealed(Some(&opened), name, &of);
                    kept.insert(name.clone(), opened);
                }
            }
            out.insert(host.clone(), Value::Object(kept));
        }
        Value::Object(out)
    }
}

/// Turns each fault about an undefined variable into a warning if one of the files in `encrypted`,
/// which could not be opened, may define the variable.
pub fn downgrade_undefined(mut faults: Vec<Fault>, encrypted: &BTreeSet<String>) -> Vec<Fault> {
    if let Some(file) = encrypted.first() {
        for fault in faults.iter_mut().filter(|fault| is_about_undefined(&fault.message)) {
            fault.warning = true;
            fault.hint = Some(format!("the encrypted file {file} may define it"));
        }
    }
    faults
}

/// Whether the message of a fault is about an undefined value, also as an operand.
pub fn is_about_undefined(message: &str) -> bool {
    ["is undefined", "types undefined and ", " and undefined"].iter().any(|words| message.contains(words))
}

/// The fault of a playbook with more secrets than remoor can hide in output.
pub(super) fn limit_fault(playbook: &str) -> Fault {
    let message = format!("the opened encrypted values are more than {}", PlanSecrets::limits_text());
    Fault::error(playbook, 0, 0, message).hint("encrypt a large value as a file, and use `copy` or `template` for it")
}

/// The note for content whose value is unknown.
fn unknown_note(fault: Fault) -> Fault {
    Fault { warning: true, message: format!("{}; {UNKNOWN_VALUE}", fault.message), ..fault }
}

fn open_file(vault: &Vault, raw: &[u8]) -> Result<(Vec<u8>, OpenedKey), VaultError> {
    let text = std::str::from_utf8(raw).map_err(|_| VaultError::NotText)?;
    vault.open_with_key(text).map(|(plain, key)| (plain.to_vec(), key))
}

fn open_text(vault: &Vault, text: &str) -> Result<(String, OpenedKey), VaultError> {
    let (plain, key) = vault.open_with_key(text)?;
    String::from_utf8(plain.to_vec()).map(|plain| (plain, key)).map_err(|_| VaultError::NotText)
}

/// The variables with every sealed value opened that a password opens. The secrets are dropped,
/// because the plan may not need the variables.
pub(super) fn open_variables(vault: &Vault, vars: &Map<String, Value>) -> Map<String, Value> {
    let mut unused = PlanSecrets::default();
    vars.iter().map(|(name, value)| (name.clone(), open_and_record_value(vault, value, &mut unused, 0))).collect()
}

/// Whether a variable is sealed or contains a sealed value.
pub(super) fn any_sealed(vars: &Map<String, Value>) -> bool {
    vars.values().any(|value| sealed_part(value).is_some())
}

/// A value with its sealed parts opened. A part that no password opens stays sealed.
fn open_and_record_value(vault: &Vault, value: &Value, secrets: &mut PlanSecrets, depth: usize) -> Value {
    if depth > DEPTH_MAX || sealed_part(value).is_none() {
        return value.clone();
    }
    if !is_sealed(value) {
        return match value {
            Value::Array(items) => {
                items.iter().map(|item| open_and_record_value(vault, item, secrets, depth + 1)).collect()
            }
            Value::Object(map) => map
                .iter()
                .map(|(name, item)| (name.clone(), open_and_record_value(vault, item, secrets, depth + 1)))
                .collect(),
            other => other.clone(),
        };
    }
    if let Some(key) = vault.key_of(value) {
        secrets.add_key(&key);
    }
    match vault.open_value(value) {
        // A text of `!vault` is data, as in Ansible.
        Some(Ok(Value::String(text))) if !is_file_variable(value) => {
            secrets.add_text(&text);
            Value::String(escape_markup(&text))
        }
        // The values of an encrypted file may be templates.
        Some(Ok(inner)) => {
            let inner = open_and_record_value(vault, &inner, secrets, depth + 1);
            secrets.add_value(&inner);
            inner
        }
        Some(Err(_)) | None => value.clone(),
    }
}

/// A template whose result is this text, as the templates of a playbook are rendered.
pub(super) fn escape_markup(text: &str) -> String {
    if !has_markup(text) {
        return text.to_owned();
    }
    // A backslash in an expression is no escape, so each kind of quote is quoted by the other.
    let parts = text.split_inclusive('\'').flat_map(|part| match part.strip_suffix('\'') {
        Some("") => vec!["\"'\"".to_owned()],
        Some(rest) => vec![format!("'{rest}'"), "\"'\"".to_owned()],
        None => vec![format!("'{part}'")],
    });
    format!("{{{{ {} }}}}", parts.collect::<Vec<_>>().join(" ~ "))
}
