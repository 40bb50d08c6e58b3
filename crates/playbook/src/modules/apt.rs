//! The `apt` module. It queries dpkg first and calls apt-get only for differences. In check mode
//! apt-get simulates the same change.

use super::{ModuleCall, ModuleResult, TaskOutcome, failure_message};
use crate::os::process::Finished;
use globset::GlobBuilder;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of packages that one wildcard may match.
const MATCHES_MAX: usize = 5_000;

/// Debian's name of this machine's architecture. None: remoor is not built for this architecture.
const NATIVE: Option<&str> = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => Some("amd64"),
    b"aarch64" => Some("arm64"),
    _ => None,
};

/// One package that the option `name` lists.
struct PackageSpec {
    /// The package specification as apt-get expects it.
    spec: String,
    /// The package name without version and release. It keeps its architecture, as in `libc6:i386`.
    name: String,
    version: Option<String>,
}

impl PackageSpec {
    fn parse(word: &str) -> Self {
        let (name, version) = match word.split_once('=') {
            Some((name, version)) => (name, Some(version.trim_start_matches('=').to_owned())),
            None => (word, None),
        };
        let plain = name.split('/').next().unwrap_or(name).to_owned();
        let spec = version.as_ref().map_or_else(|| word.to_owned(), |v| format!("{name}={v}"));
        Self { spec, name: plain, version }
    }
}

/// Whether a text can be the name of a package. It then is no option of the package manager.
pub(super) fn is_package_name(name: &str) -> bool {
    !name.starts_with('-') && !name.contains(char::is_whitespace)
}

pub fn apt(call: &mut ModuleCall) -> ModuleResult {
    call.env.extend([("DEBIAN_FRONTEND".into(), "noninteractive".into()), ("LC_ALL".into(), "C".into())]);
    let mut names = call.list(&["name", "pkg", "package"]);
    if let Some(bad) = names.iter().find(|name| !is_package_name(name)) {
        return Err(format!("`{bad}` is not a valid package name"));
    }
    let mut told = CacheUpdate::default();
    if call.flag("clean", false) {
        let done = change(call, &base(call)?, &["clean"], &[])?;
        return Ok(told.answer(apt_outcome("clean", true, done)));
    }
    if call.flag("update_cache", call.flag("update-cache", false)) || call.args.contains_key("cache_valid_time") {
        told.updated = update_cache(call)?;
    }
    told.time = cache_update_time();
    let mut out = TaskOutcome::default();
    if let Some(path) = call.text(&["deb"]) {
        return Ok(told.answer(install_deb_file(call, &path)?));
    }
    let mut upgrade = call.text(&["upgrade"]).filter(|u| !matches!(u.to_ascii_lowercase().as_str(), "no" | "false"));
    let state = call.text(&["state"]).unwrap_or_else(|| "present".into());
    if names.iter().any(|n| n == "*") {
        if state != "latest" {
            return Err("`*` requires `state: latest`, which upgrades all packages".into());
        }
        names.retain(|n| n != "*");
        upgrade = upgrade.or(Some("yes".into()));
    }
    if let Some(how) = upgrade {
        let verb: &[&str] = match how.to_ascii_lowercase().as_str() {
            "yes" | "true" | "safe" => &["upgrade", "--with-new-pkgs"],
            "full" | "dist" => &["dist-upgrade"],
            other => return Err(format!("`{other}` is not a valid value of `upgrade`")),
        };
        let mut argv = base(call)?;
        argv.extend(call.flag("autoremove", false).then(|| "--auto-remove".into()));
        let done = change(call, &argv, verb, &[])?;
        let any = reports_change(&done);
        out = apt_outcome("upgrade", any, done);
        if out.failed || names.is_empty() {
            return Ok(told.answer(out));
        }
    }
    let wanted = expand_wildcards(call, &names, &state)?;
    let packages = ensure_packages(call, &state, &wanted)?;
    let changed = out.changed;
    out = packages;
    out.changed |= changed;
    if names.is_empty() && call.flag("autoclean", false) {
        let done = change(call, &base(call)?, &["autoclean"], &[])?;
        let any = done.stdout.lines().any(|l| l.starts_with("Del "));
        out = apt_outcome("autoclean", any, done);
    }
    if told.updated && !out.changed && names.is_empty() {
        // Ansible reports an update of the package lists as a change if no package was requested.
        out.changed = true;
        out.msg = "package lists updated".into();
    }
    Ok(told.answer(out))
}

