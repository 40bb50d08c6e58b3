//! The modules `find` (lists files) and `slurp` (returns the content of a file).

use super::{ModuleCall, ModuleResult, TaskOutcome, checksum, chunked_search};
use crate::lang::file_regex::FileRegex;
use crate::lang::pyregex;
use crate::os::atomic_fs;
use base64::Engine as _;
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::Regex;
use rustix::fs::{FileType, Stat};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of directory entries that one `find` examines.
const EXAMINED_MAX: usize = 500_000;
/// Maximum memory in bytes for the results of one `find`. Each result counts as `MATCH_BYTES` plus
/// the length of its path.
const MATCHED_MAX: usize = 128 << 20;
const MATCH_BYTES: usize = 1 << 10;
/// Maximum size of a file that `slurp` reads, in bytes.
const SLURPED_MAX: i64 = 16 << 20;

pub fn slurp(call: &mut ModuleCall) -> ModuleResult {
    let path = call.path(&["src", "path"])?;
    if call.depends_on_skipped_command(&path) {
        return Ok(TaskOutcome::indeterminate(format!(
            "{} depends on a command that check mode did not run",
            path.display()
        )));
    }
    let Some((real, stat)) = call.ground.node.follow(&path) else {
        return Err(call.ground.node.note_missing(format!("{} does not exist", path.display())));
    };
    if stat.st_size > SLURPED_MAX {
        return Err(format!("{} is larger than {} MiB", path.display(), SLURPED_MAX >> 20));
    }
    let content = call.ground.node.read(&real)?;
    let mut out = TaskOutcome::default();
    out.extra_keys.insert("content".into(), json!(base64::engine::general_purpose::STANDARD.encode(content)));
    out.extra_keys.insert("source".into(), json!(path.display().to_string()));
    out.extra_keys.insert("encoding".into(), json!("base64"));
    Ok(out)
}

/// Patterns of file names to include or exclude.
enum NamePatterns {
    Globs(Vec<GlobMatcher>),
    Patterns(Vec<FileRegex>),
}

impl NamePatterns {
    fn from_options(call: &ModuleCall, options: &[&str]) -> Result<Option<Self>, String> {
        // A text with regular expressions is not split at commas, because a regular expression may
        // contain a comma.
        let texts = match options.iter().find_map(|o| call.args.get(*o)) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(s)) if call.flag("use_regex", false) => vec![s.clone()],
            Some(_) => call.list(options),
        };
        if call.flag("use_regex", false) {
            let patterns = texts.iter().map(|t| super::lineinfile::compile_pattern(&format!("^(?:{t})")));
            return Ok(Some(Self::Patterns(patterns.collect::<Result<_, _>>()?)));
        }
        let glob = |t: &String| GlobBuilder::new(t).build().map(|g| g.compile_matcher()).map_err(|e| e.to_string());
        Ok(Some(Self::Globs(texts.iter().map(glob).collect::<Result<_, _>>()?)))
    }

    /// Fails if a pattern takes too many steps, because its answer would be wrong.
    fn matches_name(&self, name: &str) -> Result<bool, String> {
        match self {
            Self::Globs(globs) => Ok(globs.iter().any(|g| g.is_match(name))),
            Self::Patterns(patterns) => {
                let found = patterns.iter().any(|p| p.is_match(name.as_bytes()));
                patterns.iter().try_for_each(|p| p.check()).map(|()| found)
            }
        }
    }
}

/// The search criteria of `find`.
struct FindCriteria {
    names: Option<NamePatterns>,
    excludes: Option<NamePatterns>,
    kind: String,
    hidden: bool,
    /// Limit of the age of a file in seconds. A positive value is the minimum age, a negative value
    /// the maximum.
    age: Option<i64>,
    stamp: String,
    /// Limit of the size of a file in bytes. A positive value is the minimum size, a negative value
    /// the maximum.
    size: Option<i64>,
    mode: Option<u32>,
    exact_mode: bool,
    contains: Option<Regex>,
    whole: bool,
    now: i64,
}

