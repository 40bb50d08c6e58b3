//! `remoor import`: writes a fleet directory from a playbook and its inventory. No host is
//! contacted.
//!
//! ```text
//! playbook, inventory -> play::prepare: a plan for each host
//!   -> work, parts: services with their files, units, packages
//!   -> groups: hosts with the same services
//!   -> text, vital: remoor.yml, remoor-cleanup.yml, checks
//! ```
//! The playbook stays as it is and becomes `provision` of all groups. What a task makes is taken
//! from `fleet::effects`. A task whose effect is not known is reported with its file and line.

mod commands;
mod groups;
mod parts;
mod text;
mod vital;
mod work;

#[cfg(test)]
mod tests;

use super::play::{Files, PlayRequest, PreparedPlay, groups as groups_of, prepare_with_sources};
use remoor_config::Sources;
use remoor_model::Fault;
use remoor_playbook::{LOCAL, Plan};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the directory for inventories that are not below the playbook's directory.
const INVENTORY_DIR: &str = "inventory";
/// Maximum number of files of all inventories that are copied.
const INVENTORY_FILES_MAX: usize = 10_000;
/// Maximum depth of the directories of an inventory. The limit is needed because links may form a
/// circle.
const INVENTORY_DEPTH_MAX: usize = 16;
/// Maximum size of a file with facts, in bytes.
const FACTS_MAX: u64 = 16 << 20;

/// The options of `remoor import`.
#[derive(Debug, Clone, Default)]
pub struct ImportRequest {
    pub playbook: PathBuf,
    /// Paths of inventories; at least one.
    pub inventory: Vec<String>,
    /// The fleet directory: a new or empty directory, or the directory of the playbook itself.
    pub into: PathBuf,
    /// A JSON file with the facts that count as known. None: the facts of Debian 12.
    pub facts: Option<PathBuf>,
}

/// A fleet directory that was written.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ImportSummary {
    pub services: Vec<ImportedService>,
    /// The groups of `remoor.yml` with their hosts.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Paths that were written, relative to the fleet directory, without copies.
    pub written: Vec<String>,
    /// Tasks whose effect is not known, as warnings.
    pub unknown: Vec<Fault>,
    /// The reasons why the groups have `provisioner: ansible`, as warnings.
    pub needs_ansible: Vec<Fault>,
}

/// The numbers of what a service has.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ImportedService {
    pub name: String,
    pub files: usize,
    pub units: usize,
    pub packages: usize,
    pub state: usize,
}

/// Writes the fleet directory. Err: all faults; nothing was written, unless a file could not be
/// written.
pub fn import(request: &ImportRequest) -> Result<ImportSummary, Vec<Fault>> {
    let facts = match &request.facts {
        Some(path) => read_facts(path).map_err(|fault| vec![fault])?,
        None => debian_12_facts(),
    };
    let play = PlayRequest {
        playbook: request.playbook.clone(),
        inventory: request.inventory.clone(),
        forks: 1,
        // The written fleet must not contain plaintext, so nothing is opened.
        may_stay_encrypted: true,
        ..PlayRequest::default()
    };
    let (play, files, sources) = prepare_with_sources(play)?;
    let source = ImportSource { play, files, sources };
    let target = Target::new(&request.into, &source).map_err(|fault| vec![fault])?;
    let work = work::collect(&source, &facts).map_err(|fault| vec![fault])?;
    if work.of_hosts.is_empty() {
        let fault = Fault::error(&source.files.playbook, 0, 0, "its plays have no host besides this machine");
        return Err(vec![fault.hint("a fleet has nodes that managers reach by SSH; name their inventory with -i")]);
    }
    let groups = groups::divide(&source, &work);
    let inventories = inventories(request, &source, &target).map_err(|fault| vec![fault])?;
    let written = text::generate(&source.files.playbook, &work, &groups, &inventories.names);
    target.write(&source, &inventories.copies, &written)?;
    Ok(ImportSummary {
        services: work.services(),
        groups: groups.iter().map(|group| (group.name.clone(), group.hosts.clone())).collect(),
        written: written.into_iter().map(|(name, _)| name).collect(),
        unknown: work.unknown.into_iter().collect(),
        needs_ansible: Vec::new(),
    })
}

/// Gives all groups of a fleet that [`import`] has written `provisioner: ansible`, because a fleet
/// cannot run the playbook otherwise.
pub fn provision_with_ansible(dir: &Path) -> std::io::Result<()> {
    let path = dir.join("remoor.yml");
    let mut out = String::new();
    let mut groups = 0;
    for line in fs::read_to_string(&path)?.lines() {
        out.push_str(&format!("{line}\n"));
        if line.starts_with("    provision: ") {
            out.push_str("    provisioner: ansible\n");
            groups += 1;
        }
    }
    // `text::generate` has written the file, so a missing key is a fault of these two functions.
    if groups == 0 {
        return Err(std::io::Error::other("remoor.yml has no group with `provision`"));
    }
    fs::write(path, out)
}

