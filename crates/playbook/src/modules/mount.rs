//! The `mount` module: an entry of fstab, and whether it is mounted. The module behaves like
//! `ansible.posix.mount`.

use super::{ModuleCall, ModuleResult, TaskOutcome, require_success, write_file};
use crate::os::atomic_fs::{self, Attributes};
use crate::run::event::AttributeChange;
use remoor_host::files;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The six fields of an fstab entry, escaped as in the file.
type FstabEntry = [String; 6];

pub fn mount(call: &mut ModuleCall) -> ModuleResult {
    let state = call.required_text(&["state"])?;
    let asked = call.required_text(&["path", "name"])?;
    // A swap area has no mount point.
    let path = if asked == "none" { PathBuf::from("none") } else { call.path(&["path", "name"])? };
    let fstab = match call.text(&["fstab"]).filter(|f| !f.is_empty()) {
        Some(_) => call.path(&["fstab"])?,
        None => PathBuf::from("/etc/fstab"),
    };
    let line = fstab_entry(call, &path, &state)?;
    let mounted = is_mounted(call, &path)?;
    let mut out = match state.as_str() {
        "present" => set_entry(call, &fstab, &line)?,
        "absent_from_fstab" => remove_entry(call, &fstab, &line)?,
        "absent" => ensure_absent(call, &fstab, &line, &path, mounted)?,
        "unmounted" => match mounted {
            true => unmount(call, &path)?,
            false => TaskOutcome::default(),
        },
        "mounted" => ensure_mounted(call, &fstab, &line, &path, mounted)?,
        "remounted" => {
            remount(call, &fstab, &path)?;
            TaskOutcome::change("remounted")
        }
        other => return Err(format!("`{other}` is not a supported state of mount")),
    };
    out.extra_keys.remove("dest");
    for (key, value) in [
        ("name", path.display().to_string()),
        ("src", call.text(&["src"]).unwrap_or_default()),
        ("fstype", call.text(&["fstype"]).unwrap_or_default()),
        ("opts", line[3].clone()),
        ("dump", line[4].clone()),
        ("passno", line[5].clone()),
        ("fstab", fstab.display().to_string()),
    ] {
        out.extra_keys.insert(key.into(), json!(value));
    }
    out.extra_keys.insert("boot".into(), json!(call.flag("boot", true)));
    Ok(out)
}

/// The fstab entry that the options describe.
fn fstab_entry(call: &ModuleCall, path: &Path, state: &str) -> Result<FstabEntry, String> {
    let needs = matches!(state, "mounted" | "present");
    let field = |name: &str, default: &str| -> Result<String, String> {
        let text = match call.text(&[name]).filter(|t| !t.is_empty()) {
            Some(text) => text,
            None if needs && default.is_empty() => return Err(format!("state {state} needs `{name}`")),
            None => default.to_owned(),
        };
        match text.contains(['\n', '\r']) {
            true => Err(format!("`{name}` must be one line")),
            false => Ok(escape_field(&text)),
        }
    };
    let mut opts = field("opts", "defaults")?;
    if !call.flag("boot", true) && !opts.split(',').any(|o| o == "noauto") {
        opts.push_str(",noauto");
    }
    for name in ["dump", "passno"] {
        if !field(name, "0")?.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("`{name}` is not a number"));
        }
    }
    let name = escape_field(&path.display().to_string());
    Ok([field("src", "")?, name, field("fstype", "")?, opts, field("dump", "0")?, field("passno", "0")?])
}

/// Escapes a field as described in fstab(5).
fn escape_field(text: &str) -> String {
    text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('#', "\\043")
}

/// Parses a line of fstab. None: a comment, an empty line or an invalid entry.
fn parse_entry(text: &str) -> Option<FstabEntry> {
    let plain = text.trim();
    let fields: Vec<&str> = plain.split_whitespace().collect();
    let good = !plain.starts_with('#') && (4..=6).contains(&fields.len());
    let field = |at: usize| fields.get(at).map_or_else(|| "0".to_owned(), |f| (*f).to_owned());
    good.then(|| std::array::from_fn(field))
}

