//! Reads one path into an entry, without following it and without ever waiting for a pipe or a device.

use super::cache::{Cache, Stamp};
use super::{MAX_FILE, Names};
use crate::model::{FileEntry, FileKind, Sha256};
use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::Digest;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

/// A file that moves under the reader is read again so many times.
const RETRIES: u32 = 3;
const BUFFER: usize = 64 << 10;

/// What became of one try.
enum Try<T> {
    Done(T),
    /// It changed meanwhile.
    Moved,
}

/// The entry of `path`; of kind `Absent` if there is nothing. Err: why it can't be read, for people.
pub(super) fn entry(path: &Path, secret: bool, names: &Names, cache: &mut Cache) -> Result<FileEntry, String> {
    let Some(text) = path.to_str() else { return Err("the name is not UTF-8".to_owned()) };
    for _ in 0..=RETRIES {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(e) if is_absent(&e) => return Ok(absent(text, secret)),
            Err(e) => return Err(e.to_string()),
        };
        let kind = kind_of(meta.file_type());
        let mut entry = FileEntry {
            path: text.to_owned(),
            kind,
            mode: if kind == FileKind::Symlink { 0 } else { meta.mode() & 0o7777 },
            owner: names.owner(meta.uid()),
            group: names.group(meta.gid()),
            sha256: None,
            target: None,
            secret,
        };
        match kind {
            FileKind::File => match content(path, &meta, secret, cache, || ())? {
                Try::Done(sha256) => entry.sha256 = Some(sha256),
                Try::Moved => continue,
            },
            FileKind::Symlink => match target(path)? {
                Try::Done(target) => entry.target = Some(target),
                Try::Moved => continue,
            },
            _ => {}
        }
        return Ok(entry);
    }
    Err("changes while it is read".to_owned())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn absent(path: &str, secret: bool) -> FileEntry {
    FileEntry {
        path: path.to_owned(),
        kind: FileKind::Absent,
        mode: 0,
        owner: String::new(),
        group: String::new(),
        sha256: None,
        target: None,
        secret,
    }
}

fn kind_of(kind: FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Dir
    } else if kind.is_symlink() {
        FileKind::Symlink
    } else if kind.is_socket() {
        FileKind::Socket
    } else if kind.is_fifo() {
        FileKind::Fifo
    } else if kind.is_char_device() {
        FileKind::CharDevice
    } else {
        FileKind::BlockDevice
    }
}

/// `before_check` runs between the last byte and the look whether the file is still the same.
fn content(
    path: &Path,
    meta: &Metadata,
    secret: bool,
    cache: &mut Cache,
    before_check: impl FnOnce(),
) -> Result<Try<Sha256>, String> {
    let too_large = || format!("larger than {} MiB", MAX_FILE >> 20);
    if meta.len() > MAX_FILE {
        return Err(too_large());
    }
    let stamp = Stamp::of(meta);
    if let Some(sha256) = cache.get(&stamp, secret) {
        return Ok(Try::Done(sha256));
    }
    let read_at = SystemTime::now();
    // The file may have become a link, a pipe or a terminal since it was looked at.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut file = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(e) if is_absent(&e) || e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => return Ok(Try::Moved),
        Err(e) => return Err(e.to_string()),
    };
    let same =
        |file: &File| file.metadata().map(|now| now.is_file() && Stamp::of(&now) == stamp).map_err(|e| e.to_string());
    if !same(&file)? {
        return Ok(Try::Moved);
    }
    let mut hasher = Hasher::new(secret, cache.key());
    let mut buffer = vec![0; BUFFER];
    let mut total = 0u64;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                total += n as u64;
                if total > MAX_FILE {
                    return Err(too_large());
                }
                hasher.update(&buffer[..n]);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    before_check();
    if !same(&file)? {
        return Ok(Try::Moved);
    }
    let sha256 = hasher.finish();
    cache.put(stamp, secret, sha256, read_at);
    Ok(Try::Done(sha256))
}

fn target(path: &Path) -> Result<Try<String>, String> {
    match fs::read_link(path) {
        Ok(target) => match target.into_os_string().into_string() {
            Ok(target) => Ok(Try::Done(target)),
            Err(_) => Err("the target is not UTF-8".to_owned()),
        },
        Err(e) if is_absent(&e) || e.kind() == io::ErrorKind::InvalidInput => Ok(Try::Moved),
        Err(e) => Err(e.to_string()),
    }
}

enum Hasher {
    Plain(sha2::Sha256),
    Keyed(Box<Hmac<sha2::Sha256>>),
}

impl Hasher {
    fn new(secret: bool, key: &[u8; 32]) -> Self {
        // HMAC pads a shorter key with zeros to one block of the hash.
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(key);
        if secret { Self::Keyed(Box::new(Hmac::new(&block.into()))) } else { Self::Plain(sha2::Sha256::new()) }
    }
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(hasher) => hasher.update(bytes),
            Self::Keyed(hasher) => hasher.update(bytes),
        }
    }
    fn finish(self) -> Sha256 {
        Sha256(match self {
            Self::Plain(hasher) => hasher.finalize().into(),
            Self::Keyed(hasher) => hasher.finalize().into_bytes().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_behind_the_readers_back_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let meta = fs::symlink_metadata(&path).unwrap();
        let write = || fs::write(&path, "longer").unwrap();
        let outcome = content(&path, &meta, false, &mut Cache::trusting(), write).unwrap();
        assert!(matches!(outcome, Try::Moved));
    }

    #[test]
    fn a_file_that_became_a_pipe_or_a_link_does_not_hang_the_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let meta = fs::symlink_metadata(&path).unwrap();
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(content(&path, &meta, false, &mut Cache::default(), || ()), Ok(Try::Moved)));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(matches!(content(&path, &meta, false, &mut Cache::default(), || ()), Ok(Try::Moved)));
    }

    #[test]
    fn the_keyed_hash_is_the_standard_one() {
        // Computed by Python's hmac module.
        let mut hasher = Hasher::new(true, &[7; 32]);
        hasher.update(b"secret");
        let wanted = "e8f9acc76498c028a66162edc9e6597a6f5f57c50447c8be0a9d6aaeb3a6bc46";
        assert_eq!(hasher.finish().to_string(), wanted);
    }
}
