//! The `user` and `group` modules. They call the system's own tools, and only if something differs.

use super::{ModuleCall, ModuleResult, TaskOutcome, require_success, user_secrets};
use crate::node::PredictedState;
use crate::os::atomic_fs::Attributes;
use crate::vars::unknown;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

pub fn group(call: &mut ModuleCall) -> ModuleResult {
    let name = name(call)?;
    let now = call.ground.node.group(&name).filter(|e| e[0] == name);
    let gid = call.text(&["gid"]);
    let system = call.flag("system", false);
    let mut argv: Vec<String> = Vec::new();
    match (call.text(&["state"]).as_deref() == Some("absent"), now) {
        (true, None) => {}
        (true, Some(_)) => {
            argv.push("groupdel".into());
            argv.extend(call.flag("force", false).then(|| "--force".into()));
        }
        (false, None) => {
            argv.push("groupadd".into());
            argv.extend(system.then(|| "--system".into()));
            argv.extend(bounds(call, &["gid_min", "gid_max"]));
            argv.extend(unique(call, gid.is_some()));
            argv.extend(gid.into_iter().flat_map(|g| ["--gid".into(), g]));
        }
        (false, Some(entry)) => {
            if let Some(gid) = gid.filter(|g| *g != entry[2]) {
                argv.push("groupmod".into());
                argv.extend(unique(call, true));
                argv.extend(["--gid".into(), gid]);
            }
        }
    }
    finish(call, argv, name)
}

/// The `--key` arguments that set values of `/etc/login.defs`, for those `options` that the task
/// sets.
fn bounds(call: &ModuleCall, options: &[&str]) -> Vec<String> {
    let given = options.iter().filter_map(|o| Some(format!("{}={}", o.to_uppercase(), call.text(&[o])?)));
    given.flat_map(|bound| ["--key".to_owned(), bound]).collect()
}

/// `--non-unique` if the task sets an id and permits an id that is already in use.
fn unique(call: &ModuleCall, numbered: bool) -> Option<String> {
    (numbered && call.flag("non_unique", false)).then(|| "--non-unique".to_owned())
}

pub fn user(call: &mut ModuleCall) -> ModuleResult {
    let mut out = entry(call)?;
    if call.text(&["state"]).as_deref() != Some("absent") {
        let created = out.extra_keys.remove("created").is_some();
        user_secrets::set_password(call, created, &mut out)?;
        if call.flag("generate_ssh_key", false) {
            user_secrets::create_ssh_key(call, &mut out)?;
        }
    }
    Ok(out)
}

