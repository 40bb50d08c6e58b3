//! What one task makes, as parts of a service.
//!
//! A cleanup removes each `File`. So a path is a `File` only if the task certainly writes a file
//! and nothing else there; otherwise the effect counts as unknown.

use super::commands;
use super::vital::is_below;
use crate::fleet::effects;
use remoor_playbook::{PredictedTask, repository_file};
use serde_json::{Map, Value};

/// Directories with configuration and programs. A cleanup removes files only below these.
const CONFIGURATION: [&str; 5] = ["/etc", "/opt", "/usr/local", "/usr/lib/systemd", "/lib/systemd"];
/// Directories that many services share, so none of them has the directory as its data.
const SHARED: [&str; 14] = [
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/srv",
    "/usr/local",
    "/usr/local/bin",
    "/usr/share",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/spool",
];
/// The directory of the home directories that no option names.
const HOMES: &str = "/home";
/// Modules whose changes do not last.
const TRANSIENT: [&str; 2] = ["reboot", "tempfile"];
/// Options without which the path of a task is still known, or known to be unknown:
/// `created_file` returns None where `src`, `url` or `repo` would give the name.
const DETAILS: [&str; 40] = [
    "attributes",
    "backup",
    "block",
    "checksum",
    "comment",
    "content",
    "decrypt",
    "directory_mode",
    "expires",
    "group",
    "groups",
    "headers",
    "insertafter",
    "insertbefore",
    "job",
    "key",
    "line",
    "marker",
    "mode",
    "option",
    "owner",
    "password",
    "password_lock",
    "regexp",
    "repo",
    "search_string",
    "section",
    "shell",
    "src",
    "timeout",
    "uid",
    "gid",
    "update_cache",
    "url",
    "url_password",
    "url_username",
    "validate",
    "value",
    "values",
    "version",
];
/// Maximum number of files that a task copies with a directory.
const TREE_MAX: usize = 1_000;

/// One thing that a service has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// A file that tasks write completely.
    File(String),
    /// A file that tasks change in part, or data in a single file.
    Edited(String),
    /// A directory with data: unpacked, cloned, mounted, or created outside of the configuration.
    State(String),
    /// A directory for configuration. It only shows that its path is no file.
    Directory(String),
    /// A systemd unit with its suffix.
    Unit(String),
    Package(String),
    User(String),
    Group(String),
    /// The membership of a user, by its name, in a group.
    Member(String, String),
    /// An entry of root's crontab, by its name.
    CronEntry(String),
}

/// The effect of a task on one part.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Found {
    Made {
        part: Part,
        mode: Option<u32>,
    },
    Removed(Part),
    /// A unit that the task starts or stops, and enables or disables.
    Unit {
        unit: String,
        started: Option<bool>,
        enabled: Option<bool>,
    },
}

/// The task with the options that are known, if the others are only details. The others are null.
pub(super) fn with_known_options(task: &PredictedTask) -> PredictedTask {
    let mut task = task.clone();
    if let Some((mut known, unknown)) = task.in_part.take()
        && !unknown.is_empty()
        && unknown.iter().all(|name| DETAILS.contains(&name.as_str()))
    {
        known.extend(unknown.into_iter().map(|name| (name, Value::Null)));
        task.args = Some(known);
    }
    task
}

