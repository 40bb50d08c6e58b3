//! What units, packages and accounts would be after the tasks so far, and what was not run, whose effects nobody knows.

use super::Node;
use crate::systemd::unit_name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Where units lie, the first wins.
const UNIT_DIRS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Would-be state beside files. A value None: it would be gone.
#[derive(Debug, Default)]
pub struct Would {
    /// Properties by unit, as `systemctl show` calls them.
    units: BTreeMap<String, BTreeMap<String, String>>,
    /// Version by package; of one that would be installed, what could be told.
    packages: BTreeMap<String, Option<String>>,
    users: BTreeMap<String, Option<Vec<String>>>,
    groups: BTreeMap<String, Option<Vec<String>>>,
    /// Texts that a program keeps, by what they are.
    texts: BTreeMap<String, String>,
    /// What commands that were not run say they make or take away.
    by_commands: BTreeSet<PathBuf>,
    /// Something was not run of which nobody knows what it does.
    blurred: bool,
}

impl Would {
    /// Something was not run that may make or change anything.
    pub fn blur(&mut self) {
        self.blurred = true;
    }

    pub fn blurred(&self) -> bool {
        self.blurred
    }

    /// A command that was not run says that it makes or removes this path.
    pub fn by_command(&mut self, path: &Path) {
        self.by_commands.insert(path.to_owned());
    }

    /// Whether it is that path, or below it.
    pub fn is_by_command(&self, path: &Path) -> bool {
        path.ancestors().any(|at| self.by_commands.contains(at))
    }

    pub fn set_unit(&mut self, unit: &str, property: &str, value: &str) {
        self.units.entry(unit_name(unit)).or_default().insert(property.to_owned(), value.to_owned());
    }

    pub fn set_package(&mut self, name: &str, version: Option<String>) {
        self.packages.insert(name.to_owned(), version);
    }

    /// The outer None: as it is.
    pub fn package(&self, name: &str) -> Option<Option<String>> {
        self.packages.get(name).cloned()
    }

    pub fn set_user(&mut self, name: &str, entry: Option<Vec<String>>) {
        self.users.insert(name.to_owned(), entry);
    }

    pub fn set_group(&mut self, name: &str, entry: Option<Vec<String>>) {
        self.groups.insert(name.to_owned(), entry);
    }

    pub fn set_text(&mut self, what: &str, text: &str) {
        self.texts.insert(what.to_owned(), text.to_owned());
    }

    pub fn text(&self, what: &str) -> Option<String> {
        self.texts.get(what).cloned()
    }

    /// Groups that would be others, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&String, &Option<Vec<String>>)> {
        self.groups.iter()
    }

    /// The outer None: as it is.
    pub fn user(&self, key: &str) -> Option<Option<Vec<String>>> {
        of(&self.users, key)
    }

    /// The outer None: as it is.
    pub fn group(&self, key: &str) -> Option<Option<Vec<String>>> {
        of(&self.groups, key)
    }
}

fn of(entries: &BTreeMap<String, Option<Vec<String>>>, key: &str) -> Option<Option<Vec<String>>> {
    let by_id = || entries.values().find(|e| e.as_ref().and_then(|e| e.get(2)).is_some_and(|id| id == key)).cloned();
    entries.get(key).cloned().or_else(by_id)
}

impl Node {
    /// The properties of a unit, as systemd has told them, with what tasks before this one would have made of them.
    pub fn unit(&self, name: &str, mut told: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let Some(would) = self.would() else { return told };
        let name = unit_name(name);
        let path = UNIT_DIRS.iter().map(|dir| Path::new(dir).join(&name)).find(|p| self.follow(p).is_some());
        let was = told.get("LoadState").is_some_and(|s| s != "not-found" && !s.is_empty());
        let fragment = told.get("FragmentPath").filter(|p| !p.is_empty()).map(PathBuf::from);
        match path {
            Some(path) if !was => {
                let text = self.read(&path).unwrap_or_default();
                let installs = String::from_utf8_lossy(&text).lines().any(|l| l.trim() == "[Install]");
                told.insert("LoadState".into(), "loaded".into());
                told.insert("ActiveState".into(), "inactive".into());
                told.insert("UnitFileState".into(), if installs { "disabled" } else { "static" }.into());
            }
            None if was && fragment.is_some_and(|p| self.follow(&p).is_none() && p.exists()) => {
                told.insert("LoadState".into(), "not-found".into());
                told.insert("UnitFileState".into(), String::new());
            }
            _ => {}
        }
        told.extend(would.units.get(&name).cloned().unwrap_or_default());
        told
    }
}