/// A compiled playbook with the files and the inventory that it was made from.
struct ImportSource {
    play: PreparedPlay,
    files: Files,
    sources: Sources,
}

impl ImportSource {
    /// The plans of all hosts, except of this machine, because a fleet has only nodes.
    fn plans(&self) -> impl Iterator<Item = (&str, &Plan)> {
        self.play.plans().filter(|(host, _)| !LOCAL.contains(host))
    }

    /// All hosts of the inventory, except of this machine.
    fn hosts(&self) -> impl Iterator<Item = &String> {
        self.sources.order.iter().filter(|host| !LOCAL.contains(&host.as_str()))
    }

    /// The groups of the inventory, each with all its hosts.
    fn groups(&self) -> BTreeMap<String, BTreeSet<String>> {
        groups_of(&self.sources).into_iter().map(|(name, hosts)| (name, hosts.into_iter().collect())).collect()
    }

    /// The directory of the playbook's files, without symlinks.
    fn root(&self) -> PathBuf {
        fs::canonicalize(Path::new(".").join(&self.files.root)).unwrap_or_else(|_| self.files.root.clone())
    }
}

/// The facts of a JSON file: an object with the names of facts, with or without `ansible_`, or the
/// output of `ansible -m setup`.
fn read_facts(path: &Path) -> Result<Map<String, Value>, Fault> {
    let shown = path.display().to_string();
    let wrong = |why: String| Fault::error(&shown, 0, 0, why);
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(FACTS_MAX + 1).read_to_string(&mut text));
    read.map_err(|e| wrong(format!("can't be read: {e}")))?;
    if text.len() as u64 > FACTS_MAX {
        return Err(wrong(format!("is larger than {} MiB", FACTS_MAX >> 20)));
    }
    let hint = "the file contains the facts of one host as a JSON object";
    // `ansible -m setup` prints the host before the object.
    let text = text.find('{').map_or(text.as_str(), |begin| &text[begin..]);
    let value: Value = serde_json::from_str(text).map_err(|e| wrong(format!("can't be parsed: {e}")).hint(hint))?;
    let Value::Object(all) = value else { return Err(wrong("is not a JSON object".to_owned()).hint(hint)) };
    let inner = match all.get("ansible_facts") {
        Some(Value::Object(inner)) => inner.clone(),
        _ => all,
    };
    Ok(with_both_names(inner))
}

/// Facts of a Debian 12.12 host. The architecture differs from host to host, so it is not among
/// them. The point release differs too, but the names of files and the conditions of roles mostly
/// depend on the major version only.
fn debian_12_facts() -> Map<String, Value> {
    let facts = json!({
        "distribution": "Debian",
        "distribution_major_version": "12",
        "distribution_release": "bookworm",
        "distribution_version": "12.12",
        "os_family": "Debian",
        "pkg_mgr": "apt",
        "python": {
            "executable": "/usr/bin/python3.11",
            "type": "cpython",
            "version": {"major": 3, "minor": 11, "micro": 2, "releaselevel": "final", "serial": 0},
        },
        "python_version": "3.11.2",
        "selinux": {"status": "disabled"},
        "service_mgr": "systemd",
        "system": "Linux",
    });
    facts.as_object().cloned().map(with_both_names).unwrap_or_default()
}

/// Each fact under `ansible_NAME`, and all of them in `ansible_facts`.
fn with_both_names(facts: Map<String, Value>) -> Map<String, Value> {
    let short = |name: &str| name.strip_prefix("ansible_").unwrap_or(name).to_owned();
    let inner: Map<String, Value> = facts.into_iter().map(|(name, value)| (short(&name), value)).collect();
    let mut all: Map<String, Value> =
        inner.iter().map(|(name, value)| (format!("ansible_{name}"), value.clone())).collect();
    all.insert("ansible_facts".to_owned(), Value::Object(inner));
    all
}

/// The inventories as `remoor.yml` names them, and the files that have to be copied for that.
struct Inventories {
    names: Vec<String>,
    /// Paths in the fleet directory, each with its source.
    copies: Vec<(String, PathBuf)>,
}