/// The effects of a task. The list is empty if the task has none, or if none is known. `sources`
/// are the names of the files that `src` of the task may stand for.
pub(super) fn found_parts(task: &PredictedTask, sources: &[&str]) -> Vec<Found> {
    let Some(args) = &task.args else { return Vec::new() };
    let absent = text(args, "state").is_some_and(|state| ["absent", "removed"].contains(&state));
    let mode = mode(args);
    let made = |part| Found::Made { part, mode };
    let mut out = Vec::new();
    match task.module.as_str() {
        "file" if absent => {
            let path = path(args).unwrap_or_default();
            out.extend(
                [Part::File(path.clone()), Part::Edited(path.clone()), Part::State(path.clone())].map(Found::Removed),
            );
            // A removed file that comes back is drift.
            if is_below_any(&path, &CONFIGURATION) && !CONFIGURATION.contains(&path.as_str()) {
                out.push(Found::Made { part: Part::Edited(path), mode: None });
            }
        }
        "apt_repository" | "deb822_repository" if absent => {
            out.extend(repository_file(&task.module, args).map(|path| Found::Removed(Part::File(path))));
        }
        "user" | "group" if absent => {
            let name = text(args, "name").unwrap_or_default().to_owned();
            out.push(Found::Removed(if task.module == "user" { Part::User(name) } else { Part::Group(name) }));
        }
        "cron" if absent => {
            out.push(Found::Removed(Part::CronEntry(text(args, "name").unwrap_or_default().to_owned())));
        }
        _ if effects::is_package_module(&task.module) => {
            let names = effects::named_packages(task).into_iter().map(Part::Package);
            let only_upgrade = args.get("only_upgrade").and_then(effects::truth) == Some(true);
            match absent {
                true => out.extend(names.map(Found::Removed)),
                false if only_upgrade => {}
                false => out.extend(names.map(made)),
            }
        }
        _ if effects::is_unit_module(&task.module) => out.extend(unit(args)),
        _ => {
            let mut paths = copied_tree(task, args, sources);
            if paths.is_empty() {
                paths = made_paths(task, args);
            }
            if paths.is_empty() {
                paths = touched_paths(task, args);
            }
            out.extend(paths.into_iter().map(made));
        }
    }
    if let Some((kind, name)) = effects::named_entry(task) {
        match kind {
            "user" => {
                out.extend(home(args, &name).map(|path| Found::Made { part: Part::State(path), mode: None }));
                out.extend(groups(args).map(|group| made(Part::Member(name.clone(), group))));
                out.push(made(Part::User(name)));
            }
            "group" => out.push(made(Part::Group(name))),
            _ if is_plain_cron(args) => out.push(made(Part::CronEntry(name))),
            _ => {}
        }
    }
    out
}

/// Whether a task may make something that `found_parts` does not contain.
pub(super) fn is_unknown_effect(task: &PredictedTask, sources: &[&str]) -> bool {
    let module = task.module.as_str();
    if remoor_playbook::is_idle(module) || TRANSIENT.contains(&module) {
        return false;
    }
    let Some(args) = &task.args else { return true };
    let absent = text(args, "state").is_some_and(|state| ["absent", "removed"].contains(&state));
    match module {
        "uri" => args.contains_key("dest"),
        "cron" => !absent && !is_plain_cron(args) && effects::created_file(task).is_none(),
        "user" | "group" => false,
        "file" | "apt_repository" | "deb822_repository" if absent => false,
        "file" if text(args, "state") == Some("directory") => false,
        _ if effects::is_package_module(module) => effects::named_packages(task).len() < effects::package_words(task),
        _ if effects::is_unit_module(module) => text(args, "scope").is_some_and(|scope| scope != "system"),
        "mount" => text(args, "state").is_none(),
        "template" | "copy" | "get_url" | "file" | "lineinfile" | "blockinfile" | "replace" | "ini_file"
        | "unarchive" | "git" | "sysctl" | "hostname" | "authorized_key" | "apt_repository" | "deb822_repository"
        | "assemble" | "known_hosts" | "locale_gen" | "pam_limits" | "timezone" => {
            let volatile = path(args).is_some_and(|path| is_below_any(&path, &effects::VOLATILE));
            !volatile && made_paths(task, args).is_empty() && copied_tree(task, args, sources).is_empty()
        }
        _ => true,
    }
}