/// Sets the fields of the user's passwd entry and the user's group memberships.
fn entry(call: &mut ModuleCall) -> ModuleResult {
    let name = name(call)?;
    let now = call.ground.node.user(&name).filter(|e| e[0] == name);
    if call.text(&["state"]).as_deref() == Some("absent") {
        let mut argv = Vec::new();
        if now.is_some() {
            argv.push("userdel".to_owned());
            argv.extend(call.flag("force", false).then(|| "--force".into()));
            argv.extend(call.flag("remove", false).then(|| "--remove".into()));
        }
        let existed = now.is_some();
        let mut out = finish(call, argv, name)?;
        if existed {
            add_options(call, &mut out, &[("force", false), ("remove", false)]);
        }
        return Ok(out);
    }
    let expires = user_secrets::expiry_change(call, &name)?;
    let primary = call.text(&["group"]).map(|g| call.ground.node.gid(&g).map(|gid| (g, gid))).transpose()?;
    let groups: Option<BTreeSet<String>> =
        call.args.get("groups").map(|_| call.list(&["groups"]).into_iter().collect());
    let mut flags: Vec<String> = Vec::new();
    let mut set = |option: &str, value: Option<String>, current: Option<&str>| {
        if let Some(value) = value.filter(|v| Some(v.as_str()) != current) {
            flags.extend([option.to_owned(), value]);
        }
    };
    let field = |i: usize| now.as_ref().map(|e| e[i].as_str());
    set("--uid", call.text(&["uid"]), field(2));
    let gid_differs = primary.as_ref().is_some_and(|(_, gid)| field(3) != Some(gid.to_string().as_str()));
    set("--gid", primary.map(|(g, _)| g).filter(|_| gid_differs), None);
    set("--comment", call.text(&["comment"]), field(4));
    set("--home", call.text(&["home"]), field(5));
    set("--shell", call.text(&["shell"]), field(6));
    set("--expiredate", expires, None);
    if let Some(at) = flags.iter().position(|flag| flag == "--uid") {
        unique(call, true).into_iter().for_each(|flag| flags.insert(at, flag));
    }
    let Some(_) = &now else {
        if let Some(groups) = groups.filter(|g| !g.is_empty()) {
            flags.extend(["--groups".into(), groups.into_iter().collect::<Vec<_>>().join(",")]);
        }
        // useradd refuses a user whose own group exists already. As in Ansible, the user then gets
        // the default group.
        if !flags.iter().any(|flag| flag == "--gid") && call.ground.node.group(&name).is_some_and(|e| e[0] == name) {
            flags.push("--no-user-group".into());
        }
        let home = call.flag("create_home", call.flag("createhome", true));
        flags.push(if home { "--create-home" } else { "--no-create-home" }.into());
        let skeleton = call.text(&["skeleton"]).filter(|_| home);
        flags.extend(skeleton.into_iter().flat_map(|dir| ["--skel".into(), dir]));
        flags.extend(bounds(call, &["umask", "uid_min", "uid_max"]));
        flags.extend(call.flag("system", false).then(|| "--system".into()));
        flags.insert(0, "useradd".into());
        let mut out = finish(call, flags, name.clone())?;
        if home {
            predict_home(call, &name)?;
        }
        out.extra_keys.insert("created".into(), json!(true));
        out.extra_keys.insert("create_home".into(), json!(home));
        add_options(call, &mut out, &[("system", false)]);
        add_groups(call, &mut out);
        return Ok(out);
    };
    if flags.iter().any(|flag| flag == "--home") && call.flag("move_home", false) {
        flags.push("--move-home".into());
    }
    if let Some(want) = groups {
        let have = memberships(call, &name);
        let append = call.flag("append", false);
        if if append { !want.is_subset(&have) } else { want != have } {
            flags.extend(append.then(|| "--append".into()));
            flags.extend(["--groups".into(), want.into_iter().collect::<Vec<_>>().join(",")]);
        }
    }
    if !flags.is_empty() {
        flags.insert(0, "usermod".into());
    }
    let mut out = finish(call, flags, name)?;
    add_options(call, &mut out, &[("append", false), ("move_home", false)]);
    add_groups(call, &mut out);
    Ok(out)
}

/// Adds the values of boolean options to the result, each with its default.
fn add_options(call: &ModuleCall, out: &mut TaskOutcome, options: &[(&str, bool)]) {
    out.extra_keys.extend(options.iter().map(|(name, default)| ((*name).to_owned(), json!(call.flag(name, *default)))));
}

/// Adds the groups of the task to the result, as Ansible's text with commas.
fn add_groups(call: &ModuleCall, out: &mut TaskOutcome) {
    if call.args.get("groups").is_some_and(|groups| !groups.is_null()) {
        out.extra_keys.insert("groups".into(), json!(call.list(&["groups"]).join(",")));
    }
}

/// The name of the user or group. Fails if it contains characters that the tools would misread.
pub fn name(call: &ModuleCall) -> Result<String, String> {
    let name = call.required_text(&["name", "user"])?;
    let good = |c: char| c.is_alphanumeric() || "._-$@".contains(c);
    if name.starts_with('-') || !name.chars().all(good) {
        Err(format!("`{name}` is not a valid name of a user or group"))
    } else {
        Ok(name)
    }
}

