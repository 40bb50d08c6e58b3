//! The `copy` module: copies a file or a directory from the fleet directory or from the node
//! itself.

use super::content::{ContentError, asset, content_of, preserve};
use super::{Answer, Call, Outcome, checksum, place, said};
use crate::event::AttributeChange;
use crate::plan::Asset;
use crate::safe::{self, Attributes};
use crate::scope::traced;
use rustix::fs::FileType;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Maximum number of entries in a directory that is copied.
const TREE_MAX: usize = 100_000;

pub fn copy(call: &mut Call) -> Answer {
    let dest = call.path(&["dest"])?;
    if call.is_by_command(&dest) {
        return Ok(Outcome::unknown(format!("{} depends on a command that check mode did not run", dest.display())));
    }
    let mut out = if call.flag("remote_src", false) { of_the_node(call, &dest) } else { of_the_plan(call, &dest) }?;
    if let Some(src) = call.text(&["src"]) {
        out.more.insert("src".into(), json!(src));
    }
    Ok(out)
}

/// Copies from the fleet directory.
fn of_the_plan(call: &mut Call, dest: &Path) -> Answer {
    let src = call.text(&["src"]).unwrap_or_default();
    let plain = src.trim_end_matches('/').strip_prefix("./").unwrap_or(src.trim_end_matches('/')).to_owned();
    let below = format!("{plain}/");
    let files: Vec<(String, Asset)> = match call.args.contains_key("content") {
        true => Vec::new(),
        false => {
            call.task.assets.iter().filter_map(|(n, a)| Some((n.strip_prefix(&below)?.to_owned(), a.clone()))).collect()
        }
    };
    if files.is_empty() {
        let (content, trace) = traced(|| content_of(call.plan, call.task, &call.args, call.scope));
        if trace.unknown {
            return Ok(Outcome::unknown("its content depends on a result that is unknown in check mode"));
        }
        let (content, source) = content?;
        sum_fits(call, &checksum::sum(&content, "sha1")?)?;
        if let Some(asset) = asset(call.task, &src).cloned() {
            preserve(call, &asset)?;
        }
        ends_in_directory(call, dest)?;
        return place::place(call, dest, content, &source, Path::new(&src));
    }
    let top = into(call, dest, &src)?;
    let mut all = Outcome::default();
    make_directories(call, &top, &mut all)?;
    let mode = call.args.get("mode").cloned();
    for (name, asset) in files {
        mode.iter().for_each(|mode| drop(call.args.insert("mode".into(), mode.clone())));
        preserve(call, &asset)?;
        let content = super::content::blob(call.plan, &asset).map_err(ContentError::Source)?.to_vec();
        let path = top.join(&name);
        make_directories(call, path.parent().unwrap_or(&top), &mut all)?;
        let Some((path, now)) = place::regular(call, &path)? else { continue };
        let old = place::old(call, &path, now.as_ref())?;
        let one = place::finish(call, &path, old, content, &asset.path)?;
        join(&mut all, one);
    }
    Ok(ended(call, all, dest))
}

/// Copies a path of the node (`remote_src`).
fn of_the_node(call: &mut Call, dest: &Path) -> Answer {
    let src = call.path(&["src"])?;
    if call.is_by_command(&src) {
        return Ok(Outcome::unknown(format!("{} depends on a command that check mode did not run", src.display())));
    }
    let Some((real, stat)) = call.ground.node.lead_to(&src)? else {
        return Err(call.ground.node.missing(format!("{} does not exist", src.display())));
    };
    if safe::kind(&stat) != FileType::Directory {
        let preserve = call.text(&["mode"]).as_deref() == Some("preserve");
        if preserve {
            call.args.insert("mode".into(), json!(format!("{:04o}", safe::mode_of(&stat))));
        }
        if call.args.contains_key("checksum") {
            sum_fits(call, &checksum::of(&call.ground.node, &real, "sha1")?)?;
        }
        ends_in_directory(call, dest)?;
        if place::is_large(&stat) {
            return place::large(call, &real, dest, 0o644);
        }
        let content = call.ground.node.read(&real)?;
        return place::place(call, dest, content, &src.display().to_string(), &src);
    }
    let asked = call.text(&["src"]).unwrap_or_default();
    let top = into(call, dest, &asked)?;
    if top.starts_with(&real) {
        return Err(format!(
            "{} is inside {}, the directory that would be copied into it",
            top.display(),
            src.display()
        ));
    }
    let mut all = Outcome::default();
    make_directories(call, &top, &mut all)?;
    let follow = call.flag("local_follow", true);
    for (inner, stat) in call.ground.node.walk(&real, TREE_MAX)? {
        let to = top.join(inner.strip_prefix(&real).unwrap_or(&inner));
        let (from, stat) = match safe::kind(&stat) {
            FileType::Symlink if follow => match call.ground.node.lead_to(&inner)? {
                Some(led) => led,
                None => {
                    return Err(format!(
                        "{} is a dangling symbolic link; `local_follow: false` copies the link itself",
                        inner.display()
                    ));
                }
            },
            _ => (inner.clone(), stat),
        };
        match safe::kind(&stat) {
            FileType::Directory if from != inner => {
                return Err(format!(
                    "{} is a symbolic link to a directory; `local_follow: false` copies the link itself",
                    inner.display()
                ));
            }
            FileType::Directory => make_one(call, &to, Some(safe::mode_of(&stat)), &mut all)?,
            FileType::Symlink => {
                let target = call.ground.node.read_link(&from)?;
                let now = call.ground.node.look(&to)?;
                let same = now.is_some_and(|s| safe::kind(&s) == FileType::Symlink)
                    && call.ground.node.read_link(&to)? == target;
                if !same {
                    call.ground.keep_exchanged(&to)?;
                    call.ground.node.link(&to, &target)?;
                    all.changed = true;
                }
            }
            FileType::RegularFile if place::is_large(&stat) => {
                let one = place::large(call, &from, &to, safe::mode_of(&stat))?;
                join(&mut all, one);
            }
            FileType::RegularFile => {
                let Some((to, now)) = place::regular(call, &to)? else { continue };
                let old = place::old(call, &to, now.as_ref())?;
                let content = call.ground.node.read(&from)?;
                let one =
                    place::finish_with(call, &to, old, content, &from.display().to_string(), safe::mode_of(&stat))?;
                join(&mut all, one);
            }
            _ => return Err(format!("{} is not a file, directory or symbolic link", inner.display())),
        }
    }
    Ok(ended(call, all, dest))
}

