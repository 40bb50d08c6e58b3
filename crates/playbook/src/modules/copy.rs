//! The `copy` module: copies a file or a directory from the fleet directory or from the node
//! itself.

use super::content::{ContentError, apply_preserved_mode, content_of, find_asset};
use super::{ModuleCall, ModuleResult, TaskOutcome, checksum, describe_changes, write_file};
use crate::os::atomic_fs::{self, Attributes};
use crate::plan::Asset;
use crate::run::event::AttributeChange;
use crate::vars::scope::with_trace;
use rustix::fs::FileType;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Maximum number of entries in a directory that is copied.
const TREE_MAX: usize = 100_000;

pub fn copy(call: &mut ModuleCall) -> ModuleResult {
    let dest = call.path(&["dest"])?;
    if call.depends_on_skipped_command(&dest) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            dest.display()
        )));
    }
    let mut out =
        if call.flag("remote_src", false) { copy_from_node(call, &dest) } else { copy_from_plan(call, &dest) }?;
    if let Some(src) = call.text(&["src"]) {
        out.extra_keys.insert("src".into(), json!(src));
    }
    Ok(out)
}

/// Copies a file or directory of the fleet directory to `dest`.
fn copy_from_plan(call: &mut ModuleCall, dest: &Path) -> ModuleResult {
    let src = call.text(&["src"]).unwrap_or_default();
    let plain = src.trim_end_matches('/').strip_prefix("./").unwrap_or(src.trim_end_matches('/')).to_owned();
    let below = format!("{plain}/");
    let files: Vec<(String, Asset)> = match call.args.contains_key("content") {
        true => Vec::new(),
        false => {
            let assets = call.task.files.assets.iter();
            assets.filter_map(|(n, a)| Some((n.strip_prefix(&below)?.to_owned(), a.clone()))).collect()
        }
    };
    if files.is_empty() {
        let (content, trace) = with_trace(|| content_of(call.plan, call.task, &call.args, call.scope));
        if trace.unknown {
            return Ok(TaskOutcome::indeterminate("its content depends on a result that is unknown in check mode"));
        }
        let (content, source) = content?;
        verify_checksum(call, &checksum::bytes_checksum(&content, "sha1")?)?;
        if let Some(asset) = find_asset(call.task, &src).cloned() {
            apply_preserved_mode(call, &asset)?;
        }
        create_directory_dest(call, dest)?;
        return write_file::write_content(call, dest, content, &source, Path::new(&src));
    }
    let top = tree_destination(call, dest, &src)?;
    let mut all = TaskOutcome::default();
    make_directories(call, &top, &mut all)?;
    let mode = call.args.get("mode").cloned();
    for (name, asset) in files {
        mode.iter().for_each(|mode| drop(call.args.insert("mode".into(), mode.clone())));
        apply_preserved_mode(call, &asset)?;
        let content = super::content::asset_content(call.plan, &asset).map_err(ContentError::Source)?.to_vec();
        let path = top.join(&name);
        make_directories(call, path.parent().unwrap_or(&top), &mut all)?;
        let Some((path, now)) = write_file::resolve_target(call, &path)? else { continue };
        let old = write_file::read_old(call, &path, now.as_ref())?;
        let one = write_file::update_file(call, &path, old, content, &asset.path)?;
        merge_outcome(&mut all, one);
    }
    Ok(finish_tree(call, all, dest))
}