/// Whether two entries are the same mount: swap is identified by its source, all others by the
/// mount point.
fn is_same_mount(have: &FstabEntry, want: &FstabEntry) -> bool {
    let swap = have[1] == "none" && have[2] == "swap" && !want[0].is_empty();
    have[1] == want[1] && (!swap || have[0] == want[0])
}

fn lines_of(call: &ModuleCall, fstab: &Path) -> Result<(Option<Vec<u8>>, Vec<String>), String> {
    let (old, text) = call.read_text(fstab)?;
    Ok((old, text.lines().map(str::to_owned).collect()))
}

fn set_entry(call: &mut ModuleCall, fstab: &Path, want: &FstabEntry) -> ModuleResult {
    let (old, mut lines) = lines_of(call, fstab)?;
    let mut found = false;
    for line in &mut lines {
        let Some(have) = parse_entry(line).filter(|have| is_same_mount(have, want)) else { continue };
        found = true;
        if have != *want {
            *line = want.join(" ");
        }
    }
    if !found {
        lines.push(want.join(" "));
    }
    write(call, fstab, old, &lines)
}

fn remove_entry(call: &mut ModuleCall, fstab: &Path, want: &FstabEntry) -> ModuleResult {
    let (old, mut lines) = lines_of(call, fstab)?;
    lines.retain(|line| !parse_entry(line).is_some_and(|have| is_same_mount(&have, want)));
    write(call, fstab, old, &lines)
}

