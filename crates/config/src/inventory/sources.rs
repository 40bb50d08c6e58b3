//! Several inventories as one, as with `-i A -i B` on a command line: files, directories, programs,
//! and lists of hosts with a comma. Also reads the variables next to a playbook.

use super::draft::{Draft, SourcePosition};
use super::inventory_change::InventoryChange;
use super::vars_files::VarsLocation;
use super::{AnsibleInventory, pattern, source, vars_files};
use remoor_model::Fault;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The result of `load_sources`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    pub inventory: AnsibleInventory,
    /// Host names in the order of the sources. A play uses its hosts in this order.
    pub order: Vec<String>,
    /// From this, `read_again` makes the inventory.
    content: SourceContent,
}

/// Everything that `load_sources` has read, except `group_vars` and `host_vars`.
#[derive(Debug, Clone, Default, PartialEq)]
struct SourceContent {
    draft: Draft,
    /// The directories with `group_vars` and `host_vars`.
    bases: Vec<PathBuf>,
    playbooks: Option<PathBuf>,
}

impl Sources {
    /// Adds a change to the content. Returns whether the content did not have it. The inventory
    /// stays as it is until `read_again`. Err: why the change is not possible; nothing was added.
    pub fn add(&mut self, change: &InventoryChange) -> Result<bool, String> {
        self.content.draft.add_change(change)
    }

    /// Whether the inventory with all changes has this host.
    pub fn has_host(&self, name: &str) -> bool {
        self.content.draft.hosts.contains_key(name)
    }

    /// The inventory with all changes. Reads `group_vars` and `host_vars` again, because new hosts
    /// and groups may have such files. Runs no executables.
    pub fn read_again(&self) -> Result<Self, Vec<Fault>> {
        Self::resolve(Path::new(""), self.content.clone())
    }

    /// Reads the files of variables of the content.
    fn resolve(root: &Path, content: SourceContent) -> Result<Self, Vec<Fault>> {
        let mut draft = content.draft.clone();
        read_variables(root, &content.bases, content.playbooks.as_deref(), &mut draft);
        let order = std::mem::take(&mut draft.host_order);
        Ok(Self { inventory: draft.resolve()?, order, content })
    }
}

/// Reads `sources` into one inventory; a later source overrides an earlier one. The `group_vars`
/// and `host_vars` next to each source are read too. `playbooks` is the directory of a playbook;
/// its `group_vars` override those `group_vars`, and its `host_vars` override those `host_vars`.
/// Faults name files as given. Runs executables.
pub fn load_sources(sources: &[String], playbooks: Option<&Path>) -> Result<Sources, Vec<Fault>> {
    let mut draft = Draft::default();
    let paths: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
    let root = Path::new("");
    let bases = read_content(root, &paths, &mut draft);
    Sources::resolve(root, SourceContent { draft, bases, playbooks: playbooks.map(Path::to_owned) })
}

/// Like `load_sources`, but faults and origins name files below `root` relative to `root`.
pub fn load_below(root: &Path, sources: &[PathBuf], playbooks: Option<&Path>) -> Result<AnsibleInventory, Vec<Fault>> {
    let mut draft = Draft::default();
    let bases = read_content(root, sources, &mut draft);
    read_variables(root, &bases, playbooks, &mut draft);
    draft.resolve()
}

/// Reads the sources. Returns the directories in which `group_vars` and `host_vars` may be.
fn read_content(root: &Path, sources: &[PathBuf], draft: &mut Draft) -> Vec<PathBuf> {
    let mut bases: Vec<PathBuf> = Vec::new();
    for path in sources {
        if let Some(list) = path.to_str().filter(|given| given.contains(',') && !path.exists()) {
            host_list(list, draft);
            continue;
        }
        source::read(root, path, draft);
        let base = if path.is_dir() { path.as_path() } else { path.parent().unwrap_or(Path::new("")) };
        if !bases.iter().any(|known| is_same_directory(known, base)) {
            bases.push(base.to_owned());
        }
    }
    bases
}

/// Reads the `group_vars` and `host_vars` of the groups and hosts of the draft.
fn read_variables(root: &Path, bases: &[PathBuf], playbooks: Option<&Path>, draft: &mut Draft) {
    if draft.faults.is_empty() {
        for base in bases {
            vars_files::read(root, base, VarsLocation::Inventory, draft);
        }
        if let Some(dir) = playbooks.filter(|dir| !bases.iter().any(|known| is_same_directory(known, dir))) {
            vars_files::read(root, dir, VarsLocation::Playbook, draft);
        }
    }
}

fn is_same_directory(a: &Path, b: &Path) -> bool {
    let real =
        |path: &Path| std::fs::canonicalize(if path.as_os_str().is_empty() { Path::new(".") } else { path }).ok();
    a == b || real(a).is_some_and(|a| Some(a) == real(b))
}

/// Reads a comma-separated list of hosts, such as `web1,web[2:5],db:2222,`.
fn host_list(text: &str, draft: &mut Draft) {
    let at = SourcePosition::new(text, 0, 0);
    let origin = format!("{text}: host");
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match pattern::expand(word) {
            Err(why) => draft.faults.push(at.fault(why)),
            Ok((names, port)) => {
                for name in names {
                    draft.add_host("ungrouped", &name, &at);
                    if let Some(port) = port {
                        draft.set_host(&name, "ansible_port", Value::from(port), &origin);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn later_sources_win_and_variables_next_to_the_playbook_win_over_those_next_to_sources() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for (name, text) in [
            ("a/hosts.ini", "[web]\nw2 x=a\nw1\n[web:vars]\ny=a\nz=a\n"),
            ("b/hosts.yml", "web: {hosts: {w1: {x: b}}, vars: {y: b}}\n"),
            ("a/group_vars/all.yml", "p: 1\nq: 1\nr: 1\n"),
            ("a/group_vars/web.yml", "q: 2\n"),
            ("plays/group_vars/all.yml", "p: 3\nq: 3\n"),
            ("plays/group_vars/web.yml", "r: 4\n"),
            ("plays/host_vars/w2.yml", "x: plays\n"),
        ] {
            fs::create_dir_all(Path::new(&at(name)).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        }
        let sources = [at("a/hosts.ini"), at("b/hosts.yml"), "lone:2222,n[1:2],".to_owned()];
        let read = load_sources(&sources, Some(Path::new(&at("plays")))).unwrap();
        assert_eq!(read.order, ["w2", "w1", "lone", "n1", "n2"]);
        let vars = |host: &str| Value::Object(read.inventory.hosts[host].vars.clone());
        assert_eq!(vars("w1"), json!({"p": 3, "q": 2, "r": 4, "x": "b", "y": "b", "z": "a"}));
        assert_eq!(vars("w2")["x"], "plays");
        assert_eq!(vars("lone"), json!({"ansible_port": 2222, "p": 3, "q": 3, "r": 1}));
        let beside = load_sources(&sources[..1], Some(Path::new(&at("a")))).unwrap();
        assert_eq!(beside.inventory.hosts["w1"].vars["q"], 2, "one directory is read once");
        let faults = load_sources(&[at("none"), "a b,".to_owned()], None).unwrap_err();
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
