//! `file`: what lies at a path (directory, link, nothing) and with which attributes.

use super::{Answer, Call, Outcome, attribute_changes};
use crate::playbook::safe;
use rustix::fs::{FileType, Stat};
use serde_json::json;
use std::path::{Path, PathBuf};

pub fn file(call: &mut Call) -> Answer {
    let path = call.path(&["path", "dest", "name"])?;
    if call.is_by_command(&path) {
        return Ok(Outcome::unknown(format!("{} is made by what was not run", path.display())));
    }
    let now = call.ground.node.look(&path)?;
    let state = call.text(&["state"]).unwrap_or_else(|| {
        let kind = now.as_ref().map(safe::kind);
        match kind {
            Some(FileType::Directory) => "directory",
            _ if call.flag("recurse", false) => "directory",
            _ => "file",
        }
        .to_owned()
    });
    let mut out = match state.as_str() {
        "absent" => absent(call, &path, now.as_ref()),
        "directory" => directory(call, &path, now.as_ref()),
        "touch" => touch(call, &path, now.as_ref()),
        "link" => link(call, &path, now.as_ref()),
        "hard" => hard(call, &path, now.as_ref()),
        "file" => match now {
            None => {
                Err(call.ground.node.missing(format!("{} is not there; `state: touch` would make it", path.display())))
            }
            Some(stat) => attributes(call, &path, &stat, false),
        },
        other => Err(format!("`{other}` is no state of file")),
    }?;
    out.more.insert("path".into(), json!(path.display().to_string()));
    out.more.insert("dest".into(), json!(path.display().to_string()));
    out.more.insert("state".into(), json!(state));
    Ok(out)
}

fn absent(call: &mut Call, path: &Path, now: Option<&Stat>) -> Answer {
    match now {
        None => Ok(Outcome::ok("is not there")),
        Some(stat) => Ok(Outcome::changed(call.ground.take_away(path, stat)?)),
    }
}

fn directory(call: &mut Call, path: &Path, now: Option<&Stat>) -> Answer {
    let mut out = match now {
        None => {
            let mut missing: Vec<PathBuf> = Vec::new();
            let mut at = path;
            while call.ground.node.look(at)?.is_none() {
                missing.push(at.to_owned());
                at = at.parent().ok_or("the path has no parent")?;
            }
            for dir in missing.iter().rev() {
                let want = call.attributes(None, 0o755, true)?;
                call.ground.keep(dir)?;
                call.ground.node.make_directory(dir, want)?;
            }
            Outcome::changed("created")
        }
        Some(stat) if safe::kind(stat) == FileType::Directory => attributes(call, path, stat, true)?,
        Some(stat) if safe::kind(stat) == FileType::Symlink => {
            let led = call.ground.node.follow(path).filter(|(_, stat)| safe::kind(stat) == FileType::Directory);
            let Some((real, stat)) = led else {
                return Err(format!("{} is a symbolic link that leads to no directory", path.display()));
            };
            let want = call.attributes(Some(&stat), 0o755, true)?;
            if !attribute_changes(&stat, want).is_empty() && !call.flag("follow", false) {
                return Err(format!("{} is a symbolic link; `follow: true` changes what it leads to", path.display()));
            }
            attributes(call, &real, &stat, true)?
        }
        Some(_) => return Err(format!("{} is there and is not a directory", path.display())),
    };
    if call.flag("recurse", false) {
        let mut count = 0;
        for (inner, stat) in call.ground.node.walk(path, 1_000_000)? {
            if safe::kind(&stat) == FileType::Symlink {
                continue;
            }
            let want = call.attributes(Some(&stat), 0o644, safe::kind(&stat) == FileType::Directory)?;
            if !attribute_changes(&stat, want).is_empty() {
                call.ground.keep(&inner)?;
                call.ground.node.set_attributes(&inner, want)?;
                count += 1;
            }
        }
        if count > 0 {
            out.changed = true;
            let entries = if count == 1 { "entry" } else { "entries" };
            out.msg = format!("{} {count} {entries} changed", out.msg).trim().to_owned();
        }
    }
    Ok(out)
}