/// Copies a file or directory of the node (`remote_src`) to `dest`.
fn copy_from_node(call: &mut ModuleCall, dest: &Path) -> ModuleResult {
    let src = call.path(&["src"])?;
    if call.depends_on_skipped_command(&src) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            src.display()
        )));
    }
    let Some((real, stat)) = call.ground.node.find_trusted(&src)? else {
        return Err(call.ground.node.note_missing(format!("{} does not exist", src.display())));
    };
    if atomic_fs::kind(&stat) != FileType::Directory {
        let preserve = call.text(&["mode"]).as_deref() == Some("preserve");
        if preserve {
            call.args.insert("mode".into(), json!(format!("{:04o}", atomic_fs::mode_of(&stat))));
        }
        if call.args.contains_key("checksum") {
            verify_checksum(call, &checksum::file_checksum(&call.ground.node, &real, "sha1")?)?;
        }
        create_directory_dest(call, dest)?;
        if write_file::is_large(&stat) {
            return write_file::copy_large(call, &real, dest, 0o644);
        }
        let content = call.ground.node.read(&real)?;
        return write_file::write_content(call, dest, content, &src.display().to_string(), &src);
    }
    let asked = call.text(&["src"]).unwrap_or_default();
    let top = tree_destination(call, dest, &asked)?;
    if top.starts_with(&real) {
        return Err(format!(
            "{} is inside {}, the directory that would be copied into it",
            top.display(),
            src.display()
        ));
    }
    let mut all = TaskOutcome::default();
    make_directories(call, &top, &mut all)?;
    let follow = call.flag("local_follow", true);
    for (inner, stat) in call.ground.node.walk(&real, TREE_MAX)? {
        let to = top.join(inner.strip_prefix(&real).unwrap_or(&inner));
        let (from, stat) = match atomic_fs::kind(&stat) {
            FileType::Symlink if follow => match call.ground.node.find_trusted(&inner)? {
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
        match atomic_fs::kind(&stat) {
            FileType::Directory if from != inner => {
                return Err(format!(
                    "{} is a symbolic link to a directory; `local_follow: false` copies the link itself",
                    inner.display()
                ));
            }
            FileType::Directory => make_directory(call, &to, Some(atomic_fs::mode_of(&stat)), &mut all)?,
            FileType::Symlink => {
                let target = call.ground.node.read_link(&from)?;
                let now = call.ground.node.stat(&to)?;
                let same = now.is_some_and(|s| atomic_fs::kind(&s) == FileType::Symlink)
                    && call.ground.node.read_link(&to)? == target;
                if !same {
                    call.ground.back_up_replaced(&to)?;
                    call.ground.node.link(&to, &target)?;
                    all.changed = true;
                }
            }
            FileType::RegularFile if write_file::is_large(&stat) => {
                let one = write_file::copy_large(call, &from, &to, atomic_fs::mode_of(&stat))?;
                merge_outcome(&mut all, one);
            }
            FileType::RegularFile => {
                let Some((to, now)) = write_file::resolve_target(call, &to)? else { continue };
                let old = write_file::read_old(call, &to, now.as_ref())?;
                let content = call.ground.node.read(&from)?;
                let one = write_file::update_file_with_mode(
                    call,
                    &to,
                    old,
                    content,
                    &from.display().to_string(),
                    atomic_fs::mode_of(&stat),
                )?;
                merge_outcome(&mut all, one);
            }
            _ => return Err(format!("{} is not a file, directory or symbolic link", inner.display())),
        }
    }
    Ok(finish_tree(call, all, dest))
}

/// The directory that receives the content of a source directory. As with rsync, `src/` copies the
/// content into `dest`, and `src` creates a directory of that name in `dest`.
fn tree_destination(call: &ModuleCall, dest: &Path, src: &str) -> Result<PathBuf, String> {
    if let Some((real, stat)) = call.ground.node.follow(dest)
        && atomic_fs::kind(&stat) != FileType::Directory
    {
        return Err(format!("{} exists and is not a directory", real.display()));
    }
    let whole = src.ends_with('/') || src.ends_with("/.");
    let name = Path::new(src.trim_end_matches('/')).file_name().filter(|_| !whole);
    Ok(name.map_or_else(|| dest.to_owned(), |name| dest.join(name)))
}

/// Creates `dest` as a directory if it ends with a slash.
fn create_directory_dest(call: &mut ModuleCall, dest: &Path) -> Result<(), String> {
    if call.text(&["dest"]).is_some_and(|d| d.ends_with('/')) {
        let mut made = TaskOutcome::default();
        make_directories(call, dest, &mut made)?;
    }
    Ok(())
}

/// Creates a directory and its missing parents.
fn make_directories(call: &mut ModuleCall, path: &Path, all: &mut TaskOutcome) -> Result<(), String> {
    let mut missing = Vec::new();
    let mut at = path;
    while call.ground.node.follow(at).is_none() {
        missing.push(at.to_owned());
        at = at.parent().ok_or("the path has no parent")?;
    }
    for dir in missing.into_iter().rev() {
        make_directory(call, &dir, None, all)?;
    }
    Ok(())
}

fn make_directory(call: &mut ModuleCall, dir: &Path, mode: Option<u32>, all: &mut TaskOutcome) -> Result<(), String> {
    if call.ground.node.is_directory(dir) {
        return Ok(());
    }
    let mut want = call.attributes(None, 0o755, true)?;
    let named = call.text(&["directory_mode"]).map(|m| crate::os::accounts::mode(&m, 0o755, true)).transpose()?;
    want = Attributes { mode: named.or(mode).or(Some(0o755)), ..want };
    call.ground.back_up(dir)?;
    call.ground.node.make_directory(dir, want)?;
    all.changed = true;
    all.attributes.push(AttributeChange::new("state", "absent", format!("directory {}", dir.display())));
    Ok(())
}

/// Fails if the `checksum` option does not match this SHA-1 checksum.
fn verify_checksum(call: &ModuleCall, sum: &str) -> Result<(), String> {
    match call.text(&["checksum"]).filter(|want| !want.eq_ignore_ascii_case(sum)) {
        None => Ok(()),
        Some(want) => Err(format!("SHA-1 checksum is {sum}, expected {want}; nothing was copied")),
    }
}

/// Adds the outcome of one file to the outcome of the whole directory tree.
fn merge_outcome(all: &mut TaskOutcome, one: TaskOutcome) {
    all.changed |= one.changed;
    if one.changed {
        all.attributes.extend(one.attributes);
        if let Some(diff) = one.diff.filter(|d| d.len() + all.diff.as_ref().map_or(0, String::len) <= 256 << 10) {
            all.diff.get_or_insert_default().push_str(&diff);
        }
    }
}

/// Adds the message and the result keys to the outcome of a copied directory tree.
fn finish_tree(call: &ModuleCall, mut all: TaskOutcome, dest: &Path) -> TaskOutcome {
    all.msg = if all.changed { "copied".into() } else { String::new() };
    if all.changed && all.diff.is_none() {
        all.msg = format!("copied; {}", describe_changes(&all.attributes))
            .trim_end_matches("; ")
            .chars()
            .take(2000)
            .collect();
    }
    all.extra_keys.insert("dest".into(), json!(dest.display().to_string()));
    all.extra_keys.insert("path".into(), json!(dest.display().to_string()));
    call.add_path_info(dest, &mut all);
    all
}
