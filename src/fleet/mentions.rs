//! The paths, units, ports and accounts that a cleanup names, and whether the cleanup may name
//! more. The code reads plans and renders nothing.
//!
//! If a script may remove an item, the item counts as removed, because a false warning is worse
//! than a missing one.

use remoor_playbook::{Plan, PredictedTask, repository_file};
use serde_json::{Map, Value};

/// Words of commands that may remove more than they name.
const SWEEPING: [&str; 9] =
    ["uninstall", "purge", "remove", "autoremove", "reset", "teardown", "destroy", "prune", "uninstall.sh"];
const REMOVING: [&str; 7] = ["rm", "unlink", "find", "mv", "delete", "truncate", "rsync"];
const STOPPING: [&str; 4] = ["systemctl", "service", "stop", "disable"];

#[derive(Debug, Default)]
pub(super) struct Mentions {
    /// Paths that the cleanup removes, each with everything below it.
    removed: Vec<String>,
    /// All texts in the options of the cleanup's tasks, except the removed paths.
    options: Vec<String>,
    /// The texts of the cleanup's commands and scripts.
    scripts: Vec<String>,
    units: Vec<String>,
    /// Packages that the cleanup removes. Only the package manager knows which files belong to
    /// them.
    packages: Vec<String>,
    /// Whether the cleanup removes files whose names are known only at run time. The next two
    /// fields say the same about units, and about accounts and crontab entries.
    any_file: bool,
    any_unit: bool,
    any_name: bool,
}

impl Mentions {
    pub fn from_plan(plan: &Plan, facts: &Map<String, Value>) -> Self {
        let mut out = Self::default();
        plan.predicted_tasks(facts).iter().for_each(|task| out.task(task));
        for blob in plan.blobs.values() {
            match String::from_utf8(blob.0.clone()) {
                Ok(text) => out.script(text),
                // A script that is not text is a binary, which may remove anything.
                Err(_) => (out.any_file, out.any_unit) = (true, true),
            }
        }
        out
    }

    fn task(&mut self, task: &PredictedTask) {
        let state = |args: &Map<String, Value>| args.get("state").and_then(Value::as_str).map(str::to_owned);
        let absent =
            |args: &Map<String, Value>| state(args).is_some_and(|state| ["absent", "removed"].contains(&&*state));
        let args = task.args.as_ref();
        match task.module.as_str() {
            "file" => match args {
                Some(args) if absent(args) => self.removed.extend(one_of(args, &["path", "dest", "name"])),
                Some(args) => strings(args, &mut self.options),
                None => self.any_file = true,
            },
            "apt_repository" | "deb822_repository" => match args {
                Some(args) if absent(args) => self.removed.extend(repository_file(&task.module, args)),
                _ => {}
            },
            "systemd" | "systemd_service" | "service" | "sysvinit" => match args {
                Some(args) => self.units.extend(one_of(args, &["name", "unit", "service"])),
                None => self.any_unit = true,
            },
            "apt" | "yum" | "dnf" | "package" => match args {
                Some(args) if absent(args) => {
                    ["name", "pkg", "package"]
                        .iter()
                        .filter_map(|n| args.get(*n))
                        .for_each(|v| text(v, &mut self.packages));
                }
                Some(_) => {}
                None if absent(&task.written) => (self.any_file, self.any_unit) = (true, true),
                None => {}
            },
            "user" | "group" | "cron" if args.is_none() => self.any_name = true,
            "mount" if args.is_none() => self.any_file = true,
            "command" | "shell" | "raw" | "script" => {
                let mut words = Vec::new();
                strings(args.unwrap_or(&task.written), &mut words);
                self.script(words.join(" "));
            }
            _ => strings(args.unwrap_or(&task.written), &mut self.options),
        }
    }

    fn script(&mut self, script: String) {
        for line in script.lines() {
            let words: Vec<&str> = tokens(line).collect();
            let has = |list: &[&str]| words.iter().any(|word| list.contains(word) || list.contains(&last(word)));
            let open = line.contains("{{") || line.contains("{%");
            let sweeping = has(&SWEEPING);
            self.any_file |= sweeping || open && has(&REMOVING);
            self.any_unit |= sweeping || open && has(&STOPPING);
        }
        self.scripts.push(script);
    }

    /// Whether the cleanup removes the file, may remove it, or otherwise names it.
    pub fn file(&self, path: &str) -> bool {
        let part =
            |package: &String| path.split('/').any(|part| !part.is_empty() && part.starts_with(package.as_str()));
        self.any_file
            || self.removed.iter().any(|dir| covers(dir, path))
            || self.options.iter().any(|text| text.trim_end_matches('/') == path)
            || self.scripts.iter().any(|script| script_names(script, path))
            || self.packages.iter().any(part)
    }