/// What an update of the package lists did.
#[derive(Default)]
struct CacheUpdate {
    updated: bool,
    time: u64,
}

impl CacheUpdate {
    fn answer(self, mut out: TaskOutcome) -> TaskOutcome {
        out.extra_keys.insert("cache_updated".into(), json!(self.updated));
        out.extra_keys.insert("cache_update_time".into(), json!(self.time));
        out
    }
}

/// Brings the packages to `state`: calls apt-get only for packages that differ.
fn ensure_packages(call: &mut ModuleCall, state: &str, wanted: &[PackageSpec]) -> ModuleResult {
    let installed = query_installed(call, wanted)?;
    let have = |w: &PackageSpec| installed.get(&w.name);
    let words =
        |keep: &dyn Fn(&&PackageSpec) -> bool| wanted.iter().filter(keep).map(|w| w.spec.clone()).collect::<Vec<_>>();
    let only_upgrade = call.flag("only_upgrade", false);
    let is_there = |w: &PackageSpec| have(w).is_some_and(|(installed, _)| *installed);
    let (verb, todo) = match state {
        "present" | "installed" => {
            let differs = |w: &&PackageSpec| match (&w.version, have(w)) {
                (_, None | Some((false, _))) => !only_upgrade,
                (Some(want), Some((_, version))) => !matches_version(want, version),
                (None, Some(_)) => false,
            };
            ("install", words(&differs))
        }
        "latest" => {
            let candidates = candidates(call, wanted)?;
            let differs = |w: &&PackageSpec| match have(w) {
                Some((true, version)) => match &w.version {
                    Some(want) => !matches_version(want, version),
                    None => candidates.get(&w.name).is_some_and(|c| c != version && c != "(none)"),
                },
                _ => !only_upgrade,
            };
            ("install", words(&differs))
        }
        "absent" | "removed" => {
            let purge = call.flag("purge", false);
            // dpkg still has the configuration of a package that was removed but not purged.
            let there = |w: &&PackageSpec| is_there(w) || purge && have(w).is_some();
            let names = wanted.iter().filter(there).map(|w| w.name.clone()).collect();
            (if purge { "purge" } else { "remove" }, names)
        }
        "build-dep" => ("build-dep", words(&|_| true)),
        "fixed" => ("--fix-broken", words(&|_| true)),
        other => return Err(format!("`{other}` is not a valid package state")),
    };
    let autoremove = call.flag("autoremove", false) && (wanted.is_empty() || verb != "install");
    if todo.is_empty() && verb != "--fix-broken" && !(autoremove && wanted.is_empty()) {
        return Ok(TaskOutcome::default());
    }
    let mut argv = base(call)?;
    if autoremove {
        argv.push("--auto-remove".into());
    }
    let verbs: &[&str] = match verb {
        "--fix-broken" => &["--fix-broken", "install"],
        "install" | "remove" | "purge" if todo.is_empty() => &["autoremove"],
        "purge" => &["purge"],
        "remove" => &["remove"],
        "build-dep" => &["build-dep"],
        _ => &["install"],
    };
    let done = change(call, &argv, verbs, &todo)?;
    let any = match verb {
        "install" | "remove" | "purge" => !todo.is_empty() || reports_change(&done),
        _ => reports_change(&done),
    };
    Ok(apt_outcome(&format!("{verb}: {}", todo.join(" ")), any, done))
}

/// The outcome of an apt-get command. `changed` counts only if the command succeeded.
fn apt_outcome(what: &str, changed: bool, done: Finished) -> TaskOutcome {
    let failed = !done.success();
    TaskOutcome {
        changed: changed && !failed,
        failed,
        msg: if failed {
            missing_package(&done).unwrap_or_else(|| failure_message(&format!("apt-get {what}"), &done))
        } else {
            what.trim_end_matches(": ").to_owned()
        },
        rc: done.rc,
        output: Some(done),
        ..TaskOutcome::default()
    }
}

