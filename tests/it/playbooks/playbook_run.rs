//! The result of a playbook, recorded from Ansible or run by remoor: tasks, recaps and the tree
//! afterwards. Values that differ between runs are removed (times, owners, names of backups).

use crate::local::remoor;
use crate::time_limit::BoundedCommand;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Debug, Default, Deserialize)]
pub struct Answer {
    /// The version of ansible-core that was recorded.
    pub ansible: Option<String>,
    pub command: Option<String>,
    pub runs: Vec<Run>,
    /// The directory tree after the runs, by path: mode and content, or the target of a link.
    pub tree: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
pub struct Run {
    pub options: String,
    pub code: i32,
    pub hosts: BTreeMap<String, Host>,
    /// The reason why the playbook was not run at all.
    #[serde(default)]
    pub refused: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Host {
    /// `NAME: STATUS` of each task, in order. Handlers have the prefix `handler `.
    pub tasks: Vec<String>,
    pub recap: BTreeMap<String, u32>,
}

/// The options of each run, from the lines `# play:`. Without such lines, the playbook is run twice
/// without options.
pub fn options_of(playbook: &str) -> Vec<String> {
    let found: Vec<String> =
        playbook.lines().filter_map(|line| line.strip_prefix("# play:")).map(|o| o.trim().to_owned()).collect();
    if found.is_empty() { vec![String::new(), String::new()] } else { found }
}

/// Runs the playbook `name` of `home` once for each of its lines of options, in a separate
/// directory.
pub fn run_playbook(home: &Path, name: &str) -> Answer {
    let ground = tempfile::tempdir().expect("a directory");
    let ground = ground.path().canonicalize().expect("its real path");
    let top = ground.join("top");
    fs::create_dir(&top).expect("a directory");
    fs::set_permissions(&top, fs::Permissions::from_mode(0o755)).expect("its mode");
    let playbook = fs::read_to_string(home.join(format!("{name}.yml"))).expect("the playbook");
    let inventory = fs::read_to_string(home.join("hosts.ini")).expect("the inventory");
    // Each host has its own state directory, outside the tree.
    let vars: String =
        (1..=3).map(|n| format!("n{n} remoor_state_dir={}\n", ground.join(format!("s{n}")).display())).collect();
    fs::write(ground.join("hosts.ini"), format!("{vars}\n{inventory}")).expect("an inventory");
    let begin = mount_private_copies(&private_dirs(&playbook), &ground);
    let run = |options: String| run(home, name, options, &ground, &begin);
    let runs = options_of(&playbook).into_iter().map(run).collect();
    let mut tree = BTreeMap::new();
    walk(&top, &top, &mut BTreeMap::new(), &mut tree);
    Answer { runs, tree, ..Answer::default() }
}

/// The directories of the system that a playbook changes, from its lines `# private:`.
pub fn private_dirs(playbook: &str) -> Vec<String> {
    let lines = playbook.lines().filter_map(|line| line.strip_prefix("# private:"));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// Copies the directories, and returns the text of a shell script that mounts the copies over them.
fn mount_private_copies(dirs: &[String], ground: &Path) -> String {
    let mut script = String::new();
    for dir in dirs {
        let copy = ground.join("private").join(dir.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().expect("a parent")).expect("a directory");
        let done = Command::new("cp").arg("-a").args([Path::new(dir), &copy]).status().expect("cp runs");
        assert!(done.success(), "copy {dir}");
        script += &format!("mount --bind '{}' '{dir}' && ", copy.display());
    }
    script
}

fn run(home: &Path, name: &str, options: String, ground: &Path, begin: &str) -> Run {
    let top = ground.join("top");
    // The shell sets the umask, and splits the options.
    let line = format!("umask 022; {begin}exec \"$0\" play {name}.yml \"$@\" {options}");
    // The mounts are visible in the run only.
    let mut command = Command::new(if begin.is_empty() { "sh" } else { "unshare" });
    if !begin.is_empty() {
        command.args(["-m", "sh"]);
    }
    command.current_dir(home).arg("-c").arg(line).arg(remoor().get_program());
    command.arg("-i").arg(ground.join("hosts.ini")).args(["--connection", "local", "-o", "json", "-e"]);
    command.arg(serde_json::json!({"dir": top, "web": super::web::address()}).to_string());
    command.env("LC_ALL", "C.UTF-8").env("HOME", ground).stdin(Stdio::null());
    let out = command.bounded_output();
    let code = out.status.code().unwrap_or(-1);
    let talk = String::from_utf8_lossy(&out.stderr).into_owned();
    let mut run = Run { options, code, ..Run::default() };
    if code == 2 {
        let cause = talk.lines().find_map(|line| line.strip_prefix("caused by: "));
        run.refused = Some(cause.unwrap_or(talk.lines().next().unwrap_or_default()).to_owned());
        return run;
    }
    let mut open: BTreeMap<String, OpenTasks> = BTreeMap::new();
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}: {line}; {talk}"));
        match event["event"].as_str() {
            Some("task") => {
                let host = event["host"].as_str().expect("a host").to_owned();
                open.entry(host).or_default().take(&event);
            }
            Some("run-end") => {
                for (host, recap) in event["recap"].as_object().expect("a recap") {
                    let count =
                        |(key, value): (&String, &Value)| Some((key.clone(), u32::try_from(value.as_u64()?).ok()?));
                    // `unknown` is a count that only remoor has, so it is compared only if it is
                    // not zero.
                    let recap = recap.as_object().expect("counts").iter().filter_map(count);
                    let recap = recap.filter(|(key, n)| key != "unknown" || *n > 0).collect();
                    let tasks = open.remove(host).unwrap_or_default().tasks();
                    run.hosts.insert(host.clone(), Host { tasks, recap });
                }
            }
            _ => {}
        }
    }
    // Ansible's recap omits a host on which it had nothing to do.
    run.hosts.retain(|_, host| !host.tasks.is_empty() || host.recap.values().any(|n| *n > 0));
    run
}

/// The tasks of one host while their items arrive.
#[derive(Default)]
struct OpenTasks {
    /// The field `turn` of the current task with items: its number among the started tasks. None:
    /// the current task has no items.
    last: Option<u64>,
    tasks: Vec<(String, Vec<String>)>,
}

impl OpenTasks {
    fn take(&mut self, event: &Value) {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        // Ansible reports nothing about `meta` tasks.
        if text("module") == "meta" {
            self.last = None;
            return;
        }
        let (turn, handler) = (event["turn"].as_u64().expect("a number"), event["handler"] == true);
        let items = !event["item"].is_null();
        match self.tasks.last_mut() {
            Some((_, statuses)) if items && self.last == Some(turn) => statuses.push(text("status")),
            _ => {
                let word = if handler { "handler " } else { "" };
                self.tasks.push((format!("{word}{}", text("name")), vec![text("status")]));
            }
        }
        self.last = items.then_some(turn);
    }

