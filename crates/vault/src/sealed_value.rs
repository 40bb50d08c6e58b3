//! Sealed values: the JSON form that an encrypted value of a variable has until a plan is made.
//!
//! A single value has the form that Ansible's own JSON uses, `{"__ansible_vault": "$ANSIBLE_..."}`.
//! A variable of a wholly encrypted file is a reference to this file: the ciphertext is not copied
//! into each variable.

use serde_json::{Value, json};

/// The key of a single value, as in the output of `ansible-inventory`.
const TEXT: &str = "__ansible_vault";
/// The key with the hash of the encrypted file.
const FILE: &str = "__remoor_vault_file";
/// The key with the name of the variable in that file.
const NAME: &str = "name";

/// The parts of a sealed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealedPart<'v> {
    /// A single encrypted text.
    Text(&'v str),
    /// The variable `name` of the file with this hash.
    Variable { file: &'v str, name: &'v str },
}

/// The sealed value of an encrypted text.
pub fn seal(text: &str) -> Value {
    json!({TEXT: text})
}

/// The sealed value of a variable in an encrypted file. `file` is the hash from
/// [`Vault::keep_file`](crate::Vault::keep_file).
pub fn seal_variable(file: &str, name: &str) -> Value {
    json!({FILE: file, NAME: name})
}

/// Whether this value itself is sealed. Values in lists and maps are not searched.
pub fn is_sealed(value: &Value) -> bool {
    part_of(value).is_some()
}

/// Whether this value is a variable of a wholly encrypted file. Its form has a meaning only to
/// remoor.
pub fn is_file_variable(value: &Value) -> bool {
    matches!(part_of(value), Some(SealedPart::Variable { .. }))
}

/// The first sealed value in `value`, also in lists and maps.
pub fn sealed_part(value: &Value) -> Option<&Value> {
    if is_sealed(value) {
        return Some(value);
    }
    match value {
        Value::Array(items) => items.iter().find_map(sealed_part),
        Value::Object(map) => map.values().find_map(sealed_part),
        _ => None,
    }
}

pub(crate) fn part_of(value: &Value) -> Option<SealedPart<'_>> {
    let map = value.as_object()?;
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    match map.len() {
        1 => text(TEXT).map(SealedPart::Text),
        2 => Some(SealedPart::Variable { file: text(FILE)?, name: text(NAME)? }),
        _ => None,
    }
}
