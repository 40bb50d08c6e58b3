//! The modules `sysctl`, `modprobe` and `hostname`: settings of the running kernel, and settings
//! that apply after a boot.

use super::{ModuleCall, ModuleResult, TaskOutcome, failure_message, require_success, write_file};
use crate::facts;
use crate::os::process::Finished;
use crate::run::event::AttributeChange;
use serde_json::json;
use std::path::{Path, PathBuf};

pub fn sysctl(call: &mut ModuleCall) -> ModuleResult {
    let name = call.required_text(&["name", "key"])?;
    let good = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !name.chars().all(good) || name.starts_with(['/', '.']) || name.contains("..") {
        return Err(format!("`{name}` is not a valid kernel parameter name"));
    }
    let present = call.text(&["state"]).as_deref() != Some("absent");
    let value = call.text(&["value", "val"]).map(|v| v.split_whitespace().collect::<Vec<_>>().join(" "));
    let value = match value {
        Some(value) => value,
        None if present => return Err("`value` is missing".into()),
        None => String::new(),
    };
    let path = match call.args.contains_key("sysctl_file") {
        true => call.path(&["sysctl_file"])?,
        false => PathBuf::from("/etc/sysctl.conf"),
    };
    let (old, text) = call.read_text(&path)?;
    let is = |line: &str| {
        let key = line.split_once('=').map(|(key, _)| key.trim().trim_start_matches('-'));
        !line.trim_start().starts_with(['#', ';']) && key.map(|k| k.replace('/', ".")) == Some(name.replace('/', "."))
    };
    let held = |line: &str| line.split_once('=').map(|(_, v)| v.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let last = lines.iter().rposition(|l| is(l));
    match (present, last) {
        (false, _) => lines.retain(|l| !is(l)),
        (true, Some(at)) if held(&lines[at]).as_deref() == Some(value.as_str()) => {}
        (true, Some(at)) => {
            lines[at] = format!("{name}={value}");
            let mut i = 0;
            lines.retain(|l| {
                i += 1;
                i - 1 == at || !is(l)
            });
        }
        (true, None) => lines.push(format!("{name}={value}")),
    }
    let (sets, reloads) = (call.flag("sysctl_set", false), call.flag("reload", true));
    let told = kernel_value(call, &name);
    // As in Ansible, a value that is only in the file is a change, which `reload` applies.
    let differs = present && (sets || reloads) && told.as_deref() != Some(value.as_str());
    let predicted = format!("sysctl {name}");
    // As in Ansible, `ignoreerrors` concerns only parameters that the kernel does not have.
    let lenient = call.flag("ignoreerrors", false).then_some("-e");
    // A value that the kernel refuses is not written, because it would be refused at each boot.
    if differs && sets {
        let pair = format!("{name}={value}");
        let argv: Vec<&str> = ["sysctl"].into_iter().chain(lenient).chain(["-w", &pair]).collect();
        let done = call.run_or_predict(&argv, |would| would.set_text(&predicted, &value))?;
        if is_refused(&done) {
            return Err(failure_message(&format!("setting {name} failed: sysctl"), &done));
        }
    }
    let mut out = match lines.iter().map(String::as_str).eq(text.lines()) {
        true => TaskOutcome::default(),
        false => write_file::update_file(call, &path, old, format!("{}\n", lines.join("\n")).into_bytes(), "sysctl")?,
    };
    if differs {
        out.changed = true;
        out.attributes.push(AttributeChange::new(&name, told.unwrap_or_default(), value.clone()));
    }
    if out.changed && reloads {
        let file = path.display().to_string();
        let mut argv = vec!["sysctl"];
        argv.extend(lenient);
        argv.extend(["-p", &file]);
        let done = call.run_or_predict(&argv, |would| would.set_text(&predicted, &value))?;
        if is_refused(&done) {
            return Err(failure_message("sysctl -p", &done));
        }
    }
    Ok(out)
}

/// Whether sysctl could not set a value. Some versions report that only on standard error.
fn is_refused(done: &Finished) -> bool {
    let refused = |line: &str| {
        line.starts_with("sysctl: setting key")
            && ["Invalid argument", "Read-only file system"].iter().any(|why| line.ends_with(why))
    };
    !done.success() || done.stderr.lines().any(refused)
}

/// The present value of a kernel parameter, with single blanks. In check mode the predicted value
/// takes precedence. None: the kernel has no such parameter.
fn kernel_value(call: &ModuleCall, name: &str) -> Option<String> {
    let told = call.predicted_text(&format!("sysctl {name}"));
    told.or_else(|| {
        let text = std::fs::read_to_string(Path::new("/proc/sys").join(name.replace('.', "/"))).ok()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    })
}

pub fn modprobe(call: &mut ModuleCall) -> ModuleResult {
    let name = call.required_text(&["name"])?;
    if name.starts_with('-') || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) {
        return Err(format!("`{name}` is not a valid kernel module name"));
    }
    let present = call.text(&["state"]).as_deref() != Some("absent");
    let plain = name.replace('-', "_");
    let known = call.predicted_text(&format!("module {plain}"));
    let loaded = match known {
        Some(text) => text == "loaded",
        None => {
            let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
            modules.lines().any(|l| l.split(' ').next() == Some(&plain)) || built_in(&plain)
        }
    };
    let mut out = TaskOutcome::default();
    if present != loaded {
        let params = call.text(&["params"]).unwrap_or_default();
        let mut argv = vec!["modprobe"];
        argv.extend((!present).then_some("-r"));
        argv.push(&name);
        argv.extend(params.split_whitespace().filter(|_| present));
        let after = if present { "loaded" } else { "absent" };
        let done = call.run_or_predict(&argv, |would| would.set_text(&format!("module {plain}"), after))?;
        require_success("modprobe", &done)?;
        out = TaskOutcome::change(after);
    }
    for (key, value) in [("name", name), ("state", if present { "present" } else { "absent" }.into())] {
        out.extra_keys.insert(key.into(), json!(value));
    }
    Ok(out)
}

