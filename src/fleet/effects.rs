//! What one task of a plan makes on a node: files, directories, accounts, units and packages, as
//! far as the options of the task tell. The code reads plans and renders nothing. Cleanup coverage
//! and `remoor import` use it.

use super::mentions::{one_of, strings, tokens};
use remoor_playbook::{PredictedTask, repository_file};
use serde_json::Value;

/// Directories for temporary files, and directories that the kernel provides.
pub const VOLATILE: [&str; 7] = ["/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/proc", "/sys"];

/// The file that a task creates completely. None for an edited file, because it existed before.
/// None for a directory, because a cleanup empties it and does not remove it.
pub fn created_file(task: &PredictedTask) -> Option<String> {
    let args = task.args.as_ref()?;
    let state = args.get("state").and_then(Value::as_str).unwrap_or_default();
    let path = match task.module.as_str() {
        "assemble" | "template" | "copy" | "get_url" => one_of(args, &["dest", "path"])?,
        "apt_repository" | "deb822_repository" if state != "absent" => repository_file(&task.module, args)?,
        "cron" if state != "absent" => match one_of(args, &["cron_file"])? {
            path if path.starts_with('/') => path,
            name => format!("/etc/cron.d/{name}"),
        },
        "file" if ["touch", "link", "hard"].contains(&state) => one_of(args, &["path", "dest", "name"])?,
        _ => return None,
    };
    let path = match path.strip_suffix('/') {
        Some(dir) => {
            let source = one_of(args, &["src", "url"])?;
            let source =
                if task.module == "get_url" { source.split(['?', '#']).next().unwrap_or_default() } else { &source };
            format!("{dir}/{}", source.rsplit('/').next().unwrap_or_default())
        }
        None => path,
    };
    (path.starts_with('/') && !path.ends_with('/')).then_some(path)
}

/// The directory that a task fills or mounts, with the verb for the warning.
pub fn filled_directory(task: &PredictedTask) -> Option<(String, &'static str)> {
    let args = task.args.as_ref()?;
    let is = |name: &str, want: bool| args.get(name).and_then(truth) == Some(want);
    let (path, how) = match task.module.as_str() {
        "unarchive" => match one_of(args, &["dest"])? {
            root if root.trim_end_matches('/').is_empty() => (one_of(args, &["creates"])?, "is unpacked"),
            dest => (dest, "gets what is unpacked"),
        },
        "pip" => (one_of(args, &["virtualenv"])?, "gets packages of Python"),
        "git" if !is("clone", false) => (one_of(args, &["dest"])?, "is cloned"),
        "mount" if ["mounted", "present", "ephemeral"].contains(&args.get("state")?.as_str()?) => {
            (one_of(args, &["path", "name"])?, "is mounted")
        }
        _ => return None,
    };
    let path = path.trim_end_matches('/');
    path.starts_with('/').then(|| (path.to_owned(), how))
}

/// The account or crontab entry that a task creates: its kind and its name. None for the user and
/// group root, because they existed before.
pub fn named_entry(task: &PredictedTask) -> Option<(&'static str, String)> {
    let args = task.args.as_ref()?;
    let kind = match task.module.as_str() {
        "user" => "user",
        "group" => "group",
        // A crontab entry in its own file disappears together with the file.
        "cron" if !args.contains_key("cron_file") => "cron entry",
        _ => return None,
    };
    let gone = args.get("state").and_then(Value::as_str) == Some("absent");
    let name = one_of(args, if kind == "user" { &["name", "user"] } else { &["name"] })?;
    (!gone && (kind == "cron entry" || name != "root")).then_some((kind, name))
}

pub fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::String(text) => match text.to_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Some(true),
            "no" | "false" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// The units that a task starts or enables, either by a module or by `systemctl start` and
/// `systemctl enable`.
pub fn started_units(task: &PredictedTask) -> Vec<String> {
    let Some(args) = task.args.as_ref() else { return Vec::new() };
    if is_command(task) {
        let mut out = Vec::new();
        // Each of these characters begins another command.
        for part in command_text(task).split(['\n', ';', '&', '|']) {
            let mut words =
                tokens(part).skip_while(|word| *word != "systemctl").skip(1).filter(|w| !w.starts_with('-'));
            if words.next().is_some_and(|verb| ["start", "enable", "reenable"].contains(&verb)) {
                out.extend(words.filter(|word| !word.contains(['$', '>', '<'])).map(str::to_owned));
            }
        }
        return out;
    }
    if !is_unit_module(&task.module) {
        return Vec::new();
    }
    let started = args.get("state").and_then(Value::as_str) == Some("started");
    let runs = started || args.get("enabled").and_then(truth) == Some(true);
    one_of(args, &["name", "unit", "service"]).filter(|_| runs).into_iter().collect()
}

