//! Changes of an inventory during a run of a playbook (`add_host`, `group_by`).

use super::draft::{Draft, SourcePosition};
use super::{GROUPS_MAX, HOSTS_MAX};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A host with its groups that a play adds to the inventory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InventoryChange {
    pub host: String,
    pub groups: Vec<String>,
    /// Groups that contain each of `groups`.
    pub parents: Vec<String>,
    pub vars: Map<String, Value>,
}

impl InventoryChange {
    /// The parents that each host does not have anyway.
    fn parents(&self) -> impl Iterator<Item = &String> {
        self.parents.iter().filter(|parent| *parent != "all")
    }

    fn all_groups(&self) -> impl Iterator<Item = &String> {
        self.groups.iter().chain(self.parents())
    }
}

impl Draft {
    /// Adds a change. Returns whether the draft did not have it. As in Ansible, the variables of
    /// files override those of the change. Err: why it is not possible; nothing was added.
    pub fn add_change(&mut self, change: &InventoryChange) -> Result<bool, String> {
        let host = self.hosts.get(&change.host);
        let new_groups: BTreeSet<&String> =
            change.all_groups().filter(|group| !self.groups.contains_key(*group)).collect();
        if host.is_none() && self.hosts.len() >= HOSTS_MAX {
            return Err(format!("the inventory would have more than {HOSTS_MAX} hosts"));
        }
        if self.groups.len() + new_groups.len() > GROUPS_MAX {
            return Err(format!("the inventory would have more than {GROUPS_MAX} groups"));
        }
        for parent in change.parents() {
            if let Some(group) = change.groups.iter().find(|group| self.contains_group(group, parent)) {
                return Err(format!("the group `{group}` contains `{parent}`, which therefore cannot contain it"));
            }
        }
        let has_child = |parent: &String, group: &String| self.groups[parent].children.contains_key(group);
        let changed = host.is_none_or(|host| {
            change.vars.iter().any(|(name, value)| host.vars.get(name).is_none_or(|(known, _)| known != value))
        }) || !new_groups.is_empty()
            || change.groups.iter().any(|group| {
                !self.groups[group].hosts.contains(&change.host)
                    || change.parents().any(|parent| !has_child(parent, group))
            });
        if changed {
            self.apply_change(change);
        }
        Ok(changed)
    }

    fn apply_change(&mut self, change: &InventoryChange) {
        let at = SourcePosition::new("add_host, group_by", 0, 0);
        self.add_host("ungrouped", &change.host, &at);
        for group in &change.groups {
            self.add_host(group, &change.host, &at);
            for parent in change.parents() {
                self.add_child(parent, group, &at);
            }
        }
        for (name, value) in &change.vars {
            self.set_host(&change.host, name, value.clone(), &format!("add_host: host {}", change.host));
        }
    }

    /// Whether `inner` is `outer`, or one of the groups below it.
    fn contains_group(&self, outer: &str, inner: &str) -> bool {
        let (mut todo, mut seen) = (vec![outer], BTreeSet::new());
        while let Some(name) = todo.pop() {
            if name == inner || name == "all" {
                return true;
            }
            if seen.insert(name) {
                todo.extend(
                    self.groups.get(name).into_iter().flat_map(|group| group.children.keys()).map(String::as_str),
                );
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_sources;
    use serde_json::json;
    use std::fs;

    fn change(host: &str, groups: &[&str], parents: &[&str], vars: &Value) -> InventoryChange {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let vars = vars.as_object().cloned().unwrap_or_default();
        InventoryChange { host: host.to_owned(), groups: texts(groups), parents: texts(parents), vars }
    }

    #[test]
    fn a_change_counts_once_and_its_groups_have_their_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("group_vars")).unwrap();
        fs::write(dir.path().join("group_vars/new.yml"), "from_file: 1\n").unwrap();
        fs::write(dir.path().join("inv"), "[web]\nw1 port=80\n").unwrap();
        let mut sources = load_sources(&[dir.path().join("inv").display().to_string()], None).unwrap();
        let none = Value::Null;
        for (change, changed) in [
            (change("w1", &["web"], &[], &json!({"port": 80})), false),
            (change("w1", &["web"], &[], &json!({"port": 81})), true),
            (change("w1", &["new"], &["all"], &none), true),
            (change("w1", &["new"], &["all"], &none), false),
            (change("w1", &["new"], &["above"], &none), true),
            (change("n1", &[], &[], &none), true),
            (change("n1", &[], &[], &none), false),
            (change("n1", &["web", "more"], &[], &json!({"x": "y"})), true),
            (change("n1", &["web", "more"], &[], &json!({"x": "y"})), false),
        ] {
            assert_eq!(sources.add(&change), Ok(changed), "{change:?}");
        }
        let again = sources.read_again().unwrap();
        assert_eq!(sources.order, ["w1"]);
        assert_eq!(again.order, ["w1", "n1"]);
        let (w1, n1) = (&again.inventory.hosts["w1"], &again.inventory.hosts["n1"]);
        assert_eq!(w1.groups, ["above", "new", "web"]);
        assert_eq!(Value::Object(w1.vars.clone()), json!({"from_file": 1, "port": 81}));
        assert_eq!((n1.groups.join(" "), &n1.vars["x"]), ("more web".to_owned(), &json!("y")));
    }

    #[test]
    fn a_change_that_is_not_possible_adds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("inv"), "[outer:children]\ninner\n[inner]\nw1\n").unwrap();
        let mut sources = load_sources(&[dir.path().join("inv").display().to_string()], None).unwrap();
        let before = sources.clone();
        for (group, parent) in [("outer", "inner"), ("outer", "outer"), ("all", "new")] {
            let why = sources.add(&change("w1", &[group], &[parent], &Value::Null)).unwrap_err();
            assert!(why.contains("cannot contain it"), "{why}");
        }
        let groups: Vec<String> = (0..=GROUPS_MAX).map(|number| format!("g{number}")).collect();
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        assert!(sources.add(&change("w1", &groups, &[], &Value::Null)).unwrap_err().contains("10000 groups"));
        assert_eq!(sources, before);
    }
}