/// The files and directories that a task makes or edits.
fn made_paths(task: &PredictedTask, args: &Map<String, Value>) -> Vec<Part> {
    let mut out = Vec::new();
    if let Some(path) = effects::created_file(task) {
        let data = !is_below_any(&path, &CONFIGURATION);
        if is_surely_file(task, args, &path) {
            out.push(if data || keeps_content(task, args) { Part::Edited(path) } else { Part::File(path) });
        }
    }
    if let Some(path) = effects::edited_file(task) {
        out.push(Part::Edited(path));
    }
    if let Some((path, _)) = effects::filled_directory(task) {
        out.push(Part::State(path));
    }
    if task.module == "hostname" {
        // The name for people is in a file of its own.
        out.push(Part::Edited("/etc/machine-info".to_owned()));
    }
    if let Some(path) = effects::created_directory(task) {
        let configuration = is_below_any(&path, &["/etc", "/usr", "/lib", "/bin", "/sbin"]);
        out.push(if configuration { Part::Directory(path) } else { Part::State(path) });
    }
    out.retain(|part| match part {
        Part::File(path) | Part::Edited(path) => !is_below_any(path, &effects::VOLATILE),
        Part::State(path) => {
            let configuration = is_below_any(path, &["/etc", "/usr/bin", "/usr/lib", "/lib", "/bin", "/sbin"]);
            let wide = SHARED.contains(&path.as_str()) || path.matches('/').count() < 2;
            !is_below_any(path, &effects::VOLATILE) && !configuration && !wide
        }
        _ => true,
    });
    out
}

/// The files that a `copy` of a directory beside the playbook makes.
fn copied_tree(task: &PredictedTask, args: &Map<String, Value>, sources: &[&str]) -> Vec<Part> {
    let (Some(source), Some(dest)) = (text(args, "src"), text(args, "dest")) else { return Vec::new() };
    if task.module != "copy" || !dest.starts_with('/') || is_below_any(dest, &effects::VOLATILE) {
        return Vec::new();
    }
    let plain = source.trim_end_matches('/');
    let plain = plain.strip_prefix("./").unwrap_or(plain);
    // Without the slash, the directory itself is copied.
    let dest = dest.trim_end_matches('/');
    let base = match source.ends_with('/') {
        true => dest.to_owned(),
        false => format!("{dest}/{}", plain.rsplit('/').next().unwrap_or_default()),
    };
    let data = !is_below_any(&base, &CONFIGURATION);
    let part = |path| if data { Part::Edited(path) } else { Part::File(path) };
    let names = sources.iter().filter_map(|name| name.strip_prefix(plain)?.strip_prefix('/'));
    names.take(TREE_MAX).map(|name| part(format!("{base}/{name}"))).collect()
}

/// The files that a task changes, as far as its options name them. Such a task may change more.
fn touched_paths(task: &PredictedTask, args: &Map<String, Value>) -> Vec<Part> {
    let module = task.module.split('@').next().unwrap_or_default();
    let module = module.rsplit('.').next().unwrap_or_default();
    if remoor_playbook::is_idle(module) || module.ends_with("_info") || module.ends_with("_facts") {
        return Vec::new();
    }
    let paths: Vec<String> = match module {
        "command" | "shell" | "raw" | "script" => commands::changed_files(task),
        "cron" if !args.contains_key("cron_file") => {
            vec![format!("/var/spool/cron/crontabs/{}", text(args, "user").unwrap_or("root"))]
        }
        "pamd" => text(args, "name").map(|name| format!("/etc/pam.d/{name}")).into_iter().collect(),
        "alternatives" => text(args, "name").map(|name| format!("/etc/alternatives/{name}")).into_iter().collect(),
        "openssh_keypair" => {
            text(args, "path").map(|path| vec![path.to_owned(), format!("{path}.pub")]).unwrap_or_default()
        }
        "ufw" => ["ufw.conf", "user.rules", "user6.rules"].map(|name| format!("/etc/ufw/{name}")).into(),
        // Their `path` and `dest` are not files that last.
        "mysql_db" | "mysql_user" | "postgresql_db" | "postgresql_user" | "uri" => Vec::new(),
        _ if text(args, "state") == Some("directory") => Vec::new(),
        _ => ["path", "dest"].iter().filter_map(|name| text(args, name)).map(str::to_owned).collect(),
    };
    let lasts = |path: &String| {
        let wide = path.matches('/').count() < 2 || SHARED.contains(&path.as_str());
        path.starts_with('/') && !wide && !path.ends_with('/') && !path.contains("/../")
    };
    paths.into_iter().filter(lasts).filter(|path| !is_below_any(path, &effects::VOLATILE)).map(Part::Edited).collect()
}

