//! Reads file contents for a check: with a limit, and without blocking on a pipe.

use super::{ProbeContext, ProbeError, failed_error, unknown_error};
use remoor_host::files::MAX_FILE;
use rustix::fs::OFlags;
use std::fs::{self, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Number of times a file is read again if it changes while it is read.
const RETRIES: u32 = 3;
/// Extra space in the buffer, in bytes. With less free space, the standard library first makes an
/// additional small read to detect the end of the file.
const END: usize = 64;

/// Reads the file at `path`, following links, in a consistent state. A file may have at most
/// `MAX_FILE` bytes.
pub(super) fn content(ask: &ProbeContext, path: &Path) -> Result<Vec<u8>, ProbeError> {
    ask.world.servers().resolve(path).map_err(unknown_error)?;
    stable(path, None, || ()).map(|(bytes, _)| bytes)
}

/// Like [`content`], for a path whose own metadata `seen` was just read. Also returns the file's
/// metadata after the last byte was read.
pub(super) fn content_of(ask: &ProbeContext, path: &Path, seen: &Metadata) -> Result<(Vec<u8>, Metadata), ProbeError> {
    if seen.is_symlink() {
        ask.world.servers().resolve(path).map_err(unknown_error)?;
        return stable(path, None, || ());
    }
    stable(path, Some(seen), || ())
}

/// Reads a file. If the file changes meanwhile, reads it again, at most `RETRIES` times. `seen` is
/// the metadata of the target, if known. `before_check` runs after the last byte is read and before
/// the check for changes.
fn stable(
    path: &Path,
    seen: Option<&Metadata>,
    mut before_check: impl FnMut(),
) -> Result<(Vec<u8>, Metadata), ProbeError> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    // Opening a device may have side effects, so the file type is checked first.
    let look = || {
        fs::metadata(path)
            .map_err(|e| if e.kind() == io::ErrorKind::NotFound { failed_error(e) } else { unknown_error(e) })
    };
    let target = seen.map_or_else(look, |seen| Ok(seen.clone()))?;
    if !target.is_file() {
        return Err(failed_error(format!("a {} has no contents to compare", filetype(target.file_type()))));
    }
    let too_large = || unknown_error(format!("larger than {} MiB", MAX_FILE >> 20));
    if target.len() > MAX_FILE {
        return Err(too_large());
    }
    for _ in 0..=RETRIES {
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unknown_error)?;
        let before = file.metadata().map_err(unknown_error)?;
        if !before.is_file() {
            continue;
        }
        // The buffer has space for the whole file, and for the last read, which detects the end of
        // the file. A smaller buffer would grow in steps.
        let mut bytes = Vec::with_capacity(usize::try_from(before.len().min(MAX_FILE)).unwrap_or(0) + END);
        file.by_ref().take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unknown_error)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(too_large());
        }
        before_check();
        let after = file.metadata().map_err(unknown_error)?;
        if state(&after) == state(&before) {
            return Ok((bytes, after));
        }
    }
    Err(unknown_error("the file changes while it is read"))
}

/// The metadata that a write to the file changes. The length is not compared with the number of
/// bytes read, because these differ for files of the kernel.
fn state(meta: &Metadata) -> (u64, i64, i64) {
    (meta.len(), meta.mtime(), meta.mtime_nsec())
}

/// The name of a file type in goss.
pub(super) fn filetype(kind: FileType) -> &'static str {
    if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symlink"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_char_device() {
        "character-device"
    } else {
        "block-device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_grows_under_the_reader_has_no_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "one\n").unwrap();
        let grow = || writeln!(OpenOptions::new().append(true).open(&path).unwrap(), "more").unwrap();
        assert_eq!(stable(&path, None, grow).map(drop), Err(unknown_error("the file changes while it is read")));
        let mut once = Some(grow);
        let seen = stable(&path, None, || once.take().map_or((), |grow| grow())).unwrap().0;
        assert_eq!(String::from_utf8(seen).unwrap(), fs::read_to_string(&path).unwrap(), "the second reading saw all");
    }

    #[test]
    fn files_of_the_kernel_have_contents_though_they_have_no_size() {
        let version = stable(Path::new("/proc/version"), None, || ()).unwrap().0;
        assert_eq!(version, fs::read("/proc/version").unwrap());
        assert!(!version.is_empty());
    }
}