/// The message about a package that no repository has. Playbooks compare the words of Ansible.
fn missing_package(done: &Finished) -> Option<String> {
    let mut lines = done.stdout.lines().chain(done.stderr.lines());
    let name = lines.find_map(|line| line.strip_prefix("E: Unable to locate package "))?;
    Some(format!("No package matching '{}' is available", name.trim()))
}

/// The `apt-get` command line with the flags for all options of the task.
fn base(call: &ModuleCall) -> Result<Vec<String>, String> {
    let mut argv = vec!["apt-get".to_owned(), "-y".to_owned(), "-q".to_owned()];
    let mut set = |value: String| argv.extend(["-o".to_owned(), value]);
    set(format!("DPkg::Lock::Timeout={}", call.seconds("lock_timeout", 60.0)?.as_secs()));
    let dpkg = call.text(&["dpkg_options"]).unwrap_or_else(|| "force-confdef,force-confold".into());
    for option in dpkg.split(',').map(str::trim).filter(|o| !o.is_empty()) {
        set(format!("Dpkg::Options::=--{option}"));
    }
    match call.given_flag("install_recommends").or(call.given_flag("install-recommends")) {
        Some(true) => set("APT::Install-Recommends=yes".into()),
        Some(false) => set("APT::Install-Recommends=no".into()),
        None => {}
    }
    if let Some(release) = call.text(&["default_release", "default-release"]) {
        argv.extend(["-t".to_owned(), release]);
    }
    for (option, flag) in [
        ("allow_downgrade", "--allow-downgrades"),
        ("allow-downgrade", "--allow-downgrades"),
        ("allow_downgrades", "--allow-downgrades"),
        ("allow_unauthenticated", "--allow-unauthenticated"),
        ("allow-unauthenticated", "--allow-unauthenticated"),
        ("allow_change_held_packages", "--allow-change-held-packages"),
        ("fail_on_autoremove", "--no-remove"),
        ("only_upgrade", "--only-upgrade"),
        ("force", "--force-yes"),
    ] {
        if call.flag(option, false) {
            argv.push(flag.to_owned());
        }
    }
    Ok(argv)
}

/// Runs apt-get. In check mode apt-get only simulates, and the packages that it would install or
/// remove are recorded in the predicted state.
fn change(call: &mut ModuleCall, base: &[String], verb: &[&str], names: &[String]) -> Result<Finished, String> {
    let mut argv: Vec<&str> = base.iter().map(String::as_str).collect();
    let simulated = call.ground.node.is_check_mode();
    if simulated {
        argv.push("-s");
    }
    argv.extend(verb);
    if !names.is_empty() {
        argv.push("--");
        argv.extend(names.iter().map(String::as_str));
    }
    if !simulated {
        return call.run_or_predict(&argv, |_| {});
    }
    if matches!(verb, ["clean" | "autoclean"]) {
        return Ok(Finished { rc: Some(0), ..Finished::default() });
    }
    let done = call.run_quietly(&argv)?;
    if !done.success() {
        // A real run may succeed where check mode fails, because an earlier task may update the
        // package lists or add a repository.
        let message = missing_package(&done).unwrap_or_else(|| failure_message("apt-get -s", &done));
        call.ground.node.note_missing(message.clone());
        return Err(message);
    }
    if let Some(would) = call.ground.node.predicted_state_mut() {
        for line in done.stdout.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("Inst"), Some(name)) => {
                    let version = line.split(['(', ' ']).find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
                    would.set_package(name, Some(version.unwrap_or_default().to_owned()));
                    // A package may install files, units and users that cannot be predicted.
                    would.mark_unknown();
                }
                (Some("Remv" | "Purg"), Some(name)) => would.set_package(name, None),
                _ => {}
            }
        }
    }
    Ok(done)
}

/// Whether the summary line of apt-get reports a change, made or simulated. An output without this
/// line counts as a change.
fn reports_change(done: &Finished) -> bool {
    let counts = |l: &&str| l.contains(" upgraded, ") && l.contains(" newly installed, ");
    let line = done.stdout.lines().find(counts);
    !line.is_some_and(|l| l.starts_with("0 upgraded, 0 newly installed, 0 to remove"))
}

