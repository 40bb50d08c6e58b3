//! The `dnf` and `yum` modules. Each module uses the program of the other one if its own program is
//! not installed. Both query rpm first, and call the package manager only for differences.

use super::apt::is_package_name;
use super::{ModuleCall, ModuleResult, TaskOutcome, failure_message};
use crate::os::process::Finished;
use serde_json::json;
use std::path::Path;

/// Options that become flags: the flag for `yes` and the flag for `no`.
const FLAGS: [(&str, Option<&str>, Option<&str>); 12] = [
    ("allowerasing", Some("--allowerasing"), None),
    ("best", Some("--best"), Some("--nobest")),
    ("bugfix", Some("--bugfix"), None),
    ("cacheonly", Some("--cacheonly"), None),
    ("disable_gpg_check", Some("--nogpgcheck"), None),
    ("download_only", Some("--downloadonly"), None),
    ("install_weak_deps", Some("--setopt=install_weak_deps=True"), Some("--setopt=install_weak_deps=False")),
    ("nobest", Some("--nobest"), Some("--best")),
    ("security", Some("--security"), None),
    ("skip_broken", Some("--skip-broken"), None),
    ("sslverify", None, Some("--setopt=sslverify=False")),
    ("validate_certs", None, Some("--setopt=sslverify=False")),
];
/// Options whose values are passed to the program.
const VALUES: [(&str, &str); 9] = [
    ("conf_file", "--config="),
    ("disable_excludes", "--disableexcludes="),
    ("disable_plugin", "--disableplugin="),
    ("disablerepo", "--disablerepo="),
    ("download_dir", "--downloaddir="),
    ("enable_plugin", "--enableplugin="),
    ("enablerepo", "--enablerepo="),
    ("exclude", "--exclude="),
    ("releasever", "--releasever="),
];

pub fn dnf(call: &mut ModuleCall) -> ModuleResult {
    let there = |program: &&&str| ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
    let on_path = call.env.iter().any(|(name, _)| name == "PATH");
    let asked: &[&str] = if call.task.module == "yum" { &["yum", "dnf"] } else { &["dnf", "yum"] };
    let Some(program) = asked.iter().find(there).or(asked.first().filter(|_| on_path)) else {
        return Err("this node has neither dnf nor yum; use `package`".into());
    };
    call.env.push(("LC_ALL".into(), "C".into()));
    let names = call.list(&["name", "pkg"]);
    if let Some(bad) = names.iter().find(|name| !is_package_name(name)) {
        return Err(format!("`{bad}` is not a valid package name"));
    }
    let state = call.text(&["state"]);
    let autoremove = call.flag("autoremove", false);
    let state = state.unwrap_or_else(|| if autoremove { "absent" } else { "present" }.into());
    let mut base = vec![(*program).to_owned(), "-y".to_owned(), "-q".to_owned()];
    for (name, yes, no) in FLAGS {
        let flag = call.given_flag(name).and_then(|on| if on { yes } else { no });
        base.extend(flag.map(str::to_owned));
    }
    for (name, flag) in VALUES {
        base.extend(call.list(&[name]).into_iter().map(|value| format!("{flag}{value}")));
    }
    if call.flag("update_cache", false) {
        let argv = [base.clone(), vec!["makecache".into()]].concat();
        run(call, &argv, &[])?;
    }
    let all = names.iter().any(|n| n == "*");
    let mut todo: Vec<String> = Vec::new();
    for name in names.iter().filter(|n| *n != "*") {
        let group = name.starts_with('@') || name.contains("://") || name.ends_with(".rpm");
        let have = if group { None } else { installed_version(call, name)? };
        let differs = match state.as_str() {
            "present" | "installed" => have.is_none(),
            "latest" => have.is_none() || has_update(call, program, name)?,
            "absent" | "removed" => group || have.is_some(),
            other => return Err(format!("`{other}` is not a valid package state")),
        };
        let update_only = call.flag("update_only", false) && state == "latest" && have.is_none();
        if differs && !update_only {
            todo.push(name.clone());
        }
    }
    let verb = match state.as_str() {
        "absent" | "removed" if autoremove && todo.is_empty() => "autoremove",
        "absent" | "removed" => "remove",
        _ if all => "upgrade",
        "latest" if call.flag("update_only", false) => "upgrade",
        // `dnf install` with an explicit version also downgrades.
        _ => "install",
    };
    if todo.is_empty() && !(all && verb == "upgrade") && verb != "autoremove" {
        return Ok(add_results(TaskOutcome::ok("Nothing to do"), &[]));
    }
    let argv = [base, vec![verb.to_owned()], todo.clone()].concat();
    let done = run(call, &argv, &todo)?;
    let quiet = done.stdout.contains("Nothing to do") || todo.is_empty() && done.stdout.trim().is_empty();
    let changed = !quiet || call.ground.node.is_check_mode();
    let out = TaskOutcome {
        changed,
        msg: format!("{verb}: {}", todo.join(" ")),
        rc: done.rc,
        output: Some(done),
        ..TaskOutcome::default()
    };
    Ok(add_results(out, &todo))
}

fn add_results(mut out: TaskOutcome, done: &[String]) -> TaskOutcome {
    out.extra_keys.insert("results".into(), json!(done));
    out.rc = out.rc.or(Some(0));
    out
}

fn run(call: &mut ModuleCall, argv: &[String], names: &[String]) -> Result<Finished, String> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let gone = argv.iter().any(|a| a == "remove");
    let done = call.run_or_predict(&words, |would| {
        names.iter().for_each(|name| would.set_package(name, (!gone).then(String::new)));
        // Packages may install files, units and users that cannot be predicted.
        would.mark_unknown();
    })?;
    if done.success() { Ok(done) } else { Err(failure_message(&argv[0], &done)) }
}

/// The installed version of a package. None: it is not installed.
fn installed_version(call: &ModuleCall, name: &str) -> Result<Option<String>, String> {
    if let Some(would) = call.ground.node.predicted_state().and_then(|would| would.package(name)) {
        return Ok(would);
    }
    let done = call.run_quietly(&["rpm", "-q", "--whatprovides", "--queryformat", "%{EVR}\n", "--", name])?;
    Ok(done.success().then(|| done.stdout.lines().next().unwrap_or_default().to_owned()))
}

fn has_update(call: &ModuleCall, program: &str, name: &str) -> Result<bool, String> {
    // `check-update` exits with 100 if an update is available.
    Ok(call.run_quietly(&[program, "-q", "check-update", name])?.rc == Some(100))
}
