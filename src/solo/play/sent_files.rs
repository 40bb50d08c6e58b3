//! Files of this machine that the runs ask for. The plan of a host lists their names.

use super::files::Files;
use super::lookups::{MadeFiles, PlayLookups, Search, open_file};
use remoor_playbook::{ControllerFiles, FileAnswer, NamesOfRun, SENT_MAX, search_places};
use remoor_vault::is_encrypted;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Size in bytes of the parts in which a file is sent. Its base64 fits into an answer.
const PART: u64 = 2 << 20;
/// Maximum size in bytes of all files that are sent to one host.
pub(super) const TOTAL_MAX: u64 = 2 << 30;
/// The files of this machine, as the compiler judges them before a run.
#[derive(Debug)]
pub(super) struct FilesHere<'f> {
    pub root: &'f Path,
    pub files: &'f Files,
    /// Whether a task may make files here.
    pub may_be_made: bool,
}

impl<'f> FilesHere<'f> {
    pub fn new(root: &'f Path, files: &'f Files) -> Self {
        let mut playbooks = files.set.0.iter().filter(|(name, _)| name.ends_with(".yml") || name.ends_with(".yaml"));
        let may_be_made = playbooks
            .any(|(_, content)| std::str::from_utf8(content).is_ok_and(|text| text.lines().any(may_make_files)));
        Self { root, files, may_be_made }
    }
}

impl ControllerFiles for FilesHere<'_> {
    fn may_exist(&self, file: &str, sub: &str, name: &str) -> bool {
        let dirs = places(self.root, file, &self.files.playbook);
        let search = Search { dirs: &dirs, root: self.root, by_host: false, made: &MadeFiles::default() };
        self.may_be_made || search.find(sub, name).is_some()
    }
}

/// Whether a line of a playbook belongs to a task that may make files on this machine.
fn may_make_files(line: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(':').any(|(at, _)| {
        let key = line[..at].rsplit(|c| !is_part(c)).next().unwrap_or_default();
        let value = line[at + 1..].trim_start_matches([' ', '"', '\'']);
        match key {
            "fetch" | "local_action" => true,
            "connection" | "delegate_to" | "hosts" => ["local", "127."].iter().any(|name| value.starts_with(name)),
            _ => false,
        }
    })
}

/// The directories in which the files of a task of the file `file` are searched.
pub(super) fn places(root: &Path, file: &str, playbook: &str) -> Vec<PathBuf> {
    search_places(file, playbook).iter().map(|place| root.join(place)).collect()
}

/// The file of a task that a run asks for.
#[derive(Debug)]
pub(super) struct AskedFile {
    /// The file of the task, in the directory of all files.
    pub from: String,
    pub subdirectory: &'static str,
    pub name: String,
    /// Set if the host has chosen the name.
    pub of_run: Option<NamesOfRun>,
    /// The paths of the files that the plan has for the task.
    pub planned: BTreeSet<String>,
}

impl AskedFile {
    /// Opens the file, if the run may ask for it.
    pub fn open(&self, lookups: &PlayLookups, playbook: &str) -> Result<OutgoingFile, String> {
        let Self { from, subdirectory, name, of_run, planned } = self;
        let dirs = places(&lookups.root, from, playbook);
        let search = lookups.search(&dirs, of_run.is_some());
        let Some(of_run) = of_run else {
            let path = search.find(subdirectory, name);
            let path = path.ok_or_else(|| format!("`{name}` does not exist on the controller"))?;
            return OutgoingFile::open(path, false);
        };
        let root = lookups.root.canonicalize().unwrap_or_default();
        let fits = of_run.fits(Path::new(name).strip_prefix(&lookups.root).ok().and_then(Path::to_str).unwrap_or(name));
        let is_planned = |path: &Path| planned.iter().any(|one| path.strip_prefix(&root) == Ok(Path::new(one)));
        let path = search.find_of_task(subdirectory, name, |path| fits || is_planned(path)).ok_or_else(|| {
            let what = "a value of the run may choose only a file that the plan has for the task, one below a path of \
                        `tempfile`, and one that fits the fixed part of its name in the playbook";
            format!("`{name}` is not sent: {what} (docs/reference/playbooks.md)")
        })?;
        OutgoingFile::open(path, true)
    }
}