fn built_in(name: &str) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let list = std::fs::read_to_string(format!("/lib/modules/{release}/modules.builtin")).unwrap_or_default();
    list.lines().filter_map(|l| l.rsplit('/').next()?.split('.').next()).any(|n| n.replace('-', "_") == name)
}

pub fn hostname(call: &mut ModuleCall) -> ModuleResult {
    let name = call.required_text(&["name"])?;
    if name.len() > 64
        || name.starts_with(['-', '.'])
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    {
        return Err(format!("`{name}` is not a valid host name"));
    }
    let path = Path::new("/etc/hostname");
    let node = &call.ground.node;
    let kept = node.stat(path)?.map(|_| node.read(path)).transpose()?.unwrap_or_default();
    let kept = String::from_utf8_lossy(&kept).trim().to_owned();
    let told = call.predicted_text("hostname");
    let now = told.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let mut out = TaskOutcome::default();
    // As in Ansible, the permanent names come first, because NetworkManager complains otherwise.
    let permanent = ["hostnamectl", "--pretty", "--static", "set-hostname", "--", &name];
    let current = ["hostnamectl", "--transient", "set-hostname", "--", &name];
    for (argv, differs) in [(&permanent[..], kept != name), (&current[..], now != name)] {
        if differs {
            let done = call.run_or_predict(argv, |would| would.set_text("hostname", &name))?;
            require_success("hostnamectl", &done)?;
        }
    }
    if kept != name || now != name {
        if call.ground.node.is_check_mode() {
            let all = crate::os::atomic_fs::Attributes { mode: Some(0o644), ..Default::default() };
            call.ground.node.write(path, format!("{name}\n").as_bytes(), all, &mut |_| Ok(()))?;
        }
        out = TaskOutcome::change(format!("{now} -> {name}"));
        out.attributes.push(AttributeChange::new("hostname", now, name.clone()));
    }
    let short = name.split('.').next().unwrap_or(&name);
    out.facts.insert("ansible_hostname".into(), json!(short));
    let hosts = call.ground.node.read(Path::new("/etc/hosts")).unwrap_or_default();
    let full = facts::full_name(&String::from_utf8_lossy(&hosts), &name, short);
    out.facts.insert("ansible_domain".into(), json!(full.split_once('.').map_or("", |(_, domain)| domain)));
    out.facts.insert("ansible_fqdn".into(), json!(full));
    out.facts.insert("ansible_nodename".into(), json!(name));
    out.extra_keys.insert("name".into(), json!(name));
    Ok(out)
}
