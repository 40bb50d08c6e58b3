//! The inventory while its sources are read, and the final merge.
//!
//! Precedence of variables, weakest first: groups of the inventory (`all`, then parents, then
//! children); `group_vars/all`; the other `group_vars`, again parents before children; the host's
//! variables in the inventory; `host_vars`. `group_vars` and `host_vars` next to a playbook
//! override those next to the inventory. A later value replaces an earlier one completely, also a
//! mapping (Ansible's default).

use super::{AnsibleInventory, EncryptedVars, GROUPS_MAX, GroupEntry, HOSTS_MAX, HostEntry};
use remoor_model::Fault;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Variables by name, each with its value and its origin.
pub type VarsWithOrigins = BTreeMap<String, (Value, String)>;

/// The variables of one file of `group_vars` or `host_vars`.
#[derive(Debug, Clone, PartialEq)]
pub enum FileVars {
    Plain(VarsWithOrigins),
    /// A wholly encrypted file, by its name.
    Encrypted(String),
}

/// Groups, hosts and faults collected from all sources so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    pub groups: BTreeMap<String, DraftGroup>,
    pub hosts: BTreeMap<String, DraftHost>,
    /// Host names in the order of their first mention.
    pub host_order: Vec<String>,
    /// Number of files and directories that were read.
    pub sources: usize,
    pub faults: Vec<Fault>,
    pub warnings: Vec<Fault>,
    /// The text of each wholly encrypted file of variables, by name.
    pub encrypted: BTreeMap<String, String>,
}

/// A position in a source; line 0 is the whole source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourcePosition {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl SourcePosition {
    pub fn new(file: &str, line: u32, column: u32) -> Self {
        Self { file: file.to_owned(), line, column }
    }
    /// An error at this position.
    pub fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::error(&self.file, self.line, self.column, message)
    }
}

/// A group of the draft.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DraftGroup {
    pub hosts: BTreeSet<String>,
    /// Child groups, each with the position of its declaration. A fault about a cycle of groups
    /// reports this position.
    pub children: BTreeMap<String, SourcePosition>,
    pub vars: VarsWithOrigins,
    /// Variables from `group_vars`, in ascending order of precedence.
    pub file_vars: Vec<FileVars>,
    /// Variables from the `group_vars` next to a playbook.
    pub near_vars: Vec<FileVars>,
    /// `ansible_group_priority`; among groups of the same depth, the variables of the group with
    /// the greater value win.
    priority: Option<i64>,
}

/// A host of the draft.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DraftHost {
    pub vars: VarsWithOrigins,
    /// Variables from `host_vars`, in ascending order of precedence.
    pub file_vars: Vec<FileVars>,
    /// Variables from the `host_vars` next to a playbook.
    pub near_vars: Vec<FileVars>,
}

impl Draft {
    /// Returns the group, which is added if it is missing. A group beyond the maximum number is a
    /// fault at `at`.
    pub fn group(&mut self, name: &str, at: &SourcePosition) -> &mut DraftGroup {
        if self.groups.len() == GROUPS_MAX && !self.groups.contains_key(name) {
            self.faults.push(at.fault(format!("more than {GROUPS_MAX} groups")));
        }
        self.groups.entry(name.to_owned()).or_default()
    }

    /// Adds a host to a group.
    pub fn add_host(&mut self, group: &str, host: &str, at: &SourcePosition) {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(host) {
            if self.hosts.len() == HOSTS_MAX {
                self.faults.push(at.fault(format!("more than {HOSTS_MAX} hosts")));
                // One host beyond the limit is inserted, so that the limit is reported only once.
                self.hosts.insert(host.to_owned(), DraftHost::default());
            }
            return;
        }
        if !self.hosts.contains_key(host) {
            self.hosts.insert(host.to_owned(), DraftHost::default());
            self.host_order.push(host.to_owned());
        }
        self.group(group, at).hosts.insert(host.to_owned());
    }

    /// Adds a group to its parent; both are added if they are missing.
    pub fn add_child(&mut self, parent: &str, child: &str, at: &SourcePosition) {
        self.group(child, at);
        self.group(parent, at).children.entry(child.to_owned()).or_insert_with(|| at.clone());
    }