/// A file that is being sent to a host.
#[derive(Debug)]
pub(super) struct OutgoingFile {
    path: PathBuf,
    file: File,
    mode: u32,
    /// Number of bytes that were not sent yet.
    pub left: u64,
}

impl OutgoingFile {
    /// `by_host`: a host has chosen the file.
    pub fn open(path: PathBuf, by_host: bool) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        let file = open_file(&path, by_host).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.len() > SENT_MAX as u64 {
            return Err(format!("{} is larger than {} MiB", path.display(), SENT_MAX >> 20));
        }
        Ok(Self { file, mode: meta.permissions().mode() & 0o7777, left: meta.len(), path })
    }

    /// The next part, and whether it is the last one.
    pub fn next_part(&mut self, first: bool) -> (FileAnswer, bool) {
        let failed = |why: String| (FileAnswer::Failed(format!("{}{why}", self.path.display())), true);
        let mut part = Vec::new();
        if let Err(e) = (&mut self.file).take(PART.min(self.left)).read_to_end(&mut part) {
            return failed(format!(": {e}"));
        }
        if part.is_empty() && self.left > 0 {
            return failed(" became shorter while it was sent".to_owned());
        }
        if first && is_encrypted(&part) {
            return failed(" is encrypted; it can be opened only in the directory of the playbook".to_owned());
        }
        self.left -= part.len() as u64;
        let last = self.left == 0;
        (FileAnswer::part(self.path.display().to_string(), self.mode, &part, last), last)
    }
}

#[cfg(test)]
mod tests {
    use super::super::delegate::ControllerService;
    use super::super::testing::TestPlay;
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_of_tasks_that_may_make_files_are_found() {
        for (line, makes) in [
            ("  delegate_to: localhost", true),
            ("- {command: x, delegate_to: \"127.0.0.1\"}", true),
            ("  ansible.builtin.fetch:", true),
            ("- local_action: command x", true),
            ("  connection: local", true),
            ("- hosts: 'localhost'", true),
            ("- hosts: web", false),
            ("# 'includes' seront copiés: é: x", false),
            ("  delegate_to: '{{ other }}'", false),
        ] {
            assert_eq!(may_make_files(line), makes, "{line}");
        }
    }

    async fn read(service: &mut ControllerService<'_>, request: serde_json::Value) -> Result<FileAnswer, String> {
        let answer = service.answer(request.to_string().as_bytes()).await?;
        Ok(serde_json::from_slice(&answer).unwrap())
    }

    const COMPUTED: &str = "
- hosts: w1
  tasks:
    - {command: id, register: r}
    - {copy: {src: '{{ r.stdout }}', dest: /x}}
    - {copy: {src: 'pki/{{ r.stdout }}', dest: /x}}
    - {copy: {src: 'fetched/{{ inventory_hostname }}/{{ r.stdout }}', dest: /x}}
    - {copy: {src: '{{ ansible_os_family }}.conf', dest: /x}}
";