/// The supplementary groups of a user by `/etc/group`, corrected by the predicted state in check
/// mode.
fn memberships(call: &ModuleCall, name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let member = |line: &&str| line.rsplit(':').next().is_some_and(|members| members.split(',').any(|m| m == name));
    let mut out: BTreeSet<String> =
        text.lines().filter(member).filter_map(|l| l.split(':').next()).map(str::to_owned).collect();
    for (group, entry) in call.ground.node.predicted_state().into_iter().flat_map(PredictedState::groups) {
        match entry.as_ref().and_then(|e| e.get(3)).is_some_and(|members| members.split(',').any(|m| m == name)) {
            true => drop(out.insert(group.clone())),
            false => drop(out.remove(group)),
        }
    }
    out
}

/// The passwd or group entry after the tool has run. None: the entry is removed.
fn predict_entry(call: &ModuleCall, tool: &str, flags: &[String], name: &str) -> Option<Vec<String>> {
    let given = |flag: &str| flags.iter().position(|f| f == flag).and_then(|at| flags.get(at + 1)).cloned();
    let node = &call.ground.node;
    if tool.ends_with("del") {
        return None;
    }
    if tool.starts_with("group") {
        let old = node.group(name).filter(|e| e[0] == name);
        let old = old.unwrap_or_else(|| vec![name.to_owned(), "x".into(), placeholder_id().to_string(), String::new()]);
        let gid = given("--gid").unwrap_or_else(|| old[2].clone());
        return Some(vec![old[0].clone(), old[1].clone(), gid, old.get(3).cloned().unwrap_or_default()]);
    }
    let fresh = || {
        let id = placeholder_id().to_string();
        let home = Path::new("/home").join(name).display().to_string();
        [name, "x", &id, &id, "", &home, "/bin/sh"].map(str::to_owned).to_vec()
    };
    let mut entry = node.user(name).filter(|e| e[0] == name).unwrap_or_else(fresh);
    for (flag, at) in [("--uid", 2), ("--comment", 4), ("--home", 5), ("--shell", 6)] {
        if let Some(value) = given(flag) {
            entry[at] = value;
        }
    }
    if let Some(gid) = given("--gid").and_then(|g| node.gid(&g).ok()) {
        entry[3] = gid.to_string();
    } else if flags.iter().any(|flag| flag == "--no-user-group") {
        entry[3] = DEFAULT_GID.to_owned();
    }
    Some(entry)
}

/// The changed entries of the groups that a call of the tool affects: it adds the user to them or
/// removes the user from them.
fn predict_group_entries(call: &ModuleCall, argv: &[String], name: &str) -> Vec<Vec<String>> {
    let Some(wanted) = argv.iter().position(|a| a == "--groups").and_then(|at| argv.get(at + 1)) else {
        return Vec::new();
    };
    let wanted: BTreeSet<String> = wanted.split(',').filter(|g| !g.is_empty()).map(str::to_owned).collect();
    let left = if argv.iter().any(|a| a == "--append") { BTreeSet::new() } else { memberships(call, name) };
    let lines = wanted.union(&left).filter_map(|g| call.ground.node.group(g)).filter(|e| e.len() > 3);
    lines
        .map(|mut entry| {
            let mut members: Vec<&str> = entry[3].split(',').filter(|m| !m.is_empty() && *m != name).collect();
            members.extend(wanted.contains(&entry[0]).then_some(name));
            entry[3] = members.join(",");
            entry
        })
        .collect()
}

/// In check mode, predicts the home directory of a user that useradd would create.
fn predict_home(call: &mut ModuleCall, name: &str) -> Result<(), String> {
    let entry = call.ground.node.user(name).filter(|_| call.ground.node.predicted_state().is_some());
    let Some(entry) = entry.filter(|entry| entry.len() > 5) else { return Ok(()) };
    let home = Path::new(&entry[5]);
    // useradd also makes the directories above it.
    let missing: Vec<&Path> = home.ancestors().skip(1).take_while(|dir| !call.ground.node.is_directory(dir)).collect();
    for dir in missing.into_iter().rev() {
        call.ground.node.make_directory(dir, Attributes { mode: Some(0o755), ..Attributes::default() })?;
    }
    if call.ground.node.stat(home)?.is_none() {
        let (uid, gid) = (entry[2].parse().ok(), entry[3].parse().ok());
        call.ground.node.make_directory(home, Attributes { mode: Some(0o755), uid, gid })?;
    }
    Ok(())
}

