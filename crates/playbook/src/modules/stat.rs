//! The `stat` module: metadata, checksum and attribute flags of a path.

use super::{ModuleCall, ModuleResult, TaskOutcome, account, checksum};
use crate::os::atomic_fs;
use crate::vars::unknown;
use rustix::fs::{Access, AtFlags, CWD, FileType, IFlags, Stat};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Maximum size of a file for which a checksum is computed, in bytes.
const SUMMED_MAX: u64 = 64 << 30;

pub fn stat(call: &mut ModuleCall) -> ModuleResult {
    let mut path = call.path(&["path", "dest", "name"])?;
    let mut out = TaskOutcome::default();
    if call.depends_on_skipped_command(&path) {
        out.extra_keys.insert("stat".into(), unknown::open(Map::new()));
        return Ok(out);
    }
    let node = &call.ground.node;
    let asked = path.clone();
    let found = if call.flag("follow", false) {
        node.follow(&path).map(|(real, stat)| {
            path = real;
            stat
        })
    } else {
        if let (Some((dir, _)), Some(name)) = (path.parent().and_then(|dir| node.follow(dir)), path.file_name()) {
            // Links in parent directories may be followed, because `stat` only reads
            // (`/srv/app/current/VERSION`).
            path = dir.join(name);
        }
        node.stat(&path)?
    };
    let Some(stat) = found else {
        out.extra_keys.insert("stat".into(), json!({"exists": false}));
        return Ok(out);
    };
    let kind = atomic_fs::kind(&stat);
    let mut map = basic_keys(call, &asked, &stat);
    if kind == FileType::Symlink {
        map.insert("lnk_target".into(), json!(call.ground.node.read_link(&path)?.display().to_string()));
        let source = call.ground.node.follow(&path).map(|(real, _)| real.display().to_string());
        map.insert("lnk_source".into(), json!(source.unwrap_or_else(|| path.display().to_string())));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if kind == FileType::RegularFile && call.flag("get_checksum", true) && size <= SUMMED_MAX {
        let algorithm =
            call.text(&["checksum_algorithm", "checksum", "checksum_algo"]).unwrap_or_else(|| "sha1".into());
        let sum = checksum::file_checksum(&call.ground.node, &path, &algorithm);
        // Like Ansible, reports no checksum for a file that cannot be read.
        map.insert("checksum".into(), json!(sum.ok()));
    }
    add_mime(call, &path, &mut map);
    let on_disk = !call.ground.node.is_check_mode() || rustix::fs::lstat(&path).is_ok();
    if on_disk && call.flag("get_attributes", true) && matches!(kind, FileType::RegularFile | FileType::Directory) {
        add_attribute_flags(&path, &mut map);
    }
    out.extra_keys.insert("stat".into(), Value::Object(map));
    Ok(out)
}

/// The result keys that come directly from the metadata of the path.
fn basic_keys(call: &ModuleCall, asked: &Path, stat: &Stat) -> Map<String, Value> {
    let kind = atomic_fs::kind(stat);
    let mode = atomic_fs::mode_of(stat);
    let has = |bit: u32| mode & bit != 0;
    let time = |seconds: f64, nanos: f64| json!(seconds + nanos / 1e9);
    let name = |entry: Option<Vec<String>>| entry.and_then(|e| e.into_iter().next());
    // For a file on disk, the kernel checks the permission. For a file that is only predicted, the
    // result is what root would be permitted.
    let may = |access: Access, root: bool| match rustix::fs::lstat(asked) {
        Ok(_) => rustix::fs::accessat(CWD, asked, access, AtFlags::EACCESS).is_ok(),
        Err(_) => root,
    };
    let node = &call.ground.node;
    let id = |id: u32| account::id_value(id, node.is_check_mode());
    let all = json!({
        "exists": true, "path": asked.display().to_string(), "mode": format!("{mode:04o}"),
        "isdir": kind == FileType::Directory, "isreg": kind == FileType::RegularFile, "islnk": kind == FileType::Symlink,
        "issock": kind == FileType::Socket, "isfifo": kind == FileType::Fifo, "isblk": kind == FileType::BlockDevice,
        "ischr": kind == FileType::CharacterDevice,
        "uid": id(stat.st_uid), "gid": id(stat.st_gid), "size": stat.st_size, "inode": stat.st_ino, "dev": stat.st_dev,
        "nlink": stat.st_nlink, "blocks": stat.st_blocks, "block_size": stat.st_blksize, "device_type": stat.st_rdev,
        "wusr": has(0o200), "rusr": has(0o400), "xusr": has(0o100), "wgrp": has(0o020), "rgrp": has(0o040),
        "xgrp": has(0o010), "woth": has(0o002), "roth": has(0o004), "xoth": has(0o001), "isuid": has(0o4000),
        "isgid": has(0o2000),
        "readable": may(Access::READ_OK, true), "writeable": may(Access::WRITE_OK, true),
        "executable": may(Access::EXEC_OK, has(0o111)),
    });
    let Value::Object(mut map) = all else { return Map::new() };
    map.insert("atime".into(), time(stat.st_atime as f64, stat.st_atime_nsec as f64));
    map.insert("mtime".into(), time(stat.st_mtime as f64, stat.st_mtime_nsec as f64));
    map.insert("ctime".into(), time(stat.st_ctime as f64, stat.st_ctime_nsec as f64));
    map.extend(name(node.user(&stat.st_uid.to_string())).map(|n| ("pw_name".to_owned(), json!(n))));
    map.extend(name(node.group(&stat.st_gid.to_string())).map(|n| ("gr_name".to_owned(), json!(n))));
    map
}

/// Adds `mimetype` and `charset`. The `file` program determines them, but only if the task requests
/// it, because that costs a process.
fn add_mime(call: &ModuleCall, path: &Path, map: &mut Map<String, Value>) {
    let asked = ["get_mime", "mime", "mime_type", "mime-type"].iter().find_map(|name| call.given_flag(name));
    let mut said = ("unknown".to_owned(), "unknown".to_owned());
    if asked == Some(false) {
        return;
    }
    if asked == Some(true)
        && let Ok(done) =
            call.run_quietly(&["file", "--brief", "--mime-type", "--mime-encoding", "--", &path.display().to_string()])
        && done.success()
        && let Some((kind, charset)) = done.stdout.trim().split_once("; charset=")
    {
        said = (kind.to_owned(), charset.to_owned());
    }
    map.insert("mimetype".into(), json!(said.0));
    map.insert("charset".into(), json!(said.1));
}

/// Adds the attribute flags that `lsattr` shows.
fn add_attribute_flags(path: &Path, map: &mut Map<String, Value>) {
    const LETTERS: [(IFlags, char, &str); 12] = [
        (IFlags::SECURE_REMOVAL, 's', "secure_deletion"),
        (IFlags::UNRM, 'u', "undelete"),
        (IFlags::SYNC, 'S', "synchronous"),
        (IFlags::DIRSYNC, 'D', "dirsync"),
        (IFlags::IMMUTABLE, 'i', "immutable"),
        (IFlags::APPEND, 'a', "append"),
        (IFlags::NODUMP, 'd', "nodump"),
        (IFlags::NOATIME, 'A', "noatime"),
        (IFlags::COMPRESSED, 'c', "compressed"),
        (IFlags::JOURNALING, 'j', "journalled"),
        (IFlags::NOTAIL, 't', "notail"),
        (IFlags::NOCOW, 'C', "nocow"),
    ];
    let Ok(set) = atomic_fs::flags(path) else { return };
    let mut all: Vec<(char, &str)> =
        LETTERS.iter().filter(|(flag, ..)| set.contains(*flag)).map(|(_, letter, name)| (*letter, *name)).collect();
    if set.bits() & EXTENTS != 0 {
        all.push(('e', "extents"));
    }
    map.insert("attr_flags".into(), json!(all.iter().map(|(letter, _)| *letter).collect::<String>()));
    map.insert("attributes".into(), json!(all.iter().map(|(_, name)| *name).collect::<Vec<_>>()));
    map.insert("version".into(), Value::Null);
}

/// FS_EXTENT_FL, the flag `e` of lsattr; rustix has no name for it.
const EXTENTS: u32 = 0x0008_0000;
