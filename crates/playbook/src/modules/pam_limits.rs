//! The `pam_limits` module: one limit in a file of limits.conf(5).

use super::{ModuleCall, ModuleResult, write_file};
use std::path::{Path, PathBuf};

const ITEMS: [&str; 19] = [
    "core",
    "data",
    "fsize",
    "memlock",
    "nofile",
    "rss",
    "stack",
    "cpu",
    "nproc",
    "as",
    "maxlogins",
    "maxsyslogins",
    "priority",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "chroot",
];
const UNLIMITED: [&str; 3] = ["unlimited", "infinity", "-1"];

/// How a present value and the value of the task are combined.
#[derive(Clone, Copy, PartialEq)]
enum Preference {
    Given,
    Larger,
    Smaller,
}

pub fn pam_limits(call: &mut ModuleCall) -> ModuleResult {
    let domain = call.required_text(&["domain"])?;
    let kind = call.required_text(&["limit_type"])?;
    let item = call.required_text(&["limit_item"])?;
    let value = call.required_text(&["value"])?;
    if !["soft", "hard", "-"].contains(&kind.as_str()) {
        return Err(format!("`{kind}` is not a valid `limit_type`: soft, hard or -"));
    }
    if !ITEMS.contains(&item.as_str()) {
        return Err(format!("`{item}` is not a valid `limit_item`: {}", ITEMS.join(", ")));
    }
    let prefer = match (call.flag("use_max", false), call.flag("use_min", false)) {
        (true, true) => return Err("Cannot use use_min and use_max at the same time.".into()),
        (true, false) => Preference::Larger,
        (false, true) => Preference::Smaller,
        (false, false) => Preference::Given,
    };
    check_value(&item, &value, "")?;
    let path = match call.args.contains_key("dest") {
        true => call.path(&["dest"])?,
        false => PathBuf::from("/etc/security/limits.conf"),
    };
    let (path, now) = call.ground.node.follow_trusted(&path)?;
    if now.is_none() && !call.ground.node.is_directory(path.parent().unwrap_or(Path::new("/"))) {
        return Err(call.ground.node.note_missing(format!("the directory of {} does not exist", path.display())));
    }
    let (old, text) = call.read_text(&path)?;
    let wanted = [domain.as_str(), kind.as_str(), item.as_str()];
    let comment = call.text(&["comment"]).unwrap_or_default();
    let (new, message) = edit(&text, wanted, &value, prefer, comment, &path)?;
    let mut out = write_file::update_file(call, &path, old, new.into_bytes(), "pam_limits")?;
    let backup = out.extra_keys.remove("backup_file");
    out = out.with_result(backup.map_or(serde_json::json!({}), |file| serde_json::json!({"backup_file": file})));
    out.msg = message;
    Ok(out)
}

/// The new content, and the line of the limit. Like Ansible, a new line without a comment gets the
/// comment of the first entry that has one.
fn edit(
    text: &str,
    wanted: [&str; 3],
    value: &str,
    prefer: Preference,
    mut comment: String,
    path: &Path,
) -> Result<(String, String), String> {
    let (mut new, mut message) = (String::new(), None);
    for line in text.split_inclusive('\n') {
        let (plain, old_comment) = match line.split_once('#') {
            _ if line.starts_with('#') || line.trim().is_empty() => {
                new.push_str(line);
                continue;
            }
            Some((plain, comment)) => (plain, comment),
            None => (line, ""),
        };
        if comment.is_empty() {
            old_comment.clone_into(&mut comment);
        }
        let words: Vec<&str> = plain.split_whitespace().collect();
        let &[domain, kind, item, present] = words.as_slice() else {
            new.push_str(line);
            continue;
        };
        check_value(item, present, &format!("Invalid configuration found in '{}'. ", path.display()))?;
        if [domain, kind, item] != wanted {
            new.push_str(line);
            continue;
        }
        let chosen = choose(present, value, prefer);
        let written = if chosen == present { line.to_owned() } else { entry(wanted, chosen, &mut comment) };
        new.push_str(&written);
        message = Some(written);
    }
    let message = message.unwrap_or_else(|| {
        let line = entry(wanted, value, &mut comment);
        new.push_str(&line);
        line
    });
    Ok((new, message))
}

fn entry([domain, kind, item]: [&str; 3], value: &str, comment: &mut String) -> String {
    if !comment.is_empty() {
        *comment = format!("\t#{comment}");
    }
    format!("{domain}\t{kind}\t{item}\t{value}{comment}\n")
}

fn choose<'v>(present: &'v str, given: &'v str, prefer: Preference) -> &'v str {
    let (old, new) = (UNLIMITED.contains(&present), UNLIMITED.contains(&given));
    let number = |text: &str| text.parse::<i64>().unwrap_or_default();
    match prefer {
        Preference::Given => given,
        _ if present == given => present,
        Preference::Larger if old => present,
        Preference::Larger if new => given,
        Preference::Larger => {
            if number(given) > number(present) {
                given
            } else {
                present
            }
        }
        Preference::Smaller if old && !new => given,
        Preference::Smaller if new => present,
        Preference::Smaller => {
            if number(given) < number(present) {
                given
            } else {
                present
            }
        }
    }
}

fn check_value(item: &str, value: &str, prefix: &str) -> Result<(), String> {
    let invalid =
        |rule: &str| Err(format!("{prefix}the value `{value}` of {item} is invalid: {rule}; see limits.conf(5)"));
    match item {
        "nice" | "priority" if value.parse::<i32>().is_ok_and(|number| (-20..=19).contains(&number)) => Ok(()),
        "nice" | "priority" => invalid("it must be a number from -20 to 19"),
        _ if UNLIMITED.contains(&value) || value.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
        _ => invalid("it must be unlimited, infinity, -1 or a number of 0 or more"),
    }
}
