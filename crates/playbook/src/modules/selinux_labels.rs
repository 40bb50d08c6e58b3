//! The options of modules for files that set SELinux labels.

use serde_json::{Map, Value};

/// Why the SELinux labels in the options of a module for files cannot be set. None: the options
/// have no labels, or the node has no SELinux, so that they have no effect, as in Ansible.
pub(super) fn label_refusal(args: &Map<String, Value>, selinux: bool) -> Option<String> {
    let label = |name: &&&str| args.get(**name).is_some_and(|value| !value.is_null());
    let name = ["setype", "selevel", "serole", "seuser"].iter().find(label).filter(|_| selinux)?;
    Some(format!("`{name}` is not supported on a node with SELinux"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selinux_labels_have_no_effect_without_selinux() {
        let args = |value: Value| value.as_object().cloned().unwrap();
        let labels = args(json!({"path": "/a", "setype": "etc_t"}));
        assert_eq!(label_refusal(&labels, false), None);
        assert!(label_refusal(&labels, true).is_some_and(|why| why.starts_with("`setype` is not supported")));
        assert_eq!(label_refusal(&args(json!({"path": "/a", "setype": null})), true), None);
    }
}
