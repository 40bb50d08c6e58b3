//! The `mount` module: an entry of fstab, and whether it is mounted. Behaves like
//! `ansible.posix.mount`.

use super::{Answer, Call, Outcome, complaint, place};
use crate::event::AttributeChange;
use crate::safe::{self, Attributes};
use remoor_host::files;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The six fields of an fstab entry, escaped as in the file.
type Line = [String; 6];

pub fn mount(call: &mut Call) -> Answer {
    let state = call.need(&["state"])?;
    let asked = call.need(&["path", "name"])?;
    // Swap has no mount point.
    let path = if asked == "none" { PathBuf::from("none") } else { call.path(&["path", "name"])? };
    let fstab = match call.text(&["fstab"]).filter(|f| !f.is_empty()) {
        Some(_) => call.path(&["fstab"])?,
        None => PathBuf::from("/etc/fstab"),
    };
    let line = line(call, &path, &state)?;
    let mounted = mounted(call, &path)?;
    let mut out = match state.as_str() {
        "present" => set(call, &fstab, &line)?,
        "absent_from_fstab" => unset(call, &fstab, &line)?,
        "absent" => absent(call, &fstab, &line, &path, mounted)?,
        "unmounted" => match mounted {
            true => unmount(call, &path)?,
            false => Outcome::default(),
        },
        "mounted" => now_mounted(call, &fstab, &line, &path, mounted)?,
        "remounted" => {
            remount(call, &fstab, &path)?;
            Outcome::changed("remounted")
        }
        other => return Err(format!("`{other}` is not a supported state of mount; use provisioner kind: ansible")),
    };
    out.more.remove("dest");
    for (key, value) in [
        ("name", path.display().to_string()),
        ("src", call.text(&["src"]).unwrap_or_default()),
        ("fstype", call.text(&["fstype"]).unwrap_or_default()),
        ("opts", line[3].clone()),
        ("dump", line[4].clone()),
        ("passno", line[5].clone()),
        ("fstab", fstab.display().to_string()),
    ] {
        out.more.insert(key.into(), json!(value));
    }
    out.more.insert("boot".into(), json!(call.flag("boot", true)));
    Ok(out)
}