pub fn is_command(task: &PredictedTask) -> bool {
    ["command", "shell", "raw"].contains(&task.module.as_str())
}

/// The text that a task runs. The words of a command are on one line; a script is unchanged.
pub fn command_text(task: &PredictedTask) -> String {
    let mut texts = Vec::new();
    task.args.iter().for_each(|args| strings(args, &mut texts));
    if task.module == "command" { texts.join(" ") } else { texts.join("\n") }
}

/// The file that a task changes in part. The file exists before the task, or belongs to others too.
pub fn edited_file(task: &PredictedTask) -> Option<String> {
    let args = task.args.as_ref()?;
    let path = match task.module.as_str() {
        "lineinfile" | "blockinfile" | "replace" | "ini_file" => one_of(args, &["path", "dest", "destfile", "name"])?,
        "sysctl" => one_of(args, &["sysctl_file"]).unwrap_or_else(|| "/etc/sysctl.conf".to_owned()),
        "mount" => one_of(args, &["fstab"]).unwrap_or_else(|| "/etc/fstab".to_owned()),
        "hostname" => "/etc/hostname".to_owned(),
        "known_hosts" => one_of(args, &["path"])?,
        "locale_gen" => "/etc/locale.gen".to_owned(),
        "pam_limits" => one_of(args, &["dest"]).unwrap_or_else(|| "/etc/security/limits.conf".to_owned()),
        "timezone" if args.contains_key("name") => "/etc/localtime".to_owned(),
        // Only the node knows the home directories of other users.
        "authorized_key" => match one_of(args, &["path"]) {
            Some(path) => path,
            None if one_of(args, &["user"])? == "root" => "/root/.ssh/authorized_keys".to_owned(),
            None => return None,
        },
        "file" if one_of(args, &["state"]).is_none_or(|state| state == "file") => {
            one_of(args, &["path", "dest", "name"])?
        }
        _ => return None,
    };
    (path.starts_with('/') && !path.ends_with('/')).then_some(path)
}

/// The directory that a task creates.
pub fn created_directory(task: &PredictedTask) -> Option<String> {
    let args = task.args.as_ref()?;
    if task.module != "file" || one_of(args, &["state"])? != "directory" {
        return None;
    }
    let path = one_of(args, &["path", "dest", "name"])?;
    path.starts_with('/').then(|| path.trim_end_matches('/').to_owned())
}

/// The packages that a task names, without versions. A name that is no plain package name, such as
/// a file or an architecture, is left out.
pub fn named_packages(task: &PredictedTask) -> Vec<String> {
    let plain = |name: &&str| !name.is_empty() && !name.contains(['/', '*', ' ', ':', '@']);
    let words = written_packages(task);
    words.iter().filter_map(|word| word.split('=').next().filter(plain)).map(str::to_owned).collect()
}

/// The number of words in a task that stand for packages.
pub fn package_words(task: &PredictedTask) -> usize {
    written_packages(task).len() + usize::from(task.args.as_ref().is_some_and(|args| args.contains_key("deb")))
}

fn written_packages(task: &PredictedTask) -> Vec<String> {
    let Some(args) = &task.args else { return Vec::new() };
    let mut words = Vec::new();
    ["name", "pkg", "package"].iter().filter_map(|name| args.get(*name)).for_each(|value| match value {
        Value::Array(items) => words.extend(items.iter().map(|item| item.as_str().unwrap_or_default().to_owned())),
        Value::String(text) => words.extend(text.split(',').map(str::trim).map(str::to_owned)),
        _ => words.push(String::new()),
    });
    words
}

pub fn is_package_module(module: &str) -> bool {
    ["apt", "yum", "dnf", "package"].contains(&module)
}

pub fn is_unit_module(module: &str) -> bool {
    ["systemd", "systemd_service", "service", "sysvinit"].contains(&module)
}