/// Installs a package file that is on the node.
fn install_deb_file(call: &mut ModuleCall, path: &str) -> ModuleResult {
    if path.contains("://") {
        return Err("`deb` must be a file on the node; download it first with get_url".into());
    }
    let file = Path::new(path);
    let there = call.ground.node.follow(file).is_some();
    if call.depends_on_skipped_command(file) || there && !file.exists() {
        return Ok(TaskOutcome::indeterminate(format!("{path} does not exist yet, so its package is unknown")));
    }
    if !there {
        return Err(call.ground.node.note_missing(format!("{path} does not exist")));
    }
    let real = std::fs::canonicalize(file).map_err(|e| format!("{path}: {e}"))?.display().to_string();
    let done = call.run_quietly(&["dpkg-deb", "--field", &real, "Package", "Version"])?;
    let field =
        |name: &str| done.stdout.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned);
    let (Some(name), Some(version)) = (field("Package"), field("Version")) else {
        return Err(failure_message(&format!("{path} is not a Debian package"), &done));
    };
    let wanted = [PackageSpec { spec: name.clone(), name: name.clone(), version: None }];
    if let Some((true, have)) = query_installed(call, &wanted)?.get(&name) {
        let older = call.run_quietly(&["dpkg", "--compare-versions", &version, "lt", have])?.success();
        let downgrades =
            ["allow_downgrade", "allow-downgrade", "allow_downgrades", "force"].iter().any(|o| call.flag(o, false));
        if *have == version || older && !downgrades {
            return Ok(TaskOutcome::ok(format!("{name} {have} is installed")));
        }
    }
    let base = base(call)?;
    let done = change(call, &base, &["install"], &[real])?;
    Ok(apt_outcome(&format!("install: {name} {version}"), true, done))
}

/// Replaces names with wildcards by the matching packages: installed packages for removal,
/// otherwise all packages that are available.
fn expand_wildcards(call: &ModuleCall, names: &[String], state: &str) -> Result<Vec<PackageSpec>, String> {
    let wild = |n: &str| n.split('=').next().unwrap_or(n).contains(['*', '?', '[']);
    if !names.iter().any(|n| wild(n)) {
        return Ok(names.iter().map(|n| PackageSpec::parse(n)).collect());
    }
    let argv: &[&str] = match state {
        "absent" | "removed" => &["dpkg-query", "-W", "-f", "${Package}\n"],
        _ => &["apt-cache", "pkgnames"],
    };
    let done = call.run_quietly(argv)?;
    let mut out = Vec::new();
    for name in names {
        if !wild(name) {
            out.push(PackageSpec::parse(name));
            continue;
        }
        let (pattern, version) = name.split_once('=').map_or((name.as_str(), ""), |(p, v)| (p, v));
        let glob = GlobBuilder::new(pattern).build().map_err(|e| e.to_string())?.compile_matcher();
        let mut matches: Vec<&str> = done.stdout.lines().filter(|l| glob.is_match(l)).collect();
        matches.sort_unstable();
        matches.dedup();
        if matches.len() > MATCHES_MAX {
            return Err(format!("`{name}` matches {} packages; the maximum is {MATCHES_MAX}", matches.len()));
        }
        if matches.is_empty() && !matches!(state, "absent" | "removed") {
            return Err(call.ground.node.note_missing(format!("no package matches `{name}`")));
        }
        out.extend(matches.into_iter().map(|n| match version {
            "" => PackageSpec::parse(n),
            version => PackageSpec::parse(&format!("{n}={version}")),
        }));
    }
    Ok(out)
}

/// Whether an installed version matches a wanted version, which may be a glob such as `1.2*`.
fn matches_version(want: &str, version: &str) -> bool {
    match want.contains(['*', '?', '[']) {
        true => GlobBuilder::new(want).build().is_ok_and(|g| g.compile_matcher().is_match(version)),
        false => version == want,
    }
}