    /// Like [`Mentions::file`], for the content of a directory. A mention of the directory or of a
    /// path below it is enough.
    pub fn tree(&self, dir: &str) -> bool {
        self.file(dir)
            || self.removed.iter().chain(&self.options).any(|path| covers(dir, path))
            || self.scripts.iter().flat_map(|script| tokens(script)).any(|word| covers(dir, word))
    }

    /// Like [`Mentions::file`], for an item with a name and no path: an account or a crontab entry.
    pub fn name(&self, name: &str) -> bool {
        self.any_name
            || self.any_file
            || self.options.iter().any(|text| text == name)
            || self.scripts.iter().any(|script| script.contains(name))
            || self.packages.iter().any(|package| name.starts_with(package.as_str()))
    }

    /// Whether the cleanup removes whole crontabs, or may remove them.
    pub fn crontabs(&self) -> bool {
        self.removed.iter().any(|dir| covers(dir, "/var/spool/cron") || covers("/var/spool/cron", dir))
            || self.scripts.iter().flat_map(|script| tokens(script)).any(|word| last(word) == "crontab")
    }

    /// Like [`Mentions::file`], for a unit. The name may have `.service` or not.
    pub fn unit(&self, unit: &str) -> bool {
        let bare = strip_service_suffix(unit);
        let whole = if bare == unit && !is_unit(unit) { format!("{bare}.service") } else { unit.to_owned() };
        let names = |word: &str| match word.split_once(['*', '?', '[']) {
            Some((begin, _)) => begin.len() > 2 && bare.starts_with(begin),
            None => last(word) == whole || word == bare,
        };
        self.any_unit
            || self.units.iter().any(|name| strip_service_suffix(name) == bare || names(name))
            || self.removed.iter().chain(&self.options).any(|path| last(path) == whole)
            || self.scripts.iter().flat_map(|script| tokens(script)).any(names)
            || self.packages.iter().any(|package| bare.starts_with(package.as_str()))
    }

    /// Like [`Mentions::file`], for a port opened in a firewall.
    pub fn port(&self, port: &str) -> bool {
        let number = |word: &str| word.split(|c: char| !c.is_ascii_digit()).any(|part| part == port);
        let flushes = |word: &str| ["-F", "--flush", "flush"].contains(&word);
        let all = || self.scripts.iter().flat_map(|script| tokens(script));
        (self.any_file && self.any_unit)
            || all().any(|word| number(word) || flushes(word))
            || self.options.iter().any(|option| option == port)
            || self.scripts.iter().any(|script| script.contains("{{") && script.contains("tables"))
    }
}

/// Whether removing `dir` also removes `path`.
pub(super) fn covers(dir: &str, path: &str) -> bool {
    let dir = dir.trim_end_matches('/');
    !dir.is_empty() && path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A unit's name without `.service`.
pub(super) fn strip_service_suffix(unit: &str) -> &str {
    unit.strip_suffix(".service").unwrap_or(unit)
}

fn is_unit(name: &str) -> bool {
    [".timer", ".socket", ".mount", ".path", ".target", ".slice"].iter().any(|end| name.ends_with(end))
}

fn script_names(script: &str, path: &str) -> bool {
    let searches = tokens(script).any(|word| word == "find");
    let name = last(path);
    tokens(script).any(|word| {
        let word = word.trim_end_matches('/');
        if let Some((begin, _)) = word.split_once(['*', '?', '[', '$']) {
            return begin.len() > 5 && path.starts_with(begin);
        }
        // A script usually names a directory near the root without removing it. So a path such as
        // `/etc` does not cover the paths below it, unless the script uses `find`.
        let whole = searches || word == path || word.matches('/').count() > 1;
        last(word) == name || word.starts_with('/') && whole && covers(word, path)
    })
}

/// The words of a script, without shell punctuation.
pub(super) fn tokens(script: &str) -> impl Iterator<Item = &str> {
    script
        .split(|c: char| c.is_whitespace() || "\"'`;|&()<>=,{}!".contains(c))
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| !word.is_empty())
}

fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// The value of the first option in `names` that exists and is a text.
pub(super) fn one_of(args: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| args.get(*name)?.as_str()).map(str::to_owned)
}

/// Collects every text in these options, including those in lists and maps.
pub(super) fn strings(args: &Map<String, Value>, out: &mut Vec<String>) {
    args.values().for_each(|value| text(value, out));
}

fn text(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| text_of(value, out)),
        Value::Object(map) => strings(map, out),
        _ => {}
    }
}

fn text_of(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Number(number) => out.push(number.to_string()),
        other => text(other, out),
    }
}
