//! Reads one file or link, and hashes its content without the lines that are ignored. The file may
//! be replaced during the read.

use super::MAX_FILE;
use super::cache::{HashMethod, Stamp};
use super::path_metadata::PathMetadata;
use super::read::{ReadOptions, is_absent};
use hmac::{Hmac, KeyInit, Mac};
use remoor_model::Sha256;
use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::Digest;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

const BUFFER: usize = 64 << 10;

/// The result of reading a file or a link once.
pub(super) enum ReadAttempt<T> {
    Done(T),
    /// The file changed during the read.
    Changed,
}

/// The content of a file that was read and hashed.
pub(super) struct FreshContent {
    pub stamp: Stamp,
    pub way: HashMethod,
    pub sha256: Sha256,
    /// The time just before the first byte of the file was read.
    pub read_at: SystemTime,
}

/// Buffers of one reading thread.
#[derive(Default)]
pub(super) struct ContentReader {
    buffer: Vec<u8>,
    /// The whole content of the file. Only used if some lines are ignored.
    whole: Vec<u8>,
}

impl ContentReader {
    /// Reads and hashes one file. `before_check` runs after the last byte was read and before the
    /// check that the file is unchanged.
    pub(super) fn read_content(
        &mut self,
        path: &Path,
        seen: &PathMetadata,
        how: &ReadOptions,
        secret: bool,
        before_check: impl FnOnce(),
    ) -> Result<ReadAttempt<FreshContent>, String> {
        let too_large = || format!("larger than {} MiB", MAX_FILE >> 20);
        let stamp = seen.stamp;
        if stamp.size > MAX_FILE {
            return Err(too_large());
        }
        let read_at = SystemTime::now();
        // The file may have become a link, a pipe or a terminal since its metadata was read.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
            Ok(file) => file,
            Err(e) if is_absent(&e) || e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Ok(ReadAttempt::Changed);
            }
            Err(e) => return Err(e.to_string()),
        };
        let same = |file: &File| {
            file.metadata().map(|now| now.is_file() && Stamp::from_metadata(&now) == stamp).map_err(|e| e.to_string())
        };
        if !same(&file)? {
            return Ok(ReadAttempt::Changed);
        }
        let mut hasher = Hasher::new(how.key.filter(|_| secret).as_ref());
        self.buffer.resize(BUFFER, 0);
        self.whole.clear();
        let mut total = 0u64;
        // The loop ends when as many bytes are read as the file had before the read; the check
        // below detects further bytes. A file in /proc has length 0, so it is read to its end.
        while stamp.size == 0 || total < stamp.size {
            match file.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(n) => {
                    total += n as u64;
                    if total > MAX_FILE {
                        return Err(too_large());
                    }
                    match &how.normalize {
                        Some(_) => self.whole.extend_from_slice(&self.buffer[..n]),
                        None => hasher.update(&self.buffer[..n]),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        before_check();
        if !same(&file)? {
            return Ok(ReadAttempt::Changed);
        }
        if let Some(normalize) = &how.normalize {
            normalize.significant_lines(&self.whole).for_each(|part| hasher.update(part));
            self.whole.clear();
            self.whole.shrink_to(BUFFER);
        }
        Ok(ReadAttempt::Done(FreshContent { stamp, way: how.hash_method(secret), sha256: hasher.finish(), read_at }))
    }
}

pub(super) fn read_target(path: &Path) -> Result<ReadAttempt<String>, String> {
    match fs::read_link(path) {
        Ok(target) => match target.into_os_string().into_string() {
            Ok(target) => Ok(ReadAttempt::Done(target)),
            Err(_) => Err("the target is not UTF-8".to_owned()),
        },
        Err(e) if is_absent(&e) || e.kind() == io::ErrorKind::InvalidInput => Ok(ReadAttempt::Changed),
        Err(e) => Err(e.to_string()),
    }
}

enum Hasher {
    Plain(sha2::Sha256),
    Keyed(Box<Hmac<sha2::Sha256>>),
}

impl Hasher {
    /// HMAC with `key`; plain SHA-256 without a key.
    fn new(key: Option<&[u8; 32]>) -> Self {
        let Some(key) = key else { return Self::Plain(sha2::Sha256::new()) };
        // HMAC pads a shorter key with zeros to one block of the hash.
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(key);
        Self::Keyed(Box::new(Hmac::new(&block.into())))
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
    use super::super::read::SecretRule;
    use super::*;
    use globset::GlobSet;

    #[test]
    fn a_write_during_the_read_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let seen = PathMetadata::from_metadata(&fs::symlink_metadata(&path).unwrap());
        for write in ["longer", "two", ""] {
            let write = || fs::write(&path, write).unwrap();
            let how = ReadOptions { secret: SecretRule::Globs(GlobSet::empty()), key: None, normalize: None };
            let outcome = ContentReader::default().read_content(&path, &seen, &how, false, write).unwrap();
            assert!(matches!(outcome, ReadAttempt::Changed));
        }
    }

    #[test]
    fn a_proc_file_is_read_to_its_end() {
        let path = Path::new("/proc/kallsyms");
        let seen = PathMetadata::from_metadata(&fs::symlink_metadata(path).unwrap());
        let how = ReadOptions { secret: SecretRule::Globs(GlobSet::empty()), key: None, normalize: None };
        let whole = fs::read(path).unwrap();
        assert!(whole.len() > 1 << 16, "one read call does not return all of it");
        match ContentReader::default().read_content(path, &seen, &how, false, || ()) {
            Ok(ReadAttempt::Done(fresh)) => assert_eq!(fresh.sha256, Sha256::digest(&whole)),
            Ok(ReadAttempt::Changed) => {}
            Err(why) => panic!("{why}"),
        }
    }

    #[test]
    fn the_keyed_hash_is_the_standard_one() {
        // The expected value was computed by Python's hmac module.
        let mut hasher = Hasher::new(Some(&[7; 32]));
        hasher.update(b"secret");
        let wanted = "e8f9acc76498c028a66162edc9e6597a6f5f57c50447c8be0a9d6aaeb3a6bc46";
        assert_eq!(hasher.finish().to_string(), wanted);
    }
}