/// For each wanted package that dpkg knows: whether it is installed, and its version. In check mode
/// the predicted state takes precedence.
fn query_installed(call: &ModuleCall, wanted: &[PackageSpec]) -> Result<BTreeMap<String, (bool, String)>, String> {
    let mut out = BTreeMap::new();
    if wanted.is_empty() {
        return Ok(out);
    }
    let mut argv =
        vec!["dpkg-query", "-W", "-f", "${Package}\\t${Architecture}\\t${db:Status-Status}\\t${Version}\\n", "--"];
    argv.extend(wanted.iter().map(|w| w.name.as_str()));
    // dpkg-query fails if it does not know one of the packages, but it prints the others.
    let done = call.run_quietly(&argv)?;
    for line in done.stdout.lines() {
        let mut parts = line.split('\t');
        let (Some(name), Some(architecture)) = (parts.next(), parts.next()) else { continue };
        let (Some(status), Some(version)) = (parts.next(), parts.next()) else { continue };
        if status == "not-installed" {
            continue;
        }
        let found = (status == "installed", version.to_owned());
        // A name without an architecture never stands for a package of a foreign architecture.
        if architecture == "all" || NATIVE.is_none_or(|native| native == architecture) {
            out.insert(name.to_owned(), found.clone());
        }
        out.insert(format!("{name}:{architecture}"), found);
    }
    for w in wanted {
        match call.ground.node.predicted_state().and_then(|would| would.package(&w.name)) {
            Some(Some(version)) => drop(out.insert(w.name.clone(), (true, version))),
            Some(None) => drop(out.remove(&w.name)),
            None => {}
        }
    }
    Ok(out)
}

/// The version that apt would install, by package name.
fn candidates(call: &ModuleCall, wanted: &[PackageSpec]) -> Result<BTreeMap<String, String>, String> {
    let mut out = BTreeMap::new();
    if wanted.is_empty() {
        return Ok(out);
    }
    let mut argv = vec!["apt-cache", "policy", "--"];
    argv.extend(wanted.iter().map(|w| w.name.as_str()));
    let done = call.run_quietly(&argv)?;
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

/// Time of the last update of the package lists, in seconds since 1970. 0: never.
fn cache_update_time() -> u64 {
    let paths = ["/var/lib/apt/periodic/update-success-stamp", "/var/lib/apt/lists"];
    let times = paths.iter().filter_map(|p| std::fs::metadata(p).ok()?.modified().ok());
    times.filter_map(|t| t.duration_since(UNIX_EPOCH).ok()).map(|d| d.as_secs()).max().unwrap_or(0)
}

/// Updates the package lists unless they are younger than `cache_valid_time`. Returns whether they
/// have changed, or might change in check mode.
pub(super) fn update_cache(call: &mut ModuleCall) -> Result<bool, String> {
    let valid = call.seconds("cache_valid_time", 0.0)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    if now.saturating_sub(cache_update_time()) < valid.as_secs() {
        return Ok(false);
    }
    let lock = format!("DPkg::Lock::Timeout={}", call.seconds("lock_timeout", 60.0)?.as_secs());
    let retries = call.seconds("update_cache_retries", 5.0)?.as_secs().clamp(1, 100);
    let longest = call.seconds("update_cache_retry_max_delay", 12.0)?;
    let before = cache_update_time();
    for attempt in 1.. {
        // After the update, packages may be available that the present lists do not contain. So
        // check mode cannot know what later tasks would find.
        // By default, apt-get succeeds although a repository cannot be reached.
        let strict = "APT::Update::Error-Mode=any";
        let argv = ["apt-get", "-q", "-o", &lock, "-o", strict, "update"];
        let done = call.run_or_predict(&argv, |would| would.mark_unknown())?;
        if done.success() {
            break;
        }
        if attempt >= retries || done.cancelled || done.timed_out || call.cancel.is_stopped() {
            return Err(failure_message("apt-get update", &done));
        }
        let pause = Duration::from_secs(1 << attempt.min(10)).min(longest);
        if !super::wait_for::interruptible_sleep(call, pause) {
            return Err("cancelled".into());
        }
    }
    Ok(call.ground.node.is_check_mode() || cache_update_time() != before)
}
