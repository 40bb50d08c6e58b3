//! Checks that goss does not have: certificates and groups, in the `remoor:` block, which goss
//! ignores.

use super::load::{Assertion, Check, Loader};
use super::matcher::Matcher;
use super::redact::redact_passwords;
use super::spec::{EXTENSION_SPECS, HOLDS, ResourceSpec};
use super::yaml::{Yaml, YamlKey, YamlNode};
use remoor_model::{Fault, OnFail, Severity, did_you_mean};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The keys of the `remoor:` block that contain checks.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    EXTENSION_SPECS.iter().map(|spec| spec.name)
}

/// A group as written, before its members are looked up.
struct Group {
    check: Check,
    /// The YAML nodes that name the members, for the positions of faults.
    places: Vec<YamlNode>,
}

impl Loader<'_> {
    /// Loads the checks of the `remoor:` block that are not groups. [`Loader::groups`] loads the
    /// groups, and `header` the other keys.
    pub fn load_extensions(&mut self, block: &YamlNode) {
        for (key, resources) in block.pairs() {
            let Some(spec) = EXTENSION_SPECS.iter().find(|spec| !spec.kind.is_group() && spec.name == key.text) else {
                continue;
            };
            if !matches!(resources.yaml, Yaml::Map(_)) {
                let message = format!("`{}` is {}, not a map of ids", spec.name, resources.kind());
                self.faults.push(resources.fault(self.file, message));
            }
            for (id, node) in resources.pairs() {
                self.resource(spec, id, node);
            }
        }
    }

    /// Loads the groups of the `remoor:` block. The caller must load all other checks first,
    /// because a group may name any of them. Groups are appended after all other checks, and each
    /// group after its members.
    pub fn groups(&mut self, block: &YamlNode) {
        let mut groups = Vec::new();
        for (key, node) in block.pairs() {
            let Some(spec) = EXTENSION_SPECS.iter().find(|spec| spec.kind.is_group() && spec.name == key.text) else {
                continue;
            };
            if !matches!(node.yaml, Yaml::Map(_)) {
                self.faults
                    .push(node.fault(self.file, format!("`{}` is {}, not a map of groups", spec.name, node.kind())));
            }
            for (id, node) in node.pairs() {
                groups.extend(self.group(spec, id, node));
            }
        }
        self.check_members(&groups);
        self.append_in_order(groups);
    }

    /// Reads a group: `NAME: [members]`, or `NAME: {checks: [members], title: .., meta: ..}`.
    fn group(&mut self, spec: &'static ResourceSpec, id: &YamlKey, node: &YamlNode) -> Option<Group> {
        let mut check = self.check(spec, id);
        let mut places = None;
        match &node.yaml {
            Yaml::List(_) => places = self.members(node),
            Yaml::Map(attributes) => {
                for (key, node) in attributes {
                    match key.text.as_str() {
                        "checks" => places = self.members(node),
                        "title" | "meta" | "skip" => self.attribute(spec, &mut check, key, node),
                        _ => {
                            let fault = key.fault(self.file, format!("unknown key `{}` of a group", key.text));
                            self.faults.push(fault.hint("known: checks, title, meta, skip"));
                        }
                    }
                }
            }
            _ => {}
        }
        if check.meta.retries > 0 {
            let fault = id.fault(self.file, format!("`{}:{}` is a group and cannot be retried", spec.name, id.text));
            self.faults.push(fault.hint("set `retry` on its members"));
        }
        let Some(places) = places else {
            let fault = id.fault(self.file, format!("`{}:{}` does not name any checks", spec.name, id.text));
            self.faults.push(fault.hint("write a list: [\"port:tcp:80\", \"process:nginx\"]"));
            return None;
        };
        check.members = places.iter().filter_map(text).map(redact_passwords).collect();
        check.assertions.push(Assertion::new(HOLDS, false, Matcher::Is(Value::Bool(true))));
        Some(Group { check, places })
    }

    /// Reads the labels of a group's members: a list of at least one label, without duplicates.
    fn members(&mut self, node: &YamlNode) -> Option<Vec<YamlNode>> {
        let Yaml::List(items) = &node.yaml else { return None };
        let mut seen = BTreeSet::new();
        for item in items {
            match text(item) {
                None => {
                    self.faults.push(item.fault(self.file, format!("a member is `type:id`, this is {}", item.kind())))
                }
                Some(label) if !seen.insert(label) => {
                    self.faults.push(item.fault(self.file, format!("`{}` is named twice", redact_passwords(label))));
                }
                Some(_) => {}
            }
        }
        (!items.is_empty()).then(|| items.clone())
    }

    fn check_members(&mut self, groups: &[Group]) {
        let labels: BTreeSet<String> =
            self.loaded.checks.iter().chain(groups.iter().map(|group| &group.check)).map(Check::label).collect();
        for item in groups.iter().flat_map(|group| &group.places) {
            if let Some(label) = text(item).map(redact_passwords).filter(|label| !labels.contains(label)) {
                let fault = item.fault(self.file, format!("there is no check `{label}` in this file"));
                let hint = did_you_mean(&label, labels.iter().map(String::as_str));
                self.faults.push(fault.hint(hint.unwrap_or_else(|| "write `type:id`, as in results".to_owned())));
            }
        }
        let members: BTreeSet<&str> = groups
            .iter()
            .filter(|group| !group.check.skip)
            .flat_map(|group| &group.check.members)
            .map(String::as_str)
            .collect();
        for check in self.loaded.checks.iter_mut().filter(|check| members.contains(check.label().as_str())) {
            clear_reaction(check);
        }
    }

    /// Appends the groups, each after its members (a topological sort). A group that cannot be
    /// appended is reported as a fault. Such a group contains itself, directly or through other
    /// groups, or has a member that does.
    fn append_in_order(&mut self, groups: Vec<Group>) {
        let asked = groups.iter().filter(|group| !group.check.skip);
        let members: BTreeSet<String> = asked.flat_map(|group| group.check.members.clone()).collect();
        let labels: Vec<String> = groups.iter().map(|group| group.check.label()).collect();
        let mut same: BTreeMap<&str, usize> = BTreeMap::new();
        labels.iter().for_each(|label| *same.entry(label).or_default() += 1);
        // `waits` counts, for each group, the groups that must be appended before it. `waiting`
        // lists, for each label, the groups that have this label as a member.
        let mut waits = vec![0; groups.len()];
        let mut waiting: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, group) in groups.iter().enumerate() {
            for member in &group.check.members {
                if let Some(count) = same.get(member.as_str()) {
                    waits[at] += count;
                    waiting.entry(member.clone()).or_default().push(at);
                }
            }
        }
        let mut ready: BTreeSet<usize> = (0..groups.len()).filter(|at| waits[*at] == 0).collect();
        let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
        while !ready.is_empty() {
            let mut next = BTreeSet::new();
            for at in ready {
                for other in waiting.get(&labels[at]).into_iter().flatten() {
                    waits[*other] -= 1;
                    if waits[*other] == 0 {
                        next.insert(*other);
                    }
                }
                let Some(mut group) = groups[at].take() else { continue };
                if members.contains(&labels[at]) {
                    clear_reaction(&mut group.check);
                }
                self.loaded.checks.push(group.check);
            }
            ready = next;
        }
        for group in groups.into_iter().flatten() {
            let message = format!("`{}` contains itself, or a group that contains itself", group.check.label());
            let fault = Fault::error(self.file, group.check.line, 1, message);
            self.faults.push(fault.hint("groups may contain groups, but not in a cycle"));
        }
    }
}

/// Clears the severity and the reaction of a group's member. The member is still reported, but its
/// failure has no effect except through the group.
fn clear_reaction(check: &mut Check) {
    check.meta.severity = Severity::Info;
    check.meta.on_fail = OnFail::None;
}

fn text(node: &YamlNode) -> Option<&str> {
    match &node.yaml {
        Yaml::Text(text) => Some(text),
        _ => None,
    }
}