pub fn find(call: &mut ModuleCall) -> ModuleResult {
    let wanted = parse_criteria(call)?;
    let recurse = call.flag("recurse", false);
    let depth = call
        .text(&["depth"])
        .map(|d| d.parse::<usize>().map_err(|_| format!("`depth` is not a number: {d}")))
        .transpose()?;
    let limit = call
        .text(&["limit"])
        .map(|l| l.parse::<usize>().map_err(|_| format!("`limit` is not a number: {l}")))
        .transpose()?;
    let algorithm = call.text(&["checksum_algorithm", "checksum", "checksum_algo"]).unwrap_or_else(|| "sha1".into());
    let sums = call.flag("get_checksum", false);
    let node = &call.ground.node;
    let (mut files, mut skipped, mut examined, mut matched) = (Vec::new(), serde_json::Map::new(), 0, 0);
    for top in call.list(&["paths", "name", "path"]).iter().map(|top| call.expand(top)) {
        let Some((real, _)) = node.follow(Path::new(&top)).filter(|(_, s)| atomic_fs::kind(s) == FileType::Directory)
        else {
            skipped.insert(top.clone(), json!(format!("'{top}' is not a directory")));
            continue;
        };
        let shown = |real_path: &Path| Path::new(&top).join(real_path.strip_prefix(&real).unwrap_or(real_path));
        let mut open = vec![(real.clone(), 1)];
        while let Some((dir, level)) = open.pop() {
            let mut below = Vec::new();
            for name in node.list(&dir)? {
                let path = dir.join(&name);
                let Some(mut stat) = node.stat(&path)? else { continue };
                if call.cancel.is_cancelled() {
                    return Err("was cancelled".into());
                }
                examined += 1;
                if examined > EXAMINED_MAX {
                    return Err(format!("more than {EXAMINED_MAX} entries would be examined"));
                }
                if call.flag("follow", false)
                    && let Some((_, led)) = node.follow(&path)
                {
                    stat = led;
                }
                let name = name.to_string_lossy();
                if atomic_fs::kind(&stat) == FileType::Directory && recurse && depth.is_none_or(|d| level < d) {
                    let hides = name.starts_with('.') && !wanted.hidden;
                    let real = node.stat(&path)?.is_some_and(|s| atomic_fs::kind(&s) == FileType::Directory);
                    below.extend((!hides && real).then(|| (path.clone(), level + 1)));
                }
                if wanted.matches_file(call, &path, &name, &stat)? && limit.is_none_or(|l| files.len() < l) {
                    let mut entry = describe_file(call, &shown(&path), &stat);
                    if sums && atomic_fs::kind(&stat) == FileType::RegularFile {
                        entry["checksum"] = json!(checksum::file_checksum(node, &path, &algorithm).ok());
                    }
                    matched += MATCH_BYTES + path.as_os_str().len();
                    if matched > MATCHED_MAX {
                        let memory = "their results take more than";
                        return Err(format!(
                            "{} files match: {memory} {} MiB; narrow the search",
                            files.len(),
                            MATCHED_MAX >> 20
                        ));
                    }
                    files.push(entry);
                }
            }
            open.extend(below.into_iter().rev());
        }
    }
    let mut out = TaskOutcome::ok(if skipped.is_empty() {
        "All paths examined"
    } else {
        "Not all paths examined, check warnings for details"
    });
    out.extra_keys.insert("matched".into(), json!(files.len()));
    out.extra_keys.insert("files".into(), json!(files));
    out.extra_keys.insert("examined".into(), json!(examined));
    out.extra_keys.insert("skipped_paths".into(), json!(skipped));
    Ok(out)
}

fn parse_criteria(call: &ModuleCall) -> Result<FindCriteria, String> {
    let scaled = |option: &str, units: &[(&str, i64)]| -> Result<Option<i64>, String> {
        let Some(text) = call.text(&[option]) else { return Ok(None) };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[digits.len()..].to_ascii_lowercase();
        let factor = if unit.is_empty() { Some(1) } else { units.iter().find(|(u, _)| *u == unit).map(|(_, f)| *f) };
        let number = digits.parse::<i64>().ok().zip(factor).and_then(|(n, f)| n.checked_mul(f));
        number.map(Some).ok_or_else(|| format!("`{option}` is not valid: {text}"))
    };
    let whole = call.flag("read_whole_file", false);
    let contains = call.text(&["contains"]).map(|text| {
        let built = pyregex::bytes(&text).multi_line(whole).build();
        built.map_err(|e| format!("pattern `{text}`: {e}"))
    });
    Ok(FindCriteria {
        names: NamePatterns::from_options(call, &["patterns", "pattern"])?,
        excludes: NamePatterns::from_options(call, &["excludes", "exclude"])?,
        kind: call.text(&["file_type"]).unwrap_or_else(|| "file".into()),
        hidden: call.flag("hidden", false),
        age: scaled("age", &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)])?,
        stamp: call.text(&["age_stamp"]).unwrap_or_else(|| "mtime".into()),
        size: scaled("size", &[("b", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)])?,
        mode: call.text(&["mode"]).map(|m| crate::os::accounts::mode(&m, 0, false)).transpose()?,
        exact_mode: call.flag("exact_mode", true),
        contains: contains.transpose()?,
        whole,
        now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX)),
    })
}

