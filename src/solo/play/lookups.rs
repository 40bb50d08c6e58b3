//! Performs the lookups of the runs on this machine, and calls filters and tests in Python. Files
//! are read here, and plugins of Ansible perform the other lookups.

use super::PreparedPlay;
use crate::module_packer::{LookupPlugins, ModulePolicy};
use remoor_playbook::{LookupAnswer, LookupCall, PlannedLookup, PluginKind, is_private_name};
use remoor_vault::{Vault, is_encrypted};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum size in bytes of a file that a lookup reads.
const FILE_MAX: u64 = 1 << 20;
/// Lookups whose arguments may depend on values of a host, because they only read files below the
/// playbook's directory. Any other lookup could run a command or read a file elsewhere.
const CHOSEN_BY_HOST: [&str; 4] = ["file", "fileglob", "first_found", "template"];
/// Why a lookup is not performed.
const BY_HOST: &str = "they depend on facts, on results of tasks, or on variables that a task has set";
/// Maximum number of files of one pattern.
const FILES_MAX: usize = 10_000;

/// Performs lookups for all hosts of a run.
#[derive(Debug)]
pub(super) struct PlayLookups {
    /// Absolute path of the directory of the playbook's files.
    pub root: PathBuf,
    pub made: MadeFiles,
    vault: Arc<Vault>,
    policy: ModulePolicy,
    plugins: LookupPlugins,
}

impl PlayLookups {
    pub fn new(root: PathBuf, vault: Arc<Vault>, policy: ModulePolicy) -> Self {
        let plugins = LookupPlugins::new(root.clone());
        let protected = real_paths(vault.password_files().iter().cloned());
        Self { root, made: MadeFiles { protected, ..MadeFiles::default() }, vault, policy, plugins }
    }

    /// The lookups of a play, with the files that its hosts may not choose.
    pub fn of_play(play: &PreparedPlay) -> Self {
        let request = &play.request;
        let mut lookups = Self::new(play.root.clone(), Arc::clone(&request.vault), request.modules);
        let inventories = request.inventory.iter().map(PathBuf::from);
        lookups.made.protected.extend(real_paths(inventories.chain(play.connections.login_files())));
        lookups
    }

    /// A search in these directories. `by_host`: whether values of a host select the files.
    pub fn search<'a>(&'a self, dirs: &'a [PathBuf], by_host: bool) -> Search<'a> {
        Search { dirs, root: &self.root, by_host, made: &self.made }
    }

    /// Performs a lookup. It may take long, so the caller uses a thread for blocking work.
    pub fn perform(&self, lookup: &PlannedLookup) -> LookupAnswer {
        let PlannedLookup { call, places, variables, depends_on_host } = lookup;
        let LookupCall { name, terms, .. } = call;
        if call.plugin == PluginKind::FileTest {
            return self.test_files(call, *depends_on_host);
        }
        if *depends_on_host && !CHOSEN_BY_HOST.contains(&name.as_str()) {
            return LookupAnswer::Failed(format!("only the playbook may choose its arguments, but {BY_HOST}"));
        }
        let dirs: Vec<PathBuf> = places.iter().map(|place| self.root.join(place)).collect();
        let term = terms.first().and_then(Value::as_str).unwrap_or_default();
        let texts = |found: Result<String, String>| match found {
            Ok(text) => LookupAnswer::Items(vec![json!(text)]),
            Err(why) => LookupAnswer::Failed(why),
        };
        if call.plugin != PluginKind::Lookup {
            return self.call_plugin(call, &dirs, variables);
        }
        let search = self.search(&dirs, *depends_on_host);
        match name.as_str() {
            "env" => LookupAnswer::Items(std::env::var(term).ok().into_iter().map(Value::from).collect()),
            "file" => texts(self.read(&search, "files", term)),
            "template" => texts(self.read(&search, "templates", term)),
            "unvault" => {
                let read =
                    |term: &Value| self.read(&search, "files", term.as_str().unwrap_or_default()).map(Value::from);
                match terms.iter().map(read).collect::<Result<Vec<_>, _>>() {
                    Ok(items) => LookupAnswer::Items(items),
                    Err(why) => LookupAnswer::Failed(why),
                }
            }
            "first_found" => LookupAnswer::Items(search.find("files", term).iter().map(|path| json!(path)).collect()),
            "fileglob" => match search.find_matching(term) {
                Ok(found) => LookupAnswer::Items(found.iter().map(|path| json!(path)).collect()),
                Err(why) => LookupAnswer::Failed(why),
            },
            _ => self.call_plugin(call, &dirs, variables),
        }
    }