/// The groups that a task adds an account to.
fn groups(args: &Map<String, Value>) -> impl Iterator<Item = String> {
    let words: Vec<&str> = match args.get("groups") {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => text.split(',').map(str::trim).collect(),
        _ => Vec::new(),
    };
    words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// The home directory that a task makes for an account. None: it makes none, or only the node knows
/// it.
fn home(args: &Map<String, Value>, name: &str) -> Option<String> {
    let creates = ["create_home", "createhome"].iter().find_map(|option| args.get(*option)).and_then(effects::truth);
    let home = match text(args, "home") {
        Some(home) => home.trim_end_matches('/').to_owned(),
        None if args.contains_key("home") => return None,
        None => format!("{HOMES}/{name}"),
    };
    let wide = SHARED.contains(&home.as_str()) || home.matches('/').count() < 2;
    let system = ["/etc", "/usr", "/bin", "/sbin", "/lib", "/dev", "/proc", "/sys", "/run", "/tmp"];
    (creates != Some(false) && home.starts_with('/') && !wide && !is_below_any(&home, &system)).then_some(home)
}

/// Whether the task writes one file at `path`. A `copy` of a directory fills a directory, and
/// `copy` and `get_url` put a file into a directory that exists.
fn is_surely_file(task: &PredictedTask, args: &Map<String, Value>, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let source = text(args, "src").or(text(args, "url")).unwrap_or_default();
    let directory = source.ends_with('/') || args.get("remote_src").and_then(effects::truth) == Some(true);
    let same_name =
        source.rsplit('/').next().is_some_and(|source| source.strip_suffix(".j2").unwrap_or(source) == name);
    match task.module.as_str() {
        "copy" if args.contains_key("content") => true,
        "copy" => !directory && (same_name || has_extension(name)),
        "get_url" => same_name || has_extension(name),
        "template" => same_name || has_extension(name) || !path.ends_with(".d") && path.matches('/').count() > 2,
        _ => true,
    }
}

fn has_extension(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && !end.is_empty() && end != "d")
}

/// Whether the task may leave the content that the file has before it.
fn keeps_content(task: &PredictedTask, args: &Map<String, Value>) -> bool {
    let forced = args.get("force").and_then(effects::truth) != Some(false);
    !forced || task.module == "file" || task.module == "cron"
}

/// Whether an entry of root's crontab is meant.
fn is_plain_cron(args: &Map<String, Value>) -> bool {
    let root = text(args, "user").is_none_or(|user| user == "root");
    let env = args.get("env").and_then(effects::truth) == Some(true);
    root && !env && !args.contains_key("cron_file")
}

fn unit(args: &Map<String, Value>) -> Option<Found> {
    if text(args, "scope").is_some_and(|scope| scope != "system") {
        return None;
    }
    let name = ["name", "unit", "service"].iter().find_map(|key| text(args, key))?;
    let started = match text(args, "state") {
        Some("started" | "restarted" | "reloaded") => Some(true),
        Some("stopped") => Some(false),
        _ => None,
    };
    let enabled = args.get("enabled").and_then(effects::truth);
    Some(Found::Unit { unit: unit_with_suffix(name), started, enabled })
}

fn unit_with_suffix(name: &str) -> String {
    let suffixes = [".service", ".socket", ".timer", ".mount", ".path", ".target", ".slice", ".automount", ".swap"];
    if suffixes.iter().any(|suffix| name.ends_with(suffix)) { name.to_owned() } else { format!("{name}.service") }
}

fn path(args: &Map<String, Value>) -> Option<String> {
    let path = ["path", "dest", "destfile", "name"].iter().find_map(|key| text(args, key))?;
    Some(path.trim_end_matches('/').to_owned())
}

/// The mode that a task gives its file, if it is octal.
fn mode(args: &Map<String, Value>) -> Option<u32> {
    match args.get("mode")? {
        Value::Number(mode) => u32::try_from(mode.as_u64()?).ok().filter(|mode| *mode <= 0o7777),
        Value::String(text) => {
            u32::from_str_radix(text.trim_start_matches("0o"), 8).ok().filter(|mode| *mode <= 0o7777)
        }
        _ => None,
    }
}

fn text<'a>(args: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

fn is_below_any(path: &str, dirs: &[&str]) -> bool {
    dirs.iter().any(|dir| is_below(path, dir))
}
