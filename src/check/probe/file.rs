//! `file`: attributes of the path itself, content of what it leads to.

use super::mount;
use super::read::{content, filetype};
use super::{Answer, Answers, Ask, PRIVATE, failed, unknown};
use md5::Md5;
use serde_json::Value;
use sha2::Digest;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) fn ask(ask: &Ask) -> Answers {
    let path = match expand(ask) {
        Ok(path) => path,
        Err(why) => return Answers::from([("exists", Err(unknown(why)))]),
    };
    if let Err(trouble) = mount::answers(ask, &path) {
        return Answers::from([("exists", Err(trouble))]);
    }
    let meta = match fs::symlink_metadata(&path) {
        Ok(meta) => meta,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Answers::from([("exists", Ok(false.into()))]);
        }
        Err(e) => return Answers::from([("exists", Err(unknown(e)))]),
    };
    let names = ask.world.names();
    let mut answers = Answers::from([
        ("exists", Ok(true.into())),
        ("mode", Ok(format!("{:04o}", meta.mode() & 0o7777).into())),
        ("size", Ok(meta.len().into())),
        ("owner", Ok(names.owner(meta.uid()).into())),
        ("uid", Ok(meta.uid().into())),
        ("group", Ok(names.group(meta.gid()).into())),
        ("gid", Ok(meta.gid().into())),
        ("filetype", Ok(filetype(meta.file_type()).into())),
        ("linked-to", target(&path, &meta)),
        (PRIVATE, Ok(owners(&meta).into())),
    ]);
    if ["contents", "md5", "sha256", "sha512"].iter().any(|property| ask.wants(property)) {
        let content = content(ask, &path);
        // Of what it leads to, since that is whose content it is. What can't be looked at has none.
        answers.insert(PRIVATE, Ok(fs::metadata(&path).is_ok_and(|meta| owners(&meta)).into()));
        let of = |f: fn(&[u8]) -> Value| -> Answer { content.as_deref().map(f).map_err(Clone::clone) };
        answers.insert("contents", of(|bytes| String::from_utf8_lossy(bytes).into()));
        answers.insert("md5", of(|bytes| hex::encode(Md5::digest(bytes)).into()));
        answers.insert("sha256", of(|bytes| hex::encode(sha2::Sha256::digest(bytes)).into()));
        answers.insert("sha512", of(|bytes| hex::encode(sha2::Sha512::digest(bytes)).into()));
    }
    answers
}

/// Nobody but its owner may read it, as `remoor digest` says too.
fn owners(meta: &Metadata) -> bool {
    !meta.is_symlink() && meta.mode() & 0o044 == 0
}

/// `~` and `~user` stand for home directories.
fn expand(ask: &Ask) -> Result<PathBuf, String> {
    let name = ask.check.name.as_str();
    let Some(rest) = name.strip_prefix('~') else { return Ok(name.into()) };
    let (user, tail) = rest.split_once('/').unwrap_or((rest, ""));
    let user =
        if user.is_empty() { ask.world.names().owner(rustix::process::geteuid().as_raw()) } else { user.to_owned() };
    let home = ask.world.names().account(&user).map(|account| account.home.clone());
    home.map(|home| Path::new(&home).join(tail)).ok_or_else(|| format!("there is no user {user}"))
}

fn target(path: &Path, meta: &Metadata) -> Answer {
    if !meta.is_symlink() {
        return Err(failed("not a symlink"));
    }
    let target = fs::read_link(path).map_err(unknown)?;
    Ok(target.to_string_lossy().into())
}