    fn call_plugin(&self, call: &LookupCall, dirs: &[PathBuf], variables: &Map<String, Value>) -> LookupAnswer {
        match self.policy {
            ModulePolicy::NativeOnly => {
                LookupAnswer::Failed("it needs ansible-core on this machine, which `--native-only` refuses".to_owned())
            }
            ModulePolicy::Any => self.plugins.perform(call, dirs, variables),
        }
    }

    /// Performs a test of files. Values of a host can choose only files below the root.
    fn test_files(&self, call: &LookupCall, by_host: bool) -> LookupAnswer {
        let paths: Vec<&Path> = call.terms.iter().filter_map(Value::as_str).map(Path::new).collect();
        let search = self.search(&[], by_host);
        let is_below = |path: &Path| {
            let below = path.strip_prefix(&self.root).is_ok_and(|below| !below.components().any(is_refused));
            // The directory of a missing file must not lead elsewhere by a link either.
            let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok());
            below && existing.is_some_and(|path| search.may_read(path))
        };
        if by_host && !paths.iter().all(|path| is_below(path)) {
            let why = "only the playbook may choose a path that is not below its directory";
            return LookupAnswer::Failed(format!("{why}, but {BY_HOST}"));
        }
        match remoor_playbook::perform_file_test(&call.name, &paths) {
            Ok(holds) => LookupAnswer::Items(vec![json!(holds)]),
            Err(why) => LookupAnswer::Failed(why),
        }
    }

    /// The text of a file, opened if it is encrypted. A host may not choose an encrypted file.
    fn read(&self, search: &Search, sub: &str, name: &str) -> Result<String, String> {
        let path = search.find_real(sub, name).ok_or_else(|| format!("`{name}` does not exist"))?;
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut content = Vec::new();
        let file = open_file(&path, search.by_host).map_err(failed)?;
        file.take(FILE_MAX + 1).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > FILE_MAX {
            return Err(format!("{} is larger than {} MiB", path.display(), FILE_MAX >> 20));
        }
        if is_encrypted(&content) {
            if search.by_host {
                return Err(format!("{} is encrypted, and {BY_HOST}", path.display()));
            }
            let text = String::from_utf8_lossy(&content);
            content = self.vault.open(&text).map_err(|e| format!("{} {e}", path.display()))?.to_vec();
        }
        String::from_utf8(content).map_err(|_| format!("{} is not UTF-8 text", path.display()))
    }
}

/// Finds files as a lookup of Ansible does.
pub(super) struct Search<'a> {
    pub dirs: &'a [PathBuf],
    pub root: &'a Path,
    /// Whether values of a host select the files. The host may be compromised.
    pub by_host: bool,
    /// Files and directories that `tempfile` has made on this machine in this run.
    pub made: &'a MadeFiles,
}

/// The paths of existing files after links.
fn real_paths(paths: impl IntoIterator<Item = PathBuf>) -> BTreeSet<PathBuf> {
    paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// Whether a host may not choose a path with this component below the directory of all files.
fn is_refused(part: std::path::Component) -> bool {
    is_private_name(&part.as_os_str().to_string_lossy())
}

/// Opens a file. `by_host`: a host has chosen it, so a link that has replaced it since the check of
/// its path is not followed, and a pipe does not block.
pub(super) fn open_file(path: &Path, by_host: bool) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(if by_host { flags.cast_signed() } else { 0 }).open(path)
}

/// The files and directories that tasks `tempfile` have made on this machine in a run. Their names
/// are random, so only a host that knows a name can choose it.
#[derive(Debug, Default)]
pub(super) struct MadeFiles {
    made: Mutex<BTreeSet<PathBuf>>,
    /// Files and directories that no host may choose, after links: inventories, password files and
    /// the files of the login.
    protected: BTreeSet<PathBuf>,
}

impl MadeFiles {
    /// Adds the path in the result of a task `tempfile`.
    pub fn add(&self, answer: &[u8]) {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let path = answer.pointer("/Ok/extra_keys/path").and_then(Value::as_str).map(PathBuf::from);
        // After links, because the files below it are compared so.
        if let Some(Ok(path)) = path.filter(|path| path.is_absolute()).map(|path| path.canonicalize()) {
            self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
        }
    }

