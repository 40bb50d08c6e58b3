//! Inventories in YAML (and JSON, which is YAML): `group: {hosts, children, vars}`, nested.

use super::draft::{Draft, SourcePosition};
use super::pattern;
use crate::scalar::Scalar;
use crate::tree::{ConfigKey, ConfigNode, ConfigNodeKind};
use serde_json::Value;

/// Reads the groups of `root` into `draft`; also records faults there.
pub fn read(file: &str, root: &ConfigNode, draft: &mut Draft) {
    let mut reader = YamlInventoryReader { file, draft };
    let Some(groups) = root.entries() else {
        let fault =
            reader.position(root).fault(format!("an inventory is a mapping of groups, not {}", root.kind_name()));
        reader.draft.faults.push(fault.hint("begin with `all:` and below it `hosts:`"));
        return;
    };
    if let Some((key, _)) =
        groups.iter().find(|(key, node)| key.text == "plugin" && matches!(node.kind, ConfigNodeKind::Scalar { .. }))
    {
        let fault = reader.at_key(key).fault("this is the configuration of an inventory plugin, not an inventory");
        reader.draft.faults.push(fault.hint("name an executable instead that runs `ansible-inventory -i FILE --list`"));
        return;
    }
    for (key, node) in groups {
        reader.group(key, node);
    }
}

struct YamlInventoryReader<'a> {
    file: &'a str,
    draft: &'a mut Draft,
}

impl YamlInventoryReader<'_> {
    fn position(&self, node: &ConfigNode) -> SourcePosition {
        SourcePosition::new(self.file, node.line, node.column)
    }
    fn at_key(&self, key: &ConfigKey) -> SourcePosition {
        SourcePosition::new(self.file, key.line, key.column)
    }

    fn group(&mut self, name: &ConfigKey, node: &ConfigNode) {
        let name_text = name.text.trim();
        if name_text.is_empty() {
            self.draft.faults.push(self.at_key(name).fault("a group without a name"));
            return;
        }
        let at = self.at_key(name);
        self.draft.group(name_text, &at);
        for (key, value) in self.mapping(node, &format!("the group `{name_text}`")) {
            match key.text.as_str() {
                "hosts" => self.hosts(name_text, value),
                "children" => {
                    for (child, value) in self.names(value, "children") {
                        let at = self.at_key(&child);
                        self.draft.add_child(name_text, child.text.trim(), &at);
                        if let Some(value) = value {
                            self.group(&child, value);
                        }
                    }
                }
                "vars" => {
                    let origin = format!("{}: group {name_text}", self.file);
                    for (key, value) in self.mapping(value, "vars") {
                        let at = self.at_key(key);
                        self.draft.set_group(name_text, &key.text, value.to_json(), &origin, &at);
                    }
                }
                other => {
                    let mut fault =
                        self.at_key(key).fault(format!("unknown field `{other}` in the group `{name_text}`"));
                    fault.hint = Some(match remoor_model::nearest_word(other, ["hosts", "children", "vars"]) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "a group has hosts, children and vars; groups inside a group go below `children:`"
                            .to_owned(),
                    });
                    self.draft.faults.push(fault);
                }
            }
        }
    }

    fn hosts(&mut self, group: &str, node: &ConfigNode) {
        for (pattern, vars) in self.names(node, "hosts") {
            let at = self.at_key(&pattern);
            let (names, port) = match pattern::expand(&pattern.text) {
                Ok(expanded) => expanded,
                Err(why) => {
                    self.draft.faults.push(at.fault(why));
                    continue;
                }
            };
            let vars =
                vars.map_or_else(Vec::new, |node| self.mapping(node, &format!("the host `{}`", pattern.text)).to_vec());
            for name in names {
                let origin = format!("{}: host {name}", self.file);
                let known = self.draft.hosts.contains_key(&name);
                self.draft.add_host(group, &name, &at);
                if let (Some(port), false) = (port, known) {
                    self.draft.set_host(&name, "ansible_port", Value::from(port), &origin);
                }
                for (key, value) in &vars {
                    self.draft.set_host(&name, &key.text, value.to_json(), &origin);
                }
            }
        }
    }

    /// The entries of `hosts:` or `children:`: a mapping, or one name as text.
    fn names<'n>(&mut self, node: &'n ConfigNode, what: &str) -> Vec<(ConfigKey, Option<&'n ConfigNode>)> {
        match &node.kind {
            ConfigNodeKind::Scalar { text, scalar: Scalar::Str } => {
                vec![(ConfigKey { text: text.clone(), line: node.line, column: node.column }, None)]
            }
            ConfigNodeKind::List(_) => {
                let fault = self.position(node).fault(format!("`{what}` takes a mapping, not a list"));
                self.draft.faults.push(fault.hint("write each name with a colon and no dash: `w1:`"));
                Vec::new()
            }
            _ => self.mapping(node, &format!("`{what}`")).iter().map(|(key, node)| (key.clone(), Some(node))).collect(),
        }
    }

    fn mapping<'n>(&mut self, node: &'n ConfigNode, what: &str) -> &'n [(ConfigKey, ConfigNode)] {
        if let Some(entries) = node.entries() {
            return entries;
        }
        if !node.is_null() {
            self.draft
                .faults
                .push(self.position(node).fault(format!("{what} takes a mapping, not {}", node.kind_name())));
        }
        &[]
    }
}