/// The group of a user that has no group of its own: Debian's `GROUP` in /etc/default/useradd,
/// which the node may have changed.
const DEFAULT_GID: &str = "100";
/// Ids that stand for unknown ids in check mode. No real account has them.
const PLACEHOLDERS: RangeInclusive<u32> = 4_199_000_000..=4_200_000_000;

/// A placeholder id for an account that check mode would create without an explicit id. It is not
/// the id that the tool will choose.
fn placeholder_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(*PLACEHOLDERS.end());
    NEXT.fetch_sub(1, Ordering::Relaxed)
}

/// The value of an id in a result. `is_check`: the run only predicts; it does not know the id of an
/// account that it has predicted.
pub fn id_value(id: u32, is_check: bool) -> Value {
    if is_check && PLACEHOLDERS.contains(&id) { unknown::mark() } else { json!(id) }
}

/// Runs the tool if `argv` is not empty, and adds the resulting entry to the outcome.
fn finish(call: &mut ModuleCall, mut argv: Vec<String>, name: String) -> ModuleResult {
    let mut out = TaskOutcome::default();
    if !argv.is_empty() {
        argv.extend(["--".into(), name.clone()]);
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let after = predict_entry(call, &argv[0], &argv[1..argv.len() - 2], &name);
        let user = call.task.module == "user";
        let mut joined = predict_group_entries(call, &argv, &name);
        // useradd makes a group with the name of the user.
        if argv[0] == "useradd"
            && !argv.iter().any(|word| word == "--gid")
            && let Some(entry) = after.as_ref().filter(|_| call.ground.node.group(&name).is_none())
        {
            joined.push(vec![name.clone(), "x".into(), entry[3].clone(), String::new()]);
        }
        let done = call.run_or_predict(&words, |would| {
            joined.into_iter().for_each(|group| would.set_group(&group[0].clone(), Some(group)));
            match user {
                true => would.set_user(&name, after),
                false => would.set_group(&name, after),
            }
        })?;
        require_success(&argv[0], &done)?;
        out = TaskOutcome::change(argv[..argv.len() - 2].join(" "));
    }
    let is_check = call.ground.node.is_check_mode();
    if let Some(entry) = call.ground.node.user(&name).filter(|e| e[0] == name && call.task.module == "user") {
        for (key, at) in [("uid", 2), ("group", 3)] {
            out.extra_keys.insert(key.into(), id_value(entry[at].parse().unwrap_or_default(), is_check));
        }
        out.extra_keys.insert("comment".into(), json!(entry[4]));
        out.extra_keys.insert("home".into(), json!(entry[5]));
        out.extra_keys.insert("shell".into(), json!(entry[6]));
    }
    if let Some(entry) = call.ground.node.group(&name).filter(|e| e[0] == name && call.task.module == "group") {
        out.extra_keys.insert("gid".into(), id_value(entry[2].parse().unwrap_or_default(), is_check));
        out.extra_keys.insert("system".into(), json!(call.flag("system", false)));
    }
    out.extra_keys.insert("name".into(), json!(name));
    out.extra_keys.insert("state".into(), json!(call.text(&["state"]).unwrap_or_else(|| "present".to_owned())));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_unknown_only_if_check_mode_has_predicted_it() {
        let predicted = *PLACEHOLDERS.start();
        assert_eq!(id_value(predicted, false), json!(predicted));
        assert_eq!(id_value(7, true), json!(7));
        assert!(unknown::is_unknown(&id_value(predicted, true)));
    }
}