    /// Whether a path without links is one of them, or below one.
    pub fn contains(&self, path: &Path) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        path.ancestors().any(|path| made.contains(path))
    }
}

impl Search<'_> {
    /// The paths that a name may mean, in order of preference.
    fn candidates(&self, sub: &str, name: &str) -> Vec<PathBuf> {
        if let Some(rest) = name.strip_prefix("~/")
            && let Some(home) = std::env::var_os("HOME")
        {
            return vec![PathBuf::from(home).join(rest)];
        }
        let below = self.dirs.iter().flat_map(|dir| [dir.join(sub).join(name), dir.join(name)]);
        // The variables `role_path` and `playbook_dir` are relative to the directory of all files.
        below.chain([self.root.join(name)]).collect()
    }

    pub fn find(&self, sub: &str, name: &str) -> Option<PathBuf> {
        let mut paths = self.candidates(sub, name).into_iter();
        paths.find(|path| path.is_file() && !name.is_empty() && self.may_read(path))
    }

    /// Like `find`. If a host selects the file, the path has no links, so that the file that is
    /// opened is the one that was checked.
    fn find_real(&self, sub: &str, name: &str) -> Option<PathBuf> {
        let path = self.find(sub, name)?;
        match self.by_host {
            true => path.canonicalize().ok().filter(|path| self.may_read(path)),
            false => Some(path),
        }
    }

    /// The file that a host means that selects a file of a task. The path has no links. `may_send`:
    /// whether the task may read a file with this path, which is below the directory of all files.
    pub fn find_of_task(&self, sub: &str, name: &str, may_send: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let real = self.candidates(sub, name).into_iter().filter_map(|path| path.canonicalize().ok());
        let may_send = |path: &Path| self.made.contains(path) || self.may_read(path) && may_send(path);
        real.filter(|path| path.is_file()).find(|path| !name.is_empty() && may_send(path))
    }

    /// Like `find`, also for a directory.
    pub fn find_any(&self, sub: &str, name: &str) -> Option<PathBuf> {
        let mut paths = self.candidates(sub, name).into_iter();
        paths.find(|path| path.exists() && !name.is_empty() && self.may_read(path))
    }

    /// Whether a lookup may read an existing file. A file that a host selects is below the root,
    /// also after links, and has no variables of other hosts and no secrets of the user.
    fn may_read(&self, path: &Path) -> bool {
        if !self.by_host {
            return true;
        }
        let (Ok(real), Ok(root)) = (path.canonicalize(), self.root.canonicalize()) else { return false };
        if self.made.contains(&real) {
            return true;
        }
        let protected = real.ancestors().any(|path| self.made.protected.contains(path));
        !protected && real.strip_prefix(root).is_ok_and(|below| !below.components().any(is_refused))
    }

    /// The files that match a pattern, in the first directory that has such files.
    fn find_matching(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        for candidate in self.candidates("files", pattern) {
            let (Some(dir), Some(name)) = (candidate.parent(), candidate.file_name().and_then(|name| name.to_str()))
            else {
                continue;
            };
            let fits = remoor_playbook::wildcard(name)?;
            // A pattern of a host must not show names elsewhere, such as random ones in /tmp.
            if !self.may_read(dir) {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(dir) else { continue };
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path())).take(FILES_MAX);
            let is_meant = |path: &PathBuf| {
                path.is_file()
                    && self.may_read(path)
                    && path.file_name().and_then(|name| name.to_str()).is_some_and(|name| fits.is_match(name))
            };
            let mut found: Vec<PathBuf> = paths.filter(is_meant).collect();
            found.sort();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_cannot_choose_a_command_or_a_file_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("files")).unwrap();
        std::fs::write(dir.path().join("files/mine"), "text").unwrap();
        std::fs::write(dir.path().join("given"), "given").unwrap();
        let lookups = PlayLookups::new(dir.path().to_owned(), Arc::default(), ModulePolicy::NativeOnly);
        let perform = |name: &str, term: &str, depends_on_host: bool| {
            let call = LookupCall::new(name, vec![json!(term)]);
            let places = vec![String::new()];
            lookups.perform(&PlannedLookup { call, places, variables: Map::new(), depends_on_host })
        };
        let given = dir.path().join("given").display().to_string();
        let ok = |text: &str| LookupAnswer::Items(vec![json!(text)]);
        std::fs::create_dir(dir.path().join("host_vars")).unwrap();
        std::fs::write(dir.path().join("host_vars/other"), "secret").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(".vault_pass", dir.path().join("password")).unwrap();
        for name in [".vault_pass", "ansible.cfg"] {
            std::fs::write(dir.path().join(name), "secret").unwrap();
        }
        for (name, term, depends, want) in [
            ("file", "mine", true, ok("text")),
            ("file", given.as_str(), true, ok("given")),
            ("file", "files/../given", true, ok("given")),
            ("file", "host_vars/other", false, ok("secret")),
        ] {
            assert_eq!(perform(name, term, depends), want, "{name} {term}");
        }
        for (name, term, depends, want) in [
            ("file", "/etc/hostname", true, "does not exist"),
            ("file", "../../../../../../etc/hostname", true, "does not exist"),
            ("file", "host_vars/other", true, "does not exist"),
            ("file", "link", true, "does not exist"),
            ("file", ".vault_pass", true, "does not exist"),
            ("file", "password", true, "does not exist"),
            ("file", "ansible.cfg", true, "does not exist"),
            ("pipe", "id", true, "only the playbook may choose"),
            ("password", "x", true, "only the playbook may choose"),
            ("csvfile", "root file=\"/etc/passwd\"", true, "only the playbook may choose"),
            ("url", "file:///etc/hostname", true, "only the playbook may choose"),
            ("unvault", "mine", true, "only the playbook may choose"),
            ("pipe", "id", false, "which `--native-only` refuses"),
            ("file", "gone", false, "`gone` does not exist"),
        ] {
            match perform(name, term, depends) {
                LookupAnswer::Failed(why) => assert!(why.contains(want), "{name} {term}: {why}"),
                other => panic!("{name} {term}: {other:?}"),
            }
        }
        let test = |name: &str, path: &str, depends_on_host: bool| {
            let call = LookupCall { plugin: PluginKind::FileTest, ..LookupCall::new(name, vec![json!(path)]) };
            lookups.perform(&PlannedLookup { call, places: Vec::new(), variables: Map::new(), depends_on_host })
        };
        let holds = |holds: bool| LookupAnswer::Items(vec![json!(holds)]);
        let below = |name: &str| dir.path().join(name).display().to_string();
        let call = LookupCall {
            plugin: PluginKind::FileTest,
            ..LookupCall::new("same_file", vec![json!(below("given")), json!(below("gone"))])
        };
        assert!(matches!(lookups.test_files(&call, false), LookupAnswer::Failed(why) if why.contains("gone")));
        for (name, path, depends, want) in [
            ("file", "/etc/hostname".to_owned(), false, true),
            ("file", below("given"), true, true),
            ("directory", below("files"), true, true),
            ("exists", below("gone"), true, false),
            ("file", below("host_vars"), false, false),
        ] {
            assert_eq!(test(name, &path, depends), holds(want), "{name} {path}");
        }
        std::os::unix::fs::symlink("/etc", dir.path().join("linked")).unwrap();
        for path in [
            "/etc/hostname".to_owned(),
            below("../x"),
            below("link"),
            below("host_vars/other"),
            below("host_vars/gone"),
            below(".vault_pass"),
            below("linked/gone"),
        ] {
            assert!(matches!(test("exists", &path, true), LookupAnswer::Failed(_)), "{path}");
        }
        for (pattern, name) in [("/etc/host*", "fileglob"), ("host_vars/*", "fileglob"), ("~/.bashrc", "first_found")] {
            assert_eq!(perform(name, pattern, true), LookupAnswer::Items(Vec::new()), "{pattern}");
        }
        // A pattern shows no random name, not even one that the host may choose if it knows the
        // name.
        let other = tempfile::tempdir().unwrap();
        let file = other.path().join("made");
        std::fs::write(&file, "made").unwrap();
        lookups.made.add(json!({"Ok": {"extra_keys": {"path": file}}}).to_string().as_bytes());
        assert_eq!(perform("file", &file.display().to_string(), true), ok("made"));
        let pattern = other.path().join("m*").display().to_string();
        assert_eq!(perform("fileglob", &pattern, true), LookupAnswer::Items(Vec::new()));
        assert_eq!(perform("first_found", "gone", false), LookupAnswer::Items(Vec::new()));
        assert_eq!(perform("fileglob", "mi*", false), ok(&dir.path().join("files/mine").display().to_string()));
    }
}
