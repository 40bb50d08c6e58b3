//! `file`: the attributes of the path itself, and the content of the file that it leads to.

use super::read::{content_of, filetype};
use super::{PRIVATE, ProbeAnswer, ProbeAnswers, ProbeContext, failed_error, measure, unknown_error};
use md5::Md5;
use serde_json::Value;
use sha2::Digest;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

type ContentFn = fn(&[u8]) -> Value;

/// The properties that are computed from the content. Each is computed only if the check asserts
/// it, because for a thousand small files the hashes cost more than reading the files.
const CONTENT: [(&str, ContentFn); 4] = [
    ("contents", |bytes| String::from_utf8_lossy(bytes).into()),
    ("md5", |bytes| hex::encode(Md5::digest(bytes)).into()),
    ("sha256", |bytes| hex::encode(sha2::Sha256::digest(bytes)).into()),
    ("sha512", |bytes| hex::encode(sha2::Sha512::digest(bytes)).into()),
];

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let path = match expand(ask) {
        // A plain goss file may name a path relative to the working directory.
        Ok(path) => clean_path(&std::path::absolute(&path).unwrap_or(path)),
        Err(why) => return ProbeAnswers::from([("exists", Err(unknown_error(why)))]),
    };
    if let Err(why) = ask.world.servers().answer(&path) {
        return ProbeAnswers::from([("exists", Err(unknown_error(why)))]);
    }
    let meta = match fs::symlink_metadata(&path) {
        Ok(meta) => meta,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return ProbeAnswers::from([("exists", Ok(false.into()))]);
        }
        Err(e) => return ProbeAnswers::from([("exists", Err(unknown_error(e)))]),
    };
    let names = ask.world.names();
    let mut answers = ProbeAnswers::from([
        ("exists", Ok(true.into())),
        ("mode", Ok(format!("{:04o}", meta.mode() & 0o7777).into())),
        ("size", Ok(meta.len().into())),
        ("owner", Ok(names.owner(meta.uid()).into())),
        ("uid", Ok(meta.uid().into())),
        ("group", Ok(names.group(meta.gid()).into())),
        ("gid", Ok(meta.gid().into())),
        ("filetype", Ok(filetype(meta.file_type()).into())),
        ("linked-to", target(&path, &meta)),
        (PRIVATE, Ok(is_owner_only(&meta).into())),
    ]);
    if CONTENT.iter().any(|(property, _)| ask.wants(property)) || measure::is_wanted(ask) {
        let (content, private) = match content_of(ask, &path, &meta) {
            Ok((bytes, read)) => (Ok(bytes), is_owner_only(&read)),
            // A file whose metadata cannot be read is not treated as private.
            Err(why) => {
                let target = ask.world.servers().resolve(&path).map(|_| fs::metadata(&path));
                (Err(why), target.is_ok_and(|meta| meta.is_ok_and(|meta| is_owner_only(&meta))))
            }
        };
        // For a link, the target decides whether the content is private, because the content is
        // that of the target.
        answers.insert(PRIVATE, Ok(private.into()));
        for (property, of) in CONTENT.into_iter().filter(|(property, _)| ask.wants(property)) {
            answers.insert(property, content.as_deref().map(of).map_err(Clone::clone));
        }
        if measure::is_wanted(ask) {
            let text = content.map(|bytes| String::from_utf8_lossy(&bytes).into());
            measure::add(ask, &text, &mut answers);
        }
    }
    answers
}

/// Whether only its owner may read the file; `remoor digest` uses the same rule.
fn is_owner_only(meta: &Metadata) -> bool {
    !meta.is_symlink() && meta.mode() & 0o044 == 0
}

/// Expands `~` and `~user` to home directories.
fn expand(ask: &ProbeContext) -> Result<PathBuf, String> {
    let name = ask.check.name.as_str();
    let Some(rest) = name.strip_prefix('~') else { return Ok(name.into()) };
    let (user, tail) = rest.split_once('/').unwrap_or((rest, ""));
    let user =
        if user.is_empty() { ask.world.names().owner(rustix::process::geteuid().as_raw()) } else { user.to_owned() };
    let home = ask.world.names().account(&user).map(|account| account.home.clone());
    home.map(|home| Path::new(&home).join(tail)).ok_or_else(|| format!("there is no user {user}"))
}

/// Cleans a path as goss does: removes `.`, `..` and a trailing `/`, which would lead to the target
/// of a link. Links are not resolved.
fn clean_path(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

fn target(path: &Path, meta: &Metadata) -> ProbeAnswer {
    if !meta.is_symlink() {
        return Err(failed_error("not a symlink"));
    }
    let target = fs::read_link(path).map_err(unknown_error)?;
    Ok(target.to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_by_their_text() {
        for (written, meant) in
            [("/a/f/", "/a/f"), ("/a//./f", "/a/f"), ("/a/x/../f/", "/a/f"), ("/../..", "/"), ("/", "/")]
        {
            assert_eq!(clean_path(Path::new(written)).as_os_str(), meant, "{written}");
        }
    }
}