    /// The tasks with their statuses. The status of a task is the most severe status of its items.
    fn tasks(self) -> Vec<String> {
        const WEIGHTS: [&str; 7] = ["skipped", "ok", "changed", "would-run", "unknown", "ignored", "failed"];
        let weight = |status: &String| WEIGHTS.iter().position(|w| w == status);
        let whole = |statuses: Vec<String>| statuses.into_iter().max_by_key(weight).unwrap_or_default();
        self.tasks.into_iter().map(|(name, statuses)| format!("{name}: {}", whole(statuses))).collect()
    }
}

/// Collects the tree below `dir`, in the form of `record.py`.
fn walk(top: &Path, dir: &Path, seen: &mut BTreeMap<(u64, u64), String>, tree: &mut BTreeMap<String, String>) {
    let place = top.display().to_string();
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let (mut folders, mut files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    folders.sort();
    files.sort();
    for path in folders.iter().chain(&files) {
        let relative = path.strip_prefix(top).expect("below the directory").display().to_string();
        let key = without_time(&relative);
        let meta = path.symlink_metadata().expect("its state");
        let mode = format!("{:04o}", meta.mode() & 0o7777);
        let content = if meta.is_symlink() {
            format!("link to {}", fs::read_link(path).expect("a link").display()).replace(&place, "DIR")
        } else if meta.is_dir() {
            format!("{mode} directory")
        } else if let Some(first) = seen.get(&(meta.dev(), meta.ino())) {
            format!("same as {first}")
        } else {
            seen.insert((meta.dev(), meta.ino()), key.clone());
            format!("{mode} {}", String::from_utf8_lossy(&fs::read(path).expect("a file")).replace(&place, "DIR"))
        };
        tree.insert(key, content);
    }
    for folder in folders.iter().filter(|path| !path.is_symlink()) {
        walk(top, folder, seen, tree);
    }
}

/// The path without the time and process id of a backup. Ansible names a backup of x
/// `x.PID.DATE@TIME~`; remoor names it `x.SECONDS-PID.remoor~`.
fn without_time(path: &str) -> String {
    let parts: Vec<&str> = path.rsplitn(3, '.').collect();
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    match parts[..] {
        [end, middle, name] if digits(middle) && (end == "remoor~" || end.ends_with('~') && end.contains('@')) => {
            format!("{name}.BACKUP~")
        }
        _ => path.to_owned(),
    }
}
