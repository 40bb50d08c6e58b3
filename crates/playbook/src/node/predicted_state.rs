//! Predicted state of check mode other than files: units, packages and accounts after the tasks so
//! far. It also records whether a task with unknown effects was not run.

use super::NodeAccess;
use remoor_host::systemd::unit_name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The directories of systemd's unit files. If several of them have a file of the same name, the
/// first counts.
const UNIT_DIRS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Predicted units, packages and accounts. The value None means that the package or account would
/// be removed.
#[derive(Debug, Default, PartialEq)]
pub struct PredictedState {
    /// Predicted properties by unit, named as in `systemctl show`.
    units: BTreeMap<String, BTreeMap<String, String>>,
    /// Predicted version of each package. None: the package would be removed. An empty text: it
    /// would be installed, in an unknown version.
    packages: BTreeMap<String, Option<String>>,
    users: BTreeMap<String, Option<Vec<String>>>,
    groups: BTreeMap<String, Option<Vec<String>>>,
    /// Predicted texts that are not the content of a file, by a key such as `crontab USER`.
    texts: BTreeMap<String, String>,
    /// Paths that would be created or removed by commands that check mode did not run.
    skipped_paths: BTreeSet<PathBuf>,
    /// Whether a task with unknown effects was not run.
    has_unknown_effects: bool,
}

impl PredictedState {
    /// Records that a task with unknown effects was not run.
    pub fn mark_unknown(&mut self) {
        self.has_unknown_effects = true;
    }

    /// Whether a task with unknown effects was not run.
    pub fn has_unknown_effects(&self) -> bool {
        self.has_unknown_effects
    }

    /// Records a path that would be created or removed by a command that check mode did not run.
    pub fn add_skipped_path(&mut self, path: &Path) {
        self.skipped_paths.insert(path.to_owned());
    }

    /// Whether `add_skipped_path` recorded the path or a directory above it.
    pub fn depends_on_skipped_command(&self, path: &Path) -> bool {
        path.ancestors().any(|at| self.skipped_paths.contains(at))
    }

    /// Records a predicted property of a unit.
    pub fn set_unit(&mut self, unit: &str, property: &str, value: &str) {
        self.units.entry(unit_name(unit)).or_default().insert(property.to_owned(), value.to_owned());
    }

    /// Records a predicted package version. None: the package would be removed.
    pub fn set_package(&mut self, name: &str, version: Option<String>) {
        self.packages.insert(name.to_owned(), version);
    }

    /// The predicted version of a package. `Some(None)`: the package would be removed. `None`:
    /// there is no prediction, so the package is as on the node.
    pub fn package(&self, name: &str) -> Option<Option<String>> {
        self.packages.get(name).cloned()
    }

    /// Records a predicted passwd entry. None: the user would be removed.
    pub fn set_user(&mut self, name: &str, entry: Option<Vec<String>>) {
        self.users.insert(name.to_owned(), entry);
    }

    /// Records a predicted group entry. None: the group would be removed.
    pub fn set_group(&mut self, name: &str, entry: Option<Vec<String>>) {
        self.groups.insert(name.to_owned(), entry);
    }

    /// Records a predicted text, such as a crontab, under the key `what`.
    pub fn set_text(&mut self, what: &str, text: &str) {
        self.texts.insert(what.to_owned(), text.to_owned());
    }

    /// The predicted text under the key `what`. None: there is no prediction.
    pub fn text(&self, what: &str) -> Option<String> {
        self.texts.get(what).cloned()
    }

    /// The groups with a predicted change, by name.
    pub fn groups(&self) -> impl Iterator<Item = (&String, &Option<Vec<String>>)> {
        self.groups.iter()
    }

    /// The predicted passwd entry. `Some(None)`: the user would be removed. `None`: there is no
    /// prediction, so the entry is as on the node.
    pub fn user(&self, key: &str) -> Option<Option<Vec<String>>> {
        find_entry(&self.users, key)
    }

    /// The predicted group entry. `Some(None)`: the group would be removed. `None`: there is no
    /// prediction, so the entry is as on the node.
    pub fn group(&self, key: &str) -> Option<Option<Vec<String>>> {
        find_entry(&self.groups, key)
    }
}

fn find_entry(entries: &BTreeMap<String, Option<Vec<String>>>, key: &str) -> Option<Option<Vec<String>>> {
    let by_id = || entries.values().find(|e| e.as_ref().and_then(|e| e.get(2)).is_some_and(|id| id == key)).cloned();
    entries.get(key).cloned().or_else(by_id)
}

impl NodeAccess {
    /// The properties of a unit: those that systemd reported, with the predicted changes of earlier
    /// tasks.
    pub fn predicted_unit(&self, name: &str, mut told: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let Some(would) = self.predicted_state() else { return told };
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
