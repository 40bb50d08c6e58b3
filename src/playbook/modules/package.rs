//! `apt` and `package`: asks dpkg first, and calls apt-get only for what differs.

use super::{Answer, Call, Outcome, complaint};
use crate::playbook::version;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

pub fn package(call: &mut Call) -> Answer {
    if !std::path::Path::new("/usr/bin/apt-get").exists() {
        return Err("only apt is known on this node; use provisioner kind: ansible".into());
    }
    apt(call)
}

pub fn apt(call: &mut Call) -> Answer {
    call.env.extend([("DEBIAN_FRONTEND".into(), "noninteractive".into()), ("LC_ALL".into(), "C".into())]);
    let names = call.list(&["name", "pkg", "package"]);
    if let Some(bad) = names.iter().find(|n| n.starts_with('-') || n.contains(char::is_whitespace)) {
        return Err(format!("`{bad}` is no name of a package"));
    }
    let state = call.text(&["state"]).unwrap_or_else(|| "present".into());
    let updated = call.flag("update_cache", false) && update(call)?;
    if names.iter().any(|n| n == "*") {
        return Err("upgrading everything is not part of the language; use provisioner kind: ansible".into());
    }
    let installed = query(call, &names)?;
    let have = |name: &str| installed.get(plain(name));
    let mut todo: Vec<String> = Vec::new();
    let verb = match state.as_str() {
        "present" | "installed" => {
            todo.extend(
                names
                    .iter()
                    .filter(|n| match (n.split_once('='), have(n)) {
                        (_, None) => true,
                        (Some((_, want)), Some((_, version))) => !fits(want, version),
                        (None, Some((installed, _))) => !installed,
                    })
                    .cloned(),
            );
            "install"
        }
        "latest" => {
            let candidates = candidates(call, &names)?;
            todo.extend(
                names
                    .iter()
                    .filter(|n| match have(n) {
                        Some((true, version)) => {
                            candidates.get(plain(n)).is_some_and(|c| c != version && c != "(none)")
                        }
                        _ => true,
                    })
                    .cloned(),
            );
            "install"
        }
        "absent" | "removed" => {
            let purge = call.flag("purge", false);
            // Removed but not purged: dpkg still knows its configuration.
            todo.extend(names.iter().filter(|n| have(n).is_some_and(|(installed, _)| *installed || purge)).cloned());
            if purge { "purge" } else { "remove" }
        }
        other => return Err(format!("`{other}` is no state of a package")),
    };
    let autoremove = call.flag("autoremove", false) && (names.is_empty() || verb != "install");
    if todo.is_empty() && !(autoremove && names.is_empty()) {
        return Ok(Outcome {
            changed: false,
            msg: if updated { "package lists updated" } else { "" }.into(),
            ..Outcome::default()
        });
    }
    let lock = format!("DPkg::Lock::Timeout={}", call.seconds("lock_timeout", 60.0)?.as_secs());
    let mut argv: Vec<&str> = vec![
        "apt-get",
        "-y",
        "-q",
        "-o",
        &lock,
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
    ];
    match call.given_flag("install_recommends") {
        Some(true) => argv.extend(["-o", "APT::Install-Recommends=yes"]),
        Some(false) => argv.extend(["-o", "APT::Install-Recommends=no"]),
        None => {}
    }
    let release = call.text(&["default_release"]);
    if let Some(release) = &release {
        argv.extend(["-t", release]);
    }
    if autoremove {
        argv.push("--auto-remove");
    }
    if call.flag("allow_downgrade", false) {
        argv.push("--allow-downgrades");
    }
    argv.push(if todo.is_empty() { "autoremove" } else { verb });
    argv.push("--");
    argv.extend(todo.iter().map(String::as_str));
    let done = call.loud(&argv)?;
    if !done.success() {
        let failed = Outcome {
            failed: true,
            msg: complaint(&format!("apt-get {verb}"), &done),
            rc: done.rc,
            ..Outcome::default()
        };
        return Ok(Outcome { output: Some(done), ..failed });
    }
    let quiet = todo.is_empty() && done.stdout.contains("0 to remove");
    Ok(Outcome {
        changed: !quiet,
        msg: format!("{verb}: {}", todo.join(" ")),
        rc: done.rc,
        output: Some(done),
        ..Outcome::default()
    })
}

/// `name`, without architecture and version.
fn plain(name: &str) -> &str {
    name.split(['=', ':', '/']).next().unwrap_or(name)
}

/// `1.2*` or a version.
fn fits(want: &str, version: &str) -> bool {
    match want.strip_suffix('*') {
        Some(start) => version.starts_with(start),
        None => want == version || version::compare(want, version).is_eq() && want.len() == version.len(),
    }
}

/// Package to (installed, version), for those that dpkg knows.
fn query(call: &Call, names: &[String]) -> Result<BTreeMap<String, (bool, String)>, String> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut argv = vec!["dpkg-query", "-W", "-f", "${Package}\t${db:Status-Status}\t${Version}\n", "--"];
    argv.extend(names.iter().map(|n| plain(n)));
    // It ends with 1 when one of them is unknown; what it says of the others holds.
    let done = call.quiet(&argv)?;
    if done.rc.is_none_or(|rc| rc > 1) {
        return Err(complaint("dpkg-query", &done));
    }
    let mut out = BTreeMap::new();
    for line in done.stdout.lines() {
        let mut parts = line.split('\t');
        if let (Some(name), Some(status), Some(version)) = (parts.next(), parts.next(), parts.next())
            && status != "not-installed"
        {
            out.insert(name.to_owned(), (status == "installed", version.to_owned()));
        }
    }
    Ok(out)
}

fn candidates(call: &Call, names: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut argv = vec!["apt-cache", "policy", "--"];
    argv.extend(names.iter().map(|n| plain(n)));
    let done = call.quiet(&argv)?;
    let mut out = BTreeMap::new();
    let mut current = String::new();
    for line in done.stdout.lines() {
        if !line.starts_with(' ') {
            current = line.trim_end_matches(':').to_owned();
        } else if let Some(version) = line.trim().strip_prefix("Candidate:") {
            out.insert(current.clone(), version.trim().to_owned());
        }
    }
    Ok(out)
}

/// Fetches the package lists unless they are younger than `cache_valid_time`; whether it did.
fn update(call: &mut Call) -> Result<bool, String> {
    let valid = call.seconds("cache_valid_time", 0.0)?;
    let stamp = ["/var/lib/apt/periodic/update-success-stamp", "/var/lib/apt/lists"]
        .iter()
        .filter_map(|p| std::fs::metadata(p).ok()?.modified().ok())
        .max();
    let age = stamp.and_then(|s| SystemTime::now().duration_since(s).ok()).unwrap_or(Duration::MAX);
    if age < valid {
        return Ok(false);
    }
    let done = call.loud(&["apt-get", "-q", "-o", "DPkg::Lock::Timeout=60", "update"])?;
    if done.success() { Ok(true) } else { Err(complaint("apt-get update", &done)) }
}
