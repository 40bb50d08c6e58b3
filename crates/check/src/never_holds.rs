//! Warns of checks that can never hold, because the expected value has another form than the values
//! that a machine has, and of settings that have no effect.

use super::load::{Check, Loader};
use super::meta;
use super::spec::{AttributeUse, ResourceKind, current_name};
use super::yaml::{Yaml, YamlKey, YamlNode};
use remoor_model::Fault;

/// Properties whose value is one text or one number. No list of expected values can match them.
const SINGLE: [&str; 27] = [
    "count",
    "exit-status",
    "filesystem",
    "filetype",
    "free-bytes",
    "gid",
    "group",
    "home",
    "inode-usage",
    "last-result",
    "last-run-age",
    "linked-to",
    "md5",
    "mode",
    "mount-point",
    "mtu",
    "next-run-in",
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
        let spec = check.kind.spec();
        for (key, node) in attributes {
            self.warn_of_value(check.kind, spec.attributes, key, node);
            if key.text == "meta" {
                let found = if self.is_as_goss() { None } else { self.find_ineffective_meta(node) };
                self.loaded.warnings.extend(found);
                for (key, node) in meta::extensions(node, spec) {
                    self.warn_of_value(check.kind, spec.extensions(), key, node);
                }
            }
        }
    }

    fn warn_of_value(
        &mut self,
        kind: ResourceKind,
        known: &[(&'static str, AttributeUse)],
        key: &YamlKey,
        node: &YamlNode,
    ) {
        let name = current_name(&key.text);
        let found = match known.iter().find(|(known, _)| *known == name).map(|(_, use_)| *use_) {
            Some(AttributeUse::Days | AttributeUse::Seconds | AttributeUse::Bytes) if is_text(node) => {
                self.find_exact_number(name, node)
            }
            Some(
                AttributeUse::Assert
                | AttributeUse::Required
                | AttributeUse::Days
                | AttributeUse::Seconds
                | AttributeUse::Bytes,
            ) => self.find_impossible_value(kind, name, node),
            _ => None,
        };
        self.loaded.warnings.extend(found);
    }

    /// A number with a unit that must be met exactly.
    fn find_exact_number(&self, name: &str, node: &YamlNode) -> Option<Fault> {
        let Yaml::Text(text) = &node.yaml else { return None };
        let (what, matcher) = match name {
            "last-run-age" | "next-run-in" => ("time", "lt"),
            "free-bytes" => ("number of bytes", "gt"),
            _ => ("time", "gt"),
        };
        let message = format!("`{name}: {text}` holds only while the {what} is exactly this");
        let fault = Fault::warn(self.file, node.line, node.column, message);
        Some(fault.hint(format!("write `{name}: {{{matcher}: {text}}}`")))
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
            (_, "usage" | "inode-usage", Yaml::Text(usage)) if usage.parse::<f64>().is_err() => warn(
                format!("`{name}` is a number of percent and never \"{usage}\", so this check can never pass"),
                format!("write `{name}: {{lt: 90}}`"),
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

fn is_text(node: &YamlNode) -> bool {
    matches!(node.yaml, Yaml::Text(_))
}

/// Whether a file can have this mode: four octal digits.
fn is_mode(text: &str) -> bool {
    text.len() == 4 && text.bytes().all(|b| matches!(b, b'0'..=b'7'))
}

#[cfg(test)]
mod tests {
    use super::super::load::{Strictness, load};

    /// The warnings of a file as `LINE:COLUMN: message; hint`.
    fn warnings(text: &str, strictness: Strictness) -> Vec<String> {
        let loaded = load("f.yml", &"s".into(), text, strictness).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
        let line = |fault: &super::Fault| {
            let hint = fault.hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
            format!("{}:{}: {}{hint}", fault.line, fault.column, fault.message)
        };
        loaded.warnings.iter().map(line).collect()
    }

    #[test]
    fn values_that_never_hold() {
        for (text, wanted) in [
            (
                "file: {/x: {exists: true, mode: '644'}}",
                "1:33: no file has the mode \"644\", so this check can never pass; write \"0644\"",
            ),
            (
                "file: {/x: {exists: true, mode: rw-r--r--}}",
                "1:33: no file has the mode \"rw-r--r--\", so this check can never pass; write four octal digits: \"0644\"",
            ),
            (
                "mount: {/x: {exists: true, usage: <90%}}",
                "1:35: `usage` is a number of percent and never \"<90%\", so this check can never pass; write `usage: {lt: 90}`",
            ),
            (
                "filesystem: {/x: {inode-usage: 90%}}",
                "1:32: `inode-usage` is a number of percent and never \"90%\", so this check can never pass; write `inode-usage: {lt: 90}`",
            ),
            (
                "http: {'http://x': {status: [200, 204]}}",
                "1:29: `status` is never a list, so this check can never pass; write `status: {or: [...]}` for one of several values",
            ),
            (
                "journal: {a: {count: [0, 1]}}",
                "1:22: `count` is never a list, so this check can never pass; write `count: {or: [...]}` for one of several values",
            ),
            (
                "remoor: {service: s, cert: {/x: {not-after: 30d}}}",
                "1:45: `not-after: 30d` holds only while the time is exactly this; write `not-after: {gt: 30d}`",
            ),
            (
                "filesystem: {/x: {free-bytes: 5GiB}}",
                "1:31: `free-bytes: 5GiB` holds only while the number of bytes is exactly this; write `free-bytes: {gt: 5GiB}`",
            ),
            (
                "service: {a.timer: {meta: {remoor: {last-run-age: 26h}}}}",
                "1:51: `last-run-age: 26h` holds only while the time is exactly this; write `last-run-age: {lt: 26h}`",
            ),
            (
                "file: {/x: {exists: true, meta: {severity: info}}}",
                "1:34: `meta.severity` has no effect; write `meta: {remoor: {severity: ...}}`",
            ),
            (
                "file: {/x: {exists: true, meta: {remoor: {for: 30}}}}",
                "1:48: `for: 30` is 30 ms; write `30s` for seconds, or `30ms`",
            ),
        ] {
            assert_eq!(warnings(text, Strictness::Strict), [wanted], "{text}");
        }
    }

    #[test]
    fn values_that_may_hold() {
        for text in [
            "file: {/x: {exists: true, mode: '0644', owner: {or: [a, b]}}}",
            "file: {/x: {exists: true, mode: {or: ['0644', '0600']}}}",
            "mount: {/x: {exists: true, usage: '90', opts: [rw]}}",
            "filesystem: {/x: {usage: {lt: 90}, free-bytes: {gt: 5GiB}}}",
            "user: {a: {exists: true, groups: [a, b]}}",
            "service: {a.timer: {meta: {remoor: {last-run-age: {lt: 26h}}}}}",
            "file: {/x: {exists: true, meta: {remoor: {for: 1000, severity: info}, mine: 1}}}",
            "file: {/x: {exists: true, meta: {remoor: {for: 0}}}}",
            "remoor: {service: s, cert: {/x: {not-after: {gt: 30d}}}}",
        ] {
            assert_eq!(warnings(text, Strictness::Strict), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn a_plain_goss_file_may_use_meta_as_it_likes() {
        let text = "file: {/x: {exists: true, mode: '644', meta: {severity: info}}}";
        let found = warnings(text, Strictness::AsGoss);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("no file has the mode"), "{found:?}");
    }
}
