//! A file that a host sends to the controller, until it has its final name.
//!
//! The directories below the directory of the task are opened one after the other without following
//! links, so a link in them cannot lead the file to another place.

use super::fetch_file::{FETCHED_MAX, FetchAnswer, FetchTarget};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use sha2::Digest;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of the next temporary file.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A file that is being received. Its temporary file is removed if it is dropped before its end.
#[derive(Debug)]
pub struct IncomingFile {
    directory: OwnedFd,
    target: FetchTarget,
    temporary: String,
    file: File,
    missing: u64,
    expected: String,
    sha1: sha1::Sha1,
    md5: md5::Md5,
}

impl IncomingFile {
    /// Opens the directory of the target, and creates what is missing of it. None: more parts
    /// follow; otherwise the final answer, because the target has this content already.
    pub fn open(target: FetchTarget, size: u64, sha1: String) -> Result<(Option<Self>, FetchAnswer), String> {
        let at = |e: Errno| format!("{}: {e}", target.base.join(&target.file).display());
        let directory = open_directory(&target)?;
        let name = name_of(&target);
        match openat(
            &directory,
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK,
            Mode::empty(),
        ) {
            Ok(file) => {
                if FileType::from_raw_mode(fstat(&file).map_err(at)?.st_mode) != FileType::RegularFile {
                    return Err(format!(
                        "{} is no regular file; use a trailing slash if `dest` is a directory",
                        target.base.join(&target.file).display()
                    ));
                }
                let (own, md5) = checksums(&mut File::from(file)).map_err(|e| e.to_string())?;
                if own == sha1 {
                    return Ok((None, stored_answer(&target, false, own, md5)));
                }
            }
            Err(Errno::NOENT) => {}
            Err(Errno::LOOP) => {
                return Err(format!("{} is a link", target.base.join(&target.file).display()));
            }
            // The file is replaced, so it need not be readable.
            Err(Errno::ACCESS) => {}
            Err(e) => return Err(at(e)),
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".remoor-{}-{number}.tmp", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&directory, &temporary, flags, Mode::from_raw_mode(0o666)).map_err(at)?;
        let mut received = Self {
            directory,
            target,
            temporary,
            file: File::from(file),
            missing: size.min(FETCHED_MAX),
            expected: sha1,
            sha1: sha1::Sha1::new(),
            md5: md5::Md5::new(),
        };
        match received.missing {
            0 => received.finish().map(|answer| (None, answer)),
            _ => Ok((Some(received), FetchAnswer::More)),
        }
    }

    /// Writes the next part. Fails if the part has no bytes, or more than are missing.
    pub fn write(&mut self, part: &[u8]) -> Result<FetchAnswer, String> {
        let length = part.len() as u64;
        if length == 0 || length > self.missing {
            return Err(format!("a part has {length} bytes, and {} are missing", self.missing));
        }
        self.file.write_all(part).map_err(|e| format!("{}: {e}", self.path().display()))?;
        self.sha1.update(part);
        self.md5.update(part);
        self.missing -= length;
        if self.missing == 0 { self.finish() } else { Ok(FetchAnswer::More) }
    }

    fn path(&self) -> PathBuf {
        self.target.base.join(&self.target.file)
    }

    /// Gives the file its name, and the mode of the file that it replaces.
    fn finish(&mut self) -> Result<FetchAnswer, String> {
        let path = self.path();
        let at = |e: Errno| format!("{}: {e}", path.display());
        let sha1 = hex::encode(self.sha1.clone().finalize());
        if self.target.validate && sha1 != self.expected {
            return Ok(FetchAnswer::Failed(format!(
                "checksum mismatch: {} has {sha1}, and the host announced {}; the file changed while it was sent",
                path.display(),
                self.expected
            )));
        }
        let name = name_of(&self.target);
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) if FileType::from_raw_mode(old.st_mode) == FileType::RegularFile => {
                fchmod(&self.file, Mode::from_raw_mode(old.st_mode & 0o777)).map_err(at)?;
            }
            Ok(_) => return Err(format!("{} is no regular file", path.display())),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(at(e)),
        }
        renameat(&self.directory, &self.temporary, &self.directory, name).map_err(at)?;
        self.temporary.clear();
        Ok(stored_answer(&self.target, true, sha1, hex::encode(self.md5.clone().finalize())))
    }
}

impl Drop for IncomingFile {
    fn drop(&mut self) {
        if !self.temporary.is_empty() {
            let _already_gone = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

fn stored_answer(target: &FetchTarget, changed: bool, sha1: String, md5: String) -> FetchAnswer {
    FetchAnswer::Stored { changed, path: target.base.join(&target.file).display().to_string(), sha1, md5 }
}

fn name_of(target: &FetchTarget) -> &OsStr {
    target.file.file_name().unwrap_or_default()
}

/// Opens the directory of the file, and creates the directories that do not exist.
fn open_directory(target: &FetchTarget) -> Result<OwnedFd, String> {
    let shown = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    std::fs::create_dir_all(&target.base).map_err(|e| shown(&target.base, &e))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = openat(CWD, &target.base, flags, Mode::empty()).map_err(|e| shown(&target.base, &e))?;
    let mut path = target.base.clone();
    let parent = target.file.parent().unwrap_or(Path::new(""));
    for part in parent.components() {
        let Component::Normal(name) = part else {
            return Err(format!("{} is not below {}", target.file.display(), target.base.display()));
        };
        path.push(name);
        match mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(shown(&path, &e)),
        }
        directory = match openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(format!("{} is a link or a file", path.display())),
            Err(e) => return Err(shown(&path, &e)),
        };
    }
    Ok(directory)
}

/// The SHA-1 and the MD5 of a file, in hex.
fn checksums(file: &mut File) -> std::io::Result<(String, String)> {
    let (mut sha1, mut md5) = (sha1::Sha1::new(), md5::Md5::new());
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((hex::encode(sha1.finalize()), hex::encode(md5.finalize()))),
            n => {
                sha1.update(&buffer[..n]);
                md5.update(&buffer[..n]);
            }
        }
    }
}
