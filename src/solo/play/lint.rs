//! Lints playbooks in a directory that is not a fleet. As in `remoor play`, each playbook is
//! compiled for its hosts. No host is contacted.

use super::prepare::NOBODY;
use super::{Login, PlayRequest, files, prepare};
use crate::module_packer::ModulePolicy;
use crate::solo::project_dir::{ansible_defaults, program_of_others, root_of};
use remoor_model::Fault;
use remoor_playbook::{self as playbook, LOCAL, PromptAnswers, VaultAccess};
use remoor_vault::Vault;
use serde_json::{Map, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of an inventory if `ansible.cfg` does not set one. The first name that exists is used.
const INVENTORIES: [&str; 8] =
    ["inventory", "inventory.yml", "inventory.yaml", "inventory.ini", "hosts", "hosts.yml", "hosts.yaml", "hosts.ini"];
/// Directories with files that playbooks include, with installed collections, or with tests of
/// `molecule`. They contain no playbook that the operator runs.
const PARTS: [&str; 14] = [
    "roles",
    "collections",
    "molecule",
    "tasks",
    "handlers",
    "vars",
    "defaults",
    "meta",
    "group_vars",
    "host_vars",
    "templates",
    "files",
    "library",
    "node_modules",
];
/// Maximum depth of the directories in which playbooks are searched.
const DEPTH_MAX: usize = 3;
/// Maximum size of a playbook, in bytes. A larger file is not a playbook.
const PLAYBOOK_MAX: u64 = 1 << 20;
/// The host that is in all groups if there is no inventory.
const ANY_HOST: &str = "any-host";

/// All faults and warnings of the playbooks below `dir`, each once. The inventory is the one that
/// `ansible.cfg` names, or one with a usual name; an executable inventory is run. Without an
/// inventory, each playbook is compiled for one host that is in every group that the playbook
/// names. Then undefined variables are only warnings, because an inventory may define them. With
/// `strict`, a task that cannot be compiled is an error even if no run may reach it.
pub fn lint(dir: &Path, modules: ModulePolicy, strict: bool, vault: &Arc<Vault>) -> Vec<Fault> {
    let mut playbooks = Vec::new();
    find(dir, 0, &mut playbooks);
    if playbooks.is_empty() {
        let fault = Fault::error(&dir.display().to_string(), 0, 0, "has no remoor.yml at its top, and no playbook");
        return vec![fault.hint("a fleet directory has remoor.yml; a playbook is a list of plays, each with `hosts`")];
    }
    let inventory = inventory(dir);
    if let Some(fault) = inventory.iter().find_map(|source| open_program_fault(dir, source)) {
        return vec![fault];
    }
    let faults: BTreeSet<Fault> = playbooks
        .iter()
        .flat_map(|playbook| lint_playbook(dir, playbook, &inventory, modules, strict, vault))
        .collect();
    playbook::merge_refusal_notes(faults.into_iter().collect())
}

fn lint_playbook(
    dir: &Path,
    playbook: &Path,
    inventory: &[String],
    modules: ModulePolicy,
    strict: bool,
    vault: &Arc<Vault>,
) -> Vec<Fault> {
    let root = root(dir, playbook);
    let known = !inventory.is_empty();
    let stand_in = if known { Ok(None) } else { stand_in(playbook, root.as_deref(), vault).map(Some) };
    let stand_in = match stand_in {
        Ok(stand_in) => stand_in,
        Err(faults) => return faults,
    };
    let invented = stand_in.as_ref().map(|dir| dir.path().join("hosts.yml").display().to_string());
    let request = PlayRequest {
        playbook: playbook.to_owned(),
        root,
        inventory: invented.iter().chain(inventory).cloned().collect(),
        forks: 1,
        login: Login::default(),
        modules,
        strict,
        vault: vault.clone(),
        may_stay_encrypted: true,
        ..PlayRequest::default()
    };
    let mut faults = match prepare(request) {
        Ok(prepared) => [&prepared.warnings[..], &prepared.python_warnings()].concat(),
        Err(faults) => faults,
    };
    faults.retain(|fault| Some(&fault.file) != invented.as_ref());
    for fault in faults.iter_mut().filter(|fault| !fault.warning) {
        if fault.message == NOBODY {
            fault.warning = true;
        } else if !known && playbook::is_about_undefined(&fault.message) {
            fault.warning = true;
            fault.hint = Some(
                "an inventory may define it; none exists as `inventory` or `hosts`, or is named in ansible.cfg"
                    .to_owned(),
            );
        }
    }
    faults
}

/// Returns `dir` as the root of the playbook's files. None: the playbook's project directory is
/// above `dir`, or a symlink leads out of `dir`.
fn root(dir: &Path, playbook: &Path) -> Option<PathBuf> {
    let (dir, playbook) = (fs::canonicalize(dir).ok()?, fs::canonicalize(playbook).ok()?);
    root_of(playbook.parent()?).starts_with(&dir).then_some(dir)
}

/// A temporary directory with an inventory. The one host of the inventory is in all groups that the
/// playbook uses, and in no group that the playbook excludes.
fn stand_in(playbook: &Path, root: Option<&Path>, vault: &Vault) -> Result<tempfile::TempDir, Vec<Fault>> {
    let files = files::read(playbook, root)?;
    let shown = |faults: Vec<Fault>| faults.into_iter().map(|fault| files.with_shown_path(fault)).collect::<Vec<_>>();
    let vault = VaultAccess { vault, may_stay_encrypted: true };
    let plays = playbook::outline(&files.set, &files.playbook, &Map::new(), &PromptAnswers::new(), Some(vault))
        .map_err(shown)?;
    let host = json!({ANY_HOST: {}});
    let mut groups = Map::new();
    for pattern in plays.iter().flat_map(|play| &play.hosts).flat_map(|hosts| hosts.split([',', ':'])) {
        let (without, name) = match pattern.trim().strip_prefix('!') {
            Some(name) => (true, name),
            None => (false, pattern.trim().trim_start_matches('&')),
        };
        // A pattern with wildcards is replaced by a name that it matches.
        let name = name.split('[').next().unwrap_or_default().replace(['*', '?'], "x");
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        if !plain || LOCAL.contains(&name.as_str()) || ["all", "ungrouped", "x"].contains(&name.as_str()) {
            continue;
        }
        let hosts = if without { json!({}) } else { json!({"hosts": host}) };
        match without {
            true => drop(groups.entry(name).or_insert(hosts)),
            false => drop(groups.insert(name, hosts)),
        }
    }
    let local = |e: std::io::Error| vec![Fault::error(&playbook.display().to_string(), 0, 0, format!("no room: {e}"))];
    let dir = tempfile::tempdir().map_err(local)?;
    let text = json!({"all": {"hosts": host, "children": groups}}).to_string();
    fs::write(dir.path().join("hosts.yml"), text).map_err(local)?;
    Ok(dir)
}

/// Collects the files below `dir` that are lists of plays, in their order. A file with a YAML error
/// is included if it begins like a list of plays.
fn find(dir: &Path, depth: usize, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names {
        let path = dir.join(&name);
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        if path.is_dir() {
            if depth < DEPTH_MAX && !PARTS.contains(&name) {
                find(&path, depth + 1, out);
            }
        } else if (name.ends_with(".yml") || name.ends_with(".yaml"))
            && path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= PLAYBOOK_MAX)
            && fs::read_to_string(&path).is_ok_and(|text| plays(&text))
        {
            out.push(path);
        }
    }
}

