//! `user` and `group`, by the system's own tools, only where something differs.

use super::{Answer, Call, Outcome, complaint};
use crate::playbook::owner;
use serde_json::json;
use std::collections::BTreeSet;

pub fn group(call: &mut Call) -> Answer {
    let name = name(call)?;
    let now = owner::group(&name).filter(|e| e[0] == name);
    let gid = call.text(&["gid"]);
    let system = call.flag("system", false);
    let mut argv: Vec<String> = Vec::new();
    match (call.text(&["state"]).as_deref() == Some("absent"), now) {
        (true, None) => {}
        (true, Some(_)) => argv.push("groupdel".into()),
        (false, None) => {
            argv.push("groupadd".into());
            argv.extend(system.then(|| "--system".into()));
            argv.extend(gid.into_iter().flat_map(|g| ["--gid".into(), g]));
        }
        (false, Some(entry)) => {
            if let Some(gid) = gid.filter(|g| *g != entry[2]) {
                argv.extend(["groupmod".into(), "--gid".into(), gid]);
            }
        }
    }
    finish(call, argv, name)
}

pub fn user(call: &mut Call) -> Answer {
    let name = name(call)?;
    let now = owner::user(&name).filter(|e| e[0] == name);
    if call.text(&["state"]).as_deref() == Some("absent") {
        let mut argv = Vec::new();
        if now.is_some() {
            argv.push("userdel".to_owned());
            argv.extend(call.flag("force", false).then(|| "--force".into()));
            argv.extend(call.flag("remove", false).then(|| "--remove".into()));
        }
        return finish(call, argv, name);
    }
    let primary = call.text(&["group"]).map(|g| owner::gid(&g).map(|gid| (g, gid))).transpose()?;
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
    let lock = call.given_flag("password_lock");
    let Some(_) = &now else {
        if let Some(groups) = groups.filter(|g| !g.is_empty()) {
            flags.extend(["--groups".into(), groups.into_iter().collect::<Vec<_>>().join(",")]);
        }
        let home = call.flag("create_home", call.flag("createhome", true));
        flags.push(if home { "--create-home" } else { "--no-create-home" }.into());
        flags.extend(call.flag("system", false).then(|| "--system".into()));
        flags.insert(0, "useradd".into());
        return finish(call, flags, name);
    };
    if let Some(want) = groups {
        let have = memberships(&name);
        let append = call.flag("append", false);
        if if append { !want.is_subset(&have) } else { want != have } {
            flags.extend(append.then(|| "--append".into()));
            flags.extend(["--groups".into(), want.into_iter().collect::<Vec<_>>().join(",")]);
        }
    }
    if let Some(want) = lock {
        let shadow = std::fs::read_to_string("/etc/shadow").unwrap_or_default();
        let locked = shadow.lines().any(|l| l.strip_prefix(&name).is_some_and(|rest| rest.starts_with(":!")));
        if want != locked {
            flags.push(if want { "--lock" } else { "--unlock" }.into());
        }
    }
    if !flags.is_empty() {
        flags.insert(0, "usermod".into());
    }
    finish(call, flags, name)
}

fn name(call: &Call) -> Result<String, String> {
    let name = call.need(&["name"])?;
    let good = |c: char| c.is_alphanumeric() || "._-$@".contains(c);
    if name.starts_with('-') || !name.chars().all(good) {
        Err(format!("`{name}` is no name of a user or group"))
    } else {
        Ok(name)
    }
}

/// Supplementary groups of a user, by the local file.
fn memberships(name: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let member = |line: &&str| line.rsplit(':').next().is_some_and(|members| members.split(',').any(|m| m == name));
    text.lines().filter(member).filter_map(|l| l.split(':').next()).map(str::to_owned).collect()
}

/// Runs the tool, if there is anything to do.
fn finish(call: &mut Call, mut argv: Vec<String>, name: String) -> Answer {
    let mut out = Outcome::default();
    if !argv.is_empty() {
        argv.extend(["--".into(), name.clone()]);
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let done = call.loud(&words)?;
        if !done.success() {
            return Err(complaint(&argv[0], &done));
        }
        out = Outcome::changed(argv[..argv.len() - 2].join(" "));
    }
    if let Some(entry) = owner::user(&name).filter(|e| e[0] == name && call.task.module == "user") {
        for (key, at) in [("uid", 2), ("group", 3)] {
            out.more.insert(key.into(), json!(entry[at].parse::<u32>().unwrap_or_default()));
        }
        out.more.insert("home".into(), json!(entry[5]));
        out.more.insert("shell".into(), json!(entry[6]));
    }
    out.more.insert("name".into(), json!(name));
    Ok(out)
}