/// The directory that receives the content of a source directory. As with rsync, `src/` copies the
/// content into `dest`, and `src` creates a directory of that name in `dest`.
fn into(call: &Call, dest: &Path, src: &str) -> Result<PathBuf, String> {
    if let Some((real, stat)) = call.ground.node.follow(dest)
        && safe::kind(&stat) != FileType::Directory
    {
        return Err(format!("{} exists and is not a directory", real.display()));
    }
    let whole = src.ends_with('/') || src.ends_with("/.");
    let name = Path::new(src.trim_end_matches('/')).file_name().filter(|_| !whole);
    Ok(name.map_or_else(|| dest.to_owned(), |name| dest.join(name)))
}

/// Creates `dest` as a directory if it ends with a slash.
fn ends_in_directory(call: &mut Call, dest: &Path) -> Result<(), String> {
    if call.text(&["dest"]).is_some_and(|d| d.ends_with('/')) {
        let mut made = Outcome::default();
        make_directories(call, dest, &mut made)?;
    }
    Ok(())
}

/// Creates a directory and its missing parents.
fn make_directories(call: &mut Call, path: &Path, all: &mut Outcome) -> Result<(), String> {
    let mut missing = Vec::new();
    let mut at = path;
    while call.ground.node.follow(at).is_none() {
        missing.push(at.to_owned());
        at = at.parent().ok_or("the path has no parent")?;
    }
    for dir in missing.into_iter().rev() {
        make_one(call, &dir, None, all)?;
    }
    Ok(())
}

fn make_one(call: &mut Call, dir: &Path, mode: Option<u32>, all: &mut Outcome) -> Result<(), String> {
    if call.ground.node.is_directory(dir) {
        return Ok(());
    }
    let mut want = call.attributes(None, 0o755, true)?;
    let named = call.text(&["directory_mode"]).map(|m| crate::owner::mode(&m, 0o755, true)).transpose()?;
    want = Attributes { mode: named.or(mode).or(Some(0o755)), ..want };
    call.ground.keep(dir)?;
    call.ground.node.make_directory(dir, want)?;
    all.changed = true;
    all.attributes.push(AttributeChange::new("state", "absent", format!("directory {}", dir.display())));
    Ok(())
}

/// Fails if the `checksum` option does not match this SHA-1 checksum.
fn sum_fits(call: &Call, sum: &str) -> Result<(), String> {
    match call.text(&["checksum"]).filter(|want| !want.eq_ignore_ascii_case(sum)) {
        None => Ok(()),
        Some(want) => Err(format!("SHA-1 checksum is {sum}, expected {want}; nothing was copied")),
    }
}

/// Adds the outcome of one file to that of the whole tree.
fn join(all: &mut Outcome, one: Outcome) {
    all.changed |= one.changed;
    if one.changed {
        all.attributes.extend(one.attributes);
        if let Some(diff) = one.diff.filter(|d| d.len() + all.diff.as_ref().map_or(0, String::len) <= 256 << 10) {
            all.diff.get_or_insert_default().push_str(&diff);
        }
    }
}

/// Completes the outcome of a copied tree.
fn ended(call: &Call, mut all: Outcome, dest: &Path) -> Outcome {
    all.msg = if all.changed { "copied".into() } else { String::new() };
    if all.changed && all.diff.is_none() {
        all.msg = format!("copied; {}", said(&all.attributes)).trim_end_matches("; ").chars().take(2000).collect();
    }
    all.more.insert("dest".into(), json!(dest.display().to_string()));
    all.more.insert("path".into(), json!(dest.display().to_string()));
    call.path_info(dest, &mut all);
    all
}