/// Sets mode, owner and group where they differ.
fn attributes(call: &mut Call, path: &Path, stat: &Stat, directory: bool) -> Answer {
    if safe::kind(stat) == FileType::Symlink {
        let led = call.ground.node.follow(path);
        let (real, stat) = led.ok_or_else(|| format!("{}: cannot follow the link", path.display()))?;
        let want = call.attributes(Some(&stat), 0o644, false)?;
        return match attribute_changes(&stat, want) {
            none if none.is_empty() => Ok(Outcome::default()),
            _ if call.flag("follow", false) => attributes(call, &real, &stat, directory),
            _ => Err(format!("{} is a symbolic link; `follow: true` changes what it leads to", path.display())),
        };
    }
    let want = call.attributes(Some(stat), 0o644, directory)?;
    let changes = attribute_changes(stat, want);
    if changes.is_empty() {
        return Ok(Outcome::default());
    }
    call.ground.keep(path)?;
    call.ground.node.set_attributes(path, want)?;
    Ok(Outcome::changed(changes.join(", ")))
}

/// Makes an empty file if there is none, else sets its time to now unless `modification_time: preserve` is given.
fn touch(call: &mut Call, path: &Path, now: Option<&Stat>) -> Answer {
    match now {
        None => {
            let want = call.attributes(None, 0o644, false)?;
            call.ground.keep(path)?;
            call.ground.node.write(path, b"", want, &mut |_| Ok(()))?;
            Ok(Outcome::changed("created"))
        }
        Some(stat) => {
            let mut out = attributes(call, path, stat, safe::kind(stat) == FileType::Directory)?;
            let keep = |v: Option<String>| v.is_some_and(|t| t == "preserve");
            if safe::kind(stat) == FileType::RegularFile && !keep(call.text(&["modification_time"])) {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let now = now.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
                call.ground.node.set_times(path, None, Some(now))?;
                out.changed = true;
            }
            Ok(out)
        }
    }
}

fn link(call: &mut Call, path: &Path, now: Option<&Stat>) -> Answer {
    let Some(target) = call.text(&["src"]).map(PathBuf::from) else {
        return match now {
            Some(stat) if safe::kind(stat) == FileType::Symlink => Ok(Outcome::default()),
            _ => Err("`src` is missing: where the link leads".into()),
        };
    };
    let force = call.flag("force", false);
    let seen = if target.is_absolute() { target.clone() } else { path.parent().unwrap_or(path).join(&target) };
    if !force && call.ground.node.follow(&seen).is_none() {
        let message = format!("{} leads nowhere; `force: true` makes the link all the same", target.display());
        return Err(call.ground.node.missing(message));
    }
    match now {
        Some(stat) if safe::kind(stat) == FileType::Symlink => {
            if call.ground.node.read_link(path)? == target {
                return Ok(Outcome::default());
            }
            call.ground.keep(path)?;
        }
        Some(stat) if force && safe::kind(stat) != FileType::Directory => {
            call.ground.take_away(path, stat)?;
        }
        Some(_) => return Err(format!("{} is there and is no link; `force: true` replaces a file", path.display())),
        None => call.ground.keep(path)?,
    }
    call.ground.node.link(path, &target)?;
    Ok(Outcome::changed(format!("leads to {}", target.display())))
}

fn hard(call: &mut Call, path: &Path, now: Option<&Stat>) -> Answer {
    let source = call.path(&["src"])?;
    let from = call
        .ground
        .node
        .look(&source)?
        .ok_or_else(|| call.ground.node.missing(format!("{} is not there", source.display())))?;
    if let Some(stat) = now {
        if (stat.st_dev, stat.st_ino) == (from.st_dev, from.st_ino) {
            return Ok(Outcome::default());
        }
        if !call.flag("force", false) {
            return Err(format!("{} is there; `force: true` replaces it", path.display()));
        }
        call.ground.take_away(path, stat)?;
    } else {
        call.ground.keep(path)?;
    }
    call.ground.node.second_name(&source, path)?;
    Ok(Outcome::changed(format!("is {}", source.display())))
}