/// An inventory below the playbook's directory keeps its path. Another one is copied, together with
/// the `group_vars` and `host_vars` next to it.
fn inventories(request: &ImportRequest, source: &ImportSource, target: &Target) -> Result<Inventories, Fault> {
    let mut out = Inventories { names: Vec::new(), copies: Vec::new() };
    let mut bases = BTreeSet::new();
    for (n, given) in request.inventory.iter().enumerate() {
        let wrong = |why: String| Fault::error(given, 0, 0, why);
        if given.contains(',') && !Path::new(given).exists() {
            return Err(wrong("is a list of hosts".to_owned()).hint("write the hosts to an inventory file first"));
        }
        let real = fs::canonicalize(given).map_err(|e| wrong(format!("can't be read: {e}")))?;
        if let Some(name) = real.strip_prefix(&target.root).ok().and_then(Path::to_str)
            && (real.is_dir() || source.files.set.get(name).is_some())
        {
            out.names.push(if name.is_empty() { ".".to_owned() } else { name.to_owned() });
            continue;
        }
        // A program may need other files next to it, so it stays where it is.
        let is_program = real.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        if target.in_place || is_program {
            out.names.push(real.display().to_string());
            continue;
        }
        // Each source has its own directory, because the variables next to it belong to it.
        let taken = |name: &String| source.files.set.paths_below(name).next().is_some();
        let mut names =
            (n + 1..).map(|n| if n == 1 { INVENTORY_DIR.to_owned() } else { format!("{INVENTORY_DIR}-{n}") });
        let place = names.find(|name| !taken(name) && !out.copies.iter().any(|(known, _)| known.starts_with(name)));
        let place = place.unwrap_or_default();
        if real.is_dir() {
            copy_tree(&real, &place, INVENTORY_DEPTH_MAX, &mut out.copies)?;
            out.names.push(place);
            continue;
        }
        let file = real.file_name().and_then(|name| name.to_str()).unwrap_or("hosts");
        out.copies.push((format!("{place}/{file}"), real.clone()));
        out.names.push(format!("{place}/{file}"));
        let base = real.parent().unwrap_or(Path::new("/")).to_owned();
        if bases.insert(base.clone()) {
            for vars in ["group_vars", "host_vars"] {
                if base.join(vars).is_dir() {
                    copy_tree(&base.join(vars), &format!("{place}/{vars}"), INVENTORY_DEPTH_MAX, &mut out.copies)?;
                }
            }
        }
    }
    Ok(out)
}

fn copy_tree(from: &Path, place: &str, depth: usize, out: &mut Vec<(String, PathBuf)>) -> Result<(), Fault> {
    let wrong = |why: String| Fault::error(&from.display().to_string(), 0, 0, why);
    if depth == 0 {
        return Err(wrong(format!("directories nested deeper than {INVENTORY_DEPTH_MAX}")));
    }
    let unreadable = |e: std::io::Error| wrong(format!("can't be read: {e}"));
    for entry in fs::read_dir(from).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        let place = format!("{place}/{name}");
        if path.is_dir() {
            copy_tree(&path, &place, depth - 1, out)?;
        } else if path.is_file() {
            out.push((place, path));
        }
        if out.len() > INVENTORY_FILES_MAX {
            return Err(wrong(format!("has more than {INVENTORY_FILES_MAX} files")));
        }
    }
    Ok(())
}

/// The directory that is written.
struct Target {
    dir: PathBuf,
    /// The directory of the playbook's files.
    root: PathBuf,
    /// Whether the fleet directory is the playbook's own directory, so that nothing is copied.
    in_place: bool,
}

impl Target {
    fn new(dir: &Path, source: &ImportSource) -> Result<Self, Fault> {
        let fault = |why: String| Fault::error(&dir.display().to_string(), 0, 0, why);
        let root = source.root();
        let in_place = fs::canonicalize(dir).is_ok_and(|real| real == root);
        let is_empty = fs::read_dir(dir).is_ok_and(|entries| entries.count() == 0);
        match fs::read_dir(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(fault("is a file".to_owned()).hint("name a new directory"));
            }
            Err(e) => return Err(fault(format!("can't be read: {e}"))),
            Ok(_) if !in_place && !is_empty => {
                return Err(fault("is not empty".to_owned())
                    .hint("name a new directory, or the directory of the playbook itself"));
            }
            Ok(_) => {}
        }
        Ok(Self { dir: dir.to_owned(), root, in_place })
    }

    /// Writes the generated files and, unless the fleet is written in place, copies of the
    /// playbook's files. An existing file is never replaced.
    fn write(
        &self,
        source: &ImportSource,
        copies: &[(String, PathBuf)],
        generated: &[(String, String)],
    ) -> Result<(), Vec<Fault>> {
        let there: Vec<Fault> = generated
            .iter()
            .filter(|(name, _)| {
                self.dir.join(name).symlink_metadata().is_ok() || !self.in_place && source.files.set.get(name).is_some()
            })
            .map(|(name, _)| {
                let fault = Fault::error(&self.dir.join(name).display().to_string(), 0, 0, "exists already");
                fault.hint("move it away; import replaces no file")
            })
            .collect();
        if !there.is_empty() {
            return Err(there);
        }
        let write = || -> std::io::Result<()> {
            if !self.in_place {
                for (name, content) in &source.files.set.0 {
                    create(&self.dir.join(name), content, source.files.modes.get(name).copied().unwrap_or(0o644))?;
                }
                for (name, from) in copies {
                    let mode = fs::metadata(from)?.permissions().mode() & 0o777;
                    create(&self.dir.join(name), &fs::read(from)?, mode)?;
                }
            }
            for (name, text) in generated {
                create(&self.dir.join(name), text.as_bytes(), 0o644)?;
            }
            Ok(())
        };
        write().map_err(|e| vec![Fault::error(&self.dir.display().to_string(), 0, 0, format!("can't be written: {e}"))])
    }
}

fn create(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content)
}
