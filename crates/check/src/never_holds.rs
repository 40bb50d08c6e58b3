//! Warns of checks that can never hold, because the expected value has another form than the values
//! that a machine has, and of settings that have no effect.

use super::load::{Check, Loader};
use super::spec::{AttributeUse, ResourceKind, current_name};
use super::yaml::{Yaml, YamlKey, YamlNode};
use remoor_model::Fault;

/// Properties whose value is one text or one number. No list of expected values can match them.
const SINGLE: [&str; 20] = [
    "exit-status",
    "filesystem",
    "filetype",
    "gid",
    "group",
    "home",
    "linked-to",
    "md5",
    "mode",
    "mtu",
    "owner",
    "sha256",
    "sha512",
    "shell",
    "size",
    "source",
    "status",
    "uid",
    "usage",
    "value",
];
/// Keys of `meta.remoor` that have no effect in `meta`.
const OWN_KEYS: [&str; 5] = ["severity", "on-fail", "for", "retry", "waiver"];
/// A shorter `for` without a unit is probably meant in seconds.
const SHORT_MS: u64 = 1000;

impl Loader<'_> {
    /// Warns of the attributes of a check that can never hold.
    pub fn warn_if_never(&mut self, check: &Check, attributes: &[(YamlKey, YamlNode)]) {
        for (key, node) in attributes {
            let name = current_name(&key.text);
            let asserted = check.kind.spec().attributes.iter().find(|(known, _)| *known == name);
            let found = match asserted {
                Some((_, AttributeUse::Assert | AttributeUse::Required | AttributeUse::Days)) => {
                    self.find_impossible_value(check.kind, name, node)
                }
                _ if name == "meta" && !self.is_as_goss() => self.find_ineffective_meta(node),
                _ => None,
            };
            self.loaded.warnings.extend(found);
        }
    }

    fn find_impossible_value(&self, kind: ResourceKind, name: &str, node: &YamlNode) -> Option<Fault> {
        let warn =
            |message: String, hint: String| Some(Fault::warn(self.file, node.line, node.column, message).hint(hint));
        match (kind, name, &node.yaml) {
            (_, _, Yaml::List(items)) if SINGLE.contains(&name) && !items.is_empty() => warn(
                format!("`{name}` is never a list, so this check can never pass"),
                format!("write `{name}: {{or: [...]}}` for one of several values"),
            ),
            (ResourceKind::File, "mode", Yaml::Text(mode)) if !is_mode(mode) => {
                let octal = !mode.is_empty() && mode.len() < 4 && mode.bytes().all(|b| matches!(b, b'0'..=b'7'));
                let hint = if octal {
                    format!("write \"{mode:0>4}\"")
                } else {
                    "write four octal digits: \"0644\"".to_owned()
                };
                warn(format!("no file has the mode \"{mode}\", so this check can never pass"), hint)
            }
            (ResourceKind::Mount, "usage", Yaml::Text(usage)) if usage.parse::<f64>().is_err() => warn(
                format!("`usage` is a number of percent and never \"{usage}\", so this check can never pass"),
                "write `usage: {lt: 90}`".to_owned(),
            ),
            (ResourceKind::Cert, "not-after", Yaml::Text(text)) => warn(
                format!("`not-after: {text}` holds only in the moment in which exactly this time remains"),
                format!("write `not-after: {{gt: {text}}}`"),
            ),
            _ => None,
        }
    }

    /// Settings of remoor that are written in `meta` and not in `meta.remoor`, and a `for` that is
    /// probably too short.
    fn find_ineffective_meta(&self, meta: &YamlNode) -> Option<Fault> {
        if let Some((key, _)) = meta.pairs().iter().find(|(key, _)| OWN_KEYS.contains(&key.text.as_str())) {
            let warning = Fault::warn(self.file, key.line, key.column, format!("`meta.{}` has no effect", key.text));
            return Some(warning.hint(format!("write `meta: {{remoor: {{{}: ...}}}}`", key.text)));
        }
        let (_, own) = meta.pairs().iter().find(|(key, _)| key.text == "remoor")?;
        let (_, time) = own.pairs().iter().find(|(key, _)| key.text == "for")?;
        match &time.yaml {
            Yaml::Number(ms) if ms.as_u64().is_some_and(|ms| (1..SHORT_MS).contains(&ms)) => {
                let warning = Fault::warn(self.file, time.line, time.column, format!("`for: {ms}` is {ms} ms"));
                Some(warning.hint(format!("write `{ms}s` for seconds, or `{ms}ms`")))
            }
            _ => None,
        }
    }
}

/// Whether a file can have this mode: four octal digits.
fn is_mode(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|b| matches!(b, b'0'..=b'7'))
}