fn write(call: &mut ModuleCall, fstab: &Path, old: Option<Vec<u8>>, lines: &[String]) -> ModuleResult {
    let same = String::from_utf8_lossy(old.as_deref().unwrap_or_default()).lines().eq(lines.iter().map(String::as_str));
    if same {
        return Ok(TaskOutcome::default());
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    write_file::update_file(call, fstab, old, text.into_bytes(), "mount")
}

/// Whether the path is a mount point. In check mode the predicted state takes precedence.
fn is_mounted(call: &ModuleCall, path: &Path) -> Result<bool, String> {
    if let Some(told) = call.predicted_text(&prediction_key(path)) {
        return Ok(told == "mounted");
    }
    let real = call.ground.node.follow(path).map_or_else(|| path.to_owned(), |(real, _)| real);
    Ok(files::mounts()?.iter().any(|mount| Path::new(&mount.point) == real))
}

fn prediction_key(path: &Path) -> String {
    format!("mount {}", path.display())
}

fn ensure_absent(call: &mut ModuleCall, fstab: &Path, want: &FstabEntry, path: &Path, mounted: bool) -> ModuleResult {
    let mut out = remove_entry(call, fstab, want)?;
    if !out.changed {
        return Ok(out);
    }
    if mounted {
        let done = unmount(call, path)?;
        out.attributes.extend(done.attributes);
    }
    let there = call.ground.node.stat(path)?.filter(|_| !super::is_vital(path));
    if there.is_some_and(|s| atomic_fs::kind(&s) == rustix::fs::FileType::Directory) {
        call.ground.back_up_removed(path, false)?;
        call.ground.node.remove(path, true)?;
    }
    Ok(out)
}

fn ensure_mounted(call: &mut ModuleCall, fstab: &Path, want: &FstabEntry, path: &Path, mounted: bool) -> ModuleResult {
    let made = match call.ground.node.follow(path) {
        Some(_) => Vec::new(),
        None => make_directories(call, path)?,
    };
    let before = lines_of(call, fstab)?.0;
    let mut out = set_entry(call, fstab, want)?;
    let place = path.display().to_string();
    let done = match (mounted, out.changed) {
        (true, false) => return Ok(out),
        (true, true) => remount(call, fstab, path),
        (false, _) => run_mount(call, fstab, &[&place], path),
    };
    if let Err(mut why) = done {
        // Restores fstab, because an entry that cannot be mounted may prevent the machine from
        // booting.
        if out.changed {
            match before {
                Some(content) => drop(write_file::update_file(call, fstab, None, content, "mount")?),
                None => call.ground.node.remove(fstab, false)?,
            }
        }
        // If the file system cannot be remounted, `remount` has unmounted it, and the new mount has
        // failed. So it is mounted again with the old entry.
        if mounted
            && !self::is_mounted(call, path)?
            && let Err(again) = run_mount(call, fstab, &[&place], path)
        {
            why = format!("{why}; mounting it again with the old entry also failed: {again}");
        }
        for dir in made.iter().rev() {
            call.ground.node.remove(dir, true)?;
        }
        return Err(why);
    }
    out.changed = true;
    out.attributes.push(AttributeChange::new("state", if mounted { "mounted" } else { "unmounted" }, "mounted"));
    Ok(out)
}

/// Creates a directory and its missing parents. Returns the created directories, parents first.
fn make_directories(call: &mut ModuleCall, path: &Path) -> Result<Vec<PathBuf>, String> {
    let missing: Vec<PathBuf> =
        path.ancestors().take_while(|at| call.ground.node.follow(at).is_none()).map(Path::to_owned).collect();
    for dir in missing.iter().rev() {
        call.ground.back_up(dir)?;
        call.ground.node.make_directory(dir, Attributes { mode: Some(0o755), ..Attributes::default() })?;
    }
    Ok(missing.into_iter().rev().collect())
}

fn unmount(call: &mut ModuleCall, path: &Path) -> ModuleResult {
    let place = path.display().to_string();
    let done = call.run_or_predict(&["umount", &place], |would| would.set_text(&prediction_key(path), "unmounted"))?;
    require_success("umount", &done)?;
    let mut out = TaskOutcome::change("unmounted");
    out.attributes.push(AttributeChange::new("state", "mounted", "unmounted"));
    Ok(out)
}

/// Remounts with the present options of fstab. If the file system does not support a remount,
/// unmounts and mounts it.
fn remount(call: &mut ModuleCall, fstab: &Path, path: &Path) -> Result<(), String> {
    let place = path.display().to_string();
    if run_mount(call, fstab, &["-o", "remount", &place], path).is_ok() {
        return Ok(());
    }
    unmount(call, path)?;
    run_mount(call, fstab, &[&place], path)
}

/// Calls `mount` with this fstab file.
fn run_mount(call: &mut ModuleCall, fstab: &Path, args: &[&str], path: &Path) -> Result<(), String> {
    let table = fstab.display().to_string();
    let mut argv = vec!["mount"];
    if fstab != Path::new("/etc/fstab") {
        argv.extend(["-T", &table]);
    }
    argv.extend(args);
    let done = call.run_or_predict(&argv, |would| would.set_text(&prediction_key(path), "mounted"))?;
    require_success("mount", &done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fstab_entries_are_parsed() {
        let line = |fields: [&str; 6]| fields.map(str::to_owned);
        assert_eq!(
            parse_entry("/dev/sda1 /a\\040b ext4 defaults"),
            Some(line(["/dev/sda1", "/a\\040b", "ext4", "defaults", "0", "0"]))
        );
        assert_eq!(parse_entry(" x  /y\tz\to 1 2 "), Some(line(["x", "/y", "z", "o", "1", "2"])));
        for text in ["# x /y z o 1 2", "", "x /y z", "x /y z o 1 2 3"] {
            assert_eq!(parse_entry(text), None, "{text}");
        }
        assert_eq!(escape_field("/a b#\\"), "/a\\040b\\043\\134");
        let swap = |src: &str| line([src, "none", "swap", "sw", "0", "0"]);
        assert!(is_same_mount(&swap("a"), &swap("a")) && !is_same_mount(&swap("a"), &swap("b")));
    }
}