    #[tokio::test]
    async fn a_host_chooses_no_file_that_its_task_does_not_mean() {
        let secrets = [".vault_pass", "group_vars/all.yml", "host_vars/w2.yml", "ansible.cfg", "Debian.conf"];
        let play = TestPlay::with_files(COMPUTED, "w1\nw2\n", &secrets);
        let dir = play.dir.path();
        // Tasks of the run make these files.
        for name in ["pki/w1.crt", "pki/.hidden", "pki/group_vars/x", "fetched/w1/a", "fetched/w2/a", "made/a"] {
            std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.join(name), "---\n").unwrap();
        }
        std::os::unix::fs::symlink("../inv", dir.join("pki/link")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.join("pki/outside")).unwrap();
        let made = json!({"Ok": {"extra_keys": {"path": dir.join("made")}}}).to_string();
        play.shared.lookups.made.add(made.as_bytes());
        let mut service = play.service("w1");
        let path = |name: &str| dir.join(name).display().to_string();
        let elsewhere = ["*", "inv", "/etc/hostname", "../x", "fetched/w2/a", "pki/../inv", "pki/../.vault_pass"];
        let refused = |task: u32| {
            let of_task: &[&str] = match task {
                3 => &["pki/.hidden", "pki/group_vars/x", "pki/link", "pki/outside", "pki/../pki/w1.crt"],
                _ => &["pki/w1.crt", "fetched/w1/../w2/a"],
            };
            secrets[..4].iter().chain(&elsewhere).chain(of_task).copied()
        };
        for (task, name) in (2..=5).flat_map(|task| refused(task).map(move |name| (task, name))) {
            for name in [name.to_owned(), path(name)] {
                let answer = read(&mut service, json!({"read": {"task": task, "name": name}})).await.unwrap();
                assert!(matches!(answer, FileAnswer::Failed(_)), "{task} {name}: {answer:?}");
            }
        }
        for (task, name) in [(2, "made/a"), (3, "pki/w1.crt"), (4, "fetched/w1/a"), (5, "made/a"), (5, "Debian.conf")] {
            let answer = read(&mut service, json!({"read": {"task": task, "name": path(name)}})).await.unwrap();
            assert!(matches!(answer, FileAnswer::Part { last: true, .. }), "{task} {name}: {answer:?}");
        }
        let why = read(&mut service, json!({"read": {"task": 1, "name": "pki/w1.crt"}})).await.unwrap_err();
        assert!(why.contains("does not read the file"), "{why}");
    }

    #[tokio::test]
    async fn a_host_gets_only_files_that_its_plan_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("given"), vec![7; 3 << 20]).unwrap();
        std::fs::write(path("other"), "secret").unwrap();
        std::fs::write(path("empty"), "").unwrap();
        std::fs::write(path("vault"), "$ANSIBLE_VAULT;1.1;AES256\n00\n").unwrap();
        let copy = |task: &str| format!("    - {{copy: {{src: '{task}', dest: /x}}}}\n");
        let tasks: String = [path("{{ item }}"), path("vault"), path("empty")].iter().map(|name| copy(name)).collect();
        let tasks = tasks.replacen("}}\n", "}, loop: [given, given]}\n", 1);
        let play = TestPlay::new(&format!("- hosts: w1\n  tasks:\n{tasks}"), "w1\n");
        let mut service = play.service("w1");
        let request = |task: u32, name: &str| json!({"read": {"task": task, "name": path(name)}});
        for (task, name) in [(1, "other"), (2, "given"), (9, "given")] {
            let why = read(&mut service, request(task, name)).await.unwrap_err();
            assert!(why.contains("does not read the file"), "{why}");
        }
        assert!(read(&mut service, json!("more")).await.unwrap_err().contains("no file"));
        let FileAnswer::Part { last: false, content, .. } = read(&mut service, request(1, "given")).await.unwrap()
        else {
            panic!("more than one part")
        };
        let FileAnswer::Part { last: true, content: rest, .. } = read(&mut service, json!("more")).await.unwrap()
        else {
            panic!("two parts")
        };
        let in_base64 = |bytes: usize| bytes.div_ceil(3) * 4;
        assert_eq!((content.len(), rest.len()), (in_base64(2 << 20), in_base64(1 << 20)));
        assert!(read(&mut service, json!("more")).await.unwrap_err().contains("no file"));
        let FileAnswer::Failed(why) = read(&mut service, request(2, "vault")).await.unwrap() else {
            panic!("it is encrypted")
        };
        assert!(why.contains("is encrypted"), "{why}");
        let empty = read(&mut service, request(3, "empty")).await.unwrap();
        assert!(matches!(empty, FileAnswer::Part { last: true, .. }), "{empty:?}");
    }
}