impl FindCriteria {
    /// Whether a file meets all criteria.
    fn matches_file(&self, call: &ModuleCall, path: &Path, name: &str, stat: &Stat) -> Result<bool, String> {
        let kind = atomic_fs::kind(stat);
        let of_kind = match self.kind.as_str() {
            "any" => true,
            "directory" => kind == FileType::Directory,
            "link" => kind == FileType::Symlink,
            _ => kind == FileType::RegularFile,
        };
        let bound = |value: i64, want: Option<i64>| match want {
            None => true,
            Some(want) if want >= 0 => value >= want,
            Some(want) => value <= -want,
        };
        let time = match self.stamp.as_str() {
            "atime" => stat.st_atime,
            "ctime" => stat.st_ctime,
            _ => stat.st_mtime,
        };
        let mode = atomic_fs::mode_of(stat);
        let of_mode = self.mode.is_none_or(|want| if self.exact_mode { mode == want } else { mode & want == want });
        let matches = |names: &Option<NamePatterns>| names.as_ref().map(|names| names.matches_name(name)).transpose();
        let plain = of_kind
            && (self.hidden || !name.starts_with('.'))
            && matches(&self.names)?.unwrap_or(true)
            && !matches(&self.excludes)?.unwrap_or(false)
            && bound(self.now.saturating_sub(time), self.age)
            && of_mode;
        let sized = kind != FileType::RegularFile || bound(stat.st_size, self.size);
        let Some(pattern) = self.contains.as_ref().filter(|_| plain && sized && kind == FileType::RegularFile) else {
            return Ok(plain && sized);
        };
        let fits = |text: &[u8]| match self.whole {
            true => pattern.is_match(text),
            // Like Python's `match`, the pattern must match at the start of the line.
            false => text.split(|b| *b == b'\n').any(|l| pattern.find(l).is_some_and(|m| m.start() == 0)),
        };
        let found = chunked_search::find_first(&mut call.ground.node.open(path)?, |text| fits(text).then_some(()));
        Ok(found.map_err(|e| format!("{}: {e}", path.display()))?.is_some())
    }
}

/// The result entry of one file, with the keys of Ansible's `find`.
fn describe_file(call: &ModuleCall, path: &Path, stat: &Stat) -> Value {
    let mode = atomic_fs::mode_of(stat);
    let kind = atomic_fs::kind(stat);
    let has = |bit: u32| mode & bit != 0;
    let node = &call.ground.node;
    let name = |entry: Option<Vec<String>>| entry.and_then(|e| e.into_iter().next()).unwrap_or_default();
    json!({
        "path": path.display().to_string(), "mode": format!("{mode:04o}"), "isdir": kind == FileType::Directory,
        "isreg": kind == FileType::RegularFile, "islnk": kind == FileType::Symlink, "issock": kind == FileType::Socket,
        "isfifo": kind == FileType::Fifo, "isblk": kind == FileType::BlockDevice, "ischr": kind == FileType::CharacterDevice,
        "uid": stat.st_uid, "gid": stat.st_gid, "size": stat.st_size, "inode": stat.st_ino, "dev": stat.st_dev,
        "nlink": stat.st_nlink, "atime": stat.st_atime, "mtime": stat.st_mtime, "ctime": stat.st_ctime,
        "gr_name": name(node.group(&stat.st_gid.to_string())), "pw_name": name(node.user(&stat.st_uid.to_string())),
        "wusr": has(0o200), "rusr": has(0o400), "xusr": has(0o100), "wgrp": has(0o020), "rgrp": has(0o040),
        "xgrp": has(0o010), "woth": has(0o002), "roth": has(0o004), "xoth": has(0o001), "isuid": has(0o4000),
        "isgid": has(0o2000),
    })
}