    /// Sets a variable of a host. Does nothing for an unknown host.
    pub fn set_host(&mut self, host: &str, name: &str, value: Value, origin: &str) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.vars.insert(name.to_owned(), (value, origin.to_owned()));
        }
    }

    /// Sets a variable. `ansible_group_priority` is not a variable but sets the priority.
    pub fn set_group(&mut self, group: &str, name: &str, value: Value, origin: &str, at: &SourcePosition) {
        if name != "ansible_group_priority" {
            self.group(group, at).vars.insert(name.to_owned(), (value, origin.to_owned()));
            return;
        }
        let number = value.as_i64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
        match number {
            Some(number) => self.group(group, at).priority = Some(number),
            None => {
                let message = format!("`ansible_group_priority` of `{group}` is not a whole number");
                self.faults.push(at.fault(message));
            }
        }
    }

    /// Puts groups and hosts without a parent under `all` or `ungrouped`, and merges the variables.
    /// Err: all faults.
    pub fn resolve(mut self) -> Result<AnsibleInventory, Vec<Fault>> {
        self.group("all", &SourcePosition::default());
        self.group("ungrouped", &SourcePosition::default());
        if self.faults.is_empty() {
            self.find_cycles();
        }
        if !self.faults.is_empty() {
            self.faults.sort();
            self.faults.dedup();
            return Err(self.faults);
        }
        self.adopt_orphans();
        let order = self.order();
        let parents = self.parents();
        let mut hosts = BTreeMap::new();
        for (name, host) in &self.hosts {
            let member = self.memberships(name, &parents);
            let ranked: Vec<&DraftGroup> =
                order.iter().filter(|g| member.contains(g.as_str())).map(|g| &self.groups[g]).collect();
            // `all` is the first group in the order. Its `group_vars` are merged before those of
            // the other groups.
            let (all, others) = ranked.split_at(1.min(ranked.len()));
            let files = all.iter().flat_map(|group| [&group.file_vars, &group.near_vars]);
            let files = files.chain(others.iter().map(|group| &group.file_vars));
            let files = files.chain(others.iter().map(|group| &group.near_vars));
            let mut merged = MergedLayers::default();
            ranked.iter().for_each(|group| merged.add(&group.vars));
            files.for_each(|files| merged.add_files(files));
            merged.add(&host.vars);
            [&host.file_vars, &host.near_vars].into_iter().for_each(|files| merged.add_files(files));
            let MergedLayers { vars: merged, encrypted } = merged;
            let groups = member.into_iter().filter(|group| *group != "all").map(str::to_owned).collect();
            let origins = merged.iter().map(|(name, (_, origin))| (name.clone(), origin.clone())).collect();
            hosts.insert(name.clone(), HostEntry { groups, vars: values_only(merged), origins, encrypted });
        }
        let groups = self.groups.into_iter().map(|(name, mut group)| {
            for file in group.file_vars.into_iter().chain(group.near_vars) {
                match file {
                    FileVars::Plain(vars) => group.vars.extend(vars),
                    FileVars::Encrypted(_) => {}
                }
            }
            let entry = GroupEntry {
                hosts: group.hosts.into_iter().collect(),
                children: group.children.into_keys().collect(),
                vars: values_only(group.vars),
            };
            (name, entry)
        });
        let groups = groups.collect();
        self.warnings.sort();
        let (warnings, encrypted) = (self.warnings, self.encrypted);
        Ok(AnsibleInventory { hosts, groups, warnings, encrypted, unopened: BTreeMap::new() })
    }

    /// Finds groups that contain themselves; reports each cycle once.
    fn find_cycles(&mut self) {
        let mut done = BTreeSet::new();
        let mut found = Vec::new();
        for start in self.groups.keys() {
            // The search has an explicit stack, because chains of groups may be long. Each frame is
            // a group and its unvisited children.
            let mut way: Vec<(&str, Vec<&str>)> = Vec::new();
            let frame =
                |name: &'_ str| -> Vec<&str> { self.groups[name].children.keys().map(String::as_str).collect() };
            if done.insert(start.as_str()) {
                way.push((start, frame(start)));
            }
            while let Some((name, left)) = way.last_mut() {
                let name = *name;
                let Some(child) = left.pop() else {
                    way.pop();
                    continue;
                };
                if let Some(at) = way.iter().position(|(on_way, _)| *on_way == child) {
                    let mut names: Vec<&str> = way[at..].iter().map(|(name, _)| *name).collect();
                    names.push(child);
                    let message = format!("groups that contain themselves: {}", names.join(" > "));
                    found.push(self.groups[name].children[child].fault(message));
                } else if done.insert(child) {
                    way.push((child, frame(child)));
                }
            }
        }
        self.faults.extend(found);
    }

    /// Puts groups without a parent under `all`, and hosts without a group into `ungrouped`.
    fn adopt_orphans(&mut self) {
        let with_parent: BTreeSet<String> =
            self.groups.values().flat_map(|group| group.children.keys().cloned()).collect();
        let orphans = self
            .groups
            .keys()
            .filter(|name| *name != "all" && !with_parent.contains(*name))
            .cloned()
            .collect::<Vec<_>>();
        for name in orphans {
            self.group("all", &SourcePosition::default()).children.insert(name, SourcePosition::default());
        }
        let grouped: BTreeSet<&String> = self
            .groups
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "all" | "ungrouped"))
            .flat_map(|(_, group)| &group.hosts)
            .collect();
        let (with, without): (Vec<_>, Vec<_>) = self.hosts.keys().partition(|host| grouped.contains(host));
        let (with, without): (BTreeSet<String>, BTreeSet<String>) =
            (with.into_iter().cloned().collect(), without.into_iter().cloned().collect());
        let ungrouped = &mut self.group("ungrouped", &SourcePosition::default()).hosts;
        ungrouped.retain(|host| !with.contains(host));
        ungrouped.extend(without);
    }

    fn parents(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut parents: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, group) in &self.groups {
            for child in group.children.keys() {
                parents.entry(child).or_default().push(name);
            }
        }
        parents
    }

    fn memberships<'a>(&'a self, host: &str, parents: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
        let direct = self.groups.iter().filter(|(_, group)| group.hosts.contains(host)).map(|(name, _)| name.as_str());
        let mut todo: Vec<&str> = direct.collect();
        let mut member = BTreeSet::from(["all"]);
        while let Some(name) = todo.pop() {
            if name == "all" || member.insert(name) {
                todo.extend(parents.get(name).into_iter().flatten());
            }
        }
        member
    }

    /// Groups in the order in which their variables are merged: by depth (longest path from `all`),
    /// then priority, then name. Cycles were excluded before.
    fn order(&self) -> Vec<String> {
        let mut waiting: BTreeMap<&str, usize> = self.groups.keys().map(|name| (name.as_str(), 0)).collect();
        for child in self.groups.values().flat_map(|group| group.children.keys()) {
            *waiting.entry(child).or_default() += 1;
        }
        let mut depth: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ready: Vec<&str> = waiting.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
        while let Some(name) = ready.pop() {
            let below = depth.get(name).copied().unwrap_or_default() + 1;
            for child in self.groups[name].children.keys() {
                let deepest = depth.entry(child).or_default();
                *deepest = below.max(*deepest);
                if let Some(count) = waiting.get_mut(child.as_str()) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push(child);
                    }
                }
            }
        }
        let mut order: Vec<&String> = self.groups.keys().collect();
        order.sort_by_key(|name| {
            (depth.get(name.as_str()).copied().unwrap_or_default(), self.groups[*name].priority.unwrap_or(1), *name)
        });
        order.into_iter().cloned().collect()
    }
}

/// The variables of one host while layers of ascending precedence are added.
#[derive(Default)]
struct MergedLayers {
    vars: VarsWithOrigins,
    encrypted: Vec<EncryptedVars>,
}

impl MergedLayers {
    fn add(&mut self, layer: &VarsWithOrigins) {
        for (name, value) in layer {
            for file in &mut self.encrypted {
                file.overridden.insert(name.clone());
            }
            self.vars.insert(name.clone(), value.clone());
        }
    }

    fn add_files(&mut self, files: &[FileVars]) {
        for file in files {
            match file {
                FileVars::Plain(vars) => self.add(vars),
                FileVars::Encrypted(file) => {
                    self.encrypted.push(EncryptedVars { file: file.clone(), overridden: BTreeSet::new() });
                }
            }
        }
    }
}

fn values_only(vars: VarsWithOrigins) -> Map<String, Value> {
    vars.into_iter().map(|(name, (value, _))| (name, value)).collect()
}