/// The fstab entry that the options describe.
fn line(call: &Call, path: &Path, state: &str) -> Result<Line, String> {
    let needs = matches!(state, "mounted" | "present");
    let field = |name: &str, default: &str| -> Result<String, String> {
        let text = match call.text(&[name]).filter(|t| !t.is_empty()) {
            Some(text) => text,
            None if needs && default.is_empty() => return Err(format!("state {state} needs `{name}`")),
            None => default.to_owned(),
        };
        match text.contains(['\n', '\r']) {
            true => Err(format!("`{name}` must be one line")),
            false => Ok(escaped(&text)),
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
    let name = escaped(&path.display().to_string());
    Ok([field("src", "")?, name, field("fstype", "")?, opts, field("dump", "0")?, field("passno", "0")?])
}

/// Escapes a field as described in fstab(5).
fn escaped(text: &str) -> String {
    text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('#', "\\043")
}

/// Parses a line of fstab. None: a comment, an empty line or an invalid entry.
fn read(text: &str) -> Option<Line> {
    let plain = text.trim();
    let fields: Vec<&str> = plain.split_whitespace().collect();
    let good = !plain.starts_with('#') && (4..=6).contains(&fields.len());
    let field = |at: usize| fields.get(at).map_or_else(|| "0".to_owned(), |f| (*f).to_owned());
    good.then(|| std::array::from_fn(field))
}

/// Whether two entries are the same mount: swap is identified by its source, all others by the
/// mount point.
fn is(have: &Line, want: &Line) -> bool {
    let swap = have[1] == "none" && have[2] == "swap" && !want[0].is_empty();
    have[1] == want[1] && (!swap || have[0] == want[0])
}

fn lines_of(call: &Call, fstab: &Path) -> Result<(Option<Vec<u8>>, Vec<String>), String> {
    let (old, text) = call.text_at(fstab)?;
    Ok((old, text.lines().map(str::to_owned).collect()))
}

fn set(call: &mut Call, fstab: &Path, want: &Line) -> Answer {
    let (old, mut lines) = lines_of(call, fstab)?;
    let mut found = false;
    for line in &mut lines {
        let Some(have) = read(line).filter(|have| is(have, want)) else { continue };
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

fn unset(call: &mut Call, fstab: &Path, want: &Line) -> Answer {
    let (old, mut lines) = lines_of(call, fstab)?;
    lines.retain(|line| !read(line).is_some_and(|have| is(&have, want)));
    write(call, fstab, old, &lines)
}

fn write(call: &mut Call, fstab: &Path, old: Option<Vec<u8>>, lines: &[String]) -> Answer {
    let same = String::from_utf8_lossy(old.as_deref().unwrap_or_default()).lines().eq(lines.iter().map(String::as_str));
    if same {
        return Ok(Outcome::default());
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    place::finish(call, fstab, old, text.into_bytes(), "mount")
}

/// Whether the path is a mount point. In check mode the predicted state takes precedence.
fn mounted(call: &Call, path: &Path) -> Result<bool, String> {
    if let Some(told) = call.ground.node.would().and_then(|would| would.text(&key(path))) {
        return Ok(told == "mounted");
    }
    let real = call.ground.node.follow(path).map_or_else(|| path.to_owned(), |(real, _)| real);
    Ok(files::mounts()?.iter().any(|mount| Path::new(&mount.point) == real))
}

fn key(path: &Path) -> String {
    format!("mount {}", path.display())
}

fn absent(call: &mut Call, fstab: &Path, want: &Line, path: &Path, mounted: bool) -> Answer {
    let mut out = unset(call, fstab, want)?;
    if !out.changed {
        return Ok(out);
    }
    if mounted {
        let done = unmount(call, path)?;
        out.attributes.extend(done.attributes);
    }
    let there = call.ground.node.look(path)?.filter(|_| !super::is_vital(path));
    if there.is_some_and(|s| safe::kind(&s) == rustix::fs::FileType::Directory) {
        call.ground.keep_leaving(path, false)?;
        call.ground.node.remove(path, true)?;
    }
    Ok(out)
}

fn now_mounted(call: &mut Call, fstab: &Path, want: &Line, path: &Path, mounted: bool) -> Answer {
    let made = match call.ground.node.follow(path) {
        Some(_) => Vec::new(),
        None => make_directories(call, path)?,
    };
    let before = lines_of(call, fstab)?.0;
    let mut out = set(call, fstab, want)?;
    let place = path.display().to_string();
    let done = match (mounted, out.changed) {
        (true, false) => return Ok(out),
        (true, true) => remount(call, fstab, path),
        (false, _) => attach(call, fstab, &[&place], path),
    };
    if let Err(mut why) = done {
        // Restores fstab, because an entry that cannot be mounted may prevent the machine from
        // booting.
        if out.changed {
            match before {
                Some(content) => drop(place::finish(call, fstab, None, content, "mount")?),
                None => call.ground.node.remove(fstab, false)?,
            }
        }
        // The fallback of `remount` has unmounted it; mount it again with the old entry.
        if mounted
            && !self::mounted(call, path)?
            && let Err(again) = attach(call, fstab, &[&place], path)
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
fn make_directories(call: &mut Call, path: &Path) -> Result<Vec<PathBuf>, String> {
    let missing: Vec<PathBuf> =
        path.ancestors().take_while(|at| call.ground.node.follow(at).is_none()).map(Path::to_owned).collect();
    for dir in missing.iter().rev() {
        call.ground.keep(dir)?;
        call.ground.node.make_directory(dir, Attributes { mode: Some(0o755), ..Attributes::default() })?;
    }
    Ok(missing.into_iter().rev().collect())
}

fn unmount(call: &mut Call, path: &Path) -> Answer {
    let place = path.display().to_string();
    let done = call.act(&["umount", &place], |would| would.set_text(&key(path), "unmounted"))?;
    if !done.success() {
        return Err(complaint("umount", &done));
    }
    let mut out = Outcome::changed("unmounted");
    out.attributes.push(AttributeChange::new("state", "mounted", "unmounted"));
    Ok(out)
}

/// Remounts with the present options of fstab. If the file system does not support that, unmounts
/// and mounts it.
fn remount(call: &mut Call, fstab: &Path, path: &Path) -> Result<(), String> {
    let place = path.display().to_string();
    if attach(call, fstab, &["-o", "remount", &place], path).is_ok() {
        return Ok(());
    }
    unmount(call, path)?;
    attach(call, fstab, &[&place], path)
}

/// Calls `mount` with this fstab file.
fn attach(call: &mut Call, fstab: &Path, args: &[&str], path: &Path) -> Result<(), String> {
    let table = fstab.display().to_string();
    let mut argv = vec!["mount"];
    if fstab != Path::new("/etc/fstab") {
        argv.extend(["-T", &table]);
    }
    argv.extend(args);
    let done = call.act(&argv, |would| would.set_text(&key(path), "mounted"))?;
    if done.success() { Ok(()) } else { Err(complaint("mount", &done)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_fstab_has_them() {
        let line = |fields: [&str; 6]| fields.map(str::to_owned);
        assert_eq!(
            read("/dev/sda1 /a\\040b ext4 defaults"),
            Some(line(["/dev/sda1", "/a\\040b", "ext4", "defaults", "0", "0"]))
        );
        assert_eq!(read(" x  /y\tz\to 1 2 "), Some(line(["x", "/y", "z", "o", "1", "2"])));
        for text in ["# x /y z o 1 2", "", "x /y z", "x /y z o 1 2 3"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(escaped("/a b#\\"), "/a\\040b\\043\\134");
        let swap = |src: &str| line([src, "none", "swap", "sw", "0", "0"]);
        assert!(is(&swap("a"), &swap("a")) && !is(&swap("a"), &swap("b")));
    }
}