/// Whether a text is a list of plays: its entries have a key that only plays have, or import
/// playbooks.
fn plays(text: &str) -> bool {
    let lines = || text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
    let first = lines().find(|line| !line.starts_with("---"));
    let keys = ["hosts", "import_playbook", "ansible.builtin.import_playbook"];
    let has_key = |line: &str| {
        let (indent, rest) = line.split_at(line.find(|c: char| c != ' ' && c != '-').unwrap_or(line.len()));
        let key = rest.trim_start_matches('{').split(':').next().unwrap_or_default().trim_matches(['"', '\'', ' ']);
        indent.len() <= 4 && keys.contains(&key)
    };
    first.is_some_and(|line| line.trim_start().starts_with("- ")) && lines().any(has_key)
}

/// The error for an inventory that is a program which another user can change. Lint would run it,
/// although the caller has named only the directory.
fn open_program_fault(dir: &Path, source: &str) -> Option<Fault> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let why = program_of_others(dir, Path::new(source))?;
    let fault = Fault::error(source, 0, 0, format!("this inventory is a program that is not run, because {why}"));
    Some(fault.hint("see to it that only you can change the program and its directory (chmod go-w)"))
}

/// The inventory that `ansible.cfg` in `dir` names, or the one with a usual name. Empty: there is
/// none.
fn inventory(dir: &Path) -> Vec<String> {
    if let Some(value) = ansible_defaults(dir).0.get("inventory") {
        let sources = value.split(',').map(str::trim).filter(|source| !source.is_empty());
        return sources.map(|source| dir.join(source).display().to_string()).collect();
    }
    let usual = INVENTORIES.iter().map(|name| dir.join(name)).find(|path| path.exists());
    usual.iter().map(|path| path.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// The faults of a directory with these files, one per line, with relative names.
    fn lint_text(files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let real = fs::canonicalize(dir.path()).unwrap().display().to_string();
        let lines = lint(dir.path(), ModulePolicy::Any, false, &Arc::default())
            .into_iter()
            .map(|f| f.to_string().lines().next().unwrap_or_default().to_owned());
        lines.collect::<Vec<_>>().join("\n").replace(&real, "DIR")
    }

    const SITE: &str = "- hosts: web*:!old\n  tasks:\n    - {copy: {content: '{{ port }}', dest: /etc/port}}\n    - {copy: {dset: /x}}\n- {hosts: db, roles: [base]}\n";

    #[test]
    fn playbooks_are_checked_without_an_inventory() {
        let role = ("roles/base/tasks/main.yml", "- {debug: {msg: '{{ 1 | nope }}'}}\n");
        let tasks = ("more/tasks/main.yml", "- {nonsense: }\n");
        let installed = ("collections/ansible_collections/a/b/p.yml", "- hosts: all\n  tusks: []\n");
        let tested = ("molecule/default/converge.yml", "- hosts: all\n  tusks: []\n");
        assert!(lint_text(&[installed, tested]).contains("no playbook"));
        let said = lint_text(&[("site.yml", SITE), role, tasks, ("plays/two.yml", "- hosts: all\n  tusks: []\n")]);
        assert!(said.contains("DIR/site.yml:4:") && said.contains("`dset`"), "{said}");
        assert!(said.contains("DIR/roles/base/tasks/main.yml:1:") && said.contains("nope"), "{said}");
        assert!(said.contains("unknown play keyword `tusks`") && !said.contains("nonsense"), "{said}");
        let good = SITE.replace("    - {copy: {dset: /x}}\n", "").replace(", roles: [base]", "");
        // A playbook may also use files outside of its own directory.
        let beside = "- hosts: all\n  tasks: [{template: {src: ../shared/t.j2, dest: /x}}]\n";
        let said = lint_text(&[("site.yml", &good), ("plays/own.yml", beside), ("shared/t.j2", "x\n")]);
        assert!(said.starts_with("DIR/site.yml:3:") && said.contains("warning: ") && said.contains("`port`"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        // Lint reports a YAML error, and a directory without playbooks.
        assert!(lint_text(&[("site.yml", "- hosts: all\n  tasks: [\n")]).contains("site.yml:"));
        assert!(lint_text(&[("a.yml", "x: 1\n")]).contains("no playbook"));
    }

    #[test]
    fn an_inventory_that_is_there_is_used() {
        let good = SITE.replace("    - {copy: {dset: /x}}\n", "").replace(", roles: [base]", "");
        let hosts = "[web1]\nw1 port=80\n[old]\n[db]\nd1\n";
        for (cfg, place) in [("", "hosts"), ("[defaults]\ninventory = some/place\n", "some/place")] {
            assert_eq!(lint_text(&[("ansible.cfg", cfg), (place, hosts), ("site.yml", &good)]), "", "{place}");
            let said = lint_text(&[("ansible.cfg", cfg), (place, &hosts.replace(" port=80", "")), ("site.yml", &good)]);
            assert!(said.contains("`port`") && !said.contains("warning"), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("site.yml"), &good).unwrap();
        let (program, ran) = (dir.path().join("hosts"), dir.path().join("ran"));
        fs::write(&program, format!("#!/bin/sh\n: > {}\n", ran.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        let faults = lint(dir.path(), ModulePolicy::Any, false, &Arc::default());
        assert!(faults.len() == 1 && faults[0].message.contains("not run, because all users"), "{faults:?}");
        assert!(!ran.exists());
        let said = lint_text(&[("hosts", "[other]\nh1\n"), ("site.yml", &good)]);
        assert!(said.lines().any(|line| line.ends_with(&format!("warning: {NOBODY}"))), "{said}");
    }

    #[test]
    fn the_host_that_reaches_a_refused_task_decides_its_note() {
        let hosts = "w1 on=true\nw2 on=false\n";
        for (when, note) in [
            ("on and ansible_hostname == 'x'", "warning: this task fails if it is reached: module `pacman`"),
            ("on", "module `pacman`"),
            ("on and false", "warning: this task could not be run, but no run with this inventory reaches it: module"),
        ] {
            let site = format!("- hosts: all\n  tasks:\n    - {{pacman: {{name: x}}, when: {when}}}\n");
            let said = lint_text(&[("hosts", hosts), ("site.yml", &site)]);
            assert!(said.lines().count() == 1 && said.contains(&format!(": {note}")), "{said}");
        }
    }
}
